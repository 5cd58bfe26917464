"""The progress of DiCE's own search, on the terminal and in the log."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from cfk_plugin.data.display import doing, say_stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    T = TypeVar("T")
    Counted = Callable[[Iterable[T]], Iterator[T]]

PATIENCE = 10.0
"""Seconds of a search after which a warning in the log names a faster setting."""

_METHODS = {"DiceRandom": "random", "DiceGenetic": "genetic", "DiceKD": "kdtree"}
_FASTER = 'posthoc_sparsity_algorithm="binary", or fewer queries at once'
_FASTER_THAN_GENETIC = (
    'an explainer made with dice_ml.Dice(..., method="random"), a lower maxiterations, or fewer'
    " queries at once"
)

log = logging.getLogger("cfk_plugin")


@contextmanager
def showing_search(explainer: Any, n_queries: int) -> Iterator[Counted[Any]]:
    """Show DiCE's search and the number of its query on a terminal, while the body runs.

    After `PATIENCE` seconds, the log gets one warning. Neither contains a value of a row.

    Parameters
    ----------
    explainer : dice_ml ExplainerBase
    n_queries : int

    Yields
    ------
    callable
        Takes the queries of a loop, and yields and counts them.
    """
    kind = type(explainer).__name__
    search = f"DiCE's {_METHODS.get(kind, kind)} search"
    place = _Place(search, n_queries)
    started = perf_counter()

    def warn() -> None:
        faster = _FASTER_THAN_GENETIC if kind == "DiceGenetic" else _FASTER
        log.warning("%s, %.0f s so far; faster: %s", place, perf_counter() - started, faster)

    timer = threading.Timer(PATIENCE, warn)
    timer.daemon = True
    timer.start()
    try:
        with doing(str(place)):
            yield place.count
    finally:
        timer.cancel()


class _Place:
    """The query that a search is at, among those of a call."""

    def __init__(self, search: str, n_queries: int) -> None:
        self._search = search
        self._n_queries = n_queries
        self._number = 0

    def __str__(self) -> str:
        if self._n_queries == 1 or self._number == 0:
            return self._search
        return f"{self._search}: query {self._number} of {self._n_queries}"

    def count(self, queries: Iterable[T]) -> Iterator[T]:
        for number, query in enumerate(queries, 1):
            self._number = number
            say_stage(str(self))
            yield query
