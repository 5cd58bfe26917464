"""Private values: how many people the attributes that are not generalised single out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isnan
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.domain import bin_of
from cfk_plugin.data.population import Population, mix
from cfk_plugin.errors import InputError

if TYPE_CHECKING:
    from cfk_plugin.data.domain import Domain


# Private values: who in the population holds what is released of them.

Span = tuple[int, int]
"""Codes of one attribute: the first one, and the first one after them."""

_CLOSE = 0.05  # numbers this close, as a share of the attribute's range, tell the same
_SLACK = 1e-9  # of the range, for numbers that are just as close


class PrivateValues:
    """Counts the rows and people that hold private values of a counterfactual; by codes, so dtypes do not matter."""

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
        """Return how many of the rows, and how many of all rows, fit what is released of the private values."""
        mine = codes[self._columns]
        coarse = spans or {}
        if any(code < 0 for j, code in enumerate(mine) if j not in coarse):  # a value that no training row has
            return 0, 0
        if not coarse:
            same = self._of_rows == mix(mine[None, :])[0]
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

    @property
    def codes(self) -> NDArray[np.int32]:
        """Codes of the private attributes of every row, shape (n_rows, n_private)."""
        return self._population.codes[:, self._columns]

    def _inside(self, j: int, span: Span, rows: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
        column = self._population.codes[:, self._columns[j]]
        column = column if rows is None else column[rows]
        return (column >= span[0]) & (column < span[1])

    @cached_property
    def _of_rows(self) -> NDArray[np.uint64]:
        return mix(self.codes)


# Uniqueness of private values: how many people the attributes that are not generalised single out.


@dataclass(frozen=True, slots=True)
class AttributeProfile:
    """How exposed people are by one private attribute alone. Shares are in [0, 1]; lower is better.

    Attributes
    ----------
    distinct : int
        Number of distinct values; a missing value counts as one.
    below_k : float
        Share of the people with a value that fewer than k people hold.
    unique : float
        Share of the people with a value that nobody else holds.
    """

    distinct: int
    below_k: float
    unique: float


@dataclass(frozen=True, slots=True)
class PrivateProfile:
    """How exposed people are by their private attributes, before any protection. Lower shares are better.

    Attributes
    ----------
    attributes : mapping
        Private attribute to `AttributeProfile`.
    unique : float
        Share of the people whose combination of exact private values nobody else has.
    unique_binned : float
        The same with numbers as their declared bins; equal to `unique` where none are declared.
    k : int
        The k asked for.
    people : int
        Number of people.
    """

    attributes: Mapping[str, AttributeProfile]
    unique: float
    unique_binned: float
    k: int
    people: int


def private_profile(population: Population, k: int = 10) -> PrivateProfile:
    """Return how many people the private attributes of a population single out.

    Parameters
    ----------
    population : Population
    k : int
        Number of people below which a value counts as rare.

    Returns
    -------
    PrivateProfile
        Counts and shares alone. A person with several rows counts by the rarest value they have.

    Raises
    ------
    InputError
        If k is less than 1.

    Notes
    -----
    unique = |{people p: nobody else has the private values x_pS}| / people. With bins, a number stands for its bin and
    one outside of all bins for nothing. It describes the table, not a release; and it does not say who knows which
    private value.
    """
    if k < 1:
        raise InputError("k must be at least 1")
    names, codes = population.schema.private, PrivateValues(population).codes
    binned = codes.copy()
    for j, name in enumerate(names):
        domain = population.domains[name]
        binned[:, j] = _bins(domain)[codes[:, j]] if domain.attribute.bins is not None else codes[:, j]
    attributes = {}
    for j, name in enumerate(names):
        sizes = _class_sizes(codes[:, [j]], population)
        distinct = len(np.unique(codes[:, j]))
        attributes[name] = AttributeProfile(distinct, _share(sizes < k, population), _share(sizes == 1, population))
    return PrivateProfile(
        attributes=MappingProxyType(attributes),
        unique=_share(_class_sizes(codes, population) == 1, population),
        unique_binned=_share(_class_sizes(binned, population) == 1, population),
        k=k,
        people=population.n_people,
    )


def _bins(domain: Domain) -> NDArray[np.int32]:
    """Return the bin of every code: -1 outside of all, -2 for a missing value."""
    at = [bin_of(domain, float(number)) for number in domain.values]
    return np.array([*(-1 if which is None else which for which in at), *([-2] * domain.has_missing)], dtype=np.int32)


def _class_sizes(codes: NDArray[np.int32], population: Population) -> NDArray[np.int64]:
    """Return for every row how many people have its codes."""
    if not codes.shape[1]:
        return np.full(len(codes), population.n_people, dtype=np.int64)
    inverse = np.unique(codes, axis=0, return_inverse=True)[1].reshape(-1)
    if population.schema.subject is None:
        return np.asarray(np.bincount(inverse)[inverse], dtype=np.int64)
    order = np.argsort(inverse, kind="stable")
    classes = np.split(order, np.flatnonzero(np.diff(inverse[order])) + 1)
    return np.array([population.people(rows) for rows in classes], dtype=np.int64)[inverse]


def _share(rows: NDArray[np.bool_], population: Population) -> float:
    """Return the share of the people that have one of the rows."""
    return population.people(np.flatnonzero(rows)) / population.n_people
