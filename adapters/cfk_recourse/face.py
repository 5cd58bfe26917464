"""FACE: the training row at the end of the cheapest path through neighboring training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from cfk_plugin.errors import AdapterError
from cfk_plugin.metrics.heom import Heom, HeomCodes
from cfk_recourse.encoding import Encoding, Points
from cfk_recourse.recourse import Recourse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cfk_recourse.recourse import Labels, Mask

    Matrix = NDArray[np.float64]

_LEAST = 1e-300  # paths cost more than 0, which means "no path" in sparse matrices


class Face(Recourse):
    """Explain by a training row with a desired prediction that a feasible path leads to (Poyiadzi
    et al. 2020).

    Training rows are joined with their nearest ones, by HEOM distance d; equal rows are one. An
    edge costs d · log(1 + d / r), with r the median of all such distances: more where it is long,
    and more still where rows are sparse. (The paper has d · −log(r / d) for its graph of k nearest
    neighbors, which is negative where rows are dense.) The query is joined with its own nearest
    rows. The answer is the row at the end of the cheapest path, of those with a desired prediction
    that are confident and dense enough; without a path there is none.

    Every answer is a training row.

    Parameters
    ----------
    train, model, desired, features, seed
        See `Recourse`. Nothing is drawn.
    neighbours : int
        Nearest rows that each row is joined with. With few of them the graph falls apart, in mixed
        tables along the categories, as rows that share all of these are nearest to each other; some
        queries then get no answer.
    confidence : float, optional
        Least probability of the desired outcome that an answer has; needs ``predict_proba`` and
        ``classes_``.
    dense : float
        Share of the training rows that may be the answer: those with the nearest neighbors.

    Examples
    --------
    >>> train = pd.DataFrame({"age": [20, 30, 40, 60, 80]})
    >>> face = Face(train, lambda rows: rows["age"] > 35, neighbours=1)
    >>> face.explain(pd.DataFrame({"age": [21]}))
       age
    0   40
    """

    instance_based = True

    def __init__(
        self,
        train: pd.DataFrame,
        model: Any,
        desired: Any = "opposite",
        features: Sequence[str] | None = None,
        *,
        seed: int = 0,
        neighbours: int = 20,
        confidence: float | None = None,
        dense: float = 1.0,
    ) -> None:
        super().__init__(train, model, desired, features, seed=seed)
        if neighbours < 1 or not 0 < dense <= 1 or not (confidence is None or 0 <= confidence <= 1):
            raise AdapterError(
                "neighbours must be at least 1, dense in (0, 1] and confidence in [0, 1]"
            )
        self.neighbours, self.confidence, self.dense = neighbours, confidence, dense
        self._graph: _Graph | None = None
        self._predicted: Labels | None = None
        self._probabilities: Matrix | None = None

    def _search(
        self,
        encoding: Encoding,
        points: Points,
        own: Labels,
        random: np.random.Generator,  # noqa: ARG002 - nothing is drawn
    ) -> tuple[Points, Mask]:
        graph, predicted = self._asked()
        ways, costs = graph.joined(encoding.decode(points))
        answer = np.full(len(points), -1)
        labels, which = np.unique(own, return_inverse=True)
        for place, label in enumerate(labels):
            rows = np.flatnonzero(which == place)
            goals = graph.is_dense(self.dense) & self._is_desired(
                predicted, np.repeat(label, len(predicted))
            )
            answer[rows] = graph.reached(ways[rows], costs[rows], goals & self._is_confident(label))
        found = answer >= 0
        reached = self._train.take(graph.rows[answer])
        return encoding.encode(reached), found

    def _asked(self) -> tuple[_Graph, Labels]:
        """Join the training rows and ask the model about them, at first use."""
        if self._graph is None or self._predicted is None:
            self._graph = _Graph.of(self._train, self.neighbours)
            self._predicted = self._predict(self._train.take(self._graph.rows))
        return self._graph, self._predicted

    def _is_confident(self, label: Any) -> Mask:
        """Say for each row of the graph whether the model is confident of an outcome that is
        desired for `label`.
        """
        graph, predicted = self._asked()
        if self.confidence is None:
            return np.ones(len(predicted), dtype=bool)
        if self._probabilities is None:
            self._probabilities = self._probabilities_of(self._train.take(graph.rows))
        classes = np.asarray(self._model.classes_)
        desired = self._is_desired(classes, np.repeat(label, len(classes)))
        return np.asarray(self._probabilities[:, desired].sum(axis=1) >= self.confidence)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Graph:
    """Distinct training rows, joined with their nearest ones.

    Attributes
    ----------
    rows : int array, shape (n,)
        Position of each among the training rows.
    ways : csr_array, shape (n, n)
        Costs of the edges from each row to its nearest.
    radius : float64 array, shape (n,)
        Distance of each to the farthest of its nearest.
    """

    rows: NDArray[np.int64]
    ways: csr_array
    radius: Matrix
    heom: Heom
    codes: HeomCodes
    unit: float
    neighbours: int

    @classmethod
    def of(cls, train: pd.DataFrame, neighbours: int) -> _Graph:
        """Join the rows of a table."""
        heom = Heom.fit(train)
        rows = np.flatnonzero(~train.duplicated().to_numpy())
        codes = heom.encode(train.take(rows))
        near, away = heom.nearest(codes, codes, k=neighbours, exclude_same=True)
        known = near >= 0
        unit = float(np.median(away[known])) if known.any() else 1.0
        start = np.repeat(np.arange(len(rows)), known.sum(axis=1))
        ways = csr_array(
            (_cost(away[known], unit), (start, near[known])), shape=(len(rows), len(rows))
        )
        radius = np.where(known, away, 0).max(axis=1)
        return cls(rows, ways, radius, heom, codes, unit, neighbours)

    def joined(self, queries: pd.DataFrame) -> tuple[NDArray[np.int64], Matrix]:
        """Return the nearest rows of each query, and the costs of the edges to them."""
        near, away = self.heom.nearest(self.heom.encode(queries), self.codes, k=self.neighbours)
        return near, np.where(near >= 0, _cost(np.where(near >= 0, away, 0), self.unit), np.inf)

    def is_dense(self, share: float) -> Mask:
        """Say which rows have a radius among the smallest."""
        return np.asarray(self.radius <= np.quantile(self.radius, share))

    def reached(self, near: NDArray[np.int64], costs: Matrix, goals: Mask) -> NDArray[np.int64]:
        """Return the goal at the end of each query's cheapest path; -1 if there is none."""
        if not goals.any():
            return np.full(len(near), -1)
        # From all goals at once: the cost of each row's cheapest path to any goal, and which goal
        # that is.
        to_goal, _, goal = dijkstra(
            self.ways,
            directed=False,
            indices=np.flatnonzero(goals),
            return_predecessors=True,
            min_only=True,
        )
        total = costs + np.where(near >= 0, to_goal[near], np.inf)
        best = total.argmin(axis=1)
        at = np.arange(len(near))
        return np.where(np.isfinite(total[at, best]), goal[near[at, best]], -1)


def _cost(away: Matrix, unit: float) -> Matrix:
    return np.asarray(np.maximum(away * np.log1p(away / unit), _LEAST))
