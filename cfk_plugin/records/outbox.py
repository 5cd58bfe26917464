"""The outbox of a process: a folder of the spool with the records that this process has kept."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path

from cfk_plugin.errors import TrackingError
from cfk_plugin.records.record import RunRecord
from cfk_plugin.records.run import RunTarget, RunWriter

_NAME = re.compile(r"outbox-\d{13}-[0-9a-f]{8}")
_SEGMENT = re.compile(r"(?P<mark>.+)-(?P<created>\d{13})(-from-(?P<first_step>\d+))?\.jsonl")
_STREAM = ".json"
_DRAFT = "draft"  # of the file of a stream
_DAMAGES = (ValueError, KeyError, TypeError)  # raised for a file that is not as it was written
_SEGMENT_BYTES = 4_000_000  # of records that are logged together; a larger record is logged alone
FULL = "the spool is full, or its disk is; make room, or bring the tracking server back"


class SpoolError(TrackingError):
    """The spool cannot be used: it or its disk is full, its folder cannot be written, or it is
    gone.
    """


def spool_is_gone(folder: Path) -> SpoolError:
    return SpoolError(
        f"the spool in {folder} is gone, or another is in its place; put it back, or start the"
        " process anew"
    )


@contextmanager
def guarded(lock: threading.RLock) -> Iterator[None]:
    """Let one thread in at a time, and raise what the operating system refuses as `SpoolError`."""
    with lock:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise SpoolError(FULL) from None
            raise SpoolError(
                f"the spool cannot be used ({type(error).__name__}); check its folder, which"
                " CFK_SPOOL names"
            ) from None


def is_at(path: Path, file: int) -> bool:
    """Return True if a path leads to the file or folder that is open with this descriptor."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except (FileNotFoundError, NotADirectoryError):
        return False


def close_file(file: int) -> None:
    """Close a file that is open with this descriptor.

    In a forked child, a thread of the parent may just have closed it. The other files have to be
    closed all the same.
    """
    with suppress(OSError):
        os.close(file)


@dataclass(slots=True, eq=False)
class Segment:
    """A file with records of one stream, one record on each line. They are logged together.

    The name of the file tells all of this. So the place in the run can be stored on a full disk,
    where no file can be written, but a file can be renamed.
    """

    mark: str  # of the stream
    created: int  # when its first record was kept: milliseconds since 1970
    first_step: int | None = None  # its place in the run, once it is on its way
    # The file stays open as long as its records wait: it can be read even after it was deleted.
    file: int | None = None

    @classmethod
    def from_name(cls, name: str) -> Segment | None:
        """Return the segment with this file name; None if it is the name of another file."""
        match = _SEGMENT.fullmatch(name)
        if match is None:
            return None
        segment = cls(match["mark"], int(match["created"]))
        if match["first_step"] is not None:
            segment.first_step = int(match["first_step"])
        return segment

    @property
    def name_without_place(self) -> str:
        """The beginning of the name, which stays when the place in the run is stored."""
        return f"{self.mark}-{self.created:013d}"

    @property
    def name(self) -> str:
        name = self.name_without_place
        if self.first_step is not None:
            name = f"{name}-from-{self.first_step}"
        return f"{name}.jsonl"

    def open(self, folder: int, flags: int = 0) -> int:
        """Open the file for reading and appending, and return its descriptor."""
        if self.file is None:
            self.file = os.open(
                self.name, os.O_RDWR | os.O_APPEND | flags, mode=0o600, dir_fd=folder
            )
        return self.file

    def read(self, folder: int) -> list[bytes]:
        """Return the lines of the file, without an unfinished one at its end.

        The process that wrote an unfinished line ended, or refused the record.
        """
        file = self.open(folder)
        content = os.pread(file, os.fstat(file).st_size, 0)
        return content.split(b"\n")[:-1]

    def close(self) -> None:
        if self.file is not None:
            close_file(self.file)
            self.file = None


@dataclass(slots=True, eq=False)
class Stream:
    """The records of one run that MLflow does not have yet."""

    run: RunWriter
    finished: bool = False  # no more records will come
    problem: str | None = None  # why the last attempt to send failed
    segments: list[Segment] = field(default_factory=list)  # oldest first
    growing: Segment | None = None  # the segment that the next record is added to

    @classmethod
    def from_json(cls, mark: str, text: bytes) -> Stream:
        """Return the stream that a file describes; a damaged one raises one of `_DAMAGES`."""
        fields = json.loads(text)
        return cls(RunWriter(RunTarget(**fields["target"]), mark), problem=fields["problem"])

    def to_json(self) -> bytes:
        # The id of a new run is not stored: the run is found by the stream's mark.
        fields = {"target": self.run.target._asdict(), "problem": self.problem}
        return json.dumps(fields).encode()

    @property
    def is_waiting(self) -> bool:
        """Whether there are records to send, or a run to end."""
        return bool(self.segments) or self.finished

    @property
    def first_step(self) -> int | None:
        """The place of the oldest segment in the run, if an earlier attempt has planned it."""
        if not self.segments:
            return None
        return self.segments[0].first_step


@dataclass(frozen=True, slots=True)
class WaitingStream:
    """A stream as an operator sees it."""

    mark: str  # or the name of an outbox that cannot be read
    n_records: int = 0
    n_bytes: int = 0
    oldest: int | None = None  # when its oldest record was kept: milliseconds since 1970
    problem: str | None = None


@dataclass(slots=True, eq=False)
class Outbox:
    """The records that one process has kept. Thread-safe.

    The process that has the lock of the folder sends the records. This is the process that made
    the folder. After it has ended, another process may take the lock. All access is through the
    open folder, so that records are sent and deleted in a folder that was moved meanwhile, too.
    """

    path: Path
    folder: int  # descriptor of the open folder, which has the lock
    streams: dict[str, Stream] = field(default_factory=dict)  # by mark
    lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def create(cls, spool: Path, spool_folder: int) -> Outbox:
        """Make the outbox of this process, and lock it."""
        folder = None
        while folder is None:  # another process may lock the new folder, and remove it as empty
            # In the order of names, the oldest is first.
            name = f"outbox-{_milliseconds():013d}-{secrets.token_hex(4)}"
            os.mkdir(name, 0o700, dir_fd=spool_folder)
            folder = _lock(name, spool_folder)
        os.fsync(spool_folder)
        return cls(spool / name, folder)

    @classmethod
    def take_over(cls, spool: Path, spool_folder: int, name: str) -> Outbox | None:
        """Lock the outbox of a process that has ended; return None if its process still runs."""
        folder = _lock(name, spool_folder)
        if folder is None:
            return None
        outbox = cls(spool / name, folder)
        try:
            outbox._read()
        except BaseException:
            os.close(folder)
            raise
        return outbox

    @property
    def is_waiting(self) -> bool:
        """Whether there are records to send, or runs to end."""
        with self.lock:
            return any(stream.is_waiting for stream in self.streams.values())

    def append(self, run: RunWriter, record: bytes) -> None:
        """Force a record to disk, as the last one of its stream."""
        with guarded(self.lock):
            stream = self._open_stream(run)
            line = record + b"\n"
            segment = self._open_segment(stream, len(line))
            file = segment.open(self.folder)
            size = os.fstat(file).st_size
            try:
                _write(file, line)
                os.fsync(file)
                if size == 0:
                    os.fsync(self.folder)
                if not is_at(self.path / segment.name, file):
                    raise spool_is_gone(self.path.parent)
            except BaseException:
                # The caller takes the record as refused, so nothing of it may be sent.
                try:
                    os.ftruncate(file, size)
                except OSError:
                    stream.growing = None  # no record may follow a part of another one
                raise

    def batch(self, stream: Stream) -> list[RunRecord]:
        """Return the next records of a stream, the same ones until they are `delivered`."""
        with guarded(self.lock):
            while stream.segments:
                segment = stream.segments[0]
                if segment is stream.growing:
                    stream.growing = None  # later records belong to a later batch
                lines = segment.read(self.folder)
                if lines:
                    return [self._record_of(line, segment) for line in lines]
                self._delete_batch(stream)
            return []

    def plan(self, stream: Stream, first_step: int) -> None:
        """Store the place of a batch in its run, before anything of it is sent."""
        with guarded(self.lock):
            self._place_batch(stream, first_step)

    def redirect(self, stream: Stream, target: RunTarget) -> None:
        """Send the next batch, and all after it, to another run."""
        with guarded(self.lock):
            self._place_batch(stream, None)
            stream.run = RunWriter(target, stream.run.mark)
            self._note(stream)

    def delivered(self, stream: Stream) -> None:
        """Delete the batch that was sent.

        A power cut may bring the file back. Its name then tells that it was sent before.
        """
        with guarded(self.lock):
            self._delete_batch(stream)
        if stream.problem is not None:
            self.note_problem(stream, None)

    def note_problem(self, stream: Stream, problem: str | None) -> None:
        """Store why a batch could not be sent; None once it was."""
        with guarded(self.lock):
            stream.problem = problem
            self._note(stream)

    def finish(self, mark: str) -> None:
        """Mark a stream as complete."""
        with guarded(self.lock):
            stream = self.streams.get(mark)
            if stream is not None:
                stream.finished = True

    def forget(self, stream: Stream) -> None:
        """Drop a stream that is finished and delivered."""
        with guarded(self.lock):
            if stream.finished and not stream.segments:
                self._delete(f"{stream.run.mark}{_STREAM}")
                del self.streams[stream.run.mark]

    def remove_if_empty(self, spool_folder: int) -> None:
        """Remove the folder if nothing is in it but an unfinished draft."""
        with guarded(self.lock):
            if not self.streams:
                self._delete(_DRAFT)
                with suppress(OSError):  # a folder with a damaged file stays
                    os.rmdir(self.path.name, dir_fd=spool_folder)

    def close(self) -> None:
        """Close all files. The lock is released where no other process has the folder open."""
        close_file(self.folder)
        for stream in self.streams.values():
            for segment in stream.segments:
                segment.close()
        self.streams.clear()

    def _read(self) -> None:
        """Read what an ended process has left."""
        names = _names_in(self.folder)
        for name in names:
            if name.endswith(_STREAM):
                self._read_stream(name)
        for name in names:
            segment = Segment.from_name(name)
            if segment is not None and segment.mark in self.streams:
                self.streams[segment.mark].segments.append(segment)

    def _read_stream(self, name: str) -> None:
        file = os.open(name, os.O_RDONLY, dir_fd=self.folder)
        try:
            text = os.pread(file, os.fstat(file).st_size, 0)
        finally:
            os.close(file)
        mark = name.removesuffix(_STREAM)
        # Records of a damaged stream stay, see `waiting_in`.
        with suppress(*_DAMAGES):
            self.streams[mark] = Stream.from_json(mark, text)
            self.streams[mark].finished = True  # its process has ended

    def _open_stream(self, run: RunWriter) -> Stream:
        stream = self.streams.get(run.mark)
        if stream is None:
            stream = Stream(run)
            self._store(stream)
            self.streams[run.mark] = stream
        stream.finished = False
        return stream

    def _open_segment(self, stream: Stream, n_bytes: int) -> Segment:
        """Return the segment that the next record is added to."""
        segment = stream.growing
        if segment is not None:
            size = os.fstat(segment.open(self.folder)).st_size
            if size == 0 or size + n_bytes <= _SEGMENT_BYTES:
                return segment
        created = _milliseconds()
        if stream.segments:  # a later file has a later name, also after the clock was set back
            created = max(created, stream.segments[-1].created + 1)
        segment = Segment(stream.run.mark, created)
        segment.open(self.folder, os.O_CREAT | os.O_EXCL)
        stream.segments.append(segment)
        stream.growing = segment
        return segment

    def _record_of(self, line: bytes, segment: Segment) -> RunRecord:
        try:
            return RunRecord.from_json(line.decode())
        except _DAMAGES:
            raise SpoolError(
                f"a record in {self.path.name}/{segment.name} is damaged; correct or delete the"
                " line"
            ) from None

    def _place_batch(self, stream: Stream, first_step: int | None) -> None:
        """Store the place of a batch in its run; None removes a place that was stored before."""
        segment = stream.segments[0]
        placed = replace(segment, first_step=first_step)
        with suppress(FileNotFoundError):  # a file that somebody deleted is sent all the same
            os.rename(segment.name, placed.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        segment.first_step = first_step
        os.fsync(self.folder)

    def _delete_batch(self, stream: Stream) -> None:
        segment = stream.segments[0]
        self._delete(segment.name)
        # Only now, as a file that could not be deleted has to be deleted by the next attempt.
        del stream.segments[0]
        segment.close()

    def _delete(self, name: str) -> None:
        with suppress(FileNotFoundError):  # somebody deleted the spool
            os.unlink(name, dir_fd=self.folder)

    def _note(self, stream: Stream) -> None:
        """Store what is known of a stream, if that is possible.

        Without it nothing is lost or sent twice: the run is found again by the stream's mark. So a
        full disk does not keep records from being sent, which makes room.
        """
        with suppress(OSError):
            self._store(stream)

    def _store(self, stream: Stream) -> None:
        file = os.open(
            _DRAFT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode=0o600, dir_fd=self.folder
        )
        try:
            _write(file, stream.to_json())
            os.fsync(file)
        finally:
            os.close(file)
        name = f"{stream.run.mark}{_STREAM}"
        os.rename(_DRAFT, name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        os.fsync(self.folder)


def outboxes_in(spool_folder: int) -> list[str]:
    """Return the names of the outboxes in the open folder of a spool, oldest first."""
    return [name for name in _names_in(spool_folder) if _NAME.fullmatch(name)]


def waiting_in(outbox: Path) -> Iterator[WaitingStream]:
    """Yield the streams of an outbox that wait, without locking it."""
    names = {path.name for path in outbox.iterdir()}
    segments_of_streams: dict[str, list[Segment]] = {}
    for name in sorted(names):
        segment = Segment.from_name(name)
        if segment is not None:
            segments_of_streams.setdefault(segment.mark, []).append(segment)
        elif name.endswith(_STREAM):
            segments_of_streams.setdefault(name.removesuffix(_STREAM), [])
    for mark, segments in segments_of_streams.items():
        n_records = 0
        n_bytes = 0
        for segment in segments:
            content = _content_of(outbox, segment)
            n_records += content.count(b"\n")
            n_bytes += len(content)
        name = f"{mark}{_STREAM}"
        try:
            problem = Stream.from_json(mark, (outbox / name).read_bytes()).problem
        except FileNotFoundError:
            if name in names:
                continue  # all of the stream was delivered a moment ago
            problem = f"{outbox.name}/{name} is missing"
        except _DAMAGES:
            problem = f"{outbox.name}/{name} is damaged"
        if n_records or problem is not None:
            oldest = min((segment.created for segment in segments), default=None)
            yield WaitingStream(mark, n_records, n_bytes, oldest, problem)


def _content_of(outbox: Path, segment: Segment) -> bytes:
    """Read the records of a segment; there are none if it was delivered meanwhile."""
    with suppress(FileNotFoundError):
        return (outbox / segment.name).read_bytes()
    # Its process may have renamed it: the end of the name tells its place in the run.
    start = segment.name_without_place
    for path in outbox.glob(f"{escape(start)}*"):
        with suppress(FileNotFoundError):
            return path.read_bytes()
    return b""


def _names_in(folder: int) -> list[str]:
    return sorted(os.listdir(folder))


def _lock(name: str, spool_folder: int) -> int | None:
    """Open and lock an outbox; return None if another process has its lock, or has removed it.

    The kernel releases the lock when the last process that has the folder open ends.
    """
    import fcntl  # not on Windows, where all else of this package works

    try:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=spool_folder)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(name, dir_fd=spool_folder)
    except (BlockingIOError, FileNotFoundError):
        os.close(folder)
        return None
    return folder


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def _write(file: int, content: bytes) -> None:
    """Write all of it; the operating system may write less at once."""
    while content:
        content = content[os.write(file, content) :]
