"""One MLflow run as a place to log to, and the store that it is in."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cfk_plugin.errors import TrackingError
from cfk_plugin.records.artifacts import Artifacts, parsed_document
from cfk_plugin.records.record import RunRecord, rows_of_explanations, rows_of_recount
from cfk_plugin.records.stores import SERVER_TIMEOUT, StoreDownError, client_of, tracking_errors
from cfk_plugin.records.summary import SUMMARY, Figures, Summary
from cfk_plugin.records.tables import SUFFIX, written
from cfk_plugin.records.tally import PER_EXPLANATION, Tally, metric_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Metric, Run
    from numpy.typing import NDArray

ASKED = metric_of("asked")
"""Metric of a run that holds explanations: how many it counts."""
UNTRACKED = metric_of("untracked")
_ID = "id:"
_JOB_TAG = "cfk.job"
_RECORD_TAG = "cfk.record."  # the id of a record follows; the value is the step after the record


def current_uri() -> str | None:
    """Return MLflow's tracking URI, paths made absolute, without importing MLflow for it; None for
    the default.
    """
    ask = getattr(sys.modules.get("mlflow"), "get_tracking_uri", None)
    uri: str | None = os.environ.get("MLFLOW_TRACKING_URI") if ask is None else ask()
    if uri and uri.startswith("sqlite:///") and not uri.startswith("sqlite:////"):
        return f"sqlite:///{Path(uri.removeprefix('sqlite:///')).absolute()}"
    return uri or None


def chosen_experiment() -> str | None:
    """Return the experiment named by the environment, as ``mlflow.set_experiment`` sets it."""
    if chosen := os.environ.get("MLFLOW_EXPERIMENT_ID"):
        return f"{_ID}{chosen}"
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or None


def experiment_id(client: MlflowClient, name: str | None) -> str:
    """Return the id of an experiment, created if need be; without a name, of the environment's."""
    existing = existing_experiment(client, name)
    if existing is not None:
        return existing
    return str(client.create_experiment(_experiment_or_default(name)))


def existing_experiment(client: MlflowClient, name: str | None) -> str | None:
    """Return the id of an experiment, as `experiment_id` does; None if there is none yet.

    Raises
    ------
    TrackingError
        If it was deleted.
    """
    name = _experiment_or_default(name)
    experiment: Experiment | None
    if name.startswith(_ID):
        experiment = client.get_experiment(name.removeprefix(_ID))
    else:
        experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return None
    if experiment.lifecycle_stage == "deleted":
        raise TrackingError(
            f"the experiment {experiment.name!r} was deleted: restore it (mlflow experiments"
            f" restore --experiment-id {experiment.experiment_id}), or name another one"
        )
    return str(experiment.experiment_id)


def _experiment_or_default(name: str | None) -> str:
    return name or chosen_experiment() or f"{_ID}0"  # MLflow's default experiment has the id 0


class Value(NamedTuple):
    name: str
    value: float
    step: int = 0
    created: int | None = None  # milliseconds since 1970; default: now


def write(
    client: MlflowClient,
    run_id: str,
    *,
    metrics: Iterable[Value] = (),
    params: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
    texts: Mapping[str, str] | None = None,
) -> None:
    """Write to a run: first texts, by path, then all else in one batch."""
    from mlflow.entities import Metric, Param, RunTag

    for path, text in (texts or {}).items():
        client.log_text(run_id, text, path)
    now = time.time_ns() // 1_000_000
    client.log_batch(
        run_id,
        [
            Metric(name, value, now if created is None else created, step)
            for name, value, step, created in metrics
        ],
        [Param(name, value) for name, value in (params or {}).items()],
        [RunTag(name, value) for name, value in (tags or {}).items()],
    )


_LOCK_SECONDS = 30.0


EVALUATION = "cfk.evaluation"
"""Tag of a run that an evaluation logged under the names of a release although nothing was
released.
"""


class OtherSettingsError(TrackingError):
    """The run already holds explanations made with other parameters."""


class LostSummaryError(TrackingError):
    """The run's summary is not of the explanations that the run counts, so that it cannot go on."""


class RunTarget(NamedTuple):
    """Which run records are for.

    It waits in journals as JSON: a change of its fields needs another `JOURNAL_VERSION`.
    """

    run_id: str | None = None
    tracking_uri: str | None = None  # default: MLflow's own setting
    # The rest, except the timeout, is for a run that has to be created.
    experiment: str | None = None  # name or, with ``id:`` before it, id
    run_name: str | None = None
    parent: str | None = None
    tags: Mapping[str, str] | None = None
    timeout: float = SERVER_TIMEOUT
    job: str = ""  # tag ``cfk.job``, by which the run of an earlier record is found


@dataclass(slots=True, eq=False)
class RunWriter:
    target: RunTarget
    run_id: str | None = None
    introduced: bool = False  # population and environment are in the run
    _tally: Tally | None = None

    def __post_init__(self) -> None:
        self.run_id = self.run_id or self.target.run_id

    def deliver(self, record: RunRecord) -> str:
        """Log a record; if the run cannot take it, log this and all later records to a child run.

        The same record may be delivered again: it is counted once.
        """
        try:
            return self.write(record)
        except (OtherSettingsError, LostSummaryError):
            self.target = self.target._replace(run_id=None, run_name=None, parent=self.run_id)
            self.run_id = None
            self._tally = None
            return self.write(record)

    def write(self, record: RunRecord) -> str:
        """Log a record, and return the run's id. The run is ended if it was made for the records.

        Two threads must not number explanations in one run at the same time.
        """
        lock = _locks.setdefault(self.target.tracking_uri, threading.Lock())
        if not lock.acquire(timeout=_LOCK_SECONDS):
            raise StoreDownError(
                "the tracking server is still busy with earlier records of this run"
            )
        try:
            with tracking_errors("MLflow did not take the records"):
                client = client_of(self.target.tracking_uri, self.target.timeout)
                self.run_id = run_id = self.run_id or self._found_or_made(client)
                self._write(client, run_id, record)
                if self.target.run_id is None:  # the owner of a given run ends it
                    client.set_terminated(run_id)
                return run_id
        finally:
            lock.release()

    def _write(self, client: MlflowClient, run_id: str, record: RunRecord) -> None:
        run = client.get_run(run_id)
        data = run.data
        if EVALUATION in data.tags:
            raise OtherSettingsError(
                "the run holds an evaluation, of which nothing left; log releases to another one"
            )
        refuse_other_params(data.params, record.params)
        if _has_landed(client, run, record):
            self._tally = None  # the run counts this record, and the tally may not
            return
        if self._tally is None or not self._tally.is_of(data.metrics):
            self._tally = _tally_of(client, run)
        before = self._tally
        after = before.plus([record])
        _log_files(client, run_id, record, before.asked)
        _log_values(client, run_id, record, before.asked)
        summary = Summary(figures=after.figures, earlier=before.figures)
        _log_summary(client, run_id, summary)
        _log_metrics(client, run_id, record, after)  # last: it makes the record count
        self._tally = after

    def _found_or_made(self, client: MlflowClient) -> str:
        """Return the run that an earlier record of the job is in, or a new one."""
        earlier = self._run_of_earlier_record(client)
        if earlier is not None:
            return earlier
        tags = dict(self.target.tags or {})
        if self.target.parent:
            experiment = _experiment_of(client, self.target.parent)
            tags["mlflow.parentRunId"] = self.target.parent
        else:
            experiment = experiment_id(client, self.target.experiment)
        if self.target.job:
            tags[_JOB_TAG] = self.target.job
        run = client.create_run(experiment, tags=tags, run_name=self.target.run_name)
        return str(run.info.run_id)

    def _run_of_earlier_record(self, client: MlflowClient) -> str | None:
        """Return the run that was made for this job, if there is one; make nothing."""
        if not self.target.job:
            return None
        condition = f"tags.`{_JOB_TAG}` = '{self.target.job}'"
        if self.target.parent:
            experiment: str | None = _experiment_of(client, self.target.parent)
            # The parent may be a run of the same job that cannot go on.
            condition += f" AND tags.`mlflow.parentRunId` = '{self.target.parent}'"
        else:
            experiment = existing_experiment(client, self.target.experiment)
        if experiment is None:
            return None
        runs = client.search_runs([experiment], condition, max_results=1)
        return str(runs[0].info.run_id) if runs else None


def _experiment_of(client: MlflowClient, run_id: str) -> str:
    return str(client.get_run(run_id).info.experiment_id)


_locks: dict[str | None, threading.Lock] = {}  # by tracking URI

if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    # A thread of the parent may have had a lock. No such thread is in the child.
    os.register_at_fork(after_in_child=_locks.clear)


def refuse_other_params(there: Mapping[str, str], ours: Mapping[str, str]) -> None:
    if other := [name for name, value in ours.items() if there.get(name, value) != value]:
        raise OtherSettingsError(
            f"the run holds explanations with another {', '.join(other)}; give each setting its own"
            " run, for example with mlflow.start_run(nested=True)"
        )


def _tally_of(client: MlflowClient, run: Run) -> Tally:
    """Return what a run has counted so far, from its metrics and its summary."""
    metrics = run.data.metrics
    if ASKED not in metrics:
        return Tally()
    asked = metrics[ASKED]
    figures = _figures_of(client, run, asked, metrics.get(UNTRACKED, 0))
    batches = client.get_metric_history(run.info.run_id, ASKED)
    series = {}
    for name in PER_EXPLANATION:
        values = client.get_metric_history(run.info.run_id, metric_of(name))
        # Values from step `asked` on are of an attempt whose records do not count.
        counted = [value for value in values if value.step < asked]
        series[name] = _of_batches(counted, batches, f"run {run.info.run_id}, {metric_of(name)}")
    return Tally(figures, series)


def _of_batches(
    values: Sequence[Metric], batches: Sequence[Metric], where: str
) -> NDArray[np.float64]:
    """Return one value per step, in the order of steps.

    A value counts if it has the time of the batch whose records include its step. Others are of an
    interrupted attempt, in whose place other records came. Of a step whose record is withheld no
    value counts.
    """
    times_of_batches: dict[int, set[int]] = {}  # by the step after the batch's last record
    for batch in batches:
        times_of_batches.setdefault(batch.step, set()).add(batch.timestamp)
    ends = sorted(times_of_batches)
    # The same records sent again leave the same values, which some stores keep twice.
    counted: dict[int, set[float]] = {}
    for value in values:
        end = ends[bisect_right(ends, value.step)]
        if value.timestamp in times_of_batches[end]:
            counted.setdefault(value.step, set()).add(value.value)
    for step, found in counted.items():
        if len(found) > 1:
            raise LostSummaryError(
                f"{where}: step {step} has {len(found)} values of the same time, and nothing says"
                " which of them counts; log to another run"
            )
    return np.asarray([min(counted[step]) for step in sorted(counted)], dtype=float)


def _figures_of(client: MlflowClient, run: Run, asked: float, untracked: float) -> Figures:
    """Return the figures in a run's summary that are of the explanations that the run counts."""
    name = f"{SUMMARY}.json"
    with tempfile.TemporaryDirectory(prefix="cfk-") as copies:
        artifacts = Artifacts.of(run, client.tracking_uri, Path(copies))
        where = artifacts.where(f"cfk/{name}")
        if name not in artifacts.names("cfk"):
            raise LostSummaryError(f"{where}: it is not there; log to another run")
        content = artifacts.content(f"cfk/{name}")
    try:
        summary = Summary.from_document(parsed_document(content, where), where)
    except TrackingError:
        raise LostSummaryError(f"{where}: it is damaged; log to another run") from None
    figures = summary.at(asked, untracked)
    if figures is None:
        raise LostSummaryError(
            f"{where}: it does not describe the {asked:g} explanations that the run counts; log to"
            " another run"
        )
    return figures


def _has_landed(client: MlflowClient, run: Run, record: RunRecord) -> bool:
    """Return True if the run counts the record, which an earlier attempt then has logged.

    The tag of the record has the step after it. At this step the run has a summary with the time
    of the record, unless the attempt failed before it.
    """
    step = run.data.tags.get(f"{_RECORD_TAG}{record.id}")
    if step is None:
        return False
    history = client.get_metric_history(run.info.run_id, ASKED)
    return any((value.timestamp, str(value.step)) == (record.created, step) for value in history)


def _log_files(client: MlflowClient, run_id: str, record: RunRecord, first_step: int) -> None:
    """Log the rows, under names that are the same at every attempt, and the files that a run has
    once.
    """
    tables = {
        "explanations": rows_of_explanations([record], first_step),
        "recount": rows_of_recount([record], first_step),
    }
    part = f"part-{record.created:013d}-{record.id}{SUFFIX}"
    with tempfile.TemporaryDirectory(prefix="cfk-") as copies:
        for folder, rows in tables.items():
            if rows:
                path = Path(copies, folder, part)
                path.parent.mkdir()
                path.write_bytes(written(rows))
        for name, content in _lasting_files(client, run_id, record, first_step).items():
            text = json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True)
            Path(copies, name).write_text(text, encoding="utf-8")
        client.log_artifacts(run_id, copies, "cfk")


def _lasting_files(
    client: MlflowClient, run_id: str, record: RunRecord, first_step: int
) -> dict[str, Any]:
    """Return the files that a run has once: all of them at its first step, later only those that it
    still lacks.
    """
    names = ("population", "environment")
    contents = {f"{name}.json": getattr(record, name) for name in names}
    files = {name: content for name, content in contents.items() if content is not None}
    if not first_step:
        return {"policy.json": record.policy, **files}
    there = (
        {Path(each.path).name for each in client.list_artifacts(run_id, "cfk")} if files else set()
    )
    return {name: content for name, content in files.items() if name not in there}


def _log_values(client: MlflowClient, run_id: str, record: RunRecord, first_step: int) -> None:
    # All values have the time of the record's summary, which tells whose values count.
    values = [
        Value(metric_of(name), float(row[name]), step, record.created)
        for step, row in enumerate(record.rows, start=first_step)
        for name in PER_EXPLANATION
        if row.get(name) is not None
    ]
    end = first_step + len(record.rows)
    write(client, run_id, metrics=values, tags={f"{_RECORD_TAG}{record.id}": str(end)})


def _log_summary(client: MlflowClient, run_id: str, summary: Summary) -> None:
    write(client, run_id, texts={f"cfk/{SUMMARY}.json": summary.to_json()})


def _log_metrics(client: MlflowClient, run_id: str, record: RunRecord, tally: Tally) -> None:
    values = [
        Value(name, value, tally.asked, record.created)
        for name, value in tally.metrics.items()
        if name != UNTRACKED
    ]
    # MLflow shows the value of the highest step, and among equal ones the latest. Records without
    # an explanation leave the other steps as they are, and times are not in order.
    untracked = int(tally.known("untracked"))
    values.append(Value(UNTRACKED, untracked, tally.asked + untracked, record.created))
    write(
        client,
        run_id,
        metrics=values,
        params=record.params,
        tags={**record.tags, "cfk.verdict": tally.verdict},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContents:
    text: str  # the report as JSON
    artifact: str  # where it is kept in the run
    metrics: Sequence[Value]  # finite numbers
    params: Mapping[str, str]
    tags: Mapping[str, str]


class LoggedReport(ABC):
    """A report as JSON for a run: counts, shares and settings alone."""

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values."""

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
        """Log to MLflow: figures as metrics, settings as parameters, tags, and this report as an
        artifact.
        """
        own = {"experiment": experiment, "tracking_uri": tracking_uri, "run_name": run_name}
        return log_report(self._contents(), run_id, **own, tags=tags)


def log_report(
    contents: ReportContents,
    run_id: str | None = None,
    *,
    experiment: str | None = None,
    tracking_uri: str | None = None,
    run_name: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> str:
    """Log a report to a run: the given one, else the active one, else a new one."""
    import mlflow

    with tracking_errors("MLflow did not take the report"):
        client = client_of(tracking_uri)
        if (
            run_id is None
            and experiment is None
            and tracking_uri is None
            and (active := mlflow.active_run())
        ):
            run_id = str(active.info.run_id)
        made = run_id is None
        run_id = run_id or str(
            client.create_run(experiment_id(client, experiment), run_name=run_name).info.run_id
        )
        told, texts = {**(tags or {}), **contents.tags}, {contents.artifact: contents.text}
        write(
            client, run_id, metrics=contents.metrics, params=contents.params, tags=told, texts=texts
        )
        if made:
            client.set_terminated(run_id)
    return run_id
