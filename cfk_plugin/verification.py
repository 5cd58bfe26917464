"""Verification: recount what a released region is, from region and population alone.

It runs last, is not pluggable, and knows nothing of how a region was found: a protector's claims about people,
information loss or pureness are not read. What does not meet the policy is not certified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.counterfactual import Certificate
from cfk_plugin.domain import INVALID, UNEXPECTED_MISSING, UNKNOWN, Domain
from cfk_plugin.grid import Grid
from cfk_plugin.metrics.disclosure import l_diversity, t_closeness
from cfk_plugin.metrics.information import ncp
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.oracle import Oracle
from cfk_plugin.policy import PrivacyPolicy
from cfk_plugin.population import Population
from cfk_plugin.private import PrivateValues
from cfk_plugin.region import Interval, Part, Region


class Claim(Protocol):
    """What is read of a proposal: the region, and what was proved about the search that led to it."""

    @property
    def region(self) -> Region | None:
        """The region to verify."""
        ...

    @property
    def optimal(self) -> bool:
        """Whether optimality was proved."""
        ...

    @property
    def gap(self) -> float | None:
        """Proven gap."""
        ...


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a region is not certified: a code of `SUPPRESSION_REASONS`."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Count:
    """The recount of one region, before the model is asked."""

    region: Region
    rows: NDArray[np.int64]
    k: int
    ncp: float
    diversity: int | None
    closeness: float | None


class Verifier:
    """Certifies regions against a population and a policy.

    Parameters
    ----------
    population : Population
    policy : PrivacyPolicy
    reference : Population, optional
        A larger population that the training rows were drawn from, with the same quasi-identifiers: the journalist's
        point of view.
    cell_budget : int
        Largest grid for which pureness is computed exactly.
    samples : int
        Combinations drawn without replacement from a larger grid.
    seed : int
        Of that draw.
    """

    def __init__(
        self,
        population: Population,
        policy: PrivacyPolicy,
        *,
        reference: Population | None = None,
        cell_budget: int = 10_000,
        samples: int = 2_000,
        seed: int = 0,
    ) -> None:
        self.population, self.policy, self.reference = population, policy, reference
        self.cell_budget, self.samples, self.seed = cell_budget, samples, seed
        self._private = PrivateValues(population)

    def verify(
        self,
        claims: Sequence[Claim],
        codes: NDArray[np.int32],
        numbers: NDArray[np.float64],
        oracle: Oracle,
        method: str,
    ) -> list[Certificate | Refusal]:
        """Certify or refuse one region per counterfactual; the model is asked once for all of them.

        Parameters
        ----------
        claims : sequence
            One per counterfactual.
        codes, numbers : arrays, shape (n, n_features)
            The counterfactuals' own features, coded and as numbers: their private values are what is released.
        oracle : Oracle
        method : str
            Name of the protector, for the certificate.

        Returns
        -------
        list of Certificate or Refusal

        Raises
        ------
        ModelError
            If the model fails.
        """
        at = [self.population.schema.features.index(name) for name in self.population.schema.quasi_identifiers]
        own, places = codes[:, at], numbers[:, at]
        counted = [self._recount(claim.region, own[i], places[i]) for i, claim in enumerate(claims)]
        accepted = {i: count for i, count in enumerate(counted) if isinstance(count, _Count)}
        answers = self._ask(accepted, own, oracle)
        return [
            count
            if isinstance(count, Refusal)
            else self._judge(i, count, claims[i], answers[i], oracle, codes[i], method)
            for i, count in enumerate(counted)
        ]

    def _recount(
        self, region: Region | None, codes: NDArray[np.int32], numbers: NDArray[np.float64]
    ) -> _Count | Refusal:
        """Count people and information loss; refuse what the policy does not allow."""
        if region is None:
            return Refusal("infeasible")
        population, policy = self.population, self.policy
        if not isinstance(region, Region) or set(region) != set(population.schema.quasi_identifiers):
            return Refusal("verification_failed")
        for j, name in enumerate(population.schema.quasi_identifiers):
            if not _holds(region[name], population.domains[name], int(codes[j]), float(numbers[j])):
                return Refusal("verification_failed")
        rows = population.members(region)
        k, loss = population.people(rows), ncp(region, population)
        if k < policy.k:
            return Refusal("verification_failed")
        if policy.max_ncp is not None and loss > policy.max_ncp:
            return Refusal("ncp_above_ceiling")
        diversity, closeness = self._sensitive(rows)
        if policy.l is not None and diversity is not None and diversity < policy.l:
            return Refusal("l_diversity")
        if policy.t is not None and closeness is not None and closeness > policy.t:
            return Refusal("t_closeness")
        return _Count(region, rows, k, loss, diversity, closeness)

    def _sensitive(self, rows: NDArray[np.int64]) -> tuple[int | None, float | None]:
        names = self.population.schema.sensitive
        if not names:
            return None, None
        diversity, closeness = [], []
        for name in names:
            everybody, domain = self.population.column(name), self.population.domains[name]
            inside = everybody.take(rows)
            diversity.append(l_diversity(inside).distinct)
            closeness.append(t_closeness(inside, everybody, domain.is_interval))
        return min(diversity), max(closeness)

    def _ask(
        self, counts: dict[int, _Count], codes: NDArray[np.int32], oracle: Oracle
    ) -> dict[int, tuple[NDArray[np.bool_], NDArray[np.bool_], bool]]:
        """Ask for the grid of every region and for the members' own cells, in one model call."""
        grids = {i: Grid.of(count.region, self.population, codes[i]) for i, count in counts.items()}
        random = np.random.default_rng(self.seed)
        asked: dict[int, tuple[NDArray[np.int32], NDArray[np.int32]]] = {}
        for i, grid in grids.items():
            cells = grid.all() if grid.size <= self.cell_budget else grid.sample(self.samples, random)
            asked[i] = (cells, self.population.cells[self.population.cell_of(counts[i].rows)])
        if not asked:
            return {}
        owner = np.concatenate([np.full(len(a) + len(b), i) for i, (a, b) in asked.items()])
        good = oracle.ask(owner, np.concatenate([part for pair in asked.values() for part in pair]))
        answers, at = {}, 0
        for i, (cells, own) in asked.items():
            middle, end = at + len(cells), at + len(cells) + len(own)
            answers[i] = (good[at:middle], good[middle:end], grids[i].size <= self.cell_budget)
            at = end
        return answers

    def _judge(
        self,
        i: int,
        count: _Count,
        claim: Claim,
        answers: tuple[NDArray[np.bool_], NDArray[np.bool_], bool],
        oracle: Oracle,
        codes: NDArray[np.int32],
        method: str,
    ) -> Certificate | Refusal:
        good, consistent, exact = answers
        share = float(good.mean())
        low, high = (share, share) if exact else clopper_pearson(int(good.sum()), len(good))
        if self.policy.min_pureness is not None and low < self.policy.min_pureness:
            return Refusal("pureness_below_floor")
        people, rows = self.population.people, count.rows
        desired = oracle.desired_rows(i, rows)
        same_inside, same_anywhere = self._private.matches(codes, rows)
        in_reference = None if self.reference is None else max(self.reference.count(count.region), 1)
        return Certificate(
            k=count.k,
            k_desired=people(rows[desired]),
            k_consistent=people(rows[consistent]),
            k_private=same_inside,
            private_matches=same_anywhere,
            ncp=count.ncp,
            pureness=share,
            pureness_low=low,
            pureness_high=high,
            exact=exact,
            l=count.diversity,
            t=count.closeness,
            prosecutor_risk=1.0 / count.k,
            journalist_risk=None if in_reference is None else 1.0 / in_reference,
            optimal=bool(claim.optimal),
            gap=None if claim.gap is None else float(claim.gap),
            method=method,
            guarantee=self.policy.guarantee,
            policy_hash=self.policy.sha256,
            population=self.population.fingerprint,
            majority=2 * int(desired.sum()) >= len(rows),
        )


def _holds(part: Part, domain: Domain, code: int, number: float) -> bool:
    """Say whether a part has the right type for its attribute and holds the counterfactual's own value."""
    if code in (INVALID, UNEXPECTED_MISSING) or not _well_formed(part, domain):
        return False
    if code != UNKNOWN:
        return bool(domain.inside(part)[code])
    return domain.attribute.kind == "numeric" and domain.natural(number) in part


def _well_formed(part: Part, domain: Domain) -> bool:
    if not domain.is_interval:
        return isinstance(part, frozenset) and all(v is None or domain.code(v) != UNKNOWN for v in part)
    if not isinstance(part, Interval) or (part.low is None) != (part.high is None):
        return False
    if domain.attribute.kind == "ordinal":
        return part.levels is not None and set(part.levels) <= set(domain.values)
    return part.levels is None and not any(isinstance(end, str) for end in (part.low, part.high))
