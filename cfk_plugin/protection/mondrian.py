"""Mondrian, a baseline of the paper: strict multidimensional partitioning (LeFevre et al. 2006).

The table is split at medians of the widest quasi-identifier until no part can be split into two
parts of k people. Two regions are either equal or disjoint, so their intersection discloses
nothing, but the information loss is much larger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfk_plugin.data.codes import MISSING, Floats, Ints
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.boxes import Cells, Proposal, Surroundings


def mondrian_regions(
    cells: Cells, counterfactuals: Floats, k: int, *, normalise: bool = True
) -> list[Proposal | None]:
    """Return the part of each counterfactual, extended to contain it.

    Parameters
    ----------
    cells : Cells
    counterfactuals : shape (n, n_features)
    k : int
    normalise : bool
        See `MondrianProtector`.

    Returns
    -------
    list of Proposal or None
        None if there are fewer than k people.
    """
    if cells.n_people < k:
        return [None] * len(counterfactuals)
    partition = MondrianPartition(cells, k, normalise=normalise)
    proposals: list[Proposal | None] = []
    for row in counterfactuals:
        view = Surroundings.of(cells, row)
        members = partition.cells_with(row)
        proposals.append(view.proposal(view.hull(members)))
    return proposals


@dataclass(slots=True, eq=False, repr=False)
class _Node(HostOnly):
    """A part of the table, with its cut and both halves if it is split."""

    cells: Ints  # shape (n,)
    axis: int = -1
    cut: float = 0.0  # the largest coordinate of the lower part
    below: _Node | None = None
    above: _Node | None = None


class MondrianPartition(HostOnly):
    """A population, split until no part can be split into two parts of k people.

    Every quasi-identifier is a line of its codes. A missing level is above all others, and a
    missing number counts as the highest number.
    """

    def __init__(self, cells: Cells, k: int, *, normalise: bool) -> None:
        self._cells = cells
        self._k = k
        self._normalise = normalise
        self._points = self._coordinates(cells.quasi)
        self._root = _Node(np.arange(len(cells)))
        open_nodes = [self._root]
        while open_nodes:
            open_nodes += self._split(open_nodes.pop())

    def cells_with(self, row: Floats) -> Ints:
        """Return the cells of the part with a row, shape (n_features,)."""
        point = self._coordinates(row[self._cells.codes.quasi][None])[0]
        node = self._root
        while node.below is not None and node.above is not None:
            node = node.below if point[node.axis] <= node.cut else node.above
        return node.cells

    def _coordinates(self, quasi: Floats) -> Floats:
        """Return the coordinates of quasi-identifiers; both shapes are (n, n_quasi)."""
        points = quasi.copy()
        for j, column in enumerate(self._cells.columns):
            if not column.is_line:
                continue
            highest = column.places[-1] if len(column.places) else 0.0
            if not column.is_numeric:
                highest += 1
            points[quasi[:, j] == MISSING, j] = highest
        return points

    def _split(self, node: _Node) -> list[_Node]:
        """Split a node at the first cut with k people on both sides; return its parts, if any."""
        points = self._points[node.cells]
        people = self._cells.people[node.cells]
        if people.sum() < 2 * self._k:
            return []
        for axis in np.argsort(-self._widths(points), kind="stable").tolist():
            for cut in self._cuts(axis, points[:, axis], people):
                is_below = points[:, axis] <= cut
                if min(people[is_below].sum(), people[~is_below].sum()) >= self._k:
                    node.axis = axis
                    node.cut = cut
                    node.below = _Node(node.cells[is_below])
                    node.above = _Node(node.cells[~is_below])
                    return [node.below, node.above]
        return []

    def _widths(self, points: Floats) -> Floats:
        """Return the width of points, shape (n, n_quasi), on each axis, shape (n_quasi,)."""
        widths = np.ptp(points, axis=0)
        if self._normalise:
            whole = np.ptp(self._points, axis=0)
            return np.asarray(widths / np.where(whole > 0, whole, 1.0))
        for j, column in enumerate(self._cells.columns):
            if not column.is_numeric:
                widths[j] = len(np.unique(points[:, j]))
        return np.asarray(widths)

    def _cuts(self, axis: int, line: Floats, people: Ints) -> Iterator[float]:
        """Yield the largest values of the lower part: the median, then the value before it.

        Without `normalise`, categories are cut in the middle of their list, regardless of the
        people in each half. `line` and `people` have the shape (n_cells,).
        """
        values, value_of_cell = np.unique(line, return_inverse=True)
        if not self._normalise and not self._cells.columns[axis].is_numeric:
            if len(values) > 1:
                yield float(values[len(values) // 2 - 1])
            return
        n_up_to = np.cumsum(np.bincount(value_of_cell, weights=people))
        middle = int(np.searchsorted(n_up_to, n_up_to[-1] / 2))
        if middle < len(values) - 1:
            yield float(values[middle])
        if middle > 0:
            yield float(values[middle - 1])
