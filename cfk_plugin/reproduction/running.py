"""Measuring many pieces: one table after another, or several tables in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, NamedTuple

from cfk_plugin.reproduction.measuring.certificates import measure
from cfk_plugin.reproduction.measuring.choices import measure_candidates
from cfk_plugin.reproduction.measuring.distances import measure_distances
from cfk_plugin.reproduction.outcome import Measurement, Setting
from cfk_plugin.reproduction.piece import Piece
from cfk_plugin.reproduction.preparing import Prepared, prepare
from cfk_plugin.reproduction.tables.loading import load
from cfk_plugin.reproduction.tables.table import Table
from cfk_plugin.reproduction.workspace import Workspace

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

_LIBRARIES = ("cfk-plugin", "numpy", "pandas", "scikit-learn", "numba", "NICEx")


class Event(NamedTuple):
    """What a worker tells: a piece is done, with so many explanations; without seconds it was known before."""

    piece: Piece
    asked: int
    seconds: float | None


Told = Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where tables come from and how they are explained; the same for all of them.

    Attributes
    ----------
    data : Path, optional
        Folder of tables; without it OpenML is asked.
    cache : Path, optional
        Where OpenML's answers are kept.
    workspace : Path
    seed : int
    grid : {"small", "paper"}
    explainer : {"nice", "nearest"}
    limit : int
        Most explanations of a table.
    effective : int
        Of how many the effective k is measured.
    """

    data: Path | None
    cache: Path | None
    workspace: Path
    seed: int
    grid: str
    explainer: str
    limit: int
    effective: int


def run(sources: Sources, pieces: Sequence[Piece], *, jobs: int, told: Told) -> dict[str, Measurement]:
    """Measure what was not measured before.

    Parameters
    ----------
    sources : Sources
    pieces : sequence of Piece
    jobs : int
        Tables at the same time. With one table it is the number of processes that tune its forest.
    told : callable
        Called with each `Event`, in this process.

    Returns
    -------
    dict
        `Piece.key` to outcome, in the order of the pieces.

    Raises
    ------
    CFKError
        Of the first table that failed, once the others are done; what they gave is kept.
    """
    of_table: dict[str, list[Piece]] = {}
    for piece in pieces:
        of_table.setdefault(piece.table, []).append(piece)
    if jobs == 1 or len(of_table) == 1:
        found = [_measure_table(sources, name, some, jobs, told) for name, some in of_table.items()]
    else:
        found = _in_processes(sources, of_table, jobs, told)
    return {key: outcome for some in found for key, outcome in some.items()}


def _measure_table(
    sources: Sources, name: str, pieces: Sequence[Piece], jobs: int, told: Told
) -> dict[str, Measurement]:
    """Measure the pieces of one table; it is prepared when the first piece needs it."""
    workspace = Workspace(sources.workspace)
    (table,) = load([name], sources.data, sources.cache)
    setting = Setting(
        table=name,
        table_sha256=table.sha256,
        source=table.source,
        seed=sources.seed,
        grid=sources.grid,
        explainer=sources.explainer,
        limit=sources.limit,
        versions=_versions(),
    )
    prepared: Prepared | None = None
    outcomes = {}
    for piece in pieces:
        key, started, seconds = piece.key(setting), time.perf_counter(), None
        outcome = workspace.outcome(key)
        if outcome is None:
            if prepared is None:
                prepared = _prepared(table, setting, workspace, jobs)
                started = time.perf_counter()
            outcome = _measure(prepared, piece, sources.effective)
            workspace.keep(piece, outcome)
            seconds = time.perf_counter() - started
        outcomes[key] = outcome
        told(Event(piece, outcome.asked, seconds))
    return outcomes


def _prepared(table: Table, setting: Setting, workspace: Workspace, jobs: int) -> Prepared:
    """Prepare a table; its forest is tuned once, also when the experiment goes on later."""
    scene = workspace.scene(setting)
    prepared = prepare(table, setting, scene, jobs=jobs)
    if scene is None:
        workspace.keep_scene(setting, prepared.scene)
    return prepared


def _measure(prepared: Prepared, piece: Piece, effective: int) -> Measurement:
    if piece.kind == "distances":
        return measure_distances(prepared, piece.method, piece.k, options=piece.options, asked=piece.asked)
    if piece.kind == "candidates":
        m = int(piece.options["candidates"])
        return measure_candidates(prepared, piece.k, m, method=piece.method, asked=piece.asked)
    return measure(prepared, piece.method, piece.k, options=piece.options, asked=piece.asked, effective=effective)


def _in_processes(
    sources: Sources, of_table: Mapping[str, Sequence[Piece]], jobs: int, told: Told
) -> list[dict[str, Measurement]]:
    context = multiprocessing.get_context("spawn")  # numba's threads and forked processes do not go together
    queue: Queue[Event] = context.Queue()
    with ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(queue,)) as pool:
        futures = [pool.submit(_work, sources, name, some) for name, some in of_table.items()]
        try:
            while wait(futures, timeout=0.2).not_done:
                _tell(queue, told)
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        _tell(queue, told)
        return [future.result() for future in futures]


_events: list[Queue[Event]] = []  # in a worker: where it tells what it has done


def _begin(queue: Queue[Event]) -> None:
    """Prepare a worker: it ends when the process that started it does, also when that one is killed."""
    _events.append(queue)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(sources: Sources, name: str, pieces: Sequence[Piece]) -> dict[str, Measurement]:
    return _measure_table(sources, name, pieces, 1, _events[0].put)


def _tell(queue: Queue[Event], told: Told) -> None:
    while True:
        try:
            told(queue.get(timeout=0.05))
        except Empty:
            return


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
