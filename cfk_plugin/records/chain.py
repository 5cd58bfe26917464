"""The tables of a ledger, and the chain: a keyed digest over all their rows, so that none changes
unnoticed.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from cfk_plugin.errors import LedgerError
from cfk_plugin.records.database import set_limits
from cfk_plugin.records.keys import Key

# The tables of a ledger and of budgets. Of values they hold released regions, and private values
# that at least k people have, or no one.

VERSION = 1
"""Version of the tables; a ledger of another version is refused."""
_FORMAT = "cfk ledger"

_metadata = sa.MetaData()

# Version, key and identity of the ledger, and the head of its chain.
meta = sa.Table(
    "cfk_ledger_meta",
    _metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("value", sa.String, nullable=False),
)

# On PostgreSQL, settling a record locks its row here; SQLite has one writer at a time and leaves
# this empty.
locks = sa.Table(
    "cfk_ledger_locks", _metadata, sa.Column("record", sa.String(64), primary_key=True)
)

# One entry each time a row of the tables below is made, erased, or changed in its chained columns.
entries = sa.Table(
    "cfk_ledger_chain",
    _metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),  # 1, 2, 3, ...
    sa.Column("replaces", sa.BigInteger, unique=True),  # the row's previous entry
    sa.Column("content", sa.String(64)),  # keyed digest of the row; null once erased
    # keyed digest of this entry and the previous link
    sa.Column("link", sa.String(64), nullable=False),
)


def _chained(
    name: str, *columns: sa.Column[str] | sa.Column[int] | sa.UniqueConstraint
) -> sa.Table:
    """Return a table whose rows are in the chain, each by its latest entry."""
    seq = sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False)
    # Erased with the row: even with the key, nobody can test what row an entry stood for.
    salt: sa.Column[str] = sa.Column("salt", sa.String(32), nullable=False)
    return sa.Table(name, _metadata, seq, salt, *columns)


releases = _chained(
    "cfk_ledger_releases",
    sa.Column("record", sa.String(64), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),  # keyed hash of the region
    sa.Column("policy", sa.String, nullable=False),
    sa.Column("population", sa.String, nullable=False),
    sa.Column("region", sa.Text, nullable=False),
    sa.Column("guarantee", sa.String, nullable=False),
    sa.Column("k", sa.Integer, nullable=False),
    sa.Column("group_id", sa.String(32), nullable=False, index=True),
    # UTC as text of fixed length, which sorts as time does and reads the same in both databases.
    sa.Column("first", sa.String(27), nullable=False),
    sa.Column("last", sa.String(27), nullable=False),
    sa.Column("times", sa.Integer, nullable=False),
    sa.UniqueConstraint("record", "digest", "policy", "population"),
)

# The people who share a region on record, as handles of 16 hex digits one after the other. A group
# only ever loses people: whoever is gone when its region is released again.
groups = _chained(
    "cfk_ledger_groups",
    sa.Column("group_id", sa.String(32), nullable=False, unique=True),  # random
    sa.Column("digest", sa.String(64), nullable=False, index=True),  # keyed hash of the region
    sa.Column("k", sa.Integer, nullable=False),
    sa.Column("members", sa.Text, nullable=False),  # to whom a partition gives the region
    sa.Column("inside", sa.Text, nullable=False),  # whose quasi-identifiers are in the region
)

# The columns that the ledger depends on; one row, written when it is used first.
tables = _chained(
    "cfk_ledger_tables",
    sa.Column("quasi_identifiers", sa.Text, nullable=False),  # names, as JSON
    sa.Column("private", sa.Text, nullable=False),  # names, as JSON
    sa.Column("subject", sa.String),  # name of the column that says whose a row is
    sa.Column("at", sa.String(27), nullable=False),
)

# Catalogues whose private values went on record, and the people of the table who were not on record
# before, as in the table of groups.
editions = _chained(
    "cfk_ledger_editions",
    sa.Column("series", sa.String, nullable=False, index=True),
    sa.Column("number", sa.Integer, nullable=False),  # in its series, from 1
    sa.Column("added", sa.Text, nullable=False),  # as JSON; no value of fewer than k people
    sa.Column("people", sa.Text, nullable=False),
    sa.Column("at", sa.String(27), nullable=False),
)

# On PostgreSQL, spending locks the account's row; SQLite has one writer at a time.
accounts = sa.Table(
    "cfk_budget_accounts", _metadata, sa.Column("account", sa.String, primary_key=True)
)

# Amounts are text: a database might round numbers.
ceilings = _chained(
    "cfk_budget_ceilings",
    sa.Column("account", sa.String, nullable=False, index=True),
    sa.Column("epsilon", sa.String, nullable=False),
    sa.Column("delta", sa.String, nullable=False),
    sa.Column("at", sa.String(27), nullable=False),
)

spends = _chained(
    "cfk_budget_spends",
    sa.Column("account", sa.String, nullable=False, index=True),
    sa.Column("epsilon", sa.String, nullable=False),
    sa.Column("delta", sa.String, nullable=False),
    sa.Column("rho", sa.String),  # if the mechanism gave it
    sa.Column("what", sa.String, nullable=False),
    sa.Column("at", sa.String(27), nullable=False),
    sa.Column("token", sa.String(32), nullable=False, unique=True),
)

_CHAINED = (releases, groups, tables, editions, ceilings, spends)
# No digest covers the columns "seq", "last" and "times": an answer that is repeated changes the
# last two without an entry in the chain.
_COVERED = {
    t.name: [c.name for c in t.columns if c.name not in ("seq", "last", "times")] for t in _CHAINED
}


def stamp(moment: datetime | None = None) -> str:
    """Return a moment, by default now, as UTC text of fixed length."""
    return (moment or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


Row = dict[str, Any]
_CHUNK = 500  # values per statement; databases limit them
_PAGE = 2_000
_HEAD, _IDENTITY = "head", "identity"  # names in the table `meta`


class BrokenLedgerError(LedgerError):
    """A ledger does not hold what was recorded in it."""

    def __init__(self, found: str) -> None:
        super().__init__(f"the ledger is not as it was written: {found}; restore it from a backup")


@dataclass(frozen=True, slots=True)
class Head:
    identity: str  # of the ledger; random
    seq: int  # number of entries
    link: str  # keyed digest of all of them

    @classmethod
    def of_new(cls, key: Key, identity: str) -> Head:
        return cls(identity, 0, key.digest("chain", identity))

    @classmethod
    def read(cls, key: Key, facts: Mapping[str, str]) -> Head:
        """Read a head from a ledger's facts; none can be forged without the key."""
        found = facts.get(_HEAD, "").split()
        if len(found) == 3 and found[0].isdecimal():
            head = cls(facts.get(_IDENTITY, ""), int(found[0]), found[1])
            if hmac.compare_digest(head.sealed(key), facts[_HEAD]):
                return head
        raise BrokenLedgerError("the end of its chain does not fit its key")

    def sealed(self, key: Key) -> str:
        """Return the head as the database holds it: number of entries, last link, and a seal on
        both.
        """
        text = f"{self.seq} {self.link}"
        return f"{text} {key.digest('head', f'{self.identity} {text}')}"

    def next(self, key: Key, replaces: int | None, content: str | None) -> Head:
        seq = self.seq + 1
        return Head(
            self.identity,
            seq,
            key.digest("link", f"{self.link} {seq} {replaces or ''} {content or ''}"),
        )


class Chain:
    """The tables within one transaction; chained rows are read and written through it alone."""

    accounts, ceilings, spends = accounts, ceilings, spends
    groups, tables, editions = groups, tables, editions

    def __init__(self, connection: sa.Connection, key: Key) -> None:
        self.connection, self._key = connection, key
        self.head = Head.read(key, _facts(connection))

    def lock(self, table: sa.Table, names: Iterable[str]) -> None:
        """Wait for all transactions that lock these names, and keep others waiting until this one
        ends.
        """
        (column,) = table.columns
        insert_into = (
            postgresql.insert if self.connection.dialect.name == "postgresql" else sqlite.insert
        )
        # Always in the same order, so that two batches never deadlock.
        for part in chunks(sorted(set(names))):
            new = (
                insert_into(table)
                .values([{column.name: name} for name in part])
                .on_conflict_do_nothing()
            )
            held = sa.select(table).where(column.in_(part)).order_by(column).with_for_update()
            for statement in (new, held):
                set_limits(self.connection)
                self.connection.execute(statement)

    def names(self, table: sa.Table) -> list[str]:
        (column,) = table.columns
        return list(self.connection.scalars(sa.select(column).order_by(column)))

    def rows(
        self, table: sa.Table, condition: sa.ColumnElement[bool], most: int | None = None
    ) -> list[Row]:
        """Return rows in the order of their entries, each as it was recorded; with `most`, the
        first of them.
        """
        found = _with_entries(table).where(condition)
        if most is not None:
            found = found.order_by(table.c.seq).limit(most)
        set_limits(self.connection)
        rows = self._all(found)
        if not all(self._fits(table, row) for row in rows):
            damaged = (
                "a row of the ledger does not fit its key; the database was changed or damaged"
            )
            raise LedgerError(f"{damaged}: restore it from a backup")
        return sorted(rows, key=lambda row: int(row["seq"]))

    def write(self, table: sa.Table, rows: Sequence[Row]) -> None:
        """Write new rows, or changed ones from `rows`; a change of uncovered columns alone makes no
        entry.
        """
        for row in rows:
            row.setdefault("salt", secrets.token_hex(16))
            if "at" in table.c:
                row.setdefault("at", stamp())
            row["was"], row["new"] = row.get("seq"), self._content(table, row)
        changed = [row for row in rows if row["new"] != row.get("content")]
        for row, seq in zip(
            changed, self._append([(row["was"], row["new"]) for row in changed]), strict=True
        ):
            row["seq"] = seq
        names = [column.name for column in table.columns]
        if new := [{name: row[name] for name in names} for row in rows if row["was"] is None]:
            self.connection.execute(sa.insert(table), new)
        if old := [
            {name: row[name] for name in (*names, "was")} for row in rows if row["was"] is not None
        ]:
            self.connection.execute(sa.update(table).where(table.c.seq == sa.bindparam("was")), old)

    def erase(self, table: sa.Table, condition: sa.ColumnElement[bool]) -> list[Row]:
        """Erase rows, and return them; their entries stay, and reveal nothing of them."""
        gone = self._all(sa.select(table).where(condition).order_by(table.c.seq))
        self._append([(row["seq"], None) for row in gone])
        self.connection.execute(sa.delete(table).where(condition))
        return gone

    def check_after(self, seen: Head) -> None:
        """Refuse a ledger other than the one seen before, or an older state of it."""
        if self.head.identity != seen.identity:
            raise LedgerError(
                "another ledger is in the place of the one that was opened; put that back"
            )
        if self.head == seen:
            return
        if self.head.seq < seen.seq or (seen.seq and self._link(seen.seq) != seen.link):
            raise LedgerError(
                "the ledger is an older state of the one that was opened: what was released since"
                " is not in it; put the newer one back, or open it anew and bear that those"
                " releases are forgotten"
            )

    def check(self, most: int | None = None, link: str | None = None) -> None:
        """Recompute the chain and compare rows with their entries: all, or the last `most`, and
        count the others.
        """
        counts = (sa.select(sa.func.count()).select_from(table) for table in (entries, *_CHAINED))
        number, *rows = (self.connection.scalars(count).one() for count in counts)
        if number != self.head.seq:
            raise BrokenLedgerError(
                f"its chain should have {self.head.seq} entries and has {number}"
            )
        if (should := self._live(0)) != sum(rows):
            raise BrokenLedgerError(f"it should have {should} rows and has {sum(rows)}")
        after = 0 if most is None else max(self.head.seq - most, 0)
        self._check_links(after, link)
        missing, others = self._live(after), 0
        for table in _CHAINED:
            for row in self._pages(_with_entries(table), table, after):
                missing -= row["content"] is not None and not row["replaced"]
                others += not self._fits(table, row)
        if missing or others:
            said = [f"{missing} rows are gone"] * bool(missing) + [
                f"{others} rows are changed or added"
            ] * bool(others)
            raise BrokenLedgerError(" and ".join(said))

    def _append(self, changes: Sequence[tuple[int | None, str | None]]) -> list[int]:
        """Append entries; return their numbers. Other writers wait until the transaction ends."""
        if not changes:
            return []
        set_limits(self.connection)
        head = Head.read(self._key, _facts(self.connection, lock=True))
        rows: list[Row] = []
        for replaces, content in changes:
            head = head.next(self._key, replaces, content)
            rows.append(
                {"seq": head.seq, "replaces": replaces, "content": content, "link": head.link}
            )
        self.connection.execute(sa.insert(entries), rows)
        self.connection.execute(
            sa.update(meta).where(meta.c.name == _HEAD).values(value=head.sealed(self._key))
        )
        self.head = head
        return [row["seq"] for row in rows]

    def _live(self, after: int) -> int:
        """Return how many rows should have an entry after this number."""
        written = sa.func.count(entries.c.content).filter(entries.c.seq > after)
        replaced = sa.func.count().filter(entries.c.replaces > after)
        return self.connection.scalars(sa.select(written - replaced)).one()

    def _check_links(self, after: int, wanted: str | None) -> None:
        identity = self.head.identity
        head = (
            Head(identity, after, self._link(after) or "")
            if after
            else Head.of_new(self._key, identity)
        )
        found = wanted in (None, head.link)
        for row in self._pages(sa.select(entries), entries, after):
            head = head.next(self._key, row["replaces"], row["content"])
            found = found or wanted == row["link"]
            if (row["seq"], row["link"]) != (head.seq, head.link):
                raise BrokenLedgerError(f"its chain is broken at entry {head.seq}")
        if head != self.head:
            raise BrokenLedgerError("its chain does not end where it should")
        if not found:
            raise BrokenLedgerError(
                "the head that was given is not in its chain; this is an older or another one"
            )

    def _link(self, seq: int) -> str | None:
        return self.connection.scalar(sa.select(entries.c.link).where(entries.c.seq == seq))

    def _pages(self, statement: sa.Select[Any], table: sa.Table, after: int) -> Iterator[Row]:
        while page := self._all(
            statement.where(table.c.seq > after).order_by(table.c.seq).limit(_PAGE)
        ):
            yield from page
            after = page[-1]["seq"]

    def _all(self, statement: sa.Select[Any]) -> list[Row]:
        found = self.connection.execute(statement)
        names = tuple(found.keys())
        return [dict(zip(names, row, strict=True)) for row in found]

    def _fits(self, table: sa.Table, row: Row) -> bool:
        return not row["replaced"] and self._content(table, row) == row["content"]

    def _content(self, table: sa.Table, row: Row) -> str:
        values = [row[name] for name in _COVERED[table.name]]
        return self._key.digest(
            table.name, json.dumps(values, ensure_ascii=True, separators=(",", ":"))
        )


def _with_entries(table: sa.Table) -> sa.Select[Any]:
    """Select a table's rows with the digest of their entry, and whether a later entry replaced
    it.
    """
    later = entries.alias()
    replaced = sa.exists().where(later.c.replaces == table.c.seq).label("replaced")
    return sa.select(table, entries.c.content, replaced).outerjoin(
        entries, entries.c.seq == table.c.seq
    )


def chunks(items: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


def missing_ledger(where: object) -> LedgerError:
    return LedgerError(
        f"{where}: no such ledger. If there was one, put it back: a new one knows of no release."
        f" Else make it, once, with cfk ledger create {where}, or in Python with Ledger(...,"
        " create=True)"
    )


def open_chain(connection: sa.Connection, key: Key, where: str, seen: Head | None) -> Chain:
    if seen is None:
        _check_format(connection, key, where)
    chain = Chain(connection, key)
    if seen is not None:
        chain.check_after(seen)
    return chain


def make(connection: sa.Connection, key: Key, where: str) -> Chain:
    if sa.inspect(connection).has_table(meta.name):
        raise LedgerError(f"{where}: there is a ledger already; open it without create=True")
    _metadata.create_all(connection)
    head = Head.of_new(key, secrets.token_hex(16))
    facts = {"format": f"{_FORMAT} {VERSION}", "key": key.id, "created": stamp()}
    facts |= {_IDENTITY: head.identity, _HEAD: head.sealed(key)}
    connection.execute(
        sa.insert(meta), [{"name": name, "value": value} for name, value in facts.items()]
    )
    return Chain(connection, key)


def _facts(connection: sa.Connection, lock: bool = False) -> dict[str, str]:
    found = sa.select(meta)
    if lock:
        found = found.where(meta.c.name.in_((_HEAD, _IDENTITY))).with_for_update()
    return {row.name: row.value for row in connection.execute(found)}


def _check_format(connection: sa.Connection, key: Key, where: str) -> None:
    """Refuse a database without a ledger, a ledger in another format, and one of another key."""
    if not sa.inspect(connection).has_table(meta.name):
        raise missing_ledger(where)
    facts = _facts(connection)
    if "format" not in facts and "version" in facts:
        raise LedgerError(
            "the ledger was written before the first release of cfk_plugin, which cannot read it."
            " Keep it as a record, and make another with cfk ledger create; the new one does not"
            " know what was released before"
        )
    if not facts.get("format", "").startswith(_FORMAT) or "key" not in facts:
        raise LedgerError(
            "the ledger says neither its format nor its key; it was damaged: restore it from a"
            " backup"
        )
    if facts["format"] != f"{_FORMAT} {VERSION}":
        raise LedgerError(
            f"the ledger has another version than {VERSION}, the one that this cfk_plugin reads;"
            " install the cfk_plugin that wrote it, or a later one"
        )
    if facts["key"] != key.id:
        raise LedgerError(
            f"the ledger was made with another key (it expects key {facts['key'][:8]}, this is key"
            f" {key.id}); with this one it would know no record: give the key that it was made with"
        )
