"""The database behind a ledger: connections, transactions that wait for each other, and errors without values."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import sqlite3
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import SQLAlchemyError

from cfk_plugin.errors import LedgerError, MissingDependencyError
from cfk_plugin.ledger.keys import sync_folder

_T = TypeVar("_T")
Mode = Literal["read", "settle", "exclusive"]

_TRIES = 6  # of one transaction, when others were in its way
_LONGEST_PAUSE = 0.4  # seconds between two tries
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# PostgreSQL: serialization failure, deadlock, lock not available; server shutting down, crashed or starting.
_PASSING = ("40001", "40P01", "55P03", "57P01", "57P02", "57P03")
_GATE = 0x63666B5F6C6467  # "cfk_ldg": key of the advisory lock that whoever erases takes alone
_LOCKS = {
    "settle": text("SELECT pg_advisory_xact_lock_shared(:gate)"),
    "exclusive": text("SELECT pg_advisory_xact_lock(:gate)"),
}
_MODE = "cfk_mode"
_NAME = "cfk_ledger"  # of the engine in the log

for _logger in ("sqlalchemy.engine.Engine", "sqlalchemy.pool.impl.QueuePool"):
    logging.getLogger(f"{_logger}.{_NAME}").setLevel(logging.WARNING)


class Run(Protocol):
    """Runs a function in a transaction, as `Database.run`."""

    def __call__(self, work: Callable[[Connection], _T], mode: Mode) -> _T:
        """Return what the function returns."""
        ...


class CallerError(Exception):
    """Carries an exception of a caller's function through a transaction that is rolled back."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def read_url(url: str | Path) -> URL:
    """Read a file path or a database URL.

    Raises
    ------
    LedgerError
        If it is neither a SQLite file nor a PostgreSQL database.
    """
    if isinstance(url, Path) or "://" not in str(url):
        return URL.create("sqlite", database=str(Path(url).expanduser().absolute()))
    try:
        parsed = make_url(str(url))
        backend = parsed.get_backend_name()
    except Exception:  # noqa: BLE001 - its text may quote the URL, which may hold a password
        parsed, backend = None, ""
    if parsed is None or backend not in ("sqlite", "postgresql", "postgres"):
        raise LedgerError("a ledger is a SQLite file or a postgresql://user@host/database URL; this is neither")
    if backend == "sqlite":
        if not parsed.database or ":memory:" in parsed.database or parsed.query:
            raise LedgerError("a ledger needs a SQLite file, such as sqlite:///ledger.db; memory would not last")
        return URL.create("sqlite", database=str(Path(parsed.database).absolute()))
    if find_spec("psycopg") is None:
        raise MissingDependencyError("a ledger on PostgreSQL needs psycopg: pip install 'cfk-plugin[postgres]'")
    return parsed.set(drivername="postgresql+psycopg")


def shown(url: URL) -> str:
    """Return a URL without password and options, which may hold one."""
    if url.get_backend_name() == "sqlite":
        return f"sqlite:///{url.database}"
    return URL.create("postgresql", host=url.host, port=url.port, database=url.database).render_as_string()


class Database:
    """Runs transactions; an engine of its own in every process, made when it is first needed there.

    Parameters
    ----------
    url : URL
    timeout : float
        Seconds to wait for others, per try.
    opened : callable
        Called in every process before anything else, with the function that runs transactions.
    """

    def __init__(self, url: URL, timeout: float, opened: Callable[[Run], None]) -> None:
        self.url = url
        self._timeout = timeout
        self._opened = opened
        # By process: what a parent had open before a fork is kept but never touched, as closing it here would
        # pull the parent's locks and connections away.
        self._engines: dict[int, Engine] = {}
        self._closed = False

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is a file."""
        return self.url.get_backend_name() == "sqlite"

    def open(self) -> None:
        """Connect and look at what is there, so that what is wrong is said at once."""
        self._engine()

    def run(self, work: Callable[[Connection], _T], mode: Mode) -> _T:
        """Run a function in a transaction, again when others were in its way; committed when this returns.

        Parameters
        ----------
        work : callable
            May run several times.
        mode : {"read", "settle", "exclusive"}
            "settle" writes beside others, "exclusive" alone.

        Raises
        ------
        LedgerError
            If the database fails; nothing was changed then, or, where its answer got lost, all of it.
        """
        return self._run(self._engine(), work, mode)

    def close(self) -> None:
        """Close the connections of this process; the database cannot be used any more."""
        self._closed = True
        engine = self._engines.pop(os.getpid(), None)
        if engine is not None:
            engine.dispose()

    def tidy(self) -> None:
        """Write what SQLite keeps beside its file into it, so that what was erased is not left there."""
        if self.is_sqlite:
            with contextlib.suppress(SQLAlchemyError, sqlite3.Error), self._engine().connect() as connection:
                held: Any = connection.connection.driver_connection
                held.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()

    def _run(self, engine: Engine, work: Callable[[Connection], _T], mode: Mode) -> _T:
        for attempt in range(1, _TRIES + 1):
            result, failure = _once(engine, work, mode)
            if failure is None:
                return result[0]
            if not failure.passing or attempt == _TRIES:
                raise LedgerError(failure.message(shown(self.url)))
            time.sleep(_LONGEST_PAUSE * attempt / _TRIES * secrets.randbelow(1000) / 1000)
        raise AssertionError  # the last try has returned or raised

    def _engine(self) -> Engine:
        if self._closed:
            raise LedgerError("the ledger is closed; open it again")
        process = os.getpid()
        known = self._engines.get(process)
        if known is not None:
            return known
        # Threads that come here together make one each; all but the first throw theirs away.
        made, kept = _make_engine(self.url, self._timeout), None
        try:
            self._opened(functools.partial(self._run, made))
            kept = self._engines.setdefault(process, made)
        finally:
            if kept is not made:
                made.dispose()
        return kept


def _once(engine: Engine, work: Callable[[Connection], _T], mode: Mode) -> tuple[list[_T], _Failure | None]:
    """Try a transaction; return its result in a list, or what failed."""
    raised: Exception
    try:
        with engine.connect().execution_options(**{_MODE: mode}) as connection, connection.begin():
            if connection.dialect.name == "postgresql" and mode in _LOCKS:
                connection.execute(_LOCKS[mode], {"gate": _GATE})
            result = work(connection)
        return [result], None
    except CallerError as carried:
        raised = carried.error
    except LedgerError as error:
        raised = error
    except Exception as error:  # noqa: BLE001 - its text may quote statements and rows
        return [], _Failure.of(error)
    raise raised


class _Failure:
    """What is known of a database's error: its class and whether another try may help. Never its text."""

    def __init__(self, name: str, code: str, passing: bool) -> None:
        self.name, self.code, self.passing = name, code, passing

    @classmethod
    def of(cls, error: Exception) -> _Failure:
        original: Any = getattr(error, "orig", None) or error
        code = getattr(original, "sqlstate", None) or ""
        busy = (getattr(original, "sqlite_errorcode", 0) or 0) & 0xFF in _BUSY
        lost = bool(getattr(error, "connection_invalidated", False))
        return cls(type(original).__name__, code or "", busy or lost or code in _PASSING)

    def message(self, where: str) -> str:
        """Say what failed in one line."""
        code = f", code {self.code}" if self.code else ""
        hint = (
            "it was in use by others, or away, for too long; try again"
            if self.passing
            else "check that it is there, that it is a ledger and that this user may write to it"
        )
        return f"the ledger's database {where} failed ({self.name}{code}): {hint}"


def make_file(path: Path) -> None:
    """Make the SQLite file before SQLite does, readable by its owner alone."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        sync_folder(path.parent)
    except OSError as error:
        reason = error.strerror or type(error).__name__
    else:
        return
    raise LedgerError(f"{path}: the ledger cannot be written ({reason}); give a file in a folder that exists")


def _make_engine(url: URL, timeout: float) -> Engine:
    # Whoever turns SQLAlchemy's log on for another database must not get rows of this one with it.
    quiet = {"hide_parameters": True, "logging_name": _NAME, "pool_logging_name": _NAME}
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": timeout}, **quiet)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    wait = {} if "connect_timeout" in url.query else {"connect_timeout": max(2, round(timeout))}
    # Read committed: a statement that follows a lock must see what was committed while it waited.
    engine = create_engine(url, connect_args=wait, pool_pre_ping=True, isolation_level="READ COMMITTED", **quiet)

    def limit(connection: Any, _: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, false)", (f"{round(timeout * 1000)}ms",))
            # What was released must be on record after a crash of the server, whatever its default is.
            cursor.execute(
                "SELECT set_config('synchronous_commit', 'on', false) "
                "WHERE current_setting('synchronous_commit') IN ('off', 'local')"
            )
        connection.commit()

    event.listen(engine, "connect", limit)
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions begin where we say, see _begin_sqlite
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes the lock before it reads: two that read first would both decide on the same past.
    reads = connection.get_execution_options().get(_MODE) == "read"
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
