"""MLflow's model server in front of a protected model: no word of a request in its errors, and no detour."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from mlflow.protos.databricks_pb2 import BAD_REQUEST, INTERNAL_ERROR, INVALID_PARAMETER_VALUE
from mlflow.pyfunc import scoring_server

from cfk_plugin.errors import CFKError, quiet
from cfk_plugin.serving.body import JSON, MOST_BYTES, TOO_LONG, Answer, answer_to, is_table
from cfk_plugin.serving.constants import TYPE, UNREADABLE, ConstantError, show_no_traces
from cfk_plugin.serving.desk import RequestError


def answer_requests(answer_of: Callable[[Any], Answer | None]) -> None:
    """Have MLflow's model server hand requests to a protected model as they are, and say constants of others.

    The server would check a table column by column, although the model checks it better; would quote what it cannot
    read, and show a stack trace. It has no place for this, so its function that answers requests is wrapped, for
    protected models alone. Without that function, as in another version of MLflow, nothing is done: the model is then
    asked through `predict`, and texts are MLflow's own.

    Parameters
    ----------
    answer_of : callable
        Returns what answers for a loaded model, or None where it is no protected one.
    """
    if getattr(scoring_server, "_SERVER_MODEL_PATH", None) in os.environ:  # this process is a server
        show_no_traces()
    by_mlflow = getattr(scoring_server, "invocations", None)
    if by_mlflow is None or hasattr(by_mlflow, "_cfk_wraps"):
        return

    @functools.wraps(by_mlflow)
    def invocations(data: Any, content_type: Any, model: Any, input_schema: Any) -> Any:
        answer = answer_of(model)
        if answer is None:
            return by_mlflow(data, content_type, model, input_schema)
        if len(data) > MOST_BYTES:
            raise error_of(RequestError(TOO_LONG))
        if str(content_type).partition(";")[0].strip().lower() == JSON and is_table(data):
            return _answered(answer, data)
        return _quietly(lambda: by_mlflow(data, content_type, model, input_schema))

    invocations._cfk_wraps = by_mlflow  # type: ignore[attr-defined]
    scoring_server.invocations = invocations


def error_of(refusal: RequestError) -> ConstantError:
    """Return a refusal as MLflow raises it."""
    return ConstantError(refusal.message, error_code=INTERNAL_ERROR if refusal.ours else INVALID_PARAMETER_VALUE)


def _answered(answer: Answer, body: bytes | str) -> Any:
    try:
        text = answer_to(body, answer).decode()
    except RequestError as error:
        refusal = error_of(error)
    else:
        return scoring_server.InvocationsResponse(response=text, status=200, mimetype=JSON)
    raise refusal  # out here, so that it carries no context


def _quietly(ask: Callable[[], Any]) -> Any:
    """Have MLflow read what is not in our form; what fails in that is the request's fault, and said in a constant."""
    try:
        with quiet("{}", CFKError, let=ConstantError):
            found = ask()
            return found if found.status != 415 else found._replace(response=TYPE)
    except ConstantError:  # a protected model's own
        raise
    except CFKError:
        pass
    raise ConstantError(UNREADABLE, error_code=BAD_REQUEST)  # out here, so that it carries no context
