"""Hulls that hold an anchor, in coordinates that make them cheap to extend and to compare.

`localize` lays out the rows of one search: the equivalence classes that may join the region, then
the forbidden combinations, and the anchor last. On each axis a hull is one of three things:

`RANGE`
    An interval of positions. A hierarchy is one, too: every hull that holds the anchor is an
    ancestor of its leaf. The ancestors form a chain ordered by cost, so a value's position is the
    cost of the lowest ancestor that it shares with the anchor.
`GAP`
    A `RANGE` on which "missing" occurs, with the position NaN.
`SET`
    A set of codes; numbered across all axes, so that one array of flags holds all sets.

A search keeps the hulls of its path on a stack, one per depth: `extend` adds a row, `retract` takes
it back. `joined` and `engulfs` answer questions about the hull with one more row.

The functions that begin with ``plain_`` say the same of a list of rows, without a stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.protection.axes import NOMINAL, TREE, AxisArrays, Codes, Floats, Ints, tree_cost
from cfk_plugin.protection.class_index import ClassTree
from cfk_plugin.protection.compiled import inner, jit

RANGE = 0
SET = 1
GAP = 2

WIDE = 16  # values from which a SET axis gets a bound of its own


class LocalProblem(NamedTuple):
    """The rows of one search: classes that may join, forbidden combinations, the anchor.

    Rows ``0`` to ``n_classes - 1`` are classes, the last row is the anchor.
    """

    mode: NDArray[np.int8]  # shape (n_axes,); RANGE, SET or GAP
    axis_cost: Floats  # shape (n_axes,); cost of a whole axis
    value_cost: Floats  # shape (n_axes,); cost of one value of a SET axis
    is_wide: NDArray[np.bool_]  # shape (n_axes,); SET axes of at least WIDE values
    position: Floats  # shape (n_rows, n_axes); on RANGE and GAP axes, NaN for "missing"
    code: Ints  # shape (n_rows, n_axes); on SET axes, unique across axes
    weight: Ints  # shape (n_rows,); people of each class, 0 in the other rows
    forbidden_cost: Floats  # shape (n_forbidden,); of the hull with the anchor alone, ascending
    n_classes: int
    n_codes: int


class Hull(NamedTuple):
    """The hull at each depth of a search; depth 0 holds the anchor alone.

    If ``low > high`` on a GAP axis, the hull holds no number there.
    """

    low: Floats  # shape (n_depths, n_axes); on RANGE and GAP axes
    high: Floats  # shape (n_depths, n_axes)
    size: Ints  # shape (n_depths, n_axes); number of values on SET axes
    gap: NDArray[np.bool_]  # shape (n_depths, n_axes); whether "missing" is inside
    added: Ints  # shape (n_depths, n_axes); the code that a depth added to a SET axis, else -1
    member: NDArray[np.bool_]  # shape (n_codes,); the codes inside at the current depth
    slot: Ints  # shape (n_codes,); room for counting codes, -1 between two uses


def localize(
    tree: ClassTree,
    axes: AxisArrays,
    anchor: Codes,
    positions: Floats,
    classes: Ints,
    forbidden: Codes,
    forbidden_cost: Floats,
) -> LocalProblem:
    """Lay out some classes of the index, the forbidden combinations and, last, the anchor.

    Parameters
    ----------
    anchor, positions : shape (n_axes,); as in `plain_hull_cost`
    classes : shape (n_classes,); in tree order of the index
    forbidden : shape (n_forbidden, n_axes); in the order of their cost
    forbidden_cost : shape (n_forbidden,); cost of the hull of the anchor and each of them
    """
    n_axes = len(anchor)
    n_rows = len(classes) + len(forbidden) + 1
    problem = LocalProblem(
        mode=np.zeros(n_axes, np.int8),
        axis_cost=axes.weight,
        value_cost=np.zeros(n_axes),
        is_wide=np.zeros(n_axes, np.bool_),
        position=np.zeros((n_rows, n_axes)),
        code=np.zeros((n_rows, n_axes), np.int64),
        weight=np.zeros(n_rows, np.int64),
        forbidden_cost=forbidden_cost,
        n_classes=len(classes),
        n_codes=int(axes.offset[n_axes]),
    )
    _write_rows(problem, tree, axes, anchor, positions, classes, forbidden)
    return problem


@jit
def _write_rows(  # noqa: C901 - a kernel
    problem: LocalProblem,
    tree: ClassTree,
    axes: AxisArrays,
    anchor: Codes,
    positions: Floats,
    classes: Ints,
    forbidden: Codes,
) -> None:
    """Write the rows of `localize` into the problem's arrays, in place."""
    n_classes = problem.n_classes
    last = problem.weight.size - 1
    for j in range(anchor.size):
        kind = axes.kind[j]
        base = axes.offset[j]
        missing = axes.missing[j]
        if kind == NOMINAL:
            problem.mode[j] = SET
            problem.value_cost[j] = axes.weight[j] / axes.card[j]
            problem.is_wide[j] = axes.card[j] >= WIDE
        for i in range(last + 1):
            if i < n_classes:
                c = tree.codes[classes[i], j]
            elif i < last:
                c = forbidden[i - n_classes, j]
            else:
                c = anchor[j]
            if kind == NOMINAL:
                problem.code[i, j] = base + c
            elif kind == TREE:
                problem.position[i, j] = tree_cost(axes, j, anchor[j], c)
            elif missing >= 0 and c == missing:
                problem.mode[j] = GAP
                problem.position[i, j] = np.nan
            elif c >= 0:
                problem.position[i, j] = axes.position[base + c]
            else:
                problem.position[i, j] = positions[j]
    for i in range(n_classes):
        problem.weight[i] = tree.weight[classes[i]]


def first_hull(problem: LocalProblem, n_depths: int) -> Hull:
    """Return room for hulls at some depths; depth 0 holds the anchor alone."""
    n_axes = len(problem.mode)
    anchor = problem.position[-1]
    is_set = problem.mode == SET
    is_missing = ~is_set & np.isnan(anchor)
    hull = Hull(
        low=np.zeros((n_depths, n_axes)),
        high=np.zeros((n_depths, n_axes)),
        size=np.ones((n_depths, n_axes), np.int64),
        gap=np.zeros((n_depths, n_axes), np.bool_),
        added=np.full((n_depths, n_axes), -1, np.int64),
        member=np.zeros(problem.n_codes, np.bool_),
        slot=np.full(problem.n_codes, -1),
    )
    hull.member[problem.code[-1, is_set]] = True
    hull.gap[0] = is_missing
    hull.low[0] = np.where(is_set, 0.0, np.where(is_missing, np.inf, anchor))
    hull.high[0] = np.where(is_set, 0.0, np.where(is_missing, -np.inf, anchor))
    return hull


# Questions about a hull and one more row.


@inner
def joined(  # noqa: C901 - a kernel
    problem: LocalProblem, hull: Hull, depth: int, i: int, limit: float
) -> tuple[float, bool]:
    """Return the cost of a hull once row ``i`` joins, and whether the row is inside already.

    If the cost is `limit` or more, return any number of at least `limit` and False. Otherwise, the
    results equal those of `plain_cost` and `plain_contains`.

    The sum runs over the axes in the same order everywhere, so equal hulls have equal floats, and a
    larger hull never costs less: comparisons need no tolerance.
    """
    cost = 0.0
    is_inside = True
    for j in range(problem.mode.size):
        mode = problem.mode[j]
        if mode == SET:
            size = hull.size[depth, j]
            if not hull.member[problem.code[i, j]]:
                size += 1
                is_inside = False
            if size > 1:
                cost += problem.value_cost[j] * size
        else:
            position = problem.position[i, j]
            low = hull.low[depth, j]
            high = hull.high[depth, j]
            gap = hull.gap[depth, j]
            if mode == GAP and np.isnan(position):
                is_inside = is_inside and gap
                gap = True
            if position < low:
                low = position
                is_inside = False
            if position > high:
                high = position
                is_inside = False
            if low <= high:
                if gap:
                    cost += problem.axis_cost[j]
                else:
                    cost += min(high - low, problem.axis_cost[j])
        if cost >= limit:
            return cost, False
    return cost, is_inside


def plain_cost(problem: LocalProblem, rows: Sequence[int]) -> float:
    """Return the cost of the hull of the anchor and some rows."""
    members = [*rows, -1]
    cost = 0.0
    for j, mode in enumerate(problem.mode):
        positions = problem.position[members, j]
        numbers = positions[~np.isnan(positions)]
        if mode == SET:
            n_values = np.unique(problem.code[members, j]).size
            cost += problem.value_cost[j] * n_values if n_values > 1 else 0.0
        elif numbers.size == positions.size:
            cost += min(np.ptp(numbers), problem.axis_cost[j])
        elif numbers.size > 0:
            cost += problem.axis_cost[j]
    return float(cost)


@inner
def engulfs(problem: LocalProblem, hull: Hull, depth: int, i: int, b: int) -> bool:
    """Return True if a hull, once row ``i`` joins, contains row ``b``; equals `plain_contains`."""
    for j in range(problem.mode.size):
        mode = problem.mode[j]
        if mode == SET:
            code = problem.code[b, j]
            if code != problem.code[i, j] and not hull.member[code]:
                return False
            continue
        target = problem.position[b, j]
        position = problem.position[i, j]
        if mode == GAP and np.isnan(target):
            if not (np.isnan(position) or hull.gap[depth, j]):
                return False
        # A comparison with NaN is False: a row with "missing" adds no number.
        elif target < hull.low[depth, j] and not position <= target:
            return False
        elif target > hull.high[depth, j] and not position >= target:
            return False
    return True


def plain_contains(problem: LocalProblem, rows: Sequence[int], b: int) -> bool:
    """Return True if the hull of the anchor and some rows contains row ``b``."""
    members = [*rows, -1]
    for j, mode in enumerate(problem.mode):
        positions = problem.position[members, j]
        target = problem.position[b, j]
        if mode == SET:
            is_inside = problem.code[b, j] in problem.code[members, j]
        elif np.isnan(target):
            is_inside = bool(np.isnan(positions).any())
        else:
            is_inside = bool(np.any(positions <= target) and np.any(positions >= target))
        if not is_inside:
            return False
    return True


# Changes of the stack.


@inner
def extend(problem: LocalProblem, hull: Hull, depth: int, i: int) -> None:
    """Make the next depth the hull of the current one and row ``i``."""
    child = depth + 1
    for j in range(problem.mode.size):
        low = hull.low[depth, j]
        high = hull.high[depth, j]
        size = hull.size[depth, j]
        gap = hull.gap[depth, j]
        hull.added[child, j] = -1
        if problem.mode[j] == SET:
            c = problem.code[i, j]
            if not hull.member[c]:
                hull.member[c] = True
                hull.added[child, j] = c
                size += 1
        elif np.isnan(problem.position[i, j]):
            gap = True
        else:
            low = min(low, problem.position[i, j])
            high = max(high, problem.position[i, j])
        hull.low[child, j] = low
        hull.high[child, j] = high
        hull.size[child, j] = size
        hull.gap[child, j] = gap


@inner
def retract(problem: LocalProblem, hull: Hull, depth: int) -> None:
    """Leave a depth: take back the values that it added to SET axes."""
    for j in range(problem.mode.size):
        if hull.added[depth, j] >= 0:
            hull.member[hull.added[depth, j]] = False


@jit
def headcount(problem: LocalProblem, hull: Hull, n_spanning: int) -> int:
    """Return the people of classes in the hull of the anchor and the first `n_spanning` rows.

    The spanning rows themselves are not counted. Equals `plain_headcount`.
    """
    for depth in range(n_spanning):
        extend(problem, hull, depth, depth)
    people = 0
    for i in range(n_spanning, problem.n_classes):
        if joined(problem, hull, n_spanning, i, np.inf)[1]:
            people += problem.weight[i]
    return people


def plain_headcount(problem: LocalProblem, n_spanning: int) -> int:
    """Return what `headcount` computes."""
    spanning = range(n_spanning)
    other_rows = range(n_spanning, problem.n_classes)
    return sum(int(problem.weight[i]) for i in other_rows if plain_contains(problem, spanning, i))
