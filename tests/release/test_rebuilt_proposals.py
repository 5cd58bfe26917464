"""Proposals of protectors are made again of the population's own values, or refused."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Interval, Population, Region, Schema
from cfk_plugin.hookspecs import Proposal
from cfk_plugin.release.rebuilt_proposals import rebuild

LEVELS = ("low", "mid", "high")
TABLE = pd.DataFrame(
    {
        "age": [20, 21, 20, 22, 23, 24, 30, 40],
        "city": ["A", "A", "A", "B", "B", "B", "A", None],
        "grade": np.array(["low", "low", "mid", "mid", "high", "high", "low", None], dtype=object),
        "since": pd.to_datetime(["2020-01-01", "2020-02-01"] * 4),
        "pay": range(8),
    }
)
SCHEMA = Schema.from_frame(
    TABLE, quasi_identifiers=["age", "city", "grade", "since"], ordinal={"grade": LEVELS}
)
CODES = Population.from_frame(TABLE, SCHEMA).row_codes
FIRST, LAST = pd.Timestamp("2020-01-01"), pd.Timestamp("2020-02-01")
WHOLE: dict[str, Any] = {
    "age": Interval(20, 40),
    "city": frozenset({"A", "B", None}),
    "grade": Interval("low", "high", True, LEVELS),
    "since": Interval(FIRST, LAST),
}


def whole(**changes: Any) -> Region:
    """Return the region of everyone, with some parts replaced behind the back of its checks."""
    region = Region(WHOLE)
    object.__setattr__(region, "parts", {**WHOLE, **changes})
    return region


def test_claims_are_made_anew() -> None:
    """A claim that is not a figure is dropped; what is not a proposal is refused."""
    proposal: Any = rebuild(Proposal(whole(), optimal=True, gap=np.float64(0.5)), CODES)
    assert proposal == Proposal(Region(WHOLE), True, 0.5)
    assert type(proposal.gap) is float
    assert rebuild(Proposal(None), CODES) == Proposal(None)
    assert rebuild(Proposal(whole(), optimal=1), CODES) == Proposal(Region(WHOLE))  # type: ignore[arg-type]
    for other in (Proposal(whole(), gap="much"), "no proposal"):  # type: ignore[arg-type]
        assert rebuild(other, CODES) is None  # type: ignore[arg-type]


SPELLINGS: list[tuple[str, Any, Any]] = [
    ("age", Interval(np.int64(20), 23.0), Interval(20, 23)),
    ("age", Interval(20.5, 1e6), Interval(20.5, 1000000)),
    ("age", Interval(None, None), Interval(None, None)),
    ("age", Interval(20, 23, missing=True), Interval(20, 23)),  # no age is missing
    ("city", frozenset({None}), frozenset({None})),
    (
        "grade",
        Interval("x", "y", False, ("mid", "high")),
        Interval("mid", "high", False, ("mid", "high")),
    ),
    ("grade", Interval(None, None, True, ()), Interval(None, None, True, ())),
    ("since", Interval(date(2020, 1, 1), LAST), Interval(FIRST, LAST)),
]


@pytest.mark.parametrize(("name", "part", "expected"), SPELLINGS, ids=str)
def test_parts_have_the_populations_spelling(name: str, part: Any, expected: Any) -> None:
    """Numbers, dates and levels are the population's own objects."""
    proposal: Any = rebuild(Proposal(whole(**{name: part})), CODES)
    rebuilt = proposal.region[name]
    assert rebuilt == expected
    if isinstance(expected, Interval):
        assert type(rebuilt.low) is type(expected.low)
        assert rebuilt.levels == expected.levels


NO_PARTS: dict[str, list[Any]] = {
    "age": [
        None,
        frozenset({20, 21}),
        Interval(20, None),
        Interval("20", 40),
        Interval(True, 40),
        Interval(20, 40, levels=("low",)),
        Interval(20, float("inf")),
        type("OtherInterval", (Interval,), {})(20, 40),
    ],
    "city": [
        Interval("A", "B"),
        frozenset({"A", "C"}),
        frozenset(),
        type("OtherSet", (frozenset,), {})({"A"}),
    ],
    "grade": [
        Interval("low", "high"),
        Interval("low", "top", levels=("high", "top")),
        Interval("low", "high", levels=("low", "high")),
        Interval("low", "high", levels=("mid", "low")),
        Interval("low", "high", levels=type("OtherTuple", (tuple,), {})(("low", "mid"))),
    ],
}


@pytest.mark.parametrize("name", NO_PARTS)
def test_other_parts_are_not_rebuilt(name: str) -> None:
    """Subclasses could answer differently each time."""
    for part in NO_PARTS[name]:
        assert rebuild(Proposal(whole(**{name: part})), CODES) is None


def test_other_regions_are_not_rebuilt() -> None:
    """A region is over the quasi-identifiers, all of them and no others."""
    missing = {name: part for name, part in WHOLE.items() if name != "age"}
    other = Region(WHOLE)
    object.__setattr__(other, "parts", type("OtherDict", (dict,), {})(WHOLE))
    regions: list[Any] = [
        Region(missing),
        Region({**WHOLE, "pay": Interval(0, 9)}),
        Region({**missing, "pay": Interval(0, 9)}),
        type("OtherRegion", (Region,), {})(WHOLE),
        other,
        WHOLE,
    ]
    for region in regions:
        assert rebuild(Proposal(region), CODES) is None
