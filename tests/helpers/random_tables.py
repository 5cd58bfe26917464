"""Small random tables with every kind of column, gaps, copies and people with several rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin import Attribute, Population, Schema

LEVELS = ["low", "mid", "high"]
CITIES = list("ABCDEF")
TREE = {city: ["north" if city < "D" else "south"] for city in CITIES}
KINDS = [
    "whole",
    "real",
    "date",
    "ordinal",
    "nominal",
    "hierarchical",
    "flag",
    "constant",
    "weightless",
]


def column(kind: str, n: int, rng: np.random.Generator) -> Any:
    if kind in ("whole", "weightless"):
        return rng.integers(0, 12, n)
    if kind == "real":
        return rng.normal(50, 10, n).round(1)
    if kind == "date":
        return pd.Timestamp("2020-02-28") + pd.to_timedelta(rng.integers(0, 40, n), unit="D")
    if kind == "ordinal":
        return rng.choice(LEVELS, n).astype(object)
    if kind == "flag":
        return rng.random(n) < 0.5
    if kind == "constant":
        return np.full(n, 3)
    return rng.choice(CITIES, n).astype(object)


def random_table(seed: int) -> pd.DataFrame:
    """Return rows with some duplicates and gaps, of one to four kinds of quasi-identifiers."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(12, 90))
    kinds = [*rng.choice(KINDS, int(rng.integers(1, 4)), replace=False)] if seed else KINDS
    train = pd.DataFrame({f"q_{kind}": column(kind, n, rng) for kind in kinds})
    for name in train:
        if seed % 3 == 0 and name.removeprefix("q_") in (
            "real",
            "date",
            "ordinal",
            "nominal",
            "hierarchical",
        ):
            train.loc[train.index[1:][rng.random(n - 1) < 0.15], name] = None
    train["pay"] = rng.integers(0, 6, n)
    train["illness"] = rng.choice(["a", "b", "c", "d"], n, p=[0.55, 0.2, 0.15, 0.1])
    copies = train.iloc[rng.integers(0, n, n // 3)]
    train = pd.concat([train, copies], ignore_index=True)
    return train.assign(person=rng.integers(0, len(train) * 2 // 3 + 1, len(train)))


def described(train: pd.DataFrame, *, subject: bool = False) -> Population:
    names = [name for name in train if name.startswith("q_")]
    schema = Schema.from_frame(
        train if subject else train.drop(columns="person"),
        quasi_identifiers=names,
        sensitive=["illness"],
        subject="person" if subject else None,
        ordinal={name: LEVELS for name in names if "ordinal" in name},
        columns={
            name: Attribute(
                hierarchy=TREE if "hierarchical" in name else None,
                weight=0.0 if "weightless" in name and len(names) > 1 else 1.0,
            )
            for name in names
        },
    )
    return Population.from_frame(train, schema)
