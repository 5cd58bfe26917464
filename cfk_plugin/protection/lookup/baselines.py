"""The baselines of the paper: strict multidimensional Mondrian, and GRASP as published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cfk_plugin.data.population import Population
from cfk_plugin.hookspecs import Proposal, ProtectionRequest
from cfk_plugin.protection.axes import Codes, Floats, Ints, region_of
from cfk_plugin.protection.lookup.exact import Box, BoxSpace, Rank, rank


@dataclass(frozen=True, slots=True, kw_only=True)
class MondrianProtector:
    """Generalise a counterfactual to the part of a fixed Mondrian partition that it falls into.

    The table is split at weighted medians of the widest attribute until no part can be split into
    two of k people. Regions never overlap partly, so intersecting them reveals nothing, but
    information loss is much larger.
    """

    # Compare the attributes' widths as shares of their range. False compares raw numeric widths
    # with numbers of categories, as the implementations do that the paper compares with; its
    # results are much worse.
    normalise: bool = True

    name = "mondrian"

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        """Return the part of every counterfactual, stretched to hold it if it is not a row."""
        population = request.population
        if population.n_people < request.policy.k:
            return [Proposal(None)] * len(request)
        tree = _Partition(population, request.policy.k, self.normalise)
        proposals = []
        for codes, numbers in zip(request.codes, request.numbers, strict=True):
            cells = population.cells[tree.leaf_of(tree.coordinates(codes, numbers))]
            proposals.append(Proposal(region_of(population, np.vstack([cells, codes]), numbers)))
        return proposals


@dataclass(slots=True)
class _Node:
    cells: Ints
    axis: int = -1
    at: float = 0.0
    below: _Node | None = None
    above: _Node | None = None


class _Partition:
    def __init__(self, population: Population, k: int, normalise: bool) -> None:
        self.domains = [population.domains[q] for q in population.schema.quasi_identifiers]
        self.points = np.column_stack(
            [self._line(j)[population.cells[:, j]] for j in range(len(self.domains))]
        )
        self.weight = population.cell_people
        self.k, self.normalise = k, normalise
        self.root = _Node(np.arange(len(population.cells)))
        todo = [self.root]
        while todo:
            todo += self._split(todo.pop())

    def _line(self, j: int) -> Floats:
        """Map the codes of an attribute to numbers: numbers stay, categories become codes, missing
        comes last.
        """
        domain = self.domains[j]
        line = np.arange(domain.size, dtype=float)
        if domain.attribute.kind == "numeric":
            line[: len(domain.values)] = domain.values
            if domain.has_missing and len(domain.values):
                line[-1] = domain.values[-1]
        return line

    def coordinates(self, codes: Codes, numbers: Floats) -> Floats:
        return np.array([self._line(j)[c] if c >= 0 else numbers[j] for j, c in enumerate(codes)])

    def leaf_of(self, point: Floats) -> Ints:
        node = self.root
        while node.below is not None and node.above is not None:
            node = node.below if point[node.axis] <= node.at else node.above
        return node.cells

    def _split(self, node: _Node) -> list[_Node]:
        points, weight = self.points[node.cells], self.weight[node.cells]
        if weight.sum() < 2 * self.k:
            return []
        for axis in np.argsort(-self._widths(points), kind="stable"):
            for at in self._cuts(int(axis), points[:, axis], weight):
                below = points[:, axis] <= at
                if min(weight[below].sum(), weight[~below].sum()) >= self.k:
                    node.axis, node.at = int(axis), at
                    node.below, node.above = _Node(node.cells[below]), _Node(node.cells[~below])
                    return [node.below, node.above]
        return []

    def _widths(self, points: Floats) -> Floats:
        spans = points.max(axis=0) - points.min(axis=0)
        for j, domain in enumerate(self.domains):
            if self.normalise:
                whole = np.ptp(self.points[:, j])
                spans[j] = spans[j] / whole if whole > 0 else 0.0
            elif domain.attribute.kind != "numeric":
                spans[j] = len(np.unique(points[:, j]))
        return np.asarray(spans)

    def _cuts(self, axis: int, line: Floats, weight: Ints) -> Iterator[float]:
        """Yield the weighted median as the last value of the lower part, then the value before it.

        Without `normalise`, cut categories in the middle of their list, however many people each
        half has.
        """
        values, inverse = np.unique(line, return_inverse=True)
        if not self.normalise and self.domains[axis].attribute.kind != "numeric":
            if len(values) > 1:
                yield float(values[len(values) // 2 - 1])
            return
        reach = np.cumsum(np.bincount(inverse, weights=weight))
        middle = int(np.searchsorted(reach, reach[-1] / 2))
        if middle < len(values) - 1:
            yield float(values[middle])
        if middle > 0:
            yield float(values[middle - 1])


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
    """The search for one counterfactual, over cells with multiplicities."""

    def __init__(
        self,
        settings: GraspProtector,
        request: ProtectionRequest,
        i: int,
        random: np.random.Generator,
    ) -> None:
        self.settings, self.request, self.i, self.random = settings, request, i, random
        self.space = BoxSpace(request, i)
        population = request.population
        rows = np.arange(population.n_rows)
        desired = request.combination_outcomes.desired_rows(i, rows)
        self.pool = np.bincount(
            population.cell_of(rows), weights=desired, minlength=len(population.cells)
        ).astype(int)
        same = np.flatnonzero((population.cells == np.array(self.space.own)).all(axis=1))
        # the native row is not its own neighbor
        self.pool[same] = np.maximum(self.pool[same] - 1, 0)

    def run(self) -> Proposal:
        best: Box | None = None
        best_rank: Rank | None = None
        if self.space.people.sum() < self.request.policy.k:
            return Proposal(None)
        for _ in range(self.settings.iterations):
            box, its_rank = self.local_search(self.construct())
            if best_rank is None or its_rank < best_rank:
                best, best_rank = box, its_rank
        return Proposal(self.space.region(best) if best is not None else None)

    def construct(self) -> Box:
        """Phase 1: join random near neighbours until k people are inside."""
        space, box = self.space, self.space.point()
        while space.count(box) < self.request.policy.k:
            chosen = space.cells[self.neighbor(space.distances(box))]
            box = [space.join(j, table, int(chosen[j])) for j, table in enumerate(box)]
        return box

    def neighbor(self, distance: Floats) -> int:
        """Draw one of the alpha nearest rows of the pool, or one outside the box if all of those
        are inside.
        """
        people = self.space.people
        for weights in (
            self.pool,
            np.where(distance > 0, self.pool, 0),
            np.where(distance > 0, people, 0),
        ):
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
                if (
                    self.space.count(other) >= self.request.policy.k
                    and (other_rank := self.rank(other)) < its_rank
                ):
                    box, its_rank, improved = other, other_rank, True
                    break
        return box, its_rank

    def rank(self, box: Box) -> Rank:
        """Rank of a box: NCP, and pureness from sampled combinations."""
        picks = [np.flatnonzero(table).astype(np.int32) for table in box]
        n = self.settings.samples
        cells = np.column_stack([codes[self.random.integers(0, len(codes), n)] for codes in picks])
        good = self.request.combination_outcomes.ask(
            np.full(n, self.i), cells, reuse=self.settings.reuse_answers
        )
        return rank(self.request.policy, self.space.ncp(box), float(good.mean()))
