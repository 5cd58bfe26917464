"""The index finds what a scan of all cells finds: small tables, and least regions, would not show
what it overlooks.
"""

from __future__ import annotations

import numpy as np
import pytest

from cfk_plugin.protection.axes import Axis, AxisArrays, plain_hull_cost
from cfk_plugin.protection.class_index import ClassIndex, ball, nearest


def mixed_axes() -> AxisArrays:
    tree = Axis.tree([0, 0, 0, 1, 2, 3, 2], [3, 1, 0, 1, 2, 3, 3], [-1, 0, 1, 1, 6, 6, 0], 0.2)
    ages, days = (
        Axis.interval(np.linspace(0, 0.3, n), 0.3, missing=gaps)
        for n, gaps in ((20, True), (9, False))
    )
    return AxisArrays.of([ages, Axis.nominal(200, 0.2), tree, days])


@pytest.mark.parametrize("seed", range(6))
def test_ball_and_nearest_equal_a_scan(seed: int) -> None:
    axes, rng = mixed_axes(), np.random.default_rng(seed)
    sample = rng.integers(0, np.diff(axes.offset), (3000, axes.kind.size)).astype(np.int32)
    codes, weight = np.unique(sample, axis=0, return_counts=True)
    index = ClassIndex.build(codes, weight, axes)
    anchor = codes[seed * 17].copy()
    place = axes.position[axes.offset[:-1] + anchor]
    if seed % 2:
        anchor[0], place[0] = -1, 0.4  # a number of its own
    elif seed == 2:
        anchor[0], place[0] = 20, 0.0  # missing
    cost = np.array([plain_hull_cost(axes, row[None], anchor, place) for row in codes])
    for limit in (0.0, 0.05, 0.2, 0.6, 2.0):
        found = index.original[ball(index.tree, axes, anchor, place, limit)]
        assert sorted(found) == np.flatnonzero(cost < limit).tolist()
    for people in (1, 10, 300):
        found, radius = nearest(index.tree, axes, anchor, place, people)
        chosen = index.original[found]
        assert weight[chosen].sum() >= people > weight[cost < radius].sum()
        assert cost[chosen].max() == pytest.approx(radius)
