"""Regions: boxes over the quasi-identifiers, many of them in a few arrays.

`Regions` has one part per quasi-identifier: ranges of a number, date or level (`LineParts`), or
sets of categories or leaves (`SetParts`). Each part describes all regions at once.

`Space` gives people coordinates in which NCP is the sum of the sides of a box.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from cfk_plugin.data.codes import (
    MISSING,
    Codes,
    Column,
    Floats,
    Ints,
    Mask,
    distinct_rows,
    mixed,
)
from cfk_plugin.data.region import Interval, Part, Region, to_text
from cfk_plugin.data.schema import Hierarchy
from cfk_plugin.errors import HostOnly

_MOST_COORDINATES = 64  # for a nominal column


@dataclass(frozen=True, eq=False, repr=False)
class Space(HostOnly):
    """Coordinates of the quasi-identifiers, in which NCP is the sum of the sides of a box.

    A number, date or level has one coordinate: its code in shares of the column's span, times the
    weight of the column. A category of a nominal column with n categories has n coordinates: weight
    / n at its position, and 0 elsewhere. So a box over m > 1 categories has m sides of weight / n,
    which add up to its NCP. If there are more than 64 categories, some share a coordinate, so that
    a table with many zip codes fits in memory. Groups are formed as if such categories were equal.
    Regions still contain only the categories of their people.

    A leaf of a hierarchy has such coordinates for each level of the tree: for the leaf itself, for
    its parent, and so on up to the children of the root. The sides are chosen so that a box over
    two leaves has the NCP of their lowest common node, if all nodes of a level have equally many
    leaves. Otherwise this is an approximation by the mean over a level. Boxes over more leaves of
    the same node cost more than the node.
    """

    codes: Codes

    @cached_property
    def caps(self) -> Floats:
        """The most that each side of a box counts, shape (n_dimensions,).

        A box with numbers and missing values has the whole NCP of the column.
        """
        caps: list[float] = []
        for column in self._columns:
            if column.is_line:
                caps.append(column.attribute.weight)
                continue
            for level in _levels_of(column):
                caps += [level.side] * level.n_nodes
        return np.array(caps)

    def points(self, rows: Floats) -> Floats:
        """Return the coordinates of rows, shape (n_rows, n_dimensions).

        `rows` has the shape (n_rows, n_features).
        """
        points = np.zeros((len(rows), len(self.caps)))
        every_row = np.arange(len(rows))
        first = 0  # dimension of the next column or level
        for j, column in zip(self.codes.quasi.tolist(), self._columns, strict=True):
            if column.is_line:
                points[:, first] = rows[:, j] * (column.attribute.weight / column.span)
                first += 1
                continue
            positions = rows[:, j].astype(np.int64)
            for level in _levels_of(column):
                points[every_row, first + level.node_of_value[positions]] = level.side
                first += level.n_nodes
        return points

    @property
    def _columns(self) -> list[Column]:
        return [self.codes.columns[j] for j in self.codes.quasi.tolist()]


def box_ncp(low: Floats, high: Floats, caps: Floats) -> Floats:
    """Return the NCP of boxes; the last axis of all arrays is that of the dimensions."""
    ncp: Floats = np.minimum(high - low, caps).sum(axis=-1)
    return ncp


class _Level(NamedTuple):
    """A level of a tree over the categories of a column.

    Attributes
    ----------
    node_of_value : shape (n_values,)
        The number of each value's node, from 0.
    side : float
        The NCP that each node adds to a box over several nodes.
    """

    node_of_value: Ints
    side: float

    @property
    def n_nodes(self) -> int:
        return int(self.node_of_value.max()) + 1


def _levels_of(column: Column) -> list[_Level]:
    """Return the levels of a column's hierarchy below the root.

    A nominal column has one level. A missing value is one more node of each level.
    """
    weight = column.attribute.weight
    n_values = len(column.values)
    hierarchy = column.attribute.hierarchy
    if hierarchy is None:
        return [_Level(np.arange(n_values) % _MOST_COORDINATES, weight / n_values)]
    n_leaves = hierarchy.high - hierarchy.low + 1  # under each node
    levels = []
    nodes: Ints = np.arange(len(hierarchy.leaves))  # above each leaf
    apart = 1.0  # distance of two leaves with the same parent; each leaf has half of it
    while hierarchy.parent[nodes[0]] >= 0:
        parents = hierarchy.parent[nodes].astype(np.int64)
        apart += float(np.mean(n_leaves[parents] - n_leaves[nodes]))
        node_of_value = np.unique(nodes, return_inverse=True)[1].reshape(-1)
        if column.has_missing:
            node_of_value = np.append(node_of_value, node_of_value.max() + 1)
        levels.append(_Level(node_of_value, weight * apart / 2 / n_values))
        nodes = parents
        apart = 0.0
    return levels


@dataclass(frozen=True, eq=False, repr=False)
class LineParts(HostOnly):
    """The ranges of one column of numbers, dates or levels in many regions.

    Attributes
    ----------
    column : Column
    low, high : shape (n_regions,)
        The codes of both ends, included; inf and -inf if only missing values are inside.
    has_missing : shape (n_regions,)
        Whether missing values are inside.
    """

    column: Column
    low: Floats
    high: Floats
    has_missing: Mask

    @classmethod
    def of_groups(cls, column: Column, values: Floats, group: Ints, n_groups: int) -> LineParts:
        """Return the smallest ranges of groups; `values` and `group` have the shape (n_rows,)."""
        is_missing = values == MISSING
        low = np.full(n_groups, np.inf)
        high = np.full(n_groups, -np.inf)
        has_missing = np.zeros(n_groups, dtype=bool)
        np.minimum.at(low, group[~is_missing], values[~is_missing])
        np.maximum.at(high, group[~is_missing], values[~is_missing])
        has_missing[group[is_missing]] = True
        if column.attribute.weight == 0 and len(column.places):
            low = np.minimum(low, column.places[0])
            high = np.maximum(high, column.places[-1])
            has_missing |= column.has_missing
        return cls(column, low, high, has_missing)

    @cached_property
    def ncp(self) -> Floats:
        """The NCP of each part, without the weight, shape (n_regions,)."""
        has_range = self.low <= self.high
        ncp = np.zeros(len(self.low))
        if len(self.column.places) > 1:
            width = (self.high - self.low)[has_range]
            ncp[has_range] = np.minimum(width / self.column.span, 1.0)
        ncp[has_range & self.has_missing] = 1.0
        return ncp

    def contains(self, values: Floats, region: int) -> Mask:
        """Return which values are inside a region, shape (n_values,)."""
        is_inside: Mask = (values >= self.low[region]) & (values <= self.high[region])
        if self.has_missing[region]:
            is_inside |= values == MISSING
        return is_inside

    def contains_by_region(self, values: Floats) -> Mask:
        """Return which values are inside which regions, shape (n_values, n_regions)."""
        values = values[:, None]  # an axis for the regions
        is_inside: Mask = (values >= self.low) & (values <= self.high)
        is_inside |= (values == MISSING) & self.has_missing
        return is_inside

    @cached_property
    def n_options(self) -> Ints:
        """The number of training values inside each region, shape (n_regions,)."""
        first = np.searchsorted(self.column.places, self.low, side="left")
        end = np.searchsorted(self.column.places, self.high, side="right")
        n_options: Ints = np.maximum(end - first, 0) + self.has_missing
        return n_options

    def options(self, region: int) -> Floats:
        """Return the training values inside a region, shape (n_options,); `MISSING` is last."""
        places = self.column.places
        options = places[(places >= self.low[region]) & (places <= self.high[region])]
        return np.append(options, MISSING) if self.has_missing[region] else options

    def ends(self, region: int) -> Floats:
        """Return both ends, and `MISSING` if it is inside, shape (n_ends,).

        After an update of the table, perhaps no row has them.
        """
        ends: list[float] = []
        if self.low[region] <= self.high[region]:
            ends += [self.low[region], self.high[region]]
        if self.has_missing[region]:
            ends.append(MISSING)
        return np.array(ends)

    def part(self, region: int) -> Part:
        """Return the part of a region in the form in which it is released."""
        low = float(self.low[region])
        high = float(self.high[region])
        has_missing = bool(self.has_missing[region])
        is_ordinal = self.column.kind == "ordinal"
        if low > high:
            no_levels = () if is_ordinal else None
            return Interval(None, None, has_missing, no_levels)
        if is_ordinal:
            levels = tuple(map(to_text, self.column.values[int(low) : int(high) + 1]))
            return Interval(levels[0], levels[-1], has_missing, levels)
        return Interval(self.column.value(low), self.column.value(high), has_missing)

    def take(self, regions: Ints | Mask) -> LineParts:
        return LineParts(
            self.column, self.low[regions], self.high[regions], self.has_missing[regions]
        )


@dataclass(frozen=True, eq=False, repr=False)
class SetParts(HostOnly):
    """The sets of one column of categories, or leaves of a hierarchy, in many regions.

    Attributes
    ----------
    column : Column
    inside : shape (n_regions, n_values)
        Which values are inside each region.
    """

    column: Column
    inside: Mask

    @classmethod
    def of_groups(cls, column: Column, values: Floats, group: Ints, n_groups: int) -> SetParts:
        """Return the smallest sets of groups; `values` and `group` have the shape (n_rows,).

        In a hierarchy these are all leaves under the lowest node.
        """
        inside = np.zeros((n_groups, len(column.values)), dtype=bool)
        inside[group, values.astype(np.int64)] = True
        if column.attribute.weight == 0:
            inside[:] = True
        elif column.attribute.hierarchy is not None:
            inside = _under_nodes(column.attribute.hierarchy, inside)
        return cls(column, inside)

    @cached_property
    def ncp(self) -> Floats:
        """The NCP of each part, without the weight, shape (n_regions,)."""
        n_inside = self.n_options
        return np.where(n_inside > 1, n_inside / self.inside.shape[1], 0.0)

    def contains(self, values: Floats, region: int) -> Mask:
        """Return which values are inside a region, shape (n_values,)."""
        is_inside: Mask = self.inside[region].take(values.astype(np.int64))
        return is_inside

    def contains_by_region(self, values: Floats) -> Mask:
        """Return which values are inside which regions, shape (n_values, n_regions)."""
        is_inside: Mask = self.inside.T.take(values.astype(np.int64), axis=0)
        return is_inside

    @cached_property
    def n_options(self) -> Ints:
        """The number of categories inside each region, shape (n_regions,)."""
        n_inside: Ints = self.inside.sum(axis=1, dtype=np.int64)
        return n_inside

    def options(self, region: int) -> Floats:
        """Return the categories inside a region, shape (n_options,)."""
        return np.flatnonzero(self.inside[region]).astype(np.float64)

    ends = options

    def part(self, region: int) -> Part:
        """Return the part of a region in the form in which it is released."""
        return frozenset(self.column.values[self.inside[region]].tolist())

    def take(self, regions: Ints | Mask) -> SetParts:
        return SetParts(self.column, self.inside[regions])


def _under_nodes(hierarchy: Hierarchy, inside: Mask) -> Mask:
    """Replace each set with all leaves under the lowest node that covers it.

    The shapes are (n_sets, n_values). No node covers a missing value, so a set with it and another
    value becomes the set of all values.
    """
    n_leaves = len(hierarchy.leaves)
    leaves = inside[:, :n_leaves]
    n_missing = inside[:, n_leaves:].sum(axis=1)
    n_inside = leaves.sum(axis=1)
    first = leaves.argmax(axis=1)
    last = n_leaves - 1 - leaves[:, ::-1].argmax(axis=1)
    lowest = np.zeros(len(inside), dtype=np.int64)
    for node in np.argsort(hierarchy.low - hierarchy.high, kind="stable"):  # the largest first
        is_cover = (hierarchy.low[node] <= first) & (last <= hierarchy.high[node])
        lowest[is_cover] = node
    position = np.arange(n_leaves)
    low = hierarchy.low[lowest][:, None]
    high = hierarchy.high[lowest][:, None]
    is_under = (low <= position) & (position <= high)
    under = inside.copy()
    under[:, :n_leaves] = np.where(n_inside[:, None] > 0, is_under, leaves)
    under[(n_missing > 0) & (n_inside > 0)] = True
    return under


@dataclass(frozen=True, eq=False, repr=False)
class Regions(HostOnly):
    """Regions over the quasi-identifiers.

    Attributes
    ----------
    codes : Codes
    parts : tuple of LineParts or SetParts
        One per quasi-identifier, in the order of ``codes.quasi``.
    """

    codes: Codes
    parts: tuple[LineParts | SetParts, ...]

    @classmethod
    def of_groups(cls, codes: Codes, rows: Floats, group: Ints) -> Regions:
        """Return the smallest region of each group of rows.

        A quasi-identifier of weight 0 is generalised to all its values.

        Parameters
        ----------
        codes : Codes
        rows : shape (n_rows, n_features)
        group : shape (n_rows,)
            The group of each row. Every number from 0 to the largest must occur.
        """
        n_groups = int(group.max(initial=-1)) + 1
        parts: list[LineParts | SetParts] = []
        for j in codes.quasi.tolist():
            column = codes.columns[j]
            values = rows[:, j]
            if column.is_line:
                parts.append(LineParts.of_groups(column, values, group, n_groups))
            else:
                parts.append(SetParts.of_groups(column, values, group, n_groups))
        return cls(codes, tuple(parts))

    def __len__(self) -> int:
        return len(self.parts[0].ncp)

    def _counts(self) -> str:
        return f"{len(self)} regions"

    @cached_property
    def ncp(self) -> Floats:
        """The NCP of each region, shape (n_regions,)."""
        ncp = np.zeros(len(self))
        for part in self.parts:
            ncp += part.column.attribute.weight * part.ncp
        return ncp

    def contains(self, rows: Floats, region: int) -> Mask:
        """Return which rows, shape (n_rows, n_features), are inside a region; shape (n_rows,)."""
        is_inside = np.ones(len(rows), dtype=bool)
        for j, part in zip(self.codes.quasi.tolist(), self.parts, strict=True):
            is_inside &= part.contains(rows[:, j], region)
        return is_inside

    def contains_by_region(self, rows: Floats) -> Mask:
        """Return which rows are inside which regions, shape (n_rows, n_regions)."""
        is_inside = np.ones((len(rows), len(self)), dtype=bool)
        for j, part in zip(self.codes.quasi.tolist(), self.parts, strict=True):
            is_inside &= part.contains_by_region(rows[:, j])
        return is_inside

    def cover(self, rows: Floats) -> Mask:
        """Return which rows, shape (n_rows, n_features), are inside any region; (n_rows,)."""
        cells, cell = distinct_rows(rows[:, self.codes.quasi])
        values, low, high = self._narrowest(cells)
        order = np.argsort(values, kind="stable")
        points = self.codes.rows_of(cells[order], np.full(len(self.codes.private), MISSING))
        points = np.asfortranarray(points)  # parts read columns
        start = np.searchsorted(values[order], low, side="left").tolist()
        stop = np.searchsorted(values[order], high, side="right").tolist()
        is_covered = np.zeros(len(cells), dtype=bool)
        for region in range(len(self)):
            near = slice(start[region], stop[region])
            is_covered[near] |= self.contains(points[near], region)
        is_inside = np.empty(len(cells), dtype=bool)
        is_inside[order] = is_covered
        return is_inside[cell]

    def _narrowest(self, cells: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the values of cells, and the ends of regions, in the column of narrowest regions.

        `cells` has the shape (n_cells, n_quasi). The ends are infinite if no column is a line.
        """
        lines = {i: part for i, part in enumerate(self.parts) if isinstance(part, LineParts)}
        if not lines:
            return np.zeros(len(cells)), np.full(len(self), -np.inf), np.full(len(self), np.inf)
        narrowest = min(lines, key=lambda i: float(lines[i].ncp.sum()))
        part = lines[narrowest]
        low = np.where(part.has_missing, MISSING, part.low)
        high = np.where(part.low > part.high, MISSING, part.high)
        return cells[:, narrowest], low, high

    def corners(self) -> tuple[Floats, Ints]:
        """Return combinations whose hulls are the regions, and the region of each.

        The shapes are (n_corners, n_quasi) and (n_corners,).
        """
        corners = [np.empty((0, len(self.parts)))]
        for region in range(len(self)):
            options = [part.ends(region) for part in self.parts]
            n_corners = max(map(len, options))
            corners.append(np.column_stack([np.resize(values, n_corners) for values in options]))
        n_corners_of_region = [len(region_corners) for region_corners in corners[1:]]
        return np.concatenate(corners), np.repeat(np.arange(len(self)), n_corners_of_region)

    def size(self, region: int) -> int:
        """Return the number of combinations of training values in a region."""
        return prod(int(part.n_options[region]) for part in self.parts)

    def combinations(self, region: int) -> Floats:
        """Return all combinations of training values in a region, shape (size, n_quasi)."""
        return mixed([part.options(region) for part in self.parts])

    def sample(self, region: int, n: int, random: np.random.Generator) -> Floats:
        """Draw n combinations of a region with replacement, or return all if there are at most n.

        The shape is (n_combinations, n_quasi).
        """
        if self.size(region) <= n:
            return self.combinations(region)
        return np.column_stack([random.choice(part.options(region), n) for part in self.parts])

    def region(self, region: int) -> Region:
        """Return a region in the form in which it is released, with columns in schema order."""
        in_order = [self.parts[place] for place in np.argsort(self.codes.quasi).tolist()]
        return Region({part.column.name: part.part(region) for part in in_order})

    def take(self, regions: Ints | Mask) -> Regions:
        """Return the regions with these numbers, or in a mask."""
        return Regions(self.codes, tuple(part.take(regions) for part in self.parts))
