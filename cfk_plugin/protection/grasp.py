"""CF-K as in the paper: the metaheuristic GRASP, for comparison.

It follows the text of Goethals, Sörensen and Martens (2023), Algorithm 1. The text leaves three
things open: here, neighbours are training rows with the desired *predicted* outcome, the distance
is HEOM on the quasi-identifiers to the current region, and local search takes the first
improvement. The goal ranks regions (in the paper by pureness, then NCP). There is no proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cfk_plugin.data.codes import Floats, Ints, Mask
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.boxes import (
    Box,
    Cells,
    Goal,
    HasOutcome,
    Progress,
    Proposal,
    Rank,
    Surroundings,
)


@dataclass(frozen=True, kw_only=True)
class GraspSettings:
    """The parameters of the paper; the defaults are its values.

    Attributes
    ----------
    alpha : int
        The number of nearest neighbours from which the next one is drawn.
    iterations : int
        The number of restarts.
    samples : int
        The number of combinations that are drawn to estimate a pureness.
    """

    alpha: int = 20
    iterations: int = 3
    samples: int = 100


def grasp_regions(
    cells: Cells,
    counterfactuals: Floats,
    goal: Goal,
    has_outcome: HasOutcome,
    neighbors_of: Callable[[int], Mask],
    *,
    settings: GraspSettings,
    random_state: int = 0,
    progress: Progress | None = None,
) -> list[Proposal | None]:
    """Return the region that GRASP constructs for each counterfactual.

    Parameters
    ----------
    cells : Cells
    counterfactuals : shape (n, n_features)
    goal : Goal
    has_outcome : HasOutcome
        It is called for each region.
    neighbors_of : callable
        Takes the position of a counterfactual, and returns which training rows have the predicted
        outcome that it must reach, shape (n_rows,).
    settings : GraspSettings
    random_state : int
        The random numbers of a counterfactual depend on this and on its position.
    progress : callable, optional

    Returns
    -------
    list of Proposal or None
        None if there are fewer than k people.
    """
    if cells.n_people < goal.k:
        return [None] * len(counterfactuals)
    proposals: list[Proposal | None] = []
    for i, row in enumerate(counterfactuals):
        view = Surroundings.of(cells, row)
        random = np.random.default_rng([random_state, i])
        n_neighbors = cells.count_rows(neighbors_of(i))
        search = _Grasp(view, i, n_neighbors, goal, has_outcome, settings, random)
        proposals.append(search.run())
        if progress is not None:
            progress(i + 1, len(counterfactuals))
    return proposals


class _Grasp(HostOnly):
    """The search for one counterfactual."""

    def __init__(
        self,
        view: Surroundings,
        i: int,
        n_neighbors: Ints,
        goal: Goal,
        has_outcome: HasOutcome,
        settings: GraspSettings,
        random: np.random.Generator,
    ) -> None:
        self._view = view
        self._i = i
        self._goal = goal
        self._has_outcome = has_outcome
        self._settings = settings
        self._random = random
        # a native counterfactual is not its own neighbour
        self._n_neighbors = np.maximum(n_neighbors - view.is_same_cell, 0)

    def run(self) -> Proposal:
        """Return the best region of all restarts as a proposal."""
        solutions = [self._improve(self._construct()) for _ in range(self._settings.iterations)]
        box, _ = min(solutions, key=lambda solution: solution[1])
        return self._view.proposal(box)

    def _construct(self) -> Box:
        """Phase 1: extend the box to random near neighbours until k people are inside."""
        view = self._view
        box = view.point
        while view.count(box) < self._goal.k:
            positions = view.positions[self._draw_neighbor(view.distances(box))]
            parts = zip(view.axes, box, positions.tolist(), strict=True)
            box = tuple(axis.joined(mask, position) for axis, mask, position in parts)
        return box

    def _draw_neighbor(self, distances: Floats) -> int:
        """Return the cell of a random neighbour among the alpha nearest to the region.

        If all of these are inside, draw from the alpha nearest neighbours outside. If there are
        none, draw from the alpha nearest people outside. `distances` has the shape (n_cells,).
        """
        alpha = self._settings.alpha
        is_outside = distances > 0
        neighbors_outside = np.where(is_outside, self._n_neighbors, 0)
        people_outside = np.where(is_outside, self._view.people, 0)
        for weights in (self._n_neighbors, neighbors_outside, people_outside):
            candidates = np.flatnonzero(weights)
            by_distance = candidates[np.argsort(distances[candidates], kind="stable")]
            n_up_to = np.cumsum(weights[by_distance])
            nearest = by_distance[: int(np.searchsorted(n_up_to, alpha)) + 1]
            if is_outside[nearest].any():
                neighbor = self._random.integers(0, min(alpha, int(n_up_to[-1])))
                return int(nearest[np.searchsorted(n_up_to, neighbor, side="right")])
        raise ValueError("the population has fewer than k people")

    def _improve(self, box: Box) -> tuple[Box, Rank]:
        """Phase 2: make the first small change that is better, as long as there is one."""
        rank = self._rank(box)
        better = self._first_better(box, rank)
        while better is not None:
            box, rank = better
            better = self._first_better(box, rank)
        return box, rank

    def _first_better(self, box: Box, rank: Rank) -> tuple[Box, Rank] | None:
        """Return the first small change with k people and a better rank, and its rank."""
        for change in self._view.small_changes(box):
            if self._view.count(change) < self._goal.k:
                continue
            rank_of_change = self._rank(change)
            if rank_of_change < rank:
                return change, rank_of_change
        return None

    def _rank(self, box: Box) -> Rank:
        """Return the rank of a region by its NCP and the pureness of a sample."""
        sample = self._view.sample(box, self._settings.samples, self._random)
        owners = np.full(len(sample), self._i)
        is_good = self._has_outcome(owners, self._view.rows(sample))
        return self._goal.rank(self._view.ncp(box), float(is_good.mean()))
