"""The journal: a file with the records that MLflow does not have yet, one JSON object on each line.

`cfk track` sends the records of a journal later. In a server, a thread sends them.
"""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from cfk_plugin.errors import CFKError, InputError, TrackingError, quiet
from cfk_plugin.tracking.record import RunRecord
from cfk_plugin.tracking.run import RunTarget, RunWriter

JOURNAL = "cfk-journal.jsonl"
"""The default path of the journal, in the working folder."""
JOURNAL_VERSION = 1

_BATCH_SIZE = 100  # records that are sent together
_PAUSES = (1.0, 60.0)  # seconds: the first pause after a failure, and the longest
_log = logging.getLogger("cfk_plugin")

Line = tuple[RunTarget, RunRecord]


@dataclass(slots=True)
class Delivery:
    """The numbers of delivered and waiting records of a journal, and the problems."""

    n_delivered: int = 0
    n_waiting: int = 0
    problems: dict[str, str] = field(default_factory=dict)  # message by job
    unreadable: list[int] = field(default_factory=list)  # numbers of lines, from 1

    @property
    def is_complete(self) -> bool:
        return not self.n_waiting and not self.unreadable


def append(path: Path, target: RunTarget, record: RunRecord) -> None:
    """Add a record to a journal, and force it to disk.

    Raises
    ------
    TrackingError
        If the file cannot be written.
    """
    content = {
        "schema_version": JOURNAL_VERSION,
        "target": target._asdict(),
        "record": record.to_dict(),
    }
    line = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    try:
        with open(path, "a+b", buffering=0, opener=_open_private) as file:
            if _ends_within_line(file):
                line = b"\n" + line
            start = file.seek(0, os.SEEK_END)
            try:
                # One call, so that lines of several processes cannot mix.
                n_written = file.write(line)
                if n_written != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError:
                _cut(file, start, len(line))
                raise
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise TrackingError(f"the journal {path} cannot be written ({reason})") from None


def send(path: Path, writers: dict[str, RunWriter] | None = None) -> Delivery:
    """Log all records of a journal; the file is not changed.

    A record that is sent twice is counted once. If MLflow does not accept a record, the later
    records of its job wait too. `writers` contains the writers of earlier files by job, and gets
    new ones.
    """
    delivery = Delivery()
    writers = {} if writers is None else writers
    try:
        with path.open("rb") as file:
            for lines in _batches(_read(file, delivery)):
                _deliver(lines, writers, delivery)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    return delivery


def _deliver(lines: list[Line], writers: dict[str, RunWriter], delivery: Delivery) -> None:
    """Send records of one job, and count them in `delivery`."""
    target = lines[0][0]
    if target.job not in delivery.problems:
        writer = writers.setdefault(target.job, RunWriter(target))
        try:
            writer.write([record for _, record in lines])
        except TrackingError as error:
            delivery.problems[target.job] = str(error)
    if target.job in delivery.problems:
        delivery.n_waiting += len(lines)
    else:
        delivery.n_delivered += len(lines)


def _batches(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yield consecutive lines of one job together, in batches of limited size."""
    for _, of_job in groupby(lines, key=lambda line: line[0].job):
        batch: list[Line] = []
        for line in of_job:
            batch.append(line)
            if len(batch) == _BATCH_SIZE:
                yield batch
                batch = []
        if batch:
            yield batch


def _read(file: io.BufferedIOBase, delivery: Delivery) -> Iterator[Line]:
    """Yield the lines of a journal; add the numbers of unreadable lines to `delivery`."""
    for number, text in enumerate(file, start=1):
        try:
            content = json.loads(text)
            if content["schema_version"] != JOURNAL_VERSION:
                raise ValueError("the line has another version")
            line = RunTarget(**content["target"]), RunRecord(**content["record"])
        except (ValueError, KeyError, TypeError):
            delivery.unreadable.append(number)
            continue
        yield line


def _open_private(path: str, flags: int) -> int:
    """Open a file so that only its owner may read it: it contains exact counts of people."""
    return os.open(path, flags, 0o600)


def _cut(file: io.FileIO, start: int, length: int) -> None:
    """Remove a line that is not surely on disk, unless another process has written after it."""
    with suppress(OSError):
        if file.seek(0, os.SEEK_END) <= start + length:
            file.truncate(start)


def _ends_within_line(file: io.FileIO) -> bool:
    """Return True if the last line is incomplete, after a crash or on a full disk."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return False
    file.seek(size - 1)
    return file.read(1) != b"\n"


class Sender:
    """A journal of this process with a thread that sends its records and then deletes the file.

    Parameters
    ----------
    path : Path
        The journal; no other process may write to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # The thread renames the file before it sends, so that the file does not grow meanwhile.
        self._taken = path.with_stem(f"{path.stem}-taken")
        self._lock = threading.Lock()  # of the file
        self._wakes = threading.Event()
        self._thread: threading.Thread | None = None
        self._writers: dict[str, RunWriter] = {}
        self._is_failing = False

    def append(self, target: RunTarget, record: RunRecord) -> None:
        """Add a record to the journal and wake the thread; raises as the function `append`."""
        with self._lock:
            append(self._path, target, record)
            if self._thread is None:
                self._thread = self._started()
        self._wakes.set()

    def _started(self) -> threading.Thread | None:
        """Start and return the thread, or None if the process cannot start a thread now."""
        # A daemon, so that the process can end although MLflow may wait for minutes.
        thread = threading.Thread(target=self._run, name="cfk-track", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            _log.warning("no thread can send the records in %s (%s)", self._path.parent, error)
            return None
        return thread

    def _run(self) -> None:
        """Send the journal each time that a record is added; after a failure, wait and repeat."""
        pause, longest = _PAUSES
        while True:
            self._wakes.wait()
            self._wakes.clear()
            try:
                self._send()
            except CFKError as error:
                self._announce(error)
                time.sleep(pause)
                pause = min(2 * pause, longest)
                self._wakes.set()
            else:
                pause = _PAUSES[0]
                self._is_failing = False

    def _send(self) -> None:
        """Send the records of the journal; raise a `CFKError` if some of them must wait."""
        with quiet("the journal cannot be sent ({})", TrackingError, let=CFKError):
            with self._lock:
                if not self._taken.exists() and self._path.exists():
                    self._path.replace(self._taken)
            if not self._taken.exists():
                return
            delivery = send(self._taken, self._writers)
            if delivery.n_waiting:
                raise TrackingError("; ".join(dict.fromkeys(delivery.problems.values())))
            self._taken.unlink()
            if self._path.exists():  # a record was added meanwhile
                self._wakes.set()

    def _announce(self, error: CFKError) -> None:
        if not self._is_failing:
            self._is_failing = True
            _log.warning("%s; records wait in %s and are sent later", error, self._path.parent)
