"""The evaluator `cfk` for MLflow, with figures that can gate the promotion of an explainer."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow import MlflowClient
from mlflow.models.evaluation.artifacts import CsvEvaluationArtifact
from mlflow.models.evaluation.base import EvaluationResult, ModelEvaluator

from cfk_plugin._protect import protect
from cfk_plugin.data.outcome import ALREADY_DESIRED
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.errors import InputError, ModelError, did_you_mean, quiet
from cfk_plugin.tracking.logger import evaluating
from cfk_plugin.tracking.record import PER_EXPLANATION
from cfk_plugin.tracking.run import EVALUATION, JOB, Value, write
from cfk_plugin.tracking.tally import PLOTTED, figures, metric_of

MODEL_TYPE = "counterfactual"
_NEEDED = ("population", "model")
_KNOWN = (*_NEEDED, "desired", "policy")
_METRICS = (*PLOTTED, "k_desired_min", "k_consistent_min", "k_effective_min", "released_native")
_SETTINGS = ("cfk.k", "cfk.guarantee", "cfk.policy_sha256", "cfk.population_fingerprint")
_TABLE = "cfk/released.csv"


class CounterfactualEvaluator(ModelEvaluator):
    """Protects the answers of an explainer and measures them, without a release.

    MLflow finds it by the name ``cfk``: ``mlflow.models.evaluate(explainer, queries,
    model_type="counterfactual", evaluators=["cfk"], evaluator_config={"population": ..., "model":
    ..., "desired": ..., "policy": ...})``.

    The metrics are those of a run with a release, such as ``cfk.k_min``, some more for a gate, such
    as ``cfk.k_effective_min``, and ``cfk.withheld.REASON``, the number of answers that are withheld
    for each reason. The tags have k, the guarantee, the policy and the fingerprint. The artifact
    ``cfk/released.csv`` is the table of answers. The run has the tag ``cfk.evaluation``, and
    reports skip it.

    A model of `log_protected_model` protects its answers itself: the evaluator measures them, and
    takes no configuration. Figures that answers do not contain (``k_effective_min``,
    ``native_rate``) are missing then.
    """

    @classmethod
    def can_evaluate(cls, *, model_type: str, evaluator_config: Any, **kwargs: Any) -> bool:  # noqa: ARG003
        """Return True for the model type "counterfactual"; MLflow calls every evaluator."""
        return model_type == MODEL_TYPE

    def evaluate(
        self,
        *,
        model_type: str,  # noqa: ARG002 - MLflow passes it by name
        dataset: Any,
        run_id: str,
        evaluator_config: Mapping[str, Any] | None,
        model: Any = None,
        **kwargs: Any,
    ) -> EvaluationResult:
        """Return metrics and a table, and log them to the run.

        Raises
        ------
        InputError
            If there is no model, a setting is missing or unknown, a protected model has a setting,
            or the run contains a release.
        CFKError
            As `protect`.
        """
        if model is None:
            raise InputError(
                "the evaluator cfk needs a model that returns counterfactuals; give the explainer"
                " as `model`"
            )
        settings = getattr(getattr(model, "metadata", None), "metadata", None) or {}
        is_protected = "cfk.policy_sha256" in settings
        config = dict(evaluator_config or {})
        _check(config, is_protected=is_protected)
        client = MlflowClient()
        if JOB in client.get_run(run_id).data.tags:
            raise InputError(
                "the run contains released explanations; give the evaluation a run of its own"
            )
        # First, so that no release is logged to the run meanwhile.
        client.set_tag(run_id, EVALUATION, "true")
        queries = pd.DataFrame(dataset.features_data)
        if is_protected:
            # Its exceptions may quote the queries.
            with evaluating(), quiet("the protected model raised {}", ModelError):
                answers = model.predict(queries)
            table = _table_of(answers)
            summary = _summary_of(table, settings.get("cfk.k"))
        else:
            explanations = protect(model.predict, **config).explain(queries)
            table = explanations.to_frame(text=True)
            summary = explanations.summary()
            record = explanations.to_record()
            settings = record.params | record.tags
        metrics = _metrics_of(summary)
        tags = {name: settings[name] for name in _SETTINGS if name in settings}
        # With a model id, MLflow logs the metrics itself.
        values = [Value(*figure) for figure in metrics.items()]
        write(client, run_id, metrics=[] if kwargs.get("model_id") else values, tags=tags)
        artifact = CsvEvaluationArtifact(  # type: ignore[no-untyped-call]
            uri=f"runs:/{run_id}/{_TABLE}"
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, Path(_TABLE).name)
            table.to_csv(path, index=False)
            client.log_artifact(run_id, str(path), "cfk")
            artifact._load(str(path))  # type: ignore[no-untyped-call]
        return EvaluationResult(metrics, {_TABLE: artifact}, run_id)  # type: ignore[no-untyped-call]


def _check(config: dict[str, Any], *, is_protected: bool) -> None:
    """Raise `InputError` if the settings do not fit the model; replace a policy that is a dict."""
    if is_protected:
        if config:
            raise InputError(
                f"the model protects its answers by its own policy; leave {', '.join(config)} out"
                " of evaluator_config, or evaluate the unprotected explainer"
            )
        return
    missing = [name for name in _NEEDED if config.get(name) is None]
    if missing:
        raise InputError(f"evaluator_config lacks {', '.join(missing)}")
    unknown = sorted(set(config) - set(_KNOWN))
    if unknown:
        raise InputError(
            f"evaluator_config has unknown settings {', '.join(unknown)}; known:"
            f" {', '.join(_KNOWN)}{did_you_mean(unknown, _KNOWN)}"
        )
    if isinstance(config.get("policy"), dict):
        config["policy"] = PrivacyPolicy(**config["policy"])


def _table_of(answers: Any) -> pd.DataFrame:
    """Return a table with status and figures of each answer of a protected model.

    `answers` is the content of `Explanations.to_json`.
    """
    entries = answers.get("explanations", []) if isinstance(answers, Mapping) else []
    table = pd.DataFrame([{**entry, **(entry.get("certificate") or {})} for entry in entries])
    if "status" not in table:
        raise InputError(
            "the protected model did not return explanations; log it with log_protected_model"
        )
    return table.reindex(columns=["query", "status", "reason", *PER_EXPLANATION])


def _summary_of(table: pd.DataFrame, k: str | None) -> dict[str, Any]:
    """Return the figures of `Explanations.summary` that can be computed from a table of answers."""
    released = table[(table["status"] == "released").to_numpy()]
    reasons = Counter(table["reason"].dropna())
    n_withheld = len(table) - len(released)
    n_needed = len(table) - reasons[ALREADY_DESIRED]
    summary: dict[str, Any] = {
        "asked": len(table),
        "released": len(released),
        "reasons": reasons,
        "withheld_rate": (n_withheld - reasons[ALREADY_DESIRED]) / n_needed if n_needed else None,
    }
    if k is None:  # prototypes
        return summary
    if released["k"].isna().any():
        raise InputError(
            "the protected model has a k, but released an answer without it; log the model again"
        )
    columns = {name: released[name].to_numpy(dtype=float) for name in PER_EXPLANATION}
    n_below_k = int((columns["k"] < int(k)).sum())
    return {**summary, **figures(columns), "released_native": n_below_k}


def _metrics_of(summary: Mapping[str, Any]) -> dict[str, float]:
    metrics = {
        metric_of(name): float(summary[name]) for name in _METRICS if summary.get(name) is not None
    }
    reasons = {f"withheld.{reason}": n for reason, n in summary["reasons"].items()}
    return metrics | {metric_of(name): float(n) for name, n in reasons.items()}
