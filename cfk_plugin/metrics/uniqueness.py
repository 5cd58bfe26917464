"""Private values: how many people they single out, and which may leave with a region."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isnan
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.domain import Domain, bin_codes, bin_of, bin_part, mix
from cfk_plugin.data.policy import MIN_LIFT, PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval
from cfk_plugin.errors import HostOnly, InputError, PolicyError

Span = tuple[int, int]
"""A range of codes of one attribute: the first one, and the first one after the range."""

_CLOSE = 0.05  # numbers this close, as a share of the attribute's range, disclose the same
_SLACK = 1e-9  # of the range, for numbers that are just as close


class PrivateValues(HostOnly):
    """Counts rows and people that hold private values of a counterfactual; by codes, so dtypes do
    not matter.
    """

    def __init__(self, population: Population) -> None:
        schema = population.schema
        self._population, self._names = population, schema.private
        self._domains = [population.domains[name] for name in schema.private]
        self._at = [schema.features.index(name) for name in schema.private]
        self._held: dict[tuple[int, Span], int] = {}

    def _counts(self) -> str:
        return f"{self._population.n_rows} rows, {len(self._names)} attributes"

    def matches(
        self, codes: NDArray[np.int32], rows: NDArray[np.int64], spans: Mapping[int, Span | None]
    ) -> tuple[int, int]:
        """Return how many of the rows, and of all rows, fit what is released; a span of None fits
        everything.
        """
        same = np.ones(self._population.n_rows, dtype=bool)
        for j, code in enumerate(codes[self._at].tolist()):
            if (span := spans.get(j, (code, code + 1))) is not None:
                same &= _within(self._column(j), span)
        return int(same[rows].sum()), int(same.sum())

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

    def close(self, j: int, code: int, number: float) -> Span:
        """Return the codes that disclose the same as a value: numbers within 5 % of the range, else
        its own.
        """
        values = self._domains[j].values
        if self._domains[j].attribute.kind != "numeric" or isnan(number) or not len(values):
            return code, code + 1
        reach = (_CLOSE + _SLACK) * float(values[-1] - values[0])
        first = np.searchsorted(values, number - reach, side="left")
        return int(first), int(np.searchsorted(values, number + reach, side="right"))

    def people(self, j: int, span: Span, rows: NDArray[np.int64] | None = None) -> int:
        """Return how many people, of all or of some rows, hold one of the codes of a private
        attribute.
        """
        if rows is not None:
            return self._population.people(rows[_within(self._column(j)[rows], span)])
        if (j, span) not in self._held:
            self._held[j, span] = self._population.people(
                np.flatnonzero(_within(self._column(j), span))
            )
        return self._held[j, span]

    def _column(self, j: int) -> NDArray[np.int32]:
        return self._population.codes[:, self._at[j]]

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """All rows by their private values, mixed into a number each, and these numbers."""
        mixed = mix(self._population.codes[:, self._at])
        line = np.argsort(mixed, kind="stable")
        return line, mixed[line]


def _within(codes: NDArray[np.int32], span: Span) -> NDArray[np.bool_]:
    return (codes >= span[0]) & (codes < span[1])


Coarse = Mapping[str, tuple[Interval | None, Span | None]]
"""Private attributes that are not released exactly: the declared bin and its codes, or (None, None)
if withheld.
"""


@dataclass(frozen=True, slots=True)
class PrivatePart:
    """What leaves of one counterfactual's private attributes, in codes and counts."""

    binned: tuple[str, ...] = ()  # released as their bin
    withheld: tuple[str, ...] = ()  # nothing of them is released
    # Codes that each private attribute stands for, the counterfactual's own among them
    # (``domain.size`` where no row has it). Empty when all are released exactly: then combinations
    # are those of the region alone.
    axes: tuple[NDArray[np.int32], ...] = ()
    # rows that fit it, in the region and anywhere; see `exact_matches` for all
    matches: tuple[int, int] | None = None


class PrivateRelease(PrivateValues):
    """Decides which private attributes of a counterfactual may leave with a region, by rarity, then
    homogeneity.
    """

    def __init__(self, population: Population, policy: PrivacyPolicy) -> None:
        super().__init__(population)
        self._policy = policy
        if policy.private_values == "bins" and all(
            domain.attribute.bins is None for domain in self._domains
        ):
            raise PolicyError(
                'private_values="bins" needs bins in the schema; declare them with `bins=`'
            )
        self.is_exact = (
            policy.private_values != "bins"
            and policy.rare_values == "release"
            and policy.alpha is None
        )
        if not self.is_exact:
            population.require_rows(
                PolicyError(
                    "bins, rare values and alpha are judged by private values, which a sealed"
                    " population does not have"
                )
            )

    def decide(
        self, codes: NDArray[np.int32], numbers: NDArray[np.float64], rows: NDArray[np.int64]
    ) -> Coarse:
        """Return the form of each private attribute that is not released as it is: the finest one
        that the policy allows.
        """
        policy, coarse = self._policy, dict[str, tuple[Interval | None, Span | None]]()
        for j, name in enumerate(() if self.is_exact else self._names):
            forms = self._forms(j, int(codes[self._at[j]]), float(numbers[self._at[j]]))
            is_rare = (
                policy.rare_values == "withhold"
                and bool(forms)
                and self.people(j, forms[0][1]) < policy.k
            )
            chosen: tuple[Interval | None, Span | None] = None, None
            for part, span, alike in () if is_rare else forms:
                if not self._homogeneous(j, alike, rows):
                    chosen = part, span
                    break
            if chosen[0] is not None or chosen[1] is None:
                coarse[name] = chosen
        return coarse

    def part(
        self,
        codes: NDArray[np.int32],
        numbers: NDArray[np.float64],
        rows: NDArray[np.int64],
        alike: NDArray[np.int64],
    ) -> PrivatePart:
        """Decide for the rows `alike`, and count among the `rows` inside the region."""
        coarse = self.decide(codes, numbers, alike)
        if not coarse:
            return PrivatePart()
        spans = {self._names.index(name): span for name, (_, span) in coarse.items()}
        return PrivatePart(
            tuple(name for name, (part, _) in coarse.items() if part is not None),
            tuple(name for name, (part, _) in coarse.items() if part is None),
            tuple(self._axis(j, int(codes[at]), spans) for j, at in enumerate(self._at)),
            self.matches(codes, rows, spans),
        )

    def axes(
        self,
        codes: NDArray[np.int32],
        numbers: NDArray[np.float64],
        binned: Collection[str],
        withheld: Collection[str],
    ) -> tuple[NDArray[np.int32], ...]:
        """Return the codes that each private attribute stands for, by the form that it is released
        in.
        """
        spans: dict[int, Span | None] = {}
        for j, name in enumerate(self._names):
            at, domain = self._at[j], self._domains[j]
            if name in binned:
                which = bin_of(domain, number_of(domain, int(codes[at]), float(numbers[at])))
                spans[j] = None if which is None else bin_codes(domain, which)
            elif name in withheld:
                spans[j] = None
        return tuple(self._axis(j, int(codes[at]), spans) for j, at in enumerate(self._at))

    def _axis(self, j: int, code: int, spans: Mapping[int, Span | None]) -> NDArray[np.int32]:
        own = code if code >= 0 else self._domains[j].size
        first, last = spans.get(j, (own, own + 1)) or (0, self._domains[j].size)
        axis = np.arange(first, last, dtype=np.int32)
        return axis if first <= own < last else np.append(axis, np.int32(own))

    def _forms(self, j: int, code: int, number: float) -> list[tuple[Interval | None, Span, Span]]:
        """Return the forms of a value, finest first: bin (None: exact), codes, and the codes that
        disclose as much.
        """
        domain, forms = self._domains[j], list[tuple[Interval | None, Span, Span]]()
        number = number_of(domain, code, number)
        if self._policy.private_values != "bins" or domain.attribute.bins is None or isnan(number):
            forms.append((None, (code, code + 1), self.close(j, code, number)))
        if (at := bin_of(domain, number)) is not None:
            span = bin_codes(domain, at)
            forms.append((bin_part(domain, at), span, span))
        return forms

    def _homogeneous(self, j: int, span: Span, rows: NDArray[np.int64]) -> bool:
        alpha, population = self._policy.alpha, self._population
        if alpha is None or not (inside := population.people(rows)):
            return False
        share = self.people(j, span, rows) / inside
        everywhere = self.people(j, span) / population.n_people
        return share > alpha and share > MIN_LIFT * everywhere


def number_of(domain: Domain, code: int, number: float) -> float:
    """Return the number of a code, or the counterfactual's own where no row has it; NaN if it is
    not a number.
    """
    if domain.attribute.kind != "numeric" or not 0 <= code < len(domain.values):
        return number
    return float(domain.values[code])


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
    unique_binned: float  # the same with numbers as their declared bins, where there are some
    k: int  # as asked for
    people: int


def private_profile(population: Population, k: int = 10) -> PrivateProfile:
    """Return how many people the private attributes of a population single out.

    unique = |{people p: nobody else has the private values x_pS}| / people. With bins, a number
    stands for its bin, and all numbers outside of bins count as one value. It describes the table,
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
    binned, attributes = codes.copy(), {}
    for j, name in enumerate(names):
        domain = population.domains[name]
        if domain.attribute.bins is not None:  # -1 outside of all bins, -2 for a missing value
            at = [bin_of(domain, float(number)) for number in domain.values]
            bins = np.array([*(-1 if which is None else which for which in at), -2])
            binned[:, j] = bins[codes[:, j]]
        sizes = _class_sizes(codes[:, [j]], population)
        distinct = len(np.unique(codes[:, j]))
        attributes[name] = AttributeProfile(
            distinct, _share(sizes < k, population), _share(sizes == 1, population)
        )
    return PrivateProfile(
        attributes=MappingProxyType(attributes),
        unique=_share(_class_sizes(codes, population) == 1, population),
        unique_binned=_share(_class_sizes(binned, population) == 1, population),
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
