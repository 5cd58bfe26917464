"""`cfk ledger`: make a ledger, verify it, look at it, export it for an audit, and erase records from it."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pandas.api import types

from cfk_plugin.commands.files import read_schema, read_table
from cfk_plugin.data.values import conform
from cfk_plugin.errors import InputError, LedgerError, quiet
from cfk_plugin.records.chain import BrokenLedgerError
from cfk_plugin.records.ledger import COLUMNS, Ledger, Status
from cfk_plugin.release.pipeline import handles_of

if TYPE_CHECKING:
    from rich.console import Console

    from cfk_plugin.data.schema import Schema


def create(url: str, key_file: Path | None, console: Console) -> int:
    """Make a new ledger and print its figures; return the exit code."""
    with Ledger(url, key_file=key_file, create=True) as ledger:
        return _show(ledger.status(), console)


def upgrade(url: str, key_file: Path | None, console: Console) -> int:
    """Give a ledger of an earlier version its chain; return the exit code."""
    rows = Ledger.upgrade(url, key_file=key_file)
    console.print(f"{rows} rows are in its chain now; what was taken from it before cannot be noticed", soft_wrap=True)
    return status(url, key_file, console)


def status(url: str, key_file: Path | None, console: Console) -> int:
    """Print what a ledger holds, in figures; return the exit code."""
    with Ledger(url, key_file=key_file) as ledger:
        return _show(ledger.status(), console)


def verify(url: str, key_file: Path | None, head: str | None, console: Console, err: Console) -> int:
    """Check everything that a ledger holds against its chain; return the exit code: 0 it holds, 1 it does not."""
    try:
        with Ledger(url, key_file=key_file) as ledger:
            found = ledger.verify(head)
    except BrokenLedgerError as error:
        err.print(f"cfk: {error}", highlight=False, markup=False, soft_wrap=True)
        return 1
    console.print("the ledger is as it was written", highlight=False)
    return _show(found, console)


def _show(found: Status, console: Console) -> int:
    for field in fields(found):
        value = getattr(found, field.name)
        console.print(f"{field.name:<9} {'–' if value is None else value}", highlight=False, soft_wrap=True)
    return 0


def export(url: str, key_file: Path | None, output: Path, console: Console) -> int:
    """Write all rows of a ledger to a file, as CSV or JSON lines as its name ends; return the exit code."""
    as_csv, number = output.suffix.lower() == ".csv", 0
    if not as_csv and output.suffix.lower() != ".jsonl":
        raise LedgerError(f"{output}: the export must end in .csv or .jsonl")
    with (
        Ledger(url, key_file=key_file) as ledger,
        quiet(f"{output}: cannot be written", LedgerError, let=LedgerError),
        output.open("w", encoding="utf-8", newline="") as file,
    ):
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if as_csv:
            table.writeheader()
        for number, row in enumerate(ledger.export(), start=1):  # noqa: B007 - the number of the last one
            if as_csv:
                table.writerow(row)
            else:
                file.write(json.dumps(row) + "\n")
    console.print(f"{number} rows in {output}", highlight=False, soft_wrap=True)
    return 0


def forget(
    url: str, key_file: Path | None, schema: Path, rows: Path, train: Path | None, console: Console, err: Console
) -> int:
    """Erase the records of a table from a ledger; return the exit code."""
    known = None if train is None else read_table(train)
    table = read_table(rows) if known is None else _as_trained(rows, known)
    roles = read_schema(schema, table if known is None else known)
    if not len(table):
        raise InputError(f"{rows}: has no rows; give the rows to forget")
    with Ledger(url, key_file=key_file) as ledger:
        handles = list(_handles(ledger, roles, table, rows))
        gone = ledger.forget(*handles)
    console.print(f"forgot {gone.records} records with {gone.releases} releases", highlight=False, soft_wrap=True)
    if not gone.records and known is None:
        err.print("nothing matched; --train makes sure that the rows are read as they were for training")
    return 0


def _handles(ledger: Ledger, schema: Schema, table: pd.DataFrame, path: Path) -> Iterator[str]:
    """Yield the handles of the records of a table, made as they are when explanations are released."""
    features = list(schema.features)
    if missing := [name for name in features if name not in table.columns]:
        raise InputError(
            f"{path}: column {', '.join(missing)} is missing; give the rows as they are in the training table"
        )
    for values in _rows(table[features]):
        yield from handles_of(ledger, schema, values)


def _rows(table: pd.DataFrame) -> Iterator[list[Any]]:
    # Column by column: a row of a data frame would turn whole numbers beside a fraction into fractions.
    yield from (list(values) for values in zip(*(table[name].tolist() for name in table), strict=True))


def _as_trained(path: Path, train: pd.DataFrame) -> pd.DataFrame:
    """Read rows with the types of the training table; a code such as 007 stays the text that it is there."""
    table = read_table(path)
    texts = [
        name
        for name in table.columns
        if name in train.columns and (types.is_object_dtype(train[name]) or types.is_string_dtype(train[name]))
    ]
    if path.suffix.lower() not in (".parquet", ".pq") and texts:
        table = table.assign(**pd.read_csv(path, usecols=texts, dtype=str))
    for name in table.columns.intersection(train.columns):
        table[name] = conform(table[name], train[name].dtype)
    return table
