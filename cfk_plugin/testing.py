"""The contract that every adapter keeps, as a suite that plugin authors run on theirs."""

# ruff: noqa: S101 - a broken rule is an AssertionError, as in any test

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.hookspecs import AdaptContext
from cfk_plugin.plugins import load_plugins
from cfk_plugin.source import RankingSource

if TYPE_CHECKING:
    from cfk_plugin.source import CounterfactualBatch, CounterfactualSource


def check_adapter(
    explainer: Any,
    queries: pd.DataFrame,
    features: Sequence[str],
    target: str | None = None,
    *,
    plugins: Iterable[Any] = (),
    deterministic: bool = False,
    **options: Any,
) -> CounterfactualBatch:
    """Adapt an explainer, ask it, and check every rule of the contract.

    Parameters
    ----------
    explainer : object
        What a user would give to ``protect``.
    queries : DataFrame
        Factual instances that it has counterfactuals for; two or more show most.
    features : sequence of str
        Columns that a counterfactual has, in the training table's order.
    target : str, optional
        Label column.
    plugins : iterable of object
        Adapters to try before the installed ones.
    deterministic : bool
        Whether the explainer gives the same answer twice.
    **options
        Passed to the source's `generate`.

    Returns
    -------
    CounterfactualBatch
        For further checks of your own.

    Raises
    ------
    AssertionError
        Naming the rule that is broken. No message holds a value.
    """
    context = AdaptContext(tuple(features), target)
    source = load_plugins(plugins).adapt(explainer, context)
    check_source(source)
    explainer_before, queries_before = _visible_state(explainer), queries.copy(deep=True)
    random_before = _random_state()
    batch = source.generate(queries, **options)
    check_random_state_unchanged(random_before)
    check_queries_unchanged(queries, queries_before)
    check_explainer_unchanged(explainer, explainer_before)
    check_batch(batch, len(queries), features)
    check_repr(source, batch, queries)
    if deterministic:
        check_same_answer(batch, source.generate(queries, **options))
    return batch


def check_candidates(
    explainer: Any,
    queries: pd.DataFrame,
    features: Sequence[str],
    target: str | None = None,
    m: int = 3,
    *,
    plugins: Iterable[Any] = (),
    **options: Any,
) -> CounterfactualBatch:
    """Check the rules of `check_adapter` for an adapter's method `candidates`, and that it has m slots per query.

    Parameters
    ----------
    explainer, queries, features, target, plugins
        As for `check_adapter`.
    m : int
        Candidates per query.
    **options
        Passed to the source's `candidates`.

    Returns
    -------
    CounterfactualBatch

    Raises
    ------
    AssertionError
        Naming the rule that is broken.
    """
    source = load_plugins(plugins).adapt(explainer, AdaptContext(tuple(features), target))
    assert isinstance(source, RankingSource), "`candidates(queries, m)` is missing"
    explainer_before, queries_before = _visible_state(explainer), queries.copy(deep=True)
    random_before = _random_state()
    batch = source.candidates(queries, m, **options)
    check_random_state_unchanged(random_before)
    check_queries_unchanged(queries, queries_before)
    check_explainer_unchanged(explainer, explainer_before)
    check_batch(batch, len(queries), features)
    check_repr(source, batch, queries)
    assert (np.bincount(batch.query, minlength=len(queries)) == m).all(), "each query must have m slots, found or not"
    return batch


def check_source(source: CounterfactualSource) -> None:
    """Check what a source says of itself."""
    assert isinstance(source.name, str), "`name` must be a short text"
    assert isinstance(source.instance_based, bool), "`instance_based` must be True or False"
    assert all(callable(method) for method in source.methods.values()), "`methods` must map names to callables"


def check_queries_unchanged(queries: pd.DataFrame, before: pd.DataFrame) -> None:
    """Check that the caller's table is as it was: columns, index, dtypes, values."""
    same = queries.equals(before) and queries.index.equals(before.index) and list(queries) == list(before)
    assert same, "the queries were changed; give the explainer a copy"
    assert (queries.dtypes == before.dtypes).all(), "the queries' dtypes were changed; give the explainer a copy"


def check_explainer_unchanged(explainer: Any, before: tuple[Any, ...]) -> None:
    """Check that the explainer has the attributes it had, and the same content as far as pickle shows it."""
    names, content = _visible_state(explainer)
    assert names == before[0], "the explainer gained or lost attributes; call a copy of it"
    assert content == before[1], "the explainer's content was changed; call a copy of it"


def check_random_state_unchanged(before: tuple[Any, ...]) -> None:
    """Check that neither `random` nor NumPy's global generator moved."""
    assert _random_state() == before, "global random state was changed; call the explainer through `source.ask`"


def check_batch(batch: CounterfactualBatch, queries: int, features: Sequence[str]) -> None:
    """Check columns, and that every slot belongs to a query and every query has a slot."""
    assert list(batch.frame.columns) == list(features), "`frame` must hold exactly the features, in order"
    assert len(batch.slot) == len(batch.frame), "`slot` must have one entry per row"
    assert len(set(batch.slot.tolist())) == len(batch.slot), "two rows answer the same slot"
    assert set(batch.slot.tolist()) <= set(range(len(batch.query))), "a slot is no position in `query`"
    assert set(batch.query.tolist()) == set(range(queries)), "`query` must name each query, found or not, and no other"
    assert (np.diff(batch.query) >= 0).all(), "`query` must be in the order of the queries"


def check_repr(source: CounterfactualSource, batch: CounterfactualBatch, queries: pd.DataFrame) -> None:
    """Check that no `repr` shows a value: texts and numbers of four or more characters are looked for."""
    shown = repr(source) + repr(batch)
    values = {str(value) for table in (queries, batch.frame) for column in table for value in table[column]}
    leaked = [value for value in values - {"True", "False", "None"} if len(value) >= 4 and value in shown]
    assert not leaked, "a repr shows a value of a row"


def check_same_answer(first: CounterfactualBatch, second: CounterfactualBatch) -> None:
    """Check that two calls gave the same counterfactuals in the same slots."""
    same = np.array_equal(first.slot, second.slot) and np.array_equal(first.query, second.query)
    same = same and first.frame.equals(second.frame)
    assert same, "the same question got another answer"


def _random_state() -> tuple[Any, ...]:
    legacy = np.random.get_state(legacy=True)  # noqa: NPY002 - looked at, not used
    return random.getstate(), tuple(part.tobytes() if isinstance(part, np.ndarray) else part for part in legacy)


def _visible_state(explainer: Any) -> tuple[Any, ...]:
    names = tuple(sorted(getattr(explainer, "__dict__", {})))
    try:
        return names, pickle.dumps(explainer)
    except Exception:  # noqa: BLE001 - lambdas and explainers that refuse: names must do
        return names, None
