"""Nearest unlike neighbour: the closest training row with the desired prediction, and the adapter
for it.

It returns other people's rows unchanged: the reference for what has to be protected, and a quick
start without any other library.
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
    """Explain a prediction by the nearest training row with the desired one, by HEOM distance.

    It holds the training rows and returns them: it refuses to be pickled, its `repr` shows counts,
    and what `explain` returns must be protected before anybody sees it. Of equally near rows the
    first is taken.

    Parameters
    ----------
    train : DataFrame
        Training rows.
    model : object with ``predict``, or callable
        From a DataFrame of the features to one label per row.
    desired : "opposite", label, set of labels, (low, high) or callable
        The desired outcome, as for `protect`; "opposite" is any label but the query's own.
    features : sequence of str, optional
        Columns to use, without the label column. Default: all of `train`.

    Attributes
    ----------
    predicted : array
        The model's label of every training row; asked once, at first use.

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
        """Return one training row per query, in the queries' index; missing values if there is
        none.
        """
        position = self.neighbours(X)
        # -1 is in no index, so gives missing values
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
            Positions among the training rows; -1 where no row has the desired prediction.

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
        own = self._predict(X[self.features])
        position = np.full(len(X), -1, dtype=np.int64)
        is_opposite = isinstance(self.desired, str) and self.desired == "opposite"
        for label in pd.unique(pd.Series(own)) if is_opposite else [None]:
            unlike = np.flatnonzero(self.predicted != label if is_opposite else self._desired())
            asked = np.flatnonzero(own == label) if is_opposite else np.arange(len(X))
            if len(unlike):
                nearest = self._heom.nearest(queries.take(asked), self._codes.take(unlike))[0]
                position[asked] = unlike[nearest[:, 0]]
        return position

    def rows(self, positions: NDArray[np.int64]) -> pd.DataFrame:
        """Return a copy of training rows by position."""
        return self._train.take(positions).copy(deep=True)

    def _desired(self) -> NDArray[np.bool_]:
        met = (
            self.desired(self.predicted)
            if callable(self.desired)
            else self.predicted == self.desired
        )
        return np.broadcast_to(np.asarray(met, dtype=bool), self.predicted.shape)

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
        raise AdapterError(f"the explainer does not know the feature {', '.join(missing)}")
    return NearestSource(explainer, context)


class NearestSource:
    """A `NearestUnlikeNeighbour` as a source of counterfactuals: its answers are training rows."""

    name = "nearest"
    instance_based = True
    depends_on_rows: DependsOnRows = "yes"
    forwarded = ("desired", "features")

    def __init__(self, explainer: NearestUnlikeNeighbour, context: AdaptContext) -> None:
        self._explainer = explainer
        self._features = list(context.features)

    def __repr__(self) -> str:
        """Name the generator."""
        return "NearestSource()"

    def generate(self, queries: pd.DataFrame, **constraints: Any) -> CounterfactualBatch:
        """Ask for the nearest unlike neighbour of each query; constraints do not change the
        search.
        """
        if unknown := without_constraints(constraints):
            raise AdapterError(
                f"a nearest unlike neighbour has no option {', '.join(unknown)}; leave it out"
            )
        explainer = self._explainer
        position = ask(lambda: explainer.neighbours(queries))
        found = np.flatnonzero(position >= 0)
        rows = explainer.rows(position[found])
        return CounterfactualBatch(
            rows[self._features],
            found,
            np.arange(len(queries)),
            None,
            constraints_of(constraints),
        )

    @property
    def methods(
        self,
    ) -> Mapping[str, Callable[..., tuple[CounterfactualBatch, None, pd.DataFrame]]]:
        """The explainer's own `explain`."""

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
        """Read a call of `explain` without looking for neighbours."""
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
        request: AnswerRequest,  # noqa: ARG002 - nothing of it is in the result
        explanations: Explanations,
    ) -> pd.DataFrame:
        """Build the table that `explain` returns; see `restore`."""
        return self.restore(None, explanations)

    def restore(self, native: None, explanations: Explanations) -> pd.DataFrame:  # noqa: ARG002 - holds nothing
        """Return a table of released cells, one row per query; None where the answer is
        withheld.
        """
        rows = [cells or {} for cells in released_cells(explanations)]
        frame = pd.DataFrame(rows, columns=self._features, dtype=object)
        return frame.where(frame.notna(), None)
