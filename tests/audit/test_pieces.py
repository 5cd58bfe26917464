"""Pieces of an attack: their order, what is kept, what is run again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cfk_plugin.audit.targets import AuditRun, Kept, Piece
from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import Progress
from small_owner import LinearOwner


def run_pieces(
    pieces: list[Piece], n_jobs: int = 1, kept: Kept | None = None, progress: Progress | None = None
) -> list[Mapping[str, np.ndarray]]:
    return AuditRun(LinearOwner(), 0, n_jobs, kept, progress, len(pieces)).run(pieces)


def square(number: int) -> dict[str, np.ndarray]:
    return {"square": np.array([number * number]), "process": np.array([os.getpid()])}


def written(number: int, folder: Path) -> dict[str, np.ndarray]:
    with (folder / "calls.txt").open("a") as file:
        file.write(f"{number}\n")
    return square(number)


def broken() -> dict[str, np.ndarray]:
    raise ArithmeticError


def test_results_come_in_the_order_of_the_pieces_from_one_process_or_two() -> None:
    pieces = [Piece(f"square {i}", partial(square, i)) for i in range(6)]
    here, there = run_pieces(pieces), run_pieces(pieces, n_jobs=2)
    assert [int(found["square"][0]) for found in here] == [0, 1, 4, 9, 16, 25]
    assert [int(found["square"][0]) for found in there] == [0, 1, 4, 9, 16, 25]
    assert {int(found["process"][0]) for found in here} == {os.getpid()}
    assert os.getpid() not in {int(found["process"][0]) for found in there}


def test_what_is_kept_is_not_run_again(tmp_path: Path) -> None:
    pieces = [Piece(f"{i}", partial(written, i, tmp_path)) for i in range(3)]
    kept = Kept(tmp_path / "kept")
    with pytest.raises(ArithmeticError):
        run_pieces([pieces[0], Piece("broken", broken), *pieces[1:]], kept=kept)
    told: list[tuple[int, int]] = []
    found = run_pieces(pieces, kept=kept, progress=lambda done, total: told.append((done, total)))
    assert [int(f["square"][0]) for f in found] == [0, 1, 4]
    assert (tmp_path / "calls.txt").read_text().split() == ["0", "1", "2"]
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_file_that_was_not_finished_is_not_taken_for_a_result(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put("a", {"x": np.arange(3)})
    (path,) = tmp_path.iterdir()
    path.rename(path.with_suffix(".1234.part"))
    assert kept.get("a") is None


def test_keys_tell_results_apart(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put("a", {"x": np.arange(3)})
    kept.put("b", {"x": np.arange(2.0)})
    found = kept.get("a")
    assert found is not None
    assert found["x"].tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="same key"):
        run_pieces([Piece("a", partial(square, 1)), Piece("a", partial(square, 2))], kept=kept)


@pytest.mark.parametrize("n_jobs", [0, 1.5, True, "2"])
def test_a_wrong_number_of_jobs_is_refused_before_anything_runs(n_jobs: object) -> None:
    with pytest.raises(InputError, match="n_jobs"):
        run_pieces([Piece("broken", broken)], n_jobs=n_jobs)  # type: ignore[arg-type]
