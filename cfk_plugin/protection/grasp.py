"""CF-K as published: the GRASP metaheuristic of Goethals, Sörensen and Martens (2023), Algorithm 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.protection.base import Proposal, Task
from cfk_plugin.protection.boxes import Box, BoxSpace
from cfk_plugin.protection.preference import Rank, rank


@dataclass(frozen=True, slots=True, kw_only=True)
class GraspProtector:
    """Greedy randomised construction and local search, to reproduce the paper and to compare with.

    Written from the paper's text; where the text is silent: neighbours are training rows *predicted* the desired
    outcome, the distance is HEOM on the quasi-identifiers to the current box, local search takes the first
    improvement. A solution's rank is the policy's (the paper: pureness, then NCP).

    It protects against linking a region to people by quasi-identifiers, as `ExactProtector` does, and proves
    nothing about its result.

    Parameters
    ----------
    alpha : int
        Neighbours to draw from.
    iterations : int
        Restarts.
    samples : int
        Combinations sampled for a pureness.
    reuse_answers : bool
        Whether the model's answers are remembered (not in the paper).

    References
    ----------
    Goethals, Sörensen, Martens: The Privacy Issue of Counterfactual Explanations: Explanation Linkage Attacks.
    ACM Transactions on Intelligent Systems and Technology, 2023, section 5.3.
    """

    alpha: int = 20
    iterations: int = 3
    samples: int = 100
    reuse_answers: bool = False

    name = "grasp"
    randomised = True  # rerunning it for somebody else tells nothing for certain

    def protect(self, task: Task) -> Sequence[Proposal]:
        """Return the best region of all restarts, per counterfactual."""
        proposals = []
        for i in range(len(task)):
            random = np.random.default_rng([task.seed, i])
            proposals.append(_Grasp(self, task, i, random).run())
            if task.progress is not None:
                task.progress(i + 1, len(task))
        return proposals


class _Grasp:
    """The search for one counterfactual, over cells with multiplicities."""

    def __init__(self, settings: GraspProtector, task: Task, i: int, random: np.random.Generator) -> None:
        self.settings, self.task, self.i, self.random = settings, task, i, random
        self.space = BoxSpace(task, i)
        population = task.population
        rows = np.arange(population.n_rows)
        desired = task.oracle.desired_rows(i, rows)
        self.pool = np.bincount(population.cell_of(rows), weights=desired, minlength=len(population.cells)).astype(int)
        same = np.flatnonzero((population.cells == np.array(self.space.own)).all(axis=1))
        self.pool[same] = np.maximum(self.pool[same] - 1, 0)  # the native row is not its own neighbour

    def run(self) -> Proposal:
        best: Box | None = None
        best_rank: Rank | None = None
        if self.space.people.sum() < self.task.policy.k:
            return Proposal(None)
        for _ in range(self.settings.iterations):
            box, its_rank = self.local_search(self.construct())
            if best_rank is None or its_rank < best_rank:
                best, best_rank = box, its_rank
        return Proposal(self.space.region(best) if best is not None else None)

    def construct(self) -> Box:
        """Phase 1: join random near neighbours until k people are inside."""
        space, box = self.space, self.space.point()
        while space.count(box) < self.task.policy.k:
            chosen = space.cells[self.neighbour(space.distances(box))]
            box = [space.join(j, table, int(chosen[j])) for j, table in enumerate(box)]
        return box

    def neighbour(self, distance: NDArray[np.float64]) -> int:
        """Draw one of the alpha nearest rows of the pool; outside the box when all of those are inside."""
        people = self.space.people
        for weights in (self.pool, np.where(distance > 0, self.pool, 0), np.where(distance > 0, people, 0)):
            candidates = np.flatnonzero(weights)
            order = candidates[np.argsort(distance[candidates], kind="stable")]
            reach = np.cumsum(weights[order])
            near = order[: int(np.searchsorted(reach, self.settings.alpha)) + 1]
            if (distance[near] > 0).any():
                row = self.random.integers(0, min(self.settings.alpha, int(reach[-1])))
                return int(near[np.searchsorted(reach, row, side="right")])
        raise ValueError("the population has fewer than k people")

    def local_search(self, box: Box) -> tuple[Box, Rank]:
        """Phase 2: first improvement among small changes, until there is none."""
        its_rank = self.rank(box)
        improved = True
        while improved:
            improved = False
            for other in self.space.changes(box):
                if self.space.count(other) >= self.task.policy.k and (other_rank := self.rank(other)) < its_rank:
                    box, its_rank, improved = other, other_rank, True
                    break
        return box, its_rank

    def rank(self, box: Box) -> Rank:
        """Rank of a box: NCP, and pureness from sampled combinations."""
        picks = [np.flatnonzero(table).astype(np.int32) for table in box]
        n = self.settings.samples
        cells = np.column_stack([codes[self.random.integers(0, len(codes), n)] for codes in picks])
        good = self.task.oracle.ask(np.full(n, self.i), cells, reuse=self.settings.reuse_answers)
        return rank(self.task.policy, self.space.ncp(box), float(good.mean()))
