"""Exact regions of least NCP: for each anchor the cheapest region that holds it and at least k people.

The cells nearest to an anchor give a first region; only cells whose hull with the anchor costs less can be part of a
cheaper one. Where forbidden cells leave no first region, the search runs under a cost cap that grows until a region
is found or the cap exceeds every cost, which proves that there is none.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.protection.axes import INTERVAL, CellIndex, Codes, Floats, Ints, ball, nearest, within
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

_NEIGHBOURHOOD = 4  # the first region is sought among the nearest cells that hold this many times k
_OPENING = 64  # nodes spent on it beyond one per person
_SLICE = 2048  # nodes between two looks at the clock


class Solution(NamedTuple):
    cost: float = np.inf  # with penalties; infinite when there is none
    lower_bound: float = np.inf  # no region costs less; infinite when it is proven that there is none
    nodes: int = 0  # of the search tree, expanded
    weight: int = 0  # people inside the region
    cells: Ints = np.empty(0, np.int64)  # in the caller's numbering: their hull with the anchor is the region

    @property
    def proven(self) -> bool:
        """Whether the region is optimal, or it is proven that there is none."""
        return bool(self.lower_bound >= self.cost)

    @property
    def gap(self) -> float:
        """Proven bound on how much less another region could cost."""
        return 0.0 if self.proven else max(0.0, self.cost - self.lower_bound)


class _Problem(NamedTuple):
    space: CellIndex
    anchor: Codes
    place: Floats
    need: int
    banned: Codes
    penalty: float
    node_limit: int
    deadline: float | None


def solve(
    index: CellIndex,
    anchors: Codes,
    places: Floats,
    k: int,
    forbidden: Sequence[Codes] | None = None,
    *,
    penalty: float = np.inf,
    node_limit: int = 200_000,
    time_limit: float | None = None,
    threads: int = 1,
) -> list[Solution]:
    """Find, for each anchor, the region of least cost that holds it and at least ``k`` people.

    Of ``places`` those count whose code is -1: a number of the anchor's own.
    """
    axes = index.axes
    banned = [np.empty((0, anchors.shape[1]), np.int32)] * len(anchors) if forbidden is None else forbidden
    codes = [np.array(cells, np.int32, order="C") for cells in (anchors, *banned)]  # writable: compiled for that alone
    low, high = np.where(axes.kind == INTERVAL, -1, 0), np.diff(axes.offset)
    if any(np.any((cells < low) | (cells >= high)) for cells in codes):  # kernels would read elsewhere in memory
        raise ValueError("a code lies outside its quasi-identifier")
    known = axes.position[axes.offset[:-1] + np.maximum(codes[0], 0)]
    places = np.where(codes[0] >= 0, known, places)
    if not np.all(np.isfinite(places)):
        raise ValueError("an anchor without a code needs a finite position")

    def one(a: int) -> Solution:
        deadline = None if time_limit is None else time.monotonic() + time_limit
        return _solve(_Problem(index, codes[0][a], places[a], k, codes[a + 1], penalty, node_limit, deadline))

    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(one, range(len(anchors))))
    return [one(a) for a in range(len(anchors))]


def _solve(task: _Problem) -> Solution:
    tree, axes = task.space.tree, task.space.axes
    around = (tree, axes, task.anchor, task.place)
    total = int(tree.weight.sum())
    if total < task.need:
        return Solution()
    extra = task.penalty * len(task.banned) if task.penalty < np.inf else 0.0
    ceiling = (float(axes.weight.sum()) + extra) * (1 + 1e-9) + 4 * TOLERANCE
    rows, radius = nearest(*around, min(_NEIGHBOURHOOD * task.need, total))
    # Whatever the limits, one descent is made: without forbidden cells it always ends in a region.
    opening = _branch(task, rows, ceiling, 0, task.need + _OPENING, opening=True)
    cap, nodes = opening.cost if opening.weight else max(2 * radius, ceiling / 1024), opening.nodes
    while True:
        cap = min(cap, ceiling)
        rows = ball(*around, cap + TOLERANCE)
        found = _branch(task, rows, cap, nodes, task.node_limit, opening=False)
        bound, nodes = found.lower_bound, found.nodes
        if opening.weight and not found.weight:
            found = opening._replace(weight=int(headcount(*around, opening.cells, rows)), nodes=nodes)
        if found.weight:
            bound = found.cost if bound >= found.cost - 2 * TOLERANCE else bound
            return found._replace(lower_bound=bound, cells=task.space.original[found.cells])
        if bound < cap:
            return found
        if cap >= ceiling:
            return found._replace(lower_bound=np.inf)
        # Once most cells are in reach, a smaller step would only repeat the work.
        cap = 2 * cap if 2 * rows.size < tree.weight.size else ceiling


def _branch(
    task: _Problem, rows: NDArray[np.int64], cap: float, nodes: int, node_limit: int, *, opening: bool
) -> Solution:
    tree, axes = task.space.tree, task.space.axes
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
        return Solution(lower_bound=bound, nodes=spent)
    cost, cells = float(stack.cost[0]), rows[best[: stack.counter[BEST_SIZE]]]
    return Solution(cost, min(cost, bound), spent, int(stack.counter[BEST_WEIGHT]), cells)
