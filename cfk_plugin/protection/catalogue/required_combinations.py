"""The combinations of a region at which an answer must keep the outcome while it is moved.

A combination has one value for each quasi-identifier. An entry is admissible because at least k
members of its group would have the outcome with the entry's private values (see
`cfk_plugin.protection.catalogue.entries`). Moving an answer replaces private values by the query's
own, which must not reduce these members to fewer than k. The members' own combinations cannot be
checked alone: which values are refused would then reveal where in the region members are. So the
moved values must have the outcome at every combination of the region, whether or not people have
it, at which one fixed entry has the outcome. That is the region's weakest entry: it has the outcome
at the smallest share of the region, and hence requires the least. Every member who is consistent
with the weakest entry is consistent with the moved answer.

A large region has too many combinations to ask about all of them. There the combinations of values
that people inside have are asked about, mixed so that most of them are no person's; see
`combinations_of_people`. If these are too many as well, the region is wide, and answers from it
are not moved.

This does not hide which combinations a region has, nor that the model refuses a query's values at
one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.combinations import MOST_CELLS, SAMPLED, Grid
from cfk_plugin.data.decision import Mask
from cfk_plugin.data.domain import UNKNOWN
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region
from cfk_plugin.errors import HostOnly
from cfk_plugin.metrics.information import ncp
from cfk_plugin.protection.axes import Codes, Ints
from cfk_plugin.protection.catalogue.model_calls import fits_one_call
from cfk_plugin.protection.partition.partition import Partition, by_group
from cfk_plugin.protection.regions import ends_of_region

_PROBES = 4  # required combinations of a region at which a moving answer is tried first
_MOST_LISTED = 1 << 22  # combinations of all regions together that are kept in memory

HasOutcome: TypeAlias = Callable[[Ints, Ints, Codes], Mask]
"""Called with n entries, shape (n,), positions among them, shape (m,), and m combinations, shape
(m, n_quasi_identifiers). Returns a mask of shape (m,): True where the model gives the outcome of
entry ``entries[which[i]]`` for its private values at combination i."""


@dataclass(frozen=True, eq=False, repr=False)
class MovableRegion(HostOnly):
    """A region that entries offer, with the combinations that the model is asked about in it."""

    grid: Grid  # all combinations of the region
    asked_sets: Sequence[Grid]  # sets of combinations to ask about; empty if the region is wide

    @property
    def is_large(self) -> bool:
        """Whether the region has too many combinations to ask about all of them."""
        return self.grid.size > MOST_CELLS

    @property
    def n_asked(self) -> int:
        """Number of combinations that the model is asked about; 0 if the region is wide."""
        n_in_sets = sum(grid.size for grid in self.asked_sets)
        if self.is_large and n_in_sets > 0:
            return n_in_sets + SAMPLED
        return n_in_sets

    @property
    def first_combination(self) -> list[int]:
        """The lowest code of each quasi-identifier; there may be no person with all of them."""
        return [int(codes[0]) for codes in self.grid.codes]

    def asked_combinations(self) -> Codes:
        """Return the combinations to ask about; shape (n_asked, n_quasi_identifiers).

        For a large region, these are the sets of values of people inside, so that those with the
        outcome keep it, and then the sample by which verification judges how pure the region is.
        """
        combinations = [np.empty((0, len(self.grid.codes)), dtype=np.int32)]
        for grid in self.asked_sets:
            combinations.append(grid.all())
        if self.is_large and len(self.asked_sets) > 0:
            combinations.append(self.grid.drawn())
        return np.concatenate(combinations)

    def probe_candidates(self) -> Ints:
        """Return positions of combinations to choose probes from, evenly spread over the first
        set; shape (n,).
        """
        n_first = self.asked_sets[0].size if len(self.asked_sets) > 0 else 0
        return spread(n_first, 2 * _PROBES)


class ProbeCombinations(NamedTuple):
    """A few required combinations of each region, at which a moving answer is tried first."""

    first: Ints  # shape (n_regions,); position of each region's first one
    n_probes: Ints  # shape (n_regions,); how many each region has
    combinations: Codes  # shape (n_probes.sum(), n_quasi_identifiers)


class RequiredCombinations(HostOnly):
    """For every movable region, the combinations at which moved answers must keep the outcome.

    Required are those, of the combinations that the model is asked about, at which the region's
    weakest entry has its outcome. The model is asked once: about all regions together if they fit
    one call, and otherwise about each region when it is first needed. Regions are numbered by their
    position.

    Parameters
    ----------
    regions : sequence of MovableRegion
    weakest : shape (n_regions,)
        The weakest entry of each region.
    n_quasi_identifiers : int
    has_outcome : HasOutcome
    """

    def __init__(
        self,
        regions: Sequence[MovableRegion],
        weakest: Ints,
        n_quasi_identifiers: int,
        has_outcome: HasOutcome,
    ) -> None:
        self.n_asked = np.array([region.n_asked for region in regions], dtype=np.int64)
        self.no_combinations = np.empty((0, n_quasi_identifiers), dtype=np.int32)
        self._regions = regions
        self._weakest = weakest
        self._has_outcome = has_outcome
        self._listed: dict[int, Codes] = {}
        self._is_required: dict[int, Mask] = {}

    def __len__(self) -> int:
        return len(self._regions)

    def _counts(self) -> str:
        return f"{len(self)} regions"

    def asked(self, region: int) -> Codes:
        """Return the combinations that the model is asked about; none if the region is wide.

        The shape is (n_asked, n_quasi_identifiers).
        """
        if region in self._listed:
            return self._listed[region]
        combinations = self._regions[region].asked_combinations()
        if self.n_asked.sum() <= _MOST_LISTED:
            self._listed[region] = combinations
        return combinations

    def is_required(self, region: int) -> Mask:
        """Return a mask of the region's `asked` combinations: True where its weakest entry has
        its outcome.
        """
        if region not in self._is_required:
            regions = np.array([region])
            if fits_one_call(int(self.n_asked.sum())):
                regions = np.arange(len(self))
            self.remember(regions, self.ask(regions))
        return self._is_required[region]

    def of(self, region: int) -> Codes:
        """Return the region's required combinations; shape (n_required, n_quasi_identifiers)."""
        return self.asked(region)[self.is_required(region)]

    def ask(self, regions: Ints) -> Mask:
        """Ask the model at the combinations of some regions; True where these are required.

        The masks of the regions are joined, in the order of `regions`.
        """
        combinations = [self.asked(region) for region in regions.tolist()]
        which = np.repeat(np.arange(len(regions)), [len(some) for some in combinations])
        return self._has_outcome(
            self._weakest[regions], which, np.concatenate([self.no_combinations, *combinations])
        )

    def remember(self, regions: Ints, is_required: Mask) -> None:
        """Keep the answers of `ask` for some regions, so that the model is not asked again."""
        ends = np.cumsum(self.n_asked[regions])
        masks = np.split(is_required, ends)[:-1]
        self._is_required.update(zip(regions.tolist(), masks, strict=True))

    @cached_property
    def probes(self) -> ProbeCombinations:
        """Few of each region's required combinations; most values that lose one fail at these."""
        candidates = [region.probe_candidates() for region in self._regions]
        combinations = [self.no_combinations]
        for region, positions in zip(self._regions, candidates, strict=True):
            if len(region.asked_sets) > 0:
                combinations.append(region.asked_sets[0].some(positions))
        asked = np.concatenate(combinations)
        n_candidates = [len(positions) for positions in candidates]
        region_of = np.repeat(np.arange(len(self)), n_candidates)
        if len(self._is_required) < len(self):
            is_required = self._has_outcome(self._weakest, region_of, asked)
        else:
            # The first set comes first among a region's combinations, so positions are the same.
            masks = [self._is_required[i][positions] for i, positions in enumerate(candidates)]
            is_required = np.concatenate([np.empty(0, dtype=bool), *masks])
        asked = asked[is_required]
        region_of = region_of[is_required]
        place_in_region = np.arange(len(region_of)) - np.searchsorted(region_of, region_of)
        is_probe = place_in_region < _PROBES
        region_of = region_of[is_probe]
        return ProbeCombinations(
            first=np.searchsorted(region_of, np.arange(len(self))),
            n_probes=np.bincount(region_of, minlength=len(self)),
            combinations=asked[is_probe],
        )


def groups_by_region(partition: Partition, groups: Ints) -> list[list[int]]:
    """Put groups together that have the same region and the same eligibility class.

    To an adversary, such groups are one. Returns their numbers in ascending order. Regions with the
    least information loss come first; ties are decided by the values of the region. So the order
    depends on the regions, and reveals nothing about the order of the table.
    """
    groups_of: dict[Any, list[int]] = {}
    for group in groups.tolist():
        region = partition.regions[group]
        loss = round(ncp(region, partition.population), 12)
        ends = [tuple(codes.tolist()) for codes in ends_of_region(partition.population, region)]
        key = (loss, tuple(ends), int(partition.eligibility_of_group[group]))
        groups_of.setdefault(key, []).append(group)
    return [groups_of[key] for key in sorted(groups_of)]


def movable_regions(
    partition: Partition,
    groups_of_region: Sequence[Sequence[int]],
    sets_of_people: Mapping[int, Sequence[Grid]],
) -> list[MovableRegion]:
    """Return the regions of groups, each with the combinations to ask about.

    For a large region these are the sets of people that `combinations_of_people` has for its first
    group.
    """
    regions = []
    for groups in groups_of_region:
        grid = grid_of(partition.population, partition.regions[groups[0]])
        asked_sets: Sequence[Grid] = [grid]
        if grid.size > MOST_CELLS:
            asked_sets = sets_of_people.get(groups[0], ())
        regions.append(MovableRegion(grid=grid, asked_sets=asked_sets))
    return regions


def grid_of(population: Population, region: Region) -> Grid:
    """Return all combinations of the population's values inside a region."""
    return Grid.of(region, population, [0] * len(population.schema.quasi_identifiers))


def combinations_of_people(partition: Partition, groups: Ints, k: int) -> dict[int, list[Grid]]:
    """Return sets of combinations of the values that people inside of large regions have.

    The people of a group are its members, and other people inside its region. The others are there
    so that members cannot be recognized: each person who is inside of large regions and in no group
    counts for one of them, the one with the fewest others. So no two sets have a person in common.
    A set has all combinations of its people's values, so it does not reveal which values belong
    together.

    Parameters
    ----------
    partition : Partition
    groups : shape (n_groups,)
        Groups with an entry, ascending.
    k : int
        At most one in k combinations of a set may be a person's.

    Returns
    -------
    dict
        For each group with a large region one set, or several if one had too many combinations.
        Groups are left out whose sets have too many combinations or too many that are a person's.
        Empty if groups have several eligibility classes: then everyone is in a group, so there are
        no others, and a set would reveal which people have its class.
    """
    population = partition.population
    large = [
        group
        for group in groups.tolist()
        if grid_of(population, partition.regions[group]).size > MOST_CELLS
    ]
    n_eligibility_classes = len(np.unique(partition.eligibility_of_group))
    if len(large) == 0 or n_eligibility_classes > 1:
        return {}
    order = _keyed_order_of_cells(population)
    members = _members_of_groups(partition, order)
    others = _others_of_groups(partition, order, members, large)
    sets_of_people: dict[int, list[Grid]] = {}
    for group in large:
        people = order[np.unique([*members[group], *others[group]])]
        grids = _mixed(population.cells[people], k)
        if len(grids) > 0:
            sets_of_people[group] = grids
    return sets_of_people


def _keyed_order_of_cells(population: Population) -> Ints:
    """Return the population's cells in an order that follows from its key; shape (n_cells,)."""
    codes = np.full((len(population.cells), len(population.schema.features)), UNKNOWN)
    codes[:, population.schema.quasi_positions] = population.cells
    return np.argsort(population.keyed_order(codes, np.zeros(codes.shape)), kind="stable")


def _members_of_groups(partition: Partition, order: Ints) -> list[Ints]:
    """Return, for each group of the partition, the places of its members' cells in an order.

    A cell is repeated for every member who has it.
    """
    grouped = np.flatnonzero(partition.group_of_row >= 0)
    place_of_cell = np.argsort(order)
    places = place_of_cell[partition.population.cell_of(grouped)]
    return by_group(partition.group_of_row[grouped], places, len(partition.regions))


def _others_of_groups(
    partition: Partition, order: Ints, members: Sequence[Ints], groups: Sequence[int]
) -> dict[int, list[int]]:
    """Assign each cell without members to one of the groups whose regions it is in.

    Cells are places in an order, and are assigned in this order: each to the group that has the
    fewest until then.
    """
    population = partition.population
    is_free = ~np.isin(np.arange(len(order)), np.concatenate(members))
    groups_with: dict[int, list[int]] = {}
    for group in groups:
        is_inside = population.cells_inside(partition.regions[group])[order]
        for place in np.flatnonzero(is_inside & is_free).tolist():
            groups_with.setdefault(place, []).append(group)
    others: dict[int, list[int]] = {group: [] for group in groups}
    for place in sorted(groups_with):
        fewest = min(groups_with[place], key=lambda group: len(others[group]))
        others[fewest].append(place)
    return others


def _mixed(cells: Codes, k: int) -> list[Grid]:
    """Return sets of all combinations of the values of some cells, in as few sets as possible.

    Empty if more than one in k combinations of a set would be one of the cells, or if the sets
    would have too many combinations. The cells have the shape (n, n_quasi_identifiers).
    """
    if len(cells) * k > MOST_CELLS:
        return []
    n_sets = 1
    while True:
        divided = np.array_split(cells, n_sets)
        grids = [_grid_of_values(some) for some in divided]
        if sum(grid.size for grid in grids) <= MOST_CELLS:
            break
        n_sets *= 2
    are_hidden = all(len(some) * k <= grid.size for some, grid in zip(divided, grids, strict=True))
    return grids if are_hidden else []


def _grid_of_values(cells: NDArray[np.int32]) -> Grid:
    """Return all combinations of the values that cells have, column by column."""
    return Grid(tuple(np.unique(column) for column in cells.T))


def spread(count: int, n_most: int) -> Ints:
    """Return at most `n_most` positions of `count`, evenly spread, with the first and the last."""
    last = max(count - 1, 0)
    return np.unique(np.linspace(0, last, min(count, n_most)).round().astype(np.int64))
