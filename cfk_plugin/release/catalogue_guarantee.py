"""The guarantee of a catalogue: answers are made of entries that are fixed before the first query.

A call is answered in one of three ways: queries without a counterfactual get the nearest answers
that are true for their person; counterfactuals with their factuals get such answers too, found from
the counterfactual; counterfactuals alone get the nearest entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import ClassVar

import numpy as np

from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.decision import Labels, Mask
from cfk_plugin.data.domain import Rows
from cfk_plugin.data.eligibility import EligibilityClasses
from cfk_plugin.data.encoded_table import FEW, encode
from cfk_plugin.data.outcome import ALREADY_DESIRED, DesiredOutcome
from cfk_plugin.data.policy import PrivacyPolicy, SearchStart
from cfk_plugin.data.region import Region
from cfk_plugin.data.sealing import BundleContent, SealedRegion
from cfk_plugin.data.training_labels import CombinationOutcomes, TrainingLabels
from cfk_plugin.errors import HostOnly
from cfk_plugin.hookspecs import Protector
from cfk_plugin.protection.answers.request import CatalogueRequest, ExplainerStart
from cfk_plugin.protection.answers.search import CatalogueAnswers, find_answers, nearest
from cfk_plugin.protection.catalogue.catalogue import Catalogue
from cfk_plugin.protection.catalogue.sealing import PEOPLE, catalogue_to_arrays
from cfk_plugin.protection.partition.partition import GroupProtector, Partition
from cfk_plugin.release.call import (
    Call,
    Candidates,
    CatalogueOrigin,
    DesiredCounterfactuals,
    Selection,
    rows_of,
    start_of,
)
from cfk_plugin.release.guarantee import Guarantee, RegisteredProtectors, SealedContent
from cfk_plugin.release.results import Explanation, GeneralizedCounterfactual, Withheld
from cfk_plugin.release.verdicts import Certified, Verdict


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FoundAnswers(HostOnly):
    """What the catalogue answers to m rows of a call, before it is verified."""

    position: Rows  # shape (m,); in the call
    factual_labels: Labels | None  # shape (m,); where they decide which outcome is desired
    answers: CatalogueAnswers
    explainer_start: ExplainerStart | None  # where the search began; None: at the queries
    already_desired: Rows  # positions in the call of rows whose query has the outcome already


class CatalogueGuarantee(Guarantee):
    """People with the desired outcome form groups, and answers are entries of a catalogue.

    Every such person belongs to a group that is fixed beforehand, and is released with its region.
    So somebody who reruns the protection for everyone is left with the whole group. The model is
    consistent with k people of a group for all private values that are released with its region,
    so that somebody who asks it about everyone is left with k of them.
    """

    method: ClassVar[str] = "catalogue"  # name of the protector, on certificates

    def __init__(
        self,
        policy: PrivacyPolicy,
        rows: TrainingLabels,
        eligibility: EligibilityClasses,
        catalogue: Catalogue,
    ) -> None:
        super().__init__(policy, rows, eligibility)
        self._catalogue = catalogue

    @property
    def partition(self) -> Partition:
        """The groups, with their regions."""
        return self._catalogue.partition

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue that answers come from."""
        return self._catalogue

    def require_catalogue(self, caller: str) -> Catalogue:  # noqa: ARG002
        """Return the catalogue."""
        return self.catalogue

    def members(self, region: Region) -> Rows:
        """Return the training rows of the groups that have a region."""
        return self.partition.rows_mapped_to(region)

    def choose_protector(
        self,
        method: str | Protector,  # noqa: ARG002
        registered: RegisteredProtectors,  # noqa: ARG002
    ) -> tuple[Protector, str]:
        """Return the protector that looks up the group of a counterfactual."""
        return GroupProtector(self.partition, self.method), self.method

    # --- what may be released for a call ----------------------------------------------------------

    def is_for_query(self, *, is_limited: bool) -> bool:  # noqa: ARG002
        """Return True: an answer must be true for the person, limits or not."""
        return True

    def answers(self, call: Call) -> Selection:
        """Return the nearest answers that are true for each query, without any counterfactual."""
        position = call.valid_rows()
        constraints = call.constraints_of(position)
        if constraints is None or not len(position):
            return Selection(None, {})
        factual_labels = call.goal.labels_if_needed(
            lambda: self.rows.ask(constraints.queries.frame)
        )
        is_open = self.eligibility.open_to(call.goal, None, factual_labels, len(position))
        answers = self._search(
            call, position, constraints, is_open, asks_queries=call.goal.may_be_met_already
        )
        answers, has_outcome = self._without_desired_queries(call, constraints, answers)
        return self._selection(
            call,
            FoundAnswers(
                position=position,
                factual_labels=factual_labels,
                answers=answers,
                explainer_start=None,
                already_desired=position[has_outcome],
            ),
        )

    def candidates(self, call: Call) -> Selection:
        """Return the answers that are found from counterfactuals."""
        position = call.valid_rows()
        constraints = call.constraints_of(position)
        if constraints is not None and self._may_label_while_searching(call, len(position)):
            return self._searched_while_labelling(call, position, constraints)
        return self._found_from(call, self._desired_counterfactuals(call))

    def _found_from(self, call: Call, desired: DesiredCounterfactuals) -> Selection:
        """Return the nearest answers to counterfactuals, true for the factuals if these are known.

        What was known of the counterfactuals' own outcomes says nothing of an answer's.
        """
        if not len(desired):
            return Selection(None, _already_desired(desired.already_desired))
        constraints = call.constraints_of(desired.position)
        start = self._start(call, desired.position, desired.labels)
        is_open = self.eligibility.open_to(
            call.goal, desired.labels, desired.factual_labels, len(desired)
        )
        if constraints is None:
            entry = nearest(self.catalogue, start.counterfactuals, is_open, start.groups)
            answers = CatalogueAnswers(entry, None, [])
        else:
            answers = self._search(call, desired.position, constraints, is_open, start)
        return self._selection(
            call,
            FoundAnswers(
                position=desired.position,
                factual_labels=desired.factual_labels,
                answers=answers,
                explainer_start=start,
                already_desired=desired.already_desired,
            ),
        )

    def _may_label_while_searching(self, call: Call, n: int) -> bool:
        """Return True if n counterfactuals can be labelled by the first question of the search.

        This saves a model call for a small request. It needs one eligibility class, so that neither
        groups nor open entries depend on these labels, and one row per query, so that each query
        can be asked about beside its counterfactual.
        """
        is_one_class = self.eligibility.is_one and not call.goal.needs_factual_labels
        n_queries = n if call.query_outcomes is None else len(call.query_outcomes.at)
        return is_one_class and 0 < n <= FEW and n_queries == n

    def _searched_while_labelling(
        self, call: Call, position: Rows, constraints: Constraints
    ) -> Selection:
        """Search as if all counterfactuals were desired; search again without those that are not.

        The labels of counterfactuals and of queries are asked for with the first question.
        """
        # Positions stand in for labels, as there is one eligibility class whatever the label.
        start = self._start(call, position, position.astype(object))
        is_open = self.eligibility.open_to(call.goal, None, None, len(position))
        answers = self._search(
            call, position, constraints, is_open, start, asks_start=True, asks_queries=True
        )
        answers, has_outcome = self._without_desired_queries(call, constraints, answers)
        already_desired = position[has_outcome]
        labels = answers.labels_at_start
        if labels is None:  # the search had no question
            labels = self.rows.ask(start.counterfactuals.frame)
        is_desired = call.goal.is_met(labels)
        if not is_desired.all():
            is_answered = is_desired & ~has_outcome
            desired = DesiredCounterfactuals(
                position=position[is_answered],
                labels=labels[is_answered],
                factual_labels=None,
                already_desired=already_desired,
            )
            return self._found_from(call, desired)
        return self._selection(
            call,
            FoundAnswers(
                position=position,
                factual_labels=None,
                answers=answers,
                explainer_start=start,
                already_desired=already_desired,
            ),
        )

    def _start(self, call: Call, position: Rows, labels: Labels) -> ExplainerStart:
        """Return the counterfactuals at some positions, with the groups that they belong to."""
        points = call.points.take(position)
        groups = self.partition.group_of(points.codes, points.numbers, self.eligibility.of(labels))
        # Values of single people must not be released.
        return ExplainerStart(points, groups, may_keep_own_values=call.depends_on_no_row)

    def _search(
        self,
        call: Call,
        position: Rows,
        constraints: Constraints,
        is_open: Mask,
        explainer_start: ExplainerStart | None = None,
        *,
        asks_start: bool = False,
        asks_queries: bool = False,
    ) -> CatalogueAnswers:
        """Search for the answer to each of m rows; `is_open` has shape (m, n_classes).

        With `asks_start` and `asks_queries`, the labels of counterfactuals and of queries are asked
        for with the first question.
        """
        request = CatalogueRequest(
            constraints=constraints,
            open_to=is_open,
            person_of_query=call.query[position],
            options=call.search,
            explainer_start=explainer_start,
            asks_start_labels=asks_start,
            asks_query_labels=asks_queries,
        )
        return find_answers(self.catalogue, request)

    def _without_desired_queries(
        self, call: Call, constraints: Constraints, answers: CatalogueAnswers
    ) -> tuple[CatalogueAnswers, Mask]:
        """Set the entry to -1 where the query has the outcome; return this, and the mask of these
        queries.
        """

        def labels_of_queries() -> Labels:
            if answers.labels_at_queries is None:  # the search had no question
                return self.rows.ask(constraints.queries.frame)
            return answers.labels_at_queries

        has_outcome = call.goal.is_met_already(len(constraints.queries), labels_of_queries)
        return answers.without(has_outcome), has_outcome

    def _selection(self, call: Call, found_answers: FoundAnswers) -> Selection:
        """Return the answers as candidates, and why other rows have none."""
        answers = found_answers.answers
        is_answered = answers.entry >= 0
        withheld = self._reasons(
            call, found_answers.position[~is_answered], found_answers.position[is_answered]
        )
        withheld |= _already_desired(found_answers.already_desired)
        if not is_answered.any():
            return Selection(None, withheld)
        rows = np.flatnonzero(is_answered)
        position = found_answers.position[rows]
        entries = answers.entry[rows]
        points = answers.points
        if points is None:  # entries as they are
            points = encode(self.catalogue.points.take(entries), self.population.encoder)
        labels = self.catalogue.labels[entries]
        factual_labels = rows_of(found_answers.factual_labels, rows)
        judge = call.goal.test_for(labels, factual_labels)
        known_outcomes = answers.known_outcomes(self.catalogue)
        explainer_start = None
        start: SearchStart = "query"
        if found_answers.explainer_start is not None:
            explainer_start = start_of(found_answers.explainer_start, rows)
            # If the explainer's answers depend on no row, where a search starts discloses none.
            start = "query" if call.depends_on_no_row else "explainer"
        candidates = Candidates(
            position=position,
            points=points,
            query=call.query[position],
            goal=call.goal,
            labels=labels,
            factual_labels=factual_labels,
            combination_outcomes=CombinationOutcomes(
                judge, self.rows, points, known_outcomes=known_outcomes
            ),
            eligibility=self.eligibility.of(labels),
            constraints=call.constraints_of(position),
            origin=CatalogueOrigin(
                entries=entries,
                values_entry=answers.values_entry,
                moved=answers.moved,
                explainer_start=explainer_start,
                start=start,
            ),
            progress=call.progress,
        )
        return Selection(candidates, withheld)

    def _reasons(self, call: Call, unanswered: Rows, answered: Rows) -> dict[int, str]:
        """Return why rows at some positions have no answer, by position."""
        reason = "infeasible"
        if call.constraints is not None and call.constraints.is_any and len(self.catalogue):
            reason = "no_actionable_answer"
        has_another = np.isin(call.query[unanswered], call.query[answered])
        reasons = np.where(has_another, "no_other_answer", reason).tolist()
        return dict(zip(unanswered.tolist(), reasons, strict=True))

    # --- regions and several releases -------------------------------------------------------------

    def groups_of(self, candidates: Candidates) -> Rows | None:
        """Return the group of the entry of each candidate, or of its quasi-identifiers; -1 for
        none.
        """
        if candidates.origin is None:
            points = candidates.points
            return self.partition.group_of(points.codes, points.numbers, candidates.eligibility)
        return self.catalogue.group[candidates.origin.entries]

    def is_admissible(self, region: Region, group: int) -> bool:
        """Return True for the region of the candidate's own group.

        A person who gets the region of another group would stand out.
        """
        return group >= 0 and region == self.partition.regions[group]

    def combine(self, explanations: Sequence[Explanation], query: Rows) -> list[Explanation]:
        """Withhold a second region with the private values of an earlier answer to the same query.

        Both might come from one record, and the two regions could then be intersected.
        """
        if len(np.unique(query)) == len(query):
            return list(explanations)
        region_of_values: dict[tuple[str, ...], Region] = {}
        combined = list(explanations)
        for i, explanation in enumerate(explanations):
            if not isinstance(explanation, GeneralizedCounterfactual) or not explanation.released:
                continue
            cells = explanation.cells()
            values = (str(explanation.query), *(cells[name] for name in explanation.released))
            region = region_of_values.setdefault(values, explanation.region)
            if region != explanation.region:
                combined[i] = Withheld(explanation.query, "no_other_answer")
        return combined

    # --- what is said of explanations -------------------------------------------------------------

    def with_answer_facts(
        self, candidates: Candidates, verdicts: Sequence[Verdict]
    ) -> list[Verdict]:
        """Note attacks that are not stopped, values that were moved, and values of the query."""
        origin = candidates.origin
        if origin is None:
            return list(verdicts)
        private = self.population.schema.private
        is_moved = np.zeros((len(candidates), len(private)), dtype=bool)
        is_unchanged = is_moved
        if candidates.constraints is not None:
            is_unchanged = candidates.points.same_private(candidates.constraints.queries)
        if origin.moved is not None:
            is_moved = origin.moved
        not_stopped = self.policy.not_stopped_from(origin.start)
        return noted_verdicts(verdicts, not_stopped, private, is_moved, is_unchanged)

    def provenance(self, start: SearchStart) -> dict[str, str]:
        """Return where the search for answers started."""
        return {"start": start}

    def facts_for_card(self) -> dict[str, str]:
        """Return how many groups and entries there are."""
        return {
            "groups of people": f"{len(self.partition.regions):,}",
            "answers in the catalogue": f"{len(self.catalogue):,}",
        }

    def sealed_content(self) -> SealedContent:
        """Return regions and entries, without rows and without the classes of the population."""
        arrays, outcomes, entries = catalogue_to_arrays(self.catalogue)
        return SealedContent(facts=outcomes, arrays=arrays, entries=entries)


class SealedCatalogueGuarantee(CatalogueGuarantee):
    """The guarantee of a catalogue that was opened from a bundle, without training rows.

    It is not known in which group a counterfactual is, nor which combinations the people of a
    region have. The number of people in each region was sealed.
    """

    knows_group_of_counterfactuals = False

    def __init__(
        self,
        policy: PrivacyPolicy,
        rows: TrainingLabels,
        eligibility: EligibilityClasses,
        catalogue: Catalogue,
        bundle: BundleContent,
    ) -> None:
        super().__init__(policy, rows, eligibility, catalogue)
        self._people_in_region = bundle.arrays[PEOPLE]  # shape (n_regions,)

    @property
    def sealed_regions(self) -> Callable[[Region], SealedRegion | None]:
        """The function `sealed_region`, as nobody can be counted."""
        return self.sealed_region

    def sealed_region(self, region: Region) -> SealedRegion | None:
        """Return what was sealed of a region of the catalogue; None for any other region."""
        catalogue = self.catalogue
        regions = catalogue.partition.regions
        # Each eligibility class may have a region with the same ends, of the same people.
        numbers = [number for number, other in enumerate(regions) if other == region]
        is_of_region = np.isin(catalogue.group, numbers)
        if not is_of_region.any():
            return None
        return SealedRegion(
            people=int(self._people_in_region[numbers[0]]),
            floor=int(catalogue.consistent[is_of_region].min()),
            held=tuple(catalogue.required_combinations.of(number) for number in numbers),
            entries=frozenset(codes.tobytes() for codes in catalogue.codes[is_of_region]),
        )


def _already_desired(position: Rows) -> dict[int, str]:
    return dict.fromkeys(position.tolist(), ALREADY_DESIRED)


def candidates_of_entries(
    catalogue: Catalogue,
    entries: Rows,
    goal: DesiredOutcome,
    rows: TrainingLabels,
    eligibility: EligibilityClasses,
) -> Candidates:
    """Return entries of a catalogue as candidates, to publish them; nobody asks for them."""
    points = encode(catalogue.points.take(entries), rows.population.encoder)
    labels = catalogue.labels[entries]
    number = np.arange(len(entries))
    return Candidates(
        position=number,
        points=points,
        query=number,
        goal=goal,
        labels=labels,
        factual_labels=None,
        combination_outcomes=CombinationOutcomes(goal.test_for(labels), rows, points),
        eligibility=eligibility.of(labels),
        origin=CatalogueOrigin(entries=entries),
    )


def noted_verdicts(
    verdicts: Sequence[Verdict],
    not_stopped: tuple[str, ...],
    private: Sequence[str],
    is_moved: Mask,
    is_unchanged: Mask,
) -> list[Verdict]:
    """Note on each certificate what is true of a catalogue's answer, and not of its region alone.

    These are the attacks that are not stopped, the private values that were moved, and those that
    equal the query's. The masks have the shape (m, n_private).
    """
    noted: list[Verdict] = []
    # Queries that share a verdict and these facts share the noted one too.
    noted_by_key: dict[tuple[int, bytes, bytes], Verdict] = {}
    for verdict, moved, unchanged in zip(verdicts, is_moved, is_unchanged, strict=True):
        if not isinstance(verdict, Certified):
            noted.append(verdict)
            continue
        key = (id(verdict), moved.tobytes(), unchanged.tobytes())
        if key not in noted_by_key:
            recount = verdict.recount.with_counts(
                moved=tuple(compress(private, moved.tolist())),
                unchanged=tuple(compress(private, unchanged.tolist())),
            )
            certificate = replace(verdict.certificate, not_stopped=not_stopped)
            noted_by_key[key] = Certified(verdict.region, certificate, recount)
        noted.append(noted_by_key[key])
    return noted
