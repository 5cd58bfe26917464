"""Adapters for explainers of other libraries, recognised by class name; none of the libraries is
imported.

Each source defines how its explainer is called, and where in its answer the counterfactuals are.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_adapters.wrapping import Encoded, LibrarySource, Places, is_number, line_of, settled
from cfk_plugin.adapting import desired_of
from cfk_plugin.errors import AdapterError
from cfk_plugin.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cfk_adapters.wrapping import Options
    from cfk_plugin.hookspecs import AdaptContext
    from cfk_plugin.release.explanations import Explanations

__all__ = ["Encoded", "Places"]

ATTRIBUTIONS = {
    "shap",
    "lime",
    "captum",
    "eli5",
    "interpret",
    "dalex",
    "anchor",
    "alibi",
    "omnixai",
    "aix360",
}


@hookimpl
def cfk_adapt(explainer: Any, context: AdaptContext) -> LibrarySource | None:
    """Adapt counterfactual explainers of known libraries; refuse those of their explainers that
    return no rows.
    """
    given, encoder = (
        (explainer.explainer, explainer.encoder)
        if isinstance(explainer, Encoded)
        else (explainer, None)
    )
    line = line_of(given)
    for source in SOURCES:
        if any(library == source.library and name in source.kinds for library, name in line):
            return source(given, context, encoder)
    if encoder is not None:
        known = ", ".join(sorted({source.library for source in SOURCES}))
        raise AdapterError(
            f"Encoded takes explainers of {known}; encode and decode for others in a function"
        )
    if refused := [(library, name) for library, name in line if library in ATTRIBUTIONS]:
        raise AdapterError(
            f"{refused[0][1]} of {refused[0][0]} returns no counterfactuals, and what is protected"
            " here are those: rows with another outcome. What features weigh, and rules, are left"
            " as they are. Prototypes are rows: return them from a function, or give them to"
            " KAnonymizer.transform; see docs/how-to/wrap-an-explainer.md"
        )
    return None


class AlibiSource(LibrarySource):
    """alibi's counterfactuals by optimisation: `CounterfactualProto`, `Counterfactual`, and `CEM`
    (what is missing).

    The outcome is named by ``target_class`` of a call, or of a `Counterfactual`.
    """

    library = "alibi"
    kinds = dict.fromkeys(
        ("CounterfactualProto", "CounterFactualProto", "Counterfactual", "CounterFactual"), "cf"
    )
    kinds |= {"CEM": "PN"}

    def __init__(self, explainer: Any, context: AdaptContext, encoder: Any = None) -> None:
        super().__init__(explainer, context, encoder)
        if (
            getattr(explainer, "mode", "PN") == "PP"
            or getattr(explainer, "target_class", None) == "same"
        ):
            raise AdapterError(
                f"{self.name} looks for what keeps the outcome; counterfactuals need mode PN,"
                " another class"
            )

    def _goal(self, options: Options) -> Any:
        if isinstance(options.get("target_class"), (int, np.integer)):  # alibi takes a list
            options["target_class"] = [int(options["target_class"])]
        own = getattr(self._explainer, "target_class", None)
        return desired_of({"target_class": own, **options}, self._classes)

    def _found(self, native: Any, rows: pd.DataFrame) -> list[Any]:  # noqa: ARG002 - it has one
        answer = native.data[self._kind]
        return [answer["X"] if isinstance(answer, dict) else answer]

    def restore(self, native: Any, explanations: Explanations) -> Any:
        """Build a new ``Explanation`` with alibi's own settings, the query's class, and released
        cells.
        """
        cells, labels = self._cells(explanations), self._labels(explanations)
        shown = None if cells[0][0] is None else cells
        data: dict[str, Any] = dict.fromkeys(native.data)
        if self._kind == "PN":
            data |= {
                "PN": shown,
                "PN_pred": labels[0],
                "X": native.data["X"].copy(),
                "X_pred": native.data["X_pred"],
            }
        else:
            data |= {
                "cf": None if shown is None else {"X": shown, "class": labels[0], "proba": None},
                "all": [],
            }
            data |= {name: copy.copy(native.data[name]) for name in ("orig_class", "orig_proba")}
        return type(native)(meta=_settings(native.meta), data=data)


class AlibiRLSource(LibrarySource):
    """alibi's `CounterfactualRL` and `CounterfactualRLTabular`, which answer all queries at once.

    They need a target, ``Y_t``, of which ``target_class=`` (the position of a class) is a shorter
    form. If what they decode does not have it, nothing was found. Immutable features stay so, and
    only values that a condition ``C`` has may be taken; a condition on a number is relative to its
    query, so a call with one must be about one query.
    """

    library = "alibi"
    kinds = dict.fromkeys(("CounterfactualRL", "CounterfactualRLTabular"), "cf")
    one_by_one = False

    def __init__(self, explainer: Any, context: AdaptContext, encoder: Any = None) -> None:
        params = getattr(explainer, "params", {})
        known = Places(list(context.features), params.get("category_map"))
        super().__init__(explainer, context, encoder or known)
        self._fixed = set(params.get("immutable_features") or ())
        names = params.get("feature_names")
        if names is not None and list(names) != self._features:
            raise AdapterError(
                "alibi's feature_names are not the schema's features in their order; make them the"
                " same"
            )

    def _goal(self, options: Options) -> Any:
        if (place := options.pop("target_class", None)) is not None:
            options["Y_t"] = np.atleast_1d(place)
        if options.get("Y_t") is None:
            raise AdapterError(
                "CounterfactualRL explains towards a target: give target_class, the position of a"
                " class"
            )
        target = np.asarray(options["Y_t"])
        is_one_hot = target.ndim == 2 and target.shape[1] > 1
        return self._label_at(target.argmax(axis=1) if is_one_hot else target, "Y_t")

    def _limits(self, options: Options, rows: pd.DataFrame) -> dict[str, Any]:
        limits: dict[str, Any] = {}
        if self._fixed:
            limits["features_to_vary"] = [
                name for name in self._features if name not in self._fixed
            ]
        conditions = [each for each in options.get("C") or () if each]
        if len(conditions) > 1:
            raise AdapterError(
                "C holds several conditions, and a call is certified for one; give each a call of"
                " its own"
            )
        ranges: dict[str, Any] = {}
        for name, allowed in (conditions[0] if conditions else {}).items():
            ranges[name] = list(allowed)
            if name in rows and is_number(rows[name]):
                if len(rows) != 1:
                    raise AdapterError(
                        f"C[{name!r}] is relative to the query; give each query a call of its own"
                    )
                own = float(rows[name].iloc[0])
                ranges[name] = [own + min(allowed), own + max(allowed)]
        return limits | ({"permitted_range": ranges} if ranges else {})

    def _found(self, native: Any, rows: pd.DataFrame) -> list[Any]:
        answer, target = native.data["cf"], _places(native.data["target"])
        x, has = np.asarray(answer["X"]), np.ones(len(answer["X"]), dtype=bool)
        if answer.get("class") is not None:
            has = _places(answer["class"]) == np.resize(target, len(x))
        if len(rows) == 1:
            return [x[has]]
        return [x[i : i + 1] if is_there else None for i, is_there in enumerate(has)]

    def restore(self, native: Any, explanations: Explanations) -> Any:
        """Build a new ``Explanation`` with the queries, their classes and targets, and released
        cells.
        """
        data = dict.fromkeys(native.data) | {
            name: copy.deepcopy(native.data[name]) for name in ("orig", "target")
        }
        data["cf"] = {
            "X": self._cells(explanations),
            "class": np.array(self._labels(explanations), dtype=object),
        }
        return type(native)(meta=_settings(native.meta), data=data)


class OmniSource(LibrarySource):
    """OmniXAI's counterfactual explainers of tables, which answer all queries at once, each several
    times.

    ``y`` names the position of a class for each query, which must be the same for all.
    """

    library = "omnixai"
    kinds = dict.fromkeys(("DiceExplainer", "CounterfactualExplainer", "MACEExplainer"), "") | {
        "KNNCounterfactualExplainer": "rows"
    }
    one_by_one = False

    def __init__(self, explainer: Any, context: AdaptContext, encoder: Any = None) -> None:
        super().__init__(explainer, context, encoder)
        self.instance_based = self._kind == "rows"

    def _goal(self, options: Options) -> Any:
        return self._label_at(options.get("y"), "y")

    def _given(self, rows: pd.DataFrame) -> Any:
        return rows.copy()

    def _rows(self, given: Any) -> pd.DataFrame:
        table = given if isinstance(given, pd.DataFrame) else given.to_pd()
        return table[self._features].reset_index(drop=True)

    def _found(self, native: Any, rows: pd.DataFrame) -> list[Any]:  # noqa: ARG002 - it has one answer for each
        return [answer["counterfactual"] for answer in native.explanations]

    def _decode(self, values: Any, like: pd.DataFrame | None = None) -> pd.DataFrame:
        return pd.DataFrame(
            {
                name: settled(values[name], None if like is None else like[name])
                for name in self._features
            }
        )

    def restore(self, native: Any, explanations: Explanations) -> Any:
        """Build a new ``CFExplanation`` with the queries and released cells, None if all are
        withheld.
        """
        restored = type(native)()
        for i, answer in enumerate(native.explanations):
            entries = explanations.for_query(i)
            table = pd.DataFrame(self._cells(entries), columns=self._features).assign(
                label=self._labels(entries)
            )
            shown = table[table.notna().any(axis=1)].reset_index(drop=True)
            restored.add(
                query=answer["query"].reset_index(drop=True), cfs=shown if len(shown) else None
            )
        return restored


SOURCES: tuple[type[LibrarySource], ...] = (AlibiSource, AlibiRLSource, OmniSource)


def _places(classes: Any) -> np.ndarray[Any, Any]:
    table = np.asarray(classes)
    return table.argmax(axis=1) if table.ndim == 2 and table.shape[1] > 1 else table.reshape(-1)


def _settings(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return alibi's settings of an explainer, without arrays and objects, which may hold rows."""
    plain = (str, bool, int, float, type(None))
    kept = {
        name: value
        for name, value in meta.items()
        if isinstance(value, plain) or name in ("type", "explanations")
    }
    return kept | {
        "params": {
            n: value for n, value in meta.get("params", {}).items() if isinstance(value, plain)
        }
    }
