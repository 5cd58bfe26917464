"""The hull of a growing group of cells; unlike the solver's, it has no anchor and knows hierarchies."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cfk_plugin.protection._axes import INTERVAL, NOMINAL, AxisArrays, Codes, Floats, Ints, jit

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Hull(NamedTuple):
    """One hull. ``size`` counts the values of a NOMINAL axis and holds the covering node of a TREE.

    ``mark`` names the values of NOMINAL axes inside: those that bear the current ``token``, so that a new hull
    needs no clearing. ``low > high`` on an INTERVAL: no number yet; ``gap``: "missing" is inside.
    """

    low: Floats
    high: Floats
    gap: NDArray[np.bool_]
    size: Ints
    mark: Ints
    token: Ints


@jit
def room_for_hull(axes: AxisArrays) -> Hull:
    """Return an empty hull."""
    q = axes.kind.size
    mark = np.zeros(axes.offset[q], np.int64)
    return Hull(np.zeros(q), np.zeros(q), np.zeros(q, np.bool_), np.zeros(q, np.int64), mark, np.zeros(1, np.int64))


@jit
def coordinates(axes: AxisArrays, cells: Codes) -> Floats:
    """Positions on INTERVAL axes (NaN: missing), numbers of codes on the others, all as floats."""
    m, q = cells.shape
    x = np.empty((m, q))
    for j in range(q):
        base = axes.offset[j]
        for i in range(m):
            code = cells[i, j]
            if axes.kind[j] == NOMINAL:
                x[i, j] = base + code
            elif axes.kind[j] != INTERVAL:
                x[i, j] = code
            else:
                x[i, j] = np.nan if code == axes.missing[j] else axes.position[base + code]
    return x


@jit
def begin(axes: AxisArrays, hull: Hull, x: Floats, i: int) -> None:
    """Make it the hull of row ``i`` alone, which costs nothing."""
    hull.token[0] += 1
    for j in range(axes.kind.size):
        v = x[i, j]
        hull.gap[j] = False
        hull.low[j], hull.high[j] = v, v
        if axes.kind[j] == NOMINAL:
            hull.size[j] = 1
            hull.mark[int(v)] = hull.token[0]
        elif axes.kind[j] != INTERVAL:
            hull.size[j] = axes.node_offset[j] + axes.leaf_node[axes.offset[j] + int(v)]
        elif np.isnan(v):
            hull.low[j], hull.high[j], hull.gap[j] = np.inf, -np.inf, True


@jit
def joined(axes: AxisArrays, hull: Hull, x: Floats, i: int, limit: float) -> float:
    """Cost of the hull once row ``i`` joins, or any number >= limit."""
    cost = 0.0
    for j in range(axes.kind.size):
        v, kind = x[i, j], axes.kind[j]
        if kind == NOMINAL:
            size = hull.size[j]
            if hull.mark[int(v)] != hull.token[0]:
                size += 1
            if size > 1:
                cost += axes.weight[j] * size / axes.card[j]
        elif kind == INTERVAL:
            low, high, gap = hull.low[j], hull.high[j], hull.gap[j]
            if np.isnan(v):
                gap = True
            else:
                low, high = min(low, v), max(high, v)
            if low <= high:
                cost += axes.weight[j] if gap else min(axes.weight[j], high - low)
        elif v != hull.low[j] or v != hull.high[j]:
            node = _cover(axes, j, hull.size[j], int(v))
            cost += axes.weight[j] * (axes.node_high[node] - axes.node_low[node] + 1) / axes.card[j]
        if cost >= limit:
            return cost
    return cost


@jit
def prices(axes: AxisArrays, hull: Hull, x: Floats, rows: int, cost: Floats) -> None:
    """Write the cost of the hull once row ``i`` joins for each of the first rows: `joined`, an axis at a time."""
    cost[:rows] = 0.0
    for j in range(axes.kind.size):
        kind, weight, card, size = axes.kind[j], axes.weight[j], axes.card[j], hull.size[j]
        low, high, gap, token = hull.low[j], hull.high[j], hull.gap[j], hull.token[0]
        for i in range(rows):
            v = x[i, j]
            if kind == NOMINAL:
                values = size if hull.mark[int(v)] == token else size + 1
                if values > 1:
                    cost[i] += weight * values / card
            elif kind == INTERVAL:
                if np.isnan(v):
                    if low <= high:
                        cost[i] += weight
                elif gap:
                    cost[i] += weight
                else:
                    cost[i] += min(weight, max(high, v) - min(low, v))
            elif v != low or v != high:
                node = _cover(axes, j, size, int(v))
                cost[i] += weight * (axes.node_high[node] - axes.node_low[node] + 1) / card


@jit
def extend(axes: AxisArrays, hull: Hull, x: Floats, i: int) -> None:
    """Let row ``i`` join."""
    for j in range(axes.kind.size):
        v = x[i, j]
        if axes.kind[j] == NOMINAL:
            if hull.mark[int(v)] != hull.token[0]:
                hull.mark[int(v)] = hull.token[0]
                hull.size[j] += 1
            continue
        if axes.kind[j] != INTERVAL:
            hull.size[j] = _cover(axes, j, hull.size[j], int(v))
        elif np.isnan(v):
            hull.gap[j] = True
            continue
        hull.low[j], hull.high[j] = min(hull.low[j], v), max(hull.high[j], v)


@jit
def _cover(axes: AxisArrays, j: int, node: int, leaf: int) -> int:
    """Lowest node above (or at) a node that covers a leaf."""
    while leaf < axes.node_low[node] or leaf > axes.node_high[node]:
        node = axes.node_offset[j] + axes.node_parent[node]
    return int(node)
