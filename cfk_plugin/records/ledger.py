"""The ledger: what was released for each record, so that releases of one record never add up to a
few people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import ColumnElement, Connection, delete, func, select

from cfk_plugin.errors import HostOnly, LedgerError
from cfk_plugin.records.chain import (
    VERSION,
    Chain,
    Head,
    Row,
    chunks,
    locks,
    make,
    missing_ledger,
    open_chain,
    releases,
    stamp,
    upgrade,
)
from cfk_plugin.records.database import Database, Mode, callers_own, locate, seconds_of
from cfk_plugin.records.keys import find_key, is_handle
from cfk_plugin.records.rule import (
    Acceptable,
    Candidate,
    Count,
    Decision,
    ReleasedRegion,
    count_once,
    decode,
    encode,
    region_digest,
    settle,
)

if TYPE_CHECKING:
    from cfk_plugin.data.region import Region

_T = TypeVar("_T")
_Place = str | Path | None

AT_OPENING = 20_000
"""How many of the last entries of the chain are recomputed when a ledger is opened; earlier ones
are counted.
"""
_PAGE = 500  # rows of an export that are read at a time
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
"""Columns of an exported row: handles, hashes, counts and times; no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a ledger holds, in figures."""

    database: str  # without user name and password
    version: int  # of its tables
    key_id: str  # eight hex digits
    records: int  # with something on record
    releases: int  # regions on record for them
    times: int  # how often these were released
    earliest: str | None  # of the releases; UTC
    latest: str | None
    entries: int  # of the chain: one for each release and spend ever recorded, changed or erased
    head: str  # keyed digest of all entries; `Ledger.verify` takes it


@dataclass(frozen=True, slots=True)
class Forgotten:
    records: int
    releases: int


class Ledger(HostOnly):
    """Remembers what was released for each record, so that releases of one record never add up to a
    few people.

    With a nominal guarantee a region leaves only if at least k people are inside of everything that
    was ever released for its record; else an earlier one leaves again, or nothing. With other
    guarantees a record keeps its first region. A ledger sees only what is released through it, so
    all processes share one database. It holds keyed hashes of records, the released regions, hashes
    of policies, counts and times: no other value. Whoever has its key can test guesses of values,
    so keep it with the training data. See the page "Keep a ledger".

    Parameters
    ----------
    url : str or path, optional
        A SQLite file on a local disk, or a ``postgresql://`` URL. Default: the environment variable
        ``CFK_LEDGER``, else ``cfk_plugin/ledger.db`` in the user's state folder.
    key : bytes, optional
        At least 16 bytes. Default: `key_file`, else the environment variable ``CFK_LEDGER_KEY`` (64
        hex digits are read as such), else ``<file>.key`` beside a SQLite file, created with it.
    key_file : path, optional
        File with the key, which only its owner may read.
    timeout : float, optional
        Seconds that one request may wait. Default: the environment variable ``CFK_LEDGER_TIMEOUT``,
        else 5.
    create : bool
        Whether to make a new ledger. Nothing else ever does: an empty one in place of a lost one
        knows no release.

    Attributes
    ----------
    backend : str
        ``sqlite`` or ``postgresql``.

    Raises
    ------
    LedgerError
        If the ledger cannot be opened, belongs to another key or version, or is not as it was
        written.
    MissingDependencyError
        If the driver of PostgreSQL is not installed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Ledger(folder + "/ledger.db", create=True) as ledger:
    ...         ledger.status().releases
    0
    """

    _seen: Head | None = None
    _refusal = (
        LedgerError,
        "a Ledger holds its key and refuses to be pickled; open it in the process that uses it",
    )

    def __init__(
        self,
        url: str | Path | None = None,
        *,
        key: bytes | None = None,
        key_file: str | Path | None = None,
        timeout: float | None = None,
        create: bool = False,
    ) -> None:
        self._open(url, key, key_file, timeout, create)
        try:
            if create:
                self._database.run(lambda c: make(c, self._key, self._database.where), "exclusive")
                self._database.tidy()
            self.run(lambda chain: chain.check(AT_OPENING), "survey")
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
        """Add the chain to a ledger of an earlier version of cfk_plugin; return how many rows are
        in it.

        What was removed before cannot be noticed. No server may use it meanwhile.

        Raises
        ------
        LedgerError
            If there is no ledger, or it has a chain.
        """
        ledger = cls.__new__(cls)
        ledger._open(url, key, key_file, None, create=False)
        with ledger:
            return ledger._database.run(
                lambda c: upgrade(c, ledger._key, ledger._database.where), "exclusive"
            )

    def handle(self, values: Sequence[object]) -> str:
        """Return the keyed hash by which the ledger knows a record: HMAC-SHA256, 64 hex digits.

        Parameters
        ----------
        values : sequence
            Always in the same order. Values that are spelled alike are equal: 3, 3.0 and "3".

        Returns
        -------
        str
        """
        if isinstance(values, (str, bytes)):
            raise LedgerError("a handle is made of a sequence of values, not of one text")
        return self._key.handle(values)

    def earlier(
        self, record: str, policy: str | None = None, population: str | None = None
    ) -> Region | None:
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
        policy, population : str, optional
            Only those that left under this policy (SHA-256), or with this population (fingerprint).
            Default: any.
        """
        known = self.run(lambda chain: _rows_of(chain, records), "read")
        return {
            release.record: release.region
            for release in map(_read_release, known)
            if policy in (None, release.policy) and population in (None, release.population)
        }

    def one_request(self) -> AbstractContextManager[object]:
        """Let all that a ``with`` block asks of the ledger wait for others no longer than `timeout`
        together.
        """
        return self._database.limit()

    def settle(
        self, candidates: Sequence[Candidate], count: Count, acceptable: Acceptable
    ) -> list[Decision]:
        """Decide what may leave for each candidate, and record it before it does.

        One transaction, committed when this returns. Candidates of one record see each other.

        Parameters
        ----------
        candidates : sequence of Candidate
        count : callable
            Returns how many people of today's population are inside all of the regions that it is
            given.
        acceptable : callable
            Says whether a region on record may leave for the candidate at a position under today's
            policy. Unless the guarantee is "nominal", its answer must not depend on anything that
            differs between those who have this region on record. Both functions are called while
            others wait, maybe several times.

        Returns
        -------
        list of Decision
            One per candidate, in order.

        Raises
        ------
        LedgerError
            If the database fails or a candidate has the wrong form; then, or if `count` or
            `acceptable` raises, nothing is recorded and nothing may be released.
        """
        wanted = [self._read(candidate) for candidate in candidates]
        return (
            self.run(lambda chain: _settle(chain, wanted, count, acceptable), "settle")
            if wanted
            else []
        )

    def forget(self, *handles: str) -> Forgotten:
        """Erase records by their handles; what is released for them later can be intersected with
        earlier releases.
        """
        if not all(is_handle(handle) for handle in handles):
            raise LedgerError("forget() takes handles as handle() returns them, not values")
        return self._erase(*(releases.c.record.in_(part) for part in chunks(handles)))

    def purge(self, before: datetime) -> int:
        """Erase releases that were last given before a moment; return how many.

        The guarantee does not hold across that moment: what leaves later can be intersected with
        what was erased.

        Parameters
        ----------
        before : datetime
            With a time zone.
        """
        if not isinstance(before, datetime) or before.tzinfo is None:
            raise LedgerError(
                "purge() needs a datetime with a time zone, such as datetime.now(UTC)"
            )
        return self._erase(releases.c.last < stamp(before)).releases

    def export(self) -> Iterator[dict[str, Any]]:
        """Iterate over all rows for an audit: handles, hashes, k, counts and times, never a value.

        Yields
        ------
        dict
            One region of one record: ``record``, ``region`` (its keyed hash), ``policy``,
            ``population``, ``guarantee``, ``k``, ``effective``, ``first``, ``last``, ``times``.
        """
        last = 0
        # Page by page, so that no transaction stays open while the caller takes its time.
        while page := self.run(
            lambda chain, last=last: chain.rows(releases, releases.c.seq > last, _PAGE),  # type: ignore[misc]
            "read",
        ):
            for row in page:
                yield {name: row["digest" if name == "region" else name] for name in COLUMNS}
            last = page[-1]["seq"]

    def status(self) -> Status:
        """Return what the ledger holds, in figures."""
        return self.run(self._status, "survey")

    def verify(self, head: str | None = None) -> Status:
        """Recompute the chain over all that the ledger holds, compare each row with it, and return
        the figures.

        Parameters
        ----------
        head : str, optional
            The `head` of an earlier `Status`, which the chain must have gone through. Without it
            nobody can tell whether an older, intact state was put in the ledger's place while no
            server ran.

        Raises
        ------
        BrokenLedgerError
            If the ledger is not as it was written; it is a `LedgerError`.
        """

        def check(chain: Chain) -> Status:
            chain.check(link=head)
            return self._status(chain)

        return self.run(check, "survey")

    def run(self, work: Callable[[Chain], _T], mode: Mode) -> _T:
        """Run a function in a transaction, on the very ledger that was opened; see
        `Database.run`.
        """

        def on_chain(connection: Connection) -> tuple[_T, Head]:
            seen = self._seen  # before anything is read: another thread may advance it meanwhile
            chain = open_chain(connection, self._key, self._database.where, seen)
            return work(chain), chain.head

        result, head = self._database.run(on_chain, mode)
        if self._seen is None or head.seq > self._seen.seq:
            self._seen, self._database.identity = head, head.identity
        return result

    def close(self) -> None:
        """Close the connections of this process."""
        self._database.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _counts(self) -> str:
        return repr(self._database.where)

    def _open(
        self, url: _Place, key: bytes | None, key_file: _Place, timeout: float | None, create: bool
    ) -> None:
        self._database = Database(locate(url, create), seconds_of(timeout))
        self.backend = self._database.url.get_backend_name()
        if (file := self._database.file) is not None:
            there = file.is_file() and file.stat().st_size > 0
            if create and there:
                raise LedgerError(f"{file}: there is a file already; open it without create=True")
            if not (create or there):
                raise missing_ledger(file)
            if not file.parent.is_dir():
                raise LedgerError(f"{file}: the folder of the ledger does not exist; make it first")
        self._key = find_key(key, key_file, file, create=create)
        if create:
            self._database.make_file()

    def _status(self, chain: Chain) -> Status:
        table = releases.c
        row = chain.connection.execute(
            select(
                func.count(table.record.distinct()).label("records"),
                func.count().label("releases"),
                func.coalesce(func.sum(table.times), 0).label("times"),
                func.min(table.first).label("earliest"),
                func.max(table.last).label("latest"),
            )
        ).one()
        figures = {
            **row._mapping,
            "times": int(row.times),
            "entries": chain.head.seq,
            "head": chain.head.link,
        }
        return Status(
            database=self._database.where, version=VERSION, key_id=self._key.id, **figures
        )

    def _read(self, candidate: Candidate) -> ReleasedRegion:
        if not is_handle(candidate.record):
            raise LedgerError("a candidate's record must be a handle as handle() returns it")
        if not isinstance(candidate.k, int) or isinstance(candidate.k, bool) or candidate.k < 1:
            raise LedgerError("a candidate's k must be a whole number >= 1")
        # raises for what could not be read back, before anything is decided
        text = encode(candidate.region)
        known = {name: getattr(candidate, name) for name in Candidate.__slots__}
        return ReleasedRegion(**known, text=text, digest=region_digest(self._key, candidate.region))

    def _erase(self, *conditions: ColumnElement[bool]) -> Forgotten:
        def erase(chain: Chain) -> Forgotten:
            gone = [row for condition in conditions for row in chain.erase(releases, condition)]
            # Nobody waits for these locks: settling is kept out until the end.
            chain.connection.execute(
                delete(locks).where(locks.c.record.not_in(select(releases.c.record)))
            )
            return Forgotten(len({row["record"] for row in gone}), len(gone))

        gone = self.run(erase, "exclusive")
        self._database.tidy()
        return gone


def _settle(
    chain: Chain, wanted: Sequence[ReleasedRegion], count: Count, acceptable: Acceptable
) -> list[Decision]:
    histories: dict[str, list[ReleasedRegion]] = {release.record: [] for release in wanted}
    if chain.connection.dialect.name == "postgresql":  # SQLite has locked everything
        chain.lock(locks, histories)
    known: dict[tuple[str, ...], Row] = {}
    for row in _rows_of(chain, histories):
        release = _read_release(row)
        histories[release.record].append(release)
        known[release.key] = row
    count, now = count_once(count), datetime.now(UTC)
    decisions: list[Decision] = []
    given: dict[tuple[str, ...], Row] = {}
    for i, candidate in enumerate(wanted):
        with callers_own():
            decision, leaves = settle(i, candidate, histories[candidate.record], count, acceptable)
        decisions.append(decision)
        if leaves is not None:
            # One microsecond apart, so that the last region of a batch stays known.
            moment = stamp(now + timedelta(microseconds=i))
            row = given[leaves.key] = known.setdefault(leaves.key, _row(leaves, moment))
            # Clocks of machines differ; a recorded time never moves back.
            later = {"last": max(row["last"], moment), "times": row["times"] + 1}
            row |= {"k": leaves.k, "effective": leaves.effective, **later}
    chain.write(releases, list(given.values()))
    return decisions


def _rows_of(chain: Chain, records: Iterable[str]) -> list[Row]:
    """Return what the ledger holds for records, the latest release last."""
    parts = chunks(sorted(set(records)))
    rows = [row for part in parts for row in chain.rows(releases, releases.c.record.in_(part))]
    return sorted(rows, key=lambda row: (row["last"], row["seq"]))


# of a release and its row
_SAME = ("record", "digest", "policy", "population", "guarantee", "k", "effective")


def _read_release(row: Row) -> ReleasedRegion:
    same = {name: row[name] for name in _SAME}
    return ReleasedRegion(region=decode(row["region"]), text=row["region"], **same)


def _row(release: ReleasedRegion, moment: str) -> Row:
    same = {name: getattr(release, name) for name in _SAME}
    return {**same, "region": release.text, "first": moment, "last": moment, "times": 0}
