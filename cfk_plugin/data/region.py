"""Single values as they are shown, regions (what quasi-identifiers are generalised to), and how
both are told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from cfk_plugin.errors import InputError, SchemaError


def to_text(value: Any) -> str:
    """Spell a category in one way whatever its dtype: 3, 3.0 and "3" are the same."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def is_missing(value: object) -> bool:
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
    # JSON has no decimals: a number where it is written alike, else text
    if isinstance(plain, Decimal):
        return float(plain) if Decimal(repr(float(plain))) == plain else str(plain)
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
        text = (
            spelled(self.low)
            if self.low == self.high
            else f"{spelled(self.low)}–{spelled(self.high)}"
        )
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
        """Say whether a person with these quasi-identifiers fits the region."""
        if lost := [
            name
            for name in self.parts
            if not isinstance(row, (Mapping, pd.Series)) or name not in row
        ]:
            raise InputError(
                "row must be one person's values by feature, a mapping or a Series, with"
                f" {', '.join(lost)}"
            )
        return all(part_contains(part, row[name]) for name, part in self.parts.items())

    def members(self, population: Any) -> NDArray[np.int64]:
        """Return the positions of the population's rows that fit the region; for the data holder
        alone.
        """
        found: NDArray[np.int64] = population.members(self)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the region as JSON-ready values."""
        return {name: part_to_dict(part) for name, part in self.parts.items()}


def part_to_dict(part: Part) -> dict[str, Any]:
    if isinstance(part, Interval):
        out: dict[str, Any] = {
            "kind": "interval",
            "low": json_value(part.low),
            "high": json_value(part.high),
        }
        if part.levels is not None:
            out["levels"] = list(part.levels)
        return {**out, "missing": True} if part.missing else out
    return {"kind": "set", "values": [json_value(v) for v in sorted_values(part)]}


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
    """Return members in an order that does not depend on hashing."""
    return sorted(values, key=lambda v: (v is None, str(v)))


def part_of(value: Any) -> Part:
    if isinstance(value, Interval):
        return value
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if (number or isinstance(value, pd.Timestamp)) and not pd.isna(value):
        return Interval(value, value)
    return frozenset({None if pd.isna(value) else value})


def part_contains(part: Part, value: Any) -> bool:
    """Say whether a value is inside one part of a region; a category may have any dtype."""
    if isinstance(part, Interval):
        return value in part
    if is_missing(value):
        return None in part
    return value in part or to_text(value) in {to_text(v) for v in part if v is not None}


def _comparable(value: Any) -> Any:
    """Return a value as ends of ranges compare with it: NumPy's numbers would round them to their
    own type.
    """
    if isinstance(value, np.number):
        return value.item()
    if isinstance(value, Decimal):  # ends are floats, and one that is written 0.1 stands for 0.1
        return float(value)
    return pd.Timestamp(value) if isinstance(value, date) else value


def spelled(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, pd.Timestamp):
        is_day = value.tz is None and value == value.normalize()
        return value.date().isoformat() if is_day else value.isoformat(sep=" ")
    # The shortest text that reads back as this very number: a rounded end would leave people
    # outside.
    return float.__repr__(value).removesuffix(".0") if isinstance(value, float) else str(value)


_NUMBERED = re.compile(r"\{([^{}|]*)\|([^{}|]*)\}")  # {year|years}


@dataclass(frozen=True, slots=True)
class Phrase:
    """How a change of one attribute is said; each part follows "you", unless it begins with "your".

    ``{year|years}`` stands for the first word after a single 1 and else for the second.

    Attributes
    ----------
    more, less : str
        A numeric change, ``{}`` standing for its size: ``"were {} {year|years} older"``.
    equal : str
        Any other change, ``{}`` standing for the new value: ``"lived in {}"``.
    """

    more: str
    less: str
    equal: str

    @classmethod
    def default(cls, name: str) -> Phrase:
        """Return neutral wording for an attribute; an attribute called age is said in years."""
        if name.lower() == "age":
            years = "were {} {year|years}"
            return cls(f"{years} older", f"{years} younger", f"{years} of age")
        label = f"your {name.replace('_', ' ')} were"
        return cls(f"{label} higher by {{}}", f"{label} lower by {{}}", f"{label} {{}}")

    @classmethod
    def of(cls, name: str, given: object) -> Phrase:
        """Read what a schema says: a `Phrase`, the text of `equal`, or some of the three by
        name.
        """
        said = {"equal": given} if isinstance(given, str) else given
        if isinstance(said, Mapping) and said and {*said} <= {"more", "less", "equal"}:
            said = replace(cls.default(name), **said)
        if not isinstance(said, Phrase) or not all(
            map(_can_be_filled, (said.more, said.less, said.equal))
        ):
            raise SchemaError(
                f'column {name!r}: a phrase is a text such as "lived in {{}}", or an object with'
                " more, less and equal, whose texts have {} where the value goes, and no braces"
                " but that and {year|years}"
            )
        return said


PhraseParts = Phrase | str | Mapping[str, str]
"""How a change is said: the text for a new value, or some of ``more``, ``less`` and ``equal``."""


def _can_be_filled(text: object) -> bool:
    """Say whether a text has a place for a value, or is empty, as for a change that is never
    worded.
    """
    if not isinstance(text, str):
        return False
    bare = _NUMBERED.sub("", text)
    return (not text or "{}" in bare) and not {*"{}"} & {*bare.replace("{}", "")}


def sentence(
    parts: Mapping[str, Part],
    factual: Mapping[str, Any] | pd.Series[Any] | None,
    phrases: Mapping[str, PhraseParts] | None = None,
    titles: Mapping[str, str] | None = None,
    withheld: Sequence[str] = (),
) -> str:
    """Write a counterfactual explanation as one sentence; what needs no change is left out, where
    that is known.
    """
    known = {name: Phrase.of(name, given) for name, given in (phrases or {}).items()}
    named = titles or {}
    own = dict.fromkeys(parts) if factual is None else {name: factual[name] for name in parts}
    other = {
        name: part
        for name, part in parts.items()
        if factual is None or not part_contains(part, own[name])
    }
    changes = [
        _change(name, part, own[name], known.get(name) or Phrase.default(name), named.get(name))
        for name, part in other.items()
    ]
    remark = (
        f" (withheld: {_listed([name.replace('_', ' ') for name in withheld])})" if withheld else ""
    )
    if not changes:
        return f"Nothing in these attributes needs to change for the desired outcome{remark}."
    changes.sort(key=lambda said: said.startswith("your "))  # what begins with "you" has it once
    you = "" if changes[0].startswith("your ") else "you "
    return f"If {you}{_listed(changes)}, the outcome would be the desired one{remark}."


def _listed(items: Sequence[str], word: str = "and") -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}"


def _change(name: str, part: Part, value: Any, phrase: Phrase, title: str | None) -> str:
    if part == frozenset({None}) or (isinstance(part, Interval) and part.low is None):
        return f"your {name.replace('_', ' ')} were missing"
    if (
        title is None
        and isinstance(part, Interval)
        and _is_number(part.low)
        and _is_number(value)
        and not part.missing
    ):
        ends = (part.low, part.high) if value < part.low else (part.high, part.low)
        least, most = (_apart(end, value) for end in ends)
        if least is not None and most is not None:
            return _filled(
                phrase.more if value < part.low else phrase.less, str(Interval(least, most))
            )
    return _filled(phrase.equal, told(part, title))


def _filled(phrase: str, said: str) -> str:
    return _NUMBERED.sub(lambda words: words[1 if said == "1" else 2], phrase).replace("{}", said)


def told(part: Part, title: str | None = None) -> str:
    """Word a part, or name its hierarchy node, within a sentence."""
    if (
        title is None
        and isinstance(part, Interval)
        and isinstance(part.low, pd.Timestamp)
        and part.low != part.high
    ):
        return (
            f"between {spelled(part.low)} and"
            f" {spelled(part.high)}{' or missing' if part.missing else ''}"
        )
    if title is not None or isinstance(part, Interval):
        return title or part_to_text(part)
    return _listed([part_to_text(frozenset({v})) for v in sorted(part, key=str)], "or")


def _is_number(value: object) -> bool:
    is_one = isinstance(value, Number) and not isinstance(value, (bool, np.bool_))
    return is_one and bool(value == value)  # noqa: PLR0124 - NaN is no number to compare with


def _apart(end: Any, value: Any) -> Any:
    """Return how far a value is from an end; None where adding what is written does not give
    exactly this end.
    """
    end, value = natural(end), natural(value)
    if isinstance(end, int) and isinstance(value, int):
        return abs(end - value)
    try:
        written = abs(Fraction(str(end)) - Fraction(str(value)))
        apart = float(written)
    except (OverflowError, ValueError):  # an infinity, or too far
        return None
    return apart if Fraction(str(apart)) == written else None
