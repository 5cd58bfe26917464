"""Regions as the ledger keeps them: equal after the round trip, and one text for equal ones."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfk_plugin import Interval, Population, Region, Schema
from cfk_plugin.data.region import Part
from cfk_plugin.errors import LedgerError
from cfk_plugin.records.rule import decode, encode, identity

PARTS: dict[str, Part] = {
    "numpy": Interval(np.int64(3), np.float64(4.1)),
    "large": Interval(2**60 + 1, 2**61 + 1),
    "missing alone": Interval(None, None, missing=True),
    "levels": Interval("low", "mid", levels=("low", "mid")),
    "timestamps": Interval(
        pd.Timestamp("2020-01-01"), pd.Timestamp("2021-12-31 23:59:59.123456789")
    ),
    "zone": Interval(
        pd.Timestamp("2020-01-01", tz="Europe/Brussels"), pd.Timestamp("2020-07-01", tz="UTC")
    ),
    "numpy dates": Interval(np.datetime64("2020-01-01"), np.datetime64("2021-01-01T12:30")),
    "text and number": frozenset({"3", 3}),
}


@pytest.mark.parametrize("name", PARTS)
def test_region_reads_back_equal(name: str) -> None:
    region = Region({"b": PARTS[name], "a": Interval(0, 1)})
    back = decode(encode(region))
    assert back == region
    assert list(back) == ["b", "a"]
    assert identity(back) == identity(region)


EQUAL: list[tuple[Part, Part]] = [
    (Interval(24, 27), Interval(24.0, np.int32(27))),
    (Interval(Decimal("1.5"), 2), Interval(1.5, Decimal("2.0"))),
    (frozenset({3, 4.0}), frozenset({3.0, 4})),
    (frozenset({True}), frozenset({1})),
    (Interval(0.0, 1), Interval(-0.0, 1)),
    (Interval(datetime(2020, 1, 1), 1), Interval(pd.Timestamp("2020-01-01"), 1)),  # noqa: DTZ001
    (
        frozenset({pd.Timestamp("2020-01-01 01:00", tz="Europe/Brussels")}),
        frozenset({pd.Timestamp("2020-01-01", tz="UTC")}),
    ),
]
DIFFERENT: list[tuple[Part, Part]] = [
    (Interval(24, 27), Interval(24, 27, missing=True)),
    (Interval(3, 3), frozenset({3})),
    (frozenset({"3"}), frozenset({3})),
    (frozenset({None}), frozenset({"None"})),
    (frozenset({"2020-01-01"}), frozenset({date(2020, 1, 1)})),
    (Interval(0.1, 1), Interval(0.1 + 1e-17 + 2e-17, 1)),
    (Interval("a", "b", levels=("a", "b")), Interval("a", "b")),
    (Interval(2**60, 2**61), Interval(2**60 + 1, 2**61)),
]


@pytest.mark.parametrize("same", [True, False])
def test_equal_regions_have_one_text_and_others_another(same: bool) -> None:
    for one, other in EQUAL if same else DIFFERENT:
        assert (Region({"a": one}) == Region({"a": other})) == same
        texts = {identity(Region({"a": one, "b": one})), identity(Region({"b": other, "a": other}))}
        assert (len(texts) == 1) == same, (one, other)


numbers = (
    st.integers()
    | st.floats(-1e300, 1e300)
    | st.decimals(allow_nan=False, allow_infinity=False, places=3)
)
scalars = st.one_of(numbers, st.text(), st.booleans(), st.none(), st.dates())
parts = st.one_of(
    st.frozensets(scalars, min_size=1, max_size=5),
    st.builds(Interval, numbers, numbers, st.booleans()),
)
regions = st.dictionaries(st.text(), parts, min_size=1, max_size=4).map(Region)


@settings(max_examples=50)
@given(regions, regions)
def test_any_region_reads_back_equal_and_its_text_is_equality(one: Region, other: Region) -> None:
    assert decode(encode(one)) == one
    assert (identity(one) == identity(other)) == (one == other)


def test_the_texts_are_those_that_ledgers_hold_already() -> None:
    """Another spelling would leave what is stored unread, or take what left already for something
    new.
    """
    region = Region(
        {
            "town": frozenset({"Zürich", 3.0, None}),
            "cost": Interval(Decimal("1.50"), 2, missing=True),
            "grade": Interval("low", "mid", levels=("low", "mid")),
            "since": Interval(
                date(2020, 1, 1), pd.Timestamp("2020-01-01 01:00", tz="Europe/Brussels")
            ),
        }
    )
    assert encode(region) == (
        '{"town": {"kind": "set", "values": ["Z\\u00fcrich", 3.0, null]}, '
        '"cost": {"kind": "interval", "low": {"decimal": "1.50"}, "high": 2, "missing": true}, '
        '"grade": {"kind": "interval", "low": "low", "high": "mid", "levels": ["low", "mid"]}, '
        '"since": {"kind": "interval", "low": {"date": "2020-01-01"}, "high": {"time": "2020-01-01T01:00:00+01:00"}}}'
    )
    assert identity(region) == (
        '{"cost":{"high":2,"kind":"interval","low":1.5,"missing":true},'
        '"grade":{"high":"mid","kind":"interval","levels":["low","mid"],"low":"low"},'
        '"since":{"high":{"time":"2020-01-01T00:00:00+00:00"},"kind":"interval","low":{"date":"2020-01-01"}},'
        '"town":{"kind":"set","values":["Z\\u00fcrich",3,null]}}'
    )


@pytest.mark.parametrize(
    "value", [("canary",), b"canary", pd.Interval(1, 2), float("inf"), 1 + 2j, Decimal("NaN")]
)
def test_what_would_not_read_back_is_refused_without_its_value(value: Any) -> None:
    with pytest.raises(LedgerError, match="cannot keep") as caught:
        encode(Region({"a": frozenset({value})}))
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


def test_damaged_text_is_refused_without_it() -> None:
    for text in (
        "canary",
        '{"a": "canary"}',
        '{"a": {"kind": "interval", "low": {"canary": "x"}, "high": 1}}',
    ):
        with pytest.raises(LedgerError, match="backup") as caught:
            decode(text)
        assert "canary" not in str(caught.value)
        assert caught.value.__context__ is None


def test_a_real_population_counts_the_same_after_the_round_trip() -> None:
    frame = pd.DataFrame(
        {
            "born": pd.date_range("1980-01-01", periods=60, freq="97D"),
            "zip": pd.Series([2000, 9000, None] * 20, dtype="Int64"),
            "member": [True, False] * 30,
        }
    )
    population = Population.from_frame(
        frame,
        Schema.from_frame(frame, quasi_identifiers=["born", "zip", "member"], nominal=["zip"]),
    )
    born = Interval(frame["born"].iloc[3], frame["born"].iloc[40])
    region = Region({"born": born, "zip": frozenset({9000, None}), "member": frozenset({True})})
    assert population.count(decode(encode(region))) == population.count(region) > 0
