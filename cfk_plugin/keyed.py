"""Keyed digests: identities and orders that nobody without the key can compute."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.errors import InputError

_PROCESS_KEY = secrets.token_bytes(32)


def configured(key: bytes | None) -> bytes:
    """Return the given key, else that of the environment variable ``CFK_KEY``; empty when there is none.

    Raises
    ------
    InputError
        If the key is no bytes.
    """
    if key is not None and not isinstance(key, bytes):
        raise InputError(f"key must be bytes, got {type(key).__name__}; encode a text with .encode()")
    return key or os.environ.get("CFK_KEY", "").encode()


def of_this_process() -> bytes:
    """Return a random key that lives as long as this process."""
    return _PROCESS_KEY


def digest(key: bytes, parts: Iterable[bytes]) -> bytes:
    """Return HMAC-SHA256 of some bytes."""
    code = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        code.update(part)
    return code.digest()


def order(key: bytes, tokens: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a number per row of tokens (64 bits of HMAC-SHA256) that says who comes first."""
    rows = np.ascontiguousarray(tokens, dtype="<u8")
    digests = b"".join(hmac.digest(key, row.tobytes(), "sha256")[:8] for row in rows)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def token(text: str) -> int:
    """Return 48 bits that stand for a text, which a float holds exactly. No key is in it."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "little")
