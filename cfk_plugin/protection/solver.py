"""Exact regions of least NCP: for each anchor the cheapest region that holds it and at least k people.

The work for one anchor is local. The cells nearest to it give a first region; only cells whose hull with the
anchor costs less than that region can be part of a cheaper one, and the index finds them without a scan.
Where forbidden cells leave no first region, the search runs under a cost cap that grows until a region is
found or the cap exceeds every cost, which proves that there is none.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cfk_plugin.protection.axes import INTERVAL, CellIndex, ball, nearest, within
from cfk_plugin.protection.hull import headcount, localise
from cfk_plugin.protection.kernels import (
    BEST_SIZE,
    BEST_WEIGHT,
    DONE,
    NODES,
    PAUSED,
    TOLERANCE,
    begin,
    explore,
    open_bound,
    roomier,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["CellIndex", "Solutions", "solve"]

_NEIGHBOURHOOD = 4  # the first region is sought among the nearest cells that hold this many times k
_OPENING = 64  # nodes spent on it beyond one per person
_SLICE = 2048  # nodes between two looks at the clock


@dataclass(frozen=True)
class Solutions:
    """One row per anchor."""

    feasible: NDArray[np.bool_]  # A region was found
    cost: NDArray[np.float64]  # Its cost (with penalties), infinite when there is none
    lower_bound: NDArray[np.float64]  # No region costs less; infinite when infeasibility is proven
    proven: NDArray[np.bool_]  # The region is optimal, or it is proven that there is none
    nodes: NDArray[np.int64]  # Nodes of the search tree that were expanded
    weight: NDArray[np.int64]  # People inside the region, 0 when there is none
    # shape (anchors, width); cells, in the caller's numbering, whose hull with the anchor is the region; padded with -1
    cells: NDArray[np.int64]


class _Region(NamedTuple):
    cost: float = np.inf
    weight: int = 0
    cells: NDArray[np.int64] = np.empty(0, np.int64)


class _Task(NamedTuple):
    """One anchor and what is asked of it."""

    population: CellIndex
    anchor: NDArray[np.int32]
    place: NDArray[np.float64]
    need: int
    banned: NDArray[np.int32]
    penalty: float
    node_limit: int
    deadline: float | None


def solve(
    index: CellIndex,
    anchor_codes: ArrayLike,
    anchor_positions: ArrayLike,
    k: int,
    forbidden: Sequence[ArrayLike] | None = None,
    penalty: float = np.inf,
    node_limit: int = 200_000,
    time_limit: float | None = None,
    threads: int = 1,
) -> Solutions:
    """Find, for each anchor, the region of least cost that holds it and at least ``k`` people."""
    codes = np.ascontiguousarray(anchor_codes, np.int32)
    places = np.array(anchor_positions, np.float64, order="C")
    axes = index.axes
    if k < 1 or not penalty >= 0:
        raise ValueError("k must be at least 1 and the penalty must not be negative")
    if codes.ndim != 2 or codes.shape[1] != axes.count or places.shape != codes.shape:
        raise ValueError(f"expected codes and positions of shape (anchors, {axes.count})")
    interval = axes.arrays.kind == INTERVAL
    if np.any(codes >= axes.cardinality) or np.any(codes < np.where(interval, -1, 0)):
        raise ValueError("an anchor's code lies outside its quasi-identifier")
    if not np.all(np.isfinite(places[codes < 0])):
        raise ValueError("an anchor without a code needs a finite position")
    known = axes.arrays.position[axes.arrays.offset[:-1] + np.maximum(codes, 0)]
    places = np.where(codes >= 0, known, places)
    banned = _banned(index, len(codes), forbidden)

    def one(a: int) -> tuple[_Region, float, int]:
        deadline = None if time_limit is None else time.monotonic() + time_limit
        return _solve(_Task(index, codes[a], places[a], k, banned[a], penalty, node_limit, deadline))

    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            return _gather(list(pool.map(one, range(len(codes)))))
    return _gather([one(a) for a in range(len(codes))])


def _banned(index: CellIndex, anchors: int, forbidden: Sequence[ArrayLike] | None) -> list[NDArray[np.int32]]:
    q = index.axes.count
    if forbidden is None:
        return [np.empty((0, q), np.int32)] * anchors
    if len(forbidden) != anchors:
        raise ValueError("expected one array of forbidden cells per anchor")
    banned = [np.ascontiguousarray(cells, np.int32).reshape(-1, q) for cells in forbidden]
    least = np.where(index.axes.arrays.kind == INTERVAL, -1, 0)
    for cells in banned:
        if cells.size and (np.any(cells.min(axis=0) < least) or np.any(cells.max(axis=0) >= index.axes.cardinality)):
            raise ValueError("a forbidden cell lies outside a quasi-identifier")
    return banned


def _gather(rows: list[tuple[_Region, float, int]]) -> Solutions:
    cells = np.full((len(rows), max([1, *(r.cells.size for r, _, _ in rows)])), -1, np.int64)
    for a, (region, _, _) in enumerate(rows):
        cells[a, : region.cells.size] = region.cells
    cost = np.array([region.cost for region, _, _ in rows], np.float64)
    bound = np.array([bound for _, bound, _ in rows], np.float64)
    return Solutions(
        feasible=np.isfinite(cost),
        cost=cost,
        lower_bound=bound,
        proven=bound >= cost,
        nodes=np.array([nodes for _, _, nodes in rows], np.int64),
        weight=np.array([region.weight for region, _, _ in rows], np.int64),
        cells=cells,
    )


def _solve(task: _Task) -> tuple[_Region, float, int]:
    """Best region, lower bound and nodes for one anchor."""
    tree, axes = task.population.tree, task.population.axes.arrays
    around = (tree, axes, task.anchor, task.place)
    if task.population.total < task.need:
        return _Region(), np.inf, 0
    extra = task.penalty * len(task.banned) if task.penalty < np.inf else 0.0
    ceiling = (float(axes.weight.sum()) + extra) * (1 + 1e-9) + 4 * TOLERANCE
    rows, radius = nearest(*around, min(_NEIGHBOURHOOD * task.need, task.population.total))
    # Whatever the limits, one descent is made: without forbidden cells it always ends in a region.
    opening, _, nodes = _branch(task, rows, ceiling, 0, task.need + _OPENING, True)
    cap = opening.cost if opening.weight else max(2 * radius, ceiling / 1024)
    while True:
        cap = min(cap, ceiling)
        rows = ball(*around, cap + TOLERANCE)
        region, bound, nodes = _branch(task, rows, cap, nodes, task.node_limit, False)
        if opening.weight and not region.weight:
            inside = headcount(*around, opening.cells, rows)
            region = opening._replace(weight=int(inside))
        if region.weight:
            region = region._replace(cells=task.population.original[region.cells])
            return region, region.cost if bound >= region.cost - 2 * TOLERANCE else bound, nodes
        if bound < cap:
            return region, bound, nodes
        if cap >= ceiling:
            return region, np.inf, nodes
        # Once most cells are in reach, a smaller step would only repeat the work.
        cap = 2 * cap if 2 * rows.size < tree.weight.size else ceiling


def _branch(
    task: _Task, rows: NDArray[np.int64], cap: float, nodes: int, node_limit: int, opening: bool
) -> tuple[_Region, float, int]:
    """Search the hulls of the cells ``rows`` below ``cap``: region, lower bound, nodes so far."""
    tree, axes = task.population.tree, task.population.axes.arrays
    banned, near = within(axes, task.anchor, task.place, task.banned, cap)
    p = localise(tree, axes, task.anchor, task.place, rows, banned, near)
    hull, stack = begin(p, task.need, cap, task.penalty, nodes)
    best = np.empty(hull.low.shape[0], np.int64)
    while True:
        spent = int(stack.counter[NODES])
        goal = node_limit if task.deadline is None else min(node_limit, spent + _SLICE)
        status = explore(p, hull, stack, task.need, task.penalty, goal, opening, best)
        if status == DONE:
            break
        if status != PAUSED:
            hull, stack, best = roomier(hull, stack, best)
            continue
        late = task.deadline is not None and time.monotonic() >= task.deadline
        if stack.counter[NODES] >= node_limit or late or (opening and stack.counter[BEST_WEIGHT]):
            break
    bound = cap if status == DONE else float(open_bound(p, stack, task.need))
    spent = int(stack.counter[NODES])
    if not stack.counter[BEST_WEIGHT]:
        return _Region(), bound, spent
    found = _Region(float(stack.cost[0]), int(stack.counter[BEST_WEIGHT]), rows[best[: stack.counter[BEST_SIZE]]])
    return found, min(found.cost, bound), spent
