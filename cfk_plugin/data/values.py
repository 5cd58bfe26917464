"""Columns of numbers and dates read in one way whatever their dtype, and cast without losing a
value.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.data.region import spelled, to_text
from cfk_plugin.errors import load_extra

_ISO = re.compile(r"\d{4}-\d{2}-\d{2}")
_DATES = {"datetime", "datetime64", "date"}
_NUMERIC = {"integer", "floating", "mixed-integer-float", "decimal", *_DATES}

# Types of values that can be read and written. A closed list: an explainer or a request may hold
# anything, and what is let in is put on record, written as text and sent as JSON without further
# checks.
NUMBERS = {bool, int, float, np.bool_, *(np.dtype(code).type for code in "bhilqBHILQefd")}
DATES = {date, datetime, pd.Timestamp, np.datetime64}
MISSING = {type(None), type(pd.NA), type(pd.NaT)}
PLAIN = {*NUMBERS, *DATES, *MISSING, str, np.str_, Decimal}

LARGEST = 1e20
"""Numbers beyond it, or below its negative, are not read."""


_POLARS = "tables of polars need pyarrow"


def load_pyarrow(need: str = "Parquet files need pyarrow") -> Any:
    """Return pyarrow; raise `MissingDependencyError` if it is not installed."""
    return load_extra("pyarrow", "parquet", need)


def as_pandas(table: Any) -> Any:
    """Return a table that narwhals knows (polars, pyarrow, ...) as pandas; all else as it is, and
    pandas itself.
    """
    if isinstance(table, pd.DataFrame) or type(table).__module__.partition(".")[0] in (
        "builtins",
        "numpy",
        "pandas",
    ):
        return table
    import narwhals as nw

    narwhals_table = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(narwhals_table, nw.DataFrame):
        return table
    if narwhals_table.implementation.is_polars():
        load_pyarrow(_POLARS)  # polars itself needs it for this, and its own error is not ours
    return narwhals_table.to_pandas()


def is_numeric(column: pd.Series) -> bool:
    """Say whether a column holds numbers or dates; booleans count as categories."""
    dtype: Any = column.dtype
    if (
        types.is_bool_dtype(dtype)
        or isinstance(dtype, pd.CategoricalDtype)
        or types.is_complex_dtype(dtype)
    ):
        return False
    if types.is_object_dtype(dtype):
        return types.infer_dtype(column, skipna=True) in _NUMERIC
    return types.is_numeric_dtype(dtype) or types.is_datetime64_any_dtype(dtype)


def unreadable(column: pd.Series, besides: type | tuple[()] = ()) -> str:
    """Name the type of a cell that is none of `PLAIN`, as queries with it are withheld, nor
    `besides`; or nothing.
    """
    cells = column.dtype.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
    if cells.dtype.kind in "biufmcM" or isinstance(cells.dtype, pd.StringDtype):
        return ""
    return min(
        (kind.__name__ for kind in {*map(type, cells)} - PLAIN if not issubclass(kind, besides)),
        default="",
    )


def is_of_another_type(column: pd.Series, *, are_dates: bool) -> NDArray[np.bool_]:
    """Return which cells of a column of numbers, or of dates, are neither one nor missing.

    Numbers and dates may be written as text. The result has the shape (n_rows,).
    """
    kind = getattr(column.dtype, "kind", "O")
    if isinstance(column.dtype, np.dtype) and kind in "biuf":
        return column.notna().to_numpy() & are_dates
    if types.is_datetime64_any_dtype(column.dtype):
        return column.notna().to_numpy() & (not are_dates)
    has_type = _is_date_or_missing if are_dates else _is_number_or_missing
    return np.array([not has_type(cell) for cell in column], dtype=bool)


def _is_date_or_missing(cell: Any) -> bool:
    if isinstance(cell, str):
        return cell.isascii() and _ISO.match(cell) is not None
    return type(cell) in DATES or type(cell) in MISSING or _is_nan(cell)


def _is_number_or_missing(cell: Any) -> bool:
    if isinstance(cell, str):
        try:
            return "_" not in cell and abs(float(cell)) <= LARGEST
        except ValueError:
            return False
    if type(cell) in MISSING or _is_nan(cell):
        return True
    return type(cell) in {*NUMBERS, Decimal} and abs(cell) <= LARGEST


def _is_nan(cell: Any) -> bool:
    return isinstance(cell, (float, Decimal)) and cell != cell  # noqa: PLR0124 - only NaN differs


def holds_dates(column: pd.Series) -> bool:
    if types.is_datetime64_any_dtype(column.dtype):
        return True
    if column.dtype != object and not types.is_string_dtype(column.dtype):
        return False
    inferred_type = types.infer_dtype(column, skipna=True)
    if inferred_type == "string":
        return bool(column.dropna().astype(str).str.match(_ISO).all())
    return inferred_type in _DATES


def are_days(column: pd.Series) -> bool:
    """Say whether a column of text holds ISO days and nothing else, which can be written again as
    they were.
    """
    if column.dtype == object or not types.is_string_dtype(column.dtype) or column.isna().all():
        return False
    present = column.dropna()
    is_day = bool(present.head(1).str.fullmatch(_ISO).all()) and bool(
        present.str.fullmatch(_ISO).all()
    )
    return is_day and bool(
        pd.to_datetime(present, errors="coerce", format="%Y-%m-%d").notna().all()
    )


def to_number(value: Any) -> float:
    """Read one number, or one date (also as ISO text) as seconds."""
    if isinstance(value, (int, float, np.number)):
        return float(value)
    if isinstance(value, pd.Timestamp):  # thousands of ends of ranges, each a column else
        if value.tz is not None:
            value = value.tz_convert(None)
        return float(value.asm8.astype("M8[us]").astype(np.int64) / 1e6)
    return float(to_numbers(pd.Series([value]))[0][0])


def dates_of(seconds: NDArray[np.float64]) -> NDArray[np.datetime64]:
    """Return dates for numbers of seconds, to the microsecond."""
    return np.asarray(np.round(seconds * 1e6).astype(np.int64).view("M8[us]"))


def to_numbers(column: pd.Series) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Read a column as float64 (dates as seconds); also say which entries are no finite number."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        numbers = column.to_numpy(dtype=np.float64)
        return numbers, np.isinf(numbers)
    missing = column.isna().to_numpy()
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if column.dtype == object or types.is_string_dtype(column.dtype):
        if holds_dates(column):
            column = pd.to_datetime(column, errors="coerce", format="ISO8601", utc=True)
        else:
            column = pd.to_numeric(column, errors="coerce")
    if types.is_datetime64_any_dtype(column.dtype):
        seconds = _in_utc(column).to_numpy(dtype="datetime64[us]").astype(np.int64) / 1e6
        numbers = np.where(column.isna(), np.nan, seconds)
    else:
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers, ~np.isfinite(numbers) & ~missing


def _in_utc(stamps: pd.Series) -> pd.Series:
    return stamps.dt.tz_convert(None) if getattr(stamps.dtype, "tz", None) else stamps


def conform(column: pd.Series, dtype: Any) -> pd.Series:
    """Cast to a dtype where every value survives it; otherwise to numbers, or leave it as it is."""
    if column.dtype == dtype or types.is_complex_dtype(column.dtype):
        return column
    if isinstance(dtype, pd.CategoricalDtype):
        kind = dtype.categories.dtype
        plain = column.astype(object)
        plain = (
            plain.map(to_text, na_action="ignore")
            if types.is_string_dtype(kind)
            else conform(plain, kind)
        )
        return plain.astype(dtype) if set(plain.dropna()) <= set(dtype.categories) else column
    try:
        if types.is_integer_dtype(dtype):
            return _conform_integers(column, dtype)
        if types.is_bool_dtype(dtype):
            truth = column.astype(object).map(
                {"True": True, "False": False, True: True, False: False}
            )
            allowed = 0 if isinstance(dtype, np.dtype) else column.isna().sum()
            return truth.astype(dtype) if truth.isna().sum() == allowed else column
        if types.is_string_dtype(dtype) and not types.is_object_dtype(dtype):
            is_date = types.is_datetime64_any_dtype(column.infer_objects().dtype)
            spell = spelled if is_date else to_text
            return column.map(spell, na_action="ignore").astype(dtype)
        if types.is_datetime64_any_dtype(dtype) and (
            column.dtype == object or types.is_string_dtype(column.dtype)
        ):
            # as `to_numbers` reads them
            stamps = pd.to_datetime(column, format="ISO8601", utc=True)
            return stamps.dt.tz_convert(getattr(dtype, "tz", None)).astype(dtype)
        return column.astype(dtype)
    except (ValueError, TypeError, OverflowError):
        return column


def _conform_integers(column: pd.Series, dtype: Any) -> pd.Series:
    limits = np.iinfo(getattr(dtype, "numpy_dtype", dtype))
    if column.dtype == object and any(
        type(value) is int and not limits.min <= value <= limits.max for value in column
    ):
        return column  # pandas 2 would read the nearest number that float64 holds
    numbers = pd.to_numeric(column)
    present = numbers.dropna()
    if not bool((present % 1 == 0).all()):
        return numbers.astype(float)
    survives = bool(((present >= limits.min) & (present <= limits.max)).all())
    return numbers.astype(dtype) if survives else numbers


# What float64 cannot hold is refused where it is declared or counted; ends of ranges are moved.

_WHOLE = 2**53  # from here on, not every whole number is a float64
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_INEXACT_DATES = (
    "dates that seconds in float64 do not hold; round them, for instance with .dt.floor('us') or"
    " .dt.floor('s')"
)
_INEXACT_NUMBERS = (
    "numbers that float64 does not hold (whole ones beyond 2**53, or of more than 15 digits); round"
    " or scale them, or say that they are none (nominal=, identifiers=)"
)
_ZONES = (
    "dates with a time zone as objects or text; convert the column with pd.to_datetime(column,"
    " utc=True)"
)


def to_bound(value: Any, *, upwards: bool) -> float:
    """Read an end of a range; one that float64 cannot hold moves inwards, so that nobody outside is
    counted.
    """
    exact = _exact(value)
    if exact is None:
        return to_number(value)
    try:
        number = float(exact)
    except OverflowError:
        return np.inf if exact > 0 else -np.inf
    stands: Any = number
    step = 0.0
    if _is_date(value):  # a number of seconds stands for a microsecond
        stands = Fraction(int(dates_of(np.array([number])).astype(np.int64)[0]), _PER_SECOND["us"])
        step = 1e-6
    elif isinstance(value, Decimal):  # and one that is written 0.1 for 0.1
        stands = Decimal(repr(number))
    if upwards and stands < exact:
        return max(number + step, float(np.nextafter(number, np.inf)))
    if not upwards and stands > exact:
        return min(number - step, float(np.nextafter(number, -np.inf)))
    return number


def why_inexact(column: pd.Series) -> str:
    """Say what float64 cannot hold in a column of finite numbers or dates; empty for nothing."""
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "bf" and dtype.itemsize <= 8:
        return ""
    present = column.dropna()
    numbers = to_numbers(present)[0]
    if types.is_integer_dtype(dtype) and not bool((np.abs(numbers) >= _WHOLE).any()):
        return ""
    if types.is_datetime64_any_dtype(dtype):
        is_exact = bool((dates_of(numbers) == _in_utc(present).to_numpy()).all())
        return "" if is_exact else _INEXACT_DATES
    codes, distinct = pd.factorize(present.astype(object))
    numbers = numbers[np.unique(codes, return_index=True)[1]]
    problems = (
        _why_inexact(value, number)
        for value, number in zip(distinct, numbers.tolist(), strict=True)
    )
    return next(filter(None, problems), "")


def _why_inexact(value: Any, number: float) -> str:
    if _is_date(value):
        moment = pd.Timestamp(value)
        if moment.tz is not None:
            return _ZONES
        return "" if pd.Timestamp(dates_of(np.array([number]))[0]) == moment else _INEXACT_DATES
    is_same = False
    # 0.1 is not a float64, but how the nearest one is written
    if isinstance(value, (str, Decimal)):
        with suppress(ArithmeticError):  # text that is no number, or none on paper
            is_same = bool(np.isnan(number)) or Decimal(value) == Decimal(repr(number))
    else:
        is_same = _exact(value) == number
    return "" if is_same else _INEXACT_NUMBERS


def _exact(value: Any) -> int | float | Decimal | Fraction | None:
    """Return a number, or a date in seconds, as it is; None for what is neither."""
    if isinstance(value, (int, float, Decimal)):
        return value
    if isinstance(value, np.floating) and value.dtype.itemsize > 8:
        return Fraction(*value.as_integer_ratio())
    if isinstance(value, np.number):
        return value.item()  # type: ignore[no-any-return]
    if not _is_date(value):
        return None
    moment = pd.Timestamp(value)
    stamp = (moment if moment.tz is None else moment.tz_convert("UTC").tz_localize(None)).asm8
    return Fraction(int(stamp.astype(np.int64)), _PER_SECOND[np.datetime_data(stamp.dtype)[0]])


def _is_date(value: Any) -> bool:
    return isinstance(value, (date, np.datetime64)) or (
        isinstance(value, str) and _ISO.match(value) is not None
    )
