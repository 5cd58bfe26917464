"""Dividing a whole population into groups of at least k people that lose little information."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.rows import in_order
from cfk_plugin.metrics.risk import l_diversity, t_closeness
from cfk_plugin.protection.axes import NOMINAL, TREE, Axis, AxisArrays, CellIndex, Codes, Floats, Ints, index_of
from cfk_plugin.protection.group_kernels import (
    LENDERS,
    MOST,
    Candidates,
    Cells,
    Division,
    Groups,
    SearchSpace,
    anneal,
    cheapest_groups,
    found,
    neighbours,
    total_cost,
)
from cfk_plugin.protection.hull import coordinates, room_for_hull
from cfk_plugin.protection.partition import Partition, by_group, regions_of

_SEED = 0x9E3779B97F4A7C15
_NEAR = 32  # neighbours of a small cell among small cells
_RICH = 8  # and among cells with at least k people
_BLOCK = 200  # cells that are divided together at first
_STEPS = 60  # steps of the search per group and quasi-identifier: the more of them, the more there is to find
_WORK, _WORK_EACH = 1e9, 2e3  # at most so many comparisons of a cell with a group, and so many more per person
_HEATS = (0.1, 0.3, 0.1, 1.0)  # temperatures at first, in costs of a group; a table of more than ...
_FEW = 150  # ... so many groups only gets the first: luck matters less there


class Shares(NamedTuple):
    """Parallel arrays: a share of a cell's people that belongs to a group."""

    cell: Ints  # row of the cell
    people: Ints  # how many of its people; 0 only for a cell of nobody
    group: Ints


def group_cells(
    axes: AxisArrays, cells: Codes, people: ArrayLike, k: int, labels: Floats | None = None, label_weight: float = 0.03
) -> Shares:
    """Divide the people of distinct cells, at least ``k``, into groups of so many, whatever the order of the cells.

    Of labels in [0, 1], one per cell, a group that holds both ends loses `label_weight`, next to an NCP of 1.
    """
    codes, count = np.ascontiguousarray(cells, np.int32), np.asarray(people, np.int64)
    if labels is not None:
        levels, level = np.unique(labels, return_inverse=True)
        axes = _joined(axes, AxisArrays.of([Axis.interval(label_weight * levels, label_weight)]))
        codes = np.column_stack([codes, level]).astype(np.int32)
    order = np.lexsort(codes.T[::-1])
    codes, count = codes[order], count[order]
    shares = _seat_rest(axes, codes, count, _divide(axes, codes, count, k))
    by_cell = np.lexsort((shares.group, shares.cell))
    cell, size = shares.cell[by_cell], shares.people[by_cell]
    group = pd.factorize(shares.group[by_cell])[0].astype(np.int64)  # in the order of their first cells
    line = np.lexsort((cell, group))
    return Shares(order[cell[line]], size[line], group[line])


def _joined(first: AxisArrays, more: AxisArrays) -> AxisArrays:
    arrays = {name: np.append(array, getattr(more, name)) for name, array in first._asdict().items()}
    for name in ("offset", "node_offset"):
        start = getattr(first, name)
        arrays[name] = np.append(start, start[-1] + getattr(more, name)[1:])
    return AxisArrays(**arrays)


def _divide(axes: AxisArrays, codes: Codes, count: Ints, k: int) -> Shares:
    """Divide the cells that have people; numbers of groups may have gaps."""
    small, large = np.flatnonzero((count > 0) & (count < k)), np.flatnonzero(count >= k)
    if not small.size:
        return Shares(large, count[large], np.arange(large.size))
    inner, outer = (CellIndex.build(codes[at], np.ones(at.size, np.int64), axes) for at in (small, large))
    line = np.concatenate([small[inner.original], large[outer.original]])
    own = codes[line[: small.size]]
    place = axes.position[axes.offset[:-1] + own]
    near, rich = neighbours(inner.tree, axes, own, place, _NEAR), np.full((small.size, _RICH), -1, np.int32)
    if large.size:
        rich = neighbours(outer.tree, axes, own, place, _RICH)
        rich[rich >= 0] += small.size
    outside = np.full(len(line), -1)
    cells = Cells(coordinates(axes, codes[line]), near, rich, count[line], outside, outside.copy())
    free, groups = _search(axes, cells, k)
    mixed = np.arange(groups.cell.shape[1]) < groups.slots[:, None]
    alone = np.flatnonzero(free > 0)
    return Shares(
        line[np.append(groups.cell[mixed].astype(np.int64), alone)],
        np.append(groups.people[mixed].astype(np.int64), free[alone]),
        np.append(np.nonzero(mixed)[0], groups.slots.size + np.arange(alone.size)),
    )


def _search(axes: AxisArrays, cells: Cells, k: int) -> tuple[Ints, Groups]:
    """Divide the small cells block by block, then improve the groups; returns the best of several rounds."""
    count = cells.free.copy()
    small, people = count[: len(cells.near)], int(count.sum())
    bounds, most = _blocks(small, _BLOCK, 4 * k), int(min(people // k, small.sum()))
    room = min(max(int(np.diff(bounds).max()), MOST * 2 * k), len(count)) + LENDERS
    pool = Candidates.empty(room, axes.kind.size)
    division, hull = Division.empty(room, (LENDERS + 2) * room), room_for_hull(axes)
    state = np.array([_SEED], np.uint64)
    least, best = np.inf, (cells.free, Groups.empty(0, 0))
    for hot in _HEATS:
        cells.free[:], cells.first[:], groups = count, -1, Groups.empty(most, 2 * k)
        space = SearchSpace(axes, k, cells, groups, pool, division, hull, state)
        if not found(space, bounds):
            raise RuntimeError("a block of cells cannot be divided; please report this")
        number = most - int(groups.height[0])
        rounds = len(_HEATS) if number <= _FEW else 1
        steps, work = _STEPS * axes.kind.size * number, int((_WORK + _WORK_EACH * people) / rounds)
        anneal(space, steps, work, hot)
        if total_cost(groups) < least:
            least, best = total_cost(groups), (cells.free.copy(), groups)
        if rounds == 1:
            break
    return best


def _blocks(people: Ints, cells: int, least: int) -> Ints:
    """Bounds of runs of at least so many cells and people; the last run takes the remainder."""
    reach, bounds = np.concatenate([[0], np.cumsum(people)]), [0]
    while bounds[-1] + cells < people.size:
        end = max(bounds[-1] + cells, int(np.searchsorted(reach, reach[bounds[-1]] + least)))
        if end > people.size or reach[-1] - reach[end] < least:
            break
        bounds.append(end)
    return np.array([*bounds, people.size]) if bounds[-1] < people.size else np.array(bounds)


def _seat_rest(axes: AxisArrays, codes: Codes, count: Ints, shares: Shares) -> Shares:
    """Let the cells of nobody join."""
    rest = np.flatnonzero(count == 0)
    if not rest.size:
        return shares
    order = np.argsort(shares.group, kind="stable")
    numbers, start = np.unique(shares.group[order], return_index=True)
    size, ends = np.add.reduceat(shares.people[order], start), np.append(start, order.size)
    x, hull = coordinates(axes, codes), room_for_hull(axes)
    choice = cheapest_groups(axes, x, rest, shares.cell[order], ends, size, hull)
    joined = Shares(rest, np.zeros(rest.size, np.int64), numbers[choice])
    return Shares(*(np.append(a, b) for a, b in zip(shares, joined, strict=True)))


class GroupHulls:
    """Groups of cells as growing hulls; merges those that cannot stand alone at the least loss."""

    def __init__(self, axes: AxisArrays, cells: Codes, groups: list[Ints], people: Ints):
        self._axes = axes
        self._inside = [np.zeros((len(groups), int(size)), dtype=bool) for size in np.diff(axes.offset)]
        for group, members in enumerate(groups):
            for j, table in enumerate(self._inside):
                table[group, cells[members, j]] = True
        self.people = people.copy()
        self.into = np.arange(len(groups))  # which group each is part of by now
        self._loss = self._losses(np.arange(len(groups)), None)

    def merge_while(self, unfit: Callable[[Ints], bool], sides: Ints) -> None:
        """Merge each group that is unfit with its cheapest partner of the same side until no group is."""
        for group in range(len(self.into)):
            parts = np.array([group])
            while self.into[group] == group and unfit(parts) and (partner := self._partner(group, sides)) is not None:
                self._merge(group, partner)
                parts = np.flatnonzero(self.into == group)

    def _partner(self, group: int, sides: Ints) -> int | None:
        alive = self.into == np.arange(len(self.into))
        others = np.flatnonzero(alive & (sides == sides[group]))
        others = others[others != group]
        if not len(others):  # nobody left on this side: as large as it gets
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
        """NCP of the hulls of some groups, each joined with one more."""
        axes, total = self._axes, np.zeros(len(groups))
        for j, table in enumerate(self._inside):
            inside = table[groups] if joined is None else table[groups] | table[joined]
            weight, missing = float(axes.weight[j]), int(axes.missing[j])
            if axes.kind[j] == NOMINAL:
                size = inside.sum(axis=1)
                total += np.where(size > 1, weight * size / int(axes.card[j]), 0.0)
                continue
            present = inside if missing < 0 else np.delete(inside, missing, axis=1)
            low, high = present.argmax(axis=1), present.shape[1] - 1 - present[:, ::-1].argmax(axis=1)
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
    population: Population, cells: list[Ints], people: Ints, sides: Ints, unfit: Callable[[Ints], bool]
) -> tuple[Ints, Ints]:
    """Merge groups until none is unfit; return each one's new number, -1 on an unfit side, and the new ones' sides."""
    hulls = GroupHulls(index_of(population).axes, population.cells, cells, people)
    hulls.merge_while(unfit, sides)
    kept, into = np.unique(hulls.into, return_inverse=True)
    fit = np.array([not unfit(np.flatnonzero(hulls.into == group)) for group in kept], dtype=bool)
    return np.where(fit, np.cumsum(fit) - 1, -1)[into], sides[kept][fit]


_BUILT: WeakKeyDictionary[Population, dict[tuple[object, ...], Partition]] = WeakKeyDictionary()


def partition_of(population: Population, policy: PrivacyPolicy, sides: Ints, likely: Floats | None) -> Partition:
    """Return the partition of a population for a policy; built once.

    `sides` are not mixed, and -1 is on none; groups are kept alike in `likely`, the outcome's partial dependence.
    """
    built = _BUILT.setdefault(population, {})
    key = (policy.k, policy.l, policy.t, sides.tobytes(), None if likely is None else likely.tobytes())
    if key not in built:
        built[key] = _build(population, policy, sides, likely)
    return built[key]


def _build(population: Population, policy: PrivacyPolicy, sides: Ints, likely: Floats | None) -> Partition:
    group_of_row, side_of_group = np.full(population.n_rows, -1, dtype=np.int64), np.empty(0, dtype=np.int64)
    for side in np.unique(sides[sides >= 0]):
        rows = np.flatnonzero(sides == side)
        if population.people(rows) >= policy.k:
            group = _group(population, policy.k, rows, likely)
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
    regions = regions_of(population, group_of_row[rows], population.cell_of(rows), len(side_of_group))
    return Partition(population, regions, group_of_row, side_of_group)


def _group(population: Population, k: int, rows: Ints, likely: Floats | None) -> Ints:
    counted = counts_once(population, rows)
    cell_of, cell = np.unique(population.cell_of(rows), return_inverse=True)
    people = np.bincount(cell, weights=counted, minlength=len(cell_of)).astype(np.int64)
    labels = None if likely is None else likely[cell_of]
    shares = group_cells(index_of(population).axes, population.cells[cell_of], people, k, labels)
    order = np.lexsort((shares.people, shares.cell))  # the largest share of a cell comes last
    start = np.searchsorted(shares.cell[order], np.arange(len(cell_of) + 1))
    group = shares.group[order[start[1:] - 1]][cell]
    divided = np.flatnonzero(np.diff(start) > 1)
    if not len(divided):
        return group
    # Who of a cell that is shared goes where is decided by a keyed hash.
    members = np.flatnonzero(np.isin(cell, divided))
    members = members[np.argsort(cell[members], kind="stable")]
    number = population.keyed_numbers(rows[members])
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


def counts_once(population: Population, rows: Ints) -> Ints:
    """Return 1 for the row that a person is counted at, else 0: one of these rows, whatever the table's order."""
    if not population.has_several_rows:
        return np.ones(len(rows), dtype=np.int64)
    line = in_order(population.codes[rows], population.schema)
    counted = np.zeros(len(rows), dtype=np.int64)
    counted[line[population.first_rows(rows[line])]] = 1
    return counted


def _too_alike(population: Population, policy: PrivacyPolicy, rows: Ints) -> bool:
    """Say whether sensitive values of rows are too alike for one group."""
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
    """Return a partition into groups of at least k people whose groups are unions of the given ones.

    l and t hold as they did: a union has no fewer distinct values than a group, and is no farther from everybody than
    the farthest of its groups. Who sees a record with both its regions has the smaller one, and no more than that.
    """
    population, grouped, count = partition.population, partition.group_of_row >= 0, len(partition.regions)
    group, cell = partition.parts
    people = np.bincount(partition.group_of_row[grouped], minlength=count)
    cells = [np.unique(c) for c in by_group(group, cell, count)]
    number, sides = _merged(
        population, cells, people, partition.side_of_group, lambda parts: bool(people[parts].sum() < k)
    )
    divided = {side: c._replace(group=number[c.group]) for side, c in partition.divided.items()}
    group_of_row = np.where(grouped, number[partition.group_of_row], -1)
    return Partition(population, regions_of(population, number[group], cell, len(sides)), group_of_row, sides, divided)
