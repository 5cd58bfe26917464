"""Moves drawn rows towards queries, as far as the model's outcome stays desired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.rounding import round_outwards
from cfk_plugin.data.tables import one_row
from cfk_plugin.dp.domain import PublicDomain
from cfk_plugin.dp.forest import Likelihood
from cfk_plugin.metrics.heom import TIE, HeomCodes, differences

_PARTS = np.arange(1, 8) / 8  # of the way to a goal
_FEW = 8  # most rows for which a call of the model also tries what may come next

Met = Callable[[pd.DataFrame, NDArray[np.int64]], NDArray[np.bool_]]


class Cells(NamedTuple):
    """Rows by column of the domain."""

    codes: NDArray[np.int32]
    numbers: NDArray[np.float64]  # 0 for categories

    @classmethod
    def of(
        cls, domain: PublicDomain, codes: NDArray[np.int32], numbers: NDArray[np.float64]
    ) -> Cells:
        """Return rows of codes, with the numbers of the columns that are numeric."""
        found = cls(codes, np.zeros(codes.shape))
        found.numbers[:, [column.is_numeric for column in domain.columns]] = numbers
        return found

    def take(self, at: NDArray[np.int64]) -> Cells:
        return Cells(self.codes[at], self.numbers[at])

    def either(self, others: Cells, is_other: NDArray[np.bool_]) -> Cells:
        return Cells(
            np.where(is_other, others.codes, self.codes),
            np.where(is_other, others.numbers, self.numbers),
        )

    def put(self, at: Any, others: Cells) -> None:
        self.codes[at], self.numbers[at] = others


class _Plan(NamedTuple):
    """The order in which rows may take over own values, and the trials: of row ``of``, up to the
    value at ``turn``.
    """

    points: Cells
    own: Cells
    gaps: NDArray[np.float64]
    rank: NDArray[np.int64]  # each column's place in the order
    size: NDArray[np.int64]
    of: NDArray[np.int64]
    turn: NDArray[np.int64]

    @classmethod
    def made(
        cls,
        points: Cells,
        own: Cells,
        gaps: NDArray[np.float64],
        weight: NDArray[np.float64],
        likely: Likelihood,
    ) -> _Plan:
        rank, size = _ranks(likely, points.codes, own.codes, gaps, weight)
        of = np.repeat(np.arange(len(size)), size)
        return cls(
            points, own, gaps, rank, size, of, np.arange(len(of)) - (np.cumsum(size) - size)[of]
        )

    def held(self, good: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return how many values each row may take over, given which trials hold."""
        held = np.zeros(len(self.size), dtype=np.int64)
        np.maximum.at(held, self.of[good], self.turn[good] + 1)
        return held

    def trials(self) -> Cells:
        """Return the rows to try."""
        return self.after(self.of, self.turn + 1)[0]

    def after(
        self, at: NDArray[np.int64], held: NDArray[np.int64]
    ) -> tuple[Cells, Cells, NDArray[np.float64]]:
        """Return rows with the first `held` own values, their queries, and the gaps left without
        the next value.
        """
        rank = self.rank[at]
        held = held[:, None]  # an axis for the columns
        points = self.points.take(at).either(self.own.take(at), rank < held)
        return points, self.own.take(at), np.where(rank <= held, 0.0, self.gaps[at])


def _ranks(
    likelihood: Likelihood,
    codes: NDArray[np.int32],
    own: NDArray[np.int32],
    gaps: NDArray[np.float64],
    weight: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the place of each column when own values that make a row better are taken over, best
    first, and how many.

    Parameters
    ----------
    likelihood : Likelihood
    codes, own, gaps : arrays, shape (n_rows, n_columns)
    weight : float array, shape (n_rows,)

    Returns
    -------
    rank : int array, shape (n_rows, n_columns)
        The place of a column that is not taken over is the number of columns.
    size : int array, shape (n_rows,)
    """
    codes = codes.copy()
    gaps = gaps.copy()
    rank = np.full(codes.shape, codes.shape[1])
    size = np.zeros(len(codes), dtype=np.int64)
    rows = np.arange(len(codes))  # rows with values to take over
    while len(rows):
        gains = gaps[rows] + weight[rows, None] * likelihood.gains(codes[rows], own[rows])
        gains[gaps[rows] <= 0] = 0.0
        best = gains.argmax(axis=1)
        is_better = gains.max(axis=1) > TIE
        rows = rows[is_better]
        best = best[is_better]
        rank[rows, best] = size[rows]
        codes[rows, best] = own[rows, best]
        gaps[rows, best] = 0.0
        size[rows] += 1
    return rank, size


class _Nearer(NamedTuple):
    """Rows with numbers that come part of the way to own ones, in one column each."""

    at: NDArray[np.int64]  # the rows that have such a column
    column: NDArray[np.int64]
    codes: NDArray[np.int32]  # by row and part of the way
    numbers: NDArray[np.float64]
    gains: NDArray[np.float64]
    row: NDArray[np.int64]  # of each trial, among `at`
    part: NDArray[np.int64]
    trials: Cells

    def chosen(self, good: NDArray[np.bool_]) -> tuple[Any, Cells]:
        """Return where numbers come nearer, and the best of those whose trials hold."""
        self.gains[self.row[~good], self.part[~good]] = 0.0
        better = np.flatnonzero(self.gains.max(axis=1) > TIE)
        best = self.gains[better].argmax(axis=1)
        return (self.at[better], self.column[better]), Cells(
            self.codes[better, best], self.numbers[better, best]
        )


class _Replies:
    """Says which rows keep the outcome; where few are moved, the model is asked about each once."""

    def __init__(self, domain: PublicDomain, met: Met, is_few: bool) -> None:
        self._domain, self._met, self.is_few = domain, met, is_few
        self._said: dict[bytes, tuple[bool, pd.DataFrame, int]] = {}

    def keeps(
        self, which: Sequence[NDArray[np.int64]], trials: Sequence[Cells]
    ) -> NDArray[np.bool_]:
        """Say of rows, each for the query ``which[i]``, whether they have a desired outcome; in one
        call, if any.
        """
        of, rows = np.concatenate(which), Cells(*map(np.concatenate, zip(*trials, strict=True)))
        if not self.is_few:
            return self._met(self._domain.table(*rows), of)
        keys = self._keys(of, rows)
        if new := {key: i for i, key in enumerate(keys) if key not in self._said}:
            at = np.array([*new.values()])
            frame = self._domain.table(*rows.take(at))
            good = self._met(frame, of[at]).tolist()
            self._said |= {key: (good[i], frame, i) for i, key in enumerate(new)}
        return np.array([self._said[key][0] for key in keys], dtype=bool)

    def table(self, points: Cells) -> pd.DataFrame:
        """Return rows as a table; a lone one is cut out of the one that the model was asked
        about.
        """
        key = self._keys(np.zeros(1, np.int64), points)[0] if len(points.codes) == 1 else b""
        if key not in self._said:
            return self._domain.table(*points)
        _, frame, i = self._said[key]
        return one_row(frame, i)

    @staticmethod
    def _keys(which: NDArray[np.int64], rows: Cells) -> list[bytes]:
        parts = np.hstack(
            [which[:, None], rows.codes.astype(np.int64), rows.numbers.view(np.int64)]
        )
        keys: list[bytes] = parts.view(np.dtype((np.void, parts.strides[0]))).ravel().tolist()  # type: ignore[assignment]
        return keys


class Mover:
    """Moves drawn rows towards queries while the outcome stays desired; uses only these and the
    model's answers.

    The better row has the lower L1 distance to its query minus its log-probability times that
    query's weight.
    """

    def __init__(self, domain: PublicDomain, likelihood: Likelihood, rows: Cells) -> None:
        self.domain, self.likelihood, self.rows = domain, likelihood, rows
        self._widths = np.array(
            [column.width if column.is_numeric else 0.0 for column in domain.columns]
        )

    def points(self, queries: HeomCodes) -> Cells:
        """Return queries by column of the domain; the code of what is not declared is -1."""
        codes, tokens = (
            np.full((len(queries), len(self.domain.columns)), -1, dtype=np.int32),
            iter(queries.codes.T),
        )
        found = Cells.of(self.domain, codes, queries.numbers)
        for j, column in enumerate(self.domain.features):
            if column.is_numeric:
                found.numbers[:, j] = column.rounded(found.numbers[:, j])
                found.codes[:, j] = column.bins_of(found.numbers[:, j])
            else:
                found.codes[:, j] = [
                    column.tokens.get(token, -1) for token in next(tokens).tolist()
                ]
        return found

    def move(
        self,
        at: NDArray[np.int64],
        labels: NDArray[Any],
        own: Cells,
        weight: NDArray[np.float64],
        met: Met,
    ) -> pd.DataFrame:
        """Return drawn rows, whose outcomes are `labels`, with those of their queries' declared
        values that are better.

        ``met(frame, which)`` says whether rows, each an answer to query ``which[i]``, have a
        desired outcome.
        """
        points, features = self.rows.take(at), len(self.domain.features)
        # a surrogate's stays as it is
        for j, target in enumerate(self.domain.columns[features:], features):
            points.codes[:, j] = own.codes[:, j] = target.codes(pd.Series(labels))
        own, asked = points.either(own, own.codes >= 0), _Replies(self.domain, met, len(at) <= _FEW)
        self._take_over(points, own, weight, asked)
        self._approach(points, own, weight, asked)
        return asked.table(points)

    def _take_over(
        self, points: Cells, own: Cells, weight: NDArray[np.float64], asked: _Replies
    ) -> None:
        """Take over own values, best first: tries the first, the first two and so on, and keeps the
        last that holds.

        The value after it is given up, and what is better without that one is tried again. With few
        rows, that is asked about in the same call of the model for every value that this may be,
        and so are the first numbers that come part of the way if all else holds.
        """
        widths, waiting = self._widths, np.arange(len(points.codes))
        gaps = np.where(
            widths, differences(points.numbers, own.numbers, widths), points.codes != own.codes
        )
        while len(waiting):
            states = points.take(waiting), own.take(waiting), gaps[waiting]
            first = _Plan.made(*states, weight[waiting], self.likelihood)
            if not len(first.of):
                break
            plans, who, trials = [first], [waiting[first.of]], [first.trials()]
            if asked.is_few:
                states, of = first.after(first.of, first.turn), who[0]
                plans.append(_Plan.made(*states, weight[of], self.likelihood))
                who.append(of[plans[1].of])
                trials.append(plans[1].trials())
                for plan, whose in zip(plans, (waiting, of), strict=True):
                    ends, goals, _ = plan.after(np.arange(len(whose)), plan.size)
                    nearer = self._nearer(ends, goals, weight[whose])
                    who.append(whose[nearer.at[nearer.row]])
                    trials.append(nearer.trials)
            good = asked.keeps(who, trials)
            held = first.held(good[: len(first.of)])
            ends, _, gaps[waiting] = first.after(np.arange(len(waiting)), held)
            points.put(waiting, ends)
            left = np.flatnonzero(held < first.size)
            if len(plans) > 1 and len(left):
                # the plan without the value that failed
                of = np.searchsorted(first.of, left) + held[left]
                held = plans[1].held(good[len(first.of) :][: len(plans[1].of)])[of]
                ends, _, gaps[waiting[left]] = plans[1].after(of, held)
                points.put(waiting[left], ends)
                left = left[held < plans[1].size[of]]
            waiting = waiting[left]

    def _approach(
        self, points: Cells, own: Cells, weight: NDArray[np.float64], asked: _Replies
    ) -> None:
        """Move numbers part of the way, in eighths, one column of each row at a time: to the best
        part that holds.
        """
        left = np.ones(points.codes.shape, dtype=bool)
        while len((nearer := self._nearer(points, own, weight, left)).at):
            left[nearer.at, nearer.column] = False
            if len(nearer.row):
                points.put(*nearer.chosen(asked.keeps([nearer.at[nearer.row]], [nearer.trials])))

    def _nearer(
        self,
        points: Cells,
        own: Cells,
        weight: NDArray[np.float64],
        left: NDArray[np.bool_] | None = None,
    ) -> _Nearer:
        """Return numbers that come part of the way to own ones, in the first column left to each
        row.

        Numbers are rounded away from own ones. The gain of a number that comes a second time is 0.
        Trials are those with a gain.
        """
        is_apart = np.isfinite(own.numbers) & (own.numbers != points.numbers)
        if left is not None:
            is_apart &= left
        at = np.flatnonzero(is_apart.any(axis=1))
        column = is_apart[at].argmax(axis=1)
        start = points.numbers[at, column, None]
        goal = own.numbers[at, column, None]
        numbers = np.empty((len(at), len(_PARTS)))
        codes = np.empty(numbers.shape, dtype=np.int32)
        for j in np.unique(column):
            rows = column == j
            changes = (start[rows] - goal[rows]) * (1 - _PARTS)
            numbers[rows], codes[rows] = self._declared(int(j), goal[rows], changes)
        gains = np.abs(numbers - start) / self._widths[column, None]
        gains += weight[at, None] * self._gains(points.codes[at], column, codes)
        gains[np.diff(numbers, prepend=start) == 0] = 0.0
        row, part = np.nonzero(gains > TIE)
        trials = points.take(at[row])
        trials.put((np.arange(len(row)), column[row]), Cells(codes[row, part], numbers[row, part]))
        return _Nearer(at, column, codes, numbers, gains, row, part, trials)

    def _declared(
        self, j: int, own: NDArray[np.float64], changes: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """Return own numbers after changes as round numbers of a column, and their codes."""
        column = self.domain.columns[j]
        numbers = round_outwards(own, changes, column.finest, are_dates=column.is_date)
        codes = np.searchsorted(column.edges, numbers, side="right") - 1
        return numbers, codes.clip(0, len(column.edges) - 2).astype(np.int32)

    def _gains(
        self, codes: NDArray[np.int32], column: NDArray[np.int64], others: NDArray[np.int32]
    ) -> NDArray[np.float64]:
        """Return how much likelier rows would be with other codes in one column each.

        `codes` has the shape (n_rows, n_columns), `column` (n_rows,); `others` and the result have
        the shape (n_rows, n_others).
        """
        n_others = others.shape[1]
        repeated = np.repeat(codes, n_others, axis=0)
        place = np.arange(len(repeated)), np.repeat(column, n_others)
        changed = repeated.copy()
        changed[place] = others.ravel()
        return self.likelihood.gains(repeated, changed)[place].reshape(others.shape)
