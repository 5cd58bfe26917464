"""A spatial index over the distinct cells of a population: which cells are cheap to reach from an anchor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cfk_plugin.protection._axes import (
    INTERVAL,
    NOMINAL,
    Axes,
    AxisArrays,
    Codes,
    Floats,
    Ints,
    box_distance,
    jit,
    tree_cost,
)

_LEAF_SIZE = 24
_SAMPLE = 127


class CellTree(NamedTuple):
    """A k-d tree: node ``t`` holds rows ``start[t]:stop[t]``; its children are ``child[t]`` and the next."""

    codes: Codes
    weight: Ints
    start: Ints
    stop: Ints
    child: Ints
    low: Codes
    high: Codes


@dataclass(frozen=True)
class CellIndex:
    """Distinct cells, rearranged so that cells close in cost lie close in memory.

    Parameters
    ----------
    axes : Axes
        How each quasi-identifier generalises.
    tree : CellTree
        Cells in tree order, and the tree over them.
    original : ndarray of shape (m,)
        The caller's number of each cell in tree order.
    total : int
        Weight of all cells.
    """

    axes: Axes
    tree: CellTree
    original: Ints
    total: int

    @classmethod
    def build(cls, codes: Codes, weight: Ints, axes: Axes) -> CellIndex:
        """Index ``m`` distinct cells.

        Raises
        ------
        ValueError
            If the shapes disagree, a code lies outside its axis, or a weight is negative.
        """
        cells = np.ascontiguousarray(codes, np.int32)
        people = np.ascontiguousarray(weight, np.int64)
        if cells.ndim != 2 or cells.shape[1] != axes.count or people.shape != (cells.shape[0],):
            raise ValueError(f"expected codes of shape (m, {axes.count}) and one weight per cell")
        if cells.size and (cells.min() < 0 or np.any(cells.max(axis=0) >= axes.cardinality)):
            raise ValueError("a code lies outside its quasi-identifier")
        if people.size and people.min() < 0:
            raise ValueError("weights must not be negative")
        order = np.arange(cells.shape[0], dtype=np.int64)
        start, stop, child, low, high = _grow(cells, order, axes.arrays)
        tree = CellTree(cells[order], people[order], start, stop, child, low, high)
        return cls(axes, tree, order, int(people.sum()))


@jit
def _widest(axes: AxisArrays, low: Codes, high: Codes) -> int:
    """Axis on which a box costs most, -1 for a box of one value."""
    best, axis = -1.0, -1
    for j in range(low.size):
        if low[j] == high[j]:
            continue
        if axes.kind[j] == NOMINAL:
            spread = axes.weight[j] * 2.0 / axes.card[j]
        elif axes.kind[j] == INTERVAL:
            base = axes.offset[j]
            spread = axes.weight[j]
            if axes.missing[j] < 0 or high[j] != axes.missing[j]:
                spread = min(spread, axes.position[base + high[j]] - axes.position[base + low[j]])
        else:
            spread = tree_cost(axes, j, low[j], high[j])
        if spread > best:
            best, axis = spread, j
    return axis


@jit
def _divide(cells: Codes, order: Ints, start: int, stop: int, j: int, top: int) -> int:
    """Reorder a node's rows about a sampled median of axis ``j``; both sides are non-empty."""
    step = max(1, (stop - start) // _SAMPLE)
    sample = np.empty((stop - start + step - 1) // step, np.int32)
    for s in range(sample.size):
        sample[s] = cells[order[start + s * step], j]
    sample.sort()
    pivot = min(sample[sample.size // 2], top - 1)
    left, right = start, stop - 1
    while True:
        while cells[order[left], j] <= pivot:
            left += 1
        while cells[order[right], j] > pivot:
            right -= 1
        if left >= right:
            return left
        order[left], order[right] = order[right], order[left]


@jit
def _grow(cells: Codes, order: Ints, axes: AxisArrays) -> tuple[Ints, Ints, Ints, Codes, Codes]:
    """Split until a node is small or holds one cell; returns the arrays of `CellTree` after ``weight``."""
    m, q = cells.shape
    room = max(2 * m, 1)
    start, stop, child = np.zeros(room, np.int64), np.zeros(room, np.int64), np.full(room, -1, np.int64)
    low, high = np.zeros((room, q), np.int32), np.zeros((room, q), np.int32)
    stop[0] = m
    used, t = 1, 0
    while t < used:
        a, b = start[t], stop[t]
        if b > a:
            low[t], high[t] = cells[order[a]], cells[order[a]]
        for s in range(a + 1, b):
            row = order[s]
            for j in range(q):
                low[t, j] = min(low[t, j], cells[row, j])
                high[t, j] = max(high[t, j], cells[row, j])
        axis = _widest(axes, low[t], high[t]) if b - a > _LEAF_SIZE else -1
        if axis >= 0:
            middle = _divide(cells, order, a, b, axis, high[t, axis])
            child[t] = used
            start[used], stop[used], start[used + 1], stop[used + 1] = a, middle, middle, b
            used += 2
        t += 1
    return start[:used].copy(), stop[:used].copy(), child[:used].copy(), low[:used].copy(), high[:used].copy()


@jit
def reach(axes: AxisArrays, anchor: Codes, place: Floats, low: Codes, high: Codes, t: int, limit: float) -> float:
    """Least cost of the hull of the anchor and a cell of box ``t``, or any number >= limit."""
    cost = 0.0
    for j in range(anchor.size):
        cost += box_distance(axes, j, anchor[j], place[j], low[t, j], high[t, j])
        if cost >= limit:
            return cost
    return cost


@jit
def _sift(cost: Floats, cell: Ints, size: int) -> None:
    """Restore the max-heap after its root was replaced."""
    at = 0
    while True:
        big = 2 * at + 1
        if big >= size:
            return
        if big + 1 < size and cost[big + 1] > cost[big]:
            big += 1
        if cost[big] <= cost[at]:
            return
        cost[at], cost[big] = cost[big], cost[at]
        cell[at], cell[big] = cell[big], cell[at]
        at = big


@jit
def nearest(tree: CellTree, axes: AxisArrays, anchor: Codes, place: Floats, people: int) -> tuple[Ints, float]:
    """Cells of least cost whose weight reaches ``people``, and the largest of their costs."""
    heap_cost, heap_cell, size, held = np.empty(64), np.empty(64, np.int64), 0, 0
    todo, todo_cost, top = np.empty(128, np.int64), np.empty(128), 1
    todo[0], todo_cost[0] = 0, 0.0
    radius = np.inf
    while top > 0:
        top -= 1
        t = todo[top]
        if todo_cost[top] >= radius:
            continue
        if tree.child[t] >= 0:
            a = tree.child[t]
            near = reach(axes, anchor, place, tree.low, tree.high, a, radius)
            far = reach(axes, anchor, place, tree.low, tree.high, a + 1, radius)
            b = a + 1
            if far < near:
                a, b, near, far = b, a, far, near
            if top + 2 > todo.size:
                todo, todo_cost = np.append(todo, todo), np.append(todo_cost, todo_cost)
            todo[top], todo_cost[top], todo[top + 1], todo_cost[top + 1] = b, far, a, near
            top += 2
            continue
        for i in range(tree.start[t], tree.stop[t]):
            cost = reach(axes, anchor, place, tree.codes, tree.codes, i, radius)
            if cost >= radius or tree.weight[i] == 0:
                continue
            if size == heap_cost.size:
                heap_cost, heap_cell = np.append(heap_cost, heap_cost), np.append(heap_cell, heap_cell)
            at = size
            size += 1
            held += tree.weight[i]
            while at > 0 and heap_cost[(at - 1) // 2] < cost:
                heap_cost[at], heap_cell[at] = heap_cost[(at - 1) // 2], heap_cell[(at - 1) // 2]
                at = (at - 1) // 2
            heap_cost[at], heap_cell[at] = cost, i
            while held - tree.weight[heap_cell[0]] >= people:
                held -= tree.weight[heap_cell[0]]
                size -= 1
                heap_cost[0], heap_cell[0] = heap_cost[size], heap_cell[size]
                _sift(heap_cost, heap_cell, size)
            if held >= people:
                radius = heap_cost[0]
    return heap_cell[:size].copy(), heap_cost[0] if size else 0.0


@jit
def ball(tree: CellTree, axes: AxisArrays, anchor: Codes, place: Floats, limit: float) -> Ints:
    """All cells whose hull with the anchor costs less than ``limit``, in tree order."""
    found, size = np.empty(256, np.int64), 0
    todo, top = np.empty(128, np.int64), 1
    todo[0] = 0
    while top > 0:
        top -= 1
        t = todo[top]
        if reach(axes, anchor, place, tree.low, tree.high, t, limit) >= limit:
            continue
        if tree.child[t] >= 0:
            if top + 2 > todo.size:
                todo = np.append(todo, todo)
            todo[top], todo[top + 1] = tree.child[t] + 1, tree.child[t]
            top += 2
            continue
        for i in range(tree.start[t], tree.stop[t]):
            if reach(axes, anchor, place, tree.codes, tree.codes, i, limit) < limit and tree.weight[i] > 0:
                if size == found.size:
                    found = np.append(found, found)
                found[size] = i
                size += 1
    return found[:size].copy()


@jit
def within(axes: AxisArrays, anchor: Codes, place: Floats, cells: Codes, limit: float) -> tuple[Codes, Floats]:
    """Select the given cells whose hull with the anchor costs less than ``limit``; by cost, with the costs."""
    cost = np.empty(cells.shape[0])
    for i in range(cells.shape[0]):
        cost[i] = reach(axes, anchor, place, cells, cells, i, limit)
    order = np.argsort(cost, kind="mergesort")
    order = order[: np.searchsorted(cost[order], limit)]
    return cells[order], cost[order]
