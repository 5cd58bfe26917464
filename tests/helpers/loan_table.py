"""A small mixed table with every kind of column, and models on it, for tests of recourse
methods.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

CANARY = "canary-4711"


def loans(n: int = 400, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.integers(18, 90, n),
            "income": random.normal(50, 15, n),
            "job": random.choice(["clerk", CANARY, "smith", None], n),
            "owner": random.random(n) > 0.5,
            "region": pd.Categorical(random.choice(["north", "south"], n)),
            "children": pd.array(random.integers(0, 4, n), dtype="Int64"),
        }
    )


def granted(rows: pd.DataFrame) -> np.ndarray:
    points = rows["age"] / 50 + rows["income"] / 50 + (rows["job"] == CANARY) + rows["owner"]
    return np.where(points.to_numpy(dtype=float) > 3.2, "yes", "no")


def model_of_loans(rows: pd.DataFrame, classifier: Any = None) -> Any:
    """Return a pipeline that encodes inside; a logistic regression unless another classifier is
    given.
    """
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["job", "owner", "region"]),
        (StandardScaler(), ["age", "income", "children"]),
    )
    return make_pipeline(encode, LogisticRegression() if classifier is None else classifier).fit(
        rows, granted(rows)
    )


def network_of_loans(rows: pd.DataFrame) -> Any:
    # LBFGS converges on few rows, where Adam warns that it has not.
    return model_of_loans(
        rows, MLPClassifier((8,), solver="lbfgs", alpha=1.0, max_iter=500, random_state=0)
    )


def numbers(n: int, d: int, seed: int = 0) -> pd.DataFrame:
    values = np.random.default_rng(seed).normal(size=(n, d))
    return pd.DataFrame(values, columns=[f"x{j}" for j in range(d)])


class Linear:
    """A linear model without training: it shows what is exact, and refuses rows that it cannot
    take.
    """

    classes_ = np.array([0, 1])

    def __init__(self, weights: np.ndarray, offset: float = 0.0) -> None:
        self.weights, self.offset = np.asarray(weights, dtype=float), offset

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        return (rows.to_numpy(dtype=float) @ self.weights + self.offset > 0).astype(int)


def regression(weights: np.ndarray, offset: float = 0.0) -> LogisticRegression:
    """Return a logistic regression with given weights, as if it had been fitted on a table as
    `numbers` makes it.
    """
    model = LogisticRegression().fit(numbers(2, len(weights)), [0, 1])
    model.coef_, model.intercept_ = np.asarray(weights, dtype=float)[None], np.array([offset])
    return model
