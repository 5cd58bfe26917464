"""Every way in which `cfk serve` refuses a request, asked of the ASGI application in this process.

`measure` returns one line for each refusal: what was asked, the status, the body, and the headers
that tell the client what to do.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cfk_plugin import KAnonymizer, PrivacyPolicy
from cfk_plugin.serving.access import Tokens
from cfk_plugin.serving.handler import Answer, handler_for, opened
from cfk_plugin.serving.server import Limits, make_app
from model_server import K, NearestInAge, accepts, patients, population

GOOD = {"age": 40, "town": "Ghent", "pay": 1_000_500, "illness": "a cold"}
TOKEN = "a-token-that-is-long-enough"
MOST_QUERIES = 2
SMALL_REQUEST = 65_536  # bytes; larger ones are refused while others fill the memory


def queries(*rows: dict[str, Any], **parameters: Any) -> dict[str, Any]:
    """Return the body of a request in MLflow's form."""
    body: dict[str, Any] = {"dataframe_records": list(rows)}
    if parameters:
        body["params"] = parameters
    return body


@dataclass(frozen=True)
class Request:
    """A request; `body` is sent as it is where it is bytes, and as JSON otherwise."""

    body: Any = field(default_factory=lambda: queries(GOOD))
    method: str = "POST"
    path: str = "/invocations"
    content_type: str = "application/json"
    token: str | None = None
    more: dict[str, str] = field(default_factory=dict)  # further headers
    client: str = "192.0.2.1"
    # What the client does after its body: "ends", "waits" without a word, or "goes".
    then: str = "ends"

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        headers = [(b"content-type", self.content_type.encode())]
        if self.token is not None:
            headers.append((b"authorization", f"Bearer {self.token}".encode()))
        return headers + [(name.encode(), value.encode()) for name, value in self.more.items()]

    @property
    def content(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return json.dumps(self.body).encode()


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: str


async def ask(app: Any, request: Request) -> Reply:
    """Send a request to an ASGI application, and return its reply."""
    scope = {
        "type": "http",
        "method": request.method,
        "path": request.path,
        "query_string": b"",
        "headers": request.headers,
        "client": (request.client, 50_000),
    }
    sent: list[dict[str, Any]] = []
    is_read = False

    async def receive() -> dict[str, Any]:
        nonlocal is_read
        if not is_read:
            is_read = True
            more = request.then != "ends"
            return {"type": "http.request", "body": request.content, "more_body": more}
        if request.then == "waits":
            await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = sent[0]
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return Reply(start["status"], headers, body.decode())


OF_ALL = {"content-length", "content-type"}  # headers that every reply has


def line_of(name: str, reply: Reply) -> str:
    advice = [f"{key}: {value}" for key, value in reply.headers.items() if key not in OF_ALL]
    return " | ".join([name, str(reply.status), reply.body, *advice])


# --- requests that the server reads and refuses, one at a time

WRONG_REQUESTS = {
    "another path": Request(path="/predict"),
    "another method": Request(method="GET", body=b""),
    "another content type": Request(content_type="text/csv"),
    "no content type": Request(content_type=""),
    "no JSON": Request(b"{"),
    "a list for an object": Request([]),
    "no known key": Request({"rows": [GOOD]}),
    "two tables": Request(queries(GOOD) | {"dataframe_split": {}}),
    "no list of columns": Request({"dataframe_split": {"columns": "age", "data": []}}),
    "a row that is too short": Request({"dataframe_split": {"columns": ["age"], "data": [[]]}}),
    "rows with other keys": Request(queries(GOOD, {"age": 40})),
    "a list in a cell": Request(queries(GOOD | {"age": [40]})),
    "no row": Request(queries()),
    "too many rows": Request(queries(GOOD, GOOD, GOOD)),
    "a column is missing": Request(queries({"age": 40})),
    "an unknown category": Request(queries(GOOD | {"town": "Atlantis"})),
    "a missing value": Request(queries(GOOD | {"age": None})),
    "half a year": Request(queries(GOOD | {"age": 40.5})),
    "a number that does not fit": Request(queries(GOOD | {"age": 10**30})),
    "parameters are no object": Request(queries(GOOD) | {"params": [1]}),
    "k is no whole number": Request(queries(GOOD, k=5.5)),
    "k is below the floor": Request(queries(GOOD, k=K - 1)),
    "k is above everybody": Request(queries(GOOD, k=10**6)),
    "max_changes is no whole number": Request(queries(GOOD, max_changes=True)),
    "max_changes is too small": Request(queries(GOOD, max_changes=0)),
}


def answer_from_rows() -> Answer:
    policy = PrivacyPolicy(guarantee="reciprocal", k=K)
    explainer = NearestInAge(patients())
    return handler_for(
        population(), policy, explainer, most=MOST_QUERIES, model=accepts, desired=1
    ).answer


def answer_from_a_sealed_catalogue(folder: Path) -> Answer:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=K, private_values="exact"))
    anonymizer.fit(population(), model=accepts, desired=1).seal(folder / "catalogue.cfk")
    sealed, policy = opened(folder / "catalogue.cfk")
    return handler_for(sealed, policy, None, most=MOST_QUERIES, model=accepts, desired=1).answer


def answer_with_an_error(*_: Any) -> list[dict[str, Any]]:
    raise ValueError


def answer_nothing(*_: Any) -> list[dict[str, Any]]:
    return []


# --- requests that depend on who asks, and on what the server is doing


class BrokenTokens(Tokens):
    """Tokens whose file fails in a way that nobody thought of."""

    def __init__(self) -> None:
        pass

    @property
    def are_there(self) -> bool:
        raise OSError


@contextmanager
def waiting_answer() -> Iterator[Answer]:
    """Yield an answer that does not come until the block ends."""
    is_over = threading.Event()

    def wait(*_: Any) -> list[dict[str, Any]]:
        is_over.wait(60)
        return []

    yield wait
    is_over.set()


async def refusals_of_callers(folder: Path) -> dict[str, Reply]:
    path = folder / "tokens.txt"
    path.touch(0o600)
    path.write_text(f"{TOKEN}\n")
    with_tokens = make_app(answer_nothing, Limits(), tokens=Tokens(path))
    return {
        "no token": await ask(with_tokens, Request()),
        "an unknown token": await ask(with_tokens, Request(token="another-token-of-this-test")),
        "a token twice": await ask(
            with_tokens, Request(token=TOKEN, more={"authorization": TOKEN})
        ),
        "two lengths": await ask(
            with_tokens,
            Request(token=TOKEN, more={"content-length": "2", "transfer-encoding": "chunked"}),
        ),
        "counts without a token": await ask(with_tokens, Request(method="GET", path="/metrics")),
    }


async def refusals_of_long_and_slow_requests() -> dict[str, Reply]:
    limits = Limits(reading=0.05, bytes=2 * SMALL_REQUEST, held=SMALL_REQUEST)
    app = make_app(answer_nothing, limits)
    return {
        "a body that is too long": await ask(app, Request(b"x" * (2 * SMALL_REQUEST + 1))),
        "bodies that fill the memory": await ask(app, Request(b"x" * (SMALL_REQUEST + 1))),
        "a body that does not end": await ask(app, Request(then="waits")),
        "a client that goes": await ask(app, Request(then="goes")),
    }


async def refusals_of_a_busy_server() -> dict[str, Reply]:
    """Return what is refused by a server with a place for one request and a queue for another."""
    ready = Request(method="GET", path="/ready")
    with waiting_answer() as answer:
        app = make_app(answer, Limits(threads=1))
        tasks = [asyncio.create_task(ask(app, Request())) for _ in range(2)]
        while (await ask(app, ready)).status == 200:
            await asyncio.sleep(0.01)
        replies = {
            "no place for a request": await ask(app, Request()),
            "ready, without a place": await ask(app, ready),
        }
    await asyncio.gather(*tasks)
    return replies


async def refusals_of_late_answers() -> dict[str, Reply]:
    with waiting_answer() as answer:
        app = make_app(answer, Limits(threads=1, seconds=0.05))
        return {
            "an answer that takes too long": await ask(app, Request()),
            "an answer that did not begin in time": await ask(app, Request()),
        }


async def refusals_of_a_broken_server() -> dict[str, Reply]:
    broken = make_app(answer_with_an_error, Limits())
    without_tokens = make_app(answer_nothing, Limits(), tokens=BrokenTokens())
    return {
        "an answer that fails": await ask(broken, Request()),
        "the server itself fails": await ask(without_tokens, Request(method="GET", path="/ready")),
    }


async def _measure(folder: Path) -> dict[str, Reply]:
    app = make_app(answer_from_rows(), Limits())
    replies = {name: await ask(app, request) for name, request in WRONG_REQUESTS.items()}
    sealed = make_app(answer_from_a_sealed_catalogue(folder), Limits())
    replies["k is fixed"] = await ask(sealed, Request(queries(GOOD, k=K + 1)))
    replies |= await refusals_of_callers(folder)
    replies |= await refusals_of_long_and_slow_requests()
    replies |= await refusals_of_a_busy_server()
    replies |= await refusals_of_late_answers()
    replies |= await refusals_of_a_broken_server()
    return replies


def measure(folder: Path) -> list[str]:
    replies = asyncio.run(_measure(folder))
    return sorted(line_of(name, reply) for name, reply in replies.items())
