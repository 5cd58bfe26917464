"""The six public tables that the benchmarks use: rows, description, split, schema and forest.

Imports only plain libraries and the public interface of the package.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder

from cfk_plugin import Schema

TABLES = ("adult", "cmc", "german", "heart", "hospital", "informs")
# The `max_leaf_nodes` that five-fold cross-validation chose for forests of 100 trees.
LEAVES = {"adult": 500, "cmc": 10, "german": 100, "heart": 10, "hospital": None, "informs": 100}


def read(name: str, data: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a table and its description; columns that are not numeric are read as text.

    The description contains, among others, the lists `features` and `quasi_identifiers`, the name
    of the `target` and its `desired_outcome`.
    """
    about = json.loads((data / f"{name}.json").read_text(encoding="utf-8"))
    text = {column["name"]: str for column in about["columns"] if column["type"] != "numeric"}
    frame = pd.read_csv(data / f"{name}.csv.gz", dtype=text)
    return frame, about


def split(frame: pd.DataFrame, share: float, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a random share of the rows, and the other rows."""
    order = np.random.default_rng(seed).permutation(len(frame))
    n_first = int(share * len(frame))
    first = frame.iloc[order[:n_first]].reset_index(drop=True)
    others = frame.iloc[order[n_first:]].reset_index(drop=True)
    return first, others


def schema_of(train: pd.DataFrame, about: dict[str, Any]) -> Schema:
    """Declare the quasi-identifiers of a table; everything else is left at its default."""
    features = train[about["features"]]
    categories = [*features.select_dtypes(exclude="number")]
    return Schema.from_frame(
        features, quasi_identifiers=about["quasi_identifiers"], nominal=categories
    )


def forest(
    train: pd.DataFrame, labels: pd.Series, seed: int = 0, trees: int = 100, **limits: Any
) -> Pipeline:
    """Fit a forest behind a one-hot encoding of the columns that are not numeric."""
    categories = [name for name in train if not is_numeric_dtype(train[name])]
    one_hot = OneHotEncoder(handle_unknown="ignore")
    encoder = ColumnTransformer([("categories", one_hot, categories)], remainder="passthrough")
    classifier = RandomForestClassifier(trees, random_state=seed, n_jobs=1, **limits)
    return make_pipeline(encoder, classifier).fit(train, labels)
