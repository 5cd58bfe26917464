"""A Spark table of people is answered by the workers, with a logged model."""

from __future__ import annotations

from typing import Any

import mlflow
import pandas as pd
import pytest

from cfk_plugin import Population, log_protected_model

pytestmark = pytest.mark.slow  # every worker starts a Python of its own


@pytest.fixture
def records(
    spark: Any, mlflow_store: str, model: Any, population: Population, refused: pd.DataFrame
) -> pd.DataFrame:
    """Return the answers to a Spark table with an id, in the order of the ids."""
    with mlflow.start_run():
        info = log_protected_model(model=model, population=population, desired=1)
    explain = mlflow.pyfunc.spark_udf(spark, info.model_uri, env_manager="local")
    people = spark.createDataFrame(refused.assign(id=range(len(refused)))).repartition(3)
    answers = people.select("id", explain(*refused.columns).alias("answer"))
    return answers.select("id", "answer.*").toPandas().sort_values("id", ignore_index=True)


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
