"""From checked counterfactuals to certified regions: protection, verification, and the ledger's decision."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.domain import UNKNOWN, Domain
from cfk_plugin.data.intake import Intake
from cfk_plugin.data.model import Oracle
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Part, Region
from cfk_plugin.data.values import natural, to_number
from cfk_plugin.errors import LedgerError, ModelError, PluginError, quiet
from cfk_plugin.hookspecs import Progress, Proposal, Protector, Task
from cfk_plugin.plugins import PluginManager
from cfk_plugin.records.rule import Candidate, Decision
from cfk_plugin.release.results import Certificate
from cfk_plugin.release.verification import Refusal, Verifier

if TYPE_CHECKING:
    from cfk_plugin.data.schema import Schema
    from cfk_plugin.records.ledger import Ledger


# Regions from elsewhere, rebuilt from the population's own values before they are verified and released.


def own_copy(proposal: Proposal, population: Population, *, claims: bool) -> Proposal | None:
    """Rebuild a proposal from the population's own values, so that nothing else than what is recounted can leave.

    Of a third party's objects only exact types are read, each once: a subclass could say one thing when it is verified
    and another one when it is released, and a text could be anything.
    """
    try:
        with quiet("a proposed region is malformed", PluginError):
            region, optimal = proposal.region, claims and proposal.optimal is True
            gap = None if proposal.gap is None or not claims else float(proposal.gap)
            proven = gap if gap is not None and isfinite(gap) and gap >= 0 else None
            return Proposal(None if region is None else _own_region(region, population), optimal, proven)
    except PluginError as error:
        _log.debug("%s", error)
        return None


def _own_region(region: Region, population: Population) -> Region:
    names = population.schema.quasi_identifiers
    if type(region) is not Region or type(region.parts) is not dict or len(region.parts) != len(names):
        raise TypeError("not a Region over the quasi-identifiers")
    parts = region.parts.copy()
    return Region({name: _own_part(parts[name], population.domains[name]) for name in names})


def _own_part(part: Part, domain: Domain) -> Part:
    if not domain.is_interval:
        if type(part) is not frozenset:
            raise TypeError("not a frozenset")
        codes = [domain.code(value) for value in part if value is not None]
        if UNKNOWN in codes:
            raise TypeError("a value that the population does not have")
        own = {domain.value(code) for code in codes}
        return frozenset(own | {None} if None in part and domain.has_missing else own)
    if type(part) is not Interval:
        raise TypeError("not an Interval")
    low, high, levels = part.low, part.high, part.levels
    missing = part.missing is True and domain.has_missing
    if domain.attribute.kind == "ordinal":
        return _own_levels(levels, missing, domain)
    if levels is not None:
        raise TypeError("levels belong to ordinal attributes")
    if low is None and high is None:
        return Interval(None, None, missing)
    return Interval(domain.natural(_end(low)), domain.natural(_end(high)), missing)


def _own_levels(levels: Any, missing: bool, domain: Domain) -> Interval:
    if type(levels) is not tuple:
        raise TypeError("not a tuple of levels")
    codes = [domain.code(level) for level in levels]
    if not codes:
        return Interval(None, None, missing, ())
    if UNKNOWN in codes or codes != list(range(codes[0], codes[0] + len(codes))):
        raise TypeError("levels must be neighbours")
    own = tuple(domain.values[codes[0] : codes[-1] + 1].tolist())
    return Interval(own[0], own[-1], missing, own)


def _end(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number, date)):
        raise TypeError("not a number or date")
    number = to_number(value)
    if not isfinite(number):
        raise ValueError("not a finite number")
    return number


# From checked counterfactuals to certified regions: protection, then verification.

_log = logging.getLogger("cfk_plugin")
_DOUBLINGS = 8  # how often k is doubled to reach l-diversity or t-closeness
_DIVERSITY = ("l_diversity", "t_closeness")
_PLUGIN = "plugin"  # method of a region that came from the hook instead of the protector

Verdict = Refusal | tuple[Region, Certificate]
Key = tuple[bytes, bytes, object]  # a counterfactual's codes and numbers, and what it is after


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReleaseStage:
    """What protection and verification need, bound once."""

    population: Population
    policy: PrivacyPolicy
    protector: Protector
    method: str  # The protector's name, read before it saw any data
    plugins: PluginManager  # May protect in the protector's place; what they return is verified alike
    verifier: Verifier
    seed: int
    # Verdicts that are given again where the same is asked; for one call alone, as its keys are counterfactuals
    memory: dict[Key, Verdict] | None = None

    def run(
        self,
        intake: Intake,
        goals: Sequence[object],
        oracle: Oracle,
        sides: NDArray[np.int64],
        progress: Progress | None = None,
    ) -> list[Verdict]:
        """Return a certified region or a refusal per counterfactual; equal ones of equal goal are solved once."""
        keys = [(intake.codes[i].tobytes(), intake.numbers[i].tobytes(), goal) for i, goal in enumerate(goals)]
        known: dict[Key, Verdict] = {} if self.memory is None else self.memory
        new: dict[Key, int] = {}
        for i, key in enumerate(keys):
            if key not in known:
                new.setdefault(key, i)
        if new:
            first = np.fromiter(new.values(), dtype=np.int64, count=len(new))
            found = self._run_distinct(intake.take(first), oracle.restrict(first), sides[first], progress)
            known.update(zip(new, found, strict=True))
            if progress is not None:
                progress(len(new), len(new))
        return [known[key] for key in keys]

    def _run_distinct(
        self, intake: Intake, oracle: Oracle, sides: NDArray[np.int64], progress: Progress | None
    ) -> list[Verdict]:
        """Protect and verify; where sensitive values are too alike, ask again for twice as many people.

        The groups of a partition are diverse from the start, as far as they can be.
        """
        verdicts = self._attempt(self.policy, intake, oracle, sides, progress)
        policy = self.policy
        for _ in range(_DOUBLINGS if self.verifier.partition is None else 0):
            alike = [i for i, v in enumerate(verdicts) if isinstance(v, Refusal) and v.reason in _DIVERSITY]
            if not alike or 2 * policy.k > self.population.n_people:
                break
            policy = replace(policy, k=2 * policy.k)
            at = np.array(alike)
            again = self._attempt(policy, intake.take(at), oracle.restrict(at), sides[at], None)
            for i, verdict in zip(alike, again, strict=True):
                verdicts[i] = verdict
        return verdicts

    def _attempt(
        self,
        policy: PrivacyPolicy,
        intake: Intake,
        oracle: Oracle,
        sides: NDArray[np.int64],
        progress: Progress | None,
    ) -> list[Verdict]:
        groups = self._groups(intake, sides)
        task = self._task(policy, intake, oracle, groups, progress)
        try:
            with quiet("raised {}; its explanations are withheld", PluginError, let=ModelError):
                found, method = self._proposals(task)
        except PluginError as error:
            _log.warning("protector %s %s", self.method, error)
            return [Refusal("protector_failed")] * len(intake)
        # With more people than the policy's k there is no claim that nothing better exists.
        proposals = [own_copy(p, self.population, claims=policy.k == self.policy.k) for p in found]
        sound = [Proposal(None) if p is None else p for p in proposals]
        certified = self.verifier.verify(sound, intake.codes, intake.numbers, oracle, method)
        verdicts: list[Verdict] = []
        for i, (proposal, verdict) in enumerate(zip(proposals, certified, strict=True)):
            if proposal is None or not self._is_own(groups, i, proposal):
                verdicts.append(Refusal("verification_failed", verdict.k if isinstance(verdict, Refusal) else None))
            elif isinstance(verdict, Refusal) or proposal.region is None:
                verdicts.append(verdict if isinstance(verdict, Refusal) else Refusal("verification_failed"))
            else:
                verdicts.append((proposal.region, verdict))
        return verdicts

    def _groups(self, intake: Intake, sides: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the group that each counterfactual belongs to, where a partition says so."""
        partition = self.verifier.partition
        return None if partition is None else partition.group_of(intake.codes, intake.numbers, sides)

    def _is_own(self, groups: NDArray[np.int64] | None, i: int, proposal: Proposal) -> bool:
        """Say whether a region is that of the counterfactual's own group: whoever is given another's stands out."""
        partition = self.verifier.partition
        if partition is None or groups is None or proposal.region is None:
            return True
        return bool(groups[i] >= 0) and proposal.region == partition.regions[groups[i]]

    def propose(self, intake: Intake, oracle: Oracle, sides: NDArray[np.int64]) -> list[Region | None]:
        """Return what protection alone proposes; nothing is verified, nothing of it may be released."""
        task = self._task(self.policy, intake, oracle, self._groups(intake, sides), None)
        return [proposal.region for proposal in self._proposals(task)[0]]

    def _task(
        self,
        policy: PrivacyPolicy,
        intake: Intake,
        oracle: Oracle,
        groups: NDArray[np.int64] | None,
        progress: Progress | None,
    ) -> Task:
        """Make a task of copies: what a protector does to it reaches neither verification nor the next attempt."""
        codes, numbers = intake.quasi_identifiers
        own = None if groups is None else groups.copy()
        return Task(self.population, replace(policy), codes, numbers, oracle, self.seed, progress, own)

    def _proposals(self, task: Task) -> tuple[list[Proposal], str]:
        n = len(task)
        answer = self.plugins.protect(task)
        method = self.method if answer is None else _PLUGIN
        proposals = list(self.protector.protect(task) if answer is None else answer)
        if len(proposals) != n or not all(type(p) is Proposal for p in proposals):
            raise TypeError("a protector must return one Proposal per counterfactual")
        return proposals, method


# Release with a ledger: what left before for the same record decides what may leave now.

_Key = tuple[int, Region]  # position of a counterfactual, and a region that is on record for it


@dataclass(frozen=True, eq=False, repr=False)
class RecordedRelease:
    """A release stage that asks a ledger before anything leaves, and has it on record by then.

    With a nominal guarantee a record that was released before, under the same policy and population, is released with
    the same region again, and a region that is new for its record may leave only if at least k people are inside of
    all that ever left for it. With the other guarantees a record keeps its region under any later policy, population
    and model: what is on record is verified anew, and today's partition is not asked for its region, because who sees
    the answer could tell by it where that partition puts the record. Where the ledger fails, nothing leaves.
    """

    stage: ReleaseStage
    ledger: Ledger

    def run(
        self,
        intake: Intake,
        goals: Sequence[object],
        oracle: Oracle,
        sides: NDArray[np.int64],
        progress: Progress | None = None,
    ) -> list[Verdict]:
        """Return what `ReleaseStage.run` returns, as far as the ledger lets it leave."""
        try:
            with self.ledger.one_request():
                records = self._handles(intake)
                known = self._known(records)
                verdicts = self._verify(intake, oracle, known.items())
                fresh = np.array([i for i in range(len(intake)) if i not in known], dtype=np.int64)
                new: dict[int, Verdict] = {}
                if len(fresh):
                    asked = [goals[i] for i in fresh]
                    found = self.stage.run(intake.take(fresh), asked, oracle.restrict(fresh), sides[fresh], progress)
                    new = dict(zip(fresh.tolist(), found, strict=True))
                return self._settle(intake, oracle, records, new, verdicts)
        except LedgerError as error:
            _log.warning("explanations withheld: %s", error)
        return [Refusal("ledger_failed")] * len(intake)

    def propose(self, intake: Intake, oracle: Oracle, sides: NDArray[np.int64]) -> list[Region | None]:
        """Return what protection alone proposes; the ledger is not asked."""
        return self.stage.propose(intake, oracle, sides)

    @property
    def _keeps_region(self) -> bool:
        return self.stage.policy.guarantee != "nominal"

    def _handles(self, intake: Intake) -> list[str]:
        """Return the handle of each record; one that is on record under its handle of before keeps that."""
        frame, schema = intake.frame, self.stage.population.schema
        columns = [[natural(value) for value in frame[name]] for name in schema.features]
        found = []
        for row in zip(*columns, strict=True):
            handle, *before = handles_of(self.ledger, schema, row)
            found.append(next((h for h in before if self.ledger.earlier(h) is not None), handle))
        return found

    def _known(self, records: Sequence[str]) -> dict[int, Region]:
        """Return the regions on record that are released again if they can be."""
        policy, population = self.stage.policy.sha256, self.stage.population.fingerprint
        where = () if self._keeps_region else (policy, population)
        found = self.ledger.latest(records, *where)
        return {i: found[record] for i, record in enumerate(records) if record in found}

    def _verify(self, intake: Intake, oracle: Oracle, keys: Iterable[_Key]) -> dict[_Key, Verdict]:
        """Verify regions on record; those that are none of today's partition count everybody inside."""
        wanted = list(keys)
        if not wanted:
            return {}
        at = np.array([i for i, _ in wanted], dtype=np.int64)
        some, part, verifier = intake.take(at), oracle.restrict(at), self.stage.verifier
        claims = [Proposal(region) for _, region in wanted]
        foreign = [self._is_foreign(region) for _, region in wanted]
        recorded = {position: None for position, is_foreign in enumerate(foreign) if is_foreign}
        found = verifier.verify(claims, some.codes, some.numbers, part, self.stage.method, recorded=recorded)
        verdicts: dict[_Key, Verdict] = {}
        for key, is_foreign, verdict in zip(wanted, foreign, found, strict=True):
            if isinstance(verdict, Refusal) or (is_foreign and self._falls_short(verdict)):
                verdicts[key] = verdict if isinstance(verdict, Refusal) else Refusal("verification_failed")
            else:
                verdicts[key] = (key[1], verdict)
        return verdicts

    def _is_foreign(self, region: Region) -> bool:
        """Say whether a region is of another partition than today's."""
        partition = self.stage.verifier.partition
        return partition is not None and not len(partition.rows_mapped_to(region))

    def _falls_short(self, certificate: Certificate) -> bool:
        """Say whether what today's guarantee promises does not even hold for everybody inside of a foreign region."""
        policy = self.stage.policy
        promised = [certificate.k_desired] if policy.counts_eligible else []
        promised += [certificate.k_consistent] if policy.guarantee == "catalogue" else []
        return certificate.pureness == 0 or any(people is None or people < policy.k for people in promised)

    def _settle(
        self,
        intake: Intake,
        oracle: Oracle,
        records: Sequence[str],
        new: Mapping[int, Verdict],
        verified: dict[_Key, Verdict],
    ) -> list[Verdict]:
        """Put what is about to leave on record, or take what is on record instead."""
        settled = dict(new) | {i: verdict for (i, _), verdict in verified.items()}
        # A region to keep is put forward unverified: the ledger asks, for this one as for another in its place.
        kept = {i: region for i, region in verified if self._keeps_region}
        leaving = [i for i, verdict in settled.items() if i in kept or not isinstance(verdict, Refusal)]
        candidates = [
            self._candidate(records[i], kept[i]) if i in kept else self._verified_candidate(records[i], settled[i])
            for i in leaving
        ]

        def verdict_on(i: int, region: Region) -> Verdict:
            if (i, region) not in verified:
                verified.update(self._verify(intake, oracle, [(i, region)]))
            return verified[i, region]

        def acceptable(position: int, region: Region) -> bool:
            return not isinstance(verdict_on(leaving[position], region), Refusal)

        decisions = self.ledger.settle(candidates, self._count, acceptable)
        for i, decision in zip(leaving, decisions, strict=True):
            if decision.region is None:
                settled[i] = Refusal("intersection")
            elif decision.outcome == "earlier" or (decision.outcome == "again" and self._keeps_region):
                settled[i] = self._on_record(verdict_on(i, decision.region), decision)
            settled[i] = _noted(settled[i], decision)
        return [settled[i] for i in range(len(intake))]

    def _verified_candidate(self, record: str, verdict: Verdict) -> Candidate:
        if isinstance(verdict, Refusal):
            raise TypeError("a refusal does not leave")
        return self._candidate(record, verdict[0], verdict[1].k_effective)

    def _candidate(self, record: str, region: Region, effective: int | None = None) -> Candidate:
        """Return what the ledger is asked; without `effective`, nothing new leaves but for a nominal guarantee."""
        policy = self.stage.policy
        return Candidate(
            record=record,
            region=region,
            policy=policy.sha256,
            population=self.stage.population.fingerprint,
            guarantee=policy.guarantee,
            k=policy.k,
            effective=effective,
        )

    def _count(self, regions: Sequence[Region]) -> int:
        """Count the people of the population who are inside all of several regions."""
        population = self.stage.population
        rows = population.members(regions[0])
        for region in regions[1:]:
            rows = np.intersect1d(rows, population.members(region), assume_unique=True)
        return population.people(rows)

    def _on_record(self, verdict: Verdict, decision: Decision) -> Verdict:
        """Complete the certificate of a region on record: its group is no larger than it was recorded."""
        if isinstance(verdict, Refusal) or not self._keeps_region:
            return verdict
        region, certificate = verdict
        known = [people for people in (certificate.k_effective, decision.effective) if people is not None]
        return region, certificate.counted(k_effective=min(known, default=None))


def handles_of(ledger: Ledger, schema: Schema, values: Sequence[object]) -> tuple[str, ...]:
    """Return the handles that a record may have in a ledger.

    Its own is made of the features by name, whatever the order of the table's columns. Ledgers may hold such as well
    from when the table's order went into them: that one comes second, where it differs.
    """
    own = ledger.handle([values[j] for j in schema.canonical])
    return (own,) if list(schema.canonical) == sorted(schema.canonical) else (own, ledger.handle(values))


def _noted(verdict: Verdict, decision: Decision) -> Verdict:
    """Write on a certificate what the ledger decided and what is left after it, for the data holder."""
    if isinstance(verdict, Refusal):
        return verdict
    region, certificate = verdict
    return region, certificate.counted(ledger=decision.outcome, k_intersection=decision.people)
