"""The adapter for NICE, with the real library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from applicants import FEATURES, NICE, QUERIES, ROWS, label, nice_of, score
from cfk_adapters import nice as adapter
from cfk_plugin import Population, Schema, protect
from cfk_plugin.errors import AdapterError
from cfk_plugin.hookspecs import AdaptContext
from cfk_plugin.plugins import load_plugins

ARRAY = QUERIES.to_numpy(dtype=object)


def source_of(explainer: Any, features: tuple[str, ...] = tuple(FEATURES)) -> Any:
    context = AdaptContext(features, "approved")
    return load_plugins([adapter], entry_points=False).adapt(explainer, context)


@pytest.mark.parametrize("optimization", NICE)
def test_batch_equals_single_answers(optimization: str) -> None:
    """NICE takes one query at a time."""
    explainer = nice_of(optimization)
    source = source_of(explainer)
    batch = source.generate(QUERIES)
    assert source.instance_based
    assert source.name == f"nice:{optimization}"
    assert batch.slot.tolist() == [0, 1, 2]
    one_by_one = np.concatenate([explainer.explain(ARRAY[[i]]) for i in range(3)])
    assert batch.frame.to_numpy(dtype=object).tolist() == one_by_one.tolist()


def test_no_answer_is_no_error() -> None:
    """Among people of one class, only someone of the other one finds an answer."""
    refused = ROWS[(ROWS["approved"] == 0) & (label(ROWS) == 0)]
    queries = pd.concat([refused.head(2), ROWS[label(ROWS) == 1].head(1)])[FEATURES]
    batch = source_of(nice_of("sparsity", refused)).generate(queries)
    assert (batch.slot.tolist(), batch.query.tolist()) == ([2], [0, 1, 2])


def test_target_class_may_be_an_int() -> None:
    """NICE itself takes a list."""
    source = source_of(nice_of("sparsity"))
    expected = source.generate(QUERIES, target_class=[1]).frame
    pd.testing.assert_frame_equal(source.generate(QUERIES, target_class=1).frame, expected)
    batch, _, _ = source.methods["explain"](ARRAY, 1)
    pd.testing.assert_frame_equal(batch.frame, expected)


@pytest.mark.parametrize("labels", [None, np.where(ROWS["approved"] == 1, "yes", "no")])
def test_unusable_labels_are_named(labels: Any) -> None:
    """With these, NICE would find nothing."""
    with pytest.raises(AdapterError, match="justified_cf=True needs y_train"):
        source_of(nice_of("sparsity", y_train=labels))


def test_wrong_shapes_are_named() -> None:
    """Of the schema, of a table, and of an array."""
    explainer = nice_of("sparsity")
    source = source_of(explainer)
    with pytest.raises(AdapterError, match="5 columns and the schema has 1"):
        source_of(explainer, ("age",))
    with pytest.raises(AdapterError, match="no column job"):
        source.generate(ROWS.drop(columns="job"))
    with pytest.raises(AdapterError, match="5 columns, not of shape"):
        source.methods["explain"](np.zeros((1, 3)))


def test_error_names_its_class() -> None:
    """It has the row of the query for a text."""
    calls = []

    def moody(array: np.ndarray) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError(str(array[0]))
        return score(array)

    with pytest.raises(AdapterError, match="raised RuntimeError") as caught:
        source_of(nice_of("sparsity", predict_fn=moody)).generate(QUERIES[:1])
    assert str(QUERIES["income"].iloc[0]) not in str(caught.value)


def test_result_is_an_array_of_cells() -> None:
    """Ranges are text, single values keep their types, and a withheld row is empty."""
    schema = Schema.from_frame(ROWS, quasi_identifiers=["age", "job"], target="approved")
    population = Population.from_frame(ROWS, schema)
    private = protect(nice_of("sparsity"), model=label, population=population, k=5, desired=1)
    array = private.explain(ARRAY)
    explanations = private.explain(QUERIES)
    assert array.dtype == object
    for row, entry in zip(array, explanations, strict=True):
        assert row[1] == entry.released["income"]
        assert row[4] is entry.released["smoker"]
        assert row[0] == entry.advised["age"] or row[0] == entry.cells()["age"]
    nothing = private.explain(
        ARRAY, permitted_range={"income": [0, 1]}, features_to_vary=["income"]
    )
    assert nothing.tolist() == [[None] * 5] * 3
