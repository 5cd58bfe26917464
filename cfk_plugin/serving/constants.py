"""Errors whose text is constant, from a protected model and from the server of MLflow around it."""

from __future__ import annotations

import functools
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST, ErrorCode
from mlflow.pyfunc import scoring_server

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


def quieten_server(protected: type) -> None:
    """Have MLflow's model server say constants where it would quote what was sent, or show a stack trace.

    It has no place for this, so its function that answers requests is wrapped, for protected models alone. Without that
    function, as in another version of MLflow, nothing is done: the texts are MLflow's then, and quote the request.

    Parameters
    ----------
    protected : type
        Class of the models that this is for.
    """
    answer = getattr(scoring_server, "invocations", None)
    if answer is None or hasattr(answer, "_cfk_quiet"):
        return

    @functools.wraps(answer)
    def quiet(data: Any, content_type: Any, model: Any, input_schema: Any) -> Any:
        if not _is_a(model, protected):
            return answer(data, content_type, model, input_schema)
        try:
            found = answer(data, content_type, model, input_schema)
        except ConstantError:
            raise
        except MlflowException as error:
            code = ErrorCode.Value(error.error_code)
        except Exception:  # noqa: BLE001 - such as JSON that is nested too deeply
            code = BAD_REQUEST
        else:
            return found if found.status != 415 else found._replace(response=TYPE)
        raise ConstantError(UNREADABLE, error_code=code)  # raised out here, so that it carries no context

    quiet._cfk_quiet = True  # type: ignore[attr-defined]
    scoring_server.invocations = quiet


def _is_a(model: Any, kind: type) -> bool:
    try:
        return isinstance(model.unwrap_python_model(), kind)
    except (AttributeError, MlflowException):
        return False
