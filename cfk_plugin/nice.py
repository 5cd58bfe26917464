"""NICE on tables with text: it works on numbers, so that each category gets one. The library is imported when asked."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline


class Nice:
    """NICE, asked for one query at a time. Host side only: it holds the training rows."""

    def __init__(
        self,
        train: pd.DataFrame,
        labels: NDArray[Any],
        model: Pipeline,
        desired: Any,
        optimization: str = "none",
        auto_encoder: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
    ) -> None:
        self._model, self._columns = model, list(train.columns)
        self._text = {str(name): _categories(train[name]) for name in train if not _is_number(train[name])}
        self._rows = self.encode(train)
        classes = list(model.classes_)
        self._target = [classes.index(desired)]
        self._nice = import_module("nice").NICE(
            self._score,
            self._rows.copy(),  # NICE changes the array it is given
            cat_feat=[self._columns.index(name) for name in self._text],
            y_train=np.array([classes.index(label) for label in labels]),
            optimization=optimization,
            auto_encoder=auto_encoder,
        )

    def __repr__(self) -> str:
        return f"Nice({len(self._rows)} rows)"

    def encode(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        """Return rows as NICE has them; an unseen category is unlike every other."""
        coded = {name: self._code(rows[name]) for name in self._columns}
        return np.column_stack([coded[name] for name in self._columns]).astype(float)

    def decode(self, rows: NDArray[np.float64]) -> pd.DataFrame:
        """Return rows as the model has them."""
        table = pd.DataFrame(rows, columns=self._columns)
        for name, categories in self._text.items():
            table[name] = np.append(categories, [None])[table[name].astype(int).to_numpy()]  # -1 is unseen: no category
        return table

    def explain(self, queries: pd.DataFrame) -> NDArray[np.float64]:
        """Return one counterfactual per query, as NICE has them; missing numbers where it finds none."""
        found = np.full((len(queries), len(self._columns)), np.nan)
        for i, row in enumerate(self.encode(queries)):
            if self._nice.data.candidates_mask[self._nice.data.X_train_class == self._target[0]].any():
                found[i] = self._nice.explain(row[None, :].copy(), target_class=self._target)[0]
        return found

    def positions(self, queries: pd.DataFrame) -> NDArray[np.int64]:
        """Return the training row that each counterfactual is; NICE itself does not say which."""
        return np.array([self._position(row) for row in self.explain(queries)], dtype=np.int64)

    def _position(self, row: NDArray[np.float64]) -> int:
        same = np.flatnonzero((self._rows == row).all(axis=1))
        return int(same[0]) if len(same) else -1

    def _code(self, column: pd.Series[Any]) -> NDArray[np.float64]:
        if column.name not in self._text:
            return column.to_numpy(dtype=float)
        places = {category: place for place, category in enumerate(self._text[str(column.name)])}
        return np.array([places.get(value, -1) for value in _filled(column)], dtype=float)

    def _score(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(self._model.predict_proba(self.decode(rows)))


def _is_number(column: pd.Series[Any]) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column))


def _filled(column: pd.Series[Any]) -> NDArray[np.object_]:
    """Return a column of text in which a missing value is a category of its own, as the forest takes it."""
    return column.astype(object).where(column.notna(), None).to_numpy()


def _categories(column: pd.Series[Any]) -> NDArray[np.object_]:
    return np.asarray(pd.unique(pd.Series(_filled(column), dtype=object)), dtype=object)
