"""How sure the model must be of an outcome before an answer rests on it.

The outcome may have to lead by a margin, or models that were trained again may have to give it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.data.decision import DecisionRule, Floats, Labels
from cfk_plugin.data.domain import Rows
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.predictions import AnyOutcome, AskedModel, Predictions, Requirement
from cfk_plugin.data.promises import promise_of
from cfk_plugin.data.sealing import BundleContent
from cfk_plugin.data.training_labels import TrainingLabels
from cfk_plugin.errors import InputError, ModelError, PolicyError, counted

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
    desired_outcome: DesiredOutcome

    def predictions(self, model: AskedModel, frame: pd.DataFrame) -> Predictions:
        """Ask about a table of n rows; an answer may rest on a label that leads by the margin."""
        probabilities = model.ask_probabilities(frame)
        labels = self.decision.outcomes(probabilities)
        leads = self.leads(probabilities, labels)
        return Predictions(labels, leads >= self.margin - _ROUNDING)

    def leads(self, probabilities: Floats, labels: Labels) -> Floats:
        """Return the lead of each row's outcome; shape (n,)."""
        is_same = self.desired_outcome.is_same_outcome(labels, self.decision.classes)
        return self.decision.leads(probabilities, is_same)


@dataclass(frozen=True, eq=False, kw_only=True)
class LaterModels(Requirement):
    """Models that were trained again give the outcome too, allowing for how much they differ.

    The mean of their probabilities less 1.64 standard deviations is above the border. Where a
    margin is asked for as well, the model itself must have it.
    """

    models: Sequence[LabelModel]  # n_later of them
    desired_outcome: DesiredOutcome
    of_model: Requirement  # what the model that is explained must meet itself

    def predictions(self, model: AskedModel, frame: pd.DataFrame) -> Predictions:
        """Ask about a table of n rows; an answer may rest on a label that later models give too."""
        today = self.of_model.predictions(model, frame)
        # (n_later, n)
        distances = np.array(
            [self._distance_above_border(later, frame, today.labels) for later in self.models]
        )
        lower_bound = distances.mean(axis=0) - DEVIATIONS * distances.std(axis=0, ddof=1)
        return Predictions(today.labels, today.is_sure & (lower_bound > 0))

    def _distance_above_border(
        self, later: LabelModel, frame: pd.DataFrame, labels: Labels
    ) -> Floats:
        """Return how far a later model's probability is above the border; shape (n,)."""
        decision = later.decision
        is_same = self.desired_outcome.is_same_outcome(labels, decision.classes)
        return decision.above_border(later.ask_probabilities(frame), is_same)


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
    """Return the requirement that answers make of the model's outcomes.

    The margin is chosen on the rows of the population; ``"auto"`` chooses none beside later models.
    A sealed catalogue has no rows, and names the margin that it was sealed with.

    Raises
    ------
    ModelError
        If the policy names a margin, or later models are given, and probabilities are missing or
        disagree with the labels; or if a later model lacks a class.
    PolicyError
        If later models are given where no catalogue is built, or another number than was sealed.
    """
    if not promise_of(policy.guarantee).may_have_margin:
        if len(later) > 0:
            raise PolicyError(
                'later= says which answers of a catalogue last, and needs guarantee="catalogue"'
            )
        return AnyOutcome()
    sealed = rows.population.sealed
    if sealed is not None:
        of_model = _sealed_margin(sealed, goal, rows, len(later))
    else:
        of_model = _margin_on_rows(policy, goal, rows, may_choose=len(later) == 0)
    if len(later) == 0:
        return of_model
    for model in later:
        _check_later(model, goal, rows)
    return LaterModels(
        margin=of_model.margin,
        n_later=len(later),
        models=tuple(later),
        desired_outcome=goal,
        of_model=of_model,
    )


def _margin_on_rows(
    policy: PrivacyPolicy, goal: DesiredOutcome, rows: TrainingLabels, *, may_choose: bool
) -> Requirement:
    """Return the policy's margin; ``"auto"`` is chosen on the rows, or no margin if none may be."""
    if policy.margin == 0 or (policy.margin == "auto" and not may_choose):
        return AnyOutcome()
    all_rows = np.arange(rows.population.n_rows)
    labels = rows.labels(all_rows)
    table = rows.population.rows(all_rows)
    try:
        decision, probabilities = _checked_probabilities(rows.model, table, labels)
    except ModelError:
        if policy.margin == "auto":
            return AnyOutcome(margin=0.0)
        raise
    if policy.margin != "auto":
        return Margin(margin=policy.margin, decision=decision, desired_outcome=goal)
    no_margin = Margin(margin=0.0, decision=decision, desired_outcome=goal)
    leads = no_margin.leads(probabilities, labels)
    least_people = LEAST_GROUPS * policy.k
    margin = min(
        _largest_margin(leads, with_outcome, rows.population, least_people)
        for with_outcome in goal.rows_of_classes(labels)
    )
    if margin == 0:
        return AnyOutcome(margin=0.0)
    return Margin(margin=margin, decision=decision, desired_outcome=goal)


def _largest_margin(
    leads: Floats, with_outcome: Rows, population: Population, least_people: int
) -> float:
    """Return the largest margin, at most `MOST_MARGIN`, that leaves enough of the people.

    `leads` has the shape (n_rows,); `with_outcome` are the rows with the outcome. Enough are three
    in four of their people, and at least `least_people`.
    """
    enough = max(LEAST_SHARE * population.people(with_outcome), least_people)
    for margin in CHOSEN_MARGINS[:0:-1]:
        with_margin = with_outcome[leads[with_outcome] >= margin - _ROUNDING]
        if population.people(with_margin) >= enough:
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


def _sealed_margin(
    sealed: BundleContent, goal: DesiredOutcome, rows: TrainingLabels, n_later: int
) -> Requirement:
    """Return the margin that was sealed."""
    requirement = sealed.facts.get(SEALED, {})
    n_sealed = requirement.get("n_later", 0)
    if n_sealed != n_later:
        raise PolicyError(
            f"the catalogue was sealed with {counted(n_sealed, 'later model')}, and"
            f" {n_later} are given; fit with as many, later=[...]"
        )
    margin = requirement.get("margin")
    if margin is None or margin == 0:
        return AnyOutcome(margin=margin)
    decision = rows.model.decision
    return Margin(margin=margin, decision=decision, desired_outcome=goal)


def sealed_requirement(requirement: Requirement) -> dict[str, Any]:
    """Return what a sealed catalogue keeps of a requirement, under the name `SEALED`."""
    return {"margin": requirement.margin, "n_later": requirement.n_later}


def _check_later(model: LabelModel, goal: DesiredOutcome, rows: TrainingLabels) -> None:
    """Refuse a later model that gives no probabilities or does not know the outcome."""
    decision = model.decision
    later_classes = set(decision.classes.tolist())
    has_all_classes = rows.model.classes is None or set(rows.model.classes) <= later_classes
    if not has_all_classes or not goal.is_possible(decision.classes):
        raise ModelError(
            "a model in later= does not have the classes of the model that is explained; train it"
            " on rows with every outcome"
        )
    table = rows.population.rows_to_try(_TRIED)
    if table is not None:
        _checked_probabilities(model, table, model(table).astype(object))
