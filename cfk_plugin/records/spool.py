"""The spool: records on local disk, from before an explanation leaves until a thread has sent them
to MLflow.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import multiprocessing.util
import os
import secrets
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from cfk_plugin.errors import InputError, TrackingError, quiet
from cfk_plugin.records.keys import OpenFiles, connect, state_folder
from cfk_plugin.records.record import RunRecord
from cfk_plugin.records.run import LostSummaryError, OtherSettingsError, RunTarget, RunWriter

_log = logging.getLogger(__name__)

SPOOL_VERSION = 1
LEASE_SECONDS = 90.0
"""How long a process is assumed to be alive after its last sign of life."""

_ON_FULL = "CFK_SPOOL_FULL"
_CHOICES = ("withhold", "release")  # the first is the default
MOST_BYTES = 1_024_000_000
"""Room that a spool may take: a server that is down must not fill the disk."""


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """Settings of a spool. They are the operator's, so they come from the environment."""

    # ``CFK_SPOOL``; on a local disk, as network file systems do not lock as SQLite needs it
    folder: Path
    most: int = MOST_BYTES
    on_full: str = "withhold"  # ``CFK_SPOOL_FULL``: what to do when no record can be kept

    @classmethod
    def of(cls, folder: Path | None = None) -> SpoolSettings:
        on_full = os.environ.get(_ON_FULL) or _CHOICES[0]
        if on_full not in _CHOICES:
            raise InputError(f"{_ON_FULL} is {on_full!r}; it must be {' or '.join(_CHOICES)}")
        return cls(
            (folder or spool_folder()).absolute(),  # also after a change of the working folder
            most=MOST_BYTES,
            on_full=on_full,
        )


def spool_folder() -> Path:
    chosen = os.environ.get("CFK_SPOOL")
    return Path(chosen) if chosen else state_folder() / "spool"


def this_process() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def is_gone(holder: str) -> bool:
    """Say whether a process of this machine has ended; False for other machines and containers, as
    it is unknown.
    """
    host, *process = holder.rsplit(":", 2)
    if host != socket.gethostname() or len(process) != 2 or not process[0].isdecimal():
        return False
    pid, started = int(process[0]), process[1]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _started(pid) != started


def _started(pid: int) -> str:
    """Return when a process started, as its number may be reused; empty if that is unknown."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - no file of ours
            state, *fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]


_FILE = "spool.db"
_BUSY_SECONDS = 2.0  # that a writer waits for another process to finish
_PAGE = 4096
_ALL = 2**63 - 1  # SQLite's largest number
_TOGETHER = 200  # records that are logged at once ...
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
    """The spool cannot be used: it or its disk is full, its folder cannot be written, or it is
    gone.
    """


class Stream(NamedTuple):
    id: str
    target: RunTarget
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

    A record is there before its explanation leaves, and is deleted after MLflow has taken it.
    Killing a process loses nothing; a power cut may lose the last seconds. Each stream is sent
    by one process; another takes over those of a process that is gone.

    It is made on first use. After that, no other is accepted in its place: when the file is
    deleted, moved or replaced, nothing more is kept until it is back. What was kept is still sent
    meanwhile.
    """

    settings: SpoolSettings
    holder: str  # this process
    _files: OpenFiles | None = None
    _identity: str | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def append(self, run: RunWriter, record: RunRecord) -> None:
        body, until = record.to_json(), time.time() + LEASE_SECONDS
        with self._transaction(keeps=True) as db:
            db.execute(
                "INSERT INTO streams (id, target, run_id, holder, until) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET finished = 0",
                (run.mark, json.dumps(run.target._asdict()), run.run_id, self.holder, until),
            )
            db.execute(
                "INSERT INTO records (stream, created, body) VALUES (?, ?, ?)",
                (run.mark, time.time_ns() // 1_000_000, body),  # how long it waits
            )

    def check(self, room: int = 0) -> None:
        """Raise `SpoolError` if the spool cannot be opened or written, or lacks room for so many
        bytes.
        """
        with self._transaction(keeps=True) as db:
            if room:
                db.execute("SAVEPOINT room")
                db.execute(
                    "INSERT INTO records (stream, created, body) VALUES ('', 0, zeroblob(?))",
                    (room,),
                )
                db.execute("ROLLBACK TO room")

    def hold(self) -> list[Stream]:
        """Take over streams that nobody sends, and return all streams of this process, oldest
        record first.
        """
        now = time.time()
        with self._transaction() as db:
            others = db.execute(
                "SELECT id, holder, until FROM streams WHERE holder <> ?", (self.holder,)
            ).fetchall()
            free = [stream for stream, holder, until in others if until < now or is_gone(holder)]
            db.executemany(
                "UPDATE streams SET holder = ?, finished = 1 WHERE id = ?",
                [(self.holder, stream) for stream in free],
            )
            db.execute(
                "UPDATE streams SET until = ? WHERE holder = ?", (now + LEASE_SECONDS, self.holder)
            )
            found = db.execute(
                "SELECT id, target, run_id, finished, upto, first_step FROM streams WHERE holder ="
                " ? ORDER BY (SELECT min(records.id) FROM records WHERE stream = streams.id)",
                (self.holder,),
            ).fetchall()
        return [Stream(id_, RunTarget(**json.loads(target)), *rest) for id_, target, *rest in found]

    def batch(self, stream: Stream) -> tuple[list[RunRecord], bool]:
        """Return the next records of a stream (the same until they are `delivered`), and whether
        more may wait.
        """
        with self._transaction() as db:
            last, most = (_ALL, _TOGETHER + 1) if stream.upto is None else (stream.upto, _ALL)
            rows = found = db.execute(
                "SELECT id, body FROM records WHERE stream = ? AND id <= ? ORDER BY id LIMIT ?",
                (stream.id, last, most),
            ).fetchall()
            if stream.upto is None:
                sizes = accumulate(len(body) for _, body in found)
                small = zip(found[:_TOGETHER], sizes, strict=False)
                rows = [row for row, size in small if size <= _BYTES_TOGETHER] or found[:1]
                db.execute(
                    "UPDATE streams SET upto = ? WHERE id = ?",
                    (rows[-1][0] if rows else None, stream.id),
                )
            more = stream.upto is not None or len(rows) < len(found)
        return [RunRecord.from_json(body) for _, body in rows], more

    def note(self, stream: str, **columns: Any) -> None:
        """Store what is known of a stream."""
        names = ", ".join(f"{name} = ?" for name in columns)
        with self._transaction() as db:
            db.execute(f"UPDATE streams SET {names} WHERE id = ?", (*columns.values(), stream))  # noqa: S608 - ours

    def delivered(self, stream: Stream) -> None:
        with self._transaction() as db:
            db.execute(
                "DELETE FROM records WHERE stream = ? AND id <= (SELECT upto FROM streams WHERE id"
                " = ?)",
                (stream.id, stream.id),
            )
            db.execute(
                "UPDATE streams SET upto = NULL, first_step = NULL, problem = NULL WHERE id = ?",
                (stream.id,),
            )

    def forget(self, stream: Stream) -> None:
        """Drop a stream that is finished and delivered."""
        with self._transaction() as db:
            db.execute(
                "DELETE FROM streams WHERE id = ? AND finished "
                "AND NOT EXISTS (SELECT 1 FROM records WHERE stream = streams.id)",
                (stream.id,),
            )

    def waiting(self) -> list[Waiting]:
        with self._transaction(write=False) as db:
            found = db.execute(
                "SELECT streams.id, count(body), total(length(body)), min(created), problem FROM"
                " streams LEFT JOIN records ON streams.id = stream GROUP BY streams.id HAVING"
                " count(body) OR finished ORDER BY min(records.id)"
            ).fetchall()
        return [Waiting(*row) for row in found]

    def close(self) -> None:
        with self._lock:
            if self._files is not None:
                self._files.connection.close()
                self._files = None

    @contextmanager
    def _transaction(
        self, *, write: bool = True, keeps: bool = False
    ) -> Iterator[sqlite3.Connection]:
        """Run statements in a transaction; with `keeps`, only if the spool is still at its path."""
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
        if self._files is not None and (not keeps or self._files.are_in_place()):
            return self._files.connection
        if self._identity is not None and not exists(self.settings.folder):
            raise SpoolError(self._gone())
        new = _open(self.settings, self._identity is None)
        found = new.execute("SELECT identity FROM spool").fetchone()
        if self._identity not in (None, *found):
            new.close()
            raise SpoolError(self._gone())
        self.close()
        self._files, (self._identity,) = OpenFiles(new, self.settings.folder / _FILE), found
        return new

    def _gone(self) -> str:
        folder = self.settings.folder
        return (
            f"the spool in {folder} is gone, or another is in its place; put it back, or start the"
            " process anew"
        )


def _open(settings: SpoolSettings, make: bool) -> sqlite3.Connection:
    path = (settings.folder / _FILE).absolute()
    if make:
        settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _log.warning(
                "there was no spool in %s; a new one is made, and no earlier record is in it",
                settings.folder,
            )
    db = connect(path, _BUSY_SECONDS, "rwc" if make else "rw")
    try:
        _check_version(db, settings.folder)
        db.execute("PRAGMA journal_mode = WAL")  # a reader and a writer do not wait for each other
        # What is kept outlives the process. A power cut may lose the last seconds: to force every
        # record to disk would delay every explanation.
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA max_page_count = {max(settings.most // _PAGE, 16)}")
        db.executescript(_TABLES)
        db.execute("INSERT OR IGNORE INTO spool VALUES (1, ?)", (secrets.token_hex(16),))
    except BaseException:
        db.close()
        raise
    return db


def _check_version(db: sqlite3.Connection, folder: Path) -> None:
    """Raise `SpoolError` if the spool is in another format; say in a new one which it has."""
    (n_tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == SPOOL_VERSION:
        return
    if n_tables:
        raise SpoolError(
            f"the spool in {folder} was written by another version of cfk_plugin; send its records"
            " with that version, or name another folder in CFK_SPOOL"
        )
    # Before the tables, so that another process never finds these without it.
    db.execute(f"PRAGMA user_version = {SPOOL_VERSION}")


def exists(folder: Path) -> bool:
    return (folder / _FILE).is_file()


def _explained(error: Exception) -> str:
    if "full" in str(error):
        return "the spool is full, or its disk is; make room, or bring the tracking server back"
    return (
        f"the spool cannot be used ({type(error).__name__}); check its folder, which CFK_SPOOL"
        " names"
    )


_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_HEARTBEAT = 30.0  # seconds between two looks for streams that another process left behind
_GATHER = 2.0  # seconds that records are gathered before they are sent together
_EXIT_SECONDS = 30.0  # to deliver at exit, while the server takes records


@dataclass(slots=True, eq=False)
class Shipper:
    """Sends the streams of a spool, each in order, from a daemon thread; what fails is retried
    forever.
    """

    spool: Spool
    _runs: dict[str, RunWriter] = field(default_factory=dict)
    _own: set[str] = field(default_factory=set)  # streams that this process has added to
    # by stream: until when, and how long
    _pauses: dict[str, tuple[float, float]] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None
    _due: float = math.inf  # when the thread has to look again
    _failed: bool = False
    _closed: bool = False
    _warned: bool = False

    def submit(self, run: RunWriter, record: RunRecord) -> None:
        self.spool.append(run, record)
        self._own.add(run.mark)
        self._runs.setdefault(run.mark, run)
        self.wake()

    def finish(self, streams: Sequence[str]) -> None:
        """Mark these streams as complete: runs made for them end once all is delivered."""
        for stream in streams:
            self.spool.note(stream, finished=1)
        self.wake()

    def wake(self, within: float = _GATHER) -> None:
        with self._changed:
            self._due = min(self._due, time.monotonic() + within)
            if not self._closed and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._work, name="cfk-tracking", daemon=True)
                # the interpreter is ending; a later process sends what is kept
                with suppress(RuntimeError):
                    self._thread.start()
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Send what this process has kept; return False if time runs out or a server does not take
        it.
        """
        with self._changed:
            self._pauses.clear()
            self._failed = False
        self.wake(within=0)
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._failed or not self._waiting(), timeout=seconds)
            return not self._waiting()
        except TrackingError as error:
            _log.warning("%s", error)
            return False

    def drain(self) -> list[Waiting]:
        """Send, in this thread, whatever no running process sends; return what is left."""
        while self._round():
            pass
        return self.spool.waiting()

    def close(self, seconds: float = _EXIT_SECONDS) -> None:
        """Send what can be sent; the rest stays in the spool for a later process."""
        if self._closed:
            return
        delivered = self._thread is None or self.flush(seconds)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if not delivered:
            _log.warning(
                "tracking records were not delivered; they are in %s, and `cfk spool flush` sends"
                " them",
                self.spool.settings.folder,
            )
        self.spool.close()

    def _waiting(self) -> list[Waiting]:
        return [stream for stream in self.spool.waiting() if stream.id in self._own]

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (rest := self._due - time.monotonic()) > 0:
                    self._changed.wait(rest)
                if self._closed:
                    return
                self._due = time.monotonic() + _HEARTBEAT
            more = False
            try:
                with quiet("sending raised {}", TrackingError, let=TrackingError):
                    more = self._round()
            except TrackingError as error:  # the spool may be back later
                self._failed = True
                _log.error("the spool cannot be sent: %s", error)
                time.sleep(_FIRST_PAUSE)
            with self._changed:
                self._due = (
                    0.0
                    if more
                    else min([self._due, *(until for until, _ in self._pauses.values())])
                )
                self._changed.notify_all()

    def _round(self) -> bool:
        """Send one batch of every stream that is due; return whether there may be more to do at
        once.
        """
        streams, more = self.spool.hold(), False
        held = {stream.id for stream in streams}
        self._pauses = {id_: pause for id_, pause in self._pauses.items() if id_ in held}
        for stream in streams:
            until, pause = self._pauses.get(stream.id, (0.0, 0.0))
            if self._closed or until > time.monotonic():
                continue
            try:
                more |= self._send(stream)
            except TrackingError as error:
                self._postpone(stream, min(2 * pause, _LONGEST_PAUSE) or _FIRST_PAUSE, str(error))
            else:
                self._pauses.pop(stream.id, None)
                self._warned = False
        return more

    def _send(self, stream: Stream) -> bool:
        """Send a batch, or end a complete run; return whether there may be more to do."""
        records, more = self.spool.batch(stream)
        run = self._runs.setdefault(stream.id, RunWriter(stream.target, stream.id))
        run.run_id = run.run_id or stream.run_id
        if not records:
            if stream.finished:
                run.finish()
                self.spool.forget(stream)
                del self._runs[stream.id]
            return False
        try:
            # The batch's place is stored before anything of it is sent.
            plan = partial(self.spool.note, stream.id)
            run.write(records, planned_before=stream.first_step, plan=plan)
        except (OtherSettingsError, LostSummaryError):
            del self._runs[stream.id]
            target = stream.target._replace(run_id=None, run_name=None, parent=run.run_id)
            self.spool.note(
                stream.id, target=json.dumps(target._asdict()), run_id=None, first_step=None
            )
            return True
        self.spool.delivered(stream)
        return more or stream.finished

    def _postpone(self, stream: Stream, pause: float, problem: str) -> None:
        with self._changed:
            self._failed |= stream.id in self._own
            self._pauses[stream.id] = (time.monotonic() + pause, pause)
        self.spool.note(stream.id, problem=problem)
        if not self._warned:
            _log.warning(
                "%s; records wait in %s and are sent again later",
                problem,
                self.spool.settings.folder,
            )
            self._warned = True


_shippers: dict[tuple[int, Path], Shipper] = {}  # by process, as a forked child starts its own


def shipper(folder: Path | None = None) -> Shipper:
    """Return the shipper of a spool folder in this process; its work at exit is registered."""
    settings = SpoolSettings.of(folder)
    place = (os.getpid(), settings.folder)
    if place not in _shippers:
        own = _shippers[place] = Shipper(Spool(settings, this_process()))
        atexit.register(own.close)
        # such a process ends without running `atexit`
        if multiprocessing.parent_process() is not None:
            multiprocessing.util.Finalize(None, own.close, exitpriority=1)
    return _shippers[place]
