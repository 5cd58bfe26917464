"""The protected model as MLflow loads and serves it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cloudpickle
from mlflow import environment_variables
from mlflow.pyfunc.model import PythonModel
from mlflow.utils.databricks_utils import (
    is_in_databricks_model_serving_environment,
    is_in_databricks_runtime,
)

from cfk_plugin.data.model import thresholded
from cfk_plugin.data.population import configured_key
from cfk_plugin.errors import BundleError, CFKError, ModelError, quiet
from cfk_plugin.protection.catalogue_file import CatalogueFile
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.catalogue import Catalogue
from cfk_plugin.serving.handler import FAILED, RequestHandler, refusing
from cfk_plugin.serving.loaded import PICKLE, load_from_mlflow
from cfk_plugin.tracking.logger import RunLogger, Track

_SWITCH = "MLFLOW_ALLOW_PICKLE_DESERIALIZATION"
CATALOGUE, MODEL = "catalogue", "model"
"""Names of the artifacts: the file of the catalogue, and the model, which is a folder or a file."""


class ProtectedModel(PythonModel):
    """Answers queries with protected counterfactuals; no attribute leads to model or
    catalogue.
    """

    # MLflow's: without it every import warns that `predict` has no hints
    _skip_type_hint_validation = True

    def load_context(self, context: Any) -> None:
        with quiet(
            "the protected model cannot be loaded ({})", BundleError, let=CFKError, is_public=True
        ):
            self._answer = _handler_of(context.artifacts).answer

    # No hints here: MLflow reads them as a signature and enforces it.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # noqa: ARG002
        """Return one record per counterfactual; see `cfk_plugin.release.records.record_of`."""
        with refusing(FAILED, ours=True):
            return self._answer(model_input, params)

    def __reduce__(self) -> Any:
        """Refuse to be pickled: the copy would hold what is protected."""
        raise TypeError("a protected model is loaded from its artifacts and refuses to be pickled")


def _handler_of(artifacts: dict[str, str]) -> RequestHandler:
    """Return what answers from the artifacts; the model's code runs only if the file is right."""
    file = CatalogueFile.read(artifacts[CATALOGUE], configured_key(None))
    settings = file.facts["notes"]
    if "most" not in settings:
        raise BundleError("the catalogue has no settings of a server; log the model again")
    model = thresholded(load_inner(artifacts[MODEL]), settings["threshold"])
    anonymizer = KAnonymizer.of_catalogue(Catalogue.of_file(file, model), model)
    track: Track = False
    if settings["track"]:
        track = RunLogger(
            run_name="served",
            model=settings["model"],
            strict=bool(settings["strict"]),
            in_server=True,
        )
    return RequestHandler(anonymizer, int(settings["most"]), track)


def load_inner(location: str) -> Any:
    """Load a model: a pickled object, or a model of MLflow.

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
    with quiet("the model cannot be loaded ({}); install what it needs", ModelError):
        if is_pickle:
            return cloudpickle.loads(Path(location).read_bytes())
        return load_from_mlflow(location)


def _switch_allows_pickles() -> bool:
    """Return what MLflow's switch allows. Releases of MLflow without the switch ignore the
    variable; it is obeyed here all the same.
    """
    switch = getattr(environment_variables, _SWITCH, None)
    if switch is None:
        return os.environ.get(_SWITCH, "true").lower() in ("true", "1")
    return bool(switch.get())


def may_load_pickles() -> bool:
    """Return whether MLflow may load pickles here, by its own switch and its own exceptions."""
    return bool(
        _switch_allows_pickles()
        or is_in_databricks_runtime()  # type: ignore[no-untyped-call]
        or is_in_databricks_model_serving_environment()  # type: ignore[no-untyped-call]
    )
