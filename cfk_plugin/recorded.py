"""Release with a ledger: what left before for the same record decides what may leave now."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.errors import LedgerError
from cfk_plugin.ledger import Candidate, Decision, Ledger
from cfk_plugin.protection.base import Progress, Proposal
from cfk_plugin.region import Region, natural
from cfk_plugin.release import ReleaseStage, Verdict
from cfk_plugin.verification import Refusal

if TYPE_CHECKING:
    from cfk_plugin.counterfactual import Certificate
    from cfk_plugin.intake import Intake
    from cfk_plugin.oracle import Oracle
    from cfk_plugin.schema import Schema

_log = logging.getLogger("cfk_plugin")
_Key = tuple[int, Region]  # position of a counterfactual, and a region that is on record for it


@dataclass(frozen=True, eq=False, repr=False)
class RecordedRelease:
    """A release stage that asks a ledger before anything leaves, and has it on record by then.

    With a nominal guarantee a record that was released before, under the same policy and population, is released with
    the same region again, and a region that is new for its record may leave only if at least k people are inside of
    all that ever left for it. With the other guarantees a record keeps its region under any later policy, population
    and model: what is on record is verified anew, and today's partition is not asked for its region, because who sees
    the answer could tell by it where that partition puts the record. Where the ledger fails, nothing leaves.

    Attributes
    ----------
    stage : ReleaseStage
    ledger : Ledger
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
        """Put what is about to leave on record, or take what is on record instead.

        Parameters
        ----------
        intake, oracle
        records : sequence of str
            Their handles.
        new : mapping
            Verdicts on today's regions, of those with nothing on record.
        verified : dict
            Verdicts on regions on record; those that the ledger asks for are added.
        """
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

    Parameters
    ----------
    ledger : Ledger
    schema : Schema
    values : sequence
        One per feature, in the schema's order.
    """
    own = ledger.handle([values[j] for j in schema.canonical])
    return (own,) if list(schema.canonical) == sorted(schema.canonical) else (own, ledger.handle(values))


def _noted(verdict: Verdict, decision: Decision) -> Verdict:
    """Write on a certificate what the ledger decided and what is left after it, for the data holder."""
    if isinstance(verdict, Refusal):
        return verdict
    region, certificate = verdict
    return region, certificate.counted(ledger=decision.outcome, k_intersection=decision.people)
