"""Single values as they are shown, and regions, to which quasi-identifiers are generalised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.errors import InputError


def to_text(value: Any) -> str:
    """Spell a category in one way whatever its dtype: 3, 3.0 and "3" are the same."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def is_missing(value: object) -> bool:
    """Return True for a scalar that stands for a missing value."""
    return bool(types.is_scalar(value) and pd.isna(value))  # type: ignore[call-overload]


def natural(value: Any) -> Any:
    """Return a scalar as plain Python shows it: no NumPy type, None for a missing value."""
    if type(value) in (str, int, bool):
        return value
    if is_missing(value):
        return None
    return value.item() if isinstance(value, np.generic) else value


def json_value(value: Any) -> Any:
    """Turn a scalar into what JSON can hold: None for a missing value, ISO text for a date."""
    plain = natural(value)
    if isinstance(plain, date):
        return plain.isoformat()
    if isinstance(plain, Decimal):  # JSON has no decimals: a float if it is written alike, or text
        is_written_alike = Decimal(repr(float(plain))) == plain
        return float(plain) if is_written_alike else str(plain)
    return plain


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed range of a numeric, date or ordinal attribute.

    Attributes
    ----------
    low, high : number, Timestamp or str
        Both ends, included; of an ordinal attribute the first and last level. None when only
        missing values are inside.
    missing, levels : bool, and tuple of str, optional
        Whether a missing value is inside too; the levels inside, in order, of an ordinal attribute.
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
            return to_text(value) in self.levels
        try:
            return bool(self.low <= _comparable(value) <= self.high)
        except TypeError:  # a text is in no range of numbers
            return False

    @property
    def is_single(self) -> bool:
        """Whether just one value is inside."""
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
        None among the values stands for a missing one.

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
                raise InputError(f"region of {name!r} must be an Interval or a non-empty frozenset")
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
        """Return True if a person with these quasi-identifiers fits the region."""
        has_names = isinstance(row, (Mapping, pd.Series))
        missing = [name for name in self.parts if not has_names or name not in row]
        if missing:
            raise InputError(
                "row must be one person's values by feature, a mapping or a Series, with"
                f" {', '.join(missing)}"
            )
        return all(part_contains(part, row[name]) for name, part in self.parts.items())

    def members(self, population: Any) -> NDArray[np.int64]:
        """Return the positions of the population's rows that fit the region.

        Only for the data holder: positions lead to people.
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
    """Read back what `part_to_dict` wrote; dates stay ISO strings that the population parses."""
    if data.get("kind") == "interval":
        levels = tuple(data["levels"]) if data.get("levels") is not None else None
        return Interval(data["low"], data["high"], bool(data.get("missing", False)), levels)
    return frozenset(data["values"])


def part_to_text(part: Part) -> str:
    """Write one part for a cell of a table: ``24–27``, ``{A, B}`` or the single value."""
    if isinstance(part, Interval):
        return str(part)
    if len(part) == 1:
        return spelled(next(iter(part)))
    return "{" + ", ".join(spelled(v) for v in sorted_values(part)) + "}"


def sorted_values(values: frozenset[Any]) -> list[Any]:
    """Return the values of a set in an order that does not depend on hashing; None is last."""
    return sorted(values, key=lambda value: (value is None, str(value)))


def part_of(value: Any) -> Part:
    """Return the part of a region that holds only this value; an `Interval` is one already."""
    if isinstance(value, Interval):
        return value
    if pd.isna(value):
        return frozenset({None})
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number or isinstance(value, pd.Timestamp):
        return Interval(value, value)
    return frozenset({value})


def part_contains(part: Part, value: Any) -> bool:
    """Return True if a value is inside one part of a region; a category may have any dtype."""
    if isinstance(part, Interval):
        return value in part
    if is_missing(value):
        return None in part
    return value in part or to_text(value) in {to_text(v) for v in part if v is not None}


def _comparable(value: Any) -> Any:
    """Return a value in a type that compares exactly with the ends of ranges."""
    if isinstance(value, np.number):  # NumPy would round the ends to the type of the value
        return value.item()
    if isinstance(value, Decimal):  # ends are floats, and one that is written 0.1 stands for 0.1
        return float(value)
    return pd.Timestamp(value) if isinstance(value, date) else value


def spelled(value: Any) -> str:
    """Return a value of a region as it is shown; a number is never rounded."""
    if value is None:
        return "missing"
    if isinstance(value, pd.Timestamp):
        is_day = value.tz is None and value == value.normalize()
        return value.date().isoformat() if is_day else value.isoformat(sep=" ")
    if isinstance(value, float):
        # The shortest text that reads back as this very number: a rounded end would leave people
        # outside.
        return float.__repr__(value).removesuffix(".0")
    return str(value)
