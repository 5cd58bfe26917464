"""The database behind a ledger: its tables, connections, and transactions that wait for each other."""

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
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
    make_url,
    text,
)
from sqlalchemy.exc import InvalidatePoolError, SQLAlchemyError

from cfk_plugin.errors import LedgerError, MissingDependencyError, quiet
from cfk_plugin.records.keys import OpenFiles, connect, sync_folder

# The database behind a ledger: connections, transactions that wait for each other, and errors without values.

_T = TypeVar("_T")
Mode = Literal["read", "settle", "survey", "exclusive"]

_TRIES = 6  # of one transaction, when others were in its way
_LONGEST_PAUSE = 0.4  # seconds between two tries
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# PostgreSQL: serialization failure, deadlock, lock not available; server shutting down, crashed or starting.
_PASSING = ("40001", "40P01", "55P03", "57P01", "57P02", "57P03")
_LATE = "57014"  # a statement that took longer than it may
_GATE = 0x63666B5F6C6467  # "cfk_ldg": key of the advisory lock that whoever erases takes alone
_GATES = {
    "settle": text("SELECT pg_advisory_xact_lock_shared(:gate)"),
    "exclusive": text("SELECT pg_advisory_xact_lock(:gate)"),
}
_LIMITS = text("SELECT set_config('lock_timeout', :lock, true), set_config('statement_timeout', :all, true)")
_LIMITED = ("read", "settle")  # what a request waits for; whoever looks through all of a ledger may take long
_MODE, _FILES = "cfk_mode", "cfk_files"
_TIMEOUT = 5.0  # where nobody has said
_GRACE = 0.25  # seconds that a server has to say itself that something took too long
_NAME = "cfk_ledger"  # of the engine in the log

for _logger in ("sqlalchemy.engine.Engine", "sqlalchemy.pool.impl.QueuePool"):
    logging.getLogger(f"{_logger}.{_NAME}").setLevel(logging.WARNING)


class CallerError(Exception):
    """Carries an exception of a caller's function through a transaction that is rolled back."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def read_url(url: str | Path) -> URL:
    """Read a file path or a database URL."""
    if isinstance(url, Path) or "://" not in str(url):
        return URL.create("sqlite", database=str(Path(url).expanduser().absolute()))
    neither = "a ledger is a SQLite file or a postgresql://user@host/database URL; this is neither"
    with quiet(neither, LedgerError):  # what is raised may quote the URL, which may hold a password
        parsed = make_url(str(url))
        backend = parsed.get_backend_name()
    if backend not in ("sqlite", "postgresql", "postgres"):
        raise LedgerError(neither)
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


class Patience:
    """How long a request may still wait for others: seconds for all that it asks of the database together."""

    __slots__ = ("_left", "_since")

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._since: float | None = None  # when waiting began

    def __enter__(self) -> None:
        """Start to wait."""
        self._since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        """Count what was waited."""
        self._left, self._since = self.left, None

    @property
    def left(self) -> float:
        """What is left, in seconds."""
        since = self._since
        return self._left if since is None else self._left - (time.monotonic() - since)

    @property
    def milliseconds(self) -> int:
        """What is left, or 1: databases take 0 for no limit."""
        return max(round(1000 * self.left), 1)


_patience: ContextVar[Patience | None] = ContextVar("cfk_ledger_patience", default=None)


@contextlib.contextmanager
def patience(seconds: float) -> Iterator[Patience]:
    """Let all that a block asks of databases wait so long together; a block within another has what that has left."""
    if (known := _patience.get()) is not None:
        yield known
        return
    token = _patience.set(made := Patience(seconds))
    try:
        yield made
    finally:
        _patience.reset(token)


@contextlib.contextmanager
def at_leisure() -> Iterator[None]:
    """Run, within a transaction, what is not the database's; how long it takes is not counted."""
    with patience(_TIMEOUT) as allowed:
        allowed.__exit__()
        try:
            yield
        finally:
            allowed.__enter__()


def set_limits(connection: Connection) -> None:
    """Let the next statements, which may have to wait for others, wait no longer than the request may still wait."""
    if connection.dialect.name == "postgresql":
        with patience(_TIMEOUT) as allowed:
            limited = connection.get_execution_options()[_MODE] in _LIMITED
            values = {"lock": f"{allowed.milliseconds}ms", "all": f"{allowed.milliseconds}ms" if limited else "0"}
        connection.execute(_LIMITS, values)


class Database:
    """Runs transactions; an engine of its own in every process, made when it is first needed there."""

    def __init__(self, url: URL, timeout: float) -> None:
        self.url = url
        self._timeout = timeout
        self.identity: str | None = None
        self._mark: tuple[int, int] | None = None  # device and number of the file that was opened
        # By process: what a parent had open before a fork is kept but never touched, as closing it here would
        # pull the parent's locks and connections away.
        self._engines: dict[int, Engine] = {}
        self._closed = False

    def run(self, work: Callable[[Connection], _T], mode: Mode) -> _T:
        """Run a function in a transaction, again when others were in its way; committed when this returns."""
        with patience(self._timeout) as allowed:
            for attempt in range(1, _TRIES + 1):
                result, failure = self._once(work, mode, allowed)
                if failure is None:
                    return result[0]
                if not failure.passing or attempt == _TRIES or allowed.left <= 0:
                    raise LedgerError(failure.message(shown(self.url)))
                with allowed:
                    longest = min(_LONGEST_PAUSE * attempt / _TRIES, allowed.milliseconds / 1000)
                    time.sleep(longest * secrets.randbelow(1000) / 1000)
        raise AssertionError  # the last try has returned or raised

    def limit(self) -> contextlib.AbstractContextManager[Patience]:
        """Let all that a block asks wait for others no longer together than one question may."""
        return patience(self._timeout)

    def close(self) -> None:
        """Close the connections of this process; the database cannot be used any more."""
        self._closed = True
        engine = self._engines.pop(os.getpid(), None)
        if engine is not None:
            engine.dispose()

    def tidy(self) -> None:
        """Write what SQLite keeps beside its file into it, so that what was erased is not left there."""
        if self.url.get_backend_name() == "sqlite":
            with contextlib.suppress(SQLAlchemyError, sqlite3.Error), self._engine().connect() as connection:
                held: Any = connection.connection.driver_connection
                held.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()

    def _once(
        self, work: Callable[[Connection], _T], mode: Mode, allowed: Patience
    ) -> tuple[list[_T], _Failure | None]:
        """Try a transaction; return its result in a list, or what failed."""
        raised: Exception
        engine = self._engine()
        try:
            with allowed, _connected(engine, mode) as connection:
                with _watched(connection, allowed), connection.begin():
                    set_limits(connection)
                    if mode in _GATES and connection.dialect.name == "postgresql":
                        connection.execute(_GATES[mode], {"gate": _GATE})
                    result = work(connection)
                if not _is_in_place(connection.info):
                    # What was written to a file that is not there any more is on record for nobody.
                    raise LedgerError(_gone(self.url))
            return [result], None
        except CallerError as carried:
            raised = carried.error
        except LedgerError as error:
            raised = error
            raised.__context__ = None
        except Exception as error:  # noqa: BLE001 - its text may quote statements and rows
            return [], _Failure.of(error)
        raise raised

    def _engine(self) -> Engine:
        if self._closed:
            raise LedgerError("the ledger is closed; open it again")
        # Threads that come here together make one each; all but the first let theirs go, unconnected.
        known = self._engines.get(os.getpid())
        return known or self._engines.setdefault(os.getpid(), self._make_engine())

    def _make_engine(self) -> Engine:
        # Whoever turns SQLAlchemy's log on for another database must not get rows of this one with it.
        settings: dict[str, Any] = {"hide_parameters": True, "logging_name": _NAME, "pool_logging_name": _NAME}
        if self.url.get_backend_name() == "sqlite":
            # Threads wait for the database, with a limit, and not for each other's connections.
            engine = create_engine(self.url, creator=self._open_file, max_overflow=-1, **settings)
            event.listen(engine, "connect", self._prepare_sqlite)
            event.listen(engine, "checkout", _check_place)
            event.listen(engine, "begin", _begin_sqlite)
            return engine
        wait = {"connect_timeout": max(2, round(self._timeout)), "tcp_user_timeout": round(1000 * self._timeout)}
        settings["connect_args"] = {name: value for name, value in wait.items() if name not in self.url.query}
        # Read committed: a statement that follows a lock must see what was committed while it waited.
        settings |= {"isolation_level": "READ COMMITTED", "pool_timeout": self._timeout}
        # Connections that were lost meanwhile are found by the next try; a ping could hang as well.
        engine = create_engine(self.url, **settings)
        event.listen(engine, "connect", _prepare_postgresql)
        return engine

    def _open_file(self) -> sqlite3.Connection:
        path = Path(str(self.url.database))
        if not path.is_file():
            raise LedgerError(_gone(self.url))
        self._refuse_other_file(path)
        with patience(self._timeout) as allowed:
            return connect(path, allowed.milliseconds / 1000)

    def _refuse_other_file(self, path: Path) -> None:
        """Look at a file that came in the place of a ledger before SQLite puts into it what it finds beside it."""
        state = path.stat()
        mark = state.st_dev, state.st_ino
        if self.identity is not None and self._mark not in (None, mark):
            with contextlib.suppress(sqlite3.Error), contextlib.closing(connect(path, 0, "ro&immutable=1")) as alone:
                found = alone.execute("SELECT value FROM cfk_ledger_meta WHERE name = 'identity'").fetchone()
                if found == (self.identity,):
                    self._mark = mark
            if self._mark != mark:
                raise LedgerError(_gone(self.url))
        self._mark = mark

    def _prepare_sqlite(self, connection: sqlite3.Connection, record: Any) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()
        record.info[_FILES] = OpenFiles(connection, Path(str(self.url.database)))


@contextlib.contextmanager
def _connected(engine: Engine, mode: Mode) -> Iterator[Connection]:
    with engine.connect() as connection:
        options: dict[str, Any] = {_MODE: mode}
        if mode == "survey" and connection.dialect.name == "postgresql":
            options["isolation_level"] = "REPEATABLE READ"  # else every statement would see another state
        yield connection.execution_options(**options)


@contextlib.contextmanager
def _watched(connection: Connection, allowed: Patience) -> Iterator[None]:
    """Cut the line to a server that does not even say that it takes too long."""
    if connection.dialect.name != "postgresql" or connection.get_execution_options()[_MODE] not in _LIMITED:
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
            if self.passing or self.code == _LATE
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


def _gone(url: URL) -> str:
    return (
        f"{url.database}: the ledger is gone, or another file is in its place; put it back with the files beside it. "
        "It is never made anew by itself"
    )


def _prepare_postgresql(connection: Any, _: object) -> None:
    with connection.cursor() as cursor:
        # What was released must be on record after a crash of the server, whatever its default is.
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
        raise InvalidatePoolError  # tells SQLAlchemy that all connections are stale and a new one is to be made


def _begin_sqlite(connection: Connection) -> None:
    with patience(_TIMEOUT) as allowed:
        connection.exec_driver_sql(f"PRAGMA busy_timeout={allowed.milliseconds}")
    # A writer takes the lock before it reads: two that read first would both decide on the same past.
    writes = connection.get_execution_options().get(_MODE) in ("settle", "exclusive")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


# The tables of a ledger, and of budgets. Nothing in them is a value of a person, except for released regions.

VERSION = 2
"""Of the tables; a ledger of another one is refused. Version 1 had no chain."""

_metadata = MetaData()

# Version, key and identity of the ledger, and the head of its chain.
meta = Table(
    "cfk_ledger_meta",
    _metadata,
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
)

# On PostgreSQL, whoever settles a record locks its row here; SQLite has one writer at a time and leaves it empty.
locks = Table("cfk_ledger_locks", _metadata, Column("record", String(64), primary_key=True))

# One entry for each row of the tables below, whenever it was made, changed in what is chained, or erased.
chain = Table(
    "cfk_ledger_chain",
    _metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),  # 1, 2, 3, ...
    Column("replaces", BigInteger, unique=True),  # the entry of the row until then
    Column("content", String(64)),  # keyed digest of the row; none where it was erased
    Column("link", String(64), nullable=False),  # keyed digest of all this and of the link before
)


def _chained(name: str, *columns: Column[str] | Column[int] | UniqueConstraint) -> Table:
    """Return a table whose rows are in the chain, each by its latest entry."""
    seq = Column("seq", BigInteger, primary_key=True, autoincrement=False)
    # Goes with the row: whoever has the key cannot tell from the entry of an erased row what the row was.
    salt: Column[str] = Column("salt", String(32), nullable=False)
    return Table(name, _metadata, seq, salt, *columns)


releases = _chained(
    "cfk_ledger_releases",
    Column("record", String(64), nullable=False),
    Column("digest", String(64), nullable=False),  # keyed hash of the region
    Column("policy", String, nullable=False),
    Column("population", String, nullable=False),
    Column("region", Text, nullable=False),
    Column("guarantee", String, nullable=False),
    Column("k", Integer, nullable=False),
    Column("effective", Integer),
    # UTC as text of fixed length, which sorts as time does and reads the same in both databases.
    Column("first", String(27), nullable=False),
    Column("last", String(27), nullable=False),
    Column("times", Integer, nullable=False),
    UniqueConstraint("record", "digest", "policy", "population"),
)

# Whoever spends locks the row of the account on PostgreSQL; SQLite has one writer at a time.
accounts = Table("cfk_budget_accounts", _metadata, Column("account", String, primary_key=True))

# Amounts are text: a database would round a number in its own way.
ceilings = _chained(
    "cfk_budget_ceilings",
    Column("account", String, nullable=False, index=True),
    Column("epsilon", String, nullable=False),
    Column("delta", String, nullable=False),
    Column("at", String(27), nullable=False),
)

spends = _chained(
    "cfk_budget_spends",
    Column("account", String, nullable=False, index=True),
    Column("epsilon", String, nullable=False),
    Column("delta", String, nullable=False),
    Column("what", String, nullable=False),
    Column("at", String(27), nullable=False),
    Column("token", String(32), nullable=False, unique=True),
)

CHAINED = (releases, ceilings, spends)
UNCHAINED = ("seq", "last", "times")
"""Columns that no digest covers: an answer that is repeated changes the last two, and adds nothing to the chain."""

create_all = _metadata.create_all
