"""Which released answers still hold with another model, such as one that was trained again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.data.codes import MISSING, Codes, Column, Mask
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import OPPOSITE, DesiredOutcome, Outcome
from cfk_plugin.data.region import Interval, Part
from cfk_plugin.errors import HostOnly, InputError, counted


@dataclass(frozen=True, slots=True, kw_only=True)
class StillTrue:
    """How many released answers a model still gives the desired outcome for.

    Contains counts and positions, no value of a row.

    Attributes
    ----------
    answers : int
        Answers that were asked about: all that were released.
    broken : tuple of int
        Positions of the entries, among all that were asked for, that the model refuses.
    queries : tuple of int
        The query of each of these.
    """

    answers: int
    broken: tuple[int, ...]
    queries: tuple[int, ...]

    @property
    def still_true(self) -> int:
        """Number of answers that are still true."""
        return self.answers - len(self.broken)

    @property
    def share(self) -> float | None:
        """Share of the answers that are still true; None if there are none."""
        if not self.answers:
            return None
        return self.still_true / self.answers

    def __str__(self) -> str:
        """Return the figure as a sentence."""
        if not self.answers:
            return "No answer was released, so there is none to ask the new model about"
        verb = "is" if self.answers == 1 else "are"
        answers = counted(self.answers, "answer")
        n_broken = len(self.broken)
        still_true = f"{self.still_true:,} of {answers} {verb} still true"
        return f"{still_true}; the new model refuses {n_broken:,}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ReleasedAnswer(HostOnly):
    """What a released answer tells a person to do.

    Attributes
    ----------
    position : int
        Among all entries.
    query : int
    region : mapping of feature to part; empty for a prototype
    values : mapping of feature to value
        Private values, and the quasi-identifiers that the answer advises, if it does.
    outcome : Outcome
    """

    position: int
    query: int
    region: Mapping[str, Part]
    values: Mapping[str, Any]
    outcome: Outcome


def still_true_at(
    rows: pd.DataFrame, answers: Sequence[ReleasedAnswer], model: NewModel
) -> StillTrue:
    """Count the answers whose row, one per answer, gets the outcome."""
    is_true = np.ones(len(answers), dtype=bool)
    if answers:
        is_true = model.has_outcome(rows)
    broken = [answer for answer, holds in zip(answers, is_true, strict=True) if not holds]
    return counted_true(answers, broken)


def counted_true(answers: Sequence[ReleasedAnswer], broken: Sequence[ReleasedAnswer]) -> StillTrue:
    """Return the figure of some answers, of which a model refuses the broken ones."""
    return StillTrue(
        answers=len(answers),
        broken=tuple(answer.position for answer in broken),
        queries=tuple(answer.query for answer in broken),
    )


class NewModel(HostOnly):
    """Asks a model for the outcomes for which answers were released.

    Parameters
    ----------
    model
        As for `KAnonymizer.fit`.
    features : sequence of str
    answers : sequence of ReleasedAnswer
    desired : label, set or range
        The outcome of answers that have none on record.

    Raises
    ------
    ModelError
        If the model cannot be asked, or has no such outcome.
    """

    def __init__(
        self,
        model: Any,
        features: Sequence[str],
        answers: Sequence[ReleasedAnswer],
        desired: Any,
    ) -> None:
        self._outcomes = list(dict.fromkeys(answer.outcome for answer in answers))
        self._goals = [_goal_of(outcome, desired) for outcome in self._outcomes]
        number = {outcome: i for i, outcome in enumerate(self._outcomes)}
        self._outcome_of_answer = np.array([number[a.outcome] for a in answers], dtype=np.int64)
        # All answers of a release have outcomes of one kind.
        goal = self._goals[0] if self._goals else None
        self._model = LabelModel(model, features, goal)
        for outcome, goal in zip(self._outcomes, self._goals, strict=True):
            named = DesiredOutcome.of(outcome.label) if outcome.is_other else goal
            named.check(self._model.classes, None)

    def _counts(self) -> str:
        return f"{len(self._outcomes)} outcomes"

    def has_outcome(self, rows: pd.DataFrame) -> Mask:
        """Return which rows, one per answer, get the outcome of their answer."""
        labels = self._model(rows).astype(object)
        has_outcome = np.zeros(len(rows), dtype=bool)
        for i, (outcome, goal) in enumerate(zip(self._outcomes, self._goals, strict=True)):
            is_of = self._outcome_of_answer == i
            if outcome.is_other:
                has_outcome[is_of] = labels[is_of] != outcome.label
            elif is_of.any():
                has_outcome[is_of] = goal.is_met(labels[is_of])
        return has_outcome


def _goal_of(outcome: Outcome, desired: Any) -> DesiredOutcome:
    """Return the goal of an answer; `desired` is that of an answer without an outcome on record."""
    if outcome.is_other:
        return DesiredOutcome.of(OPPOSITE)
    if outcome.desired is not None:
        return DesiredOutcome.of(outcome.desired)
    return DesiredOutcome.of(desired)


def advised_rows(
    answers: Sequence[ReleasedAnswer], queries: pd.DataFrame, codes: Codes
) -> pd.DataFrame:
    """Return the row that each answer asks its person to become, one per answer.

    It has the values that the answer advises. If it advises no quasi-identifiers, as under a lookup
    guarantee, they are those of the region that are nearest to the query.

    Raises
    ------
    InputError
        If a query has a value that the training table lacks.
    """
    rows = codes.encode(queries)[[answer.query for answer in answers]]
    if np.isnan(rows).any():
        raise InputError(
            "queries: a value cannot be read, or the training table lacks it; give the queries"
            " that were answered"
        )
    for j, column in enumerate(codes.columns):
        in_region = [is_only_in_region(answer, column.name) for answer in answers]
        positions = np.flatnonzero(~np.array(in_region, dtype=bool))
        values = [answers[i].values[column.name] for i in positions.tolist()]
        rows[positions, j] = column.encode(pd.Series(values, dtype=object))
        for i in np.flatnonzero(in_region).tolist():
            rows[i, j] = _nearest(answers[i].region[column.name], column, rows[i, j])
    return codes.decode(rows)


def is_only_in_region(answer: ReleasedAnswer, name: str) -> bool:
    """Return whether only the region of an answer says something of a feature."""
    return name in answer.region and name not in answer.values


def _nearest(part: Part, column: Column, factual: float) -> float:
    """Return the code inside a part that is nearest to the query's own."""
    options = column.values_inside(part)
    if factual in options:
        return factual
    numbers = options[options != MISSING]
    if not column.is_line or not len(numbers):
        return float(options[0])
    if isinstance(part, Interval) and column.is_numeric:
        return float(np.clip(factual, numbers.min(), numbers.max()))
    return float(numbers[np.abs(numbers - factual).argmin()])
