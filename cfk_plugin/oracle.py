"""The model as judge: does a value combination get the desired outcome? Asked in batches, each cell once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass
from math import prod
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.errors import ModelError
from cfk_plugin.grid import rows_for_cells
from cfk_plugin.population import Population

Predict = Callable[[pd.DataFrame], Any]
Judge = Callable[[NDArray[Any], NDArray[np.int64]], NDArray[np.bool_]]
"""From labels, and the counterfactual each belongs to, to whether they are desired."""
OPPOSITE = "opposite"


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
        self.classes = getattr(model, "classes_", None)
        self._fractions = fractions
        self._known = _one_output(self.classes)
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
        started, failure = perf_counter(), ""
        try:
            labels = np.asarray(self._predict(frame[self.columns]))
        except Exception as error:  # noqa: BLE001 - whatever it is, its text must not get out
            failure = type(error).__name__
        self.calls += 1
        self.rows += len(frame)
        self.seconds += perf_counter() - started
        if failure:
            raise ModelError(f"the model raised {failure} on {len(frame)} rows")
        return self._checked(labels, len(frame))

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
        if self._known is not None and not _only(labels, self._known):
            raise ModelError("the model returned a label that is not one of its classes")
        return labels


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

    def check(self, model: LabelModel, labels: NDArray[Any]) -> None:
        """Refuse goals that the model cannot meet, before anything is protected.

        Raises
        ------
        ModelError
            If `desired` is no label, not one of the model's classes, or a callable that does not return one
            boolean per label.
        """
        if callable(self.desired):
            self.met(labels)
            return
        label: Any = self.desired
        if np.ndim(label) or pd.isna(label) or not isinstance(label, Hashable):
            raise ModelError('`desired` must be one label, "opposite" or a callable from labels to booleans')
        known = _one_output(model.classes)
        if not self.is_opposite and known is not None and self.desired not in known:
            raise ModelError("`desired` is not one of the model's classes; check its spelling and type")

    def met(self, labels: NDArray[Any], factual_labels: NDArray[Any] | None = None) -> NDArray[np.bool_]:
        """Say of every label whether it is desired; `factual_labels` are needed for ``"opposite"``."""
        if callable(self.desired):
            met, failure = np.empty(0, dtype=bool), ""
            try:
                met = np.asarray(self.desired(labels.copy()))
            except Exception as error:  # noqa: BLE001 - whatever it is, its text must not get out
                failure = type(error).__name__
            if failure:
                raise ModelError(f"the callable `desired` raised {failure}")
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


def _one_output(classes: Any) -> frozenset[Any] | None:
    """Return the classes of a classifier with one output; None where they are not known."""
    if classes is None or any(np.ndim(label) for label in classes):
        return None
    return frozenset(classes)


def _only(labels: NDArray[Any], known: frozenset[Any]) -> bool:
    """Say whether all labels are known ones."""
    try:
        return known.issuperset(pd.unique(labels).tolist())
    except TypeError:  # unhashable, so no label
        return False


class RowOracle:
    """Predictions for the population's own rows, each asked at most once."""

    def __init__(self, model: LabelModel, population: Population) -> None:
        self._model = model
        self.population = population
        self._label: NDArray[Any] = np.empty(population.n_rows, dtype=object)
        self._known = np.zeros(population.n_rows, dtype=bool)

    def labels(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the model's labels for rows of the population."""
        unknown = np.unique(rows[~self._known[rows]])
        if len(unknown):
            self._label[unknown] = self._model(self.population.rows(unknown)).astype(object)
            self._known[unknown] = True
        return self._label[rows]

    def ask(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Return the model's labels for rows that the population does not have."""
        return self._model(frame).astype(object)


class Oracle:
    """Says for one set of counterfactuals whether the outcome of a cell, or of a training row, is the desired one.

    A cell of a counterfactual has the counterfactual's private values and the cell's quasi-identifiers.

    Parameters
    ----------
    model : LabelModel
    judge : callable
        What is desired for each counterfactual, see `Goal.judge`.
    rows : RowOracle
    counterfactuals : DataFrame
        Conformed counterfactuals, one row each.
    desired_at : int32 array, shape (n, n_quasi_identifiers), optional
        Coded quasi-identifiers of the counterfactuals, where all of them are known to have the desired outcome.
    """

    def __init__(
        self,
        model: LabelModel,
        judge: Judge,
        rows: RowOracle,
        counterfactuals: pd.DataFrame,
        desired_at: NDArray[np.int32] | None = None,
    ) -> None:
        population = rows.population
        self._model, self._judge, self._rows = model, judge, rows
        self._population, self._counterfactuals = population, counterfactuals
        self._answers: dict[Any, bool] = {}
        self._at = np.arange(len(counterfactuals))
        sizes = [population.domains[q].size + 1 for q in population.schema.quasi_identifiers]
        fits = prod(sizes) * max(len(counterfactuals), 1) < np.iinfo(np.int64).max
        self._radix = np.array([prod(sizes[j + 1 :]) for j in range(len(sizes))], np.int64) if fits else None
        self._span = prod(sizes)
        if desired_at is not None:
            own = np.where(desired_at < 0, np.array(sizes) - 1, desired_at).astype(np.int32)
            self._answers.update(dict.fromkeys(self._keys(self._at, own), True))

    def __repr__(self) -> str:
        """Show how much is known."""
        return f"Oracle({len(self._answers)} cells known)"

    def restrict(self, at: NDArray[np.int64]) -> Oracle:
        """Return this oracle for some of its counterfactuals, renumbered from 0; answers stay shared."""
        part = copy(self)
        part._at = self._at[at]
        return part

    def ask(self, which: NDArray[np.int64], cells: NDArray[np.int32], *, reuse: bool = True) -> NDArray[np.bool_]:
        """Say of every cell whether it gets the desired outcome, in one model call.

        Parameters
        ----------
        which : int array, shape (n,)
            Counterfactual that each cell belongs to.
        cells : int32 array, shape (n, n_quasi_identifiers)
            Codes, of private attributes too unless `reuse`; ``domain.size`` is the counterfactual's own value.
        reuse : bool
            Whether answers are remembered and repeated.

        Returns
        -------
        bool array, shape (n,)

        Raises
        ------
        ModelError
            If the model fails.
        """
        which = self._at[which]
        if not reuse:
            return self._evaluate(which, cells)
        keys = self._keys(which, cells)
        answers = self._answers
        new = [i for i, key in enumerate(keys) if key not in answers]
        if new:
            first = {keys[i]: i for i in new}
            at = np.fromiter(first.values(), dtype=np.int64, count=len(first))
            answers.update(zip(first, self._evaluate(which[at], cells[at]).tolist(), strict=True))
        return np.fromiter((answers[key] for key in keys), dtype=bool, count=len(keys))

    def desired_rows(self, which: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say of training rows whether their own prediction is what counterfactual `which` is after."""
        return self._judge(self._rows.labels(rows), np.full(len(rows), self._at[which]))

    def _evaluate(self, which: NDArray[np.int64], cells: NDArray[np.int32]) -> NDArray[np.bool_]:
        frame = rows_for_cells(self._population, self._counterfactuals, which, cells)
        return self._judge(self._model(frame), which)

    def _keys(self, which: NDArray[np.int64], cells: NDArray[np.int32]) -> list[Any]:
        if self._radix is not None:
            keys: list[Any] = (cells.astype(np.int64) @ self._radix + which * self._span).tolist()
            return keys
        return [(i, cell.tobytes()) for i, cell in zip(which.tolist(), np.ascontiguousarray(cells), strict=True)]
