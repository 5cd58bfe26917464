"""The index finds what a scan of all cells finds; the solver at the edges of its domain."""

from __future__ import annotations

import numpy as np
import pytest

from cfk_plugin.protection.axes import Axis, AxisArrays, CellIndex, ball, nearest
from cfk_plugin.protection.solver import solve
from reference import hull_cost


def mixed_axes():
    tree = Axis.tree([0, 0, 0, 1, 2, 3, 2], [3, 1, 0, 1, 2, 3, 3], [-1, 0, 1, 1, 6, 6, 0], 0.2)
    return AxisArrays.of(
        [
            Axis.interval(np.linspace(0, 0.3, 20), 0.3, missing=True),
            Axis.nominal(200, 0.2),
            tree,
            Axis.interval(np.linspace(0, 0.3, 9), 0.3),
        ]
    )


def mixed_index(rows=3000, seed=0):
    rng = np.random.default_rng(seed)
    axes = mixed_axes()
    sample = rng.integers(0, np.diff(axes.offset), (rows, axes.kind.size)).astype(np.int32)
    codes, weight = np.unique(sample, axis=0, return_counts=True)
    return CellIndex.build(codes, weight, axes), codes, weight


def scanned_costs(axes, codes, anchor, place):
    return np.array([hull_cost(axes, row[None], anchor, place) for row in codes])


@pytest.mark.parametrize("seed", range(6))
def test_ball_and_nearest_equal_a_scan(seed):
    index, codes, weight = mixed_index(seed=seed)
    anchor = codes[seed * 17].copy()
    place = index.axes.position[index.axes.offset[:-1] + anchor]
    if seed % 2:
        anchor[0], place[0] = -1, 0.4
    elif seed == 2:
        anchor[0], place[0] = 20, 0.0
    cost = scanned_costs(index.axes, codes, anchor, place)
    arrays = index.axes
    for limit in (0.0, 0.05, 0.2, 0.6, 2.0):
        found = index.original[ball(index.tree, arrays, anchor, place, limit)]
        assert sorted(found) == np.flatnonzero(cost < limit).tolist()
    for people in (1, 10, 300):
        found, radius = nearest(index.tree, arrays, anchor, place, people)
        chosen = index.original[found]
        assert weight[chosen].sum() >= people
        assert weight[cost < radius].sum() < people
        assert cost[chosen].max() == pytest.approx(radius)


def test_tree_order_is_a_permutation_and_boxes_hold_their_cells():
    index, codes, weight = mixed_index()
    tree = index.tree
    assert sorted(index.original) == list(range(len(codes)))
    np.testing.assert_array_equal(tree.codes, codes[index.original])
    np.testing.assert_array_equal(tree.weight, weight[index.original])
    for t in range(tree.start.size):
        rows = tree.codes[tree.start[t] : tree.stop[t]]
        np.testing.assert_array_equal(rows.min(axis=0), tree.low[t])
        np.testing.assert_array_equal(rows.max(axis=0), tree.high[t])


def test_what_lies_outside_the_index_is_refused():
    index, codes, _ = mixed_index(100)
    with pytest.raises(ValueError, match="code lies outside"):
        solve(index, np.array([[0, -1, 0, 0]]), np.zeros((1, 4)), 3)
    with pytest.raises(ValueError, match="code lies outside"):
        solve(index, codes[:1], np.zeros((1, 4)), 3, forbidden=[np.array([[0, 0, 0, 99]])])
    with pytest.raises(ValueError, match="finite"):
        solve(index, np.array([[-1, 0, 0, 0]]), np.full((1, 4), np.nan), 3)


def test_the_whole_population_and_one_more():
    index, codes, weight = mixed_index(60)
    everyone = int(weight.sum())
    whole = solve(index, codes[:3], np.zeros((3, 4)), everyone)
    assert all(found.proven and found.weight == everyone for found in whole)
    beyond = solve(index, codes[:3], np.zeros((3, 4)), everyone + 1)
    assert all(found.proven and found.weight == 0 and np.isinf(found.lower_bound) for found in beyond)


def test_an_empty_population_is_infeasible():
    index = CellIndex.build(np.empty((0, 4), np.int32), np.empty(0, np.int64), mixed_axes())
    (answer,) = solve(index, np.zeros((1, 4), np.int32), np.zeros((1, 4)), 1)
    assert answer.proven
    assert answer.weight == 0


def test_a_forbidden_anchor_is_infeasible_or_pays():
    index, codes, _ = mixed_index()
    banned = [codes[:1]]
    assert not solve(index, codes[:1], np.zeros((1, 4)), 5, banned)[0].weight
    (free,) = solve(index, codes[:1], np.zeros((1, 4)), 5)
    (paid,) = solve(index, codes[:1], np.zeros((1, 4)), 5, banned, penalty=0.25)
    assert paid.cost == pytest.approx(free.cost + 0.25)


def test_a_hundred_thousand_categories():
    rng = np.random.default_rng(1)
    axes = AxisArrays.of([Axis.nominal(100_000, 0.5), Axis.interval(np.linspace(0, 0.5, 50), 0.5)])
    rows = np.column_stack([rng.integers(0, 100_000, 20_000), rng.integers(0, 50, 20_000)])
    codes, weight = np.unique(rows, axis=0, return_counts=True)
    index = CellIndex.build(codes, weight, axes)
    answer = solve(index, codes[:20], np.zeros((20, 2)), 10)
    assert all(found.proven for found in answer)
    # Ten values of the category cost 0.5 * 10 / 100000, the least that ten single people can cost.
    assert max(found.cost for found in answer) <= 0.5 * 10 / 100_000 + 1e-12
