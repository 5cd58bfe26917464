"""Matching: which counterfactuals equal a training row, through dtypes, spelling and rounding."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cfk_plugin.domain import UNKNOWN, Domain

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from cfk_plugin.population import Population

_DECIMALS = 10  # beyond, a column counts as unrounded
_SINGLE = 2.0**-22  # numbers that went through float32 come back this close
_CAP = 0.01  # rounding tolerance, as a share of the range
_REMEMBERED = 8  # sorted keys of column sets that were asked for


class RowMatcher:
    """Finds training rows that equal given rows on all features or on the quasi-identifiers. Host side only.

    Parameters
    ----------
    population : Population
    """

    def __init__(self, population: Population) -> None:
        self._population = population
        self._names = population.schema.features
        self._sorted: dict[tuple[int, ...], tuple[NDArray[np.uint64], NDArray[np.int64]]] = {}

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"RowMatcher({self._population.n_rows} rows, {len(self._names)} features)"

    @cached_property
    def codes(self) -> NDArray[np.int32]:
        """Codes of every feature of every training row, shape (n_rows, n_features), stored by column."""
        codes = np.empty((self._population.n_rows, len(self._names)), dtype=np.int32, order="F")
        for j, name in enumerate(self._names):
            codes[:, j] = self._population.domains[name].encode(self._population.frame[name])[0]
        return codes

    def native(self, frame: pd.DataFrame) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Say of every row whether it equals a training row, and whether it does on the quasi-identifiers."""
        ranges = [self._range(frame[name], self._population.domains[name], j) for j, name in enumerate(self._names)]
        low = np.column_stack([r[0] for r in ranges])
        high = np.column_stack([r[1] for r in ranges])
        quasi = [j for j, name in enumerate(self._names) if name in self._population.schema.quasi_identifiers]
        on_quasi = self._match(low, high, quasi)
        everywhere = np.zeros(len(frame), dtype=bool)
        some = np.flatnonzero(on_quasi)
        everywhere[some] = self._match(low[some], high[some], list(range(len(self._names))))
        return everywhere, on_quasi

    def _range(self, column: pd.Series, domain: Domain, at: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return first and last code that each value may stand for; first > last when there is none."""
        codes, numbers = domain.encode(column)
        low, high = codes.copy(), np.where(codes < 0, UNKNOWN - 1, codes).astype(np.int32)
        if domain.attribute.kind == "numeric" and len(domain.values):
            known = np.isfinite(numbers)
            within = self._tolerance(numbers[known], domain, at)
            first = np.searchsorted(domain.values, numbers[known] - within, side="left")
            last = np.searchsorted(domain.values, numbers[known] + within, side="right") - 1
            exact = codes[known] >= 0
            low[known] = np.where(exact, np.minimum(first, codes[known]), first)
            high[known] = np.where(exact, np.maximum(last, codes[known]), last)
        return low, high

    def _tolerance(self, numbers: NDArray[np.float64], domain: Domain, at: int) -> NDArray[np.float64]:
        if domain.is_date:
            return np.zeros(len(numbers))
        decimals = _decimals(numbers)
        rounding = 0.5 * 10.0**-decimals if decimals < self._decimals[at] else 0.0
        width = float(domain.values[-1] - domain.values[0])
        within = np.maximum(rounding * (1 + 1e-9), np.abs(numbers) * _SINGLE)
        return np.asarray(np.minimum(within, _CAP * width), dtype=np.float64)

    @cached_property
    def _decimals(self) -> list[int]:
        domains = [self._population.domains[name] for name in self._names]
        return [_decimals(d.values) if d.attribute.kind == "numeric" else 0 for d in domains]

    def _match(self, low: NDArray[np.int32], high: NDArray[np.int32], columns: list[int]) -> NDArray[np.bool_]:
        """Look up the columns whose codes are certain; compare the others among the rows that are left."""
        possible = (low[:, columns] <= high[:, columns]).all(axis=1) & (low[:, columns] >= 0).all(axis=1)
        found = np.zeros(len(low), dtype=bool)
        asked = np.flatnonzero(possible)
        if not len(asked):
            return found
        vague = [j for j in columns if (low[asked, j] < high[asked, j]).any()]
        certain = tuple(j for j in columns if j not in vague)
        keys, order = self._keys(certain)
        wanted = _hash(low[asked], certain)
        start, stop = np.searchsorted(keys, wanted, side="left"), np.searchsorted(keys, wanted, side="right")
        for i, first, last in zip(asked, start, stop, strict=True):
            rows = order[first:last]
            for j in vague if len(rows) else ():
                codes = self.codes[rows, j]
                rows = rows[(codes >= low[i, j]) & (codes <= high[i, j])]
            found[i] = len(rows) > 0
        return found

    def _keys(self, columns: tuple[int, ...]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        if columns not in self._sorted:
            if len(self._sorted) >= _REMEMBERED:
                self._sorted.clear()
            keys = _hash(self.codes, columns)
            order = np.argsort(keys, kind="stable")
            self._sorted[columns] = keys[order], order
        return self._sorted[columns]


def distinct_rows(codes: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first position of every distinct row, and how often it occurs."""
    _, first, counts = np.unique(_hash(codes, tuple(range(codes.shape[1]))), return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], counts[order]


def _hash(codes: NDArray[np.int32], columns: tuple[int, ...]) -> NDArray[np.uint64]:
    """Mix the codes of some columns into 64 bits; equal rows alike, different ones almost surely not."""
    key = np.zeros(len(codes), dtype=np.uint64)
    for j in columns:
        key = (key ^ codes[:, j].astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return key


def _decimals(numbers: NDArray[np.float64]) -> int:
    """Return the least number of decimals that all numbers have."""
    slack = 1e-12 * np.maximum(np.abs(numbers), 1.0)
    for decimals in range(_DECIMALS):
        rest = np.abs(numbers - np.round(numbers, decimals))
        if bool((rest <= np.maximum(slack, np.abs(numbers) * _SINGLE / 4)).all()):
            return decimals
    return _DECIMALS
