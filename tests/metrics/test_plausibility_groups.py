"""Plausibility and group gaps."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import InputError
from cfk_plugin.metrics import POOLED, group_gap, plausibility, region_plausibility


@pytest.fixture
def population():
    frame = pd.DataFrame({"a": [0, 1, 2, 3, 4, 10], "c": list("xxxxxy")})
    return Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["a"]))


def test_native_rows_are_at_distance_0(population):
    found = plausibility(population.frame[["c", "a"]].astype(object), population)
    assert (found.nearest, found.n) == (0, 6)
    assert found.nearest_5 > 0


def test_one_row_by_hand(population):
    found = plausibility(pd.DataFrame({"c": ["x"], "a": [0], "label": [1]}), population)
    assert found.nearest_5 == pytest.approx(np.mean([0, 0.05, 0.1, 0.15, 0.2]))


def test_region(population):
    row = pd.DataFrame({"a": [1.0], "c": ["x"]})
    found = region_plausibility(Region({"a": Interval(0, 4)}), row, population, random_state=0)
    assert (found.nearest, found.n) == (0, 5)
    far = region_plausibility(Region({"a": Interval(10, 10)}), row, population)
    assert far.nearest == pytest.approx(0.3)


def test_edges(population):
    assert np.isnan(plausibility(population.frame.head(0), population).nearest)
    with pytest.raises(InputError, match="lack a"):
        plausibility(pd.DataFrame({"c": ["x"]}), population)
    with pytest.raises(InputError):
        region_plausibility(Region({"a": Interval(0, 4)}), population.frame, population)


def test_gap_of_two_groups():
    values = np.r_[np.ones(50), np.zeros(50)]
    a, b = group_gap(values, ["a"] * 50 + ["b"] * 50)
    assert (a.group, a.n, a.mean, a.rest, a.gap) == ("a", 50, 1, 0, 1)
    assert (b.low, b.gap, b.high) == (-1, -1, -1)


def test_small_groups_are_pooled_and_never_named():
    rng = np.random.default_rng(0)
    groups = ["big"] * 40 + ["tiny"] * 6 + ["mini"] * 6 + [None] * 3
    found = group_gap(rng.random(55), groups)
    assert [g.group for g in found] == ["big", POOLED]
    assert found[1].n == 15
    assert [g.group for g in group_gap(rng.random(45), groups[:45])] == ["big"]


def test_interval_covers_no_difference_and_is_seeded():
    rng = np.random.default_rng(3)
    values, groups = rng.random(200), rng.integers(0, 2, 200)
    found = group_gap(values, groups)
    assert found == group_gap(values, groups)
    assert all(g.low < g.gap < g.high for g in found)
    assert all(g.low < 0 < g.high for g in found)


def test_nan_is_left_out_and_a_single_group_has_no_rest():
    (only,) = group_gap([1.0] * 12 + [np.nan] * 3, ["a"] * 15)
    assert only.n == 12
    assert np.isnan(only.gap)
    with pytest.raises(InputError):
        group_gap([1.0], ["a", "b"])
