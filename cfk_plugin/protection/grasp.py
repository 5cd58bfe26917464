"""CF-K as published: the GRASP metaheuristic of Goethals, Sörensen and Martens (2023), Algorithm 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.protection.base import Proposal, Task
from cfk_plugin.protection.preference import Rank, rank
from cfk_plugin.protection.regions import part_of
from cfk_plugin.region import Region

Box = list[NDArray[np.bool_]]
"""Per quasi-identifier which codes are inside; one more place at the end for the counterfactual's own value."""


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
        population = task.population
        self.domains = [population.domains[q] for q in population.schema.quasi_identifiers]
        self.cells, self.people = population.cells, population.cell_people
        self.own = [int(c) if c >= 0 else d.size for c, d in zip(task.codes[i], self.domains, strict=True)]
        rows = np.arange(population.n_rows)
        desired = task.oracle.desired_rows(i, rows)
        self.pool = np.bincount(population.cell_of(rows), weights=desired, minlength=len(self.cells)).astype(int)
        same = np.flatnonzero((self.cells == np.array(self.own)).all(axis=1))
        self.pool[same] = np.maximum(self.pool[same] - 1, 0)  # the native row is not its own neighbour
        self.places = [self._places(j) for j in range(len(self.domains))]

    def run(self) -> Proposal:
        best: Box | None = None
        best_rank: Rank | None = None
        if self.people.sum() < self.task.policy.k:
            return Proposal(None)
        for _ in range(self.settings.iterations):
            box, its_rank = self.local_search(self.construct())
            if best_rank is None or its_rank < best_rank:
                best, best_rank = box, its_rank
        return Proposal(self.region(best) if best is not None else None)

    def construct(self) -> Box:
        """Phase 1: join random near neighbours until k people are inside."""
        box = [np.zeros(d.size + 1, dtype=bool) for d in self.domains]
        for table, code in zip(box, self.own, strict=True):
            table[code] = True
        while self.count(box) < self.task.policy.k:
            chosen = self.cells[self.neighbour(self.distances(box))]
            box = [self.join(j, table, int(chosen[j])) for j, table in enumerate(box)]
        return box

    def neighbour(self, distance: NDArray[np.float64]) -> int:
        """Draw one of the alpha nearest rows of the pool; outside the box when all of those are inside."""
        for weights in (self.pool, np.where(distance > 0, self.pool, 0), np.where(distance > 0, self.people, 0)):
            candidates = np.flatnonzero(weights)
            order = candidates[np.argsort(distance[candidates], kind="stable")]
            reach = np.cumsum(weights[order])
            last = int(np.searchsorted(reach, self.settings.alpha)) + 1
            near = order[:last]
            if (distance[near] > 0).any():
                row = self.random.integers(0, min(self.settings.alpha, int(reach[last - 1] if last <= len(reach) else reach[-1])))
                return int(near[np.searchsorted(reach[:last], row, side="right")])
        raise AssertionError("a box that holds the whole population has k people")

    def local_search(self, box: Box) -> tuple[Box, Rank]:
        """Phase 2: first improvement among small changes, until there is none."""
        its_rank = self.rank(box)
        improved = True
        while improved:
            improved = False
            for other in self.changes(box):
                if self.count(other) >= self.task.policy.k and (other_rank := self.rank(other)) < its_rank:
                    box, its_rank, improved = other, other_rank, True
                    break
        return box, its_rank

    def changes(self, box: Box) -> Iterator[Box]:
        """Yield boxes with a value added to a single value, or removed from a list."""
        for j, domain in enumerate(self.domains):
            inside = np.flatnonzero(box[j])
            if len(inside) == 1:
                for code in self._addable(j, int(inside[0])):
                    yield [*box[:j], self.join(j, box[j], code), *box[j + 1 :]]
                continue
            places = self.places[j][inside]
            ends = inside[[int(places.argmin()), int(places.argmax())]] if domain.is_interval else inside
            for code in ends:
                if code != self.own[j] and domain.attribute.hierarchy is None:
                    table = box[j].copy()
                    table[code] = False
                    yield [*box[:j], table, *box[j + 1 :]]

    def _addable(self, j: int, single: int) -> list[int]:
        domain = self.domains[j]
        if not domain.is_interval:
            return [code for code in range(domain.size) if code != single]
        places = self.places[j][: len(domain.values)]
        below = np.flatnonzero(places < self.places[j][single])
        above = np.flatnonzero(places > self.places[j][single])
        return [*below[-1:].tolist(), *above[:1].tolist()]

    def join(self, j: int, table: NDArray[np.bool_], code: int) -> NDArray[np.bool_]:
        """Return a part that holds one more value: a range is filled, a node is closed."""
        domain, joined = self.domains[j], table.copy()
        joined[code] = True
        if domain.is_interval:
            n = len(domain.values)
            on_line = np.flatnonzero(joined)
            on_line = on_line[(on_line < n) | (on_line == domain.size)]
            if len(on_line):
                low, high = self.places[j][on_line].min(), self.places[j][on_line].max()
                joined[:n] = (self.places[j][:n] >= low) & (self.places[j][:n] <= high)
        elif domain.attribute.hierarchy is not None:
            joined[: domain.size] = domain.inside(part_of(domain, np.flatnonzero(joined[: domain.size]).astype(np.int32)))
        return joined

    def distances(self, box: Box) -> NDArray[np.float64]:
        """HEOM distance of every cell to the box, 0 inside."""
        total = np.zeros(len(self.cells))
        for j, domain in enumerate(self.domains):
            gap = (~box[j][: domain.size]).astype(float)
            if domain.is_interval:
                line = self.places[j][: len(domain.values)]
                held = self.places[j][np.flatnonzero(box[j])]
                held = held[~np.isnan(held)]
                if len(held):
                    gap[: len(line)] = np.maximum(0, np.maximum(held.min() - line, line - held.max()))
            total += gap[self.cells[:, j]]
        return total

    def count(self, box: Box) -> int:
        """People inside a box."""
        inside = np.ones(len(self.cells), dtype=bool)
        for j, table in enumerate(box):
            inside &= table[self.cells[:, j]]
        return int(self.people[inside].sum())

    def rank(self, box: Box) -> Rank:
        """Rank of a box: NCP, and pureness from sampled combinations."""
        picks = [np.flatnonzero(table).astype(np.int32) for table in box]
        n = self.settings.samples
        cells = np.column_stack([codes[self.random.integers(0, len(codes), n)] for codes in picks])
        good = self.task.oracle.ask(np.full(n, self.i), cells, reuse=self.settings.reuse_answers)
        return rank(self.task.policy, self.ncp(box), float(good.mean()))

    def ncp(self, box: Box) -> float:
        """NCP of a box (paper, equations 1 to 3)."""
        total = 0.0
        for j, (domain, table) in enumerate(zip(self.domains, box, strict=True)):
            if domain.is_interval:
                held = self.places[j][table]
                share = float(np.nanmax(held) - np.nanmin(held)) if not np.isnan(held).all() else 0.0
                if np.isnan(held).any() and not np.isnan(held).all():
                    share = 1.0
            else:
                size = int(table.sum())
                share = size / domain.size if size > 1 else 0.0
            total += domain.attribute.weight * min(share, 1.0)
        return total

    def region(self, box: Box) -> Region:
        """Turn a box into a region."""
        parts = {}
        for j, (domain, table) in enumerate(zip(self.domains, box, strict=True)):
            own = float(self.task.numbers[self.i, j]) if table[domain.size] else None
            codes = np.flatnonzero(table[: domain.size]).astype(np.int32)
            parts[domain.attribute.name] = part_of(domain, codes, own)
        return Region(parts)

    def _places(self, j: int) -> NDArray[np.float64]:
        """Place of every code on its line, NaN for missing, the own value last."""
        domain = self.domains[j]
        places = np.full(domain.size + 1, np.nan)
        if domain.is_interval:
            places[: len(domain.values)] = domain.positions
            if self.own[j] == domain.size:
                places[-1] = domain.place(self.task.numbers[self.i : self.i + 1, j])[0]
        return places
