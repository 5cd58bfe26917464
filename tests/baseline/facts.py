"""What every stored measurement says of itself: when it was made, of which commit, on what machine.

Imported by the scripts beside it, which run as ``python tests/baseline/measure_….py``.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
REPOSITORY = FOLDER.parents[1]
MEASURED = ("cfk_plugin", "adapters")
"""Folders whose uncommitted changes make a commit a wrong answer to what was measured."""


def facts() -> dict[str, Any]:
    """Return date, commit and machine of a measurement that is made now."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "numba": version("numba"),
        },
    }


def commit() -> str:
    """Return the commit that is checked out, and say if the product differs from it."""
    checked_out = printed("git", "rev-parse", "--short=12", "HEAD")
    changes = printed("git", "status", "--porcelain", "--", *MEASURED)
    if changes:
        return f"{checked_out} and uncommitted changes"
    return checked_out


def printed(*command: str) -> str:
    """Return what a command prints in the repository."""
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def environment(**changes: str) -> dict[str, str]:
    """Return an environment in which this checkout is imported, wherever the package is installed
    from.
    """
    paths = [str(REPOSITORY), str(REPOSITORY / "adapters")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **changes}


def stored(name: str) -> dict[str, Any]:
    """Return what is stored under a name; nothing if there is no such file yet."""
    path = FOLDER / name
    if not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def store(name: str, content: dict[str, Any]) -> None:
    """Write a file, and say so."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (FOLDER / name).write_text(f"{text}\n", encoding="utf-8")
    print(f"tests/baseline/{name}")
