"""In which form a private value leaves: exactly, as a bin, or not at all; of people who can be
counted by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Attribute, Interval, KAnonymizer, Population, PrivacyPolicy, Region, Schema
from cfk_plugin.errors import PolicyError, SchemaError
from cfk_plugin.hookspecs import Proposal, ProtectionRequest

TABLE = pd.DataFrame(
    {
        "who": [f"p{i}" for i in range(10)],
        "pay": [5.0, 15, 25, 35, 45, 55, 65, 75, 85, np.nan],
        "job": ["a"] * 5 + ["b"] * 4 + ["c"],
        "rank": ["low"] * 8 + ["high"] * 2,
    }
)
DECLARED: dict[str, Any] = {"quasi_identifiers": ["who"], "ordinal": {"rank": ["low", "high"]}}


def population(frame: pd.DataFrame = TABLE, **declared: Any) -> Population:
    given = {
        **(DECLARED if frame is TABLE else {"quasi_identifiers": ["who"]}),
        "bins": {"pay": [0, 20, 40, 60, 80]},
    }
    return Population.from_frame(frame, Schema.from_frame(frame, **{**given, **declared}))


def policy(**settings: Any) -> PrivacyPolicy:
    return PrivacyPolicy(**{"k": 3, "guarantee": "lookup", **settings})


PEOPLE = population()


def entry(
    row: pd.DataFrame, crowd: Sequence[int], people: Population = PEOPLE, **settings: Any
) -> Any:
    """Release a row under a region that holds exactly these people."""

    class Theirs:
        name = "theirs"

        def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
            return [
                Proposal(Region({"who": frozenset(people.frame["who"].iloc[list(crowd)])}))
            ] * len(request)

    anonymizer = KAnonymizer(policy=policy(**{"k": len(crowd), **settings}), method=Theirs())
    anonymizer.fit(people, model=lambda rows: np.ones(len(rows), dtype=bool), desired=True)
    return anonymizer.transform(row.assign(who=people.frame["who"].iloc[crowd[0]]))[0]


def decided(
    row: pd.DataFrame, crowd: Sequence[int], people: Population = PEOPLE, **settings: Any
) -> Any:
    """Return what does not leave exactly: its bin, or None where it is withheld."""
    found = entry(row, crowd, people, **settings)
    assert found.status == "released"
    return {
        name: part for name, part in found.released.items() if isinstance(part, Interval)
    } | dict.fromkeys(found.withheld)


# --- bins -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bins",
    [
        {"pay": [1]},
        {"pay": [1, 1]},
        {"pay": [3, 2, 4]},
        {"pay": [0, float("inf")]},
        {"pay": [0, float("nan")]},
        {"pay": [0, "much"]},
        {"pay": "0, 20"},
        {"pay": 3},
        {"job": [1, 2]},
        {"rank": [0, 1]},
        {"wage": [1, 2]},
    ],
)
def test_wrong_bins_are_refused_by_the_column(bins: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match=next(iter(bins))):
        population(bins=bins)


@pytest.mark.parametrize("role", ["identifiers", "subject", "target"])
def test_bins_of_a_column_that_is_never_released_are_refused(role: str) -> None:
    with pytest.raises(SchemaError, match="pay"):
        population(**{role: ["pay"] if role == "identifiers" else "pay"})
    with pytest.raises(SchemaError, match="bins"):
        Attribute(name="pay", role="target", kind="numeric", bins=(0.0, 1.0))


@pytest.mark.parametrize(
    ("pay", "part"),
    [
        (-0.1, None),
        (0, (0, 20)),
        (19.9, (0, 20)),
        (20, (20, 40)),
        (60, (60, 80)),
        (80, (60, 80)),
        (80.1, None),
    ],
)
def test_a_bin_has_its_lower_edge_the_last_one_both_and_a_number_in_none_is_withheld(
    pay: float, part: Any
) -> None:
    found = decided(TABLE.iloc[[3]].assign(pay=float(pay)), [2, 3, 4], private_values="bins")
    assert found == {"pay": None if part is None else Interval(*part)}


def test_bins_of_whole_numbers_and_dates_are_of_their_kind() -> None:
    days = ["2020-01-01", "2020-07-01", "2021-01-01"]
    frame = pd.DataFrame({"who": list("xyz"), "pay": [20, 40, 60], "day": pd.to_datetime(days)})
    bins = {"pay": [20, 40, 60], "day": ["2020-01-01", "2020-07-01", "2022-01-01"]}
    found = decided(frame.iloc[[1]], [0, 1, 2], population(frame, bins=bins), private_values="bins")
    assert (found["pay"], str(found["day"])) == (Interval(40, 60), "2020-07-01–2022-01-01")
    assert isinstance(found["pay"].low, int)


# --- decisions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting",
    [
        {"private_values": "rounded"},
        {"rare_values": True},
        {"alpha": 1.1},
        {"alpha": "0.8"},
    ],
)
def test_settings_out_of_range_and_bins_that_are_nowhere_declared_are_refused(
    setting: dict[str, Any],
) -> None:
    with pytest.raises(PolicyError, match=next(iter(setting))):
        policy(**setting)
    with pytest.raises(PolicyError, match="bins"):
        decided(TABLE.iloc[[3]], [2, 3, 4], population(bins=None), private_values="bins")


BINNED, RARE = {"private_values": "bins"}, {"rare_values": "withhold"}


@pytest.mark.parametrize(
    ("changes", "crowd", "settings", "expected"),
    [
        ({}, [2, 3, 4], {}, {}),
        ({}, [2, 3, 4], BINNED, {"pay": Interval(20, 40)}),
        ({"pay": np.nan}, [8, 9], BINNED, {}),  # a missing number is a value of its own
        ({"pay": np.nan}, [8, 9], BINNED | RARE, {"pay": None}),
        # Rare are values of fewer than k people.
        ({}, [2, 3, 4], RARE, {"pay": None}),
        ({}, [2, 3], BINNED | RARE, {"pay": Interval(20, 40)}),
        ({"job": "c", "pay": 31.0}, [2, 3], BINNED | RARE, {"pay": Interval(20, 40), "job": None}),
        # Of the people 0-2 all have job a (5 of 10 everywhere) and rank low (8 of 10 everywhere):
        # lift 2 and 1.25.
        ({}, [0, 1, 2], {"alpha": 0.8}, {"job": None}),
        # Of the people 8 and 9 one has job c (1 of 10 everywhere) and both rank high (2 of 10).
        ({"job": "c", "rank": "high"}, [8, 9], {"alpha": 0.4}, {"job": None, "rank": None}),
        ({}, [0, 1, 2], {"alpha": 1.0}, {}),
        ({}, [3, 4, 5], {"alpha": 0.6}, {}),  # 2 of 3, and 4 / 3 as many as elsewhere
        # Job a: 3 of 4 are exactly 1.5 times as many as elsewhere, 4 of 5 are more.
        ({}, [0, 1, 2, 5], {"alpha": 0.7}, {}),
        ({}, [0, 1, 2, 4, 5], {"alpha": 0.7}, {"job": None}),
        ({}, [0, 5, 6], {"alpha": 0.8}, {}),
    ],
)
def test_values_are_binned_rare_or_homogeneous(
    changes: dict[str, Any], crowd: list[int], settings: dict[str, Any], expected: Any
) -> None:
    assert decided(TABLE.iloc[[3]].assign(**changes), crowd, **settings) == expected


@pytest.mark.parametrize(
    ("pay", "crowd", "settings", "expected"),
    [
        # 40 people with pay 0 to 4, which a range of 100 makes close, and 60 with more.
        (3, [0, 1, 2, 3, 4], {"alpha": 0.9}, {"pay": None}),  # in the bin, too
        (52, [48, 50, 60, 70], {"alpha": 0.7}, {}),  # 49, 51, 61, 71: two of four are close
        # Close to 52 are 11 of 100 people, and three of these four. The bin has 51 of 100, so its
        # lift is 0.75 / 0.51 = 1.47.
        (52, [50, 51, 52, 0], {"alpha": 0.7}, {"pay": Interval(50, 100)}),
        (52, [50, 51, 52], {"alpha": 0.7}, {"pay": None}),  # here it is 1 / 0.51 = 1.96
        # A bin is homogeneous as a whole.
        (3, [0, 1, 2, 3, 4], {"private_values": "bins", "alpha": 0.9}, {"pay": None}),
        (3, [0, 1, 60, 61], {"private_values": "bins", "alpha": 0.9}, {"pay": Interval(0, 50)}),
    ],
)
def test_close_numbers_tell_the_same(
    pay: int, crowd: list[int], settings: dict[str, Any], expected: Any
) -> None:
    frame = pd.DataFrame(
        {"who": [f"p{i}" for i in range(100)], "pay": [0, 1, 2, 3, 4] * 8 + list(range(41, 101))}
    )
    people = population(frame, bins={"pay": [0, 50, 100]})
    assert decided(frame.head(1).assign(pay=pay), crowd, people, **settings) == expected


def test_people_count_once() -> None:
    frame = pd.DataFrame(
        {"person": [0, 0, 0, 1, 2, 3], "who": list("uvwxyz"), "job": ["a", "a", "b", "b", "b", "b"]}
    )
    people = population(frame, subject="person", bins=None)
    # one person has a
    assert decided(frame.iloc[[0]], [0, 3, 4], people, k=2, **RARE) == {"job": None}
