"""What it costs to generalise each quasi-identifier, as arrays that compiled code can read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

INTERVAL, NOMINAL, TREE = 0, 1, 2

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.int32]

_F = TypeVar("_F", bound=Callable[..., Any])


def jit(function: _F) -> _F:
    """Compile a kernel: cached on disk, and free of the interpreter lock so that threads run in parallel."""
    compiled: Any = numba.njit(cache=True, nogil=True)(function)
    return cast("_F", compiled)


class AxisArrays(NamedTuple):
    """The arrays of `Axes` in the form that kernels take; node numbers count from 0 within each axis."""

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


def _no_nodes() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Axis:
    """One quasi-identifier; use `interval`, `nominal` or `tree`.

    Parameters
    ----------
    kind : int
        INTERVAL, NOMINAL or TREE.
    weight : float
        Cost of the whole domain.
    card : int
        Number of values in the denominator of the cost (NOMINAL, TREE).
    position : ndarray
        One number per code; only INTERVAL gives it a meaning.
    missing : int
        Code that stands for "missing", -1 when there is none.
    low, high, parent, leaf : ndarray
        Nodes of a TREE: first and last leaf code, parent node (-1 at the root), node of each leaf code.
    """

    kind: int
    weight: float
    card: int
    position: Floats
    missing: int = -1
    low: Ints = field(default_factory=_no_nodes)
    high: Ints = field(default_factory=_no_nodes)
    parent: Ints = field(default_factory=_no_nodes)
    leaf: Ints = field(default_factory=_no_nodes)

    @classmethod
    def interval(cls, position: ArrayLike, weight: float, *, missing: bool = False) -> Axis:
        """Ordered values at already scaled positions; `missing` appends one more code for "missing"."""
        place = np.asarray(position, np.float64)
        if place.size and (not np.all(np.isfinite(place)) or np.any(np.diff(place) < 0)):
            raise ValueError("positions must be finite and non-decreasing")
        if missing:
            place = np.append(place, 0.0)
        return cls(INTERVAL, weight, place.size, place, place.size - 1 if missing else -1)

    @classmethod
    def nominal(cls, values: int, weight: float, *, card: int | None = None) -> Axis:
        """Unordered values; `card` when the domain of the cost is larger than the codes in use."""
        return cls(NOMINAL, weight, values if card is None else card, np.zeros(values))

    @classmethod
    def tree(cls, low: ArrayLike, high: ArrayLike, parent: ArrayLike, weight: float) -> Axis:
        """Values at the leaves of a hierarchy, numbered depth first so that each node is a range of codes.

        A leaf is a node with ``low == high``; of several on one chain the lowest counts.
        """
        first, last, up = (np.asarray(a, np.int64) for a in (low, high, parent))
        roots = np.flatnonzero(up < 0)
        inner = np.flatnonzero(up >= 0)
        if roots.size != 1 or first[roots[0]] != 0 or np.any(first > last) or np.any(up >= up.size):
            raise ValueError("a hierarchy needs exactly one root, which covers all codes from 0")
        if np.any(first[inner] < first[up[inner]]) or np.any(last[inner] > last[up[inner]]):
            raise ValueError("each node of a hierarchy must lie inside its parent")
        leaves = int(last[roots[0]]) + 1
        leaf = np.full(leaves, -1, np.int64)
        is_parent = np.zeros(up.size, bool)
        is_parent[up[inner]] = True
        bottom = np.flatnonzero((first == last) & ~is_parent)
        leaf[first[bottom]] = bottom
        if np.any(leaf < 0) or bottom.size != leaves:
            raise ValueError("each leaf code of a hierarchy needs exactly one leaf node")
        return cls(TREE, weight, leaves, np.zeros(leaves), -1, first, last, up, leaf)


@dataclass(frozen=True)
class Axes:
    """The quasi-identifiers of a population, ragged arrays laid end to end.

    Parameters
    ----------
    arrays : AxisArrays
        Codes of axis ``j`` are rows ``offset[j]`` to ``offset[j + 1]`` of ``position`` and ``leaf_node``.
    """

    arrays: AxisArrays

    @classmethod
    def build(cls, axes: Sequence[Axis]) -> Axes:
        """Lay the axes end to end.

        Raises
        ------
        ValueError
            If there is no axis, an axis has no values, or a weight or cardinality is impossible.
        """
        if not axes:
            raise ValueError("at least one quasi-identifier is needed")
        for axis in axes:
            if not (np.isfinite(axis.weight) and axis.weight >= 0) or axis.position.size == 0:
                raise ValueError("an axis needs a finite weight >= 0 and at least one value")
            if axis.kind == NOMINAL and axis.card < axis.position.size:
                raise ValueError("the cardinality of an axis cannot be below its number of codes")
        unused = [axis.leaf if axis.kind == TREE else np.full(axis.position.size, -1) for axis in axes]
        return cls(
            AxisArrays(
                kind=np.array([a.kind for a in axes], np.int8),
                weight=np.array([a.weight for a in axes], np.float64),
                card=np.array([a.card for a in axes], np.int64),
                missing=np.array([a.missing for a in axes], np.int64),
                offset=np.cumsum([0, *(a.position.size for a in axes)], dtype=np.int64),
                position=np.concatenate([a.position for a in axes]).astype(np.float64),
                node_offset=np.cumsum([0, *(a.low.size for a in axes)], dtype=np.int64),
                node_low=np.concatenate([a.low for a in axes]).astype(np.int64),
                node_high=np.concatenate([a.high for a in axes]).astype(np.int64),
                node_parent=np.concatenate([a.parent for a in axes]).astype(np.int64),
                leaf_node=np.concatenate(unused).astype(np.int64),
            )
        )

    @property
    def count(self) -> int:
        """Number of quasi-identifiers."""
        return int(self.arrays.kind.size)

    @property
    def cardinality(self) -> Ints:
        """Number of codes per quasi-identifier."""
        return np.diff(self.arrays.offset)

    def cost(self, codes: Codes, anchor: Codes, place: Floats) -> float:
        """Cost of the hull of an anchor and some cells, written plainly: the reference for the kernels."""
        a, total = self.arrays, 0.0
        for j in range(self.count):
            values = np.unique(np.append(codes[:, j], anchor[j]))
            weight, base = float(a.weight[j]), int(a.offset[j])
            if a.kind[j] == NOMINAL:
                total += weight * values.size / int(a.card[j]) if values.size > 1 else 0.0
            elif a.kind[j] == TREE:
                total += max(tree_cost(a, j, int(anchor[j]), int(v)) for v in values)
            else:
                numbers = a.position[base + values[(values >= 0) & (values != a.missing[j])]]
                if anchor[j] < 0:
                    numbers = np.append(numbers, place[j])
                whole = a.missing[j] in values and numbers.size > 0 and a.missing[j] >= 0
                width = float(np.ptp(numbers)) if numbers.size else 0.0
                total += weight if whole else min(weight, width)
        return total


@jit
def tree_cost(axes: AxisArrays, j: int, leaf: int, code: int) -> float:
    """Cost of the lowest node that covers both leaves."""
    if leaf == code:
        return 0.0
    base = axes.node_offset[j]
    node = base + axes.leaf_node[axes.offset[j] + leaf]
    while code < axes.node_low[node] or code > axes.node_high[node]:
        node = base + axes.node_parent[node]
    return float(axes.weight[j] * (axes.node_high[node] - axes.node_low[node] + 1) / axes.card[j])


@jit
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
