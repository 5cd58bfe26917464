"""Points: people in coordinates in which NCP is the sum of the sides of a box.

`Points` reads the coordinates of `Space`. `Neighbourhoods` and `near_points` find near points among
millions: they sort points along several curves, and near points are often few places apart on one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.codes import Floats, Ints, Mask
from cfk_plugin.errors import HostOnly

Singles = NDArray[np.float32]

_CURVES = 4
_REACH = 10  # places on a curve, on either side of a point, that are searched for near points
_NEAR = 16  # the largest number of near points of a point
_HALVINGS = 62  # bits of a place on a curve
_HALVINGS_OF_COLUMN = 30
_BEYOND = 1e6  # a coordinate that is this many caps below the others is a missing value
_ROWS_AT_ONCE = 1 << 12


@dataclass(frozen=True, eq=False, repr=False)
class Points(HostOnly):
    """Points in columns of lines and categories.

    In the coordinates of `Space`, a category has one dimension for each value of its column: the
    cap at its own value, and 0 at the others. Here it is one column, so the number of values does
    not matter.

    Attributes
    ----------
    lines : shape (n_points, n_lines)
    caps : shape (n_lines,)
        The most that each side of a box counts.
    is_capped : shape (n_lines,)
        Whether a side can be longer than its cap, as with missing values.
    categories : shape (n_points, n_categories)
        The number of the value in each column.
    steps : shape (n_categories,)
        The NCP of each value in a box with more than one.
    """

    lines: Singles
    caps: Singles
    is_capped: Mask
    categories: NDArray[np.int32]
    steps: Singles

    @classmethod
    def of(cls, points: Floats, caps: Floats) -> Points:
        """Return the points with coordinates of `Space`, shape (n_points, n_dimensions)."""
        blocks = _blocks_of_dimensions(points, caps)
        lines = [block[0] for block in blocks if len(block) == 1]
        sets = [block for block in blocks if len(block) > 1]
        numbers = np.empty((len(points), len(lines)), np.float32)
        for j, dimension in enumerate(lines):
            numbers[:, j] = _from_zero(points[:, dimension], caps[dimension])
        categories = np.empty((len(points), len(sets)), np.int32)
        for j, block in enumerate(sets):
            categories[:, j] = points[:, block].argmax(axis=1)
        line_caps = caps[lines].astype(np.float32)
        return cls(
            lines=numbers,
            caps=line_caps,
            is_capped=np.ptp(numbers, axis=0) > 1.0001 * line_caps,
            categories=categories,
            steps=caps[[block[0] for block in sets]].astype(np.float32),
        )

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def n_columns(self) -> int:
        return len(self.caps) + len(self.steps)

    def take(self, rows: Ints) -> Points:
        return replace(self, lines=self.lines[rows], categories=self.categories[rows])

    def distances(self, a: Ints, b: Ints) -> Floats:
        """Return the NCP of the box of points a and b; their positions are broadcast."""
        total = np.zeros(np.broadcast_shapes(a.shape, b.shape))
        for line, cap in zip(self.lines.T, self.caps, strict=True):
            total += np.minimum(np.abs(line[a] - line[b]), cap)
        for category, step in zip(self.categories.T, self.steps, strict=True):
            total += 2 * step * (category[a] != category[b])
        return total

    def spreads(self) -> Floats:
        """Return roughly the mean distance of two random points in each column, (n_columns,)."""
        # 1.13 is exact for a normal distribution
        of_lines = np.minimum(1.13 * self.lines.std(axis=0), self.caps)
        of_categories = []
        for category, step in zip(self.categories.T, self.steps, strict=True):
            shares = np.bincount(category) / len(category)
            of_categories.append(2 * step * (1 - (shares**2).sum()))
        return np.append(of_lines, of_categories)

    def column(self, j: int, random: np.random.Generator) -> Floats:
        """Return a column as numbers, shape (n_points,); categories get a random order."""
        n_lines = len(self.caps)
        if j < n_lines:
            return self.lines[:, j].astype(np.float64)
        category = self.categories[:, j - n_lines]
        return random.permutation(int(category.max()) + 1)[category].astype(np.float64)


def _from_zero(line: Floats, cap: float) -> Floats:
    """Shift coordinates so that the lowest is 0, shape (n_points,); missing values become -cap.

    After that, float32 is precise enough.
    """
    is_missing = line < line.max() - _BEYOND * cap
    lowest = line[~is_missing].min()
    return np.where(is_missing, -cap, line - lowest)


def _blocks_of_dimensions(points: Floats, caps: Floats) -> list[list[int]]:
    """Return the dimensions of each category and of each line as blocks.

    Successive dimensions are those of a category if each point has the cap in exactly one of them
    and 0 in the others. Dimensions in which all points are equal are left out, because they cost
    nothing.
    """
    blocks: list[list[int]] = []
    block: list[int] = []
    has_value = np.zeros(len(points), dtype=bool)
    for j in np.flatnonzero(np.ptp(points, axis=0) > 0).tolist():
        is_value = points[:, j] == caps[j]
        is_binary = bool((is_value | (points[:, j] == 0)).all())
        is_alike = is_binary and (not block or caps[j] == caps[block[0]])
        if not is_alike or (has_value & is_value).any():
            blocks += [[i] for i in block]
            block = []
            has_value = np.zeros(len(points), dtype=bool)
        block.append(j)
        has_value = has_value | is_value
        if not is_binary or has_value.all():
            blocks.append(block)
            block = []
            has_value = np.zeros(len(points), dtype=bool)
    return blocks + [[i] for i in block]


# --- Near points


def halved(points: Points, n_least: int, random: np.random.Generator) -> list[Ints]:
    """Halve points at medians into blocks of at least `n_least` points; return their positions.

    A block is halved in the column with the largest spread.
    """
    open_blocks = [random.permutation(len(points))]
    blocks = []
    while open_blocks:
        rows = open_blocks.pop()
        if len(rows) < 2 * n_least:
            blocks.append(rows)
            continue
        block = points.take(rows)
        values = block.column(int(block.spreads().argmax()), random)
        middle = len(rows) // 2
        order = rows[np.argpartition(values, middle)]
        open_blocks += [order[:middle], order[middle:]]
    return blocks


def _curve(points: Points, random: np.random.Generator) -> Ints:
    """Sort points so that near points have near places; return their positions, (n_points,).

    The order is that of a k-d tree, which halves all points again and again in the column that
    costs most. Columns get random weights, so that another curve brings other points together.
    """
    n_columns = points.n_columns
    weighted = points.spreads() * 0.01 ** random.random(n_columns)
    halves = np.multiply.outer(0.5 ** np.arange(_HALVINGS_OF_COLUMN), weighted)
    dearest = np.argsort(-halves, axis=None, kind="stable")[:_HALVINGS]
    ranks = [_ranks(points.column(j, random)) for j in range(n_columns)]
    key = np.zeros(len(points), np.int64)
    for level, j in zip(*divmod(dearest, n_columns), strict=True):
        is_upper_half = (ranks[j] * 2.0 ** (level + 1)).astype(np.int64) & 1
        key = 2 * key + is_upper_half
    return np.argsort(key, kind="stable")


def _ranks(values: Floats) -> Floats:
    """Return the share of values below each value, with half of the equal ones, (n_values,)."""
    _, position, counts = np.unique(values, return_inverse=True, return_counts=True)
    return ((np.cumsum(counts) - counts / 2) / len(values))[position.reshape(-1)]


class Neighbourhoods(HostOnly):
    """Finds candidates near points, by their places on several curves.

    Parameters
    ----------
    points : Points
    is_candidate : shape (n_points,)
        Which points can be found.
    random : numpy Generator
    """

    def __init__(self, points: Points, is_candidate: Mask, random: np.random.Generator) -> None:
        self._lines = []  # for each curve, the candidates in its order
        self._places = []  # for each curve, the place of each point in this line; (n_points,)
        for _ in range(_CURVES):
            order = _curve(points, random)
            place = np.empty(len(points), np.int64)
            place[order] = np.cumsum(is_candidate[order]) - is_candidate[order]
            self._lines.append(order[is_candidate[order]])
            self._places.append(place)

    def of(self, rows: Ints, n_reach: int = _REACH) -> Ints:
        """Return the candidates near points at positions `rows`, in order; -1 replaces duplicates.

        The shape is (n_rows, n_curves * (2 * n_reach + 1)).
        """
        shifts = np.arange(-n_reach, n_reach + 1)
        windows = []
        for line, place in zip(self._lines, self._places, strict=True):
            windows.append(line[np.clip(place[rows, None] + shifts, 0, len(line) - 1)])
        near = np.sort(np.hstack(windows), axis=1)
        near[:, 1:][near[:, 1:] == near[:, :-1]] = -1
        return near


def near_points(points: Points, random: np.random.Generator) -> Ints:
    """Return the points near each point, nearest first, (n_points, n_near); -1 means no point.

    The search is approximate: it may miss some of the nearest points.
    """
    neighbourhoods = Neighbourhoods(points, np.ones(len(points), dtype=bool), random)
    nearest_points = np.empty((len(points), _NEAR), dtype=np.int64)
    for rows in chunks(np.arange(len(points)), _ROWS_AT_ONCE):
        near = neighbourhoods.of(rows)
        distances = points.distances(rows[:, None], near)
        distances[(near < 0) | (near == rows[:, None])] = np.inf
        nearest = np.argsort(distances, axis=1, kind="stable")[:, :_NEAR]
        is_near = np.take_along_axis(distances, nearest, axis=1) < np.inf
        nearest_points[rows] = np.where(is_near, np.take_along_axis(near, nearest, axis=1), -1)
    return nearest_points


def chunks(rows: Ints, n_at_once: int) -> Iterator[Ints]:
    """Yield rows in chunks of at most `n_at_once`."""
    for first in range(0, len(rows), max(n_at_once, 1)):
        yield rows[first : first + max(n_at_once, 1)]


def cells(points: Points) -> tuple[Ints, Ints]:
    """Return the first point of each cell, (n_cells,), and the cell of each point, (n_points,).

    A cell is a set of equal points.
    """
    constant = np.zeros(len(points))  # in case there is no other column
    rows = np.column_stack([constant, points.lines, points.categories])
    as_bytes = rows.view(f"V{rows.itemsize * rows.shape[1]}").reshape(-1)
    _, first, cell = np.unique(as_bytes, return_index=True, return_inverse=True)
    return first, cell.reshape(-1)
