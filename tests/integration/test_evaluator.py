"""MLflow's evaluator: real `mlflow.models.evaluate`, thresholds that pass and that fail, nothing raw in the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
from mlflow.models import MetricThreshold
from mlflow.models.evaluation.validation import ModelValidationFailedException

from cfk_plugin import PrivacyPolicy, protect
from cfk_plugin.errors import InputError
from cfk_plugin.serving.evaluator import CounterfactualEvaluator
from model_server import NearestInAge, accepts, patients, population

QUERIES = pd.DataFrame(
    {
        "age": [25, 33, 40, 58],
        "town": ["Ghent", "Namur", "Namur", "Ghent"],
        "pay": [1_000_500] * 4,
        "illness": ["x"] * 4,
    }
)


def evaluate(explainer: Any = None, **config: Any) -> mlflow.models.EvaluationResult:
    settings = {"population": population(), "model": accepts, "desired": 1, "policy": {"k": 6}} | config
    return mlflow.models.evaluate(
        explainer or NearestInAge(patients()).__call__,
        QUERIES,
        model_type="counterfactual",
        evaluators=["cfk"],
        evaluator_config={"cfk": settings},
    )


def test_metrics_are_those_of_protecting_the_same_explainer(mlflow_store: str) -> None:
    with mlflow.start_run() as run:
        result = evaluate()
    explainer = NearestInAge(patients())
    here = protect(explainer, model=accepts, population=population(), desired=1, policy=PrivacyPolicy(k=6))
    summary = here.explain(QUERIES).summary()
    for name in ("k_min", "k_effective_min", "ncp_mean", "pureness_mean", "native_rate", "released", "suppressed"):
        assert result.metrics[f"cfk/{name}"] == summary[name]
    assert mlflow.get_run(run.info.run_id).data.metrics == pytest.approx(result.metrics)
    assert len(result.artifacts["cfk/released.csv"].content) == 4


def test_thresholds_gate_a_promotion(mlflow_store: str) -> None:
    with mlflow.start_run():
        result = evaluate()
    passes = {"cfk/k_min": MetricThreshold(threshold=6, greater_is_better=True)}
    fails = {"cfk/ncp_mean": MetricThreshold(threshold=0.0001, greater_is_better=False)}
    mlflow.validate_evaluation_results(candidate_result=result, validation_thresholds=passes)
    with pytest.raises(ModelValidationFailedException, match="cfk/ncp_mean"):
        mlflow.validate_evaluation_results(candidate_result=result, validation_thresholds=fails)


def test_nothing_raw_is_in_the_run(mlflow_store: str, tmp_path: Path) -> None:
    with mlflow.start_run():
        result = evaluate(policy={"k": 6, "rare_values": "withhold"})
    assert result.metrics["cfk/released"] == 4
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "released.csv" for path in written)
    assert not [path.name for path in written if b"SENTINEL0" in path.read_bytes()]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"population": None}, "lacks population"),
        ({"model": None}, "lacks model"),
        ({"k": 1}, "unknown settings k"),
        ({"policy": {"k": 1}}, "k must be a whole number"),
    ],
)
def test_a_wrong_configuration_is_refused(config: dict[str, Any], message: str, mlflow_store: str) -> None:
    with mlflow.start_run(), pytest.raises(Exception, match=message):
        evaluate(**config)


def test_other_model_types_are_left_to_others() -> None:
    for kind in ("classifier", "regressor", None, "text"):
        assert not CounterfactualEvaluator.can_evaluate(model_type=kind, evaluator_config={})
    assert CounterfactualEvaluator.can_evaluate(model_type="counterfactual", evaluator_config={})
    with pytest.raises(InputError, match="give the explainer"):
        CounterfactualEvaluator().evaluate(model_type="counterfactual", dataset=None, run_id="", evaluator_config={})
