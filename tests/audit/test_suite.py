"""All audits: what is run, and what is left out and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin.audit.suite import (
    ATTACKED,
    AUDITS,
    REPETITIONS,
    SHADOW_MODELS,
    TRAINED_ON,
    AuditSelection,
    Scope,
    describe_power,
    run_audits,
    select_audits,
)
from cfk_plugin.audit.targets import Answers, ProtectedOwner, Sample, Target
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.errors import InputError


def sample_of(n_people: int) -> Sample:
    """Return people of whom every other one has the desired outcome."""
    X = pd.DataFrame({"age": np.arange(float(n_people)), "debt": np.zeros(n_people)})
    return Sample(X, np.arange(n_people) % 2 == 0)


def no_explainer(*_: Any) -> Any:
    raise AssertionError("nothing is explained here")


SCOPE = Scope(quasi_identifiers=("age",), explainer=no_explainer)


@dataclass(frozen=True)
class Refuser:
    """Gives everybody the undesired outcome, explains it with the query, and counts trainings."""

    name: str = "refuser"
    trained_on: list[int] = field(default_factory=list)

    def train(self, people: Sample, seed: int) -> Refuser:
        self.trained_on.append(len(people))
        return self

    def desired(self, X: pd.DataFrame) -> np.ndarray:
        return np.zeros(len(X), dtype=bool)

    def confidence(self, X: pd.DataFrame) -> np.ndarray:
        return np.zeros(len(X))

    def explain(self, X: pd.DataFrame) -> Answers:
        return Answers(X, np.ones(len(X), dtype=bool))


def protected(k: int) -> ProtectedOwner:
    return ProtectedOwner(
        name=f"k={k}",
        model=DecisionTreeClassifier(),
        explainer=None,
        quasi_identifiers=("age",),
        rules=PrivacyPolicy(k=k),
    )


def select(n_people: int, *audits: str, owner: Target | None = None, **options: Any) -> Any:
    names = audits or tuple(AUDITS)
    owners = [owner or Refuser()]
    return select_audits(owners, sample_of(n_people), SCOPE, audits=names, **options)


def names_of(selection: AuditSelection) -> list[str]:
    return [each.audit for each in selection.selected]


def reason_of(selection: AuditSelection, audit: str) -> str:
    (reason,) = [each.reason for each in selection.left_out if each.audit == audit]
    return reason


def test_an_audit_runs_with_its_numbers() -> None:
    owner = Refuser()
    selection = select(8_000, "extraction", "membership", owner=owner)
    assert names_of(selection) == ["membership", "extraction"]
    membership_report, extraction_report = [each.report for each in run_audits(selection)]
    assert membership_report.settings["n_train"] == TRAINED_ON
    assert membership_report.settings["n_shadows"] == SHADOW_MODELS
    assert membership_report.settings["attacked"] == ATTACKED
    assert membership_report["membership_cfd"].n == 2 * ATTACKED
    assert extraction_report.settings["queries"] == "100, 500"
    assert extraction_report.settings["repeats"] == REPETITIONS
    n_trainings = 1 + SHADOW_MODELS + REPETITIONS
    assert len(owner.trained_on) == n_trainings
    assert max(owner.trained_on) == TRAINED_ON


def test_at_most_three_of_ten_people_are_trained_on() -> None:
    owner = Refuser()
    assert [each.audit for each in run_audits(select(300, "membership", owner=owner))]
    assert owner.trained_on[0] == 90


def test_a_seed_draws_other_people() -> None:
    def accuracy(seed: int) -> float:
        (finished,) = run_audits(select(301, "membership", seed=seed))
        return finished.report["membership_cfd"].figures["test_accuracy"]

    assert accuracy(0) == accuracy(0)
    assert accuracy(0) != accuracy(1)


def test_a_table_may_be_sorted_by_outcome() -> None:
    n_people = 20_000
    X = sample_of(n_people).X
    people = Sample(X, np.arange(n_people) < n_people / 2)
    selection = select_audits([Refuser()], people, SCOPE, audits=["extraction"])
    (crowd,) = [each.task.crowd for each in selection.selected]
    assert len(crowd) == 8 * TRAINED_ON
    assert 0.45 < crowd.y.mean() < 0.55


# --- what is left out


def test_selecting_trains_nothing() -> None:
    owner = Refuser()
    assert select(4_000, owner=owner).selected
    assert owner.trained_on == []


def test_audits_that_cannot_attack_an_owner_are_left_out_with_the_reason() -> None:
    selection = select(4_000)
    assert names_of(selection) == ["attribute_inference", "membership", "extraction"]
    assert reason_of(selection, "linkage") == AUDITS["linkage"].requirement
    with pytest.raises(InputError, match="linkage of refuser: it attacks regions"):
        select(4_000, "linkage")


def test_audits_with_too_few_people_are_left_out_with_the_reason() -> None:
    selection = select(60, "membership", "extraction")
    assert names_of(selection) == ["membership"]
    assert "give at least 80 people" in reason_of(selection, "extraction")
    selection = select(100, "membership", "extraction")
    assert "the attacker has 72" in reason_of(selection, "extraction")
    with pytest.raises(InputError, match="give at least 80 people"):
        select(60, "extraction")


def test_audits_of_fewer_people_than_k_are_left_out() -> None:
    # Of 400 people linkage trains on 3 of 10, 120, and extraction on an eighth, 50.
    selection = select(400, "linkage", "extraction", owner=protected(k=50))
    assert names_of(selection) == ["linkage", "extraction"]
    selection = select(400, "linkage", "extraction", owner=protected(k=51))
    assert names_of(selection) == ["linkage"]
    assert (
        reason_of(selection, "extraction") == "a model is trained on 50 people, fewer than k = 51"
    )


def test_audits_without_both_outcomes_are_left_out() -> None:
    alike = Sample(sample_of(300).X, np.zeros(300, dtype=bool))
    with pytest.raises(InputError, match="all 90 people that a model is trained on have the same"):
        select_audits([Refuser()], alike, SCOPE, audits=["membership"])


# --- what audits can show


def test_what_audits_show_at_best_is_said_with_its_numbers() -> None:
    # By hand: 0.98 / sqrt(200), 0.5 + 2.8 sqrt(601 / (12 * 300 * 300)) and 0.98 / sqrt(750).
    told = dict(sentence.split(": ", 1) for sentence in describe_power(select(6_000)))
    assert told == {
        "attribute_inference": "sees an advantage of 7 points or more (200 explanations)",
        "membership": (
            "sees an AUC of 0.57 or more (300 members, 300 others); nothing at a false positive"
            " rate of 0.001"
        ),
        "extraction": "sees a gain of 3.6 points or more (750 people held out)",
    }
    # 1 - 0.05^(1/200)
    (linkage,) = describe_power(select(6_000, "linkage", owner=protected(k=10)))
    assert linkage == "linkage: no success in 200 explanations leaves up to 1.5 % open"


# --- arguments


def test_wrong_arguments_are_refused() -> None:
    people = sample_of(400)
    with pytest.raises(InputError, match="unknown audit guessing; known: linkage"):
        select_audits([Refuser()], people, SCOPE, audits=["guessing"])
    with pytest.raises(InputError, match="two owners have the same name"):
        select_audits([Refuser(), Refuser()], people, SCOPE)
    with pytest.raises(InputError, match="seed"):
        select_audits([Refuser()], people, SCOPE, seed=-1)
    with pytest.raises(InputError, match="sample"):
        select_audits([Refuser()], people.X, SCOPE)  # type: ignore[arg-type]
