"""Single answers of people: each in its form, or an error that names its key and never shows what was answered."""

from __future__ import annotations

import datetime as dt
import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from cfk_plugin.errors import InputError
from cfk_plugin.report.inputs.questions import Question
from cfk_plugin.report.inputs.written import shown

LONGEST = 2_000
"""Characters of the longest answer."""

Form = Callable[[Any, str, str], Any]
"""From a value, how errors name it, and its key, to what is kept."""

_EMPTY = ("", "~", "null")
_TURNS_TEXT = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # what is read must be what stands there


def is_empty(value: object) -> bool:
    """Say whether nothing was answered."""
    return value is None or (isinstance(value, str) and value.strip() in _EMPTY)


def check_keys(given: Mapping[Any, Any], where: str, known: Iterable[str]) -> None:
    """Refuse a key that is not known: a misspelt answer would be lost without a word.

    Raises
    ------
    InputError
    """
    if unknown := [key for key in given if key not in known]:
        raise InputError(f"{where}{shown(unknown[0])} is unknown; known: {', '.join(known)}")


def read_each(given: object, where: str, known: Iterable[str], read: Form) -> MappingProxyType[str, Any]:
    """Read every value of one part; those that are empty are left out.

    Parameters
    ----------
    given : mapping
    where : str
        How errors name the part.
    known : iterable of str
        Keys that it may have; the result is in their order.
    read : callable
        See `Form`.

    Raises
    ------
    InputError
    """
    if not isinstance(given, Mapping):
        raise InputError(f"{where} must hold keys and values, got {type(given).__name__}")
    check_keys(given, f"{where}.", known)
    found = {name: read(given[name], f"{where}.{name}", name) for name in known if name in given}
    return MappingProxyType({name: value for name, value in found.items() if value is not None})


def read_text(value: object, where: str) -> str | None:
    """Return a text without what surrounds it, None where there is none; ``where`` is how errors name it.

    Raises
    ------
    InputError
        If it is no text, too long, or holds what cannot be printed.
    """
    if is_empty(value):
        return None
    if not isinstance(value, str):
        raise InputError(f"{where} must be text, got {type(value).__name__}; put quotes around it")
    text = value.strip()
    if len(text) > LONGEST:
        raise InputError(f"{where} has {len(text):,} characters; say it in {LONGEST:,}")
    if any(_unprintable(letter) for letter in text):
        raise InputError(f"{where} holds characters that cannot be printed; type it anew")
    return text


def _unprintable(letter: str) -> bool:
    """Say whether a letter has no print image, or turns the direction of the text after it."""
    return letter not in "\n\t" and (unicodedata.category(letter) in ("Cc", "Cs", "Co", "Cn") or letter in _TURNS_TEXT)


def read_answer(value: object, where: str, asked: Question) -> str | None:
    """Return the answer to a question, None where there is none.

    Raises
    ------
    InputError
        If it has not the form that the question asks for.
    """
    if asked.kind == "date":
        return read_date(value, where)
    if isinstance(value, bool):  # what other readers of YAML make of yes and no
        value = "yes" if value else "no"
    text = read_text(value, where)
    if text is not None and asked.choices and text.lower() not in asked.choices:
        raise InputError(f"{where} must be one of {', '.join(asked.choices)}")
    return text.lower() if text is not None and asked.choices else text


def read_date(value: object, where: str) -> str | None:
    """Return a date as YYYY-MM-DD, None where there is none.

    Raises
    ------
    InputError
        If it is no date.
    """
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.isoformat()
    text = read_text(value, where)
    if text is None:
        return None
    try:
        day = dt.date.fromisoformat(text) if len(text) == len("YYYY-MM-DD") else None
    except ValueError:
        day = None
    if day is None:
        raise InputError(f"{where} must be a date, YYYY-MM-DD")
    return day.isoformat()


def read_signature(value: object, where: str) -> Mapping[str, str] | None:
    """Return ``name`` and ``date``, as far as they are there; None where neither is.

    Raises
    ------
    InputError
    """
    if is_empty(value):
        return None
    forms = {"name": read_text, "date": read_date}
    found = read_each(value, where, tuple(forms), lambda part, at, name: forms[name](part, at))
    return found or None


def read_number(value: object, where: str, name: str) -> float | None:
    """Return a threshold, None where there is none: people for ``k``, a number above 0 for ``epsilon``, else a share.

    Raises
    ------
    InputError
        If it is no such number.
    """
    if is_empty(value):
        return None
    try:
        number = float(value) if not isinstance(value, bool) else math.nan  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if name == "k":
        if not (number >= 2 and number.is_integer()):
            raise InputError(f"{where} must be a whole number >= 2")
        return int(number)
    if name == "epsilon":
        if not 0 < number < math.inf:
            raise InputError(f"{where} must be a finite number above 0")
        return number
    if not 0 <= number <= 1:
        raise InputError(f"{where} must be a number between 0 and 1")
    return number
