"""Boxes: regions around one counterfactual, for the searches of the lookup.

A box contains the counterfactual. Its *corner* is its extent from there on every dimension:
downwards and upwards on a line, to each other category of a nominal attribute, and up to an
ancestor in a hierarchy. Coordinates are shares of NCP. This makes three operations simple:

* a point is inside a box if none of its coordinates exceeds the corner's;
* the smallest box with several points has the maximum of their coordinates as its corner;
* the NCP of a box is the sum of its corner's coordinates, on each axis at most the axis' weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from cfk_plugin.data.codes import (
    MISSING,
    Codes,
    Column,
    Floats,
    Ints,
    Mask,
    distinct_rows,
    one_row_each,
)
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.regions import Regions

Box: TypeAlias = tuple[Mask, ...]
"""For each quasi-identifier, a mask of the axis' values that are inside, shape (n_values,)."""

HasOutcome: TypeAlias = Callable[[Ints, Floats], Mask]
"""Takes positions of counterfactuals, shape (n,), and encoded rows, shape (n, n_features).

Returns whether each row has the outcome that its counterfactual must reach, shape (n,).
"""

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (done, total) counterfactuals."""


class Rank(NamedTuple):
    """A sort key for regions; the smallest is the best."""

    shortfall: float  # the sum of the distances to the goal's bounds that are missed
    objective: float  # NCP, or minus pureness
    other: float  # decides ties of the objective: minus pureness, or NCP


@dataclass(frozen=True, kw_only=True)
class Goal:
    """The conditions and the objective for the choice of a region.

    Attributes
    ----------
    k : int
        The least number of people inside.
    objective : {"pureness", "ncp"}
        "pureness" prefers the purest region, and of equally pure ones that with the least NCP, as
        in the paper. "ncp" prefers the least NCP, and then the purest region.
    min_pureness, max_ncp : float
        Bounds. Regions are ranked first by how far they miss these.
    """

    k: int
    objective: Literal["pureness", "ncp"] = "pureness"
    min_pureness: float = 0.0
    max_ncp: float = 1.0

    @property
    def needs_model(self) -> bool:
        """Whether the choice depends on pureness."""
        return self.objective == "pureness" or self.min_pureness > 0

    def rank(self, ncp: float, pureness: float) -> Rank:
        """Return the rank of a region."""
        shortfall = max(0.0, self.min_pureness - pureness) + max(0.0, ncp - self.max_ncp)
        if self.objective == "pureness":
            return Rank(shortfall, -pureness, ncp)
        return Rank(shortfall, ncp, -pureness)


@dataclass(frozen=True, eq=False, repr=False)
class Proposal(HostOnly):
    """A region for one counterfactual, before the recount.

    Attributes
    ----------
    values : for each quasi-identifier, shape (n_inside,)
        The codes inside, of training values and of the counterfactual.
    ncp : float
    pureness : float or None
        The share of combinations with the desired outcome; None if the model was not asked.
    gap : float or None
        The proven largest distance of `ncp` to the least NCP; 0 for a proven optimum, None without
        a proof.
    """

    values: tuple[Floats, ...]
    ncp: float
    pureness: float | None = None
    gap: float | None = None

    @property
    def is_optimal(self) -> bool:
        """Whether no region is better, which is proven."""
        return self.gap == 0.0


def regions_of(codes: Codes, proposals: Sequence[Proposal]) -> Regions:
    """Return the regions of proposals, in their order."""
    tables = [_spanning(proposal.values) for proposal in proposals]
    rows = np.full((sum(map(len, tables)), len(codes.columns)), np.nan)
    rows[:, codes.quasi] = np.concatenate(tables)
    group = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    return Regions.of_groups(codes, rows, group)


def _spanning(values: Sequence[Floats]) -> Floats:
    """Return combinations in which every value of every column occurs, shape (n, n_quasi)."""
    n = max(map(len, values))
    return np.column_stack([np.resize(column, n) for column in values])


def all_combinations(positions: Sequence[Ints]) -> Ints:
    """Return all combinations of positions on axes, shape (n_combinations, n_axes)."""
    grids = np.meshgrid(*positions, indexing="ij")
    return np.stack(grids, axis=-1).reshape(-1, len(positions))


@dataclass(frozen=True, eq=False, repr=False)
class Cells(HostOnly):
    """The distinct combinations of quasi-identifiers in a population.

    A person with several rows counts in only one cell, so that sums count each person once.

    Attributes
    ----------
    codes : Codes
    values : for each quasi-identifier, shape (n_values,)
        Its codes, in order.
    positions : shape (n_cells, n_quasi)
        The positions of each cell's codes in `values`.
    people : shape (n_cells,)
        The number of people that count in each cell, at least 1.
    cell_of_row : shape (n_rows,)
        The cell of each row; -1 if no one counts in it.
    """

    codes: Codes
    values: tuple[Floats, ...]
    positions: Ints
    people: Ints
    cell_of_row: Ints

    @classmethod
    def of(cls, codes: Codes, rows: Floats, person: Ints) -> Cells:
        """Count the people of each cell.

        Parameters
        ----------
        codes : Codes
        rows : shape (n_rows, n_features)
        person : shape (n_rows,); the number of each row's person
        """
        quasi, place = distinct_rows(rows[:, codes.quasi])
        # each person counts in the first of their cells, for any order of the rows
        counted_rows = one_row_each(person, np.argsort(place, kind="stable"))
        people = np.bincount(place[counted_rows], minlength=len(quasi))
        has_people = people > 0
        number = np.where(has_people, np.cumsum(has_people) - 1, -1)
        quasi = quasi[has_people]
        values = []
        positions = np.empty(quasi.shape, dtype=np.int64)
        for j, feature in enumerate(codes.quasi.tolist()):
            places = codes.columns[feature].places
            values.append(np.unique(np.concatenate([places, rows[:, feature]])))
            positions[:, j] = np.searchsorted(values[j], quasi[:, j])
        return cls(codes, tuple(values), positions, people[has_people], number[place])

    def __len__(self) -> int:
        return len(self.people)

    @cached_property
    def quasi(self) -> Floats:
        """The codes of each cell, shape (n_cells, n_quasi)."""
        columns = zip(self.values, self.positions.T, strict=True)
        return np.column_stack([values[column] for values, column in columns])

    def count_rows(self, is_counted: Mask) -> Ints:
        """Return the number of counted rows in each cell, shape (n_cells,).

        `is_counted` is a mask of shape (n_rows,).
        """
        cells = self.cell_of_row[is_counted]
        return np.bincount(cells[cells >= 0], minlength=len(self))

    @property
    def n_people(self) -> int:
        return int(self.people.sum())

    @cached_property
    def columns(self) -> list[Column]:
        """The quasi-identifiers' columns."""
        return [self.codes.columns[j] for j in self.codes.quasi.tolist()]


@dataclass(frozen=True, eq=False, repr=False)
class Axis(HostOnly):
    """One quasi-identifier, with coordinates that begin at the counterfactual.

    Attributes
    ----------
    values : shape (n_values,)
        The codes in order, with the code of the counterfactual.
    origin : int
        The position of the counterfactual's code.
    is_line : bool
        Whether boxes are ranges.
    is_set : bool
        Whether boxes are sets of any categories.
    weight : float
        The largest NCP of the axis.
    table : shape (n_values, n_dimensions)
        The coordinates of each value. For a set, it has only the first dimension; `coordinates`
        adds one for each category.
    """

    values: Floats
    origin: int
    is_line: bool
    is_set: bool
    weight: float
    table: Floats

    @classmethod
    def of(cls, column: Column, values: Floats, code: float) -> Axis:
        """Return the axis of a column from the counterfactual's code, which is in `values`."""
        origin = int(np.searchsorted(values, code))
        weight = column.attribute.weight
        is_set = False
        if column.is_line:
            table = _line_coordinates(column, values, origin)
        elif column.attribute.hierarchy is not None:
            table = _hierarchy_coordinates(column, values, origin)
        else:
            is_set = weight > 0
            share = weight / len(column.values)
            table = share * (np.arange(len(values)) != origin)[:, None]
        return cls(values, origin, column.is_line, is_set, weight, table)

    @property
    def n_categories(self) -> int:
        """The number of values; for categories only."""
        return len(self.values)

    @property
    def n_dimensions(self) -> int:
        return 1 + len(self.values) if self.is_set else self.table.shape[1]

    @cached_property
    def costs(self) -> Floats:
        """The NCP of the box with the counterfactual and each value, shape (n_values,)."""
        costs = self.table.sum(axis=1)
        if self.is_set:
            costs = 2 * costs
        return np.asarray(np.minimum(costs, self.weight))

    @property
    def is_capped(self) -> bool:
        """Whether the sum of a corner's coordinates can exceed the weight."""
        return self.is_line and bool(self.table.max(axis=0).sum() > self.weight * (1 + 1e-12))

    def coordinates(self, positions: Ints) -> Floats:
        """Return the coordinates of the values at these positions, shape (n, n_dimensions).

        A set has one dimension for "any other category", and one for each category. So two
        categories of n cost 2/n, and every further one costs 1/n.
        """
        first = self.table[positions]
        if not self.is_set:
            return first
        is_category = positions[:, None] == np.arange(len(self.values))
        return np.hstack([first, first * is_category])

    def corner(self, mask: Mask) -> Floats:
        """Return the corner of the values in a mask, shape (n_dimensions,)."""
        corner: Floats = self.coordinates(np.flatnonzero(mask)).max(axis=0)
        return corner

    def part(self, corner: Floats) -> Mask:
        """Return the mask of the values inside a corner, shape (n_values,)."""
        if not self.is_set:
            return np.asarray((self.table <= corner).all(axis=1))
        mask = corner[1:] > 0
        mask[self.origin] = True
        return mask

    def cost(self, mask: Mask) -> float:
        """Return the weighted NCP of the values in a mask."""
        return min(float(self.corner(mask).sum()), self.weight)

    def joined(self, mask: Mask, position: int) -> Mask:
        """Return the smallest mask with one more value: a range is filled, a node grows."""
        larger = mask.copy()
        larger[position] = True
        if self.is_set:
            return larger
        return self.part(self.corner(larger))

    def distances(self, mask: Mask) -> Floats:
        """Return the distance (HEOM) of each value to those in a mask, shape (n_values,)."""
        if not self.is_line:
            return (~mask).astype(np.float64)
        if self.weight == 0:
            return np.zeros(len(self.values))
        beyond = np.maximum(self.table - self.corner(mask), 0.0).sum(axis=1)
        return np.asarray(np.minimum(beyond / self.weight, 1.0))

    def addable(self, mask: Mask) -> list[int]:
        """Return the positions that may join a single value: neighbours, or any other category."""
        single = int(np.flatnonzero(mask)[0])
        if not self.is_line:
            return np.flatnonzero(~mask).tolist()
        if self.values[single] == MISSING:
            return []
        neighbors = [single - 1, single + 1]
        return [i for i in neighbors if 0 <= i < len(self.values) and self.values[i] != MISSING]

    def removable(self, mask: Mask) -> list[int]:
        """Return the positions that may leave a mask of several values; never the counterfactual's.

        These are the ends of a range and its missing value, or any category of a set. No leaf may
        leave a node.
        """
        inside = np.flatnonzero(mask)
        if self.weight == 0:
            return []
        if self.is_line:
            first_number = 1 if self.values[inside[0]] == MISSING else 0
            inside = np.unique(inside[[0, min(first_number, len(inside) - 1), -1]])
        elif not self.is_set:
            return []
        removable: list[int] = inside[inside != self.origin].tolist()
        return removable


def _line_coordinates(column: Column, values: Floats, origin: int) -> Floats:
    """Return the distances of each value below and above the origin, and one for missing values.

    The shape is (n_values, 3). A box with a missing value and others has the whole NCP, so the
    third coordinate is the weight if only one of the value and the origin is missing. If the origin
    is missing, the other distances are those from both ends of the range.
    """
    weight = column.attribute.weight
    has_width = len(column.places) > 1
    is_missing = values == MISSING
    low = high = values[origin]
    if has_width:
        # From a number far outside, every range has the whole NCP. Its distance is limited, because
        # sums with it would round away the coordinates of other axes.
        low = min(low, column.places[-1] + column.span)
        high = max(high, column.places[0] - column.span)
    if is_missing[origin] and not is_missing.all():
        low = values[-1]
        high = values[~is_missing][0]
    below = np.zeros(len(values))
    above = np.zeros(len(values))
    if has_width:
        # divided by the span first, because weight / span can be infinite for the smallest numbers
        below = np.where(is_missing, 0.0, np.maximum(low - values, 0.0) / column.span) * weight
        above = np.where(is_missing, 0.0, np.maximum(values - high, 0.0) / column.span) * weight
    return np.column_stack([below, above, weight * (is_missing != is_missing[origin])])


def _hierarchy_coordinates(column: Column, values: Floats, origin: int) -> Floats:
    """Return the NCP of the lowest node with the origin and each value, shape (n_values, 1).

    A missing value is in no node below the root, so it costs the whole weight.
    """
    hierarchy = column.attribute.hierarchy
    assert hierarchy is not None  # noqa: S101 - for mypy
    coordinates = np.full(len(values), column.attribute.weight)
    leaf = int(values[origin])
    if leaf < len(hierarchy.leaves):
        n_leaves = hierarchy.high - hierarchy.low + 1
        is_above = (hierarchy.low <= leaf) & (leaf <= hierarchy.high)
        ancestors = np.flatnonzero(is_above)
        for node in ancestors[np.argsort(-n_leaves[ancestors], kind="stable")].tolist():
            cost = column.attribute.weight * n_leaves[node] / len(column.values)
            coordinates[hierarchy.low[node] : hierarchy.high[node] + 1] = cost
    coordinates[origin] = 0.0
    return coordinates[:, None]


@dataclass(frozen=True, eq=False, repr=False)
class Surroundings(HostOnly):
    """A population in coordinates that begin at one counterfactual.

    Attributes
    ----------
    codes : Codes
    row : shape (n_features,)
        The counterfactual.
    axes : tuple of Axis, one for each quasi-identifier
    positions : shape (n_cells, n_quasi)
        The positions of each cell's codes on the axes.
    people : shape (n_cells,)
    """

    codes: Codes
    row: Floats
    axes: tuple[Axis, ...]
    positions: Ints
    people: Ints

    @classmethod
    def of(cls, cells: Cells, row: Floats) -> Surroundings:
        """Return the surroundings of a counterfactual, shape (n_features,), without NaN."""
        axes = []
        positions = cells.positions
        for j, column in enumerate(cells.columns):
            code = row[cells.codes.quasi[j]]
            values = cells.values[j]
            place = int(np.searchsorted(values, code))
            if place == len(values) or values[place] != code:
                values = np.insert(values, place, code)
                positions = positions.copy()
                positions[:, j] += positions[:, j] >= place
            axes.append(Axis.of(column, values, code))
        return cls(cells.codes, row, tuple(axes), positions, cells.people)

    @property
    def costs(self) -> Floats:
        """The NCP of the box with the counterfactual and each cell, shape (n_cells,)."""
        columns = zip(self.axes, self.positions.T, strict=True)
        total: Floats = np.sum([axis.costs[column] for axis, column in columns], axis=0)
        return total

    @cached_property
    def is_same_cell(self) -> Mask:
        """A mask of the cell with the counterfactual's quasi-identifiers, shape (n_cells,)."""
        return np.asarray((self.positions == [axis.origin for axis in self.axes]).all(axis=1))

    def distances(self, box: Box) -> Floats:
        """Return the distance (HEOM) of each cell to a box, shape (n_cells,)."""
        distances = [axis.distances(mask) for axis, mask in zip(self.axes, box, strict=True)]
        columns = zip(distances, self.positions.T, strict=True)
        total: Floats = np.sum([of_values[column] for of_values, column in columns], axis=0)
        return total

    def hull(self, cells: Ints) -> Box:
        """Return the smallest box with the counterfactual and cells at positions, shape (n,)."""
        return self.box(self.coordinates(self.positions[cells]).max(axis=0, initial=0.0))

    @property
    def point(self) -> Box:
        """The box that contains only the counterfactual."""
        return tuple(axis.part(np.zeros(axis.n_dimensions)) for axis in self.axes)

    def coordinates(self, positions: Ints) -> Floats:
        """Return the coordinates of combinations, shape (n, n_dimensions of all axes).

        `positions` has the shape (n, n_quasi).
        """
        columns = zip(self.axes, positions.T, strict=True)
        return np.hstack([axis.coordinates(column) for axis, column in columns])

    @cached_property
    def axis_of_dimension(self) -> Ints:
        """The axis of each dimension, shape (n_dimensions of all axes,)."""
        return np.repeat(np.arange(len(self.axes)), [axis.n_dimensions for axis in self.axes])

    def box(self, corner: Floats) -> Box:
        """Return the box of a corner, shape (n_dimensions of all axes,)."""
        ends = np.cumsum([axis.n_dimensions for axis in self.axes])
        corners = np.split(corner, ends[:-1])
        return tuple(axis.part(part) for axis, part in zip(self.axes, corners, strict=True))

    def ncp(self, box: Box) -> float:
        """Return the NCP of a box."""
        return sum(axis.cost(mask) for axis, mask in zip(self.axes, box, strict=True))

    def count(self, box: Box) -> int:
        """Return the number of people in a box."""
        columns = zip(box, self.positions.T, strict=True)
        is_inside = np.logical_and.reduce([mask[column] for mask, column in columns])
        return int(self.people[is_inside].sum())

    def size(self, box: Box) -> int:
        """Return the number of combinations in a box."""
        return prod(int(mask.sum()) for mask in box)

    def combinations(self, box: Box) -> Ints:
        """Return all combinations of a box as positions on the axes, shape (size, n_quasi)."""
        return all_combinations([np.flatnonzero(mask) for mask in box])

    def sample(self, box: Box, n: int, random: np.random.Generator) -> Ints:
        """Draw n combinations of a box with replacement, as positions, shape (n, n_quasi)."""
        return np.column_stack([random.choice(np.flatnonzero(mask), n) for mask in box])

    def rows(self, positions: Ints) -> Floats:
        """Return the counterfactual with other quasi-identifiers, shape (n, n_features)."""
        rows = np.repeat(self.row[None], len(positions), axis=0)
        for j, axis in enumerate(self.axes):
            rows[:, self.codes.quasi[j]] = axis.values[positions[:, j]]
        return rows

    def small_changes(self, box: Box) -> list[Box]:
        """Return the boxes that differ by one value on one axis.

        A value is added if the axis has a single value, and removed if it has several.
        """
        changes = []
        for j, (axis, mask) in enumerate(zip(self.axes, box, strict=True)):
            if mask.sum() == 1:
                parts = [axis.joined(mask, position) for position in axis.addable(mask)]
            else:
                parts = [_without(mask, position) for position in axis.removable(mask)]
            for part in parts:
                changes.append((*box[:j], part, *box[j + 1 :]))
        return changes

    def proposal(
        self, box: Box, pureness: float | None = None, gap: float | None = None
    ) -> Proposal:
        """Return the proposal of a box."""
        values = [axis.values[mask] for axis, mask in zip(self.axes, box, strict=True)]
        return Proposal(tuple(values), self.ncp(box), pureness, gap)


def _without(mask: Mask, position: int) -> Mask:
    smaller = mask.copy()
    smaller[position] = False
    return smaller
