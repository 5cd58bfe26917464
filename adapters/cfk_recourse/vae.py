"""A small variational autoencoder of mixed rows, trained in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_softmax, softmax

from cfk_recourse.gradients import Adam, Layer, propagate
from cfk_recourse.slopes import Vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_recourse.encoding import Encoding, Points

    Matrix = NDArray[np.float64]

_SPREAD = 0.5  # of a number around its decoded mean, in its own standard deviations


class Vae:
    """An encoder and a decoder with one hidden layer each, and a normal latent code (Kingma and
    Welling 2014).

    Rows are vectors: standardised numbers, then a one-hot block for each categorical column. The
    decoder gives the mean of a number and the probabilities of categories. The loss is the negative
    evidence lower bound: squared errors over twice a fixed variance, cross entropies, and the
    divergence of the code from the standard normal distribution.

    Parameters
    ----------
    n_numbers : int
    sizes : sequence of int
        Sizes of the one-hot blocks.
    latent, hidden : int
        Dimensions of the code; units of each hidden layer.
    random : Generator
        Draws the weights.

    Attributes
    ----------
    parameters : float64 array
        All weights and offsets, flat; training changes it in place.
    """

    def __init__(
        self,
        n_numbers: int,
        sizes: Sequence[int],
        latent: int,
        hidden: int,
        random: np.random.Generator,
    ):
        stops = n_numbers + np.cumsum(sizes, dtype=int)
        self._blocks = [
            (int(stop) - size, int(stop)) for size, stop in zip(sizes, stops, strict=True)
        ]
        self._n, self._latent, n_inputs = n_numbers, latent, n_numbers + sum(sizes)
        layers = [(n_inputs, hidden), (hidden, 2 * latent), (latent, hidden), (hidden, n_inputs)]
        drawn = [
            np.vstack([random.normal(0, np.sqrt(1 / a), (a, b)), np.zeros(b)]) for a, b in layers
        ]
        self.parameters: Matrix = np.concatenate([layer.ravel() for layer in drawn])
        parts = np.split(self.parameters, np.cumsum([layer.size for layer in drawn])[:-1])
        views = [part.reshape(layer.shape) for part, layer in zip(parts, drawn, strict=True)]
        activations = ("tanh", "identity", "tanh", "identity")
        network = [
            Layer(view[:-1], view[-1], name) for view, name in zip(views, activations, strict=True)
        ]
        self._encoder, self._decoder = network[:2], network[2:]

    def __repr__(self) -> str:
        """Show the size."""
        return f"Vae({self.parameters.size} parameters)"

    def encode(self, x: Matrix) -> Matrix:
        """Return the means of the codes, shape (n, latent)."""
        return propagate(self._encoder, x)[0][:, : self._latent]

    def decode(self, code: Matrix) -> tuple[Matrix, Callable[[Matrix], Matrix]]:
        """Return means of numbers and probabilities of categories, shape (n, n_inputs), and the
        backward pass.
        """
        out, through = propagate(self._decoder, code)
        for start, stop in self._blocks:
            out[:, start:stop] = softmax(out[:, start:stop], axis=1)

        def backward(gradient: Matrix) -> Matrix:
            slope = gradient.copy()
            for start, stop in self._blocks:
                chance, part = out[:, start:stop], gradient[:, start:stop]
                slope[:, start:stop] = chance * (part - (chance * part).sum(axis=1, keepdims=True))
            return through(slope)[0]

        return out, backward

    def loss_and_gradient(self, x: Matrix, noise: Matrix) -> tuple[float, Matrix]:
        """Return the mean loss of some rows and its gradient by the parameters.

        Parameters
        ----------
        x : array, shape (n, n_inputs)
        noise : array, shape (n, latent)
            Standard normal: the differences of codes from their means, in standard deviations.
        """
        coded, encoder_back = propagate(self._encoder, x)
        mean, log_variance = coded[:, : self._latent], coded[:, self._latent :]
        deviation = np.exp(log_variance / 2)
        code = mean + deviation * noise
        decoded, decoder_back = propagate(self._decoder, code)
        loss, slope = self._reconstruction(x, decoded)
        loss += 0.5 * float((deviation**2 + mean**2 - 1 - log_variance).sum())
        of_code, of_decoder = decoder_back(slope)
        of_coded = np.hstack(
            [of_code + mean, 0.5 * (of_code * noise * deviation + deviation**2 - 1)]
        )
        of_layers = [*encoder_back(of_coded)[1], *of_decoder]
        parts = [
            np.vstack([inputs.T @ of_sums, of_sums.sum(axis=0)]).ravel()
            for inputs, of_sums in of_layers
        ]
        return loss / len(x), np.concatenate(parts) / len(x)

    def train(
        self, x: Matrix, random: np.random.Generator, *, steps: int, batch: int, rate: float
    ) -> None:
        """Take steps of Adam on batches drawn with replacement."""
        adam = Adam(self.parameters, rate)
        for _ in range(steps):
            rows = random.integers(0, len(x), min(batch, len(x)))
            adam.step(
                self.loss_and_gradient(x[rows], random.normal(size=(len(rows), self._latent)))[1]
            )

    def _reconstruction(self, x: Matrix, out: Matrix) -> tuple[float, Matrix]:
        """Return the reconstruction loss, summed over rows, and its gradient by the decoder's
        outputs.
        """
        slope = np.empty_like(out)
        slope[:, : self._n] = (out[:, : self._n] - x[:, : self._n]) / _SPREAD**2
        loss = 0.5 * _SPREAD**2 * float((slope[:, : self._n] ** 2).sum())
        for start, stop in self._blocks:
            log_chance, true = log_softmax(out[:, start:stop], axis=1), x[:, start:stop]
            loss -= float((true * log_chance).sum())
            slope[:, start:stop] = np.exp(log_chance) * true.sum(axis=1, keepdims=True) - true
        return loss, slope


class Latent:
    """An autoencoder trained on the rows of a table, from vectors in their own units to codes and
    back.

    Parameters
    ----------
    encoding : Encoding
    rows : Points
        The rows to learn.
    seed : int
    latent, hidden, steps, batch, rate
        See `Vae`.
    """

    def __init__(
        self,
        encoding: Encoding,
        rows: Points,
        seed: int,
        *,
        latent: int,
        hidden: int,
        steps: int,
        batch: int,
        rate: float,
    ) -> None:
        random, deviation = np.random.default_rng(seed), rows.numbers.std(axis=0)
        rest = sum(encoding.sizes)
        self._center = np.append(rows.numbers.mean(axis=0), np.zeros(rest))
        self._spread = np.append(np.where(deviation > 0, deviation, 1.0), np.ones(rest))
        self._vae = Vae(len(encoding.numeric), encoding.sizes, latent, hidden, random)
        self._vae.train(
            self._standardized(Vectors(encoding).of(rows)),
            random,
            steps=steps,
            batch=batch,
            rate=rate,
        )

    def __repr__(self) -> str:
        """Show the size."""
        return f"Latent({self._vae!r})"

    def encode(self, vectors: Matrix) -> Matrix:
        """Return the means of the codes, shape (n, latent)."""
        return self._vae.encode(self._standardized(vectors))

    def decode(self, codes: Matrix) -> tuple[Matrix, Callable[[Matrix], Matrix]]:
        """Return decoded vectors, and the backward pass of gradients to the codes."""
        decoded, backward = self._vae.decode(codes)
        return decoded * self._spread + self._center, lambda gradient: backward(
            gradient * self._spread
        )

    def _standardized(self, vectors: Matrix) -> Matrix:
        return np.asarray((vectors - self._center) / self._spread)
