"""The model that is explained: a random forest, tuned by cross-validation on the training rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from cfk_plugin.audit.attacked.models import tabular

_LEAVES = [10, 100, 500, None]
GRIDS: Mapping[str, Mapping[str, list[int | None]]] = {
    "small": {"n_estimators": [100], "max_leaf_nodes": _LEAVES},
    "paper": {"n_estimators": [10, 50, 100, 500, 1000, 5000], "max_leaf_nodes": _LEAVES},
}
"""What is tried: the grid of the paper's section 5.2, and its leaves alone with forests of 100 trees."""

_FOLDS = 5  # the paper does not say how many


class Size(NamedTuple):
    """Trees of a forest, and most leaves of each; None for no limit."""

    n_estimators: int
    max_leaf_nodes: int | None

    def __str__(self) -> str:
        """Write both with a comma between."""
        return f"{self.n_estimators},{self.max_leaf_nodes or 'unlimited'}"


def forest(features: pd.DataFrame, size: Size, seed: int) -> Pipeline:
    """Return a forest that takes the features as they are: numbers, and text as one column per category."""
    trees = RandomForestClassifier(size.n_estimators, max_leaf_nodes=size.max_leaf_nodes, random_state=seed, n_jobs=1)
    return tabular(features, trees)


def tune(
    features: pd.DataFrame, labels: pd.Series[Any], grid: str, seed: int, jobs: int
) -> tuple[Size, dict[str, float]]:
    """Choose the size of a forest by its mean accuracy over five folds; of equal ones the first of the grid.

    Returns
    -------
    size : Size
    scores : dict
        Size as text to mean accuracy.
    """
    sizes = [Size(n or 1, leaves) for n in GRIDS[grid]["n_estimators"] for leaves in GRIDS[grid]["max_leaf_nodes"]]
    steps: list[dict[str, Any]] = [
        {"randomforestclassifier__n_estimators": [n], "randomforestclassifier__max_leaf_nodes": [leaves]}
        for n, leaves in sizes
    ]
    search = GridSearchCV(forest(features, sizes[0], seed), steps, cv=_FOLDS, n_jobs=jobs, refit=False)
    found = search.fit(features, labels).cv_results_["mean_test_score"]
    scores = {str(size): float(score) for size, score in zip(sizes, found, strict=True)}
    return sizes[int(found.argmax())], scores
