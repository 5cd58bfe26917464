"""The entries of a catalogue: which private values may go with the region of a group.

An explanation of a catalogue is an entry: the region of a group with private values. Two things
make an entry admissible. The model gives the desired outcome for at least k members of the group
with their own quasi-identifiers and the entry's private values. So an adversary who knows the
quasi-identifiers of all people is left with k people whose private values these could be. And the
model gives the outcome for enough of the region, so that the explanation is true for most of the
combinations that it stands for.

Which private values are tried is decided before the model is asked. They belong to at least k
people of the population or to no one; how they are chosen is in
`cfk_plugin.protection.catalogue.crowds`. Groups without an entry then try the private values of
other groups' entries.

It is not protected who is in the population. That the model gives the outcome for k members is a
fact about the model, which the entry discloses.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cfk_plugin.data.combinations import Grid, rows_for_cells
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.rows import in_order
from cfk_plugin.data.training_labels import TrainingLabels
from cfk_plugin.errors import HostOnly
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.protection.axes import Floats, Ints
from cfk_plugin.protection.catalogue.crowds import shared_candidates
from cfk_plugin.protection.catalogue.model_calls import calls_of
from cfk_plugin.protection.catalogue.private_values import EncodedValues, private_codes
from cfk_plugin.protection.catalogue.required_combinations import grid_of
from cfk_plugin.protection.catalogue.scales import in_dtype, scales_of
from cfk_plugin.protection.partition.microaggregation import counts_once
from cfk_plugin.protection.partition.partition import Partition, by_group

_log = logging.getLogger("cfk_plugin")


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How much is tried to find entries.

    Rows are counted as the model is asked about them: one for every member of a group and for every
    combination at which an entry is tried.
    """

    # Most combinations of private values that are tried in a group: centers of crowds ...
    centers_per_group: int = 24
    centers_per_k: int = 2  # times k, if that is less
    # ... and, in a group without an entry, the private values of other groups' entries.
    values_from_elsewhere: int = 64
    least_combinations: int = 45  # at which an entry is tried, if not at all of them
    most_combinations: int = 64
    # of the lower bound of a sampled share: high, as many entries are tried and verification must
    # not refuse any of them
    confidence: float = 0.9999
    rows_per_training_row: int = 10
    least_rows: int = 10_000  # may always be asked about, however small the table is

    def n_rows(self, n_training_rows: int) -> int:
        """Return how many rows the model may be asked about."""
        return max(self.rows_per_training_row * n_training_rows, self.least_rows)

    def n_centers(self, k: int) -> int:
        """Return how many centers are tried in a group of at least k people."""
        return min(self.centers_per_group, self.centers_per_k * k)

    def n_combinations(self, n_rows: int, n_members: int, n_groups: int) -> int:
        """Return at how many combinations an entry is tried, so that half of the rows suffice for
        one entry in every group.
        """
        per_group = (n_rows / 2 - n_members) // max(n_groups, 1)
        return int(np.clip(per_group, self.least_combinations, self.most_combinations))


SEARCH_LIMITS = SearchLimits()
"""The limits of every catalogue that `Catalogue.build` makes."""


@dataclass(frozen=True, eq=False, repr=False)
class Entries(HostOnly):
    """Private values that may go with the region of a group, one per entry."""

    rows: Ints  # shape (n,); a training row of the group
    values: EncodedValues  # of n rows
    consistent: Ints  # shape (n,); members of the group that the model is consistent with
    pure: Floats  # shape (n,); share of the region, or of a sample of it, that has the outcome

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, at: Ints) -> Entries:
        """Return the entries at some positions, in their order."""
        return Entries(
            rows=self.rows[at],
            values=self.values.take(at),
            consistent=self.consistent[at],
            pure=self.pure[at],
        )

    def joined(self, others: Entries) -> Entries:
        """Return these entries, then the others."""
        return Entries(
            rows=np.concatenate([self.rows, others.rows]),
            values=self.values.joined(others.values),
            consistent=np.concatenate([self.consistent, others.consistent]),
            pure=np.concatenate([self.pure, others.pure]),
        )


def ends_of(partition: Partition, policy: PrivacyPolicy) -> dict[str, pd.Series]:
    """Return where each private number is expected to end (`scales_of`), by attribute.

    These numbers set the ranges of distances, with those of the entries.
    """
    domains = partition.population.domains
    return {
        name: in_dtype(domains[name], np.array([scale.low, scale.high]))
        for name, scale in scales_of(partition, policy.k).items()
    }


def find_entries(
    partition: Partition,
    policy: PrivacyPolicy,
    goal: DesiredOutcome,
    model: TrainingLabels,
    limits: SearchLimits = SEARCH_LIMITS,
) -> Entries:
    """Try private values with the region of every group; the model is asked in large batches."""
    n_rows = limits.n_rows(partition.population.n_rows)
    n_rows_before = model.model.rows
    nothing = _Trial.prepare(partition, policy, limits)
    candidates = _candidates(partition, policy, limits)
    entries = nothing.trying(candidates, n_rows).admissible(goal, model)
    n_rows_left = n_rows - (model.model.rows - n_rows_before)
    from_elsewhere = _candidates_from_elsewhere(partition, entries, limits.values_from_elsewhere)
    entries = entries.joined(nothing.trying(from_elsewhere, n_rows_left).admissible(goal, model))
    _tell_of_groups_without(partition, entries.rows)
    return entries


def _tell_of_groups_without(partition: Partition, entries: Ints) -> None:
    """Log how many people are in groups from which no answer comes; warn if most of them are."""
    group_of_row = partition.group_of_row
    grouped = np.flatnonzero(group_of_row >= 0)
    without = grouped[~np.isin(group_of_row[grouped], group_of_row[entries])]
    if not len(without):
        return
    n_without = partition.population.people(without)
    n_people = partition.population.people(grouped)
    # Where a few groups have no entry, answers are only further away: nobody has to act.
    level = logging.WARNING if n_without > n_people / 2 else logging.INFO
    _log.log(
        level,
        "%d of %d people who could be a counterfactual are in groups without an entry: with all"
        " private values that were tried the model refuses too much of the region. Answers come"
        " from the other groups, and may be further from the query. A smaller k, fewer"
        " quasi-identifiers or a lower min_pureness leave fewer groups without an entry",
        n_without,
        n_people,
    )


@dataclass(frozen=True, eq=False, repr=False)
class _Candidates(HostOnly):
    """Private values to try, each in the group of a training row."""

    rows: Ints  # shape (n,)
    values: EncodedValues  # of n rows

    def take(self, at: Ints) -> _Candidates:
        """Return the candidates at some positions, in their order."""
        return _Candidates(rows=self.rows[at], values=self.values.take(at))


def _candidates(partition: Partition, policy: PrivacyPolicy, limits: SearchLimits) -> _Candidates:
    """Return the first distinct private values to try in each group, group by group."""
    population = partition.population
    grouped = np.flatnonzero(partition.group_of_row >= 0)
    group = partition.group_of_row[grouped]
    keyed = population.keyed_numbers(grouped)
    rows = grouped[in_order(population.codes[grouped], population.schema, group, keyed)]
    group = partition.group_of_row[rows]
    shared = shared_candidates(partition, policy.k)
    first_of_group = rows[np.searchsorted(group, shared.group)]
    candidates = _Candidates(rows=first_of_group, values=shared.values)
    group = partition.group_of_row[candidates.rows]
    place_in_group = np.arange(len(group)) - np.searchsorted(group, group)
    return candidates.take(np.flatnonzero(place_in_group < limits.n_centers(policy.k)))


def _candidates_from_elsewhere(partition: Partition, entries: Entries, n_most: int) -> _Candidates:
    """Return private values to try in the groups without an entry, at most `n_most` in each.

    These are the ones of entries with the same outcome, those first that hold most widely.
    """
    population = partition.population
    group_of_row = partition.group_of_row
    widest_first = np.lexsort((*entries.values.sort_keys, -entries.consistent, -entries.pure))
    entries = entries.take(widest_first)
    group_of_entry = group_of_row[entries.rows]
    eligibility_of_entry = partition.eligibility_of_group[group_of_entry]
    rows_without = np.flatnonzero(~np.isin(group_of_row, [-1, *group_of_entry]))
    group = group_of_row[rows_without]
    order = in_order(population.codes[rows_without], population.schema, group)
    rows_without = rows_without[order]
    _, first_of_group = np.unique(group_of_row[rows_without], return_index=True)
    nothing = np.empty(0, dtype=np.int64)
    rows = [nothing]
    entry_of_candidate = [nothing]
    for row in rows_without[first_of_group].tolist():
        eligibility = partition.eligibility_of_group[group_of_row[row]]
        same_outcome = np.flatnonzero(eligibility_of_entry == eligibility)
        distinct = same_outcome[entries.values.take(same_outcome).first_of_equal()[:n_most]]
        rows.append(np.full(len(distinct), row))
        entry_of_candidate.append(distinct)
    return _Candidates(
        rows=np.concatenate(rows), values=entries.values.take(np.concatenate(entry_of_candidate))
    )


@dataclass(frozen=True, eq=False, repr=False)
class _GroupMembers(HostOnly):
    """How many people of each group are in each cell, group by group."""

    cells: Ints  # shape (n,)
    n_people: Ints  # shape (n,); a person with several rows in a group counts once there
    start: Ints  # shape (n_groups + 1,); where each group begins, and the end of the last

    @classmethod
    def of(cls, partition: Partition) -> _GroupMembers:
        """Count the members of all groups of a partition."""
        population = partition.population
        n_groups = len(partition.regions)
        grouped = np.flatnonzero(partition.group_of_row >= 0)
        first_rows = [grouped[:0]]  # one row of each person in each group
        for rows in by_group(partition.group_of_row[grouped], grouped, n_groups):
            first_rows.append(rows[counts_once(population, rows) == 1])
        rows = np.concatenate(first_rows)
        group_and_cell = np.column_stack([partition.group_of_row[rows], population.cell_of(rows)])
        distinct, n_people = np.unique(group_and_cell, axis=0, return_counts=True)
        return cls(
            cells=distinct[:, 1],
            n_people=n_people,
            start=np.searchsorted(distinct[:, 0], np.arange(n_groups + 1)),
        )

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def n_cells(self) -> Ints:
        """Number of cells of each group; shape (n_groups,)."""
        return np.diff(self.start)


@dataclass(frozen=True, eq=False, repr=False)
class _Trial(HostOnly):
    """Private values to try, with the members of groups and at combinations of their regions."""

    partition: Partition
    candidates: _Candidates
    members: _GroupMembers
    grids: Sequence[Grid]  # of each group's region
    n_combinations: int  # at which a candidate is tried, if its region has so many
    policy: PrivacyPolicy
    confidence: float  # of the lower bound of a sampled share

    @classmethod
    def prepare(cls, partition: Partition, policy: PrivacyPolicy, limits: SearchLimits) -> _Trial:
        """Prepare every group before anything is tried."""
        population = partition.population
        members = _GroupMembers.of(partition)
        no_rows = np.empty(0, dtype=np.int64)
        no_values = EncodedValues.of_codes(private_codes(population, no_rows))
        return cls(
            partition=partition,
            candidates=_Candidates(rows=no_rows, values=no_values),
            members=members,
            grids=[grid_of(population, region) for region in partition.regions],
            n_combinations=limits.n_combinations(
                limits.n_rows(population.n_rows), len(members), len(partition.regions)
            ),
            policy=policy,
            confidence=limits.confidence,
        )

    @property
    def group(self) -> Ints:
        """The group of each candidate; shape (n_candidates,)."""
        return self.partition.group_of_row[self.candidates.rows]

    def trying(self, candidates: _Candidates, n_rows: int) -> _Trial:
        """Try as many candidates as the model may be asked about, equally many of every group."""
        n_combinations = [min(self.n_combinations, grid.size) for grid in self.grids]
        cost = self.members.n_cells + np.array(n_combinations)
        group = self.partition.group_of_row[candidates.rows]
        return replace(self, candidates=candidates.take(_affordable(group, cost, n_rows)))

    def take(self, at: Ints) -> _Trial:
        """Return the candidates at some positions, in their order."""
        return replace(self, candidates=self.candidates.take(at))

    def admissible(self, goal: DesiredOutcome, model: TrainingLabels) -> Entries:
        """Return the candidates with which at least k members and enough of the region have the
        outcome.
        """
        n_consistent = self.n_consistent_members(goal, model)
        has_k_members = np.flatnonzero(n_consistent >= self.policy.k)
        trial = self.take(has_k_members)
        share, lower_bound = trial.pureness(goal, model)
        entries = Entries(
            rows=trial.candidates.rows,
            values=trial.candidates.values,
            consistent=n_consistent[has_k_members],
            pure=share,
        )
        return entries.take(np.flatnonzero(lower_bound >= self.policy.least_pureness))

    def n_consistent_members(self, goal: DesiredOutcome, model: TrainingLabels) -> Ints:
        """Count the members of each candidate's group that have the outcome with its values.

        Returns shape (n_candidates,).
        """
        population = self.partition.population
        members = self.members
        rows = self.candidates.rows
        group = self.group
        n_cells = members.n_cells[group]
        counts = np.zeros(len(rows), dtype=np.int64)
        offered = self.candidates.values.frame(population)
        is_desired = goal.test_for(model.labels(rows))
        is_own = (private_codes(population, rows) == self.candidates.values.codes).all(axis=1)
        for candidates in calls_of(n_cells):
            n_asked = n_cells[candidates]
            which = np.repeat(candidates, n_asked)  # candidate of each member that is asked about
            first = np.repeat(np.cumsum(n_asked) - n_asked, n_asked)
            place_in_group = np.arange(len(which)) - first
            asked = members.start[group[which]] + place_in_group
            cells = members.cells[asked]
            # The row itself was asked about before.
            is_met = is_own[which] & (population.cell_of(rows[which]) == cells)
            other = np.flatnonzero(~is_met)
            if len(other):
                frame = rows_for_cells(
                    population.encoder, offered, which[other], population.cells[cells[other]]
                )
                predictions = model.predictions(frame)
                is_met[other] = is_desired(predictions.labels, which[other]) & predictions.is_sure
            np.add.at(counts, which, np.where(is_met, members.n_people[asked], 0))
        return counts

    def pureness(self, goal: DesiredOutcome, model: TrainingLabels) -> tuple[Floats, Floats]:
        """Return the share of each candidate's region that has the outcome, and its lower bound.

        Both have the shape (n_candidates,). They are the same unless the region is sampled.
        """
        population = self.partition.population
        n_candidates = len(self.candidates.rows)
        is_desired = goal.test_for(model.labels(self.candidates.rows))
        offered = self.candidates.values.frame(population)
        sizes = [self._combinations(i).size for i in range(n_candidates)]
        share = np.zeros(n_candidates)
        lower_bound = np.zeros(n_candidates)
        for candidates in calls_of(np.minimum(sizes, self.n_combinations).astype(np.int64)):
            drawn = [
                self._combinations(i).sample(self.n_combinations, np.random.default_rng(0))
                for i in candidates.tolist()
            ]
            n_drawn = [len(cells) for cells in drawn]
            which = np.repeat(candidates, n_drawn)
            frame = rows_for_cells(population.encoder, offered, which, np.concatenate(drawn))
            predictions = model.predictions(frame)
            is_met = is_desired(predictions.labels, which) & predictions.is_sure
            is_met_by_candidate = np.split(is_met, np.cumsum(n_drawn)[:-1])
            for i, hits in zip(candidates.tolist(), is_met_by_candidate, strict=True):
                share[i] = hits.mean()
                lower_bound[i] = share[i]
                if len(hits) < sizes[i]:
                    lower_bound[i], _ = clopper_pearson(int(hits.sum()), len(hits), self.confidence)
        return share, lower_bound

    def _combinations(self, i: int) -> Grid:
        """Return the combinations of a candidate's region."""
        return self.grids[int(self.group[i])]


def _affordable(group: Ints, cost: Ints, n_rows: int) -> Ints:
    """Return the candidates that n rows suffice for, equally many of every group.

    Parameters
    ----------
    group : shape (n_candidates,)
        The group of each candidate, ascending.
    cost : shape (n_groups,)
        How many rows one candidate of each group needs.
    n_rows : int

    Returns
    -------
    array of int64, shape (n_affordable,)
        Positions of the candidates, ascending.
    """
    place_in_group = np.arange(len(group)) - np.searchsorted(group, group)
    first_of_groups_first = np.lexsort((group, place_in_group))
    total_cost = np.cumsum(cost[group[first_of_groups_first]])
    return np.sort(first_of_groups_first[total_cost <= n_rows])
