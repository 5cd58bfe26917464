"""Points that answers ask for, and how near the true ones can come to the query before an outcome is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count as count_from
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.intake import FEW, Intake, table_of, take_in
from cfk_plugin.data.model import Labels
from cfk_plugin.data.policy import Mask
from cfk_plugin.metrics.heom import differences
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.catalogue import Catalogue, spread

TIE = 1e-9
_FEW_ROWS = 4096  # in one call; above, a further call is made to have fewer rows
AT_ONCE = 1024  # rows in one call; up to them, more is asked at once to save calls, with the same result
_HALVINGS = 4
_SHOWN = 4  # combinations that it then learns from
_RESTARTS = 6  # how often moving starts again after something was lost

Keys = NDArray[np.uint64]


def joined(*parts: Iterable[Any]) -> Iterable[Any]:
    return map(np.concatenate, zip(*parts, strict=True))


class Points(NamedTuple):
    """Rows: for each feature a position in `Pools`, or -1 and a number."""

    at: Ints
    numbers: Floats

    def take(self, rows: Ints | Mask) -> Points:
        return Points(self.at[rows], self.numbers[rows])

    def either(self, others: Points, is_other: Mask) -> Points:
        which = is_other[:, None]
        return Points(np.where(which, others.at, self.at), np.where(which, others.numbers, self.numbers))

    def differ(self, others: Points) -> Mask:
        return np.asarray(((self.at != others.at) | ((self.at < 0) & (self.numbers != others.numbers))).any(axis=1))

    def put(self, rows: Ints, columns: Ints, others: Points, of: Ints) -> None:
        """Overwrite one column of each of some rows with the value of one of the others."""
        self.at[rows, columns] = others.at[of, columns]
        self.numbers[rows, columns] = others.numbers[of, columns]

    def write(self, rows: Ints, columns: Ints, numbers: Floats) -> None:
        """Overwrite one column of each of some rows with numbers."""
        self.at[rows, columns], self.numbers[rows, columns] = -1, numbers

    def keys(self, entry: Ints) -> list[bytes]:
        """Return keys by which rows with their entries are recognized."""
        known = np.where(self.at < 0, self.numbers, 0.0).view(np.int64)
        return list(map(np.ndarray.tobytes, np.column_stack([entry, self.at, known])))

    def joined(self, others: Points) -> Points:
        return Points(*joined(self, others))


class Pools:
    """What points are made of: the population's values, and categories of queries that it lacks."""

    def __init__(self, catalogue: Catalogue, queries: Intake, start: Intake) -> None:
        heom, _ = catalogue.private_values
        self._encoder, self.schema, self._domains = queries.encoder, queries.encoder.schema, queries.encoder.columns
        self.decimals = np.array(catalogue.decimals, dtype=np.float64)  # NaN for what moves at once or not at all
        self.private = np.array(catalogue.private_at, dtype=np.int64)
        self.ranges = [heom.ranges.get(name, 0.0) for name in self.schema.private]
        self._others: dict[int, Any] = {}
        self.waiting: Points | None = None  # rows that are asked about along with the first question, and their labels
        self.own: Labels | None = None
        self.queries = self.start = self._places(queries, 0)
        if start is not queries:
            self.start = self._places(start, len(queries))
            for j in self._others:  # a category that only the query and the start have is the same one
                own, found = (each.frame.iloc[:, j].astype(object) for each in (queries, start))
                both = (self.queries.at[:, j] >= self._domains[j].size) & (self.start.at[:, j] >= self._domains[j].size)
                both &= (own == found).to_numpy(dtype=bool, na_value=False)
                self.start.at[both, j] = self.queries.at[both, j]
        sources = (queries,) if start is queries else (queries, start)
        for j in self._others:
            known = self._domains[j].restore_array(np.arange(self._domains[j].size))
            self._others[j] = pd.concat(
                [pd.Series(each) for each in (known, *(source.column(j) for source in sources))], ignore_index=True
            ).array

    def _places(self, intake: Intake, first: int) -> Points:
        places = intake.codes.astype(np.int64)
        for j, domain in enumerate(self._domains):
            if not domain.is_numeric and len(lost := np.flatnonzero(places[:, j] < 0)):
                places[lost, j] = domain.size + first + lost
                self._others[j] = None
        return Points(places, intake.numbers)

    def frame(self, points: Points, features: Ints | None = None) -> pd.DataFrame:
        """Return points as the model takes them, or some of their features."""
        columns = {}
        for j in range(len(self._domains)) if features is None else features.tolist():
            place, other = points.at[:, j], self._others.get(j)
            columns[self.schema.features[j]] = (
                self._domains[j].column(place, points.numbers[:, j]) if other is None else other.take(place)
            )
        return table_of(columns)

    def rows(self, points: Points) -> Intake:
        """Return points as they would be taken in."""
        if len(points.at) > FEW:
            return take_in(self.frame(points), self._encoder)
        own, parts = self._others, enumerate(zip(self._domains, points.at.T, points.numbers.T, strict=True))
        values = [own[j].take(at).tolist() if j in own else domain.spell(at, n) for j, (domain, at, n) in parts]
        return self._encoder.read_values(values)

    def number(self, points: Points, j: int) -> Floats:
        """Return one column of points as numbers, NaN where it is missing."""
        return self._domains[j].numbers_of(points.at[:, j], points.numbers[:, j])

    def gaps(self, a: Points, b: Points) -> Floats:
        """Return how much the private values of row i of `a` differ from those of row i of `b`, by HEOM."""
        found = np.empty((len(a.at), len(self.private)))
        for i, j in enumerate(self.private.tolist()):
            if self._domains[j].is_numeric:
                found[:, i] = differences(self.number(a, j), self.number(b, j), np.array(self.ranges[i]))
            else:
                found[:, i] = a.at[:, j] != b.at[:, j]
        return found


class Probe:
    """Asks the model whether points keep what their entries' groups must keep: at few combinations first.

    A combination at which a result failed is asked about from then on. Which combinations are asked about, and in what
    order, depends only on the catalogue and the points of the same query.
    """

    def __init__(self, catalogue: Catalogue, pools: Pools) -> None:
        self.catalogue, self._pools = catalogue, pools
        self._quasi = np.array(pools.schema.quasi_positions, dtype=np.int64)
        self._ahead: tuple[Points, Ints] | None = None  # what `lost` may ask for
        self._known: dict[bytes, Labels] = {}  # and the model's labels of those at all combinations

    def foresee(self, points: Points, entry: Ints) -> None:
        """Ask for all combinations of the first points along with the next question, if there is room."""
        fits = np.cumsum(self.catalogue.sizes_of(entry)) <= 2 * AT_ONCE
        self._ahead = (points.take(fits), entry[fits]) if fits.any() else None

    def _desired(self, points: Points, entry: Ints) -> Mask:
        """Say whether points have the outcomes of their entries; also asks for what was foreseen."""
        if self._ahead is None:
            return self.catalogue.judge(self._said(points), entry)
        (ahead, of), self._ahead = self._ahead, None
        everywhere, sizes = self._everywhere(ahead, of)
        labels, *said = np.split(self._said(points.joined(everywhere)), len(entry) + np.cumsum(sizes) - sizes)
        self._known.update(zip(ahead.keys(of), said, strict=True))
        return self.catalogue.judge(labels, entry)

    def _everywhere(self, points: Points, entry: Ints) -> tuple[Points, Ints]:
        """Return points at all combinations of their groups' regions, and the number for each."""
        cells = list(map(self.catalogue.combinations, self.catalogue.group_at[entry].tolist()))
        sizes = np.array([*map(len, cells)], dtype=np.int64)
        found = points.take(np.repeat(np.arange(len(entry)), sizes))
        found.at[:, self._quasi] = np.concatenate([self.catalogue.no_cells, *cells])
        return found, sizes

    def _said(self, points: Points) -> Labels:
        waiting, self._pools.waiting = self._pools.waiting, None
        every = points if waiting is None else points.joined(waiting)
        labels = self.catalogue.said(lambda some: self._pools.frame(every.take(some)), len(every.at))
        self._pools.own = self._pools.own if waiting is None else labels[len(points.at) :]
        return labels[: len(points.at)]

    def keeps(self, points: Points, entry: Ints, more: list[Codes], which: Ints, tell: Mask | None = None) -> Mask:
        """Say whether points have the outcome, here and at the few most telling combinations.

        ``more[which[i]]`` are further ones for point i; `tell` says for which points any are asked.
        """
        first, count, told = self.catalogue.telling
        group = self.catalogue.group_at[entry]
        extra = np.array([*map(len, more)], dtype=np.int64)[which]
        size = (count[group] + extra) * (1 if tell is None else tell)
        if size.sum() + len(size) > _FEW_ROWS:  # one call more, for fewer rows
            good, own = self._desired(points, entry), 0
            some = np.flatnonzero(good & (size > 0))
        else:
            good, some, own = np.ones(len(size), dtype=bool), np.arange(len(size)), 1
        size, count, extra = size[some], count[group[some]], extra[some]
        at = np.repeat(np.arange(len(some)), size + own)
        ends = np.cumsum(size + own)
        within = np.arange(len(at)) - np.repeat(ends - size, size + own)
        cells = points.at[some[at]][:, self._quasi]
        few = (within >= 0) & (within < count[at])
        cells[few] = told[first[group[some[at[few]]]] + within[few]]
        if len(shown := some[(extra > 0) & (size > 0)]):
            cells[within >= count[at]] = np.concatenate([more[which[i]] for i in shown.tolist()])
        if len(at):
            rows = points.take(some[at])
            rows.at[:, self._quasi] = cells
            held = self._desired(rows, entry[some[at]])
            good[some] &= np.bincount(at, ~held, len(some)) == 0
        return good

    def lost(self, points: Points, entry: Ints) -> tuple[list[Codes], list[Labels]]:
        """Return, for each point, the combinations where its entry's group must have the outcome but it does not.

        Also the model's labels at all combinations of the group's region.
        """
        keys = points.keys(entry)
        if not self._known.keys() >= {*keys}:
            asked = np.array([i for i, key in enumerate(keys) if key not in self._known], dtype=np.int64)
            everywhere, sizes = self._everywhere(points.take(asked), entry[asked])
            said = np.split(self._said(everywhere), np.cumsum(sizes)[:-1])
            self._known.update(zip([keys[i] for i in asked.tolist()], said, strict=True))
        found, labels = list[Codes](), [*map(self._known.__getitem__, keys)]
        for each, said_there in zip(entry.tolist(), labels, strict=True):
            group, which = int(self.catalogue.group_at[each]), np.full(len(said_there), each)
            is_lost = self.catalogue.holding(group) & ~self.catalogue.judge(said_there, which)
            found.append(self.catalogue.combinations(group)[is_lost])
        return found, labels


class Moves:
    """Points on their way to the query's private values, from the largest gap to the smallest.

    First whole values, as long as all that must be kept is kept; then numbers part of the way, in steps of the
    decimals that their attribute is written with.
    """

    def __init__(
        self, probe: Probe, pools: Pools, pairs: Pairs, start: Points, target: Points, more: list[Codes], *, moves: bool
    ):
        self._probe, self._pools, self._entry, self._more = probe, pools, pairs.entry, more
        self.points, self._target = Points(start.at.copy(), start.numbers.copy()), target
        self.gaps, movable = pools.gaps(start, target), probe.catalogue.is_movable(pairs.entry) & moves
        steps = np.where(movable[:, None], self.gaps, 0.0)
        self._line, self._count = np.argsort(-steps, axis=1, kind="stable"), (steps > 0).sum(axis=1)

    def go(self, group: Ints, fixed: Floats, *, best_alone: Mask, kept: list[Mask]) -> Floats:
        """Move points; return their distances, infinite if one cannot be the nearest of its group.

        ``fixed`` is the part of the distance that no move changes. `best_alone` marks points of which only the nearest
        is wanted, and `kept` has known results of `subsets`.
        """
        left = self._revert(kept)
        self.gaps = self._pools.gaps(self.points, self._target)
        distance, halves = fixed + self.gaps.sum(axis=1), left & ~np.isnan(self._pools.decimals)
        least = np.full(int(group.max(initial=-1)) + 1, np.inf)
        np.minimum.at(least, group, distance)
        floor = distance - np.where(halves, self.gaps, 0.0).sum(axis=1)
        alive = ~best_alone | (floor <= least[group] + 2 * TIE)
        self._halve(halves & alive[:, None], np.lexsort((distance, ~alive))[: alive.sum()])
        self.gaps = self._pools.gaps(self.points, self._target)
        return np.where(alive, fixed + self.gaps.sum(axis=1), np.inf)

    def subsets(self, at: Ints, done: Ints) -> tuple[Ints, Points, Ints]:
        """Return points with every subset of their next columns taken over, the point of each, and numbers of columns.

        There are as many columns as there is room for, so one call of the model tells which of them are taken over, one
        after the other.
        """
        left, most = self._count[at] - done[at], 1
        while most < left.max(initial=0) and (2 ** np.minimum(left, most + 1) - 1).sum() <= AT_ONCE:
            most += 1
        size = 2 ** (width := np.minimum(left, most)) - 1
        which, first = np.repeat(at, size), np.cumsum(size) - size
        subset = np.arange(len(which)) - np.repeat(first, size) + 1
        trial = self.points.take(which)
        for step in range(int(width.max(initial=0))):
            rows = np.flatnonzero(subset >> step & 1)
            columns = self._pools.private[self._line[which[rows], done[which[rows]] + step]]
            trial.put(rows, columns, self._target, which[rows])
        return which, trial, width

    def _revert(self, kept: list[Mask]) -> Mask:
        """Take over columns, in each point's order, whose trials hold; return those whose trials fail."""
        failed, done = np.zeros(self._line.shape, dtype=bool), np.zeros(len(self._line), dtype=np.int64)
        width = np.log2(np.array([*map(len, kept)]) + 1).astype(np.int64)
        at, good = np.flatnonzero(width), np.concatenate([np.empty(0, dtype=bool), *kept])
        width = width[at]
        while True:
            first, taken = np.cumsum(2**width - 1) - (2**width - 1), np.zeros(len(at), dtype=np.int64)
            for step in range(int(width.max(initial=0))):
                is_next = np.flatnonzero(step < width)
                some, tried = at[is_next], taken[is_next] | 1 << step
                column, holds = self._line[some, done[some] + step], good[first[is_next] + tried - 1]
                taken[is_next[holds]] = tried[holds]
                self.points.put(some[holds], self._pools.private[column[holds]], self._target, some[holds])
                failed[some[~holds], column[~holds]] = True
            done[at] += width
            if not len(at := np.flatnonzero(done < self._count)):
                return failed
            which, trial, width = self.subsets(at, done)
            good = self._probe.keeps(trial, self._entry[which], self._more, which)

    def _halve(self, halves: Mask, alive: Ints) -> None:
        """Go part of the way in some columns, in each point's order."""
        order = np.take_along_axis(halves, self._line, axis=1)
        if order.sum() * (2**_HALVINGS - 1) <= AT_ONCE:
            at, place = np.nonzero(order)
            self._all_at_once(at, self._line[at, place], alive)
            return
        for nth in range(int(order.sum(axis=1).max(initial=0))):
            at = np.flatnonzero(order.sum(axis=1) > nth)
            column = self._line[at, np.argmax(np.cumsum(order[at], axis=1) > nth, axis=1)]
            self._one_by_one(*self._ways(at, column))

    def _ways(self, at: Ints, column: Ints) -> tuple[Ints, Ints, Floats, Floats, Floats]:
        """Return points and columns with numbers between their two ends; these ends, and their decimals."""
        begin, end, decimals = np.empty(len(at)), np.empty(len(at)), self._pools.decimals[column]
        for i in np.unique(column).tolist():
            here, j = column == i, int(self._pools.private[i])
            begin[here] = self._pools.number(self.points.take(at[here]), j)
            end[here] = self._pools.number(self._target.take(at[here]), j)
        # Without a number of these decimals in between, there is no way.
        known = np.isfinite(begin) & np.isfinite(end) & (np.abs(end - begin) * 10.0**decimals > 1 + TIE)
        return at[known], self._pools.private[column[known]], begin[known], end[known], decimals[known]

    def _all_at_once(self, at: Ints, column: Ints, alive: Ints) -> None:
        """Go part of the way in all columns, guessing how far earlier ones go; then again where a guess was wrong.

        The result is the same as for one column after the other.
        """
        at, feature, begin, end, decimals = self._ways(at, column)
        parts, reached = 2**_HALVINGS, np.zeros(len(at), dtype=np.int64)
        every, shares = np.repeat(np.arange(len(at)), parts - 1), np.tile(np.arange(1, parts) / parts, len(at))
        numbers = _between(begin[every], end[every], decimals[every], shares).reshape(-1, parts - 1)
        is_open, turn = np.ones(len(at), dtype=bool), np.arange(len(at)) - np.searchsorted(at, at)
        while len(asked := np.flatnonzero(is_open)):
            which = np.repeat(asked, parts - 1)
            trial, rows = self.points.take(at[which]), np.arange(len(which))
            for back in range(int(turn.max()), 0, -1):
                before = which - back
                some = (turn[which] >= back) & (reached[before] > 0)
                trial.write(rows[some], feature[before[some]], numbers[before[some], reached[before[some]] - 1])
            trial.write(rows, feature[which], numbers[asked].ravel())
            # The result is one of these, if the guesses for all but the last columns are right.
            last = np.flatnonzero(np.append(at[asked][1:] != at[asked][:-1], True))
            ends = trial.take((last[:, None] * (parts - 1) + np.arange(parts - 1)).ravel())
            ends = self._reached(at, feature, numbers, reached).take(alive).joined(ends)
            self._probe.foresee(ends, self._entry[np.append(alive, np.repeat(at[asked[last]], parts - 1))])
            good = self._probe.keeps(trial, self._entry[at[which]], self._more, at[which]).reshape(-1, parts - 1)
            found = reached.copy()
            found[asked] = _bisected(good)
            others = np.cumsum(found != reached) - (found != reached)
            is_open &= others > others[np.arange(len(at)) - turn]  # the guess for an earlier one was wrong
            reached = found
        self.points = self._reached(at, feature, numbers, reached)

    def _reached(self, at: Ints, feature: Ints, numbers: Floats, reached: Ints) -> Points:
        points, some = Points(self.points.at.copy(), self.points.numbers.copy()), np.flatnonzero(reached)
        points.write(at[some], feature[some], numbers[some, reached[some] - 1])
        return points

    def _one_by_one(self, at: Ints, feature: Ints, begin: Floats, end: Floats, decimals: Floats) -> None:
        low, step, depth = np.zeros(len(at)), 1.0, _HALVINGS
        while depth and len(at):
            levels = 1
            while levels < depth and (2 ** (levels + 1) - 1) * len(at) <= AT_ONCE:
                levels += 1
            parts = 2**levels
            which = np.repeat(np.arange(len(at)), parts - 1)
            share = low[which] + step * np.tile(np.arange(1, parts), len(at)) / parts
            numbers = _between(begin[which], end[which], decimals[which], share)
            trial = self.points.take(at[which])
            trial.write(np.arange(len(which)), feature[which], numbers)
            good = self._probe.keeps(trial, self._entry[at[which]], self._more, at[which])
            above = _bisected(good.reshape(len(at), -1))
            some = np.flatnonzero(above)
            self.points.write(at[some], feature[some], numbers[some * (parts - 1) + above[some] - 1])
            low, step, depth = low + step * above / parts, step / parts, depth - levels


def _bisected(good: Mask) -> Ints:
    """Return the highest of evenly spaced steps that bisection finds to hold; step 0 always does."""
    above, middle = np.zeros(len(good), dtype=np.int64), (good.shape[1] + 1) // 2
    while middle:
        above = np.where(good[np.arange(len(good)), above + middle - 1], above + middle, above)
        middle //= 2
    return above


def _between(begin: Floats, end: Floats, decimals: Floats, share: Floats) -> Floats:
    """Return numbers between two ends, with the given decimals."""
    numbers = begin + (end - begin) * share
    for d in np.unique(decimals).tolist():
        numbers[decimals == d] = np.round(numbers[decimals == d], int(d))
    return np.asarray(np.clip(numbers, np.minimum(begin, end), np.maximum(begin, end)))


class Pairs(NamedTuple):
    """A query, the entry whose region may answer it, and which private values go with it: an entry's, or others.

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
    """Finds which pairs of some queries are true, from near to far, and where moves take them.

    Private values that are not their entry's are tried at a few combinations; only results are checked at all of them.
    What is learned from a lost combination applies to the same query alone.
    """

    def __init__(self, probe: Probe, pools: Pools, pairs: Pairs, start: Points, target: Points, is_other: Mask):
        self._probe, self._pools, self._pairs, self._is_other = probe, pools, pairs, is_other
        self._start, self._target = start, target
        self._query = np.unique(pairs.query, return_inverse=True)[1]
        kind = 2 * self._query + (pairs.part >= len(probe.catalogue))
        self._first = np.searchsorted(kind, kind)
        gaps = pools.gaps(start, target).sum(axis=1)
        self._fixed, self._may_move = pairs.distance - gaps, (gaps > 0) & probe.catalogue.is_movable(pairs.entry)
        self._good = ~(is_other & probe.catalogue.is_wide(pairs.entry))
        self._known, self._done = ~self._good, np.zeros(len(is_other), dtype=bool)
        self._more = [probe.catalogue.no_cells] * len(is_other)
        self._kept: dict[int, Mask] = {}  # by pair, which subsets of its first columns hold, if known
        self.said: dict[int, Labels] = {}  # by pair, the labels of the combinations of its region

    def _before(self, flags: Mask) -> Ints:
        """Return how many of the same query and kind come before each."""
        counts: Ints = np.cumsum(flags) - flags
        return counts - counts[self._first]

    def _true(self, count: int, wanted: Mask, several: Mask) -> Ints:
        """Return the first true pairs of each query, or all."""
        while True:
            is_open = ~self._known & wanted & ~self._done
            at = np.flatnonzero(is_open & (several | (self._before(self._good & self._known) < count)))
            if not len(at):
                break
            at = at[self._before(is_open)[at] < max(AT_ONCE // len(np.unique(self._query[at])), 2 * count)]
            first = self._may_move & (self._before(self._may_move & is_open) < count + (count + 1) // 2)
            self._try(at, at[first[at]])
        true = self._good & self._known
        return np.flatnonzero(true & wanted & ~self._done & (several | (self._before(true) < count)))

    def _try(self, at: Ints, first: Ints) -> None:
        """Ask whether pairs are true and, if there is room, what the first ones can take over."""
        first = first if len(first) <= AT_ONCE // 4 else first[:0]
        of, trial, width = self._moves(first).subsets(np.arange(len(first)), np.zeros(len(first), dtype=np.int64))
        points, which, tell = self._start.take(at).joined(trial), np.append(at, first[of]), self._is_other[at]
        good = self._probe.keeps(points, self._pairs.entry[which], self._more, which, np.append(tell, of >= 0))
        good, *kept = np.split(good, len(at) + np.cumsum(2**width - 1) - (2**width - 1))
        self._good[at], self._known[at] = good, True
        self._kept.update(zip(first.tolist(), kept, strict=True))

    def _moves(self, some: Ints, *, moves: bool = True) -> Moves:
        start, target = self._start.take(some), self._target.take(some)
        more = list(map(self._more.__getitem__, some.tolist()))
        return Moves(self._probe, self._pools, self._pairs.take(some), start, target, more, moves=moves)

    def next(
        self, count: int, wanted: Mask, several: Mask, start: Keys, is_given: IsGiven | None
    ) -> tuple[Ints, Points, Floats] | None:
        """Return the nearest result of the next true pairs of each query, or all results if several are wanted."""
        over, found, used = np.zeros(len(wanted), dtype=bool), list[tuple[Ints, Points, Floats]](), list[Ints]()
        for attempt in count_from(0):  # once nothing is moved, a pair that loses some is not true
            some = self._true(count, wanted & ~over, several)
            if not len(some):
                break
            if several[some].any():  # the next ones, and the first of those that start alike
                keys = np.column_stack([self._query[some], start[some].astype(np.int64)])
                is_first = np.zeros(len(some), dtype=bool)
                is_first[np.unique(keys, axis=0, return_index=True)[1]] = True
                kept = ~several[some] | is_first | (self._before(self._good & self._known)[some] < count)
                self._done[some[~kept]] = True
                some = some[kept]
            at, moved, distance, lost = self._moved(some, several, is_given, moves=attempt < _RESTARTS)
            kept = np.array([*map(len, lost)]) == 0
            found.append((at[kept], moved.take(kept), distance[kept]))
            self._done[at[kept]] = True
            over |= np.isin(self._query, self._query[at[kept & ~several[at]]])
            used.append(some)
            for i, cells in zip(at.tolist(), lost, strict=True):
                if len(cells):
                    self._learn(i, cells)
        for some in used:  # they had their turn
            self._done[some] = True
        if not found:
            return None
        every, points, away = zip(*found, strict=True)
        return np.concatenate(every), Points(*joined(*points)), np.concatenate(away)

    def _moved(
        self, some: Ints, several: Mask, is_given: IsGiven | None, *, moves: bool
    ) -> tuple[Ints, Points, Floats, list[Codes]]:
        """Move pairs; return those that are the nearest of their query or wanted too, and what each has lost."""
        start, entry, query, alone = self._start.take(some), self._pairs.entry[some], self._query[some], ~several[some]
        moving, nothing = self._moves(some, moves=moves), np.empty(0, dtype=bool)
        kept = [self._kept.get(i, nothing) if moves else nothing for i in some.tolist()]
        away = moving.go(query, self._fixed[some], best_alone=alone, kept=kept)
        line = np.lexsort((np.round(away / TIE), query))
        is_nearest = np.zeros(len(some), dtype=bool)
        is_nearest[line[np.unique(query[line], return_index=True)[1]]] = True
        chosen = np.flatnonzero(np.isfinite(away) & (is_nearest | ~alone))
        points = moving.points.take(chosen)
        if is_given is not None:  # what would become an answer given before is not moved
            points = points.either(start.take(chosen), is_given(some[chosen], points))
        asked = np.flatnonzero(self._is_other[some[chosen]] | points.differ(start.take(chosen)))
        lost, at = [self._probe.catalogue.no_cells] * len(chosen), some[chosen].tolist()
        for i in at:
            self.said.pop(i, None)
        for i, cells, labels in zip(
            asked.tolist(), *self._probe.lost(points.take(asked), entry[chosen[asked]]), strict=True
        ):
            lost[i], self.said[at[i]] = cells, labels
        return some[chosen], points, away[chosen], lost

    def _learn(self, i: int, cells: Codes) -> None:
        alike = (self._query == self._query[i]) & (self._pairs.entry == self._pairs.entry[i])
        for j in np.flatnonzero(alike).tolist():
            self._more[j] = np.concatenate([self._more[j], cells[spread(len(cells), _SHOWN)]])
            self._kept.pop(j, None)
        self._known[alike & self._is_other & self._good] = False
