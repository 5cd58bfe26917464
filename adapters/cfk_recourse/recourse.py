"""What recourse methods share: training rows that stay here, a goal, and answers checked by the
model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.data.model import predict_of
from cfk_plugin.data.outcome import desired_as
from cfk_plugin.errors import AdapterError, HostOnly, quiet
from cfk_recourse.encoding import Encoding, Points

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Labels = NDArray[Any]
    Mask = NDArray[np.bool_]


class Recourse(HostOnly, ABC):
    """Base of explainers that search for a counterfactual near the query.

    A subclass implements `_search`. What it finds is decoded to a row, and counts if the model
    gives that row a desired prediction. A query that already has one, or lacks a number, gets no
    answer.

    It holds training rows: it refuses to be pickled, its `repr` shows counts, and what `explain`
    returns must be protected before anybody sees it. Of the model's exceptions only the class is
    reported.

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
    seed : int
        For all random draws. The same seed and queries give the same answers, whatever was asked
        before.
    """

    instance_based = False

    def __init__(
        self,
        train: pd.DataFrame,
        model: Any,
        desired: Any = "opposite",
        features: Sequence[str] | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self.features = list(train.columns if features is None else features)
        self.desired, self.seed = desired_as(desired), seed
        self._train = _columns(train, self.features, "training rows").reset_index(drop=True)
        self._model = model
        self.encoding = Encoding(self._train)

    def _counts(self) -> str:
        return f"{len(self._train)} rows, {len(self.features)} features"

    def explain(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return one counterfactual per query, in the queries' index; missing values where none was
        found.

        Parameters
        ----------
        X : DataFrame
            Queries with all features; other columns are ignored. All queries are searched at once.

        Returns
        -------
        DataFrame, shape (len(X), n_features)
            In the columns and dtypes of the training rows (whole numbers become floats where some
            are missing).

        Raises
        ------
        AdapterError
            If the queries lack a column, or the model fails or does not return one label per row.
        """
        queries = _columns(X, self.features, "queries")
        encoding = self.encoding.knowing(queries)
        points, own = encoding.encode(queries), self._predict(queries)
        asked = np.flatnonzero(
            ~self._is_desired(own, own) & np.isfinite(points.numbers).all(axis=1)
        )
        position = np.full(len(X), -1)
        answers = queries[:0]
        if len(asked):
            rows, found = self._search(
                encoding, points.take(asked), own[asked], np.random.default_rng(self.seed)
            )
            rows, asked = rows.take(found), asked[found]
            answers = encoding.decode(rows)
        if len(asked):
            flipped = self._is_desired(self._predict(answers.copy()), own[asked])
            answers = answers[flipped].reset_index(drop=True)
            position[asked[flipped]] = np.arange(len(answers))
        # -1 is in no index, so gives missing values
        return answers.reindex(position).set_axis(X.index, axis=0)

    @abstractmethod
    def _search(
        self, encoding: Encoding, points: Points, own: Labels, random: np.random.Generator
    ) -> tuple[Points, Mask]:
        """Return an answer for each point, and which points have one.

        Parameters
        ----------
        encoding : Encoding
            Knows the categories of these points.
        points : Points
            Queries without a desired prediction.
        own : array, shape (len(points),)
            Their predictions.
        random : Generator
        """

    def _flips(self, encoding: Encoding, points: Points, own: Labels) -> Mask:
        """Say for each decoded point whether its prediction is desired for a query with prediction
        `own`.
        """
        return self._is_desired(self._predict(encoding.decode(points)), own)

    def _is_desired(self, labels: Labels, own: Labels) -> Mask:
        if isinstance(self.desired, str) and self.desired == "opposite":
            return np.asarray(labels != own, dtype=bool)
        met = self.desired(labels) if callable(self.desired) else labels == self.desired
        return np.broadcast_to(np.asarray(met, dtype=bool), labels.shape)

    def _predict(self, frame: pd.DataFrame) -> Labels:
        """Return the model's label of each row of a table that it may change."""
        predict = predict_of(self._model)
        return _answered(lambda: np.asarray(predict(frame)).reshape(-1), len(frame), "labels")

    def _probabilities_of(self, frame: pd.DataFrame) -> NDArray[np.float64]:
        """Return the model's probabilities of its classes, for each row of a table that it may
        change.
        """
        if not (hasattr(self._model, "predict_proba") and hasattr(self._model, "classes_")):
            raise AdapterError("a least confidence needs a model with predict_proba and classes_")
        return _answered(
            lambda: np.asarray(self._model.predict_proba(frame)),
            len(frame),
            "rows of probabilities",
        )


def _columns(frame: pd.DataFrame, names: list[str], what: str) -> pd.DataFrame:
    if frame.columns.tolist() == names:
        return frame.copy()
    known = set(frame.columns)
    if missing := [str(name) for name in names if name not in known]:
        raise AdapterError(f"the {what} have no column {', '.join(missing)}")
    return frame[names]


def _answered(call: Any, expected: int, what: str) -> Labels:
    """Call the model; see `quiet`."""
    with quiet(
        f"the model raised {{}} on {expected} rows; ask it yourself to see why", AdapterError
    ):
        answer: Labels = call()
    if len(answer) != expected:
        raise AdapterError(f"the model returned {len(answer)} {what} for {expected} rows")
    return answer
