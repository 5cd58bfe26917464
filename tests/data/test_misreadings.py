"""The warning of `Schema.from_frame` about text that is probably numbers or days."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Attribute, Schema
from cfk_plugin.errors import MisreadColumnWarning

N = 120
RANDOM = np.random.default_rng(3)
NUMBERS = 1_000 + 37 * RANDOM.permutation(N)
DAYS = pd.Series(pd.Timestamp("1980-01-01") + pd.to_timedelta(RANDOM.permutation(N) * 20, "D"))
TABLE = pd.DataFrame({"age": RANDOM.integers(18, 70, N)})


def warnings_about(column: Any, **settings: Any) -> list[str]:
    """Return the warnings about a table with one more column."""
    table = TABLE.assign(income=column)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Schema.from_frame(table, **{"quasi_identifiers": ["age"], **settings})
    assert all(warning.category is MisreadColumnWarning for warning in caught)
    assert all(warning.filename == __file__ for warning in caught)
    return [str(warning.message) for warning in caught]


def texts(form: str = "{}") -> list[str]:
    return [form.format(number) for number in NUMBERS.tolist()]


@pytest.mark.parametrize(
    "form",
    [
        *("{}", "{} %", "{},50", "{}e3", "{}.5K", "1.{} mn", "1’{}.50", "1\u202f{},50"),
        *("−{}.5", "{}.5-", "({:,}.50)", "€ {:,}", "($1,{}.00)", "{} EUR", "-US$ {}", "Rs. {}"),
    ],
)
def test_numbers_as_text_are_named(form: str) -> None:
    """The warning names the column, and none of its values."""
    (text,) = warnings_about(texts(form))
    assert text.startswith("column 'income' has numbers as text, and is read as categories;")
    assert not any(number in text for number in texts())


@pytest.mark.parametrize(
    "form",
    [
        *("%m-%d-%Y", "%d.%m.%y", "%Y/%m/%d", "%d-%b-%Y", "%b %d, %Y", "%d%b%Y", "%-d/%-m/%y"),
        *("%Y-%m-%d 00:00:00", "%Y-%m-%dT%H:%M:%SZ", "%d/%m/%Y %H:%M", "%m/%d/%Y 12:00:00 AM"),
    ],
)
def test_days_as_text_are_named(form: str) -> None:
    """Days that are not written as ISO 8601 has them."""
    (text,) = warnings_about(DAYS.dt.strftime(form))
    assert text.startswith("column 'income' has dates as text, and is read as categories;")


@pytest.mark.parametrize("word", ["unknown", None, "0000-00-00", "", "1950-02-30"])
def test_few_words_hide_nothing(word: str | None) -> None:
    """A file often has words such as "unknown" among numbers and days."""
    for column in (texts(), DAYS.dt.strftime("%Y-%m-%d").tolist()):
        assert len(warnings_about([word, "unknown", *column[2:]])) == 1


@pytest.mark.parametrize("column", [texts(), DAYS.dt.strftime("%d/%m/%Y").tolist()])
def test_single_row_does_not_decide(column: list[str]) -> None:
    """One other value does not hide numbers, and one number among words is nothing."""
    assert len(warnings_about(["x-1", *column[1:]])) == 1
    assert warnings_about([column[0], *[f"town{i}" for i in range(1, N)]]) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"nominal": ["income"]},
        {"columns": {"income": Attribute(categories=texts())}},
        {"ordinal": {"income": sorted(texts())}},
        {"identifiers": ["income"]},
        {"target": "income"},
        {"nullable": []},
    ],
)
def test_declared_column_is_not_named(settings: dict[str, Any]) -> None:
    """Whoever declares categories has seen them."""
    assert warnings_about(texts(), **settings) == []


CATEGORIES_AND_NUMBERS: dict[str, Any] = {
    "numbers": NUMBERS,
    "ISO days": DAYS.dt.strftime("%Y-%m-%d"),
    "categories": pd.Categorical(texts()),
    "few codes": [str(i % 9) for i in range(N)],
    "codes with leading zeros": [f"{i:04}" for i in range(N)],
    "codes with letters": [f"V{i}" if i % 10 == 0 else text for i, text in enumerate(texts())],
    "ranges": [f"{i}-{i + 9}" for i in range(N)],
    "number plates": [f"{i % 90:02}XYZ{i}" for i in range(N)],
    "addresses": [f"{i} May Road" for i in range(N)],
    "words": [f"town{i}" for i in range(N)],
    "missing values": [None] * N,
}


@pytest.mark.parametrize("kind", CATEGORIES_AND_NUMBERS)
def test_other_columns_are_not_named(kind: str) -> None:
    """Numbers and days are read as such, and other texts are categories."""
    assert warnings_about(CATEGORIES_AND_NUMBERS[kind]) == []
