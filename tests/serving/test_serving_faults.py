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

from cfk_plugin.records.spool import Spool, SpoolSettings
from model_server import K, Server, logged, patients, serving, store
from parts import tables_of
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
    records = json.loads(text).get("predictions", [])
    released = [record for record in records if record["status"] == "released"]
    if not released:
        assert not [secret for secret in SECRETS if secret in text]
    assert all(record["k"] >= K for record in released)
    assert "Traceback" not in text
    return records if status == 200 else []


@contextmanager
def tracked(folder: Path, tracking: TrackingServer) -> Iterator[Server]:
    """Serve a protected model from its files, with the tracking server's address in the
    environment.
    """
    uri = store(folder)
    with mlflow.start_run():
        local = mlflow.artifacts.download_artifacts(
            logged(track=True, most=50).model_uri, dst_path=str(folder / "model")
        )
    command = ["mlflow", "models", "serve", "-m", local, "--env-manager", "local"]
    spool = str(folder / "spool")
    there = {"MLFLOW_TRACKING_URI": tracking.url, "MLFLOW_EXPERIMENT_ID": ""}
    with serving(folder, uri, command, **PATIENT, CFK_SPOOL=spool, **there) as server:
        yield server


def flush(folder: Path) -> int:
    env = os.environ | PATIENT | {"CFK_SPOOL": str(folder / "spool")}
    return subprocess.run(
        [sys.executable, "-m", "cfk_plugin.cli", "spool", "flush"], env=env, check=False
    ).returncode


def wait_until_empty(folder: Path) -> None:
    reader = Spool(SpoolSettings(folder / "spool"))
    for _ in range(180):
        if not (waiting := reader.waiting()):
            return
        time.sleep(0.5)
    pytest.fail(f"records still wait: {waiting}")


def rows_in(tracking: TrackingServer, folder: Path) -> int:
    """Count the records that the tracking server has; fail on one that is there twice."""
    client = mlflow.MlflowClient(tracking.url)
    count = 0
    for run in client.search_runs(["0"]):
        if "cfk.asked" not in run.data.metrics:
            continue
        target = folder / "downloaded" / run.info.run_id / str(time.monotonic_ns())
        target.mkdir(parents=True)
        path = client.download_artifacts(run.info.run_id, "cfk/explanations", str(target))
        rows = tables_of(Path(path).glob("part-*.jsonl.gz"))
        assert sorted(rows["step"]) == list(range(len(rows)))
        assert run.data.metrics["cfk.asked"] == len(rows)
        assert run.data.metrics["cfk.k_min"] >= K
        count += len(rows)
    return count


def test_a_tracking_server_that_is_down_dies_and_hangs_and_a_model_server_that_is_killed(
    tmp_path: Path,
) -> None:
    given = 0
    with tracking_server(tmp_path) as tracking, tracked(tmp_path, tracking) as server:
        given += sum(len(answered(server, 25 + i, 40)) for i in range(5))  # it was never there
        assert given == 10
        assert Spool(SpoolSettings(tmp_path / "spool")).waiting()
        tracking.start()
        wait_until_empty(tmp_path)
        assert rows_in(tracking, tmp_path) == given

        for fault in ("kill", "hang"):  # while requests are coming in
            threading.Timer(0.3, getattr(tracking, fault)).start()
            for i in range(30):
                given += len(answered(server, 25 + i))
                time.sleep(0.03)
            tracking.start() if fault == "kill" else tracking.go_on()
            wait_until_empty(tmp_path)
            assert rows_in(tracking, tmp_path) == given

        tracking.hang()
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(answered_or_gone, server, 25 + i % 30) for i in range(200)]
            while sum(done.done() for done in asked) < 60:
                time.sleep(0.01)
            os.killpg(server.process.pid, signal.SIGKILL)
            known = sum(done.result() for done in asked)
        tracking.go_on()
        assert flush(tmp_path) == 0
        assert known >= 60
        # kept, and killed before it left
        assert given + known <= rows_in(tracking, tmp_path) <= given + known + 4


def answered_or_gone(server: Server, age: int) -> int:
    try:
        return len(answered(server, age))
    except (OSError, HTTPException):  # refused, or cut off while the answer was on its way
        return 0


def test_a_full_disk_withholds_and_loses_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "spool"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        with tracking_server(tmp_path) as tracking, tracked(tmp_path, tracking) as server:
            (disk / "ballast").write_bytes(b"x" * 700_000)
            given, records = 0, answered(server, *range(25, 45))
            while records[0]["status"] == "released":
                given += len(records)
                records = answered(server, *range(25, 45))
            assert {record["reason"] for record in records} == {"not_recorded"}
            (disk / "ballast").unlink()
            given += len(answered(server, 40))
            tracking.start()
            wait_until_empty(tmp_path)
            assert rows_in(tracking, tmp_path) == given > 20
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
