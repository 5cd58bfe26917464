"""The search problem around one anchor, and the tests a search makes on hulls.

Every cell near the anchor becomes one row. A hierarchy turns into an interval, because every hull that holds the
anchor is an ancestor of its leaf, and the ancestors form a chain ordered by cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cfk_plugin.protection.axes import NOMINAL, TREE, AxisArrays, Codes, Floats, Ints, tree_cost
from cfk_plugin.protection.compiled import inner, jit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.protection.axes import CellTree


WIDE = 16
RANGE, SET, GAP = 0, 1, 2  # how an axis behaves here; GAP is a RANGE where "missing" (NaN) occurs


class Local(NamedTuple):
    """Rows of one search: first the cells that may join, then the forbidden ones.

    ``place`` is the coordinate on RANGE and GAP axes, ``code`` the global code on SET axes; ``unit`` is the
    cost of one value of a SET axis and ``most`` the cost of a whole axis. ``near`` is the cost of the hull of the
    anchor and each forbidden cell, ascending. Row -1 is the anchor.
    """

    mode: NDArray[np.int8]
    most: Floats
    unit: Floats
    wide: NDArray[np.bool_]
    place: Floats
    code: Ints
    weight: Ints
    near: Floats
    cells: int
    codes: int


class Hull(NamedTuple):
    """The hull at each depth of a search; ``member`` marks the values of SET axes at the current depth.

    ``low > high`` on a GAP axis: the hull holds no number there.
    """

    low: Floats
    high: Floats
    size: Ints
    gap: NDArray[np.bool_]
    added: Ints
    member: NDArray[np.bool_]
    slot: Ints


def localise(
    tree: CellTree, axes: AxisArrays, anchor: Codes, place: Floats, rows: Ints, banned: Codes, near: Floats
) -> Local:
    """Lay out the cells ``rows`` of the index, the forbidden cells and, last, the anchor."""
    q, n = len(anchor), len(rows)
    total = n + len(banned) + 1
    mode, unit, wide = np.zeros(q, np.int8), np.zeros(q), np.zeros(q, np.bool_)
    x, code, weight = np.zeros((total, q)), np.zeros((total, q), np.int64), np.zeros(total, np.int64)
    p = Local(mode, axes.weight, unit, wide, x, code, weight, near, n, int(axes.offset[q]))
    _lay_out(p, tree, axes, anchor, place, rows, banned)
    return p


@jit
def _lay_out(
    p: Local, tree: CellTree, axes: AxisArrays, anchor: Codes, place: Floats, rows: Ints, banned: Codes
) -> None:
    mode, unit, wide, x, code, n, total = p.mode, p.unit, p.wide, p.place, p.code, p.cells, p.weight.size
    for j in range(anchor.size):
        kind, base, missing = axes.kind[j], axes.offset[j], axes.missing[j]
        if kind == NOMINAL:
            mode[j], unit[j] = SET, axes.weight[j] / axes.card[j]
            wide[j] = axes.card[j] >= WIDE
        for i in range(total):
            c = tree.codes[rows[i], j] if i < n else (banned[i - n, j] if i < total - 1 else anchor[j])
            if kind == NOMINAL:
                code[i, j] = base + c
            elif kind == TREE:
                x[i, j] = tree_cost(axes, j, anchor[j], c)
            elif missing >= 0 and c == missing:
                mode[j], x[i, j] = GAP, np.nan
            else:
                x[i, j] = axes.position[base + c] if c >= 0 else place[j]
    for i in range(n):
        p.weight[i] = tree.weight[rows[i]]


def first_hull(p: Local, depth: int) -> Hull:
    """Room for hulls down to ``depth``; depth 0 holds the anchor alone."""
    q, v, is_set = len(p.mode), p.place[-1], p.mode == SET
    low, high, gap = np.zeros((depth, q)), np.zeros((depth, q)), np.zeros((depth, q), np.bool_)
    added, member = np.full((depth, q), -1, np.int64), np.zeros(p.codes, np.bool_)
    member[p.code[-1, is_set]] = True
    gap[0] = ~is_set & np.isnan(v)
    low[0] = np.where(is_set, 0.0, np.where(gap[0], np.inf, v))
    high[0] = np.where(is_set, 0.0, np.where(gap[0], -np.inf, v))
    return Hull(low, high, np.ones((depth, q), np.int64), gap, added, member, np.full(p.codes, -1))


@inner
def joined(p: Local, hull: Hull, d: int, i: int, limit: float) -> tuple[float, bool]:
    """Cost of the hull at depth ``d`` once row ``i`` joins (or a number >= limit), and whether it is inside.

    The sum runs over the axes in the same order everywhere, so equal hulls have equal floats and a larger
    hull never costs less: comparisons need no tolerance.
    """
    cost, inside = 0.0, True
    for j in range(p.mode.size):
        mode = p.mode[j]
        if mode == SET:
            size = hull.size[d, j]
            if not hull.member[p.code[i, j]]:
                size += 1
                inside = False
            if size > 1:
                cost += p.unit[j] * size
        else:
            v, low, high = p.place[i, j], hull.low[d, j], hull.high[d, j]
            gap = hull.gap[d, j]
            if mode == GAP and np.isnan(v):
                inside = inside and gap
                gap = True
            if v < low:
                low = v
                inside = False
            if v > high:
                high = v
                inside = False
            if low <= high:
                cost += p.most[j] if gap else min(high - low, p.most[j])
        if cost >= limit:
            return cost, False
    return cost, inside


@inner
def engulfs(p: Local, hull: Hull, d: int, i: int, b: int) -> bool:
    """Whether the hull at depth ``d``, once row ``i`` joins, contains row ``b``."""
    for j in range(p.mode.size):
        mode = p.mode[j]
        if mode == SET:
            if p.code[b, j] != p.code[i, j] and not hull.member[p.code[b, j]]:
                return False
            continue
        v, w = p.place[b, j], p.place[i, j]
        if mode == GAP and np.isnan(v):
            if not (np.isnan(w) or hull.gap[d, j]):
                return False
        elif (v < hull.low[d, j] and not w <= v) or (v > hull.high[d, j] and not w >= v):
            return False
    return True


@inner
def extend(p: Local, hull: Hull, d: int, i: int) -> None:
    """Make depth ``d + 1`` the hull of depth ``d`` and row ``i``."""
    e = d + 1
    for j in range(p.mode.size):
        low, high, size, gap = hull.low[d, j], hull.high[d, j], hull.size[d, j], hull.gap[d, j]
        hull.added[e, j] = -1
        if p.mode[j] == SET:
            c = p.code[i, j]
            if not hull.member[c]:
                hull.member[c] = True
                hull.added[e, j] = c
                size += 1
        elif np.isnan(p.place[i, j]):
            gap = True
        else:
            low, high = min(low, p.place[i, j]), max(high, p.place[i, j])
        hull.low[e, j], hull.high[e, j], hull.size[e, j], hull.gap[e, j] = low, high, size, gap


@inner
def retract(p: Local, hull: Hull, d: int) -> None:
    """Leave depth ``d``: take back the values that it added to SET axes."""
    for j in range(p.mode.size):
        if hull.added[d, j] >= 0:
            hull.member[hull.added[d, j]] = False


def headcount(tree: CellTree, axes: AxisArrays, anchor: Codes, place: Floats, span: Ints, rows: Ints) -> int:
    """Weight of the cells ``rows`` that lie in the hull of the anchor and the cells ``span``."""
    nobody = np.empty((0, len(anchor)), np.int32)
    p = localise(tree, axes, anchor, place, np.append(span, rows), nobody, np.empty(0))
    return _held(p, first_hull(p, len(span) + 1), len(span))


@jit
def _held(p: Local, hull: Hull, span: int) -> int:
    """Weight of the rows after the first ``span`` that lie in the hull of these."""
    for d in range(span):
        extend(p, hull, d, d)
    held = 0
    for i in range(span, p.cells):
        if joined(p, hull, span, i, np.inf)[1]:
            held += p.weight[i]
    return held
