"""Private values: who in the population holds what is released of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import isnan

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.population import Population

Span = tuple[int, int]
"""Codes of one attribute: the first one, and the first one after them."""

_CLOSE = 0.05  # numbers this close, as a share of the attribute's range, tell the same
_SLACK = 1e-9  # of the range, for numbers that are just as close


class PrivateValues:
    """Counts the rows and people that hold private values of a counterfactual; by codes, so dtypes do not matter.

    Parameters
    ----------
    population : Population
    """

    def __init__(self, population: Population) -> None:
        self._population = population
        features = population.schema.features
        self._columns = [features.index(name) for name in population.schema.private]
        self._held: dict[tuple[int, Span], int] = {}

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"PrivateValues({self._population.n_rows} rows, {len(self._columns)} attributes)"

    def matches(
        self, codes: NDArray[np.int32], rows: NDArray[np.int64], spans: Mapping[int, Span | None] | None = None
    ) -> tuple[int, int]:
        """Return how many of the rows, and how many of all rows, fit what is released of the private values.

        Parameters
        ----------
        codes : int32 array, shape (n_features,)
            The counterfactual's coded features (`Population.encode`).
        rows : int array
            Positions of training rows.
        spans : mapping, optional
            Positions in the schema's private attributes that are not released exactly, with the codes that are
            released; None for an attribute that is withheld, which every row fits.
        """
        mine = codes[self._columns]
        coarse = spans or {}
        if any(code < 0 for j, code in enumerate(mine) if j not in coarse):  # a value that no training row has
            return 0, 0
        if not coarse:
            same = self._of_rows == _hash(mine[None, :])[0]
        else:
            same = np.ones(self._population.n_rows, dtype=bool)
            for j, code in enumerate(mine.tolist()):
                span = coarse.get(j, (code, code + 1))
                if span is not None:
                    same &= self._inside(j, span)
        return int(same[rows].sum()), int(same.sum())

    def close(self, j: int, code: int, number: float) -> Span:
        """Return the codes that tell the same as one value: numbers within 5 % of the range, else the value itself."""
        domain = self._population.domains[self._population.schema.private[j]]
        if domain.attribute.kind != "numeric" or isnan(number) or not len(domain.values):
            return code, code + 1
        reach = (_CLOSE + _SLACK) * float(domain.values[-1] - domain.values[0])
        first = np.searchsorted(domain.values, number - reach, side="left")
        return int(first), int(np.searchsorted(domain.values, number + reach, side="right"))

    def people(self, j: int, span: Span, rows: NDArray[np.int64] | None = None) -> int:
        """Return how many people, of all or of some rows, hold one of the codes of a private attribute."""
        if rows is not None:
            return self._population.people(rows[self._inside(j, span, rows)])
        if (j, span) not in self._held:
            self._held[j, span] = self._population.people(np.flatnonzero(self._inside(j, span)))
        return self._held[j, span]

    @cached_property
    def codes(self) -> NDArray[np.int32]:
        """Codes of the private attributes of every row, shape (n_rows, n_private), stored by column."""
        population, names = self._population, self._population.schema.private
        codes = np.empty((population.n_rows, len(names)), dtype=np.int32, order="F")
        for j, name in enumerate(names):
            codes[:, j] = population.domains[name].encode(population.column(name))[0]
        return codes

    def _inside(self, j: int, span: Span, rows: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
        column = self.codes[:, j] if rows is None else self.codes[rows, j]
        return (column >= span[0]) & (column < span[1])

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
