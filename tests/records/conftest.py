"""A new and empty ledger on each kind of database, and a spool of the test's own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cfk_plugin.records.ledger import Ledger
from cfk_plugin.records.spool import Shipper, shipper
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


@pytest.fixture(autouse=True)
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CFK_SPOOL", str(tmp_path / "spool"))
    return tmp_path / "spool"


@pytest.fixture(autouse=True)
def _no_shipper_of_before(spool: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    shippers: dict[Any, Shipper] = {}
    monkeypatch.setattr("cfk_plugin.records.spool._shippers", shippers)
    monkeypatch.setattr("cfk_plugin.records.logger._default", [])
    yield
    for each in shippers.values():
        each.close(0)


@pytest.fixture
def own_shipper() -> Shipper:
    return shipper()
