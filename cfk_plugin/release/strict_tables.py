"""Tables of published catalogues, read so that nothing can hide beside the rows and columns.

A reader that is made for convenience drops what it does not understand: a field too many, a row
index, a note in the file's metadata. Somebody's row could be in there. So a table is refused if
there is anything in its file that no column says.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
import re
from collections.abc import Iterator
from io import BytesIO, StringIO
from typing import TYPE_CHECKING, Any

import pandas as pd

from cfk_plugin.data.values import load_pyarrow
from cfk_plugin.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

_VERSION = r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{1,2}(\.?(a|b|rc|dev)[0-9]{1,3}|-SNAPSHOT)?"
_WRITTEN_BY_PYARROW = rf"parquet-cpp-arrow version {_VERSION}"
_MAGIC = b"PAR1"  # at the start and at the end of a Parquet file
_LENGTH_OF_FOOTER = 4  # bytes that say how long the footer is
_PANDAS_TYPES = ["unicode", "string", "object", "str", "int64", "float64", "bool", "empty"]


def table_of_csv(content: bytes) -> pd.DataFrame:
    """Read a CSV table in UTF-8; every row must have as many fields as there are columns.

    Parameters
    ----------
    content : bytes
        The file. Line ends may be of any system, and a byte order mark may precede it.

    Returns
    -------
    DataFrame
        All cells as text.

    Raises
    ------
    InputError
        If it is not such a table.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("not in UTF-8; write it in this encoding") from None
    rows = _rows_of_csv(text)
    if not rows:
        raise InputError("empty; give the table of a catalogue")
    columns, *records = rows
    _check_columns(columns)
    for number, record in enumerate(records, start=1):
        if len(record) != len(columns):
            raise InputError(
                f"row {number} has {len(record)} fields, and there are {len(columns)} columns;"
                " write the table without its row numbers, and with commas between fields"
            )
    return pd.DataFrame(records, columns=columns, dtype=str)


def _rows_of_csv(text: str) -> list[list[str]]:
    limit = csv.field_size_limit(max(len(text), 1))  # an entry may be long
    try:
        return [row for row in csv.reader(StringIO(text, newline=""), strict=True) if row]
    except csv.Error:
        raise InputError(
            "not a readable CSV table: a quoted cell does not end, or something follows it"
        ) from None
    finally:
        csv.field_size_limit(limit)


def table_of_parquet(content: bytes) -> tuple[pd.DataFrame, bool]:
    """Read a Parquet table that pyarrow wrote, without a row index and with known metadata only.

    Refused are unknown metadata, statistics and dictionaries of text with values that are in no
    row, and bytes outside of columns and footer. A Parquet file can still hold bytes that pyarrow
    does not show. `is_whole` rules that out: the installed libraries write exactly these bytes.

    Parameters
    ----------
    content : bytes
        The file.

    Returns
    -------
    table : DataFrame
    is_whole : bool
        Whether the installed pandas and pyarrow write this table as these bytes.

    Raises
    ------
    InputError
        If it is not such a table.
    MissingDependencyError
        If pyarrow is not installed.
    """
    pa = load_pyarrow()
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(BytesIO(content))
        columns = file.schema_arrow.names
        _check_columns(columns)
        _check_types(file.schema_arrow)
        rows = file.read()
        rows.validate(full=True)  # text must be UTF-8
        table = pd.DataFrame({name: rows[name].to_pandas() for name in columns})
        is_whole = _as_parquet(table) == content
        # On a damaged file these checks can crash pyarrow, so they run last.
        faults = [] if is_whole else [*_faults(file, content)]
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        raise InputError(f"not a readable Parquet table ({type(error).__name__})") from None
    if faults:
        raise InputError(f"{faults[0]}; write the table with pandas or pyarrow, and index=False")
    return table, is_whole


def _as_parquet(table: pd.DataFrame) -> bytes:
    written = BytesIO()
    table.to_parquet(written, index=False)
    return written.getvalue()


def _check_columns(columns: list[str]) -> None:
    if "" in columns:
        raise InputError("a column has no name; write the table without its row numbers")
    if len(set(columns)) != len(columns):
        raise InputError("two columns have the same name; drop one")


def _check_types(schema: pa.Schema) -> None:
    """Refuse all but plain types: others have names, categories or values of their own."""
    import pyarrow as pa

    plain = (pa.string(), pa.large_string(), pa.int64(), pa.float64(), pa.bool_())
    for place, type_ in enumerate(schema.types, start=1):
        if type_ not in plain:
            raise InputError(
                f"column {place} of the Parquet table is no plain text, number or flag; write it"
                " without categories and other types"
            )


def _faults(file: parquet.ParquetFile, content: bytes) -> Iterator[str]:
    """Yield what a Parquet file has beside the values of its columns."""
    file_metadata = file.metadata
    if not re.fullmatch(_WRITTEN_BY_PYARROW, file_metadata.created_by or ""):
        yield "it was not written by pyarrow"
    metadata = file_metadata.metadata or {}
    yield from _faults_of_metadata(metadata, file.schema_arrow, file_metadata.num_rows)
    for place, field in enumerate(file.schema_arrow):
        # Some versions number the columns, from 0 or from 1.
        numbers = [{b"PARQUET:field_id": b"%d" % number} for number in (place, place + 1, -1)]
        if field.metadata and field.metadata not in numbers:
            yield f"column {place + 1} has metadata"
    if not content.startswith(_MAGIC) or _has_other_bytes(file_metadata, len(content)):
        yield "it has bytes outside of its columns"
    for group in range(file_metadata.num_row_groups):
        values = file.read_row_group(group)
        for place in range(file_metadata.num_columns):
            statistics = file_metadata.row_group(group).column(place).statistics
            if statistics is not None and not _are_of(statistics, values.column(place)):
                yield f"statistics of column {place + 1} are not of its values"
    yield from _faults_of_dictionaries(content, file.schema_arrow)


def _faults_of_dictionaries(content: bytes, schema: pa.Schema) -> Iterator[str]:
    """Yield which columns of text have a value in their dictionary that is in no row."""
    import pyarrow as pa
    from pyarrow import parquet

    text = [
        field.name
        for field in schema
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    ]
    coded = parquet.ParquetFile(BytesIO(content), read_dictionary=text).read(text)
    for place, column in enumerate(coded.columns, start=1):
        for chunk in column.chunks:
            used = chunk.indices.drop_null().unique()
            if len(used) != len(chunk.dictionary):
                yield f"text column {place} has values that are in no row"


def _faults_of_metadata(
    metadata: dict[bytes, bytes], schema: pa.Schema, n_rows: int
) -> Iterator[str]:
    import pyarrow as pa
    from jsonschema import Draft202012Validator

    if set(metadata) - {b"ARROW:schema", b"pandas"}:
        yield "its metadata has a key that is not known"
    # A mapping has only one value of a key that occurs twice, and the schema has both.
    if pa.schema(list(schema), schema.metadata).serialize().size != schema.serialize().size:
        yield "its metadata has a key twice"
    if b"pandas" in metadata:
        form = Draft202012Validator(_form_of_pandas_metadata(schema.names, n_rows))
        text = metadata[b"pandas"].decode("utf-8", "replace")
        content = json.loads(text)
        if not form.is_valid(content) or json.dumps(content) != text:
            yield "its metadata has a row index, or is not what pandas writes"
    if b"ARROW:schema" in metadata:
        try:
            schema_bytes = base64.b64decode(metadata[b"ARROW:schema"], validate=True)
            arrow_schema = pa.ipc.read_schema(pa.BufferReader(schema_bytes))
        except (binascii.Error, pa.ArrowException, OSError):
            yield "its Arrow schema cannot be read"
            return
        # Versions of pyarrow order the keys of the metadata differently.
        is_other = arrow_schema.names != schema.names or arrow_schema.types != schema.types
        if arrow_schema.serialize().size != len(schema_bytes) or is_other:
            yield "its Arrow schema is not what pyarrow writes"
        other_metadata = {key: value for key, value in metadata.items() if key != b"ARROW:schema"}
        if (arrow_schema.metadata or {}) != other_metadata:
            yield "its Arrow schema has other metadata than the file"


def _form_of_pandas_metadata(columns: list[str], n_rows: int) -> dict[str, Any]:
    """Return the JSON Schema of what pandas writes about these columns and no row index."""
    a_type = {"enum": _PANDAS_TYPES}
    a_version = {"type": "string", "pattern": rf"^{_VERSION}\Z"}
    no_index: list[Any] = []
    plain_index = [{"kind": "range", "name": None, "start": 0, "stop": n_rows, "step": 1}]
    of_columns = [
        _exactly(
            name={"const": name},
            field_name={"const": name},
            pandas_type=a_type,
            numpy_type=a_type,
            metadata={"const": None},
        )
        for name in columns
    ]
    of_column_names = _exactly(
        name={"const": None},
        field_name={"const": None},
        pandas_type=a_type,
        numpy_type=a_type,
        metadata={"enum": [None, {"encoding": "UTF-8"}]},
    )
    form = _exactly(
        index_columns={"enum": [no_index, plain_index]},
        column_indexes={"type": "array", "items": of_column_names, "maxItems": 1},
        columns={
            "type": "array",
            "prefixItems": of_columns,
            "minItems": len(columns),
            "items": False,
        },
        creator=_exactly(library={"const": "pyarrow"}, version=a_version),
        pandas_version=a_version,
    )
    form["properties"]["attributes"] = {"const": {}}  # older versions of pandas do not write it
    return form


def _exactly(**properties: Any) -> dict[str, Any]:
    """Return the JSON Schema of an object that has these keys and no other."""
    return {
        "type": "object",
        "required": list(properties),
        "properties": properties,
        "additionalProperties": False,
    }


def _has_other_bytes(file_metadata: parquet.FileMetaData, size: int) -> bool:
    """Say whether a file of this size has more in it than its columns and its footer."""
    chunks = [
        file_metadata.row_group(group).column(place)
        for group in range(file_metadata.num_row_groups)
        for place in range(file_metadata.num_columns)
    ]
    footer: int = file_metadata.serialized_size
    columns = sum(chunk.total_compressed_size for chunk in chunks)
    rest = size - columns - footer - _LENGTH_OF_FOOTER - 2 * len(_MAGIC)
    # Before version 18, pyarrow also wrote each column's metadata after the column.
    is_repeated = any(chunk.file_offset for chunk in chunks)
    largest_rest = footer if is_repeated else 0
    return not 0 <= rest <= largest_rest


def _are_of(statistics: parquet.Statistics, values: pa.ChunkedArray) -> bool:
    """Say whether statistics of a column are those of its values; absent ones are not checked."""
    from pyarrow import compute

    if statistics.has_null_count and statistics.null_count != values.null_count:
        return False
    if statistics.has_distinct_count and statistics.distinct_count != len(values.unique()):
        return False
    if not statistics.has_min_max:
        return True
    least_and_most = compute.min_max(values).as_py()
    return bool(least_and_most == {"min": statistics.min, "max": statistics.max})
