"""Rows as numbers, for models that an attacker chooses without knowing what the owner does with rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from cfk_plugin.data.region import to_text
from cfk_plugin.data.values import is_numeric, to_numbers

Floats = NDArray[np.float64]


class RowsAsNumbers(TransformerMixin, BaseEstimator):
    """Scale numbers and dates to mean 0 and deviation 1, and give every category a column of 0 and 1.

    A missing number becomes the mean. A missing category, or one that it was not fitted on, has no column.
    It holds categories of the rows that it was fitted on: host side only.
    """

    def fit(self, X: pd.DataFrame, y: Any = None) -> RowsAsNumbers:  # noqa: ARG002 - scikit-learn hands it over
        """Learn means, deviations and categories."""
        self.numbers_: dict[Any, tuple[float, float]] = {}
        self.categories_: dict[Any, pd.Index] = {}
        for name in X:
            if is_numeric(X[name]):
                self.numbers_[name] = _scale(_finite(X[name]))
            else:
                self.categories_[name] = pd.Index(sorted({text for text in _texts(X[name]) if text is not None}))
        return self

    def transform(self, X: pd.DataFrame) -> Floats:
        """Return one row of numbers per row."""
        columns: list[Floats] = [np.empty((len(X), 0))]
        for name, (mean, deviation) in self.numbers_.items():
            columns.append(np.nan_to_num((_finite(X[name]) - mean) / deviation)[:, None])
        for name, known in self.categories_.items():
            at = known.get_indexer(pd.Index(_texts(X[name])))
            columns.append((at[:, None] == np.arange(len(known))).astype(np.float64))
        return np.hstack(columns)


def _finite(column: pd.Series) -> Floats:
    numbers, bad = to_numbers(column)
    return np.where(bad, np.nan, numbers)


def _scale(numbers: Floats) -> tuple[float, float]:
    present = numbers[~np.isnan(numbers)]
    if not len(present):
        return 0.0, 1.0
    return float(present.mean()), float(present.std()) or 1.0


def _texts(column: pd.Series) -> list[str | None]:
    return [None if missing else to_text(value) for value, missing in zip(column, column.isna(), strict=True)]
