"""Intervals against closed forms, scipy and published examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from cfk_plugin.errors import InputError
from cfk_plugin.metrics import bootstrap, clopper_pearson, wilson
from cfk_plugin.metrics.intervals import (
    clustered_share,
    difference,
    difference_of_means,
    roc_height,
)


@pytest.mark.parametrize(("s", "n"), [(0, 7), (3, 7), (50, 100), (99, 100), (100, 100)])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_shares_have_the_intervals_of_scipy(s: int, n: int, confidence: float) -> None:
    result = stats.binomtest(s, n)
    for ours, method in ((clopper_pearson, "exact"), (wilson, "wilson")):
        expected = result.proportion_ci(confidence, method=method)
        assert ours(s, n, confidence) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_the_published_sample_size_cannot_show_99_percent() -> None:
    assert round(clopper_pearson(100, 100).low, 3) == 0.964
    assert clopper_pearson(367, 367).low < 0.99 <= clopper_pearson(368, 368).low


def test_nothing_measured_says_nothing() -> None:
    assert (
        clopper_pearson(0, 0)
        == wilson(0, 0)
        == clustered_share([], [])
        == clustered_share([0], [0])
        == (0, 1)
    )
    assert np.isnan(bootstrap([])).all()
    assert np.isnan(difference((float("nan"), 0, 1), (0.6, 0.5, 0.7))).all()


@pytest.mark.parametrize(
    ("interval", "given"),
    [
        *(
            (of, given)
            for of in (clopper_pearson, wilson)
            for given in ((-1, 3), (4, 3), (1, 3, 1.0))
        ),
        (clustered_share, ([2], [1])),
        (clustered_share, ([-1], [1])),
        (bootstrap, ()),
    ],
)
def test_what_no_share_can_be_is_refused(
    interval: Callable[..., Any], given: tuple[Any, ...]
) -> None:
    with pytest.raises(InputError):
        interval(*given)


def test_bootstrap_of_a_mean_is_seeded_and_near_the_normal_interval() -> None:
    sample = np.random.default_rng(0).normal(size=400)
    error = 1.96 * sample.std() / 20
    expected = (sample.mean() - error, sample.mean() + error)
    assert bootstrap(sample, random_state=1) == pytest.approx(expected, abs=0.01)
    assert bootstrap(sample, random_state=1) == bootstrap(sample, random_state=1)


def test_bootstrap_of_one_value_has_no_width() -> None:
    assert bootstrap([0.5]) == (0.5, 0.5)
    assert bootstrap([0.5], [0.2, 0.4], statistic=difference_of_means) == pytest.approx((0.2, 0.2))


def test_resampled_clusters_are_as_wide_as_the_closed_form() -> None:
    random = np.random.default_rng(0)
    size = random.integers(1, 30, 400)
    right = random.binomial(size, random.beta(1, 1, 400))
    ratio = right.sum() / size.sum()
    error = np.sqrt((400 / 399) * ((right - ratio * size) ** 2).sum()) / size.sum()  # linearised
    # cases on their own would be much narrower
    assert error > 1.5 * np.sqrt(ratio * (1 - ratio) / size.sum())
    expected = (ratio - 1.96 * error, ratio + 1.96 * error)
    assert clustered_share(right, size) == pytest.approx(expected, abs=0.15 * error)
    assert clustered_share(right, size) == clustered_share([*right, 0], [*size, 0])
    assert clustered_share(right, size, random_state=1) != clustered_share(right, size)


def test_few_clusters_or_all_alike_are_as_many_trials() -> None:
    assert clustered_share([5] * 40, [5] * 40) == clopper_pearson(40, 40)
    assert clustered_share([2, 7, 0], [10, 10, 10]) == (
        clopper_pearson(0, 3).low,
        clopper_pearson(1, 3).high,
    )
    # One large cluster and many small ones are as good as (100 + 20)² / (100² + 20) = 1.4 of them.
    assert clustered_share([50, *[1] * 20], [100, *[1] * 20]) == (0.0, 1.0)


def test_the_difference_of_newcombes_first_example() -> None:
    # 56 of 70 against 48 of 80: method 10 of the paper gives 0.0524 to 0.3339 from Wilson's
    # intervals.
    found = difference((0.8, *wilson(56, 70)), (0.6, *wilson(48, 80)))
    assert found == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_of_points_of_a_roc_curve_above_each_other_the_highest_counts() -> None:
    fpr, tpr = [0.0, 0.0, 0.2, 0.2, 1.0], [0.0, 0.1, 0.1, 0.6, 1.0]
    assert roc_height(fpr, tpr, [0.0, 0.1, 0.2, 0.6, 1.0]).tolist() == pytest.approx(
        [0.1, 0.35, 0.6, 0.8, 1.0]
    )
