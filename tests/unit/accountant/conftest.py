"""A place for a ledger on each kind of database, and its key."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cfk_plugin import BudgetAccountant, Ledger
from postgres_server import postgres_server, postgres_url  # noqa: F401 - fixtures

Open = Callable[..., BudgetAccountant]


def made(url: str) -> str:
    Ledger(url, create=True).close()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return where a ledger is; its key is in the environment."""
    monkeypatch.setenv("CFK_LEDGER_KEY", secrets.token_hex(32))
    if request.param == "sqlite":
        return made(f"sqlite:///{tmp_path / 'ledger.db'}")
    return made(str(request.getfixturevalue("postgres_url")))


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Return where books can be kept."""
    monkeypatch.setenv("CFK_LEDGER_KEY", secrets.token_hex(32))
    if request.param == "postgresql":
        return made(str(request.getfixturevalue("postgres_url")))
    return None if request.param == "memory" else made(f"sqlite:///{tmp_path / 'ledger.db'}")


@pytest.fixture
def open_accountant() -> Iterator[Open]:
    """Return `BudgetAccountant`; all that it makes are closed at the end."""
    opened: list[BudgetAccountant] = []

    def open_one(*amounts: float, **settings: Any) -> BudgetAccountant:
        opened.append(BudgetAccountant(*amounts, **settings))
        return opened[-1]

    yield open_one
    for accountant in opened:
        accountant.close()
