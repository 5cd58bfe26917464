"""C-CHVAE: the nearest row that flips, of rows decoded from points around the query's latent
code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.errors import AdapterError
from cfk_recourse.encoding import Encoding, Points
from cfk_recourse.recourse import Recourse
from cfk_recourse.shells import Spheres, l1_shell
from cfk_recourse.slopes import Vectors
from cfk_recourse.vae import Latent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from cfk_recourse.recourse import Labels, Mask

    Matrix = NDArray[np.float64]


class CChvae(Recourse):
    """Explain by a row that a generative model of the training rows decodes (Pawelczyk et al.
    2020).

    A variational autoencoder learns the training rows. Around the query's latent code, points are
    drawn in l1 spheres that grow until the row decoded from one flips; of those, the row nearest to
    the query is the answer. Widths are those of Pawelczyk et al. 2023 (appendix C.2): hidden layers
    of 20 units, 8 latent dimensions. No feature is held fixed, so nothing is conditioned on.

    Every feature of an answer is decoded, so all numbers differ from the query's. The answers are
    no training rows; the autoencoder that makes them has learned the training rows and is not
    private.

    Parameters
    ----------
    train, model, desired, features, seed
        See `Recourse`. The seed is also for training the autoencoder, which happens at the first
        query.
    latent, hidden : int
        Latent dimensions; units of the hidden layers.
    steps, batch, rate : int, int, float
        For the autoencoder's training with Adam; rows of a step are drawn with replacement, so that
        the time does not depend on their number.
    samples, start, growth, limit : int, float, float, float
        Points drawn in each sphere or shell; radius of the first one; ratio of the radii of a
        shell; radius where the search ends. Latent codes are about standard normal.
    within_ranges : bool
        Keep numbers within the range of the training rows.

    Examples
    --------
    >>> import pandas as pd
    >>> train = pd.DataFrame({"age": np.linspace(20, 60, 50), "debt": np.linspace(9, 1, 50)})
    >>> explainer = CChvae(train, lambda rows: rows["age"] > 40)
    >>> answer = explainer.explain(pd.DataFrame({"age": [35.0], "debt": [6.0]}))
    >>> bool((answer["age"] > 40).all() and (answer["debt"] < 6).all())
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
        latent: int = 8,
        hidden: int = 20,
        steps: int = 2000,
        batch: int = 128,
        rate: float = 0.005,
        samples: int = 500,
        start: float = 0.2,
        growth: float = 1.25,
        limit: float = 100.0,
        within_ranges: bool = True,
    ) -> None:
        super().__init__(train, model, desired, features, seed=seed)
        if min(latent, hidden, steps, batch) < 1 or not rate > 0:
            raise AdapterError(
                "latent, hidden, steps and batch must be at least 1 and rate above 0"
            )
        self.latent, self.hidden, self.steps, self.batch, self.rate = (
            latent,
            hidden,
            steps,
            batch,
            rate,
        )
        self.within_ranges = within_ranges
        self._spheres = Spheres(samples, start, growth, limit, is_distance=False)
        self._latent: Latent | None = None

    def _search(
        self, encoding: Encoding, points: Points, own: Labels, random: np.random.Generator
    ) -> tuple[Points, Mask]:
        if self._latent is None:
            sizes = {
                "latent": self.latent,
                "hidden": self.hidden,
                "steps": self.steps,
                "batch": self.batch,
            }
            rows = self.encoding.encode(self._train)
            self._latent = Latent(self.encoding, rows, self.seed, rate=self.rate, **sizes)
        learned, vectors, samples = self._latent, Vectors(encoding), self._spheres.samples
        codes = learned.encode(vectors.of(points))

        def draw(rows: NDArray[np.int64], low: Matrix, high: Matrix) -> tuple[Points, Matrix, Mask]:
            queries = points.take(np.repeat(rows, samples))
            drawn = np.repeat(codes[rows], samples, axis=0) + l1_shell(
                low, high, samples, self.latent, random
            )
            decoded = vectors.settled(
                learned.decode(drawn)[0], queries, within_ranges=self.within_ranges
            )
            flips = self._flips(encoding, decoded, np.repeat(own[rows], samples))
            return decoded, encoding.distance(decoded, queries), flips

        return self._spheres.search(points, len(vectors.inputs), draw)
