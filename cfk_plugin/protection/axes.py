"""Quasi-identifiers as compiled code reads them: costs, a spatial index over cells, and regions
from codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfk_plugin.data.domain import Domain
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Part, Region
from cfk_plugin.data.schema import Hierarchy
from cfk_plugin.protection.compiled import inner
from cfk_plugin.protection.compiled import jit as jit  # noqa: PLC0414 - as one may import it from here

INTERVAL, NOMINAL, TREE = 0, 1, 2

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.int32]

_NO_NODES = np.empty(0, np.int64)


class Axis(NamedTuple):
    """One quasi-identifier and what it costs to generalise it; use `interval`, `nominal` or
    `tree`.
    """

    kind: int  # INTERVAL, NOMINAL or TREE
    weight: float  # cost of the whole domain
    card: int  # values in the denominator of the cost (NOMINAL, TREE)
    position: Floats  # one number per code; only INTERVAL gives it a meaning
    leaf: Ints  # node of each leaf code of a TREE, else -1
    missing: int = -1  # code of "missing", -1 when there is none
    # Nodes of a TREE: first and last leaf code, parent node (-1 at the root).
    low: Ints = _NO_NODES
    high: Ints = _NO_NODES
    parent: Ints = _NO_NODES

    @classmethod
    def interval(cls, position: ArrayLike, weight: float, *, missing: bool = False) -> Axis:
        """Ordered values at already scaled positions; `missing` appends one more code for
        "missing".
        """
        place = np.append(np.asarray(position, np.float64), [0.0] * missing)
        return cls(
            INTERVAL,
            weight,
            place.size,
            place,
            np.full(place.size, -1),
            place.size - 1 if missing else -1,
        )

    @classmethod
    def nominal(cls, values: int, weight: float, *, card: int | None = None) -> Axis:
        """Unordered values; `card` when the domain of the cost is larger than the codes in use."""
        return cls(
            NOMINAL, weight, values if card is None else card, np.zeros(values), np.full(values, -1)
        )

    @classmethod
    def tree(cls, low: ArrayLike, high: ArrayLike, parent: ArrayLike, weight: float) -> Axis:
        """Values at the leaves of a hierarchy, numbered depth first so that each node is a range of
        codes.

        A leaf is a node with ``low == high``; the lowest one of a chain counts.
        """
        first, last, up = (np.asarray(a, np.int64) for a in (low, high, parent))
        bottom = np.setdiff1d(np.flatnonzero(first == last), up)
        leaf = bottom[np.argsort(first[bottom])]
        return cls(TREE, weight, leaf.size, np.zeros(leaf.size), leaf, -1, first, last, up)


class AxisArrays(NamedTuple):
    """The quasi-identifiers of a population, ragged arrays laid end to end.

    Codes of axis ``j`` are rows ``offset[j]`` to ``offset[j + 1]`` of ``position`` and
    ``leaf_node``; node numbers count from 0 within each axis.
    """

    kind: NDArray[np.int8]
    weight: Floats
    card: Ints
    missing: Ints
    offset: Ints
    position: Floats
    node_offset: Ints
    node_low: Ints
    node_high: Ints
    node_parent: Ints
    leaf_node: Ints

    @classmethod
    def of(cls, axes: Sequence[Axis]) -> AxisArrays:
        kind, weight, card, position, leaf, missing, low, high, parent = zip(*axes, strict=True)
        return cls(
            kind=np.array(kind, np.int8),
            weight=np.array(weight, np.float64),
            card=np.array(card, np.int64),
            missing=np.array(missing, np.int64),
            offset=np.cumsum([0, *map(len, position)], dtype=np.int64),
            position=np.concatenate(position),
            node_offset=np.cumsum([0, *map(len, low)], dtype=np.int64),
            node_low=np.concatenate(low),
            node_high=np.concatenate(high),
            node_parent=np.concatenate(parent),
            leaf_node=np.concatenate(leaf),
        )


@inner
def tree_cost(axes: AxisArrays, j: int, leaf: int, code: int) -> float:
    """Cost of the lowest node that covers both leaves."""
    if leaf == code:
        return 0.0
    base = axes.node_offset[j]
    node = base + axes.leaf_node[axes.offset[j] + leaf]
    while code < axes.node_low[node] or code > axes.node_high[node]:
        node = base + axes.node_parent[node]
    return float(axes.weight[j] * (axes.node_high[node] - axes.node_low[node] + 1) / axes.card[j])


@inner
def box_distance(axes: AxisArrays, j: int, anchor: int, place: float, low: int, high: int) -> float:
    """Least cost, on axis ``j``, of the hull of the anchor and one code of a range."""
    kind, weight, missing = axes.kind[j], float(axes.weight[j]), axes.missing[j]
    if kind == INTERVAL:
        if high < 0:  # a forbidden cell may name the anchor's own value
            return 0.0
        if missing >= 0 and anchor == missing:
            return 0.0 if high == missing else weight
        if missing >= 0 and high == missing:
            if low == missing:
                return weight
            high -= 1
        below = float(axes.position[axes.offset[j] + low])
        above = float(axes.position[axes.offset[j] + high])
        if place < below:
            return min(weight, below - place)
        return min(weight, place - above) if place > above else 0.0
    if low <= anchor <= high:
        return 0.0
    if kind == NOMINAL:
        return float(weight * 2.0 / axes.card[j])
    # Leaves are numbered depth first: the nearer end of the range shares the lower ancestor.
    return tree_cost(axes, j, anchor, low if anchor < low else high)


# A spatial index over the distinct cells of a population: which cells are cheap to reach from an
# anchor.

_SAMPLE = 127


class CellTree(NamedTuple):
    """A k-d tree: node ``t`` holds rows ``start[t]:stop[t]``; its children are ``child[t]`` and the
    next.
    """

    codes: Codes
    weight: Ints
    start: Ints
    stop: Ints
    child: Ints
    low: Codes
    high: Codes


_LEAF_CELLS = 24


class CellIndex(NamedTuple):
    """Distinct cells, rearranged so that cells close in cost lie close in memory."""

    axes: AxisArrays
    tree: CellTree  # cells in tree order, and the tree over them
    original: Ints  # the caller's number of each cell in tree order

    @classmethod
    def build(cls, codes: Codes, weight: Ints, axes: AxisArrays) -> CellIndex:
        """Split until no node has more than `_LEAF_CELLS` cells."""
        cells = np.ascontiguousarray(codes, np.int32).view()
        # always, as kernels are compiled for read-only or writable arrays
        cells.flags.writeable = False
        order, room = np.arange(len(cells), dtype=np.int64), max(2 * len(cells), 1)
        start, stop, child = np.zeros((3, room), np.int64)
        low, high = np.zeros((2, room, cells.shape[1]), np.int32)
        used = _grow(cells, order, axes, _LEAF_CELLS, start, stop, child, low, high)
        start, stop, child = (array[:used].copy() for array in (start, stop, child))
        low, high = (array[:used].copy() for array in (low, high))
        return cls(
            axes, CellTree(cells[order], weight[order], start, stop, child, low, high), order
        )


@inner
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


@inner
def _divide(cells: Codes, order: Ints, start: int, stop: int, j: int, top: int) -> int:
    """Reorder a node's rows about a sampled median of axis ``j``; both sides are non-empty."""
    step = max(1, (stop - start) // _SAMPLE)
    sample = np.empty((stop - start + step - 1) // step, np.int32)
    for s in range(sample.size):
        sample[s] = cells[order[start + s * step], j]
    pivot = min(_median(sample), top - 1)
    left, right = start, stop - 1
    while True:
        while cells[order[left], j] <= pivot:
            left += 1
        while cells[order[right], j] > pivot:
            right -= 1
        if left >= right:
            return left
        order[left], order[right] = order[right], order[left]


@inner
def _median(sample: Codes) -> int:
    """Return the upper median; the sample is reordered."""
    first, last, middle = 0, sample.size - 1, sample.size // 2
    while first < last:
        pivot, left, right = sample[middle], first, last
        while left <= right:
            while sample[left] < pivot:
                left += 1
            while sample[right] > pivot:
                right -= 1
            if left <= right:
                sample[left], sample[right] = sample[right], sample[left]
                left, right = left + 1, right - 1
        if right < middle:
            first = left
        if left > middle:
            last = right
    return int(sample[middle])


@jit
def _grow(
    cells: Codes,
    order: Ints,
    axes: AxisArrays,
    leaf: int,
    start: Ints,
    stop: Ints,
    child: Ints,
    low: Codes,
    high: Codes,
) -> int:
    """Split until a node is small or holds one cell; fills the arrays of `CellTree` and returns the
    number of nodes.
    """
    m, q = cells.shape
    stop[0] = m
    used, t = 1, 0
    while t < used:
        a, b = start[t], stop[t]
        for s in range(a, b):
            row = order[s]
            for j in range(q):
                code = cells[row, j]
                if s == a or code < low[t, j]:
                    low[t, j] = code
                if s == a or code > high[t, j]:
                    high[t, j] = code
        axis = _widest(axes, low[t], high[t]) if b - a > leaf else -1
        child[t] = -1
        if axis >= 0:
            middle = _divide(cells, order, a, b, axis, high[t, axis])
            child[t] = used
            start[used], stop[used], start[used + 1], stop[used + 1] = a, middle, middle, b
            used += 2
        t += 1
    return used


@inner
def longer(array: Any) -> Any:
    """Return an array with room for twice as many."""
    longer = np.empty(2 * array.size, array.dtype)
    for i in range(array.size):
        longer[i] = array[i]
    return longer


@inner
def reach(
    axes: AxisArrays, anchor: Codes, place: Floats, low: Codes, high: Codes, t: int, limit: float
) -> float:
    """Least cost of the hull of the anchor and a cell of box ``t``, or any number >= limit."""
    cost = 0.0
    for j in range(anchor.size):
        cost += box_distance(axes, j, anchor[j], place[j], low[t, j], high[t, j])
        if cost >= limit:
            return cost
    return cost


@inner
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
def nearest(  # noqa: C901 - a kernel
    tree: CellTree, axes: AxisArrays, anchor: Codes, place: Floats, people: int
) -> tuple[Ints, float]:
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
                todo, todo_cost = longer(todo), longer(todo_cost)
            todo[top], todo_cost[top], todo[top + 1], todo_cost[top + 1] = b, far, a, near
            top += 2
            continue
        for i in range(tree.start[t], tree.stop[t]):
            cost = reach(axes, anchor, place, tree.codes, tree.codes, i, radius)
            if cost >= radius or tree.weight[i] == 0:
                continue
            if size == heap_cost.size:
                heap_cost, heap_cell = longer(heap_cost), longer(heap_cell)
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
                todo = longer(todo)
            todo[top], todo[top + 1] = tree.child[t] + 1, tree.child[t]
            top += 2
            continue
        for i in range(tree.start[t], tree.stop[t]):
            if (
                reach(axes, anchor, place, tree.codes, tree.codes, i, limit) < limit
                and tree.weight[i] > 0
            ):
                if size == found.size:
                    found = longer(found)
                found[size] = i
                size += 1
    return found[:size].copy()


def within(
    axes: AxisArrays, anchor: Codes, place: Floats, cells: Codes, limit: float
) -> tuple[Codes, Floats]:
    """Select the given cells whose hull with the anchor costs less than ``limit``; by cost, with
    the costs.
    """
    cost = np.empty(len(cells))
    _costs(axes, anchor, place, cells, limit, cost)
    order = np.argsort(cost, kind="stable")
    order = order[: np.searchsorted(cost[order], limit)]
    return cells[order], cost[order]


@jit
def _costs(
    axes: AxisArrays, anchor: Codes, place: Floats, cells: Codes, limit: float, cost: Floats
) -> None:
    for i in range(cost.size):
        cost[i] = reach(axes, anchor, place, cells, cells, i, limit)


# Between values and codes: what compiled search needs from a population, and regions from its
# results.

_INDEXES: WeakKeyDictionary[Population, CellIndex] = WeakKeyDictionary()


def index_of(population: Population) -> CellIndex:
    """Return the spatial index over the population's cells; built once."""
    if population not in _INDEXES:
        axes = AxisArrays.of(
            [_axis(population.domains[q]) for q in population.schema.quasi_identifiers]
        )
        _INDEXES[population] = CellIndex.build(population.cells, population.cell_people, axes)
    return _INDEXES[population]


def region_of(population: Population, cells: Codes, own: Floats | None = None) -> Region:
    """Return the smallest region that holds some cells; a code of -1 stands for the number
    `own`.
    """
    parts: dict[str, Part] = {}
    for j, name in enumerate(population.schema.quasi_identifiers):
        codes = np.unique(cells[:, j])
        parts[name] = part_of(
            population.domains[name],
            codes[codes >= 0],
            float(own[j]) if own is not None and codes[0] < 0 else None,
        )
    return Region(parts)


def ends_of_region(population: Population, region: Region) -> list[Codes]:
    """Return codes of each quasi-identifier whose smallest region is this one; for ranges, the
    ends.
    """
    found = []
    for name in population.schema.quasi_identifiers:
        domain, codes = (
            population.domains[name],
            np.flatnonzero(population.domains[name].inside(region[name])),
        )
        values = codes[codes < len(domain.values)]
        ends = [*values[:1], *values[-1:], *codes[len(values) :]] if domain.is_interval else codes
        found.append(np.unique(np.array(ends, dtype=np.int32)))
    return found


def side_by_side(each: Sequence[Sequence[Codes]], none: Codes) -> tuple[Codes, Ints]:
    """Return codes of several attributes as columns, repeated to be as long as each other, and
    which they belong to.
    """
    columns = [
        np.column_stack([np.resize(codes, max(map(len, some))) for codes in some]) for some in each
    ]
    return np.concatenate([none, *columns], dtype=np.int32), np.repeat(
        np.arange(len(each)), [*map(len, columns)]
    )


def part_of(domain: Domain, codes: Codes, own: float | None = None) -> Part:
    """Return the part of a region that covers codes of one attribute and, if given, a number that
    no row has.
    """
    missing = bool(domain.has_missing and (codes == domain.missing_code).any())
    present = codes[codes != domain.missing_code] if domain.has_missing else codes
    if domain.attribute.kind == "numeric":
        return _range(domain, present, own, missing)
    free = domain.attribute.weight == 0  # generalising is free here, and the search relies on it
    if domain.attribute.kind == "ordinal":
        if not len(present):
            return Interval(None, None, True, ())
        low, high = (
            (0, len(domain.values) - 1) if free else (int(present.min()), int(present.max()))
        )
        levels = tuple(domain.values[low : high + 1])
        return Interval(levels[0], levels[-1], missing, levels)
    if domain.attribute.hierarchy is not None:
        if free:
            present, missing = np.arange(len(domain.values)), domain.has_missing
        return _node(domain, domain.attribute.hierarchy, present, missing)
    return frozenset(domain.value(int(code)) for code in codes)


def _range(domain: Domain, present: Codes, own: float | None, missing: bool) -> Interval:
    if own is None and not len(present):
        return Interval(None, None, True)
    places = domain.scaled[present]
    if own is not None:
        places = np.append(places, domain.place(np.array([own])) * domain.attribute.weight)
    # Values at the same place are free, and the search relies on it: all values, if the weight or
    # range is 0.
    first, last = (
        np.searchsorted(domain.scaled, places.min()),
        np.searchsorted(domain.scaled, places.max(), "right"),
    )
    inside = domain.values[first:last]
    ends = [*map(float, inside[[0, -1]] if len(inside) else ()), *(() if own is None else (own,))]
    return Interval(domain.natural(min(ends)), domain.natural(max(ends)), missing)


def _node(domain: Domain, hierarchy: Hierarchy, present: Codes, missing: bool) -> frozenset[Any]:
    if not len(present):
        return frozenset({None})
    if missing:  # a missing value is beside the root; together they are everything
        return frozenset([*domain.originals, None])
    node = hierarchy.cover([hierarchy.leaves[int(code)] for code in present])
    return frozenset(domain.originals[hierarchy.low[node] : hierarchy.high[node] + 1])


def _axis(domain: Domain) -> Axis:
    attribute = domain.attribute
    if domain.is_interval:
        return Axis.interval(domain.scaled, attribute.weight, missing=domain.has_missing)
    if attribute.hierarchy is None:
        return Axis.nominal(domain.size, attribute.weight)
    tree = attribute.hierarchy
    low, high, parent = tree.low, tree.high, tree.parent
    if domain.has_missing:  # one more leaf, under a root above the declared one
        last, root = len(tree.leaves), len(low)
        above = np.where(parent < 0, root, parent)
        low = np.append(low, [0, last])
        high = np.append(high, [last, last])
        parent = np.append(above, [-1, root])
    return Axis.tree(low, high, parent, attribute.weight)
