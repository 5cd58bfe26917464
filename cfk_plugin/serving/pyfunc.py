"""The protected model as MLflow loads and serves it: artifacts in, a handler inside, constant error
texts out.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
from mlflow import environment_variables
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST
from mlflow.pyfunc import scoring_server
from mlflow.pyfunc.model import PythonModel
from mlflow.utils.databricks_utils import (
    is_in_databricks_model_serving_environment,
    is_in_databricks_runtime,
)

from cfk_plugin.data.model import thresholded
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.errors import BundleError, CFKError, LedgerError, ModelError, quiet
from cfk_plugin.records.ledger import Ledger
from cfk_plugin.records.logger import RunLogger
from cfk_plugin.serving.handler import (
    FAILED,
    JSON,
    MOST_BYTES,
    TOO_LONG,
    TYPE,
    UNREADABLE,
    Answer,
    RequestError,
    answer_to,
    handler_for,
    is_table,
    opened,
    refusing,
    show_no_traces,
)
from cfk_plugin.serving.loaded import load_from_mlflow
from cfk_plugin.serving.requirements import PICKLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from cfk_plugin.serving.handler import RequestHandler


_SWITCH = "MLFLOW_ALLOW_PICKLE_DESERIALIZATION"
BUNDLE, EXPLAINER, MODEL = "population", "explainer", "model"
"""Names of the artifacts: sealed population, explainer and model, each a folder or a file."""


class ProtectedModel(PythonModel):
    """Answers queries with protected counterfactuals; no attribute leads to explainer, model or
    population.
    """

    # MLflow's: without it every import warns that `predict` has no hints
    _skip_type_hint_validation = True

    def load_context(self, context: Any) -> None:
        answer_requests(answer_of_model)
        with quiet("the protected model cannot be loaded ({})", BundleError, let=CFKError):
            self._answer = _handler_of(context.artifacts).answer

    # No hints here: MLflow reads them as a signature and enforces it.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # noqa: ARG002
        """Return one record per counterfactual; see `cfk_plugin.serving.records.record_of`."""
        with refusing(FAILED, ours=True):
            return self._answer(model_input, params)

    def __reduce__(self) -> Any:
        """Refuse to be pickled: the copy would hold what is protected."""
        raise TypeError("a protected model is loaded from its artifacts and refuses to be pickled")


def answer_of_model(model: Any) -> Answer | None:
    """Return the answering function of a loaded model, without MLflow around it; None if it is not
    protected.
    """
    try:
        found = model.unwrap_python_model()
    except (AttributeError, MlflowException):  # not a model of MLflow, or not written in Python
        return None
    return found._answer if isinstance(found, ProtectedModel) else None


def _handler_of(artifacts: dict[str, str]) -> RequestHandler:
    population, policy = opened(artifacts[BUNDLE])
    settings = population.settings
    if settings is None:
        raise BundleError("the bundle has no settings of a server; log the protected model again")
    return handler_for(
        population,
        policy,
        load_inner(artifacts[EXPLAINER]) if EXPLAINER in artifacts else None,
        most=int(settings["most"]),
        model=thresholded(load_inner(artifacts[MODEL]), settings.get("threshold")),
        desired=DesiredOutcome.of_json(settings["desired"]).desired,
        ledger=_ledger() if settings["ledger"] else None,
        track=RunLogger(run_name="served", model=settings.get("model"))
        if settings["track"]
        else False,
    )


def _ledger() -> Ledger:
    """Open the ledger that the environment names; a file of this server alone would miss other
    servers' releases.
    """
    if not os.environ.get("CFK_LEDGER"):
        raise LedgerError(
            "this model needs a ledger of releases; set CFK_LEDGER to its URL, and CFK_LEDGER_KEY"
        )
    return Ledger()


def load_inner(location: str) -> Any:
    """Load an explainer or a model: a pickled object, or a model of MLflow.

    Runs its code.

    Raises
    ------
    ModelError
        If it cannot be loaded, or is a pickle where MLflow may load none.
    """
    is_pickle = location.endswith(PICKLE)
    if is_pickle and not may_load_pickles():
        raise ModelError(
            f"{Path(location).stem}: it was logged as a pickle, and"
            f" {_SWITCH} is false. Log it as a model of MLflow that is no"
            " pickle, and give log_protected_model its URI"
        )
    with quiet("an explainer or a model cannot be loaded ({}); install what it needs", ModelError):
        if is_pickle:
            return cloudpickle.loads(Path(location).read_bytes())
        return load_from_mlflow(location)


def _switch_allows_pickles() -> bool:
    """Say what MLflow's switch allows. Releases of MLflow without the switch ignore the variable;
    it is obeyed here all the same.
    """
    switch = getattr(environment_variables, _SWITCH, None)
    if switch is None:
        return os.environ.get(_SWITCH, "true").lower() in ("true", "1")
    return bool(switch.get())


def may_load_pickles() -> bool:
    """Say whether MLflow may load pickles here, by its own switch and its own exceptions."""
    return bool(
        _switch_allows_pickles()
        or is_in_databricks_runtime()  # type: ignore[no-untyped-call]
        or is_in_databricks_model_serving_environment()  # type: ignore[no-untyped-call]
    )


def answer_requests(answer_of: Callable[[Any], Answer | None]) -> None:
    """Make MLflow's model server pass raw requests to a protected model, and answer all failures by
    constants.

    The server would quote what it cannot read, show a stack trace, and offers no hook for this, so
    its function that answers requests is wrapped. If another version lacks that function, texts are
    MLflow's own. `answer_of` returns the answering function of a loaded model, or None if it is not
    protected.
    """
    # this process is a server
    if getattr(scoring_server, "_SERVER_MODEL_PATH", None) in os.environ:
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
            raise RequestError(TOO_LONG)
        if str(content_type).partition(";")[0].strip().lower() == JSON and is_table(data):
            text = answer_to(data, answer).decode()
            return scoring_server.InvocationsResponse(response=text, status=200, mimetype=JSON)
        with refusing(UNREADABLE, code=BAD_REQUEST):  # MLflow reads what is not in one of our forms
            found = by_mlflow(data, content_type, model, input_schema)
            return found if found.status != 415 else found._replace(response=TYPE)

    invocations._cfk_wraps = by_mlflow  # type: ignore[attr-defined]
    scoring_server.invocations = invocations
