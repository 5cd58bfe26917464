"""Mondrian in both variants, against an example worked out by hand and a recursion written down row
by row.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.protection import MondrianProtector
from cfk_plugin.release.results import GeneralizedCounterfactual


def regions(train: pd.DataFrame, k: int, normalise: bool) -> list[Region]:
    """Return the region of every row."""
    population = Population.from_frame(
        train.assign(pay=1), Schema.from_frame(train, quasi_identifiers=list(train))
    )
    anonymizer = KAnonymizer(
        policy=PrivacyPolicy(k=k, guarantee="lookup"),
        method=MondrianProtector(normalise=normalise),
    )
    found = anonymizer.fit(
        population, model=lambda rows: np.ones(len(rows), dtype=int), desired=1
    ).transform(train)
    return [entry.region for entry in found if isinstance(entry, GeneralizedCounterfactual)]


def partition(train: pd.DataFrame, k: int, normalise: bool) -> list[frozenset[int]]:
    """Return the classes of rows, by the definition: split the widest attribute that can be
    split.
    """
    numeric = {name: pd.api.types.is_numeric_dtype(train[name]) for name in train}
    # categories stand in the order of the alphabet
    places = {name: sorted(set(train[name])) for name in train}

    def position(name: str, rows: pd.DataFrame) -> pd.Series:
        return rows[name] if numeric[name] else rows[name].map(places[name].index)

    def width(name: str, rows: pd.DataFrame) -> float:
        if not normalise and not numeric[name]:
            return rows[name].nunique()
        spread, whole = np.ptp(position(name, rows)), np.ptp(position(name, train))
        return spread / whole if normalise and whole else spread

    def cuts(name: str, rows: pd.DataFrame) -> list[float]:
        line = np.sort(position(name, rows))
        values = np.unique(line)
        if not normalise and not numeric[name]:
            return [values[len(values) // 2 - 1]] if len(values) > 1 else []
        middle = int(
            np.searchsorted(
                values, line[(len(line) - 1) // 2 if len(line) % 2 else len(line) // 2 - 1]
            )
        )
        return [values[at] for at in (middle, middle - 1) if 0 <= at < len(values) - 1]

    def split(rows: pd.DataFrame) -> list[frozenset[int]]:
        # of equally wide ones by name
        for name in sorted(sorted(rows), key=lambda name: -width(name, rows)):
            for at in cuts(name, rows):
                below = position(name, rows) <= at
                if k <= below.sum() <= len(rows) - k:
                    return split(rows[below]) + split(rows[~below])
        return [frozenset(rows.index)]

    return split(train)


def test_raw_widths_leave_categories_whole_where_years_are_many() -> None:
    """8 people, k = 2: ages 20 to 27 are 7 wide and two towns count 2, so raw widths split ages
    alone at first.
    """
    train = pd.DataFrame({"age": range(20, 28), "town": list("AABBAABB")})
    normalised = {(str(r["age"]), r["town"]) for r in regions(train, 2, normalise=True)}
    assert normalised == {
        (f"{low}–{low + 1}", frozenset(town))
        for low, town in ((20, "A"), (22, "B"), (24, "A"), (26, "B"))
    }
    wide = pd.DataFrame({"age": [20, 30, 40, 50] * 2, "town": list("ABCDABCD")})
    raw = {(str(r["age"]), r["town"]) for r in regions(wide, 4, normalise=False)}
    assert raw == {("20–30", frozenset("AB")), ("40–50", frozenset("CD"))}


def test_raw_widths_cut_a_list_of_categories_in_the_middle() -> None:
    """A has six people, B, C and D two each: the median cuts off A, the middle of the list A and
    B.
    """
    train = pd.DataFrame({"age": [30] * 12, "town": list("AAAAAABBCCDD")})
    assert {r["town"] for r in regions(train, 4, normalise=True)} == {
        frozenset("A"),
        frozenset("BCD"),
    }
    assert {r["town"] for r in regions(train, 4, normalise=False)} == {
        frozenset("AB"),
        frozenset("CD"),
    }


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_classes_are_those_of_the_definition(seed: int, normalise: bool) -> None:
    random = np.random.default_rng(seed)
    n, k = int(random.integers(20, 80)), int(random.integers(2, 6))
    train = pd.DataFrame(
        {
            "age": random.integers(20, 20 + int(random.integers(2, 40)), n),
            "town": random.choice(list("ABCDE"), n, p=[0.5, 0.2, 0.1, 0.1, 0.1]),
            "job": random.choice(["x", "y", "z"], n),
        }
    )
    found = regions(train, k, normalise)
    of_row = {row: rows for rows in partition(train, k, normalise) for row in rows}
    for row, region in enumerate(found):
        members = train.loc[sorted(of_row[row])]
        assert (region["age"].low, region["age"].high) == (
            members["age"].min(),
            members["age"].max(),
        )
        assert (region["town"], region["job"]) == (
            frozenset(members["town"]),
            frozenset(members["job"]),
        )


def test_who_is_no_row_falls_into_the_class_of_its_place() -> None:
    """Ages 20 to 27 in classes of two: 23.5 is cut off from 22 and 23 by its own number, 40 is with
    the oldest.
    """
    train = pd.DataFrame({"age": [*range(20, 28)], "town": ["A"] * 8, "pay": 1})
    population = Population.from_frame(
        train, Schema.from_frame(train, quasi_identifiers=["age", "town"])
    )
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2, guarantee="lookup"), method="mondrian")
    strangers = train.head(3).assign(age=[23.5, 21.25, 40.0])
    found = anonymizer.fit(
        population, lambda rows: np.ones(len(rows), dtype=int), desired=1
    ).transform(strangers)
    regions = [
        entry.region["age"] for entry in found if isinstance(entry, GeneralizedCounterfactual)
    ]
    assert [(part.low, part.high) for part in regions if isinstance(part, Interval)] == [
        (23.5, 25),
        (21.25, 23),
        (26, 40),
    ]
