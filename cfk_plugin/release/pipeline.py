"""From a call to explanations: the steps of the pipeline, in order.

1. The call: counterfactuals, or queries, are encoded (`Pipeline.release`, `Pipeline.answer`).
2. Candidates: the guarantee selects what may be released for the valid rows of the call
   (`Guarantee.candidates`, `Guarantee.answers`).
3. Decision: a protector proposes a region for each candidate, and the verifier recounts it
   (`Pipeline.protect`).
4. Actionability: what the person cannot change is withheld.
5. Effective k: a rerun tells how many people are left, where that is not known beforehand.
6. Explanations: what remains is presented, and the guarantee withholds explanations of one query
   that must not stand together. `Pipeline.run` returns them in the order of the call.

Whatever fails on the way of a call is withheld. A catalogue that cannot be published raises an
error instead (`Pipeline.catalogue_entries`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cfk_plugin.data.constraints import Constraints, Rules
from cfk_plugin.data.decision import Labels, Mask
from cfk_plugin.data.domain import Rows
from cfk_plugin.data.encoded_table import EncodedTable, encode, valid_rows
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region
from cfk_plugin.data.training_labels import CombinationOutcomes, TrainingLabels
from cfk_plugin.errors import CFKError, HostOnly, ModelError, PluginError, quiet
from cfk_plugin.hookspecs import NativeStatus, Progress, Protector
from cfk_plugin.plugins import PluginManager, worst
from cfk_plugin.protection.answers.request import SearchOptions
from cfk_plugin.release.call import Call, Candidates, Selection
from cfk_plugin.release.catalogue_guarantee import candidates_of_entries
from cfk_plugin.release.detection import Detector
from cfk_plugin.release.guarantee import Guarantee
from cfk_plugin.release.proposals import Proposer
from cfk_plugin.release.query_outcomes import ReadableQueries, with_unknown_category
from cfk_plugin.release.results import Explanation, Withheld
from cfk_plugin.release.verdicts import Verdict, explanations_of
from cfk_plugin.release.verification import Verifier

if TYPE_CHECKING:
    from cfk_plugin.protection.catalogue.catalogue import Catalogue

_log = logging.getLogger("cfk_plugin")
_AT_ONCE = 256  # entries of a catalogue that are verified at once


@dataclass(frozen=True, eq=False, repr=False)
class Pipeline(HostOnly):
    """What a fit has learned, and the steps from a call to its explanations."""

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
    seed: int = 0
    # whether the explainer's adapter declares that no answer depends on a single row, so that
    # answers may keep a counterfactual's private values even where a catalogue's are shared
    depends_on_no_row: bool = False

    # --- what can be asked for --------------------------------------------------------------------

    def release(
        self,
        frame: pd.DataFrame,
        query: Rows,
        factual_labels: Labels | None = None,
        *,
        factuals: pd.DataFrame | None = None,
        rules: Rules | None = None,
        max_changes: int | None = None,
        instance_based: bool = False,
        progress: Progress | None = None,
    ) -> tuple[list[Explanation], tuple[NativeStatus | None, ...]]:
        """Return an explanation and a finding per counterfactual.

        Parameters
        ----------
        frame : DataFrame, shape (n, n_features or more)
            Counterfactuals, with every feature.
        query : int array, shape (n,)
            Number of the query that each answers.
        factual_labels : array, shape (n,), optional
            The model's labels of the factuals, if they decide what is desired and are known.
        factuals : DataFrame, shape (n, n_features), optional
            The query of each row. Where the goal names an outcome, a query that has it already is
            not answered.
        rules : mapping, optional
            What may change.
        max_changes : int, optional
            How many features may change.
        instance_based : bool
            Whether the explainer returns training rows or lightly changed ones.
        progress : callable, optional
        """
        try:
            with failing_closed():
                points = encode(frame, self.population.encoder)
                is_limited = bool(rules) or max_changes is not None
                constraints = None
                factual_table = self._factuals_that_matter(factuals, is_limited=is_limited)
                if factual_table is not None and self.guarantee.is_for_query(is_limited=is_limited):
                    constraints = Constraints(factual_table, rules or {}, max_changes)
                findings = self.detect(frame, points, instance_based=instance_based)
                call = Call(
                    points=points,
                    query=query,
                    goal=self.goal,
                    constraints=constraints,
                    search=self.search,
                    depends_on_no_row=self.depends_on_no_row,
                    progress=progress,
                )
                call = self._with_factual_outcomes(call, factuals, factual_table, factual_labels)
                selection = self.guarantee.candidates(call)
                return self.run(call, selection), findings
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
        """Return, for each query, the catalogue's nearest answer that is true for its person.

        `frame` has the queries, one row per answer that is wanted, and `query` the number of each.
        """
        try:
            with failing_closed():
                queries = encode(frame, self.population.encoder)
                call = Call(
                    points=queries,
                    query=query,
                    goal=self.goal,
                    constraints=Constraints(queries, rules, max_changes),
                    search=self.search,
                    progress=progress,
                )
                return self.run(call, self.guarantee.answers(call))
        except CFKError as error:
            return withheld(query, error)

    def catalogue_entries(self, catalogue: Catalogue, which: Rows) -> Iterator[Explanation]:
        """Decide about entries of the catalogue, to publish them; yield an explanation for each.

        Each entry goes through steps 3 to 6 as the answer to a query does. Entries are decided in
        blocks, when the first of a block is asked for.

        Parameters
        ----------
        catalogue : Catalogue
        which : int64, shape (n,)
            The positions of the entries in the catalogue.

        Yields
        ------
        Explanation
            The entry as released, or `Withheld` with the reason, in the order of `which`.

        Raises
        ------
        CFKError
            If a step fails. Nothing of the block, or of later ones, is yielded. What was yielded
            before is not the whole catalogue, so do not publish it.
        """
        for start in range(0, len(which), _AT_ONCE):
            with failing_closed():
                candidates = candidates_of_entries(
                    catalogue,
                    which[start : start + _AT_ONCE],
                    self.goal,
                    self.rows,
                    self.guarantee.eligibility,
                )
                explanations = self._explain(candidates)
            yield from explanations

    # --- the steps --------------------------------------------------------------------------------

    def run(self, call: Call, selection: Selection) -> list[Explanation]:
        """Return one explanation per row of the call, in order.

        `selection` is what the guarantee can answer of the call. Other rows are withheld.
        """
        explanations: dict[int, Explanation] = {
            position: Withheld(int(call.query[position]), reason)
            for position, reason in selection.withheld.items()
        }
        candidates = selection.candidates
        if candidates is not None:
            released = self._explain(candidates)
            explanations |= zip(candidates.position.tolist(), released, strict=True)
        return call.in_order(explanations)

    def _explain(self, candidates: Candidates) -> list[Explanation]:
        """Return one explanation per candidate: steps 3 to 6."""
        verdicts = self.protect(candidates)
        verdicts = self._without_excluded_changes(candidates, verdicts)
        verdicts = self.guarantee.with_answer_facts(candidates, verdicts)
        explanations = self._present(candidates, verdicts)
        return self.guarantee.combine(explanations, candidates.query)

    def protect(self, candidates: Candidates) -> list[Verdict]:
        """Return a certified region per candidate, or a refusal; see `Proposer.protect`."""
        return self._proposer.protect(candidates)

    def _without_excluded_changes(
        self, candidates: Candidates, verdicts: list[Verdict]
    ) -> list[Verdict]:
        """Withhold what asks for an excluded change, or for more changes than are permitted."""
        constraints = candidates.constraints
        if constraints is None:
            return verdicts
        points = candidates.points
        actionability = self.verifier.actionability
        if constraints.rules:
            verdicts = actionability.withhold_excluded_changes(
                constraints, points, verdicts, candidates.outcome_test, self.rows.ask
            )
        return actionability.withhold_too_many_changes(constraints, points, verdicts)

    def _present(self, candidates: Candidates, verdicts: Sequence[Verdict]) -> list[Explanation]:
        """Return what each candidate releases, or why nothing is released."""
        outcomes = candidates.goal.outcomes(
            candidates.labels, candidates.factual_labels, self.model.classes
        )
        return list(
            explanations_of(
                candidates.query.tolist(),
                verdicts,
                candidates.points,
                outcomes,
                self.guarantee.presentation,
            )
        )

    @property
    def _proposer(self) -> Proposer:
        return Proposer(
            population=self.population,
            policy=self.policy,
            guarantee=self.guarantee,
            protector=self.protector,
            method=self.method,
            verifier=self.verifier,
            seed=self.seed,
        )

    # --- what a call needs to know of its queries -------------------------------------------------

    def _factuals_that_matter(
        self, factuals: pd.DataFrame | None, *, is_limited: bool
    ) -> EncodedTable | None:
        """Return the encoded factuals; None if there are none, or nothing depends on their values.

        `is_limited` says whether the person can change only some things.
        """
        if factuals is None:
            return None
        may_be_met_already = self.goal.may_be_met_already
        if not may_be_met_already and not self.guarantee.is_for_query(is_limited=is_limited):
            return None
        return encode(factuals, self.population.encoder)

    def _with_factual_outcomes(
        self,
        call: Call,
        factuals: pd.DataFrame | None,
        factual_table: EncodedTable | None,
        factual_labels: Labels | None,
    ) -> Call:
        """Return the call with what is known, or must be asked, of the outcomes of its factuals."""
        if factual_labels is not None:
            call = replace(call, factual_labels=factual_labels)
        if factuals is None:
            return call
        if self.goal.needs_factual_labels:
            if factual_labels is not None:
                return call
            labels_or_table = self.rows.queried(factuals, call.query)
            if isinstance(labels_or_table, EncodedTable):
                return replace(call, unlabelled_factuals=labels_or_table)
            return replace(call, factual_labels=labels_or_table)
        if factual_table is None:
            return call
        already_desired = None
        unknown = with_unknown_category(factual_table)
        if call.constraints is None and len(unknown):
            # Apart from the others, which a model that cannot read these would spoil.
            already_desired = unknown[self.with_outcome(factuals.take(unknown))]
        return replace(
            call,
            query_outcomes=ReadableQueries.build(factual_table, call.query),
            known_already_desired=already_desired,
        )

    def with_outcome(self, queries: pd.DataFrame) -> Mask:
        """Return a mask of the queries that already have the outcome that the goal names.

        It is False where the model cannot read a query, or fails: these are then withheld for the
        reason that is known.
        """
        if not self.goal.may_be_met_already or not len(queries):
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

    # --- for detection and audits -----------------------------------------------------------------

    def detect(
        self, frame: pd.DataFrame, encoded: EncodedTable, *, instance_based: bool
    ) -> tuple[NativeStatus | None, ...]:
        """Return a finding per counterfactual, None without rows.

        Plugins may make findings worse, never better.
        """
        if not self.population.has_rows:
            return (None,) * len(encoded)
        findings = self.detector.find_coded(encoded, instance_based=instance_based)
        if "cfk_detect" not in self.plugins.hooks:
            return findings
        by_plugins = self.plugins.detect(frame, self.population)
        return tuple(worst(*pair) for pair in zip(findings, by_plugins, strict=True))

    def regions_of(self, frame: pd.DataFrame) -> list[Region | None]:
        """Return the region that protection alone maps each record to, whatever its outcome.

        Nothing is released.
        """
        records = encode(frame, self.population.encoder)
        regions: list[Region | None] = [None] * len(records)
        position = valid_rows(records)
        if not len(position):
            return regions
        points = records.take(position)
        labels = self.model(points.frame).astype(object)
        judge = self.goal.test_for(labels)
        candidates = Candidates(
            position=position,
            points=points,
            query=position,
            goal=self.goal,
            labels=labels,
            factual_labels=None,
            combination_outcomes=CombinationOutcomes(judge, self.rows, points.frame),
            eligibility=self.guarantee.eligibility.of(labels),
        )
        proposals = self._proposer.propose(candidates, self.policy).proposals
        for i, proposal in zip(position.tolist(), proposals, strict=True):
            regions[i] = None if proposal is None else proposal.region
        return regions


def failing_closed() -> AbstractContextManager[None]:
    """Turn any failure on the way to explanations into an error that quotes no value.

    The caller withholds all explanations of a call because of it.
    """
    return quiet("{} in the pipeline", PluginError, let=ModelError)


def withheld(query: Rows, error: CFKError) -> list[Explanation]:
    """Withhold all explanations of a call because of an error."""
    is_of_model = isinstance(error, ModelError)  # a plugin may have raised it, with any text
    text = "ModelError in the pipeline" if is_of_model else error
    _log.warning("explanations withheld: %s", text)
    reason = "model_failed" if is_of_model else "protector_failed"
    return [Withheld(number, reason) for number in query.tolist()]
