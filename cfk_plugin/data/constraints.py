"""Constraints: the columns that an answer may change, and the values that it may give them."""

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
"""The lowest and the highest number, or, for a column without numbers, a mask of its values.

The mask of a column of levels may have one more place, for a missing level. Without this place, no
level may become missing.
"""


@dataclass(frozen=True, eq=False, repr=False)
class Rule(HostOnly):
    """The changes that one column permits, for all queries.

    Attributes
    ----------
    column : Column
    change : {"any", "increase", "decrease", "never"}
    within : Permitted, optional
        The range or the values that the call permits.
    never_advised : shape (n_codes,)
        Codes that an answer may have only if its query has them.
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
        """Return the lowest and the highest number or level to which each query may change.

        A missing number or level can neither increase nor decrease: the lowest is then above the
        highest. `factual`, the values of the queries, and both results have the shape (n_queries,).
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
        """Return the levels or categories that each query may have, shape (n_queries, n_values).

        `factual`, the values of the queries, has the shape (n_queries,).
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
    """Return the intersection of the ranges from `low` to `high` with one more range."""
    return np.maximum(low, ends[0]), np.minimum(high, ends[1])


@dataclass(frozen=True, eq=False, repr=False)
class Limits(HostOnly):
    """The values that the answers to each query may have.

    The query's own value is always permitted. An immutable column permits no other value, a
    monotone column only values in its direction, and a column with a permitted range or mask only
    values inside. A value that is never advised is permitted only if the query has it. A missing
    value can neither increase nor decrease.

    Attributes
    ----------
    codes : Codes
    queries : shape (n_queries, n_features)
    rules : list of Rule, one for each column
    low, high : shape (n_queries, n_features)
        The lowest and the highest permitted number or level; not used for categories.
    options : dict of position of column to mask of shape (n_queries, n_values)
        The permitted levels and categories of each column without numbers.
    max_changes : int, optional
        The largest number of columns that may change.
    costs : shape (n_features,)
        Factors by which distances multiply a change of each column.
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
        """Combine the rules of the schema and of the call into limits for queries.

        Parameters
        ----------
        codes : Codes
        queries : shape (n_queries, n_features)
        change : mapping of column to {"any", "increase", "decrease", "never"}, optional
            Replaces the change that the schema declares for the column.
        permitted : mapping of column to Permitted, optional
            The range of a column of numbers or dates (seconds), or the mask, shape (n_values,), of
            another column. With a range, no number may become missing.
        never_advised : mapping of column to values as text, None for missing, optional
            Values in addition to those of the schema.
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
        """Return the limits of the queries at these positions."""
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
        """Return which rows obey all rules and have only permitted values, shape (n_rows,).

        The number of changes is not checked; see `few_changes`.

        Parameters
        ----------
        rows : shape (n_rows, n_features)
        query : shape (n_rows,); the position of each row's query
        """
        is_permitted = self.codes.obey_rules(rows)
        for j in range(len(self.rules)):
            is_permitted &= self.permits_values(rows[:, j], j, query)
        return is_permitted

    def permits_values(self, values: Floats, j: int, query: Ints) -> Mask:
        """Return which values of column `j` their query may have, shape (n_values,).

        `query`, shape (n_values,), is the position of each value's query.
        """
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
        """Return which rows change at most `max_changes` columns, shape (n_rows,)."""
        if self.max_changes is None:
            return np.ones(len(rows), dtype=bool)
        n_changes = (rows != self.queries[query]).sum(axis=1)
        few: Mask = n_changes <= self.max_changes
        return few

    def nearest(self, values: Floats, j: int, query: Ints) -> Floats:
        """Replace each value of column `j` that its query does not permit, shape (n_values,).

        A number becomes the nearest permitted number. A level or a category becomes the query's
        own value.
        """
        factual = self.queries[query, j]
        candidates = values
        if self.rules[j].column.is_numeric:
            low = self.low[query, j]
            high = self.high[query, j]
            is_number = (values != MISSING) & (low <= high)
            candidates = np.where(is_number, np.clip(values, low, np.maximum(low, high)), values)
        return np.where(self.permits_values(candidates, j, query), candidates, factual)

    def nearest_rows(self, rows: Floats, query: Ints) -> Floats:
        """Replace the values of rows that their query does not permit; see `nearest`."""
        columns = [self.nearest(rows[:, j], j, query) for j in range(len(self.rules))]
        return np.column_stack(columns)


def _codes_of(column: Column, texts: Collection[str | None]) -> Floats:
    """Return the codes of values given as text, shape (n_codes,); None is a missing value.

    Values that are not in the training table are left out, and so are numbers.
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
