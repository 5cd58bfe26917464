"""Regions: membership, text, JSON, hashing."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.data.region import (
    Interval,
    Region,
    json_value,
    part_contains,
    part_from_dict,
    part_to_dict,
    part_to_text,
)
from cfk_plugin.errors import InputError

MISSING = [None, np.nan, np.float32("nan"), pd.NA, pd.NaT, Decimal("NaN")]


@pytest.mark.parametrize("value", MISSING)
def test_every_kind_of_missing(value):
    assert value in Interval(1, 2, missing=True)
    assert value not in Interval(1, 2)
    assert part_contains(frozenset({"a", None}), value)
    assert not part_contains(frozenset({"a"}), value)
    assert json_value(value) is None


@pytest.mark.parametrize("value", [24, 24.0, np.int8(24), np.float32(24), "24"])
def test_contains_reads_any_dtype(value):
    assert part_contains(frozenset({24, "x"}), value)
    assert part_contains(Interval("24", "30", levels=("24", "30")), value)
    if not isinstance(value, str):
        assert value in Interval(24, 24)


def test_only_missing_inside():
    part = Interval(None, None, missing=True)
    assert 3 not in part
    assert part.is_single
    assert str(part) == "missing"
    assert not Interval(1, 1, missing=True).is_single


def test_equal_regions_have_equal_hashes():
    a = Region({"x": Interval(1, 2), "y": frozenset({"b", "a"})})
    b = Region({"y": frozenset({"a", "b"}), "x": Interval(1.0, 2.0)})
    assert a == b
    assert hash(a) == hash(b)


def test_a_region_cannot_be_changed_through_what_it_was_built_from():
    parts = {"x": Interval(1, 2)}
    region = Region(parts)
    parts["x"] = Interval(0, 9)
    assert region["x"] == Interval(1, 2)


@pytest.mark.parametrize("part", [frozenset(), {1}, "a"])
def test_unfit_parts(part):
    with pytest.raises(InputError, match="'x'"):
        Region({"x": part})


@pytest.mark.parametrize(
    "part",
    [
        Interval(1, 2.5),
        Interval(None, None, missing=True),
        Interval("a", "b", levels=("a", "b")),
        frozenset({"a", None}),
    ],
)
def test_json_round_trip(part):
    assert part_from_dict(json.loads(json.dumps(part_to_dict(part)))) == part


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.bool_(True), True),
        (pd.Timestamp("2020-01-02"), "2020-01-02T00:00:00"),
        (dt.date(2020, 1, 2), "2020-01-02"),
        (Decimal("1.5"), 1.5),
    ],
)
def test_json_values(value, expected):
    assert json_value(value) == expected
    json.dumps(json_value(value))


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (Interval(24, 27), "24–27"),
        (Interval(24.0, 24.0), "24"),
        (frozenset({"b", "a"}), "{a, b}"),
        (frozenset({"a"}), "a"),
        (frozenset({"a", None}), "{a, missing}"),
        (Interval(1, 2, missing=True), "1–2 or missing"),
    ],
)
def test_text(part, text):
    assert part_to_text(part) == text
