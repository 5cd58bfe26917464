"""A protected model is logged, loaded, and served by MLflow's own server."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import mlflow
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, load_protected, log_protected_model


@pytest.fixture
def uri(mlflow_store: str, model: Any, population: Population) -> str:
    """Log a model that answers from a catalogue; return its address."""
    with mlflow.start_run():
        anonymizer = KAnonymizer().fit(population, model, 1)
        info = log_protected_model(anonymizer, pip_requirements=[])
    return str(info.model_uri)


def test_loaded_model_answers_each_person(uri: str, refused: pd.DataFrame) -> None:
    """Loaded in Python, the model gives each person a sentence, and ten people to hide among."""
    entries = mlflow.pyfunc.load_model(uri).predict(refused)["explanations"]
    assert [entry["status"] for entry in entries] == ["released"] * len(refused)
    assert min(entry["certificate"]["k"] for entry in entries) >= 10
    for entry in entries:
        assert entry["sentence"].startswith("The model would grant the loan")


def test_loaded_explainer_explains(uri: str, refused: pd.DataFrame) -> None:
    """What was logged comes back as an explainer, without the training table."""
    explanations = load_protected(uri).explain(refused)
    assert len(explanations.released) == len(refused)


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
    entries = json.loads(text)["predictions"]["explanations"]
    assert [entry["query"] for entry in entries] == list(range(len(refused)))
    assert min(entry["certificate"]["k"] for entry in entries) >= 10
    assert not [income for income in applicants.table["income"] if str(income) in text]
