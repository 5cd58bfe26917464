"""Mondrian in both variants, against a recursion written down row by row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.protection import MondrianProtector


def regions(train: pd.DataFrame, rows: pd.DataFrame, k: int, normalise: bool) -> list[Region]:
    """Return the region of each row."""
    schema = Schema.from_frame(train, quasi_identifiers=list(train))
    population = Population.from_frame(train.assign(pay=1), schema)
    policy = PrivacyPolicy(k=k, guarantee="lookup")
    anonymizer = KAnonymizer(policy=policy, method=MondrianProtector(normalise=normalise))
    anonymizer.fit(population, model=lambda rows: np.ones(len(rows), dtype=int), desired=1)
    return [entry.region for entry in anonymizer.transform(rows).released]


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


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_classes_follow_the_definition(seed: int, normalise: bool) -> None:
    """Raw widths count categories, and cut their list in the middle."""
    random = np.random.default_rng(seed)
    n = int(random.integers(20, 80))
    k = int(random.integers(2, 6))
    train = pd.DataFrame(
        {
            "age": random.integers(20, 20 + int(random.integers(2, 40)), n),
            "town": random.choice(list("ABCDE"), n, p=[0.5, 0.2, 0.1, 0.1, 0.1]),
            "job": random.choice(["x", "y", "z"], n),
        }
    )
    of_row = {row: rows for rows in partition(train, k, normalise) for row in rows}
    for row, region in enumerate(regions(train, train, k, normalise)):
        members = train.loc[sorted(of_row[row])]
        age = members["age"]
        assert region["age"] == Interval(age.min(), age.max())
        assert region["town"] == frozenset(members["town"])
        assert region["job"] == frozenset(members["job"])


def test_stranger_joins_class_of_place() -> None:
    """Ages 20 to 27 in classes of two: 23.5 is cut off from 22 and 23 by its own number, 40 is with
    the oldest.
    """
    train = pd.DataFrame({"age": [*range(20, 28)], "town": ["A"] * 8})
    strangers = train.head(3).assign(age=[23.5, 21.25, 40.0])
    parts = [region["age"] for region in regions(train, strangers, 2, normalise=True)]
    assert parts == [Interval(23.5, 25), Interval(21.25, 23), Interval(26, 40)]
