"""Errors whose text is constant, whatever a server does with them."""

from __future__ import annotations

from mlflow.exceptions import MlflowException

UNREADABLE = "the request cannot be read as queries; send JSON with dataframe_split or dataframe_records"
TYPE = "the content type must be application/json"


class ConstantError(MlflowException):
    """An error whose text stays as it is: MLflow's server would put the request into it."""

    @property
    def message(self) -> str:
        """The constant text."""
        return self._constant

    @message.setter
    def message(self, text: str) -> None:
        self._constant = getattr(self, "_constant", text)
