from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cfk_plugin.records.spool import Shipper, shipper


@pytest.fixture(autouse=True)
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CFK_SPOOL", str(tmp_path / "spool"))
    return tmp_path / "spool"


@pytest.fixture(autouse=True)
def own_shipper(spool: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shipper]:
    monkeypatch.setattr("cfk_plugin.records.spool._shippers", {})
    monkeypatch.setattr("cfk_plugin.records.logger._default", [])
    own = shipper()
    yield own
    own.close(0)
