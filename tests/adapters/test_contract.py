"""The contract of `cfk_plugin.testing`, kept by every adapter with the real library behind it; and its rules bite."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from applicants import DICE, FEATURES, NICE, QUERIES, ROWS, dice_of, label, nice_of
from cfk_adapters import dice, function, nearest, nice
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin.hookspecs import CounterfactualBatch, hookimpl
from cfk_plugin.testing import check_adapter, check_candidates

ADAPTERS = [dice, nice, nearest, function]


def richer(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(income=frame["income"] + np.random.random(len(frame)) * random.random())  # noqa: NPY002 - what the adapter has to keep


EXPLAINERS: dict[str, Callable[[], Any]] = {
    **{f"dice {method}": partial(dice_of, method) for method in DICE},
    **{f"nice {optimization}": partial(nice_of, optimization) for optimization in NICE},
    "nearest": partial(NearestUnlikeNeighbour, ROWS, label, features=FEATURES),
    "function": lambda: richer,
    "explain": lambda: SimpleNamespace(explain=richer),
    "generate": lambda: SimpleNamespace(generate_counterfactuals=richer),
}


@pytest.mark.parametrize("name", EXPLAINERS)
def test_the_contract_is_kept_with_the_real_library(name: str) -> None:
    explainer, ask, queries = EXPLAINERS[name](), {}, QUERIES
    if name.startswith("dice"):
        queries = QUERIES.head(2)
        fast = {"dice genetic": {"maxiterations": 2}, "dice random": {"random_seed": 3}}.get(name, {})
        short = {"total_CFs": 10, **fast}
        ten = pd.concat([queries] * 5, ignore_index=True)  # the fewest that DiCE takes
        arguments = {
            "local_feature_importance": ([QUERIES[:1]], short),
            "feature_importance": ([QUERIES[:1]], {**short, "global_importance": False}),
            "global_feature_importance": ([ten], {**short, "posthoc_sparsity_param": None}),
        }
        ask = {"arguments": arguments, "rows": ROWS[FEATURES], "total_CFs": 2, **fast}
    batch = check_adapter(explainer, queries, FEATURES, "approved", plugins=ADAPTERS, deterministic=True, **ask)
    assert len(batch.frame) >= len(queries)
    if name.startswith(("dice", "nearest")):
        ranked = check_candidates(explainer, queries, FEATURES, "approved", plugins=ADAPTERS)
        assert len(ranked.frame) > len(queries)


def test_candidates_that_are_missing_or_too_few_are_named() -> None:
    with pytest.raises(AssertionError, match="is missing"):
        check_candidates(richer, QUERIES, FEATURES, plugins=ADAPTERS)

    class One(Careless):
        def candidates(self, queries: pd.DataFrame, m: int) -> CounterfactualBatch:
            return self.generate(queries)

    with pytest.raises(AssertionError, match="m slots"):
        check_candidates(object(), QUERIES, FEATURES, plugins=[One(lambda *_: None)])
    check_candidates(object(), QUERIES, FEATURES, m=1, plugins=[One(lambda *_: None)])


class Careless:
    """An adapter that breaks the rule a test asks it to break."""

    name, instance_based = "careless", False

    def __init__(self, act: Callable[[pd.DataFrame, Any], CounterfactualBatch | None]) -> None:
        self.act = act
        self.methods: dict[str, Any] = {}

    @hookimpl
    def cfk_adapt(self, explainer: Any) -> Careless:
        self.explainer = explainer
        return self

    def restore(self, native: Any, explanations: Any) -> None: ...

    def generate(self, queries: pd.DataFrame) -> CounterfactualBatch:
        done = self.act(queries, self.explainer)
        if isinstance(done, CounterfactualBatch):
            return done
        return CounterfactualBatch.one_each(queries[FEATURES], np.ones(len(queries), dtype=bool))


def drawn(queries: pd.DataFrame, _: Any) -> CounterfactualBatch:
    ages = np.random.default_rng().random(len(queries))
    return CounterfactualBatch.one_each(queries.assign(age=ages), np.ones(3, dtype=bool))


@pytest.mark.parametrize(
    ("act", "rule"),
    [
        (lambda queries, _: queries.insert(0, "new", 1), "queries were changed"),
        (lambda queries, _: queries.__setitem__("age", queries["age"].astype(float)), "queries were changed|dtypes"),
        (lambda _, explainer: setattr(explainer, "last", 1), "gained or lost attributes"),
        (lambda _, explainer: explainer.kept.append(1), "content was changed"),
        (lambda *_: random.random() and None, "random state"),
        (lambda *_: np.random.random() and None, "random state"),  # noqa: NPY002 - what the adapter has to keep
        (lambda q, _: CounterfactualBatch(q[:1], np.array([0]), np.array([0, 1])), "name each query"),
        (lambda q, _: CounterfactualBatch(q, np.arange(3), np.array([2, 1, 0])), "order of the queries"),
        (
            lambda q, _: CounterfactualBatch.one_each(q.assign(approved=1), np.ones(3, dtype=bool)),
            "exactly the features",
        ),
        (drawn, "another answer"),
    ],
)
def test_a_careless_adapter_is_told_the_rule_it_breaks(act: Any, rule: str) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_adapter(SimpleNamespace(kept=[]), QUERIES.copy(), FEATURES, plugins=[Careless(act)], deterministic=True)


def test_a_repr_with_a_value_is_found() -> None:
    class Talkative(Careless):
        def __repr__(self) -> str:
            return f"Talkative({QUERIES['job'].iloc[0]})"

    with pytest.raises(AssertionError, match="repr shows a value") as caught:
        check_adapter(SimpleNamespace(), QUERIES, FEATURES, plugins=[Talkative(lambda *_: None)])
    assert QUERIES["job"].iloc[0] not in str(caught.value)
