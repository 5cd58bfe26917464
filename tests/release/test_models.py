"""Kinds of models are protected as they are, or refused in one line; goals reach every place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import (
    Attribute,
    DPPrototypes,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    load_protected,
    log_protected_model,
)
from cfk_plugin.data.model import Thresholded
from cfk_plugin.errors import ModelError, PolicyError
from commands import cfk, output_of
from oracle import advised_points

N = 200
QUASI = ["age", "kids"]
RANDOM = np.random.default_rng(3)
TABLE = pd.DataFrame(
    {
        "age": RANDOM.integers(18, 80, N),
        "pay": RANDOM.integers(10, 90, N),
        "debt": RANDOM.integers(0, 30, N),
        "kids": RANDOM.integers(0, 4, N),
    }
)
SCORE = (
    TABLE["age"] * 0.3 + TABLE["pay"] - 0.8 * TABLE["debt"] + RANDOM.normal(0, 8, N)
).to_numpy()
GRANTED = (SCORE > 50).astype(int)
BAND = np.select([SCORE < 40, SCORE < 65], ["low", "mid"], "high")
SCHEMA = Schema.from_frame(
    TABLE,
    quasi_identifiers=QUASI,
    columns=dict.fromkeys(TABLE, Attribute(bounds=(0, 100))),
    nullable=[],
)
POPULATION = Population.from_frame(TABLE, SCHEMA)
QUERIES = TABLE[SCORE < 30].head(6).reset_index(drop=True)
BACKWARDS = TABLE[TABLE.columns[::-1]]

LOGISTIC = LogisticRegression(max_iter=1_000).fit(TABLE, GRANTED)
NAMED = LogisticRegression(max_iter=1_000).fit(TABLE, np.where(GRANTED, "yes", "no"))
TREE = DecisionTreeClassifier(max_depth=5, random_state=0).fit(TABLE, BAND)
REGRESSOR = LinearRegression().fit(TABLE, SCORE)


def fit(model: Any, desired: Any, threshold: float | None = None, margin: Any = 0) -> KAnonymizer:
    policy = PrivacyPolicy(k=5, margin=margin)
    return KAnonymizer(policy=policy).fit(POPULATION, model, desired, threshold=threshold)


def points(model: Any, desired: Any, threshold: float | None = None) -> pd.DataFrame:
    """Return the points that a catalogue advises the queries."""
    answers = fit(model, desired, threshold).explain(QUERIES)
    positions, rows = advised_points(answers, QUERIES, TABLE)
    assert len(positions) == len(QUERIES)
    return rows


# --- thresholds and kinds of models -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "desired"),
    [
        (NAMED, "yes"),
        (LOGISTIC.predict_proba, 1),
        (lambda rows: LOGISTIC.predict_proba(rows)[:, 1:], 1),
    ],
)
def test_threshold_decides_on_outcomes(model: Any, desired: Any) -> None:
    """Of a classifier with labels, and of functions of probabilities."""
    low, high = (
        LOGISTIC.predict_proba(points(model, desired, threshold))[:, 1] for threshold in (0.3, 0.7)
    )
    assert 0.3 <= low.min() < 0.5
    assert high.min() >= 0.7


def xgboost_model() -> tuple[Any, Callable[[pd.DataFrame], Any]]:
    xgboost = pytest.importorskip("xgboost", reason="comes with the extra [dice]")
    options = {"objective": "binary:logistic", "nthread": 1}
    model = xgboost.train(options, xgboost.DMatrix(BACKWARDS, GRANTED), 20)
    return model, lambda rows: model.predict(xgboost.DMatrix(rows))


def lightgbm_model() -> tuple[Any, Callable[[pd.DataFrame], Any]]:
    lightgbm = pytest.importorskip("lightgbm", reason="comes with the extra [dice]")
    options = {"objective": "binary", "verbose": -1, "num_threads": 1}
    model = lightgbm.train(options, lightgbm.Dataset(BACKWARDS, GRANTED), 20)
    return model, model.predict


@pytest.mark.parametrize("make", [xgboost_model, lightgbm_model])
def test_booster_gets_its_order_of_columns(make: Any) -> None:
    """It was trained on the columns in another order."""
    model, probability = make()
    rows = points(model, 1, 0.3)
    assert probability(rows[BACKWARDS.columns]).min() >= 0.3


def test_booster_of_probabilities_needs_a_threshold() -> None:
    """Its predictions are no labels."""
    with pytest.raises(ModelError, match="threshold="):
        fit(xgboost_model()[0], 1)


@pytest.mark.parametrize("n_tensors", [1, 4])
def test_onnx_session_answers_with_labels(n_tensors: int) -> None:
    """It takes one tensor, or one per column; its first output decides."""
    reason = "needs `pip install onnxruntime skl2onnx`"
    onnxruntime = pytest.importorskip("onnxruntime", reason=reason)
    to_onnx = pytest.importorskip("skl2onnx", reason=reason).to_onnx
    model = LogisticRegression(max_iter=1_000)
    if n_tensors == 1:
        session = to_onnx(model.fit(TABLE, GRANTED), TABLE.to_numpy(dtype="float32"))
    else:
        columns = ColumnTransformer([("all", "passthrough", [*TABLE])])
        session = to_onnx(make_pipeline(columns, model).fit(TABLE, GRANTED), TABLE)
    session = onnxruntime.InferenceSession(session.SerializeToString())
    assert LOGISTIC.predict(points(session, 1)).all()


class Module:
    """A module of torch, as far as anybody sees."""

    __module__ = "torch.nn.modules.module"

    def __call__(self, rows: Any) -> Any:
        return rows


@pytest.mark.parametrize(
    ("model", "desired", "threshold", "word"),
    [
        (Module(), 1, None, "model=lambda rows"),
        (LOGISTIC.predict, 1, 0.3, "one probability for each row"),
        (REGRESSOR, 1, 0.3, "between 0 and 1"),
        (TREE, 1, 0.3, "two classes, and the model has 3"),
        (TREE.predict_proba, 1, 0.3, "shape"),
        (lambda rows: np.where(rows["age"] > 50, np.nan, 0.5), 1, 0.3, "between 0 and 1"),
        (LOGISTIC, 1, 30, "above 0 and at most 1"),
        (TREE.predict_proba, "low", None, "argmax"),
        (RandomForestClassifier, 1, None, "not a fitted model"),
        (RandomForestClassifier(), 1, None, "fit it first"),
        (REGRESSOR, "opposite", None, r"desired=\(low, high\)"),
        (REGRESSOR, (80, 50), None, "lower end first"),
        (REGRESSOR, (50, "many"), None, "two numbers"),
        (REGRESSOR, (50, 60, 70), None, "labels as a set"),
        (TREE, (50, 80), None, "no number"),
        (TREE, {"low", "lower"}, None, "not one of the model's classes"),
        (TREE, {"low", "mid", "high"}, None, "every class"),
    ],
)
def test_unusable_model_or_goal_is_refused(
    model: Any, desired: Any, threshold: Any, word: str
) -> None:
    """The message is one line with a remedy."""
    with pytest.raises(ModelError, match=word) as caught:
        fit(model, desired, threshold)
    assert "\n" not in str(caught.value)


JOBS = TABLE.assign(job=np.where(GRANTED, "SENTINELclerk", "SENTINELnurse"))
ENCODED = pd.get_dummies(JOBS)
OF_ARRAY = DecisionTreeClassifier(max_depth=2).fit(ENCODED.to_numpy(), GRANTED)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (OF_ARRAY, ["column 'job'", "fitted on 6 columns", "model=lambda rows"]),
        (DecisionTreeClassifier().fit(ENCODED, BAND), ["columns that are made from 'job'"]),
        (lambda rows: rows.to_numpy(dtype=float), ["column 'job'", "call model("]),
        (Thresholded(OF_ARRAY, 0.5), ["column 'job'", "model.predict_proba("]),
    ],
    ids=["array", "encoded columns", "function", "threshold"],
)
def test_unfit_model_names_the_cause(model: Any, words: list[str]) -> None:
    """The message has a check for the user, and no value of a row."""
    schema = Schema.from_frame(JOBS, quasi_identifiers=["age", "job"])
    population = Population.from_frame(JOBS, schema)
    with pytest.raises(ModelError) as caught:
        KAnonymizer().fit(population, model, desired="opposite")
    assert not [word for word in words if word not in str(caught.value)]
    assert "SENTINEL" not in str(caught.value)


def test_failing_model_names_the_culprit() -> None:
    """Of two columns of text, the model encodes one, and fails at the other."""
    table = JOBS.assign(city=np.where(GRANTED, "Ghent", "Antwerp"))
    encoder = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    model = make_pipeline(encoder, LogisticRegression()).fit(table.assign(job=0), GRANTED)
    population = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age"]))
    with pytest.raises(ModelError, match="'job'") as caught:
        KAnonymizer().fit(population, model, desired=True)
    assert "'city'" not in str(caught.value)
    assert "SENTINEL" not in str(caught.value)


def test_numpy_label_is_shown_as_typed() -> None:
    """The message has `'lower'`, not `np.str_('lower')`."""
    with pytest.raises(ModelError, match="`desired` is 'lower', not"):
        fit(TREE, np.str_("lower"))


def test_function_with_misspelt_outcome_is_refused() -> None:
    """A function does not list its labels, so the fit finds out that it never gives this one."""
    with pytest.raises(PolicyError, match="spelling"):
        fit(TREE.predict, "Low")


# --- goals ------------------------------------------------------------------------------------------


def test_prototypes_meet_the_goal() -> None:
    """A range of numbers."""
    pytest.importorskip("opendp", reason="needs the extra [dp]")
    queries = TABLE[REGRESSOR.predict(TABLE) < 50].head(6)
    prototypes = DPPrototypes(epsilon=5.0, rows=2_000, serve="prototypes", prototypes=9)
    answers = prototypes.fit(POPULATION, REGRESSOR, (50, 80)).explain(queries).released
    assert len(answers) == len(queries)
    rows = pd.DataFrame([dict(answer.values) for answer in answers])[TABLE.columns]
    scores = REGRESSOR.predict(rows)
    assert ((scores >= 50) & (scores <= 80)).all()


@pytest.mark.parametrize(
    ("model", "desired", "other", "options"),
    [
        (REGRESSOR, "50..80", "60..70", []),
        (LOGISTIC, "1", "0", ["--threshold", "0.3"]),
    ],
)
def test_commands_take_goals_as_text(
    model: Any, desired: str, other: str, options: list[str], tmp_path: Path
) -> None:
    """`verify` accepts the goal of the release, and no other one."""
    table = tmp_path / "train.csv"
    TABLE.to_csv(table, index=False)
    joblib.dump(model, tmp_path / "model.joblib")
    (tmp_path / "schema.json").write_text(json.dumps({"quasi_identifiers": QUASI}))
    files = ["-s", tmp_path / "schema.json", "-m", tmp_path / "model.joblib", *options]
    release = tmp_path / "release.json"
    cfk("catalogue", table, *files, "--desired", desired, "--k", 20, "-o", release)
    verify = ["verify", release, "--train", table, *files, "--desired"]
    cfk(*verify, desired)
    assert "another outcome" in output_of(*verify, other, code=1)


def test_logged_model_has_the_goal(mlflow_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A threshold goes with the model."""
    monkeypatch.setenv("CFK_KEY", "what the server and this process share")
    with mlflow.start_run():
        anonymizer = fit(LOGISTIC, 1, 0.3)
        logged = log_protected_model(anonymizer, pip_requirements=["pandas"])
    loaded = load_protected(logged.model_uri)
    assert loaded.explain(QUERIES).to_json() == anonymizer.explain(QUERIES).to_json()
