"""Adam, the optimiser of the autoencoder's weights and of the search for a counterfactual."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8  # the values of its authors


class Adam:
    """Change an array in place along its gradients (Kingma and Ba 2015).

    Parameters
    ----------
    array : float64 array
        What is optimised; changed in place.
    rate : float
        Step size.
    """

    def __init__(self, array: NDArray[np.float64], rate: float) -> None:
        self._array, self._rate, self._steps = array, rate, 0
        self._mean, self._square = np.zeros_like(array), np.zeros_like(array)

    def step(self, gradient: NDArray[np.float64]) -> None:
        """Take one step down."""
        self._steps += 1
        scale = self._rate * np.sqrt(1 - _SECOND**self._steps) / (1 - _FIRST**self._steps)
        self._mean += (1 - _FIRST) * (gradient - self._mean)
        self._square += (1 - _SECOND) * (gradient**2 - self._square)
        self._array -= scale * self._mean / (np.sqrt(self._square) + _TINY)
