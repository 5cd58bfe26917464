"""Asks a ledger before explanations leave, and records them first.

See `cfk_plugin.records.rule` for what may leave. If a record keeps its region, the recorded one is
verified for those who are left of its people. Today's partition is not consulted, because the
answer would reveal the group of the record today.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region, natural
from cfk_plugin.errors import HostOnly
from cfk_plugin.hookspecs import Proposal
from cfk_plugin.records.rule import Candidate, Decision, Handles, RegionPeople
from cfk_plugin.release.candidates import Candidates
from cfk_plugin.release.guarantee import Guarantee
from cfk_plugin.release.person_handles import PersonHandles
from cfk_plugin.release.results import Withheld
from cfk_plugin.release.verification import Certified, RemainingRows, Verdict, Verifier, refused

if TYPE_CHECKING:
    from cfk_plugin.records.ledger import Ledger, OnRecord

# Position in the batch, region, and the people who are left of it; None for everybody inside.
_Claim = tuple[int, Region, RegionPeople | None]


@dataclass(frozen=True, eq=False, repr=False)
class LedgerGuard(HostOnly):
    """What a ledger lets out of one batch."""

    ledger: Ledger
    people: PersonHandles
    population: Population
    policy: PrivacyPolicy
    goal: DesiredOutcome
    guarantee: Guarantee
    verifier: Verifier
    method: str
    protect: Callable[[Candidates], list[Verdict]]
    # who was in no table whose catalogue was published, or None if nothing was
    newcomers: Callable[[], Handles | None] | None
    candidates: Candidates
    _verdicts: dict[_Claim, Verdict] = field(default_factory=dict)
    _inside: dict[Region, Handles] = field(default_factory=dict)
    _rows_left: dict[tuple[Region, RegionPeople], RemainingRows] = field(default_factory=dict)

    def settle(self) -> list[Verdict]:
        """Record what is about to leave, or use what is on record instead."""
        records = self._handles()
        on_record = self._regions_on_record(records)
        # Verified together first, as the model is asked; the ledger then asks one by one.
        self._verify(
            [
                (i, release.region, release.people.among(self.inside(release.region)))
                for i, release in on_record.items()
            ]
        )
        fresh = np.array(
            [i for i in range(len(self.candidates)) if i not in on_record], dtype=np.int64
        )
        protected = self.protect(self.candidates.take(fresh)) if len(fresh) else []
        verdicts: dict[int, Verdict] = dict(zip(fresh.tolist(), protected, strict=True))
        candidates = {}
        for i, record in enumerate(records):
            if record is None:
                verdicts[i] = _without_record(verdicts[i])
            elif i in on_record:
                # Proposed as it is: the ledger asks whether it may leave.
                candidates[i] = self._candidate(record, on_record[i].region, frozenset())
            else:
                verdict = verdicts[i]
                if isinstance(verdict, Certified):
                    members = self._members(verdict.region)
                    if self._are_too_few_new(members):
                        verdicts[i] = refused("too_few_new")
                    else:
                        candidates[i] = self._candidate(record, verdict.region, members)
        today = _TodayOfGuard(self, list(candidates))
        decisions = self.ledger.settle(list(candidates.values()), today)
        for i, decision in zip(candidates, decisions, strict=True):
            verdicts[i] = self._decided(i, verdicts.get(i), decision)
        return [verdicts[i] for i in range(len(self.candidates))]

    @property
    def _keeps_region(self) -> bool:
        return self.policy.guarantee != "lookup"

    def _are_too_few_new(self, members: Handles) -> bool:
        """Say whether an entry would stand out in the catalogue since the last one was published.

        Only people who joined since then could be behind it.
        """
        newcomers = None if self.newcomers is None else self.newcomers()
        return newcomers is not None and len(members & newcomers) < self.policy.k

    def _handles(self) -> list[str | None]:
        """Return the handle of each record; None where the private values belong to no record."""
        candidates = self.candidates
        schema = self.population.schema
        frame = candidates.encoded.frame if candidates.sources is None else candidates.sources
        columns = [[natural(value) for value in frame[name]] for name in sorted(schema.features)]
        is_record = (
            [True] * len(candidates)
            if candidates.is_record is None
            else candidates.is_record.tolist()
        )
        return [
            self.ledger.handle(row) if is_one else None
            for row, is_one in zip(zip(*columns, strict=True), is_record, strict=True)
        ]

    def _regions_on_record(self, records: Sequence[str | None]) -> dict[int, OnRecord]:
        """Return, by position, the release whose region is asked for again.

        With a lookup guarantee, a record gets another region after a change of policy or data.
        """
        asked = [record for record in records if record is not None]
        if not asked:
            return {}
        if self._keeps_region:
            latest = self.ledger.latest(asked)
        else:
            latest = self.ledger.latest(asked, self.policy.sha256, self.population.fingerprint)
        return {i: latest[record] for i, record in enumerate(records) if record in latest}

    def _candidate(self, record: str, region: Region, members: Handles) -> Candidate:
        return Candidate(
            record=record,
            region=region,
            policy=self.policy.sha256,
            population=self.population.fingerprint,
            guarantee=self.policy.guarantee,
            k=self.policy.k,
            members=members,
        )

    def _members(self, region: Region) -> Handles:
        """Return the people to whom today's partition gives a region; none without a partition."""
        partition = self.guarantee.partition
        if partition is None:
            return frozenset()
        return self.people.of(partition.rows_mapped_to(region))

    def inside(self, region: Region) -> Handles:
        """Return the people inside of a region today; nobody, if it has other attributes."""
        if region not in self._inside:
            population = self.population
            rows = np.empty(0, dtype=np.int64)
            if region.parts.keys() == set(population.schema.quasi_identifiers):
                rows = population.members(region)
            self._inside[region] = self.people.of(rows)
        return self._inside[region]

    def verdict_on(self, i: int, region: Region, people: RegionPeople | None) -> Verdict:
        """Verify a region for the people who are left of it; for everybody inside without these."""
        self._verify([(i, region, people)])
        return self._verdicts[i, region, people]

    def _verify(self, claims: Sequence[_Claim]) -> None:
        """Verify regions that were not verified before, all together."""
        new = [claim for claim in claims if claim not in self._verdicts]
        if not new:
            return
        some = self.candidates.take(np.array([i for i, _, _ in new]))
        regions = [region for _, region, _ in new]
        remaining = {
            at: self._remaining_rows(region, people)
            for at, (_, region, people) in enumerate(new)
            if people is not None
        }
        verdicts = self.verifier.verify(
            [Proposal(region) for region in regions],
            some.encoded.codes,
            some.encoded.numbers,
            some.combination_outcomes,
            self.method,
            remaining,
        )
        judge = self.goal.test_for(some.factual, some.own)
        untrue = self.guarantee.untrue(regions, some.asked, some.encoded.frame, some.entries, judge)
        for at, (claim, verdict) in enumerate(zip(new, verdicts, strict=True)):
            self._verdicts[claim] = refused("verification_failed") if at in untrue else verdict

    def _remaining_rows(self, region: Region, people: RegionPeople) -> RemainingRows:
        """Return the rows inside of a region of the people who are left."""
        key = region, people
        if key not in self._rows_left:
            rows = np.empty(0, dtype=np.int64)
            if people.inside:
                rows = self.population.members(region)
            handles = self.people.of_rows(rows).tolist()
            inside = rows[np.array([handle in people.inside for handle in handles], dtype=bool)]
            members = rows[np.array([handle in people.members for handle in handles], dtype=bool)]
            self._rows_left[key] = RemainingRows(
                inside=inside, mapped=members if self._keeps_region else inside
            )
        return self._rows_left[key]

    def _decided(self, i: int, verdict: Verdict | None, decision: Decision) -> Verdict:
        """Return the verdict that follows from the ledger's decision, with the decision in its
        recount.
        """
        if decision.region is None:
            return refused(decision.reason or "intersection")
        if verdict is None or decision.outcome != "new":
            verdict = self.verdict_on(i, decision.region, decision.remaining)
        if isinstance(verdict, Withheld):
            return verdict
        return verdict.with_counts(ledger=decision.outcome, k_intersection=decision.people)


def _without_record(verdict: Verdict) -> Verdict:
    """Note for the data holder that nothing connects this release with others."""
    if isinstance(verdict, Withheld):
        return verdict
    return verdict.with_counts(ledger="no_record", k_intersection=verdict.recount.k_effective)


@dataclass(frozen=True)
class _TodayOfGuard:
    """The `Today` of the ledger's rule, for the candidates of a batch."""

    guard: LedgerGuard
    positions: Sequence[int]  # in the batch, of the candidates

    def inside(self, region: Region) -> Handles:
        return self.guard.inside(region)

    def accepts(self, index: int, region: Region, people: RegionPeople) -> bool:
        verdict = self.guard.verdict_on(self.positions[index], region, people)
        return isinstance(verdict, Certified)
