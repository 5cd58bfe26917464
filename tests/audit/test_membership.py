"""The whole audit on linear models: counterfactuals are exact, and the leak grows with the number of features."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.audit.membership import ATTACKS, HypercubePopulation, Parts, membership
from cfk_plugin.audit.result import AttackReport
from cfk_plugin.audit.targets import Answers, Sample
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.heom import Heom
from small_owner import LinearOwner, LinearService

CFD, CFD_LRT = "membership_cfd", "membership_cfd_lrt"
FEW = HypercubePopulation(d=10)
LEAKING = HypercubePopulation(d=800).draw(2000, seed=1)
OWNER = LinearOwner()


def attack(sample: Sample, owner: Any = OWNER, **settings: Any) -> AttackReport:
    return membership(owner, sample, **{"n_train": 200, "distance": "l1", **settings})


@pytest.fixture(scope="module")
def leaking() -> AttackReport:
    return attack(LEAKING, n_train=400, epsilon=0.05)


@dataclass
class Counted:
    """A linear owner that counts whom it trains on and what it is asked."""

    name: str = "counted"
    trained: list[Sample] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    def train(self, people: Sample, seed: int) -> CountedService:
        self.trained.append(people)
        inner = LinearOwner().train(people, seed)
        return CountedService(inner.weights, inner.intercept, asked=self.asked)


@dataclass(frozen=True)
class CountedService(LinearService):
    asked: list[int] = field(default_factory=list)

    def explain(self, X: pd.DataFrame) -> Answers:
        self.asked.append(len(X))
        return super().explain(X)


def test_the_leak_of_a_linear_model_grows_with_the_number_of_features(leaking: AttackReport) -> None:
    low = attack(FEW.draw(2000, seed=1), n_train=400)
    assert low[CFD].main.low < 0.5 < low[CFD].main.high
    assert low[CFD_LRT].main.low < 0.5 < low[CFD_LRT].main.high
    assert not low[CFD_LRT].worked
    for name in (CFD, CFD_LRT):
        assert leaking[name].main.low > 0.5  # larger distances are members
        assert leaking[name].worked
    assert leaking[CFD_LRT].main.low > low[CFD_LRT].main.high
    assert leaking[CFD_LRT].main.value > leaking[CFD].main.value
    assert leaking["membership_loss_lrt"].worked
    turned = attack(LEAKING, n_train=400, direction="smaller", attacks=[CFD, CFD_LRT])
    for name in (CFD, CFD_LRT):
        assert turned[name].main.value == pytest.approx(1 - leaking[name].main.value)


def test_nobody_is_found_among_people_who_are_no_members(leaking: AttackReport) -> None:
    for result in leaking:
        assert result.control is not None
        assert result.control.low < 0.5 < result.control.high
        assert result.control.n == result.figures["others"]
    coin = attack(LEAKING, n_train=400, attacks=["membership_random"])["membership_random"]
    assert coin.main.low < 0.5 < coin.main.high


def test_figures_say_what_was_measured(leaking: AttackReport) -> None:
    figures = leaking[CFD_LRT].figures
    assert figures["members"] + figures["others"] == leaking[CFD_LRT].n
    assert (figures["shadows"], leaking[CFD].figures["shadows"]) == (8, 0)
    assert figures["train_accuracy"] == 1 > figures["test_accuracy"] > 0.9
    assert 0.5 < figures["detectable_auc"] < 0.65
    assert (figures["unanswered_members"], figures["unanswered_others"], figures["unanswered_auc"]) == (0, 0, 0.5)
    assert 0 < figures["shadows_answering"] <= 8
    assert figures["tpr_at_0_1_low"] < figures["tpr_at_0_1"] < figures["tpr_at_0_1_high"]
    assert math.isnan(figures["tpr_at_0_001"])
    assert "unanswered_members" not in leaking["membership_loss"].figures


def test_a_claim_that_does_not_hold_is_exceeded(leaking: AttackReport) -> None:
    figures = leaking[CFD_LRT].figures
    assert figures["bound_tight"] == pytest.approx(1 / (1 + math.exp(-0.1)))  # 0.05 for one more or less counts twice
    assert figures["bound_paper"] > figures["bound_tight"]
    assert figures["exceeds_bound"] == 1
    assert {"bound_tight", "bound_paper"} < set(leaking.curves)
    wide = attack(LEAKING, n_train=400, epsilon=3.0, relation="replace-one", attacks=[CFD])
    assert wide[CFD].figures["exceeds_bound"] == 0
    assert wide.settings["relation"] == "replace-one"
    assert "bound_tight" not in attack(FEW.draw(300, seed=1), n_train=80, attacks=[CFD])[CFD].figures


def test_the_report_is_plain_and_seeded(leaking: AttackReport) -> None:
    again = attack(LEAKING, n_train=400, epsilon=0.05)
    assert again.results == leaking.results
    assert attack(LEAKING, n_train=400, seed=1)[CFD].main != leaking[CFD].main
    assert leaking.kind == "membership"
    assert leaking.subject == "linear"
    assert leaking.policy is None  # its owner protects nothing
    assert set(leaking.curves) >= {result.attack for result in leaking}
    assert json.loads(leaking.to_json())["settings"]["n_train"] == 400
    assert all(result.scenario.endswith(".") and result.scenario.count(".") == 1 for result in leaking)


def test_no_person_is_in_two_parts_and_shadows_differ() -> None:
    owner = Counted()
    attack(FEW.draw(1000, seed=3), owner, n_shadows=3)
    seen = [set(people.X.iloc[:, 0]) for people in owner.trained]
    assert [len(people) for people in seen] == [200] * 4
    assert all(not seen[0] & shadow for shadow in seen[1:])
    assert len({frozenset(shadow) for shadow in seen[1:]}) == 3


def test_a_small_pool_trains_smaller_shadows_and_says_so() -> None:
    report = attack(FEW.draw(300, seed=3), n_train=150)
    assert (report.settings["n_others"], report.settings["n_pool"], report.settings["shadow_size"]) == (50, 100, 80)
    parts = Parts.cut(FEW.draw(1000, seed=3))
    assert [len(part) for part in (parts.table, parts.others, parts.pool)] == [300, 233, 467]
    assert parts.shadow_size == 300


def test_silence_is_counted_and_tells_nothing() -> None:
    report = attack(LEAKING, LinearOwner(silent=0.5), n_train=400)
    for name in (CFD, CFD_LRT):
        figures = report[name].figures
        assert figures["unanswered_members"] == pytest.approx(0.5, abs=0.01)
        assert figures["unanswered_others"] == pytest.approx(0.5, abs=0.01)
        assert figures["unanswered_auc_low"] < 0.5 < figures["unanswered_auc_high"]
        assert report[name].main.value > 0.5
    mute = attack(LEAKING, LinearOwner(silent=1.0), n_train=400, attacks=[CFD, CFD_LRT])
    assert [result.main.value for result in mute] == [0.5, 0.5]
    assert mute[CFD].figures["tpr_at_0_1"] == 0


def test_nothing_is_measured_where_nobody_is_refused() -> None:
    report = attack(FEW.draw(300, seed=3), LinearOwner(lenient=1e6), n_train=100)
    for result in report:
        assert math.isnan(result.main.value)
        assert (result.main.low, result.main.high, result.worked) == (0, 1, False)
    json.loads(report.to_json())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n_shadows": 1}, "n_shadows"),
        ({"attacked": 0}, "attacked"),
        ({"n_train": 299}, "299"),
        ({"n_train": 1}, "n_train"),
        ({"direction": "up"}, "direction"),
        ({"distance": "l2"}, "distance"),
        ({"attacks": ["cfd"]}, "membership_cfd"),
        ({"attacks": []}, "at least one"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_trained(settings: dict[str, Any], said: str) -> None:
    owner = Counted()
    with pytest.raises(InputError, match=said):
        attack(FEW.draw(300, seed=3), owner, **settings)
    assert not owner.trained


def test_a_service_that_answers_fewer_is_refused() -> None:
    class Short(LinearOwner):
        def train(self, people: Sample, seed: int) -> Any:
            inner = super().train(people, seed)

            class Cut(LinearService):
                def explain(self, X: pd.DataFrame) -> Answers:
                    answers = super().explain(X)
                    return Answers(answers.rows.head(1), answers.found[:1])

            return Cut(inner.weights, inner.intercept)

    with pytest.raises(InputError, match="one to each"):
        attack(FEW.draw(300, seed=3), Short(), n_train=100)


class Copying:
    """Remembers its table, is sure of whom it has seen, and answers with the nearest row that it gives the outcome."""

    name = "copying"

    def train(self, people: Sample, seed: int) -> Copying:
        memory = Copying()
        memory.people, memory.heom = people, Heom.fit(people.X)
        return memory

    people: Sample
    heom: Heom

    def confidence(self, X: pd.DataFrame) -> np.ndarray:
        nearest, apart = self.heom.nearest(X, self.people.X)
        return np.where(self.people.y[nearest[:, 0]], 1.0, 0.0) * (1 - apart[:, 0])

    def desired(self, X: pd.DataFrame) -> np.ndarray:
        return np.asarray(self.confidence(X) >= 0.5)

    def explain(self, X: pd.DataFrame) -> Answers:
        desired = self.people.X[self.people.y]
        at = self.heom.nearest(X, desired)[0][:, 0]
        found = X["town"].to_numpy() != "Ghent"
        rows = desired.iloc[at].set_axis(X.index).astype(object)
        rows.loc[~found] = None
        return Answers(rows, found)


def test_mixed_tables_with_gaps_are_attacked_alike() -> None:
    random, n = np.random.default_rng(3), 600
    town = pd.Series(random.choice(["Antwerp", "Ghent", "Bruges"], n), dtype="category")
    age, pay = random.integers(18, 80, n), np.where(random.random(n) < 0.1, np.nan, random.normal(40, 10, n))
    sample = Sample(pd.DataFrame({"age": age, "town": town, "pay": pay}), random.random(n) < 0.4)
    report = membership(Copying(), sample, n_shadows=3)
    figures = report[CFD_LRT].figures
    assert figures["unanswered_members"] == pytest.approx(1 / 3, abs=0.1)
    assert figures["train_accuracy"] > 0.95 > figures["test_accuracy"]
    assert report["membership_loss"].worked
    assert report.settings["distance"] == "heom"


def test_every_attack_has_a_name_that_tells_its_kind() -> None:
    assert all(name.startswith("membership_") for name in ATTACKS)
