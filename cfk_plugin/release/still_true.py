"""Which released answers still hold with another model, such as one that was trained again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.data.constraints import Constraints, DistinctParts, Rules
from cfk_plugin.data.decision import Mask
from cfk_plugin.data.domain import Domain, Rows
from cfk_plugin.data.encoded_table import Encoder, encode
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import OPPOSITE, DesiredOutcome, Outcome
from cfk_plugin.data.region import Part
from cfk_plugin.errors import HostOnly, InputError, counted


@dataclass(frozen=True, slots=True, kw_only=True)
class StillTrue:
    """How many released answers a model still gives the desired outcome for.

    Holds counts and positions, no value of a row.

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
    """What a released answer tells a person to do."""

    position: int  # among all entries
    query: int
    region: Mapping[str, Part]  # empty for a prototype
    values: Mapping[str, Any]  # of private features, or of all features of a prototype or point
    outcome: Outcome


def still_true_at(
    rows: pd.DataFrame, answers: Sequence[ReleasedAnswer], model: NewModel
) -> StillTrue:
    """Count the answers whose row, one per answer, gets the outcome."""
    is_true = np.ones(len(answers), dtype=bool)
    if answers:
        is_true = model.has_outcome(rows, np.arange(len(answers)))
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
    """Asks a model for the outcomes that answers were released for.

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

    def has_outcome(self, rows: pd.DataFrame, answer_of_row: Rows) -> Mask:
        """Return a mask of the rows at which the model gives the outcome of their answer."""
        labels = self._model(rows).astype(object)
        outcome_of_row = self._outcome_of_answer[answer_of_row]
        has_outcome = np.zeros(len(rows), dtype=bool)
        for i, (outcome, goal) in enumerate(zip(self._outcomes, self._goals, strict=True)):
            is_of = outcome_of_row == i
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


def rows_asked_for(
    answers: Sequence[ReleasedAnswer], queries: pd.DataFrame, encoder: Encoder, rules: Rules
) -> pd.DataFrame:
    """Return the row that each answer asks its person to become, one per answer.

    It has the advised values and the private ones that were released. Where no values are advised,
    it has those of the permitted point of the region that is nearest to the query.

    Parameters
    ----------
    answers : sequence of ReleasedAnswer, of regions
    queries : DataFrame, with every query that was answered
    encoder : Encoder
    rules : mapping of feature to Rule
        How features may change, by schema and call.
    """
    encoded = encode(queries, encoder)
    factuals = encoded.take(np.array([answer.query for answer in answers], dtype=np.int64))
    constraints = Constraints(factuals, rules)
    columns = {}
    for j, (name, domain) in enumerate(zip(encoder.schema.features, encoder.columns, strict=True)):
        values = list(factuals.values[j])
        in_part: dict[int, Part] = {}  # the part of a region, by position of the answer
        for i, answer in enumerate(answers):
            if name in answer.values:
                values[i] = answer.values[name]
            else:
                in_part[i] = answer.region[name]
        positions = np.array([*in_part], dtype=np.int64)
        nearest = _nearest(name, domain, [*in_part.values()], constraints.take(positions))
        for i, value in zip(in_part, nearest, strict=True):
            values[i] = value
        columns[name] = pd.Series(values, dtype=object)
    return encoder.conform(pd.DataFrame(columns))


def _nearest(
    name: str, domain: Domain, parts: Sequence[Part], constraints: Constraints
) -> list[Any]:
    """Return the permitted value in each part that is nearest to the query at its position.

    Raises
    ------
    InputError
        If a part has no permitted value, so that the queries cannot be those that were answered.
    """
    if not parts:
        return []
    distinct_parts = DistinctParts.build(domain, parts)
    n_excluded = int((~constraints.only({name}).admits_paired({name: distinct_parts})).sum())
    if n_excluded:
        raise InputError(
            f"queries: {counted(n_excluded, 'answer')} would change {name} as the schema or the"
            " call excludes it; give the queries that were answered, in the same order"
        )
    codes, numbers = constraints.nearest(
        name, distinct_parts, np.arange(len(parts)), distinct_parts.of
    )
    return domain.spell(codes, numbers)
