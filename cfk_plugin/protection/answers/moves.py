"""Moves: how near the private values of true candidates can come to the query.

1. `Search._ask_next`: the model is asked whether candidates are true, the nearest first.
2. `Search._walk`: the first true candidates of each query take over its private values one after
   the other, in an order of columns, as long as the outcome is kept where the candidate is and at a
   few combinations of its region.
3. `Search._part_of_the_way`: of the nearest results, each number that stayed also goes a part of
   the way.
4. `Search._in_order`: results are ordered from near to far. Before each comes the same with rounded
   numbers.
5. `Search._first_held`: the model is asked about the first results at all combinations, until one
   holds that no nearer one precedes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cfk_plugin.data.decision import Mask
from cfk_plugin.data.encoded_table import divided
from cfk_plugin.data.predictions import Predictions
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.answers.diversity import AnswersSoFar
from cfk_plugin.protection.answers.points import TIE, Keys, Points, ValueTable
from cfk_plugin.protection.answers.probe import Probe
from cfk_plugin.protection.answers.request import SearchOptions
from cfk_plugin.protection.answers.rounding import Rounder
from cfk_plugin.protection.answers.starts import Starts
from cfk_plugin.protection.axes import Floats, Ints

_CHECKED = 32  # nearest results that are asked about wherever the outcome must hold
_SENT_PART_OF_THE_WAY = 2  # nearest results whose numbers go a part of the way as well
_PARTS_OF_THE_WAY = (0.75, 0.5, 0.25)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reached(HostOnly):
    """Points that searches come to.

    Attributes
    ----------
    points : Points, n
    owner : int64, shape (n,)
        Position of the pair that each point was reached from, among the pairs that are moved.
    is_new : bool, shape (n,)
        True where the model was not asked about the point itself.
    """

    points: Points
    owner: Ints
    is_new: Mask

    def take(self, rows: Ints | Mask) -> Reached:
        return Reached(self.points.take(rows), self.owner[rows], self.is_new[rows])

    @classmethod
    def joined(cls, parts: Sequence[Reached]) -> Reached:
        """Return the points of all parts, one part after the other."""
        return cls(
            points=Points.joined([part.points for part in parts]),
            owner=np.concatenate([part.owner for part in parts]),
            is_new=np.concatenate([part.is_new for part in parts]),
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HeldResults(HostOnly):
    """The best results of some searches, each true wherever its region requires it.

    Attributes
    ----------
    pair : int64, shape (n,)
        Position of the pair that each search began with.
    points : Points, n
    distance : float64, shape (n,)
        From the query, with the cost of changes.
    predictions : n items
        The model's at all combinations of the pair's region; None where it was not asked.
    """

    pair: Ints
    points: Points
    distance: Floats
    predictions: list[Predictions | None]


class Search:
    """Finds the nearest results for some queries: true pairs, and what they come to on the way.

    Pairs that are moved together are numbered in two ways. Of each *unit*, one result is returned:
    a unit is all pairs of a query or, if it wants several answers, those of a query that begin with
    the same private values. Results of each *run* are compared: a run is a unit or, if the results
    of nearer pairs come first, one pair.

    Parameters
    ----------
    probe : Probe
    values : ValueTable
    starts : Starts, n_pairs
    so_far : AnswersSoFar
        Knows which queries want how many answers, and which answers may not be given again.
    options : SearchOptions
    rounder : Rounder, optional
        Rounds numbers of results; None if they are not rounded.
    """

    def __init__(
        self,
        probe: Probe,
        values: ValueTable,
        starts: Starts,
        so_far: AnswersSoFar,
        options: SearchOptions,
        *,
        rounder: Rounder | None = None,
    ) -> None:
        catalogue = probe.catalogue
        pairs = starts.pairs
        self._probe = probe
        self._values = values
        self._starts = starts
        self._pairs = pairs
        self._so_far = so_far
        self._change_cost = options.change_cost
        self._rounder = rounder
        self._query = np.unique(pairs.query, return_inverse=True)[1]  # numbered from 0
        # Pairs with a single value of an entry are counted apart from the query's others.
        kind = 2 * self._query + pairs.has_single_value(catalogue)
        self._first_of_kind = np.searchsorted(kind, kind)
        gaps = values.gaps(starts.points, starts.target)  # (n_pairs, n_private)
        self._region_distance = pairs.distance - gaps.sum(axis=1)
        gains = gaps + self._change_cost * values.changed(starts.points, starts.target)
        gains[~catalogue.is_movable(pairs.entry)] = 0.0
        self._n_columns = (gains > 0).sum(axis=1)  # that can take over the target's value
        # The column that gains most comes first; shape (n_pairs, n_private).
        self._order = np.argsort(-gains, axis=1, kind="stable")
        # What the model said of each pair so far. A pair that it cannot be asked about is not true.
        self._is_true = ~(starts.is_unproven & catalogue.is_wide(pairs.entry))
        self._is_known = ~self._is_true
        self._is_moved = np.zeros(len(pairs), dtype=bool)
        # By pair: which non-empty subsets of its first columns keep the outcome, if known.
        self._kept_subsets: dict[int, Mask] = {}

    def results(self, n_moved: int, *, one_by_one: bool) -> Iterator[HeldResults]:
        """Yield the nearest results of the next true pairs.

        There is one for each query or, if it wants several answers, for each start.

        Parameters
        ----------
        n_moved : int
            How many true pairs of a query are moved at a time.
        one_by_one : bool
            Whether the results of a near pair come before those of a farther one, however near
            these are. Then none of the results may be one that may not be given again.
        """
        several = self._so_far.wants_several[self._pairs.query]
        is_wanted = self._so_far.n_open[self._pairs.query] > 0
        while True:
            pairs = self._next_true_pairs(n_moved, is_wanted, several)
            if not len(pairs):
                return
            self._is_moved[pairs] = True
            unit = self._units(pairs, several)
            run = np.arange(len(pairs)) if one_by_one else unit
            reached = self._reached(pairs, run)
            if one_by_one:
                is_given = self._is_given(pairs[reached.owner], reached.points)
                reached = reached.take(~is_given)
            reached = self._within_most_changes(reached, pairs)
            reached, rank = self._in_order(reached, pairs, run, several)
            best, predictions = self._first_held(reached, pairs, unit[reached.owner], rank)
            pair = pairs[reached.owner[best]]
            is_answered = np.isin(self._query, self._query[pair])
            is_wanted = is_wanted & (several | ~is_answered)
            points = reached.points.take(best)
            yield HeldResults(
                pair=pair,
                points=points,
                distance=self._distance(points, pair),
                predictions=predictions,
            )

    def _units(self, pairs: Ints, several: Mask) -> Ints:
        """Return a number per query or, where several answers are wanted, per query and start."""
        start = np.where(several[pairs], self._starts.keys[pairs], 0).astype(np.int64)
        columns = np.column_stack([self._query[pairs], start])
        return np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1)

    def _keys(self, pair: Ints, points: Points) -> Keys:
        return self._so_far.keys(points, self._pairs.entry[pair])

    def _is_given(self, pair: Ints, points: Points) -> Mask:
        """Return a mask of the points that may not be given again; shape (n,).

        The private values of an earlier answer to the person are the same, or began as the same.
        """
        query = self._pairs.query[pair]
        start_keys = self._starts.keys[pair]
        return ~self._so_far.is_new(query, start_keys, self._keys(pair, points))

    # --- which pairs are true

    def _next_true_pairs(self, n_moved: int, is_wanted: Mask, several: Mask) -> Ints:
        """Return the next true pairs of each query, `n_moved` of each kind.

        Where a query wants several answers, all of its true pairs are returned. The masks have the
        shape (n_pairs,).
        """
        while True:
            is_left = is_wanted & ~self._is_moved
            is_unknown = is_left & ~self._is_known
            is_true = is_left & self._is_known & self._is_true
            is_next = several | (_n_before(is_true, self._first_of_kind) < n_moved)
            unknown = np.flatnonzero(is_unknown & is_next)
            if not len(unknown):
                return np.flatnonzero(is_true & is_next)
            self._ask_next(unknown, is_unknown, n_moved)

    def _ask_next(self, unknown: Ints, is_unknown: Mask, n_moved: int) -> None:
        """Ask whether the first unknown pairs of each query are true.

        As many are asked about at once as fill a quarter of a call. The first of them are probably
        moved next, so it is also asked what these can take over.
        """
        n_queries = len(np.unique(self._query[unknown]))
        n_per_query = max(self._probe.most_rows // (4 * n_queries), 2 * n_moved)
        pairs = unknown[_n_before(is_unknown, self._first_of_kind)[unknown] < n_per_query]
        can_move = is_unknown & (self._n_columns > 0)
        n_likely = n_moved + (n_moved + 1) // 2  # some of them are not true
        n_movable_before = _n_before(can_move, self._first_of_kind)[pairs]
        self._ask(pairs, pairs[can_move[pairs] & (n_movable_before < n_likely)])

    def _ask(self, pairs: Ints, movable: Ints) -> None:
        """Ask whether pairs are true and, if there is room, what movable ones can take over."""
        if len(movable) > self._probe.most_rows // 16:
            movable = movable[:0]
        n_decided = np.zeros(len(movable), dtype=np.int64)
        points = self._starts.points.take(movable)
        owner, trials, width = self._subsets(points, movable, n_decided)
        is_kept = self._probe.keeps(
            Points.joined([self._starts.points.take(pairs), trials]),
            self._pairs.entry[np.append(pairs, movable[owner])],
            np.append(self._starts.is_unproven[pairs], np.ones(len(owner), dtype=bool)),
        )
        n_subsets = 2**width - 1
        is_true, *kept_subsets = divided(is_kept, [len(pairs), *n_subsets.tolist()])
        self._is_true[pairs] = is_true
        self._is_known[pairs] = True
        self._kept_subsets.update(zip(movable.tolist(), kept_subsets, strict=True))

    # --- what true pairs come to

    def _reached(self, pairs: Ints, run: Ints) -> Reached:
        """Return all points that pairs come to.

        `pairs` and `run` have the shape (n_moved,); see `_part_of_the_way`.
        """
        walk = self._walk(pairs)
        return Reached.joined([walk, self._part_of_the_way(walk, pairs, run)])

    def _walk(self, pairs: Ints) -> Reached:
        """Return the starts of pairs, and the points that they come to, one column after the other.

        The next column in the pair's order takes over the target's value if
        the outcome is kept with it and all columns that did so before. The last point of an owner
        is the end of its way. Each question to the model decides on several columns: it is about
        all of their subsets.
        """
        points = self._starts.points.take(pairs)  # where each pair stands
        reached = [points.copy()]
        owners = [np.arange(len(pairs))]
        n_decided = np.zeros(len(pairs), dtype=np.int64)
        walking = np.flatnonzero(self._n_columns[pairs])
        is_kept, width = self._pop_kept_subsets(pairs[walking])
        while len(walking):
            n_subsets = 2**width - 1
            first_trial = np.cumsum(n_subsets) - n_subsets
            subset = np.zeros(len(walking), dtype=np.int64)  # a subset as bits, see `_subsets`
            for bit in range(int(width.max(initial=0))):
                larger_subset = subset | 1 << bit
                # Subset 1 is at first.
                trial = np.minimum(first_trial + larger_subset, len(is_kept)) - 1
                takes_column = (bit < width) & is_kept[trial]
                subset[takes_column] = larger_subset[takes_column]
                rows = walking[takes_column]
                columns = self._next_columns(pairs[rows], n_decided[rows] + bit)
                points.put(rows, columns, self._starts.target, pairs[rows])
                reached.append(points.take(rows))
                owners.append(rows)
            n_decided[walking] += width
            walking = walking[n_decided[walking] < self._n_columns[pairs[walking]]]
            walker, trials, width = self._subsets(
                points.take(walking), pairs[walking], n_decided[walking]
            )
            entry = self._pairs.entry[pairs[walking[walker]]]
            is_kept = self._probe.keeps(trials, entry, np.ones(len(walker), dtype=bool))
        owner = np.concatenate(owners)
        return Reached(Points.joined(reached), owner, np.zeros(len(owner), dtype=bool))

    def _pop_kept_subsets(self, pairs: Ints) -> tuple[Mask, Ints]:
        """Return which subsets of the first columns of pairs keep the outcome, as far as known.

        Returns
        -------
        is_kept : bool; for each pair in turn, its non-empty subsets 1, 2, 3, ... as in `_subsets`
        width : int64, shape (n,); the number of columns of each pair's subsets, 0 if unknown
        """
        no_subsets = np.empty(0, dtype=bool)
        subsets = [self._kept_subsets.pop(pair, no_subsets) for pair in pairs.tolist()]
        n_subsets = np.array([len(of_pair) for of_pair in subsets])
        width = np.log2(n_subsets + 1).astype(np.int64)
        return np.concatenate([no_subsets, *subsets]), width

    def _next_columns(self, pair: Ints, place: Ints) -> Ints:
        """Return the column of each pair at a place of its order; all have the shape (n,)."""
        return np.asarray(self._values.private_columns[self._order[pair, place]])

    def _subsets(self, points: Points, pair: Ints, n_decided: Ints) -> tuple[Ints, Points, Ints]:
        """Enumerate which of the next columns could take over the target's value.

        There are as many columns as there is room for. So one call of the model tells which of them
        are taken over, one after the other.

        Parameters
        ----------
        points : n points, where the search of each pair stands
        pair : shape (n,); the pair of each point
        n_decided : shape (n,); how many of the pair's columns, in its order, were decided before

        Returns
        -------
        owner : shape (m,); the point that each trial belongs to
        trials : m points; those of one owner are its non-empty subsets 1, 2, 3, ... as bits, bit b
            for column ``n_decided + b``
        width : shape (n,); how many columns of each point were enumerated: it has 2**width - 1
            trials
        """
        remaining = self._n_columns[pair] - n_decided
        width = np.minimum(remaining, self._widest(remaining))
        n_subsets = 2**width - 1
        owner = np.repeat(np.arange(len(pair)), n_subsets)
        first_trial = np.cumsum(n_subsets) - n_subsets
        subset = 1 + np.arange(len(owner)) - first_trial[owner]
        trials = points.take(owner)
        for bit in range(int(width.max(initial=0))):
            rows = np.flatnonzero(subset >> bit & 1)
            pairs = pair[owner[rows]]
            columns = self._next_columns(pairs, n_decided[owner[rows]] + bit)
            trials.put(rows, columns, self._starts.target, pairs)
        return owner, trials, width

    def _widest(self, remaining: Ints) -> int:
        """Return the largest number of columns whose subsets fill a quarter of a model call.

        `remaining`, of shape (n,), is the number of columns of each point. The subsets of all
        points are counted together.
        """
        width = 1
        while width < remaining.max(initial=0):
            n_trials = (2 ** np.minimum(remaining, width + 1) - 1).sum()
            if n_trials > self._probe.most_rows // 4:
                break
            width += 1
        return width

    def _part_of_the_way(self, walk: Reached, pairs: Ints, run: Ints) -> Reached:
        """Return the nearest ends of each run with one number a part of the way to the target.

        The model has not been asked about them yet. `pairs` and `run` have the shape (n_moved,).
        """
        last_point = np.zeros(len(pairs), dtype=np.int64)
        last_point[walk.owner] = np.arange(len(walk.owner))  # of equal owners, the last is kept
        distance = self._distance(walk.points.take(last_point), pairs)
        order = np.lexsort((np.round(distance / TIE), run))
        rank = np.arange(len(order)) - np.searchsorted(run[order], run[order])
        nearest = order[rank < _SENT_PART_OF_THE_WAY]
        nearest = nearest[self._n_columns[pairs[nearest]] > 0]
        ends = walk.points.take(last_point[nearest])
        target = self._starts.target.take(pairs[nearest])
        reached = [ends.take(nearest[:0])]
        owners = [nearest[:0]]
        columns = zip(
            self._values.private_columns.tolist(), self._values.decimals.tolist(), strict=True
        )
        for j, decimals in columns:
            if np.isnan(decimals):
                continue
            end_numbers = self._values.number(ends, j)
            target_numbers = self._values.number(target, j)
            way = target_numbers - end_numbers
            has_number_between = np.abs(way) * 10.0**decimals > 1 + TIE
            rows = np.flatnonzero(np.isfinite(way) & has_number_between)
            if not len(rows):
                continue
            lowest = np.fmin(end_numbers, target_numbers)
            highest = np.fmax(end_numbers, target_numbers)
            for part in _PARTS_OF_THE_WAY:
                number = np.round(end_numbers + part * way, int(decimals))
                number = number.clip(lowest, highest)
                points = ends.take(rows)
                points.write(np.arange(len(rows)), j, number[rows])
                reached.append(points)
                owners.append(nearest[rows])
        owner = np.concatenate(owners)
        return Reached(Points.joined(reached), owner, np.ones(len(owner), dtype=bool))

    def _within_most_changes(self, reached: Reached, pairs: Ints) -> Reached:
        """Return the points that change no more private values than is permitted."""
        if self._starts.most_changes is None:
            return reached
        pair = pairs[reached.owner]
        n_changes = self._changed(reached.points, pair).sum(axis=1)
        return reached.take(n_changes <= self._starts.most_changes[pair])

    def _changed(self, points: Points, pair: Ints) -> Mask:
        """Return a mask of the private values that are not the query's; shape (n, n_private)."""
        factuals = self._values.factuals.take(self._pairs.query[pair])
        return self._values.changed(points, factuals)

    def _distance(self, points: Points, pair: Ints) -> Floats:
        """Return the distance of points of some pairs from the query; shape (n,)."""
        gaps = self._values.gaps(points, self._starts.target.take(pair)).sum(axis=1)
        n_changes = self._changed(points, pair).sum(axis=1)
        return np.asarray(self._region_distance[pair] + gaps + self._change_cost * n_changes)

    # --- which of the results is the best

    def _in_order(
        self, reached: Reached, pairs: Ints, run: Ints, several: Mask
    ) -> tuple[Reached, Ints]:
        """Return points from near to far in each run, and the rank of each in its run.

        Right before each of the nearest comes the same point with rounded numbers, which has the
        same rank.
        """
        rank = np.round(self._distance(reached.points, pairs[reached.owner]) / TIE)
        ordered = reached.take(np.lexsort((rank, run[reached.owner])))
        run_of_point = run[ordered.owner]
        n_points = len(run_of_point)
        rank_in_run = np.arange(n_points) - np.searchsorted(run_of_point, run_of_point)
        if self._rounder is None:
            return ordered, rank_in_run
        checked = np.flatnonzero(rank_in_run < _CHECKED)
        rounded, position = self._rounded(self._rounder, ordered, pairs, checked)
        with_rounded = Reached.joined([ordered, rounded])
        position = np.append(np.arange(n_points), position)
        is_rounded = np.arange(len(position)) >= n_points
        order = np.lexsort((~is_rounded, position))
        with_rounded = with_rounded.take(order)
        is_rounded = is_rounded[order]
        rank_in_run = rank_in_run[position[order]]
        is_left = ~(is_rounded & self._is_repeated(with_rounded, pairs, several))
        return with_rounded.take(is_left), rank_in_run[is_left]

    def _rounded(
        self, rounder: Rounder, reached: Reached, pairs: Ints, positions: Ints
    ) -> tuple[Reached, Ints]:
        """Return some points with rounded numbers, and the position of each before rounding.

        Only those at `positions` are rounded. Left out are points that rounding does not change,
        those whose regions are too wide to ask about, and those that may not be given.
        """
        is_wide = self._probe.catalogue.is_wide(self._pairs.entry[pairs[reached.owner[positions]]])
        positions = positions[~is_wide]
        pair = pairs[reached.owner[positions]]
        points = reached.points.take(positions)
        rounded = rounder.rounded(points, self._pairs.query[pair])
        is_left = rounded.differ(points) & ~self._is_given(pair, rounded)
        positions = positions[is_left]
        is_new = np.ones(len(positions), dtype=bool)
        return Reached(rounded.take(is_left), reached.owner[positions], is_new), positions

    def _is_repeated(self, reached: Reached, pairs: Ints, several: Mask) -> Mask:
        """Return a mask of points whose private values a nearer point to the query has; shape (n,).

        It is False where a query wants one answer. Two answers to one query must not have the same
        private values. The nearest point keeps them, whatever the order of runs, which differs from
        process to process.
        """
        is_repeated = np.zeros(len(reached.owner), dtype=bool)
        positions = np.flatnonzero(several[pairs[reached.owner]])
        if not len(positions):
            return is_repeated
        pair = pairs[reached.owner[positions]]
        points = reached.points.take(positions)
        rank = np.round(self._distance(points, pair) / TIE)
        nearest_first = np.lexsort((pair, rank))
        values = {"query": self._query[pair], "key": self._keys(pair, points)}
        is_duplicate = pd.DataFrame(values).take(nearest_first).duplicated()
        is_repeated[positions[nearest_first]] = is_duplicate.to_numpy()
        return is_repeated

    def _first_held(
        self, reached: Reached, pairs: Ints, unit: Ints, rank: Ints
    ) -> tuple[Ints, list[Predictions | None]]:
        """Return the first point of each unit that has the outcome wherever its region requires it.

        Only points with the least ranks in their runs are asked about. A start with the private
        values of its own entry has the outcome there.

        Parameters
        ----------
        reached : Reached, n points
        unit, rank : shape (n,); the unit of each point, ascending, and its rank in its run

        Returns
        -------
        best : positions of the points, at most one per unit
        predictions : the model's at all combinations of each one's region; None if not asked
        """
        points = reached.points
        pair = pairs[reached.owner]
        entry = self._pairs.entry[pair]
        first_of_unit = np.searchsorted(unit, unit)
        is_start = ~points.differ(self._starts.points.take(pair))
        holds = is_start & ~self._starts.is_unproven[pair]
        is_known = holds | (rank >= _CHECKED)
        n_combinations = self._probe.catalogue.n_asked(entry)
        new = np.flatnonzero(reached.is_new & ~is_known)
        if n_combinations[new].sum() > self._probe.most_rows:  # a question more, about fewer rows
            is_kept = self._probe.keeps(points.take(new), entry[new], np.ones(len(new), dtype=bool))
            is_known[new] = ~is_kept
        predictions: dict[int, Predictions] = {}
        while True:
            is_before_best = _n_before(holds, first_of_unit) == 0
            unknown = np.flatnonzero(~is_known & is_before_best)
            if not len(unknown):
                break
            turn = np.arange(len(unknown)) - np.searchsorted(unit[unknown], unit[unknown])
            by_turn = np.argsort(turn, kind="stable")  # the next of each unit, then the second next
            positions_to_ask = unknown[by_turn]
            has_room = np.cumsum(n_combinations[positions_to_ask]) <= self._probe.most_rows
            positions_to_ask = positions_to_ask[(turn[by_turn] == 0) | has_room]
            new = np.flatnonzero(reached.is_new[positions_to_ask])
            is_lost, in_regions = self._probe.lost(
                points.take(positions_to_ask), entry[positions_to_ask], new
            )
            for row in np.flatnonzero(~is_lost).tolist():
                predictions[int(positions_to_ask[row])] = in_regions[row]
            is_known[positions_to_ask] = True
            holds[positions_to_ask] = ~is_lost
        best = np.flatnonzero(holds & (_n_before(holds, first_of_unit) == 0))
        return best, [predictions.get(position) for position in best.tolist()]


def _n_before(flags: Mask, first: Ints) -> Ints:
    """Return how many of the flags before each are True, counted from the position `first`.

    Both arrays and the result have the shape (n,).
    """
    n_before: Ints = np.cumsum(flags) - flags
    return n_before - n_before[first]
