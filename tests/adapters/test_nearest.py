"""Nearest unlike neighbour: what is nearest, ties, goals, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_adapters import nearest
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin.data.region import Interval
from cfk_plugin.errors import AdapterError
from cfk_plugin.hookspecs import AdaptContext
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.plugins import load_plugins

TRAIN = pd.DataFrame(
    {
        "age": [20, 25, 60, 60, 65],
        "city": pd.Categorical(["A", "B", "A", "A", "B"]),
        "member": [True, False, True, True, False],
        "income": [1.5, 2.5, 3.5, 3.5, 9.5],
    }
)


def old(rows: pd.DataFrame) -> np.ndarray:
    return (rows["age"] > 40).astype(int).to_numpy()


def source_of(explainer: Any, features: tuple[str, ...] = tuple(TRAIN)) -> Any:
    return load_plugins([nearest], entry_points=False).adapt(explainer, AdaptContext(features))


def test_first_of_nearest_rows_answers() -> None:
    """It has another prediction, and the index and dtypes of the query; a label is left out."""
    labelled = TRAIN.assign(label=old(TRAIN))
    explainer = NearestUnlikeNeighbour(labelled, old, features=[*TRAIN])
    answer = explainer.explain(labelled.set_axis(list("vwxyz")))
    assert answer.index.tolist() == list("vwxyz")
    assert answer["age"].tolist() == [60, 65, 20, 20, 25]
    assert (answer.dtypes == TRAIN.dtypes).all()


def test_neighbours_agree_with_plain_loop() -> None:
    """Of equally near rows, the first one is taken."""
    random = np.random.default_rng(1)
    train = pd.DataFrame(
        {"age": random.integers(25, 55, 120), "city": random.choice(["A", "B", None], 120)}
    )
    train.loc[random.random(120) < 0.1, "age"] = None
    explainer = NearestUnlikeNeighbour(train, old)
    distances = np.round(Heom.fit(train).distances(train, train), 11)
    for i, neighbour in enumerate(explainer.neighbours(train)):
        unlike = np.flatnonzero(explainer.predicted != explainer.predicted[i])
        assert neighbour == min(unlike, key=lambda j: (distances[i, j], j))


@pytest.mark.parametrize("desired", [1, lambda labels: labels > 0])
def test_goal_is_label_or_function(desired: object) -> None:
    """People who have the outcome get the nearest other person who has it."""
    explainer = NearestUnlikeNeighbour(TRAIN, old, desired=desired)
    assert explainer.neighbours(TRAIN).tolist() == [2, 4, 2, 2, 4]


def test_query_without_neighbour_has_no_answer() -> None:
    """A row of missing values, and a slot that stays open."""
    explainer = NearestUnlikeNeighbour(TRAIN[TRAIN["age"] > 40], old)
    answer = explainer.explain(TRAIN)
    assert answer["age"].tolist()[:2] == [60, 60]
    assert answer[2:].isna().all(axis=None)
    batch = source_of(explainer).generate(TRAIN)
    assert batch.slot.tolist() == [0, 1]
    assert batch.query.tolist() == [0, 1, 2, 3, 4]
    assert NearestUnlikeNeighbour(TRAIN, old, desired=7).explain(TRAIN).isna().all(axis=None)


def test_training_rows_are_asked_once() -> None:
    """A call asks the model about its queries only."""
    sizes = []

    def model(rows: pd.DataFrame) -> np.ndarray:
        sizes.append(len(rows))
        return old(rows)

    explainer = NearestUnlikeNeighbour(TRAIN, model)
    explainer.explain(TRAIN[:2])
    explainer.explain(TRAIN[:3])
    assert sorted(sizes) == [2, 3, 5]


def test_wrong_columns_are_named() -> None:
    """Of the explainer, of a query, and of the schema."""
    explainer = NearestUnlikeNeighbour(TRAIN, old)
    with pytest.raises(AdapterError, match="no column zip"):
        NearestUnlikeNeighbour(TRAIN, old, features=["zip"])
    with pytest.raises(AdapterError, match="no column income"):
        explainer.explain(TRAIN.drop(columns="income"))
    with pytest.raises(AdapterError, match="feature zip"):
        source_of(explainer, ("age", "zip"))
    with pytest.raises(AdapterError, match="2 labels for 5 rows"):
        NearestUnlikeNeighbour(TRAIN, lambda rows: [0, 1]).explain(TRAIN)


def test_result_is_a_table_of_cells() -> None:
    """Single values keep their types; a withheld row is empty."""
    source = source_of(NearestUnlikeNeighbour(TRAIN, old))
    assert source.instance_based
    batch, native, queries = source.methods["explain"](TRAIN)
    assert len(batch.frame) == len(queries) == 5
    cells = {"age": "20–25", "city": "A", "member": "True", "income": "1.5"}
    parts = {
        "age": Interval(20, 25),
        "city": frozenset("A"),
        "member": frozenset([True]),
        "income": Interval(1.5, 1.5),
    }
    released = SimpleNamespace(query=0, status="released", cells=lambda: cells, parts=lambda: parts)
    table = source.restore(native, [released, SimpleNamespace(query=1, status="withheld")])
    assert table.iloc[0].to_dict() == {**cells, "member": True, "income": 1.5}
    assert table.iloc[1].tolist() == [None] * 4
