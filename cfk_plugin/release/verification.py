"""Verification: recount every figure of a region before an explanation with it may be released.

A protector proposes regions, or a partition fixes them. `Verifier.verify` believes neither. It
counts each region again, from nothing but the region, the population and the model:

1. **Recount** (`CountedRegion`). From the population: how many people are inside the region, how
   many of them the guarantee counts, how much information the region loses, and how diverse the
   sensitive values of these people are. `refusal_by_population` withholds a region that breaks a
   rule of the policy.
2. **Ask the model** (`ModelAnswers`) about the region's value combinations, and about the people
   inside, with their own quasi-identifiers and the private values that would be released.
3. **Judge** (`OutcomeFigures`). From these answers: how many combinations, and how many people,
   have the desired outcome. `refusal_by_model` withholds a region that breaks a rule.
4. **Certify**. The certificate states the figures that the recipient may see. The recount states
   those that are for the data holder alone.

Each rule of the policy is a function, from `has_k_people` to `reaches_promised_counts`. The two
``refusal_by_...`` functions say in which order the rules are tried, and which reason each gives. A
new rule begins here. If it has a new reason, the texts for it are in `cfk_plugin.release.withheld`,
and the JSON schema of explanations lists it.

**What is not recounted.** The population and the model are taken as they are. Which people a
partition maps to a region is told to the verifier, which checks only that they are inside. Of a
sealed catalogue without rows there is nothing to count: the counts are those that were sealed. A
protector's claim that no better region exists is repeated in the certificate, not proved again.

**What is not protected.** No rule withholds exact private values that single a person out; the
recount only says how many rows have them (`k_private`). Nor does verification stop an attack that
`PrivacyPolicy.not_stopped` names. It looks at one release at a time, and not at what several
releases disclose together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.combinations import MOST_CELLS, SAMPLED, Grid
from cfk_plugin.data.decision import Mask
from cfk_plugin.data.domain import (
    INVALID,
    UNEXPECTED_MISSING,
    UNKNOWN,
    Codes,
    Domain,
    Numbers,
    Rows,
)
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.predictions import AnyOutcome, Requirement
from cfk_plugin.data.region import Interval, Part, Region
from cfk_plugin.data.sealing import SealedRegion
from cfk_plugin.data.training_labels import DESIRED, SURE, CombinationOutcomes
from cfk_plugin.errors import HostOnly
from cfk_plugin.hookspecs import Proposal
from cfk_plugin.metrics.information import ncp_by_attribute, weigh_losses
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.metrics.risk import SensitiveFigures
from cfk_plugin.metrics.uniqueness import PrivateValues
from cfk_plugin.release.actionability import Actionability
from cfk_plugin.release.results import Certificate, RegionRecount, Withheld
from cfk_plugin.release.verdicts import Certified, Verdict, refused

# --- The people of a region -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class PeopleInRows(HostOnly):
    """The people of a region, counted in the rows of the population.

    The people *inside* are those whose quasi-identifiers fit the region; their number is the
    certificate's k. The people *mapped* to the region are those who would get it; the guarantee
    holds for them. `Verifier.people_of` says who these are.
    """

    population: Population
    inside: Rows  # shape (n_rows,)
    mapped: Rows

    @cached_property
    def n_inside(self) -> int:
        return self.population.people(self.inside)

    @cached_property
    def n_mapped(self) -> int:
        return self.population.people(self.mapped)

    @property
    def are_mapped_inside(self) -> bool:
        return bool(np.isin(self.mapped, self.inside, assume_unique=True).all())

    @cached_property
    def is_mapped(self) -> Mask:
        """Mask of shape (n_rows,)."""
        return np.isin(self.inside, self.mapped, assume_unique=True)

    @cached_property
    def combinations(self) -> Codes:
        """The quasi-identifiers of each row, shape (n_rows, n_quasi_identifiers)."""
        return self.population.cells[self.population.cell_of(self.inside)]

    def are_consistent(self, is_sure: Mask, private: Codes) -> Mask:  # noqa: ARG002 - see `SealedPeople`
        """Return which rows have the outcome with the private values of each counterfactual.

        `is_sure`, of shape (n_counterfactuals, n_rows), is the model's answer for `combinations`.
        """
        return is_sure

    def count(self, is_counted: Mask) -> list[int]:
        """Count the people behind some rows, for a mask of shape (n_counterfactuals, n_rows)."""
        return self.population.people_of(self.inside, is_counted)

    def count_mapped(self, is_counted: Mask) -> list[int]:
        """Like `count`, of the people who are mapped to the region."""
        return self.count(self.is_mapped & is_counted)


@dataclass(frozen=True, eq=False, repr=False)
class SealedPeople(HostOnly):
    """The people of a sealed catalogue's region, of whom there are only counts.

    When the catalogue was sealed, at least `floor` people were mapped to the region and had the
    outcome. The model shows whether they still have it: see `SealedRegion.proves`.
    """

    sealed: SealedRegion
    inside: ClassVar[Rows] = np.empty(0, dtype=np.int64)  # no row is known
    mapped: ClassVar[Rows] = inside
    are_mapped_inside: ClassVar[bool] = True  # as was checked before sealing

    @property
    def n_inside(self) -> int:
        return self.sealed.people

    @property
    def n_mapped(self) -> int:
        return min(self.sealed.floor, self.sealed.people)

    @property
    def combinations(self) -> Codes:
        """The combinations that decide on the floor, shape (n, n_quasi_identifiers)."""
        return self.sealed.cells

    def are_consistent(self, is_sure: Mask, private: Codes) -> Mask:
        """Return whether the floor is proved, shape (n_counterfactuals, 1).

        `private` has the codes of the private values, shape (n_counterfactuals, n_private).
        """
        proofs = [
            self.sealed.proves(is_good, values)
            for is_good, values in zip(is_sure, private, strict=True)
        ]
        return np.array(proofs, dtype=bool).reshape(-1, 1)

    def count(self, is_proved: Mask) -> list[int]:
        """Return the floor where it is proved, and otherwise 0."""
        counts: list[int] = np.where(is_proved[:, 0], self.sealed.floor, 0).tolist()
        return counts

    count_mapped = count


People = PeopleInRows | SealedPeople


# --- The figures of a region, and the rules of the policy -----------------------------------------


class CountedRegion(HostOnly):
    """What the population says about a region. A figure is counted when it is first needed."""

    def __init__(
        self, region: Region, people: People, population: Population, *, is_of_group: bool
    ) -> None:
        self.region = region
        self.people = people
        self.is_of_group = is_of_group  # a partition fixes the region and who is mapped to it
        self._population = population

    @cached_property
    def ncp_parts(self) -> Mapping[str, float]:
        """The information loss of each quasi-identifier, in the order of the schema."""
        return ncp_by_attribute(self.region, self._population)

    @cached_property
    def ncp(self) -> float:
        """The information loss: the weighted sum of `ncp_parts`."""
        return weigh_losses(self.ncp_parts, self._population.schema)

    @cached_property
    def sensitive(self) -> SensitiveFigures:
        """How diverse the sensitive values of the people who are mapped to the region are."""
        return SensitiveFigures.of(self._population, self.people.mapped)


@dataclass(frozen=True, slots=True)
class OutcomeFigures:
    """What the model says about a region and the private values of one counterfactual."""

    pureness: float  # share of the value combinations with the desired outcome
    pureness_low: float  # ends of its confidence interval
    pureness_high: float
    k_desired: int | None  # people inside whose own prediction is the desired one
    majority: bool | None  # whether at least half of the rows inside have it
    k_consistent: int  # people inside who have it with the released private values
    # Smallest count of mapped people that the guarantee promises to be k; None if it promises none.
    fewest_promised: int | None = field(compare=False)


def refusal_by_population(region: CountedRegion, policy: PrivacyPolicy) -> Withheld | None:
    """Return why the policy withholds a region before the model is asked; None if it does not.

    The rules are tried in this order. The first one that is broken gives the reason.
    """
    if not has_k_people(region, policy):
        return refused("verification_failed", region.people.n_mapped)
    if not has_its_people_inside(region):
        return refused("verification_failed")
    if not is_within_max_ncp(region, policy):
        return refused("ncp_above_ceiling")
    if not is_l_diverse(region, policy):
        return refused("l_diversity")
    if not is_t_close(region, policy):
        return refused("t_closeness")
    return None


def refusal_by_model(
    region: CountedRegion, figures: OutcomeFigures, policy: PrivacyPolicy
) -> Withheld | None:
    """Return why the policy withholds a region after the model was asked; None if it does not.

    The rules are tried in this order. The first one that is broken gives the reason.
    """
    if not is_pure_enough(figures, policy):
        return refused("pureness_below_floor")
    if not advises_something(region, figures):
        return refused("pureness_below_floor")
    if not reaches_promised_counts(figures, policy):
        return refused("verification_failed", figures.fewest_promised)
    return None


def has_k_people(region: CountedRegion, policy: PrivacyPolicy) -> bool:
    """Return True if at least k different people are mapped to the region.

    A region with fewer is withheld as ``verification_failed``, with the number of people.
    """
    return region.people.n_mapped >= policy.k


def has_its_people_inside(region: CountedRegion) -> bool:
    """Return True if the region fits everyone who is mapped to it.

    Any other region is withheld as ``verification_failed``: the mapping contradicts the region.
    """
    return region.people.are_mapped_inside


def is_within_max_ncp(region: CountedRegion, policy: PrivacyPolicy) -> bool:
    """Return True if the region loses no more information than the policy permits (`max_ncp`).

    A coarser region is withheld as ``ncp_above_ceiling``.
    """
    return policy.max_ncp is None or region.ncp <= policy.max_ncp


def is_l_diverse(region: CountedRegion, policy: PrivacyPolicy) -> bool:
    """Return True if its people have at least l different values of each sensitive attribute.

    These are the people mapped to it. Any other region is withheld as ``l_diversity``.
    """
    if policy.l is None:
        return True
    diversity = region.sensitive.diversity
    return diversity is None or diversity >= policy.l


def is_t_close(region: CountedRegion, policy: PrivacyPolicy) -> bool:
    """Return True if its people have sensitive values about as often as everyone has them.

    The distance of the two distributions is at most t, for each sensitive attribute. Any other
    region is withheld as ``t_closeness``.
    """
    if policy.t is None:
        return True
    closeness = region.sensitive.closeness
    return closeness is None or closeness <= policy.t


def is_pure_enough(figures: OutcomeFigures, policy: PrivacyPolicy) -> bool:
    """Return True if a large enough share of the region has the desired outcome.

    The least share is the policy's `least_pureness`. If the share is estimated from a sample, the
    lower end of its interval counts. Any other region is withheld as ``pureness_below_floor``.
    """
    return figures.pureness_low >= policy.least_pureness


def advises_something(region: CountedRegion, figures: OutcomeFigures) -> bool:
    """Return True if the desired outcome can be reached somewhere in the region of a group.

    A region that was made for one counterfactual holds it, and it has the outcome; the region of a
    group may lie elsewhere. If nothing in it has the outcome, it is withheld as
    ``pureness_below_floor``.
    """
    return not region.is_of_group or figures.pureness > 0


def reaches_promised_counts(figures: OutcomeFigures, policy: PrivacyPolicy) -> bool:
    """Return True if each further count of people that the guarantee promises is at least k.

    The catalogue guarantee promises two: people mapped to the region who have the desired outcome,
    and people mapped to it who have it with the private values that are released. A region with
    fewer is withheld as ``verification_failed``, with the smallest count.
    """
    return figures.fewest_promised is None or figures.fewest_promised >= policy.k


# --- What is asked, and what the model answers ----------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RegionQuestions(HostOnly):
    """The value combinations of a region that the model is asked about."""

    grid: Grid  # all combinations
    combinations: Codes  # those that are asked about, shape (n_combinations, n_axes)
    are_all: bool  # whether these are all; otherwise they are a sample


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RecountedRegion(HostOnly):
    """A region that the population's figures do not refuse, and what to ask the model about it."""

    counted: CountedRegion
    questions: RegionQuestions


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RegionGroup(HostOnly):
    """A region, and the counterfactuals that would be released with it and need equal questions."""

    positions: Rows  # of the n counterfactuals in the batch
    counted: CountedRegion
    questions: RegionQuestions

    @property
    def asked_combinations(self) -> Codes:
        """The combinations of the region, followed by those of the people inside.

        They are asked about with the counterfactual's private values. Shape
        (n_asked, n_quasi_identifiers).
        """
        return np.concatenate([self.questions.combinations, self.counted.people.combinations])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ModelAnswers(HostOnly):
    """What the model says about a region, for n counterfactuals."""

    # Whether a combination has the desired outcome; shape (n, n_combinations).
    is_desired: Mask
    # Whether a row has it, with the margin that the policy requires, if it gets the private values
    # of the counterfactual; shape (n, n_rows). Of a sealed region: see `SealedPeople`.
    is_consistent: Mask
    # Whether a row has it as it is; shape (n, n_rows). None if the population has no rows.
    is_desired_row: Mask | None


class PrivateMatches(NamedTuple):
    """How many rows have the released private values; None if the population has no rows."""

    in_region: int | None
    anywhere: int | None


class RecountCache(HostOnly):
    """Recounts of regions, which never change, as neither the population nor a partition does.

    All of them together hold at most `MOST` rows and combinations, and a single one at most
    `MOST_OF_ONE`. When one more does not fit, all are forgotten.
    """

    MOST = 1 << 22
    MOST_OF_ONE = 10_000

    def __init__(self) -> None:
        self._recounts: dict[str, RecountedRegion | Withheld] = {}
        self._size = 0

    def _counts(self) -> str:
        return f"{len(self._recounts)} regions, {self._size} rows and combinations"

    def get(self, region: Region) -> RecountedRegion | Withheld | None:
        return self._recounts.get(self._key(region))

    def add(self, region: Region, recount: RecountedRegion | Withheld) -> None:
        """Remember the recount of a region that is not remembered yet, unless it is too large."""
        size = 1
        if isinstance(recount, RecountedRegion):
            size = len(recount.counted.people.inside) + len(recount.questions.combinations)
        if size > self.MOST_OF_ONE:
            return
        if self._size + size > self.MOST:
            self._recounts.clear()
            self._size = 0
        self._recounts[self._key(region)] = recount
        self._size += size

    @staticmethod
    def _key(region: Region) -> str:
        """Return the region as text, since equal regions may differ: one holds True, one 1."""
        return repr(region)


# --- The protocol ---------------------------------------------------------------------------------


class Verifier(HostOnly):
    """Certifies regions against a population and a policy.

    Parameters
    ----------
    population : Population
    policy : PrivacyPolicy
    mapped_rows : callable, optional
        Returns the rows that are released with a region, if a partition fixes that. Without it,
        each counterfactual has a region of its own, and everyone inside counts.
    sealed : callable, optional
        Returns what is known of a region, if the population has neither rows nor equivalence
        classes; None for a region that it does not know.
    requirement : Requirement, optional
        What answers require of outcomes; certificates state it.
    seed : int
        Draws the combinations of regions that have more than `cell_budget`.
    """

    cell_budget = MOST_CELLS  # the model is asked about all combinations of a region up to this
    samples = SAMPLED  # and otherwise about so many

    def __init__(
        self,
        population: Population,
        policy: PrivacyPolicy,
        *,
        mapped_rows: Callable[[Region], Rows] | None = None,
        sealed: Callable[[Region], SealedRegion | None] | None = None,
        requirement: Requirement | None = None,
        seed: int = 0,
    ) -> None:
        self._population = population
        self._policy = policy
        self._policy_hash = policy.sha256
        self._mapped_rows = mapped_rows
        self._sealed = sealed
        self._requirement = AnyOutcome() if requirement is None else requirement
        self._seed = seed
        self._private = PrivateValues(population)
        self._remembered = RecountCache()
        schema = population.schema
        self._names = schema.quasi_identifiers
        self._domains = [population.domains[name] for name in self._names]
        # columns of a row's codes and numbers
        self._quasi_identifier_columns = [schema.features.index(name) for name in self._names]
        self._private_columns = [schema.features.index(name) for name in schema.private]

    @property
    def has_groups(self) -> bool:
        """Whether regions are those of groups, which a partition fixed before anybody asked.

        Such a region need not hold the counterfactual that it is released for. Without groups, a
        region is made for one counterfactual, and must hold it.
        """
        return self._mapped_rows is not None

    def verify(
        self,
        proposals: Sequence[Proposal],
        codes: Codes,
        numbers: Numbers,
        combination_outcomes: CombinationOutcomes,
        method: str,
    ) -> list[Verdict]:
        """Certify or refuse one region per counterfactual.

        Parameters
        ----------
        proposals : the region proposed for each of n counterfactuals
        codes, numbers : the counterfactuals, each of shape (n, n_features)
        combination_outcomes : asks the model about combinations and rows
        method : name of the protector, for the certificate
        """
        verdicts: dict[int, Verdict] = {}
        groups: list[RegionGroup] = []
        for positions in self._positions_with_equal_questions(proposals):
            first = positions[0]
            group = self._recounted_group(
                proposals[first].region,
                np.array(positions),
                codes[first],
                numbers[first],
            )
            if isinstance(group, Withheld):
                verdicts.update(dict.fromkeys(positions, group))
            else:
                groups.append(group)
        matches = self._exact_matches(groups, codes)
        for group, answers in self._ask(groups, codes, combination_outcomes):
            positions = group.positions.tolist()
            judged = self._judge(group, answers, proposals, matches, method)
            verdicts.update(zip(positions, judged, strict=True))
        return [verdicts[i] for i in range(len(proposals))]

    # 1. Recount

    def _positions_with_equal_questions(self, proposals: Sequence[Proposal]) -> list[list[int]]:
        """Return the positions of the batch, together where one recount serves several.

        That is so if a group's region alone decides what is counted and asked.
        """
        if not self.has_groups:
            return [[i] for i in range(len(proposals))]
        positions: dict[int, list[int]] = {}
        for i, proposal in enumerate(proposals):
            positions.setdefault(id(proposal.region), []).append(i)
        return [*positions.values()]

    def _recounted_group(
        self,
        region: Region | None,
        positions: Rows,
        codes: Codes,
        numbers: Numbers,
    ) -> RegionGroup | Withheld:
        """Recount a region for the counterfactuals at some positions.

        `codes` and `numbers`, of shape (n_features,), are those of the first counterfactual. Where
        there are several, what depends on them is equal.
        """
        if region is None:
            return refused("infeasible")
        if not self._is_well_formed(region):
            return refused("verification_failed")
        if not self.has_groups and not self._holds(region, codes, numbers):
            return refused("verification_failed")
        recount = self._recounted(region)
        if isinstance(recount, Withheld):
            return recount
        return RegionGroup(
            positions=positions,
            counted=recount.counted,
            questions=self._questions_with(recount.questions, codes),
        )

    def _is_well_formed(self, region: Region) -> bool:
        """Return True if a region has a part for each quasi-identifier, and no other part."""
        return isinstance(region, Region) and region.parts.keys() == set(self._names)

    def _holds(self, region: Region, codes: Codes, numbers: Numbers) -> bool:
        """Return True if a region holds a counterfactual, given by its codes and numbers."""
        columns = self._quasi_identifier_columns
        return all(
            holds_value(region.parts[name], domain, int(codes[column]), float(numbers[column]))
            for name, domain, column in zip(self._names, self._domains, columns, strict=True)
        )

    def _recounted(self, region: Region) -> RecountedRegion | Withheld:
        """Return the recount of a region, which is remembered."""
        recount = self._remembered.get(region)
        if recount is None:
            recount = self._recount(region)
            self._remembered.add(region, recount)
        return recount

    def _recount(self, region: Region) -> RecountedRegion | Withheld:
        """Recount a region in the population, and return what to ask the model, or why not to."""
        people = self.people_of(region)
        if people is None:
            return refused("verification_failed")
        counted = CountedRegion(region, people, self._population, is_of_group=self.has_groups)
        refusal = refusal_by_population(counted, self._policy)
        if refusal is not None:
            return refusal
        no_new_values = [0] * len(self._names)  # any code other than `UNKNOWN`
        grid = Grid.of(region, self._population, no_new_values)
        return RecountedRegion(counted=counted, questions=self._questions(grid))

    def people_of(self, region: Region) -> People | None:
        """Return the people who count for a region; None for a region that nothing is known of.

        They are, in this order:

        *sealed*: those who were counted when a catalogue was sealed without rows;
        *mapped*: if a partition says who gets the region, these, and they must be inside;
        otherwise everyone inside.
        """
        if self._sealed is not None:
            sealed = self._sealed(region)
            return None if sealed is None else SealedPeople(sealed)
        inside = self._population.members(region)
        if self._mapped_rows is not None:
            return PeopleInRows(self._population, inside, self._mapped_rows(region))
        return PeopleInRows(self._population, inside, inside)

    def _questions(self, grid: Grid) -> RegionQuestions:
        return RegionQuestions(
            grid=grid,
            combinations=grid.drawn(self.cell_budget, self.samples, self._seed),
            are_all=grid.size <= self.cell_budget,
        )

    def _questions_with(self, questions: RegionQuestions, codes: Codes) -> RegionQuestions:
        """Return a region's questions, extended by what one counterfactual adds to them.

        Without groups, it adds its value of a quasi-identifier that no row has. The region of a
        group is judged alike for all counterfactuals.
        """
        is_new_value = codes[self._quasi_identifier_columns] == UNKNOWN
        if self.has_groups or not is_new_value.any():
            return questions
        axes = list(questions.grid.codes)
        for j in np.flatnonzero(is_new_value).tolist():
            new_value = np.int32(self._domains[j].size)
            axes[j] = np.append(axes[j], new_value)
        return self._questions(Grid(tuple(axes)))

    def _exact_matches(self, groups: Sequence[RegionGroup], codes: Codes) -> list[PrivateMatches]:
        """Count, for each of n counterfactuals, the rows that have exactly its private values.

        Counterfactuals without a group are counted in the first one's region; their counts are not
        used. `codes` has the shape (n, n_features).
        """
        if not groups or not self._population.has_rows:
            return [PrivateMatches(in_region=None, anywhere=None)] * len(codes)
        group_of = np.zeros(len(codes), dtype=np.int64)
        for number, group in enumerate(groups):
            group_of[group.positions] = number
        rows_inside = [group.counted.people.inside for group in groups]
        counts = self._private.exact_matches(codes, rows_inside, group_of)
        return [
            PrivateMatches(in_region=in_region, anywhere=anywhere)
            for in_region, anywhere in counts.tolist()
        ]

    # 2. Ask the model

    def _ask(
        self,
        groups: Sequence[RegionGroup],
        codes: Codes,
        combination_outcomes: CombinationOutcomes,
    ) -> Iterator[tuple[RegionGroup, ModelAnswers]]:
        """Ask the model about all groups together, and yield the answers about each."""
        grades = ask_about(
            combination_outcomes,
            [(group.positions, group.asked_combinations) for group in groups],
        )
        for group, of_group in zip(groups, grades, strict=True):
            n_combinations = len(group.questions.combinations)
            of_region, of_people = np.split(of_group, [n_combinations], axis=1)
            people = group.counted.people
            private_codes = codes[group.positions][:, self._private_columns]
            yield (
                group,
                ModelAnswers(
                    is_desired=of_region >= DESIRED,
                    is_consistent=people.are_consistent(of_people == SURE, private_codes),
                    is_desired_row=combination_outcomes.desired_rows(
                        group.positions, people.inside
                    ),
                ),
            )

    # 3. Judge

    def _judge(
        self,
        group: RegionGroup,
        answers: ModelAnswers,
        proposals: Sequence[Proposal],
        matches: Sequence[PrivateMatches],
        method: str,
    ) -> Iterator[Verdict]:
        """Certify or refuse a group's region for each of its counterfactuals, in their order.

        `proposals` and `matches` are those of the whole batch. Counterfactuals with equal figures
        share a verdict.
        """
        certified: dict[Any, Certified] = {}
        all_figures = self._figures(group, answers)
        for i, figures in zip(group.positions.tolist(), all_figures, strict=True):
            refusal = refusal_by_model(group.counted, figures, self._policy)
            if refusal is not None:
                yield refusal
                continue
            key = figures, matches[i], proposals[i].optimal, proposals[i].gap
            if key not in certified:
                certified[key] = Certified(
                    region=group.counted.region,
                    certificate=self._certificate(group, figures, proposals[i], method),
                    recount=self._region_recount(group, figures, matches[i]),
                )
            yield certified[key]

    def _figures(self, group: RegionGroup, answers: ModelAnswers) -> Iterator[OutcomeFigures]:
        """Yield, for each counterfactual of a group, what the model's answers say of the region."""
        people = group.counted.people
        n, n_combinations = answers.is_desired.shape
        k_consistent = people.count(answers.is_consistent)
        k_desired: Sequence[int | None] = [None] * n
        majority: Sequence[bool | None] = [None] * n
        if answers.is_desired_row is not None:
            k_desired = people.count(answers.is_desired_row)
            n_desired_rows = answers.is_desired_row.sum(axis=1)
            majority = (2 * n_desired_rows >= len(people.inside)).tolist()
        fewest_promised = self._fewest_promised(people, answers)
        for i, n_desired in enumerate(answers.is_desired.sum(axis=1).tolist()):
            pureness = n_desired / n_combinations
            low = high = pureness
            if not group.questions.are_all:
                low, high = clopper_pearson(n_desired, n_combinations)
            yield OutcomeFigures(
                pureness=pureness,
                pureness_low=low,
                pureness_high=high,
                k_desired=k_desired[i],
                majority=majority[i],
                k_consistent=k_consistent[i],
                fewest_promised=fewest_promised[i],
            )

    def _fewest_promised(self, people: People, answers: ModelAnswers) -> Sequence[int | None]:
        """Return, for each counterfactual, the smallest count that the guarantee promises to be k.

        The count of mapped people is not among them; `has_k_people` is the rule for it. None if the
        guarantee promises no further count.
        """
        promises_outcomes = self.has_groups and self._policy.counts_eligible
        if not promises_outcomes:
            return [None] * len(answers.is_desired)
        promised = [people.count_mapped(answers.is_consistent)]
        if answers.is_desired_row is not None:
            promised.append(people.count_mapped(answers.is_desired_row))
        fewest: list[int] = np.min(promised, axis=0).tolist()
        return fewest

    # 4. Certify

    def _certificate(
        self, group: RegionGroup, figures: OutcomeFigures, proposal: Proposal, method: str
    ) -> Certificate:
        """State what the recipient of the explanation may see."""
        policy = self._policy
        gap = proposal.gap
        if gap is None or not 0 <= gap < inf:
            gap = None
        return Certificate(
            k=group.counted.people.n_inside,
            ncp=group.counted.ncp,
            pureness=figures.pureness,
            pureness_low=figures.pureness_low,
            pureness_high=figures.pureness_high,
            exact=group.questions.are_all,
            optimal=bool(proposal.optimal),
            gap=gap,
            method=method,
            guarantee=policy.guarantee,
            not_stopped=policy.not_stopped,
            margin=self._requirement.margin,
            n_later=self._requirement.n_later,
            policy_hash=self._policy_hash,
            population=self._population.fingerprint,
        )

    def _region_recount(
        self, group: RegionGroup, figures: OutcomeFigures, matches: PrivateMatches
    ) -> RegionRecount:
        """State what is for the data holder alone."""
        counted = group.counted
        people = counted.people
        k_effective = people.n_mapped if counted.is_of_group else None
        return RegionRecount(
            k=people.n_inside,
            k_desired=figures.k_desired,
            k_consistent=figures.k_consistent,
            k_effective=k_effective,
            k_private=matches.in_region,
            private_matches=matches.anywhere,
            l=counted.sensitive.diversity,
            t=counted.sensitive.closeness,
            majority=figures.majority,
            disclosure=counted.sensitive.disclosure,
            ncp_parts=tuple(counted.ncp_parts.values()),
        )

    @property
    def actionability(self) -> Actionability:
        """What checks certified regions against what the person can change."""
        return Actionability(
            self._population,
            cell_budget=self.cell_budget,
            samples=self.samples,
            seed=self._seed,
        )


def ask_about(
    combination_outcomes: CombinationOutcomes,
    questions: Sequence[tuple[Rows, Codes]],
) -> Iterator[NDArray[np.int8]]:
    """Ask the model about combinations in one call, and yield the grades for each question.

    A question has the positions of n counterfactuals and m combinations, all of which are asked
    about for each counterfactual. Its grades have the shape (n, m); see
    `CombinationOutcomes.grades`.
    """
    if not questions:
        return
    all_counterfactuals = []
    all_combinations = []
    for positions, combinations in questions:
        all_counterfactuals.append(np.repeat(positions, len(combinations)))
        all_combinations.append(np.tile(combinations, (len(positions), 1)))
    grades = combination_outcomes.grades(
        np.concatenate(all_counterfactuals), np.concatenate(all_combinations)
    )
    start = 0
    for positions, combinations in questions:
        end = start + len(positions) * len(combinations)
        yield grades[start:end].reshape(len(positions), len(combinations))
        start = end


# --- Parts of a region ----------------------------------------------------------------------------


def holds_value(part: Part, domain: Domain, code: int, number: float) -> bool:
    """Return True if a part fits its attribute and holds a counterfactual's own value.

    The value is given by its code, and by its number if no row has it.
    """
    if code in (INVALID, UNEXPECTED_MISSING) or not is_part_of(part, domain):
        return False
    if code != UNKNOWN:
        return bool(domain.inside(part)[code])
    return domain.attribute.kind == "numeric" and domain.natural(number) in part


def is_part_of(part: Part, domain: Domain) -> bool:
    """Return True if a part has the right type for an attribute, and only values of its domain."""
    if not domain.is_interval:
        return isinstance(part, frozenset) and all(
            value is None or domain.code(value) != UNKNOWN for value in part
        )
    if not isinstance(part, Interval) or (part.low is None) != (part.high is None):
        return False
    if domain.attribute.kind == "ordinal":
        return part.levels is not None and set(part.levels) <= set(domain.values)
    return part.levels is None and not any(isinstance(end, str) for end in (part.low, part.high))
