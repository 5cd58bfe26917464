"""How often the model is asked for one call.

A change of a number here is a change of cost. For few rows, labels, regions and queries are asked
about together; more rows take a call for each of these questions. How many questions the search in
a catalogue has depends on its entries, so that there the number is the most.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.data.policy import GuaranteeName


class CountingModel:
    """A model that counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def predict(self, rows: pd.DataFrame) -> Any:
        self.calls += 1
        return np.where(rows["pay"] + rows["age"] > 90, "yes", "no")


def applicants() -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": random.integers(20, 60, 400),
            "zip": random.choice(["a", "b", "c"], 400),
            "pay": random.integers(0, 100, 400).astype(float),
        }
    )


TABLE = applicants()
IS_GRANTED = CountingModel().predict(TABLE) == "yes"
COUNTERFACTUALS = TABLE[IS_GRANTED].head(40).reset_index(drop=True)
FACTUALS = TABLE[~IS_GRANTED].head(40).reset_index(drop=True)
SCHEMA = Schema.from_frame(TABLE, quasi_identifiers=["age", "zip"], nominal=["zip"])
WAYS = ("counterfactuals", "with factuals", "queries")


def fitted(guarantee: GuaranteeName, desired: str) -> tuple[KAnonymizer, CountingModel]:
    """Return a fitted anonymizer that was asked before, and its model."""
    model = CountingModel()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5, guarantee=guarantee))
        anonymizer.fit(Population.from_frame(TABLE, SCHEMA), model, desired)
        for way in WAYS:  # labels of training rows are asked for once
            ask(anonymizer, way, 40)
    return anonymizer, model


def ask(anonymizer: KAnonymizer, way: str, n: int) -> None:
    """Ask for n explanations, where the guarantee can give any."""
    if way == "counterfactuals":
        anonymizer.transform(COUNTERFACTUALS.tail(n).reset_index(drop=True))
    elif way == "with factuals":
        anonymizer.transform(
            COUNTERFACTUALS.tail(n).reset_index(drop=True),
            FACTUALS.tail(n).reset_index(drop=True),
        )
    elif anonymizer.policy_.guarantee == "catalogue":
        anonymizer.explain(FACTUALS.tail(n).reset_index(drop=True))


def budget(anonymizer: KAnonymizer, model: CountingModel, way: str) -> list[int]:
    """Return the calls for 1, 3 and 40 explanations."""
    budgets = []
    for n in (1, 3, 40):
        model.calls = 0
        ask(anonymizer, way, n)
        budgets.append(model.calls)
    return budgets


BUDGETS: dict[tuple[GuaranteeName, str, str], list[int]] = {
    ("lookup", "yes", "counterfactuals"): [2, 2, 2],
    ("lookup", "yes", "with factuals"): [2, 2, 2],
    ("lookup", "opposite", "counterfactuals"): [2, 2, 2],
    ("lookup", "opposite", "with factuals"): [2, 2, 3],
    ("catalogue", "yes", "counterfactuals"): [2, 2, 2],
    ("catalogue", "yes", "with factuals"): [2, 4, 6],
    ("catalogue", "yes", "queries"): [4, 4, 6],
    ("catalogue", "opposite", "counterfactuals"): [2, 2, 2],
    ("catalogue", "opposite", "with factuals"): [3, 4, 8],
    ("catalogue", "opposite", "queries"): [5, 5, 8],
}
"""Calls for 1, 3 and 40 explanations, by guarantee, desired outcome and what is given."""


@pytest.mark.parametrize("desired", ["yes", "opposite"])
def test_counterfactuals_take_these_calls(desired: str) -> None:
    anonymizer, model = fitted("lookup", desired)
    for way in WAYS[:2]:
        assert budget(anonymizer, model, way) == BUDGETS["lookup", desired, way]


@pytest.mark.parametrize("desired", ["yes", "opposite"])
def test_answers_of_a_catalogue_take_at_most_these_calls(desired: str) -> None:
    anonymizer, model = fitted("catalogue", desired)
    for way in WAYS:
        calls = budget(anonymizer, model, way)
        limits = BUDGETS["catalogue", desired, way]
        assert all(made <= most for made, most in zip(calls, limits, strict=True))
