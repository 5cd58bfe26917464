"""A new and empty ledger on each kind of database, and a spool of the test's own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cfk_plugin import Ledger
from cfk_plugin.records.shipper import Shipper, shipper
from postgres_server import postgres_server, postgres_url  # noqa: F401 - fixtures

Open = Callable[..., Ledger]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return the key of the ledgers that this test makes, which is in the environment as well."""
    made = secrets.token_bytes(32)
    monkeypatch.setenv("CFK_LEDGER_KEY", made.hex())
    monkeypatch.delenv("CFK_LEDGER", raising=False)
    return made


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return where a ledger can be made, on each kind of database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def open_ledger(url: str) -> Iterator[Open]:
    """Return a function that makes the ledger, and then opens it once more; all are closed at the
    end.
    """
    opened: list[Ledger] = []

    def open_one(**settings: Any) -> Ledger:
        opened.append(Ledger(url, **({"create": not opened} | settings)))
        return opened[-1]

    yield open_one
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.db", create=True) as opened:
        yield opened


@pytest.fixture(autouse=True)
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of the spool; what sends it ends with the test."""
    shippers: dict[Any, Shipper] = {}
    monkeypatch.setattr("cfk_plugin.records.shipper._shippers", shippers)
    monkeypatch.setattr("cfk_plugin.records.logger._loggers", {})
    monkeypatch.setenv("CFK_SPOOL", str(tmp_path / "spool"))
    yield tmp_path / "spool"
    for each in shippers.values():
        each.close(0)


@pytest.fixture
def own_shipper() -> Shipper:
    return shipper()
