"""Desired outcomes: a label, several labels, the opposite of the factual's, or a relation to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from cfk_plugin.data.decision import Labels, Mask
from cfk_plugin.data.outcome import DesiredOutcome, Outcome, RelativeOutcome
from cfk_plugin.errors import InputError, ModelError

LABELS = np.array(["low", "mid", "high", "mid"], dtype=object)
CLASSES = np.array(["high", "low", "mid"], dtype=object)

MID = DesiredOutcome.of("mid")
MID_OR_HIGH = DesiredOutcome.of({"mid", "high"})
OPPOSITE = DesiredOutcome.of("opposite")


@dataclass(frozen=True)
class SameInitial(RelativeOutcome):
    """Any label that begins like the factual's."""

    def is_desired(self, labels: Labels, factual_labels: Labels) -> Mask:
        pairs = zip(labels.tolist(), factual_labels.tolist(), strict=True)
        return np.array([label[0] == factual[0] for label, factual in pairs], dtype=bool)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (MID, [[False, False, True], [False, False, True]]),
        (MID_OR_HIGH, [[True, False, True], [True, False, True]]),
        (OPPOSITE, [[True, False, True], [False, True, True]]),
        (SameInitial(), [[False, True, False], [True, False, False]]),
    ],
    ids=["label", "set", "opposite", "relative"],
)
def test_outcome_is_met_by_query(outcome: DesiredOutcome, expected: list[list[bool]]) -> None:
    """A named outcome is the same for every query; others depend on the query's own label."""
    by_query = outcome.is_met_by_query(CLASSES, factual_labels=np.array(["low", "high"]))
    assert by_query.tolist() == expected


def test_range_contains_its_ends() -> None:
    """None stands for no end."""
    scores = np.array([0.0, 1.0, 2.0, 3.0])
    assert DesiredOutcome.of((1, 2)).is_met(scores).tolist() == [False, True, True, False]
    assert DesiredOutcome.of((None, 1)).is_met(scores).tolist() == [True, True, False, False]


def test_opposite_needs_labels_of_factuals() -> None:
    """Without them it is unknown which label is the opposite."""
    with pytest.raises(InputError, match="needs their labels"):
        OPPOSITE.is_met(LABELS)
    with pytest.raises(InputError, match="depends on the factual"):
        OPPOSITE.require_same_for_all(InputError("depends on the factual"))


def test_queries_may_have_outcome_already() -> None:
    """No query has the opposite of its own label."""
    is_met = MID.is_met_already(len(LABELS), lambda: LABELS)
    assert is_met.tolist() == [False, True, False, True]
    assert not OPPOSITE.is_met_already(len(LABELS), lambda: LABELS).any()


@pytest.mark.parametrize(
    ("outcome", "factual", "classes", "expected"),
    [
        (OPPOSITE, "low", ("low", "mid"), Outcome("mid")),
        (OPPOSITE, "low", ("low", "mid", "high"), Outcome("low", is_other=True)),
        (OPPOSITE, "low", None, Outcome("low", is_other=True)),
        (OPPOSITE, None, ("low", "mid", "high"), Outcome("mid")),
        (SameInitial(), "mad", ("mad", "mid", "low"), Outcome(labels=("mad", "mid"))),
        (SameInitial(), "mad", None, Outcome("mid")),
    ],
)
def test_certificate_names_desired_classes(
    outcome: DesiredOutcome, factual: str | None, classes: tuple[str, ...] | None, expected: Outcome
) -> None:
    """It names the other class if there is only one, and what is known otherwise."""
    labels = np.array(["mid"], dtype=object)
    factual_labels = None if factual is None else np.array([factual], dtype=object)
    assert outcome.outcomes(labels, factual_labels, classes) == [expected]


@pytest.mark.parametrize(
    ("protected", "of_call", "expected"),
    [
        (OPPOSITE, OPPOSITE, True),
        (OPPOSITE, MID, True),
        (OPPOSITE, MID_OR_HIGH, False),
        (MID_OR_HIGH, MID_OR_HIGH, True),
        (MID_OR_HIGH, MID, False),
    ],
)
def test_call_keeps_classes_whole(
    protected: DesiredOutcome, of_call: DesiredOutcome, expected: bool
) -> None:
    """A call may not ask for a part of a class."""
    assert protected.keeps_classes_whole(of_call) == expected


def test_call_may_narrow_the_outcome() -> None:
    """A part of what is protected may be named, and what else is named is not desired."""
    classes = CLASSES.tolist()
    assert MID_OR_HIGH.of_call("mid", classes) == MID
    assert MID_OR_HIGH.of_call({"mid"}, classes) == MID
    assert MID_OR_HIGH.of_call({"mid", "high"}, classes) is MID_OR_HIGH
    assert OPPOSITE.of_call("mid", classes) == MID
    both = MID_OR_HIGH.of_call({"low", "mid"}, classes)
    assert both.is_met(LABELS).tolist() == [False, True, False, True]


@pytest.mark.parametrize(
    ("desired", "message"), [("low", "another outcome"), ("lo", "its spelling")]
)
def test_call_may_name_no_other(desired: str, message: str) -> None:
    """Neither another class nor what is no class."""
    with pytest.raises(InputError, match=message):
        MID_OR_HIGH.of_call(desired, CLASSES.tolist())


@pytest.mark.parametrize("desired", ["mid", {"mid", "high"}, (1, None), "opposite"])
def test_outcome_survives_json(desired: Any) -> None:
    """An outcome is read back as it was written."""
    outcome = DesiredOutcome.of(desired)
    assert DesiredOutcome.of_json(outcome.to_json()) == outcome


@pytest.mark.parametrize("desired", [lambda labels: labels == "mid", SameInitial()])
def test_function_has_no_json(desired: Any) -> None:
    """Functions and relations cannot be logged."""
    with pytest.raises(InputError, match="cannot be logged"):
        DesiredOutcome.of(desired).to_json()


def test_function_returns_boolean_per_label() -> None:
    """One boolean for all labels is an error."""
    with pytest.raises(ModelError, match="one boolean per label"):
        DesiredOutcome.of(lambda labels: True).is_met(LABELS)


def test_counterfactuals_are_tested_per_factual() -> None:
    """Without labels of factuals, a counterfactual has to keep its own label."""
    labels = np.array(["low", "low", "low"], dtype=object)
    test = OPPOSITE.test_for(factual_labels=LABELS, labels=LABELS)
    assert test(labels, np.array([0, 1, 2])).tolist() == [False, True, True]
    assert test.take(np.array([2, 0]))(labels[:2], np.array([0, 1])).tolist() == [True, False]
    keeping = OPPOSITE.test_for(factual_labels=None, labels=LABELS)
    assert keeping(labels[:2], np.array([0, 1])).tolist() == [True, False]
