"""MLflow's evaluator: real `mlflow.models.evaluate`, with thresholds that pass and that fail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
from mlflow.models import MetricThreshold
from mlflow.models.evaluation.validation import ModelValidationFailedException

import reported
from cfk_plugin import PrivacyPolicy, protect
from cfk_plugin.errors import InputError
from cfk_plugin.report.reading import read_runs
from cfk_plugin.serving.evaluator import CounterfactualEvaluator
from cfk_plugin.tracking.tally import metric_of
from model_server import accepts, logged, nearest_in_age, patients, population
from prototyped import policy, prototype

QUERIES = pd.DataFrame(
    {
        "age": [25, 33, 40, 58],
        "town": ["Ghent", "Namur", "Namur", "Ghent"],
        "pay": [1_000_500] * 4,
        "illness": ["x"] * 4,
    }
)
DOCS = Path(__file__).resolve().parents[2] / "docs"
LOOKUP = PrivacyPolicy(guarantee="lookup", k=6)


def evaluate(
    model: Any,
    settings: dict[str, Any],
    queries: pd.DataFrame = QUERIES,
    evaluators: list[str] | None = None,
) -> mlflow.models.EvaluationResult:
    return mlflow.models.evaluate(
        model,
        queries,
        model_type="counterfactual",
        evaluators=evaluators,
        evaluator_config={"cfk": settings} if settings else None,
    )


def settings_with(**changes: Any) -> dict[str, Any]:
    """Return the configuration for an explainer that does not protect."""
    plain = {"population": population(), "model": accepts, "desired": 1}
    return plain | {"policy": {"guarantee": "lookup", "k": 6}} | changes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def store(folder: Path, _empty_mlflow_store: Path) -> Iterator[str]:
    with reported.store(folder, _empty_mlflow_store) as uri:
        mlflow.set_experiment("tests")
        yield uri


@pytest.fixture(scope="module")
def plain(store: str) -> tuple[str, mlflow.models.EvaluationResult]:
    """Return a run, and what was measured of an explainer in it."""
    with mlflow.start_run() as run:
        return run.info.run_id, evaluate(nearest_in_age, settings_with())


def released() -> Any:
    """Return the explanations that the same explainer gives, protected."""
    options: dict[str, Any] = {"model": accepts, "population": population(), "desired": 1}
    return protect(nearest_in_age, policy=LOOKUP, **options).explain(QUERIES)


def test_metrics_are_those_of_explanations(plain: tuple[str, Any]) -> None:
    """They are in the run, with the settings as tags."""
    run_id, result = plain
    summary = released().summary()
    for name in ("k_min", "ncp_mean", "pureness_mean", "native_rate", "released"):
        assert result.metrics[metric_of(name)] == summary[name]
    data = mlflow.get_run(run_id).data
    assert data.metrics == pytest.approx(result.metrics)
    tags = {"cfk.k": "6", "cfk.guarantee": "lookup", "cfk.policy_sha256": LOOKUP.sha256}
    tags["cfk.population_fingerprint"] = population().fingerprint
    assert tags.items() <= data.tags.items()


def test_artifact_has_answers_only(plain: tuple[str, Any], folder: Path) -> None:
    """No file of the store has an illness of a person that no answer has."""
    run_id, result = plain
    paths = [item.path for item in mlflow.MlflowClient().list_artifacts(run_id, "cfk")]
    assert paths == list(result.artifacts) == ["cfk/released.csv"]
    table = result.artifacts["cfk/released.csv"].content
    assert len(table) == 4
    answers = {illness.encode() for illness in table["illness"]}
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "released.csv" for path in files)
    for path in files:
        assert set(re.findall(rb"SENTINEL\d+", path.read_bytes())) <= answers, path.name


def test_thresholds_gate_a_promotion(plain: tuple[str, Any]) -> None:
    """One threshold passes, and one fails."""
    passes = {"cfk.k_min": MetricThreshold(threshold=6, greater_is_better=True)}
    fails = {"cfk.ncp_mean": MetricThreshold(threshold=0.0001, greater_is_better=False)}
    mlflow.validate_evaluation_results(candidate_result=plain[1], validation_thresholds=passes)
    with pytest.raises(ModelValidationFailedException, match=r"cfk\.ncp_mean"):
        mlflow.validate_evaluation_results(candidate_result=plain[1], validation_thresholds=fails)


def test_evaluation_is_no_release(plain: tuple[str, Any]) -> None:
    """Reports skip its run, and neither kind of run takes the other."""
    explanations = released()
    assert explanations.log(run_id=plain[0]) != plain[0]
    with pytest.raises(InputError, match="holds neither explanations nor an audit"):
        read_runs(plain[0])
    with mlflow.start_run():
        explanations.log()
        with pytest.raises(InputError, match="give the evaluation a run of its own"):
            evaluate(nearest_in_age, settings_with(), evaluators=["cfk"])


def test_withheld_answers_fail_documented_thresholds(store: str) -> None:
    """The explainer has an answer with the outcome for one of ten queries."""
    page = (DOCS / "how-to" / "log-to-mlflow.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^thresholds = \{\n.*?^\}$", page, re.M | re.S)
    names: dict[str, Any] = {"MetricThreshold": MetricThreshold}
    exec(code, names)

    def one_of_ten(queries: pd.DataFrame) -> pd.DataFrame:
        answers = nearest_in_age(queries)
        answers.iloc[1:, answers.columns.get_loc("illness")] = None
        return answers

    with mlflow.start_run():
        queries = pd.concat([QUERIES] * 3).iloc[:10]
        result = evaluate(
            one_of_ten, settings_with(policy={"guarantee": "lookup", "k": 10}), queries
        )
    assert result.metrics["cfk.withheld_rate"] == 0.9
    reasons = [n for name, n in result.metrics.items() if name.startswith("cfk.withheld.")]
    assert sum(reasons) == 9
    with pytest.raises(ModelValidationFailedException, match=r"cfk\.withheld_rate"):
        mlflow.validate_evaluation_results(
            candidate_result=result, validation_thresholds=names["thresholds"]
        )


class Explainer(mlflow.pyfunc.PythonModel):
    """An explainer as people log it."""

    def predict(self, context, model_input, params=None):
        return nearest_in_age(model_input)


def test_logged_explainer_has_metrics_once(store: str) -> None:
    """They are metrics of the run and of the logged model."""
    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(
            name="explainer", python_model=Explainer(), pip_requirements=["mlflow"]
        )
    with mlflow.start_run() as run:
        result = evaluate(info.model_uri, settings_with())
    client = mlflow.MlflowClient()
    for name, value in result.metrics.items():
        history = client.get_metric_history(run.info.run_id, name)
        assert [metric.value for metric in history] == [value]
    metrics = {
        metric.key: metric.value for metric in client.get_logged_model(info.model_id).metrics
    }
    assert metrics == pytest.approx(result.metrics)


# --- models that protect already ----------------------------------------------------------------------


def test_evaluation_of_protected_model_releases_nothing(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that records its answers records none."""
    monkeypatch.chdir(tmp_path)
    with mlflow.start_run():
        info = logged(6, track=True)
    with mlflow.start_run():
        metrics = evaluate(info.model_uri, {}, QUERIES.assign(illness="a cold")).metrics
    assert (metrics["cfk.asked"], metrics["cfk.k_min"]) == (len(QUERIES), 6)
    assert not list(tmp_path.iterdir())
    names = mlflow.search_runs(search_all_experiments=True)["tags.mlflow.runName"]
    assert "served" not in names.to_list()
    with mlflow.start_run(), pytest.raises(Exception, match="evaluator_config"):
        evaluate(info.model_uri, settings_with())


def test_withholding_model_has_no_k(store: str) -> None:
    """Every answer is withheld."""
    with mlflow.start_run():
        info = logged(6, policy=PrivacyPolicy(k=6, max_ncp=0.0))
        metrics = evaluate(info.model_uri, {}).metrics
    assert (metrics["cfk.released"], metrics["cfk.withheld_rate"]) == (0, 1)
    assert "cfk.k_min" not in metrics


class Prototypes(mlflow.pyfunc.PythonModel):
    """A server of prototypes, whose certificates have no k."""

    def predict(self, context, model_input, params=None):
        return {"explanations": [prototype(i).to_dict() for i in range(len(model_input))]}


def log_prototypes(**metadata: str) -> str:
    """Log a server of prototypes; return its URI."""
    info = mlflow.pyfunc.log_model(
        name="prototypes",
        python_model=Prototypes(),
        pip_requirements=["mlflow"],
        metadata={"cfk.policy_sha256": policy().sha256, **metadata},
    )
    return str(info.model_uri)


def test_prototypes_are_counted(store: str) -> None:
    """They have no other figure."""
    with mlflow.start_run():
        uri = log_prototypes()
    with mlflow.start_run():
        result = evaluate(uri, {})
    assert result.metrics == {"cfk.asked": 4, "cfk.released": 4, "cfk.withheld_rate": 0}


def test_record_without_k_is_an_error(store: str) -> None:
    """The model says that it has a k."""
    with mlflow.start_run():
        uri = log_prototypes(**{"cfk.k": "5"})
        with pytest.raises(InputError, match="released an answer without"):
            evaluate(uri, {})


# --- which models are evaluated, and how -----------------------------------------------------------------


def test_evaluator_leaves_other_models_alone(store: str) -> None:
    """MLflow asks each of its evaluators, if the call names none."""
    numbers = patients()[["age", "pay"]].assign(good=1.0)
    with mlflow.start_run():
        metrics = mlflow.models.evaluate(
            accepts,
            numbers,
            targets="good",
            model_type="regressor",
            evaluator_config={"log_explainer": False},
        ).metrics
    assert "root_mean_squared_error" in metrics
    assert not [name for name in metrics if name.startswith("cfk")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"population": None}, "lacks population"),
        ({"k": 1}, "unknown settings k"),
        ({"policy": {"k": 1}}, "k must be a whole number"),
    ],
)
def test_wrong_configuration_is_refused(changes: dict[str, Any], message: str, store: str) -> None:
    """The message names the setting."""
    with mlflow.start_run(), pytest.raises(Exception, match=message):
        evaluate(nearest_in_age, settings_with(**changes))


def test_missing_model_is_refused() -> None:
    """Answers alone cannot be protected."""
    with pytest.raises(InputError, match="give the explainer"):
        CounterfactualEvaluator().evaluate(
            model_type="counterfactual", dataset=None, run_id="", evaluator_config={}
        )
