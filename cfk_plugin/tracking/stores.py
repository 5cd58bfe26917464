"""Stores of MLflow: which can be opened, whether they answer, and what their errors become."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cfk_plugin.errors import MissingDependencyError, TrackingError, check_extra

if TYPE_CHECKING:
    from mlflow import MlflowClient

SERVER_TIMEOUT = 2.0  # seconds that a server may take to answer
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")


class StoreDownError(TrackingError):
    """The tracking server does not answer; the same records may be sent again later."""


def kind_of(error: Exception) -> str:
    """Name an error by its class and MLflow's code for it; its text may quote what was sent."""
    code = getattr(error, "error_code", None)
    return f"{type(error).__name__} {code}" if isinstance(code, str) else type(error).__name__


@contextmanager
def tracking_errors(failure: str) -> Iterator[None]:
    """Raise what MLflow raises as a `TrackingError` that does not quote it."""
    try:
        yield
    except TrackingError:
        raise
    except Exception as error:
        raise TrackingError(f"{failure} ({kind_of(error)})") from error


def client_of(
    tracking_uri: str | None, timeout: float = SERVER_TIMEOUT, *, makes: bool = True
) -> MlflowClient:
    """Return a client of a store that answers: MLflow itself waits for minutes on a server that
    does not.

    Unless it `makes` one, a store in a file that does not exist is an error.
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


def _check_file(uri: str) -> None:
    """Raise a `TrackingError` if a store is a local file or folder that does not exist."""
    is_local = uri.startswith(("sqlite:///", "file:")) or "://" not in uri
    path = uri.removeprefix("sqlite:///").removeprefix("file:").partition("?")[0]
    # With a colon it is a database in memory, another kind of store, or a path of Windows.
    if not is_local or not path or ":" in path or Path(path).exists():
        return
    raise TrackingError(
        f"there is no MLflow store {path}; name the one with the runs: tracking_uri, --tracking-uri"
    )


def check_store(uri: str) -> None:
    """Raise a `TrackingError` if a store is a database and only mlflow-skinny is installed.

    mlflow-skinny logs to tracking servers. What opens a database, such as the local ``mlflow.db``,
    comes with all of mlflow.
    """
    scheme = uri.partition(":")[0].partition("+")[0]
    if scheme not in _DATABASES:
        return
    try:
        # All of mlflow requires alembic, and mlflow-skinny does not.
        check_extra("alembic", "serve", "an MLflow store in a database needs all of mlflow")
    except MissingDependencyError as missing:
        raise TrackingError(str(missing)) from missing
