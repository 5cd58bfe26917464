"""Recounting released explanations against the people, the model and the guarantee they were made
with.
"""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from cfk_plugin.data.combinations import Grid, rows_for_cells
from cfk_plugin.data.constraints import rules_of
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import OPPOSITE, DesiredOutcome, DesiredSet, Outcome, desired_of_text
from cfk_plugin.data.policy import MIN_LIFT, PrivacyPolicy
from cfk_plugin.data.promises import PROMISES, promise_of
from cfk_plugin.data.region import Interval, to_text
from cfk_plugin.data.values import to_number
from cfk_plugin.errors import HostOnly, ModelError
from cfk_plugin.metrics.information import ncp
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.metrics.risk import SensitiveFigures
from cfk_plugin.metrics.uniqueness import PrivateValues
from cfk_plugin.plugins import load_plugins
from cfk_plugin.protection import BUILT_IN
from cfk_plugin.protection.partition.microaggregation import Effort
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.editions import book_on_record, outcomes_of
from cfk_plugin.release.publication import (
    publish,
    wrong_order,
    wrong_short_catalogue,
    wrong_table,
)
from cfk_plugin.release.released_file import (
    Finding,
    Released,
    answers_in_file,
    floor_of,
    inconsistent,
    policy_of,
    prototypes_in_file,
    read,
    unfit,
    wrong_columns,
    wrong_prototypes,
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

    from cfk_plugin.data.domain import Domain
    from cfk_plugin.data.population import Population
    from cfk_plugin.data.region import Part
    from cfk_plugin.records.ledger import Ledger
    from cfk_plugin.release.pipeline import Pipeline
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
    population: Population | None = None,
    judge: Judge | None = None,
    *,
    agreed: PrivacyPolicy | None = None,
    k: int | None = None,
    outcome: str | None = None,
    rerun: bool = False,
    signed: bool = False,
    table: pd.DataFrame | None = None,
    queries: pd.DataFrame | None = None,
) -> Recount:
    """Check form, consistency, counts and, if given, the model's outcomes; stop where nothing can
    be read.

    Without `k`, that of the policy holds; `outcome` names the desired one, `agreed` is the policy
    that the file must have been made under, `rerun` builds the guarantee's regions again, and
    `signed` is only reported. `table` is what a catalogue's content was read from. With `queries`,
    the instances that were answered, the model says which answers are still true.
    """
    features: Sequence[str] = ()
    if population is not None:
        features = population.schema.features
    report = Recount(unfit(content, features))
    if report.findings:
        report.unchecked.append("anything else: the form has to be right first")
        return report
    policy = policy_of(content)
    if policy is None:
        report.findings.append(Finding("policy", "its settings contradict each other"))
        return report
    report.not_stopped += _attacks_not_stopped(content)
    report.findings += inconsistent(content, policy)
    is_catalogue = content["kind"] == "catalogue"
    if is_catalogue:
        report.findings += _wrong_catalogue(content, policy, table, features)
    report.unchecked += _unchecked(
        policy,
        signed=signed,
        agreed=agreed is not None,
        people=population is not None,
        model=judge is not None,
        rerun=rerun,
        is_catalogue=is_catalogue,
        has_sentences=any("sentence" in entry for entry in content["explanations"]),
    )
    report.findings += _missing_floor(content, policy)
    report.findings += _other_policy(policy, agreed)
    report.findings += _nothing_released(content)
    if population is None:
        return report
    report.findings += wrong_columns(content, population)
    if not isinstance(policy, PrivacyPolicy):
        report.findings += _findings_on_prototypes(content, population, policy, judge, report)
        return report
    is_contradictory = report.has_failed
    if rerun and is_contradictory:
        report.unchecked.append("that regions are those of the guarantee: the file is wrong anyway")
    checks = RegionChecks(
        content=content,
        population=population,
        policy=policy,
        judge=judge,
        requested_k=k,
        outcome=outcome,
        has_rerun=rerun and not is_contradictory,
        queries=queries,
        report=report,
    )
    report.findings += checks.findings()
    return report


# --- checks of a whole file -----------------------------------------------------------------------


def _released_entries(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [entry for entry in content["explanations"] if entry["status"] == "released"]


def _attacks_not_stopped(content: Mapping[str, Any]) -> list[str]:
    """Return the attacks that some certificate names, each once."""
    attacks: dict[str, None] = {}
    for entry in _released_entries(content):
        attacks |= dict.fromkeys(entry["certificate"].get("not_stopped", ()))
    return list(attacks)


def _missing_floor(content: Mapping[str, Any], policy: Policy) -> Iterator[Finding]:
    if isinstance(policy, PrivacyPolicy) and "least_pureness" not in content:
        yield Finding("least_pureness", "is missing")


def _other_policy(policy: Policy, agreed: PrivacyPolicy | None) -> Iterator[Finding]:
    if agreed is not None and agreed != policy:
        yield Finding("policy", "is not the one that was given")


def _nothing_released(content: Mapping[str, Any]) -> Iterator[Finding]:
    if all(entry["status"] == "withheld" for entry in content["explanations"]):
        yield Finding("explanations", "nothing was released", fails=False)


def _wrong_catalogue(
    content: Mapping[str, Any],
    policy: Policy,
    table: pd.DataFrame | None,
    features: Sequence[str],
) -> Iterator[Finding]:
    """Yield why the content is not a catalogue, or differs from the table that it was read from."""
    may_be_catalogue = (
        isinstance(policy, PrivacyPolicy) and promise_of(policy.guarantee).can_be_published
    )
    if not may_be_catalogue:
        yield Finding("kind", "is 'catalogue', and the policy's guarantee is another one")
        return
    yield from wrong_order(content)
    yield from wrong_short_catalogue(content)
    if table is not None:
        yield from wrong_table(table, content, features)


def _findings_on_prototypes(
    content: Mapping[str, Any],
    population: Population,
    policy: Policy,
    judge: Judge | None,
    report: Recount,
) -> Iterator[Finding]:
    """Yield what is wrong with prototypes, and that no people can be counted for them."""
    wrong = list(wrong_prototypes(content, population))
    yield from wrong
    if judge is not None and not wrong:
        report.still_true = judge.true_prototypes(content, policy, report)
        yield from _not_true(report.still_true, policy)
    no_count = (
        "hold prototypes, which no people can be counted for: epsilon is of the way they were made"
    )
    yield Finding("explanations", f"{no_count}; see cfk audit epsilon", fails=False)


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


def _unchecked(
    policy: Policy,
    *,
    signed: bool,
    agreed: bool,
    people: bool,
    model: bool,
    rerun: bool,
    is_catalogue: bool,
    has_sentences: bool,
) -> list[str]:
    """Return what was not checked, with the option that checks it where there is one."""
    # Prototypes are drawn with noise, and have no region, no search and no entry to check.
    promise = promise_of(policy.guarantee) if isinstance(policy, PrivacyPolicy) else None
    is_of_prototypes = promise is None
    may_claim_optimality = promise is not None and promise.may_claim_optimality
    has_counterfactuals = promise is not None and promise.releases_counterfactuals
    searches_for_answers = promise is not None and promise.searches_for_answers
    is_checked = {
        "who wrote the file, and changes that fit the rest of it (--key)": signed,
        "that its policy is the one that was agreed on (--policy)": agreed,
        "people, information loss and values (give the training rows and --schema)": people,
        "pureness (--model)": model or is_of_prototypes,
        "that regions are those of the guarantee (--rerun)": rerun or is_of_prototypes,
        "optimal and gap, which are the method's own claim": not may_claim_optimality,
        "that private values are those of the entries, and that none is missing (--rerun)": (
            rerun or not is_catalogue
        ),
        "that private values are those of the counterfactuals, which are not in the file": (
            not has_counterfactuals
        ),
        "which entry of the catalogue answers a query, and how far it was moved": (
            is_catalogue or not searches_for_answers
        ),
        "where searches for answers started, on which query steering depends": (
            is_catalogue or not searches_for_answers
        ),
        "that no answer was taken out together with its number": is_catalogue,
        "why explanations were withheld": is_catalogue or is_of_prototypes,
        "that sentences say what their entries say": not has_sentences,
    }
    return [statement for statement, checked in is_checked.items() if not checked]


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
    is_known_method: bool  # the certificate names a method that is installed here
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
    """Yield that the certificate counts other people, or fewer as a ledger may have it."""
    certified = region.certificate["k"]
    if region.required_k <= certified < region.n_people:
        yield Finding(
            region.where,
            f"{region.n_people} people, and the certificate counts fewer: if a ledger was kept,"
            " those who are left of an earlier release",
            fails=False,
        )
    elif certified != region.n_people:
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


def impossible_pureness(region: CheckedRegion) -> Iterator[Finding]:
    if not _may_be_pureness(region.released, region.population):
        yield Finding(
            region.where,
            "pureness is no share of the region's combinations, or its interval is none of it",
        )


def rare_values(region: CheckedRegion) -> Iterator[Finding]:
    """Yield private values that fewer than k people have, where the policy withholds these."""
    if region.policy.rare_values != "withhold":
        return
    values = PrivateValues(region.population)
    for j, name in enumerate(region.population.schema.private):
        if name not in region.released.entry["released"]:
            continue
        if values.people(j, _span(region.released, name)) < region.policy.k:
            yield Finding(region.where, f"releases {name}, which fewer than k people have")


def undiverse_inside(region: CheckedRegion) -> Iterator[Finding]:
    """Yield what is not diverse inside, where the guarantee counts everyone inside.

    Under the others those count who are mapped to the region, which only a rerun tells.
    """
    if promise_of(region.policy.guarantee).counts_everyone_inside:
        rows = region.released.rows
        yield from undiverse(region.released, region.population, region.policy, rows)


def unknown_method(region: CheckedRegion) -> Iterator[Finding]:
    if not region.is_known_method:
        yield Finding(
            region.where,
            "certificate.method is the name of no method or plugin that is installed here",
        )


def other_population(region: CheckedRegion) -> Iterator[Finding]:
    if region.population.has_key and not region.is_same_population:
        yield Finding(
            region.where, "is about another population, or was made with another key", fails=False
        )


CHECKS_AGAINST_PEOPLE: tuple[Callable[[CheckedRegion], Iterator[Finding]], ...] = (
    too_few_people,
    other_number_of_people,
    other_loss,
    impossible_pureness,
    rare_values,
    undiverse_inside,
    unknown_method,
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
    outcome: str | None  # the desired one, by name
    has_rerun: bool  # whether the guarantee's regions are built again
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
        released_regions, unreadable = read(self.content, self.population, self.policy)
        yield from unreadable
        rerun = self._rerun()
        if rerun is not None and self.is_catalogue:
            yield from rerun.wrong_publication(self.content, self.report)
        known_methods = _known_methods()
        known_outcomes = self._known_outcomes()
        floor = floor_of(self.content)
        impure: list[Released] = []  # by the model
        outcomes_of_regions: Iterable[ModelOutcomes | None] = repeat(None, len(released_regions))
        if self.judge is not None:
            outcomes_of_regions = self.judge.outcomes_of(released_regions)
        for released_region, outcomes in zip(released_regions, outcomes_of_regions, strict=True):
            region = self._counted(released_region, known_methods)
            self.report.counts.append(region.n_people)
            for check in CHECKS_AGAINST_PEOPLE:
                yield from check(region)
            yield from _wrong_outcome(
                released_region, known_outcomes, has_model=self.judge is not None
            )
            if self.judge is not None and outcomes is not None:
                yield from self._wrong_for_model(region, outcomes, self.judge)
                if outcomes.share < floor:
                    impure.append(released_region)
            if rerun is not None and not self.is_catalogue:
                yield from rerun.wrong_region(released_region)
        if self.judge is not None:
            self.report.still_true = self._still_true(released_regions, impure, self.judge)
        yield from _not_true(self.report.still_true, self.policy)
        if not self.population.has_key:
            self.report.unchecked.append(
                "that this is the population of the certificates (set CFK_KEY)"
            )

    def _counted(self, released_region: Released, known_methods: set[str]) -> CheckedRegion:
        """Count the people inside a region and its information loss."""
        population = self.population
        certificate = released_region.entry["certificate"]
        is_same_population = (
            population.has_key and certificate["population"] == population.fingerprint
        )
        return CheckedRegion(
            released=released_region,
            population=population,
            policy=self.policy,
            requested_k=self.requested_k,
            is_same_population=is_same_population,
            is_of_today=self.is_catalogue or is_same_population,
            is_known_method=certificate["method"] in known_methods,
            n_people=population.people(released_region.rows),
            ncp=ncp(released_region.region, population),
        )

    def _known_outcomes(self) -> set[str]:
        """Return all known outcomes as text: of the table's target, of the model, and the one that
        was named.
        """
        target = self.population.schema.target
        frame = self.population.frame
        labels: list[Any] = []
        if target is not None and target in frame:
            labels += frame[target].dropna().unique().tolist()
        if self.judge is not None:
            labels += self.judge.row_labels.tolist()
        if self.outcome is not None and self.outcome != OPPOSITE:
            named = desired_of_text(self.outcome, (), str)
            labels.append(self.outcome)
            labels += named.labels if isinstance(named, DesiredSet) else [named]
        return {to_text(label) for label in labels}

    def _rerun(self) -> Rerun | None:
        """Return the guarantee's regions, built again.

        None if they are not to be built, or the file does not tell enough.
        """
        if self.judge is None or not self.has_rerun:
            return None
        unchecked = self.report.unchecked
        if self.judge.previous is not None:
            unchecked.append(
                "that the catalogue of --previous is the one that was published: its values are"
                " taken as they are"
            )
        if not promise_of(self.policy.guarantee).has_fixed_regions:
            unchecked.append(
                "that a search finds these regions again: its counterfactuals are not in the file"
            )
            return None
        if any(entry["certificate"]["n_later"] for entry in _released_entries(self.content)):
            unchecked.append(
                "that these are the guarantee's regions: models in later= decided on them, and they"
                " are not here"
            )
            return None
        return self.judge.rerun_of(replace(self.policy, min_pureness=floor_of(self.content)))

    def _wrong_for_model(
        self, region: CheckedRegion, outcomes: ModelOutcomes, judge: Judge
    ) -> Iterator[Finding]:
        """Yield what the model contradicts of a certificate."""
        if outcomes.n_combinations == 0:
            self.report.unchecked.append(
                f"pureness of {region.where}: the table has no number in a released bin"
            )
            return
        yield from judge.wrong_pureness(region.released, outcomes)
        if self.policy.counts_eligible:
            yield from judge.too_few_eligible(region, outcomes)

    def _still_true(
        self, released_regions: Sequence[Released], impure: Sequence[Released], judge: Judge
    ) -> StillTrue | None:
        """Count the answers that are true for the model; None where that cannot be."""
        if self.is_catalogue:
            return judge.true_entries(released_regions, impure, self.policy)
        return judge.true_answers(released_regions, self.queries, self.policy, self.report)


def _known_methods() -> set[str]:
    """Return the names of all methods that certificates of regions may state here."""
    with_fixed_regions = [name for name in PROMISES if promise_of(name).has_fixed_regions]
    return {*BUILT_IN, *load_plugins().protectors(), *with_fixed_regions}


def _wrong_outcome(
    released_region: Released, known_outcomes: set[str], *, has_model: bool
) -> Iterator[Finding]:
    """Yield an outcome that is missing or not known: an unknown text or number could be
    anything.
    """
    outcome = released_region.entry["outcome"]
    if outcome is None:
        yield Finding(
            released_region.where,
            "does not name its outcome: a function that is not in the file decided",
            fails=False,
        )
        return
    not_known = Finding(
        released_region.where,
        "names an outcome that nothing tells; give --desired or --model",
        fails=False,
    )
    if "low" in outcome:  # a range of numbers
        if not has_model and str(Outcome.of(outcome)) not in known_outcomes:
            yield not_known
        return
    if "any" in outcome:
        labels = outcome["any"]
    elif "label" in outcome:
        labels = [outcome["label"]]
    else:
        labels = [outcome["not"]]
    if all(isinstance(label, bool) for label in labels):
        return
    if not known_outcomes:
        yield not_known
    elif not {to_text(label) for label in labels} <= known_outcomes:
        yield Finding(released_region.where, "names an outcome that is none")


# --- diversity ------------------------------------------------------------------------------------


def undiverse(
    released_region: Released,
    population: Population,
    policy: PrivacyPolicy,
    rows: NDArray[np.int64],
) -> Iterator[Finding]:
    """Yield which of the policy's rules on private values are broken among the people of some
    rows.
    """
    figures = SensitiveFigures.of(population, rows)
    if policy.l is not None and figures.diversity is not None and figures.diversity < policy.l:
        yield Finding(released_region.where, "fewer than l sensitive values")
    if (
        policy.t is not None
        and figures.closeness is not None
        and figures.closeness > policy.t + NEAR
    ):
        yield Finding(released_region.where, "sensitive values are farther than t from everybody's")
    if policy.alpha is not None and len(rows) > 0:
        yield from _homogeneous(released_region, population, policy.alpha, rows)


def _homogeneous(
    released_region: Released, population: Population, alpha: float, rows: NDArray[np.int64]
) -> Iterator[Finding]:
    """Yield the private attributes whose released value a larger share of people has than alpha.

    A value that is not much more frequent among them than in the population passes.
    """
    values = PrivateValues(population)
    n_people = population.people(rows)
    for j, name in enumerate(population.schema.private):
        if name not in released_region.entry["released"]:
            continue
        span = _span(released_region, name)
        domain = population.domains[name]
        if name in released_region.exact and domain.attribute.kind == "numeric":
            _, numbers = domain.encode_values([released_region.exact[name]])
            span = values.close(j, span[0], float(numbers[0]))
        share = values.people(j, span, rows) / n_people
        share_everywhere = values.people(j, span) / population.n_people
        if share > alpha and share > MIN_LIFT * share_everywhere:
            yield Finding(
                released_region.where,
                f"more people share what is released of {name} than alpha allows",
            )


def _span(released_region: Released, name: str) -> tuple[int, int]:
    """Return the range of codes that a private attribute is released as; empty for a number that no
    row has.
    """
    axis = released_region.axes[name]
    if len(axis) == 0 or axis[0] < 0:
        return (0, 0)
    return (int(axis[0]), int(axis[-1]) + 1)


# --- pureness -------------------------------------------------------------------------------------


class AxisSize(NamedTuple):
    """How many values an attribute stands for in the combinations of a region."""

    in_table: int
    most: int  # with a number that no row has


def _axis_sizes(released_region: Released, population: Population) -> list[AxisSize]:
    """Return how many values each attribute stands for.

    A counterfactual may have a number that is in no row, and which was counted as one more value.
    """
    n_values = {
        name: int(population.domains[name].inside(part).sum())
        for name, part in released_region.region.items()
    }
    if len(released_region.exact) < len(population.schema.private):
        n_values |= {name: len(axis) for name, axis in released_region.axes.items()}
    promise = promise_of(released_region.entry["certificate"]["guarantee"])
    sizes = []
    for name, n in n_values.items():
        is_numeric = population.domains[name].attribute.kind == "numeric"
        may_be_new = (
            promise.releases_counterfactuals and is_numeric and name not in released_region.exact
        )
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


def _may_be_pureness(released_region: Released, population: Population) -> bool:
    """Return True if the certificate's pureness is a share of as many combinations as there may be,
    and its interval is that of a sample.
    """
    certificate = released_region.entry["certificate"]
    pureness = certificate["pureness"]
    possible = _possible_sizes(released_region, population)
    if certificate["exact"]:
        return any(0 < size <= CELLS and _is_share_of(pureness, size) for size in possible)
    if max(possible) <= CELLS or not _is_share_of(pureness, SAMPLES):
        return False
    low, high = clopper_pearson(round(pureness * SAMPLES), SAMPLES)
    is_low_end = abs(certificate["pureness_low"] - low) <= NEAR
    is_high_end = abs(certificate["pureness_high"] - high) <= NEAR
    return bool(is_low_end and is_high_end)


def _is_share_of(pureness: float, size: int) -> bool:
    return bool(round(pureness * size) / size == pureness)


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

    n_combinations: int  # of the region; 0 where a bin has no number of the table
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
    """The model, the desired outcome (a label or "opposite"), and how groups were searched for.

    Where a catalogue was published after another one, that one or the ledger decided on its values.
    """

    population: Population
    model: Any
    desired: Any
    effort: Effort = "balanced"
    previous: Mapping[str, Any] | None = None
    ledger: Ledger | None = None
    _reruns: dict[str, Rerun] = field(default_factory=dict, init=False, repr=False, compare=False)

    def rerun_of(self, policy: PrivacyPolicy) -> Rerun:
        """Return what a policy's guarantee stands on, which is built only once."""
        if policy.sha256 not in self._reruns:
            self._reruns[policy.sha256] = Rerun(self, policy)
        return self._reruns[policy.sha256]

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
            codes.append(self._with_released_values(released_region, grid.drawn(CELLS, SAMPLES)))
            cells_of_people = self._cells_of_people(released_region)
            codes.append(self._with_released_values(released_region, cells_of_people))
        lengths = np.array([len(combinations) for combinations in codes])
        # Values that no combination has are any person's.
        person = {
            str(name): column.iloc[0] for name, column in population.rows(np.array([0])).items()
        }
        values = [{**person, **released_region.exact} for released_region in released_regions]
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

    def _has_all_private(self, released_region: Released) -> bool:
        """Return True if all private values are released as they are."""
        return len(released_region.exact) == len(self.population.schema.private)

    def _grid(self, released_region: Released) -> Grid:
        """Return the combinations of a region and, where some are not exact, of private values."""
        private: list[NDArray[np.int32]] = []
        if not self._has_all_private(released_region):
            private = [released_region.axes[name] for name in self.population.schema.private]
        return Grid.of(
            released_region.region, self.population, [0] * len(released_region.region), private
        )

    def _cells_of_people(self, released_region: Released) -> NDArray[np.int32]:
        """Return the combination of each row inside; none if private values are not exact."""
        rows = released_region.rows
        if not self._has_all_private(released_region):
            rows = rows[:0]
        return self.population.cells[self.population.cell_of(rows)]

    def _with_released_values(
        self, released_region: Released, cells: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Return n combinations with the released private values, shape (n, n_features).

        The code ``size`` stands for the explanation's own value.
        """
        n_quasi_identifiers = len(released_region.region)
        private = self.population.schema.private
        whole = np.empty((len(cells), n_quasi_identifiers + len(private)), dtype=np.int32)
        whole[:, : cells.shape[1]] = cells
        for j, name in enumerate(private):
            if name in released_region.exact:
                code = int(released_region.axes[name][0])
                if code < 0:
                    code = self.population.domains[name].size
                whole[:, n_quasi_identifiers + j] = code
        return whole

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
        masks_of_count = {"have the outcome": self._may_be_desired(released_region, labels)}
        if self._has_all_private(released_region):
            masks_of_count["get the outcome with the private values that are released"] = (
                outcomes.is_consistent
            )
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
        self, released_regions: Sequence[Released], impure: Sequence[Released], policy: Policy
    ) -> StillTrue:
        """Count the entries of a catalogue that are true for the model: all that are not impure."""
        return counted_true(answers_in_file(released_regions), answers_in_file(impure), policy)

    def true_answers(
        self,
        released_regions: Sequence[Released],
        queries: pd.DataFrame | None,
        policy: Policy,
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
        return still_true_at(rows, answers, policy, new_model)

    def true_prototypes(
        self, content: Mapping[str, Any], policy: Policy, report: Recount
    ) -> StillTrue | None:
        """Count the prototypes that are true for the model; None where that cannot be."""
        answers = prototypes_in_file(content)
        new_model = self._new_model(answers, report)
        if new_model is None:
            return None
        values = pd.DataFrame([answer.values for answer in answers], dtype=object)
        rows = self.population.conform(values)
        return still_true_at(rows, answers, policy, new_model)

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
            return NewModel(self.model, None, features, answers, desired)
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


# --- the guarantee, built again ------------------------------------------------------------------


class Rerun:
    """The regions that a guarantee with fixed regions maps people to, built anew."""

    def __init__(self, judge: Judge, policy: PrivacyPolicy) -> None:
        self._population = judge.population
        self._policy = policy
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._anonymizer = KAnonymizer(
                policy=replace(policy, on_infeasible="withhold"), effort=judge.effort
            )
            self._anonymizer.fit(judge.population, model=judge.model, desired=judge.desired)
        self._pipeline = self._pipeline_of(judge)
        self._is_after_another = judge.previous is not None or judge.ledger is not None
        # A ledger withholds exact values that too few new people have, and keeps no record of what
        # it withheld.
        self._ledger_may_withhold = judge.ledger is not None and policy.private_values != "shared"
        partition = self._anonymizer.guarantee_.partition
        assert partition is not None  # noqa: S101 - only a lookup guarantee has none
        self._partition = partition
        self._margin = self._anonymizer.pipeline_.rows.requirement.margin
        self._groups: dict[str, list[int]] = defaultdict(list)
        for group, region in enumerate(partition.regions):
            self._groups[_region_text(region, self._population)].append(group)
        self._values_of_group: dict[int, list[str]] = {}

    def _pipeline_of(self, judge: Judge) -> Pipeline:
        """Return the pipeline with the catalogue that was published."""
        anonymizer = self._anonymizer
        if judge.previous is not None:
            return anonymizer.pipeline_for(judge.previous)
        if judge.ledger is None or self._policy.private_values != "shared":
            return anonymizer.pipeline_
        outcomes = outcomes_of(anonymizer.guarantee_.eligibility)
        return anonymizer.pipeline_with(
            book_on_record(judge.ledger, anonymizer.policy_, anonymizer.goal_, outcomes)
        )

    def wrong_region(self, released_region: Released) -> Iterator[Finding]:
        """Yield why a region is not one of the guarantee's."""
        groups = self._groups.get(_region_text(released_region.region, self._population))
        if groups is None:
            yield Finding(released_region.where, "no group of the guarantee has its region")
            return
        if released_region.entry["certificate"]["margin"] != self._margin:
            yield Finding(released_region.where, "margin is not that of the catalogue")
        mapped = self._partition.rows_mapped_to(self._partition.regions[groups[0]])
        n_people = self._population.people(mapped)
        if n_people < self._policy.k:
            yield Finding(
                released_region.where, f"{n_people} people are mapped to its region, fewer than k"
            )
        yield from undiverse(released_region, self._population, self._policy, mapped)
        has_fixed_values = promise_of(self._policy.guarantee).fixes_private_values
        if has_fixed_values and not any(
            self._may_be_released(released_region, group) for group in groups
        ):
            yield Finding(
                released_region.where,
                "its region with these private values is no entry of the catalogue",
            )

    def wrong_publication(self, content: Mapping[str, Any], report: Recount) -> Iterator[Finding]:
        """Yield how a published catalogue, or the short part of one, differs from this one."""
        yield from self.wrong_catalogue(content, report)
        if "short_catalogue" in content:
            yield from self.wrong_size(content["short_catalogue"], report)

    def wrong_catalogue(self, content: Mapping[str, Any], report: Recount) -> Iterator[Finding]:
        """Yield how the entries of a file differ from those of the catalogue, built again."""
        entries = content["explanations"]
        texts = [_text_of(entry) for entry in entries]
        expected = self._expected_texts(content)
        if texts == expected:
            return
        yield from self._wrong_entries(entries, expected)
        n_missing = self._n_missing(content)
        if n_missing > 0:
            yield Finding(
                "explanations",
                f"lack {n_missing} of the catalogue's entries",
                fails=not self._ledger_may_withhold,
            )
        elif sorted(texts) == sorted(expected):
            yield Finding("explanations", "are not in the order of the catalogue's entries")
        if n_missing > 0 and self._ledger_may_withhold:
            report.unchecked.append("whether the ledger withheld the entries that the file lacks")
        if not self._is_after_another:
            yield Finding(
                "explanations",
                "are not those of a first catalogue; if it was published after another one, or with"
                " a ledger, give --previous or --ledger",
                fails=False,
            )

    def _wrong_entries(
        self, entries: Sequence[Mapping[str, Any]], expected: Sequence[str]
    ) -> Iterator[Finding]:
        """Yield the entries that the catalogue lacks, has once only, or certifies differently."""
        earlier_answers = set[str]()
        for i, entry in enumerate(entries):
            place = f"explanation {i}"
            answer = _text_of(entry, certified=False)
            if answer not in self._certificates:
                yield Finding(place, "is no entry of the catalogue")
            elif answer in earlier_answers:
                yield Finding(place, "is an entry that the file has twice")
            elif _text_of(entry) not in expected:
                names = _differing(entry["certificate"], self._certificates[answer])
                yield Finding(place, f"{', '.join(names)}: not as in the catalogue")
            earlier_answers.add(answer)

    def _n_missing(self, content: Mapping[str, Any]) -> int:
        """Return how many entries a file lacks; a short catalogue lacks them on purpose."""
        if "short_catalogue" in content:
            return 0
        answers = {_text_of(entry, certified=False) for entry in content["explanations"]}
        return len(self._certificates.keys() - answers)

    def _expected_texts(self, content: Mapping[str, Any]) -> list[str]:
        """Return the catalogue's entries as texts; of a short catalogue those that its file has."""
        texts = [_text_of(entry) for entry in self._published]
        if "short_catalogue" not in content:
            return texts
        in_file = {_text_of(entry) for entry in content["explanations"]}
        return [text for text in texts if text in in_file]

    def wrong_size(self, short_catalogue: Mapping[str, Any], report: Recount) -> Iterator[Finding]:
        """Yield if a short catalogue was not made of as many entries as it says."""
        report.unchecked.append("that a short catalogue has the entries that help the most")
        if self._ledger_may_withhold:
            report.unchecked.append("how many entries a short catalogue leaves out")
        elif short_catalogue["of"] != len(self._published):
            yield Finding("short_catalogue.of", "is not how many entries the catalogue has")

    @cached_property
    def _published(self) -> list[dict[str, Any]]:
        """The entries that were to be published, in their order."""
        catalogue = self._pipeline.guarantee.catalogue
        assert catalogue is not None  # noqa: S101 - the policy's guarantee is a catalogue
        entries = self._pipeline.catalogue_entries(catalogue, np.arange(len(catalogue)))
        return [entry.to_dict() for entry in publish(entries)]

    @cached_property
    def _certificates(self) -> dict[str, Mapping[str, Any]]:
        """The certificate of each entry that was to be published, by the rest of it as text."""
        return {_text_of(entry, certified=False): entry["certificate"] for entry in self._published}

    def _may_be_released(self, released_region: Released, group: int) -> bool:
        """Return True if an entry of a group has these private values, or may have been moved to
        them.
        """
        if _private_text(released_region.entry, self._population) in self._private_values_of(group):
            return True
        catalogue = self._pipeline.guarantee.catalogue
        if catalogue is None or not self._policy.moves_towards_query:
            return False
        return catalogue.may_have_moved_to(released_region.exact, group)

    def _private_values_of(self, group: int) -> list[str]:
        """Return the private values, as text, that the catalogue releases with the region of a
        group, by releasing each of its entries.
        """
        if group not in self._values_of_group:
            self._values_of_group[group] = [
                _private_text(entry, self._population) for entry in self._entries_of(group)
            ]
        return self._values_of_group[group]

    def _entries_of(self, group: int) -> list[dict[str, Any]]:
        """Return the entries of a group that are released."""
        catalogue = self._pipeline.guarantee.catalogue
        if catalogue is None:
            return []
        entries = np.flatnonzero(catalogue.group == group)
        explanations = self._pipeline.catalogue_entries(catalogue, entries)
        return [
            explanation.to_dict()
            for explanation in explanations
            if explanation.status == "released"
        ]


# Not compared: the policy's hash, since the policy of the rerun has the floor filled in; and the
# fingerprint of the population, which needs the key.
_NOT_OF_AN_ENTRY = ("policy_hash", "population")


def _text_of(entry: Mapping[str, Any], *, certified: bool = True) -> str:
    """Write an entry as text that is the same only if all of its values are, to the last digit."""
    fields = {name: entry[name] for name in entry if name not in ("query", "certificate")}
    if certified and "certificate" in entry:
        certificate = entry["certificate"]
        fields["certificate"] = {
            name: certificate[name] for name in certificate if name not in _NOT_OF_AN_ENTRY
        }
    return json.dumps(fields, sort_keys=True)


def _differing(certificate: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields of an entry's certificate that are not as expected."""
    names = sorted({*certificate, *expected} - {*_NOT_OF_AN_ENTRY})
    return [
        name
        for name in names
        if json.dumps(certificate.get(name)) != json.dumps(expected.get(name))
    ]


def _region_text(region: Mapping[str, Part], population: Population) -> str:
    """Write a region as canonical text, whatever the types of its values."""

    def plain(part: Part, domain: Domain) -> list[Any]:
        if isinstance(part, Interval):
            if domain.attribute.kind == "ordinal":
                return [list(part.levels or ()), part.missing]
            ends = [None if end is None else to_number(end) for end in (part.low, part.high)]
            return [*ends, part.missing]
        return sorted(_code_of(value, domain) for value in part)

    parts = {name: plain(part, population.domains[name]) for name, part in sorted(region.items())}
    return json.dumps(parts)


def _code_of(value: Any, domain: Domain) -> int:
    if value is None:
        return domain.missing_code
    return domain.code(value)


def _private_text(entry: Mapping[str, Any], population: Population) -> str:
    """Write the private values that an entry releases as canonical text."""

    def plain(value: Any, domain: Domain) -> Any:
        if value is None or isinstance(value, dict):
            return value
        return to_number(value) if domain.attribute.kind == "numeric" else to_text(value)

    released = {
        name: plain(value, population.domains[name])
        for name, value in sorted(entry["released"].items())
    }
    return json.dumps([released, sorted(entry["withheld"])])
