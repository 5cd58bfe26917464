"""The adversarial-robustness-toolbox on the same people, model and scores: it finds what ours find."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from cfk_plugin.audit.membership import (
    ATTACKS,
    HypercubePopulation,
    Parts,
    ask_target,
    l1,
    seen_by_attacker,
    shadow_call,
    together,
)
from cfk_plugin.audit.result import ALARMS, Roc, measure_roc
from small_owner import LinearOwner

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of every framework that is not there
    art = pytest.importorskip("art", reason="adversarial-robustness-toolbox is not installed", exc_type=ImportError)
    from art.attacks.inference import membership_inference
    from art.estimators.classification.scikitlearn import ScikitlearnLogisticRegression
    from art.metrics.privacy import worst_case_mia_score


class Attacked(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    member: np.ndarray
    learnt: np.ndarray  # on whom a learned attack may train; the others are judged
    scores: dict[str, np.ndarray]
    model: Any


@pytest.fixture(scope="module")
def attacked() -> Attacked:
    parts, owner = Parts.cut(HypercubePopulation(d=800, separation=4.0).draw(2000, seed=1), 400), LinearOwner()
    target = ask_target(owner, parts, 400, l1, seed=0)
    people = together(parts, target["members"], target["others"])
    shadows = [shadow_call(owner, parts, people.X, l1, shadow, seed=0)() for shadow in range(8)]
    seen = seen_by_attacker(parts, target, shadows, "larger", 0)
    fitted = LogisticRegression(C=1.0, max_iter=200, tol=1e-3).fit(parts.table.X.to_numpy(), parts.table.y)
    model = ScikitlearnLogisticRegression(fitted)
    X, y = people.X.to_numpy(), people.y.astype(int)
    assert model.predict(X)[:, 1] == pytest.approx(seen.confidence, abs=1e-6)  # the same model
    return Attacked(
        X=X,
        y=y,
        member=np.arange(len(X)) < len(target["members"]),
        learnt=np.random.default_rng(0).random(len(X)) < 0.5,
        scores={name: attack.scores(seen) for name, attack in ATTACKS.items()},
        model=model,
    )


def ours(attacked: Attacked, name: str, of: np.ndarray | None = None) -> Roc:
    of = np.ones(len(attacked.X), dtype=bool) if of is None else of
    scores = attacked.scores[name]
    return measure_roc(scores[of & attacked.member], scores[of & ~attacked.member])


def learned(attacked: Attacked, **features: str) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """Return its learned attack, and who is a member, another, and judged."""
    attack = membership_inference.MembershipInferenceBlackBox(attacked.model, attack_model_type="lr", **features)
    inside, outside = attacked.learnt & attacked.member, attacked.learnt & ~attacked.member
    return attack, inside, outside, ~attacked.learnt


@pytest.mark.parametrize("name", ATTACKS)
def test_members_found_at_few_alarms_are_within_the_interval(attacked: Attacked, name: str) -> None:
    found = [point for point in ours(attacked, name).points if point.reason is None]
    scores = np.nan_to_num(attacked.scores[name])
    rates = worst_case_mia_score.get_roc_for_multi_fprs(
        scores, attacked.member.astype(int), [point.allowed for point in found]
    )
    assert [point.allowed for point in found] == list(ALARMS[:2])
    for point, fpr, tpr in zip(found, *rates[:2], strict=True):
        assert fpr <= point.fpr.value + 1e-12  # it knows corners of the curve alone
        assert point.tpr.low <= tpr <= point.tpr.value + 1e-12


def test_its_rule_is_that_right_predictions_are_members(attacked: Attacked) -> None:
    rule = membership_inference.MembershipInferenceBlackBoxRuleBased(attacked.model)
    guess = rule.infer(attacked.X, attacked.y).reshape(-1).astype(bool)
    sure = attacked.scores["membership_loss"] > 0  # confidence above one half in the true outcome
    assert np.array_equal(guess, sure)
    accuracy = (guess[attacked.member].mean() + 1 - guess[~attacked.member].mean()) / 2
    found = measure_roc(sure[attacked.member], sure[~attacked.member])
    assert found.auc.value == pytest.approx(accuracy)
    assert accuracy > 0.5


def test_its_learned_attack_on_predictions_and_outcomes_is_ours_on_losses(attacked: Attacked) -> None:
    attack, inside, outside, judged = learned(attacked, input_type="prediction")
    X, y = attacked.X, attacked.y
    attack.fit(X[inside], y[inside], X[outside], y[outside])
    chance = attack.infer(X[judged], y[judged], probabilities=True).reshape(-1)
    theirs = measure_roc(chance[attacked.member[judged]], chance[~attacked.member[judged]])
    found = ours(attacked, "membership_loss", judged)
    assert found.auc.low <= theirs.auc.value <= found.auc.high
    assert found.balanced_accuracy.low <= theirs.balanced_accuracy_max <= found.balanced_accuracy.high
    assert found.auc.low > 0.5


@pytest.mark.parametrize("name", ["membership_cfd", "membership_cfd_lrt", "membership_loss_lrt"])
def test_its_learned_attack_on_our_scores_finds_the_same_direction_and_as_many(attacked: Attacked, name: str) -> None:
    attack, inside, outside, judged = learned(attacked, input_type="prediction")
    column = attacked.scores[name].reshape(-1, 1)
    attack.fit(pred=column[inside], test_pred=column[outside])
    chance = attack.infer(None, pred=column[judged], probabilities=True).reshape(-1)
    theirs = measure_roc(chance[attacked.member[judged]], chance[~attacked.member[judged]])
    found = ours(attacked, name, judged)
    assert found.auc.low <= theirs.auc.value <= found.auc.high
    assert found.auc.low > 0.5
