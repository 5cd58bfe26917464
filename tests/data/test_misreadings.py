"""The warning of `Schema.from_frame` about text that is probably numbers or days."""

from __future__ import annotations

import json
import warnings
from decimal import Decimal
from pathlib import Path
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
        *("{}", "{} %", "{},50", " {}", "{}e3", "{}.5K", "1.{} mn", "1’{}.50", "1\u202f{},50"),
        *("-{}.5", "−{}.5", "{}.5-", "({:,}.50)", "- {}"),
        *("€ {:,}", "$1,{}.00", "($1,{}.00)", "CHF {}", "{} EUR", "-US$ {}", "Rs. {}", "{} kr"),
    ],
)
def test_numbers_as_text_are_named(form: str) -> None:
    (text,) = warnings_about(texts(form))
    assert text.startswith("column 'income' has numbers as text, and is read as categories;")
    assert not any(number in text for number in texts())


@pytest.mark.parametrize(
    "form",
    [
        *("%d/%m/%Y", "%m-%d-%Y", "%d.%m.%Y", "%d.%m.%y", "%Y/%m/%d", "%Y.%m.%d"),
        *("%d-%b-%Y", "%d %B %Y", "%b %d, %Y", "%d%b%Y", "%-d/%-m/%y"),
        *("%Y-%m-%d 00:00:00", "%Y-%m-%dT%H:%M:%SZ", "%d/%m/%Y %H:%M", "%m/%d/%Y 12:00:00 AM"),
    ],
)
def test_days_as_text_are_named(form: str) -> None:
    (text,) = warnings_about(DAYS.dt.strftime(form))
    assert text.startswith("column 'income' has dates as text, and is read as categories;")


def test_a_few_words_do_not_hide_numbers() -> None:
    """A file often has words such as "unknown" among the numbers."""
    assert len(warnings_about(["unknown", "n/a", None, *texts()[3:]])) == 1


@pytest.mark.parametrize("word", ["unknown", "0000-00-00", "", "1950-02-30"])
def test_a_few_words_do_not_hide_days(word: str) -> None:
    days = DAYS.dt.strftime("%Y-%m-%d")
    assert len(warnings_about([word, word, *days[2:]])) == 1


@pytest.mark.parametrize("column", [texts(), DAYS.dt.strftime("%d/%m/%Y")], ids=["number", "day"])
def test_no_single_row_decides(column: Any) -> None:
    for row in range(0, N, 17):
        changed = pd.Series(column)
        changed[row] = "x-1"
        assert len(warnings_about(changed)) == 1
    words = [f"town{i}" for i in range(1, N)]
    assert warnings_about([column[0], *words]) == []


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
def test_a_declared_column_is_not_named(settings: dict[str, Any]) -> None:
    assert warnings_about(texts(), **settings) == []


CATEGORIES_AND_NUMBERS: dict[str, Any] = {
    "numbers": NUMBERS,
    "numbers as objects": pd.Series(NUMBERS.tolist(), dtype=object),
    "decimals": [Decimal(text) for text in texts()],
    "ISO days": DAYS.dt.strftime("%Y-%m-%d"),
    "dates": DAYS,
    "categories": pd.Categorical(texts()),
    "few codes": [str(i % 9) for i in range(N)],
    "codes with leading zeros": [f"{i:04}" for i in range(N)],
    "codes with letters": [f"V{i}" if i % 10 == 0 else text for i, text in enumerate(texts())],
    "ranges": [f"{i}-{i + 9}" for i in range(N)],
    "number plates": [f"{i % 90:02}XYZ{i}" for i in range(N)],
    "courses": [f"MAT {i}" for i in range(N)],
    "addresses": [f"{i} May Road" for i in range(N)],
    "ISO days as objects": DAYS.dt.strftime("%Y-%m-%d").astype(object),
    "words": [f"town{i}" for i in range(N)],
    "missing values": [None] * N,
}


@pytest.mark.parametrize("kind", CATEGORIES_AND_NUMBERS)
def test_other_columns_are_not_named(kind: str) -> None:
    assert warnings_about(CATEGORIES_AND_NUMBERS[kind]) == []


@pytest.mark.parametrize("name", ["adult", "cmc", "german", "heart", "informs"])
def test_published_tables_give_no_warning(shared_data: Path, name: str) -> None:
    facts = json.loads((shared_data / f"{name}.json").read_text(encoding="utf-8"))
    table = pd.read_csv(shared_data / f"{name}.csv.gz")
    Schema.from_frame(table, quasi_identifiers=facts["quasi_identifiers"], target=facts["target"])
