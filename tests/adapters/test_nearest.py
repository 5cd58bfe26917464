"""Nearest unlike neighbour: what is nearest, ties, goals, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace

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
CONTEXT = AdaptContext(tuple(TRAIN.columns))


def old(rows: pd.DataFrame) -> np.ndarray:
    return (rows["age"] > 40).astype(int).to_numpy()


def test_answer_is_the_first_of_the_nearest_rows_with_another_prediction() -> None:
    answer = NearestUnlikeNeighbour(TRAIN, old).explain(TRAIN.set_axis(list("vwxyz")))
    assert answer.index.tolist() == list("vwxyz")
    assert answer["age"].tolist() == [60, 65, 20, 20, 25]
    assert (answer.dtypes == TRAIN.dtypes).all()


def test_neighbours_agree_with_a_plain_loop() -> None:
    rng = np.random.default_rng(1)
    train = pd.DataFrame(
        {"age": rng.integers(25, 55, 120), "city": rng.choice(["A", "B", None], 120)}
    )
    train.loc[rng.random(120) < 0.1, "age"] = None
    explainer = NearestUnlikeNeighbour(train, old)
    distances = np.round(Heom.fit(train).distances(train, train), 11)
    assert train.duplicated().any()
    for i, found in enumerate(explainer.neighbours(train)):
        unlike = np.flatnonzero(explainer.predicted != explainer.predicted[i])
        assert found == min(unlike, key=lambda j: (distances[i, j], j))


def test_queries_without_a_neighbour_leave_their_slots_open() -> None:
    none = NearestUnlikeNeighbour(TRAIN, old, desired=7)
    assert none.neighbours(TRAIN[:2]).tolist() == [-1, -1]
    batch = load_plugins([nearest], entry_points=False).adapt(none, CONTEXT).generate(TRAIN[:2])
    assert batch.query.tolist() == [0, 1]
    assert batch.slot.tolist() == []


@pytest.mark.parametrize("desired", [1, lambda labels: labels > 0])
def test_goal_may_be_a_label_or_a_function(desired: object) -> None:
    explainer = NearestUnlikeNeighbour(TRAIN, old, desired=desired)
    assert explainer.neighbours(TRAIN).tolist() == [2, 4, 2, 2, 4]


def test_no_unlike_neighbour_is_a_row_of_missing_values() -> None:
    explainer = NearestUnlikeNeighbour(TRAIN, old, desired=7)
    assert explainer.explain(TRAIN).isna().all(axis=None)
    mixed = NearestUnlikeNeighbour(TRAIN[TRAIN["age"] > 40], old)
    answer = mixed.explain(TRAIN)
    assert answer["age"].tolist()[:2] == [60, 60]
    assert answer[2:].isna().all(axis=None)
    batch = load_plugins([nearest], entry_points=False).adapt(mixed, CONTEXT).generate(TRAIN)
    assert batch.slot.tolist() == [0, 1]
    assert batch.query.tolist() == [0, 1, 2, 3, 4]


def test_model_is_asked_for_the_training_rows_once() -> None:
    asked = []

    def model(rows: pd.DataFrame) -> np.ndarray:
        asked.append(len(rows))
        return old(rows)

    explainer = NearestUnlikeNeighbour(TRAIN, model)
    explainer.explain(TRAIN[:2])
    explainer.explain(TRAIN[:3])
    assert sorted(asked) == [2, 3, 5]


def test_label_column_is_left_out() -> None:
    labelled = TRAIN.assign(label=old(TRAIN))
    explainer = NearestUnlikeNeighbour(labelled, old, features=list(TRAIN.columns))
    assert list(explainer.explain(labelled).columns) == list(TRAIN.columns)


def test_wrong_columns_are_named() -> None:
    with pytest.raises(AdapterError, match="no column zip"):
        NearestUnlikeNeighbour(TRAIN, old, features=["zip"])
    with pytest.raises(AdapterError, match="no column income"):
        NearestUnlikeNeighbour(TRAIN, old).explain(TRAIN.drop(columns="income"))
    with pytest.raises(AdapterError, match="feature zip"):
        load_plugins([nearest], entry_points=False).adapt(
            NearestUnlikeNeighbour(TRAIN, old), AdaptContext(("age", "zip"))
        )


def test_model_must_return_one_label_per_row() -> None:
    with pytest.raises(AdapterError, match="2 labels for 5 rows"):
        NearestUnlikeNeighbour(TRAIN, lambda rows: [0, 1]).explain(TRAIN)


def test_adapter_says_it_is_instance_based_and_restores_a_table() -> None:
    source = load_plugins([nearest], entry_points=False).adapt(
        NearestUnlikeNeighbour(TRAIN, old), CONTEXT
    )
    assert source.instance_based
    batch, native, queries = source.methods["explain"](TRAIN)
    assert native is None
    assert len(batch.frame) == len(queries) == 5
    cells = {"age": "20–25", "city": "A", "member": "True", "income": "1.5"}
    parts = {
        "age": Interval(20, 25),
        "city": frozenset("A"),
        "member": frozenset([True]),
        "income": Interval(1.5, 1.5),
    }
    released = SimpleNamespace(query=0, status="released", cells=lambda: cells, parts=lambda: parts)
    withheld = SimpleNamespace(query=1, status="withheld")
    table = source.restore(native, [released, withheld])
    assert table.iloc[0].to_dict() == {**cells, "member": True, "income": 1.5}
    assert table.iloc[1].tolist() == [None] * 4
