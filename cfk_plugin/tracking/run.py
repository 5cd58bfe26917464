"""Find or create an MLflow run, and write records and reports to it."""

from __future__ import annotations

import json
import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cfk_plugin.errors import MissingDependencyError, TrackingError, check_extra
from cfk_plugin.tracking.record import PER_EXPLANATION, SCHEMA_VERSION, RunRecord
from cfk_plugin.tracking.tally import PLOTTED, metric_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Dataset, Experiment, Run

ASKED = metric_of("asked")
"""Metric of a run with explanations: the number of explanations."""
JOB = "cfk.job"
"""Tag of a run with explanations: the job that logs to it, with one process and one setting."""
EVALUATION = "cfk.evaluation"
"""Tag of a run of an evaluation, which has the figures of a release but released nothing."""
_TABLE = "explanations"
EXPLANATIONS = f"cfk/{_TABLE}"
"""Folder of a run with its table, in one file for each record."""
SUMMARY = "summary.json"
SERVER_TIMEOUT = 2.0  # seconds that a server may take to answer

_RECORDS = "cfk.records"  # tag: the number of records in the summary
_TABLES = "mlflow.loggedArtifacts"  # MLflow's tag
_MOST_SHOWN = 20
_LONGEST_TAG = 8_000  # characters that MLflow stores
_ID = "id:"
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_COLUMN_TYPES = {"numeric": "double", "date": "datetime"}  # by kind of attribute


# --- stores ---


@contextmanager
def tracking_errors(failure: str) -> Iterator[None]:
    """Replace exceptions of MLflow with a `TrackingError`, which does not quote their text."""
    try:
        yield
    except TrackingError:
        raise
    except Exception as error:
        # The class and MLflow's code, because the text may quote logged values.
        code = getattr(error, "error_code", None)
        kind = type(error).__name__
        name = f"{kind} {code}" if isinstance(code, str) else kind
        raise TrackingError(f"{failure} ({name})") from error


def client_of(
    tracking_uri: str | None, timeout: float = SERVER_TIMEOUT, *, makes: bool = True
) -> MlflowClient:
    """Return a client of a store, or raise `TrackingError` if the store does not answer.

    MLflow itself would wait for minutes. A store in a file is created if `makes`; otherwise, a
    missing file is an error.
    """
    import mlflow

    uri = tracking_uri or mlflow.get_tracking_uri()
    if uri.startswith(("http://", "https://")):
        _check_server(uri, timeout)
    elif not makes:
        _check_file(uri)
    check_store(uri)
    return mlflow.MlflowClient(tracking_uri=uri)


def _check_server(uri: str, timeout: float) -> None:
    """Raise a `TrackingError` if a tracking server does not answer in time."""
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    try:
        answer = http_request(  # type: ignore[no-untyped-call]
            get_default_host_creds(uri),  # type: ignore[no-untyped-call]
            "/health",
            "GET",
            timeout=timeout,
            max_retries=0,
            raise_on_status=False,
        )
    except Exception as error:
        raise TrackingError("the MLflow tracking server does not answer") from error
    if answer.status_code >= 500:
        raise TrackingError(f"the MLflow tracking server answers with status {answer.status_code}")


def _check_file(uri: str) -> None:
    """Raise a `TrackingError` if a store is a local file or folder that does not exist."""
    is_local = uri.startswith(("sqlite:///", "file:")) or "://" not in uri
    path = uri.removeprefix("sqlite:///").removeprefix("file:").partition("?")[0]
    # With a colon, it is a database in memory, another kind of store, or a path on Windows.
    if not is_local or not path or ":" in path or Path(path).exists():
        return
    raise TrackingError(
        f"there is no MLflow store {path}; set tracking_uri or --tracking-uri to the store of the"
        " runs"
    )


def check_store(uri: str) -> None:
    """Raise a `TrackingError` if a store is a database and only mlflow-skinny is installed.

    mlflow-skinny can log to tracking servers, but cannot open a database such as the local
    ``mlflow.db``.
    """
    scheme = uri.partition(":")[0].partition("+")[0]
    if scheme not in _DATABASES:
        return
    try:
        # The package mlflow requires alembic, and mlflow-skinny does not.
        check_extra("alembic", "serve", "an MLflow store in a database needs the package mlflow")
    except MissingDependencyError as missing:
        raise TrackingError(str(missing)) from missing


def absolute_uri(tracking_uri: str | None) -> str:
    """Return the URI of a store, by default MLflow's own, with an absolute path.

    ``cfk track`` may send a journal from another folder.
    """
    import mlflow

    uri = tracking_uri or mlflow.get_tracking_uri()
    if "://" not in uri and not uri.startswith("file:"):
        return str(Path(uri).absolute()) if _is_path(uri) else uri
    if uri.startswith("sqlite:///") and not uri.startswith("sqlite:////"):
        return f"sqlite:///{Path(uri.removeprefix('sqlite:///')).absolute()}"
    return uri


def _is_path(uri: str) -> bool:
    """Return True for a folder, and False for a name such as "databricks"."""
    return uri.startswith(".") or os.sep in uri


def chosen_experiment() -> str | None:
    """Return the experiment that ``mlflow.set_experiment`` or the environment names, or None."""
    number = os.environ.get("MLFLOW_EXPERIMENT_ID")
    if number:
        return f"{_ID}{number}"
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or None


def experiment_id(client: MlflowClient, name: str | None) -> str:
    """Return the id of an experiment, which is created if necessary.

    Without a name, it is the experiment of the environment, or MLflow's default.

    Raises
    ------
    TrackingError
        If the experiment was deleted.
    """
    name = name or chosen_experiment() or f"{_ID}0"  # MLflow's default experiment has the id 0
    experiment: Experiment | None
    if name.startswith(_ID):
        experiment = client.get_experiment(name.removeprefix(_ID))
    else:
        experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return str(client.create_experiment(name))
    if experiment.lifecycle_stage == "deleted":
        raise TrackingError(
            f"the experiment {experiment.name!r} was deleted; restore it (mlflow experiments"
            f" restore --experiment-id {experiment.experiment_id}), or name another experiment"
        )
    return str(experiment.experiment_id)


# --- records ---


class RunTarget(NamedTuple):
    """The run for the records of a job: an existing run, or a new run with these settings."""

    job: str
    run_id: str | None = None
    tracking_uri: str | None = None  # by default MLflow's own setting
    timeout: float = SERVER_TIMEOUT
    model: str | None = None  # URI of the explained model, if it is logged
    # whether the figures are linked to the model; not for a server, whose figures are too many
    links_figures: bool = True
    # the other fields are for a new run
    experiment: str | None = None  # its name, or ``id:`` and its id
    run_name: str | None = None
    parent: str | None = None
    tags: Mapping[str, str] | None = None


@dataclass(slots=True, eq=False)
class RunWriter:
    """Writes the records of a job to a run.

    A run has the records of one job, which numbers them. If the target's run belongs to another
    job, the records go to a child run. Writing a record twice changes nothing in a database, but a
    store of files then has two values of each metric.
    """

    target: RunTarget
    run_id: str | None = None
    _model_id: str | None = None  # id of the explained model, set together with `run_id`

    def write(self, records: Sequence[RunRecord]) -> str:
        """Write records in the order of their numbers, and return the run's id."""
        with tracking_errors("MLflow did not accept the records"):
            client = client_of(self.target.tracking_uri, self.target.timeout)
            run = self._run(client)
            run_id = str(run.info.run_id)
            last = records[-1]
            is_latest = int(run.data.tags.get(_RECORDS, 0)) <= last.number + 1
            _log_files(client, run_id, self.target.job, records, is_latest=is_latest)
            _log_inputs(client, run_id, records, self._model_id)
            values = [value for record in records for value in _steps(record)]
            tags = last.tags
            linked_model = None
            if is_latest:
                tags = {
                    **tags,
                    _RECORDS: str(last.number + 1),
                    _TABLES: _tables(run, self.target.job, last),
                    "cfk.verdict": last.verdict,
                }
                if self.target.links_figures:
                    linked_model = self._model_id
            for record in records:
                values += _figures(record, linked_model if record is last else None)
            write(client, run_id, metrics=values, params=last.params, tags=tags)
            if run_id != self.target.run_id and run.info.status == "RUNNING":
                client.set_terminated(run_id)  # the caller ends only the target's run
            return run_id

    def _run(self, client: MlflowClient) -> Run:
        """Return the run of the job. The first record claims an existing run or creates one."""
        if self.run_id is None:
            self._model_id = _model_id(client, self.target.model)
            self.run_id = self.target.run_id or self._created(client, self.target.parent)
        run = client.get_run(self.run_id)
        owner = run.data.tags.get(JOB)
        if owner is None and EVALUATION not in run.data.tags:
            client.set_tag(run.info.run_id, JOB, self.target.job)
            run = client.get_run(run.info.run_id)  # another process may have claimed it meanwhile
            owner = run.data.tags[JOB]
        if owner != self.target.job:
            run = client.get_run(self._created(client, str(run.info.run_id)))
        self.run_id = str(run.info.run_id)
        return run

    def _created(self, client: MlflowClient, parent: str | None) -> str:
        """Return the id of the run that the job created earlier, or of a new run."""
        tags = {**(self.target.tags or {}), JOB: self.target.job}
        if parent is None:
            experiment = experiment_id(client, self.target.experiment)
        else:
            experiment = str(client.get_run(parent).info.experiment_id)
            tags["mlflow.parentRunId"] = parent
        condition = f"tags.`{JOB}` = '{self.target.job}'"
        earlier = client.search_runs([experiment], condition, max_results=1)
        if earlier:
            return str(earlier[0].info.run_id)
        run = client.create_run(experiment, tags=tags, run_name=self.target.run_name)
        return str(run.info.run_id)


def _log_files(
    client: MlflowClient, run_id: str, job: str, records: Sequence[RunRecord], *, is_latest: bool
) -> None:
    """Log the tables of records and, once per run, its documents as JSON files."""
    documents: dict[str, Any] = {}
    for record in records:
        if record.rows:
            documents[_file_of(job, record.number)] = record.table()
        if record.environment is not None or record.number == 0:
            documents["policy.json"] = record.policy
        for name in ("population", "environment"):
            content = getattr(record, name)
            if content is not None:
                documents[f"{name}.json"] = content
    if is_latest:
        documents[SUMMARY] = {"schema_version": SCHEMA_VERSION, "figures": records[-1].figures}
    with tempfile.TemporaryDirectory(prefix="cfk-") as folder:
        Path(folder, _TABLE).mkdir()
        for name, content in documents.items():
            text = json.dumps(content, ensure_ascii=False, allow_nan=False)
            Path(folder, name).write_text(text, encoding="utf-8")
        client.log_artifacts(run_id, folder, "cfk")


def _file_of(job: str, number: int) -> str:
    """Return the name of the file with the rows of a record.

    It contains the job, because two processes may claim a run at the same moment.
    """
    return f"{_TABLE}/part-{job[:8]}-{number:06d}.json"


def _tables(run: Run, job: str, last: RunRecord) -> str:
    """Return the tag by which MLflow shows files as tables; it is limited to a few files."""
    text = run.data.tags.get(_TABLES, "[]")
    tables = json.loads(text)
    for number in range(min(last.number + 1, _MOST_SHOWN)):
        table = {"path": f"cfk/{_file_of(job, number)}", "type": "table"}
        if table not in tables:
            tables.append(table)
    new_text = json.dumps(tables)
    return new_text if len(new_text) <= _LONGEST_TAG else text


def _steps(record: RunRecord) -> Iterator[Value]:
    """Yield the metrics of each explanation of a record."""
    for step, row in enumerate(record.rows, start=record.first_step):
        for name in PER_EXPLANATION:
            if row.get(name) is not None:
                yield Value(metric_of(name), float(row[name]), step, record.created)


def _figures(record: RunRecord, model_id: str | None) -> Iterator[Value]:
    """Yield the figures of the run up to a record.

    With `model_id`, MLflow also lists them on the page of the logged model.
    """
    for name in PLOTTED:
        value = record.figures.get(name)
        if value is not None:
            yield Value(metric_of(name), float(value), record.number, record.created, model_id)


def _model_id(client: MlflowClient, uri: str | None) -> str | None:
    """Return the id of a logged model, or None if this store does not have it."""
    if uri is None or not uri.startswith("models:/"):
        return None
    name, _, version = uri.removeprefix("models:/").partition("/")
    try:
        if not version:
            return str(client.get_logged_model(name).model_id)
        return client.get_model_version(name, version).model_id or None
    except Exception:  # noqa: BLE001 - a store without the model may raise any error
        return None


def _log_inputs(
    client: MlflowClient, run_id: str, records: Sequence[RunRecord], model_id: str | None
) -> None:
    """Log the population and the explained model as inputs, if a record has the population."""
    from mlflow.entities import DatasetInput, InputTag, LoggedModelInput

    populations = [record.population for record in records if record.population is not None]
    if not populations:
        return
    tags = [InputTag("mlflow.data.context", "population")]
    datasets = [DatasetInput(_dataset_of(populations[-1]), tags)]
    models = [] if model_id is None else [LoggedModelInput(model_id)]
    client.log_inputs(run_id, datasets, models)


def _dataset_of(population: Mapping[str, Any]) -> Dataset:
    """Return a dataset of MLflow with the population's columns, counts and fingerprint.

    It contains no rows.
    """
    from mlflow.data.code_dataset_source import CodeDatasetSource
    from mlflow.data.meta_dataset import MetaDataset
    from mlflow.entities import Dataset
    from mlflow.types.schema import ColSpec, Schema, TensorSpec

    columns: list[ColSpec | TensorSpec] = [
        ColSpec(_COLUMN_TYPES.get(attribute["kind"], "string"), attribute["name"])
        for attribute in population["attributes"]
    ]
    dataset = MetaDataset(  # type: ignore[abstract]
        CodeDatasetSource({}),
        name="population",
        digest=population.get("fingerprint"),  # None for prototypes: no epsilon covers it
        schema=Schema(columns),
    )
    profile = {f"num_{name}": population[name] for name in ("rows", "people") if name in population}
    return Dataset(**{**dataset.to_dict(), "profile": json.dumps(profile)})


class Value(NamedTuple):
    name: str
    value: float
    step: int = 0
    created: int | None = None  # milliseconds since 1970; default: now
    model_id: str | None = None  # of a logged model


def write(
    client: MlflowClient,
    run_id: str,
    *,
    metrics: Sequence[Value] = (),
    params: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
    texts: Mapping[str, str] | None = None,
) -> None:
    """Write texts to a run as files, by path; then the other arguments in one batch."""
    from mlflow.entities import Metric, Param, RunTag

    for path, text in (texts or {}).items():
        client.log_text(run_id, text, path)
    now = time.time_ns() // 1_000_000
    client.log_batch(
        run_id,
        [
            Metric(name, value, now if created is None else created, step, model_id, run_id=run_id)
            for name, value, step, created, model_id in metrics
        ],
        [Param(name, value) for name, value in (params or {}).items()],
        [RunTag(name, value) for name, value in (tags or {}).items()],
    )


# --- reports ---


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContents:
    """The parts of a report that a run logs."""

    text: str  # the report as JSON
    artifact: str  # path of the text in the run
    metrics: Sequence[Value]  # finite numbers
    params: Mapping[str, str]
    tags: Mapping[str, str]


class LoggedReport(ABC):
    """Base of reports that a run logs. They contain only counts, shares and settings."""

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the report as values for JSON."""

    @abstractmethod
    def _contents(self) -> ReportContents: ...

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False, ensure_ascii=False)

    def log(
        self,
        run_id: str | None = None,
        *,
        experiment: str | None = None,
        tracking_uri: str | None = None,
        run_name: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """Log figures as metrics, settings as parameters, tags, and the report as an artifact.

        The parameters are those of `Explanations.log`. Returns the id of the run.
        """
        import mlflow

        contents = self._contents()
        with tracking_errors("MLflow did not accept the report"):
            client = client_of(tracking_uri)
            active = mlflow.active_run()
            if active and run_id is None and experiment is None and tracking_uri is None:
                run_id = str(active.info.run_id)
            is_new = run_id is None
            if run_id is None:
                run = client.create_run(experiment_id(client, experiment), run_name=run_name)
                run_id = str(run.info.run_id)
            write(
                client,
                run_id,
                metrics=contents.metrics,
                params=contents.params,
                tags={**(tags or {}), **contents.tags},
                texts={contents.artifact: contents.text},
            )
            if is_new:
                client.set_terminated(run_id)
        return run_id
