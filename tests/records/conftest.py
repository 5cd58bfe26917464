"""A spool of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cfk_plugin.records.shipper import Shipper, shipper


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
