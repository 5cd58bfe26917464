"""Requests: one bad row spoils no other, and a refusal is a constant text."""

from __future__ import annotations

import json
import traceback
from importlib.resources import files
from typing import Any

import pandas as pd
import pytest
from jsonschema import Draft202012Validator

from cfk_plugin import (
    Attribute,
    DPPrototypes,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    ProtectedExplainer,
    Schema,
)
from cfk_plugin.serving import requests
from cfk_plugin.serving.model import explainer_of
from model_server import K, accepts, patients

PEOPLE = patients()
GOOD: dict[str, Any] = {
    "age": 40,
    "town": "Ghent",
    "pay": 1_000_500,
    "illness": "a cold",
    "since": "2021-05-05",
    "height": 171.5,
    "joined": "2019-02-03",
    "rate": 5.1,
}
BAD: dict[str, list[Any]] = {
    "age": [1e308, 10**400, "1e400", "x", "", "1_0", "0x1A", [1], {}, None, "2020-01-01", "nan"],
    "height": [1e308, -1.79e308, 10**400, "1_0", "nan", [], "\ud800"],
    "town": ["\ud800", 5, True, "ghent", [], ""],
    "illness": [None, {"a": 1}, [], "Ω", "\ud800", "\x00", 5, float("inf")],
    "since": ["2020-13-45", "20200101", 1_577_836_800, True, "yesterday", "\ud800", []],
    "joined": ["\ud800", 5, 1e308, "2019-02-03x", ""],
    "rate": ["\ud800", 1e308, "Infinity", {}, "2020-01-01"],
    "pay": [10**400, 1e300, "one"],
}
SPELLED: dict[str, list[Any]] = {
    "age": ["40", True, 40.0, 30.5, 10**9],
    "height": ["171.5", True, 1e15],
    "since": ["2020-01-01T00:00:00Z", "2020-01-01T12:00:00+05:00"],
    "joined": ["1700-01-01", "2019-02-03 10:00"],
    "rate": ["5", True, -1e15],
    "pay": ["5", True, -(2**65)],
}


def rows_with(values: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(name, value) for name, some in values.items() for value in some]


@pytest.fixture(scope="module")
def explainer() -> ProtectedExplainer:
    """Return an explainer of patients with dates and fractions, public and private."""
    n = len(PEOPLE)
    days = pd.Timestamp("2019-01-01") + pd.to_timedelta(range(n), unit="D")
    table = PEOPLE.assign(
        illness=["a cold", "a flu"] * (n // 2),
        since=pd.to_datetime(["2020-01-01", "2021-05-05", "2022-07-01"] * (n // 3)),
        height=[170 + i % 10 + i / 100 for i in range(n)],
        joined=days,
        rate=[i / 7 for i in range(n)],
    )
    schema = Schema.from_frame(table, quasi_identifiers=["age", "town", "since", "height"])
    population = Population.from_frame(table, schema)
    return explainer_of(KAnonymizer(policy=PrivacyPolicy(k=K)).fit(population, accepts, 1))


@pytest.fixture(scope="module")
def prototypes() -> ProtectedExplainer:
    """Return an explainer that answers with prototypes."""
    table = PEOPLE[["age", "town", "pay"]]
    columns = {
        "age": Attribute(bounds=(18, 70)),
        "town": Attribute(categories=["Ghent", "Liège", "Namur"]),
        "pay": Attribute(bounds=(0, 2_000_000)),
    }
    schema = Schema.from_frame(table, quasi_identifiers=["age"], columns=columns, nullable=[])
    population = Population.from_frame(table, schema)
    with pytest.warns(match="seeded"):
        fitted = DPPrototypes(rows=500, random_state=0).fit(population, accepts, 1)
    return explainer_of(fitted)


def answer(explainer: ProtectedExplainer, *rows: dict[str, Any], **params: Any) -> dict[str, Any]:
    """Answer rows as the server does."""
    return requests.answer_request(explainer, pd.DataFrame(rows, dtype=object), params, most=50)


def test_answer_has_the_released_form(explainer: ProtectedExplainer) -> None:
    """It validates against the schema of released explanations."""
    content = answer(explainer, GOOD, {**GOOD, "age": None})
    text = (files("cfk_plugin") / "schemas" / "explanations-1.schema.json").read_text("utf-8")
    Draft202012Validator(json.loads(text)).validate(content)
    assert [entry["status"] for entry in content["explanations"]] == ["released", "withheld"]


@pytest.mark.parametrize(("name", "value"), rows_with(BAD))
def test_bad_row_spoils_no_other(explainer: ProtectedExplainer, name: str, value: Any) -> None:
    """Its own answer is withheld for its value, which is not repeated."""
    alone = answer(explainer, GOOD)["explanations"][0]
    first, bad, last = answer(explainer, GOOD, {**GOOD, name: value}, GOOD)["explanations"]
    assert first == alone
    assert last == {**alone, "query": 2}
    assert bad["reason"] in ("invalid_value", "missing_value", "unknown_category")
    assert bad["columns"] == [name]


@pytest.mark.parametrize(("name", "value"), rows_with(SPELLED))
def test_other_spelling_is_answered(explainer: ProtectedExplainer, name: str, value: Any) -> None:
    """What can be read as the column's type is."""
    _, entry = answer(explainer, GOOD, {**GOOD, name: value})["explanations"]
    assert entry["status"] == "released"
    assert entry["sentence"].startswith("The model would")


@pytest.mark.parametrize("name", ["age", "town", "pay"])
def test_prototypes_answer_next_to_bad_rows(prototypes: ProtectedExplainer, name: str) -> None:
    """A row of any values changes no answer to another row."""
    row = {name: GOOD[name] for name in ("age", "town", "pay")}
    alone = answer(prototypes, row)["explanations"][0]
    for value in (None, "\ud800", [], {}, 10**400):
        first, _ = answer(prototypes, row, {**row, name: value})["explanations"]
        assert first == alone


def test_request_names_its_language(explainer: ProtectedExplainer) -> None:
    """A language is one of those that come with the package, never a file."""
    (entry,) = answer(explainer, GOOD, language="de")["explanations"]
    assert entry["sentence"].startswith("Das Modell würde")
    for language in ("xx", "/etc/passwd", "../de", "DE"):
        with pytest.raises(requests.RequestError) as refused:
            answer(explainer, GOOD, language=language)
        assert refused.value.message == requests.LANGUAGE


def test_request_limits_the_changes(explainer: ProtectedExplainer) -> None:
    """The model accepts neither the age nor the pay of this person."""
    young = {**GOOD, "age": 21}
    assert answer(explainer, young)["explanations"][0]["status"] == "released"
    (entry,) = answer(explainer, young, max_changes=1)["explanations"]
    assert entry["reason"] == "no_actionable_answer"
    for limit in (0, -1, 2.5, True, "3"):
        with pytest.raises(requests.RequestError) as refused:
            answer(explainer, young, max_changes=limit)
        assert refused.value.message == requests.CHANGES


def test_failing_model_withholds_everything(explainer: ProtectedExplainer) -> None:
    """For a pay of 13 the model raises `SystemExit` with a training row in its text."""
    entries = answer(explainer, GOOD, {**GOOD, "pay": 13})["explanations"]
    assert [entry["reason"] for entry in entries] == ["model_failed"] * 2


def test_failure_is_a_constant_text(
    explainer: ProtectedExplainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow's server sends the traceback of an error to the client."""
    secret = str(PEOPLE.iloc[0].to_dict())

    def fail(*args: Any, **named: Any) -> None:
        raise ValueError(secret)

    monkeypatch.setattr(explainer.anonymizer, "explain", fail)
    with pytest.raises(requests.RequestError) as failed:
        answer(explainer, GOOD)
    assert (failed.value.error_code, failed.value.message) == ("INTERNAL_ERROR", requests.FAILED)
    failed.value.message = secret  # as MLflow's server adds the queries
    assert secret not in "".join(traceback.format_exception(failed.value))


def test_largest_request_is_answered(explainer: ProtectedExplainer) -> None:
    """The limit of rows is the number that a request may have."""
    content = requests.answer_request(explainer, pd.DataFrame([GOOD] * 2), {}, most=2)
    assert len(content["explanations"]) == 2


NOT_TABLES: dict[str, tuple[Any, str]] = {
    "no table": ([GOOD], requests.NO_TABLE),
    "no rows": (pd.DataFrame([GOOD]).head(0), requests.NO_TABLE),
    "too many rows": (pd.DataFrame([GOOD] * 51), requests.TOO_MANY),
    "a missing column": (pd.DataFrame([GOOD]).drop(columns="pay"), requests.COLUMNS),
    "a repeated column": (pd.DataFrame([[1] * 9], columns=[*GOOD, "pay"]), requests.COLUMNS),
    "numbered columns": (pd.DataFrame([[1] * 8]), requests.COLUMNS),
}


@pytest.mark.parametrize(("queries", "message"), NOT_TABLES.values(), ids=NOT_TABLES)
def test_request_without_queries_is_refused(
    explainer: ProtectedExplainer, queries: Any, message: str
) -> None:
    """A refusal names columns at most."""
    with pytest.raises(requests.RequestError) as refused:
        requests.answer_request(explainer, queries, {}, most=50)
    assert refused.value.message.startswith(message)
    assert refused.value.error_code == "INVALID_PARAMETER_VALUE"
