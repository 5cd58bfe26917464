"""What a run says of its population: counts that cannot be used against a few people, and no value
of any.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.metrics.provenance import FEW, declarations_of, facts_of


def table(*sizes: int) -> pd.DataFrame:
    """Return people in classes of these sizes, with a private value each of their own."""
    ages = [age for age, size in enumerate(sizes) for _ in range(size)]
    return pd.DataFrame({"age": ages, "pay": [1_000 + i for i in range(len(ages))]})


def population(*sizes: int) -> Population:
    return Population.from_frame(
        table(*sizes), Schema.from_frame(table(*sizes), quasi_identifiers=["age"])
    )


def bins(facts: dict[str, Any]) -> list[tuple[int, int | None, int | str]]:
    return [(each["from"], each["to"], each["people"]) for each in facts["classes"]]


@pytest.mark.parametrize(
    ("sizes", "people", "unique", "below", "classes"),
    [
        (
            (*[1] * 30, *[4] * 10, *[5] * 3, *[8] * 2, 12, 27, 60),
            *(200, 30, 70),
            [(1, 5, 70), (5, 10, 31), (10, 25, 12), (25, 50, 27), (50, None, 60)],
        ),
        # Few people are a text and share a bin.
        (
            (*[1] * 3, *[2] * 2, 6, 25, 30),
            68,
            "1–10",
            "1–10",
            [(1, 10, 13), (10, 25, 0), (25, None, 55)],
        ),
        # What follows from the other counts is hidden as well: of nearly all below k, of most of
        # these alone.
        ((*[1] * 30, *[3] * 100, 7), 337, 30, "327–336", [(1, None, 337)]),
        ((*[1] * 40, 4, 4, *[20] * 3), 108, "38–47", 48, [(1, 5, 48), (5, 10, 0), (10, None, 60)]),
        # Not merged with those below k.
        (
            (*[2] * 20, 6, 15, 30, 200),
            *(291, 0, 40),
            [(1, 5, 40), (5, 25, 21), (25, 50, 30), (50, 100, 0), (100, None, 200)],
        ),
        ((3, 4), "1–10", 0, "1–10", [(1, None, "1–10")]),
    ],
)
def test_counts_of_people_and_what_is_hidden_of_them(
    sizes: tuple[int, ...], people: Any, unique: Any, below: Any, classes: list[Any]
) -> None:
    facts = facts_of(population(*sizes), k=5)
    assert (facts["rows"], facts["people"], facts["subject_key"], facts["k"]) == (
        people,
        people,
        False,
        5,
    )
    assert (facts["unique"], facts["below_k"], bins(facts)) == (unique, below, classes)


@settings(max_examples=60)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=30), k=st.integers(2, 30))
def test_no_small_number_is_written_nor_follows(sizes: list[int], k: int) -> None:
    facts = facts_of(population(*sizes), k)
    people, below, alone = facts["people"], facts["below_k"], facts["unique"]
    exact = [number for number in (people, below, alone) if isinstance(number, int)]
    exact += [n for _, _, n in bins(facts) if isinstance(n, int)]
    exact += [
        a - b
        for a in (people, below)
        for b in (below, alone)
        if isinstance(a, int) and isinstance(b, int)
    ]
    heads = [
        sum(n for _, _, n in bins(facts)[:i] if isinstance(n, int))
        for i in range(1, len(facts["classes"]))
    ]
    exact += [abs(below - head) for head in heads if isinstance(below, int)]
    assert not [number for number in exact if 0 < number <= FEW]
    known = [n for _, _, n in bins(facts) if isinstance(n, int)]
    assert sum(known) == (sum(sizes) if isinstance(people, int) else 0)
    edges = [(low, high) for low, high, _ in bins(facts)]
    assert edges[0][0] == 1
    assert edges[-1][1] is None
    assert [high for _, high in edges[:-1]] == [low for low, _ in edges[1:]]


def test_people_with_several_rows_count_once_by_their_smallest_class() -> None:
    frame = pd.concat(
        [table(*[20] * 3).assign(who=range(60)), table(12).assign(age=7, who=range(12))]
    )
    schema = Schema.from_frame(frame, quasi_identifiers=["age"], subject="who")
    facts = facts_of(Population.from_frame(frame, schema), k=15)
    assert (facts["rows"], facts["people"], facts["subject_key"]) == (72, 60, True)
    assert (facts["below_k"], bins(facts)) == (12, [(1, 15, 12), (15, None, 48)])


def test_a_sealed_population_says_the_same_of_people(tmp_path: Path) -> None:
    here = population(*[1] * 30, *[15] * 4)
    here.seal(tmp_path / "sealed.cfk")
    sealed = facts_of(Population.open(tmp_path / "sealed.cfk"), k=5)
    assert sealed["rows"] is None
    assert {n: v for n, v in sealed.items() if n not in ("rows", "attributes")} == {
        name: value
        for name, value in facts_of(here, k=5).items()
        if name not in ("rows", "attributes")
    }
    assert [a["distinct"] for a in sealed["attributes"]] == [34, None]


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
    bounds={"size": (0, 100)},
    weights={"age": 2.0},
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
