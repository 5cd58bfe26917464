"""Running a function many times in two worlds, and saying beforehand how long that takes."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.epsilon.statistic import Statistic
from cfk_plugin.audit.epsilon.worlds import Worlds
from cfk_plugin.errors import InputError, quiet
from cfk_plugin.hookspecs import Progress

Fit = Callable[..., Any]
"""From a table to an output. Where it has a parameter ``random_state``, every run gives it another whole number."""

Backend = Literal["auto", "processes", "threads"]
"""Where runs are made at the same time. A generator that a function carries would be copied into every process, and
runs that draw the same numbers look like a leak. So "auto" takes processes for functions with a parameter
``random_state`` alone, and threads for others; "processes" is for those that draw from the operating system."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Jobs:
    """How runs are made at the same time.

    Attributes
    ----------
    n_jobs : int
        1 runs one after the other in this thread, -1 on all cores.
    backend : {"auto", "processes", "threads"}
    seed : int
        Of ``random_state``.

    Raises
    ------
    InputError
        If `n_jobs` is 0 or no whole number, or the backend is unknown.
    """

    n_jobs: int = 1
    backend: Backend = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the settings before anything runs."""
        if not isinstance(self.n_jobs, int) or self.n_jobs == 0:
            raise InputError("n_jobs must be a whole number other than 0; -1 takes all cores")
        if self.backend not in get_args(Backend):
            raise InputError(f"backend must be one of {', '.join(get_args(Backend))}")


def measure(
    fit: Fit,
    statistic: Statistic,
    worlds: Worlds,
    runs: int,
    jobs: Jobs | None = None,
    progress: Progress | None = None,
) -> tuple[list[Floats], list[Floats]]:
    """Run the function in both worlds in turn and return one vector per run.

    Parameters
    ----------
    fit : callable
    statistic : Statistic
        Applied where the run was, so that outputs are not kept.
    worlds : Worlds
    runs : int
        In each world.
    jobs : Jobs, optional
    progress : callable, optional
        Called with (done, total) runs.

    Returns
    -------
    tuple of two lists of arrays
        With the canary, and without it.

    Raises
    ------
    InputError
        If the function or the score fails; the message holds the class of the exception alone.
    """
    jobs, total = jobs or Jobs(), 2 * runs
    seeds = np.random.SeedSequence(jobs.seed).generate_state(total, np.uint32) if takes_seed(fit) else [None] * total
    tables = (worlds.inside, worlds.outside)
    tasks = ((fit, statistic, tables[at % 2], None if s is None else int(s)) for at, s in enumerate(seeds))
    found: list[Floats] = []
    for vector in _done(tasks, jobs.n_jobs, _where(jobs.backend, fit, statistic)):
        found.append(vector)
        if progress is not None:
            progress(len(found), total)
    return found[::2], found[1::2]


def seconds_needed(fit: Fit, worlds: Worlds, runs: int, *, n_jobs: int = 1) -> float:
    """Time one run in each world and return how many seconds `runs` in each would take.

    Parameters
    ----------
    fit : callable
    worlds : Worlds
    runs : int
    n_jobs : int
        Each is taken for a core of its own.

    Returns
    -------
    float
        A guess: first runs are slower than later ones, and scores come on top.
    """
    from joblib import effective_n_jobs

    started = time.perf_counter()
    for table in (worlds.inside, worlds.outside):
        run(fit, table, 0 if takes_seed(fit) else None)
    return (time.perf_counter() - started) * runs / int(effective_n_jobs(n_jobs))


def run(fit: Fit, table: pd.DataFrame, seed: int | None) -> Any:
    """Run the function once, on a copy of the table.

    Raises
    ------
    InputError
        If it fails. The error has no context: text and context may quote rows.
    """
    with quiet("the audited function failed ({}); run it on the table by hand to see why", InputError):
        return fit(table.copy()) if seed is None else fit(table.copy(), random_state=seed)


def takes_seed(fit: Fit) -> bool:
    """Say whether a function has a parameter ``random_state``."""
    try:
        return "random_state" in inspect.signature(fit).parameters
    except (TypeError, ValueError):
        return False


def _once(fit: Fit, statistic: Statistic, table: pd.DataFrame, seed: int | None) -> Floats:
    return statistic(run(fit, table, seed))


def _done(tasks: Iterable[tuple[Any, ...]], n_jobs: int, where: str) -> Iterable[Floats]:
    if n_jobs == 1:
        return (_once(*task) for task in tasks)
    from joblib import Parallel, delayed

    # Without max_nbytes=None, joblib would write large tables to the disk to hand them over.
    pool = Parallel(n_jobs, backend=where, return_as="generator", max_nbytes=None)
    done: Iterable[Floats] = pool(delayed(_once)(*task) for task in tasks)
    return done


def _where(backend: Backend, fit: Fit, statistic: Statistic) -> str:
    """Return joblib's name of where to run: in processes where that was asked for, or is sure to be right."""
    if backend == "threads" or (backend == "auto" and not takes_seed(fit)):
        return "threading"
    import cloudpickle

    try:
        with quiet("the function cannot be pickled ({})", InputError):
            cloudpickle.dumps((fit, statistic))
    except InputError:
        return "threading"
    return "loky"
