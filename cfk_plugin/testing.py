"""Checks of the rules for adapters, for the tests of their authors."""

# ruff: noqa: S101 - a broken rule is an AssertionError, as in any test

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.adapting import (
    AnswerRequest,
    CounterfactualBatch,
    NoneFoundError,
    constraints_of,
    desired_of,
)
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.hookspecs import (
    AdaptContext,
    AnsweringSource,
    CounterfactualSource,
    depends_on_rows,
)
from cfk_plugin.plugins import load_plugins
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import Explanation, Withheld

Arguments = Mapping[str, tuple[Sequence[Any], Mapping[str, Any]]]


def check_adapter(
    explainer: Any,
    queries: pd.DataFrame,
    features: Sequence[str],
    target: str | None = None,
    *,
    plugins: Iterable[Any] = (),
    deterministic: bool = False,
    arguments: Arguments | None = None,
    **options: Any,
) -> CounterfactualBatch:
    """Adapt an explainer, call it, and check the rules that every adapter follows.

    Passing does not prove that the adapter never releases a row.

    Parameters
    ----------
    explainer : object
        The object that a user would give to `protect`.
    queries : DataFrame
        Rows for which the explainer finds counterfactuals; give at least two.
    features, target : sequence of str, and str, optional
        Columns of a counterfactual in the training table's order, and the label column.
    plugins : iterable of object
        Adapters to try before the installed ones.
    deterministic : bool
        Whether the explainer gives the same answer when it is called again.
    arguments : mapping, optional
        How to call the source's methods: method name to a pair of positional arguments (a sequence)
        and named arguments (a mapping). By default, the queries and the `options`.
    **options
        Options of `generate`.

    Returns
    -------
    CounterfactualBatch
        The result of `generate`.

    Raises
    ------
    AssertionError
        If the adapter breaks a rule, which the message names. Exceptions of the adapter itself are
        not caught.
    """
    source = load_plugins(plugins).adapt(explainer, AdaptContext(tuple(features), target))
    _check_declarations(source, explainer)
    batch = _generate(source, queries, options)
    _check_batch(batch, len(queries), features)
    _check_goal(batch, options)
    _check_repr(source, batch)
    if deterministic:
        second = _generate(source, queries, options)
        is_same = batch.frame.equals(second.frame) and np.array_equal(batch.slot, second.slot)
        assert is_same, "the same queries got other counterfactuals"
    for name in source.methods:
        args, named = (arguments or {}).get(name, ((queries,), options))
        with suppress(NoneFoundError):
            _check_method(source, name, args, named, features)
        if isinstance(source, AnsweringSource):
            _check_request(source, name, args, named, features)
    return batch


def _check_declarations(source: CounterfactualSource, explainer: Any) -> None:
    assert isinstance(source.name, str), "`name` must be a short text"
    assert isinstance(source.instance_based, bool), "`instance_based` must be True or False"
    depends_on_rows(source)  # raises if the declaration is invalid
    assert all(map(callable, source.methods.values())), "`methods` must map names to callables"
    forwarded = getattr(source, "forwarded", ())
    assert isinstance(forwarded, (tuple, list)), "`forwarded` must be a tuple of names"
    for name in forwarded:
        assert hasattr(explainer, name), f"the explainer has no {name}, which `forwarded` names"
        assert name not in source.methods, f"{name} is in both `methods` and `forwarded`"


def _generate(
    source: CounterfactualSource, queries: pd.DataFrame, options: Mapping[str, Any]
) -> CounterfactualBatch:
    """Call `generate`, and check that queries and global random state stay as they were."""
    original = queries.copy(deep=True)
    state = _random_state()
    batch = source.generate(queries, **options)
    assert _random_state() == state, "global random state was changed; use `adapting.ask`"
    pd.testing.assert_frame_equal(queries, original, obj="the queries, which must not change,")
    return batch


def _random_state() -> tuple[Any, ...]:
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - only compared
    return random.getstate(), name, np.asarray(keys).tobytes(), rest


def _check_batch(batch: Any, n_queries: int, features: Sequence[str]) -> None:
    """Check that a batch has the features as columns, and at least one slot for each query."""
    assert isinstance(batch, CounterfactualBatch), (
        f"a CounterfactualBatch is expected, not {type(batch).__name__};"
        " CounterfactualBatch.one_each(frame, is_found) makes one"
    )
    assert list(batch.frame.columns) == list(features), (
        "`frame` must have exactly the features, in order"
    )
    slots = np.unique(batch.query)
    assert np.array_equal(slots, np.arange(n_queries)), "`query` must name each query and no other"
    assert (np.diff(batch.query) >= 0).all(), "`query` must be in the order of the queries"


def _check_goal(batch: CounterfactualBatch, options: Mapping[str, Any]) -> None:
    """Check that the batch has the outcome and the constraints that the call names."""
    has_outcome = desired_of(options) is None or batch.desired is not None
    assert has_outcome, "the batch lacks the outcome of the call: pass `desired_of(options)` to it"
    has_constraints = set(constraints_of(options)) <= set(batch.constraints)
    assert has_constraints, "the batch lacks constraints: pass `constraints_of(options)` to it"


def _check_repr(source: CounterfactualSource, batch: CounterfactualBatch) -> None:
    text = repr(source) + repr(batch)
    assert not any(value in text for value in _texts(batch.frame)), "a repr shows a value of a row"


def _check_method(
    source: CounterfactualSource,
    name: str,
    args: Sequence[Any],
    named: Mapping[str, Any],
    features: Sequence[str],
) -> None:
    """Check a method's result, and that `restore` copies no value of a withheld answer."""
    answer = source.methods[name](*args, **named)
    is_triple = isinstance(answer, tuple) and len(answer) == 3
    assert is_triple, f"{name} must return (batch, native_result, queries)"
    batch, native, queries = answer
    _check_batch(batch, len(queries), features)
    restored = source.restore(native, _all_withheld(batch.query.tolist(), features))
    assert native is None or restored is not native, f"`restore` returns the result of {name}"
    text = repr(restored)
    raw_values = _texts(batch.frame) - _texts(queries)
    assert not any(value in text for value in raw_values), (
        f"`restore` copies values of the result of {name}, although every answer is withheld"
    )


def _check_request(
    source: AnsweringSource,
    name: str,
    args: Sequence[Any],
    named: Mapping[str, Any],
    features: Sequence[str],
) -> None:
    """Check that a source can read a method's call and build its result from explanations."""
    request = source.read_request(name, tuple(args), named)
    assert isinstance(request, AnswerRequest), "`read_request` must return an AnswerRequest"
    missing = set(features) - set(request.queries.columns)
    assert not missing, f"`read_request` leaves out the features {', '.join(sorted(missing))}"
    slots = np.repeat(np.arange(len(request.queries)), request.n_answers)
    source.build(name, request, _all_withheld(slots.tolist(), features))


def _all_withheld(queries: Sequence[int], features: Sequence[str]) -> Explanations:
    entries: list[Explanation] = [Withheld(query, "infeasible") for query in queries]
    return Explanations(entries, policy=PrivacyPolicy(), columns=features)


def _texts(rows: pd.DataFrame) -> set[str]:
    """Return the values of rows as text; leave out short texts, which may match by chance."""
    texts = map(str, rows.astype(object).to_numpy().ravel())
    return {text for text in texts if len(text) >= 4} - {"True", "False", "None"}
