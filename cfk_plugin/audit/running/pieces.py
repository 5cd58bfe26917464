"""Pieces of an attack: run at the same time in processes, kept on disk so that a killed run continues."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
from numpy.typing import NDArray

from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import Progress

Found = Mapping[str, NDArray[Any]]
"""What a piece found: arrays of numbers by name. Distances, scores, counts: never a row."""


class Piece(NamedTuple):
    """One thing to do.

    Attributes
    ----------
    key : str
        Says what it does, with every setting that its result depends on; unique in a run.
    call : callable
        Without arguments, to arrays by name. It can be pickled where several processes run.
    """

    key: str
    call: Callable[[], Found]


@dataclass(frozen=True, slots=True)
class Kept:
    """Results of pieces in a folder, one file each, written whole or not at all.

    Parameters
    ----------
    folder : Path
        Made when it is missing. Holds scores of people by position, so it stays with whoever holds the table.
    """

    folder: Path

    def get(self, key: str) -> Found | None:
        """Return what is kept under a key; None where there is nothing."""
        path = self._path(key)
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}

    def put(self, key: str, found: Found) -> None:
        """Keep a result."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(key)
        unfinished = path.with_suffix(f".{os.getpid()}.part")
        with unfinished.open("wb") as file:
            np.savez(file, **{name: np.asarray(array) for name, array in found.items()})  # type: ignore[arg-type]
        unfinished.replace(path)

    def _path(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz"


def run_pieces(
    pieces: Sequence[Piece], *, n_jobs: int = 1, kept: Kept | None = None, progress: Progress | None = None
) -> list[Found]:
    """Run what was not kept, and return all results in the order of the pieces.

    Parameters
    ----------
    pieces : sequence of Piece
    n_jobs : int
        Pieces at the same time, each in a process of its own; -1 on all cores. 1 runs them here, one by one.
    kept : Kept, optional
    progress : callable, optional
        Called with (done, total).

    Returns
    -------
    list of mapping

    Raises
    ------
    InputError
        If `n_jobs` is 0 or two pieces have one key.
    """
    if not isinstance(n_jobs, int) or isinstance(n_jobs, bool) or n_jobs == 0:
        raise InputError("n_jobs must be a whole number other than 0; -1 takes all cores")
    if len({piece.key for piece in pieces}) != len(pieces):
        raise InputError("two pieces of a run have the same key")
    found = {piece.key: known for piece in pieces if kept is not None and (known := kept.get(piece.key)) is not None}
    if progress is not None:
        progress(len(found), len(pieces))
    for key, result in _run([piece for piece in pieces if piece.key not in found], n_jobs):
        if kept is not None:
            kept.put(key, result)
        found[key] = result
        if progress is not None:
            progress(len(found), len(pieces))
    return [found[piece.key] for piece in pieces]


def _run(pieces: Sequence[Piece], n_jobs: int) -> Iterator[tuple[str, Found]]:
    if n_jobs == 1 or len(pieces) < 2:
        for piece in pieces:
            yield piece.key, piece.call()
        return
    # Large arguments would be written to disk on the way to the processes: they are rows.
    parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered", max_nbytes=None)
    yield from parallel(joblib.delayed(_call)(piece) for piece in pieces)


def _call(piece: Piece) -> tuple[str, Found]:
    return piece.key, piece.call()
