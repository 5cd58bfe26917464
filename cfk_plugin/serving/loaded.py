"""A model that MLflow loads, with its probabilities where it has some."""

from __future__ import annotations

from typing import Any

import mlflow
import numpy as np

from cfk_plugin.data.decision import probabilities_of

PICKLE = ".pkl"
"""Ending of the file of a pickled object."""


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


def load_from_mlflow(location: str) -> LoadedModel:
    """Load a model from a folder or an MLflow URI; this runs its code.

    A failure is whatever MLflow raises.
    """
    loaded = mlflow.pyfunc.load_model(location)
    try:
        classifier = loaded.get_raw_model()
    except (AttributeError, NotImplementedError):
        return LoadedModel(loaded)
    if probabilities_of(classifier) is None:
        return LoadedModel(loaded)
    return LoadedClassifier(loaded, classifier)
