"""MLflow's evaluator `cfk`: what an explainer would release under a policy, in figures that can gate a promotion."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from mlflow import MlflowClient
from mlflow.models.evaluation.artifacts import (
    CsvEvaluationArtifact,
    ImageEvaluationArtifact,
    JsonEvaluationArtifact,
)
from mlflow.models.evaluation.base import EvaluationResult, ModelEvaluator

from cfk_plugin._protect import protect
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.errors import InputError, ModelError, quiet
from cfk_plugin.serving.measured import Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MODEL_TYPE = "counterfactual"
_NEEDED = ("population", "model")
_KNOWN = (*_NEEDED, "desired", "policy")


class CounterfactualEvaluator(ModelEvaluator):
    """Protects what a logged explainer answers and measures it; found by MLflow under the name ``cfk``.

    ``mlflow.models.evaluate(explainer, queries, model_type="counterfactual", evaluators=["cfk"],
    evaluator_config={"population": ..., "model": ..., "desired": ..., "policy": ...})``. The metrics are those of
    `Explanations.summary` that are numbers, as ``cfk/NAME``. The artifacts are tables and plots of released values and
    of how many people fit them, for the data holder; no training row is in them.

    A model of `log_protected_model` protects already: it is measured as it answers, from its records, and takes no
    configuration. Figures that records do not have (``k_effective_min``, ``native_rate``) are left out.
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
        **kwargs: Any,
    ) -> EvaluationResult:
        """Return metrics and artifacts, and log them to the run.

        Raises
        ------
        InputError
            If there is no model, or the configuration lacks something or has something unknown, or has anything for
            a model that protects already.
        CFKError
            As `protect`.
        """
        said = getattr(getattr(model, "metadata", None), "metadata", None) or {}
        if "cfk.policy_sha256" in said:
            _refuse_settings(evaluator_config)
            with quiet("the protected model raised {}", ModelError):  # MLflow puts what it is given into its errors
                found = model.predict(pd.DataFrame(dataset.features_data))
            measured = Measured.of_records(found, int(said["cfk.k"]) if "cfk.k" in said else None)
        else:
            settings = _checked(evaluator_config, model)
            explanations = protect(model.predict, **settings).explain(pd.DataFrame(dataset.features_data))
            measured = Measured.of_explanations(explanations, settings["population"])
        client = MlflowClient()
        if kwargs.get("model_id") is None:  # otherwise MLflow logs them itself, and each would be there twice
            for name, value in measured.metrics.items():
                client.log_metric(run_id, name, value)
        artifacts = _artifacts(measured, client, run_id)
        return EvaluationResult(measured.metrics, artifacts, run_id)  # type: ignore[no-untyped-call]


def _refuse_settings(config: Mapping[str, Any] | None) -> None:
    if config:
        raise InputError(
            f"the model protects already, under its own policy: leave {', '.join(sorted(config))} out of "
            "evaluator_config, or evaluate the explainer that is behind it"
        )


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


def _artifacts(measured: Measured, client: MlflowClient, run_id: str) -> dict[str, Any]:
    """Log tables, plots and the whole result; return them as MLflow's artifacts."""
    made: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for path, kind in _written(measured, Path(folder)):
            client.log_artifact(run_id, str(path), "cfk")
            made[f"cfk/{path.name}"] = kind(uri=f"runs:/{run_id}/cfk/{path.name}")
            made[f"cfk/{path.name}"]._load(str(path))
    return made


def _written(measured: Measured, folder: Path) -> Iterator[tuple[Path, Callable[..., Any]]]:
    text = folder / "explanations.json"
    text.write_text(measured.text, encoding="utf-8")
    yield text, JsonEvaluationArtifact
    for name, table in measured.tables.items():
        path = folder / f"{name}.csv"
        table.to_csv(path, index=False)
        yield path, CsvEvaluationArtifact
    for name, plot in measured.plots.items():
        path = folder / f"{name}.png"
        _draw(plot, path)
        yield path, ImageEvaluationArtifact


def _draw(plot: Callable[..., Axes], path: Path) -> None:
    """Draw to a file, without a window system and without a trace in the state of pyplot."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    plot(ax=figure.add_subplot())
    figure.savefig(path, dpi=150)
