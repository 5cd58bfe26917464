"""The ROC figures against other people's code, brute force, and simulations in which the truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score, roc_curve

from cfk_plugin.audit.result import ALARMS, detectable_auc, measure_roc
from cfk_plugin.errors import InputError
from cfk_plugin.metrics import auc_interval, balanced_interval, bootstrap, clopper_pearson

SCORES = st.lists(st.one_of(st.integers(-3, 3).map(float), st.floats(allow_nan=False)), min_size=1, max_size=40)
FEWEST_COVERED = 0.95 - 2.6 * math.sqrt(0.95 * 0.05 / 600)  # 99.5 % of runs of 600 with a true coverage of 95 %


@settings(max_examples=50)
@given(members=SCORES, others=SCORES)
def test_area_and_curve_are_those_of_scikit_learn(members: list[float], others: list[float]) -> None:
    found = measure_roc(members, others)
    labels = np.r_[np.ones(len(members)), np.zeros(len(others))]
    codes = np.unique([*members, *others], return_inverse=True)[1]  # its area refuses infinite scores
    assert found.auc.value == pytest.approx(roc_auc_score(labels, codes))
    fpr, tpr, _ = roc_curve(labels, codes, drop_intermediate=False)
    assert found.balanced_accuracy_max == pytest.approx(((tpr + 1 - fpr) / 2).max())
    assert np.trapezoid(found.curve.tpr, found.curve.fpr) == pytest.approx(found.auc.value)
    assert set(zip(found.curve.fpr, found.curve.tpr, strict=True)) <= set(zip(fpr, tpr, strict=True))
    assert (found.curve.fpr[0], found.curve.tpr[0], found.curve.fpr[-1], found.curve.tpr[-1]) == (0, 0, 1, 1)
    assert found.auc.low <= found.auc.value <= found.auc.high


@settings(max_examples=50)
@given(members=SCORES, others=SCORES)
def test_members_found_at_few_alarms_are_those_of_a_search_over_all_thresholds(
    members: list[float], others: list[float]
) -> None:
    inside, outside = np.array(members), np.array(others)
    for point in measure_roc(members, others).points:
        if len(others) < round(1 / point.allowed):
            assert math.isnan(point.tpr.value)
            assert (point.tpr.low, point.tpr.high) == (0, 1)
            assert point.reason is not None
            continue
        rules = [(float((outside > t).mean()), float((inside > t).mean())) for t in [*others, *members, math.inf]]
        most = max(tpr for fpr, tpr in rules if fpr <= point.allowed + 1e-12)
        assert point.reason is None
        assert point.tpr.value == pytest.approx(most)
        assert point.fpr.value <= point.allowed + 1e-12
        assert (point.tpr.low, point.tpr.high) == clopper_pearson(round(most * len(members)), len(members))


def test_interval_of_the_area_is_near_the_bootstrap_of_many_people() -> None:
    random = np.random.default_rng(0)
    for members in (random.normal(0.7, 1, 150), random.normal(0, 4, 150), np.round(random.normal(0.7, 1, 150))):
        others = np.round(random.normal(0, 1, 120), 1)
        ends = bootstrap(members, others, statistic=measure_auc, repeats=400, random_state=1)
        assert auc_interval(members, others) == pytest.approx(ends, abs=0.02)


def measure_auc(members: np.ndarray, others: np.ndarray) -> float:
    ranks = stats.rankdata(np.r_[members, others])[: len(members)]
    return float((ranks.sum() - len(members) * (len(members) + 1) / 2) / (len(members) * len(others)))


@pytest.mark.parametrize(("m", "n"), [(6, 6), (5, 40), (60, 60)])
@pytest.mark.parametrize("kind", ["chance", "shifted", "few stand out", "wider", "two values"])
def test_interval_of_the_area_covers_the_truth(m: int, n: int, kind: str) -> None:
    random, covered, repeats = np.random.default_rng(m * n), 0, 600
    shift = {"chance": 0.0, "shifted": 1.5}.get(kind, 0.0)
    truth = float(stats.norm.cdf(shift / math.sqrt(2)))
    for _ in range(repeats):
        others = random.normal(size=n)
        members = random.normal(size=m) + shift
        if kind == "few stand out":  # a tenth of the members is known for sure, the rest is hidden
            members, truth = np.where(random.random(m) < 0.1, 99.0, members), 0.55
        elif kind == "wider":
            members = 5 * members
        elif kind == "two values":
            members, others, truth = 1.0 * (random.random(m) < 0.7), 1.0 * (random.random(n) < 0.3), 0.7
        low, high = auc_interval(members, others)
        covered += low <= truth <= high
    assert covered / repeats > FEWEST_COVERED


def test_interval_of_a_mean_of_two_shares_covers_it() -> None:
    random, repeats = np.random.default_rng(6), 600
    for first, second in ((0.5, 0.5), (0.9, 0.2), (0.99, 0.99)):
        hits, rejects = random.binomial(20, first, repeats), random.binomial(35, second, repeats)
        ends = [balanced_interval(int(h), 20, int(r), 35) for h, r in zip(hits, rejects, strict=True)]
        assert np.mean([end.low <= (first + second) / 2 <= end.high for end in ends]) > FEWEST_COVERED
    assert balanced_interval(20, 20, 0, 0) == (0, 1)
    assert balanced_interval(20, 20, 35, 35).low < 1


def test_nobody_is_certain_with_few_people() -> None:
    found = measure_roc([2, 3, 4], [0, 1])
    assert (found.auc.value, found.auc.high) == (1, 1)
    assert found.auc.low < 0.5
    assert measure_roc([0, 1], [2, 3, 4]).auc.high > 0.5
    assert measure_roc([1], [0]).auc.low < 0.25
    assert measure_roc(np.arange(50) + 50, np.arange(50)).auc.low > 0.9


@pytest.mark.parametrize(("n", "shift"), [(8, 0.0), (40, 0.0), (40, 1.0), (200, 1.0)])
def test_balanced_accuracy_is_not_flattered_by_its_threshold(n: int, shift: float) -> None:
    """No threshold is better than the best one, so an end above that is wrong: at most in 2.5 % of audits."""
    random, audits, best = np.random.default_rng(n), 400, float(stats.norm.cdf(shift / 2))
    above, values, flattered = 0, 0.0, 0.0
    for seed in range(audits):
        found = measure_roc(random.normal(shift, 1, n), random.normal(0, 1, n), seed)
        above += found.balanced_accuracy.low > best
        values, flattered = values + found.balanced_accuracy.value, flattered + found.balanced_accuracy_max
    assert above <= stats.binom.ppf(0.999, audits, 0.025)
    assert best - 0.08 < values / audits < best + 0.01
    assert flattered / audits > best + 0.01


def test_balanced_accuracy_of_what_is_plain() -> None:
    apart = measure_roc(np.arange(100) + 1000, np.arange(100))
    assert apart.balanced_accuracy_max == 1
    assert 0.9 < apart.balanced_accuracy.low < 0.97 < apart.balanced_accuracy.value
    assert measure_roc([1.0] * 30, [1.0] * 30).balanced_accuracy.value == 0.5
    assert math.isnan(measure_roc([1.0], [0.0, 1.0]).balanced_accuracy.value)


def test_members_found_by_ties_are_not_counted() -> None:
    others = [0.0] * 98 + [5.0, 5.0]
    points = {point.allowed: point for point in measure_roc([5.0, 0.0], others).points}
    assert points[0.1].tpr.value == 0.5
    assert points[0.1].fpr.value == pytest.approx(0.02)
    assert points[0.01].tpr.value == 0  # who has 5 is named with two of a hundred others, or not at all
    assert points[0.01].fpr.high == pytest.approx(clopper_pearson(0, 100).high)
    assert "1000" in str(points[0.001].reason)


def test_smallest_area_to_be_detected_is_detected_four_times_of_five() -> None:
    random, m, n, audits = np.random.default_rng(4), 120, 100, 500
    shift = math.sqrt(2) * stats.norm.ppf(detectable_auc(m, n))
    seen = sum(auc_interval(random.normal(shift, 1, m), random.normal(0, 1, n)).low > 0.5 for _ in range(audits))
    assert 0.7 < seen / audits < 0.88
    assert detectable_auc(0, 5) == detectable_auc(1, 1) == 1
    assert detectable_auc(5000, 5000) == pytest.approx(0.516, abs=1e-3)


def test_figures_have_names_and_nothing_to_measure_is_nan() -> None:
    figures = measure_roc([], [1.0]).figures()
    assert math.isnan(figures["balanced_accuracy"])
    assert (figures["balanced_accuracy_low"], figures["balanced_accuracy_high"]) == (0, 1)
    assert {f"tpr_at_{name}" for name in ("0_1", "0_01", "0_001")} <= set(figures)
    assert len(ALARMS) == 3
    assert math.isnan(measure_roc([1.0], []).auc.value)
    with pytest.raises(InputError, match="NaN"):
        measure_roc([math.nan], [1.0])
