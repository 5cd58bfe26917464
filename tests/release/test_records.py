"""The uniform record: the same keys and types for regions, prototypes and what is withheld."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from cfk_plugin.release.records import FEATURE, RECORD, record_of
from cfk_plugin.release.results import Withheld
from prototyped import prototype
from tracked import released


def test_a_prototype_is_single_values_and_has_no_k() -> None:
    entry = prototype(3, salary=None, since=pd.Timestamp("2021-01-02"), school="high")
    factual = {
        "age": 29,
        "city": "Ghent",
        "salary": 30.5,
        "since": pd.Timestamp("2020-02-29"),
        "school": "low",
    }
    record = record_of(entry, factual, [*factual])
    assert set(record) == set(RECORD)
    assert (record["query"], record["status"]) == (3, "released")
    assert {record[name] for name in ("reason", "k", "ncp", "pureness")} == {None}
    assert record["sentence"] == (
        "The outcome would be the desired one if all four of these were different: salary not stated"
        " instead of 30.5; school “high” instead of “low”; since 2 January 2021 instead of 29"
        " February 2020; and an age of 31 years instead of 29."
    )
    said = {feature["name"]: feature for feature in record["features"]}
    assert all(set(feature) == set(FEATURE) for feature in said.values())
    assert (said["age"]["kind"], said["age"]["low"], said["age"]["high"]) == ("number", 31.0, 31.0)
    assert (said["city"]["kind"], said["city"]["values"]) == ("set", ["Ghent"])
    assert (said["salary"]["kind"], said["salary"]["values"], said["salary"]["missing"]) == (
        "set",
        [],
        True,
    )
    assert (said["since"]["kind"], said["since"]["values"]) == ("date", ["2021-01-02"] * 2)
    assert (said["school"]["kind"], said["school"]["values"]) == ("set", ["high"])
    advised = {name: feature["advised"] for name, feature in said.items()}
    assert advised == {
        "age": "31",
        "city": "Ghent",
        "salary": None,
        "since": "2021-01-02",
        "school": "high",
    }
    json.dumps(record, allow_nan=False)


def test_advised_value_is_that_of_the_point() -> None:
    """The part of a quasi-identifier is a range; the person is asked for one value in it."""
    entry = released(advised={"age": 27, "city": "Ghent"})
    record = record_of(entry, {"age": 40, "city": "Ghent", "salary": 30.5}, ["age", "city"])
    age, city = record["features"]
    assert (age["low"], age["high"], age["advised"]) == (24.0, 27.0, "27")
    assert city["advised"] == "Ghent"


def test_every_kind_of_entry_has_the_same_keys() -> None:
    names = ["age", "city", "salary"]
    records = [
        record_of(entry, None, names)
        for entry in (prototype(), released(), Withheld(0, "infeasible"))
    ]
    assert [list(record) for record in records] == [list(records[0])] * 3
    assert [record["k"] for record in records] == [None, 5, None]


def test_what_cannot_be_written_is_withheld_alone(caplog: pytest.LogCaptureFixture) -> None:
    names = ["age", "city", "salary"]
    for value in (float("inf"), "\ud800", "SENTINEL\udfff"):
        record = record_of(prototype(3, salary=value), None, names)
        assert (record["query"], record["status"], record["reason"]) == (
            3,
            "withheld",
            "protector_failed",
        )
        assert list(record) == list(record_of(prototype(), None, names))
    assert "SENTINEL" not in caplog.text
