"""The thread that sends the records of a spool to MLflow."""

from __future__ import annotations

import atexit
import logging
import math
import multiprocessing.util
import os
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cfk_plugin.errors import TrackingError, quiet
from cfk_plugin.records.outbox import Outbox, Stream, WaitingStream
from cfk_plugin.records.record import RunRecord
from cfk_plugin.records.run import LostSummaryError, OtherSettingsError, RunWriter
from cfk_plugin.records.spool import Spool, SpoolSettings

_log = logging.getLogger(__name__)

_FIRST_PAUSE = 1.0  # seconds
_LONGEST_PAUSE = 60.0
_LOOK_AROUND = 30.0  # seconds between two looks for records that ended processes left behind
_GATHER = 2.0  # seconds that records are gathered before they are sent together
_EXIT_SECONDS = 30.0  # to deliver at exit, while the server takes records
_END_SECONDS = 1.0  # for the thread to end


class Pause(NamedTuple):
    """A time in which a stream is not sent, because its server did not take the last batch."""

    seconds: float
    until: float  # by `time.monotonic`


@dataclass(slots=True, eq=False)
class Shipper:
    """Sends the streams of a spool, each in order, from a daemon thread.

    It tries again what a server does not take, for as long as the process runs.
    """

    spool: Spool
    _pauses: dict[str, Pause] = field(default_factory=dict)  # by outbox and mark of the stream
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None
    _due: float = math.inf  # when the thread has to look again
    _failed: bool = False  # a record of this process could not be sent
    _closed: bool = False
    _warned: bool = False

    def submit(self, run: RunWriter, record: RunRecord) -> None:
        """Keep a record, which the thread sends."""
        self.spool.append(run, record)
        self.wake()

    def finish(self, marks: Sequence[str]) -> None:
        """Mark the streams of this process as complete.

        Runs that were made for them end once all is delivered.
        """
        outbox = self.spool.outbox
        if outbox is not None:
            for mark in marks:
                outbox.finish(mark)
        self.wake()

    def wake(self, within: float = _GATHER) -> None:
        """Have the thread look for records after so many seconds."""
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
        with self._changed:
            self._changed.wait_for(lambda: self._failed or not self._has_unsent(), timeout=seconds)
        return not self._has_unsent()

    def drain(self) -> list[WaitingStream]:
        """Send, in this thread, whatever no running process sends; return what is left."""
        while self._round():
            pass
        return self.spool.waiting()

    def close(self, seconds: float = _EXIT_SECONDS) -> None:
        """Send what can be sent; the rest stays in the spool for a later process."""
        if self._closed:
            return
        outbox = self.spool.outbox
        if outbox is not None:  # the process ends, so no run gets more records of it
            self.finish(list(outbox.streams))
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
        if self._thread is not None:
            self._thread.join(_END_SECONDS)
        # Until a hanging server answers, no other process may send the same records.
        if self._thread is None or not self._thread.is_alive():
            self.spool.close()

    def close_inherited(self) -> None:
        """Leave all to the parent, in a forked child."""
        self._closed = True
        self.spool.close_inherited()

    def _has_unsent(self) -> bool:
        outbox = self.spool.outbox
        return outbox is not None and outbox.is_waiting

    def _work(self) -> None:
        while self._wait_until_due():
            again = False
            try:
                with quiet("sending raised {}", TrackingError, let=TrackingError):
                    again = self._round()
            except TrackingError as error:  # the spool may be back later
                self._failed = True
                _log.error("the spool cannot be sent: %s", error)
                time.sleep(_FIRST_PAUSE)
            with self._changed:
                if again:
                    self._due = 0.0
                for pause in self._pauses.values():
                    self._due = min(self._due, pause.until)
                self._changed.notify_all()

    def _wait_until_due(self) -> bool:
        """Wait until a round is due; return False if this shipper was closed."""
        with self._changed:
            while not self._closed and self._due > time.monotonic():
                self._changed.wait(self._due - time.monotonic())
            self._due = time.monotonic() + _LOOK_AROUND
            return not self._closed

    def _round(self) -> bool:
        """Send what each stream has now, unless it pauses; return True if another round is due at
        once.
        """
        again = False
        keys = set()
        with closing(self.spool.outboxes()) as outboxes:
            for outbox in outboxes:
                for mark, stream in list(outbox.streams.items()):
                    key = f"{outbox.path.name}/{mark}"
                    keys.add(key)
                    again |= self._try_to_send(outbox, stream, key)
        with self._changed:
            for key in self._pauses.keys() - keys:
                del self._pauses[key]
        return again

    def _try_to_send(self, outbox: Outbox, stream: Stream, key: str) -> bool:
        pause = self._pauses.get(key, Pause(seconds=0.0, until=0.0))
        if self._closed or pause.until > time.monotonic():
            return False
        try:
            again = self._send(outbox, stream)
        except TrackingError as error:
            seconds = min(2 * pause.seconds, _LONGEST_PAUSE) or _FIRST_PAUSE
            outbox.note_problem(stream, str(error))
            with self._changed:
                self._failed |= outbox is self.spool.outbox
                self._pauses[key] = Pause(seconds, until=time.monotonic() + seconds)
            self._warn(str(error))
            return False
        self._pauses.pop(key, None)
        self._warned = False
        return again

    def _send(self, outbox: Outbox, stream: Stream) -> bool:
        """Send the batches that a stream has now, or end a complete run; return True if the next
        attempt is for another run.
        """
        for _ in range(len(stream.segments)):
            records = outbox.batch(stream)
            if self._closed or not records:
                break
            try:
                stream.run.write(
                    records,
                    planned_before=stream.first_step,
                    plan=partial(outbox.plan, stream),
                )
            except (OtherSettingsError, LostSummaryError):
                stream.run.finish()  # no more records go to this run
                target = stream.run.target._replace(
                    run_id=None, run_name=None, parent=stream.run.run_id
                )
                outbox.redirect(stream, target)
                return True
            outbox.delivered(stream)
        if stream.finished and not stream.segments:
            stream.run.finish()
            outbox.forget(stream)
        return False

    def _warn(self, problem: str) -> None:
        if not self._warned:
            _log.warning(
                "%s; records wait in %s and are sent again later",
                problem,
                self.spool.settings.folder,
            )
            self._warned = True


_shippers: dict[Path, Shipper] = {}  # of this process, by the folder of the spool


def shipper(folder: Path | None = None) -> Shipper:
    """Return the shipper of a spool folder in this process; its work at exit is registered."""
    settings = SpoolSettings.of(folder)
    created = Shipper(Spool(settings))
    registered = _shippers.setdefault(settings.folder, created)
    if registered is created:
        atexit.register(created.close)
        # such a process ends without running `atexit`
        if multiprocessing.parent_process() is not None:
            multiprocessing.util.Finalize(None, created.close, exitpriority=1)
    return registered


def _begin_in_child() -> None:
    """Let a forked child begin with an outbox of its own."""
    for inherited in _shippers.values():
        inherited.close_inherited()
    _shippers.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_begin_in_child)
