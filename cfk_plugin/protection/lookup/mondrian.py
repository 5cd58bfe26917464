"""The Mondrian protector, a baseline of the paper: strict multidimensional partitioning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cfk_plugin.data.population import Population
from cfk_plugin.hookspecs import Proposal, ProtectionRequest
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.regions import region_of


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
        partition = MondrianPartition(population, request.policy.k, self.normalise)
        proposals = []
        for codes, numbers in zip(request.codes, request.numbers, strict=True):
            classes = partition.classes_with(partition.coordinates(codes, numbers))
            cells = np.vstack([population.cells[classes], codes])
            proposals.append(Proposal(region_of(population, cells, numbers)))
        return proposals


@dataclass(slots=True)
class MondrianNode:
    """A part of the table; if it is split, the axis and the cut."""

    classes: Ints  # shape (n,); equivalence classes of the part
    axis: int = -1
    cut: float = 0.0  # the largest coordinate of the lower part
    below: MondrianNode | None = None
    above: MondrianNode | None = None


class MondrianPartition:
    """A population, split until no part can be split into two of k people.

    Every quasi-identifier is a line of numbers, its *coordinates*: numbers stay as they are,
    categories are their codes, and "missing" comes last.
    """

    def __init__(self, population: Population, k: int, normalise: bool) -> None:
        names = population.schema.quasi_identifiers
        self._domains = [population.domains[name] for name in names]
        self._k = k
        self._normalise = normalise
        self._people = population.cell_people
        lines = [self._coordinates_of_codes(j) for j in range(len(names))]
        columns = [line[population.cells[:, j]] for j, line in enumerate(lines)]
        self._points = np.column_stack(columns)  # shape (n_classes, n_axes)
        self.root = MondrianNode(np.arange(len(population.cells)))
        to_split = [self.root]
        while to_split:
            to_split += self._split(to_split.pop())

    def coordinates(self, codes: Codes, numbers: Floats) -> Floats:
        """Return the point of a counterfactual; all arrays have shape (n_axes,)."""
        point = np.array(numbers)
        for j, code in enumerate(codes):
            if code >= 0:
                point[j] = self._coordinates_of_codes(j)[code]
        return point

    def classes_with(self, point: Floats) -> Ints:
        """Return the equivalence classes of the part that a point falls into."""
        node = self.root
        while node.below is not None and node.above is not None:
            node = node.below if point[node.axis] <= node.cut else node.above
        return node.classes

    def _coordinates_of_codes(self, j: int) -> Floats:
        """Return the coordinate of each code of an axis, shape (n_codes,)."""
        domain = self._domains[j]
        line = np.arange(domain.size, dtype=float)
        if domain.attribute.kind == "numeric":
            line[: len(domain.values)] = domain.values
            if domain.has_missing and len(domain.values):
                line[-1] = domain.values[-1]
        return line

    def _split(self, node: MondrianNode) -> list[MondrianNode]:
        """Split a node at the first cut with k people on both sides; return its parts, if any."""
        points = self._points[node.classes]
        people = self._people[node.classes]
        if people.sum() < 2 * self._k:
            return []
        for axis in np.argsort(-self._widths(points), kind="stable"):
            for cut in self._cuts(int(axis), points[:, axis], people):
                is_below = points[:, axis] <= cut
                if min(people[is_below].sum(), people[~is_below].sum()) >= self._k:
                    node.axis = int(axis)
                    node.cut = cut
                    node.below = MondrianNode(node.classes[is_below])
                    node.above = MondrianNode(node.classes[~is_below])
                    return [node.below, node.above]
        return []

    def _widths(self, points: Floats) -> Floats:
        """Return the width of points of shape (n, n_axes) on each axis, shape (n_axes,)."""
        widths = points.max(axis=0) - points.min(axis=0)
        for j, domain in enumerate(self._domains):
            if self._normalise:
                whole = np.ptp(self._points[:, j])
                widths[j] = widths[j] / whole if whole > 0 else 0.0
            elif domain.attribute.kind != "numeric":
                widths[j] = len(np.unique(points[:, j]))
        return np.asarray(widths)

    def _cuts(self, axis: int, line: Floats, people: Ints) -> Iterator[float]:
        """Yield the weighted median as the last value of the lower part, then the value before it.

        Without `normalise`, cut categories in the middle of their list, however many people each
        half has. `line` and `people` have shape (n_classes,).
        """
        values, value_of_class = np.unique(line, return_inverse=True)
        if not self._normalise and self._domains[axis].attribute.kind != "numeric":
            if len(values) > 1:
                yield float(values[len(values) // 2 - 1])
            return
        people_up_to = np.cumsum(np.bincount(value_of_class, weights=people))
        middle = int(np.searchsorted(people_up_to, people_up_to[-1] / 2))
        if middle < len(values) - 1:
            yield float(values[middle])
        if middle > 0:
            yield float(values[middle - 1])
