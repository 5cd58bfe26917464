"""Runs as a store really holds them: what is of the period and what counts, and what is damaged or
gone is named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest

import reported
from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, PrivacyReport, Schema
from cfk_plugin.errors import InputError, TrackingError
from parts import packed, summary_with
from prototyped import certificate, prototypes
from reported import check
from tracked import explanations
from tracking_server import tracking_server

OCTOBER: dict[str, Any] = {"since": "2026-10-01", "until": "2026-10-31"}
CANARY = "CANARY-7731"


@pytest.fixture
def experiment(store: str) -> Iterator[str]:
    """Give the test an experiment of its own, which is the one in use."""
    name = f"tests {datetime.now(UTC).timestamp()}"
    mlflow.create_experiment(
        name, artifact_location=mlflow.get_experiment_by_name("tests").artifact_location
    )  # type: ignore[union-attr]
    yield name
    mlflow.delete_experiment(mlflow.get_experiment_by_name(name).experiment_id)  # type: ignore[union-attr]


def ms(moment: str) -> int:
    return round(datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() * 1000)


def start(experiment: str, day: str = "2026-10-01", *, audit: bool = False) -> str:
    """Start a run without explanations."""
    client = mlflow.MlflowClient()
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    run_id = str(client.create_run(found.experiment_id, start_time=ms(day)).info.run_id)
    client.set_tag(run_id, "cfk.policy_sha256", reported.POLICY.sha256)
    (folder_of(run_id) / "explanations").mkdir(parents=True)
    put(run_id, "policy.json", reported.POLICY.to_dict())
    if audit:
        client.set_tag(run_id, "cfk.audit", "pass")
        put(run_id, "audit-0.json", reported.audit("linkage"))
    return run_id


def folder_of(run_id: str) -> Path:
    return Path(mlflow.get_run(run_id).info.artifact_uri.removeprefix("file://")) / "cfk"


def put(run_id: str, name: str, content: Any) -> Path:
    """Write a file of a run: bytes, a table, or JSON."""
    path = folder_of(run_id) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, pd.DataFrame):
        content = packed(content)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def public(k: list[int], first: int = 0, moments: list[str] | None = None) -> pd.DataFrame:
    table = reported.rows(len(k), k=k).assign(step=np.arange(first, first + len(k)))
    table["timestamp"] = pd.to_datetime(
        moments or ["2026-10-02"] * len(k), utc=True, format="ISO8601"
    )
    return table[[name for name in table if name in reported.PUBLIC_COLUMNS]]


def add(run_id: str, k: list[int], first: int = 0, *days: str) -> str:
    """Add explanations to a run, as a logger does: a file, and the summary that counts it."""
    table = public(k, first, list(days) or None)
    name = f"part-{len(list((folder_of(run_id) / 'explanations').iterdir())):06d}.json"
    put(run_id, f"explanations/{name}", table)
    counts = {"asked": first + len(k), "released": first + len(k)}
    put(run_id, "summary.json", summary_with(**counts))
    mlflow.MlflowClient().log_metric(run_id, "cfk.asked", first + len(k))
    return name


def seen(report: PrivacyReport) -> list[int]:
    """Return the number of people of every region that a report is about, by run and step."""
    order = {run["run"]: place for place, run in enumerate(report.data.runs)}
    found = {}
    for line in report.data.certificates:
        run, _, step = line["id"].partition("/")
        found[order[run], int(step)] = line["k"].value
    return [int(found[place] or 0) for place in sorted(found)]


# --- what is read ---


def test_a_report_is_of_what_was_released(store: str) -> None:
    random = np.random.default_rng(3)
    rows = pd.DataFrame(
        {
            "age": random.integers(20, 60, 90),
            "city": random.choice(list("ABC"), 90),
            "pay": range(90),
        }
    )
    population = Population.from_frame(
        rows, Schema.from_frame(rows, quasi_identifiers=["age", "city"])
    )
    anonymizer = KAnonymizer(
        policy=PrivacyPolicy(guarantee="lookup", k=5, max_ncp=0.05), random_state=2
    ).fit(population, lambda f: f["pay"] > 9, True)
    found = anonymizer.transform(rows.tail(30))
    run_id = found.log(experiment="tests")
    found.log(run_id=run_id)
    report, summary = PrivacyReport.of_runs(run_id), found.summary()
    assert 0 < summary["withheld"] < 30
    counts = [report.data.metric(name).value for name in ("asked", "released", "withheld")]
    assert counts == [60, 2 * summary["released"], 2 * summary["withheld"]]
    for name in (
        "k_min",
        "ncp_mean",
        "pureness_mean",
        "pureness_min",
        "optimal_rate",
    ):
        assert report.data.metric(name).value == pytest.approx(summary[name]), name
    assert (check(report, "records").status, report.data.runs[0]["experiment"]) == ("pass", "tests")
    assert repr(report).startswith("<PrivacyReport: ")


def test_prototypes_come_with_the_certificate_that_they_share(store: str) -> None:
    report = PrivacyReport.of_runs([prototypes().log(experiment="tests")])
    assert report.data.dp is not None
    assert {name: report.data.dp[name] for name in ("guarantee", "epsilon")} == {  # type: ignore[literal-required]
        name: certificate().to_dict()[name] for name in ("guarantee", "epsilon")
    }
    assert report.data.metric("epsilon").value == 1


# --- what is of the period ---


@pytest.mark.parametrize(
    ("moment", "since", "until"),
    [
        ("2026-10-31", "2026-10-31", "2026-11-01"),
        (date(2026, 10, 31), "2026-10-31", "2026-11-01"),
        ("2026-12-31", "2026-12-31", "2027-01-01"),
        ("2026-10-31T00:00", "2026-10-31", "2026-10-31"),
        ("2026-10-31T12:30Z", "2026-10-31T12:30", "2026-10-31T12:30"),
        ("2026-10-31 12:30+01:00", "2026-10-31T11:30", "2026-10-31T11:30"),
        (datetime(2026, 10, 31, 12), "2026-10-31T12:00", "2026-10-31T12:00"),  # noqa: DTZ001
        (
            datetime(2026, 10, 31, 12, tzinfo=timezone(timedelta(hours=-2))),
            "2026-10-31T14:00",
            "2026-10-31T14:00",
        ),
        # Parts of a millisecond are not rounded into the period.
        (
            datetime(2026, 10, 31, 12, 0, 0, 1, tzinfo=UTC),
            "2026-10-31T12:00:00.001",
            "2026-10-31T12:00:00.001",
        ),
    ],
)
def test_a_day_is_in_the_period_up_to_its_end_and_a_time_is_not(
    moment: Any, since: str, until: str, experiment: str
) -> None:
    def around(edge: str) -> list[str]:
        return [pd.Timestamp(ms(edge) + shift, unit="ms").isoformat() for shift in (-1, 0)]

    run_id = start(experiment)
    add(run_id, [20, 21], 0, *around(since))
    add(run_id, [30, 31], 2, *around(until))
    inside = seen(PrivacyReport.of_runs(run_id, since=moment))
    assert 21 in inside
    assert 20 not in inside
    inside = seen(PrivacyReport.of_runs(run_id, until=moment))
    assert 30 in inside
    assert 31 not in inside


@pytest.mark.parametrize(
    ("period", "said"),
    [
        *(
            ({"until": wrong}, "until must be a day such as 2026-10-31")
            for wrong in ("31.10.2026", "2026-13-01", "", 5)
        ),
        ({"since": "2026-10-01", "until": "2026-09-30"}, "the period is empty"),
        ({"since": "2026-10-01", "until": "2026-10-01T00:00"}, "the period is empty"),
    ],
)
def test_what_is_no_period_is_refused(period: dict[str, Any], said: str, store: str) -> None:
    with pytest.raises(InputError, match=said):
        PrivacyReport.of_runs("nobody", **period)


def test_audits_are_of_the_period_by_the_start_of_their_run_and_explanations_by_their_own_time(
    experiment: str,
) -> None:
    early, late = (
        start(experiment, "2026-09-01", audit=True),
        start(experiment, "2026-10-31T12:00", audit=True),
    )
    after = start(experiment, "2026-11-01", audit=True)
    add(early, [15, 16], 0, "2026-10-01", "2026-10-31T23:59:59.999")
    add(late, [17], 0, "2026-11-01")
    report = PrivacyReport.of_experiment(experiment, **OCTOBER)
    assert [(run["run"], run["asked"], len(run["audits"])) for run in report.data.runs] == [
        (early, 2, 0),
        (late, 0, 1),
    ]
    period = report.data.report["period"]
    assert list(period.values()) == [
        *(
            "2026-10-01T00:00:00Z",
            "2026-10-31T23:59:59Z",
            "2026-10-01T00:00:00Z",
            "2026-11-01T00:00:00Z",
        ),
    ]
    assert [run["run"] for run in PrivacyReport.of_experiment(experiment).data.runs] == [
        early,
        late,
        after,
    ]


def test_runs_are_in_the_order_of_their_start_however_they_are_named(experiment: str) -> None:
    days = ("2026-10-03", "2026-10-01", "2026-10-02", "2026-10-02")
    ids = [start(experiment, day) for day in days]
    for place, run_id in enumerate(ids):
        add(run_id, [20 + place])
    told: list[tuple[int, int]] = []
    by_name = PrivacyReport.of_experiment(experiment, progress=lambda *done: told.append(done))
    number = mlflow.get_run(ids[0]).info.experiment_id
    others = (
        PrivacyReport.of_experiment(f"id:{number}"),
        PrivacyReport.of_runs([*reversed(ids), ids[0]]),
    )
    expected = [ids[1], *sorted(ids[2:]), ids[0]]
    for report in (by_name, *others):
        assert list(report.run_ids) == expected
        assert report.data.metrics == by_name.data.metrics
    assert told == [(done, 4) for done in range(5)]


def test_reports_deleted_runs_and_other_runs_are_left_out(
    experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, deleted, other, about = (start(experiment) for _ in range(4))
    for run_id in (kept, deleted):
        add(run_id, [15])
    client = mlflow.MlflowClient()
    client.delete_run(deleted)
    client.log_metric(other, "accuracy", 0.9)
    client.set_tag(kept, "cfk.report", "1")  # a report was logged into it
    client.set_tag(about, "cfk.report", "1")
    client.log_metric(about, "cfk.asked", 3)  # what it reports on
    assert PrivacyReport.of_experiment(experiment).run_ids == (kept,)
    more = [start(experiment) for _ in range(4)]
    for run_id in more:
        add(run_id, [15])
    search = mlflow.MlflowClient.search_runs
    of_two = lambda *args, **options: search(*args, **{**options, "max_results": 2})  # noqa: E731
    monkeypatch.setattr(mlflow.MlflowClient, "search_runs", of_two)
    assert set(PrivacyReport.of_experiment(experiment).run_ids) == {kept, *more}


# --- what counts ---


def test_explanations_in_a_journal_are_missed(experiment: str) -> None:
    """The summary of a run counts explanations that MLflow does not have yet."""
    run_id = start(experiment)
    add(run_id, [16, 17], 3)
    report = PrivacyReport.of_runs(run_id)
    found = check(report, "records")
    assert seen(report) == [16, 17]
    assert (found.status, found.measured.value, found.evidence) == ("review", 3, (run_id,))


# --- what is not there ---


def test_a_run_that_is_not_there_or_holds_nothing_is_named(experiment: str) -> None:
    run_id, bare = start(experiment), start(experiment)
    add(run_id, [15])
    for wrong in ("f" * 32, "no run", "../x"):
        with pytest.raises(InputError, match=f"there is no run {wrong}"):
            PrivacyReport.of_runs([run_id, wrong])
    with pytest.raises(InputError, match=f"run {bare} holds neither explanations nor an audit"):
        PrivacyReport.of_runs([run_id, bare])
    mlflow.MlflowClient().delete_run(run_id)
    with pytest.raises(InputError, match=f"run {run_id} was deleted"):
        PrivacyReport.of_runs(run_id)
    with pytest.raises(InputError, match="at least one"):
        PrivacyReport.of_runs([])


def test_an_experiment_that_is_not_there_is_told_from_a_few_that_are(mlflow_store: str) -> None:
    with pytest.raises(
        InputError, match=r"no experiment 'credits' in this store; it has 'tests', 'Default'$"
    ):
        PrivacyReport.of_experiment("credits")
    for number in range(8):
        mlflow.create_experiment(f"credit-{number}")
    with pytest.raises(InputError, match=r"no experiment 'id:99'.* and others$") as caught:
        PrivacyReport.of_experiment("id:99")
    assert str(caught.value).count("credit-") == 5
    mlflow.MlflowClient().delete_experiment(mlflow.get_experiment_by_name("credit-1").experiment_id)  # type: ignore[union-attr]
    with pytest.raises(InputError, match="experiment 'credit-1' was deleted"):
        PrivacyReport.of_experiment("credit-1")


def test_nothing_in_the_period_says_what_was_searched(experiment: str) -> None:
    with pytest.raises(InputError, match="it has no run with explanations or audits; log"):
        PrivacyReport.of_experiment(experiment)
    add(start(experiment), [15, 15], 0, "2026-09-01", "2026-09-30T10:00")
    with pytest.raises(InputError) as caught:
        PrivacyReport.of_experiment(experiment, **OCTOBER)
    assert str(caught.value) == (
        f"nothing to report on in experiment {experiment!r}: its 1 runs with explanations or audits have none from "
        "2026-10-01 UTC until before 2026-11-01 UTC, but from 2026-09-01 UTC to 2026-09-30 10:00 "
        "UTC; choose another period"
    )


def test_a_file_that_is_gone_is_missed(experiment: str) -> None:
    run_id = start(experiment)
    names = add(run_id, [15, 16, 17]), add(run_id, [18, 19, 20], 3)
    (folder_of(run_id) / "explanations" / names[1]).unlink()
    assert check(PrivacyReport.of_runs(run_id), "records").measured.value == 3
    (folder_of(run_id) / "explanations" / names[0]).unlink()
    with pytest.raises(TrackingError, match="counts 6 explanations and lacks all explanations"):
        PrivacyReport.of_runs(run_id)
    (folder_of(run_id) / "explanations").rmdir()
    with pytest.raises(TrackingError, match="counts 6 explanations and lacks explanations"):
        PrivacyReport.of_experiment(experiment)


@pytest.mark.parametrize("lost", ["reason", "k", "pureness_low", "policy_hash"])
def test_a_column_that_is_not_there_is_null(lost: str, experiment: str) -> None:
    run_id = start(experiment)
    name = add(run_id, [15, 16])
    table = public([15, 16]).drop(columns=lost)
    pages = []
    for columns in (table, table.assign(**{lost: None})):
        put(run_id, f"explanations/{name}", columns)
        pages.append(PrivacyReport.of_runs(run_id).to_html())
    assert pages[0] == pages[1]


def test_a_summary_of_other_explanations_is_not_believed(experiment: str) -> None:
    run_id = start(experiment)
    add(run_id, [15, 16])
    right = {"asked": 2, "released": 2, "withheld": 0}
    for counts, status in ((right, "pass"), (right | {"released": 1}, "review")):
        put(run_id, "summary.json", summary_with(**counts))
        assert check(PrivacyReport.of_runs(run_id), "records").status == status
    for figures, said in (
        ({"asked": CANARY}, "figures.asked is not of type integer"),
        ({CANARY: 1}, "figures has an unknown key"),
    ):
        put(run_id, "summary.json", summary_with(**figures))
        refused(run_id, "summary.json", f"it is damaged: {said}")
    (folder_of(run_id) / "summary.json").unlink()
    with pytest.raises(TrackingError, match=r"counts 2 explanations and lacks summary\.json"):
        PrivacyReport.of_runs(run_id)


# --- what is damaged is named, never quoted, and leaves no copy ---


def refused(run_id: str, path: str, said: str) -> None:
    with pytest.raises(TrackingError, match=said) as caught:
        PrivacyReport.of_runs(run_id)
    assert f"run {run_id}, cfk/{path}" in str(caught.value)
    assert CANARY not in str(caught.value)


DAMAGED: dict[str, Callable[[pd.DataFrame], Any]] = {
    "not JSON": lambda frame: packed(frame)[:-40],
    "damaged: not JSON": lambda frame: packed(frame).replace(b"0.95", b"NaN"),
    "expected a JSON object": lambda _: f'["{CANARY}"]'.encode(),
    "expected the columns and the data": lambda _: {"columns": CANARY, "data": []},
    "a row does not have the columns": lambda _: {"columns": ["step"], "data": [[0], [1, CANARY]]},
    "it lacks step, status": lambda frame: frame.drop(columns=["step", "status"]),
    "column k does not contain numbers": lambda frame: frame.assign(k=CANARY),
    "column ncp does not contain numbers": lambda frame: frame.assign(ncp=[[1]] * 3),
    "column status does not contain text": lambda frame: frame.assign(status=1),
    "column exact does not contain flags": lambda frame: frame.assign(exact=1),
    "column step does not contain whole": lambda frame: frame.assign(step=[0.0, 0.5, 2.0]),
    "column timestamp does not contain times": lambda frame: frame.assign(
        timestamp=[pd.NaT, *frame["timestamp"][1:]]
    ),
    "column gap has a number that is too large": lambda frame: frame.assign(gap=[10**400] * 3),
    "column certificate is damaged": lambda frame: frame.assign(certificate=CANARY),
}


def test_a_damaged_file_is_named_and_no_copy_of_it_is_left(
    experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = start(experiment)
    name = add(run_id, [15, 16, 17])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    PrivacyReport.of_runs(run_id)
    for said, damage in DAMAGED.items():
        put(run_id, f"explanations/{name}", damage(public([15, 16, 17])))
        refused(run_id, "explanations", said)
    assert list(tmp_path.iterdir()) == []


def test_a_document_that_cannot_be_read_is_named(experiment: str) -> None:
    wrong: list[tuple[Any, str]] = [
        (f'{{"{CANARY}": '.encode(), "not JSON"),
        (b"\xff\xfe" + CANARY.encode(), "not JSON"),
        ([CANARY], "expected a JSON object"),
        ({"schema_version": 2, "x": CANARY}, "schema_version is 2, expected 1"),
        ({"schema_version": CANARY}, "schema_version is not a number"),
    ]
    run_id = start(experiment, audit=True)
    add(run_id, [15])
    for name in ("policy", "population", "environment", "audit-0"):
        for content, said in wrong if name == "audit-0" else wrong[:1]:
            path = put(run_id, f"{name}.json", content)
            refused(run_id, f"{name}.json", said)
        path.unlink()
    assert seen(PrivacyReport.of_runs(run_id)) == [15]


def test_a_newer_run_and_columns_that_hold_something_else_are_refused(experiment: str) -> None:
    run_id = start(experiment)
    name = add(run_id, [15])
    put(run_id, f"explanations/{name}", public([15]).assign(finding=[1.5]))
    refused(run_id, "explanations", "column finding does not contain text")
    mlflow.MlflowClient().set_tag(run_id, "cfk.schema_version", "2")
    with pytest.raises(
        TrackingError, match=rf"run {run_id}: tag cfk\.schema_version is 2, expected 1"
    ):
        PrivacyReport.of_runs(run_id)


# --- stores that do not answer ---


def test_a_store_that_is_not_there_is_no_reason_to_wait() -> None:
    with pytest.raises(TrackingError, match="does not answer"):
        PrivacyReport.of_runs("f" * 32, tracking_uri="http://127.0.0.1:9")
    with pytest.raises(TrackingError, match="cannot be opened"):
        PrivacyReport.of_experiment("tests", tracking_uri="ftp://nowhere")


@pytest.mark.slow
def test_server_is_read_as_a_local_store(tmp_path: Path, mlflow_store: str) -> None:
    """A server that hangs is an error, and is read again when it goes on."""
    with tracking_server(tmp_path) as server:
        server.start()
        reports = []
        for uri in (mlflow_store, server.url):
            ids = [
                release.log(experiment="both", tracking_uri=uri)
                for release in (explanations(), prototypes())
            ]
            reported.membership({"membership_cfd": 0.0}, 100).log(ids[0], tracking_uri=uri)
            report = PrivacyReport.of_experiment("both", tracking_uri=uri)
            assert set(report.run_ids) == set(ids)
            reports.append(report.data)
        for part in ("releases", "dp", "metrics"):
            assert getattr(reports[0], part) == getattr(reports[1], part)
        assert reports[0].attacks[0].main == reports[1].attacks[0].main
        server.hang()
        with pytest.raises(TrackingError, match="the MLflow tracking server does not answer"):
            PrivacyReport.of_runs(ids[1], tracking_uri=server.url)
        server.go_on()
        assert PrivacyReport.of_runs(ids[1], tracking_uri=server.url).data.dp is not None
