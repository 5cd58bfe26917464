"""What an owner trained: the service that all owners here hand out, which differ in how it answers alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from cfk_plugin.audit.attacked.models import seeded
from cfk_plugin.audit.attacked.sample import Mask, Sample
from cfk_plugin.audit.attacked.service import Answers, Floats
from cfk_plugin.errors import InputError, ModelError, quiet

DESIRED = True
"""The label of the desired outcome, in all models that owners train."""


class Trained:
    """A fitted model and a way to answer. Host side only: it refuses to be pickled, as answers come from rows.

    Parameters
    ----------
    model : estimator
        Fitted by `fitted`.
    answer : callable
        From undesired queries to `Answers`.
    """

    def __init__(self, model: Any, answer: Callable[[pd.DataFrame], Answers]) -> None:
        self._model, self._answer = model, answer
        self._at = list(model.classes_).index(DESIRED)

    def __repr__(self) -> str:
        """Name the model's class, never a value."""
        return f"Trained({type(self._model).__name__})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: what answers may hold training rows."""
        raise InputError("a trained service holds training rows and refuses to be pickled; train it where it runs")

    def confidence(self, X: pd.DataFrame) -> Floats:
        """Return the model's probability of the desired outcome, one per row."""
        return np.asarray(self._model.predict_proba(X)[:, self._at], dtype=np.float64)

    def desired(self, X: pd.DataFrame) -> Mask:
        """Say of each row whether the model gives it the desired outcome."""
        return np.asarray(self._model.predict(X) == DESIRED, dtype=bool)

    def explain(self, X: pd.DataFrame) -> Answers:
        """Answer queries that the model does not give the desired outcome."""
        if not len(X):
            return Answers(X, np.zeros(0, dtype=bool))
        return self._answer(X)


def fitted(model: Any, people: Sample, seed: int) -> Any:
    """Return a copy of an estimator, fitted on people and seed alone.

    Parameters
    ----------
    model : scikit-learn classifier or pipeline
        With ``predict_proba``; takes a DataFrame.
    people : Sample
    seed : int

    Raises
    ------
    InputError
        If all people have the same outcome.
    ModelError
        If it cannot be fitted. The message has the class of the failure alone.
    """
    if people.y.all() or not people.y.any():
        raise InputError(f"all {len(people)} people of a training table have the same outcome; train on more of them")
    copy = seeded(model, seed)
    if not hasattr(copy, "predict_proba"):
        raise ModelError(f"{type(copy).__name__} has no predict_proba, which attacks ask; wrap it in a calibrated one")
    what = "the model cannot be fitted on the people ({}); try it on the table without an attack"
    with quiet(what, ModelError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one training among many: not converged, an unknown category
        return copy.fit(people.X, people.y)
