"""The chain: a keyed digest over all that a ledger holds, so that no row is taken away, added or changed unnoticed."""

from __future__ import annotations

import heapq
import hmac
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Select, Table, delete, exists, func, insert, select, update

from cfk_plugin.errors import LedgerError
from cfk_plugin.ledger.database import set_limits
from cfk_plugin.ledger.keys import Key
from cfk_plugin.ledger.tables import CHAINED, UNCHAINED, chain, meta

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
    """Where the chain of a ledger ends.

    Attributes
    ----------
    identity : str
        Of the ledger; random, from when it was made.
    seq : int
        Number of entries.
    link : str
        Keyed digest of all of them.
    """

    identity: str
    seq: int
    link: str

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
    """The chain within one transaction: whoever writes chained rows writes them through it.

    Parameters
    ----------
    connection : Connection
    key : Key
    head : Head
        As the transaction has found it.
    """

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
        """Return rows, each as it was recorded.

        Raises
        ------
        LedgerError
            If one is not: it was changed, moved to another record or account, or put back as it was before.
        """
        entry = chain.c.content.label("content"), _is_replaced(chain.c.seq).label("replaced")
        found = select(table, *entry).outerjoin(chain, chain.c.seq == table.c.seq)
        set_limits(self.connection)
        rows = self.connection.execute(found.where(condition)).all()
        if any(row.replaced or content_of(self.key, table, row._mapping) != row.content for row in rows):
            raise LedgerError(_DAMAGED)
        return list(rows)

    def check_after(self, seen: Head) -> None:
        """Refuse a ledger that is another one than was seen before, or the same with less in it.

        Raises
        ------
        LedgerError
        """
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
        """Recompute the chain, and compare each row with its entry.

        Parameters
        ----------
        most : int, optional
            How many of the last entries; all others are counted. Default: all of them.
        link : str, optional
            A link that must be among them: of a head that was noted before.

        Raises
        ------
        BrokenLedgerError
            If something is not as it was recorded.
        """
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
