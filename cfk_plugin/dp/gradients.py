"""Gradients of scikit-learn's networks and logistic regressions, and Adam, who follows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, log_softmax
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from cfk_plugin.errors import ModelError, quiet

Matrix = NDArray[np.float64]

# Each with its derivative, which is taken from what came out.
_ACTIVATIONS: dict[str, tuple[Callable[[Matrix], Matrix], Callable[[Matrix], Matrix]]] = {
    "identity": (lambda x: x, np.ones_like),
    "logistic": (expit, lambda y: y * (1 - y)),
    "tanh": (np.tanh, lambda y: 1 - y**2),
    "relu": (lambda x: np.maximum(x, 0), lambda y: (y > 0).astype(float)),
}
_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8  # Adam's, the values of its authors
_ROUNDING = 1e-6  # between a model's own probabilities and those of the weights that were read from it


@dataclass(frozen=True, eq=False)
class DenseNetwork:
    """Fully connected layers with one activation between them, and none after the last."""

    weights: tuple[Matrix, ...]  # per layer, shape (n_in, n_out)
    offsets: tuple[Matrix, ...]  # per layer, shape (n_out,)
    activation: str

    def __repr__(self) -> str:
        return f"DenseNetwork({len(self.weights)} layers, {self.weights[0].shape[0]} inputs)"

    def forward(self, x: Matrix) -> list[Matrix]:
        """Return the outputs of all layers, the network's own last, shape (n, n_out)."""
        activate = _ACTIVATIONS[self.activation][0]
        outputs: list[Matrix] = []
        for i, (weights, offset) in enumerate(zip(self.weights, self.offsets, strict=True)):
            x = x @ weights + offset
            if i < len(self.weights) - 1:
                x = activate(x)
            outputs.append(x)
        return outputs

    def backward(self, outputs: list[Matrix], slope: Matrix) -> list[Matrix]:
        """Return the gradient by the inputs first, then by what goes into each layer's activation."""
        derivative = _ACTIVATIONS[self.activation][1]
        slopes = [slope]
        for i in reversed(range(len(self.weights))):
            slope = slope @ self.weights[i].T
            if i:
                slope = slope * derivative(outputs[i - 1])
            slopes.insert(0, slope)
        return slopes


def read_network(model: Any, advice: str) -> DenseNetwork:
    """Read a fitted ``MLPClassifier`` or ``LogisticRegression``: logits of its classes, or of the second of two."""
    if not isinstance(model, (MLPClassifier, LogisticRegression)):
        raise ModelError(f"no gradients are known of a {type(model).__name__}: {advice}")
    if not hasattr(model, "classes_"):
        raise ModelError(f"the {type(model).__name__} is not fitted: {advice}")
    if isinstance(model, LogisticRegression):
        network = DenseNetwork((model.coef_.T,), (model.intercept_,), "identity")
    else:
        network = DenseNetwork(tuple(model.coefs_), tuple(model.intercepts_), model.activation)
    points = np.random.default_rng(0).random((8, network.weights[0].shape[0]))
    named = pd.DataFrame(points, columns=model.feature_names_in_) if hasattr(model, "feature_names_in_") else points
    own, ours = np.asarray(model.predict_proba(named)), np.exp(log_softmax(class_logits(network, points), axis=1))
    if own.shape != ours.shape or not np.allclose(own, ours, atol=_ROUNDING):
        raise ModelError(f"the {type(model).__name__} does not give one sigmoid or softmax over its classes: {advice}")
    return network


def class_logits(network: DenseNetwork, points: Matrix) -> Matrix:
    """Return the logits of all classes, shape (n, n_classes); with one output, the first of two classes has 0."""
    last = network.forward(points)[-1]
    return np.column_stack([np.zeros(len(last)), last]) if last.shape[1] == 1 else last


def check_gradient(gradient: Callable[..., tuple[Matrix, Matrix]]) -> Callable[..., tuple[Matrix, Matrix]]:
    """Return the user's function with checked answers and errors that quote nothing."""

    def call(points: Matrix, *more: NDArray[Any]) -> tuple[Matrix, Matrix]:
        with quiet(f"the function `gradient` raised {{}} on {len(points)} rows", ModelError):
            value, slope = gradient(points.copy(), *(array.copy() for array in more))
            answer = np.asarray(value, dtype=float), np.asarray(slope, dtype=float)
        if answer[0].shape != (len(points),) or answer[1].shape != points.shape:
            raise ModelError(
                f"the function `gradient` must return arrays of shapes ({len(points)},) and {points.shape}; got "
                f"{answer[0].shape} and {answer[1].shape}"
            )
        if not all(np.isfinite(part).all() for part in answer):
            raise ModelError("the function `gradient` returned numbers that are not finite")
        return answer

    return call


class Adam:
    """Changes an array in place along its gradients (Kingma and Ba 2015)."""

    def __init__(self, array: Matrix, rate: float) -> None:
        self._array, self._rate, self._steps = array, rate, 0
        self._mean, self._square = np.zeros_like(array), np.zeros_like(array)

    def step(self, gradient: Matrix) -> Matrix:
        """Take one step down; return how far a lasting gradient of 1 would move each entry."""
        self._steps += 1
        scale = self._rate * np.sqrt(1 - _SECOND**self._steps) / (1 - _FIRST**self._steps)
        self._mean += (1 - _FIRST) * (gradient - self._mean)
        self._square += (1 - _SECOND) * (gradient**2 - self._square)
        sizes = scale / (np.sqrt(self._square) + _TINY)
        self._array -= sizes * self._mean
        return np.asarray(sizes * (1 - _FIRST**self._steps))
