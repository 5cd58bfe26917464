"""MLflow's evaluator: real `mlflow.models.evaluate`, thresholds that pass and that fail, nothing
raw in the run.
"""

from __future__ import annotations

import json
import re
import time
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
from model_server import NearestInAge, accepts, logged, patients, population
from prototyped import policy, prototype
from tracked import explanations

QUERIES = pd.DataFrame(
    {
        "age": [25, 33, 40, 58],
        "town": ["Ghent", "Namur", "Namur", "Ghent"],
        "pay": [1_000_500] * 4,
        "illness": ["x"] * 4,
    }
)


DOCS = Path(__file__).resolve().parents[2] / "docs"
SIX = PrivacyPolicy(guarantee="lookup", k=6)


def evaluate(
    explainer: Any = None, queries: pd.DataFrame = QUERIES, **config: Any
) -> mlflow.models.EvaluationResult:
    settings = {
        "population": population(),
        "model": accepts,
        "desired": 1,
        "policy": {"guarantee": "lookup", "k": 6},
    } | config
    return mlflow.models.evaluate(
        explainer or NearestInAge(patients()).__call__,
        queries,
        model_type="counterfactual",
        evaluators=["cfk"],
        evaluator_config={"cfk": settings},
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, _empty_mlflow_store: Path) -> Iterator[str]:
    with reported.store(tmp_path_factory.mktemp("store"), _empty_mlflow_store) as uri:
        mlflow.set_experiment("tests")
        yield uri


@pytest.fixture(scope="module")
def plain(store: str) -> tuple[str, mlflow.models.EvaluationResult]:
    """Return a run, and what was measured of an explainer in it."""
    with mlflow.start_run() as run:
        return run.info.run_id, evaluate()


@pytest.fixture(scope="module")
def protected(store: str) -> str:
    """Return the address of a protected model."""
    with mlflow.start_run():
        return str(logged(6).model_uri)


def test_metrics_are_those_of_protecting_the_same_explainer(plain: tuple[str, Any]) -> None:
    run_id, result = plain
    explainer = NearestInAge(patients())
    here = protect(
        explainer,
        model=accepts,
        population=population(),
        desired=1,
        policy=PrivacyPolicy(guarantee="lookup", k=6),
    )
    summary = here.explain(QUERIES).summary()
    for name in (
        "k_min",
        "ncp_mean",
        "pureness_mean",
        "native_rate",
        "released",
        "released_native",
    ):
        assert result.metrics[metric_of(name)] == summary[name]
    assert mlflow.get_run(run_id).data.metrics == pytest.approx(result.metrics)


def test_table_is_an_artifact(plain: tuple[str, Any]) -> None:
    run_id, result = plain
    paths = [item.path for item in mlflow.MlflowClient().list_artifacts(run_id, "cfk")]
    assert paths == list(result.artifacts) == ["cfk/released.csv"]
    assert len(result.artifacts["cfk/released.csv"].content) == 4


def test_thresholds_gate_a_promotion(plain: tuple[str, Any]) -> None:
    passes = {"cfk.k_min": MetricThreshold(threshold=6, greater_is_better=True)}
    fails = {"cfk.ncp_mean": MetricThreshold(threshold=0.0001, greater_is_better=False)}
    mlflow.validate_evaluation_results(candidate_result=plain[1], validation_thresholds=passes)
    with pytest.raises(ModelValidationFailedException, match=r"cfk\.ncp_mean"):
        mlflow.validate_evaluation_results(candidate_result=plain[1], validation_thresholds=fails)


SETTINGS = {"cfk.k": "6", "cfk.guarantee": "lookup", "cfk.policy_sha256": SIX.sha256}


def test_run_says_what_was_evaluated(plain: tuple[str, Any]) -> None:
    tags = SETTINGS | {"cfk.population_fingerprint": population().fingerprint}
    assert tags.items() <= mlflow.get_run(plain[0]).data.tags.items()


def test_evaluation_is_no_release(plain: tuple[str, Any]) -> None:
    """Reports skip its run, and neither kind of run takes the other."""
    released = protect(
        NearestInAge(patients()), model=accepts, population=population(), desired=1, policy=SIX
    ).explain(QUERIES)
    assert released.log(run_id=plain[0]) != plain[0]
    with pytest.raises(InputError, match="holds neither explanations nor an audit"):
        read_runs(plain[0])
    with mlflow.start_run():
        released.log()
        with pytest.raises(InputError, match="give the evaluation a run of its own"):
            evaluate()


def test_an_explainer_of_which_most_answers_are_withheld_does_not_pass_the_documented_thresholds(
    store: str,
) -> None:
    page = (DOCS / "how-to" / "log-to-mlflow.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^thresholds = \{\n.*?^\}$", page, re.M | re.S)
    said: dict[str, Any] = {"MetricThreshold": MetricThreshold}
    exec(code, said)

    def mostly(queries: pd.DataFrame) -> pd.DataFrame:  # finds what has the outcome for one of ten
        found = NearestInAge(patients())(queries)
        found.iloc[1:, found.columns.get_loc("illness")] = None
        return found

    with mlflow.start_run():
        ten = pd.concat([QUERIES] * 3).iloc[:10]
        result = evaluate(mostly, policy={"guarantee": "lookup", "k": 10}, queries=ten)
    assert result.metrics["cfk.withheld_rate"] == 0.9
    reasons = {name: n for name, n in result.metrics.items() if name.startswith("cfk.withheld.")}
    assert sum(reasons.values()) == 9
    assert result.metrics["cfk.k_min"] >= 10
    with pytest.raises(ModelValidationFailedException, match=r"cfk\.withheld_rate"):
        mlflow.validate_evaluation_results(
            candidate_result=result, validation_thresholds=said["thresholds"]
        )


class Explainer(mlflow.pyfunc.PythonModel):
    """An explainer as people log it."""

    def predict(self, context, model_input, params=None):
        return NearestInAge(patients())(model_input)


def test_every_metric_of_a_logged_model_is_logged_once(store: str) -> None:
    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(
            name="explainer", python_model=Explainer(), pip_requirements=["mlflow"]
        )
    with mlflow.start_run() as run:
        result = evaluate(info.model_uri)
    client = mlflow.MlflowClient()
    assert result.metrics
    for name, value in result.metrics.items():
        assert [metric.value for metric in client.get_metric_history(run.info.run_id, name)] == [
            value
        ]
    found = {metric.key: metric.value for metric in client.get_logged_model(info.model_id).metrics}
    assert found == pytest.approx(result.metrics)


def evaluate_protected(uri: str, **config: Any) -> mlflow.models.EvaluationResult:
    config = {"cfk": config} if config else {}
    return mlflow.models.evaluate(
        uri,
        QUERIES,
        model_type="counterfactual",
        evaluators=["cfk"],
        evaluator_config=config or None,
    )


def test_a_protected_model_that_withholds_everything_is_measured(store: str) -> None:
    with mlflow.start_run():
        info = logged(6, policy=PrivacyPolicy(k=6, max_ncp=0.0))
        result = evaluate_protected(info.model_uri)
    assert (result.metrics["cfk.released"], result.metrics["cfk.withheld_rate"]) == (0, 1)
    reasons = {name: n for name, n in result.metrics.items() if name.startswith("cfk.withheld.")}
    assert sum(reasons.values()) == len(QUERIES)
    assert "cfk.k_min" not in result.metrics


class Prototypes(mlflow.pyfunc.PythonModel):
    """A server of prototypes, whose certificates have no k."""

    def predict(self, context, model_input, params=None):
        return {"explanations": [prototype(i).to_dict() for i in range(len(model_input))]}


def test_a_model_that_answers_with_prototypes_is_counted(store: str) -> None:
    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(
            name="prototypes",
            python_model=Prototypes(),
            pip_requirements=["mlflow"],
            metadata={"cfk.policy_sha256": policy().sha256},
        )
    with mlflow.start_run() as run:
        result = evaluate_protected(info.model_uri)
    assert result.metrics == {"cfk.asked": 4, "cfk.released": 4, "cfk.withheld_rate": 0}
    assert len(result.artifacts["cfk/released.csv"].content) == 4
    assert mlflow.get_run(run.info.run_id).data.metrics == result.metrics


class Broken(mlflow.pyfunc.PythonModel):
    """A server whose answer has no k."""

    def predict(self, context, model_input, params=None):
        return {"explanations": [{"query": 0, "status": "released"}]}


class Document(mlflow.pyfunc.PythonModel):
    """A server that answers with the content of `Explanations.to_json`."""

    def predict(self, context, model_input, params=None):
        return json.loads(explanations().to_json())


def test_evaluated_model_records_no_release(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing leaves, so a model that records its answers records none."""
    monkeypatch.chdir(tmp_path)
    with mlflow.start_run():
        info = logged(6, track=True)
    with mlflow.start_run():
        result = evaluate_protected(info.model_uri)
    assert result.metrics["cfk.asked"] == len(QUERIES)
    while list(tmp_path.glob("cfk-journal*")):  # a thread would send it
        time.sleep(0.05)
    names = mlflow.search_runs(search_all_experiments=True)["tags.mlflow.runName"]
    assert "served" not in names.to_list()


def test_answers_may_be_a_document(store: str) -> None:
    """One of the three is withheld."""
    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(
            name="document",
            python_model=Document(),
            pip_requirements=["mlflow"],
            metadata={"cfk.policy_sha256": "0" * 64, "cfk.k": "5"},
        )
        metrics = evaluate_protected(info.model_uri).metrics
    assert (metrics["cfk.released"], metrics["cfk.withheld.infeasible"]) == (2, 1)
    assert (metrics["cfk.k_min"], metrics["cfk.released_native"]) == (5, 0)


@pytest.mark.parametrize(
    ("metadata", "message"), [({"cfk.k": "5"}, "released an answer without"), ({}, "")]
)
def test_record_without_k_is_an_error(metadata: dict[str, str], message: str, store: str) -> None:
    """Prototypes have none."""
    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(
            name="broken",
            python_model=Broken(),
            pip_requirements=["mlflow"],
            metadata={"cfk.policy_sha256": "0" * 64, **metadata},
        )
        if message:
            with pytest.raises(InputError, match=message):
                evaluate_protected(info.model_uri)
        else:
            assert evaluate_protected(info.model_uri).metrics["cfk.released"] == 1


def test_without_names_the_evaluator_takes_its_own_models_and_no_others(store: str) -> None:
    settings = {
        "population": population(),
        "model": accepts,
        "desired": 1,
        "policy": {"guarantee": "lookup", "k": 6},
    }
    numbers = patients()[["age", "pay"]].assign(good=1.0)
    with mlflow.start_run():
        ours = mlflow.models.evaluate(
            NearestInAge(patients()).__call__,
            QUERIES,
            model_type="counterfactual",
            evaluator_config={"cfk": settings},
        )
    with mlflow.start_run():
        theirs = mlflow.models.evaluate(
            accepts,
            numbers,
            targets="good",
            model_type="regressor",
            evaluator_config={"log_explainer": False},
        )
    assert ours.metrics["cfk.k_min"] >= 6
    assert "root_mean_squared_error" in theirs.metrics
    assert not [name for name in theirs.metrics if name.startswith("cfk")]


def test_nothing_raw_is_in_the_run(mlflow_store: str, tmp_path: Path) -> None:
    with mlflow.start_run():
        result = evaluate(policy={"guarantee": "lookup", "k": 6})
    assert result.metrics["cfk.released"] == 4
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "released.csv" for path in written)
    known = {
        illness.encode() for illness in result.artifacts["cfk/released.csv"].content["illness"]
    }
    for path in written:
        assert set(re.findall(rb"SENTINEL\d+", path.read_bytes())) <= known, path.name


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"population": None}, "lacks population"),
        ({"model": None}, "lacks model"),
        ({"k": 1}, "unknown settings k"),
        ({"policy": {"k": 1}}, "k must be a whole number"),
    ],
)
def test_a_wrong_configuration_is_refused(config: dict[str, Any], message: str, store: str) -> None:
    with mlflow.start_run(), pytest.raises(Exception, match=message):
        evaluate(**config)


def test_other_model_types_are_left_to_others() -> None:
    for kind in ("classifier", "regressor", None, "text"):
        assert not CounterfactualEvaluator.can_evaluate(model_type=kind, evaluator_config={})
    assert CounterfactualEvaluator.can_evaluate(model_type="counterfactual", evaluator_config={})
    with pytest.raises(InputError, match="give the explainer"):
        CounterfactualEvaluator().evaluate(
            model_type="counterfactual", dataset=None, run_id="", evaluator_config={}
        )
