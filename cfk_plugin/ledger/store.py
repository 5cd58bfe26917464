"""Reading and writing a ledger's rows inside of a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, exists, func, select, update
from sqlalchemy.dialects import postgresql

from cfk_plugin.ledger.chain import Chain
from cfk_plugin.ledger.database import set_limits
from cfk_plugin.ledger.regions import decode
from cfk_plugin.ledger.rule import Release
from cfk_plugin.ledger.tables import locks, releases

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
    """Write what is about to be released: new rows, and a further time for those that are there.

    Parameters
    ----------
    chain : Chain
    given : sequence of Release
        In order; each with the most and the least of what its row says.
    known : mapping
        The rows of their records.
    """
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
