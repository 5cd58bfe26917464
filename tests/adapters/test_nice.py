"""The adapter for NICE, with the real library."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from cfk_adapters import nice as adapter
from cfk_plugin.data.region import Interval
from cfk_plugin.errors import AdapterError
from cfk_plugin.hookspecs import AdaptContext
from cfk_plugin.plugins import load_plugins

nice = pytest.importorskip("nice", reason="needs `pip install --no-deps NICEx==0.2.3`")

FEATURES = ["age", "income", "job", "smoker"]
CONTEXT = AdaptContext(tuple(FEATURES), "approved")
SETTINGS = ["none", "sparsity", "proximity", "plausibility"]


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 150
    return pd.DataFrame(
        {
            "age": rng.integers(20, 70, n),
            "income": np.round(rng.normal(50, 15, n), 1),
            "job": pd.Categorical(rng.choice(["clerk", "nurse", "smith"], n)),
            "smoker": rng.choice([True, False], n),
        }
    )


@pytest.fixture(scope="module")
def labels(rows: pd.DataFrame) -> np.ndarray:
    return np.asarray((rows["age"] / 70 + rows["income"] / 60 + (rows["job"] == "nurse") * 0.5) > 1.6, dtype=int)


@pytest.fixture(scope="module")
def score(rows: pd.DataFrame, labels: np.ndarray) -> Any:
    encode = make_column_transformer((OneHotEncoder(), [2, 3]), (StandardScaler(), [0, 1]))
    return make_pipeline(encode, LogisticRegression()).fit(rows.to_numpy(dtype=object), labels).predict_proba


def build(rows: pd.DataFrame, labels: Any, score: Any, optimization: str = "sparsity", **settings: Any) -> Any:
    settings = {"y_train": labels, **settings}
    if optimization == "plausibility":
        settings["auto_encoder"] = lambda array: np.abs(array[:, 1].astype(float) - 60)
    return nice.NICE(score, rows.to_numpy(dtype=object), cat_feat=[2, 3], optimization=optimization, **settings)


def source_of(explainer: Any) -> Any:
    return load_plugins([adapter], entry_points=False).adapt(explainer, CONTEXT)


@pytest.mark.parametrize("optimization", SETTINGS)
def test_every_query_of_several_is_answered(
    rows: pd.DataFrame, labels: np.ndarray, score: Any, optimization: str
) -> None:
    explainer = build(rows, labels, score, optimization)
    queries = rows[score(rows.to_numpy(dtype=object)).argmax(axis=1) == 0].head(5)
    source = source_of(explainer)
    batch = source.generate(queries)
    assert source.instance_based
    assert source.name == f"nice:{optimization}"
    assert batch.slot.tolist() == [0, 1, 2, 3, 4]
    assert (score(batch.frame.to_numpy(dtype=object)).argmax(axis=1) == 1).all()
    one_by_one = [explainer.explain(queries.iloc[[i]].to_numpy(dtype=object)) for i in range(5)]
    assert batch.frame.to_numpy(dtype=object).tolist() == np.concatenate(one_by_one).tolist()


@pytest.mark.parametrize("optimization", SETTINGS)
def test_explainer_and_queries_are_untouched(
    rows: pd.DataFrame, labels: np.ndarray, score: Any, optimization: str
) -> None:
    explainer = build(rows, labels, score, optimization)
    queries, before = rows[:4], rows[:4].copy(deep=True)
    array = queries.to_numpy(dtype=object)
    kept = explainer.data.X_train.copy()
    state = {name: id(value) for name, value in vars(explainer.data).items()}
    source = source_of(explainer)
    source.generate(queries)
    source.methods["explain"](array)
    assert {name: id(value) for name, value in vars(explainer.data).items()} == state
    assert (explainer.data.X_train == kept).all()
    pd.testing.assert_frame_equal(queries, before)
    assert isinstance(array[0, 0], int)


def test_none_found_is_no_error(rows: pd.DataFrame, labels: np.ndarray, score: Any) -> None:
    poor = rows[labels == 0]
    explainer = build(poor, labels[labels == 0], score)
    certain = score(poor.to_numpy(dtype=object)).argmax(axis=1) == 0
    explainer = build(poor[certain], labels[labels == 0][certain], score)
    queries = pd.concat([poor[certain].head(2), rows[labels == 1].nlargest(1, "income")])
    batch = source_of(explainer).generate(queries)
    assert batch.slot.tolist() == [2]
    assert batch.query.tolist() == [0, 1, 2]


def test_target_class_may_be_an_int(rows: pd.DataFrame, labels: np.ndarray, score: Any) -> None:
    source = source_of(build(rows, labels, score))
    queries = rows[labels == 0].head(2)
    expected = source.generate(queries, target_class=[1]).frame
    pd.testing.assert_frame_equal(source.generate(queries, target_class=1).frame, expected)
    batch, _, _ = source.methods["explain"](queries.to_numpy(dtype=object), 1)
    pd.testing.assert_frame_equal(batch.frame, expected)


@pytest.mark.parametrize("y_train", [None, "text"])
def test_misuse_that_looks_like_none_found_is_named(
    rows: pd.DataFrame, labels: np.ndarray, score: Any, y_train: str | None
) -> None:
    wrong = None if y_train is None else np.where(labels == 1, "yes", "no")
    with pytest.raises(AdapterError, match="justified_cf=True needs y_train"):
        source_of(build(rows, wrong, score))


def test_wrong_shapes_are_named(rows: pd.DataFrame, labels: np.ndarray, score: Any) -> None:
    explainer = build(rows, labels, score)
    with pytest.raises(AdapterError, match="4 columns and the schema has 1"):
        load_plugins([adapter], entry_points=False).adapt(explainer, AdaptContext(("age",)))
    source = source_of(explainer)
    with pytest.raises(AdapterError, match="no column job"):
        source.generate(rows.drop(columns="job"))
    with pytest.raises(AdapterError, match="4 columns, not of shape"):
        source.methods["explain"](np.zeros((1, 3)))


def test_error_of_the_model_loses_its_text(rows: pd.DataFrame, labels: np.ndarray, score: Any) -> None:
    calls = []

    def moody(array: np.ndarray) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError(str(array[0]))
        return score(array)

    with pytest.raises(AdapterError, match="raised RuntimeError") as caught:
        source_of(build(rows, labels, moody)).generate(rows[:1])
    assert caught.value.__context__ is None


def test_restored_answer_is_an_array_of_cells(rows: pd.DataFrame, labels: np.ndarray, score: Any) -> None:
    source = source_of(build(rows, labels, score))
    _, native, queries = source.methods["explain"](rows[labels == 0].head(2).to_numpy(dtype=object))
    assert native is None
    assert list(queries) == FEATURES
    assert queries["age"].dtype.kind == "i"
    cells = {"age": "20–30", "income": "61.5", "job": "{clerk, nurse}", "smoker": "True"}
    parts = {"age": Interval(20, 30), "income": Interval(61.5, 61.5), "smoker": frozenset([True])}
    released = SimpleNamespace(status="released", cells=lambda: cells, parts=lambda: parts)
    answer = source.restore(native, [released, SimpleNamespace(status="suppressed")])
    assert answer.dtype == object
    assert answer.tolist() == [["20–30", 61.5, "{clerk, nurse}", True], [None] * 4]
