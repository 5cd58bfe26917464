"""Private values: how many rows have them, and how many people they single out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.domain import mix
from cfk_plugin.data.population import Population
from cfk_plugin.errors import HostOnly, InputError


class PrivateValues(HostOnly):
    """Counts the rows that have the private values of a counterfactual; by codes, so dtypes do not
    matter.
    """

    def __init__(self, population: Population) -> None:
        schema = population.schema
        self._population, self._names = population, schema.private
        self._at = [schema.features.index(name) for name in schema.private]

    def _counts(self) -> str:
        return f"{self._population.n_rows} rows, {len(self._names)} attributes"

    def exact_matches(
        self, codes: NDArray[np.int32], rows: Sequence[NDArray[np.int64]], of: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return for many how many of ``rows[of[i]]``, and of all rows, have the same private
        values; shape (n, 2).
        """
        (line, mixed), mine = self._sorted, codes[:, self._at]
        key = mix(mine)
        first, last = (
            np.searchsorted(mixed, key, side="left"),
            np.searchsorted(mixed, key, side="right"),
        )
        # nobody has a value that no training row has
        size = np.where((mine < 0).any(axis=1), 0, last - first)
        which = np.repeat(np.arange(len(mine)), size)
        found = line[np.arange(len(which)) + np.repeat(first - np.cumsum(size) + size, size)]
        same = (self._population.codes[np.ix_(found, self._at)] == mine[which]).all(axis=1)
        which, found = which[same], found[same]
        inside, order = np.zeros(len(which), dtype=bool), np.argsort(of[which], kind="stable")
        for some in (
            np.split(order, np.flatnonzero(np.diff(of[which][order])) + 1) if len(which) else ()
        ):
            inside[some] = np.isin(found[some], rows[of[which[some[0]]]])
        return np.column_stack(
            [
                np.bincount(which[inside], minlength=len(mine)),
                np.bincount(which, minlength=len(mine)),
            ]
        )

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """All rows by their private values, mixed into a number each, and these numbers."""
        mixed = mix(self._population.codes[:, self._at])
        line = np.argsort(mixed, kind="stable")
        return line, mixed[line]


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
    codes = population.codes[:, [population.schema.features.index(name) for name in names]]
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


def _class_sizes(codes: NDArray[np.int32], population: Population) -> NDArray[np.int64]:
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
