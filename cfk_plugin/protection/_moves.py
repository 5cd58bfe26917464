"""Points that answers ask for, how near they come to who asks before an outcome is lost, and which are given."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.constraints import Constraints
from cfk_plugin.data.intake import Intake, table_of
from cfk_plugin.data.model import Labels
from cfk_plugin.data.policy import Mask
from cfk_plugin.metrics.heom import Heom, HeomCodes, differences
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.catalogue import Catalogue

TIE = 1e-9
_FEW_ROWS = 4096  # in one call above which a further call is made so that there are fewer
AT_ONCE = 1024  # rows in one call up to which fewer calls are made by asking for more; what is found is the same
_HALVINGS = 4
_NEARNESS = 0.5  # weight of the distance against that of diversity, which is 1: DiCE's own
_RIDGE = 1e-9  # two answers at one point are as alike as can be, and no error

Keys = NDArray[np.uint64]


class Points(NamedTuple):
    """Rows as places among `Pools`, feature by feature; at -1, as numbers."""

    at: Ints
    numbers: Floats

    def take(self, rows: Ints | Mask) -> Points:
        return Points(self.at[rows], self.numbers[rows])

    def either(self, others: Points, is_other: Mask) -> Points:
        """Return these rows, and the others where it says so."""
        which = is_other[:, None]
        return Points(np.where(which, others.at, self.at), np.where(which, others.numbers, self.numbers))

    def differ(self, others: Points) -> Mask:
        """Say which rows are not as the others."""
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
        extra = np.array([len(more[i]) for i in which.tolist()], dtype=np.int64)
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


class Candidates(NamedTuple):
    """What could be answered: each is true for who asks."""

    asker: Ints  # near to far for each
    entry: Ints
    rows: pd.DataFrame  # the point that an answer asks for, its private values as they would leave
    start: Keys  # private values that it began with, before they were moved
    leaving: Keys  # and those that it has now
    distance: Floats
    said: list[Labels | None]  # see `CatalogueAnswers`


class Given:
    """The answers so far. No two to the same query have the same private values, or began with the same.

    So nobody can take two of them for one record's, and intersect their regions. Of what is left the nearest is given,
    or, where an asker wants several, what adds the most to them: each time the least ``0.5 d(c, x) - g(c)``, where d is
    the summed HEOM distance to the query and g the factor by which c raises det K, ``K_ij = 1 / (1 + d(c_i, c_j))``.
    These are proximity, diversity and weights of DiCE (Mothilal, Sharma, Tan 2020, section 3). What another answer lies
    on the way to, d(x, a) + d(a, c) = d(x, c), asks for more than that one and is given where nothing else is left.
    """

    def __init__(self, catalogue: Catalogue, queries: pd.DataFrame, who: Ints, wanted: Ints) -> None:
        self._catalogue, self._queries, self.left = catalogue, queries, wanted.copy()  # per asker
        self.several = wanted > 1
        self._who = np.unique(who, return_inverse=True)[1]  # several askers may be one person
        counts = np.bincount(self._who, wanted) if len(who) else np.zeros(1)
        self._count, self._most = np.zeros(len(counts), dtype=np.int64), int(counts.max())
        shape = len(counts), self._most
        self._start, self._leaving = np.zeros(shape, dtype=np.uint64), np.zeros(shape, dtype=np.uint64)
        self._way = np.zeros(shape)  # how far from the query
        self._alike = np.tile(np.eye(self._most), (len(counts), 1, 1))
        schema, domains = catalogue.partition.population.schema, catalogue.partition.population.domains
        widths = {n: domains[n].width for n in schema.quasi_identifiers if domains[n].attribute.kind == "numeric"}
        widths |= catalogue.private_values[0].ranges
        self._heom = Heom([*widths], [name for name in schema.features if name not in widths], widths)
        self._numbers = np.zeros((*shape, len(self._heom.numeric)))
        self._codes = np.zeros((*shape, len(self._heom.categorical)), dtype=np.uint64)
        self.found: list[tuple[Ints, Ints, Floats, pd.DataFrame, list[Labels | None]]] = []

    def has_any(self, asker: Ints) -> Mask:
        """Say of askers whether their queries have an answer."""
        return np.asarray(self._count[self._who[asker]] > 0)

    def keys(self, pools: Pools, points: Points, entry: Ints) -> Keys:
        """Return what points are recognised by: their private values, or where there are none, their regions."""
        if self._most == 1:
            return np.zeros(len(entry), dtype=np.uint64)
        if not len(pools.private):
            return self._catalogue.region_at[self._catalogue.group_at[entry]].astype(np.uint64)
        codes = pools.codes(points)
        columns = [*(codes.numbers + 0.0).T, *codes.codes.T]
        return np.asarray(pd.util.hash_pandas_object(pd.DataFrame(dict(enumerate(columns))), index=False), np.uint64)

    def is_new(self, asker: Ints, start: Keys, leaving: Keys | None = None) -> Mask:
        """Say of what would be given to some askers whether their queries have no answer that is recognised by it."""
        person = self._who[asker]
        known = self._start[person] == start[:, None]
        if leaving is not None:
            known |= self._leaving[person] == leaving[:, None]
        known &= np.arange(self._most) < self._count[person][:, None]
        return np.asarray(~known.any(axis=1))

    def add(self, results: Candidates) -> None:
        """Give what is best for whoever wants an answer, until nobody can be given another one."""
        if self._most == 1:  # the same, without what others are compared by
            line = np.lexsort((np.round(results.distance / TIE), results.asker))
            self._note(results, line[np.unique(results.asker[line], return_index=True)[1]])
            return
        leaving, points = results.leaving, self._heom.encode(results.rows)
        way = self._heom.parts(points, self._heom.encode(self._queries.take(results.asker))).sum(axis=1)
        while len(at := np.flatnonzero(self._may_be_given(results, leaving))):
            asker, person = results.asker[at], self._who[results.asker[at]]
            apart = self._apart(person, points.take(at))
            alike, beyond = 1 / (1 + apart), (self._way[person] + apart <= way[at, None] + TIE).any(axis=1)
            score = _NEARNESS * results.distance[at] - self._gained(person, alike)
            is_one, several = results.distance[at], self.several[asker]
            line = np.lexsort((np.round(np.where(several, score, is_one) / TIE), several & beyond, asker))
            best = line[np.unique(asker[line], return_index=True)[1]]
            self._give(results, at[best], leaving, points, way, alike[best])

    def _may_be_given(self, results: Candidates, leaving: Keys) -> Mask:
        return (self.left[results.asker] > 0) & self.is_new(results.asker, results.start, leaving)

    def _apart(self, person: Ints, points: HeomCodes) -> Floats:
        """Return how far some points are from every answer that the person has; infinitely where there is none."""
        apart = np.full((len(person), self._most), np.inf)
        for slot in range(int(self._count[person].max())):
            given, has = HeomCodes(self._numbers[person, slot], self._codes[person, slot]), slot < self._count[person]
            apart[has, slot] = self._heom.parts(points, given).sum(axis=1)[has]
        return apart

    def _gained(self, person: Ints, alike: Floats) -> Floats:
        """Return the factor by which det K grows with each point."""
        among = self._alike[person] + _RIDGE * np.eye(self._most)
        return np.asarray(1 - (alike * np.linalg.solve(among, alike[:, :, None])[:, :, 0]).sum(axis=1))

    def _give(
        self, results: Candidates, at: Ints, leaving: Keys, points: HeomCodes, way: Floats, alike: Floats
    ) -> None:
        person = self._who[results.asker[at]]
        slot = self._count[person]
        self._start[person, slot], self._leaving[person, slot] = results.start[at], leaving[at]
        self._numbers[person, slot], self._codes[person, slot] = points.numbers[at], points.codes[at]
        self._way[person, slot] = way[at]
        self._alike[person, slot], self._alike[person, :, slot] = alike, alike
        self._alike[person, slot, slot] = 1.0
        self._note(results, at)

    def _note(self, results: Candidates, at: Ints) -> None:
        asker = results.asker[at]
        self._count[self._who[asker]] += 1
        self.left[asker] -= 1
        said = list(map(results.said.__getitem__, at.tolist()))
        self.found.append((asker, results.entry[at], results.distance[at], results.rows.take(at), said))
