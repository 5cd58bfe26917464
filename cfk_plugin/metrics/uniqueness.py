"""Uniqueness of private values: how many people the attributes that are not generalised single out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cfk_plugin import bins
from cfk_plugin.errors import InputError
from cfk_plugin.private import PrivateValues

if TYPE_CHECKING:
    from cfk_plugin.domain import Domain
    from cfk_plugin.population import Population


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
    at = [bins.of(domain, float(number)) for number in domain.values]
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
