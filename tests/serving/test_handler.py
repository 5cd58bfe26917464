"""The handler of requests and the logged model, called in Python."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.errors import InputError, PolicyError
from cfk_plugin.serving import handler
from model_server import K, accepts, logged, patients

PEOPLE = patients()
GOOD: dict[str, Any] = {"age": 40, "town": "Ghent", "pay": 1_000_500, "illness": "a cold"}

# --- what cannot be read or written ---------------------------------------------------------------


def table() -> pd.DataFrame:
    """The patients with dates and fractions, public and private."""
    days = pd.Timestamp("2019-01-01") + pd.to_timedelta(range(len(PEOPLE)), unit="D")
    since = pd.to_datetime(["2020-01-01", "2021-05-05", "2022-07-01"] * (len(PEOPLE) // 3))
    height = [170 + i % 10 + i / 100 for i in range(len(PEOPLE))]
    return PEOPLE.assign(
        since=since, height=height, joined=days, rate=[i / 7 for i in range(len(PEOPLE))]
    )


TABLE = table()
SCHEMA = Schema.from_frame(TABLE, quasi_identifiers=["age", "town", "since", "height"])
WHOLE = {**GOOD, "since": "2021-05-05", "height": 171.5, "joined": "2019-02-03", "rate": 5.1}

REFUSED: dict[str, list[Any]] = {
    "age": [
        1e308,
        10**30,
        10**400,
        2**63,
        "1e400",
        "x",
        "",
        "1_0",
        "0x1A",
        [1],
        {},
        None,
        30.5,
        "2020-01-01",
        "nan",
    ],
    "height": [1e308, -1.79e308, 10**400, "1_0", "nan", [], "\ud800"],
    "town": ["\ud800", 5, True, "ghent", [], ""],
    "illness": [None, {"a": 1}, []],
    "since": ["2020-13-45", "20200101", 1_577_836_800, True, "yesterday", "\ud800", []],
    "joined": ["\ud800", 5, 1e308, "2019-02-03x", ""],
    "rate": ["\ud800", 1e308, "Infinity", {}, "2020-01-01"],
    "pay": [10**400, 2**63, -(2**65), 1e300, "one"],
}
# The dates of pandas 2 begin in 1677.
EARLY = "1700-01-01" if TABLE["joined"].dtype == "datetime64[ns]" else "0001-01-01"
CONFORMED: dict[str, list[Any]] = {
    "age": ["0", "40", True, 40.0, -5, 10**9],
    "height": ["0", "171.5", True, 1e15, 10**15],
    "illness": [5, True, 5.5, "", "Ω", "\x00", "𝔘", "\ud800", "a\udfff", float("inf"), 1e308],
    "since": ["2020-01-01T00:00:00Z", "2020-01-01T12:00:00+05:00", "2020-01-01T00:00:00.123456789"],
    "joined": [EARLY, "2019-02-03 10:00"],
    "rate": ["5", True, -1e15],
    "pay": ["5", True, 2**62],
}


def with_each(values: dict[str, list[Any]]) -> list[list[dict[str, Any]]]:
    """Return two rows for each value: as they should be, and with the value."""
    return [[WHOLE, {**WHOLE, name: value}] for name, some in values.items() for value in some]


@pytest.fixture(scope="module")
def anonymizer() -> KAnonymizer:
    shared = TABLE.assign(illness=["a cold", "a flu"] * (len(TABLE) // 2))
    population = Population.from_frame(shared, SCHEMA)
    return KAnonymizer(policy=PrivacyPolicy(k=K)).fit(population, accepts, 1)


@pytest.fixture(scope="module")
def answer(anonymizer: KAnonymizer) -> Callable[..., list[dict[str, Any]]]:
    return handler.RequestHandler(anonymizer, 50).answer


def test_a_request_may_limit_the_number_of_changes(answer: Any) -> None:
    young = pd.DataFrame([{**WHOLE, "age": 21}])  # the model accepts neither age nor pay
    assert answer(young)[0]["status"] == "released"
    assert answer(young, {"max_changes": None}) == answer(young, {})
    assert answer(young, {"max_changes": 1})[0]["reason"] == "no_actionable_answer"
    for limit in (0, -1, 2.5, True, "3"):
        with pytest.raises(handler.RequestError, match="max_changes"):
            answer(young, {"max_changes": limit})
    with pytest.raises(handler.RequestError, match="the only parameter is max_changes"):
        answer(young, {"k": K})


def test_a_failing_model_withholds_all_queries_without_a_person(answer: Any) -> None:
    """For a pay of 13 the model raises `SystemExit` with a training row in its text."""
    records = answer(pd.DataFrame([WHOLE, {**WHOLE, "pay": 13}]))
    assert [record["reason"] for record in records] == ["model_failed"] * 2
    assert not [illness for illness in PEOPLE["illness"] if illness in json.dumps(records)]


def test_an_internal_failure_is_a_constant_text(
    anonymizer: KAnonymizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [str(PEOPLE.iloc[0].to_dict())]
    monkeypatch.setattr(anonymizer, "explain", lambda queries, **options: broken)
    with pytest.raises(handler.RequestError) as refused:
        handler.RequestHandler(anonymizer, 10).answer(pd.DataFrame([WHOLE]))
    assert (refused.value.error_code, str(refused.value)) == ("INTERNAL_ERROR", handler.FAILED)


def test_values_that_cannot_be_are_refused(answer: Any) -> None:
    for rows in with_each(REFUSED):
        with pytest.raises(handler.RequestError, match=re.escape(handler.VALUES)) as refused:
            answer(pd.DataFrame(rows, dtype=object))
        assert refused.value.error_code == "INVALID_PARAMETER_VALUE", rows[1]


def test_values_that_can_be_conformed_are_answered(answer: Any) -> None:
    for rows in with_each(CONFORMED):
        records = answer(pd.DataFrame(rows, dtype=object))
        found = [record for record in records if record["reason"] != "already_desired"]
        assert len(found) == int(sum(~accepts(pd.DataFrame(rows, dtype=object)).astype(bool)))
        answered = [record for record in found if record["status"] == "released"]
        others = {record["reason"] for record in found if record not in answered}
        assert answered, rows[1]
        assert others <= {"unknown_category"}, rows[1]
        assert json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
        assert all(record["sentence"].startswith("The model would") for record in answered)


# --- logged models --------------------------------------------------------------------------------


def test_the_loaded_model_shows_and_pickles_nothing(tmp_path: Path, mlflow_store: str) -> None:
    import mlflow

    info = logged()
    loaded = mlflow.pyfunc.load_model(info.model_uri)
    inner = loaded.unwrap_python_model()
    assert not [name for name in vars(inner) if not name.startswith("_")]
    assert "SENTINEL" not in repr(inner) + repr(vars(inner)) + repr(loaded)
    with pytest.raises(TypeError, match="refuses to be pickled"):
        cloudpickle.dumps(inner)
    files = [path for path in Path(tmp_path).rglob("*") if path.is_file()]
    assert any(path.name == "catalogue.cfk" for path in files)
    pays = [str(pay).encode() for pay in PEOPLE["pay"]]
    for path in files:
        content = path.read_bytes()
        assert not [pay for pay in pays if pay in content], path.name
    tags = mlflow.models.get_model_info(info.model_uri).metadata
    assert tags["cfk.policy_sha256"] == PrivacyPolicy(k=K).sha256


def test_what_cannot_be_logged_is_refused(mlflow_store: str) -> None:
    with pytest.raises(InputError, match="a function as `desired` cannot be logged"):
        logged(desired=lambda labels: labels == 1)
    with pytest.raises(InputError, match="make one up"):
        logged(input_example=PEOPLE.head(1))
    with pytest.raises(PolicyError, match="needs a catalogue"):
        logged(policy=PrivacyPolicy(k=K, guarantee="lookup"))
