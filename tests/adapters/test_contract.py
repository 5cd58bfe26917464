"""Every adapter follows the contract of `cfk_plugin.testing` with its real library."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from applicants import FEATURES, QUERIES, ROWS, dice_of, label, nice_of
from cfk_adapters import dice, function, nearest, nice
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin.adapting import CounterfactualBatch, constraints_of, desired_of
from cfk_plugin.hookspecs import hookimpl
from cfk_plugin.testing import check_adapter

ADAPTERS = [dice, nice, nearest, function]


def richer(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(income=frame["income"] + np.random.random(len(frame)) * random.random())  # noqa: NPY002 - what the adapter has to keep


EXPLAINERS: dict[str, Callable[[], Any]] = {
    **{f"dice {method}": partial(dice_of, method) for method in ("random", "kdtree")},
    "nice": partial(nice_of, "sparsity"),
    "nearest": partial(NearestUnlikeNeighbour, ROWS, label, features=FEATURES),
    "function": lambda: richer,
    "explain": lambda: SimpleNamespace(explain=richer),
}
FAST: dict[str, dict[str, Any]] = {
    "dice random": {"random_seed": 3, "sample_size": 100},
    "dice kdtree": {},
}


@pytest.mark.parametrize("name", EXPLAINERS)
def test_adapter_follows_the_contract(name: str) -> None:
    """With the real library, and each of its methods."""
    queries, options = QUERIES, dict[str, Any]()
    if name.startswith("dice"):
        queries = QUERIES.head(2)
        fast = FAST[name]
        short = {"total_CFs": 10, "posthoc_sparsity_param": None, **fast}
        ten = pd.concat([queries] * 5, ignore_index=True)  # the fewest that DiCE takes
        arguments = {
            "local_feature_importance": ([QUERIES[:1]], short),
            "feature_importance": ([QUERIES[:1]], {**short, "global_importance": False}),
            "global_feature_importance": ([ten], short),
        }
        # The usual sparsity step asks the model at every value.
        fast = {**fast, "posthoc_sparsity_algorithm": "binary"}
        options = {"arguments": arguments, "total_CFs": 2, **fast}
    batch = check_adapter(
        EXPLAINERS[name](),
        queries,
        FEATURES,
        "approved",
        plugins=ADAPTERS,
        deterministic=True,
        **options,
    )
    assert len(batch.frame) >= len(queries)


# --- a good adapter, and others that break one rule -----------------------------------------------

AGES = pd.DataFrame({"age": [2511, 4022, 6133], "income": [3044, 9055, 5566]})
NAMES = ["age", "income"]


class Library:
    """An explainer whose answers are far from the queries."""

    version = "1.2"

    def answer(self, queries: pd.DataFrame) -> pd.DataFrame:
        return queries[NAMES] + 10_000


class Good:
    """An adapter that follows every rule; tests break one."""

    name = "library"
    instance_based = True
    forwarded = ("version",)

    def __init__(self) -> None:
        self.methods: dict[str, Any] = {"answer": self.answer}

    @hookimpl
    def cfk_adapt(self, explainer: Any) -> Any:
        self.explainer = explainer
        return self

    def generate(self, queries: pd.DataFrame, **options: Any) -> CounterfactualBatch:
        is_found = np.ones(len(queries), dtype=bool)
        answers = self.explainer.answer(queries)
        constraints = constraints_of(options)
        return CounterfactualBatch.one_each(answers, is_found, desired_of(options), constraints)

    def answer(self, queries: pd.DataFrame, **options: Any) -> Any:
        batch = self.generate(queries)
        return batch, batch.frame, queries

    def restore(self, native: Any, explanations: Any) -> Any:
        return [entry.to_dict() for entry in explanations]

    def __repr__(self) -> str:
        return "Good()"


def generate_after(act: Callable[[pd.DataFrame], Any]) -> Callable[..., CounterfactualBatch]:
    """Return a `generate` that first does something that an adapter must not do."""

    def generate(self: Good, queries: pd.DataFrame) -> CounterfactualBatch:
        act(queries)
        return Good.generate(self, queries)

    return generate


def generate_rows(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[..., Any]:
    """Return a `generate` that answers with changed queries."""

    def generate(self: Good, queries: pd.DataFrame) -> CounterfactualBatch:
        return CounterfactualBatch.one_each(change(queries), np.ones(len(queries), dtype=bool))

    return generate


def generate_without_goal(self: Good, queries: pd.DataFrame, **options: Any) -> CounterfactualBatch:
    return Good.generate(self, queries)


BROKEN: list[tuple[str, Any, str]] = [
    ("generate", lambda _, queries: queries + 1, "CounterfactualBatch is expected, not DataFrame"),
    ("generate", generate_rows(lambda rows: rows.assign(approved=1)), "exactly the features"),
    (
        "generate",
        generate_rows(lambda rows: rows.assign(age=np.random.default_rng().random(3))),
        "other counterfactuals",
    ),
    (
        "generate",
        lambda _, rows: CounterfactualBatch(rows[:1], np.array([0]), np.array([0, 1])),
        "name each query",
    ),
    (
        "generate",
        lambda _, rows: CounterfactualBatch(rows, np.arange(3), np.array([2, 1, 0])),
        "order of the queries",
    ),
    ("generate", generate_after(lambda rows: rows.insert(0, "new", 1)), "which must not change"),
    ("generate", generate_after(lambda _: random.random()), "random state"),
    ("generate", generate_after(lambda _: np.random.random()), "random state"),  # noqa: NPY002 - what the adapter has to keep
    ("instance_based", "yes", "`instance_based` must be True or False"),
    ("forwarded", "version", "`forwarded` must be a tuple of names"),
    ("forwarded", ("no_such_name",), "the explainer has no no_such_name"),
    ("forwarded", ("answer",), "answer is in both"),
    ("__repr__", lambda self: f"Good({AGES['age'].iloc[0] + 10_000})", "repr shows a value"),
    ("answer", lambda self, queries: self.generate(queries), "answer must return"),
    ("restore", lambda self, native, explanations: native, "`restore` returns the result"),
    ("restore", lambda self, native, explanations: [native], "`restore` copies values"),
]


def check(adapter: Good, **options: Any) -> CounterfactualBatch:
    return check_adapter(
        Library(), AGES.copy(), NAMES, plugins=[adapter], deterministic=True, **options
    )


def broken(name: str, value: Any) -> Good:
    """Return an adapter that follows every rule but one."""
    adapter: Good = type("Broken", (Good,), {name: value})()
    return adapter


def test_good_adapter_passes() -> None:
    """It answers with the outcome and the constraints that it is told."""
    assert len(check(Good(), desired=1, features_to_vary=["age"]).frame) == 3


@pytest.mark.parametrize(("name", "value", "rule"), BROKEN)
def test_broken_rule_is_named(name: str, value: Any, rule: str) -> None:
    """Each adapter breaks one."""
    with pytest.raises(AssertionError, match=rule):
        check(broken(name, value))


@pytest.mark.parametrize(
    ("options", "rule"),
    [({"desired": 1}, "lacks the outcome"), ({"features_to_vary": ["age"]}, "lacks constraints")],
)
def test_goal_has_to_be_passed_on(options: dict[str, Any], rule: str) -> None:
    """And so have constraints."""
    with pytest.raises(AssertionError, match=rule):
        check(broken("generate", generate_without_goal), **options)
