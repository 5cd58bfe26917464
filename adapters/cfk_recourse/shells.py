"""Random search in spheres that grow around a query, for many queries at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cfk_plugin.errors import AdapterError
from cfk_recourse.encoding import Points

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Mask = NDArray[np.bool_]
    Rows = NDArray[np.int64]

_HALVINGS = 40  # of the first sphere, at most: the query is then practically on the boundary ...
_HALVINGS_OF_CODES = 5  # ... or its own code is decoded to a row that flips, at any radius
_ROUNDING = 1e-9  # of a distance, relative
_ENTRIES = 1 << 21  # numbers drawn at once; 16 MB, and a few copies of them


class Draw(Protocol):
    """Draws in a shell around some queries and asks the model."""

    def __call__(self, rows: Rows, low: Matrix, high: Matrix) -> tuple[Points, Matrix, Mask]:
        """Return drawn points, their distances to their query and whether they flip, `samples` per
        query in turn.

        Parameters
        ----------
        rows : int array, shape (m,)
            Which queries.
        low, high : float64 arrays, shape (m,)
            Inner and outer radius of each query's shell.
        """
        ...


@dataclass(frozen=True, slots=True)
class Spheres:
    """How spheres shrink and grow (Laugel et al. 2017, section 3).

    The first sphere has radius `start`. As long as something in it flips, it is halved. Then shells
    grow, each from the outer radius of the last to `growth` times that, until something in one
    flips. The answer is the nearest drawn point that flips. Where the radius is a distance, a point
    may lie beyond its shell (another category is 1 away, however small the radius): then shells
    keep growing up to that point, as a nearer one may follow.

    Attributes
    ----------
    samples : int
        Points drawn in each sphere or shell.
    start, growth, limit : float
        Radius of the first sphere; ratio of the radii of a shell; radius at which the search ends.
    is_distance : bool
        Whether radii are distances of points to queries.
    """

    samples: int
    start: float
    growth: float
    limit: float
    is_distance: bool = True

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.samples < 1 or not self.start > 0 or not self.growth > 1:
            raise AdapterError(
                "samples must be at least 1, the first radius above 0 and growth above 1"
            )

    def search(self, queries: Points, width: int, draw: Draw) -> tuple[Points, Mask]:
        """Return the nearest point found for each query, and which queries have one.

        Parameters
        ----------
        queries : Points
        width : int
            Numbers drawn for each point; limits how many queries are searched at once.
        draw : callable
        """
        n, block = len(queries), max(1, _ENTRIES // (self.samples * max(width, 1)))
        best = Points(queries.numbers.copy(), queries.codes.copy())
        distance = np.full(n, np.inf)
        low, high, halved = np.zeros(n), np.full(n, self.start), np.zeros(n, dtype=int)
        searched = np.arange(n)
        while len(searched):
            flipped = np.zeros(len(searched), dtype=bool)
            for first in range(0, len(searched), block):
                part = slice(first, first + block)
                flipped[part] = self._look(searched[part], low, high, draw, best, distance)
            shrinks = flipped & (low[searched] == 0)
            high[searched[shrinks]] /= 2
            halved[searched[shrinks]] += 1
            grows = ~flipped
            low[searched[grows]] = high[searched[grows]]
            high[searched[grows]] *= self.growth
            halvings = _HALVINGS if self.is_distance else _HALVINGS_OF_CODES
            end = np.minimum(self.limit, distance[searched]) if self.is_distance else self.limit
            searched = searched[
                (grows & (low[searched] < end)) | (shrinks & (halved[searched] < halvings))
            ]
        return best, np.isfinite(distance)

    def _look(
        self, rows: Rows, low: Matrix, high: Matrix, draw: Draw, best: Points, distance: Matrix
    ) -> Mask:
        """Draw once around each query, keep the nearest that flips, and say where something inside
        flipped.
        """
        points, away, flips = draw(rows, low[rows], high[rows])
        away = np.where(flips, away, np.inf).reshape(len(rows), self.samples)
        nearest = away.argmin(axis=1)
        found = away[np.arange(len(rows)), nearest]
        better = found < distance[rows]
        at = points.take((np.arange(len(rows)) * self.samples + nearest)[better])
        best.numbers[rows[better]], best.codes[rows[better]] = at.numbers, at.codes
        distance[rows[better]] = found[better]
        return np.asarray(
            found <= high[rows] * (1 + _ROUNDING) if self.is_distance else np.isfinite(found)
        )


def l1_shell(
    low: Matrix, high: Matrix, samples: int, width: int, random: np.random.Generator
) -> Matrix:
    """Draw uniformly from the volume between two l1 spheres around 0.

    Parameters
    ----------
    low, high : float64 arrays, shape (m,)
    samples, width : int
    random : Generator

    Returns
    -------
    float64 array, shape (m * samples, width)
        `samples` rows for each pair of radii in turn.
    """
    # scaled to an l1 norm of 1: uniform on the sphere
    moves = random.laplace(size=(len(low) * samples, width))
    outer = np.repeat(high, samples)
    inside = np.repeat((low / high) ** width, samples)  # share of the outer sphere's volume
    radius = outer * (inside + random.random(len(outer)) * (1 - inside)) ** (1 / width)
    moves *= (radius / np.abs(moves).sum(axis=1))[:, None]
    return moves
