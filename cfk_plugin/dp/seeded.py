"""The same questions with noise that can be repeated: for tests and examples, without any guarantee."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.dp.noise import Counting, Counts, PrivateRows, Scores


class SeededRows(PrivateRows):
    """Rows that answer with noise of the right size from a seeded generator. Nothing is guaranteed.

    Who knows or guesses the seed takes the noise off again, and floating-point noise betrays counts by itself. OpenDP's
    noise comes from the operating system and cannot be seeded, which is why this exists beside it.

    Parameters
    ----------
    codes, epsilon, delta, shares, rows_per_person
        As `PrivateRows`.
    seed : int
    """

    seeded = True

    def __init__(
        self,
        codes: NDArray[np.int32],
        epsilon: float,
        delta: float,
        shares: Sequence[float],
        rows_per_person: int = 1,
        *,
        seed: int,
    ) -> None:
        self._random = np.random.default_rng(seed)
        super().__init__(codes, epsilon, delta, shares, rows_per_person)

    @property
    def mechanism(self) -> str:
        """Say that the noise is seeded."""
        return "seeded noise of the same size"

    def _open(self, codes: NDArray[np.int32], epsilon: float, delta: float) -> None:
        self._codes, self.epsilon, self.delta = codes, epsilon, delta

    def _noised_counts(self, count: Counting, tables: int, scale: float) -> Counts:  # noqa: ARG002 - the scale has it
        exact = count(self._codes)
        draw = self._random.normal if self._concentrated else self._random.laplace
        return np.asarray(np.rint(exact + draw(0.0, scale, len(exact))))

    def _noised_best(self, scores: Scores, scale: float) -> int:
        exact = np.array(list(scores(self._codes)))
        return int(np.argmax(exact + self._random.exponential(scale, len(exact))))
