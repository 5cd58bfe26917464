"""Processes that spend one budget at the same time and get killed: never more is allowed than there is."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

import budget_workload
from cfk_plugin import Ledger
from cfk_plugin.records.budget import Budget, accounts

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="starts its workers with fork")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.mark.parametrize(
    ("processes", "kills"),
    [pytest.param(3, 2, id="3-processes"), pytest.param(8, 10, id="8-processes", marks=pytest.mark.slow)],
)
def test_no_more_is_spent_than_there_is(
    url: str, processes: int, kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFK_LEDGER_KEY", secrets.token_hex(32))
    folder = tmp_path / "spent"
    folder.mkdir()
    command = [sys.executable, budget_workload.__file__, url, str(folder), str(processes), str(kills)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # fork wants no threads
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [path.read_text() for path in folder.glob("*.failed")] == []
    allowed = sum(path.read_bytes().count(b"\n") for path in folder.glob("*.txt"))
    killed = int(done.stdout)
    print(f"{allowed} spends were answered; {killed} processes killed")
    # A process that was killed may have spent and not told; it never told without having spent.
    assert budget_workload.SPENDS - killed <= allowed <= budget_workload.SPENDS
    with Ledger(url) as ledger:
        ledger.verify()
        (account,) = accounts(ledger)
    assert len(account.spends) == budget_workload.SPENDS
    assert (account.spent, account.left) == (Budget(15.0, 0.0), Budget(0.0, 0.0))
