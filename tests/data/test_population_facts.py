"""A run has exact counts of its population, and no value of an attribute."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pandas as pd
import pytest

from cfk_plugin import Attribute, KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.metrics.provenance import declarations_of, facts_of


def table(*sizes: int) -> pd.DataFrame:
    """Return people in classes of these sizes, with a private value each of their own."""
    ages = [age for age, size in enumerate(sizes) for _ in range(size)]
    return pd.DataFrame({"age": ages, "pay": [1_000 + i for i in range(len(ages))]})


def population(*sizes: int) -> Population:
    return Population.from_frame(
        table(*sizes), Schema.from_frame(table(*sizes), quasi_identifiers=["age"])
    )


def bins(facts: dict[str, Any]) -> list[tuple[int, int | None, int]]:
    return [(each["from"], each["to"], each["people"]) for each in facts["classes"]]


def test_people_are_counted_by_the_size_of_their_class() -> None:
    facts = facts_of(population(*[1] * 30, *[4] * 10, 8, 12, 27, 60), k=5)
    assert (facts["rows"], facts["people"], facts["subject_key"], facts["k"]) == (
        177,
        177,
        False,
        5,
    )
    assert (facts["unique"], facts["below_k"]) == (30, 70)
    assert bins(facts) == [(1, 5, 70), (5, 10, 8), (10, 25, 12), (25, 50, 27), (50, None, 60)]


def test_people_with_several_rows_count_once_by_their_smallest_class() -> None:
    frame = pd.concat(
        [table(*[20] * 3).assign(who=range(60)), table(12).assign(age=7, who=range(12))]
    )
    schema = Schema.from_frame(frame, quasi_identifiers=["age"], subject="who")
    facts = facts_of(Population.from_frame(frame, schema), k=15)
    assert (facts["rows"], facts["people"], facts["subject_key"]) == (72, 60, True)
    assert (facts["below_k"], bins(facts)) == (12, [(1, 15, 12), (15, None, 48)])


FRAME = pd.DataFrame(
    {
        "name": [f"CANARY-{i}" for i in range(40)],
        "age": [71_234_567 + i for i in range(40)],
        "size": [1.5 + i % 7 for i in range(40)],
        "city": [f"CANARY-CITY-{i % 5}" for i in range(40)],
        "grade": ["low", "high"] * 20,
        "debt": [88_123_456 + i for i in range(40)],
        "who": [f"CANARY-WHO-{i}" for i in range(40)],
        "y": [0, 1] * 20,
    }
)
SCHEMA = Schema.from_frame(
    FRAME,
    quasi_identifiers=["age", "size", "city", "grade"],
    sensitive=["debt"],
    identifiers=["name"],
    subject="who",
    target="y",
    ordinal={"grade": ["low", "middle", "high"]},
    columns={"size": Attribute(bounds=(0, 100)), "age": Attribute(weight=2.0)},
)


def test_attributes_are_told_by_role_and_by_where_their_bounds_come_from() -> None:
    facts = facts_of(Population.from_frame(FRAME, SCHEMA), k=5)
    told = {each.pop("name"): each for each in facts["attributes"]}
    assert list(told) == list(FRAME.columns)
    assert told["age"] == {
        "role": "quasi-identifier",
        "kind": "numeric",
        "weight": 0.4,
        "distinct": 40,
        "bounds": "learned",
        "learned": ["nullable"],
    }
    bounds = {name: each["bounds"] for name, each in told.items()}
    assert bounds == {
        "age": "learned",
        "size": "declared",
        "city": "learned",
        "grade": "declared",
        **dict.fromkeys(["name", "debt", "who", "y"]),
    }
    distinct = {name: each["distinct"] for name, each in told.items()}
    assert distinct == {
        "age": 40,
        "size": 7,
        "city": 5,
        "grade": 3,
        "debt": 40,
        "name": None,
        "who": None,
        "y": None,
    }


def test_without_counts_the_declarations_alone_are_told() -> None:
    facts = declarations_of(SCHEMA)
    assert set(facts) == {"schema_version", "attributes"}
    assert {each["distinct"] for each in facts["attributes"]} == {None}
    assert Counter(each["bounds"] for each in facts["attributes"]) == {
        "learned": 3,
        "declared": 2,
        None: 3,
    }


def test_no_value_of_an_attribute_is_told() -> None:
    text = json.dumps(
        [facts_of(Population.from_frame(FRAME, SCHEMA), k=5), declarations_of(SCHEMA)]
    )
    assert not [
        value for value in ("CANARY", "712345", "881234", '"low"', "1.5", "100") if value in text
    ]


def test_a_result_says_what_was_known_when_it_was_made() -> None:
    train = table(*[5] * 12)
    where = Population.from_frame(
        train, Schema.from_frame(train, quasi_identifiers=["age"]), key=b"k"
    )
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=5)).fit(
        where, model=lambda rows: rows["pay"] > 0, desired=True
    )
    about = anonymizer.transform(train.head(2).assign(pay=700)).about
    assert about.population is not None
    assert about.population["fingerprint"] == where.fingerprint
    assert about.population["tolerance"] == anonymizer.detector_.tolerance.distance
    quiet = KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=5)).fit(
        where, model=lambda rows: rows["pay"] > 0, desired=True
    )
    close = quiet.transform(train.head(2), instance_based=True).about
    assert close.population is not None
    assert close.population["tolerance"] is None, (
        "what an explainer gives back from the table is not measured"
    )
    given = PrivacyPolicy(guarantee="lookup", k=5, near_native=0.25)
    fixed = KAnonymizer(policy=given).fit(where, model=lambda rows: rows["pay"] > 0, desired=True)
    assert (fixed.transform(train.head(2)).about.population or {})["tolerance"] == pytest.approx(
        0.25
    )
