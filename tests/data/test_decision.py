"""How outcomes follow from probabilities, against closed forms and against classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin.data.decision import LargestProbability, ProbabilityThreshold, probabilities_of
from cfk_plugin.data.model import LabelModel, Thresholded
from cfk_plugin.errors import ModelError

TWO = np.array(["bad", "good"], dtype=object)
THREE = np.array(["a", "b", "c"], dtype=object)


def rows(n: int = 300) -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(random.normal(size=(n, 3)), columns=["x", "y", "z"])


def labels_of(table: pd.DataFrame) -> np.ndarray:
    random = np.random.default_rng(1)
    return np.where(table["x"] + random.normal(size=len(table)) > 0.3, "good", "bad")


def test_lead_of_two_classes_is_the_distance_from_one_half_relative_to_what_is_left() -> None:
    probability = np.linspace(0, 1, 21)
    probabilities = np.column_stack([1 - probability, probability])
    decision = LargestProbability(TWO)
    leads = decision.leads(probabilities, np.array([False, True]))
    np.testing.assert_allclose(leads, (probability - 0.5) / 0.5, atol=1e-12)
    np.testing.assert_allclose(decision.leads(probabilities, np.array([True, False])), -leads)


def test_lead_of_three_classes_is_over_the_most_probable_other_one() -> None:
    probabilities = np.array([[0.5, 0.3, 0.2], [0.2, 0.45, 0.35], [0.1, 0.1, 0.8]])
    decision = LargestProbability(THREE)
    assert decision.outcomes(probabilities).tolist() == ["a", "b", "c"]
    one = decision.leads(probabilities, np.array([True, False, False]))
    np.testing.assert_allclose(one, [0.2, -0.25, -0.7])
    either = decision.leads(probabilities, np.array([True, True, False]))
    np.testing.assert_allclose(either, [0.3, 0.1, -0.7])
    own = decision.leads(probabilities, np.eye(3, dtype=bool))
    np.testing.assert_allclose(own, [0.2, 0.1, 0.7])


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.9])
def test_lead_over_a_threshold_is_relative_to_what_is_left_on_its_side(threshold: float) -> None:
    second = np.array([0.0, threshold / 2, threshold, (1 + threshold) / 2, 1.0])
    probabilities = np.column_stack([1 - second, second])
    decision = ProbabilityThreshold(TWO, threshold)
    assert decision.outcomes(probabilities).tolist() == ["bad", "bad", "good", "good", "good"]
    leads = decision.leads(probabilities, np.array([False, True]))
    np.testing.assert_allclose(leads, [-1, -0.5, 0, 0.5, 1], atol=1e-12)
    # seen from the other outcome: p = 1 - second, t = 1 - threshold
    other = decision.leads(probabilities, np.array([True, False]))
    expected = (1 - second - (1 - threshold)) / threshold
    np.testing.assert_allclose(other[:2], expected[:2], atol=1e-12)


def test_a_threshold_of_one_asks_for_certainty() -> None:
    decision = ProbabilityThreshold(TWO, 1.0)
    probabilities = np.array([[0.0, 1.0], [0.1, 0.9]])
    assert decision.outcomes(probabilities).tolist() == ["good", "bad"]
    leads = decision.leads(probabilities, np.array([False, True]))
    np.testing.assert_allclose(leads, [1.0, -0.1])


CLASSIFIERS = {
    "logistic": LogisticRegression(),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "forest": RandomForestClassifier(20, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=20),
    "histogram boosting": HistGradientBoostingClassifier(max_iter=20),
    "tree": DecisionTreeClassifier(max_depth=3),
    "fixed threshold": FixedThresholdClassifier(LogisticRegression(), threshold=0.3),
    "tuned threshold": TunedThresholdClassifierCV(LogisticRegression(), scoring="recall_macro"),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_outcomes_follow_from_probabilities_as_the_classifier_predicts(name: str) -> None:
    table = rows()
    model = CLASSIFIERS[name].fit(table, labels_of(table))
    asked = rows(2000)
    label_model = LabelModel(model, list(table))
    outcomes = label_model.decision.outcomes(label_model.ask_probabilities(asked))
    assert np.array_equal(outcomes, model.predict(asked))
    assert len(set(outcomes)) == 2


def test_a_threshold_of_the_user_decides() -> None:
    model = Thresholded(lambda asked: asked["x"].clip(0, 1), 0.25)
    label_model = LabelModel(model, ["x"])
    asked = pd.DataFrame({"x": [0.0, 0.2, 0.25, 0.625, 1.0]})
    probabilities = label_model.ask_probabilities(asked)
    assert label_model.decision.outcomes(probabilities).tolist() == model.predict(asked).tolist()
    leads = label_model.decision.leads(probabilities, np.array([False, True]))
    np.testing.assert_allclose(leads, [-1, -0.2, 0, 0.5, 1])


@pytest.mark.parametrize("model", [lambda asked: asked, LinearSVC(), object()])
def test_what_has_no_probabilities_is_known(model: Any) -> None:
    assert probabilities_of(model) is None


class _Answers:
    """A classifier whose probabilities are whatever it is given."""

    classes_ = np.array([0, 1])

    def __init__(self, probabilities: Any) -> None:
        self._probabilities = probabilities

    def predict(self, asked: pd.DataFrame) -> np.ndarray:
        return np.zeros(len(asked), dtype=int)

    def predict_proba(self, asked: pd.DataFrame) -> Any:
        return self._probabilities


@pytest.mark.parametrize(
    "probabilities",
    [
        np.array([0.5, 0.5]),
        np.array([[0.2, 0.8]]),
        np.array([[0.2, 0.8], [np.nan, 0.5]]),
        np.array([[2.0, 0.8], [0.4, 0.6]]),
        np.array([["a", "b"], ["a", "b"]]),
    ],
)
def test_what_are_no_probabilities_of_the_classes_is_refused(probabilities: np.ndarray) -> None:
    label_model = LabelModel(_Answers(probabilities), ["x"])
    with pytest.raises(ModelError, match=r"expected numbers between 0 and 1 of shape \(2, 2\)"):
        label_model.ask_probabilities(pd.DataFrame({"x": [1.0, 2.0]}))
