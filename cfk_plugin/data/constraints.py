"""Constraints: what the people who ask can change, and to which values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cfk_plugin.data.codes import MISSING, Codes, Column, Floats, Ints, Mask
from cfk_plugin.data.region import to_text
from cfk_plugin.errors import HostOnly

Change = Literal["any", "increase", "decrease", "never"]

Permitted = tuple[float, float] | Mask
"""The lowest and the highest number, or a mask of the values of another column.

The mask of a column of levels may have one more place, for a missing one. Without it, none may
become missing.
"""


@dataclass(frozen=True, eq=False, repr=False)
class Rule(HostOnly):
    """What a column permits, whatever the query.

    Attributes
    ----------
    column : Column
    change : {"any", "increase", "decrease", "never"}
    within : Permitted, optional
    never_advised : shape (n_codes,)
        Codes that are permitted only to a query that has them.
    """

    column: Column
    change: Change
    within: Permitted | None
    never_advised: Floats

    @property
    def permits_missing(self) -> bool:
        """Whether a number or level may become missing."""
        if self.change != "any" or MISSING in self.never_advised:
            return False
        if isinstance(self.within, np.ndarray):
            return bool(self.within[len(self.column.values) :].any())
        return self.within is None

    def limits(self, factual: Floats) -> tuple[Floats, Floats]:
        """Return the lowest and the highest number or level that each query may change to.

        A missing number or level has no direction: it cannot increase or decrease. Then the lowest
        is above the highest. `factual` and both results have the shape (n_queries,).
        """
        low = np.full(len(factual), -np.inf)
        high = np.full(len(factual), np.inf)
        if self.column.is_numeric:
            bounds = self.column.attribute.bounds
            if bounds is not None:
                low, high = _narrowed(low, high, (bounds[0], bounds[1]))
            if isinstance(self.within, tuple):
                low, high = _narrowed(low, high, self.within)
        if self.change in ("increase", "never"):
            low = np.maximum(low, factual)
        if self.change in ("decrease", "never"):
            high = np.minimum(high, factual)
        if self.change != "any":
            low = np.where(factual == MISSING, np.inf, low)
            high = np.where(factual == MISSING, -np.inf, high)
        return low, high

    def options(self, factual: Floats) -> Mask:
        """Return which levels or categories each query may have, shape (n_queries, n_values).

        `factual` has the shape (n_queries,).
        """
        places = np.arange(len(self.column.values))
        low, high = self.limits(factual)
        is_option = np.full((len(factual), len(places)), self.change != "never")
        if self.column.is_line:
            is_option &= (places >= low[:, None]) & (places <= high[:, None])
        is_option &= ~np.isin(places, self.never_advised)
        if isinstance(self.within, np.ndarray):
            is_option &= self.within[: len(places)]
        is_permitted: Mask = is_option | (places == factual[:, None])
        return is_permitted


def _narrowed(low: Floats, high: Floats, ends: tuple[float, float]) -> tuple[Floats, Floats]:
    return np.maximum(low, ends[0]), np.minimum(high, ends[1])


@dataclass(frozen=True, eq=False, repr=False)
class Limits(HostOnly):
    """The values that answers to some queries may have.

    A query's own value is always permitted. An immutable column keeps it, a monotone one keeps it
    or moves in its direction, and one with a permitted range or mask moves into that. A value that
    is never advised may only be kept. A missing value has no direction.

    Attributes
    ----------
    codes : Codes
    queries : shape (n_queries, n_features)
    rules : list of Rule, one for each column
    low, high : shape (n_queries, n_features); of the numbers and levels that are permitted
    options : dict of column to shape (n_queries, n_values)
        Which levels and categories are permitted, of the columns that have no numbers.
    max_changes : int, optional
        Most columns that may change.
    costs : shape (n_features,)
        By which a change of each column is multiplied in distances.
    """

    codes: Codes
    queries: Floats
    rules: list[Rule]
    low: Floats
    high: Floats
    options: Mapping[int, Mask]
    max_changes: int | None
    costs: Floats

    @classmethod
    def of(
        cls,
        codes: Codes,
        queries: Floats,
        change: Mapping[str, Change] | None = None,
        permitted: Mapping[str, Permitted] | None = None,
        never_advised: Mapping[str, Collection[str | None]] | None = None,
        max_changes: int | None = None,
    ) -> Limits:
        """Return what declarations mean for queries.

        Parameters
        ----------
        codes : Codes
        queries : shape (n_queries, n_features)
        change : mapping of column to {"any", "increase", "decrease", "never"}, optional
            Instead of what the schema declares for the column.
        permitted : mapping of column to Permitted, optional
            The range of a column of numbers or dates (seconds); a mask, shape (n_values,), of
            another one. With a range, no number may become missing.
        never_advised : mapping of column to values as text, None for missing, optional
            In addition to what the schema declares for the column.
        max_changes : int, optional
        """
        rules = []
        low = np.full(queries.shape, -np.inf)
        high = np.full(queries.shape, np.inf)
        options = {}
        for j, column in enumerate(codes.columns):
            rule = Rule(
                column,
                (change or {}).get(column.name, column.attribute.change),
                (permitted or {}).get(column.name),
                _codes_of(
                    column,
                    [*column.attribute.never_advised, *(never_advised or {}).get(column.name, ())],
                ),
            )
            rules.append(rule)
            if not column.is_numeric:
                options[j] = rule.options(queries[:, j])
            if column.is_line:
                low[:, j], high[:, j] = rule.limits(queries[:, j])
        costs = np.array([column.attribute.cost for column in codes.columns])
        return cls(codes, queries, rules, low, high, options, max_changes, costs)

    def __len__(self) -> int:
        return len(self.queries)

    def take(self, queries: Ints) -> Limits:
        """Return the limits of some queries."""
        return Limits(
            self.codes,
            self.queries[queries],
            self.rules,
            self.low[queries],
            self.high[queries],
            {j: is_option[queries] for j, is_option in self.options.items()},
            self.max_changes,
            self.costs,
        )

    def permits(self, rows: Floats, query: Ints) -> Mask:
        """Return which rows have values that their query may have, and obey all rules; (n_rows,).

        How many values change is not judged; see `few_changes`.

        Parameters
        ----------
        rows : shape (n_rows, n_features)
        query : shape (n_rows,); the query of each row
        """
        is_permitted = self.codes.obey_rules(rows)
        for j in range(len(self.rules)):
            is_permitted &= self.permits_values(rows[:, j], j, query)
        return is_permitted

    def permits_values(self, values: Floats, j: int, query: Ints) -> Mask:
        """Return which values of one column their query may have, shape (n_values,)."""
        factual = self.queries[query, j]
        rule = self.rules[j]
        is_missing = (values == MISSING) & rule.column.is_line
        if j in self.options:
            place = np.where(is_missing, 0, values).astype(np.int64)
            is_permitted = self.options[j][query, place]
        else:
            is_permitted = (values >= self.low[query, j]) & (values <= self.high[query, j])
        is_permitted = np.where(is_missing, rule.permits_missing, is_permitted)
        permitted: Mask = is_permitted | (values == factual)
        return permitted

    def few_changes(self, rows: Floats, query: Ints) -> Mask:
        """Return which rows change at most so many columns as is permitted, shape (n_rows,)."""
        if self.max_changes is None:
            return np.ones(len(rows), dtype=bool)
        n_changes = (rows != self.queries[query]).sum(axis=1)
        few: Mask = n_changes <= self.max_changes
        return few

    def nearest(self, values: Floats, j: int, query: Ints) -> Floats:
        """Return values of one column, or permitted ones in their place, shape (n_values,).

        A number becomes the nearest permitted one, a level or a category the query's own.
        """
        factual = self.queries[query, j]
        moved = values
        if self.rules[j].column.is_numeric:
            low = self.low[query, j]
            high = self.high[query, j]
            is_number = (values != MISSING) & (low <= high)
            moved = np.where(is_number, np.clip(values, low, np.maximum(low, high)), values)
        return np.where(self.permits_values(moved, j, query), moved, factual)

    def nearest_rows(self, rows: Floats, query: Ints) -> Floats:
        """Return rows with permitted values; see `nearest`. Shape (n_rows, n_features)."""
        columns = [self.nearest(rows[:, j], j, query) for j in range(len(self.rules))]
        return np.column_stack(columns)


def _codes_of(column: Column, texts: Collection[str | None]) -> Floats:
    """Return the codes of values given as text, shape (n_codes,); of numbers, that of missing ones.

    Values that the training table lacks have no code.
    """
    codes = []
    if None in texts and column.is_line:
        codes.append(MISSING)
    if not column.is_numeric:
        for place, value in enumerate(column.values.tolist()):
            text = None if value is None else to_text(value)
            if text in texts:
                codes.append(float(place))
    return np.array(codes, dtype=np.float64)
