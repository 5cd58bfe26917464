"""Kernels that find the rows which can be among the nearest, in single precision with some slack.

`nearest_rows` searches a tree, for few features that distinguish the rows well. `scan_rows`
compares all rows, for so many features that a tree would exclude few rows. Beside each stands a
plain function that computes the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.protection.axes import Floats, Ints
from cfk_plugin.protection.class_index import longer
from cfk_plugin.protection.compiled import inner, jit

Singles: TypeAlias = "NDArray[np.float32]"

_ROWS_IN_CACHE = 4096  # rows whose sums stay in a core's cache


# A tree over all attributes of the rows.


class RowTree(NamedTuple):
    """A k-d tree over rows, for distances that are sums over attributes.

    Columns are numbers first, between 0 and 1, and infinite where they are missing. Then come codes
    of categories. The rows are in the tree's order.
    """

    start: Ints  # shape (n_nodes,); node t holds the rows from start[t] to stop[t] - 1
    stop: Ints
    child: Ints  # shape (n_nodes,); the children of node t are child[t] and the next; -1 for a leaf
    low: Singles  # shape (n_nodes, n_columns); the least value of each column in a node
    high: Singles
    rows: Singles  # shape (n_rows, n_columns)


@inner
def _box_distance(
    low: Any, high: Any, t: int, place: Floats, n_numbers: int, limit: float
) -> float:
    """Return the least distance of a place to box t, or any number above the limit if it is above.

    The boxes have the corners `low` and `high`, shape (n_boxes, n_columns); a row is a box, too.
    """
    total = 0.0
    for j in range(place.size):
        lowest = low[t, j]
        highest = high[t, j]
        x = place[j]
        if j >= n_numbers:
            total += 0.0 if lowest <= x <= highest else 1.0
        elif x == np.inf:
            total += 0.0 if highest == np.inf else 1.0
        elif highest == np.inf:
            total += min(max(lowest - x, 0.0), 1.0)
        else:
            total += max(lowest - x, x - highest, 0.0)
        if total > limit:
            return total
    return total


@inner
def _insert(least_numbers: Floats, number: float) -> None:
    """Insert a number into a sorted array of the least ones, if it is one of them."""
    slot = least_numbers.size
    while slot > 0 and least_numbers[slot - 1] > number:
        if slot < least_numbers.size:
            least_numbers[slot] = least_numbers[slot - 1]
        slot -= 1
    if slot < least_numbers.size:
        least_numbers[slot] = number


@jit
def nearest_rows(
    tree: RowTree, place: Floats, n_numbers: int, k: int, slack: float, exclude_same: bool
) -> tuple[Ints, Floats, float]:
    """Find all rows that can be among the k nearest to a place; see `nearest_rows_in_python`.

    The rows that are returned include those within the limit, which is learned on the way, and
    maybe more. The search visits the nodes of the tree nearest first.

    Parameters
    ----------
    tree
        The rows.
    place : float64, shape (n_columns,)
        A record in the form of the rows.
    n_numbers
        How many of the columns are numbers.
    k
        How many rows are asked for.
    slack
        How much a distance may be wrong.
    exclude_same
        Whether rows within the slack do not count among the k.

    Returns
    -------
    rows : int64, shape (n_found,)
        Numbers of rows in the tree's order.
    distances : float64, shape (n_found,)
        Their distances.
    limit : float
        Rows farther away cannot be among the k nearest.
    """
    least_distances = np.full(k, np.inf)
    rows = np.empty(64, np.int64)
    distances = np.empty(64)
    size = 0
    stack = np.empty(256, np.int64)
    stack_distance = np.empty(256)
    stack[0] = 0
    stack_distance[0] = 0.0
    height = 1
    while height > 0:
        height -= 1
        t = stack[height]
        limit = least_distances[k - 1] + slack
        if stack_distance[height] > limit:
            continue
        if tree.child[t] >= 0:
            near_child = tree.child[t]
            far_child = near_child + 1
            near_distance = _box_distance(tree.low, tree.high, near_child, place, n_numbers, limit)
            far_distance = _box_distance(tree.low, tree.high, far_child, place, n_numbers, limit)
            if far_distance < near_distance:
                near_child, far_child = far_child, near_child
                near_distance, far_distance = far_distance, near_distance
            if height + 2 > stack.size:
                stack = longer(stack)
                stack_distance = longer(stack_distance)
            stack[height] = far_child
            stack_distance[height] = far_distance
            stack[height + 1] = near_child
            stack_distance[height + 1] = near_distance
            height += 2
            continue
        for i in range(tree.start[t], tree.stop[t]):
            limit = least_distances[k - 1] + slack
            distance = _box_distance(tree.rows, tree.rows, i, place, n_numbers, limit)
            if distance > limit:
                continue
            if size == rows.size:
                rows = longer(rows)
                distances = longer(distances)
            rows[size] = i
            distances[size] = distance
            size += 1
            if distance > slack or not exclude_same:
                _insert(least_distances, distance)
    return rows[:size], distances[:size], least_distances[k - 1] + slack


def nearest_rows_in_python(
    rows: Singles, place: Floats, n_numbers: int, k: int, slack: float, exclude_same: bool
) -> tuple[list[int], list[float], float]:
    """Return the rows within the limit of `nearest_rows`, their distances, and the limit."""
    all_distances = []
    for row in rows:
        distance = 0.0
        for j, (value, x) in enumerate(zip(row.tolist(), place.tolist(), strict=True)):
            if j >= n_numbers or np.inf in (value, x):  # a category, or missing
                distance += float(value != x)
            else:
                distance += abs(value - x)
        all_distances.append(distance)
    counted = sorted(d for d in all_distances if d > slack or not exclude_same)
    limit = np.inf
    if len(counted) >= k:
        limit = slack + counted[k - 1]
    rows_within = [i for i, distance in enumerate(all_distances) if distance <= limit]
    return rows_within, [all_distances[i] for i in rows_within], limit


# A scan of all rows, in single precision, block by block.


@inner
def _add_distances(total: Singles, row: Singles, x: Any, from_missing: Any) -> None:
    """Add the distances of a number to those of some rows, shape (n_rows,), NaN where missing."""
    for i in range(total.size):
        distance = abs(row[i] - x)
        total[i] += from_missing if np.isnan(distance) else distance


@inner
def _add_is_present(total: Singles, row: Singles) -> None:
    """Add the distances of a missing number: 1 to each number, shape (n_rows,)."""
    for i in range(total.size):
        total[i] += np.float32(not np.isnan(row[i]))


@inner
def _add_is_other(total: Singles, row: Singles, x: Any) -> None:
    """Add the distances of a category: 1 to each other one, shape (n_rows,)."""
    for i in range(total.size):
        total[i] += np.float32(row[i] != x)


@inner
def _write_within(total: Singles, limit: Any, positions: Ints) -> int:
    """Write the positions of the numbers that are not above the limit; return how many there are.

    A block without any is skipped quickly.
    """
    n_within = np.int32(0)
    for i in range(total.size):
        n_within += np.int32(total[i] <= limit)
    if n_within == 0:
        return 0
    n_written = 0
    for i in range(total.size):
        if total[i] <= limit:
            positions[n_written] = i
            n_written += 1
    return n_written


@jit
def scan_rows(
    rows: Singles,
    cost: Singles,
    places: Singles,
    from_missing: Singles,
    n_numbers: int,
    slack: Floats,
    rounding: float,
) -> tuple[Ints, Ints]:
    """Find all rows that can be nearest to some places; see `scan_rows_in_python`.

    The limit of a place is learned block by block, so a few more rows may be returned.

    Parameters
    ----------
    rows : float32, shape (n_columns, n_rows)
        Numbers first, NaN where they are missing, then codes of categories.
    cost : float32, shape (n_rows,)
        What is added to the distance to each row.
    places : float32, shape (n_places, n_columns)
        Records in the form of the rows.
    from_missing : float32, shape (n_places, n_numbers)
        The distance of each number of a place to a missing one.
    n_numbers
        How many of the columns are numbers.
    slack : float64, shape (n_places,)
        How much the distances of a place may be wrong.
    rounding
        How much they may be wrong besides, as a share of the least one.

    Returns
    -------
    place, row : int64, shape (n_pairs,)
        The pairs of a place and a row that can be its nearest.
    """
    best = np.empty(len(places))
    buffer = np.empty(_ROWS_IN_CACHE, np.float32)
    positions = np.empty(_ROWS_IN_CACHE, np.int64)
    pair_place = np.empty(256, np.int64)
    pair_row = np.empty(256, np.int64)
    size = 0
    for start in range(0, cost.size, _ROWS_IN_CACHE):
        stop = min(start + _ROWS_IN_CACHE, cost.size)
        total = buffer[: stop - start]
        for i in range(len(places)):
            total[:] = cost[start:stop]
            for j in range(len(rows)):
                row = rows[j, start:stop]
                x = places[i, j]
                if j >= n_numbers:
                    _add_is_other(total, row, x)
                elif np.isnan(x):
                    _add_is_present(total, row)
                else:
                    _add_distances(total, row, x, from_missing[i, j])
            if start == 0:
                best[i] = total.min()
            limit = np.float32(best[i] + abs(best[i]) * rounding + slack[i])
            n_within = _write_within(total, limit, positions)
            for r in positions[:n_within]:
                if size == pair_place.size:
                    pair_place = longer(pair_place)
                    pair_row = longer(pair_row)
                pair_place[size] = i
                pair_row[size] = start + r
                best[i] = min(best[i], total[r])
                size += 1
    return pair_place[:size], pair_row[:size]


def scan_rows_in_python(
    rows: Singles,
    cost: Singles,
    places: Singles,
    from_missing: Singles,
    n_numbers: int,
    slack: Floats,
    rounding: float,
) -> set[tuple[int, int]]:
    """Return the pairs of a place and a row that can be its nearest; `scan_rows` finds them all."""
    pairs = set()
    for i, place in enumerate(places):
        total = cost.copy()  # shape (n_rows,)
        for j, (row, x) in enumerate(zip(rows, place, strict=True)):
            if j >= n_numbers:
                total += row != x
            elif np.isnan(x):
                total += ~np.isnan(row)
            else:
                total += np.where(np.isnan(row), from_missing[i, j], np.abs(row - x))
        best = float(total.min())
        limit = np.float32(best + abs(best) * rounding + slack[i])
        pairs |= {(i, r) for r in np.flatnonzero(total <= limit).tolist()}
    return pairs
