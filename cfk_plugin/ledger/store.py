"""Reading and writing a ledger's rows inside of a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, case, delete, exists, func, select
from sqlalchemy.dialects import postgresql, sqlite

from cfk_plugin.errors import LedgerError
from cfk_plugin.ledger.keys import Key
from cfk_plugin.ledger.regions import decode, region_digest
from cfk_plugin.ledger.rule import Release
from cfk_plugin.ledger.tables import locks, releases

_CHUNK = 500  # values per statement; databases limit them
_DAMAGED = "a row of the ledger does not fit its key; the database was changed or damaged: restore it from a backup"


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
        connection.execute(new)
        connection.execute(
            select(locks.c.record).where(locks.c.record.in_(part)).order_by(locks.c.record).with_for_update()
        )


def history(connection: Connection, key: Key, records: Iterable[str]) -> dict[str, list[Release]]:
    """Return what is on record for each record, the region released last at the end."""
    wanted = sorted(set(records))
    rows: list[Any] = []
    for part in _chunks(wanted):
        found = select(releases).where(releases.c.record.in_(part)).order_by(releases.c.last, releases.c.id)
        rows += connection.execute(found).all()
    out: dict[str, list[Release]] = {record: [] for record in wanted}
    for row in rows:
        out[row.record].append(_release(row, key))
    return out


def last_region(
    connection: Connection, key: Key, record: str, policy: str | None, population: str | None
) -> Release | None:
    """Return what was last released for a record, under one policy and population where they are given."""
    ours = select(releases).where(releases.c.record == record)
    if policy is not None:
        ours = ours.where(releases.c.policy == policy)
    if population is not None:
        ours = ours.where(releases.c.population == population)
    row = connection.execute(ours.order_by(releases.c.last.desc(), releases.c.id.desc()).limit(1)).first()
    return None if row is None else _release(row, key)


def record_all(connection: Connection, given: Sequence[Release]) -> None:
    """Write what is about to be released, in order: new rows, and a further time for those that are there."""
    now = datetime.now(UTC)
    # One microsecond each: which region of a batch was the last one stays known.
    rows = [_row(release, stamp(now + timedelta(microseconds=i))) for i, release in enumerate(given)]
    if rows:
        connection.execute(_upsert(connection), rows)


def _row(release: Release, now: str) -> dict[str, Any]:
    same = ("record", "digest", "policy", "population", "guarantee", "k", "effective")
    values = {name: getattr(release, name) for name in same}
    return {**values, "region": release.text, "first": now, "last": now, "times": 1}


def _upsert(connection: Connection) -> Any:
    new = _insert(connection)(releases)
    return new.on_conflict_do_update(
        index_elements=["record", "digest", "policy", "population"],
        set_={
            "times": releases.c.times + 1,
            # Clocks of several machines differ; what is on record is never older than it was.
            "last": case((new.excluded.last > releases.c.last, new.excluded.last), else_=releases.c.last),
            "k": case((new.excluded.k > releases.c.k, new.excluded.k), else_=releases.c.k),
            "effective": case(
                (new.excluded.effective < releases.c.effective, new.excluded.effective),
                else_=func.coalesce(releases.c.effective, new.excluded.effective),
            ),
        },
    )


def forget(connection: Connection, handles: Iterable[str]) -> tuple[int, int]:
    """Erase records; return how many of them and of their releases went."""
    records = gone = 0
    for part in _chunks(sorted(set(handles))):
        ours = releases.c.record.in_(part)
        records += connection.execute(select(func.count(releases.c.record.distinct())).where(ours)).scalar_one()
        gone += connection.execute(delete(releases).where(ours)).rowcount
        connection.execute(delete(locks).where(locks.c.record.in_(part)))
    return records, gone


def purge(connection: Connection, before: str) -> int:
    """Erase releases that were last given before a moment; return how many."""
    gone = connection.execute(delete(releases).where(releases.c.last < before)).rowcount
    connection.execute(delete(locks).where(~exists().where(releases.c.record == locks.c.record)))
    return gone


def rows_after(connection: Connection, last: int) -> list[dict[str, Any]]:
    """Return the next rows of an export after a row number, which stands under "id"."""
    table = releases.c
    shown = (table.policy, table.population, table.guarantee, table.k, table.effective)
    times = (table.first, table.last, table.times)
    found = select(table.id, table.record, table.digest.label("region"), *shown, *times).where(table.id > last)
    return [dict(row._mapping) for row in connection.execute(found.order_by(table.id).limit(_CHUNK))]


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


def _release(row: Any, key: Key) -> Release:
    region = decode(row.region)
    if region_digest(key, region) != row.digest:
        raise LedgerError(_DAMAGED)
    return Release(
        record=row.record,
        region=region,
        text=row.region,
        digest=row.digest,
        policy=row.policy,
        population=row.population,
        guarantee=row.guarantee,
        k=row.k,
        effective=row.effective,
    )


def _insert(connection: Connection) -> Any:
    return postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]
