"""Rules about several features: how they are read, and which rows obey them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Population, Schema
from cfk_plugin.data.codes import Codes
from cfk_plugin.errors import PopulationError, SchemaError

PEOPLE = pd.DataFrame(
    {
        "age": [30, 40, 50, 20],
        "years employed": [10, 20, np.nan, 5],
        "owns": [True, False, True, False],
        "rent": [0.0, 500.5, 0.0, 300.1],
        "debts": [0, 1, -1, 0],
        "education": ["school", "college", "master", "school"],
        "born": pd.to_datetime(["1990-01-01", "1980-01-01", "1970-01-01", "2000-01-01"]),
        "hired": pd.to_datetime(["2010-01-01", "2010-01-01", "2010-01-01", "2019-01-01"]),
    }
)


def schema(*rules: object) -> Schema:
    """Return the schema of the people, with rules."""
    return Schema.from_frame(
        PEOPLE,
        quasi_identifiers=["age"],
        ordinal={"education": ["school", "college", "master"], "debts": [-1, 0, 1]},
        rules=rules,
    )


@pytest.mark.parametrize(
    ("rule", "who_obeys"),
    [
        ("age <= 40", [1, 1, 0, 1]),
        ("20 < age <= 40", [1, 1, 0, 0]),
        ("`years employed` <= age - 16", [1, 1, 1, 0]),  # one does not say how many years
        ("2 * age - 10 / 4 > -(-77.5)", [0, 0, 1, 0]),
        ("if owns then rent == 0", [1, 1, 1, 1]),
        ("if not owns then rent * 2 >= 1001", [1, 1, 1, 0]),
        ("owns or rent", [1, 1, 1, 1]),
        ("owns == False and rent > 400", [0, 1, 0, 0]),
        ("education >= 'college'", [0, 1, 1, 0]),
        ("'college' > education", [1, 0, 0, 1]),
        ("education not in ['school', 'master']", [0, 1, 0, 0]),
        ("hired - born >= 20 * 365", [1, 1, 1, 0]),
        ("born < '1985-01-01'", [0, 1, 1, 0]),
        ("debts > -1 and -1 < debts", [1, 1, 0, 1]),
    ],
)
def test_rows_obey_rule(rule: str, who_obeys: list[int]) -> None:
    """A rule means what Python would make of it; rows without one of its numbers obey it."""
    codes = Codes.read(PEOPLE, schema(rule))
    assert codes.obey_rules(codes.encode(PEOPLE)).astype(int).tolist() == who_obeys


DAY = pd.Timestamp("2024-01-01", tz="Europe/Brussels")


@pytest.mark.parametrize(
    ("people", "rule", "who_obeys"),
    [
        # numbers that differ by rounding are equal
        ({"a": [0.1, 0.1], "b": [0.2, 0.2], "c": [0.3, 0.30001]}, "c - a - b == 0", [1, 0]),
        # a day in quotes begins at midnight where the dates of the table are
        ({"a": [1, 2], "b": [DAY, DAY - pd.Timedelta("1s")]}, "b >= '2024-01-01'", [1, 0]),
        # no one meets the condition
        ({"a": [False, False], "b": [500, 600]}, "if a then b == 0", [1, 1]),
    ],
    ids=["rounding", "time zone", "condition of no one"],
)
def test_rule_reads_the_table(people: dict[str, Any], rule: str, who_obeys: list[int]) -> None:
    """Values of a rule are compared as those of the table are."""
    frame = pd.DataFrame(people)
    codes = Codes.read(frame, Schema.from_frame(frame, quasi_identifiers=["a"], rules=[rule]))
    assert codes.obey_rules(codes.encode(frame)).astype(int).tolist() == who_obeys


@pytest.mark.parametrize(
    "rule",
    [
        "age <",
        "1 < 2",
        "height < 3",
        "__import__('os')",
        "age.real < 3",
        "(age if owns else 3) < 4",
        "age ** 2 < 4",
        "age is 3",
        "age in rent",
        "born == None",
        7,
    ],
)
def test_meaningless_rule_is_refused(rule: object) -> None:
    """Only names, constants, linear arithmetic and comparisons are read."""
    with pytest.raises(SchemaError, match="rule"):
        Population.from_frame(PEOPLE, schema(rule))


@pytest.mark.parametrize(
    ("rule", "advice"),
    [
        ("age * rent < 3", "constant"),
        ("age / 0 < 3", "constant"),
        ("education < age", "compare it with a value"),
        ("education", "compare it with a value"),
        ("owns > False", "no order"),
        ("rents < 3", "did you mean 'rent'"),
    ],
)
def test_unsuitable_comparison_is_refused(rule: str, advice: str) -> None:
    """The error says what to do about columns of that kind, and which name may be meant."""
    with pytest.raises(SchemaError, match=advice):
        Population.from_frame(PEOPLE, schema(rule))


def test_rules_are_a_list() -> None:
    """One text is not a list of rules."""
    with pytest.raises(SchemaError, match="list of texts"):
        Schema.from_frame(PEOPLE, quasi_identifiers=["age"], rules="age < 3")


def test_training_rows_have_to_obey() -> None:
    """The error has the share of the rows that break a rule, and none of their values."""
    with pytest.raises(PopulationError, match="25 % of the training rows") as raised:
        Population.from_frame(PEOPLE, schema("age <= 45"))
    assert "50" not in str(raised.value).replace("25 %", "")


def test_rule_needs_known_values() -> None:
    """A value that no one has is probably misspelt."""
    with pytest.raises(PopulationError, match="education with a value"):
        Population.from_frame(PEOPLE, schema("education == 'colege'"))
