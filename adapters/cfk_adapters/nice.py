"""Adapter for NICE (``NICEx``), recognised by its shape: the library is never imported here."""

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
    """Adapt a ``nice.NICE``: it has `explain` and keeps its training rows in ``data.X_train``."""
    data: Any = getattr(explainer, "data", None)
    is_nice = type(explainer).__module__.split(".")[0] == "nice" and hasattr(data, "X_train")
    if not is_nice or not callable(getattr(explainer, "explain", None)):
        return None
    if data.X_train.shape[1] != len(context.features):
        raise AdapterError(
            f"NICE was given {data.X_train.shape[1]} columns and the schema has"
            f" {len(context.features)} features; they must be the same, in the same order"
        )
    if not np.any(getattr(data, "candidates_mask", True)):
        raise AdapterError(
            "NICE has no candidates: justified_cf=True needs y_train as positions of classes"
        )
    return NiceSource(explainer, context)


class NiceSource:
    """A NICE explainer as a source of counterfactuals, asked for one query at a time.

    Each call works on a copy of the explainer that shares training rows and model: NICE keeps the
    last query on itself, changes the array it is given, and answers only the first of several rows.
    All its settings start from a training row, so all count as instance-based. It knows no
    constraints: they are enforced on what is released.

    Parameters
    ----------
    explainer : nice.NICE
    context : AdaptContext
        Its features name the columns of ``X_train``, in order.
    """

    instance_based = True
    depends_on_rows: DependsOnRows = "yes"

    def __init__(self, explainer: Any, context: AdaptContext) -> None:
        self._explainer = explainer
        self._features, self._classes = list(context.features), context.classes
        self._places = places_of(context.desired, context.classes)
        self.name = f"nice:{getattr(explainer, 'optimization', 'unknown')}"

    def __repr__(self) -> str:
        """Name the generator."""
        return f"NiceSource({self.name})"

    def generate(self, queries: pd.DataFrame, **options: Any) -> CounterfactualBatch:
        """Ask for one counterfactual of each query; options are those of NICE's own `explain`, and
        constraints.
        """
        if missing := [name for name in self._features if name not in queries.columns]:
            raise AdapterError(f"the queries have no column {', '.join(missing)}")
        rows = queries[self._features].to_numpy(dtype=object, na_value=np.nan)
        return self._explain(rows, options)

    @property
    def methods(
        self,
    ) -> Mapping[str, Callable[..., tuple[CounterfactualBatch, None, pd.DataFrame]]]:
        """NICE's own `explain`, for an array of one or several rows."""

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
        request: AnswerRequest,  # noqa: ARG002 - nothing of it is in the result
        explanations: Explanations,
    ) -> NDArray[np.object_]:
        """Build the array that NICE's `explain` returns; see `restore`."""
        return self.restore(None, explanations)

    def _rows(self, X: Any) -> NDArray[np.object_]:
        """Return queries as an array of shape (n, n_features)."""
        rows = np.atleast_2d(np.array(X, dtype=object))
        if rows.ndim != 2 or rows.shape[1] != len(self._features):
            raise AdapterError(
                f"NICE takes arrays with {len(self._features)} columns, not of shape {rows.shape}"
            )
        return rows

    def restore(self, native: None, explanations: Explanations) -> NDArray[np.object_]:  # noqa: ARG002 - holds nothing
        """Return an array of released cells, one row per query; None in a row that is withheld."""
        out = np.full((len(explanations), len(self._features)), None, dtype=object)
        for i, cells in enumerate(released_cells(explanations)):
            if cells is not None:
                out[i] = [cells[name] for name in self._features]
        return out

    def _explain(
        self, rows: NDArray[np.object_], options: Mapping[str, Any]
    ) -> CounterfactualBatch:
        constraints, options = constraints_of(options), without_constraints(options)
        desired = desired_of(options, self._classes)
        options = {name: value for name, value in options.items() if name not in DESIRED}
        if desired is None:
            places = self._places
        elif self._classes is None:  # without classes, these are positions already
            places = [*desired.labels] if isinstance(desired, DesiredSet) else [desired]
        else:
            places = places_in_call(desired, self._classes)
        if places:
            options["target_class"] = places
        kind = self._explainer.data.X_train.dtype

        explainer = ask(lambda: _working_copy(self._explainer))

        def one(row: NDArray[np.object_]) -> Any:
            return ask(lambda: explainer.explain(np.array([row], dtype=kind), **options), _nothing)

        answers = [one(row) for row in rows]
        found = [
            np.array(answer, dtype=object).reshape(-1) for answer in answers if answer is not None
        ]
        if any(len(answer) != len(self._features) for answer in found):
            raise AdapterError("NICE's answer does not have one value per feature")
        table = np.array(found, dtype=object).reshape(len(found), len(self._features))
        is_found = np.array([answer is not None for answer in answers], dtype=bool)
        return CounterfactualBatch.one_each(
            _frame(table, self._features), is_found, desired, constraints
        )


def _frame(rows: NDArray[np.object_], features: list[str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=features, dtype=object).infer_objects()


def _nothing(error: Exception) -> bool:
    """Say whether NICE has no candidate: it then takes the minimum of an empty sequence."""
    return isinstance(error, ValueError) and "empty sequence" in str(error)


def _working_copy(explainer: Any) -> Any:
    """Copy the explainer and its parts, but share arrays, model and auto-encoder with the
    original.
    """
    shared = [*vars(explainer.data).values()]
    shared += [getattr(getattr(explainer, "reward_function", None), "auto_encoder", None)]
    return copy.deepcopy(explainer, {id(value): value for value in shared if value is not None})
