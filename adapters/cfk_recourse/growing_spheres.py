"""Growing Spheres: draw points around the query in growing spheres, and take the nearest one that
flips.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_recourse.encoding import Encoding, Points
from cfk_recourse.recourse import Recourse
from cfk_recourse.shells import Spheres, l1_shell

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from cfk_recourse.recourse import Labels, Mask


class GrowingSpheres(Recourse):
    """Explain by the nearest point that flips, drawn in growing l1 spheres (Laugel et al. 2017).

    Spheres are those of the l1 norm, as in Pawelczyk et al. 2023 (appendix C.2); Laugel's are
    Euclidean. A radius is divided over the features at random: a number moves by its share, in
    ranges, up or down; a category changes with its share as probability. Laugel's second step,
    which resets features that need not have changed, is `sparse`; the experiments of 2023 leave it
    out.

    The answers are not training rows, but are bounded by the ranges of the training rows and take
    their categories.

    Parameters
    ----------
    train, model, desired, features, seed
        See `Recourse`.
    samples : int
        Points drawn in each sphere or shell. The model is asked about up to 2 million numbers at
        once.
    start, growth : float
        Radius of the first sphere, in ranges; ratio of the radii of a shell. Smaller ones find
        nearer points and ask the model more often.
    limit : float, optional
        Radius at which the search ends. Default: the number of features.
    within_ranges : bool
        Keep numbers within the range of the training rows.
    sparse : bool
        Reset the features that changed least, one by one, as long as the prediction stays desired.

    Examples
    --------
    >>> import pandas as pd
    >>> train = pd.DataFrame({"age": [20.0, 40.0, 60.0]})
    >>> explainer = GrowingSpheres(train, lambda rows: rows["age"] > 30)
    >>> bool(explainer.explain(pd.DataFrame({"age": [25.0]}))["age"].between(30, 31).all())
    True
    """

    def __init__(
        self,
        train: pd.DataFrame,
        model: Any,
        desired: Any = "opposite",
        features: Sequence[str] | None = None,
        *,
        seed: int = 0,
        samples: int = 500,
        start: float = 0.1,
        growth: float = 1.25,
        limit: float | None = None,
        within_ranges: bool = True,
        sparse: bool = False,
    ) -> None:
        super().__init__(train, model, desired, features, seed=seed)
        self.within_ranges, self.sparse = within_ranges, sparse
        self._spheres = Spheres(
            samples, start, growth, float(len(self.features) if limit is None else limit)
        )

    def _search(
        self, encoding: Encoding, points: Points, own: Labels, random: np.random.Generator
    ) -> tuple[Points, Mask]:
        samples = self._spheres.samples

        def draw(
            rows: NDArray[np.int64], low: NDArray[np.float64], high: NDArray[np.float64]
        ) -> tuple[Points, NDArray[np.float64], Mask]:
            centers = points.take(np.repeat(rows, samples))
            moves = l1_shell(low, high, samples, len(encoding.names), random)
            drawn = self._moved(encoding, centers, moves, random)
            flips = self._flips(encoding, drawn, np.repeat(own[rows], samples))
            return drawn, encoding.distance(drawn, centers), flips

        answers, found = self._spheres.search(points, len(encoding.names), draw)
        return (self._put_back(encoding, answers, points, own) if self.sparse else answers), found

    def _moved(
        self,
        encoding: Encoding,
        centers: Points,
        moves: NDArray[np.float64],
        random: np.random.Generator,
    ) -> Points:
        """Move numbers by their share of the radius; draw another category with its share as
        probability.
        """
        by = moves[:, : len(encoding.numeric)]
        bounds = encoding.bounds(centers.numbers, within_ranges=self.within_ranges)
        numbers = encoding.settled(centers.numbers + by * encoding.scale, centers.numbers, bounds)
        codes = centers.codes
        if encoding.categorical:
            sizes = np.array(encoding.sizes)
            # other than the point's own, which may be in no training row
            others = sizes - (codes < sizes)
            other = (random.random(codes.shape) * others).astype(np.int64)
            other += other >= codes
            chance = np.abs(moves[:, len(encoding.numeric) :])
            codes = np.where((random.random(codes.shape) < chance) & (others > 0), other, codes)
        return Points(numbers, codes)

    def _put_back(
        self, encoding: Encoding, answers: Points, queries: Points, own: Labels
    ) -> Points:
        """Reset each answer to its query's values, least changed feature first, as long as it still
        flips.
        """
        split = len(encoding.numeric)
        change = np.hstack(
            [
                np.abs(answers.numbers - queries.numbers) / encoding.scale,
                (answers.codes != queries.codes).astype(float),
            ]
        )
        numbers, codes, every = (
            answers.numbers.copy(),
            answers.codes.copy(),
            np.arange(len(answers)),
        )
        for feature in np.argsort(change, axis=1, kind="stable").T:
            tried = Points(numbers.copy(), codes.copy())
            is_number = feature < split
            at, j = every[is_number], feature[is_number]
            tried.numbers[at, j] = queries.numbers[at, j]
            at, j = every[~is_number], feature[~is_number] - split
            tried.codes[at, j] = queries.codes[at, j]
            kept = self._flips(encoding, tried, own)
            numbers[kept], codes[kept] = tried.numbers[kept], tried.codes[kept]
        return Points(numbers, codes)
