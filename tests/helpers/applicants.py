"""A small table of applicants, a model of it, and explainers of real libraries on both, for tests
of adapters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

FEATURES = ["age", "income", "job", "education", "smoker"]
CATEGORIES = ["job", "education", "smoker"]
DICE = ["random", "genetic", "kdtree"]
NICE = ["none", "sparsity", "proximity", "plausibility"]


def as_text(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.astype(dict.fromkeys(CATEGORIES, str))


def _applicants(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "age": rng.integers(20, 70, n),
            "income": np.round(rng.normal(50, 15, n), 1),
            "job": rng.choice(["clerk", "nurse", "smith"], n),
            "education": pd.Categorical(rng.choice(["low", "middle", "high"], n)),
            "smoker": rng.choice([True, False], n),
        }
    )
    points = rows["age"] / 70 + rows["income"] / 60 + (rows["job"] == "nurse") * 0.5
    return rows.assign(approved=(points > 1.6).astype(int))


ROWS = _applicants(120)
MODEL = make_pipeline(
    make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), CATEGORIES), (StandardScaler(), ["age", "income"])
    ),
    LogisticRegression(),
).fit(as_text(ROWS[FEATURES]), ROWS["approved"])
QUERIES = ROWS.loc[
    (ROWS["approved"] == 0) & (MODEL.predict(as_text(ROWS[FEATURES])) == 0), FEATURES
].head(3)


def label(rows: pd.DataFrame) -> Any:
    return MODEL.predict(as_text(rows))


def score(array: np.ndarray) -> np.ndarray:
    """Answer NICE, which asks with arrays."""
    frame = as_text(pd.DataFrame(array, columns=FEATURES)).astype({"age": float, "income": float})
    return np.asarray(MODEL.predict_proba(frame))


def dice_of(method: str) -> Any:
    dice_ml = pytest.importorskip("dice_ml", reason="needs the extra [dice]")
    data = dice_ml.Data(
        dataframe=ROWS, continuous_features=["age", "income"], outcome_name="approved"
    )
    return dice_ml.Dice(data, dice_ml.Model(model=MODEL, backend="sklearn"), method=method)


def nice_of(optimization: str, rows: pd.DataFrame = ROWS, **settings: Any) -> Any:
    library = pytest.importorskip("nice", reason="needs `pip install --no-deps NICEx==0.2.3`")
    if optimization == "plausibility":
        settings["auto_encoder"] = lambda array: np.abs(array[:, 1].astype(float) - 60)
    asked = {
        "predict_fn": score,
        "y_train": rows["approved"].to_numpy(),
        "optimization": optimization,
        **settings,
    }
    return library.NICE(X_train=rows[FEATURES].to_numpy(dtype=object), cat_feat=[2, 3, 4], **asked)
