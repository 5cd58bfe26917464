"""The adapter for NICE (``NICEx``). It recognises the explainer without importing the library."""

from __future__ import annotations

import copy
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
    places_in_call,
    places_of,
    released_cells,
    without_constraints,
)
from cfk_plugin.data.outcome import DesiredSet
from cfk_plugin.errors import AdapterError
from cfk_plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from cfk_plugin.hookspecs import AdaptContext, DependsOnRows
    from cfk_plugin.release.explanations import Explanations


@hookimpl
def cfk_adapt(explainer: Any, context: AdaptContext) -> NiceSource | None:
    """Adapt a ``nice.NICE``: it has `explain`, and its training rows are in ``data.X_train``."""
    data: Any = getattr(explainer, "data", None)
    is_nice = type(explainer).__module__.split(".")[0] == "nice" and hasattr(data, "X_train")
    if not is_nice or not callable(getattr(explainer, "explain", None)):
        return None
    if data.X_train.shape[1] != len(context.features):
        raise AdapterError(
            f"NICE has {data.X_train.shape[1]} columns and the schema has {len(context.features)}"
            " features; they must be the same, in the same order"
        )
    if not np.any(getattr(data, "candidates_mask", True)):
        raise AdapterError(
            "NICE has no candidates: justified_cf=True needs y_train as positions of classes"
        )
    return NiceSource(explainer, context)


class NiceSource:
    """A NICE explainer as a source of counterfactuals.

    It is called for one query at a time, because NICE answers only the first of several rows. Each
    call uses a copy of the explainer that shares training rows and model, because NICE stores the
    last query on itself and changes its input. All settings of NICE start at a training row, so
    `instance_based` is True. NICE has no constraints; they are enforced on the released
    explanations.

    Parameters
    ----------
    explainer : nice.NICE
    context : AdaptContext
        Its features are the names of the columns of ``X_train``, in order.
    """

    instance_based = True
    depends_on_rows: DependsOnRows = "yes"

    def __init__(self, explainer: Any, context: AdaptContext) -> None:
        self._explainer = explainer
        self._features, self._classes = list(context.features), context.classes
        self._places = places_of(context.desired, context.classes)
        self.name = f"nice:{getattr(explainer, 'optimization', 'unknown')}"

    def __repr__(self) -> str:
        """Return the name of the explainer, without its rows."""
        return f"NiceSource({self.name})"

    def generate(self, queries: pd.DataFrame, **options: Any) -> CounterfactualBatch:
        """Call NICE for one counterfactual of each query.

        The options are those of NICE's `explain`, and constraints.
        """
        if missing := [name for name in self._features if name not in queries.columns]:
            raise AdapterError(f"the queries have no column {', '.join(missing)}")
        rows = queries[self._features].to_numpy(dtype=object, na_value=np.nan)
        return self._explain(rows, options)

    @property
    def methods(
        self,
    ) -> Mapping[str, Callable[..., tuple[CounterfactualBatch, None, pd.DataFrame]]]:
        """NICE's `explain`, which takes an array of one or several rows here."""

        def explain(
            X: Any, *args: Any, **kwargs: Any
        ) -> tuple[CounterfactualBatch, None, pd.DataFrame]:
            rows = self._rows(X)
            options = {**dict(zip(("target_class",), args, strict=False)), **kwargs}
            return self._explain(rows, options), None, _frame(rows, self._features)

        return {"explain": explain}

    def read_request(
        self, method: str, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> AnswerRequest:
        """Read a call of NICE's `explain`, or of `generate`, without calling it."""
        queries, *positional = args or (named["X"],)
        options = {name: value for name, value in named.items() if name != "X"}
        options |= dict(zip(("target_class",), positional, strict=False))
        if method == "generate":
            frame = queries[self._features].reset_index(drop=True)
        else:
            frame = _frame(self._rows(queries), self._features)
        ignored = set(options) - {*DESIRED, *CONSTRAINTS}
        return AnswerRequest(
            queries=frame,
            desired=desired_of(options, self._classes),
            constraints=constraints_of(options),
            ignored=tuple(sorted(ignored)),
        )

    def build(
        self,
        method: str,  # noqa: ARG002 - NICE has one
        request: AnswerRequest,  # noqa: ARG002 - the result needs only the explanations
        explanations: Explanations,
    ) -> NDArray[np.object_]:
        """Build the array that NICE's `explain` returns; see `restore`."""
        return self.restore(None, explanations)

    def _rows(self, X: Any) -> NDArray[np.object_]:
        """Return queries as an array of shape (n_queries, n_features)."""
        rows = np.atleast_2d(np.array(X, dtype=object))
        if rows.ndim != 2 or rows.shape[1] != len(self._features):
            raise AdapterError(
                f"NICE takes arrays with {len(self._features)} columns, not of shape {rows.shape}"
            )
        return rows

    def restore(self, native: None, explanations: Explanations) -> NDArray[np.object_]:  # noqa: ARG002 - always None
        """Return an array of table cells, one row per query; a withheld row contains None."""
        table = np.full((len(explanations), len(self._features)), None, dtype=object)
        for i, cells in enumerate(released_cells(explanations)):
            if cells is not None:
                table[i] = [cells[name] for name in self._features]
        return table

    def _explain(
        self, rows: NDArray[np.object_], options: Mapping[str, Any]
    ) -> CounterfactualBatch:
        """Call NICE for each row, and return its answers; see `generate`."""
        constraints = constraints_of(options)
        options = without_constraints(options)
        desired = desired_of(options, self._classes)
        options = {name: value for name, value in options.items() if name not in DESIRED}
        if desired is None:
            places = self._places
        elif self._classes is None:  # without classes, the outcome is a position already
            places = [*desired.labels] if isinstance(desired, DesiredSet) else [desired]
        else:
            places = places_in_call(desired, self._classes)
        if places:
            options["target_class"] = places
        kind = self._explainer.data.X_train.dtype

        explainer = ask(lambda: _working_copy(self._explainer))

        def explain(row: NDArray[np.object_]) -> Any:
            query = np.array([row], dtype=kind)
            return ask(lambda: explainer.explain(query, **options), _is_none_found)

        answers = [explain(row) for row in rows]
        values = [
            np.array(answer, dtype=object).reshape(-1) for answer in answers if answer is not None
        ]
        if any(len(row) != len(self._features) for row in values):
            raise AdapterError("NICE's answer does not have one value per feature")
        table = np.array(values, dtype=object).reshape(len(values), len(self._features))
        is_found = np.array([answer is not None for answer in answers], dtype=bool)
        return CounterfactualBatch.one_each(
            _frame(table, self._features), is_found, desired, constraints
        )


def _frame(rows: NDArray[np.object_], features: list[str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=features, dtype=object).infer_objects()


def _is_none_found(error: Exception) -> bool:
    """Return whether NICE has no candidate: it then takes the minimum of an empty sequence."""
    return isinstance(error, ValueError) and "empty sequence" in str(error)


def _working_copy(explainer: Any) -> Any:
    """Return a deep copy of the explainer that shares its arrays, model and auto-encoder."""
    shared = [*vars(explainer.data).values()]
    shared += [getattr(getattr(explainer, "reward_function", None), "auto_encoder", None)]
    return copy.deepcopy(explainer, {id(value): value for value in shared if value is not None})
