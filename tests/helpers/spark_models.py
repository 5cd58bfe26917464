"""Models that Spark's workers import."""

from __future__ import annotations

import numpy as np
import pandas as pd


def paid(rows: pd.DataFrame) -> np.ndarray:
    """A number, as a regression gives."""
    return rows["pay"].to_numpy(dtype=float)


def likely(rows: pd.DataFrame) -> np.ndarray:
    """A probability."""
    return np.clip((paid(rows) - 1_000_000) / 950_000, 0, 1)


def named_by_pay(rows: pd.DataFrame) -> np.ndarray:
    return np.asarray(["none", "some", "much"], dtype=object)[
        np.digitize(paid(rows), [1_300_000, 1_600_000])
    ]


def no_clerk(rows: pd.DataFrame) -> np.ndarray:
    return np.asarray(rows["job"] != "clerk")


def loud(rows: pd.DataFrame) -> np.ndarray:
    """Fail with what was asked in the text, as many models do, and another error behind it."""
    try:
        raise KeyError(str(rows.to_dict("records")))
    except KeyError as error:
        raise ValueError(f"cannot read {rows.iloc[0].to_dict()}") from error


def loud_where_rich(rows: pd.DataFrame) -> np.ndarray:
    """Fail once somebody earns too much."""
    return loud(rows) if bool((rows["pay"] > 9_000_000).any()) else np.ones(len(rows), dtype=int)


def panics_where_rich(rows: pd.DataFrame) -> np.ndarray:
    """End the process once somebody earns too much."""
    if bool((rows["pay"] > 9_000_000).any()):
        raise SystemExit(f"cannot read {rows.iloc[0].to_dict()}")
    return np.ones(len(rows), dtype=int)


def affords(rows: pd.DataFrame) -> np.ndarray:
    """A loan for whoever earns enough for their age."""
    return np.where(rows["income"] > rows["age"] / 2 + 5, "yes", "no")
