"""Warnings of `Schema.from_frame` about columns that are probably not what they were read as."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Schema
from cfk_plugin.data.misreadings import misread_texts, warn_of_misreadings
from cfk_plugin.demo import KNOWN, load_patients
from cfk_plugin.errors import MisreadColumnWarning

N = 120
RANDOM = np.random.default_rng(3)
AGES = RANDOM.integers(18, 70, N)
INCOMES = 1_000 + 37 * RANDOM.permutation(N)
DAYS = pd.Series(pd.Timestamp("1980-01-01") + pd.to_timedelta(RANDOM.permutation(N) * 20, "D"))
YES = RANDOM.integers(0, 2, N)
TABLE = pd.DataFrame({"age": AGES, "city": RANDOM.choice(["Ghent", "Namur"], N), "told": YES})


def warnings_of(column: Any, name: str = "income", **settings: Any) -> list[str]:
    """Return the warnings about a table with one more column."""
    table = TABLE.assign(**{name: column})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Schema.from_frame(table, **{"quasi_identifiers": ["age"], "target": "told", **settings})
    assert all(each.category is MisreadColumnWarning for each in caught)
    assert all(each.filename == __file__ for each in caught)
    return [str(each.message) for each in caught]


def texts(form: str = "{}") -> list[str]:
    return [form.format(income) for income in INCOMES.tolist()]


def some_replaced(every: int, *words: str) -> list[str]:
    """Return numbers as text, some of them replaced by words."""
    return [
        words[i // every % len(words)] if i % every == 0 else text for i, text in enumerate(texts())
    ]


MISREAD = {
    "plain numbers": (
        texts(),
        (
            "column 'income' holds numbers stored as text, and is read as categories; write"
            " train['income'] = pd.to_numeric(train['income']), or nominal=['income'] if they are"
            " codes"
        ),
    ),
    "separators of thousands": (
        texts("{:,}"),
        (
            "column 'income' holds numbers stored as text, and is read as categories; remove signs of"
            " currency, % and separators of thousands, then write train['income'] ="
            " pd.to_numeric(train['income']), or nominal=['income'] if they are codes"
        ),
    ),
    "decimal commas": (
        texts("{},5"),
        (
            "column 'income' holds numbers stored as text, and is read as categories; write"
            " train['income'] = pd.to_numeric(train['income'].str.replace(',', '.')), or"
            " nominal=['income'] if they are codes"
        ),
    ),
    "words among numbers": (
        some_replaced(9, "unknown", "n/a"),
        (
            "column 'income' holds numbers and a few words, and is read as categories; write"
            " train['income'] = pd.to_numeric(train['income'], errors='coerce'), or nominal=['income']"
            " if they are codes"
        ),
    ),
    "days first": (
        DAYS.dt.strftime("%d/%m/%Y"),
        (
            "column 'income' holds days as text that is not ISO, and is read as categories; write"
            " train['income'] = pd.to_datetime(train['income'], format='%d/%m/%Y')"
        ),
    ),
    "months first": (
        DAYS.dt.strftime("%m-%d-%Y"),
        (
            "column 'income' holds days as text that is not ISO, and is read as categories; write"
            " train['income'] = pd.to_datetime(train['income'], format='%m-%d-%Y')"
        ),
    ),
    "a copy of the label": (
        np.where(YES == 1, "accepted", "refused"),
        (
            "column 'income' is a copy or a recoding of the target 'told', and is read as a feature;"
            " leave it out with train.drop(columns='income')"
        ),
    ),
}


@pytest.mark.parametrize("case", MISREAD)
def test_a_misread_column_is_named_once_with_what_to_write(case: str) -> None:
    column, text = MISREAD[case]
    assert warnings_of(column) == [text]


@pytest.mark.parametrize(
    "column",
    [
        texts("€ {:,}"),
        texts("{} EUR"),
        texts("{}%"),
        texts("{},50"),
        texts(" {}"),
        texts("-{}.5"),
        texts("{}e3"),
        [None, *texts()[1:]],
        pd.Series([*texts()[:60], *INCOMES.tolist()[60:]], dtype=object),
        ["see file 12", *texts()[1:]],
    ],
)
def test_numbers_are_recognized_in_every_spelling(column: Any) -> None:
    (text,) = warnings_of(column)
    assert text.startswith("column 'income' holds numbers stored as text")


@pytest.mark.parametrize(
    ("column", "is_decimal", "has_signs"),
    [
        ([f"0,{i}" for i in range(100, 100 + N)], True, False),
        ([f"{i % 7},{i}" for i in range(N)], True, False),
        ([f"€ {i}.250,{i % 10}5" for i in range(1, N + 1)], True, True),
        ([f"{i},125" for i in range(1, N + 1)], False, True),  # as likely thousands
        ([f"{i},250.{i % 10}5" for i in range(1, N + 1)], False, True),
        ([f"{i},250,000" for i in range(1, N + 1)], False, True),
        (texts("{}%"), False, True),
        (["0,5", *texts("{:,}")[1:]], False, True),  # one alone does not decide
    ],
)
def test_decimal_commas_become_points_and_no_other_commas_do(
    column: list[str], is_decimal: bool, has_signs: bool
) -> None:
    (text,) = warnings_of(column)
    assert (".str.replace(',', '.')" in text) == is_decimal
    signs = "remove signs of currency, % and separators of thousands, then"
    assert (signs in text) == has_signs


def test_a_file_with_decimal_commas_is_to_have_points() -> None:
    with pytest.warns(MisreadColumnWarning) as caught:
        Schema.from_frame(TABLE.assign(income=texts("{},5")), quasi_identifiers=["age"])
    (warning,) = (each.message for each in caught)
    assert warning.text_for_file.startswith(  # type: ignore[union-attr]
        "column 'income' holds numbers stored as text, and is read as categories; write plain"
        " numbers in the file, with a decimal point instead of a comma, or"
    )


def made_as_advised(column: Any, text: str) -> pd.Series:
    """Return the column after the assignment that a warning advises."""
    train = pd.DataFrame({"income": column})
    assignment = text.partition("; write ")[2].partition(", or nominal")[0]
    exec(assignment, {"train": train, "pd": pd})
    return train["income"]


@pytest.mark.parametrize("column", [DAYS.dt.strftime("%d/%m/%Y"), texts("{},5"), texts()])
def test_what_is_advised_can_be_done(column: Any) -> None:
    (text,) = warnings_of(column)
    made = made_as_advised(column, text)
    assert made.dtype.kind in "Mif"
    assert made.notna().all()


def test_what_is_no_day_becomes_missing() -> None:
    column = DAYS.dt.strftime("%d/%m/%Y")
    column[5] = "unknown"
    (text,) = warnings_of(column)
    made = made_as_advised(column, text)
    assert made.isna().tolist() == [i == 5 for i in range(N)]


@pytest.mark.parametrize(
    "days",
    [
        [*DAYS.dt.strftime("%d/%m/%Y")[:60], *DAYS.dt.strftime("%m/%d/%Y")[60:]],
        DAYS.dt.strftime("%d/%m-%Y"),
        [*DAYS.dt.strftime("%d/%m/%Y")[:60], *DAYS.dt.strftime("%d.%m.%Y")[60:]],
    ],
)
def test_no_format_is_advised_that_does_not_read_all_days(days: Any) -> None:
    assert warnings_of(days) == [
        (
            "column 'income' holds days as text in several ways, and is read as categories; write all"
            " days of train['income'] in the form YYYY-MM-DD"
        )
    ]


def test_days_whose_order_nobody_can_tell_are_asked_for() -> None:
    days = [f"{i % 12 + 1:02}.{i % 12 + 1:02}.{1980 + i // 12}" for i in range(N)]
    (text,) = warnings_of(days)
    assert "format='%d.%m.%Y' or '%m.%d.%Y')" in text


def test_a_warning_says_what_to_do_with_a_file() -> None:
    with pytest.warns(MisreadColumnWarning) as caught:
        Schema.from_frame(TABLE.assign(income=texts()), quasi_identifiers=["age"])
    (warning,) = (each.message for each in caught)
    assert warning.text_for_file == (  # type: ignore[union-attr]
        "column 'income' holds numbers stored as text, and is read as categories; write plain"
        ' numbers in the file, or add the column to "nominal" in the schema if they are codes'
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"nominal": ["income"]},
        {"categories": {"income": texts()}},
        {"ordinal": {"income": sorted(texts())}},
        {"hierarchies": {"income": {text: [text[0]] for text in texts()}}},
        {"identifiers": ["income"]},
        {"subject": "income"},
        {"target": "income"},
        {"nullable": []},
    ],
)
def test_nothing_is_said_of_what_is_declared(settings: dict[str, Any]) -> None:
    assert warnings_of(texts(), **settings) == []


RIGHT: dict[str, Any] = {
    "numbers": INCOMES,
    "numbers as objects": pd.Series(INCOMES.tolist(), dtype=object),
    "decimals": [Decimal(text) for text in texts()],
    "ISO days": DAYS.dt.strftime("%Y-%m-%d"),
    "dates": DAYS,
    "categories": pd.Categorical(texts()),
    "few codes": [str(i % 9) for i in range(N)],
    "codes with leading zeros": [f"{i:04}" for i in range(N)],
    "codes with letters": [f"V{i}" if i % 20 == 0 else text for i, text in enumerate(texts())],
    "ranges": [f"{i}-{i + 9}" for i in range(N)],
    "addresses": [f"10.0.{i}.{i}" for i in range(N)],
    "words": [f"town{i}" for i in range(N)],
    "many words among numbers": some_replaced(2, *"abcdefgh"),
    "nothing but missing values": [None] * N,
    "a feature that tells most of the label": np.where(np.arange(N) % 8 == 0, 1 - YES, YES),
    "one value": ["x"] * N,
}


@pytest.mark.parametrize("case", RIGHT)
def test_nothing_is_said_of_a_column_that_is_read_right(case: str) -> None:
    assert warnings_of(RIGHT[case]) == []


@pytest.mark.parametrize(
    "name",
    [
        "zip",
        "postal_code",
        "zip_code_3",
        "customer_id",
        "zipcode",
        "Zip Code",
        "zipCode",
        "post-code",
    ],
)
def test_nothing_is_said_of_codes_by_their_name(name: str) -> None:
    assert warnings_of(texts(), name) == []


@pytest.mark.parametrize("n", [3, 19])
def test_nothing_is_said_of_a_small_table(n: int) -> None:
    table = TABLE.assign(income=texts(), copy=YES).head(n)
    Schema.from_frame(table, quasi_identifiers=["age"], target="told")


@pytest.mark.parametrize("case", MISREAD)
def test_no_single_row_decides(case: str) -> None:
    column = pd.Series(MISREAD[case][0])
    for i in range(0, N, 7):
        changed = column.copy()
        changed[i] = "x-1"
        assert len(warnings_of(changed)) == 1


def test_no_single_row_makes_a_warning() -> None:
    for value in ("12", "13/12/1990"):
        words = [f"town{i % 40}" for i in range(N)]
        assert warnings_of([value, *words[1:]]) == []


@pytest.mark.parametrize(
    ("labels", "column"),
    [
        (INCOMES, INCOMES),
        (INCOMES, INCOMES.astype(float)),
        (np.arange(N) % 3, np.array(["a", "b", "c"])[np.arange(N) % 3]),
        (np.arange(N) % 3, (np.arange(N) % 3) * 10 + 5),
        (YES, YES.astype(bool)),
        (
            np.where(np.arange(N) < 90, 0, np.arange(N)),
            np.where(np.arange(N) < 90, 0, np.arange(N)),
        ),
    ],
)
def test_a_copy_of_the_label_is_found_whatever_it_is_called(labels: Any, column: Any) -> None:
    table = TABLE[["age"]].assign(score=labels, code=column)
    with pytest.warns(MisreadColumnWarning, match="'code' is a copy or a recoding of .* 'score'"):
        Schema.from_frame(table, quasi_identifiers=["age"], target="score")


@pytest.mark.parametrize(
    ("labels", "column"),
    [
        (INCOMES, INCOMES[::-1].copy()),  # as many values, each once
        (np.arange(N) == 7, np.arange(N) == 7),  # a label that one row has
        (np.arange(N) < 3, np.arange(N) < 2),
        (np.where(np.arange(N) < 115, 0, 1), np.zeros(N)),  # nearly always equal
        (np.full(N, np.nan), np.full(N, np.nan)),
        (np.arange(N) % 2, np.arange(N) % 4),  # a finer column is no copy
    ],
)
def test_a_feature_that_goes_along_with_the_label_is_no_copy(labels: Any, column: Any) -> None:
    table = TABLE[["age"]].assign(score=labels, code=column)
    Schema.from_frame(table, quasi_identifiers=["age"], target="score")


@pytest.mark.parametrize("name", ["approved", "Target", "label", "y", "class"])
def test_a_label_that_was_left_in_is_known_by_its_name(name: str) -> None:
    (text,) = warnings_of(YES, name, target=None)
    assert text == (
        f"column {name!r} is named like a label, and is read as a feature; write target={name!r} if"
        " it is the label of the model"
    )
    assert warnings_of(YES, name, target=None, nominal=[name]) == []
    assert warnings_of(YES, name, target=None, sensitive=[name]) == []
    assert warnings_of(1 - YES * AGES % 7, name) == []  # there is a target


def test_a_label_that_is_text_is_told_once() -> None:
    (text,) = warnings_of(texts(), "class", target=None)
    assert text.startswith("column 'class' is named like a label")


def test_a_name_that_is_a_number_is_read() -> None:
    (misreading,) = misread_texts(pd.DataFrame({0: texts()}), [0])  # type: ignore[list-item]
    assert misreading.problem.startswith("column 0 holds numbers stored as text")


def test_a_coordinate_is_no_label() -> None:
    table = TABLE.assign(x=AGES, y=INCOMES)
    Schema.from_frame(table, quasi_identifiers=["age"])


# --- real tables ----------------------------------------------------------------------------------

TABLES = ["adult", "cmc", "diabetes130", "german", "heart", "hospital", "informs", "informs_full"]
CODES = ("zip_code_3", "diag_1", "diag_2", "diag_3")


@pytest.mark.parametrize("read", [None, dict.fromkeys(CODES, str)])
@pytest.mark.parametrize("name", TABLES)
def test_published_tables_give_no_false_alarm(
    shared_data: Path, name: str, read: dict[str, Any] | None
) -> None:
    facts = json.loads((shared_data / f"{name}.json").read_text(encoding="utf-8"))
    table = pd.read_csv(shared_data / f"{name}.csv.gz", dtype=read)
    for target in (facts["target"], None):
        Schema.from_frame(table, quasi_identifiers=facts["quasi_identifiers"], target=target)


def test_the_patients_of_the_demo_give_no_false_alarm() -> None:
    train = load_patients(patients=1).train
    for target in ("progression", None):
        Schema.from_frame(train, quasi_identifiers=KNOWN, target=target)


def large(make: Callable[[np.random.Generator, int], Any]) -> pd.DataFrame:
    random, n = np.random.default_rng(0), 30_000
    columns = {f"column{i}": make(random, n) for i in range(10)}
    return pd.DataFrame({"age": random.integers(18, 70, n), "told": np.arange(n) % 2, **columns})


@pytest.mark.parametrize(
    "make",
    [
        lambda random, n: random.permutation(n).astype(str),
        lambda random, n: random.choice(["low", "mid", "high"], n),
        lambda random, n: random.normal(size=n),
    ],
)
def test_a_column_takes_some_milliseconds(make: Any) -> None:
    table = large(make)
    with warnings.catch_warnings(action="ignore", category=MisreadColumnWarning):
        started = time.process_time()
        warn_of_misreadings(table, dict.fromkeys(table.columns[2:], "other"), "told")
    assert (time.process_time() - started) / 10 < 0.02  # of a column, on a busy machine
