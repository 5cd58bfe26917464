"""Processes that share a ledger and get killed: nothing leaves that breaks the rule or is not on
record.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ledger_workload
from cfk_plugin.records.ledger import Ledger

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="starts its workers with fork")


def run(
    url: str, folder: Path, processes: int, releases: int, kills: int = 0
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Let the workload run in a process of its own, which forks; return what was released and how
    it went.
    """
    folder.mkdir()
    command = [
        sys.executable,
        ledger_workload.__file__,
        url,
        str(folder),
        str(processes),
        str(releases),
        str(kills),
    ]
    done = subprocess.run(
        command,
        # fork wants no threads
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return ledger_workload.released(folder), json.loads(done.stdout)


@pytest.mark.parametrize(
    ("processes", "releases", "kills"),
    [
        pytest.param(2, 200, 8, id="2-processes"),
        pytest.param(8, 1500, 60, id="8-processes", marks=pytest.mark.slow),
    ],
)
def test_rule_holds_whatever_is_killed(
    url: str, processes: int, releases: int, kills: int, tmp_path: Path
) -> None:
    lines, report = run(url, tmp_path / "released", processes, releases, kills)
    assert not report["failed"], report["failed"][0]
    print(report | {"outcomes": Counter(line["outcome"] for line in lines)})
    assert report["kills"] == kills
    assert len(lines) >= releases
    assert {"new", "again", "earlier"} <= {line["outcome"] for line in lines}
    assert ledger_workload.violations(lines) == []
    with Ledger(url) as ledger:
        assert ledger_workload.unrecorded(lines, ledger) == []
        assert ledger_workload.unconnected(ledger) == 0
        assert ledger.verify().entries >= ledger.status().releases > 0


def test_without_a_ledger_the_same_releases_break_the_rule(tmp_path: Path) -> None:
    lines, report = run("none", tmp_path / "released", 2, 400)
    assert not report["failed"]
    wrong = ledger_workload.violations(lines)
    print(f"{len(wrong)} of {len({line['record'] for line in lines})} records")
    assert len(wrong) > 10
