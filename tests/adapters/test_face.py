"""FACE: its answer against the definition, searched by brute force, and what may be one."""

from __future__ import annotations

import heapq
from math import inf, log1p

import numpy as np
import pandas as pd
import pytest

from cfk_adapters.face import Face
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin.errors import AdapterError
from cfk_plugin.metrics.heom import Heom
from loan_table import Linear, loans, model_of_loans, numbers


def by_definition(train: pd.DataFrame, query: pd.DataFrame, goals: np.ndarray, neighbours: int) -> tuple[int, float]:
    """Return the goal at the end of the cheapest path and its cost, from the distances alone."""
    heom = Heom.fit(train)
    apart, n = heom.distances(train, train), len(train)
    np.fill_diagonal(apart, inf)
    joined = [sorted(range(n), key=lambda j: apart[i, j])[:neighbours] for i in range(n)]
    unit = float(np.median([apart[i, j] for i in range(n) for j in joined[i]]))

    def cost(d: float) -> float:
        return d * log1p(d / unit)

    ways: dict[int, dict[int, float]] = {i: {} for i in range(n)}
    for i in range(n):
        for j in joined[i]:
            ways[i][j] = ways[j][i] = cost(apart[i, j])
    away = heom.distances(query, train)[0]
    best = dict.fromkeys(range(n), inf)
    queue = [(cost(away[j]), j) for j in np.argsort(away, kind="stable")[:neighbours]]
    heapq.heapify(queue)
    while queue:
        so_far, i = heapq.heappop(queue)
        if so_far >= best[i]:
            continue
        best[i] = so_far
        if goals[i]:
            return i, so_far
        for j, more in ways[i].items():
            heapq.heappush(queue, (so_far + more, int(j)))
    return -1, inf


@pytest.mark.parametrize("neighbours", [1, 2, 4])
def test_the_answer_ends_the_cheapest_path(neighbours: int) -> None:
    train, model = numbers(60, 2, seed=2), Linear(np.array([1.0, 1.0]), -0.8)
    queries = numbers(40, 2, seed=3)
    queries = queries[model.predict(queries) == 0]
    answers = Face(train, model, neighbours=neighbours).explain(queries)
    goals = model.predict(train) == 1
    expected = [by_definition(train, queries.iloc[[i]], goals, neighbours)[0] for i in range(len(queries))]
    rows = train.reindex(expected).set_axis(queries.index)
    pd.testing.assert_frame_equal(answers, rows)
    nearest = Heom.fit(train).nearest(queries, train[goals])[0][:, 0]
    straight = train[goals].iloc[nearest].to_numpy()
    assert (answers.to_numpy() != straight).any()  # a path is not the way to the nearest


def test_a_dense_detour_is_cheaper_than_a_leap() -> None:
    # Fifteen steps of 1 lead round to (0, 15); (0, 4.9) is nearer, across a gap.
    path = [(0.0, 0.0), *((x, y) for y, x in zip(np.arange(0, 15), np.r_[1:8, 8:0:-1], strict=True)), (0.0, 15.0)]
    train = pd.DataFrame([*path, (-9.0, 4.9), (-9.0, 5.9)], columns=["x", "y"])

    def model(rows: pd.DataFrame) -> np.ndarray:
        return ((rows["y"] > 14.5) | (rows["x"] < -8)).to_numpy()

    query = pd.DataFrame({"x": [-1.0], "y": [0.0]})
    assert Face(train, model, neighbours=2).explain(query)["y"].tolist() == [15.0]
    assert NearestUnlikeNeighbour(train, model).explain(query)["y"].tolist() == [4.9]


def test_answers_are_training_rows_in_their_dtypes() -> None:
    train = loans()
    model = model_of_loans(train)
    queries = loans(50, seed=1)
    queries = queries[model.predict(queries) == "no"]
    answers = Face(train, model, neighbours=15).explain(queries)
    assert answers.merge(train, how="left", indicator=True)["_merge"].eq("both").all()
    assert (answers.dtypes == train.dtypes).all()


def test_an_answer_is_confident_and_dense_enough() -> None:
    train = loans()
    model = model_of_loans(train)
    queries = train[model.predict(train) == "no"].head(60)
    plain, sure = (Face(train, model, neighbours=20, confidence=c).explain(queries) for c in (None, 0.9))
    assert model.predict_proba(plain)[:, 1].min() < 0.7
    assert model.predict_proba(sure)[:, 1].min() >= 0.9
    heom = Heom.fit(train)
    radius = heom.nearest(train, train, k=20, exclude_same=True)[1][:, -1]
    crowded = Face(train, model, neighbours=20, dense=0.2).explain(queries)
    own = heom.nearest(crowded, train, k=20, exclude_same=True)[1][:, -1]
    assert own.max() <= np.quantile(radius, 0.2) + 1e-12
    with pytest.raises(AdapterError, match="needs a model with predict_proba"):
        Face(train, model.predict, confidence=0.9).explain(queries)


def test_no_answer_without_a_path() -> None:
    train = pd.DataFrame({"x": [0.0, 1.0, 2.0, 50.0, 51.0, 52.0]})
    explainer = Face(train, lambda rows: rows["x"] > 10, neighbours=2)
    assert explainer.explain(pd.DataFrame({"x": [0.5]})).isna().all(axis=None)
    assert Face(train, lambda rows: rows["x"] > 99).explain(train).isna().all(axis=None)
    assert Face(train[:1], lambda rows: rows["x"] > 99).explain(train).isna().all(axis=None)


def test_equal_rows_are_one_and_the_model_is_asked_for_them_once() -> None:
    asked = []

    def model(rows: pd.DataFrame) -> np.ndarray:
        asked.append(len(rows))
        return rows["x"].to_numpy() > 3

    train = pd.DataFrame({"x": [0.0] * 40 + [1.0, 2.0, 3.0, 4.0]})
    explainer = Face(train, model, neighbours=2)
    assert explainer.explain(train.head(1))["x"].tolist() == [4.0]
    explainer.explain(train.head(2))
    assert asked.count(5) == 1


@pytest.mark.parametrize("settings", [{"neighbours": 0}, {"dense": 0.0}, {"confidence": 2.0}])
def test_settings_are_checked(settings: dict[str, float]) -> None:
    with pytest.raises(AdapterError, match="neighbours must be at least 1"):
        Face(numbers(5, 2), Linear(np.ones(2)), **settings)  # type: ignore[arg-type]
