"""Private values: who carries exactly the ones that are released."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.population import Population


class PrivateValues:
    """Finds training rows with the same private values as a counterfactual; by codes, so dtypes do not matter."""

    def __init__(self, population: Population) -> None:
        self._population = population
        features = population.schema.features
        self._columns = [features.index(name) for name in population.schema.private]

    def matches(self, codes: NDArray[np.int32], rows: NDArray[np.int64]) -> tuple[int, int]:
        """Return how many of the rows, and how many of all rows, carry the private values of a counterfactual.

        Parameters
        ----------
        codes : int32 array, shape (n_features,)
            The counterfactual's coded features (`Population.encode`).
        rows : int array
            Positions of training rows.
        """
        mine = codes[self._columns]
        if (mine < 0).any():  # a value that no training row has
            return 0, 0
        same = self._of_rows == _hash(mine[None, :])[0]
        return int(same[rows].sum()), int(same.sum())

    @cached_property
    def _of_rows(self) -> NDArray[np.uint64]:
        return _hash(self._population.encode(self._population.frame)[0][:, self._columns])


def _hash(codes: NDArray[np.int32]) -> NDArray[np.uint64]:
    """Return one 64-bit hash per row of codes: a chain of SplitMix64 finalisers."""
    total = np.zeros(len(codes), dtype=np.uint64)
    for column in codes.T:
        x = total + column.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        total = x ^ (x >> np.uint64(31))
    return total
