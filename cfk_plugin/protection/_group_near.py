"""Which cells are near each other, and which group a cell of nobody joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cfk_plugin.protection._axes import AxisArrays, Codes, Floats, Ints, jit
from cfk_plugin.protection._group_hull import Hull, begin, extend, joined
from cfk_plugin.protection._index import CellTree, nearest, reach

if TYPE_CHECKING:
    from numpy.typing import NDArray


@jit
def neighbours(tree: CellTree, axes: AxisArrays, cells: Codes, place: Floats, most: int) -> NDArray[np.int32]:
    """Up to ``most`` cells of a tree (rows in tree order) nearest to each cell, itself excluded; padded with -1.

    Every cell of the tree must have weight 1.
    """
    table = np.full((cells.shape[0], most), -1, np.int32)
    for i in range(cells.shape[0]):
        found = np.sort(nearest(tree, axes, cells[i], place[i], most + 1)[0])
        cost = np.empty(found.size)
        for s in range(found.size):
            cost[s] = reach(axes, cells[i], place[i], tree.codes, tree.codes, found[s], np.inf)
        size = 0
        for s in np.argsort(cost, kind="mergesort"):
            if size < most and np.any(tree.codes[found[s]] != cells[i]):
                table[i, size] = found[s]
                size += 1
    return table


@jit
def cheapest_groups(axes: AxisArrays, x: Floats, rest: Ints, cell: Ints, start: Ints, count: Ints, hull: Hull) -> Ints:
    """For each row of ``rest`` the group whose cost, summed over its people, grows least if it joins.

    Group ``g`` has ``count[g]`` people and the cells ``cell[start[g]:start[g + 1]]``.
    """
    least, choice = np.full(rest.size, np.inf), np.zeros(rest.size, np.int64)
    for g in range(count.size):
        cost = 0.0
        begin(axes, hull, x, cell[start[g]])
        for s in range(start[g] + 1, start[g + 1]):
            cost = joined(axes, hull, x, cell[s], np.inf)
            extend(axes, hull, x, cell[s])
        for r in range(rest.size):
            limit = cost + least[r] / count[g]
            if limit <= cost:
                continue
            rise = count[g] * (joined(axes, hull, x, rest[r], limit) - cost)
            if rise < least[r]:
                least[r], choice[r] = rise, g
    return choice
