"""Points that answers ask for, and how near they can come to the query before an outcome is
lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.encoded_table import FEW, EncodedTable, divided, encode, table_of
from cfk_plugin.data.policy import Mask
from cfk_plugin.data.predictions import Predictions
from cfk_plugin.metrics.heom import differences
from cfk_plugin.protection.axes import Floats, Ints
from cfk_plugin.protection.catalogue.catalogue import Catalogue

TIE = 1e-9
# rows in one call; up to them, more is asked at once to save calls, with the same result
AT_ONCE = 4096
_CHECKED = 32  # nearest results that are asked about wherever the outcome must hold
# nearest results whose numbers go these parts of the way as well
_ENDS, _PARTS = 2, (0.75, 0.5, 0.25)

Keys = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What the search for answers prefers among results that are true.

    Attributes
    ----------
    change_cost : float
        What each private attribute that differs from the query's adds to the distance of a result.
    rounding : bool
        Whether numbers that change are rounded where that keeps the outcome.
    both_orders : bool
        Whether private values also become the query's with the smallest gap first.
    """

    change_cost: float
    rounding: bool
    both_orders: bool


def joined(*parts: Iterable[Any]) -> Iterable[Any]:
    return map(np.concatenate, zip(*parts, strict=True))


class Points(NamedTuple):
    """Rows: for each feature a position in `ValueTable`, or -1 and a number."""

    at: Ints
    numbers: Floats

    def take(self, rows: Ints | Mask) -> Points:
        at = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        # faster than by index
        return Points(self.at.take(at, axis=0), self.numbers.take(at, axis=0))

    def either(self, others: Points, is_other: Mask) -> Points:
        which = is_other[:, None]
        return Points(
            np.where(which, others.at, self.at), np.where(which, others.numbers, self.numbers)
        )

    def differ(self, others: Points) -> Mask:
        return np.asarray(
            ((self.at != others.at) | ((self.at < 0) & (self.numbers != others.numbers))).any(
                axis=1
            )
        )

    def put(self, rows: Ints, columns: Ints, others: Points, of: Ints) -> None:
        """Overwrite one column of each of some rows with the value of one of the others."""
        self.at[rows, columns] = others.at[of, columns]
        self.numbers[rows, columns] = others.numbers[of, columns]

    def write(self, rows: Ints, columns: Ints, numbers: Floats) -> None:
        """Overwrite one column of each of some rows with numbers."""
        self.at[rows, columns], self.numbers[rows, columns] = -1, numbers

    def joined(self, others: Points) -> Points:
        return Points(*joined(self, others))


class ValueTable:
    """What points are made of: the population's values, and categories of queries that it lacks."""

    def __init__(self, catalogue: Catalogue, queries: EncodedTable, start: EncodedTable) -> None:
        heom, _ = catalogue.private_values
        self._encoder, self.schema, self._domains = (
            queries.encoder,
            queries.encoder.schema,
            queries.encoder.columns,
        )
        # NaN for what moves at once or not at all
        self.decimals = np.array(catalogue.decimals, dtype=np.float64)
        self.private = np.array(catalogue.private_at, dtype=np.int64)
        self.ranges = [heom.ranges.get(name, 0.0) for name in self.schema.private]
        self._others: dict[int, Any] = {}
        # rows that are asked about along with the first question, and what the model says of them
        self.waiting: Points | None = None
        self.own: Predictions | None = None
        self.queries = self.start = self._places(queries, 0)
        if start is not queries:
            self.start = self._places(start, len(queries))
            # a category that only the query and the start have is the same one
            for j in self._others:
                own, found = (each.frame.iloc[:, j].astype(object) for each in (queries, start))
                both = (self.queries.at[:, j] >= self._domains[j].size) & (
                    self.start.at[:, j] >= self._domains[j].size
                )
                both &= (own == found).to_numpy(dtype=bool, na_value=False)
                self.start.at[both, j] = self.queries.at[both, j]
        sources = (queries,) if start is queries else (queries, start)
        for j in self._others:
            known = self._domains[j].restore_array(np.arange(self._domains[j].size))
            self._others[j] = pd.concat(
                [pd.Series(each) for each in (known, *(source.column(j) for source in sources))],
                ignore_index=True,
            ).array

    def _places(self, encoded: EncodedTable, first: int) -> Points:
        places = encoded.codes.astype(np.int64)
        for j, domain in enumerate(self._domains):
            if not domain.is_numeric and len(lost := np.flatnonzero(places[:, j] < 0)):
                places[lost, j] = domain.size + first + lost
                self._others[j] = None
        return Points(places, encoded.numbers)

    def frame(self, points: Points) -> pd.DataFrame:
        """Return points as the model takes them."""
        columns = {}
        for j, feature in enumerate(self.schema.features):
            place = points.at[:, j]
            other = self._others.get(j)
            if other is None:
                columns[feature] = self._domains[j].column(place, points.numbers[:, j])
            else:
                columns[feature] = other.take(place)
        return table_of(columns)

    def rows(self, points: Points) -> EncodedTable:
        """Return points as they would be taken in."""
        if len(points.at) > FEW:
            return encode(self.frame(points), self._encoder)
        own, parts = (
            self._others,
            enumerate(zip(self._domains, points.at.T, points.numbers.T, strict=True)),
        )
        values = [
            own[j].take(at).tolist() if j in own else domain.spell(at, n)
            for j, (domain, at, n) in parts
        ]
        return self._encoder.read_values(values)

    def number(self, points: Points, j: int) -> Floats:
        """Return one column of points as numbers, NaN where it is missing."""
        return self._domains[j].numbers_of(points.at[:, j], points.numbers[:, j])

    def gaps(self, a: Points, b: Points) -> Floats:
        """Return how much the private values of row i of `a` differ from those of row i of `b`, by
        HEOM.
        """
        found = np.empty((len(a.at), len(self.private)))
        for i, j in enumerate(self.private.tolist()):
            if self._domains[j].is_numeric:
                found[:, i] = differences(
                    self.number(a, j), self.number(b, j), np.array(self.ranges[i])
                )
            else:
                found[:, i] = a.at[:, j] != b.at[:, j]
        return found

    def changed(self, a: Points, b: Points) -> Mask:
        """Return a mask of the private values that differ between points; shape (n, n_private).

        Unlike `gaps` it also sees numbers that differ in a column whose range is 0.
        """
        is_changed = np.empty((len(a.at), len(self.private)), dtype=bool)
        for i, j in enumerate(self.private.tolist()):
            if self._domains[j].is_numeric:
                before = self.number(a, j)
                after = self.number(b, j)
                both_missing = np.isnan(before) & np.isnan(after)
                is_changed[:, i] = (before != after) & ~both_missing
            else:
                is_changed[:, i] = a.at[:, j] != b.at[:, j]
        return is_changed


class Probe:
    """Asks the model whether points keep the outcomes that their entries' groups must keep."""

    def __init__(self, catalogue: Catalogue, pools: ValueTable) -> None:
        self.catalogue, self._pools = catalogue, pools
        self._quasi = np.array(pools.schema.quasi_positions, dtype=np.int64)

    def _said(self, points: Points) -> Predictions:
        waiting = self._pools.waiting
        self._pools.waiting = None
        every = points if waiting is None else points.joined(waiting)
        predictions = self.catalogue.said(
            lambda some: self._pools.frame(every.take(some)), len(every.at)
        )
        if waiting is None:
            return predictions
        of_points, self._pools.own = predictions.divided([len(points.at), len(waiting.at)])
        return of_points

    def keeps(self, points: Points, entry: Ints, tell: Mask) -> Mask:
        """Say whether points have the outcome here and, where `tell` says so, at the few most
        telling combinations.
        """
        first, count, told = self.catalogue.telling
        group = self.catalogue.group_at[entry]
        size = np.where(tell, count[group], 0)
        good, here = np.ones(len(size), dtype=bool), 1
        if size.sum() + len(size) > AT_ONCE:  # one call more, for fewer rows
            good, here = self.catalogue.judge(self._said(points), entry), 0
            size = np.where(good, size, 0)
        at = np.repeat(np.arange(len(size)), size + here)
        turn = np.arange(len(at)) - np.repeat(np.cumsum(size + here) - size, size + here)
        rows, there = points.take(at), turn >= 0
        rows.at[np.ix_(there, self._quasi)] = told[first[group[at[there]]] + turn[there]]
        if len(at):
            good[at[~self.catalogue.judge(self._said(rows), entry[at])]] = False
        return good

    def lost(self, points: Points, entry: Ints, new: Ints) -> tuple[Mask, list[Predictions]]:
        """Say which points have not the outcome wherever it must hold with their entries' regions;
        `new` also here.

        Also return what the model says of all combinations of these regions.
        """
        groups = self.catalogue.group_at[entry].tolist()
        cells = list(map(self.catalogue.combinations, groups))
        sizes = np.array([*map(len, cells)], dtype=np.int64)
        at = np.repeat(np.arange(len(entry)), sizes)
        rows = points.take(at)
        rows.at[:, self._quasi] = np.concatenate([self.catalogue.no_cells, *cells])
        must = np.concatenate([np.ones(len(new), dtype=bool), *map(self.catalogue.holding, groups)])
        predictions = self._said(points.take(new).joined(rows))
        of = np.append(new, at)
        is_lost = must & ~self.catalogue.judge(predictions, entry[of])
        _, *at_combinations = predictions.divided([len(new), *sizes.tolist()])
        return np.bincount(of, is_lost, len(entry)) > 0, at_combinations


class RegionAndValues(NamedTuple):
    """A query, the entry whose region may answer it, and which private values go with it: an
    entry's, or others.

    They are ordered by query; within a query, those with only one value of an entry come last.
    """

    query: Ints
    entry: Ints
    part: Ints
    distance: Floats

    def take(self, at: Ints) -> RegionAndValues:
        return RegionAndValues(self.query[at], self.entry[at], self.part[at], self.distance[at])

    def joined(self, others: RegionAndValues) -> RegionAndValues:
        return RegionAndValues(*joined(self, others))


IsGiven = Callable[[Ints, Points], Mask]
KeysOf = Callable[[Ints, Points], Keys]
Rounds = Callable[[Points, Ints], Points]
"""Returns points, given with the query of each, with rounded numbers; see `Rounder`."""


class Reached(NamedTuple):
    """Points that pairs come to, in no order."""

    points: Points
    of: Ints  # shape (n,); position of each point's pair
    is_new: Mask  # shape (n,); True where the model was not asked about the point itself

    def take(self, at: Ints) -> Reached:
        return Reached(self.points.take(at), self.of[at], self.is_new[at])

    def joined(self, others: Reached) -> Reached:
        return Reached(
            self.points.joined(others.points),
            np.append(self.of, others.of),
            np.append(self.is_new, others.is_new),
        )


class Search:
    """Finds the nearest results for some queries: true pairs, and what they come to on the way to
    the query.

    The first true pairs of each query take over its private values one after the other, the largest
    gap first, as long as the outcome is kept here and at a few combinations. What is nearest then
    is asked about at all combinations.

    Parameters
    ----------
    probe : Probe
    pools : Pools
    pairs : Pairs
    start, target : Points
        Where each pair begins, and what it may become.
    is_other : mask of shape (n_pairs,)
        Where private values are not those of the pair's entry, so that the model must be asked.
    options : SearchOptions
    rounds : callable, optional
        Rounds numbers of results; None if they are not rounded.
    most_changes : array of shape (n_pairs,), optional
        How many private values of each pair's result may differ from the query's.
    """

    def __init__(
        self,
        probe: Probe,
        pools: ValueTable,
        pairs: RegionAndValues,
        start: Points,
        target: Points,
        is_other: Mask,
        options: SearchOptions,
        *,
        rounds: Rounds | None = None,
        most_changes: Ints | None = None,
    ):
        self._probe, self._pools, self._pairs, self._is_other = probe, pools, pairs, is_other
        self._start, self._target = start, target
        self._change_cost = options.change_cost
        self._rounds = rounds
        self._most_changes = most_changes
        self._query = np.unique(pairs.query, return_inverse=True)[1]
        kind = 2 * self._query + (pairs.part >= len(probe.catalogue))
        self._first = np.searchsorted(kind, kind)
        gaps = pools.gaps(start, target)
        self._fixed = pairs.distance - gaps.sum(axis=1)
        steps = gaps + self._change_cost * pools.changed(start, target)
        steps[~probe.catalogue.is_movable(pairs.entry)] = 0.0
        self._count = (steps > 0).sum(axis=1)
        # In each, the columns that differ come first; shape (n_pairs, n_private).
        self._orders = [np.argsort(-steps, axis=1, kind="stable")]
        if options.both_orders:
            smallest_first = np.where(steps > 0, steps, np.inf)
            self._orders.append(np.argsort(smallest_first, axis=1, kind="stable"))
        self._good = ~(is_other & probe.catalogue.is_wide(pairs.entry))
        self._known, self._done = ~self._good, np.zeros(len(is_other), dtype=bool)
        # by pair, which subsets of its first columns hold, if known
        self._kept: dict[int, Mask] = {}

    def _true(self, count: int, wanted: Mask, several: Mask) -> Ints:
        """Return the first true pairs of each query, or all."""
        while True:
            is_open, true = (
                ~self._known & wanted & ~self._done,
                self._good & self._known & wanted & ~self._done,
            )
            is_few = several | (_before(true, self._first) < count)
            if not len(at := np.flatnonzero(is_open & is_few)):
                return np.flatnonzero(true & is_few)
            room = max(AT_ONCE // (4 * len(np.unique(self._query[at]))), 2 * count)
            at, first = at[_before(is_open, self._first)[at] < room], (self._count > 0) & is_open
            self._try(
                at, at[first[at] & (_before(first, self._first)[at] < count + (count + 1) // 2)]
            )

    def _try(self, at: Ints, first: Ints) -> None:
        """Ask whether pairs are true and, if there is room, what the first ones can take over."""
        first = first if len(first) <= AT_ONCE // 16 else first[:0]
        none_done = np.zeros(len(first), dtype=np.int64)
        of, trial, width = self._subsets(self._start.take(first), first, none_done, self._orders[0])
        points, which, tell = (
            self._start.take(at).joined(trial),
            np.append(at, first[of]),
            self._is_other[at],
        )
        good = self._probe.keeps(points, self._pairs.entry[which], np.append(tell, of >= 0))
        good, *kept = divided(good, [len(at), *(2**width - 1).tolist()])
        self._good[at], self._known[at] = good, True
        self._kept.update(zip(first.tolist(), kept, strict=True))

    def _subsets(
        self, points: Points, pair: Ints, done: Ints, order: Ints
    ) -> tuple[Ints, Points, Ints]:
        """Return points with every subset of their next columns taken over, the point of each, and
        numbers of columns. The order of columns is one of `_orders`.

        There are as many columns as there is room for, so one call of the model tells which of them
        are taken over, one after the other.
        """
        left, most = self._count[pair] - done, 1
        while (
            most < left.max(initial=0)
            and (2 ** np.minimum(left, most + 1) - 1).sum() <= AT_ONCE // 4
        ):
            most += 1
        size = 2 ** (width := np.minimum(left, most)) - 1
        which, first = np.repeat(np.arange(len(pair)), size), np.cumsum(size) - size
        subset = np.arange(len(which)) - np.repeat(first, size) + 1
        trial = points.take(which)
        for step in range(int(width.max(initial=0))):
            rows = np.flatnonzero(subset >> step & 1)
            columns = self._pools.private[order[pair[which[rows]], done[which[rows]] + step]]
            trial.put(rows, columns, self._target, pair[which[rows]])
        return which, trial, width

    def _on_the_way(self, pair: Ints, order: Ints) -> tuple[Points, Ints]:
        """Return all points that pairs come to, one column after the other, each with the place of
        its pair. The order of columns is one of `_orders`.
        """
        points, at = self._start.take(pair), np.flatnonzero(self._count[pair])
        found, of = [self._start.take(pair)], [np.arange(len(pair))]
        done, nothing = np.zeros(len(pair), dtype=np.int64), np.empty(0, dtype=bool)
        kept = [self._kept.pop(i, nothing) for i in pair[at].tolist()]
        width = np.log2(np.array([*map(len, kept)]) + 1).astype(np.int64)
        good = np.concatenate([nothing, *kept])
        while len(at):
            first, taken = (
                np.cumsum(2**width - 1) - (2**width - 1),
                np.zeros(len(at), dtype=np.int64),
            )
            for step in range(int(width.max(initial=0))):
                tried = taken | 1 << step
                holds = (step < width) & good[np.minimum(first + tried, len(good)) - 1]
                taken[holds], some = tried[holds], at[holds]
                column = self._pools.private[order[pair[some], done[some] + step]]
                points.put(some, column, self._target, pair[some])
                found.append(points.take(some))
                of.append(some)
            done[at] += width
            at = at[done[at] < self._count[pair[at]]]
            which, trial, width = self._subsets(points.take(at), pair[at], done[at], order)
            good = self._probe.keeps(
                trial, self._pairs.entry[pair[at[which]]], np.ones(len(which), dtype=bool)
            )
        return Points(*joined(*found)), np.concatenate(of)

    def results(
        self,
        count: int,
        wanted: Mask,
        several: Mask,
        start: Keys,
        *,
        is_given: IsGiven,
        keys_of: KeysOf,
        one_by_one: bool,
    ) -> Iterator[tuple[Ints, Points, Floats, list[Predictions | None]]]:
        """Yield the nearest results of the next true pairs: one for each query or, if several are
        wanted, each start.

        `is_given` returns a mask of results that may not be given again. With `one_by_one` the
        first pairs come first instead, and none of their results may be such a one.
        """
        while len(some := self._true(count, wanted, several)):
            self._done[some] = True
            units = self._query[some], np.where(several[some], start[some], 0).astype(np.int64)
            unit = np.unique(np.column_stack(units), axis=0, return_inverse=True)[1].reshape(-1)
            run = np.arange(len(some)) if one_by_one else unit
            reached = self._reached(some, run)
            if one_by_one:
                reached = reached.take(np.flatnonzero(~is_given(some[reached.of], reached.points)))
            if self._most_changes is not None:
                n_changes = self._changed(reached.points, some[reached.of]).sum(axis=1)
                is_within = n_changes <= self._most_changes[some[reached.of]]
                reached = reached.take(np.flatnonzero(is_within))
            reached, rank = self._in_order(reached, some, run, several, is_given, keys_of)
            points, pair = reached.points, some[reached.of]
            is_sure = ~self._is_other[pair] & ~points.differ(self._start.take(pair))
            best, said = self._first_held(
                points, pair, unit[reached.of], rank, is_sure, reached.is_new
            )
            wanted = wanted & (several | ~np.isin(self._query, self._query[pair[best]]))
            released = points.take(best)
            yield pair[best], released, self._away(released, pair[best]), said

    def _reached(self, some: Ints, run: Ints) -> Reached:
        """Return all points that some pairs come to, in each order of columns.

        `run` has the shape (n_some,); see `_part_of_the_way`.
        """
        walks = []
        for order in self._orders:
            points, of = self._on_the_way(some, order)
            further, which = self._part_of_the_way(points, of, some, run)
            walks.append(Reached(points, of, np.zeros(len(of), dtype=bool)))
            walks.append(Reached(further, which, np.ones(len(which), dtype=bool)))
        reached = walks[0]
        for walk in walks[1:]:
            reached = reached.joined(walk)
        return reached

    def _in_order(
        self,
        reached: Reached,
        some: Ints,
        run: Ints,
        several: Mask,
        is_given: IsGiven,
        keys_of: KeysOf,
    ) -> tuple[Reached, Ints]:
        """Return points from near to far in each run, and the rank of each in its run.

        Right before each of the nearest comes the same point with rounded numbers, which has the
        same rank.
        """
        away = np.round(self._away(reached.points, some[reached.of]) / TIE)
        line = np.lexsort((away, run[reached.of]))
        runs = run[reached.of[line]]
        rank = np.arange(len(line)) - np.searchsorted(runs, runs)
        ordered = reached.take(line)
        if self._rounds is None:
            return ordered, rank
        rounded, base = self._rounded(ordered, some, np.flatnonzero(rank < _CHECKED), is_given)
        every = ordered.joined(rounded)
        at = np.append(np.arange(len(line)), base)
        is_rounded = np.arange(len(at)) >= len(line)
        line = np.lexsort((~is_rounded, at))
        every, is_rounded, rank = every.take(line), is_rounded[line], rank[at[line]]
        pair = some[every.of]
        is_repeated = np.zeros(len(line), dtype=bool)
        among_several = np.flatnonzero(several[pair])
        if len(among_several):
            # Two answers to one query must not have the same private values. The nearest point
            # keeps them, whatever the order of runs, which differs from process to process.
            points = every.points.take(among_several)
            away = np.round(self._away(points, pair[among_several]) / TIE)
            nearest = np.lexsort((pair[among_several], away))
            keys = keys_of(pair[among_several], points)[nearest]
            known = pd.DataFrame({"query": self._query[pair[among_several]][nearest], "key": keys})
            is_repeated[among_several[nearest]] = known.duplicated().to_numpy()
        left = np.flatnonzero(~(is_rounded & is_repeated))
        return every.take(left), rank[left]

    def _rounded(
        self, reached: Reached, some: Ints, at: Ints, is_given: IsGiven
    ) -> tuple[Reached, Ints]:
        """Return those of some points that have other numbers when rounded, and the position of
        the point of each.

        Left out are points whose regions are too wide to ask about, and what may not be given.
        """
        assert self._rounds is not None  # noqa: S101 - the only caller has looked
        is_wide = self._probe.catalogue.is_wide(self._pairs.entry[some[reached.of[at]]])
        at = at[~is_wide]
        pair = some[reached.of[at]]
        points = reached.points.take(at)
        rounded = self._rounds(points, self._pairs.query[pair])
        is_kept = rounded.differ(points) & ~is_given(pair, rounded)
        kept = np.flatnonzero(is_kept)
        is_new = np.ones(len(kept), dtype=bool)
        return Reached(rounded.take(kept), reached.of[at[kept]], is_new), at[kept]

    def _changed(self, points: Points, pair: Ints) -> Mask:
        """Return a mask of the private values that are not the query's; shape (n, n_private)."""
        own = self._pools.queries.take(self._pairs.query[pair])
        return self._pools.changed(points, own)

    def _away(self, points: Points, pair: Ints) -> Floats:
        gaps = self._pools.gaps(points, self._target.take(pair)).sum(axis=1)
        n_changes = self._changed(points, pair).sum(axis=1)
        return np.asarray(self._fixed[pair] + gaps + self._change_cost * n_changes)

    def _part_of_the_way(
        self, points: Points, of: Ints, pairs: Ints, run: Ints
    ) -> tuple[Points, Ints]:
        """Return the nearest results of each run with one number part of the way; nobody asked
        about them yet.
        """
        end = np.zeros(len(pairs), dtype=np.int64)
        end[of] = np.arange(len(of))  # the last one
        line = np.lexsort((np.round(self._away(points.take(end), pairs) / TIE), run))
        nearest = line[np.arange(len(line)) - np.searchsorted(run[line], run[line]) < _ENDS]
        nearest = nearest[self._count[pairs[nearest]] > 0]
        ends, target = points.take(end[nearest]), self._target.take(pairs[nearest])
        found, which = [ends.take(nearest[:0])], [nearest[:0]]
        in_steps = ~np.isnan(self._pools.decimals)
        for j, decimals in zip(
            self._pools.private[in_steps], self._pools.decimals[in_steps], strict=True
        ):
            low, high = self._pools.number(ends, j), self._pools.number(target, j)
            at = np.flatnonzero(
                np.isfinite(high - low) & (np.abs(high - low) * 10.0**decimals > 1 + TIE)
            )
            for part in _PARTS if len(at) else ():
                number = np.round(low + part * (high - low), int(decimals)).clip(
                    np.fmin(low, high), np.fmax(low, high)
                )
                found.append(trial := ends.take(at))
                trial.write(np.arange(len(at)), np.full(len(at), j), number[at])
                which.append(nearest[at])
        return Points(*joined(*found)), np.concatenate(which)

    def _first_held(
        self, points: Points, pair: Ints, unit: Ints, rank: Ints, good: Mask, is_new: Mask
    ) -> tuple[Ints, list[Predictions | None]]:
        """Return the first of each unit that has the outcome wherever it must hold, and what the
        model says there. Points have a rank in their run; only those of the least are asked about.
        """
        entry, first, said = (
            self._pairs.entry[pair],
            np.searchsorted(unit, unit),
            dict[int, Predictions](),
        )
        known = good | (rank >= _CHECKED)
        size = self._probe.catalogue.sizes_of(entry)
        if len(new := np.flatnonzero(is_new & ~known)) and size[new].sum() > AT_ONCE:
            known[new] = ~self._probe.keeps(
                points.take(new), entry[new], np.ones(len(new), dtype=bool)
            )
        while len(at := np.flatnonzero(~known & (_before(good, first) == 0))):
            turn = np.arange(len(at)) - np.searchsorted(unit[at], unit[at])
            at = at[line := np.argsort(turn, kind="stable")]
            at = at[(turn[line] == 0) | (np.cumsum(size[at]) <= AT_ONCE)]
            lost, labels = self._probe.lost(points.take(at), entry[at], np.flatnonzero(is_new[at]))
            said.update((i, labels[n]) for n, i in enumerate(at.tolist()) if not lost[n])
            known[at], good[at] = True, ~lost
        best = np.flatnonzero(good & (_before(good, first) == 0))
        return best, list(map(said.get, best.tolist()))


def _before(flags: Mask, first: Ints) -> Ints:
    """Return how many come before each, from the first that it is counted with."""
    counts: Ints = np.cumsum(flags) - flags
    return counts - counts[first]
