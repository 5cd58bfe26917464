"""The request of one call: its queries, encoded once, its constraints and its desired outcome."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.data.call_rules import CallRules
from cfk_plugin.data.codes import Codes, Fault, Floats, Ints, Mask
from cfk_plugin.data.constraints import Limits
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.region import to_text
from cfk_plugin.data.tables import select
from cfk_plugin.data.values import as_pandas, unreadable
from cfk_plugin.errors import HostOnly, InputError, did_you_mean
from cfk_plugin.hookspecs import Progress
from cfk_plugin.release.withheld import Withheld

MOST_GROUPS = 50
"""The largest number of groups in a call. An attribute with more values is an age or a name, for
example, and does not form groups.
"""

_MISSING = "missing"  # the group of applicants without a label


@dataclass(frozen=True, eq=False, repr=False)
class Rows(HostOnly):
    """The rows of a table that the caller passed.

    Attributes
    ----------
    frame : DataFrame, shape (n_rows, n_features)
        The features, with rows numbered from 0.
    codes : shape (n_rows, n_features)
        The encoded rows.
    faults : sequence of Fault or None, length n_rows
        The reason why a row cannot be used, or None if it is valid.
    index : Index, shape (n_rows,)
        The caller's labels of the rows.
    """

    frame: pd.DataFrame
    codes: Floats
    faults: Sequence[Fault | None]
    index: pd.Index

    @classmethod
    def read(cls, frame: pd.DataFrame, codes: Codes) -> Rows:
        """Encode the features of a table."""
        features = select(frame, codes.names)
        rows = codes.encode(features)
        return cls(features, rows, codes.faults(features, rows), frame.index)

    @cached_property
    def are_valid(self) -> Mask:
        """Whether each row has no fault, shape (n_rows,)."""
        return np.array([fault is None for fault in self.faults], dtype=bool)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Groups(HostOnly):
    """The groups of applicants, by which runs split their figures.

    Attributes
    ----------
    attribute : str
        The column of the queries that defines the groups.
    labels : tuple of str
        The group of each query.
    """

    attribute: str
    labels: tuple[str, ...]

    @classmethod
    def read(cls, queries: object, attribute: str | None) -> Groups | None:
        """Return the groups that a column of the queries defines; None without an attribute.

        Raises
        ------
        InputError
            If the queries do not have the column exactly once, or it has too many values.
        """
        if attribute is None:
            return None
        table = as_pandas(queries)
        columns = list(table.columns) if isinstance(table, pd.DataFrame) else []
        n_columns = columns.count(attribute)
        if n_columns != 1:
            raise InputError(
                f"the queries have {n_columns} columns {attribute!r}; to group results by it they"
                f" need one{did_you_mean([attribute], columns)}"
            )
        return cls.of(attribute, table[attribute])

    @classmethod
    def of(cls, attribute: str, values: object) -> Groups:
        """Return the groups from an attribute's values, one for each query.

        Raises
        ------
        InputError
            If the values are not a list of texts or numbers, or have more than 50 different values.
        """
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise InputError(
                f"labels of {attribute!r} must be a list, one per query, got"
                f" {type(values).__name__}"
            )
        cells = pd.Series(list(values), dtype=object)
        unreadable_type = unreadable(cells)
        if unreadable_type:
            raise InputError(
                f"labels of {attribute!r} contain {unreadable_type}; give each query one text or"
                " number"
            )
        labels = tuple(map(_label_of, cells))
        n_groups = len(set(labels))
        if n_groups > MOST_GROUPS:
            raise InputError(
                f"column {attribute!r} has {n_groups} different values in one call, and there can"
                f" be at most {MOST_GROUPS} groups; name an attribute with few values, or bin it"
                " first"
            )
        return cls(attribute=attribute, labels=labels)

    def of_queries(self, queries: Sequence[int]) -> tuple[str, ...]:
        """Return the group of each query; `queries` are positions."""
        if len(queries) and max(queries) >= len(self.labels):
            raise InputError(
                f"there are {len(self.labels)} labels of {self.attribute!r}, but query"
                f" {max(queries)} was explained; give one label per query, in the order of the"
                " queries"
            )
        return tuple(self.labels[query] for query in queries)


def _label_of(value: Any) -> str:
    return _MISSING if pd.isna(value) else to_text(value)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Request(HostOnly):
    """One call. A *slot* is the place of one explanation in its result.

    Attributes
    ----------
    numbers : shape (n_queries,)
        The caller's number of each query.
    queries : Rows, optional
        The n_queries rows; None if the caller passed only counterfactuals.
    query_of_slot : shape (n_slots,)
        Position of the query of each slot.
    counterfactuals : Rows, optional
        The counterfactuals of an explainer.
    slot_of_counterfactual : shape (n_counterfactuals,)
        The slot of each counterfactual.
    goal : DesiredOutcome
        The outcome that explanations reach.
    rules : CallRules
        Constraints on the changes, by the schema and the call.
    codes : Codes
        The encoder of rows.
    progress : callable, optional
        Called with the numbers (done, total) of queries.
    groups : Groups, optional
    started : float
        `time.perf_counter` when the call began.
    """

    numbers: Ints
    queries: Rows | None
    query_of_slot: Ints
    counterfactuals: Rows | None = None
    slot_of_counterfactual: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    goal: DesiredOutcome
    rules: CallRules
    codes: Codes
    progress: Progress | None = None
    groups: Groups | None = None
    started: float = field(default_factory=time.perf_counter)

    def __len__(self) -> int:
        return len(self.query_of_slot)

    @cached_property
    def number_of_slot(self) -> list[int]:
        """The number of the query of each slot, length n_slots."""
        numbers: list[int] = self.numbers[self.query_of_slot].tolist()
        return numbers

    @property
    def restricts_changes(self) -> bool:
        """Whether the schema or the call restricts a change."""
        return self.rules.restricts(self.codes)

    @property
    def decided_features(self) -> frozenset[str]:
        """The features whose changes the schema or the call permits or restricts."""
        return self.rules.decided(self.codes)

    def limits(self, rows: Floats) -> Limits:
        """Return the values that people may change to; `rows` has shape (n_rows, n_features)."""
        return self.rules.limits(self.codes, rows)

    def withheld(self, reason: str) -> list[Withheld]:
        """Return a withheld explanation for each slot."""
        return [Withheld(number, reason) for number in self.number_of_slot]
