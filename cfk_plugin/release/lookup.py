"""The lookup guarantee: an explainer's counterfactuals are generalised and released.

At least k people are inside a region, which a protector chooses for each counterfactual. An
attacker who reruns the protector for each of these people, or asks the model about them, may be
left with fewer.

A call goes this way: counterfactuals become codes; the model labels them; a protector proposes a
region for each that has the outcome; the certifier counts each again; explanations are built.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.data.call_rules import CallRules
from cfk_plugin.data.codes import Codes, Fault, Floats, Ints, Mask, distinct_rows
from cfk_plugin.data.constraints import Limits
from cfk_plugin.data.decision import Labels
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import ALREADY_DESIRED, DesiredOutcome, Outcome
from cfk_plugin.data.outcome_model import N_CHECKED, IsDesired, Model
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.sentences import Presentation
from cfk_plugin.errors import CFKError, HostOnly, InputError, ModelError, PluginError, quiet
from cfk_plugin.hookspecs import Progress, Proposal, ProtectionRequest, Protector
from cfk_plugin.protection import BUILT_IN
from cfk_plugin.release.certify import Certifier, Claims, PeopleHere, TrainingTable
from cfk_plugin.release.fail_closed import failing_closed, withheld
from cfk_plugin.release.rebuilt_proposals import rebuild
from cfk_plugin.release.results import Explanation, GeneralizedCounterfactual, Withheld
from cfk_plugin.release.verdicts import Certified, Verdict, refused, titles_of, values_of

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
    goal : DesiredOutcome
    model : Model
        Before an outcome is chosen; see `table`.
    protector : Protector
    method : str
        The protector's name, read before it saw any data.
    seed : int
    """

    population: Population
    policy: PrivacyPolicy
    goal: DesiredOutcome
    model: Model
    protector: Protector
    method: str
    seed: int
    _tables: dict[Any, TrainingTable] = field(default_factory=dict)

    @classmethod
    def build(
        cls,
        population: Population,
        policy: PrivacyPolicy,
        goal: DesiredOutcome,
        label_model: LabelModel,
        protector: Protector,
        method: str,
        seed: int,
    ) -> Lookup:
        """Learn what is needed to protect counterfactuals."""
        model = Model(population.row_codes, label_model, _any_label)
        return cls(
            population=population,
            policy=policy,
            goal=goal,
            model=model.checked(population.coded_rows[:N_CHECKED]),
            protector=protector,
            method=method,
            seed=seed,
        )

    @property
    def codes(self) -> Codes:
        """The encoder of rows."""
        return self.population.row_codes

    def explain(
        self,
        counterfactuals: pd.DataFrame,
        number: Ints,
        rules: CallRules,
        *,
        factuals: pd.DataFrame | None = None,
        goal: DesiredOutcome | None = None,
        progress: Progress | None = None,
    ) -> list[Explanation]:
        """Return one explanation per counterfactual.

        Parameters
        ----------
        counterfactuals : DataFrame, shape (n, n_features or more)
        number : shape (n,)
            The number of the query that each explains.
        rules : CallRules
        factuals : DataFrame, shape (n, n_features), optional
            The query that each explains. Without it, the outcome that is desired is the label of
            the counterfactual if each query asks for another one than its own.
        goal : DesiredOutcome, optional
            The outcome that this call asks for.
        progress : callable, optional
            Called with (done, total).

        Returns
        -------
        list of Explanation
            All are withheld if the model fails.

        Raises
        ------
        InputError
            If what may change depends on factuals that are not given.
        """
        if factuals is None and rules.restricts(self.codes):
            raise InputError(
                "the schema or the call says how features may change; give the factuals as well"
            )
        try:
            with failing_closed():
                call = _Call(self, goal or self.goal, rules, progress)
                return call.explanations(counterfactuals, number, factuals)
        except CFKError as error:
            return withheld(number, error)

    def table(self, outcome: Any, is_desired: IsDesired) -> TrainingTable:
        """Return the training table with the model for an outcome; `outcome` identifies it."""
        if outcome not in self._tables:
            model = self.model.with_outcome(is_desired)
            self._tables[outcome] = TrainingTable(self.population, model)
        return self._tables[outcome]


def _any_label(labels: Labels) -> Mask:
    return np.ones(len(labels), dtype=bool)


@dataclass(frozen=True, eq=False, repr=False)
class _Candidates(HostOnly):
    """Counterfactuals with the same outcome, n of them.

    Attributes
    ----------
    position : shape (n,); in the call
    number : shape (n,); of the query that each explains
    rows : shape (n, n_features)
    labels : shape (n,); the model's
    factual_labels : shape (n,), optional
    limits : Limits, optional
        Of the query of each.
    table : TrainingTable
        With the model for their outcome.
    """

    position: Ints
    number: Ints
    rows: Floats
    labels: Labels
    factual_labels: Labels | None
    limits: Limits | None
    table: TrainingTable

    def __len__(self) -> int:
        return len(self.position)


@dataclass(frozen=True, eq=False, repr=False)
class _Call(HostOnly):
    """One call of `Lookup.explain`."""

    lookup: Lookup
    goal: DesiredOutcome
    rules: CallRules
    progress: Progress | None

    def explanations(
        self, counterfactuals: pd.DataFrame, number: Ints, factuals: pd.DataFrame | None
    ) -> list[Explanation]:
        """Return one explanation per counterfactual; see `Lookup.explain`."""
        codes = self.lookup.codes
        rows = codes.encode(counterfactuals)
        faults = codes.faults(counterfactuals, rows)
        factual_rows = None
        factual_faults: list[Fault | None] = [None] * len(rows)
        if factuals is not None:
            factual_rows = codes.encode(factuals)
            factual_faults = codes.faults(factuals, factual_rows)
        if self._needs_valid_factuals:
            faults = [
                fault or of_factual
                for fault, of_factual in zip(faults, factual_faults, strict=True)
            ]
        explanations: list[Explanation] = []
        for query, fault in zip(number.tolist(), faults, strict=True):
            if fault is None:
                explanations.append(Withheld(query, "not_desired"))
            else:
                explanations.append(Withheld(query, fault.reason, fault.columns))
        valid = np.array([i for i, fault in enumerate(faults) if fault is None], dtype=np.int64)
        for i in self._already_desired(factual_rows, factual_faults).tolist():
            explanations[i] = Withheld(int(number[i]), ALREADY_DESIRED)
            valid = valid[valid != i]
        if len(valid):
            for candidates in self._candidates(rows, factual_rows, valid, number):
                explained = self._explained(candidates)
                for i, explanation in zip(candidates.position.tolist(), explained, strict=True):
                    explanations[i] = explanation
        return explanations

    @property
    def _needs_valid_factuals(self) -> bool:
        return self.goal.needs_factual_labels or self.rules.restricts(self.lookup.codes)

    def _already_desired(
        self, factual_rows: Floats | None, factual_faults: Sequence[Fault | None]
    ) -> Ints:
        """Return the positions whose query has the outcome already, as far as it can be read."""
        if factual_rows is None:
            return np.empty(0, dtype=np.int64)
        is_readable = np.array([fault is None for fault in factual_faults], dtype=bool)
        readable = np.flatnonzero(is_readable)
        is_met = self.goal.is_met_already(
            len(readable), lambda: self.lookup.model.labels(factual_rows[readable])
        )
        return readable[is_met]

    def _candidates(
        self, rows: Floats, factual_rows: Floats | None, valid: Ints, number: Ints
    ) -> list[_Candidates]:
        """Return the counterfactuals that have the outcome, by outcome."""
        labels = self.lookup.model.labels(rows[valid])
        factual_labels = None
        if not self.goal.needs_factual_labels:
            outcomes = np.zeros(len(valid), dtype=object)
        elif factual_rows is None:
            outcomes = labels.astype(object)
        else:
            factual_labels = self.lookup.model.labels(factual_rows[valid])
            outcomes = factual_labels.astype(object)
        candidates = []
        for outcome in dict.fromkeys(outcomes.tolist()):
            is_desired = self._is_desired(outcome, knows_factual=factual_labels is not None)
            some = np.flatnonzero((outcomes == outcome) & is_desired(labels))
            if not len(some):
                continue
            limits = None
            if factual_rows is not None and self.rules.restricts(self.lookup.codes):
                limits = self.rules.limits(self.lookup.codes, factual_rows[valid[some]])
            key = (self.goal, outcome, factual_labels is not None)
            labels_of_factuals = None if factual_labels is None else factual_labels[some]
            candidates.append(
                _Candidates(
                    valid[some],
                    number[valid[some]],
                    rows[valid[some]],
                    labels[some],
                    labels_of_factuals,
                    limits,
                    self.lookup.table(key, is_desired),
                )
            )
        return candidates

    def _is_desired(self, outcome: Any, *, knows_factual: bool) -> IsDesired:
        """Return the test of labels for the outcome of some counterfactuals.

        `outcome` is the label of the factual, or, if that is not known, of the counterfactual.
        """
        goal = self.goal
        if not goal.needs_factual_labels:
            return goal.is_met
        if not knows_factual:
            return lambda labels: np.asarray(labels == outcome, dtype=bool)

        def differs(labels: Labels) -> Mask:
            factual_labels = np.empty(len(labels), dtype=object)
            factual_labels[:] = [outcome] * len(labels)
            return goal.is_met(labels, factual_labels)

        return differs

    def _explained(self, candidates: _Candidates) -> list[Explanation]:
        """Return an explanation of each candidate."""
        distinct, place = self._distinct(candidates.rows)
        verdict_of_row = self._verdicts(distinct, candidates.table)
        verdicts = [verdict_of_row[i] for i in place.tolist()]
        if candidates.limits is not None:
            verdicts = _permitted(verdicts, candidates.rows, candidates.limits)
        if self.progress is not None:
            self.progress(len(distinct), len(distinct))
        outcomes = self.goal.outcomes(
            candidates.labels,
            candidates.factual_labels,
            self.lookup.model.label_model.classes,
        )
        return [
            self._explanation(int(number), verdict, row, outcome)
            for number, verdict, row, outcome in zip(
                candidates.number, verdicts, candidates.rows, outcomes, strict=True
            )
        ]

    def _distinct(self, rows: Floats) -> tuple[Floats, Ints]:
        """Return the distinct rows, shape (n_distinct, n_features), and the place of each row.

        They are in the order of columns by name: draws depend on the place of a row, and must not
        depend on how the table is laid out.
        """
        codes = self.lookup.codes
        by_name = np.concatenate([codes.quasi, codes.private])
        distinct, place = distinct_rows(rows[:, by_name])
        quasi, private = np.split(distinct, [len(codes.quasi)], axis=1)
        return codes.rows_of(quasi, private), place

    def _explanation(
        self, query: int, verdict: Verdict, row: Floats, outcome: Outcome
    ) -> Explanation:
        """Return what a verdict releases of a counterfactual, shape (n_features,)."""
        if not isinstance(verdict, Certified):
            return Withheld(query, verdict.reason, refused_k=verdict.refused_k)
        codes = self.lookup.codes
        return GeneralizedCounterfactual(
            query=query,
            region=verdict.region,
            released=values_of(codes, codes.private, row[codes.private]),
            certificate=verdict.certificate,
            recount=verdict.recount,
            titles=titles_of(verdict.region, codes),
            outcome=outcome,
            presentation=Presentation.of(self.lookup.population.schema),
        )

    # Regions

    def _verdicts(self, rows: Floats, table: TrainingTable) -> list[Verdict]:
        """Ask for k people and, if they are too similar, again for 2k, 4k, ... people."""
        policy = self.lookup.policy
        verdicts = self._certified(rows, table, policy)
        for _ in range(_DOUBLINGS):
            too_similar = [
                i
                for i, verdict in enumerate(verdicts)
                if isinstance(verdict, Withheld) and verdict.reason in _DIVERSITY
            ]
            if not too_similar or 2 * policy.k > self.lookup.population.n_people:
                break
            policy = replace(policy, k=2 * policy.k)
            again = self._certified(rows[too_similar], table, policy)
            for i, verdict in zip(too_similar, again, strict=True):
                verdicts[i] = verdict
        return verdicts

    def _certified(
        self, rows: Floats, table: TrainingTable, policy: PrivacyPolicy
    ) -> list[Verdict]:
        """Ask for regions for the people that a policy wants; count them for our own policy."""
        lookup = self.lookup
        try:
            with quiet("raised {}; its explanations are withheld", PluginError, let=ModelError):
                proposals = self._proposals(rows, table, policy)
        except PluginError as error:
            _log.warning("protector %s %s", lookup.method, error)
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
        if policy.k != lookup.policy.k:  # no optimality is claimed for more people
            proofs = [Proposal(proposal.region) for proposal in proofs]
        certifier = Certifier(
            model=table.model,
            policy=lookup.policy,
            regions=[proposal.region for proposal in proofs if proposal.region is not None],
            people=PeopleHere(table, counterfactuals=rows[positions]),
            fingerprint=lookup.population.fingerprint,
            method=lookup.method,
            proofs=proofs,
        )
        private = rows[np.ix_(positions, lookup.codes.private)]
        certified = certifier.verdicts(Claims(np.arange(len(positions)), private))
        for i, verdict in zip(positions.tolist(), certified, strict=True):
            verdicts[i] = verdict
        return verdicts

    def _proposals(
        self, rows: Floats, table: TrainingTable, policy: PrivacyPolicy
    ) -> list[Proposal | None]:
        """Return the protector's proposals; None for a malformed one.

        The protector gets copies, or arrays that cannot be written, so what it does to its request
        has no effect.

        Raises
        ------
        TypeError
            If it does not return one proposal per counterfactual.
        """
        protector = self.lookup.protector

        def has_outcome(counterfactual: Ints, rows: Floats) -> Mask:  # noqa: ARG001
            return table.model.has_outcome(rows)

        request = ProtectionRequest(
            population=self.lookup.population,
            policy=copy(policy),
            rows=rows.copy(),
            has_outcome=has_outcome,
            seed=self.lookup.seed,
            progress=self.progress,
        )
        proposals = list(protector.protect(request))
        is_complete = len(proposals) == len(rows)
        if not is_complete or any(type(proposal) is not Proposal for proposal in proposals):
            raise TypeError("a protector must return one Proposal per counterfactual")
        if type(protector) in _OWN:
            return [*proposals]
        return [rebuild(proposal, self.lookup.codes) for proposal in proposals]


def _permitted(verdicts: Sequence[Verdict], rows: Floats, limits: Limits) -> list[Verdict]:
    """Withhold counterfactuals, shape (n, n_features), that their query may not change to."""
    query = np.arange(len(rows))
    is_permitted = limits.permits(rows, query) & limits.few_changes(rows, query)
    return [
        verdict if is_fine else refused("no_actionable_answer")
        for verdict, is_fine in zip(verdicts, is_permitted.tolist(), strict=True)
    ]
