"""Which runs a report is made from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cfk_plugin.errors import InputError, TrackingError
from cfk_plugin.records.run import client_of, kind_of, tracking_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

ASKED = "cfk.asked"
"""Metric of a run that holds explanations: how many it counts."""

_AUDITS = ("cfk.audit", "cfk.audit.epsilon.verdict", "cfk.audit.epsilon_one_run.verdict", "cfk.frontier")  # tags
_FILTERS = (f"metrics.`{ASKED}` > 0", *(f"tags.`{tag}` LIKE '%'" for tag in _AUDITS))  # MLflow knows no "or"
_ID = "id:"
_NAMED = 5  # experiments that a message lists
_PAGE = 1000
_UNREADABLE = "the MLflow store cannot be read"
_TIMEOUT = 5.0  # seconds that a server may take to say that it is there
_UNKNOWN = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")


def opened(tracking_uri: str | None) -> MlflowClient:
    """Return a client of a store; without an address, of the one that MLflow is set to.

    Raises
    ------
    TrackingError
        If it does not answer, or its address is none.
    """
    with tracking_errors("the MLflow store cannot be opened; check the tracking URI"):
        return client_of(tracking_uri, _TIMEOUT)


def run_named(client: MlflowClient, run_id: str) -> Run:
    """Return a run.

    Raises
    ------
    InputError
        If there is none of this id, or it was deleted.
    TrackingError
        If the store cannot be read.
    """
    try:
        run = client.get_run(run_id)
    except Exception as error:
        if getattr(error, "error_code", None) in _UNKNOWN:
            raise InputError(
                f"there is no run {run_id}; check the id, and that the tracking URI is its store's"
            ) from None
        raise TrackingError(f"{_UNREADABLE} ({kind_of(error)})") from error
    if run.info.lifecycle_stage != "active":
        raise InputError(f"run {run_id} was deleted; restore it with `mlflow runs restore`, or leave it out")
    return run


def experiment_named(client: MlflowClient, name: str) -> Experiment:
    """Return an experiment by its name or, with ``id:`` before it, its id.

    Raises
    ------
    InputError
        If there is none, or it was deleted.
    TrackingError
        If the store cannot be read.
    """
    try:
        by_id = name.startswith(_ID)
        found = client.get_experiment(name.removeprefix(_ID)) if by_id else client.get_experiment_by_name(name)
    except Exception as error:
        if getattr(error, "error_code", None) not in _UNKNOWN:
            raise TrackingError(f"{_UNREADABLE} ({kind_of(error)})") from error
        found = None
    if found is None:
        raise InputError(f"there is no experiment {name!r} in this store; {_experiments(client)}")
    if found.lifecycle_stage != "active":
        raise InputError(f"experiment {name!r} was deleted; restore it with `mlflow experiments restore`")
    return found


def names_of_experiments(client: MlflowClient, ids: Iterable[str]) -> dict[str, str]:
    """Return the names of experiments by their ids.

    Raises
    ------
    TrackingError
        If the store cannot be read.
    """
    with tracking_errors(_UNREADABLE):
        return {id_: str(client.get_experiment(id_).name) for id_ in sorted(set(ids))}


def runs_in(client: MlflowClient, experiment_id: str) -> list[Run]:
    """Return the runs of an experiment that say they hold explanations or an audit; not deleted ones.

    Raises
    ------
    TrackingError
        If the store cannot be read.
    """
    found: dict[str, Run] = {}
    with tracking_errors(_UNREADABLE):
        for condition in _FILTERS:
            page, token = None, ""
            while page is None or token:
                page = client.search_runs([experiment_id], condition, max_results=_PAGE, page_token=token or None)
                found |= {run.info.run_id: run for run in page}
                token = page.token
    return list(found.values())


def summaries_of(client: MlflowClient, run_id: str) -> set[tuple[int, int]]:
    """Return the time of each summary of a run, milliseconds since 1970, and how many explanations it counts.

    Raises
    ------
    TrackingError
        If the store cannot be read.
    """
    with tracking_errors(_UNREADABLE):
        return {(metric.timestamp, metric.step) for metric in client.get_metric_history(run_id, ASKED)}


def _experiments(client: MlflowClient) -> str:
    """Say which experiments there are; a few names, as a store may have thousands."""
    with tracking_errors(_UNREADABLE):
        names = [experiment.name for experiment in client.search_experiments(max_results=_NAMED + 1)]
    more = " and others" if len(names) > _NAMED else ""
    return f"it has {', '.join(repr(name) for name in names[:_NAMED])}{more}" if names else "it has none"
