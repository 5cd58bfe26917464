"""The spool: a folder on local disk with records, from before an explanation leaves until MLflow
has them.

Each process has a folder of its own in it, see `cfk_plugin.records.outbox`.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from cfk_plugin.errors import InputError
from cfk_plugin.records.keys import create_once, state_folder, sync_folder
from cfk_plugin.records.outbox import (
    FULL,
    Outbox,
    SpoolError,
    WaitingStream,
    close_file,
    guarded,
    is_at,
    outboxes_in,
    spool_is_gone,
    waiting_in,
)
from cfk_plugin.records.record import RunRecord
from cfk_plugin.records.run import RunWriter

_log = logging.getLogger(__name__)

SPOOL_VERSION = 1

MOST_BYTES = 1_024_000_000
"""Room that a spool may take: a server that is down must not fill the disk."""

_ON_FULL = "CFK_SPOOL_FULL"
_CHOICES = ("withhold", "release")  # the first is the default
_VERSION_FILE = "spool.json"
_BEFORE_RELEASE = "spool.db"  # a spool of an unreleased version
_HAS_LOCKS = os.name == "posix"


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """Settings of a spool. They are the operator's, so they come from the environment."""

    folder: Path  # ``CFK_SPOOL``
    on_full: str = _CHOICES[0]  # ``CFK_SPOOL_FULL``: what to do when no record can be kept

    @classmethod
    def of(cls, folder: Path | None = None) -> SpoolSettings:
        """Read the settings; `folder` takes the place of the one in the environment."""
        on_full = os.environ.get(_ON_FULL) or _CHOICES[0]
        if on_full not in _CHOICES:
            raise InputError(f"{_ON_FULL} is {on_full!r}; it must be {' or '.join(_CHOICES)}")
        if folder is None:
            folder = spool_folder()
        return cls(_absolute(folder), on_full)


@cache
def _absolute(folder: Path) -> Path:
    """Return the folder that a path led to when this process first used it.

    So a relative path names the same spool after a change of the working folder.
    """
    return folder.absolute()


def spool_folder() -> Path:
    """Return the folder that the environment names, or the user's own."""
    chosen = os.environ.get("CFK_SPOOL")
    if chosen:
        return Path(chosen)
    return state_folder() / "spool"


def exists(folder: Path) -> bool:
    """Return True if there is a spool in this folder, of whatever version."""
    return (folder / _VERSION_FILE).exists() or _has_records(folder)


def _has_records(folder: Path) -> bool:
    return (folder / _BEFORE_RELEASE).exists() or any(folder.glob("outbox-*"))


@dataclass(slots=True, eq=False)
class Spool:
    """A folder with records that wait for MLflow, which processes share. Thread-safe.

    A record is on disk before its explanation leaves, and is deleted after MLflow has taken it.
    Neither a killed process nor a power cut loses a record.

    The folder is made on first use. After that, no other is accepted in its place: when the folder
    is deleted, moved or replaced, nothing more is kept until it is back. What this process has kept
    is still sent meanwhile.
    """

    settings: SpoolSettings
    _folder: int | None = None  # descriptor of the open folder
    _outbox: Outbox | None = None  # of this process, from its first record on
    _left_behind: list[Outbox] = field(default_factory=list)  # that `outboxes` has locked
    _closed: bool = False
    _unopened: set[str] = field(default_factory=set)  # outboxes that a warning has named
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def outbox(self) -> Outbox | None:
        """What this process has kept; None before its first record."""
        return self._outbox

    def append(self, run: RunWriter, record: RunRecord) -> None:
        """Keep a record.

        Raises
        ------
        SpoolError
            If it cannot be kept.
        """
        content = record.to_json().encode()
        self.check(len(content))
        with guarded(self._lock):
            if self._outbox is None:
                self._outbox = Outbox.create(self.settings.folder, self._opened())
            self._outbox.append(run, content)

    def check(self, n_bytes: int = 0) -> None:
        """Raise `SpoolError` if the spool cannot be opened or written, or lacks room for so many
        bytes.
        """
        with guarded(self._lock):
            folder = self._opened()
            path = self.settings.folder
            if not is_at(path, folder) or not (path / _VERSION_FILE).exists():
                raise spool_is_gone(path)
            if not os.access(path, os.W_OK | os.X_OK):
                raise PermissionError
            disk = os.fstatvfs(folder)
            free_bytes = disk.f_bavail * disk.f_frsize
            if n_bytes > free_bytes or n_bytes + _size_of(path) > MOST_BYTES:
                raise SpoolError(FULL)

    def outboxes(self) -> Generator[Outbox]:
        """Yield the outbox of this process, and then one by one those of processes that have ended.

        The latter are locked until the next one is asked for. One that cannot be opened, such as
        another user's, keeps no other back.
        """
        if self._outbox is not None:
            yield self._outbox
        with guarded(self._lock):
            folder = self._opened()
            names = outboxes_in(folder)
        # The outbox of this process is among the names, too. Its own lock refuses it.
        for name in names:
            left_behind = self._take_over(folder, name)
            if left_behind is not None:
                self._left_behind.append(left_behind)
                try:
                    yield left_behind
                finally:
                    self._leave(left_behind, folder)

    def _take_over(self, folder: int, name: str) -> Outbox | None:
        """Lock an outbox; return None if its process still runs, or if it cannot be opened."""
        try:
            with guarded(self._lock):
                return Outbox.take_over(self.settings.folder, folder, name)
        except SpoolError as error:
            if name not in self._unopened:
                self._unopened.add(name)
                path = self.settings.folder / name
                _log.warning("the records in %s cannot be sent: %s", path, error)
            return None

    def _leave(self, left_behind: Outbox, folder: int) -> None:
        """Release an outbox that `outboxes` has locked, and remove it if all was delivered."""
        if left_behind not in self._left_behind:
            return  # its files are closed already, as in a forked child
        try:
            left_behind.remove_if_empty(folder)
        finally:
            self._left_behind.remove(left_behind)
            left_behind.close()

    def waiting(self) -> list[WaitingStream]:
        """Return the streams of all processes that have records to send, or a problem."""
        streams: list[WaitingStream] = []
        with guarded(self._lock):
            names = outboxes_in(self._opened())
        for name in names:
            try:
                streams += waiting_in(self.settings.folder / name)
            except FileNotFoundError:
                continue  # its last record was delivered a moment ago
            except OSError as error:
                problem = f"{name} cannot be read ({type(error).__name__})"
                streams.append(WaitingStream(name, problem=problem))
        return streams

    def close(self) -> None:
        """Leave what still waits to other processes, as the process ends.

        Nothing is kept after that. Further records of a run could be sent together with those that
        were left to others, and so be counted wrongly.
        """
        with guarded(self._lock):
            if self._outbox is not None:
                self._outbox.remove_if_empty(self._opened())
            self._close_files()
            self._closed = True

    def close_inherited(self) -> None:
        """Close the files of the parent in a forked child, so that locks end with the parent."""
        # Another thread of the parent may have had the lock. No such thread is in this process.
        self._lock = threading.RLock()
        self._close_files()

    def _close_files(self) -> None:
        if self._outbox is not None:
            self._outbox.close()
            self._outbox = None
        while self._left_behind:
            self._left_behind.pop().close()
        if self._folder is not None:
            close_file(self._folder)
            self._folder = None

    def _opened(self) -> int:
        if self._closed:
            raise SpoolError("the process is ending, and keeps no more records")
        if self._folder is None:
            _prepare(self.settings.folder)
            self._folder = os.open(self.settings.folder, os.O_RDONLY | os.O_DIRECTORY)
        return self._folder


def _prepare(folder: Path) -> None:
    """Make a spool if there is none; raise `SpoolError` for one of another version."""
    if not _HAS_LOCKS:
        raise SpoolError(
            "records cannot be kept, as the spool needs a POSIX system, such as Linux or macOS; log"
            " explanations with their method log"
        )
    _make_folder(folder)
    # A new spool has its version before its first outbox, so the version is read last.
    has_records = _has_records(folder)
    version = _version_of(folder)
    if version is None and not has_records:
        _log.warning(
            "there was no spool in %s; a new one is made, and no earlier record is in it", folder
        )
        content = json.dumps({"schema_version": SPOOL_VERSION}).encode()
        create_once(folder / _VERSION_FILE, content)
        version = _version_of(folder)
    if version != SPOOL_VERSION:
        raise SpoolError(
            f"the spool in {folder} was written by another version of cfk_plugin; send its records"
            " with that version, or name another folder in CFK_SPOOL"
        )


def _make_folder(folder: Path) -> None:
    """Make a folder, and those that lead to it, so that they survive a power cut."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)


def _version_of(folder: Path) -> int | None:
    """Return the version of a spool: None if it does not say one, 0 if that is damaged."""
    try:
        return int(json.loads((folder / _VERSION_FILE).read_bytes())["schema_version"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return 0


def _size_of(folder: Path) -> int:
    """Return how many bytes the records in a spool take."""
    n_bytes = 0
    for outbox in folder.glob("outbox-*"):
        n_bytes += _size_of_outbox(outbox)
    return n_bytes


def _size_of_outbox(outbox: Path) -> int:
    n_bytes = 0
    # Its process may remove it meanwhile, and another user's cannot be listed.
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        for path in outbox.iterdir():
            with suppress(FileNotFoundError):  # its process deletes what it has delivered
                n_bytes += path.stat().st_size
    return n_bytes
