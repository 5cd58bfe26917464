"""The database behind a ledger: where it is, connections, and transactions that wait up to a
limit.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from sqlalchemy import URL, Connection, Engine, QueuePool, create_engine, event, make_url, text
from sqlalchemy.exc import InvalidatePoolError

from cfk_plugin.errors import CFKError, LedgerError, load_extra, quiet
from cfk_plugin.records.keys import OpenFiles, connect, state_folder, sync_folder

LOCATION = "CFK_LEDGER"
_SECONDS = 5.0
MEMORY: Any = URL.create("sqlite")
"""Stands for a URL: a database that ends with the process, used by one thread at a time."""


def locate(url: str | Path | None, create: bool) -> URL:
    """Return where a ledger is: as given, else as the environment says, else in the state
    folder.
    """
    if url is MEMORY:
        return cast("URL", MEMORY)
    if url is None:
        url = os.environ.get(LOCATION) or state_folder() / "ledger.db"
        if create and isinstance(url, Path):
            with contextlib.suppress(OSError):  # opening the file reports what is missing
                url.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if isinstance(url, Path) or "://" not in str(url):
        return URL.create("sqlite", database=str(Path(url).expanduser().absolute()))
    neither = "a ledger is a SQLite file or a postgresql://user@host/database URL; this is neither"
    with quiet(neither, LedgerError):  # what is raised may quote the URL, which may hold a password
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    if backend == "sqlite":
        if not parsed.database or ":memory:" in parsed.database or parsed.query:
            raise LedgerError(
                "a ledger needs a SQLite file, such as sqlite:///ledger.db; memory would not last"
            )
        return URL.create("sqlite", database=str(Path(parsed.database).absolute()))
    if backend not in ("postgresql", "postgres"):
        raise LedgerError(neither)
    load_extra("psycopg", "postgres", "a ledger on PostgreSQL needs psycopg")
    return parsed.set(drivername="postgresql+psycopg")


def seconds_of(timeout: float | None) -> float:
    """Return how long a request may wait: as given, else 5 seconds."""
    given: Any = _SECONDS if timeout is None else timeout
    with contextlib.suppress(ValueError, TypeError):
        if 0 < float(given) <= 3_600:
            return float(given)
    raise LedgerError("the timeout of a ledger must be seconds above 0 and up to 3600")


class Patience:
    """Seconds that a request may still wait, over all its database calls together."""

    __slots__ = ("_left", "_since")

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._since: float | None = None  # when waiting began

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._left, self._since = self.left, None

    @property
    def left(self) -> float:
        return self._left if self._since is None else self._left - (time.monotonic() - self._since)

    @property
    def milliseconds(self) -> int:
        """What is left, but at least 1: to databases, 0 means no limit."""
        return max(round(1000 * self.left), 1)


_patience: ContextVar[Patience] = ContextVar("cfk_ledger_patience")


class CallerError(Exception):
    """Carries an exception of a caller's function through a transaction that is rolled back."""


@contextlib.contextmanager
def callers_own() -> Iterator[None]:
    """Run a caller's function within a transaction: what it raises passes through, and its time is
    not counted.
    """
    allowed = _patience.get()
    allowed.__exit__()
    try:
        yield
    except Exception as error:  # noqa: BLE001 - raised unchanged once everything is rolled back
        raise CallerError(error) from None
    finally:
        allowed.__enter__()


_T = TypeVar("_T")
Mode = Literal["read", "settle", "survey", "exclusive"]

_TRIES = 6  # of one transaction, when others block it
_LONGEST_PAUSE = 0.4  # seconds between two tries
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# PostgreSQL: serialization failure, deadlock, lock not available; server shutting down, crashed or
# starting.
_PASSING = ("40001", "40P01", "55P03", "57P01", "57P02", "57P03")
_LATE = "57014"  # a statement that took longer than it may
_GATE = 0x63666B5F6C6467  # "cfk_ldg": key of the advisory lock that erasing takes exclusively
_GATES = {
    "settle": text("SELECT pg_advisory_xact_lock_shared(:gate)"),
    "exclusive": text("SELECT pg_advisory_xact_lock(:gate)"),
}
_LIMITS = text(
    "SELECT set_config('lock_timeout', :lock, true), set_config('statement_timeout', :all, true)"
)
_LIMITED = ("read", "settle")  # what a request waits for; reading a whole ledger may take long
_MODE, _FILES = "cfk_mode", "cfk_files"
_GRACE = 0.25  # seconds that a server has to report a timeout itself
_NAME = "cfk_ledger"  # of the engine in the log

for _logger in ("sqlalchemy.engine.Engine", "sqlalchemy.pool.impl.QueuePool"):
    logging.getLogger(f"{_logger}.{_NAME}").setLevel(logging.WARNING)


class Database:
    def __init__(self, url: URL, timeout: float) -> None:
        self.url, self._timeout = url, timeout
        self._is_sqlite = url.get_backend_name() == "sqlite"
        self.file = Path(url.database) if self._is_sqlite and url.database else None
        # Without user name, password and options, which may hold one.
        shown = URL.create("postgresql", host=url.host, port=url.port, database=url.database)
        self.where = (
            f"sqlite:///{self.file or ':memory:'}" if self._is_sqlite else shown.render_as_string()
        )
        self.identity: str | None = None
        self._mark: tuple[int, int] | None = None  # device and inode of the file that was opened
        # By process: what a parent had open before a fork is kept but never touched, as closing it
        # here would drop the parent's locks and connections.
        self._engines: dict[int, Engine] = {}
        self._closed = False

    def run(self, work: Callable[[Connection], _T], mode: Mode) -> _T:
        """Run a function in a transaction, and again if others blocked it; committed when this
        returns.
        """
        failure: Exception
        with self.limit() as allowed:
            for attempt in range(1, _TRIES + 1):
                try:
                    return self._run_once(work, mode, allowed)
                except CallerError as carried:
                    failure, passing = carried.args[0], False
                except CFKError as error:
                    failure, passing = error, False
                    failure.__context__ = None
                except Exception as error:  # noqa: BLE001 - its text may quote statements and rows
                    failure, passing = self._explain(error)
                if not passing or attempt == _TRIES or allowed.left <= 0:
                    break
                with allowed:
                    longest = min(_LONGEST_PAUSE * attempt / _TRIES, allowed.milliseconds / 1000)
                    time.sleep(longest * secrets.randbelow(1000) / 1000)
        raise failure

    @contextlib.contextmanager
    def limit(self) -> Iterator[Patience]:
        """Limit what a block may wait, over all its calls, to the timeout; nested blocks share what
        is left.
        """
        token = _patience.set(allowed := _patience.get(None) or Patience(self._timeout))
        try:
            yield allowed
        finally:
            _patience.reset(token)

    def close(self) -> None:
        self._closed = True
        if (engine := self._engines.pop(os.getpid(), None)) is not None:
            engine.dispose()

    def make_file(self) -> None:
        """Create the SQLite file before SQLite does, readable by its owner alone."""
        if self.file is not None:
            reason = "the ledger cannot be written ({}); give a file in a folder that exists"
            with quiet(f"{self.file}: {reason}", LedgerError):
                os.close(os.open(self.file, os.O_RDWR | os.O_CREAT, 0o600))
                sync_folder(self.file.parent)

    def _run_once(self, work: Callable[[Connection], _T], mode: Mode, allowed: Patience) -> _T:
        with allowed, self._engine().connect() as connection:
            on_server = connection.dialect.name == "postgresql"
            connection.execution_options(**{_MODE: mode})
            if mode == "survey" and on_server:  # or each statement would see a different state
                connection.execution_options(isolation_level="REPEATABLE READ")
            with _watch(connection, allowed), connection.begin():
                set_limits(connection)
                if mode in _GATES and on_server:
                    connection.execute(_GATES[mode], {"gate": _GATE})
                result = work(connection)
            if not _is_in_place(connection.info):
                # What was written to a file that is gone is on record nowhere.
                raise self._gone()
            return result

    def _explain(self, error: Exception) -> tuple[LedgerError, bool]:
        """Return the error to raise for a database's error, without its text, and whether to try
        again.
        """
        if self.file is not None and not self.file.is_file():
            return self._gone(), False
        original: Any = getattr(error, "orig", None) or error
        code = getattr(original, "sqlstate", None) or ""
        busy = (getattr(original, "sqlite_errorcode", 0) or 0) & 0xFF in _BUSY
        passing = busy or getattr(error, "connection_invalidated", False) or code in _PASSING
        hint = (
            "it was in use by others, or away, for too long; try again"
            if passing or code == _LATE
            else "check that it is there, that it is a ledger and that this user may write to it"
        )
        name = type(original).__name__ + (f", code {code}" if code else "")
        return LedgerError(f"the ledger's database {self.where} failed ({name}): {hint}"), passing

    def _gone(self) -> LedgerError:
        return LedgerError(
            f"{self.file}: the ledger is gone, or another file is in its place; put it back with"
            " the files beside it. It is never made anew by itself"
        )

    def _engine(self) -> Engine:
        if self._closed:
            raise LedgerError("the ledger is closed; open it again")
        # Threads that come here together make one each; all but the first are dropped, unconnected.
        known = self._engines.get(os.getpid())
        return known or self._engines.setdefault(os.getpid(), self._make_engine())

    def _make_engine(self) -> Engine:
        # Turning on SQLAlchemy's log for another database must not log rows of this one.
        settings: dict[str, Any] = {
            "hide_parameters": True,
            "logging_name": _NAME,
            "pool_logging_name": _NAME,
        }
        if self._is_sqlite:
            # Threads wait for the database, with a limit, and not for each other's connections. In
            # memory there is one connection; if it were lost, the next one would find no tables,
            # and nothing would be allowed any more.
            settings |= {"max_overflow": -1} if self.file else {"pool_size": 1, "max_overflow": 0}
            settings |= {"poolclass": QueuePool, "pool_timeout": self._timeout}
            engine = create_engine(self.url, creator=self._open_sqlite, **settings)
            event.listen(engine, "connect", self._prepare_sqlite)
            event.listen(engine, "checkout", _check_place)
            event.listen(engine, "begin", _begin_sqlite)
            return engine
        wait = {
            "connect_timeout": max(2, round(self._timeout)),
            "tcp_user_timeout": round(1000 * self._timeout),
        }
        settings["connect_args"] = {
            name: value for name, value in wait.items() if name not in self.url.query
        }
        # Read committed: a statement that follows a lock must see what was committed while it
        # waited.
        settings |= {"isolation_level": "READ COMMITTED", "pool_timeout": self._timeout}
        # The next try finds connections that were lost; a ping could hang as well.
        engine = create_engine(self.url, **settings)
        event.listen(engine, "connect", _prepare_postgresql)
        return engine

    def _open_sqlite(self) -> sqlite3.Connection:
        if self.file is None:
            return sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        if not self.file.is_file():
            raise self._gone()
        state = self.file.stat()
        mark = state.st_dev, state.st_ino
        if self.identity is not None and self._mark not in (None, mark):
            # Another file: read before SQLite merges into it a journal that lies beside it.
            found, read_only = None, "ro&immutable=1"
            with (
                contextlib.suppress(sqlite3.Error),
                contextlib.closing(connect(self.file, 0, read_only)) as alone,
            ):
                found = alone.execute(
                    "SELECT value FROM cfk_ledger_meta WHERE name = 'identity'"
                ).fetchone()
            if found != (self.identity,):
                raise self._gone()
        self._mark = mark
        return connect(self.file, _patience.get().milliseconds / 1000)

    def _prepare_sqlite(self, connection: sqlite3.Connection, record: Any) -> None:
        # Not journal_mode=WAL: recent releases would be in a second file, and whoever opens the
        # ledger after that was deleted would not know of them.
        for pragma in (
            "synchronous=FULL",
            "secure_delete=ON",
            "foreign_keys=ON",
        ):
            connection.execute(f"PRAGMA {pragma}").close()
        if self.file is not None:
            record.info[_FILES] = OpenFiles(connection, self.file)


def set_limits(connection: Connection) -> None:
    """Let the next statements wait no longer than is left to the request."""
    if connection.dialect.name == "postgresql":
        left = f"{_patience.get().milliseconds}ms"
        limited = connection.get_execution_options()[_MODE] in _LIMITED
        connection.execute(_LIMITS, {"lock": left, "all": left if limited else "0"})


@contextlib.contextmanager
def _watch(connection: Connection, allowed: Patience) -> Iterator[None]:
    """Close the connection to a server that does not even report a timeout."""
    if (
        connection.dialect.name != "postgresql"
        or connection.get_execution_options()[_MODE] not in _LIMITED
    ):
        yield
        return
    held: Any = connection.connection.driver_connection
    line, done = socket.socket(fileno=os.dup(held.fileno())), threading.Event()

    def watch() -> None:
        with line:
            while not done.wait(max(allowed.left, 0) + _GRACE):
                if allowed.left <= 0:
                    with contextlib.suppress(OSError):
                        line.shutdown(socket.SHUT_RDWR)
                    return

    threading.Thread(target=watch, name="cfk-ledger-watch", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _prepare_postgresql(connection: Any, _: object) -> None:
    with connection.cursor() as cursor:
        # What was released must survive a crash of the server, whatever its default is.
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') IN ('off', 'local')"
        )
    connection.commit()


def _is_in_place(info: Mapping[str, Any]) -> bool:
    files = info.get(_FILES)
    return files is None or files.are_in_place()


def _check_place(_: object, record: Any, __: object) -> None:
    if not _is_in_place(record.info):
        raise InvalidatePoolError  # tells SQLAlchemy that all connections are stale


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(f"PRAGMA busy_timeout={_patience.get().milliseconds}")
    # A writer locks before it reads: two that read first would both decide on the same history.
    writes = connection.get_execution_options().get(_MODE) in ("settle", "exclusive")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
