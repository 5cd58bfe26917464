"""Which entries a catalogue has: private values that are tried with the region of a group, as they would leave."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np
import pandas as pd

from cfk_plugin.data.intake import table_of
from cfk_plugin.data.model import Goal, Grid, Mask, RowOracle, rows_for_cells
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.rows import in_order
from cfk_plugin.errors import HostOnly
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.metrics.uniqueness import Coarse, PrivateRelease
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.groups import counts_once
from cfk_plugin.protection.partition import Partition, by_group

_log = logging.getLogger("cfk_plugin")
_ENTRIES = 64  # private parts that a group offers at most
ASKED = 1 << 18  # rows in one call of the model
_SAMPLE = 45, 64  # combinations at which an entry is tried, at least and at most, where there are more
_CONFIDENCE = 0.9999  # of a sample: many entries are tried, and what verification counts must not refuse one of them
_SPENT = 10  # rows that the model is asked for to find entries, per row of the table


class Entries(NamedTuple):
    """Private values that may go with the region of a group."""

    rows: Ints  # a training row of the group, whose private values they are
    private: pd.DataFrame
    consistent: Ints  # members of the group that the model is consistent with
    pure: Floats  # share of what leaves that has the outcome, if only of a sample

    def take(self, at: Ints) -> Entries:
        private = self.private.take(at).reset_index(drop=True)
        return Entries(self.rows[at], private, self.consistent[at], self.pure[at])


def find_entries(partition: Partition, policy: PrivacyPolicy, goal: Goal, model: RowOracle) -> Entries:
    """Try private values of every group with its region; the model is asked in large batches."""
    tried = _Tried.of(partition, policy)
    consistent = tried.consistent_members(goal, model)
    tried, consistent = tried.take(consistent >= policy.k), consistent[consistent >= policy.k]
    share, low = tried.pureness(goal, model)
    kept = np.flatnonzero(low >= policy.least_pureness)
    _tell_of_groups_without(partition, tried.rows[kept])
    return Entries(tried.rows[kept], tried.private.take(kept), consistent[kept], share[kept])


def forms_of(partition: Partition, rows: Ints, policy: PrivacyPolicy) -> list[Coarse | None]:
    """Return in which form private values of training rows leave with their groups' regions; None for not at all."""
    population, judge = partition.population, PrivateRelease(partition.population, policy)
    if judge.is_exact:
        return [{}] * len(rows)
    codes, numbers = population.encode(population.rows(rows))
    members = [partition.rows_mapped_to(partition.regions[group]) for group in partition.group_of_row[rows]]
    return [judge.decide(c, n, alike) for c, n, alike in zip(codes, numbers, members, strict=True)]


def private_at(population: Population) -> list[int]:
    return [population.schema.features.index(name) for name in population.schema.private]


def equal_work(size: Ints) -> list[Ints]:
    """Divide candidates into runs that ask the model for about equally many rows."""
    if not len(size):
        return []
    return np.split(np.arange(len(size)), np.flatnonzero(np.diff((np.cumsum(size) - 1) // ASKED)) + 1)


def _tell_of_groups_without(partition: Partition, entries: Ints) -> None:
    grouped, groups = np.flatnonzero(partition.group_of_row >= 0), partition.group_of_row
    if len(without := grouped[~np.isin(groups[grouped], groups[entries])]):
        _log.warning(
            "%d of %d people who could be a counterfactual are in groups without an entry: with all private values "
            "that were tried the model refuses too much of the region. Answers come from the other groups",
            *map(partition.population.people, (without, grouped)),
        )


def _candidates(partition: Partition) -> Ints:
    """Return one row per distinct private part of every group, at most so many, in keyed order."""
    population = partition.population
    grouped = np.flatnonzero(partition.group_of_row >= 0)
    codes, group = population.codes[grouped], partition.group_of_row[grouped]
    line = in_order(codes, population.schema, group, population.keyed_numbers(grouped))
    keys = np.column_stack([group[line].astype(np.int64), codes[line][:, private_at(population)]])
    first = np.sort(np.unique(keys, axis=0, return_index=True)[1])
    line = line[first]
    rank = np.arange(len(line)) - np.searchsorted(group[line], group[line])
    return grouped[line[rank < _ENTRIES]]


@dataclass(frozen=True, eq=False, repr=False)
class _Tried(HostOnly):
    """Private values, where they are tried: at the members of a group, and at combinations of what would leave."""

    partition: Partition
    rows: Ints  # a training row of the group of each
    codes: Codes  # its private values
    axes: Sequence[Sequence[Codes]]  # what each private attribute leaves as; none where all leave as they are
    members: Ints  # shape (n, 2): group and cell, group by group
    people: Ints  # how many are there
    start: Ints  # of each group in these, and the end of the last
    grids: Sequence[Grid]  # of each group's region
    sample: int

    @classmethod
    def of(cls, partition: Partition, policy: PrivacyPolicy) -> _Tried:
        """Take as many candidates as the model may be asked about, of every group alike many."""
        population, n_groups = partition.population, len(partition.regions)
        grouped = np.flatnonzero(partition.group_of_row >= 0)
        of_each = by_group(partition.group_of_row[grouped], grouped, n_groups)
        # One row of each person in each group.
        first = np.concatenate([grouped[:0], *(some[counts_once(population, some) == 1] for some in of_each)])
        of_group = np.column_stack([partition.group_of_row[first], population.cell_of(first)])
        members, people = np.unique(of_group, axis=0, return_counts=True)
        start = np.searchsorted(members[:, 0], np.arange(n_groups + 1))
        grids = [Grid.of(region, population, [0] * len(population.schema.quasi_identifiers))
                 for region in partition.regions]  # fmt: skip
        spent, judge = _SPENT * population.n_rows, PrivateRelease(population, policy)
        sample = int(np.clip((spent / 2 - len(members)) // max(n_groups, 1), *_SAMPLE))
        drawn = [min(sample, grid.size) if judge.is_exact else sample for grid in grids]
        rows = _affordable(
            partition.group_of_row, _candidates(partition), np.diff(start) + np.array(drawn, dtype=np.float64), spent
        )
        codes, forms = population.codes[rows][:, private_at(population)], forms_of(partition, rows, policy)
        axes = [() if form is None or judge.is_exact else _axes(judge, population.codes[row], form)
                for row, form in zip(rows, forms, strict=True)]  # fmt: skip
        found = cls(partition, rows, codes, axes, members, people, start, grids, sample)
        return found.take(np.array([form is not None for form in forms], dtype=bool))

    def take(self, kept: Mask) -> _Tried:
        axes = [each for each, is_kept in zip(self.axes, kept.tolist(), strict=True) if is_kept]
        return replace(self, rows=self.rows[kept], codes=self.codes[kept], axes=axes)

    @property
    def private(self) -> pd.DataFrame:
        """Values of the private attributes of each."""
        domains, names = self.partition.population.domains, self.partition.population.schema.private
        values = {name: domains[name].restore_array(self.codes[:, j]) for j, name in enumerate(names)}
        return table_of(values).reindex(range(len(self.rows)))

    def consistent_members(self, goal: Goal, model: RowOracle) -> Ints:
        """Count, for each, the members of its group that have the outcome with its private values."""
        population, group = self.partition.population, self.partition.group_of_row[self.rows]
        counts, size = np.zeros(len(self.rows), dtype=np.int64), np.diff(self.start)[group]
        offered, judge = self.private, goal.judge(None, model.labels(self.rows))
        for at in equal_work(size):
            which = np.repeat(at, size[at])
            within = np.arange(len(which)) - np.repeat(np.cumsum(size[at]) - size[at], size[at])
            asked = self.start[group[which]] + within
            cells = self.members[asked, 1]
            good = population.cell_of(self.rows[which]) == cells  # the row itself: already asked
            if len(other := np.flatnonzero(~good)):
                frame = rows_for_cells(population.encoder, offered, which[other], population.cells[cells[other]])
                good[other] = judge(model.ask(frame), which[other])
            np.add.at(counts, which, np.where(good, self.people[asked], 0))
        return counts

    def pureness(self, goal: Goal, model: RowOracle) -> tuple[Floats, Floats]:
        """Return the share of what would leave where each has its outcome, and its lower end if of a sample."""
        offered, judge = self.private, goal.judge(None, model.labels(self.rows))
        sizes = [prod(map(len, axes), start=self._grid(i).size) for i, axes in enumerate(self.axes)]
        share, low = np.zeros(len(sizes)), np.zeros(len(sizes))
        for at in equal_work(np.minimum(sizes, self.sample).astype(np.int64)):
            drawn = [self._drawn(i) for i in at.tolist()]
            which = np.repeat(at, [*map(len, drawn)])
            frame = rows_for_cells(self.partition.population.encoder, offered, which, np.concatenate(drawn))
            good = judge(model.ask(frame), which)
            for i, hits in zip(at.tolist(), np.split(good, np.cumsum([*map(len, drawn)])[:-1]), strict=True):
                share[i] = low[i] = hits.mean()
                if len(hits) < sizes[i]:
                    low[i], _ = clopper_pearson(int(hits.sum()), len(hits), _CONFIDENCE)
        return share, low

    def _grid(self, i: int) -> Grid:
        return self.grids[int(self.partition.group_of_row[self.rows[i]])]

    def _drawn(self, i: int) -> Codes:
        axes = (*self._grid(i).codes, *self.axes[i])
        return Grid(axes, prod(map(len, axes))).sample(self.sample, np.random.default_rng(0))


def _axes(judge: PrivateRelease, codes: Codes, form: Coarse) -> tuple[Codes, ...]:
    binned = [name for name, (part, _) in form.items() if part is not None]
    return judge.axes(codes, np.full(len(codes), np.nan), binned, [name for name in form if name not in binned])


def _affordable(group_of_row: Ints, candidates: Ints, cost: Floats, most: int) -> Ints:
    """Return the candidates for which the model is asked for so many rows at most, of every group alike many."""
    group = group_of_row[candidates]
    line = np.lexsort((group, np.arange(len(group)) - np.searchsorted(group, group)))
    return candidates[np.sort(line[np.cumsum(cost[group[line]]) <= most])]
