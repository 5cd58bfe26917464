"""A fixed partition of the people: who is released with which region, whatever is asked in whatever
order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.domain import CodeIndex, Domain
from cfk_plugin.data.policy import Mask
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Part, Region
from cfk_plugin.data.sentences import Presentation
from cfk_plugin.data.values import to_number
from cfk_plugin.errors import HostOnly, PopulationError
from cfk_plugin.hookspecs import Proposal, ProtectionRequest
from cfk_plugin.metrics.heom import TIE, Heom, HeomCodes, smallest
from cfk_plugin.protection.axes import (
    Axis,
    AxisArrays,
    Codes,
    Floats,
    Ints,
)
from cfk_plugin.protection.class_index import CellIndex, longer
from cfk_plugin.protection.compiled import inner, jit
from cfk_plugin.protection.regions import region_of

Singles: TypeAlias = "NDArray[np.float32]"

_COMPARED = 1 << 14  # most rows that are all compared
_PAIRS_AT_ONCE = 1 << 18  # pairs of rows that are compared at once
# that a quasi-identifier outside of a region adds: it is one more change, which no move takes back
OUTSIDE = 0.1

# Distance of a record to a region or cell: a number differs by what it is outside, divided by the
# population's range; a category, a rank and a missing value by 0 inside, else 1. Distances are sums
# over the quasi-identifiers.


class RegionDistance(HostOnly):
    """HEOM distance of records to the nearest point of each region, and a little more for each
    attribute outside.
    """

    _refusal = PopulationError, "a {} holds values of training rows and refuses to be pickled"

    def __init__(self, population: Population, regions: Sequence[Region]) -> None:
        self._count = len(regions)
        self._parts: list[tuple[Domain, NDArray[Any]]] = []
        for name in population.schema.quasi_identifiers:
            domain, parts = population.domains[name], [region[name] for region in regions]
            if domain.is_numeric:
                self._parts.append((domain, _ends(parts)))
                continue
            tables: dict[Part, Mask] = {part: domain.inside(part) for part in set(parts)}
            outside = ~np.array([tables[part] for part in parts]).reshape(len(parts), domain.size)
            self._parts.append((domain, outside.T))

    def _counts(self) -> str:
        return f"{self._count} regions"

    def between(self, codes: Codes, numbers: Floats, regions: Ints) -> Floats:
        """Return distances of shape (n, len(regions)); codes and numbers have shape (n,
        n_quasi_identifiers).
        """
        total = np.zeros((len(codes), len(regions)))
        for j, (domain, part) in enumerate(self._parts):
            away = _outside(domain, codes[:, j], numbers[:, j], part[:, regions])
            total += away + OUTSIDE * (away > 0)
        return total

    def n_outside(self, codes: Codes, numbers: Floats, regions: Ints) -> Ints:
        """Return how many quasi-identifiers of each row are outside of each region; shapes as in
        `between`.
        """
        total = np.zeros((len(codes), len(regions)), dtype=np.int64)
        for j, (domain, part) in enumerate(self._parts):
            total += _outside(domain, codes[:, j], numbers[:, j], part[:, regions]) > 0
        return total


def _ends(parts: Sequence[Part]) -> Floats:
    """Return first and last number of each range (inf and -inf if there is none), and 1 if missing
    is inside.
    """
    ranges = [
        part if isinstance(part, Interval) else Interval(None, None, missing=False)
        for part in parts
    ]
    low = [np.inf if part.low is None else to_number(part.low) for part in ranges]
    high = [-np.inf if part.high is None else to_number(part.high) for part in ranges]
    return np.array([low, high, [float(part.missing) for part in ranges]])


def _outside(domain: Domain, codes: Codes, numbers: Floats, parts: NDArray[Any]) -> Floats:
    """Return how far each value is outside of each part, shape (n, parts)."""
    if not domain.is_numeric:
        return np.where(codes[:, None] < 0, 1.0, parts[codes.clip(min=0)])  # nobody has it
    (low, high, missing), number = parts, domain.numbers_of(codes, numbers)[:, None]
    with np.errstate(invalid="ignore"):
        away = np.maximum(0, np.maximum(low - number, number - high)) / (domain.width or np.inf)
    away = np.where(low > high, 1.0, np.nan_to_num(away, nan=1.0, posinf=1.0))
    is_missing = (codes == domain.missing_code) & domain.has_missing
    return np.where(is_missing[:, None], 1 - missing, away)


# Nearest rows: a tree over all attributes of the training rows, for distances that are sums over
# attributes.


class RowTree(NamedTuple):
    """A k-d tree over rows: node ``t`` holds rows ``start[t]:stop[t]``; its children are
    ``child[t]`` and the next.

    Columns are numbers between 0 and 1, infinite where missing, and then codes of categories.
    """

    start: Ints
    stop: Ints
    child: Ints
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    rows: NDArray[np.float32]


@inner
def _away(low: Any, high: Any, t: int, place: Floats, numbers: int, limit: float) -> float:
    """Least distance of a place to a box, or any number above the limit; a row is also a box."""
    total = 0.0
    for j in range(place.size):
        below, above, x = low[t, j], high[t, j], place[j]
        if j >= numbers:
            total += 0.0 if below <= x <= above else 1.0
        elif x == np.inf:
            total += 0.0 if above == np.inf else 1.0
        elif above == np.inf:
            total += min(max(below - x, 0.0), 1.0)
        else:
            total += max(below - x, x - above, 0.0)
        if total > limit:
            return total
    return total


@inner
def _insert(best: Floats, away: float) -> None:
    """Insert a number among the least ones if it belongs there."""
    at = best.size
    while at > 0 and best[at - 1] > away:
        if at < best.size:
            best[at] = best[at - 1]
        at -= 1
    if at < best.size:
        best[at] = away


@jit
def nearest_rows(
    tree: RowTree, place: Floats, numbers: int, k: int, slack: float, exclude_same: bool
) -> tuple[Ints, Floats, float]:
    """Find all rows that can be among the k nearest, their distances, and the limit above which
    they cannot.
    """
    best, found, apart, size = np.full(k, np.inf), np.empty(64, np.int64), np.empty(64), 0
    todo, bound, top = np.empty(256, np.int64), np.empty(256), 1
    todo[0], bound[0] = 0, 0.0
    while top > 0:
        top -= 1
        t, limit = todo[top], best[k - 1] + slack
        if bound[top] > limit:
            continue
        if tree.child[t] >= 0:
            a = tree.child[t]
            b, near = a + 1, _away(tree.low, tree.high, a, place, numbers, limit)
            far = _away(tree.low, tree.high, b, place, numbers, limit)
            if far < near:
                a, b, near, far = b, a, far, near
            if top + 2 > todo.size:
                todo, bound = longer(todo), longer(bound)
            todo[top], bound[top], todo[top + 1], bound[top + 1] = b, far, a, near
            top += 2
            continue
        for i in range(tree.start[t], tree.stop[t]):
            away = _away(tree.rows, tree.rows, i, place, numbers, best[k - 1] + slack)
            if away > best[k - 1] + slack:
                continue
            if size == found.size:
                found, apart = longer(found), longer(apart)
            found[size], apart[size] = i, away
            size += 1
            if away > slack or not exclude_same:
                _insert(best, away)
    return found[:size], apart[:size], best[k - 1] + slack


# Nearest rows with many features: where a tree would exclude few rows, all are scanned in single
# precision.

_ROWS_IN_CACHE = 4096  # rows whose sums stay in a core's cache


@inner
def _add_apart(total: Singles, row: Singles, x: Any, from_missing: Any) -> None:
    for i in range(total.size):
        away = abs(row[i] - x)
        total[i] += from_missing if np.isnan(away) else away


@inner
def _add_present(total: Singles, row: Singles) -> None:
    for i in range(total.size):
        total[i] += np.float32(not np.isnan(row[i]))


@inner
def _add_other(total: Singles, row: Singles, x: Any) -> None:
    for i in range(total.size):
        total[i] += np.float32(row[i] != x)


@inner
def _within(total: Singles, limit: Any, at: Ints) -> int:
    """Note which numbers are not above the limit, and return how many; blocks without any are
    skipped quickly.
    """
    few = np.int32(0)
    for i in range(total.size):
        few += np.int32(total[i] <= limit)
    found = 0
    for i in range(total.size if few else 0):
        if total[i] <= limit:
            at[found] = i
            found += 1
    return found


@jit
def scan_rows(
    rows: Singles,
    cost: Singles,
    places: Singles,
    from_missing: Singles,
    numbers: int,
    slack: Floats,
    rounding: float,
) -> tuple[Ints, Ints]:
    """Find all rows that can be nearest to some places, given that sums are exact up to slack and
    rounding.

    `rows` has a line for each feature: numbers, NaN where missing, then codes. A number at
    ``places[i, j]`` is ``from_missing[i, j]`` away from a missing one; the cost of a row is added.
    Returns place and row of each pair.
    """
    best, total, at = (
        np.empty(len(places)),
        np.empty(_ROWS_IN_CACHE, np.float32),
        np.empty(_ROWS_IN_CACHE, np.int64),
    )
    who, found, size = np.empty(256, np.int64), np.empty(256, np.int64), 0
    for start in range(0, cost.size, _ROWS_IN_CACHE):
        stop = min(start + _ROWS_IN_CACHE, cost.size)
        near = total[: stop - start]
        for i in range(len(places)):
            near[:] = cost[start:stop]
            for j in range(len(rows)):
                row, x = rows[j, start:stop], places[i, j]
                if j >= numbers:
                    _add_other(near, row, x)
                elif np.isnan(x):
                    _add_present(near, row)
                else:
                    _add_apart(near, row, x, from_missing[i, j])
            if start == 0:
                best[i] = near.min()
            limit = np.float32(best[i] + abs(best[i]) * rounding + slack[i])
            few = _within(near, limit, at)
            for r in at[:few]:
                if size == who.size:
                    who, found = longer(who), longer(found)
                who[size], found[size] = i, start + r
                best[i] = min(best[i], near[r])
                size += 1
    return who[:size], found[:size]


class Neighbors(HostOnly):
    """Rows of codes, numbers first, and a search for the nearest, with results bit for bit as
    `Heom.nearest`.

    With many rows, a tree finds those that can be nearest, and only these are compared. `tokens`
    has the hash in `HeomCodes` of each category's code.
    """

    def __init__(
        self, heom: Heom, numeric: list[Domain], tokens: list[NDArray[np.uint64]], codes: Codes
    ) -> None:
        self.heom, self._numeric, self._tokens, self._codes = heom, numeric, tokens, codes
        self._numbers = [np.append(domain.values, np.nan) for domain in numeric]
        self._sorted = [(order, each[order]) for each in tokens for order in [np.argsort(each)]]

    def __len__(self) -> int:
        return len(self._codes)

    def take(self, rows: Ints) -> HeomCodes:
        numbers = np.empty((len(rows), len(self._numeric)), order="F")
        tokens = np.empty((len(rows), len(self._tokens)), dtype=np.uint64, order="F")
        for j, values in enumerate(self._numbers):
            numbers[:, j] = values[self._codes[rows, j]]
        for j, own in enumerate(self._tokens):
            tokens[:, j] = own[self._codes[rows, len(self._numeric) + j]]
        return HeomCodes(numbers, tokens)

    def nearest(
        self, asked: HeomCodes, k: int = 1, *, exclude_same: bool = False
    ) -> tuple[Ints, Floats]:
        """Like `Heom.nearest`, over all rows."""
        if len(self) <= _COMPARED:
            return self.heom.nearest(asked, self._all, k, exclude_same)
        return self.search(asked, k, exclude_same=exclude_same)

    def search(
        self, asked: HeomCodes, k: int = 1, *, exclude_same: bool = False
    ) -> tuple[Ints, Floats]:
        """Do the same with the tree, however few rows there are."""
        near = self._possible(asked, k, exclude_same)
        rows = np.concatenate([*near, np.empty(0, dtype=np.int64)])
        who = np.repeat(np.arange(len(near)), [*map(len, near)])
        away = np.empty(len(rows))
        for start in range(0, len(rows), _PAIRS_AT_ONCE):
            some = slice(start, start + _PAIRS_AT_ONCE)
            away[some] = self.heom.pairs(asked.take(who[some]), self.take(rows[some]))
        if exclude_same:
            away[away <= TIE] = np.inf
        index, found = np.full((len(near), k), -1, dtype=np.int64), np.full((len(near), k), np.inf)
        ends = np.cumsum([*map(len, near)])
        for i, (own, end) in enumerate(zip(near, ends.tolist(), strict=True)):
            order, values = smallest(away[None, end - len(own) : end], min(k, len(own)))
            index[i, : order.size], found[i, : order.size] = (
                np.where(order < 0, -1, own[order]),
                values,
            )
        return index, found

    def _possible(self, asked: HeomCodes, k: int, exclude_same: bool) -> list[Ints]:
        """Return, for each row, all rows that can be among its k nearest, in order."""
        near, numbers, (order, tree) = [], len(self._numeric), self._grown
        for place in self._places(asked):
            far = float(np.abs(place[:numbers][np.isfinite(place[:numbers])]).sum())
            slack = 1e-6 * len(place) + 1e-12 * far  # rows are kept in single precision
            rows, apart, limit = nearest_rows(tree, place, numbers, k, slack, exclude_same)
            near.append(np.sort(order[rows[apart <= limit]]))
        return near

    @cached_property
    def _all(self) -> HeomCodes:
        return self.take(np.arange(len(self)))

    @cached_property
    def _grown(self) -> tuple[Ints, RowTree]:
        """The rows in the tree's order, and the tree."""
        axes = [Axis.interval(domain.positions, 1.0, missing=True) for domain in self._numeric]
        axes += [Axis.nominal(len(each), 1.0, card=2) for each in self._tokens]
        people = np.ones(len(self), dtype=np.int64)
        _, tree, order = CellIndex.build(self._codes, people, AxisArrays.of(axes))

        def placed(codes: Codes) -> NDArray[np.float32]:
            places = codes.astype(np.float32)
            for j, domain in enumerate(self._numeric):
                places[:, j] = np.append(domain.positions, np.inf)[codes[:, j]]
            return places

        return order, RowTree(
            tree.start,
            tree.stop,
            tree.child,
            placed(tree.low),
            placed(tree.high),
            placed(tree.codes),
        )

    def _places(self, asked: HeomCodes) -> Floats:
        """Return rows in the tree's form; -1 for a category that none of its rows has."""
        places = np.full((len(asked), len(self._numeric) + len(self._tokens)), -1.0)
        for j, domain in enumerate(self._numeric):
            gaps = np.isnan(asked.numbers[:, j])
            places[:, j] = np.where(gaps, np.inf, domain.place(asked.numbers[:, j]))
        for j, (order, tokens) in enumerate(self._sorted):
            at = np.searchsorted(tokens, asked.codes[:, j]).clip(max=len(order) - 1)
            known = tokens[at] == asked.codes[:, j]
            places[known, len(self._numeric) + j] = order[at[known]].astype(np.float32)
        return places


class NearestCells(HostOnly):
    """Finds for every record the nearest of some cells; of equally near ones the first."""

    _refusal = (
        PopulationError,
        "an index of equivalence classes refuses to be pickled; rebuild it instead",
    )

    def __init__(self, population: Population, cells: Codes) -> None:
        domains = {name: population.domains[name] for name in population.schema.quasi_identifiers}
        numeric = [name for name, domain in domains.items() if domain.is_numeric]
        widths = {name: domains[name].width for name in numeric}
        heom = Heom(numeric, [name for name in domains if name not in numeric], widths)
        self._domains, self._index = list(domains.values()), CodeIndex(cells)
        self._is_numeric = np.array([domain.is_numeric for domain in self._domains])
        tokens = [
            np.arange(domain.size, dtype=np.uint64)
            for domain in self._domains
            if not domain.is_numeric
        ]
        columns = np.argsort(~self._is_numeric, kind="stable")
        self._cells = Neighbors(
            heom, [domains[name] for name in numeric], tokens, cells[:, columns]
        )

    def _counts(self) -> str:
        return f"{len(self._cells)} cells"

    def find(self, codes: Codes, numbers: Floats) -> Ints:
        """Return the cell of each record; codes and numbers have shape (n, n_quasi_identifiers)."""
        found = self._index.find(codes)
        if len(lost := np.flatnonzero(found < 0)):
            nearest, _ = self._cells.nearest(self._coded(codes[lost], numbers[lost]))
            found[lost] = nearest[:, 0].clip(min=0)  # a number may be infinitely far away in floats
        return found

    def _coded(self, codes: Codes, numbers: Floats) -> HeomCodes:
        is_numeric = self._is_numeric
        columns = [
            self._domains[j].numbers_of(codes[:, j], numbers[:, j])
            for j in np.flatnonzero(is_numeric)
        ]
        known = np.array(columns).reshape(len(columns), len(codes)).T
        return HeomCodes(known, np.asfortranarray(codes[:, ~is_numeric], np.uint64))


class Classes(NamedTuple):
    """How equivalence classes are divided: class i, the population's cell ``cell[i]``, has the
    parts from ``start[i]``.

    Each part is a run of the sorted keyed numbers: those up to ``last`` belong to ``group``.
    """

    nearest: NearestCells
    cell: Ints
    start: Ints
    group: Ints
    last: NDArray[np.uint64]


def by_group(group: Ints, values: Ints, count: int) -> list[Ints]:
    order = np.argsort(group, kind="stable")
    start = np.searchsorted(group[order], np.arange(count + 1))
    return [values[order[a:b]] for a, b in pairwise(start)]


def regions_of(population: Population, group: Ints, cell: Ints, count: int) -> tuple[Region, ...]:
    return tuple(
        region_of(population, population.cells[np.unique(c)]) for c in by_group(group, cell, count)
    )


@dataclass(frozen=True, eq=False, repr=False)
class Partition(HostOnly):
    """Assigns training rows to groups; every member of a group is released with the group's region.

    Groups depend on the population alone, never on a query: whoever reruns the protection for every
    person is left with the whole group. It does not hide who among the members has the released
    private values.
    """

    population: Population
    # one per group; groups with the same region are one to an adversary
    regions: tuple[Region, ...]
    group_of_row: Ints  # of each training row; -1 for none
    # of groups that must not be mixed: the predicted outcome if only eligible rows count
    side_of_group: Ints
    classes: Mapping[int, Classes] | None = None  # by side, where they cannot be found from rows

    _refusal = (
        PopulationError,
        "a {} holds training rows and refuses to be pickled; rebuild it instead",
    )

    def __post_init__(self) -> None:
        # must not change between explanations
        for array in (self.group_of_row, self.side_of_group):
            array.setflags(write=False)

    def _counts(self) -> str:
        return f"{len(self.regions)} groups, {int((self.group_of_row >= 0).sum())} rows"

    def group_of(self, codes: Codes, numbers: Floats, eligibility: Ints) -> Ints:
        """Return the group whose region each counterfactual is released with."""
        found = np.full(len(codes), -1, dtype=np.int64)
        for side, classes in self.divided.items():
            at = np.flatnonzero(eligibility == side)
            if not len(at):
                continue
            quasi = self.population.schema.quasi_positions
            cell = classes.nearest.find(codes[at][:, quasi], numbers[at][:, quasi])
            start, end = classes.start[cell], classes.start[cell + 1]
            found[at] = classes.group[start]
            shared = np.flatnonzero(end - start > 1)
            if len(shared):
                number = self.population.keyed_order(codes[at[shared]], numbers[at[shared]])
                for i, drawn in zip(shared.tolist(), number, strict=True):
                    part = slice(start[i], end[i])
                    found[at[i]] = classes.group[part][
                        np.searchsorted(classes.last[part][:-1], drawn)
                    ]
        return found

    @cached_property
    def presentation(self) -> Presentation:
        """What sentences and pictures of explanations need from the groups."""
        schema = self.population.schema
        return Presentation(
            schema.wording, schema.nobody_chooses, self.regions, schema.never_advised
        )

    def rows_mapped_to(self, region: Region) -> Ints:
        """Return the training rows that are released with a region; none for one that the partition
        lacks.
        """
        return self._rows_of.get(region, np.empty(0, dtype=np.int64))

    @cached_property
    def distance(self) -> RegionDistance:
        return RegionDistance(self.population, self.regions)

    @cached_property
    def divided(self) -> Mapping[int, Classes]:
        """The equivalence classes of each side, and how they are divided."""
        if self.classes is not None:
            return self.classes
        grouped = np.flatnonzero(self.group_of_row >= 0)
        side = self.side_of_group[self.group_of_row[grouped]]
        return {int(s): self._divide(grouped[side == s]) for s in np.unique(side)}

    @property
    def parts(self) -> tuple[Ints, Ints]:
        """Group and cell of each part of a class."""
        classes = list(self.divided.values())
        cell = [np.repeat(c.cell, np.diff(c.start)) for c in classes]
        none = np.empty(0, dtype=np.int64)
        return np.concatenate([none, *(c.group for c in classes)]), np.concatenate([none, *cell])

    def _divide(self, rows: Ints) -> Classes:
        population, group = self.population, self.group_of_row[rows]
        cells, cell = np.unique(population.cell_of(rows), return_inverse=True)
        pairs = np.unique(np.column_stack([cell, group]), axis=0)
        divided = np.flatnonzero(np.isin(cell, pairs[1:][np.diff(pairs[:, 0]) == 0, 0]))
        number = np.zeros(len(rows), dtype=np.uint64)
        number[divided] = population.keyed_numbers(rows[divided])
        line = np.lexsort((number, cell))
        cell, group, number = cell[line], group[line], number[line]
        # of each part
        last = np.flatnonzero((np.diff(cell, append=-1) != 0) | (np.diff(group, append=-1) != 0))
        start = np.searchsorted(cell[last], np.arange(len(cells) + 1))
        return Classes(
            NearestCells(population, population.cells[cells]),
            cells,
            start,
            group[last],
            number[last],
        )

    @cached_property
    def _rows_of(self) -> dict[Region, Ints]:
        rows: dict[Region, list[Ints]] = {}
        members = by_group(self.group_of_row, np.arange(len(self.group_of_row)), len(self.regions))
        for region, own in zip(self.regions, members, strict=True):
            rows.setdefault(region, []).append(own)
        return {region: np.sort(np.concatenate(parts)) for region, parts in rows.items()}


_SIDES = "partition.sides"


def partition_to_arrays(partition: Partition) -> dict[str, NDArray[Any]]:
    """Return a partition as arrays of numbers, without rows: for each side its classes, and the
    people of each part.
    """
    population = partition.population
    counted = np.zeros(population.n_rows, dtype=np.int64)
    counted[population.counted_rows] = 1
    arrays: dict[str, NDArray[Any]] = {_SIDES: partition.side_of_group}
    for side, classes in partition.divided.items():
        rows = np.flatnonzero(np.isin(partition.group_of_row, classes.group))
        span = int(classes.group.max()) + 1
        # If a class has two parts of one group, the first gets the people of both.
        part = np.repeat(classes.cell, np.diff(classes.start)) * span + classes.group
        keys, first = np.unique(part, return_index=True)
        at = np.searchsorted(keys, population.cell_of(rows) * span + partition.group_of_row[rows])
        people = np.zeros(len(part), dtype=np.int64)
        np.add.at(people, first[at], counted[rows])
        named = {
            "cell": classes.cell,
            "start": classes.start,
            "group": classes.group,
            "last": classes.last,
        }
        arrays |= {
            f"partition.{side}.{name}": array for name, array in {**named, "people": people}.items()
        }
    return arrays


def partition_from_arrays(
    population: Population, arrays: Mapping[str, NDArray[Any]]
) -> Partition | None:
    """Return the partition of `partition_to_arrays` on a population without rows; None if none was
    sealed.
    """
    if _SIDES not in arrays:
        return None
    eligibility = arrays[_SIDES]
    divided: dict[int, Classes] = {}
    group_of_row = np.full(population.n_rows, -1, dtype=np.int64)
    next_row = np.concatenate([[0], np.cumsum(population.cell_people)[:-1]])
    for side in np.unique(eligibility).tolist():
        cell, start, group, last, people = (
            arrays[f"partition.{side}.{name}"]
            for name in ("cell", "start", "group", "last", "people")
        )
        divided[side] = Classes(
            NearestCells(population, population.cells[cell]), cell, start, group, last
        )
        of_part = np.repeat(cell, np.diff(start))
        for at, number, to in zip(of_part.tolist(), people.tolist(), group.tolist(), strict=True):
            group_of_row[next_row[at] : next_row[at] + number] = to
            next_row[at] += number
    partition = Partition(population, (), group_of_row, eligibility, divided)
    return replace(partition, regions=regions_of(population, *partition.parts, len(eligibility)))


@dataclass(slots=True)
class ReciprocalProtector:
    """Looks up the group of a counterfactual in a fixed partition; asks no model, and gives no
    bound on the loss.
    """

    partition: Partition
    name: str = "reciprocal"

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        """Return the region of each counterfactual's group; none where its side has too few
        people.
        """
        groups = [-1] * len(request.codes) if request.groups is None else request.groups.tolist()
        if request.progress is not None:
            request.progress(len(groups), len(groups))
        return [Proposal(None if g < 0 else self.partition.regions[g]) for g in groups]
