"""One MLflow run as a place to log to. The only module that calls MLflow."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfk_plugin.counterfactual import GeneralizedCounterfactual
from cfk_plugin.errors import TrackingError
from cfk_plugin.tracking.record import Record, table
from cfk_plugin.tracking.tally import PER_EXPLANATION, Tally

if TYPE_CHECKING:
    from mlflow import MlflowClient

_LOCK_SECONDS = 30.0


class StoreDownError(TrackingError):
    """The tracking server does not answer; the same records may be sent again later."""


class OtherSettingsError(TrackingError):
    """The run already holds explanations made with other parameters."""


@dataclass(slots=True, eq=False)
class Run:
    """A run that exists, or that is created when the first record arrives.

    Attributes
    ----------
    run_id : str, optional
    tracking_uri : str, optional
        Default: MLflow's own setting.
    experiment, run_name, parent : str, optional
        For a run that has to be created.
    tags : mapping
        Further tags.
    timeout : float
        Seconds that a server may take to say that it is there.
    """

    run_id: str | None = None
    tracking_uri: str | None = None
    experiment: str | None = None
    run_name: str | None = None
    parent: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 2.0
    _tally: Tally | None = None
    _branches: dict[str, Run] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def describe(self) -> dict[str, str | None]:
        """Return which run this is, for the spool."""
        return {"run_id": self.run_id, "experiment": self.experiment, "run_name": self.run_name}

    def write(self, records: Sequence[Record], *, branch: bool = False) -> str:
        """Log records that share their parameters.

        Parameters
        ----------
        records : sequence of Record
        branch : bool
            Put records into a child run when this one holds other parameters, instead of raising.

        Returns
        -------
        str
            Id of the run that holds them now.

        Raises
        ------
        TrackingError
            If MLflow does not take them; sending the same records again is safe.
        """
        if not self._lock.acquire(timeout=_LOCK_SECONDS):
            raise StoreDownError("the tracking server is still busy with earlier records of this run")
        try:
            return self._write(records)
        except OtherSettingsError:
            if not branch:
                raise
            child = self._branch(json.dumps(records[0].params, sort_keys=True))
        except TrackingError:
            raise
        except Exception as error:
            raise TrackingError(f"MLflow did not take the records ({type(error).__name__})") from error
        finally:
            self._lock.release()
        return child.write(records)

    def finish(self) -> None:
        """Mark a run that was created here as finished."""
        for run in (self, *self._branches.values()):
            if run.run_id is not None:
                client_of(run.tracking_uri, run.timeout).set_terminated(run.run_id)

    def _branch(self, params: str) -> Run:
        if params not in self._branches:
            self._branches[params] = Run(
                tracking_uri=self.tracking_uri,
                experiment=self.experiment,
                parent=self.run_id,
                tags=self.tags,
                timeout=self.timeout,
            )
        return self._branches[params]

    def _write(self, records: Sequence[Record]) -> str:
        client = client_of(self.tracking_uri, self.timeout)
        if self.run_id is None:
            self.run_id = self._create(client)
        run_id = self.run_id
        data = client.get_run(run_id).data
        _refuse_other_params(data.params, records[0].params)
        if self._tally is None or self._tally.asked != data.metrics.get("cfk.asked", 0):
            self._tally = Tally.resume(
                data.metrics, lambda name: [m.value for m in client.get_metric_history(run_id, name)]
            )
        before, after = self._tally, self._tally.plus(records)
        _log_files(client, run_id, records, before.asked)
        _log_batch(client, run_id, records, before.asked, after)  # last: from here on the records count
        self._tally = after
        return run_id

    def _create(self, client: MlflowClient) -> str:
        tags = {**self.tags, **({"mlflow.parentRunId": self.parent} if self.parent else {})}
        if self.parent:
            experiment = client.get_run(self.parent).info.experiment_id
        else:
            experiment = experiment_id(client, self.experiment)
        run = client.create_run(experiment, tags=tags, run_name=self.run_name)
        return str(run.info.run_id)


def client_of(tracking_uri: str | None, timeout: float) -> MlflowClient:
    """Return a client of a store that answers: MLflow itself waits for minutes on a server that does not."""
    import mlflow

    uri = tracking_uri or mlflow.get_tracking_uri()
    if uri.startswith(("http://", "https://")):
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
            raise StoreDownError("the MLflow tracking server does not answer") from error
        if answer.status_code >= 500:
            raise StoreDownError(f"the MLflow tracking server answers with status {answer.status_code}")
    return mlflow.MlflowClient(tracking_uri=uri)


def experiment_id(client: MlflowClient, name: str | None) -> str:
    """Return the id of an experiment, made if need be; without a name the one that the environment says."""
    if name is None:
        if chosen := os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return chosen
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME")
    if not name:
        return "0"
    experiment = client.get_experiment_by_name(name)
    return str(experiment.experiment_id if experiment else client.create_experiment(name))


def _refuse_other_params(there: Mapping[str, str], ours: Mapping[str, str]) -> None:
    if other := [name for name, value in ours.items() if there.get(name, value) != value]:
        raise OtherSettingsError(
            f"the run holds explanations with another {', '.join(other)}; give each setting its own run, "
            "for example with mlflow.start_run(nested=True)"
        )


def _log_batch(client: MlflowClient, run_id: str, records: Sequence[Record], first_step: int, tally: Tally) -> None:
    from mlflow.entities import Metric, Param, RunTag

    steps = _values_by_step(records, first_step)
    metrics = [Metric(f"cfk.{name}", value, time, step) for name, value, time, step in steps]
    last = records[-1].created
    metrics += [Metric(name, value, last, tally.asked) for name, value in tally.metrics().items()]
    params = [Param(name, value) for name, value in records[0].params.items()]
    tags = {**records[-1].tags, "cfk.verdict": tally.verdict}
    client.log_batch(run_id, metrics=metrics, params=params, tags=[RunTag(name, value) for name, value in tags.items()])


def _values_by_step(records: Sequence[Record], first_step: int) -> list[tuple[str, float, int, int]]:
    entries = [(entry, record.created) for record in records for entry in record.explanations]
    return [
        (name, float(getattr(entry.certificate, name)), created, step)
        for step, (entry, created) in enumerate(entries, start=first_step)
        if isinstance(entry, GeneralizedCounterfactual)
        for name in PER_EXPLANATION
    ]


def _log_files(client: MlflowClient, run_id: str, records: Sequence[Record], first_step: int) -> None:
    import pyarrow.parquet as pq

    policy: dict[str, Any] = records[0].explanations.policy.to_dict()
    with tempfile.TemporaryDirectory(prefix="cfk-") as folder:
        rows = table(records, first_step)
        part = Path(folder) / f"part-{first_step:09d}-{records[0].id}.parquet"
        if rows.num_rows:
            pq.write_table(rows, part)
            client.log_artifact(run_id, str(part), "cfk/explanations")
        if not first_step:
            path = Path(folder) / "policy.json"
            path.write_text(json.dumps(policy, indent=1, sort_keys=True), encoding="utf-8")
            client.log_artifact(run_id, str(path), "cfk")
