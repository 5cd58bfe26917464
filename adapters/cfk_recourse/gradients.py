"""Gradients of scikit-learn's networks and logistic regressions, and Adam, which follows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

Backward = Callable[[Matrix], tuple[Matrix, list[tuple[Matrix, Matrix]]]]
"""From the gradient of outputs to that of inputs and, per layer, its inputs and the gradient of its
sums.
"""

# Each with its gradient, given the gradient of its output.
_ACTIVATIONS: dict[str, tuple[Callable[[Matrix], Matrix], Callable[[Matrix, Matrix], Matrix]]] = {
    "identity": (lambda x: x, lambda g, _: g),
    "logistic": (expit, lambda g, y: g * (y * (1 - y))),
    "tanh": (np.tanh, lambda g, y: g * (1 - y**2)),
    "relu": (lambda x: np.maximum(x, 0), lambda g, y: g * (y > 0)),
    # The logistic function by NumPy's tanh: three times as fast as SciPy's expit, without overflow.
    "sigmoid": (lambda x: 0.5 + 0.5 * np.tanh(0.5 * x), lambda g, y: g * y * (1 - y)),
}
_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8  # Adam's default values
_ROUNDING = 1e-6  # between a model's own probabilities and those from the weights read
_VARIANCE_FLOOR = 1e-5  # avoids division by zero for equal inputs


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Units over all inputs, optionally normalized first (without gain and offset); a network is a
    list of layers.
    """

    weights: Matrix  # shape (n_in, n_out)
    offset: Matrix | None  # shape (n_out,)
    activation: str = "identity"
    normalized: bool = False

    def __repr__(self) -> str:
        return f"Layer({self.weights.shape[0]} to {self.weights.shape[1]})"

    def forward(
        self, x: Matrix
    ) -> tuple[Matrix, Callable[[Matrix], tuple[Matrix, tuple[Matrix, Matrix]]]]:
        """Return outputs, and what turns a gradient of them into that of inputs and parameters."""
        inputs, deviation = x, None
        if self.normalized:
            centered = x - x.mean(axis=1, keepdims=True)
            deviation = np.sqrt((centered**2).mean(axis=1, keepdims=True) + _VARIANCE_FLOOR)
            inputs = centered / deviation
        activate, derive = _ACTIVATIONS[self.activation]
        sums = inputs @ self.weights
        outputs = activate(sums if self.offset is None else sums + self.offset)

        def backward(gradient: Matrix) -> tuple[Matrix, tuple[Matrix, Matrix]]:
            of_sums = derive(gradient, outputs)
            of_inputs = of_sums @ self.weights.T
            if deviation is not None:
                along = (of_inputs * inputs).mean(axis=1, keepdims=True)
                of_inputs = (
                    of_inputs - of_inputs.mean(axis=1, keepdims=True) - inputs * along
                ) / deviation
            return of_inputs, (inputs, of_sums)

        return outputs, backward


def propagate(network: Sequence[Layer], x: Matrix) -> tuple[Matrix, Backward]:
    """Return the output of the last layer, and the backward pass."""
    backwards = []
    for layer in network:
        x, of_layer = layer.forward(x)
        backwards.append(of_layer)

    def backward(gradient: Matrix) -> tuple[Matrix, list[tuple[Matrix, Matrix]]]:
        of_layers = []
        for of_layer in reversed(backwards):
            gradient, found = of_layer(gradient)
            of_layers.append(found)
        return gradient, of_layers[::-1]

    return x, backward


def read_network(model: Any, advice: str) -> list[Layer]:
    """Read a fitted ``MLPClassifier`` or ``LogisticRegression``: logits of its classes, or of the
    second of two.
    """
    if not isinstance(model, (MLPClassifier, LogisticRegression)):
        raise ModelError(f"no gradients are known of a {type(model).__name__}: {advice}")
    if not hasattr(model, "classes_"):
        raise ModelError(f"the {type(model).__name__} is not fitted: {advice}")
    if isinstance(model, LogisticRegression):
        network = [Layer(model.coef_.T, model.intercept_)]
    else:
        activations = [*[model.activation] * (len(model.coefs_) - 1), "identity"]
        network = [
            Layer(*each) for each in zip(model.coefs_, model.intercepts_, activations, strict=True)
        ]
    points = np.random.default_rng(0).random((8, len(network[0].weights)))
    named = (
        pd.DataFrame(points, columns=model.feature_names_in_)
        if hasattr(model, "feature_names_in_")
        else points
    )
    own, ours = (
        np.asarray(model.predict_proba(named)),
        np.exp(log_softmax(class_logits(propagate(network, points)[0]), axis=1)),
    )
    if own.shape != ours.shape or not np.allclose(own, ours, atol=_ROUNDING):
        raise ModelError(
            f"the {type(model).__name__} does not give one sigmoid or softmax over its classes:"
            f" {advice}"
        )
    return network


def class_logits(outputs: Matrix) -> Matrix:
    """Return the logits of all classes, shape (n, n_classes); with a single output, the first class
    has 0.
    """
    return np.column_stack([np.zeros(len(outputs)), outputs]) if outputs.shape[1] == 1 else outputs


def check_gradient(
    gradient: Callable[..., tuple[Matrix, Matrix]],
) -> Callable[..., tuple[Matrix, Matrix]]:
    """Wrap the user's function: answers are checked, and errors quote nothing."""

    def call(points: Matrix, *more: NDArray[Any]) -> tuple[Matrix, Matrix]:
        with quiet(f"the function `gradient` raised {{}} on {len(points)} rows", ModelError):
            value, slope = gradient(points.copy(), *(array.copy() for array in more))
            answer = np.asarray(value, dtype=float), np.asarray(slope, dtype=float)
        if answer[0].shape != (len(points),) or answer[1].shape != points.shape:
            raise ModelError(
                f"the function `gradient` must return arrays of shapes ({len(points)},) and"
                f" {points.shape}; got {answer[0].shape} and {answer[1].shape}"
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
        """Take one descent step; return how far a constant gradient of 1 would move each entry."""
        self._steps += 1
        scale = self._rate * np.sqrt(1 - _SECOND**self._steps) / (1 - _FIRST**self._steps)
        self._mean += (1 - _FIRST) * (gradient - self._mean)
        self._square += (1 - _SECOND) * (gradient**2 - self._square)
        sizes = scale / (np.sqrt(self._square) + _TINY)
        self._array -= sizes * self._mean
        return np.asarray(sizes * (1 - _FIRST**self._steps))
