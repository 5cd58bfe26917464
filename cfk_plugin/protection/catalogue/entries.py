"""The entries of a catalogue: private values tried with the region of a group, in the form that
would leave.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cfk_plugin.data.domain import UNKNOWN
from cfk_plugin.data.model import MOST_CELLS, Grid, TrainingLabels, rows_for_cells
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.rows import in_order
from cfk_plugin.errors import HostOnly
from cfk_plugin.metrics.intervals import clopper_pearson
from cfk_plugin.metrics.uniqueness import Coarse, PrivateRelease
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.catalogue.private_values import EncodedValues, private_at, private_codes
from cfk_plugin.protection.catalogue.shared_values import in_dtype, shared_candidates
from cfk_plugin.protection.catalogue.value_book import ValueBook, book_candidates, ranges_of_people
from cfk_plugin.protection.partition.microaggregation import counts_once
from cfk_plugin.protection.partition.partition import Partition, by_group

_log = logging.getLogger("cfk_plugin")
_ENTRIES = 64  # most combinations of private values that a group offers
# The same for shared private values, and times k: a crowd's center is tried in many groups, while
# a small group has few private values of its own.
_SHARED_ENTRIES = 24
_SHARED_ENTRIES_PER_K = 2
ASKED = 1 << 18  # rows in one call of the model
_SAMPLE = 45, 64  # least and most combinations at which an entry is tried, if not all
# of a sample: high, as many entries are tried and verification must not refuse any of them
_CONFIDENCE = 0.9999
_SPENT, _FLOOR = (
    10,
    10_000,
)  # rows that the model is asked about to find entries: per row of the table, but at least


@dataclass(frozen=True, eq=False, repr=False)
class Entries(HostOnly):
    """Private values that may go with the region of a group, one per entry."""

    # Shape (n,); a training row of the group, which has these values unless they are from elsewhere
    rows: Ints
    values: EncodedValues  # of n rows
    consistent: Ints  # shape (n,); members of the group that the model is consistent with
    pure: Floats  # shape (n,); share of the region, or of a sample of it, that has the outcome
    forms: list[Coarse]  # forms in which private values are released; empty if all are unchanged

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, at: Ints) -> Entries:
        """Return the entries at some positions, in their order."""
        return Entries(
            rows=self.rows[at],
            values=self.values.take(at),
            consistent=self.consistent[at],
            pure=self.pure[at],
            forms=[self.forms[i] for i in at if self.forms],
        )

    def joined(self, others: Entries) -> Entries:
        """Return these entries, then the others."""
        return Entries(
            rows=np.concatenate([self.rows, others.rows]),
            values=self.values.joined(others.values),
            consistent=np.concatenate([self.consistent, others.consistent]),
            pure=np.concatenate([self.pure, others.pure]),
            forms=self.forms + others.forms,
        )


def ends_of(
    partition: Partition,
    policy: PrivacyPolicy,
    forms: Iterable[Coarse],
    book: ValueBook | None = None,
) -> dict[str, pd.Series]:
    """Return further numbers that set the ranges of distances, by private attribute.

    These are the edges of bins that are released and, if private values are shared, where the
    attribute's numbers are expected to end (`scales_of`).
    """
    edges = dict[str, set[float]]()
    for form in forms:
        for name, (bin_, _) in form.items():
            if bin_ is not None:
                edges.setdefault(name, set()).update([bin_.low, bin_.high])
    ends = {name: pd.Series(sorted(numbers)) for name, numbers in edges.items()}
    if policy.private_values == "shared":
        domains = partition.population.domains
        known = ranges_of_people(partition, policy.k) if book is None else book.ends
        for name, both in known.items():
            ends[name] = in_dtype(domains[name], np.array(both))
    return ends


def find_entries(
    partition: Partition,
    policy: PrivacyPolicy,
    goal: DesiredOutcome,
    model: TrainingLabels,
    book: ValueBook | None = None,
) -> Entries:
    """Try private values with the region of every group; the model is asked in large batches.

    With a book, shared private values are the ones in it.
    """
    most = max(_SPENT * partition.population.n_rows, _FLOOR)
    rows_before = model.model.rows
    nothing = _Tried.of(partition, policy, most)
    found = nothing.offering(_candidates(partition, policy, book), most).admitted(goal, model)
    left = most - (model.model.rows - rows_before)
    others = nothing.offering(_elsewhere(partition, found), left).admitted(goal, model)
    found = found.joined(others)
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


def equal_work(size: Ints) -> list[Ints]:
    """Divide candidates into runs that ask the model about equally many rows."""
    if not len(size):
        return []
    return np.split(
        np.arange(len(size)), np.flatnonzero(np.diff((np.cumsum(size) - 1) // ASKED)) + 1
    )


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


def _candidates(partition: Partition, policy: PrivacyPolicy, book: ValueBook | None) -> _Candidates:
    """Return the first distinct private values to try in each group, group by group."""
    population = partition.population
    grouped = np.flatnonzero(partition.group_of_row >= 0)
    group = partition.group_of_row[grouped]
    keyed = population.keyed_numbers(grouped)
    rows = grouped[in_order(population.codes[grouped], population.schema, group, keyed)]
    group = partition.group_of_row[rows]
    if policy.private_values == "shared":
        if book is None:
            shared = shared_candidates(partition, policy.k)
        else:
            shared = book_candidates(partition, book)
        first_of_group = rows[np.searchsorted(group, shared.group)]
        candidates = _Candidates(rows=first_of_group, values=shared.values)
        n_most = min(_SHARED_ENTRIES, _SHARED_ENTRIES_PER_K * policy.k)
    else:
        values = EncodedValues.of_codes(private_codes(population, rows))
        candidates = _Candidates(rows, values).take(values.first_of_equal(group))
        n_most = _ENTRIES
    group = partition.group_of_row[candidates.rows]
    place_in_group = np.arange(len(group)) - np.searchsorted(group, group)
    return candidates.take(np.flatnonzero(place_in_group < n_most))


def _elsewhere(partition: Partition, found: Entries) -> _Candidates:
    """Return private values to try in the groups without an entry.

    These are the ones of entries with the same outcome, those first that hold most widely.
    """
    population = partition.population
    group = partition.group_of_row
    widest_first = np.lexsort((*found.values.sort_keys, -found.consistent, -found.pure))
    found = found.take(widest_first)
    side_of_entry = partition.side_of_group[group[found.rows]]
    without = np.flatnonzero(~np.isin(group, [-1, *group[found.rows]]))
    without = without[in_order(population.codes[without], population.schema, group[without])]
    first_rows = without[np.unique(group[without], return_index=True)[1]]
    nothing = np.empty(0, dtype=np.int64)
    rows = [nothing]
    entries = [nothing]
    for row in first_rows.tolist():
        same_side = np.flatnonzero(side_of_entry == partition.side_of_group[group[row]])
        distinct = same_side[found.values.take(same_side).first_of_equal()[:_ENTRIES]]
        rows.append(np.full(len(distinct), row))
        entries.append(distinct)
    return _Candidates(rows=np.concatenate(rows), values=found.values.take(np.concatenate(entries)))


@dataclass(frozen=True, eq=False, repr=False)
class _Tried(HostOnly):
    """Private values to try: at the members of a group, and at combinations of what would leave."""

    partition: Partition
    candidates: _Candidates
    forms: list[Coarse]  # of the candidates as they are released; empty if all are unchanged
    # For each candidate, the codes that each private attribute may stand for once it is released;
    # empty if all are released unchanged.
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
        no_values = EncodedValues.of_codes(private_codes(population, grouped[:0]))
        return cls(
            partition=partition,
            candidates=_Candidates(rows=grouped[:0], values=no_values),
            forms=[],
            axes=[],
            members=members,
            people=people,
            start=start,
            grids=grids,
            sample=sample,
            judge=PrivateRelease(population, policy),
            policy=policy,
        )

    @property
    def group(self) -> Ints:
        """The group of each candidate; shape (n_candidates,)."""
        return self.partition.group_of_row[self.candidates.rows]

    def offering(self, candidates: _Candidates, most: int) -> _Tried:
        """Take as many candidates as the model may be asked about, equally many of every group."""
        partition = self.partition
        judge = self.judge
        sizes = [self.sample] * len(self.grids)
        if judge.is_exact:
            sizes = [min(self.sample, grid.size) for grid in self.grids]
        cost = np.diff(self.start) + np.array(sizes, dtype=np.float64)
        group = partition.group_of_row[candidates.rows]
        candidates = candidates.take(_affordable(group, cost, most))
        if judge.is_exact:
            axes = [()] * len(candidates.rows)
            return replace(self, candidates=candidates, forms=[], axes=axes)
        forms = list[Coarse]()
        axes_of_forms = list[Sequence[Codes]]()
        codes, numbers = self._whole_rows(candidates)
        for i, group_i in enumerate(partition.group_of_row[candidates.rows].tolist()):
            members = partition.rows_mapped_to(partition.regions[group_i])
            form = judge.decide(codes[i], numbers[i], members)
            forms.append(form)
            axes_of_forms.append(_axes(judge, codes[i], numbers[i], form))
        return replace(self, candidates=candidates, forms=forms, axes=axes_of_forms)

    def _whole_rows(self, candidates: _Candidates) -> tuple[Codes, Floats]:
        """Return codes and numbers of the candidates' training rows with their private values.

        Both have the shape (n_candidates, n_features).
        """
        population = self.partition.population
        codes = population.codes[candidates.rows]
        numbers = np.full(codes.shape, np.nan)
        codes[:, private_at(population)] = candidates.values.codes
        numbers[:, private_at(population)] = candidates.values.numbers
        return codes, numbers

    def admitted(self, goal: DesiredOutcome, model: TrainingLabels) -> Entries:
        """Return the entries with which at least k members and enough of the region have the
        outcome.
        """
        consistent = self.consistent_members(goal, model)
        kept = np.flatnonzero(consistent >= self.policy.k)
        some = self.take(kept)
        share, low = some.pureness(goal, model)
        entries = Entries(
            rows=some.candidates.rows,
            values=some.candidates.values,
            consistent=consistent[kept],
            pure=share,
            forms=some.forms,
        )
        return entries.take(np.flatnonzero(low >= self.policy.least_pureness))

    def take(self, kept: Ints) -> _Tried:
        """Return the candidates at some positions, in their order."""
        return replace(
            self,
            candidates=self.candidates.take(kept),
            forms=[self.forms[i] for i in kept if self.forms],
            axes=[self.axes[i] for i in kept],
        )

    def consistent_members(self, goal: DesiredOutcome, model: TrainingLabels) -> Ints:
        """Count the members of each candidate's group that have the outcome with its values.

        Returns shape (n_candidates,).
        """
        population = self.partition.population
        rows = self.candidates.rows
        group = self.group
        size = np.diff(self.start)[group]
        counts = np.zeros(len(rows), dtype=np.int64)
        offered = self.candidates.values.frame(population)
        judge = goal.test_for(None, model.labels(rows))
        is_own = (private_codes(population, rows) == self.candidates.values.codes).all(axis=1)
        for at in equal_work(size):
            which = np.repeat(at, size[at])  # candidate of each member that is asked about
            within = np.arange(len(which)) - np.repeat(np.cumsum(size[at]) - size[at], size[at])
            asked = self.start[group[which]] + within
            cells = self.members[asked, 1]
            # The row itself was asked about before.
            good = is_own[which] & (population.cell_of(rows[which]) == cells)
            other = np.flatnonzero(~good)
            if len(other):
                frame = rows_for_cells(
                    population.encoder, offered, which[other], population.cells[cells[other]]
                )
                predictions = model.predictions(frame)
                good[other] = judge(predictions.labels, which[other]) & predictions.is_sure
            np.add.at(counts, which, np.where(good, self.people[asked], 0))
        return counts

    def pureness(self, goal: DesiredOutcome, model: TrainingLabels) -> tuple[Floats, Floats]:
        """Return the share of each candidate's region that has the outcome, and its lower bound.

        Both have the shape (n_candidates,). They are the same unless the region is sampled.
        """
        population = self.partition.population
        n_candidates = len(self.candidates.rows)
        judge = goal.test_for(None, model.labels(self.candidates.rows))
        offered = self.candidates.values.frame(population)
        sizes = [self._combinations(i).size for i in range(n_candidates)]
        share = np.zeros(n_candidates)
        low = np.zeros(n_candidates)
        for at in equal_work(np.minimum(sizes, self.sample).astype(np.int64)):
            drawn = [
                self._combinations(i).sample(self.sample, np.random.default_rng(0))
                for i in at.tolist()
            ]
            n_drawn = [len(cells) for cells in drawn]
            which = np.repeat(at, n_drawn)
            frame = rows_for_cells(population.encoder, offered, which, np.concatenate(drawn))
            predictions = model.predictions(frame)
            good = judge(predictions.labels, which) & predictions.is_sure
            for i, hits in zip(at.tolist(), np.split(good, np.cumsum(n_drawn)[:-1]), strict=True):
                share[i] = low[i] = hits.mean()
                if len(hits) < sizes[i]:
                    low[i], _ = clopper_pearson(int(hits.sum()), len(hits), _CONFIDENCE)
        return share, low

    def _combinations(self, i: int) -> Grid:
        """Return what a candidate stands for once it is released: values of every attribute."""
        return Grid((*self.grids[int(self.group[i])].codes, *self.axes[i]))


def _axes(judge: PrivateRelease, codes: Codes, numbers: Floats, form: Coarse) -> tuple[Codes, ...]:
    """Return the codes that each private attribute of a row may stand for in a form of release."""
    binned = [name for name, (part, _) in form.items() if part is not None]
    withheld = [name for name, (part, _) in form.items() if part is None]
    return judge.axes(codes, numbers, binned, withheld)


def _affordable(group: Ints, cost: Floats, most: int) -> Ints:
    """Return which candidates the model is asked about, in at most `most` rows, equally many of
    every group.
    """
    line = np.lexsort((group, np.arange(len(group)) - np.searchsorted(group, group)))
    return np.sort(line[np.cumsum(cost[group[line]]) <= most])
