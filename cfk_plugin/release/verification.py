"""Verification: recount what a released region is, from region and population alone.

It runs last, is not pluggable, and knows nothing of how a region was found: a protector's claims about people,
information loss or pureness are not read. What does not meet the policy is not certified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.domain import INVALID, UNEXPECTED_MISSING, UNKNOWN, Domain
from cfk_plugin.data.model import Grid, Oracle
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Part, Region
from cfk_plugin.hookspecs import Proposal
from cfk_plugin.metrics.information import ncp_by_attribute, weigh_losses
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.metrics.risk import SensitiveFigures
from cfk_plugin.protection.private import PrivatePart, PrivateRelease
from cfk_plugin.release.results import Certificate

if TYPE_CHECKING:
    from cfk_plugin.protection.partition import Partition


# Asking: the model's answers that a certificate counts, for many regions in one or two calls.


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about one region."""

    region: Region
    rows: NDArray[np.int64]  # Positions of the rows inside
    own: NDArray[np.int32]  # shape (n_quasi_identifiers,); codes of the counterfactual itself
    # Codes that each private attribute stands for; empty when all are released exactly
    private: Sequence[NDArray[np.int32]] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said about one region."""

    good: NDArray[np.bool_]  # Of each value combination that was asked, whether it gets the desired outcome
    consistent: NDArray[np.bool_]  # The same of each row inside, with the counterfactual's own private values
    exact: bool  # Whether every combination was asked


def answers_to(
    questions: Mapping[int, Question],
    population: Population,
    oracle: Oracle,
    *,
    cell_budget: int,
    samples: int,
    seed: int,
) -> dict[int, Answer]:
    """Ask for the grid of every region and for the members' own cells."""
    if not questions:
        return {}
    cells: dict[int, NDArray[np.int32]] = {}
    sizes: dict[int, int] = {}
    for i, question in questions.items():
        grid = Grid.of(question.region, population, [int(code) for code in question.own], question.private)
        random = np.random.default_rng(seed)  # anew, so that the answer does not depend on what else is asked
        cells[i] = grid.all() if grid.size <= cell_budget else grid.sample(samples, random)
        sizes[i] = grid.size
    wide = {i: cells[i] for i, question in questions.items() if question.private}
    members = {i: population.cells[population.cell_of(question.rows)] for i, question in questions.items()}
    narrow = {i: members[i] if i in wide else np.concatenate([cells[i], members[i]]) for i in questions}
    said, also = _ask(oracle, narrow, reuse=True), _ask(oracle, wide, reuse=False)
    return {
        i: Answer(
            also[i] if i in wide else said[i][: len(cells[i])],
            said[i] if i in wide else said[i][len(cells[i]) :],
            sizes[i] <= cell_budget,
        )
        for i in questions
    }


def _ask(oracle: Oracle, cells: Mapping[int, NDArray[np.int32]], *, reuse: bool) -> dict[int, NDArray[np.bool_]]:
    """Ask for the cells of several counterfactuals in one model call."""
    if not cells:
        return {}
    lengths = [len(part) for part in cells.values()]
    owner = np.repeat(np.fromiter(cells, dtype=np.int64, count=len(cells)), lengths)
    good = oracle.ask(owner, np.concatenate(list(cells.values())), reuse=reuse)
    return dict(zip(cells, np.split(good, np.cumsum(lengths)[:-1]), strict=True))


# Verification: recount what a released region is, from region and population alone.


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a region is not certified."""

    reason: str  # A code of `SUPPRESSION_REASONS`
    k: int | None = None  # Where too few people were found: how many. For the data holder alone.


@dataclass(frozen=True, slots=True)
class _Count:
    """The recount of one region, before the model is asked."""

    region: Region
    rows: NDArray[np.int64]
    mapped: NDArray[np.int64]  # who the protection releases with this region; everybody inside for a nominal k
    k: int
    ncp: float
    ncp_parts: tuple[float, ...]
    sensitive: SensitiveFigures
    private: PrivatePart = field(default_factory=PrivatePart)


class Verifier:
    """Certifies regions against a population and a policy."""

    def __init__(
        self,
        population: Population,
        policy: PrivacyPolicy,
        *,
        reference: Population | None = None,
        cell_budget: int = 10_000,
        samples: int = 2_000,
        seed: int = 0,
        partition: Partition | None = None,
    ) -> None:
        self.population, self.policy, self.reference, self.partition = population, policy, reference, partition
        self.cell_budget, self.samples, self.seed = cell_budget, samples, seed
        self._private = PrivateRelease(population, policy)
        self._policy_hash = policy.sha256

    def verify(
        self,
        claims: Sequence[Proposal],
        codes: NDArray[np.int32],
        numbers: NDArray[np.float64],
        oracle: Oracle,
        method: str,
        recorded: Mapping[int, int | None] | None = None,
    ) -> list[Certificate | Refusal]:
        """Certify or refuse one region per counterfactual; the model is asked once or twice for all of them."""
        at = [self.population.schema.features.index(name) for name in self.population.schema.quasi_identifiers]
        own, places = codes[:, at], numbers[:, at]
        before = recorded or {}
        found = [self._recount(c.region, own[i], places[i], before=i in before) for i, c in enumerate(claims)]
        counted = [
            count if isinstance(count, Refusal) else self._with_private(count, codes[i], numbers[i])
            for i, count in enumerate(found)
        ]
        accepted = {i: count for i, count in enumerate(counted) if isinstance(count, _Count)}
        answers = self._ask(accepted, own, oracle)
        return [
            count
            if isinstance(count, Refusal)
            else self._judge(i, count, claims[i], answers[i], oracle, method, before)
            for i, count in enumerate(counted)
        ]

    def _recount(
        self, region: Region | None, codes: NDArray[np.int32], numbers: NDArray[np.float64], *, before: bool
    ) -> _Count | Refusal:
        """Count people and information loss; refuse what the policy does not allow."""
        if region is None:
            return Refusal("infeasible")
        population, policy = self.population, self.policy
        if not isinstance(region, Region) or set(region) != set(population.schema.quasi_identifiers):
            return Refusal("verification_failed")
        if self.partition is None and not self._holds(region, codes, numbers):
            return Refusal("verification_failed")
        rows = population.members(region)
        mapped = rows if self.partition is None or before else self.partition.rows_mapped_to(region)
        if (found := population.people(mapped)) < policy.k:
            return Refusal("verification_failed", found)
        if not np.isin(mapped, rows, assume_unique=True).all():
            return Refusal("verification_failed")
        parts = ncp_by_attribute(region, population)
        loss = weigh_losses(parts, population.schema)
        if policy.max_ncp is not None and loss > policy.max_ncp:
            return Refusal("ncp_above_ceiling")
        sensitive = SensitiveFigures.of(population, mapped)
        if policy.l is not None and sensitive.diversity is not None and sensitive.diversity < policy.l:
            return Refusal("l_diversity")
        if policy.t is not None and sensitive.closeness is not None and sensitive.closeness > policy.t:
            return Refusal("t_closeness")
        return _Count(region, rows, mapped, population.people(rows), loss, tuple(parts.values()), sensitive)

    def _with_private(self, count: _Count, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> _Count | Refusal:
        """Decide what of the private values goes with a region."""
        private = self._private.part(codes, numbers, count.rows, count.mapped)
        return Refusal("homogeneous") if private is None else replace(count, private=private)

    def _holds(self, region: Region, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> bool:
        """Say whether a region holds the counterfactual's own quasi-identifiers."""
        domains = [self.population.domains[name] for name in self.population.schema.quasi_identifiers]
        return all(
            _holds(region[domain.attribute.name], domain, int(code), float(number))
            for domain, code, number in zip(domains, codes, numbers, strict=True)
        )

    def _ask(self, counts: dict[int, _Count], own: NDArray[np.int32], oracle: Oracle) -> dict[int, Answer]:
        """Ask for the grid of every region and for the members' own cells."""
        questions = {i: Question(c.region, c.rows, own[i], c.private.axes) for i, c in counts.items()}
        budget = {"cell_budget": self.cell_budget, "samples": self.samples, "seed": self.seed}
        return answers_to(questions, self.population, oracle, **budget)

    def _judge(
        self,
        i: int,
        count: _Count,
        claim: Proposal,
        answer: Answer,
        oracle: Oracle,
        method: str,
        before: Mapping[int, int | None],
    ) -> Certificate | Refusal:
        good, consistent, exact, private = answer.good, answer.consistent, answer.exact, count.private
        share = float(good.mean())
        low, high = (share, share) if exact else clopper_pearson(int(good.sum()), len(good))
        if self.policy.min_pureness is not None and low < self.policy.min_pureness:
            return Refusal("pureness_below_floor")
        people, rows = self.population.people, count.rows
        desired = oracle.desired_rows(i, rows)
        effective = before.get(i)
        if self.partition is not None:
            if short := self._short_of_guarantee(count, desired, consistent, share):
                return short
            effective = effective if i in before else people(count.mapped)
        proven = not private.coarse or self.policy.objective == "ncp"  # a search holds private values fixed
        in_reference = None if self.reference is None else max(self.reference.count(count.region), 1)
        return Certificate(
            k=count.k,
            k_desired=None if desired is None else people(rows[desired]),
            k_consistent=people(rows[consistent]),
            k_effective=effective,
            k_private=private.inside,
            private_matches=private.anywhere,
            ncp=count.ncp,
            pureness=share,
            pureness_low=low,
            pureness_high=high,
            exact=exact,
            l=count.sensitive.diversity,
            t=count.sensitive.closeness,
            prosecutor_risk=1.0 / count.k,
            journalist_risk=None if in_reference is None else 1.0 / in_reference,
            optimal=proven and bool(claim.optimal),
            gap=float(claim.gap) if proven and claim.gap is not None else None,
            method=method,
            guarantee=self.policy.guarantee,
            policy_hash=self._policy_hash,
            population=self.population.fingerprint,
            majority=None if desired is None else 2 * int(desired.sum()) >= len(rows),
            binned=private.binned,
            withheld=private.withheld,
            ncp_parts=count.ncp_parts,
            disclosure=count.sensitive.disclosure,
        )

    def _short_of_guarantee(
        self, count: _Count, desired: NDArray[np.bool_] | None, consistent: NDArray[np.bool_], share: float
    ) -> Refusal | None:
        """Refuse a region of the partition that does not give what the guarantee promises."""
        mapped = np.isin(count.rows, count.mapped, assume_unique=True)
        if share == 0:  # the group's region need not hold the counterfactual: it may be no advice at all
            return Refusal("pureness_below_floor")
        wanted = [desired] if self.policy.counts_eligible and desired is not None else []  # else: groups of them alone
        wanted += [consistent] if self.policy.guarantee == "catalogue" else []
        least = min((self.population.people(count.rows[mapped & flags]) for flags in wanted), default=self.policy.k)
        return Refusal("verification_failed", least) if least < self.policy.k else None


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
