"""Pureness: exact, sampled, and the counterfactual's own number."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import InputError, ModelError
from cfk_plugin.metrics import pureness


@pytest.fixture
def population():
    frame = pd.DataFrame({"a": np.arange(200), "b": np.arange(200) * 2, "s": np.arange(200) % 3})
    return Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["a", "b"]))


def low(rows):
    return rows["a"].to_numpy() < 50


WHOLE = Region({"a": Interval(0, 199), "b": Interval(0, 398)})
ROW = {"a": 3, "b": 6, "s": 0}


def test_auto_is_exact_within_the_budget(population):
    small = Region({"a": Interval(0, 99), "b": Interval(0, 2)})
    assert pureness(small, ROW, population, low, True).value == 0.5
    assert pureness(small, ROW, population, low, True, cell_budget=10, n=50).exact is False


def test_sampled_interval_covers_and_is_seeded(population):
    a, b = (pureness(WHOLE, ROW, population, low, True, random_state=4) for _ in range(2))
    assert a == b
    assert (a.exact, a.n) == (False, 1000)
    assert a.low < 0.25 < a.high
    exact = pureness(WHOLE, pd.Series(ROW), population, low, True, method="exact")
    assert (exact.value, exact.low, exact.high, exact.n) == (0.25, 0.25, 0.25, 40_000)


def test_interval_coverage(population):
    found = [pureness(WHOLE, ROW, population, low, True, method="sample", n=100, random_state=i) for i in range(100)]
    assert sum(p.low <= 0.25 <= p.high for p in found) >= 93


def test_a_number_that_nobody_has_belongs_to_the_grid(population):
    between = Region({"a": Interval(49, 50), "b": Interval(6, 6)})
    result = pureness(between, {"a": 49.5, "b": 6, "s": 0}, population, low, True)
    assert (result.n, result.value) == (3, pytest.approx(2 / 3))


def test_callable_goal_and_wrong_settings(population):
    region = Region({"a": Interval(3, 3), "b": Interval(6, 6)})
    assert pureness(region, ROW, population, lambda r: r["a"] * 1.0, lambda y: y > 2).value == 1
    with pytest.raises(InputError, match="opposite"):
        pureness(region, ROW, population, low, "opposite")
    with pytest.raises(InputError, match="lacks s"):
        pureness(region, {"a": 3, "b": 6}, population, low, True)
    with pytest.raises(InputError):
        pureness(region, ROW, population, low, True, n=0)
    with pytest.raises(InputError):
        pureness(Region({"a": Interval(900, 901), "b": Interval(6, 6)}), ROW, population, low, True)


def test_a_failing_model_does_not_quote_rows(population):
    def bad(rows):
        raise ValueError(f"value {rows['s'].iloc[0]} 424242")

    with pytest.raises(ModelError) as error:
        pureness(WHOLE, ROW, population, bad, True)
    assert "424242" not in str(error.value)


def test_nothing_drawn_is_no_pureness(population):
    with pytest.raises(InputError, match="at least 1"):
        pureness(WHOLE, ROW, population, low, True, method="sample", n=0)
