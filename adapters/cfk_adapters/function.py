"""The adapter for functions from queries to counterfactuals, and for objects with such an
``explain``. It is tried after all other adapters.
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
    without_constraints,
)
from cfk_plugin.data.values import as_pandas
from cfk_plugin.errors import AdapterError
from cfk_plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cfk_plugin.hookspecs import AdaptContext, DependsOnRows
    from cfk_plugin.release.explanations import Explanations

QUERY = "query"


@hookimpl(trylast=True)
def cfk_adapt(explainer: Any, context: AdaptContext) -> FunctionSource | None:
    """Adapt a callable, or an object with a method ``explain``."""
    if isinstance(explainer, type):
        raise AdapterError(
            f"{explainer.__qualname__} is a class, not an explainer; have you forgotten the ()?"
        )
    if not callable(getattr(explainer, "explain", explainer)):
        return None
    return FunctionSource(explainer, context)


class FunctionSource:
    """A function as a source of counterfactuals.

    The function takes a table of queries and returns a DataFrame, an array or a list of dicts, with
    one counterfactual for each query in order. A row without any value, or None in a list, means
    that none was found. A DataFrame may have fewer rows if it has the index of the queries. If it
    has a column or index level ``query`` with positions of queries, it may have several rows for a
    query. Columns other than the features are ignored. If the function has arguments with DiCE's
    names of constraints, it gets the constraints of the call.

    Parameters
    ----------
    explainer : callable, or object with a method ``explain``
        It may have ``instance_based = True``, if its answers are training rows or nearly so; and
        ``depends_on_rows = "no"``, see `DependsOnRows`.
    context : AdaptContext
    """

    def __init__(self, explainer: Any, context: AdaptContext) -> None:
        self._function = getattr(explainer, "explain", explainer)
        self._features = list(context.features)
        self.name = getattr(explainer, "__name__", type(explainer).__name__)
        self.instance_based = bool(getattr(explainer, "instance_based", False))
        self.depends_on_rows: DependsOnRows = getattr(explainer, "depends_on_rows", "unknown")
        # Decorators and logs read these names of a function. An object may store rows under them.
        self.forwarded = ("__name__", "__qualname__") if isinstance(explainer, FunctionType) else ()
        self.methods: Mapping[str, Any] = {}  # every call is answered with `Explanations`

    def __repr__(self) -> str:
        """Return the name of the explainer, without its rows."""
        return f"FunctionSource({self.name})"

    def generate(self, queries: pd.DataFrame, **options: Any) -> CounterfactualBatch:
        """Call the explainer with a copy of the queries, and read its answer."""
        arguments = _accepted(self._function, options)
        answer = ask(lambda: self._function(queries.copy(deep=True), **arguments))
        return replace(
            read(answer, queries, self._features),
            desired=desired_of(options),
            constraints=constraints_of(options),
        )

    def read_request(
        self,
        method: str,  # noqa: ARG002 - only `generate`, as there are no methods
        args: tuple[Any, ...],
        named: Mapping[str, Any],
    ) -> AnswerRequest:
        """Read a call of the explainer without calling it.

        ``total_CFs`` is the number of answers, as in DiCE; by default 1. Arguments that are not
        outcomes or constraints have no effect on a catalogue.
        """
        return AnswerRequest(
            queries=args[0],
            n_answers=int(named.get("total_CFs", 1)),
            desired=desired_of(named),
            constraints=constraints_of(named),
            ignored=tuple(sorted(set(named) - {*DESIRED, *CONSTRAINTS, "total_CFs"})),
        )

    def build(
        self,
        method: str,  # noqa: ARG002 - there are no methods
        request: AnswerRequest,  # noqa: ARG002 - the result needs only the explanations
        explanations: Explanations,
    ) -> Explanations:
        """Return the explanations, because a function has no result type."""
        return explanations

    def restore(self, native: Any, explanations: Explanations) -> Explanations:  # noqa: ARG002 - may contain rows
        """Return the explanations, because a function has no result type."""
        return explanations


def _accepted(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, without constraints that are not arguments of the function."""
    if not constraints_of(options):
        return dict(options)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return without_constraints(options)
    kinds = [parameter.kind for parameter in parameters.values()]
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return dict(options)
    return {
        name: value
        for name, value in options.items()
        if name in parameters or name not in CONSTRAINTS
    }


def read(answer: Any, queries: pd.DataFrame, features: list[str]) -> CounterfactualBatch:
    """Return the batch for an explainer's answer to a table of queries.

    Raises
    ------
    AdapterError
        If a feature is missing, or the query of a row is unknown.
    """
    n_queries = len(queries)
    if answer is None or (hasattr(answer, "__len__") and not len(answer)):
        return CounterfactualBatch.one_each(
            queries[:0].reindex(columns=features), np.zeros(n_queries, dtype=bool)
        )
    frame = _frame(answer, features)
    query = _positions(frame, queries, features)
    frame = _features_of(frame, features)
    has_value = _has_value(frame)
    if not has_value.all():
        query = query[has_value]
        frame = frame[has_value]
    n_slots = np.maximum(np.bincount(query, minlength=n_queries), 1)
    first_slot = np.cumsum(n_slots) - n_slots
    order = np.argsort(query, kind="stable")
    n_earlier = np.arange(len(order)) - np.searchsorted(query[order], query[order])
    slot = np.empty(len(order), dtype=np.int64)
    slot[order] = first_slot[query[order]] + n_earlier
    return CounterfactualBatch(frame, slot, np.repeat(np.arange(n_queries), n_slots))


def _frame(answer: Any, features: list[str]) -> pd.DataFrame:
    """Return an explainer's answer as a table, which may have other columns too."""
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
                f"the explainer returned an array of shape {answer.shape}; return"
                f" {len(features)} columns, one for each feature"
            )
        return pd.DataFrame(table, columns=features).infer_objects()
    if isinstance(answer, (list, tuple)) and all(
        item is None or isinstance(item, dict) for item in answer
    ):
        dicts = [item for item in answer if item]
        columns = list(dicts[0]) if dicts else features
        if any(set(item) != set(columns) for item in dicts):
            raise AdapterError("the explainer returned dicts with different keys; use one set")
        return pd.DataFrame([item or {} for item in answer], columns=columns)
    raise AdapterError(
        f"the explainer returned {type(answer).__name__}; return a DataFrame, a Series, an array"
        " or a list of dicts"
    )


def _has_value(frame: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return whether each row has a value of any feature, shape (n_rows,)."""
    if not frame.shape[1]:
        return np.zeros(len(frame), dtype=bool)
    has_value = frame.iloc[:, 0].notna().to_numpy(copy=True)
    # usually the first feature has a value, and the others need not be read
    if not has_value.all():
        has_value[~has_value] = frame.loc[~has_value].notna().to_numpy().any(axis=1)
    return has_value


def _features_of(frame: pd.DataFrame, features: list[str]) -> pd.DataFrame:
    """Return the features of an answer, in order."""
    if frame.columns.tolist() == features:
        return frame  # without a copy
    columns = set(frame.columns)
    if missing := [name for name in features if name not in columns]:
        raise AdapterError(f"the explainer's answer has no column {', '.join(missing)}")
    if not frame.columns.is_unique:
        raise AdapterError("the explainer's answer has two columns of the same name; drop one")
    return frame[features]


def _positions(
    frame: pd.DataFrame, queries: pd.DataFrame, features: list[str]
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the position of the query of each row of an answer, shape (n_rows,)."""
    if QUERY not in features and (QUERY in frame.columns or QUERY in frame.index.names):
        cells = frame[QUERY] if QUERY in frame.columns else frame.index.get_level_values(QUERY)
        values = pd.to_numeric(pd.Series(np.asarray(cells)), errors="coerce").to_numpy(dtype=float)
        is_whole = np.isfinite(values) & (values % 1 == 0)
        if not (is_whole & (values >= 0) & (values < len(queries))).all():
            raise AdapterError(
                f"column {QUERY!r} of the explainer's answer must contain positions of queries"
            )
        return values.astype(np.int64)
    if len(frame) == len(queries):
        return np.arange(len(queries))
    is_unique = frame.index.is_unique and queries.index.is_unique
    if len(frame) < len(queries) and is_unique and frame.index.isin(queries.index).all():
        return np.asarray(queries.index.get_indexer(frame.index), dtype=np.int64)
    raise AdapterError(
        f"the explainer returned {len(frame)} rows for {len(queries)} queries; return one row per"
        f" query, use the queries' index, or add a column {QUERY!r} with the query's position"
    )
