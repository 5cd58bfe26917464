"""Made tables in the form of the published ones, for tests of the reproduction: no row is
anybody's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from reproduction.measure import FIGURES, Measurement
from reproduction.prepare import Prepared, make_forest, prepare
from reproduction.tables import Table

FEATURES = ("age", "sex", "pain", "pressure")


def rows(n: int = 240, seed: int = 0) -> pd.DataFrame:
    """Return made patients whose outcome depends on all features; some values are missing."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": random.integers(30, 70, n),
            "sex": random.choice(["f", "m"], n, p=[0.3, 0.7]),
            "pain": random.choice(["none", "mild", "strong"], n),
            "pressure": random.normal(130, 15, n).round(),
        }
    )
    risk = (frame["age"] - 50) / 20 + (frame["pain"] == "strong") + (frame["pressure"] - 130) / 15
    frame["disease"] = np.where(risk + random.normal(0, 0.3, n) > 0.3, "present", "absent")
    frame.loc[frame.index % 17 == 0, "pain"] = None
    return frame


def table() -> Table:
    """Return a made table under the name of a published one."""
    return Table(
        name="heart",
        frame=rows(),
        features=FEATURES,
        quasi_identifiers=("age", "sex"),
        sensitive="sex",
        target="disease",
        desired="absent",
        source="made for a test",
    )


def prepared() -> Prepared:
    """Return a made table, ready to be measured, with a small forest that need not be tuned."""
    made_table = table()
    forest = make_forest(made_table.frame[list(FEATURES)], 10, 10)
    return prepare(made_table, 12, forest)


def measurement(
    table: str = "cmc",
    method: str = "exact-pureness",
    k: int = 10,
    settings: dict[str, int] | None = None,
    groups: tuple[str, ...] = (),
    groups_asking: tuple[str, ...] = (),
    **figures: list[float | None],
) -> Measurement:
    """Return a measurement with the figures given, one number per explanation.

    `people` is the figure ``k``. It took half a second per explanation in a call of four.
    """
    n = len(next(iter(figures.values())))
    if "people" in figures:
        figures["k"] = figures.pop("people")
    usual: dict[str, Any] = {name: [float(k)] * n for name in ("k", "k_desired", "k_consistent")}
    usual["ncp"] = [0.1] * n
    usual |= {name: [1.0] * n for name in ("pureness", "proven", "agrees")}
    return Measurement(
        table=table,
        method=method,
        k=k,
        settings=settings or {},
        figures=pd.DataFrame({**usual, **figures}, columns=list(FIGURES), dtype=float),
        groups=groups or ("minority",) * n,
        groups_asking=groups_asking or ("majority",) * n,
        seconds=2.0,
        model_seconds=0.5,
        model_calls=3,
    )
