"""Files of a run's rows, gzipped JSON lines, as tests read and write them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file as they were written."""
    text = gzip.decompress(path.read_bytes()).decode("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def table_of(path: Path) -> pd.DataFrame:
    return pd.DataFrame(lines_of(path))


def tables_of(paths: Iterable[Path]) -> pd.DataFrame:
    """Return the rows of several files, in the order of their names."""
    return pd.DataFrame([row for path in sorted(paths) for row in lines_of(path)])


def packed(frame: pd.DataFrame) -> bytes:
    """Return the file of a table: times as milliseconds since 1970, and null for what is not
    known.
    """
    rows = [
        {name: _plain(value) for name, value in row.items()} for row in frame.to_dict("records")
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    return gzip.compress(text.encode("utf-8"), mtime=0)


def _plain(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        return value
    if pd.isna(value):
        return None
    if isinstance(value, pd.Timestamp):
        return value.value // 1_000_000
    return value
