"""The thread that sends what is in the spool, so that whoever keeps a record waits for no server."""

from __future__ import annotations

import atexit
import logging
import multiprocessing.util
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cfk_plugin.errors import TrackingError, quiet
from cfk_plugin.records.run import OtherSettingsError, RunWriter
from cfk_plugin.records.spool import Spool, SpoolSettings, Stream, Waiting, this_process

if TYPE_CHECKING:
    from pathlib import Path

    from cfk_plugin.records.record import RunRecord

_log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_HEARTBEAT = 30.0  # seconds between two looks for streams that another process left behind
_GATHER = 2.0  # seconds that records are gathered before they are sent, as every sending has its price
_EXIT_SECONDS = 30.0  # to deliver at exit, while the server takes records


@dataclass(slots=True, eq=False)
class Shipper:
    """Sends the streams of a spool, each in order, from a daemon thread.

    A stream that cannot be sent is tried again after a growing pause, for as long as it takes; nothing is dropped.
    """

    spool: Spool
    _runs: dict[str, RunWriter] = field(default_factory=dict)
    _own: set[str] = field(default_factory=set)  # streams that this process has added to
    _pauses: dict[str, tuple[float, float]] = field(default_factory=dict)  # of a stream: until when, and how long
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None
    _work_to_do: bool = False
    _urgent: bool = False  # somebody waits, or too much does
    _rounds: int = 0
    _failed: bool = False
    _closed: bool = False
    _warned: bool = False

    def submit(self, stream: str, target: Mapping[str, Any], run: RunWriter, record: RunRecord) -> None:
        self.spool.append(stream, target, run.run_id, record)
        self._own.add(stream)
        self._runs.setdefault(stream, run)
        self.wake()

    def finish(self, streams: Sequence[str]) -> None:
        """Note that these streams are complete: runs that were made for them end when all is delivered."""
        self.spool.finish(streams)
        self.wake()

    def wake(self) -> None:
        with self._changed:
            self._work_to_do = True
            if not self._closed and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._work, name="cfk-tracking", daemon=True)
                with suppress(RuntimeError):  # the interpreter is ending: what is kept, a later process sends
                    self._thread.start()
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Send what this process has kept; return False when `seconds` are over or a server does not take it."""
        with self._changed:
            self._pauses.clear()
            before, self._failed, self._urgent = self._rounds, False, True
        self.wake()

        try:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._rounds > before and (self._failed or not self._waiting()), timeout=seconds
                )
            return not self._waiting()
        except TrackingError as error:
            _log.warning("%s", error)
            return False

    def drain(self) -> list[Waiting]:
        """Send, in this thread, what no running process sends; return what is left."""
        self._work_to_do = True
        while self._work_to_do:
            self._work_to_do = False
            self._round()
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
                "tracking records were not delivered; they are in %s, and `cfk spool flush` sends them",
                self.spool.settings.folder,
            )
        self.spool.close()

    def _waiting(self) -> list[Waiting]:
        return [stream for stream in self.spool.waiting() if stream.id in self._own]

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._work_to_do or self._closed, timeout=self._rest())
                self._changed.wait_for(lambda: self._urgent or self._closed, timeout=_GATHER)
                if self._closed:
                    return
                self._work_to_do = False
            try:
                with quiet("sending raised {}", TrackingError, let=TrackingError):
                    self._round()
            except TrackingError as error:  # the spool may be back later
                self._failed = True
                _log.error("the spool cannot be sent: %s", error)
                time.sleep(_FIRST_PAUSE)
            with self._changed:
                self._rounds += 1
                self._urgent &= self._work_to_do
                self._changed.notify_all()

    def _rest(self) -> float:
        now = time.monotonic()
        return min([_HEARTBEAT, *(max(until - now, 0.0) for until, _ in self._pauses.values())])

    def _round(self) -> None:
        """Send one batch of every stream that is due."""
        streams = self.spool.hold()
        held = {stream.id for stream in streams}
        self._pauses = {id_: pause for id_, pause in self._pauses.items() if id_ in held}
        for stream in streams:
            until, pause = self._pauses.get(stream.id, (0.0, 0.0))
            if self._closed or until > time.monotonic():
                continue
            try:
                more = self._send(stream)
            except TrackingError as error:
                self._postpone(stream, min(2 * pause, _LONGEST_PAUSE) or _FIRST_PAUSE, str(error))
            else:
                self._pauses.pop(stream.id, None)
                self._warned = False
                if more:
                    self._work_to_do = self._urgent = True

    def _send(self, stream: Stream) -> bool:
        """Send a batch, or end a run that is complete; return whether there may be more to do."""
        records, more = self.spool.batch(stream)
        run = self._run_of(stream)
        if not records:
            if stream.finished:
                if stream.target["run_id"] is None:  # else it is somebody's own run
                    run.finish()
                self.spool.forget(stream)
                del self._runs[stream.id]
            return False
        try:
            run.write(records, planned_before=stream.first_step, plan=lambda id_, at: self.spool.plan(stream, id_, at))
        except OtherSettingsError:
            del self._runs[stream.id]
            self.spool.redirect(stream, {**stream.target, "run_id": None, "run_name": None, "parent": run.run_id})
            return True
        self.spool.delivered(stream)
        return more or stream.finished

    def _run_of(self, stream: Stream) -> RunWriter:
        run = self._runs.setdefault(stream.id, RunWriter(**stream.target, mark=stream.id))
        run.run_id = run.run_id or stream.run_id
        return run

    def _postpone(self, stream: Stream, pause: float, problem: str) -> None:
        with self._changed:
            self._failed |= stream.id in self._own
            self._pauses[stream.id] = (time.monotonic() + pause, pause)
        self.spool.failed(stream, problem)
        if not self._warned:
            _log.warning("%s; records wait in %s and are sent again later", problem, self.spool.settings.folder)
            self._warned = True


_shippers: dict[tuple[int, Path], Shipper] = {}  # by process: a forked child starts its own


def shipper(folder: Path | None = None) -> Shipper:
    """Return the shipper of a spool folder in this process; its work at exit is registered."""
    settings = SpoolSettings.of(folder)
    place = (os.getpid(), settings.folder)
    if place not in _shippers:
        own = _shippers[place] = Shipper(Spool(settings, this_process()))
        atexit.register(own.close)
        if multiprocessing.parent_process() is not None:  # such a process leaves without running `atexit`
            multiprocessing.util.Finalize(None, own.close, exitpriority=1)
    return _shippers[place]
