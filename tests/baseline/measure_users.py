"""Store what `tests/benchmarks/users.py` prints, in `users.json`.

    python tests/baseline/measure_users.py --data FOLDER [part ...]

Each part is stored as soon as it is measured; what is stored of the others stays. `FOLDER` holds
the tables of the published experiments.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from facts import REPOSITORY, environment, facts, store, stored

FILE = "users.json"
PARTS = ["first", "fit", "requests", "answers", "servers", "detection", "catalogue"]
SCRIPT = "tests/benchmarks/users.py"


def main() -> None:
    """Measure the parts that are asked for, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS)
    parser.add_argument("--data", type=Path, required=True)
    asked = parser.parse_args()
    for part in asked.parts:
        measured = measure(part, asked.data.resolve())
        parts = stored(FILE).get("parts", {})
        parts[part] = measured
        in_order = {name: parts[name] for name in PARTS if name in parts}
        store(FILE, facts() | {"parts": in_order})


def measure(part: str, data: Path) -> dict[str, Any]:
    """Run one part of the benchmark with its own settings, and return what it printed."""
    folders = [REPOSITORY, REPOSITORY / "adapters", REPOSITORY / "tests" / "servers"]
    path = os.pathsep.join(str(folder) for folder in folders)
    command = [sys.executable, SCRIPT, "--data", str(data), "--parts", part]
    started = time.monotonic()
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment(PYTHONPATH=path),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = time.monotonic() - started
    return facts() | {
        "command": f"python {SCRIPT} --data FOLDER --parts {part}",
        "seconds": round(seconds),
        "tables": tables_in(done.stdout),
    }


def tables_in(text: str) -> list[dict[str, Any]]:
    """Return the Markdown tables of a text: their columns, and their rows of cells."""
    tables = list[dict[str, Any]]()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    for place, line in enumerate(lines):
        if is_rule(line):
            # The line above is the heading, and was taken for a row of the table before.
            if tables:
                tables[-1]["rows"].pop()
            tables.append({"columns": cells_of(lines[place - 1]), "rows": []})
        elif tables:
            tables[-1]["rows"].append(cells_of(line))
    return tables


def is_rule(line: str) -> bool:
    """Say whether a line separates the heading of a table from its rows."""
    return set(line) <= set("|- ")


def cells_of(line: str) -> list[str]:
    """Return the cells of a row."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


if __name__ == "__main__":
    main()
