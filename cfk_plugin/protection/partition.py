"""A fixed partition of the people: who is released with which region, whatever is asked and in whatever order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.population import CodeIndex
from cfk_plugin.data.region import Interval
from cfk_plugin.data.values import to_number
from cfk_plugin.errors import PopulationError
from cfk_plugin.hookspecs import Proposal, Task
from cfk_plugin.metrics.information import ncp
from cfk_plugin.protection.axes import NOMINAL, TREE, Axes, hull, index_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cfk_plugin.data.domain import Domain
    from cfk_plugin.data.population import CodeIndex, Population
from cfk_plugin.data.region import Part, Region

# Merging groups of a partition that cannot stand alone, at the least cost in information.


class GroupHulls:
    """Groups of cells as growing hulls; finds the partner that makes the least of a loss."""

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
        """Merge each group that is unfit with its cheapest partner of the same side until no group is."""
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


# Distances from records to regions, on the quasi-identifiers.


class RegionDistance:
    """HEOM distance, summed over the quasi-identifiers, of a record to the nearest point of each region.

    A number differs by what it is outside the range, divided by the population's range; a category by 0 inside the
    set, else 1; a rank like a category; missing by 0 where the region holds it, else 1. In [0, number of
    quasi-identifiers] for records inside the population's ranges; 0 inside the region.
    """

    def __init__(self, population: Population, regions: Sequence[Region]) -> None:
        self._domains = [population.domains[name] for name in population.schema.quasi_identifiers]
        self._count = len(regions)
        names = population.schema.quasi_identifiers
        self._parts = [
            _Numbers(d, [r[name] for r in regions])
            if d.attribute.kind == "numeric"
            else _Categories(d, [r[name] for r in regions])
            for name, d in zip(names, self._domains, strict=True)
        ]

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"RegionDistance({self._count} regions)"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold values of training rows."""
        raise PopulationError("a RegionDistance holds values of training rows and refuses to be pickled")

    def between(
        self, codes: NDArray[np.int32], numbers: NDArray[np.float64], regions: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return distances of shape (n, len(regions)); codes and numbers have shape (n, n_quasi_identifiers)."""
        total = np.zeros((len(codes), len(regions)))
        for j, part in enumerate(self._parts):
            total += part.between(codes[:, j], numbers[:, j], regions)
        return total


class _Numbers:
    """The ranges of one numeric attribute."""

    def __init__(self, domain: Domain, parts: Sequence[Part]) -> None:
        low, high, missing = [], [], []
        for part in parts:
            holds = isinstance(part, Interval) and part.low is not None
            low.append(to_number(part.low) if isinstance(part, Interval) and holds else np.inf)
            high.append(to_number(part.high) if isinstance(part, Interval) and holds else -np.inf)
            missing.append(isinstance(part, Interval) and part.missing)
        self._domain = domain
        self._low, self._high, self._missing = np.array(low), np.array(high), np.array(missing, dtype=bool)
        width = float(domain.values[-1] - domain.values[0]) if len(domain.values) else 0.0
        self._width = width if width > 0 else np.inf

    def between(
        self, codes: NDArray[np.int32], numbers: NDArray[np.float64], regions: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        known = codes.clip(min=0)
        values = self._domain.values
        exact = values[known.clip(max=len(values) - 1)] if len(values) else numbers
        number = np.where((codes >= 0) & (codes < len(values)), exact, numbers)[:, None]
        low, high = self._low[regions], self._high[regions]
        empty = low > high
        with np.errstate(invalid="ignore"):
            outside = np.maximum(0, np.maximum(low - number, number - high)) / self._width
        outside = np.where(empty, 1.0, np.nan_to_num(outside, nan=1.0, posinf=1.0))
        is_missing = (codes == self._domain.missing_code) & self._domain.has_missing
        return np.where(is_missing[:, None], (~self._missing[regions]).astype(float), outside)


class _Categories:
    """The value sets of one attribute that is no number."""

    def __init__(self, domain: Domain, parts: Sequence[Part]) -> None:
        tables: dict[Part, NDArray[np.bool_]] = {part: domain.inside(part) for part in set(parts)}
        self._outside = ~np.array([tables[part] for part in parts]).reshape(len(parts), domain.size)

    def between(
        self, codes: NDArray[np.int32], _: NDArray[np.float64], regions: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        return self._outside[regions][:, codes.clip(min=0)].T.astype(float)


# Which equivalence class a record is in, or nearest to.

_BLOCK = 1 << 22  # distances held at once
_TIE = 1e-9  # cells this close to each other in distance count as equally near


class NearestCells:
    """Finds for every record the nearest of some cells; of equally near ones the first. Host side only."""

    def __init__(self, population: Population, cells: NDArray[np.int32]) -> None:
        self._domains = [population.domains[name] for name in population.schema.quasi_identifiers]
        self._cells = cells
        self._index = CodeIndex(cells)

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"NearestCells({len(self._cells)} cells)"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold values of training rows."""
        raise PopulationError("an index of equivalence classes refuses to be pickled; rebuild it instead")

    def find(self, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the cell of each record; codes and numbers have shape (n, n_quasi_identifiers)."""
        found = self._index.find(codes)
        open_ = np.flatnonzero(found < 0)
        step = max(_BLOCK // len(self._cells), 1)
        for start in range(0, len(open_), step):
            at = open_[start : start + step]
            distance = np.zeros((len(at), len(self._cells)))
            for j, domain in enumerate(self._domains):
                distance += _apart(domain, codes[at, j], numbers[at, j], self._cells[:, j])
            found[at] = np.argmax(distance <= distance.min(axis=1, keepdims=True) + _TIE, axis=1)
        return found


def _apart(
    domain: Domain, codes: NDArray[np.int32], numbers: NDArray[np.float64], cells: NDArray[np.int32]
) -> NDArray[np.float64]:
    differ = np.asarray(codes[:, None] != cells, dtype=np.float64)
    if domain.attribute.kind != "numeric" or not len(domain.values):
        return differ
    width = float(domain.values[-1] - domain.values[0])
    number = np.where(
        (codes >= 0) & (codes < len(domain.values)), domain.values[codes.clip(0, len(domain.values) - 1)], numbers
    )
    place = domain.values[cells.clip(max=len(domain.values) - 1)]
    with np.errstate(invalid="ignore"):
        gap = np.abs(number[:, None] - place) / width if width > 0 else np.zeros(differ.shape)
    no_number = ~np.isfinite(gap)
    if domain.has_missing:
        no_number |= (codes == domain.missing_code)[:, None] | (cells == domain.missing_code)
    return np.asarray(np.where(no_number, differ, gap), dtype=np.float64)


# A fixed partition of the people: who is released with which region, whatever is asked and in whatever order.


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
    """

    population: Population
    regions: tuple[Region, ...]  # One per group. Two groups may have the same region; their members are then one crowd.
    group_of_row: NDArray[np.int64]  # shape (n_rows,); group of each training row; -1 for a row that has none
    # shape (n_groups,); what distinguishes groups that must not be mixed: the predicted outcome where only eligible
    # rows count
    side_of_group: NDArray[np.int64]
    # For each side how its equivalence classes are divided, where that is known and cannot be found from rows
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
        """Return the group whose region each counterfactual is released with."""
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


# A fixed partition as numbers: how equivalence classes are divided, without a row; and the way back.

_SIDES = "partition.sides"


def partition_to_arrays(partition: Partition) -> dict[str, NDArray[Any]]:
    """Return what another process needs to look groups up: for each side its classes, and the people of each part."""
    population = partition.population
    counted = np.zeros(population.n_rows, dtype=np.int64)
    counted[population.counted_rows] = 1
    arrays: dict[str, NDArray[Any]] = {_SIDES: partition.side_of_group}
    for side, classes in partition.divided.items():
        of_part = np.repeat(classes.cell, np.diff(classes.start))
        rows = np.flatnonzero(np.isin(partition.group_of_row, classes.group))
        people = _people_of_parts(
            of_part, classes.group, population.cell_of(rows), partition.group_of_row[rows], counted[rows]
        )
        for name, array in {**classes._asdict(), "people": people}.items():
            if name != "nearest":
                arrays[f"partition.{side}.{name}"] = array
    return arrays


def partition_from_arrays(population: Population, arrays: Mapping[str, NDArray[Any]]) -> Partition | None:
    """Return the partition of `partition_to_arrays` on a population without rows; None where none was sealed."""
    if _SIDES not in arrays:
        return None
    sides = arrays[_SIDES]
    divided: dict[int, Classes] = {}
    group_of_row = np.full(population.n_rows, -1, dtype=np.int64)
    next_row = np.concatenate([[0], np.cumsum(population.cell_people)[:-1]])
    for side in np.unique(sides).tolist():
        cell, start, group, last, people = (
            arrays[f"partition.{side}.{name}"] for name in ("cell", "start", "group", "last", "people")
        )
        divided[side] = Classes(NearestCells(population, population.cells[cell]), cell, start, group, last)
        for at, number, to in zip(
            np.repeat(cell, np.diff(start)).tolist(), people.tolist(), group.tolist(), strict=True
        ):
            group_of_row[next_row[at] : next_row[at] + number] = to
            next_row[at] += number
    return Partition(population, _regions(population, divided, len(sides)), group_of_row, sides, divided)


def coarser(partition: Partition, k: int) -> Partition:
    """Return a partition into groups of at least k people whose groups are unions of the given ones.

    Distinct values of a union are no fewer than a group's, and its distance from everybody is no larger than the
    largest of its groups: l and t hold as they did. Regions only grow: whoever sees a record with both its regions has
    the smaller one, and no more than that.
    """
    population = partition.population
    count = len(partition.regions)
    members = _cells_of_groups(partition.divided, count)
    people = np.bincount(partition.group_of_row[partition.group_of_row >= 0], minlength=count)
    hulls = GroupHulls(index_of(population).axes, population.cells, members, people)
    hulls.merge_while(lambda group, _: bool(hulls.people[group] < k), partition.side_of_group)
    kept, into = np.unique(hulls.into, return_inverse=True)
    enough = hulls.people[kept] >= k
    number = np.where(enough, np.cumsum(enough) - 1, -1)[into]
    divided = {side: c._replace(group=number[c.group]) for side, c in partition.divided.items()}
    group_of_row = np.where(partition.group_of_row >= 0, number[partition.group_of_row], -1)
    sides = partition.side_of_group[kept][enough]
    return Partition(population, _regions(population, divided, len(sides)), group_of_row, sides, divided)


def _people_of_parts(
    of_part: NDArray[np.int64],
    group: NDArray[np.int64],
    cell_of_row: NDArray[np.int64],
    group_of_row: NDArray[np.int64],
    counted: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the people of each part; where a class has two parts of one group, the first has those of both."""
    span = int(group.max()) + 1
    keys, first = np.unique(of_part * span + group, return_index=True)
    people = np.zeros(len(group), dtype=np.int64)
    at = first[np.searchsorted(keys, cell_of_row * span + group_of_row)]
    np.add.at(people, at, counted)
    return people


def _cells_of_groups(divided: Mapping[int, Classes], count: int) -> list[NDArray[np.int64]]:
    cells = np.concatenate([np.repeat(c.cell, np.diff(c.start)) for c in divided.values()])
    group = np.concatenate([c.group for c in divided.values()])
    order = np.argsort(group[group >= 0], kind="stable")
    cells, group = cells[group >= 0][order], group[group >= 0][order]
    parts = np.split(cells, np.searchsorted(group, np.arange(1, count)))
    return [np.unique(part) for part in parts]


def _regions(population: Population, divided: Mapping[int, Classes], count: int) -> tuple[Region, ...]:
    codes = [population.cells[cells] for cells in _cells_of_groups(divided, count)] if count else []
    return tuple(hull(population, c[0], np.zeros(c.shape[1]), c) for c in codes)


# The reciprocal protector: a counterfactual is released with the region of the group that it belongs to.


@dataclass(slots=True)
class ReciprocalProtector:
    """Looks up the group of a counterfactual in a partition that was fixed beforehand.

    Whoever reruns it for every person of the population is left with a whole group, at least k people. It proves
    nothing about information loss, and does not ask the model: see `Certificate.k_consistent`.
    """

    partition: Partition
    name: str = "reciprocal"  # For the certificate

    def protect(self, task: Task) -> Sequence[Proposal]:
        """Return the region of each counterfactual's group; none where its side has too few people."""
        groups = np.full(len(task), -1) if task.groups is None else task.groups
        if task.progress is not None:
            task.progress(len(task), len(task))
        return [Proposal(None if g < 0 else self.partition.regions[g]) for g in groups.tolist()]
