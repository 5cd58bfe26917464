"""The entries of a catalogue: private values tried with the region of a group, in the form that
would leave.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from cfk_plugin.data.domain import UNKNOWN, mix
from cfk_plugin.data.intake import table_of
from cfk_plugin.data.model import MOST_CELLS, Goal, Grid, RowOracle, rows_for_cells
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
_ENTRIES = 64  # most combinations of private values that a group offers
ASKED = 1 << 18  # rows in one call of the model
_SAMPLE = 45, 64  # least and most combinations at which an entry is tried, if not all
# of a sample: high, as many entries are tried and verification must not refuse any of them
_CONFIDENCE = 0.9999
# rows that the model is asked about to find entries: per row of the table, but at least
_SPENT, _FLOOR = 10, 10_000
# For shared private values: ranges that a number is divided into, about the most crowds whose
# center is taken, and attributes in which another value is tried if a few people have the one in
# the middle.
_CLASSES, _CENTERS, _VARIED = 32, 4096, 3
_GOLDEN, _SPREAD = 2654435769, 1640531527  # odd; multiples of the first are far apart modulo 2**32


class Entries(NamedTuple):
    """Private values that may go with the region of a group."""

    # a training row of the group, with these private values unless they come from elsewhere
    rows: Ints
    codes: Codes  # of the private values
    consistent: Ints  # members of the group that the model is consistent with
    pure: Floats  # share of what leaves, or of a sample of it, that has the outcome
    forms: list[Coarse]  # forms of the private values that leave; empty if all leave unchanged

    def take(self, at: Ints) -> Entries:
        forms = [self.forms[i] for i in at if self.forms]
        return Entries(self.rows[at], self.codes[at], self.consistent[at], self.pure[at], forms)

    def joined(self, others: Entries) -> Entries:
        rows, codes = (
            np.concatenate([self.rows, others.rows]),
            np.concatenate([self.codes, others.codes]),
        )
        consistent = np.concatenate([self.consistent, others.consistent])
        pure = np.concatenate([self.pure, others.pure])
        return Entries(rows, codes, consistent, pure, self.forms + others.forms)


def ends_of(
    partition: Partition, policy: PrivacyPolicy, forms: Iterable[Coarse]
) -> dict[str, pd.Series]:
    """Return edges of bins that leave and, if entries are centers, each attribute's k-th lowest and
    highest number.
    """
    population, k = partition.population, policy.k
    grouped = np.flatnonzero(partition.group_of_row >= 0)
    rows, found = grouped[counts_once(population, grouped) == 1], dict[str, pd.Series]()
    edges = {
        (name, edge)
        for form in forms
        for name, (bin_, _) in form.items()
        if bin_
        for edge in (bin_.low, bin_.high)
    }
    for name in {name for name, _ in edges}:
        found[name] = pd.Series(sorted(edge for of, edge in edges if of == name))
    for name, at in zip(population.schema.private, private_at(population), strict=True):
        domain = population.domains[name]
        known = np.sort(population.codes[rows, at][population.codes[rows, at] < len(domain.values)])
        if policy.private_values == "shared" and domain.is_numeric and len(known) >= k:
            found[name] = pd.Series(domain.restore_array(known[[k - 1, -k]]))
    return found


def find_entries(
    partition: Partition, policy: PrivacyPolicy, goal: Goal, model: RowOracle
) -> Entries:
    """Try private values with the region of every group; the model is asked in large batches."""
    spent, before = max(_SPENT * partition.population.n_rows, _FLOOR), model.model.rows
    nothing = _Tried.of(partition, policy, spent)
    found = nothing.offering(*_candidates(partition, policy), spent).admitted(goal, model)
    left = spent - (model.model.rows - before)
    found = found.joined(
        nothing.offering(*_elsewhere(partition, found), left).admitted(goal, model)
    )
    _tell_of_groups_without(partition, found.rows)
    return found


def sets_inside(partition: Partition, groups: Ints, k: int) -> dict[int, list[Grid]]:
    """Return, for groups whose regions are too large to ask about, the values of people inside,
    attribute by attribute.

    These are the members and, as they must not be recognized, everybody who is inside and in no
    group, each in one of the regions, where the fewest are. So sets have nobody in common. Which
    values go together is not told: there is one set, or several if it had too many combinations;
    none if more than one in k of a set's were somebody's, or if everybody is in a group.
    """
    population, found = partition.population, dict[int, list[Grid]]()
    cells, regions, none = population.cells, partition.regions, [0] * population.cells.shape[1]
    large = [g for g in groups.tolist() if Grid.of(regions[g], population, none).size > MOST_CELLS]
    if not large or len(np.unique(partition.side_of_group)) > 1:
        return found
    codes = np.full((len(cells), len(population.schema.features)), UNKNOWN)
    codes[:, population.schema.quasi_positions] = cells
    line = np.argsort(population.keyed_order(codes, np.zeros(codes.shape)), kind="stable")
    grouped, place = np.flatnonzero(partition.group_of_row >= 0), np.argsort(line)
    of_group = by_group(
        partition.group_of_row[grouped], place[population.cell_of(grouped)], len(regions)
    )
    others: dict[int, list[int]] = {group: [] for group in large}
    is_free, open_to = (
        ~np.isin(np.arange(len(cells)), np.concatenate(of_group)),
        dict[int, list[int]](),
    )
    for group in large:
        for at in np.flatnonzero(population.cells_inside(regions[group])[line] & is_free).tolist():
            open_to.setdefault(at, []).append(group)
    for at in sorted(open_to):
        others[min(open_to[at], key=lambda group: len(others[group]))].append(at)
    for group in large:
        inside, sets, parts = (
            cells[line[np.unique([*of_group[group], *others[group]])]],
            list[Grid](),
            1,
        )
        while len(inside) * k <= MOST_CELLS and (
            not sets or sum(each.size for each in sets) > MOST_CELLS
        ):
            some = np.array_split(inside, parts)
            sets, parts = [Grid(tuple(map(np.unique, each.T))) for each in some], 2 * parts
        if sets and all(len(each) * k <= grid.size for each, grid in zip(some, sets, strict=True)):
            found[group] = sets
    return found


def values_of(population: Population, codes: Codes) -> pd.DataFrame:
    named = enumerate(population.schema.private)
    values = {name: population.domains[name].restore_array(codes[:, j]) for j, name in named}
    return table_of(values).reindex(range(len(codes)))


def private_at(population: Population) -> list[int]:
    return [population.schema.features.index(name) for name in population.schema.private]


def equal_work(size: Ints) -> list[Ints]:
    """Divide candidates into runs that ask the model about equally many rows."""
    if not len(size):
        return []
    return np.split(
        np.arange(len(size)), np.flatnonzero(np.diff((np.cumsum(size) - 1) // ASKED)) + 1
    )


def _tell_of_groups_without(partition: Partition, entries: Ints) -> None:
    grouped, groups = np.flatnonzero(partition.group_of_row >= 0), partition.group_of_row
    if len(without := grouped[~np.isin(groups[grouped], groups[entries])]):
        _log.warning(
            "%d of %d people who could be a counterfactual are in groups without an entry: with all"
            " private values that were tried the model refuses too much of the region. Answers come"
            " from the other groups",
            *map(partition.population.people, (without, grouped)),
        )


def _candidates(partition: Partition, policy: PrivacyPolicy) -> tuple[Ints, Codes]:
    """Return distinct private values of every group, up to `_ENTRIES`, each with a training row of
    the group.
    """
    population = partition.population
    grouped = np.flatnonzero(partition.group_of_row >= 0)
    codes, group = population.codes[grouped], partition.group_of_row[grouped]
    line = in_order(codes, population.schema, group, population.keyed_numbers(grouped))
    if policy.private_values == "shared":
        group, part, parts = _shared(partition, policy.k)
        rows = grouped[line[np.searchsorted(partition.group_of_row[grouped[line]], group)]]
        private = parts[part]
    else:
        rows, group = grouped[line], group[line]
        private = population.codes[rows][:, private_at(population)]
        first = np.sort(np.unique(np.column_stack([group, private]), axis=0, return_index=True)[1])
        rows, group, private = rows[first], group[first], private[first]
    kept = np.arange(len(group)) - np.searchsorted(group, group) < _ENTRIES
    return rows[kept], private[kept]


def _elsewhere(partition: Partition, found: Entries) -> tuple[Ints, Codes]:
    """Return, for groups without an entry, the private values with their outcome that hold most
    widely elsewhere.
    """
    population, group, side = partition.population, partition.group_of_row, partition.side_of_group
    line = np.lexsort((*found.codes.T[::-1], -found.consistent, -found.pure))
    codes, sides = found.codes[line], side[group[found.rows[line]]]
    without = np.flatnonzero(~np.isin(group, [-1, *group[found.rows]]))
    without = without[in_order(population.codes[without], population.schema, group[without])]
    without = without[np.unique(group[without], return_index=True)[1]]
    rows, private = [without[:0]], [codes[:0]]
    for row in without.tolist():
        mine = codes[sides == side[group[row]]]
        private.append(mine[np.sort(np.unique(mine, axis=0, return_index=True)[1])[:_ENTRIES]])
        rows.append(np.full(len(private[-1]), row))
    return np.concatenate(rows), np.concatenate(private)


def _shared(partition: Partition, k: int) -> tuple[Ints, Ints, Codes]:
    """Return shared private values (of k people or nobody, centers of k similar people), and groups
    to try them in.
    """
    population, known, book = partition.population, _Held(partition.population), dict[bytes, int]()
    pairs, grouped = [np.empty((0, 2), dtype=np.int64)], np.flatnonzero(partition.group_of_row >= 0)
    side = partition.side_of_group[partition.group_of_row[grouped]]
    for one in np.unique(side):
        rows = grouped[side == one]
        rows = rows[counts_once(population, rows) == 1]
        crowds, taken = known.alike(rows, k), 0
        while crowds and taken < _CENTERS:
            parts: list[Ints] = []
            for crowd in crowds:
                center, halves = known.center(crowd, k)
                parts += halves
                if center is not None:
                    groups = np.unique(partition.group_of_row[crowd])
                    pairs.append(
                        np.column_stack(
                            [
                                groups,
                                np.full(len(groups), book.setdefault(center.tobytes(), len(book))),
                            ]
                        )
                    )
            taken, crowds = taken + len(crowds), parts
    group, part = np.unique(np.concatenate(pairs), axis=0).T
    # each group starts with different ones
    turn = np.lexsort(((part * _GOLDEN + group * _SPREAD) % (1 << 32), group))
    parts_of = np.frombuffer(b"".join(book), dtype=np.int32).reshape(len(book), -1)
    return group[turn], part[turn], parts_of


class _Held(HostOnly):
    """Private values of people: the center of some, and how many have exactly that."""

    def __init__(self, population: Population) -> None:
        self._population, self._codes = population, population.codes[:, private_at(population)]
        named = sorted((name, j) for j, name in enumerate(population.schema.private))
        # independent of the order of columns
        self._domains = {j: population.domains[name] for name, j in named}
        # missing values are 1 away from every number
        self._place = {j: np.append(domain.positions, 2.0) for j, domain in self._domains.items()}
        mixed = mix(self._codes)
        self._line = np.argsort(mixed, kind="stable")
        self._mixed = mixed[self._line]

    def alike(self, rows: Ints, k: int) -> list[Ints]:
        """Return the rows, and subsets alike in one attribute: at least k with one category, or
        near numbers.
        """
        found = [rows]
        for j, domain in self._domains.items():
            line = rows[np.argsort(self._codes[rows, j], kind="stable")]
            codes, start = self._codes[line, j], 0
            while start < len(line):
                least = max(k, len(line) // _CLASSES) if domain.is_interval else 1
                end = int(
                    np.searchsorted(codes, codes[min(start + least, len(line)) - 1], side="right")
                )
                found += [line[start:end]] if end - start >= k else []
                start = end
        return found

    def center(self, rows: Ints, k: int) -> tuple[Codes | None, list[Ints]]:
        """Return the center of people, if k of them have it or nobody does, and their halves of at
        least k people.
        """
        codes = self._codes[rows]
        middle = np.array(
            [self._middle(j, codes[:, j]) for j in range(codes.shape[1])], dtype=np.int32
        )
        away = {j: float(self._distance(j, codes[:, j], middle[j]).mean()) for j in self._domains}
        widest = [j for j in sorted(away, key=lambda j: -away[j]) if away[j] > 0]
        trials = [middle]
        for j in widest[:_VARIED]:
            for other in self._others(j, codes[:, j], middle[j]):
                trials.append(middle.copy())
                trials[-1][j] = other
        center = next((each for each in trials if self._people(each) not in range(1, k)), None)
        for j in widest:
            is_low = (
                codes[:, j] <= middle[j]
                if self._domains[j].is_interval
                else codes[:, j] == middle[j]
            )
            is_low = codes[:, j] < middle[j] if is_low.all() else is_low
            if min(is_low.sum(), (~is_low).sum()) >= k:
                return center, [rows[is_low], rows[~is_low]]
        return center, []

    def _middle(self, j: int, codes: Codes, share: float = 0.5) -> int:
        """Return the median or another quantile, or the most frequent category."""
        if not self._domains[j].is_interval:
            return int(np.bincount(codes).argmax())
        at = int((len(codes) - 1) * share)
        return int(np.partition(codes, at)[at])

    def _others(self, j: int, codes: Codes, middle: int) -> list[int]:
        if self._domains[j].is_interval:
            return [self._middle(j, codes, share) for share in (0.25, 0.75)]
        return [self._middle(j, codes[codes != middle])]

    def _distance(self, j: int, codes: Codes, middle: int) -> Floats:
        if self._domains[j].is_interval:
            return np.asarray(np.abs(self._place[j][codes] - self._place[j][middle]))
        return np.asarray(codes != middle, dtype=np.float64)

    def _people(self, codes: Codes) -> int:
        """Return how many people have exactly these private values."""
        first, last = (
            np.searchsorted(self._mixed, mix(codes[None]), side)[0] for side in ("left", "right")
        )
        rows = self._line[first:last]
        return self._population.people(rows[(self._codes[rows] == codes).all(axis=1)])


@dataclass(frozen=True, eq=False, repr=False)
class _Tried(HostOnly):
    """Private values to try: at the members of a group, and at combinations of what would leave."""

    partition: Partition
    rows: Ints  # a training row of the group of each
    codes: Codes  # of the private values
    forms: list[Coarse]  # that they leave in; empty if all leave unchanged
    # codes that each private attribute leaves as; empty if all leave unchanged
    axes: Sequence[Sequence[Codes]]
    members: Ints  # shape (n, 2): group and cell, group by group
    people: Ints  # number of people there
    start: Ints  # of each group among the members, and the end of the last
    grids: Sequence[Grid]  # of each group's region
    sample: int
    judge: PrivateRelease
    policy: PrivacyPolicy

    @classmethod
    def of(cls, partition: Partition, policy: PrivacyPolicy, spent: int) -> _Tried:
        """Prepare every group before anything is tried."""
        population, n_groups = partition.population, len(partition.regions)
        grouped = np.flatnonzero(partition.group_of_row >= 0)
        of_each = by_group(partition.group_of_row[grouped], grouped, n_groups)
        # One row of each person in each group.
        first = np.concatenate(
            [grouped[:0], *(some[counts_once(population, some) == 1] for some in of_each)]
        )
        of_group = np.column_stack([partition.group_of_row[first], population.cell_of(first)])
        members, people = np.unique(of_group, axis=0, return_counts=True)
        start = np.searchsorted(members[:, 0], np.arange(n_groups + 1))
        grids = [Grid.of(region, population, [0] * len(population.schema.quasi_identifiers))
                 for region in partition.regions]  # fmt: skip
        sample = int(np.clip((spent / 2 - len(members)) // max(n_groups, 1), *_SAMPLE))
        nothing = (
            grouped[:0],
            population.codes[:0, private_at(population)],
            list[Coarse](),
            list[Sequence[Codes]](),
        )
        judge = PrivateRelease(population, policy)
        return cls(partition, *nothing, members, people, start, grids, sample, judge, policy)

    def offering(self, rows: Ints, codes: Codes, most: int) -> _Tried:
        """Take as many candidates as the model may be asked about, equally many of every group."""
        partition, judge, population = self.partition, self.judge, self.partition.population
        drawn = [
            min(self.sample, grid.size) if judge.is_exact else self.sample for grid in self.grids
        ]
        cost = np.diff(self.start) + np.array(drawn, dtype=np.float64)
        at = _affordable(partition.group_of_row[rows], cost, most)
        rows, codes = rows[at], codes[at]
        if judge.is_exact:
            return replace(self, rows=rows, codes=codes, axes=[()] * len(rows))
        every, nowhere = population.codes[rows], np.full(population.codes.shape[1], np.nan)
        every[:, private_at(population)] = codes
        alike = [
            partition.rows_mapped_to(partition.regions[group])
            for group in partition.group_of_row[rows]
        ]
        decided = [
            judge.decide(each, nowhere, members) for each, members in zip(every, alike, strict=True)
        ]
        kept = np.array([i for i, form in enumerate(decided) if form is not None], dtype=np.int64)
        forms = [form for form in decided if form is not None]
        axes = [_axes(judge, each, form) for each, form in zip(every[kept], forms, strict=True)]
        return replace(self, rows=rows[kept], codes=codes[kept], forms=forms, axes=axes)

    def admitted(self, goal: Goal, model: RowOracle) -> Entries:
        """Return the entries with which at least k members and enough of the region have the
        outcome.
        """
        consistent = self.consistent_members(goal, model)
        kept = np.flatnonzero(consistent >= self.policy.k)
        some = self.take(kept)
        share, low = some.pureness(goal, model)
        found = Entries(some.rows, some.codes, consistent[kept], share, some.forms)
        return found.take(np.flatnonzero(low >= self.policy.least_pureness))

    def take(self, kept: Ints) -> _Tried:
        axes, forms = [self.axes[i] for i in kept], [self.forms[i] for i in kept if self.forms]
        return replace(self, rows=self.rows[kept], codes=self.codes[kept], axes=axes, forms=forms)

    def consistent_members(self, goal: Goal, model: RowOracle) -> Ints:
        """Count, for each, the members of its group that have the outcome with its private
        values.
        """
        population, group = self.partition.population, self.partition.group_of_row[self.rows]
        counts, size = np.zeros(len(self.rows), dtype=np.int64), np.diff(self.start)[group]
        offered, judge = (
            values_of(population, self.codes),
            goal.judge(None, model.labels(self.rows)),
        )
        is_own = (population.codes[self.rows][:, private_at(population)] == self.codes).all(axis=1)
        for at in equal_work(size):
            which = np.repeat(at, size[at])
            within = np.arange(len(which)) - np.repeat(np.cumsum(size[at]) - size[at], size[at])
            asked = self.start[group[which]] + within
            cells = self.members[asked, 1]
            # the row itself was already asked
            good = is_own[which] & (population.cell_of(self.rows[which]) == cells)
            if len(other := np.flatnonzero(~good)):
                frame = rows_for_cells(
                    population.encoder, offered, which[other], population.cells[cells[other]]
                )
                good[other] = judge(model.ask(frame), which[other])
            np.add.at(counts, which, np.where(good, self.people[asked], 0))
        return counts

    def pureness(self, goal: Goal, model: RowOracle) -> tuple[Floats, Floats]:
        """Return the share of what would leave that has the outcome, and its lower bound if
        sampled.
        """
        population, judge = self.partition.population, goal.judge(None, model.labels(self.rows))
        offered = values_of(population, self.codes)
        sizes = [self._tried(i).size for i in range(len(self.rows))]
        share, low = np.zeros(len(sizes)), np.zeros(len(sizes))
        for at in equal_work(np.minimum(sizes, self.sample).astype(np.int64)):
            drawn = [
                self._tried(i).sample(self.sample, np.random.default_rng(0)) for i in at.tolist()
            ]
            which = np.repeat(at, [*map(len, drawn)])
            frame = rows_for_cells(population.encoder, offered, which, np.concatenate(drawn))
            good = judge(model.ask(frame), which)
            for i, hits in zip(
                at.tolist(), np.split(good, np.cumsum([*map(len, drawn)])[:-1]), strict=True
            ):
                share[i] = low[i] = hits.mean()
                if len(hits) < sizes[i]:
                    low[i], _ = clopper_pearson(int(hits.sum()), len(hits), _CONFIDENCE)
        return share, low

    def _tried(self, i: int) -> Grid:
        return Grid(
            (*self.grids[int(self.partition.group_of_row[self.rows[i]])].codes, *self.axes[i])
        )


def _axes(judge: PrivateRelease, codes: Codes, form: Coarse) -> tuple[Codes, ...]:
    binned = [name for name, (part, _) in form.items() if part is not None]
    return judge.axes(
        codes, np.full(len(codes), np.nan), binned, [name for name in form if name not in binned]
    )


def _affordable(group: Ints, cost: Floats, most: int) -> Ints:
    """Return which candidates the model is asked about, in at most `most` rows, equally many of
    every group.
    """
    line = np.lexsort((group, np.arange(len(group)) - np.searchsorted(group, group)))
    return np.sort(line[np.cumsum(cost[group[line]]) <= most])
