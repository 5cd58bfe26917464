"""The search of DPC: from a class prototype, in the autoencoder's code, to a counterfactual of a query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.dp.published.autoencoder import Autoencoder, Matrix
from cfk_plugin.gradients import Adam

Gradient = Callable[[Matrix, NDArray[Any]], tuple[Matrix, Matrix]]
"""From encoded rows (n, n_inputs) and a target label for each to log-probabilities (n,) and their gradient by the
encoded rows (n, n_inputs)."""

_TINY = 1e-12  # where a norm is zero, so is its gradient here


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """The objective of Eq. 15 to 18 for n queries, and its minimisation over the perturbations of their prototypes.

    alpha · (-log f(target)) + beta · ‖counterfactual - query‖ + gamma · ‖perturbation‖, with the counterfactual
    decoded from prototype + perturbation.

    Attributes
    ----------
    net : Autoencoder
    gradient : callable
        Of the model that is explained, see `Gradient`.
    prototypes : array, shape (n, code width)
        Of the target class of each query.
    queries : array, shape (n, n_inputs)
        Encoded.
    targets : array, shape (n,)
        Labels.
    alpha, beta, gamma : float
    """

    net: Autoencoder
    gradient: Gradient
    prototypes: Matrix
    queries: Matrix
    targets: NDArray[Any]
    alpha: float = 1.0
    beta: float = 0.5
    gamma: float = 0.1

    def objective(self, delta: Matrix) -> tuple[Matrix, Matrix]:
        """Return the objective of every query, shape (n,), and its gradient by the perturbations."""
        found, back = self.net.decode(self.prototypes + delta)
        away = found - self.queries
        distance, length = (np.sqrt((part**2).sum(axis=1)) for part in (away, delta))
        log_probability, slope = self.gradient(found, self.targets)
        value = -self.alpha * log_probability + self.beta * distance + self.gamma * length
        of_found = -self.alpha * slope + self.beta * away / (distance + _TINY)[:, None]
        return value, back(of_found) + self.gamma * delta / (length + _TINY)[:, None]

    def run(self, start: Matrix, steps: int, rate: float) -> Matrix:
        """Minimise from some perturbations on with Adam; return encoded counterfactuals, shape (n, n_inputs)."""
        delta = start.copy()
        adam = Adam(delta, rate)
        for _ in range(steps):
            adam.step(self.objective(delta)[1])
        return self.net.decode(self.prototypes + delta)[0]
