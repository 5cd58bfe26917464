"""Kinds of models that are protected as they are, or say in one line what is missing, and goals in
every place.
"""

from __future__ import annotations

import json
from typing import Any

import joblib
import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from cfk_plugin import (
    Attribute,
    DPPrototypes,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    log_protected_model,
    protect,
)
from cfk_plugin.data.model import Thresholded
from cfk_plugin.data.outcome import DesiredOutcome, Outcome
from cfk_plugin.errors import ModelError
from commands import cfk, output_of

N = 400
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
GRANTED, BAND = (
    (SCORE > 50).astype(int),
    np.select([SCORE < 40, SCORE < 65], ["low", "mid"], "high"),
)
POPULATION = Population.from_frame(
    TABLE,
    Schema.from_frame(
        TABLE,
        quasi_identifiers=["age", "kids"],
        columns=dict.fromkeys(TABLE, Attribute(bounds=(0, 100))),
        nullable=[],
    ),
)
QUERIES = TABLE[SCORE < 30].head(6)
BACKWARDS = TABLE[TABLE.columns[::-1]]

LOGISTIC = LogisticRegression(max_iter=1_000).fit(TABLE, GRANTED)
FOREST = RandomForestClassifier(20, random_state=0).fit(TABLE, BAND)
REGRESSOR = RandomForestRegressor(20, random_state=0).fit(TABLE, SCORE)


def answered(model: Any, desired: Any, threshold: float | None = None, margin: Any = "auto") -> Any:
    """Return what leaves for queries from a catalogue, and look at what it says of the outcome."""
    asked: dict[str, Any] = {"model": model, "desired": desired, "threshold": threshold}
    private = protect(
        None,
        population=POPULATION,
        policy=PrivacyPolicy(k=5, margin=margin),
        **asked,
    )
    found = private.explain(QUERIES)
    assert found.released
    assert {str(entry.outcome) for entry in found.generalized} == {
        str(DesiredOutcome.of(desired).common_outcome)
    }
    return found


def points(found: Any) -> pd.DataFrame:
    """Return the point of each region that is nearest to who asks, with the private values that are
    released.
    """
    rows = []
    for entry in found.generalized:
        own = QUERIES.iloc[entry.query]
        ends = {
            name: np.clip(own[name], part.low, part.high) for name, part in entry.region.items()
        }
        rows.append({**ends, **entry.released})
    return pd.DataFrame(rows)[TABLE.columns].astype(float)


# --- thresholds -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [LOGISTIC, LOGISTIC.predict_proba, lambda rows: LOGISTIC.predict_proba(rows)[:, 1:]]
)
def test_a_threshold_decides_where_an_answer_has_the_outcome(model: Any) -> None:
    lenient, strict = (
        LOGISTIC.predict_proba(points(answered(model, 1, t, margin=0)))[:, 1] for t in (0.3, 0.7)
    )
    assert lenient.min() >= 0.3
    assert lenient.min() < 0.5
    assert strict.min() >= 0.7


def test_a_threshold_gives_the_models_own_classes() -> None:
    named = LogisticRegression(max_iter=1_000).fit(TABLE, np.where(GRANTED, "yes", "no"))
    found = Thresholded(named, 0.3).predict(TABLE)
    assert found.tolist() == np.where(named.predict_proba(TABLE)[:, 1] >= 0.3, "yes", "no").tolist()


@pytest.mark.parametrize(
    ("model", "threshold", "said"),
    [
        (LOGISTIC.predict, 0.3, "one probability for each row.* int64"),
        (REGRESSOR, 0.3, "between 0 and 1"),
        (FOREST, 0.3, "two classes, and the model has 3"),
        (FOREST.predict_proba, 0.3, r"shape \(256, 3\)"),
        (lambda rows: np.where(rows["age"] > 50, np.nan, 0.5), 0.3, "between 0 and 1"),
        (LOGISTIC, 30, "above 0 and at most 1"),
        (LOGISTIC, True, "above 0 and at most 1"),
    ],
)
def test_a_threshold_on_what_is_no_probability_is_refused_in_one_line(
    model: Any, threshold: Any, said: str
) -> None:
    with pytest.raises(ModelError, match=said) as refused:
        KAnonymizer().fit(POPULATION, model, 1, threshold=threshold)
    assert "\n" not in str(refused.value)


# --- kinds of models ------------------------------------------------------------------------------


def test_boosters_of_xgboost_are_asked_in_their_own_order_of_columns() -> None:
    xgboost = pytest.importorskip("xgboost", reason="comes with the extra [dice]")
    booster = xgboost.train(
        {"objective": "binary:logistic", "nthread": 1}, xgboost.DMatrix(BACKWARDS, GRANTED), 20
    )
    found = points(answered(booster, 1, 0.3))
    assert booster.predict(xgboost.DMatrix(found[BACKWARDS.columns])).min() >= 0.3
    with pytest.raises(ModelError, match=r"fractions; of probabilities give threshold="):
        KAnonymizer().fit(POPULATION, booster, 1)
    numbers = xgboost.train({"nthread": 1}, xgboost.DMatrix(TABLE, SCORE), 20)
    assert numbers.predict(xgboost.DMatrix(points(answered(numbers, (50, None))))).min() >= 50


def test_boosters_of_lightgbm_which_compare_no_names_are_asked_in_their_own_order_of_columns() -> (
    None
):
    lightgbm = pytest.importorskip("lightgbm", reason="comes with the extra [dice]")
    booster = lightgbm.train(
        {"objective": "binary", "verbose": -1, "num_threads": 1},
        lightgbm.Dataset(BACKWARDS, GRANTED),
        20,
    )
    assert booster.predict(points(answered(booster, 1, 0.3))[BACKWARDS.columns]).min() >= 0.3
    named = lightgbm.LGBMClassifier(n_estimators=20, verbose=-1, n_jobs=1).fit(TABLE, BAND)
    assert set(named.predict(points(answered(named, {"mid", "high"})))) <= {"mid", "high"}


def test_models_of_catboost_are_asked_in_their_own_order_of_columns() -> None:
    catboost = pytest.importorskip("catboost", reason="needs `pip install catboost`")
    settings: Any = {"iterations": 20, "verbose": 0, "allow_writing_files": False}
    named = catboost.CatBoostClassifier(**settings).fit(BACKWARDS, BAND)
    assert set(
        named.predict(points(answered(named, {"mid", "high"}))[BACKWARDS.columns])[:, 0]
    ) <= {"mid", "high"}
    numbers = catboost.CatBoostRegressor(**settings).fit(TABLE, SCORE)
    assert numbers.predict(points(answered(numbers, (50, 80)))).min() >= 50


@pytest.mark.parametrize("columns", [False, True], ids=["one tensor", "a tensor for each column"])
def test_sessions_of_onnx_runtime_are_asked_for_their_first_output(columns: bool) -> None:
    onnxruntime = pytest.importorskip(
        "onnxruntime", reason="needs `pip install onnxruntime skl2onnx`"
    )
    to_onnx = pytest.importorskip(
        "skl2onnx", reason="needs `pip install onnxruntime skl2onnx`"
    ).to_onnx
    # skl2onnx takes names off the models that it converts
    own = clone(LOGISTIC).fit(TABLE, GRANTED)
    whole = make_pipeline(
        ColumnTransformer([("all", "passthrough", [*TABLE])]), clone(LOGISTIC)
    ).fit(TABLE, GRANTED)
    made = to_onnx(whole, TABLE) if columns else to_onnx(own, TABLE.to_numpy(dtype="float32"))
    session = onnxruntime.InferenceSession(made.SerializeToString())
    assert LOGISTIC.predict(points(answered(session, 1))).all()
    with pytest.raises(ModelError, match="one probability for each row"):
        KAnonymizer().fit(POPULATION, session, 1, threshold=0.3)


def test_a_torch_module_takes_the_line_that_its_refusal_names() -> None:
    torch = pytest.importorskip("torch", reason="needs `pip install torch`")
    net: Any = torch.nn.Linear(4, 2)
    with pytest.raises(ModelError, match="model=lambda rows: net") as refused:
        KAnonymizer().fit(POPULATION, net, 1)
    line = str(refused.value).partition("model=")[2]
    answered(eval(line, {"net": net, "torch": torch}), 1)


def test_a_torch_module_is_refused_with_that_line() -> None:
    module = type(
        "Module", (), {"__module__": "torch.nn.modules.module", "__call__": lambda self, rows: rows}
    )
    with pytest.raises(ModelError, match="torch module takes tensors"):
        KAnonymizer().fit(POPULATION, module(), 1)


@pytest.mark.parametrize(
    ("model", "desired", "said"),
    [
        (REGRESSOR, "opposite", r"a range, desired=\(low, high\)"),
        (FOREST.predict_proba, "low", "argmax"),
        (RandomForestClassifier, 1, "a class and no fitted model"),
        (FOREST, (50, 80), "range 50–80, and the model gives no number in it"),
        (lambda rows: np.full(len(rows), "low"), (50, 80), "gives no number"),
        (FOREST, {"low", "lower"}, "not one of the model's classes"),
        (FOREST, {"low", "mid", "high"}, "every class"),
        (REGRESSOR, (80, 50), "lower end first"),
        (REGRESSOR, (50, np.nan), "lower end first"),
        (REGRESSOR, (50, "many"), "two numbers"),
        (REGRESSOR, (50, 60, 70), "give labels as a set"),
        (FOREST, set(), "a set of labels"),
    ],
)
def test_what_cannot_be_used_says_why_in_one_line(model: Any, desired: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said) as refused:
        KAnonymizer().fit(POPULATION, model, desired)
    assert "\n" not in str(refused.value)


# --- goals, part by part --------------------------------------------------------------------------

GOALS = [(REGRESSOR, (50, 80)), (REGRESSOR, (None, 45)), (FOREST, {"mid", "high"})]


@pytest.mark.parametrize(("model", "desired"), GOALS)
def test_a_goal_is_read_back_as_it_was_written(model: Any, desired: Any) -> None:
    goal = DesiredOutcome.of(desired)
    assert DesiredOutcome.of_json(json.loads(json.dumps(goal.to_json()))) == goal
    assert Outcome.of(goal.common_outcome.to_dict()).desired == goal.desired


@pytest.mark.parametrize(("model", "desired"), GOALS)
def test_prototypes_have_an_outcome_of_the_goal(model: Any, desired: Any) -> None:
    pytest.importorskip("opendp", reason="needs the extra [dp]")
    met = DesiredOutcome.of(desired).is_met
    queries = TABLE[~met(model.predict(TABLE))].head(6)
    for serve in ("rows", "prototypes"):
        with pytest.warns(UserWarning, match="seeded"):
            made = DPPrototypes(epsilon=5.0, rows=2_000, serve=serve, prototypes=9, seed=0).fit(
                POPULATION, model, desired
            )
        found = made.explain(queries)
        assert len(found.released) == len(queries)
        rows = pd.DataFrame([dict(entry.values) for entry in found.released])[TABLE.columns]
        assert met(model.predict(rows)).all()
        assert serve == "rows" or len(made.served_) <= 9 * 3


@pytest.mark.parametrize(("model", "desired"), GOALS)
def test_a_loaded_catalogue_answers_alike(model: Any, desired: Any, tmp_path: Any) -> None:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(POPULATION, model, desired)
    anonymizer.catalogue_.save(tmp_path / "catalogue")
    loaded = KAnonymizer.load(tmp_path / "catalogue", model)
    assert loaded.goal_ == anonymizer.goal_
    assert loaded.explain(QUERIES).to_json() == anonymizer.explain(QUERIES).to_json()


TEXTS = [
    (REGRESSOR, "50..80", []),
    (REGRESSOR, "50..", []),
    (FOREST, "mid,high", []),
    (LOGISTIC, "1", ["--threshold", "0.3"]),
]


@pytest.mark.parametrize(("model", "desired", "more"), TEXTS)
def test_commands_take_goals_as_text(
    model: Any, desired: str, more: list[str], tmp_path: Any
) -> None:
    TABLE.to_csv(tmp_path / "train.csv", index=False)
    joblib.dump(model, tmp_path / "model.joblib")
    (tmp_path / "schema.json").write_text(json.dumps({"quasi_identifiers": ["age", "kids"]}))
    out, rows = tmp_path / "out.json", tmp_path / "train.csv"
    given = ["-s", tmp_path / "schema.json", "-m", tmp_path / "model.joblib", *more]
    cfk("catalogue", rows, *given, "--desired", desired, "--k", 5, "-o", out)
    said = output_of("verify", out, "--train", rows, *given[:2])
    assert "outcome" not in said.partition("not checked")[0]
    output_of("verify", out, "--train", rows, *given, "--desired", desired)
    if model is not LOGISTIC:
        other = "60..70" if ".." in desired else "low"
        assert "another outcome" in output_of(
            "verify", out, "--train", rows, *given, "--desired", other, code=1
        )


SERVED: Any = [
    ("catalogue", REGRESSOR, "50..80", (50, 80), None),
    ("catalogue", FOREST, "mid,high", {"mid", "high"}, None),
    ("catalogue", LOGISTIC, "1", 1, 0.3),
    ("lookup", FOREST, "mid,high", {"mid", "high"}, None),
]


@pytest.fixture(scope="module")
def found() -> Any:
    """An explainer of no certain outcome: whoever earns most."""
    rich = TABLE.nlargest(60, "pay")
    return lambda queries: rich.sample(len(queries), random_state=0).set_index(queries.index)


def sentences(guarantee: Any, found: Any, *goal: Any, threshold: Any) -> list[Any]:
    """Return what one machine says to the queries."""
    policy = PrivacyPolicy(k=5, guarantee=guarantee)
    private = KAnonymizer(policy=policy).fit(KEYED, *goal, threshold=threshold)
    answers = (
        private.explain(QUERIES)
        if guarantee == "catalogue"
        else private.transform(found(QUERIES), QUERIES)
    )
    assert answers.released
    assert {str(entry.outcome) for entry in answers.generalized} == {
        str(DesiredOutcome.of(goal[1]).common_outcome)
    }
    rows = QUERIES.to_dict("records")
    return [getattr(e, "text", lambda _: None)(row) for e, row in zip(answers, rows, strict=True)]


KEY = "what the server and this process share"
KEYED = Population.from_frame(TABLE, POPULATION.schema, key=KEY.encode())


@pytest.mark.parametrize(
    ("guarantee", "model", "text", "desired", "threshold"),
    [goal for goal in SERVED if goal[0] == "catalogue"],
)
def test_a_logged_model_has_the_goal(
    guarantee: Any,
    model: Any,
    text: str,
    desired: Any,
    threshold: Any,
    found: Any,
    mlflow_store: str,
    monkeypatch: Any,
) -> None:
    monkeypatch.setenv("CFK_KEY", KEY)
    asked: dict[str, Any] = {
        "model": model,
        "desired": desired,
        "threshold": threshold,
        "requirements": ["pandas"],
    }
    with mlflow.start_run():
        logged = log_protected_model(
            population=KEYED, policy=PrivacyPolicy(k=5, guarantee=guarantee), **asked
        )
    told = mlflow.pyfunc.load_model(logged.model_uri).predict(QUERIES)
    here = sentences(guarantee, found, model, desired, threshold=threshold)
    assert [record["sentence"] for record in told] == here


# --- models that want another form ----------------------------------------------------------------

JOBS = TABLE.assign(job=np.where(GRANTED, "SENTINELclerk", "SENTINELnurse"))
PEOPLE = Population.from_frame(JOBS, Schema.from_frame(JOBS, quasi_identifiers=["age", "job"]))
ENCODED = pd.get_dummies(JOBS)
NEEDS_NUMBERS = "many models need numbers, and have none in column 'job'"
CHECK = "call model.predict(train[features].head()) yourself to see the error"
FORMS: dict[str, tuple[Any, list[str]]] = {
    "an array of encoded columns": (
        clone(FOREST).fit(ENCODED.to_numpy(), BAND),
        [
            NEEDS_NUMBERS,
            f"the model was fitted on {ENCODED.shape[1]} columns, and the schema has 5 features",
            CHECK,
            "model=lambda rows: model.predict(encode(rows))",
        ],
    ),
    "encoded columns": (
        clone(FOREST).fit(ENCODED, BAND),
        ["the model wants columns that are made from 'job'", "model.predict(encode(rows))"],
    ),
    "text columns in a function": (
        lambda rows: FOREST.predict(rows.to_numpy(dtype=float)[:, :4]),
        [NEEDS_NUMBERS, "call model(train[features].head())"],
    ),
    "a threshold": (
        Thresholded(clone(LOGISTIC).fit(ENCODED.to_numpy(), GRANTED), 0.5),
        [NEEDS_NUMBERS, "call model.predict_proba(train[features].head())"],
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_model_that_wants_another_form_is_told_the_likely_cause_and_a_check(form: str) -> None:
    model, sentences = FORMS[form]
    with pytest.raises(ModelError) as caught:
        KAnonymizer().fit(PEOPLE, model, desired="opposite")
    for sentence in sentences:
        assert sentence in str(caught.value)
    assert "SENTINEL" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_of_an_array_that_fails_on_a_table_is_told_so() -> None:
    class Strict:
        n_features_in_ = 4

        def predict(self, rows: Any) -> Any:
            return LOGISTIC.predict(rows[:, :4])

    with pytest.raises(ModelError, match="was fitted on an array, and it is given a table; call"):
        KAnonymizer().fit(POPULATION, Strict(), desired=1)
