"""A run has exact counts of its population, and no value of an attribute."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from cfk_plugin import Attribute, Population, Schema
from cfk_plugin.metrics.provenance import declarations_of, facts_of
from worlds import World


def table(*sizes: int) -> pd.DataFrame:
    """Return people in classes of these sizes, with a private value each of their own."""
    ages = [age for age, size in enumerate(sizes) for _ in range(size)]
    return pd.DataFrame({"age": ages, "pay": [1_000 + i for i in range(len(ages))]})


def facts(frame: pd.DataFrame, k: int, **roles: Any) -> dict[str, Any]:
    """Return the facts of a population whose quasi-identifier is the age."""
    schema = Schema.from_frame(frame, quasi_identifiers=["age"], **roles)
    return facts_of(Population.from_frame(frame, schema), k=k)


def sizes(of_population: dict[str, Any]) -> list[tuple[int, int | None, int]]:
    """Return how many people are in classes of which sizes."""
    return [(part["from"], part["to"], part["people"]) for part in of_population["classes"]]


def test_people_are_counted_by_class_size() -> None:
    """The limits of sizes are multiples of k."""
    content = facts(table(*[1] * 30, *[4] * 10, 8, 12, 27, 60), k=5)
    assert (content["rows"], content["people"], content["subject_key"]) == (177, 177, False)
    assert (content["unique"], content["below_k"]) == (30, 70)
    assert sizes(content) == [(1, 5, 70), (5, 10, 8), (10, 25, 12), (25, 50, 27), (50, None, 60)]


def test_people_count_by_smallest_class() -> None:
    """A person with several rows counts once."""
    classes = table(*[20] * 3).assign(who=range(60))
    frame = pd.concat([classes, table(12).assign(age=7, who=range(12))])
    content = facts(frame, k=15, subject="who")
    assert (content["rows"], content["people"], content["subject_key"]) == (72, 60, True)
    assert content["below_k"] == 12
    assert sizes(content) == [(1, 15, 12), (15, None, 48)]


def test_attributes_have_declared_bounds(residents: World) -> None:
    """A fact says whether bounds are declared or learned from the table."""
    columns = {"age": Attribute(weight=2.0), "salary": Attribute(bounds=(0, 200))}
    population = residents.declare(columns=residents.roles["columns"] | columns)
    attributes = facts_of(population, k=5)["attributes"]
    assert [attribute["name"] for attribute in attributes] == list(residents.table)
    by_name = {attribute.pop("name"): attribute for attribute in attributes}
    assert by_name["age"] == {
        "role": "quasi-identifier",
        "kind": "numeric",
        "weight": 0.5,
        "distinct": residents.table["age"].nunique(),
        "bounds": "learned",
        "learned": ["nullable"],
    }
    assert by_name["school"]["bounds"] == "declared"
    assert by_name["name"]["distinct"] is None
    assert by_name["name"]["bounds"] is None


def test_declarations_have_no_counts(residents: World) -> None:
    """A schema without a population tells nothing of the table's rows."""
    declarations = declarations_of(residents.schema)
    assert set(declarations) == {"schema_version", "attributes"}
    assert {attribute["distinct"] for attribute in declarations["attributes"]} == {None}


def test_facts_have_no_values() -> None:
    """Neither categories nor numbers of the table, nor declared bounds."""
    frame = pd.DataFrame(
        {
            "age": [71_234_567 + i for i in range(40)],
            "city": [f"CANARY-{i % 5}" for i in range(40)],
            "debt": [88_123_456 + i for i in range(40)],
        }
    )
    schema = Schema.from_frame(
        frame,
        quasi_identifiers=["age", "city"],
        columns={"debt": Attribute(bounds=(0, 99_887_766))},
        sensitive=["debt"],
    )
    content = facts_of(Population.from_frame(frame, schema), k=5)
    text = json.dumps([content, declarations_of(schema)])
    assert not [value for value in ("CANARY", "712345", "881234", "998877") if value in text]


def test_result_says_what_was_known(residents: World) -> None:
    """The population's fingerprint, and which distance is near-native."""
    anonymizer = residents.lookup
    features = residents.accepted
    queries = residents.refused
    about = anonymizer.transform(features, queries).about.population
    assert about is not None
    assert about["fingerprint"] == residents.population.fingerprint
    assert about["tolerance"] == anonymizer.detector_.tolerance.distance
    fixed = residents.fit(guarantee="lookup", near_native=0.25)
    about = fixed.transform(features, queries).about.population
    assert about is not None
    assert about["tolerance"] == 0.25
