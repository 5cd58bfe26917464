"""The thread that ships records: whoever gives it one goes on at once, whatever the tracking server does."""

from __future__ import annotations

import atexit
import logging
import multiprocessing.util
import os
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfk_plugin.errors import TrackingError
from cfk_plugin.tracking.run import Run, StoreDownError
from cfk_plugin.tracking.spool import forget, keep

if TYPE_CHECKING:
    from cfk_plugin.tracking.record import Record

_log = logging.getLogger(__name__)

CAPACITY = 1000
"""Records that wait in memory; further ones go to the spool at once."""

_TOGETHER = 200  # records that are logged in one go
_TRIES = 3  # deliveries that a server which is there may refuse
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_EXIT_SECONDS = 30.0  # to deliver at exit, while the server takes records


@dataclass(slots=True, eq=False)
class Job:
    """A record on its way, or, without a record, the end of a run.

    Attributes
    ----------
    run : Run
    record : Record, optional
    folder : Path, optional
        The spool folder.
    kept : Path, optional
        Where the record lies in the spool, once it does.
    tries : int
        Deliveries that failed although the server is there.
    """

    run: Run
    record: Record | None = None
    folder: Path | None = None
    kept: Path | None = None
    tries: int = 0

    def same_batch(self, other: Job) -> bool:
        """Say whether two records can be logged in one go."""
        if self.record is None or other.record is None or self.run is not other.run:
            return False
        ours, theirs = self.record, other.record
        same_policy = ours.explanations.policy == theirs.explanations.policy
        same_columns = ours.explanations.columns == theirs.explanations.columns
        return same_policy and same_columns and ours.params == theirs.params

    def spool(self) -> None:
        """Write the record to the spool, once; a failure is logged, never raised."""
        if self.record is None or self.kept is not None:
            return
        try:
            self.kept = keep(self.record, self.run.describe(), self.folder)
        except Exception as error:  # noqa: BLE001 - tracking must not stop an explanation
            _log.error("a tracking record could not be kept (%s)", type(error).__name__)


@dataclass(slots=True, eq=False)
class Shipper:
    """Delivers jobs in order from a daemon thread.

    A server that is down is asked again after a growing pause, with the records already in the spool; a
    delivered record is removed from it. What a working server refuses stays in the spool.
    """

    capacity: int = CAPACITY
    _waiting: deque[Job] = field(default_factory=deque)
    _flying: list[Job] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None
    _pause: float = 0.0
    _closed: bool = False

    def submit(self, job: Job) -> None:
        """Take a job over and return at once. Never raises."""
        with self._changed:
            accepted = not self._closed and len(self._waiting) < self.capacity
            if accepted:
                self._waiting.append(job)
                self._start()
                self._changed.notify_all()
        if not accepted:
            job.spool()

    def flush(self, seconds: float) -> bool:
        """Wait until all is delivered; return False when `seconds` are over or the server is down."""
        with self._changed:
            self._changed.wait_for(lambda: self._pause > 0 or self._idle(), timeout=seconds)
            return self._idle()

    def close(self, seconds: float = _EXIT_SECONDS) -> None:
        """Deliver what can be delivered, keep the rest in the spool, and take no more into memory."""
        self.flush(seconds)
        with self._changed:
            self._closed = True
            left = [job for job in (*self._flying, *self._waiting) if job.record is not None]
            self._waiting.clear()
            self._changed.notify_all()
        for job in left:
            job.spool()
        if left:
            _log.warning("%d tracking records were not delivered; they are in %s", len(left), _folders(left))

    def _idle(self) -> bool:
        return not self._waiting and not self._flying

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="cfk-tracking", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                if self._pause:
                    self._changed.wait_for(lambda: self._closed, timeout=self._pause)
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                self._flying = self._next_batch()
            failure = _deliver(self._flying)
            with self._changed:
                self._settle(failure)
                self._flying = []
                self._changed.notify_all()

    def _next_batch(self) -> list[Job]:
        batch = [self._waiting.popleft()]
        while self._waiting and len(batch) < _TOGETHER and batch[0].same_batch(self._waiting[0]):
            batch.append(self._waiting.popleft())
        return batch

    def _settle(self, failure: Exception | None) -> None:
        if failure is None:
            self._pause = 0.0
            return
        down = isinstance(failure, StoreDownError)
        for job in self._flying:
            job.tries += not down
        again = [job for job in self._flying if job.tries < _TRIES]
        if not self._closed:
            self._waiting.extendleft(reversed(again))
        kept = [job for job in self._flying if job.record is not None]
        if kept and (not self._pause or not again):
            why = failure if isinstance(failure, TrackingError) else type(failure).__name__
            after = "they are sent again later" if again else "they stay there"
            _log.warning("%s; %d tracking records are in %s, %s", why, len(kept), _folders(kept), after)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE) or _FIRST_PAUSE
        if not again and not down:
            self._pause = 0.0


def _deliver(batch: list[Job]) -> Exception | None:
    """Log a batch; on failure keep its records in the spool and return the error."""
    run, records = batch[0].run, [job.record for job in batch if job.record is not None]
    try:
        if records:
            run.write(records, branch=True)
        else:
            run.finish()
    except Exception as error:  # noqa: BLE001 - tracking must not stop an explanation
        for job in batch:
            job.spool()
        return error
    for job in batch:
        if job.kept is not None:
            forget(job.kept)
    return None


def _folders(jobs: list[Job]) -> str:
    return ", ".join(sorted({str(job.kept.parent) for job in jobs if job.kept is not None})) or "no folder"


_shipper: list[Any] = []  # [process id, Shipper]: a forked child starts its own, without the parent's records


def shipper() -> Shipper:
    """Return the shipper of this process."""
    if not _shipper or _shipper[0] != os.getpid():
        own = Shipper()
        _shipper[:] = [os.getpid(), own]
        atexit.register(own.close)
        if multiprocessing.parent_process() is not None:  # such a process leaves without running `atexit`
            multiprocessing.util.Finalize(None, own.close, exitpriority=1)
    found: Shipper = _shipper[1]
    return found
