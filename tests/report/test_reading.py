"""Reading what was really logged, from a local store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.audit import AuditReport, Rate, Setting, run_linkage_audit
from cfk_plugin.audit.epsilon import EpsilonAudit
from cfk_plugin.errors import InputError, TrackingError
from cfk_plugin.frontier import frontier
from cfk_plugin.records.record import RunRecord, table
from cfk_plugin.records.run import StoreDownError
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.report.runs import Evidence, RunEvidence, read_experiment, read_runs
from logged import at, log, log_file, log_json, made, part, without_recount
from prototyped import certificate, prototypes, unproven
from spooled import released

OCTOBER = {"since": "2026-10-01", "until": "2026-10-31"}
CANARY = "CANARY-7731"


@pytest.fixture(autouse=True)
def _spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFK_SPOOL", str(tmp_path / "spool"))


@pytest.fixture(scope="module")
def protected() -> tuple[KAnonymizer, pd.DataFrame]:
    random = np.random.default_rng(3)
    rows = pd.DataFrame(
        {"age": random.integers(20, 60, 90), "city": random.choice(list("ABC"), 90), "pay": random.integers(1, 9, 90)}
    )
    population = Population.from_frame(rows, Schema.from_frame(rows, quasi_identifiers=["age", "city"]))
    policy = PrivacyPolicy(k=5, guarantee="nominal")
    anonymizer = KAnonymizer(policy=policy, seed=2).fit(population, lambda frame: frame["pay"] > 3, desired=True)
    return anonymizer, rows[rows["pay"] > 3].head(8)


@pytest.fixture(scope="module")
def real(protected: tuple[KAnonymizer, pd.DataFrame]) -> Explanations:
    anonymizer, counterfactuals = protected
    return anonymizer.transform(counterfactuals)


@pytest.fixture(scope="module")
def audit(protected: tuple[KAnonymizer, pd.DataFrame]) -> AuditReport:
    anonymizer, counterfactuals = protected
    return run_linkage_audit(Setting(anonymizer, counterfactuals.head(3)), ["linkage"])


def only(evidence: Evidence) -> RunEvidence:
    (run,) = evidence.runs
    return run


def rows_of(run: RunEvidence) -> pd.DataFrame:
    assert run.rows is not None
    return run.rows


def artifact(path: str) -> Path:
    """Return where the local store keeps a file; there is one run with it."""
    (found,) = Path("artifacts").glob(f"*/artifacts/{path}")
    return found


def test_a_run_holds_what_was_released(real: Explanations, mlflow_store: str) -> None:
    run_id = real.log()
    real.log(run_id=run_id)
    run = only(read_runs([run_id]))
    rows = rows_of(run)
    assert rows["step"].tolist() == list(range(2 * len(real)))
    for name in ("k", "ncp", "pureness", "pureness_low", "pureness_high", "gap"):
        logged = [getattr(entry.certificate, name) if entry.status == "released" else None for entry in real]
        np.testing.assert_array_equal(rows[name], np.array(logged * 2, dtype=float), err_msg=name)
    for name in ("exact", "optimal"):
        logged = [getattr(entry.certificate, name) if entry.status == "released" else None for entry in real]
        assert [None if flag is pd.NA else flag for flag in rows[name]] == logged * 2
    assert rows["status"].tolist() == [entry.status for entry in real] * 2
    assert set(rows["policy_hash"].dropna()) == {real.policy.sha256}
    assert not [name for name in rows if name.startswith("feature.") or name in ("region", "released", "query")]
    assert run.policy == real.policy.to_dict()
    assert (run.run_id, run.experiment, run.params["cfk.k"]) == (run_id, "tests", "5")
    assert run.metrics["cfk.asked"] == len(rows)
    assert run.tags["cfk.verdict"] == "pass"
    assert (run.prototype, run.audits, run.frontier) == (None, (), None)


def test_columns_have_the_same_types_whatever_is_in_them(mlflow_store: str) -> None:
    full, empty = log([made("2026-10-01", released())]), log([made("2026-10-02", of=prototypes)])
    one, other = (rows_of(only(read_runs(run))).dtypes.astype(str) for run in (full, empty))
    both = one.index.intersection(other.index)
    assert one[both].to_dict() == other[both].to_dict()
    assert one[["step", "k", "exact", "reason", "timestamp"]].tolist() == [
        *("int64", "float64", "boolean", "category", "datetime64[ms, UTC]"),
    ]
    assert set(other.index) - set(one.index) == {"epsilon", "delta"}
    assert len(both) >= 16


def test_documents_are_read(mlflow_store: str) -> None:
    run_id = log([made("2026-10-01")])
    for name in ("population", "environment", "frontier"):
        log_json(run_id, f"cfk/{name}.json", {"schema_version": 1, "what": name})
    run = only(read_runs(run_id))
    assert [run.population, run.environment, run.frontier] == [
        {"schema_version": 1, "what": name} for name in ("population", "environment", "frontier")
    ]


def test_a_recount_is_joined_row_by_row_and_may_be_missing(mlflow_store: str) -> None:
    first, second = made("2026-10-01"), made("2026-10-02", released(k=8))
    run_id = log([first, second])
    without_recount(second)
    recount = pd.DataFrame(
        {"k_desired": [4, None, 3], "finding": ["native", None, "synthetic"], "ncp.age": [0.5, 0, 1]}
    )
    log_file(
        run_id, f"cfk/recount/{part(first)}", recount.assign(status="?", step=[0, 1, 2], majority=[True, None, False])
    )
    rows = rows_of(only(read_runs(run_id)))
    assert rows["k"].fillna(0).tolist() == [5, 0, 9, 8]
    assert rows["k_desired"].fillna(0).tolist() == [4, 0, 3, 0]
    assert rows["ncp.age"].fillna(-1).tolist() == [0.5, 0, 1, -1]
    assert rows["finding"].astype(object).fillna("").tolist() == ["native", "", "synthetic", ""]
    assert rows["majority"].fillna(False).tolist() == [True, False, False, False]
    assert rows["step"].tolist() == [0, 1, 2, 3]
    assert rows["status"].tolist() == ["released", "suppressed", "released", "released"]
    assert "k_effective" not in rows


def test_a_recount_of_other_rows_is_an_error(mlflow_store: str) -> None:
    record = made("2026-10-01")
    run_id = log([record])
    where = f"{run_id}, cfk/explanations/{part(record)}"
    log_file(run_id, f"cfk/recount/{part(record)}", pd.DataFrame({"k_desired": [4.0]}))
    with pytest.raises(TrackingError, match=f"{where}: it has 3 rows, and its recount 1"):
        read_runs(run_id)
    log_file(run_id, f"cfk/recount/{part(record)}", pd.DataFrame({"step": [1, 2, 3], "k_desired": 4}))
    with pytest.raises(TrackingError, match=f"{where}: its recount is of explanations with other numbers"):
        read_runs(run_id)


def test_prototypes_come_with_the_certificate_that_they_share(mlflow_store: str) -> None:
    run = only(read_runs(log([made("2026-10-01", of=prototypes), made("2026-10-02", of=prototypes)])))
    assert run.prototype == certificate().public()
    rows = rows_of(run)
    assert rows["epsilon"].fillna(0).tolist() == [1, 0, 1] * 2
    assert not {"certificate", "prototype"} & set(rows)
    claimed = only(read_runs(log([made("2026-10-01", of=unproven)])))
    assert claimed.prototype is not None
    assert claimed.prototype["guarantee"] == "none"


def test_explanations_are_of_the_period_by_their_own_time(mlflow_store: str) -> None:
    days = ("2026-09-30T23:59:59.999", "2026-10-01", "2026-10-31T23:59:59.999", "2026-11-01")
    run_id = log([made(day, released(k=6 + i)) for i, day in enumerate(days)], start="2026-08-01")
    evidence = read_runs(run_id, **OCTOBER)
    assert rows_of(only(evidence))["k"].tolist() == [7, 8]
    assert rows_of(only(evidence))["step"].tolist() == [1, 2]
    assert (evidence.since, evidence.until) == (at("2026-10-01"), at("2026-11-01"))
    assert rows_of(only(read_runs(run_id, until="2026-10-01T00:00")))["k"].tolist() == [6]
    assert rows_of(only(read_runs(run_id, since="2026-11-01")))["k"].tolist() == [9]


def test_categories_are_those_of_the_period(mlflow_store: str) -> None:
    run_id = log([made("2026-09-01"), made("2026-10-01", released())])
    rows = rows_of(only(read_runs(run_id, **OCTOBER)))
    assert rows["status"].cat.categories.tolist() == ["released"]


def test_audits_are_of_the_period_by_the_start_of_their_run(audit: AuditReport, mlflow_store: str) -> None:
    inside, outside = log([], start="2026-10-31T12:00"), log([], start="2026-11-01")
    for run_id in (inside, outside):
        audit.log(run_id)
    run = only(read_experiment("tests", **OCTOBER))
    assert (run.run_id, run.rows, run.started) == (inside, None, at("2026-10-31T12:00"))
    assert list(run.audits) == [json.loads(audit.to_json())]
    assert [one.run_id for one in read_experiment("tests").runs] == [inside, outside]


def test_audits_of_every_kind_are_found_in_runs_of_their_own(
    protected: tuple[KAnonymizer, pd.DataFrame], mlflow_store: str
) -> None:
    shares = Rate(0.5, 0.4, 0.6, 100)
    settings = {"scenario": "Knows all.", "relation": "one row", "claimed": 1.0, "delta": 0.0, "confidence": 0.95}
    figures = {"epsilon_low": 0.2, "ceiling": 3.0, "needed": None, "runs": 100, "main": shares}
    for attack in ("epsilon", "epsilon_one_run"):
        EpsilonAudit(attack=attack, **settings, **figures).log(experiment="tests")  # type: ignore[arg-type]
    anonymizer, raw = protected
    costs = frontier(
        raw, population=anonymizer.population_, model=anonymizer.model_, desired=anonymizer.goal_.desired, ks=[2, 3]
    )
    costs.log(experiment="tests")
    runs = read_experiment("tests").runs
    assert sorted(str(audit["kind"]) for run in runs for audit in run.audits) == ["epsilon", "epsilon_one_run"]
    assert [run.frontier["common"] for run in runs if run.frontier is not None] == [costs.common]


def test_a_run_with_both_shows_what_is_of_the_period(audit: AuditReport, mlflow_store: str) -> None:
    early = log([made("2026-10-02")], start="2026-09-01")
    late = log([made("2026-09-30")], start="2026-10-01")
    for run_id in (early, late):
        audit.log(run_id)
        log_json(run_id, "cfk/audit-canary.json", {"schema_version": 1})
    first, second = read_experiment("tests", **OCTOBER).runs
    assert (first.run_id, len(rows_of(first)), first.audits) == (early, 3, ())
    assert (second.run_id, second.rows, len(second.audits)) == (late, None, 2)
    assert second.audits[0] == {"schema_version": 1}  # by name of the file


def test_runs_are_in_the_order_of_their_start_and_the_same_every_time(mlflow_store: str) -> None:
    days = ("2026-10-03", "2026-10-01", "2026-10-02", "2026-10-02")
    ids = [log([made("2026-10-05", released(k=6 + i))], start=day) for i, day in enumerate(days)]
    expected = [ids[1], *sorted(ids[2:]), ids[0]]
    by_name, by_id = read_experiment("tests"), read_runs([*reversed(ids), ids[0]])
    again = read_experiment(f"id:{mlflow.get_run(ids[0]).info.experiment_id}")
    for evidence in (by_name, by_id, again):
        assert [run.run_id for run in evidence.runs] == expected
        for one, other in zip(evidence.runs, by_name.runs, strict=True):
            assert_frame_equal(rows_of(one), rows_of(other))
            assert {**vars_of(one), "rows": None} == {**vars_of(other), "rows": None}


def vars_of(run: RunEvidence) -> dict[str, Any]:
    return {name: getattr(run, name) for name in RunEvidence.__slots__}


def test_files_are_in_the_order_of_the_run_not_of_their_names(mlflow_store: str) -> None:
    rows = rows_of(only(read_runs(log([made("2026-10-03", released(k=6)), made("2026-10-01", released(k=7))]))))
    assert rows["k"].tolist() == [6, 7]


def test_reports_deleted_runs_and_other_runs_are_left_out(mlflow_store: str) -> None:
    kept, deleted = log([made("2026-10-01")]), log([made("2026-10-01")])
    mlflow.MlflowClient().delete_run(deleted)
    mlflow.MlflowClient().set_tag(kept, "cfk.report", "1")  # a report was logged into it
    with mlflow.start_run():
        mlflow.log_metric("accuracy", 0.9)
    with mlflow.start_run():
        mlflow.set_tag("cfk.report", "1")
        mlflow.log_metric("cfk.asked", 3)  # what it reports on
    assert only(read_experiment("tests")).run_id == kept


def test_more_runs_than_a_page_are_found(mlflow_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfk_plugin.records.reading._PAGE", 2)
    ids = {log([made("2026-10-01", released())]) for _ in range(5)}
    assert {run.run_id for run in read_experiment("tests").runs} == ids


def test_progress_is_told_of_runs(mlflow_store: str) -> None:
    told: list[tuple[int, int]] = []
    for _ in range(2):
        log([made("2026-10-01", released())])
    read_experiment("tests", progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 2), (1, 2), (2, 2)]


def orphan(run_id: str, record: RunRecord, first_step: int) -> None:
    """Log the file of a record without a summary, as an attempt does that breaks off."""
    log_file(run_id, f"cfk/explanations/{part(record)}", table([record], first_step).to_pandas())


def test_what_no_summary_counts_is_said_and_left_out(mlflow_store: str) -> None:
    run_id = log([made("2026-10-01")])
    orphan(run_id, made("2026-10-02"), 3)
    evidence = read_runs(run_id)
    assert len(rows_of(only(evidence))) == 3
    assert evidence.uncounted == {run_id: 3}
    assert read_runs(run_id, until="2026-10-01").uncounted == {}


def test_of_files_in_the_same_place_the_one_counts_that_has_a_summary(mlflow_store: str) -> None:
    run_id = log([made("2026-10-01", released(k=6))])
    orphan(run_id, made("2026-10-02", released(k=7), released(k=7)), 1)
    orphan(run_id, made("2026-10-04", released(k=8)), 1)
    log([made("2026-10-03", released(k=9)), made("2026-10-05", released(k=10))], run_id=run_id)
    evidence = read_runs(run_id)
    assert rows_of(only(evidence))["k"].tolist() == [6, 9, 10]
    assert evidence.uncounted == {run_id: 3}


def test_explanations_that_are_all_on_their_way_are_no_evidence_yet(mlflow_store: str) -> None:
    run_id = log([])
    orphan(run_id, made("2026-10-01"), 0)
    with pytest.raises(InputError, match="its 3 explanations are in files that no summary counts yet"):
        read_runs(run_id)


def test_a_run_that_is_not_there_is_named(mlflow_store: str) -> None:
    run_id = log([made("2026-10-01")])
    for wrong in ("f" * 32, "no run", "../x"):
        with pytest.raises(InputError, match=f"there is no run {wrong}"):
            read_runs([run_id, wrong])
    mlflow.MlflowClient().delete_run(run_id)
    with pytest.raises(InputError, match=f"run {run_id} was deleted"):
        read_runs(run_id)
    with pytest.raises(InputError, match="at least one"):
        read_runs([])


def test_a_run_that_holds_nothing_is_named(mlflow_store: str) -> None:
    full, bare = log([made("2026-10-01")]), log([])
    with pytest.raises(InputError, match=f"run {bare} holds neither explanations nor an audit"):
        read_runs([full, bare])


def test_an_experiment_that_is_not_there_is_told_from_a_few_that_are(mlflow_store: str) -> None:
    with pytest.raises(InputError, match=r"no experiment 'credits' in this store; it has 'tests', 'Default'$"):
        read_experiment("credits")
    for number in range(8):
        mlflow.create_experiment(f"credit-{number}")
    with pytest.raises(InputError, match=r"no experiment 'id:99'.* and others$") as caught:
        read_experiment("id:99")
    assert str(caught.value).count("credit-") == 5
    mlflow.MlflowClient().delete_experiment(mlflow.get_experiment_by_name("credit-1").experiment_id)
    with pytest.raises(InputError, match="experiment 'credit-1' was deleted"):
        read_experiment("credit-1")


def test_nothing_in_the_period_says_what_was_searched(mlflow_store: str) -> None:
    with pytest.raises(InputError, match=r"in experiment 'tests': it has no run with explanations or audits; log"):
        read_experiment("tests")
    log([made("2026-09-01"), made("2026-09-30T10:00")])
    with pytest.raises(InputError) as caught:
        read_experiment("tests", **OCTOBER)
    assert str(caught.value) == (
        "nothing to report on in experiment 'tests': its 1 runs with explanations or audits have none from 2026-10-01 "
        "00:00 UTC until before 2026-11-01 00:00 UTC, but from 2026-09-01 00:00 UTC to 2026-09-30 10:00 UTC; choose "
        "another period"
    )


def test_a_file_that_is_gone_is_missed(mlflow_store: str) -> None:
    first, second = made("2026-10-01"), made("2026-10-02")
    run_id = log([first, second])
    artifact(f"cfk/explanations/{part(second)}").unlink()
    with pytest.raises(TrackingError, match=f"{run_id}, .*counts 6 explanations, and there is no file with number 3"):
        read_runs(run_id)
    artifact(f"cfk/explanations/{part(first)}").unlink()
    artifact("cfk/explanations").rmdir()
    with pytest.raises(TrackingError, match=f"{run_id}, .* no file with number 0"):
        read_experiment("tests")


def damaged(frame: pd.DataFrame) -> list[tuple[bytes | pd.DataFrame, str]]:
    twice = pd.concat([frame, frame])
    return [
        (CANARY.encode() * 50, "no Parquet file"),
        (frame.to_parquet()[:-40], "no Parquet file"),
        (b"", "no Parquet file"),
        (frame.drop(columns=["step", "status"]), "it lacks step, status"),
        (frame.assign(k=CANARY), "column k holds text, expected numbers"),
        (frame.assign(status=1), "column status holds numbers, expected text"),
        (frame.assign(ncp=[[1]] * 3), "column ncp holds something else, expected numbers"),
        (frame.assign(step=[0.0, 0.5, 2.0]), "column step does not hold whole numbers"),
        (frame.assign(timestamp=[pd.NaT, *frame["timestamp"][1:]]), "a row has no timestamp"),
        (twice, "step does not count its rows"),
    ]


def test_a_damaged_file_is_named_and_never_quoted(mlflow_store: str) -> None:
    record = made("2026-10-01")
    run_id = log([record])
    without_recount(record)
    path = f"cfk/explanations/{part(record)}"
    for content, found in damaged(table([record]).to_pandas()):
        log_file(run_id, path, content)
        with pytest.raises(TrackingError, match=found) as caught:
            read_runs(run_id)
        assert_says_where(caught.value, run_id, path)


def assert_says_where(error: BaseException, run_id: str, path: str) -> None:
    assert f"run {run_id}, {path}" in str(error)
    while error is not None:
        assert CANARY not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)  # type: ignore[assignment]


def test_a_document_that_cannot_be_read_is_named(mlflow_store: str) -> None:
    broken = f'{{"{CANARY}": '.encode()
    wrong = [
        (b"\xff\xfe" + CANARY.encode(), "no JSON"),
        (json.dumps([CANARY]).encode(), "expected a JSON object"),
        (json.dumps({"schema_version": 2, "x": CANARY}).encode(), "schema_version is 2, expected 1"),
        (json.dumps({"schema_version": CANARY}).encode(), "schema_version is none that is a number"),
    ]
    run_id = log([made("2026-10-01", released())])
    for name in ("policy", "population", "environment", "frontier", "audit-linkage"):
        for content, found in [(broken, "no JSON"), *(wrong if name == "audit-linkage" else [])]:
            log_file(run_id, f"cfk/{name}.json", content)
            with pytest.raises(TrackingError, match=found) as caught:
                read_runs(run_id)
            assert_says_where(caught.value, run_id, f"cfk/{name}.json")
        log_json(run_id, f"cfk/{name}.json", {})
    assert only(read_runs(run_id)).audits == ({},)


def test_a_run_of_a_newer_version_is_refused(mlflow_store: str) -> None:
    run_id = log([made("2026-10-01")])
    mlflow.MlflowClient().set_tag(run_id, "cfk.schema_version", "2")
    with pytest.raises(TrackingError, match=rf"run {run_id}: tag cfk\.schema_version is 2, expected 1"):
        read_runs(run_id)


def test_columns_that_change_their_type_are_an_error(mlflow_store: str) -> None:
    records = [made("2026-10-01", released()), made("2026-10-02", released())]
    run_id = log(records)
    for record, value in zip(records, [1.5, "x"], strict=True):
        log_file(run_id, f"cfk/recount/{part(record)}", pd.DataFrame({"ledger": [value]}))
    with pytest.raises(TrackingError, match=f"run {run_id}, cfk/explanations: a column is of one type"):
        read_runs(run_id)


def test_a_certificate_that_is_no_json_is_an_error(mlflow_store: str) -> None:
    record = made("2026-10-01", of=prototypes)
    run_id = log([record])
    frame = table([record]).to_pandas().assign(certificate=CANARY)
    log_file(run_id, f"cfk/explanations/{part(record)}", frame)
    with pytest.raises(TrackingError, match="column certificate is damaged") as caught:
        read_runs(run_id)
    assert_says_where(caught.value, run_id, "cfk/explanations")


def test_a_server_that_is_not_there_is_no_reason_to_wait() -> None:
    with pytest.raises(StoreDownError, match="does not answer"):
        read_runs("f" * 32, tracking_uri="http://127.0.0.1:9")


def test_a_store_that_cannot_be_is_an_error_of_ours() -> None:
    with pytest.raises(TrackingError, match="cannot be opened"):
        read_experiment("tests", tracking_uri="ftp://nowhere")


def test_nothing_that_was_read_is_shown(real: Explanations, mlflow_store: str) -> None:
    evidence = read_runs(real.log())
    assert repr(evidence).startswith("<")
    assert repr(only(evidence)).startswith("<")


def test_no_copy_of_a_file_is_left(mlflow_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = made("2026-10-01")
    run_id = log([record])
    (tmp_path / "copies").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    read_runs(run_id)
    artifact(f"cfk/explanations/{part(record)}").write_bytes(b"")
    with pytest.raises(TrackingError):
        read_runs(run_id)
    assert list((tmp_path / "copies").iterdir()) == []
