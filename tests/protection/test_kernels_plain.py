"""Each kernel computes what the plain function beside it says, on small random problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from cfk_plugin.protection import axes as axes_module
from cfk_plugin.protection import class_index
from cfk_plugin.protection.axes import (
    INTERVAL,
    TREE,
    Axis,
    AxisArrays,
    plain_box_distance,
    plain_hull_cost,
    plain_part_cost,
)
from cfk_plugin.protection.class_index import (
    ClassIndex,
    plain_ball,
    plain_nearest,
    plain_reach,
    plain_upper_median,
    plain_widest_axis,
)
from cfk_plugin.protection.lookup import branch_and_bound, hulls
from cfk_plugin.protection.lookup.branch_and_bound import (
    BEST_SIZE,
    BEST_WEIGHT,
    DEPTH,
    DONE,
    FULL,
    NODES,
    PAUSED,
    SHALLOW,
    TOLERANCE,
    plain_cheapest,
    plain_completion_bound,
    plain_fined_cost,
    plain_open_bound,
    plain_sum_of_largest,
)
from cfk_plugin.protection.lookup.hulls import (
    WIDE,
    LocalProblem,
    first_hull,
    localize,
    plain_contains,
    plain_cost,
    plain_headcount,
)

SEEDS = range(8)


def callable_kernel(kernel: Any) -> Callable[..., Any]:
    """Return a kernel that other kernels call as one that Python can call."""

    def call(*arguments: Any) -> Any:
        return kernel(*arguments)

    return numba.njit(call)  # type: ignore[no-any-return]


tree_cost = callable_kernel(axes_module.tree_cost)
box_distance = callable_kernel(axes_module.box_distance)
widest_axis = callable_kernel(class_index.widest_axis)
divide = callable_kernel(class_index.divide)
upper_median = callable_kernel(class_index.upper_median)
reach = callable_kernel(class_index.reach)
joined = callable_kernel(hulls.joined)
engulfs = callable_kernel(hulls.engulfs)
extend = callable_kernel(hulls.extend)
retract = callable_kernel(hulls.retract)
fined = callable_kernel(branch_and_bound._fined)
hopeless = callable_kernel(branch_and_bound.hopeless)
completion_bound = callable_kernel(branch_and_bound._completion_bound)
sum_of_largest = callable_kernel(branch_and_bound.sum_of_largest)


class SmallProblem(NamedTuple):
    """A few classes around an anchor, with forbidden combinations."""

    index: ClassIndex
    anchor: np.ndarray
    positions: np.ndarray
    local: LocalProblem


def small_axes(rng: np.random.Generator) -> AxisArrays:
    """Return ages, some of them missing, a set of many values, a hierarchy and a small set."""
    ages = np.sort(np.round(rng.uniform(0, 0.5, 8), 3))
    return AxisArrays.of(
        [
            Axis.interval(ages, float(rng.uniform(0.1, 0.5)), missing=True),
            Axis.nominal(WIDE + 4, 0.8),
            Axis.tree([0, 0, 0, 1, 2, 3, 2], [3, 1, 0, 1, 2, 3, 3], [-1, 0, 1, 1, 6, 6, 0], 0.2),
            Axis.nominal(3, 0.3, card=5),
        ]
    )


def small_problem(seed: int, n_classes: int = 8, n_forbidden: int = 3) -> SmallProblem:
    """Return a random problem.

    Its anchor is a class or not. On the first axis it may have a number of its own, or be missing.
    """
    rng = np.random.default_rng(seed)
    axes = small_axes(rng)
    n_codes = np.diff(axes.offset)
    drawn = rng.integers(0, n_codes, (n_classes, axes.kind.size)).astype(np.int32)
    codes = np.unique(drawn, axis=0)
    index = ClassIndex.build(codes, rng.integers(1, 4, len(codes)), axes)
    anchor = codes[0].copy() if seed % 2 else rng.integers(0, n_codes).astype(np.int32)
    positions = axes.position[axes.offset[:-1] + anchor]
    if seed % 3 == 0:
        anchor[0] = -1
        positions[0] = float(rng.uniform(-0.2, 0.7))
    forbidden = rng.integers(0, n_codes, (n_forbidden, axes.kind.size)).astype(np.int32)
    if anchor[0] < 0:
        forbidden[:1, 0] = -1
    ordered, costs = class_index.within(axes, anchor, positions, forbidden, np.inf)
    rows = np.arange(len(codes))
    local = localize(index.tree, axes, anchor, positions, rows, ordered, costs)
    return SmallProblem(index, anchor, positions, local)


def extended_hull(local: LocalProblem, rows: list[int]) -> hulls.Hull:
    """Return hulls whose last depth holds the anchor and some rows."""
    hull = first_hull(local, len(rows) + 2)
    for depth, row in enumerate(rows):
        extend(local, hull, depth, row)
    return hull


def some_rows(seed: int, local: LocalProblem) -> list[int]:
    rng = np.random.default_rng(seed)
    return rng.choice(local.n_classes, seed % 4, replace=False).tolist()


# --- axes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_tree_cost_is_that_of_the_lowest_common_node(seed: int) -> None:
    axes = small_axes(np.random.default_rng(seed))
    j = int(np.flatnonzero(axes.kind == TREE)[0])
    for leaf in range(4):
        for code in range(4):
            plain = plain_part_cost(axes, j, [leaf, code], 0.0)
            assert tree_cost(axes, j, leaf, code) == pytest.approx(plain)


@pytest.mark.parametrize("seed", SEEDS)
def test_box_distance_is_the_least_over_the_codes_of_a_range(seed: int) -> None:
    axes = small_axes(np.random.default_rng(seed))
    for j, n_codes in enumerate(np.diff(axes.offset)):
        least = -1 if axes.kind[j] == INTERVAL else 0
        for anchor in range(least, n_codes):
            position = 0.25 if anchor < 0 else float(axes.position[axes.offset[j] + anchor])
            for low in range(n_codes):
                for high in range(low, n_codes):
                    cost = box_distance(axes, j, anchor, position, low, high)
                    plain = plain_box_distance(axes, j, anchor, position, low, high)
                    assert cost == pytest.approx(plain)


# --- the index over classes ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_reach_is_the_sum_over_the_axes_or_above_the_limit(seed: int) -> None:
    index, anchor, positions, _ = small_problem(seed)
    tree = index.tree
    for t in range(len(tree.codes)):
        plain = plain_reach(index.axes, anchor, positions, tree.codes, tree.codes, t)
        hull = plain_hull_cost(index.axes, tree.codes[t][None], anchor, positions)
        for limit in (0.1, 0.5, np.inf):
            cost = reach(index.axes, anchor, positions, tree.codes, tree.codes, t, limit)
            assert cost == pytest.approx(plain) if plain < limit else cost >= limit
        assert plain == pytest.approx(hull)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_class_of_a_box_costs_less_than_the_box(seed: int) -> None:
    index, anchor, positions, _ = small_problem(seed, n_classes=60)
    tree = index.tree
    for t in range(len(tree.start)):
        bound = reach(index.axes, anchor, positions, tree.low, tree.high, t, np.inf)
        plain = plain_reach(index.axes, anchor, positions, tree.low, tree.high, t)
        classes = tree.codes[tree.start[t] : tree.stop[t]]
        costs = [plain_hull_cost(index.axes, c[None], anchor, positions) for c in classes]
        assert bound == pytest.approx(plain)
        assert bound <= min(costs) + 1e-12


@pytest.mark.parametrize("seed", SEEDS)
def test_the_widest_axis_costs_most(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axes = small_axes(rng)
    corners = np.sort(rng.integers(0, np.diff(axes.offset), (2, axes.kind.size)), axis=0)
    low, high = corners.astype(np.int32)
    assert widest_axis(axes, low, high) == plain_widest_axis(axes, low, high)
    assert widest_axis(axes, low, low) == plain_widest_axis(axes, low, low) == -1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_is_divided_at_a_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sample = rng.integers(0, 9, 1 + seed).astype(np.int32)
    assert upper_median(sample.copy()) == plain_upper_median(sample)
    cells = rng.integers(0, 9, (2 + 20 * seed, 2)).astype(np.int32)
    cells[0, 0] = 9
    cells[1, 0] = 0
    order = np.arange(len(cells))
    middle = divide(cells, order, 0, len(cells), 0, 9)
    assert sorted(order) == list(range(len(cells)))
    assert 0 < middle < len(cells)
    assert cells[order[:middle], 0].max() < cells[order[middle:], 0].min()


@pytest.mark.parametrize("seed", SEEDS)
def test_nearest_and_ball_look_at_every_class(seed: int) -> None:
    index, anchor, positions, _ = small_problem(seed, n_classes=100)
    tree = index.tree
    costs = np.array([plain_hull_cost(index.axes, c[None], anchor, positions) for c in tree.codes])
    for people in (1, 7, 50, 10_000):
        chosen, radius = class_index.nearest(tree, index.axes, anchor, positions, people)
        plain, plain_radius = plain_nearest(tree, index.axes, anchor, positions, people)
        is_cheaper = costs[chosen] < radius - 1e-9
        is_plain_cheaper = costs[plain] < plain_radius - 1e-9
        assert radius == pytest.approx(plain_radius)
        assert sorted(chosen[is_cheaper]) == sorted(plain[is_plain_cheaper])
        assert tree.weight[chosen].sum() >= min(people, tree.weight.sum())
    for limit in (0.0501, 0.2501, 0.6501, 3.0):
        found = class_index.ball(tree, index.axes, anchor, positions, limit)
        np.testing.assert_array_equal(found, plain_ball(tree, index.axes, anchor, positions, limit))


# --- hulls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_joined_row_costs_what_the_plain_hull_costs(seed: int) -> None:
    local = small_problem(seed).local
    rows = some_rows(seed, local)
    hull = extended_hull(local, rows)
    depth = len(rows)
    for i in range(len(local.weight)):
        cost, is_inside = joined(local, hull, depth, i, np.inf)
        assert cost == pytest.approx(plain_cost(local, [*rows, i]))
        assert is_inside == plain_contains(local, rows, i)
        assert joined(local, hull, depth, i, cost) == (pytest.approx(cost), False) or cost == 0
        for b in range(len(local.weight)):
            assert engulfs(local, hull, depth, i, b) == plain_contains(local, [*rows, i], b)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plain_hull_costs_what_its_codes_cost(seed: int) -> None:
    index, anchor, positions, local = small_problem(seed)
    rows = some_rows(seed, local)
    codes = index.tree.codes[rows]
    expected = plain_hull_cost(index.axes, codes, anchor, positions)
    assert plain_cost(local, rows) == pytest.approx(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_retract_takes_back_what_extend_added(seed: int) -> None:
    local = small_problem(seed).local
    rows = some_rows(seed, local)
    hull = extended_hull(local, rows)
    for depth in range(len(rows), 0, -1):
        retract(local, hull, depth)
    np.testing.assert_array_equal(hull.member, first_hull(local, 1).member)


@pytest.mark.parametrize("seed", SEEDS)
def test_headcount_counts_people_in_the_hull(seed: int) -> None:
    local = small_problem(seed).local
    n_spanning = seed % 4
    hull = first_hull(local, n_spanning + 1)
    assert hulls.headcount(local, hull, n_spanning) == plain_headcount(local, n_spanning)


# --- branch and bound ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_each_forbidden_row_inside_is_fined(seed: int) -> None:
    local = small_problem(seed).local
    rows = some_rows(seed, local)
    hull = extended_hull(local, rows)
    for i in range(local.n_classes):
        cost = plain_cost(local, [*rows, i])
        total = fined(local, hull, len(rows), i, 0.3, cost, np.inf)
        assert total == pytest.approx(plain_fined_cost(local, [*rows, i], 0.3))


@pytest.mark.parametrize("seed", SEEDS)
def test_sum_of_largest_is_exact_below_the_need(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sums = rng.integers(0, 6, 10)
    for need in (1, 5, 30):
        for n_sums in (0, 4, 10):
            for count in range(n_sums + 1):
                total = sum_of_largest(sums, n_sums, count, need)
                assert min(total, need) == min(plain_sum_of_largest(sums, n_sums, count), need)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("penalty", [0.0, 0.05, np.inf])
def test_a_search_finds_the_cheapest_of_all_subsets(seed: int, penalty: float) -> None:
    local = small_problem(seed, n_classes=6, n_forbidden=seed % 4).local
    for need in (1, 4, 9, int(local.weight.sum())):
        cap = 3.0
        found = searched(local, need, cap, penalty, most_nodes=10_000)
        best_cost, people = plain_cheapest(local, need, cap, penalty)
        assert found.status == DONE
        assert found.stack.best_cost[0] == pytest.approx(best_cost, abs=2 * TOLERANCE)
        assert (found.stack.counter[BEST_WEIGHT] >= need) == (people >= need)
        spanning = found.best[: found.stack.counter[BEST_SIZE]].tolist()
        if people:
            assert plain_fined_cost(local, spanning, penalty) == pytest.approx(best_cost)


@pytest.mark.parametrize("seed", SEEDS)
def test_bounds_of_a_paused_search_hold(seed: int) -> None:
    local = small_problem(seed, n_classes=6).local
    need = 2 + seed % 6
    cheapest, _ = plain_cheapest(local, need, 3.0, np.inf)
    for most_nodes in range(6):
        found = searched(local, need, 3.0, np.inf, most_nodes)
        bound = branch_and_bound.open_bound(local, found.stack, need)
        assert bound == pytest.approx(plain_open_bound(local, found.stack, need))
        assert bound <= cheapest + 2 * TOLERANCE
        assert found.stack.counter[NODES] <= most_nodes
        assert found.status == (DONE if found.stack.counter[DEPTH] < 0 else PAUSED)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_hopeless_has_no_completion(seed: int) -> None:
    local = small_problem(seed, n_classes=7).local
    forbidden = list(range(local.n_classes, len(local.weight) - 1))
    n_settled = 0
    for need in (1, 3, 6, int(local.weight.sum()), int(local.weight.sum()) + 1):
        cheapest, _ = plain_cheapest(local, need, 3.0, np.inf)
        for limit in (0.2, 0.4, 0.8, 1.5):
            hull, stack = branch_and_bound.begin(local, need, 3.0, np.inf, 0)
            if stack.counter[DEPTH] < 0:
                continue
            candidates = stack.candidate[: stack.last[0]].tolist()
            missing = need - int(stack.held[0])
            plain = plain_completion_bound(local, [], candidates, forbidden, missing, limit)
            bound = completion_bound(local, hull, stack, 0, missing, limit)
            assert bound == pytest.approx(plain)
            assert cheapest >= bound - TOLERANCE or bound == np.inf
            if hopeless(local, hull, stack, 0, missing, limit):
                n_settled += 1
                assert cheapest >= limit - TOLERANCE
    assert n_settled > 0


class Searched(NamedTuple):
    """A search that is done or has spent its nodes."""

    status: int
    stack: Any
    best: np.ndarray


def searched(
    local: LocalProblem, need: int, cap: float, penalty: float, most_nodes: int
) -> Searched:
    """Run a search until it is done or has spent its nodes; give it more room when it asks."""
    hull, stack = branch_and_bound.begin(local, need, cap, penalty, 0)
    best = np.empty(hull.low.shape[0], np.int64)
    status = FULL
    while status in (FULL, SHALLOW):
        status = branch_and_bound.explore(
            local, hull, stack, need, penalty, most_nodes, False, best
        )
        if status in (FULL, SHALLOW):
            hull, stack, best = branch_and_bound.roomier(hull, stack, best)
    return Searched(status, stack, best)
