"""The ROC figures against other people's code, brute force, and simulations in which the truth is
known.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score, roc_curve

from cfk_plugin.audit.epsilon_bounds import (
    bound_curves,
    largest_balanced_accuracy,
    largest_tpr,
    published_balanced_accuracy,
    replace_one,
)
from cfk_plugin.audit.result import measure_roc
from cfk_plugin.errors import InputError
from cfk_plugin.metrics import auc_interval, balanced_interval, clopper_pearson

SCORES = st.lists(
    st.one_of(st.integers(-3, 3).map(float), st.floats(allow_nan=False)), min_size=1, max_size=40
)


def fewest_covered(runs: int) -> float:
    """Return what 99.5 % of simulations with a true coverage of 95 % exceed."""
    return 0.95 - 2.6 * math.sqrt(0.95 * 0.05 / runs)


@settings(max_examples=50)
@given(members=SCORES, others=SCORES)
def test_area_curve_and_operating_points_are_those_of_a_search_over_all_thresholds(
    members: list[float], others: list[float]
) -> None:
    found = measure_roc(members, others)
    labels = np.r_[np.ones(len(members)), np.zeros(len(others))]
    # its area refuses infinite scores
    codes = np.unique([*members, *others], return_inverse=True)[1]
    fpr, tpr, _ = roc_curve(labels, codes, drop_intermediate=False)
    assert found.auc.low <= found.auc.value <= found.auc.high
    assert found.auc.value == pytest.approx(roc_auc_score(labels, codes))
    assert found.auc.value == pytest.approx(np.trapezoid(found.curve.tpr, found.curve.fpr))
    assert found.balanced_accuracy_max == pytest.approx(((tpr + 1 - fpr) / 2).max())
    assert set(zip(found.curve.fpr, found.curve.tpr, strict=True)) <= set(
        zip(fpr, tpr, strict=True)
    )
    assert (found.curve.fpr[0], found.curve.tpr[0], found.curve.fpr[-1], found.curve.tpr[-1]) == (
        0,
        0,
        1,
        1,
    )
    for point in found.points:
        if len(others) < round(1 / point.allowed):
            assert math.isnan(point.tpr.value)
            assert (point.tpr.low, point.tpr.high) == (0, 1)
            assert str(round(1 / point.allowed)) in str(point.reason)
            continue
        most = tpr[fpr <= point.allowed + 1e-12].max()
        assert point.reason is None
        assert point.tpr.value == pytest.approx(most)
        assert point.fpr.value <= point.allowed + 1e-12
        assert (point.tpr.low, point.tpr.high) == clopper_pearson(
            round(most * len(members)), len(members)
        )


def test_members_found_by_ties_are_not_counted() -> None:
    points = {
        point.allowed: point for point in measure_roc([5.0, 0.0], [0.0] * 98 + [5.0, 5.0]).points
    }
    assert (points[0.1].tpr.value, points[0.1].fpr.value) == (0.5, pytest.approx(0.02))
    # who has 5 is named with two of a hundred others, or not at all
    assert points[0.01].tpr.value == 0
    assert points[0.01].fpr.high == pytest.approx(clopper_pearson(0, 100).high)


@pytest.mark.parametrize(("m", "n"), [(6, 6), (5, 40), (60, 60)])
@pytest.mark.parametrize("kind", ["chance", "shifted", "few stand out", "two values"])
def test_interval_of_the_area_covers_the_truth(m: int, n: int, kind: str) -> None:
    random, covered, repeats = np.random.default_rng(m * n), 0, 300
    truth = {
        "shifted": float(stats.norm.cdf(1.5 / math.sqrt(2))),
        "few stand out": 0.55,
        "two values": 0.7,
    }.get(kind, 0.5)
    for _ in range(repeats):
        others, members = random.normal(size=n), random.normal(size=m) + 1.5 * (kind == "shifted")
        if kind == "few stand out":  # a tenth of the members is known for sure, the rest is hidden
            members = np.where(random.random(m) < 0.1, 99.0, members)
        elif kind == "two values":
            members, others = 1.0 * (random.random(m) < 0.7), 1.0 * (random.random(n) < 0.3)
        low, high = auc_interval(members, others)
        covered += low <= truth <= high
    assert covered / repeats > fewest_covered(repeats)


def test_interval_of_a_mean_of_two_shares_covers_it() -> None:
    random, repeats = np.random.default_rng(6), 300
    for first, second in ((0.5, 0.5), (0.9, 0.2), (0.99, 0.99)):
        hits, rejects = random.binomial(20, first, repeats), random.binomial(35, second, repeats)
        ends = [
            balanced_interval(int(h), 20, int(r), 35) for h, r in zip(hits, rejects, strict=True)
        ]
        assert np.mean(
            [end.low <= (first + second) / 2 <= end.high for end in ends]
        ) > fewest_covered(repeats)
    assert balanced_interval(20, 20, 0, 0) == (0, 1)
    assert balanced_interval(20, 20, 35, 35).low < 1


def test_nobody_is_certain_with_few_people_and_nothing_to_measure_is_nan() -> None:
    found = measure_roc([2, 3, 4], [0, 1])
    assert (found.auc.value, found.auc.high) == (1, 1)
    assert found.auc.low < 0.5 < measure_roc([0, 1], [2, 3, 4]).auc.high
    assert measure_roc(np.arange(50) + 50, np.arange(50)).auc.low > 0.9
    figures = measure_roc([], [1.0]).figures()
    assert math.isnan(figures["balanced_accuracy"])
    assert (figures["balanced_accuracy_low"], figures["balanced_accuracy_high"]) == (0, 1)
    assert math.isnan(measure_roc([1.0], []).auc.value)
    with pytest.raises(InputError, match="NaN"):
        measure_roc([math.nan], [1.0])


@pytest.mark.parametrize(("n", "shift"), [(8, 0.0), (40, 1.0)])
def test_balanced_accuracy_is_not_flattered_by_its_threshold(n: int, shift: float) -> None:
    """No threshold is better than the best one, so an end above that is wrong: at most in 2.5 % of
    audits.
    """
    random, audits, best = np.random.default_rng(n), 300, float(stats.norm.cdf(shift / 2))
    found = [
        measure_roc(random.normal(shift, 1, n), random.normal(0, 1, n), seed)
        for seed in range(audits)
    ]
    assert sum(one.balanced_accuracy.low > best for one in found) <= stats.binom.ppf(
        0.999, audits, 0.025
    )
    assert best - 0.08 < np.mean([one.balanced_accuracy.value for one in found]) < best + 0.01
    assert np.mean([one.balanced_accuracy_max for one in found]) > best + 0.01
    apart = measure_roc(np.arange(100) + 1000, np.arange(100))
    assert 0.9 < apart.balanced_accuracy.low < 0.97 < apart.balanced_accuracy.value
    assert measure_roc([1.0] * 30, [1.0] * 30).balanced_accuracy.value == 0.5


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.05), (1.0, 0.0), (2.0, 0.05)])
def test_the_bound_of_a_claim_is_reached_by_randomised_response_and_never_exceeded(
    epsilon: float, delta: float
) -> None:
    """A true answer with probability delta that says it is certain; else randomised response."""
    random, n = np.random.default_rng(2), 100_000
    sides = []
    for member in (1.0, -1.0):
        answer = np.where(random.random(n) < 1 / (1 + math.exp(-epsilon)), member, -member)
        sides.append(np.where(random.random(n) < delta, 3 * member, answer))
    found = measure_roc(*sides)
    assert found.balanced_accuracy_max == pytest.approx(
        largest_balanced_accuracy(epsilon, delta), abs=0.005
    )
    assert np.all(np.array(found.curve.tpr) <= largest_tpr(found.curve.fpr, epsilon, delta) + 0.02)


@given(
    st.sampled_from([0.0, 2000.0]) | st.floats(0, 12), st.sampled_from([0.0, 1.0]) | st.floats(0, 1)
)
def test_the_tight_bound_the_published_one_and_the_curves_agree(
    epsilon: float, delta: float
) -> None:
    fpr = np.linspace(0, 1, 20_001)
    tight, paper = (
        largest_balanced_accuracy(epsilon, delta),
        published_balanced_accuracy(epsilon, delta),
    )
    assert ((largest_tpr(fpr, epsilon, delta) + 1 - fpr) / 2).max() == pytest.approx(
        tight, abs=1e-4
    )
    assert 0.5 <= tight <= paper + 1e-12 <= 1 + 1e-12
    curves = bound_curves(epsilon, delta)
    for curve in curves.values():
        assert np.all(np.diff(curve.tpr) >= 0)
        assert (curve.fpr[-1], curve.tpr[-1]) == (1, 1)
    assert np.all(
        np.array(curves["bound_tight"].tpr) <= np.array(curves["bound_paper"].tpr) + 1e-12
    )


def test_bounds_have_their_published_numbers_and_one_person_more_or_less_counts_twice() -> None:
    assert largest_balanced_accuracy(1.0) == pytest.approx(math.e / (1 + math.e))
    assert published_balanced_accuracy(1.0) == pytest.approx(0.816, abs=1e-3)
    assert replace_one(1.0, 1e-5) == pytest.approx((2.0, (1 + math.e) * 1e-5))
    assert replace_one(1.0, 1e-5, "replace-one") == (1.0, 1e-5)
    assert replace_one(900.0, 0.5)[1] == 1.0
    for wrong, said in (((-1.0, 0.0), "epsilon"), ((1.0, 1.0), "delta")):
        with pytest.raises(InputError, match=said):
            replace_one(*wrong)
