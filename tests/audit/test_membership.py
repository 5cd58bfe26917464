"""Membership: scores recounted from scripted answers, leaks of linear models, and other people's
attacks.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from cfk_plugin.audit.membership import membership
from cfk_plugin.audit.result import AttackReport, measure_roc
from cfk_plugin.audit.targets import Answers, Sample
from cfk_plugin.errors import InputError
from cfk_plugin.metrics import auc_interval

CFD, CFD_LRT, LOSS, LOSS_LRT = (
    f"membership_{name}" for name in ("cfd", "cfd_lrt", "loss", "loss_lrt")
)


@dataclass(frozen=True)
class LinearOwner:
    """Trains a logistic regression and moves the coordinate with the largest weight: the nearest
    boundary point in l1.

    `silent` is the share of queries without an answer, by position; with much of `lenient`
    everybody is desired.
    """

    name: str = "linear"
    silent: float = 0.0
    lenient: float = 0.0

    def train(self, people: Sample, seed: int) -> LinearService:
        model = LogisticRegression(max_iter=200, tol=1e-3).fit(
            people.X.to_numpy(dtype=float), people.y
        )
        return LinearService(model.coef_[0], float(model.intercept_[0]) + self.lenient, self.silent)


@dataclass(frozen=True)
class LinearService:
    weights: np.ndarray
    intercept: float
    silent: float = 0.0

    def margin(self, X: pd.DataFrame) -> np.ndarray:
        return X.to_numpy(dtype=float) @ self.weights + self.intercept

    def confidence(self, X: pd.DataFrame) -> np.ndarray:
        return 1 / (1 + np.exp(-self.margin(X)))

    def desired(self, X: pd.DataFrame) -> np.ndarray:
        return self.margin(X) >= 0

    def explain(self, X: pd.DataFrame) -> Answers:
        rows, at = X.to_numpy(dtype=float).copy(), int(np.argmax(np.abs(self.weights)))
        # a boundary point may round to either side
        rows[:, at] -= self.margin(X) / self.weights[at] * (1 + 1e-9)
        found = np.ones(len(X), dtype=bool)
        if self.silent:
            found[:: round(1 / self.silent)] = False
        rows[~found] = np.nan
        return Answers(pd.DataFrame(rows, columns=X.columns, index=X.index), found)


OWNER = LinearOwner()


def attack(sample: Sample, owner: Any = OWNER, **settings: Any) -> AttackReport:
    return membership(owner, sample, **{"n_train": 200, "distance": "l1", **settings})


# --- scores, recounted ----------------------------------------------------------------------------

SHADOWS = 3


@dataclass
class Scripted:
    """Says of everybody what their row holds for the training at hand: the owner's own, then one
    for each shadow.
    """

    name: str = "scripted"
    trained: list[Sample] = field(default_factory=list)
    asked: list[pd.DataFrame] = field(default_factory=list)

    def train(self, people: Sample, seed: int) -> ScriptedService:
        self.trained.append(people)
        return ScriptedService(len(self.trained) - 1, self.asked)


@dataclass
class ScriptedService:
    turn: int
    asked: list[pd.DataFrame]

    def desired(self, X: pd.DataFrame) -> np.ndarray:
        return X[f"desired{self.turn}"].to_numpy() > 0.5

    def confidence(self, X: pd.DataFrame) -> np.ndarray:
        return X[f"confidence{self.turn}"].to_numpy()

    def explain(self, X: pd.DataFrame) -> Answers:
        if not self.turn:
            self.asked.append(X)
        rows = X.assign(place=X["place"] + X[f"distance{self.turn}"])
        found = X[f"found{self.turn}"].to_numpy() > 0.5
        rows.loc[~found, "place"] = np.nan
        return Answers(rows, found)


def scripts(n: int, seed: int, *, wide: int = 0, equal: bool = False) -> Sample:
    """Return people with gaps, distances of 0, shadows that agree or say nothing, and models that
    are certain.
    """
    random, X = (
        np.random.default_rng(seed),
        pd.DataFrame({"place": np.arange(n) * 0.25, "id": np.arange(n) * 1.0}),
    )
    for turn in range(SHADOWS + 1):
        X[f"desired{turn}"] = 1.0 * (random.random(n) < (0.3 if turn else 0.2))
        X[f"found{turn}"] = 1.0 * (random.random(n) < 0.8)
        X[f"distance{turn}"] = random.choice(
            [0.5] if equal and turn else [0.0, 0.25, 0.5, 1.0, 3.0], n
        )
        X[f"confidence{turn}"] = random.choice([0.0, 0.2, 0.5, 0.8, 0.95, 1.0], n)
    return Sample(
        X.join(pd.DataFrame(0.0, X.index, [f"x{j}" for j in range(wide)])), random.random(n) < 0.5
    )


def middle_for_nan(scores: np.ndarray) -> np.ndarray:
    known = np.sort(scores[~np.isnan(scores)])
    return np.where(np.isnan(scores), known[len(known) // 2] if len(known) else 0.0, scores)


def standardised(own: np.ndarray, shadows: np.ndarray) -> np.ndarray:
    """Return (own - mean) / deviation over the shadows of each person, NaN being none; as
    documented where it is 0.
    """
    several = (~np.isnan(shadows)).sum(axis=0) > 1
    with warnings.catch_warnings(action="ignore"):
        mean, deviation = np.nanmean(shadows, axis=0), np.nanstd(shadows, axis=0)
    everybodys = math.sqrt((deviation[several] ** 2).mean())
    deviation = np.where(several & (deviation > 1e-9), deviation, everybodys)
    return np.where(
        deviation > 1e-9, (own - mean) / np.maximum(deviation, 1e-9), 1e300 * np.sign(own - mean)
    )


def logit(confidence: np.ndarray, outcome: np.ndarray) -> np.ndarray:
    of_truth = np.clip(np.where(outcome, confidence, 1 - confidence), 1e-8, 1 - 1e-8)
    return np.log(of_truth / (1 - of_truth))


def recounted(X: pd.DataFrame, outcome: np.ndarray) -> dict[str, np.ndarray]:
    turns = range(SHADOWS + 1)
    answered = [
        X[f"found{t}"].to_numpy() * (1 - X[f"desired{t}"].to_numpy() if t else 1) > 0 for t in turns
    ]
    distance = np.array([np.where(answered[t], X[f"distance{t}"], np.nan) for t in turns])
    logs = np.log(np.where(distance == 0, np.nanmin(distance[distance > 0]) / 2, distance))
    losses = np.array([logit(X[f"confidence{t}"].to_numpy(), outcome) for t in turns])
    return {
        CFD: middle_for_nan(distance[0]),
        CFD_LRT: middle_for_nan(standardised(logs[0], logs[1:])),
        LOSS: losses[0],
        LOSS_LRT: standardised(losses[0], losses[1:]),
    }


@pytest.mark.parametrize(
    ("script", "settings"),
    [
        ({"seed": 0}, {}),
        ({"seed": 1}, {"direction": "smaller"}),
        ({"seed": 2, "wide": 130}, {"distance": None}),
        ({"seed": 3, "equal": True}, {}),
    ],
    ids=["l1", "smaller", "HEOM of many columns", "no spread"],
)
def test_figures_are_those_of_documented_scores_of_whoever_was_asked_about(
    script: dict[str, Any], settings: dict[str, Any]
) -> None:
    owner, sample = Scripted(), scripts(400, **script)
    report = attack(sample, owner, n_train=150, n_shadows=SHADOWS, attacked=90, **settings)
    people = pd.concat(owner.asked)
    ids = people["id"].astype(int).to_numpy()
    member = np.isin(ids, owner.trained[0].X["id"])
    assert member.sum() == 90
    assert (people["desired0"] == 0).all()  # who has the desired outcome has nothing to ask
    for name, scores in recounted(people, sample.y[ids]).items():
        found, turned = report[name], settings.get("direction") == "smaller" and "cfd" in name
        area = roc_auc_score(member, scores)
        # of ties, where distances are divided by ranges
        rounding = 0.01 if "wide" in script else 1e-9
        assert found.main.value == pytest.approx(1 - area if turned else area, abs=rounding), name
        assert (found.main.low, found.main.high) == pytest.approx(
            auc_interval(
                *(np.sort(-scores[who] if turned else scores[who]) for who in (member, ~member))
            ),
            abs=rounding,
        )
        assert (found.figures["members"], found.figures["others"], found.n) == (
            90,
            (~member).sum(),
            len(people),
        )
    figures = report[CFD_LRT].figures
    assert figures["unanswered_members"] == pytest.approx(1 - people["found0"][member].mean())
    assert figures["unanswered_auc"] == pytest.approx(roc_auc_score(member, people["found0"]))
    m, n = 90, (~member).sum()
    assert figures["detectable_auc"] == pytest.approx(
        0.5 + 2.8 * math.sqrt((m + n + 1) / (12 * m * n)), abs=1e-3
    )
    table = owner.trained[0]
    assert figures["train_accuracy"] == pytest.approx(
        ((table.X["desired0"] > 0.5) == table.y).mean()
    )
    assert "unanswered_members" not in report[LOSS].figures


def test_an_area_that_is_called_detectable_is_detected_four_times_of_five() -> None:
    random, m, n, audits = np.random.default_rng(4), 120, 100, 300
    shift = math.sqrt(2) * stats.norm.ppf(0.5 + 2.8 * math.sqrt((m + n + 1) / (12 * m * n)))
    seen = sum(
        auc_interval(random.normal(shift, 1, m), random.normal(0, 1, n)).low > 0.5
        for _ in range(audits)
    )
    assert 0.7 < seen / audits < 0.89


def test_no_person_is_in_two_parts_and_a_small_pool_trains_smaller_shadows() -> None:
    owner = Scripted()
    report = attack(scripts(300, 0), owner, n_train=150, n_shadows=SHADOWS)
    table, *shadows = (set(people.X["id"]) for people in owner.trained)
    others = set(pd.concat(owner.asked)["id"]) - table
    assert [len(table), *map(len, shadows)] == [150, 80, 80, 80]
    assert len({frozenset(shadow) for shadow in shadows}) == SHADOWS
    assert not (table | others) & set().union(*shadows)
    assert (
        report.settings["n_others"],
        report.settings["n_pool"],
        report.settings["shadow_size"],
    ) == (50, 100, 80)
    by_default = membership(Scripted(), scripts(1000, 0), n_shadows=SHADOWS, distance="l1").settings
    assert [by_default[name] for name in ("n_train", "n_others", "n_pool", "shadow_size")] == [
        300,
        233,
        467,
        300,
    ]


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
    ],
)
def test_wrong_settings_are_refused_before_anything_is_trained(
    settings: dict[str, Any], said: str
) -> None:
    owner = Scripted()
    with pytest.raises(InputError, match=said):
        attack(scripts(300, 0), owner, **settings)
    assert not owner.trained


def test_l1_is_for_numbers_and_another_distance_is_brought() -> None:
    sample = scripts(300, 0)
    named = Sample(sample.X.assign(town="Ghent"), sample.y)
    with pytest.raises(InputError, match="numbers"):
        attack(named, Scripted(), n_train=100, n_shadows=SHADOWS)
    brought = attack(
        named,
        Scripted(),
        n_train=100,
        n_shadows=SHADOWS,
        distance=lambda a, b: abs(a["place"] - b["place"]),
    )
    assert brought[CFD].main == attack(sample, Scripted(), n_train=100, n_shadows=SHADOWS)[CFD].main


# --- linear models, whose counterfactuals are exact -----------------------------------------------


def clouds(d: int, n: int, separation: float = 6.0, seed: int = 1) -> Sample:
    """Return people of two kinds, each a cloud of unit variance around a vertex of a cube."""
    random = np.random.default_rng([seed, d])
    corners = random.integers(0, 2, (2, d)) - 0.5
    side = separation / np.sqrt((corners[0] != corners[1]).sum())
    kind = random.random(n) < 0.5
    X = random.standard_normal((n, d)) + corners[kind.astype(int)] * side
    return Sample(pd.DataFrame(X, columns=[f"x{j}" for j in range(d)]), kind)


LEAKING = clouds(800, 2000)


@pytest.fixture(scope="module")
def leaking() -> AttackReport:
    return attack(LEAKING, n_train=400, epsilon=0.05)


def test_the_leak_of_a_linear_model_grows_with_the_number_of_features(
    leaking: AttackReport,
) -> None:
    low = attack(clouds(10, 2000), n_train=400)
    for name in (CFD, CFD_LRT):
        assert low[name].main.low < 0.5 < low[name].main.high
        assert leaking[name].main.low > 0.5  # larger distances are members
        assert (low[name].worked, leaking[name].worked) == (False, True)
    assert leaking[CFD_LRT].main.low > low[CFD_LRT].main.high
    assert leaking[CFD_LRT].main.value > leaking[CFD].main.value
    assert leaking[LOSS_LRT].worked


def test_nobody_is_found_among_people_who_are_no_members(leaking: AttackReport) -> None:
    for result in leaking:
        assert result.control is not None
        assert result.control.low < 0.5 < result.control.high
        assert result.control.n == result.figures["others"]
    coin = attack(LEAKING, n_train=400, attacks=["membership_random"])["membership_random"]
    assert coin.main.low < 0.5 < coin.main.high


def test_a_claim_that_does_not_hold_is_exceeded(leaking: AttackReport) -> None:
    figures = leaking[CFD_LRT].figures
    # 0.05 for one more or less counts twice
    assert figures["bound_tight"] == pytest.approx(1 / (1 + math.exp(-0.1)))
    assert figures["bound_paper"] > figures["bound_tight"]
    assert figures["exceeds_bound"] == 1
    assert {"bound_tight", "bound_paper"} < set(leaking.curves)
    wide = attack(LEAKING, n_train=400, epsilon=3.0, relation="replace-one", attacks=[CFD])
    assert (wide[CFD].figures["exceeds_bound"], wide.settings["relation"]) == (0, "replace-one")
    assert "bound_tight" not in attack(clouds(10, 300), n_train=80, attacks=[CFD])[CFD].figures


def test_silence_is_counted_and_tells_nothing() -> None:
    half, mute = (
        attack(LEAKING, LinearOwner(silent=s), n_train=400, attacks=[CFD, CFD_LRT])
        for s in (0.5, 1.0)
    )
    for result in half:
        assert result.figures["unanswered_members"] == pytest.approx(0.5, abs=0.01)
        assert result.figures["unanswered_auc_low"] < 0.5 < result.figures["unanswered_auc_high"]
        assert result.main.value > 0.5
    assert [(result.main.value, result.figures["tpr_at_0_1"]) for result in mute] == [
        (0.5, 0),
        (0.5, 0),
    ]


def test_nothing_is_measured_where_nobody_is_refused() -> None:
    for result in attack(clouds(10, 300, seed=3), LinearOwner(lenient=1e6), n_train=100):
        assert math.isnan(result.main.value)
        assert (result.main.low, result.main.high, result.worked) == (0, 1, False)


def test_a_service_that_answers_fewer_is_refused() -> None:
    class Cut(LinearService):
        def explain(self, X: pd.DataFrame) -> Answers:
            answers = super().explain(X)
            return Answers(answers.rows.head(1), answers.found[:1])

    class Short(LinearOwner):
        def train(self, people: Sample, seed: int) -> Any:
            inner = super().train(people, seed)
            return Cut(inner.weights, inner.intercept)

    with pytest.raises(InputError, match="one to each"):
        attack(clouds(10, 300, seed=3), Short(), n_train=100)


# --- a second opinion -----------------------------------------------------------------------------


def art(name: str) -> Any:
    with warnings.catch_warnings(action="ignore"):  # it warns of every framework that is not there
        pytest.importorskip(
            "art", reason="adversarial-robustness-toolbox is not installed", exc_type=ImportError
        )
        return pytest.importorskip(f"art.{name}")


def test_another_toolbox_finds_as_many_members_at_few_alarms() -> None:
    score = art("metrics.privacy.worst_case_mia_score")
    random = np.random.default_rng(0)
    members, others = random.normal(0.7, 1, 300), random.normal(0, 1, 200)
    points = [point for point in measure_roc(members, others).points if point.reason is None]
    labels = np.repeat([1, 0], [300, 200])
    rates = score.get_roc_for_multi_fprs(
        np.r_[members, others], labels, [point.allowed for point in points]
    )
    assert [point.allowed for point in points] == [0.1, 0.01]
    for point, fpr, tpr in zip(points, *rates[:2], strict=True):
        assert fpr <= point.fpr.value + 1e-12  # it knows corners of the curve alone
        assert point.tpr.low <= tpr <= point.tpr.value + 1e-12
