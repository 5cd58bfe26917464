"""Split, forest, queries and counterfactuals, on a made table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score, train_test_split

import reproduced
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.reproduction.prepare import GRIDS, Prepared, Size, choose_explainer, forest, neighbours, prepare, tune


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(reproduced.table(), reproduced.config())


def test_split_is_60_to_40_and_queries_are_undesired_test_rows(prepared: Prepared) -> None:
    frame = reproduced.table().frame
    train, test = train_test_split(frame, test_size=0.4, random_state=0)
    assert (prepared.summary.rows_train, prepared.summary.rows_test) == (144, 96)
    pd.testing.assert_frame_equal(prepared.train, train[list(reproduced.FEATURES)].reset_index(drop=True))
    undesired = test[prepared.model.predict(test[list(reproduced.FEATURES)]) != "absent"]
    assert len(undesired) > 12  # so that the limit is what ends them
    pd.testing.assert_frame_equal(
        prepared.queries.reset_index(drop=True), undesired[list(reproduced.FEATURES)].head(12).reset_index(drop=True)
    )
    assert prepared.summary.explained == len(prepared.counterfactuals) == 12


def test_counterfactuals_are_nearest_rows_that_have_and_are_predicted_the_outcome(prepared: Prepared) -> None:
    train, model = prepared.train, prepared.model
    justified = train[(model.predict(train) == "absent") & (prepared.labels == "absent")]
    heom = Heom.fit(train)
    distances = heom.distances(prepared.queries, justified)
    own = heom.parts(prepared.queries, prepared.counterfactuals).mean(axis=1)
    np.testing.assert_allclose(own, distances.min(axis=1))
    assert (model.predict(prepared.counterfactuals) == "absent").all()


def test_the_same_setting_gives_the_same_and_a_known_summary_is_not_tuned_again(prepared: Prepared) -> None:
    again = prepare(reproduced.table(), reproduced.config(), prepared.summary)
    pd.testing.assert_frame_equal(again.counterfactuals, prepared.counterfactuals)
    assert again.summary is prepared.summary
    other = prepare(reproduced.table(), reproduced.config(seed=1), prepared.summary)
    assert not other.queries.equals(prepared.queries)


def test_groups_are_the_rarest_and_the_commonest_category(prepared: Prepared) -> None:
    assert prepared.train["sex"].value_counts().index.tolist() == ["m", "f"]
    names = {"f": "minority", "m": "majority"}
    assert prepared.groups == tuple(prepared.counterfactuals["sex"].map(names))
    assert prepared.groups_asking == tuple(prepared.queries["sex"].map(names))


def test_risks_are_those_of_table_5(prepared: Prepared) -> None:
    frame = reproduced.table().frame
    sizes = frame.groupby(["age", "sex"]).size()
    assert prepared.summary.unique == pytest.approx(sizes[sizes == 1].sum() / len(frame))
    assert prepared.summary.below_10 == pytest.approx(sizes[sizes < 10].sum() / len(frame))


def test_tuning_takes_the_best_mean_of_five_folds() -> None:
    frame = reproduced.rows()
    features, labels = frame[["age"]], frame["disease"]
    size, scores = tune(features, labels, "small", 0, 1)
    assert list(scores) == ["100,10", "100,100", "100,500", "100,unlimited"]
    by_hand = cross_val_score(RandomForestClassifier(100, max_leaf_nodes=10, random_state=0), features, labels, cv=5)
    assert scores["100,10"] == pytest.approx(by_hand.mean())
    assert scores[str(size)] == max(scores.values())


def test_the_grid_of_the_paper() -> None:
    assert GRIDS["paper"]["n_estimators"] == [10, 50, 100, 500, 1000, 5000]
    assert GRIDS["paper"]["max_leaf_nodes"] == GRIDS["small"]["max_leaf_nodes"] == [10, 100, 500, None]


def test_real_nice_finds_the_same_rows() -> None:
    pytest.importorskip("nice", reason="needs NICEx, which is installed apart")
    frame = reproduced.rows(600, seed=3)
    train, queries = frame.iloc[:400].reset_index(drop=True), frame.iloc[400:].reset_index(drop=True)
    features, labels = list(reproduced.FEATURES), train["disease"].to_numpy()
    model = forest(train[features], Size(20, 10), 0).fit(train[features], labels)
    asking = queries[model.predict(queries[features]) == "present"][features]
    both = [neighbours(name, train[features], labels, asking, model, "absent") for name in ("nice", "nearest")]
    assert len(asking) > 50
    assert (both[0] >= 0).all()
    heom = Heom.fit(train[features])
    apart = [heom.parts(asking, train[features].iloc[rows]).mean(axis=1) for rows in both]
    np.testing.assert_allclose(apart[0], apart[1])  # of equally near rows either may be first


@pytest.mark.parametrize("explainer", ["nice", "nearest"])
def test_nothing_is_found_where_no_row_has_the_outcome(explainer: str) -> None:
    if explainer == "nice":
        pytest.importorskip("nice", reason="needs NICEx, which is installed apart")
    frame = reproduced.rows()
    features = list(reproduced.FEATURES)
    model = forest(frame[features], Size(5, 10), 0).fit(frame[features], frame["disease"])
    wrong = np.where(model.predict(frame[features]) == "absent", "present", "absent")  # so nobody is justified
    found = neighbours(explainer, frame[features], wrong, frame[features].head(3), model, "absent")
    assert found.tolist() == [-1, -1, -1]


def test_unknown_explainer() -> None:
    with pytest.raises(InputError, match="auto, nice or nearest"):
        choose_explainer("dice")
    assert choose_explainer("auto") in ("nice", "nearest")


def test_nothing_shows_a_row(prepared: Prepared) -> None:
    assert repr(prepared) == "Prepared(heart, 12 queries)"
    assert repr(reproduced.table()) == "Table(heart, 240 rows, 4 features)"


def test_a_table_must_fit_its_description() -> None:
    frame = reproduced.rows()
    with pytest.raises(InputError, match="heart: the table lacks the column sex"):
        type(reproduced.table())("heart", frame.drop(columns="sex"), ("age",), ("age",), "sex", "disease", "absent", "")
    with pytest.raises(InputError, match="quasi-identifiers that are no features: sex"):
        type(reproduced.table())("heart", frame, ("age",), ("sex",), "sex", "disease", "absent", "")
    with pytest.raises(InputError, match="no row of disease has the desired outcome"):
        type(reproduced.table())("heart", frame, ("age",), ("age",), "sex", "disease", "cured", "")
