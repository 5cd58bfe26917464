"""Private values: how many rows have them, and how many people they single out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.codes import Floats
from cfk_plugin.data.population import Population
from cfk_plugin.errors import InputError


@dataclass(frozen=True, slots=True)
class AttributeProfile:
    """How exposed people are by one private attribute alone.

    Shares are in [0, 1]; lower is better.
    """

    distinct: int  # values; a missing one counts as one
    below_k: float  # share of the people with a value that fewer than k people hold
    unique: float  # share with a value that nobody else holds


@dataclass(frozen=True, slots=True)
class PrivateProfile:
    """How exposed people are by their private attributes, before any protection.

    Shares as of `AttributeProfile`.
    """

    attributes: Mapping[str, AttributeProfile]
    unique: float  # share of the people whose combination of exact private values nobody else has
    k: int  # as asked for
    people: int


def private_profile(population: Population, k: int = 10) -> PrivateProfile:
    """Return how many people the private attributes of a population single out.

    unique = |{people p: nobody else has the private values x_pS}| / people. It describes the table,
    not a release, nor who knows which value.

    Parameters
    ----------
    population : Population
    k : int
        Number of people below which a value counts as rare.

    Returns
    -------
    PrivateProfile, counts and shares alone; a person with several rows counts by the rarest value

    Raises
    ------
    InputError
        If k is less than 1.
    """
    if k < 1:
        raise InputError("k must be at least 1")
    names = population.schema.private
    positions = [population.row_codes.names.index(name) for name in names]
    codes = population.coded_rows[:, positions]
    attributes = {}
    for j, name in enumerate(names):
        sizes = _class_sizes(codes[:, [j]], population)
        distinct = len(np.unique(codes[:, j]))
        attributes[name] = AttributeProfile(
            distinct, _share(sizes < k, population), _share(sizes == 1, population)
        )
    return PrivateProfile(
        attributes=MappingProxyType(attributes),
        unique=_share(_class_sizes(codes, population) == 1, population),
        k=k,
        people=population.n_people,
    )


def _class_sizes(codes: Floats, population: Population) -> NDArray[np.int64]:
    if not codes.shape[1]:
        return np.full(len(codes), population.n_people, dtype=np.int64)
    inverse = np.unique(codes, axis=0, return_inverse=True)[1].reshape(-1)
    if population.schema.subject is None:
        return np.asarray(np.bincount(inverse)[inverse], dtype=np.int64)
    order = np.argsort(inverse, kind="stable")
    classes = np.split(order, np.flatnonzero(np.diff(inverse[order])) + 1)
    return np.array([population.people(rows) for rows in classes], dtype=np.int64)[inverse]


def _share(rows: NDArray[np.bool_], population: Population) -> float:
    return population.people(np.flatnonzero(rows)) / population.n_people
