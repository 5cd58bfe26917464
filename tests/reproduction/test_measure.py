"""From a made table to figures: what is prepared, and what each method gives, recounted from rows
and regions here.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import train_test_split

import reproduced
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.metrics import ncp
from cfk_plugin.metrics.heom import Heom
from reproduction.measure import (
    METHODS,
    fit_method,
    measure,
    measure_distances,
    measure_nice_distances,
)
from reproduction.prepare import Prepared, make_forest, prepare
from reproduction.studies import plausibility_row
from reproduction.tables import read_table

pytest.importorskip("nice", reason="needs NICEx, which is installed apart")

FEATURES = list(reproduced.FEATURES)


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return reproduced.prepared()


# --- what is prepared -----------------------------------------------------------------------------


def test_queries_are_undesired_test_rows(prepared: Prepared) -> None:
    """They are the first twelve of the 40 percent that are split off."""
    frame = reproduced.table().frame
    train, test = train_test_split(frame, test_size=0.4, random_state=0)
    pd.testing.assert_frame_equal(prepared.train, train[FEATURES].reset_index(drop=True))
    undesired = test[prepared.model.predict(test[FEATURES]) != "absent"]
    assert len(undesired) > 12  # so that the limit is what ends them
    queries = prepared.queries.reset_index(drop=True)
    pd.testing.assert_frame_equal(queries, undesired[FEATURES].head(12).reset_index(drop=True))


def test_summary_has_risks_of_table_5(prepared: Prepared) -> None:
    """Shares of people alone, or among fewer than ten, counted here by pandas."""
    frame = reproduced.table().frame
    sizes = frame.groupby(["age", "sex"]).size()
    summary = prepared.summary
    assert (summary.rows_train, summary.rows_test, summary.explained) == (144, 96, 12)
    assert (summary.n_estimators, summary.max_leaf_nodes) == (10, 10)
    assert summary.unique == pytest.approx(sizes[sizes == 1].sum() / len(frame))
    assert summary.below_10 == pytest.approx(sizes[sizes < 10].sum() / len(frame))


# --- methods --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", list(METHODS))
def test_figures_are_those_of_regions(prepared: Prepared, method: str) -> None:
    """People inside are counted again, row by row, for every method."""
    started = time.perf_counter()
    measured = measure(prepared, method, 5, n=4)
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
    assert elapsed > measured.seconds >= measured.model_seconds > 0


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


def test_distance_of_region_is_mean(prepared: Prepared) -> None:
    """The mean is over all of its combinations of values, as these are few."""
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


def test_unoptimised_nice_returns_training_rows(prepared: Prepared) -> None:
    """The nearest row is at distance 0; the mean to five rows is computed by hand."""
    distances = measure_nice_distances(prepared, "nice-none")
    assert distances.nearest.tolist() == [0.0] * 12
    by_hand = [
        mean_distances(row.to_frame().T.astype(prepared.train.dtypes), prepared.train)[1]
        for _, row in prepared.counterfactuals.iterrows()
    ]
    np.testing.assert_allclose(distances.nearest_5, by_hand)
    assert (distances.method, distances.k) == ("nice-none", None)


@pytest.mark.slow
def test_plausibility_order_is_the_papers(shared_data: Path) -> None:
    """A larger k is farther from training rows, but nearer than sparse NICE."""
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
