"""The rows that answers are taken from: drawn once, labelled, and searched for the nearest with
another outcome.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import scipy.special
from numpy.typing import NDArray

from cfk_plugin.data.codes import Codes
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.region import to_text
from cfk_plugin.data.schema import Schema
from cfk_plugin.data.tables import one_row
from cfk_plugin.dp.domain import PublicDomain, PublicEncoder
from cfk_plugin.dp.mover import Mover
from cfk_plugin.errors import ModelError, SchemaError, quiet
from cfk_plugin.metrics.heom import Heom, HeomCodes
from cfk_plugin.metrics.nearest import NearestRows

_WEIGHTS = np.array([0, 0.1, 0.2, 0.3, 0.45])  # larger ones give up distance for little likeness
_ASKED = 100  # drawn rows that the weight of plausibility is chosen with
# how far answers may be on average, in distances to the nearest drawn row
_MOVED, _DRAWN = 0.85, 1.1
_ROOM = 1.15  # or in distances of the nearest answers, if that is more
_MOST = 4_000  # most rows of an outcome among which prototypes are sought
_PLAIN = (type(None), bool, int, float, str, bytes, slice, np.generic, np.dtype, type)
_LISTS = (list, tuple, set, frozenset)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, np.ufunc)
_LIBRARIES = frozenset({"builtins", "math", "operator", "numpy", "scipy", "sklearn", "pandas"})
_GIVE = "give a scikit-learn classifier or pipeline that was never fitted"


class _Answers:
    """The rows with some outcomes, and a search for the nearest."""

    def __init__(
        self, heom: Heom, codes: HeomCodes, cost: NDArray[np.float64], rows: NDArray[np.int64]
    ) -> None:
        kept = codes.take(rows)
        self._widths = np.array([heom.ranges[name] or np.inf for name in heom.numeric])
        self._hashes = [np.unique(column) for column in kept.codes.T]
        self._rows = rows
        self._nearest_rows = NearestRows(*self._parts(kept), cost[rows])

    def nearest(self, queries: HeomCodes) -> NDArray[np.int64]:
        """Return the nearest row to each query; of equally near ones the first."""
        nearest, _ = self._nearest_rows.find(*self._parts(queries))
        return self._rows[nearest]

    def _parts(self, codes: HeomCodes) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return rows in the form that `NearestRows` takes; -1 for a category that no row has."""
        categories = np.empty(codes.codes.shape, dtype=np.int64)
        for j, hashes in enumerate(self._hashes):
            column = codes.codes[:, j]
            place = np.searchsorted(hashes, column).clip(max=len(hashes) - 1)
            categories[:, j] = np.where(hashes[place] == column, place, -1)
        return codes.numbers / self._widths, categories


_ANSWERS: WeakKeyDictionary[ServedRows, dict[Hashable, tuple[DesiredOutcome, _Answers]]] = (
    WeakKeyDictionary()
)
_KEPT = 8  # goals, or outcomes of queries, for which prepared rows are kept


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, repr=False)
class ServedRows:
    """Rows to answer with. They come from noised counts alone, so they may be looked at."""

    frame: pd.DataFrame  # every feature, in the dtypes that the model takes
    labels: NDArray[Any]  # the model's, of each row
    cost: NDArray[np.float64]  # added to the distance to a row: less for likely ones
    heom: Heom  # distance over the declared ranges
    codes: HeomCodes  # `frame`, prepared for it

    @classmethod
    def of(
        cls,
        domain: PublicDomain,
        frame: pd.DataFrame,
        labels: NDArray[Any],
        cost: NDArray[np.float64],
    ) -> ServedRows:
        features = [column for column in domain.columns if column.name in frame.columns]
        widths = {column.name: column.width for column in features if column.is_numeric}
        heom = Heom(
            list(widths), [column.name for column in features if not column.is_numeric], widths
        )
        return cls(frame, labels, cost, heom, heom.encode(frame))

    def __len__(self) -> int:
        return len(self.frame)

    def __repr__(self) -> str:
        return f"ServedRows({len(self)} rows)"

    def table(self, at: NDArray[np.int64]) -> pd.DataFrame:
        """Return some of the rows."""
        return (
            one_row(self.frame, at[0])
            if len(at) == 1
            else self.frame.take(at).reset_index(drop=True)
        )

    def take(self, at: NDArray[np.int64]) -> ServedRows:
        frame = self.frame.take(at).reset_index(drop=True)
        return ServedRows(frame, self.labels[at], self.cost[at], self.heom, self.codes.take(at))

    def nearest(
        self,
        queries: pd.DataFrame | HeomCodes,
        goal: DesiredOutcome,
        factual_labels: NDArray[Any] | None,
    ) -> NDArray[np.int64]:
        """Return, per query, the nearest row with a desired outcome, or -1; `factual_labels` are
        for "opposite".
        """
        asked = queries if isinstance(queries, HeomCodes) else self.heom.encode(queries)
        if factual_labels is None:
            return self._nearest(asked, goal, None)
        out = np.empty(len(asked), dtype=np.int64)
        for label in pd.unique(factual_labels):
            which = np.flatnonzero(factual_labels == label)
            out[which] = self._nearest(asked.take(which), goal, label)
        return out

    def _nearest(self, asked: HeomCodes, goal: DesiredOutcome, own: Any) -> NDArray[np.int64]:
        ready, key = _ANSWERS.setdefault(self, {}), (id(goal), own)
        if key not in ready:
            factual_labels = np.full(len(self.labels), own, dtype=object)
            rows = np.flatnonzero(goal.is_met(self.labels, factual_labels))
            if not len(rows):
                return np.full(len(asked), -1, dtype=np.int64)
            while len(ready) >= _KEPT:
                ready.pop(next(iter(ready)))
            ready[key] = goal, _Answers(self.heom, self.codes, self.cost, rows)
        return ready[key][1].nearest(asked)


def rows_to_advise(frame: pd.DataFrame, schema: Schema) -> NDArray[np.int64]:
    """Return the positions of the rows that obey all rules, without values never advised.

    Only these are served, so an answer has such a value only if it was moved there: to the query's
    own.

    Raises
    ------
    SchemaError
        If there is no such row.
    """
    is_excluded = ~obey_rules(frame, schema)
    for name, never_advised in schema.never_advised.items():
        column = frame[name]
        is_excluded |= column.map(to_text).isin(never_advised).to_numpy(dtype=bool)
        if None in never_advised:
            is_excluded |= column.isna().to_numpy(dtype=bool)
    if len(frame) > 0 and is_excluded.all():
        raise SchemaError(
            "every drawn row breaks a rule or has a value of never_advise; declare fewer of these,"
            " or draw more rows"
        )
    return np.flatnonzero(~is_excluded)


def obey_rules(frame: pd.DataFrame, schema: Schema) -> NDArray[np.bool_]:
    """Return which rows of a table obey the schema's rules, shape (n_rows,)."""
    if not schema.rules or frame.empty:
        return np.ones(len(frame), dtype=bool)
    codes = Codes.read(frame, schema)
    return codes.obey_rules(codes.encode(frame))


def balanced_weight(
    served: ServedRows,
    log_probability: NDArray[np.float64],
    goal: DesiredOutcome,
    model: LabelModel,
    mover: Mover | None,
) -> float:
    """Return the largest weight of plausibility at which answers are near enough, averaged over
    drawn rows as queries.

    That is 0.85 times as far as the nearest drawn row, or 1.15 times as far as the nearest answers
    if that is more, as likelihood costs almost no distance near these; 1.1 times as far as the
    nearest drawn row if rows are not moved. It is interpolated between the weights that are tried.
    """
    labels = served.labels
    asked = np.flatnonzero(~goal.is_met(labels, labels))[:_ASKED]
    rows = np.flatnonzero(goal.is_eligible(labels))
    if not len(rows):
        return 0.0
    away = (
        served.heom.distances(served.codes.take(asked), served.codes.take(rows))
        * served.frame.shape[1]
    )
    away[~goal.is_met_by_query(labels[rows], labels[asked])] = np.inf
    known = np.isfinite(away.min(axis=1))
    asked, away = asked[known], away[known]
    if not len(asked):
        return 0.0
    at = np.array([(away - weight * log_probability[rows]).argmin(axis=1) for weight in _WEIGHTS])
    far, limit = away[np.arange(len(asked)), at].mean(axis=1), _DRAWN * away.min(axis=1).mean()
    if mover is not None:
        who, begin = np.tile(asked, len(_WEIGHTS)), rows[at.ravel()]

        def met(some: pd.DataFrame, which: NDArray[np.int64]) -> NDArray[np.bool_]:
            return goal.is_met(model(some).astype(object), labels[who[which]])

        moved = mover.move(
            begin, served.labels[begin], mover.rows.take(who), np.repeat(_WEIGHTS, len(asked)), met
        )
        far = (
            served.heom.parts(moved, served.codes.take(who))
            .sum(axis=1)
            .reshape(at.shape)
            .mean(axis=1)
        )
        limit = max(limit * _MOVED / _DRAWN, _ROOM * far[0])
    return float(np.interp(limit, np.maximum.accumulate(far), _WEIGHTS))


def medoids(served: ServedRows, goal: DesiredOutcome, most: int) -> NDArray[np.int64]:
    """Return prototypes: the rows nearest to k-means centres, categories one-hot over sqrt(2).

    They are sought per outcome; if outcomes are numbers, per side of the goal.
    """
    from sklearn.cluster import KMeans

    widths = np.array([served.heom.ranges[name] for name in served.heom.numeric])
    kept: list[NDArray[np.int64]] = []
    kinds = goal.is_met(served.labels) if goal.takes_fractions else served.labels
    for kind in pd.unique(kinds):
        rows = np.flatnonzero(kinds == kind)[:_MOST]
        if len(rows) > most:
            codes = served.codes.take(rows)
            flags = [
                np.eye(at.max() + 1)[at] / np.sqrt(2) for at, _ in map(pd.factorize, codes.codes.T)
            ]
            points = np.hstack([np.nan_to_num(codes.numbers / widths), *flags]).astype(np.float32)
            with warnings.catch_warnings(action="ignore"):  # equal rows give fewer centers
                found = (
                    KMeans(most, init=points[:most], n_init=1, max_iter=10)
                    .fit(points)
                    .cluster_centers_
                )
            squares = (points**2).sum(axis=1)[:, None] - 2 * points @ found.T
            rows = rows[np.unique(squares.argmin(axis=0))]
        kept.append(rows)
    return np.sort(np.concatenate(kept))


def check_unfitted(estimator: Any) -> None:
    """Refuse an estimator that could carry what it learned elsewhere, which no epsilon covers.

    Allowed are unfitted estimators that scikit-learn's `clone` copies, whose settings are plain
    values, lists of them, functions of numerical libraries, and such estimators again.
    """
    with quiet(f"the surrogate cannot be fitted ({{}}); {_GIVE}", ModelError, let=ModelError):
        if not hasattr(estimator, "get_params") or not hasattr(estimator, "fit"):
            raise ModelError(
                f"the surrogate cannot be fitted, it is a {type(estimator).__name__}; {_GIVE}"
            )
        _check(estimator, type(estimator).__name__)


def fit_surrogate(estimator: Any, rows: pd.DataFrame, target: pd.Series) -> Any:
    """Return a fitted copy of an estimator that only ever sees differentially private rows."""
    from sklearn.base import clone

    with quiet(f"the surrogate cannot be fitted ({{}}); {_GIVE}", ModelError):
        return clone(estimator).fit(rows, target)


def _check(value: Any, where: str) -> None:
    if isinstance(value, _PLAIN) or _is_of_a_library(value):
        return
    if isinstance(value, _LISTS):
        for at, each in enumerate(value):
            _check(each, f"{where}[{at}]")
    elif isinstance(value, Mapping):
        for name, each in value.items():
            _check(each, f"{where}[{name!r}]")
    elif hasattr(value, "get_params"):
        _check_estimator(value, where)
    elif type(value).__module__.startswith("sklearn.") and hasattr(
        value, "__dict__"
    ):  # a splitter, a selector, ...
        for name, each in vars(value).items():
            _check(each, f"{where}.{name}")
    else:
        raise ModelError(
            f"the surrogate's {where} is a {type(value).__name__}, which may hold what was learned"
            " from the table; settings are plain values, functions of numpy, scipy, scikit-learn"
            " or pandas, and estimators that were never fitted"
        )


def _check_estimator(value: Any, where: str) -> None:
    from sklearn.base import BaseEstimator

    if isinstance(value, PublicEncoder) and not value.domain.inferred:
        return
    kind = type(value)
    own = getattr(kind, "__sklearn_clone__", BaseEstimator.__sklearn_clone__)
    if own is not BaseEstimator.__sklearn_clone__:
        raise ModelError(
            f"the surrogate's {where} is a {kind.__name__}, of which a clone is no new one; {_GIVE}"
        )
    if _is_fitted(value):
        raise ModelError(
            f"the surrogate's {where} is fitted already; {_GIVE}, as sklearn.base.clone makes one"
        )
    for name, setting in value.get_params(deep=False).items():
        if (name == "prefit" and setting is not False) or (
            isinstance(setting, str) and setting == "prefit"
        ):
            raise ModelError(
                f"the surrogate's {where}.{name} asks for an estimator that is fitted already;"
                f" {_GIVE}"
            )
        _check(setting, f"{where}.{name}")


def _is_fitted(estimator: Any) -> bool:
    """Say whether an estimator has learned anything: scikit-learn's sign is a name that ends with
    an underscore.
    """
    if any(
        name.endswith("_") and not name.startswith("__")
        for name in getattr(estimator, "__dict__", {})
    ):
        return True
    if hasattr(estimator, "steps") or not hasattr(estimator, "__sklearn_is_fitted__"):
        return False  # the steps of a pipeline are checked one by one
    stateless = (
        hasattr(estimator, "__sklearn_tags__") and not estimator.__sklearn_tags__().requires_fit
    )
    return not stateless and bool(estimator.__sklearn_is_fitted__())


def _is_of_a_library(value: Any) -> bool:
    if not isinstance(value, _FUNCTIONS):
        return False
    homes = (
        [np, scipy.special]
        if isinstance(value, np.ufunc)
        else [sys.modules.get(str(value.__module__))]
    )
    named = any(getattr(home, value.__name__, None) is value for home in homes)
    return named and all(
        home is not None and home.__name__.partition(".")[0] in _LIBRARIES for home in homes
    )
