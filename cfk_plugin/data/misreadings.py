"""A warning about columns of text that probably contain numbers or dates.

`Schema.from_frame` reads text as categories, which are only compared for equality. Nothing fails,
but the explanations are poor. The warning names the column and no value, and a large share of the
distinct values decides about it, never a single row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pandas as pd
from pandas.api import types

from cfk_plugin.data.values import is_numeric
from cfk_plugin.errors import MisreadColumnWarning, warn

_FEWEST_VALUES = 10  # distinct values; fewer are probably codes of categories
_MOST_VALUES = 1_000  # distinct values that are checked
_SHARE = 0.95  # of the distinct values must match
_CODE = re.compile(r"0\d+")  # such as a postal code or a phone number
_SIGN = r"[-+−(\s]*"
_CURRENCY = (
    "(?:AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HUF|INR|JPY|MXN|NOK|PLN|SEK|TRY|USD|ZAR"
    "|[A-Z]{0,2}[$€£¥₹₽₩]|Fr\\.|Rs\\.?|kr|zł)?"
)
_DIGITS = r"(?:\d[\d.,'’\s]*|[.,]\d+)(?:e[-+]?\d+)?"
_SCALE = r"\s*(?:[KMB]|[mb]n|%)?\s*"
_NUMBER = re.compile(
    rf"{_SIGN}{_CURRENCY}{_SIGN}{_DIGITS}{_SCALE}{_CURRENCY}[-−)\s]*", re.IGNORECASE
)
_MONTH = r"(?:jan|feb|m[aä]r|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[^\W\d]*"
_DAY = re.compile(
    r"\s*(?:\d{1,2}([/.-])\d{1,2}\1\d{2,4}|\d{4}([/.-])\d{1,2}\2\d{1,2}"
    rf"|\d{{1,2}}\W*{_MONTH}\W*\d{{2,4}}|{_MONTH}\W*\d{{1,2}}\W+\d{{2,4}})"
    r"(?:[T\s]+\d{1,2}:\d{2}.*)?\s*",
    re.IGNORECASE,
)


def warn_of_misreadings(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Warn about each of the named columns that is probably misread."""
    for text in misreadings(frame, names):
        warn(text, MisreadColumnWarning)


def misreadings(frame: pd.DataFrame, names: Iterable[str]) -> Iterator[str]:
    """Yield a warning for each of the named columns that is probably misread."""
    for name in names:
        texts = _distinct_texts(frame[name])
        if len(texts) < _FEWEST_VALUES:
            continue
        if _share(texts, _DAY) >= _SHARE:
            yield (
                f"column {name!r} has dates as text, and is read as categories; write them as"
                " YYYY-MM-DD, or convert the column with pd.to_datetime(column, format=...)"
            )
        elif _share(texts, _NUMBER) >= _SHARE and _share(texts, _CODE) <= 1 - _SHARE:
            yield (
                f"column {name!r} has numbers as text, and is read as categories; write plain"
                " numbers, or convert the column with pd.to_numeric(column, errors='coerce'). If"
                " the numbers are codes, name the column in nominal"
            )


def _distinct_texts(column: pd.Series) -> list[str]:
    """Return an even sample of a text column's distinct values; an empty list for others."""
    is_text = types.is_object_dtype(column.dtype) or isinstance(column.dtype, pd.StringDtype)
    if not is_text or is_numeric(column):
        return []
    values = column.dropna().unique()
    step = max(len(values) // _MOST_VALUES, 1)
    return [str(value) for value in values[::step]]


def _share(texts: list[str], pattern: re.Pattern[str]) -> float:
    """Return the share of texts that match a pattern."""
    return sum(pattern.fullmatch(text) is not None for text in texts) / len(texts)
