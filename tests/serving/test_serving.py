"""A protected model behind a real `mlflow models serve`: what leaves over HTTP, and what errors say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cfk_plugin import Ledger, PrivacyPolicy, protect
from cfk_plugin.errors import InputError, LedgerError, PolicyError
from cfk_plugin.serving import handler
from cfk_plugin.serving.handler import opened
from model_server import (
    K,
    NearestInAge,
    Server,
    accepts,
    by_cfk,
    by_mlflow,
    logged,
    patients,
    population,
    serving,
    store,
)

QUERIES = pd.DataFrame(
    {
        "age": [25, 40, 58],
        "town": ["Ghent", "Namur", "Ghent"],
        "pay": [1_000_500, 1_000_600, 1_000_700],
        "illness": ["a cold"] * 3,
    }
)


@pytest.fixture(scope="module", params=[by_mlflow, by_cfk])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    uri = store(folder)
    weak = '{"k": 1, "policy": {"k": 1}}'
    with serving(folder, uri, request.param(folder), SERVING_MODEL_CONFIG=weak) as found:
        yield found


def split(frame: pd.DataFrame = QUERIES, **changes: Any) -> dict[str, Any]:
    body = json.loads(frame.assign(**changes).to_json(orient="split", index=False))
    return {"dataframe_split": body}


def released(server: Server, body: Any) -> list[dict[str, Any]]:
    status, text = server.post(body)
    assert status == 200, text
    return json.loads(text)["predictions"]


def holds(record: dict[str, Any], person: dict[str, Any]) -> bool:
    """Whether a person's quasi-identifiers fit a record."""
    said = {feature["name"]: feature for feature in record["features"]}
    return said["age"]["low"] <= person["age"] <= said["age"]["high"] and person["town"] in said["town"]["values"]


def people(record: dict[str, Any]) -> int:
    return sum(holds(record, person) for person in patients().to_dict("records"))


def test_every_answer_is_a_record_that_enough_people_fit(server: Server) -> None:
    records = released(server, split())
    keys = {"query", "status", "reason", "sentence", "k", "ncp", "pureness", "features"}
    assert [set(record) for record in records] == [keys] * 3
    for record in records:
        assert record["status"] == "released"
        assert K <= record["k"] == people(record)
        assert 0 <= record["ncp"] <= 1
        assert [f["name"] for f in record["features"]] == list(QUERIES)
        assert record["sentence"].startswith("If you ")


def test_the_server_releases_what_the_library_releases(server: Server) -> None:
    policy = PrivacyPolicy(k=K)
    here = protect(NearestInAge(patients()), model=accepts, population=population(), policy=policy, desired=1)
    for record, entry in zip(released(server, split()), here.explain(QUERIES).released, strict=True):
        age, town = record["features"][0], record["features"][1]
        assert (age["low"], age["high"]) == (entry.region["age"].low, entry.region["age"].high)
        assert set(town["values"]) == set(entry.region["town"])
        assert (record["k"], record["pureness"]) == (entry.certificate.k, entry.certificate.pureness)


def test_k_can_be_raised(server: Server) -> None:
    low, high = released(server, split()), released(server, {**split(), "params": {"k": 20}})
    assert all(20 <= record["k"] == people(record) for record in high)
    for small, large in zip(low, high, strict=True):
        assert all(holds(large, p) for p in patients().to_dict("records") if holds(small, p))


@pytest.mark.parametrize("k", [K - 1, 1, 0, -3])
def test_k_cannot_be_lowered(server: Server, k: int) -> None:
    status, text = server.post({**split(), "params": {"k": k}})
    assert (status, json.loads(text)["message"]) == (400, handler.FLOOR)


def test_other_parameters_and_configuration_change_nothing(server: Server) -> None:
    plain = released(server, split())
    assert released(server, {**split(), "params": {"policy": {"k": 1}, "guarantee": "nominal", "seed": 7}}) == plain
    assert all(record["k"] >= K for record in plain)


HOSTILE: dict[str, tuple[Any, str | None]] = {
    "a column is missing": (split(QUERIES.drop(columns="pay")), handler.COLUMNS),
    "no rows": (split(QUERIES.head(0)), handler.NO_TABLE),
    "half a year": (split(age=[25.5, 40, 58]), handler.VALUES),
    "a missing number": (split(age=[None, 40, 58]), handler.VALUES),
    "a missing category": (split(town=[None, "Ghent", "Ghent"]), handler.VALUES),
    "text in a number": (split(age=["SENTINELtext", 40, 58]), handler.VALUES),
    "an unknown category": (split(town=["Atlantis", "Ghent", "Ghent"]), handler.VALUES),
    "a list in a cell": (split(town=[["Ghent"], "Ghent", "Ghent"]), None),
    "too many rows": (split(pd.concat([QUERIES] * 40_000)), handler.TOO_MANY),
    "k above everybody": ({**split(), "params": {"k": 10**6}}, handler.TOO_LARGE),
    "k is text": ({**split(), "params": {"k": "5"}}, None),
    "k is half": ({**split(), "params": {"k": 5.5}}, None),
    "k is a list": ({**split(), "params": {"k": [5]}}, None),
    "no known key": ({"rows": []}, None),
    "a list": ([1, 2], None),
    "no JSON": (b'{"dataframe_split": ', None),
    "no UTF-8": (b"\xff\xfe{}", None),
    "nothing": (b"", None),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_requests_get_a_4xx_and_no_row(server: Server, name: str) -> None:
    body, message = HOSTILE[name]
    status, text = server.post(body)
    assert 400 <= status < 500
    if message is not None:
        assert json.loads(text)["message"] == message
    assert "Traceback" not in text
    assert "SENTINEL0" not in text
    assert not any(str(pay) in text for pay in patients()["pay"])


def test_another_content_type_is_refused(server: Server) -> None:
    assert server.post(b"x", "text/html")[0] == 415


@pytest.mark.parametrize("age", [97, 98])
def test_an_explainer_that_fails_gives_suppressed_records(server: Server, age: int) -> None:
    status, text = server.post(split(age=[age, 40, 58]))
    assert status == 200
    found = json.loads(text)["predictions"]
    assert {(record["status"], record["reason"]) for record in found} == {("suppressed", "explainer_failed")}
    assert "SENTINEL" not in text
    assert "SENTINEL" not in server.console.read_text()


def test_concurrent_requests_get_the_answers_of_single_ones(server: Server) -> None:
    bodies = [split(QUERIES.iloc[[i % 3]], age=20 + i % 35) for i in range(32)]
    single = [released(server, body) for body in bodies]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda body: released(server, body), bodies)) == single


def test_the_loaded_model_shows_and_pickles_nothing(tmp_path: Path, mlflow_store: str) -> None:
    import cloudpickle
    import mlflow

    info = logged()
    loaded = mlflow.pyfunc.load_model(info.model_uri)
    inner = loaded.unwrap_python_model()
    assert not [name for name in vars(inner) if not name.startswith("_")]
    assert "SENTINEL" not in repr(inner) + repr(vars(inner)) + repr(loaded)
    with pytest.raises(TypeError, match="refuses to be pickled"):
        cloudpickle.dumps(inner)
    files = [path for path in Path(tmp_path).rglob("*") if path.is_file() and path.name != "explainer.pkl"]
    assert any(path.name == "population.cfk" for path in files)
    assert not [path.name for path in files if b"SENTINEL0" in path.read_bytes()]
    tags = mlflow.models.get_model_info(info.model_uri).metadata
    assert tags["cfk.policy_sha256"] == PrivacyPolicy(k=K).sha256


def test_what_cannot_be_logged_is_refused(mlflow_store: str) -> None:
    with pytest.raises(InputError, match="callable"):
        logged(desired=lambda labels: labels == 1)
    with pytest.raises(InputError, match="make one up"):
        logged(input_example=patients().head(1))
    with pytest.raises(PolicyError, match="cannot hold"):
        logged(policy=PrivacyPolicy(k=K, guarantee="catalogue"))


def test_a_bundle_without_a_policy_gets_none_made_up(tmp_path: Path) -> None:
    population().seal(tmp_path / "bare.cfk")
    with pytest.raises(PolicyError, match="no policy"):
        opened(tmp_path / "bare.cfk")


def test_an_unsealed_population_can_stand_behind_a_desk() -> None:
    whole = population()

    def make(policy: PrivacyPolicy) -> Any:
        return protect(NearestInAge(patients()), model=accepts, population=whole, policy=policy, desired=1)

    answers = handler.RequestHandler(whole, PrivacyPolicy(k=K), make, 10).answer(QUERIES, {"k": 7})
    assert all(record["k"] >= 7 for record in answers)


def test_every_k_is_answered_by_one_of_a_few_partitions() -> None:
    whole, made = population(), []

    def make(policy: PrivacyPolicy) -> Any:
        made.append(policy.k)
        return protect(NearestInAge(patients()), model=accepts, population=whole, policy=policy, desired=1)

    counter = handler.RequestHandler(whole, PrivacyPolicy(k=K), make, 10)
    for k in range(K, whole.n_people + 1):
        assert all(record["k"] >= k for record in counter.answer(QUERIES.head(1), {"k": k}))
    assert made == [5, 10, 20, 40, 60]


def test_servers_that_share_a_ledger_give_a_record_one_region(
    tmp_path: Path, mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    def server(k: int) -> Any:
        return mlflow.pyfunc.load_model(logged(k, ledger=True).model_uri)

    with pytest.raises(LedgerError, match="set CFK_LEDGER"):
        server(K)
    monkeypatch.setenv("CFK_LEDGER", str(tmp_path / "ledger.db"))
    monkeypatch.setenv("CFK_LEDGER_KEY", "a secret of the servers")
    with pytest.raises(LedgerError, match="cfk ledger create"):
        server(K)
    Ledger(create=True).close()
    first, second = server(K), server(K + 4)
    before = first.predict(QUERIES)
    after = second.predict(QUERIES)
    assert {record["status"] for record in before} == {"released"}
    for old, new in zip(before, after, strict=True):
        assert new["status"] == "suppressed" or new["features"] == old["features"]
