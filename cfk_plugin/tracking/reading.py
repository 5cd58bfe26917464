"""Find runs in an MLflow store, and read their documents and the rows of their tables."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

from cfk_plugin.data.formats import faults
from cfk_plugin.errors import InputError, TrackingError
from cfk_plugin.tracking.record import SCHEMA_VERSION, Figures, Kind, kind_of
from cfk_plugin.tracking.run import ASKED, EXPLANATIONS, client_of, tracking_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

Answer = TypeVar("Answer")

_AUDIT_TAGS = (
    "cfk.audit",
    "cfk.audit.epsilon.verdict",
    "cfk.audit.epsilon_one_run.verdict",
)
# One search each, because MLflow knows no "or".
_CONDITIONS = (f"metrics.`{ASKED}` > 0", *(f"tags.`{tag}` LIKE '%'" for tag in _AUDIT_TAGS))
_PAGE = 1000  # runs
_ID_PREFIX = "id:"
_MAX_NAMES = 5  # experiments that a message lists
_UNREADABLE = "the MLflow store cannot be read"
_SERVER_TIMEOUT = 5.0  # seconds to wait for a server
_NOT_THERE = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # codes of MLflow's errors
_VERSIONS = (None, 1)  # of a JSON file; some have no version

_NEEDED = ("step", "timestamp", "status")
_EXPECTED = ("reason", "k", "ncp", "pureness", "pureness_low", "pureness_high")
_TYPES: Mapping[Kind, set[type]] = {
    "whole numbers": {int},
    "times": {int},
    "numbers": {int, float},
    "flags": {bool},
    "text": {str},
}


# --- finding runs ---


def opened(tracking_uri: str | None) -> MlflowClient:
    """Return a client of a store, by default of MLflow's current store."""
    with tracking_errors("the MLflow store cannot be opened; check the tracking URI"):
        return client_of(tracking_uri, _SERVER_TIMEOUT, makes=False)


def _if_there(request: Callable[[], Answer]) -> Answer | None:
    """Return the result of a request to MLflow, or None if the object does not exist."""
    with tracking_errors(_UNREADABLE):
        try:
            return request()
        except Exception as error:
            if getattr(error, "error_code", None) in _NOT_THERE:
                return None
            raise


def ids_of(run_ids: object) -> list[str]:
    """Return a list of run ids without duplicates, from one id or several."""
    if isinstance(run_ids, str):
        return [run_ids]
    if isinstance(run_ids, Iterable):
        ids = list(run_ids)
        if all(isinstance(run_id, str) for run_id in ids):
            return list(dict.fromkeys(ids))
    raise InputError(
        f"run_ids must be the id of a run or a list of them, got {type(run_ids).__name__};"
        " Explanations.log returns one"
    )


def run_named(client: MlflowClient, run_id: str) -> Run:
    """Return a run by its id; raise `InputError` if it does not exist or was deleted."""
    run = _if_there(lambda: client.get_run(run_id))
    if run is None:
        raise InputError(
            f"there is no run {run_id} in this store; check the id and the tracking URI"
        )
    if run.info.lifecycle_stage != "active":
        raise InputError(
            f"run {run_id} was deleted; restore it with `mlflow runs restore`, or leave it out"
        )
    return run


def experiment_named(client: MlflowClient, name: str) -> Experiment:
    """Return an experiment by its name, or by ``id:`` and its id.

    Raises `InputError` if it does not exist or was deleted.
    """
    if name.startswith(_ID_PREFIX):
        experiment = _if_there(lambda: client.get_experiment(name.removeprefix(_ID_PREFIX)))
    else:
        experiment = _if_there(lambda: client.get_experiment_by_name(name))
    if experiment is None:
        raise InputError(
            f"there is no experiment {name!r} in this store; it has {_experiments(client)}"
        )
    if experiment.lifecycle_stage != "active":
        raise InputError(
            f"experiment {name!r} was deleted; restore it with `mlflow experiments restore`"
        )
    return experiment


def _experiments(client: MlflowClient) -> str:
    """Return the names of a few experiments as text; a store may have thousands."""
    with tracking_errors(_UNREADABLE):
        experiments = client.search_experiments(max_results=_MAX_NAMES + 1)
    if not experiments:
        return "none"
    names = ", ".join(repr(experiment.name) for experiment in experiments[:_MAX_NAMES])
    return f"{names} and others" if len(experiments) > _MAX_NAMES else names


def name_of_experiment(client: MlflowClient, experiment_id: str) -> str:
    """Return the name of an experiment by its id."""
    with tracking_errors(_UNREADABLE):
        return str(client.get_experiment(experiment_id).name)


def runs_in(client: MlflowClient, experiment_id: str) -> list[Run]:
    """Return the runs of an experiment with explanations or an audit, without deleted runs."""
    runs: dict[str, Run] = {}
    with tracking_errors(_UNREADABLE):
        for condition in _CONDITIONS:
            for page in _search(client, experiment_id, condition):
                runs |= {run.info.run_id: run for run in page}
    return list(runs.values())


def _search(client: MlflowClient, experiment_id: str, condition: str) -> Iterator[Iterable[Run]]:
    """Yield the runs of an experiment that meet a condition, page by page.

    `mlflow.search_runs` works only with the store that is set for the whole process.
    """
    token: str | None = None
    while True:
        page = client.search_runs([experiment_id], condition, max_results=_PAGE, page_token=token)
        yield page
        token = page.token
        if not token:
            return


# --- files of a run ---


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Artifacts:
    """The files of one run. Errors name the run and the file, never a value."""

    run_id: str
    _folder: Path  # for copies; the caller deletes it, even if a store still writes a copy
    _repository: ArtifactRepository

    @classmethod
    def of(cls, run: Run, tracking_uri: str, folder: Path) -> Artifacts:
        """Return the files of a run. A folder gets copies of them while they are read."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with tracking_errors(f"run {run.info.run_id}: its artifacts cannot be opened"):
            repository = get_artifact_repository(run.info.artifact_uri, tracking_uri=tracking_uri)
        return cls(run.info.run_id, folder, repository)

    def where(self, path: str) -> str:
        """Return the name of a file in messages."""
        return f"run {self.run_id}, {path}"

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder; an empty list if the folder does not exist."""
        with tracking_errors(f"{self.where(path)}: it cannot be listed"):
            files = self._repository.list_artifacts(path)
        return sorted(Path(file.path).name for file in files)

    def document(self, path: str) -> Mapping[str, Any]:
        """Return the object in a JSON file.

        Raises `TrackingError` if the file is damaged or has another version.
        """
        where = self.where(path)
        try:
            document = json.loads(self._content(path), parse_constant=_refuse)
        except (ValueError, RecursionError):
            raise TrackingError(f"{where}: it is damaged: not JSON") from None
        if not isinstance(document, dict):
            raise TrackingError(f"{where}: it is damaged: expected a JSON object")
        version = document.get("schema_version")
        if version not in _VERSIONS:
            text = version if isinstance(version, int) else "not a number"
            raise TrackingError(
                f"{where}: schema_version is {text}, expected {_VERSIONS[-1]}; a newer cfk_plugin"
                " wrote it"
            )
        return document

    def _content(self, path: str) -> bytes:
        """Return the content of a file."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            copy = Path(folder, "copy")
            failure = (
                f"{self.where(path)}: it cannot be fetched; check that the artifact store answers,"
                " has the file, and lets this machine read it"
            )
            with tracking_errors(failure):
                # Every repository implements this method. `mlflow.artifacts.download_artifacts`
                # calls it in threads, which delay the end of the process if a store does not
                # answer, and its error does not name the file.
                self._repository._download_file(path, str(copy))  # type: ignore[no-untyped-call]
            return copy.read_bytes()

    def figures(self, path: str) -> Figures:
        """Return the figures in a run's summary."""
        summary = self.document(path)
        problems = faults(summary, f"run-{SCHEMA_VERSION}#/$defs/summary")
        if problems:
            raise TrackingError(f"{self.where(path)}: it is damaged: {problems[0]}")
        figures: Figures = summary["figures"]
        return figures

    def rows(self) -> pd.DataFrame | None:
        """Return the rows of all tables of explanations, ordered by step; None without rows.

        The frame has only columns that reports read, and all that they require. Text has the type
        category, and times are in UTC.
        """
        columns: dict[str, list[Any]] = {}
        n_rows = 0
        for name in self.names(EXPLANATIONS):
            path = f"{EXPLANATIONS}/{name}"
            table = _table_of(self.document(path), self.where(path))
            n_more = len(table["step"])
            for column in columns.keys() | table.keys():
                values = columns.setdefault(column, [None] * n_rows)
                values.extend(table.get(column, [None] * n_more))
            n_rows += n_more
        if not n_rows:
            return None
        for column in _EXPECTED:
            columns.setdefault(column, [None] * n_rows)
        frame = pd.DataFrame({name: _typed(columns[name], name) for name in sorted(columns)})
        return frame.sort_values("step", kind="stable", ignore_index=True)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _table_of(document: Mapping[str, Any], where: str) -> dict[str, Sequence[Any]]:
    """Return the columns that reports read, from a table in the layout of `mlflow.log_table`."""
    names = document.get("columns")
    data = document.get("data")
    if not isinstance(names, list) or not isinstance(data, list):
        raise TrackingError(f"{where}: it is damaged: expected the columns and the data of a table")
    if {len(row) if isinstance(row, list) else -1 for row in data} > {len(names)}:
        raise TrackingError(f"{where}: it is damaged: a row does not have the columns of the table")
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise TrackingError(f"{where}: it lacks {', '.join(missing)}")
    table = dict(zip(names, zip(*data, strict=True), strict=True)) if data else {"step": ()}
    columns = {}
    for name, values in table.items():
        kind = kind_of(str(name))
        if kind is not None:
            _check(name, kind, values, where)
            columns[name] = values
    return columns


def _check(name: str, kind: Kind, values: Sequence[Any], where: str) -> None:
    """Raise `TrackingError` if a column's values do not have the type of its kind."""
    types = set(map(type, values))
    if name not in _NEEDED:
        types.discard(type(None))
    if not types <= _TYPES[kind]:
        raise TrackingError(f"{where}: it is damaged: column {name} does not contain {kind}")
    if int in types and not all(value is None or abs(value) < 2**53 for value in values):
        raise TrackingError(f"{where}: it is damaged: column {name} has a number that is too large")


def _typed(values: Sequence[Any], name: str) -> Any:
    """Return a column in the type of pandas for its kind; null becomes NaN in numbers."""
    kind = kind_of(name)
    if kind == "numbers":
        return np.array(values, dtype=float)
    if kind == "whole numbers":
        return np.array(values, dtype=np.int64)
    if kind == "times":
        return pd.DatetimeIndex(np.array(values, dtype="datetime64[ms]")).tz_localize("UTC")
    return pd.array(values, dtype="boolean") if kind == "flags" else pd.Categorical(values)
