"""Who may ask `cfk serve`, and what it tells monitors: counts and times, no value of a query."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
)

from cfk_plugin.errors import InputError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_log = logging.getLogger("cfk_plugin")

WHO = "a token is needed: send it as the header Authorization: Bearer TOKEN"
TWO_TOKENS = "the header Authorization occurs more than once; send it once"
TWO_LENGTHS = "a request has Content-Length or Transfer-Encoding, not both; send one of them"

OPEN_PATHS = ("/ping", "/health", "/ready")
"""Paths that orchestrators ask without a token.

They say whether the server works, and nothing else.
"""

_SHORTEST = 20  # characters of a token
_OF_OTHERS = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP  # a group may read: secrets are mounted so
_AGAIN = 1.0  # seconds between checks of the file of tokens


class Tokens:
    """Bearer tokens, one per line of a file, kept as digests; lines that start with # are comments.

    A changed file is read again. While it cannot be read, has an invalid line, others than its
    owner can write it, or others than owner and group can read it, nobody may ask.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._looked = path, time.monotonic()
        self._state, self._digests = self._stat(), self._read()

    def lets_in(self, header: str) -> bool:
        """Say whether a header has a token of the file."""
        kind, _, token = header.partition(" ")
        given = sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
        is_known = False
        for digest in self._current():  # all of them, so that the time taken reveals nothing
            is_known |= hmac.compare_digest(digest, given)
        return is_known and kind.lower() == "bearer"

    @property
    def are_there(self) -> bool:
        return bool(self._current())

    def _current(self) -> tuple[bytes, ...]:
        now = time.monotonic()
        if now - self._looked >= _AGAIN:
            self._looked, state = now, self._stat()
            if state != self._state or not self._digests:
                try:
                    self._digests = self._read()
                except InputError as error:
                    self._digests = ()
                    _log.warning("nobody may ask: %s", error)
                self._state = state
        return self._digests

    def _stat(self) -> tuple[int, ...] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode

    def _read(self) -> tuple[bytes, ...]:
        try:
            mode = self._path.stat().st_mode
            if os.name == "posix" and mode & _OF_OTHERS:
                raise InputError(
                    "only its owner may write the file of tokens, and only owner and group may read"
                    f" it (mode {stat.S_IMODE(mode):04o}); try chmod 600"
                )
            lines = [line.strip() for line in self._path.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"the file of tokens cannot be read ({type(error).__name__})"
            ) from None
        tokens = [line for line in lines if line and not line.startswith("#")]
        if not tokens:
            raise InputError("the file of tokens has none; write one on each line")
        if any(len(token) < _SHORTEST or not token.isascii() or " " in token for token in tokens):
            raise InputError(
                f"a token has at least {_SHORTEST} ASCII characters and no space; try openssl rand"
                " -hex 32"
            )
        return tuple(dict.fromkeys(sha256(token.encode()).digest() for token in tokens))


class Metrics:
    """What monitors read of this process: requests by status, explanations by outcome, and
    seconds.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "cfk_requests",
            "Requests, by HTTP status.",
            ["status"],
            registry=self._registry,
        )
        self.explanations = Counter(
            "cfk_explanations",
            "Explanations: released, or the reason why they were withheld.",
            ["outcome"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "cfk_request_seconds",
            "Seconds until a request was answered.",
            registry=self._registry,
        )

    def counted(
        self, answer: Callable[..., list[dict[str, Any]]]
    ) -> Callable[..., list[dict[str, Any]]]:
        def counting(*args: Any) -> list[dict[str, Any]]:
            records = answer(*args)
            for record in records:
                self.explanations.labels(record["reason"] or record["status"]).inc()
            return records

        return counting

    def text(self) -> tuple[bytes, str]:
        """Return all counts in Prometheus' text format, and its media type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class Gate:
    """Lets requests through, with a token if any are set, and counts them.

    Health checks need no token, and are not counted.
    """

    def __init__(
        self,
        inner: ASGIApp,
        refusal: Callable[[int, str], ASGIApp],
        metrics: Metrics,
        tokens: Tokens | None = None,
    ) -> None:
        self._inner = inner
        self._refusal = refusal
        self._metrics = metrics
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it through."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        refused = self._refused(scope)
        is_counted = scope["path"] not in OPEN_PATHS
        started = time.perf_counter()

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                if is_counted:
                    self._metrics.requests.labels(str(message["status"])).inc()
                    self._metrics.seconds.observe(time.perf_counter() - started)
                if refused is not None:
                    message["headers"] = [*message["headers"], *refused.headers]
            await send(message)

        answered = self._inner
        if refused is not None:
            answered = self._refusal(refused.status, refused.message)
        await answered(scope, receive, sent)

    def _refused(self, scope: Scope) -> _Refused | None:
        """Return why a request is not let through."""
        names = [name for name, _ in scope["headers"]]
        if {b"content-length", b"transfer-encoding"}.issubset(names):
            # A proxy in front may have gone by the other one, and have seen the request end
            # elsewhere: the rest of the bytes could then be another client's.
            return _Refused(400, TWO_LENGTHS, ((b"connection", b"close"),))
        if scope["path"] in OPEN_PATHS:
            return None
        if self._tokens is not None:
            if names.count(b"authorization") > 1:
                return _Refused(400, TWO_TOKENS)
            header = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
            if not self._tokens.lets_in(header):
                return _Refused(401, WHO, ((b"www-authenticate", b"Bearer"),))
        return None


@dataclass(frozen=True, slots=True)
class _Refused:
    """Why a request is not let through."""

    status: int
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


def check_reach(host: str, *, asks_who: bool, open_to_all: bool) -> None:
    """Refuse to listen where others can reach the server, unless it asks who they are."""
    try:
        is_own = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_own = False
    if not (is_own or asks_who or open_to_all):
        raise InputError(
            f"at {host} others reach this server; give --tokens or --client-ca, so that it knows"
            " who may ask, or --open, if something in front of it does"
        )
