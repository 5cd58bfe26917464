"""The nearest unlike neighbour, an explainer that returns training rows, and its adapter.

It is a reference for answers that need protection, and a quick start without another library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.adapting import (
    AnswerRequest,
    CounterfactualBatch,
    ask,
    constraints_of,
    released_cells,
    without_constraints,
)
from cfk_plugin.data.model import predict_of
from cfk_plugin.data.outcome import desired_as
from cfk_plugin.errors import AdapterError, HostOnly
from cfk_plugin.hookspecs import hookimpl
from cfk_plugin.metrics.heom import Heom, HeomCodes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from cfk_plugin.hookspecs import AdaptContext, DependsOnRows
    from cfk_plugin.release.explanations import Explanations


class NearestUnlikeNeighbour(HostOnly):
    """Explain a prediction by the nearest training row with the desired prediction.

    The distance is HEOM; of equally near rows, the first is returned. **The answers are rows of
    other people: protect them before anyone sees them.** The object contains the training rows:
    it cannot be pickled, and its `repr` shows only counts.

    Parameters
    ----------
    train : DataFrame
        Training rows.
    model : object with ``predict``, or callable
        Takes a DataFrame of the features, and returns one label per row.
    desired : "opposite", label, set of labels, (low, high) or callable
        The desired outcome, as for `protect`; "opposite" is any label other than the query's.
    features : sequence of str, optional
        Columns to use, without the label column. By default all columns of `train`.

    Attributes
    ----------
    predicted : array
        The model's label of every training row, computed at the first use.

    Examples
    --------
    >>> train = pd.DataFrame({"age": [20, 40, 60]})
    >>> nearest = NearestUnlikeNeighbour(train, lambda rows: rows["age"] > 30)
    >>> nearest.explain(pd.DataFrame({"age": [25]}))
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
    ) -> None:
        self.features = list(train.columns if features is None else features)
        if missing := [name for name in self.features if name not in train.columns]:
            raise AdapterError(f"the training rows have no column {', '.join(missing)}")
        self.desired = desired_as(desired)
        self._train = train[self.features].reset_index(drop=True)
        self._model = model
        self._heom = Heom.fit(self._train)
        self._predicted: NDArray[Any] | None = None
        self._codes: HeomCodes | None = None

    def _counts(self) -> str:
        return f"{len(self._train)} rows, {len(self.features)} features"

    @property
    def predicted(self) -> NDArray[Any]:
        """The model's label of every training row."""
        if self._predicted is None:
            self._predicted = self._predict(self._train)
        return self._predicted

    def explain(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return one training row per query, with the queries' index.

        If no training row has the desired prediction, the values are missing.
        """
        position = self.neighbours(X)
        # -1 is not in the index, and gives missing values
        return self._train.reindex(position).set_axis(X.index, axis=0)

    def neighbours(self, X: pd.DataFrame) -> NDArray[np.int64]:
        """Return the position of each query's neighbour among the training rows.

        Parameters
        ----------
        X : DataFrame
            Queries.

        Returns
        -------
        int64 array, shape (len(X),)
            Positions among the training rows; -1 if no row has the desired prediction.

        Raises
        ------
        AdapterError
            If the queries lack a column, or the model does not return one label per row.
        """
        if missing := [name for name in self.features if name not in X.columns]:
            raise AdapterError(f"the queries have no column {', '.join(missing)}")
        if self._codes is None:
            self._codes = self._heom.encode(self._train)
        queries = self._heom.encode(X)
        labels = self._predict(X[self.features])
        position = np.full(len(X), -1, dtype=np.int64)
        is_opposite = isinstance(self.desired, str) and self.desired == "opposite"
        for label in pd.unique(pd.Series(labels)) if is_opposite else [None]:
            rows = np.flatnonzero(self.predicted != label if is_opposite else self._is_desired())
            some = np.flatnonzero(labels == label) if is_opposite else np.arange(len(X))
            if len(rows):
                nearest = self._heom.nearest(queries.take(some), self._codes.take(rows))[0]
                position[some] = rows[nearest[:, 0]]
        return position

    def rows(self, positions: NDArray[np.int64]) -> pd.DataFrame:
        """Return a copy of training rows by position."""
        return self._train.take(positions).copy(deep=True)

    def _is_desired(self) -> NDArray[np.bool_]:
        """Return whether each training row has the desired prediction."""
        if callable(self.desired):
            is_desired = self.desired(self.predicted)
        else:
            is_desired = self.predicted == self.desired
        return np.broadcast_to(np.asarray(is_desired, dtype=bool), self.predicted.shape)

    def _predict(self, frame: pd.DataFrame) -> NDArray[Any]:
        predict = predict_of(self._model)
        labels = np.asarray(predict(frame.copy(deep=True))).reshape(-1)
        if len(labels) != len(frame):
            raise AdapterError(f"the model returned {len(labels)} labels for {len(frame)} rows")
        return labels


@hookimpl
def cfk_adapt(explainer: Any, context: AdaptContext) -> NearestSource | None:
    """Adapt a `NearestUnlikeNeighbour`."""
    if not isinstance(explainer, NearestUnlikeNeighbour):
        return None
    if missing := [name for name in context.features if name not in explainer.features]:
        raise AdapterError(f"the explainer lacks the feature {', '.join(missing)}")
    return NearestSource(explainer, context)


class NearestSource:
    """A `NearestUnlikeNeighbour` as a source of counterfactuals."""

    name = "nearest"
    instance_based = True
    depends_on_rows: DependsOnRows = "yes"
    forwarded = ("desired", "features")

    def __init__(self, explainer: NearestUnlikeNeighbour, context: AdaptContext) -> None:
        self._explainer = explainer
        self._features = list(context.features)

    def __repr__(self) -> str:
        """Return the name of the class, without rows."""
        return "NearestSource()"

    def generate(self, queries: pd.DataFrame, **constraints: Any) -> CounterfactualBatch:
        """Find the nearest unlike neighbour of each query; the search ignores constraints."""
        if unknown := without_constraints(constraints):
            raise AdapterError(
                f"a nearest unlike neighbour has no option {', '.join(unknown)}; leave it out"
            )
        explainer = self._explainer
        position = ask(lambda: explainer.neighbours(queries))
        is_found = position >= 0
        rows = explainer.rows(position[is_found])
        return CounterfactualBatch.one_each(
            rows[self._features], is_found, constraints=constraints_of(constraints)
        )

    @property
    def methods(
        self,
    ) -> Mapping[str, Callable[..., tuple[CounterfactualBatch, None, pd.DataFrame]]]:
        """The explainer's `explain`."""

        def explain(
            X: pd.DataFrame, **constraints: Any
        ) -> tuple[CounterfactualBatch, None, pd.DataFrame]:
            return self.generate(X, **constraints), None, X[self._features].copy(deep=True)

        return {"explain": explain}

    def read_request(
        self,
        method: str,  # noqa: ARG002 - there is one
        args: tuple[Any, ...],
        named: Mapping[str, Any],
    ) -> AnswerRequest:
        """Read a call of `explain` without searching for neighbours."""
        options = dict(named)
        queries = args[0] if args else options.pop("X")
        if unknown := without_constraints(options):
            raise AdapterError(
                f"a nearest unlike neighbour has no option {', '.join(unknown)}; leave it out"
            )
        return AnswerRequest(
            queries=queries[self._features].copy(deep=True), constraints=constraints_of(options)
        )

    def build(
        self,
        method: str,  # noqa: ARG002 - there is one
        request: AnswerRequest,  # noqa: ARG002 - the result needs only the explanations
        explanations: Explanations,
    ) -> pd.DataFrame:
        """Build the table that `explain` returns; see `restore`."""
        return self.restore(None, explanations)

    def restore(self, native: None, explanations: Explanations) -> pd.DataFrame:  # noqa: ARG002 - always None
        """Return a table of cells, one row per query; a withheld row contains None."""
        rows = [cells or {} for cells in released_cells(explanations)]
        frame = pd.DataFrame(rows, columns=self._features, dtype=object)
        return frame.where(frame.notna(), None)
