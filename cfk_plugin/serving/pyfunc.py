"""The protected model as MLflow loads it: artifacts in, a desk inside, constant errors out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlflow.exceptions import MlflowException
from mlflow.pyfunc.model import PythonModel

from cfk_plugin.errors import BundleError, CFKError, LedgerError, quiet
from cfk_plugin.records.ledger import Ledger
from cfk_plugin.records.logger import RunLogger
from cfk_plugin.serving.assembly import desk_of, opened
from cfk_plugin.serving.body import Answer
from cfk_plugin.serving.desk import FAILED, RequestError
from cfk_plugin.serving.inner import load_inner
from cfk_plugin.serving.scoring import answer_requests, error_of

if TYPE_CHECKING:
    from cfk_plugin.serving.desk import Desk

BUNDLE, SETTINGS, EXPLAINER, MODEL = "population", "settings", "explainer", "model"
"""Names of the artifacts: the sealed population, settings, and the two that are protected, each a folder or a file."""


class ProtectedModel(PythonModel):
    """Answers queries with protected counterfactuals; see `cfk_plugin.serving.log_protected_model`.

    What is protected is not an attribute of it. ``model_config`` is not read.
    """

    _skip_type_hint_validation = True  # MLflow's: without it every import warns that `predict` has no hints

    def load_context(self, context: Any) -> None:
        """Open the artifacts."""
        answer_requests(answer_of_model)
        with quiet("the protected model cannot be loaded ({})", BundleError, let=CFKError):
            self._answer = _desk_of(context.artifacts).answer

    # No hints here: MLflow reads them as a signature and enforces it.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # noqa: ARG002
        """Return one record per counterfactual; see `cfk_plugin.serving.records.record_of`."""
        failed = RequestError(FAILED, ours=True)
        try:
            with quiet("{}", CFKError, let=RequestError):
                return self._answer(model_input, params)
        except RequestError as error:
            failed = error
        except CFKError:
            pass
        raise error_of(failed)  # out here, so that it carries no context

    def __reduce__(self) -> Any:
        """Refuse to be pickled: the copy would take along what is protected."""
        raise TypeError("a protected model is loaded from its artifacts and refuses to be pickled")


def answer_of_model(model: Any) -> Answer | None:
    """Return what answers for a loaded model, without MLflow around it; None where it is no protected one."""
    try:
        found = model.unwrap_python_model()
    except (AttributeError, MlflowException):  # no model of MLflow, or none that is written in Python
        return None
    return found._answer if isinstance(found, ProtectedModel) else None


def _desk_of(artifacts: dict[str, str]) -> Desk:
    settings = json.loads(Path(artifacts[SETTINGS]).read_text(encoding="utf-8"))
    population, policy = opened(artifacts[BUNDLE])
    return desk_of(
        population,
        policy,
        load_inner(artifacts[EXPLAINER]),
        most=int(settings["most"]),
        model=load_inner(artifacts[MODEL]),
        desired=settings["desired"],
        ledger=_ledger() if settings["ledger"] else None,
        track=RunLogger(run_name="served", model=settings.get("model")) if settings["track"] else False,
    )


def _ledger() -> Ledger:
    """Open the ledger of the environment; a file of the server's own would not know what other servers release."""
    if not os.environ.get("CFK_LEDGER"):
        raise LedgerError("this model needs a ledger of releases; set CFK_LEDGER to its URL, and CFK_LEDGER_KEY")
    return Ledger()
