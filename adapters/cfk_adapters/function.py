"""Adapter for functions from queries to counterfactuals, and for objects with such an ``explain``.

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
    """Adapt anything that can be called with a table of queries."""
    if isinstance(explainer, type):
        raise AdapterError(
            f"{explainer.__qualname__} is a class, not an explainer; have you forgotten the ()?"
        )
    if not callable(getattr(explainer, "explain", explainer)):
        return None
    return FunctionSource(explainer, context)


class FunctionSource:
    """Reads what a function returns for a table of queries.

    A DataFrame, array or list of dicts holds one counterfactual per query, by position; a row
    without any value, or None in a list, was not found. A DataFrame with fewer rows must keep the
    queries' index, and one with a column or index level ``query`` (positions of queries) may answer
    a query several times. Columns other than the features are dropped. The function is told what
    may change if it has arguments with DiCE's names for that.

    Parameters
    ----------
    explainer : callable, or object with a method ``explain``
        May have ``instance_based = True``: its answers are training rows, or nearly. May have
        ``depends_on_rows = "no"``: training rows act only through the model and through declared
        ranges and categories.
    context : AdaptContext
    """

    def __init__(self, explainer: Any, context: AdaptContext) -> None:
        self._function = getattr(explainer, "explain", explainer)
        self._features = list(context.features)
        self.name = getattr(explainer, "__name__", type(explainer).__name__)
        self.instance_based = bool(getattr(explainer, "instance_based", False))
        self.depends_on_rows: DependsOnRows = getattr(explainer, "depends_on_rows", "unknown")
        # Decorators and logs read these of a function; an object may hold anything under any name.
        self.forwarded = ("__name__", "__qualname__") if isinstance(explainer, FunctionType) else ()
        self.methods: Mapping[str, Any] = {}  # every call is answered with `Explanations`

    def __repr__(self) -> str:
        """Name the explainer."""
        return f"FunctionSource({self.name})"

    def generate(self, queries: pd.DataFrame, **options: Any) -> CounterfactualBatch:
        """Call the explainer with a copy of the queries and read its answer."""
        answer = ask(
            lambda: self._function(queries.copy(deep=True), **_known_to(self._function, options))
        )
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

        ``total_CFs`` says how many answers are asked for, as DiCE has it; one without it. Other
        arguments that name neither an outcome nor a constraint are for the explainer alone.
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
        method: str,  # noqa: ARG002 - there is none
        request: AnswerRequest,  # noqa: ARG002 - nothing of it is in the result
        explanations: Explanations,
    ) -> Explanations:
        """Return the explanations: a function has no result type."""
        return explanations

    def restore(self, native: Any, explanations: Explanations) -> Explanations:  # noqa: ARG002 - rows
        """Return the explanations: a function has no result type."""
        return explanations


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
