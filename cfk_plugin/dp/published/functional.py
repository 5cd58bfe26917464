"""The functional mechanism as DPC uses it: training on a loss with noisy coefficients. It protects nobody.

The published argument (Yang et al. 2022, 4.1) writes the loss as a polynomial and adds Laplace noise to its
coefficients. Its basis, however, is the network's own output at each row, so the coefficients are not all that training
sees: it goes on reading the rows as they are. The sensitivity of Eq. 13 counts hidden units where the sum runs over
inputs. Numpy's noise is good enough for a mechanism without a guarantee; nothing else may use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cfk_plugin.dp.published.autoencoder import Autoencoder, Matrix
from cfk_plugin.gradients import Adam


def claimed_sensitivity(hidden: Sequence[int]) -> float:
    """Return Eq. 13, 4 (K + 1), with K the largest number of units of a hidden layer (5.1.1)."""
    return 4.0 * (max(hidden) + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Perturbation:
    """Noise on the coefficients of the loss (Eq. 11), as it is read here.

    The reconstruction loss, summed over N rows, is a polynomial of degree 2 in the outputs x̂ (Eq. 8 and 12).
    Algorithm 1 perturbs the coefficient of every monomial: of each x̂_p, and of each product x̂_p x̂_q, p <= q, also
    where p and q differ and the loss has none of it. Each gets one draw of Laplace noise, once before training. A drawn
    coefficient belongs to the table and not to a row, so it multiplies the mean over the rows. What trains is this loss
    divided by N:

    mean ‖x - x̂‖² + mean (linear · x̂ + x̂ᵀ quadratic x̂) / N

    The constant sum x² does not depend on the weights, so its noise changes nothing and is left out.

    Attributes
    ----------
    linear : float64 array, shape (n_inputs,)
    quadratic : float64 array, shape (n_inputs, n_inputs)
        Upper triangular, so that each product is there once.
    """

    linear: Matrix
    quadratic: Matrix

    @classmethod
    def drawn(cls, n_inputs: int, hidden: Sequence[int], epsilon: float, random: np.random.Generator) -> Perturbation:
        """Draw noise of scale 4 (K + 1) / epsilon; none for an infinite epsilon."""
        scale = claimed_sensitivity(hidden) / epsilon
        quadratic = np.zeros((n_inputs, n_inputs))
        quadratic[np.triu_indices(n_inputs)] = random.laplace(0, scale, n_inputs * (n_inputs + 1) // 2)
        return cls(random.laplace(0, scale, n_inputs), quadratic)


def loss_and_gradients(
    net: Autoencoder, x: Matrix, counts: Matrix, perturbation: Perturbation, n: float
) -> tuple[float, Matrix]:
    """Return the perturbed loss of a batch, and its gradient by the net's parameters.

    Parameters
    ----------
    net : Autoencoder
    x : array, shape (batch, n_inputs)
    counts : array, shape (batch,)
        How many rows of the table each of them stands for.
    perturbation : Perturbation
    n : float
        Number of rows of the whole table.
    """
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
    *,
    random: np.random.Generator,
    epochs: int = 300,
    batch_size: int | None = 128,
    rate: float = 1e-3,
) -> None:
    """Train a net in place on the perturbed loss (Algorithm 1).

    Parameters
    ----------
    net : Autoencoder
    rows : array, shape (n_distinct, n_inputs)
    counts : array, shape (n_distinct,)
        How many rows of the table each row stands for: 20,000 rows of which 50 are distinct train as fast as 50.
    perturbation : Perturbation
    random : Generator
        Shuffles the rows.
    epochs : int
    batch_size : int, optional
        Rows of a step; None for all of them, with which counts and repeated rows give the same result.
    rate : float
        Step size of Adam.
    """
    n, size = float(counts.sum()), batch_size or len(rows)
    adam = Adam(net.parameters, rate)
    for _ in range(epochs):
        order = random.permutation(len(rows))
        for start in range(0, len(rows), size):
            batch = order[start : start + size]
            adam.step(loss_and_gradients(net, rows[batch], counts[batch], perturbation, n)[1])
