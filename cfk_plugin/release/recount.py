"""The recount: every figure of an explanation is counted again before the release.

The search or a protector claims that an explanation has the outcome and that k people share its
region. `Recounter` does not rely on that. It counts again, from the region, the training table and
the model:

1. **People** (`RegionFigures`): the number of people inside the region, the number of its members,
   its information loss, and the diversity of the members' sensitive values. The members of a
   catalogue's region are the people with the outcome in its group. If the region was made for one
   counterfactual, everyone inside is a member.
2. **Model** (`OutcomeFigures`): the number of value combinations of the region, and of people
   inside, that have the outcome with the private values of the explanation.
3. **Point**: whether the model gives the outcome, with the margin, for the values that the
   explanation advises, whether these are in the region, and whether the person may change to them.

`REGION_RULES` and `OUTCOME_RULES` contain the rules of the policy in their order, and
`Recounter.judge` applies them. ``cfk verify`` applies the same rules to a file; see
`cfk_plugin.release.files`.

A catalogue that was loaded from a file has no people. Then only the model's figures can be counted
again (`PeopleElsewhere`).

**Not counted again:** the training table, the model and the members of a region. The certificate
repeats a protector's claim that no better region exists, without a proof.

**Not protected:** no rule withholds private values that identify a person; the recount only reports
the number of rows that have them (`k_private`). The recount considers one release at a time, and
does not stop the attacks in `PrivacyPolicy.not_stopped`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, floor, fsum, inf, prod
from typing import Any, NamedTuple

import numpy as np

from cfk_plugin.data.codes import Codes, Floats, Ints, Mask, mixed
from cfk_plugin.data.constraints import Limits
from cfk_plugin.data.outcome_model import Model
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region
from cfk_plugin.errors import HostOnly
from cfk_plugin.hookspecs import Proposal
from cfk_plugin.metrics.information import loss_of
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.metrics.risk import SensitiveFigures
from cfk_plugin.release.certificate import Certificate, RegionRecount
from cfk_plugin.release.withheld import Withheld

MOST_COMBINATIONS = 10_000
"""The largest number of combinations of a region for which the model labels all of them."""
N_SAMPLED = 2_000
"""The number of combinations that are sampled if a region has more."""
_ROWS_PER_CALL = 200_000  # rows in one call of the model
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class Claims(HostOnly):
    """Explanations to recount, before their release.

    Attributes
    ----------
    region : shape (n_claims,)
        The number of each explanation's region.
    private : shape (n_claims, n_private)
        The codes of the private values, in the order of ``codes.private``.
    advice : Advice, optional
        The point that each answer advises; None for entries, which answer no query.
    """

    region: Ints
    private: Floats
    advice: Advice | None = None

    def __len__(self) -> int:
        return len(self.region)

    def distinct(self) -> tuple[Claims, Ints]:
        """Return the claims without duplicates, and the position of each claim in them."""
        place_of_key: dict[tuple[int, bytes], int] = {}
        first: list[int] = []
        place: list[int] = []
        for i, region in enumerate(self.region.tolist()):
            key = (region, self.private[i].tobytes())
            if key not in place_of_key:
                place_of_key[key] = len(first)
                first.append(i)
            place.append(place_of_key[key])
        distinct = Claims(self.region[first], self.private[first])
        return distinct, np.array(place, dtype=np.int64)


class Advice(NamedTuple):
    """The points that answers advise, shape (n_claims, n_features), and the queries' limits."""

    points: Floats
    limits: Limits


class Certified(NamedTuple):
    """A region that satisfies the policy, with the figures of the recount."""

    region: Region
    certificate: Certificate  # for the recipient of the explanation
    recount: RegionRecount  # for the data holder only


Verdict = Certified | Withheld


def refused(reason: str, k: int | None = None) -> Withheld:
    """Return the verdict that withholds a region; the caller knows the number of the query.

    `k` is the number of people if there are too few.
    """
    return Withheld(-1, reason, refused_k=k)


# The figures


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RegionFigures(HostOnly):
    """The figures of a region in the training table.

    Attributes
    ----------
    n_people, n_members : int
        The number of people inside, and of members.
    are_members_inside : bool
        Whether all members are inside.
    has_counterfactual : bool
        Whether the region contains the counterfactual that it was made for, if any.
    ncp_parts : mapping of str to float
        The information loss of each quasi-identifier.
    ncp : float
        Their weighted sum.
    sensitive : SensitiveFigures
        The diversity of the members' sensitive values.
    combinations : shape (n_combinations, n_quasi)
        The combinations of quasi-identifiers that the model labels.
    are_all : bool
        Whether these are all combinations of the region; otherwise they are a sample.
    """

    n_people: int
    n_members: int
    are_members_inside: bool = True
    has_counterfactual: bool = True
    ncp_parts: Mapping[str, float]
    ncp: float
    sensitive: SensitiveFigures
    combinations: Floats
    are_all: bool


class PeopleCounts(NamedTuple):
    """Numbers of people inside a region who have the outcome under the model.

    The last three need the training table, and are None without it.
    """

    k_consistent: int  # people with the outcome if they had the explanation's private values
    n_consistent_members: int  # members among them
    k_desired: int | None = None  # people with the outcome with their own values
    n_desired_members: int | None = None  # members among them
    majority: bool | None = None  # whether at least half of the rows have the outcome


@dataclass(frozen=True, kw_only=True)
class OutcomeFigures:
    """The figures of a region with private values under the model.

    Attributes
    ----------
    pureness, pureness_low, pureness_high : float
        The share of the combinations with the outcome, and its 95 % interval.
    people : PeopleCounts
    """

    pureness: float
    pureness_low: float
    pureness_high: float
    people: PeopleCounts


# The rules


def has_k_members(region: RegionFigures, policy: PrivacyPolicy) -> bool:
    """Return whether the region has at least k members."""
    return region.n_members >= policy.k


def contains_members(region: RegionFigures, policy: PrivacyPolicy) -> bool:  # noqa: ARG001
    """Return whether the region contains all members, and the counterfactual it was made for."""
    return region.are_members_inside and region.has_counterfactual


def is_within_max_ncp(region: RegionFigures, policy: PrivacyPolicy) -> bool:
    """Return whether the region loses no more information than ``max_ncp``."""
    return policy.max_ncp is None or region.ncp <= policy.max_ncp


def is_l_diverse(region: RegionFigures, policy: PrivacyPolicy) -> bool:
    """Return whether members have at least l different values of each sensitive attribute."""
    diversity = region.sensitive.diversity
    return policy.l is None or diversity is None or diversity >= policy.l


def is_t_close(region: RegionFigures, policy: PrivacyPolicy) -> bool:
    """Return whether the members' sensitive values are distributed as those of all people."""
    closeness = region.sensitive.closeness
    return policy.t is None or closeness is None or closeness <= policy.t


def is_pure_enough(outcome: OutcomeFigures, policy: PrivacyPolicy) -> bool:
    """Return whether the lower end of the interval of pureness is at least the policy's floor.

    A region without any combination with the outcome is never pure enough.
    """
    return outcome.pureness_low >= policy.least_pureness and outcome.pureness > 0


def agrees_for_k_members(outcome: OutcomeFigures, policy: PrivacyPolicy) -> bool:
    """Return whether at least k members have the outcome, also with the private values.

    An attacker who queries the model about all people cannot exclude these members. The lookup
    guarantee does not promise it.
    """
    if not policy.counts_eligible:
        return True
    n_desired = outcome.people.n_desired_members
    has_outcome = n_desired is None or n_desired >= policy.k
    return has_outcome and outcome.people.n_consistent_members >= policy.k


class Rule(NamedTuple):
    """A rule on `RegionFigures` or on `OutcomeFigures`, and the texts if it is broken."""

    is_met: Callable[[Any, PrivacyPolicy], bool]
    reason: str  # the reason for withholding the explanation
    fault: str  # the fault of a file that contains the explanation


REGION_RULES = (
    Rule(has_k_members, "verification_failed", "fewer than k people are in its region"),
    Rule(contains_members, "verification_failed", "its region lacks a member"),
    Rule(is_within_max_ncp, "ncp_above_ceiling", "its ncp is above the policy's max_ncp"),
    Rule(is_l_diverse, "l_diversity", "fewer than l sensitive values are in its region"),
    Rule(is_t_close, "t_closeness", "its sensitive values are farther than t from all"),
)
OUTCOME_RULES = (
    Rule(is_pure_enough, "pureness_below_floor", "its pureness is below the policy's floor"),
    Rule(
        agrees_for_k_members,
        "verification_failed",
        "fewer than k people in its region have the outcome, as they are or with its values",
    ),
)


def refusal(region: RegionFigures, outcome: OutcomeFigures, policy: PrivacyPolicy) -> str | None:
    """Return the reason of the first broken rule, or None if all rules are met."""
    for rule in REGION_RULES:
        if not rule.is_met(region, policy):
            return rule.reason
    for rule in OUTCOME_RULES:
        if not rule.is_met(outcome, policy):
            return rule.reason
    return None


# The people


@dataclass(frozen=True, eq=False, repr=False)
class TrainingTable(HostOnly):
    """The training table with a model, and lookups in it that all regions share.

    Attributes
    ----------
    population : Population
    model : Model
        The model with the desired outcome.
    """

    population: Population
    model: Model

    @property
    def codes(self) -> Codes:
        """The encoder of rows."""
        return self.population.row_codes

    @property
    def rows(self) -> Floats:
        """The rows, shape (n_rows, n_features)."""
        return self.population.coded_rows

    @cached_property
    def is_desired(self) -> Mask:
        """Whether each row has the outcome, shape (n_rows,)."""
        return self.model.has_outcome(self.rows)

    def rows_with(self, private: Floats) -> Ints:
        """Return the positions of the rows that have all these private values.

        `private` has shape (n_private,).
        """
        return self._rows_with.get((private + 0.0).tobytes(), np.empty(0, dtype=np.int64))

    @cached_property
    def _rows_with(self) -> dict[bytes, Ints]:
        private = np.ascontiguousarray(self.rows[:, self.codes.private] + 0.0)
        order = np.lexsort(private.T) if private.shape[1] else np.arange(len(private))
        is_new = (private[order][1:] != private[order][:-1]).any(axis=1)
        runs = np.split(order, np.flatnonzero(is_new) + 1)
        return {private[run[0]].tobytes(): run for run in runs}


@dataclass(frozen=True, eq=False, repr=False)
class PeopleHere(HostOnly):
    """The people in regions, counted in the training table.

    Attributes
    ----------
    table : TrainingTable
    regions : sequence of Region
        The regions in original units.
    members : sequence of int arrays, optional
        For each region, the position of one row of each member. Without it, everyone inside is a
        member.
    counterfactuals : shape (n_regions, n_features), optional
        The counterfactual that each region was made for.
    """

    table: TrainingTable
    regions: Sequence[Region]
    members: Sequence[Ints] | None = None
    counterfactuals: Floats | None = None
    _inside: dict[int, Ints] = field(default_factory=dict)

    def figures(self, number: int) -> RegionFigures:
        """Return the figures of a region."""
        region = self.regions[number]
        inside = self._rows_inside(number)
        figures = region_figures(self.table.population, region, inside, self._members(number))
        if self.counterfactuals is None:
            return figures
        has_counterfactual = self.table.codes.has_row(region, self.counterfactuals[number])
        return replace(figures, has_counterfactual=has_counterfactual)

    def combinations(self, number: int) -> Floats:
        """Return the quasi-identifiers of all rows inside a region, shape (n_inside, n_quasi)."""
        return self.table.rows[np.ix_(self._rows_inside(number), self.table.codes.quasi)]

    def counts(
        self,
        number: int,
        private: Floats,  # noqa: ARG002 - for `PeopleElsewhere`
        has_outcome: Mask,
    ) -> PeopleCounts:
        """Count the people inside a region who have the outcome.

        `has_outcome`, shape (n_inside,), tells whether the model gives each of `combinations` the
        outcome with the private values.
        """
        inside = self._rows_inside(number)
        is_member = np.isin(inside, self._members(number))
        is_desired = self.table.is_desired[inside]
        n_people = self.table.population.people
        return PeopleCounts(
            k_consistent=n_people(inside[has_outcome]),
            n_consistent_members=n_people(inside[has_outcome & is_member]),
            k_desired=n_people(inside[is_desired]),
            n_desired_members=n_people(inside[is_desired & is_member]),
            majority=bool(len(inside) and 2 * is_desired.sum() >= len(inside)),
        )

    def matches(self, number: int, private: Floats) -> tuple[int | None, int | None]:
        """Return the number of rows with these private values, inside the region and in all."""
        rows = self.table.rows_with(private)
        return int(np.isin(rows, self._rows_inside(number)).sum()), len(rows)

    def n_effective(self, region: RegionFigures) -> int | None:
        """Return the number of members of a catalogue's region; None for a lookup's region."""
        return None if self.members is None else region.n_members

    def _rows_inside(self, number: int) -> Ints:
        """Return the positions of the rows inside a region."""
        if number not in self._inside:
            rows = self.table.codes.rows_inside(self.regions[number], self.table.rows)
            self._inside[number] = rows
        return self._inside[number]

    def _members(self, number: int) -> Ints:
        return self._rows_inside(number) if self.members is None else self.members[number]


@dataclass(frozen=True, eq=False, repr=False)
class PeopleElsewhere(HostOnly):
    """The people in the regions of a catalogue that was loaded from a file.

    The file contains only their number. When it was written, at least k members of a region had the
    outcome with each of its entries. For each region, the file lists the combinations of
    quasi-identifiers at which its weakest entry has the outcome; these k members are at some of
    them. If an answer has the outcome at all listed combinations, it has the outcome for these
    members too.

    Attributes
    ----------
    codes : Codes
    regions : sequence of Region
        The regions in original units.
    required : callable
        Takes numbers of regions, and returns the listed combinations of each, shape
        (n_combinations, n_quasi).
    entry_region : shape (n_entries,)
        The number of each entry's region.
    entry_values : shape (n_entries, n_private)
        The codes of each entry's private values.
    n_people : shape (n_regions,)
        The number of people inside each region when the file was written.
    k : int
    """

    codes: Codes
    regions: Sequence[Region]
    required: Callable[[Ints], Mapping[int, Floats]]
    entry_region: Ints
    entry_values: Floats
    n_people: Ints
    k: int

    def figures(self, number: int) -> RegionFigures:
        """Return the figures of a region, without those that need the training table."""
        region = self.regions[number]
        combinations, are_all = combinations_of(region, self.codes)
        ncp_parts = losses_of(region, self.codes)
        return RegionFigures(
            n_people=int(self.n_people[number]),
            n_members=self.k,
            ncp_parts=ncp_parts,
            ncp=ncp_of(ncp_parts, self.codes),
            sensitive=SensitiveFigures(),
            combinations=combinations,
            are_all=are_all,
        )

    def combinations(self, number: int) -> Floats:
        """Return the listed combinations of a region, shape (n_combinations, n_quasi)."""
        return self.required(np.array([number]))[number]

    def counts(self, number: int, private: Floats, has_outcome: Mask) -> PeopleCounts:
        """Return k people if the private values have the outcome at all listed combinations.

        So do the private values of an entry, which were counted when the file was written.
        """
        is_proven = len(has_outcome) > 0 and bool(has_outcome.all())
        n_people = self.k if is_proven or self._is_entry(number, private) else 0
        return PeopleCounts(n_people, n_people)

    def matches(self, number: int, private: Floats) -> tuple[int | None, int | None]:  # noqa: ARG002
        """Return None, because this process has no rows."""
        return None, None

    def n_effective(self, region: RegionFigures) -> int | None:
        """Return k: when the file was written, the region had at least k members."""
        return region.n_members

    def _is_entry(self, number: int, private: Floats) -> bool:
        values = self.entry_values[self.entry_region == number]
        return bool((values == private).all(axis=1).any())


# A region


def region_figures(
    population: Population, region: Region, inside: Ints, members: Ints
) -> RegionFigures:
    """Return the figures of a region.

    Parameters
    ----------
    population : Population
    region : Region
    inside : int array
        Positions of the rows inside.
    members : int array
        The position of one row of each member.
    """
    codes = population.row_codes
    sensitive = SensitiveFigures()
    if len(members):
        sensitive = SensitiveFigures.of(population, members)
    combinations, are_all = combinations_of(region, codes)
    ncp_parts = losses_of(region, codes)
    return RegionFigures(
        n_people=population.people(inside),
        n_members=population.people(members),
        are_members_inside=bool(np.isin(members, inside).all()),
        ncp_parts=ncp_parts,
        ncp=ncp_of(ncp_parts, codes),
        sensitive=sensitive,
        combinations=combinations,
        are_all=are_all,
    )


def losses_of(region: Region, codes: Codes) -> dict[str, float]:
    """Return the information loss of each quasi-identifier, in the order of ``codes.quasi``."""
    columns = [codes.columns[j] for j in codes.quasi.tolist()]
    return {column.name: loss_of(region[column.name], column) for column in columns}


def ncp_of(ncp_parts: Mapping[str, float], codes: Codes) -> float:
    """Return the weighted sum of the losses of quasi-identifiers."""
    weight_of = {column.name: column.attribute.weight for column in codes.columns}
    return fsum(weight_of[name] * loss for name, loss in ncp_parts.items())


def combinations_of(region: Region, codes: Codes) -> tuple[Floats, bool]:
    """Return the combinations of a region that the model labels.

    A combination has a value of the training table for each quasi-identifier.

    Returns
    -------
    combinations : shape (n_combinations, n_quasi)
    are_all : bool
        Whether these are all combinations; otherwise they are a sample.
    """
    options = codes.options(region)
    if prod(map(len, options)) <= MOST_COMBINATIONS:
        return mixed(options), True
    random = np.random.default_rng(0)  # so that the same region always has the same verdict
    return np.column_stack([random.choice(values, N_SAMPLED) for values in options]), False


# The recount


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Recounter(HostOnly):
    """Counts the explanations for one outcome again, and certifies or withholds them.

    Attributes
    ----------
    model : Model
        The model with the outcome and the margin that answers need.
    policy : PrivacyPolicy
    people : PeopleHere or PeopleElsewhere
    fingerprint : str
        The keyed fingerprint of the population.
    margin : float, optional
        The margin in certificates; None if the policy requires no margin.
    method : str
        The name of the protector in certificates.
    proofs : sequence of Proposal
        The protector's proposal for each region; empty for a catalogue.
    """

    model: Model
    policy: PrivacyPolicy
    people: PeopleHere | PeopleElsewhere
    fingerprint: str
    margin: float | None = None
    method: str = "catalogue"
    proofs: Sequence[Proposal] = ()
    _figures: dict[int, RegionFigures] = field(default_factory=dict)

    def judge(self, claims: Claims) -> list[Verdict]:
        """Certify or withhold each claim. Equal claims are counted once."""
        distinct, place = claims.distinct()
        outcomes = self.outcomes(distinct)
        distinct_verdicts = [
            self._verdict(number, private, outcome)
            for number, private, outcome in zip(
                distinct.region.tolist(), distinct.private, outcomes, strict=True
            )
        ]
        verdicts = [distinct_verdicts[i] for i in place.tolist()]
        if claims.advice is None:
            return verdicts
        are_permitted, are_true = self.check(claims, claims.advice)
        for i, verdict in enumerate(verdicts):
            if isinstance(verdict, Withheld):
                continue
            if not are_permitted[i]:
                verdicts[i] = refused("no_actionable_answer")
            elif not are_true[i]:
                verdicts[i] = refused("verification_failed")
        return verdicts

    def outcomes(self, claims: Claims) -> list[OutcomeFigures]:
        """Return the figures of each claim under the model."""
        outcomes: list[OutcomeFigures] = []
        for part in self._parts(claims):
            questions = self._questions(claims, part)
            ends = np.cumsum([len(rows) for rows in questions])[:-1]
            has_outcome = np.split(self.model.has_outcome(np.concatenate(questions)), ends)
            of_regions = has_outcome[: len(part)]
            of_people = has_outcome[len(part) :]
            for i, of_region, of_rows in zip(part, of_regions, of_people, strict=True):
                number = int(claims.region[i])
                outcomes.append(self._outcome(number, claims.private[i], of_region, of_rows))
        return outcomes

    def figures(self, number: int) -> RegionFigures:
        """Return the figures of a region."""
        if number not in self._figures:
            self._figures[number] = self.people.figures(number)
        return self._figures[number]

    def questions(self, claims: Claims) -> Floats:
        """Return the rows that the model labels in `judge`, shape (n_rows, n_features).

        The array is empty if the rows need several calls of the model.
        """
        distinct, _ = claims.distinct()
        parts = self._parts(distinct)
        if len(parts) != 1:
            return np.empty((0, len(self.model.codes.columns)))
        return np.concatenate(self._questions(distinct, parts[0]))

    def people_per_region(self) -> Ints:
        """Return the number of people inside each region, shape (n_regions,)."""
        numbers = range(len(self.people.regions))
        return np.array([self.figures(number).n_people for number in numbers])

    def _parts(self, claims: Claims) -> list[list[int]]:
        """Divide claims into parts, so that the model labels the rows of a part in one call.

        A part is a list of positions of claims.
        """
        parts: list[list[int]] = []
        n_rows = 0
        for i, number in enumerate(claims.region.tolist()):
            n_more = len(self.figures(number).combinations) + len(self.people.combinations(number))
            if not parts or n_rows + n_more > _ROWS_PER_CALL:
                parts.append([])
                n_rows = 0
            parts[-1].append(i)
            n_rows += n_more
        return parts

    def _questions(self, claims: Claims, part: Sequence[int]) -> list[Floats]:
        """Return the rows that the model labels for the claims of a part.

        For n claims, the list has n arrays with the combinations of each region, and then n arrays
        with the quasi-identifiers of its people, all with the claim's private values. Each has
        shape (n_rows, n_features).
        """
        numbers = [int(claims.region[i]) for i in part]
        combinations = [self.figures(number).combinations for number in numbers]
        combinations += [self.people.combinations(number) for number in numbers]
        rows_of = self.model.codes.rows_of
        return [
            rows_of(quasi, claims.private[i])
            for quasi, i in zip(combinations, [*part, *part], strict=True)
        ]

    def _outcome(
        self, number: int, private: Floats, of_region: Mask, of_rows: Mask
    ) -> OutcomeFigures:
        """Return the figures of one region with its private values under the model.

        `of_region` and `of_rows` tell whether each combination of the region, and of its people,
        has the outcome.
        """
        n_outcomes = int(of_region.sum())
        pureness = n_outcomes / max(len(of_region), 1)
        low = high = pureness
        if not self.figures(number).are_all:
            low, high = clopper_pearson(n_outcomes, len(of_region))
        people = self.people.counts(number, private, of_rows)
        return OutcomeFigures(
            pureness=pureness, pureness_low=low, pureness_high=high, people=people
        )

    def check(self, claims: Claims, advice: Advice) -> tuple[Mask, Mask]:
        """Return whether each point is permitted, and whether it is true, shape (n_claims,) each.

        A point is true if the model gives it the outcome, with the margin, and it is in its region.
        """
        points, limits = advice
        query = np.arange(len(points))
        are_permitted = limits.permits(points, query) & limits.few_changes(points, query)
        return are_permitted, self.model.sure(points) & self._are_in_region(claims, advice)

    def _are_in_region(self, claims: Claims, advice: Advice) -> Mask:
        """Return whether each point has the claim's private values and is in its region.

        A quasi-identifier with the query's own value may be outside. The shape is (n_claims,).
        """
        codes = self.model.codes
        points, limits = advice
        are_in_region: Mask = (points[:, codes.private] == claims.private).all(axis=1)
        for j in codes.quasi.tolist():
            column = codes.columns[j]
            for i in np.flatnonzero(points[:, j] != limits.queries[:, j]).tolist():
                part = self.people.regions[int(claims.region[i])][column.name]
                are_in_region[i] &= column.has_value(part, float(points[i, j]))
        return are_in_region

    def _verdict(self, number: int, private: Floats, outcome: OutcomeFigures) -> Verdict:
        """Certify or withhold one region with its private values, shape (n_private,)."""
        region = self.figures(number)
        reason = refusal(region, outcome, self.policy)
        if reason is not None:
            n_members = None if has_k_members(region, self.policy) else region.n_members
            return refused(reason, n_members)
        return Certified(
            region=self.people.regions[number],
            certificate=self.certificate(number, outcome),
            recount=self._recount(number, private, outcome),
        )

    def certificate(self, number: int, outcome: OutcomeFigures) -> Certificate:
        """Return the figures of a region that the recipient may see.

        `k` is the policy's k, pureness is rounded down to two decimals, NCP and gap are rounded up.
        With exact counts of two releases, an attacker could tell who joined in between; with more
        digits, the attacker could compute the ranges of the table.
        """
        region = self.figures(number)
        pureness_high = rounded_down(outcome.pureness_high)
        if not region.are_all:
            pureness_high = rounded_up(outcome.pureness_high)
        proof = self.proofs[number] if self.proofs else Proposal(None)
        gap = None
        if proof.gap is not None and 0 <= proof.gap < inf:
            gap = rounded_up(proof.gap)
        return Certificate(
            k=self.policy.k,
            ncp=rounded_up(region.ncp),
            pureness=rounded_down(outcome.pureness),
            pureness_low=rounded_down(outcome.pureness_low),
            pureness_high=pureness_high,
            exact=region.are_all,
            optimal=proof.optimal,
            gap=gap,
            method=self.method,
            guarantee=self.policy.guarantee,
            not_stopped=self.policy.not_stopped,
            margin=self.margin,
            n_later=len(self.model.later),
            policy_hash=self.policy.sha256,
            population=self.fingerprint,
        )

    def _recount(self, number: int, private: Floats, outcome: OutcomeFigures) -> RegionRecount:
        """Return all figures, for the data holder only."""
        region = self.figures(number)
        k_private, private_matches = self.people.matches(number, private)
        return RegionRecount(
            k=region.n_people,
            ncp=region.ncp,
            pureness=outcome.pureness,
            pureness_low=outcome.pureness_low,
            pureness_high=outcome.pureness_high,
            k_desired=outcome.people.k_desired,
            k_consistent=outcome.people.k_consistent,
            k_effective=self.people.n_effective(region),
            k_private=k_private,
            private_matches=private_matches,
            l=region.sensitive.diversity,
            t=region.sensitive.closeness,
            majority=outcome.people.majority,
            disclosure=region.sensitive.disclosure,
            ncp_parts=tuple(region.ncp_parts.values()),
        )


def rounded_up(share: float) -> float:
    """Return the least number with two decimals that is not below the share."""
    return ceil(100 * share - _ROUNDING) / 100


def rounded_down(share: float) -> float:
    """Return the largest number with two decimals that is not above the share."""
    return floor(100 * share + _ROUNDING) / 100
