"""Axes: what it costs to generalise each quasi-identifier, laid out in arrays for compiled code.

A quasi-identifier is an *axis*, and its values are codes 0, 1, 2, ... The cost of a region is the
sum over the axes of what the region's part on that axis costs. A part of one value is free.

=========== ============================ ======================================================
kind        part                         cost
=========== ============================ ======================================================
`INTERVAL`  a range of positions         its width, at most the axis's weight; the whole weight
                                         if the part holds numbers and also "missing"
`NOMINAL`   a set of values              weight * (number of values) / card
`TREE`      a node of a hierarchy        weight * (number of leaves below the node) / card
=========== ============================ ======================================================

`plain_part_cost` and `plain_hull_cost` compute this from the definition. The kernels `tree_cost`
and `box_distance` compute it for the cases that a search meets millions of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfk_plugin.data.domain import Domain
from cfk_plugin.protection.compiled import inner

INTERVAL = 0
NOMINAL = 1
TREE = 2

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.int32]

_NO_CODE = -1
_NO_NODE = -1
_NO_NODES = np.empty(0, np.int64)


class Axis(NamedTuple):
    """One quasi-identifier and what it costs to generalise it.

    Make one with `interval`, `nominal`, `tree` or `of_domain`.
    """

    kind: int  # INTERVAL, NOMINAL or TREE
    weight: float  # cost of the whole domain
    card: int  # number of values in the denominator of the cost (NOMINAL, TREE)
    position: Floats  # shape (n_codes,); zeros unless the kind is INTERVAL
    leaf: Ints  # shape (n_codes,); node of each code of a TREE, else -1
    missing: int = _NO_CODE  # code of "missing" on an INTERVAL axis, -1 if there is none
    # Nodes of a TREE, shape (n_nodes,) each.
    low: Ints = _NO_NODES  # first leaf code below the node
    high: Ints = _NO_NODES  # last leaf code below the node
    parent: Ints = _NO_NODES  # -1 at the root

    @classmethod
    def interval(cls, position: ArrayLike, weight: float, *, missing: bool = False) -> Axis:
        """Return an axis of ordered values at positions that are scaled by the weight.

        `missing` appends one code, for "missing".
        """
        positions = np.asarray(position, np.float64)
        missing_code = _NO_CODE
        if missing:
            missing_code = positions.size
            positions = np.append(positions, 0.0)
        return cls(
            kind=INTERVAL,
            weight=weight,
            card=positions.size,
            position=positions,
            leaf=np.full(positions.size, _NO_NODE),
            missing=missing_code,
        )

    @classmethod
    def nominal(cls, values: int, weight: float, *, card: int | None = None) -> Axis:
        """Return an axis of unordered values.

        `card` is given if the domain of the cost is larger than the codes in use.
        """
        if card is None:
            card = values
        return cls(
            kind=NOMINAL,
            weight=weight,
            card=card,
            position=np.zeros(values),
            leaf=np.full(values, _NO_NODE),
        )

    @classmethod
    def tree(cls, low: ArrayLike, high: ArrayLike, parent: ArrayLike, weight: float) -> Axis:
        """Return an axis whose values are the leaves of a hierarchy.

        Leaves are numbered depth first, so that each node is a range of codes. A leaf is a node
        with ``low == high``; of a chain of such nodes, the lowest counts.
        """
        first = np.asarray(low, np.int64)
        last = np.asarray(high, np.int64)
        parents = np.asarray(parent, np.int64)
        leaves = np.setdiff1d(np.flatnonzero(first == last), parents)
        leaf_of_code = leaves[np.argsort(first[leaves])]
        return cls(
            kind=TREE,
            weight=weight,
            card=leaf_of_code.size,
            position=np.zeros(leaf_of_code.size),
            leaf=leaf_of_code,
            low=first,
            high=last,
            parent=parents,
        )

    @classmethod
    def of_domain(cls, domain: Domain) -> Axis:
        """Return the axis of a quasi-identifier of a population."""
        attribute = domain.attribute
        if domain.is_interval:
            return cls.interval(domain.scaled, attribute.weight, missing=domain.has_missing)
        hierarchy = attribute.hierarchy
        if hierarchy is None:
            return cls.nominal(domain.size, attribute.weight)
        if not domain.has_missing:
            return cls.tree(hierarchy.low, hierarchy.high, hierarchy.parent, attribute.weight)
        # "missing" is one more leaf, beside the declared root and below a new one.
        missing_leaf = len(hierarchy.leaves)
        new_root = len(hierarchy.low)
        parent = np.where(hierarchy.parent < 0, new_root, hierarchy.parent)
        return cls.tree(
            low=np.append(hierarchy.low, [0, missing_leaf]),
            high=np.append(hierarchy.high, [missing_leaf, missing_leaf]),
            parent=np.append(parent, [_NO_NODE, new_root]),
            weight=attribute.weight,
        )


class AxisArrays(NamedTuple):
    """The axes of a population, for kernels; ragged arrays are laid end to end.

    Code ``c`` of axis ``j`` is row ``offset[j] + c`` of ``position`` and ``leaf_node``. Node ``v``
    of axis ``j`` is row ``node_offset[j] + v`` of ``node_low``, ``node_high`` and ``node_parent``.
    Numbers of nodes, in ``leaf_node`` and ``node_parent``, count from 0 within each axis.
    """

    kind: NDArray[np.int8]  # shape (n_axes,)
    weight: Floats  # shape (n_axes,)
    card: Ints  # shape (n_axes,)
    missing: Ints  # shape (n_axes,)
    offset: Ints  # shape (n_axes + 1,)
    position: Floats  # shape (n_codes of all axes,)
    node_offset: Ints  # shape (n_axes + 1,)
    node_low: Ints  # shape (n_nodes of all axes,)
    node_high: Ints  # shape (n_nodes of all axes,)
    node_parent: Ints  # shape (n_nodes of all axes,)
    leaf_node: Ints  # shape (n_codes of all axes,)

    @classmethod
    def of(cls, axes: Sequence[Axis]) -> AxisArrays:
        n_codes = [axis.position.size for axis in axes]
        n_nodes = [axis.low.size for axis in axes]
        return cls(
            kind=np.array([axis.kind for axis in axes], np.int8),
            weight=np.array([axis.weight for axis in axes], np.float64),
            card=np.array([axis.card for axis in axes], np.int64),
            missing=np.array([axis.missing for axis in axes], np.int64),
            offset=np.cumsum([0, *n_codes], dtype=np.int64),
            position=np.concatenate([axis.position for axis in axes]),
            node_offset=np.cumsum([0, *n_nodes], dtype=np.int64),
            node_low=np.concatenate([axis.low for axis in axes]),
            node_high=np.concatenate([axis.high for axis in axes]),
            node_parent=np.concatenate([axis.parent for axis in axes]),
            leaf_node=np.concatenate([axis.leaf for axis in axes]),
        )


def plain_hull_cost(axes: AxisArrays, codes: Codes, anchor: Codes, positions: Floats) -> float:
    """Return the cost of the smallest region that holds an anchor and some other points.

    Parameters
    ----------
    codes : shape (n_points, n_axes); -1 stands for the anchor's own value
    anchor : shape (n_axes,); -1 stands for a value that is not a code of an INTERVAL axis
    positions : shape (n_axes,); where the anchor is on INTERVAL axes
    """
    total = 0.0
    for j in range(axes.kind.size):
        part = np.append(codes[:, j], anchor[j])
        total += plain_part_cost(axes, j, part, float(positions[j]))
    return total


def plain_part_cost(axes: AxisArrays, j: int, codes: ArrayLike, own_position: float) -> float:
    """Return the cost of the smallest part of axis ``j`` that holds some codes.

    A code of -1 stands for a number at `own_position`.
    """
    values = np.unique(codes)
    weight = float(axes.weight[j])
    card = int(axes.card[j])
    if values.size == 1:
        return 0.0
    if axes.kind[j] == NOMINAL:
        return weight * values.size / card
    if axes.kind[j] == TREE:
        nodes = slice(axes.node_offset[j], axes.node_offset[j + 1])
        first = axes.node_low[nodes]
        last = axes.node_high[nodes]
        is_common = (first <= values.min()) & (last >= values.max())
        n_leaves = (last - first + 1)[is_common].min()
        return float(weight * n_leaves / card)
    if axes.missing[j] in values[values >= 0]:
        return weight
    numbers = axes.position[axes.offset[j] + values[values >= 0]]
    if values[0] < 0:
        numbers = np.append(numbers, own_position)
    return min(weight, float(np.ptp(numbers)))


@inner
def tree_cost(axes: AxisArrays, j: int, leaf: int, code: int) -> float:
    """Return the cost of the lowest node that covers two leaves of TREE axis ``j``.

    Equals ``plain_part_cost(axes, j, [leaf, code], 0.0)``.
    """
    if leaf == code:
        return 0.0
    base = axes.node_offset[j]
    node = base + axes.leaf_node[axes.offset[j] + leaf]
    while code < axes.node_low[node] or code > axes.node_high[node]:
        node = base + axes.node_parent[node]
    n_leaves = axes.node_high[node] - axes.node_low[node] + 1
    return float(axes.weight[j] * n_leaves / axes.card[j])


@inner
def box_distance(  # noqa: C901 - a kernel
    axes: AxisArrays, j: int, anchor: int, position: float, low: int, high: int
) -> float:
    """Return the least cost, on axis ``j``, of a part with the anchor and a code of a range.

    Equals `plain_box_distance`.

    Parameters
    ----------
    anchor : code of the anchor, -1 if its value is not a code
    position : where the anchor is, if the axis is an INTERVAL
    low, high : first and last code of the range; both are -1 for the anchor's own value
    """
    kind = axes.kind[j]
    weight = float(axes.weight[j])
    missing = axes.missing[j]
    if kind == INTERVAL:
        if high < 0:  # a forbidden combination may name the anchor's own value
            return 0.0
        if missing >= 0 and anchor == missing:
            if high == missing:
                return 0.0
            return weight
        if missing >= 0 and high == missing:
            if low == missing:
                return weight
            high -= 1
        low_position = float(axes.position[axes.offset[j] + low])
        high_position = float(axes.position[axes.offset[j] + high])
        if position < low_position:
            return min(weight, low_position - position)
        if position > high_position:
            return min(weight, position - high_position)
        return 0.0
    if low <= anchor <= high:
        return 0.0
    if kind == NOMINAL:
        return float(weight * 2.0 / axes.card[j])
    # Leaves are numbered depth first: the nearer end of the range shares the lower ancestor.
    nearer_end = high
    if anchor < low:
        nearer_end = low
    return tree_cost(axes, j, anchor, nearer_end)


def plain_box_distance(
    axes: AxisArrays, j: int, anchor: int, position: float, low: int, high: int
) -> float:
    """Return what `box_distance` computes, by trying each code of the range.

    For an anchor between two codes of an INTERVAL, the range also holds the anchor.
    """
    if axes.kind[j] == INTERVAL and anchor != axes.missing[j] and low < high:
        numbers = axes.position[axes.offset[j] + np.arange(low, high + 1)]
        if axes.missing[j] == high:
            numbers = numbers[:-1]
        if numbers[0] <= position <= numbers[-1]:
            return 0.0
    return min(plain_part_cost(axes, j, [anchor, c], position) for c in range(low, high + 1))
