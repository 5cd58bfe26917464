"""A new and empty ledger on each kind of database."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cfk_plugin.records.ledger import Ledger
from postgres_server import postgres_server, postgres_url  # noqa: F401 - fixtures

Open = Callable[..., Ledger]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return where a ledger can be made."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def key() -> bytes:
    return secrets.token_bytes(32)


@pytest.fixture
def open_ledger(url: str, key: bytes) -> Iterator[Open]:
    """Return a function that makes the ledger, and then opens it once more; all are closed at the end."""
    opened: list[Ledger] = []

    def open_one(**settings: Any) -> Ledger:
        opened.append(Ledger(url, **({"key": key, "create": not opened} | settings)))
        return opened[-1]

    yield open_one
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger(open_ledger: Open) -> Ledger:
    return open_ledger()
