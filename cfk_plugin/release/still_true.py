"""Which released answers still hold with another model, such as one that was trained again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.combinations import Grid, rows_for_cells
from cfk_plugin.data.constraints import Constraints, DistinctParts, Rules
from cfk_plugin.data.decision import Mask
from cfk_plugin.data.display import card
from cfk_plugin.data.domain import Codes, Domain, Rows, bin_codes, bin_of
from cfk_plugin.data.encoded_table import Encoder, encode
from cfk_plugin.data.model import LabelModel, thresholded
from cfk_plugin.data.outcome import OPPOSITE, DesiredOutcome, Outcome
from cfk_plugin.data.region import Interval, Part
from cfk_plugin.data.values import to_number
from cfk_plugin.errors import HostOnly, InputError, counted
from cfk_plugin.records.run import LoggedReport, ReportContents, Value
from cfk_plugin.release.results import Explanation, GeneralizedCounterfactual, Policy, Withheld

ARTIFACT = "cfk/still_true.json"
SCHEMA_VERSION = 1
"""Version of the layout of `StillTrue.to_json`."""

_AT_ONCE = 32  # entries of a catalogue whose combinations the model is asked about at once


@dataclass(frozen=True, slots=True, kw_only=True)
class StillTrue(LoggedReport):
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
    policy : mapping
        Settings of the policy that the answers were released under.
    """

    answers: int
    broken: tuple[int, ...]
    queries: tuple[int, ...]
    policy: Mapping[str, Any] = field(repr=False)

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

    def _repr_html_(self) -> str:
        return card("Still true", f"{self}.")

    def to_dict(self) -> dict[str, Any]:
        """Return counts, share and policy as JSON-ready values; positions are left out."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "still_true",
            "answers": self.answers,
            "still_true": self.still_true,
            "share": self.share,
            "policy": dict(self.policy),
        }

    def _contents(self) -> ReportContents:
        metrics = [Value("cfk.still_true_of", self.answers)]
        if self.share is not None:
            metrics.append(Value("cfk.still_true", self.share))
        return ReportContents(
            text=self.to_json(indent=1),
            artifact=ARTIFACT,
            metrics=metrics,
            params={},
            tags={"cfk.still_true": str(SCHEMA_VERSION)},
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ReleasedAnswer(HostOnly):
    """What a released answer tells a person to do."""

    position: int  # among all entries
    query: int
    region: Mapping[str, Part]  # empty for a prototype
    values: Mapping[str, Any]  # of private features, or of all features of a prototype
    withheld: tuple[str, ...]
    outcome: Outcome


def answers_of(entries: Sequence[Explanation]) -> list[ReleasedAnswer]:
    """Return the released entries."""
    answers = []
    for position, entry in enumerate(entries):
        region: Mapping[str, Part] = {}
        if isinstance(entry, Withheld):
            continue
        if isinstance(entry, GeneralizedCounterfactual):
            region = entry.region.parts
            values = entry.released
        else:
            values = entry.values
        answers.append(
            ReleasedAnswer(
                position=position,
                query=entry.query,
                region=region,
                values=values,
                withheld=entry.withheld,
                outcome=entry.outcome,
            )
        )
    return answers


def still_true_at(
    rows: pd.DataFrame, answers: Sequence[ReleasedAnswer], policy: Policy, judge: NewModel
) -> StillTrue:
    """Count the answers whose row, one per answer, gets the outcome."""
    is_true = np.ones(len(answers), dtype=bool)
    if answers:
        is_true = judge.has_outcome(rows, np.arange(len(answers)))
    return _with_mask(answers, is_true, policy)


def still_true_within(
    encoder: Encoder,
    answers: Sequence[ReleasedAnswer],
    policy: Policy,
    least_pureness: float,
    judge: NewModel,
) -> StillTrue:
    """Count the answers of whose combinations at least `least_pureness` get the outcome.

    Of more than 10,000 combinations, 2,000 are drawn.
    """
    is_true = np.ones(len(answers), dtype=bool)
    for start in range(0, len(answers), _AT_ONCE):
        batch = answers[start : start + _AT_ONCE]
        positions = np.arange(start, start + len(batch))
        rows, answer_of_row = _combinations(encoder, batch)
        has_outcome = judge.has_outcome(rows, positions[answer_of_row])
        n_desired = np.bincount(answer_of_row, has_outcome, len(batch))
        n_combinations = np.bincount(answer_of_row, minlength=len(batch))
        share = n_desired / np.maximum(n_combinations, 1)
        is_true[positions] = (n_combinations > 0) & (share >= least_pureness)
    return _with_mask(answers, is_true, policy)


def _with_mask(answers: Sequence[ReleasedAnswer], is_true: Mask, policy: Policy) -> StillTrue:
    broken = [answer for answer, holds in zip(answers, is_true, strict=True) if not holds]
    return counted_true(answers, broken, policy)


def counted_true(
    answers: Sequence[ReleasedAnswer], broken: Sequence[ReleasedAnswer], policy: Policy
) -> StillTrue:
    """Return the figure of some answers, of which a model refuses the broken ones."""
    return StillTrue(
        answers=len(answers),
        broken=tuple(int(answer.position) for answer in broken),
        queries=tuple(int(answer.query) for answer in broken),
        policy=policy.to_dict(),
    )


class NewModel(HostOnly):
    """Asks a model for the outcomes that answers were released for.

    Parameters
    ----------
    model, threshold
        As for `KAnonymizer.fit` and `protect`.
    features : sequence of str
    answers : sequence of ReleasedAnswer
    desired : label, set, range or callable, optional
        The outcome of answers that have none on record.

    Raises
    ------
    ModelError
        If the model cannot be asked, or has no such outcome.
    InputError
        If an answer has no outcome on record, and `desired` does not say it.
    """

    def __init__(
        self,
        model: Any,
        threshold: float | None,
        features: Sequence[str],
        answers: Sequence[ReleasedAnswer],
        desired: Any = None,
    ) -> None:
        self._outcomes = list(dict.fromkeys(answer.outcome for answer in answers))
        self._goals = [_goal_of(outcome, desired) for outcome in self._outcomes]
        number = {outcome: i for i, outcome in enumerate(self._outcomes)}
        self._outcome_of_answer = np.array([number[a.outcome] for a in answers], dtype=np.int64)
        # All answers of a release have outcomes of one kind.
        goal = self._goals[0] if self._goals else None
        self._model = LabelModel(thresholded(model, threshold), features, goal)
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
    if desired is None:
        raise InputError(
            "some answers do not say which outcome was desired, because a function decided it, or"
            ' because they are prototypes for "opposite"; give desired=, the outcome that they were'
            " made for"
        )
    goal = DesiredOutcome.of(desired)
    goal.require_same_for_all(
        InputError(
            'desired="opposite" does not say which outcome that was; give a label, a set, a range'
            " or a function"
        )
    )
    return goal


def rows_asked_for(
    answers: Sequence[ReleasedAnswer], queries: pd.DataFrame, encoder: Encoder, rules: Rules
) -> pd.DataFrame:
    """Return the row that each answer asks its person to become, one per answer.

    It is the permitted point of the region that is nearest to the query, with the private values
    that were released; withheld ones stay the query's own.

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
        in_part: dict[int, Part] = {}  # the part of a region or a bin, by position of the answer
        for i, answer in enumerate(answers):
            if name in answer.region:
                in_part[i] = answer.region[name]
            elif isinstance(answer.values.get(name), Interval):
                in_part[i] = answer.values[name]
            elif name not in answer.withheld:
                values[i] = answer.values[name]
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


def _combinations(
    encoder: Encoder, answers: Sequence[ReleasedAnswer]
) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return value combinations of the answers' regions as rows, and the answer of each."""
    schema = encoder.schema
    is_varying = any(_is_generalised(answer, name) for answer in answers for name in schema.private)
    varying = schema.private if is_varying else ()
    cells = [_grid(encoder, answer, varying).drawn() for answer in answers]
    n_combinations = [len(cells_of_answer) for cells_of_answer in cells]
    answer_of_row = np.repeat(np.arange(len(answers)), n_combinations)
    released: dict[str, list[Any]] = {name: [None] * len(answers) for name in schema.features}
    for name in schema.private:
        for i, answer in enumerate(answers):
            if not _is_generalised(answer, name):
                released[name][i] = answer.values[name]
    table = encoder.read(pd.DataFrame(released, dtype=object))
    rows = rows_for_cells(encoder, table, answer_of_row, np.concatenate(cells))
    return rows, answer_of_row


def _is_generalised(answer: ReleasedAnswer, name: str) -> bool:
    """Return True if a private feature is withheld, or released as its bin."""
    return name in answer.withheld or isinstance(answer.values[name], Interval)


def _grid(encoder: Encoder, answer: ReleasedAnswer, private: Sequence[str]) -> Grid:
    """Return the value combinations of an answer's region and of these private features."""
    axes = []
    for name in encoder.schema.quasi_identifiers:
        is_inside = encoder.domains[name].inside(answer.region[name])
        axes.append(np.flatnonzero(is_inside).astype(np.int32))
    axes += [_private_axis(encoder.domains[name], answer) for name in private]
    return Grid(tuple(axes))


def _private_axis(domain: Domain, answer: ReleasedAnswer) -> Codes:
    """Return the codes that a private feature stands for; `domain.size` for the released value."""
    name = domain.attribute.name
    if name in answer.withheld:
        return np.arange(domain.size, dtype=np.int32)
    value = answer.values[name]
    if not isinstance(value, Interval):
        return np.array([domain.size], dtype=np.int32)
    number_of_bin = bin_of(domain, to_number(value.low))
    if number_of_bin is None:
        return np.empty(0, dtype=np.int32)
    return np.arange(*bin_codes(domain, number_of_bin), dtype=np.int32)
