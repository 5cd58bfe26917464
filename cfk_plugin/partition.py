"""A fixed partition of the people: who is released with which region, whatever is asked and in whatever order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from cfk_plugin.errors import PopulationError
from cfk_plugin.metrics.information import ncp
from cfk_plugin.nearest_cells import NearestCells
from cfk_plugin.region_distance import RegionDistance

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from cfk_plugin.population import Population
    from cfk_plugin.region import Region


class Classes(NamedTuple):
    """How equivalence classes are divided: class i, the population's cell ``cell[i]``, has the parts from ``start[i]``.

    Each part is a run of the line of keyed numbers: up to ``last``, it belongs to ``group``.
    """

    nearest: NearestCells
    cell: NDArray[np.int64]
    start: NDArray[np.int64]
    group: NDArray[np.int64]
    last: NDArray[np.uint64]


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """Assigns training rows to groups; every member of a group is released with the group's region.

    An adversary who knows everything but who it is, reruns the protection for every person and is left with all who
    are mapped to the region: the group. Which group somebody is in depends on the population alone, never on a query.
    It protects as far as the groups are large; it does not protect against an adversary who knows who among the
    members has the released private values. Host side only; refuses to be pickled.

    Attributes
    ----------
    population : Population
    regions : tuple of Region
        One per group. Two groups may have the same region; their members are then one crowd.
    group_of_row : int64 array, shape (n_rows,)
        Group of each training row; -1 for a row that has none.
    side_of_group : int64 array, shape (n_groups,)
        What distinguishes groups that must not be mixed: the predicted outcome where only eligible rows count.
    classes : mapping, optional
        For each side how its equivalence classes are divided, where that is known and cannot be found from rows.
    """

    population: Population
    regions: tuple[Region, ...]
    group_of_row: NDArray[np.int64]
    side_of_group: NDArray[np.int64]
    classes: Mapping[int, Classes] | None = None

    def __post_init__(self) -> None:
        """Make the assignment read-only: what held for one explanation must hold for the next."""
        for array in (self.group_of_row, self.side_of_group):
            array.setflags(write=False)

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Partition({len(self.regions)} groups, {int((self.group_of_row >= 0).sum())} rows)"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: it says who is in which group."""
        raise PopulationError("a Partition holds training rows and refuses to be pickled; rebuild it instead")

    def group_of(
        self,
        codes: NDArray[np.int32],
        numbers: NDArray[np.float64],
        sides: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return the group whose region each counterfactual is released with.

        Parameters
        ----------
        codes, numbers : arrays, shape (n, n_features)
            The counterfactuals' features, coded (`Population.encode`).
        sides : int64 array, shape (n,)
            The side that each belongs to.

        Returns
        -------
        int64 array, shape (n,)
            -1 where a side has no group.

        Notes
        -----
        A record is treated as one of the people of its equivalence class, or of the nearest one (HEOM distance of the
        quasi-identifiers): whoever takes the nearest person for its source is left with the whole group. Where the
        people of a class are in several groups, they are lined up by a keyed number of the record and divided at
        fixed places of that line; so is every other record, so that a training row has the group of its people and
        to whoever does not know the key all of the class are as likely as they are. The region is not stretched to
        hold the record: a border made by one request would give that request away.
        """
        quasi = [self.population.schema.features.index(name) for name in self.population.schema.quasi_identifiers]
        found = np.full(len(codes), -1, dtype=np.int64)
        for side, classes in self.divided.items():
            at = np.flatnonzero(sides == side)
            if len(at):
                nearest = classes.nearest.find(codes[at][:, quasi], numbers[at][:, quasi])
                found[at] = self._in_classes(classes, nearest, codes[at], numbers[at])
        return found

    def rows_mapped_to(self, region: Region) -> NDArray[np.int64]:
        """Return the training rows that are released with a region; none for one that the partition lacks."""
        groups = self._groups_of.get(region)
        if groups is None:
            return np.empty(0, dtype=np.int64)
        order, start = self._rows_by_group
        return np.sort(np.concatenate([order[start[g] : start[g + 1]] for g in groups]))

    @cached_property
    def distance(self) -> RegionDistance:
        """Distances from records to the regions."""
        return RegionDistance(self.population, self.regions)

    @cached_property
    def losses(self) -> NDArray[np.float64]:
        """NCP of each group's region."""
        return np.array([ncp(region, self.population) for region in self.regions])

    def _in_classes(
        self,
        classes: Classes,
        cell: NDArray[np.int64],
        codes: NDArray[np.int32],
        numbers: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """Return the group of each record of some classes."""
        start, end = classes.start[cell], classes.start[cell + 1]
        group = classes.group[start]
        divided = np.flatnonzero(end - start > 1)
        if len(divided):
            number = self.population.keyed_order(codes[divided], numbers[divided])
            for i, drawn in zip(divided.tolist(), number, strict=True):
                part = slice(start[i], end[i])
                group[i] = classes.group[part][np.searchsorted(classes.last[part][:-1], drawn)]
        return group

    @cached_property
    def divided(self) -> Mapping[int, Classes]:
        """The equivalence classes of each side, and how they are divided."""
        if self.classes is not None:
            return self.classes
        grouped = np.flatnonzero(self.group_of_row >= 0)
        side = self.side_of_group[self.group_of_row[grouped]]
        return {int(s): self._divide(grouped[side == s]) for s in np.unique(side)}

    def _divide(self, rows: NDArray[np.int64]) -> Classes:
        population, group = self.population, self.group_of_row[rows]
        cells, cell = np.unique(population.cell_of(rows), return_inverse=True)
        pairs = np.unique(np.column_stack([cell, group]), axis=0)
        divided = np.flatnonzero(np.isin(cell, pairs[1:][np.diff(pairs[:, 0]) == 0, 0]))
        number = np.zeros(len(rows), dtype=np.uint64)
        number[divided] = population.keyed_numbers(rows[divided])
        line = np.lexsort((number, cell))
        cell, group, number = cell[line], group[line], number[line]
        last = np.flatnonzero((np.diff(cell, append=-1) != 0) | (np.diff(group, append=-1) != 0))  # of each part
        start = np.searchsorted(cell[last], np.arange(len(cells) + 1))
        return Classes(NearestCells(population, population.cells[cells]), cells, start, group[last], number[last])

    @cached_property
    def _groups_of(self) -> dict[Region, list[int]]:
        groups: dict[Region, list[int]] = {}
        for group, region in enumerate(self.regions):
            groups.setdefault(region, []).append(group)
        return groups

    @cached_property
    def _rows_by_group(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order = np.argsort(self.group_of_row, kind="stable")
        start = np.searchsorted(self.group_of_row[order], np.arange(len(self.regions) + 1))
        return order, start
