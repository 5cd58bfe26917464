"""The calls of DiCE's notebooks, on a table whose outcomes are text, with a protected explainer.

The notebooks are those of DiCE's documentation: getting started, model-agnostic counterfactuals,
several classes and regression, feature importances. Each test is one of their cells.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from cfk_plugin import Population, PrivacyPolicy, Schema, protect
from cfk_plugin.errors import AdapterError, InputError

dice_ml = pytest.importorskip("dice_ml", reason="needs the extra [dice]")
pytest.importorskip("IPython", reason="needs IPython, of the extra [dev]: DiCE shows tables by it")

FEATURES = ["age", "hours", "education", "gender"]
NUMBERS = ["age", "hours"]
PATHS: dict[str, dict[str, Any]] = {
    "catalogue": {"policy": PrivacyPolicy(k=5)},
    "lookup": {"policy": PrivacyPolicy(k=5, guarantee="lookup")},
}


def _adults(n: int) -> pd.DataFrame:
    draws = np.random.default_rng(3)
    rows = pd.DataFrame(
        {
            "age": draws.integers(18, 70, n),
            "hours": np.round(draws.normal(40, 9, n), 1),
            "education": draws.choice(["School", "Bachelors", "Doctorate"], n),
            "gender": draws.choice(["Female", "Male"], n),
        }
    )
    points = rows["age"] / 3 + rows["hours"] + 8 * (rows["education"] == "Doctorate")
    return rows.assign(
        income=np.where(points > points.median(), ">50K", "<=50K"),
        band=np.select([points < 50, points < 60], ["low", "middle"], "high"),
        points=points,
    )


ROWS = _adults(240)


def fitted(model: Any, target: str) -> Any:
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["education", "gender"]),
        remainder="passthrough",
    )
    return make_pipeline(encoder, model).fit(ROWS[FEATURES], ROWS[target])


INCOME = fitted(LogisticRegression(max_iter=2_000), "income")
BAND = fitted(RandomForestClassifier(20, random_state=0), "band")
POINTS = fitted(RandomForestRegressor(20, random_state=0), "points")
POOR = ROWS.loc[INCOME.predict(ROWS[FEATURES]) == "<=50K", FEATURES]
QUERIES = POOR.head(2)


def dice_of(model: Any, target: str, method: str, kind: str = "classifier") -> Any:
    data = dice_ml.Data(
        dataframe=ROWS[[*FEATURES, target]], continuous_features=NUMBERS, outcome_name=target
    )
    backend = dice_ml.Model(model=model, backend="sklearn", model_type=kind)
    return dice_ml.Dice(data, backend, method=method)


def protected(explainer: Any, model: Any, target: str, **settings: Any) -> Any:
    table = ROWS[[*FEATURES, target]]
    schema = Schema.from_frame(table, quasi_identifiers=["age", "gender"], target=target)
    population = Population.from_frame(table, schema)
    return protect(
        explainer,
        **{"model": model, "population": population, **settings},
    )


@pytest.fixture(autouse=True)
def _drawn_alike() -> None:
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - DiCE draws from it


@pytest.fixture(scope="module", params=[("random", "catalogue"), ("kdtree", "lookup")], ids=str)
def made(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """DiCE itself and the same explainer, protected."""
    method, path = request.param
    explainer = dice_of(INCOME, "income", method)
    return explainer, protected(explainer, INCOME, "income", **PATHS[path])


@pytest.fixture(scope="module")
def exp() -> Any:
    """The explainer of most cells: protected as a newcomer protects it."""
    explainer = dice_of(INCOME, "income", "random")
    return protected(explainer, INCOME, "income", policy=PrivacyPolicy(k=5))


# --- outcomes -------------------------------------------------------------------------------------


def test_result_has_dtypes_of_dice(made: tuple[Any, Any]) -> None:
    """Its outcomes are DiCE's, too: its tables look like those without protection."""
    results = [
        explainer.generate_counterfactuals(QUERIES, total_CFs=2, desired_class="opposite")
        for explainer in made
    ]
    n_answers = 0
    for plain, own in zip(*(result.cf_examples_list for result in results), strict=True):
        assert own.test_instance_df["income"].tolist() == ["<=50K"]
        assert own.test_instance_df.dtypes.to_dict() == plain.test_instance_df.dtypes.to_dict()
        assert (own.test_pred, own.new_outcome) == (plain.test_pred, plain.new_outcome)
        if own.final_cfs_df is None:
            continue
        n_answers += len(own.final_cfs_df)
        for frame in (own.final_cfs_df, own.final_cfs_df_sparse):
            assert set(frame["income"]) == {">50K"}
            assert frame["income"].dtype == plain.final_cfs_df["income"].dtype
            assert frame["education"].dtype == plain.final_cfs_df["education"].dtype
    assert n_answers > 0


@pytest.mark.parametrize("desired", [np.str_(">50K"), np.int64(1)], ids=repr)
def test_outcome_is_label_or_position(made: tuple[Any, Any], desired: Any) -> None:
    """DiCE takes both."""
    private = made[1]
    result = private.generate_counterfactuals(QUERIES[:1], total_CFs=1, desired_class=desired)
    assert {examples.new_outcome for examples in result.cf_examples_list} == {">50K"}
    answers = private.explain(QUERIES, desired_class=desired).generalized
    assert {str(entry.outcome) for entry in answers} == {">50K"}


def test_unknown_outcome_is_refused(made: tuple[Any, Any]) -> None:
    """The message names the outcomes of the model."""
    private = made[1]
    with pytest.raises(InputError, match=r"model's labels \('<=50K', '>50K'\)"):
        private.generate_counterfactuals(QUERIES, total_CFs=1, desired_class="rich")
    with pytest.raises(AdapterError, match="position of a class: 0 for '<=50K', 1 for '>50K'"):
        private.generate_counterfactuals(QUERIES, total_CFs=1, desired_class=2)


class Unlisted:
    """A model that does not say which classes it has, as those of Keras do."""

    def predict_proba(self, rows: pd.DataFrame) -> Any:
        return INCOME.predict_proba(rows)

    def predict(self, rows: pd.DataFrame) -> Any:
        return INCOME.predict_proba(rows).argmax(axis=1)


@pytest.mark.parametrize(("path", "desired"), [("catalogue", 1), ("lookup", ">50K")])
def test_labels_are_text_for_unlisted_classes(path: str, desired: Any) -> None:
    """DiCE itself knows positions only."""
    explainer = dice_of(Unlisted(), "income", "random")
    private = protected(explainer, INCOME, "income", **PATHS[path])
    result = private.generate_counterfactuals(QUERIES, total_CFs=2, desired_class=desired)
    result.visualize_as_dataframe(show_only_changes=True)
    for examples in result.cf_examples_list:
        assert (examples.test_pred, examples.new_outcome) == ("<=50K", ">50K")
        assert examples.final_cfs_df is None or set(examples.final_cfs_df["income"]) == {">50K"}


def test_opposite_of_several_is_in_words() -> None:
    """The catalogue answers with any other class; DiCE itself refuses it."""
    explainer = dice_of(BAND, "band", "random")
    private = protected(explainer, BAND, "band", **PATHS["catalogue"])
    queries = ROWS.loc[BAND.predict(ROWS[FEATURES]) == "low", FEATURES].head(2)
    result = private.generate_counterfactuals(queries, total_CFs=1)
    assert {examples.new_outcome for examples in result.cf_examples_list} == {"not low"}
    lookup = protected(explainer, BAND, "band", **PATHS["lookup"])
    with pytest.raises(AdapterError, match="raised UserConfigValidationException"):
        lookup.generate_counterfactuals(queries, total_CFs=1)


def test_result_is_shown_in_every_way(
    made: tuple[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """As a table or a list, sparse or not; dashes stand for what does not change if asked for."""
    result = made[1].generate_counterfactuals(QUERIES, total_CFs=2, desired_class="opposite")
    for is_sparse, is_short in itertools.product([False, True], repeat=2):
        options = {"show_only_changes": is_short, "display_sparse_df": is_sparse}
        capsys.readouterr()
        result.visualize_as_dataframe(**options)
        lines = capsys.readouterr().out.splitlines()
        assert "Query instance (original outcome : <=50K)" in lines
        result.visualize_as_list(**options)
        lines = capsys.readouterr().out.splitlines()
        rows = [line for line in lines if line.startswith("[") and "'>50K'" in line]
        assert any("–" in row for row in rows)
        assert all(("'-'" in row) == is_short for row in rows)


# --- Getting started ------------------------------------------------------------------------------


def test_permitted_range_restricts_categories(exp: Any) -> None:
    """Answers have a permitted category, or the query's own."""
    e3 = exp.generate_counterfactuals(
        QUERIES[0:1],
        total_CFs=2,
        desired_class="opposite",
        permitted_range={"hours": [40, 70], "education": ["Doctorate", "Bachelors"]},
    )
    e3.visualize_as_dataframe(show_only_changes=True)
    for examples in e3.cf_examples_list:
        if examples.final_cfs_df is not None:
            permitted = {"Doctorate", "Bachelors", QUERIES["education"].iloc[0]}
            assert set(examples.final_cfs_df["education"]) <= permitted


def test_local_importance_names_every_feature(exp: Any) -> None:
    """One importance per feature."""
    imp = exp.local_feature_importance(QUERIES[0:1], total_CFs=10)
    assert set(imp.local_importance[0]) == {*FEATURES}


# --- Several classes, and regression --------------------------------------------------------------


@pytest.mark.parametrize(("path", "desired"), [("catalogue", 0), ("lookup", "high")])
def test_class_of_several_is_reached(
    path: str, desired: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Position 0 is the class high."""
    explainer = dice_of(BAND, "band", "genetic")
    private = protected(explainer, BAND, "band", **PATHS[path])
    queries = ROWS.loc[BAND.predict(ROWS[FEATURES]) == "low", FEATURES]
    result = private.generate_counterfactuals(queries[2:4], total_CFs=2, desired_class=desired)
    result.visualize_as_dataframe(show_only_changes=True)
    assert "original outcome : low" in capsys.readouterr().out
    assert {examples.new_outcome for examples in result.cf_examples_list} == {"high"}


@pytest.mark.parametrize("path", PATHS)
def test_range_of_numbers_is_reached(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A regression has a desired range."""
    explainer = dice_of(POINTS, "points", "random", "regressor")
    private = protected(explainer, POINTS, "points", desired=(58, 75), **PATHS[path])
    queries = ROWS.loc[POINTS.predict(ROWS[FEATURES]) < 50, FEATURES]
    result = private.generate_counterfactuals(queries[:2], total_CFs=2, desired_range=[58.0, 75.0])
    result.visualize_as_dataframe(show_only_changes=True)
    assert "new outcome: [58.0, 75.0]" in capsys.readouterr().out
    result.visualize_as_list(show_only_changes=True)
    assert type(result).from_json(result.to_json()) == result


# --- Feature importances, and what is stored ------------------------------------------------------


def test_stored_importance_is_read(exp: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Local and global ones are equal to those before, and the examples can be shown."""
    cobj = exp.global_feature_importance(POOR[0:10], total_CFs=10, posthoc_sparsity_param=None)
    assert set(cobj.summary_importance) == {*FEATURES}
    text = cobj.to_json()
    assert ">50K" in text
    read = cobj.from_json(text)
    for examples in read.cf_examples_list:
        examples.visualize_as_dataframe(show_only_changes=True)
    assert "original outcome : <=50K" in capsys.readouterr().out
    assert read.to_json() == text
    assert read.local_importance == cobj.local_importance
    assert read.summary_importance == cobj.summary_importance
