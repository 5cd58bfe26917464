"""A run's tables as files: gzipped JSON lines, one object per row, each with the same columns.

What each column holds is declared here, and checked when a file is read. Nothing is guessed.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.errors import TrackingError

Kind = Literal["whole numbers", "times", "numbers", "flags", "text"]
"""What a column holds.

Times are milliseconds since 1970. Whole numbers and times are never null; whole numbers that may be
null, such as k, are "numbers".
"""
Columns = Mapping[str, NDArray[Any]]
"""Columns of a table by name, all of one length."""

SUFFIX = ".jsonl.gz"

EXPLANATION_COLUMNS: Mapping[str, Kind | None] = {
    "step": "whole numbers",
    "timestamp": "times",
    "query": None,
    "status": "text",
    "reason": "text",
    "k": "numbers",
    "ncp": "numbers",
    "pureness": "numbers",
    "pureness_low": "numbers",
    "pureness_high": "numbers",
    "exact": "flags",
    "optimal": "flags",
    "gap": "numbers",
    "method": "text",
    "guarantee": "text",
    "policy_hash": "text",
    "population": "text",
    "region": None,
    "released": None,
}
"""Columns of every table of explanations, in order; None for one that reports do not read.

A column for each feature follows, see `feature_column`.
"""
PROTOTYPE_COLUMNS: Mapping[str, Kind | None] = {
    "epsilon": "numbers",
    "delta": "numbers",
    "prototype": None,
    "certificate": "text",
}
"""Columns that follow in a table of prototypes."""
RECOUNT_COLUMNS: Mapping[str, Kind] = {
    "step": "whole numbers",
    "k_worst": "numbers",
    "k_desired": "numbers",
    "k_consistent": "numbers",
    "k_effective": "numbers",
    "k_private": "numbers",
    "private_matches": "numbers",
    "l": "numbers",
    "t": "numbers",
    "disclosure": "numbers",
    "majority": "flags",
    "finding": "text",
    "refused_k": "numbers",
    "seconds": "numbers",
    "group": "text",
}
"""Columns of every table of a recount, in order; one for each quasi-identifier follows."""
TRUE = "true"
"""Last column of a recount, if it is known whether the outcome came true; it holds flags."""

_NCP_PREFIX = "ncp."
_READ_IN_EXPLANATIONS = [
    column
    for column, kind in {**EXPLANATION_COLUMNS, **PROTOTYPE_COLUMNS}.items()
    if kind is not None
]


def feature_column(feature: str) -> str:
    """Return the column of explanations with the value of a feature, as text."""
    return f"feature.{feature}"


def ncp_column(quasi_identifier: str) -> str:
    """Return the column of a recount with the NCP of a quasi-identifier."""
    return f"{_NCP_PREFIX}{quasi_identifier}"


def public_kind(column: str) -> Kind | None:
    """Return what a column of explanations holds; None for one that reports do not read."""
    return EXPLANATION_COLUMNS.get(column) or PROTOTYPE_COLUMNS.get(column)


def recount_kind(column: str) -> Kind | None:
    """Return what a column of a recount holds; None for one that reports do not read."""
    if column.startswith(_NCP_PREFIX):
        return "numbers"
    if column == TRUE:
        return "flags"
    return RECOUNT_COLUMNS.get(column)


def kind_in_report(column: str) -> Kind:
    """Return what a column that reports read holds."""
    kind = public_kind(column) or recount_kind(column)
    if kind is None:
        raise KeyError(column)
    return kind


def in_order(columns: Iterable[str]) -> list[str]:
    """Return names of columns that reports read, those of explanations first."""
    names = list(dict.fromkeys(columns))
    public = [name for name in _READ_IN_EXPLANATIONS if name in names]
    return public + [name for name in names if name not in _READ_IN_EXPLANATIONS]


def written(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the file of a table. The same rows give the same bytes on every machine."""
    lines = [
        json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False) for row in rows
    ]
    text = "".join(f"{line}\n" for line in lines)
    file = io.BytesIO()
    # Without a time and a file name in its header, which would tell when the file was written.
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        packed.write(text.encode("utf-8"))
    return file.getvalue()


def read(content: bytes, kind_of: Callable[[str], Kind | None], where: str) -> Columns:
    """Return the columns of a file that have a kind; none of a file without rows.

    Raises
    ------
    TrackingError
        If the file is damaged, or a column holds something else. It quotes nothing of the file.
    """
    rows = _rows(content, where)
    if not rows:
        return {}
    names = tuple(rows[0])
    # A report may read millions of rows: what is done for each is done by built-in functions.
    if set(map(tuple, rows)) != {names}:
        raise TrackingError(f"{where}: it is damaged: its rows do not have the same columns")
    columns = {}
    for name, values in zip(names, zip(*map(dict.values, rows), strict=True), strict=True):
        kind = kind_of(name)
        if kind is not None:
            columns[name] = _column(name, values, kind, where)
    if not columns:
        raise TrackingError(f"{where}: it is damaged: it has none of the columns of such a file")
    return columns


def nulls(kind: Kind, n_rows: int) -> NDArray[Any]:
    """Return a column of shape (n_rows,) in which nothing is known."""
    if kind == "numbers":
        return np.full(n_rows, np.nan)
    return np.full(n_rows, None, dtype=object)


def _rows(content: bytes, where: str) -> Sequence[dict[str, Any]]:
    try:
        if not content:
            raise ValueError("it has no header")
        lines = gzip.decompress(content).decode("utf-8").split("\n")
        if lines.pop():
            raise ValueError("the last line does not end")
        rows = json.loads(f"[{','.join(lines)}]", parse_constant=_refuse)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError):
        raise TrackingError(f"{where}: it is damaged: no gzipped JSON lines") from None
    # One line must be one row: joined, two values of a line would pass for two rows.
    if len(rows) != len(lines) or not set(map(type, rows)) <= {dict}:
        raise TrackingError(f"{where}: it is damaged: a line is no JSON object")
    return rows  # type: ignore[no-any-return]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _column(name: str, values: Sequence[Any], kind: Kind, where: str) -> NDArray[Any]:
    """Return a column of shape (rows,); numbers have NaN for null, flags and text None."""
    found = _kind_found(values)
    expected = "numbers" if kind in ("whole numbers", "times") else kind
    if found not in ("nothing", expected):
        raise TrackingError(f"{where}: column {name} holds {found}, expected {kind}")
    if kind in ("whole numbers", "times"):
        return _whole(name, values, kind, where)
    if kind == "numbers":
        return _numbers(name, values, where)
    if kind == "text":
        # The same few texts are in all rows: one of each is kept.
        known: dict[Any, Any] = {}
        values = list(map(known.setdefault, values, values))
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _kind_found(values: Sequence[Any]) -> str:
    types = set(map(type, values)) - {type(None)}
    if not types:
        return "nothing"
    if types <= {int, float}:
        return "numbers"
    if types == {bool}:
        return "flags"
    return "text" if types == {str} else "something else"


def _whole(name: str, values: Sequence[Any], kind: Kind, where: str) -> NDArray[np.int64]:
    if None in values:
        raise TrackingError(f"{where}: it is damaged: a row has no {name}")
    try:
        if set(map(type, values)) == {int}:
            return np.array(values, dtype=np.int64)
    except OverflowError:
        pass
    raise TrackingError(f"{where}: it is damaged: column {name} does not hold {kind}")


def _numbers(name: str, values: Sequence[Any], where: str) -> NDArray[np.float64]:
    damaged = TrackingError(f"{where}: it is damaged: column {name} does not hold numbers")
    try:
        column = np.array(values, dtype=float)  # None becomes NaN
    except OverflowError:
        raise damaged from None
    n_known = len(values) - values.count(None)
    if np.isfinite(column).sum() != n_known:
        raise damaged
    return column
