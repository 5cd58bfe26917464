"""The six tables of the paper, as the benchmarks use them: split, model, queries, native
counterfactuals.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import Population, Schema

TABLES = ("adult", "cmc", "german", "heart", "hospital", "informs")
# `max_leaf_nodes` that five-fold cross-validation chose from the paper's grid for forests of 100
# trees.
LEAVES = {"adult": 500, "cmc": 10, "german": 100, "heart": 10, "informs": 100, "hospital": None}


@dataclass(frozen=True)
class Case:
    """One table, ready to be explained."""

    name: str
    population: Population
    model: Pipeline
    desired: Any
    queries: pd.DataFrame
    counterfactuals: pd.DataFrame


def read(name: str, data: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a table and its description; columns that are no numbers are read as text."""
    about = json.loads((data / f"{name}.json").read_text())
    text = {column["name"]: str for column in about["columns"] if column["type"] != "numeric"}
    return pd.read_csv(data / f"{name}.csv.gz", dtype=text), about


def split(frame: pd.DataFrame, share: float, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return so many rows at random, and the others."""
    order, cut = np.random.default_rng(seed).permutation(len(frame)), int(share * len(frame))
    return tuple(frame.iloc[rows].reset_index(drop=True) for rows in (order[:cut], order[cut:]))


def forest(
    train: pd.DataFrame, labels: pd.Series, seed: int = 0, trees: int = 100, **limits: Any
) -> Pipeline:
    """Fit a forest behind a one-hot encoding of what is no number."""
    categories = [name for name in train if not pd.api.types.is_numeric_dtype(train[name])]
    encode = ColumnTransformer(
        [("c", OneHotEncoder(handle_unknown="ignore"), categories)], remainder="passthrough"
    )
    return make_pipeline(
        encode, RandomForestClassifier(trees, random_state=seed, n_jobs=1, **limits)
    ).fit(train, labels)


def case(name: str, data: Path, limit: int, seed: int = 0, key: bytes | None = None) -> Case:
    """Split 60/40, fit a forest, and take nearest unlike neighbours for the first undesired of
    1,000 test rows.
    """
    frame, about = read(name, data)
    train, test = split(frame, 0.6, seed)
    model = forest(
        train[about["features"]], train[about["target"]], seed, max_leaf_nodes=LEAVES[name]
    )
    return case_of(name, about, train, test, model, limit, key)


def case_of(
    name: str,
    about: dict[str, Any],
    train: pd.DataFrame,
    test: pd.DataFrame,
    model: Pipeline,
    limit: int,
    key: bytes | None = None,
) -> Case:
    """Take nearest unlike neighbours for the first undesired of 1,000 test rows.

    `about` is the description of the table that `read` returns; `model` is fitted on `train`.
    """
    features = about["features"]
    desired = about["desired_outcome"]
    schema = Schema.from_frame(train[features], quasi_identifiers=about["quasi_identifiers"])
    shown = test[features].head(1000)
    queries = shown[model.predict(shown) != desired].head(limit).reset_index(drop=True)
    explainer = NearestUnlikeNeighbour(train[features], model, desired=desired)
    counterfactuals = explainer.explain(queries)[list(schema.features)]
    population = Population.from_frame(train[features], schema, key=key)
    return Case(name, population, model, desired, queries, counterfactuals)
