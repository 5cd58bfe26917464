"""The autoencoder of DPC, and the functional mechanism that it is trained with, which protects nobody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.dp.gradients import Adam

Matrix = NDArray[np.float64]
Backward = Callable[[Matrix], tuple[Matrix, Matrix, Matrix]]
"""From the gradient of a layer's outputs to those of its inputs, weights and offset."""

_VARIANCE_FLOOR = 1e-5  # keeps equal inputs from a division by zero


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Sigmoid units over inputs, which may be normalised first, without gain and offset."""

    weights: Matrix
    offset: Matrix | None
    normalised: bool

    def forward(self, x: Matrix) -> tuple[Matrix, Backward]:
        inputs, deviation = x, None
        if self.normalised:
            centred = x - x.mean(axis=1, keepdims=True)
            deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + _VARIANCE_FLOOR)
            inputs = centred / deviation
        before = inputs @ self.weights
        outputs = _sigmoid(before if self.offset is None else before + self.offset)

        def backward(gradient: Matrix) -> tuple[Matrix, Matrix, Matrix]:
            of_before = gradient * outputs * (1 - outputs)
            of_inputs = of_before @ self.weights.T
            if deviation is not None:
                along = (of_inputs * inputs).mean(axis=1, keepdims=True)
                of_inputs = (of_inputs - of_inputs.mean(axis=1, keepdims=True) - inputs * along) / deviation
            return of_inputs, inputs.T @ of_before, of_before.sum(axis=0)

        return outputs, backward


class Autoencoder:
    """The net of Yang et al. (2022, 5.1.1); `tied`, of Eq. 6: one layer, transposed to decode, not normalised."""

    def __init__(self, n_inputs: int, hidden: Sequence[int], random: np.random.Generator, *, tied: bool = False):
        sizes = list(pairwise([n_inputs, *hidden, *reversed(hidden[:-1]), n_inputs]))
        drawn = [_draw_weights(*size, random, with_offset=not tied) for size in (sizes[:1] if tied else sizes)]
        self.parameters: Matrix = np.concatenate([block.ravel() for block in drawn])
        parts = np.split(self.parameters, np.cumsum([block.size for block in drawn])[:-1])
        views = [part.reshape(block.shape) for part, block in zip(parts, drawn, strict=True)]
        if tied:
            layers = [Layer(views[0], None, False), Layer(views[0].T, None, False)]
        else:
            layers = [Layer(view[:-1], view[-1], normalised=view is not views[-1]) for view in views]
        self._tied, self._encoder, self._decoder = tied, layers[: len(hidden)], layers[len(hidden) :]

    def __repr__(self) -> str:
        return f"Autoencoder({self.parameters.size} parameters)"

    def encode(self, x: Matrix) -> Matrix:
        return _through(self._encoder, x)[0]

    def decode(self, code: Matrix) -> tuple[Matrix, Callable[[Matrix], Matrix]]:
        """Do as `reconstruct`, from codes and down to their gradient."""
        outputs, backwards = _through(self._decoder, code)
        return outputs, lambda gradient: _back(backwards, gradient)[0]

    def reconstruct(self, x: Matrix) -> tuple[Matrix, Callable[[Matrix], Matrix]]:
        """Return reconstructions, and what turns a gradient of them into that of `parameters`."""
        outputs, backwards = _through(self._encoder + self._decoder, x)

        def of_parameters(gradient: Matrix) -> Matrix:
            of_layers = _back(backwards, gradient)[1]
            if self._tied:
                return np.asarray(of_layers[0][0] + of_layers[1][0].T).ravel()
            return np.concatenate([part.ravel() for of_layer in of_layers for part in of_layer])

        return outputs, of_parameters


def _draw_weights(n_in: int, n_out: int, random: np.random.Generator, *, with_offset: bool) -> Matrix:
    """Draw weights, with the offset as last row (zero at first)."""
    limit = np.sqrt(6 / (n_in + n_out))
    weights = random.uniform(-limit, limit, (n_in, n_out))
    return np.vstack([weights, np.zeros(n_out)]) if with_offset else weights


def _sigmoid(x: Matrix) -> Matrix:
    """Return 1 / (1 + exp(-x)): numpy's tanh is three times as fast as scipy's expit, and does not overflow."""
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * x))


def _through(layers: list[Layer], x: Matrix) -> tuple[Matrix, list[Backward]]:
    backwards = []
    for layer in layers:
        x, backward = layer.forward(x)
        backwards.append(backward)
    return x, backwards


def _back(backwards: list[Backward], gradient: Matrix) -> tuple[Matrix, list[tuple[Matrix, Matrix]]]:
    of_layers = []
    for backward in reversed(backwards):
        gradient, of_weights, of_offset = backward(gradient)
        of_layers.append((of_weights, of_offset))
    return gradient, of_layers[::-1]


# The functional mechanism of Yang et al. (2022, 4.1) protects nobody. Laplace noise is added to coefficients of a loss,
# but their basis is the network's own output at each row, so training goes on reading the rows; and the sensitivity
# of Eq. 13 counts hidden units where the sum runs over inputs. Nothing else may use numpy's noise.


def claimed_sensitivity(hidden: Sequence[int]) -> float:
    """Return Eq. 13, 4 (K + 1), with K the largest number of units of a hidden layer (5.1.1)."""
    return 4.0 * (max(hidden) + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Perturbation:
    """Noise on the coefficients of the loss (Eq. 11), drawn once before training.

    The reconstruction loss of N rows is a polynomial of degree 2 in the outputs x̂ (Eq. 8 and 12). Algorithm 1 perturbs
    the coefficient of each x̂_p and each product x̂_p x̂_q, p <= q; they belong to the table, so what trains is
    mean ‖x - x̂‖² + mean (linear · x̂ + x̂ᵀ quadratic x̂) / N, without the constant, which has no gradient.
    """

    linear: Matrix  # shape (n_inputs,)
    quadratic: Matrix  # shape (n_inputs, n_inputs); upper triangular, so that each product is there once

    @classmethod
    def draw(cls, n_inputs: int, hidden: Sequence[int], epsilon: float, random: np.random.Generator) -> Perturbation:
        """Draw noise of scale 4 (K + 1) / epsilon; none for an infinite epsilon."""
        scale = claimed_sensitivity(hidden) / epsilon
        quadratic = np.zeros((n_inputs, n_inputs))
        quadratic[np.triu_indices(n_inputs)] = random.laplace(0, scale, n_inputs * (n_inputs + 1) // 2)
        return cls(random.laplace(0, scale, n_inputs), quadratic)


def loss_and_gradients(
    net: Autoencoder, x: Matrix, counts: Matrix, perturbation: Perturbation, n: float
) -> tuple[float, Matrix]:
    """Return the perturbed loss of a batch, and its gradient by the net's parameters."""
    share = (counts / counts.sum())[:, None]
    outputs, of_parameters = net.reconstruct(x)
    linear, quadratic = perturbation.linear / n, perturbation.quadratic / n
    loss = share * ((x - outputs) ** 2 + outputs * (linear + outputs @ quadratic))
    slope = 2 * (outputs - x) + linear + outputs @ (quadratic + quadratic.T)
    return float(loss.sum()), of_parameters(share * slope)


def train(
    net: Autoencoder,
    rows: Matrix,
    counts: Matrix,
    perturbation: Perturbation,
    random: np.random.Generator,
    epochs: int = 300,
    batch_size: int | None = 128,
    rate: float = 1e-3,
) -> None:
    """Train a net in place (Algorithm 1); row i stands for ``counts[i]`` rows. No batch size: all in one batch."""
    n, size = float(counts.sum()), batch_size or len(rows)
    adam = Adam(net.parameters, rate)
    for _ in range(epochs):
        order = random.permutation(len(rows))
        for start in range(0, len(rows), size):
            batch = order[start : start + size]
            adam.step(loss_and_gradients(net, rows[batch], counts[batch], perturbation, n)[1])
