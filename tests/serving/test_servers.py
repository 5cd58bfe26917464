"""`mlflow models serve` and `cfk serve`: whatever comes in, protected records or an error without a
row go out.
"""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfk_plugin import PrivacyPolicy, protect
from cfk_plugin.release.results import WITHHOLDING_REASONS
from cfk_plugin.serving import handler
from cfk_plugin.serving import server as serve_command
from model_server import (
    BESIDE,
    HAZARDS,
    RUBBISH,
    SPOILED,
    K,
    NearestInAge,
    Server,
    accepts,
    by_cfk,
    by_mlflow,
    patients,
    population,
    serving,
    store,
)

pytestmark = pytest.mark.full_search  # as in the processes of the servers

PEOPLE = patients()
SECRETS = [*PEOPLE["illness"], *map(str, PEOPLE["pay"])]
GOOD: dict[str, Any] = {"age": 40, "town": "Ghent", "pay": 1_000_500, "illness": "a cold"}
QUERIES = pd.DataFrame([GOOD] * 3).assign(age=[25, 40, 58], town=["Ghent", "Namur", "Ghent"])
CONSTANTS = {
    value
    for module in (handler, serve_command)
    for value in vars(module).values()
    if isinstance(value, str) and " " in value
}
THREADS, READING = 4, 1.0  # of `cfk serve`, and the seconds that it gives a client, here


@pytest.fixture(scope="module", autouse=True)
def one_key() -> Iterator[None]:
    """Let the servers and this process divide people alike, also where several ways are equally
    good.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CFK_KEY", "of these servers and this test")
        yield


@pytest.fixture(scope="module")
def cfk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("cfk")
    uri = store(folder)
    limits = ["--threads", str(THREADS), "--timeout", "30", "--read-timeout", str(READING)]
    with serving(folder, uri, by_cfk(folder, *limits)) as found:
        yield found


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("mlflow")
    uri = store(folder)
    with serving(
        folder, uri, by_mlflow(folder), SERVING_MODEL_CONFIG='{"k": 1, "policy": {"k": 1}}'
    ) as found:
        yield found


@pytest.fixture(params=["mlflow", "cfk"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


def split(frame: pd.DataFrame = QUERIES, **changes: Any) -> dict[str, Any]:
    return {
        "dataframe_split": json.loads(frame.assign(**changes).to_json(orient="split", index=False))
    }


def asked(*ages: object) -> dict[str, Any]:
    return {"dataframe_records": [{**GOOD, "age": age} for age in ages]}


def records(server: Server, body: Any) -> list[dict[str, Any]]:
    """Return what a server answers, and check that enough people fit whatever it released."""
    status, text = server.post(body)
    assert status == 200, text
    found: list[dict[str, Any]] = json.loads(text)["predictions"]
    assert all(
        record["status"] == "withheld" or K <= record["k"] == len(inside(record))
        for record in found
    )
    return found


def inside(record: dict[str, Any]) -> set[int]:
    """Return who fits a record."""
    said = {feature["name"]: feature for feature in record["features"]}
    fit = PEOPLE["age"].between(said["age"]["low"], said["age"]["high"]) & PEOPLE["town"].isin(
        said["town"]["values"]
    )
    return set(PEOPLE.index[fit])


def quoted(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


def is_well(server: Server) -> bool:
    """Say whether a server still answers, and there is neither a row nor a trace in its log."""
    log = server.console.read_text()
    said_nothing = not quoted(log) and "Traceback" not in log and 'File "' not in log
    return said_nothing and [record["status"] for record in records(server, asked(40))] == [
        "released"
    ]


# --- what is asked as it should be ----------------------------------------------------------------


def test_the_server_releases_what_the_library_releases_as_records(server: Server) -> None:
    policy = PrivacyPolicy(guarantee="reciprocal", k=K)
    here = protect(
        NearestInAge(PEOPLE), model=accepts, population=population(), policy=policy, desired=1
    )
    found = records(server, split())
    for record, entry in zip(found, here.explain(QUERIES).released, strict=True):
        assert list(record) == [
            "query",
            "status",
            "reason",
            "sentence",
            "k",
            "ncp",
            "pureness",
            "features",
        ]
        assert [f["name"] for f in record["features"]] == list(QUERIES)
        assert record["sentence"].startswith("The model would predict")
        age, town = record["features"][:2]
        assert (age["low"], age["high"]) == (entry.region["age"].low, entry.region["age"].high)
        assert set(town["values"]) == set(entry.region["town"])
        certificate = entry.certificate
        figures = (certificate.k, certificate.ncp, certificate.pureness)
        assert (record["k"], record["ncp"], record["pureness"]) == figures


def test_k_can_be_raised_and_nothing_else_can_be_changed(server: Server) -> None:
    low, high = records(server, split()), records(server, {**split(), "params": {"k": 20}})
    assert all(record["k"] >= 20 for record in high)
    assert all(inside(small) <= inside(large) for small, large in zip(low, high, strict=True))
    weaker = {"policy": {"k": 1}, "guarantee": "lookup", "seed": 7}
    assert records(server, {**split(), "params": weaker}) == low
    for k in (K - 1, 1, 0, -3):
        status, text = server.post({**split(), "params": {"k": k}})
        assert (status, json.loads(text)["message"]) == (400, handler.FLOOR)


def test_concurrent_requests_get_the_answers_of_single_ones(server: Server) -> None:
    bodies = [split(QUERIES.iloc[[i % 3]], age=20 + i % 35) for i in range(32)]
    single = [records(server, body) for body in bodies]
    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(lambda body: records(server, body), bodies)) == single


# --- what an explainer or a model raises and answers ----------------------------------------------

RAISED = [age for age in HAZARDS if age != 96]


def test_whatever_an_explainer_raises_its_queries_are_withheld_and_the_server_goes_on(
    server: Server,
) -> None:
    for age in RAISED:  # more of them than `cfk serve` has threads
        found = records(server, asked(age, 40))
        assert {record["status"] for record in found} == {"withheld"}, age
        assert {record["reason"] for record in found} <= set(WITHHOLDING_REASONS)
        assert not quoted(json.dumps(found))
    assert is_well(server)


def test_threads_finalizers_and_logs_of_an_explainer_leave_no_trace(server: Server) -> None:
    for age in BESIDE:
        assert [record["status"] for record in records(server, asked(age))] == ["released"]
    assert is_well(server)


def test_what_is_no_answer_withholds_all_queries(server: Server) -> None:
    for age in RUBBISH:
        found = records(server, asked(age, 40))
        reasons = {"model_failed", "protector_failed"} if age == 79 else {"explainer_failed"}
        assert [(record["query"], record["status"]) for record in found] == [
            (0, "withheld"),
            (1, "withheld"),
        ]
        assert {record["reason"] for record in found} <= reasons, age
        assert not quoted(json.dumps(found))
    assert is_well(server)


def test_a_cell_that_is_no_value_withholds_its_own_query_alone(server: Server) -> None:
    for age in SPOILED:
        spoiled, good = records(server, asked(age, 40))
        reason = "missing_value" if age == 66 else "invalid_value"
        assert (spoiled["status"], spoiled["reason"], good["status"]) == (
            "withheld",
            reason,
            "released",
        ), age
    assert is_well(server)


# --- requests that are wrong, by mistake or not ---------------------------------------------------

WRONG: dict[str, tuple[Any, str | None]] = {
    "a column is missing": (
        split(QUERIES.drop(columns="pay")),
        handler.COLUMNS + "; missing: 'pay'",
    ),
    "no rows": (split(QUERIES.head(0)), handler.NO_TABLE),
    "half a year": (split(age=[25.5, 40, 58]), handler.VALUES + ": a fraction in column 'age'"),
    "a missing number": (
        split(age=[None, 40, 58]),
        handler.VALUES + ": a missing value in column 'age'",
    ),
    "text in a number": (
        split(age=["SENTINELtext", 40, 58]),
        handler.VALUES + ": a value of another type in column 'age'",
    ),
    "an unknown category": (
        split(town=["Atlantis", "Ghent", "Ghent"]),
        handler.VALUES + ": an unknown category in column 'town'",
    ),
    "a list in a cell": (split(town=[["Ghent"], "Ghent", "Ghent"]), None),
    "too many rows": (split(pd.concat([QUERIES] * 17)), handler.TOO_MANY),
    "k above everybody": ({**split(), "params": {"k": 10**6}}, handler.TOO_LARGE),
    "k is half": ({**split(), "params": {"k": 5.5}}, None),
    "no known key": ({"rows": []}, None),
    "no UTF-8": (b"\xff\xfe{}", None),
    "nothing": (b"", None),
}


def test_wrong_requests_get_a_4xx_that_says_what_is_wrong(server: Server) -> None:
    for name, (body, message) in WRONG.items():
        status, text = server.post(body)
        assert 400 <= status < 500, name
        assert message in (None, json.loads(text)["message"]), name
        assert "Traceback" not in text
        assert not quoted(text)
    assert server.post(b"x", "text/html")[0] == 415


numbers = st.one_of(
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.sampled_from([0, -1, 25.5, 1e308, -0.0, 2**63, 10**400, True]),
)
scalars = st.one_of(
    st.none(),
    numbers,
    st.text(max_size=20),
    st.sampled_from(["", "NaN", "40", "Atlantis", "\x00", "\ud800", "\u202e"]),
)
values = st.recursive(
    scalars,
    lambda of: st.one_of(st.lists(of, max_size=3), st.dictionaries(st.text(), of, max_size=3)),
)
names = st.one_of(
    st.sampled_from([*PEOPLE, "", "query", "__class__", "age ", "AGE", "k"]), st.text(max_size=8)
)


def often(usual: Any, *others: Any) -> Any:
    """Draw what is usual most of the time."""
    return st.integers(0, 9).flatmap(lambda n: usual if n < 7 else st.one_of(*others))


@st.composite
def spoiled_rows(draw: st.DrawFn) -> Any:
    """Rows that are right but for some cells and columns."""
    rows = [
        {**GOOD, "age": draw(often(st.just(40), st.sampled_from([*RAISED, *RUBBISH, *SPOILED])))}
        for _ in range(draw(st.sampled_from([1, 1, 2, 3, 50, 51])))
    ]
    for row in rows[: draw(often(st.just(0), st.integers(1, 3)))]:
        for name in draw(st.lists(st.sampled_from([*PEOPLE]), max_size=2)):
            row[name] = draw(values)
        for name in draw(st.lists(names, max_size=1)):
            row.pop(name, None) if draw(st.booleans()) else row.update({name: draw(values)})
    if draw(st.booleans()):
        return {"dataframe_records": rows}
    columns = list(rows[0]) + draw(often(st.just([]), st.lists(names, min_size=1, max_size=1)))
    return {"dataframe_split": {"columns": columns, "data": [list(row.values()) for row in rows]}}


params = st.one_of(
    values,
    st.fixed_dictionaries({"k": st.one_of(numbers, values)}),
    st.just({"k": 1, "policy": {"k": 1}}),
)
bodies = often(
    spoiled_rows(),
    st.builds(lambda rows, given: {**rows, "params": given}, spoiled_rows(), params),
    st.dictionaries(
        st.sampled_from(["dataframe_split", "dataframe_records", "params"]),
        values,
    ),
    values,
)
# Numbers that no library writes, and a key twice, in the place of an age.
SPELLED = [
    '"age": ' + number
    for number in ("1e400", "NaN", "Infinity", "1" * 5_000, "0x10", "007", '1, "age": 2')
]
encoded = st.builds(
    lambda body, plain, age: (
        json.dumps(body, ensure_ascii=plain)
        .replace('"age": 40', age)
        .encode("utf-8", "surrogatepass")
    ),
    bodies,
    st.booleans(),
    often(st.just('"age": 40'), st.sampled_from(SPELLED)),
)
LONG = {b"deep list": b"[" * 100_000, b"deep table": b'{"dataframe_records":' * 2_000}
requests = often(
    encoded,
    st.builds(lambda text, at: text[: at % (len(text) + 1)], encoded, st.integers(0, 1000)),
    st.binary(max_size=50),
    st.sampled_from([*LONG, b"\xef\xbb\xbf{}", b"null", b'{"k":1e999}']),
)
kinds = often(
    st.just("application/json"),
    st.sampled_from(
        ["application/json; charset=utf-16", "text/csv", "", "a/b", "application/octet-stream"]
    ),
)


def check_answer(status: int | None, text: str) -> None:
    assert "Traceback" not in text
    assert "stack_trace" not in text
    if status == 200:
        for record in json.loads(text)["predictions"]:
            assert record["status"] == "withheld" or K <= record["k"] == len(inside(record))
        return
    assert not quoted(text)
    assert status is None or 300 <= status < 500
    if status == 400 and text.startswith("{"):
        assert json.loads(text)["message"] in CONSTANTS


def test_hostile_requests(server: Server) -> None:
    seen, memory = Counter[int](), server.memory()

    @settings(
        max_examples=120, derandomize=True, suppress_health_check=list(HealthCheck), database=None
    )
    @given(requests, kinds)
    def sent(content: bytes, kind: str) -> None:
        status, text = server.post(LONG.get(content, content), kind)
        seen[status] += 1
        check_answer(status, text)

    sent()
    assert min(seen[200], seen[400], seen[415]) >= 5, seen
    assert server.memory() - memory < 150_000_000
    assert is_well(server)


# --- requests as they go over the wire ------------------------------------------------------------

HEAD = b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
CONTENT = json.dumps(asked(40)).encode()


def wire(head: bytes = HEAD, *, more: bytes = b"", content: bytes = CONTENT) -> bytes:
    return head + more + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(content) + content


PIECES = b"".join(
    b"%x\r\n%s\r\n" % (len(CONTENT[i : i + 7]), CONTENT[i : i + 7])
    for i in range(0, len(CONTENT), 7)
)
ODD = [
    HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + PIECES + b"0\r\n\r\n",
    *[
        wire(HEAD.replace(b"POST", way))
        for way in (b"GET", b"PUT", b"HEAD", b"OPTIONS", b"TRACE", b"BREW")
    ],
    *[
        wire(HEAD.replace(b"/invocations", path))
        for path in (
            b"/",
            b"/invocations/",
            b"/invocations?k=1",
            b"//invocations",
            b"/..%2f..%2fetc",
            b"/a" * 2_000,
        )
    ],
    *[
        wire(more=header + b"\r\n")
        for header in (
            b"X: " + b"x" * 20_000,
            b"\r\n".join([b"X: 1"] * 300),
            b"Upgrade: websocket",
            b"X: \x01",
        )
    ],
    wire(more=b"Content-Encoding: gzip\r\n", content=gzip.compress(CONTENT)),
    wire(content=CONTENT.decode().encode("utf-16")),
    wire(
        HEAD.replace(b"application/json", b"application/vnd.apache.parquet"), content=b"PAR1" * 10
    ),
    wire(
        HEAD.replace(b"application/json", b"text/csv"), content=QUERIES.to_csv(index=False).encode()
    ),
]


def test_odd_requests_on_the_wire(server: Server) -> None:
    for request in ODD:
        client = connected(server)
        with suppress(ConnectionError):
            client.sendall(request)
        answer = http.client.HTTPResponse(client, method=request.split()[0].decode())
        try:
            answer.begin()
            check_answer(
                answer.status if request.startswith(b"POST") else None, answer.read().decode()
            )
        except (ConnectionError, http.client.HTTPException):
            pass
        finally:
            client.close()
    assert is_well(server)


def connected(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_slow_clients_and_those_that_go_cost_no_memory_no_trace_and_no_place(cfk: Server) -> None:
    assert is_well(cfk)
    before, started, lines = (
        cfk.memory(),
        time.monotonic(),
        len(cfk.console.read_text().splitlines()),
    )
    gone = connected(cfk)
    gone.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
    gone.close()
    unfinished = [connected(cfk) for _ in range(20)]
    with ThreadPoolExecutor(20) as pool:  # each is 10 MB but for its last byte
        list(pool.map(sent_but_for_the_end, unfinished))
    silent = [connected(cfk) for _ in range(20)]
    for at, client in enumerate(silent):  # headers that do not end, or do not begin
        client.sendall(HEAD[: at * 4])
    assert cfk.memory() - before < 120_000_000
    assert is_well(cfk)
    assert {ended(client) for client in unfinished} <= {b"503", b"408", b""}
    assert {ended(client) for client in silent} == {b""}
    assert time.monotonic() - started < 30
    assert is_well(cfk)
    assert len(cfk.console.read_text().splitlines()) < lines + 10


def sent_but_for_the_end(client: socket.socket) -> None:
    with suppress(OSError):  # refused while it was sent
        client.sendall(HEAD + b"Content-Length: 10000000\r\n\r\n[" + b"1," * 4_900_000)


def ended(client: socket.socket) -> bytes:
    """Return the status that a client was answered with before it was hung up on; none where it was
    not.
    """
    text = b""
    try:
        while part := client.recv(65_536):
            text += part
    except ConnectionError:
        pass
    finally:
        client.close()
    return text[9:12]
