"""A table of mixed columns, persons whose values change a dtype or are not declared, and all that
leaves of a fit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd

from cfk_plugin import Attribute, DPPrototypes, Population, Schema
from cfk_plugin.audit.epsilon_bounds import Agreement


def people(n: int = 200) -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": random.integers(20, 80, n),
            "kids": random.integers(0, 6, n),
            "pay": random.integers(0, 5000, n).astype(float),
            "town": random.choice(["Antwerp", "Ghent"], n),
            "level": random.choice(["low", "high"], n),
            "member": random.random(n) < 0.3,
            "since": pd.to_datetime(random.choice(["2020-01-01", "2020-06-01"], n)),
        }
    )


TABLE = people()
DECLARED: dict[str, Any] = {
    "quasi_identifiers": ["age", "town"],
    "columns": {
        "age": Attribute(bounds=(18, 90), whole=True),
        "kids": Attribute(bounds=(0, 12)),
        "pay": Attribute(bounds=(0, 5000)),
        "since": Attribute(bounds=("2019-01-01", "2021-01-01")),
        "town": Attribute(categories=["Antwerp", "Ghent", "Namur"]),
        "member": Attribute(categories=[True, False]),
    },
    "ordinal": {"level": ["low", "mid", "high"]},
    "nullable": ["kids", "pay", "member"],
}
SCHEMA = Schema.from_frame(TABLE, **DECLARED)
PEOPLE = Population.from_frame(TABLE, SCHEMA)

SOMEBODY: dict[str, Any] = {**TABLE.iloc[0].to_dict(), "age": 85, "kids": 9, "pay": 4999.0}
COUNTED: dict[str, dict[str, Any]] = {
    "a fraction among whole numbers": {"kids": 2.5},
    "a missing number": {"kids": np.nan},
    "a missing answer": {"member": None},
    "a number among answers": {"member": 1},
}
LEFT_OUT: dict[str, dict[str, Any]] = {
    "a text among numbers": {"kids": "two"},
    "a text among dates": {"since": "unknown"},
    "an infinite number": {"pay": np.inf},
    "a number that no float holds": {"age": 10**400},
    "an undeclared town": {"town": "Elsewhere"},
    "an undeclared level": {"level": "top"},
    "a missing value where none may be": {"age": None},
    "a list": {"town": ["Ghent"]},
    "a complex number": {"pay": 3 + 4j},
}

ODD = {**COUNTED, **LEFT_OUT}
"""One person each, whose value changes the dtype of a column, or is not declared."""
RARE = {"town": "Namur", "level": "mid", "member": True, "since": pd.Timestamp("2019-02-01")}
"""Declared values that nobody else has."""
ORDINARY = {"age": 50, "kids": 2, "pay": 2499.5}


def person(**odd: Any) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series([{**SOMEBODY, **odd}[name]]) for name in TABLE})


def rich(rows: pd.DataFrame) -> np.ndarray:
    return np.where(rows["pay"] > 2500, "yes", "no")


def fitted(table: pd.DataFrame, schema: Schema = SCHEMA, **settings: Any) -> DPPrototypes:
    settings = {"rows": 500, "epsilon": 1.0, **settings}
    return DPPrototypes(**settings).fit(Population.from_frame(table, schema), rich, "yes")


def form(found: DPPrototypes) -> dict[str, str]:
    """Return what leaves besides values: columns, their order and dtypes, index, size, JSON without
    values, texts.
    """
    frame, answers = found.served_.frame, found.explain(TABLE.head(1))
    content = json.loads(answers.to_json())
    content["explanations"] = [
        sorted(entry.values) for entry in answers if entry.status == "released"
    ]
    return {
        "columns": repr(
            [
                (name, dtype, getattr(dtype, "categories", ()))
                for name, dtype in frame.dtypes.items()
            ]
        ),
        "index": repr(frame.index),
        "JSON": json.dumps(content),
        "texts": repr((found, found.served_, answers)),
    }


def told(canary: pd.DataFrame) -> Callable[[DPPrototypes], np.ndarray]:
    """Return a score of what is drawn and answered: rows like the canary, codes that occur, sizes,
    order and dtypes.
    """
    like = Agreement(TABLE, canary, SCHEMA)

    def score(found: DPPrototypes) -> np.ndarray:
        frames = found.served_.frame, found.generate(TABLE.head(4))[0]
        kinds = [crc32(repr((frame.index, *frame.dtypes.items())).encode()) for frame in frames]
        return np.concatenate(
            [*map(like, frames), frames[0].nunique(), frames[0].isna().sum(), kinds]
        ).astype(float)

    return score


def published(epsilon: float, delta: float = 0.0) -> Callable[[pd.DataFrame], DPPrototypes]:
    """Return a whole fit of few rows as a function of the table; answers are moved, the model being
    public.
    """
    settings = {"delta": delta, "rows": 200, "plausibility": 0.2, "model_access": "public"}
    return lambda table: fitted(table, epsilon=epsilon, **settings)
