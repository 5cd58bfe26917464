"""Dividing a whole population into groups of at least k people that lose little information."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from cfk_plugin.data.display import advance
from cfk_plugin.data.model import Goal, LabelModel, TrainingLabels, rows_for_cells
from cfk_plugin.data.policy import Mask, PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.rows import RecordReader, in_order, signed, unsigned
from cfk_plugin.metrics.risk import l_diversity, t_closeness
from cfk_plugin.protection.axes import (
    INTERVAL,
    NOMINAL,
    TREE,
    Axis,
    AxisArrays,
    Codes,
    Floats,
    Ints,
)
from cfk_plugin.protection.class_index import index_of
from cfk_plugin.protection.partition.kernels import (
    HOMES,
    LENDERS,
    GroupMembers,
    Groups,
    PackedClasses,
    improve,
    seats,
)
from cfk_plugin.protection.partition.partition import Partition, by_group, regions_of

Effort = Literal["fast", "balanced", "thorough"]

# Comparisons of a cell with a group in a search: for each small cell and at least, both times k /
# 10 from k = 10 up; and at most.
_WORK: dict[Effort, tuple[float, float, float]] = {
    "fast": (1.5e3, 2e6, 2e8),
    "balanced": (9e3, 1e7, 2e9),
    "thorough": (6e4, 6e7, 1e10),
}
_SLICES = 32  # calls of the search, which can be interrupted between them
_SEED = 0x9E3779B97F4A7C15
# small cells listed as near a cell, and how far they are looked for in each order
_NEAR, _REACH = 16, 12
_RICH, _REACH_OF_RICH = 4, 2  # the same of large ones
# about the most small cells of a block: with more, each block of near cells is divided by itself
BLOCK = 500_000
_FAR = -1e30  # where missing values are on an INTERVAL axis: farther from all others than any range


Run = Callable[[Callable[[Ints], Ints], list[Ints]], list[Ints]]
"""Calls a function with each table, in any order and place, and returns the results in the tables'
order.
"""


class ClassShares(NamedTuple):
    """Parallel arrays: shares of cells' people, each with its group."""

    cell: Ints  # row of the cell
    people: Ints  # number of its people; 0 only for a cell of nobody
    group: Ints


_LABEL_WEIGHT = 0.03


def group_cells(
    axes: AxisArrays,
    cells: Codes,
    people: ArrayLike,
    k: int,
    labels: Floats | None = None,
    *,
    effort: Effort = "balanced",
    run: Run = lambda work, tables: [*map(work, tables)],
) -> ClassShares:
    """Divide the people of distinct cells into groups of at least ``k``, whatever the order of the
    cells.

    Many cells are divided block by block; the blocks depend on the cells alone, not on how `run`
    executes them. With labels in [0, 1], one per cell, a group that holds both ends loses
    `_LABEL_WEIGHT`, next to an NCP of 1.
    """
    codes, count = np.ascontiguousarray(cells, np.int32), np.asarray(people, np.int64)
    if labels is not None:
        levels, level = np.unique(labels, return_inverse=True)
        axes = _joined(axes, AxisArrays.of([Axis.interval(_LABEL_WEIGHT * levels, _LABEL_WEIGHT)]))
        codes = np.column_stack([codes, level]).astype(np.int32)
    order = np.lexsort(codes.T[::-1])
    shares = _divide_blocks(axes, codes[order], count[order], k, effort, run)
    by_cell = np.lexsort((shares.group, shares.cell))
    cell, size = shares.cell[by_cell], shares.people[by_cell]
    group = pd.factorize(shares.group[by_cell])[0].astype(np.int64)  # in order of their first cells
    line = np.lexsort((cell, group))
    return ClassShares(order[cell[line]], size[line], group[line])


def _joined(first: AxisArrays, more: AxisArrays) -> AxisArrays:
    arrays = {
        name: np.append(array, getattr(more, name)) for name, array in first._asdict().items()
    }
    for name in ("offset", "node_offset"):
        start = getattr(first, name)
        arrays[name] = np.append(start, start[-1] + getattr(more, name)[1:])
    return AxisArrays(**arrays)


def _divide_blocks(
    axes: AxisArrays, codes: Codes, count: Ints, k: int, effort: Effort, run: Run
) -> ClassShares:
    """Cut the first line into blocks of small cells, and divide the people of each."""
    blocks = round(np.count_nonzero(count < k) / BLOCK)
    if blocks < 2:
        return _divide(axes, codes, count, k, effort)
    line = _orders(axes, codes, count)[0]
    small = np.cumsum(count[line] < k)
    cells = np.split(
        line, np.searchsorted(small, small[-1] * np.arange(1, blocks) // blocks, side="right")
    )
    if min(count[block].sum() for block in cells) < k:
        return _divide(axes, codes, count, k, effort)

    def divide(table: Ints) -> Ints:
        return np.column_stack(
            _divide(axes, table[:, :-1].astype(np.int32), table[:, -1], k, effort)
        )

    found = run(
        divide, [np.column_stack([codes[block], count[block]]).astype(np.int64) for block in cells]
    )
    first = np.cumsum([0, *(table[:, 2].max() + 1 for table in found)])
    tables = zip(cells, found, first[:-1], strict=True)
    whole = np.concatenate(
        [np.column_stack([block[t[:, 0]], t[:, 1], t[:, 2] + g]) for block, t, g in tables]
    )
    return ClassShares(*whole.T)


def _divide(axes: AxisArrays, codes: Codes, count: Ints, k: int, effort: Effort) -> ClassShares:
    """Divide the people of one block; numbers of groups may have gaps."""
    orders = _orders(axes, codes, count)
    # small, large, of nobody: numbered in this order, and along a line
    kind = np.where(count == 0, 2, count >= k)
    line = orders[0][np.argsort(kind[orders[0]], kind="stable")]
    number, count = np.argsort(line), count[line]
    space = _space(
        axes, codes[line], [number[order] for order in orders], np.bincount(kind, minlength=3)
    )
    groups, pool = (
        _first_groups(space, count, k),
        GroupMembers.empty(len(count), axes.kind.size, max(64, 4 * k + LENDERS)),
    )
    if space.small:
        each, least, most = _WORK[effort]
        work = int(min(max(each * space.small, least) * max(1.0, k / 10), most))
        state = np.array([_SEED], np.uint64)
        worth, done = k / np.arange(k + 1).clip(1) ** ((np.arange(16)[:, None] + 0.5) / 16), 0
        for piece in range(1, _SLICES + 1):
            done = improve(
                space, groups, pool, k, worth, done, work * piece // _SLICES, work, state
            )
            if advance is not None:
                advance(piece, _SLICES)
    nobody, alone = np.flatnonzero(count == 0), np.flatnonzero(groups.free)
    seat = np.zeros(nobody.size, np.int64)
    if nobody.size:
        seats(space, groups, pool, k, int(nobody[0]), seat)
    mixed = np.arange(groups.cell.shape[1]) < groups.slots[:, None]
    return ClassShares(
        line[np.concatenate([groups.cell[mixed], alone, nobody])],
        np.concatenate([groups.people[mixed], groups.free[alone], 0 * nobody]),
        np.concatenate([np.nonzero(mixed)[0], groups.slots.size + alone, seat]),
    )


def _orders(axes: AxisArrays, codes: Codes, people: Ints) -> list[Ints]:
    """Orders in which cells that cost little together are near, by repeatedly halving the
    people.
    """
    q, weight = axes.kind.size, np.maximum(people, 1)
    # share of the people with smaller codes; cost of an axis
    below, cost = np.empty(codes.shape), np.empty(q)
    for j in range(q):
        values, at = np.unique(codes[:, j], return_inverse=True)
        share = np.bincount(at, weight) / weight.sum()
        below[:, j] = (np.cumsum(share) - share / 2)[at]
        width = np.ptp(axes.position[axes.offset[j] + values])
        cost[j] = width if axes.kind[j] == INTERVAL else axes.weight[j] * len(values) / axes.card[j]
    orders = []
    for turn in range(min(q, 3) + 1):
        scale = 0.2 ** np.roll(np.arange(q), turn - 1) if turn else np.ones(q)
        halves = np.multiply.outer(0.5 ** np.arange(30), cost * scale)
        key = np.zeros(len(codes), np.int64)
        for level, j in zip(
            *divmod(np.argsort(-halves, axis=None, kind="stable")[:62], q), strict=True
        ):
            key = 2 * key + ((below[:, j] * 2.0 ** (level + 1)).astype(np.int64) & 1)
        orders.append(np.argsort(key, kind="stable"))
    return orders


def _space(axes: AxisArrays, codes: Codes, orders: list[Ints], kinds: Ints) -> PackedClasses:
    """Lay out small cells, large cells and cells of nobody, `kinds` of each."""
    of_axis = np.repeat(np.arange(axes.kind.size), np.diff(axes.node_offset))
    leaves = axes.node_high - axes.node_low + 1
    node_cost = np.where(leaves > 1, axes.weight[of_axis] * leaves / axes.card[of_axis], 0.0)
    nodes = axes.node_low, axes.node_high, axes.node_parent + axes.node_offset[of_axis], node_cost
    at, is_interval = axes.offset[:-1] + codes, axes.kind == INTERVAL
    x = np.where(axes.kind == TREE, axes.node_offset[:-1] + axes.leaf_node[at], codes)
    x = np.where(is_interval, np.where(codes == axes.missing, _FAR, axes.position[at]), x)
    small, none = int(kinds[0]), np.empty((0, 0), np.int32)
    space = PackedClasses(
        axes.kind, axes.weight, axes.weight / axes.card, *nodes, x, small, none, none
    )
    near = _nearest(space, orders, 0, small, _REACH, _NEAR)
    return space._replace(
        near=near, rich=_nearest(space, orders, small, small + int(kinds[1]), _REACH_OF_RICH, _RICH)
    )


def _nearest(
    space: PackedClasses, orders: list[Ints], start: int, stop: int, reach: int, most: int
) -> NDArray[np.int32]:
    """List the cells nearest to each cell, among `reach` cells on either side in each order, then
    -1.
    """
    lines = []
    for order in orders:
        chosen, before = (order >= start) & (order < stop), np.empty(len(order), np.int64)
        before[order] = np.cumsum(chosen) - chosen
        lines.append((np.append(order[chosen], -1), before))
    found, shifts = np.full((len(space.x), most), -1, np.int32), np.arange(-reach, reach + 1)
    for rows in np.array_split(np.arange(len(space.x)), len(space.x) // 4096 + 1):
        # Position -1 of a line, and the one after its last cell, are not cells.
        table = np.hstack(
            [line[(at[rows, None] + shifts).clip(-1, len(line) - 1)] for line, at in lines]
        )
        table.sort(axis=1)
        cost = _pair_costs(space, rows, table)
        cost[(table < 0) | (table == rows[:, None]) | (np.diff(table, prepend=-1) == 0)] = np.inf
        best = np.argsort(cost, axis=1, kind="stable")[:, :most]
        found[rows] = np.where(
            np.take_along_axis(cost, best, 1) < np.inf, np.take_along_axis(table, best, 1), -1
        )
    return found


def _pair_costs(space: PackedClasses, rows: Ints, others: Ints) -> Floats:
    total = np.zeros(others.shape)
    for j, kind in enumerate(space.kind):
        one, other = space.x[rows, j][:, None], space.x[others, j]
        if kind == INTERVAL:
            total += np.minimum(np.abs(one - other), space.weight[j])
        elif kind == NOMINAL:
            total += np.where(one == other, 0.0, 2 * space.unit[j])
        else:
            leaf, node = space.first[one.astype(np.int64)], other.astype(np.int64)
            while (outside := (leaf < space.first[node]) | (leaf > space.last[node])).any():
                node = np.where(outside, space.parent[node], node)
            total += space.node_cost[node]
    return total


def _first_groups(space: PackedClasses, count: Ints, k: int) -> Groups:
    """Cut the line of small cells into runs of at least k people; if all have fewer, a large cell
    joins them.
    """
    people, cells = count[: space.small], np.arange(space.small)
    reach, ends, done = np.cumsum(people), [], 0
    while (end := int(np.searchsorted(reach, done + k)) + 1) < len(people) and reach[-1] - reach[
        end - 1
    ] >= k:
        ends.append(end)
        done = int(reach[end - 1])
    most, used = int(min(count.sum() // k, people.sum())), (len(ends) + 1) if space.small else 0
    group = np.searchsorted(ends, cells, side="right")
    cell, share = np.zeros((2, most, 2 * k), np.int64)
    slot = cells - np.append(0, ends).astype(np.int64)[group]
    cell[group, slot], share[group, slot] = cells, people
    home, free = np.full((len(count), HOMES), -1), count.copy()
    home[cells, 0], free[cells] = group, 0
    if 0 < people.sum() < k:
        cell[0, len(people)] = large = space.rich[0, 0]
        share[0, len(people)], free[large] = count[large], 0
    unused = np.arange(most)[::-1].copy()
    height = np.array([most - used])
    return Groups(
        cell,
        share,
        (share > 0).sum(axis=1),
        share.sum(axis=1),
        np.zeros(most),
        unused,
        height,
        free,
        home,
    )


class GroupHulls:
    """Groups of cells as growing hulls; merges unfit ones at the least loss."""

    def __init__(self, axes: AxisArrays, cells: Codes, groups: list[Ints], people: Ints):
        self._axes = axes
        self._inside = [
            np.zeros((len(groups), int(size)), dtype=bool) for size in np.diff(axes.offset)
        ]
        for group, members in enumerate(groups):
            for j, table in enumerate(self._inside):
                table[group, cells[members, j]] = True
        self.people = people.copy()
        self.into = np.arange(len(groups))  # the group that each is now part of
        self._loss = self._losses(np.arange(len(groups)), None)

    def merge_while(self, unfit: Callable[[Ints], bool], eligibility: Ints) -> None:
        """Merge each unfit group with its cheapest partner on the same side until none is unfit."""
        for group in range(len(self.into)):
            parts = np.array([group])
            while (
                self.into[group] == group
                and unfit(parts)
                and (partner := self._partner(group, eligibility)) is not None
            ):
                self._merge(group, partner)
                parts = np.flatnonzero(self.into == group)

    def _partner(self, group: int, eligibility: Ints) -> int | None:
        alive = self.into == np.arange(len(self.into))
        others = np.flatnonzero(alive & (eligibility == eligibility[group]))
        others = others[others != group]
        if not len(others):  # no other group is left on this side
            return None
        joint = self._losses(others, group)
        size = self.people[group]
        worse = joint * (self.people[others] + size) - self._loss[others] * self.people[others]
        return int(others[np.argmin(np.round(worse - self._loss[group] * size, 12))])

    def _merge(self, group: int, partner: int) -> None:
        for table in self._inside:
            table[group] |= table[partner]
        self.people[group] += self.people[partner]
        self.into[self.into == partner] = group
        self._loss[group] = self._losses(np.array([group]), None)[0]

    def _losses(self, groups: Ints, joined: int | None) -> Floats:
        """NCP of the hulls of some groups, each joined with one more group."""
        axes, total = self._axes, np.zeros(len(groups))
        for j, table in enumerate(self._inside):
            inside = table[groups] if joined is None else table[groups] | table[joined]
            weight, missing = float(axes.weight[j]), int(axes.missing[j])
            if axes.kind[j] == NOMINAL:
                size = inside.sum(axis=1)
                total += np.where(size > 1, weight * size / int(axes.card[j]), 0.0)
                continue
            present = inside if missing < 0 else np.delete(inside, missing, axis=1)
            low, high = (
                present.argmax(axis=1),
                present.shape[1] - 1 - present[:, ::-1].argmax(axis=1),
            )
            if axes.kind[j] == TREE:
                total += self._nodes(j, low, high)
                continue
            position = axes.position[axes.offset[j] : axes.offset[j + 1]]
            some = present.any(axis=1)
            width = np.where(some, np.minimum(position[high] - position[low], weight), 0.0)
            total += np.where(inside[:, missing] & some, weight, width) if missing >= 0 else width
        return total

    def _nodes(self, j: int, low: Ints, high: Ints) -> Floats:
        """Cost of the lowest node of a hierarchy that covers each range of leaves."""
        axes = self._axes
        at = slice(int(axes.node_offset[j]), int(axes.node_offset[j + 1]))
        first, last = axes.node_low[at], axes.node_high[at]
        covers = (first <= low[:, None]) & (last >= high[:, None])
        leaves = np.where(covers, last - first + 1, np.iinfo(np.int64).max).min(axis=1)
        return np.where(low == high, 0.0, float(axes.weight[j]) * leaves / int(axes.card[j]))


def _merged(
    population: Population,
    cells: list[Ints],
    people: Ints,
    eligibility: Ints,
    unfit: Callable[[Ints], bool],
) -> tuple[Ints, Ints]:
    """Merge groups until none is unfit; return their new numbers (-1 on an unfit side), and the new
    ones' sides.
    """
    hulls = GroupHulls(index_of(population).axes, population.cells, cells, people)
    hulls.merge_while(unfit, eligibility)
    kept, into = np.unique(hulls.into, return_inverse=True)
    fit = np.array([not unfit(np.flatnonzero(hulls.into == group)) for group in kept], dtype=bool)
    return np.where(fit, np.cumsum(fit) - 1, -1)[into], eligibility[kept][fit]


_BUILT: WeakKeyDictionary[Population, dict[tuple[object, ...], Partition]] = WeakKeyDictionary()


def partition_of(
    population: Population,
    policy: PrivacyPolicy,
    eligibility: Ints,
    likely: Floats | None,
    effort: Effort,
) -> Partition:
    """Return the partition of a population for a policy; built once.

    A group holds rows of one `eligibility` class only, and none of class -1. Groups are kept
    similar in `likely`, the partial dependence of the outcome.
    """
    built = _BUILT.setdefault(population, {})
    key = (
        policy.k,
        policy.l,
        policy.t,
        eligibility.tobytes(),
        None if likely is None else likely.tobytes(),
        effort,
    )
    if key not in built:
        built[key] = _build(population, policy, eligibility, likely, effort)
    return built[key]


def _build(
    population: Population,
    policy: PrivacyPolicy,
    eligibility: Ints,
    likely: Floats | None,
    effort: Effort,
) -> Partition:
    group_of_row, side_of_group = (
        np.full(population.n_rows, -1, dtype=np.int64),
        np.empty(0, dtype=np.int64),
    )
    for side in np.unique(eligibility[eligibility >= 0]):
        rows = np.flatnonzero(eligibility == side)
        if population.people(rows) >= policy.k:
            group = _group(population, policy.k, rows, likely, effort)
            group_of_row[rows] = len(side_of_group) + group
            side_of_group = np.append(side_of_group, np.full(group.max() + 1, side))

    rows = np.flatnonzero(group_of_row >= 0)
    members = by_group(group_of_row, np.arange(population.n_rows), len(side_of_group))
    people = np.array([population.people(m) for m in members], dtype=np.int64)

    def unfit(parts: Ints) -> bool:
        together = np.sort(np.concatenate([members[part] for part in parts]))
        return population.people(together) < policy.k or _too_alike(population, policy, together)

    if (people < policy.k).any() or policy.l is not None or policy.t is not None:
        cells = [np.unique(population.cell_of(m)) for m in members]
        number, side_of_group = _merged(population, cells, people, side_of_group, unfit)
        group_of_row[rows] = number[group_of_row[rows]]
    regions = regions_of(
        population, group_of_row[rows], population.cell_of(rows), len(side_of_group)
    )
    return Partition(population, regions, group_of_row, side_of_group)


def _group(
    population: Population, k: int, rows: Ints, likely: Floats | None, effort: Effort
) -> Ints:
    counted = counts_once(population, rows)
    cell_of, cell = np.unique(population.cell_of(rows), return_inverse=True)
    people = np.bincount(cell, weights=counted, minlength=len(cell_of)).astype(np.int64)
    labels = None if likely is None else likely[cell_of]
    cells, axes = population.cells[cell_of], index_of(population).axes
    shares = group_cells(axes, cells, people, k, labels, effort=effort, run=population.run)
    order = np.lexsort((shares.people, shares.cell))  # the largest share of a cell comes last
    start = np.searchsorted(shares.cell[order], np.arange(len(cell_of) + 1))
    group = shares.group[order[start[1:] - 1]][cell]
    divided = np.flatnonzero(np.diff(start) > 1)
    if not len(divided):
        return group
    # A keyed hash decides who of a shared cell goes where.
    members = np.flatnonzero(np.isin(cell, divided))
    members = members[np.argsort(cell[members], kind="stable")]
    number = population.keyed_numbers(rows[members])
    bounds = (
        np.searchsorted(cell[members], divided),
        np.searchsorted(cell[members], divided, side="right"),
    )
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


def counts_once(population: Population, rows: Ints) -> Ints:
    """Return 1 for one row of each person, at which they are counted, else 0; whatever the table's
    order.
    """
    if not population.has_several_rows:
        return np.ones(len(rows), dtype=np.int64)
    line = in_order(population.codes[rows], population.schema)
    counted = np.zeros(len(rows), dtype=np.int64)
    counted[line[population.first_rows(rows[line])]] = 1
    return counted


def _too_alike(population: Population, policy: PrivacyPolicy, rows: Ints) -> bool:
    for name in population.schema.sensitive if policy.l is not None or policy.t is not None else ():
        everybody = population.column(name)
        inside = everybody.take(rows)
        if policy.l is not None and l_diversity(inside).distinct < policy.l:
            return True
        ordered = population.domains[name].is_interval
        if policy.t is not None and t_closeness(inside, everybody, ordered) > policy.t:
            return True
    return False


def coarser(partition: Partition, k: int) -> Partition:
    """Return a partition into groups of at least k people whose groups are unions of the given
    ones.

    l and t still hold, and both regions of a record together tell no more than the smaller one.
    """
    population, grouped, count = (
        partition.population,
        partition.group_of_row >= 0,
        len(partition.regions),
    )
    group, cell = partition.parts
    people = np.bincount(partition.group_of_row[grouped], minlength=count)
    cells = [np.unique(c) for c in by_group(group, cell, count)]
    number, eligibility = _merged(
        population,
        cells,
        people,
        partition.side_of_group,
        lambda parts: bool(people[parts].sum() < k),
    )
    divided = {side: c._replace(group=number[c.group]) for side, c in partition.divided.items()}
    group_of_row = np.where(grouped, number[partition.group_of_row], -1)
    return Partition(
        population,
        regions_of(population, number[group], cell, len(eligibility)),
        group_of_row,
        eligibility,
        divided,
    )


# How likely the desired outcome is at each cell, for anybody: groups are kept similar in it.

_RECORDS = 8  # combinations of private values that are tried in every cell
_ASKED = 400_000  # most rows that the model is asked about, but at least one record


def partial_dependence(rows: TrainingLabels, goal: Goal) -> Floats:
    """Return, for each cell, the share of sampled records' private values that get the desired
    outcome there.

    A region over cells that are similar in it is likely to be pure, whatever private values it is
    released with. If any other outcome is desired, the most frequent prediction stands for it.
    """
    population = rows.population
    n_cells = len(population.cells)
    most = max(1, min(_RECORDS, _ASKED // n_cells))
    if not population.has_rows:
        return _on_cluster(population, rows.model, goal, most)
    labels = rows.labels(np.arange(population.n_rows))
    chosen = np.arange(len(labels)) if goal.is_opposite else np.flatnonzero(goal.met(labels))
    if not len(chosen):
        return np.zeros(n_cells)
    if goal.is_opposite:
        frequent = Counter(sorted(labels.tolist(), key=str)).most_common(1)[0][0]
        goal = Goal(lambda answers: np.asarray(answers == frequent, dtype=bool))
    count = min(most, len(chosen))
    number = population.keyed_numbers(chosen)
    least = number <= np.partition(number, count - 1)[count - 1]
    tried = chosen[least]
    line = in_order(population.codes[tried], population.schema, number[least])
    records = population.rows(tried[line[:count]])
    total = np.zeros(n_cells)
    for record in range(count):
        frame = rows_for_cells(
            population.encoder, records, np.full(n_cells, record), population.cells
        )
        predictions = rows.predictions(frame)
        total += goal.met(predictions.labels) & predictions.is_sure
    return total / count


def _on_cluster(population: Population, model: LabelModel, goal: Goal, most: int) -> Floats:
    """Do the same on the workers, who get model and key, and send back counts, keyed numbers and
    votes, but no row.
    """
    cells = population.cells
    frequent = _most_frequent(population, model) if goal.is_opposite else None

    def is_desired(labels: NDArray[np.object_]) -> Mask:
        if frequent is None:
            return goal.met(labels)
        return np.array([str(label) == frequent for label in labels.tolist()], dtype=bool)

    def least(frame: pd.DataFrame, reader: RecordReader) -> pd.DataFrame:
        tried = frame if frequent is not None else frame[is_desired(model(frame).astype(object))]
        return pd.DataFrame({"number": signed(np.sort(reader.numbers(tried))[:most])})

    drawn = np.sort(unsigned(population.map_rows(least, "number long")["number"]))[:most]

    def vote(frame: pd.DataFrame, reader: RecordReader) -> pd.DataFrame:
        numbers, first = np.unique(reader.numbers(frame), return_index=True)
        tried = np.isin(numbers, drawn)
        records = frame.iloc[first[tried]]
        asked = (
            rows_for_cells(reader.encoder, records, np.full(len(cells), i), cells)
            for i in range(len(records))
        )
        packed = [np.packbits(is_desired(model(rows).astype(object))).tobytes() for rows in asked]
        return pd.DataFrame({"number": signed(numbers[tried]), "votes": packed})

    if not len(drawn):
        return np.zeros(len(cells))
    found = population.map_rows(vote, "number long, votes binary")
    votes = dict(zip(unsigned(found["number"]).tolist(), found["votes"], strict=True))
    total = np.zeros(len(cells))
    for number in drawn.tolist():  # as often as drawn: equal records have equal numbers
        total += np.unpackbits(np.frombuffer(votes[number], dtype=np.uint8), count=len(cells))
    return total / len(drawn)


def _most_frequent(population: Population, model: LabelModel) -> str:
    """Return the spelling of the most frequent label, the first on a tie."""

    def count(frame: pd.DataFrame, _: RecordReader) -> pd.DataFrame:
        found = Counter(map(str, model(frame).astype(object).tolist()))
        return pd.DataFrame({"label": list(found), "people": list(found.values())})

    found = population.map_rows(count, "label string, people long").groupby("label")["people"].sum()
    return str(found.sort_index().idxmax())
