"""From a made table to figures: what is prepared, and what each method gives, recounted from rows
and regions here.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
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
from reproduced import measure
from reproduction.measure import METHODS, NICE, Measurement
from reproduction.prepare import (
    GRIDS,
    AutoEncoder,
    Prepared,
    Size,
    choose_explainer,
    forest,
    neighbours,
    prepare,
    tune,
)
from reproduction.studies import STUDIES
from reproduction.tables import Table, load

FEATURES = list(reproduced.FEATURES)


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return reproduced.prepared()


@pytest.fixture
def nice() -> None:
    pytest.importorskip("nice", reason="needs NICEx, which is installed apart")


# --- what is prepared -----------------------------------------------------------------------------


def test_split_is_60_to_40_and_queries_are_undesired_test_rows(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GRIDS, "small", {"n_estimators": [5], "max_leaf_nodes": [10, None]})  # type: ignore[arg-type]
    frame = reproduced.table().frame
    train, test = train_test_split(frame, test_size=0.4, random_state=0)
    pd.testing.assert_frame_equal(prepared.train, train[FEATURES].reset_index(drop=True))
    undesired = test[prepared.model.predict(test[FEATURES]) != "absent"]
    assert len(undesired) > 12  # so that the limit is what ends them
    queries = prepared.queries.reset_index(drop=True)
    pd.testing.assert_frame_equal(queries, undesired[FEATURES].head(12).reset_index(drop=True))
    sizes = frame.groupby(["age", "sex"]).size()  # the risks of Table 5
    found = prepare(reproduced.table(), reproduced.config()).summary
    assert (found.rows_train, found.rows_test, found.explained) == (144, 96, 12)
    assert found.unique == pytest.approx(sizes[sizes == 1].sum() / len(frame))
    assert found.below_10 == pytest.approx(sizes[sizes < 10].sum() / len(frame))


def test_counterfactuals_are_nearest_rows_that_have_and_are_predicted_the_outcome(
    prepared: Prepared,
) -> None:
    train, model, heom = prepared.train, prepared.model, Heom.fit(prepared.train)
    justified = train[(model.predict(train) == "absent") & (prepared.labels == "absent")]
    own = heom.parts(prepared.queries, prepared.counterfactuals).mean(axis=1)
    np.testing.assert_allclose(own, heom.distances(prepared.queries, justified).min(axis=1))
    assert (model.predict(prepared.counterfactuals) == "absent").all()
    assert prepared.train["sex"].value_counts().index.tolist() == ["m", "f"]
    names = {"f": "minority", "m": "majority"}
    assert prepared.groups == tuple(prepared.counterfactuals["sex"].map(names))
    assert prepared.groups_asking == tuple(prepared.queries["sex"].map(names))
    assert repr(prepared) == "Prepared(heart, 12 queries)"


def test_the_same_setting_gives_the_same_and_a_known_summary_is_not_tuned_again(
    prepared: Prepared,
) -> None:
    again = prepare(reproduced.table(), reproduced.config(), prepared.summary)
    pd.testing.assert_frame_equal(again.counterfactuals, prepared.counterfactuals)
    assert again.summary is prepared.summary
    other = prepare(reproduced.table(), reproduced.config(seed=1), prepared.summary)
    assert not other.queries.equals(prepared.queries)
    assert len({prepared.config.key, other.config.key, replace(prepared.config, limit=5).key}) == 3


def test_tuning_takes_the_best_mean_of_five_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = reproduced.rows(60)
    features, labels = frame[["age"]], frame["disease"]
    assert GRIDS["small"]["n_estimators"] == [100]
    assert GRIDS["paper"]["n_estimators"] == [10, 50, 100, 500, 1000, 5000]
    monkeypatch.setitem(GRIDS, "small", {**GRIDS["small"], "n_estimators": [7]})  # type: ignore[arg-type]
    size, scores = tune(features, labels, "small", 0, 1)
    assert list(scores) == ["7,10", "7,100", "7,500", "7,unlimited"]
    by_hand = cross_val_score(
        RandomForestClassifier(7, max_leaf_nodes=10, random_state=0), features, labels, cv=5
    )
    assert scores["7,10"] == pytest.approx(by_hand.mean())
    assert scores[str(size)] == max(scores.values())
    assert (
        GRIDS["paper"]["max_leaf_nodes"] == GRIDS["small"]["max_leaf_nodes"] == [10, 100, 500, None]
    )


def test_real_nice_finds_the_same_rows_and_none_where_nobody_has_the_outcome(nice: None) -> None:
    frame = reproduced.rows(600, seed=3)
    train, queries = (
        frame.iloc[:400].reset_index(drop=True),
        frame.iloc[400:].reset_index(drop=True),
    )
    rows, labels = train[FEATURES], train["disease"].to_numpy()
    model = forest(rows, Size(20, 10), 0).fit(rows, labels)
    asking = queries[model.predict(queries[FEATURES]) == "present"][FEATURES]
    both = [neighbours(name, rows, labels, asking, model, "absent") for name in ("nice", "nearest")]
    assert len(asking) > 50
    assert (both[0] >= 0).all()
    apart = [Heom.fit(rows).parts(asking, rows.iloc[found]).mean(axis=1) for found in both]
    np.testing.assert_allclose(apart[0], apart[1])  # of equally near rows either may be first
    wrong = np.where(model.predict(rows) == "absent", "present", "absent")  # so nobody is justified
    for name in ("nice", "nearest"):
        assert neighbours(name, rows, wrong, rows.head(3), model, "absent").tolist() == [-1, -1, -1]


@pytest.mark.parametrize(
    ("lost", "quasi_identifier", "desired", "said"),
    [
        (["sex"], "age", "absent", "heart: the table lacks the column sex"),
        ([], "sex", "absent", "quasi-identifiers that are no features: sex"),
        ([], "age", "cured", "no row of disease has the desired outcome"),
    ],
)
def test_a_table_must_fit_its_description(
    lost: list[str], quasi_identifier: str, desired: str, said: str
) -> None:
    rows = reproduced.rows().drop(columns=lost)
    with pytest.raises(InputError, match=said):
        Table("heart", rows, ("age",), (quasi_identifier,), "sex", "disease", desired, "")


# --- methods --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", list(METHODS))
def test_figures_are_those_of_the_released_regions(prepared: Prepared, method: str) -> None:
    found = measure(prepared, method, 5, asked=4, effective=2)
    entries = reproduced.protect(prepared, method, 5, prepared.counterfactuals.head(4))
    predicted = prepared.model.predict(prepared.train) == "absent"
    for i, entry in enumerate(entries):
        inside = np.array([entry.region.contains(row) for _, row in prepared.train.iterrows()])
        assert found.figures["ncp"][i] == pytest.approx(ncp(entry.region, prepared.population))
        assert found.figures["k"][i] == inside.sum() >= 5
        assert found.figures["k_desired"][i] == (inside & predicted).sum()
        assert found.figures["agrees"][i] == float(2 * (inside & predicted).sum() >= inside.sum())
    assert (found.method, found.k, found.asked, len(found.groups)) == (method, 5, 4, 4)
    measured = [value for value in found.figures["k_effective"] if value is not None]
    assert len(measured) == {"grasp": 0, "reciprocal": 4}.get(method, 2)
    assert found.seconds >= found.model_seconds > 0
    assert Measurement.from_json(found.to_json()) == found


def test_methods_are_what_they_are_called_and_settings_reach_them(prepared: Prepared) -> None:
    found = {name: measure(prepared, name, 8) for name in METHODS}
    mean = {
        name: np.mean([v for v in o.figures["ncp"] if v is not None]) for name, o in found.items()
    }
    pure = {
        name: np.mean([v for v in o.figures["pureness"] if v is not None])
        for name, o in found.items()
    }
    assert all(mean["exact-ncp"] <= value + 1e-12 for value in mean.values())
    assert all(pure["exact-pureness"] >= pure[name] for name in ("exact-ncp", "grasp"))
    assert mean["mondrian"] < mean["mondrian-raw"]
    assert set(found["exact-ncp"].figures["proven"]) == {1.0}
    assert min(found["reciprocal"].figures["k_effective"]) >= 8  # type: ignore[type-var]
    once, thrice = (
        measure(prepared, "grasp", 8, asked=2, options={"iterations": i}) for i in (1, 3)
    )
    assert once.model_calls < thrice.model_calls


@pytest.mark.parametrize("kind", ["certificates", "distances"])
def test_what_is_asked_must_make_sense(prepared: Prepared, kind: str) -> None:
    with pytest.raises(
        InputError, match=r"unknown method 'magic'; known: grasp, .*, nice-plausibility"
    ):
        measure(prepared, "magic", 5, kind=kind)
    with pytest.raises(InputError, match="exact-ncp has no setting alpha"):
        measure(prepared, "exact-ncp", 5, kind=kind, options={"alpha": 3})
    with pytest.raises(PolicyError, match="above the number of people"):
        measure(prepared, "exact-ncp", 1000, kind=kind)
    with pytest.raises(InputError, match="nice-none has neither k nor settings"):
        measure(prepared, "nice-none", 5, kind="distances")
    with pytest.raises(InputError, match="auto, nice or nearest"):
        choose_explainer("dice")


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
    found, usual = (
        measure(prepared, "exact-ncp", 5, kind="distances", asked=6),
        measure(prepared, "exact-ncp", 5),
    )
    entries = reproduced.protect(prepared, "exact-ncp", 5, prepared.counterfactuals.head(6))
    for i, entry in enumerate(entries):
        rows = combinations(entry.region, prepared.counterfactuals.iloc[i], prepared.train)
        assert len(rows) <= 100  # so that all are drawn
        near = found.figures["nearest"][i], found.figures["nearest_5"][i]
        assert near == pytest.approx(mean_distances(rows, prepared.train))
    assert any(value > 0 for value in found.figures["nearest"])
    assert {name: found.figures[name] for name in usual.figures} == {
        n: v[:6] for n, v in usual.figures.items()
    }
    assert (found.asked, found.groups, found.k) == (6, usual.groups[:6], 5)
    assert Measurement.from_json(found.to_json()) == found


def test_nice_returns_training_rows_and_when_it_optimises_made_up_ones(
    prepared: Prepared, nice: None
) -> None:
    found = measure(prepared, "nice-none", 0, kind="distances")
    assert found.figures["nearest"] == (0.0,) * 12
    by_hand = [
        mean_distances(row.to_frame().T.astype(prepared.train.dtypes), prepared.train)[1]
        for _, row in prepared.counterfactuals.iterrows()
    ]
    np.testing.assert_allclose(found.figures["nearest_5"], by_hand)
    assert found.figures["ncp"] == found.figures["pureness"] == (None,) * 12
    assert (found.k, found.groups, found.groups_asking) == (0, (), prepared.groups_asking)
    assert found.model_calls == 12  # NICE asks once what each query is predicted
    assert found.seconds >= found.model_seconds > 0
    for method in NICE:
        if method != "nice-none":
            figures = measure(prepared, method, 0, kind="distances", asked=4).figures
            assert max(figures["nearest"]) > 0
            assert all(
                a <= b for a, b in zip(figures["nearest"], figures["nearest_5"], strict=True)
            )


def test_without_nice_it_says_how_to_install_it(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nice", None)  # as where it is not installed
    with pytest.raises(InputError, match="pip install --no-deps NICEx"):
        measure(prepared, "nice-sparsity", 0, kind="distances")


def test_an_auto_encoder_knows_rows_like_those_it_was_trained_on() -> None:
    random = np.random.default_rng(0)
    kind = random.integers(0, 3, 120)
    rows = np.column_stack([kind, (kind + 1) % 3, 10 * kind + random.normal(0, 0.1, 120)]).astype(
        float
    )
    rows[:3, 2] = np.nan
    judge = AutoEncoder(rows, [0, 1], seed=0)
    mixed = np.column_stack([random.permutation(column) for column in rows.T])
    mixed = mixed[(mixed[:, 1] != (mixed[:, 0] + 1) % 3)]
    assert judge(mixed).min() > 5 * np.median(judge(rows))
    np.testing.assert_array_equal(judge(mixed), AutoEncoder(rows, [0, 1], seed=0)(mixed))
    assert judge(rows).shape == (120,)
    assert np.isfinite(judge(rows)).all()
    assert repr(judge) == "AutoEncoder(7 columns)"
    alone = np.linspace(0, 1, 50)[:, None]
    assert AutoEncoder(alone, [], seed=0)(alone).shape == (50,)


@pytest.mark.slow
def test_what_the_paper_concludes_of_plausibility(nice: None, shared_data: Any) -> None:
    (table,) = load(["german"], shared_data)
    # so that nothing is tuned
    known = replace(reproduced.SUMMARY, n_estimators=30, max_leaf_nodes=None)
    german = prepare(table, reproduced.config(table="german", limit=15), known)
    asked = [("nice-none", 0), ("nice-sparsity", 0), ("exact-pureness", 5), ("exact-pureness", 10)]
    found = {f"{method} {k}": measure(german, method, k, kind="distances") for method, k in asked}
    rows = STUDIES["plausibility"].rows(found)
    none, sparse, small, large = (row["nearest"] for row in rows)
    assert none == 0
    assert 0 < small < large < sparse
    # the paper's own number, on another split
    assert rows[1]["nearest_5"] == pytest.approx(3.73, abs=0.5)
