"""Regions that were tried: their NCP, their exact pureness, and the cells the model turned down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.domain import UNKNOWN
from cfk_plugin.grid import Grid
from cfk_plugin.metrics.information import ncp
from cfk_plugin.protection.base import Task
from cfk_plugin.protection.preference import Rank, rank
from cfk_plugin.region import Region


@dataclass(frozen=True, slots=True)
class Trial:
    """A region with its exact figures.

    Attributes
    ----------
    region : Region
    ncp : float
    pureness : float
        Share of the grid's cells with the desired outcome; of a sample where the grid is over budget.
    complete : bool
        Whether every cell of the grid was asked.
    """

    region: Region
    ncp: float
    pureness: float
    complete: bool


@dataclass(slots=True)
class Record:
    """What is known about one counterfactual: the best trial so far and the bad cells."""

    best: Trial | None = None
    best_rank: Rank | None = None
    bad: list[NDArray[np.int32]] = field(default_factory=list)

    @property
    def bad_cells(self) -> NDArray[np.int32]:
        """All cells known to miss the desired outcome."""
        return np.unique(np.concatenate(self.bad), axis=0) if self.bad else np.empty((0, 0), np.int32)


class Trials:
    """Asks the oracle about whole regions, many counterfactuals at a time, and keeps score.

    Parameters
    ----------
    task : Task
    cell_budget : int
        Largest grid that is asked whole; of a larger one as many cells are sampled.
    """

    def __init__(self, task: Task, cell_budget: int) -> None:
        self.task = task
        self.cell_budget = cell_budget
        self.records = [Record() for _ in range(len(task))]

    def evaluate(self, which: Sequence[int], regions: Sequence[Region]) -> list[Trial]:
        """Return the figures of regions, in one model call; better ones become their counterfactual's best."""
        population = self.task.population
        grids = [Grid.of(r, population, self.task.codes[i]) for i, r in zip(which, regions, strict=True)]
        random = np.random.default_rng(self.task.seed)
        cells = [g.all() if g.size <= self.cell_budget else g.sample(self.cell_budget, random) for g in grids]
        if not cells:
            return []
        owner = np.repeat(np.asarray(which, dtype=np.int64), [len(c) for c in cells])
        answers = np.split(self.task.oracle.ask(owner, np.concatenate(cells)), np.cumsum([len(c) for c in cells])[:-1])
        trials = []
        for i, region, grid, asked, good in zip(which, regions, grids, cells, answers, strict=True):
            trial = Trial(region, ncp(region, population), float(good.mean()), grid.size <= self.cell_budget)
            self._keep(i, trial, asked[~good])
            trials.append(trial)
        return trials

    def _keep(self, i: int, trial: Trial, bad: NDArray[np.int32]) -> None:
        record = self.records[i]
        if len(bad):
            record.bad.append(self._as_forbidden(i, bad))
        its_rank = rank(self.task.policy, trial.ncp, trial.pureness)
        if record.best_rank is None or its_rank < record.best_rank:
            record.best, record.best_rank = trial, its_rank

    def _as_forbidden(self, i: int, cells: NDArray[np.int32]) -> NDArray[np.int32]:
        """Write the counterfactual's own off-grid value as the solver does: -1."""
        own = self.task.codes[i] == UNKNOWN
        cells[:, own] = np.where(cells[:, own] == self._sizes()[own], UNKNOWN, cells[:, own])
        return cells

    def _sizes(self) -> NDArray[np.int32]:
        schema, domains = self.task.population.schema, self.task.population.domains
        return np.array([domains[q].size for q in schema.quasi_identifiers], dtype=np.int32)
