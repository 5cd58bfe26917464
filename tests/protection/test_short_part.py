"""The short part of a catalogue: it keeps its promise, and nothing can be dropped from it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cfk_plugin.protection.catalogue.short_part import (
    UNREACHED,
    greedy_order,
    mean_cost,
    share_reached,
    short_part,
)

NEAR = 1e-9


@st.composite
def costs_of_people(draw: st.DrawFn) -> np.ndarray:
    """Draw costs with ties, entries that reach few people, and people whom no entry reaches."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.integers(1, 12)), draw(st.integers(1, 9))
    decimals = draw(st.sampled_from([0, 1, 6]))
    costs = random.exponential(2.0, shape).round(decimals)
    share_infinite = draw(st.sampled_from([0.0, 0.4, 0.9]))
    costs[random.random(shape) < share_infinite] = np.inf
    assume(np.isfinite(costs).any())
    return costs


def serves(costs: np.ndarray, entries: list[int], within: float) -> bool:
    """Return True if entries reach whom all entries reach, at the allowed mean cost."""
    best = []
    part = []
    for person in costs:
        if min(person) < np.inf:
            best.append(min(person))
            part.append(min((person[i] for i in entries), default=np.inf))
    return sum(part) / len(part) <= (1 + within) * sum(best) / len(best) + NEAR


@settings(deadline=None)
@given(costs_of_people(), st.sampled_from([0.0, 0.03, 0.3, 1.0]))
def test_a_short_part_keeps_its_promise_and_needs_every_entry(
    costs: np.ndarray, within: float
) -> None:
    part = short_part(costs, within).tolist()
    assert part == sorted(set(part))
    assert set(part) <= set(range(costs.shape[1]))
    assert serves(costs, part, within)
    for dropped in part:
        assert not serves(costs, [i for i in part if i != dropped], within)


@settings(deadline=None)
@given(costs_of_people())
def test_each_step_adds_the_entry_that_lowers_the_mean_cost_the_most(costs: np.ndarray) -> None:
    finite = costs[np.isfinite(costs)]
    counted = np.where(np.isfinite(costs), costs, finite.max() + UNREACHED)
    counted = counted[np.isfinite(costs).any(axis=1)]
    chosen: list[int] = []
    for entry in greedy_order(costs):
        left = [i for i in range(costs.shape[1]) if i not in chosen]
        totals = [counted[:, [*chosen, i]].min(axis=1).sum() for i in left]
        first_of_best = next(
            i for i, total in zip(left, totals, strict=True) if total <= min(totals) + NEAR
        )
        assert entry == first_of_best
        chosen.append(entry)
    assert sorted(chosen) == list(range(costs.shape[1]))


def test_a_part_of_three_is_found_where_no_smaller_one_serves() -> None:
    costs = np.array(
        [
            [1.0, 9.0, 9.0, 2.0, 5.0],
            [9.0, 1.0, 9.0, 2.0, 5.0],
            [9.0, 9.0, 1.0, 9.0, 5.0],
        ]
    )
    assert short_part(costs, 0.0).tolist() == [0, 1, 2]
    for size in (1, 2):
        for some in combinations(range(5), size):
            assert not serves(costs, list(some), 0.0)
    assert short_part(costs, 0.7).tolist() == [2, 3]


def test_an_entry_that_later_ones_made_unnecessary_is_dropped() -> None:
    # Entry 0 is the best single one; entries 1 and 2 together are better for everybody.
    costs = np.array([[2.0, 1.0, 6.0], [2.0, 1.0, 6.0], [2.0, 6.0, 1.0], [2.0, 6.0, 1.0]])
    assert next(greedy_order(costs)) == 0
    assert short_part(costs, 0.0).tolist() == [1, 2]


def test_of_equal_entries_the_first_is_taken() -> None:
    costs = np.array([[3.0, 1.0, 1.0, 1.0]])
    assert short_part(costs, 0.0).tolist() == [1]


def test_people_whom_no_entry_reaches_are_counted_apart() -> None:
    costs = np.array([[1.0, 3.0], [np.inf, np.inf], [np.inf, 5.0], [2.0, np.inf]])
    assert share_reached(costs) == pytest.approx(0.75)
    assert mean_cost(costs) == pytest.approx(8 / 3)
    assert short_part(costs, 1.0).tolist() == [0, 1]
