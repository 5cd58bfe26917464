"""A protected model is logged, loaded, and served by MLflow's own server."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import mlflow
import pandas as pd
import pytest

from cfk_plugin import Population, log_protected_model


@pytest.fixture
def uri(mlflow_store: str, model: Any, population: Population) -> str:
    """Log a model that answers from a catalogue; return its address."""
    with mlflow.start_run():
        info = log_protected_model(model=model, population=population, desired=1, requirements=[])
    return str(info.model_uri)


def test_loaded_model_returns_records(uri: str, refused: pd.DataFrame) -> None:
    """Loaded in Python, the model gives each person a sentence, and ten people to hide among."""
    records = mlflow.pyfunc.load_model(uri).predict(refused)
    assert [record["status"] for record in records] == ["released"] * len(refused)
    assert min(record["k"] for record in records) >= 10
    for record in records:
        assert record["sentence"].startswith("The model would grant the loan")


@pytest.mark.slow
def test_server_answers_over_http(
    serve: Callable[[str], str], uri: str, refused: pd.DataFrame, applicants: Any
) -> None:
    """The served JSON has an answer for each person and the income of nobody in the table."""
    body = json.dumps({"dataframe_split": refused.to_dict(orient="split", index=False)})
    request = urllib.request.Request(
        serve(uri), data=body.encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        text = reply.read().decode()
    records = json.loads(text)["predictions"]
    assert [record["query"] for record in records] == list(range(len(refused)))
    assert min(record["k"] for record in records) >= 10
    assert not [income for income in applicants.table["income"] if str(income) in text]
