"""Finding runs in an MLflow store: by their ids, or all of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from cfk_plugin.errors import InputError
from cfk_plugin.tracking.run import ASKED
from cfk_plugin.tracking.stores import client_of, tracking_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

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
_SERVER_TIMEOUT = 5.0  # seconds that a server may take to say that it is there
_NOT_THERE = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # codes of errors


def opened(tracking_uri: str | None) -> MlflowClient:
    """Return a client of a store; without an address, of MLflow's current one."""
    with tracking_errors("the MLflow store cannot be opened; check the tracking URI"):
        return client_of(tracking_uri, _SERVER_TIMEOUT, makes=False)


def _if_there(ask: Callable[[], Answer]) -> Answer | None:
    """Return what MLflow answers, or None if it does not have what was asked for."""
    with tracking_errors(_UNREADABLE):
        try:
            return ask()
        except Exception as error:
            if getattr(error, "error_code", None) in _NOT_THERE:
                return None
            raise


def ids_of(run_ids: object) -> list[str]:
    """Return the ids of runs that a caller gave, one or several, each once."""
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
    """Return a run by its id; one that was deleted is refused."""
    run = _if_there(lambda: client.get_run(run_id))
    if run is None:
        raise InputError(
            f"there is no run {run_id}; check the id, and that the tracking URI is its store's"
        )
    if run.info.lifecycle_stage != "active":
        raise InputError(
            f"run {run_id} was deleted; restore it with `mlflow runs restore`, or leave it out"
        )
    return run


def experiment_named(client: MlflowClient, name: str) -> Experiment:
    """Return an experiment by its name or, with ``id:`` before it, its id.

    One that was deleted is refused.
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
    """Name a few of the experiments; a store may have thousands."""
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
    """Return the runs of an experiment that are marked as holding explanations or an audit.

    Deleted runs are left out.
    """
    runs: dict[str, Run] = {}
    with tracking_errors(_UNREADABLE):
        for condition in _CONDITIONS:
            for page in _search(client, experiment_id, condition):
                runs |= {run.info.run_id: run for run in page}
    return list(runs.values())


def _search(client: MlflowClient, experiment_id: str, condition: str) -> Iterator[Iterable[Run]]:
    """Yield all runs of an experiment that meet a condition, page by page.

    `mlflow.search_runs` does the same only for the store of the whole process.
    """
    token: str | None = None
    while True:
        page = client.search_runs([experiment_id], condition, max_results=_PAGE, page_token=token)
        yield page
        token = page.token
        if not token:
            return


def summaries_of(client: MlflowClient, run_id: str) -> set[tuple[int, int]]:
    """Return, for each summary of a run, its time in milliseconds since 1970 and how many
    explanations it counts.
    """
    with tracking_errors(_UNREADABLE):
        history = client.get_metric_history(run_id, ASKED)
    return {(metric.timestamp, metric.step) for metric in history}
