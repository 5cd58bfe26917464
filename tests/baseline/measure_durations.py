"""Store how long compiling and, if asked for, all tests take, in `durations.json`.

    python tests/baseline/measure_durations.py [--suite]

Kernels are compiled three times into an empty folder. With ``--suite`` also `make test` and
`.ci/run` run once each, in about three quarters of an hour.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from facts import REPOSITORY, environment, facts, store, stored

FILE = "durations.json"
RUNS = 3
WARM_UP = [sys.executable, "-m", "cfk_plugin.cli", "warm-up"]
SUITE = {"make test": ["make", "test"], ".ci/run": [".ci/run"]}


def main() -> None:
    """Measure, and keep what is stored of what is not measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", action="store_true")
    asked = parser.parse_args()
    durations = stored(FILE).get("durations", {})
    durations |= kernels()
    if asked.suite:
        for name, command in SUITE.items():
            durations[name] = described(name, [timed(command)])
    store(FILE, facts() | {"durations": durations})


def kernels() -> dict[str, Any]:
    """Return what `cfk warm-up` takes, first where no kernel is kept and then where all are."""
    empty = list[tuple[float, float]]()
    full = list[tuple[float, float]]()
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            # The only folder of kernels that is looked at, if it is named and can be written to.
            empty.append(timed(WARM_UP, NUMBA_CACHE_DIR=folder))
            full.append(timed(WARM_UP, NUMBA_CACHE_DIR=folder))
    command = "NUMBA_CACHE_DIR=FOLDER cfk warm-up"
    return {
        "warm-up, no kernel kept": described(command, empty),
        "warm-up, all kernels kept": described(command, full),
    }


def timed(command: list[str], **variables: str) -> tuple[float, float]:
    """Return the seconds that a command takes by the clock, and those of the processor."""
    spent = processor_seconds()
    started = time.monotonic()
    told = environment(**variables)
    subprocess.run(command, cwd=REPOSITORY, env=told, stdout=subprocess.DEVNULL, check=True)
    seconds = time.monotonic() - started
    return seconds, processor_seconds() - spent


def processor_seconds() -> float:
    """Return the processor seconds of all child processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def described(command: str, runs: list[tuple[float, float]]) -> dict[str, Any]:
    """Return all runs of a command and their medians, with what was measured."""
    seconds = [round(by_clock, 1) for by_clock, _ in runs]
    of_processor = [round(spent, 1) for _, spent in runs]
    return facts() | {
        "command": command,
        "seconds": seconds,
        "median": statistics.median(seconds),
        "processor_seconds": of_processor,
        "processor_median": statistics.median(of_processor),
    }


if __name__ == "__main__":
    main()
