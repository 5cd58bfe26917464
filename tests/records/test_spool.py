"""The spool: nothing kept is lost or counted twice, whatever ends, and nothing takes more room than
it may.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow
import pytest

from cfk_plugin.errors import CFKError, InputError
from cfk_plugin.records import outbox, run
from cfk_plugin.records import spool as spools
from cfk_plugin.records.logger import RunLogger
from cfk_plugin.records.outbox import Outbox, SpoolError
from cfk_plugin.records.record import RunRecord
from cfk_plugin.records.shipper import Shipper
from cfk_plugin.records.spool import Spool, SpoolSettings, spool_folder
from commands import output_of
from parts import figures_of, tables_of
from spooled import explanations, kept, released, segments

HELPERS, ROOT = Path(__file__).parents[1] / "helpers", Path(__file__).parents[2]
NOBODY = "http://127.0.0.1:9"


def writer(stream: str = "left", **target: Any) -> run.RunWriter:
    return run.RunWriter(run.RunTarget(**{"experiment": "left"} | target), stream)


@contextmanager
def process(folder: Path) -> Iterator[Spool]:
    """Use a spool as a process does that is killed at the end: nothing but its files is closed."""
    spool = Spool(SpoolSettings(folder))
    try:
        yield spool
    finally:
        spool.close_inherited()


def leave(folder: Path, *records: RunRecord, stream: str = "left", **target: Any) -> None:
    """Leave records in a spool as a process would that is killed."""
    with process(folder) as spool:
        for record in records:
            spool.append(writer(stream, **target), record)


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

    with monkeypatch.context() as patch, process(spool_folder()) as spool:
        patch.setattr(owner, place, ends)
        with pytest.raises(Killed):
            Shipper(spool).drain()


PLACES = {
    "batch": Outbox,
    "plan": Outbox,
    "_log_files": run,
    "_log_values": run,
    "_log_summary": run,
    "_log_metrics": run,
    "delivered": Outbox,
    "forget": Outbox,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_ends_while_it_sends_leaves_all_to_the_next(
    place: str,
    when: str,
    mlflow_store: str,
    tmp_path: Path,
    spool: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leave(spool, *(explanations().to_record() for _ in range(5)))
    ends_at(PLACES[place], place, monkeypatch, when)
    leave(spool, explanations().to_record())
    output_of("spool flush")
    assert delivered(tmp_path) == {"rows": 18, "runs": 1, "FINISHED": 1}
    assert [path.name for path in spool.iterdir()] == ["spool.json"]


def test_a_run_that_was_made_and_not_noted_is_found_again(
    mlflow_store: str, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(spool, explanations().to_record())
    ends_at(run, "refuse_other_params", monkeypatch)
    output_of("spool flush")
    assert len(mlflow.search_runs(search_all_experiments=True)) == 1


def test_the_run_of_a_killed_process_is_ended_although_all_its_records_had_arrived(
    mlflow_store: str, tmp_path: Path, spool: Path
) -> None:
    with process(spool) as killed:
        killed.append(writer(), explanations().to_record())
        Shipper(killed).drain()
    assert delivered(tmp_path) == {"rows": 3, "runs": 1, "RUNNING": 1}
    output_of("spool flush")
    assert delivered(tmp_path) == {"rows": 3, "runs": 1, "FINISHED": 1}


def test_no_run_is_made_to_be_ended(mlflow_store: str, spool: Path) -> None:
    leave(spool, explanations().to_record())
    for path in segments(spool):
        path.unlink()
    output_of("spool flush")
    assert mlflow.get_experiment_by_name("left") is None
    assert len(mlflow.search_runs(search_all_experiments=True)) == 0


def test_somebody_else_may_log_to_the_run_in_between(
    mlflow_store: str, tmp_path: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = explanations().log()
    leave(spool, explanations().to_record(), run_id=run_id)
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
    leave(spool, explanations().to_record(), tracking_uri="http://127.0.0.1:9", timeout=0.5)
    assert "does not answer" in output_of("spool flush", code=3)
    leave(spool, explanations().to_record(), stream="other")
    output_of("spool flush", code=3)
    assert delivered(tmp_path)["rows"] == 3
    assert len(kept(spool)) == 1


# --- one process sends a record -------------------------------------------------------------------


def test_nobody_else_sends_what_a_running_process_has_kept(
    mlflow_store: str, tmp_path: Path, spool: Path
) -> None:
    with process(spool) as running:
        running.append(writer(), explanations().to_record())
        assert "left 1" in output_of("spool flush", code=3)
        running.append(writer(), explanations().to_record())
        assert len(kept(spool)) == 2
    output_of("spool flush")
    assert delivered(tmp_path)["rows"] == 6


def test_only_one_process_sends_what_an_ended_one_has_kept(spool: Path) -> None:
    leave(spool, explanations().to_record())
    with process(spool) as first, process(spool) as second:
        taken_over = first.outboxes()
        assert list(next(taken_over).streams) == ["left"]
        assert list(second.outboxes()) == []
        assert list(taken_over) == []
        assert len(list(second.outboxes())) == 1


def test_what_is_on_its_way_at_exit_is_left_to_no_other_process(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_sending = threading.Event()
    answers = threading.Event()

    def hangs(*_: Any, **__: Any) -> None:
        is_sending.set()
        answers.wait(60)

    monkeypatch.setattr(run.RunWriter, "write", hangs)
    monkeypatch.setattr("cfk_plugin.records.shipper._END_SECONDS", 0.01)
    logger = RunLogger()
    sender = logger._shipper
    assert logger.submit(explanations())
    assert is_sending.wait(60)
    sender.close(0)
    with process(spool) as other:
        assert list(other.outboxes()) == []
    answers.set()
    assert sender._thread is not None
    sender._thread.join(60)
    sender.spool.close()


def test_nothing_is_kept_after_the_rest_was_left_to_other_processes(
    mlflow_store: str, spool: Path
) -> None:
    logger = RunLogger()
    assert logger.submit(explanations())
    logger._shipper.close()
    with pytest.raises(SpoolError, match="the process is ending"):
        logger.check()
    assert not logger.submit(explanations())
    assert [path.name for path in spool.iterdir()] == ["spool.json"]


HOLDER = """
import os, sys, time
sys.path[:0] = {path!r}
from cfk_plugin.records.logger import RunLogger
from spooled import explanations
logger = RunLogger(tracking_uri="http://127.0.0.1:9", timeout=0.1)
assert logger.submit(explanations())
if {forks}:
    child = os.fork()
    if not child:
        print(os.getpid(), flush=True)
else:
    print("kept", flush=True)
time.sleep(600)
"""


SENDER = """
import os, sys, threading, time
from cfk_plugin.records.run import RunWriter
from cfk_plugin.records.shipper import shipper
is_sending = threading.Event()
def hangs(*_, **__):
    is_sending.set()
    time.sleep(600)
RunWriter.write = hangs
shipper().wake(within=0)
assert is_sending.wait(60)
if not os.fork():
    print(os.getpid(), flush=True)
time.sleep(600)
"""


@contextmanager
def holder(
    folder: Path, forks: bool = False, script: str = HOLDER
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a process that keeps a record and stays; give it with what it printed."""
    script = script.format(path=[str(HELPERS), str(ROOT)], forks=forks)
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as running:
        assert running.stdout is not None
        yield running, running.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    """Kill a process, and leave its exit code for later."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_what_a_killed_process_has_kept_is_free_before_its_parent_asks_how_it_ended(
    tmp_path: Path, spool: Path
) -> None:
    with holder(tmp_path) as (running, printed), process(spool) as other:
        assert printed == "kept"
        assert list(other.outboxes()) == []
        end(running)
        assert len(list(other.outboxes())) == 1


@pytest.mark.parametrize("origin", ["of its own", "of an ended process"])
def test_a_forked_child_does_not_hold_what_its_parent_sends(
    origin: str, tmp_path: Path, spool: Path
) -> None:
    script = HOLDER
    if origin == "of an ended process":
        script = SENDER
        leave(spool, explanations().to_record())
    with holder(tmp_path, forks=True, script=script) as (parent, child), process(spool) as other:
        try:
            assert list(other.outboxes()) == []
            end(parent)
            assert len(list(other.outboxes())) == 1
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_a_file_that_cannot_be_closed_keeps_no_lock(spool: Path) -> None:
    """A thread of the parent may close a file just before the parent forks."""
    with process(spool) as inherited, process(spool) as other:
        inherited.append(writer(), explanations().to_record())
        assert inherited.outbox is not None
        (segment,) = inherited.outbox.streams["left"].segments
        assert segment.file is not None
        os.close(segment.file)
        inherited.close_inherited()
        assert len(list(other.outboxes())) == 1


FORKED = """
import os, sys
sys.path[:0] = {path!r}
from cfk_plugin.records.logger import observe
from spooled import explanations
assert observe(explanations(), track=True)
child = os.fork()
assert observe(explanations(), track=True)
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_sends_what_it_keeps_and_nothing_of_its_parent(
    mlflow_store: str, tmp_path: Path, spool: Path
) -> None:
    script = FORKED.format(path=[str(HELPERS), str(ROOT)])
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, cwd=tmp_path)
    assert delivered(tmp_path) == {"rows": 9, "runs": 2, "FINISHED": 2}
    assert not kept(spool)


FORKED_WHILE_SENDING = """
import os, sys, threading
sys.path[:0] = {path!r}
from cfk_plugin.records.logger import observe
from cfk_plugin.records.run import RunWriter
from cfk_plugin.records.shipper import shipper
from spooled import explanations
is_sending = threading.Event()
answers = threading.Event()
write = RunWriter._write
def waits(*arguments):
    is_sending.set()
    answers.wait(60)
    return write(*arguments)
RunWriter._write = waits
assert observe(explanations(), track=True)
shipper().wake(within=0)
assert is_sending.wait(60)
child = os.fork()
RunWriter._write = write
if child:
    assert os.waitpid(child, 0)[1] == 0
    answers.set()
else:
    assert observe(explanations(), track=True)
    assert shipper().flush(20)
"""


def test_a_child_that_is_forked_while_its_parent_sends_can_send(
    mlflow_store: str, tmp_path: Path, spool: Path
) -> None:
    script = FORKED_WHILE_SENDING.format(path=[str(HELPERS), str(ROOT)])
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, cwd=tmp_path)
    assert delivered(tmp_path) == {"rows": 6, "runs": 2, "FINISHED": 2}
    assert not kept(spool)


# --- records on disk ------------------------------------------------------------------------------


def test_a_record_is_forced_to_disk_with_everything_that_leads_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced = set()
    fsync = os.fsync

    def state_of(file: int) -> tuple[int, Any]:
        """Return which file it is, and what a power cut may undo: its size, or its names."""
        state = os.fstat(file)
        if stat.S_ISDIR(state.st_mode):
            return state.st_ino, tuple(sorted(os.listdir(file)))
        return state.st_ino, state.st_size

    def noted(file: int) -> None:
        fsync(file)
        forced.add(state_of(file))

    def states_of(*paths: Path) -> set[tuple[int, Any]]:
        states = set()
        for path in paths:
            file = os.open(path, os.O_RDONLY)
            states.add(state_of(file))
            os.close(file)
        return states

    monkeypatch.setattr(os, "fsync", noted)
    # The folders that lead to the spool are new, too.
    folder = tmp_path / "service" / "records" / "spool"
    with process(folder) as own:
        own.append(writer(), explanations().to_record())
        (segment,) = segments(folder)
        (stream,) = folder.glob("*/*.json")
        leading = states_of(tmp_path, folder.parent.parent, folder.parent, folder)
        files = states_of(folder / "spool.json", segment.parent, stream, segment)
        assert leading | files <= forced
        own.append(writer(), explanations().to_record())
        assert states_of(segment) <= forced


def test_part_of_a_record_was_never_kept(mlflow_store: str, tmp_path: Path, spool: Path) -> None:
    leave(spool, explanations().to_record())
    (segment,) = segments(spool)
    with segment.open("a") as file:
        file.write('{"id": "')
    output_of("spool flush")
    assert delivered(tmp_path) == {"rows": 3, "runs": 1, "FINISHED": 1}
    assert not segments(spool)


@pytest.mark.parametrize("broken", ["write", "write and ftruncate", "fsync"])
def test_a_record_that_is_refused_spoils_no_other(
    broken: str,
    mlflow_store: str,
    tmp_path: Path,
    spool: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write = os.write

    def fails(*_: Any) -> None:
        raise OSError(errno.EIO, "input/output error")

    def writes_a_part(file: int, content: bytes) -> int:
        if len(content) < 100:
            fails()
        return write(file, content[: len(content) // 2])

    faults = {"write": writes_a_part, "ftruncate": fails, "fsync": fails}
    records = [explanations().to_record() for _ in range(3)]
    with process(spool) as own:
        own.append(writer(), records[0])
        with monkeypatch.context() as patch:
            for name in broken.split(" and "):
                patch.setattr(os, name, faults[name])
            with pytest.raises(SpoolError, match="cannot be used"):
                own.append(writer(), records[1])
        own.append(writer(), records[2])
    assert [record.id for record in kept(spool)] == [records[0].id, records[2].id]
    output_of("spool flush")
    assert delivered(tmp_path) == {"rows": 6, "runs": 1, "FINISHED": 1}


def test_a_power_cut_that_brings_a_sent_batch_back_does_not_count_it_twice(
    mlflow_store: str, tmp_path: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(spool, explanations().to_record())
    ends_at(Outbox, "delivered", monkeypatch)
    shutil.copytree(spool, tmp_path / "before")
    output_of("spool flush")
    leave(spool, explanations().to_record())
    output_of("spool flush")
    shutil.rmtree(spool)
    (tmp_path / "before").rename(spool)
    output_of("spool flush")
    assert delivered(tmp_path) == {"rows": 6, "runs": 1, "FINISHED": 1}


def test_records_are_sent_in_the_order_in_which_they_were_kept(
    mlflow_store: str, tmp_path: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(1_795_000_000_000, -1000)  # somebody sets it back all the time
    monkeypatch.setattr(outbox, "_milliseconds", lambda: next(clock))
    monkeypatch.setattr(outbox, "_SEGMENT_BYTES", 10_000)
    records = [explanations().to_record() for _ in range(60)]
    leave(spool, *records)
    assert len(segments(spool)) > 10
    sent = []
    write = run.RunWriter.write

    def noted(self: run.RunWriter, batch: list[RunRecord], **known: Any) -> str:
        sent.extend(record.id for record in batch)
        return write(self, batch, **known)

    monkeypatch.setattr(run.RunWriter, "write", noted)
    output_of("spool flush")
    assert sent == [record.id for record in records]
    assert delivered(tmp_path)["rows"] == 180


@pytest.mark.parametrize("damaged", ["a record", "the stream"])
def test_a_damaged_file_is_named_and_keeps_no_other_stream_back(
    damaged: str, mlflow_store: str, tmp_path: Path, spool: Path
) -> None:
    leave(spool, explanations().to_record(), stream="damaged")
    (path,) = spool.glob("*/*.jsonl" if damaged == "a record" else "*/*.json")
    path.write_text("no record\n")
    leave(spool, explanations().to_record(), stream="other")
    output_of("spool flush", code=3)
    with process(spool) as other:
        (waiting,) = other.waiting()
    assert waiting.problem is not None
    assert f"{path.parent.name}/{path.name} is" in waiting.problem
    assert "damaged" in waiting.problem
    assert delivered(tmp_path)["rows"] == 3
    assert path.exists()


# --- room -----------------------------------------------------------------------------------------


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "MOST_BYTES", 300_000)


def fill(folder: Path) -> None:
    """Take all the room that a spool has."""
    record = explanations().to_record()

    def without_end(spool: Spool) -> None:
        for _ in range(10_000):
            spool.append(writer("filler", tracking_uri=NOBODY), record)

    with process(folder) as spool, pytest.raises(SpoolError, match="the spool is full"):
        without_end(spool)


def make_room(folder: Path) -> None:
    """Delete what `fill` has left."""
    for path in folder.glob("*/filler*"):
        path.unlink()


@pytest.mark.usefixtures("small_limit")
def test_a_spool_takes_no_more_room_than_it_may(
    spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(spool)
    sizes = [path.stat().st_size for path in spool.rglob("*") if path.is_file()]
    assert sum(sizes) <= 300_000
    before = len(kept(spool))
    assert before > 100
    assert not RunLogger().submit(explanations())
    assert "the spool is full" in caplog.text
    assert len(kept(spool)) == before


def test_a_file_that_is_deleted_meanwhile_does_not_hide_the_size_of_others(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stream in ("first", "second", "third"):
        leave(spool, explanations().to_record(), stream=stream)
    sizes = {path: path.stat().st_size for path in spool.glob("outbox-*/*")}
    stat_of = Path.stat

    for deleted, size in sizes.items():

        def deleted_meanwhile(path: Path, deleted: Path = deleted, **settings: Any) -> Any:
            if path == deleted:
                raise FileNotFoundError
            return stat_of(path, **settings)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "stat", deleted_meanwhile)
            assert spools._size_of(spool) == sum(sizes.values()) - size


@pytest.mark.usefixtures("small_limit")
def test_the_operator_may_choose_to_release_without_a_record(
    spool: Path, monkeypatch: pytest.MonkeyPatch, mlflow_store: str
) -> None:
    monkeypatch.setenv("CFK_SPOOL_FULL", "release")
    fill(spool)
    logger = RunLogger()
    assert logger.submit(explanations())
    assert logger.submit(explanations())
    make_room(spool)
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
    monkeypatch.setattr(Shipper, "wake", lambda self, within=0: None)
    assert logger.submit(explanations())
    (small_disk / "ballast").write_bytes(b"x" * 400_000)
    taken = 1
    while logger.submit(explanations()):
        taken += 1
        assert taken < 10_000
    assert taken > 10
    assert not logger.submit(explanations())
    with pytest.raises(SpoolError, match="the spool is full"):
        logger.check(count=1)
    (small_disk / "ballast").unlink()
    assert logger.submit(explanations())
    sender = logger._shipper
    monkeypatch.undo()
    sender.drain()
    sender.close(0)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_store)
    assert delivered(tmp_path)["rows"] == 3 * (taken + 1)


def test_a_full_disk_does_not_keep_records_from_being_sent(
    small_disk: Path, mlflow_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = RunLogger(spool=small_disk / "spool")
    monkeypatch.setattr(Shipper, "wake", lambda self, within=0: None)
    unlucky = RunLogger(spool=small_disk / "spool", tracking_uri=NOBODY, timeout=0.1)
    assert unlucky.submit(explanations())
    assert logger.submit(explanations())
    with (small_disk / "ballast").open("wb", buffering=0) as ballast:
        while ballast.write(b"x" * 1000) == 1000:
            pass
    assert not logger.submit(explanations())
    sender = logger._shipper
    monkeypatch.undo()
    sender.drain()
    sender.close(0)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_store)
    assert delivered(tmp_path)["rows"] == 3
    assert len(segments(small_disk / "spool")) == 1


@pytest.mark.parametrize(
    "damage", ["a file for a folder", "a damaged version", "a later version", "no version"]
)
def test_a_spool_that_cannot_be_used_is_refused_before_anything_leaves(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "damaged"
    if damage == "a file for a folder":
        folder.write_text("")
    else:
        leave(folder, explanations().to_record())
        contents = {"a damaged version": "[", "a later version": '{"schema_version": 2}'}
        (folder / "spool.json").write_text(contents.get(damage, ""))
    if damage == "no version":
        (folder / "spool.json").unlink()
    if damage != "a file for a folder":
        assert "written by another version" in output_of(f"spool flush --folder {folder}", code=2)
    logger = RunLogger(spool=folder)
    with pytest.raises(SpoolError, match="CFK_SPOOL"):
        logger.check()
    assert not logger.submit(explanations())


@pytest.mark.parametrize("missing", ["the right to write", "locks"])
def test_a_place_without_what_a_spool_needs_is_refused(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "locks":
        monkeypatch.setattr(spools, "_HAS_LOCKS", False)
    else:
        monkeypatch.setattr(os, "access", lambda *_: False)
    logger = RunLogger(spool=tmp_path / "refused")
    with pytest.raises(SpoolError, match="POSIX" if missing == "locks" else "check its folder"):
        logger.check()
    assert not logger.submit(explanations())
    assert not segments(tmp_path / "refused")


def test_wrong_settings_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = "CFK_SPOOL_FULL"
    monkeypatch.setenv(name, "x")
    with pytest.raises(InputError, match=name):
        SpoolSettings.of()
    with pytest.raises(CFKError, match=name):
        RunLogger(spool=tmp_path / "fresh").check()
    assert not RunLogger(spool=tmp_path / "fresh").submit(explanations())


def test_a_relative_folder_is_one_spool_after_a_change_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"spool-of-{tmp_path.name}"
    monkeypatch.setenv("CFK_SPOOL", name)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for folder in (tmp_path, elsewhere):
        monkeypatch.chdir(folder)
        assert RunLogger().submit(explanations())
    assert len(kept(tmp_path / name)) == 2
    assert not list(elsewhere.iterdir())


def test_a_spool_holds_what_a_run_would_hold(spool: Path) -> None:
    leave(spool, explanations(released(0, k_private=31337, private_matches=31337)).to_record())
    (record,) = kept(spool)
    assert "31337" not in json.dumps([record.rows, record.params, record.tags])
    assert (record.recount[0]["k_private"], record.recount[0]["private_matches"]) == (31337, 31337)
    modes = {path: path.stat().st_mode & 0o777 for path in [spool, *spool.rglob("*")]}
    assert set(modes.values()) == {0o700, 0o600}
    assert modes[spool] == 0o700


def test_records_come_back_as_they_went() -> None:
    record = explanations(
        released(0, gap=None, k_effective=3), epsilon_spent="0.5", findings=["native"]
    ).to_record()
    assert RunRecord.from_json(record.to_json()) == record


def test_flush_says_how_far_behind_tracking_is(spool: Path) -> None:
    assert "no spool" in output_of("spool flush", code=2)
    leave(spool, explanations().to_record(), tracking_uri="http://127.0.0.1:9", timeout=0.5)
    said = output_of("spool flush", code=3)
    assert "left 1" in said
    assert "does not answer" in said


def test_a_problem_is_shown_until_it_is_over(
    mlflow_store: str, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: Any) -> Any:
        raise run.StoreDownError("the MLflow tracking server does not answer")

    logger = RunLogger()
    with process(spool) as other:
        with monkeypatch.context() as patch:
            patch.setattr(run, "client_of", down)
            assert logger.submit(explanations())
            assert not logger.flush()
            (waiting,) = other.waiting()
        assert (waiting.n_records, waiting.problem) == (
            1,
            "the MLflow tracking server does not answer",
        )
        assert logger.flush()
        assert other.waiting() == []


@pytest.mark.parametrize("step", ["plan", "deliver", "forget"])
def test_a_batch_that_is_on_its_way_waits_until_it_is_delivered(
    step: str, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender goes one step further while another process looks at its outbox."""
    from_name = outbox.Segment.from_name
    with process(spool) as sender, process(spool) as other:
        sender.append(writer(), explanations().to_record())
        own = sender.outbox
        assert own is not None
        stream = own.streams["left"]
        own.batch(stream)
        own.finish("left")

        def after_the_step(name: str) -> Any:
            segment = from_name(name)
            if segment is not None:
                monkeypatch.undo()
                if step == "plan":
                    own.plan(stream, 0)
                else:
                    own.delivered(stream)
                if step == "forget":
                    own.forget(stream)
            return segment

        monkeypatch.setattr(outbox.Segment, "from_name", after_the_step)
        waiting = other.waiting()
    n_records = [stream.n_records for stream in waiting]
    assert n_records == ([1] if step == "plan" else [])


def test_a_batch_whose_file_could_not_be_deleted_is_deleted_by_the_next_attempt(
    mlflow_store: str, tmp_path: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = os.unlink

    def fails(path: Any, *args: Any, **kwargs: Any) -> None:
        if str(path).endswith(".jsonl"):
            raise OSError(errno.EIO, "input/output error")
        unlink(path, *args, **kwargs)

    with process(spool) as own:
        own.append(writer(), explanations().to_record())
        sender = Shipper(own)
        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", fails)
            (waiting,) = sender.drain()
        assert waiting.problem is not None
        assert "OSError" in waiting.problem
        sender._pauses.clear()
        assert sender.drain() == []
    output_of("spool flush")
    assert delivered(tmp_path) == {"rows": 3, "runs": 1, "FINISHED": 1}


def test_a_batch_whose_place_was_not_forced_to_disk_gets_the_next_place(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    with process(spool) as own:
        own.append(writer(), explanations().to_record())
        assert own.outbox is not None
        stream = own.outbox.streams["left"]
        own.outbox.batch(stream)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fails)
            with pytest.raises(SpoolError, match="cannot be used"):
                own.outbox.plan(stream, 7)
        own.outbox.plan(stream, 8)
        (path,) = segments(spool)
        assert "-from-8." in path.name
        own.outbox.delivered(stream)
        assert not segments(spool)


def test_a_delivered_spool_is_empty(mlflow_store: str, spool: Path) -> None:
    logger = RunLogger()
    assert logger.submit(explanations())
    logger.finish()
    assert logger.flush()
    assert "Nothing waits" in output_of("spool flush")
    assert spool_folder() == spool


# --- a spool that disappears ----------------------------------------------------------------------


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
        with process(spool) as other:
            other.check()
    for _ in range(3):
        assert logger.submit(explanations()) == (on_full == "release")
    with pytest.raises(SpoolError, match="is gone, or another is in its place"):
        logger.check()
    assert "is gone, or another is in its place" in caplog.text
    if replaced:
        names = [path.name for path in spool.iterdir()]
        assert names == (["spool.json"] if replaced == "by another spool" else [])
        shutil.rmtree(spool)
    (tmp_path / "away").rename(spool)
    assert logger.submit(explanations())
    assert len(kept(spool)) == 2


def test_what_a_deleted_spool_held_is_still_sent(spool: Path, mlflow_store: str) -> None:
    logger = RunLogger()
    assert logger.submit(explanations())
    shutil.rmtree(spool)
    assert not logger.submit(explanations())
    assert logger.flush()
    assert mlflow.get_run(logger.run_id or "").data.metrics["cfk.asked"] == 3


def test_what_is_written_while_the_spool_goes_is_not_taken_as_kept(
    spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def moved(file: int) -> None:
        fsync(file)
        spool.rename(tmp_path / "away")

    with process(spool) as own:
        own.append(writer(), explanations().to_record())
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", moved)
            with pytest.raises(SpoolError, match="is gone"):
                own.append(writer(), explanations().to_record())
        assert len(kept(tmp_path / "away")) == 1


def test_what_was_kept_in_a_spool_that_was_moved_is_sent_once(
    spool: Path, mlflow_store: str, tmp_path: Path
) -> None:
    logger = RunLogger()
    assert logger.submit(explanations())
    spool.rename(tmp_path / "away")
    assert logger.flush()
    (tmp_path / "away").rename(spool)
    assert not kept(spool)
    assert logger.submit(explanations())
    assert logger.flush()
    assert mlflow.get_run(logger.run_id or "").data.metrics["cfk.asked"] == 6


def test_an_outbox_that_its_process_did_not_finish_is_removed(
    spool: Path, mlflow_store: str
) -> None:
    leave(spool, explanations().to_record())
    (spool / "outbox-1795000000000-00000000").mkdir()
    draft = spool / "outbox-1795000000000-11111111" / "draft"
    draft.parent.mkdir()
    draft.write_text("{")
    output_of("spool flush")
    assert [path.name for path in spool.iterdir()] == ["spool.json"]


@pytest.mark.parametrize(("module", "call"), [(os, "open"), (fcntl, "flock")])
def test_a_process_whose_new_outbox_another_one_removes_makes_the_next(
    module: Any, call: str, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(module, call)

    def after_removal(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        with process(spool) as other:
            assert len(list(other.outboxes())) == 1
        assert not list(spool.glob("outbox-*"))
        return real(*args, **kwargs)

    with process(spool) as own:
        own.check()
        monkeypatch.setattr(module, call, after_removal)
        own.append(writer(), explanations().to_record())
        assert len(kept(spool)) == 1
        assert len(list(spool.glob("outbox-*"))) == 1


@pytest.mark.parametrize("kind", ["another user's", "a file"])
def test_an_outbox_that_cannot_be_opened_is_shown_and_keeps_no_other_back(
    kind: str,
    spool: Path,
    mlflow_store: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    leave(spool, explanations().to_record())
    closed = spool / "outbox-0000000000001-00000000"
    if kind == "a file":
        closed.write_text("")
    else:
        closed.mkdir()
        # The superuser, who may run these tests, may open all folders.
        refuse_to_open(closed, monkeypatch)
    with process(spool) as other:
        for _ in range(2):
            (waiting,) = Shipper(other).drain()
    error = "NotADirectoryError" if kind == "a file" else "PermissionError"
    assert waiting.mark == closed.name
    assert waiting.problem == f"{closed.name} cannot be read ({error})"
    warnings = [line for line in caplog.messages if f"in {closed} cannot be sent" in line]
    assert len(warnings) == 1
    assert closed.name in output_of("spool flush", code=3).replace("\n", "")
    assert delivered(tmp_path)["rows"] == 3


def refuse_to_open(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody open or list a folder."""

    def refusing(real: Any) -> Any:
        def refuse(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            if isinstance(path, str | Path) and Path(path).name == folder.name:
                raise PermissionError(errno.EACCES, "permission denied")
            return real(path, *args, **kwargs)

        return refuse

    for name in ("open", "listdir", "scandir"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))


def test_a_spool_without_its_version_keeps_nothing(spool: Path) -> None:
    logger = RunLogger(tracking_uri=NOBODY)
    logger.check()
    (spool / "spool.json").unlink()
    assert not logger.submit(explanations())
    assert list(spool.iterdir()) == []


@pytest.mark.parametrize("deleted", ["everything", "the outbox"])
def test_a_folder_whose_files_were_deleted_keeps_nothing(spool: Path, deleted: str) -> None:
    logger = RunLogger(tracking_uri=NOBODY)
    assert logger.submit(explanations())
    for path in spool.glob("outbox-*"):
        shutil.rmtree(path)
    if deleted == "everything":
        (spool / "spool.json").unlink()
    assert not logger.submit(explanations())
    assert not RunLogger(tracking_uri=NOBODY, run_name="another").submit(explanations())


def test_a_spool_that_cannot_be_read_for_a_while_is_sent_later(
    spool: Path,
    mlflow_store: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(self: Spool) -> Any:
        raise SpoolError("the spool cannot be used")

    monkeypatch.setattr("cfk_plugin.records.shipper._FIRST_PAUSE", 0.01)
    logger = RunLogger()
    with monkeypatch.context() as patch:
        patch.setattr(Spool, "outboxes", broken)
        assert logger.submit(explanations())
        assert not logger.flush()
    assert "the spool cannot be sent: the spool cannot be used" in caplog.text
    assert logger.flush()
    assert mlflow.get_run(logger.run_id or "").data.metrics["cfk.asked"] == 3
