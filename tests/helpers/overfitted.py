"""A made-up table of which a forest without limits learns every person by heart, and owners who train on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin.audit.targets import Sample, tabular

QUASI = ("age", "town")


def people(n: int, seed: int = 0) -> Sample:
    """Return people of whose outcomes most is chance, so that a good memory is all that a model can have."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": random.integers(18, 80, n),
            "town": random.choice(list("ABCD"), n),
            "income": random.normal(50, 15, n).round(1),
            "debt": random.normal(20, 8, n).round(1),
            "job": random.choice(["none", "part", "full"], n),
        }
    )
    return Sample(frame, random.random(n) < 0.5 + 0.1 * (frame["income"] > 50))


def forest(sample: Sample, trees: int = 15) -> Any:
    return tabular(sample.X, RandomForestClassifier(trees, n_jobs=1))


def nearest(train: pd.DataFrame, labels: Any, model: Any, desired: Any, seed: int) -> NearestUnlikeNeighbour:
    """Make the explainer that returns training rows; found by name where it is pickled."""
    return NearestUnlikeNeighbour(train, model, desired)
