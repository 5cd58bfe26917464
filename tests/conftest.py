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
    """Leave what all imports made out of garbage collections: to go through it again and again
    takes a tenth.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


REPOSITORY = Path(__file__).resolve().parents[1]
SHARED_DATA = REPOSITORY.parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder with the tables of the published experiments; the repository does not hold
    them.
    """
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
def _what_takes_longer_than_tests_is_made_once() -> Iterator[None]:
    """Keep what the runner of commands makes anew for every call, and what each `fit` reads of all
    distributions.
    """
    import typer.testing

    from cfk_plugin import plugins

    found, read = cache(lambda group, *path: read(group=group)), plugins.entry_points
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(typer.testing._get_command))
        patch.setattr(plugins, "entry_points", lambda group: found(group, *sys.path))
        yield


@pytest.fixture(scope="session", autouse=True)
def _stray_mlflow_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Keep tests that log without asking for `mlflow_store` from writing to a store of the
    developer's.
    """
    store = tmp_path_factory.mktemp("mlflow") / "stray.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(store.parent / "state"))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        for name in ("REGISTRY_URI", "EXPERIMENT_ID", "EXPERIMENT_NAME", "RUN_ID"):
            patch.delenv(f"MLFLOW_{name}", raising=False)
        yield f"sqlite:///{store}"


@pytest.fixture(scope="module", autouse=True)
def _what_a_module_set_is_forgotten(_stray_mlflow_store: str) -> Iterator[None]:
    """Undo what a module set as its store, experiment or variables of ours and MLflow's, whatever
    module comes next.
    """

    def of_ours() -> dict[str, str]:
        return {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("CFK_", "MLFLOW_"))
        }

    before = of_ours()
    yield
    if (mlflow := sys.modules.get("mlflow")) is not None:
        mlflow.set_tracking_uri(None)
        mlflow.set_registry_uri(None)
        mlflow.tracking.fluent._active_experiment_id = None
    for name in of_ours():
        del os.environ[name]
    os.environ |= before


@pytest.fixture(scope="session")
def _empty_mlflow_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Create the tables of a store once; copying the file is much faster than MLflow's migrations.

    Stores do not read again which migration is the last one, and wait for no disk: nobody needs
    them after a power cut.
    """
    import mlflow
    from mlflow.store.db import utils
    from sqlalchemy import event

    def hasty(uri: str) -> Any:
        engine = make(uri)
        event.listen(
            engine,
            "connect",
            lambda connection, _: connection.execute("PRAGMA synchronous=OFF").close(),
        )
        return engine

    folder, make = tmp_path_factory.mktemp("mlflow-empty"), utils.create_sqlalchemy_engine
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "create_sqlalchemy_engine", hasty)
        patch.setattr(
            utils, "_get_latest_schema_revision", cache(utils._get_latest_schema_revision)
        )
        with contextlib.chdir(folder):
            mlflow.MlflowClient(
                tracking_uri=f"sqlite:///{folder / 'mlflow.db'}"
            ).search_experiments()
        # Whatever SQLite still holds in a side file goes into the one that gets copied.
        with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        yield folder / "mlflow.db"


@pytest.fixture
def mlflow_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _empty_mlflow_store: Path
) -> Iterator[str]:
    """Give the test an MLflow store of its own, with an active experiment `tests`; yield its
    tracking URI.

    The working directory is the temporary one, so that artifacts of further experiments land there
    as well.
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
