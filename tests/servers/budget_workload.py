"""Processes that spend one budget until nothing is left, some of them killed while they do.

Run as a program: ``python budget_workload.py FILE FOLDER PROCESSES KILLS``; it prints how often it
killed. Each process writes what it was allowed to a file of its own, after it was.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

from cfk_plugin import BudgetAccountant
from cfk_plugin.errors import BudgetError

CEILING, EPSILON = 15.0, 0.1
SPENDS = 150


def spend(accountant: BudgetAccountant, out: Path) -> None:
    """Spend until nothing is left."""
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    while True:
        try:
            accountant.spend(EPSILON, what="fit")
        except BudgetError as error:
            if "nothing was spent" not in str(error):
                raise
            return
        os.write(file, b"fit\n")
        os.fsync(file)


def start(path: str, shared: BudgetAccountant, folder: Path, number: int) -> int:
    """Fork a process; every other one uses what its parent had opened."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        accountant = BudgetAccountant(CEILING, path=path) if number % 2 else shared
        spend(accountant, folder / f"{number}.txt")
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the test shows it
        (folder / f"{number}.failed").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def run(path: str, folder: Path, processes: int, kills: int) -> int:
    """Keep so many processes at work until nothing is left; return how many were killed."""
    rng = random.Random(0)
    shared = BudgetAccountant(CEILING, path=path)
    alive = [start(path, shared, folder, number) for number in range(processes)]
    killed = 0
    for number in range(processes, processes + kills):
        time.sleep(rng.uniform(0.02, 0.15))
        victim = alive.pop(rng.randrange(len(alive)))
        os.kill(victim, signal.SIGKILL)
        killed += os.WIFSIGNALED(os.waitpid(victim, 0)[1])  # it may have been done
        alive.append(start(path, shared, folder, number))
    for process in alive:
        os.waitpid(process, 0)
    return killed


if __name__ == "__main__":
    print(run(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
