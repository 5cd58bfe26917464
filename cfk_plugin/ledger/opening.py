"""Where a ledger is, making its tables, and looking whether those that are there can be used."""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, insert, inspect, select

from cfk_plugin.errors import LedgerError
from cfk_plugin.ledger.keys import Key
from cfk_plugin.ledger.store import stamp
from cfk_plugin.ledger.tables import VERSION, create_all, meta

LOCATION = "CFK_LEDGER"


def default_place(create: bool) -> str | Path:
    """Return where the ledger is when nobody says; its folder is made where that is allowed."""
    if chosen := os.environ.get(LOCATION):
        return chosen
    state = os.environ.get("XDG_STATE_HOME")
    folder = (Path(state) if state else Path.home() / ".local" / "state") / "cfk_plugin"
    if create:
        with contextlib.suppress(OSError):  # that it is missing is said when the file is opened
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder / "ledger.db"


def check(connection: Connection, key: Key) -> bool:
    """Return False where no ledger is, True for one that can be used.

    Raises
    ------
    LedgerError
        If it is of another version, made with another key, or damaged.
    """
    if not inspect(connection).has_table(meta.name):
        return False
    found = {row.name: row.value for row in connection.execute(select(meta))}
    version = found.get("version", "")
    if not version.isdecimal() or "key" not in found:
        raise LedgerError("the ledger says neither its version nor its key; it was damaged: restore it from a backup")
    if int(version) != VERSION:
        raise LedgerError(
            f"the ledger has version {int(version)}, this cfk_plugin reads version {VERSION}; "
            "install the version of cfk_plugin that wrote it, or a later one"
        )
    if found["key"] != key.id:
        raise LedgerError(
            f"the ledger was made with another key (it expects key {found['key'][:8]}, this is key {key.id}); with "
            "this one it would know no record: give the key that it was made with"
        )
    return True


def make(connection: Connection, key: Key) -> None:
    """Make the tables, unless somebody else was faster."""
    if check(connection, key):
        return
    create_all(connection)
    rows = {"version": str(VERSION), "key": key.id, "created": stamp(datetime.now(UTC))}
    connection.execute(insert(meta), [{"name": name, "value": value} for name, value in rows.items()])
