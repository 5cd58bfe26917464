"""Domains: the values of an attribute in a population, their codes, declared bins, and tokens for
digests.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.data.region import Interval, Part, to_text
from cfk_plugin.data.schema import ONE_VALUE, SchemaAttribute
from cfk_plugin.data.values import (
    conform,
    dates_of,
    holds_dates,
    to_bound,
    to_numbers,
    unreadable,
    why_inexact,
)
from cfk_plugin.errors import HostOnly, PopulationError

Codes = NDArray[np.int32]
Numbers = NDArray[np.float64]
Rows = NDArray[np.int64]

UNKNOWN = -1
UNEXPECTED_MISSING = -2
INVALID = -3
"""Codes of a value that the population does not have, a missing value where it has none, and no
value at all.
"""

_SNAP = 1e-9  # two numbers closer than this share of the range are the same value
_WHOLE = 2**53  # below it, every whole number is a float64
_BOOL_SPELLINGS = {"True": ("True", "true", "1", "1.0"), "False": ("False", "false", "0", "0.0")}


@dataclass(frozen=True, eq=False, repr=False)
class Domain(HostOnly):
    """The distinct values of one attribute, coded 0 .. n-1; a missing value has the last code.

    Numbers and dates (as seconds) are sorted, categories as text; levels keep their order, leaves
    are depth-first.
    """

    attribute: SchemaAttribute
    values: NDArray[Any]  # float64 if numeric, else text
    originals: NDArray[Any]  # values as the table has them (categorical kinds)
    dtype: Any  # of the column, to rebuild what the model has seen
    missing: Any  # the column's marker of a missing value
    has_missing: bool
    is_date: bool = False  # numbers are seconds
    # values are unknown and any will do: private ones whose rows are elsewhere
    is_open: bool = False
    size: int = field(init=False)  # number of codes, the one for missing included
    missing_code: int = field(init=False)  # `UNKNOWN` when nothing is missing
    is_numeric: bool = field(init=False)
    is_interval: bool = field(init=False)  # generalises to ranges
    width: float = field(init=False)  # of the range of numbers
    _code_if_missing: int = field(init=False)
    _is_bool: bool = field(init=False)
    _is_float: bool = field(init=False)

    def __post_init__(self) -> None:
        kind = self.attribute.kind
        n = len(self.values)
        is_numeric = kind == "numeric"
        width = 0.0
        if is_numeric and n > 0:
            width = float(self.values[-1]) - float(self.values[0])
        missing_code = n if self.has_missing else UNKNOWN
        code_if_missing = n if self.has_missing else UNEXPECTED_MISSING
        self.__dict__.update(
            size=n + self.has_missing,
            missing_code=missing_code,
            is_numeric=is_numeric,
            is_interval=kind in ("numeric", "ordinal"),
            width=width,
            _code_if_missing=code_if_missing,
            _is_bool=bool(types.is_bool_dtype(self.dtype)),
            _is_float=bool(types.is_float_dtype(self.dtype)),
        )

    def _counts(self) -> str:
        return f"{self.attribute.name!r}, {self.attribute.kind}, {self.size} values"

    @classmethod
    def unlisted(
        cls, attribute: SchemaAttribute, dtype: Any, *, has_missing: bool, is_date: bool
    ) -> Domain:
        """Return a domain that knows no value of a row, only declared levels and leaves."""
        declared = attribute.declared_values or ()
        listed = np.array(declared, dtype=object)
        values = np.empty(0) if attribute.kind == "numeric" else listed
        return cls(
            attribute, values, listed, dtype, np.nan, has_missing, is_date, is_open=not declared
        )

    @classmethod
    def of(cls, column: pd.Series, attribute: SchemaAttribute) -> Domain:
        gaps = column.isna()
        has_missing = bool(gaps.any())
        missing = column[gaps].iloc[0] if has_missing else np.nan
        name = attribute.name
        if attribute.kind == "numeric":
            numbers, invalid = to_numbers(column)
            if invalid.any():
                raise PopulationError(f"column {name!r} holds infinite or non-numeric values")
            if reason := why_inexact(column):
                raise PopulationError(f"column {name!r} holds {reason}")
            # no negative zero: it is 0, in whatever order
            values = np.unique(numbers[~np.isnan(numbers)]) + 0.0
            if len(values) and not isfinite(float(values[-1]) - float(values[0])):
                raise PopulationError(
                    f"column {name!r} has a wider range than float64 holds; scale it"
                )
            originals = np.empty(0, object)
            return cls(
                attribute,
                values,
                originals,
                column.dtype,
                missing,
                has_missing,
                holds_dates(column),
            )
        if cell_type := unreadable(column):
            raise PopulationError(f"column {name!r} holds cells of type {cell_type}; {ONE_VALUE}")
        present = pd.unique(column.dropna().astype(object))
        by_text = {to_text(v): v for v in present}
        if len(by_text) != len(present):
            raise PopulationError(f"column {name!r} spells one category in two ways; use one dtype")
        order = attribute.declared_values or sorted(by_text)
        if unknown := set(by_text) - set(order):
            raise PopulationError(
                f"column {name!r} has {len(unknown)} values that its levels or hierarchy do not"
                " list"
            )
        originals = np.empty(len(order), object)
        originals[:] = [by_text.get(text, text) for text in order]
        return cls(
            attribute, np.asarray(order, object), originals, column.dtype, missing, has_missing
        )

    @cached_property
    def positions(self) -> Numbers:
        """Place of each value on [0, 1], for ranges: value or rank, divided by the range."""
        if self.is_numeric:
            return self.place(self.values)
        n = len(self.values)
        return np.arange(n, dtype=np.float64) / max(n - 1, 1)

    @cached_property
    def scaled(self) -> Numbers:
        """Positions times the attribute's weight: what generalizing costs."""
        return self.positions * self.attribute.weight

    def place(self, numbers: Numbers) -> Numbers:
        """Return where numbers are on the [0, 1] line of the population, or outside of it."""
        if self.width <= 0:
            return np.zeros(len(numbers))
        # NumPy 1 fills up its vectors with ones, and warns of these where the width is subnormal.
        with np.errstate(over="ignore"):
            return np.asarray((numbers - self.values[0]) / self.width, dtype=np.float64)

    def encode(self, column: pd.Series) -> tuple[Codes, Numbers]:
        """Return code and number of every value, whatever the column's dtype."""
        if self.is_numeric:
            return self._code_numbers(*to_numbers(column))
        if isinstance(column.dtype, pd.CategoricalDtype):
            positions = column.cat.codes.to_numpy()
            distinct = column.cat.categories
        else:
            positions, distinct = pd.factorize(column)
        # the last one is for missing values, which are at -1
        codes, numbers = self._code_categories([*distinct, None])
        return codes[positions], numbers[positions]

    def encode_values(self, values: list[Any]) -> tuple[Codes, Numbers]:
        """Like `encode`, for a few values, whose types are looked at one by one."""
        if not self.is_numeric:
            return self._code_categories(values)
        if not {*map(type, values)} <= {int, float}:
            return self.encode(pd.Series(values, dtype=object))
        numbers = np.array(values, dtype=np.float64)
        return self._code_numbers(numbers, np.isinf(numbers))

    def code(self, value: Any) -> int:
        """Return the code of a category, however it is spelled; `UNKNOWN` for one that the
        population lacks.
        """
        text = value if type(value) is str else to_text(value)
        return self._code_of.get(text, UNKNOWN)

    @cached_property
    def _code_of(self) -> dict[str, int]:
        codes = {str(text): code for code, text in enumerate(self.values)}
        # other spellings, where they are not categories of their own
        for text, code in list(codes.items()):
            whole = text.removesuffix(".0")
            if whole.lstrip("-").isdigit():
                other = whole if whole != text else f"{text}.0"
                codes.setdefault(other, code)
        if self._is_bool:
            codes = {alias: codes[text] for text in codes for alias in _BOOL_SPELLINGS[text]}
        return codes

    def _code_categories(self, values: list[Any]) -> tuple[Codes, Numbers]:
        codes = np.empty(len(values), dtype=np.int32)
        numbers = np.full(len(values), np.nan)
        for i, value in enumerate(values):
            if type(value) is not str and pd.isna(value):
                codes[i] = self._code_if_missing
                continue
            codes[i] = self.code(value)
            if self.is_open:  # by which known and other values compare
                numbers[i] = token_of(to_text(value), is_bool=self._is_bool)
        return codes, numbers

    def _code_numbers(self, numbers: Numbers, invalid: NDArray[np.bool_]) -> tuple[Codes, Numbers]:
        codes = np.full(len(numbers), UNKNOWN, dtype=np.int32)
        if last := len(self.values):
            right = np.searchsorted(self.values, numbers).clip(max=last - 1)
            left = (right - 1).clip(min=0)
            nearest = np.where(
                np.abs(self.values[left] - numbers) < np.abs(self.values[right] - numbers),
                left,
                right,
            )
            scale = max(self.width, abs(float(self.values[-1])) * 1e-3, 1e-300)
            with np.errstate(invalid="ignore"):
                same = np.abs(self.values[nearest] - numbers) <= _SNAP * scale
            codes[same] = nearest[same]
        codes[np.isnan(numbers)] = self._code_if_missing
        codes[invalid] = INVALID
        return codes, numbers

    def value(self, code: int) -> Any:
        if code == self.missing_code and self.has_missing:
            return None
        if self.is_numeric:
            return self.natural(float(self.values[code]))
        return self.values[code] if self.is_interval else self.originals[code]

    def natural(self, number: float) -> Any:
        """Return a number as the column would show it: int, float or Timestamp."""
        if self.is_date:
            zone = getattr(self.dtype, "tz", None)
            stamp = pd.Timestamp(dates_of(np.array([number]))[0])
            return stamp if zone is None else stamp.tz_localize("UTC").tz_convert(zone)
        return number if self._is_float or not number.is_integer() else int(number)

    def restore(self, codes: NDArray[np.integer[Any]]) -> pd.Series:
        return pd.Series(self.restore_array(codes), dtype=self._pool.dtype)

    def column(self, codes: NDArray[np.integer[Any]], numbers: Numbers) -> Any:
        """Return an array in the population's dtype if that holds all, with a number where the code
        is `UNKNOWN`.
        """
        is_other = codes == UNKNOWN
        if not is_other.any():
            return self.restore_array(codes)
        kind = self.dtype.kind if self.is_numeric and isinstance(self.dtype, np.dtype) else "O"
        if kind in "if":
            column_numbers = self.numbers_of(codes, numbers)
            is_held = kind == "f" or not (
                np.any(column_numbers % 1)
                or np.any(np.abs(column_numbers) > np.iinfo(self.dtype).max)
            )
            return column_numbers.astype(self.dtype) if is_held else column_numbers
        values = self.restore(np.where(is_other, 0, codes)).astype(object)
        values[is_other] = [self.natural(number) for number in numbers[is_other].tolist()]
        return conform(values, self.dtype).array

    def spell(self, codes: NDArray[np.integer[Any]], numbers: Numbers) -> list[Any]:
        """Do as `column` for a few, in a list."""
        code_list = codes.tolist()
        if UNKNOWN in code_list:
            values: list[Any] = self.column(codes, numbers).tolist()
            return values
        return [self._spelled[code] for code in code_list]

    def numbers_of(self, codes: NDArray[np.integer[Any]], numbers: Numbers) -> Numbers:
        """Return the number of each code, NaN for what is missing, and the given number where there
        is no code.
        """
        return np.where(codes < 0, numbers, self._numbers.take(codes))

    @cached_property
    def _numbers(self) -> Numbers:
        return np.append(self.values, np.nan)

    @property
    def is_whole(self) -> bool:
        return self.is_numeric and not self.is_date and bool(types.is_integer_dtype(self.dtype))

    @property
    def decimals(self) -> float:
        """Decimals that numbers are written with, at most 6; NaN for what is no number."""
        if self.is_whole:
            return 0
        if not self.is_numeric or self.is_date or not types.is_float_dtype(self.dtype):
            return np.nan
        return next(
            (d for d in range(6) if np.array_equal(np.round(self.values, d), self.values)), 6
        )

    def restore_array(self, codes: NDArray[np.integer[Any]]) -> Any:
        return self._lookup.take(codes)

    @cached_property
    def _lookup(self) -> Any:
        is_plain = isinstance(self._pool.dtype, np.dtype) and self._pool.dtype.kind in "iuf"
        return self._pool.to_numpy() if is_plain else self._pool.array

    @cached_property
    def _pool(self) -> pd.Series:
        """Every value once, in the population's dtype: rebuilding a column is one lookup."""
        pool = np.empty(self.size, object)
        pool[:] = [self.value(code) for code in range(self.size)]
        if self.attribute.kind == "ordinal":
            pool[: len(self.values)] = self.originals
        if self.has_missing:
            pool[-1] = self.missing
        return conform(pd.Series(pool, dtype=object), self.dtype)

    @cached_property
    def _spelled(self) -> list[Any]:
        return list(self._pool.tolist())

    def restores(self, values: list[Any], codes: Codes) -> bool:
        """Say whether all values are known, and as `restore` gives them back."""
        spelled = self._spelled
        for value, code in zip(values, codes.tolist(), strict=True):
            if (
                not 0 <= code != self.missing_code
                or value != spelled[code]
                or type(value) is not type(spelled[code])
            ):
                return False
        return True

    def inside(self, part: Part) -> NDArray[np.bool_]:
        """Say for every code whether its value is inside one part of a region."""
        allowed = np.zeros(self.size, dtype=bool)
        if (
            isinstance(part, Interval)
            and part.levels is None
            and part.low is not None
            and not self.is_numeric
        ):
            part = frozenset({part.low})  # a category that is written as a number
        if not isinstance(part, Interval):
            for value in part:
                code = self.missing_code if value is None else self.code(value)
                if code != UNKNOWN:
                    allowed[code] = True
            return allowed
        low = part.low
        high = part.high
        values = allowed[: len(self.values)]
        if part.levels is not None and low is not None:
            values[:] = np.isin(self.values, list(part.levels))
        elif low is not None:
            if type(low) is not float and not (type(low) is int and abs(low) < _WHOLE):
                low = to_bound(low, upwards=True)
            if type(high) is not float and not (type(high) is int and abs(high) < _WHOLE):
                high = to_bound(high, upwards=False)
            values[:] = (self.values >= low) & (self.values <= high)
        if part.missing and self.has_missing:
            allowed[-1] = True
        return allowed

    def title(self, part: Part) -> str | None:
        """Return the name of the hierarchy node that a part of several values is; None if it is
        none.
        """
        hierarchy = self.attribute.hierarchy
        if hierarchy is None or isinstance(part, Interval) or len(part) == 1 or None in part:
            return None
        return hierarchy.titles[hierarchy.cover([to_text(value) for value in part])]

    # Tokens: 64 bits per value for keyed digests; they follow from the value, not from the table

    @cached_property
    def _tokens(self) -> NDArray[np.uint64]:
        texts = [] if self.is_numeric else self.values.tolist()
        return np.array(
            [*(token_of(text, is_bool=self._is_bool) for text in texts), 0], dtype=np.uint64
        )

    def tokens(self, codes: Codes, numbers: Numbers) -> NDArray[np.uint64]:
        """Return tokens of coded values (see `encode`): alike at single precision, and for
        spellings of a category.
        """
        is_known = (codes >= 0) & (codes < len(self.values))
        if not self.is_numeric:
            return np.where(
                is_known,
                self._tokens[np.where(is_known, codes, -1)],
                np.nan_to_num(numbers).astype(np.uint64),
            )
        if len(self.values):
            numbers = np.where(is_known, self.values[np.where(is_known, codes, 0)], numbers)
        if not self.is_date:
            with np.errstate(over="ignore"):
                numbers = numbers.astype(np.float32).astype(np.float64)
        return np.where(np.isnan(numbers), np.nan, numbers + 0.0).view(np.uint64)


def token_of(text: str, *, is_bool: bool) -> int:
    """Return 48 bits, which a float holds exactly, for a category in any spelling."""
    if is_bool:
        text = next((name for name, aliases in _BOOL_SPELLINGS.items() if text in aliases), text)
    whole = text.removesuffix(".0")
    text = whole if whole.lstrip("-").isdigit() else text
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "little")


def mix(codes: Codes) -> NDArray[np.uint64]:
    """Mix each row of codes into 64 bits; different rows almost surely get different ones."""
    key = np.zeros(len(codes), dtype=np.uint64)
    for column in codes.T:
        key = (key ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return key


class CodeIndex(HostOnly):
    def __init__(self, codes: Codes) -> None:
        keys = mix(codes)
        self._order = np.argsort(keys, kind="stable")
        self._codes = codes
        self._keys = keys[self._order]

    def __len__(self) -> int:
        return len(self._codes)

    def find(self, codes: Codes) -> Rows:
        """Return the position of each row of codes; -1 for a row that is not here."""
        rows = self._order[np.searchsorted(self._keys, mix(codes)).clip(max=len(self._keys) - 1)]
        return np.where((self._codes[rows] == codes).all(axis=1), rows, -1).astype(np.int64)
