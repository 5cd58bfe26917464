"""The ledger: what was released for each record, so that releases of one record never add up to a
few people.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, delete, func, select

from cfk_plugin.errors import HostOnly, LedgerError
from cfk_plugin.records.chain import (
    VERSION,
    BrokenLedgerError,
    Chain,
    Head,
    Row,
    chunks,
    editions,
    groups,
    locks,
    make,
    missing_ledger,
    open_chain,
    releases,
    stamp,
    tables,
)
from cfk_plugin.records.database import Database, Mode, callers_own, locate, seconds_of
from cfk_plugin.records.keys import find_key, is_handle, is_person, join_people, split_people
from cfk_plugin.records.rule import (
    Candidate,
    Decision,
    Handles,
    RecordedGroup,
    RegionPeople,
    ReleasedRegion,
    Today,
    decode,
    encode,
    region_digest,
    settle,
)

if TYPE_CHECKING:
    from cfk_plugin.data.region import Region
    from cfk_plugin.data.schema import Schema

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
    "members",
    "inside",
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
    catalogues: int  # on record, each with people who were in none before
    earliest: str | None  # of the releases; UTC
    latest: str | None
    entries: int  # of the chain: one for each release and spend ever recorded, changed or erased
    head: str  # keyed digest of all entries; `Ledger.verify` takes it


@dataclass(frozen=True, slots=True)
class OnRecord:
    """A region on record, and the people who share it."""

    region: Region
    people: RegionPeople


@dataclass(frozen=True, slots=True)
class Edition:
    """A catalogue on record."""

    added: Any  # private values and what else is kept of it, as a JSON value
    people: Handles  # who was in its table, and in none of an earlier one


@dataclass(frozen=True, slots=True)
class Forgotten:
    records: int
    releases: int


class Ledger(HostOnly):
    """Remembers what was released for each record, so that releases of one record never add up to a
    few people.

    With a lookup guarantee a region leaves only if at least k people are inside of everything that
    was ever released for its record; else an earlier one leaves again, or nothing. With other
    guarantees a record keeps its first region. In either case only people count who shared the
    region when it was released first, and are still inside of it. A ledger sees only what is
    released through it, so all processes share one database. It holds keyed hashes of records and
    people, the released regions, hashes of policies, counts and times: no other value. Whoever has
    its key can test guesses of values, so keep it with the training data. See the page "Keep a
    ledger and a budget".

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
        Seconds that one request may wait. Default: 5.
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
            self.run(lambda chain: chain.check(AT_OPENING), "survey")
        except BaseException:
            self.close()
            raise

    def handle(self, values: Sequence[object]) -> str:
        """Return the keyed hash by which the ledger knows a record: HMAC-SHA256, 64 hex digits.

        Parameters
        ----------
        values : sequence
            Always in the same order. Values that are spelled alike are equal: 3, 3.0 and "3";
            0.1 + 0.2 and 0.3; texts in different Unicode normal forms.

        Returns
        -------
        str
        """
        if isinstance(values, (str, bytes)):
            raise LedgerError("a handle is made of a sequence of values, not of one text")
        return self._key.handle(values)

    def person(self, texts: Sequence[str | None]) -> str:
        """Return the keyed hash by which the ledger knows a person: 16 hex digits.

        Parameters
        ----------
        texts : sequence of str or None
            What identifies the person: the value of the subject key, or those of a row.
        """
        return self._key.person(texts)

    def latest(
        self, records: Sequence[str], policy: str | None = None, population: str | None = None
    ) -> dict[str, OnRecord]:
        """Return what was last released for each record that has anything on record.

        Parameters
        ----------
        records : sequence of str
            From `handle`.
        policy, population : str, optional
            Only those that left under this policy (SHA-256), or with this population (fingerprint).
            Default: any.
        """

        def read(chain: Chain) -> tuple[dict[str, Row], dict[str, RecordedGroup]]:
            last = {
                row["record"]: row
                for row in _rows_of(chain, records)
                if policy in (None, row["policy"]) and population in (None, row["population"])
            }
            return last, _groups_of(chain, [row["group_id"] for row in last.values()])

        rows, known = self.run(read, "read")
        return {
            record: OnRecord(decode(row["region"]), known[row["group_id"]].people)
            for record, row in rows.items()
            if row["group_id"] in known  # else it was erased in between
        }

    def one_request(self) -> AbstractContextManager[object]:
        """Let all that a ``with`` block asks of the ledger wait for others no longer than `timeout`
        together.
        """
        return self._database.limit()

    def settle(self, candidates: Sequence[Candidate], today: Today) -> list[Decision]:
        """Decide what may leave for each candidate, and record it before it does.

        One transaction, committed when this returns. Candidates of one record see each other.

        Parameters
        ----------
        candidates : sequence of Candidate
        today : Today
            Says who of today's population is inside of a region, and whether a region on record may
            leave under today's policy. It is asked while others wait, maybe several times.

        Returns
        -------
        list of Decision
            One per candidate, in order.

        Raises
        ------
        LedgerError
            If the database fails or a candidate has the wrong form; then, or if `today` raises,
            nothing is recorded and nothing may be released.
        """
        for candidate in candidates:
            _check(candidate)
        if not candidates:
            return []
        return self.run(lambda chain: self._settle(chain, candidates, today), "settle")

    def bind(self, schema: Schema) -> None:
        """Record, on first use, the columns of the table; later refuse a table with others.

        With other columns nobody and nothing on record would be found again.

        Raises
        ------
        LedgerError
            If the ledger was used with other columns.
        """
        columns = TableColumns.of(schema)
        known = self.columns()
        if known is None:
            self.run(lambda chain: _write_columns(chain, columns), "exclusive")
            known = self.columns()
        if known is not None and (changes := known.changes(columns)):
            raise LedgerError(
                f"the ledger was used with other columns: {'; '.join(changes)}. It would know no"
                " record and no person of this table, and release everything anew. Give the table"
                " its earlier columns; or keep this ledger, and make another, if nobody can"
                " compare what was released before"
            )

    def columns(self) -> TableColumns | None:
        """Return the columns of the table; None before the ledger was used with one."""
        rows = self.run(lambda chain: chain.rows(tables, tables.c.seq > 0), "read")
        if not rows:
            return None
        (row,) = rows
        return TableColumns(
            quasi_identifiers=tuple(json.loads(row["quasi_identifiers"])),
            private=tuple(json.loads(row["private"])),
            subject=row["subject"],
        )

    def knows_anyone(self, people: Handles) -> bool | None:
        """Say whether any of these people is on record; None where nobody at all is."""
        found: bool | None = None
        for on_record in self._people_on_record():
            if on_record & people:
                return True
            found = False if on_record else found
        return found

    def count_known(self, people: Handles) -> int:
        """Count those of some people who are on record."""
        known = frozenset[str]().union(*self._people_on_record())
        return len(people & known)

    def editions(self, series: str) -> list[Edition]:
        """Return the catalogues of a series that are on record, in order."""
        rows = self.run(lambda chain: chain.rows(editions, editions.c.series == series), "survey")
        rows.sort(key=lambda row: int(row["number"]))  # entries change when people are forgotten
        return [Edition(json.loads(row["added"]), split_people(row["people"])) for row in rows]

    def number_of_editions(self, series: str) -> int:
        """Return how many catalogues of a series are on record."""
        count = select(func.count()).select_from(editions).where(editions.c.series == series)
        return self.run(lambda chain: int(chain.connection.scalars(count).one()), "read")

    def add_edition(self, series: str, after: int, added: Any, people: Iterable[str]) -> bool:
        """Put a catalogue on record, before anything of it leaves.

        Parameters
        ----------
        series : str
            Catalogues with the same name are compared with each other.
        after : int
            How many catalogues of this series the caller has seen.
        added : JSON value
            Private values that it adds. None of them may be those of fewer than k people.
        people : iterable of str
            Who is in its table and in none before, from `person`.

        Returns
        -------
        bool
            False if there are more catalogues by now, and nothing was put on record.
        """
        row = {
            "series": series,
            "number": after + 1,
            "added": json.dumps(added, ensure_ascii=True, separators=(",", ":")),
            "people": join_people(people),
        }

        def add(chain: Chain) -> bool:
            if len(chain.rows(editions, editions.c.series == series)) != after:
                return False
            chain.write(editions, [row])
            return True

        return self.run(add, "exclusive")

    def forget(self, *handles: str, people: Sequence[str] = ()) -> Forgotten:
        """Erase records by their handles, and people from the groups of all other records.

        What is released for these records later can be intersected with earlier releases. Take the
        people out of the population as well: they do not count any more.

        Parameters
        ----------
        *handles : str
            Of records, from `handle`.
        people : sequence of str
            From `person`.
        """
        if not all(map(is_handle, handles)) or not all(map(is_person, people)):
            raise LedgerError(
                "forget() takes handles as handle() and person() return them, not values"
            )
        conditions = [releases.c.record.in_(part) for part in chunks(handles)]
        return self._erase(*conditions, people=frozenset(people))

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
            ``population``, ``guarantee``, ``k``, ``members`` and ``inside`` (how many people of the
            group and of the region are left), ``first``, ``last``, ``times``.
        """
        last = 0

        def read(chain: Chain) -> tuple[list[Row], dict[str, RecordedGroup]]:
            rows = chain.rows(releases, releases.c.seq > last, _PAGE)
            return rows, _groups_of(chain, [row["group_id"] for row in rows])

        # Page by page, so that no transaction stays open while the caller takes its time.
        while (page := self.run(read, "read"))[0]:
            rows, known = page
            for row in rows:
                if row["group_id"] not in known:
                    continue  # erased in between
                people = known[row["group_id"]].people
                counts = {"members": len(people.members), "inside": len(people.inside)}
                shown = {**row, **counts, "region": row["digest"]}
                yield {name: shown[name] for name in COLUMNS}
            last = rows[-1]["seq"]

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

    def _people_on_record(self) -> Iterator[Handles]:
        """Yield the people of catalogues, and of groups, some at a time."""
        for table, names in ((editions, ("people",)), (groups, ("inside", "members"))):
            for page in self._pages(table):
                for row in page:
                    yield frozenset[str]().union(*(split_people(row[name]) for name in names))

    def _pages(self, table: Table) -> Iterator[list[Row]]:
        last = 0
        while page := self.run(
            lambda chain, last=last: chain.rows(table, table.c.seq > last, _PAGE),  # type: ignore[misc]
            "read",
        ):
            yield page
            last = page[-1]["seq"]

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
            "catalogues": chain.connection.scalars(
                select(func.count()).select_from(editions)
            ).one(),
            "entries": chain.head.seq,
            "head": chain.head.link,
        }
        return Status(
            database=self._database.where, version=VERSION, key_id=self._key.id, **figures
        )

    def _settle(
        self, chain: Chain, candidates: Sequence[Candidate], today: Today
    ) -> list[Decision]:
        digests = [region_digest(self._key, candidate.region) for candidate in candidates]
        histories: dict[str, list[ReleasedRegion]] = {each.record: [] for each in candidates}
        known: dict[tuple[str, ...], Row] = {}
        rows = _locked_rows(chain, histories, digests)
        book = _GroupBook(chain, [row["group_id"] for row in rows], digests)
        for row in rows:
            release = _read_release(row, book.group(row["group_id"]))
            histories[release.record].append(release)
            known[release.key] = row
        now = datetime.now(UTC)
        decisions: list[Decision] = []
        given: dict[tuple[str, ...], Row] = {}
        for i, (candidate, digest) in enumerate(zip(candidates, digests, strict=True)):
            with callers_own():
                inside = today.inside(candidate.region)
            wanted = _wanted(candidate, digest, inside)
            with callers_own():
                decision, leaves = settle(i, wanted, histories[candidate.record], today)
            decisions.append(decision)
            if leaves is None:
                continue
            if decision.outcome == "new":
                leaves.group.group_id = book.record(leaves.group)
            # One microsecond apart, so that the last region of a batch stays known.
            moment = stamp(now + timedelta(microseconds=i))
            row = given[leaves.key] = known.setdefault(leaves.key, _row(leaves, moment))
            # Clocks of machines differ; a recorded time never moves back.
            later = {"last": max(row["last"], moment), "times": row["times"] + 1}
            row |= {"k": leaves.k, **later}
        chain.write(releases, list(given.values()))
        book.write()
        return decisions

    def _erase(
        self, *conditions: ColumnElement[bool], people: frozenset[str] = frozenset()
    ) -> Forgotten:
        def erase(chain: Chain) -> Forgotten:
            gone = [row for condition in conditions for row in chain.erase(releases, condition)]
            in_use = select(releases.c.group_id)
            chain.erase(groups, groups.c.group_id.not_in(in_use))
            if people:
                _forget_people(chain, people)
            # Nobody waits for these locks: settling is kept out until the end.
            chain.connection.execute(delete(locks))
            return Forgotten(len({row["record"] for row in gone}), len(gone))

        return self.run(erase, "exclusive")


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table that a ledger depends on.

    Records are known by the values of all features, and people by the subject key.
    """

    quasi_identifiers: tuple[str, ...]
    private: tuple[str, ...]
    subject: str | None

    @classmethod
    def of(cls, schema: Schema) -> TableColumns:
        return cls(
            quasi_identifiers=tuple(sorted(schema.quasi_identifiers)),
            private=tuple(sorted(schema.private)),
            subject=schema.subject,
        )

    @property
    def features(self) -> set[str]:
        return {*self.quasi_identifiers, *self.private}

    def changes(self, other: TableColumns) -> list[str]:
        """Say in words what is different in other columns."""
        said = []
        if new := sorted(other.features - self.features):
            said.append(f"new {_listed(new)}")
        if gone := sorted(self.features - other.features):
            said.append(f"gone {_listed(gone)}")
        if now_private := sorted({*self.quasi_identifiers} & {*other.private}):
            said.append(f"no longer a quasi-identifier: {_listed(now_private)}")
        if now_quasi := sorted({*self.private} & {*other.quasi_identifiers}):
            said.append(f"a quasi-identifier by now: {_listed(now_quasi)}")
        if self.subject != other.subject:
            before, now = (
                "each row" if name is None else f"column {name!r}"
                for name in (self.subject, other.subject)
            )
            said.append(f"people were told apart by {before}, and now by {now}")
        return said


def _listed(names: Sequence[str]) -> str:
    word = "column" if len(names) == 1 else "columns"
    return f"{word} {', '.join(map(repr, names))}"


def _write_columns(chain: Chain, columns: TableColumns) -> None:
    if not chain.rows(tables, tables.c.seq > 0):
        row = {
            "quasi_identifiers": json.dumps(columns.quasi_identifiers),
            "private": json.dumps(columns.private),
            "subject": columns.subject,
        }
        chain.write(tables, [row])


class _GroupBook:
    """The groups that one transaction of the ledger reads, changes and adds."""

    def __init__(self, chain: Chain, group_ids: Sequence[str], digests: Sequence[str]) -> None:
        self._chain = chain
        self._rows = {
            row["group_id"]: row
            for row in (
                *_rows_in(chain, groups, groups.c.group_id, group_ids),
                *_rows_in(chain, groups, groups.c.digest, digests),
            )
        }
        self._groups = {group_id: _read_group(row) for group_id, row in self._rows.items()}

    def group(self, group_id: str) -> RecordedGroup:
        """Return a group on record."""
        if group_id not in self._groups:
            raise BrokenLedgerError("a group of people is gone")
        return self._groups[group_id]

    def record(self, group: RecordedGroup) -> str:
        """Return the number of the group of a new release; records released together share it."""
        for known in self._groups.values():
            if known.digest == group.digest and known.people == group.people:
                known.k = max(known.k, group.k)
                return known.group_id
        group.group_id = secrets.token_hex(16)
        self._groups[group.group_id] = group
        return group.group_id

    def write(self) -> None:
        """Write the groups that are new, or differ from what is on record."""
        changed = []
        for group_id, group in self._groups.items():
            row = self._rows.get(group_id, {"group_id": group_id, "digest": group.digest})
            today = {
                "k": group.k,
                "members": join_people(group.people.members),
                "inside": join_people(group.people.inside),
            }
            if any(row.get(name) != value for name, value in today.items()):
                changed.append(row | today)
        self._chain.write(groups, changed)


def _check(candidate: Candidate) -> None:
    """Raise a LedgerError if a candidate cannot be recorded, before anything is decided."""
    if not is_handle(candidate.record):
        raise LedgerError("a candidate's record must be a handle as handle() returns it")
    if not isinstance(candidate.k, int) or isinstance(candidate.k, bool) or candidate.k < 1:
        raise LedgerError("a candidate's k must be a whole number >= 1")
    if not all(map(is_person, candidate.members)):
        raise LedgerError("the members of a group must be handles as person() returns them")
    encode(candidate.region)  # raises for what could not be read back


def _wanted(candidate: Candidate, digest: str, inside: frozenset[str]) -> ReleasedRegion:
    """Return a candidate as it would be put on record."""
    people = RegionPeople(members=candidate.members, inside=inside)
    return ReleasedRegion(
        record=candidate.record,
        region=candidate.region,
        policy=candidate.policy,
        population=candidate.population,
        guarantee=candidate.guarantee,
        k=candidate.k,
        text=encode(candidate.region),
        digest=digest,
        group=RecordedGroup(group_id="", digest=digest, people=people, k=candidate.k),
    )


def _locked_rows(chain: Chain, records: Iterable[str], digests: Sequence[str]) -> list[Row]:
    """Return what the ledger holds for records, and let nobody else change it or its groups.

    `digests` are those of the regions that are asked for.
    """
    records = [*records]
    if chain.connection.dialect.name != "postgresql":  # SQLite has locked everything
        return _rows_of(chain, records)
    # First all records, and then all regions, each in the order of names: so nobody waits in a
    # circle.
    chain.lock(locks, records)
    rows = _rows_of(chain, records)
    chain.lock(locks, {*digests, *(row["digest"] for row in rows)})
    return rows


def _rows_of(chain: Chain, records: Iterable[str]) -> list[Row]:
    """Return what the ledger holds for records, the latest release last."""
    rows = _rows_in(chain, releases, releases.c.record, records)
    return sorted(rows, key=lambda row: (row["last"], row["seq"]))


def _rows_in(
    chain: Chain, table: Table, column: ColumnElement[str], values: Iterable[str]
) -> list[Row]:
    """Return the rows that have one of some values in a column."""
    parts = chunks(sorted(set(values)))
    return [row for part in parts for row in chain.rows(table, column.in_(part))]


def _groups_of(chain: Chain, group_ids: Iterable[str]) -> dict[str, RecordedGroup]:
    rows = _rows_in(chain, groups, groups.c.group_id, group_ids)
    return {row["group_id"]: _read_group(row) for row in rows}


def _read_group(row: Row) -> RecordedGroup:
    people = RegionPeople(
        members=split_people(row["members"]),
        inside=split_people(row["inside"]),
    )
    return RecordedGroup(group_id=row["group_id"], digest=row["digest"], people=people, k=row["k"])


def _forget_people(chain: Chain, people: frozenset[str]) -> None:
    """Take people out of all groups and catalogues.

    A changed row gets another salt, so that nobody can test afterwards whether they were in.
    """
    for table, names in ((groups, ("members", "inside")), (editions, ("people",))):
        end = chain.head.seq  # rows that change get later numbers
        last = 0
        while page := chain.rows(table, (table.c.seq > last) & (table.c.seq <= end), _PAGE):
            last = page[-1]["seq"]
            changed = []
            for row in page:
                before = {name: split_people(row[name]) for name in names}
                if any(known & people for known in before.values()):
                    left = {name: join_people(known - people) for name, known in before.items()}
                    changed.append(row | left | {"salt": secrets.token_hex(16)})
            chain.write(table, changed)


# of a release and its row
_SAME = ("record", "digest", "policy", "population", "guarantee", "k")


def _read_release(row: Row, group: RecordedGroup) -> ReleasedRegion:
    same = {name: row[name] for name in _SAME}
    return ReleasedRegion(region=decode(row["region"]), text=row["region"], group=group, **same)


def _row(release: ReleasedRegion, moment: str) -> Row:
    same = {name: getattr(release, name) for name in _SAME}
    group_id = release.group.group_id
    return {
        **same,
        "region": release.text,
        "group_id": group_id,
        "first": moment,
        "last": moment,
        "times": 0,
    }
