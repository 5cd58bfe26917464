"""The uniform record: the same keys and types for regions, prototypes and what is withheld."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from cfk_plugin.release.records import FEATURE, RECORD, record_of
from cfk_plugin.release.results import Withheld
from prototyped import COLUMNS, prototype
from tracked import released


def test_prototype_record_has_single_values() -> None:
    """It has no k, and a range of one number."""
    entry = prototype(3, salary=None, since=pd.Timestamp("2021-01-02"))
    factual = {"age": 29, "city": "Ghent", "salary": 30.5, "since": pd.Timestamp("2020-02-29")}
    record = record_of(entry, factual, [*factual])
    assert (record["query"], record["status"], record["k"]) == (3, "released", None)
    assert record["sentence"].endswith("and an age of 31 years instead of 29.")
    age, city, salary, since = record["features"]
    assert (age["kind"], age["low"], age["high"], age["advised"]) == ("number", 31.0, 31.0, "31")
    assert (city["kind"], city["values"], city["advised"]) == ("set", ["Ghent"], "Ghent")
    assert (salary["values"], salary["missing"], salary["advised"]) == ([], True, None)
    assert since["kind"] == "date"
    assert all(value.startswith("2021-01-02") for value in since["values"])
    json.dumps(record, allow_nan=False)


def test_advised_value_is_of_the_point() -> None:
    """The part of a quasi-identifier is a range; the person is asked for one value in it."""
    entry = released(advised={"age": 27, "city": "Ghent"})
    record = record_of(entry, {"age": 40, "city": "Ghent", "salary": 30.5}, ["age", "city"])
    age, city = record["features"]
    assert (age["low"], age["high"], age["advised"]) == (24.0, 27.0, "27")
    assert city["advised"] == "Ghent"


def test_every_kind_has_the_same_keys() -> None:
    """Regions, prototypes and what is withheld."""
    entries = (prototype(), released(), Withheld(0, "infeasible"))
    records = [record_of(entry, None, COLUMNS) for entry in entries]
    for record in records:
        assert [*record] == [*RECORD]
        assert all({*feature} == {*FEATURE} for feature in record["features"])
    assert [record["k"] for record in records] == [None, 5, None]


@pytest.mark.parametrize("value", [float("inf"), "\ud800", "SENTINEL\udfff"], ids=ascii)
def test_unwritable_value_is_withheld(value: object, caplog: pytest.LogCaptureFixture) -> None:
    """JSON has no such number or text."""
    record = record_of(prototype(3, salary=value), None, COLUMNS)
    assert (record["query"], record["status"]) == (3, "withheld")
    assert record["reason"] == "protector_failed"
    assert "SENTINEL" not in caplog.text
