"""Strict multidimensional Mondrian: the whole table is generalised once; the baseline of the paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.population import Population
from cfk_plugin.protection.base import Proposal, Task
from cfk_plugin.protection.regions import hull


@dataclass(frozen=True, slots=True, kw_only=True)
class MondrianProtector:
    """Generalise a counterfactual to the Mondrian partition that it falls into.

    The table is split at weighted medians of the widest attribute until no part can be split into two of k people.
    Regions of different explanations never overlap partly, so intersecting them reveals nothing; the price is a
    much larger information loss than that of a region made for one explanation.

    Parameters
    ----------
    normalise : bool
        Compare the attributes' widths as shares of their range. False compares raw numeric widths with numbers of
        categories and cuts a list of categories in the middle, whoever has them, as implementations of the kind do that
        the paper compares with; its results are much worse.

    References
    ----------
    LeFevre, DeWitt, Ramakrishnan: Mondrian multidimensional k-anonymity. ICDE 2006.
    """

    normalise: bool = True

    name = "mondrian"

    def protect(self, task: Task) -> Sequence[Proposal]:
        """Return the partition of every counterfactual, stretched to hold it where it is not a row."""
        population = task.population
        if population.n_people < task.policy.k:
            return [Proposal(None)] * len(task)
        tree = _Partition(population, task.policy.k, self.normalise)
        proposals = []
        for codes, numbers in zip(task.codes, task.numbers, strict=True):
            cells = population.cells[tree.leaf_of(tree.coordinates(codes, numbers))]
            proposals.append(Proposal(hull(population, codes, numbers, cells)))
        return proposals


@dataclass(slots=True)
class _Node:
    cells: NDArray[np.int64]
    axis: int = -1
    at: float = 0.0
    below: _Node | None = None
    above: _Node | None = None


class _Partition:
    """The tree of splits over the population's cells."""

    def __init__(self, population: Population, k: int, normalise: bool) -> None:
        self.domains = [population.domains[q] for q in population.schema.quasi_identifiers]
        self.points = np.column_stack([self._line(j)[population.cells[:, j]] for j in range(len(self.domains))])
        self.weight = population.cell_people
        self.k, self.normalise = k, normalise
        self.root = _Node(np.arange(len(population.cells)))
        todo = [self.root]
        while todo:
            todo += self._split(todo.pop())

    def _line(self, j: int) -> NDArray[np.float64]:
        """Put the codes of an attribute on a line: numbers as they are, categories by code, missing at the end."""
        domain = self.domains[j]
        line = np.arange(domain.size, dtype=float)
        if domain.attribute.kind == "numeric":
            line[: len(domain.values)] = domain.values
            if domain.has_missing and len(domain.values):
                line[-1] = domain.values[-1]
        return line

    def coordinates(self, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return where a counterfactual stands on each line."""
        return np.array([self._line(j)[c] if c >= 0 else numbers[j] for j, c in enumerate(codes)])

    def leaf_of(self, point: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the cells of the part that a point falls into."""
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

    def _widths(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        spans = points.max(axis=0) - points.min(axis=0)
        for j, domain in enumerate(self.domains):
            if self.normalise:
                whole = np.ptp(self.points[:, j])
                spans[j] = spans[j] / whole if whole > 0 else 0.0
            elif domain.attribute.kind != "numeric":
                spans[j] = len(np.unique(points[:, j]))
        return np.asarray(spans)

    def _cuts(self, axis: int, line: NDArray[np.float64], weight: NDArray[np.int64]) -> Iterator[float]:
        """Yield the weighted median as last value of the lower part, then the value before it.

        Where raw widths are compared, categories are cut in the middle of their list instead, however many people each
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
