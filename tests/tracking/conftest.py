"""Loggers of the test's own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfk_plugin.tracking.logger._loggers", {})
