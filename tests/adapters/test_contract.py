"""The contract of `cfk_plugin.testing`, kept by every adapter with the real library behind it; and
its rules bite.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from applicants import DICE, FEATURES, NICE, QUERIES, ROWS, dice_of, label, nice_of
from cfk_adapters import dice, function, nearest, nice
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin.adapting import CounterfactualBatch, ask, constraints_of, desired_of
from cfk_plugin.hookspecs import hookimpl
from cfk_plugin.testing import check_adapter

ADAPTERS = [dice, nice, nearest, function]


def richer(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(income=frame["income"] + np.random.random(len(frame)) * random.random())  # noqa: NPY002 - what the adapter has to keep


EXPLAINERS: dict[str, Callable[[], Any]] = {
    **{f"dice {method}": partial(dice_of, method) for method in DICE},
    **{f"nice {optimization}": partial(nice_of, optimization) for optimization in NICE},
    "nearest": partial(NearestUnlikeNeighbour, ROWS, label, features=FEATURES),
    "function": lambda: richer,
    "explain": lambda: SimpleNamespace(explain=richer),
}


@pytest.mark.parametrize("name", EXPLAINERS)
def test_the_contract_is_kept_with_the_real_library(name: str) -> None:
    explainer, ask, fast, queries = EXPLAINERS[name](), {}, {}, QUERIES
    if name.startswith("dice"):
        queries = QUERIES.head(2)
        fast = {"dice genetic": {"maxiterations": 1}, "dice random": {"random_seed": 3}}.get(
            name, {}
        )
        fast["posthoc_sparsity_algorithm"] = "binary"  # the usual one asks the model at every step
        short = {"total_CFs": 10, **fast}
        ten = pd.concat([queries] * 5, ignore_index=True)  # the fewest that DiCE takes
        arguments = {
            "local_feature_importance": ([QUERIES[:1]], short),
            "feature_importance": ([QUERIES[:1]], {**short, "global_importance": False}),
            "global_feature_importance": ([ten], {**short, "posthoc_sparsity_param": None}),
        }
        ask = {"arguments": arguments, "rows": ROWS[FEATURES], "total_CFs": 2, **fast}
    batch = check_adapter(
        explainer, queries, FEATURES, "approved", plugins=ADAPTERS, deterministic=True, **ask
    )
    assert len(batch.frame) >= len(queries)


# --- a good adapter, and others that break one rule -----------------------------------------------

ASKED = pd.DataFrame({"age": [2511, 4022, 6133], "income": [3044, 9055, 5566]})
NAMES = ["age", "income"]


class Library:
    """An explainer whose answers can be told from everything else."""

    version, rows = "1.2", ASKED + 10_000

    def __init__(self) -> None:
        self.kept: list[int] = []

    def answer(self, queries: pd.DataFrame) -> pd.DataFrame:
        return queries[NAMES] + 10_000

    def describe(self) -> str:
        return f"it starts from {self.rows['age'].iloc[0]}"

    def neighbours(self, queries: pd.DataFrame) -> list[Any]:
        return self.answer(queries).to_numpy().tolist()


class Good:
    """An adapter that keeps every rule; tests break one."""

    name, instance_based, forwarded = "library", True, ("version",)

    def __init__(self) -> None:
        self.methods: dict[str, Any] = {"answer": self.answer}

    @hookimpl
    def cfk_adapt(self, explainer: Any) -> Any:
        self.explainer = explainer
        return self

    def generate(self, queries: pd.DataFrame) -> CounterfactualBatch:
        return CounterfactualBatch.one_each(
            self.explainer.answer(queries), np.ones(len(queries), dtype=bool)
        )

    def answer(self, queries: pd.DataFrame) -> Any:
        batch = self.generate(queries)
        return batch, batch.frame, queries

    def restore(self, native: Any, explanations: Any) -> Any:
        return [entry.to_dict() for entry in explanations]

    def __repr__(self) -> str:
        return "Good()"


class Shown:
    """A result that shows what it is made of."""

    def __init__(self, native: Any) -> None:
        self._text = native.to_string()

    def __repr__(self) -> str:
        return self._text


def told(explanations: Any, native: Any, kept: str) -> list[Any]:
    """Keep the native rows of the entries that are released, or that are withheld."""
    rows = zip(explanations, native.to_dict("records"), strict=True)
    return [
        {**row, **entry.to_dict(), "was": row} if entry.status == kept else entry.to_dict()
        for entry, row in rows
    ]


def takes_more(self: Good, queries: pd.DataFrame, *, needed: int) -> Any:
    return Good.answer(self, queries)


def doing(
    act: Callable[[pd.DataFrame, Any], Any],
) -> Callable[[Good, pd.DataFrame], CounterfactualBatch]:
    """Answer, after something that an adapter must not do."""
    return lambda self, queries: (act(queries, self.explainer), Good.generate(self, queries))[1]


def giving(
    answer: Callable[[pd.DataFrame], pd.DataFrame],
) -> Callable[[Good, pd.DataFrame], CounterfactualBatch]:
    return lambda self, queries: CounterfactualBatch.one_each(
        answer(queries), np.ones(len(queries), dtype=bool)
    )


KEEPS = "`restore` keeps values"


def failing(*_: Any, **__: Any) -> Any:
    raise KeyError(ASKED.to_string())


def doubting(queries: pd.DataFrame) -> None:
    assert not len(queries), queries.to_string()


BROKEN: list[tuple[str, Any, str]] = [
    (
        "generate",
        lambda _, queries: queries + 1,
        "CounterfactualBatch is due, not DataFrame; .*one_each",
    ),
    ("generate", lambda _, queries: None, "CounterfactualBatch is due, not NoneType"),
    ("generate", failing, r"`generate` raised KeyError in test_contract.py, line \d+$"),
    (
        "generate",
        lambda _, q: doubting(q),
        r"`generate` raised AssertionError in test_contract.py, line \d+$",
    ),
    (
        "generate",
        lambda _, q: ask(failing),
        "`generate` raised ExplainerError: the explainer raised KeyError",
    ),
    (
        "generate",
        lambda _, q: CounterfactualBatch(q, np.arange(9), np.arange(3)),
        "one slot per row",
    ),
    (
        "cfk_adapt",
        hookimpl(lambda self, explainer: failing()),
        "`cfk_adapt` raised PluginError: .*KeyError",
    ),
    (
        "cfk_adapt",
        hookimpl(lambda self, explainer: object()),
        "is no CounterfactualSource: it has no name and no",
    ),
    ("cfk_adapt", hookimpl(lambda self, explainer: None), "no adapter knows an explainer"),
    ("instance_based", "yes", "`instance_based` must be True or False"),
    ("__repr__", failing, "`__repr__` raised KeyError"),
    ("generate", doing(lambda queries, _: queries.insert(0, "new", 1)), "queries were changed"),
    (
        "generate",
        doing(lambda q, _: q.__setitem__("age", q["age"].astype(float))),
        "queries were changed|dtypes",
    ),
    (
        "generate",
        doing(lambda _, explainer: setattr(explainer, "last", 1)),
        "gained or lost attributes",
    ),
    ("generate", doing(lambda _, explainer: explainer.kept.append(1)), "content was changed"),
    ("generate", doing(lambda *_: random.random()), "random state"),
    ("generate", doing(lambda *_: np.random.random()), "random state"),  # noqa: NPY002 - what the adapter has to keep
    (
        "generate",
        lambda _, q: CounterfactualBatch(q[:1], np.array([0]), np.array([0, 1])),
        "name each query",
    ),
    (
        "generate",
        lambda _, q: CounterfactualBatch(q, np.arange(3), np.array([2, 1, 0])),
        "order of the queries",
    ),
    ("generate", giving(lambda queries: queries.assign(approved=1)), "exactly the features"),
    (
        "generate",
        giving(lambda queries: queries.assign(age=np.random.default_rng().random(3))),
        "another answer",
    ),
    ("__repr__", lambda self: f"Talkative({ASKED['age'].iloc[0]})", "repr shows a value"),
    ("restore", lambda self, native, explanations: native, "gives back what answer returned"),
    ("restore", lambda self, native, explanations: [*explanations, native], KEEPS),
    ("restore", lambda self, native, explanations: f"about {native['age'].iloc[1]}", KEEPS),
    # empty, and a view of all rows
    ("restore", lambda self, native, explanations: native.to_numpy()[:0], KEEPS),
    ("restore", lambda self, native, explanations: lambda: native, KEEPS),
    ("restore", lambda self, native, explanations: SimpleNamespace(result=[Shown(native)]), KEEPS),
    (
        "restore",
        lambda self, native, found: told(found, native, "withheld"),
        "where all was withheld",
    ),
    (
        "restore",
        lambda self, native, found: told(found, native, "released"),
        "where all was released as something",
    ),
    (
        "restore",
        lambda self, native, found: [float(e.cells()["age"]) for e in found],
        "`restore` raised",
    ),
    ("forwarded", ("version", "rows"), "`forwarded` names rows, which leads to values"),
    ("forwarded", ("neighbours",), "`forwarded` names neighbours, which leads to values"),
    ("forwarded", ("no_such_name",), "which the explainer does not have"),
    ("forwarded", "version", "`forwarded` must be a tuple of names"),
    ("forwarded", ("answer",), "`forwarded` names what is protected: answer"),
    (
        "answer",
        lambda self, queries: self.generate(queries),
        r"answer must return \(batch, native_result, queries\)",
    ),
    ("answer", takes_more, "answer raised TypeError; say in `arguments` how it is called"),
]


def other(name: str, value: Any) -> Good:
    """Return an adapter that keeps every rule but one."""
    adapter: Good = type("Other", (Good,), {name: value})()
    return adapter


def checked(adapter: Good, explainer: Library | None = None, **options: Any) -> CounterfactualBatch:
    queries = ASKED.copy()
    return check_adapter(
        explainer or Library(), queries, NAMES, plugins=[adapter], deterministic=True, **options
    )


def test_a_good_adapter_passes() -> None:
    assert len(checked(Good()).frame) == 3


@pytest.mark.parametrize(("name", "value", "rule"), BROKEN)
def test_an_adapter_is_told_the_rule_that_it_breaks_and_no_value(
    name: str, value: Any, rule: str
) -> None:
    with pytest.raises(AssertionError, match=rule) as broken:
        checked(other(name, value))
    values = np.concatenate([ASKED, ASKED + 10_000]).ravel()
    assert not [value for value in values if str(value) in str(broken.value)]


@pytest.mark.parametrize(
    ("said", "rule"),
    [({"desired": 1}, "names an outcome"), ({"features_to_vary": ["age"]}, "says what may change")],
)
def test_a_goal_and_constraints_of_a_call_must_be_passed_on(
    said: dict[str, Any], rule: str
) -> None:
    def saying(told: bool) -> Any:
        def generate(self: Good, queries: pd.DataFrame, **options: Any) -> CounterfactualBatch:
            known = (desired_of(options), constraints_of(options)) if told else ()
            return CounterfactualBatch.one_each(
                self.explainer.answer(queries), np.ones(3, dtype=bool), *known
            )

        return other("generate", generate)

    own = {"arguments": {"answer": ([ASKED], {})}, **said}
    for told in (True, False):
        adapter = saying(told)
        adapter.methods = {}
        with nullcontext() if told else pytest.raises(AssertionError, match=rule):
            checked(adapter, **own)


def test_queries_that_cannot_be_asked_are_named() -> None:
    for queries, reason in (
        (ASKED.to_numpy(), "as a DataFrame, not as ndarray"),
        (ASKED[["age"]], "lack features: income"),
    ):
        with pytest.raises(AssertionError, match=reason):
            check_adapter(Library(), queries, NAMES, plugins=[Good()])


def test_methods_are_called_as_the_author_says() -> None:
    checked(other("answer", takes_more), arguments={"answer": ([ASKED], {"needed": 1})})
    with pytest.raises(AssertionError, match="`forwarded` names describe, which leads to values"):
        checked(other("forwarded", ("describe",)), arguments={"describe": ([], {})})


def test_a_querys_own_number_in_single_precision_is_no_others() -> None:
    class Single(Library):
        def answer(self, queries: pd.DataFrame) -> pd.DataFrame:
            return queries.assign(
                age=queries["age"] + 10_000, income=queries["income"].astype("float32")
            )

    for name, keeps in (("income", True), ("age", False)):
        plugin = other("restore", lambda self, native, _, name=name: native[name].tolist())
        with nullcontext() if keeps else pytest.raises(AssertionError, match=KEEPS):
            check_adapter(Single(), ASKED + 0.1, NAMES, plugins=[plugin])


def test_training_rows_are_looked_for_where_they_are_given() -> None:
    class Far(Library):
        rows = ASKED + 77_000

    plugin = other("forwarded", ("version", "rows"))
    checked(plugin, Far())
    with pytest.raises(AssertionError, match="`forwarded` names rows"):
        checked(plugin, Far(), rows=ASKED + 77_000)
