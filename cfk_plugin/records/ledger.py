"""The ledger: what was released for each record, so that releases of one record never add up to a few people."""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from cfk_plugin.data.region import Region
from cfk_plugin.errors import LedgerError
from cfk_plugin.records.keys import find_key, is_handle
from cfk_plugin.records.rule import (
    Acceptable,
    Candidate,
    Count,
    Decision,
    Release,
    counting_once,
    encode,
    region_digest,
    settled,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from cfk_plugin.records.database import Mode
    from cfk_plugin.records.ledger_rows import Chain, Head


# Writing a ledger's rows to a file for an audit.

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
    """Write rows of `Ledger.export` as CSV or JSON lines, as the file name ends."""
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


# What a ledger answers with besides regions: figures.


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a ledger holds, in figures."""

    database: str  # Where it is, without user name and password
    version: int  # Version of its tables
    key_id: str  # Eight hex digits by which it knows its key
    records: int  # Records, regions on record for them, and how often these were released
    releases: int  # Records, regions on record for them, and how often these were released
    times: int  # Records, regions on record for them, and how often these were released
    earliest: str | None  # Of the releases; UTC
    latest: str | None  # Of the releases; UTC
    entries: int  # Of the chain: one for each release and spend that was ever recorded, changed or erased
    head: str  # Keyed digest of all of them; `Ledger.verify` takes it


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How much was erased: records and their releases."""

    records: int
    releases: int


# The ledger as its users see it.

_T = TypeVar("_T")

AT_OPENING = 20_000
"""Entries of the chain that are recomputed when a ledger is opened, the last ones; earlier ones are counted."""


class Ledger:
    """Remembers what was released for each record, so that releases of one record never add up to a few people.

    Two regions that were released with the same private values are recognisably about the same record. With a nominal
    guarantee a region leaves only if at least k people are inside of everything that was ever released for its record;
    else an earlier region is released again, or nothing. With the other guarantees a record keeps its first region: it
    is released again, or nothing.

    It protects as long as all that is released goes through it: all processes and servers share one database. It
    knows a record by its values, so it does not connect two records of one person, and it does not see what was
    released without it, before `purge` or before `forget`, nor what was asked for and withheld.

    The database holds keyed hashes of records, the released regions, hashes of policies, counts and times; no other
    value, and nothing about anybody whose record was not released. Keep it with the training data all the same:
    whoever has its key can try values.

    Parameters
    ----------
    url : str or path, optional
        A SQLite file, or a ``postgresql://`` URL. Default: the environment variable ``CFK_LEDGER``, else
        ``cfk_plugin/ledger.db`` in the user's state folder. A SQLite file must lie on a local disk.
    key : bytes, optional
        Key of the handles, at least 16 bytes. Default: `key_file`, else the environment variable
        ``CFK_LEDGER_KEY`` (64 hex digits are read as such), else ``<file>.key`` beside a SQLite file, which is made
        with the ledger. A ledger can only be opened with its own key.
    key_file : path, optional
        File with the key, readable by its owner alone.
    timeout : float, optional
        Seconds that one request may wait for others, or for a server that is away; what takes longer fails. Default:
        the environment variable ``CFK_LEDGER_TIMEOUT``, else 5.
    create : bool
        Whether to make a new ledger, which must not be there yet. Nothing else ever makes one: an empty ledger in the
        place of one that is gone would know of no release.

    Attributes
    ----------
    backend : str
        ``sqlite`` or ``postgresql``.

    Raises
    ------
    LedgerError
        If the ledger cannot be opened, belongs to another key or version, or is not as it was written.
    MissingDependencyError
        If the driver of PostgreSQL is not installed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Ledger(folder + "/ledger.db", create=True) as ledger:
    ...     ledger.status().releases
    0
    """

    def __init__(
        self,
        url: str | Path | None = None,
        *,
        key: bytes | None = None,
        key_file: str | Path | None = None,
        timeout: float | None = None,
        create: bool = False,
    ) -> None:
        from cfk_plugin.records.ledger_rows import make

        self._open(url, key, key_file, timeout, create)
        try:
            if create:
                self._database.run(lambda c: make(c, self._key, self._where), "exclusive")
                self._database.tidy()
            self._run(lambda chain: chain.check(AT_OPENING), "survey")
        except BaseException:
            self.close()
            raise

    @classmethod
    def upgrade(
        cls,
        url: str | Path | None = None,
        *,
        key: bytes | None = None,
        key_file: str | Path | None = None,
    ) -> int:
        """Give a ledger that an earlier version of cfk_plugin wrote its chain; return how many rows are in it.

        What was taken from it before cannot be noticed. No server may use it meanwhile.

        Raises
        ------
        LedgerError
            If there is no ledger, or it has a chain.
        """
        from cfk_plugin.records.ledger_rows import upgrade

        ledger = cls.__new__(cls)
        ledger._open(url, key, key_file, None, create=False)
        try:
            return ledger._database.run(lambda c: upgrade(c, ledger._key, ledger._where), "exclusive")
        finally:
            ledger.close()

    def handle(self, values: Sequence[object]) -> str:
        """Return the keyed hash by which the ledger knows a record.

        Parameters
        ----------
        values : sequence
            In an order that is always the same. Values that are spelled alike are alike: 3, 3.0 and "3".

        Returns
        -------
        str
            HMAC-SHA256, 64 hex digits.
        """
        if isinstance(values, (str, bytes)):
            raise LedgerError("a handle is made of a sequence of values, not of one text")
        return self._key.handle(values)

    def earlier(self, record: str, policy: str | None = None, population: str | None = None) -> Region | None:
        """Return the region that was last released for a record, if any; see `latest`."""
        return self.latest([record], policy, population).get(record)

    def latest(
        self, records: Sequence[str], policy: str | None = None, population: str | None = None
    ) -> dict[str, Region]:
        """Return the region that was last released for each record that has any.

        Parameters
        ----------
        records : sequence of str
            From `handle`.
        policy : str, optional
            SHA-256 of the policy that it left under; default: any.
        population : str, optional
            Fingerprint of the population that it left with; default: any.
        """
        from cfk_plugin.records.ledger_rows import history

        histories, _ = self._run(lambda chain: history(chain, records), "read")
        return {
            record: release.region
            for record, releases in histories.items()
            for release in releases
            if policy in (None, release.policy) and population in (None, release.population)
        }

    def one_request(self) -> AbstractContextManager[object]:
        """Let all that a ``with`` block asks of the ledger wait for others no longer than `timeout` together."""
        return self._database.limit()

    def settle(self, candidates: Sequence[Candidate], count: Count, acceptable: Acceptable) -> list[Decision]:
        """Decide what may leave for each candidate, and put it on record before it does.

        One transaction, committed when this returns: nothing leaves that is not on record, and what is on record
        may not have left when the process died in between. Candidates of one record see each other.

        Parameters
        ----------
        candidates : sequence of Candidate
        count : callable
            Returns how many people of today's population are inside all of the regions that it is given.
        acceptable : callable
            Says whether an earlier region may leave for the candidate at a position under today's policy. With
            another guarantee than "nominal" it is asked about the candidate's own region as well, once that is on
            record, and its answer must depend on nothing that tells apart who has this region on record. Both are
            called while others wait, maybe several times: they must be fast and change nothing.

        Returns
        -------
        list of Decision
            One per candidate, in order.

        Raises
        ------
        LedgerError
            If the database fails or a candidate has the wrong form; nothing may be released then. What `count` or
            `acceptable` raise comes through, and nothing is recorded.
        """
        wanted = [self._read(candidate) for candidate in candidates]
        if not wanted:
            return []
        return self._run(lambda chain: self._settle(chain, wanted, count, acceptable), "settle")

    def forget(self, *handles: str) -> Forgotten:
        """Erase records by their handles.

        For other records nothing changes. Of a forgotten one earlier releases are not known any more: what is
        released for it later can be intersected with them.
        """
        from cfk_plugin.records import ledger_rows as store

        if not all(is_handle(handle) for handle in handles):
            raise LedgerError("forget() takes handles as handle() returns them, not values")
        gone = Forgotten(*self._run(lambda chain: store.forget(chain, handles), "exclusive"))
        self._database.tidy()
        return gone

    def purge(self, before: datetime) -> int:
        """Erase releases that were last given before a moment; return how many.

        The guarantee does not hold across that moment: what leaves later can be intersected with what was erased.

        Parameters
        ----------
        before : datetime
            With a time zone.
        """
        from cfk_plugin.records import ledger_rows as store

        if not isinstance(before, datetime) or before.tzinfo is None:
            raise LedgerError("purge() needs a datetime with a time zone, such as datetime.now(UTC)")
        gone = self._run(lambda chain: store.purge(chain, store.stamp(before)), "exclusive")
        self._database.tidy()
        return gone

    def export(self) -> Iterator[dict[str, Any]]:
        """Iterate over all rows for an audit: handles, hashes, k, counts and times, never a value.

        Yields
        ------
        dict
            One region of one record: ``record``, ``region`` (its keyed hash), ``policy``, ``population``,
            ``guarantee``, ``k``, ``effective``, ``first``, ``last``, ``times``.
        """
        rows: list[dict[str, Any]] = [{"seq": 0}]
        # Page by page, so that no transaction stays open while the caller takes its time.
        while rows := self._run(functools.partial(_page, last=rows[-1]["seq"]), "read"):
            for row in rows:
                yield {name: value for name, value in row.items() if name != "seq"}

    def status(self) -> Status:
        """Return what the ledger holds, in figures."""
        return self._run(self._status, "survey")

    def verify(self, head: str | None = None) -> Status:
        """Recompute the chain over all that the ledger holds, compare each row with it, and return the figures.

        Parameters
        ----------
        head : str, optional
            The `head` that an earlier figure had. The chain must have gone through it: without it nobody can tell
            whether an older state, whole in itself, was put in the place of the ledger while no server ran.

        Raises
        ------
        LedgerError
            If the ledger is not as it was written; a `BrokenLedgerError`.
        """

        def check(chain: Chain) -> Status:
            chain.check(link=head)
            return self._status(chain)

        return self._run(check, "survey")

    def run(self, work: Callable[[Chain], _T], mode: Mode) -> _T:
        """Run a function in a transaction, for tables that stand beside those of the ledger; see `Database.run`."""
        return self._run(work, mode)

    def close(self) -> None:
        """Close the connections of this process."""
        self._database.close()

    def __enter__(self) -> Ledger:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Show where it is, without user name, password and key."""
        return f"Ledger({self._where!r})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold the key."""
        raise LedgerError("a Ledger holds its key and refuses to be pickled; open it in the process that uses it")

    def _open(
        self,
        url: str | Path | None,
        key: bytes | None,
        key_file: str | Path | None,
        timeout: float | None,
        create: bool,
    ) -> None:
        """Find the database and the key; with `create`, make the file and the key."""
        from cfk_plugin.records.database import Database, make_file, read_url, shown
        from cfk_plugin.records.ledger_rows import default_place, missing, seconds_of

        location = read_url(default_place(create) if url is None else url)
        self._where, self.backend = shown(location), location.get_backend_name()
        self._seen: Head | None = None
        file = Path(str(location.database)) if self.backend == "sqlite" else None
        limit = seconds_of(timeout)
        if file is not None:
            there = file.is_file() and file.stat().st_size > 0
            if create and there:
                raise LedgerError(f"{file}: there is a file already; open it without create=True")
            if not (create or there):
                raise missing(str(file))
            if not file.parent.is_dir():
                raise LedgerError(f"{file}: the folder of the ledger does not exist; make it first")
        self._key = find_key(key, key_file, file, create=create)
        if create and file is not None:
            make_file(file)
        self._database = Database(location, limit)

    def _run(self, work: Callable[[Chain], _T], mode: Mode) -> _T:
        """Run a function in a transaction, on the ledger that was opened and no other."""
        from cfk_plugin.records.ledger_rows import look, look_again

        used: list[Chain] = []

        def looked(connection: Connection) -> _T:
            seen = self._seen  # before anything is read: another thread may see more in between
            key, where = self._key, self._where
            chain = look(connection, key, where) if seen is None else look_again(connection, key, seen)
            used[:] = [chain]
            return work(chain)

        result = self._database.run(looked, mode)
        head = used[0].head
        if self._seen is None or head.seq > self._seen.seq:
            self._seen = head
            self._database.identity = head.identity
        return result

    def _status(self, chain: Chain) -> Status:
        from cfk_plugin.records.database import VERSION
        from cfk_plugin.records.ledger_rows import counts

        figures = {**counts(chain.connection), "entries": chain.head.seq, "head": chain.head.link}
        return Status(database=self._where, version=VERSION, key_id=self._key.id, **figures)

    def _read(self, candidate: Candidate) -> Release:
        if not is_handle(candidate.record):
            raise LedgerError("a candidate's record must be a handle as handle() returns it")
        if not isinstance(candidate.k, int) or isinstance(candidate.k, bool) or candidate.k < 1:
            raise LedgerError("a candidate's k must be a whole number >= 1")
        text = encode(candidate.region)  # what could not be read back is refused before anything is decided
        return Release.of(candidate, text, region_digest(self._key, candidate.region))

    def _settle(self, chain: Chain, wanted: Sequence[Release], count: Count, acceptable: Acceptable) -> list[Decision]:
        from cfk_plugin.records import ledger_rows as store
        from cfk_plugin.records.database import CallerError, at_leisure

        records = {release.record for release in wanted}
        store.lock(chain.connection, records)
        histories, rows = store.history(chain, records)
        count = counting_once(count)
        decisions: list[Decision] = []
        released: list[Release] = []
        for i, release in enumerate(wanted):
            try:
                with at_leisure():
                    decision, given = settled(i, release, histories[release.record], count, acceptable)
            except Exception as error:  # noqa: BLE001 - it goes on as it is, once everything is rolled back
                raise CallerError(error) from None
            decisions.append(decision)
            released += [] if given is None else [given]
        store.record_all(chain, released, rows)
        return decisions


def _page(chain: Chain, last: int) -> list[dict[str, Any]]:
    from cfk_plugin.records.ledger_rows import rows_after

    return rows_after(chain.connection, last)
