"""Recounting released explanations against the people, the model and the guarantee they were made
with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from cfk_plugin.data.combinations import Grid, rows_for_cells
from cfk_plugin.data.constraints import rules_of
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import DesiredOutcome, Outcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.promises import promise_of
from cfk_plugin.errors import HostOnly, ModelError
from cfk_plugin.metrics.information import ncp
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.metrics.risk import SensitiveFigures
from cfk_plugin.release.released_file import (
    Finding,
    Released,
    answers_in_file,
    policy_of,
    prototypes_in_file,
    read,
    wrong_certificates,
    wrong_columns,
)
from cfk_plugin.release.still_true import (
    NewModel,
    ReleasedAnswer,
    StillTrue,
    counted_true,
    rows_asked_for,
    still_true_at,
)
from cfk_plugin.release.verification import Verifier

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.data.population import Population
    from cfk_plugin.release.results import Policy

# For pureness, up to `CELLS` combinations are all asked; of more, `SAMPLES` are drawn.
CELLS = Verifier.cell_budget
SAMPLES = Verifier.samples
_AT_ONCE = 32  # regions that the model is asked about at once
NEAR = 1e-9  # figures this close are equal: a table that was written as text has lost the last bits


@dataclass(slots=True)
class Recount:
    """What was found, what could not be checked, and how many people are in each region that was
    counted.
    """

    findings: list[Finding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    not_stopped: list[str] = field(default_factory=list)  # attacks, by the certificates
    still_true: StillTrue | None = None  # of the answers, by the model; None if nobody asked it

    @property
    def has_failed(self) -> bool:
        """Whether a finding shows that the file is wrong."""
        return any(finding.fails for finding in self.findings)

    @property
    def verdict(self) -> str:
        """Return ``fail``, ``review`` (a person has to look) or ``pass``."""
        if self.has_failed:
            return "fail"
        return "review" if self.findings else "pass"


def examine(
    content: Mapping[str, Any],
    population: Population,
    judge: Judge | None = None,
    *,
    k: int | None = None,
    queries: pd.DataFrame | None = None,
) -> Recount:
    """Count the people of each released region again and, if a model is given, ask it.

    Parameters
    ----------
    content : mapping
        The content of a file, in the form of the JSON Schema; see `unfit`.
    judge : Judge, optional
        The model and the desired outcome.
    k : int, optional
        Number of people that must be inside each region. Default: that of the policy.
    queries : DataFrame, optional
        The instances that were answered. The model then says which answers are true for them.
    """
    report = Recount()
    policy = policy_of(content)
    if policy is None:
        report.findings.append(Finding("policy", "its settings contradict each other"))
        return report
    released = [entry for entry in content["explanations"] if entry["status"] == "released"]
    for entry in released:
        for attack in entry["certificate"].get("not_stopped", ()):
            if attack not in report.not_stopped:
                report.not_stopped.append(attack)
    report.unchecked += _unchecked(content, policy, has_model=judge is not None)
    if not released:
        report.findings.append(Finding("explanations", "nothing was released", fails=False))
    report.findings += wrong_columns(content, population)
    if report.has_failed:
        return report
    if not isinstance(policy, PrivacyPolicy):
        report.findings += _findings_on_prototypes(content, policy, judge, report)
        return report
    report.findings += wrong_certificates(content, policy)
    checks = RegionChecks(
        content=content,
        population=population,
        policy=policy,
        judge=judge,
        requested_k=k,
        queries=queries,
        report=report,
    )
    report.findings += checks.findings()
    return report


# --- checks of a whole file -----------------------------------------------------------------------


def _findings_on_prototypes(
    content: Mapping[str, Any], policy: Policy, judge: Judge | None, report: Recount
) -> Iterator[Finding]:
    """Yield the prototypes that the model refuses, and that no people can be counted for them."""
    if judge is not None:
        report.still_true = judge.true_prototypes(content, report)
        yield from _not_true(report.still_true, policy)
    yield Finding(
        "explanations",
        "hold prototypes, which no people can be counted for; see cfk audit epsilon",
        fails=False,
    )


def _not_true(still_true: StillTrue | None, policy: Policy) -> Iterator[Finding]:
    """Yield the answers that the model refuses.

    That is wrong only if answers are promised to be true for the person who asked. Prototypes
    promise it, too.
    """
    if still_true is None:
        return
    is_promised = True
    if isinstance(policy, PrivacyPolicy):
        is_promised = promise_of(policy.guarantee).promises_true_answers
    for position in still_true.broken:
        yield Finding(
            f"explanation {position}",
            "is not true for this model: it does not give the outcome",
            fails=is_promised,
        )


def _unchecked(content: Mapping[str, Any], policy: Policy, *, has_model: bool) -> list[str]:
    """Return what is not checked of a file."""
    unchecked = ["who wrote the file, and whether entries were removed or exchanged"]
    if isinstance(policy, PrivacyPolicy):
        if not has_model:
            unchecked.append("pureness (--model)")
        unchecked.append("that regions and private values are those of the guarantee")
        if promise_of(policy.guarantee).may_claim_optimality:
            unchecked.append("optimal and gap, which are the method's own claim")
    if any("sentence" in entry for entry in content["explanations"]):
        unchecked.append("that sentences say what their entries say")
    return unchecked


# --- checks of released regions -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CheckedRegion(HostOnly):
    """A released region, and what is counted of it again."""

    released: Released
    population: Population
    policy: PrivacyPolicy
    requested_k: int | None  # in place of the policy's
    is_same_population: bool  # the certificate has this population's fingerprint
    # Whether the certificate is known to be about these people. If not, a difference may come from
    # others.
    is_of_today: bool
    n_people: int  # inside
    ncp: float

    @property
    def certificate(self) -> Mapping[str, Any]:
        certificate: Mapping[str, Any] = self.released.entry["certificate"]
        return certificate

    @property
    def where(self) -> str:
        """How findings name the region."""
        return self.released.where

    @property
    def required_k(self) -> int:
        """Number of people that must be inside."""
        return self.policy.k if self.requested_k is None else self.requested_k


def too_few_people(region: CheckedRegion) -> Iterator[Finding]:
    if region.n_people < region.required_k:
        required = "k" if region.requested_k is None else region.requested_k
        yield Finding(region.where, f"{region.n_people} people, fewer than {required}")


def other_number_of_people(region: CheckedRegion) -> Iterator[Finding]:
    """Yield that the certificate counts other people."""
    certified = region.certificate["k"]
    if certified != region.n_people:
        yield Finding(
            region.where,
            f"{region.n_people} people, and the certificate says something else",
            fails=region.is_of_today,
        )


def other_loss(region: CheckedRegion) -> Iterator[Finding]:
    tolerance = 0.0 if region.is_of_today else NEAR
    if abs(region.certificate["ncp"] - region.ncp) > tolerance:
        yield Finding(
            region.where,
            f"ncp is {region.ncp:.6g}, and the certificate says something else",
            fails=region.is_of_today,
        )


def undiverse_inside(region: CheckedRegion) -> Iterator[Finding]:
    """Yield what is not diverse inside, where the guarantee counts everyone inside.

    Under the others those count who are mapped to the region, which the file does not tell.
    """
    if promise_of(region.policy.guarantee).counts_everyone_inside:
        rows = region.released.rows
        yield from undiverse(region.released, region.population, region.policy, rows)


def other_population(region: CheckedRegion) -> Iterator[Finding]:
    if region.population.has_key and not region.is_same_population:
        yield Finding(
            region.where, "is about another population, or was made with another key", fails=False
        )


CHECKS_AGAINST_PEOPLE: tuple[Callable[[CheckedRegion], Iterator[Finding]], ...] = (
    too_few_people,
    other_number_of_people,
    other_loss,
    undiverse_inside,
    other_population,
)
"""What is checked of a released region without the model, in the order of the findings."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RegionChecks(HostOnly):
    """The checks of a file's released regions, against the people and, if given, the model."""

    content: Mapping[str, Any]
    population: Population
    policy: PrivacyPolicy
    judge: Judge | None
    requested_k: int | None  # in place of the policy's
    queries: pd.DataFrame | None  # the instances that were answered
    report: Recount  # is told what could not be checked, and the counts

    @property
    def is_catalogue(self) -> bool:
        """Whether the file is a published catalogue.

        That is always about the table of today, so its counts must match exactly.
        """
        may_be_catalogue = promise_of(self.policy.guarantee).can_be_published
        return may_be_catalogue and self.content["kind"] == "catalogue"

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong with the regions, one after the other, and then with the answers."""
        released_regions, unreadable = read(self.content, self.population)
        yield from unreadable
        impure: list[Released] = []  # by the model
        outcomes_of_regions: Iterable[ModelOutcomes | None] = repeat(None, len(released_regions))
        if self.judge is not None:
            outcomes_of_regions = self.judge.outcomes_of(released_regions)
        for released_region, outcomes in zip(released_regions, outcomes_of_regions, strict=True):
            region = self._counted(released_region)
            self.report.counts.append(region.n_people)
            for check in CHECKS_AGAINST_PEOPLE:
                yield from check(region)
            if self.judge is not None and outcomes is not None:
                yield from self._wrong_for_model(region, outcomes, self.judge)
                if outcomes.share < self.policy.least_pureness:
                    impure.append(released_region)
        if self.judge is not None:
            self.report.still_true = self._still_true(released_regions, impure, self.judge)
        yield from _not_true(self.report.still_true, self.policy)
        if not self.population.has_key:
            self.report.unchecked.append(
                "that this is the population of the certificates (set CFK_KEY)"
            )

    def _counted(self, released_region: Released) -> CheckedRegion:
        """Count the people inside a region and its information loss."""
        population = self.population
        fingerprint = released_region.entry["certificate"]["population"]
        is_same_population = population.has_key and fingerprint == population.fingerprint
        return CheckedRegion(
            released=released_region,
            population=population,
            policy=self.policy,
            requested_k=self.requested_k,
            is_same_population=is_same_population,
            is_of_today=self.is_catalogue or is_same_population,
            n_people=population.people(released_region.rows),
            ncp=ncp(released_region.region, population),
        )

    def _wrong_for_model(
        self, region: CheckedRegion, outcomes: ModelOutcomes, judge: Judge
    ) -> Iterator[Finding]:
        """Yield what the model contradicts of a certificate."""
        if outcomes.n_combinations == 0:
            return  # no person fits the region, which is a finding already
        yield from judge.wrong_pureness(region.released, outcomes)
        if self.policy.counts_eligible:
            yield from judge.too_few_eligible(region, outcomes)

    def _still_true(
        self, released_regions: Sequence[Released], impure: Sequence[Released], judge: Judge
    ) -> StillTrue | None:
        """Count the answers that are true for the model; None where that cannot be."""
        if self.is_catalogue:
            return judge.true_entries(released_regions, impure)
        return judge.true_answers(released_regions, self.queries, self.report)


# --- diversity ------------------------------------------------------------------------------------


def undiverse(
    released_region: Released,
    population: Population,
    policy: PrivacyPolicy,
    rows: NDArray[np.int64],
) -> Iterator[Finding]:
    """Yield whether l or t of the policy is broken among the people of some rows."""
    figures = SensitiveFigures.of(population, rows)
    if policy.l is not None and figures.diversity is not None and figures.diversity < policy.l:
        yield Finding(released_region.where, "fewer than l sensitive values")
    if (
        policy.t is not None
        and figures.closeness is not None
        and figures.closeness > policy.t + NEAR
    ):
        yield Finding(released_region.where, "sensitive values are farther than t from everybody's")


# --- pureness -------------------------------------------------------------------------------------


class AxisSize(NamedTuple):
    """How many values an attribute stands for in the combinations of a region."""

    in_table: int
    most: int  # with a number that no row has


def _axis_sizes(released_region: Released, population: Population) -> list[AxisSize]:
    """Return how many values of each quasi-identifier are in a region.

    A counterfactual may have a number that is in no row, and which was counted as one more value.
    """
    n_values = {
        name: int(population.domains[name].inside(part).sum())
        for name, part in released_region.region.items()
    }
    promise = promise_of(released_region.entry["certificate"]["guarantee"])
    sizes = []
    for name, n in n_values.items():
        is_numeric = population.domains[name].attribute.kind == "numeric"
        may_be_new = promise.releases_counterfactuals and is_numeric
        sizes.append(AxisSize(n, n + may_be_new))
    return sizes


def _possible_sizes(released_region: Released, population: Population) -> set[int]:
    """Return how many combinations may have been counted; `CELLS` + 1 stands for any larger
    number.
    """
    possible = {1}
    for axis in _axis_sizes(released_region, population):
        products = {size * axis.in_table for size in possible}
        products |= {size * axis.most for size in possible}
        possible = {min(product, CELLS + 1) for product in products}
    return possible


class CombinationTally(NamedTuple):
    """How many combinations have the outcome, of those that the model was asked about."""

    n_desired: int
    n_asked: int

    def may_be_share(self, share: float, size: int) -> bool:
        """Return True if a share of `size` combinations fits; those not asked may be desired."""
        n_stated = share * size
        is_whole = abs(n_stated - round(n_stated)) <= NEAR * size
        most = self.n_desired + max(size - self.n_asked, 0)
        return is_whole and self.n_desired <= round(n_stated) <= most

    def may_be_within(self, low: float, high: float, known_share: float) -> bool:
        """Return True if a sample with this tally fits the interval of another one.

        The sample is drawn from at least `known_share` of the combinations. Any of the others, with
        numbers that no row has, may be desired.
        """
        own_low, own_high = clopper_pearson(self.n_desired, self.n_asked)
        return bool(own_low * known_share <= high and low <= 1 - (1 - own_high) * known_share)


class ModelOutcomes(NamedTuple):
    """What the model says of a region; with a mask for each outcome that may be the desired one."""

    n_combinations: int  # of the region; 0 if no value of the table is in it
    # Shape (n_asked,) each: has the outcome, per combination that the model was asked about.
    is_desired: list[NDArray[np.bool_]]
    # Shape (n_rows,) each: the same per row inside, with the released private values.
    is_consistent: list[NDArray[np.bool_]]

    @property
    def share(self) -> float:
        """Share of the combinations that have the outcome, the largest that it may be."""
        shares = [float(mask.mean()) for mask in self.is_desired if len(mask)]
        return max(shares, default=0.0)

    @property
    def tallies(self) -> list[CombinationTally]:
        return [CombinationTally(int(mask.sum()), len(mask)) for mask in self.is_desired]


# --- the model ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judge:
    """The model, and the desired outcome: a label, several, a range or "opposite"."""

    population: Population
    model: Any
    desired: Any

    @cached_property
    def labels(self) -> LabelModel:
        return LabelModel(self.model, self.population.schema.features)

    @cached_property
    def row_labels(self) -> NDArray[Any]:
        """The model's label of every row of the table."""
        features = list(self.population.schema.features)
        return self.labels(self.population.frame[features]).astype(object)

    def outcomes_of(self, released_regions: Sequence[Released]) -> Iterator[ModelOutcomes]:
        """Ask about a few regions at a time: their combinations, and their people with the released
        values.
        """
        for start in range(0, len(released_regions), _AT_ONCE):
            yield from self._outcomes_at_once(released_regions[start : start + _AT_ONCE])

    def _outcomes_at_once(self, released_regions: Sequence[Released]) -> Iterator[ModelOutcomes]:
        """Ask about some regions in one call."""
        population = self.population
        grids = [self._grid(released_region) for released_region in released_regions]
        # Of region i at 2 i (combinations) and 2 i + 1 (people).
        codes: list[NDArray[np.int32]] = []
        for released_region, grid in zip(released_regions, grids, strict=True):
            codes.append(grid.drawn(CELLS, SAMPLES))
            codes.append(population.cells[population.cell_of(released_region.rows)])
        lengths = np.array([len(combinations) for combinations in codes])
        # The quasi-identifiers are replaced by those of combinations.
        person = {
            str(name): column.iloc[0] for name, column in population.rows(np.array([0])).items()
        }
        values = [
            {**person, **released_region.entry["released"]} for released_region in released_regions
        ]
        table = population.conform(pd.DataFrame(values, dtype=object).infer_objects())
        region_of_row = np.repeat(np.arange(len(codes)) // 2, lengths)
        rows = rows_for_cells(population.encoder, table, region_of_row, np.concatenate(codes))
        labels = np.split(self.labels(rows).astype(object), np.cumsum(lengths)[:-1])
        for i, released_region in enumerate(released_regions):
            yield ModelOutcomes(
                n_combinations=grids[i].size,
                is_desired=self._may_be_desired(released_region, labels[2 * i]),
                is_consistent=self._may_be_desired(released_region, labels[2 * i + 1]),
            )

    def _grid(self, released_region: Released) -> Grid:
        """Return the combinations of a region."""
        no_new_values = [0] * len(released_region.region)  # any code other than `UNKNOWN`
        return Grid.of(released_region.region, self.population, no_new_values)

    def wrong_pureness(
        self, released_region: Released, outcomes: ModelOutcomes
    ) -> Iterator[Finding]:
        """Yield an outcome other than desired, or a pureness that the model's outcomes
        contradict.
        """
        if self._has_another_outcome(released_region):
            yield Finding(released_region.where, "is about another outcome than --desired names")
        elif released_region.entry["certificate"]["exact"] and outcomes.n_combinations <= CELLS:
            if not self._may_be_counted(released_region, outcomes):
                yield Finding(released_region.where, "pureness is not what the model says")
        elif not self._may_be_estimated(released_region, outcomes):
            yield Finding(
                released_region.where, "pureness is not what the model says of other combinations"
            )

    def _has_another_outcome(self, released_region: Released) -> bool:
        common_outcome = DesiredOutcome.of(self.desired).common_outcome
        if common_outcome is None or released_region.entry["outcome"] is None:
            return False
        return bool(released_region.entry["outcome"] != common_outcome.to_dict())

    def _may_be_counted(self, released_region: Released, outcomes: ModelOutcomes) -> bool:
        """Return True if the pureness fits what the model says of all combinations."""
        pureness = released_region.entry["certificate"]["pureness"]
        sizes = [n for n in _possible_sizes(released_region, self.population) if n <= CELLS]
        return any(
            any(tally.may_be_share(pureness, size) for size in sizes) for tally in outcomes.tallies
        )

    def _may_be_estimated(self, released_region: Released, outcomes: ModelOutcomes) -> bool:
        """Return True if the interval of the pureness fits that of the combinations asked about."""
        certificate = released_region.entry["certificate"]
        low = certificate["pureness_low"]
        high = certificate["pureness_high"]
        sizes = _axis_sizes(released_region, self.population)
        most_combinations = prod(axis.most for axis in sizes)
        known_share = outcomes.n_combinations / most_combinations
        return any(tally.may_be_within(low, high, known_share) for tally in outcomes.tallies)

    def too_few_eligible(self, region: CheckedRegion, outcomes: ModelOutcomes) -> Iterator[Finding]:
        """Yield where fewer than k inside have the outcome, or get it with the released private
        values.
        """
        released_region = region.released
        labels = self.row_labels[released_region.rows]
        masks_of_count = {
            "have the outcome": self._may_be_desired(released_region, labels),
            "get the outcome with the private values that are released": outcomes.is_consistent,
        }
        for count, masks in masks_of_count.items():
            n_people = max(
                (self.population.people(released_region.rows[mask]) for mask in masks), default=0
            )
            if n_people < region.required_k:
                yield Finding(
                    released_region.where,
                    f"{n_people} people {count}, fewer than {region.required_k}",
                )

    def true_entries(
        self, released_regions: Sequence[Released], impure: Sequence[Released]
    ) -> StillTrue:
        """Count the entries of a catalogue that are true for the model: all that are not impure."""
        return counted_true(answers_in_file(released_regions), answers_in_file(impure))

    def true_answers(
        self,
        released_regions: Sequence[Released],
        queries: pd.DataFrame | None,
        report: Recount,
    ) -> StillTrue | None:
        """Count the answers to queries that are true for the model; None where that cannot be."""
        if queries is None:
            report.unchecked.append("that answers are true for the model (--queries)")
            return None
        answers = answers_in_file(released_regions)
        new_model = self._new_model(answers, report)
        if new_model is None:
            return None
        report.unchecked.append("that --queries are those that were answered, in this order")
        encoder = self.population.encoder
        rows = rows_asked_for(answers, queries, encoder, rules_of(encoder))
        return still_true_at(rows, answers, new_model)

    def true_prototypes(self, content: Mapping[str, Any], report: Recount) -> StillTrue | None:
        """Count the prototypes that are true for the model; None where that cannot be."""
        answers = prototypes_in_file(content)
        new_model = self._new_model(answers, report)
        if new_model is None:
            return None
        values = pd.DataFrame([answer.values for answer in answers], dtype=object)
        rows = self.population.conform(values)
        return still_true_at(rows, answers, new_model)

    def _new_model(self, answers: Sequence[ReleasedAnswer], report: Recount) -> NewModel | None:
        """Return what asks the model about answers; None if there is none, or no known outcome."""
        desired = DesiredOutcome.of(self.desired).common_desired
        has_unknown_outcome = any(answer.outcome.desired is None for answer in answers)
        if has_unknown_outcome and desired is None:
            report.unchecked.append("that answers are true for the model (--desired)")
            return None
        if not answers:
            return None
        features = self.population.schema.features
        try:
            return NewModel(self.model, features, answers, desired)
        except ModelError:  # whose text may quote an outcome of the file
            report.unchecked.append("that answers are true for the model, which lacks an outcome")
            return None

    def _may_be_desired(
        self, released_region: Released, labels: NDArray[Any]
    ) -> list[NDArray[np.bool_]]:
        """Return which of n labels are desired, shape (n,).

        Where the file does not name the outcome, return a mask for each that it may be.
        """
        if released_region.entry["outcome"] is None:
            return DesiredOutcome.of(self.desired).possible_masks(labels)
        outcome = Outcome.of(released_region.entry["outcome"])
        if outcome.is_other:
            return [labels != outcome.label]
        return [DesiredOutcome.of(outcome.desired).is_met(labels)]
