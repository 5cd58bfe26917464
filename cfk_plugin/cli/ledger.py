"""cfk ledger: make one, see what was released, check it, and erase records of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cfk_plugin.cli.frame import app, command, console
from cfk_plugin.cli.options import KeyFile, LedgerRows, LedgerUrl, Schema

ledger = typer.Typer(help="Make a ledger of releases, check it, or erase records from it.", no_args_is_help=True)
app.add_typer(ledger, name="ledger")


@command("create", "cfk ledger create ledger.db\ncfk ledger create postgresql://cfk@db.example.org/privacy", ledger)
def ledger_create(url: LedgerUrl, key_file: KeyFile = None) -> int:
    """Make a new ledger, once; nothing else does. One that is there is not touched."""
    from cfk_plugin.commands import ledger as work

    return work.create(url, key_file, console())


@command("verify", "cfk ledger verify ledger.db\ncfk ledger verify ledger.db --head DIGEST", ledger)
def ledger_verify(
    url: LedgerUrl,
    head: Annotated[str | None, typer.Option(help="A head that was printed before, and kept elsewhere.")] = None,
    key_file: KeyFile = None,
) -> int:
    """Check that no release or spend was taken away, added or changed. Exit code 0 when none was, else 1."""
    from cfk_plugin.commands import ledger as work

    return work.verify(url, key_file, head, console(), console(stderr=True))


@command("upgrade", "cfk ledger upgrade ledger.db", ledger)
def ledger_upgrade(url: LedgerUrl, key_file: KeyFile = None) -> int:
    """Give a ledger that an earlier version wrote its chain. Stop the servers that use it first."""
    from cfk_plugin.commands import ledger as work

    return work.upgrade(url, key_file, console())


@command("status", "cfk ledger status ledger.db", ledger)
def ledger_status(url: LedgerUrl, key_file: KeyFile = None) -> int:
    """Show how many records and releases a ledger holds."""
    from cfk_plugin.commands import ledger as work

    return work.status(url, key_file, console())


@command("export", "cfk ledger export ledger.db -o audit.csv", ledger)
def ledger_export(url: LedgerUrl, output: LedgerRows, key_file: KeyFile = None) -> int:
    """Write what was released, when and how often: handles, hashes, counts and times, no value."""
    from cfk_plugin.commands import ledger as work

    return work.export(url, key_file, output, console(stderr=True))


@command("forget", "cfk ledger forget ledger.db -s schema.json --rows person.csv --train train.csv", ledger)
def ledger_forget(
    url: LedgerUrl,
    schema: Schema,
    rows: Annotated[Path, typer.Option(help="Rows that are to be forgotten, as in the training table.")],
    train: Annotated[Path | None, typer.Option(help="Training rows: their columns and types are then used.")] = None,
    key_file: KeyFile = None,
) -> int:
    """Erase records from a ledger; what is on record for others stays."""
    from cfk_plugin.commands import ledger as work

    return work.forget(url, key_file, schema, rows, train, console(), console(stderr=True))
