"""The way of a counterfactual, from top to bottom in `Pipeline.release`; whatever fails is
withheld.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.data.constraints import Constraints, Rules
from cfk_plugin.data.domain import Rows
from cfk_plugin.data.encoded_table import FEW, EncodedTable, encode, valid_rows
from cfk_plugin.data.model import (
    CombinationOutcomes,
    KnownOutcomes,
    LabelModel,
    Labels,
    TrainingLabels,
    rows_for_cells,
)
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.policy import ALREADY_DESIRED, Mask, PrivacyPolicy, SearchStart
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region
from cfk_plugin.data.sentences import Presentation
from cfk_plugin.errors import CFKError, HostOnly, LedgerError, ModelError, PluginError, quiet
from cfk_plugin.hookspecs import NativeStatus, Progress, Proposal, ProtectionRequest, Protector
from cfk_plugin.plugins import PluginManager, worst
from cfk_plugin.protection import BUILT_IN
from cfk_plugin.protection.answers.moves import SearchOptions
from cfk_plugin.protection.answers.search import ExplainerStart, answer, nearest
from cfk_plugin.protection.partition.partition import ReciprocalProtector
from cfk_plugin.records.rule import Handles
from cfk_plugin.release.candidates import Candidates
from cfk_plugin.release.detection import Detector
from cfk_plugin.release.guarantee import (
    Guarantee,
    Sources,
    rebuild,
    sources_of,
    with_answer_facts,
)
from cfk_plugin.release.ledger_guard import LedgerGuard
from cfk_plugin.release.person_handles import PersonHandles
from cfk_plugin.release.query_outcomes import ReadableQueries, with_unknown_category
from cfk_plugin.release.results import Explanation, Withheld
from cfk_plugin.release.verification import Certified, Verdict, Verifier, entries_of, refused

if TYPE_CHECKING:
    from cfk_plugin.protection.catalogue.catalogue import Catalogue
    from cfk_plugin.records.ledger import Ledger

_log = logging.getLogger("cfk_plugin")
_DOUBLINGS = 8  # how often k is doubled to reach l-diversity or t-closeness
_DIVERSITY = ("l_diversity", "t_closeness")
_AT_ONCE = 256  # entries of a catalogue that are verified at once
# protectors whose regions are made of the population's own values
_OWN = (*BUILT_IN.values(), ReciprocalProtector)


@dataclass(frozen=True, eq=False, repr=False)
class Pipeline(HostOnly):
    """What a fit has made, and the way of a counterfactual through it."""

    population: Population
    policy: PrivacyPolicy
    model: LabelModel
    goal: DesiredOutcome
    rows: TrainingLabels
    guarantee: Guarantee
    protector: Protector
    method: str  # the protector's name, read before it saw any data
    plugins: PluginManager
    detector: Detector
    verifier: Verifier
    search: SearchOptions  # how a catalogue's answers are chosen
    ledger: Ledger | None = None
    people: PersonHandles | None = None  # as the ledger knows them
    # who was in no table whose catalogue was published, or None if nothing was
    newcomers: Callable[[], Handles | None] | None = None
    measures_k_effective: bool = False
    seed: int = 0
    # whether the explainer's adapter declares that no answer depends on a single row, so that
    # answers may keep a counterfactual's private values even where a catalogue's are shared
    depends_on_no_row: bool = False

    def release(
        self,
        frame: pd.DataFrame,
        query: Rows,
        factual: Labels | EncodedTable | None = None,
        *,
        factuals: pd.DataFrame | None = None,
        rules: Rules | None = None,
        max_changes: int | None = None,
        instance_based: bool = False,
        progress: Progress | None = None,
    ) -> tuple[list[Explanation], tuple[NativeStatus | None, ...]]:
        """Return an entry and a finding per counterfactual of a table that has every feature.

        `query` says which query each answers, `factuals` has that query's row if known, `factual`
        the model's label there if known, `rules` what may change, and `max_changes` how much of it.
        Where the goal names an outcome, a query that has it already is not answered.
        """
        is_limited = bool(rules) or max_changes is not None
        try:
            with failing_closed():
                encoded, asked = encode(frame, self.population.encoder), None
                queries: EncodedTable | None = None
                if factuals is not None and (
                    is_limited or self.guarantee.catalogue is not None or not self.goal.is_opposite
                ):
                    queries = encode(factuals, self.population.encoder)
                if queries is not None and (is_limited or self.guarantee.catalogue is not None):
                    asked = Constraints(queries, rules or {}, max_changes)
                findings = self.detect(frame, encoded, instance_based=instance_based)
                if factual is None and factuals is not None and self.goal.is_opposite:
                    factual = self.rows.queried(factuals, query)
                named, already = None, None
                if factuals is not None and queries is not None and not self.goal.is_opposite:
                    named = ReadableQueries.build(queries, query)
                    unknown = with_unknown_category(queries)
                    if asked is None and len(unknown):
                        # Apart from the others, which a model that cannot read these would spoil.
                        already = np.zeros(len(query), dtype=bool)
                        already[unknown] = self.with_outcome(factuals.take(unknown))
                entries = self.entries_of(encoded, query, factual, progress, asked, named, already)
                return entries, findings
        except CFKError as error:
            return withheld(query, error), (None,) * len(query)

    def answer(
        self,
        frame: pd.DataFrame,
        query: Rows,
        rules: Rules,
        progress: Progress | None = None,
        *,
        max_changes: int | None = None,
    ) -> list[Explanation]:
        """Return, for each query, the catalogue's nearest answer that is true for the person who
        asks.
        """
        try:
            with failing_closed():
                encoded, factual = encode(frame, self.population.encoder), None
                at = valid_rows(
                    encoded
                )  # a query that the model cannot read must not spoil the others
                if self.goal.is_opposite and len(at):
                    factual = self.model(encoded.take(at).frame).astype(object)
                asked = Constraints(encoded, rules, max_changes)
                return self._entries(encoded, query, at, None, factual, progress, asked)
        except CFKError as error:
            return withheld(query, error)

    def catalogue_entries(self, catalogue: Catalogue, which: Rows) -> Iterator[Explanation]:
        """Yield some entries of the catalogue as released, or why they are withheld; a ledger
        records them.
        """
        for start in range(0, len(which), _AT_ONCE):
            with failing_closed():
                at = which[start : start + _AT_ONCE]
                encoded, own = (
                    encode(catalogue.points.take(at), self.population.encoder),
                    catalogue.labels[at],
                )
                combination_outcomes = CombinationOutcomes(
                    self.goal.test_for(None, own), self.rows, encoded
                )
                about = (
                    encoded,
                    np.arange(len(at)),
                    own,
                    None,
                    combination_outcomes,
                    self.guarantee.eligibility.of(own),
                )
                candidates = Candidates(*about, entries=at)
                if self.ledger is not None:
                    sources = sources_of(catalogue, at, None, None)
                    candidates = replace(
                        candidates, sources=sources.rows, is_record=sources.is_record
                    )
                found = [*self._verified(candidates)]
            yield from found

    def detect(
        self, frame: pd.DataFrame, encoded: EncodedTable, *, instance_based: bool
    ) -> tuple[NativeStatus | None, ...]:
        """Return a finding per counterfactual, None without rows; plugins may make findings worse,
        never better.
        """
        if not self.population.has_rows:
            return (None,) * len(encoded)
        own = self.detector.find_coded(encoded, instance_based=instance_based)
        if "cfk_detect" not in self.plugins.hooks:
            return own
        return tuple(
            worst(a, b)
            for a, b in zip(own, self.plugins.detect(frame, self.population), strict=True)
        )

    def entries_of(
        self,
        encoded: EncodedTable,
        query: Rows,
        factual: Labels | EncodedTable | None,
        progress: Progress | None = None,
        asked: Constraints | None = None,
        queries: ReadableQueries | None = None,
        already: Mask | None = None,
    ) -> list[Explanation]:
        """Return one entry per counterfactual; with a catalogue, its nearest answer that is true
        for the person who asks.

        `queries` are given where the goal names an outcome: those that have it already are not
        answered. `already` is the mask, of shape (n,), of those for which this is known.
        """
        at = valid_rows(encoded, None if asked is None else asked.queries)
        facts = None if factual is None else factual.take(at)
        if (
            asked is not None
            and facts is None
            and self.guarantee.waits(self.goal)
            and 0 < len(at) <= FEW
            # else a query could not be asked about along with its counterfactual
            and (queries is None or len(queries.at) == len(at))
        ):
            return self._entries(encoded, query, at, at[:0].astype(object), None, progress, asked)
        own, labels, known_outcomes = self.rows.outcomes(
            encoded.take(at),
            facts if queries is None else queries.rows,
            self.guarantee.fixed,
            self.verifier.foreseen,
        )
        if already is None:
            already = np.zeros(len(query), dtype=bool)
        if queries is not None and labels is not None:
            already = already | queries.with_outcome(self.goal, labels)
            labels = None
        desired = np.zeros(len(at), dtype=bool)
        if len(at):
            desired = self.goal.test_for(labels, own)(own, np.arange(len(at)))
        is_answered = desired & ~already[at]
        return self._entries(
            encoded,
            query,
            at[is_answered],
            own[is_answered],
            None if labels is None else labels[is_answered],
            progress,
            asked,
            known_outcomes.restrict(is_answered),
            already,
        )

    def with_outcome(self, queries: pd.DataFrame) -> Mask:
        """Return a mask of the queries that already have the outcome that the goal names.

        It is False where the model cannot read a query, or fails: these are then withheld for the
        reason that is known.
        """
        if self.goal.is_opposite or not len(queries):
            return np.zeros(len(queries), dtype=bool)
        try:
            with failing_closed():
                encoded = encode(queries, self.population.encoder)
                number = np.arange(len(queries))
                readable = ReadableQueries.build(encoded, number, with_unknown=True)
                if not len(readable.at):
                    return np.zeros(len(queries), dtype=bool)
                return readable.with_outcome(self.goal, self.rows.ask(readable.rows.frame))
        except CFKError as error:
            _log.warning("queries without a counterfactual could not be judged: %s", error)
            return np.zeros(len(queries), dtype=bool)

    def _entries(  # noqa: C901 - waits for its rewrite as one function per path
        self,
        encoded: EncodedTable,
        query: Rows,
        at: Rows,
        own: Labels | None,
        factual: Labels | None,
        progress: Progress | None,
        asked: Constraints | None = None,
        known_outcomes: KnownOutcomes | None = None,
        already: Mask | None = None,
    ) -> list[Explanation]:
        """Answer the counterfactuals, or queries (without `own` labels), at some positions; others
        are withheld.

        If `own` is empty, it is asked for along with the catalogue's first question. So is, if
        `already` is None, which queries have the outcome that the goal names; else it is the mask
        of these, of shape (n,), and they are not among the positions.
        """
        asks_queries = asked is not None and already is None and not self.goal.is_opposite
        if already is None:
            already = np.zeros(len(query), dtype=bool)
        entries, moved, who = None, None, None if asked is None else asked.queries
        sources: Sources | None = None
        made, catalogue, eligibility = (
            dict[int, Explanation](),
            self.guarantee.catalogue,
            self.guarantee.eligibility,
        )
        accepted = encoded.take(at)
        began = None
        if catalogue is not None and len(at):
            answered = None
            open_to = eligibility.open_to(self.goal, own, factual, len(at))
            if waits := own is not None and len(own) < len(at):
                own = at.astype(object)
            if own is not None:
                began = ExplainerStart(
                    accepted,
                    catalogue.partition.group_of(
                        accepted.codes, accepted.numbers, eligibility.of(own)
                    ),
                    may_keep_own_values=self.depends_on_no_row or not catalogue.is_shared,
                )
            if asked is not None:
                how: dict[str, Any] = {
                    "move_towards_query": self.policy.moves_towards_query,
                    "explainer_start": began,
                    "asks_own": waits,
                    "asks_queries": asks_queries,
                    "options": self.search,
                }
                answered = answer(catalogue, asked.take(at), open_to, who=query[at], **how)
                if asks_queries:
                    labels = answered.at_queries
                    if labels is None:  # the search had no question
                        labels = self.rows.ask(asked.queries.take(at).frame)
                    already[at] = self.goal.is_met(labels)
                    answered = answered.without(already[at])
                if waits and own is not None:
                    own = self.rows.ask(accepted.frame) if answered.own is None else answered.own
                    if not (good := self.goal.is_met(own)).all():
                        good &= ~already[at]
                        return self._entries(
                            encoded,
                            query,
                            at[good],
                            own[good],
                            None,
                            progress,
                            asked,
                            already=already,
                        )
                entry, known_outcomes, moved = (
                    answered.entry,
                    answered.known_outcomes(catalogue),
                    answered.moved,
                )
            elif began is not None:
                entry = nearest(catalogue, accepted, open_to, began.groups)
            found = entry >= 0
            reason = (
                "no_actionable_answer"
                if asked is not None and asked.is_any and len(catalogue)
                else "infeasible"
            )
            why = np.where(np.isin(query, query[at[found]]), "no_other_answer", reason).tolist()
            made = {i: Withheld(int(query[i]), why[i]) for i in at[~found & ~already[at]].tolist()}
            at, entries, factual = (
                at[found],
                entry[found],
                None if factual is None else factual[found],
            )
            if len(at):
                own = catalogue.labels[entries]
                if self.ledger is not None:
                    explainer_start = began and ExplainerStart(
                        accepted.take(np.flatnonzero(found)), began.groups[found]
                    )
                    sources = sources_of(
                        catalogue, entries, answered and answered.part, explainer_start
                    )
                points = answered and answered.points
                accepted = points or encode(catalogue.points.take(entries), self.population.encoder)
        if len(at) and own is not None:
            # an entry's point is nobody's row
            cells = None if entries is not None else accepted.quasi_identifiers[0]
            combination_outcomes = CombinationOutcomes(
                self.goal.test_for(factual, own), self.rows, accepted, cells, known_outcomes
            )
            starts_at_counterfactual = catalogue is not None and began is not None
            asked_now = None if asked is None else asked.take(at)
            known = progress, entries, moved, asked_now
            candidates = Candidates(
                accepted,
                of := query[at],
                own,
                factual,
                combination_outcomes,
                eligibility.of(own),
                *known,
            )
            candidates = replace(candidates, starts_at_counterfactual=starts_at_counterfactual)
            if sources is not None:
                candidates = replace(candidates, sources=sources.rows, is_record=sources.is_record)
            told = self._verified(candidates)
            made.update(
                zip(
                    at.tolist(),
                    told if catalogue is None else self.guarantee.apart(told, of),
                    strict=True,
                )
            )
        for i in np.flatnonzero(already).tolist():
            made[i] = Withheld(int(query[i]), ALREADY_DESIRED)
        return [
            made[i]
            if i in made
            else Withheld(q, *(fault or (who and who.faults[i]) or ("not_desired",)))
            for i, (q, fault) in enumerate(zip(query.tolist(), encoded.faults, strict=True))
        ]

    def _verified(self, candidates: Candidates) -> Iterator[Explanation]:
        """Protect and verify counterfactuals that have the desired outcome."""
        verdicts = self.decide(candidates)
        if self.measures_k_effective:
            verdicts = self._with_k_effective(candidates, verdicts)
        if candidates.entries is not None:
            verdicts = self._with_answer_facts(candidates, verdicts)
        presentation = getattr(self.guarantee.partition, "presentation", None)
        if presentation is None:
            schema = self.population.schema
            presentation = Presentation(
                schema.wording, schema.nobody_chooses, never_advised=schema.never_advised
            )
        outcomes = self.goal.outcomes(candidates.own, candidates.factual, self.model.classes)
        return entries_of(
            candidates.query.tolist(), verdicts, candidates.encoded, outcomes, presentation
        )

    def _with_answer_facts(self, candidates: Candidates, verdicts: list[Verdict]) -> list[Verdict]:
        private = self.population.schema.private
        moved = np.zeros((len(candidates), len(private)), dtype=bool)
        unchanged = moved
        if candidates.asked is not None:
            unchanged = candidates.encoded.same_private(candidates.asked.queries)
        if candidates.moved is not None:
            moved = candidates.moved
        start: SearchStart = "query"
        if candidates.starts_at_counterfactual and not self.depends_on_no_row:
            start = "explainer"
        not_stopped = self.policy.not_stopped_from(start)
        return with_answer_facts(verdicts, not_stopped, private, moved, unchanged)

    def decide(self, candidates: Candidates) -> list[Verdict]:
        """Return what may leave for each counterfactual; if there is a ledger, it is recorded
        first.
        """
        if self.ledger is None or self.people is None:
            return self._held(candidates, self.protect(candidates))
        try:
            # also for excluded changes: refusals tell where a region is
            with self.ledger.one_request():
                return self._held(
                    candidates, self._guard(self.ledger, self.people, candidates).settle()
                )
        except LedgerError as error:
            _log.warning("explanations withheld: %s", error)
        return [refused("ledger_failed")] * len(candidates)

    def _guard(self, ledger: Ledger, people: PersonHandles, candidates: Candidates) -> LedgerGuard:
        return LedgerGuard(
            ledger=ledger,
            people=people,
            population=self.population,
            policy=self.policy,
            goal=self.goal,
            guarantee=self.guarantee,
            verifier=self.verifier,
            method=self.method,
            protect=self.protect,
            newcomers=self.newcomers,
            candidates=candidates,
        )

    def protect(self, candidates: Candidates) -> list[Verdict]:
        """Return a certified region per counterfactual, or a refusal; equal ones with equal goals
        are solved once.
        """
        codes, numbers = candidates.encoded.codes, candidates.encoded.numbers
        # the label to reach, or to leave
        after = (candidates.own if candidates.factual is None else candidates.factual).tolist()
        behind = (
            [-1] * len(candidates) if candidates.entries is None else candidates.entries.tolist()
        )
        keys = [
            (c.tobytes(), n.tobytes(), *what)
            for c, n, *what in zip(codes, numbers, after, behind, strict=True)
        ]
        if not keys:
            return []
        first: dict[tuple[bytes, bytes, object, int], int] = {}
        for i, key in enumerate(keys):
            first.setdefault(key, i)
        n_distinct = len(first)
        distinct = (
            candidates
            if n_distinct == len(candidates)
            else candidates.take(np.array([*first.values()]))
        )
        verdicts = dict(zip(first, self._protect_distinct(distinct), strict=True))
        if candidates.progress is not None:
            candidates.progress(n_distinct, n_distinct)
        return [verdicts[key] for key in keys]

    def _held(self, candidates: Candidates, verdicts: list[Verdict]) -> list[Verdict]:
        """Refuse what needs an excluded change."""
        asked = candidates.asked
        if asked is None:
            return verdicts
        if asked.rules:
            judge = self.goal.test_for(candidates.factual, candidates.own)
            verdicts = self.verifier.hold_to(
                asked, candidates.encoded, verdicts, judge, self.rows.ask
            )
        return self.verifier.hold_to_few_changes(asked, candidates.encoded, verdicts)

    def _protect_distinct(self, candidates: Candidates) -> list[Verdict]:
        """Protect and verify; if sensitive values are too similar, ask again for twice as many
        people.
        """
        verdicts, policy = self._attempt(candidates, self.policy), self.policy
        for _ in range(_DOUBLINGS if self.guarantee.partition is None else 0):
            alike = [
                i
                for i, v in enumerate(verdicts)
                if isinstance(v, Withheld) and v.reason in _DIVERSITY
            ]
            if not alike or 2 * policy.k > self.population.n_people:
                break
            policy = replace(policy, k=2 * policy.k)
            again = self._attempt(replace(candidates.take(np.array(alike)), progress=None), policy)
            for i, verdict in zip(alike, again, strict=True):
                verdicts[i] = verdict
        return verdicts

    def _attempt(self, candidates: Candidates, policy: PrivacyPolicy) -> list[Verdict]:
        encoded, partition = candidates.encoded, self.guarantee.partition
        try:
            with quiet("raised {}; its explanations are withheld", PluginError, let=ModelError):
                found, groups = self._propose(candidates, policy)
        except PluginError as error:
            _log.warning("protector %s %s", self.method, error)
            return [refused("protector_failed")] * len(candidates)
        if policy.k != self.policy.k:  # optimality is not claimed for more people
            found = [p and Proposal(p.region) for p in found]
        asked, own = [p or Proposal(None) for p in found], (encoded.codes, encoded.numbers)
        verdicts = self.verifier.verify(asked, *own, candidates.combination_outcomes, self.method)
        for i, proposal in enumerate(found):
            is_own = proposal is not None
            if (
                partition is not None
                and groups is not None
                and proposal is not None
                and proposal.region is not None
            ):
                # Whoever gets the region of another group stands out.
                is_own = bool(groups[i] >= 0) and proposal.region == partition.regions[groups[i]]
            if not is_own:
                verdicts[i] = refused(
                    "verification_failed", getattr(verdicts[i], "refused_k", None)
                )
        return verdicts

    def _propose(
        self, candidates: Candidates, policy: PrivacyPolicy
    ) -> tuple[list[Proposal | None], Rows | None]:
        """Ask the protector; return its proposals (None for a malformed one), and groups."""
        encoded, partition = candidates.encoded, self.guarantee.partition
        codes, numbers = encoded.quasi_identifiers
        groups = None
        if candidates.entries is not None and self.guarantee.catalogue is not None:
            groups = self.guarantee.catalogue.group[candidates.entries]
        elif partition is not None:
            groups = partition.group_of(encoded.codes, encoded.numbers, candidates.eligibility)
        # All are copies: what a protector does to its task must not reach verification or the next
        # attempt.
        lent = copy(policy), codes.copy(), numbers.copy(), candidates.combination_outcomes
        request = ProtectionRequest(
            self.population,
            *lent,
            self.seed,
            candidates.progress,
            None if groups is None else groups.copy(),
        )
        proposals = list(self.protector.protect(request))
        if len(proposals) != len(candidates) or {*map(type, proposals)} != {Proposal}:
            raise TypeError("a protector must return one Proposal per counterfactual")
        if type(self.protector) in _OWN:
            return [*proposals], groups
        return [rebuild(proposal, self.population) for proposal in proposals], groups

    def regions_of(self, frame: pd.DataFrame) -> list[Region | None]:
        """Return the region that protection alone maps each record to, whatever its outcome;
        nothing is released.
        """
        encoded = encode(frame, self.population.encoder)
        found: list[Region | None] = [None] * len(encoded)
        if len(at := valid_rows(encoded)):
            some = encoded.take(at)
            own = self.model(some.frame).astype(object)
            combination_outcomes = CombinationOutcomes(
                self.goal.test_for(None, own), self.rows, some.frame
            )
            proposals, _ = self._propose(
                Candidates(
                    some, at, own, None, combination_outcomes, self.guarantee.eligibility.of(own)
                ),
                self.policy,
            )
            for i, proposal in zip(at, proposals, strict=True):
                found[i] = None if proposal is None else proposal.region
        return found

    def _with_k_effective(self, candidates: Candidates, verdicts: list[Verdict]) -> list[Verdict]:
        """Add to verdicts the number of people whom the protection maps to the same region.

        Everybody in a region is protected as the counterfactual was, with their own
        quasi-identifiers and the released private values; who gets another region does not count.
        An adversary with algorithm and model does the same.
        """
        population = self.population
        certified = {
            i: verdict for i, verdict in enumerate(verdicts) if isinstance(verdict, Certified)
        }
        if not certified:
            return verdicts
        inside = [
            np.flatnonzero(population.cells_inside(verdict.region))
            for verdict in certified.values()
        ]
        which, cells = (
            np.repeat(list(certified), [len(each) for each in inside]),
            np.concatenate(inside),
        )
        rows = rows_for_cells(
            population.encoder, candidates.encoded.frame, which, population.cells[cells]
        )
        others = encode(rows, population.encoder)
        judge = self.goal.test_for(candidates.factual, candidates.own).take(which)
        combination_outcomes = CombinationOutcomes(judge, self.rows, others.frame)
        everybody = Candidates(
            others,
            candidates.query[which],
            candidates.own[which],
            None,
            combination_outcomes,
            candidates.eligibility[which],
        )
        found, _ = self._propose(everybody, self.policy)
        for i, verdict in certified.items():
            same = [
                cells[at]
                for at in np.flatnonzero(which == i)
                if (p := found[at]) and p.region == verdict.region
            ]
            members = population.members(verdict.region)
            left = members[np.isin(population.cell_of(members), np.array(same, dtype=np.int64))]
            verdicts[i] = verdict.with_counts(k_effective=population.people(left))
        return verdicts


def failing_closed() -> AbstractContextManager[None]:
    """Turn any failure on the way to entries into an error for `withheld`: nothing unprotected may
    leave.
    """
    return quiet("{} in the pipeline", PluginError, let=ModelError)


def withheld(query: Rows, error: CFKError) -> list[Explanation]:
    by_model = isinstance(error, ModelError)  # a plugin may have raised it, with any text
    _log.warning("explanations withheld: %s", "ModelError in the pipeline" if by_model else error)
    return [Withheld(q, "model_failed" if by_model else "protector_failed") for q in query.tolist()]
