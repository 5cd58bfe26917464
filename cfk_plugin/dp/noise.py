"""Rows that answer questions with noise within one budget; noise, privacy maps and composition are
OpenDP's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.dp.composition import largest_rho
from cfk_plugin.errors import BudgetError, HostOnly, load_extra

Counts = NDArray[np.float64]
Counting = Callable[[NDArray[np.int32]], Counts]
Scores = Callable[[NDArray[np.int32]], Sequence[float]]

_EXACT = 1e-6  # most that the composed loss may fall below the declared one, relative
_ROOM = 1e-9  # OpenDP rounds its maps up, so scales exceed the formulas by this share


class PrivateRows(HostOnly):
    """Coded rows that only answer questions with noise; each costs its share of the budget, in
    order.

    Neighboring tables differ by the rows of a person, at most `rows_per_person`, added or removed.
    Counts get discrete Laplace noise if `delta` is 0, else discrete Gaussian noise under
    zero-concentrated privacy.
    """

    seeded = False

    def __init__(
        self,
        codes: NDArray[np.int32],
        epsilon: float,
        delta: float,
        shares: Sequence[float],
        rows_per_person: int = 1,
    ) -> None:
        self.person = rows_per_person
        self._concentrated = delta > 0
        self._total = largest_rho(epsilon, delta) or epsilon
        self._left = [share * self._total * (1 - _ROOM) for share in shares]
        self.answers: list[NoisedCounts] = []  # all counts that were given out
        self._open(codes, epsilon, delta)

    def _counts(self) -> str:
        return f"{len(self._left)} questions left"

    @property
    def mechanism(self) -> str:
        kind = "Gaussian, zero-concentrated" if self._concentrated else "Laplace"
        return f"discrete {kind}, OpenDP {load_opendp().__version__}"

    def scale(self, tables: int, share: float) -> float:
        """Return the scale of the noise on each count if this many tables share a share of the
        budget.
        """
        part = share * self._total
        if self._concentrated:
            return self.person * math.sqrt(tables / (2 * part))
        return self.person * tables / part

    def deviation(self, scale: float) -> float:
        return scale if self._concentrated else math.sqrt(2) * scale

    def magnitude(self, scale: float) -> float:
        """Return the mean absolute value of noise of a scale."""
        return scale * math.sqrt(2 / math.pi) if self._concentrated else scale

    def counts(self, tables: Sequence[Marginal]) -> list[Counts]:
        """Return the noised counts of some tables, each in its shape. Costs one question."""
        share = self._next() / self._total
        scale = self.scale(len(tables), share)

        def counted(codes: NDArray[np.int32]) -> Counts:
            return np.concatenate([table.count(codes).ravel() for table in tables])

        flat = self._noised_counts(counted, len(tables), scale * (1 + _ROOM))
        parts = zip(tables, np.split(flat, np.cumsum([t.cells for t in tables])[:-1]), strict=True)
        found = [NoisedCounts(table, part.reshape(table.shape), scale) for table, part in parts]
        self.answers += found
        return [answer.counts for answer in found]

    def choice_scale(self, share: float) -> float:
        """Return the scale of the noise on each score, for a choice at a share of the budget."""
        part = share * self._total
        return 2 * self.person / (math.sqrt(8 * part) if self._concentrated else part)

    def best(self, scores: Scores) -> int:
        """Return which score is about the highest; a row changes each by at most 1.

        Costs one question.
        """
        return self._noised_best(
            scores, self.choice_scale(self._next() / self._total) * (1 + _ROOM)
        )

    def divide(self, shares: Sequence[float]) -> None:
        """Divide the last question into several; their number and shares may depend on earlier
        answers.
        """
        if len(self._left) != 1 or sum(shares) * self._total > self._left[0] * (1 + _EXACT):
            raise BudgetError(
                "only the last question is divided, into shares that are not more than its own"
            )
        whole = self._next() * (1 - _ROOM)
        self._left = [share / sum(shares) * whole for share in shares]
        self._divide()

    def _next(self) -> float:
        if not self._left:
            raise BudgetError("more was asked of the rows than the budget was divided for")
        return self._left.pop(0)

    def _open(self, codes: NDArray[np.int32], epsilon: float, delta: float) -> None:
        dp = load_opendp()
        self._space = (
            dp.user_domain("coded rows", lambda rows: isinstance(rows, np.ndarray)),
            dp.symmetric_distance(),
        )
        self._measure = (
            dp.zero_concentrated_divergence() if self._concentrated else dp.max_divergence()
        )
        composed = dp.c.make_adaptive_composition(
            *self._space, self._measure, d_in=self.person, d_mids=self._left
        )
        if self._concentrated:
            loss = dp.c.make_zCDP_to_approxDP(composed).map(self.person).epsilon(delta)
        else:
            loss = composed.map(self.person)
        self.epsilon, self.delta = float(loss), delta
        if not epsilon * (1 - _EXACT) <= self.epsilon <= epsilon:
            raise BudgetError(
                f"the questions compose to epsilon = {self.epsilon:.6g}, declared is {epsilon:.6g}"
            )
        self._queryable = composed(codes)

    def _divide(self) -> None:
        dp = load_opendp()
        self._queryable = self._queryable(
            dp.c.make_adaptive_composition(
                *self._space, self._measure, d_in=self.person, d_mids=self._left
            )
        )

    def _noised_counts(self, count: Counting, tables: int, scale: float) -> Counts:
        dp = load_opendp()
        if self._concentrated:
            metric, stretch = dp.l2_distance(T=float), math.sqrt(tables)
            noise = dp.m.then_gaussian(scale=scale)
        else:
            metric, stretch = dp.l1_distance(T="i64"), tables
            noise = dp.m.then_laplace(scale=scale)
        counting = dp.t.make_user_transformation(
            *self._space,
            # the range must hold the noise of a very small epsilon
            dp.vector_domain(dp.atom_domain(T="i64")),
            metric,
            lambda rows: count(rows).astype(np.int64).tolist(),
            lambda distance: distance * stretch,
        )
        return np.array(self._queryable(counting >> noise), dtype=np.float64)

    def _noised_best(self, scores: Scores, scale: float) -> int:
        dp = load_opendp()
        scoring = dp.t.make_user_transformation(
            *self._space,
            dp.vector_domain(dp.atom_domain(T=float, nan=False)),
            dp.linf_distance(T=float),
            lambda rows: [float(score) for score in scores(rows)],
            float,
        )
        return int(self._queryable(scoring >> dp.m.then_noisy_max(self._measure, scale=scale)))


class NoisedCounts(NamedTuple):
    table: Marginal
    counts: Counts
    scale: float


class Marginal:
    """A marginal table to ask for: the cross product of columns, whose codes may be merged
    first.
    """

    def __init__(self, columns: Sequence[int], merged: Sequence[NDArray[np.int32]]) -> None:
        self.columns, self._merged = tuple(columns), tuple(merged)
        self.shape = tuple(int(codes.max()) + 1 for codes in merged)
        self.cells = math.prod(self.shape)

    def count(self, codes: NDArray[np.int32]) -> Counts:
        """Return how many rows are in each cell, without noise: only `PrivateRows` may call
        this.
        """
        return (
            np.bincount(self._cells(codes), minlength=self.cells)
            .reshape(self.shape)
            .astype(np.float64)
        )

    def at(self, codes: NDArray[np.int32], counts: Counts) -> Counts:
        return np.asarray(counts.ravel()[self._cells(codes)])

    def _cells(self, codes: NDArray[np.int32]) -> NDArray[np.int64]:
        cell = np.zeros(len(codes), dtype=np.int64)
        for column, merged, size in zip(self.columns, self._merged, self.shape, strict=True):
            cell = cell * size + merged[codes[:, column]]
        return cell


def load_opendp() -> Any:
    """Return OpenDP's prelude; raise `MissingDependencyError` if it is not installed."""
    dp = load_extra("opendp.prelude", "dp", "differential privacy needs OpenDP")
    dp.enable_features("contrib", "honest-but-curious")  # allows transformations of our own
    return dp


class SeededRows(PrivateRows):
    """Rows with noise of the right size from a seed, which OpenDP does not offer.

    Nothing is guaranteed.

    Whoever knows or guesses the seed can remove the noise, and floating-point noise leaks counts by
    itself.
    """

    seeded = True

    def __init__(self, *settings: Any, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        super().__init__(*settings)

    @property
    def mechanism(self) -> str:
        return "seeded noise of the same size"

    def _open(self, codes: NDArray[np.int32], epsilon: float, delta: float) -> None:
        self._codes, self.epsilon, self.delta = codes, epsilon, delta

    def _divide(self) -> None:
        pass

    def _noised_counts(self, count: Counting, tables: int, scale: float) -> Counts:  # noqa: ARG002 - the scale has it
        exact = count(self._codes)
        draw = self._random.normal if self._concentrated else self._random.laplace
        return np.asarray(np.rint(exact + draw(0.0, scale, len(exact))))

    def _noised_best(self, scores: Scores, scale: float) -> int:
        exact = np.array(list(scores(self._codes)))
        return int(np.argmax(exact + self._random.exponential(scale, len(exact))))
