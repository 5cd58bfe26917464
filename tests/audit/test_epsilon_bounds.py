"""Closed forms: what follows from counts, and what no counts could show."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cfk_plugin.audit import canaries_needed, epsilon_from_scores, runs_needed
from cfk_plugin.audit.epsilon import epsilon_from_vectors, right_guesses
from cfk_plugin.audit.epsilon_bounds import ceiling, epsilon_bound, one_run_bound, one_run_ceiling, p_value
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.intervals import clopper_pearson, clopper_pearson_table

TRUTHFUL = {epsilon: 1 / (1 + math.exp(-epsilon)) for epsilon in (0.5, 1.0, 3.0)}
"""Chance of a true answer in randomised response."""


def test_the_bound_is_its_formula() -> None:
    found = epsilon_bound(150, 200, 20, 200, delta=0.01)
    low, high = clopper_pearson(150, 200).low, clopper_pearson(20, 200).high
    assert found.epsilon == max(math.log((low - 0.01) / high), math.log((1 - high - 0.01) / (1 - low)))
    assert (found.tpr.value, found.fpr.value) == (0.75, 0.1)
    assert epsilon_bound(20, 200, 150, 200).epsilon == 0
    assert epsilon_bound(0, 0, 0, 0).epsilon == 0


def test_ceilings_of_usual_sizes() -> None:
    assert [round(ceiling(runs), 2) for runs in (100, 400, 1000, 2000)] == [2.57, 3.98, 4.91, 5.6]
    low = 0.025 ** (1 / 200)
    assert ceiling(400) == pytest.approx(math.log(low / (1 - low)))
    assert ceiling(400, delta=0.1) == pytest.approx(math.log((low - 0.1) / (1 - low)))


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 4.0, 9.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.2])
def test_fewer_runs_than_needed_can_never_refute(epsilon: float, delta: float) -> None:
    runs = runs_needed(epsilon, delta)
    assert runs is not None
    assert ceiling(runs, delta) > epsilon
    assert runs == 2 or ceiling(runs - 2, delta) <= epsilon


def test_fewer_canaries_than_needed_can_never_refute() -> None:
    for epsilon, delta in itertools.product((0.0, 1.0, 5.0), (0.0, 1e-5)):
        canaries = canaries_needed(epsilon, delta)
        assert canaries is not None
        assert one_run_ceiling(canaries, canaries // 2, delta) > epsilon
        fewer = canaries - 4
        assert fewer < 4 or delta or one_run_ceiling(fewer, fewer // 2, delta) <= epsilon
    assert canaries_needed(1.0, delta=0.1) is None
    assert (runs_needed(40.0), canaries_needed(12.0)) == (None, None)


@given(
    runs=st.integers(4, 60),
    data=st.data(),
    delta=st.sampled_from([0.0, 0.01, 0.3]),
    confidence=st.sampled_from([0.8, 0.95, 0.999]),
)
def test_no_scores_exceed_the_ceiling_and_worlds_may_be_swapped(
    runs: int, data: st.DataObject, delta: float, confidence: float
) -> None:
    numbers = st.one_of(st.integers(-3, 3), st.floats(allow_nan=False))
    inside, outside = (data.draw(st.lists(numbers, min_size=runs, max_size=runs)) for _ in range(2))
    found = epsilon_from_scores(inside, outside, delta, confidence)
    assert 0 <= found.epsilon <= max(ceiling(runs, delta, confidence), 0) + 1e-9
    swapped = epsilon_from_scores(outside, inside, delta, confidence)
    assert swapped.epsilon == pytest.approx(found.epsilon, abs=1e-9)
    upside_down = epsilon_from_scores([-s for s in inside], [-s for s in outside], delta, confidence)
    assert (upside_down.tpr.n, upside_down.fpr.n) == (found.tpr.n, found.fpr.n)


@pytest.mark.parametrize("epsilon", TRUTHFUL)
def test_randomised_response_is_bounded_from_below_and_closely(epsilon: float) -> None:
    random, truthful, runs = np.random.default_rng(3), TRUTHFUL[epsilon], 40_000
    found = epsilon_from_scores(random.random(runs) < truthful, random.random(runs) > truthful)
    assert epsilon - 0.12 < found.epsilon < epsilon


def test_the_share_of_bounds_above_the_truth_is_at_most_what_the_confidence_allows() -> None:
    random, audits, runs = np.random.default_rng(8), 200, 400
    for epsilon, truthful in TRUTHFUL.items():
        worlds = zip(random.random((audits, runs)) < truthful, random.random((audits, runs)) > truthful, strict=True)
        above = sum(epsilon_from_scores(*scores).epsilon > epsilon for scores in worlds)
        assert above <= stats.binom.ppf(0.999, audits, 0.05)


@pytest.mark.parametrize(("runs", "columns"), [(400, 5), (40, 60)])  # enough to learn from, and far too few
def test_what_is_learnt_is_not_counted(runs: int, columns: int) -> None:
    random, audits = np.random.default_rng(columns), 60
    above, total = 0, 0.0
    for _ in range(audits):
        inside, outside = random.laplace(0, 1, (2, runs, columns))
        inside[:, 0] += 1  # exactly 1-DP
        found = epsilon_from_vectors(list(inside), list(outside), 0.0, 0.95).epsilon
        above, total = above + (found > 1), total + found
    assert above <= stats.binom.ppf(0.999, audits, 0.05)
    assert (total / audits > 0.2) == (runs == 400)


def test_a_leak_of_delta_is_delta_and_no_more() -> None:
    random, runs, delta = np.random.default_rng(1), 20_000, 0.1
    leaks = (random.random(runs) < delta).astype(float)  # the canary is named in a tenth of the runs, else nothing
    silent = np.zeros(runs)
    assert epsilon_from_scores(leaks, silent, delta).epsilon == 0
    assert epsilon_from_scores(leaks, silent, delta / 2).epsilon > 4
    assert epsilon_from_scores(leaks, silent).epsilon > 5


def test_infinite_scores_are_scores_and_nan_is_refused() -> None:
    assert epsilon_from_scores([math.inf] * 400, [-math.inf] * 400).epsilon == pytest.approx(ceiling(400))
    with pytest.raises(InputError, match="NaN"):
        epsilon_from_scores([math.nan] * 8, [0.0] * 8)
    with pytest.raises(InputError, match="equally many"):
        epsilon_from_scores([1.0] * 8, [0.0] * 7)


def test_extremes_on_both_sides_tell_worlds_apart_by_one_side_alone() -> None:
    """A threshold sees one tail; two tails are the user's score to fold."""
    random = np.random.default_rng(0)
    wide, narrow = 10 * random.standard_normal(4000), random.standard_normal(4000)
    assert epsilon_from_scores(np.abs(wide), np.abs(narrow)).epsilon > epsilon_from_scores(wide, narrow).epsilon > 2


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.0])
def test_p_value_without_delta_is_what_enumeration_gives(epsilon: float) -> None:
    m, truthful = 5, 1 / (1 + math.exp(-epsilon))
    chance = np.zeros(m + 1)
    for coins, answers in itertools.product(itertools.product((0, 1), repeat=m), repeat=2):
        right = sum(coin == answer for coin, answer in zip(coins, answers, strict=True))
        chance[right] += 0.5**m * truthful**right * (1 - truthful) ** (m - right)
    for right in range(m + 1):
        assert p_value(m, m, right, epsilon) == pytest.approx(chance[right:].sum())
        assert p_value(m, m, right, epsilon) == pytest.approx(stats.binom.sf(right - 1, m, truthful))


@pytest.mark.parametrize("delta", [0.001, 0.05])
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_p_value_with_delta_covers_mechanisms_that_use_all_of_it(epsilon: float, delta: float) -> None:
    m, truthful = 30, 1 / (1 + math.exp(-epsilon))
    each = stats.binom(m, delta + (1 - delta) * truthful)  # every bit is named with probability delta
    for right in range(m + 1):
        all_at_once = delta + (1 - delta) * stats.binom.sf(right - 1, m, truthful)
        assert p_value(m, m, right, epsilon, delta) >= max(float(each.sf(right - 1)), all_at_once) - 1e-12


def test_p_value_with_delta_is_its_formula() -> None:
    m, r, v, epsilon, delta = 50, 20, 17, 0.5, 1e-3
    guess = stats.binom(r, 1 / (1 + math.exp(-epsilon)))
    most = max((guess.cdf(v - 1) - guess.cdf(v - i - 1)) / i for i in range(1, m + 1))
    assert p_value(m, r, v, epsilon, delta) == pytest.approx(guess.sf(v - 1) + 2 * m * delta * most)


def test_the_bound_of_one_run_is_where_the_p_value_crosses() -> None:
    bound = one_run_bound(200, 100, 90)
    assert p_value(200, 100, 90, bound) == pytest.approx(0.05)
    assert 0 < one_run_bound(200, 100, 90, delta=1e-4) < bound < one_run_ceiling(200, 100)
    assert one_run_ceiling(200, 100) == pytest.approx(-math.log(0.05 ** (-1 / 100) - 1))
    assert one_run_bound(200, 100, 55) == 0


def test_the_share_of_bounds_of_one_run_above_the_truth_is_at_most_what_the_confidence_allows() -> None:
    random, audits, m = np.random.default_rng(5), 100, 100
    for epsilon, truthful in TRUTHFUL.items():
        above = 0
        for _ in range(audits):
            coins = random.random(m) < 0.5
            answers = np.where(random.random(m) < truthful, coins, ~coins).astype(float)
            scores = answers + 1e-6 * random.random(m)
            above += one_run_bound(m, 50, right_guesses(scores, coins, 50)) > epsilon
        assert above <= stats.binom.ppf(0.999, audits, 0.05)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: epsilon_bound(1, 2, 1, 2, delta=1.0),
        lambda: epsilon_bound(1, 2, 1, 2, confidence=1.0),
        lambda: runs_needed(-1.0),
        lambda: runs_needed(math.inf),
        lambda: p_value(10, 5, 6, 1.0),
        lambda: p_value(4, 5, 3, 1.0),
        lambda: p_value(10, 5, 3, math.nan),
        lambda: canaries_needed(1.0, delta=-0.1),
    ],
)
def test_numbers_out_of_range_are_refused(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(InputError):
        wrong()


@pytest.mark.parametrize("n", [1, 2, 17])
def test_the_table_of_intervals_is_every_interval(n: int) -> None:
    lows, highs = clopper_pearson_table(n, 0.9)
    for successes in range(n + 1):
        assert (lows[successes], highs[successes]) == pytest.approx(clopper_pearson(successes, n, 0.9))
