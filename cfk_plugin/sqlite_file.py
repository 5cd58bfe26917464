"""A SQLite file that must stay the same one: opened and never made by the way, and missed when it is gone."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote


def connect(path: Path, seconds: float, mode: str = "rw") -> sqlite3.Connection:
    """Connect to a file that exists; SQLite's own way would make an empty one.

    Parameters
    ----------
    path : Path
        Absolute.
    seconds : float
        To wait for others.
    mode : str
        Of SQLite; "ro&immutable=1" reads the file alone, and nothing beside it.

    Raises
    ------
    sqlite3.OperationalError
        If there is no file.
    """
    name = f"file:{quote(str(path))}?mode={mode}"
    connection = sqlite3.connect(name, timeout=seconds, uri=True, check_same_thread=False)
    connection.isolation_level = None  # transactions begin where we say
    return connection


class OpenFiles:
    """Which files a connection has open: the database, and the two that SQLite keeps beside it.

    A file that is deleted, moved or replaced stays open, and what is written to it is lost once the last process that
    has it open ends. Nor do connections that opened different files see each other's locks.

    Parameters
    ----------
    connection : sqlite3.Connection
        In its journal mode by now.
    path : Path
        As it was given, which may be a link.
    """

    __slots__ = ("_paths", "_seen")

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        connection.execute("PRAGMA schema_version").fetchall()  # reads, so that all of them are open
        real = connection.execute("PRAGMA database_list").fetchone()[2]
        self._paths = (str(path), f"{real}-wal", f"{real}-shm")
        self._seen = self._look()

    def are_in_place(self) -> bool:
        """Say whether they are still the files at their paths, and the database has not become shorter."""
        now = self._look()
        if now.database is None or now[:-1] != self._seen[:-1] or now.size < self._seen.size:
            return False
        self._seen = now
        return True

    def _look(self) -> _Seen:
        database, log, index = (_state(path, os.stat) for path in self._paths)
        link = _state(self._paths[0], os.lstat)  # beside what it points to are the other two
        size = 0 if database is None else database.st_size
        return _Seen(_mark(database), _mark(link), _mark(log), _mark(index), size)


class _Seen(NamedTuple):
    database: tuple[int, int] | None
    link: tuple[int, int] | None
    log: tuple[int, int] | None
    shared: tuple[int, int] | None
    size: int


def _state(path: str, ask: Callable[[str], os.stat_result]) -> os.stat_result | None:
    try:
        return ask(path)
    except OSError:
        return None


def _mark(state: os.stat_result | None) -> tuple[int, int] | None:
    return None if state is None else (state.st_dev, state.st_ino)
