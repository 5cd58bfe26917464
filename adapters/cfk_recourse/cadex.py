"""CADEX: follow the model's gradient in the few steepest features until the prediction flips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cfk_plugin.errors import AdapterError
from cfk_recourse.descent import Descent, GradientRecourse
from cfk_recourse.encoding import Points

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from cfk_recourse.recourse import Labels, Mask
    from cfk_recourse.slopes import Vectors

    Matrix = NDArray[np.float64]


class Cadex(GradientRecourse):
    """Explain by a constrained adversarial example (Moore, Hammerla and Watkins 2019).

    Adam lowers the cross entropy of the desired outcome, and stops at the first point that flips.
    Nothing pulls it towards the query; it stays near because only `changes` features may change:
    those with the steepest gradient at the query, a category counting as one feature. Queries that
    do not flip are tried again from the start with twice as many, until all may change. (The paper
    leaves that number to the user.)

    Categories are relaxed and judged at the row that they stand for, as in `Scfe`. The answers are
    not training rows, but are bounded by the ranges of the training rows and take their categories.

    Parameters
    ----------
    train, model, desired, features, seed, gradient, within_ranges
        See `Scfe`. Nothing is drawn.
    changes : int
        Features that may change at first.
    rate, steps : float, int
        Step size of Adam, in ranges; steps of a try.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> train = pd.DataFrame({"age": [20.5, 30.0, 60.0, 70.0], "debt": [1.0, 1.5, 1.0, 1.5]})
    >>> answer = Cadex(train, LogisticRegression().fit(train, [0, 0, 1, 1])).explain(train.head(1))
    >>> bool(answer["age"].between(45, 46).all() and (answer["debt"] == 1).all())
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
        changes: int = 1,
        rate: float = 0.01,
        steps: int = 200,
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
        if min(changes, steps) < 1 or not rate > 0:
            raise AdapterError("changes and steps must be at least 1 and rate above 0")
        self.changes, self.rate, self.steps = changes, rate, steps

    def _follow(
        self, vectors: Vectors, queries: Points, desired: Mask, own: Labels
    ) -> tuple[Points, Mask]:
        best, found = (
            Points(queries.numbers.copy(), queries.codes.copy()),
            np.zeros(len(queries), dtype=bool),
        )
        allowed, most = self.changes, len(vectors.encoding.names)
        while True:
            rows = np.flatnonzero(~found)
            descent = Descent(
                self._slope,
                vectors,
                queries.take(rows),
                desired[rows],
                "l1",
                self.within_ranges,
                self.rate,
            )
            free = vectors.steepest(
                descent.pull(), descent.own, allowed, within_ranges=self.within_ranges
            )
            far, flips = descent.run(np.zeros(free.shape), np.zeros(len(rows)), self.steps, free)
            flips &= self._flips(vectors.encoding, far, own[rows])
            best.numbers[rows], best.codes[rows], found[rows] = far.numbers, far.codes, flips
            if allowed >= most or found.all():
                return best, found
            allowed *= 2
