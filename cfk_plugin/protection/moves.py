"""Points that answers ask for, and how near the true ones come to who asks before an outcome is lost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count as count_from
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.intake import Intake, table_of
from cfk_plugin.data.model import Labels
from cfk_plugin.data.policy import Mask
from cfk_plugin.metrics.heom import HeomCodes, differences
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.catalogue import Catalogue, spread

TIE = 1e-9
_FEW_ROWS = 4096  # in one call above which a further call is made so that there are fewer
AT_ONCE = 1024  # rows in one call up to which fewer calls are made by asking for more; what is found is the same
_HALVINGS = 4
_SHOWN = 4  # combinations that it learns from then
_RESTARTS = 6  # how often moving begins anew where something was lost

Keys = NDArray[np.uint64]


class Points(NamedTuple):
    """Rows as places among `Pools`, feature by feature; at -1, as numbers."""

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
        """Overwrite one column of each of some rows by what one of the others has there."""
        self.at[rows, columns] = others.at[of, columns]
        self.numbers[rows, columns] = others.numbers[of, columns]


class Pools:
    """What points are made of: the population's values, and categories of those who ask that it lacks."""

    def __init__(self, catalogue: Catalogue, queries: Intake, start: Intake) -> None:
        heom, _ = catalogue.private_values
        self.schema, self._domains = queries.encoder.schema, queries.encoder.columns
        self.decimals = np.array(catalogue.decimals, dtype=np.float64)  # NaN for what moves at once or not at all
        self.private = np.array(catalogue.private_at, dtype=np.int64)
        self.ranges = [heom.ranges.get(name, 0.0) for name in self.schema.private]
        self._others: dict[int, Any] = {}
        self.queries = self.start = self._places(queries, 0)
        if start is not queries:
            self.start = self._places(start, len(queries))
            for j in self._others:  # a category of one's own is the same one at the query and where the search begins
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

    def codes(self, points: Points) -> HeomCodes:
        """Return the private values of points in a form in which equal ones are equal."""
        kind = np.array([self._domains[j].is_numeric for j in self.private], dtype=bool)
        numbers = [self.number(points, j) for j in self.private[kind].tolist()]
        table = np.array(numbers).reshape(len(numbers), len(points.at)).T
        return HeomCodes(table, points.at[:, self.private[~kind]].astype(np.uint64))


def target_of(pools: Pools, limits: Constraints, query: Ints, points: Points) -> Points:
    """Return the queries' own private values, or of a number the nearest permitted one, of others the point's."""
    target, queries = pools.queries.take(query), limits.queries
    for name in limits.only(pools.schema.private).rules:
        j, domain = pools.schema.features.index(name), queries.encoder.domains[name]
        own = queries.codes[query, j], queries.numbers[query, j]
        codes, numbers, is_other = limits.nearest_to(name, query, *own)
        is_missing = np.isnan(pools.number(target, j)) if domain.is_numeric else True
        is_nearer = domain.is_numeric & ~np.isnan(numbers) & ~is_missing
        places = np.where(is_nearer, codes, points.at[:, j]), np.where(is_nearer, numbers, points.numbers[:, j])
        target.at[is_other, j], target.numbers[is_other, j] = places[0][is_other], places[1][is_other]
    return target


def nearest_first(distances: Floats, count: int) -> Ints:
    """Return the positions of the nearest, row by row from near to far; of equally near ones the first comes first."""
    rows, width = distances.shape
    if width <= 2 * count:
        return np.argsort(np.round(distances / TIE), axis=1, kind="stable")[:, :count]
    limit = np.partition(distances, count - 1, axis=1)[:, count - 1]
    at, place = np.nonzero(distances <= limit[:, None] + TIE)
    line = np.lexsort((np.round(distances[at, place] / TIE), at))
    first = np.searchsorted(at, np.arange(rows))
    found: Ints = place[line[first[:, None] + np.arange(count)]]
    return found


class Probe:
    """Asks the model whether points have what their entries' groups must keep: of few combinations first.

    A combination at which a result failed is asked for from then on. Which combinations are asked for, and in what
    order, follows from the catalogue and the points of the same query alone.
    """

    def __init__(self, catalogue: Catalogue, pools: Pools) -> None:
        self.catalogue, self._pools = catalogue, pools
        self._quasi = np.array(pools.schema.quasi_positions, dtype=np.int64)

    def desired(
        self, points: Points, entry: Ints, cells: Ints | Codes | None = None, which: Ints | None = None
    ) -> Mask:
        """Say whether points have the outcomes of their entries: as they are, or point ``which[i]`` at ``cells[i]``."""
        if which is not None and cells is not None:
            points, entry = points.take(which), entry[which]
            points.at[:, self._quasi] = cells
        return self.catalogue.judge(self._said(points), entry)

    def _said(self, points: Points) -> Labels:
        return self.catalogue.said(lambda some: self._pools.frame(points.take(some)), len(points.at))

    def keeps(self, points: Points, entry: Ints, more: list[Codes], which: Ints, tell: Mask | None = None) -> Mask:
        """Say of points whether they have the outcome, here and at few combinations, those that tell most.

        ``more[which[i]]`` are further ones for point i; `tell` says where any are looked at.
        """
        first, count, told = self.catalogue.telling
        group = self.catalogue.group_at[entry]
        extra = np.array([*map(len, more)], dtype=np.int64)[which]
        size = (count[group] + extra) * (1 if tell is None else tell)
        if size.sum() + len(size) > _FEW_ROWS:  # one call more, for fewer rows
            good = self.desired(points, entry)
            some = np.flatnonzero(good & (size > 0))
            own = 0
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
            held = self.desired(points, entry, cells, some[at])
            good[some] &= np.bincount(at, ~held, len(some)) == 0
        return good

    def lost(self, points: Points, entry: Ints) -> tuple[list[Codes], list[Labels]]:
        """Return for each point the combinations at which its entry's group must have the outcome and it has not.

        Also, what the model says at all combinations of the group's region.
        """
        groups = self.catalogue.group_at[entry].tolist()
        cells = [self.catalogue.combinations(group) for group in groups]
        sizes = np.array([len(each) for each in cells], dtype=np.int64)
        which = np.repeat(np.arange(len(entry)), sizes)
        everywhere = points.take(which)
        everywhere.at[:, self._quasi] = np.concatenate([self.catalogue.no_cells, *cells])
        labels = self._said(everywhere)
        _, *good = np.split(self.catalogue.judge(labels, entry[which]), np.cumsum(sizes) - sizes)
        lost = [each[self.catalogue.holding(g) & ~held] for g, each, held in zip(groups, cells, good, strict=True)]
        return lost, np.split(labels, np.cumsum(sizes) - sizes)[1:]


class Moves:
    """Points on their way to the private values of who asks, from the largest gap to the smallest.

    First every value at once, as long as everything that is asked for holds; then numbers part of the way, on the
    decimals that their attribute is written with.
    """

    def __init__(self, probe: Probe, pools: Pools, entry: Ints, points: Points, target: Points, more: list[Codes]):
        self._probe, self._pools, self._entry, self._more = probe, pools, entry, more
        self.points, self._target = Points(points.at.copy(), points.numbers.copy()), target
        self.gaps = pools.gaps(points, target)

    def go(self, group: Ints, fixed: Floats, movable: Mask, *, best_alone: Mask) -> Floats:
        """Move points; return their distances, infinite where one cannot be the nearest of its group.

        ``fixed`` is what of the distance no move takes away. `best_alone` says of whom only the nearest is wanted.
        """
        alive = np.ones(len(group), dtype=bool)
        steps = np.where(movable[:, None], self.gaps, 0.0)
        line, count = np.argsort(-steps, axis=1, kind="stable"), (steps > 0).sum(axis=1)
        left = self._revert(line, count)
        self.gaps = self._pools.gaps(self.points, self._target)
        distance, halves = fixed + self.gaps.sum(axis=1), left & ~np.isnan(self._pools.decimals)
        least = np.full(int(group.max(initial=-1)) + 1, np.inf)
        np.minimum.at(least, group, distance)
        floor = distance - np.where(halves, self.gaps, 0.0).sum(axis=1)
        alive = ~best_alone | (floor <= least[group] + 2 * TIE)
        self._halve(line, halves & alive[:, None])
        self.gaps = self._pools.gaps(self.points, self._target)
        return np.where(alive, fixed + self.gaps.sum(axis=1), np.inf)

    def _revert(self, line: Ints, count: Ints) -> Mask:
        """Take over column by column in the order of a line, where that is kept; return where it is not."""
        failed, done = np.zeros(line.shape, dtype=bool), np.zeros(len(line), dtype=np.int64)
        while len(at := np.flatnonzero(done < count)):
            # As many further columns at once as there is room for: of these the first that fails ends what is taken.
            size = np.minimum(count[at] - done[at], max(AT_ONCE // len(at), 1))
            which, first = np.repeat(at, size), np.cumsum(size) - size
            turn = np.arange(len(which)) - np.repeat(first, size)
            trial = self.points.take(which)
            for step in range(int(size.max())):
                rows = np.flatnonzero(turn >= step)
                columns = self._pools.private[line[which[rows], done[which[rows]] + step]]
                trial.put(rows, columns, self._target, which[rows])
            good = self._probe.keeps(trial, self._entry[which], self._more, which)
            run = np.minimum.reduceat(np.where(good, np.repeat(size, size), turn), first)
            some = run > 0
            self.points.at[at[some]] = trial.at[(first + run - 1)[some]]
            self.points.numbers[at[some]] = trial.numbers[(first + run - 1)[some]]
            is_over = run < size
            failed[at[is_over], line[at[is_over], done[at[is_over]] + run[is_over]]] = True
            done[at] += run + is_over
        return failed

    def _halve(self, line: Ints, halves: Mask) -> None:
        order = np.take_along_axis(halves, line, axis=1)
        for nth in range(int(order.sum(axis=1).max(initial=0))):
            at = np.flatnonzero(order.sum(axis=1) > nth)
            column = line[at, np.argmax(np.cumsum(order[at], axis=1) > nth, axis=1)]
            self._part_of_the_way(at, column)

    def _part_of_the_way(self, at: Ints, column: Ints) -> None:
        begin, end, decimals = np.empty(len(at)), np.empty(len(at)), self._pools.decimals[column]
        for i in np.unique(column).tolist():
            here, j = column == i, int(self._pools.private[i])
            begin[here] = self._pools.number(self.points.take(at[here]), j)
            end[here] = self._pools.number(self._target.take(at[here]), j)
        # Where no number of these decimals is between, there is no way.
        known = np.isfinite(begin) & np.isfinite(end) & (np.abs(end - begin) * 10.0**decimals > 1 + TIE)
        at, column, begin, end, decimals = at[known], column[known], begin[known], end[known], decimals[known]
        low, step, depth = np.zeros(len(at)), 1.0, _HALVINGS
        while depth and len(at):
            levels = 1
            while levels < depth and (2 ** (levels + 1) - 1) * len(at) <= AT_ONCE:
                levels += 1
            parts = 2**levels
            which = np.repeat(np.arange(len(at)), parts - 1)
            share = low[which] + step * np.tile(np.arange(1, parts), len(at)) / parts
            numbers = begin[which] + (end - begin)[which] * share
            numbers = _rounded(numbers, decimals[which])
            numbers = np.clip(numbers, np.minimum(begin, end)[which], np.maximum(begin, end)[which])
            trial = self.points.take(at[which])
            every, features = np.arange(len(which)), self._pools.private[column[which]]
            trial.at[every, features], trial.numbers[every, features] = -1, numbers
            good = self._probe.keeps(trial, self._entry[at[which]], self._more, at[which]).reshape(len(at), -1)
            above = np.zeros(len(at), dtype=np.int64)  # of the levels, the highest that the bisection finds to hold
            for level in range(levels):
                middle = above + parts // 2 ** (level + 1)
                above = np.where(good[np.arange(len(at)), middle - 1], middle, above)
            some = np.flatnonzero(above)
            self.points.put(
                at[some], features.reshape(len(at), -1)[some, 0], trial, some * (parts - 1) + above[some] - 1
            )
            low, step, depth = low + step * above / parts, step / parts, depth - levels


def _rounded(numbers: Floats, decimals: Floats) -> Floats:
    found = np.empty_like(numbers)
    for d in np.unique(decimals).tolist():
        found[decimals == d] = np.round(numbers[decimals == d], int(d))
    return found


class Pairs(NamedTuple):
    """A query, the entry whose region may answer it, and whose private values go with it: an entry's, or others."""

    query: Ints
    entry: Ints
    part: Ints
    distance: Floats

    def take(self, at: Ints) -> Pairs:
        return Pairs(self.query[at], self.entry[at], self.part[at], self.distance[at])

    def joined(self, others: Pairs) -> Pairs:
        return Pairs(*(np.concatenate(both) for both in zip(self, others, strict=True)))


IsGiven = Callable[[Ints, Points], Mask]


class Search:
    """Finds which pairs of some queries are true, from near to far, and what those come to.

    Private values that are not their entry's are tried at a few combinations, and whether a combination is lost is seen
    of the result. What is learnt from one that loses some holds for its query alone.
    """

    def __init__(self, probe: Probe, pools: Pools, pairs: Pairs, start: Points, target: Points, is_other: Mask):
        self._probe, self._pools, self._pairs, self._is_other = probe, pools, pairs, is_other
        self._start, self._target = start, target
        self._query = np.unique(pairs.query, return_inverse=True)[1]
        self._first = np.searchsorted(self._query, self._query)
        self._fixed = pairs.distance - pools.gaps(start, target).sum(axis=1)
        self._good = ~(is_other & probe.catalogue.is_wide(pairs.entry))
        self._known, self._done = ~self._good, np.zeros(len(is_other), dtype=bool)
        self._more = [probe.catalogue.no_cells] * len(is_other)
        self.said: dict[int, Labels] = {}  # by pair, the labels of the combinations of its region

    def _before(self, flags: Mask) -> Ints:
        """Return how many of the same query come before each."""
        counts: Ints = np.cumsum(flags) - flags
        return counts - counts[self._first]

    def _true(self, count: int, wanted: Mask, several: Mask) -> Ints:
        """Return the first true ones of each query, or all."""
        while True:
            is_open = ~self._known & wanted & ~self._done
            at = np.flatnonzero(is_open & (several | (self._before(self._good & self._known) < count)))
            if not len(at):
                break
            at = at[self._before(is_open)[at] < max(AT_ONCE // len(np.unique(self._query[at])), 2 * count)]
            entry, tell = self._pairs.entry[at], self._is_other[at]
            self._good[at] = self._probe.keeps(self._start.take(at), entry, self._more, at, tell)
            self._known[at] = True
        true = self._good & self._known
        return np.flatnonzero(true & wanted & ~self._done & (several | (self._before(true) < count)))

    def next(
        self, count: int, wanted: Mask, several: Mask, start: Keys, is_given: IsGiven | None
    ) -> tuple[Ints, Points, Floats] | None:
        """Return the nearest result of the next true pairs of each query, or all of them where several are wanted."""
        over, found, used = np.zeros(len(wanted), dtype=bool), list[tuple[Ints, Points, Floats]](), list[Ints]()
        for attempt in count_from(0):  # once nothing is moved, what loses some is none that is true
            some = self._true(count, wanted & ~over, several)
            if not len(some):
                break
            if several[some].any():  # so many of them, and the first of all that begin alike
                keys = np.column_stack([self._query[some], start[some].astype(np.int64)])
                is_first = np.zeros(len(some), dtype=bool)
                is_first[np.unique(keys, axis=0, return_index=True)[1]] = True
                kept = ~several[some] | is_first | (self._before(self._good & self._known)[some] < count)
                self._done[some[~kept]] = True
                some = some[kept]
            at, points, distance, lost = self._moved(some, several, is_given, moves=attempt < _RESTARTS)
            kept = np.array([not len(cells) for cells in lost], dtype=bool)
            found.append((at[kept], points.take(kept), distance[kept]))
            self._done[at[kept]] = True
            over |= np.isin(self._query, self._query[at[kept & ~several[at]]])
            used.append(some)
            for i, cells in zip(at[~kept].tolist(), [cells for cells in lost if len(cells)], strict=True):
                self._learn(i, cells)
        for some in used:  # they had their turn
            self._done[some] = True
        if not found:
            return None
        return (
            np.concatenate([at for at, *_ in found]),
            Points(*(np.concatenate(each) for each in zip(*(points for _, points, _ in found), strict=True))),
            np.concatenate([distance for *_, distance in found]),
        )

    def _moved(
        self, some: Ints, several: Mask, is_given: IsGiven | None, *, moves: bool
    ) -> tuple[Ints, Points, Floats, list[Codes]]:
        """Move pairs; return those that are the nearest of their query or wanted besides, and what each has lost."""
        start, entry, query, alone = self._start.take(some), self._pairs.entry[some], self._query[some], ~several[some]
        moving = Moves(self._probe, self._pools, entry, start, self._target.take(some), [self._more[i] for i in some])
        movable = self._probe.catalogue.is_movable(entry) & moves
        away = moving.go(query, self._fixed[some], movable, best_alone=alone)
        line = np.lexsort((np.round(away / TIE), query))
        is_nearest = np.zeros(len(some), dtype=bool)
        is_nearest[line[np.unique(query[line], return_index=True)[1]]] = True
        chosen = np.flatnonzero(np.isfinite(away) & (is_nearest | ~alone))
        points = moving.points.take(chosen)
        if is_given is not None:  # what would become an answer that was given stays as it is
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
        self._known[alike & self._is_other & self._good] = False
