"""Decision rules: the outcome that follows from a model's probabilities, and its lead."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.errors import ModelError

Floats = NDArray[np.float64]
Labels = NDArray[Any]
Mask = NDArray[np.bool_]

_ROUNDING = 1e-6  # how far above 1 or below 0 a probability may be


@dataclass(frozen=True, eq=False)
class DecisionRule(ABC):
    """Turns probabilities into outcomes.

    Attributes
    ----------
    classes : ndarray of object, shape (n_classes,)
        The outcomes, in the order of the probabilities' columns.
    """

    classes: Labels

    @abstractmethod
    def outcomes(self, probabilities: Floats) -> Labels:
        """Return the outcome of each row; probabilities have the shape (n, n_classes)."""

    @abstractmethod
    def leads(self, probabilities: Floats, desired: Mask) -> Floats:
        """Return the lead of the desired outcome over the others in each row.

        The lead is compared with the margin of a policy. With every rule it is 1 if the model is
        certain of the desired outcome, 0 on the border of the decision, and -1 if the model is
        certain of another outcome.

        Parameters
        ----------
        probabilities : ndarray, shape (n, n_classes)
        desired : ndarray of bool, shape (n_classes,) or (n, n_classes)
            The desired outcomes, for all rows or for each row. If several are desired, the most
            probable one counts.

        Returns
        -------
        ndarray, shape (n,)
            For two classes, let p be the probability of the desired outcome, and b the border
            above which the model gives this outcome. The lead is ``(p - b) / (1 - b)`` if the model
            gives the desired outcome, and otherwise ``(p - b) / b``. For more classes see
            `LargestProbability`.
        """

    @abstractmethod
    def above_border(self, probabilities: Floats, desired: Mask) -> Floats:
        """Return the probability of the desired outcome minus the border, shape (n,).

        It is not scaled to 1 as `leads` is, so that the results of several models can be averaged.
        The parameters are those of `leads`. For two classes and a threshold this is ``p - b``. If
        the largest probability decides, it is the distance to the most probable other outcome. It
        is negative if the model gives another outcome.
        """

    def checked(self, probabilities: Any, n: int) -> Floats:
        """Return a model's probabilities for n rows as numbers, shape (n, n_classes).

        Raises
        ------
        ModelError
            If they are not probabilities of the classes.
        """
        table = np.asarray(probabilities)
        shape = (n, len(self.classes))
        is_probability = (
            table.shape == shape
            and table.dtype.kind == "f"
            and bool(((table >= -_ROUNDING) & (table <= 1 + _ROUNDING)).all())
        )
        if not is_probability:
            raise ModelError(
                f"the model's probabilities are an array of {table.dtype} of shape {table.shape};"
                f" expected numbers between 0 and 1 of shape {shape}, a column for each class. For"
                " a model without usable probabilities write PrivacyPolicy(margin=0)"
            )
        return table.astype(np.float64, copy=False)


class LargestProbability(DecisionRule):
    """The outcome is the class with the largest probability, the first of ties.

    The lead is the distance to the most probable other outcome. For two classes this is
    ``(p - 1/2) / (1 - 1/2)``.
    """

    def outcomes(self, probabilities: Floats) -> Labels:
        return np.asarray(self.classes[probabilities.argmax(axis=1)])

    def leads(self, probabilities: Floats, desired: Mask) -> Floats:
        return self.above_border(probabilities, desired)

    def above_border(self, probabilities: Floats, desired: Mask) -> Floats:
        best = np.where(desired, probabilities, 0.0).max(axis=1)
        best_other = np.where(desired, 0.0, probabilities).max(axis=1)
        return np.asarray(best - best_other)


@dataclass(frozen=True, eq=False)
class ProbabilityThreshold(DecisionRule):
    """The outcome is the second of two classes if its probability is at least a threshold.

    Attributes
    ----------
    threshold : float
        Above 0, at most 1.
    """

    threshold: float

    def outcomes(self, probabilities: Floats) -> Labels:
        return np.asarray(self.classes[(probabilities[:, 1] >= self.threshold).astype(np.int64)])

    def leads(self, probabilities: Floats, desired: Mask) -> Floats:
        above = self.above_border(probabilities, desired)
        is_second = probabilities[:, 1] >= self.threshold
        width = np.where(is_second, 1 - self.threshold, self.threshold)
        # With a threshold of 1, the second class is the outcome only if the model is certain of it.
        lead_without_width = np.where(desired[..., 1], 1.0, -1.0)
        has_width = width > 0
        return np.where(has_width, above / np.where(has_width, width, 1.0), lead_without_width)

    def above_border(self, probabilities: Floats, desired: Mask) -> Floats:
        above = probabilities[:, 1] - self.threshold
        return np.where(desired[..., 1], above, -above)


@dataclass(frozen=True, eq=False)
class Probabilities:
    """A function that returns a model's probabilities, and the rule that turns them into outcomes.

    Attributes
    ----------
    ask : callable
        Takes a table of n rows and returns an array of shape (n, n_classes).
    decision : DecisionRule
    """

    ask: Callable[[Any], Any]
    decision: DecisionRule


def probabilities_of(model: Any) -> Probabilities | None:
    """Return the probabilities of a classifier with scikit-learn's attributes; None if it has none.

    If the classifier tunes or fixes a threshold, that threshold is used.
    """
    ask = getattr(model, "predict_proba", None)
    classes = getattr(model, "classes_", None)
    if not callable(ask) or classes is None or isinstance(classes, list):
        return None
    labels = np.asarray(classes)
    if labels.ndim != 1 or len(labels) < 2:
        return None
    labels = labels.astype(object)
    threshold = _threshold_of(model)
    if threshold is None or len(labels) != 2:
        return Probabilities(ask, LargestProbability(labels))
    return Probabilities(ask, ProbabilityThreshold(labels, threshold))


def _threshold_of(model: Any) -> float | None:
    """Return the threshold of scikit-learn's classifiers with one; None for any other model.

    `Model.checked` compares labels with it, so a wrong guess does no harm.
    """
    tuned = getattr(model, "best_threshold_", None)
    if _is_threshold(tuned):
        return float(tuned)
    if hasattr(model, "response_method"):
        fixed = getattr(model, "threshold", None)
        if _is_threshold(fixed):
            return float(fixed)
    return None


def _is_threshold(value: object) -> TypeGuard[float]:
    """Return True for a number above 0 and at most 1."""
    return isinstance(value, (float, np.floating)) and bool(0 < value <= 1)
