"""A real `mlflow models serve`: protected records for good requests, no person for bad ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.serving import handler
from model_server import K, Server, accepts, by_mlflow, patients, serving, store

pytestmark = [pytest.mark.slow, pytest.mark.full_search]  # searched as long as in the server

TRAIN = patients()[["age", "town", "pay"]]
POLICY = PrivacyPolicy(k=K)
GOOD: dict[str, Any] = {"age": 40, "town": "Ghent", "pay": 1_000_500}


@pytest.fixture(scope="module")
def population() -> Iterator[Population]:
    """People under the key that the server gets, so that both processes form the same groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CFK_KEY", "of this server and this test")
        schema = Schema.from_frame(TRAIN, quasi_identifiers=["age", "town"])
        yield Population.from_frame(TRAIN, schema)


@pytest.fixture(scope="module")
def server(population: Population, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("mlflow")
    uri = store(folder)
    command = by_mlflow(folder, policy=POLICY, population=population)
    with serving(folder, uri, command) as running:
        yield running


def test_served_records_are_the_explanations_of_the_library(
    server: Server, population: Population
) -> None:
    rows = [{**GOOD, "age": age} for age in (25, 40, 58)]
    status, text = server.post({"dataframe_records": rows})
    records = json.loads(text)["predictions"]
    anonymizer = KAnonymizer(policy=POLICY).fit(population, model=accepts, desired=1)
    explanations = anonymizer.explain(pd.DataFrame(rows))
    assert status == 200
    assert [record["sentence"] for record in records] == explanations.text(pd.DataFrame(rows))
    released = [record for record in records if record["status"] == "released"]
    assert released
    for record in released:
        age, town, _ = record["features"]
        has_age = TRAIN["age"].between(age["low"], age["high"])
        has_town = TRAIN["town"].isin(town["values"])
        assert K == record["k"] <= (has_age & has_town).sum()


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key != name}


def request(row: dict[str, Any], n: int = 1, **params: Any) -> dict[str, Any]:
    return {"dataframe_records": [row] * n, "params": params}


OURS: dict[str, tuple[Any, str]] = {
    "a missing column": (request(without("pay")), f"{handler.COLUMNS}; missing: 'pay'"),
    "no rows": ({"dataframe_records": []}, handler.NO_TABLE),
    "too many rows": (request(GOOD, 51), handler.TOO_MANY),
    "a fraction": (request({**GOOD, "age": 40.5}), f"{handler.VALUES}: a fraction in column 'age'"),
    "text in a number": (
        request({**GOOD, "age": "SENTINEL"}),
        f"{handler.VALUES}: a value of another type in column 'age'",
    ),
    "an unknown category": (
        request({**GOOD, "town": "SENTINEL"}),
        f"{handler.VALUES}: an unknown category in column 'town'",
    ),
    "a list in a cell": (
        request({**GOOD, "town": ["SENTINEL"]}),
        f"{handler.VALUES}: a value of another type in column 'town'",
    ),
    "no changes": (request(GOOD, max_changes=0), handler.CHANGES),
}


@pytest.mark.parametrize(("body", "message"), OURS.values(), ids=OURS)
def test_the_model_refuses_with_a_constant_text(server: Server, body: Any, message: str) -> None:
    status, text = server.post(body)
    assert (status, json.loads(text)["message"]) == (400, message)


ECHOED: dict[str, tuple[Any, str, int]] = {
    "not JSON": (b"SENTINEL", "application/json", 400),
    "a parameter of another type": (request(GOOD, max_changes="SENTINEL"), "application/json", 400),
    "another content type": (b"", "text/SENTINEL", 415),
}


@pytest.mark.parametrize(("body", "kind", "expected"), ECHOED.values(), ids=ECHOED)
def test_mlflow_echoes_the_request_only(
    server: Server, body: Any, kind: str, expected: int
) -> None:
    """The page on serving lists what MLflow quotes; this test fails when MLflow stops doing so."""
    status, text = server.post(body, kind)
    assert status == expected
    assert "SENTINEL" in text
    assert not values_of_people(text)


def test_a_failing_model_withholds_without_a_person(server: Server) -> None:
    """For a pay of 13 the model raises `SystemExit` with a training row in its text."""
    status, text = server.post(request({**GOOD, "pay": 13}))
    (record,) = json.loads(text)["predictions"]
    assert (status, record["status"], record["reason"]) == (200, "withheld", "model_failed")
    assert not values_of_people(text)
    assert not values_of_people(server.console.read_text())


def values_of_people(text: str) -> list[str]:
    return [str(pay) for pay in TRAIN["pay"] if str(pay) in text]
