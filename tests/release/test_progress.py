"""A person who watches a terminal sees what takes long; no one else sees anything."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

WAITS = """
import time
from cfk_plugin.data import display
with display.doing("counting people"):
    time.sleep(0.2)
    with display.doing("finding answers"):
        display.advance(3, 10)
        time.sleep(0.2)
    time.sleep(0.2)
"""
FITS = """
import time
import pandas as pd
from cfk_plugin import Population, Schema, protect
table = pd.DataFrame({"age": range(60), "pay": [i % 30 for i in range(60)]})

def accept(rows):
    time.sleep(0.1)
    return rows["pay"] > 9

population = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age"]))
protect(None, model=accept, population=population, k=5, desired=True).explain(table.head(3))
"""
QUIET = {
    "pipe": WAITS,
    "thread": f"import threading; it = threading.Thread(target=exec, args=({WAITS!r}, {{}}))\n"
    "it.start(); it.join()",
    "loop": f"import asyncio\nasync def work(): exec({WAITS!r}, {{}})\nasyncio.run(work())",
    "process": "from joblib import Parallel, delayed\n"
    f"Parallel(2)(delayed(exec)({WAITS!r}, {{}}) for _ in range(2))",
}


def stderr_of(script: str, *, is_terminal: bool = True) -> str:
    """Return what a script writes to stderr."""
    screen, end = pty.openpty() if is_terminal else os.pipe()
    with subprocess.Popen([sys.executable, "-c", script], stderr=end) as process:
        os.close(end)
        text = b""
        try:
            while part := os.read(screen, 1 << 16):
                text += part
        except OSError:
            pass  # This is how Linux ends a terminal.
    os.close(screen)
    assert process.returncode == 0, text
    return text.decode()


def test_terminal_shows_the_stage() -> None:
    """With how far it is."""
    text = stderr_of(WAITS)
    assert text.index("counting people") < text.index("finding answers, 3 of 10")
    assert text.count("counting people") > 1, "the outer stage is shown again"


@pytest.mark.parametrize("place", QUIET)
def test_no_one_else_sees_progress(place: str) -> None:
    """A pipe, a thread, an event loop, another process."""
    assert stderr_of(QUIET[place], is_terminal=place != "pipe") == ""


def test_fit_names_its_stages() -> None:
    """Those that take long."""
    text = stderr_of(FITS)
    for stage in ("labelling the training rows", "finding answers for the catalogue", "explaining"):
        assert stage in text
