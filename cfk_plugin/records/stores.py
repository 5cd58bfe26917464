"""Which stores of MLflow can be opened by what is installed."""

from __future__ import annotations

from cfk_plugin.errors import MissingDependencyError, TrackingError, check_extra

_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")


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
