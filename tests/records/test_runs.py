"""What a run of MLflow holds of regions that were released, and how it gets there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
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
from cfk_plugin.errors import TrackingError, UntrackedWarning
from cfk_plugin.metrics.provenance import environment_of
from cfk_plugin.records import run as runs
from cfk_plugin.records.logger import RunLogger, observe
from cfk_plugin.records.record import rows_of_recount
from cfk_plugin.records.tally import PLOTTED, Tally
from cfk_plugin.release.explanations import ResultContext
from parts import figures_of, summary_of, table_of, tables_of
from tracked import COLUMNS, explanations, journaled, released

POPULATION = {
    "schema_version": 1,
    "people": 331,
    "attributes": [{"name": n, "role": "quasi-identifier"} for n in ("age", "city")],
}
ABOUT = ResultContext(POPULATION, {**environment_of(seed=3), "generator": "dice"}, seconds=0.25)
FULL: dict[str, Any] = {
    "k_effective": 6,
    "l": 2,
    "t": 0.25,
    "disclosure": 0.5,
    "ncp_parts": (0.5, 0.0),
}


def measured(*entries: Any, **settings: Any) -> Explanations:
    """Return explanations with all that the data holder has beside them."""
    return explanations(
        *(
            entries
            or (
                released(0, **FULL),
                Withheld(1, "verification_failed", refused_k=3),
                released(2, k=10),
            )
        ),
        **{"about": ABOUT, "findings": ["native", None, "synthetic"], "n_people": 331, **settings},
    )


def run_of(run_id: str | None) -> Any:
    assert run_id is not None
    return mlflow.get_run(run_id)


def metrics_of(run_id: str | None) -> dict[str, float]:
    return dict(run_of(run_id).data.metrics)


def files_of(run_id: str | None) -> Path:
    return Path(mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path="cfk"))


def parts_of(run_id: str | None, kind: str = "explanations") -> pd.DataFrame:
    parts = tables_of((files_of(run_id) / kind).iterdir())
    return parts.sort_values("step", ignore_index=True)


# --- what a run holds -----------------------------------------------------------------------------


def test_log_writes_params_metrics_and_tags(mlflow_store: str) -> None:
    result = explanations(findings=["native", "near-native", "synthetic"])
    run, summary = run_of(result.log()), result.summary()
    assert run.info.status == "FINISHED"
    params = {
        "cfk.k": "5",
        "cfk.method": "exact",
        "cfk.guarantee": "lookup",
        "cfk.generator": "dice",
    }
    assert run.data.params == params | {"cfk.least_pureness": "0.0"}
    tags = {name: value for name, value in run.data.tags.items() if name.startswith("cfk.")}
    assert len(tags.pop("cfk.job")) == 16
    (record,) = (name for name in tags if name.startswith("cfk.record."))
    assert tags.pop(record) == "3"
    assert tags == {
        "cfk.schema_version": "1",
        "cfk.policy_sha256": PrivacyPolicy(guarantee="lookup", k=5).sha256,
        "cfk.population_fingerprint": "00c0ffee",
        "cfk.plugins": "dice 0.1.0",
        "cfk.verdict": "pass",
    }
    own = {
        "k_mean": 7,
        "k_p05": 5.2,
        "ncp_mean": 0.5,
        "pureness_mean": 0.75,
        "native_rate": 1 / 3,
        "near_native_rate": 1 / 3,
        "marketer_risk": (1 / 5 + 1 / 9) / 2,
        "asked": 3,
        "released": 2,
        "withheld": 1,
        "already_desired": 0,
        "examined": 3,
        "untracked": 0,
        "native_qi_rate": 0,
        "prototypes": 0,
        "unproven": 0,
    }
    same = (
        "k_min",
        "k_worst_min",
        "k_desired_min",
        "k_consistent_min",
        "k_private_min",
        "ncp_p95",
        "pureness_min",
        "pureness_low",
        "prosecutor_risk_max",
        "cm",
        "optimal_rate",
        "withheld_rate",
        "released_native",
    )
    unknown = (
        "cdm",
        "disclosure_max",
        "epsilon_spent",
        "k_effective_min",
        "l_min",
        "sampled",
        "t_max",
    )
    expected = own | {name: summary[name] for name in same}
    figures = figures_of(run.info.run_id)
    assert {name: figures.pop(name) for name in unknown} == dict.fromkeys(unknown)
    assert figures == pytest.approx(expected)
    of_the_last_one = {"cfk.k": 9, "cfk.ncp": 0.75, "cfk.pureness": 0.5}
    plotted = {f"cfk.{name}": expected[name] for name in PLOTTED if name in expected}
    assert run.data.metrics == pytest.approx(plotted | of_the_last_one)
    assert len(plotted) == 13


def test_who_has_the_outcome_already_is_not_in_the_share_withheld(mlflow_store: str) -> None:
    entries = (released(0), Withheld(1, "infeasible"), Withheld(2, "already_desired"))
    run_id = measured(*entries, findings=None).log()
    assert metrics_of(run_id)["cfk.withheld_rate"] == 1 / 2
    found = figures_of(run_id)
    assert (found["asked"], found["withheld"], found["already_desired"]) == (3, 2, 1)
    assert found["cdm"] == measured(*entries, findings=None).summary()["cdm"]
    measured(Withheld(0, "already_desired"), released(1), findings=None).log(run_id=run_id)
    assert metrics_of(run_id)["cfk.withheld_rate"] == 1 / 3
    assert figures_of(run_id)["already_desired"] == 2


def test_the_summary_has_both_states_and_its_names_in_order(mlflow_store: str) -> None:
    run_id = explanations().log()
    first = summary_of(run_id)
    assert list(first) == ["earlier", "figures", "schema_version"]
    assert (first["schema_version"], first["earlier"]) == (1, {})
    explanations().log(run_id=run_id)
    second = summary_of(run_id)
    assert list(second["figures"]) == sorted(second["figures"])
    assert second["earlier"] == first["figures"]
    assert (second["earlier"]["asked"], second["figures"]["asked"]) == (3, 6)


def test_rows_and_policy_are_artifacts_and_private_counts_are_beside(mlflow_store: str) -> None:
    run_id = explanations(
        released(0, k_private=31337, private_matches=41414), Withheld(1, "infeasible")
    ).log()
    rows = parts_of(run_id)
    assert list(rows.columns) == [
        *(
            "step",
            "timestamp",
            "query",
            "status",
            "reason",
            "k",
            "ncp",
            "pureness",
            "pureness_low",
            "pureness_high",
        ),
        *(
            "exact",
            "optimal",
            "gap",
            "method",
            "guarantee",
            "policy_hash",
            "population",
            "region",
            "released",
        ),
        *(f"feature.{name}" for name in COLUMNS),
    ]
    assert list(rows["step"]) == [0, 1]
    assert list(rows["reason"].fillna("")) == ["", "infeasible"]
    assert list(rows["feature.age"].fillna("")) == ["24–27", ""]
    assert json.loads(rows["released"][0]) == {"salary": 60}
    assert json.loads(rows["region"][0])["city"] == {"kind": "set", "values": ["Antwerp", "Ghent"]}
    policy = json.loads((files_of(run_id) / "policy.json").read_text())
    assert policy == PrivacyPolicy(guarantee="lookup", k=5).to_dict()
    assert "41414" not in repr(run_of(run_id).to_dictionary())
    assert "31337" not in rows.to_csv()
    assert parts_of(run_id, "recount").loc[0, ["k_private", "private_matches"]].tolist() == [
        31337,
        41414,
    ]


def test_a_row_beside_every_explanation_is_for_the_data_holder(mlflow_store: str) -> None:
    run_id = measured().by_group("sex", ["f", "m", None]).log()
    (part,), (beside,) = (
        sorted((files_of(run_id) / name).iterdir()) for name in ("explanations", "recount")
    )
    assert part.name == beside.name
    rows = table_of(beside)
    assert list(rows.columns) == [
        *(
            "step",
            "k_worst",
            "k_desired",
            "k_consistent",
            "k_effective",
            "k_private",
            "private_matches",
            "l",
            "t",
            "disclosure",
        ),
        *(
            "majority",
            "finding",
            "refused_k",
            "seconds",
            "group",
        ),
        *("ncp.age", "ncp.city"),
    ]
    assert rows["step"].tolist() == table_of(part)["step"].tolist() == [0, 1, 2]
    assert rows.loc[0].drop("refused_k").to_dict() == {
        "step": 0,
        "k_worst": 3,
        "k_desired": 4,
        "k_consistent": 3,
        "k_private": 1,
        "private_matches": 1,
        "majority": True,
        **{name: value for name, value in FULL.items() if name != "ncp_parts"},
        "finding": "native",
        "seconds": 0.25,
        "ncp.age": 0.5,
        "ncp.city": 0.0,
        "group": "f",
    }
    assert rows["refused_k"].fillna(-1).tolist() == [-1, 3, -1]
    assert rows.loc[1].drop(["step", "seconds", "refused_k", "group"]).isna().all()
    assert rows.loc[2, ["ncp.age", "t"]].isna().all()
    assert rows["group"].tolist() == ["f", "m", "missing"]
    assert run_of(run_id).data.params["cfk.groups"] == "sex"
    refused = rows_of_recount(
        [measured(Withheld(0, "infeasible"), findings=["native"]).to_record()]
    )
    (row,) = refused
    assert list(row) == list(rows.columns)
    assert row["finding"] == "native"


def test_what_a_run_says_once(mlflow_store: str, tmp_path: Path) -> None:
    run_id = explanations().log()
    assert sorted(p.name for p in files_of(run_id).iterdir() if p.is_file()) == [
        "policy.json",
        "summary.json",
    ]
    journal = tmp_path / "journal.jsonl"
    logger = RunLogger(run_id, tracking_uri="http://127.0.0.1:9", journal=journal)
    with pytest.warns(UntrackedWarning):
        logger.submit(measured())
    logger.submit(measured())
    assert [record.population is None for record in journaled(journal)] == [False, True]
    RunLogger(run_id, model="models:/credit/3").log(measured())
    measured(about=ResultContext({**POPULATION, "people": 12}, ABOUT.environment)).log(
        run_id=run_id
    )
    population, environment = (
        json.loads((files_of(run_id) / f"{name}.json").read_text("utf-8"))
        for name in ("population", "environment")
    )
    assert population == POPULATION
    assert environment["packages"].pop("cfk_plugin") == __version__
    assert {"numpy", "pandas", "scikit-learn", "mlflow"} <= set(environment.pop("packages"))
    assert environment == {
        "python": ".".join(map(str, sys.version_info[:3])),
        "plugins": [],
        "seed": 3,
        "generator": "dice",
        "model": "models:/credit/3",
    }


def test_the_model_that_was_given_is_on_record_by_its_name() -> None:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    def scorecard(rows: pd.DataFrame) -> Any:
        return (rows["age"] > 40).to_numpy()

    table = pd.DataFrame({"age": range(20, 60), "pay": range(40)})
    population = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age"]))
    tree = DecisionTreeClassifier().fit(table, scorecard(table))
    pipeline = make_pipeline(StandardScaler(), DecisionTreeClassifier()).fit(
        table, scorecard(table)
    )
    models: dict[str, Any] = {"scorecard": scorecard, "DecisionTreeClassifier": tree}
    for name, model in {**models, "Pipeline of DecisionTreeClassifier": pipeline}.items():
        anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5, guarantee="lookup")).fit(
            population, model, True
        )
        environment = anonymizer.transform(table.tail(3)).to_record().environment
        assert environment is not None
        assert environment["model"] == name


@pytest.mark.parametrize(
    ("entries", "verdict"),
    [
        ([released(0, k=4)], "fail"),
        ([Withheld(0, "infeasible")], "review"),
        ([], "review"),
        ([released(0)], "pass"),
    ],
)
def test_verdict(entries: list[Any], verdict: str, mlflow_store: str) -> None:
    run = run_of(
        Explanations(entries, policy=PrivacyPolicy(guarantee="lookup", k=5), columns=COLUMNS).log()
    )
    assert (run.data.tags["cfk.verdict"], run.data.metrics["cfk.asked"]) == (verdict, len(entries))


# --- a run that goes on ---------------------------------------------------------------------------


def test_steps_and_summary_go_on_over_calls_loggers_and_ways(mlflow_store: str) -> None:
    logger = RunLogger()
    run_id = logger.log(explanations(findings=["native", "native", "native"]))
    assert logger.log(explanations(released(0, k=6, k_desired=2))) == run_id
    other = RunLogger(run_id)
    other.submit(explanations(released(0, k=7), findings=["synthetic"]))
    logger.log(explanations(released(0, k=8)))
    history = mlflow.MlflowClient().get_metric_history(run_id, "cfk.k")
    assert sorted((m.step, m.value) for m in history) == [(0, 5), (2, 9), (3, 6), (4, 7), (5, 8)]
    figures = figures_of(run_id)
    assert (figures["asked"], figures["k_mean"], figures["k_desired_min"]) == (6, 7, 2)
    assert figures["native_rate"] == 0.75
    for kind in ("explanations", "recount"):
        assert parts_of(run_id, kind)["step"].tolist() == list(range(6))


def test_the_summary_of_a_run_goes_on(mlflow_store: str) -> None:
    known = {"l": 4, "t": 0.5, "disclosure": 0.125, "k_private": 2}
    one = released(0, k=5, **known)
    two = released(
        0,
        k=10,
        **known | {"l": 3, "t": 0.75},
        majority=False,
        optimal=False,
    )
    three = released(1, k=20, **known, k_consistent=2)
    result = measured(one, Withheld(1, "infeasible"), two, three, findings=None)
    run_id = RunLogger().log(result[:2])
    assert figures_of(run_id)["cdm"] == 5 + 331
    for at in (2, 3):
        RunLogger(run_id).log(result[at : at + 1])
    figures, summary = figures_of(run_id), result.summary()
    for name in (
        "k_consistent_min",
        "k_private_min",
        "cdm",
        "cm",
        "optimal_rate",
        "prosecutor_risk_max",
        "marketer_risk",
    ):
        assert figures[name] == pytest.approx(summary[name]), name
    assert figures["cdm"] == 35 + 331
    assert (figures["l_min"], figures["t_max"], figures["disclosure_max"]) == (3, 0.75, 0.125)


def test_a_figure_that_is_not_known_any_more_does_not_keep_its_value(mlflow_store: str) -> None:
    run_id = RunLogger().log(measured(released(0), findings=None))
    figures = figures_of(run_id)
    assert (figures["cm"], figures["cdm"]) == (0, 5)
    unknown = measured(
        released(0, majority=None), Withheld(1, "infeasible"), findings=None, n_people=0
    )
    never = RunLogger().log(unknown)
    for result in (unknown, measured(released(0), findings=None)):  # nor is it known again
        RunLogger(run_id).log(result)
        figures = figures_of(run_id)
        assert (figures["cm"], figures["cdm"], figures["optimal_rate"]) == (None, None, 1)
    RunLogger(never).log(measured(released(0), findings=None))
    figures = figures_of(never)
    for name in ("cm", "cdm", "l_min", "t_max", "disclosure_max"):
        assert figures[name] is None
    assert figures["optimal_rate"] == 1


def test_a_region_without_k_is_not_passed_over() -> None:
    record = explanations().to_record()
    del record.rows[0]["k"]
    with pytest.raises(KeyError, match="k"):
        Tally().plus([record])


def interrupted(result: Explanations, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log a result, and end after its summary is written and before its metrics are."""

    def ends(*_: Any) -> None:
        raise OSError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(runs, "_log_metrics", ends)
        with pytest.raises(TrackingError, match="OSError"):
            result.log(run_id=run_id)


@pytest.mark.parametrize("before", [[], [explanations()], [explanations(), measured()]])
def test_a_run_goes_on_from_what_it_counts_and_not_from_what_was_interrupted(
    before: list[Explanations], mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = str(mlflow.MlflowClient().create_run("0").info.run_id)
    for result in before:
        result.log(run_id=run_id)
    interrupted(explanations(released(0, k=50, k_desired=1)), run_id, monkeypatch)
    interrupted(explanations(released(0, k=60)), run_id, monkeypatch)
    assert summary_of(run_id)["figures"]["k_mean"] > 7
    explanations(released(0, k=6)).log(run_id=run_id)
    whole = str(mlflow.MlflowClient().create_run("0").info.run_id)
    for result in (*before, explanations(released(0, k=6))):
        result.log(run_id=whole)
    assert summary_of(run_id) == summary_of(whole)
    for each in (run_id, whole):
        explanations(released(0, k=8), released(1, k=70)).log(run_id=each)
    assert figures_of(run_id) == figures_of(whole)
    assert summary_of(run_id) == summary_of(whole)


def test_of_a_step_with_several_values_the_one_of_its_batch_counts(
    mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = explanations().log()
    interrupted(explanations(released(0, k=50)), run_id, monkeypatch)
    explanations(released(0, k=6), released(1, k=7)).log(run_id=run_id)
    explanations(released(0, k=8)).log(run_id=run_id)
    assert figures_of(run_id)["k_mean"] == pytest.approx((5 + 9 + 6 + 7 + 8) / 5)


def test_of_a_withheld_record_no_value_of_an_interrupted_attempt_counts(
    mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = explanations().log()
    lost = explanations(released(0, k=50), released(1, k=60), released(2, k=70))
    interrupted(lost, run_id, monkeypatch)
    explanations(released(0, k=6), Withheld(1, "infeasible"), released(2, k=7)).log(run_id=run_id)
    explanations(released(0, k=8)).log(run_id=run_id)
    assert figures_of(run_id)["k_mean"] == pytest.approx((5 + 9 + 6 + 7 + 8) / 5)


def test_a_run_in_which_nobody_can_tell_what_counts_does_not_go_on(
    mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = explanations().log()
    interrupted(explanations(released(0, k=50)), run_id, monkeypatch)
    client = mlflow.MlflowClient()
    (lost,) = [m for m in client.get_metric_history(run_id, "cfk.k") if m.step == 3]
    record = replace(explanations(released(0, k=6)).to_record(), created=lost.timestamp)
    runs.RunWriter(runs.RunTarget(run_id)).write(record)
    with pytest.raises(TrackingError, match=r"cfk\.k: step 3 has 2 values of the same time"):
        explanations().log(run_id=run_id)


def test_what_another_process_logged_without_an_explanation_counts(mlflow_store: str) -> None:
    """One writer goes on from what it knows, unless the run counts something else by now."""
    run_id = explanations().log()
    one = runs.RunWriter(runs.RunTarget(run_id))
    one.write(explanations(released(0)).to_record())
    empty = replace(explanations().to_record(), rows=[], recount=[], found={}, untracked=2)
    runs.RunWriter(runs.RunTarget(run_id)).write(empty)
    one.write(explanations(released(0)).to_record())
    assert figures_of(run_id)["untracked"] == 2
    explanations().log(run_id=run_id)
    assert figures_of(run_id)["untracked"] == 2


def test_a_record_that_had_landed_is_part_of_what_the_writer_goes_on_from(
    mlflow_store: str,
) -> None:
    run_id = explanations().log()
    writer = runs.RunWriter(runs.RunTarget(run_id))
    empty = replace(explanations().to_record(), rows=[], recount=[], found={}, untracked=2)
    writer.write(explanations(released(0)).to_record())
    runs.RunWriter(runs.RunTarget(run_id)).write(empty)
    writer.write(empty)  # its answer was lost
    writer.write(explanations(released(0)).to_record())
    assert figures_of(run_id)["untracked"] == 2


def test_a_record_without_an_explanation_is_not_counted_twice(
    mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts those that were released without a record, and changes nothing else."""
    run_id = explanations().log()
    empty = replace(explanations().to_record(), rows=[], recount=[], found={}, untracked=2)
    result: Any = SimpleNamespace(to_record=lambda: empty)
    with monkeypatch.context() as patch:
        patch.setattr(runs, "_log_metrics", lambda *_: None)
        RunLogger(run_id).log(result)
    assert summary_of(run_id)["figures"]["untracked"] == 2
    RunLogger(run_id).log(result)
    assert figures_of(run_id)["untracked"] == 2


LOST: dict[str, tuple[str | None, str]] = {
    "of other explanations": (None, "it does not describe the 3 explanations that the run counts"),
    "no JSON": ("{", "it is damaged"),
    "no figures": ('{"schema_version": 1, "figures": [], "earlier": {}}', "it is damaged"),
    "a text": ('{"schema_version": 1, "figures": {"asked": "3"}, "earlier": {}}', "it is damaged"),
    "a later version": ('{"schema_version": 2, "figures": {}, "earlier": {}}', "it is damaged"),
    "a flag as the version": (
        '{"schema_version": true, "figures": {}, "earlier": {}}',
        "it is damaged",
    ),
    "a flag": ('{"schema_version": 1, "figures": {"asked": true}, "earlier": {}}', "it is damaged"),
    "a number without end": (
        '{"schema_version": 1, "figures": {"asked": 1' + "0" * 400 + '}, "earlier": {}}',
        "it is damaged",
    ),
}


@pytest.mark.parametrize("how", LOST)
def test_a_run_with_a_wrong_summary_does_not_go_on(how: str, mlflow_store: str) -> None:
    run_id = explanations().log()
    text, said = LOST[how]
    if text is None:
        content = summary_of(run_id)
        content["figures"]["asked"] = 4
        text = json.dumps(content)
    mlflow.MlflowClient().log_text(run_id, text, "cfk/summary.json")
    with pytest.raises(TrackingError, match=f"run {run_id}, cfk/summary.json: {said}"):
        explanations().log(run_id=run_id)
    assert metrics_of(run_id)["cfk.asked"] == 3


def test_a_run_without_its_summary_does_not_go_on_and_its_records_get_another(
    mlflow_store: str,
) -> None:
    first = RunLogger(experiment="credit")
    first.submit(explanations())
    run_id = str(first.run_id)
    folder = Path(run_of(run_id).info.artifact_uri.removeprefix("file://"))
    (folder / "cfk" / "summary.json").unlink()
    with pytest.raises(TrackingError, match=r"cfk/summary\.json: it is not there"):
        explanations().log(run_id=run_id)
    writer = next(iter(first._runs.values()))
    writer._tally = None  # as in another process
    for _ in range(2):
        first.submit(explanations())
    client = mlflow.MlflowClient()
    found = client.search_runs([run_of(run_id).info.experiment_id])
    assert {run.info.run_id: run.data.metrics["cfk.asked"] for run in found}[run_id] == 3
    (nested,) = (run for run in found if run.info.run_id != run_id)
    assert nested.data.tags["mlflow.parentRunId"] == run_id
    assert run_of(run_id).info.status == "FINISHED"
    assert nested.info.status == "FINISHED"
    assert figures_of(nested.info.run_id)["asked"] == 6


# --- which run ------------------------------------------------------------------------------------


def test_the_active_run_is_used_and_left_running_and_a_name_asks_for_one_nested_in_it(
    mlflow_store: str,
) -> None:
    with mlflow.start_run() as run:
        assert explanations().log() == run.info.run_id
        assert run_of(run.info.run_id).info.status == "RUNNING"
        child = run_of(explanations().log(run_name="release 7"))
    assert child.info.run_name == "release 7"
    assert child.info.experiment_id == run.info.experiment_id
    assert child.data.tags["mlflow.parentRunId"] == run.info.run_id


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


def test_experiment_by_name_is_created_once(mlflow_store: str) -> None:
    ids = {run_of(explanations().log(experiment="credit")).info.experiment_id for _ in range(2)}
    assert ids == {mlflow.get_experiment_by_name("credit").experiment_id}


def test_other_settings_in_one_run_are_refused(mlflow_store: str) -> None:
    run_id = explanations().log()
    with pytest.raises(TrackingError, match=r"another cfk\.k; give each setting its own run"):
        explanations(k=4).log(run_id=run_id)
    assert metrics_of(run_id)["cfk.asked"] == 3
    with pytest.raises(TrackingError, match="MLflow did not take the records"):
        explanations().log(run_id="nosuchrun")


def test_other_settings_of_an_explainer_get_a_child_run(mlflow_store: str) -> None:
    with mlflow.start_run() as run:
        for k in (5, 4, 4):
            observe(explanations(k=k), track=True)
    found = mlflow.MlflowClient().search_runs(
        [run.info.experiment_id], "tags.`mlflow.parentRunId` != ''"
    )
    assert [(r.data.params["cfk.k"], r.data.metrics["cfk.asked"]) for r in found] == [("4", 6)]


def test_a_given_run_is_not_ended_for_records_with_other_settings(mlflow_store: str) -> None:
    given = str(mlflow.MlflowClient().create_run("0").info.run_id)
    explanations().log(run_id=given)
    logger = RunLogger(given)
    assert logger.submit(explanations(k=4))
    (nested,) = mlflow.MlflowClient().search_runs(["0"], f"tags.`mlflow.parentRunId` = '{given}'")
    assert nested.data.metrics["cfk.asked"] == 3
    assert run_of(given).info.status == "RUNNING"


# --- what explainers release ----------------------------------------------------------------------------


def test_what_is_observed_is_logged_to_the_run_of_the_logger(mlflow_store: str) -> None:
    logger = RunLogger(experiment="observed", tags={"team": "risk"})
    observe(explanations(), logger)
    observe(explanations(), logger)
    observe(explanations())
    run = run_of(logger.run_id)
    assert (run.data.metrics["cfk.asked"], run.data.tags["team"], run.info.status) == (
        6,
        "risk",
        "FINISHED",
    )


@pytest.fixture
def hanging() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts, and never answers
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("server", ["nobody", "hanging"])
def test_explicit_log_says_soon_that_the_server_is_down(server: str, hanging: str) -> None:
    with pytest.raises(TrackingError, match="tracking server does not answer"):
        RunLogger(
            tracking_uri=hanging if server == "hanging" else "http://127.0.0.1:9", timeout=0.3
        ).log(explanations())


@pytest.mark.parametrize("place", ["_log_summary", "_log_metrics"])
def test_a_failed_upload_is_not_counted_twice(
    place: str, mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError("full")

    logger = RunLogger()
    with monkeypatch.context() as patch:
        patch.setattr(runs, place, full)
        with pytest.raises(TrackingError, match="OSError"):
            logger.log(explanations())
    assert figures_of(logger.log(explanations()))["asked"] == 3


SCRIPT = """
import sys
sys.path[:0] = {path!r}
from tracked import explanations
from cfk_plugin.records.logger import observe
assert "mlflow" not in sys.modules
observe(explanations(), track=True)
"""


def test_a_short_script_logs_before_it_ends(mlflow_store: str, tmp_path: Path) -> None:
    path = [str(Path(__file__).parents[1] / "helpers"), str(Path(__file__).parents[2])]
    script = SCRIPT.format(path=path)
    env = os.environ | {"MLFLOW_TRACKING_URI": mlflow_store}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, cwd=tmp_path, env=env)
    (run,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
    assert (run.data.metrics["cfk.asked"], run.info.status) == (3, "FINISHED")
    assert not list(tmp_path.glob("*.jsonl"))
