"""Logging a report to MLflow: values, settings, tags, and the report itself."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from cfk_plugin.errors import TrackingError
from cfk_plugin.tracking.store import client_of, experiment_id

if TYPE_CHECKING:
    from mlflow import MlflowClient

_AT_ONCE = 1000
_TIMEOUT = 2.0  # seconds that a server may take to say that it is there


class Value(NamedTuple):
    """A number under its name; of a series, one number per step."""

    name: str
    value: float
    step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What of a report goes into a run.

    Attributes
    ----------
    text : str
        The report as JSON.
    artifact : str
        Where it is kept in the run.
    metrics : sequence of Value
        Finite numbers.
    params, tags : mapping of str to str
    """

    text: str
    artifact: str
    metrics: Sequence[Value]
    params: Mapping[str, str]
    tags: Mapping[str, str]


class LoggedReport(ABC):
    """A report that is JSON and goes into a run: counts, shares and settings alone."""

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values."""

    @abstractmethod
    def _entry(self) -> Entry:
        """Return what of the report goes into a run."""

    def to_json(self, indent: int | None = None) -> str:
        """Return everything as JSON."""
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
        """Log to MLflow: figures as metrics, settings as parameters, marks as tags, and this report as an artifact.

        Parameters
        ----------
        run_id : str, optional
            A run that exists. Default: the active one, else a new one.
        experiment : str, optional
            Name of the experiment of a new run; asks for a new run.
        tracking_uri : str, optional
            Default: MLflow's own setting.
        run_name : str, optional
            Of a new run.
        tags : mapping, optional
            Further tags.

        Returns
        -------
        str
            Id of the run.

        Raises
        ------
        TrackingError
            If MLflow does not take the report.
        """
        entry = self._entry()
        entry = replace(entry, tags={**(tags or {}), **entry.tags})
        return log_entry(entry, run_id, experiment=experiment, tracking_uri=tracking_uri, run_name=run_name)


def log_entry(
    entry: Entry,
    run_id: str | None = None,
    *,
    experiment: str | None = None,
    tracking_uri: str | None = None,
    run_name: str | None = None,
) -> str:
    """Log a report to a run; see `LoggedReport.log`."""
    import mlflow

    try:
        client = client_of(tracking_uri, _TIMEOUT)
        active = mlflow.active_run() if run_id is None and experiment is None and tracking_uri is None else None
        own = run_id is None and active is None
        chosen = run_id or (active.info.run_id if active is not None else None)
        if chosen is None:
            chosen = str(client.create_run(experiment_id(client, experiment), run_name=run_name).info.run_id)
        _write(client, chosen, entry)
        if own:
            client.set_terminated(chosen)
    except TrackingError:
        raise
    except Exception as error:
        raise TrackingError(f"MLflow did not take the report ({type(error).__name__})") from error
    return chosen


def _write(client: MlflowClient, run_id: str, entry: Entry) -> None:
    from mlflow.entities import Metric, Param, RunTag

    now = time.time_ns() // 1_000_000
    values = [Metric(name, value, now, step) for name, value, step in entry.metrics]
    client.log_text(run_id, entry.text, entry.artifact)
    for start in range(0, max(len(values), 1), _AT_ONCE):
        client.log_batch(run_id, metrics=values[start : start + _AT_ONCE])
    client.log_batch(
        run_id,
        params=[Param(name, value) for name, value in entry.params.items()],
        tags=[RunTag(name, value) for name, value in entry.tags.items()],
    )
