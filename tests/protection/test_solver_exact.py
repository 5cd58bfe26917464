"""The solver against an exhaustive enumeration of all regions, on thousands of small random tables."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfk_plugin.protection.axes import INTERVAL, NOMINAL, Axis, AxisArrays, CellIndex
from cfk_plugin.protection.solver import solve
from reference import hull_cost

pytestmark = pytest.mark.full_search


@dataclass
class Case:
    axes: list[Axis]
    codes: np.ndarray
    weight: np.ndarray
    anchor: np.ndarray
    place: np.ndarray
    forbidden: np.ndarray
    penalty: float
    k: int

    def run(self, **options):
        index = CellIndex.build(self.codes, self.weight, AxisArrays.of(self.axes))
        ask = {"forbidden": [self.forbidden], "penalty": self.penalty} | options
        return solve(index, self.anchor[None], self.place[None], self.k, **ask)[0]


def random_tree(rng, weight):
    """A hierarchy of two or three levels, leaves numbered depth first."""
    leaves = int(rng.integers(2, 7))
    low, high, parent = [0], [leaves - 1], [-1]
    cuts = sorted({0, leaves, *rng.integers(0, leaves + 1, 2).tolist()})
    for a, b in itertools.pairwise(cuts):
        group = len(low)
        low, high, parent = [*low, a], [*high, b - 1], [*parent, 0]
        for leaf in range(a, b):
            low, high, parent = [*low, leaf], [*high, leaf], [*parent, group]
    return Axis.tree(low, high, parent, weight)


def random_axis(rng, weight):
    kind = rng.integers(4)
    if kind == 0:
        values = int(rng.integers(1, 6))  # a larger domain makes values cheap and many worth taking
        return Axis.nominal(values, weight, card=int(rng.choice([values, 20])))
    if kind == 1:
        return random_tree(rng, weight)
    size = int(rng.integers(1, 7))
    points = np.sort(rng.choice(40, size, replace=False)).astype(float)
    scaled = weight * (points - points[0]) / max(np.ptp(points), 1.0)
    return Axis.interval(scaled, weight, missing=bool(kind == 3 and rng.random() < 0.7))


def random_case(seed):
    rng = np.random.default_rng(seed)
    q = int(rng.integers(1, 5))
    weights = rng.dirichlet(np.ones(q)) if rng.random() < 0.5 else np.full(q, 1.0 / q)
    axes = [random_axis(rng, float(w)) for w in weights]
    card = [a.position.size for a in axes]
    rows = rng.integers(0, card, (int(rng.integers(6, 31)), q)).astype(np.int32)
    codes, weight = np.unique(rows, axis=0, return_counts=True)
    anchor = (rows[rng.integers(len(rows))] if rng.random() < 0.6 else rng.integers(0, card)).astype(np.int32)
    place = np.zeros(q)
    for j, axis in enumerate(axes):
        if axis.kind == INTERVAL and rng.random() < 0.2:
            anchor[j], place[j] = -1, axis.weight * rng.uniform(-0.3, 1.3)
    some = int(rng.integers(0, 8)) if rng.random() < 0.7 else 0
    forbidden = rng.integers(0, card, (some, q)).astype(np.int32)
    forbidden[(rng.random(forbidden.shape) < 0.3) & (anchor < 0)] = -1  # the anchor's own value
    penalty = np.inf if rng.random() < 0.6 else float(rng.choice([0.0, 0.02, 0.3]))
    return Case(axes, codes, weight, anchor, place, forbidden, penalty, int(rng.integers(1, len(rows) + 2)))


def choices(axis, anchor, place, column):
    """All ways to generalise one attribute: (bit mask of the rows inside, cost)."""
    if axis.kind == NOMINAL:
        others = [v for v in range(axis.position.size) if v != anchor]
        for size in range(len(others) + 1):
            for extra in itertools.combinations(others, size):
                yield np.isin(column, [anchor, *extra]), axis.weight * (size + 1) / axis.card if size else 0.0
    elif axis.kind == INTERVAL:
        numbers = axis.position[:-1] if axis.missing >= 0 else axis.position
        lost = column == axis.missing if axis.missing >= 0 else np.zeros(len(column), bool)
        at = np.where(column < 0, place, axis.position[column])
        start = place if anchor < 0 else None if anchor == axis.missing else axis.position[anchor]
        if start is None:
            yield lost, 0.0
        points = sorted({*numbers.tolist(), *([] if start is None else [start])})
        for low, high in itertools.combinations_with_replacement(points, 2):
            if start is None:
                yield lost | ((low <= at) & (at <= high)), axis.weight
            elif low <= start <= high:
                inside = (low <= at) & (at <= high) & ~lost
                yield inside, min(axis.weight, high - low)
                yield inside | lost, axis.weight if axis.missing >= 0 else min(axis.weight, high - low)
    else:
        for low, high in zip(axis.low, axis.high, strict=True):
            if low <= anchor <= high:
                cost = axis.weight * (high - low + 1) / axis.position.size if high > low else 0.0
                yield (low <= column) & (column <= high), cost


def exhaustive(case):
    """Least cost over all regions, infinite when none is allowed."""
    both = np.vstack([case.codes, case.forbidden])
    bits = 1 << np.arange(len(both), dtype=np.int64)
    mask, cost = np.array([bits.sum()]), np.zeros(1)
    for j, axis in enumerate(case.axes):
        options = list(choices(axis, case.anchor[j], case.place[j], both[:, j]))
        masks = np.array([bits[inside].sum() for inside, _ in options], np.int64)
        costs = np.array([price for _, price in options])
        mask, cost = (mask[:, None] & masks).ravel(), (cost[:, None] + costs).ravel()
        order = np.lexsort((cost, mask))
        first = np.append(True, np.diff(mask[order]) != 0)
        mask, cost = mask[order][first], cost[order][first]
    holds = (mask[:, None] & bits) != 0
    people = holds[:, : len(case.codes)] @ case.weight
    bad = holds[:, len(case.codes) :].sum(axis=1)
    fine = people >= case.k
    if np.isinf(case.penalty):
        fine &= bad == 0
    else:
        cost = cost + case.penalty * bad
    return float(cost[fine].min()) if fine.any() else np.inf


def inside(axis, anchor, place, members, value):
    """Whether a value lies in the hull of the anchor and the members on one axis."""
    if axis.kind == NOMINAL:
        return value in {anchor, *members}
    if axis.kind == INTERVAL:
        codes = {anchor, *members}
        if value == axis.missing >= 0:
            return value in codes
        numbers = [axis.position[c] for c in codes if c >= 0 and c != axis.missing]
        numbers += [place] if anchor < 0 else []
        at = place if value < 0 else axis.position[value]
        return bool(numbers) and min(numbers) <= at <= max(numbers)
    spans = zip(axis.low, axis.high, strict=True)
    cover = [(b - a, a, b) for a, b in spans if all(a <= c <= b for c in (anchor, *members))]
    return min(cover)[1] <= value <= min(cover)[2]


def check_region(case, answer):
    """The returned cells span a region of the stated cost and weight, without excluded cells."""
    members = case.codes[answer.cells]

    def within(row):
        return all(
            inside(axis, case.anchor[j], case.place[j], members[:, j].tolist(), row[j])
            for j, axis in enumerate(case.axes)
        )

    bad = sum(within(row) for row in case.forbidden.tolist())
    cost = hull_cost(AxisArrays.of(case.axes), members, case.anchor, case.place)
    people = sum(int(w) for row, w in zip(case.codes.tolist(), case.weight, strict=True) if within(row))
    assert answer.weight == people >= case.k
    if np.isinf(case.penalty):
        assert bad == 0
    else:
        cost += case.penalty * bad
    assert answer.cost == pytest.approx(cost, abs=1e-11)


def check(seed):
    case = random_case(seed)
    answer = case.run()
    best = exhaustive(case)
    assert answer.proven
    assert (answer.weight > 0) == np.isfinite(best)
    assert answer.cost == answer.lower_bound
    if np.isfinite(best):
        assert answer.cost == pytest.approx(best, abs=1e-11)
        check_region(case, answer)
    tiny = case.run(node_limit=1 + seed % 7)
    assert tiny.lower_bound <= best + 1e-11
    assert tiny.cost >= best - 1e-11
    if tiny.weight:
        check_region(case, tiny)
    if tiny.proven:
        assert tiny.cost == pytest.approx(best, abs=1e-11)


@pytest.mark.parametrize("block", range(25))
def test_equals_exhaustive_enumeration(block):
    for seed in range(100 * block, 100 * block + 100):
        check(seed)


@settings(max_examples=150, deadline=None)
@given(st.integers(min_value=10_000, max_value=2**32))
def test_equals_exhaustive_enumeration_on_any_table(seed):
    check(seed)


def test_threads_slices_and_repetition_change_nothing():
    rng = np.random.default_rng(5)
    line, names = Axis.interval(np.linspace(0, 0.4, 30), 0.4), [Axis.nominal(n, 0.3) for n in (9, 4)]
    axes = AxisArrays.of([line, *names])
    codes, weight = np.unique(rng.integers(0, [30, 9, 4], (400, 3)), axis=0, return_counts=True)
    index = CellIndex.build(codes, weight, axes)
    anchors, places = codes[:60], np.zeros((60, 3))
    banned = [rng.integers(0, [30, 9, 4], (20, 3)) for _ in anchors]
    plain = solve(index, anchors, places, 12, banned)
    for options in ({"threads": 3}, {"time_limit": 1000.0}, {}):
        again = solve(index, anchors, places, 12, banned, **options)
        for one, other in zip(plain, again, strict=True):
            assert one[:-1] == other[:-1]
            np.testing.assert_array_equal(one.cells, other.cells)


def test_a_time_limit_returns_a_bound():
    rng = np.random.default_rng(2)
    axes = AxisArrays.of([Axis.interval(np.linspace(0, 0.1, 40), 0.1) for _ in range(10)])
    codes, weight = np.unique(rng.integers(0, 40, (2000, 10)), axis=0, return_counts=True)
    index = CellIndex.build(codes, weight, axes)
    (answer,) = solve(index, codes[:1], np.zeros((1, 10)), 40, time_limit=0.05, node_limit=10**9)
    assert answer.weight > 0
    assert not answer.proven
    assert 0 < answer.lower_bound < answer.cost


def test_whatever_the_limits_one_descent_ends_in_a_region():
    rng = np.random.default_rng(2)
    axes = AxisArrays.of([Axis.interval(np.linspace(0, 0.2, 40), 0.2) for _ in range(5)])
    codes, weight = np.unique(rng.integers(0, 40, (500, 5)), axis=0, return_counts=True)
    index = CellIndex.build(codes, weight, axes)
    for options in ({"node_limit": 1}, {"time_limit": 0.0}):
        for answer in solve(index, codes[:10], np.zeros((10, 5)), 20, **options):
            assert answer.weight >= 20
            assert not answer.proven
    few = solve(index, codes[:10], np.zeros((10, 5)), 20, node_limit=1)
    assert max(answer.nodes for answer in few) <= 20  # a node for each person joined, and none after the first region
