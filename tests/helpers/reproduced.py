"""Made tables in the form of the published ones, for tests of the reproduction: no row is
anybody's.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.release.results import Entry
from reproduction.measure import Job, Measurement
from reproduction.measure import measure as measured
from reproduction.measure import protect as released
from reproduction.prepare import Config, DataSummary, Prepared, prepare
from reproduction.results import published
from reproduction.tables import Table

FEATURES = ("age", "sex", "pain", "pressure")
QUASI_IDENTIFIERS = ("age", "sex")
SUMMARY = DataSummary(
    n_estimators=10,
    max_leaf_nodes=10,
    scores={"10,10": 0.8},
    accuracy=0.8,
    rows_train=144,
    rows_test=96,
    unique=0.1,
    below_10=0.9,
    explained=12,
    unanswered=0,
    seconds=1.0,
)
"""A small forest that need not be tuned."""


def rows(n: int = 240, seed: int = 0) -> pd.DataFrame:
    """Return made patients whose outcome depends on all features; some values are missing."""
    random = np.random.default_rng(seed)
    found = pd.DataFrame(
        {
            "age": random.integers(30, 70, n),
            "sex": random.choice(["f", "m"], n, p=[0.3, 0.7]),
            "pain": random.choice(["none", "mild", "strong"], n),
            "pressure": random.normal(130, 15, n).round(),
        }
    )
    risk = (found["age"] - 50) / 20 + (found["pain"] == "strong") + (found["pressure"] - 130) / 15
    found["disease"] = np.where(risk + random.normal(0, 0.3, n) > 0.3, "present", "absent")
    found.loc[found.index % 17 == 0, "pain"] = None
    return found


def table(name: str = "heart", n: int = 240, seed: int = 0) -> Table:
    """Return a made table under the name of a published one."""
    return Table(
        name,
        rows(n, seed),
        FEATURES,
        QUASI_IDENTIFIERS,
        "sex",
        "disease",
        "absent",
        "made for a test",
    )


def config(**changes: Any) -> Config:
    """Return the setting of the tests."""
    usual: dict[str, Any] = {
        "table": "heart",
        "table_sha256": "made",
        "source": "made for a test",
        "seed": 0,
        "grid": "small",
        "explainer": "nearest",
        "limit": 12,
        "versions": {},
    }
    return Config(**{**usual, **changes})


def prepared(**changes: Any) -> Prepared:
    """Return a made table, ready to be measured, with a small forest."""
    return prepare(table(), config(**changes), SUMMARY)


def write(folder: Path, *names: str) -> None:
    """Write made tables into a folder, in the format that `--data` takes."""
    for seed, name in enumerate(names):
        frame = rows(seed=seed)
        frame.to_csv(folder / f"{name}.csv.gz", index=False)
        kinds = {"age": "numeric", "pressure": "numeric"}
        about = {
            "name": name,
            "title": "made for a test",
            "source": {"original": "made for a test"},
            "features": list(FEATURES),
            "quasi_identifiers": list(QUASI_IDENTIFIERS),
            "sensitive_attribute": "sex",
            "target": "disease",
            "desired_outcome": "absent",
            "columns": [
                {"name": column, "type": kinds.get(column, "categorical")} for column in frame
            ],
        }
        (folder / f"{name}.json").write_text(json.dumps(about))


def measure(
    prepared: Prepared, method: str, k: int, *, effective: int = 0, **job: Any
) -> Measurement:
    """Measure a method on a made table."""
    return measured(
        prepared, Job(table=prepared.config.table, method=method, k=k, **job), effective=effective
    )


def protect(prepared: Prepared, method: str, k: int, frame: pd.DataFrame) -> list[Entry]:
    """Return what a method releases for some counterfactuals of a made table."""
    return released(prepared, Job(table=prepared.config.table, method=method, k=k), frame)


def outcome(
    table: str = "cmc", method: str = "exact-pureness", k: int = 10, **figures: list[float | None]
) -> Measurement:
    """Return an outcome with the figures given, one number per explanation; `people` is the figure
    ``k``.
    """
    asked = len(next(iter(figures.values())))
    if "people" in figures:
        figures["k"] = figures.pop("people")
    same = {
        "ncp": 0.1,
        "pureness": 1.0,
        "k": k,
        "k_desired": k,
        "k_consistent": k,
        "k_effective": None,
    }
    every = {
        name: [value] * asked for name, value in (same | {"proven": 1.0, "agrees": 1.0}).items()
    } | figures
    printed = published().data[table]
    rows = 10_000 if table == "hospital" else printed.rows
    return Measurement(
        config=config(table=table, table_sha256="0" * 64, explainer="nice", limit=100),
        summary=replace(  # a table that is like the paper's, but for hospital and informs
            SUMMARY,
            max_leaf_nodes=None if table == "hospital" else 100,
            rows_train=rows - rows * 2 // 5,
            rows_test=rows * 2 // 5,
            unique=0.6486 if table == "informs" else printed.unique,
            below_10=printed.below_10,
            explained=100,
        ),
        method=method,
        k=k,
        options={},
        asked=asked,
        fit_seconds=0.5,
        seconds=2.0,
        model_seconds=0.5,
        model_calls=3,
        figures={name: tuple(values) for name, values in every.items()},
        groups=("minority",) * asked,
        groups_asking=("majority",) * asked,
    )
