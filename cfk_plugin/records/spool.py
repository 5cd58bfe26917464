"""The spool: records on local disk from the moment an explanation leaves until MLflow has them."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cfk_plugin.errors import InputError, TrackingError
from cfk_plugin.records.keys import OpenFiles, connect
from cfk_plugin.records.record import RunRecord

_MEGABYTES = 1024


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """Settings of a spool; the operator's, so they come from the environment."""

    folder: Path  # ``CFK_SPOOL``; on a local disk, as network file systems do not lock as SQLite needs it
    most: int = _MEGABYTES * 1_000_000  # bytes that it may take: ``CFK_SPOOL_MB``
    # ``CFK_SPOOL_FSYNC``: force each record to disk. Else a power cut may take the last seconds.
    fsync: bool = False
    on_full: str = "suppress"  # ``CFK_SPOOL_FULL``: an explanation of which no record can be kept

    @classmethod
    def of(cls, folder: Path | None = None) -> SpoolSettings:
        return cls(
            (folder or spool_folder()).absolute(),  # the same one after a change of folder
            most=_megabytes() * 1_000_000,
            fsync=_choice("CFK_SPOOL_FSYNC", ("normal", "always")) == "always",
            on_full=_choice("CFK_SPOOL_FULL", ("suppress", "release")),
        )


def spool_folder() -> Path:
    if chosen := os.environ.get("CFK_SPOOL"):
        return Path(chosen)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "cfk_plugin" / "spool"


def _megabytes() -> int:
    text = os.environ.get("CFK_SPOOL_MB") or str(_MEGABYTES)
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"CFK_SPOOL_MB is {text!r}; it must be a whole number of megabytes, 1 or more")
    return int(text)


def _choice(name: str, choices: tuple[str, ...]) -> str:
    value = os.environ.get(name) or choices[0]
    if value not in choices:
        raise InputError(f"{name} is {value!r}; it must be {' or '.join(choices)}")
    return value


def this_process() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def is_gone(holder: str) -> bool:
    """Say whether a process of this machine has ended; of another machine's (or container's) nothing is known."""
    host, pid, started = holder.rsplit(":", 2)
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _started(int(pid)) != started


def _started(pid: int) -> str:
    """Return when a process started, as its number may be another's by now; empty where that cannot be said."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - no file of ours
            state, *fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]


_log = logging.getLogger(__name__)

LEASE_SECONDS = 90.0
"""How long a process is taken to be alive after it was last heard of."""

_FILE = "spool.db"
_BUSY_SECONDS = 2.0  # that a writer waits for another process
_PAGE = 4096
_TOGETHER = 200  # records that are logged in one go ...
_BYTES_TOGETHER = 4_000_000  # ... unless they are large
_TABLES = """
CREATE TABLE IF NOT EXISTS streams (
    id TEXT PRIMARY KEY,
    target TEXT NOT NULL,        -- which run it is for
    run_id TEXT,                 -- the run, once it is known
    finished INTEGER NOT NULL DEFAULT 0,
    holder TEXT NOT NULL,        -- the process that sends it ...
    until REAL NOT NULL,         -- ... as long as it is heard of
    upto INTEGER,                -- last record of the batch that is on its way ...
    first_step INTEGER,          -- ... and its place in the run
    problem TEXT                 -- why the last attempt failed
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS records (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    stream TEXT NOT NULL,
    created INTEGER NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS records_of ON records (stream, id);
CREATE TABLE IF NOT EXISTS spool (one INTEGER PRIMARY KEY CHECK (one = 1), identity TEXT NOT NULL);
"""


class SpoolError(TrackingError):
    """The spool cannot be used: it or its disk is full, its folder cannot be written, or it is gone."""


class Stream(NamedTuple):
    """Records for one run, in order."""

    id: str
    target: Mapping[str, Any]  # which run it is for, or how to make it; see `RunWriter`
    run_id: str | None  # once it is known
    finished: bool  # no more records will come
    upto: int | None  # last record of the batch on its way ...
    first_step: int | None  # ... and its place in the run


class Waiting(NamedTuple):
    id: str
    records: int
    size: float  # characters
    oldest: int | None  # when it was made: milliseconds since 1970
    problem: str | None


@dataclass(slots=True, eq=False)
class Spool:
    """A folder with records that wait for MLflow: an SQLite file that processes share. Thread-safe.

    A record is there before its explanation leaves, and is deleted after MLflow has taken it. Killing a process loses
    nothing; whether a power cut does, the settings say. Each stream is sent by one process; another takes over those
    of a process that is gone.

    It is made on first use. After that no other is ever taken in its place: when the file is deleted, moved or
    replaced, nothing more is kept until it is back. What was kept is still sent meanwhile.
    """

    settings: SpoolSettings
    holder: str  # this process
    _connection: sqlite3.Connection | None = None
    _files: OpenFiles | None = None
    _identity: str | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def append(self, stream: str, target: Mapping[str, Any], run_id: str | None, record: RunRecord) -> None:
        body, until = record.to_json(), time.time() + LEASE_SECONDS
        with self._transaction(keeps=True) as db:
            db.execute(
                "INSERT INTO streams (id, target, run_id, holder, until) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET finished = 0",
                (stream, json.dumps(target, sort_keys=True), run_id, self.holder, until),
            )
            db.execute("INSERT INTO records (stream, created, body) VALUES (?, ?, ?)", (stream, record.created, body))

    def check(self, room: int = 0) -> None:
        """Raise `SpoolError` if the spool cannot be opened or written, or has not as many bytes of room."""
        with self._transaction(keeps=True) as db:
            if room:
                db.execute("SAVEPOINT room")
                db.execute("INSERT INTO records (stream, created, body) VALUES ('', 0, zeroblob(?))", (room,))
                db.execute("ROLLBACK TO room")

    def hold(self) -> list[Stream]:
        """Take over what nobody sends, and return all streams that this process sends, the oldest record first."""
        now = time.time()
        with self._transaction() as db:
            others = db.execute("SELECT id, holder, until FROM streams WHERE holder <> ?", (self.holder,)).fetchall()
            free = [stream for stream, holder, until in others if until < now or is_gone(holder)]
            db.executemany(
                "UPDATE streams SET holder = ?, finished = 1 WHERE id = ?", [(self.holder, stream) for stream in free]
            )
            db.execute("UPDATE streams SET until = ? WHERE holder = ?", (now + LEASE_SECONDS, self.holder))
            found = db.execute(
                "SELECT id, target, run_id, finished, upto, first_step FROM streams "
                "WHERE holder = ? ORDER BY (SELECT min(records.id) FROM records WHERE stream = streams.id)",
                (self.holder,),
            ).fetchall()
        return [Stream(id_, json.loads(target), *rest) for id_, target, *rest in found]

    def batch(self, stream: Stream) -> tuple[list[RunRecord], bool]:
        """Return the next records of a stream, the same ones until they are `delivered`, and whether more may wait."""
        with self._transaction() as db:
            if stream.upto is not None:
                rows = db.execute(
                    "SELECT id, body FROM records WHERE stream = ? AND id <= ? ORDER BY id", (stream.id, stream.upto)
                ).fetchall()
                more = True
            else:
                found = db.execute(
                    "SELECT id, body FROM records WHERE stream = ? ORDER BY id LIMIT ?", (stream.id, _TOGETHER + 1)
                ).fetchall()
                rows = _of_one_batch(found[:_TOGETHER])
                more = len(rows) < len(found)
                db.execute("UPDATE streams SET upto = ? WHERE id = ?", (rows[-1][0] if rows else None, stream.id))
        return [RunRecord.from_json(body) for _, body in rows], more

    def plan(self, stream: Stream, run_id: str, first_step: int) -> None:
        """Note where the batch on its way goes, before anything of it is sent."""
        self._execute("UPDATE streams SET run_id = ?, first_step = ? WHERE id = ?", run_id, first_step, stream.id)

    def delivered(self, stream: Stream) -> None:
        """Delete the batch on its way: MLflow has it."""
        with self._transaction() as db:
            db.execute(
                "DELETE FROM records WHERE stream = ? AND id <= (SELECT upto FROM streams WHERE id = ?)",
                (stream.id, stream.id),
            )
            db.execute("UPDATE streams SET upto = NULL, first_step = NULL, problem = NULL WHERE id = ?", (stream.id,))

    def redirect(self, stream: Stream, target: Mapping[str, Any]) -> None:
        text = json.dumps(target, sort_keys=True)
        self._execute("UPDATE streams SET target = ?, run_id = NULL, first_step = NULL WHERE id = ?", text, stream.id)

    def failed(self, stream: Stream, problem: str) -> None:
        self._execute("UPDATE streams SET problem = ? WHERE id = ?", problem, stream.id)

    def finish(self, streams: Sequence[str]) -> None:
        """Note that no more records will come."""
        with self._transaction() as db:
            db.executemany("UPDATE streams SET finished = 1 WHERE id = ?", [(stream,) for stream in streams])

    def forget(self, stream: Stream) -> None:
        """Drop a stream that is finished and delivered."""
        self._execute(
            "DELETE FROM streams WHERE id = ? AND finished AND NOT EXISTS (SELECT 1 FROM records WHERE stream = ?)",
            *(stream.id, stream.id),
        )

    def waiting(self) -> list[Waiting]:
        """Return streams that have records, or whose run is to end, the oldest first."""
        with self._transaction(write=False) as db:
            found = db.execute(
                "SELECT streams.id, count(body), total(length(body)), min(created), problem FROM streams "
                "LEFT JOIN records ON streams.id = stream GROUP BY streams.id HAVING count(body) OR finished "
                "ORDER BY min(records.id)"
            ).fetchall()
        return [Waiting(*row) for row in found]

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = self._files = None

    def _execute(self, statement: str, *values: Any) -> None:
        with self._transaction() as db:
            db.execute(statement, values)

    @contextmanager
    def _transaction(self, *, write: bool = True, keeps: bool = False) -> Iterator[sqlite3.Connection]:
        """Run statements in a transaction; with `keeps`, only on a spool that others will find."""
        with self._lock:
            try:
                db = self._connected(keeps)
                db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                try:
                    yield db
                    db.execute("COMMIT")
                    if keeps and not (self._files and self._files.are_in_place()):
                        raise SpoolError(self._gone())
                except BaseException:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, OSError) as error:
                self.close()  # the disk may be back
                raise SpoolError(_explained(error)) from None

    def _connected(self, keeps: bool) -> sqlite3.Connection:
        if self._connection is not None and not (keeps and self._files and not self._files.are_in_place()):
            return self._connection
        if self._identity is not None and not exists(self.settings.folder):
            raise SpoolError(self._gone())
        new = _open(self.settings, self._identity is None)
        found = new.execute("SELECT identity FROM spool").fetchone()
        if self._identity not in (None, *found):
            new.close()
            raise SpoolError(self._gone())
        self.close()
        self._connection, self._files, (self._identity,) = new, OpenFiles(new, self.settings.folder / _FILE), found
        return new

    def _gone(self) -> str:
        folder = self.settings.folder
        return f"the spool in {folder} is gone, or another is in its place; put it back, or start the process anew"


def _open(settings: SpoolSettings, make: bool) -> sqlite3.Connection:
    path = (settings.folder / _FILE).absolute()
    if make:
        settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _log.warning("there was no spool in %s; a new one is made, and no earlier record is in it", settings.folder)
    db = connect(path, _BUSY_SECONDS, "rwc" if make else "rw")
    try:
        db.execute("PRAGMA journal_mode = WAL")  # a reader and a writer do not wait for each other
        db.execute(f"PRAGMA synchronous = {'FULL' if settings.fsync else 'NORMAL'}")
        db.execute(f"PRAGMA max_page_count = {max(settings.most // _PAGE, 16)}")
        db.executescript(_TABLES)
        db.execute("INSERT OR IGNORE INTO spool VALUES (1, ?)", (secrets.token_hex(16),))
    except BaseException:
        db.close()
        raise
    return db


def exists(folder: Path) -> bool:
    return (folder / _FILE).is_file()


def _of_one_batch(rows: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the first rows, up to the size of a batch; at least one."""
    size = 0
    kept: list[tuple[int, str]] = []
    for row in rows:
        size += len(row[1])
        if kept and size > _BYTES_TOGETHER:
            break
        kept.append(row)
    return kept


def _explained(error: Exception) -> str:
    if "full" in str(error):
        return "the spool is full, or its disk is; make room, raise CFK_SPOOL_MB, or bring the tracking server back"
    return f"the spool cannot be used ({type(error).__name__}); check its folder, which CFK_SPOOL names"
