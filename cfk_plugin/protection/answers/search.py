"""The answers of a catalogue: which region and private values a query gets, and how near they are
moved to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.decision import Labels
from cfk_plugin.data.domain import UNKNOWN
from cfk_plugin.data.encoded_table import EncodedTable, encode
from cfk_plugin.data.policy import Mask
from cfk_plugin.data.predictions import Predictions
from cfk_plugin.data.training_labels import KnownOutcomes
from cfk_plugin.metrics.heom import Heom, HeomCodes
from cfk_plugin.protection.answers.moves import (
    TIE,
    Keys,
    Points,
    Probe,
    RegionAndValues,
    Search,
    SearchOptions,
    ValueTable,
    joined,
)
from cfk_plugin.protection.answers.rounding import Rounder
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.catalogue.catalogue import Catalogue

_BLOCK = 1 << 22  # distances held at once
_SAID = 1 << 22  # labels that are kept for verification; it asks for others again
# Nearest entries that are tried at once, and true answers that are moved. Shared private values are
# seldom as near as somebody's own, so more of these are moved.
_TRIED, _MOVED_VALUES = 16, 8
_SHARED_TRIED, _SHARED_MOVED = 32, 16
_NEAR, _MIXED = (
    24,
    48,
)  # nearest regions and private values that are combined, and nearest combinations tried
_FURTHER = 8  # most rounds in a search for more answers, once there is one
_NEARNESS = 0.5  # weight of the distance against that of diversity, which is 1: DiCE's own
_RIDGE = 1e-9  # so that two answers at one point are no error
# private values that are no entry's: those of the query, and of the explainer's counterfactual
_OWN, EXPLAINER_START = -1, -2


class CatalogueAnswers(NamedTuple):
    entry: Ints  # of each query; -1 if none is true for the person who asks
    points: EncodedTable | None  # those that answers ask for; None if there is none
    # what the model says at all combinations of its region, where it was asked
    said: list[Predictions | None]
    # what it says at the anchors and at the queries, where asked along with the first question
    own: Labels | None = None
    at_queries: Labels | None = None
    # the entry whose private values each answer began with; of others, see `RegionAndValues.part`
    part: Ints | None = None
    # which private values are no longer those, but the query's own or on the way to them
    moved: Mask | None = None

    def without(self, is_dropped: Mask) -> CatalogueAnswers:
        """Return the same without the answers to some of the queries.

        The mask has the shape (n_queries,).
        """
        is_answered = self.entry >= 0
        kept = np.flatnonzero(~is_dropped[is_answered])
        if len(kept) == is_answered.sum():
            return self
        entry = np.where(is_dropped, -1, self.entry)
        if not len(kept):
            return self._replace(entry=entry, points=None, said=[], part=None, moved=None)
        return self._replace(
            entry=entry,
            points=None if self.points is None else self.points.take(kept),
            said=[self.said[i] for i in kept.tolist()],
            part=None if self.part is None else self.part[kept],
            moved=None if self.moved is None else self.moved[kept],
        )

    def known_outcomes(self, catalogue: Catalogue) -> KnownOutcomes:
        """Return the model's labels in the form that verification uses; positions count answers
        only.
        """
        at = list[int]()
        cells = list[Codes]()
        known = list[Predictions]()
        groups = catalogue.group_at[self.entry[self.entry >= 0]]
        for i, predictions in enumerate(self.said):
            if predictions is not None and len(predictions):
                at.append(i)
                cells.append(catalogue.combinations(int(groups[i])))
                known.append(predictions)
        if not known:
            return KnownOutcomes()
        return KnownOutcomes(
            np.repeat(at, [*map(len, cells)]), np.concatenate(cells), Predictions.joined(known)
        )


class ExplainerStart(NamedTuple):
    """An explainer's counterfactuals, one per query, with their groups; -1 for none."""

    counterfactuals: EncodedTable
    groups: Ints
    # False where they may be rows, and private values of single people must not be released
    may_keep_own_values: bool = True


class _AskedAlong(NamedTuple):
    """Points that the model is asked about in the call that asks the first question."""

    points: Points | None
    n_start: int  # of these, counterfactuals of the explainer; queries follow, each once
    query_of: Ints | None  # for each query, its position among them; None if they are not asked

    @classmethod
    def build(
        cls, pools: ValueTable, who: Ints, *, asks_start: bool, asks_queries: bool
    ) -> _AskedAlong:
        """Choose the points: of queries that are the same by `who`, the first."""
        if not asks_queries:
            return cls(pools.start if asks_start else None, len(who), None)
        _, first, query_of = np.unique(who, return_index=True, return_inverse=True)
        points = pools.queries.take(first)
        if not asks_start:
            return cls(points, 0, query_of)
        return cls(pools.start.joined(points), len(who), query_of)

    def labels_at_start(self, predictions: Predictions | None) -> Labels | None:
        """Return the labels of the explainer's counterfactuals; None if they were not asked."""
        if predictions is None or self.n_start == 0:
            return None
        return predictions.labels[: self.n_start]

    def labels_at_queries(self, predictions: Predictions | None) -> Labels | None:
        """Return the labels of the queries, shape (n_queries,); None if they were not asked."""
        if predictions is None or self.query_of is None:
            return None
        return np.asarray(predictions.labels[self.n_start :][self.query_of])


# Of entries that are not moved, the distance alone counts.
_AS_THEY_ARE = SearchOptions(change_cost=0.0, rounding=False, both_orders=False)


class _Asked(NamedTuple):
    """Who asks, what may change, and where the search starts: at the query, or at an explainer's
    counterfactual.
    """

    limits: Constraints
    explainer_start: ExplainerStart | None
    start: EncodedTable
    options: SearchOptions
    # what each private attribute that differs adds to the distance by which candidates are ordered
    order_cost: float


def answer(
    catalogue: Catalogue,
    limits: Constraints,
    open_to: Mask,
    *,
    move_towards_query: bool,
    who: Ints | None = None,
    explainer_start: ExplainerStart | None = None,
    asks_own: bool = False,
    asks_queries: bool = False,
    options: SearchOptions,
) -> CatalogueAnswers:
    """Return the nearest answer to each query that is true for its person, at the nearest point of
    the region.

    Answers are entries; `move_towards_query` adds others and moves them. Any private values may go
    with a region if they have the outcome at every combination where the group's weakest entry has
    it: other entries', the query's own, the explainer's if these may be kept. They then become the
    query's, or come closer, as long as that stays so. The nearest result is the answer.
    Whoever was consistent with the weakest entry is consistent with the answer, and nobody's row is
    looked at.

    With `explainer_start`, an explainer's counterfactuals, the search starts there: an anchor
    stays in its
    own group if it may keep its private values and the group may have them, else the nearest answer
    to it is taken. So everybody in the group, with the private values that left, gets the same
    region. Truth and moves still concern the query.

    Regions hold something that is permitted to the person, and their nearest point is permitted. So
    are private values: only permitted entries are used or, with `move_towards_query`, all take the
    nearest permitted values before anything is asked. An answer that asks for more changes than are
    permitted is none.

    With `options`, answers that ask for fewer changes come first, and the numbers of moved answers
    are rounded away from the query's own where that keeps the outcome; see `round_outwards`.

    Queries that are the same by `who` get different answers; see `AnswersSoFar`. Without anchors
    these are
    diverse, and from near to far; with anchors, each in turn takes what is nearest to its own.

    With `asks_own` and `asks_queries`, the model is asked about the anchors and the queries too,
    in the call that asks the first question.
    """
    queries = limits.queries
    start = queries if explainer_start is None else explainer_start.counterfactuals
    # Where candidates are moved, most of their differences are no changes in the end. Only those of
    # answers that stay as they are count, and only those from the query.
    order_cost = 0.0
    if not move_towards_query:
        order_cost = options.change_cost if explainer_start is None else 0.0
        options = replace(options, change_cost=0.0, rounding=False)
    asked = _Asked(limits, explainer_start, start, options, order_cost)
    who = np.arange(len(queries)) if who is None else who
    turn, first, times = _turns(who)
    wanted = (
        np.where(turn > 0, 0, times)
        if explainer_start is None
        else np.ones(len(queries), dtype=np.int64)
    )
    # codes and numbers of rows
    asks = 8 * int(catalogue.sizes_of(catalogue.weakest).max()) if catalogue.inside else 1
    pools, step = (
        ValueTable(catalogue, queries, start),
        max(_BLOCK // max(len(catalogue), _NEAR * _NEAR, asks), 1),
    )
    given = AnswersSoFar(catalogue, pools, queries, who, wanted)
    along = _AskedAlong.build(
        pools, who, asks_start=asks_own and explainer_start is not None, asks_queries=asks_queries
    )
    pools.waiting = along.points
    for now in range(int(turn[wanted > 0].max(initial=-1)) + 1 if len(catalogue) else 0):
        askers = np.flatnonzero((turn == now) & (wanted > 0))
        for waiting in np.split(askers, range(step, len(askers), step)):
            for further, pairs in enumerate(
                _candidates(
                    catalogue,
                    asked,
                    pools,
                    given,
                    waiting,
                    open_to,
                    move_towards_query=move_towards_query,
                )
            ):
                is_open = (given.left > 0) & (
                    further < _FURTHER or ~given.has_any(np.arange(len(queries)))
                )
                if not is_open[waiting].any():
                    break
                if len(at := np.flatnonzero(is_open[pairs.query])):
                    for results in _results(
                        catalogue,
                        asked,
                        pools,
                        pairs.take(at),
                        given,
                        move_towards_query=move_towards_query,
                    ):
                        given.add(results)
    found = np.full(len(queries), -1, dtype=np.int64)
    own = along.labels_at_start(pools.own)
    at_queries = along.labels_at_queries(pools.own)
    if not given.found:
        return CatalogueAnswers(found, None, [], own, at_queries)
    *columns, points, predictions = zip(*given.found, strict=True)
    asker, entry, part, distance = map(np.concatenate, columns)
    line = np.lexsort((np.round(distance / TIE), asker))
    asker = asker[line]
    place = np.argsort(who, kind="stable")[first[asker] + turn[asker] + _turns(asker)[0]]
    found[place] = entry[line]
    line, said = line[np.argsort(place)], list(chain.from_iterable(predictions))
    part, ends = part[line], Points(*joined(*points)).take(line)
    moved = (
        _moved(catalogue, pools, pools.start.take(np.flatnonzero(found >= 0)), part, ends)
        if move_towards_query
        else None
    )
    told = list(map(said.__getitem__, line.tolist()))
    return CatalogueAnswers(
        found, _rows(catalogue, pools, ends, found), told, own, at_queries, part, moved
    )


def _moved(
    catalogue: Catalogue, pools: ValueTable, start: Points, part: Ints, ends: Points
) -> Mask:
    """Return a mask of the private values of answers that are not those they began with.

    `start`, `part` and `ends` belong to the n answers: the points that the search began with, the
    number of their private values among `Catalogue.parts`, and the points that are released. The
    mask has the shape (n, n_private). Values that began as the query's own count as moved.
    `start` is overwritten.
    """
    is_taken = part >= 0
    taken = part[is_taken]
    parts = catalogue.parts
    for i, j in enumerate(pools.private.tolist()):
        start.at[is_taken, j] = parts.values.codes[taken, i]
        start.numbers[is_taken, j] = parts.values.numbers[taken, i]
    moved = pools.changed(start, ends)
    moved[part == _OWN] = True
    moved[is_taken] |= ~parts.is_given[taken]
    return moved


def _rows(catalogue: Catalogue, pools: ValueTable, points: Points, found: Ints) -> EncodedTable:
    """Return answers with the first combination of their regions, and the private values that they
    have come to.
    """
    entry = found[found >= 0]
    if catalogue.forms:  # these leave as they were made
        return encode(catalogue.points.take(entry), catalogue.partition.population.encoder)
    points.at[:, list(pools.schema.quasi_positions)] = catalogue.corners[catalogue.group_at[entry]]
    return pools.rows(points)


def _turns(who: Ints) -> tuple[Ints, Ints, Ints]:
    """Return each one's turn among its equals, where its equals begin when sorted, and how many
    they are.
    """
    _, at, times = np.unique(who, return_inverse=True, return_counts=True)
    first, turn = (np.cumsum(times) - times)[at], np.empty(len(who), dtype=np.int64)
    turn[np.argsort(at, kind="stable")] = np.arange(len(who))
    return turn - first, first, times[at]


def nearest(
    catalogue: Catalogue, counterfactuals: EncodedTable, open_to: Mask, groups: Ints
) -> Ints:
    """Return the entry that each counterfactual is in its group, or the nearest, whoever asks; -1
    if there is none.
    """
    found, step = (
        np.full(len(counterfactuals), -1, dtype=np.int64),
        max(_BLOCK // max(len(catalogue), 1), 1),
    )
    for start in range(0, len(counterfactuals) if len(catalogue) else 0, step):
        at = np.arange(start, min(start + step, len(counterfactuals)))
        regions, parts = catalogue.distances(counterfactuals, at, open_to)
        away = regions[:, catalogue.group_at] + parts
        least = away.min(axis=1)
        found[at] = np.where(
            np.isfinite(least), np.argmax(away <= least[:, None] + TIE, axis=1), -1
        )
    itself = catalogue.own(counterfactuals, groups)
    return np.where(itself >= 0, itself, found)


def distances_if_true(
    catalogue: Catalogue, limits: Constraints, open_to: Mask, entries: Ints
) -> Floats:
    """Return the distance of each query to some entries, infinite where an entry is no answer to
    it.

    An entry is an answer if it is permitted to the person, and if the model gives its outcome at
    the point of its region that is nearest to the query, with the entry's private values. It is not
    moved towards the query. The model is asked once about each query and entry, in large batches.

    Parameters
    ----------
    open_to : array, shape (n_queries, n_sides)
        True for the sides that may answer; see `EligibilityClasses.open_to`.
    entries : array, shape (n_entries,)

    Returns
    -------
    array, shape (n_queries, n_entries)
        As `Catalogue.distances`, of the region and of the private values together.
    """
    queries = limits.queries
    regions, parts = catalogue.distances(queries, np.arange(len(queries)), open_to)
    offered = {name: catalogue.offered(name) for name in limits.rules}
    quasi, private = _limits_of(catalogue, limits)
    regions[~quasi.admits_all(offered, regions.shape[1])] = np.inf
    parts[~private.admits_all(offered, len(catalogue))] = np.inf
    distances = regions[:, catalogue.group_at[entries]] + parts[:, entries]
    query, place = np.nonzero(np.isfinite(distances))
    pairs = RegionAndValues(query, entries[place], entries[place], distances[query, place])
    asked = _Asked(limits, None, queries, _AS_THEY_ARE, 0.0)
    pools = ValueTable(catalogue, queries, queries)

    def nearest_rows(at: Ints) -> pd.DataFrame:
        points, _ = _points(catalogue, asked, pools, pairs.take(at))
        return pools.frame(points)

    is_true = catalogue.judged(nearest_rows, pairs.entry)
    distances[query[~is_true], place[~is_true]] = np.inf
    return distances


def _candidates(
    catalogue: Catalogue,
    asked: _Asked,
    pools: ValueTable,
    given: AnswersSoFar,
    query: Ints,
    open_to: Mask,
    *,
    move_towards_query: bool,
) -> Iterator[RegionAndValues]:
    """Yield candidates for some queries, in rounds from near to far."""
    if asked.explainer_start is not None:
        yield _in_own_group(
            catalogue, asked, asked.explainer_start, query, move_towards_query=move_towards_query
        )
        query = query[given.left[query] > 0]
    if not len(query):
        return
    regions, parts = catalogue.distances(asked.start, query, open_to, asked.order_cost)
    if asked.limits.max_changes is not None:
        n_outside = catalogue.n_outside(asked.limits.queries.take(query))
        regions[n_outside > asked.limits.max_changes] = np.inf
    if asked.limits.rules:
        quasi, private = _limits_of(catalogue, asked.limits.take(query))
        offered = {name: catalogue.offered(name) for name in asked.limits.rules}
        regions[~quasi.admits_all(offered, regions.shape[1])] = np.inf
        if not move_towards_query:
            parts[~private.admits_all(offered, len(catalogue))] = np.inf
    away = regions[:, catalogue.group_at] + parts
    n_tried = _SHARED_TRIED if catalogue.is_shared else _TRIED
    line = nearest_first(away, n_tried)
    for first in range(0, len(catalogue), n_tried):
        if first == n_tried:  # rare: nothing nearer is true
            rows = np.flatnonzero(given.left[query] > 0)
            query, away = query[rows], away[rows]
            line = nearest_first(away, len(catalogue))
        entry = line[:, first : first + n_tried]
        distance = np.take_along_axis(away, entry, axis=1)
        at, place = np.nonzero(np.isfinite(distance))
        some = RegionAndValues(query[at], entry[at, place], entry[at, place], distance[at, place])
        mixes = move_towards_query and not first
        yield some.joined(_mixed(catalogue, asked, pools, query, regions, parts)) if mixes else some


def _limits_of(catalogue: Catalogue, limits: Constraints) -> tuple[Constraints, Constraints]:
    """Return the limits on quasi-identifiers, and those on private attributes."""
    schema = catalogue.partition.population.schema
    return limits.only(schema.quasi_identifiers), limits.only(schema.private)


def _in_own_group(
    catalogue: Catalogue,
    asked: _Asked,
    explainer_start: ExplainerStart,
    query: Ints,
    *,
    move_towards_query: bool,
) -> RegionAndValues:
    """Return anchors in their own groups: with their own private values, and as the entry that they
    are.
    """
    groups, nowhere = explainer_start.groups[query], np.zeros(len(query))
    weakest, itself = (
        catalogue.weakest_of(groups),
        catalogue.own(explainer_start.counterfactuals.take(query), groups),
    )
    kept = RegionAndValues(query, weakest, np.full(len(query), EXPLAINER_START), nowhere).take(
        np.flatnonzero(move_towards_query & explainer_start.may_keep_own_values & (weakest >= 0))
    )
    pairs = kept.joined(
        RegionAndValues(query, itself, itself, nowhere).take(np.flatnonzero(itself >= 0))
    )
    quasi, private = _limits_of(catalogue, asked.limits.take(pairs.query))
    fits = quasi.admits_paired(
        {n: catalogue.offered(n).take(catalogue.group_at[pairs.entry]) for n in quasi.rules}
    )
    if not move_towards_query:
        fits &= private.admits_paired(
            {n: catalogue.offered(n).take(pairs.part) for n in private.rules}
        )
    return pairs.take(np.flatnonzero(fits))


def _mixed(
    catalogue: Catalogue,
    asked: _Asked,
    pools: ValueTable,
    query: Ints,
    regions: Floats,
    parts: Floats,
) -> RegionAndValues:
    """Return the nearest combinations of a region and private values from elsewhere.

    These are other entries', the explainer's, or the query's own; with no explainer also its own
    and one of an entry.
    """
    own = pools.gaps(pools.queries.take(query), pools.start.take(query)).sum(axis=1)[:, None]
    part, away = (
        np.append([_OWN], catalogue.distinct),
        np.hstack([own, parts[:, catalogue.distinct]]),
    )
    if asked.explainer_start is not None:
        if asked.explainer_start.may_keep_own_values:
            part = np.append([EXPLAINER_START], part)
            away = np.hstack([np.zeros((len(query), 1)), away])
        return _nearest_combined(catalogue, query, regions, part, away)
    alone = np.arange(len(catalogue), len(catalogue.parts))
    changed = _changed(catalogue, pools, query, alone)
    further = _nearest_combined(
        catalogue, query, regions, alone, np.where(changed > 0, changed, np.inf)
    )
    return _nearest_combined(catalogue, query, regions, part, away).joined(further)


def _changed(catalogue: Catalogue, pools: ValueTable, query: Ints, part: Ints) -> Floats:
    """Return how far queries are from themselves with the given values of some parts.

    `query` has the shape (n_queries,), `part` (n_parts,), the result (n_queries, n_parts).
    """
    n_parts = len(part)
    own = pools.queries.take(np.repeat(query, n_parts))
    at = own.at.copy()
    numbers = own.numbers.copy()
    parts = catalogue.parts
    for i, j in enumerate(pools.private.tolist()):
        is_given = np.tile(parts.is_given[part, i], len(query))
        at[is_given, j] = np.tile(parts.values.codes[part, i], len(query))[is_given]
        numbers[is_given, j] = np.tile(parts.values.numbers[part, i], len(query))[is_given]
    changed: Floats = pools.gaps(own, Points(at, numbers)).sum(axis=1)
    return changed.reshape(len(query), n_parts)


def _nearest_combined(
    catalogue: Catalogue, query: Ints, regions: Floats, part: Ints, parts: Floats
) -> RegionAndValues:
    group, private = nearest_first(regions, _NEAR), nearest_first(parts, _NEAR)
    total = (
        np.take_along_axis(regions, group, axis=1)[:, :, None]
        + np.take_along_axis(parts, private, axis=1)[:, None]
    )
    total = total.reshape(len(query), -1)
    line = nearest_first(total, _MIXED)
    distance = np.take_along_axis(total, line, axis=1)
    at, place = np.nonzero(np.isfinite(distance))
    which, width = line[at, place], private.shape[1]
    entry = catalogue.weakest[group[at, which // width]]
    pairs = RegionAndValues(query[at], entry, part[private[at, which % width]], distance[at, place])
    return pairs.take(np.flatnonzero(~catalogue.is_wide(entry)))


def _results(
    catalogue: Catalogue,
    asked: _Asked,
    pools: ValueTable,
    pairs: RegionAndValues,
    given: AnswersSoFar,
    *,
    move_towards_query: bool,
) -> Iterator[Candidates]:
    """Yield the results of pairs that are true and start with new private values, from near to
    far.
    """
    is_alone = pairs.part >= len(catalogue)  # as many of these are tried too: few are true
    pairs = pairs.take(np.lexsort((np.round(pairs.distance / TIE), is_alone, pairs.query)))
    points, is_other = _points(catalogue, asked, pools, pairs)
    start = given.keys(points, pairs.entry)
    if len(new := np.flatnonzero(given.is_new(pairs.query, start))) < len(start):
        pairs, points, is_other, start = (
            pairs.take(new),
            points.take(new),
            is_other[new],
            start[new],
        )
    target = target_of(pools, asked.limits, pairs.query, points) if move_towards_query else points
    is_other |= pairs.part != pairs.entry
    most_changes = None
    if asked.limits.max_changes is not None:
        most_changes = _most_changes(catalogue, asked.limits, pairs)
        within = np.flatnonzero(
            _least_changes(catalogue, pools, pairs, points, target) <= most_changes
        )
        pairs, points, target = pairs.take(within), points.take(within), target.take(within)
        is_other, start, most_changes = is_other[within], start[within], most_changes[within]
    several = given.several[pairs.query]
    rounds = None
    if asked.options.rounding:
        rounds = Rounder(catalogue, pools, asked.limits).rounded
    search = Search(
        Probe(catalogue, pools),
        pools,
        pairs,
        points,
        target,
        is_other,
        asked.options,
        rounds=rounds,
        most_changes=most_changes,
    )

    def keys_of(at: Ints, moved: Points) -> Keys:
        return given.keys(moved, pairs.entry[at])

    def is_given(at: Ints, moved: Points) -> Mask:
        return ~given.is_new(pairs.query[at], start[at], keys_of(at, moved))

    if asked.explainer_start is None:
        count = _SHARED_MOVED if catalogue.is_shared else _MOVED_VALUES
    else:  # only what is nearest to the explainer's counterfactual is moved, if that is new
        n_queries = len(np.unique(pairs.query))
        count = max(1, 3 * _MOVED_VALUES // max(n_queries, 3))  # the same, with fewer questions
    for at, moved, away, said in search.results(
        count,
        given.left[pairs.query] > 0,
        several,
        start,
        is_given=is_given,
        keys_of=keys_of,
        one_by_one=asked.explainer_start is not None,
    ):
        distance = away if asked.explainer_start is None else pairs.distance[at]
        leaving = given.keys(moved, pairs.entry[at])
        yield Candidates(
            pairs.query[at],
            pairs.entry[at],
            pairs.part[at],
            moved,
            start[at],
            leaving,
            distance,
            said,
        )


def _most_changes(catalogue: Catalogue, limits: Constraints, pairs: RegionAndValues) -> Ints:
    """Return how many private values each pair's answer may change; shape (n_pairs,).

    These are the changes that are permitted without the quasi-identifiers that the region changes.
    The result is negative where these alone are too many.
    """
    assert limits.max_changes is not None  # noqa: S101 - the only caller has looked
    queries, row = np.unique(pairs.query, return_inverse=True)
    n_outside = catalogue.n_outside(limits.queries.take(queries))
    return np.asarray(limits.max_changes - n_outside[row, catalogue.group_at[pairs.entry]])


def _least_changes(
    catalogue: Catalogue, pools: ValueTable, pairs: RegionAndValues, points: Points, target: Points
) -> Ints:
    """Return how many private values each pair's answer changes at least; shape (n_pairs,).

    Where a pair can be moved, all of its values may become those of its target.
    """
    nearest_values = points.either(target, catalogue.is_movable(pairs.entry))
    own = pools.queries.take(pairs.query)
    return np.asarray(pools.changed(nearest_values, own).sum(axis=1))


def _points(
    catalogue: Catalogue, asked: _Asked, pools: ValueTable, pairs: RegionAndValues
) -> tuple[Points, Mask]:
    """Return the permitted point of each region nearest to the query, with the private values of
    the pair.

    Also a mask of shape (n_pairs,): True where a private value was replaced by a permitted one.
    """
    limits = asked.limits
    own = pools.queries.take(pairs.query)
    points = own.either(pools.start.take(pairs.query), pairs.part == EXPLAINER_START)
    is_replaced = np.zeros(len(pairs.query), dtype=bool)
    for i, j in enumerate(pools.private.tolist()):
        name = pools.schema.features[j]
        if catalogue.forms:  # answers must not depend on what is withheld
            offered = catalogue.offered(name).take(pairs.part)
            codes, numbers = limits.nearest(name, offered, pairs.query, offered.of)
            is_known = ~offered.is_silent[offered.of]
            points.at[is_known, j] = codes[is_known]
            points.numbers[is_known, j] = numbers[is_known]
            continue
        is_taken = (pairs.part >= 0) & catalogue.parts.is_given[pairs.part, i]
        taken = pairs.part[is_taken]
        points.at[is_taken, j] = catalogue.parts.values.codes[taken, i]
        points.numbers[is_taken, j] = catalogue.parts.values.numbers[taken, i]
        if name in limits.rules:
            is_replaced |= _permit(catalogue, asked, pairs.query, points, own, j)
    for j in pools.schema.quasi_positions:
        name = pools.schema.features[j]
        regions = catalogue.offered(name).take(catalogue.group_at[pairs.entry])
        points.at[:, j], points.numbers[:, j] = limits.nearest(
            name, regions, pairs.query, regions.of
        )
    return points, is_replaced


def _permit(
    catalogue: Catalogue, asked: _Asked, query: Ints, points: Points, own: Points, j: int
) -> Mask:
    """Replace one private feature's values of points by the nearest permitted ones, in place.

    Points and the queries' `own` rows belong to the n queries. Returns a mask of shape (n,): True
    where a value was not permitted.
    """
    name = catalogue.partition.population.schema.features[j]
    domain = catalogue.partition.population.domains[name]
    is_known = points.at[:, j] < domain.size
    codes = np.where(is_known, points.at[:, j], UNKNOWN).astype(np.int32)
    codes, numbers, is_other = asked.limits.nearest_to(name, query, codes, points.numbers[:, j])
    is_new_category = (codes < 0) & (not domain.is_numeric)  # which the population does not have
    places = np.where(is_new_category, own.at[:, j], codes)
    points.at[is_other, j] = places[is_other]
    points.numbers[is_other, j] = numbers[is_other]
    return is_other


def target_of(pools: ValueTable, limits: Constraints, query: Ints, points: Points) -> Points:
    """Return queries' own private values or, if not permitted, the nearest permitted number or the
    point's value.
    """
    target, queries = pools.queries.take(query), limits.queries
    for name in limits.only(pools.schema.private).rules:
        j, domain = pools.schema.features.index(name), queries.encoder.domains[name]
        own = queries.codes[query, j], queries.numbers[query, j]
        codes, numbers, is_other = limits.nearest_to(name, query, *own)
        is_missing = np.isnan(pools.number(target, j)) if domain.is_numeric else True
        is_nearer = domain.is_numeric & ~np.isnan(numbers) & ~is_missing
        places = (
            np.where(is_nearer, codes, points.at[:, j]),
            np.where(is_nearer, numbers, points.numbers[:, j]),
        )
        target.at[is_other, j], target.numbers[is_other, j] = (
            places[0][is_other],
            places[1][is_other],
        )
    return target


def nearest_first(distances: Floats, count: int) -> Ints:
    """Return the positions of the nearest, row by row from near to far; ties stay in order."""
    rows, width = distances.shape
    if width <= 2 * count:
        return np.argsort(np.round(distances / TIE), axis=1, kind="stable")[:, :count]
    limit = np.partition(distances, count - 1, axis=1)[:, count - 1]
    at, place = np.nonzero(distances <= limit[:, None] + TIE)
    line = np.lexsort((np.round(distances[at, place] / TIE), at))
    first = np.searchsorted(at, np.arange(rows))
    found: Ints = place[line[first[:, None] + np.arange(count)]]
    return found


class Candidates(NamedTuple):
    """Possible answers, each true for the person who asks."""

    asker: Ints  # from near to far for each
    entry: Ints
    part: Ints  # see `RegionAndValues`
    points: Points  # what an answer asks for, its private values as they would leave
    start: Keys  # private values that it began with, before they were moved
    leaving: Keys  # and those that it has now
    distance: Floats
    said: list[Predictions | None]  # see `CatalogueAnswers`


class AnswersSoFar:
    """The answers so far.

    No two to the same query have the same private values, or started with the same.

    So nobody can take two of them for one record's, and intersect their regions. Of what is left
    the nearest is given or, if an asker wants several, what adds the most to them: each time the
    least ``0.5 d(c, x) - g(c)``, where d is the summed HEOM distance to the query and g the factor
    by which c raises det K, ``K_ij = 1 / (1 + d(c_i, c_j))``. These are proximity, diversity and
    weights of DiCE (Mothilal, Sharma, Tan 2020, section 3). If another answer lies on the way, d(x,
    a) + d(a, c) = d(x, c), c asks for more than that one: it is given last.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        pools: ValueTable,
        queries: EncodedTable,
        who: Ints,
        wanted: Ints,
    ) -> None:
        # per asker
        self._catalogue, self._pools, self._queries, self.left = (
            catalogue,
            pools,
            queries,
            wanted.copy(),
        )
        self.several, self._said = wanted > 1, 0
        self._who = np.unique(who, return_inverse=True)[1]  # several askers may be one person
        counts = np.bincount(self._who, wanted) if len(who) else np.zeros(1)
        self._count, self._most = np.zeros(len(counts), dtype=np.int64), int(counts.max())
        shape = len(counts), self._most
        self._start, self._leaving = (
            np.zeros(shape, dtype=np.uint64),
            np.zeros(shape, dtype=np.uint64),
        )
        self.found: list[tuple[Ints, Ints, Ints, Floats, Points, list[Predictions | None]]] = []
        if self._most > 1:
            self._compare(shape)

    def _compare(self, shape: tuple[int, int]) -> None:
        """Prepare what answers to one person are compared by."""
        self._way = np.zeros(shape)  # how far from the query
        self._alike = np.tile(np.eye(self._most), (shape[0], 1, 1))
        population = self._catalogue.partition.population
        schema, domains = population.schema, population.domains
        widths = {
            n: domains[n].width
            for n in schema.quasi_identifiers
            if domains[n].attribute.kind == "numeric"
        }
        widths |= self._catalogue.private_values[0].ranges
        self._heom = Heom(
            [*widths], [name for name in schema.features if name not in widths], widths
        )
        self._numbers = np.zeros((*shape, len(self._heom.numeric)))
        self._codes = np.zeros((*shape, len(self._heom.categorical)), dtype=np.uint64)

    def has_any(self, asker: Ints) -> Mask:
        return np.asarray(self._count[self._who[asker]] > 0)

    def keys(self, points: Points, entry: Ints) -> Keys:
        """Return keys of points: their private values or, if there are none, their regions."""
        if self._most == 1:
            return np.zeros(len(entry), dtype=np.uint64)
        if not len(self._pools.private):
            return self._catalogue.region_at[self._catalogue.group_at[entry]].astype(np.uint64)
        domains, columns = self._catalogue.domains, list[Floats | Ints]()
        for name, j in zip(self._pools.schema.private, self._pools.private.tolist(), strict=True):
            columns.append(
                self._pools.number(points, j) + 0.0 if domains[name].is_numeric else points.at[:, j]
            )
        return np.asarray(
            pd.util.hash_pandas_object(pd.DataFrame(dict(enumerate(columns))), index=False),
            np.uint64,
        )

    def is_new(self, asker: Ints, start: Keys, leaving: Keys | None = None) -> Mask:
        """Say of private values, as keys, whether the asker's query has no answer with them yet."""
        person = self._who[asker]
        known = self._start[person] == start[:, None]
        if leaving is not None:
            known |= self._leaving[person] == leaving[:, None]
        known &= np.arange(self._most) < self._count[person][:, None]
        return np.asarray(~known.any(axis=1))

    def add(self, results: Candidates) -> None:
        """Give the best to everybody who wants an answer, until nobody can get another one."""
        if self._most == 1:  # the same result, with nothing to compare
            line = np.lexsort((np.round(results.distance / TIE), results.asker))
            self._note(results, line[np.unique(results.asker[line], return_index=True)[1]])
            return
        leaving, points = results.leaving, self._heom.encode(self._pools.frame(results.points))
        way = self._heom.parts(
            points, self._heom.encode(self._queries.frame.take(results.asker))
        ).sum(axis=1)
        while len(at := np.flatnonzero(self._may_be_given(results, leaving))):
            asker, person = results.asker[at], self._who[results.asker[at]]
            apart = self._apart(person, points.take(at))
            alike, beyond = (
                1 / (1 + apart),
                (self._way[person] + apart <= way[at, None] + TIE).any(axis=1),
            )
            score = _NEARNESS * results.distance[at] - self._gained(person, alike)
            is_one, several = results.distance[at], self.several[asker]
            line = np.lexsort(
                (np.round(np.where(several, score, is_one) / TIE), several & beyond, asker)
            )
            best = line[np.unique(asker[line], return_index=True)[1]]
            self._give(results, at[best], leaving, points, way, alike[best])

    def _may_be_given(self, results: Candidates, leaving: Keys) -> Mask:
        return (self.left[results.asker] > 0) & self.is_new(results.asker, results.start, leaving)

    def _apart(self, person: Ints, points: HeomCodes) -> Floats:
        """Return how far some points are from every answer that the person has; infinite if there
        is none.
        """
        apart = np.full((len(person), self._most), np.inf)
        for slot in range(int(self._count[person].max())):
            given, has = (
                HeomCodes(self._numbers[person, slot], self._codes[person, slot]),
                slot < self._count[person],
            )
            apart[has, slot] = self._heom.parts(points, given).sum(axis=1)[has]
        return apart

    def _gained(self, person: Ints, alike: Floats) -> Floats:
        """Return the factor by which det K grows with each point."""
        among = self._alike[person] + _RIDGE * np.eye(self._most)
        return np.asarray(
            1 - (alike * np.linalg.solve(among, alike[:, :, None])[:, :, 0]).sum(axis=1)
        )

    def _give(
        self,
        results: Candidates,
        at: Ints,
        leaving: Keys,
        points: HeomCodes,
        way: Floats,
        alike: Floats,
    ) -> None:
        person = self._who[results.asker[at]]
        slot = self._count[person]
        self._start[person, slot], self._leaving[person, slot] = results.start[at], leaving[at]
        self._numbers[person, slot], self._codes[person, slot] = (
            points.numbers[at],
            points.codes[at],
        )
        self._way[person, slot] = way[at]
        self._alike[person, slot], self._alike[person, :, slot] = alike, alike
        self._alike[person, slot, slot] = 1.0
        self._note(results, at)

    def _note(self, results: Candidates, at: Ints) -> None:
        asker = results.asker[at]
        self._count[self._who[asker]] += 1
        self.left[asker] -= 1
        said: list[Any] = list(map(results.said.__getitem__, at.tolist()))
        self._said += sum(0 if each is None else len(each) for each in said)
        if self._said > _SAID:
            said = [None] * len(said)
        which = results.entry[at], results.part[at]
        self.found.append((asker, *which, results.distance[at], results.points.take(at), said))
