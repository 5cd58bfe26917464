"""An owner whose counterfactuals are exact: a linear model, and the nearest point of its boundary in l1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from threadpoolctl import ThreadpoolController

from cfk_plugin.audit.targets import Answers, Sample

_THREADS = ThreadpoolController()
_BEYOND = 1e-9  # a boundary point may round to either side


@dataclass(frozen=True)
class LinearOwner:
    """Trains a logistic regression and moves the coordinate with the largest weight: it reaches the boundary first.

    Parameters
    ----------
    name : str
    silent : float
        Share of queries that get no answer, by their position: 0.5 leaves out every second one.
    C : float
        Weight of the data against the penalty.
    lenient : float
        Added to the intercept: with much of it everybody gets the desired outcome.
    """

    name: str = "linear"
    silent: float = 0.0
    C: float = 1.0
    lenient: float = 0.0

    def train(self, people: Sample, seed: int) -> LinearService:
        with _THREADS.limit(limits=1):  # threads of a small product wait for each other longer than they work
            model = LogisticRegression(C=self.C, max_iter=200, tol=1e-3).fit(people.X.to_numpy(dtype=float), people.y)
        return LinearService(model.coef_[0], float(model.intercept_[0]) + self.lenient, self.silent)


@dataclass(frozen=True)
class LinearService:
    """Weights and intercept; at or above 0 lies the desired outcome."""

    weights: np.ndarray[Any, Any]
    intercept: float
    silent: float = 0.0

    def margin(self, X: pd.DataFrame) -> np.ndarray[Any, Any]:
        return X.to_numpy(dtype=float) @ self.weights + self.intercept

    def confidence(self, X: pd.DataFrame) -> np.ndarray[Any, Any]:
        return 1 / (1 + np.exp(-self.margin(X)))

    def desired(self, X: pd.DataFrame) -> np.ndarray[Any, Any]:
        return self.margin(X) >= 0

    def explain(self, X: pd.DataFrame) -> Answers:
        rows = X.to_numpy(dtype=float).copy()
        at = int(np.argmax(np.abs(self.weights)))
        rows[:, at] -= self.margin(X) / self.weights[at] * (1 + _BEYOND)
        found = np.ones(len(X), dtype=bool)
        if self.silent:
            found[:: round(1 / self.silent)] = False
        rows[~found] = np.nan
        return Answers(pd.DataFrame(rows, columns=X.columns, index=X.index), found)
