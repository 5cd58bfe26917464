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

TABLE = pd.DataFrame(
    {
        "person": [0, 0, 1, 2, 3, 4, 5, 6],
        "age": [20, 21, 20, 22, 23, 24, 30, 40],
        "city": ["A", "A", "A", "B", "B", "B", "A", None],
        "pay": [1, 2, 1, 0, 3, 3, 2, 9],
        "job": ["x", "x", "y", "x", "y", "y", "x", "y"],
    }
)
ORDERED = TABLE.assign(
    grade=np.array(["low", "low", "mid", "mid", "high", "high", "low", None], dtype=object),
    since=pd.to_datetime(["2020-01-01", "2020-02-01"] * 4),
)
ORDERED_POPULATION = Population.from_frame(
    ORDERED,
    Schema.from_frame(
        ORDERED,
        quasi_identifiers=["age", "city", "grade", "since"],
        subject="person",
        ordinal={"grade": ["low", "mid", "high"]},
    ),
)
CODES = ORDERED_POPULATION.row_codes
WHOLE: dict[str, Any] = {
    "age": Interval(20, 40),
    "city": frozenset({"A", "B", None}),
    "grade": Interval("low", "high", True, ("low", "mid", "high")),
    "since": Interval(pd.Timestamp("2020-01-01"), pd.Timestamp("2020-02-01")),
}


def whole(**changes: Any) -> Region:
    made = Region(WHOLE)
    object.__setattr__(made, "parts", {**WHOLE, **changes})
    return made


def rebuilt(**changes: Any) -> Any:
    return rebuild(Proposal(whole(**changes)), CODES)


def test_a_proposal_is_made_anew() -> None:
    found = rebuild(Proposal(whole(), optimal=True, gap=np.float64(0.5)), CODES)
    assert found == Proposal(Region(WHOLE), True, 0.5)
    assert found is not None
    assert found.region is not None
    assert type(found.gap) is float
    assert list(found.region) == ["age", "city", "grade", "since"]
    assert rebuild(Proposal(None), CODES) == Proposal(None)
    assert rebuild(Proposal(whole(), optimal=1), CODES) == Proposal(Region(WHOLE))  # type: ignore[arg-type]
    assert rebuild(Proposal(whole(), gap="much"), CODES) is None  # type: ignore[arg-type]
    assert rebuild("no proposal", CODES) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ({"age": Interval(np.int64(20), 23.0)}, Interval(20, 23)),
        ({"age": Interval(20.5, 1e6)}, Interval(20.5, 1000000)),
        ({"age": Interval(None, None)}, Interval(None, None)),
        ({"age": Interval(20, 23, missing=True)}, Interval(20, 23)),  # no age is missing
        ({"city": frozenset({"B"})}, frozenset({"B"})),
        ({"city": frozenset({None})}, frozenset({None})),
        (
            {"grade": Interval("x", "y", False, ("mid", "high"))},
            Interval("mid", "high", False, ("mid", "high")),
        ),
        ({"grade": Interval("low", "low", True, ("low",))}, Interval("low", "low", True, ("low",))),
        ({"grade": Interval(None, None, True, ())}, Interval(None, None, True, ())),
        (
            {"since": Interval(date(2020, 1, 1), pd.Timestamp("2020-01-05"))},
            Interval(pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-05")),
        ),
    ],
    ids=str,
)
def test_parts_are_spelled_as_the_population_spells_them(given: dict[str, Any], own: Any) -> None:
    ((name, _),) = given.items()
    part = rebuilt(**given).region[name]
    assert part == own
    assert type(part) is type(own)
    if isinstance(own, Interval):
        assert (type(part.low), type(part.high), part.levels) == (
            type(own.low),
            type(own.high),
            own.levels,
        )


class OtherInterval(Interval):
    pass


class OtherSet(frozenset[Any]):
    pass


class OtherTuple(tuple[Any, ...]):
    __slots__ = ()


NO_PARTS: dict[str, list[Any]] = {
    "age": [
        None,
        frozenset({20, 21}),
        Interval(20, None),
        Interval(None, 40),
        Interval("20", "40"),
        Interval(20, "40"),
        Interval("20", 40),
        Interval(True, 40),
        Interval(20, 40, levels=()),
        Interval(20, 40, levels=("low",)),
        Interval(20, float("inf")),
        Interval(float("nan"), 40),
        OtherInterval(20, 40),
    ],
    "city": [
        Interval("A", "B"),
        frozenset({"A", "C"}),
        frozenset(),
        OtherSet({"A"}),
    ],
    "grade": [
        Interval("low", "high"),
        Interval("low", "top", levels=("high", "top")),
        Interval("low", "high", True, ("low", "mid", "high", "top")),
        Interval("low", "high", levels=("low", "high")),
        Interval("low", "high", levels=("mid", "low")),
        Interval("low", "high", levels=("low", "low")),
        Interval("low", "high", levels=OtherTuple(("low", "mid"))),
        Interval("low", "high", levels=["low", "mid"]),  # type: ignore[arg-type]
    ],
}


@pytest.mark.parametrize("name", NO_PARTS)
def test_what_is_no_part_is_not_rebuilt(name: str) -> None:
    for part in NO_PARTS[name]:
        assert rebuilt(**{name: part}) is None


def test_only_a_region_over_the_quasi_identifiers_is_rebuilt() -> None:
    class OtherRegion(Region):
        pass

    missing, more = (
        Region({n: p for n, p in WHOLE.items() if n != "age"}),
        Region({**WHOLE, "pay": Interval(0, 9)}),
    )
    renamed = Region({**{n: p for n, p in WHOLE.items() if n != "age"}, "pay": Interval(0, 9)})
    other = Region(WHOLE)
    object.__setattr__(other, "parts", type("OtherDict", (dict,), {})(WHOLE))
    for made in (missing, more, renamed, other, OtherRegion(WHOLE), WHOLE):
        assert rebuild(Proposal(made), CODES) is None  # type: ignore[arg-type]
