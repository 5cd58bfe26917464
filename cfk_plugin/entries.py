"""From checked counterfactuals, or queries, to entries: what may be asked, what is released, what is withheld."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.counterfactual import Entry, GeneralizedCounterfactual, Outcome, Suppressed
from cfk_plugin.effective import with_effective
from cfk_plugin.errors import CFKError, ModelError, PluginError, PolicyError, quiet
from cfk_plugin.goal import Goal
from cfk_plugin.guarantees import Ground
from cfk_plugin.intake import Intake, take_in
from cfk_plugin.label_model import LabelModel
from cfk_plugin.oracle import Oracle, RowOracle
from cfk_plugin.population import Population
from cfk_plugin.private_release import disclosed
from cfk_plugin.protection.base import Progress
from cfk_plugin.recorded import RecordedRelease
from cfk_plugin.region import Region
from cfk_plugin.release import ReleaseStage, Verdict
from cfk_plugin.verification import Refusal

_log = logging.getLogger("cfk_plugin")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EntryStage:
    """What entries are made of, bound once. Host side only.

    Attributes
    ----------
    population : Population
    model : LabelModel
    goal : Goal
    rows : RowOracle
    ground : Ground
        Partition and catalogue, where the guarantee has them.
    release : ReleaseStage or RecordedRelease
    measures : bool
        Whether the effective k of regions that are chosen one by one is measured.
    """

    population: Population
    model: LabelModel
    goal: Goal
    rows: RowOracle
    ground: Ground
    release: ReleaseStage | RecordedRelease
    measures: bool = False

    def of_counterfactuals(
        self,
        intake: Intake,
        query: NDArray[np.int64],
        factual_labels: NDArray[Any] | None,
        progress: Progress | None = None,
        goal: Goal | None = None,
    ) -> list[Entry]:
        """Return one entry per counterfactual; with a catalogue each is replaced by the nearest entry of it.

        A call with a goal of its own (`Goal.of_call`) is judged by that.
        """
        if goal is not None:
            stage, labels = replace(self, goal=goal), factual_labels if goal.is_opposite else None
            return stage.of_counterfactuals(intake, query, labels, progress)
        entries = _faulty_or(intake, query, "not_desired")
        usable = _usable(intake)
        if not len(usable):
            return entries
        own = self.model(intake.take(usable).frame).astype(object)
        factual = None if factual_labels is None else factual_labels[usable]
        desired = self.goal.judge(factual, own)(own, np.arange(len(usable)))
        usable, own = usable[desired], own[desired]
        factual = None if factual is None else factual[desired]
        if self.ground.catalogue is not None:
            self._from_catalogue(entries, intake, usable, own, factual, progress)
        else:
            self._fill(entries, usable, intake.take(usable), own, factual, progress)
        return entries

    def of_queries(self, intake: Intake, query: NDArray[np.int64], progress: Progress | None = None) -> list[Entry]:
        """Return one entry of the catalogue per query: the nearest.

        Raises
        ------
        PolicyError
            If the guarantee has no catalogue.
        """
        if self.ground.catalogue is None:
            raise PolicyError('explaining queries without an explainer needs guarantee="catalogue"')
        entries = _faulty_or(intake, query, "none_found")
        usable = _usable(intake)
        if len(usable):
            asks = self.goal.is_opposite  # a query that the model cannot read must not cost the others theirs
            factual = self.model(intake.take(usable).frame).astype(object) if asks else None
            self._from_catalogue(entries, intake, usable, None, factual, progress)
        return entries

    def regions(self, intake: Intake) -> list[Region | None]:
        """Return the region that protection alone maps each record to, whatever its outcome; nothing is released."""
        found: list[Region | None] = [None] * len(intake)
        usable = _usable(intake)
        if len(usable):
            some = intake.take(usable)
            own = self.model(some.frame).astype(object)
            oracle = Oracle(self.model, self.goal.judge(None, own), self.rows, some.frame)
            for at, region in zip(usable, self.release.propose(some, oracle, self.ground.sides.of(own)), strict=True):
                found[at] = region
        return found

    def _from_catalogue(
        self,
        entries: list[Entry],
        intake: Intake,
        at: NDArray[np.int64],
        own: NDArray[Any] | None,
        factual: NDArray[Any] | None,
        progress: Progress | None,
    ) -> None:
        """Answer with the rows behind the nearest entries; where there is none, say so."""
        catalogue = self.ground.catalogue
        if catalogue is None or not len(at):
            return
        asked = intake.take(at)
        open_to = self.ground.sides.open_to(own, factual, len(at))
        rows = catalogue.nearest(asked.frame, *asked.quasi_identifiers, open_to)
        if own is not None:  # counterfactuals, not queries
            groups = catalogue.partition.group_of(asked.codes, asked.numbers, self.ground.sides.of(own))
            itself = catalogue.own(asked.codes, groups)
            rows = np.where(itself >= 0, itself, rows)
        for i in at[rows < 0]:
            entries[i] = Suppressed(entries[i].query, "infeasible")
        found = rows >= 0
        if found.any():
            chosen = take_in(self.population.rows(rows[found]), self.population)
            wanted = None if factual is None else factual[found]
            self._fill(entries, at[found], chosen, self.rows.labels(rows[found]), wanted, progress)

    def _fill(
        self,
        entries: list[Entry],
        at: NDArray[np.int64],
        accepted: Intake,
        own: NDArray[Any],
        factual: NDArray[Any] | None,
        progress: Progress | None,
    ) -> None:
        """Protect and verify counterfactuals with the desired outcome, and put the results in their places."""
        if not len(at):
            return
        judge, cells = self.goal.judge(factual, own), accepted.quasi_identifiers[0]
        oracle = Oracle(self.model, judge, self.rows, accepted.frame, desired_at=cells)
        goals = (own if factual is None else factual).tolist()
        verdicts = self.release.run(accepted, goals, oracle, self.ground.sides.of(own), progress)
        if self.measures:
            verdicts = with_effective(verdicts, accepted, judge, self.model, self.rows, self.release)
        for row, (i, verdict) in enumerate(zip(at.tolist(), verdicts, strict=True)):
            outcome = self.goal.outcome(self.model, None if factual is None else factual[row], own[row])
            entries[i] = self._entry(entries[i].query, accepted, row, verdict, outcome)

    def _entry(self, query: int, accepted: Intake, row: int, verdict: Verdict, outcome: Outcome) -> Entry:
        if isinstance(verdict, Refusal):
            return Suppressed(query, verdict.reason, refused_k=verdict.k)
        region, certificate = verdict
        released = disclosed(certificate, accepted, row)
        region = Region({name: region[name] for name in self.population.schema.names("quasi-identifier")})
        named = {name: self.population.domains[name].label(part) for name, part in region.items()}
        labels = {name: label for name, label in named.items() if label is not None}
        return GeneralizedCounterfactual(query, region, released, certificate, labels, certificate.withheld, outcome)


def _usable(intake: Intake) -> NDArray[np.int64]:
    return np.array([i for i, fault in enumerate(intake.faults) if fault is None], dtype=np.int64)


def _faulty_or(intake: Intake, query: Sequence[int] | NDArray[np.int64], reason: str) -> list[Entry]:
    return [
        Suppressed(int(q), *fault) if fault else Suppressed(int(q), reason)
        for q, fault in zip(query, intake.faults, strict=True)
    ]


def failing_closed() -> AbstractContextManager[None]:
    """Turn whatever fails on the way to entries into an error for `withheld`: nothing unprotected may leave."""
    return quiet("{} in the pipeline", PluginError, let=ModelError)


def withheld(query: NDArray[np.int64], error: CFKError) -> list[Entry]:
    """Withhold everything because of an error of `failing_closed`."""
    by_model = isinstance(error, ModelError)  # which a plugin may have raised, with a text of its own
    _log.warning("explanations withheld: %s", "ModelError in the pipeline" if by_model else error)
    reason = "model_failed" if by_model else "protector_failed"
    return [Suppressed(int(q), reason) for q in query]
