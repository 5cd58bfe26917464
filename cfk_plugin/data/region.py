"""Regions, which generalise quasi-identifiers, and their values, in any dtype and spelling."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.errors import InputError

# The types of values that can be read and written. The list is closed, because an explainer or a
# request may contain anything, and accepted values are logged and written without further checks.
NUMBERS = {bool, int, float, np.bool_, *(np.dtype(code).type for code in "bhilqBHILQefd")}
DATES = {date, datetime, pd.Timestamp, np.datetime64}

_ISO = re.compile(r"\d{4}-\d{2}-\d{2}")
_NO_SECONDS = re.compile(r"(?<=^\d{2}:\d{2}):00(?=$|[+-])")
_WHOLE = re.compile(r"(-?(?:0|[1-9]\d*))(\.0)?")
_TRUTHS = {
    "True": ("True", "true", "TRUE", "1", "1.0", "yes"),
    "False": ("False", "false", "FALSE", "0", "0.0", "no"),
}


def is_missing(value: object) -> bool:
    """Return True for a scalar that means a missing value, such as None, NaN or NaT."""
    return bool(types.is_scalar(value) and pd.isna(value))  # type: ignore[call-overload]


def is_date(value: object) -> bool:
    """Return True for a date or the ISO text of one."""
    if isinstance(value, str):
        return value.isascii() and _ISO.match(value) is not None
    return type(value) in DATES


def to_number(value: Any) -> float:
    """Return a number, or the seconds since 1970 (UTC) of a date; NaN for any other value.

    A float32 becomes the number with its shortest decimal: 0.1 in float32 is also 0.1.
    """
    if is_missing(value):
        return math.nan
    if is_date(value):
        return _seconds(value)
    if isinstance(value, np.floating):
        value = str(value)
    if not isinstance(value, (str, Decimal)) and type(value) not in NUMBERS:
        return math.nan
    if isinstance(value, str) and "_" in value:
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _in_float32(number: float) -> float:
    """Round a number to the precision of float32."""
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def _seconds(value: Any) -> float:
    """Return the seconds since 1970 (UTC) of a date or its ISO text; NaN if it is invalid."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return math.nan
    moment = pd.Timestamp(value)
    if moment.tz is not None:
        moment = moment.tz_convert(None)
    return float(moment.asm8.astype("M8[us]").astype(np.int64) / 1e6)


def dates_of(seconds: NDArray[np.float64]) -> NDArray[np.datetime64]:
    """Return the dates for numbers of seconds since 1970, to the microsecond."""
    return np.asarray(np.round(seconds * 1e6).astype(np.int64).view("M8[us]"))


def to_date(seconds: float, zone: Any = None) -> pd.Timestamp:
    """Return the date for a number of seconds since 1970 (UTC), in the time zone if given."""
    moment = pd.Timestamp(dates_of(np.array([seconds]))[0])
    return moment if zone is None else moment.tz_localize("UTC").tz_convert(zone)


def to_text(value: Any) -> str:
    """Return one text for a value in any dtype; a number is never rounded.

    Equal values have the same text: 3 and 3.0, 0.1 in every precision, a day with or without its
    midnight.
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (float, np.floating)):
        return str(int(value)) if float(value).is_integer() else str(value)
    if isinstance(value, Decimal) and value.is_finite():
        return format(value.normalize(), "f")
    if type(value) not in DATES or is_missing(value):
        return str(value)
    moment = pd.Timestamp(value)
    is_day = moment.tz is None and moment == moment.normalize()
    return moment.date().isoformat() if is_day else moment.isoformat(sep=" ")


def spellings(value: Any) -> tuple[str, ...]:
    """Return all texts that mean the same category, its usual text first.

    "3" is also "3.0", "true" is also "True", and a day may have a midnight. "1" and "yes" also mean
    the bool True.
    """
    text = to_text(value)
    if isinstance(value, (bool, np.bool_)):
        return _TRUTHS[text]
    whole = _WHOLE.fullmatch(text)
    if whole is not None:
        return text, f"{text}.0" if whole[2] is None else whole[1]
    if text.title() in _TRUTHS:
        return tuple(dict.fromkeys([text, *_TRUTHS[text.title()][:3]]))
    if is_date(text):
        seconds = _seconds(text)
        return (text,) if math.isnan(seconds) else (text, to_text(to_date(seconds)))
    return (text,)


def natural(value: Any) -> Any:
    """Return a scalar as a plain Python value instead of a NumPy one; None if it is missing."""
    if type(value) in (str, int, bool):
        return value
    if is_missing(value):
        return None
    if isinstance(value, np.floating):
        return to_number(value)
    return value.item() if isinstance(value, np.generic) else value


def json_value(value: Any) -> Any:
    """Return a scalar as a JSON-ready value: None if it is missing, ISO text for a date."""
    plain = natural(value)
    if isinstance(plain, date):
        text = to_text(plain)  # a day is written without its midnight
        return text if _ISO.fullmatch(text) else plain.isoformat()
    if isinstance(plain, Decimal):  # JSON has no decimals: write a float if it is exact, or text
        is_exact = Decimal(repr(float(plain))) == plain
        return float(plain) if is_exact else str(plain)
    return plain


def spelled(value: Any) -> str:
    """Return the text of a value of a region for people: no ".0", no midnight, "missing"."""
    if isinstance(value, float):  # the shortest decimal, even for a large number
        return float.__repr__(value).removesuffix(".0")
    if type(value) in DATES and not is_missing(value):
        moment = pd.Timestamp(value)
        return f"{moment.date().isoformat()} {time_of_day(moment)}".rstrip()
    return "missing" if value is None else to_text(value)


def time_of_day(moment: pd.Timestamp) -> str:
    """Return the time of a date for people, without seconds if they are zero.

    It is empty at midnight, since the date then means a day.
    """
    if moment == moment.normalize():
        return ""
    return _NO_SECONDS.sub("", moment.isoformat(sep=" ").partition(" ")[2])


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed range of a numeric, date or ordinal attribute.

    Attributes
    ----------
    low, high : number, Timestamp or str
        Both ends, included. For an ordinal attribute, the first and last level. None if only
        missing values are inside.
    missing : bool
        Whether a missing value is inside too.
    levels : tuple of str, optional
        For an ordinal attribute, the levels inside, in order.

    Examples
    --------
    >>> 25 in Interval(24, 27)
    True
    >>> str(Interval(24, 27, missing=True))
    '24–27 or missing'
    """

    low: Any
    high: Any
    missing: bool = False
    levels: tuple[str, ...] | None = None

    def __contains__(self, value: object) -> bool:
        if is_missing(value):
            return self.missing
        if self.low is None:
            return False
        if self.levels is not None:
            return part_contains(frozenset(self.levels), value)
        if is_date(value) != is_date(self.low):
            return False
        number = to_number(value)
        low = to_number(self.low)
        high = to_number(self.high)
        if low <= number <= high:
            return True
        # a cell of float32 may differ from the same end by rounding
        return number % 1 != 0 and number in (_in_float32(low), _in_float32(high))

    @property
    def is_single(self) -> bool:
        """Whether exactly one value is inside; a missing value counts as one."""
        return (self.low == self.high) and not (self.missing and self.low is not None)

    def __str__(self) -> str:
        if self.low is None:
            return "missing"
        text = spelled(self.low)
        if self.low != self.high:
            text = f"{text}–{spelled(self.high)}"
        return f"{text} or missing" if self.missing else text


Part = Interval | frozenset[Any]


@dataclass(frozen=True, slots=True)
class Region(Mapping[str, Part]):
    """A generalised combination of quasi-identifiers: one interval or value set per attribute.

    Parameters
    ----------
    parts : mapping of quasi-identifier to `Interval` or ``frozenset`` of values
        None in a set means a missing value.

    Raises
    ------
    InputError
        If a part is neither an `Interval` nor a non-empty ``frozenset``.

    Examples
    --------
    >>> region = Region({"age": Interval(24, 27), "city": frozenset({"Antwerp"})})
    >>> region.contains({"age": 25, "city": "Antwerp"})
    True
    """

    parts: Mapping[str, Part]

    def __post_init__(self) -> None:
        for name, part in self.parts.items():
            if not isinstance(part, (Interval, frozenset)) or part == frozenset():
                raise InputError(
                    f"region of {name!r} must be an Interval or a non-empty frozenset, got"
                    f" {type(part).__name__}"
                )
        object.__setattr__(self, "parts", dict(self.parts))

    def __getitem__(self, name: str) -> Part:
        return self.parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __hash__(self) -> int:
        return hash(frozenset(self.parts.items()))

    def contains(self, row: Mapping[str, Any]) -> bool:
        """Return True if a person with these quasi-identifiers fits the region.

        Parameters
        ----------
        row : mapping or Series
            The person's value of each quasi-identifier, in any dtype and spelling.

        Raises
        ------
        InputError
            If a quasi-identifier is missing in `row`.
        """
        has_names = isinstance(row, (Mapping, pd.Series))
        missing = [name for name in self.parts if not has_names or name not in row]
        if missing:
            raise InputError(
                "row must be one person's values by feature, a mapping or a Series, with"
                f" {', '.join(missing)}"
            )
        return all(part_contains(part, row[name]) for name, part in self.parts.items())

    def members(self, population: Any) -> NDArray[np.int64]:
        """Return the positions of the rows of a `Population` inside the region, shape (n_inside,).

        Only the data holder may see them, because positions identify people.
        """
        rows: NDArray[np.int64] = population.members(self)
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return the region as JSON-ready values."""
        return {name: part_to_dict(part) for name, part in self.parts.items()}


def part_to_dict(part: Part) -> dict[str, Any]:
    """Return one part of a region as JSON-ready values."""
    if not isinstance(part, Interval):
        return {"kind": "set", "values": [json_value(value) for value in sorted_values(part)]}
    content: dict[str, Any] = {
        "kind": "interval",
        "low": json_value(part.low),
        "high": json_value(part.high),
    }
    if part.levels is not None:
        content["levels"] = list(part.levels)
    if part.missing:
        content["missing"] = True
    return content


def part_from_dict(data: Mapping[str, Any]) -> Part:
    """Return the part that `part_to_dict` wrote; dates stay ISO text."""
    if data.get("kind") == "interval":
        levels = tuple(data["levels"]) if data.get("levels") is not None else None
        return Interval(data["low"], data["high"], bool(data.get("missing", False)), levels)
    return frozenset(data["values"])


def part_to_text(part: Part) -> str:
    """Return the text of one part for people: ``24–27``, ``{A, B}`` or the single value."""
    if isinstance(part, Interval):
        return str(part)
    if len(part) == 1:
        return spelled(next(iter(part)))
    return "{" + ", ".join(spelled(v) for v in sorted_values(part)) + "}"


def sorted_values(values: frozenset[Any]) -> list[Any]:
    """Return the values of a set in an order that does not depend on hashing; None is last."""
    return sorted(values, key=lambda value: (value is None, str(value)))


def part_of(value: Any) -> Part:
    """Return the part of a region that contains only this value; return an `Interval` unchanged."""
    if isinstance(value, Interval):
        return value
    if pd.isna(value):
        return frozenset({None})
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number or isinstance(value, pd.Timestamp):
        return Interval(value, value)
    return frozenset({value})


def part_contains(part: Part, value: Any) -> bool:
    """Return True if a value, in any dtype and spelling, is inside one part of a region."""
    if isinstance(part, Interval):
        return value in part
    if is_missing(value):
        return None in part
    texts = {text for member in part if member is not None for text in spellings(member)}
    return not texts.isdisjoint(spellings(value))


def read_like(part: Part, value: Any) -> Any:
    """Convert a value to the type of a part of its column, so that both have the same format.

    A value of another kind is returned unchanged.
    """
    if isinstance(part, Interval):
        if part.low is None or part.levels is not None or is_date(value) != is_date(part.low):
            return value
        number = to_number(value)
        if math.isnan(number):
            return value
        return to_date(number, getattr(part.low, "tz", None)) if is_date(value) else number
    if any(isinstance(member, bool) for member in part):
        truths = [truth for truth in (True, False) if part_contains(frozenset({truth}), value)]
        return truths[0] if truths else value
    return value
