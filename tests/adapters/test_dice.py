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

from applicants import DICE, FEATURES, QUERIES, ROWS, dice_of
from cfk_adapters import dice as adapter
from cfk_plugin.data.model import Outcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.errors import AdapterError
from cfk_plugin.hookspecs import AdaptContext, NoneFoundError
from cfk_plugin.plugins import load_plugins
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import Certificate, GeneralizedCounterfactual, Suppressed

CONTEXT = AdaptContext(tuple(FEATURES), "approved")
CERTIFICATE = Certificate(
    k=5, k_desired=5, k_consistent=5, k_private=5, private_matches=5, ncp=0.1, pureness=1, pureness_low=1,
    pureness_high=1, exact=True, prosecutor_risk=0.2, optimal=True, gap=0, method="exact", guarantee="nominal",
    policy_hash="p", population="f", majority=True,
)  # fmt: skip


@pytest.fixture(scope="module")
def explainers() -> dict[str, Any]:
    return {method: dice_of(method) for method in DICE}


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


def test_kdtree_answers_with_what_dice_displays(explainers: dict[str, Any]) -> None:
    batch, native, _ = source_of(explainers["kdtree"]).methods["generate_counterfactuals"](QUERIES, 2)
    shown = pd.concat([examples.final_cfs_df_sparse for examples in native.cf_examples_list], ignore_index=True)
    raw = pd.concat([examples.final_cfs_df for examples in native.cf_examples_list], ignore_index=True)
    pd.testing.assert_frame_equal(batch.frame, shown[FEATURES], check_dtype=False)
    assert not raw[FEATURES].equals(shown[FEATURES])


@pytest.mark.parametrize("method", DICE)
def test_answers_depend_on_no_other_query_and_on_no_order_of_columns_and_the_terminal_stays_empty(
    explainers: dict[str, Any], method: str, capfd: pytest.CaptureFixture[str]
) -> None:
    source = source_of(explainers[method])
    assert source.instance_based == (method != "random")
    among = source.generate(QUERIES, total_CFs=2)
    assert among.query.tolist() == [0, 0, 1, 1, 2, 2]
    assert among.frame["smoker"].astype(str).isin(["True", "False"]).all()
    assert not among.frame.isna().any(axis=None)
    # One row of a `category` column knows one category only; DiCE answers with missing values then.
    alone = QUERIES[1:2].assign(education=QUERIES["education"][1:2].astype(str).astype("category"))
    untidy = alone[FEATURES[::-1]].assign(approved=0, extra="x")
    expected = among.frame[among.query[among.slot] == 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(source.generate(untidy, total_CFs=2).frame, expected)
    assert capfd.readouterr().err == ""


def test_seed_given_to_dice_counts(explainers: dict[str, Any]) -> None:
    source = source_of(explainers["random"])
    one, again = (source.generate(QUERIES, total_CFs=2, random_seed=1).frame for _ in range(2))
    pd.testing.assert_frame_equal(one, again)
    assert not one.equals(source.generate(QUERIES, total_CFs=2, random_seed=2).frame)


@pytest.mark.parametrize("method", ["random", "kdtree"])  # The genetic search returns its best, whatever it is.
def test_none_found(explainers: dict[str, Any], method: str) -> None:
    source = source_of(explainers[method])
    batch = source.generate(QUERIES, total_CFs=2, features_to_vary=["smoker"])
    assert len(batch.frame) == 0
    assert batch.query.tolist() == [0, 0, 1, 1, 2, 2]
    with pytest.raises(NoneFoundError) as caught:
        source.methods["generate_counterfactuals"](QUERIES, 2, features_to_vary=["smoker"])
    native = caught.value.native
    assert type(native).__name__ == "UserConfigValidationException"
    assert str(native) == "No counterfactuals found for any of the query points!"
    assert native.__context__ is None


def test_query_that_dice_cannot_take_stops_no_other(explainers: dict[str, Any]) -> None:
    source = source_of(explainers["kdtree"])
    broken = QUERIES.assign(job=["clerk", "astronaut", "nurse"], income=QUERIES["income"].where([True, True, False]))
    assert source.generate(broken).slot.tolist() == [0]
    with pytest.raises(AdapterError, match="missing values; impute column income"):
        source.methods["generate_counterfactuals"](broken, 1)
    with pytest.raises(AdapterError, match="raised ValueError") as caught:
        source.generate(broken[1:2])
    assert "astronaut" not in str(caught.value)
    assert caught.value.__context__ is None


def test_wrong_queries_are_named(explainers: dict[str, Any]) -> None:
    source = source_of(explainers["kdtree"])
    with pytest.raises(AdapterError, match="no column job"):
        source.generate(QUERIES.drop(columns="job"))
    with pytest.raises(AdapterError, match="as a DataFrame, not as list"):
        source.methods["generate_counterfactuals"]([{"age": 1}], 1)
    with pytest.raises(AdapterError, match="does not have the feature zip"):
        load_plugins([adapter], entry_points=False).adapt(explainers["kdtree"], AdaptContext(("age", "zip")))


@pytest.mark.parametrize(
    ("method", "name", "asked"),
    [("random", "feature_importance", 2), ("kdtree", "local_feature_importance", 10)],
)
def test_importances_are_those_of_dice(explainers: dict[str, Any], method: str, name: str, asked: int) -> None:
    source = source_of(explainers[method])
    tidy = QUERIES[:2].astype({"smoker": str, "education": object})
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


@pytest.mark.parametrize("method", DICE)
def test_rebuilt_result_is_dices_own_and_works(
    explainers: dict[str, Any],
    method: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notebook = SimpleNamespace(display=print)  # Stands in for the notebook that DiCE shows tables in.
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=notebook))
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    source = source_of(explainers[method])
    batch, native, shown = source.methods["generate_counterfactuals"](QUERIES, total_CFs=2)
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


@pytest.mark.parametrize("method", DICE)
def test_nothing_reachable_from_the_rebuilt_result_is_a_training_row(method: str, explainers: dict[str, Any]) -> None:
    explainer, queries = explainers[method], QUERIES.head(2)
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
    # Incomes are nearly unique: none but the QUERIES' own may be in the bytes.
    content = pickle.dumps([(list(t), t.astype(str).to_numpy().tolist()) for t in tables]) + pickle.dumps(result)
    strange = set(ROWS["income"].astype(str)) - set(queries["income"].astype(str)) - {"61.5"}
    assert not [value for value in strange if f"{value}".encode() in content]
    for value in set(ROWS["income"]) - set(queries["income"]) - {61.5}:
        assert np.float64(value).tobytes() not in content
        assert np.float64(value).tobytes()[::-1] not in content
    assert len(pickle.dumps(result)) < len(pickle.dumps(native))
