"""NCP of every kind of attribute, discernibility, classification metric."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import metrics
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import InputError


@pytest.fixture
def population():
    frame = pd.DataFrame(
        {
            "age": [20.0, 30.0, 60.0, np.nan],
            "level": ["low", "high", "low", "low"],
            "city": ["A", "B", "C", None],
            "zip": ["1", "2", "3", "4"],
            "same": [1, 1, 1, 1],
            "day": pd.to_datetime(["2020-01-01", "2020-01-11", "2020-04-10", "2020-01-01"]),
        }
    )
    tree = {"1": ["x"], "2": ["x"], "3": ["y"], "4": ["y"]}
    schema = Schema.from_frame(
        frame,
        quasi_identifiers=list(frame.columns),
        ordinal={"level": ["low", "mid", "high"]},
        hierarchies={"zip": tree},
        weights={"age": 5.0},
    )
    return Population.from_frame(frame, schema)


def region(**changes):
    parts = {
        "age": Interval(20, 20),
        "level": Interval("low", "low", levels=("low",)),
        "city": frozenset({"A"}),
        "zip": frozenset({"1"}),
        "same": Interval(1, 1),
        "day": Interval(pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-01")),
    }
    return Region({**parts, **changes})


def test_a_single_combination_costs_nothing(population):
    assert metrics.ncp(region(), population) == 0


@pytest.mark.parametrize(
    ("name", "part", "loss"),
    [
        ("age", Interval(20, 30), 0.25),
        ("age", Interval(10, 90), 1),
        ("age", Interval(20, 20, missing=True), 1),
        ("age", Interval(None, None, missing=True), 0),
        ("level", Interval("low", "mid", levels=("low", "mid")), 0.5),
        ("city", frozenset({"A", "B"}), 0.5),
        ("city", frozenset({"A", None}), 0.5),
        ("city", frozenset({None}), 0),
        ("zip", frozenset({"1", "2"}), 0.5),
        ("zip", frozenset({"2", "3"}), 1),
        ("same", Interval(0, 5), 0),
        ("day", Interval("2020-01-01", "2020-01-11T00:00:00"), 0.1),
    ],
)
def test_each_kind(population, name, part, loss):
    parts = metrics.ncp_by_attribute(region(**{name: part}), population)
    assert parts[name] == pytest.approx(loss)
    weight = 0.5 if name == "age" else 0.1
    assert metrics.ncp(region(**{name: part}), population) == pytest.approx(weight * loss)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("age", frozenset({20})),
        ("city", Interval("A", "B")),
        ("age", Interval(30, 20)),
        ("age", Interval("x", "y")),
        ("level", Interval("low", "best", levels=("low",))),
        ("zip", frozenset({"1", "9"})),
    ],
)
def test_unfit_parts_are_refused_by_name(population, name, part):
    with pytest.raises(InputError, match=name):
        metrics.ncp(region(**{name: part}), population)


def test_missing_part_is_refused(population):
    with pytest.raises(InputError, match="city"):
        metrics.ncp(Region({"age": Interval(20, 20)}), population)


def test_discernibility():
    assert metrics.discernibility([3, 10]) == 13
    assert metrics.discernibility([3, 10], n_suppressed=2, n_people=100) == 213
    assert metrics.discernibility([3, 10], n_suppressed=4, n_people=17, form="squared") == 109 + 68
    assert metrics.discernibility([]) == 0
    with pytest.raises(InputError, match="n_people"):
        metrics.discernibility([3], n_suppressed=1)
    for wrong in ({"class_sizes": [-1]}, {"class_sizes": [3], "n_suppressed": -1, "n_people": 9}):
        with pytest.raises(InputError, match=">= 0"):
            metrics.discernibility(**wrong)
    with pytest.raises(InputError, match="form"):
        metrics.discernibility([3], form="cubed")


def test_classification_metric_forgives_ties():
    assert metrics.classification_metric(["a", "a", "b"], [["a", "b"], ["a"], ["a", "a", "b"]]) == pytest.approx(1 / 3)
    assert metrics.classification_metric(np.array([1]), [np.array([1, 0, 0])]) == 1
    assert np.isnan(metrics.classification_metric([], []))
    with pytest.raises(InputError):
        metrics.classification_metric(["a"], [[]])
    with pytest.raises(InputError):
        metrics.classification_metric(["a"], [])
