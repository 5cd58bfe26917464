"""Values in regions and in JSON, whatever their dtype."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Interval, Population, Region, Schema
from cfk_plugin.data.region import json_value, part_from_dict, part_to_text, to_number
from cfk_plugin.data.values import conform, to_numbers
from cfk_plugin.errors import InputError


@pytest.mark.parametrize("unit", ["s", "ns"])
@pytest.mark.parametrize("moment", ["1900-01-01", "2024-02-29T12:00:00.1234567+02:00"])
def test_moment_equals_its_column(moment: str, unit: Any) -> None:
    """A moment is the same number alone as in a column."""
    stamp = pd.Timestamp(moment).as_unit(unit)
    assert to_number(stamp) == to_numbers(pd.Series([stamp]))[0][0]


SECONDS = pd.date_range("2020-01-01", periods=3, freq="s")
FRACTIONS = np.linspace(0.1, 0.9, 9)


@pytest.mark.parametrize(
    ("values", "part", "inside"),
    [
        (10**9 + np.arange(3), Interval(10**9 + 1, 10**9 + 1), [1]),
        (SECONDS, Interval(SECONDS[1], SECONDS[1]), [1]),
        (SECONDS, Interval(SECONDS[1].isoformat(), SECONDS[2].isoformat()), [1, 2]),
        (FRACTIONS, Interval(FRACTIONS[2], FRACTIONS[6]), [2, 3, 4, 5, 6]),
        # the seventh is 0.7000000000000001: read literally, outside
        (FRACTIONS, Interval(0.3, 0.7), [2, 3, 4, 5]),
    ],
)
def test_range_contains_its_ends(values: Any, part: Interval, inside: list[int]) -> None:
    """No one just outside is a member."""
    frame = pd.DataFrame({"x": values})
    population = Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["x"]))
    assert population.members(Region({"x": part})).tolist() == inside


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([200, 1], np.dtype("int8")),
        ([-1, 1], np.dtype("uint8")),
        ([0.5, 1.0], np.dtype("int64")),
        ([-(2**63) - 1, 1], np.dtype("int64")),
        ([2**63, 1], np.dtype("int64")),
        (["yes", "True"], np.dtype("bool")),
        ([None, True], np.dtype("bool")),
        (["a", "z"], pd.CategoricalDtype(["a", "b"])),
    ],
)
def test_conform_changes_no_value(values: Any, dtype: Any) -> None:
    """What does not fit a dtype stays as it is."""
    cast = conform(pd.Series(values, dtype=object), dtype)
    assert cast.astype(object).tolist() == values


@pytest.mark.parametrize("value", [None, np.nan, np.float32("nan"), pd.NA, pd.NaT, Decimal("NaN")])
def test_missing_value_has_many_kinds(value: Any) -> None:
    """Each of them is inside a part that has a missing value, and inside no other."""
    assert value in Interval(1, 2, missing=True)
    assert value not in Interval(1, 2)
    assert Region({"x": frozenset({"a", None})}).contains({"x": value})
    assert not Region({"x": frozenset({"a"})}).contains({"x": value})
    assert json_value(value) is None


@pytest.mark.parametrize("value", [24, 24.0, np.int8(24), np.float32(24), "24"])
def test_region_contains_any_dtype(value: Any) -> None:
    """A number is a number, a category and a level in any spelling."""
    assert Region({"x": frozenset({24, "x"})}).contains({"x": value})
    assert Region({"x": Interval("24", "30", levels=("24", "30"))}).contains({"x": value})
    assert Region({"x": Interval(24, 24)}).contains({"x": value})


def test_interval_may_have_no_numbers() -> None:
    """Only people without the value are inside."""
    part = Interval(None, None, missing=True)
    assert 3 not in part
    assert part.is_single
    assert not Interval(1, 1, missing=True).is_single


def test_regions_compare_by_parts() -> None:
    """A region does not change with the mapping that it was made of."""
    parts: dict[str, Any] = {"x": Interval(1, 2), "y": frozenset({"b", "a"})}
    region = Region(parts)
    same = Region({"y": frozenset({"a", "b"}), "x": Interval(1.0, 2.0)})
    parts["x"] = Interval(0, 9)
    assert region == same
    assert hash(region) == hash(same)


@pytest.mark.parametrize("part", [frozenset(), {1}, "a"])
def test_unfit_part_is_refused(part: Any) -> None:
    """The error names the column."""
    with pytest.raises(InputError, match="'x'"):
        Region({"x": part})


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (Interval(1, 2.5), "1–2.5"),
        (Interval(24.0, 24.0), "24"),
        (Interval(1, 2, missing=True), "1–2 or missing"),
        (Interval(None, None, missing=True), "missing"),
        (Interval("a", "b", levels=("a", "b")), "a–b"),
        (frozenset({"b", "a"}), "{a, b}"),
        (frozenset({"a"}), "a"),
        (frozenset({"a", None}), "{a, missing}"),
    ],
)
def test_part_survives_json(part: Any, text: str) -> None:
    """A part is written as text for people and as JSON for programs."""
    assert part_to_text(part) == text
    assert part_from_dict(json.loads(json.dumps(Region({"x": part}).to_dict()))["x"]) == part


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.bool_(True), True),
        (pd.Timestamp("2020-01-02"), "2020-01-02"),
        (pd.Timestamp("2020-01-02 10:00"), "2020-01-02T10:00:00"),
        (dt.date(2020, 1, 2), "2020-01-02"),
        (Decimal("1.5"), 1.5),
    ],
)
def test_json_has_plain_values(value: Any, expected: Any) -> None:
    """Numbers, truths and texts."""
    assert json_value(value) == expected
    assert type(json_value(value)) is type(expected)
