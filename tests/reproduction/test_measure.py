"""From a made table to figures: what is prepared, and what each method gives, recounted from rows
and regions here.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score, train_test_split

import reproduced
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.errors import InputError, PolicyError
from cfk_plugin.metrics import ncp
from cfk_plugin.metrics.heom import Heom
from reproduction import prepare as prepare_module
from reproduction.measure import (
    METHODS,
    NICE,
    fit_method,
    measure,
    measure_distances,
    measure_nice_distances,
)
from reproduction.prepare import AutoEncoder, Prepared, make_forest, nice, prepare, tune
from reproduction.studies import plausibility_row
from reproduction.tables import read_table

pytest.importorskip("nice", reason="needs NICEx, which is installed apart")

FEATURES = list(reproduced.FEATURES)


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return reproduced.prepared()


# --- what is prepared -----------------------------------------------------------------------------


def test_split_is_60_to_40_and_queries_are_undesired_test_rows(prepared: Prepared) -> None:
    frame = reproduced.table().frame
    train, test = train_test_split(frame, test_size=0.4, random_state=0)
    pd.testing.assert_frame_equal(prepared.train, train[FEATURES].reset_index(drop=True))
    undesired = test[prepared.model.predict(test[FEATURES]) != "absent"]
    assert len(undesired) > 12  # so that the limit is what ends them
    queries = prepared.queries.reset_index(drop=True)
    pd.testing.assert_frame_equal(queries, undesired[FEATURES].head(12).reset_index(drop=True))


def test_a_summary_has_the_risks_of_table_5(prepared: Prepared) -> None:
    frame = reproduced.table().frame
    sizes = frame.groupby(["age", "sex"]).size()
    summary = prepared.summary
    assert (summary.rows_train, summary.rows_test, summary.explained) == (144, 96, 12)
    assert (summary.n_estimators, summary.max_leaf_nodes) == (10, 10)
    assert summary.unique == pytest.approx(sizes[sizes == 1].sum() / len(frame))
    assert summary.below_10 == pytest.approx(sizes[sizes < 10].sum() / len(frame))


def test_counterfactuals_are_nearest_rows_that_have_and_are_predicted_the_outcome(
    prepared: Prepared,
) -> None:
    train = prepared.train
    model = prepared.model
    heom = Heom.fit(prepared.train)
    justified = train[(model.predict(train) == "absent") & (prepared.labels == "absent")]
    own = heom.parts(prepared.queries, prepared.counterfactuals).mean(axis=1)
    np.testing.assert_allclose(own, heom.distances(prepared.queries, justified).min(axis=1))
    assert (model.predict(prepared.counterfactuals) == "absent").all()


def test_groups_are_of_counterfactuals_and_of_queries(prepared: Prepared) -> None:
    assert prepared.train["sex"].value_counts().index.tolist() == ["m", "f"]
    names = {"f": "minority", "m": "majority"}
    assert prepared.groups == tuple(prepared.counterfactuals["sex"].map(names))
    assert prepared.groups_asking == tuple(prepared.queries["sex"].map(names))
    assert repr(prepared) == "Prepared(heart, 12 queries)"


def test_the_same_table_gives_the_same(prepared: Prepared) -> None:
    again = reproduced.prepared()
    pd.testing.assert_frame_equal(again.counterfactuals, prepared.counterfactuals)
    assert again.summary == prepared.summary


def test_tuning_takes_the_best_mean_of_five_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = reproduced.rows(60)
    features = frame[["age"]]
    labels = frame["disease"]
    assert prepare_module.N_TREES == 100
    assert prepare_module.MOST_LEAVES == (10, 100, 500, None)
    monkeypatch.setattr(prepare_module, "N_TREES", 7)
    monkeypatch.setattr(prepare_module, "MOST_LEAVES", (2, 3, 30))
    scores = {}
    for leaves in (2, 3, 30):
        forest = RandomForestClassifier(7, max_leaf_nodes=leaves, random_state=0)
        scores[leaves] = cross_val_score(forest, features, labels, cv=5).mean()
    assert len(set(scores.values())) > 1
    trees = tune(features, labels)[-1]
    assert trees.n_estimators == 7
    assert scores[trees.max_leaf_nodes] == max(scores.values())


def test_nice_finds_the_nearest_rows_and_none_where_nobody_has_the_outcome() -> None:
    frame = reproduced.rows(600, seed=3)
    train = frame.iloc[:400].reset_index(drop=True)
    queries = frame.iloc[400:].reset_index(drop=True)
    rows = train[FEATURES]
    labels = train["disease"].to_numpy()
    model = make_forest(rows, 20, 10).fit(rows, labels)
    asking = queries[model.predict(queries[FEATURES]) == "present"][FEATURES]
    positions = nice(rows, labels, model, "absent").positions(asking)
    assert len(asking) > 50
    assert (positions >= 0).all()
    justified = rows[(model.predict(rows) == "absent") & (labels == "absent")]
    heom = Heom.fit(rows)
    distances = heom.parts(asking, rows.iloc[positions]).mean(axis=1)
    np.testing.assert_allclose(distances, heom.distances(asking, justified).min(axis=1))
    wrong = np.where(model.predict(rows) == "absent", "present", "absent")  # so nobody is justified
    assert nice(rows, wrong, model, "absent").positions(rows.head(3)).tolist() == [-1, -1, -1]


def test_a_query_without_an_answer_is_left_out(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LeavesOutTheFirst:
        def positions(self, queries: pd.DataFrame) -> Any:
            positions = np.arange(len(queries))
            positions[0] = -1
            return positions

    monkeypatch.setattr(prepare_module, "nice", lambda *_: LeavesOutTheFirst())
    fewer = reproduced.prepared()
    assert (fewer.summary.explained, fewer.summary.unanswered) == (11, 1)
    queries = prepared.queries.iloc[1:].reset_index(drop=True)
    pd.testing.assert_frame_equal(fewer.queries, queries)
    chosen = prepared.train.iloc[1:12].reset_index(drop=True)
    pd.testing.assert_frame_equal(fewer.counterfactuals, chosen)


def test_a_table_without_a_query_is_refused() -> None:
    table = reproduced.table()
    everybody = table.frame.assign(disease="absent")
    everybody.loc[:2, "disease"] = "present"  # too few to be predicted
    forest = make_forest(everybody[FEATURES], 5, 2)
    with pytest.raises(InputError, match="heart: there is nothing to explain"):
        prepare(replace(table, frame=everybody), 12, forest)


# --- methods --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", list(METHODS))
def test_figures_are_those_of_the_released_regions(prepared: Prepared, method: str) -> None:
    started = time.perf_counter()
    measured = measure(prepared, method, 5, n=4, n_effective=2)
    elapsed = time.perf_counter() - started
    entries = fit_method(prepared, method, 5).transform(prepared.counterfactuals.head(4))
    predicted = prepared.model.predict(prepared.train) == "absent"
    for i, entry in enumerate(entries):
        inside = np.array([entry.region.contains(row) for _, row in prepared.train.iterrows()])
        figures = measured.figures.iloc[i]
        assert figures["ncp"] == pytest.approx(ncp(entry.region, prepared.population))
        assert figures["k"] == inside.sum() >= 5
        assert figures["k_desired"] == (inside & predicted).sum()
        assert figures["agrees"] == float(2 * (inside & predicted).sum() >= inside.sum())
    assert (measured.table, measured.method, measured.k) == ("heart", method, 5)
    assert measured.n == len(measured.groups) == len(measured.groups_asking) == 4
    n_measured = {"grasp": 0, "reciprocal": 4}.get(method, 2)
    assert len(measured.known("k_effective")) == n_measured
    assert elapsed > measured.seconds >= measured.model_seconds > 0


def test_methods_are_what_they_are_called(prepared: Prepared) -> None:
    measurements = {name: measure(prepared, name, 8) for name in METHODS}
    ncp_of = {name: measured.known("ncp").mean() for name, measured in measurements.items()}
    pureness_of = {
        name: measured.known("pureness").mean() for name, measured in measurements.items()
    }
    assert all(ncp_of["exact-ncp"] <= value + 1e-12 for value in ncp_of.values())
    assert all(
        pureness_of["exact-pureness"] >= pureness_of[name] for name in ("exact-ncp", "grasp")
    )
    assert ncp_of["mondrian"] < ncp_of["mondrian-raw"]
    assert set(measurements["exact-ncp"].figures["proven"]) == {1.0}
    assert measurements["reciprocal"].known("k_effective").min() >= 8


def test_settings_reach_the_method(prepared: Prepared) -> None:
    once = measure(prepared, "grasp", 8, n=2, settings={"iterations": 1})
    thrice = measure(prepared, "grasp", 8, n=2, settings={"iterations": 3})
    assert once.model_calls < thrice.model_calls


def test_a_k_above_the_number_of_people_is_an_error(prepared: Prepared) -> None:
    with pytest.raises(PolicyError, match="above the number of people"):
        measure(prepared, "exact-ncp", 1000)


# --- distances ------------------------------------------------------------------------------------


def mean_distances(rows: pd.DataFrame, train: pd.DataFrame) -> tuple[float, float]:
    """Return mean distances to the nearest and the five nearest training rows, summed over the four
    features.
    """
    sorted_ones = np.sort(4 * Heom.fit(train).distances(rows, train), axis=1)
    return sorted_ones[:, 0].mean(), sorted_ones[:, :5].mean()


def combinations(
    region: Region, counterfactual: pd.Series[Any], train: pd.DataFrame
) -> pd.DataFrame:
    """Return every combination of training values that a region allows, with the counterfactual's
    other values.
    """
    values = [
        [
            v
            for v in train[name].unique()
            if (part.low <= v <= part.high if isinstance(part, Interval) else v in part)
        ]
        for name, part in region.parts.items()
    ]
    rows = pd.DataFrame(list(itertools.product(*values)), columns=list(region.parts))
    return rows.assign(**{name: counterfactual[name] for name in ("pain", "pressure")})


def test_a_region_is_as_far_as_its_value_combinations_are_on_average(prepared: Prepared) -> None:
    distances = measure_distances(prepared, "exact-ncp", 5, n=6)
    entries = fit_method(prepared, "exact-ncp", 5).transform(prepared.counterfactuals.head(6))
    for i, entry in enumerate(entries):
        rows = combinations(entry.region, prepared.counterfactuals.iloc[i], prepared.train)
        assert len(rows) <= 100  # so that all are drawn
        near = distances.nearest[i], distances.nearest_5[i]
        assert near == pytest.approx(mean_distances(rows, prepared.train))
    assert len(distances.nearest) == 6
    assert (distances.nearest > 0).any()
    assert (distances.table, distances.method, distances.k) == ("heart", "exact-ncp", 5)


def test_nice_returns_training_rows_where_it_optimises_nothing(prepared: Prepared) -> None:
    distances = measure_nice_distances(prepared, "nice-none")
    assert distances.nearest.tolist() == [0.0] * 12
    by_hand = [
        mean_distances(row.to_frame().T.astype(prepared.train.dtypes), prepared.train)[1]
        for _, row in prepared.counterfactuals.iterrows()
    ]
    np.testing.assert_allclose(distances.nearest_5, by_hand)
    assert (distances.method, distances.k) == ("nice-none", None)


@pytest.mark.parametrize("method", [name for name in NICE if name != "nice-none"])
def test_nice_makes_up_rows_where_it_optimises(prepared: Prepared, method: str) -> None:
    distances = measure_nice_distances(prepared, method)
    assert distances.nearest.max() > 0
    assert (distances.nearest <= distances.nearest_5).all()


def test_an_auto_encoder_knows_rows_like_those_it_was_trained_on() -> None:
    random = np.random.default_rng(0)
    kind = random.integers(0, 3, 120)
    rows = np.column_stack([kind, (kind + 1) % 3, 10 * kind + random.normal(0, 0.1, 120)]).astype(
        float
    )
    rows[:3, 2] = np.nan
    judge = AutoEncoder(rows, [0, 1])
    mixed = np.column_stack([random.permutation(column) for column in rows.T])
    mixed = mixed[(mixed[:, 1] != (mixed[:, 0] + 1) % 3)]
    assert judge(mixed).min() > 5 * np.median(judge(rows))
    np.testing.assert_array_equal(judge(mixed), AutoEncoder(rows, [0, 1])(mixed))
    assert judge(rows).shape == (120,)
    assert np.isfinite(judge(rows)).all()
    assert repr(judge) == "AutoEncoder(7 columns)"


@pytest.mark.slow
def test_what_the_paper_concludes_of_plausibility(shared_data: Path) -> None:
    table = read_table("german", shared_data)
    forest = make_forest(table.frame[list(table.features)], 30, None)  # so that nothing is tuned
    german = prepare(table, 15, forest)
    rows = [
        plausibility_row(measure_nice_distances(german, "nice-none")),
        plausibility_row(measure_nice_distances(german, "nice-sparsity")),
        plausibility_row(measure_distances(german, "exact-pureness", 5)),
        plausibility_row(measure_distances(german, "exact-pureness", 10)),
    ]
    none, sparse, small, large = (row["nearest"] for row in rows)
    assert none == 0
    assert 0 < small < large < sparse
    # the paper's own number, on another split
    assert rows[1]["nearest_5"] == pytest.approx(3.73, abs=0.5)
