"""What a run of MLflow has of explanations, and which run they go to."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest

from cfk_plugin import (
    Explanations,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    Withheld,
    __version__,
)
from cfk_plugin.data.formats import faults
from cfk_plugin.errors import TrackingError
from cfk_plugin.release.explanations import ResultContext
from cfk_plugin.tracking.logger import RunLogger, observe
from cfk_plugin.tracking.tally import PLOTTED, Tally
from parts import content_of, figures_of, rows_of
from tracked import ABOUT, COLUMNS, POPULATION, explanations, measured, released

POLICY = PrivacyPolicy(guarantee="lookup", k=5)


def run_of(run_id: str | None) -> Any:
    return mlflow.get_run(str(run_id))


def children_of(run_id: str) -> list[Any]:
    condition = f"tags.`mlflow.parentRunId` = '{run_id}'"
    return mlflow.search_runs(
        search_all_experiments=True, filter_string=condition, output_format="list"
    )


# --- what a run has ---


def test_run_has_settings_as_params(mlflow_store: str) -> None:
    """Whoever compares runs in MLflow sees those of the policy and of the fit as columns."""
    assert run_of(measured().by_group("sex", ["f", "m", "f"]).log()).data.params == {
        "cfk.k": "5",
        "cfk.guarantee": "lookup",
        "cfk.objective": "pureness",
        "cfk.near_native": "auto",
        "cfk.margin": "0.0",
        "cfk.least_pureness": "0.0",
        "cfk.method": "exact",
        "cfk.generator": "dice",
        "cfk.model": "forest",
        "cfk.seed": "3",
        "cfk.groups": "sex",
    }


def test_run_has_tags(mlflow_store: str) -> None:
    """Those of the caller and ours, and the user and source of MLflow's own runs."""
    with mlflow.start_run() as own:
        pass
    run = run_of(explanations().log(run_name="release 7", tags={"team": "risk"}))
    for name in ("mlflow.user", "mlflow.source.name", "mlflow.source.type"):
        assert run.data.tags[name] == own.data.tags[name]
    expected = {
        "team": "risk",
        "mlflow.runName": "release 7",
        "cfk.schema_version": "1",
        "cfk.policy_sha256": POLICY.sha256,
        "cfk.population_fingerprint": "00c0ffee",
        "cfk.plugins": "dice 0.1.0",
        "cfk.verdict": "pass",
        "cfk.records": "1",
    }
    assert expected.items() <= run.data.tags.items()
    assert run.info.status == "FINISHED"


def test_each_explanation_is_a_step(mlflow_store: str) -> None:
    """A withheld one has no value."""
    run_id = explanations().log()
    client = mlflow.MlflowClient()
    for name, values in {
        "cfk.k": [(0, 5), (2, 9)],
        "cfk.ncp": [(0, 0.25), (2, 0.75)],
        "cfk.pureness": [(0, 1.0), (2, 0.5)],
    }.items():
        history = client.get_metric_history(run_id, name)
        assert [(value.step, value.value) for value in history] == values


def test_run_has_figures_of_summary(mlflow_store: str) -> None:
    """A dozen of them are metrics: `figures_of` compares."""
    result = measured(findings=["native", "near-native", "synthetic"])
    figures = figures_of(result.log())
    summary = result.summary()
    for name in figures.keys() & summary.keys():
        assert figures[name] == pytest.approx(summary[name]), name
    assert set(figures) - set(summary) == {
        *("already_desired", "examined", "untracked", "unproven", "epsilon_spent"),
    }
    assert (figures["k_min"], figures["native_rate"]) == (5, 1 / 3)
    assert len(PLOTTED) <= 14


def test_withheld_rate_ignores_desired_outcomes(mlflow_store: str) -> None:
    """A query with the desired outcome is not in the share that is withheld."""
    entries = (released(0), Withheld(1, "infeasible"), Withheld(2, "already_desired"))
    figures = figures_of(explanations(*entries).log())
    assert (figures["withheld"], figures["already_desired"]) == (2, 1)
    assert figures["withheld_rate"] == 1 / 2


def test_table_has_a_row_per_explanation(mlflow_store: str) -> None:
    """With what recipients may see and what only the data holder may."""
    run_id = measured(findings=["native", None, None]).by_group("sex", ["f", "m", None]).log()
    rows = rows_of(run_id)
    assert rows["step"].tolist() == [0, 1, 2]
    assert rows["reason"].tolist() == [None, "verification_failed", None]
    assert rows["feature.age"].tolist() == ["24–27", None, "24–27"]
    assert json.loads(rows["released"][0]) == {"salary": 60}
    assert json.loads(rows["region"][0])["city"] == {"kind": "set", "values": ["Antwerp", "Ghent"]}
    counts = {"k": 5, "k_desired": 4, "finding": "native", "ncp.age": 0.5, "group": "f"}
    assert {name: rows.loc[0, name] for name in counts} == counts
    assert rows["refused_k"].tolist() == [None, 3, None]
    assert rows["group"].tolist() == ["f", "m", "missing"]


def test_mlflow_shows_the_table(mlflow_store: str) -> None:
    """As it shows a table of the user's own in the same run."""
    with mlflow.start_run() as run:
        mlflow.log_table({"score": [1]}, "own.json")
        explanations().log()
    tables = json.loads(run_of(run.info.run_id).data.tags["mlflow.loggedArtifacts"])
    assert tables[0]["path"] == "own.json"
    table = mlflow.load_table(tables[1]["path"], [run.info.run_id])
    assert table["status"].tolist() == ["released", "withheld", "released"]


def test_files_satisfy_their_schema(mlflow_store: str, patients_logged: str) -> None:
    """All files of a fit are there."""
    content = content_of(patients_logged)
    assert set(content) == {
        *("policy.json", "population.json", "environment.json", "summary.json", "explanations"),
    }
    assert not faults(content, "run-1")
    assert content["environment.json"]["packages"]["cfk_plugin"] == __version__


@pytest.fixture
def fitted() -> KAnonymizer:
    table = pd.DataFrame({"age": range(20, 60), "pay": range(40)})
    population = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age"]))
    policy = PrivacyPolicy(k=5, guarantee="lookup")
    return KAnonymizer(policy=policy).fit(population, scorecard, True)


def scorecard(rows: pd.DataFrame) -> Any:
    return (rows["age"] > 40).to_numpy()


@pytest.fixture
def patients_logged(fitted: KAnonymizer) -> str:
    """Return a run with three explanations of a fit."""
    counterfactuals = pd.DataFrame({"age": [57, 58, 59], "pay": [37, 38, 39]})
    return fitted.transform(counterfactuals).log()


def test_population_is_a_dataset_without_rows(mlflow_store: str, patients_logged: str) -> None:
    """It has counts, columns, and no source."""
    (given,) = run_of(patients_logged).inputs.dataset_inputs
    population = content_of(patients_logged)["population.json"]
    assert given.dataset.digest == population["fingerprint"]
    assert json.loads(given.dataset.profile) == {"num_rows": 40, "num_people": 40}
    columns = json.loads(given.dataset.schema)["mlflow_colspec"]
    assert [column["name"] for column in columns] == ["age", "pay"]
    assert {tag.key: tag.value for tag in given.tags} == {"mlflow.data.context": "population"}
    assert mlflow.data.get_source(given).to_dict() == {"tags": {}}


def test_metrics_are_linked_to_model(mlflow_store: str) -> None:
    """The model is named, or it is MLflow's active one, to which MLflow itself links all values."""
    client = mlflow.MlflowClient()
    model = client.create_logged_model("0", name="credit")
    uri = f"models:/{model.model_id}"
    run_ids = [RunLogger(model=uri).log(measured())]
    with mlflow.set_active_model(model_id=model.model_id):
        run_ids.append(measured().log())
    linked = client.get_logged_model(model.model_id).metrics
    for run_id, n_steps in zip(run_ids, (0, 2), strict=True):
        names = sorted(metric.key for metric in linked if metric.run_id == run_id)
        figures = {f"cfk.{name}" for name in PLOTTED} & set(run_of(run_id).data.metrics)
        assert names == sorted([*figures, *n_steps * ["cfk.k", "cfk.ncp", "cfk.pureness"]])
    for run_id in run_ids:
        assert [given.model_id for given in run_of(run_id).inputs.model_inputs] == [model.model_id]
    assert content_of(run_ids[0])["environment.json"]["model"] == uri


def test_unknown_model_is_not_linked(mlflow_store: str) -> None:
    """The run is logged all the same."""
    run_id = RunLogger(model="models:/credit/3").log(measured())
    assert run_of(run_id).inputs.model_inputs == []


@pytest.mark.parametrize(
    ("entries", "verdict"),
    [
        ([released(0, k=4)], "fail"),
        ([Withheld(0, "infeasible")], "review"),
        ([], "review"),
        ([released(0)], "pass"),
    ],
)
def test_verdict_follows_from_entries(entries: list[Any], verdict: str, mlflow_store: str) -> None:
    """A k too low fails, and nothing released asks for review."""
    run = run_of(Explanations(entries, policy=POLICY, columns=COLUMNS).log())
    assert (run.data.tags["cfk.verdict"], run.data.metrics["cfk.asked"]) == (verdict, len(entries))


# --- several results in one run ---


def test_figures_cover_the_whole_run(mlflow_store: str) -> None:
    """Steps and figures go on, whoever logs to the run in this process."""
    whole = measured(
        released(0, k_desired=2),
        Withheld(1, "infeasible"),
        released(2, k=20, pureness=0.5, optimal=False, majority=False),
        released(3, k=10, ncp=0.5),
        findings=["native", None, "synthetic", "native"],
    )
    logger = RunLogger()
    run_id = logger.log(whole[:2])
    assert logger.log(whole[2:3]) == run_id
    assert observe(whole[3:], RunLogger(run_id))
    assert rows_of(run_id)["step"].tolist() == [0, 1, 2, 3]
    assert figures_of(run_id) == pytest.approx(figures_of(whole.log()))
    assert run_of(run_id).data.tags["cfk.records"] == "3"


def test_missing_figure_stays_unknown(mlflow_store: str) -> None:
    """In either order of the results."""
    for results in (
        [released(0), released(0, majority=None)],
        [released(0, majority=None), released(0)],
    ):
        logger = RunLogger()
        for entry in results:
            run_id = logger.log(explanations(entry))
        figures = figures_of(run_id)
        assert (figures["cm"], figures["optimal_rate"]) == (None, 1)


def test_region_without_k_is_an_error() -> None:
    """It is not counted as a k of zero."""
    record = explanations().to_record()
    del record.rows[0]["k"]
    with pytest.raises(KeyError, match="k"):
        Tally().plus(record)


def test_documents_are_logged_once(mlflow_store: str) -> None:
    """Those of the first result stay."""
    logger = RunLogger()
    logger.log(measured())
    other = ResultContext({**POPULATION, "people": 12}, ABOUT.environment)
    run_id = logger.log(measured(about=other))
    assert content_of(run_id)["population.json"] == POPULATION


# --- which run ---


def test_active_run_is_used(mlflow_store: str) -> None:
    """It is left running."""
    with mlflow.start_run() as run:
        assert explanations().log() == run.info.run_id
        assert explanations().log() == run.info.run_id
        assert run_of(run.info.run_id).info.status == "RUNNING"
    assert run_of(run.info.run_id).data.metrics["cfk.asked"] == 6


def test_nested_run_is_used(mlflow_store: str) -> None:
    """Its parent has no figure."""
    with mlflow.start_run() as parent, mlflow.start_run(nested=True) as child:
        assert explanations().log() == child.info.run_id
    assert "cfk.asked" not in run_of(parent.info.run_id).data.metrics


def test_name_asks_for_a_nested_run(mlflow_store: str) -> None:
    """Its parent is the active run."""
    with mlflow.start_run() as run:
        child = run_of(explanations().log(run_name="release 7"))
    assert child.info.run_name == "release 7"
    assert child.data.tags["mlflow.parentRunId"] == run.info.run_id


def test_each_log_makes_a_run(mlflow_store: str) -> None:
    """The experiment is created once."""
    runs = [run_of(explanations().log(experiment="credit")) for _ in range(2)]
    assert len({run.info.run_id for run in runs}) == 2
    assert len({run.info.experiment_id for run in runs}) == 1


def test_tracked_results_share_a_run(mlflow_store: str) -> None:
    """What is not tracked is not there."""
    for _ in range(2):
        observe(explanations(), "credit")
    observe(explanations())
    (run,) = mlflow.search_runs(experiment_names=["credit"], output_format="list")
    assert (run.data.metrics["cfk.asked"], run.info.status) == (6, "FINISHED")


def test_other_settings_get_a_child_run(mlflow_store: str) -> None:
    """All results of one policy share it."""
    with mlflow.start_run() as run:
        for k in (5, 4, 4):
            observe(explanations(k=k), track=True)
    (child,) = children_of(run.info.run_id)
    assert (child.data.params["cfk.k"], child.data.metrics["cfk.asked"]) == ("4", 6)
    assert run_of(run.info.run_id).data.metrics["cfk.asked"] == 3


SCRIPT = """
import sys
sys.path[:0] = {paths!r}
from cfk_plugin.tracking.logger import observe
from tracked import explanations
explanations().log(run_id={run_id!r})
observe(explanations(), "script")
"""


def test_script_logs_before_it_ends(mlflow_store: str, tmp_path: Path) -> None:
    """To a run of another process it logs in a child: two processes cannot number explanations."""
    run_id = explanations().log()
    paths = [str(Path(__file__).parents[1] / "helpers"), str(Path(__file__).parents[2])]
    command = [sys.executable, "-c", SCRIPT.format(paths=paths, run_id=run_id)]
    subprocess.run(command, check=True, timeout=120, cwd=tmp_path)
    (child,) = children_of(run_id)
    assert (child.data.metrics["cfk.asked"], child.info.status) == (3, "FINISHED")
    assert len(rows_of(run_id)) == 3
    (run,) = mlflow.search_runs(experiment_names=["script"], output_format="list")
    assert (run.data.metrics["cfk.asked"], run.info.status) == (3, "FINISHED")
    assert not list(tmp_path.glob("*.jsonl"))


def test_evaluation_gets_a_child(mlflow_store: str) -> None:
    """Nothing left in an evaluation, so releases are not logged to its run."""
    with mlflow.start_run(tags={"cfk.evaluation": "true"}) as run:
        assert explanations().log() != run.info.run_id
    assert len(children_of(run.info.run_id)) == 1


@pytest.mark.parametrize("name", ["credit", None])
def test_deleted_experiment_is_named(
    mlflow_store: str, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    """The message says how to restore it, also if the environment chose it by its id."""
    experiment_id = mlflow.create_experiment("credit")
    mlflow.delete_experiment(experiment_id)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", experiment_id)
    with pytest.raises(TrackingError, match="'credit' was deleted"):
        explanations().log(experiment=name)


def test_unknown_run_is_an_error(mlflow_store: str) -> None:
    """MLflow says that there is none."""
    with pytest.raises(TrackingError, match="MLflow did not accept the records"):
        explanations().log(run_id="nosuchrun")


# --- stores that fail ---


@pytest.fixture
def hanging() -> Iterator[str]:
    """Return the address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("is_hanging", [False, True])
def test_dead_server_is_named_soon(is_hanging: bool, hanging: str) -> None:
    """One refuses connections, and one never answers."""
    uri = hanging if is_hanging else "http://127.0.0.1:9"
    with pytest.raises(TrackingError, match="tracking server does not answer"):
        RunLogger(tracking_uri=uri, timeout=0.3).log(explanations())


@pytest.mark.parametrize("call", ["log_artifacts", "log_batch", "set_terminated"])
def test_log_can_be_repeated_after_failure(
    call: str, mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has each explanation once."""
    logger = RunLogger()
    with monkeypatch.context() as patch:
        patch.setattr(mlflow.MlflowClient, call, lambda *_, **__: 1 / 0)
        with pytest.raises(TrackingError, match="ZeroDivisionError"):
            logger.log(explanations())
    run_id = logger.log(explanations())
    assert figures_of(run_id)["asked"] == len(rows_of(run_id)) == 3
