"""The GRASP protector: the metaheuristic of the paper, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cfk_plugin.hookspecs import Proposal, ProtectionRequest
from cfk_plugin.protection.axes import Floats, Ints
from cfk_plugin.protection.lookup.boxes import Box, BoxSpace
from cfk_plugin.protection.lookup.rank import Rank, rank


@dataclass(frozen=True, slots=True, kw_only=True)
class GraspProtector:
    """CF-K as published: GRASP of Goethals, Sörensen and Martens (2023), Algorithm 1, for
    comparison.

    Written from the paper's text; where it is silent, neighbors are training rows *predicted* the
    desired outcome, the distance is HEOM on the quasi-identifiers to the current box, and local
    search takes the first improvement. A solution's rank is the policy's (the paper: pureness, then
    NCP).

    It protects against linking a region to people by quasi-identifiers. Its result comes without
    any proof.
    """

    alpha: int = 20  # neighbors to draw from
    iterations: int = 3  # restarts
    samples: int = 100  # combinations sampled for a pureness
    reuse_answers: bool = False  # remember the model's answers (not in the paper)

    name = "grasp"
    randomised = True  # rerunning it for somebody else is not conclusive

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        proposals = []
        for i in range(len(request)):
            random = np.random.default_rng([request.seed, i])
            proposals.append(_Grasp(self, request, i, random).run())
            if request.progress is not None:
                request.progress(i + 1, len(request))
        return proposals


class _Grasp:
    """The search for one counterfactual, over equivalence classes with their numbers of rows."""

    def __init__(
        self,
        settings: GraspProtector,
        request: ProtectionRequest,
        i: int,
        random: np.random.Generator,
    ) -> None:
        self._settings = settings
        self._request = request
        self._i = i
        self._random = random
        self._space = BoxSpace(request, i)
        self._n_neighbors = self._count_neighbors()

    def _count_neighbors(self) -> Ints:
        """Return how many rows of each class are predicted the desired outcome.

        A native counterfactual's own row is not its neighbor.
        """
        population = self._request.population
        rows = np.arange(population.n_rows)
        is_desired = self._request.combination_outcomes.desired_rows(self._i, rows)
        n_neighbors = np.bincount(
            population.cell_of(rows), weights=is_desired, minlength=len(population.cells)
        ).astype(int)
        is_own = (population.cells == np.array(self._space.own_codes)).all(axis=1)
        n_neighbors[is_own] = np.maximum(n_neighbors[is_own] - 1, 0)
        return n_neighbors

    def run(self) -> Proposal:
        """Return the best region of all restarts."""
        if self._space.people.sum() < self._request.policy.k:
            return Proposal(None)
        best: Box | None = None
        best_rank: Rank | None = None
        for _ in range(self._settings.iterations):
            box, rank_of_box = self._search_locally(self._construct())
            if best_rank is None or rank_of_box < best_rank:
                best = box
                best_rank = rank_of_box
        region = None if best is None else self._space.region(best)
        return Proposal(region)

    def _construct(self) -> Box:
        """Phase 1: join random near neighbors until k people are inside."""
        space = self._space
        box = space.point()
        while space.count(box) < self._request.policy.k:
            codes = space.cells[self._draw_neighbor(space.distances(box))]
            box = [space.join(j, mask, int(codes[j])) for j, mask in enumerate(box)]
        return box

    def _draw_neighbor(self, distances: Floats) -> int:
        """Return the class of a random row among the alpha nearest to the box.

        If all of these are inside, draw among the alpha nearest neighbors outside; if there are
        none, among the alpha nearest people outside. `distances` has shape (n_classes,).
        """
        alpha = self._settings.alpha
        people = self._space.people
        is_outside = distances > 0
        neighbors_outside = np.where(is_outside, self._n_neighbors, 0)
        people_outside = np.where(is_outside, people, 0)
        for weights in (self._n_neighbors, neighbors_outside, people_outside):
            candidates = np.flatnonzero(weights)
            by_distance = candidates[np.argsort(distances[candidates], kind="stable")]
            n_rows_up_to = np.cumsum(weights[by_distance])
            nearest = by_distance[: int(np.searchsorted(n_rows_up_to, alpha)) + 1]
            if is_outside[nearest].any():
                row = self._random.integers(0, min(alpha, int(n_rows_up_to[-1])))
                return int(nearest[np.searchsorted(n_rows_up_to, row, side="right")])
        raise ValueError("the population has fewer than k people")

    def _search_locally(self, box: Box) -> tuple[Box, Rank]:
        """Phase 2: take the first better of the small changes, until there is none."""
        rank_of_box = self._rank(box)
        better = self._first_better_change(box, rank_of_box)
        while better is not None:
            box, rank_of_box = better
            better = self._first_better_change(box, rank_of_box)
        return box, rank_of_box

    def _first_better_change(self, box: Box, rank_of_box: Rank) -> tuple[Box, Rank] | None:
        """Return the first small change with k people and a better rank, and its rank."""
        for change in self._space.small_changes(box):
            if self._space.count(change) < self._request.policy.k:
                continue
            rank_of_change = self._rank(change)
            if rank_of_change < rank_of_box:
                return change, rank_of_change
        return None

    def _rank(self, box: Box) -> Rank:
        """Return the rank of a box, from its NCP and the pureness of sampled combinations."""
        n = self._settings.samples
        columns = []
        for mask in box:
            codes = np.flatnonzero(mask).astype(np.int32)
            columns.append(codes[self._random.integers(0, len(codes), n)])
        is_desired = self._request.combination_outcomes.ask(
            np.full(n, self._i), np.column_stack(columns), reuse=self._settings.reuse_answers
        )
        return rank(self._request.policy, self._space.ncp(box), float(is_desired.mean()))
