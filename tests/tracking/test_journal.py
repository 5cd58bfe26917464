"""Records that MLflow does not take wait in a journal, and are in MLflow once after they are sent."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import pandas as pd
import pytest

from cfk_plugin import Population, PrivacyPolicy, Schema, protect
from cfk_plugin.errors import InputError, TrackingError, UntrackedWarning
from cfk_plugin.tracking import run as runs
from cfk_plugin.tracking.logger import RunLogger, logger_of, observe
from commands import output_of
from parts import figures_of, rows_of
from tracked import explanations, journaled, measured, released

NOWHERE = "http://127.0.0.1:9"
FULL = Path("/dev/full")
QUERIES = pd.DataFrame({"age": [30, 31], "salary": [10, 20]})

needs_full_disk = pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")


def protected(**options: Any) -> Any:
    train = pd.DataFrame({"age": [24, 25, 26, 27, 50, 52], "salary": [60, 61, 30, 80, 90, 70]})
    return protect(
        lambda queries: train.head(len(queries)).set_index(queries.index),
        model=lambda rows: rows["salary"] > 50,
        population=Population.from_frame(
            train, Schema.from_frame(train, quasi_identifiers=["age"])
        ),
        policy=PrivacyPolicy(guarantee="lookup", k=2),
        desired=True,
        plugins=[import_module("cfk_adapters.function")],
        **options,
    )


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


@pytest.fixture
def down(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Have no store answer, until the patch is undone."""

    def refuse(*_: Any) -> Any:
        raise TrackingError("the MLflow tracking server does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(runs, "client_of", refuse)
        yield patch


def track(*loggers: RunLogger) -> None:
    """Log explanations with each logger."""
    for logger in loggers:
        assert observe(explanations(), logger)


def logged_rows() -> list[int]:
    """Return how many explanations each run has, after checking that no number is missing or
    double.
    """
    client = mlflow.MlflowClient()
    counts = []
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            rows = rows_of(run.info.run_id)
            assert sorted(rows["step"]) == list(range(len(rows)))
            assert run.data.metrics["cfk.asked"] == len(rows)
            history = client.get_metric_history(run.info.run_id, "cfk.k")
            assert len(history) == len({value.step for value in history})
            counts.append(len(rows))
    return sorted(counts)


# --- a store that is down -------------------------------------------------------------------------


def test_journal_keeps_records_without_a_store(journal: Path) -> None:
    """There is one warning, and only the owner may read the file."""
    logger = RunLogger(tracking_uri=NOWHERE, journal=journal)
    with pytest.warns(UntrackedWarning, match=f"`cfk track {journal}` sends") as caught:
        track(logger, logger, logger)
    assert len(caught) == 1
    assert [len(record.rows) for record in journaled(journal)] == [3, 3, 3]
    assert oct(journal.stat().st_mode & 0o777) == "0o600"


def test_failed_write_leaves_no_line(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that may not be on disk is not sent: the answer is withheld, and its number is free."""

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    logger = RunLogger(tracking_uri=NOWHERE, journal=journal, strict=True)
    with pytest.warns(UntrackedWarning):
        observe(explanations(), logger)
    monkeypatch.setattr("os.fsync", fail)
    with pytest.warns(UntrackedWarning, match="no record"):
        assert not observe(explanations(), logger)
    monkeypatch.undo()
    observe(explanations(), logger)
    assert [record.number for record in journaled(journal)] == [0, 1]


def test_warnings_as_errors_lose_nothing(journal: Path) -> None:
    """A record in the journal is kept, whatever becomes of the warning about it."""
    logger = RunLogger(tracking_uri=NOWHERE, journal=journal, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [observe(explanations(), logger) for _ in range(2)] == [True, True]
    assert [record.number for record in journaled(journal)] == [0, 1]


def test_relative_store_is_sent_from_anywhere(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, down: pytest.MonkeyPatch
) -> None:
    """The journal has the absolute path of the store."""
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UntrackedWarning):
        observe(explanations(), RunLogger(tracking_uri="sqlite:///runs.db", journal=journal))
    target = json.loads(journal.read_text())["target"]
    assert target["tracking_uri"] == f"sqlite:///{tmp_path}/runs.db"


def test_track_sends_each_record_once(
    mlflow_store: str, journal: Path, down: pytest.MonkeyPatch
) -> None:
    """However often the journal is sent."""
    logger = RunLogger(experiment="credit", journal=journal, tags={"team": "risk"})
    with pytest.warns(UntrackedWarning):
        observe(explanations(), logger)
    observe(explanations(), logger)
    down.undo()
    observe(explanations(), logger)
    for _ in range(3):
        assert "MLflow has 2 records" in output_of("track", journal)
    assert logged_rows() == [9]
    (run,) = mlflow.search_runs(experiment_names=["credit"], output_format="list")
    assert (run.data.tags["team"], run.info.status) == ("risk", "FINISHED")


def test_other_settings_go_to_a_child(
    mlflow_store: str, journal: Path, down: pytest.MonkeyPatch
) -> None:
    """The first record stays in the run that was active."""
    logger = RunLogger(journal=journal)
    with mlflow.start_run() as active:
        with pytest.warns(UntrackedWarning):
            observe(explanations(k=5), logger)
        observe(explanations(k=4), logger)
    down.undo()
    for _ in range(2):
        output_of("track", journal)
    assert logged_rows() == [3, 3]
    assert len(rows_of(active.info.run_id)) == 3


def test_late_record_keeps_the_summary(
    mlflow_store: str, journal: Path, down: pytest.MonkeyPatch
) -> None:
    """MLflow shows the figures up to the latest record, although an earlier one came last."""
    logger = RunLogger(experiment="credit", journal=journal)
    with pytest.warns(UntrackedWarning):
        observe(explanations(released(0, k=50)), logger)
    down.undo()
    observe(explanations(released(0, k=70)), logger)
    assert figures_of(logger.run_id)["asked"] == 2
    output_of("track", journal)
    assert figures_of(logger.run_id)["k_mean"] == 60
    assert logged_rows() == [2]


CALLS = ("get_run", "search_runs", "log_artifacts", "log_inputs", "log_batch", "set_terminated")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_failure_within_a_record_is_repaired(
    call: str,
    when: str,
    mlflow_store: str,
    journal: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store fails once, before or after it did what it was asked; other records follow."""
    logger = RunLogger(experiment="credit", journal=journal)
    real = getattr(mlflow.MlflowClient, call)

    def fail(*args: Any, **options: Any) -> None:
        if when == "after":
            real(*args, **options)
        raise OSError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(mlflow.MlflowClient, call, fail)
        with pytest.warns(UntrackedWarning, match="OSError"):
            observe(measured(), logger)
    observe(measured(), logger)
    for _ in range(2):
        output_of("track", journal)
    assert logged_rows() == [6]


# --- the file -------------------------------------------------------------------------------------


def test_unfinished_line_spoils_no_other(
    mlflow_store: str, journal: Path, down: pytest.MonkeyPatch
) -> None:
    """The command names it."""
    logger = RunLogger(journal=journal)
    with pytest.warns(UntrackedWarning):
        observe(explanations(), logger)
    with journal.open("ab") as file:
        file.write(journal.read_bytes()[:100])
    observe(explanations(), logger)
    down.undo()
    output = output_of("track", journal, code=3)
    assert "MLflow has 2 records" in output
    assert output.endswith("lines that cannot be read, as a record was not written to its end: 2")
    assert logged_rows() == [6]


def test_other_version_is_not_sent(
    mlflow_store: str, journal: Path, down: pytest.MonkeyPatch
) -> None:
    """The command fails, so that someone looks at the line."""
    with pytest.warns(UntrackedWarning):
        observe(explanations(), RunLogger(journal=journal))
    down.undo()
    content = json.loads(journal.read_text("utf-8"))
    journal.write_text(json.dumps({**content, "schema_version": 2}) + "\n", "utf-8")
    assert "MLflow has 0 records" in output_of("track", journal, code=3)


def test_records_wait_for_own_store_only(
    mlflow_store: str, journal: Path, down: pytest.MonkeyPatch
) -> None:
    """One store is down, and the other one gets its record."""
    loggers = [
        RunLogger(tracking_uri=uri, journal=journal) for uri in (NOWHERE, mlflow_store, NOWHERE)
    ]
    with pytest.warns(UntrackedWarning):
        track(*loggers)
    down.undo()
    output = output_of("track", journal, code=3)
    assert "MLflow has 1 record of" in output
    assert "2 records cannot be sent: the MLflow tracking server does not answer" in output


def test_track_refuses_a_missing_file(tmp_path: Path) -> None:
    """With the exit code of an error."""
    assert "cannot be read" in output_of("track", tmp_path / "none.jsonl", code=2)


def test_journal_stays_where_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the working folder changes."""
    monkeypatch.chdir(tmp_path)
    logger = RunLogger(tracking_uri=NOWHERE)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.warns(UntrackedWarning):
        observe(explanations(), logger)
    assert len(journaled(tmp_path / "cfk-journal.jsonl")) == 1


# --- a record that can be kept nowhere ------------------------------------------------------------


@needs_full_disk
def test_strict_withholds_without_a_record(down: pytest.MonkeyPatch) -> None:
    """There is one warning."""
    private = protected(track="credit", strict=True, journal=FULL)
    with pytest.warns(UntrackedWarning, match="they are withheld") as caught:
        results = [private.explain(QUERIES) for _ in range(2)]
    assert [warning.category for warning in caught].count(UntrackedWarning) == 1
    reasons = Counter(entry.reason for result in results for entry in result.withheld)
    assert reasons == {"not_recorded": 4}


def test_strict_releases_journaled_answers(journal: Path, down: pytest.MonkeyPatch) -> None:
    """No store has to answer."""
    private = protected(track="credit", strict=True, journal=journal)
    with pytest.warns(UntrackedWarning, match="cfk track"):
        result = private.explain(QUERIES)
    assert len(result.released) == 2
    assert len(journaled(journal)) == 1


@needs_full_disk
def test_loss_is_counted_in_next_record(mlflow_store: str, down: pytest.MonkeyPatch) -> None:
    """There is one warning."""
    logger = logger_of("credit", journal=FULL)
    assert logger is not None
    with pytest.warns(UntrackedWarning, match="No space left on device") as caught:
        track(logger, logger)
    assert len(caught) == 1
    down.undo()
    for _ in range(2):
        assert observe(explanations(), logger)
    (run,) = mlflow.search_runs(experiment_names=["credit"], output_format="list")
    assert run.data.metrics["cfk.asked"] == 6
    assert run.data.metrics["cfk.untracked"] == 4
    assert run.data.tags["cfk.verdict"] == "review"


@pytest.mark.parametrize("is_strict", [False, True])
def test_record_that_fails_is_a_loss(is_strict: bool, journal: Path) -> None:
    """A row of the result lacks k."""
    record = explanations().to_record()
    del record.rows[0]["k"]
    result: Any = SimpleNamespace(to_record=lambda: record)
    logger = RunLogger(journal=journal, strict=is_strict)
    with pytest.warns(UntrackedWarning, match="KeyError"):
        assert logger.submit(result) is not is_strict
    assert not journal.exists()


def test_strict_beside_a_logger_is_refused() -> None:
    """A logger has a setting of its own."""
    with pytest.raises(InputError, match=r"write RunLogger\(\.\.\., strict=True\)"):
        protected(track=RunLogger(), strict=True)


def test_strict_needs_tracking() -> None:
    """There is no record without it, so every answer would be withheld."""
    with pytest.raises(InputError, match="add track=True"):
        protected(strict=True)


# --- a protected explainer ------------------------------------------------------------------------


def test_explainer_logs_to_the_active_run(mlflow_store: str) -> None:
    """With the figures of detection."""
    with mlflow.start_run() as run:
        protected(track=True).explain(QUERIES)
    data = mlflow.get_run(run.info.run_id).data
    assert (data.metrics["cfk.asked"], data.params["cfk.k"]) == (2, "2")
    assert data.metrics["cfk.native_rate"] == 1


def test_nothing_is_tracked_unless_asked_for(
    journal: Path, down: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """There is neither a run nor a journal."""
    monkeypatch.chdir(tmp_path)
    assert len(protected().explain(QUERIES).released) == 2
    assert list(tmp_path.iterdir()) == []
