"""The adapter for NICE, with the real library."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from applicants import FEATURES, NICE, QUERIES, ROWS, label, nice_of, score
from cfk_adapters import nice as adapter
from cfk_plugin.data.region import Interval
from cfk_plugin.errors import AdapterError
from cfk_plugin.hookspecs import AdaptContext
from cfk_plugin.plugins import load_plugins

CONTEXT = AdaptContext(tuple(FEATURES), "approved")
REFUSED = ROWS[ROWS["approved"] == 0]


def source_of(explainer: Any) -> Any:
    return load_plugins([adapter], entry_points=False).adapt(explainer, CONTEXT)


@pytest.mark.parametrize("optimization", NICE)
def test_every_query_of_several_is_answered(optimization: str) -> None:
    explainer, queries = nice_of(optimization), QUERIES
    source = source_of(explainer)
    batch = source.generate(queries)
    assert source.instance_based
    assert source.name == f"nice:{optimization}"
    assert batch.slot.tolist() == [0, 1, 2]
    assert (score(batch.frame.to_numpy(dtype=object)).argmax(axis=1) == 1).all()
    one_by_one = [explainer.explain(queries.iloc[[i]].to_numpy(dtype=object)) for i in range(3)]
    assert batch.frame.to_numpy(dtype=object).tolist() == np.concatenate(one_by_one).tolist()


def test_none_found_is_no_error() -> None:
    # only rows of one class, and answers to be found among them
    certain = REFUSED[label(REFUSED) == 0]
    queries = pd.concat([certain.head(2), ROWS[label(ROWS) == 1].head(1)])[FEATURES]
    batch = source_of(nice_of("sparsity", certain)).generate(queries)
    assert (batch.slot.tolist(), batch.query.tolist()) == ([2], [0, 1, 2])


def test_target_class_may_be_an_int() -> None:
    source = source_of(nice_of("sparsity"))
    expected = source.generate(QUERIES, target_class=[1]).frame
    pd.testing.assert_frame_equal(source.generate(QUERIES, target_class=1).frame, expected)
    batch, _, _ = source.methods["explain"](QUERIES.to_numpy(dtype=object), 1)
    pd.testing.assert_frame_equal(batch.frame, expected)


@pytest.mark.parametrize("labels", [None, np.where(ROWS["approved"] == 1, "yes", "no")])
def test_misuse_that_looks_like_none_found_is_named(labels: Any) -> None:
    with pytest.raises(AdapterError, match="justified_cf=True needs y_train"):
        source_of(nice_of("sparsity", y_train=labels))


def test_wrong_shapes_are_named() -> None:
    explainer = nice_of("sparsity")
    with pytest.raises(AdapterError, match="5 columns and the schema has 1"):
        load_plugins([adapter], entry_points=False).adapt(explainer, AdaptContext(("age",)))
    source = source_of(explainer)
    with pytest.raises(AdapterError, match="no column job"):
        source.generate(ROWS.drop(columns="job"))
    with pytest.raises(AdapterError, match="5 columns, not of shape"):
        source.methods["explain"](np.zeros((1, 3)))


def test_error_of_the_model_loses_its_text() -> None:
    calls = []

    def moody(array: np.ndarray) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError(str(array[0]))
        return score(array)

    with pytest.raises(AdapterError, match="raised RuntimeError"):
        source_of(nice_of("sparsity", predict_fn=moody)).generate(QUERIES[:1])


def test_restored_answer_is_an_array_of_cells() -> None:
    source = source_of(nice_of("sparsity"))
    _, native, queries = source.methods["explain"](QUERIES.to_numpy(dtype=object))
    assert native is None
    assert list(queries) == FEATURES
    assert queries["age"].dtype.kind == "i"
    cells = {
        "age": "20–30",
        "income": "61.5",
        "job": "{clerk, nurse}",
        "education": "low",
        "smoker": "True",
    }
    parts = {
        "age": Interval(20, 30),
        "income": Interval(61.5, 61.5),
        "education": frozenset(["low"]),
        "smoker": frozenset([True]),
    }
    released = SimpleNamespace(status="released", cells=lambda: cells, parts=lambda: parts)
    answer = source.restore(native, [released, SimpleNamespace(status="withheld")])
    assert answer.dtype == object
    assert answer.tolist() == [["20–30", 61.5, "{clerk, nurse}", "low", True], [None] * 5]
