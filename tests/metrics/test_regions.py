"""What a region loses and what it holds: NCP, pureness, plausibility, and penalties over many
releases.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Attribute, Interval, Population, Region, Schema, metrics
from cfk_plugin.errors import InputError, ModelError
from cfk_plugin.metrics import pureness


@pytest.fixture(scope="module")
def mixed() -> Population:
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
    schema = Schema.from_frame(
        frame,
        quasi_identifiers=list(frame.columns),
        ordinal={"level": ["low", "mid", "high"]},
        columns={
            "zip": Attribute(hierarchy={"1": ["x"], "2": ["x"], "3": ["y"], "4": ["y"]}),
            "age": Attribute(weight=5.0),
        },
    )
    return Population.from_frame(frame, schema)


FIRST = {
    "age": Interval(20, 20),
    "level": Interval("low", "low", levels=("low",)),
    "city": frozenset({"A"}),
    "zip": frozenset({"1"}),
    "same": Interval(1, 1),
    "day": Interval(pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-01")),
}


@pytest.mark.parametrize(
    ("name", "part", "loss"),
    [
        ("age", Interval(20, 20), 0),
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
def test_ncp_of_each_kind(mixed: Population, name: str, part: Any, loss: float) -> None:
    region = Region({**FIRST, name: part})
    assert metrics.ncp_by_attribute(region, mixed)[name] == pytest.approx(loss)
    assert metrics.ncp(region, mixed) == pytest.approx((0.5 if name == "age" else 0.1) * loss)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("age", frozenset({20})),
        ("city", Interval("A", "B")),
        ("age", Interval(30, 20)),
        ("age", Interval("x", "y")),
        ("level", Interval("low", "best", levels=("low",))),
        ("zip", frozenset({"1", "9"})),
        ("city", None),
    ],
)
def test_parts_that_do_not_fit_are_refused_by_name(mixed: Population, name: str, part: Any) -> None:
    parts = {**FIRST, name: part}
    with pytest.raises(InputError, match=name):
        metrics.ncp(Region({n: p for n, p in parts.items() if p is not None}), mixed)


def test_discernibility() -> None:
    assert metrics.discernibility([3, 10]) == 13
    assert metrics.discernibility([3, 10], n_withheld=2, n_people=100) == 213
    assert metrics.discernibility([3, 10], n_withheld=4, n_people=17, form="squared") == 109 + 68
    assert metrics.discernibility([]) == 0
    for wrong in (
        {"n_withheld": 1},
        {"class_sizes": [-1]},
        {"n_withheld": -1, "n_people": 9},
        {"form": "cubed"},
    ):
        with pytest.raises(InputError, match=r"n_people|>= 0|form"):
            metrics.discernibility(**{"class_sizes": [3], **wrong})


def test_classification_metric_forgives_ties() -> None:
    assert metrics.classification_metric(
        ["a", "a", "b"], [["a", "b"], ["a"], ["a", "a", "b"]]
    ) == pytest.approx(1 / 3)
    assert metrics.classification_metric(np.array([1]), [np.array([1, 0, 0])]) == 1
    assert np.isnan(metrics.classification_metric([], []))
    for classes in ([[]], []):
        with pytest.raises(InputError):
            metrics.classification_metric(["a"], classes)


@pytest.fixture(scope="module")
def grid() -> Population:
    frame = pd.DataFrame({"a": np.arange(200), "b": np.arange(200) * 2, "s": np.arange(200) % 3})
    return Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["a", "b"]))


def low(rows: pd.DataFrame) -> np.ndarray:
    return rows["a"].to_numpy() < 50


WHOLE = Region({"a": Interval(0, 199), "b": Interval(0, 398)})
ROW = {"a": 3, "b": 6, "s": 0}


def test_pureness_is_exact_within_the_budget(grid: Population) -> None:
    small = Region({"a": Interval(0, 99), "b": Interval(0, 2)})
    assert pureness(small, ROW, grid, low, True).value == 0.5
    assert pureness(small, ROW, grid, low, True, cell_budget=10, n=50).exact is False
    exact = pureness(WHOLE, pd.Series(ROW), grid, low, True, method="exact")
    assert exact == metrics.Pureness(0.25, 0.25, 0.25, True, 40_000)


def test_sampled_pureness_is_seeded_and_its_interval_covers(grid: Population) -> None:
    one, again = (pureness(WHOLE, ROW, grid, low, True, random_state=4) for _ in range(2))
    assert one == again
    assert (one.exact, one.n) == (False, 1000)
    found = [
        pureness(WHOLE, ROW, grid, low, True, method="sample", n=100, random_state=i)
        for i in range(100)
    ]
    assert sum(p.low <= 0.25 <= p.high for p in found) >= 93


def test_a_number_that_nobody_has_belongs_to_the_grid(grid: Population) -> None:
    between = Region({"a": Interval(49, 50), "b": Interval(6, 6)})
    result = pureness(between, {"a": 49.5, "b": 6, "s": 0}, grid, low, True)
    assert (result.n, result.value) == (3, pytest.approx(2 / 3))


def test_pureness_takes_a_function_for_the_goal_and_refuses_what_it_cannot_measure(
    grid: Population,
) -> None:
    region = Region({"a": Interval(3, 3), "b": Interval(6, 6)})
    assert pureness(region, ROW, grid, lambda r: r["a"] * 1.0, lambda y: y > 2).value == 1
    with pytest.raises(InputError, match="opposite"):
        pureness(region, ROW, grid, low, "opposite")
    with pytest.raises(InputError, match="lacks s"):
        pureness(region, {"a": 3, "b": 6}, grid, low, True)
    with pytest.raises(InputError, match="at least 1"):
        pureness(region, ROW, grid, low, True, n=0)
    with pytest.raises(InputError, match="no value combination"):
        pureness(Region({"a": Interval(900, 901), "b": Interval(6, 6)}), ROW, grid, low, True)


def test_a_failing_model_does_not_quote_rows(grid: Population) -> None:
    def bad(rows: pd.DataFrame) -> None:
        raise ValueError(f"value {rows['s'].iloc[0]} 424242")

    with pytest.raises(ModelError) as error:
        pureness(WHOLE, ROW, grid, bad, True)
    assert "424242" not in str(error.value)


@pytest.fixture(scope="module")
def six() -> Population:
    frame = pd.DataFrame({"a": [0, 1, 2, 3, 4, 10], "c": list("xxxxxy")})
    return Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["a"]))


def test_plausibility_is_the_distance_to_training_rows(six: Population) -> None:
    native = metrics.plausibility(six.frame[["c", "a"]].astype(object), six)
    assert (native.nearest, native.n) == (0, 6)
    one = metrics.plausibility(pd.DataFrame({"c": ["x"], "a": [0], "label": [1]}), six)
    assert one.nearest_5 == pytest.approx(np.mean([0, 0.05, 0.1, 0.15, 0.2]))
    assert np.isnan(metrics.plausibility(six.frame.head(0), six).nearest)
    with pytest.raises(InputError, match="lack a"):
        metrics.plausibility(pd.DataFrame({"c": ["x"]}), six)


def test_plausibility_of_a_region_is_that_of_its_combinations(six: Population) -> None:
    row = pd.DataFrame({"a": [1.0], "c": ["x"]})
    found = metrics.region_plausibility(Region({"a": Interval(0, 4)}), row, six, random_state=0)
    assert (found.nearest, found.n) == (0, 5)
    far = metrics.region_plausibility(Region({"a": Interval(10, 10)}), row, six)
    assert far.nearest == pytest.approx(0.3)
    with pytest.raises(InputError, match="one row"):
        metrics.region_plausibility(Region({"a": Interval(0, 4)}), six.frame, six)
