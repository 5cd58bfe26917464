"""The lookup guarantee: an explainer's counterfactuals are generalised and released.

1. The model labels the counterfactuals, and counterfactuals without the outcome are withheld.
2. A protector proposes a region with at least k people for each of the others.
3. The recount certifies or withholds each region.
4. The explanations are built. The private values are the counterfactual's, as in the papers.

An attacker who reruns the protector for each person in a region, or queries the model about them,
may exclude some of the k people.
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
_DOUBLINGS = 8  # how often k may be doubled to reach l-diversity or t-closeness
_DIVERSITY = ("l_diversity", "t_closeness")
_BUILT_IN_TYPES = (*BUILT_IN.values(),)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Lookup(HostOnly):
    """The fitted state of the lookup guarantee.

    Attributes
    ----------
    population : Population
    policy : PrivacyPolicy
    model : Model
        The model without a desired outcome; see `table`.
    protector : Protector
    method : str
        The protector's name, read before it saw any data.
    random_state : int
        Seed of the protector.
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
        """Return the fitted state for these settings."""
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
        """Return one explanation, released or withheld, for each slot of a request.

        Parameters
        ----------
        request : Request
            If it has no queries, and the goal is "opposite", the label of a counterfactual is its
            desired outcome.
        counterfactuals : Rows
            The counterfactuals of the request.

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
        """Return the training table with the model for an outcome; `outcome` is the cache's key."""
        if outcome not in self._tables:
            model = self.model.with_outcome(is_desired)
            self._tables[outcome] = TrainingTable(self.population, model)
        return self._tables[outcome]

    def _already_desired(self, request: Request) -> Ints:
        """Return the slots whose query has the desired outcome already; skip invalid queries."""
        if request.queries is None:
            return np.empty(0, dtype=np.int64)
        rows = request.queries.codes
        valid = np.flatnonzero(request.queries.are_valid)
        is_met = request.goal.is_met_already(len(valid), lambda: self.model.labels(rows[valid]))
        return np.flatnonzero(np.isin(request.query_of_slot, valid[is_met]))

    def _candidates(
        self, request: Request, counterfactuals: Rows, valid: Ints
    ) -> Iterator[_SameOutcome]:
        """Yield the counterfactuals with the desired outcome, in one batch for each outcome."""
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
                outcomes = factual_labels.astype(object)
            else:
                outcomes = labels.astype(object)
        has_factuals = factual_labels is not None
        for outcome in dict.fromkeys(outcomes.tolist()):
            is_desired = _desired_test(request.goal, outcome, has_factuals=has_factuals)
            positions = np.flatnonzero((outcomes == outcome) & is_desired(labels))
            if len(positions):
                yield _SameOutcome(
                    slot[positions],
                    rows[positions],
                    labels[positions],
                    _rows_at(factuals, positions),
                    _rows_at(factual_labels, positions),
                    self.table((request.goal, outcome, has_factuals), is_desired),
                )

    def _explained(self, request: Request, candidates: _SameOutcome) -> Iterator[Explanation]:
        """Yield the released or withheld explanation of each candidate."""
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
        """Return the distinct rows, shape (n_distinct, n_features), and each row's place in them.

        They are sorted by the columns in a fixed order: a protector's random draws depend on the
        place of a row, and must not depend on the order of columns in the table.
        """
        by_name = np.concatenate([self.codes.quasi, self.codes.private])
        distinct, place = distinct_rows(rows[:, by_name])
        quasi, private = np.split(distinct, [len(self.codes.quasi)], axis=1)
        return self.codes.rows_of(quasi, private), place

    def _explanation(
        self, number: int, verdict: Verdict, candidates: _SameOutcome, i: int, outcome: Outcome
    ) -> Explanation:
        """Return the explanation of candidate i, for the query with this number."""
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
        """Return the verdict on a region for each row.

        If a region with k people lacks l-diversity or t-closeness, regions with 2k, 4k and so on
        are tried.
        """
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
            new_verdicts = self._certified(rows[too_similar], table, policy, progress)
            for i, verdict in zip(too_similar, new_verdicts, strict=True):
                verdicts[i] = verdict
        return verdicts

    def _certified(
        self,
        rows: Floats,
        table: TrainingTable,
        policy: PrivacyPolicy,
        progress: Progress | None,
    ) -> list[Verdict]:
        """Return the verdict on a region for each row.

        The protector gets `policy`, whose k may be larger; the regions are recounted for the
        user's policy.
        """
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
        if policy.k != self.policy.k:  # a proof for a larger k is not one for the policy's k
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

        The protector gets copies, so that it cannot change the rows or the policy.

        Raises
        ------
        TypeError
            If the protector does not return one proposal per counterfactual.
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
        if type(self.protector) in _BUILT_IN_TYPES:  # their regions have the population's values
            return [*proposals]
        return [rebuild(proposal, self.codes) for proposal in proposals]


@dataclass(frozen=True, eq=False, repr=False)
class _SameOutcome(HostOnly):
    """Counterfactuals with the same desired outcome.

    Attributes
    ----------
    slot : shape (n_rows,)
        The slot of each counterfactual.
    rows : shape (n_rows, n_features)
        The encoded counterfactuals.
    labels : shape (n_rows,)
        The model's labels.
    factuals : shape (n_rows, n_features), optional
        The encoded query of each counterfactual.
    factual_labels : shape (n_rows,), optional
        The model's labels of the queries; only if the outcome depends on them.
    table : TrainingTable
        The training table with the model for the outcome.
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
    """Withhold counterfactuals with faults in `explanations`; return positions of the others.

    A fault of the query counts if the desired outcome or the permitted changes depend on it. The
    others are withheld as "not_desired" until the model has labelled them.
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


def _rows_at(array: NDArray[T] | None, positions: Ints) -> NDArray[T] | None:
    """Return the rows of an array at some positions; None for None."""
    return None if array is None else array[positions]


def _are_permitted(request: Request, candidates: _SameOutcome) -> Mask:
    """Return whether each query may change to its candidate, shape (n_rows,).

    Without queries, no candidate is permitted.
    """
    position = np.arange(len(candidates))
    if candidates.factuals is None:
        return np.zeros(len(candidates), dtype=bool)
    limits = request.limits(candidates.factuals)
    are_permitted: Mask = limits.permits(candidates.rows, position)
    return are_permitted & limits.few_changes(candidates.rows, position)


def _any_label(labels: Labels) -> Mask:
    return np.ones(len(labels), dtype=bool)


def _desired_test(goal: DesiredOutcome, outcome: Any, *, has_factuals: bool) -> IsDesired:
    """Return a function from labels to whether each is the desired outcome.

    With the goal "opposite", `outcome` is the label of the query or, without queries, of the
    counterfactual.
    """
    if not goal.needs_factual_labels:
        return goal.is_met
    if not has_factuals:
        return lambda labels: np.asarray(labels == outcome, dtype=bool)

    def differs(labels: Labels) -> Mask:
        factual_labels = np.empty(len(labels), dtype=object)
        factual_labels[:] = [outcome] * len(labels)
        return goal.is_met(labels, factual_labels)

    return differs
