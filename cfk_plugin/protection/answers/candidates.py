"""Candidates: which region and which private values may answer a query, from near to far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.decision import Mask
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.answers.diversity import AnswersSoFar
from cfk_plugin.protection.answers.points import TIE, ValueTable
from cfk_plugin.protection.answers.request import CatalogueRequest, ExplainerStart
from cfk_plugin.protection.axes import Floats, Ints
from cfk_plugin.protection.catalogue.catalogue import Catalogue

QUERY_VALUES = -1
"""The `values_entry` of private values that are the query's own."""

EXPLAINER_START = -2
"""The `values_entry` of private values that are those of the explainer's counterfactual."""

NEAREST_COMBINED = 24
"""Nearest regions, and nearest private values, that are combined with each other."""

COMBINATIONS_TRIED = 48
"""Nearest combinations of a region and private values that are tried."""

ENTRIES_TRIED = 32
"""Nearest entries that are tried at once."""

PAIRS_MOVED = 16
"""True candidates of a query that are moved at once."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RegionAndValues(HostOnly):
    """Pairs of a region and private values that may answer a query.

    Attributes
    ----------
    query : int64, shape (n,)
        Position of the query.
    entry : int64, shape (n,)
        The entry of the catalogue whose region it is.
    values_entry : int64, shape (n,)
        Where the private values come from:

        * 0 to n_entries - 1: this entry has them. If it is `entry`, the pair is the entry itself.
        * from n_entries on: this row of `Catalogue.parts` has one of them, the query the others.
        * `QUERY_VALUES` or `EXPLAINER_START`.
    distance : float64, shape (n,)
        From the start of the search to the pair.
    """

    query: Ints
    entry: Ints
    values_entry: Ints
    distance: Floats

    def __len__(self) -> int:
        return len(self.query)

    def take(self, rows: Ints | Mask) -> RegionAndValues:
        return RegionAndValues(
            query=self.query[rows],
            entry=self.entry[rows],
            values_entry=self.values_entry[rows],
            distance=self.distance[rows],
        )

    @classmethod
    def joined(cls, parts: Sequence[RegionAndValues]) -> RegionAndValues:
        """Return the pairs of all parts, one part after the other."""
        return cls(
            query=np.concatenate([part.query for part in parts]),
            entry=np.concatenate([part.entry for part in parts]),
            values_entry=np.concatenate([part.values_entry for part in parts]),
            distance=np.concatenate([part.distance for part in parts]),
        )

    def has_single_value(self, catalogue: Catalogue) -> Mask:
        """Return a mask of the pairs with one value of an entry and otherwise the query's."""
        return np.asarray(self.values_entry >= len(catalogue))


class CandidateSearch:
    """Finds candidates for the queries of a request; it does not ask the model.

    Parameters
    ----------
    catalogue : Catalogue
    request : CatalogueRequest
    values : ValueTable
    so_far : AnswersSoFar
        Tells which queries still want an answer.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        request: CatalogueRequest,
        values: ValueTable,
        so_far: AnswersSoFar,
    ) -> None:
        self._catalogue = catalogue
        self._request = request
        self._values = values
        self._so_far = so_far

    def rounds(self, query: Ints) -> Iterator[RegionAndValues]:
        """Yield candidates for some queries, in rounds from near to far.

        1. With an explainer's start: the counterfactuals in their own groups.
        2. The nearest entries, and the nearest combinations of a region and private values from
           elsewhere.
        3. The entries that follow, for queries without an answer, as many at a time. This is rare.
        """
        explainer_start = self._request.explainer_start
        if explainer_start is not None:
            yield self._in_own_groups(explainer_start, query)
            query = query[self._so_far.n_open[query] > 0]
        if not len(query):
            return
        region_distances, values_distances = self._distances(query)
        distances = region_distances[:, self._catalogue.region_of_entry] + values_distances
        n_entries = len(self._catalogue)
        entries = nearest_first(distances, ENTRIES_TRIED)
        yield RegionAndValues.joined(
            [
                _entries_as_pairs(query, entries, distances),
                self._combined(query, region_distances, values_distances),
            ]
        )
        if n_entries <= ENTRIES_TRIED:
            return
        is_open = self._so_far.n_open[query] > 0
        query = query[is_open]
        distances = distances[is_open]
        entries = nearest_first(distances, n_entries)
        for first in range(ENTRIES_TRIED, n_entries, ENTRIES_TRIED):
            yield _entries_as_pairs(query, entries[:, first : first + ENTRIES_TRIED], distances)

    def _distances(self, query: Ints) -> tuple[Floats, Floats]:
        """Return the distances from where the search of each query starts.

        Returns
        -------
        region_distances : float64, shape (n, n_groups)
            To regions; infinite where one may not answer the query.
        values_distances : float64, shape (n, n_entries)
            To the private values of entries. Answers take permitted values later, so that none is
            infinite.
        """
        request = self._request
        region_distances, values_distances = self._catalogue.distances(
            request.start, query, request.open_to
        )
        constraints = request.constraints
        if constraints.max_changes is not None:
            n_outside = self._catalogue.n_outside(constraints.queries.take(query))
            region_distances[n_outside > constraints.max_changes] = np.inf
        if constraints.rules:
            on_regions = self._on_regions(constraints.take(query))
            offered_parts = {name: self._catalogue.offered(name) for name in on_regions.rules}
            n_groups = region_distances.shape[1]
            region_distances[~on_regions.admits_all(offered_parts, n_groups)] = np.inf
        return region_distances, values_distances

    def _in_own_groups(self, explainer_start: ExplainerStart, query: Ints) -> RegionAndValues:
        """Return each query's counterfactual with the region of its own group.

        It may occur twice: with its own private values if it may keep them, and as the entry that
        it is. So every member of the group gets the same region for the private values that are
        released.
        """
        groups = explainer_start.groups[query]
        no_distance = np.zeros(len(query))
        weakest = self._catalogue.weakest_of(groups)
        own_entry = self._catalogue.entry_of(explainer_start.counterfactuals.take(query), groups)
        with_own_values = RegionAndValues(
            query=query,
            entry=weakest,
            values_entry=np.full(len(query), EXPLAINER_START),
            distance=no_distance,
        )
        as_entries = RegionAndValues(
            query=query, entry=own_entry, values_entry=own_entry, distance=no_distance
        )
        keeps_own_values = explainer_start.may_keep_own_values
        pairs = RegionAndValues.joined(
            [
                with_own_values.take((weakest >= 0) & keeps_own_values),
                as_entries.take(own_entry >= 0),
            ]
        )
        on_regions = self._on_regions(self._request.constraints.take(pairs.query))
        group = self._catalogue.region_of_entry[pairs.entry]
        regions = {name: self._catalogue.offered(name).take(group) for name in on_regions.rules}
        return pairs.take(on_regions.admits_paired(regions))

    def _on_regions(self, constraints: Constraints) -> Constraints:
        """Return the constraints on quasi-identifiers."""
        return constraints.only(self._catalogue.partition.population.schema.quasi_identifiers)

    def _combined(
        self, query: Ints, region_distances: Floats, values_distances: Floats
    ) -> RegionAndValues:
        """Return the nearest combinations of a region and private values from elsewhere.

        These are other entries', the explainer's, or the query's own. Without an explainer, they
        are also the query's own with one value of an entry.
        """
        catalogue = self._catalogue
        factuals = self._values.factuals.take(query)
        to_factual = self._values.gaps(factuals, self._values.start.take(query)).sum(axis=1)
        values_entries = np.append([QUERY_VALUES], catalogue.distinct)
        # (n_queries, n_values)
        distances = np.hstack([to_factual[:, None], values_distances[:, catalogue.distinct]])
        explainer_start = self._request.explainer_start
        if explainer_start is not None:
            if explainer_start.may_keep_own_values:
                values_entries = np.append([EXPLAINER_START], values_entries)
                distances = np.hstack([np.zeros((len(query), 1)), distances])
            return self._nearest_combined(query, region_distances, values_entries, distances)
        single_values = np.arange(len(catalogue), len(catalogue.value_choices))
        distances_of_single = self._distances_of_single_values(query, single_values)
        with_single_value = self._nearest_combined(
            query, region_distances, single_values, distances_of_single
        )
        pairs = self._nearest_combined(query, region_distances, values_entries, distances)
        return RegionAndValues.joined([pairs, with_single_value])

    def _distances_of_single_values(self, query: Ints, values_entries: Ints) -> Floats:
        """Return how far queries are from themselves with one value of an entry.

        `query` has the shape (n_queries,), `values_entries` (n_values,), the result
        (n_queries, n_values). The distance is infinite where the query has the value already.
        """
        n_queries = len(query)
        n_values = len(values_entries)
        factuals = self._values.factuals.take(np.repeat(query, n_values))
        changed = factuals.copy()
        parts = self._catalogue.value_choices
        for i, j in enumerate(self._values.private_columns.tolist()):
            is_given = np.tile(parts.is_given[values_entries, i], n_queries)
            codes = np.tile(parts.values.codes[values_entries, i], n_queries)
            numbers = np.tile(parts.values.numbers[values_entries, i], n_queries)
            changed.places[is_given, j] = codes[is_given]
            changed.numbers[is_given, j] = numbers[is_given]
        distances = self._values.gaps(factuals, changed).sum(axis=1)
        distances = np.where(distances > 0, distances, np.inf)
        return np.asarray(distances.reshape(n_queries, n_values))

    def _nearest_combined(
        self, query: Ints, region_distances: Floats, values_entries: Ints, distances: Floats
    ) -> RegionAndValues:
        """Combine the nearest regions with the nearest private values; return the nearest pairs.

        Regions about which too much would have to be asked are left out.

        Parameters
        ----------
        query : shape (n,)
        region_distances : shape (n, n_groups)
        values_entries : shape (n_values,)
        distances : shape (n, n_values); to the private values of each
        """
        group = nearest_first(region_distances, NEAREST_COMBINED)
        values = nearest_first(distances, NEAREST_COMBINED)
        of_groups = np.take_along_axis(region_distances, group, axis=1)
        of_values = np.take_along_axis(distances, values, axis=1)
        total = of_groups[:, :, None] + of_values[:, None]  # (n, n_near_groups, n_near_values)
        total = total.reshape(len(query), -1)
        combination = nearest_first(total, COMBINATIONS_TRIED)
        total = np.take_along_axis(total, combination, axis=1)
        row, place = np.nonzero(np.isfinite(total))
        near_group, near_values = np.divmod(combination[row, place], values.shape[1])
        pairs = RegionAndValues(
            query=query[row],
            entry=self._catalogue.weakest[group[row, near_group]],
            values_entry=values_entries[values[row, near_values]],
            distance=total[row, place],
        )
        return pairs.take(~self._catalogue.is_wide(pairs.entry))


def _entries_as_pairs(query: Ints, entries: Ints, distances: Floats) -> RegionAndValues:
    """Return the given entries that may answer each query, with their own private values.

    `query` has the shape (n,), `entries` (n, n_tried), `distances` (n, n_entries).
    """
    distances = np.take_along_axis(distances, entries, axis=1)
    row, place = np.nonzero(np.isfinite(distances))
    entry = entries[row, place]
    return RegionAndValues(
        query=query[row], entry=entry, values_entry=entry, distance=distances[row, place]
    )


def nearest_first(distances: Floats, count: int) -> Ints:
    """Return the columns of the `count` least distances, row by row from near to far.

    Equal distances stay in order. `distances` has the shape (n, width), the result
    (n, min(count, width)).
    """
    n_rows, width = distances.shape
    if width <= 2 * count:
        return np.argsort(np.round(distances / TIE), axis=1, kind="stable")[:, :count]
    limit = np.partition(distances, count - 1, axis=1)[:, count - 1]
    row, column = np.nonzero(distances <= limit[:, None] + TIE)  # at least `count` of each row
    order = np.lexsort((np.round(distances[row, column] / TIE), row))
    first_of_row = np.searchsorted(row, np.arange(n_rows))
    nearest: Ints = column[order[first_of_row[:, None] + np.arange(count)]]
    return nearest
