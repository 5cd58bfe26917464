"""Tables of the command line: what CSV files say is read as it is meant, or refused by name."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cfk_plugin._files import code_columns, read_table
from cfk_plugin.errors import InputError, MisreadColumnWarning, SchemaError

ROWS = pd.DataFrame({"age": range(20, 60), "ville": ["Liège", "Gent"] * 20, "pay": [1.5] * 40})


def csv(folder: Path, content: str | bytes) -> Path:
    path = folder / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def column_of(folder: Path, cells: list[str], codes: tuple[str, ...] = ()) -> list[Any]:
    """Return a column of a CSV file with these cells."""
    return read_table(csv(folder, "\n".join(["n,v", *(f"1,{cell}" for cell in cells)])), codes)[
        "v"
    ].tolist()


SEPARATED = {
    "semicolons": ROWS.to_csv(index=False, sep=";"),
    "semicolons and decimal commas": ROWS[["age", "pay"]].to_csv(index=False, sep=";", decimal=","),
    "tabs": ROWS.to_csv(index=False, sep="\t"),
    "bars": ROWS.to_csv(index=False, sep="|"),
    "spaces": ROWS.to_csv(index=False, sep=" "),
    "spaces of a printed table": ROWS.to_string(index=False),
}


@pytest.mark.parametrize("name", SEPARATED)
def test_other_separators_are_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=f"the header has {name.split(maxsplit=1)[0]} between the columns"
    ):
        read_table(csv(tmp_path, SEPARATED[name]))


@pytest.mark.parametrize("header", ["monthly income", "date of birth"])
def test_a_single_column_may_have_a_name_of_words(header: str, tmp_path: Path) -> None:
    assert list(read_table(csv(tmp_path, f"{header}\n1\n2\n"))) == [header]
    assert list(read_table(csv(tmp_path, f'"{header}"\nNew York City\n'))) == [header]


ENCODED = {
    "a name in Windows-1252": ROWS.rename(columns={"age": "âge"})
    .to_csv(index=False)
    .encode("cp1252"),
    "a value in Windows-1252": ROWS.to_csv(index=False).encode("cp1252"),
    "UTF-16": ROWS.to_csv(index=False).encode("utf-16"),
    "UTF-16 without a mark": ROWS.to_csv(index=False).encode("utf-16-le"),
    "UTF-32": ROWS.to_csv(index=False).encode("utf-32"),
}


@pytest.mark.parametrize("name", ENCODED)
def test_other_encodings_are_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'^\S+t\.csv: not UTF-8; save it as "CSV UTF-8"$'):
        read_table(csv(tmp_path, ENCODED[name]))


def test_a_mark_of_utf8_is_no_part_of_a_name(tmp_path: Path) -> None:
    table = read_table(csv(tmp_path, ROWS.to_csv(index=False).encode("utf-8-sig")))
    pd.testing.assert_frame_equal(table, ROWS)


# What a column has in the file, and what is read if the schema says that it may have codes.
CODES: dict[str, tuple[list[str], list[Any]]] = {
    "leading zeros": (["01250", "10001"], ["01250", "10001"]),
    "a zero at the end": (["1.10", "1.1"], ["1.10", "1.1"]),
    "a sign": (["+32", "+49"], ["+32", "+49"]),
    "an exponent": (["1e5", "2e5"], ["1e5", "2e5"]),
    "more digits than a float has": (["12345678901234567890123", "1"],) * 2,
    "whole numbers": (["7", "12"], [7, 12]),
    "whole numbers with a gap": (["7.0", "", "12.0"], [7.0, None, 12.0]),
    "fractions": (["0.5", "2.25"], [0.5, 2.25]),
    "truths": (["True", "False"], [True, False]),
    "words": (["a", "b"], ["a", "b"]),
}


@pytest.mark.parametrize("name", CODES)
def test_codes_keep_their_spelling(name: str, tmp_path: Path) -> None:
    """Numbers stay numbers, as the model was trained with them, unless digits would get lost."""
    cells, values = CODES[name]
    column = column_of(tmp_path, cells, codes=("v",))
    assert [None if pd.isna(value) else value for value in column] == values


def test_undeclared_columns_are_read_as_numbers(tmp_path: Path) -> None:
    assert column_of(tmp_path, ["01250", "10001"]) == [1250, 10001]


@pytest.mark.parametrize("codes", [(), ("v",)])
@pytest.mark.parametrize("word", ["NA", "None", "null", "n/a", "NaN"])
@pytest.mark.parametrize("others", [["1", "2"], ["a", "b"], ["01", "02"]])
def test_words_become_missing_with_a_warning(
    others: list[str], word: str, codes: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.warns(MisreadColumnWarning, match=f": {word} in column 'v' is read as a missing"):
        column = column_of(tmp_path, [*others, word], codes)
    assert pd.isna(column[2])


def test_empty_cells_are_missing_without_a_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pd.isna(column_of(tmp_path, ["a", "", "b"], codes=("v",))[1])


def test_columns_of_codes_are_those_of_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    tree = {"01": ["0*"], "02": ["0*"]}
    columns = {"d": {"hierarchy": tree}, "e": {"categories": ["1"]}, "f": {"bounds": [0, 1]}}
    settings = {"nominal": ["a"], "identifiers": ["b"], "subject": "c", "ordinal": {"g": ["1"]}}
    path.write_text(json.dumps({"quasi_identifiers": ["a"], "columns": columns, **settings}))
    assert code_columns(path) == set("abcdeg")
    path.write_text(json.dumps({"nominal": 3}))
    with pytest.raises(SchemaError, match="a setting has the wrong form"):
        code_columns(path)
