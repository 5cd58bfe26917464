"""Requests that nobody would send by mistake: whatever comes in, protected records or an error without a row go out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfk_plugin.serving import handler
from cfk_plugin.serving import server as serve_command
from model_server import K, Server, by_cfk, by_mlflow, patients, serving, store

pytestmark = pytest.mark.slow

PEOPLE = patients()
SECRETS = [*PEOPLE["illness"], *map(str, PEOPLE["pay"])]
CONSTANTS = {
    value
    for module in (handler, serve_command)
    for value in vars(module).values()
    if isinstance(value, str) and " " in value
}
OUR_FAULT = {handler.FAILED, serve_command.FAILED}
NAMES = list(PEOPLE)
GOOD: dict[str, Any] = {"age": 40, "town": "Ghent", "pay": 1_000_500, "illness": "a cold"}

numbers = st.one_of(
    st.integers(-(10**30), 10**30), st.floats(), st.sampled_from([0, -1, 25.5, 97, 98, 1e308, -0.0, 2**63, True])
)
scalars = st.one_of(st.none(), numbers, st.text(max_size=20), st.sampled_from(["", "NaN", "40", "Atlantis", "\x00"]))
values = st.recursive(
    scalars, lambda of: st.one_of(st.lists(of, max_size=3), st.dictionaries(st.text(), of, max_size=3))
)
names = st.one_of(st.sampled_from(NAMES), st.text(max_size=8))


@st.composite
def spoiled_rows(draw: st.DrawFn) -> Any:
    """Rows that are right but for some cells and columns."""
    rows = [dict(GOOD) for _ in range(draw(st.integers(1, 4)))]
    for row in rows:
        for name in draw(st.lists(st.sampled_from(NAMES), max_size=2)):
            row[name] = draw(values)
        for name in draw(st.lists(names, max_size=1)):
            row.pop(name, None) if draw(st.booleans()) else row.update({name: draw(values)})
    if draw(st.booleans()):
        return {"dataframe_records": rows}
    columns = list(rows[0]) + draw(st.lists(names, max_size=1))
    return {"dataframe_split": {"columns": columns, "data": [list(row.values()) for row in rows]}}


params = st.one_of(
    values, st.fixed_dictionaries({"k": st.one_of(numbers, values)}), st.just({"k": 1, "policy": {"k": 1}})
)
bodies = st.one_of(
    spoiled_rows(),
    st.builds(lambda rows, given: {**rows, "params": given}, spoiled_rows(), params),
    st.dictionaries(st.sampled_from(["inputs", "instances", "dataframe_split", "dataframe_records", "params"]), values),
    values,
)
encoded = bodies.map(lambda body: json.dumps(body).encode())
LONG = {b"deep list": b"[" * 100_000, b"deep table": b'{"dataframe_records":' * 2_000}
requests = st.one_of(
    encoded,
    st.builds(lambda text, at: text[: at % (len(text) + 1)], encoded, st.integers(0, 1000)),
    st.binary(max_size=50),
    st.sampled_from([*LONG, b"\xef\xbb\xbf{}", b"null", b'{"k":1e999}']),
)
kinds = st.sampled_from(
    [*["application/json"] * 12, "application/json; charset=utf-16", "text/csv", "", "a/b", "application/octet-stream"]
)


@pytest.fixture(scope="module", params=[by_mlflow, by_cfk])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    uri = store(folder)
    with serving(folder, uri, request.param(folder)) as found:
        yield found


def people_of(record: dict[str, Any]) -> int:
    said = {feature["name"]: feature for feature in record["features"]}
    towns, low, high = said["town"]["values"], said["age"]["low"], said["age"]["high"]
    return int(((PEOPLE["age"] >= low) & (PEOPLE["age"] <= high) & PEOPLE["town"].isin(towns)).sum())


def check_answer(status: int, text: str) -> None:
    assert "Traceback" not in text
    assert "stack_trace" not in text
    if status == 200:
        for record in json.loads(text)["predictions"]:
            assert record["status"] == "suppressed" or K <= record["k"] == people_of(record)
        return
    assert not [secret for secret in SECRETS if secret in text]
    assert status in (400, 413, 415, 500)
    if status == 500:
        assert json.loads(text)["message"] in OUR_FAULT
    assert text in CONSTANTS or json.loads(text)["message"] in CONSTANTS


def test_two_hundred_hostile_requests(server: Server) -> None:
    seen: Counter[int] = Counter()

    @settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    @given(requests, kinds)
    def sent(content: bytes, kind: str) -> None:
        status, text = server.post(LONG.get(content, content), kind)
        seen[status] += 1
        check_answer(status, text)

    sent()
    assert seen.total() >= 200
    assert {200, 400, 415} <= set(seen)
    assert not [secret for secret in SECRETS if secret in server.console.read_text()]
    status, text = server.post({"dataframe_records": [GOOD]})  # it still works
    assert (status, json.loads(text)["predictions"][0]["status"]) == (200, "released")
