"""The noised model: structure, post-processing and sampling, against brute force and closed forms."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from cfk_plugin.dp import forest as module
from cfk_plugin.dp.forest import Forest, shares
from cfk_plugin.dp.noise import PrivateRows

pytest.importorskip("opendp", reason="the extra [dp] is not installed")


def linked(n: int = 4000, seed: int = 0) -> np.ndarray:
    """Return rows of which columns 0 and 1 belong together, 2 and 3 as well, and 4 with none."""
    random = np.random.default_rng(seed)
    a, c, e = random.integers(0, 4, n), random.integers(0, 3, n), random.integers(0, 5, n)
    b = np.where(random.random(n) < 0.8, a, random.integers(0, 4, n))
    return np.column_stack([a, b, c, (c > 0).astype(int), e]).astype(np.int32)


SIZES = (4, 4, 3, 2, 5)


def measured(rows: np.ndarray, epsilon: float, sizes: tuple[int, ...] = SIZES, delta: float = 0.0) -> Forest:
    return Forest.measure(PrivateRows(rows, epsilon, delta, shares(len(sizes)), 1), sizes)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_columns_that_belong_together_are_found(delta: float) -> None:
    pairs = {(edge.first, edge.second) for edge in measured(linked(), 5.0, delta=delta).edges}
    assert {(0, 1), (2, 3)} <= pairs


def test_pairs_form_no_cycle_whatever_the_noise() -> None:
    for epsilon in (0.01, 0.1, 1.0):
        for seed in range(5):
            edges = measured(linked(200, seed), epsilon).edges
            part = list(range(len(SIZES)))
            for edge in edges:
                assert part[edge.first] != part[edge.second]
                part = [part[edge.first] if p == part[edge.second] else p for p in part]


def test_without_much_to_learn_nothing_is_counted_in_pairs() -> None:
    # 40 rows and 11 tables at epsilon 0.05: each cell of a pair would carry noise of 130 rows
    counted = [len(measured(linked(40, seed), 0.05, (4, 4, 3, 2, 5)).edges) for seed in range(20)]
    many = [len(measured(linked(40, seed), 50.0, (4, 4, 3, 2, 5)).edges) for seed in range(20)]
    assert np.mean(counted) < np.mean(many)


def test_with_hardly_any_noise_the_counts_are_those_of_the_rows() -> None:
    rows = linked()
    found = measured(rows, 1e5)
    assert found.people == pytest.approx(len(rows), abs=1)
    for j, counts in enumerate(found.single):
        assert counts == pytest.approx(np.bincount(rows[:, j], minlength=SIZES[j]), abs=1)
    for edge in found.edges:
        exact = np.zeros(edge.counts.shape)
        np.add.at(
            exact, (found.merged[edge.first][rows[:, edge.first]], found.merged[edge.second][rows[:, edge.second]]), 1
        )
        assert edge.counts == pytest.approx(exact, abs=2)


def test_probabilities_of_all_rows_add_up_to_one_and_are_the_frequencies_of_what_is_drawn() -> None:
    found = measured(linked(), 1.0)
    codes, log_probability = found.sample(200_000, np.random.default_rng(0))
    known = {tuple(row): value for row, value in zip(codes.tolist(), np.exp(log_probability), strict=True)}
    assert set(known) <= set(product(*map(range, SIZES)))
    assert sum(known.values()) == pytest.approx(1.0, abs=2e-3)  # rows of tiny probability may not have been drawn
    rows, times = np.unique(codes, axis=0, return_counts=True)
    expected = np.array([known[tuple(row)] for row in rows.tolist()])
    often = expected * len(codes) > 30  # so that a normal distribution is near enough
    error = np.abs(times / len(codes) - expected) / np.sqrt(expected / len(codes))
    assert often.sum() > 50
    assert error[often].max() < 7


def test_rare_codes_are_counted_together_and_drawn_one_by_one() -> None:
    random = np.random.default_rng(0)
    rare = np.where(random.random(20_000) < 0.6, 0, random.integers(1, 200, 20_000))
    rows = np.column_stack([rare, rare == 0]).astype(np.int32)
    found = measured(rows, 1.0, (200, 2))
    assert len(np.unique(found.merged[0])) < 20
    codes, _ = found.sample(20_000, random)
    assert len(np.unique(codes[:, 0])) > 100
    assert ((codes[:, 0] == 0) == (codes[:, 1] == 1)).mean() > 0.95


def test_a_single_column_needs_no_pairs() -> None:
    assert shares(1) == [1.0]
    found = measured(linked()[:, :1], 1.0, (4,))
    assert found.edges == ()
    codes, _ = found.sample(100, np.random.default_rng(0))
    assert codes.shape == (100, 1)


def test_shares_are_the_whole_budget() -> None:
    for columns in (1, 2, 12):
        assert sum(shares(columns)) == pytest.approx(1.0)
        assert len(shares(columns)) == (1 if columns == 1 else columns + 1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-50, 50, width=32), min_size=2, max_size=6), st.floats(1, 100, width=32))
def test_the_projection_is_the_nearest_point_that_counts_can_be(values: list[float], total: float) -> None:
    given_counts = np.array(values)
    found = module._on_simplex(given_counts, total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total, rel=1e-6)
    other = minimize(
        lambda x: ((x - given_counts) ** 2).sum(),
        np.full(len(values), total / len(values)),
        bounds=[(0, None)] * len(values),
        constraints={"type": "eq", "fun": lambda x: x.sum() - total},
    )
    best = ((found - given_counts) ** 2).sum()
    assert best <= other.fun + 1e-3 * max(1.0, other.fun)


def test_shrinking_keeps_what_noise_does_not_explain_and_drops_what_it_does() -> None:
    base = np.full(10, 100.0)
    signal = base + np.array([500.0, -90, -90, -90, -90, -90, 0, 0, -30, -20])
    (kept,) = module._shrink([signal], [base], 1.0)
    assert kept == pytest.approx(signal, abs=1)
    noise = base + np.array([3.0, -3] * 5)  # 90 is the sum of squares
    (dropped,) = module._shrink([noise], [base], 2.0)  # 4 (10 + 2 sqrt(50)) is more
    assert dropped == pytest.approx(base)
    # positive-part James-Stein: 1 - 1.5^2 (10 - 2) / 90
    (shrunk,) = module._shrink([noise], [base], 1.5)
    assert shrunk == pytest.approx(base + (1 - 2.25 * 8 / 90) * (noise - base))


def test_tables_that_together_say_no_more_than_noise_say_nothing() -> None:
    base, odd = np.full(4, 25.0), np.full(4, 25.0) + np.array([4.0, -4, 4, -4])
    flat = base + np.array([1.0, -1, 1, -1])
    alone = module._shrink([odd], [base], 1.2)[0]
    assert alone != pytest.approx(base)
    together = module._shrink([odd, *[flat] * 20], [base] * 21, 1.2)
    assert together[0] == pytest.approx(base)


def test_the_number_of_rows_is_the_mean_weighted_by_cells() -> None:
    assert module._people([np.array([10.0, 12.0]), np.array([1.0, 2, 3, 4])]) == pytest.approx((22 / 2 + 10 / 4) / 0.75)
