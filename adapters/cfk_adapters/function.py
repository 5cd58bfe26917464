"""Adapter for any callable and for any object with ``explain`` or ``generate_counterfactuals``.

Asked last.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.adapting import (
    CONSTRAINTS,
    DESIRED,
    AnswerRequest,
    CounterfactualBatch,
    ask,
    constraints_of,
    desired_of,
    released_cells,
    without_constraints,
)
from cfk_plugin.data.values import as_given, as_pandas
from cfk_plugin.errors import AdapterError
from cfk_plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cfk_plugin.hookspecs import AdaptContext, DependsOnRows
    from cfk_plugin.release.explanations import Explanations

METHODS = ("explain", "generate_counterfactuals")
QUERY = "query"


@hookimpl(trylast=True)
def cfk_adapt(explainer: Any, context: AdaptContext) -> FunctionSource | None:
    """Adapt anything that can be called with a table of queries."""
    names = [name for name in METHODS if callable(getattr(explainer, name, None))]
    if not names and not callable(explainer):
        return None
    if isinstance(explainer, type):
        raise AdapterError(
            f"{explainer.__qualname__} is a class, not an explainer; have you forgotten the ()?"
        )
    return FunctionSource(explainer, names, context)


class FunctionSource:
    """Reads what a function returns for a table of queries.

    A DataFrame, array or list of dicts holds one counterfactual per query, by position; a row
    without any value, or None in a list, was not found. A DataFrame with fewer rows must keep the
    queries' index, and one with a column or index level ``query`` (positions of queries) may answer
    a query several times. Columns other than the features are dropped. The function is told what
    may change if it has arguments with DiCE's names for that.

    Parameters
    ----------
    explainer : callable or object
        May say ``instance_based = True``: its answers are training rows, or nearly. May say
        ``depends_on_rows = "no"``: training rows act only through the model and through declared
        ranges and categories.
    names : list of str
        Its methods that return counterfactuals; empty for a plain callable.
    context : AdaptContext
    """

    def __init__(self, explainer: Any, names: list[str], context: AdaptContext) -> None:
        self._explainer = explainer
        self._names = names or ["__call__"]
        self._features = list(context.features)
        self.name = getattr(explainer, "__name__", type(explainer).__name__)
        self.instance_based = bool(getattr(explainer, "instance_based", False))
        self.depends_on_rows: DependsOnRows = getattr(explainer, "depends_on_rows", "unknown")
        self._container: Any = None  # an empty one of the kind that the explainer returned last
        # Decorators and logs read these of a function; an object may hold anything under any name.
        self.forwarded = ("__name__", "__qualname__") if isinstance(explainer, FunctionType) else ()

    def __repr__(self) -> str:
        """Name the explainer."""
        return f"FunctionSource({self.name})"

    def generate(self, queries: pd.DataFrame, **options: Any) -> CounterfactualBatch:
        """Call the explainer with a copy of the queries and read its answer."""
        call = self._callable(self._names[0])
        said, known = {"desired": desired_of(options)}, options
        if options:
            said, known = {**said, "constraints": constraints_of(options)}, _known_to(call, options)
        answer = ask(lambda: call(queries.copy(deep=True), **known))
        self._container = empty_like(answer)
        return replace(read(answer, queries, self._features), **said)

    @property
    def methods(self) -> Mapping[str, Any]:
        """Explainer's own methods under their names."""
        return {name: self._method(name) for name in self._names}

    def read_request(
        self, method: str, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> AnswerRequest:
        """Read a call of the explainer without calling it.

        ``total_CFs`` says how many answers are asked for, as DiCE has it; one without it. Other
        arguments that name neither an outcome nor a constraint are for the explainer alone.
        """
        name = self._names[0] if method == "generate" else method
        queries, options = _arguments(self._callable(name), args, named)
        known = {*DESIRED, *CONSTRAINTS, "total_CFs"}
        return AnswerRequest(
            queries=_table(queries, self._features),
            n_answers=int(options.get("total_CFs", 1)),
            desired=desired_of(options),
            constraints=constraints_of(options),
            ignored=tuple(sorted(set(options) - known)),
            adapter_data=queries,
        )

    def build(
        self,
        method: str,  # noqa: ARG002 - all of them return the same kind
        request: AnswerRequest,
        explanations: Explanations,
    ) -> Any:
        """Build a container of the kind that the explainer returned last, or else of the queries'
        kind; see `restore`.
        """
        container = request.adapter_data if self._container is None else self._container
        return self.restore(container, explanations)

    def restore(self, native: Any, explanations: Explanations) -> Any:
        """Return the released cells in the explainer's type of container; cells of a withheld query
        are None.
        """
        rows = [cells or {} for cells in released_cells(explanations)]
        frame = pd.DataFrame(rows, columns=self._features, dtype=object)
        frame = frame.astype(object).where(frame.notna(), None)
        if isinstance(native, list):
            return [row or None for row in rows]
        if isinstance(native, np.ndarray):
            return frame.to_numpy(dtype=object).reshape(
                native.shape if native.ndim == 1 else frame.shape
            )
        if isinstance(native, pd.Series):
            return frame.iloc[0]
        frame.insert(0, QUERY, [entry.query for entry in explanations])
        return as_given(frame, native)

    def _callable(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = (
            self._explainer if name == "__call__" else getattr(self._explainer, name)
        )
        return function

    def _method(self, name: str) -> Callable[..., tuple[CounterfactualBatch, Any, pd.DataFrame]]:
        def call(
            queries: Any, *args: Any, **kwargs: Any
        ) -> tuple[CounterfactualBatch, Any, pd.DataFrame]:
            table = _table(queries, self._features)
            given = (
                queries.copy(deep=True) if isinstance(queries, pd.DataFrame) else _copied(queries)
            )
            function = self._callable(name)
            named, known = _by_name(function, args, kwargs), _known_to(function, kwargs)
            said = {"desired": desired_of(named), "constraints": constraints_of(named)}
            native = ask(lambda: function(given, *args, **known))
            self._container = empty_like(native)
            return replace(read(native, table, self._features), **said), native, table

        return call


def _arguments(
    function: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return the queries of a call, and its other arguments by name.

    The queries are the first argument by position, or the one with the name of the function's first
    parameter. Further arguments by position of a function without a readable signature have no
    name, and are left out.

    Raises
    ------
    AdapterError
        If the call has no queries, or more arguments by position than the function takes.
    """
    options = dict(named)
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in by_position]
    takes_more = not parameters or any(
        parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters
    )
    if len(args) > len(names) and not takes_more:
        raise AdapterError(
            f"the call has {len(args)} arguments by position, and the explainer takes {len(names)}"
        )
    if args:
        queries = args[0]
    elif names and names[0] in options:
        queries = options.pop(names[0])
    else:
        raise AdapterError("the call has no queries; give them first")
    options |= dict(zip(names[1:], args[1:], strict=False))
    return queries, options


def empty_like(answer: Any) -> Any:
    """Return an empty container of the answer's type; None for other types."""
    if isinstance(answer, list):
        return []
    if isinstance(answer, pd.DataFrame):
        return pd.DataFrame()
    if isinstance(answer, np.ndarray):
        return np.empty((0, 0), dtype=object)
    return None


def _by_name(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the arguments after the queries by name, as far as the function's signature is
    known.
    """
    try:
        return inspect.signature(function).bind_partial(None, *args, **kwargs).arguments | dict(
            kwargs
        )
    except (TypeError, ValueError):
        return kwargs


def _known_to(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, without constraints if the function has no arguments for them."""
    if not constraints_of(options):
        return dict(options)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return without_constraints(options)
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    return {
        n: value
        for n, value in options.items()
        if takes_any or n in parameters or n not in CONSTRAINTS
    }


def read(answer: Any, queries: pd.DataFrame, features: list[str]) -> CounterfactualBatch:
    """Read an explainer's answer to a table of queries.

    Raises
    ------
    AdapterError
        If a feature is missing, or it is not clear which query a row answers.
    """
    count = len(queries)
    if answer is None or (hasattr(answer, "__len__") and not len(answer)):
        return CounterfactualBatch.one_each(
            queries[:0].reindex(columns=features), np.zeros(count, dtype=bool)
        )
    frame = _frame(answer, features)
    position = _positions(frame, queries, features)
    frame = _features_of(frame, features)
    found = _with_a_value(frame)
    if not found.all():
        position, frame = position[found], frame[found]
    asked = np.maximum(np.bincount(position, minlength=count), 1)
    order = np.argsort(position, kind="stable")
    before = np.cumsum(asked) - asked  # first slot of each query
    earlier = np.arange(len(order)) - np.searchsorted(position[order], position[order])
    slot = np.empty(len(order), dtype=np.int64)
    slot[order] = before[position[order]] + earlier
    return CounterfactualBatch(frame, slot, np.repeat(np.arange(count), asked))


def _copied(queries: Any) -> Any:
    """Return a copy that an explainer may change; tables other than pandas' cannot be changed in
    place.
    """
    return np.array(queries) if as_pandas(queries) is queries else queries


def _frame(answer: Any, features: list[str]) -> pd.DataFrame:
    if isinstance(answer, pd.DataFrame):
        return answer.copy(deep=True)
    if (table := as_pandas(answer)) is not answer:
        return _frame(table, features)
    if isinstance(answer, pd.Series):
        return answer.to_frame().T.infer_objects().reset_index(drop=True)
    if isinstance(answer, np.ndarray):
        table = np.atleast_2d(answer)
        if table.ndim != 2 or table.shape[1] != len(features):
            raise AdapterError(
                f"the explainer returned an array of shape {answer.shape}, not one column per"
                " feature"
            )
        return pd.DataFrame(table, columns=features).infer_objects()
    if isinstance(answer, (list, tuple)) and all(
        item is None or isinstance(item, dict) for item in answer
    ):
        known = [item for item in answer if item]
        columns = list(known[0]) if known else features
        if any(set(item) != set(columns) for item in known):
            raise AdapterError("the explainer returned dicts with different keys")
        return pd.DataFrame([item or {} for item in answer], columns=columns)
    raise AdapterError(
        f"the explainer returned {type(answer).__name__}; an adapter reads DataFrame, Series,"
        " array, list of dicts"
    )


def _with_a_value(frame: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Say for each row whether any feature has a value; usually the first one does."""
    found = (
        frame.iloc[:, 0].notna().to_numpy(copy=True)
        if frame.shape[1]
        else np.zeros(len(frame), dtype=bool)
    )
    if not found.all():
        found[~found] = frame.loc[~found].notna().to_numpy().any(axis=1)
    return found


def _features_of(frame: pd.DataFrame, features: list[str]) -> pd.DataFrame:
    """Return the features in order, once each; the table itself if it is like that already."""
    return frame if frame.columns.tolist() == features else frame[_present(frame, features)]


def _present(frame: pd.DataFrame, features: list[str]) -> list[str]:
    known = set(frame.columns)
    if missing := [name for name in features if name not in known]:
        raise AdapterError(f"the explainer's answer has no column {', '.join(missing)}")
    if not frame.columns.is_unique:
        raise AdapterError("the explainer's answer has two columns of the same name")
    return features


def _positions(
    frame: pd.DataFrame, queries: pd.DataFrame, features: list[str]
) -> np.ndarray[Any, np.dtype[np.int64]]:
    if QUERY not in features and (QUERY in frame.columns or QUERY in frame.index.names):
        named = frame[QUERY] if QUERY in frame.columns else frame.index.get_level_values(QUERY)
        values = pd.to_numeric(pd.Series(np.asarray(named)), errors="coerce").to_numpy(dtype=float)
        if not (
            np.isfinite(values) & (values % 1 == 0) & (values >= 0) & (values < len(queries))
        ).all():
            raise AdapterError(
                f"column {QUERY!r} of the explainer's answer must hold positions of queries"
            )
        return values.astype(np.int64)
    if len(frame) == len(queries):
        return np.arange(len(queries))
    unique = frame.index.is_unique and queries.index.is_unique
    if len(frame) < len(queries) and unique and frame.index.isin(queries.index).all():
        return np.asarray(queries.index.get_indexer(frame.index), dtype=np.int64)
    raise AdapterError(
        f"the explainer returned {len(frame)} rows for {len(queries)} queries; return one row per"
        f" query, keep the queries' index, or add a column {QUERY!r} with the query's position"
    )


def _table(queries: Any, features: list[str]) -> pd.DataFrame:
    if isinstance(queries, pd.DataFrame):
        return _features_of(queries, features).copy(deep=True)
    if (table := as_pandas(queries)) is not queries:
        return _table(table, features)
    if isinstance(queries, pd.Series):
        return queries[features].to_frame().T.infer_objects()
    array = np.atleast_2d(np.asarray(queries))
    if array.ndim != 2 or array.shape[1] != len(features):
        raise AdapterError(f"queries of shape {array.shape} do not have one column per feature")
    return pd.DataFrame(array, columns=features).infer_objects()
