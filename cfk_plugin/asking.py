"""Asking: the model's answers that a certificate counts, for many regions in one or two calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.grid import Grid
from cfk_plugin.oracle import Oracle
from cfk_plugin.population import Population
from cfk_plugin.region import Region


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about one region.

    Attributes
    ----------
    region : Region
    rows : int64 array
        Positions of the rows inside.
    own : int32 array, shape (n_quasi_identifiers,)
        Codes of the counterfactual itself.
    private : sequence of int32 arrays
        Codes that each private attribute stands for; empty when all are released exactly.
    """

    region: Region
    rows: NDArray[np.int64]
    own: NDArray[np.int32]
    private: Sequence[NDArray[np.int32]] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said about one region.

    Attributes
    ----------
    good : bool array
        Of each value combination that was asked, whether it gets the desired outcome.
    consistent : bool array
        The same of each row inside, with the counterfactual's own private values.
    exact : bool
        Whether every combination was asked.
    """

    good: NDArray[np.bool_]
    consistent: NDArray[np.bool_]
    exact: bool


def answers_to(
    questions: Mapping[int, Question],
    population: Population,
    oracle: Oracle,
    *,
    cell_budget: int,
    samples: int,
    seed: int,
) -> dict[int, Answer]:
    """Ask for the grid of every region and for the members' own cells.

    Parameters
    ----------
    questions : mapping
        Position of the counterfactual to what is asked.
    population : Population
    oracle : Oracle
    cell_budget : int
        Largest grid that is asked whole.
    samples : int
        Combinations drawn without replacement from a larger one.
    seed : int
        Of that draw.

    Returns
    -------
    dict
        One answer per question. One model call; a second one where private values are generalised, too.

    Raises
    ------
    ModelError
        If the model fails.
    """
    if not questions:
        return {}
    cells: dict[int, NDArray[np.int32]] = {}
    sizes: dict[int, int] = {}
    for i, question in questions.items():
        grid = Grid.of(question.region, population, [int(code) for code in question.own], question.private)
        random = np.random.default_rng(seed)  # anew, so that the answer does not depend on what else is asked
        cells[i] = grid.all() if grid.size <= cell_budget else grid.sample(samples, random)
        sizes[i] = grid.size
    wide = {i: cells[i] for i, question in questions.items() if question.private}
    members = {i: population.cells[population.cell_of(question.rows)] for i, question in questions.items()}
    narrow = {i: members[i] if i in wide else np.concatenate([cells[i], members[i]]) for i in questions}
    said, also = _ask(oracle, narrow, reuse=True), _ask(oracle, wide, reuse=False)
    return {
        i: Answer(
            also[i] if i in wide else said[i][: len(cells[i])],
            said[i] if i in wide else said[i][len(cells[i]) :],
            sizes[i] <= cell_budget,
        )
        for i in questions
    }


def _ask(oracle: Oracle, cells: Mapping[int, NDArray[np.int32]], *, reuse: bool) -> dict[int, NDArray[np.bool_]]:
    """Ask for the cells of several counterfactuals in one model call."""
    if not cells:
        return {}
    lengths = [len(part) for part in cells.values()]
    owner = np.repeat(np.fromiter(cells, dtype=np.int64, count=len(cells)), lengths)
    good = oracle.ask(owner, np.concatenate(list(cells.values())), reuse=reuse)
    return dict(zip(cells, np.split(good, np.cumsum(lengths)[:-1]), strict=True))
