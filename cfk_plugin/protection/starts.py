"""Starts: the points from which the search for answers begins.

Starts have shared private values, the query's own values, and quasi-identifiers inside regions.
None of these belongs to one person, except ends of regions, which are published. There are several
kinds of starts. Most of them do not have the outcome; the search asks the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.codes import MISSING, Floats, Ints, Mask, distinct_rows
from cfk_plugin.data.constraints import Limits
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.catalogue import Catalogue
from cfk_plugin.protection.moves import Distance
from cfk_plugin.protection.regions import LineParts, SetParts

PAIRS_AT_ONCE = 200_000  # pairs of a query and a region, entry or private values in memory
_NEAR = 24  # nearest regions, and nearest private values, that are combined
_NEAREST = 48  # starts of each kind
_ENTRIES = 32  # nearest entries
_WEAK = 8  # nearest regions whose required combinations are tried
_WEAK_POINTS = 8  # points of each of these regions
_SINGLE = 16  # values of one column that are tried with the query's own values in all others
_SINGLE_OF_REGION = 4  # values of one private column that are tried with points of regions


@dataclass(frozen=True, eq=False, repr=False)
class Points(HostOnly):
    """n points, each of one query.

    Attributes
    ----------
    query : shape (n,)
        The position of each point's query.
    rows : shape (n, n_features)
    region : shape (n,)
        The region of each point; -1 if it has none yet.
    """

    query: Ints
    rows: Floats
    region: Ints

    @classmethod
    def of(cls, query: Ints, rows: Floats) -> Points:
        """Return points without a region."""
        return cls(query, rows, np.full(len(query), -1))

    @classmethod
    def joined(cls, parts: Sequence[Points]) -> Points:
        """Return the points of all parts, one after the other."""
        return cls(
            np.concatenate([part.query for part in parts]),
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.region for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.query)

    def take(self, points: Ints | Mask | slice) -> Points:
        return Points(self.query[points], self.rows[points], self.region[points])

    def moved(self, rows: Floats) -> Points:
        """Return the points with other rows, shape (n, n_features)."""
        return Points(self.query, rows, self.region)

    @property
    def keys(self) -> NDArray[np.void]:
        """The query and the row of each point as one value, without the region; shape (n,)."""
        return as_bytes(np.column_stack([self.query, self.rows]))

    def first_of_equal(self) -> Ints:
        """Return the position of the first of equal points of each query, in order."""
        return np.sort(np.unique(self.keys, return_index=True)[1])

    def distinct(self) -> Points:
        """Return the first of equal points of each query, in order, regardless of their regions."""
        return self.take(self.first_of_equal())


def as_bytes(rows: Floats) -> NDArray[np.void]:
    """Return each row as one value that can be compared, shape (n_rows,)."""
    contiguous = np.ascontiguousarray(rows + 0.0)  # without a negative zero
    return contiguous.view(f"V{contiguous.shape[1] * contiguous.itemsize}").reshape(-1)


@dataclass(frozen=True, eq=False, repr=False)
class Starts(HostOnly):
    """The starts of queries, by kind; all of them are permitted."""

    catalogue: Catalogue
    limits: Limits
    distance: Distance

    def __len__(self) -> int:
        return len(self.limits)

    def everywhere(self) -> Points:
        """Return the starts of all kinds, without regions."""
        values = self._private_values
        parts = [
            self.entries(np.arange(len(self))),
            *self._points_of_regions(),
            self._with_private(values),
            self._with_private(self._one_shared_value(_SINGLE)),
            self._with_one_quasi_identifier(),
        ]
        points = Points.joined(parts)
        return self._permitted(Points.of(points.query, points.rows))

    def entries(self, queries: Ints) -> Points:
        """Return the nearest entries of queries, at the nearest points of their regions.

        `queries` are positions, shape (n_queries,).
        """
        at_once = max(PAIRS_AT_ONCE // len(self.catalogue.entries), 1)
        parts = [
            self._entries(queries[first : first + at_once])
            for first in range(0, len(queries), at_once)
        ]
        return Points.joined(parts)

    def _entries(self, queries: Ints) -> Points:
        """Return the result of `entries` for a batch of queries whose pairs fit in memory."""
        entries = self.catalogue.entries
        values, place = self._values_of_entries
        total = self.distance.of_columns(values[None], self._private, queries)[:, place]
        total += self.to_region[queries][:, entries.region]
        is_permitted = self._permits_private(values, queries)[:, place]
        total = np.where(is_permitted, total, np.inf)
        best = np.argsort(total, axis=1, kind="stable")[:, :_ENTRIES]
        row, entry = _grid(best)
        query = queries[row]
        is_possible = np.isfinite(total[row, entry])
        query = query[is_possible]
        entry = entry[is_possible]
        region = entries.region[entry]
        rows = self.limits.queries[query]
        rows[:, self._quasi] = self.nearest[query, region]
        rows[:, self._private] = entries.values[entry]
        return self._permitted(Points(query, rows, region))

    @cached_property
    def _values_of_entries(self) -> tuple[Floats, Ints]:
        """The distinct private values of entries, and the position of each entry's values."""
        return distinct_rows(self.catalogue.entries.values)

    def _permits_private(self, values: Floats, queries: Ints) -> Mask:
        """Return which private values each query may have, shape (n_queries, n_values).

        `values` has the shape (n_values, n_private).
        """
        rows = np.tile(values, (len(queries), 1))
        query = np.repeat(queries, len(values))
        is_permitted = np.ones(len(query), dtype=bool)
        for column, j in zip(rows.T, self._private.tolist(), strict=True):
            is_permitted &= self.limits.permits_values(column, j, query)
        return is_permitted.reshape(len(queries), -1)

    def required_points(self, queries: Ints) -> Points:
        """Return near points of the nearest regions of queries, with the regions' weakest entries.

        The points are combinations at which the weakest entry has the outcome with the margin.
        Large regions are left out, because people determine their combinations.
        """
        catalogue = self.catalogue
        weakest = catalogue.entries.weakest
        most = catalogue.settings.most_combinations
        row, region = _grid(np.argsort(self.to_region[queries], axis=1, kind="stable")[:, :_WEAK])
        is_small = np.array([r in weakest and catalogue.regions.size(r) <= most for r in region])
        required = catalogue.required(region[is_small])
        no_rows = np.empty((0, len(catalogue.codes.columns)))
        parts = [Points.of(np.empty(0, dtype=np.int64), no_rows)]
        for q, r in zip(queries[row[is_small]].tolist(), region[is_small].tolist(), strict=True):
            rows = catalogue.codes.rows_of(required[r], catalogue.entries.values[weakest[r]])
            points = self._permitted(Points(np.full(len(rows), q), rows, np.full(len(rows), r)))
            order = np.argsort(self.distance.of(points.rows, points.query), kind="stable")
            parts.append(points.take(order[:_WEAK_POINTS]))
        return Points.joined(parts)

    def explained(self, counterfactuals: Floats) -> Points:
        """Return counterfactuals of an explainer with shared private values.

        If a category is not shared, the query's own category replaces it. `counterfactuals` has the
        shape (n_counterfactuals, n_queries, n_features); rows with NaN are left out.
        """
        n_each, n_queries, n_features = counterfactuals.shape
        rows = counterfactuals.reshape(-1, n_features)
        query = np.tile(np.arange(n_queries), n_each)
        is_row = ~np.isnan(rows).any(axis=1)
        rows = rows[is_row]
        query = query[is_row]
        for shared, j in zip(self.catalogue.shared, self._private.tolist(), strict=True):
            factual = self.limits.queries[query, j]
            stand_in = shared.nearest(rows[:, j])
            is_kept = (rows[:, j] == factual) | np.isnan(stand_in)
            rows[:, j] = np.where(is_kept, factual, stand_in)
        return Points.of(query, self.limits.nearest_rows(rows, query))

    # Regions

    @cached_property
    def nearest(self) -> Floats:
        """The permitted point of each region nearest to each query; NaN if there is none.

        The shape is (n_queries, n_regions, n_quasi).
        """
        columns = []
        for j, part in zip(self._quasi.tolist(), self.catalogue.regions.parts, strict=True):
            factual = self.limits.queries[:, j]
            nearest = _nearest_values(part, j, self.limits)
            columns.append(np.where(part.contains_by_region(factual), factual[:, None], nearest))
        return np.stack(columns, axis=2)

    @cached_property
    def to_region(self) -> Floats:
        """The distance of each query to each region, shape (n_queries, n_regions).

        It is infinite if the region has no entry or no permitted point.
        """
        to_region = self.distance.of_columns(self.nearest, self._quasi)
        has_entry = np.isin(np.arange(to_region.shape[1]), self.catalogue.entries.region)
        has_point = ~np.isnan(self.nearest).any(axis=2)
        return np.where(has_entry & has_point, to_region, np.inf)

    def _points_of_regions(self) -> list[Points]:
        """Return near points of regions with the query's own or with near shared values."""
        factual = self.limits.queries[:, None, self._private]
        return [
            self._combined(np.concatenate([factual, self._private_values], axis=1)),
            self._combined(self._one_shared_value(_SINGLE_OF_REGION)),
        ]

    def _combined(self, values: Floats) -> Points:
        """Combine near regions with near private values; return the nearest pairs of each query.

        `values` has the shape (n_queries, n_values, n_private).
        """
        values = self._permitted_private(values)
        to_values = self._to_private(values)
        near_region = np.argsort(self.to_region, axis=1, kind="stable")[:, :_NEAR]
        near_value = np.argsort(to_values, axis=1, kind="stable")[:, :_NEAR]
        distance_of_region = np.take_along_axis(self.to_region, near_region, axis=1)
        distance_of_value = np.take_along_axis(to_values, near_value, axis=1)
        total = distance_of_region[:, :, None] + distance_of_value[:, None]
        total = total.reshape(len(values), -1)
        query, pair = _grid(np.argsort(total, axis=1, kind="stable")[:, :_NEAREST])
        is_possible = np.isfinite(total[query, pair])
        query = query[is_possible]
        place_of_region, place_of_value = np.divmod(pair[is_possible], near_value.shape[1])
        region = near_region[query, place_of_region]
        rows = self.limits.queries[query]
        rows[:, self._quasi] = self.nearest[query, region]
        rows[:, self._private] = values[query, near_value[query, place_of_value]]
        return Points(query, rows, region)

    # Changes of the query's own row

    def _with_private(self, values: Floats) -> Points:
        """Return the queries' own quasi-identifiers with the nearest private values.

        `values` has the shape (n_queries, n_values, n_private).
        """
        values = self._permitted_private(values)
        best = np.argsort(self._to_private(values), axis=1, kind="stable")[:, :_NEAREST]
        query, place = _grid(best)
        rows = self.limits.queries[query]
        rows[:, self._private] = values[query, place]
        return Points.of(query, rows)

    def _with_one_quasi_identifier(self) -> Points:
        """Return the queries' own rows with another value of one quasi-identifier.

        Numbers come from the ends of regions with entries, which are published.
        """
        parts = []
        every = np.arange(len(self))
        with_entries = np.unique(self.catalogue.entries.region)
        for j, part in zip(self._quasi.tolist(), self.catalogue.regions.parts, strict=True):
            values = _evenly(_ends(part.take(with_entries)), _SINGLE)
            query = np.repeat(every, len(values))
            rows = self.limits.queries[query]
            rows[:, j] = self.limits.nearest(np.tile(values, len(every)), j, query)
            parts.append(Points.of(query, rows))
        return Points.joined(parts)

    # Private values

    @cached_property
    def _private_values(self) -> Floats:
        """All private values of the catalogue for each query, (n_queries, n_values, n_private)."""
        catalogue = self.catalogue
        values = np.concatenate([catalogue.centres, catalogue.entries.values])
        return np.repeat(np.unique(values, axis=0)[None], len(self), axis=0)

    def _one_shared_value(self, n: int) -> Floats:
        """Return the queries' private values with a shared value in one column.

        At most n shared values of each column are used. The shape is (n_queries, n_values,
        n_private).
        """
        factual = self.limits.queries[:, None, self._private]
        parts = [factual]
        for i, shared in enumerate(self.catalogue.shared):
            values = _evenly(shared.values, n)
            part = np.repeat(factual, len(values), axis=1)
            part[:, :, i] = values
            parts.append(part)
        return np.concatenate(parts, axis=1)

    def _permitted_private(self, values: Floats) -> Floats:
        """Replace private values that a query does not permit; see `Limits.nearest`.

        The shapes are (n_queries, n_values, n_private).
        """
        permitted = values.copy()
        query = np.repeat(np.arange(len(values)), values.shape[1])
        for i, j in enumerate(self._private.tolist()):
            nearest = self.limits.nearest(values[:, :, i].reshape(-1), j, query)
            permitted[:, :, i] = nearest.reshape(values.shape[:2])
        return permitted

    def _to_private(self, values: Floats) -> Floats:
        """Return the distance of private values from each query, (n_queries, n_values)."""
        return self.distance.of_columns(values, self._private)

    def _permitted(self, points: Points) -> Points:
        return points.take(self.limits.permits(points.rows, points.query))

    @property
    def _quasi(self) -> Ints:
        return self.catalogue.codes.quasi

    @property
    def _private(self) -> Ints:
        return self.catalogue.codes.private


def _grid(values: Ints) -> tuple[Ints, Ints]:
    """Return the row number of each value of a matrix, and the values; shape (n_values,) each."""
    row = np.repeat(np.arange(len(values)), values.shape[1])
    return row, values.reshape(-1)


def _evenly(values: Floats, n: int) -> Floats:
    """Return at most n of the values, evenly spaced by rank."""
    if len(values) <= n:
        return values
    return values[np.linspace(0, len(values) - 1, n).round().astype(np.int64)]


# Parts of regions


def _nearest_values(part: LineParts | SetParts, j: int, limits: Limits) -> Floats:
    """Return the permitted value of each region nearest to each query, (n_queries, n_regions).

    NaN means no such value. The query's own value is not considered as permitted here.
    """
    if isinstance(part, SetParts):
        return _first_categories(part, limits.options[j])
    if j in limits.options:
        nearest = _nearest_levels(part, limits.queries[:, j], limits.options[j])
    else:
        nearest = _nearest_numbers(part, j, limits)
    if limits.rules[j].permits_missing:
        nearest = np.where(np.isnan(nearest) & part.has_missing, MISSING, nearest)
    return nearest


def _nearest_numbers(part: LineParts, j: int, limits: Limits) -> Floats:
    """Return the nearest permitted number of each region, (n_queries, n_regions)."""
    lowest = np.maximum(part.low, limits.low[:, [j]])
    highest = np.minimum(part.high, limits.high[:, [j]])
    nearest = np.minimum(np.maximum(limits.queries[:, [j]], lowest), highest)
    return np.where(lowest <= highest, nearest, np.nan)


def _nearest_levels(part: LineParts, factual: Floats, is_option: Mask) -> Floats:
    """Return the nearest permitted level of each region, (n_queries, n_regions).

    `factual` has the shape (n_queries,), `is_option` (n_queries, n_levels).
    """
    levels = np.arange(is_option.shape[1])
    is_inside = (levels >= part.low[:, None]) & (levels <= part.high[:, None])
    is_possible = is_option[:, None] & is_inside  # (n_queries, n_regions, n_levels)
    gap = np.abs(levels - factual[:, None])
    nearest = np.where(is_possible, gap[:, None], np.inf).argmin(axis=2)
    return np.where(is_possible.any(axis=2), nearest, np.nan)


def _first_categories(part: SetParts, is_option: Mask) -> Floats:
    """Return the first permitted category of each region, (n_queries, n_regions).

    `is_option` has the shape (n_queries, n_values).
    """
    is_possible = part.inside & is_option[:, None]  # (n_queries, n_regions, n_values)
    return np.where(is_possible.any(axis=2), is_possible.argmax(axis=2), np.nan)


def _ends(part: LineParts | SetParts) -> Floats:
    """Return the values that bound regions: their categories, or the ends of their ranges."""
    if isinstance(part, SetParts):
        return np.flatnonzero(part.inside.any(axis=0)).astype(np.float64)
    ends: Floats = np.unique(np.concatenate([part.low, part.high]))
    return ends[np.isfinite(ends)]
