"""Building the partition of a whole population: groups of at least k people that lose little information."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.cluster import RecordReader, signed, unsigned
from cfk_plugin.data.model import Goal, rows_for_cells
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population, in_order
from cfk_plugin.data.region import Region
from cfk_plugin.metrics.risk import l_diversity, t_closeness
from cfk_plugin.protection.axes import INTERVAL, Axes, AxisArrays, CellIndex, Codes, Ints, hull, index_of
from cfk_plugin.protection.group_kernels import (
    LENDERS,
    MOST,
    Cells,
    Groups,
    anneal,
    cheapest_groups,
    found,
    neighbours,
    room_for_candidates,
    room_for_division,
    total_cost,
)
from cfk_plugin.protection.hull import coordinates, room_for_hull
from cfk_plugin.protection.partition import GroupHulls, Partition

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from cfk_plugin.data.model import LabelModel, RowOracle


# A partition of a whole population into groups of at least k people whose hulls lose little information.

__all__ = ["Shares", "group_cells"]

_SEED = 0x9E3779B97F4A7C15
_NEAR = 32  # neighbours of a small cell among small cells
_RICH = 8  # and among cells with at least k people
_BLOCK = 200  # cells that are divided together at first
_STEPS = 60  # steps of the search per group and quasi-identifier: the more of them, the more there is to find
_WORK, _WORK_EACH = 1e9, 2e3  # at most so many comparisons of a cell with a group, and so many more per person
_HEATS = (0.1, 0.3, 0.1, 1.0)  # temperatures at first, in costs of a group; a table of more than ...
_FEW = 150  # ... so many groups only gets the first: luck matters less there


class _Parts(NamedTuple):
    """Shares of cells in code order; numbers of groups may have gaps."""

    cell: Ints
    people: Ints
    group: Ints


@dataclass(frozen=True, slots=True)
class Shares:
    """Parallel arrays: a share of a cell's people that belongs to a group. Groups are numbered 0..n-1."""

    cell: NDArray[np.int64]  # Row of the cell
    people: NDArray[np.int64]  # How many of its people; 0 only for a cell of nobody
    group: NDArray[np.int64]  # Their group


def group_cells(
    axes: Axes,
    cells: ArrayLike,
    people: ArrayLike,
    k: int,
    *,
    labels: ArrayLike | None = None,
    label_weight: float = 0.05,
    effort: float = 1.0,
) -> Shares:
    """Divide a population into groups of at least ``k`` people so that their hulls cost little on average."""
    codes, count = np.ascontiguousarray(cells, np.int32), np.ascontiguousarray(people, np.int64)
    _check(axes, codes, count, k)
    space, codes = _with_labels(axes, codes, labels, label_weight)
    order = np.lexsort(codes.T[::-1])
    codes, count = codes[order], count[order]
    parts = _divide(space, codes, count, k, effort)
    return _numbered(order, _seat_rest(space.arrays, codes, count, parts))


def _check(axes: Axes, codes: Codes, count: Ints, k: int) -> None:
    if codes.ndim != 2 or codes.shape[1] != axes.count or count.shape != (codes.shape[0],):
        raise ValueError(f"expected codes of shape (m, {axes.count}) and one number of people per cell")
    if codes.size and (codes.min() < 0 or np.any(codes.max(axis=0) >= axes.cardinality)):
        raise ValueError("a code lies outside its quasi-identifier")
    if count.size and count.min() < 0:
        raise ValueError("numbers of people must not be negative")
    if len(np.unique(codes, axis=0)) < len(codes):
        raise ValueError("cells must be distinct")
    if k < 1 or count.sum() < k:
        raise ValueError(f"{int(count.sum())} people cannot be divided into groups of at least {k}")


def _with_labels(axes: Axes, codes: Codes, labels: ArrayLike | None, weight: float) -> tuple[Axes, Codes]:
    """Append the labels as one more interval axis."""
    if labels is None:
        return axes, codes
    values = np.asarray(labels, np.float64)
    if values.shape != (len(codes),) or not np.all((values >= 0) & (values <= 1)) or not weight >= 0:
        raise ValueError("expected one label in [0, 1] per cell and a weight >= 0")
    levels, level = np.unique(values, return_inverse=True)
    a = axes.arrays
    longer = a._replace(
        kind=np.append(a.kind, np.int8(INTERVAL)),
        weight=np.append(a.weight, weight),
        card=np.append(a.card, levels.size),
        missing=np.append(a.missing, -1),
        offset=np.append(a.offset, a.offset[-1] + levels.size),
        position=np.append(a.position, weight * levels),
        node_offset=np.append(a.node_offset, a.node_offset[-1]),
        leaf_node=np.append(a.leaf_node, np.full(levels.size, -1)),
    )
    return Axes(longer), np.column_stack([codes, level]).astype(np.int32)


def _divide(axes: Axes, codes: Codes, count: Ints, k: int, effort: float) -> _Parts:
    """Divide the cells that have people."""
    small, large = np.flatnonzero((count > 0) & (count < k)), np.flatnonzero(count >= k)
    if not small.size:
        return _Parts(large, count[large], np.arange(large.size))
    inner = CellIndex.build(codes[small], np.ones(small.size, np.int64), axes)
    outer = CellIndex.build(codes[large], np.ones(large.size, np.int64), axes)
    line = np.concatenate([small[inner.original], large[outer.original]])
    cells = _cells_near(axes.arrays, codes[line], count[line], inner, outer)
    free, groups = _search(axes.arrays, cells, k, effort)
    mixed = np.arange(groups.cell.shape[1]) < groups.slots[:, None]
    own = np.flatnonzero(free > 0)
    return _Parts(
        line[np.append(groups.cell[mixed].astype(np.int64), own)],
        np.append(groups.people[mixed].astype(np.int64), free[own]),
        np.append(np.nonzero(mixed)[0], groups.slots.size + np.arange(own.size)),
    )


def _cells_near(arrays: AxisArrays, codes: Codes, count: Ints, inner: CellIndex, outer: CellIndex) -> Cells:
    small = inner.original.size
    place = arrays.position[arrays.offset[:-1] + codes[:small]]
    near = neighbours(inner.tree, arrays, codes[:small], place, _NEAR)
    rich = np.full((small, _RICH), -1, np.int32)
    if outer.original.size:
        rich = neighbours(outer.tree, arrays, codes[:small], place, _RICH)
        rich[rich >= 0] += small
    outside = np.full(len(codes), -1)
    return Cells(coordinates(arrays, codes), near, rich, count.copy(), outside, outside.copy())


def _search(arrays: AxisArrays, cells: Cells, k: int, effort: float) -> tuple[Ints, Groups]:
    """Divide the small cells block by block, then improve the groups; returns the best of several rounds."""
    count = cells.free.copy()
    small, people = count[: len(cells.near)], int(count.sum())
    bounds, most = _blocks(small, _BLOCK, 4 * k), int(min(people // k, small.sum()))
    room = min(max(int(np.diff(bounds).max()), MOST * 2 * k), len(count)) + LENDERS
    pool, division, hull = (
        room_for_candidates(room, arrays.kind.size),
        room_for_division(room, (LENDERS + 2) * room),
        room_for_hull(arrays),
    )
    state = np.array([_SEED], np.uint64)
    least, best = np.inf, (cells.free, _no_groups(0, 0))
    for hot in _HEATS:
        cells.free[:], cells.first[:], groups = count, -1, _no_groups(most, 2 * k)
        if not found(arrays, k, cells, groups, pool, division, hull, state, bounds):
            raise RuntimeError("a block of cells cannot be divided; please report this")
        number = most - int(groups.height[0])
        rounds = len(_HEATS) if number <= _FEW else 1
        steps, work = (
            int(effort * _STEPS * arrays.kind.size * number),
            int(effort * (_WORK + _WORK_EACH * people) / rounds),
        )
        anneal(arrays, k, cells, groups, pool, division, hull, state, steps, max(work, 1), hot)
        if total_cost(groups) < least:
            least, best = total_cost(groups), (cells.free.copy(), groups)
        if rounds == 1:
            break
    return best


def _no_groups(most: int, width: int) -> Groups:
    cell, people = np.zeros((2, most, width), np.int32)
    slots, count = np.zeros((2, most), np.int64)
    follow, unused = np.full(most * width, -1), np.arange(most)[::-1].copy()
    return Groups(cell, people, follow, slots, count, np.zeros(most), unused, np.array([most]))


def _blocks(people: Ints, cells: int, least: int) -> Ints:
    """Bounds of runs of at least so many cells and people; the last run takes the remainder."""
    reach, bounds = np.concatenate([[0], np.cumsum(people)]), [0]
    while bounds[-1] + cells < people.size:
        end = max(bounds[-1] + cells, int(np.searchsorted(reach, reach[bounds[-1]] + least)))
        if end > people.size or reach[-1] - reach[end] < least:
            break
        bounds.append(end)
    return np.array([*bounds, people.size]) if bounds[-1] < people.size else np.array(bounds)


def _seat_rest(arrays: AxisArrays, codes: Codes, count: Ints, parts: _Parts) -> _Parts:
    """Let the cells of nobody join."""
    rest = np.flatnonzero(count == 0)
    if not rest.size:
        return parts
    order = np.argsort(parts.group, kind="stable")
    numbers, start = np.unique(parts.group[order], return_index=True)
    size = np.add.reduceat(parts.people[order], start)
    ends = np.append(start, order.size)
    x, hull = coordinates(arrays, codes), room_for_hull(arrays)
    choice = cheapest_groups(arrays, x, rest, parts.cell[order], ends, size, hull)
    return _Parts(
        np.append(parts.cell, rest),
        np.append(parts.people, np.zeros(rest.size, np.int64)),
        np.append(parts.group, numbers[choice]),
    )


def _numbered(order: Ints, parts: _Parts) -> Shares:
    """Give groups the order of their first cells, and cells the numbers that the caller knows."""
    by_cell = np.lexsort((parts.group, parts.cell))
    cell, people = parts.cell[by_cell], parts.people[by_cell]
    _, first, inverse = np.unique(parts.group[by_cell], return_index=True, return_inverse=True)
    number = np.empty(first.size, np.int64)
    number[np.argsort(first)] = np.arange(first.size)
    group = number[inverse]
    by_group = np.lexsort((cell, group))
    return Shares(order[cell[by_group]], people[by_group], group[by_group])


# Building the fixed partition of a population: groups of cells, rows to groups, groups to regions.

_LIKELIHOOD = 0.03  # what a group loses that holds both certain and impossible outcomes, next to an NCP of 1
_BUILT: WeakKeyDictionary[Population, dict[tuple[object, ...], Partition]] = WeakKeyDictionary()


def partition_of(
    population: Population,
    policy: PrivacyPolicy,
    sides: NDArray[np.int64] | None = None,
    likely: NDArray[np.float64] | None = None,
) -> Partition:
    """Return the partition of a population for a policy; built once, whoever asks."""
    if sides is None:
        sides = np.zeros(population.n_rows, dtype=np.int64)
    built = _BUILT.setdefault(population, {})
    key = (policy.k, policy.l, policy.t, sides.tobytes(), None if likely is None else likely.tobytes())
    if key not in built:
        built[key] = _Builder(population, policy, sides, likely).build()
    return built[key]


class _Builder:
    """One partition in the making."""

    def __init__(
        self,
        population: Population,
        policy: PrivacyPolicy,
        sides: NDArray[np.int64],
        likely: NDArray[np.float64] | None,
    ) -> None:
        self.population, self.policy, self.sides, self.likely = population, policy, sides, likely
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
        labels = None if self.likely is None else self.likely[cell_of]
        cells = self.population.cells[cell_of]
        shares = group_cells(self.axes, cells, people, self.policy.k, labels=labels, label_weight=_LIKELIHOOD)
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


# The partial dependence where the rows are on a cluster: the records that are tried stay there, votes come back.


def _dependence_on_cluster(population: Population, model: LabelModel, goal: Goal, most: int) -> NDArray[np.float64]:
    """Return what `partial_dependence` does, without a row or a private value leaving the workers.

    The model and the key travel to the workers. From there come counts of predicted outcomes (where any other outcome
    is desired), keyed numbers, and one vote per cell and record.
    """
    wanted = _Wanted(None if goal.is_opposite else goal, _frequent(population, model) if goal.is_opposite else None)
    drawn = _least(population, model, wanted, most)
    if not len(drawn):
        return np.zeros(len(population.cells))
    votes = _votes(population, model, wanted, drawn)
    total = np.zeros(len(population.cells))
    for number in drawn.tolist():
        total += votes[number]
    return total / len(drawn)


class _Wanted:
    """Which labels are desired: those of a goal, or of everybody, where the most frequent label is."""

    def __init__(self, goal: Goal | None, frequent: str | None) -> None:
        self.goal, self.frequent = goal, frequent

    def rows(self, labels: NDArray[np.object_]) -> NDArray[np.bool_]:
        """Say whose private values are tried."""
        return np.ones(len(labels), dtype=bool) if self.goal is None else self.goal.met(labels)

    def cells(self, labels: NDArray[np.object_]) -> NDArray[np.bool_]:
        """Say where the outcome is the desired one."""
        if self.goal is not None:
            return self.goal.met(labels)
        return np.array([str(label) == self.frequent for label in labels.tolist()], dtype=bool)


def _frequent(population: Population, model: LabelModel) -> str:
    """Return the spelling of the most frequent label; of equally frequent ones the first."""

    def count(frame: pd.DataFrame, _: RecordReader) -> pd.DataFrame:
        found = Counter(map(str, model(frame).astype(object).tolist()))
        return pd.DataFrame({"label": list(found), "people": list(found.values())})

    found = population.map_rows(count, "label string, people long").groupby("label")["people"].sum()
    return str(found.sort_index().idxmax())


def _least(population: Population, model: LabelModel, wanted: _Wanted, most: int) -> NDArray[np.uint64]:
    """Return the least keyed numbers of the records that are tried, ascending; equal records have equal ones."""

    def least(frame: pd.DataFrame, reader: RecordReader) -> pd.DataFrame:
        tried = frame[wanted.rows(model(frame).astype(object))]
        numbers = np.sort(reader.numbers(tried))[:most]
        return pd.DataFrame({"number": signed(numbers)})

    return np.sort(unsigned(population.map_rows(least, "number long")["number"]))[:most]


def _votes(
    population: Population, model: LabelModel, wanted: _Wanted, drawn: NDArray[np.uint64]
) -> dict[int, NDArray[np.bool_]]:
    """Return for each of the records whether each cell has the desired outcome with its private values."""
    cells = population.cells

    def vote(frame: pd.DataFrame, reader: RecordReader) -> pd.DataFrame:
        numbers, first = np.unique(reader.numbers(frame), return_index=True)
        at = first[np.isin(numbers, drawn)]
        records = frame.iloc[at]
        said = [
            wanted.cells(model(rows_for_cells(reader.encoder, records, np.full(len(cells), i), cells)).astype(object))
            for i in range(len(records))
        ]
        packed = [np.packbits(answers).tobytes() for answers in said]
        number = numbers[np.isin(numbers, drawn)]
        return pd.DataFrame({"number": signed(number), "votes": packed})

    found = population.map_rows(vote, "number long, votes binary")
    unpacked = [
        np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=len(cells)).astype(bool) for packed in found["votes"]
    ]
    return dict(zip(unsigned(found["number"]).tolist(), unpacked, strict=True))


# How likely the desired outcome is at each combination of quasi-identifiers: what groups are kept alike in.

_RECORDS = 20  # private parts that are tried in every cell
_ASKED = 400_000  # rows that the model is asked for at most, where that leaves one record


def partial_dependence(rows: RowOracle, goal: Goal) -> NDArray[np.float64]:
    """Return for each cell the share of some records' private values that get the desired outcome there.

    The partial dependence of the outcome on the quasi-identifiers, at the population's cells. A region over cells that
    are alike in it is likely to be pure, whatever private values it is released with. A function of population and
    model: queries play no part.
    """
    population = rows.population
    n_cells = len(population.cells)
    if not population.has_rows:
        most = max(1, min(_RECORDS, _ASKED // n_cells))
        return _dependence_on_cluster(population, rows.model, goal, most)
    labels = rows.labels(np.arange(population.n_rows))
    if goal.is_opposite:
        frequent = Counter(sorted(labels.tolist(), key=str)).most_common(1)[0][0]
        wanted, chosen = Goal(lambda answers: np.asarray(answers == frequent, dtype=bool)), np.arange(len(labels))
    else:
        wanted, chosen = goal, np.flatnonzero(goal.met(labels))
    if not len(chosen):
        return np.zeros(n_cells)
    count = max(1, min(_RECORDS, _ASKED // n_cells, len(chosen)))
    number = population.keyed_numbers(chosen)
    least = number <= np.partition(number, count - 1)[count - 1]
    records = population.rows(chosen[least])
    drawn = in_order(population.encode(records)[0], population.schema, number[least])
    records = records.take(drawn[:count])
    total = np.zeros(n_cells)
    for record in range(count):
        frame = rows_for_cells(population.encoder, records, np.full(n_cells, record), population.cells)
        total += wanted.met(rows.ask(frame))
    return total / count
