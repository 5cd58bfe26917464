"""Building the fixed partition of a population: groups of cells, rows to groups, groups to regions."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.cells import in_order
from cfk_plugin.metrics.disclosure import l_diversity, t_closeness
from cfk_plugin.partition import Partition
from cfk_plugin.policy import PrivacyPolicy
from cfk_plugin.population import Population
from cfk_plugin.protection.grouping import Shares, group_cells
from cfk_plugin.protection.merging import GroupHulls
from cfk_plugin.protection.regions import hull, index_of
from cfk_plugin.region import Region

_OUTLOOK = 0.03  # what a group loses that holds both certain and impossible outcomes, next to an NCP of 1
_BUILT: WeakKeyDictionary[Population, dict[tuple[object, ...], Partition]] = WeakKeyDictionary()


def partition_of(
    population: Population,
    policy: PrivacyPolicy,
    sides: NDArray[np.int64] | None = None,
    outlook: NDArray[np.float64] | None = None,
) -> Partition:
    """Return the partition of a population for a policy; built once, whoever asks.

    Parameters
    ----------
    population : Population
    policy : PrivacyPolicy
        Its k, l and t.
    sides : int64 array, shape (n_rows,), optional
        What must not be mixed in a group, -1 for rows that belong to no group. Default: all rows are of one side.
    outlook : float64 array, shape (n_cells,), optional
        How likely the desired outcome is in each cell, in [0, 1]; groups prefer cells that are alike in it.

    Returns
    -------
    Partition
        Every group holds at least k distinct people (l distinct sensitive values, closeness t) of its own. A side
        that has fewer people has no group.
    """
    if sides is None:
        sides = np.zeros(population.n_rows, dtype=np.int64)
    built = _BUILT.setdefault(population, {})
    key = (policy.k, policy.l, policy.t, sides.tobytes(), None if outlook is None else outlook.tobytes())
    if key not in built:
        built[key] = _Builder(population, policy, sides, outlook).build()
    return built[key]


class _Builder:
    """One partition in the making."""

    def __init__(
        self,
        population: Population,
        policy: PrivacyPolicy,
        sides: NDArray[np.int64],
        outlook: NDArray[np.float64] | None,
    ) -> None:
        self.population, self.policy, self.sides, self.outlook = population, policy, sides, outlook
        self.axes = index_of(population).axes
        self.group_of_row = np.full(population.n_rows, -1, dtype=np.int64)
        self.side_of_group: list[int] = []

    def build(self) -> Partition:
        for side in np.unique(self.sides[self.sides >= 0]).tolist():
            self._group(side, np.flatnonzero(self.sides == side))
        rows = np.flatnonzero(self.group_of_row >= 0)
        if len(rows):
            self._merge(rows)
        count = len(self.side_of_group)
        regions = tuple(self._region(cells) for cells in self._cells_of(rows, count))
        return Partition(self.population, regions, self.group_of_row, np.array(self.side_of_group, dtype=np.int64))

    def _group(self, side: int, rows: NDArray[np.int64]) -> None:
        """Group the rows of one side by their cells."""
        if self.population.people(rows) < self.policy.k:
            return
        counted = self._counts_once(rows)
        cell_of, cell = np.unique(self.population.cell_of(rows), return_inverse=True)
        people = np.bincount(cell, weights=counted, minlength=len(cell_of)).astype(np.int64)
        labels = None if self.outlook is None else self.outlook[cell_of]
        cells = self.population.cells[cell_of]
        shares = group_cells(self.axes, cells, people, self.policy.k, labels=labels, label_weight=_OUTLOOK)
        self.group_of_row[rows] = len(self.side_of_group) + self._assign(rows, cell, counted, shares)
        self.side_of_group += [side] * (int(shares.group.max()) + 1)

    def _counts_once(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Say of each row whether its person is counted there: at one of this side, whatever the table's order."""
        if not self.population.has_several_rows:
            return np.ones(len(rows), dtype=np.int64)
        line = in_order(self.population.encode(self.population.rows(rows))[0], self.population.schema)
        counted = np.zeros(len(rows), dtype=np.int64)
        counted[line[self.population.first_rows(rows[line])]] = 1
        return counted

    def _assign(
        self, rows: NDArray[np.int64], cell: NDArray[np.int64], counted: NDArray[np.int64], shares: Shares
    ) -> NDArray[np.int64]:
        """Return the group of each row. Who of a cell that is shared goes where is decided by a keyed hash."""
        order = np.lexsort((shares.people, shares.cell))  # the largest share of a cell comes last
        start = np.searchsorted(shares.cell[order], np.arange(int(shares.cell.max()) + 2))
        last = order[start[1:] - 1]
        group = shares.group[last][cell]
        divided = np.flatnonzero(np.diff(start) > 1)
        if not len(divided):
            return group
        members = np.flatnonzero(np.isin(cell, divided))
        members = members[np.argsort(cell[members], kind="stable")]
        number = self.population.keyed_numbers(rows[members])
        bounds = np.searchsorted(cell[members], divided), np.searchsorted(cell[members], divided, side="right")
        for c, first, end in zip(divided, *bounds, strict=True):
            at = members[first:end]
            unit = np.unique(number[first:end], return_inverse=True)[1]  # equal records stay together
            weight = np.bincount(unit, weights=counted[at])
            taken = 0
            for share in order[start[c] : start[c + 1] - 1]:
                held = 0
                while held < shares.people[share] and taken < len(weight) - 1:
                    group[at[unit == taken]] = shares.group[share]
                    held += int(weight[taken])
                    taken += 1
        return group

    def _merge(self, rows: NDArray[np.int64]) -> None:
        """Merge groups that came out too small, because equal records stay together, or too alike."""
        count = len(self.side_of_group)
        members = _split(self.group_of_row[rows], rows, count)
        people = np.array([self.population.people(m) for m in members])
        sides = np.array(self.side_of_group)
        if (people >= self.policy.k).all() and self.policy.l is None and self.policy.t is None:
            return
        hulls = GroupHulls(self.axes, self.population.cells, self._cells_of(rows, count), people)
        hulls.merge_while(lambda _, parts: self._unfit(np.concatenate([members[p] for p in parts])), sides)
        kept, into = np.unique(hulls.into, return_inverse=True)
        self.group_of_row[rows] = into[self.group_of_row[rows]]
        unfit = [
            self._unfit(np.flatnonzero(self.group_of_row == g)) for g in range(len(kept))
        ]  # a whole side that does not meet the policy has no group
        renumbered = np.where(unfit, -1, np.cumsum(~np.array(unfit)) - 1)
        self.group_of_row[rows] = renumbered[self.group_of_row[rows]]
        self.side_of_group = sides[kept][~np.array(unfit)].tolist()

    def _unfit(self, rows: NDArray[np.int64]) -> bool:
        """Say whether rows have too few people, or sensitive values too alike, to be released as one group."""
        policy, population = self.policy, self.population
        if population.people(rows) < policy.k:
            return True
        for name in population.schema.sensitive if policy.l is not None or policy.t is not None else ():
            everybody = population.column(name)
            inside = everybody.take(rows)
            if policy.l is not None and l_diversity(inside).distinct < policy.l:
                return True
            if policy.t is not None:
                distance = t_closeness(inside, everybody, population.domains[name].is_interval)
                if distance > policy.t:
                    return True
        return False

    def _cells_of(self, rows: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
        kept = rows[self.group_of_row[rows] >= 0]
        return [np.unique(c) for c in _split(self.group_of_row[kept], self.population.cell_of(kept), count)]

    def _region(self, cells: NDArray[np.int64]) -> Region:
        codes = self.population.cells[cells]
        return hull(self.population, codes[0], np.zeros(codes.shape[1]), codes)


def _split(group: NDArray[np.int64], values: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    """Return the values of each group; none at all where there is no group."""
    order = np.argsort(group, kind="stable")
    return np.split(values[order], np.searchsorted(group[order], np.arange(1, count)))[:count]
