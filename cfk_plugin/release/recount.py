"""Recounting a file of released explanations: against the people, the model and the policy.

The people of each region are counted again, its information loss, and, with the model, the share of
its combinations with the outcome. `cfk verify` prints what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.data.codes import Codes, Floats, Mask
from cfk_plugin.data.decision import Labels
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import DesiredOutcome, Outcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.promises import promise_of
from cfk_plugin.errors import HostOnly, ModelError
from cfk_plugin.metrics.information import ncp
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.metrics.risk import SensitiveFigures
from cfk_plugin.release.certify import asked_combinations
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
    advised_rows,
    counted_true,
    still_true_at,
)

if TYPE_CHECKING:
    from cfk_plugin.data.population import Population
    from cfk_plugin.release.results import Policy

_NEAR = 1e-9  # figures this close are equal


@dataclass(slots=True)
class Recount:
    """What was found, what could not be checked, and how many people are in each region.

    Attributes
    ----------
    findings : list of Finding
    unchecked : list of str
    counts : list of int
        People in each region that was counted.
    not_stopped : list of str
        Attacks, by the certificates.
    still_true : StillTrue, optional
        Of the answers, by the model; None if nobody asked it.
    """

    findings: list[Finding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    not_stopped: list[str] = field(default_factory=list)
    still_true: StillTrue | None = None

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
    entries = [entry for entry in content["explanations"] if entry["status"] == "released"]
    attacks = [attack for e in entries for attack in e["certificate"].get("not_stopped", ())]
    report.not_stopped += dict.fromkeys(attacks)
    report.unchecked += _unchecked(content, policy, has_model=judge is not None)
    if not entries:
        report.findings.append(Finding("explanations", "nothing was released", fails=False))
    report.findings += wrong_columns(content, population)
    if report.has_failed:
        return report
    if not isinstance(policy, PrivacyPolicy):
        report.findings += _findings_on_prototypes(content, policy, judge, report)
        return report
    report.findings += wrong_certificates(content, policy)
    required_k = policy.k if k is None else k
    checks = RegionChecks(
        content=content,
        population=population,
        policy=policy,
        judge=judge,
        required_k=required_k,
        queries=queries,
        report=report,
    )
    report.findings += checks.findings()
    return report


# Checks of a whole file


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

    That is wrong only if answers are promised to be true. Prototypes promise it, too.
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


# Checks of a region against the people


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CheckedRegion(HostOnly):
    """A released region, and what is counted of it again.

    Attributes
    ----------
    released : Released
    population : Population
    policy : PrivacyPolicy
    required_k : int
        Number of people that must be inside.
    is_same_population : bool
        Whether the certificate has this population's fingerprint.
    is_of_today : bool
        Whether the certificate is known to be about these people. If not, a difference may come
        from others.
    n_people : int
        People inside.
    ncp : float
    """

    released: Released
    population: Population
    policy: PrivacyPolicy
    required_k: int
    is_same_population: bool
    is_of_today: bool
    n_people: int
    ncp: float

    @property
    def certificate(self) -> Mapping[str, Any]:
        """The certificate as in the file."""
        certificate: Mapping[str, Any] = self.released.entry["certificate"]
        return certificate

    @property
    def where(self) -> str:
        """How findings name the region."""
        return self.released.where


def too_few_people(region: CheckedRegion) -> Iterator[Finding]:
    """Yield that fewer than k people are inside."""
    if region.n_people < region.required_k:
        is_policy = region.required_k == region.policy.k
        required = "k" if is_policy else region.required_k
        yield Finding(region.where, f"{region.n_people} people, fewer than {required}")


def other_number_of_people(region: CheckedRegion) -> Iterator[Finding]:
    """Yield that the certificate counts other people."""
    if region.certificate["k"] != region.n_people:
        yield Finding(
            region.where,
            f"{region.n_people} people, and the certificate says something else",
            fails=region.is_of_today,
        )


def other_loss(region: CheckedRegion) -> Iterator[Finding]:
    """Yield that the certificate states another information loss."""
    if abs(region.certificate["ncp"] - region.ncp) > _NEAR:
        yield Finding(
            region.where,
            f"ncp is {region.ncp:.6g}, and the certificate says something else",
            fails=region.is_of_today,
        )


def undiverse_inside(region: CheckedRegion) -> Iterator[Finding]:
    """Yield that l or t is broken inside, if the guarantee counts everyone inside.

    Under the others those count who are mapped to the region, which the file does not tell.
    """
    policy = region.policy
    if not promise_of(policy.guarantee).counts_everyone_inside:
        return
    figures = SensitiveFigures.of(region.population, region.released.rows)
    if policy.l is not None and figures.diversity is not None and figures.diversity < policy.l:
        yield Finding(region.where, "fewer than l sensitive values")
    is_far = figures.closeness is not None and policy.t is not None
    if is_far and (figures.closeness or 0.0) > (policy.t or 0.0) + _NEAR:
        yield Finding(region.where, "sensitive values are farther than t from everybody's")


def other_population(region: CheckedRegion) -> Iterator[Finding]:
    """Yield that the certificate is about another population."""
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
    """The checks of a file's released regions, against the people and, if given, the model.

    Attributes
    ----------
    content : mapping
    population : Population
    policy : PrivacyPolicy
    judge : Judge, optional
    required_k : int
    queries : DataFrame, optional
        The instances that were answered.
    report : Recount
        Gets what could not be checked, and the counts.
    """

    content: Mapping[str, Any]
    population: Population
    policy: PrivacyPolicy
    judge: Judge | None
    required_k: int
    queries: pd.DataFrame | None
    report: Recount

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
        for released_region in released_regions:
            region = self._counted(released_region)
            self.report.counts.append(region.n_people)
            for check in CHECKS_AGAINST_PEOPLE:
                yield from check(region)
            if self.judge is None or not region.n_people:
                continue
            outcomes = self.judge.outcomes_of(released_region)
            yield from self.judge.wrong_pureness(released_region, outcomes)
            if self.policy.counts_eligible:
                yield from self.judge.too_few_eligible(region, outcomes)
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
            required_k=self.required_k,
            is_same_population=is_same_population,
            is_of_today=self.is_catalogue or is_same_population,
            n_people=population.people(released_region.rows),
            ncp=ncp(released_region.region, population),
        )

    def _still_true(
        self, released_regions: Sequence[Released], impure: Sequence[Released], judge: Judge
    ) -> StillTrue | None:
        """Count the answers that are true for the model; None if that cannot be."""
        if self.is_catalogue:
            return counted_true(answers_in_file(released_regions), answers_in_file(impure))
        return judge.true_answers(released_regions, self.queries, self.report)


# The model


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ModelOutcomes(HostOnly):
    """What the model says of a region with its private values.

    If the file does not name the outcome, there is a mask for each that it may be.

    Attributes
    ----------
    is_desired : list of arrays, shape (n_combinations,)
        Whether combinations of the region have the outcome.
    is_consistent : list of arrays, shape (n_rows,)
        The same of the rows inside.
    are_all : bool
        Whether the combinations are all.
    """

    is_desired: list[Mask]
    is_consistent: list[Mask]
    are_all: bool

    @property
    def share(self) -> float:
        """Share of the combinations that have the outcome, the largest that it may be."""
        return max(float(mask.mean()) for mask in self.is_desired)


@dataclass(frozen=True)
class Judge:
    """The model, and the desired outcome: a label, several, a range or "opposite"."""

    population: Population
    model: Any
    desired: Any

    @property
    def codes(self) -> Codes:
        """The encoder of rows."""
        return self.population.row_codes

    @cached_property
    def labels(self) -> LabelModel:
        """The model, which returns labels of tables."""
        return LabelModel(self.model, self.population.schema.features)

    @cached_property
    def row_labels(self) -> Labels:
        """The model's label of every row of the table."""
        features = list(self.population.schema.features)
        return self.labels(self.population.frame[features]).astype(object)

    def outcomes_of(self, released_region: Released) -> ModelOutcomes:
        """Ask about the combinations of a region, and its people, with the private values."""
        codes = self.codes
        combinations, are_all = asked_combinations(released_region.region, codes)
        people = self.population.coded_rows[np.ix_(released_region.rows, codes.quasi)]
        private = self._private(released_region)
        rows = codes.rows_of(np.concatenate([combinations, people]), private)
        labels = self.labels(codes.decode(rows)).astype(object)
        return ModelOutcomes(
            self._may_be_desired(released_region, labels[: len(combinations)]),
            self._may_be_desired(released_region, labels[len(combinations) :]),
            are_all,
        )

    def _private(self, released_region: Released) -> Floats:
        """Return the codes of the private values of an entry, shape (n_private,)."""
        columns = [self.codes.columns[j] for j in self.codes.private.tolist()]
        values = [released_region.entry["released"][column.name] for column in columns]
        codes = [
            column.encode(pd.Series([value], dtype=object))[0]
            for column, value in zip(columns, values, strict=True)
        ]
        return np.array(codes, dtype=np.float64)

    def wrong_pureness(
        self, released_region: Released, outcomes: ModelOutcomes
    ) -> Iterator[Finding]:
        """Yield an outcome other than desired, or a pureness that the model contradicts."""
        if self._has_another_outcome(released_region):
            yield Finding(released_region.where, "is about another outcome than --desired names")
        elif not any(
            self._may_be_pureness(released_region, mask, are_all=outcomes.are_all)
            for mask in outcomes.is_desired
        ):
            yield Finding(released_region.where, "pureness is not what the model says")

    def _may_be_pureness(self, released_region: Released, mask: Mask, *, are_all: bool) -> bool:
        """Return whether the stated interval of the pureness overlaps with the counted one.

        A counterfactual may have numbers that no row has, and with which some combinations were
        counted as well. The model cannot be asked about them, so any of them may have the outcome.
        """
        certificate = released_region.entry["certificate"]
        low = high = float(mask.mean())
        if not are_all:
            low, high = clopper_pearson(int(mask.sum()), len(mask))
        known_share = self._known_share(released_region)
        low *= known_share
        high = 1 - (1 - high) * known_share
        is_high_enough: bool = certificate["pureness_high"] >= low - _NEAR
        is_low_enough: bool = certificate["pureness_low"] <= high + _NEAR
        return is_high_enough and is_low_enough

    def _known_share(self, released_region: Released) -> float:
        """Return the least share of the combinations that have only values of training rows."""
        if not promise_of(
            released_region.entry["certificate"]["guarantee"]
        ).releases_counterfactuals:
            return 1.0
        share = 1.0
        for j in self.codes.quasi.tolist():
            column = self.codes.columns[j]
            if column.is_numeric:
                n_values = len(column.values_inside(released_region.region[column.name]))
                share *= n_values / (n_values + 1)
        return share

    def _has_another_outcome(self, released_region: Released) -> bool:
        common_outcome = DesiredOutcome.of(self.desired).common_outcome
        if common_outcome is None or released_region.entry["outcome"] is None:
            return False
        return bool(released_region.entry["outcome"] != common_outcome.to_dict())

    def too_few_eligible(self, region: CheckedRegion, outcomes: ModelOutcomes) -> Iterator[Finding]:
        """Yield if fewer than k inside have the outcome, or get it with the private values."""
        released_region = region.released
        labels = self.row_labels[released_region.rows]
        masks_of_count = {
            "have the outcome": self._may_be_desired(released_region, labels),
            "get the outcome with the private values that are released": outcomes.is_consistent,
        }
        for count, masks in masks_of_count.items():
            n_people = max(self.population.people(released_region.rows[mask]) for mask in masks)
            if n_people < region.required_k:
                yield Finding(
                    released_region.where,
                    f"{n_people} people {count}, fewer than {region.required_k}",
                )

    def true_answers(
        self,
        released_regions: Sequence[Released],
        queries: pd.DataFrame | None,
        report: Recount,
    ) -> StillTrue | None:
        """Count the answers to queries that are true for the model; None if that cannot be."""
        if queries is None:
            report.unchecked.append("that answers are true for the model (--queries)")
            return None
        answers = answers_in_file(released_regions)
        new_model = self._new_model(answers, report)
        if new_model is None:
            return None
        report.unchecked.append("that --queries are those that were answered, in this order")
        return still_true_at(advised_rows(answers, queries, self.codes), answers, new_model)

    def true_prototypes(self, content: Mapping[str, Any], report: Recount) -> StillTrue | None:
        """Count the prototypes that are true for the model; None if that cannot be."""
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

    def _may_be_desired(self, released_region: Released, labels: Labels) -> list[Mask]:
        """Return which of n labels are desired, shape (n,).

        If the file does not name the outcome, return a mask for each that it may be.
        """
        if released_region.entry["outcome"] is None:
            return DesiredOutcome.of(self.desired).possible_masks(labels)
        outcome = Outcome.of(released_region.entry["outcome"])
        if outcome.is_other:
            return [labels != outcome.label]
        return [DesiredOutcome.of(outcome.desired).is_met(labels)]
