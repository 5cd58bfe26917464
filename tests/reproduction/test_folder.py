"""Tables from a folder: types, roles, and errors that name file and column but no value."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cfk_plugin import Population, Schema
from cfk_plugin.errors import InputError
from cfk_plugin.reproduction.tables import NAMES, read_table

CANARY = "canary-7f3a"
ROWS = f"""\
zip,age,level,weight,faith,pay
012,30,1,7,A,low
013,,2,8,B,high
,41,1,9,{CANARY},low
"""
ABOUT: dict[str, Any] = {
    "features": ["age", "zip", "level"],
    "quasi_identifiers": ["age", "zip"],
    "sensitive_attribute": "faith",
    "target": "pay",
    "desired_outcome": "high",
    "source": {"original": "A made table,\nof three rows", "licence": "none; made for this test"},
    "columns": [
        {"name": "zip", "type": "categorical"},
        {"name": "age", "type": "numeric"},
        {"name": "level", "type": "ordinal", "levels": [1, 2]},
        {"name": "weight", "type": "numeric"},
        {"name": "faith", "type": "categorical"},
        {"name": "pay", "type": "categorical"},
    ],
}


def write(folder: Path, about: object = ABOUT, rows: str | bytes = ROWS) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "made.json").write_text(json.dumps(about))
    content = gzip.compress(rows.encode()) if isinstance(rows, str) else rows
    (folder / "made.csv.gz").write_bytes(content)
    return folder


def test_numbers_are_numbers_and_all_else_is_text(tmp_path: Path) -> None:
    table = read_table("made", write(tmp_path))
    assert list(table.frame) == ["age", "zip", "level", "faith", "pay"]  # The features' order is the description's.
    assert table.frame["age"].dtype == float
    assert table.frame["zip"].dropna().tolist() == ["012", "013"]
    assert table.frame["level"].tolist() == ["1", "2", "1"]
    assert table.frame.isna().sum().to_dict() == {"age": 1, "zip": 1, "level": 0, "faith": 0, "pay": 0}


def test_roles_are_the_descriptions(tmp_path: Path) -> None:
    table = read_table("made", write(tmp_path))
    assert table.features == ("age", "zip", "level")
    assert table.quasi_identifiers == ("age", "zip")
    assert (table.sensitive, table.target, table.desired) == ("faith", "pay", "high")
    assert table.source == "A made table, of three rows"


def test_codes_as_outcomes_are_text_like_their_column(tmp_path: Path) -> None:
    rows = ROWS.replace("low", "0").replace("high", "1")
    assert read_table("made", write(tmp_path, {**ABOUT, "desired_outcome": 1}, rows)).desired == "1"


def test_long_provenance_is_cut_to_one_line(tmp_path: Path) -> None:
    source = {"original": "words and " * 200, "licence": "terms and " * 200}
    assert len(read_table("made", write(tmp_path, {**ABOUT, "source": source})).source) <= 210


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in ABOUT.items() if name != key}


def message_of(read: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        read()
    message = str(caught.value)
    assert CANARY not in message
    assert "\n" not in message
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return message


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "nowhere is no folder" in message_of(lambda: read_table("made", tmp_path / "nowhere"))


def test_a_table_that_is_not_there_tells_which_are(tmp_path: Path) -> None:
    assert "there are made" in message_of(lambda: read_table("adult", write(tmp_path / "data")))
    (tmp_path / "data" / "made.csv.gz").unlink()
    assert "there is none at all" in message_of(lambda: read_table("made", tmp_path / "data"))


@pytest.mark.parametrize("key", ABOUT)
def test_a_key_that_the_description_lacks_is_named(key: str, tmp_path: Path) -> None:
    message = message_of(lambda: read_table("made", write(tmp_path, without(key))))
    assert message == f"{tmp_path / 'made.json'} lacks the key '{key}'"


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ([ABOUT], "holds no JSON object"),
        ({**ABOUT, "features": "age"}, "'features' is no list of column names"),
        ({**ABOUT, "quasi_identifiers": []}, "'quasi_identifiers' is no list of column names"),
        ({**ABOUT, "quasi_identifiers": ["weight"]}, "quasi-identifiers that are no features: weight"),
        ({**ABOUT, "target": ["pay"]}, "'target' is no text"),
        ({**ABOUT, "source": "UCI"}, "'source' is no object"),
        ({**ABOUT, "source": {"licence": "none"}}, "lacks the key 'original'"),
        ({**ABOUT, "columns": ABOUT["columns"][1:]}, "'columns' does not describe zip"),
        ({**ABOUT, "columns": ["zip"]}, "'columns' is no list of objects"),
        ({**ABOUT, "columns": [{"name": "zip", "type": "postal"}]}, "the type of zip is none of numeric"),
        ({**ABOUT, "desired_outcome": CANARY}, "no row of pay has the desired outcome"),
    ],
)
def test_a_description_that_is_wrong(about: object, expected: str, tmp_path: Path) -> None:
    assert expected in message_of(lambda: read_table("made", write(tmp_path, about)))


def test_a_description_that_is_no_json(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "made.json").write_text(CANARY)
    assert "made.json cannot be read as JSON" in message_of(lambda: read_table("made", tmp_path))


# The time in a gzip header is a part of the test's name, and two workers would not agree on it.
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (ROWS.replace("zip", "code").replace("faith", "creed"), "asks for: faith, zip"),
        (ROWS.replace("30", CANARY), "column age is described as numeric"),
        (f"{ROWS}1,2,3,4,5,6,{CANARY}\n", "cannot be read as a gzipped CSV file"),
        (f"zip,age,level,weight,faith,pay\n1,2,3,4,5,{CANARY},7\n", "rows have more fields than the header"),
        (f"{ROWS}014,20,1,6,{CANARY}\n", "the target, column pay, has missing values"),
        ("", "cannot be read as a gzipped CSV file"),
        (ROWS.encode(), "cannot be read as a gzipped CSV file"),
        (gzip.compress(ROWS.encode(), mtime=0)[:-12], "cannot be read as a gzipped CSV file"),
        (gzip.compress(b"\xff\xfe\x00", mtime=0), "cannot be read as a gzipped CSV file"),
    ],
)
def test_rows_that_do_not_fit(rows: str | bytes, expected: str, tmp_path: Path) -> None:
    message = message_of(lambda: read_table("made", write(tmp_path, rows=rows)))
    assert expected in message
    assert "made.csv.gz" in message


@pytest.mark.parametrize(
    ("name", "unique", "below_10"),
    [
        ("adult", 3.17, 15.39),
        ("cmc", 4.41, 53.77),
        ("german", 83.7, 100),
        ("heart", 4.62, 79.54),
        ("hospital", 6.2, 37.78),
        ("informs", 64.86, 100),
    ],
)
def test_risk_is_that_of_the_published_tables(name: str, unique: float, below_10: float, shared_data: Path) -> None:
    table = read_table(name, shared_data)
    rows = table.frame[list(table.features)]
    schema = Schema.from_frame(rows, quasi_identifiers=list(table.quasi_identifiers))
    profile = Population.from_frame(rows, schema).risk_profile(10)
    assert profile.people == len(table.frame)
    assert 100 * profile.unique == pytest.approx(unique, abs=0.006)
    assert 100 * profile.below_k == pytest.approx(below_10, abs=0.006)


def test_published_tables_are_read_as_described(shared_data: Path) -> None:
    for name in NAMES:
        table = read_table(name, shared_data)
        about = json.loads((shared_data / f"{name}.json").read_text())
        assert len(table.frame) == about["n_rows"]
        assert table.frame[table.target].value_counts().to_dict() == about["target_counts"]
        described = {column["name"]: column for column in about["columns"]}
        for column in table.frame:
            assert table.frame[column].isna().sum() == described[column]["n_missing"]
            assert table.frame[column].nunique() == described[column]["n_distinct"]


def test_a_sensitive_attribute_may_be_a_feature_that_nobody_knows(shared_data: Path) -> None:
    for name, sensitive in (("informs", "RACEX"), ("cmc", "wife_religion")):
        table = read_table(name, shared_data)
        assert table.sensitive == sensitive
        assert sensitive in table.features
        assert sensitive not in table.quasi_identifiers
