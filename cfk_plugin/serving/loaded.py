"""Save models with MLflow, and load them with their probabilities if they have any."""

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
    """An object that MLflow pickles: a model that is not in MLflow, or prototypes."""

    # Without this attribute of MLflow, every import warns that `predict` has no type hints.
    _skip_type_hint_validation = True

    def __init__(self, content: Any) -> None:
        self.content = content

    # Without type hints, because MLflow would read them as a signature and enforce it.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # noqa: ARG002
        """Return the predictions of the pickled model."""
        return predict_of(self.content)(model_input)


def save_object(content: Any, folder: Path) -> str:
    """Pickle an object with MLflow, and return the folder's path; `load_from_mlflow` loads it."""
    with warnings.catch_warnings():
        # MLflow suggests adding an example, and warns of pickles
        warnings.simplefilter("ignore")
        mlflow.pyfunc.save_model(
            path=str(folder),
            python_model=PickledObject(content),
            pip_requirements=[],  # the protected model has the requirements
        )
    return str(folder)


class LoadedModel:
    """A model of MLflow that can be called with a table.

    Parameters
    ----------
    loaded : mlflow.pyfunc.PyFuncModel
        The model as MLflow loads it.
    """

    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded

    def predict(self, rows: Any) -> Any:
        """Return the predictions of MLflow's model."""
        return self._loaded.predict(rows)

    def __call__(self, rows: Any) -> Any:
        """Call `predict`, so that an explainer that was logged as a model is callable."""
        return self.predict(rows)


class LoadedClassifier(LoadedModel):
    """A model of MLflow that is a classifier with probabilities.

    MLflow's own function returns only labels, but a margin needs probabilities.

    Parameters
    ----------
    loaded : mlflow.pyfunc.PyFuncModel
        The model as MLflow loads it.
    classifier : object with ``predict_proba`` and ``classes_``
        The same model in its own type.
    """

    def __init__(self, loaded: Any, classifier: Any) -> None:
        super().__init__(loaded)
        self._classifier = classifier
        self.classes_ = np.asarray(classifier.classes_)

    def predict_proba(self, rows: Any) -> Any:
        """Return the probability of each class, shape (n_rows, n_classes)."""
        columns = getattr(self._classifier, "feature_names_in_", None)
        # for `predict`, MLflow orders the columns itself
        ordered = rows if columns is None else rows[list(columns)]
        return self._classifier.predict_proba(ordered)


def load_from_mlflow(location: str) -> Any:
    """Return a model from a folder or an MLflow URI, or the object that `save_object` pickled.

    Loading runs the model's code. Exceptions of MLflow are not caught.
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
