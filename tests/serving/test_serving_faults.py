"""Servers while things break: nothing raw leaves, and after recovery no record is lost or there
twice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import mlflow
import pytest

from model_server import K, Server, logged, patients, serving, store
from parts import rows_of
from tracking_server import TrackingServer, tracking_server

pytestmark = pytest.mark.slow

PATIENT = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "3", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
SECRETS = tuple(f"SENTINEL{i:03d}" for i in range(60)) + tuple(
    str(pay) for pay in patients()["pay"]
)


def body(*ages: int) -> dict[str, Any]:
    rows = [
        {"age": age, "town": "Ghent", "pay": 1_000_500, "illness": "a cold"}
        for age in ages or (40,)
    ]
    return {"dataframe_records": rows}


def answered(server: Server, *ages: int) -> list[dict[str, Any]]:
    """Ask, check that nothing raw is in the answer, and return the records; none when it was
    refused.
    """
    status, text = server.post(body(*ages))
    records = json.loads(text).get("predictions", {}).get("explanations", [])
    released = [record for record in records if record["status"] == "released"]
    if not released:
        assert not [secret for secret in SECRETS if secret in text]
    assert all(record["certificate"]["k"] >= K for record in released)
    assert "Traceback" not in text
    return records if status == 200 else []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where servers of this test write their journals: their working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def journals_in(folder: Path) -> list[str]:
    return sorted(map(str, folder.glob("cfk-journal-*.jsonl")))


@contextmanager
def tracked(folder: Path, tracking: TrackingServer, **options: Any) -> Iterator[Server]:
    """Serve a protected model from its files, with the tracking server's address in the
    environment.
    """
    uri = store(folder)
    with mlflow.start_run():
        local = mlflow.artifacts.download_artifacts(
            logged(track=True, most=50, **options).model_uri, dst_path=str(folder / "model")
        )
    command = ["mlflow", "models", "serve", "-m", local, "--env-manager", "local"]
    there = {"MLFLOW_TRACKING_URI": tracking.url, "MLFLOW_EXPERIMENT_ID": ""}
    with serving(folder, uri, command, **PATIENT, **there) as server:
        yield server


def send(folder: Path) -> int:
    """Send the journals in a folder, and return the exit code."""
    command = [sys.executable, "-m", "cfk_plugin.cli", "track", *journals_in(folder)]
    return subprocess.run(command, env=os.environ | PATIENT, check=False).returncode


def rows_in(tracking: TrackingServer) -> int:
    """Count the records that the tracking server has; fail on one that is there twice."""
    client = mlflow.MlflowClient(tracking.url)
    count = 0
    for run in client.search_runs(["0"]):
        if "cfk.asked" not in run.data.metrics:
            continue
        rows = rows_of(run.info.run_id, tracking.url)
        assert sorted(rows["step"]) == list(range(len(rows)))
        assert run.data.metrics["cfk.asked"] == len(rows)
        assert run.data.metrics["cfk.k_min"] >= K
        count += len(rows)
    return count


def test_tracking_server_that_was_down_has_each_record_once(folder: Path) -> None:
    """It was never there, comes, is stopped while requests come in, and comes again."""
    with tracking_server(folder) as tracking, tracked(folder, tracking) as server:
        n_answers = sum(len(answered(server, 25 + i, 40)) for i in range(5))
        assert n_answers == 10
        tracking.start()
        wait_until_sent(folder)
        assert rows_in(tracking) == n_answers
        threading.Timer(0.3, tracking.kill).start()
        for i in range(30):
            n_answers += len(answered(server, 25 + i))
        assert n_answers == 40
        tracking.start()
        wait_until_sent(folder)
        assert rows_in(tracking) == n_answers


def wait_until_sent(folder: Path) -> None:
    end = time.monotonic() + 120
    while journals_in(folder):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_killed_server_has_recorded_what_left(folder: Path) -> None:
    """One record for each thread may be of an answer that did not leave."""
    with tracking_server(folder) as tracking, tracked(folder, tracking) as server:
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(answered_or_gone, server, 25 + i % 30) for i in range(100)]
            while sum(done.done() for done in asked) < 30:
                time.sleep(0.01)
            os.killpg(server.process.pid, signal.SIGKILL)
            n_answers = sum(done.result() for done in asked)
        tracking.start()
        assert send(folder) == 0
        assert n_answers <= rows_in(tracking) <= n_answers + 4


def answered_or_gone(server: Server, age: int) -> int:
    try:
        return len(answered(server, age))
    except (OSError, HTTPException):  # refused, or cut off while the answer was on its way
        return 0


def test_strict_server_withholds_what_is_not_recorded(folder: Path) -> None:
    """Its working folder is gone, as a disk may be."""
    there = folder / "work"
    there.mkdir()
    os.chdir(there)
    with tracking_server(folder) as tracking, tracked(folder, tracking, strict=True) as server:
        there.rmdir()
        assert [record["reason"] for record in answered(server, 40, 50)] == ["not_recorded"] * 2
        there.mkdir()
        assert [record["status"] for record in answered(server, 40)] == ["released"]
        assert "SENTINEL" not in server.console.read_text()
        tracking.start()
        wait_until_sent(there)
        assert rows_in(tracking) == 1
