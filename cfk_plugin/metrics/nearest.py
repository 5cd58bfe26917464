"""The nearest of many coded rows, by HEOM."""

from __future__ import annotations

import numpy as np

from cfk_plugin.data.codes import MISSING, Codes, Floats, Ints
from cfk_plugin.errors import HostOnly
from cfk_plugin.metrics.heom import TIE

_BLOCK = 256  # rows whose ranges are kept together
_MOST_BLOCKS = 64  # blocks that are compared with a query at once
_SAMPLE = 256  # rows of a part that decide by which column it is divided
_FARTHEST = 1e30  # in spans of a column; numbers beyond it might overflow


class NearestRows(HostOnly):
    """Finds the nearest of some rows, by HEOM, as `Heom` defines it; of equally near ones the
    first.

    The rows are divided into blocks of rows that are near each other. A query is compared with the
    range of each block first, and only with the rows of blocks that can have the nearest one. These
    blocks are the leaves of a k-d tree (Bentley 1975, "Multidimensional binary search trees").

    Parameters
    ----------
    numbers : float array, shape (n_rows, n_numbers)
        In spans of their columns; NaN if missing.
    categories : int array, shape (n_rows, n_categories)
        Numbers of 31 bits.
    costs : float array, shape (n_rows,), optional
        What is added to the distance to each row.

    Examples
    --------
    >>> nearest = NearestRows(np.array([[0.0], [0.25], [1.0]]), np.array([[3], [5], [5]]))
    >>> nearest.find(np.array([[0.2]]), np.array([[5]]))
    (array([1]), array([0.025]))
    """

    def __init__(self, numbers: Floats, categories: Ints, costs: Floats | None = None) -> None:
        n_rows = len(numbers)
        numbers = numbers.clip(-_FARTHEST, _FARTHEST)
        self._n_rows = n_rows
        self._n_columns = max(numbers.shape[1] + categories.shape[1], 1)
        order = _order(numbers, categories)
        n_blocks = -(-n_rows // _BLOCK)
        # The last row is repeated, so that all blocks have the same size.
        place = np.minimum(np.arange(n_blocks * _BLOCK), n_rows - 1)
        self._row = order[place].reshape(n_blocks, _BLOCK)
        # shape (n_blocks, n_numbers, block size), and the same of categories
        self._numbers = numbers[self._row].transpose(0, 2, 1).copy()
        self._categories = categories[self._row].transpose(0, 2, 1).astype(np.int32, order="C")
        # shape (n_blocks, n_numbers); NaN if all numbers of a block are missing
        self._low = np.fmin.reduce(self._numbers, axis=2)
        self._high = np.fmax.reduce(self._numbers, axis=2)
        self._has_missing = np.logical_or.reduce(np.isnan(self._numbers), axis=2)
        self._is_incomplete = bool(self._has_missing.any())
        self._first = self._categories.min(axis=2)  # shape (n_blocks, n_categories)
        self._last = self._categories.max(axis=2)
        self._costs = None
        if costs is not None:
            self._costs = costs[self._row] * self._n_columns  # shape (n_blocks, block size)
            self._least_cost = self._costs.min(axis=1)

    def __len__(self) -> int:
        return self._n_rows

    def find(
        self,
        numbers: Floats,
        categories: Ints,
        *,
        without: Ints | None = None,
        not_same: bool = False,
    ) -> tuple[Ints, Floats]:
        """Find the nearest row of each query.

        Parameters
        ----------
        numbers, categories : arrays, shape (n, n_numbers) and (n, n_categories)
            The queries, in the form of the rows.
        without : int array, shape (n,), optional
            For each query, the number of a row that is left out.
        not_same : bool
            Whether rows at distance 0 are left out.

        Returns
        -------
        nearest : int array, shape (n,)
            Numbers of rows; -1 if there is none.
        distances : float array, shape (n,)
            Their distances, with costs; infinite if there is none.
        """
        numbers = numbers.clip(-_FARTHEST, _FARTHEST)
        categories = categories.astype(np.int32)
        nearest = np.empty(len(numbers), dtype=np.int64)
        sums = np.empty(len(numbers))
        for i in range(len(numbers)):
            left_out = -1 if without is None else int(without[i])
            nearest[i], sums[i] = self._nearest(
                numbers[i], categories[i], left_out, not_same=not_same
            )
        return nearest, sums / self._n_columns

    def _nearest(
        self, numbers: Floats, categories: Ints, left_out: int, *, not_same: bool
    ) -> tuple[int, float]:
        """Return the nearest row of one query, and the sum of the differences of all features."""
        least = np.inf
        tie = TIE * self._n_columns
        near_rows = []
        near_sums = []
        bounds = self._bounds(numbers, categories)
        order = np.argsort(bounds)
        start = 0
        n_blocks = 1
        while start < len(order):
            blocks = order[start : start + n_blocks]
            blocks = blocks[bounds[blocks] <= least + tie]
            if not len(blocks):
                break
            rows = self._row[blocks]
            sums = self._sums(blocks, numbers, categories)
            if not_same:
                sums[sums <= tie] = np.inf
            if left_out >= 0:
                sums[rows == left_out] = np.inf
            least = min(least, float(sums.min()))
            is_near = sums <= least + tie
            near_rows.append(rows[is_near])
            near_sums.append(sums[is_near])
            start += n_blocks
            n_blocks = min(2 * n_blocks, _MOST_BLOCKS)
        if np.isinf(least):
            return -1, least
        equally_near = np.concatenate(near_sums) <= least + tie
        return int(np.concatenate(near_rows)[equally_near].min()), least

    def _bounds(self, numbers: Floats, categories: Ints) -> Floats:
        """Return the least sum of differences that a row of each block may have, shape
        (n_blocks,).
        """
        gaps = np.maximum(self._low - numbers, numbers - self._high).clip(min=0.0)
        gaps = np.where(self._has_missing, np.fmin(gaps, 1.0), gaps)
        missing = np.flatnonzero(np.isnan(numbers))
        gaps[:, missing] = ~self._has_missing[:, missing]
        is_other = (categories < self._first) | (categories > self._last)
        bounds: Floats = gaps.sum(axis=1) + is_other.sum(axis=1)
        if self._costs is not None:
            bounds += self._least_cost
        return bounds

    def _sums(self, blocks: Ints, numbers: Floats, categories: Ints) -> Floats:
        """Return the sum of the differences of all features, for each row of some blocks.

        The result has the shape (n_blocks, block size).
        """
        row_numbers = self._numbers[blocks]
        # An axis is added for the rows of a block.
        gaps = row_numbers - numbers[:, None]
        np.abs(gaps, out=gaps)
        missing = np.flatnonzero(np.isnan(numbers))
        if len(missing) or self._is_incomplete:
            gaps[np.isnan(gaps)] = 1.0  # one of both is missing
            gaps[:, missing] = ~np.isnan(row_numbers[:, missing])
        is_other = self._categories[blocks] != categories[:, None]
        sums: Floats = gaps.sum(axis=1) + is_other.sum(axis=1, dtype=np.uint16)
        if self._costs is not None:
            sums += self._costs[blocks]
        return sums


def heom_parts(codes: Codes, rows: Floats) -> tuple[Floats, Ints]:
    """Return coded rows in the form that `NearestRows` takes.

    Levels count as categories. A number that has no code counts as a missing one; any other value
    without a code differs from all that have one.

    Parameters
    ----------
    codes : Codes
    rows : float array, shape (n, n_features)

    Returns
    -------
    numbers : float array, shape (n, n_numbers)
    categories : int array, shape (n, n_categories)
    """
    numeric = [column for column in codes.columns if column.is_numeric]
    is_numeric = np.array([column.is_numeric for column in codes.columns], dtype=bool)
    numbers = rows[:, is_numeric]
    numbers[numbers == MISSING] = np.nan
    for j, column in enumerate(numeric):
        # A column with one number does not tell rows apart.
        span = column.span if len(column.values) > 1 else np.inf
        start = column.values[0] if len(column.values) else 0.0
        with np.errstate(over="ignore"):
            numbers[:, j] = (numbers[:, j] - start) / span
    categories = np.nan_to_num(rows[:, ~is_numeric], nan=-1.0).astype(np.int64)
    return numbers, categories


def _order(numbers: Floats, categories: Ints) -> Ints:
    """Return the rows in an order in which each block has rows that are near each other.

    The rows are divided in two by the column in which they differ most, and each part again.

    Parameters
    ----------
    numbers : shape (n_rows, n_numbers), in spans of their columns
    categories : shape (n_rows, n_categories)
    """
    n_numbers = numbers.shape[1]
    places = np.hstack([np.nan_to_num(numbers, nan=2.0), categories]).astype(np.float32)
    order = np.arange(len(places))
    parts = [(0, -(-len(places) // _BLOCK))]  # first block, and the one after the last
    while parts:
        first, stop = parts.pop()
        if stop - first < 2:
            continue
        middle = (first + stop) // 2
        part = slice(first * _BLOCK, stop * _BLOCK)
        rows = order[part]
        sample = places[rows[:: max(len(rows) // _SAMPLE, 1)]]
        gaps = np.abs(sample - sample[::-1])
        gaps[:, n_numbers:] = gaps[:, n_numbers:] > 0
        column = int(gaps.mean(axis=0).argmax())
        order[part] = rows[np.argpartition(places[rows, column], (middle - first) * _BLOCK)]
        parts += [(first, middle), (middle, stop)]
    return order
