"""What is known of a call and of its result, besides the explanations themselves."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeGuard

import pandas as pd

from cfk_plugin.data.promises import promise_of
from cfk_plugin.data.region import Interval, part_contains, part_of, to_text
from cfk_plugin.data.values import as_pandas, to_number
from cfk_plugin.data.wording import Wording
from cfk_plugin.errors import InputError, did_you_mean
from cfk_plugin.release.results import (
    Explanation,
    GeneralizedCounterfactual,
    PrototypeCounterfactual,
    Withheld,
)

MOST_GROUPS = 50
"""Most labels that one call may have: an attribute with more is not a group but, say, an age or a
name.
"""

_MISSING = "missing"  # the group of people without a label

Kind = Literal["answers", "catalogue"]
"""What a file holds: answers to queries, or all entries of a catalogue."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Request:
    """One call of an explainer: when it began, and to which group each query belongs."""

    attribute: str | None = None  # the attribute that defines groups
    labels: tuple[str, ...] = ()  # the group of each query; empty without an attribute
    started: float = field(default_factory=time.perf_counter)
    is_for_people: bool = False  # whether the call has the queries of people
    # the queries, indexed by their positions; no result keeps them
    queries: pd.DataFrame | None = None
    # features for which the schema or the call declares how they may change
    decided: frozenset[str] = frozenset()

    @classmethod
    def of(cls, queries: pd.DataFrame, attribute: str | None) -> Request:
        """Return the request that begins now; its groups are by an attribute of the queries.

        Raises
        ------
        InputError
            If the queries do not have the attribute exactly once, or it has too many values.
        """
        queries = as_pandas(queries)
        is_table = isinstance(queries, pd.DataFrame)
        request = cls(attribute, is_for_people=True)
        if is_table:
            request = replace(request, queries=queries.reset_index(drop=True))
        if attribute is None:
            return request
        columns = list(queries.columns) if is_table else []
        n_columns = columns.count(attribute)
        if n_columns != 1:
            raise InputError(
                f"the queries have {n_columns} columns {attribute!r}; to group results by it they"
                f" need one{did_you_mean([attribute], columns)}"
            )
        return replace(request, labels=labels_of(attribute, queries[attribute]))


def labels_of(attribute: str, values: object) -> tuple[str, ...]:
    """Return the group of each query, as text, from the values of an attribute.

    Raises
    ------
    InputError
        If the values are not a list, or more than 50 are different.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(
            f"labels of {attribute!r} must be a list, one per query, got {type(values).__name__}"
        )
    labels = tuple(map(_label_of, list(values)))
    n_groups = len(set(labels))
    if n_groups > MOST_GROUPS:
        raise InputError(
            f"column {attribute!r} has {n_groups} different values in one call; groups are at most"
            f" {MOST_GROUPS}: name an attribute with few values, or bin it first"
        )
    return labels


def _label_of(value: Any) -> str:
    return _MISSING if pd.isna(value) else to_text(value)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ResultContext:
    """What the data holder records about a result; nothing in it leads to a training row."""

    # see `cfk_plugin.metrics.provenance`, also for `environment`
    population: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    seconds: float | None = None  # duration of the call, per explanation
    attribute: str | None = None  # name of the attribute that defines groups
    # group of the person of each explanation; empty without an attribute
    groups: tuple[str, ...] = ()
    is_for_people: bool = False
    # findings of detection among an explainer's counterfactuals at fit; see `RunRecord.sample`
    sample: Mapping[str, int] | None = None
    kind: Kind = "answers"
    # for each explanation, the features whose released value is the query's own; no run logs them
    query_features: tuple[frozenset[str], ...] = ()
    wording: Wording = field(default_factory=Wording)

    def of_call(self, call: Request, explanations: Sequence[Explanation]) -> Self:
        """Return the context with everything that is known of the call of these explanations."""
        n_explanations = len(explanations)
        context = replace(
            self,
            seconds=(time.perf_counter() - call.started) / max(n_explanations, 1),
            is_for_people=call.is_for_people,
            query_features=features_from_queries(explanations, call.queries),
        )
        if call.attribute is None:
            return context
        queries = [explanation.query for explanation in explanations]
        return context.grouped(call.attribute, call.labels, queries)

    def grouped(self, attribute: str, labels: Sequence[str], queries: Sequence[int]) -> Self:
        """Return the context with the group of each explanation.

        Parameters
        ----------
        attribute : str
            The attribute that defines the groups.
        labels : sequence of str
            The group of each query.
        queries : sequence of int
            The query of each explanation.
        """
        if len(queries) and max(queries) >= len(labels):
            raise InputError(
                f"{len(labels)} labels of {attribute!r}, and query {max(queries)} was answered;"
                " give one label per query, in the order of the queries"
            )
        return replace(self, attribute=attribute, groups=tuple(labels[query] for query in queries))

    def sliced(self, positions: slice) -> Self:
        """Return the context of some of the explanations, which are no longer a catalogue."""
        return replace(
            self,
            groups=self.groups[positions],
            query_features=self.query_features[positions],
            kind="answers",
        )


def features_from_queries(
    explanations: Sequence[Explanation], queries: pd.DataFrame | None
) -> tuple[frozenset[str], ...]:
    """Return, for each explanation, the features whose released value is the query's own.

    Answers of a catalogue have an empty set, because their certificates name these features. All
    sets are empty if the queries are not known.
    """
    row_of_query: dict[Any, Mapping[Any, Any]] = {}
    is_needed = any(map(_is_to_compare, explanations))
    if is_needed and queries is not None and queries.columns.is_unique:
        rows = queries.to_dict("records")
        row_of_query = dict(zip(queries.index.tolist(), rows, strict=True))
    features: list[frozenset[str]] = []
    for explanation in explanations:
        if _is_to_compare(explanation):
            row = row_of_query.get(explanation.query, {})
            features.append(_features_from_query(explanation, row))
        else:
            features.append(frozenset())
    return tuple(features)


def _is_to_compare(
    explanation: Explanation,
) -> TypeGuard[GeneralizedCounterfactual | PrototypeCounterfactual]:
    if isinstance(explanation, Withheld):
        return False
    if isinstance(explanation, PrototypeCounterfactual):
        return True
    return not promise_of(explanation.certificate.guarantee).names_own_values


def _features_from_query(
    explanation: GeneralizedCounterfactual | PrototypeCounterfactual, query: Mapping[Any, Any]
) -> frozenset[str]:
    """Return the features whose released value is that of the query."""
    if isinstance(explanation, GeneralizedCounterfactual):
        values = explanation.released
    else:
        values = explanation.values
    return frozenset(
        name
        for name, value in values.items()
        if name in query and _is_same_value(value, query[name])
    )


def _is_same_value(released: Any, value: Any) -> bool:
    """Return True if a released value, or bin, is a value of a query, in whatever spelling."""
    part = part_of(released)
    if part_contains(part, value) or to_text(released) == to_text(value):
        return True
    if not isinstance(part, Interval) or part.low is None or part.high is None:
        return False
    return bool(to_number(part.low) <= to_number(value) <= to_number(part.high))
