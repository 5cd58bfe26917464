"""Asks a ledger before explanations are released, and records them first.

`cfk_plugin.records.rule` says what may be released. If a record keeps its region, the recorded one
is verified for those of its people who are left. Today's partition is not consulted then, because
the answer would reveal the group of the record today.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region, natural
from cfk_plugin.errors import HostOnly
from cfk_plugin.hookspecs import Proposal
from cfk_plugin.records.rule import Candidate, Decision, Handles, RegionPeople
from cfk_plugin.release.call import Candidates
from cfk_plugin.release.guarantee import Guarantee
from cfk_plugin.release.person_handles import PersonHandles
from cfk_plugin.release.results import Withheld
from cfk_plugin.release.verdicts import Certified, Verdict, refused
from cfk_plugin.release.verification import RemainingRows, Verifier

if TYPE_CHECKING:
    from cfk_plugin.records.ledger import Ledger, OnRecord


class _RegionToVerify(NamedTuple):
    """A region that may be released for a candidate, and the people who count."""

    position: int  # of the candidate
    region: Region
    people: RegionPeople | None  # those who are left of the region; None: everyone inside today


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LedgerGuard(HostOnly):
    """Decides with a ledger what may be released for the candidates of one call."""

    ledger: Ledger
    people: PersonHandles
    population: Population
    policy: PrivacyPolicy
    guarantee: Guarantee
    verifier: Verifier
    method: str
    protect: Callable[[Candidates], list[Verdict]]
    candidates: Candidates
    _verdicts: dict[_RegionToVerify, Verdict] = field(default_factory=dict)
    _inside: dict[Region, Handles] = field(default_factory=dict)
    _rows_left: dict[tuple[Region, RegionPeople], RemainingRows] = field(default_factory=dict)

    def decide(self) -> list[Verdict]:
        """Return a verdict per candidate; each release is on record when this returns."""
        records = self._handles()
        on_record = self._regions_on_record(records)
        # Verified together first, as the model is asked; the ledger then asks one by one.
        self._verify([self._left_of(i, release) for i, release in on_record.items()])
        verdicts = self._protect_without_region([*on_record])
        ledger_candidates: dict[int, Candidate] = {}
        for i, record in enumerate(records):
            if record is None:
                verdicts[i] = _without_record(verdicts[i])
            elif i in on_record:
                # Proposed as it is: the ledger asks whether it may be released.
                ledger_candidates[i] = self._candidate(record, on_record[i].region, frozenset())
            else:
                verdict = verdicts[i]
                if isinstance(verdict, Withheld):
                    continue
                members = self.people.of(self.guarantee.members(verdict.region))
                ledger_candidates[i] = self._candidate(record, verdict.region, members)
        today = _TodayOfGuard(self, [*ledger_candidates])
        decisions = self.ledger.settle([*ledger_candidates.values()], today)
        for i, decision in zip(ledger_candidates, decisions, strict=True):
            verdicts[i] = self._decided(i, verdicts.get(i), decision)
        return [verdicts[i] for i in range(len(self.candidates))]

    def _left_of(self, i: int, release: OnRecord) -> _RegionToVerify:
        """Return a region on record with those of its people who are inside of it today."""
        people = release.people.among(self.inside(release.region))
        return _RegionToVerify(i, release.region, people)

    def _protect_without_region(self, on_record: Sequence[int]) -> dict[int, Verdict]:
        """Protect the candidates that have no region on record; return verdicts by position."""
        is_new = np.ones(len(self.candidates), dtype=bool)
        is_new[on_record] = False
        new = np.flatnonzero(is_new)
        if not len(new):
            return {}
        verdicts = self.protect(self.candidates.take(new))
        return dict(zip(new.tolist(), verdicts, strict=True))

    def _handles(self) -> list[str | None]:
        """Return the handle of each record; None where the private values belong to no record."""
        sources = self.guarantee.sources(self.candidates)
        names = sorted(self.population.schema.features)
        columns = [[natural(value) for value in sources.rows[name]] for name in names]
        rows = zip(*columns, strict=True)
        return [
            self.ledger.handle(row) if is_record else None
            for row, is_record in zip(rows, sources.is_record.tolist(), strict=True)
        ]

    def _regions_on_record(self, records: Sequence[str | None]) -> dict[int, OnRecord]:
        """Return, by position, the latest release of each record whose region is asked for again.

        If records do not keep their regions, only releases under this policy and of this population
        count.
        """
        known_records = [record for record in records if record is not None]
        if not known_records:
            return {}
        if self.guarantee.keeps_released_regions:
            latest = self.ledger.latest(known_records)
        else:
            latest = self.ledger.latest(
                known_records, self.policy.sha256, self.population.fingerprint
            )
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

    def inside(self, region: Region) -> Handles:
        """Return the people inside of a region today; none if it has other attributes."""
        if region not in self._inside:
            population = self.population
            rows = np.empty(0, dtype=np.int64)
            if region.parts.keys() == set(population.schema.quasi_identifiers):
                rows = population.members(region)
            self._inside[region] = self.people.of(rows)
        return self._inside[region]

    def verdict_on(self, i: int, region: Region, people: RegionPeople | None) -> Verdict:
        """Verify a region for a candidate, and for the people who are left of it.

        Without `people`, everyone inside counts.
        """
        claim = _RegionToVerify(i, region, people)
        self._verify([claim])
        return self._verdicts[claim]

    def _verify(self, claims: Sequence[_RegionToVerify]) -> None:
        """Verify regions that were not verified before, all together."""
        new = [claim for claim in claims if claim not in self._verdicts]
        if not new:
            return
        candidates = self.candidates.take(np.array([claim.position for claim in new]))
        regions = [claim.region for claim in new]
        remaining = {
            i: self._remaining_rows(claim.region, claim.people)
            for i, claim in enumerate(new)
            if claim.people is not None
        }
        verdicts = self.verifier.verify(
            [Proposal(region) for region in regions],
            candidates.points.codes,
            candidates.points.numbers,
            candidates.combination_outcomes,
            self.method,
            remaining,
        )
        untrue = self.guarantee.untrue(regions, candidates)
        for i, (claim, verdict) in enumerate(zip(new, verdicts, strict=True)):
            if i in untrue:
                self._verdicts[claim] = refused("verification_failed")
            else:
                self._verdicts[claim] = verdict

    def _remaining_rows(self, region: Region, people: RegionPeople) -> RemainingRows:
        """Return the rows inside of a region of the people who are left."""
        key = (region, people)
        if key not in self._rows_left:
            rows = np.empty(0, dtype=np.int64)
            if people.inside:
                rows = self.population.members(region)
            handles = self.people.of_rows(rows).tolist()
            is_inside = [handle in people.inside for handle in handles]
            inside = rows[np.array(is_inside, dtype=bool)]
            mapped = inside
            if self.guarantee.keeps_released_regions:
                is_member = [handle in people.members for handle in handles]
                mapped = rows[np.array(is_member, dtype=bool)]
            self._rows_left[key] = RemainingRows(inside=inside, mapped=mapped)
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
    """The `Today` of the ledger's rule, for some candidates of a call."""

    guard: LedgerGuard
    positions: Sequence[int]  # of the candidates in the call

    def inside(self, region: Region) -> Handles:
        return self.guard.inside(region)

    def accepts(self, index: int, region: Region, people: RegionPeople) -> bool:
        verdict = self.guard.verdict_on(self.positions[index], region, people)
        return isinstance(verdict, Certified)
