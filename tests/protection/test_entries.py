"""The entries of a catalogue, tried as they leave: what was admitted at fit is released, whatever the policy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Interval, KAnonymizer, Population, PrivacyPolicy, Schema

LEVELS = ["low", "mid", "high"]
QUASI, PRIVATE = ["age", "city", "grade"], ["pay", "debt", "job"]
BINS = {"pay": [0, 20, 40, 60], "debt": [0, 5, 10, 15]}
K = 4

FORMS: list[dict[str, Any]] = [
    {"private_values": "bins"},
    {"rare_values": "withhold"},
    {"alpha": 0.5},
    {"private_values": "bins", "alpha": 0.4, "min_lift": 1.0},
    {"private_values": "bins", "rare_values": "withhold", "alpha": 0.5},
    {"private_values": "bins", "rare_values": "withhold", "alpha": 0.8, "on_homogeneous": "suppress"},
    {"private_values": "bins", "rare_values": "withhold", "min_pureness": 0.6},
]


def table(seed: int, n: int = 120) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    train = pd.DataFrame(
        {
            "age": random.integers(10, 30, n) * 2,
            "city": random.choice(list("ABCD"), n),
            "grade": random.choice(LEVELS, n).astype(object),
            "pay": random.integers(1, 12, n) * 5,
            "debt": np.where(random.random(n) < 0.1, np.nan, random.normal(8, 3, n).round(1)),
            "job": random.choice(["clerk", "nurse", "smith", "judge"], n, p=[0.6, 0.25, 0.14, 0.01]),
        }
    )
    return pd.concat([train, train.head(n // 6)], ignore_index=True)


def score(rows: pd.DataFrame) -> np.ndarray:
    bonus = rows["city"].map({"A": 0, "B": 4, "C": -4, "D": 2}).to_numpy(dtype=float)
    job = rows["job"].map({"clerk": 0, "nurse": 3, "smith": -3, "judge": 12}).to_numpy(dtype=float)
    return np.asarray(
        rows["pay"].to_numpy() / 2 + rows["age"].to_numpy() / 2 + bonus + job - rows["debt"].fillna(9) / 4
    )


def two(rows: pd.DataFrame) -> np.ndarray:
    return np.where(score(rows) > 26, "yes", "no")


def three(rows: pd.DataFrame) -> np.ndarray:
    return np.array(["low", "mid", "high"], dtype=object)[np.digitize(score(rows), [24, 44])]


GOALS = [(two, "yes"), (two, "opposite"), (three, "opposite"), (three, lambda labels: np.isin(labels, ["mid", "high"]))]


def fitted(train: pd.DataFrame, model: Any = two, desired: Any = "yes", **policy: Any) -> KAnonymizer:
    schema = Schema.from_frame(train, quasi_identifiers=QUASI, ordinal={"grade": LEVELS}, bins=BINS)
    rules = PrivacyPolicy(**{"k": K, "guarantee": "catalogue", **policy})
    return KAnonymizer(policy=rules).fit(Population.from_frame(train, schema), model=model, desired=desired)


def released(anonymizer: KAnonymizer) -> list[Any]:
    """Return every entry of the catalogue as it is released, or why it is withheld."""
    catalogue = anonymizer.guarantee_.catalogue
    assert catalogue is not None
    return [*anonymizer.pipeline_.catalogue_entries(catalogue)]


@pytest.mark.parametrize("policy", [{}, *FORMS])
@pytest.mark.parametrize(("model", "desired"), GOALS)
def test_whatever_is_in_the_catalogue_is_released(model: Any, desired: Any, policy: dict[str, Any]) -> None:
    for seed in range(2):
        assert {entry.status for entry in released(fitted(table(seed), model, desired, **policy))} <= {"released"}


@pytest.mark.parametrize("policy", FORMS)
def test_an_entry_has_the_outcome_for_enough_of_all_that_it_may_mean(policy: dict[str, Any]) -> None:
    """Recounted in plain pandas: every value of a bin, or of a withheld attribute, with every value of the region."""
    train, counted = table(2), 0
    anonymizer = fitted(train, **policy)
    for entry in released(anonymizer):
        values = {name: train[name].drop_duplicates() for name in (*QUASI, *PRIVATE)}
        for name, part in entry.parts().items():
            values[name] = values[name][[may_mean(part, v, name) for v in values[name]]]
        if np.prod([len(each) for each in values.values()]) <= 5_000:
            every = pd.DataFrame(itertools.product(*values.values()), columns=[*values])
            share = (two(every.astype(train.dtypes)) == "yes").mean()
            assert (entry.certificate.pureness, entry.certificate.exact) == (pytest.approx(share), True)
            assert share >= anonymizer.policy_.least_pureness
            counted += 1
    assert counted


def may_mean(part: Any, value: Any, name: str) -> bool:
    """Say whether a value is one that a released part may stand for."""
    if not isinstance(part, Interval) or part.levels is not None:
        return (None if pd.isna(value) else value) in part
    if pd.isna(value) or part.low is None:
        return bool(pd.isna(value) and part.missing)
    is_open = name in BINS and part.low != part.high and part.high < max(BINS[name])  # a bin has its lower edge alone
    return bool(part.low <= value < part.high if is_open else part.low <= value <= part.high)
