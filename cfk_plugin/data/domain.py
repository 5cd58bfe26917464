"""Values and codes: the values that an attribute takes in a population, what stands for them in digests, and bins."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.data.columns import conform, dates_of, holds_dates, to_bound, to_numbers, to_text, why_inexact
from cfk_plugin.data.region import Interval, Part
from cfk_plugin.data.schema import Attribute
from cfk_plugin.errors import HostOnly, InputError, PopulationError

# Keyed digests: identities and orders that nobody without the key can compute.

_PROCESS_KEY = secrets.token_bytes(32)


def configured_key(key: bytes | None) -> bytes:
    """Return the given key, else that of the environment variable ``CFK_KEY``; empty when there is none."""
    if key is not None and not isinstance(key, bytes):
        raise InputError(f"key must be bytes, got {type(key).__name__}; encode a text with .encode()")
    return key or os.environ.get("CFK_KEY", "").encode()


def key_of_this_process() -> bytes:
    """Return a random key that lives as long as this process."""
    return _PROCESS_KEY


def keyed_digest(key: bytes, parts: Iterable[bytes]) -> bytes:
    """Return HMAC-SHA256 of some bytes."""
    code = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        code.update(part)
    return code.digest()


def keyed_order(key: bytes, tokens: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a number per row of tokens (64 bits of HMAC-SHA256) that says who comes first."""
    rows = np.ascontiguousarray(tokens, dtype="<u8")
    digests = b"".join(hmac.digest(key, row.tobytes(), "sha256")[:8] for row in rows)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def token_of_text(text: str) -> int:
    """Return 48 bits that stand for a text, which a float holds exactly. No key is in it."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "little")


# Tokens: 64 bits per value that stand for it in keyed digests, and follow from the value, not from the table.

BOOL_SPELLINGS = {"True": ("True", "true", "1", "1.0"), "False": ("False", "false", "0", "0.0")}


def token_of(text: str, *, is_bool: bool) -> int:
    """Return what stands for a category: the same for all its spellings."""
    if is_bool:
        text = next((name for name, aliases in BOOL_SPELLINGS.items() if text in aliases), text)
    whole = text.removesuffix(".0")
    return token_of_text(whole if whole.lstrip("-").isdigit() else text)


def tokens_of(domain: Domain, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return the tokens of coded values (`Domain.encode`).

    Numbers that went through single precision, and other spellings of a category, are the same; missing is a value of
    its own.
    """
    known = (codes >= 0) & (codes < len(domain.values))
    if domain.attribute.kind != "numeric":
        unlisted = np.nan_to_num(numbers).astype(np.uint64)
        return np.where(known, np.append(domain.tokens, np.uint64(0))[np.where(known, codes, -1)], unlisted)
    if len(domain.values):
        numbers = np.where(known, domain.values[np.where(known, codes, 0)], numbers)
    if not domain.is_date:
        with np.errstate(over="ignore"):
            numbers = numbers.astype(np.float32).astype(np.float64)
    return np.where(np.isnan(numbers), np.nan, numbers + 0.0).view(np.uint64)


# Domains: the values that an attribute takes in a population, and their codes.

UNKNOWN, UNEXPECTED_MISSING, INVALID = -1, -2, -3
"""Codes of a value that the population does not have, a missing value where it has none, and no value at all."""

_SNAP = 1e-9  # two numbers closer than this share of the range are the same value


@dataclass(frozen=True, repr=False)
class Domain(HostOnly):
    """The distinct values of one attribute, coded 0 .. n-1; a missing value has the last code.

    Numbers and dates (as seconds) are sorted; ordinal levels keep their order; categories are sorted as text;
    leaves of a hierarchy keep their depth-first order.
    """

    attribute: Attribute  # What the schema says
    values: NDArray[Any]  # float64 for numeric attributes, else text
    originals: NDArray[Any]  # The values as they stand in the table (categorical kinds)
    dtype: Any  # The column's dtype, to rebuild values that the model has seen
    missing: Any  # The column's own marker of a missing value
    has_missing: bool  # Whether the population has a missing value here
    is_date: bool = False  # Whether the numbers are seconds of a date
    is_open: bool = False  # Whether values are not known and any will do: a private attribute whose rows are elsewhere

    @classmethod
    def unlisted(cls, attribute: Attribute, dtype: Any, *, has_missing: bool, is_date: bool) -> Domain:
        """Return a domain of which no value of a row is known; levels and leaves that are declared are."""
        declared = attribute.levels or (attribute.hierarchy.leaves if attribute.hierarchy else ())
        listed = np.array(declared, dtype=object)
        values = np.empty(0) if attribute.kind == "numeric" else listed
        return cls(attribute, values, listed, dtype, np.nan, has_missing, is_date, is_open=not declared)

    @classmethod
    def of(cls, column: pd.Series, attribute: Attribute) -> Domain:
        """Learn the domain of a column."""
        has_missing = bool(column.isna().any())
        missing = column[column.isna()].iloc[0] if has_missing else np.nan
        if attribute.kind == "numeric":
            numbers, invalid = to_numbers(column)
            if invalid.any():
                raise PopulationError(f"column {attribute.name!r} holds infinite or non-numeric values")
            if why := why_inexact(column):
                raise PopulationError(f"column {attribute.name!r} holds {why}")
            values = np.unique(numbers[~np.isnan(numbers)]) + 0.0  # no negative zero: it is 0, in whatever order
            if len(values) and not isfinite(float(values[-1]) - float(values[0])):
                raise PopulationError(f"column {attribute.name!r} has a wider range than float64 holds; scale it")
            originals = np.empty(0, object)
            return cls(attribute, values, originals, column.dtype, missing, has_missing, holds_dates(column))
        present = pd.unique(column.dropna().astype(object))
        by_text = {to_text(v): v for v in present}
        if len(by_text) != len(present):
            raise PopulationError(f"column {attribute.name!r} spells one category in two ways; use one dtype")
        declared = attribute.levels or (attribute.hierarchy.leaves if attribute.hierarchy else None)
        order = list(declared) if declared is not None else sorted(by_text)
        if unknown := set(by_text) - set(order):
            raise PopulationError(
                f"column {attribute.name!r} has {len(unknown)} values that its levels or hierarchy do not list"
            )
        originals = np.empty(len(order), object)
        originals[:] = [by_text.get(text, text) for text in order]
        return cls(attribute, np.asarray(order, object), originals, column.dtype, missing, has_missing)

    _refusal = PopulationError, "a {} holds values of rows and refuses to be pickled"

    def _counts(self) -> str:
        return f"{self.attribute.name!r}, {self.attribute.kind}, {self.size} values"

    @property
    def size(self) -> int:
        """Number of codes, the one for missing included."""
        return len(self.values) + self.has_missing

    @property
    def missing_code(self) -> int:
        """Code of a missing value; -1 when the population has none."""
        return len(self.values) if self.has_missing else UNKNOWN

    @property
    def is_interval(self) -> bool:
        """Whether the attribute generalises to ranges."""
        return self.attribute.kind in ("numeric", "ordinal")

    @cached_property
    def positions(self) -> NDArray[np.float64]:
        """Place of each value on [0, 1] (range attributes): value or rank, divided by the range."""
        line = self.values if self.attribute.kind == "numeric" else np.arange(len(self.values), dtype=float)
        width = float(line[-1] - line[0]) if len(line) else 0.0
        return np.asarray((line - line[0]) / width if width > 0 else np.zeros(len(line)), dtype=np.float64)

    @cached_property
    def scaled(self) -> NDArray[np.float64]:
        """Positions in terms of what generalising costs: times the attribute's weight."""
        return self.positions * self.attribute.weight

    @cached_property
    def _code_of(self) -> dict[str, int]:
        codes = {str(text): code for code, text in enumerate(self.values)}
        for text, code in list(codes.items()):  # other spellings, where they are not categories of their own
            whole = text.removesuffix(".0")
            if whole.lstrip("-").isdigit():
                codes.setdefault(whole if whole != text else f"{text}.0", code)
        if types.is_bool_dtype(self.dtype):
            codes = {alias: codes[text] for text in codes for alias in BOOL_SPELLINGS[text]}
        return codes

    def code(self, value: Any) -> int:
        """Return the code of one category, however it is spelled; `UNKNOWN` for one that the population lacks."""
        return self._code_of.get(to_text(value), UNKNOWN)

    def encode(self, column: pd.Series) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return code and number of every value of a column, whatever its dtype."""
        if self.attribute.kind != "numeric":
            distinct, inverse = _factorize(column)
            codes, numbers = self._encode_categories(distinct)
            return codes[inverse], numbers[inverse]
        numbers, invalid = to_numbers(column)
        return self._encode_numbers(numbers, invalid), numbers

    def encode_values(self, values: list[Any]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Do as `encode`, for a few values, whose types are looked at one by one."""
        if self.attribute.kind != "numeric":
            codes, numbers = self._encode_categories(values)
            return codes[:-1], numbers[:-1]
        if not all(type(value) in (int, float) for value in values):
            return self.encode(pd.Series(values, dtype=object))
        numbers = np.array(values, dtype=np.float64)
        return self._encode_numbers(numbers, np.isinf(numbers)), numbers

    @cached_property
    def _is_bool(self) -> bool:
        return bool(types.is_bool_dtype(self.dtype))

    @cached_property
    def tokens(self) -> NDArray[np.uint64]:
        """What stands for each value of a categorical domain in keyed digests; see `cfk_plugin.data.domain`."""
        return np.array([token_of(text, is_bool=self._is_bool) for text in self.values], dtype=np.uint64)

    def restores(self, values: list[Any], codes: NDArray[np.int32]) -> bool:
        """Say whether `restore` gives a few coded values back as they are, if they have the population's dtype."""
        return all(
            code < 0 or code == self.missing_code or (value == spelled and type(value) is type(spelled))
            for value, code, spelled in zip(values, codes.tolist(), self._spelled(codes), strict=True)
        )

    def _spelled(self, codes: NDArray[np.int32]) -> list[Any]:
        pool = self._pool_values
        return [pool[code] if 0 <= code < len(pool) else None for code in codes.tolist()]

    @cached_property
    def _pool_values(self) -> list[Any]:
        return list(self._pool.tolist())

    def _encode_numbers(self, numbers: NDArray[np.float64], invalid: NDArray[np.bool_]) -> NDArray[np.int32]:
        codes = self._codes_of_numbers(numbers)
        codes[np.isnan(numbers)] = self._code_if_missing
        codes[invalid] = INVALID
        return codes

    def _encode_categories(self, values: list[Any]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return codes, and what stands for unlisted values; both for a missing value at the end."""
        codes = [self._code_if_missing if pd.isna(value) else self.code(value) for value in values]
        numbers = [
            token_of(to_text(value), is_bool=self._is_bool) if self.is_open and code == UNKNOWN else np.nan
            for value, code in zip(values, codes, strict=True)
        ]
        return np.array([*codes, self._code_if_missing], dtype=np.int32), np.array([*numbers, np.nan])

    @property
    def _code_if_missing(self) -> int:
        return self.missing_code if self.has_missing else UNEXPECTED_MISSING

    def _codes_of_numbers(self, numbers: NDArray[np.float64]) -> NDArray[np.int32]:
        if not len(self.values):
            return np.full(len(numbers), UNKNOWN, dtype=np.int32)
        right = np.searchsorted(self.values, numbers).clip(max=len(self.values) - 1)
        left = (right - 1).clip(min=0)
        nearest = np.where(np.abs(self.values[left] - numbers) < np.abs(self.values[right] - numbers), left, right)
        scale = max(float(self.values[-1] - self.values[0]), abs(float(self.values[-1])) * 1e-3, 1e-300)
        with np.errstate(invalid="ignore"):
            same = np.abs(self.values[nearest] - numbers) <= _SNAP * scale
        return np.where(same, nearest, UNKNOWN).astype(np.int32)

    def place(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return where numbers stand on the [0, 1] line of the population; outside of it if they are."""
        width = float(self.values[-1] - self.values[0]) if len(self.values) else 0.0
        if width <= 0:
            return np.zeros(len(numbers))
        return np.asarray((numbers - self.values[0]) / width, dtype=np.float64)

    def inside(self, part: Part) -> NDArray[np.bool_]:
        """Say of every code whether its value is inside one part of a region."""
        allowed = np.zeros(self.size, dtype=bool)
        if isinstance(part, Interval):
            if part.low is not None and part.levels is not None:
                allowed[: len(self.values)] = np.isin(self.values, list(part.levels))
            elif part.low is not None:
                low, high = to_bound(part.low, upwards=True), to_bound(part.high, upwards=False)
                allowed[: len(self.values)] = (self.values >= low) & (self.values <= high)
            if part.missing and self.has_missing:
                allowed[-1] = True
            return allowed
        known = (self.code(v) for v in part if v is not None)
        allowed[[code for code in known if code != UNKNOWN]] = True
        if None in part and self.has_missing:
            allowed[-1] = True
        return allowed

    def label(self, part: Part) -> str | None:
        """Return the name of the hierarchy's node that a part of several values is; None where there is none."""
        hierarchy = self.attribute.hierarchy
        if hierarchy is None or isinstance(part, Interval) or len(part) == 1 or None in part:
            return None
        return hierarchy.labels[hierarchy.cover([to_text(value) for value in part])]

    def value(self, code: int) -> Any:
        """Return the value of a code in natural form: a number, a Timestamp, a category; None when missing."""
        if code == self.missing_code and self.has_missing:
            return None
        if self.attribute.kind == "numeric":
            return self.natural(float(self.values[code]))
        return self.values[code] if self.attribute.kind == "ordinal" else self.originals[code]

    def natural(self, number: float) -> Any:
        """Return a number as the column would show it: int, float or Timestamp."""
        if self.is_date:
            zone = getattr(self.dtype, "tz", None)
            stamp = pd.Timestamp(dates_of(np.array([number]))[0])
            return stamp if zone is None else stamp.tz_localize("UTC").tz_convert(zone)
        if number.is_integer() and not types.is_float_dtype(self.dtype):
            return int(number)
        return number

    def restore(self, codes: NDArray[np.integer[Any]]) -> pd.Series:
        """Rebuild a column in the population's dtype."""
        return pd.Series(self.restored(codes), dtype=self._pool.dtype)

    def restored(self, codes: NDArray[np.integer[Any]]) -> Any:
        """Do as `restore`, without an index around the values."""
        return self._pool.array.take(codes)

    @cached_property
    def _pool(self) -> pd.Series:
        """Every value once, in the population's dtype: rebuilding a column is one lookup."""
        pool = np.empty(self.size, object)
        pool[:] = [self.value(code) for code in range(self.size)]
        if self.attribute.kind == "ordinal":
            pool[: len(self.values)] = self.originals
        if self.has_missing:
            pool[self.size - 1] = self.missing
        return conform(pd.Series(pool, dtype=object), self.dtype)


def _factorize(column: pd.Series) -> tuple[list[Any], NDArray[np.int64]]:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return list(column.cat.categories), np.asarray(column.cat.codes, dtype=np.int64)
    codes, distinct = pd.factorize(column)
    return list(distinct), np.asarray(codes, dtype=np.int64)


# Declared bins of a numeric private attribute: which one a number falls into, and what is released of it.


def bin_of(domain: Domain, number: float) -> int | None:
    """Return which of the declared bins a number falls into; None for none, and where none are declared."""
    edges = domain.attribute.bins
    if edges is None or not edges[0] <= number <= edges[-1]:
        return None
    return min(bisect_right(edges, number), len(edges) - 1) - 1


def bin_part(domain: Domain, at: int) -> Interval:
    """Return a declared bin as it is released; of its ends, only the last bin has the upper one."""
    edges = domain.attribute.bins or ()
    return Interval(domain.natural(edges[at]), domain.natural(edges[at + 1]))


def bin_codes(domain: Domain, at: int) -> tuple[int, int]:
    """Return the first code inside a declared bin, and the first one after it."""
    edges = domain.attribute.bins or ()
    is_last = at + 2 == len(edges)
    first = np.searchsorted(domain.values, edges[at], side="left")
    return int(first), int(np.searchsorted(domain.values, edges[at + 1], side="right" if is_last else "left"))
