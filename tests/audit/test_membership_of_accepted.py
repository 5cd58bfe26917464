"""Membership of people with the desired outcome, of whose rows entries and answers are made."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.tree import DecisionTreeClassifier

from borrowers import QUASI_IDENTIFIERS, Lender, borrowers
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import PrivacyPolicy
from cfk_plugin.audit.membership import membership, nearness_scores
from cfk_plugin.audit.result import AttackReport, AuditResult, Rate
from cfk_plugin.audit.targets import Answers, ProtectedOwner, RawOwner, Sample, tabular
from cfk_plugin.metrics.heom import Heom

K = 10
ENTRIES = "membership_entries"
ANSWERS = "membership_answers"
READING = [ENTRIES, ANSWERS]


@cache
def sample() -> Sample:
    rows = pd.concat(
        [borrowers(np.random.default_rng([0, part])) for part in range(3)],
        ignore_index=True,
    )
    return Sample(rows, Lender().predict(rows) == 1)


def nearest(train: pd.DataFrame, labels: Any, model: Any, desired: Any, seed: int) -> Any:
    return NearestUnlikeNeighbour(train, model, desired=desired)


def tree() -> Any:
    return tabular(sample().X, DecisionTreeClassifier(max_depth=6))


def protected(policy: PrivacyPolicy, explainer: Any = None) -> ProtectedOwner:
    return ProtectedOwner("protected", tree(), explainer, QUASI_IDENTIFIERS, rules=policy)


@cache
def attacked(name: str) -> AttackReport:
    owner: Any = {
        "raw": RawOwner("raw", tree(), nearest),
        "catalogue": protected(PrivacyPolicy(k=K)),
        "lookup": protected(PrivacyPolicy(k=K, guarantee="lookup"), nearest),
    }[name]
    return membership(owner, sample(), n_train=700, attacked=250, attacks=READING)


def test_entries_and_answers_tell_no_members() -> None:
    for name in READING:
        assert attacked("catalogue")[name].main.value < 0.6, name


@pytest.mark.parametrize("owner", ["raw", "lookup"])
def test_rows_in_answers_to_others_tell_members(owner: str) -> None:
    found = attacked(owner)[ANSWERS]
    assert found.worked
    assert found.figures["members"] == found.figures["others"] == found.n / 2


@pytest.mark.parametrize("owner", ["raw", "lookup"])
def test_without_a_catalogue_there_are_no_entries_to_read(owner: str) -> None:
    found = attacked(owner)[ENTRIES]
    assert math.isnan(found.main.value)
    assert (found.n, found.figures["compared_with"], found.worked) == (0, 0, False)


def test_no_value_of_a_row_is_in_a_report() -> None:
    text = attacked("catalogue").to_json() + repr(attacked("catalogue"))
    assert not [value for value in ("mobile", "landline", "studies", "guarantor") if value in text]


# --- scores by hand


@dataclass(frozen=True)
class Scripted:
    """Accepts who has much, and answers everybody else with a row of its table."""

    name: str = "scripted"
    tables: list[pd.DataFrame] = field(default_factory=list)

    def train(self, people: Sample, seed: int) -> ScriptedService:
        self.tables.append(people.X)
        return ScriptedService(people.X)


@dataclass(frozen=True)
class ScriptedService:
    table: pd.DataFrame

    def desired(self, X: pd.DataFrame) -> np.ndarray:
        return X["amount"].to_numpy() >= 50

    def confidence(self, X: pd.DataFrame) -> np.ndarray:
        return self.desired(X).astype(float)

    def explain(self, X: pd.DataFrame) -> Answers:
        rich = self.table[self.desired(self.table)]
        answers = rich.take(np.arange(len(X)) % len(rich)).set_axis(X.index)
        return Answers(answers, np.ones(len(X), dtype=bool))


def test_scores_are_minus_the_distance_to_the_nearest_answer() -> None:
    random = np.random.default_rng(3)
    people = pd.DataFrame(
        {"amount": random.random(200) * 100, "kind": random.choice(["a", "b"], 200)}
    )
    sample = Sample(people, people["amount"].to_numpy() >= 50)
    owner = Scripted()
    report = membership(owner, sample, n_train=60, attacks=[ANSWERS])
    found = report[ANSWERS]
    table = owner.tables[0]
    n_members = int((table["amount"] >= 50).sum())
    assert found.figures["members"] == n_members
    n_others = found.figures["others"]
    assert found.n == n_members + n_others
    # everybody with much is an answer to somebody, so members are at distance 0 and others are not
    assert (found.main.value, found.baseline.value) == (1, 0.5)
    n_refused = (60 - n_members) + (report.settings["n_others"] - n_others)
    assert found.figures["compared_with"] == n_refused


def test_nearness_is_that_of_the_columns_named_alone() -> None:
    people = pd.DataFrame({"pay": [10, 20], "town": ["a", "b"], "age": [1, 99]})
    heom = Heom.fit(people[["pay", "town"]])
    values = pd.DataFrame({"pay": [10, 10], "town": ["a", "a"]})
    assert nearness_scores(heom, people, values).tolist() == pytest.approx([0, -1])
    assert nearness_scores(heom, people, values.head(0)).tolist() == [0, 0]
    outcome = [1, 0]
    assert roc_auc_score(outcome, nearness_scores(heom, people, values)) == 1


# --- the worst result


def result(name: str, success: float) -> AuditResult:
    coin = Rate(0.5, 0.5, 0.5, 9)
    return AuditResult(name, "Guesses.", Rate(success, success, success, 9), coin, None, {}, 0, 9)


def report_of(**successes: float) -> AttackReport:
    results = tuple(result(f"membership_{name}", value) for name, value in successes.items())
    return AttackReport(kind="membership", subject="x", results=results, settings={})


def test_the_worst_result_is_the_largest_of_those_that_use_explanations() -> None:
    found = report_of(entries=0.7, answers=math.nan, cfd=0.55, loss=0.99, random=0.8)
    assert found.worst is not None
    assert found.worst.attack == found.to_dict()["worst"] == "membership_entries"
    assert report_of(cfd=0.6, entries=0.5).worst.attack == "membership_cfd"  # type: ignore[union-attr]
    nothing = report_of(entries=math.nan, loss=0.9)
    assert nothing.worst is nothing.to_dict()["worst"] is None
