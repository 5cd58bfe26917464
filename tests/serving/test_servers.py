"""A real `mlflow models serve`: protected records for good requests, no person for bad ones.

How a server keeps records while things break is tested in `tests/tracking/test_in_servers.py`.
"""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest

import model_server
from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.serving import requests, save_protected_model
from model_server import (
    K,
    Server,
    accepts,
    fitted,
    logged,
    patients,
    serving,
    serving_command,
    store,
)
from parts import rows_of
from tracking_server import tracking_server

pytestmark = pytest.mark.slow

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
    with mlflow.start_run():
        command = serving_command(logged(policy=POLICY, population=population).model_uri)
    with serving(folder, uri, command) as running:
        yield running


def test_served_answers_equal_library_answers(server: Server, population: Population) -> None:
    """The answer is what `to_json` writes, with sentences, and people are behind each region."""
    rows = [{**GOOD, "age": age} for age in (25, 40, 58)]
    status, text = server.post(request(*rows))
    answer = json.loads(text)["predictions"]
    anonymizer = KAnonymizer(policy=POLICY).fit(population, model=accepts, desired=1)
    explanations = anonymizer.explain(pd.DataFrame(rows))
    assert status == 200
    assert answer == json.loads(explanations.to_json_with_sentences(pd.DataFrame(rows)))
    released = [entry for entry in answer["explanations"] if entry["status"] == "released"]
    assert released
    for entry in released:
        age = entry["region"]["age"]
        has_age = TRAIN["age"].between(age["low"], age["high"])
        has_town = TRAIN["town"].isin(entry["region"]["town"]["values"])
        assert K == entry["certificate"]["k"] <= (has_age & has_town).sum()


def test_request_chooses_the_language(server: Server) -> None:
    """Without the parameter it is the schema's."""
    for params, start in ((None, "The model would"), ({"language": "de"}, "Das Modell würde")):
        _, text = server.post({"dataframe_records": [GOOD], "params": params or {}})
        (entry,) = json.loads(text)["predictions"]["explanations"]
        assert entry["sentence"].startswith(start)


def test_health_probe_is_answered(server: Server) -> None:
    """MLflow's server has a place for probes, which needs no body."""
    with urllib.request.urlopen(f"{server.url}/health", timeout=10) as reply:
        assert reply.status == 200


def request(*rows: dict[str, Any], **params: Any) -> dict[str, Any]:
    return {"dataframe_records": list(rows), "params": params}


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


BAD: list[dict[str, Any]] = [
    {"age": 40, "town": "Ghent"},
    {},
    {**GOOD, "age": "SENTINEL"},
    {**GOOD, "town": "SENTINEL" * 125_000},
    {**GOOD, "town": json.loads(nested(100))},
    {**GOOD, "town": {"a": {"b": {"c": "SENTINEL"}}}},
    {**GOOD, "age": 10**400},
]


def test_bad_rows_are_withheld_alone(server: Server) -> None:
    """Rows around them are answered, and their values are not repeated."""
    status, text = server.post(request(GOOD, *BAD, GOOD))
    first, *bad, last = json.loads(text)["predictions"]["explanations"]
    assert status == 200
    assert {entry["status"] for entry in bad} == {"withheld"}
    assert first["status"] == last["status"] == "released"
    assert "SENTINEL" not in text


OURS: dict[str, tuple[Any, str]] = {
    "too many rows": (request(*[GOOD] * 51), requests.TOO_MANY),
    "columns of others": (request({"SENTINEL": 1}), requests.NO_TABLE),
    "a tensor": ({"inputs": [[1, 2], [3, 4]]}, requests.NO_TABLE),
    "a language that is a path": (request(GOOD, language="/etc/SENTINEL"), requests.LANGUAGE),
}


@pytest.mark.parametrize(("body", "message"), OURS.values(), ids=OURS)
def test_bad_request_gets_constant_text(server: Server, body: Any, message: str) -> None:
    """The text names columns of the signature at most."""
    status, text = server.post(body)
    assert (status, json.loads(text)["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert json.loads(text)["message"].startswith(message)
    assert "SENTINEL" not in text


ECHOED: dict[str, tuple[Any, str, int]] = {
    "not JSON": (b"SENTINEL", "application/json", 400),
    "a parameter of another type": (
        request({**GOOD, "town": "SENTINEL"}, max_changes="x"),
        "application/json",
        400,
    ),
    "a column twice": (
        {"dataframe_split": {"columns": ["age", "age"], "data": [["SENTINEL", 1]]}},
        "application/json",
        400,
    ),
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


FAILING: dict[str, tuple[bytes, str]] = {
    "JSON that is too deep": (nested(100_000).encode(), "application/json"),
    "JSON of another form": (b"null", "application/json"),
    "no body": (b"", "application/json"),
    "half a character": (
        json.dumps(request({**GOOD, "town": "\ud800"})).encode(),
        "application/json",
    ),
    "bytes": (bytes(range(256)), "application/json"),
    "CSV without columns": (b"\x00\n\x00,\x00", "text/csv"),
    "Parquet that is none": (b"PAR1 SENTINEL PAR1", "application/vnd.apache.parquet"),
}


@pytest.mark.parametrize(("body", "kind"), FAILING.values(), ids=FAILING)
def test_unreadable_body_harms_nothing(server: Server, body: bytes, kind: str) -> None:
    """MLflow's server refuses it, and answers the next request."""
    status, text = server.post(body, kind)
    assert status in (400, 500)
    assert not values_of_people(text)
    assert server.post(request(GOOD))[0] == 200


def test_failing_model_withholds_without_a_person(server: Server) -> None:
    """For a pay of 13 the model raises `SystemExit` with a training row in its text."""
    status, text = server.post(request({**GOOD, "pay": 13}))
    (entry,) = json.loads(text)["predictions"]["explanations"]
    assert (status, entry["status"], entry["reason"]) == (200, "withheld", "model_failed")
    assert not values_of_people(text)
    assert not values_of_people(server.console.read_text(errors="replace"))


def values_of_people(text: str) -> list[str]:
    return [str(pay) for pay in TRAIN["pay"] if str(pay) in text]


def test_strict_server_releases_only_recorded_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its working folder is gone, as a disk may be, and comes back; MLflow's server comes last."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    code = [model_server.__file__]
    options: dict[str, Any] = {"pip_requirements": [], "code_paths": code}
    save_protected_model(fitted(), tmp_path / "model", track=True, strict=True, **options)
    command = serving_command(str(tmp_path / "model"))
    with tracking_server(tmp_path) as tracking:
        with serving(tmp_path, tracking.url, command, MLFLOW_EXPERIMENT_ID="") as server:
            shutil.rmtree(folder)
            _, text = server.post(request({**GOOD, "illness": "a cold"}))
            (entry,) = json.loads(text)["predictions"]["explanations"]
            assert entry["reason"] == "not_recorded"
            folder.mkdir()
            _, text = server.post(request({**GOOD, "illness": "a cold"}))
            (entry,) = json.loads(text)["predictions"]["explanations"]
            assert entry["status"] == "released"
            tracking.start()
            end = time.monotonic() + 120
            while [*folder.glob("cfk-journal-*.jsonl")]:
                assert time.monotonic() < end
                time.sleep(0.1)
        (run,) = mlflow.MlflowClient(tracking.url).search_runs(["0"])
        assert run.data.metrics["cfk.asked"] == len(rows_of(run.info.run_id, tracking.url)) == 1
