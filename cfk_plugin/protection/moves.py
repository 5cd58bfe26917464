"""Points that answers ask for, and how near they can come to the query before an outcome is
lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.intake import FEW, Intake, divided, table_of, take_in
from cfk_plugin.data.margin import Predictions
from cfk_plugin.data.policy import Mask
from cfk_plugin.metrics.heom import differences
from cfk_plugin.protection.axes import Floats, Ints
from cfk_plugin.protection.catalogue import Catalogue

TIE = 1e-9
# rows in one call; up to them, more is asked at once to save calls, with the same result
AT_ONCE = 4096
_CHECKED = 32  # nearest results that are asked about wherever the outcome must hold
# nearest results whose numbers go these parts of the way as well
_ENDS, _PARTS = 2, (0.75, 0.5, 0.25)

Keys = NDArray[np.uint64]


def joined(*parts: Iterable[Any]) -> Iterable[Any]:
    return map(np.concatenate, zip(*parts, strict=True))


class Points(NamedTuple):
    """Rows: for each feature a position in `Pools`, or -1 and a number."""

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


class Pools:
    """What points are made of: the population's values, and categories of queries that it lacks."""

    def __init__(self, catalogue: Catalogue, queries: Intake, start: Intake) -> None:
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

    def _places(self, intake: Intake, first: int) -> Points:
        places = intake.codes.astype(np.int64)
        for j, domain in enumerate(self._domains):
            if not domain.is_numeric and len(lost := np.flatnonzero(places[:, j] < 0)):
                places[lost, j] = domain.size + first + lost
                self._others[j] = None
        return Points(places, intake.numbers)

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

    def rows(self, points: Points) -> Intake:
        """Return points as they would be taken in."""
        if len(points.at) > FEW:
            return take_in(self.frame(points), self._encoder)
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


class Probe:
    """Asks the model whether points keep the outcomes that their entries' groups must keep."""

    def __init__(self, catalogue: Catalogue, pools: Pools) -> None:
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


class Pairs(NamedTuple):
    """A query, the entry whose region may answer it, and which private values go with it: an
    entry's, or others.

    They are ordered by query; within a query, those with only one value of an entry come last.
    """

    query: Ints
    entry: Ints
    part: Ints
    distance: Floats

    def take(self, at: Ints) -> Pairs:
        return Pairs(self.query[at], self.entry[at], self.part[at], self.distance[at])

    def joined(self, others: Pairs) -> Pairs:
        return Pairs(*joined(self, others))


IsGiven = Callable[[Ints, Points], Mask]


class Search:
    """Finds the nearest results for some queries: true pairs, and what they come to on the way to
    the query.

    The first true pairs of each query take over its private values one after the other, the largest
    gap first, as long as the outcome is kept here and at a few combinations. What is nearest then
    is asked about at all combinations.
    """

    def __init__(
        self,
        probe: Probe,
        pools: Pools,
        pairs: Pairs,
        start: Points,
        target: Points,
        is_other: Mask,
    ):
        self._probe, self._pools, self._pairs, self._is_other = probe, pools, pairs, is_other
        self._start, self._target = start, target
        self._query = np.unique(pairs.query, return_inverse=True)[1]
        kind = 2 * self._query + (pairs.part >= len(probe.catalogue))
        self._first = np.searchsorted(kind, kind)
        gaps = pools.gaps(start, target)
        self._fixed = pairs.distance - gaps.sum(axis=1)
        steps = np.where(probe.catalogue.is_movable(pairs.entry)[:, None], gaps, 0.0)
        self._line, self._count = np.argsort(-steps, axis=1, kind="stable"), (steps > 0).sum(axis=1)
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
        of, trial, width = self._subsets(
            self._start.take(first), first, np.zeros(len(first), dtype=np.int64)
        )
        points, which, tell = (
            self._start.take(at).joined(trial),
            np.append(at, first[of]),
            self._is_other[at],
        )
        good = self._probe.keeps(points, self._pairs.entry[which], np.append(tell, of >= 0))
        good, *kept = divided(good, [len(at), *(2**width - 1).tolist()])
        self._good[at], self._known[at] = good, True
        self._kept.update(zip(first.tolist(), kept, strict=True))

    def _subsets(self, points: Points, pair: Ints, done: Ints) -> tuple[Ints, Points, Ints]:
        """Return points with every subset of their next columns taken over, the point of each, and
        numbers of columns.

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
            columns = self._pools.private[self._line[pair[which[rows]], done[which[rows]] + step]]
            trial.put(rows, columns, self._target, pair[which[rows]])
        return which, trial, width

    def _on_the_way(self, pair: Ints) -> tuple[Points, Ints]:
        """Return all points that pairs come to, one column after the other, each with the place of
        its pair.
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
                column = self._pools.private[self._line[pair[some], done[some] + step]]
                points.put(some, column, self._target, pair[some])
                found.append(points.take(some))
                of.append(some)
            done[at] += width
            at = at[done[at] < self._count[pair[at]]]
            which, trial, width = self._subsets(points.take(at), pair[at], done[at])
            good = self._probe.keeps(
                trial, self._pairs.entry[pair[at[which]]], np.ones(len(which), dtype=bool)
            )
        return Points(*joined(*found)), np.concatenate(of)

    def results(
        self, count: int, wanted: Mask, several: Mask, start: Keys, is_given: IsGiven | None
    ) -> Iterator[tuple[Ints, Points, Floats, list[Predictions | None]]]:
        """Yield the nearest results of the next true pairs: one for each query or, if several are
        wanted, each start.

        With `is_given`, which says what may not be given again, the first pairs come first instead.
        """
        while len(some := self._true(count, wanted, several)):
            self._done[some] = True
            points, of = self._on_the_way(some)
            units = self._query[some], np.where(several[some], start[some], 0).astype(np.int64)
            unit = np.unique(np.column_stack(units), axis=0, return_inverse=True)[1].reshape(-1)
            run = unit if is_given is None else np.arange(len(some))
            further, which = self._part_of_the_way(points, of, some, run)
            is_new = np.repeat([False, True], [len(of), len(which)])
            points, of = points.joined(further), np.append(of, which)
            if is_given is not None:
                left = np.flatnonzero(~is_given(some[of], points))
                points, of, is_new = points.take(left), of[left], is_new[left]
            away, pair = self._away(points, some[of]), some[of]
            line = np.lexsort((np.round(away / TIE), run[of]))
            is_sure = ~self._is_other[pair] & ~points.differ(self._start.take(pair))
            places = unit[of[line]], run[of[line]]
            best, said = self._first_held(
                points.take(line), pair[line], *places, is_sure[line], is_new[line]
            )
            at = line[best]
            wanted = wanted & (several | ~np.isin(self._query, self._query[pair[at]]))
            yield pair[at], points.take(at), away[at], said

    def _away(self, points: Points, pair: Ints) -> Floats:
        return np.asarray(
            self._fixed[pair] + self._pools.gaps(points, self._target.take(pair)).sum(axis=1)
        )

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
        self, points: Points, pair: Ints, unit: Ints, run: Ints, good: Mask, is_new: Mask
    ) -> tuple[Ints, list[Predictions | None]]:
        """Return the first of each unit that has the outcome wherever it must hold, and what the
        model says there.
        """
        entry, first, said = (
            self._pairs.entry[pair],
            np.searchsorted(unit, unit),
            dict[int, Predictions](),
        )
        known = good | (np.arange(len(run)) - np.searchsorted(run, run) >= _CHECKED)
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
