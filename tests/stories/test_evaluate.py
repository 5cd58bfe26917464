"""MLflow evaluates what an explainer would release, and thresholds gate its promotion."""

from __future__ import annotations

from typing import Any

import mlflow
import pandas as pd
import pytest
from mlflow.models import EvaluationResult, MetricThreshold
from mlflow.models.evaluation.validation import ModelValidationFailedException

from cfk_plugin import Population
from worlds import World


@pytest.fixture
def result(
    mlflow_store: str,
    applicants: World,
    refused: pd.DataFrame,
    model: Any,
    population: Population,
) -> EvaluationResult:
    """Evaluate an explainer that always answers with the same person of the table."""
    best = applicants.table.loc[[applicants.table["income"].idxmax()]]
    with mlflow.start_run():
        return mlflow.models.evaluate(
            lambda people: best.iloc[[0] * len(people)],
            refused,
            model_type="counterfactual",
            evaluators=["cfk"],
            evaluator_config={
                "cfk": {"population": population, "model": model, "desired": 1, "policy": {"k": 10}}
            },
        )


def test_evaluation_measures_protected_answers(result: EvaluationResult) -> None:
    """The figures are those of the answers that people would get, not of the raw rows."""
    assert result.metrics["cfk.k_min"] >= 10
    assert result.metrics["cfk.withheld_rate"] == 0
    assert 0 < result.metrics["cfk.ncp_mean"] < 1
    assert result.metrics["cfk.pureness_mean"] >= 0.8


def test_run_has_the_same_figures(result: EvaluationResult) -> None:
    """The active run has the metrics, so that a later reader finds them."""
    run = mlflow.last_active_run()
    assert run.data.metrics["cfk.k_min"] == result.metrics["cfk.k_min"]


def test_thresholds_gate_a_promotion(result: EvaluationResult) -> None:
    """Ten people in each region pass; an information loss below 0.001 is not reached."""
    passes = {"cfk.k_min": MetricThreshold(threshold=10, greater_is_better=True)}
    fails = {"cfk.ncp_mean": MetricThreshold(threshold=0.001, greater_is_better=False)}
    mlflow.validate_evaluation_results(candidate_result=result, validation_thresholds=passes)
    with pytest.raises(ModelValidationFailedException, match=r"cfk\.ncp_mean"):
        mlflow.validate_evaluation_results(candidate_result=result, validation_thresholds=fails)
