"""Writing a ledger's rows to a file for an audit."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cfk_plugin.errors import LedgerError

COLUMNS = (
    "record",
    "region",
    "policy",
    "population",
    "guarantee",
    "k",
    "effective",
    "first",
    "last",
    "times",
)
"""Of an exported row: handles, hashes, counts and times; no value."""


def check_target(path: Path) -> None:
    """Refuse, before any work, a file name that says no format."""
    if path.suffix.lower() not in (".csv", ".jsonl"):
        raise LedgerError(f"{path}: the export must end in .csv or .jsonl")


def write_rows(rows: Iterable[Mapping[str, Any]], path: str | Path) -> int:
    """Write rows of `Ledger.export` as CSV or JSON lines, as the file name ends.

    Parameters
    ----------
    rows : iterable of mapping
    path : path
        ``.csv`` or ``.jsonl``.

    Returns
    -------
    int
        Number of rows.

    Raises
    ------
    LedgerError
        If the file name says no format, or the file cannot be written.
    """
    path, number = Path(path), 0
    check_target(path)
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if path.suffix.lower() == ".csv":
                table.writeheader()
            for number, row in enumerate(rows, start=1):  # noqa: B007 - the number of the last one
                if path.suffix.lower() == ".csv":
                    table.writerow(row)
                else:
                    file.write(json.dumps(dict(row)) + "\n")
    except OSError as error:
        reason = error.strerror or type(error).__name__
    else:
        return number
    raise LedgerError(f"{path}: cannot be written ({reason})")
