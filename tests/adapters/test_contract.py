"""The contract of `cfk_plugin.testing`, kept by every adapter with the real library behind it; and its rules bite."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from cfk_adapters import dice, function, nearest, nice
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin.hookspecs import CounterfactualBatch, hookimpl
from cfk_plugin.testing import check_adapter, check_candidates

ADAPTERS = [dice, nice, nearest, function]
FEATURES = ["age", "income", "job", "education", "smoker"]
CATEGORIES = ["job", "education", "smoker"]


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    n = 120
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 70, n),
            "income": np.round(rng.normal(50, 15, n), 1),
            "job": rng.choice(["clerk", "nurse", "smith"], n),
            "education": pd.Categorical(rng.choice(["low", "middle", "high"], n)),
            "smoker": rng.choice([True, False], n),
        }
    )
    return frame.assign(approved=(frame["age"] / 70 + frame["income"] / 60 > 1.5).astype(int))


@pytest.fixture
def queries(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.loc[rows["approved"] == 0, FEATURES].head(3)


@pytest.fixture(scope="module")
def model(rows: pd.DataFrame) -> Any:
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), CATEGORIES), (StandardScaler(), ["age", "income"])
    )
    text = rows[FEATURES].astype(dict.fromkeys(CATEGORIES, str))
    return make_pipeline(encode, LogisticRegression()).fit(text, rows["approved"])


@pytest.mark.parametrize("method", ["random", "genetic", "kdtree"])
def test_dice(rows: pd.DataFrame, queries: pd.DataFrame, model: Any, method: str) -> None:
    dice_ml = pytest.importorskip("dice_ml", reason="needs the extra [dice]")
    data = dice_ml.Data(dataframe=rows, continuous_features=["age", "income"], outcome_name="approved")
    explainer = dice_ml.Dice(data, dice_ml.Model(model=model, backend="sklearn"), method=method)
    ten = pd.concat([queries] * 4, ignore_index=True).head(10)  # the fewest that DiCE takes
    short: dict[str, Any] = {"total_CFs": 10, **({"maxiterations": 2} if method == "genetic" else {})}
    arguments: dict[str, Any] = {
        "local_feature_importance": ([queries[:1]], short),
        "feature_importance": ([queries[:1]], {**short, "global_importance": False}),
        "global_feature_importance": ([ten], {**short, "posthoc_sparsity_param": None}),
    }
    batch = check_adapter(
        explainer,
        queries,
        FEATURES,
        "approved",
        plugins=ADAPTERS,
        deterministic=True,
        arguments=arguments,
        rows=rows[FEATURES],
        total_CFs=2,
    )
    assert len(batch.frame)
    ranked = check_candidates(explainer, queries, FEATURES, "approved", plugins=ADAPTERS)
    assert len(ranked.frame) > len(queries)


@pytest.mark.parametrize("optimization", ["none", "sparsity", "proximity", "plausibility"])
def test_nice(rows: pd.DataFrame, queries: pd.DataFrame, model: Any, optimization: str) -> None:
    library = pytest.importorskip("nice", reason="needs `pip install --no-deps NICEx==0.2.3`")

    def score(array: np.ndarray) -> np.ndarray:
        frame = pd.DataFrame(array, columns=FEATURES).astype(dict.fromkeys(CATEGORIES, str))
        return model.predict_proba(frame.astype({"age": float, "income": float}))

    explainer = library.NICE(
        score,
        rows[FEATURES].to_numpy(dtype=object),
        cat_feat=[2, 3, 4],
        y_train=rows["approved"].to_numpy(),
        optimization=optimization,
        auto_encoder=lambda array: np.abs(array[:, 1].astype(float) - 60),
    )
    batch = check_adapter(explainer, queries, FEATURES, "approved", plugins=ADAPTERS, deterministic=True)
    assert len(batch.frame) == 3


def test_nearest(rows: pd.DataFrame, queries: pd.DataFrame, model: Any) -> None:
    def label(frame: pd.DataFrame) -> Any:
        return model.predict(frame.astype(dict.fromkeys(CATEGORIES, str)))

    explainer = NearestUnlikeNeighbour(rows, label, features=FEATURES)
    check_adapter(explainer, queries, FEATURES, "approved", plugins=ADAPTERS, deterministic=True)
    assert len(check_candidates(explainer, queries, FEATURES, "approved", plugins=ADAPTERS).frame) == 9


def richer(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(income=frame["income"] + np.random.random(len(frame)) * random.random())  # noqa: NPY002 - what the adapter has to keep


@pytest.mark.parametrize(
    "explainer", [richer, SimpleNamespace(explain=richer), SimpleNamespace(generate_counterfactuals=richer)]
)
def test_function(queries: pd.DataFrame, explainer: Any) -> None:
    check_adapter(explainer, queries, FEATURES, "approved", plugins=ADAPTERS, deterministic=True)


def test_candidates_that_are_missing_or_too_few_are_named(queries: pd.DataFrame) -> None:
    with pytest.raises(AssertionError, match="is missing"):
        check_candidates(richer, queries, FEATURES, plugins=ADAPTERS)

    class One(Careless):
        def candidates(self, queries: pd.DataFrame, m: int) -> CounterfactualBatch:
            return self.generate(queries)

    with pytest.raises(AssertionError, match="m slots"):
        check_candidates(object(), queries, FEATURES, plugins=[One(lambda *_: None)])
    check_candidates(object(), queries, FEATURES, m=1, plugins=[One(lambda *_: None)])


class Careless:
    """An adapter that breaks the rule a test asks it to break."""

    name, instance_based = "careless", False

    def __init__(self, act: Callable[[pd.DataFrame, Any], CounterfactualBatch | None]) -> None:
        self.act = act
        self.methods: dict[str, Any] = {}

    @hookimpl
    def cfk_adapt(self, explainer: Any) -> Careless:
        self.explainer = explainer
        return self

    def restore(self, native: Any, explanations: Any) -> None: ...

    def generate(self, queries: pd.DataFrame) -> CounterfactualBatch:
        done = self.act(queries, self.explainer)
        if isinstance(done, CounterfactualBatch):
            return done
        return CounterfactualBatch.one_each(queries[FEATURES], np.ones(len(queries), dtype=bool))


def none_for_the_last(queries: pd.DataFrame, _: Any) -> CounterfactualBatch:
    return CounterfactualBatch(queries[:1], np.array([0]), np.array([0, 1]))


def unordered(queries: pd.DataFrame, _: Any) -> CounterfactualBatch:
    return CounterfactualBatch(queries, np.arange(3), np.array([2, 1, 0]))


def labelled(queries: pd.DataFrame, _: Any) -> CounterfactualBatch:
    return CounterfactualBatch.one_each(queries.assign(approved=1), np.ones(3, dtype=bool))


def drawn(queries: pd.DataFrame, _: Any) -> CounterfactualBatch:
    ages = np.random.default_rng().random(len(queries))
    return CounterfactualBatch.one_each(queries.assign(age=ages), np.ones(3, dtype=bool))


@pytest.mark.parametrize(
    ("act", "rule"),
    [
        (lambda queries, _: queries.insert(0, "new", 1), "queries were changed"),
        (lambda queries, _: queries.__setitem__("age", queries["age"].astype(float)), "queries were changed|dtypes"),
        (lambda _, explainer: setattr(explainer, "last", 1), "gained or lost attributes"),
        (lambda _, explainer: explainer.kept.append(1), "content was changed"),
        (lambda *_: random.random() and None, "random state"),
        (lambda *_: np.random.random() and None, "random state"),  # noqa: NPY002 - what the adapter has to keep
        (none_for_the_last, "name each query"),
        (unordered, "order of the queries"),
        (labelled, "exactly the features"),
        (drawn, "another answer"),
    ],
)
def test_a_careless_adapter_is_told_the_rule_it_breaks(queries: pd.DataFrame, act: Any, rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_adapter(SimpleNamespace(kept=[]), queries, FEATURES, plugins=[Careless(act)], deterministic=True)


def test_a_repr_with_a_value_is_found(queries: pd.DataFrame) -> None:
    class Talkative(Careless):
        def __repr__(self) -> str:
            return f"Talkative({queries['job'].iloc[0]})"

    with pytest.raises(AssertionError, match="repr shows a value") as caught:
        check_adapter(SimpleNamespace(), queries, FEATURES, plugins=[Talkative(lambda *_: None)])
    assert queries["job"].iloc[0] not in str(caught.value)
