"""Rows of a ledger's database: their chain, reading and writing them in a transaction, opening, and budgets."""

from __future__ import annotations

import contextlib
import heapq
import hmac
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    Table,
    delete,
    exists,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from cfk_plugin.errors import LedgerError
from cfk_plugin.records import database as tables
from cfk_plugin.records.budget import Amount, Books, Budget, Spend, now
from cfk_plugin.records.database import (
    CHAINED,
    UNCHAINED,
    VERSION,
    chain,
    create_all,
    locks,
    meta,
    releases,
    set_limits,
)
from cfk_plugin.records.keys import Key
from cfk_plugin.records.ledger import Ledger
from cfk_plugin.records.rule import Release, decode

# The chain: a keyed digest over all that a ledger holds, so that no row is taken away, added or changed unnoticed.

HEAD, IDENTITY = "head", "identity"
"""Facts about a ledger, in its table of facts."""

_PAGE = 2_000
_DAMAGED = "a row of the ledger does not fit its key; the database was changed or damaged: restore it from a backup"
_LATER = chain.alias()


class BrokenLedgerError(LedgerError):
    """What a ledger holds is not what was recorded in it."""

    def __init__(self, found: str) -> None:
        super().__init__(f"the ledger is not as it was written: {found}; restore it from a backup")


@dataclass(frozen=True, slots=True)
class Head:
    """Where the chain of a ledger ends."""

    identity: str  # Of the ledger; random, from when it was made
    seq: int  # Number of entries
    link: str  # Keyed digest of all of them

    @classmethod
    def of_new(cls, key: Key, identity: str) -> Head:
        """Return the head of a chain without entries."""
        return cls(identity, 0, key.digest("chain", identity))

    @classmethod
    def read(cls, key: Key, facts: Mapping[str, str]) -> Head:
        """Read a head from a ledger's facts; nobody can write one without the key."""
        found = facts.get(HEAD, "").split()
        if len(found) == 3 and found[0].isdecimal():
            head = cls(facts.get(IDENTITY, ""), int(found[0]), found[1])
            if hmac.compare_digest(head.written(key), facts[HEAD]):
                return head
        raise BrokenLedgerError("the end of its chain does not fit its key")

    def written(self, key: Key) -> str:
        """Return the head as it stands in the database: the number of entries, their link, and a seal on both."""
        text = f"{self.seq} {self.link}"
        return f"{text} {key.digest('head', f'{self.identity} {text}')}"

    def next(self, key: Key, replaces: int | None, content: str | None) -> Head:
        """Return the head after one entry more."""
        seq = self.seq + 1
        return Head(self.identity, seq, key.digest("link", f"{self.link} {seq} {replaces or ''} {content or ''}"))


class Chain:
    """The chain within one transaction: whoever writes chained rows writes them through it."""

    def __init__(self, connection: Connection, key: Key, head: Head) -> None:
        self.connection, self.key, self.head = connection, key, head

    def insert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write new rows."""
        salted = [{**row, "salt": secrets.token_hex(16)} for row in rows]
        numbers = self._append([(None, content_of(self.key, table, row)) for row in salted])
        if salted:
            numbered = [{**row, "seq": seq} for row, seq in zip(salted, numbers, strict=True)]
            self.connection.execute(insert(table), numbered)

    def replace(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows anew, each known by its `seq` until now."""
        numbers = self._append([(row["seq"], content_of(self.key, table, row)) for row in rows])
        for row, seq in zip(rows, numbers, strict=True):
            self.connection.execute(update(table).where(table.c.seq == row["seq"]).values({**row, "seq": seq}))

    def erase(self, table: Table, condition: ColumnElement[bool]) -> int:
        """Erase rows; their entries stay, and tell nothing of them. Return how many."""
        gone = list(self.connection.execute(select(table.c.seq).where(condition).order_by(table.c.seq)).scalars())
        self._append([(seq, None) for seq in gone])
        self.connection.execute(delete(table).where(condition))
        return len(gone)

    def rows(self, table: Table, condition: ColumnElement[bool]) -> list[Any]:
        """Return rows, each as it was recorded."""
        entry = chain.c.content.label("content"), _is_replaced(chain.c.seq).label("replaced")
        found = select(table, *entry).outerjoin(chain, chain.c.seq == table.c.seq)
        set_limits(self.connection)
        rows = self.connection.execute(found.where(condition)).all()
        if any(row.replaced or content_of(self.key, table, row._mapping) != row.content for row in rows):
            raise LedgerError(_DAMAGED)
        return list(rows)

    def check_after(self, seen: Head) -> None:
        """Refuse a ledger that is another one than was seen before, or the same with less in it."""
        if self.head.identity != seen.identity:
            raise LedgerError("another ledger is in the place of the one that was opened; put that back")
        if self.head == seen:
            return
        link = select(chain.c.link).where(chain.c.seq == seen.seq)
        known = self.connection.execute(link).scalar_one_or_none() if seen.seq else seen.link
        if self.head.seq < seen.seq or known != seen.link:
            raise LedgerError(
                "the ledger is an older state of the one that was opened: what was released since is not in it; put "
                "the newer one back, or open it anew and bear that those releases are forgotten"
            )

    def check(self, most: int | None = None, link: str | None = None) -> None:
        """Recompute the chain, and compare each row with its entry."""
        after = 0 if most is None else max(self.head.seq - most, 0)
        self._check_counts()
        self._check_links(after, link)
        missing, others = self._compare(after)
        if missing or others:
            said = [f"{missing} rows are gone"] * bool(missing) + [f"{others} rows are changed or added"] * bool(others)
            raise BrokenLedgerError(" and ".join(said))

    def _append(self, entries: Sequence[tuple[int | None, str | None]]) -> list[int]:
        """Put entries at the end; return their numbers. Whoever else writes waits until the end of the transaction."""
        if not entries:
            return []
        set_limits(self.connection)
        facts = self.connection.execute(select(meta).where(meta.c.name.in_((HEAD, IDENTITY))).with_for_update())
        head = Head.read(self.key, {row.name: row.value for row in facts})
        rows = []
        for replaces, content in entries:
            head = head.next(self.key, replaces, content)
            rows.append({"seq": head.seq, "replaces": replaces, "content": content, "link": head.link})
        self.connection.execute(insert(chain), rows)
        self.connection.execute(update(meta).where(meta.c.name == HEAD).values(value=head.written(self.key)))
        self.head = head
        return list(range(head.seq - len(rows) + 1, head.seq + 1))

    def _check_counts(self) -> None:
        """Compare how many entries and rows there are with how many there should be."""
        entries, erased, changed = self.connection.execute(
            select(
                func.count(),
                func.count().filter(chain.c.content.is_(None)),
                func.count().filter(chain.c.content.is_not(None) & chain.c.replaces.is_not(None)),
            ).select_from(chain)
        ).one()
        if entries != self.head.seq:
            raise BrokenLedgerError(f"its chain should have {self.head.seq} entries and has {entries}")
        there = sum(self.connection.execute(select(func.count()).select_from(t)).scalar_one() for t in CHAINED)
        if (should := entries - 2 * erased - changed) != there:
            raise BrokenLedgerError(f"it should have {should} rows and has {there}")

    def _check_links(self, after: int, wanted: str | None) -> None:
        head = Head.of_new(self.key, self.head.identity)
        if after:
            link = self.connection.execute(select(chain.c.link).where(chain.c.seq == after)).scalar_one_or_none()
            head = Head(head.identity, after, link or "")
        found = wanted in (None, head.link)
        for row in self._pages(select(chain), chain, after):
            head = head.next(self.key, row.replaces, row.content)
            found = found or wanted == row.link
            if (row.seq, row.link) != (head.seq, head.link):
                raise BrokenLedgerError(f"its chain is broken at entry {head.seq}")
        if head != self.head:
            raise BrokenLedgerError("its chain does not end where it should")
        if not found:
            raise BrokenLedgerError("the head that was given is not in its chain; this is an older or another one")

    def _compare(self, after: int) -> tuple[int, int]:
        """Return how many entries have lost their rows, and how many rows are not what an entry says."""
        live = select(chain.c.seq, chain.c.content).where(chain.c.content.is_not(None) & ~_is_replaced(chain.c.seq))
        entries = ((row.seq, row.content) for row in self._pages(live, chain, after))
        rows = heapq.merge(*(self._contents(table, after) for table in CHAINED))
        missing = others = 0
        entry, row = next(entries, None), next(rows, None)
        while entry or row:
            if entry and row and entry[0] == row[0]:
                others += entry[1] != row[1]
                entry, row = next(entries, None), next(rows, None)
            elif row is None or (entry and entry[0] < row[0]):
                missing += 1
                entry = next(entries, None)
            else:
                others += 1
                row = next(rows, None)
        return missing, others

    def _contents(self, table: Table, after: int) -> Iterator[tuple[int, str]]:
        for seq, *values in self._pages(select(table.c.seq, *_covered(table)), table, after):
            yield seq, _content(self.key, table, values)

    def _pages(self, statement: Select[Any], table: Table, after: int) -> Iterator[Any]:
        """Yield the rows of a statement by number, a page at a time."""
        page: Sequence[Any] = (None,)
        while page:
            page = self.connection.execute(
                statement.where(table.c.seq > after).order_by(table.c.seq).limit(_PAGE)
            ).all()
            yield from page
            after = page[-1].seq if page else after


def content_of(key: Key, table: Table, row: Mapping[Any, Any]) -> str:
    """Return the keyed digest of a row."""
    return _content(key, table, [row[column.name] for column in _covered(table)])


def _covered(table: Table) -> list[Column[Any]]:
    return [column for column in table.columns if column.name not in UNCHAINED]


def _content(key: Key, table: Table, values: Sequence[Any]) -> str:
    return key.digest(table.name, json.dumps(values, ensure_ascii=True, separators=(",", ":")))


def _is_replaced(seq: ColumnElement[int]) -> ColumnElement[bool]:
    return exists().where(_LATER.c.replaces == seq)


# Reading and writing a ledger's rows inside of a transaction.

_RowKey = tuple[str, str, str, str]  # what makes a release one row
Rows = Mapping[_RowKey, Mapping[str, Any]]

_CHUNK = 500  # values per statement; databases limit them


def stamp(moment: datetime) -> str:
    """Return a moment as UTC text of fixed length."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def lock(connection: Connection, records: Iterable[str]) -> None:
    """Wait until nobody else settles these records, and keep everybody else waiting until the end."""
    if connection.dialect.name != "postgresql":
        return  # SQLite: BEGIN IMMEDIATE has locked everything
    # In one order everywhere, so that two batches never wait for each other.
    for part in _chunks(sorted(set(records))):
        new = postgresql.insert(locks).values([{"record": record} for record in part]).on_conflict_do_nothing()
        rows = select(locks.c.record).where(locks.c.record.in_(part)).order_by(locks.c.record).with_for_update()
        for statement in (new, rows):
            set_limits(connection)
            connection.execute(statement)


def history(chain: Chain, records: Iterable[str]) -> tuple[dict[str, list[Release]], Rows]:
    """Return what is on record for each record, the region released last at the end; and the rows of all of them."""
    wanted = sorted(set(records))
    found: list[Any] = []
    for part in _chunks(wanted):
        found += chain.rows(releases, releases.c.record.in_(part))
    histories: dict[str, list[Release]] = {record: [] for record in wanted}
    rows: dict[_RowKey, Mapping[str, Any]] = {}
    for row in sorted(found, key=lambda row: (row.last, row.seq)):
        release = _release(row)
        histories[row.record].append(release)
        rows[release.key] = {name: row._mapping[name] for name in releases.c.keys()}  # noqa: SIM118 - of columns
    return histories, rows


def record_all(chain: Chain, given: Sequence[Release], known: Rows) -> None:
    """Write what is about to be released: new rows, and a further time for those that are there."""
    now, rows = datetime.now(UTC), dict[_RowKey, dict[str, Any]]()
    for i, release in enumerate(given):
        # One microsecond each: which region of a batch was the last one stays known.
        moment = stamp(now + timedelta(microseconds=i))
        row = rows.get(release.key) or known.get(release.key) or _row(release, moment)
        # Clocks of several machines differ; what is on record is never older than it was.
        later = {"last": max(row["last"], moment), "times": row["times"] + 1}
        rows[release.key] = {**row, "k": release.k, "effective": release.effective, **later}
    table, old, new = releases, [], []
    for key, row in rows.items():
        if key not in known:
            new.append(row)
        elif any(row[name] != known[key][name] for name in ("k", "effective")):
            old.append(row)
        else:
            again = update(table).where(table.c.seq == row["seq"])
            chain.connection.execute(again.values(last=row["last"], times=row["times"]))
    chain.replace(table, old)
    chain.insert(table, new)


def _row(release: Release, now: str) -> dict[str, Any]:
    same = ("record", "digest", "policy", "population", "guarantee", "k", "effective")
    values = {name: getattr(release, name) for name in same}
    return {**values, "region": release.text, "first": now, "last": now, "times": 0}


def forget(chain: Chain, handles: Iterable[str]) -> tuple[int, int]:
    """Erase records; return how many of them and of their releases went."""
    records = gone = 0
    for part in _chunks(sorted(set(handles))):
        ours = releases.c.record.in_(part)
        different = select(func.count(releases.c.record.distinct())).where(ours)
        records += chain.connection.execute(different).scalar_one()
        gone += chain.erase(releases, ours)
        chain.connection.execute(delete(locks).where(locks.c.record.in_(part)))
    return records, gone


def purge(chain: Chain, before: str) -> int:
    """Erase releases that were last given before a moment; return how many."""
    gone = chain.erase(releases, releases.c.last < before)
    chain.connection.execute(delete(locks).where(~exists().where(releases.c.record == locks.c.record)))
    return gone


def rows_after(connection: Connection, last: int) -> list[dict[str, Any]]:
    """Return the next rows of an export after an entry of the chain, which stands under "seq"."""
    table = releases.c
    shown = (table.policy, table.population, table.guarantee, table.k, table.effective)
    times = (table.first, table.last, table.times)
    found = select(table.seq, table.record, table.digest.label("region"), *shown, *times).where(table.seq > last)
    return [dict(row._mapping) for row in connection.execute(found.order_by(table.seq).limit(_CHUNK))]


def counts(connection: Connection) -> Mapping[str, Any]:
    """Return the figures of `Ledger.status`."""
    table = releases.c
    row = connection.execute(
        select(
            func.count(table.record.distinct()).label("records"),
            func.count().label("releases"),
            func.coalesce(func.sum(table.times), 0).label("times"),
            func.min(table.first).label("earliest"),
            func.max(table.last).label("latest"),
        )
    ).one()
    return {**row._mapping, "times": int(row.times)}


def _release(row: Any) -> Release:
    return Release(
        record=row.record,
        region=decode(row.region),
        text=row.region,
        digest=row.digest,
        policy=row.policy,
        population=row.population,
        guarantee=row.guarantee,
        k=row.k,
        effective=row.effective,
    )


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


# Where a ledger is, making its tables, and looking whether those that are there can be used.

LOCATION, TIMEOUT = "CFK_LEDGER", "CFK_LEDGER_TIMEOUT"
_SECONDS = 5.0
_OPENING_PAGE = 2_000
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
    """Return the chain of a ledger that can be used."""
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
    """Return the chain of a ledger that was opened before, if it is still that one."""
    chain = Chain(connection, key, Head.read(key, _facts(connection)))
    chain.check_after(seen)
    return chain


def make(connection: Connection, key: Key, where: str) -> None:
    """Make the tables."""
    if inspect(connection).has_table(meta.name):
        raise LedgerError(f"{where}: there is a ledger already; open it without create=True")
    create_all(connection)
    _write_facts(connection, key, stamp(datetime.now(UTC)))


def upgrade(connection: Connection, key: Key, where: str) -> int:
    """Put all that a ledger of version 1 holds into a chain; return how many rows."""
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
    page = text(f"SELECT id, {', '.join(names)} FROM {table.name}_1 WHERE id > :last ORDER BY id LIMIT {_OPENING_PAGE}")  # noqa: S608 - names of ours
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


# Books in the database of a ledger: one budget for all processes and servers that share it.

_T = TypeVar("_T")


class Persisted:
    """Books in a ledger's database."""

    lasts = True

    def __init__(self, ledger: Ledger, owned: bool) -> None:
        self._ledger, self._owned = ledger, owned

    def read(self, work: Callable[[Books], _T]) -> _T:
        """See `Store`."""
        return self._ledger.run(lambda chain: work(Kept(chain)), "read")

    def change(self, work: Callable[[Books], _T]) -> _T:
        """See `Store`."""
        return self._ledger.run(lambda chain: work(Kept(chain)), "settle")

    def close(self) -> None:
        """See `Store`."""
        if self._owned:
            self._ledger.close()


class Kept:
    """The books, within a transaction."""

    def __init__(self, chain: Chain) -> None:
        self._chain, self._connection = chain, chain.connection

    def accounts(self) -> list[str]:
        """See `Books`."""
        table = tables.accounts.c
        return list(self._connection.execute(select(table.account).order_by(table.account)).scalars())

    def lock(self, account: str) -> None:
        """See `Books`."""
        on_postgresql = self._connection.dialect.name == "postgresql"
        new = (postgresql.insert if on_postgresql else sqlite.insert)(tables.accounts)
        row = select(tables.accounts).where(tables.accounts.c.account == account)
        # On SQLite, BEGIN IMMEDIATE has locked everything.
        for statement in (new.values(account=account).on_conflict_do_nothing(), row.with_for_update()):
            set_limits(self._connection)
            self._connection.execute(statement)

    def ceilings(self, account: str) -> list[Budget]:
        """See `Books`."""
        return [_budget(row) for row in self._rows(tables.ceilings, account)]

    def spends(self, account: str) -> list[Spend]:
        """See `Books`."""
        rows = [(row, _budget(row)) for row in self._rows(tables.spends, account)]
        return [Spend(epsilon=b.epsilon, delta=b.delta, what=row.what, at=row.at) for row, b in rows]

    def set_ceiling(self, account: str, ceiling: Budget) -> None:
        """See `Books`."""
        self._chain.insert(tables.ceilings, [{"account": account, "at": now(), **_texts(ceiling)}])

    def record(self, account: str, spend: Spend, token: str) -> None:
        """See `Books`."""
        values = {"account": account, "what": spend.what, "at": spend.at, "token": token, **_texts(spend.budget)}
        self._chain.insert(tables.spends, [values])

    def has(self, token: str) -> bool:
        """See `Books`."""
        return bool(self._connection.execute(select(exists().where(tables.spends.c.token == token))).scalar_one())

    def _rows(self, table: Table, account: str) -> list[Any]:
        return sorted(self._chain.rows(table, table.c.account == account), key=lambda row: row.seq)


def _texts(budget: Budget) -> dict[str, str]:
    return {"epsilon": repr(float(budget.epsilon)), "delta": repr(float(budget.delta))}


def _budget(row: Any) -> Budget:
    with contextlib.suppress(ValueError):  # a BudgetError is one
        budget = Budget(float(row.epsilon), float(row.delta))
        Amount.of(*budget)
        return budget
    raise LedgerError("a budget in the ledger has an amount that is none; the database was changed: restore a backup")
