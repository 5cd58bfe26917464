"""MLflow's evaluator `cfk`: what an explainer would release under a policy, in figures that can
gate a promotion.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from cfk_plugin.data.outcome import ALREADY_DESIRED
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import Interval, part_to_text, spelled
from cfk_plugin.errors import InputError, ModelError, did_you_mean, quiet
from cfk_plugin.plots import Display, RiskDisplay
from cfk_plugin.records.record import FLOOR
from cfk_plugin.records.run import ASKED, EVALUATION, Value, refuse_other_params, write
from cfk_plugin.records.tally import PLOTTED, figures, metric_of
from cfk_plugin.release.explanations import class_sizes_of
from cfk_plugin.release.results import PrototypePolicy

if TYPE_CHECKING:
    from cfk_plugin.release.explanations import Explanations


Record = Mapping[str, Any]

_SETTINGS = frozenset(
    {"cfk.k", "cfk.guarantee", FLOOR, "cfk.policy_sha256", "cfk.population_fingerprint"}
)
_METRICS = (*PLOTTED, "k_desired_min", "k_consistent_min", "k_effective_min", "released_native")
_BEFORE, _AFTER = ("query", "status", "reason"), ("k", "ncp", "pureness")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Measured:
    """Figures, tables and a plot. Everything in it may leave, except exact class sizes."""

    figures: Mapping[str, Any]  # None without explanations to measure
    tables: Mapping[str, pd.DataFrame]
    risk: RiskDisplay | None  # None for prototypes, which no people fit
    text: str  # the whole result as JSON
    settings: Mapping[str, str] = field(default_factory=dict)  # those it was protected under

    @property
    def metrics(self) -> dict[str, float]:
        """The figures that runs have as metrics, under the same names, and those that a threshold
        may be for.
        """
        numbers = self.numbers
        return {metric_of(name): float(numbers[name]) for name in _METRICS if name in numbers}

    @property
    def numbers(self) -> dict[str, int | float]:
        """All figures that are known and numbers."""
        return {
            name: value for name, value in self.figures.items() if isinstance(value, (int, float))
        }

    @classmethod
    def of_explanations(cls, explanations: Explanations) -> Measured:
        """Measure what a protected explainer released; prototypes have no classes to tabulate."""
        record = explanations.to_record()
        settings = {
            name: value
            for name, value in (record.params | record.tags).items()
            if name in _SETTINGS
        }
        if isinstance(explanations.policy, PrototypePolicy):
            table = {"released": explanations.to_frame(text=True)}
            return cls(explanations.summary(), table, None, explanations.to_json(), settings)
        return cls(
            explanations.summary(),
            {"released": explanations.to_frame(text=True)},
            RiskDisplay(class_sizes_of(explanations), k=explanations.policy.k),
            explanations.to_json(),
            settings,
        )

    @classmethod
    def of_records(cls, answer: object, said: Mapping[str, str]) -> Measured:
        """Measure a protected model from the records that it answered; its tags `said` the
        settings.
        """
        k = int(said["cfk.k"]) if "cfk.k" in said else None
        settings = {name: value for name, value in said.items() if name in _SETTINGS}
        records = answer.to_dict("records") if isinstance(answer, pd.DataFrame) else answer
        if not isinstance(records, list) or not all(
            isinstance(r, Mapping) and "status" in r for r in records
        ):
            raise InputError(
                "the protected model did not answer with records; was it logged by"
                " log_protected_model?"
            )
        released = [record for record in records if record["status"] == "released"]
        if k is None:
            table, text = {"released": _frame(records)}, json.dumps(records, ensure_ascii=False)
            return cls(_counts(records), table, None, text, settings)
        if any(record["k"] is None or pd.isna(record["k"]) for record in released):
            raise InputError(
                "the protected model has a k and released a record without; its bundle is not whole"
            )
        sizes = [int(record["k"]) for record in released]
        return cls(
            _figures(records, sizes, k),
            {"released": _frame(records)},
            RiskDisplay(sizes, k=k),
            json.dumps(records, ensure_ascii=False),
            settings,
        )


def _counts(records: Sequence[Record]) -> dict[str, float]:
    released = sum(record["status"] == "released" for record in records)
    counts: dict[str, float] = {
        "asked": len(records),
        "released": released,
        "withheld": len(records) - released,
    }
    already = sum(record["reason"] == ALREADY_DESIRED for record in records)
    needed = len(records) - already
    if needed:
        counts["withheld_rate"] = (counts["withheld"] - already) / needed
    return counts


def _figures(records: Sequence[Record], sizes: Sequence[int], k: int) -> dict[str, float]:
    released = [record for record in records if record["status"] == "released"]
    columns = {name: [float(record[name]) for record in released] for name in ("ncp", "pureness")}
    known = figures({**columns, "k": sizes, "prosecutor_risk": [1 / size for size in sizes]})
    counts = _counts(records) | {"released_native": sum(size < k for size in sizes)}
    return counts | {name: value for name, value in known.items() if value is not None}


def _frame(records: Sequence[Record]) -> pd.DataFrame:
    cells = [
        {feature["name"]: _cell(feature) for feature in record["features"]} for record in records
    ]
    rows = [
        {name: record[name] for name in (*_BEFORE, *_AFTER)} | features
        for record, features in zip(records, cells, strict=True)
    ]
    names = dict.fromkeys(name for features in cells for name in features)
    return pd.DataFrame(rows, columns=[*_BEFORE, *names, *_AFTER]).astype({"k": "Int64"})


def _cell(feature: Record) -> str:
    """Write one feature of a record as the text of a table cell."""
    kind, values = feature["kind"], list(feature["values"])
    if kind == "set":
        return part_to_text(frozenset([*values, *([None] if feature["missing"] else [])]))
    if kind == "number":
        return part_to_text(
            Interval(_number(feature["low"]), _number(feature["high"]), feature["missing"])
        )
    if kind == "date":
        values = [spelled(pd.Timestamp(value)) for value in values]
    return "–".join(dict.fromkeys(values))


def _number(value: float | None) -> float | None:
    return int(value) if value is not None and float(value).is_integer() else value


MODEL_TYPE = "counterfactual"
_NEEDED = ("population", "model")
_KNOWN = (*_NEEDED, "desired", "policy")


class CounterfactualEvaluator(ModelEvaluator):
    """Protects what a logged explainer answers and measures it; found by MLflow under the name
    ``cfk``.

    ``mlflow.models.evaluate(explainer, queries, model_type="counterfactual", evaluators=["cfk"],
    evaluator_config={"population": ..., "model": ..., "desired": ..., "policy": ...})``. The
    metrics are those of a run that releases, such as ``cfk.k_min``, and a few more that a gate may
    need, such as ``cfk.k_effective_min``; all numbers of `Explanations.summary` are in the artifact
    ``cfk/figures.json``. k, guarantee, policy and fingerprint are parameters and tags. The other
    artifacts are tables of released values, and tables and a plot of how many people fit them, for
    the data holder; they hold no training row. Nothing has left, so reports skip the run, which
    carries the tag ``cfk.evaluation``.

    A model of `log_protected_model` protects already: it is measured by the records that it
    answers, and takes no configuration. Figures that records do not have (``k_effective_min``,
    ``native_rate``) are left out.
    """

    @classmethod
    def can_evaluate(cls, *, model_type: str, evaluator_config: Any, **kwargs: Any) -> bool:  # noqa: ARG003
        """Accept only our own type of model: MLflow asks every installed evaluator."""
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

        Raises `InputError` if there is no model, a setting is missing or unknown, there is any
        setting for a model that protects already, or the run holds releases or an evaluation under
        other settings; else as `protect`.
        """
        said = getattr(getattr(model, "metadata", None), "metadata", None) or {}
        is_protected = "cfk.policy_sha256" in said
        settings = _none(evaluator_config) if is_protected else _checked(evaluator_config, model)
        client, queries = MlflowClient(), pd.DataFrame(dataset.features_data)
        there = client.get_run(run_id).data
        if ASKED in there.metrics and EVALUATION not in there.tags:
            raise InputError(
                "the run holds explanations that left; give the evaluation a run of its own"
            )
        # first, so that no release is logged to it meanwhile
        client.set_tag(run_id, EVALUATION, "true")
        if is_protected:
            # MLflow's errors quote the input
            with quiet("the protected model raised {}", ModelError):
                found = model.predict(queries)
            measured = Measured.of_records(found, said)
        else:
            explanations = protect(model.predict, **settings).explain(queries)
            measured = Measured.of_explanations(explanations)
        refuse_other_params(there.params, measured.settings)
        # With a model id MLflow logs the metrics itself; they would be logged twice.
        values = (
            ()
            if kwargs.get("model_id")
            else [Value(*figure) for figure in measured.metrics.items()]
        )
        write(client, run_id, metrics=values, params=measured.settings, tags=measured.settings)
        artifacts = _artifacts(measured, client, run_id)
        return EvaluationResult(measured.metrics, artifacts, run_id)  # type: ignore[no-untyped-call]


def _none(config: Mapping[str, Any] | None) -> dict[str, Any]:
    if config:
        raise InputError(
            f"the model protects already, under its own policy: leave {', '.join(sorted(config))}"
            " out of evaluator_config, or evaluate the explainer that is behind it"
        )
    return {}


def _checked(config: Mapping[str, Any] | None, model: Any) -> dict[str, Any]:
    config = dict(config or {})
    if model is None:
        raise InputError(
            "the evaluator cfk asks a model for counterfactuals; give the explainer as `model`"
        )
    if lost := [name for name in _NEEDED if config.get(name) is None]:
        raise InputError(f"evaluator_config lacks {', '.join(lost)}")
    if unknown := sorted(set(config) - set(_KNOWN)):
        raise InputError(
            f"evaluator_config has unknown settings {', '.join(unknown)}; known:"
            f" {', '.join(_KNOWN)}{did_you_mean(unknown, _KNOWN)}"
        )
    policy = config.get("policy")
    if isinstance(policy, dict):
        config["policy"] = PrivacyPolicy(**policy)
    return config


def _artifacts(measured: Measured, client: MlflowClient, run_id: str) -> dict[str, Any]:
    """Log tables, the plot and the whole result; return them as MLflow's artifacts."""
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
    figures_file = folder / "figures.json"
    figures_file.write_text(
        json.dumps(measured.numbers, indent=1, sort_keys=True, allow_nan=False), encoding="utf-8"
    )
    yield figures_file, JsonEvaluationArtifact
    for name, table in measured.tables.items():
        path = folder / f"{name}.csv"
        table.to_csv(path, index=False)
        yield path, CsvEvaluationArtifact
    if measured.risk is not None:
        path = folder / "risk.png"
        _draw(measured.risk, path)
        yield path, ImageEvaluationArtifact


def _draw(display: Display, path: Path) -> None:
    """Draw to a file, without a window system and without touching the state of pyplot."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    display.plot(ax=figure.add_subplot())
    figure.savefig(path, dpi=150)
