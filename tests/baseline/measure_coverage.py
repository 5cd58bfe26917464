"""Store which branches the fast tests take, per module, in `branch_coverage.json`.

    make coverage
    python tests/baseline/measure_coverage.py

The first command leaves its data in `.coverage`, and the second reads them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from facts import REPOSITORY, facts, store

PACKAGE = "cfk_plugin/"


def main() -> None:
    """Read what `make coverage` measured, and store it."""
    files = measured_files()
    modules = {path: row_of(files[path]) for path in sorted(files) if path.startswith(PACKAGE)}
    if not modules:
        raise SystemExit("no module was measured: run `make coverage` first")
    content = facts() | {
        "command": "make coverage",
        "total": total_of(list(modules.values())),
        "modules": modules,
    }
    store("branch_coverage.json", content)


def measured_files() -> dict[str, dict[str, int]]:
    """Return the counts of each measured file, by its path in the repository."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coverage.json"
        command = [sys.executable, "-m", "coverage", "json", "--quiet", "-o", str(path)]
        subprocess.run(command, cwd=REPOSITORY, check=True)
        report = json.loads(path.read_text(encoding="utf-8"))
    return {name: each["summary"] for name, each in report["files"].items()}


def row_of(summary: dict[str, int]) -> dict[str, Any]:
    """Return the counts of a module in the words of the README."""
    branches = summary["num_branches"]
    taken = summary["covered_branches"]
    return {
        "branches": branches,
        "taken": taken,
        "share": share_of(taken, branches),
        "lines": summary["num_statements"],
        "lines_run": summary["covered_lines"],
    }


def total_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of all modules."""
    branches = sum(row["branches"] for row in rows)
    taken = sum(row["taken"] for row in rows)
    return {
        "branches": branches,
        "taken": taken,
        "share": share_of(taken, branches),
        "lines": sum(row["lines"] for row in rows),
        "lines_run": sum(row["lines_run"] for row in rows),
    }


def share_of(taken: int, branches: int) -> float | None:
    """Return a share, or None of nothing."""
    if not branches:
        return None
    return round(taken / branches, 4)


if __name__ == "__main__":
    main()
