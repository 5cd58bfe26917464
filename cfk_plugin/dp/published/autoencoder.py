"""The autoencoder of DPC: sigmoid layers, forward and backward, in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Backward = Callable[[Matrix], tuple[Matrix, Matrix, Matrix]]
"""From the gradient of a layer's outputs to those of its inputs, weights and offset."""

_VARIANCE_FLOOR = 1e-5  # keeps equal inputs from a division by zero


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Sigmoid units over inputs that may be normalised first.

    Normalisation has no gain and offset of its own: the weights that follow have them.
    """

    weights: Matrix
    offset: Matrix | None
    normalised: bool

    def forward(self, x: Matrix) -> tuple[Matrix, Backward]:
        """Return the units' outputs, and the way back."""
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
    """An encoder and its mirror image as decoder.

    The net of the experiments of Yang et al. (2022, 5.1.1): the inputs of every hidden layer are normalised, all units
    are sigmoid. With `tied`, the net of their Eq. 6 instead: one hidden layer, the decoder has the encoder's weights
    transposed, no offset, no normalisation.

    Parameters
    ----------
    n_inputs : int
    hidden : sequence of int
        Widths of the encoder's layers; the last one is that of the code.
    random : Generator
        Draws the weights (Glorot and Bengio 2010).
    tied : bool
        Only with one hidden layer.

    Attributes
    ----------
    parameters : float64 array
        Weights, shape (n_in, n_out), and offset of every layer in turn, flat; the weights alone where tied. Training
        changes it in place.
    """

    def __init__(self, n_inputs: int, hidden: Sequence[int], random: np.random.Generator, *, tied: bool = False):
        sizes = list(pairwise([n_inputs, *hidden, *reversed(hidden[:-1]), n_inputs]))
        drawn = [_drawn(n_in, n_out, random, with_offset=not tied) for n_in, n_out in (sizes[:1] if tied else sizes)]
        self.parameters: Matrix = np.concatenate([block.ravel() for block in drawn])
        parts = np.split(self.parameters, np.cumsum([block.size for block in drawn])[:-1])
        views = [part.reshape(block.shape) for part, block in zip(parts, drawn, strict=True)]
        if tied:
            layers = [Layer(views[0], None, False), Layer(views[0].T, None, False)]
        else:
            layers = [Layer(view[:-1], view[-1], normalised=view is not views[-1]) for view in views]
        self._tied, self._encoder, self._decoder = tied, layers[: len(hidden)], layers[len(hidden) :]

    def __repr__(self) -> str:
        """Show the size."""
        return f"Autoencoder({self.parameters.size} parameters)"

    def encode(self, x: Matrix) -> Matrix:
        """Return codes, shape (n, hidden[-1])."""
        return _through(self._encoder, x)[0]

    def decode(self, code: Matrix) -> tuple[Matrix, Callable[[Matrix], Matrix]]:
        """Return reconstructions, and what turns a gradient of them into that of the codes."""
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


def _drawn(n_in: int, n_out: int, random: np.random.Generator, *, with_offset: bool) -> Matrix:
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
