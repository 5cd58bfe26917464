"""The compiled solver, asked for the counterfactuals of a task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.protection.base import Task
from cfk_plugin.protection.regions import anchor_positions, hull, index_of
from cfk_plugin.protection.solver import Solutions, solve
from cfk_plugin.region import Region


class Search:
    """Finds regions of least NCP for counterfactuals of one task, and writes them as regions.

    Parameters
    ----------
    task : Task
    node_limit : int
        Search nodes per solve; beyond it the best region so far is returned with a lower bound.
    time_limit : float, optional
        Seconds per solve.
    threads : int
        Counterfactuals solved at the same time.
    """

    def __init__(self, task: Task, node_limit: int, time_limit: float | None, threads: int) -> None:
        self.task = task
        self._node_limit, self._time_limit, self._threads = node_limit, time_limit, threads
        self._index = index_of(task.population)
        self._positions = anchor_positions(task.population, task.codes, task.numbers)

    def solve(
        self,
        which: Sequence[int],
        forbidden: Sequence[NDArray[np.int32]] | None = None,
        penalty: float = np.inf,
        node_limit: int | None = None,
    ) -> Solutions:
        """Solve for some of the counterfactuals; row i of the answer belongs to ``which[i]``."""
        at = np.asarray(which, dtype=np.int64)
        return solve(
            self._index,
            self.task.codes[at],
            self._positions[at],
            self.task.policy.k,
            forbidden=forbidden,
            penalty=penalty,
            node_limit=min(self._node_limit, node_limit or self._node_limit),
            time_limit=self._time_limit,
            threads=self._threads,
        )

    def region(self, i: int, solutions: Solutions, row: int) -> Region:
        """Write row `row` of some solutions as a region of counterfactual `i`."""
        population = self.task.population
        chosen = solutions.cells[row][solutions.cells[row] >= 0]
        return hull(population, self.task.codes[i], self.task.numbers[i], population.cells[chosen])
