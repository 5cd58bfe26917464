"""The model that is explained, as something with gradients: networks and logistic regressions on encoded rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax
from sklearn.pipeline import Pipeline

from cfk_plugin.dp.encoding import PublicEncoder
from cfk_plugin.dp.published.autoencoder import Matrix
from cfk_plugin.errors import ModelError
from cfk_plugin.gradients import Network, read_network

_GIVE = (
    "give a fitted Pipeline of PublicEncoder and MLPClassifier or LogisticRegression, or a function "
    "`gradient(encoded, targets)` that returns log-probabilities and their gradient"
)


@dataclass(frozen=True, eq=False)
class DenseClassifier:
    """A network with a sigmoid or softmax over its outputs.

    Attributes
    ----------
    network : Network
        A single output is the logit of the second class.
    classes : array, shape (n_classes,)
    """

    network: Network
    classes: NDArray[Any]

    def __repr__(self) -> str:
        """Show sizes."""
        return f"DenseClassifier({len(self.network.weights)} layers, {len(self.classes)} classes)"

    def __call__(self, encoded: Matrix, targets: NDArray[Any]) -> tuple[Matrix, Matrix]:
        """Return the log-probability of each row's target, and its gradient by the row; see `Gradient`."""
        at = np.arange(len(encoded))
        target = (targets[:, None] == self.classes).argmax(axis=1)
        outputs = self.network.forward(encoded)
        logits = outputs[-1]
        if logits.shape[1] == 1:
            sign = np.where(target == 1, 1.0, -1.0)[:, None]
            log_probability = log_expit(sign * logits)[:, 0]
            slope = sign * expit(-sign * logits)
        else:
            every = log_softmax(logits, axis=1)
            log_probability, slope = every[at, target], -np.exp(every)
            slope[at, target] += 1
        return log_probability, self.network.backward(outputs, slope)[0]


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
    network = read_network(last, _GIVE)
    if first.layout != encoder.layout:
        raise ModelError("the pipeline's PublicEncoder has another domain than the population's schema declares")
    return DenseClassifier(network, last.classes_)
