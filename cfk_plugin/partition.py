"""A fixed partition of the people: who is released with which region, whatever is asked and in whatever order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from cfk_plugin.errors import PopulationError
from cfk_plugin.metrics.information import ncp
from cfk_plugin.records import Records
from cfk_plugin.region_distance import RegionDistance, nearest_cells

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.population import Population
    from cfk_plugin.region import Region


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
    """

    population: Population
    regions: tuple[Region, ...]
    group_of_row: NDArray[np.int64]
    side_of_group: NDArray[np.int64]

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
        A training row has its group. Any other record is treated as one of the people of the nearest equivalence class
        (HEOM distance of the quasi-identifiers): whoever takes the nearest person for its source is left with the whole
        group. Where the people of that class are in several groups, a keyed number of the record draws one of them,
        each as often as people are in it: to whoever does not know the key, all of the class are as likely as they
        are. The region is not stretched to hold the record: a border made by one request would give that request away.
        """
        rows = self._records.find(codes, numbers)
        own = np.where(rows >= 0, self.group_of_row[rows], -1)
        own[own >= 0] = np.where(self.side_of_group[own[own >= 0]] == sides[own >= 0], own[own >= 0], -1)
        open_ = np.flatnonzero(own < 0)
        for side in np.unique(sides[open_]).tolist():
            members = np.flatnonzero(self._side_of_row == side)
            if len(members):
                at = open_[sides[open_] == side]
                own[at] = self._as_neighbours(members, codes[at], numbers[at])
        return own

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

    @cached_property
    def _records(self) -> Records:
        return Records(self.population)

    @cached_property
    def _side_of_row(self) -> NDArray[np.int64]:
        side = np.full(len(self.group_of_row), -1, dtype=np.int64)
        grouped = self.group_of_row >= 0
        side[grouped] = self.side_of_group[self.group_of_row[grouped]]
        return side

    def _as_neighbours(
        self, members: NDArray[np.int64], codes: NDArray[np.int32], numbers: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Return the group that each record would be in, were it one of the people of the nearest class."""
        population = self.population
        cells, cell_of = np.unique(population.cell_of(members), return_inverse=True)
        quasi = [population.schema.features.index(name) for name in population.schema.quasi_identifiers]
        nearest = nearest_cells(population, codes[:, quasi], numbers[:, quasi], population.cells[cells])
        order = np.argsort(cell_of, kind="stable")
        start = np.searchsorted(cell_of[order], np.arange(len(cells) + 1))
        found = np.empty(len(codes), dtype=np.int64)
        for i, cell in enumerate(nearest.tolist()):
            groups = self.group_of_row[members[order[start[cell] : start[cell + 1]]]]
            found[i] = groups[0] if (groups == groups[0]).all() else self._drawn(groups, codes[i])
        return found

    def _drawn(self, groups: NDArray[np.int64], record: NDArray[np.int32]) -> int:
        """Return one of the groups of some people, each as often as people are in it; a keyed number decides."""
        share = float(self.population.keyed_order(record[None, :])[0]) / 2.0**64
        return int(np.sort(groups)[min(int(share * len(groups)), len(groups) - 1)])

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
