"""The catalogue: what explanations are made of, fixed before the first query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.constraints import Offers
from cfk_plugin.data.intake import Intake
from cfk_plugin.data.model import Goal, Grid, Mask, RowOracle, rows_for_cells
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import Part, natural, part_of
from cfk_plugin.data.rows import in_order
from cfk_plugin.errors import HostOnly, PopulationError
from cfk_plugin.metrics.heom import Heom, HeomCodes
from cfk_plugin.metrics.information import ncp, ncp_by_attribute
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.metrics.uniqueness import Coarse, PrivateRelease
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.groups import counts_once
from cfk_plugin.protection.partition import Partition, by_group

_ENTRIES = 64  # private parts that a class offers at most
_ASKED = 1 << 18  # rows in one call of the model
_SAMPLE = 20, 64  # combinations of a region at which an entry is tried, at least and at most, where there are more
_SPENT = 10  # rows that the model is asked for to find entries, per row of the table
_WIDE = 10_000  # combinations of a region above which nothing is reverted: no sample shows that none is lost


@dataclass(frozen=True, eq=False, repr=False)
class Catalogue(HostOnly):
    """Regions with private values that at least k members of the group could have had, as far as the model tells.

    An entry is a training row: its group's region and its private values, admissible when the model gives the desired
    outcome for at least k members with their own quasi-identifiers and these values, and for enough of the region.
    What it is moved to is in `cfk_plugin.protection.answers`. It hides neither the private values, which are
    somebody's, nor who is in the population.
    """

    partition: Partition  # over the rows with a desired prediction
    rows: Ints  # training row of each entry, of least information loss first, whatever the table's order
    consistent: Ints  # per entry: members of its group that the model is consistent with
    pure: Floats  # per entry: share of its region with its outcome, if only of a sample
    goal: Goal
    model: RowOracle
    policy: PrivacyPolicy

    _refusal = PopulationError, "a Catalogue holds training rows and refuses to be pickled; rebuild it instead"

    @classmethod
    def build(cls, partition: Partition, policy: PrivacyPolicy, goal: Goal, model: RowOracle) -> Catalogue:
        """Find the admissible entries of every group; the model is asked in large batches."""
        rows = _SPENT * partition.population.n_rows
        tried = _Tried.of(partition, rows)
        candidates = tried.affordable(_candidates(partition), rows)
        consistent = tried.consistent_members(candidates, goal, model)
        kept = np.flatnonzero((consistent >= policy.k) & _may_leave(partition, candidates, policy))
        share, low = tried.pureness(candidates[kept], goal, model)
        kept, share = kept[low >= policy.least_pureness], share[low >= policy.least_pureness]
        losses = np.array([ncp(region, partition.population) for region in partition.regions])
        line = np.argsort(np.round(losses[partition.group_of_row[candidates[kept]]], 12), kind="stable")
        order, share = kept[line], share[line]
        return cls(partition, candidates[order], consistent[order], share, goal, model, policy)

    def __len__(self) -> int:
        return len(self.rows)

    def _counts(self) -> str:
        return f"{len(self)} entries, {len(self.partition.regions)} groups"

    def own(self, codes: Codes, groups: Ints) -> Ints:
        """Return the entry that a counterfactual is itself; -1 where it is none.

        It is one when its group offers its private values. Released as that entry, rerunning the release for any other
        member of the group, with the private values received, comes out the same.
        """
        wanted = np.column_stack([groups, codes[:, self._private_at]])
        return np.array([self._offered.get(key.tobytes(), -1) for key in wanted], dtype=np.int64)

    def is_desired(
        self, rows: pd.DataFrame, entry: Ints, which: Ints | None = None, cells: Codes | None = None
    ) -> Mask:
        """Say whether rows have the outcome of their entries: as they are, or row ``which[i]`` at ``cells[i]``."""
        judge, encoder = self.goal.judge(None, self._labels), self.partition.population.encoder
        which = np.arange(len(rows)) if which is None else which
        said = [np.empty(0, dtype=bool)]
        for start in range(0, len(which), _ASKED):
            some = which[start : start + _ASKED]
            here = None if cells is None else cells[start : start + _ASKED]
            frame = rows.take(some) if here is None else rows_for_cells(encoder, rows, some, here)
            said.append(judge(self.model.ask(frame), entry[some]))
        return np.concatenate(said)

    def holds(self, rows: pd.DataFrame, entry: Ints) -> Mask:
        """Say of rows whether their private values may go with the region of an entry: of its group, all that is asked.

        That is the outcome at every combination of the region at which the group's weakest entry has it. Of regions
        with too many combinations to ask for all of them, none may: no sample shows that none is lost.
        """
        groups = self.group_at[entry]
        cells, kept = [self._must_hold(group) for group in groups.tolist()], ~self.is_wide(entry)
        which = np.repeat(np.arange(len(rows)), [len(each) for each in cells])
        if len(which):
            kept[which[~self.is_desired(rows, self.weakest[groups], which, np.concatenate(cells))]] = False
        return kept

    def offers(self, private: Mapping[str, Any], group: int) -> bool:
        """Say whether an answer with a group's region may have been moved to these private values."""
        entry = self.weakest_of(np.array([group]))
        return bool(
            entry[0] >= 0 and self.holds(self.partition.population.rows(self.rows[entry]).assign(**private), entry)[0]
        )

    def weakest_of(self, groups: Ints) -> Ints:
        """Return the weakest entry of some groups of the partition; -1 where a group has none."""
        at = np.minimum(np.searchsorted(self._groups, groups), len(self._groups) - 1)
        return np.where(self._groups[at] == groups, self.weakest[at], -1)

    def is_movable(self, entry: Ints) -> Mask:
        """Say of entries whether what a group's answers have to keep is known to be kept from there on."""
        return np.asarray(self.weakest[self.group_at[entry]] == entry) & ~self.is_wide(entry)

    def is_wide(self, entry: Ints) -> Mask:
        """Say of entries whether their regions have too many combinations to ask for all of them."""
        return np.asarray(self._sizes[self.group_at[entry]] > _WIDE)

    def _must_hold(self, group: int) -> Codes:
        """Return the combinations of a region at which its group's weakest entry has its outcome; found out once."""
        if group not in self._known:
            population, entry = self.partition.population, self.weakest[[group]]
            cells = population.cells[:0] if self._sizes[group] > _WIDE else self._grid(group).all()
            which = np.zeros(len(cells), dtype=np.int64)
            self._known[group] = cells[self.is_desired(population.rows(self.rows[entry]), entry, which, cells)]
        return self._known[group]

    def _grid(self, group: int) -> Grid:
        region, population = self.partition.regions[self._groups[group]], self.partition.population
        return Grid.of(region, population, [0] * len(population.schema.quasi_identifiers))

    def distances(self, queries: Intake, at: Ints, open_to: Mask) -> tuple[Floats, Floats]:
        """Return the distances of some queries to the groups that have entries, and to the entries' private values.

        A region is as far away as its nearest point and half of its width; where it does not answer, infinitely.
        """
        heom, entries = self.private_values
        groups = self._groups
        codes, numbers = queries.quasi_identifiers
        regions = self.partition.distance.between(codes[at], numbers[at], groups) + self._widths
        regions[~open_to[at][:, self.partition.side_of_group[groups]]] = np.inf
        if not self._private_at:
            return regions, np.zeros((len(at), len(self)))
        return regions, heom.distances(queries.frame.take(at), entries) * len(self._private_at)

    def offered(self, name: str) -> Offers:
        """Return what entries say of a private attribute, and the groups that have some of a quasi-identifier."""
        if name not in self._offers:
            population = self.partition.population
            if name in population.schema.quasi_identifiers:
                parts: list[Part | None] = [self.partition.regions[group][name] for group in self._groups.tolist()]
            else:
                values = map(natural, population.rows(self.rows)[name])
                parts = [c[name][0] if name in c else part_of(v) for c, v in zip(self._forms, values, strict=True)]
            self._offers[name] = Offers.build(population.domains[name], parts)
        return self._offers[name]

    @cached_property
    def _offers(self) -> dict[str, Offers]:
        return {}

    @cached_property
    def _forms(self) -> list[Coarse]:
        """What each entry's private values leave as, where not as they are: what is withheld must not choose."""
        decided = _decided(self.partition, self.rows, self.policy)
        return [{} if each is None else each for each in decided]

    @cached_property
    def _private_at(self) -> list[int]:
        schema = self.partition.population.schema
        return [schema.features.index(name) for name in schema.private]

    @cached_property
    def _labels(self) -> NDArray[Any]:
        return self.model.labels(self.rows)

    @cached_property
    def _known(self) -> dict[int, Codes]:
        return {}

    @cached_property
    def _sizes(self) -> Floats:
        """How many combinations the region of each group has."""
        return np.array([self._grid(group).size for group in range(len(self._groups))], dtype=np.float64)

    @cached_property
    def _offered(self) -> dict[bytes, int]:
        """Group and private codes of every entry, to its number."""
        codes = self.partition.population.codes[self.rows][:, self._private_at]
        keys = np.column_stack([self.partition.group_of_row[self.rows], codes])
        return {key.tobytes(): entry for entry, key in enumerate(keys)}

    @cached_property
    def _groups(self) -> Ints:
        """The groups that have entries."""
        return np.unique(self.partition.group_of_row[self.rows])

    @cached_property
    def group_at(self) -> Ints:
        """Which of these groups each entry belongs to."""
        return np.searchsorted(self._groups, self.partition.group_of_row[self.rows])

    @cached_property
    def _widths(self) -> Floats:
        partition = self.partition
        widths = [sum(ncp_by_attribute(region, partition.population).values()) for region in partition.regions]
        return np.array(widths)[self._groups] / 2

    @cached_property
    def weakest(self) -> Ints:
        """The entry of each group that asks for the fewest combinations of its region; of equals the first."""
        line = np.lexsort((self.pure, self.group_at))
        return line[np.unique(self.group_at[line], return_index=True)[1]]

    @cached_property
    def distinct(self) -> Ints:
        """Entries that have all private values of the catalogue, each once."""
        codes = self.partition.population.codes[self.rows][:, self._private_at]
        return np.sort(np.unique(codes, axis=0, return_index=True)[1])

    @cached_property
    def private_values(self) -> tuple[Heom, HeomCodes]:
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
    return np.array([parts is not None for parts in _decided(partition, candidates, policy)], dtype=bool)


def _decided(partition: Partition, rows: Ints, policy: PrivacyPolicy) -> list[Coarse | None]:
    """Return in which form private values of training rows leave with their groups' regions; None for not at all."""
    population, judge = partition.population, PrivateRelease(partition.population, policy)
    if judge.is_exact:
        return [{}] * len(rows)
    codes, numbers = population.encode(population.rows(rows))
    members = [partition.rows_mapped_to(partition.regions[group]) for group in partition.group_of_row[rows]]
    return [judge.decide(c, n, alike) for c, n, alike in zip(codes, numbers, members, strict=True)]


@dataclass(frozen=True, eq=False, repr=False)
class _Tried(HostOnly):
    """Where the candidates of each group are tried: at its members, and at combinations of its region."""

    partition: Partition
    members: Ints  # shape (n, 2): group and cell, group by group
    people: Ints  # how many are there
    start: Ints  # of each group in these, and the end of the last
    grids: list[Grid]
    drawn: list[Codes]  # combinations of each group's region

    @classmethod
    def of(cls, partition: Partition, rows: int) -> _Tried:
        """Draw as many combinations as let every group have two candidates, if the model is asked for so many rows."""
        population, n_groups = partition.population, len(partition.regions)
        grouped = np.flatnonzero(partition.group_of_row >= 0)
        of_each = by_group(partition.group_of_row[grouped], grouped, n_groups)
        # One row of each person in each group.
        first = np.concatenate([grouped[:0], *(some[counts_once(population, some) == 1] for some in of_each)])
        of_group = np.column_stack([partition.group_of_row[first], population.cell_of(first)])
        members, people = np.unique(of_group, axis=0, return_counts=True)
        start = np.searchsorted(members[:, 0], np.arange(n_groups + 1))
        none = [0] * len(population.schema.quasi_identifiers)
        grids = [Grid.of(region, population, none) for region in partition.regions]
        sample = int(np.clip((rows / 2 - len(members)) // max(n_groups, 1), *_SAMPLE))
        drawn = [grid.sample(sample, np.random.default_rng(0)) for grid in grids]
        return cls(partition, members, people, start, grids, drawn)

    def affordable(self, candidates: Ints, rows: int) -> Ints:
        """Return the candidates for which the model is asked for so many rows at most, of every group alike many."""
        group = self.partition.group_of_row[candidates]
        line = np.lexsort((group, np.arange(len(group)) - np.searchsorted(group, group)))
        cost = np.diff(self.start) + [len(cells) for cells in self.drawn]
        return candidates[np.sort(line[np.cumsum(cost[group[line]]) <= rows])]

    def consistent_members(self, candidates: Ints, goal: Goal, model: RowOracle) -> Ints:
        """Count, for each candidate, the members of its group that have the outcome with its private values."""
        population, group = self.partition.population, self.partition.group_of_row[candidates]
        counts, size = np.zeros(len(candidates), dtype=np.int64), np.diff(self.start)[group]
        offered, judge = population.rows(candidates), goal.judge(None, model.labels(candidates))
        for at in _equal_work(size):
            which = np.repeat(at, size[at])
            within = np.arange(len(which)) - np.repeat(np.cumsum(size[at]) - size[at], size[at])
            asked = self.start[group[which]] + within
            cells = self.members[asked, 1]
            good = population.cell_of(candidates[which]) == cells  # the row itself: already asked
            if len(other := np.flatnonzero(~good)):
                frame = rows_for_cells(population.encoder, offered, which[other], population.cells[cells[other]])
                good[other] = judge(model.ask(frame), which[other])
            np.add.at(counts, which, np.where(good, self.people[asked], 0))
        return counts

    def pureness(self, candidates: Ints, goal: Goal, model: RowOracle) -> tuple[Floats, Floats]:
        """Return the share of the region where each candidate has its outcome, and its lower end if of a sample."""
        population, group = self.partition.population, self.partition.group_of_row[candidates].tolist()
        offered, judge = population.rows(candidates), goal.judge(None, model.labels(candidates))
        size = np.array([len(self.drawn[g]) for g in group], dtype=np.int64)
        share, low = np.zeros(len(candidates)), np.zeros(len(candidates))
        for at in _equal_work(size):
            which = np.repeat(at, size[at])
            asked = np.concatenate([self.drawn[group[i]] for i in at.tolist()])
            good = judge(model.ask(rows_for_cells(population.encoder, offered, which, asked)), which)
            for i, hits in zip(at.tolist(), np.split(good, np.cumsum(size[at])[:-1]), strict=True):
                share[i] = low[i] = hits.mean()
                if len(hits) < self.grids[group[i]].size:
                    low[i], _ = clopper_pearson(int(hits.sum()), len(hits))
        return share, low


def _equal_work(size: Ints) -> list[Ints]:
    """Divide candidates into runs that ask the model for about equally many rows."""
    if not len(size):
        return []
    return np.split(np.arange(len(size)), np.flatnonzero(np.diff((np.cumsum(size) - 1) // _ASKED)) + 1)
