"""Codes: the encoder of rows.

A table becomes one matrix of floats, of shape (n_rows, n_features), with the features in the
order of the schema. A number stands for itself and a date for its seconds since 1970. A level of an
ordinal column, a category, and a leaf of a hierarchy stand for their position among the values of
their column. A missing number or level is `MISSING`; a missing category is one more category, after
all others. NaN means that a value has no code: either it cannot be read, or neither the
training table nor the schema has this category. A query with NaN is not answered.

Quasi-identifiers and private columns are taken in alphabetical order, so that groups and answers do
not depend on the order of the table's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.data.region import (
    Interval,
    Part,
    Region,
    dates_of,
    natural,
    spellings,
    to_date,
    to_number,
    to_text,
)
from cfk_plugin.data.relations import Relation
from cfk_plugin.data.rounding import DAY, resolution_of_dates
from cfk_plugin.data.schema import ONE_VALUE, Schema, SchemaAttribute
from cfk_plugin.data.values import (
    LARGEST,
    conform,
    factorized,
    holds_dates,
    precision_of,
    read_numbers,
    shortest,
    unreadable,
    why_inexact,
    zone_of,
)
from cfk_plugin.errors import HostOnly, PopulationError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

Kind = Literal["number", "date", "ordinal", "nominal", "hierarchy"]

FaultReason = Literal["invalid_value", "missing_value", "unknown_category", "outside_domain"]
"""Why a query cannot be answered. If several reasons apply, the first one of this list is given."""


class Fault(NamedTuple):
    """Why a query cannot be answered, and the columns at fault."""

    reason: FaultReason
    columns: tuple[str, ...]


MISSING = -1e30
"""The code of a missing number or level: below every other code."""

_SAME_NUMBER = 1e-9  # numbers that differ by this share of the column's span are one value
_MOST_DECIMALS = 6
_LEAST_TOLERANCE = 1e-300


@dataclass(frozen=True, eq=False, repr=False)
class Column(HostOnly):
    """One feature of the training table.

    Attributes
    ----------
    attribute : SchemaAttribute
        What the schema declares.
    kind : {"number", "date", "ordinal", "nominal", "hierarchy"}
    values : array, shape (n_values,)
        The distinct values: numbers, or seconds of dates, in order; levels in order; categories in
        the order of their text; leaves depth-first. If the training table has missing values, the
        last category or leaf is None.
    has_missing : bool
        Whether the training table has missing values.
    dtype : dtype of the training column
    missing : object
        How the training table writes a missing value: None, NaN, ... Encoders of scikit-learn tell
        them apart in columns of objects.
    cell : str
        The type of all cells of a column of text or objects, such as "str", "date" or "Decimal";
        empty if there are several.
    """

    attribute: SchemaAttribute
    kind: Kind
    values: NDArray[Any]
    has_missing: bool
    dtype: Any
    missing: Any = None
    cell: str = ""

    @classmethod
    def read(cls, series: pd.Series, attribute: SchemaAttribute) -> Column:
        """Read a column of the training table.

        Raises
        ------
        PopulationError
            If codes would not tell its values apart, or the schema does not declare them.
        """
        if attribute.kind == "numeric":
            values: NDArray[Any] = _numbers(series, attribute.name)
            kind: Kind = "date" if holds_dates(series) else "number"
        elif attribute.kind == "ordinal":
            values = _categories(series, attribute)
            kind = "ordinal"
        else:
            values = _categories(series, attribute)
            kind = "hierarchy" if attribute.hierarchy is not None else "nominal"
        is_missing = series.isna().to_numpy()
        has_missing = bool(is_missing.any())
        missing = series.iloc[int(is_missing.argmax())] if has_missing else None
        if has_missing and kind in ("nominal", "hierarchy"):
            values = np.array([*values.tolist(), None], dtype=object)
        values.setflags(write=False)  # protectors get the population
        return cls(attribute, kind, values, has_missing, series.dtype, missing, _cell_type(series))

    def _counts(self) -> str:
        return f"{self.name!r}, {self.kind}, {len(self.values)} values"

    @property
    def name(self) -> str:
        return self.attribute.name

    @property
    def is_line(self) -> bool:
        """Whether the values are ordered: numbers, dates and levels."""
        return self.kind in ("number", "date", "ordinal")

    @property
    def is_numeric(self) -> bool:
        """Whether codes are numbers, or seconds of dates, and not positions."""
        return self.kind in ("number", "date")

    @property
    def is_quasi_identifier(self) -> bool:
        return self.attribute.role == "quasi-identifier"

    @cached_property
    def places(self) -> Floats:
        """The codes of `values`, in order; shape (n_values,). `MISSING` is not among them."""
        if self.is_numeric:
            return self.values
        return np.arange(len(self.values), dtype=np.float64)

    @property
    def n_distinct(self) -> int:
        """The number of values, without a missing one."""
        is_missing = self.has_missing and not self.is_line
        return len(self.values) - is_missing

    @cached_property
    def span(self) -> float:
        """The highest code minus the lowest; 1 for categories and for fewer than two values."""
        if not self.is_line or len(self.values) < 2:
            return 1.0
        return float(self.places[-1] - self.places[0])

    @cached_property
    def decimals(self) -> int:
        """The number of decimals that the numbers of the training table need, at most 6."""
        if types.is_integer_dtype(self.dtype):
            return 0
        for decimals in range(_MOST_DECIMALS):
            if np.array_equal(np.round(self.values, decimals), self.values):
                return decimals
        return _MOST_DECIMALS

    @cached_property
    def resolution(self) -> float:
        """The resolution of dates in seconds, see `resolution_of_dates`; 0 for other columns."""
        if self.kind != "date":
            return 0.0
        return resolution_of_dates(self.on_the_clock(self.values))

    def on_the_clock(self, seconds: Floats) -> Floats:
        """Convert seconds in UTC to local time in the column's time zone; any shape."""
        zone = zone_of(self.dtype)
        if zone is None:
            return seconds

        def local_time(moments: pd.DatetimeIndex) -> pd.DatetimeIndex:
            return moments.tz_localize("UTC").tz_convert(zone).tz_localize(None)

        return _with_dates(seconds, local_time)

    def from_the_clock(self, seconds: Floats) -> Floats:
        """Convert local time in the column's time zone back to seconds in UTC; any shape.

        A time in an hour that the clocks skip moves to the next hour. If the clocks show an hour
        twice, the first one is meant.
        """
        zone = zone_of(self.dtype)
        if zone is None:
            return seconds

        def utc(local_time: pd.DatetimeIndex) -> pd.DatetimeIndex:
            is_first = np.ones(len(local_time), dtype=bool)
            moments = local_time.tz_localize(zone, ambiguous=is_first, nonexistent="shift_forward")
            return moments.tz_convert("UTC").tz_localize(None)

        return _with_dates(seconds, utc)

    def encode(self, series: pd.Series) -> Floats:
        """Return the code of each value, shape (n_rows,); NaN if a value has none."""
        if self.is_numeric:
            return self._encode_numbers(series)
        positions, distinct = factorized(series)
        codes = [self._code_of(value) for value in distinct]
        return np.array([*codes, self.code_of_missing])[positions]

    def _code_of(self, value: Any) -> float:
        """Return the code of a category in any spelling; NaN if it has none."""
        texts = [text for text in spellings(value) if text in self._code_of_text]
        return self._code_of_text[texts[0]] if texts else np.nan

    def _encode_numbers(self, series: pd.Series) -> Floats:
        """Return the codes of numbers or dates, shape (n_rows,); see `encode`."""
        numbers, is_invalid = read_numbers(series, are_dates=self.kind == "date")
        precision = precision_of(self.dtype)
        if precision is not None:  # the model gets numbers of this precision
            numbers = shortest(numbers, precision)
        is_missing = np.isnan(numbers) & ~is_invalid
        is_invalid |= np.abs(numbers) > LARGEST
        codes = np.where(is_invalid, np.nan, numbers + 0.0)
        codes[is_missing] = MISSING
        return self._snapped(codes)

    def _snapped(self, codes: Floats) -> Floats:
        """Replace each number that equals a training value except for rounding with that value."""
        if not len(self.values):
            return codes
        right = np.searchsorted(self.values, codes).clip(max=len(self.values) - 1)
        is_other = self.values[right] != codes
        if is_other.any():
            codes[is_other] = self._nearest_if_same(codes[is_other], right[is_other])
        return codes

    def _nearest_if_same(self, codes: Floats, right: Ints) -> Floats:
        """Return the training value nearest to each code, or the code if they differ too much.

        `right` contains the position of the first training value that is not below each code.
        """
        left = (right - 1).clip(min=0)
        is_left_nearer = np.abs(self.values[left] - codes) < np.abs(self.values[right] - codes)
        nearest = self.values[np.where(is_left_nearer, left, right)]
        width = float(self.values[-1] - self.values[0])
        scale = max(width, abs(float(self.values[-1])) * 1e-3, _LEAST_TOLERANCE)
        is_same = np.abs(nearest - codes) <= _SAME_NUMBER * scale
        # a number that went through float32
        is_same |= (nearest.astype(np.float32) == codes) & (codes % 1 != 0)
        return np.where(is_same, nearest, codes)

    def values_inside(self, part: Part) -> Floats:
        """Return the codes of the training values inside a part of a region, shape (n_inside,).

        A missing number or level comes last.
        """
        if self.is_numeric:
            return self._numbers_inside(part)
        if isinstance(part, Interval):
            codes = [self._code_of(level) for level in part.levels or ()]
            has_missing = part.missing and self.has_missing
        else:
            codes = [self._code_of(value) for value in part if value is not None]
            has_missing = None in part and self.has_missing
        inside = np.unique([code for code in codes if not np.isnan(code)])
        return np.append(inside, self.code_of_missing) if has_missing else inside

    def _numbers_inside(self, part: Part) -> Floats:
        """Return the numbers inside a part of a numeric column; see `values_inside`."""
        if not isinstance(part, Interval):
            return self.places[:0]
        # without numbers inside, both ends are NaN
        is_inside = (self.places >= to_number(part.low)) & (self.places <= to_number(part.high))
        inside = self.places[is_inside]
        return np.append(inside, MISSING) if part.missing and self.has_missing else inside

    def has_value(self, part: Part, code: float) -> bool:
        """Return whether a value is inside a part, even if it is a number of no training row."""
        if code in self.values_inside(part):
            return True
        if not self.is_numeric or not isinstance(part, Interval) or code == MISSING:
            return False
        return to_number(part.low) <= code <= to_number(part.high)

    def faults(self, series: pd.Series, codes: Floats) -> dict[FaultReason, Mask]:
        """Return, for each reason, which values prevent an answer; masks of shape (n_rows,).

        `codes`, shape (n_rows,), are the codes of the values.
        """
        is_missing = (codes == MISSING) & (not self.has_missing)
        if self.is_numeric:
            low, high = self.attribute.bounds or (-np.inf, np.inf)
            is_outside = ((codes < low) | (codes > high)) & (codes != MISSING)
            return {
                "invalid_value": np.isnan(codes),
                "missing_value": is_missing,
                "outside_domain": is_outside,
            }
        has_no_code = np.isnan(codes)
        is_scalar = np.array([types.is_scalar(value) for value in series], dtype=bool)
        is_missing |= has_no_code & series.isna().to_numpy()
        return {
            "invalid_value": has_no_code & ~is_scalar,
            "missing_value": is_missing & is_scalar,
            "unknown_category": has_no_code & ~is_missing & is_scalar,
        }

    @property
    def code_of_missing(self) -> float:
        """The code of a missing value; NaN if the column cannot have one."""
        if self.is_line:
            return MISSING
        return float(len(self.values) - 1) if self.has_missing else np.nan

    @cached_property
    def _code_of_text(self) -> dict[str, float]:
        """The code of each category, by every text that stands for it; see `spellings`."""
        code_of_text: dict[str, float] = {}
        for code, value in enumerate(self.values.tolist()):
            if value is not None:
                code_of_text |= dict.fromkeys(spellings(value), float(code))
        return code_of_text

    def decode(self, codes: Floats) -> pd.Series:
        """Return the values of codes as the model takes them, shape (n_rows,).

        They have the dtype of the training column if it can represent them. Whole numbers become
        floats if one of them has decimals.
        """
        is_plain = isinstance(self.dtype, np.dtype) and self.dtype.kind in "iuf"
        if self.kind == "number" and is_plain:
            return pd.Series(self._decode_plain_numbers(codes), copy=False)
        if self.is_numeric:
            distinct, position = np.unique(codes, return_inverse=True)
            pool = self._conformed([self.value(code) for code in distinct.tolist()])
        else:
            is_missing = codes == MISSING
            position = np.where(is_missing, len(self.values), codes).astype(np.int64)
            pool = self._pool_with_missing if is_missing.any() else self._pool
        return pd.Series(pool.array.take(position), dtype=pool.dtype, copy=False)

    def conform(self, series: pd.Series) -> pd.Series:
        """Return values in the dtype and spelling of the training column.

        A value without a code stays as it is.
        """
        codes = self.encode(series)
        has_code = ~np.isnan(codes)
        if has_code.all():
            return self.decode(codes)
        values = series.astype(object).reset_index(drop=True)
        values[has_code] = self.decode(codes[has_code]).astype(object).to_numpy()
        return conform(values, self.dtype)

    @cached_property
    def _pool(self) -> pd.Series:
        """The values of categories or levels, as the model takes them."""
        return self._conformed(self.values.tolist())

    @cached_property
    def _pool_with_missing(self) -> pd.Series:
        """The values of `_pool`, followed by a missing value."""
        return self._conformed([*self.values.tolist(), None])

    def _conformed(self, values: list[Any]) -> pd.Series:
        """Return values, of which None is missing, in the form of the training column."""
        cells = [self.missing if value is None else self._cell(value) for value in values]
        return conform(pd.Series(cells, dtype=object), self.dtype)

    def _cell(self, value: Any) -> Any:
        """Return a value in the type of the training table's cells."""
        if self.cell == "str":
            has_times = self.kind == "date" and self.resolution < DAY
            return value.isoformat(sep=" ") if has_times else to_text(value)
        if self.cell in ("date", "datetime"):
            moment = pd.Timestamp(value).to_pydatetime()
            return moment.date() if self.cell == "date" else moment
        if self.cell == "Decimal":
            return Decimal(to_text(value))
        return float(value) if self.cell == "float" else value

    def _decode_plain_numbers(self, codes: Floats) -> Any:
        """Return codes as numbers of a NumPy dtype, or as floats if that is not exact."""
        is_missing = codes == MISSING
        numbers = np.where(is_missing, np.nan, codes)
        if self.dtype.kind in "iu":
            limits = np.iinfo(self.dtype)
            # the highest whole number of 64 bits is not exact as a float: it would be rounded up
            is_inside = (numbers >= limits.min) & (numbers < limits.max + 1)
            is_possible = is_inside & (numbers % 1 == 0)
            if not is_possible.all():  # NaN, a missing number, is not possible
                return numbers
        return numbers.astype(self.dtype)

    def value(self, code: float) -> Any:
        """Return the value of one code as a plain Python value; None if it is missing."""
        if code == MISSING:
            return None
        if self.kind == "date":
            return to_date(code, zone_of(self.dtype))
        if self.kind == "number":
            is_float = types.is_float_dtype(self.dtype)
            return int(code) if code.is_integer() and not is_float else code
        return self.values[int(code)]


def _with_dates(seconds: Floats, change: Callable[[pd.DatetimeIndex], pd.DatetimeIndex]) -> Floats:
    """Apply a function of dates to seconds, and return seconds; `MISSING` stays."""
    is_present = seconds != MISSING
    new_seconds = seconds.copy()
    moments = change(pd.DatetimeIndex(dates_of(seconds[is_present])))
    new_seconds[is_present] = moments.to_numpy(dtype="M8[us]").astype(np.int64) / 1e6
    return new_seconds


def _numbers(series: pd.Series, name: str) -> Floats:
    """Return the distinct numbers of a column, or the seconds of its dates, in order."""
    numbers, is_invalid = read_numbers(series, are_dates=holds_dates(series))
    if is_invalid.any():
        raise PopulationError(
            f"column {name!r} has infinite or non-numeric values; replace them, or list the column"
            " in nominal"
        )
    if reason := why_inexact(series):
        raise PopulationError(f"column {name!r} has {reason}")
    values = np.unique(numbers[~np.isnan(numbers)]) + 0.0  # without a negative zero
    if np.abs(values).max(initial=0.0) > LARGEST:
        raise PopulationError(f"column {name!r} has numbers beyond {LARGEST:.0e}; scale it")
    return values


def _cell_type(series: pd.Series) -> str:
    """Return the name of the type that all cells of a column of text or objects have."""
    if not (types.is_object_dtype(series.dtype) or types.is_string_dtype(series.dtype)):
        return ""
    names = {type(cell).__name__ for cell in series.dropna()}
    return names.pop() if len(names) == 1 else ""


def _categories(series: pd.Series, attribute: SchemaAttribute) -> NDArray[Any]:
    """Return the distinct values of a column of categories or levels, in the schema's order.

    A declared value that is in no row has the spelling of the schema.
    """
    name = attribute.name
    if cell_type := unreadable(series):
        raise PopulationError(f"column {name!r} has cells of type {cell_type}; {ONE_VALUE}")
    row_values = [natural(value) for value in pd.factorize(series)[1]]
    categories = row_values
    if isinstance(series.dtype, pd.CategoricalDtype):
        categories = [natural(value) for value in series.dtype.categories]
    texts_and_values = [(text, value) for value in categories for text in {*spellings(value)}]
    value_of_text = dict(texts_and_values)
    if len(value_of_text) < len(texts_and_values):
        raise PopulationError(
            f"column {name!r} spells one category in two ways, such as 1 and 1.0; use one spelling"
        )
    texts = attribute.declared_values or sorted(map(to_text, row_values))
    values = np.empty(len(texts), dtype=object)
    for position, text in enumerate(texts):
        matches = [value_of_text[t] for t in spellings(text) if t in value_of_text]
        values[position] = matches[0] if matches else text
    n_undeclared = len({*row_values} - {*values.tolist()})
    if n_undeclared:
        raise PopulationError(
            f"column {name!r} has {n_undeclared} values that its levels or hierarchy do not list;"
            " add them in the schema"
        )
    return values


@dataclass(frozen=True, eq=False, repr=False)
class Codes(HostOnly):
    """The columns of the training table, in the order of ``schema.features``, and its rules."""

    columns: tuple[Column, ...]
    rules: tuple[str, ...] = ()

    @classmethod
    def read(cls, columns: Mapping[str, pd.Series] | pd.DataFrame, schema: Schema) -> Codes:
        """Read the features of a training table."""
        features = tuple(Column.read(columns[name], schema[name]) for name in schema.features)
        return cls(features, schema.rules)

    @cached_property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @cached_property
    def quasi(self) -> Ints:
        """Positions of the quasi-identifiers, in alphabetical order of their names."""
        return self._positions(is_quasi_identifier=True)

    @cached_property
    def private(self) -> Ints:
        """Positions of the private columns, in alphabetical order of their names."""
        return self._positions(is_quasi_identifier=False)

    def _positions(self, *, is_quasi_identifier: bool) -> Ints:
        positions = [
            position
            for position, column in enumerate(self.columns)
            if column.is_quasi_identifier == is_quasi_identifier
        ]
        return np.array(sorted(positions, key=self.names.__getitem__), dtype=np.int64)

    @cached_property
    def is_line(self) -> Mask:
        """Which columns are ordered, shape (n_features,)."""
        return np.array([column.is_line for column in self.columns], dtype=bool)

    @cached_property
    def spans(self) -> Floats:
        """The span of each column, shape (n_features,)."""
        return np.array([column.span for column in self.columns])

    @cached_property
    def relations(self) -> list[Relation]:
        """The rules that relate features to each other."""
        return [Relation.read(text, self) for text in self.rules]

    def obey_rules(self, rows: Floats) -> Mask:
        """Return which rows, shape (n_rows, n_features), obey all rules; shape (n_rows,)."""
        return _obey(self.relations, rows)

    def obey_private_rules(self, private: Floats) -> Mask:
        """Return which rows of private values obey the rules, shape (n_rows,).

        `private` has the shape (n_rows, n_private). Rules that name a quasi-identifier are not
        checked.
        """
        positions = self.private.tolist()
        relations = [
            relation for relation in self.relations if {*relation.code_of_missing} <= {*positions}
        ]
        return _obey(relations, self.rows_of(np.zeros((len(private), len(self.quasi))), private))

    def encode(self, frame: pd.DataFrame) -> Floats:
        """Return a table as a matrix, shape (n_rows, n_features); NaN if a value has no code."""
        rows = np.empty((len(frame), len(self.columns)))
        for j, column in enumerate(self.columns):
            rows[:, j] = column.encode(frame[column.name])
        return rows

    def faults(self, frame: pd.DataFrame, rows: Floats) -> list[Fault | None]:
        """Return why each query of a table cannot be answered; None if it can be.

        `rows`, shape (n_rows, n_features), is the encoded table.
        """
        faults: list[Fault | None] = [None] * len(rows)
        by_column = [
            column.faults(frame[column.name], rows[:, j]) for j, column in enumerate(self.columns)
        ]
        for reason in reversed(get_args(FaultReason)):
            no_row = np.zeros(len(rows), dtype=bool)
            flags = np.column_stack([masks.get(reason, no_row) for masks in by_column])
            for i in np.flatnonzero(flags.any(axis=1)).tolist():
                names = tuple(self.names[j] for j in np.flatnonzero(flags[i]).tolist())
                faults[i] = Fault(reason, names)
        return faults

    def decode(self, rows: Floats) -> pd.DataFrame:
        """Return a matrix as a table in the dtypes of the training table."""
        columns = {column.name: column.decode(rows[:, j]) for j, column in enumerate(self.columns)}
        return pd.DataFrame(columns, copy=False)

    def conform(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the features of a table in the dtypes and spelling of the training table.

        A value without a code stays as it is.
        """
        columns = {column.name: column.conform(frame[column.name]) for column in self.columns}
        return pd.DataFrame(columns, copy=False)

    def options(self, region: Region) -> list[Floats]:
        """Return, for each quasi-identifier, the codes of the training values inside a region."""
        columns = [self.columns[j] for j in self.quasi.tolist()]
        return [column.values_inside(region[column.name]) for column in columns]

    def rows_inside(self, region: Region, rows: Floats) -> Ints:
        """Return the positions of the training rows inside a region.

        `rows` are all training rows, shape (n_rows, n_features).
        """
        is_inside = np.ones(len(rows), dtype=bool)
        for j, options in zip(self.quasi.tolist(), self.options(region), strict=True):
            is_inside &= np.isin(rows[:, j], options)
        return np.flatnonzero(is_inside)

    def has_row(self, region: Region, row: Floats) -> bool:
        """Return whether a row, shape (n_features,), is inside a region; it may be of any table."""
        columns = [(self.columns[j], row[j]) for j in self.quasi.tolist()]
        return all(column.has_value(region[column.name], code) for column, code in columns)

    def rows_of(self, quasi: Floats, private: Floats) -> Floats:
        """Join quasi-identifiers and private values to rows, shape (n_rows, n_features).

        `quasi` has the shape (n_rows, n_quasi), `private` (n_rows, n_private) or (n_private,).
        """
        rows = np.empty((len(quasi), len(self.columns)))
        rows[:, self.quasi] = quasi
        rows[:, self.private] = private
        return rows


def _obey(relations: Sequence[Relation], rows: Floats) -> Mask:
    """Return which rows, shape (n_rows, n_features), obey all `relations`; shape (n_rows,)."""
    are_obeyed = np.ones(len(rows), dtype=bool)
    for relation in relations:
        are_obeyed &= relation.is_obeyed(rows)
    return are_obeyed


def gaps(a: Floats, b: Floats, spans: Floats, is_line: Mask) -> Floats:
    """Return the distance between codes, column by column, in shares of the columns' spans.

    This is the distance HEOM, except that a number outside the training table may be more than 1
    away. Two different categories have the distance 1, and so have a number and a missing number.
    The last axis of all arrays is the axis of columns; the other axes are broadcast.
    """
    is_one_missing = (a == MISSING) != (b == MISSING)
    shares = np.where(is_one_missing, 1.0, np.abs(a - b) / spans)
    return np.where(is_line, shares, a != b)


def people_with(keys: Floats, person: Ints) -> tuple[Floats, Ints]:
    """Return the distinct rows of a matrix, and the number of people with each.

    Parameters
    ----------
    keys : shape (n_rows, n_columns)
    person : shape (n_rows,); the number of each row's person

    Returns
    -------
    distinct : shape (n_distinct, n_columns), in order
    n_people : shape (n_distinct,)
    """
    distinct, key_of_row = distinct_rows(keys)
    n_persons = int(person.max(initial=-1)) + 1
    pairs = np.unique(key_of_row * n_persons + person)
    return distinct, np.bincount(pairs // max(n_persons, 1), minlength=len(distinct))


def distinct_rows(rows: Floats) -> tuple[Floats, Ints]:
    """Return the distinct rows of a matrix, and the place of each row among them.

    The same as `numpy.unique` with ``axis=0``, only faster.

    Parameters
    ----------
    rows : shape (n_rows, n_columns), without NaN

    Returns
    -------
    distinct : shape (n_distinct, n_columns), in order
    place : shape (n_rows,)
    """
    if not rows.shape[1]:
        return rows[:1], np.zeros(len(rows), dtype=np.int64)
    order = np.lexsort(rows.T[::-1])
    is_new = np.ones(len(rows), dtype=bool)
    is_new[1:] = False
    for column in rows.T:
        values = column[order]
        is_new[1:] |= values[1:] != values[:-1]
    place = np.empty(len(rows), dtype=np.int64)
    place[order] = np.cumsum(is_new) - 1
    return rows[order[is_new]], place


def one_row_each(person: Ints, rows: Ints) -> Ints:
    """Return the position of each person's first row among the positions `rows`, in order."""
    first = np.unique(person[rows], return_index=True)[1]
    return rows[np.sort(first)]


def least_row_each(person: Ints, positions: Ints, rows: Floats) -> Ints:
    """Return the position of each person's least row among `positions`, in order.

    The row is chosen by its values, so the order of the table makes no difference. `rows` has the
    shape (n_rows, n_features).
    """
    by_values = positions[np.lexsort(rows[positions].T)]
    return np.sort(one_row_each(person, by_values))


def mixed(options: Sequence[Floats]) -> Floats:
    """Return all combinations of the options of columns, shape (n_combinations, n_columns)."""
    if not options:
        return np.empty((1, 0))
    axes = np.meshgrid(*options, indexing="ij")
    return np.stack(axes, axis=-1).reshape(-1, len(options))
