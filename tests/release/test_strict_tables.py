"""Tables of catalogues are read with nothing beside their rows and columns."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from cfk_plugin.errors import InputError
from cfk_plugin.release.strict_tables import table_of_csv, table_of_parquet

STORED = Path(__file__).parents[1] / "stored" / "tables"
TABLE = pd.DataFrame({"town": ["Gent", "Liège", "Gent"], "k": [5, 6, 7], "ncp": [0.1, 0.25, 1.0]})


def as_parquet(table: pa.Table, **options: Any) -> bytes:
    written = io.BytesIO()
    parquet.write_table(table, written, **options)
    return written.getvalue()


def plain() -> pa.Table:
    return pa.Table.from_pandas(TABLE, preserve_index=False)


@pytest.mark.parametrize("version", [15, 19])
def test_tables_that_other_versions_of_pyarrow_wrote_are_read(version: int) -> None:
    n = 40
    table, is_whole = table_of_parquet((STORED / f"pyarrow_{version}.parquet").read_bytes())
    expected = pd.DataFrame(
        {
            "outcome": ["yes", "no"] * n,
            "town": ["Namur", "Liège", "Gent", "Arlon"] * (n // 2),
            "k": range(2 * n),
            "ncp": [i / 80 for i in range(2 * n)],
            "exact": [True, False] * n,
        }
    )
    pd.testing.assert_frame_equal(table, expected)
    assert not is_whole


def test_what_the_installed_version_writes_is_the_whole_file() -> None:
    written = io.BytesIO()
    TABLE.to_parquet(written, index=False)
    table, is_whole = table_of_parquet(written.getvalue())
    pd.testing.assert_frame_equal(table, TABLE)
    assert is_whole
    other, is_whole = table_of_parquet(as_parquet(plain(), compression="gzip"))
    pd.testing.assert_frame_equal(other, TABLE)
    assert not is_whole


def with_index() -> bytes:
    named = TABLE.set_index(pd.Index(["Ann, 43", "Bob, 51", "Cleo, 29"]))
    return as_parquet(pa.Table.from_pandas(named))


def with_attributes() -> bytes:
    noted = TABLE.copy()
    noted.attrs = {"row": "Ann, 43"}
    return as_parquet(pa.Table.from_pandas(noted))


def with_metadata_of_a_column() -> bytes:
    field = pa.field("k", pa.int64(), metadata={"row": "Ann, 43"})
    return as_parquet(plain().cast(plain().schema.set(1, field)))


def with_value_in_a_dictionary() -> bytes:
    towns = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["Gent", "Liège", "Ann"]))
    table = plain().set_column(0, "town", towns).replace_schema_metadata(None)
    return as_parquet(table, store_schema=False, write_statistics=False)


def with_category() -> bytes:
    written = io.BytesIO()
    towns = pd.Categorical(TABLE["town"], categories=["Gent", "Liège", "Ann, 43"])
    TABLE.assign(town=towns).to_parquet(written, index=False)
    return written.getvalue()


def with_extension_type() -> bytes:
    stored = plain()["town"].combine_chunks()
    named = pa.ExtensionArray.from_storage(pa.opaque(stored.type, "Ann, 43", "a row"), stored)
    table = plain().replace_schema_metadata(None).set_column(0, "town", named)
    return as_parquet(table, write_statistics=False)


def with_a_key_twice() -> bytes:
    metadata = [*plain().schema.metadata.items(), (b"pandas", b"Ann, 43")]
    schema = plain().schema.with_metadata(pa.KeyValueMetadata(metadata))
    return as_parquet(pa.table(plain().columns, schema=schema))


def with_field_numbers() -> bytes:
    field = pa.field("town", pa.large_string(), metadata={"PARQUET:field_id": "430053700"})
    schema = plain().schema.set(0, field).remove_metadata()
    return as_parquet(plain().replace_schema_metadata(None).cast(schema))


def with_other_statistics() -> bytes:
    content = as_parquet(plain().replace_schema_metadata(None), store_schema=False)
    place = content.rindex(b"Gent")  # the least town, which the footer says last
    return content[:place] + b"Ann!" + content[place + 4 :]


def with_page_index() -> bytes:
    return as_parquet(plain(), write_page_index=True)


def with_two_columns_of_a_name() -> bytes:
    return as_parquet(pa.table([pa.array([1]), pa.array([2])], names=["k", "k"]))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (with_index(), "row index"),
        (with_attributes(), "not what pandas writes"),
        (as_parquet(plain().replace_schema_metadata({"row": "Ann"})), "a key that is not known"),
        (as_parquet(plain().replace_schema_metadata({"pandas": "Ann"})), "not a readable"),
        (as_parquet(plain().replace_schema_metadata({"pandas": "{}"})), "not what pandas writes"),
        (with_metadata_of_a_column(), "Arrow schema|metadata"),
        (with_value_in_a_dictionary(), "values that are in no row"),
        (with_category(), "no plain text, number or flag"),
        (with_extension_type(), "no plain text, number or flag"),
        (with_a_key_twice(), "not what pandas writes|a key twice|not a readable"),
        (with_field_numbers(), "column 1 has metadata"),
        (with_other_statistics(), "statistics of column 1"),
        (with_page_index(), "outside of its columns"),
        (with_two_columns_of_a_name(), "same name"),
        (as_parquet(plain())[:-9], "not a readable"),
        (b"", "not a readable"),
    ],
)
def test_what_is_beside_the_rows_of_a_parquet_table_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        table_of_parquet(content)
    assert "Ann" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        "town,k\nGent,5\nLiège,6\n",
        "town,k\r\nGent,5\r\nLiège,6\r\n",
        '"town","k"\n"Gent","5"\n"Liège","6"',
        "\ufefftown,k\nGent,5\n\nLiège,6\n\n",
    ],
)
def test_csv_tables_of_other_writers_are_read(content: str) -> None:
    expected = pd.DataFrame({"town": ["Gent", "Liège"], "k": ["5", "6"]})
    pd.testing.assert_frame_equal(table_of_csv(content.encode()), expected, check_dtype=False)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"town,k\nAnn,Gent,5\n", "row 1 has 3 fields, and there are 2 columns"),
        (b"town,k\nGent,5\nAnn\n", "row 2 has 1 fields"),
        (b"town,k\nGent,5,\n", "row 1 has 3 fields"),
        (b",town,k\n0,Ann,5\n", "a column has no name"),
        (b"town,town\nAnn,5\n", "same name"),
        (b'town,k\n"Ann"x,5\n', "not a readable CSV table"),
        (b'town,k\n"Ann,5\n', "not a readable CSV table"),
        ("town,k\nLiège,5\n".encode("latin-1"), "not in UTF-8"),
        ("town,k\nAnn,5\n".encode("utf-16"), "not in UTF-8"),
        (b"", "empty"),
        (b"\n\n", "empty"),
    ],
)
def test_what_is_beside_the_cells_of_a_csv_table_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        table_of_csv(content)
    assert "Ann" not in str(caught.value)


def test_a_long_cell_is_read_and_the_limit_for_other_readers_stays() -> None:
    import csv

    limit = csv.field_size_limit()
    table = table_of_csv(b"entry\n" + b"x" * 200_000 + b"\n")
    assert len(table["entry"].iloc[0]) == 200_000
    assert csv.field_size_limit() == limit
