"""The adapter for dice-ml, with the real library."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from applicants import CATEGORIES, DICE, FEATURES, QUERIES, ROWS, dice_of, label
from cfk_adapters import dice as adapter
from cfk_plugin import Population, Schema, protect
from cfk_plugin.adapting import ExplainerError, NoneFoundError
from cfk_plugin.data.outcome import Outcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.errors import AdapterError, NotForwardedError
from cfk_plugin.hookspecs import AdaptContext
from cfk_plugin.plugins import load_plugins
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import (
    Certificate,
    GeneralizedCounterfactual,
    RegionRecount,
    Withheld,
)

CONTEXT = AdaptContext(tuple(FEATURES), "approved")
CERTIFICATE = Certificate(
    k=5, ncp=0.1, pureness=1, pureness_low=1, pureness_high=1, exact=True, optimal=True, gap=0, method="exact",
    guarantee="lookup", not_stopped=(), policy_hash="p", population="f",
)  # fmt: skip
RECOUNT = RegionRecount(
    k=5, ncp=0.1, pureness=1, pureness_low=1, pureness_high=1, k_desired=5, k_consistent=5, k_private=5,
    private_matches=5, majority=True,
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
            Withheld(query, "infeasible")
            if i in withheld
            else GeneralizedCounterfactual(
                query, region, private, CERTIFICATE, RECOUNT, outcome=Outcome(1)
            )
            for i, query in enumerate(asked)
        ],
        policy=PrivacyPolicy(guarantee="lookup", k=5),
        columns=FEATURES,
    )


def test_kdtree_answers_with_what_dice_displays(explainers: dict[str, Any]) -> None:
    """DiCE displays the sparse table."""
    batch, native, _ = source_of(explainers["kdtree"]).methods["generate_counterfactuals"](
        QUERIES, 2
    )
    shown = pd.concat(
        [examples.final_cfs_df_sparse for examples in native.cf_examples_list], ignore_index=True
    )
    raw = pd.concat(
        [examples.final_cfs_df for examples in native.cf_examples_list], ignore_index=True
    )
    pd.testing.assert_frame_equal(batch.frame, shown[FEATURES], check_dtype=False)
    assert not raw[FEATURES].equals(shown[FEATURES])


@pytest.mark.parametrize("method", DICE)
def test_answers_depend_on_their_query_only(
    explainers: dict[str, Any], method: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither other queries count nor the order of columns, and the terminal stays empty."""
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
    """Two calls with one seed agree; another seed gives others."""
    source = source_of(explainers["random"])
    frames = [
        source.generate(QUERIES[:1], total_CFs=2, random_seed=seed, sample_size=200).frame
        for seed in (1, 1, 2)
    ]
    pd.testing.assert_frame_equal(frames[0], frames[1])
    assert not frames[0].equals(frames[2])


# The genetic search returns its best, whatever it is.
@pytest.mark.parametrize("method", ["random", "kdtree"])
def test_no_counterfactual_is_none_found(explainers: dict[str, Any], method: str) -> None:
    """DiCE's own exception is passed on."""
    source = source_of(explainers[method])
    batch = source.generate(QUERIES, total_CFs=2, features_to_vary=["smoker"])
    assert len(batch.frame) == 0
    assert batch.query.tolist() == [0, 0, 1, 1, 2, 2]
    with pytest.raises(NoneFoundError) as caught:
        source.methods["generate_counterfactuals"](QUERIES, 2, features_to_vary=["smoker"])
    native = caught.value.native
    assert type(native).__name__ == "UserConfigValidationException"
    assert str(native) == "No counterfactuals found for any of the query points!"


def test_unreadable_query_stops_no_other(explainers: dict[str, Any]) -> None:
    """DiCE takes no unknown category and no missing value."""
    source = source_of(explainers["kdtree"])
    broken = QUERIES.assign(
        job=["clerk", "astronaut", "nurse"], income=QUERIES["income"].where([True, True, False])
    )
    assert source.generate(broken).slot.tolist() == [0]
    with pytest.raises(AdapterError, match="missing values; impute column income"):
        source.methods["generate_counterfactuals"](broken, 1)
    with pytest.raises(AdapterError, match="probably because a query has a category") as caught:
        source.generate(broken[1:2])
    assert "astronaut" not in str(caught.value)


def test_error_of_dice_is_the_cause(explainers: dict[str, Any]) -> None:
    """It says what was wrong with the call."""
    source = source_of(explainers["random"])
    for call in (source.methods["generate_counterfactuals"], source.generate):
        with pytest.raises(ExplainerError, match="UserConfigValidationException") as caught:
            call(QUERIES, total_CFs=0)
        assert "total_CFs" in str(caught.value.__cause__)


def test_wrong_queries_are_named(explainers: dict[str, Any]) -> None:
    """A missing column, another type, and a feature that DiCE does not know."""
    source = source_of(explainers["kdtree"])
    with pytest.raises(AdapterError, match="no column job"):
        source.generate(QUERIES.drop(columns="job"))
    with pytest.raises(AdapterError, match="as a DataFrame, not as list"):
        source.methods["generate_counterfactuals"]([{"age": 1}], 1)
    with pytest.raises(AdapterError, match="lacks the feature zip"):
        load_plugins([adapter], entry_points=False).adapt(
            explainers["kdtree"], AdaptContext(("age", "zip"))
        )


@pytest.mark.parametrize(
    ("method", "name", "asked"),
    [("random", "feature_importance", 2), ("kdtree", "local_feature_importance", 10)],
)
def test_importances_are_of_released_explanations(
    explainers: dict[str, Any], method: str, name: str, asked: int
) -> None:
    """A withheld explanation does not count, and the value of 61.5 is no query's."""
    source = source_of(explainers[method])
    batch, native, _ = source.methods[name](QUERIES[:2], total_CFs=asked)
    rebuilt = source.restore(native, entries(batch.query.tolist(), withheld=(0,)))
    assert [importance["income"] for importance in rebuilt.local_importance] == [1, 1]
    changes_job = [int(job == "smith") for job in QUERIES["job"][:2]]
    assert [importance["job"] for importance in rebuilt.local_importance] == changes_job
    has_overall = native.summary_importance is not None
    assert (rebuilt.summary_importance is not None) == has_overall
    assert type(rebuilt).from_json(rebuilt.to_json()).local_importance == rebuilt.local_importance
    assert len(batch.query) == 2 * asked
    with pytest.raises(AdapterError, match="cf_examples_list"):
        source.methods[name](QUERIES[:2], cf_examples_list=rebuilt.cf_examples_list)


@pytest.mark.parametrize(
    ("codes", "guarantee"),
    [
        ((1.0, 2.0), "lookup"),
        ((False, True), "catalogue"),
        (("1.0", "2.0"), "lookup"),
        (("f", "m"), "catalogue"),
    ],
)
def test_immutable_feature_has_no_importance(codes: tuple[Any, Any], guarantee: str) -> None:
    """In every type of the column: a region may lie elsewhere, but no one is told to change it."""
    dice_ml = pytest.importorskip("dice_ml", reason="needs the extra [dice]")
    draws = np.random.default_rng(1)
    code = draws.integers(0, 2, 200)
    rows = pd.DataFrame(
        {
            "sex": pd.Series(codes).take(code).to_numpy(),
            "age": draws.integers(20, 60, 200),
            "income": draws.integers(10, 55, 200) + 30 * code,
        }
    )
    granted = rows["income"] > 50
    model = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["sex"]), (StandardScaler(), ["age", "income"])),
        LogisticRegression(),
    ).fit(rows.astype({"sex": str}), granted)

    def label(people: pd.DataFrame) -> Any:
        return model.predict(people.astype({"sex": str}))

    schema = Schema.from_frame(
        rows, quasi_identifiers=["sex", "age"], nominal=["sex"], immutable=["sex"]
    )
    data = dice_ml.Data(
        dataframe=rows.assign(granted=granted),
        continuous_features=["age", "income"],
        outcome_name="granted",
    )
    private = protect(
        dice_ml.Dice(data, dice_ml.Model(model=model, backend="sklearn"), method="random"),
        model=label,
        population=Population.from_frame(rows, schema),
        policy=PrivacyPolicy(k=5, guarantee=guarantee),
        desired=True,
    )
    refused = rows[~label(rows)].head(2)
    result = private.local_feature_importance(refused, total_CFs=10, posthoc_sparsity_param=None)
    assert [importance["sex"] for importance in result.local_importance] == [0] * len(refused)
    assert max(importance["income"] for importance in result.local_importance) > 0


@pytest.mark.parametrize("method", DICE)
def test_rebuilt_result_has_released_explanations(explainers: dict[str, Any], method: str) -> None:
    """It is DiCE's own, without the withheld ones."""
    source = source_of(explainers[method])
    batch, native, shown = source.methods["generate_counterfactuals"](QUERIES, total_CFs=2)
    assert list(shown) == FEATURES
    result = source.restore(native, entries(batch.query.tolist(), withheld=(1, 4, 5)))
    assert type(result) is type(native)
    assert [
        None if e.final_cfs_df is None else len(e.final_cfs_df) for e in result.cf_examples_list
    ] == [1, 2, None]
    first = result.cf_examples_list[0]
    for frame in (first.final_cfs_df, first.final_cfs_df_sparse):
        assert frame.index.tolist() == [0]
        assert frame.iloc[0].to_dict() == {
            "age": "24–27", "income": 61.5, "job": "{clerk, nurse}", "education": "low", "smoker": "True",
            "approved": 1,
        }  # fmt: skip


# --- behind protection, as its notebooks use it ---------------------------------------------------

PEOPLE = Population.from_frame(
    ROWS, Schema.from_frame(ROWS, quasi_identifiers=["age", "job"], target="approved")
)


@pytest.fixture
def private(explainers: dict[str, Any], request: pytest.FixtureRequest) -> Any:
    policy = PrivacyPolicy(k=3, guarantee="lookup")
    return protect(
        explainers[request.param], model=label, population=PEOPLE, policy=policy, desired=1
    )


every = pytest.mark.parametrize("private", DICE, indirect=True)


@every
def test_documented_calls_show_what_changes(
    private: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A result is stored, read and shown as DiCE's is, and unchanged cells are dashes."""
    pytest.importorskip(
        "IPython", reason="needs IPython, of the extra [dev]: DiCE's tables are shown by it"
    )
    fast = {"maxiterations": 20} if "Genetic" in repr(private) else {}
    limits = {"features_to_vary": ["income", "age", "job"], "permitted_range": {"age": [20, 69]}}
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - DiCE draws from it
    result = private.generate_counterfactuals(
        QUERIES, total_CFs=2, desired_class=1, **fast, **limits
    )
    assert type(result).__module__ == "dice_ml.counterfactual_explanations"
    again = type(result).from_json(result.to_json())
    assert again == result
    for copied in (result, again, pickle.loads(pickle.dumps(result))):
        for is_sparse in (False, True):
            copied.visualize_as_dataframe(display_sparse_df=is_sparse, show_only_changes=True)
            copied.visualize_as_list(display_sparse_df=is_sparse)
    n_unchanged = 0
    for examples in result.cf_examples_list:
        if examples.final_cfs_df is None:
            continue
        table = examples.final_cfs_df_sparse
        table = examples.final_cfs_df if table is None else table
        factual = examples.test_instance_df.iloc[0].to_dict()
        n_equal = 0
        for row in table[FEATURES].to_dict("records"):
            for name, cell in row.items():
                if name in CATEGORIES:
                    n_equal += cell == factual[name]
                elif not isinstance(cell, str):  # a region is text; numbers by DiCE's own measure
                    assert type(cell) is type(factual[name])
                    n_equal += abs(cell - factual[name]) <= 1e-4 * factual[name]
        capsys.readouterr()
        examples.visualize_as_list(show_only_changes=True)
        assert capsys.readouterr().out.count("'-'") == n_equal
        n_unchanged += n_equal
    assert n_unchanged > 0


@every
def test_other_methods_of_dice_are_refused(
    private: Any, explainers: dict[str, Any], tmp_path: Path
) -> None:
    """They would give out training rows."""
    (explainer,) = [
        one for one in explainers.values() if f"dice:{type(one).__name__}" in repr(private)
    ]
    names = {name for name in {*dir(explainer), *vars(explainer)} if not name.startswith("__")}
    assert names > {
        "data_interface",
        "model",
        "serialize_explainer",
        "predict_fn",
        *adapter.METHODS,
    }
    assert {name for name in names if hasattr(private, name)} == set(adapter.METHODS)
    with pytest.raises(NotForwardedError, match="serialize_explainer"):
        private.serialize_explainer(tmp_path / "explainer.pkl")
    assert not list(tmp_path.iterdir())
