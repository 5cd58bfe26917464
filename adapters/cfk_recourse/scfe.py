"""SCFE: follow the model's gradient to a desired prediction, at a price for the distance to the
query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cfk_plugin.errors import AdapterError
from cfk_recourse.descent import Descent, GradientRecourse
from cfk_recourse.encoding import Points
from cfk_recourse.linear import least_l1_move, least_l2_move

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from cfk_recourse.recourse import Labels, Mask
    from cfk_recourse.slopes import Vectors

    Matrix = NDArray[np.float64]

# logits by which an exact answer passes the boundary, plus this share of those missing
_PAST = 1e-6


class Scfe(GradientRecourse):
    """Explain by the minimum of loss plus distance that gradients find (Wachter et al. 2018; score
    counterfactual).

    Adam minimises the binary cross entropy between the model's probability of the desired outcome
    at x' and 1, plus λ times the distance of x' to the query, as in Pawelczyk et al. 2023 (appendix
    C.2). λ is relative to the loss's own gradient at the query, and is halved from round to round
    for queries that have not flipped. The answer is the nearest point on the way that flips, moved
    back along the straight line to the query as far as it still flips. The l1 distance enters by
    its proximal step, not by its subgradient: an entry that is not worth λ stays exactly where it
    is.

    **On a linear model** the minimum is known: the l1-nearest point on the other side changes one
    number, the one with the largest weight times range (then the next one, where that range ends);
    the l2-nearest moves along the weights. That is returned, 10⁻⁶ logits past the boundary, if all
    columns are float64 and none is whole.

    Categories are relaxed: each is a one-hot vector with entries between 0 and 1. Loss and gradient
    are taken at the row that it stands for, whose categories have the largest entries and whose
    whole numbers are rounded.

    The answers are not training rows, but are bounded by the ranges of the training rows and take
    their categories.

    Parameters
    ----------
    train, model, desired, features, seed
        See `Recourse`. Gradients are read from a fitted ``LogisticRegression`` or
        ``MLPClassifier``, alone or at the end of a ``Pipeline`` that is affine before it (scaled
        numbers, one-hot categories). Nothing is drawn.
    norm : {"l1", "l2"}
        Norm of the distance, with numbers in ranges and 1 for each changed category.
    gradient : callable, optional
        For other models: from vectors (n, n_inputs) to logits of the desired outcome (n,) and their
        gradients by the vectors (n, n_inputs). A vector has the numeric columns in their order and
        units, then 0 or 1 for each value of each categorical column, in the order of
        `encoding.pools`. `desired` must then not be "opposite".
    exact_linear : bool
        Whether linear models are answered in closed form.
    within_ranges : bool
        Keep numbers within the range of the training rows.
    weight : float
        λ of the first round, as a share of the steepest entry of the loss's gradient at the query
        (norm l1) or of the gradient's length (l2). One half balances it halfway across a linear
        boundary.
    rate, steps, rounds : float, int, int
        Step size of Adam, in ranges; steps per round; most rounds.

    Raises
    ------
    AdapterError
        If no gradient is known, or a setting is invalid.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> train = pd.DataFrame({"age": [20.5, 30.0, 60.0, 70.0], "debt": [1.0, 1.5, 1.0, 1.5]})
    >>> explainer = Scfe(train, LogisticRegression().fit(train, [0, 0, 1, 1]))
    >>> explainer.explain(train.head(1)).round()
        age  debt
    0  45.0   1.0
    """

    def __init__(
        self,
        train: pd.DataFrame,
        model: Any,
        desired: Any = "opposite",
        features: Sequence[str] | None = None,
        *,
        seed: int = 0,
        norm: Literal["l1", "l2"] = "l1",
        gradient: Callable[[Matrix], tuple[Matrix, Matrix]] | None = None,
        exact_linear: bool = True,
        within_ranges: bool = True,
        weight: float = 0.5,
        rate: float = 0.02,
        steps: int = 100,
        rounds: int = 10,
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
        if norm not in ("l1", "l2"):
            raise AdapterError("norm must be l1 or l2")
        if not (weight > 0 and rate > 0 and steps >= 1 and rounds >= 1):
            raise AdapterError("weight and rate must be above 0, steps and rounds at least 1")
        self.norm, self.exact_linear = norm, exact_linear
        self.weight, self.rate, self.steps, self.rounds = weight, rate, steps, rounds

    def _follow(
        self, vectors: Vectors, queries: Points, desired: Mask, own: Labels
    ) -> tuple[Points, Mask]:
        if self.exact_linear and self._slope.linear and vectors.encoding.is_fine:
            return self._closed_form(vectors, queries, desired)
        return self._descend(vectors, queries, desired, own)

    def _closed_form(self, vectors: Vectors, queries: Points, desired: Mask) -> tuple[Points, Mask]:
        start = vectors.of(queries)
        margin, gradient = self._slope(start, desired)
        gradient = gradient * vectors.units
        low, high = vectors.bounds(start, within_ranges=self.within_ranges)
        room = np.where(gradient > 0, high - start, start - low) / vectors.units
        past = _PAST * (1 + np.abs(margin))
        moves = (least_l1_move if self.norm == "l1" else least_l2_move)(
            past - margin, gradient, room
        )
        suffices = (gradient * moves).sum(axis=1) + margin > past / 2
        return Points(np.clip(start + moves * vectors.units, low, high), queries.codes), suffices

    def _descend(
        self, vectors: Vectors, queries: Points, desired: Mask, own: Labels
    ) -> tuple[Points, Mask]:
        best, found = (
            Points(queries.numbers.copy(), queries.codes.copy()),
            np.zeros(len(queries), dtype=bool),
        )
        moves, price = np.zeros((len(queries), len(vectors.inputs))), np.zeros(len(queries))
        for i in range(self.rounds):
            rows = np.flatnonzero(~found)
            if not len(rows):
                break
            descent = Descent(
                self._slope,
                vectors,
                queries.take(rows),
                desired[rows],
                self.norm,
                self.within_ranges,
                self.rate,
            )
            price[rows] = price[rows] / 2 if i else self.weight * descent.steepest()
            going = moves[rows]
            far, found[rows] = descent.run(going, price[rows], self.steps)
            near = descent.drawn_back(far)
            # This close to its boundary, the model itself may round differently.
            holds = self._flips(vectors.encoding, near, own[rows])[:, None]
            moves[rows] = going
            best.numbers[rows] = np.where(holds, near.numbers, far.numbers)
            best.codes[rows] = far.codes
        return best, found
