"""What the kinds of desired outcome answer to the questions that the rest of the product asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from cfk_plugin.data.decision import Labels, Mask
from cfk_plugin.data.outcome import DesiredOutcome, DesiredSet, Outcome, RelativeOutcome
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


def test_an_outcome_object_stays_as_it_is() -> None:
    assert DesiredOutcome.of(OPPOSITE) is OPPOSITE
    same_initial = SameInitial()
    assert DesiredOutcome.of(same_initial) is same_initial
    assert same_initial.desired is same_initial


def test_outcomes_are_equal_if_the_same_is_desired() -> None:
    assert DesiredOutcome.of({"mid"}) == MID
    assert DesiredOutcome.of({"high", "mid"}) == MID_OR_HIGH
    assert DesiredOutcome.of("opposite") == OPPOSITE
    assert MID != OPPOSITE


@pytest.mark.parametrize("outcome", [MID, MID_OR_HIGH], ids=["a label", "a set"])
def test_a_named_outcome_is_the_same_for_every_query(outcome: DesiredOutcome) -> None:
    is_met = outcome.is_met(LABELS)
    by_query = outcome.is_met_by_query(LABELS, factual_labels=np.array(["low", "mid"]))
    assert by_query.tolist() == [is_met.tolist(), is_met.tolist()]
    assert outcome.common_desired == outcome.desired
    assert outcome.outcomes(LABELS, None, None) == [outcome.common_outcome] * len(LABELS)


def test_the_opposite_is_any_label_but_the_factuals() -> None:
    by_query = OPPOSITE.is_met_by_query(CLASSES, factual_labels=np.array(["low", "high"]))
    assert by_query.tolist() == [[True, False, True], [False, True, True]]
    of_every_outcome = DesiredOutcome.is_met_by_query(OPPOSITE, CLASSES, LABELS)
    assert np.array_equal(OPPOSITE.is_met_by_query(CLASSES, LABELS), of_every_outcome)
    assert OPPOSITE.common_desired is None
    assert OPPOSITE.common_outcome is None


def test_the_opposite_cannot_be_judged_without_the_factuals() -> None:
    with pytest.raises(InputError, match="needs their labels"):
        OPPOSITE.is_met(LABELS)


def must_not_ask() -> Labels:
    raise AssertionError("the model was asked for labels that nothing depends on")


def test_a_named_outcome_needs_no_labels_of_factuals() -> None:
    MID.require_same_for_all(InputError("depends on the factual"))
    assert MID.labels_if_needed(must_not_ask) is None
    is_met = MID.is_met_already(len(LABELS), lambda: LABELS)
    assert is_met.tolist() == [False, True, False, True]


def test_no_query_has_the_opposite_already() -> None:
    with pytest.raises(InputError, match="depends on the factual"):
        OPPOSITE.require_same_for_all(InputError("depends on the factual"))
    assert OPPOSITE.labels_if_needed(lambda: LABELS) is LABELS
    assert OPPOSITE.is_met_already(3, must_not_ask).tolist() == [False, False, False]


def test_every_label_is_eligible_for_the_opposite() -> None:
    assert OPPOSITE.is_eligible(LABELS).all()


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (("low", "mid"), Outcome("mid")),
        (("low", "mid", "high"), Outcome("low", is_other=True)),
        (None, Outcome("low", is_other=True)),
    ],
)
def test_a_certificate_of_the_opposite_names_the_other_class_if_there_is_one(
    classes: tuple[str, ...] | None, expected: Outcome
) -> None:
    labels = np.array(["mid"], dtype=object)
    factual_labels = np.array(["low"], dtype=object)
    assert OPPOSITE.outcomes(labels, factual_labels, classes) == [expected]
    assert OPPOSITE.outcomes(labels, None, classes) == [Outcome("mid")]


def test_a_certificate_of_a_relative_outcome_names_the_desired_classes() -> None:
    labels = np.array(["mid"], dtype=object)
    factual_labels = np.array(["mad"], dtype=object)
    outcomes = SameInitial().outcomes(labels, factual_labels, ("mad", "mid", "low"))
    assert outcomes == [Outcome(labels=("mad", "mid"))]
    assert SameInitial().outcomes(labels, factual_labels, None) == [Outcome("mid")]


@pytest.mark.parametrize(
    ("outcome", "classes", "expected"),
    [(MID, ["low"], False), (MID, ["low", "mid"], True), (OPPOSITE, ["low"], False)],
)
def test_an_outcome_is_possible_if_a_class_is_desired(
    outcome: DesiredOutcome, classes: list[str], expected: bool
) -> None:
    assert outcome.is_possible(np.array(classes, dtype=object)) == expected


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
def test_a_call_may_not_ask_for_a_part_of_a_class(
    protected: DesiredOutcome, of_call: DesiredOutcome, expected: bool
) -> None:
    assert protected.keeps_classes_whole(of_call) == expected


def test_a_call_may_name_a_part_of_what_is_protected() -> None:
    classes = CLASSES.tolist()
    assert MID_OR_HIGH.of_call("mid", classes) == MID
    assert MID_OR_HIGH.of_call({"mid", "high"}, classes) is MID_OR_HIGH
    assert OPPOSITE.of_call("mid", classes) == MID
    both = MID_OR_HIGH.of_call({"low", "mid"}, classes)
    assert both.is_met(LABELS).tolist() == [False, True, False, True]


@pytest.mark.parametrize(
    ("desired", "message"), [("low", "another outcome"), ("lo", "its spelling")]
)
def test_a_call_may_not_name_another_outcome(desired: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        MID_OR_HIGH.of_call(desired, CLASSES.tolist())


@pytest.mark.parametrize("desired", ["mid", {"mid", "high"}, (1, None), "opposite"])
def test_an_outcome_is_read_back_as_it_was_written(desired: Any) -> None:
    outcome = DesiredOutcome.of(desired)
    assert DesiredOutcome.of_json(outcome.to_json()) == outcome


@pytest.mark.parametrize("desired", [lambda labels: labels == "mid", SameInitial()])
def test_an_outcome_that_json_cannot_hold_is_refused(desired: Any) -> None:
    with pytest.raises(InputError, match="cannot be logged"):
        DesiredOutcome.of(desired).to_json()


def test_a_function_must_return_one_boolean_per_label() -> None:
    with pytest.raises(ModelError, match="one boolean per label"):
        DesiredOutcome.of(lambda labels: True).is_met(LABELS)


def test_the_test_of_counterfactuals_can_be_restricted() -> None:
    test = OPPOSITE.test_for(factual_labels=LABELS, labels=LABELS)
    which = np.array([0, 1, 2])
    said = np.array(["low", "low", "low"], dtype=object)
    assert test(said, which).tolist() == [False, True, True]
    part = test.take(np.array([2, 0]))
    assert part(said[:2], np.array([0, 1])).tolist() == [True, False]


def test_without_factuals_the_own_label_has_to_be_reached() -> None:
    test = OPPOSITE.test_for(factual_labels=None, labels=LABELS)
    said = np.array(["low", "low"], dtype=object)
    assert test(said, np.array([0, 1])).tolist() == [True, False]


def test_a_set_tests_its_labels() -> None:
    assert DesiredSet(frozenset({"mid"}))(LABELS).tolist() == [False, True, False, True]
