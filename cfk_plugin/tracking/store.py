"""The store of MLflow: a client of one that answers, and what the environment says of where to log."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cfk_plugin.errors import TrackingError

if TYPE_CHECKING:
    from mlflow import MlflowClient

LONGEST_DESCRIPTION = 5_000
"""Characters that MLflow's registry stores of a description."""
_ID = "id:"


class StoreDownError(TrackingError):
    """The tracking server does not answer; the same records may be sent again later."""


def kind_of(error: Exception) -> str:
    """Name an error by its class and MLflow's code for it; its text may quote what was sent."""
    code = getattr(error, "error_code", None)
    return f"{type(error).__name__} {code}" if isinstance(code, str) else type(error).__name__


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


def current_uri() -> str | None:
    """Return the tracking URI that MLflow would use now, without importing MLflow for the question; None for default.

    A path is made absolute: what sends the records later may run in another folder.
    """
    ask = getattr(sys.modules.get("mlflow"), "get_tracking_uri", None)
    uri: str | None = os.environ.get("MLFLOW_TRACKING_URI") if ask is None else ask()
    if uri and uri.startswith("sqlite:///") and not uri.startswith("sqlite:////"):
        return f"sqlite:///{Path(uri.removeprefix('sqlite:///')).absolute()}"
    return uri or None


def chosen_experiment() -> str | None:
    """Return the experiment that the environment names, which ``mlflow.set_experiment`` sets."""
    if chosen := os.environ.get("MLFLOW_EXPERIMENT_ID"):
        return f"{_ID}{chosen}"
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or None


def experiment_id(client: MlflowClient, name: str | None) -> str:
    """Return the id of an experiment, made if need be; without a name the one that the environment says."""
    name = name or chosen_experiment()
    if not name:
        return "0"
    if name.startswith(_ID):
        return name.removeprefix(_ID)
    experiment = client.get_experiment_by_name(name)
    return str(experiment.experiment_id if experiment else client.create_experiment(name))
