"""Models that MLflow loads have their probabilities, and served answers their margin."""

from __future__ import annotations

import warnings
from pathlib import Path

import mlflow
import numpy as np
from sklearn.svm import LinearSVC

from cfk_plugin import KAnonymizer, PrivacyPolicy, load_protected
from cfk_plugin.serving import save_protected_model
from cfk_plugin.serving.loaded import load_from_mlflow
from worlds import World, granted


def saved(model: object, world: World, folder: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about types of the signature
        mlflow.sklearn.save_model(
            model, folder, input_example=world.strangers.head(2), pip_requirements=[]
        )
    return str(folder)


def test_classifier_keeps_its_probabilities(applicants: World, tmp_path: Path) -> None:
    """Columns may be in another order."""
    model = applicants.model
    loaded = load_from_mlflow(saved(model, applicants, tmp_path / "model"))
    assert loaded.classes_.tolist() == [0, 1]
    rows = applicants.strangers
    reordered = rows[[*reversed(rows.columns)]]
    np.testing.assert_allclose(loaded.predict_proba(reordered), model.predict_proba(rows))
    assert (loaded(reordered) == model.predict(rows)).all()


def test_model_without_probabilities_is_a_function(applicants: World, tmp_path: Path) -> None:
    """A support vector machine has labels only."""
    numbers = ["age", "income", "debt"]
    model = LinearSVC().fit(applicants.table[numbers] / 1000, granted(applicants.table))
    folder = tmp_path / "model"
    mlflow.sklearn.save_model(model, folder, pip_requirements=[])
    loaded = load_from_mlflow(str(folder))
    assert not hasattr(loaded, "predict_proba")
    rows = applicants.strangers[numbers] / 1000
    assert (loaded.predict(rows) == model.predict(rows)).all()


def test_served_answers_have_the_margin(applicants: World, tmp_path: Path) -> None:
    """A model that is given by its URI has its probabilities in the server, and the threshold."""
    uri = saved(applicants.model, applicants, tmp_path / "model")
    here = KAnonymizer(policy=PrivacyPolicy(k=5))
    here.fit(applicants.population, applicants.model, 1, threshold=0.7)
    assert here.catalogue_ is not None
    assert here.catalogue_.parts[0].catalogue.model.margin > 0
    save_protected_model(here, tmp_path / "protected", model=uri, pip_requirements=[])
    queries = applicants.refused
    assert load_protected(tmp_path / "protected").explain(queries) == here.explain(queries)
