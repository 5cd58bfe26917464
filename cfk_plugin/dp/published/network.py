"""The model that is explained, as something with gradients: networks and logistic regressions of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline

from cfk_plugin.dp.encoding import PublicEncoder
from cfk_plugin.dp.published.autoencoder import Matrix
from cfk_plugin.dp.published.latent_search import Gradient
from cfk_plugin.errors import ModelError

_GIVE = (
    "give a fitted Pipeline of PublicEncoder and MLPClassifier or LogisticRegression, or a function "
    "`gradient(encoded, targets)` that returns log-probabilities and their gradient"
)

# Each with its derivative by what went in, from what came out (and went in).
_ACTIVATIONS: dict[str, tuple[Callable[[Matrix], Matrix], Callable[[Matrix], Matrix]]] = {
    "identity": (lambda x: x, np.ones_like),
    "logistic": (expit, lambda y: y * (1 - y)),
    "tanh": (np.tanh, lambda y: 1 - y**2),
    "relu": (lambda x: np.maximum(x, 0), lambda y: (y > 0).astype(float)),
}


@dataclass(frozen=True, eq=False)
class DenseClassifier:
    """A fully connected classifier: weights, offsets, one activation, and a sigmoid or softmax over the last layer.

    Attributes
    ----------
    weights, offsets : tuple of arrays
        Of each layer, shapes (n_in, n_out) and (n_out,). A single output is the logit of the second class.
    activation : {"identity", "logistic", "tanh", "relu"}
    classes : array, shape (n_classes,)
    """

    weights: tuple[Matrix, ...]
    offsets: tuple[Matrix, ...]
    activation: str
    classes: NDArray[Any]

    def __repr__(self) -> str:
        """Show sizes."""
        return f"DenseClassifier({len(self.weights)} layers, {len(self.classes)} classes)"

    def __call__(self, encoded: Matrix, targets: NDArray[Any]) -> tuple[Matrix, Matrix]:
        """Return the log-probability of each row's target, and its gradient by the row; see `Gradient`."""
        at = np.arange(len(encoded))
        target = (targets[:, None] == self.classes).argmax(axis=1)
        outputs = self._layers(encoded)
        logits = outputs[-1]
        if logits.shape[1] == 1:
            sign = np.where(target == 1, 1.0, -1.0)[:, None]
            log_probability = log_expit(sign * logits)[:, 0]
            slope = sign * expit(-sign * logits)
        else:
            every = log_softmax(logits, axis=1)
            log_probability, slope = every[at, target], -np.exp(every)
            slope[at, target] += 1
        return log_probability, self._back(outputs, slope)

    def log_probabilities(self, encoded: Matrix) -> Matrix:
        """Return log-probabilities of all classes, shape (n, n_classes)."""
        return np.column_stack([self(encoded, np.repeat(self.classes[[i]], len(encoded)))[0] for i in self._range])

    @property
    def _range(self) -> range:
        return range(len(self.classes))

    def _layers(self, x: Matrix) -> list[Matrix]:
        """Return the outputs of all layers, the last one without its sigmoid or softmax."""
        activate = _ACTIVATIONS[self.activation][0]
        outputs = []
        for i, (weights, offset) in enumerate(zip(self.weights, self.offsets, strict=True)):
            x = x @ weights + offset
            if i < len(self.weights) - 1:
                x = activate(x)
            outputs.append(x)
        return outputs

    def _back(self, outputs: list[Matrix], slope: Matrix) -> Matrix:
        derivative = _ACTIVATIONS[self.activation][1]
        for i in reversed(range(len(self.weights))):
            slope = slope @ self.weights[i].T
            if i:
                slope = slope * derivative(outputs[i - 1])
        return slope


def differentiable(model: Any, encoder: PublicEncoder) -> DenseClassifier:
    """Read the weights of a pipeline of `PublicEncoder` and a network or logistic regression.

    Parameters
    ----------
    model : Pipeline
    encoder : PublicEncoder
        What the population's schema declares; the pipeline's must encode alike.

    Raises
    ------
    ModelError
        If it is anything else, is not fitted, encodes other declarations, or has several outputs per row.
    """
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else []
    if len(steps) != 2 or not isinstance(steps[0], PublicEncoder):
        raise ModelError(f"no gradients are known of a {type(model).__name__}: {_GIVE}")
    first, last = steps
    if not isinstance(last, (MLPClassifier, LogisticRegression)):
        raise ModelError(f"no gradients are known of a {type(last).__name__}: {_GIVE}")
    if not hasattr(last, "classes_"):
        raise ModelError(f"the {type(last).__name__} is not fitted: {_GIVE}")
    if first.layout != encoder.layout:
        raise ModelError("the pipeline's PublicEncoder has another domain than the population's schema declares")
    return _same_as(last, _read(last), encoder.n_inputs)


def _read(model: Any) -> DenseClassifier:
    if isinstance(model, LogisticRegression):
        return DenseClassifier((model.coef_.T,), (model.intercept_,), "identity", model.classes_)
    return DenseClassifier(tuple(model.coefs_), tuple(model.intercepts_), model.activation, model.classes_)


def _same_as(model: Any, read: DenseClassifier, n_inputs: int) -> DenseClassifier:
    """Refuse weights that do not give the model's own probabilities: several labels per row, one against the rest."""
    points = np.random.default_rng(0).random((8, n_inputs))
    own, ours = np.asarray(model.predict_proba(points)), np.exp(read.log_probabilities(points))
    if own.shape != ours.shape or not np.allclose(own, ours, atol=1e-6):
        raise ModelError(f"the {type(model).__name__} does not give one sigmoid or softmax over its classes: {_GIVE}")
    return read


def checked(gradient: Gradient) -> Gradient:
    """Return a function of the user's whose answers are checked, and whose errors quote nothing.

    Raises
    ------
    ModelError
        When called: if it raises, or returns other shapes than (n,) and (n, n_inputs), or numbers that are not finite.
    """

    def call(encoded: Matrix, targets: NDArray[Any]) -> tuple[Matrix, Matrix]:
        failure, answer = "", (np.empty(0), np.empty(0))
        try:
            log_probability, slope = gradient(encoded.copy(), targets.copy())
            answer = np.asarray(log_probability, dtype=float), np.asarray(slope, dtype=float)
        except Exception as error:  # noqa: BLE001 - whatever it is, its text must not get out
            failure = type(error).__name__
        if failure:
            raise ModelError(f"the function `gradient` raised {failure} on {len(encoded)} rows")
        if answer[0].shape != (len(encoded),) or answer[1].shape != encoded.shape:
            raise ModelError(
                f"the function `gradient` must return arrays of shapes ({len(encoded)},) and {encoded.shape}; got "
                f"{answer[0].shape} and {answer[1].shape}"
            )
        if not all(np.isfinite(part).all() for part in answer):
            raise ModelError("the function `gradient` returned numbers that are not finite")
        return answer

    return call
