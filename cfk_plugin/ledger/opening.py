"""Where a ledger is, making its tables, and looking whether those that are there can be used."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, inspect, select, text

from cfk_plugin.errors import LedgerError
from cfk_plugin.ledger.chain import HEAD, IDENTITY, Chain, Head
from cfk_plugin.ledger.keys import Key
from cfk_plugin.ledger.store import stamp
from cfk_plugin.ledger.tables import CHAINED, VERSION, create_all, meta

LOCATION, TIMEOUT = "CFK_LEDGER", "CFK_LEDGER_TIMEOUT"
_SECONDS = 5.0
_PAGE = 2_000
_OLD_INDEXES = ("ix_cfk_budget_ceilings_account", "ix_cfk_budget_spends_account")


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


def seconds_of(timeout: float | None) -> float:
    """Return how long a request may wait: what is given, else what the environment says, else 5 seconds."""
    given: Any = os.environ.get(TIMEOUT) or _SECONDS if timeout is None else timeout
    with contextlib.suppress(ValueError, TypeError):
        if 0 < float(given) <= 3_600:
            return float(given)
    raise LedgerError(f"the timeout of a ledger ({TIMEOUT}, or timeout=) must be seconds above 0 and up to 3600")


def missing(where: str) -> LedgerError:
    """Return the error of somebody who opens a ledger where none is."""
    return LedgerError(
        f"{where}: no such ledger. If there was one, put it back: a new one knows of no release. Else make it, once, "
        f"with cfk ledger create {where}, or in Python with Ledger(..., create=True)"
    )


def look(connection: Connection, key: Key, where: str) -> Chain:
    """Return the chain of a ledger that can be used.

    Raises
    ------
    LedgerError
        If there is none, or it is of another version, made with another key, or damaged.
    """
    if not inspect(connection).has_table(meta.name):
        raise missing(where)
    facts = _facts(connection)
    if (version := _version(facts, key)) != VERSION:
        instead = (
            f"run cfk ledger upgrade {where} once, when no server uses it"
            if version < VERSION
            else "install the version of cfk_plugin that wrote it, or a later one"
        )
        raise LedgerError(f"the ledger has version {version}, this cfk_plugin reads version {VERSION}; {instead}")
    return Chain(connection, key, Head.read(key, facts))


def look_again(connection: Connection, key: Key, seen: Head) -> Chain:
    """Return the chain of a ledger that was opened before, if it is still that one.

    Raises
    ------
    LedgerError
        If it is another one, or an older state of it.
    """
    chain = Chain(connection, key, Head.read(key, _facts(connection)))
    chain.check_after(seen)
    return chain


def make(connection: Connection, key: Key, where: str) -> None:
    """Make the tables.

    Raises
    ------
    LedgerError
        If there is a ledger already, or somebody else was faster.
    """
    if inspect(connection).has_table(meta.name):
        raise LedgerError(f"{where}: there is a ledger already; open it without create=True")
    create_all(connection)
    _write_facts(connection, key, stamp(datetime.now(UTC)))


def upgrade(connection: Connection, key: Key, where: str) -> int:
    """Put all that a ledger of version 1 holds into a chain; return how many rows.

    Raises
    ------
    LedgerError
        If there is no ledger, or it has no need.
    """
    if not inspect(connection).has_table(meta.name):
        raise missing(where)
    facts = _facts(connection)
    if _version(facts, key) >= VERSION:
        raise LedgerError(f"{where}: the ledger has a chain already; nothing was changed")
    old = [table for table in CHAINED if inspect(connection).has_table(table.name)]
    for name in _OLD_INDEXES:
        connection.execute(text(f"DROP INDEX IF EXISTS {name}"))
    for table in old:
        connection.execute(text(f"ALTER TABLE {table.name} RENAME TO {table.name}_1"))
    connection.execute(meta.delete())
    create_all(connection)
    chain = Chain(connection, key, _write_facts(connection, key, facts.get("created", "")))
    for table in old:
        _copy(chain, table)
        connection.execute(text(f"DROP TABLE {table.name}_1"))
    return chain.head.seq


def _copy(chain: Chain, table: Any) -> None:
    names = [column.name for column in table.columns if column.name not in ("seq", "salt")]
    page = text(f"SELECT id, {', '.join(names)} FROM {table.name}_1 WHERE id > :last ORDER BY id LIMIT {_PAGE}")  # noqa: S608 - names of ours
    rows = chain.connection.execute(page, {"last": 0}).mappings().all()
    while rows:
        chain.insert(table, [{name: row[name] for name in names} for row in rows])
        rows = chain.connection.execute(page, {"last": rows[-1]["id"]}).mappings().all()


def _facts(connection: Connection) -> dict[str, str]:
    return {row.name: row.value for row in connection.execute(select(meta))}


def _version(facts: Mapping[str, str], key: Key) -> int:
    """Return the version of a ledger that was made with a key."""
    version = facts.get("version", "")
    if not version.isdecimal() or "key" not in facts:
        raise LedgerError("the ledger says neither its version nor its key; it was damaged: restore it from a backup")
    if facts["key"] != key.id:
        raise LedgerError(
            f"the ledger was made with another key (it expects key {facts['key'][:8]}, this is key {key.id}); with "
            "this one it would know no record: give the key that it was made with"
        )
    return int(version)


def _write_facts(connection: Connection, key: Key, created: str) -> Head:
    head = Head.of_new(key, secrets.token_hex(16))
    facts = {"version": str(VERSION), "key": key.id, "created": created}
    facts |= {IDENTITY: head.identity, HEAD: head.written(key)}
    connection.execute(insert(meta), [{"name": name, "value": value} for name, value in facts.items()])
    return head
