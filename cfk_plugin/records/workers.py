"""Threads that query a store and are never waited for forever."""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from typing import Any, Self, TypeVar

from cfk_plugin.records.stores import StoreDownError

Item = TypeVar("Item")
Answer = TypeVar("Answer")

PATIENCE = 60.0
"""Seconds without an answer after which a store is given up.

MLflow itself tries for a quarter of an hour.
"""
_THREADS = 4  # more do not make a tracking server answer faster
_FAREWELL = 2.0  # seconds that they get to close their files when nobody waits any more
_AHEAD = 16  # answers that may wait to be fetched, so that memory is bounded


class Workers:
    """Daemon threads that query a store, for a ``with`` block.

    A store that does not answer keeps no process alive: those of `concurrent.futures` and of
    MLflow are waited for when the process ends.
    """

    def __init__(self) -> None:
        self._is_closed = threading.Event()
        self._last_answer = time.monotonic()
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name="cfk-report", daemon=True)
            for _ in range(_THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let every thread finish its current task and end, and wait a moment for it."""
        self._is_closed.set()
        for _thread in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(_FAREWELL / _THREADS)

    def call(self, function: Callable[..., Answer], *arguments: Any) -> Answer:
        """Return a function's result."""
        return self._answer(self._submit(function, *arguments))

    def map(self, function: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
        """Yield a function's result for each item, in order, while the next ones are computed."""
        pending: deque[Future[Answer]] = deque()
        try:
            for item in items:
                pending.append(self._submit(function, item))
                if len(pending) > _AHEAD:
                    yield self._answer(pending.popleft())
            while pending:
                yield self._answer(pending.popleft())
        finally:
            for future in pending:
                future.cancel()

    def note_answer(self) -> None:
        """Note that the store has answered; a function with several requests does so after each."""
        self._last_answer = time.monotonic()

    def _submit(self, function: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
        future: Future[Answer] = Future()
        context = contextvars.copy_context()  # MLflow keeps its workspace there

        def task() -> None:
            if self._is_closed.is_set() or not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(context.run(function, *arguments))
            except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
                future.set_exception(error)
            self.note_answer()

        self._tasks.put(task)
        return future

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def _answer(self, future: Future[Answer]) -> Answer:
        """Return a result, or give the store up when no request was answered for too long.

        Other requests count, because this one may only be waiting for its turn.
        """
        asked = time.monotonic()
        while not future.done():
            give_up_at = max(asked, self._last_answer) + PATIENCE
            patience_left = give_up_at - time.monotonic()
            if patience_left <= 0:
                raise StoreDownError(
                    f"the MLflow store did not answer for {PATIENCE:g} seconds; try again when it"
                    " does"
                )
            wait([future], patience_left)
        return future.result()
