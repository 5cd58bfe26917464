"""What is known of a result besides its entries: for the data holder's records, and no part of what leaves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pandas as pd

from cfk_plugin.columns import to_text
from cfk_plugin.errors import InputError

MOST_GROUPS = 50
"""Different labels that one call may have: what has more is no group but, say, an age or a name."""

_MISSING = "missing"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class About:
    """What is known of a result. Plain values alone: nothing in it leads to a training row.

    Attributes
    ----------
    population : mapping, optional
        See `cfk_plugin.population_facts`.
    environment : mapping, optional
        See `cfk_plugin.environment`.
    seconds : float, optional
        Wall time of the call per entry.
    attribute : str, optional
        What the groups are groups of.
    groups : tuple of str
        Group of whoever asked, one per entry; empty where nobody named an attribute.
    """

    population: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    seconds: float | None = None
    attribute: str | None = None
    groups: tuple[str, ...] = ()

    def __getitem__(self, index: slice) -> Self:
        """Return the same of some of the entries."""
        return replace(self, groups=self.groups[index])

    def of_call(self, call: Call, queries: Sequence[int]) -> Self:
        """Return the same with what is known of a call; `queries` says which query each entry answers."""
        seconds = (time.perf_counter() - call.started) / max(len(queries), 1)
        return replace(self, seconds=seconds, attribute=call.attribute, groups=call.groups_of(queries))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call:
    """One call of an explainer: when it began, and to which group each query belongs.

    Attributes
    ----------
    attribute : str, optional
    labels : tuple of str
        One per query.
    started : float
    candidates : int
        Counterfactuals that the explainer was asked for per query, of which one was chosen.
    """

    attribute: str | None = None
    labels: tuple[str, ...] = ()
    started: float = field(default_factory=time.perf_counter)
    candidates: int = 1

    @classmethod
    def of(cls, queries: pd.DataFrame, attribute: str | None) -> Call:
        """Begin a call.

        Raises
        ------
        InputError
            If the queries have no such column, or it is none of groups.
        """
        started = time.perf_counter()
        return (
            cls(started=started) if attribute is None else cls.grouped(attribute, _column(queries, attribute), started)
        )

    @classmethod
    def grouped(cls, attribute: str, labels: Sequence[Any] | pd.Series, started: float = 0.0) -> Call:
        """Return a call whose queries have these labels.

        Raises
        ------
        InputError
            If there are too many different ones to be groups.
        """
        texts = tuple(_MISSING if pd.isna(label) else to_text(label) for label in list(labels))
        if (found := len(set(texts))) > MOST_GROUPS:
            raise InputError(
                f"column {attribute!r} has {found} different values in one call; groups are at most {MOST_GROUPS}: "
                "name an attribute with few values, or bin it first"
            )
        return cls(attribute, texts, started)

    def groups_of(self, queries: Sequence[int]) -> tuple[str, ...]:
        """Return the group of each entry.

        Raises
        ------
        InputError
            If there are fewer labels than queries.
        """
        if self.attribute is None:
            return ()
        if len(queries) and max(queries) >= len(self.labels):
            raise InputError(
                f"{len(self.labels)} labels of {self.attribute!r}, and query {max(queries)} was answered; give one "
                "label per query, in the order of the queries"
            )
        return tuple(self.labels[query] for query in queries)


def _column(queries: pd.DataFrame, name: str) -> pd.Series:
    found = list(queries.columns).count(name) if isinstance(queries, pd.DataFrame) else 0
    if found != 1:
        raise InputError(f"the queries have {found} columns {name!r}; to group results by it they need one")
    return queries[name]
