"""Records: which training row a counterfactual is, whatever else is asked in the same batch."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from cfk_plugin.domain import UNKNOWN
from cfk_plugin.errors import PopulationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.population import Population

_SINGLE = 2.0**-22  # numbers that went through float32 come back this close


class Records:
    """Finds training rows by their codes. Host side only; refuses to be pickled.

    Unlike detection, which also sees through rounding by looking at a whole batch, the answer for one counterfactual
    depends on that counterfactual alone.

    Parameters
    ----------
    population : Population
    """

    def __init__(self, population: Population) -> None:
        self._population = population

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Records({self._population.n_rows} rows)"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold every training row."""
        raise PopulationError("an index of training rows refuses to be pickled; rebuild it instead")

    @cached_property
    def codes(self) -> NDArray[np.int32]:
        """Codes of every feature of every training row, shape (n_rows, n_features)."""
        return self._population.encode(self._population.frame)[0]

    def find(self, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the first training row that equals each counterfactual on every feature, -1 where none does.

        Parameters
        ----------
        codes, numbers : arrays, shape (n, n_features)
            The counterfactuals, coded (`Population.encode`). A number that is off by no more than single precision
            counts as equal.
        """
        wanted = self._single_precision(codes, numbers)
        rows = np.full(len(wanted), -1, dtype=np.int64)
        possible = np.flatnonzero((wanted >= 0).all(axis=1))
        keys, order = self._keys
        at = np.searchsorted(keys, _hash(wanted[possible]))
        inside = at < len(keys)
        candidate = order[at.clip(max=len(keys) - 1)]
        same = inside & (self.codes[candidate] == wanted[possible]).all(axis=1)
        rows[possible[same]] = candidate[same]
        return rows

    def units(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give rows numbers, so that equal rows have the same number."""
        return np.unique(self.codes[rows], axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)

    def _single_precision(self, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> NDArray[np.int32]:
        wanted = codes.copy()
        for j, name in enumerate(self._population.schema.features):
            domain = self._population.domains[name]
            open_ = np.flatnonzero((codes[:, j] == UNKNOWN) & np.isfinite(numbers[:, j]))
            if domain.attribute.kind != "numeric" or domain.is_date or not len(open_) or not len(domain.values):
                continue
            number = numbers[open_, j]
            right = np.searchsorted(domain.values, number).clip(max=len(domain.values) - 1)
            left = (right - 1).clip(min=0)
            nearer = np.abs(domain.values[left] - number) < np.abs(domain.values[right] - number)
            nearest = np.where(nearer, left, right)
            close = np.abs(domain.values[nearest] - number) <= np.abs(number) * _SINGLE
            wanted[open_[close], j] = nearest[close]
        return wanted

    @cached_property
    def _keys(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        keys = _hash(self.codes)
        order = np.argsort(keys, kind="stable")
        return keys[order], order


def _hash(codes: NDArray[np.int32]) -> NDArray[np.uint64]:
    """Mix codes into 64 bits; equal rows alike, different ones almost surely not."""
    key = np.zeros(len(codes), dtype=np.uint64)
    for column in codes.T:
        key = (key ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return key
