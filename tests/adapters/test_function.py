"""The adapter for callables and objects: every shape of answer, and what cannot be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_adapters import function
from cfk_plugin import PrivacyPolicy
from cfk_plugin.adapting import CounterfactualBatch
from cfk_plugin.errors import AdapterError
from cfk_plugin.hookspecs import AdaptContext
from cfk_plugin.plugins import load_plugins
from worlds import World

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


SHAPES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "a table": older,
    "a table without an index": lambda rows: older(rows).reset_index(drop=True),
    "further columns": lambda rows: older(rows)[["city", "age"]].assign(label=1, score=0.5),
    "an array": lambda rows: older(rows).to_numpy(dtype=object),
    "dicts": lambda rows: older(rows).to_dict("records"),
    "a column of queries": lambda rows: older(rows).assign(query=range(len(rows)))[::-1],
    "an index of queries": lambda rows: older(rows).set_index(pd.Index([0, 1, 2], name="query")),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_answers_of_any_shape_are_read(shape: str) -> None:
    """One for each query."""
    batch = ask(SHAPES[shape])
    assert batch.query.tolist() == [0, 1, 2]
    answers = batch.frame.set_axis(batch.query[batch.slot]).sort_index()
    assert answers["age"].tolist() == [21, 31, 41]
    assert answers["city"].tolist() == ["A", "B", "C"]
    assert list(batch.frame.columns) == FEATURES


@pytest.mark.parametrize(
    "nothing", [None, pd.DataFrame(), pd.DataFrame(columns=FEATURES), [], [None] * 3]
)
def test_no_answer_is_no_error(nothing: Any) -> None:
    """Every query is still listed."""
    batch = ask(lambda rows: nothing)
    assert len(batch.frame) == 0
    assert batch.query.tolist() == [0, 1, 2]
    assert list(batch.frame.columns) == FEATURES


SOME: list[Callable[[pd.DataFrame], Any]] = [
    lambda rows: older(rows)[rows["age"] != 30],
    lambda rows: older(rows)[rows["age"] != 30].reindex(rows.index),
    lambda rows: [{"age": 21, "city": "A"}, None, {"age": 41, "city": "C"}],
]


@pytest.mark.parametrize("explainer", SOME)
def test_missing_answer_leaves_its_slot_open(explainer: Any) -> None:
    """A row is left out, has missing values, or is None."""
    batch = ask(explainer)
    assert batch.slot.tolist() == [0, 2]
    assert batch.frame["age"].tolist() == [21, 41]


def test_several_answers_have_several_slots() -> None:
    """A Series answers one query."""
    rows = pd.DataFrame({"query": [2, 0, 2, 2], "age": [1, 2, 3, 4], "city": "A"})
    batch = ask(lambda _: rows)
    assert (batch.query.tolist(), batch.slot.tolist()) == ([0, 1, 2, 2, 2], [2, 0, 3, 4])
    single = ask(lambda rows: pd.Series({"age": 50, "city": "Z"}), QUERIES[:1])
    assert single.frame.to_dict("records") == [{"age": 50, "city": "Z"}]


def test_object_explains_with_options() -> None:
    """Another method is not tried."""

    class Explainer:
        instance_based = True

        def explain(self, rows: pd.DataFrame, years: int = 1) -> pd.DataFrame:
            return rows.assign(age=rows["age"] + years)

    assert ask(Explainer(), years=5).frame["age"].tolist() == [25, 35, 45]
    assert source_of(Explainer()).instance_based
    assert not source_of(older).instance_based
    with pytest.raises(AdapterError, match="no adapter knows"):
        source_of(SimpleNamespace(generate_counterfactuals=older))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (pd.DataFrame({"age": [1, 2, 3]}), "no column city"),
        (pd.DataFrame({"age": [1] * 4, "city": "A"}), "4 rows for 3 queries"),
        (pd.DataFrame({"age": [1] * 2, "city": "A"}, index=[7, 7]), "2 rows for 3 queries"),
        (pd.DataFrame({"age": [1], "city": "A", "query": 3}), "positions of queries"),
        (pd.DataFrame({"age": [1], "city": "A", "query": CANARY}), "positions of queries"),
        (np.zeros((3, 5)), r"shape \(3, 5\)"),
        ([{"age": 1}, {"city": CANARY}, None], "different keys"),
        (pd.DataFrame([[1, CANARY, CANARY]] * 3, columns=["age", "city", "city"]), "two columns"),
        (CANARY, "returned str"),
    ],
)
def test_unreadable_answer_is_refused(answer: Any, message: str) -> None:
    """No value of it is quoted."""
    with pytest.raises(AdapterError, match=message) as caught:
        ask(lambda rows: answer)
    assert CANARY not in str(caught.value)


def test_class_is_not_an_explainer() -> None:
    """Somebody forgot to make an object of it."""
    with pytest.raises(AdapterError, match=r"forgotten the \(\)"):
        source_of(pd.DataFrame)


def test_unknown_object_gets_working_advice() -> None:
    """The three lines in the message work as they stand."""
    with pytest.raises(AdapterError, match="no adapter knows") as unknown:
        source_of(4711)
    lines = str(unknown.value).splitlines()[1:-1]
    names: dict[str, Any] = {"pd": pd, "explainer": SimpleNamespace(METHOD=lambda rows: rows[::-1])}
    exec(dedent("\n".join(lines)), names)
    assert ask(names["explain"]).frame["age"].tolist() == [40, 30, 20]


@pytest.mark.parametrize("guarantee", ["catalogue", "lookup"])
def test_call_asks_explainer_once(guarantee: Any, applicants: World) -> None:
    """Both may be behind HTTP: a call asks the model twice at most."""
    n_calls = Counter[str]()

    def explain(queries: pd.DataFrame) -> pd.DataFrame:
        n_calls["explainer"] += 1
        return applicants.accepted.head(len(queries))

    def predict(rows: pd.DataFrame) -> Any:
        n_calls["model"] += 1
        return applicants.model.predict(rows)

    explain.depends_on_rows = "no"  # type: ignore[attr-defined]
    policy = PrivacyPolicy(k=4, guarantee=guarantee, min_pureness=0)
    private = applicants.protect(explain, model=predict, policy=policy)
    private.explain(applicants.refused)  # what is asked once for a fit
    for queries in (applicants.refused.head(1), applicants.refused):
        n_calls.clear()
        private.explain(queries)
        assert n_calls["explainer"] == 1
        assert n_calls["model"] <= 2
