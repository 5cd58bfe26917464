"""A model reduced to what protection needs of it: one label per row, checked, and no text that quotes rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.columns import lent, select
from cfk_plugin.errors import ModelError, quiet

Predict = Callable[[pd.DataFrame], Any]


class LabelModel:
    """A model reduced to what is needed of it: one label per row, checked.

    Parameters
    ----------
    model : object with ``predict``, or callable
        scikit-learn estimator or pipeline, MLflow pyfunc, or a function from DataFrame to labels.
    features : sequence of str
        Columns the model may be given; an estimator's own ``feature_names_in_`` decides the order.
    fractions : bool
        Whether fractions are outcomes (a regressor's) or a sign of probabilities in the place of labels.

    Attributes
    ----------
    columns : list of str
        What the model is given, in its order.
    classes : tuple or None
        The classes of a classifier with one output, in its order.
    calls, rows, seconds : int, int, float
        How much was asked, and how long the answers took.

    Raises
    ------
    ModelError
        If the model cannot be called or wants columns that the schema does not have.
    """

    def __init__(self, model: Any, features: Sequence[str], *, fractions: bool = True) -> None:
        predict = getattr(model, "predict", None) or (model if callable(model) else None)
        if not callable(predict):
            raise ModelError(f"a model needs a predict method or to be callable; got {type(model).__name__}")
        self._predict: Predict = predict
        wanted = getattr(model, "feature_names_in_", None)
        self.columns = list(features) if wanted is None else [str(name) for name in wanted]
        if lost := [name for name in self.columns if name not in features]:
            raise ModelError(f"the model was fitted on columns that the schema does not have as features: {lost}")
        self.classes = _one_output(getattr(model, "classes_", None))
        self._fractions = fractions
        self.calls = 0
        self.rows = 0
        self.seconds = 0.0

    def __repr__(self) -> str:
        """Show how much was asked."""
        return f"LabelModel({self.calls} calls, {self.rows} rows)"

    def __call__(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Return one label per row.

        Raises
        ------
        ModelError
            If the model raises, or returns the wrong number of labels, probabilities, missing labels or labels
            that are not among its classes. The message holds the class of the model's exception and the error
            has no context: text and context may quote rows.
        """
        started = perf_counter()
        try:
            with quiet(f"the model raised {{}} on {len(frame)} rows", ModelError):
                labels = np.asarray(self._predict(lent(select(frame, self.columns))))
            with quiet("the model returned labels that cannot be compared", ModelError, let=ModelError):
                return self._checked(labels, len(frame))
        finally:
            self.calls += 1
            self.rows += len(frame)
            self.seconds += perf_counter() - started

    def _checked(self, labels: NDArray[Any], n: int) -> NDArray[Any]:
        """Return one label per row, or say what the answer is instead."""
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.ndim != 1:
            raise ModelError(f"the model returned an array of shape {labels.shape}; give a model that returns labels")
        if len(labels) != n:
            raise ModelError(f"the model returned {len(labels)} labels for {n} rows")
        if pd.isna(labels).any():
            raise ModelError("the model returned missing labels")
        if not self._fractions and labels.dtype.kind == "f" and bool((labels % 1 != 0).any()):
            raise ModelError("the model returned fractions (probabilities?); give labels or a callable `desired`")
        if self.classes is not None and not _only(labels, frozenset(self.classes)):
            raise ModelError("the model returned a label that is not one of its classes")
        return labels


def _one_output(classes: Any) -> tuple[Any, ...] | None:
    """Return the classes of a classifier with one output; None where they are not known."""
    if classes is None or any(np.ndim(label) for label in classes):
        return None
    return tuple(np.asarray(classes).tolist())


def _only(labels: NDArray[Any], known: frozenset[Any]) -> bool:
    """Say whether all labels are known ones."""
    try:
        return known.issuperset(pd.unique(labels).tolist())
    except TypeError:  # unhashable, so no label
        return False
