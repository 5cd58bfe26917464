"""How sure the model must be of an outcome before an answer rests on it: the margin, and models
that were trained again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.data.decision import DecisionRule, Floats, Labels, Mask
from cfk_plugin.data.model import LabelModel, TrainingLabels
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.predictions import AnyOutcome, AskedModel, Predictions, Requirement
from cfk_plugin.errors import InputError, ModelError, PolicyError, counted

if TYPE_CHECKING:
    import pandas as pd

    from cfk_plugin.data.domain import Rows

MOST_MARGIN = 0.3
"""Largest margin that ``margin="auto"`` chooses."""
LEAST_SHARE = 0.75
"""Share of the people with the outcome that ``margin="auto"`` leaves."""
LEAST_GROUPS = 5
"""``margin="auto"`` leaves at least so many times k people: few groups leave queries unanswered."""
MARGIN_STEP = 0.05
"""``margin="auto"`` chooses a multiple of this, so that nobody's probability can be read off it."""
CHOSEN_MARGINS = tuple(
    round(step * MARGIN_STEP, 9) for step in range(round(MOST_MARGIN / MARGIN_STEP) + 1)
)
"""What ``margin="auto"`` may choose, ascending; 0 is none."""
DEVIATIONS = 1.64
"""Standard deviations below the mean of later models: the 5 % quantile of a normal distribution."""
SEALED = "requirement"
"""Name under which the requirement is sealed."""
_ROUNDING = 1e-9
_TRIED = 256  # rows on which a later model is tried


@dataclass(frozen=True, eq=False, kw_only=True)
class Margin(Requirement):
    """The outcome leads by at least the margin, which has to be given; see `DecisionRule.leads`."""

    margin: float = field()
    decision: DecisionRule
    desired: Mask | None  # shape (n_classes,); None where each row's own outcome counts

    def predictions(self, model: AskedModel, frame: pd.DataFrame) -> Predictions:
        probabilities = model.ask_probabilities(frame)
        labels = self.decision.outcomes(probabilities)
        leads = self.leads(probabilities, labels)
        return Predictions(labels, leads >= self.margin - _ROUNDING)

    def leads(self, probabilities: Floats, labels: Labels) -> Floats:
        """Return the lead of each row's outcome; shape (n,)."""
        if self.desired is not None:
            return self.decision.leads(probabilities, self.desired)
        return self.decision.leads(probabilities, labels[:, None] == self.decision.classes)


@dataclass(frozen=True, eq=False, kw_only=True)
class LaterModels(Requirement):
    """Models that were trained again give the outcome too, allowing for how much they differ.

    The mean of their probabilities less 1.64 standard deviations is above the border. Where a
    margin is asked for as well, the model itself must have it.
    """

    models: Sequence[LabelModel]  # n_later of them
    desired: Callable[[Labels], Mask] | None  # of outcomes; None where each row's own counts
    of_model: Requirement  # what the model that is explained must meet itself

    def predictions(self, model: AskedModel, frame: pd.DataFrame) -> Predictions:
        today = self.of_model.predictions(model, frame)
        above = np.array([self._above(later, frame, today.labels) for later in self.models])
        least = above.mean(axis=0) - DEVIATIONS * above.std(axis=0, ddof=1)
        return Predictions(today.labels, today.is_sure & (least > 0))

    def _above(self, later: LabelModel, frame: pd.DataFrame, labels: Labels) -> Floats:
        """Return how far a later model's probability is above the border; shape (n,)."""
        decision = later.decision
        if self.desired is None:
            desired = labels[:, None] == decision.classes
        else:
            desired = self.desired(decision.classes)
        return decision.above_border(later.ask_probabilities(frame), desired)


def checked_later(later: Any) -> Sequence[Any]:
    """Return models that were trained again: none, or two or more.

    Raises
    ------
    InputError
        For anything else.
    """
    if isinstance(later, (str, Mapping)) or not isinstance(later, Sequence):
        raise InputError(
            f"later must be a list of models that were trained again, got {type(later).__name__}"
        )
    if len(later) == 1:
        raise InputError(
            "later has one model, which does not tell how much models differ; give at least two,"
            " better eight"
        )
    return later


def requirement_of(
    policy: PrivacyPolicy,
    goal: DesiredOutcome,
    rows: TrainingLabels,
    later: Sequence[LabelModel] = (),
) -> Requirement:
    """Return what answers require of the model's outcomes.

    The margin is chosen on the rows of the population; ``"auto"`` chooses none beside later models.
    A sealed population has no rows, and names the margin that it was sealed with.

    Raises
    ------
    ModelError
        If the policy names a margin, or later models are given, and probabilities are missing or
        disagree with the labels; or if a later model lacks a class.
    PolicyError
        If later models are given where no catalogue is built, or another number than was sealed.
    """
    if policy.guarantee != "catalogue":
        if later:
            raise PolicyError(
                'later= says which answers of a catalogue last, and needs guarantee="catalogue"'
            )
        return AnyOutcome()
    if rows.population.is_sealed:
        own = _sealed_margin(goal, rows, len(later))
    else:
        own = _margin_on_rows(policy, goal, rows, may_choose=not later)
    if not later:
        return own
    for model in later:
        _check_later(model, goal, rows)
    return LaterModels(
        margin=own.margin,
        n_later=len(later),
        models=tuple(later),
        desired=None if goal.is_opposite else goal.is_met,
        of_model=own,
    )


def _margin_on_rows(
    policy: PrivacyPolicy, goal: DesiredOutcome, rows: TrainingLabels, *, may_choose: bool
) -> Requirement:
    """Return the policy's margin; ``"auto"`` is chosen on the rows, or no margin if none may be."""
    if policy.margin == 0 or (policy.margin == "auto" and not may_choose):
        return AnyOutcome()
    at = np.arange(rows.population.n_rows)
    labels = rows.labels(at)
    try:
        decision, probabilities = _checked_probabilities(
            rows.model, rows.population.rows(at), labels
        )
    except ModelError:
        if policy.margin == "auto":
            return AnyOutcome(margin=0.0)
        raise
    desired = None if goal.is_opposite else goal.is_met(decision.classes)
    if policy.margin != "auto":
        return Margin(margin=policy.margin, decision=decision, desired=desired)
    leads = Margin(margin=0.0, decision=decision, desired=desired).leads(probabilities, labels)
    if goal.is_opposite:  # every outcome that somebody has may be asked for
        with_outcome = [np.flatnonzero(labels == outcome) for outcome in set(labels.tolist())]
    else:
        with_outcome = [np.flatnonzero(goal.is_met(labels))]
    margin = min(
        _largest_margin(leads, some, rows.population, LEAST_GROUPS * policy.k)
        for some in with_outcome
    )
    if margin == 0:
        return AnyOutcome(margin=0.0)
    return Margin(margin=margin, decision=decision, desired=desired)


def _largest_margin(
    leads: Floats, with_outcome: Rows, population: Population, least_people: int
) -> float:
    """Return the largest margin, at most `MOST_MARGIN`, that leaves enough of the people.

    `leads` has the shape (n_rows,); `with_outcome` are the rows with the outcome. Enough are three
    in four of their people, and at least `least_people`.
    """
    enough = max(LEAST_SHARE * population.people(with_outcome), least_people)
    for margin in CHOSEN_MARGINS[:0:-1]:
        left = with_outcome[leads[with_outcome] >= margin - _ROUNDING]
        if population.people(left) >= enough:
            return margin
    return 0.0


def _checked_probabilities(
    model: LabelModel, table: pd.DataFrame, labels: Labels
) -> tuple[DecisionRule, Floats]:
    """Return how outcomes follow from probabilities, and those of a table with known labels.

    Raises
    ------
    ModelError
        If the model gives no probabilities, or other labels than they say.
    """
    decision = model.decision
    probabilities = model.ask_probabilities(table)
    if not np.array_equal(decision.outcomes(probabilities), labels):
        raise ModelError(
            "a margin needs outcomes that follow from the model's probabilities: the largest one,"
            " or one above threshold=. The predict and predict_proba of a model disagree on some"
            " rows; give one whose predictions follow, or write PrivacyPolicy(margin=0) and leave"
            " it out of later="
        )
    return decision, probabilities


def _sealed_margin(goal: DesiredOutcome, rows: TrainingLabels, n_later: int) -> Requirement:
    """Return the margin that was sealed."""
    sealed = rows.population.sealed_facts.get(SEALED, {})
    if sealed.get("n_later", 0) != n_later:
        raise PolicyError(
            f"the catalogue was sealed with {counted(sealed.get('n_later', 0), 'later model')}, and"
            f" {n_later} are given; fit with as many, later=[...]"
        )
    margin = sealed.get("margin")
    if not margin:
        return AnyOutcome(margin=margin)
    decision = rows.model.decision
    desired = None if goal.is_opposite else goal.is_met(decision.classes)
    return Margin(margin=margin, decision=decision, desired=desired)


def sealed_requirement(requirement: Requirement) -> dict[str, Any]:
    """Return what a sealed population keeps of a requirement, under the name `SEALED`."""
    return {"margin": requirement.margin, "n_later": requirement.n_later}


def _check_later(model: LabelModel, goal: DesiredOutcome, rows: TrainingLabels) -> None:
    """Refuse a later model that gives no probabilities or does not know the outcome."""
    decision = model.decision
    known = set(decision.classes.tolist())
    missing = set(rows.model.classes or ()) - known
    if missing or not (goal.is_opposite or goal.is_met(decision.classes).any()):
        raise ModelError(
            "a model in later= does not have the classes of the model that is explained; train it"
            " on rows with every outcome"
        )
    if rows.population.has_rows:
        table = rows.population.rows(np.arange(min(_TRIED, rows.population.n_rows)))
        _checked_probabilities(model, table, model(table).astype(object))
