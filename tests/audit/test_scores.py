"""Scores where it is known who is a member, and where there is little to look at."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from cfk_plugin.audit.membership import (
    confidence_ratio_scores,
    confidence_scores,
    distance_ratio_scores,
    distance_scores,
    random_scores,
)
from cfk_plugin.audit.result import measure_roc

ALL = np.ones(4, dtype=bool)


def shadows(*rows: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return distances of shadows, one list each, and which are given: not NaN."""
    distance = np.array(rows)
    return np.nan_to_num(distance), ~np.isnan(distance)


@pytest.mark.parametrize("direction", ["larger", "smaller"])
def test_members_have_larger_scores_where_their_distances_are_known_to_be(direction: str) -> None:
    random, n = np.random.default_rng(0), 400
    member = np.arange(n) < n // 2
    own = random.normal(0, 2, n)  # people differ more than membership does
    push = 1.0 if direction == "larger" else -1.0
    distance = np.exp(own + push * member + random.normal(0, 0.5, n))
    others = np.exp(own + random.normal(0, 0.5, (16, n)))
    found, given = np.ones(n, dtype=bool), np.ones((16, n), dtype=bool)
    plain = distance_scores(distance, found, direction)  # type: ignore[arg-type]
    ratio = distance_ratio_scores(distance, found, others, given, direction)  # type: ignore[arg-type]
    assert measure_roc(plain[member], plain[~member]).auc.low > 0.5
    assert measure_roc(ratio[member], ratio[~member]).auc.low > measure_roc(plain[member], plain[~member]).auc.high
    turned = distance_scores(distance, found, "smaller" if direction == "larger" else "larger")
    assert measure_roc(turned[member], turned[~member]).auc.high < 0.5


def test_score_of_the_ratio_test_is_the_normal_quantile_of_the_fit() -> None:
    distance, (shadow, given) = np.array([3.0]), shadows([1.0], [2.0], [2.5])
    score = distance_ratio_scores(distance, np.array([True]), shadow, given)[0]
    logs = np.log([1.0, 2.0, 2.5])
    fitted = stats.lognorm(s=logs.std(), scale=math.exp(logs.mean()))  # maximum likelihood: 1 / N
    assert stats.norm.cdf(score) == pytest.approx(fitted.cdf(3.0))
    for alpha in (0.2, 0.1, 0.01, 0.001):
        assert (score > stats.norm.ppf(1 - alpha)) == (fitted.ppf(1 - alpha) < 3.0)


def test_nothing_is_learnt_of_who_has_no_answer() -> None:
    found = np.array([True, False, True, True])
    scores = distance_scores(np.array([5.0, math.nan, 7.0, 1.0]), found)
    assert scores.tolist() == [5, 5, 7, 1]
    assert distance_scores(np.zeros(4), ~ALL).tolist() == [0] * 4
    shadow, given = shadows([1.0, 1.0, 1.0, math.nan], [2.0, 2.0, 2.0, math.nan])
    ratio = distance_ratio_scores(np.array([9.0, 0.0, 1.4, 3.0]), found, shadow, given)
    assert ratio[1] == ratio[3] == ratio[0]  # the upper one of the middle of two known scores
    assert distance_ratio_scores(np.ones(4), ALL, shadow, ~np.ones((2, 4), dtype=bool)).tolist() == [0] * 4


def test_shadows_without_an_answer_are_left_out() -> None:
    with_gaps = shadows([1.0, 4.0], [math.nan, 8.0], [3.0, 9.0])
    scores = distance_ratio_scores(np.array([2.0, 2.0]), ALL[:2], *with_gaps)
    logs = np.log([1.0, 3.0])
    assert scores[0] == pytest.approx((math.log(2) - logs.mean()) / logs.std())


def test_equal_distances_of_shadows_take_the_spread_of_everybody() -> None:
    shadow, given = shadows([2.0, 1.0, 5.0], [2.0, 3.0, math.nan], [2.0, 4.0, math.nan])
    scores = distance_ratio_scores(np.array([3.0, 2.0, 6.0]), ALL[:3], shadow, given)
    deviation = math.sqrt(np.log([1.0, 3.0, 4.0]).var() / 2)  # the mean variance of who has two or more
    assert scores[0] == pytest.approx(math.log(3 / 2) / deviation)
    assert scores[2] == pytest.approx(math.log(6 / 5) / deviation)


def test_without_any_spread_every_difference_counts() -> None:
    third = 1 / 3
    shadow, given = shadows([third, 1.0, 2.0], [third, 1.0, 2.0], [third, 1.0, 2.0])
    scores = distance_ratio_scores(np.array([third * (1 + 1e-15), 0.5, 3.0]), ALL[:3], shadow, given)
    assert scores.tolist() == [0, -math.inf, math.inf]


def test_a_distance_of_zero_is_the_smallest() -> None:
    shadow, given = shadows([0.0, 1.0, 1.0], [1.0, 2.0, 4.0])
    scores = distance_ratio_scores(np.array([0.0, 0.0, 1.0]), ALL[:3], shadow, given)
    assert np.isfinite(scores).all()
    logs = np.log([0.5, 1.0])
    assert scores[0] == pytest.approx((math.log(0.5) - logs.mean()) / logs.std())
    assert np.isfinite(distance_ratio_scores(np.zeros(3), ALL[:3], np.zeros((2, 3)), np.ones((2, 3), dtype=bool))).all()


def test_confidence_counts_for_the_true_outcome() -> None:
    confidence, outcome = np.array([0.9, 0.9, 0.2, 1.0]), np.array([True, False, False, True])
    scores = confidence_scores(confidence, outcome)
    assert scores[:3] == pytest.approx([math.log(9), -math.log(9), math.log(4)])
    assert scores[3] > 18
    loss = -np.log(np.where(outcome, confidence, 1 - confidence))
    assert np.array_equal(np.argsort(scores), np.argsort(-loss))


def test_confidence_is_compared_with_models_that_never_saw_the_person() -> None:
    outcome, confidence = np.array([True, False]), np.array([0.9, 0.9])
    many = np.array([[0.6, 0.6], [0.7, 0.7]])
    scores = confidence_ratio_scores(confidence, many, outcome)
    assert scores[0] > 3
    assert scores[1] == pytest.approx(-scores[0])  # sure of the wrong outcome, surer than others: no member


def test_a_coin_is_seeded_and_tells_nothing() -> None:
    scores = random_scores(2000, seed=5)
    assert np.array_equal(scores, random_scores(2000, seed=5))
    found = measure_roc(scores[:1000], scores[1000:])
    assert found.auc.low < 0.5 < found.auc.high
