"""The spool: nothing kept is lost or counted twice, whatever ends, and nothing takes more room than
it may.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Ledger, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.errors import CFKError, InputError
from cfk_plugin.records import run
from cfk_plugin.records import spool as spools
from cfk_plugin.records.logger import RunLogger
from cfk_plugin.records.record import RunRecord
from cfk_plugin.records.spool import (
    LEASE_SECONDS,
    Shipper,
    Spool,
    SpoolError,
    SpoolSettings,
    is_gone,
    spool_folder,
    this_process,
)
from commands import output_of
from parts import figures_of, tables_of
from spooled import explanations, kept, released

HELPERS, ROOT = Path(__file__).parents[1] / "helpers", Path(__file__).parents[2]


@cache
def gone() -> str:
    """Name a process of this machine that has ended."""
    child = subprocess.Popen(["true"])
    child.wait()
    return f"{socket.gethostname()}:{child.pid}:1"


def leave(
    folder: Path, holder: str, *records: RunRecord, stream: str = "left", **target: Any
) -> None:
    """Leave records in a spool as a process would."""
    spool = Spool(SpoolSettings(folder), holder)
    for record in records:
        spool.append(
            run.RunWriter(run.RunTarget(**{"experiment": "left"} | target), stream), record
        )
    spool.close()


def delivered(folder: Path) -> dict[str, Any]:
    """Read every run's figures, rows and history from the store; fail on anything that is there
    twice.
    """
    client, found = mlflow.MlflowClient(), Counter()
    for experiment in client.search_experiments():
        for each in client.search_runs([experiment.experiment_id]):
            if "cfk.asked" not in each.data.metrics:
                continue
            path = client.download_artifacts(each.info.run_id, "cfk/explanations", str(folder))
            rows = tables_of(Path(path).glob("part-*.jsonl.gz"))
            assert sorted(rows["step"]) == list(range(len(rows)))
            assert each.data.metrics["cfk.asked"] == len(rows)
            assert figures_of(each.info.run_id)["asked"] == len(rows)
            history = client.get_metric_history(each.info.run_id, "cfk.k")
            assert sorted(m.step for m in history) == sorted(
                rows["step"][rows["status"] == "released"]
            )
            found["rows"] += len(rows)
            found["runs"] += 1
            found[each.info.status] += 1
            for part in Path(path).glob("part-*.jsonl.gz"):
                part.unlink()
    return dict(found)


class Killed(BaseException):
    """Stands for the end of a process at one place."""


def ends_at(owner: Any, place: str, monkeypatch: pytest.MonkeyPatch, when: str = "before") -> None:
    """Send what is in the spool until the process ends at this place."""
    real = getattr(owner, place)

    def ends(*args: Any, **kwargs: Any) -> Any:
        if when == "after":
            real(*args, **kwargs)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, place, ends)
        with pytest.raises(Killed):
            Shipper(Spool(SpoolSettings(spool_folder()), gone())).drain()


@pytest.mark.parametrize(
    "place", ["_log_files", "_log_values", "_log_summary", "_log_metrics", "delivered"]
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_ends_while_it_sends_leaves_all_to_the_next(
    place: str,
    when: str,
    mlflow_store: str,
    tmp_path: Path,
    spool: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leave(spool, gone(), *(explanations().to_record() for _ in range(5)))
    ends_at(Spool if place == "delivered" else run, place, monkeypatch, when)
    leave(spool, gone(), explanations().to_record())
    output_of("spool flush")
    assert delivered(tmp_path) == {"rows": 18, "runs": 1, "FINISHED": 1}
    assert not kept(spool)


def test_a_run_that_was_made_and_not_noted_is_found_again(
    mlflow_store: str, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(spool, gone(), explanations().to_record())
    ends_at(run, "refuse_other_params", monkeypatch)
    output_of("spool flush")
    assert len(mlflow.search_runs(search_all_experiments=True)) == 1


def test_somebody_else_may_log_to_the_run_in_between(
    mlflow_store: str, tmp_path: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = explanations().log()
    leave(spool, gone(), explanations().to_record(), run_id=run_id)
    ends_at(run, "_log_values", monkeypatch)
    explanations().log(run_id=run_id)
    output_of("spool flush")
    assert delivered(tmp_path) == {"rows": 9, "runs": 1, "FINISHED": 1}


WORKLOAD = """
import sys
sys.path[:0] = {path!r}
from parts import figures_of, tables_of
from spooled import explanations
from cfk_plugin.records.logger import observe
print("ready", flush=True)
while True:
    assert observe(explanations(), track=True)
    print("kept", flush=True)
"""


@pytest.mark.slow
def test_killed_processes_lose_nothing_they_kept(
    mlflow_store: str, tmp_path: Path, spool: Path
) -> None:
    acknowledged = 0
    script = WORKLOAD.format(path=[str(HELPERS), str(ROOT)])
    for seconds in (0.05, 1.5, 3.5):  # from before MLflow is imported to far into sending
        command = [sys.executable, "-c", script]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            time.sleep(seconds)
            child.send_signal(signal.SIGKILL)
            acknowledged += child.stdout.read().count("kept")
    output_of("spool flush")
    rows = delivered(tmp_path)["rows"]
    assert acknowledged > 50
    # one may have been kept in each process and not said so
    assert 0 <= rows - 3 * acknowledged <= 3 * 3


def test_what_a_dead_server_missed_is_sent_when_it_is_there(
    mlflow_store: str, tmp_path: Path, spool: Path
) -> None:
    leave(spool, gone(), explanations().to_record(), tracking_uri="http://127.0.0.1:9", timeout=0.5)
    assert "does not answer" in output_of("spool flush", code=3)
    leave(spool, gone(), explanations().to_record(), stream="other")
    output_of("spool flush", code=3)
    assert delivered(tmp_path)["rows"] == 3
    assert len(kept(spool)) == 1


def test_only_the_process_that_has_a_stream_sends_it(
    mlflow_store: str, tmp_path: Path, spool: Path
) -> None:
    leave(spool, f"{this_process()}", explanations().to_record(), stream="mine")
    leave(spool, "elsewhere:1:1", explanations().to_record(), stream="theirs")
    # who tells no machine and number
    leave(spool, "somebody", explanations().to_record(), stream="somebody's")
    other = Spool(SpoolSettings(spool), "here:1:1")
    assert other.hold() == []
    with other._transaction() as db:
        db.execute("UPDATE streams SET until = ? WHERE id <> 'mine'", (time.time() - 1,))
    assert [stream.id for stream in other.hold()] == ["theirs", "somebody's"]
    other.close()
    assert LEASE_SECONDS > 30


def test_a_process_is_gone_when_it_ended_or_another_has_its_number() -> None:
    host, pid, started = this_process().rsplit(":", 2)
    assert not is_gone(this_process())
    assert is_gone(gone())
    assert is_gone(f"{host}:{pid}:{int(started) - 1}")
    assert not is_gone(f"another-{host}:{pid}:{started}")
    killed = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    killed.kill()
    # dead, and nobody has asked for its exit code yet
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(f"{host}:{killed.pid}:{started}")
    killed.wait()


def fill(folder: Path) -> None:
    """Take all the room that a spool has."""
    spool, record = (
        Spool(SpoolSettings(folder, most=1_000_000), this_process()),
        explanations().to_record(),
    )

    def without_end() -> None:
        for _ in range(10_000):
            spool.append(
                run.RunWriter(run.RunTarget(tracking_uri="http://127.0.0.1:9"), "filler"), record
            )

    with pytest.raises(SpoolError, match="the spool is full"):
        without_end()
    spool.close()


def test_a_spool_takes_no_more_room_than_it_may(
    spool: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spools, "MOST_BYTES", 1_000_000)
    fill(spool)
    assert (spool / "spool.db").stat().st_size <= 1_000_000
    before = len(kept(spool))
    assert before > 100
    assert not RunLogger().submit(explanations())
    assert "the spool is full" in caplog.text
    assert len(kept(spool)) == before


def test_the_operator_may_choose_to_release_without_a_record(
    spool: Path, monkeypatch: pytest.MonkeyPatch, mlflow_store: str
) -> None:
    monkeypatch.setattr(spools, "MOST_BYTES", 1_000_000)
    monkeypatch.setenv("CFK_SPOOL_FULL", "release")
    fill(spool)
    logger = RunLogger()
    assert logger.submit(explanations())
    assert logger.submit(explanations())
    with closing(sqlite3.connect(spool / "spool.db", isolation_level=None)) as room:
        room.execute("DELETE FROM records WHERE stream = 'filler'")
        room.execute("DELETE FROM streams WHERE id = 'filler'")
    assert logger.submit(explanations(released(0)))
    assert logger.flush()
    data = mlflow.get_run(logger.run_id or "").data
    assert (data.metrics["cfk.untracked"], data.metrics["cfk.asked"]) == (4, 1)
    assert data.tags["cfk.verdict"] == "review"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_loses_nothing_that_was_kept(
    small_disk: Path, mlflow_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = RunLogger(spool=small_disk / "spool")
    monkeypatch.setattr(Shipper, "wake", lambda self: None)
    assert logger.submit(explanations())
    (small_disk / "ballast").write_bytes(b"x" * 400_000)
    taken = 1
    while logger.submit(explanations()):
        taken += 1
        assert taken < 10_000
    assert taken > 10
    assert not logger.submit(explanations())
    (small_disk / "ballast").unlink()
    assert logger.submit(explanations())
    monkeypatch.undo()
    logger._shipper.drain()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_store)
    assert delivered(tmp_path)["rows"] == 3 * (taken + 1)


@pytest.mark.parametrize("damage", ["a file for a folder", "no database"])
def test_a_spool_that_cannot_be_used_is_refused_before_anything_leaves(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "damaged"
    if damage == "no database":
        folder.mkdir()
        (folder / "spool.db").write_bytes(b"no database " * 1000)
    else:
        folder.write_text("")
    logger = RunLogger(spool=folder)
    with pytest.raises(SpoolError, match="CFK_SPOOL"):
        logger.check()
    assert not logger.submit(explanations())


def test_wrong_settings_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = "CFK_SPOOL_FULL"
    monkeypatch.setenv(name, "x")
    with pytest.raises(InputError, match=name):
        SpoolSettings.of()
    with pytest.raises(CFKError, match=name):
        RunLogger(spool=tmp_path / "fresh").check()
    assert not RunLogger(spool=tmp_path / "fresh").submit(explanations())


def test_a_spool_holds_what_a_run_would_hold(spool: Path) -> None:
    leave(
        spool, gone(), explanations(released(0, k_private=31337, private_matches=31337)).to_record()
    )
    (record,) = kept(spool)
    assert "31337" not in json.dumps([record.rows, record.params, record.tags])
    assert (record.recount[0]["k_private"], record.recount[0]["private_matches"]) == (31337, 31337)
    assert oct(spool.stat().st_mode & 0o777) == "0o700"


def test_records_come_back_as_they_went() -> None:
    record = explanations(
        released(0, gap=None, k_effective=3), epsilon_spent="0.5", findings=["native"]
    ).to_record()
    assert RunRecord.from_json(record.to_json()) == record


def test_flush_says_how_far_behind_tracking_is(spool: Path) -> None:
    assert "no spool" in output_of("spool flush", code=2)
    leave(spool, gone(), explanations().to_record(), tracking_uri="http://127.0.0.1:9", timeout=0.5)
    said = output_of("spool flush", code=3)
    assert "left 1" in said
    assert "does not answer" in said


def test_a_delivered_spool_is_empty(mlflow_store: str, spool: Path) -> None:
    logger = RunLogger()
    assert logger.submit(explanations())
    logger.finish()
    assert logger.flush()
    assert "Nothing waits" in output_of("spool flush")
    assert spool_folder() == spool


# --- a spool that disappears ----------------------------------------------------------------------

NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize("on_full", ["withhold", "release"])
@pytest.mark.parametrize("replaced", ["", "by an empty folder", "by another spool"])
def test_a_spool_that_is_gone_keeps_nothing_until_it_is_back(
    spool: Path,
    on_full: str,
    replaced: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
) -> None:
    monkeypatch.setenv("CFK_SPOOL_FULL", on_full)
    logger = RunLogger(tracking_uri=NOBODY)
    logger.check()
    assert "a new one is made" in caplog.text
    assert logger.submit(explanations())
    spool.rename(tmp_path / "away")
    if replaced == "by an empty folder":
        spool.mkdir()
    elif replaced:
        leave(spool, gone())
        Spool(SpoolSettings(spool), gone()).check()
    for _ in range(3):
        assert logger.submit(explanations()) == (on_full == "release")
    assert "is gone, or another is in its place" in caplog.text
    if replaced:
        assert list(spool.iterdir()) == [] or replaced == "by another spool"
        shutil.rmtree(spool)
    (tmp_path / "away").rename(spool)
    assert logger.submit(explanations())
    assert len(kept(spool)) == 2


@pytest.mark.parametrize("missing", ["the folder", "room"])
def test_what_did_not_leave_for_want_of_a_record_is_not_in_the_ledger_as_left(
    spool: Path, ledger: Ledger, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spools, "MOST_BYTES", 1_000_000)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.integers(0, 40, 240) for name in ("age", "city", "salary")})
    population = Population.from_frame(
        frame, Schema.from_frame(frame, quasi_identifiers=["age", "city"]), key=b"key"
    )
    wanted = frame[frame["salary"] > 5]
    private = protect(
        lambda rows: wanted.head(len(rows)).set_axis(rows.index),
        model=lambda rows: rows["salary"] > 5,
        desired=True,
        population=population,
        policy=PrivacyPolicy(guarantee="reciprocal", k=7),
        ledger=ledger,
        track=True,
    )
    queries = frame[frame["salary"] <= 5].head(4)
    if missing == "room":
        fill(spool)
    else:
        spool.rename(spool.parent / "away")
    assert {entry.reason for entry in private.explain(queries).withheld} == {"not_recorded"}
    assert ledger.status().records == 0
    if missing == "room":
        with closing(sqlite3.connect(spool / "spool.db", isolation_level=None)) as db:
            db.execute("DELETE FROM records")
    else:
        (spool.parent / "away").rename(spool)
    assert private.explain(queries).released
    assert ledger.status().records > 0


def test_what_a_deleted_spool_held_is_still_sent(spool: Path, mlflow_store: str) -> None:
    logger = RunLogger()
    assert logger.submit(explanations())
    shutil.rmtree(spool)
    assert not logger.submit(explanations())
    assert logger.flush()
    assert mlflow.get_run(logger.run_id or "").data.metrics["cfk.asked"] == 3


def test_what_is_written_while_the_spool_goes_is_not_taken_as_kept(
    spool: Path, tmp_path: Path
) -> None:
    own = Spool(SpoolSettings(spool), this_process())
    own.check()
    with pytest.raises(SpoolError, match="is gone"), own._transaction(keeps=True):
        spool.rename(tmp_path / "away")
    own.close()


def test_a_spool_that_cannot_be_read_for_a_while_is_sent_later(
    spool: Path,
    mlflow_store: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(self: Spool) -> Any:
        raise SpoolError("the spool cannot be used")

    monkeypatch.setattr("cfk_plugin.records.spool._FIRST_PAUSE", 0.01)
    logger = RunLogger()
    with monkeypatch.context() as patch:
        patch.setattr(Spool, "hold", broken)
        assert logger.submit(explanations())
        assert not logger.flush()
        patch.setattr(Spool, "waiting", broken)
        assert not logger.flush()
    assert "the spool cannot be sent: the spool cannot be used" in caplog.text
    assert logger.flush()
    assert mlflow.get_run(logger.run_id or "").data.metrics["cfk.asked"] == 3
