"""A call to the pipeline, and the candidates for release that a guarantee selects for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.decision import Labels, Mask
from cfk_plugin.data.domain import Rows
from cfk_plugin.data.encoded_table import EncodedTable, valid_rows
from cfk_plugin.data.outcome import DesiredOutcome, OutcomeTest
from cfk_plugin.data.policy import SearchStart
from cfk_plugin.data.training_labels import CombinationOutcomes
from cfk_plugin.errors import HostOnly
from cfk_plugin.hookspecs import Progress
from cfk_plugin.protection.answers.request import ExplainerStart, SearchOptions
from cfk_plugin.release.query_outcomes import ReadableQueries
from cfk_plugin.release.results import Explanation, Withheld


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Call(HostOnly):
    """What one call asks for: n counterfactuals to protect, or n queries to answer without any.

    Where the desired outcome depends on the label of the factual, that label is known
    (`factual_labels`) or is asked for together with the labels of the counterfactuals
    (`unlabelled_factuals`); at most one of the two is given.
    """

    points: EncodedTable  # n counterfactuals; n queries where no explainer was asked
    query: Rows  # shape (n,); number of the query that each row answers
    goal: DesiredOutcome  # the outcome that this call asks for
    constraints: Constraints | None = None  # the factual of each row, and the permitted changes
    factual_labels: Labels | None = None  # shape (n,)
    unlabelled_factuals: EncodedTable | None = None  # n rows
    query_outcomes: ReadableQueries | None = None  # queries that may have the outcome already
    known_already_desired: Rows | None = None  # positions of rows whose query is known to have it
    search: SearchOptions  # how a catalogue's answers are chosen
    # whether no counterfactual depends on a single training row, by the explainer's adapter
    depends_on_no_row: bool = False
    progress: Progress | None = None

    def __len__(self) -> int:
        return len(self.points)

    def valid_rows(self) -> Rows:
        """Return the positions whose point, and whose factual if it matters, has no fault."""
        return valid_rows(self.points, self._constrained_factuals)

    def factuals_to_label(self, position: Rows) -> EncodedTable | Labels | None:
        """Return the factuals whose labels are missing, or the labels; None if neither matters."""
        if self.query_outcomes is not None:
            return self.query_outcomes.rows
        if self.unlabelled_factuals is not None:
            return self.unlabelled_factuals.take(position)
        return rows_of(self.factual_labels, position)

    def constraints_of(self, position: Rows) -> Constraints | None:
        """Return the constraints of some rows."""
        return _take(self.constraints, position)

    def in_order(self, explanations: Mapping[int, Explanation]) -> list[Explanation]:
        """Return one explanation per row, from those at some positions.

        Other rows are withheld: for the fault of the point or of the factual if there is one, and
        otherwise because the counterfactual does not have the desired outcome.
        """
        in_order: list[Explanation] = []
        for i in range(len(self)):
            if i in explanations:
                in_order.append(explanations[i])
            else:
                in_order.append(self._withheld(i))
        return in_order

    def _withheld(self, i: int) -> Withheld:
        fault = self.points.faults[i]
        factuals = self._constrained_factuals
        if fault is None and factuals is not None:
            fault = factuals.faults[i]
        query = int(self.query[i])
        if fault is None:
            return Withheld(query, "not_desired")
        reason, columns = fault
        return Withheld(query, reason, columns)

    @property
    def _constrained_factuals(self) -> EncodedTable | None:
        return None if self.constraints is None else self.constraints.queries


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DesiredCounterfactuals(HostOnly):
    """The m counterfactuals of a call that have the desired outcome, and whose query has not."""

    position: Rows  # shape (m,); in the call
    labels: Labels  # shape (m,); the model's, of the counterfactuals
    factual_labels: Labels | None  # shape (m,); where they decide which outcome is desired
    already_desired: Rows  # positions in the call of rows whose query has the outcome already

    def __len__(self) -> int:
        return len(self.position)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CatalogueOrigin(HostOnly):
    """How m candidates were made from a catalogue."""

    entries: Rows  # shape (m,); the entry whose region each is released with
    # shape (m,); the entry whose private values the search began with, see
    # `RegionAndValues.part`; None: the entry's own
    values_entry: Rows | None = None
    moved: Mask | None = None  # shape (m, n_private); True where a value is no longer that entry's
    explainer_start: ExplainerStart | None = None  # the counterfactuals that the search began at
    start: SearchStart = "query"

    def take(self, rows: Rows) -> CatalogueOrigin:
        """Return the origin of some of the candidates."""
        start = self.explainer_start
        if start is not None:
            start = start_of(start, rows)
        return replace(
            self,
            entries=self.entries[rows],
            values_entry=rows_of(self.values_entry, rows),
            moved=rows_of(self.moved, rows),
            explainer_start=start,
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Candidates(HostOnly):
    """Points that may be released with a region, and what is needed to judge each of the m."""

    position: Rows  # shape (m,); in the call
    points: EncodedTable  # m rows; their private values are released
    query: Rows  # shape (m,); number of the query that each answers
    goal: DesiredOutcome
    labels: Labels  # shape (m,); the model's, of the points
    factual_labels: Labels | None  # shape (m,); where they decide which outcome is desired
    combination_outcomes: CombinationOutcomes
    eligibility: Rows  # shape (m,); the eligibility class whose people each may share a group with
    constraints: Constraints | None = None
    origin: CatalogueOrigin | None = None  # None: the points are an explainer's counterfactuals
    progress: Progress | None = None

    def __len__(self) -> int:
        return len(self.points)

    @property
    def outcome_test(self) -> OutcomeTest:
        """Says of labels, given with the candidate each belongs to, whether they are desired."""
        return self.goal.test_for(self.labels, self.factual_labels)

    def take(self, rows: Rows) -> Candidates:
        """Return some of the candidates."""
        return replace(
            self,
            position=self.position[rows],
            points=self.points.take(rows),
            query=self.query[rows],
            labels=self.labels[rows],
            factual_labels=rows_of(self.factual_labels, rows),
            combination_outcomes=self.combination_outcomes.restrict(rows),
            eligibility=self.eligibility[rows],
            constraints=_take(self.constraints, rows),
            origin=_take(self.origin, rows),
        )


@dataclass(frozen=True, eq=False, repr=False)
class Selection(HostOnly):
    """What a guarantee can answer of a call."""

    candidates: Candidates | None  # None if there is nothing to release
    withheld: Mapping[int, str]  # reasons by position in the call, where the guarantee knows one


def start_of(explainer_start: ExplainerStart, rows: Rows) -> ExplainerStart:
    """Return some of an explainer's counterfactuals, with their groups."""
    return replace(
        explainer_start,
        counterfactuals=explainer_start.counterfactuals.take(rows),
        groups=explainer_start.groups[rows],
    )


def rows_of(column: NDArray[Any] | None, rows: Rows | Mask) -> NDArray[Any] | None:
    """Return some rows of an array that may be missing."""
    return None if column is None else np.asarray(column[rows])


class _Takes(Protocol):
    def take(self, rows: Rows, /) -> Self: ...


_Table = TypeVar("_Table", bound=_Takes)


def _take(table: _Table | None, rows: Rows) -> _Table | None:
    """Return some rows of a table that may be missing."""
    return None if table is None else table.take(rows)
