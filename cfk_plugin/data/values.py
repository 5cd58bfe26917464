"""Reads columns of numbers and dates in any dtype, and casts columns without losing a value."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.data.region import (
    DATES,
    NUMBERS,
    dates_of,
    is_date,
    to_date,
    to_number,
    to_text,
)
from cfk_plugin.errors import load_extra

MISSING = {type(None), type(pd.NA), type(pd.NaT)}
PLAIN = {*NUMBERS, *DATES, *MISSING, str, np.str_, Decimal}

LARGEST = 1e20
"""The largest absolute value of a number that can be encoded."""


_POLARS = "tables of polars need pyarrow"


def load_pyarrow(need: str = "Parquet files need pyarrow") -> Any:
    """Import and return pyarrow; raise `MissingDependencyError` if it is not installed."""
    return load_extra("pyarrow", "parquet", need)


def as_pandas(table: Any) -> Any:
    """Convert a table of polars, pyarrow or another library to pandas.

    Everything else is returned unchanged.
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
        load_pyarrow(_POLARS)  # polars needs it for the conversion; raise our error, not its own
    return narwhals_table.to_pandas()


def is_numeric(column: pd.Series) -> bool:
    """Return True for a column of numbers, dates or days as ISO text, but not of booleans."""
    dtype: Any = column.dtype
    if (
        types.is_bool_dtype(dtype)
        or isinstance(dtype, pd.CategoricalDtype)
        or types.is_complex_dtype(dtype)
    ):
        return False
    if types.is_numeric_dtype(dtype) or types.is_datetime64_any_dtype(dtype):
        return True
    cells = column.dropna()
    kinds = {*map(type, cells)}
    if kinds <= {str, np.str_}:
        return bool(kinds) and all(map(_is_day, cells.unique()))
    is_number = kinds <= {*NUMBERS, Decimal} - {bool, np.bool_}
    return bool(kinds) and (is_number or kinds <= DATES)


def _is_day(text: str) -> bool:
    return len(text) == len("2020-01-31") and is_date(text) and not np.isnan(to_number(text))


def holds_dates(column: pd.Series) -> bool:
    """Return True if a numeric column has dates, by its dtype or by its first cell."""
    if types.is_numeric_dtype(column.dtype):
        return False
    return types.is_datetime64_any_dtype(column.dtype) or any(map(is_date, column.dropna()[:1]))


def unreadable(column: pd.Series, readable: type | tuple[()] = ()) -> str:
    """Return the name of a type of cells that cannot be read; an empty string if all can.

    Types in `PLAIN`, and subclasses of `readable`, can be read.
    """
    cells = column.dtype.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
    if cells.dtype.kind in "biufmcM" or isinstance(cells.dtype, pd.StringDtype):
        return ""
    return min(
        (kind.__name__ for kind in {*map(type, cells)} - PLAIN if not issubclass(kind, readable)),
        default="",
    )


def factorized(column: pd.Series) -> tuple[NDArray[np.int64], Any]:
    """Return the position of each cell among the distinct values, -1 if missing, and these values.

    A cell that is not a scalar, such as a list, counts as a text.
    """
    try:
        return pd.factorize(column)
    except TypeError:
        return pd.factorize(column.map(lambda cell: cell if types.is_scalar(cell) else repr(cell)))


def to_numbers(column: pd.Series) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Read a column of numbers or dates in any dtype as float64; see `read_numbers`."""
    return read_numbers(column, are_dates=holds_dates(column))


def read_numbers(
    column: pd.Series, *, are_dates: bool
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Read a column of any dtype as float64: numbers, or dates in seconds since 1970.

    Returns
    -------
    numbers : shape (n_rows,)
        NaN for a missing value. The numbers of invalid cells have no meaning.
    is_invalid : shape (n_rows,)
        Which cells are neither missing nor a finite number, or, with `are_dates`, a date.
    """
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype) or not _is_array_of_numbers(dtype):
        place, distinct = factorized(column)
        number_of_place = [
            to_number(cell) if is_date(cell) == are_dates else np.nan for cell in distinct
        ]
        numbers = np.array([*number_of_place, np.nan])[place]
        return numbers, (place >= 0) & ~np.isfinite(numbers)
    has_dates = types.is_datetime64_any_dtype(dtype)
    numbers = _seconds(column) if has_dates else _floats(column)
    if has_dates == are_dates:
        return numbers, np.isinf(numbers)
    return numbers, ~np.isnan(numbers)


def _is_array_of_numbers(dtype: Any) -> bool:
    is_number = types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype)
    return is_number or types.is_datetime64_any_dtype(dtype)


def precision_of(dtype: Any) -> np.dtype[Any] | None:
    """Return the dtype of floats smaller than float64, such as float32; None for other dtypes."""
    dtype = getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", dtype))
    is_small = dtype.kind == "f" and dtype.itemsize < np.dtype(float).itemsize
    return dtype if is_small else None


def shortest(numbers: NDArray[Any], precision: np.dtype[Any]) -> NDArray[np.float64]:
    """Return the shortest decimals that `precision` reads as these numbers, shape (n_rows,).

    So 0.1 in float32 becomes 0.1, and not 0.10000000149.
    """
    with np.errstate(over="ignore"):
        distinct, place = np.unique(numbers.astype(precision), return_inverse=True)
    return np.array([float(str(number)) for number in distinct], dtype=np.float64)[place]


def _floats(column: pd.Series) -> NDArray[np.float64]:
    """Return numbers as float64; float32 and smaller as their shortest decimals."""
    precision = precision_of(column.dtype)
    numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers if precision is None else shortest(numbers, precision)


def cells_of(column: pd.Series) -> list[Any]:
    """Return the cells of a column as a list; float32 and smaller as their shortest decimals."""
    return column.tolist() if precision_of(column.dtype) is None else _floats(column).tolist()


def zone_of(dtype: Any) -> Any:
    """Return the time zone of a dtype of dates; None if it has none."""
    return getattr(getattr(dtype, "pyarrow_dtype", dtype), "tz", None)


def _seconds(column: pd.Series) -> NDArray[np.float64]:
    """Return dates as seconds since 1970 (UTC); NaN for a missing date."""
    stamps = _in_utc(column)
    seconds = stamps.to_numpy(dtype="datetime64[us]").astype(np.int64) / 1e6
    return np.where(stamps.isna(), np.nan, seconds)


def _in_utc(column: pd.Series) -> pd.Series:
    """Convert dates of any dtype and time zone to NumPy's dates in UTC."""
    if isinstance(column.dtype, np.dtype):
        return column
    dtype: Any = column.dtype
    unit, _ = np.datetime_data(getattr(dtype, "numpy_dtype", None) or dtype.base)
    stamps: Any = column.astype(pd.DatetimeTZDtype(unit, "UTC"))  # type: ignore[call-overload]
    return stamps.dt.tz_convert(None)  # type: ignore[no-any-return]


def conform(column: pd.Series, dtype: Any) -> pd.Series:
    """Cast a column to a dtype if no value is lost; otherwise return numbers, or the column."""
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
            return column.map(to_text, na_action="ignore").astype(dtype)
        if types.is_datetime64_any_dtype(dtype):
            return _conform_dates(column, dtype)
        return column.astype(dtype)
    except (ValueError, TypeError, OverflowError):
        return column


def _conform_integers(column: pd.Series, dtype: Any) -> pd.Series:
    """Cast a column to whole numbers; see `conform`."""
    limits = np.iinfo(getattr(dtype, "numpy_dtype", dtype))
    if column.dtype == object and any(
        type(value) is int and not limits.min <= value <= limits.max for value in column
    ):
        return column  # pandas 2 would round it to a number of float64
    numbers = pd.to_numeric(column)
    present_numbers = numbers.dropna()
    if not bool((present_numbers % 1 == 0).all()):
        return numbers.astype(float)
    is_inside = (present_numbers >= limits.min) & (present_numbers <= limits.max)
    return numbers.astype(dtype) if bool(is_inside.all()) else numbers


def _conform_dates(column: pd.Series, dtype: Any) -> pd.Series:
    """Cast a column to dates; see `conform`."""
    seconds, is_invalid = read_numbers(column, are_dates=True)
    if is_invalid.any():
        return column
    is_present = ~np.isnan(seconds)
    stamps = pd.Series(dates_of(np.where(is_present, seconds, 0.0)), column.index)
    zone = zone_of(dtype)
    if zone is not None:
        stamps = stamps.dt.tz_localize("UTC").dt.tz_convert(zone)
    dates: pd.Series = stamps.where(is_present).astype(dtype)
    dates.name = column.name
    return dates


_WHOLE = 2**53  # not every larger whole number is a float64
_INEXACT_DATES = (
    "dates that are too precise for seconds in float64; round them, for instance with"
    " .dt.floor('us') or .dt.floor('s')"
)
_INEXACT_NUMBERS = (
    "numbers that are too precise for float64 (whole numbers beyond 2**53, or more than 15 digits);"
    " round or scale them, or list the column in nominal or identifiers"
)
_ZONES = (
    "dates with a time zone as objects or text; convert the column with pd.to_datetime(column,"
    " utc=True)"
)


def why_inexact(column: pd.Series) -> str:
    """Return which numbers or dates of a column float64 would round, in words for an error.

    It is an empty string if all of them are exact. They must be finite.
    """
    dtype = column.dtype
    is_float = types.is_float_dtype(dtype) and getattr(dtype, "itemsize", 8) <= 8
    if is_float or types.is_bool_dtype(dtype):
        return ""
    cells = column.dropna()
    numbers = to_numbers(cells)[0]
    if types.is_integer_dtype(dtype) and not bool((np.abs(numbers) >= _WHOLE).any()):
        return ""
    if types.is_datetime64_any_dtype(dtype):
        is_exact = bool((dates_of(numbers) == _in_utc(cells).to_numpy()).all())
        return "" if is_exact else _INEXACT_DATES
    problems = map(_why_inexact, cells.astype(object).unique())
    return next(filter(None, problems), "")


def _why_inexact(value: Any) -> str:
    """Return in words why one value is not exact; see `why_inexact`."""
    number = to_number(value)
    if np.isnan(number):
        return ""
    if is_date(value):
        moment = pd.Timestamp(value)
        if moment.tz is not None:
            return _ZONES
        return "" if to_date(number) == moment else _INEXACT_DATES
    if isinstance(value, (str, Decimal)):  # "0.1" is exact enough: it is what a float64 prints
        is_same = Decimal(value) == Decimal(repr(number))
    elif isinstance(value, (float, np.floating)):
        is_same = not isinstance(value, np.longdouble) or bool(value == number)
    else:
        is_same = int(value) == number
    return "" if is_same else _INEXACT_NUMBERS
