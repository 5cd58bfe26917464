"""The goal of an explanation: which of the model's labels are desired."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.counterfactual import Outcome
from cfk_plugin.errors import InputError, ModelError, quiet
from cfk_plugin.label_model import LabelModel
from cfk_plugin.region import natural

Judge = Callable[[NDArray[Any], NDArray[np.int64]], NDArray[np.bool_]]
"""From labels, and the counterfactual each belongs to, to whether they are desired."""
OPPOSITE = "opposite"


@dataclass(frozen=True, slots=True)
class Goal:
    """Which labels are desired.

    Attributes
    ----------
    desired : object
        A label; a callable from labels to booleans (for a regressor, say); or ``"opposite"``: any label but the
        factual's own.
    """

    desired: Any

    @property
    def is_opposite(self) -> bool:
        """Whether the goal depends on the factual's own label."""
        return isinstance(self.desired, str) and self.desired == OPPOSITE

    def check(self, model: LabelModel, labels: NDArray[Any] | None) -> None:
        """Refuse goals that the model cannot meet, before anything is protected.

        Raises
        ------
        ModelError
            If `desired` is no label, not one of the model's classes, or a callable that does not return one
            boolean per label.
        """
        if callable(self.desired):
            if labels is not None:  # labels to try it on; there are none where there are no rows
                self.met(labels)
            return
        label: Any = self.desired
        if np.ndim(label) or pd.isna(label) or not isinstance(label, Hashable):
            raise ModelError('`desired` must be one label, "opposite" or a callable from labels to booleans')
        if not self.is_opposite and model.classes is not None and self.desired not in model.classes:
            raise ModelError("`desired` is not one of the model's classes; check its spelling and type")

    def of_call(self, desired: Any, model: LabelModel) -> Goal:
        """Return the goal of one call that asks the explainer for an outcome of its own.

        Where this goal is "opposite", which leaves the outcome to the query, the call's takes its place. Another goal
        stays: the call may ask for it again, or for a part of it, as with a range of numbers within a function's.

        Parameters
        ----------
        desired : label, or callable from labels to booleans
        model : LabelModel

        Raises
        ------
        InputError
            If the model has no such outcome, or the call asks for another one than this goal's.
        """
        own = Goal(desired)
        try:
            own.check(model, None)
        except ModelError:
            unknown = "the call asks for an outcome that is none of the model's labels; check its spelling and type"
            raise InputError(unknown) from None
        if own == self:
            return self
        if self.is_opposite:
            return own
        if not callable(desired):
            if not self.met(np.array([desired], dtype=object))[0]:
                raise InputError(
                    "the call asks for another outcome than explanations are protected for; leave it out, or protect "
                    'the explainer with desired="opposite", where each call may name its own'
                )
            return own if callable(self.desired) else self
        return Goal(Both(desired, self))

    def outcome(self, model: LabelModel, factual: Any = None, own: Any = None) -> Outcome:
        """Return what is certified of a counterfactual, from the factual's label or, without it, its own."""
        if callable(self.desired):
            bounds = getattr(self.desired, "bounds", None)
            return Outcome(bounds=bounds if isinstance(bounds, tuple) else None)
        if not self.is_opposite:
            return Outcome(natural(self.desired))
        if factual is None:
            return Outcome(natural(own))
        others = [label for label in model.classes or () if label != factual]
        return Outcome(natural(others[0])) if len(others) == 1 else Outcome(natural(factual), is_other=True)

    def met(self, labels: NDArray[Any], factual_labels: NDArray[Any] | None = None) -> NDArray[np.bool_]:
        """Say of every label whether it is desired; `factual_labels` are needed for ``"opposite"``."""
        if callable(self.desired):
            with quiet("the callable `desired` raised {}", ModelError):
                met = np.asarray(self.desired(labels.copy()))
            if met.shape != labels.shape or met.dtype != np.bool_:
                raise ModelError("a callable `desired` must return one boolean per label")
            return met
        if self.is_opposite:
            return np.asarray(labels != factual_labels, dtype=bool)
        return np.asarray(labels == self.desired, dtype=bool)

    def judge(self, factual_labels: NDArray[Any] | None, own_labels: NDArray[Any]) -> Judge:
        """Return what counts as desired for each of several counterfactuals.

        Parameters
        ----------
        factual_labels : array, optional
            Labels of the instances explained. Without them ``"opposite"`` means the counterfactual's own label.
        own_labels : array
            Labels at the counterfactuals themselves.
        """
        if not self.is_opposite:
            return lambda labels, _: self.met(labels)
        if factual_labels is not None:
            return lambda labels, which: self.met(labels, factual_labels[which])
        return lambda labels, which: np.asarray(labels == own_labels[which], dtype=bool)


@dataclass(frozen=True, slots=True)
class Both:
    """What is desired by a function and by a goal besides it."""

    desired: Callable[[NDArray[Any]], Any]
    goal: Goal

    @property
    def bounds(self) -> Any:
        """Of the function, where it is a range: what meets both is within it."""
        return getattr(self.desired, "bounds", None)

    def __call__(self, labels: NDArray[Any]) -> NDArray[np.bool_]:
        """Say of each label whether both desire it."""
        return Goal(self.desired).met(labels) & self.goal.met(labels)
