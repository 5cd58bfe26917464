"""A Spark table of people is answered by the workers."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population

pytestmark = pytest.mark.slow  # every worker starts a Python of its own


@pytest.fixture
def records(spark: Any, model: Any, population: Population, refused: pd.DataFrame) -> pd.DataFrame:
    """Return the answers to a Spark table with an id, in the order of the ids."""
    anonymizer = KAnonymizer().fit(population, model, 1)
    people = spark.createDataFrame(refused.assign(id=range(len(refused)))).repartition(3)
    answers = anonymizer.explain(people, keep=["id"])
    return answers.toPandas().sort_values("id", ignore_index=True)


def test_every_row_has_an_answer(records: pd.DataFrame, refused: pd.DataFrame) -> None:
    """Each id comes back with a sentence about a region of at least ten people."""
    assert records["id"].tolist() == list(range(len(refused)))
    assert (records["status"] == "released").all()
    assert (records["k"] >= 10).all()
    assert records["sentence"].str.startswith("The model would grant the loan").all()


def test_workers_return_no_income(records: pd.DataFrame, applicants: Any) -> None:
    """No answer quotes the income of a person in the training table."""
    text = records.to_csv()
    assert not [income for income in applicants.table["income"] if str(income) in text]
