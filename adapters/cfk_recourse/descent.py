"""Explainers that follow gradients, and their descent towards a desired prediction, for all queries
at once.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from cfk_plugin.errors import AdapterError
from cfk_recourse.encoding import Encoding, Points
from cfk_recourse.gradients import Adam, check_gradient
from cfk_recourse.recourse import Recourse
from cfk_recourse.slopes import GivenSlope, Slope, Vectors, slope_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from cfk_recourse.recourse import Labels, Mask

    Matrix = NDArray[np.float64]

_HALVINGS = 20  # narrow the way to a millionth
_ENTRIES = 1 << 21  # numbers searched at once; a few arrays of 16 MB


class GradientRecourse(Recourse):
    """Base of explainers that follow the gradient of the model, or of a substitute function; see
    `Scfe`.

    A subclass implements `_follow`.
    """

    def __init__(
        self,
        train: pd.DataFrame,
        model: Any,
        desired: Any = "opposite",
        features: Sequence[str] | None = None,
        *,
        seed: int,
        gradient: Callable[[Matrix], tuple[Matrix, Matrix]] | None,
        within_ranges: bool,
    ) -> None:
        super().__init__(train, model, desired, features, seed=seed)
        self.within_ranges = within_ranges
        self._slope: Slope
        if gradient is None:
            self._slope = slope_of(model, self.encoding, self.encoding.encode(self._train))
            self._classes = np.asarray(model.classes_)
        elif isinstance(desired, str) and desired == "opposite":
            raise AdapterError(
                "a `gradient` knows one desired outcome: give `desired` as a label or function"
            )
        else:
            self._slope = GivenSlope(check_gradient(gradient))

    @abstractmethod
    def _follow(
        self, vectors: Vectors, queries: Points, desired: Mask, own: Labels
    ) -> tuple[Points, Mask]:
        """Return an answer for each query, given its `desired` classes, and which queries have
        one.
        """

    def _search(
        self,
        encoding: Encoding,
        points: Points,
        own: Labels,
        random: np.random.Generator,  # noqa: ARG002 - nothing is drawn
    ) -> tuple[Points, Mask]:
        desired, vectors = self._desired_classes(own), Vectors(encoding)
        possible = np.flatnonzero(desired.any(axis=1) & ~desired.all(axis=1))
        answers, found = (
            Points(points.numbers.copy(), points.codes.copy()),
            np.zeros(len(points), dtype=bool),
        )
        block = max(1, _ENTRIES // len(vectors.inputs))
        for first in range(0, len(possible), block):
            rows = possible[first : first + block]
            part, found[rows] = self._follow(vectors, points.take(rows), desired[rows], own[rows])
            answers.numbers[rows], answers.codes[rows] = part.numbers, part.codes
        return answers, found

    def _desired_classes(self, own: Labels) -> Mask:
        """Say for each query which of the model's classes are desired."""
        if isinstance(self._slope, GivenSlope):
            return np.tile([False, True], (len(own), 1))
        classes = self._classes
        each = np.array(
            [self._is_desired(classes, np.repeat(label, len(classes))) for label in classes],
            dtype=bool,
        )
        return np.asarray(each[(own[:, None] == classes).argmax(axis=1)])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Descent:
    """The objective for some queries, and its descent: cross entropy of the desired outcome + price
    · distance.

    Moves from the query's vector are optimised, in units, and judged at the row that they lead to.

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
        """Return the least price at which each query's moves stay 0, shape (n,)."""
        pull = self.pull()
        return np.asarray(
            np.abs(pull).max(axis=1) if self.norm == "l1" else np.sqrt((pull**2).sum(axis=1))
        )

    def pull(self) -> Matrix:
        """Return the gradient of the cross entropy at the queries, by moves, shape (n,
        n_inputs).
        """
        return self._pull(self.own)[1]

    def run(
        self, moves: Matrix, price: Matrix, steps: int, free: Mask | None = None
    ) -> tuple[Points, Mask]:
        """Take descent steps, changing `moves` in place; without a price, stop once all have
        flipped.

        Parameters
        ----------
        moves : array, shape (n, n_inputs)
        price : array, shape (n,)
        steps : int
        free : bool array, shape (n, n_inputs), optional
            Which entries may move. Default: all.

        Returns
        -------
        Points, bool array of shape (n,)
            The nearest point on the way that flips, and whether any does.
        """
        start = self.vectors.of(self.own)
        low, high = self.vectors.bounds(start, within_ranges=self.within_ranges)
        limits = (low - start) / self.vectors.units, (high - start) / self.vectors.units
        if free is not None:
            limits = np.where(free, limits[0], 0), np.where(free, limits[1], 0)
        best, nearest = (
            Points(self.own.numbers.copy(), self.own.codes.copy()),
            np.full(len(self.own), np.inf),
        )
        adam = Adam(moves, self.rate)
        for _ in range(steps):
            here = self._settled(start + moves * self.vectors.units)
            margin, pull = self._pull(here)
            distance = self.vectors.encoding.distance(here, self.own, self.norm)
            better = (margin > 0) & (distance < nearest)
            best.numbers[better], best.codes[better] = here.numbers[better], here.codes[better]
            nearest[better] = distance[better]
            if not price.any() and np.isfinite(nearest).all():
                break
            if self.norm == "l1":
                sizes = adam.step(pull)
                moves[:] = np.sign(moves) * np.maximum(np.abs(moves) - sizes * price[:, None], 0)
            else:
                length = np.sqrt((moves**2).sum(axis=1, keepdims=True))
                adam.step(
                    pull
                    + price[:, None]
                    * np.divide(moves, length, out=np.zeros_like(moves), where=length > 0)
                )
            np.clip(moves, *limits, out=moves)
        return best, np.isfinite(nearest)

    def drawn_back(self, found: Points) -> Points:
        """Move points that flip along the straight line to their query, as far as they still flip.

        A step is as long for a query next to the boundary as for one far away; this undoes the
        overshoot. Categories stay as they are.
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
        return self.vectors.settled(vectors, self.own, within_ranges=self.within_ranges)

    def _settled_numbers(self, numbers: Matrix) -> Matrix:
        bounds = self.vectors.encoding.bounds(self.own.numbers, within_ranges=self.within_ranges)
        return self.vectors.encoding.settled(numbers, self.own.numbers, bounds)
