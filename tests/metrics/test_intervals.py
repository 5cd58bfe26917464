"""Intervals against closed forms and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cfk_plugin.errors import InputError
from cfk_plugin.metrics import bootstrap, clopper_pearson, wilson


@pytest.mark.parametrize("m", [1, 5, 100, 368, 1000])
def test_no_failures_has_a_closed_form(m):
    assert clopper_pearson(m, m) == pytest.approx((0.025 ** (1 / m), 1))
    assert clopper_pearson(0, m) == pytest.approx((0, 1 - 0.025 ** (1 / m)))


def test_the_published_sample_size_cannot_show_99_percent():
    assert round(clopper_pearson(100, 100).low, 3) == 0.964
    assert clopper_pearson(367, 367).low < 0.99 <= clopper_pearson(368, 368).low


@pytest.mark.parametrize(("s", "n"), [(0, 7), (3, 7), (50, 100), (99, 100), (100, 100)])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_against_scipy(s, n, confidence):
    result = stats.binomtest(s, n)
    for ours, method in ((clopper_pearson, "exact"), (wilson, "wilson")):
        expected = result.proportion_ci(confidence, method=method)
        assert ours(s, n, confidence) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_wilson_is_never_degenerate():
    assert wilson(0, 20).high > 0.1
    assert wilson(20, 20).low < 0.9


def test_nothing_measured_says_nothing():
    assert clopper_pearson(0, 0) == wilson(0, 0) == (0, 1)


@pytest.mark.parametrize(("s", "n", "c"), [(-1, 3, 0.95), (4, 3, 0.95), (1, 3, 1.0)])
def test_wrong_settings(s, n, c):
    with pytest.raises(InputError):
        clopper_pearson(s, n, c)
    with pytest.raises(InputError):
        wilson(s, n, c)


def test_bootstrap_is_close_to_scipys_and_seeded():
    sample = np.random.default_rng(0).exponential(size=200)
    ours = bootstrap(sample, random_state=1)
    theirs = stats.bootstrap((sample,), np.mean, method="percentile", rng=1).confidence_interval
    assert ours == pytest.approx(tuple(theirs), abs=0.02)
    assert ours == bootstrap(sample, random_state=1)
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - the global state is what must not change
    bootstrap(sample, repeats=10)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_bootstrap_of_nothing():
    assert np.isnan(bootstrap([])).all()
    with pytest.raises(InputError):
        bootstrap()


@pytest.mark.parametrize("n", [1, 2, 7, 300])
def test_means_are_resampled_as_any_statistic_is(n: int) -> None:
    values = np.random.default_rng(n).normal(size=n)
    one_by_one = bootstrap(values, statistic=lambda resample: resample.mean(), repeats=500, random_state=4)
    assert bootstrap(values, repeats=500, random_state=4) == pytest.approx(one_by_one, abs=1e-12)
    flags = values > 0
    assert bootstrap(flags, repeats=9, random_state=1) == bootstrap(flags.astype(int), repeats=9, random_state=1)
