"""Releases are logged to MLflow, and the run says at what risk."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pandas as pd
import pytest

from cfk_plugin import ProtectedExplainer
from worlds import World


@pytest.fixture
def run(
    mlflow_store: str, private: ProtectedExplainer, refused: pd.DataFrame
) -> mlflow.entities.Run:
    """Return a run in which eight explanations were logged."""
    with mlflow.start_run() as active:
        private.explain(refused).log()
    return mlflow.get_run(active.info.run_id)


def test_run_has_risk_figures(run: mlflow.entities.Run) -> None:
    """The summary says how many people are left to an attacker, and what the regions lose."""
    metrics = run.data.metrics
    assert metrics["cfk.released"] == 8
    assert metrics["cfk.withheld_rate"] == 0
    assert metrics["cfk.k_min"] >= 10
    assert metrics["cfk.prosecutor_risk_max"] <= 1 / 10
    assert 0 < metrics["cfk.ncp_mean"] < 1
    assert run.data.params["cfk.k"] == "10"


def test_run_has_figures_of_each_explanation(run: mlflow.entities.Run) -> None:
    """k, NCP and pureness are metrics with one step per explanation."""
    client = mlflow.MlflowClient()
    for name in ("cfk.k", "cfk.ncp", "cfk.pureness"):
        history = client.get_metric_history(run.info.run_id, name)
        assert sorted(point.step for point in history) == list(range(8))
    assert min(point.value for point in client.get_metric_history(run.info.run_id, "cfk.k")) >= 10


def test_run_has_no_training_row(
    run: mlflow.entities.Run, applicants: World, refused: pd.DataFrame
) -> None:
    """No artifact quotes the income of a person in the table, nor of a person who asked."""
    folder = Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    incomes = [*applicants.table["income"], *refused["income"]]
    for path in files:
        content = path.read_bytes()
        assert not [income for income in incomes if str(income).encode() in content]
