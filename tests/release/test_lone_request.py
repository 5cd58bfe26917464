"""A lone request asks the model once where no outcome decides on its region, else rarely; its
answer is a batch's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Explanations, KAnonymizer, Population, PrivacyPolicy, Schema, protect


class Counting:
    """A model that counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def predict(self, rows: pd.DataFrame) -> Any:
        self.calls += 1
        return np.where(rows["pay"] + rows["age"] > 90, "yes", "no")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    random = np.random.default_rng(0)
    columns = {"age": random.integers(20, 60, 400), "zip": random.choice(["a", "b", "c"], 400)}
    return pd.DataFrame({**columns, "pay": random.integers(0, 100, 400).astype(float)})


@pytest.fixture(scope="module")
def population(table: pd.DataFrame) -> Population:
    return Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age", "zip"]))


def split(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return rows with the outcome, some with numbers of their own, and rows without it."""
    good = Counting().predict(table) == "yes"
    with_it = table[good].head(30).reset_index(drop=True)
    with_it.loc[::3, "pay"] += 0.5
    with_it.loc[1::3, "age"] += 40
    return with_it, table[~good].head(30).reset_index(drop=True)


DESIRED = {"label": "yes", "callable": lambda labels: labels == "yes", "opposite": "opposite"}


@pytest.mark.parametrize("desired", DESIRED)
def test_a_lone_request_asks_the_model_twice(
    table: pd.DataFrame, population: Population, desired: str
) -> None:
    model, (found, asked) = Counting(), split(table)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5, guarantee="lookup"))
    anonymizer.fit(population, model, DESIRED[desired])
    private = protect(
        lambda queries: found.iloc[: len(queries)],
        model=model,
        population=population,
        policy=PrivacyPolicy(k=5, guarantee="lookup"),
        desired=DESIRED[desired],
    )
    anonymizer.transform(found, asked)  # what is asked once for a fit: the labels of the rows
    private.explain(asked)
    for i in range(10):
        model.calls = 0
        anonymizer.transform(found.iloc[[i]], asked.iloc[[i]])
        private.explain(asked.iloc[[i]])
        assert model.calls == 4


@pytest.mark.parametrize("desired", DESIRED)
def test_a_lone_request_is_answered_as_in_a_batch(
    table: pd.DataFrame, population: Population, desired: str
) -> None:
    found, asked = split(table)
    # too many to be few
    found, asked = (pd.concat([rows, rows], ignore_index=True) for rows in (found, asked))
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5, guarantee="lookup", min_pureness=0))
    anonymizer.fit(population, Counting(), DESIRED[desired])
    many = anonymizer.transform(found, asked)
    assert many.released

    def told(entries: Explanations) -> list[Any]:
        return [{**entry.to_dict(), "query": 0} for entry in entries]

    alone = [told(anonymizer.transform(found.iloc[[i]], asked.iloc[[i]]))[0] for i in range(30)]
    assert alone == told(many)[:30]


def test_a_counterfactual_that_is_moved_towards_the_query_takes_two_calls_and_three_take_few(
    table: pd.DataFrame, population: Population
) -> None:
    model, (found, asked) = Counting(), split(table)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(population, model, "yes")
    anonymizer.transform(found, asked)
    calls = []
    for rows in [[i] for i in range(30)] + [[i, i + 1, i + 2] for i in range(0, 30, 3)]:
        model.calls = 0
        anonymizer.transform(found.iloc[rows], asked.iloc[rows])
        calls.append(model.calls)
    assert np.median(calls[:30]) == 2
    assert max(calls[30:]) <= 6
