"""Whoever lets answers change sex or age is warned once, unless they said how these may change."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.errors import PersonalColumnWarning, refitting
from cfk_plugin.serving.handler import RequestHandler


def people() -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": random.integers(20, 60, 400),
            "sex": random.choice(["f", "m"], 400),
            "pay": random.integers(0, 100, 400).astype(float),
        }
    )


PEOPLE = people()
KEY = b"the key of these tests"


OF_BOTH = (
    "answers tell people to change age, sex. If nobody can change that, say so:"
    ' Schema.from_frame(..., immutable=["age", "sex"]). What may only grow is'
    ' monotone={"age": "increase"}'
)
OF_SEX = (
    "answers tell people to change sex. If nobody can change that, say so:"
    ' Schema.from_frame(..., immutable=["sex"])'
)


def grants(rows: pd.DataFrame) -> Any:
    return (rows["pay"] > 70) & (rows["age"] > 40) & (rows["sex"] == "f")


GRANTED = PEOPLE[grants(PEOPLE)].head(8).reset_index(drop=True)
REFUSED = PEOPLE[~grants(PEOPLE) & (PEOPLE["sex"] == "m") & (PEOPLE["age"] < 35)].head(8)


def population(**declared: Any) -> Population:
    schema = Schema.from_frame(PEOPLE, quasi_identifiers=["age", "sex"], **declared)
    return Population.from_frame(PEOPLE, schema, key=KEY)


def fitted(guarantee: Any = "catalogue", **declared: Any) -> KAnonymizer:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5, guarantee=guarantee))
    return anonymizer.fit(population(**declared), grants, True)


def warned(call: Any) -> list[str]:
    """Return the texts of the warnings that a call raises."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PersonalColumnWarning)
        call()
    return [str(each.message) for each in caught if each.category is PersonalColumnWarning]


def test_the_warning_names_columns_and_what_to_write() -> None:
    anonymizer = fitted()
    assert warned(lambda: anonymizer.explain(REFUSED)) == [OF_BOTH]


def test_it_is_given_once_for_a_fit() -> None:
    anonymizer = fitted()
    assert len(warned(lambda: anonymizer.explain(REFUSED))) == 1
    assert warned(lambda: anonymizer.explain(REFUSED)) == []
    again = anonymizer.fit(population(), grants, True)
    assert len(warned(lambda: again.explain(REFUSED))) == 1


@pytest.mark.parametrize("guarantee", ["lookup", "catalogue"])
def test_it_is_given_for_a_table_of_counterfactuals(guarantee: str) -> None:
    anonymizer = fitted(guarantee)
    assert len(warned(lambda: anonymizer.transform(GRANTED, REFUSED))) == 1


def test_it_is_not_given_where_the_people_are_not_known() -> None:
    assert warned(lambda: fitted("lookup").transform(GRANTED)) == []


@pytest.mark.parametrize("guarantee", ["lookup", "catalogue"])
def test_it_is_given_for_a_protected_explainer(guarantee: Any) -> None:
    private = protect(
        lambda rows: GRANTED.iloc[: len(rows)],
        model=grants,
        population=population(),
        policy=PrivacyPolicy(k=5, guarantee=guarantee),
        desired=True,
    )
    assert len(warned(lambda: private.explain(REFUSED))) == 1


@pytest.mark.parametrize(
    "declared",
    [{"immutable": ["age", "sex"]}, {"monotone": {"age": "increase"}, "immutable": ["sex"]}],
)
def test_what_the_schema_says_is_not_warned_of(declared: dict[str, Any]) -> None:
    anonymizer = fitted(**declared)
    queries = PEOPLE[~grants(PEOPLE)].head(60)
    assert warned(lambda: anonymizer.explain(queries)) == []


def test_only_what_nothing_is_said_of_is_named() -> None:
    anonymizer = fitted(monotone={"age": "increase"})
    assert warned(lambda: anonymizer.explain(REFUSED)) == [OF_SEX]


@pytest.mark.parametrize(
    "constraints",
    [
        {"features_to_vary": ["age", "sex", "pay"]},
        {"permitted_range": {"age": [18, 60], "sex": ["f"]}},
    ],
    ids=["features_to_vary", "permitted_range"],
)
def test_what_a_call_says_is_not_warned_of(constraints: dict[str, Any]) -> None:
    anonymizer = fitted()
    assert warned(lambda: anonymizer.explain(REFUSED, **constraints)) == []
    assert len(warned(lambda: anonymizer.explain(REFUSED))) == 1


def test_a_fit_for_an_audit_does_not_warn() -> None:
    with refitting():
        anonymizer = fitted()
    assert warned(lambda: anonymizer.explain(REFUSED)) == []


def test_a_server_writes_one_line_to_its_log(caplog: pytest.LogCaptureFixture) -> None:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(population(), grants, True)
    handler = RequestHandler(anonymizer, most=50)
    with caplog.at_level(logging.WARNING, "cfk_plugin"):
        assert warned(lambda: [handler.answer(REFUSED), handler.answer(REFUSED)]) == []
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "immutable=" in line] == [OF_BOTH]
