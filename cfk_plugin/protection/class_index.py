"""A spatial index over the equivalence classes of a population.

It answers which classes are cheap to reach from an anchor: `nearest` finds the cheapest classes
with enough people, `ball` all classes below a cost. Both are exact: they return what
`plain_nearest` and `plain_ball` find by looking at every class.

The index is a k-d tree.

1. *Build* (`grow`). A node holds a range of classes and the box around them. A node of more than
   `_LEAF_CLASSES` classes is divided at a sampled median of the axis on which its box costs most.
2. *Bound* (`reach`). On each axis, the hull of the anchor and a class costs at least as much as the
   hull of the anchor and the nearest code of a box around the class. The bound is the sum over the
   axes.
3. *Search*. Boxes are visited with the nearer child first. A box is skipped if its bound reaches
   the limit: the given one for `ball`; for `nearest`, the dearest class that is still needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from cfk_plugin.data.population import Population
from cfk_plugin.protection.axes import (
    INTERVAL,
    NOMINAL,
    Axis,
    AxisArrays,
    Codes,
    Floats,
    Ints,
    box_distance,
    plain_box_distance,
    plain_hull_cost,
    plain_part_cost,
    tree_cost,
)
from cfk_plugin.protection.compiled import inner, jit

_LEAF_CLASSES = 24  # most classes of a node that is not divided
_SAMPLE = 127  # about so many classes of a node are drawn for its median


class ClassTree(NamedTuple):
    """A k-d tree over equivalence classes, for kernels.

    Node ``t`` holds the classes ``start[t]:stop[t]``. Its children are ``child[t]`` and
    ``child[t] + 1``; ``child[t]`` is -1 at a leaf. Node 0 is the root.
    """

    codes: Codes  # shape (n_classes, n_axes); in tree order
    weight: Ints  # shape (n_classes,); people of each class
    start: Ints  # shape (n_nodes,)
    stop: Ints  # shape (n_nodes,)
    child: Ints  # shape (n_nodes,)
    low: Codes  # shape (n_nodes, n_axes); least code of each axis in the node
    high: Codes  # shape (n_nodes, n_axes); largest code


class ClassIndex(NamedTuple):
    """Equivalence classes, rearranged so that classes close in cost lie close in memory."""

    axes: AxisArrays
    tree: ClassTree
    original: Ints  # shape (n_classes,); the caller's number of each class in tree order

    @classmethod
    def build(cls, codes: Codes, weight: Ints, axes: AxisArrays) -> ClassIndex:
        """Return the index over the classes with some codes, of shape (n_classes, n_axes)."""
        classes = np.ascontiguousarray(codes, np.int32).view()
        # Always read-only: kernels are compiled apart for read-only and for writable arrays.
        classes.flags.writeable = False
        n_classes, n_axes = classes.shape
        order = np.arange(n_classes, dtype=np.int64)
        most_nodes = max(2 * n_classes, 1)
        start = np.zeros(most_nodes, np.int64)
        stop = np.zeros(most_nodes, np.int64)
        child = np.zeros(most_nodes, np.int64)
        low = np.zeros((most_nodes, n_axes), np.int32)
        high = np.zeros((most_nodes, n_axes), np.int32)
        n_nodes = grow(classes, order, axes, _LEAF_CLASSES, start, stop, child, low, high)
        tree = ClassTree(
            codes=classes[order],
            weight=weight[order],
            start=start[:n_nodes].copy(),
            stop=stop[:n_nodes].copy(),
            child=child[:n_nodes].copy(),
            low=low[:n_nodes].copy(),
            high=high[:n_nodes].copy(),
        )
        return cls(axes=axes, tree=tree, original=order)


_INDEXES: WeakKeyDictionary[Population, ClassIndex] = WeakKeyDictionary()


def index_of(population: Population) -> ClassIndex:
    """Return the spatial index over the population's equivalence classes; built once."""
    if population not in _INDEXES:
        names = population.schema.quasi_identifiers
        axes = AxisArrays.of([Axis.of_domain(population.domains[name]) for name in names])
        _INDEXES[population] = ClassIndex.build(population.cells, population.cell_people, axes)
    return _INDEXES[population]


# 1. Build.


@jit
def grow(
    classes: Codes,
    order: Ints,
    axes: AxisArrays,
    leaf: int,
    start: Ints,
    stop: Ints,
    child: Ints,
    low: Codes,
    high: Codes,
) -> int:
    """Fill the arrays of a `ClassTree` and return the number of its nodes.

    A node is divided unless it has at most `leaf` classes or classes that are all equal. Each level
    of the tree costs one pass over all classes.

    Parameters
    ----------
    classes : shape (n_classes, n_axes)
    order : shape (n_classes,), ``0, 1, 2, ...``; rearranged in place into tree order
    start, stop, child, low, high : written in place, with room for twice as many nodes as classes
    """
    n_classes, n_axes = classes.shape
    stop[0] = n_classes
    n_nodes = 1
    t = 0
    while t < n_nodes:
        first = start[t]
        end = stop[t]
        for s in range(first, end):
            row = order[s]
            for j in range(n_axes):
                code = classes[row, j]
                if s == first or code < low[t, j]:
                    low[t, j] = code
                if s == first or code > high[t, j]:
                    high[t, j] = code
        axis = -1
        if end - first > leaf:
            axis = widest_axis(axes, low[t], high[t])
        child[t] = -1
        if axis >= 0:
            middle = divide(classes, order, first, end, axis, high[t, axis])
            child[t] = n_nodes
            start[n_nodes] = first
            stop[n_nodes] = middle
            start[n_nodes + 1] = middle
            stop[n_nodes + 1] = end
            n_nodes += 2
        t += 1
    return n_nodes


@inner
def widest_axis(axes: AxisArrays, low: Codes, high: Codes) -> int:
    """Return the axis on which a box costs most, -1 for a box of one point.

    Equals `plain_widest_axis`; a NOMINAL axis counts as two values, however many lie between.
    """
    largest = -1.0
    axis = -1
    for j in range(low.size):
        if low[j] == high[j]:
            continue
        if axes.kind[j] == NOMINAL:
            cost = axes.weight[j] * 2.0 / axes.card[j]
        elif axes.kind[j] == INTERVAL:
            base = axes.offset[j]
            cost = axes.weight[j]
            if axes.missing[j] < 0 or high[j] != axes.missing[j]:
                cost = min(cost, axes.position[base + high[j]] - axes.position[base + low[j]])
        else:
            cost = tree_cost(axes, j, low[j], high[j])
        if cost > largest:
            largest = cost
            axis = j
    return axis


def plain_widest_axis(axes: AxisArrays, low: Codes, high: Codes) -> int:
    """Return what `widest_axis` computes: the first axis on which both corners cost most."""
    costs = [
        plain_part_cost(axes, j, [low[j], high[j]], 0.0) if low[j] != high[j] else -1.0
        for j in range(low.size)
    ]
    return int(np.argmax(costs)) if max(costs) >= 0 else -1


@inner
def divide(classes: Codes, order: Ints, start: int, stop: int, j: int, top: int) -> int:
    """Divide a node near its median on axis ``j``; return where its upper half begins.

    Rearranges ``order[start:stop]`` in place: first the classes up to a pivot, then the others.
    Both are non-empty, because the pivot is below `top`, the node's largest code on the axis.
    """
    step = max(1, (stop - start) // _SAMPLE)
    sample = np.empty((stop - start + step - 1) // step, np.int32)
    for s in range(sample.size):
        sample[s] = classes[order[start + s * step], j]
    pivot = min(upper_median(sample), top - 1)
    left = start
    right = stop - 1
    while True:
        while classes[order[left], j] <= pivot:
            left += 1
        while classes[order[right], j] > pivot:
            right -= 1
        if left >= right:
            return left
        order[left], order[right] = order[right], order[left]


@inner
def upper_median(sample: Codes) -> int:
    """Return the upper median by Hoare's selection; the sample is reordered in place.

    Equals `plain_upper_median`.
    """
    first = 0
    last = sample.size - 1
    middle = sample.size // 2
    while first < last:
        pivot = sample[middle]
        left = first
        right = last
        while left <= right:
            while sample[left] < pivot:
                left += 1
            while sample[right] > pivot:
                right -= 1
            if left <= right:
                sample[left], sample[right] = sample[right], sample[left]
                left += 1
                right -= 1
        if right < middle:
            first = left
        if left > middle:
            last = right
    return int(sample[middle])


def plain_upper_median(sample: Codes) -> int:
    """Return what `upper_median` computes."""
    return int(np.sort(sample)[sample.size // 2])


# 2. Bound.


@inner
def reach(
    axes: AxisArrays,
    anchor: Codes,
    positions: Floats,
    low: Codes,
    high: Codes,
    t: int,
    limit: float,
) -> float:
    """Return the least cost of the hull of the anchor and a point of box ``t``.

    If this is `limit` or more, return any number of at least `limit`. Equals `plain_reach` up to
    that. With ``low`` and ``high`` the same, the box is a class and the bound its exact cost.

    Parameters
    ----------
    anchor, positions : shape (n_axes,); as in `plain_hull_cost`
    low, high : shape (n_boxes, n_axes); corners of boxes
    """
    cost = 0.0
    for j in range(anchor.size):
        cost += box_distance(axes, j, anchor[j], positions[j], low[t, j], high[t, j])
        if cost >= limit:
            return cost
    return cost


def plain_reach(
    axes: AxisArrays, anchor: Codes, positions: Floats, low: Codes, high: Codes, t: int
) -> float:
    """Return what `reach` computes without a limit."""
    return sum(
        plain_box_distance(axes, j, anchor[j], float(positions[j]), low[t, j], high[t, j])
        for j in range(anchor.size)
    )


def within(
    axes: AxisArrays, anchor: Codes, positions: Floats, codes: Codes, limit: float
) -> tuple[Codes, Floats]:
    """Return the points whose hull with the anchor costs less than `limit`, by cost; and the costs.

    `codes` has shape (n_points, n_axes); the results have the shapes (n, n_axes) and (n,).
    """
    costs = np.empty(len(codes))
    _write_costs(axes, anchor, positions, codes, limit, costs)
    order = np.argsort(costs, kind="stable")
    order = order[: np.searchsorted(costs[order], limit)]
    return codes[order], costs[order]


@jit
def _write_costs(
    axes: AxisArrays, anchor: Codes, positions: Floats, codes: Codes, limit: float, costs: Floats
) -> None:
    """Write into `costs` what the hull of the anchor and each point costs, as `reach` does."""
    for i in range(costs.size):
        costs[i] = reach(axes, anchor, positions, codes, codes, i, limit)


# 3. Search.


@inner
def longer(array: Any) -> Any:
    """Return a copy of an array of shape (n,) with shape (2 * n,); the second half is not set."""
    doubled = np.empty(2 * array.size, array.dtype)
    for i in range(array.size):
        doubled[i] = array[i]
    return doubled


@inner
def _sift_down(heap_cost: Floats, heap_class: Ints, size: int) -> None:
    """Restore a heap with the largest cost at its root, after the root was replaced."""
    parent = 0
    while True:
        larger = 2 * parent + 1
        if larger >= size:
            return
        if larger + 1 < size and heap_cost[larger + 1] > heap_cost[larger]:
            larger += 1
        if heap_cost[larger] <= heap_cost[parent]:
            return
        heap_cost[parent], heap_cost[larger] = heap_cost[larger], heap_cost[parent]
        heap_class[parent], heap_class[larger] = heap_class[larger], heap_class[parent]
        parent = larger


@jit
def nearest(  # noqa: C901 - a kernel
    tree: ClassTree, axes: AxisArrays, anchor: Codes, positions: Floats, people: int
) -> tuple[Ints, float]:
    """Return cheapest classes that together have `people` people, and the largest of their costs.

    No class could be left out: without a dearest one, they have fewer people. The classes are
    numbered in tree order, in no particular order. Their costs are those of `plain_nearest`; where
    classes cost the same, others may be chosen.

    Parameters
    ----------
    anchor, positions : shape (n_axes,); as in `plain_hull_cost`
    people : at least 1; if the population has fewer people, all classes are returned
    """
    # A heap of the nearest classes so far, the dearest at its root.
    heap_cost = np.empty(64)
    heap_class = np.empty(64, np.int64)
    size = 0
    n_people = 0
    # A stack of the nodes to visit, each with its bound.
    todo = np.empty(128, np.int64)
    todo_cost = np.empty(128)
    todo[0] = 0
    todo_cost[0] = 0.0
    top = 1
    radius = np.inf  # classes of this cost or more are not needed
    while top > 0:
        top -= 1
        t = todo[top]
        if todo_cost[top] >= radius:
            continue
        if tree.child[t] >= 0:
            near_child = tree.child[t]
            far_child = near_child + 1
            near_cost = reach(axes, anchor, positions, tree.low, tree.high, near_child, radius)
            far_cost = reach(axes, anchor, positions, tree.low, tree.high, far_child, radius)
            if far_cost < near_cost:
                near_child, far_child = far_child, near_child
                near_cost, far_cost = far_cost, near_cost
            if top + 2 > todo.size:
                todo = longer(todo)
                todo_cost = longer(todo_cost)
            todo[top] = far_child
            todo_cost[top] = far_cost
            todo[top + 1] = near_child
            todo_cost[top + 1] = near_cost
            top += 2
            continue
        for i in range(tree.start[t], tree.stop[t]):
            cost = reach(axes, anchor, positions, tree.codes, tree.codes, i, radius)
            if cost >= radius or tree.weight[i] == 0:
                continue
            if size == heap_cost.size:
                heap_cost = longer(heap_cost)
                heap_class = longer(heap_class)
            slot = size
            size += 1
            n_people += tree.weight[i]
            while slot > 0 and heap_cost[(slot - 1) // 2] < cost:
                heap_cost[slot] = heap_cost[(slot - 1) // 2]
                heap_class[slot] = heap_class[(slot - 1) // 2]
                slot = (slot - 1) // 2
            heap_cost[slot] = cost
            heap_class[slot] = i
            while n_people - tree.weight[heap_class[0]] >= people:
                n_people -= tree.weight[heap_class[0]]
                size -= 1
                heap_cost[0] = heap_cost[size]
                heap_class[0] = heap_class[size]
                _sift_down(heap_cost, heap_class, size)
            if n_people >= people:
                radius = heap_cost[0]
    largest_cost = 0.0
    if size > 0:
        largest_cost = heap_cost[0]
    return heap_class[:size].copy(), largest_cost


def plain_nearest(
    tree: ClassTree, axes: AxisArrays, anchor: Codes, positions: Floats, people: int
) -> tuple[Ints, float]:
    """Return what `nearest` computes, from the costs of all classes with people."""
    costs = _plain_costs(tree, axes, anchor, positions)
    order = np.argsort(costs, kind="stable")
    order = order[tree.weight[order] > 0]
    n_needed = int(np.searchsorted(np.cumsum(tree.weight[order]), people)) + 1
    classes = order[:n_needed]
    return classes, float(costs[classes].max(initial=0.0))


@jit
def ball(tree: ClassTree, axes: AxisArrays, anchor: Codes, positions: Floats, limit: float) -> Ints:
    """Return all classes with people whose hull with the anchor costs less than `limit`.

    They are numbered and sorted in tree order. Equals `plain_ball`.
    """
    classes = np.empty(256, np.int64)
    size = 0
    todo = np.empty(128, np.int64)
    todo[0] = 0
    top = 1
    while top > 0:
        top -= 1
        t = todo[top]
        if reach(axes, anchor, positions, tree.low, tree.high, t, limit) >= limit:
            continue
        if tree.child[t] >= 0:
            if top + 2 > todo.size:
                todo = longer(todo)
            todo[top] = tree.child[t] + 1
            todo[top + 1] = tree.child[t]
            top += 2
            continue
        for i in range(tree.start[t], tree.stop[t]):
            cost = reach(axes, anchor, positions, tree.codes, tree.codes, i, limit)
            if cost < limit and tree.weight[i] > 0:
                if size == classes.size:
                    classes = longer(classes)
                classes[size] = i
                size += 1
    return classes[:size].copy()


def plain_ball(
    tree: ClassTree, axes: AxisArrays, anchor: Codes, positions: Floats, limit: float
) -> Ints:
    """Return what `ball` computes, from the costs of all classes."""
    costs = _plain_costs(tree, axes, anchor, positions)
    return np.flatnonzero((costs < limit) & (tree.weight > 0))


def _plain_costs(tree: ClassTree, axes: AxisArrays, anchor: Codes, positions: Floats) -> Floats:
    """Return the cost of the hull of the anchor and each class, shape (n_classes,)."""
    return np.array([plain_hull_cost(axes, row[None], anchor, positions) for row in tree.codes])
