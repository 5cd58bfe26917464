"""Outcomes that follow from probabilities: thresholds, classifiers, and invalid probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from cfk_plugin.data.decision import LargestProbability, ProbabilityThreshold, probabilities_of
from cfk_plugin.data.model import LabelModel, Thresholded
from cfk_plugin.errors import ModelError

TWO = np.array(["bad", "good"], dtype=object)


def rows(n: int) -> pd.DataFrame:
    """Return rows of three numbers."""
    random = np.random.default_rng(0)
    return pd.DataFrame(random.normal(size=(n, 3)), columns=["x", "y", "z"])


def test_lead_may_be_per_row() -> None:
    """If every row desires the class of its own, the lead is over the best other one."""
    probabilities = np.array([[0.5, 0.3, 0.2], [0.2, 0.45, 0.35], [0.1, 0.1, 0.8]])
    decision = LargestProbability(np.array(["a", "b", "c"], dtype=object))
    assert decision.outcomes(probabilities).tolist() == ["a", "b", "c"]
    leads = decision.leads(probabilities, np.eye(3, dtype=bool))
    np.testing.assert_allclose(leads, [0.2, 0.1, 0.7])


def test_threshold_of_one_is_certainty() -> None:
    """Nothing is left above it."""
    decision = ProbabilityThreshold(TWO, 1.0)
    probabilities = np.array([[0.0, 1.0], [0.1, 0.9]])
    assert decision.outcomes(probabilities).tolist() == ["good", "bad"]
    leads = decision.leads(probabilities, np.array([False, True]))
    np.testing.assert_allclose(leads, [1.0, -0.1])


CLASSIFIERS = {
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "forest": RandomForestClassifier(10, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=5),
    "fixed threshold": FixedThresholdClassifier(LogisticRegression(), threshold=0.3),
    "tuned threshold": TunedThresholdClassifierCV(LogisticRegression(), cv=2, thresholds=5),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_outcomes_follow_from_probabilities(name: str) -> None:
    """They are those that the classifier predicts."""
    table = rows(200)
    noise = np.random.default_rng(1).normal(size=len(table))
    model = CLASSIFIERS[name].fit(table, np.where(table["x"] + noise > 0.3, "good", "bad"))
    queries = rows(1000)
    label_model = LabelModel(model, list(table))
    outcomes = label_model.decision.outcomes(label_model.ask_probabilities(queries))
    assert np.array_equal(outcomes, model.predict(queries))
    assert len(set(outcomes)) == 2


def test_threshold_of_user_decides() -> None:
    """The lead is relative to what is left on its side of the threshold."""
    model = Thresholded(lambda rows: rows["x"].clip(0, 1), 0.25)
    label_model = LabelModel(model, ["x"])
    queries = pd.DataFrame({"x": [0.0, 0.2, 0.25, 0.625, 1.0]})
    probabilities = label_model.ask_probabilities(queries)
    outcomes = label_model.decision.outcomes(probabilities)
    assert outcomes.tolist() == model.predict(queries).tolist()
    leads = label_model.decision.leads(probabilities, np.array([False, True]))
    np.testing.assert_allclose(leads, [-1, -0.2, 0, 0.5, 1])


@pytest.mark.parametrize("model", [lambda rows: rows, LinearSVC(), object()])
def test_others_have_no_probabilities(model: Any) -> None:
    """Functions, and classifiers without `predict_proba`."""
    assert probabilities_of(model) is None


class Fixed:
    """A classifier that returns the same array of probabilities for all rows."""

    classes_ = np.array([0, 1])

    def __init__(self, probabilities: Any) -> None:
        self.probabilities = probabilities

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        return np.zeros(len(rows), dtype=int)

    def predict_proba(self, rows: pd.DataFrame) -> Any:
        return self.probabilities


@pytest.mark.parametrize(
    "probabilities",
    [
        [0.5, 0.5],
        [[0.2, 0.8]],
        [[0.2, 0.8], [np.nan, 0.5]],
        [[2.0, 0.8], [0.4, 0.6]],
        [["a", "b"], ["a", "b"]],
    ],
)
def test_invalid_probabilities_are_refused(probabilities: Any) -> None:
    """The error says which shape and numbers were expected."""
    label_model = LabelModel(Fixed(np.array(probabilities)), ["x"])
    with pytest.raises(ModelError, match=r"expected numbers between 0 and 1 of shape \(2, 2\)"):
        label_model.ask_probabilities(pd.DataFrame({"x": [1.0, 2.0]}))
