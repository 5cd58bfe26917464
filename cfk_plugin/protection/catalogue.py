"""The catalogue: what explanations are made of, fixed before the first query."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from cfk_plugin.data.intake import Intake
from cfk_plugin.data.model import Goal, Grid, Mask, RowOracle, rows_for_cells
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.rows import in_order
from cfk_plugin.errors import HostOnly, PopulationError
from cfk_plugin.metrics.heom import Heom, HeomCodes
from cfk_plugin.metrics.information import ncp, ncp_by_attribute
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.metrics.uniqueness import PrivateRelease
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.groups import counts_once
from cfk_plugin.protection.partition import Partition, by_group

_ENTRIES = 64  # private parts that a class offers at most
_ASKED = 1 << 18  # rows in one call of the model
_SAMPLE = 400  # combinations of a region at which an entry is tried, where there are more


@dataclass(frozen=True, eq=False, repr=False)
class Catalogue(HostOnly):
    """Regions with private values that at least k members of the group could have had, as far as the model tells.

    An entry is a training row: its group's region and its private values, admissible when the model gives the desired
    outcome for at least k members with their own quasi-identifiers and these values, and for enough of the region.
    Which one answers a query: `cfk_plugin.protection.answers`. It hides neither the private values, which are
    somebody's, nor who is in the population.
    """

    partition: Partition  # over the rows with a desired prediction
    rows: Ints  # training row of each entry, of least information loss first, whatever the table's order
    consistent: Ints  # per entry: members of its group that the model is consistent with
    goal: Goal
    model: RowOracle

    _refusal = PopulationError, "a Catalogue holds training rows and refuses to be pickled; rebuild it instead"

    @classmethod
    def build(cls, partition: Partition, policy: PrivacyPolicy, goal: Goal, model: RowOracle) -> Catalogue:
        """Find the admissible entries of every group; the model is asked in large batches."""
        candidates = _candidates(partition)
        consistent = _consistent_members(partition, candidates, goal, model)
        kept = np.flatnonzero((consistent >= policy.k) & _may_leave(partition, candidates, policy))
        kept = kept[_pureness(partition, candidates[kept], goal, model) >= policy.least_pureness]
        losses = np.array([ncp(region, partition.population) for region in partition.regions])
        order = kept[np.argsort(np.round(losses[partition.group_of_row[candidates[kept]]], 12), kind="stable")]
        return cls(partition, candidates[order], consistent[order], goal, model)

    def __len__(self) -> int:
        return len(self.rows)

    def _counts(self) -> str:
        return f"{len(self)} entries, {len(self.partition.regions)} groups"

    def own(self, codes: Codes, groups: Ints) -> Ints:
        """Return the row of the entry that a counterfactual is itself; -1 where it is none.

        It is one when its group offers its private values. Released as that entry, rerunning the release for any other
        member of the group, with the private values received, comes out the same.
        """
        wanted = np.column_stack([groups, codes[:, self._private_at]])
        return np.array([self._offered.get(key.tobytes(), -1) for key in wanted], dtype=np.int64)

    def is_desired(self, points: pd.DataFrame, entry: Ints) -> Mask:
        """Say of points, each of ``entry[i]``, whether the model gives that entry's outcome there."""
        judge = self.goal.judge(None, self.model.labels(self.rows))
        starts = range(0, len(points), _ASKED)
        said = [self.model.ask(points.iloc[start : start + _ASKED]) for start in starts]
        return judge(np.concatenate(said), entry) if said else np.empty(0, dtype=bool)

    def distances(self, queries: Intake, at: Ints, open_to: Mask) -> Floats:
        """Return the distance of some queries to every entry; infinite where its outcome is none for the query.

        A region is as far away as its nearest point, and its width on top.
        """
        heom, entries = self._values
        groups, group_at = self._groups
        codes, numbers = queries.quasi_identifiers
        distance = self.partition.distance.between(codes[at], numbers[at], groups)[:, group_at] + self._widths
        if self._private_at:
            distance += heom.distances(queries.frame.take(at), entries) * len(self._private_at)
        distance[~open_to[at][:, self.partition.side_of_group[groups][group_at]]] = np.inf
        return distance

    @cached_property
    def _private_at(self) -> list[int]:
        schema = self.partition.population.schema
        return [schema.features.index(name) for name in schema.private]

    @cached_property
    def _offered(self) -> dict[bytes, int]:
        """Group and private codes of every entry, to its row."""
        codes = self.partition.population.codes[self.rows][:, self._private_at]
        keys = np.column_stack([self.partition.group_of_row[self.rows], codes])
        return {key.tobytes(): int(row) for key, row in zip(keys, self.rows, strict=True)}

    @cached_property
    def _groups(self) -> tuple[Ints, Ints]:
        """The groups that have entries, and which of them each entry belongs to."""
        return np.unique(self.partition.group_of_row[self.rows], return_inverse=True)

    @cached_property
    def _widths(self) -> Floats:
        partition = self.partition
        widths = [sum(ncp_by_attribute(region, partition.population).values()) for region in partition.regions]
        return np.array(widths)[partition.group_of_row[self.rows]]

    @cached_property
    def _values(self) -> tuple[Heom, HeomCodes]:
        """Private values of the entries, and the distance between such values."""
        population = self.partition.population
        private = list(population.schema.private)
        numeric = [name for name in private if population.schema[name].kind == "numeric"]
        heom = Heom.fit(population.frame[private], numeric=numeric)
        return heom, heom.encode(population.rows(self.rows))


def _candidates(partition: Partition) -> Ints:
    """Return one row per distinct private part of every group, at most so many, in keyed order."""
    population = partition.population
    grouped = np.flatnonzero(partition.group_of_row >= 0)
    codes, group = population.codes[grouped], partition.group_of_row[grouped]
    private = [population.schema.features.index(name) for name in population.schema.private]
    line = in_order(codes, population.schema, group, population.keyed_numbers(grouped))
    keys = np.column_stack([group[line].astype(np.int64), codes[line][:, private]])
    first = np.sort(np.unique(keys, axis=0, return_index=True)[1])
    line = line[first]
    rank = np.arange(len(line)) - np.searchsorted(group[line], group[line])
    return grouped[line[rank < _ENTRIES]]


def _may_leave(partition: Partition, candidates: Ints, policy: PrivacyPolicy) -> Mask:
    """Say of each candidate whether the policy lets its private values leave with its group's region."""
    if policy.alpha is None or policy.on_homogeneous != "suppress":
        return np.ones(len(candidates), dtype=bool)
    population = partition.population
    judge = PrivateRelease(population, policy)
    codes, numbers = population.encode(population.rows(candidates))
    members = [partition.rows_mapped_to(partition.regions[group]) for group in partition.group_of_row[candidates]]
    decided = [judge.decide(c, n, rows) for c, n, rows in zip(codes, numbers, members, strict=True)]
    return np.array([parts is not None for parts in decided], dtype=bool)


def _consistent_members(partition: Partition, candidates: Ints, goal: Goal, model: RowOracle) -> Ints:
    """Count, for each candidate, the members of its group that get the desired outcome with its private values."""
    population = partition.population
    grouped = np.flatnonzero(partition.group_of_row >= 0)
    members = by_group(partition.group_of_row[grouped], grouped, len(partition.regions))
    # One row of each person in each group.
    first = np.concatenate([grouped[:0], *(rows[counts_once(population, rows) == 1] for rows in members)])
    of_group = np.column_stack([partition.group_of_row[first], population.cell_of(first)])
    pairs, people = np.unique(of_group, axis=0, return_counts=True)
    start = np.searchsorted(pairs[:, 0], np.arange(len(partition.regions) + 1))
    counts = np.zeros(len(candidates), dtype=np.int64)
    offered, judge = population.rows(candidates), goal.judge(None, model.labels(candidates))
    group = partition.group_of_row[candidates]
    size = start[group + 1] - start[group]
    for at in _equal_work(size):
        which = np.repeat(at, size[at])
        within = np.arange(len(which)) - np.repeat(np.cumsum(size[at]) - size[at], size[at])
        asked = start[group[which]] + within
        cells = pairs[asked, 1]
        good = population.cell_of(candidates[which]) == cells  # the row itself: already asked
        if len(other := np.flatnonzero(~good)):
            frame = rows_for_cells(population.encoder, offered, which[other], population.cells[cells[other]])
            good[other] = judge(model.ask(frame), which[other])
        np.add.at(counts, which, np.where(good, people[asked], 0))
    return counts


def _pureness(partition: Partition, candidates: Ints, goal: Goal, model: RowOracle) -> Floats:
    """Return the share of its group's region where each candidate has its outcome; the lower end, of a sample's."""
    population = partition.population
    group = partition.group_of_row[candidates].tolist()
    none = [0] * len(population.schema.quasi_identifiers)
    grids = {g: Grid.of(partition.regions[g], population, none) for g in {*group}}
    cells = {g: grid.sample(_SAMPLE, np.random.default_rng(0)) for g, grid in grids.items()}
    offered, judge = population.rows(candidates), goal.judge(None, model.labels(candidates))
    size = np.array([len(cells[g]) for g in group], dtype=np.int64)
    low = np.zeros(len(candidates))
    for at in _equal_work(size):
        which = np.repeat(at, size[at])
        asked = np.concatenate([cells[group[i]] for i in at.tolist()])
        good = judge(model.ask(rows_for_cells(population.encoder, offered, which, asked)), which)
        for i, hits in zip(at.tolist(), np.split(good, np.cumsum(size[at])[:-1]), strict=True):
            is_sample = len(hits) < grids[group[i]].size
            low[i] = clopper_pearson(int(hits.sum()), len(hits))[0] if is_sample else hits.mean()
    return low


def _equal_work(size: Ints) -> list[Ints]:
    """Divide candidates into runs that ask the model for about equally many rows."""
    if not len(size):
        return []
    return np.split(np.arange(len(size)), np.flatnonzero(np.diff((np.cumsum(size) - 1) // _ASKED)) + 1)
