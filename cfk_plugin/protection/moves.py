"""Moves: points of answers come closer to their queries, as long as they have the outcome.

Changes are taken back, and numbers shrink. Before each move, `Keeps` decides about a trial. The
result does not depend on the number of points that move together. If there are few, the model is
asked about the rows of several steps in one call, and remembers its outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cfk_plugin.data.codes import MISSING, Column, Floats, Ints, Mask, gaps
from cfk_plugin.data.constraints import Limits
from cfk_plugin.data.rounding import round_outwards
from cfk_plugin.errors import HostOnly

Keeps = Callable[[Floats, Ints], Mask]
"""Takes trials, shape (n_trials, n_features), and the position of each trial's point, (n_trials,).

Returns a mask of the trials that may still be answers, shape (n_trials,).
"""

Foresee = Callable[[Floats, Floats], None]
"""Takes points, shape (n_points, n_features), and trials, shape (n_trials, n_features).

Asks the model about the trials, and in the same call about the rows that the caller will need if
the points do not move any more.
"""

ROWS_PER_CALL = 1024  # a call of the model costs as much as this many rows
_WIDEST_BLOCK = 7  # the most changes whose subsets the model is asked about at once
_RUNG_RATIO = 1.05  # between two numbers of a ladder
_STEPS = 20  # steps in which all changes of an answer shrink together
_RUNGS = 86  # numbers between a change and a 66th of it
_CLOSED = 1.08  # a number stops shrinking if a change smaller by this factor is refused
_MOST_PASSES = 64
_TIE = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class Distance(HostOnly):
    """The distance from queries to points: HEOM, and a cost for each change.

    Attributes
    ----------
    limits : Limits
    spans : shape (n_features,)
        The differences that count as 1.
    change_cost : float
        The cost of one changed value, in addition to its difference.
    """

    limits: Limits
    spans: Floats
    change_cost: float

    def by_column(self, rows: Floats, query: Ints) -> Floats:
        """Return the distance of rows from their queries by column, shape (n_rows, n_features).

        `query`, shape (n_rows,), is the position of each row's query.
        """
        return self._by_column(rows, self.limits.queries[query], slice(None))

    def of_columns(
        self, values: Floats, columns: Ints, queries: Ints | slice = slice(None)
    ) -> Floats:
        """Return the distance of values in `columns` from `queries`, shape (n_queries, n_values).

        `values` has the shape (n_queries, n_values, n_columns), or 1 in place of n_queries.
        """
        factual = self.limits.queries[queries][:, None, columns]
        total: Floats = self._by_column(values, factual, columns).sum(axis=2)
        return total

    def _by_column(self, values: Floats, factual: Floats, columns: Ints | slice) -> Floats:
        shares = gaps(values, factual, self.spans[columns], self.limits.codes.is_line[columns])
        n_changes = self.change_cost * (values != factual)
        by_column: Floats = self.limits.costs[columns] * (shares + n_changes)
        return by_column

    def of(self, rows: Floats, query: Ints) -> Floats:
        """Return the distance of each row from its query, shape (n_rows,); see `by_column`."""
        total: Floats = self.by_column(rows, query).sum(axis=-1)
        return total


def rank_in_run(keys: Ints) -> Ints:
    """Return the number of equal keys before each key, if equal keys are next to each other."""
    if not len(keys):
        return np.empty(0, dtype=np.int64)
    is_first = np.append(True, keys[1:] != keys[:-1])
    start = np.flatnonzero(is_first)
    rank: Ints = np.arange(len(keys)) - start[np.cumsum(is_first) - 1]
    return rank


def take_back(
    rows: Floats,
    query: Ints,
    distance: Distance,
    keeps: Keeps,
    n_rows: int = 1,
) -> Floats:
    """Give points the query's own values, one by one, as long as they may be answers.

    The changes that cost most are taken back first.

    Parameters
    ----------
    rows : shape (n_points, n_features)
    query : shape (n_points,)
    distance : Distance
    keeps : Keeps
    n_rows : int
        The number of rows about which `keeps` asks the model for one trial.

    Returns
    -------
    array, shape (n_points, n_features)
    """
    rows = rows.copy()
    factual = distance.limits.queries[query]
    is_changed = rows != factual
    cost = np.where(is_changed, distance.by_column(rows, query), -1.0)
    order = np.argsort(-cost, axis=1, kind="stable")
    n_changes = is_changed.sum(axis=1)
    end_of_block = 0
    for turn in range(int(n_changes.max(initial=0))):
        points = np.flatnonzero(n_changes > turn)
        if turn == end_of_block:
            width = _width_of_block(n_changes[points] - turn, n_rows)
            end_of_block += width
            block = order[points, turn : turn + width]
            is_used = np.arange(turn, turn + block.shape[1]) < n_changes[points, None]
            trials, place = _subsets(rows[points], factual[points], block, is_used)
            keeps(trials, points[place])  # the model remembers its outputs
        trials = rows[points]
        column = order[points, turn]
        trials[np.arange(len(points)), column] = factual[points, column]
        is_kept = keeps(trials, points)
        rows[points[is_kept]] = trials[is_kept]
    return rows


def _width_of_block(n_changes: Ints, n_rows: int) -> int:
    """Return the number of changes whose subsets the model is asked about at once, to save calls.

    `n_changes` has the shape (n_points,).
    """
    width = 1
    for wider in range(2, min(_WIDEST_BLOCK, int(n_changes.max())) + 1):
        n_turns = np.minimum(n_changes, wider)
        n_trials = (2**n_turns - 1 - n_turns).sum()  # in addition to those of single changes
        if n_trials * n_rows <= ROWS_PER_CALL * (wider - 1):
            width = wider
    return width


def _subsets(rows: Floats, factual: Floats, block: Ints, is_used: Mask) -> tuple[Floats, Ints]:
    """Return points with each subset of a block of changes taken back, and the point of each.

    `block` and `is_used` have the shape (n_points, width): the columns, and whether each of them is
    changed.
    """
    width = block.shape[1]
    subsets = np.arange(1, 2**width)[:, None] >> np.arange(width) & 1 == 1  # (n_subsets, width)
    is_possible = ~(subsets & ~is_used[:, None]).any(axis=2)  # (n_points, n_subsets)
    place, subset = np.nonzero(is_possible)
    trials = rows[place]
    trial, bit = np.nonzero(subsets[subset])
    column = block[place[trial], bit]
    trials[trial, column] = factual[place[trial], column]
    return trials, place


@dataclass(frozen=True, eq=False, repr=False)
class Ladders(HostOnly):
    """Values (rungs) to which changes may shrink, n in all; one ladder for each changed value.

    Attributes
    ----------
    point : shape (n,)
    column : shape (n,)
    values : shape (n,)
    sizes : shape (n,)
        The size of each change; 0 for the query's own value.
    number : shape (n,)
        The number of each rung's ladder, from 0.
    rank : shape (n,)
        The position of each rung in its ladder; the first is the query's own value.
    """

    point: Ints
    column: Ints
    values: Floats
    sizes: Floats
    number: Ints
    rank: Ints

    @classmethod
    def of(cls, point: Ints, column: Ints, values: Floats, sizes: Floats) -> Ladders:
        """Return the rungs sorted to ladders, the smallest changes first."""
        order = np.lexsort((sizes, column, point))
        point = point[order]
        column = column[order]
        is_new = np.ones(len(order), dtype=bool)
        is_new[1:] = (point[1:] != point[:-1]) | (column[1:] != column[:-1])
        number = np.cumsum(is_new) - 1
        return cls(point, column, values[order], sizes[order], number, rank_in_run(number))

    def __len__(self) -> int:
        return len(self.point)

    @property
    def n_rungs(self) -> Ints:
        """The length of each ladder, shape (n_ladders,)."""
        return np.bincount(self.number)

    @property
    def steps(self) -> Ints:
        """The distance between the rungs that are tried first, shape (n_ladders,)."""
        return np.ceil(np.sqrt(self.n_rungs)).astype(np.int64)

    def take(self, rungs: Ints | Mask) -> Ladders:
        return Ladders(
            self.point[rungs],
            self.column[rungs],
            self.values[rungs],
            self.sizes[rungs],
            self.number[rungs],
            self.rank[rungs],
        )

    def trials(self, rows: Floats) -> Floats:
        """Return, for each rung, its point with this value, shape (n, n_features)."""
        trials = rows[self.point]
        trials[np.arange(len(self)), self.column] = self.values
        return trials


def shrink(
    rows: Floats,
    query: Ints,
    distance: Distance,
    keeps: Keeps,
    n_rows: int = 1,
    foresee: Foresee | None = None,
) -> Floats:
    """Shrink the changes of points one at a time, until none can shrink any more.

    Numbers shrink to round numbers, levels to levels in between, and every change may be taken
    back. In each pass, each point makes the move that saves most. In the result, no single change
    can be taken back.

    Parameters
    ----------
    rows : shape (n_points, n_features)
    query : shape (n_points,)
    distance : Distance
    keeps : Keeps
    n_rows : int
        The number of rows about which `keeps` asks the model for one trial.
    foresee : Foresee, optional

    Returns
    -------
    array, shape (n_points, n_features)
    """
    rows = rows.copy()
    refused = np.zeros(rows.shape)  # the largest change of each value that was refused
    points = np.arange(len(rows))
    for turn in range(_MOST_PASSES):
        if not len(points):
            break
        ladders = _ladders(rows, query, points, refused, distance.limits)
        if len(ladders) * n_rows <= ROWS_PER_CALL:
            trials = ladders.trials(rows)
            if turn > 0 and foresee is not None:
                foresee(rows, trials)
            keeps(trials, ladders.point)  # the model remembers its outputs
        best = _best_rungs(ladders, rows, query, refused, distance, keeps)
        rows[best.point, best.column] = best.values
        points = best.point
    return rows


def _ladders(rows: Floats, query: Ints, points: Ints, refused: Floats, limits: Limits) -> Ladders:
    """Return the values to try for all changes of points at positions `points`."""
    factual = limits.queries[query]
    parts = []
    for j in range(rows.shape[1]):
        movable = points[rows[points, j] != factual[points, j]]
        if not len(movable):
            continue
        values = _rungs(
            limits.codes.columns[j], factual[movable, j], rows[movable, j], refused[movable, j]
        )
        is_rung = ~np.isnan(values)
        place, rung = np.nonzero(is_rung)
        values = values[place, rung]
        point = movable[place]
        is_permitted = limits.permits_values(values, j, query[point])
        point = point[is_permitted]
        values = values[is_permitted]
        sizes = np.where(values == factual[point, j], 0.0, np.abs(values - factual[point, j]))
        parts.append((point, np.full(len(point), j), values, sizes))
    if not parts:
        no_points = np.empty(0, dtype=np.int64)
        return Ladders.of(no_points, no_points, np.empty(0), np.empty(0))
    point, column, values, sizes = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Ladders.of(point, column, values, sizes)


def _rungs(column: Column, factual: Floats, advised: Floats, refused: Floats) -> Floats:
    """Return values from the query's own to that of the answer, shape (n, n_rungs).

    The query's own value comes first. NaN means no value. `factual`, `advised` (the value of the
    answer) and `refused` (the largest refused change) have the shape (n,).
    """
    first = factual[:, None]
    if not column.is_line:
        return first
    is_between = (factual != MISSING) & (advised != MISSING)
    change = np.where(is_between, advised - factual, 0.0)
    if column.is_numeric:
        is_open = np.abs(change) > refused * _CLOSED
        change = np.where(is_open, change, 0.0)
        shares = _RUNG_RATIO ** -np.arange(_RUNGS, 0.0, -1.0)
        values = round_change(column, first, change[:, None] * shares)
    else:
        steps = np.arange(1, max(int(np.abs(change).max(initial=0)), 1))
        values = first + np.sign(change)[:, None] * steps
    sizes = np.abs(values - first)
    is_new = (sizes > refused[:, None] + _TIE * np.abs(change)[:, None]) & (sizes > 0)
    is_new &= sizes < np.abs(change)[:, None] * (1 - _TIE)
    is_new[:, 1:] &= values[:, 1:] != values[:, :-1]
    return np.hstack([first, np.where(is_new, values, np.nan)])


def round_change(column: Column, factual: Floats, change: Floats) -> Floats:
    """Return `factual + change`, rounded away from `factual` to readable numbers.

    See `round_outwards`. The result has no more decimals, or no finer times in the column's time
    zone, than the column. The arrays are broadcast together.
    """
    if column.kind != "date":
        return round_outwards(factual, change, 10.0**-column.decimals)
    clock = column.on_the_clock(factual)
    rounded = round_outwards(clock, change, column.resolution, are_dates=True)
    return column.from_the_clock(rounded)


def _best_rungs(
    ladders: Ladders,
    rows: Floats,
    query: Ints,
    refused: Floats,
    distance: Distance,
    keeps: Keeps,
) -> Ladders:
    """Return the move of each point that saves most; points without a move have none.

    First a few evenly spaced rungs of each ladder are tried, then the rungs just below the smallest
    of these that may be an answer. `refused` is updated with the largest refused change of each
    ladder.
    """
    if not len(ladders):
        return ladders
    trials = ladders.trials(rows)
    ladder = ladders.number
    rank = ladders.rank
    n_rungs = ladders.n_rungs
    step = ladders.steps
    is_kept = np.zeros(len(ladders), dtype=bool)

    coarse = np.flatnonzero(rank % step[ladder] == 0)
    is_kept[coarse] = keeps(trials[coarse], ladders.point[coarse])
    smallest = _smallest(ladders, is_kept)
    last = (n_rungs - 1) // step * step
    below = np.where(smallest == n_rungs, last, smallest - step)  # the largest refused rung
    is_between = (rank > below[ladder]) & (rank < smallest[ladder])
    fine = np.flatnonzero(is_between)
    is_kept[fine] = keeps(trials[fine], ladders.point[fine])
    smallest = _smallest(ladders, is_kept)

    largest_refused = np.flatnonzero(rank == smallest[ladder] - 1)
    limit = ladders.take(largest_refused)
    place = (limit.point, limit.column)
    refused[place] = np.maximum(refused[place], limit.sizes)
    moves = np.flatnonzero(rank == smallest[ladder])
    return _dearest(ladders.take(moves), rows, query, distance)


def _smallest(ladders: Ladders, is_kept: Mask) -> Ints:
    """Return the rank of the first kept rung of each ladder; the ladder's length if none is."""
    smallest = ladders.n_rungs
    np.minimum.at(smallest, ladders.number[is_kept], ladders.rank[is_kept])
    return smallest


def _dearest(moves: Ladders, rows: Floats, query: Ints, distance: Distance) -> Ladders:
    """Return the move of each point that reduces its distance most."""
    if not len(moves):
        return moves
    before = distance.by_column(rows[moves.point], query[moves.point])
    after = distance.by_column(moves.trials(rows), query[moves.point])
    saving = (before - after).sum(axis=1)
    order = np.lexsort((moves.column, -np.round(saving, 9), moves.point))
    return moves.take(order[rank_in_run(moves.point[order]) == 0])


def least_together(rows: Floats, query: Ints, limits: Limits, keeps: Keeps) -> Floats:
    """Shrink all changes of numbers and levels of points together, as far as `keeps` permits.

    Points go straight towards their query, in steps of a twentieth of the way, and end before the
    first step that `keeps` refuses. Categories do not change. If a step is not permitted for a
    value, this value does not change.

    Parameters
    ----------
    rows : shape (n_points, n_features)
        Points that may be answers.
    query : shape (n_points,)
    limits : Limits
    keeps : Keeps
        It is called once.

    Returns
    -------
    array, shape (n_points, n_features)
        The nearest points.
    """
    shares = np.arange(1, _STEPS) / _STEPS
    steps = np.repeat(rows[:, None], len(shares), axis=1)  # (n_points, n_shares, n_features)
    for j in np.flatnonzero(limits.codes.is_line).tolist():
        values = _shrunk(limits.codes.columns[j], limits.queries[query, j], rows[:, j], shares)
        flat = values.reshape(-1)
        is_permitted = limits.permits_values(flat, j, np.repeat(query, len(shares)))
        steps[:, :, j] = np.where(is_permitted.reshape(values.shape), values, rows[:, None, j])
    trials = steps.reshape(-1, rows.shape[1])
    is_kept = keeps(trials, np.repeat(np.arange(len(rows)), len(shares)))
    is_kept = is_kept.reshape(len(rows), len(shares))
    n_kept = np.logical_and.accumulate(is_kept[:, ::-1], axis=1).sum(axis=1)
    first = np.minimum(len(shares) - n_kept, len(shares) - 1)
    least = steps[np.arange(len(rows)), first]
    return np.where(n_kept[:, None] > 0, least, rows)


def _shrunk(column: Column, factual: Floats, advised: Floats, shares: Floats) -> Floats:
    """Return the values of one column after `shares` of their changes, (n_points, n_shares).

    A change from or to a missing value does not shrink.
    """
    is_between = (factual != MISSING) & (advised != MISSING) & (factual != advised)
    change = np.where(is_between, advised - factual, 1.0)[:, None] * shares
    if column.is_numeric:
        values = round_change(column, factual[:, None], change)
    else:
        values = factual[:, None] + np.sign(change) * np.ceil(np.abs(change) - _TIE)
    is_smaller = np.abs(values - factual[:, None]) < np.abs(advised - factual)[:, None]
    return np.where(is_between[:, None] & is_smaller, values, advised[:, None])
