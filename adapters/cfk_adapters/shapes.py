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
from cfk_plugin.errors import AdapterError
from cfk_plugin.hookspecs import CounterfactualBatch, desired_of, hookimpl

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
            " as they are. Prototypes are rows: give them to KAnonymizer.transform as"
            " counterfactuals; see docs/how-to/wrap-other-explainers.md"
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


class CarlaSource(LibrarySource):
    """CARLA's recourse methods, which take and return rows in their data catalog's encoding.

    The catalog's ``transform`` and ``inverse_transform`` convert rows to it and back. The methods
    explain towards its positive outcome. A protected ``get_counterfactuals`` returns the
    population's columns.
    """

    library = "carla"
    kinds = dict.fromkeys(["RecourseMethod"], "")
    method = "get_counterfactuals"
    one_by_one = False

    def __init__(self, explainer: Any, context: AdaptContext, encoder: Any = None) -> None:
        super().__init__(explainer, context, encoder or explainer._mlmodel.data)

    def _rows(self, given: Any) -> pd.DataFrame:
        return self._decode(given)

    def _given(self, rows: pd.DataFrame) -> Any:
        return self._encode(rows).reset_index(drop=True)

    def _found(self, native: Any, rows: pd.DataFrame) -> list[Any]:
        if len(native) != len(rows):
            native = native.reindex(range(len(rows)))
        is_there = (
            native.drop(columns=self._explainer._mlmodel.data.target, errors="ignore")
            .notna()
            .all(axis=1)
        )
        return [native.iloc[i : i + 1] if there else None for i, there in enumerate(is_there)]

    def restore(self, native: Any, explanations: Explanations) -> Any:  # noqa: ARG002 - nothing of it is kept
        """Return a table of released cells, None in a row that is withheld."""
        return pd.DataFrame(self._cells(explanations), columns=self._features)


class CfnowSource(LibrarySource):
    """cfnow's ``find_tabular`` with its model: ``functools.partial(find_tabular,
    model_predict_proba=..., ...)``.

    It explains one row, a Series of numbers, towards a class other than the row's own. The first
    ``count_cf`` of its answers are used.
    """

    library = "cfnow"
    kinds = dict.fromkeys(["find_tabular"], "")
    method = "__call__"

    def __init__(self, explainer: Any, context: AdaptContext, encoder: Any = None) -> None:
        super().__init__(explainer, context, encoder)
        self._named = dict(getattr(explainer, "keywords", {}))
        if "model_predict_proba" not in self._named:
            raise AdapterError(
                "cfnow needs its model: give functools.partial(find_tabular,"
                " model_predict_proba=...)"
            )

    def _given(self, rows: pd.DataFrame) -> Any:
        coded = self._encode(rows)
        table = (
            coded
            if isinstance(coded, pd.DataFrame)
            else pd.DataFrame(coded, columns=self._features)
        )
        return table.iloc[0].astype(float)

    def _rows(self, given: Any) -> pd.DataFrame:
        return self._decode(given.to_frame().T)

    def _found(self, native: Any, rows: pd.DataFrame) -> list[Any]:  # noqa: ARG002 - it has one
        found = list(native.cfs)[: self._named.get("count_cf", 1)]
        return [pd.DataFrame(found, columns=native.factual.index)]

    def restore(self, native: Any, explanations: Explanations) -> Any:
        """Build a new result of cfnow's with the query and released cells, and without those that
        are withheld.
        """
        shown = [row for row in self._cells(explanations) if row[0] is not None]
        own = {name: getattr(native, name).copy() for name in ("factual", "factual_vector")}
        times = {name: getattr(native, name) for name in ("time_cf", "time_cf_not_optimized")}
        return type(native)(
            col_names=list(native.col_names),
            cf_vectors=shown,
            cf_not_optimized_vectors=[],
            obj_scores=[],
            **own,
            **times,
        )


class FatfSource(LibrarySource):
    """FAT-Forensics' ``CounterfactualExplainer``, of numbers in an array or of mixed rows in a
    structured one.

    Its ``counterfactual_class`` is a label; only ``counterfactual_feature_indices`` may change. Of
    its answers the nearest is used; ``explain_instance`` gives all.
    """

    library = "fatf"
    kinds = dict.fromkeys(["CounterfactualExplainer"], "")
    method = "explain_instance"
    counts_classes = False

    def _goal(self, options: Options) -> Any:
        return desired_of({"desired_class": options.get("counterfactual_class")})

    def _limits(self, options: Options, rows: pd.DataFrame) -> dict[str, Any]:  # noqa: ARG002 - its own settings
        varied = self._explainer.cf_feature_indices
        if len(varied) == len(self._features):
            return {}
        return {
            "features_to_vary": [
                n for j, n in enumerate(self._features) if n in varied or j in varied
            ]
        }

    def _given(self, rows: pd.DataFrame) -> Any:
        if not isinstance(next(iter(self._explainer.all_indices)), str):
            return self._encode(rows)[0]
        kinds = []
        for name, value in rows.iloc[0].items():
            known = [str(each) for each in (*self._explainer.feature_ranges.get(name, ()), value)]
            kinds.append((name, "f8" if is_number(rows[name]) else f"U{max(map(len, known))}"))
        return np.array([tuple(rows.iloc[0])], dtype=kinds)[0]

    def _rows(self, given: Any) -> pd.DataFrame:
        return self._decode(np.array([given]))

    def _found(self, native: Any, rows: pd.DataFrame) -> list[Any]:  # noqa: ARG002 - it has one
        return [np.asarray(native[0])]

    def generate(self, queries: pd.DataFrame, **options: Any) -> CounterfactualBatch:
        """Ask for the nearest counterfactual of each query; see `LibrarySource`."""
        batch = super().generate(queries, **options)
        first = np.diff(batch.query[batch.slot], prepend=-1) > 0
        found = np.isin(np.arange(len(queries)), batch.query[batch.slot])
        return CounterfactualBatch.one_each(
            batch.frame[first], found, batch.desired, batch.constraints
        )

    def _decode(self, values: Any, like: pd.DataFrame | None = None) -> pd.DataFrame:
        return super()._decode(pd.DataFrame(values) if values.dtype.names else values, like)

    def restore(self, native: Any, explanations: Explanations) -> Any:
        """Return released cells, and outcomes instead of predictions; no distances, as those are of
        raw rows.
        """
        cells, labels = self._cells(explanations), self._labels(explanations)
        shown = np.array([row[0] is not None for row in cells], dtype=bool)
        return type(native)(
            (cells[shown], np.full(shown.sum(), np.nan), np.array(labels, dtype=object)[shown])
        )


class ProtodashSource(LibrarySource):
    """AIX360's ``ProtodashExplainer``: prototypes of a query among rows ``Y`` are counterfactuals
    if `Y` are.

    They are rows of `Y`, a table of the features or an array as ProtoDash takes it, of people with
    the desired outcome. ``m`` says how many. Its own ``explain`` returns positions of rows and
    weights; a protected one returns a table.
    """

    library = "aix360"
    kinds = dict.fromkeys(["ProtodashExplainer"], "")
    instance_based = True

    def _ask(self, given: Any, options: Options) -> Any:
        rows = options.get("Y")
        if rows is None:
            raise AdapterError(
                "ProtoDash chooses among rows: give them as Y, people with the outcome that is"
                " desired"
            )
        rows = (
            self._encode(rows[self._features])
            if isinstance(rows, pd.DataFrame)
            else np.asarray(rows)
        )
        _, chosen, _ = super()._ask(given, {"m": 1, **options, "Y": rows})
        return rows[np.asarray(chosen, dtype=int)]

    def _found(self, native: Any, rows: pd.DataFrame) -> list[Any]:  # noqa: ARG002 - it has one
        return [native]

    def restore(self, native: Any, explanations: Explanations) -> Any:  # noqa: ARG002 - nothing of it is kept
        """Return a table of released cells, None in a row that is withheld."""
        return pd.DataFrame(self._cells(explanations), columns=self._features)


SOURCES: tuple[type[LibrarySource], ...] = (
    AlibiSource, AlibiRLSource, OmniSource, CarlaSource, CfnowSource, FatfSource, ProtodashSource,
)  # fmt: skip


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
