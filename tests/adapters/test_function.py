"""The adapter for callables and objects: every shape of answer, and what cannot be read."""

from __future__ import annotations

from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_adapters import function
from cfk_plugin.adapting import CounterfactualBatch
from cfk_plugin.errors import AdapterError
from cfk_plugin.hookspecs import AdaptContext
from cfk_plugin.plugins import load_plugins

FEATURES = ["age", "city"]
CONTEXT = AdaptContext(tuple(FEATURES), "label")
QUERIES = pd.DataFrame({"age": [20, 30, 40], "city": ["A", "B", "C"]}, index=[7, 3, 5])
CANARY = "canary-4711"


def source_of(explainer: Any) -> Any:
    return load_plugins([function], entry_points=False).adapt(explainer, CONTEXT)


def ask(explainer: Any, queries: pd.DataFrame = QUERIES, **options: Any) -> CounterfactualBatch:
    return source_of(explainer).generate(queries, **options)


def older(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(age=rows["age"] + 1)


@pytest.mark.parametrize(
    "shape",
    [
        older,
        lambda rows: older(rows).reset_index(drop=True),
        lambda rows: older(rows)[["city", "age"]].assign(label=1, score=0.5),
        lambda rows: older(rows).to_numpy(dtype=object),
        lambda rows: older(rows).to_dict("records"),
        lambda rows: older(rows).assign(query=range(len(rows)))[::-1],
        lambda rows: older(rows).assign(query=range(len(rows))).set_index("query"),
    ],
)
def test_one_answer_per_query_in_any_shape(shape: Any) -> None:
    batch = ask(shape)
    assert batch.query.tolist() == [0, 1, 2]
    answers = batch.frame.set_axis(batch.query[batch.slot]).sort_index()
    assert answers["age"].tolist() == [21, 31, 41]
    assert answers["city"].tolist() == ["A", "B", "C"]
    assert list(batch.frame.columns) == FEATURES


@pytest.mark.parametrize(
    "nothing", [None, pd.DataFrame(), pd.DataFrame(columns=FEATURES), [], [None] * 3]
)
def test_nothing_found(nothing: Any) -> None:
    batch = ask(lambda rows: nothing)
    assert len(batch.frame) == 0
    assert batch.query.tolist() == [0, 1, 2]
    assert list(batch.frame.columns) == FEATURES


def test_some_found() -> None:
    for explainer in (
        lambda rows: older(rows)[rows["age"] != 30],
        lambda rows: older(rows)[rows["age"] != 30].reindex(rows.index),
        lambda rows: [{"age": 21, "city": "A"}, None, {"age": 41, "city": "C"}],
    ):
        batch = ask(explainer)
        assert batch.slot.tolist() == [0, 2]
        assert batch.frame["age"].tolist() == [21, 41]


def test_several_per_query_get_slots_of_their_own_and_a_series_answers_one() -> None:
    batch = ask(
        lambda rows: pd.DataFrame({"query": [2, 0, 2, 2], "age": [1, 2, 3, 4], "city": "A"})
    )
    assert (batch.query.tolist(), batch.slot.tolist()) == ([0, 1, 2, 2, 2], [2, 0, 3, 4])
    single = ask(lambda rows: pd.Series({"age": 50, "city": "Z"}), QUERIES[:1])
    assert single.frame.to_dict("records") == [{"age": 50, "city": "Z"}]


def test_object_is_asked_through_its_explain_with_options() -> None:
    class Explainer:
        def explain(self, rows: pd.DataFrame, years: int = 1) -> pd.DataFrame:
            return rows.assign(age=rows["age"] + years)

    assert ask(Explainer(), years=5).frame["age"].tolist() == [25, 35, 45]
    with pytest.raises(AdapterError, match="no adapter knows"):
        source_of(SimpleNamespace(generate_counterfactuals=older))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (pd.DataFrame({"age": [1, 2, 3]}), "no column city"),
        (pd.DataFrame({"age": [1] * 4, "city": "A"}), "4 rows for 3 queries"),
        (pd.DataFrame({"age": [1], "city": "A"}), "1 rows for 3 queries"),
        (pd.DataFrame({"age": [1] * 2, "city": "A"}, index=[7, 7]), "2 rows for 3 queries"),
        (pd.DataFrame({"age": [1], "city": "A", "query": 3}), "positions of queries"),
        (pd.DataFrame({"age": [1], "city": "A", "query": CANARY}), "positions of queries"),
        (np.zeros((3, 5)), r"shape \(3, 5\)"),
        ([{"age": 1}, {"city": CANARY}, None], "different keys"),
        (pd.DataFrame([[1, CANARY, CANARY]] * 3, columns=["age", "city", "city"]), "two columns"),
        (CANARY, "returned str"),
    ],
)
def test_unreadable_answer_is_refused_without_a_value(answer: Any, message: str) -> None:
    with pytest.raises(AdapterError, match=message) as caught:
        ask(lambda rows: answer)
    assert CANARY not in str(caught.value)


def test_exception_loses_text_and_context() -> None:
    def broken(rows: pd.DataFrame) -> None:
        raise KeyError(CANARY)

    with pytest.raises(AdapterError, match="raised KeyError") as caught:
        ask(broken)
    assert CANARY not in str(caught.value)


def test_class_is_refused_and_the_rest_is_not_known() -> None:
    with pytest.raises(AdapterError, match=r"forgotten the \(\)"):
        source_of(pd.DataFrame)
    with pytest.raises(AdapterError, match="no adapter knows") as unknown:
        source_of(4711)
    lines = str(unknown.value).splitlines()[1:-1]
    found: dict[str, Any] = {"pd": pd, "explainer": SimpleNamespace(METHOD=lambda rows: rows[::-1])}
    exec(dedent("\n".join(lines)), found)  # what the message says works as it stands
    assert len(lines) == 3
    assert ask(found["explain"]).frame["age"].tolist() == [40, 30, 20]
    assert "docs/how-to/write-an-adapter.md" in str(unknown.value)


def test_instance_based_is_what_the_explainer_says() -> None:
    def copies(rows: pd.DataFrame) -> pd.DataFrame:
        return rows

    assert not source_of(copies).instance_based
    copies.instance_based = True  # type: ignore[attr-defined]
    assert source_of(copies).instance_based
