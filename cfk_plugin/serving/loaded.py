"""Models as MLflow saves and loads them, with their probabilities where they have some."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
from mlflow.exceptions import MlflowException
from mlflow.pyfunc.model import PythonModel

from cfk_plugin.data.decision import probabilities_of
from cfk_plugin.data.model import predict_of


class PickledObject(PythonModel):
    """An object that MLflow pickles: a model that it has not logged itself, or prototypes."""

    # MLflow's: without it every import warns that `predict` has no hints
    _skip_type_hint_validation = True

    def __init__(self, content: Any) -> None:
        self.content = content

    # No hints here: MLflow reads them as a signature and enforces it.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # noqa: ARG002
        """Return what the model returns."""
        return predict_of(self.content)(model_input)


def save_object(content: Any, folder: Path) -> str:
    """Let MLflow pickle an object into a folder, and return its path; see `load_from_mlflow`."""
    with warnings.catch_warnings():
        # MLflow asks for an example, and warns of pickles
        warnings.simplefilter("ignore")
        mlflow.pyfunc.save_model(
            path=str(folder),
            python_model=PickledObject(content),
            pip_requirements=[],  # those of the protected model count
        )
    return str(folder)


class LoadedModel:
    """A model of MLflow as a function of a table.

    Parameters
    ----------
    loaded : mlflow.pyfunc.PyFuncModel
    """

    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded

    def predict(self, rows: Any) -> Any:
        """Return what MLflow's ``predict`` returns."""
        return self._loaded.predict(rows)

    def __call__(self, rows: Any) -> Any:
        """Return what `predict` returns, for an explainer that was logged as a model."""
        return self.predict(rows)


class LoadedClassifier(LoadedModel):
    """A model of MLflow that is a classifier with probabilities.

    MLflow's own function returns labels alone, and a margin needs probabilities.

    Parameters
    ----------
    loaded : mlflow.pyfunc.PyFuncModel
    classifier : object with ``predict_proba`` and ``classes_``
        The same model as it was logged.
    """

    def __init__(self, loaded: Any, classifier: Any) -> None:
        super().__init__(loaded)
        self._classifier = classifier
        self.classes_ = np.asarray(classifier.classes_)

    def predict_proba(self, rows: Any) -> Any:
        """Return the probability of each class; shape (n_rows, n_classes)."""
        columns = getattr(self._classifier, "feature_names_in_", None)
        # MLflow orders the columns of `predict` by the signature
        ordered = rows if columns is None else rows[list(columns)]
        return self._classifier.predict_proba(ordered)


def load_from_mlflow(location: str) -> Any:
    """Load a model from a folder or an MLflow URI; this runs its code.

    A failure is whatever MLflow raises.
    """
    loaded = mlflow.pyfunc.load_model(location)
    try:
        python_model = loaded.unwrap_python_model()
    except MlflowException:  # a model of another flavour
        python_model = None
    if isinstance(python_model, PickledObject):
        return python_model.content
    try:
        classifier = loaded.get_raw_model()
    except (AttributeError, NotImplementedError):
        return LoadedModel(loaded)
    if probabilities_of(classifier) is None:
        return LoadedModel(loaded)
    return LoadedClassifier(loaded, classifier)
