"""REVISE: follow the model's gradient through a decoder, starting at the query's latent code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from cfk_plugin.errors import AdapterError
from cfk_recourse.descent import GradientRecourse
from cfk_recourse.encoding import Points
from cfk_recourse.gradients import Adam
from cfk_recourse.slopes import Vectors
from cfk_recourse.vae import Latent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from cfk_recourse.recourse import Labels, Mask

    Matrix = NDArray[np.float64]


class Revise(GradientRecourse):
    """Explain by the row that a generative model decodes where latent gradients lead (Joshi et al.
    2019).

    A variational autoencoder learns the training rows. Starting at the query's latent code, Adam
    lowers the cross entropy of the desired outcome at the decoded row, plus `weight` times the l1
    distance of that row to the query. The nearest row on the way that flips is the answer; if none
    does, the weight is halved and the descent starts anew.

    Every feature of an answer is decoded, so all numbers differ from the query's. The answers are
    no training rows; the autoencoder that makes them has learned the training rows and is not
    private.

    Parameters
    ----------
    train, model, desired, features, seed, gradient, within_ranges
        See `Scfe`. The seed is for training the autoencoder, which happens at the first query.
    latent, hidden, train_steps, batch, train_rate
        For the autoencoder, as in `CChvae`.
    weight : float
        Weight of the distance in the first round; the distance has numbers in ranges and 1 per
        changed category.
    rate, steps, rounds : float, int, int
        Step size of Adam in latent units; steps per round; most rounds.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> train = pd.DataFrame({"age": np.linspace(20, 60, 50), "debt": np.linspace(9, 1, 50)})
    >>> explainer = Revise(train, LogisticRegression().fit(train, train["age"] > 40))
    >>> answer = explainer.explain(pd.DataFrame({"age": [35.0], "debt": [6.0]}))
    >>> bool((answer["age"] > 38).all() and (answer["debt"] < 6).all())
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
        gradient: Callable[[Matrix], tuple[Matrix, Matrix]] | None = None,
        within_ranges: bool = True,
        latent: int = 8,
        hidden: int = 20,
        train_steps: int = 2000,
        batch: int = 128,
        train_rate: float = 0.005,
        weight: float = 0.5,
        rate: float = 0.05,
        steps: int = 200,
        rounds: int = 5,
    ) -> None:
        super().__init__(
            train,
            model,
            desired,
            features,
            seed=seed,
            gradient=gradient,
            within_ranges=within_ranges,
        )
        if (
            min(latent, hidden, train_steps, batch, steps, rounds) < 1
            or not min(train_rate, weight, rate) > 0
        ):
            raise AdapterError(
                "sizes, steps and rounds must be at least 1, rates and weight above 0"
            )
        self.weight, self.rate, self.steps, self.rounds = weight, rate, steps, rounds
        self._sizes: dict[str, Any] = {
            "latent": latent,
            "hidden": hidden,
            "steps": train_steps,
            "batch": batch,
        }
        self._sizes["rate"] = train_rate
        self._latent: Latent | None = None

    def _follow(
        self, vectors: Vectors, queries: Points, desired: Mask, own: Labels
    ) -> tuple[Points, Mask]:
        if self._latent is None:
            self._latent = Latent(
                self.encoding, self.encoding.encode(self._train), self.seed, **self._sizes
            )
        best, found = (
            Points(queries.numbers.copy(), queries.codes.copy()),
            np.zeros(len(queries), dtype=bool),
        )
        for i in range(self.rounds):
            rows = np.flatnonzero(~found)
            if not len(rows):
                break
            price = self.weight / 2**i
            near, flips = self._descend(
                self._latent, vectors, queries.take(rows), desired[rows], price
            )
            flips &= self._flips(vectors.encoding, near, own[rows])
            best.numbers[rows], best.codes[rows], found[rows] = near.numbers, near.codes, flips
        return best, found

    def _descend(
        self, latent: Latent, vectors: Vectors, queries: Points, desired: Mask, price: float
    ) -> tuple[Points, Mask]:
        start = vectors.of(queries)
        codes, best = latent.encode(start), Points(queries.numbers.copy(), queries.codes.copy())
        nearest, adam = np.full(len(queries), np.inf), Adam(codes, self.rate)
        for _ in range(self.steps):
            decoded, backward = latent.decode(codes)
            here = vectors.settled(decoded, queries, within_ranges=self.within_ranges)
            distance = vectors.encoding.distance(here, queries)
            better = (self._slope(vectors.of(here), desired)[0] > 0) & (distance < nearest)
            best.numbers[better], best.codes[better] = here.numbers[better], here.codes[better]
            nearest[better] = distance[better]
            # smooth here, where categories are probabilities
            margin, gradient = self._slope(decoded, desired)
            pull = (
                -expit(-margin)[:, None] * gradient
                + price * np.sign(decoded - start) / vectors.units
            )
            adam.step(backward(pull))
        return best, np.isfinite(nearest)
