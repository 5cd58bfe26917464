"""The lookup guarantee: an explainer's counterfactuals are generalised and released.

At least k people are inside a region, which a protector chooses for each counterfactual. Private
values are the counterfactual's own, as the papers' method releases them. An attacker who reruns the
protector for each of these people, or asks the model about them, may be left with fewer.

The model labels the counterfactuals; a protector proposes a region for each that has the outcome;
the recount certifies each or withholds it; explanations are built.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.codes import Codes, Floats, Ints, Mask, distinct_rows
from cfk_plugin.data.decision import Labels
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import ALREADY_DESIRED, DesiredOutcome, Outcome
from cfk_plugin.data.outcome_model import N_CHECKED, IsDesired, Model
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.errors import HostOnly, ModelError, PluginError, quiet
from cfk_plugin.hookspecs import Progress, Proposal, ProtectionRequest, Protector
from cfk_plugin.protection import BUILT_IN
from cfk_plugin.release.rebuilt_proposals import rebuild
from cfk_plugin.release.recount import (
    Claims,
    PeopleHere,
    Recounter,
    TrainingTable,
    Verdict,
    refused,
)
from cfk_plugin.release.request import Request, Rows
from cfk_plugin.release.results import Explanation, GeneralizedCounterfactual, Withheld

T = TypeVar("T", bound=np.generic)
_log = logging.getLogger("cfk_plugin")
_DOUBLINGS = 8  # how often k is doubled to reach l-diversity or t-closeness
_DIVERSITY = ("l_diversity", "t_closeness")
# protectors whose regions are made of the population's own values
_OWN = (*BUILT_IN.values(),)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Lookup(HostOnly):
    """What a fit under a lookup guarantee has learned.

    Attributes
    ----------
    population : Population
    policy : PrivacyPolicy
    model : Model
        Before an outcome is chosen; see `table`.
    protector : Protector
    method : str
        The protector's name, read before it saw any data.
    random_state : int
    """

    population: Population
    policy: PrivacyPolicy
    model: Model
    protector: Protector
    method: str
    random_state: int
    _tables: dict[Any, TrainingTable] = field(default_factory=dict)

    @classmethod
    def build(
        cls,
        population: Population,
        policy: PrivacyPolicy,
        label_model: LabelModel,
        protector: Protector,
        method: str,
        random_state: int,
    ) -> Lookup:
        """Learn what is needed to protect counterfactuals."""
        model = Model(population.row_codes, label_model, _any_label)
        return cls(
            population=population,
            policy=policy,
            model=model.checked(population.coded_rows[:N_CHECKED]),
            protector=protector,
            method=method,
            random_state=random_state,
        )

    @property
    def codes(self) -> Codes:
        """The encoder of rows."""
        return self.population.row_codes

    def answer(self, request: Request, counterfactuals: Rows) -> list[Explanation]:
        """Return the explanations that a request asks for.

        Parameters
        ----------
        request : Request
            If its queries are not known, and each asks for another outcome than its own, the label
            of a counterfactual is the outcome that is desired.
        counterfactuals : Rows
            Those of the request.

        Raises
        ------
        CFKError
            If the model fails.
        """
        explanations: list[Explanation] = [*request.withheld("none_found")]
        valid = _withhold_faults(explanations, request, counterfactuals)
        for i in self._already_desired(request).tolist():
            explanations[i] = Withheld(request.number_of_slot[i], ALREADY_DESIRED)
            valid = valid[request.slot_of_counterfactual[valid] != i]
        for candidates in self._candidates(request, counterfactuals, valid):
            for i, explanation in zip(
                candidates.slot.tolist(), self._explained(request, candidates), strict=True
            ):
                explanations[i] = explanation
        return explanations

    def table(self, outcome: Any, is_desired: IsDesired) -> TrainingTable:
        """Return the training table with the model for an outcome; `outcome` identifies it."""
        if outcome not in self._tables:
            model = self.model.with_outcome(is_desired)
            self._tables[outcome] = TrainingTable(self.population, model)
        return self._tables[outcome]

    def _already_desired(self, request: Request) -> Ints:
        """Return the slots whose query has the outcome already, as far as it can be read."""
        if request.queries is None:
            return np.empty(0, dtype=np.int64)
        rows = request.queries.codes
        valid = np.flatnonzero(request.queries.are_valid)
        is_met = request.goal.is_met_already(len(valid), lambda: self.model.labels(rows[valid]))
        return np.flatnonzero(np.isin(request.query_of_slot, valid[is_met]))

    def _candidates(
        self, request: Request, counterfactuals: Rows, valid: Ints
    ) -> Iterator[_SameOutcome]:
        """Yield the counterfactuals that have the outcome, by outcome."""
        if not len(valid):
            return
        slot = request.slot_of_counterfactual[valid]
        rows = counterfactuals.codes[valid]
        labels = self.model.labels(rows)
        factuals = None
        if request.queries is not None:
            factuals = request.queries.codes[request.query_of_slot[slot]]
        factual_labels = None
        outcomes = np.zeros(len(valid), dtype=object)
        if request.goal.needs_factual_labels:
            if factuals is not None:
                factual_labels = self.model.labels(factuals)
            known_labels = labels if factual_labels is None else factual_labels
            outcomes = known_labels.astype(object)
        for outcome in dict.fromkeys(outcomes.tolist()):
            knows_factual = factual_labels is not None
            is_desired = _test_of(request.goal, outcome, knows_factual=knows_factual)
            some = np.flatnonzero((outcomes == outcome) & is_desired(labels))
            if len(some):
                yield _SameOutcome(
                    slot[some],
                    rows[some],
                    labels[some],
                    _taken(factuals, some),
                    _taken(factual_labels, some),
                    self.table((request.goal, outcome, knows_factual), is_desired),
                )

    def _explained(self, request: Request, candidates: _SameOutcome) -> Iterator[Explanation]:
        """Yield an explanation of each candidate."""
        distinct, place = self._distinct(candidates.rows)
        verdict_of_row = self._verdicts(distinct, candidates.table, request.progress)
        verdicts = [verdict_of_row[i] for i in place.tolist()]
        if request.restricts_changes:
            for i in np.flatnonzero(~_are_permitted(request, candidates)).tolist():
                verdicts[i] = refused("no_actionable_answer")
        if request.progress is not None:
            request.progress(len(distinct), len(distinct))
        outcomes = request.goal.outcomes(
            candidates.labels, candidates.factual_labels, self.model.label_model.classes
        )
        for i, (verdict, outcome) in enumerate(zip(verdicts, outcomes, strict=True)):
            number = request.number_of_slot[int(candidates.slot[i])]
            yield self._explanation(number, verdict, candidates, i, outcome)

    def _distinct(self, rows: Floats) -> tuple[Floats, Ints]:
        """Return the distinct rows, shape (n_distinct, n_features), and the place of each row.

        They are in the order of columns by name: draws depend on the place of a row, and must not
        depend on how the table is laid out.
        """
        by_name = np.concatenate([self.codes.quasi, self.codes.private])
        distinct, place = distinct_rows(rows[:, by_name])
        quasi, private = np.split(distinct, [len(self.codes.quasi)], axis=1)
        return self.codes.rows_of(quasi, private), place

    def _explanation(
        self, number: int, verdict: Verdict, candidates: _SameOutcome, i: int, outcome: Outcome
    ) -> Explanation:
        """Return what a verdict releases of a candidate, the answer to a query with a number."""
        if isinstance(verdict, Withheld):
            return Withheld(number, verdict.reason, refused_k=verdict.refused_k)
        row = candidates.rows[i]
        if candidates.factuals is not None:
            is_unchanged = row == candidates.factuals[i]
            unchanged = [
                self.codes.names[j] for j in self.codes.private.tolist() if is_unchanged[j]
            ]
            recount = replace(verdict.recount, unchanged=tuple(unchanged))
            verdict = verdict._replace(recount=recount)
        private = row[self.codes.private]
        return GeneralizedCounterfactual.of_verdict(
            verdict, number, private, outcome, self.codes, self.population.schema
        )

    # Regions

    def _verdicts(
        self, rows: Floats, table: TrainingTable, progress: Progress | None
    ) -> list[Verdict]:
        """Ask for k people and, if they are too similar, again for 2k, 4k, ... people."""
        policy = self.policy
        verdicts = self._certified(rows, table, policy, progress)
        for _ in range(_DOUBLINGS):
            too_similar = [
                i
                for i, verdict in enumerate(verdicts)
                if isinstance(verdict, Withheld) and verdict.reason in _DIVERSITY
            ]
            if not too_similar or 2 * policy.k > self.population.n_people:
                break
            policy = replace(policy, k=2 * policy.k)
            again = self._certified(rows[too_similar], table, policy, progress)
            for i, verdict in zip(too_similar, again, strict=True):
                verdicts[i] = verdict
        return verdicts

    def _certified(
        self,
        rows: Floats,
        table: TrainingTable,
        policy: PrivacyPolicy,
        progress: Progress | None,
    ) -> list[Verdict]:
        """Ask for regions for the people that a policy wants; count them for our own policy."""
        try:
            with quiet("raised {}; its explanations are withheld", PluginError, let=ModelError):
                proposals = self._proposals(rows, table, policy, progress)
        except PluginError as error:
            _log.warning("protector %s %s", self.method, error)
            return [refused("protector_failed")] * len(rows)
        malformed = refused("verification_failed")
        infeasible = refused("infeasible")
        verdicts: list[Verdict] = [
            malformed if proposal is None else infeasible for proposal in proposals
        ]
        usable = [
            (i, proposal)
            for i, proposal in enumerate(proposals)
            if proposal is not None and proposal.region is not None
        ]
        if not usable:
            return verdicts
        positions = np.array([i for i, _ in usable])
        proofs = [proposal for _, proposal in usable]
        if policy.k != self.policy.k:  # no optimality is claimed for more people
            proofs = [Proposal(proposal.region) for proposal in proofs]
        regions = [proposal.region for proposal in proofs if proposal.region is not None]
        recounter = Recounter(
            model=table.model,
            policy=self.policy,
            people=PeopleHere(table, regions, counterfactuals=rows[positions]),
            fingerprint=self.population.fingerprint,
            method=self.method,
            proofs=proofs,
        )
        private = rows[np.ix_(positions, self.codes.private)]
        recounted = recounter.judge(Claims(np.arange(len(positions)), private))
        for i, verdict in zip(positions.tolist(), recounted, strict=True):
            verdicts[i] = verdict
        return verdicts

    def _proposals(
        self,
        rows: Floats,
        table: TrainingTable,
        policy: PrivacyPolicy,
        progress: Progress | None,
    ) -> list[Proposal | None]:
        """Return the protector's proposals; None for a malformed one.

        The protector gets copies, or arrays that cannot be written, so what it does to its request
        has no effect.

        Raises
        ------
        TypeError
            If it does not return one proposal per counterfactual.
        """

        def has_outcome(counterfactual: Ints, rows: Floats) -> Mask:  # noqa: ARG001
            return table.model.has_outcome(rows)

        request = ProtectionRequest(
            population=self.population,
            policy=copy(policy),
            rows=rows.copy(),
            has_outcome=has_outcome,
            random_state=self.random_state,
            progress=progress,
        )
        proposals = list(self.protector.protect(request))
        is_complete = len(proposals) == len(rows)
        if not is_complete or any(type(proposal) is not Proposal for proposal in proposals):
            raise TypeError("a protector must return one Proposal per counterfactual")
        if type(self.protector) in _OWN:
            return [*proposals]
        return [rebuild(proposal, self.codes) for proposal in proposals]


@dataclass(frozen=True, eq=False, repr=False)
class _SameOutcome(HostOnly):
    """Counterfactuals with the same outcome, n of them.

    Attributes
    ----------
    slot : shape (n,); of the explanation that each is for
    rows : shape (n, n_features)
    labels : shape (n,); the model's
    factuals : shape (n, n_features), optional; the query of each
    factual_labels : shape (n,), optional
    table : TrainingTable
        With the model for their outcome.
    """

    slot: Ints
    rows: Floats
    labels: Labels
    factuals: Floats | None
    factual_labels: Labels | None
    table: TrainingTable

    def __len__(self) -> int:
        return len(self.slot)


def _withhold_faults(
    explanations: list[Explanation], request: Request, counterfactuals: Rows
) -> Ints:
    """Withhold explanations whose values cannot be read; return the other counterfactuals.

    Those of the queries count if the outcome, or what may change, depends on them. A
    counterfactual that is valid is withheld for lack of the outcome until it is known to have it.
    """
    needs_queries = request.goal.needs_factual_labels or request.restricts_changes
    valid = []
    for i, slot in enumerate(request.slot_of_counterfactual.tolist()):
        fault = counterfactuals.faults[i]
        if fault is None and needs_queries and request.queries is not None:
            fault = request.queries.faults[int(request.query_of_slot[slot])]
        number = request.number_of_slot[slot]
        if fault is None:
            valid.append(i)
            explanations[slot] = Withheld(number, "not_desired")
        else:
            explanations[slot] = Withheld(number, fault.reason, fault.columns)
    return np.array(valid, dtype=np.int64)


def _taken(array: NDArray[T] | None, positions: Ints) -> NDArray[T] | None:
    """Return some rows of an array, if there is one."""
    return None if array is None else array[positions]


def _are_permitted(request: Request, candidates: _SameOutcome) -> Mask:
    """Return which candidates their query may change to, shape (n,); none if it is not known."""
    position = np.arange(len(candidates))
    if candidates.factuals is None:
        return np.zeros(len(candidates), dtype=bool)
    limits = request.limits(candidates.factuals)
    are_permitted: Mask = limits.permits(candidates.rows, position)
    return are_permitted & limits.few_changes(candidates.rows, position)


def _any_label(labels: Labels) -> Mask:
    return np.ones(len(labels), dtype=bool)


def _test_of(goal: DesiredOutcome, outcome: Any, *, knows_factual: bool) -> IsDesired:
    """Return the test of labels for the outcome of some counterfactuals.

    `outcome` is the label of the factual, or, if that is not known, of the counterfactual.
    """
    if not goal.needs_factual_labels:
        return goal.is_met
    if not knows_factual:
        return lambda labels: np.asarray(labels == outcome, dtype=bool)

    def differs(labels: Labels) -> Mask:
        factual_labels = np.empty(len(labels), dtype=object)
        factual_labels[:] = [outcome] * len(labels)
        return goal.is_met(labels, factual_labels)

    return differs
