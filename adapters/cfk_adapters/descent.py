"""Descent from queries towards a desired prediction, at a price for the distance; all queries at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from cfk_adapters.encoding import Points
from cfk_plugin.dp.gradients import Adam

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_adapters.slopes import Slope, Vectors

    Matrix = NDArray[np.float64]
    Mask = NDArray[np.bool_]

_HALVINGS = 20  # leave a millionth of the way


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Descent:
    """The objective of some queries, and steps down it: cross entropy of the desired outcome + price · distance.

    What is optimised are moves, in units, from the query's vector. They are judged at the row that they lead to.

    Attributes
    ----------
    slope, vectors
        Of model and table.
    own : Points
        The queries.
    desired : bool array, shape (n, n_classes)
    norm : {"l1", "l2"}
    within_ranges : bool
    rate : float
        Of Adam.
    """

    slope: Slope
    vectors: Vectors
    own: Points
    desired: Mask
    norm: str
    within_ranges: bool
    rate: float

    def steepest(self) -> Matrix:
        """Return the least price at which the moves of each query stay 0, shape (n,)."""
        pull = self._pull(self.own)[1]
        return np.asarray(np.abs(pull).max(axis=1) if self.norm == "l1" else np.sqrt((pull**2).sum(axis=1)))

    def run(self, moves: Matrix, price: Matrix, steps: int) -> tuple[Points, Mask]:
        """Take steps down, changing the moves in place.

        Returns
        -------
        Points, bool array of shape (n,)
            The nearest point on the way that flipped, and whether any did.
        """
        start = self.vectors.of(self.own)
        low, high = self.vectors.bounds(start, within_ranges=self.within_ranges)
        limits = (low - start) / self.vectors.units, (high - start) / self.vectors.units
        best, nearest = Points(self.own.numbers.copy(), self.own.codes.copy()), np.full(len(self.own), np.inf)
        adam = Adam(moves, self.rate)
        for _ in range(steps):
            here = self._settled(start + moves * self.vectors.units)
            margin, pull = self._pull(here)
            distance = self.vectors.encoding.distance(here, self.own, self.norm)
            better = (margin > 0) & (distance < nearest)
            best.numbers[better], best.codes[better] = here.numbers[better], here.codes[better]
            nearest[better] = distance[better]
            if self.norm == "l1":
                sizes = adam.step(pull)
                moves[:] = np.sign(moves) * np.maximum(np.abs(moves) - sizes * price[:, None], 0)
            else:
                length = np.sqrt((moves**2).sum(axis=1, keepdims=True))
                adam.step(pull + price[:, None] * np.divide(moves, length, out=np.zeros_like(moves), where=length > 0))
            np.clip(moves, *limits, out=moves)
        return best, np.isfinite(nearest)

    def drawn_back(self, found: Points) -> Points:
        """Return points that flipped as far on the straight line to their query as they still flip.

        A step is as long for a query next to the boundary as for one far away; this undoes what it went too far.
        Categories stay as they are.
        """
        best, away = found.numbers.copy(), found.numbers - self.own.numbers
        low, high = np.zeros(len(found)), np.ones(len(found))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            tried = self._settled_numbers(self.own.numbers + middle[:, None] * away)
            flips = self.slope(self.vectors.of(Points(tried, found.codes)), self.desired)[0] > 0
            best[flips] = tried[flips]
            low, high = np.where(flips, low, middle), np.where(flips, middle, high)
        return Points(best, found.codes)

    def _pull(self, points: Points) -> tuple[Matrix, Matrix]:
        """Return margins, and the gradient of the cross entropy by the moves."""
        margin, gradient = self.slope(self.vectors.of(points), self.desired)
        return margin, -expit(-margin)[:, None] * gradient * self.vectors.units

    def _settled(self, vectors: Matrix) -> Points:
        points = self.vectors.points(vectors, self.own)
        return Points(self._settled_numbers(points.numbers), points.codes)

    def _settled_numbers(self, numbers: Matrix) -> Matrix:
        bounds = self.vectors.encoding.bounds(self.own.numbers, within_ranges=self.within_ranges)
        return self.vectors.encoding.settled(numbers, self.own.numbers, bounds)
