"""A partition of a whole population into groups of at least k people whose hulls lose little information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cfk_plugin.protection._axes import INTERVAL, Axes, AxisArrays, Codes, Ints
from cfk_plugin.protection._group_draft import room_for_draft, room_for_pool
from cfk_plugin.protection._group_hull import coordinates, room_for_hull
from cfk_plugin.protection._group_near import cheapest_groups, neighbours
from cfk_plugin.protection._grouping import LENDERS, MOST, Crowd, Groups, anneal, found, total_cost
from cfk_plugin.protection._index import CellIndex

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

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
    """Parallel arrays: a share of a cell's people that belongs to a group. Groups are numbered 0..n-1.

    Parameters
    ----------
    cell : ndarray of int
        Row of the cell.
    people : ndarray of int
        How many of its people; 0 only for a cell of nobody.
    group : ndarray of int
        Their group.
    """

    cell: NDArray[np.int64]
    people: NDArray[np.int64]
    group: NDArray[np.int64]


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
    """Divide a population into groups of at least ``k`` people so that their hulls cost little on average.

    Parameters
    ----------
    axes : Axes
        How each quasi-identifier generalises.
    cells : array of shape (m, q)
        Distinct codes.
    people : array of shape (m,)
        How many people each cell has. A cell may be divided over groups; one of nobody joins the group whose cost grows
        least.
    k : int
        Least number of people of a group.
    labels : array of shape (m,), optional
        Number in [0, 1] per cell; groups prefer cells with similar ones.
    label_weight : float
        What it costs a group to hold both 0 and 1, next to quasi-identifiers whose weights sum to 1.
    effort : float
        Multiplies the number of search steps.

    Returns
    -------
    Shares
        Sorted by group, then by cell. The result does not depend on the order of the cells.

    Raises
    ------
    ValueError
        If there are fewer than ``k`` people, or an argument is impossible.
    """
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
    cells = np.concatenate([small[inner.original], large[outer.original]])
    crowd = _crowd(axes.arrays, codes[cells], count[cells], inner, outer)
    free, groups = _search(axes.arrays, crowd, k, effort)
    mixed = np.arange(groups.cell.shape[1]) < groups.slots[:, None]
    own = np.flatnonzero(free > 0)
    return _Parts(
        cells[np.append(groups.cell[mixed].astype(np.int64), own)],
        np.append(groups.people[mixed].astype(np.int64), free[own]),
        np.append(np.nonzero(mixed)[0], groups.slots.size + np.arange(own.size)),
    )


def _crowd(arrays: AxisArrays, codes: Codes, count: Ints, inner: CellIndex, outer: CellIndex) -> Crowd:
    small = inner.original.size
    place = arrays.position[arrays.offset[:-1] + codes[:small]]
    near = neighbours(inner.tree, arrays, codes[:small], place, _NEAR)
    rich = np.full((small, _RICH), -1, np.int32)
    if outer.original.size:
        rich = neighbours(outer.tree, arrays, codes[:small], place, _RICH)
        rich[rich >= 0] += small
    outside = np.full(len(codes), -1)
    return Crowd(coordinates(arrays, codes), near, rich, count.copy(), outside, outside.copy())


def _search(arrays: AxisArrays, crowd: Crowd, k: int, effort: float) -> tuple[Ints, Groups]:
    """Divide the small cells block by block, then improve the groups; returns the best of several rounds."""
    count = crowd.free.copy()
    small, people = count[: len(crowd.near)], int(count.sum())
    bounds, most = _blocks(small, _BLOCK, 4 * k), int(min(people // k, small.sum()))
    room = min(max(int(np.diff(bounds).max()), MOST * 2 * k), len(count)) + LENDERS
    pool, draft, hull = (
        room_for_pool(room, arrays.kind.size),
        room_for_draft(room, (LENDERS + 2) * room),
        room_for_hull(arrays),
    )
    state = np.array([_SEED], np.uint64)
    least, best = np.inf, (crowd.free, _no_groups(0, 0))
    for hot in _HEATS:
        crowd.free[:], crowd.first[:], groups = count, -1, _no_groups(most, 2 * k)
        if not found(arrays, k, crowd, groups, pool, draft, hull, state, bounds):
            raise RuntimeError("a block of cells cannot be divided; please report this")
        number = most - int(groups.height[0])
        rounds = len(_HEATS) if number <= _FEW else 1
        steps, work = (
            int(effort * _STEPS * arrays.kind.size * number),
            int(effort * (_WORK + _WORK_EACH * people) / rounds),
        )
        anneal(arrays, k, crowd, groups, pool, draft, hull, state, steps, max(work, 1), hot)
        if total_cost(groups) < least:
            least, best = total_cost(groups), (crowd.free.copy(), groups)
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
