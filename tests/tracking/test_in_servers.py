"""In a server, a record is in the journal before the answer leaves, and a thread sends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pytest

from cfk_plugin.errors import UntrackedWarning
from cfk_plugin.tracking.logger import RunLogger
from commands import output_of
from parts import rows_of
from tracked import explanations, journaled, measured
from tracking_server import TrackingServer, tracking_server

PATHS = [str(Path(__file__).parents[1] / "helpers"), str(Path(__file__).parents[2])]
HASTY = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "2", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}

# A server process: it prints a number after each record that is kept, and goes on until it ends.
SERVER = """
import sys, time
sys.path[:0] = {paths!r}
from tracked import measured
from cfk_plugin.tracking.logger import RunLogger
logger = RunLogger(experiment="served", in_server=True, strict=True)
for number in range(1, {n} + 1):
    assert logger.submit(measured())
    print(number, flush=True)
    time.sleep({pause})
time.sleep(60)
"""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let MLflow give up soon."""
    for name, value in HASTY.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def journals_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("journal-*.jsonl"))


def wait_until(is_true: Callable[[], Any], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.02)


def logged_rows(tracking_uri: str) -> int:
    """Return how many explanations there are, after checking that none is missing or double."""
    client = mlflow.MlflowClient(tracking_uri)
    experiment = client.get_experiment_by_name("served")
    n_rows = 0
    for run in client.search_runs([experiment.experiment_id]):
        rows = rows_of(run.info.run_id, tracking_uri)
        assert sorted(rows["step"]) == list(range(len(rows)))
        assert run.data.metrics["cfk.asked"] == len(rows)
        n_rows += len(rows)
    return n_rows


def taken_in(folder: Path, n: int) -> list[Path]:
    """Return the journals after the threads have begun to send them, and renamed them."""
    wait_until(lambda: len(list(folder.glob("journal-*-taken.jsonl"))) == n)
    return sorted(folder.glob("journal-*-taken.jsonl"))


# --- within a process ---


def test_thread_sends_the_journal(mlflow_store: str, tmp_path: Path) -> None:
    """The journal is gone when all of its records are in MLflow."""
    logger = RunLogger(experiment="served", journal=tmp_path / "journal.jsonl", in_server=True)
    for _ in range(5):
        assert logger.submit(measured())
    wait_until(lambda: not journals_in(tmp_path))
    assert logged_rows(mlflow_store) == 15


def test_record_comes_before_the_answer(tmp_path: Path) -> None:
    """No answer waits for MLflow, which accepts a connection here and never answers."""
    journal = tmp_path / "journal.jsonl"
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        uri = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        logger = RunLogger(tracking_uri=uri, journal=journal, in_server=True, timeout=30)
        assert logger.submit(explanations())
        assert journals_in(tmp_path)
        path = taken_in(tmp_path, 1)[0]
        assert len(journaled(path)) == 1
        assert path.stat().st_mode & 0o777 == 0o600
        path.unlink()  # so that the thread does not try again


def test_each_logger_has_its_own_journal(tmp_path: Path) -> None:
    """Two servers in one folder do not take away each other's records."""
    for _ in range(2):
        uri = "http://127.0.0.1:9"
        journal = tmp_path / "journal.jsonl"
        assert RunLogger(tracking_uri=uri, journal=journal, in_server=True).submit(explanations())
    for path in taken_in(tmp_path, 2):
        assert len(journaled(path)) == 1
        path.unlink()


@pytest.mark.parametrize("is_strict", [False, True])
def test_unwritable_journal_is_a_loss(is_strict: bool, mlflow_store: str, tmp_path: Path) -> None:
    """As on a full disk: strict=True withholds, otherwise there is one warning and a count."""
    folder = tmp_path / "gone"
    logger = RunLogger(
        experiment="served", journal=folder / "journal.jsonl", in_server=True, strict=is_strict
    )
    with pytest.warns(UntrackedWarning, match="there is no record") as caught:
        may_leave = [logger.submit(measured()) for _ in range(2)]
    assert may_leave == [not is_strict] * 2
    assert len(caught) == 1
    folder.mkdir()
    assert logger.submit(measured())
    wait_until(lambda: not journals_in(folder))
    (run,) = mlflow.search_runs(experiment_names=["served"], output_format="list")
    assert run.data.metrics["cfk.asked"] == 3
    assert run.data.metrics["cfk.untracked"] == (0 if is_strict else 4)


FULL_DISK = """
import resource, signal, sys, warnings
sys.path[:0] = {paths!r}
from tracked import explanations
from cfk_plugin.tracking.logger import RunLogger
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
warnings.simplefilter("ignore")
uri = "http://127.0.0.1:9"
for in_server in (False, True):
    logger = RunLogger(tracking_uri=uri, in_server=in_server, strict=True, journal=f"{{in_server}}.jsonl")
    resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, 6_000))
    print([logger.submit(explanations()) for _ in range(10)])
"""


def test_full_disk_withholds(tmp_path: Path) -> None:
    """The journal has exactly what was released, after a line that did not fit."""
    command = [sys.executable, "-c", FULL_DISK.format(paths=PATHS)]
    output = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    for name, answers in zip(("False", "True"), output.stdout.splitlines(), strict=True):
        released = [word == "True" for word in answers.strip(" []").split(", ")]
        assert released[0]
        assert not released[-1]
        text = "".join(path.read_text() for path in tmp_path.glob(f"{name}*"))
        assert text.count("\n") == sum(released)


# --- real processes, and MLflow over HTTP ---


def serve(folder: Path, tracking: TrackingServer, n: int, pause: float) -> subprocess.Popen[str]:
    """Start a process that keeps records as a server does."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVER.format(paths=PATHS, n=n, pause=pause)],
        cwd=folder,
        env=os.environ | HASTY | {"MLFLOW_TRACKING_URI": tracking.url},
        stdout=subprocess.PIPE,
        text=True,
    )


def read_until(process: subprocess.Popen[str], number: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip().isdigit() and int(line) >= number:  # MLflow prints lines, too
            return
    raise AssertionError("the process ended")


def kill(process: subprocess.Popen[str]) -> int:
    """Kill a process, and return how many records it had kept."""
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    return max([int(word) for word in rest.split() if word.isdigit()], default=0)


def in_journals(folder: Path) -> list[Path]:
    return sorted(folder.glob("cfk-journal-*.jsonl"))


@pytest.mark.slow
def test_killed_process_loses_nothing(hasty: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is killed while its thread sends; `cfk track` sends the rest, and nothing twice."""
    with tracking_server(tmp_path) as tracking:
        tracking.start()
        process = serve(tmp_path, tracking, n=400, pause=0.005)
        read_until(process, 50)
        n_kept = max(50, kill(process))
        assert in_journals(tmp_path)
        for _ in range(2):
            output_of("track", *in_journals(tmp_path))
        # One more may have been on its way.
        assert 3 * n_kept <= logged_rows(tracking.url) <= 3 * n_kept + 3


@pytest.mark.slow
def test_failing_server_has_each_record_once(hasty: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It hangs and goes on, is killed and starts again, while records come; none waits for it."""
    with tracking_server(tmp_path) as tracking:
        tracking.start()
        process = serve(tmp_path, tracking, n=120, pause=0.02)
        read_until(process, 30)
        tracking.hang()
        read_until(process, 60)
        assert in_journals(tmp_path)
        tracking.go_on()
        read_until(process, 90)
        tracking.kill()
        read_until(process, 120)
        assert in_journals(tmp_path)
        tracking.start()
        wait_until(lambda: not in_journals(tmp_path), seconds=120)
        kill(process)
        assert logged_rows(tracking.url) == 360
