"""The user's model: how to call any form of it, checks of its labels, and errors without rows."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types
from sklearn.exceptions import NotFittedError

from cfk_plugin.data.decision import (
    DecisionRule,
    Floats,
    Labels,
    Probabilities,
    ProbabilityThreshold,
    probabilities_of,
)
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.tables import COPIES_EAGERLY, select
from cfk_plugin.errors import InputError, ModelError, listed, quiet


class LabelModel:
    """A wrapper of the user's model that checks its labels and raises errors that quote no rows.

    Parameters
    ----------
    model : object
        Any form of model that `predict_of` can call.
    features : sequence of str
        The features of the schema.
    goal : DesiredOutcome, optional
        If it does not take fractions as labels, a model that returns them raises an error.

    Attributes
    ----------
    model : object
        The user's model itself.
    columns : list of str
        The features that the model takes, in its order.
    classes : tuple or None
        The labels that the model can give; None if it does not say.
    calls, rows : int
        The number of calls of the model, and of rows in all calls.
    seconds : float
        The time of all calls.
    """

    def __init__(
        self, model: Any, features: Sequence[str], goal: DesiredOutcome | None = None
    ) -> None:
        self.model = model
        with quiet(
            "the model cannot be read: asking for its attributes raised {}",
            ModelError,
            let=ModelError,
        ):
            self._predict = predict_of(model)
            self.columns = _columns_of(_inner(model), features)
            self._form = ModelForm.of(model)
            self._probabilities = _probabilities_of(model)
        self.classes = _classes_of(model)
        self._takes_fractions = goal is None or goal.takes_fractions
        self.calls = 0
        self.rows = 0
        self.seconds = 0.0

    def __repr__(self) -> str:
        return f"LabelModel({self.calls} calls, {self.rows} rows)"

    def __call__(self, frame: pd.DataFrame) -> Labels:
        """Return the label of each row, shape (n,)."""
        labels = self._ask(self._predict, frame)
        with quiet("the model returned labels that cannot be compared", ModelError, let=ModelError):
            return self._checked(labels, len(frame))

    @property
    def decision(self) -> DecisionRule:
        """The rule that turns the model's probabilities into outcomes.

        Raises
        ------
        ModelError
            If the model gives no probabilities.
        """
        return self._with_probabilities().decision

    def ask_probabilities(self, frame: pd.DataFrame) -> Floats:
        """Return the probability of each class for each row; shape (n, n_classes)."""
        probabilities = self._with_probabilities()
        return probabilities.decision.checked(self._ask(probabilities.ask, frame), len(frame))

    def _with_probabilities(self) -> Probabilities:
        """Return the model's probabilities; raise a ModelError if it has none."""
        if self._probabilities is None:
            raise ModelError(
                "a margin, and models in later=, need probabilities: a classifier with"
                " predict_proba, or a function that returns a probability and threshold=. This"
                " model has none; write PrivacyPolicy(margin=0)"
            )
        return self._probabilities

    def _ask(self, ask: Callable[[pd.DataFrame], Any], frame: pd.DataFrame) -> NDArray[Any]:
        """Call `ask` with the columns that the model takes, and add to the counts."""
        start = perf_counter()
        try:
            with quiet(lambda: self._form.failure(frame[self.columns]), ModelError, let=ModelError):
                # A copy, since the model may change its table.
                table = select(frame, self.columns).copy(deep=COPIES_EAGERLY)
                return np.asarray(ask(table))
        finally:
            self.calls += 1
            self.rows += len(frame)
            self.seconds += perf_counter() - start

    def _checked(self, labels: NDArray[Any], n: int) -> Labels:
        """Return the labels of a model for n rows, shape (n,), after checking them.

        Raises
        ------
        ModelError
            If there is not one label for each row, or a label is not one of the model's classes.
        """
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.ndim != 1:
            raise ModelError(
                f"the model returned an array of shape {labels.shape}; it must return one label for"
                " each row. If it returns a number for each class, give a function:"
                " model=lambda rows: model.predict(rows).argmax(axis=1)"
            )
        if len(labels) != n:
            raise ModelError(
                f"the model returned {len(labels)} labels for {n} rows; it must return one for each"
            )
        if pd.isna(labels).any():
            raise ModelError("the model returned missing labels; it must return one for each row")
        if not self._takes_fractions and _has_fractions(labels):
            raise ModelError(
                "the model returned fractions. If they are probabilities, give threshold=; if they"
                " are other numbers, give a range, desired=(low, high)"
            )
        if self.classes is not None and not set(pd.unique(labels).tolist()) <= set(self.classes):
            raise ModelError(
                "the model returned a label that is not one of its classes; its predictions must be"
                " among model.classes_"
            )
        return labels


def _has_fractions(labels: Labels) -> bool:
    """Return True if a label is a number other than a whole one."""
    return labels.dtype.kind == "f" and bool((labels % 1 != 0).any())


@dataclass(frozen=True, kw_only=True)
class ModelForm:
    """The form of the rows that a model takes, from which a failure can be explained."""

    call: str
    """How a user calls the model: ``model.predict`` or ``model``."""
    n_columns: int | None
    """The number of columns that the model was fitted on; None if it does not say."""
    has_names: bool
    """Whether the model was fitted on a table, and not on an array."""

    @classmethod
    def of(cls, model: Any) -> ModelForm:
        """Read the form from a model's attributes, as scikit-learn names them."""
        methods = ["predict"]
        if isinstance(model, Thresholded):
            model = model.model
            methods = ["predict_proba", "predict"]
        names = [f"model.{method}" for method in methods if hasattr(model, method)]
        call = names[0] if names else "model"
        n_columns = getattr(model, "n_features_in_", None)
        if isinstance(n_columns, (int, np.integer)):
            n_columns = int(n_columns)
        else:
            n_columns = None
        has_names = getattr(model, "feature_names_in_", None) is not None
        return cls(call=call, n_columns=n_columns, has_names=has_names)

    def failure(self, rows: pd.DataFrame) -> str:
        """Return an error message with the likely causes if a model raised on these rows.

        Call it while the model's exception is handled; ``{}`` stands for its class. The message
        names columns and never a value.
        """
        if isinstance(sys.exception(), NotFittedError):
            return "the model raised {}; fit it first"
        texts = [str(name) for name in rows if not types.is_numeric_dtype(rows[name].dtype)]
        culprits = _columns_in_exception(rows[texts])
        names = culprits or texts
        columns = f"{'columns' if len(names) > 1 else 'column'} {listed(names)}"
        causes = []
        if culprits:
            causes.append(
                f"it does not take the values of {columns}: many models need numbers, or the"
                " categories that they were fitted on"
            )
        elif texts:
            causes.append(f"many models need numbers, and have none in {columns}")
        if self.n_columns is not None and self.n_columns != rows.shape[1]:
            causes.append(
                f"the model was fitted on {self.n_columns} columns, and the schema has"
                f" {rows.shape[1]} features"
            )
        elif self.n_columns is not None and not self.has_names:
            causes.append("the model was fitted on an array, and it gets a table")
        check = f"call {self.call}(train[features].head()) yourself to see the error"
        if causes:
            check += (
                ". If the model wants its rows encoded, give a pipeline that encodes them, or a"
                f" function: model=lambda rows: {self.call}(encode(rows))"
            )
        return "; ".join([f"the model raised {{}} on {len(rows)} rows", *causes, check])


def _columns_in_exception(rows: pd.DataFrame) -> list[str]:
    """Return the columns with a value that the current exception quotes.

    If it quotes no value, return the columns that it names.
    """
    text = ""
    with suppress(Exception):  # a foreign exception may fail to give its text
        text = str(sys.exception())
    names = [str(name) for name in rows]
    columns_with_quotes = [
        name for name in names if any(value in text for value in set(map(repr, rows[name])))
    ]
    if columns_with_quotes:
        return columns_with_quotes
    return [name for name in names if re.search(rf"\b{re.escape(name)}\b", text)]


def predict_of(model: Any) -> Callable[[pd.DataFrame], Any]:
    """Return the function that takes a table and returns a model's labels.

    Raises
    ------
    ModelError
        If the model cannot take a table; the message shows a function that can.
    """
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(model).__mro__}
    if ("onnxruntime", "InferenceSession") in kinds:
        return partial(_run_onnx, model)
    method = "inplace_predict" if ("xgboost", "Booster") in kinds else "predict"
    predict = getattr(model, method, None)
    if predict is None and ("torch", "Module") in kinds:
        raise ModelError(
            "a torch module takes tensors; give a function of a table: model=lambda rows: "
            "net(torch.tensor(rows.to_numpy('float32'))).argmax(1).numpy()"
        )
    ask: Callable[[pd.DataFrame], Any] = predict or model
    if not callable(ask):
        raise ModelError(
            "a model must have a predict method or be a function of a table; got"
            f" {type(model).__name__}"
        )
    if isinstance(model, type):
        raise ModelError(
            f"{model.__name__} is a class, not a fitted model; make an object of it and fit it"
        )
    return ask


_DTYPE_OF_TENSOR = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(string)": "str",
}


def _run_onnx(session: Any, rows: pd.DataFrame) -> Any:
    """Return the first output of an ONNX model, which takes one tensor, or one for each column."""
    inputs = session.get_inputs()
    tensors = {}
    for model_input in inputs:
        same_name_in_numpy = model_input.type.removeprefix("tensor(").removesuffix(")")
        dtype = _DTYPE_OF_TENSOR.get(model_input.type, same_name_in_numpy)
        part = rows if len(inputs) == 1 else rows[[model_input.name]]
        tensors[model_input.name] = part.to_numpy(dtype=dtype)
    return session.run([session.get_outputs()[0].name], tensors)[0]


def _inner(model: Any) -> Any:
    """Return the user's model itself, without a threshold around it."""
    if isinstance(model, Thresholded):
        return model.model
    return model


def _classes_of(model: Any) -> tuple[Any, ...] | None:
    """Return the labels that a model can give; None if unknown, or if it has several outputs."""
    classes = getattr(model, "classes_", None)
    if classes is None or len(classes) == 0:
        return None
    has_several_outputs = any(np.ndim(label) for label in classes)
    if has_several_outputs:
        return None
    return tuple(np.asarray(classes).tolist())


def _columns_of(model: Any, features: Sequence[str]) -> list[str]:
    """Return the columns that a model was fitted on, in its order; all features if unknown.

    Raises
    ------
    ModelError
        If the model was fitted on a column that is not a feature.
    """
    fitted_names = getattr(model, "feature_names_in_", None)
    if fitted_names is not None:
        columns = [str(name) for name in fitted_names]
        unknown = [name for name in columns if name not in features]
        if unknown:
            raise ModelError(_unknown_columns(unknown, features))
        return columns
    # the attributes of CatBoost, XGBoost and LightGBM
    for attribute in ("feature_names_", "feature_names", "feature_name"):
        names = getattr(model, attribute, None)
        if callable(names):
            names = names()
        if isinstance(names, list) and set(names) <= set(features):
            return names
    return list(features)


def _unknown_columns(unknown: Sequence[str], features: Sequence[str]) -> str:
    """Return an error message about columns that a model expects and the schema does not have.

    If an encoder made a column, the message names its feature instead: the name of the column often
    ends in a value of the feature.
    """
    unrelated_names = []
    encoded: dict[str, None] = {}
    for name in unknown:
        # a ColumnTransformer puts the name of the encoder before a column: onehot__job_clerk
        name_after_encoder = name.partition("__")[2]
        sources = [
            feature
            for feature in features
            if _is_made_from(feature, name) or _is_made_from(feature, name_after_encoder)
        ]
        if sources:
            encoded[max(sources, key=len)] = None
        else:
            unrelated_names.append(name)
    phrases = []
    if unrelated_names:
        phrases.append(f"{unrelated_names}, which the schema does not have as features")
    if encoded:
        phrases.append(f"columns that are made from {listed([*encoded])}")
    hint = "fit it without them, or give a function"
    if encoded:
        hint = (
            "give a pipeline that encodes, or a function: model=lambda rows:"
            " model.predict(encode(rows))"
        )
    return f"the model expects {' and '.join(phrases)}; {hint}"


def _is_made_from(feature: str, column: str) -> bool:
    """Return True if a column is named after a feature, as ``job_clerk`` and ``job=clerk`` are."""
    rest = column.removeprefix(feature)
    return column.startswith(feature) and not rest[:1].isalnum()


class Thresholded:
    """A model that gives an outcome if its probability is at least a threshold.

    Parameters
    ----------
    model : object
        A classifier of two classes with ``predict_proba``: the threshold applies to the second
        class. Any other model has to return the probability of outcome 1; below the threshold the
        outcome is 0.
    threshold : float
        Above 0, at most 1.

    Examples
    --------
    >>> import pandas as pd
    >>> model = Thresholded(lambda rows: rows["score"] / 100, 0.3)
    >>> model.predict(pd.DataFrame({"score": [29, 30, 31]}))
    array([0, 1, 1])
    """

    def __init__(self, model: Any, threshold: float) -> None:
        if (
            not isinstance(threshold, (int, float))
            or isinstance(threshold, bool)
            or not 0 < threshold <= 1
        ):
            raise ModelError("threshold must be a probability, a number above 0 and at most 1")
        self.model = model
        self.threshold = threshold
        self._ask = getattr(model, "predict_proba", None) or predict_of(model)
        classes = [0, 1]
        if hasattr(model, "predict_proba"):
            classes = getattr(model, "classes_", classes)
        self.classes_ = np.asarray(classes)
        if len(self.classes_) != 2:
            raise ModelError(
                f"threshold= needs two classes, and the model has {len(self.classes_)}; give the"
                " probability of one of them: model=lambda rows: model.predict_proba(rows)[:, i],"
                " desired=1"
            )

    def predict(self, rows: pd.DataFrame) -> NDArray[Any]:
        """Return the outcome of each row."""
        second = self._probability_of_second(rows)
        return np.asarray(self.classes_[(second >= self.threshold).astype(int)])

    def predict_proba(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        """Return the probability of both classes; shape (n, 2)."""
        second = self._probability_of_second(rows)
        return np.column_stack([1 - second, second])

    def _probability_of_second(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        """Return the probability of the second class, shape (n,).

        Raises
        ------
        ModelError
            If the model returns anything else.
        """
        second = np.asarray(self._ask(rows))
        if second.ndim == 2 and second.shape[1] <= 2:
            second = second[:, -1]
        is_probability = (
            second.ndim == 1
            and second.dtype.kind == "f"
            and bool(((second >= 0) & (second <= 1)).all())
        )
        if not is_probability:
            raise ModelError(
                "threshold= needs a model that returns one probability for each row, between 0 and"
                f" 1; this one returns an array of {second.dtype} of shape {second.shape}"
            )
        return second


def _probabilities_of(model: Any) -> Probabilities | None:
    """Return the probabilities of any form of model; None if it has none."""
    if isinstance(model, LabelModel):  # the form in which workers of a cluster get the model
        inner = model._probabilities
        if inner is None:
            return None
        return Probabilities(model.ask_probabilities, inner.decision)
    if isinstance(model, Thresholded):
        classes = model.classes_.astype(object)
        decision = ProbabilityThreshold(classes, float(model.threshold))
        return Probabilities(model.predict_proba, decision)
    return probabilities_of(model)


def thresholded(model: Any, threshold: float | None) -> Any:
    """Return a model with a threshold, or the model itself if there is no threshold."""
    if threshold is None:
        return model
    return Thresholded(model, threshold)


def checked_later(later: Any) -> Sequence[Any]:
    """Return the list of retrained models that a user passed as ``later=``.

    Raises
    ------
    InputError
        If it is not a list.
    """
    if isinstance(later, (str, Mapping)) or not isinstance(later, Sequence):
        raise InputError(f"later must be a list of retrained models, got {type(later).__name__}")
    return later
