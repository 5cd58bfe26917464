"""Certification: every figure of an explanation is counted again before it is released.

The search, or a protector, claims that an explanation has the outcome, and that k people share its
region. `Certifier` believes neither. It counts again, from the released region, the training table
and the model:

1. **People** (`RegionFigures`). How many people are inside the region, and how many of its members
   are. The members of a catalogue's region are the people with the outcome whom the catalogue maps
   to it. A region that is made for one counterfactual has everyone inside as a member. How much
   information the region loses, and how diverse its members' sensitive values are.
2. **Model** (`OutcomeFigures`). How many value combinations of the region, and how many people
   inside, have the outcome with the private values of the explanation.
3. **Point**. Whether the model gives the outcome, with the margin, for exactly what the explanation
   advises, and whether the person is permitted to change to it.

Each rule of the policy is a function, and `refusal` says in which order the rules are tried.

Of a catalogue that was loaded from a file there are no people. What can be counted again is the
model's part: at every combination that the file lists for a region, an answer must have the outcome
(`PeopleElsewhere`). Entries were counted before the file was written.

**What is not recounted.** The training table, the model, and who is a member of a region are taken
as they are. A protector's claim that no better region exists is repeated in the certificate, not
proved again.

**What is not protected.** No rule withholds private values that single a person out; the recount
only says how many rows have them (`k_private`). Nor does certification stop an attack that
`PrivacyPolicy.not_stopped` names. It looks at one release at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import fsum, inf, prod
from typing import Protocol

import numpy as np

from cfk_plugin.data.codes import Codes, Floats, Ints, Mask, mixed
from cfk_plugin.data.constraints import Limits
from cfk_plugin.data.outcome_model import Model
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region
from cfk_plugin.errors import HostOnly
from cfk_plugin.hookspecs import Proposal
from cfk_plugin.metrics.information import loss_of, weigh_losses
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.metrics.risk import SensitiveFigures
from cfk_plugin.release.region_certificate import Certificate, RegionRecount
from cfk_plugin.release.verdicts import Certified, Verdict, refused

MOST_COMBINATIONS = 10_000
"""Up to so many combinations of a region, the model is asked about all."""
SAMPLED = 2_000
"""Number of combinations that are drawn if there are more."""
_AT_ONCE = 200_000  # rows in one call of the model


@dataclass(frozen=True, eq=False, repr=False)
class Claims(HostOnly):
    """Explanations that are proposed for release, n of them.

    Attributes
    ----------
    region : shape (n,)
        Number of the region of each.
    private : shape (n, n_private)
        Private values, in the order of ``codes.private``.
    points : shape (n, n_features), optional
        What each answer advises; None for entries that answer no query.
    """

    region: Ints
    private: Floats
    points: Floats | None = None

    def __len__(self) -> int:
        return len(self.region)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RegionFigures(HostOnly):
    """What the training table says about a region.

    Attributes
    ----------
    n_people, n_members : int
        People inside, and members.
    are_members_inside : bool
    has_counterfactual : bool
        Whether the counterfactual is inside for which the region was made, if there is one.
    ncp_parts : mapping of quasi-identifier to its information loss
    ncp : float
    sensitive : SensitiveFigures
        Of the members.
    combinations : shape (n, n_quasi)
        Those about which the model is asked.
    are_all : bool
        Whether these are all combinations of the region; otherwise they are a sample.
    """

    n_people: int
    n_members: int
    are_members_inside: bool
    ncp_parts: Mapping[str, float]
    ncp: float
    sensitive: SensitiveFigures
    combinations: Floats
    are_all: bool
    has_counterfactual: bool = True


@dataclass(frozen=True, kw_only=True)
class OutcomeFigures:
    """What the model says about a region with some private values.

    Attributes
    ----------
    pureness, pureness_low, pureness_high : float
        Share of the combinations with the outcome, and its 95 % interval.
    k_consistent : int
        People inside who have the outcome with the private values.
    n_consistent_members : int
        Members among them.
    k_desired : int, optional
        People inside who have the outcome as they are.
    n_desired_members : int, optional
        Members among them.
    majority : bool, optional
        Whether at least half of the rows inside have the outcome.
    """

    pureness: float
    pureness_low: float
    pureness_high: float
    k_consistent: int
    n_consistent_members: int
    k_desired: int | None = None
    n_desired_members: int | None = None
    majority: bool | None = None


# The rules


def refusal(region: RegionFigures, outcome: OutcomeFigures, policy: PrivacyPolicy) -> str | None:
    """Return why the policy withholds a region; None if it does not.

    The first rule that is broken gives the reason.
    """
    if not has_k_members(region, policy):
        return "verification_failed"
    if not region.are_members_inside or not region.has_counterfactual:
        return "verification_failed"
    if not is_within_max_ncp(region, policy):
        return "ncp_above_ceiling"
    if not is_l_diverse(region, policy):
        return "l_diversity"
    if not is_t_close(region, policy):
        return "t_closeness"
    if not is_pure_enough(outcome, policy):
        return "pureness_below_floor"
    if policy.counts_eligible and not agrees_for_k_members(outcome, policy):
        return "verification_failed"
    return None


def has_k_members(region: RegionFigures, policy: PrivacyPolicy) -> bool:
    """Return whether the region has at least k members."""
    return region.n_members >= policy.k


def is_within_max_ncp(region: RegionFigures, policy: PrivacyPolicy) -> bool:
    """Return whether the region loses no more information than ``max_ncp``."""
    return policy.max_ncp is None or region.ncp <= policy.max_ncp


def is_l_diverse(region: RegionFigures, policy: PrivacyPolicy) -> bool:
    """Return whether members have at least l different values of each sensitive attribute."""
    diversity = region.sensitive.diversity
    return policy.l is None or diversity is None or diversity >= policy.l


def is_t_close(region: RegionFigures, policy: PrivacyPolicy) -> bool:
    """Return whether members have sensitive values about as often as all people."""
    closeness = region.sensitive.closeness
    return policy.t is None or closeness is None or closeness <= policy.t


def is_pure_enough(outcome: OutcomeFigures, policy: PrivacyPolicy) -> bool:
    """Return whether a large enough share of the region has the outcome.

    The lower end of the interval counts. A region without any outcome is never pure enough.
    """
    return outcome.pureness_low >= policy.least_pureness and outcome.pureness > 0


def agrees_for_k_members(outcome: OutcomeFigures, policy: PrivacyPolicy) -> bool:
    """Return whether at least k members have the outcome, and at least k with the private values.

    An attacker who asks the model about all people is left with these.
    """
    counts = [outcome.n_consistent_members]
    if outcome.n_desired_members is not None:
        counts.append(outcome.n_desired_members)
    return min(counts) >= policy.k


# The people


class People(Protocol):
    """The people of a catalogue's regions, as far as they can be counted here."""

    def figures(self, number: int, region: Region, codes: Codes) -> RegionFigures:
        """Return what the training table says about a region."""

    def combinations(self, number: int) -> Floats:
        """Return the quasi-identifiers with which the model is asked about people.

        The shape is (n_rows, n_quasi).
        """

    def outcomes(
        self, number: int, private: Floats, has_outcome: Mask, figures: OutcomeFigures
    ) -> OutcomeFigures:
        """Add the counts of people; `has_outcome`, shape (n_rows,), is for `combinations`."""

    def matches(self, number: int, private: Floats) -> tuple[int | None, int | None]:
        """Return how many rows inside the region, and of all, have these private values."""

    def n_effective(self, region: RegionFigures) -> int | None:
        """Return how many people are mapped to the region, if that is fixed beforehand."""


@dataclass(frozen=True, eq=False, repr=False)
class TrainingTable(HostOnly):
    """The training table, and what is counted in it for every region.

    Attributes
    ----------
    population : Population
    model : Model
        For the outcome that is desired.
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

    def n_people(self, rows: Ints) -> int:
        """Return the number of different people behind some rows."""
        return len(np.unique(self.population.person_of_row[rows]))

    @cached_property
    def is_desired(self) -> Mask:
        """Which rows have the outcome, shape (n_rows,)."""
        return self.model.has_outcome(self.rows)

    def rows_with(self, private: Floats) -> Ints:
        """Return the positions of the rows with some private values, shape (n_private,)."""
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
    """The people of the training table.

    Attributes
    ----------
    table : TrainingTable
    members : sequence of arrays of positions of rows, optional
        One row of each member, by region. Without it, everyone inside is a member.
    counterfactuals : shape (n_regions, n_features), optional
        The counterfactual for which each region was made.
    """

    table: TrainingTable
    members: Sequence[Ints] | None = None
    counterfactuals: Floats | None = None
    _inside: dict[int, Ints] = field(default_factory=dict)

    def figures(self, number: int, region: Region, codes: Codes) -> RegionFigures:
        """Count the people inside a region, and its members."""
        counterfactual = None
        if self.counterfactuals is not None:
            counterfactual = self.counterfactuals[number]
        inside = codes.rows_inside(region, self.table.rows)
        self._inside[number] = inside
        members = self._members(number)
        combinations, are_all = asked_combinations(region, codes, counterfactual)
        ncp_parts = losses(region, codes)
        return RegionFigures(
            n_people=self.table.n_people(inside),
            n_members=self.table.n_people(members),
            are_members_inside=bool(np.isin(members, inside).all()),
            has_counterfactual=counterfactual is None or codes.has_row(region, counterfactual),
            ncp_parts=ncp_parts,
            ncp=weigh_losses(ncp_parts, self.table.population.schema),
            sensitive=self._sensitive(members),
            combinations=combinations,
            are_all=are_all,
        )

    def combinations(self, number: int) -> Floats:
        """Return the quasi-identifiers of all rows inside a region."""
        return self.table.rows[np.ix_(self._inside[number], self.table.codes.quasi)]

    def outcomes(
        self,
        number: int,
        private: Floats,  # noqa: ARG002 - of which `has_outcome` is known
        has_outcome: Mask,
        figures: OutcomeFigures,
    ) -> OutcomeFigures:
        """Count the people inside who have the outcome, and those who have it as they are."""
        inside = self._inside[number]
        is_member = np.isin(inside, self._members(number))
        is_desired = self.table.is_desired[inside]
        n_people = self.table.n_people
        return replace(
            figures,
            k_consistent=n_people(inside[has_outcome]),
            n_consistent_members=n_people(inside[has_outcome & is_member]),
            k_desired=n_people(inside[is_desired]),
            n_desired_members=n_people(inside[is_desired & is_member]),
            majority=bool(2 * is_desired.sum() >= len(inside)),
        )

    def matches(self, number: int, private: Floats) -> tuple[int | None, int | None]:
        """Count the rows with exactly these private values."""
        rows = self.table.rows_with(private)
        return int(np.isin(rows, self._inside[number]).sum()), len(rows)

    def n_effective(self, region: RegionFigures) -> int | None:
        """Return the number of members, if it was fixed before anyone asked."""
        return None if self.members is None else region.n_members

    def _sensitive(self, members: Ints) -> SensitiveFigures:
        """Return how diverse members' sensitive values are; nothing without members."""
        if not len(members):
            return SensitiveFigures()
        return SensitiveFigures.of(self.table.population, members)

    def _members(self, number: int) -> Ints:
        return self._inside[number] if self.members is None else self.members[number]


@dataclass(frozen=True, eq=False, repr=False)
class PeopleElsewhere(HostOnly):
    """The people of a catalogue that was loaded from a file: only their number is there.

    At least k members have the outcome with every entry. At each combination that the catalogue
    requires of a region, its weakest entry has the outcome. So an answer that has it at all of them
    is consistent with the same members.

    Attributes
    ----------
    required : callable
        From numbers of regions to the combinations that each requires, shape (n, n_quasi).
    entry_region : shape (n_entries,)
    entry_values : shape (n_entries, n_private)
    n_people : shape (n_regions,); people inside each region, when the file was written
    k : int
    """

    required: Callable[[Ints], Mapping[int, Floats]]
    entry_region: Ints
    entry_values: Floats
    n_people: Ints
    k: int

    def figures(self, number: int, region: Region, codes: Codes) -> RegionFigures:
        """Return the figures of a region that can be counted without people."""
        combinations, are_all = asked_combinations(region, codes)
        ncp_parts = losses(region, codes)
        weight_of = {column.name: column.attribute.weight for column in codes.columns}
        return RegionFigures(
            n_people=int(self.n_people[number]),
            n_members=self.k,
            are_members_inside=True,
            ncp_parts=ncp_parts,
            ncp=fsum(weight_of[name] * loss for name, loss in ncp_parts.items()),
            sensitive=SensitiveFigures(),
            combinations=combinations,
            are_all=are_all,
        )

    def combinations(self, number: int) -> Floats:
        """Return the combinations that the catalogue requires of a region."""
        return self.required(np.array([number]))[number]

    def outcomes(
        self, number: int, private: Floats, has_outcome: Mask, figures: OutcomeFigures
    ) -> OutcomeFigures:
        """Count k people if the answer has the outcome at all required combinations."""
        is_proven = len(has_outcome) > 0 and bool(has_outcome.all())
        n_people = self.k if is_proven or self._is_entry(number, private) else 0
        return replace(figures, k_consistent=n_people, n_consistent_members=n_people)

    def n_effective(self, region: RegionFigures) -> int | None:
        """Return k, which the number of members was at least when the file was written."""
        return region.n_members

    def matches(self, number: int, private: Floats) -> tuple[int | None, int | None]:  # noqa: ARG002
        """Return None: there are no rows."""
        return None, None

    def _is_entry(self, number: int, private: Floats) -> bool:
        values = self.entry_values[self.entry_region == number]
        return bool((values == private).all(axis=1).any())


# The parts of a region


def losses(region: Region, codes: Codes) -> dict[str, float]:
    """Return the information loss of each quasi-identifier, in alphabetical order."""
    columns = [codes.columns[j] for j in codes.quasi.tolist()]
    return {column.name: loss_of(region[column.name], column) for column in columns}


def asked_combinations(
    region: Region, codes: Codes, counterfactual: Floats | None = None
) -> tuple[Floats, bool]:
    """Return the combinations of a region that the model is asked about, and whether all are.

    Parameters
    ----------
    region : Region
    codes : Codes
    counterfactual : shape (n_features,), optional
        Its numbers are among the values, even if no training row has them.

    Returns
    -------
    combinations : shape (n_combinations, n_quasi)
    are_all : bool
    """
    options = codes.options(region)
    if counterfactual is not None:
        options = [
            np.union1d(values, counterfactual[[j]])
            for values, j in zip(options, codes.quasi.tolist(), strict=True)
        ]
    if prod(map(len, options)) <= MOST_COMBINATIONS:
        return mixed(options), True
    random = np.random.default_rng(0)  # the same region is always judged alike
    return np.column_stack([random.choice(values, SAMPLED) for values in options]), False


# The certifier


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Certifier(HostOnly):
    """Counts the explanations for one outcome, and certifies or withholds them.

    Attributes
    ----------
    model : Model
        With the margin that answers need.
    policy : PrivacyPolicy
    regions : sequence of Region
        As they are released.
    people : People
    fingerprint : str
        That of the population.
    margin : float, optional
        What certificates state; None if the policy asks for no margin.
    method : str
    proofs : sequence of Proposal
        Of protectors, by region; empty for a catalogue.
    """

    model: Model
    policy: PrivacyPolicy
    regions: Sequence[Region]
    people: People
    fingerprint: str
    margin: float | None = None
    method: str = "catalogue"
    proofs: Sequence[Proposal] = ()
    _figures: dict[int, RegionFigures] = field(default_factory=dict)

    def verdicts(self, claims: Claims, limits: Limits | None = None) -> list[Verdict]:
        """Certify or withhold each claim.

        Parameters
        ----------
        claims : Claims
        limits : Limits, optional
            Of the query of each claim, if the claims answer queries.
        """
        keys = _keys(claims)
        first = _first_of_equal(keys)
        distinct = Claims(claims.region[first], claims.private[first])
        verdict_of_key = {
            keys[i]: verdict
            for i, verdict in zip(first.tolist(), self._verdicts(distinct), strict=True)
        }
        verdicts = [verdict_of_key[key] for key in keys]
        if limits is None or claims.points is None:
            return verdicts
        reasons = self._reasons_of_points(claims, claims.points, limits)
        return [
            verdict if reason is None else refused(reason)
            for verdict, reason in zip(verdicts, reasons, strict=True)
        ]

    def questions(self, claims: Claims) -> Floats:
        """Return the rows about which `verdicts` asks, if they are few; shape (n, n_features)."""
        first = _first_of_equal(_keys(claims))
        parts = self._parts(Claims(claims.region[first], claims.private[first]))
        if len(parts) > 1:
            return np.empty((0, len(self.model.codes.columns)))
        some = first[parts[0]]
        return np.concatenate(self._questions(claims, some.tolist()))

    def n_people(self) -> Ints:
        """Return the number of people inside each region, shape (n_regions,)."""
        numbers = range(len(self.regions))
        return np.array([self._region_figures(number).n_people for number in numbers])

    def _reasons_of_points(
        self, claims: Claims, points: Floats, limits: Limits
    ) -> list[str | None]:
        """Return why the point of each claim may not be advised; None if it may."""
        query = np.arange(len(points))
        is_permitted = limits.permits(points, query) & limits.few_changes(points, query)
        is_right = self.model.sure(points) & self._are_in_region(claims, points, limits)
        reasons = np.where(is_permitted, "verification_failed", "no_actionable_answer")
        return [
            None if is_fine else str(reason)
            for is_fine, reason in zip(is_permitted & is_right, reasons, strict=True)
        ]

    def _are_in_region(self, claims: Claims, points: Floats, limits: Limits) -> Mask:
        """Return whether points are inside their region, except where they keep the query's own.

        Private values must be those of the claim. The shape is (n_claims,).
        """
        codes = self.model.codes
        are_in_region: Mask = (points[:, codes.private] == claims.private).all(axis=1)
        for j in codes.quasi.tolist():
            column = codes.columns[j]
            for i in np.flatnonzero(points[:, j] != limits.queries[:, j]).tolist():
                part = self.regions[int(claims.region[i])][column.name]
                are_in_region[i] &= column.has_value(part, float(points[i, j]))
        return are_in_region

    def _verdicts(self, claims: Claims) -> list[Verdict]:
        """Certify or withhold claims for their region and private values."""
        verdicts: list[Verdict] = []
        for part in self._parts(claims):
            answers = self._ask(claims, part)
            for i, (of_region, of_people) in zip(part, answers, strict=True):
                number = int(claims.region[i])
                verdicts.append(self._verdict(number, claims.private[i], of_region, of_people))
        return verdicts

    def _parts(self, claims: Claims) -> list[list[int]]:
        """Return positions of claims, divided so that each part needs one call of the model."""
        parts: list[list[int]] = [[]]
        n_rows = 0
        for i, number in enumerate(claims.region.tolist()):
            figures = self._region_figures(number)
            n_more = len(figures.combinations) + len(self.people.combinations(number))
            if parts[-1] and n_rows + n_more > _AT_ONCE:
                parts.append([])
                n_rows = 0
            parts[-1].append(i)
            n_rows += n_more
        return parts

    def _ask(self, claims: Claims, part: Sequence[int]) -> list[tuple[Mask, Mask]]:
        """Return which combinations, and which people, have the outcome with each claim's values.

        The shapes are (n_combinations,) and (n_rows,).
        """
        questions = self._questions(claims, part)
        if not questions:
            return []
        ends = np.cumsum([len(rows) for rows in questions])[:-1]
        has_outcome = np.split(self.model.has_outcome(np.concatenate(questions)), ends)
        return list(zip(has_outcome[::2], has_outcome[1::2], strict=True))

    def _questions(self, claims: Claims, part: Sequence[int]) -> list[Floats]:
        """Return the combinations of each claim's region, and of its people, with its values."""
        questions: list[Floats] = []
        for i in part:
            number = int(claims.region[i])
            for combinations in (
                self._region_figures(number).combinations,
                self.people.combinations(number),
            ):
                questions.append(self.model.codes.rows_of(combinations, claims.private[i]))
        return questions

    def _region_figures(self, number: int) -> RegionFigures:
        if number not in self._figures:
            region = self.regions[number]
            self._figures[number] = self.people.figures(number, region, self.model.codes)
        return self._figures[number]

    def _verdict(self, number: int, private: Floats, of_region: Mask, of_people: Mask) -> Verdict:
        """Certify or withhold one region with its private values, shape (n_private,)."""
        region = self._region_figures(number)
        n_outcomes = int(of_region.sum())
        pureness = n_outcomes / len(of_region)
        low = high = pureness
        if not region.are_all:
            low, high = clopper_pearson(n_outcomes, len(of_region))
        outcome = self.people.outcomes(
            number,
            private,
            of_people,
            OutcomeFigures(
                pureness=pureness,
                pureness_low=low,
                pureness_high=high,
                k_consistent=0,
                n_consistent_members=0,
            ),
        )
        reason = refusal(region, outcome, self.policy)
        if reason is not None:
            has_k = has_k_members(region, self.policy)
            n_members = None if has_k else region.n_members
            return refused(reason, n_members)
        return Certified(
            region=self.regions[number],
            certificate=self._certificate(number, region, outcome),
            recount=self._recount(number, private, region, outcome),
        )

    def _certificate(
        self, number: int, region: RegionFigures, outcome: OutcomeFigures
    ) -> Certificate:
        """State what the recipient may see."""
        proof = self.proofs[number] if self.proofs else Proposal(None)
        has_gap = proof.gap is not None and 0 <= proof.gap < inf
        gap = proof.gap if has_gap else None
        return Certificate(
            k=region.n_people,
            ncp=region.ncp,
            pureness=outcome.pureness,
            pureness_low=outcome.pureness_low,
            pureness_high=outcome.pureness_high,
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

    def _recount(
        self, number: int, private: Floats, region: RegionFigures, outcome: OutcomeFigures
    ) -> RegionRecount:
        """State what is for the data holder only."""
        k_private, private_matches = self.people.matches(number, private)
        return RegionRecount(
            k=region.n_people,
            k_desired=outcome.k_desired,
            k_consistent=outcome.k_consistent,
            k_effective=self.people.n_effective(region),
            k_private=k_private,
            private_matches=private_matches,
            l=region.sensitive.diversity,
            t=region.sensitive.closeness,
            majority=outcome.majority,
            disclosure=region.sensitive.disclosure,
            ncp_parts=tuple(region.ncp_parts.values()),
        )


def _keys(claims: Claims) -> list[tuple[int, bytes]]:
    """Return what identifies the region and private values of each claim."""
    return [
        (region, values.tobytes())
        for region, values in zip(claims.region.tolist(), claims.private, strict=True)
    ]


def _first_of_equal(keys: Sequence[tuple[int, bytes]]) -> Ints:
    """Return the positions of the first of all equal keys, in order."""
    first_of_key: dict[tuple[int, bytes], int] = {}
    for i, key in enumerate(keys):
        first_of_key.setdefault(key, i)
    return np.array([*first_of_key.values()], dtype=np.int64)
