"""The catalogue: the entries that explanations are made of, fixed before the first query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.constraints import DistinctParts
from cfk_plugin.data.domain import INVALID, UNKNOWN, Domain, bin_of
from cfk_plugin.data.encoded_table import EncodedTable, table_of
from cfk_plugin.data.margin import SEALED, sealed_requirement
from cfk_plugin.data.model import (
    MOST_CELLS,
    OUTCOMES,
    SAMPLED,
    Goal,
    Grid,
    Judge,
    TrainingLabels,
    rows_for_cells,
)
from cfk_plugin.data.policy import Mask, PrivacyPolicy
from cfk_plugin.data.population import Population
from cfk_plugin.data.predictions import Predictions
from cfk_plugin.data.region import Part, natural, part_of
from cfk_plugin.errors import HostOnly, ModelError, PolicyError, PopulationError
from cfk_plugin.metrics.heom import Heom, HeomCodes
from cfk_plugin.metrics.information import ncp, ncp_by_attribute
from cfk_plugin.metrics.uniqueness import Coarse
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.catalogue.entries import (
    ASKED,
    Entries,
    ends_of,
    equal_work,
    find_entries,
    sets_inside,
)
from cfk_plugin.protection.catalogue.private_values import EncodedValues, encode_private, private_at
from cfk_plugin.protection.catalogue.value_book import ValueBook
from cfk_plugin.protection.partition.partition import Partition
from cfk_plugin.protection.regions import ends_of_region, region_of, side_by_side

_TELLING = 4  # combinations, of those its group must keep, at which a moving answer is tried
_ALONE = 4  # values of an attribute that are tried alone, with the query's own for all others
_LISTED = 1 << 22  # combinations that are kept, with all others


@dataclass(frozen=True, eq=False, repr=False)
class Parts(HostOnly):
    """Private values that answers may begin with: some of an entry's, and otherwise the query's."""

    values: EncodedValues  # of n_parts rows
    is_given: Mask  # shape (n_parts, n_private); False where the query's own value is meant

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False, repr=False)
class Catalogue(HostOnly):
    """Regions with private values that, by the model, at least k members of the group could have
    had.

    An entry is a group's region with private values. It is admissible when the model gives the
    desired outcome for at least k members with their own quasi-identifiers and these values, and
    for enough of the region; see `find_entries`. How entries are moved is in
    `cfk_plugin.protection.answers.search`. Answers need nothing of the population but the domains
    of
    quasi-identifiers. With exact private values an entry's are somebody's; shared ones belong to at
    least k people or to no one. It does not hide who is in the population.
    """

    partition: Partition  # over the rows with a desired prediction
    # training row of each entry, least information loss first, whatever the table's order
    rows: Ints
    group: Ints  # of each entry
    labels: NDArray[Any]  # the model's for each
    private: pd.DataFrame  # private values of each
    consistent: Ints  # per entry: members of its group that the model is consistent with
    pure: Floats  # per entry: share of its region, or of a sample of it, with its outcome
    goal: Goal
    model: TrainingLabels
    policy: PrivacyPolicy
    # further numbers that set the ranges of distances
    ends: Mapping[str, pd.Series] = field(default_factory=dict)
    # forms in which private values leave and are compared; empty if unchanged
    forms: Sequence[Coarse] = ()
    # see `sets_inside`; if answers are moved
    inside: Mapping[int, Sequence[Grid]] = field(default_factory=dict)
    _listed: dict[int, Codes] = field(default_factory=dict, init=False)
    _offers: dict[str, DistinctParts] = field(default_factory=dict, init=False)
    _known: dict[int, Mask] = field(default_factory=dict, init=False)

    _refusal = (
        PopulationError,
        "a Catalogue holds training rows and refuses to be pickled; rebuild it instead",
    )

    @classmethod
    def build(
        cls,
        partition: Partition,
        policy: PrivacyPolicy,
        goal: Goal,
        model: TrainingLabels,
        book: ValueBook | None = None,
    ) -> Catalogue:
        """Find the admissible entries of every group; the model is asked in large batches.

        With a book, shared private values are the ones in it.
        """
        if not partition.regions:
            limits = [
                f"{name} = {limit}"
                for name, limit in (("k", policy.k), ("l", policy.l), ("t", policy.t))
                if limit is not None
            ]
            raise PolicyError(
                f"the people with the desired outcome form no group with {' and '.join(limits)}, so"
                " there is no catalogue; lower k, l or margin, raise t, ask for another outcome, or"
                ' choose guarantee="reciprocal"'
            )
        found = find_entries(partition, policy, goal, model, book)

        def catalogue_of(
            entries: Entries, ends: Mapping[str, pd.Series], inside: Mapping[int, Sequence[Grid]]
        ) -> Catalogue:
            return cls(
                partition=partition,
                rows=entries.rows,
                group=partition.group_of_row[entries.rows],
                labels=model.labels(entries.rows),
                private=entries.values.frame(partition.population),
                consistent=entries.consistent,
                pure=entries.pure,
                goal=goal,
                model=model,
                policy=policy,
                ends=ends,
                forms=entries.forms,
                inside=inside,
            )

        # The order depends on regions and on what is released, which are distinct.
        unordered = catalogue_of(found, {}, {})
        released = unordered.leaving
        keys = *unordered.values.sort_keys, *released.T[::-1], unordered.group_at
        line = np.lexsort(keys)
        distinct = np.column_stack([unordered.group, released])[line]
        first = np.sort(np.unique(distinct, axis=0, return_index=True)[1])
        found = found.take(line[first])
        inside = dict[int, list[Grid]]()
        if policy.moves_towards_query:
            inside = sets_inside(partition, np.unique(unordered.group), policy.k)
        return catalogue_of(found, ends_of(partition, policy, found.forms, book), inside)

    def __len__(self) -> int:
        return len(self.group)

    def _counts(self) -> str:
        return f"{len(self)} entries, {len(self.partition.regions)} groups"

    @property
    def is_shared(self) -> bool:
        """Whether only private values of at least k people, of nobody, or of the query itself
        leave.
        """
        return self.policy.private_values == "shared" and bool(self.private_at)

    def own(self, counterfactuals: EncodedTable, groups: Ints) -> Ints:
        """Return the entry that a counterfactual itself is, if its group offers its private values;
        else -1.
        """
        private = self.private_at
        codes, numbers, found = (
            counterfactuals.codes[:, private],
            counterfactuals.numbers[:, private],
            [],
        )
        for form in self._patterns:
            wanted = np.column_stack([groups, self._left(codes, numbers, form)])
            found.append([self.offered_by.get(key.tobytes(), len(self)) for key in wanted])
        first = (
            np.array(found, dtype=np.int64).reshape(-1, len(codes)).min(axis=0, initial=len(self))
        )
        return np.where(first < len(self), first, -1)

    def is_desired(
        self, rows: pd.DataFrame, entry: Ints, which: Ints | None = None, cells: Codes | None = None
    ) -> Mask:
        """Say whether rows have the outcome of their entries: unchanged, or row ``which[i]`` at
        ``cells[i]``.
        """
        if which is None or cells is None:
            return self.judged(rows.take, entry)
        encoder = self.partition.population.encoder
        return self.judged(
            lambda at: rows_for_cells(encoder, rows, which[at], cells[at]), entry[which]
        )

    def judged(self, rows: Callable[[Ints], pd.DataFrame], entry: Ints) -> Mask:
        """Say whether rows, made in batches for the model, have the outcome."""
        return self.judge(self.said(rows, len(entry)), entry)

    def said(self, rows: Callable[[Ints], pd.DataFrame], count: int) -> Predictions:
        """Return what the model says of rows, made in batches."""
        if 0 < count <= ASKED:
            return self.model.predictions(rows(np.arange(count)))
        runs = [np.arange(start, min(start + ASKED, count)) for start in range(0, count, ASKED)]
        return Predictions.joined(self.model.predictions(rows(run)) for run in runs)

    def judge(self, predictions: Predictions, entry: Ints) -> Mask:
        """Say of n predictions whether they are the outcome of their entry, and answers may rest on
        them; shape (n,).
        """
        return self._is_outcome(predictions.labels, entry) & predictions.is_sure

    @cached_property
    def _is_outcome(self) -> Judge:
        """Says of labels, given with the entry each belongs to, whether they are its outcome."""
        return self.goal.judge(None, self.labels)

    def distinct_parts(self, private: Mapping[str, Any], group: int) -> bool:
        """Say whether an answer with a group's region may have been moved to these private values.

        They have the outcome at every one of `combinations` where the group's weakest entry has it.
        """
        entry = self.weakest_of(np.array([group]))
        if entry[0] < 0 or self.is_wide(entry)[0]:
            return False
        cells = self.must_hold(int(self.group_at[entry[0]]))
        rows = self.points.take(entry).assign(**private)
        return bool(self.is_desired(rows, entry, np.zeros(len(cells), dtype=np.int64), cells).all())

    def weakest_of(self, groups: Ints) -> Ints:
        """Return the weakest entry of some groups of the partition; -1 where a group has none."""
        if not len(self):
            return np.full(len(groups), -1, dtype=np.int64)
        at = np.where(groups >= 0, self._place[groups], -1)
        return np.where(at >= 0, self.weakest[at], -1)

    def is_movable(self, entry: Ints) -> Mask:
        """Say for entries whether moving from them is known to start with all that the group's
        answers must keep.
        """
        return np.asarray(self.weakest[self.group_at[entry]] == entry) & ~self.is_wide(entry)

    def is_wide(self, entry: Ints) -> Mask:
        """Say for entries whether too much would have to be asked about their regions to move
        private values.
        """
        return np.asarray(self.sizes_of(entry) == 0)

    def sizes_of(self, entry: Ints) -> Ints:
        """Return how many combinations are asked about for the regions of entries."""
        return np.asarray(self._sizes[0][self.group_at[entry]])

    def must_hold(self, group: int) -> Codes:
        """Return the combinations, of those asked about, where a region's weakest entry has its
        outcome.
        """
        return self.combinations(group)[self.holding(group)]

    def holding(self, group: int) -> Mask:
        """Say for the combinations of a region whether its weakest entry has its outcome there;
        asked once.
        """
        if group not in self._known:
            sizes, _ = self._sizes
            groups = np.arange(len(sizes)) if sizes.sum() <= ASKED else np.array([group])
            masks = np.split(self._holding(groups), np.cumsum(sizes[groups])[:-1])
            self._known.update(zip(groups.tolist(), masks, strict=True))
        return self._known[group]

    @cached_property
    def telling(self) -> tuple[Ints, Ints, Codes]:
        """A few combinations that each group must keep: each group's first, its number of them, and
        all of them.
        """
        drawn = [spread(sets[0].size if sets else 0, 2 * _TELLING) for sets in self._sets]
        cells = [
            sets[0].some(at) if sets else self.no_cells
            for sets, at in zip(self._sets, drawn, strict=True)
        ]
        which = np.repeat(np.arange(len(cells)), [*map(len, cells)])
        asked = np.concatenate([self.no_cells, *cells])
        if len(self._known) < len(cells):
            held = self.is_desired(self.points.take(self.weakest), self.weakest, which, asked)
        else:
            held = np.concatenate(
                [asked[:0, 0] > 0, *(self._known[group][at] for group, at in enumerate(drawn))]
            )
        which, asked = which[held], asked[held]
        turn = np.arange(len(which)) - np.searchsorted(which, which)
        which, asked = which[turn < _TELLING], asked[turn < _TELLING]
        first = np.searchsorted(which, np.arange(len(cells)))
        return first, np.bincount(which, minlength=len(cells)), asked

    @cached_property
    def no_cells(self) -> Codes:
        return np.empty(
            (0, len(self.partition.population.schema.quasi_identifiers)), dtype=np.int32
        )

    def combinations(self, group: int) -> Codes:
        """Return the combinations of a region that are asked about.

        Of too many these are all of values that people inside have, so that those with the outcome
        keep it, and those by which verification judges how pure the region is. None where even
        these are too many.
        """
        if group in self._listed:
            return self._listed[group]
        sets, grid = self._sets[group], self._grids[group]
        cells = [each.all() for each in sets] + (
            [grid.drawn()] if sets and grid.size > MOST_CELLS else []
        )
        found = np.concatenate([self.no_cells, *cells])
        if self._sizes[0].sum() <= _LISTED:  # few enough to be kept
            self._listed[group] = found
        return found

    def _holding(self, groups: Ints) -> Mask:
        """Say for the combinations of some groups whether the weakest entry has its outcome there,
        group by group.
        """
        cells, entry = [self.combinations(group) for group in groups.tolist()], self.weakest[groups]
        which = np.repeat(np.arange(len(groups)), [len(each) for each in cells])
        return self.is_desired(
            self.points.take(entry), entry, which, np.concatenate([self.no_cells, *cells])
        )

    @cached_property
    def _grids(self) -> list[Grid]:
        population, none = (
            self.partition.population,
            [0] * len(self.partition.population.schema.quasi_identifiers),
        )
        return [
            Grid.of(self.partition.regions[group], population, none)
            for group in self._groups.tolist()
        ]

    def distances(
        self, queries: EncodedTable, at: Ints, open_to: Mask, change_cost: float = 0.0
    ) -> tuple[Floats, Floats]:
        """Return the distances of some queries to the groups that have entries, and to the entries'
        private values.

        A region's distance is that of its nearest point plus half of its width; infinite if it may
        not answer. Each private attribute that differs adds `change_cost`, about as much as a
        quasi-identifier outside of the region adds.
        """
        heom, entries = self.private_values
        groups = self._groups
        codes, numbers = queries.quasi_identifiers
        regions = self.partition.distance.between(codes[at], numbers[at], groups) + self._widths
        regions[~open_to[at][:, self.partition.side_of_group[groups]]] = np.inf
        if not self.private_at:
            return regions, np.zeros((len(at), len(self)))
        own = queries.codes[at][:, self.private_at], queries.numbers[at][:, self.private_at]
        if self.forms:
            return regions, self._outside(*own, change_cost)
        compared = self._compared(*own)
        parts = heom.distances(compared, entries) * len(self.private_at)
        if change_cost > 0:
            parts += change_cost * n_different(compared, entries)
        return regions, parts

    def n_outside(self, queries: EncodedTable) -> Ints:
        """Return how many quasi-identifiers of each query are outside of the regions of groups.

        The shape is (n_queries, n_groups), with the groups that have entries.
        """
        codes, numbers = queries.quasi_identifiers
        return self.partition.distance.n_outside(codes, numbers, self._groups)

    def _outside(self, codes: Codes, numbers: Floats, change_cost: float) -> Floats:
        """Return how far private values are from what leaves of the entries, as for regions; 1/2 if
        nothing leaves. Each value outside of what leaves adds `change_cost`.
        """
        total = np.zeros((len(codes), len(self)))
        for j, name in enumerate(self.domains):
            distinct_parts, domain = self.offered(name), self.partition.population.domains[name]
            if domain.is_numeric:
                (low, high, missing), number = (
                    distinct_parts.ends,
                    domain.numbers_of(codes[:, j], numbers[:, j])[:, None],
                )
                is_outside = ~((low <= number) & (number <= high))
                away = np.maximum(0, np.maximum(low - number, number - high)) + (high - low) / 2
                away /= self.private_values[0].ranges[name] or np.inf
                away = np.where(np.isnan(number), 1 - missing, np.nan_to_num(away, nan=1.0))
                is_outside = np.where(np.isnan(number), missing == 0, is_outside)
            else:
                is_outside = ~(
                    distinct_parts.inside[:, codes[:, j].clip(min=0)] & (codes[:, j] >= 0)
                ).T
                away = is_outside
            away = away + change_cost * is_outside
            total += np.where(distinct_parts.is_silent, 0.5, away)[:, distinct_parts.of]
        return total

    def offered(self, name: str) -> DistinctParts:
        """Return what entries say of a private attribute, or regions (of groups with entries) of a
        quasi-identifier.
        """
        if name not in self._offers:
            population = self.partition.population
            if name in population.schema.quasi_identifiers:
                parts: list[Part | None] = [
                    self.partition.regions[group][name] for group in self._groups.tolist()
                ]
            else:
                values = map(natural, self.private[name])
                forms = self.forms or [{}] * len(self)
                parts = [
                    c[name][0] if name in c else part_of(v)
                    for c, v in zip(forms, values, strict=True)
                ]
            self._offers[name] = DistinctParts.build(population.domains[name], parts)
        return self._offers[name]

    @cached_property
    def leaving(self) -> Codes:
        """What is released of the private values of each entry; shape (n_entries, n_private).

        These are codes, with further ones for numbers without a code, bins, and nothing.
        """
        values = self.values
        if not self.forms:
            return self._left(values.codes, values.numbers, (0,) * len(self.private_at))
        released = values.codes.copy()
        for i, form in enumerate(self._pattern_of):
            released[i] = self._left(values.codes[[i]], values.numbers[[i]], form)[0]
        return released

    def _left(self, codes: Codes, numbers: Floats, pattern: Sequence[int]) -> Codes:
        """Return what would be released of private values, as codes; shape (n, n_private).

        The pattern has a number for each attribute: its value (0), its bin (1) or nothing (2).
        Codes and numbers are as in `EncodedValues`. Numbers that no row has, but an entry, have
        codes below `INVALID`; those that no entry has either keep `UNKNOWN`.
        """
        found, population = codes.copy(), self.partition.population
        for j, (name, form) in enumerate(zip(population.schema.private, pattern, strict=True)):
            domain = population.domains[name]
            known = self._numbers_of_no_row[j]
            if form == 0 and len(known):
                place = np.searchsorted(known, numbers[:, j]).clip(max=len(known) - 1)
                is_known = (codes[:, j] == UNKNOWN) & (known[place] == numbers[:, j])
                found[is_known, j] = INVALID - 1 - place[is_known]
            if form == 1:
                at = [
                    bin_of(domain, number)
                    for number in domain.numbers_of(codes[:, j], numbers[:, j]).tolist()
                ]
                found[:, j] = [-1 if place is None else domain.size + 1 + place for place in at]
            elif form:
                found[:, j] = domain.size
        return found

    @cached_property
    def _numbers_of_no_row(self) -> list[Floats]:
        """For each private attribute the numbers of entries that no row has, ascending."""
        return [np.unique(column[~np.isnan(column)]) for column in self.values.numbers.T]

    @cached_property
    def _pattern_of(self) -> list[tuple[int, ...]]:
        names = self.partition.population.schema.private
        return [
            tuple((2 if form[n][0] is None else 1) if n in form else 0 for n in names)
            for form in self.forms
        ]

    @cached_property
    def _patterns(self) -> list[tuple[int, ...]]:
        return [*dict.fromkeys(self._pattern_of)] or [(0,) * len(self.private_at)]

    @cached_property
    def private_at(self) -> list[int]:
        return private_at(self.partition.population)

    @cached_property
    def points(self) -> pd.DataFrame:
        """Private values of each entry at the first combination of its region, which may be
        nobody's.
        """
        population = self.partition.population
        columns = {name: self.private[name].array for name in population.schema.private}
        for name, first in zip(population.schema.quasi_identifiers, self.corners.T, strict=True):
            columns[name] = population.domains[name].restore_array(first[self.group_at])
        return table_of({name: columns[name] for name in population.schema.features})

    @cached_property
    def corners(self) -> Codes:
        """The first combination of the region of each of these groups."""
        first = [axis[0] for grid in self._grids for axis in grid.codes]
        return np.array(first, dtype=np.int32).reshape(-1, self.no_cells.shape[1])

    @cached_property
    def values(self) -> EncodedValues:
        """The private values of each entry, encoded by the population."""
        return encode_private(self.partition.population, self.private)

    @property
    def codes(self) -> Codes:
        """Codes of the private values of each entry; shape (n_entries, n_private)."""
        return self.values.codes

    @cached_property
    def parts(self) -> Parts:
        """The private values of each entry, followed by some values of each attribute alone."""
        n_private = len(self.private_at)
        alone = self.values.take(np.empty(0, dtype=np.int64))
        attribute = np.empty(0, dtype=np.int64)
        for j in range(n_private):
            distinct = self._distinct_values(j)
            some = distinct[spread(len(distinct), _ALONE)]
            alone = alone.joined(self.values.take(some))
            attribute = np.append(attribute, np.full(len(some), j))
        is_given = np.ones((len(self) + len(alone), n_private), dtype=bool)
        is_given[len(self) :] = attribute[:, None] == np.arange(n_private)
        return Parts(values=self.values.joined(alone), is_given=is_given)

    def _distinct_values(self, j: int) -> Ints:
        """Return entries that have each value of a private attribute once, in order of value."""
        codes = self.values.codes[:, j]
        domain = self.partition.population.domains[self.partition.population.schema.private[j]]
        if not domain.is_numeric:
            return np.unique(codes, return_index=True)[1]
        numbers = domain.numbers_of(codes, self.values.numbers[:, j])
        return np.unique(numbers, return_index=True)[1]

    @cached_property
    def domains(self) -> dict[str, Domain]:
        """Domains of the private attributes with only the values of the entries and the `ends`."""
        population, schema = self.partition.population, self.partition.population.schema
        if not population.has_cells:
            return {name: population.domains[name] for name in schema.private}  # as sealed
        shown = {
            n: self.private[n][[n not in form for form in self.forms] or slice(None)]
            for n in schema.private
        }
        columns = {
            n: [shown[n], self.ends[n]] if n in self.ends else [shown[n]] for n in schema.private
        }
        return {
            name: Domain.of(pd.concat(both, ignore_index=True), schema[name])
            for name, both in columns.items()
        }

    @cached_property
    def _sets(self) -> list[Sequence[Grid]]:
        """For each group's region, all of its values, or those of people inside; empty if these are
        too many.
        """
        each = zip(self._grids, self._groups.tolist(), strict=True)
        return [
            [grid] if grid.size <= MOST_CELLS else self.inside.get(group, ())
            for grid, group in each
        ]

    @cached_property
    def _sizes(self) -> tuple[Ints, Ints]:
        """Number of combinations that are asked about for each group's region; and groups, sampled
        ones last.
        """
        is_large = np.array([grid.size > MOST_CELLS for grid in self._grids], dtype=bool)
        asked = np.array([sum(grid.size for grid in sets) for sets in self._sets], dtype=np.int64)
        return asked + SAMPLED * (is_large & (asked > 0)), np.argsort(is_large, kind="stable")

    @cached_property
    def offered_by(self) -> dict[bytes, int]:
        """From group and private codes to the number of the entry."""
        keys = np.column_stack([self.group, self.leaving])
        return {key.tobytes(): entry for entry, key in enumerate(keys)}

    @cached_property
    def _groups(self) -> Ints:
        """One group for every region that has entries, in an order that depends on these regions
        alone.
        """
        return self._ordered[0]

    @cached_property
    def _place(self) -> Ints:
        """Position of each group's region among these; -1 if it has no entry."""
        return self._ordered[1]

    @cached_property
    def _ordered(self) -> tuple[Ints, Ints]:
        partition, found = self.partition, dict[Any, list[int]]()
        for group in np.unique(self.group).tolist():
            region = partition.regions[group]
            ends = tuple(
                tuple(codes.tolist()) for codes in ends_of_region(partition.population, region)
            )
            loss = round(ncp(region, partition.population), 12)
            found.setdefault((loss, ends, int(partition.side_of_group[group])), []).append(group)
        place = np.full(len(partition.regions), -1, dtype=np.int64)
        for at, key in enumerate(sorted(found)):
            place[found[key]] = at
        return np.array([found[key][0] for key in sorted(found)], dtype=np.int64), place

    @cached_property
    def group_at(self) -> Ints:
        """Position of each entry's region among these."""
        return self._place[self.group]

    @cached_property
    def region_at(self) -> Ints:
        """Number of the region of each of these groups; some share one."""
        regions = [self.partition.regions[group] for group in self._groups.tolist()]
        number = {region: i for i, region in enumerate(dict.fromkeys(regions))}
        return np.array([number[region] for region in regions], dtype=np.int64)

    @cached_property
    def _widths(self) -> Floats:
        partition = self.partition
        widths = [
            sum(ncp_by_attribute(region, partition.population).values())
            for region in partition.regions
        ]
        return np.array(widths)[self._groups] / 2

    @cached_property
    def weakest(self) -> Ints:
        """The entry of each group that requires the fewest combinations of its region; the first of
        ties.
        """
        line = np.lexsort((self.pure, self.group_at))
        return line[np.unique(self.group_at[line], return_index=True)[1]]

    @cached_property
    def distinct(self) -> Ints:
        """Entries that together have all private values of the catalogue, each once."""
        return self.values.first_of_equal()

    @cached_property
    def private_values(self) -> tuple[Heom, HeomCodes]:
        """Private values of the entries, and the distance between such values."""
        sizes = {
            n: float(np.abs(d.values[-1:]).sum()) for n, d in self.domains.items() if d.is_numeric
        }
        widths = {name: self.domains[name].width or size for name, size in sizes.items()}
        heom = Heom([*widths], [name for name in self.domains if name not in widths], widths)
        return heom, self._compared(self.values.codes, self.values.numbers)

    def _compared(self, codes: Codes, numbers: Floats) -> HeomCodes:
        """Return private values in the form that distances are computed from: numbers, and codes of
        categories.
        """
        domains = [self.partition.population.domains[name] for name in self.domains]
        kind = np.array([domain.is_numeric for domain in domains], dtype=bool)
        columns = [
            domains[j].numbers_of(codes[:, j], numbers[:, j]) for j in np.flatnonzero(kind).tolist()
        ]
        return HeomCodes(
            np.array(columns).reshape(len(columns), len(codes)).T,
            np.asfortranarray(codes[:, ~kind]).astype(np.uint64),
        )

    @cached_property
    def decimals(self) -> list[float]:
        """Decimals that each private number may have while moving; NaN for attributes that do not
        move in steps.
        """
        return [domain.decimals for domain in self.domains.values()]


def n_different(a: HeomCodes, b: HeomCodes) -> Ints:
    """Return in how many attributes each row of `a` differs from each of `b`.

    The shape is (len(a), len(b)). Two missing values are the same.
    """
    count = np.zeros((len(a), len(b)), dtype=np.int64)
    for own, others in zip(a.numbers.T, b.numbers.T, strict=True):
        both_missing = np.isnan(own)[:, None] & np.isnan(others)
        count += (own[:, None] != others) & ~both_missing
    for codes, other_codes in zip(a.codes.T, b.codes.T, strict=True):
        count += codes[:, None] != other_codes
    return count


def spread(count: int, most: int) -> Ints:
    """Return at most `most` positions, evenly spread, including first and last."""
    return np.unique(np.linspace(0, max(count - 1, 0), min(count, most)).round().astype(np.int64))


PEOPLE = "catalogue.people"
# of sealed arrays
_NAMES = ("side", "people", "ends", "ends_of", "held", "group", "codes", "pure", "outcome")


def catalogue_to_arrays(
    catalogue: Catalogue,
) -> tuple[dict[str, NDArray[Any]], dict[str, Any], dict[str, Domain]]:
    """Return a catalogue as arrays of numbers, outcomes of its sides, and domains of its private
    values; no row.
    """
    partition, population, groups = (
        catalogue.partition,
        catalogue.partition.population,
        catalogue._groups,
    )
    domains = {
        name: replace(
            domain,
            has_missing=own.has_missing,
            missing=own.missing,
            is_open=not domain.attribute.declared_values,
        )
        for name, domain in catalogue.domains.items()
        for own in [population.domains[name]]
    }
    if not population.has_cells:  # opened and sealed again
        return dict(population.sealed_arrays), dict(population.sealed_facts), domains
    regions = [partition.regions[g] for g in groups]
    eligibility, side = np.unique(partition.side_of_group[groups], return_inverse=True)
    ends, ends_of = side_by_side(
        [ends_of_region(population, region) for region in regions], catalogue.no_cells
    )
    sizes, line = catalogue._sizes
    runs = equal_work(sizes[line])
    codes = [domain.encode(catalogue.private[name])[0] for name, domain in domains.items()]
    arrays: dict[str, NDArray[Any]] = {
        "side": side.astype(np.int64),
        "people": np.array([population.count(region) for region in regions], dtype=np.int64),
        "ends": ends,
        "ends_of": ends_of,
        "held": np.packbits(
            np.concatenate([line[:0] > 0, *(catalogue._holding(line[run]) for run in runs)])
        ),
        "group": catalogue.group_at,
        "codes": np.column_stack([*codes, np.empty((len(catalogue), 0), dtype=np.int32)]),
        "pure": catalogue.pure,
        "outcome": catalogue.is_desired(catalogue.points, np.arange(len(catalogue))),
    }
    sets = [
        (place, grid.codes)
        for place, g in enumerate(groups.tolist())
        for grid in catalogue.inside.get(g, ())
    ]
    if sets:
        arrays["inside"], of = side_by_side([axes for _, axes in sets], catalogue.no_cells)
        arrays["inside_of"] = np.column_stack([np.array([place for place, _ in sets])[of], of])
    outcomes = dict(
        zip(partition.side_of_group[catalogue.group].tolist(), catalogue.labels, strict=True)
    )
    facts: dict[str, Any] = {SEALED: sealed_requirement(catalogue.model.requirement)}
    if catalogue.goal.is_opposite:
        facts[OUTCOMES] = [natural(outcomes[s]) for s in eligibility.tolist()]
    return {f"catalogue.{name}": array for name, array in arrays.items()}, facts, domains


def catalogue_from_arrays(
    population: Population, policy: PrivacyPolicy, goal: Goal, model: TrainingLabels
) -> Catalogue | None:
    """Return the catalogue of `catalogue_to_arrays`, without rows; None if none was sealed."""
    if any(f"catalogue.{name}" not in population.sealed_arrays for name in _NAMES):
        return None
    side, _, ends, ends_of, held, group, codes, pure, outcome = (
        population.sealed_arrays[f"catalogue.{name}"] for name in _NAMES
    )
    outcomes = population.sealed_facts.get(OUTCOMES)
    if goal.is_opposite != (outcomes is not None):
        raise PolicyError(
            'a catalogue for the goal "opposite" answers that alone, and no other does; seal one'
            " for yours"
        )
    regions = tuple(region_of(population, ends[ends_of == place]) for place in range(len(side)))
    nobody = np.empty(0, dtype=np.int64)
    labels = np.full(len(group), None, dtype=object)
    labels[:] = [None if outcomes is None else outcomes[s] for s in side[group].tolist()]
    partition = Partition(population, regions, nobody, side, {})
    private = EncodedValues.of_codes(codes).frame(population)
    known = nobody, group, labels, private, np.full(len(group), policy.k), pure
    inside = dict[int, list[Grid]]()
    sets, sets_of = (
        population.sealed_arrays.get(f"catalogue.{name}", side[:0])
        for name in ("inside", "inside_of")
    )
    for at in (
        np.split(np.arange(len(sets)), np.flatnonzero(np.diff(sets_of.T[1:])) + 1)
        if len(sets)
        else ()
    ):
        inside.setdefault(int(sets_of[at[0], 0]), []).append(
            Grid(tuple(map(np.unique, sets[at].T)))
        )
    catalogue = Catalogue(partition, *known, goal, model, policy, inside=inside)
    sizes, line = catalogue._sizes
    flags = np.unpackbits(held, count=sizes.sum()).astype(bool)
    catalogue._known.update(
        zip(line.tolist(), np.split(flags, np.cumsum(sizes[line]))[:-1], strict=True)
    )
    if not np.array_equal(catalogue.is_desired(catalogue.points, np.arange(len(group))), outcome):
        raise ModelError(
            "the model, or the outcome that is desired, is not the one that the catalogue was"
            " sealed with"
        )
    return catalogue
