"""Threads that ask a store, and somebody who does not wait for it forever."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from cfk_plugin.records.run import StoreDownError

PATIENCE = 60.0
"""Seconds without any answer after which a store is given up. MLflow itself goes on for a quarter of an hour."""

_THREADS = 4  # a tracking server answers no faster when asked by more
_FAREWELL = 2.0  # seconds that they get to finish with their files when nobody waits any more
_AHEAD = 16  # answers that may wait to be fetched, so that memory is bounded

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Workers:
    """A few threads for questions to a store; to be used in a ``with`` statement.

    They are daemons: one that hangs in a question nobody waits for any more does not keep the process alive, as those
    of `concurrent.futures` would.
    """

    def __init__(self) -> None:
        self._over = threading.Event()
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name="cfk-report", daemon=True) for _ in range(_THREADS)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        """Return the workers."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let every thread end after what it does now, and wait a moment for it."""
        self._over.set()
        for _thread in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(_FAREWELL / _THREADS)

    def call(self, function: Callable[..., Answer], *arguments: Any) -> Answer:
        """Return what a function returns.

        Raises
        ------
        StoreDownError
            If there is no answer within `PATIENCE` seconds.
        """
        return _answer(self._submit(function, *arguments))

    def map(self, function: Callable[[Asked], Answer], items: Iterable[Asked]) -> Iterator[Answer]:
        """Yield what a function returns for each item, in their order, while the next ones are under way.

        Raises
        ------
        StoreDownError
            If there is no answer within `PATIENCE` seconds.
        """
        under_way: deque[Future[Answer]] = deque()
        try:
            for item in items:
                under_way.append(self._submit(function, item))
                if len(under_way) > _AHEAD:
                    yield _answer(under_way.popleft())
            while under_way:
                yield _answer(under_way.popleft())
        finally:
            for future in under_way:
                future.cancel()

    def _submit(self, function: Callable[..., Answer], *arguments: Any) -> Future[Answer]:
        future: Future[Answer] = Future()
        context = contextvars.copy_context()  # MLflow keeps its workspace there

        def task() -> None:
            if self._over.is_set() or not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(context.run(function, *arguments))
            except BaseException as error:  # noqa: BLE001 - raised again by whoever asked
                future.set_exception(error)

        self._tasks.put(task)
        return future

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


def _answer(future: Future[Answer]) -> Answer:
    try:
        return future.result(PATIENCE)
    except TimeoutError:
        if future.done():  # the question's own
            raise
        raise StoreDownError(
            f"the MLflow store did not answer for {PATIENCE:g} seconds; try again when it does"
        ) from None
