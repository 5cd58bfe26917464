"""Stored lists of what users meet at the product's edges, and how today's list is compared."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

STORED = Path(__file__).parent / "stored"
REGENERATE = "EDGES_REGENERATE"
"""Environment variable that makes `assert_as_stored` write the lists; see `regenerate.py`."""


def read_stored(name: str) -> list[str]:
    """Return the lines of a stored list; none if there is no such file."""
    path = STORED / name
    if not path.exists():
        return []
    return path.read_text(encoding="utf-8").splitlines()


def differences(stored: Sequence[str], current: Sequence[str]) -> list[str]:
    """Return one line for each entry that appeared, disappeared, or moved."""
    appeared = [f"  appeared:    {line}" for line in current if line not in stored]
    disappeared = [f"  disappeared: {line}" for line in stored if line not in current]
    if appeared or disappeared:
        return appeared + disappeared
    for position, (before, after) in enumerate(zip(stored, current, strict=False), start=1):
        if before != after:
            return [f"  line {position} was: {before}", f"  line {position} is:  {after}"]
    if len(stored) != len(current):
        return [f"  the number of lines was {len(stored)} and is {len(current)}"]
    return []


def assert_as_stored(name: str, current: Sequence[str]) -> None:
    """Fail with the entries that appeared and disappeared unless a list equals the stored one."""
    if os.environ.get(REGENERATE):
        STORED.mkdir(exist_ok=True)
        (STORED / name).write_text("".join(f"{line}\n" for line in current), encoding="utf-8")
        return
    changes = differences(read_stored(name), current)
    if changes:
        advice = "If this is intended, run: python tests/frozen/edges/regenerate.py"
        raise AssertionError("\n".join([f"tests/frozen/edges/stored/{name}:", *changes, advice]))
