"""The catalogue: the entries that explanations are made of, fixed before the first query.

A query is answered with an entry that the catalogue has anyway, so explanations reveal nothing more
than the catalogue does, however many queries there are. Which entries are admissible, and why that
protects people, is in `cfk_plugin.protection.catalogue.entries`; what shared private values are, in
`cfk_plugin.protection.catalogue.crowds`; at which combinations a moved answer must keep the
outcome, in `cfk_plugin.protection.catalogue.required_combinations`.

The catalogue does not hide who is in the population. The private values of an entry belong to at
least k people or to no one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.combinations import Grid, rows_for_cells
from cfk_plugin.data.constraints import DistinctParts
from cfk_plugin.data.decision import Mask
from cfk_plugin.data.domain import INVALID, UNKNOWN, Domain
from cfk_plugin.data.encoded_table import EncodedTable, table_of
from cfk_plugin.data.outcome import DesiredOutcome, OutcomeTest
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.predictions import Predictions
from cfk_plugin.data.sealing import BundleContent
from cfk_plugin.data.training_labels import TrainingLabels
from cfk_plugin.errors import HostOnly, PolicyError
from cfk_plugin.metrics.heom import Heom, HeomCodes
from cfk_plugin.metrics.information import ncp_by_attribute
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.catalogue.entries import SEARCH_LIMITS, Entries, ends_of, find_entries
from cfk_plugin.protection.catalogue.model_calls import predictions_of
from cfk_plugin.protection.catalogue.private_values import EncodedValues, encode_private, private_at
from cfk_plugin.protection.catalogue.required_combinations import (
    MovableRegion,
    RequiredCombinations,
    combinations_of_people,
    groups_by_region,
    movable_regions,
    spread,
)
from cfk_plugin.protection.partition.partition import Partition

_SINGLE_VALUES = 4  # of each attribute, tried with the query's own values of all others


@dataclass(frozen=True, eq=False, repr=False)
class ValueChoices(HostOnly):
    """Private values that answers may begin with: some of an entry's, and otherwise the query's."""

    values: EncodedValues  # of n_choices rows
    is_given: Mask  # shape (n_choices, n_private); False where the query's own value is meant

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False, repr=False)
class Catalogue(HostOnly):
    """Regions with private values that, by the model, at least k members of the group could have
    had.

    An entry is a group's region with private values. How entries are moved towards queries is in
    `cfk_plugin.protection.answers.search`. Answers need nothing of the population but the domains
    of quasi-identifiers.

    A group's number is its position in ``partition.regions``. Groups that have the same region and
    the same eligibility class are one to an adversary. So answers do not tell them apart: they are
    searched by region, and a region's number is its position in `movable_regions`. Only groups with
    entries have one. In a sealed catalogue each region is one group, and both numbers are the same.
    """

    partition: Partition  # over the rows with a desired prediction
    # Shape (n_entries,), least information loss first, whatever the table's order is
    rows: Ints  # training row of each entry
    group: Ints  # group of each entry
    labels: NDArray[Any]  # the model's label of each entry
    private: pd.DataFrame  # private values of each entry; n_entries rows
    consistent: Ints  # members of the entry's group that the model is consistent with
    pure: Floats  # share of the entry's region, or of a sample of it, that has the entry's outcome
    goal: DesiredOutcome
    model: TrainingLabels
    # by private attribute, further numbers that set the ranges of distances
    ends: Mapping[str, pd.Series] = field(default_factory=dict)
    # by group; see `combinations_of_people`
    inside: Mapping[int, Sequence[Grid]] = field(default_factory=dict)
    # what the catalogue was opened from; None if it was built from rows
    sealed: BundleContent | None = None
    _offers: dict[str, DistinctParts] = field(default_factory=dict, init=False)

    @classmethod
    def build(
        cls,
        partition: Partition,
        policy: PrivacyPolicy,
        goal: DesiredOutcome,
        model: TrainingLabels,
    ) -> Catalogue:
        """Find the admissible entries of every group; the model is asked in large batches.

        Raises
        ------
        PolicyError
            If the partition has no group.
        """
        if len(partition.regions) == 0:
            raise PolicyError(_no_group(policy))
        entries = find_entries(partition, policy, goal, model, SEARCH_LIMITS)
        draft = cls.of_entries(entries, partition, goal, model)
        entries = entries.take(draft.published_order())
        inside = combinations_of_people(partition, np.unique(draft.group), policy.k)
        ends = ends_of(partition, policy)
        return cls.of_entries(entries, partition, goal, model, ends=ends, inside=inside)

    @classmethod
    def of_entries(
        cls,
        entries: Entries,
        partition: Partition,
        goal: DesiredOutcome,
        model: TrainingLabels,
        *,
        ends: Mapping[str, pd.Series] = MappingProxyType({}),
        inside: Mapping[int, Sequence[Grid]] = MappingProxyType({}),
    ) -> Catalogue:
        """Return a catalogue of these entries, in their order."""
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
            ends=ends,
            inside=inside,
        )

    def published_order(self) -> Ints:
        """Return the entries to keep, in an order that reveals nothing of the table's order.

        They are sorted by region, then by private values. Of entries of one group with the same
        private values, the first is kept.

        Returns
        -------
        array of int64, shape (n_kept,)
            Positions of these entries.
        """
        released = self.released_codes
        order = np.lexsort([*released.T[::-1], self.region_of_entry])  # the last key sorts first
        group_and_values = np.column_stack([self.group, released])[order]
        _, first_of_equal = np.unique(group_and_values, axis=0, return_index=True)
        return order[np.sort(first_of_equal)]

    def __len__(self) -> int:
        return len(self.group)

    def _counts(self) -> str:
        return f"{len(self)} entries, {len(self.partition.regions)} groups"

    # The private values of entries

    @cached_property
    def private_at(self) -> list[int]:
        """Positions of the private attributes among the features."""
        return private_at(self.partition.population)

    @cached_property
    def values(self) -> EncodedValues:
        """The private values of each entry, encoded by the population."""
        return encode_private(self.partition.population, self.private)

    @property
    def codes(self) -> Codes:
        """Codes of the private values of each entry; shape (n_entries, n_private)."""
        return self.values.codes

    @cached_property
    def distinct(self) -> Ints:
        """Entries that together have all private values of the catalogue, each once; shape (n,)."""
        return self.values.first_of_equal()

    @cached_property
    def value_choices(self) -> ValueChoices:
        """The private values of each entry, followed by some values of each attribute alone."""
        n_private = len(self.private_at)
        single = self.values.take(np.empty(0, dtype=np.int64))
        attribute = np.empty(0, dtype=np.int64)
        for j in range(n_private):
            distinct = self._distinct_values(j)
            entries = distinct[spread(len(distinct), _SINGLE_VALUES)]
            single = single.joined(self.values.take(entries))
            attribute = np.append(attribute, np.full(len(entries), j))
        is_given = np.ones((len(self) + len(single), n_private), dtype=bool)
        is_given[len(self) :] = attribute[:, None] == np.arange(n_private)
        return ValueChoices(values=self.values.joined(single), is_given=is_given)

    def _distinct_values(self, j: int) -> Ints:
        """Return entries that have each value of a private attribute once, in order of value."""
        codes = self.values.codes[:, j]
        domain = self.partition.population.domains[self.partition.population.schema.private[j]]
        if not domain.is_numeric:
            return np.unique(codes, return_index=True)[1]
        numbers = domain.numbers_of(codes, self.values.numbers[:, j])
        return np.unique(numbers, return_index=True)[1]

    @cached_property
    def _numbers_without_code(self) -> list[Floats]:
        """For each private attribute the numbers of entries that no row has, ascending."""
        return [np.unique(column[~np.isnan(column)]) for column in self.values.numbers.T]

    def _released_codes_of(self, values: EncodedValues) -> Codes:
        """Return n private values as codes that are equal where the values are.

        A value that a row has keeps its code. Numbers that an entry has, and no row, get codes
        below `INVALID`; those that no entry has either keep `UNKNOWN`. The shape is (n, n_private).
        """
        released = values.codes.copy()
        for j, without_code in enumerate(self._numbers_without_code):
            released[:, j] = _codes_of_values(
                values.codes[:, j], values.numbers[:, j], without_code
            )
        return released

    @cached_property
    def released_codes(self) -> Codes:
        """The private values of each entry as codes that are equal where the values are.

        The shape is (n_entries, n_private); see `_released_codes_of`.
        """
        return self._released_codes_of(self.values)

    @cached_property
    def entry_of_release(self) -> dict[bytes, int]:
        """The number of each entry, by its group and private values."""
        keys = np.column_stack([self.group, self.released_codes])
        return {key.tobytes(): entry for entry, key in enumerate(keys)}

    def entry_of(self, counterfactuals: EncodedTable, groups: Ints) -> Ints:
        """Return the entry that each counterfactual itself is.

        That is the one by which its group offers its private values; -1 if there is none. `groups`
        and the result have the shape (n,).
        """
        values = EncodedValues(
            codes=counterfactuals.codes[:, self.private_at],
            numbers=counterfactuals.numbers[:, self.private_at],
        )
        keys = np.column_stack([groups, self._released_codes_of(values)])
        entries = [self.entry_of_release.get(key.tobytes(), -1) for key in keys]
        return np.array(entries, dtype=np.int64)

    # The regions of entries

    @cached_property
    def _groups_of_region(self) -> list[list[int]]:
        """The groups of each movable region, ascending; in an order that depends on regions."""
        return groups_by_region(self.partition, np.unique(self.group))

    @cached_property
    def group_of_region(self) -> Ints:
        """The first group of each movable region; shape (n_regions,)."""
        return np.array([groups[0] for groups in self._groups_of_region], dtype=np.int64)

    @cached_property
    def region_of_group(self) -> Ints:
        """The movable region of each group; -1 if the group has no entry. Shape (n_groups,)."""
        region_of_group = np.full(len(self.partition.regions), -1, dtype=np.int64)
        for region, groups in enumerate(self._groups_of_region):
            region_of_group[groups] = region
        return region_of_group

    @cached_property
    def region_of_entry(self) -> Ints:
        """The movable region of each entry; shape (n_entries,)."""
        return self.region_of_group[self.group]

    @cached_property
    def movable_regions(self) -> list[MovableRegion]:
        """The regions that entries offer, each with the combinations to ask about."""
        return movable_regions(self.partition, self._groups_of_region, self.inside)

    @cached_property
    def released_region(self) -> Ints:
        """A number for what is released of each movable region; shape (n_regions,).

        Regions have the same number if only their eligibility classes differ.
        """
        regions = [self.partition.regions[group] for group in self.group_of_region.tolist()]
        number_of = {region: number for number, region in enumerate(dict.fromkeys(regions))}
        return np.array([number_of[region] for region in regions], dtype=np.int64)

    @cached_property
    def corners(self) -> Codes:
        """The first combination of each movable region, which may be no person's.

        The shape is (n_regions, n_quasi_identifiers).
        """
        corners = [region.first_combination for region in self.movable_regions]
        n_quasi_identifiers = len(self.partition.population.schema.quasi_identifiers)
        return np.array(corners, dtype=np.int32).reshape(-1, n_quasi_identifiers)

    @cached_property
    def points(self) -> pd.DataFrame:
        """Private values of each entry at the first combination of its region."""
        population = self.partition.population
        columns = {name: self.private[name].array for name in population.schema.private}
        for name, first in zip(population.schema.quasi_identifiers, self.corners.T, strict=True):
            columns[name] = population.domains[name].restore_array(first[self.region_of_entry])
        return table_of({name: columns[name] for name in population.schema.features})

    # The outcomes of entries

    def predictions(self, rows_at: Callable[[Ints], pd.DataFrame], n_rows: int) -> Predictions:
        """Return the model's predictions for n rows; `rows_at` makes those at some positions."""
        return predictions_of(self.model, rows_at, n_rows)

    def is_outcome(self, predictions: Predictions, entry: Ints) -> Mask:
        """Return a mask of shape (n,): True where prediction i is the outcome of entry
        ``entry[i]``, and answers may rest on it.
        """
        return self._is_outcome(predictions.labels, entry) & predictions.is_sure

    @cached_property
    def _is_outcome(self) -> OutcomeTest:
        """Returns a mask of shape (n,): True where label i is the outcome of entry ``entry[i]``."""
        return self.goal.test_for(self.labels)

    def have_outcome(self, rows_at: Callable[[Ints], pd.DataFrame], entry: Ints) -> Mask:
        """Return a mask of shape (n,): True where row i has the outcome of entry ``entry[i]``.

        `rows_at` makes the rows at some positions.
        """
        return self.is_outcome(self.predictions(rows_at, len(entry)), entry)

    def has_outcome_at(self, entries: Ints, which: Ints, combinations: Codes) -> Mask:
        """Return a mask: True where an entry's private values have its outcome at a combination.

        See `HasOutcome` for the arguments and shapes.
        """
        return self._has_outcome_at(self.points.take(entries), entries, which, combinations)

    def _has_outcome_at(
        self, rows: pd.DataFrame, entries: Ints, which: Ints, combinations: Codes
    ) -> Mask:
        """Return a mask of shape (m,): True where row ``which[i]``, at combination i, has the
        outcome of the row's entry.

        There are n rows, and `entries` of shape (n,).
        """
        encoder = self.partition.population.encoder

        def rows_at(positions: Ints) -> pd.DataFrame:
            return rows_for_cells(encoder, rows, which[positions], combinations[positions])

        return self.have_outcome(rows_at, entries[which])

    # What moved answers must keep

    @cached_property
    def weakest(self) -> Ints:
        """The weakest entry of each movable region; shape (n_regions,).

        It has its outcome at the smallest share of the region, so it requires the fewest
        combinations; the first one of ties.
        """
        order = np.lexsort((self.pure, self.region_of_entry))
        _, first_of_region = np.unique(self.region_of_entry[order], return_index=True)
        return order[first_of_region]

    @cached_property
    def required_combinations(self) -> RequiredCombinations:
        """At which combinations of each movable region a moved answer must keep the outcome."""
        return RequiredCombinations(
            regions=self.movable_regions,
            weakest=self.weakest,
            n_quasi_identifiers=len(self.partition.population.schema.quasi_identifiers),
            has_outcome=self.has_outcome_at,
        )

    def weakest_of(self, groups: Ints) -> Ints:
        """Return the weakest entry of the regions of some groups; shape (n,).

        -1 where the group is -1, or has no entry.
        """
        no_entry = np.full(len(groups), -1, dtype=np.int64)
        if len(self) == 0:
            return no_entry
        region = np.where(groups >= 0, self.region_of_group[groups], -1)
        return np.where(region >= 0, self.weakest[region], no_entry)

    def is_movable(self, entry: Ints) -> Mask:
        """Return a mask of shape (n,): True where an entry is known to have all that is required.

        These are the weakest entries of regions that are not wide.
        """
        is_weakest = np.asarray(self.weakest[self.region_of_entry[entry]] == entry)
        return is_weakest & ~self.is_wide(entry)

    def is_wide(self, entry: Ints) -> Mask:
        """Return a mask of shape (n,): True where too many combinations of an entry's region would
        have to be asked about to move private values.
        """
        return np.asarray(self.n_asked(entry) == 0)

    def n_asked(self, entry: Ints) -> Ints:
        """Return how many combinations are asked about in the regions of entries; shape (n,)."""
        return np.asarray(self.required_combinations.n_asked[self.region_of_entry[entry]])

    # Distances of queries to entries

    @cached_property
    def domains(self) -> dict[str, Domain]:
        """Domains of the private attributes with only the values of the entries and the `ends`."""
        population = self.partition.population
        schema = population.schema
        if self.sealed is not None:
            return {name: population.domains[name] for name in schema.private}
        domains = {}
        for name in schema.private:
            columns = [self.private[name]]
            if name in self.ends:
                columns.append(self.ends[name])
            domains[name] = Domain.of(pd.concat(columns, ignore_index=True), schema[name])
        return domains

    @cached_property
    def private_values(self) -> tuple[Heom, HeomCodes]:
        """The distance between private values, and those of the entries to compute it from."""
        widths = {}
        for name, domain in self.domains.items():
            if domain.is_numeric:
                size_of_largest = float(np.abs(domain.values[-1:]).sum())  # 0 without any number
                widths[name] = domain.width or size_of_largest
        categorical = [name for name in self.domains if name not in widths]
        heom = Heom(list(widths), categorical, widths)
        return heom, self._heom_codes(self.values)

    def _heom_codes(self, values: EncodedValues) -> HeomCodes:
        """Return n private values in the form that distances are computed from.

        These are numbers, of shape (n, n_numeric), and codes of categories.
        """
        domains = [self.partition.population.domains[name] for name in self.domains]
        is_numeric = np.array([domain.is_numeric for domain in domains], dtype=bool)
        columns = [
            domains[j].numbers_of(values.codes[:, j], values.numbers[:, j])
            for j in np.flatnonzero(is_numeric).tolist()
        ]
        return HeomCodes(
            numbers=np.array(columns).reshape(len(columns), len(values)).T,
            codes=np.asfortranarray(values.codes[:, ~is_numeric]).astype(np.uint64),
        )

    @cached_property
    def decimals(self) -> list[float]:
        """Decimals that each private number may have while moving; NaN for attributes that do not
        move in steps.
        """
        return [domain.decimals for domain in self.domains.values()]

    @cached_property
    def _half_widths(self) -> Floats:
        """Half of each movable region's width; shape (n_regions,).

        The width is the sum over quasi-identifiers, in shares of their ranges.
        """
        population = self.partition.population
        widths = [
            sum(ncp_by_attribute(self.partition.regions[group], population).values())
            for group in self.group_of_region.tolist()
        ]
        return np.array(widths, dtype=np.float64) / 2

    def distances(self, queries: EncodedTable, rows: Ints, open_to: Mask) -> tuple[Floats, Floats]:
        """Return the distances of some queries to movable regions, and to entries' private values.

        A region's distance is that of its nearest point plus half of its width.

        Parameters
        ----------
        queries : EncodedTable
        rows : shape (n,)
            Positions of the queries.
        open_to : shape (n_queries, n_eligibility_classes)
            Which eligibility classes may answer each query.

        Returns
        -------
        regions : shape (n, n_regions)
            Infinite if the region may not answer.
        private : shape (n, n_entries)
        """
        groups = self.group_of_region
        codes, numbers = queries.quasi_identifiers
        regions = self.partition.distance.between(codes[rows], numbers[rows], groups)
        regions = regions + self._half_widths
        is_open = open_to[rows][:, self.partition.eligibility_of_group[groups]]  # (n, n_regions)
        regions[~is_open] = np.inf
        if len(self.private_at) == 0:
            return regions, np.zeros((len(rows), len(self)))
        values = EncodedValues(
            codes=queries.codes[rows][:, self.private_at],
            numbers=queries.numbers[rows][:, self.private_at],
        )
        heom, of_entries = self.private_values
        of_queries = self._heom_codes(values)
        private = heom.distances(of_queries, of_entries) * len(self.private_at)
        return regions, private

    def n_outside(self, queries: EncodedTable) -> Ints:
        """Return how many quasi-identifiers of each query are outside of each movable region.

        The shape is (n_queries, n_regions).
        """
        codes, numbers = queries.quasi_identifiers
        return self.partition.distance.n_outside(codes, numbers, self.group_of_region)

    def offered(self, name: str) -> DistinctParts:
        """Return each movable region's part for a quasi-identifier."""
        if name not in self._offers:
            domain = self.partition.population.domains[name]
            parts = [self.partition.regions[group][name] for group in self.group_of_region.tolist()]
            self._offers[name] = DistinctParts.build(domain, parts)
        return self._offers[name]


def _codes_of_values(codes: Codes, numbers: Floats, without_code: Floats) -> Codes:
    """Return codes, of shape (n,), with one below `INVALID` for each number of `without_code`.

    `without_code` is ascending. Other values keep their code.
    """
    if not len(without_code):
        return codes
    place = np.searchsorted(without_code, numbers).clip(max=len(without_code) - 1)
    is_listed = (codes == UNKNOWN) & (without_code[place] == numbers)
    return np.where(is_listed, INVALID - 1 - place, codes).astype(np.int32)


def _no_group(policy: PrivacyPolicy) -> str:
    """Return why there is no catalogue if no group reaches what the policy asks for."""
    limits = [
        f"{name} = {limit}"
        for name, limit in (("k", policy.k), ("l", policy.l), ("t", policy.t))
        if limit is not None
    ]
    return (
        f"the people with the desired outcome form no group with {' and '.join(limits)}, so"
        " there is no catalogue; lower k, l or margin, raise t, or ask for another outcome"
    )
