"""A fixed partition of the training rows: which region each row is released with.

The partition is made before the first query and depends on the population, never on a query. The
numbers in this package mean the following.

* A *group* has a number from 0 to n_groups - 1. Group g is released with ``regions[g]``, and its
  people belong to the eligibility class ``eligibility_of_group[g]``.
* ``group_of_row[i]`` is the group of training row i; -1 means that the row has no group, because it
  is not eligible, or because its eligibility class has too few people for k, l or t.
* There is no ``group_of_class``: the people of an equivalence class (people with equal
  quasi-identifiers) may be divided among several groups. The people of one class who are in one
  group are a *part* of the class. `ClassDivision` holds the parts of each class.
* `Partition.group_of` returns the group of any record; -1 means that its eligibility class has no
  group.
* Classes are numbered by the rows of ``Population.cells``, if nothing else is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region
from cfk_plugin.errors import HostOnly
from cfk_plugin.hookspecs import Proposal, ProtectionRequest
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.partition.neighbors import NearestClasses
from cfk_plugin.protection.partition.region_distance import RegionDistance
from cfk_plugin.protection.regions import region_of


class ClassDivision(NamedTuple):
    """How the equivalence classes of one eligibility class are divided into parts.

    The parts of a class are runs of the sorted keyed numbers of its records. The fields are stored
    under their names in a sealed catalogue.
    """

    nearest: NearestClasses  # finds the class of a record, by its row in `cell`
    cell: Ints  # shape (n_classes,); rows of `Population.cells`
    start: Ints  # shape (n_classes + 1,); class i has the parts start[i] to start[i + 1] - 1
    group: Ints  # shape (n_parts,); the group of each part
    # shape (n_parts,); the last keyed number of each part. The last part of a class has all
    # numbers above the part before it.
    last: NDArray[np.uint64]

    @property
    def cell_of_part(self) -> Ints:
        """The class of each part as a row of `Population.cells`, shape (n_parts,)."""
        return np.repeat(self.cell, np.diff(self.start))


def by_group(group: Ints, values: Ints, count: int) -> list[Ints]:
    """Return the values of each of `count` groups, in order; `group` has the group of each value.

    Values of group -1 are left out.
    """
    order = np.argsort(group, kind="stable")
    start = np.searchsorted(group[order], np.arange(count + 1))
    return [values[order[first:stop]] for first, stop in pairwise(start)]


def regions_of(population: Population, group: Ints, cell: Ints, count: int) -> tuple[Region, ...]:
    """Return the region of each of `count` groups: the hull of its equivalence classes.

    Group and class are given for each row or part; those of group -1 are left out.
    """
    return tuple(
        region_of(population, population.cells[np.unique(classes)])
        for classes in by_group(group, cell, count)
    )


@dataclass(frozen=True, eq=False, repr=False)
class Partition(HostOnly):
    """Assigns training rows to groups; every member of a group is released with the group's region.

    Groups depend on the population alone, never on a query: an adversary who reruns the protection
    for every person is left with the whole group. The partition does not hide which members have
    the released private values.
    """

    population: Population
    # shape (n_groups,); for an adversary, groups with the same region are one
    regions: tuple[Region, ...]
    group_of_row: Ints  # shape (n_rows,); -1 for rows without a group
    # shape (n_groups,); the eligibility class of each group's people, who are not mixed with those
    # of others: the predicted outcome, if only eligible rows count
    eligibility_of_group: Ints
    # by eligibility class, where the divisions cannot be found from rows; see `divided`
    classes: Mapping[int, ClassDivision] | None = None

    def __post_init__(self) -> None:
        # must not change between explanations
        for array in (self.group_of_row, self.eligibility_of_group):
            array.setflags(write=False)

    def _counts(self) -> str:
        return f"{len(self.regions)} groups, {int((self.group_of_row >= 0).sum())} rows"

    def group_of(self, codes: Codes, numbers: Floats, eligibility: Ints) -> Ints:
        """Return the group whose region each counterfactual is released with; -1 for no group.

        A counterfactual gets a group of the nearest equivalence class with its eligibility. If this
        class is divided, its keyed number draws one of the groups, about as often as people of the
        class are in each. An adversary without the key cannot foresee which one.

        Parameters
        ----------
        codes, numbers : shape (n, n_features)
            The counterfactuals.
        eligibility : shape (n,)
            The eligibility class of each.

        Returns
        -------
        shape (n,)
        """
        group = np.full(len(codes), -1, dtype=np.int64)
        quasi = self.population.schema.quasi_positions
        for eligibility_class, division in self.divided.items():
            rows = np.flatnonzero(eligibility == eligibility_class)
            if not len(rows):
                continue
            index = division.nearest.find(codes[rows][:, quasi], numbers[rows][:, quasi])
            first_part = division.start[index]
            next_part = division.start[index + 1]
            group[rows] = division.group[first_part]
            divided = np.flatnonzero(next_part - first_part > 1)
            if not len(divided):
                continue
            rows_of_divided = rows[divided]
            keyed_numbers = self.population.keyed_order(
                codes[rows_of_divided], numbers[rows_of_divided]
            )
            for i, keyed_number in zip(divided.tolist(), keyed_numbers, strict=True):
                parts = slice(first_part[i], next_part[i])
                part = np.searchsorted(division.last[parts][:-1], keyed_number)
                group[rows[i]] = division.group[parts][part]
        return group

    def rows_mapped_to(self, region: Region) -> Ints:
        """Return the training rows that are released with a region, in order.

        There are none for a region that the partition lacks.
        """
        return self._rows_of_region.get(region, np.empty(0, dtype=np.int64))

    @cached_property
    def distance(self) -> RegionDistance:
        return RegionDistance(self.population, self.regions)

    @cached_property
    def divided(self) -> Mapping[int, ClassDivision]:
        """How the equivalence classes of each eligibility class are divided."""
        if self.classes is not None:
            return self.classes
        grouped = np.flatnonzero(self.group_of_row >= 0)
        eligibility = self.eligibility_of_group[self.group_of_row[grouped]]
        return {
            int(eligibility_class): self._division(grouped[eligibility == eligibility_class])
            for eligibility_class in np.unique(eligibility)
        }

    @property
    def parts(self) -> tuple[Ints, Ints]:
        """Group and class of each part, for all eligibility classes; shape (n_parts,) each."""
        no_parts = np.empty(0, dtype=np.int64)
        divisions = self.divided.values()
        group = np.concatenate([no_parts, *(division.group for division in divisions)])
        cell = np.concatenate([no_parts, *(division.cell_of_part for division in divisions)])
        return group, cell

    def _division(self, rows: Ints) -> ClassDivision:
        """Find from the rows of one eligibility class how its equivalence classes are divided."""
        population = self.population
        group = self.group_of_row[rows]
        cells, class_of_row = np.unique(population.cell_of(rows), return_inverse=True)
        pairs = np.unique(np.column_stack([class_of_row, group]), axis=0)
        is_repeated = np.diff(pairs[:, 0]) == 0
        divided_classes = pairs[1:][is_repeated, 0]
        # Keyed numbers take time, and only the rows of divided classes need them.
        is_divided = np.isin(class_of_row, divided_classes)
        keyed_numbers = np.zeros(len(rows), dtype=np.uint64)
        keyed_numbers[is_divided] = population.keyed_numbers(rows[is_divided])
        order = np.lexsort((keyed_numbers, class_of_row))
        class_of_row = class_of_row[order]
        group = group[order]
        is_class_end = np.diff(class_of_row, append=-1) != 0
        is_group_end = np.diff(group, append=-1) != 0
        part_end = np.flatnonzero(is_class_end | is_group_end)
        return ClassDivision(
            nearest=NearestClasses(population, population.cells[cells]),
            cell=cells,
            start=np.searchsorted(class_of_row[part_end], np.arange(len(cells) + 1)),
            group=group[part_end],
            last=keyed_numbers[order][part_end],
        )

    @cached_property
    def _rows_of_region(self) -> dict[Region, Ints]:
        n_groups = len(self.regions)
        members = by_group(self.group_of_row, np.arange(len(self.group_of_row)), n_groups)
        rows_of_groups: dict[Region, list[Ints]] = {}  # several groups may have one region
        for region, rows in zip(self.regions, members, strict=True):
            rows_of_groups.setdefault(region, []).append(rows)
        return {region: np.sort(np.concatenate(rows)) for region, rows in rows_of_groups.items()}


@dataclass(slots=True)
class GroupProtector:
    """Looks up the group of a counterfactual in a fixed partition.

    It asks no model, and gives no bound on the loss.
    """

    partition: Partition
    name: str

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        """Return the region of each counterfactual's group.

        There is none if its eligibility class has too few people.
        """
        n_counterfactuals = len(request.codes)
        if request.groups is None:
            groups = [-1] * n_counterfactuals
        else:
            groups = request.groups.tolist()
        if request.progress is not None:
            request.progress(n_counterfactuals, n_counterfactuals)
        return [self._proposal(group) for group in groups]

    def _proposal(self, group: int) -> Proposal:
        region = None if group < 0 else self.partition.regions[group]
        return Proposal(region)
