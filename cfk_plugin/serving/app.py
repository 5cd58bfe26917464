"""The server of `cfk serve`: asked as MLflow's is, it answers with protected records or constants alone."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from cfk_plugin.serving.body import JSON, read_body
from cfk_plugin.serving.constants import TYPE
from cfk_plugin.serving.desk import RequestError

if TYPE_CHECKING:
    from starlette.requests import Request

_log = logging.getLogger("cfk_plugin")

TOO_LONG = "the request is too long; send fewer queries at once"
TIMEOUT = "the explanation took too long"
BUSY = "the server is busy; try again later"
WRONG_PATH = "there is nothing here; POST to /invocations"
FAILED = "the request failed"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may take.

    Attributes
    ----------
    seconds : float
        Until it is answered with 504. An explainer that hangs cannot be stopped: its thread runs on.
    threads : int
        Requests that are worked on at the same time, those that hang among them; as many more may wait.
    bytes : int
        Length of a request.
    """

    seconds: float = 60.0
    threads: int = 16
    bytes: int = 10_000_000


def make_app(answer: Callable[[object, Mapping[str, Any]], list[dict[str, Any]]], limits: Limits) -> Starlette:
    """Return the server as an ASGI application.

    Parameters
    ----------
    answer : callable
        As `Desk.answer`.
    limits : Limits

    Returns
    -------
    Starlette
        ``POST /invocations`` answers ``{"predictions": [record, ...]}``; ``GET /ping`` and ``GET /health`` answer 200.
    """
    waiting: SimpleQueue[tuple[Future[Response], bytes]] = SimpleQueue()
    for _ in range(limits.threads):  # daemons: one that hangs must not keep the process from ending
        threading.Thread(target=_work, args=(waiting, answer), name="cfk-request", daemon=True).start()
    inside = 0  # requests that are worked on or wait; only the event loop's thread changes it

    async def invocations(request: Request) -> Response:
        nonlocal inside
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            return _refusal(415, TYPE)
        body = await _body(request, limits.bytes)
        if body is None:
            return _refusal(413, TOO_LONG)
        if inside >= 2 * limits.threads:
            return _refusal(503, BUSY)
        inside += 1
        loop = asyncio.get_running_loop()
        work: Future[Response] = Future()
        work.add_done_callback(lambda _: loop.call_soon_threadsafe(left))
        waiting.put((work, body))
        done, _ = await asyncio.wait({asyncio.wrap_future(work)}, timeout=limits.seconds)
        if not done:
            work.cancel()  # only what still waits can be: what hangs keeps its place
            return _refusal(504, TIMEOUT)
        return work.result()

    def left() -> None:
        nonlocal inside
        inside -= 1

    async def ping(request: Request) -> Response:  # noqa: ARG001 - every route takes the request
        return Response("\n", media_type=JSON)

    async def wrong_path(request: Request, error: Exception) -> Response:  # noqa: ARG001
        return _refusal(getattr(error, "status_code", 404), WRONG_PATH)

    async def failed(request: Request, error: Exception) -> Response:  # noqa: ARG001 - its text must not get out
        return _refusal(500, FAILED)

    routes = [Route("/invocations", invocations, methods=["POST"])]
    routes += [Route(path, ping, methods=["GET"]) for path in ("/ping", "/health")]
    return Starlette(routes=routes, exception_handlers={404: wrong_path, 405: wrong_path, Exception: failed})


def _work(waiting: SimpleQueue[tuple[Future[Response], bytes]], answer: Callable[..., list[dict[str, Any]]]) -> None:
    while True:
        work, body = waiting.get()
        if work.set_running_or_notify_cancel():
            work.set_result(_answered(answer, body))


def _answered(answer: Callable[..., list[dict[str, Any]]], body: bytes) -> Response:
    try:
        return _json(200, {"predictions": answer(*read_body(body))})
    except RequestError as error:
        return _refusal(500 if error.ours else 400, error.message)
    except Exception as error:  # noqa: BLE001 - whatever it is, its text must not get out
        _log.warning("a request failed: %s", type(error).__name__)
    return _refusal(500, FAILED)


async def _body(request: Request, most: int) -> bytes | None:
    """Return the body; None as soon as it is too long."""
    parts, length = [], 0
    async for part in request.stream():
        length += len(part)
        if length > most:
            return None
        parts.append(part)
    return b"".join(parts)


_CODES = {400: "INVALID_PARAMETER_VALUE", 404: "ENDPOINT_NOT_FOUND", 405: "ENDPOINT_NOT_FOUND"}


def _refusal(status: int, message: str) -> Response:
    """Return an error in MLflow's form."""
    code = _CODES.get(status, "INTERNAL_ERROR" if status >= 500 else "BAD_REQUEST")
    return _json(status, {"error_code": code, "message": message})


def _json(status: int, content: Any) -> Response:
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode(), status_code=status, media_type=JSON)
