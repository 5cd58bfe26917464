"""MLflow's evaluator `cfk`: what an explainer would release under a policy, in figures that can gate a promotion."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from mlflow import MlflowClient
from mlflow.models.evaluation.artifacts import CsvEvaluationArtifact, JsonEvaluationArtifact
from mlflow.models.evaluation.base import EvaluationResult, ModelEvaluator

from cfk_plugin.errors import InputError
from cfk_plugin.pipeline import protect
from cfk_plugin.policy import PrivacyPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cfk_plugin.explanations import Explanations

MODEL_TYPE = "counterfactual"
_NEEDED = ("population", "model")
_KNOWN = (*_NEEDED, "desired", "policy")


class CounterfactualEvaluator(ModelEvaluator):
    """Protects what a logged explainer answers and measures it; found by MLflow under the name ``cfk``.

    ``mlflow.models.evaluate(explainer, queries, model_type="counterfactual", evaluators=["cfk"],
    evaluator_config={"population": ..., "model": ..., "desired": ..., "policy": ...})``. The metrics are those of
    `Explanations.summary` that are numbers, as ``cfk/NAME``; the artifacts hold released values alone.
    """

    @classmethod
    def can_evaluate(cls, *, model_type: str, evaluator_config: Any, **kwargs: Any) -> bool:  # noqa: ARG003
        """Say yes to our own type of model alone: MLflow asks every evaluator that is installed."""
        return model_type == MODEL_TYPE

    def evaluate(
        self,
        *,
        model_type: str,  # noqa: ARG002 - MLflow passes it by name
        dataset: Any,
        run_id: str,
        evaluator_config: Mapping[str, Any],
        model: Any = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> EvaluationResult:
        """Return metrics and artifacts, and log them to the run.

        Raises
        ------
        InputError
            If there is no model, or the configuration lacks something or has something unknown.
        CFKError
            As `protect`.
        """
        settings = _checked(evaluator_config, model)
        queries = pd.DataFrame(dataset.features_data)
        explanations = protect(model.predict, **settings).explain(queries)
        metrics = metrics_of(explanations)
        client = MlflowClient()
        for name, value in metrics.items():
            client.log_metric(run_id, name, value)
        artifacts = _artifacts(explanations, client, run_id)
        return EvaluationResult(metrics, artifacts, run_id)  # type: ignore[no-untyped-call]


def metrics_of(explanations: Explanations) -> dict[str, float]:
    """Return the figures of a summary as metrics; one over nothing is left out."""
    figures = explanations.summary()
    numbers = {name: value for name, value in figures.items() if isinstance(value, (int, float))}
    return {f"cfk/{name}": float(value) for name, value in numbers.items()}


def _checked(config: Mapping[str, Any] | None, model: Any) -> dict[str, Any]:
    config = dict(config or {})
    if model is None:
        raise InputError("the evaluator cfk asks a model for counterfactuals; give the explainer as `model`")
    if lost := [name for name in _NEEDED if config.get(name) is None]:
        raise InputError(f"evaluator_config lacks {', '.join(lost)}")
    if unknown := sorted(set(config) - set(_KNOWN)):
        raise InputError(f"evaluator_config has unknown settings {', '.join(unknown)}; known: {', '.join(_KNOWN)}")
    policy = config.get("policy")
    if isinstance(policy, dict):
        config["policy"] = PrivacyPolicy(**policy)
    return config


def _artifacts(explanations: Explanations, client: MlflowClient, run_id: str) -> dict[str, Any]:
    """Log the released table and the whole result; return them as MLflow's artifacts."""
    frame = explanations.to_frame()
    made: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        csv, text = Path(folder) / "released.csv", Path(folder) / "explanations.json"
        frame.to_csv(csv, index=False)
        text.write_text(explanations.to_json(), encoding="utf-8")
        for path, kind in ((csv, CsvEvaluationArtifact), (text, JsonEvaluationArtifact)):
            client.log_artifact(run_id, str(path), "cfk")
            made[f"cfk/{path.name}"] = kind(uri=f"runs:/{run_id}/cfk/{path.name}")
            made[f"cfk/{path.name}"]._load(str(path))
    return made
