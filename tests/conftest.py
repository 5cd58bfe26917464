"""Fixtures that every test may use."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import sqlite3
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

import worlds
from local_spark import spark, spark_console  # noqa: F401 - one session for all tests

if TYPE_CHECKING:
    from collections.abc import Iterator

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")  # The machine may have other work.


def pytest_collection_finish() -> None:
    """Keep imported modules out of garbage collections, which would take a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


REPOSITORY = Path(__file__).resolve().parents[1]
SHARED_DATA = REPOSITORY.parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder with the tables of the published experiments, outside the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip(
            "needs the tables of the published experiments in ../shared/data beside the repository"
        )
    return SHARED_DATA


@pytest.fixture(scope="session")
def applicants() -> worlds.World:
    """Return applicants for a loan: nothing is missing, and the model has probabilities."""
    return worlds.applicants()


@pytest.fixture(scope="session")
def patients() -> worlds.World:
    """Return patients with several rows each, dates, flags and a hierarchy."""
    return worlds.patients()


@pytest.fixture(scope="session")
def residents() -> worlds.World:
    """Return residents with an identifier, a hierarchy, levels, dates and gaps."""
    return worlds.residents()


@pytest.fixture(scope="session", autouse=True)
def _remembered_entry_points() -> Iterator[None]:
    """Read the entry points of all distributions, and make the command line, only once."""
    import typer.testing

    from cfk_plugin import plugins

    read = plugins.entry_points
    remembered = cache(lambda group, *path: read(group=group))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(typer.testing._get_command))
        patch.setattr(plugins, "entry_points", lambda group: remembered(group, *sys.path))
        yield


@pytest.fixture(scope="session", autouse=True)
def _stray_mlflow_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Keep tests that log without the fixture `mlflow_store` out of the developer's own store."""
    store = tmp_path_factory.mktemp("mlflow") / "stray.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(store.parent / "state"))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        for name in ("REGISTRY_URI", "EXPERIMENT_ID", "EXPERIMENT_NAME", "RUN_ID"):
            patch.delenv(f"MLFLOW_{name}", raising=False)
        yield f"sqlite:///{store}"


def _settings() -> dict[str, str]:
    """Return the environment variables of this product and of MLflow."""
    prefixes = ("CFK_", "MLFLOW_")
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}


@pytest.fixture(scope="module", autouse=True)
def _unchanged_settings(_stray_mlflow_store: str) -> Iterator[None]:
    """Undo what a module set as its store, its experiment or an environment variable."""
    before = _settings()
    yield
    mlflow = sys.modules.get("mlflow")
    if mlflow is not None:
        mlflow.set_tracking_uri(None)
        mlflow.set_registry_uri(None)
        mlflow.tracking.fluent._active_experiment_id = None
    for name in _settings():
        del os.environ[name]
    os.environ |= before


@pytest.fixture(scope="session")
def _empty_mlflow_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Create the tables of a store once: to copy the file is faster than MLflow's migrations.

    Stores do not read again which migration is the last one, and do not wait for the disk.
    """
    import mlflow
    from mlflow.store.db import utils
    from sqlalchemy import event

    make_engine = utils.create_sqlalchemy_engine
    folder = tmp_path_factory.mktemp("mlflow-empty")

    def do_not_wait(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA synchronous=OFF").close()

    def make_hasty_engine(uri: str) -> Any:
        engine = make_engine(uri)
        event.listen(engine, "connect", do_not_wait)
        return engine

    revision = cache(utils._get_latest_schema_revision)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "create_sqlalchemy_engine", make_hasty_engine)
        patch.setattr(utils, "_get_latest_schema_revision", revision)
        with contextlib.chdir(folder):
            uri = f"sqlite:///{folder / 'mlflow.db'}"
            mlflow.MlflowClient(tracking_uri=uri).search_experiments()
        # SQLite may still have a part in a side file.
        with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        yield folder / "mlflow.db"


@pytest.fixture
def mlflow_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _empty_mlflow_store: Path
) -> Iterator[str]:
    """Yield the tracking URI of an MLflow store of this test, whose active experiment is `tests`.

    The working directory is the temporary one, so that artifacts of further experiments are there.
    """
    import mlflow

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    shutil.copyfile(_empty_mlflow_store, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    for name in ("TRACKING_URI", "REGISTRY_URI"):
        monkeypatch.setenv(f"MLFLOW_{name}", uri)  # Child processes use the same store.
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "")  # Set by set_experiment(); restored afterwards.
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    mlflow.create_experiment("tests", artifact_location=(tmp_path / "artifacts").as_uri())
    mlflow.set_experiment("tests")
    yield uri
    while mlflow.active_run() is not None:
        mlflow.end_run()
    mlflow.set_tracking_uri(None)
    mlflow.set_registry_uri(None)
