"""The adapter for dice-ml, with the real library: reading, repairs of its inputs, and results without training rows."""

from __future__ import annotations

import contextlib
import io
import pickle
import random
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from cfk_adapters import dice as adapter
from cfk_plugin.data.model import Outcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.errors import AdapterError
from cfk_plugin.hookspecs import AdaptContext, NoneFoundError
from cfk_plugin.plugins import load_plugins
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import Certificate, GeneralizedCounterfactual, Suppressed

dice_ml = pytest.importorskip("dice_ml", reason="needs the extra [dice]")

FEATURES = ["age", "income", "job", "education", "smoker"]
CONTEXT = AdaptContext(tuple(FEATURES), "approved")
METHODS = ["random", "genetic", "kdtree"]
CERTIFICATE = Certificate(
    k=5, k_desired=5, k_consistent=5, k_private=5, private_matches=5, ncp=0.1, pureness=1, pureness_low=1,
    pureness_high=1, exact=True, prosecutor_risk=0.2, optimal=True, gap=0, method="exact", guarantee="nominal",
    policy_hash="p", population="f", majority=True,
)  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 120
    return pd.DataFrame(
        {
            "age": rng.integers(20, 70, n),
            "income": np.round(rng.normal(50, 15, n), 1),
            "job": rng.choice(["clerk", "nurse", "smith"], n),
            "education": pd.Categorical(rng.choice(["low", "middle", "high"], n)),
            "smoker": rng.choice([True, False], n),
        }
    )


@pytest.fixture(scope="module")
def labels(rows: pd.DataFrame) -> pd.Series:
    return ((rows["age"] / 70 + rows["income"] / 60 + (rows["job"] == "nurse") * 0.5) > 1.6).astype(int)


@pytest.fixture(scope="module")
def explainers(rows: pd.DataFrame, labels: pd.Series) -> dict[str, Any]:
    text = rows.assign(smoker=rows["smoker"].astype(str))
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["job", "education", "smoker"]),
        (StandardScaler(), ["age", "income"]),
    )
    fitted = make_pipeline(encode, LogisticRegression()).fit(text, labels)
    data = dice_ml.Data(
        dataframe=rows.assign(approved=labels), continuous_features=["age", "income"], outcome_name="approved"
    )
    model = dice_ml.Model(model=fitted, backend="sklearn")
    return {method: dice_ml.Dice(data, model, method=method) for method in METHODS}


@pytest.fixture
def queries(rows: pd.DataFrame, labels: pd.Series) -> pd.DataFrame:
    return rows[labels == 0].head(3)


def source_of(explainer: Any) -> Any:
    return load_plugins([adapter], entry_points=False).adapt(explainer, CONTEXT)


def entries(asked: list[int], withheld: tuple[int, ...] = ()) -> Explanations:
    region = Region({"age": Interval(24, 27), "job": frozenset({"clerk", "nurse"})})
    private = {"income": 61.5, "education": "low", "smoker": True}
    return Explanations(
        [
            Suppressed(query, "infeasible")
            if i in withheld
            else GeneralizedCounterfactual(query, region, private, CERTIFICATE, outcome=Outcome(1))
            for i, query in enumerate(asked)
        ],
        policy=PrivacyPolicy(guarantee="nominal", k=5),
        columns=FEATURES,
    )


def everything_in(value: Any, seen: set[int]) -> list[Any]:
    """Return all objects reachable from one, but for modules and classes."""
    if id(value) in seen or isinstance(value, (ModuleType, type)):
        return []
    seen.add(id(value))
    parts: list[Any] = []
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set)):
        parts = list(value)
    elif hasattr(value, "__dict__"):
        parts = list(vars(value).values())
    return [value, *(found for part in parts for found in everything_in(part, seen))]


@pytest.mark.parametrize("method", METHODS)
def test_several_per_query_have_slots_and_features_in_order(
    explainers: dict[str, Any], queries: pd.DataFrame, method: str
) -> None:
    source = source_of(explainers[method])
    batch = source.generate(queries, total_CFs=2)
    assert batch.query.tolist() == [0, 0, 1, 1, 2, 2]
    assert len(batch.frame) >= 4
    assert list(batch.frame) == FEATURES
    assert batch.frame["smoker"].astype(str).isin(["True", "False"]).all()
    assert not batch.frame.isna().any(axis=None)
    assert source.instance_based == (method != "random")


def test_kdtree_answers_with_what_dice_displays(explainers: dict[str, Any], queries: pd.DataFrame) -> None:
    batch, native, _ = source_of(explainers["kdtree"]).methods["generate_counterfactuals"](queries, 2)
    shown = pd.concat([examples.final_cfs_df_sparse for examples in native.cf_examples_list], ignore_index=True)
    raw = pd.concat([examples.final_cfs_df for examples in native.cf_examples_list], ignore_index=True)
    pd.testing.assert_frame_equal(batch.frame, shown[FEATURES], check_dtype=False)
    assert not raw[FEATURES].equals(shown[FEATURES])


@pytest.mark.parametrize("method", METHODS)
def test_a_query_alone_gets_the_same_answer_as_among_others(
    explainers: dict[str, Any], queries: pd.DataFrame, method: str
) -> None:
    # One row of a `category` column knows one category only; DiCE answers with missing values then.
    alone = queries[1:2].assign(education=queries["education"][1:2].astype(str).astype("category"))
    source = source_of(explainers[method])
    among = source.generate(queries, total_CFs=2)
    expected = among.frame[among.query[among.slot] == 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(source.generate(alone, total_CFs=2).frame, expected)


@pytest.mark.parametrize("method", METHODS)
def test_order_of_columns_label_and_booleans_are_put_right(
    explainers: dict[str, Any], queries: pd.DataFrame, method: str
) -> None:
    source = source_of(explainers[method])
    expected = source.generate(queries, total_CFs=1)
    untidy = queries[FEATURES[::-1]].assign(approved=0, extra="x")
    pd.testing.assert_frame_equal(source.generate(untidy, total_CFs=1).frame, expected.frame)


@pytest.mark.parametrize("method", METHODS)
def test_explainer_random_state_and_terminal_are_untouched(
    explainers: dict[str, Any], queries: pd.DataFrame, method: str, capfd: pytest.CaptureFixture[str]
) -> None:
    explainer = explainers[method]
    before = {name: id(value) for name, value in vars(explainer).items()}
    interface = {name: id(value) for name, value in vars(explainer.data_interface).items()}
    state = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002 - what the adapter has to keep
    source = source_of(explainer)
    source.generate(queries)
    source.methods["generate_counterfactuals"](queries, 1)
    assert {name: id(value) for name, value in vars(explainer).items()} == before
    assert {name: id(value) for name, value in vars(explainer.data_interface).items()} == interface
    assert (random.getstate(), np.random.get_state()[1].tolist()) == state  # noqa: NPY002 - what the adapter has to keep
    assert capfd.readouterr().err == ""


def test_seed_given_to_dice_counts(explainers: dict[str, Any], queries: pd.DataFrame) -> None:
    source = source_of(explainers["random"])
    one, again = (source.generate(queries, total_CFs=2, random_seed=1).frame for _ in range(2))
    pd.testing.assert_frame_equal(one, again)
    assert not one.equals(source.generate(queries, total_CFs=2, random_seed=2).frame)


@pytest.mark.parametrize("method", ["random", "kdtree"])  # The genetic search returns its best, whatever it is.
def test_none_found(explainers: dict[str, Any], queries: pd.DataFrame, method: str) -> None:
    source = source_of(explainers[method])
    batch = source.generate(queries, total_CFs=2, features_to_vary=["smoker"])
    assert len(batch.frame) == 0
    assert batch.query.tolist() == [0, 0, 1, 1, 2, 2]
    with pytest.raises(NoneFoundError) as caught:
        source.methods["generate_counterfactuals"](queries, 2, features_to_vary=["smoker"])
    native = caught.value.native
    assert type(native).__name__ == "UserConfigValidationException"
    assert str(native) == "No counterfactuals found for any of the query points!"
    assert native.__context__ is None


def test_query_that_dice_cannot_take_stops_no_other(explainers: dict[str, Any], queries: pd.DataFrame) -> None:
    source = source_of(explainers["kdtree"])
    broken = queries.assign(job=["clerk", "astronaut", "nurse"], income=queries["income"].where([True, True, False]))
    assert source.generate(broken).slot.tolist() == [0]
    with pytest.raises(AdapterError, match="missing values; impute column income"):
        source.methods["generate_counterfactuals"](broken, 1)
    with pytest.raises(AdapterError, match="raised ValueError") as caught:
        source.generate(broken[1:2])
    assert "astronaut" not in str(caught.value)
    assert caught.value.__context__ is None


def test_wrong_queries_are_named(explainers: dict[str, Any], queries: pd.DataFrame) -> None:
    source = source_of(explainers["kdtree"])
    with pytest.raises(AdapterError, match="no column job"):
        source.generate(queries.drop(columns="job"))
    with pytest.raises(AdapterError, match="as a DataFrame, not as list"):
        source.methods["generate_counterfactuals"]([{"age": 1}], 1)
    with pytest.raises(AdapterError, match="does not have the feature zip"):
        load_plugins([adapter], entry_points=False).adapt(explainers["kdtree"], AdaptContext(("age", "zip")))


@pytest.mark.parametrize(
    ("method", "name", "asked"),
    [*((method, "feature_importance", 2) for method in METHODS), ("kdtree", "local_feature_importance", 10)],
)
def test_importances_are_those_of_dice(
    explainers: dict[str, Any], queries: pd.DataFrame, method: str, name: str, asked: int
) -> None:
    source = source_of(explainers[method])
    tidy = queries[:2].astype({"smoker": str, "education": object})
    state = random.getstate(), np.random.get_state()  # noqa: NPY002 - what the adapter has to keep
    with contextlib.redirect_stderr(io.StringIO()):
        expected = getattr(explainers[method], name)(tidy, total_CFs=asked)
    random.setstate(state[0])
    np.random.set_state(state[1])  # noqa: NPY002 - what the adapter has to keep
    batch, native, _ = source.methods[name](tidy, total_CFs=asked)
    rebuilt = source.restore(native, entries(batch.query.tolist()))
    assert rebuilt.summary_importance == expected.summary_importance
    assert rebuilt.local_importance == expected.local_importance
    assert rebuilt.local_importance
    assert len(batch.query) == 2 * asked
    with pytest.raises(AdapterError, match="cf_examples_list"):
        source.methods[name](tidy, cf_examples_list=rebuilt.cf_examples_list)


@pytest.mark.parametrize("method", METHODS)
def test_rebuilt_result_is_dices_own_and_works(
    explainers: dict[str, Any],
    queries: pd.DataFrame,
    method: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notebook = SimpleNamespace(display=print)  # Stands in for the notebook that DiCE shows tables in.
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=notebook))
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    source = source_of(explainers[method])
    batch, native, shown = source.methods["generate_counterfactuals"](queries, total_CFs=2)
    assert list(shown) == FEATURES
    result = source.restore(native, entries(batch.query.tolist(), withheld=(1, 4, 5)))
    assert type(result) is type(native)
    assert [None if e.final_cfs_df is None else len(e.final_cfs_df) for e in result.cf_examples_list] == [1, 2, None]
    first = result.cf_examples_list[0]
    for frame in (first.final_cfs_df, first.final_cfs_df_sparse):
        assert frame.index.tolist() == [0]
        assert frame.iloc[0].to_dict() == {
            "age": "24–27", "income": 61.5, "job": "{clerk, nurse}", "education": "low", "smoker": "True",
            "approved": 1,
        }  # fmt: skip
    for only_changes in (False, True):
        result.visualize_as_dataframe(show_only_changes=only_changes)
    result.visualize_as_list()
    assert "24–27" in capsys.readouterr().out
    again = type(result).from_json(result.to_json())
    assert again == result
    assert again.cf_examples_list[0].final_cfs_df["age"].tolist() == ["24–27"]


@pytest.mark.parametrize("method", METHODS)
def test_nothing_reachable_from_the_rebuilt_result_is_a_training_row(
    rows: pd.DataFrame, labels: pd.Series, method: str, explainers: dict[str, Any]
) -> None:
    explainer = explainers[method]
    queries = rows[labels == 0].head(2)
    source = source_of(explainer)
    batch, native, _ = source.methods["generate_counterfactuals"](queries, 3)
    result = source.restore(native, entries(batch.query.tolist()))
    raw = [frame for e in native.cf_examples_list for frame in (e.final_cfs_df, e.final_cfs_df_sparse)]
    reachable = everything_in(result, set())
    forbidden = {id(explainer.data_interface), id(explainer.data_interface.data_df), *map(id, raw)}
    assert not forbidden & set(map(id, reachable))
    tables = [value for value in reachable if isinstance(value, pd.DataFrame)]
    assert len(tables) == 6
    assert all(len(table) <= 3 and not table.attrs for table in tables)
    # Incomes are nearly unique: none but the queries' own may be in the bytes.
    content = pickle.dumps([(list(t), t.astype(str).to_numpy().tolist()) for t in tables]) + pickle.dumps(result)
    strange = set(rows["income"].astype(str)) - set(queries["income"].astype(str)) - {"61.5"}
    assert not [value for value in strange if f"{value}".encode() in content]
    for value in set(rows["income"]) - set(queries["income"]) - {61.5}:
        assert np.float64(value).tobytes() not in content
        assert np.float64(value).tobytes()[::-1] not in content
    assert len(pickle.dumps(result)) < len(pickle.dumps(native))
