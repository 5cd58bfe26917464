"""Models that MLflow loads have their probabilities, and served answers their margin."""

from __future__ import annotations

import warnings
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema, load_protected
from cfk_plugin.serving import save_protected_model
from cfk_plugin.serving.loaded import LoadedClassifier, load_from_mlflow

TABLE = pd.DataFrame(
    {
        "age": np.random.default_rng(0).integers(20, 70, 200),
        "pay": np.random.default_rng(1).integers(10, 90, 200),
    }
)
NOISE = np.random.default_rng(2).normal(0, 8, 200)
GRANTED = TABLE["pay"] + NOISE > 45
POPULATION = Population.from_frame(TABLE, Schema.from_frame(TABLE, quasi_identifiers=["age"]))


def saved(model: object, folder: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about types of the signature
        mlflow.sklearn.save_model(model, folder, input_example=TABLE.head(2))
    return str(folder)


def test_a_classifier_keeps_its_probabilities(tmp_path: Path) -> None:
    model = LogisticRegression().fit(TABLE, GRANTED)
    loaded = load_from_mlflow(saved(model, tmp_path / "model"))
    assert isinstance(loaded, LoadedClassifier)
    assert loaded.classes_.tolist() == [False, True]
    assert (loaded.predict(TABLE) == model.predict(TABLE)).all()
    reordered = TABLE[["pay", "age"]]
    np.testing.assert_allclose(loaded.predict_proba(reordered), model.predict_proba(TABLE))
    assert (loaded(reordered) == model.predict(TABLE)).all()


def test_a_model_without_probabilities_is_a_function(tmp_path: Path) -> None:
    model = LinearSVC().fit(TABLE, GRANTED)
    loaded = load_from_mlflow(saved(model, tmp_path / "model"))
    assert not hasattr(loaded, "predict_proba")
    assert (loaded.predict(TABLE) == model.predict(TABLE)).all()


@pytest.mark.parametrize("threshold", [None, 0.7])
def test_served_answers_have_the_margin(threshold: float | None, tmp_path: Path) -> None:
    """A model that is given by its URI has its probabilities in the server, and the threshold."""
    model = LogisticRegression().fit(TABLE, GRANTED)
    uri = saved(model, tmp_path / "model")
    here = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(POPULATION, model, True, threshold=threshold)
    assert here.catalogue_ is not None
    assert here.catalogue_.parts[0].catalogue.model.margin > 0
    save_protected_model(here, tmp_path / "protected", model=uri, pip_requirements=[])
    queries = TABLE[~model.predict(TABLE)].head(20).reset_index(drop=True)
    assert load_protected(tmp_path / "protected").explain(queries) == here.explain(queries)
