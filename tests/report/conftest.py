"""One store for all tests of a module, in which each logs runs of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import reported


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, _empty_mlflow_store: Path) -> Iterator[str]:
    with reported.store(tmp_path_factory.mktemp("store"), _empty_mlflow_store) as uri:
        yield uri
