"""Starts: the point at which each candidate's search begins, and the point it moves towards."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.decision import Mask
from cfk_plugin.data.domain import UNKNOWN
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.answers.candidates import EXPLAINER_START, RegionAndValues
from cfk_plugin.protection.answers.diversity import AnswersSoFar
from cfk_plugin.protection.answers.points import TIE, Keys, Points, ValueTable
from cfk_plugin.protection.answers.request import CatalogueRequest
from cfk_plugin.protection.axes import Ints
from cfk_plugin.protection.catalogue.catalogue import Catalogue


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Starts(HostOnly):
    """Where the search of each of n pairs begins, and what it may become.

    Pairs are ordered by query; within a query, those with a single value of an entry come last, and
    otherwise near pairs come first.

    Attributes
    ----------
    pairs : RegionAndValues, n
    points : Points, n
        Where the searches begin.
    target : Points, n
        What the points' private values may become.
    is_unproven : bool, shape (n,)
        True where the private values are not those of the pair's own entry, so that the model must
        be asked about them in the entry's region.
    keys : uint64, shape (n,)
        Keys of the private values of `points`.
    most_changes : int64, shape (n,), optional
        How many private values of each result may differ from the query's; None for any number.
    """

    pairs: RegionAndValues
    points: Points
    target: Points
    is_unproven: Mask
    keys: Keys
    most_changes: Ints | None = None

    def __len__(self) -> int:
        return len(self.pairs)

    def take(self, rows: Ints) -> Starts:
        most_changes = None if self.most_changes is None else self.most_changes[rows]
        return Starts(
            pairs=self.pairs.take(rows),
            points=self.points.take(rows),
            target=self.target.take(rows),
            is_unproven=self.is_unproven[rows],
            keys=self.keys[rows],
            most_changes=most_changes,
        )


def starts_of(
    catalogue: Catalogue,
    request: CatalogueRequest,
    values: ValueTable,
    so_far: AnswersSoFar,
    pairs: RegionAndValues,
) -> Starts:
    """Return where the searches of pairs begin.

    Left out are pairs that begin with private values which the person has an answer with, and pairs
    that change too much.
    """
    # Few pairs with a single value are true. They come last, so that as many others are tried.
    has_single_value = pairs.has_single_value(catalogue)
    rank = np.round(pairs.distance / TIE)
    pairs = pairs.take(np.lexsort((rank, has_single_value, pairs.query)))
    points, is_replaced = start_points(catalogue, request.constraints, values, pairs)
    keys = so_far.keys(points, pairs.entry)
    is_new = so_far.is_new(pairs.query, keys)
    if not is_new.all():
        pairs = pairs.take(is_new)
        points = points.take(is_new)
        is_replaced = is_replaced[is_new]
        keys = keys[is_new]
    target = permitted_factuals(values, request.constraints, pairs.query, points)
    starts = Starts(
        pairs=pairs,
        points=points,
        target=target,
        is_unproven=is_replaced | (pairs.values_entry != pairs.entry),
        keys=keys,
    )
    if request.constraints.max_changes is None:
        return starts
    return _within_most_changes(catalogue, request.constraints, values, starts)


def _within_most_changes(
    catalogue: Catalogue, constraints: Constraints, values: ValueTable, starts: Starts
) -> Starts:
    """Return the starts from which some answer changes no more than is permitted."""
    most_changes = _most_changes(catalogue, constraints, starts.pairs)
    is_within = _least_changes(catalogue, values, starts) <= most_changes
    return replace(starts, most_changes=most_changes).take(np.flatnonzero(is_within))


def _most_changes(catalogue: Catalogue, constraints: Constraints, pairs: RegionAndValues) -> Ints:
    """Return how many private values each pair's answer may change; shape (n_pairs,).

    These are the changes that are permitted without the quasi-identifiers that the region changes.
    The result is negative where these alone are too many.
    """
    assert constraints.max_changes is not None  # noqa: S101 - the only caller has looked
    queries, row = np.unique(pairs.query, return_inverse=True)
    n_outside = catalogue.n_outside(constraints.queries.take(queries))  # (n_queries, n_groups)
    n_outside_of_pair = n_outside[row, catalogue.region_of_entry[pairs.entry]]
    return np.asarray(constraints.max_changes - n_outside_of_pair)


def _least_changes(catalogue: Catalogue, values: ValueTable, starts: Starts) -> Ints:
    """Return how many private values each pair's answer changes at least; shape (n_pairs,).

    Where a pair can be moved, all of its values may become those of its target.
    """
    is_movable = catalogue.is_movable(starts.pairs.entry)
    ends = starts.points.either(starts.target, is_movable)
    factuals = values.factuals.take(starts.pairs.query)
    return np.asarray(values.changed(ends, factuals).sum(axis=1))


def start_points(
    catalogue: Catalogue, constraints: Constraints, values: ValueTable, pairs: RegionAndValues
) -> tuple[Points, Mask]:
    """Return the points at which the searches of pairs begin.

    Each is the permitted point of the region that is nearest to the query, with the private values
    of the pair.

    Returns
    -------
    points : Points, n_pairs
    is_replaced : bool, shape (n_pairs,)
        True where a private value was not permitted, and replaced by one that is.
    """
    factuals = values.factuals.take(pairs.query)
    is_explainer_start = pairs.values_entry == EXPLAINER_START
    points = factuals.either(values.start.take(pairs.query), is_explainer_start)
    _take_values_of_entries(catalogue, values, pairs, points)
    is_replaced = _permit_private(constraints, values, pairs.query, points)
    group = catalogue.region_of_entry[pairs.entry]
    for j in values.schema.quasi_positions:
        name = values.schema.features[j]
        regions = catalogue.offered(name).take(group)
        codes, numbers = constraints.nearest(name, regions, pairs.query, regions.of)
        points.places[:, j] = codes
        points.numbers[:, j] = numbers
    return points, is_replaced


def _take_values_of_entries(
    catalogue: Catalogue, values: ValueTable, pairs: RegionAndValues, points: Points
) -> None:
    """Give points, in place, the private values that their pairs take from entries."""
    value_choices = catalogue.value_choices
    for i, j in enumerate(values.private_columns.tolist()):
        is_taken = (pairs.values_entry >= 0) & value_choices.is_given[pairs.values_entry, i]
        choices = pairs.values_entry[is_taken]
        points.places[is_taken, j] = value_choices.values.codes[choices, i]
        points.numbers[is_taken, j] = value_choices.values.numbers[choices, i]


def _permit_private(
    constraints: Constraints, values: ValueTable, query: Ints, points: Points
) -> Mask:
    """Replace private values of n points by the nearest permitted ones, in place.

    `query` has the shape (n,). Return a mask of shape (n,): True where a value was replaced.
    """
    is_replaced = np.zeros(len(query), dtype=bool)
    factuals = values.factuals.take(query)
    for j in values.private_columns.tolist():
        name = values.schema.features[j]
        if name not in constraints.rules:
            continue
        domain = constraints.queries.encoder.domains[name]
        is_in_population = points.places[:, j] < domain.size
        codes = np.where(is_in_population, points.places[:, j], UNKNOWN).astype(np.int32)
        codes, numbers, is_other = constraints.nearest_to(name, query, codes, points.numbers[:, j])
        is_new_category = (codes < 0) & (not domain.is_numeric)  # that the population lacks
        places = np.where(is_new_category, factuals.places[:, j], codes)
        points.places[is_other, j] = places[is_other]
        points.numbers[is_other, j] = numbers[is_other]
        is_replaced |= is_other
    return is_replaced


def permitted_factuals(
    values: ValueTable, constraints: Constraints, query: Ints, points: Points
) -> Points:
    """Return what points may become: the query's own private values, as far as they are permitted.

    Instead of a value that is not permitted stands the nearest permitted number or, if there is
    none, the point's value. `query` has the shape (n_points,).
    """
    target = values.factuals.take(query)
    queries = constraints.queries
    for name in constraints.only(values.schema.private).rules:
        j = values.schema.features.index(name)
        domain = queries.encoder.domains[name]
        codes, numbers, is_other = constraints.nearest_to(
            name, query, queries.codes[query, j], queries.numbers[query, j]
        )
        is_near_number = np.zeros(len(query), dtype=bool)
        if domain.is_numeric:
            is_near_number = ~np.isnan(numbers) & ~np.isnan(values.number(target, j))
        places = np.where(is_near_number, codes, points.places[:, j])
        numbers = np.where(is_near_number, numbers, points.numbers[:, j])
        target.places[is_other, j] = places[is_other]
        target.numbers[is_other, j] = numbers[is_other]
    return target
