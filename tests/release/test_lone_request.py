"""A lone request is answered as in a batch, and no row is asked about twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Explanations, KAnonymizer, Population, PrivacyPolicy, Schema


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


def test_the_model_is_not_asked_about_the_same_rows_again(
    table: pd.DataFrame, population: Population
) -> None:
    model, (_, queries) = Counting(), split(table)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(population, model, "yes")
    answers = anonymizer.explain(queries)
    model.calls = 0
    assert anonymizer.explain(queries).to_json() == answers.to_json()
    assert model.calls == 0


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
