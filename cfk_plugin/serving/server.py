"""`cfk serve`: protection over HTTP, in front of a registered explainer or of a protected model."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from cfk_plugin.errors import CFKError, quiet
from cfk_plugin.serving.access import Gate, Metrics, Tokens
from cfk_plugin.serving.handler import (
    JSON,
    MOST_BYTES,
    TOO_LONG,
    TYPE,
    Answer,
    RequestError,
    answer_to,
    to_json,
)

if TYPE_CHECKING:
    from rich.console import Console
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send


_log = logging.getLogger("cfk_plugin")

TOO_SLOW = "the request did not arrive in time"
TIMEOUT = "the explanation took too long"
BUSY = "the server is busy; try again later"
WRONG_PATH = "there is nothing here; POST to /invocations"
FAILED = "the request failed"

_SMALL = 65_536  # bytes; requests up to this size are read however much others hold


@dataclass(frozen=True, slots=True)
class Limits:
    # seconds until a request is answered with 504; an explainer that hangs cannot be stopped
    seconds: float = 60.0
    # requests worked on at the same time, hanging ones included; as many may wait
    threads: int = 16
    reading: float = 10.0  # seconds that a client may take to send headers, and again for the body
    bytes: int = MOST_BYTES  # of a request
    # bytes of all requests together, from the first that is read until the answer
    held: int = 5 * MOST_BYTES
    connections: int = 512  # clients at the same time, silent ones included


def make_app(
    answer: Answer,
    limits: Limits,
    *,
    tokens: Tokens | None = None,
) -> ASGIApp:
    """Return the server as an ASGI application. It raises nothing: a web server would log a trace.

    ``POST /invocations`` answers ``{"predictions": [record, ...]}``. ``GET /ping`` and ``GET
    /health`` answer 200. ``GET /ready`` answers 503 while there is no place for a request, or
    nobody may ask. ``GET /metrics`` is for Prometheus.
    """
    metrics = Metrics()
    room = _Room(metrics.counted(answer), limits)

    async def ping(request: Request) -> Response:  # noqa: ARG001 - every route takes the request
        return Response("\n", media_type=JSON)

    async def ready(request: Request) -> Response:  # noqa: ARG001
        is_ready = room.has_place and (tokens is None or tokens.are_there)
        status = 200 if is_ready else 503
        return Response(to_json({"ready": is_ready}), status_code=status, media_type=JSON)

    async def count(request: Request) -> Response:  # noqa: ARG001
        text, kind = metrics.text()
        return Response(text, media_type=kind)

    async def wrong_path(request: Request, error: Exception) -> Response:  # noqa: ARG001
        return _refusal(getattr(error, "status_code", 404), WRONG_PATH)

    async def failed(request: Request, error: Exception) -> Response:  # noqa: ARG001 - its text must not get out
        return _refusal(500, FAILED)

    routes = [
        Route("/invocations", room.answer, methods=["POST"]),
        Route("/ping", ping, methods=["GET"]),
        Route("/health", ping, methods=["GET"]),
        Route("/ready", ready, methods=["GET"]),
        Route("/metrics", count, methods=["GET"]),
    ]
    app = Starlette(
        routes=routes, exception_handlers={404: wrong_path, 405: wrong_path, Exception: failed}
    )
    app.router.redirect_slashes = False
    gate = Gate(app, _refusal, metrics, tokens)

    async def calm(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with quiet("{}", CFKError):
                await gate(scope, receive, send)
        except CFKError as failure:  # Starlette has answered, and raises the error again
            _log.warning("a request failed: %s", failure)

    return calm


class _Room:
    """Requests from reading to answer.

    The event loop reads them, and its thread alone changes the counts.
    """

    def __init__(self, answer: Answer, limits: Limits) -> None:
        self._answer, self._limits = answer, limits
        self._waiting: SimpleQueue[tuple[Future[Response], bytes]] = SimpleQueue()
        self._inside = 0  # requests that are worked on or wait
        self._held = 0  # bytes of these, and of those being read
        for _ in range(limits.threads):  # daemons: one that hangs must not keep the process alive
            threading.Thread(target=self._work, name="cfk-request", daemon=True).start()

    @property
    def has_place(self) -> bool:
        return self._inside < 2 * self._limits.threads

    async def answer(self, request: Request) -> Response:
        """Answer a request, whatever happens."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            return _refusal(415, TYPE)
        parts: list[bytes] = []
        try:
            refused = await asyncio.wait_for(self._read(request, parts), self._limits.reading)
        except TimeoutError:
            refused = _refusal(408, TOO_SLOW)
        except ClientDisconnect:
            refused = _refusal(400, TOO_SLOW)  # the client is gone
        if refused is None and not self.has_place:
            refused = _refusal(503, BUSY)
        length = sum(map(len, parts))
        if refused is not None:
            self._held -= length
            return refused
        return await self._worked_on(b"".join(parts), length)

    async def _read(self, request: Request, parts: list[bytes]) -> Response | None:
        """Read the body; return a refusal as soon as it is too long, alone or with the others."""
        length = 0
        async for part in request.stream():
            length += len(part)
            self._held += len(part)
            parts.append(part)
            if length > self._limits.bytes:
                return _refusal(413, TOO_LONG)
            if length > _SMALL and self._held > self._limits.held:
                return _refusal(503, BUSY)
        return None

    async def _worked_on(self, body: bytes, length: int) -> Response:
        loop = asyncio.get_running_loop()
        work: Future[Response] = Future()

        def left() -> None:
            self._inside -= 1
            self._held -= length

        def done(_: object) -> None:
            with suppress(RuntimeError):  # the loop has ended, so counts no longer matter
                loop.call_soon_threadsafe(left)

        self._inside += 1
        work.add_done_callback(done)
        self._waiting.put((work, body))
        found, _ = await asyncio.wait({asyncio.wrap_future(work)}, timeout=self._limits.seconds)
        if not found:
            work.cancel()  # only works while it waits: a request that hangs keeps its place
            return _refusal(504, TIMEOUT)
        return work.result()

    def _work(self) -> None:
        """Work on requests forever.

        Nothing may end a thread: the place for a request would be lost with it.
        """
        while True:
            with suppress(BaseException):  # also what timeout libraries raise from outside
                work, body = self._waiting.get()
                response = None
                try:
                    if work.set_running_or_notify_cancel():
                        response = _answered(self._answer, body)
                finally:
                    if not work.done():
                        work.set_result(response or _refusal(500, FAILED))
                    del work, body  # not held while the next one is awaited


def _answered(answer: Answer, body: bytes) -> Response:
    try:
        return Response(answer_to(body, answer), media_type=JSON)
    except RequestError as error:
        return _refusal(500 if error.ours else 400, error.message)


_CODES = {
    400: "INVALID_PARAMETER_VALUE",
    401: "UNAUTHENTICATED",
    404: "ENDPOINT_NOT_FOUND",
    405: "ENDPOINT_NOT_FOUND",
}


def _refusal(status: int, message: str) -> Response:
    """Return an error in MLflow's form."""
    code = _CODES.get(status, "INTERNAL_ERROR" if status >= 500 else "BAD_REQUEST")
    content: dict[str, Any] = {"error_code": code, "message": message}
    return Response(to_json(content), status_code=status, media_type=JSON)


def run(
    app: ASGIApp,
    host: str,
    port: int,
    limits: Limits,
    console: Console,
    **tls: Any,
) -> int:
    """Serve until the process is told to end; return the exit code."""
    scheme = "https" if tls.get("ssl_certfile") else "http"
    console.print(
        f"protected explanations at {scheme}://{host}:{port}/invocations",
        highlight=False,
        soft_wrap=True,
    )
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host,
            port,
            log_level="warning",
            access_log=False,
            server_header=False,
            http=type("LimitedConnection", (Connection,), {"limits": limits}),
            ws="none",
            lifespan="off",
            h11_max_incomplete_event_size=_LONGEST_HEADERS,
            timeout_graceful_shutdown=_LAST_SECONDS,
            **tls,
        )
    )
    # uvicorn raises the signal again after it ends; with these handlers the process exits normally
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, server.handle_exit)
    server.run()
    return 0 if server.started else 2


_LONGEST_HEADERS = 16_384  # bytes
_LAST_SECONDS = 5  # seconds that running requests get when the server is told to end


class Connection(H11Protocol):
    """A connection that is dropped if it sends no request in time, takes no answer, or is one too
    many.

    `cfk serve` sets the limits by its options. Others give the class to uvicorn by its name, with
    the default limits: ``uvicorn --http cfk_plugin.serving.server:Connection``.

    The web server has no deadline for the first byte, for headers that are sent one by one, or for
    answers that nobody reads: such clients would use up all connections. If there are too many, the
    one that has been silent for longest makes room, so that silent ones shut nobody out.
    """

    limits: ClassVar[Limits] = Limits()
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None  # until an answer must be taken
    _silent_since = 0.0  # by the clock of the event loop
    _is_dropped = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._silent_since = self.loop.time()
        self._watch()
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def _make_room(self) -> None:
        """Drop the connection that has waited longest for a whole request, which may be this."""
        others = [each for each in self.connections if isinstance(each, Connection)]
        silent = [each for each in others if each.awaits_request]
        oldest = min(silent, key=lambda each: each._silent_since, default=self)
        oldest._is_dropped = True
        oldest.transport.abort()

    @property
    def awaits_request(self) -> bool:
        """Whether it owes a request: none has come as a whole that is not answered yet."""
        if self._is_dropped:
            return False
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._silent_since = self.loop.time()
        if self.transport.get_write_buffer_size():
            self._unread = self.loop.call_later(self.limits.seconds, self._give_up)

    def _give_up(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _watch(self) -> None:
        """Start the deadline for the next request, or stop it; more bytes do not extend it."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
            if self._unread is not None:  # the client reads: it sent another request
                self._unread.cancel()
                self._unread = None
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.reading, self.transport.abort)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
