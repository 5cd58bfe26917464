"""The contract that every adapter keeps, as a suite that plugin authors run on theirs."""

# ruff: noqa: S101 - a broken rule is an AssertionError, as in any test

from __future__ import annotations

import gc
import pickle
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import extract_tb
from types import CodeType, FunctionType, ModuleType
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
from cfk_plugin.data.region import Region
from cfk_plugin.errors import CFKError, quiet
from cfk_plugin.hookspecs import (
    AdaptContext,
    AnsweringSource,
    CounterfactualSource,
    depends_on_rows,
)
from cfk_plugin.plugins import load_plugins
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import (
    Certificate,
    Explanation,
    GeneralizedCounterfactual,
    RegionRecount,
    Withheld,
)

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
    rows: pd.DataFrame | None = None,
    **options: Any,
) -> CounterfactualBatch:
    """Adapt an explainer, ask it, and check every rule of the contract.

    Calls everything in the source's `methods` and `forwarded`, and searches what comes out for
    values of the explainer's counterfactuals, and of training `rows`, that are not among the
    queries: texts and numbers of four or more characters, and whole rows. So give queries whose
    counterfactuals have values that occur nowhere else. What is not found this way may still be
    there.

    Parameters
    ----------
    explainer : object
        What a user would give to ``protect``.
    queries : DataFrame
        Factual instances that it has counterfactuals for; two or more show most.
    features, target : sequence of str, and str, optional
        Columns that a counterfactual has, in the training table's order, and the label column.
    plugins : iterable of object
        Adapters to try before the installed ones.
    deterministic : bool
        Whether the explainer gives the same answer twice.
    arguments : mapping, optional
        How to call methods that are mapped or forwarded: by name, a sequence of arguments and a
        mapping of named ones. Default of each: the queries and the `options`, as for `generate`.

    Raises
    ------
    AssertionError
        Naming the rule that is broken. No message holds a value.
    """
    source = _adapted(explainer, queries, features, target, plugins)
    with _calling("`name`, `instance_based`, `methods` or `forwarded`"):
        forwarded = _check_source(source)
    with _unchanged(explainer, queries), _calling("`generate`"):
        batch = source.generate(queries, **options)
    _check_batch(source, batch, queries, features, options)
    with _unchanged(explainer, queries):
        if deterministic:
            with _calling("`generate`, asked again,"):
                again = source.generate(queries, **options)
            same = np.array_equal(batch.slot, again.slot) and np.array_equal(
                batch.query, again.query
            )
            same = same and batch.frame.equals(again.frame)
            assert same, "the same question got another answer"
        frames = [batch.frame, *([] if rows is None else [rows[list(features)]])]

        def called(name: str, method: Callable[..., Any]) -> Any:
            args, named = (arguments or {}).get(name, ((queries,), options))
            with (
                quiet(f"{name} raised {{}}; say in `arguments` how it is called", AssertionError),
                suppress(NoneFoundError),
            ):
                return method(*args, **named)
            return None

        for name, method in source.methods.items():
            if (answer := called(name, method)) is not None:
                frames.append(_check_method(source, name, answer, features))
                args, named = (arguments or {}).get(name, ((queries,), options))
                _check_answered(source, name, args, named, frames[-1], features)
        raw = _Raw(frames, queries, features)
        for name in forwarded:
            assert hasattr(explainer, name), (
                f"`forwarded` names {name}, which the explainer does not have"
            )
            value = getattr(explainer, name)
            found = called(name, value) if callable(value) else value
            assert not raw.is_in(found), f"`forwarded` names {name}, which leads to values of rows"
    return batch


def _adapted(
    explainer: Any,
    queries: pd.DataFrame,
    features: Sequence[str],
    target: str | None,
    plugins: Iterable[Any],
) -> CounterfactualSource:
    assert isinstance(queries, pd.DataFrame), (
        f"give queries as a DataFrame, not as {type(queries).__name__}"
    )
    missing = [name for name in features if name not in queries.columns]
    assert not missing, f"the queries lack features: {', '.join(missing)}"
    with _calling("`cfk_adapt`"):
        return load_plugins(plugins).adapt(explainer, AdaptContext(tuple(features), target))


@contextmanager
def _calling(what: str) -> Iterator[None]:
    """Report whatever an adapter raises as a broken rule: with its text if it is ours, else with
    class and line.
    """
    try:
        yield
    except CFKError as error:
        reason = f"{what} raised {type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - the author learns where, and nobody a value
        last = extract_tb(error.__traceback__)[-1]
        reason = (
            f"{what} raised {type(error).__name__} in {Path(last.filename).name}, line"
            f" {last.lineno}"
        )
        # a rule that was checked in here
        if isinstance(error, AssertionError) and last.filename == __file__:
            reason = str(error)
    else:
        return
    raise AssertionError(reason)


def _check_source(source: CounterfactualSource) -> Sequence[str]:
    assert isinstance(source.name, str), "`name` must be a short text"
    assert isinstance(source.instance_based, bool), "`instance_based` must be True or False"
    depends_on_rows(source)
    is_map = isinstance(source.methods, Mapping) and all(
        callable(method) for method in source.methods.values()
    )
    assert is_map, "`methods` must map names to callables"
    forwarded: Sequence[str] = getattr(source, "forwarded", ())
    is_closed = isinstance(forwarded, (tuple, list)) and all(
        isinstance(name, str) for name in forwarded
    )
    assert is_closed, "`forwarded` must be a tuple of names"
    twice = {"explain", "__call__", *source.methods} & set(forwarded)
    assert not twice, f"`forwarded` names what is protected: {', '.join(sorted(twice))}"
    return forwarded


def _check_batch(
    source: CounterfactualSource,
    batch: CounterfactualBatch,
    queries: pd.DataFrame,
    features: Sequence[str],
    options: Mapping[str, Any],
) -> None:
    """Check columns, slots, goal, constraints, and that no `repr` shows a text or number of four or
    more characters.
    """
    made = "CounterfactualBatch.one_each(frame, found) makes one"
    assert isinstance(batch, CounterfactualBatch), (
        f"a CounterfactualBatch is due, not {type(batch).__name__}; {made}"
    )
    _check_slots(batch, len(queries), features)
    is_said = desired_of(options) is None or batch.desired is not None
    assert is_said, (
        "the call names an outcome and the batch does not: give it `desired_of(options)`"
    )
    is_said = set(constraints_of(options)) <= set(batch.constraints)
    assert is_said, (
        "the call says what may change and the batch does not: give it `constraints_of(options)`"
    )
    with _calling("`__repr__`"):
        shown = repr(source) + repr(batch)
    values = {
        str(value)
        for table in (queries, batch.frame)
        for column in table
        for value in table[column]
    }
    leaked = [
        value for value in values - {"True", "False", "None"} if len(value) >= 4 and value in shown
    ]
    assert not leaked, "a repr shows a value of a row"


def _check_slots(batch: CounterfactualBatch, queries: int, features: Sequence[str]) -> None:
    """Check columns, and that every slot belongs to a query and every query has a slot."""
    assert list(batch.frame.columns) == list(features), (
        "`frame` must hold exactly the features, in order"
    )
    assert len(batch.slot) == len(batch.frame), "`slot` must have one entry per row"
    assert len(set(batch.slot.tolist())) == len(batch.slot), "two rows answer the same slot"
    assert set(batch.slot.tolist()) <= set(range(len(batch.query))), (
        "a slot is no position in `query`"
    )
    assert set(batch.query.tolist()) == set(range(queries)), (
        "`query` must name each query, found or not, and no other"
    )
    assert (np.diff(batch.query) >= 0).all(), "`query` must be in the order of the queries"


def _check_method(
    source: CounterfactualSource, name: str, answer: Any, features: Sequence[str]
) -> pd.DataFrame:
    """Check what a mapped method returned, and that `restore` keeps nothing of it; return its
    counterfactuals.
    """
    kinds = [type(part) for part in answer] if isinstance(answer, tuple) else []
    fits = (
        len(kinds) == 3
        and issubclass(kinds[0], CounterfactualBatch)
        and issubclass(kinds[2], pd.DataFrame)
    )
    assert fits, f"{name} must return (batch, native_result, queries)"
    batch, native, queries = answer
    _check_slots(batch, len(queries), features)
    raw = _Raw([batch.frame], queries, features)
    withheld: list[Explanation] = [Withheld(int(query), "infeasible") for query in batch.query]
    made_up: list[Explanation] = [_made_up(int(query), features) for query in batch.query]
    for what, entries in (("withheld", withheld), ("released as something else", made_up)):
        released = Explanations(entries, policy=PrivacyPolicy(), columns=features)
        with quiet(
            f"`restore` raised {{}} for what {name} returned, where all was {what}", AssertionError
        ):
            restored = source.restore(native, released)
        assert native is None or restored is not native, (
            f"`restore` gives back what {name} returned; build it anew"
        )
        assert not raw.is_in(restored), (
            f"`restore` keeps values of what {name} returned, where all was {what}"
        )
    found: pd.DataFrame = batch.frame
    return found


def _check_answered(
    source: CounterfactualSource,
    name: str,
    args: Any,
    named: Mapping[str, Any],
    raw_rows: pd.DataFrame,
    features: Sequence[str],
) -> None:
    """Check how a source answers a method without the explainer, if it can: the request has all
    features, and nothing of the explainer's rows is in what is built.
    """
    if not isinstance(source, AnsweringSource):
        return
    with _calling(f"`read_request` for {name}"):
        request = source.read_request(name, tuple(args), named)
    assert isinstance(request, AnswerRequest), "`read_request` must return an AnswerRequest"
    missing = [column for column in features if column not in request.queries.columns]
    assert not missing, f"`read_request` leaves out the feature {', '.join(missing)}"
    query = np.repeat(np.arange(len(request.queries)), request.n_answers)
    made_up: list[Explanation] = [_made_up(int(position), features) for position in query]
    released = Explanations(made_up, policy=PrivacyPolicy(), columns=features)
    with _calling(f"`build` for {name}"):
        built = source.build(name, request, released)
    raw = _Raw([raw_rows], request.queries, features)
    assert not raw.is_in(built), f"`build` keeps values of what {name} returned"


@contextmanager
def _unchanged(explainer: Any, queries: pd.DataFrame) -> Iterator[None]:
    """Check that queries, explainer and global random state are after a call what they were
    before.
    """
    table, (names, content), drawn = (
        queries.copy(deep=True),
        _visible_state(explainer),
        _random_state(),
    )
    yield
    assert _random_state() == drawn, (
        "global random state was changed; call the explainer through `source.ask`"
    )
    same = (
        queries.equals(table) and queries.index.equals(table.index) and list(queries) == list(table)
    )
    assert same, "the queries were changed; give the explainer a copy"
    assert (queries.dtypes == table.dtypes).all(), (
        "the queries' dtypes were changed; give the explainer a copy"
    )
    names_after, content_after = _visible_state(explainer)
    assert names_after == names, "the explainer gained or lost attributes; call a copy of it"
    assert content_after == content, "the explainer's content was changed; call a copy of it"


def _random_state() -> tuple[Any, ...]:
    legacy = np.random.get_state(legacy=True)  # noqa: NPY002 - looked at, not used
    return random.getstate(), tuple(
        part.tobytes() if isinstance(part, np.ndarray) else part for part in legacy
    )


def _visible_state(explainer: Any) -> tuple[Any, ...]:
    """Return the names of an explainer's attributes, and its content as far as pickle shows it."""
    names = tuple(sorted(getattr(explainer, "__dict__", {})))
    try:
        return names, pickle.dumps(explainer)
    except Exception:  # noqa: BLE001 - lambdas and explainers that refuse: names must do
        return names, None


def _made_up(query: int, features: Sequence[str]) -> Explanation:
    region = Region({name: frozenset(["released"]) for name in features})
    certificate = Certificate(
        k=2,
        ncp=0.0,
        pureness=1.0,
        pureness_low=1.0,
        pureness_high=1.0,
        exact=True,
        optimal=False,
        gap=None,
        method="made up",
        guarantee="lookup",
        not_stopped=(),
        policy_hash="",
        population="",
    )
    recount = RegionRecount(
        k=2,
        k_desired=None,
        k_consistent=2,
        k_private=None,
        private_matches=None,
        majority=None,
    )
    return GeneralizedCounterfactual(query, region, {}, certificate, recount)


class _Raw:
    """Rows that must not be found: telling values, and whole rows, that the queries themselves do
    not have.

    A query's numbers count as its own in single precision, too: some libraries answer in that.
    """

    def __init__(
        self, frames: Sequence[pd.DataFrame], queries: pd.DataFrame, features: Sequence[str]
    ) -> None:
        self.features = list(features)
        raw = pd.concat(
            [frame[self.features].astype(object) for frame in frames], ignore_index=True
        )
        known = {value for name in queries for value in map(str, queries[name])}
        values = {
            value for name in self.features for value in raw[name].tolist() if len(str(value)) >= 4
        }
        values = {
            value
            for value in values
            if not pd.isna(value) and not isinstance(value, (bool, np.bool_))
        }
        own_numbers = {
            np.float32(value) for name in queries for value in queries[name] if _is_number(value)
        }
        told = {
            v
            for v in values
            if str(v) not in known and not (_is_number(v) and np.float32(v) in own_numbers)
        }
        self.numbers = {float(value) for value in told if _is_number(value)}
        texts = "|".join(re.escape(str(value)) for value in told)
        self.texts = re.compile(rf"(?<![\w.])(?:{texts})(?![\w.])") if texts else None
        own = set(_rows_of(queries[self.features])) if set(self.features) <= set(queries) else set()
        self.rows = set(_rows_of(raw)) - own

    def is_in(self, thing: Any) -> bool:
        """Say whether something shows such a value, or leads to one."""
        return self._tells(repr(thing)) or any(map(self._tells, _reachable(thing)))

    def _tells(self, thing: Any) -> bool:
        if isinstance(thing, (str, bytes)):
            text = thing if isinstance(thing, str) else thing.decode("latin-1")
            return self.texts is not None and self.texts.search(text) is not None
        if _is_number(thing):
            return not isinstance(thing, bool) and float(thing) in self.numbers
        if isinstance(thing, pd.DataFrame) and set(self.features) <= set(thing.columns):
            return not self.rows.isdisjoint(_rows_of(thing[self.features]))
        if isinstance(thing, dict) and set(self.features) <= set(thing):
            return tuple(str(thing[name]) for name in self.features) in self.rows
        if isinstance(thing, (list, tuple)) and len(thing) == len(self.features):
            return tuple(map(str, thing)) in self.rows
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number))


def _rows_of(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    return [tuple(map(str, row)) for row in frame.astype(object).to_numpy().tolist()]


def _reachable(thing: Any) -> Iterator[Any]:
    """Go through everything that an object leads to, code and modules left out."""
    waiting, seen = [thing], {}
    while waiting:
        here = waiting.pop()
        if id(here) in seen or isinstance(here, (ModuleType, type, CodeType)):
            continue
        seen[id(here)] = here  # kept alive, so that no other object gets its id
        yield here
        if isinstance(here, FunctionType):
            waiting += [here.__closure__, here.__defaults__, here.__kwdefaults__, here.__dict__]
            continue
        if isinstance(
            here, (pd.DataFrame, pd.Series, pd.Index, pd.api.extensions.ExtensionArray, np.ndarray)
        ):
            # the garbage collector does not look into arrays
            waiting += np.asarray(here, dtype=object).tolist()
        if isinstance(here, np.ndarray):
            waiting.append(here.base)
        waiting += gc.get_referents(here)
