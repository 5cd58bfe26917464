"""Points that answers ask for, as arrays, and the table of values that they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.decision import Mask
from cfk_plugin.data.encoded_table import FEW, EncodedTable, encode, table_of
from cfk_plugin.errors import HostOnly
from cfk_plugin.metrics.heom import differences
from cfk_plugin.protection.axes import Floats, Ints
from cfk_plugin.protection.catalogue.catalogue import Catalogue

TIE = 1e-9
"""Distances that differ by less are equal."""

Keys = NDArray[np.uint64]
"""Hashes of private values: points with the same private values have the same key."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Points(HostOnly):
    """Rows of n points, as places in a `ValueTable`.

    Attributes
    ----------
    places : int64, shape (n, n_features)
        The place of each value in the `ValueTable`; -1 for a number that the table does not have.
    numbers : float64, shape (n, n_features)
        The number itself where the place is -1; elsewhere without meaning.
    """

    places: Ints
    numbers: Floats

    def __len__(self) -> int:
        return len(self.places)

    def take(self, rows: Ints | Mask) -> Points:
        """Return some of the points, given by their positions or by a mask of shape (n,)."""
        positions = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        # `take` is faster than indexing
        return Points(self.places.take(positions, axis=0), self.numbers.take(positions, axis=0))

    def copy(self) -> Points:
        return Points(self.places.copy(), self.numbers.copy())

    def either(self, other_points: Points, is_other: Mask) -> Points:
        """Return row i of `other_points` where `is_other` is True; otherwise row i.

        The mask `is_other` has the shape (n,).
        """
        is_other_value = is_other[:, None]  # (n, 1)
        return Points(
            np.where(is_other_value, other_points.places, self.places),
            np.where(is_other_value, other_points.numbers, self.numbers),
        )

    def differ(self, other_points: Points) -> Mask:
        """Return a mask of shape (n,): True where row i is not row i of `other_points`."""
        has_other_place = self.places != other_points.places
        has_other_number = (self.places < 0) & (self.numbers != other_points.numbers)
        return np.asarray((has_other_place | has_other_number).any(axis=1))

    def put(self, rows: Ints, columns: Ints, source: Points, source_rows: Ints) -> None:
        """Overwrite one value of each of m rows with one of `source`, in the same column.

        `rows`, `columns` and `source_rows` have the shape (m,).
        """
        self.places[rows, columns] = source.places[source_rows, columns]
        self.numbers[rows, columns] = source.numbers[source_rows, columns]

    def write(self, rows: Ints, column: int, numbers: Floats) -> None:
        """Overwrite one column of m rows with numbers; both arrays have the shape (m,)."""
        self.places[rows, column] = -1
        self.numbers[rows, column] = numbers

    @classmethod
    def joined(cls, parts: Sequence[Points]) -> Points:
        """Return the points of all parts, one part after the other."""
        return cls(
            np.concatenate([part.places for part in parts]),
            np.concatenate([part.numbers for part in parts]),
        )


class ValueTable:
    """The values that points are made of: the population's, and categories that it lacks.

    The places of a feature's values are the codes of its `Domain`. Categories that only a query or
    an explainer's counterfactual has follow: place ``size + i`` is that of query i, and place
    ``size + n_queries + i`` that of its counterfactual. A category that both have is one place.

    Parameters
    ----------
    catalogue : Catalogue
    queries : EncodedTable
        The rows of the people who ask.
    start : EncodedTable
        Where the search of each query starts: `queries` itself, or a counterfactual for each.

    Attributes
    ----------
    factuals, start : Points, n_queries each
    private_columns : int64, shape (n_private,)
        Positions of the private features among all features.
    decimals : float64, shape (n_private,)
        Decimals that a private number may have while it moves; NaN for a feature that becomes the
        query's at once or not at all.
    """

    def __init__(self, catalogue: Catalogue, queries: EncodedTable, start: EncodedTable) -> None:
        heom, _ = catalogue.private_values
        self._encoder = queries.encoder
        self._domains = queries.encoder.columns
        self.schema = queries.encoder.schema
        self.decimals = np.array(catalogue.decimals, dtype=np.float64)
        self.private_columns = np.array(catalogue.private_at, dtype=np.int64)
        self._ranges = [heom.ranges.get(name, 0.0) for name in self.schema.private]
        self.factuals = self._points(queries, 0)
        self.start = self.factuals
        tables = [queries]
        if start is not queries:
            self.start = self._points(start, len(queries))
            tables.append(start)
        self._values_with_new_categories: dict[int, Any] = {}
        for j in range(len(self._domains)):
            if self._has_new_category(self.factuals, j) or self._has_new_category(self.start, j):
                if start is not queries:
                    self._unite_new_categories(queries, start, j)
                self._values_with_new_categories[j] = self._all_values(tables, j)

    def _points(self, table: EncodedTable, first_row: int) -> Points:
        """Return the rows of a table as points, and give its new categories their places."""
        places = table.codes.astype(np.int64)
        for j, domain in enumerate(self._domains):
            if domain.is_numeric:
                continue
            rows = np.flatnonzero(places[:, j] < 0)
            places[rows, j] = domain.size + first_row + rows
        return Points(places, table.numbers)

    def _has_new_category(self, points: Points, j: int) -> bool:
        return bool(self._is_new_category(points, j).any())

    def _is_new_category(self, points: Points, j: int) -> Mask:
        """Return a mask of the points whose category the population lacks; shape (n,)."""
        return np.asarray(points.places[:, j] >= self._domains[j].size)

    def _unite_new_categories(self, queries: EncodedTable, start: EncodedTable, j: int) -> None:
        """Give a new category that a query and its start have the same place."""
        of_queries = queries.frame.iloc[:, j].astype(object)
        of_start = start.frame.iloc[:, j].astype(object)
        is_equal = (of_queries == of_start).to_numpy(dtype=bool, na_value=False)
        is_new_in_both = self._is_new_category(self.factuals, j)
        is_new_in_both &= self._is_new_category(self.start, j)
        is_same = is_new_in_both & is_equal
        self.start.places[is_same, j] = self.factuals.places[is_same, j]

    def _all_values(self, tables: Sequence[EncodedTable], j: int) -> Any:
        """Return the values of a feature by place: the population's, then those of the tables."""
        domain = self._domains[j]
        columns = [domain.restore_array(np.arange(domain.size))]
        columns.extend(table.column(j) for table in tables)
        return pd.concat([pd.Series(column) for column in columns], ignore_index=True).array

    def frame(self, points: Points) -> pd.DataFrame:
        """Return points as the model takes them."""
        columns = {}
        for j, feature in enumerate(self.schema.features):
            places = points.places[:, j]
            if j in self._values_with_new_categories:
                columns[feature] = self._values_with_new_categories[j].take(places)
            else:
                columns[feature] = self._domains[j].column(places, points.numbers[:, j])
        return table_of(columns)

    def rows(self, points: Points) -> EncodedTable:
        """Return points encoded, as rows of a table would be."""
        if len(points) > FEW:
            return encode(self.frame(points), self._encoder)
        values = []
        for j, domain in enumerate(self._domains):
            places = points.places[:, j]
            if j in self._values_with_new_categories:
                values.append(self._values_with_new_categories[j].take(places).tolist())
            else:
                values.append(domain.spell(places, points.numbers[:, j]))
        return self._encoder.read_values(values)

    def number(self, points: Points, j: int) -> Floats:
        """Return feature j of points as numbers, NaN where it is missing; shape (n,)."""
        return self._domains[j].numbers_of(points.places[:, j], points.numbers[:, j])

    def gaps(self, a: Points, b: Points) -> Floats:
        """Return how much each private value of row i of `a` differs from that of row i of `b`.

        The differences are those of HEOM; shape (n, n_private).
        """
        gaps = np.empty((len(a), len(self.private_columns)))
        for i, j in enumerate(self.private_columns.tolist()):
            if self._domains[j].is_numeric:
                width = np.array(self._ranges[i])
                gaps[:, i] = differences(self.number(a, j), self.number(b, j), width)
            else:
                gaps[:, i] = a.places[:, j] != b.places[:, j]
        return gaps

    def changed(self, a: Points, b: Points) -> Mask:
        """Return a mask of the private values that differ between points; shape (n, n_private).

        Unlike `gaps` it also sees numbers that differ in a column whose range is 0.
        """
        is_changed = np.empty((len(a), len(self.private_columns)), dtype=bool)
        for i, j in enumerate(self.private_columns.tolist()):
            if self._domains[j].is_numeric:
                before = self.number(a, j)
                after = self.number(b, j)
                both_missing = np.isnan(before) & np.isnan(after)
                is_changed[:, i] = (before != after) & ~both_missing
            else:
                is_changed[:, i] = a.places[:, j] != b.places[:, j]
        return is_changed
