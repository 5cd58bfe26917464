"""Parquet files of a run: the columns that a report needs, joined with their recount, as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.errors import TrackingError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from cfk_plugin.report.reading.period import Period

CERTIFICATE = "certificate"
"""Column with the certificate of prototypes as JSON."""

_KINDS = {
    "step": "whole numbers",
    "timestamp": "times",
    **dict.fromkeys(("status", "reason"), "text"),
    **dict.fromkeys(("k", "ncp", "pureness", "pureness_low", "pureness_high"), "numbers"),
    **dict.fromkeys(("exact", "optimal"), "flags"),
    "gap": "numbers",
    **dict.fromkeys(("method", "guarantee", "policy_hash", "population"), "text"),
    **dict.fromkeys(("epsilon", "delta"), "numbers"),
    CERTIFICATE: "text",
}
"""Columns that are read of explanations, in order, and what they hold; of a recount everything else is read."""

_NEEDED = ("step", "timestamp", "status")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Shard:
    """One file of explanations, with its recount.

    Attributes
    ----------
    name : str
    first, rows : int
        Number of the first explanation in the run, and how many there are.
    last : int
        When the last one was made, milliseconds since 1970.
    span : (int, int)
        When the earliest and the latest one were made.
    table : pyarrow.Table
        Those in the period.
    """

    name: str
    first: int
    rows: int
    last: int
    span: tuple[int, int]
    table: pa.Table

    @property
    def end(self) -> int:
        """Number of the explanation after the last one."""
        return self.first + self.rows


def read_shard(name: str, own: Path, recount: Path | None, where: str, period: Period) -> Shard | None:
    """Read a file of explanations and, where there is one, the file with their recount; None if it has no rows.

    Parameters
    ----------
    name : str
        Of the file in the run.
    own, recount : Path
        Local copies.
    where : str
        What messages call the file.
    period : Period

    Raises
    ------
    TrackingError
        If a file is damaged, lacks what it must have, or the two do not have the same rows.
    """
    import pyarrow as pa

    found = _read(own, where, drop=False)
    if lost := [column for column in _NEEDED if column not in found]:
        raise TrackingError(f"{where}: it lacks {', '.join(lost)}")
    rows = len(found["step"])
    if recount is not None:
        found |= _of_same_rows(_read(recount, f"{where} (recount)", drop=True), found["step"], where)
    if not rows:
        return None
    steps, times = (_whole(found[column], column, where) for column in ("step", "timestamp"))
    if not np.array_equal(steps, np.arange(steps[0], steps[0] + rows)):
        raise TrackingError(f"{where}: it is damaged: step does not count its rows")
    inside = np.ones(len(times), bool)
    inside &= times >= period.since if period.since is not None else True
    inside &= times < period.until if period.until is not None else True
    table = pa.table(found)
    table = table if inside.all() else table.filter(pa.array(inside))
    return Shard(name, int(steps[0]), rows, int(times[-1]), (int(times.min()), int(times.max())), table)


def frame_of(shards: Sequence[Shard], where: str) -> pd.DataFrame:
    """Return the rows of files as one frame: numbers as float64, flags as nullable booleans, text as categories.

    Columns that a file lacks are null in its rows; categories are sorted.

    Raises
    ------
    TrackingError
        If a column does not hold the same everywhere.
    """
    import pyarrow as pa

    try:
        table = pa.concat_tables([shard.table for shard in shards], promote_options="default")
    except pa.ArrowException:
        raise TrackingError(f"{where}: a column is of one type in some files and of another in others") from None
    kept = [name for name in _KINDS if name in table.column_names]
    table = table.select(kept + [name for name in table.column_names if name not in _KINDS]).unify_dictionaries()
    frame: pd.DataFrame = table.to_pandas(
        types_mapper={pa.bool_(): pd.BooleanDtype()}.get, split_blocks=True, self_destruct=True
    )
    for name in frame.select_dtypes("category"):
        used = frame[name].cat.remove_unused_categories()
        frame[name] = used.cat.reorder_categories(sorted(used.cat.categories))
    return frame


def _read(path: Path, where: str, *, drop: bool) -> dict[str, pa.ChunkedArray]:
    """Read the columns of explanations or, with `drop`, those that only a recount has and `step`, in few types."""
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            there = file.schema_arrow.names
            names = [name for name in there if ((name in _KINDS) is not drop or name == "step") and name != "query"]
            found = file.read(columns=names, use_threads=False)
    except Exception:  # noqa: BLE001 - whatever a damaged file raises may quote it
        raise TrackingError(f"{where}: it is damaged: no Parquet file") from None
    columns = {name: _plain(name, found.column(name), where) for name in names}
    return {name: column for name, column in columns.items() if column is not None}


def _of_same_rows(recount: dict[str, pa.ChunkedArray], steps: pa.ChunkedArray, where: str) -> dict[str, Any]:
    """Return the columns of a recount; its own numbering, where it has one, only shows that it is of these rows."""
    if others := [len(column) for column in recount.values() if len(column) != len(steps)]:
        raise TrackingError(f"{where}: it has {len(steps)} rows, and its recount {others[0]}")
    if not recount.pop("step", steps).equals(steps):
        raise TrackingError(f"{where}: its recount is of explanations with other numbers")
    return recount


def _plain(name: str, column: pa.ChunkedArray, where: str) -> pa.ChunkedArray | None:
    """Return a column in the one type for what it holds; None if it holds nothing and has no type."""
    import pyarrow as pa

    types: Mapping[str, Any] = {
        "whole numbers": pa.int64(),
        "times": pa.timestamp("ms", tz="UTC"),
        "numbers": pa.float64(),
        "flags": pa.bool_(),
        "text": pa.dictionary(pa.int32(), pa.string()),
    }
    found = _kind(column.type)
    if found == "nothing":
        return None
    expected = _KINDS.get(name, found)
    if expected not in types or found != expected.removeprefix("whole "):
        raise TrackingError(f"{where}: column {name} holds {found}, expected {_KINDS.get(name, 'numbers or text')}")
    try:
        return column if column.type == types[expected] else column.cast(types[expected])
    except pa.ArrowException:
        raise TrackingError(f"{where}: it is damaged: column {name} does not hold {expected}") from None


def _kind(type_: pa.DataType) -> str:
    import pyarrow.types as is_

    if is_.is_null(type_):
        return "nothing"
    if is_.is_boolean(type_):
        return "flags"
    if is_.is_timestamp(type_):
        return "times"
    if is_.is_integer(type_) or is_.is_floating(type_):
        return "numbers"
    text = type_.value_type if is_.is_dictionary(type_) else type_
    return "text" if is_.is_string(text) or is_.is_large_string(text) else "something else"


def _whole(column: pa.ChunkedArray, name: str, where: str) -> NDArray[np.int64]:
    """Return steps, or times in milliseconds."""
    import pyarrow as pa

    if column.null_count:
        raise TrackingError(f"{where}: it is damaged: a row has no {name}")
    return np.asarray(column.cast(pa.int64()).to_numpy(), dtype=np.int64)
