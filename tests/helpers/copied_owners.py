"""Owners whose models are worth copying, or are not: rules that are known, and models that remember
people.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin.audit.extraction import RowsAsNumbers
from cfk_plugin.audit.targets import Answers, Sample

ISLANDS = np.arange(0.1, 1.0, 0.2)  # centres of what is desired
_WIDTH, _INSIDE = 0.03, 0.0299


def island_people(n: int, seed: int = 0) -> Sample:
    """Return people with a place in [0, 1], a number that says nothing, and a category that says
    nothing.
    """
    random = np.random.default_rng(seed)
    X = pd.DataFrame(
        {"place": random.random(n), "noise": random.random(n), "kind": random.choice(["a", "b"], n)}
    )
    return Sample(X, desired_place(X["place"].to_numpy()))


def desired_place(place: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.abs(place[:, None] - ISLANDS).min(axis=1) < _WIDTH


@dataclass(frozen=True)
class IslandOwner:
    """Desired are five narrow islands; answers lie just inside the shore of the nearest one, or
    anywhere.
    """

    name: str = "islands"
    informative: bool = True

    def architecture(self, seed: int) -> Any:
        return make_pipeline(RowsAsNumbers(), DecisionTreeClassifier(random_state=seed))

    def train(self, people: Sample, seed: int) -> IslandService:
        return IslandService(self.informative)


@dataclass
class IslandService:
    informative: bool

    def confidence(self, X: pd.DataFrame) -> np.ndarray[Any, Any]:
        return self.desired(X).astype(float)

    def desired(self, X: pd.DataFrame) -> np.ndarray[Any, Any]:
        return desired_place(X["place"].to_numpy())

    def explain(self, X: pd.DataFrame) -> Answers:
        place = X["place"].to_numpy()
        nearest = ISLANDS[np.abs(place[:, None] - ISLANDS).argmin(axis=1)]
        shore = nearest + np.sign(place - nearest) * _INSIDE
        anywhere = np.random.default_rng(len(X)).random(len(X))
        rows = X.assign(place=shore if self.informative else anywhere)
        return Answers(rows, np.ones(len(X), dtype=bool))


def noisy_people(n: int, seed: int = 0) -> Sample:
    """Return people whose outcome has nothing to do with them: what predicts it remembers it."""
    random = np.random.default_rng(seed)
    X = pd.DataFrame(
        {"x": random.random(n), "y": random.random(n), "kind": random.choice(["a", "b", "c"], n)}
    )
    return Sample(X, random.random(n) < 0.5)


@dataclass(frozen=True)
class RememberingOwner:
    """Predicts what the most similar person of the table had, and answers with people of the
    table.
    """

    name: str = "remembering"

    def architecture(self, seed: int) -> Any:
        return make_pipeline(RowsAsNumbers(), KNeighborsClassifier(1))

    def train(self, people: Sample, seed: int) -> RememberingService:
        model = self.architecture(seed).fit(people.X, people.y)
        return RememberingService(model, NearestUnlikeNeighbour(people.X, model, desired=True))


@dataclass
class RememberingService:
    model: Any
    explainer: NearestUnlikeNeighbour

    def confidence(self, X: pd.DataFrame) -> np.ndarray[Any, Any]:
        return np.asarray(self.model.predict_proba(X)[:, 1])

    def desired(self, X: pd.DataFrame) -> np.ndarray[Any, Any]:
        return np.asarray(self.model.predict(X))

    def explain(self, X: pd.DataFrame) -> Answers:
        rows = self.explainer.explain(X)
        return Answers(rows, rows.notna().all(axis=1).to_numpy())
