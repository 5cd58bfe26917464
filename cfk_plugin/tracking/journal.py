"""The journal: a file with the records that MLflow did not take, one JSON object on each line.

A record in it is what a run would have had. `cfk track` sends the records later.
"""

from __future__ import annotations

import errno
import io
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from cfk_plugin.errors import InputError, TrackingError
from cfk_plugin.tracking.record import RunRecord
from cfk_plugin.tracking.run import RunTarget, RunWriter

JOURNAL = "cfk-journal.jsonl"
"""Path of the journal, unless another one is given: in the working folder."""
JOURNAL_VERSION = 1


@dataclass(slots=True)
class Delivery:
    """How many records of a journal are in MLflow, and why the others are not."""

    n_delivered: int = 0
    n_waiting: int = 0
    problems: dict[str, str] = field(default_factory=dict)  # by the target of the records
    unreadable: list[int] = field(default_factory=list)  # numbers of lines, from 1

    @property
    def is_complete(self) -> bool:
        return not self.n_waiting and not self.unreadable


def append(path: Path, target: RunTarget, record: RunRecord) -> None:
    """Add a record to a journal, and force it to disk.

    Raises
    ------
    TrackingError
        If this is not possible. An unfinished line may then be in the file, which is never sent.
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
            # One call, so that lines of several processes do not mix.
            n_written = file.write(line)
            if n_written != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise TrackingError(f"the journal {path} cannot be written ({reason})") from None


def send(path: Path) -> Delivery:
    """Log all records of a journal, in order; a run counts a record once, however often it is sent.

    If a run does not take a record, the later records of the run wait with it. The file stays as it
    is.
    """
    delivery = Delivery()
    writers: dict[str, RunWriter] = {}
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    target, record = _read_line(line)
                except (ValueError, KeyError, TypeError):
                    delivery.unreadable.append(number)
                    continue
                key = json.dumps(target)
                writer = writers.setdefault(key, RunWriter(target))
                _deliver(writer, record, key, delivery)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    return delivery


def _deliver(writer: RunWriter, record: RunRecord, key: str, delivery: Delivery) -> None:
    if key not in delivery.problems:
        try:
            writer.deliver(record)
        except TrackingError as error:
            delivery.problems[key] = str(error)
    if key in delivery.problems:
        delivery.n_waiting += 1
    else:
        delivery.n_delivered += 1


def _read_line(line: bytes) -> tuple[RunTarget, RunRecord]:
    content = json.loads(line)
    if content["schema_version"] != JOURNAL_VERSION:
        raise ValueError("the line was written by another version")
    return RunTarget(**content["target"]), RunRecord(**content["record"])


def _open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read: it has exact counts of the training table."""
    return os.open(path, flags, 0o600)


def _ends_within_line(file: io.FileIO) -> bool:
    """Return True if a process ended, or a disk was full, before a line was written to its end."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return False
    file.seek(size - 1)
    return file.read(1) != b"\n"
