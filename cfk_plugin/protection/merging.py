"""Merging groups of a partition that cannot stand alone, at the least cost in information."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.protection._axes import NOMINAL, TREE, Axes


class GroupHulls:
    """Groups of cells as growing hulls; finds the partner that makes the least of a loss.

    Parameters
    ----------
    axes : Axes
    cells : int32 array, shape (m, n_quasi_identifiers)
        Codes of all cells.
    groups : sequence of int64 arrays
        Cells of each group.
    people : int64 array, shape (n_groups,)
        Their people.
    """

    def __init__(
        self, axes: Axes, cells: NDArray[np.int32], groups: list[NDArray[np.int64]], people: NDArray[np.int64]
    ):
        self._axes = axes
        self._inside = [np.zeros((len(groups), int(size)), dtype=bool) for size in np.diff(axes.arrays.offset)]
        for group, members in enumerate(groups):
            for j, table in enumerate(self._inside):
                table[group, cells[members, j]] = True
        self.people = people.copy()
        self.into = np.arange(len(groups))
        self._alive = np.ones(len(groups), dtype=bool)
        self._loss = self._losses(np.arange(len(groups)), None)

    def merge_while(self, unfit: Callable[[int, NDArray[np.int64]], bool], sides: NDArray[np.int64]) -> None:
        """Merge each group that is unfit with its cheapest partner of the same side until no group is.

        Parameters
        ----------
        unfit : callable
            Told a group and the original groups in it; says whether it cannot stand alone.
        sides : int64 array, shape (n_groups,)
        """
        todo = [g for g in range(len(self.into)) if unfit(g, np.array([g]))]
        while todo:
            group = todo.pop(0)
            if not self._alive[group]:
                continue
            partner = self._partner(group, sides)
            if partner is None:  # nobody left on this side: as large as it gets
                continue
            self._merge(group, partner)
            if unfit(group, np.flatnonzero(self.into == group)):
                todo.insert(0, group)

    def _partner(self, group: int, sides: NDArray[np.int64]) -> int | None:
        others = np.flatnonzero(self._alive & (sides == sides[group]))
        others = others[others != group]
        if not len(others):
            return None
        joint = self._losses(others, group)
        size = self.people[group]
        worse = joint * (self.people[others] + size) - self._loss[others] * self.people[others]
        return int(others[np.argmin(np.round(worse - self._loss[group] * size, 12))])

    def _merge(self, group: int, partner: int) -> None:
        for table in self._inside:
            table[group] |= table[partner]
        self.people[group] += self.people[partner]
        self._alive[partner] = False
        self.into[self.into == partner] = group
        self._loss[group] = self._losses(np.array([group]), None)[0]

    def _losses(self, groups: NDArray[np.int64], joined: int | None) -> NDArray[np.float64]:
        """NCP of the hulls of some groups, each joined with one more."""
        arrays, total = self._axes.arrays, np.zeros(len(groups))
        for j, table in enumerate(self._inside):
            inside = table[groups] if joined is None else table[groups] | table[joined]
            weight, missing = float(arrays.weight[j]), int(arrays.missing[j])
            if arrays.kind[j] == NOMINAL:
                size = inside.sum(axis=1)
                total += np.where(size > 1, weight * size / int(arrays.card[j]), 0.0)
                continue
            present = inside if missing < 0 else np.delete(inside, missing, axis=1)
            low, high = present.argmax(axis=1), present.shape[1] - 1 - present[:, ::-1].argmax(axis=1)
            if arrays.kind[j] == TREE:
                total += self._nodes(j, low, high)
                continue
            position = arrays.position[arrays.offset[j] : arrays.offset[j + 1]]
            some = present.any(axis=1)
            width = np.where(some, np.minimum(position[high] - position[low], weight), 0.0)
            total += np.where(inside[:, missing] & some, weight, width) if missing >= 0 else width
        return total

    def _nodes(self, j: int, low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.float64]:
        """Cost of the lowest node of a hierarchy that covers each range of leaves."""
        arrays = self._axes.arrays
        at = slice(int(arrays.node_offset[j]), int(arrays.node_offset[j + 1]))
        first, last = arrays.node_low[at], arrays.node_high[at]
        covers = (first <= low[:, None]) & (last >= high[:, None])
        leaves = np.where(covers, last - first + 1, np.iinfo(np.int64).max).min(axis=1)
        return np.where(low == high, 0.0, float(arrays.weight[j]) * leaves / int(arrays.card[j]))
