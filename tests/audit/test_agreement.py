from __future__ import annotations

import math

import numpy as np
import pytest

from cfk_plugin.audit.extraction import balanced, deviation, gain, share
from cfk_plugin.metrics import clopper_pearson

YES, NO = True, False


def test_one_draw_has_the_exact_interval_over_people() -> None:
    found = share([np.array([YES, NO, YES, YES])], [np.arange(4)], seed=0)
    assert (found.value, found.n) == (0.75, 4)
    assert (found.low, found.high) == pytest.approx(tuple(clopper_pearson(3, 4)))


def test_people_in_several_draws_count_once() -> None:
    right = [np.array([YES, NO]), np.array([NO, NO])]
    found = share(right, [np.array([0, 1]), np.array([0, 2])], seed=0)
    assert found.n == 3
    assert found.value == pytest.approx((0.5 + 0 + 0) / 3)


def test_draws_that_differ_widen_the_interval() -> None:
    people = [np.arange(1000)] * 3
    equal = share([np.arange(1000) < 700] * 3, people, seed=0)
    differing = share([np.arange(1000) < count for count in (600, 700, 800)], people, seed=0)
    assert differing.value == pytest.approx(equal.value)
    spread = 4.302652729911275 * 0.1 / math.sqrt(3)  # Student's t with two degrees, 97.5 %
    assert differing.low < differing.value - spread
    assert differing.high > differing.value + spread
    assert equal.low > 0.65


def test_gain_is_paired() -> None:
    first, second = np.arange(1000) < 720, np.arange(1000) < 700  # right about 20 more, wrong about none more
    found = gain([first], [second], [np.arange(1000)], seed=0)
    assert found.value == pytest.approx(0.02)
    assert 0 < found.low < found.value < found.high < 0.04
    assert found.figures("gain") == {"gain": found.value, "gain_low": found.low, "gain_high": found.high}


def test_balanced_share_is_the_mean_over_outcomes() -> None:
    assert balanced([np.array([YES, YES, YES, NO])], [np.array([YES, NO, NO, NO])]) == pytest.approx((1 + 2 / 3) / 2)
    assert math.isnan(balanced([np.array([YES])], [np.array([YES])]))


def test_deviation_needs_two_draws() -> None:
    assert deviation([0.5, 0.7]) == pytest.approx(math.sqrt(0.02))
    assert math.isnan(deviation([0.5]))
