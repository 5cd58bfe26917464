"""Intervals of clustered shares and of differences against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from cfk_plugin.errors import InputError
from cfk_plugin.metrics import clopper_pearson, wilson
from cfk_plugin.metrics.intervals import clustered_share, difference


def test_resampled_clusters_are_as_wide_as_the_closed_form() -> None:
    random = np.random.default_rng(0)
    size = random.integers(1, 30, 400)
    right = random.binomial(size, random.beta(1, 1, 400))
    ratio = right.sum() / size.sum()
    error = np.sqrt((400 / 399) * ((right - ratio * size) ** 2).sum()) / size.sum()  # linearised
    assert error > 1.5 * np.sqrt(ratio * (1 - ratio) / size.sum())  # cases on their own would be much narrower
    expected = (ratio - 1.96 * error, ratio + 1.96 * error)
    assert clustered_share(right, size) == pytest.approx(expected, abs=0.15 * error)
    assert clustered_share(right, size) == clustered_share([*right, 0], [*size, 0])
    assert clustered_share(right, size, random_state=1) != clustered_share(right, size)


def test_few_clusters_or_all_alike_are_as_many_trials() -> None:
    assert clustered_share([5] * 40, [5] * 40) == clopper_pearson(40, 40)
    assert clustered_share([2, 7, 0], [10, 10, 10]) == (clopper_pearson(0, 3).low, clopper_pearson(1, 3).high)
    # One large cluster and many small ones are as good as (100 + 20)² / (100² + 20) = 1.4 of them.
    assert clustered_share([50, *[1] * 20], [100, *[1] * 20]) == (0.0, 1.0)
    assert clustered_share([], []) == clustered_share([0], [0]) == (0.0, 1.0)


@pytest.mark.parametrize("wrong", [{"successes": [2]}, {"successes": [-1]}])
def test_wrong_settings(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        clustered_share(**{"successes": [1], "sizes": [1], **wrong})  # type: ignore[arg-type]


def test_the_difference_of_newcombes_first_example() -> None:
    # 56 of 70 against 48 of 80: method 10 of the paper gives 0.0524 to 0.3339 from Wilson's intervals.
    first, second = wilson(56, 70), wilson(48, 80)
    assert difference((0.8, *first), (0.6, *second)) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert np.isnan(difference((float("nan"), 0, 1), (0.6, *second))).all()
