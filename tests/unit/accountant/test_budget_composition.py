"""What was let through never adds up to more than the ceiling, counted exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfk_plugin import BudgetAccountant
from cfk_plugin.errors import BudgetError

pytestmark = pytest.mark.full_search

unhurried = settings(deadline=None)  # books are a database, in memory as well
SHARE = Fraction(1, 2**52)  # by which a float may lie beside its decimal, at most

epsilons = st.floats(1e-6, 3.0) | st.sampled_from([0.1, 0.2, 0.3, 1 / 3, 0.7, 1e-6])
deltas = st.just(0.0) | st.floats(1e-12, 1e-5)


@unhurried
@given(epsilons, deltas, st.lists(st.tuples(epsilons, deltas), max_size=30))
def test_spends_never_exceed_the_ceiling(epsilon: float, delta: float, asked: list[tuple[float, float]]) -> None:
    accountant = BudgetAccountant(epsilon, delta, scope="a")
    let_through: list[tuple[float, float]] = []
    for pair in asked:
        before = accountant.remaining()
        try:
            accountant.spend(None, *pair, what="fit")
        except BudgetError:
            assert pair[0] > before.epsilon or pair[1] > before.delta  # no refusal without a reason
            assert accountant.remaining() == before
        else:
            let_through.append(pair)
    for at, ceiling in enumerate((epsilon, delta)):
        written = sum(Fraction(repr(pair[at])) for pair in let_through)
        assert written <= Fraction(repr(ceiling))
        assert sum(Fraction(pair[at]) for pair in let_through) <= Fraction(ceiling) * (1 + SHARE)
        assert accountant.spent()[at] >= float(written)


@unhurried
@given(st.floats(1e-9, 10.0), st.lists(st.floats(1e-9, 1.0), max_size=12))
def test_what_is_left_can_be_spent_and_then_nothing_is(ceiling: float, asked: list[float]) -> None:
    accountant = BudgetAccountant(ceiling, scope="a")
    for epsilon in asked:
        if epsilon <= accountant.remaining().epsilon:
            accountant.spend(None, epsilon, what="fit")
    left = accountant.remaining().epsilon
    if left > 0:
        accountant.spend(None, left, what="the rest")
    assert accountant.remaining().epsilon <= ceiling * 1e-15


@unhurried
@given(st.integers(1, 2000))
def test_equal_parts_fill_a_ceiling_exactly(parts: int) -> None:
    accountant = BudgetAccountant(parts / 1000, scope="a")
    for _ in range(min(parts, 50)):
        accountant.spend(None, 0.001, what="fit")
    assert accountant.spent().epsilon == min(parts, 50) / 1000
