"""The rows that answers are taken from: drawn once, labelled, and searched for the nearest of another outcome."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.special
from numpy.typing import NDArray

from cfk_plugin.data.model import Goal, LabelModel
from cfk_plugin.dp.domain import PublicDomain, PublicEncoder
from cfk_plugin.errors import ModelError, quiet
from cfk_plugin.metrics.heom import Heom, HeomCodes

_MOST = 10_000  # rows of an outcome that prototypes are sought among
_PLAIN = (type(None), bool, int, float, str, bytes, slice, np.generic, np.dtype, type)
_LISTS = (list, tuple, set, frozenset)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, np.ufunc)
_LIBRARIES = frozenset({"builtins", "math", "operator", "numpy", "scipy", "sklearn", "pandas"})
_GIVE = "give a scikit-learn classifier or pipeline that was never fitted"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ServedRows:
    """Rows to answer with. They come from noised counts alone, so they may be looked at."""

    frame: pd.DataFrame  # every feature, in the dtypes that the model takes
    labels: NDArray[Any]  # the model's, at each row
    cost: NDArray[np.float64]  # added to the distance to a row: less for likely ones
    heom: Heom  # distance over the declared ranges
    codes: HeomCodes  # `frame`, prepared for it

    @classmethod
    def of(
        cls, domain: PublicDomain, frame: pd.DataFrame, labels: NDArray[Any], cost: NDArray[np.float64]
    ) -> ServedRows:
        features = [column for column in domain.columns if column.name in frame.columns]
        widths = {column.name: column.width for column in features if column.is_numeric}
        heom = Heom(list(widths), [column.name for column in features if not column.is_numeric], widths)
        return cls(frame, labels, cost, heom, heom.encode(frame))

    def __len__(self) -> int:
        return len(self.frame)

    def __repr__(self) -> str:
        return f"ServedRows({len(self)} rows)"

    def take(self, at: NDArray[np.int64]) -> ServedRows:
        frame = self.frame.take(at).reset_index(drop=True)
        return ServedRows(frame, self.labels[at], self.cost[at], self.heom, self.codes.take(at))

    def nearest(self, queries: pd.DataFrame, goal: Goal, factual_labels: NDArray[Any] | None) -> NDArray[np.int64]:
        """Return, per query, the nearest row with a desired outcome, or -1; `factual_labels` are for "opposite"."""
        asked = self.heom.encode(queries)
        out = np.full(len(queries), -1, dtype=np.int64)
        if factual_labels is None:
            turns = [(np.ones(len(queries), dtype=bool), goal.met(self.labels))]
        else:
            turns = [(factual_labels == label, self.labels != label) for label in pd.unique(factual_labels)]
        for which, met in turns:
            rows = np.flatnonzero(met)
            if len(rows):
                found, _ = self.heom.nearest(asked.take(which), self.codes.take(rows), cost=self.cost[rows])
                out[which] = rows[found[:, 0]]
        return out


def revert_rows(
    rows: pd.DataFrame,
    queries: pd.DataFrame,
    model: LabelModel,
    goal: Goal,
    factual_labels: NDArray[Any] | None,
    heom: Heom,
) -> pd.DataFrame:
    """Return rows with as many features as possible taken from their queries: sparser answers, which tell of the model.

    Each turn, every row takes over the feature that brings it nearest among those that keep the outcome desired.
    """
    names = [*heom.numeric, *heom.categorical]
    moved, asked = rows.reset_index(drop=True), queries.reset_index(drop=True)
    waiting = np.arange(len(moved))
    while len(waiting):
        gains = heom.parts(moved.take(waiting), asked.take(waiting))
        at, feature = np.nonzero(gains > 0)
        if not len(at):
            break
        tried = moved.take(waiting[at]).reset_index(drop=True)
        for j in np.unique(feature):
            these = np.flatnonzero(feature == j)
            tried.loc[these, names[j]] = asked[names[j]].take(waiting[at[these]]).to_numpy()
        own = None if factual_labels is None else factual_labels[waiting[at]]
        met = goal.met(model(tried).astype(object), own)
        gain = np.where(met, gains[at, feature], 0.0)
        order = np.lexsort((-gain, at))
        best = order[np.unique(at, return_index=True)[1]]  # of each row the largest gain, as `at` ascends
        best = best[gain[best] > 0]
        moved.loc[waiting[at[best]]] = tried.take(best).set_axis(waiting[at[best]])
        waiting = waiting[at[best]]
    return moved.set_axis(rows.index)


def medoids(served: ServedRows, most: int) -> NDArray[np.int64]:
    """Return prototypes: per outcome the rows nearest to k-means centres, categories one-hot over sqrt(2)."""
    from sklearn.cluster import MiniBatchKMeans

    widths = np.array([served.heom.ranges[name] for name in served.heom.numeric])
    flags = pd.get_dummies(served.frame[list(served.heom.categorical)].astype(str)).to_numpy(dtype=np.float64)
    points = np.hstack([np.nan_to_num(served.codes.numbers / widths), flags / np.sqrt(2)])
    kept: list[NDArray[np.int64]] = []
    for label in pd.unique(served.labels):
        rows = np.flatnonzero(served.labels == label)[:_MOST]
        if len(rows) > most:
            centres = MiniBatchKMeans(most, random_state=0, n_init=1).fit(points[rows]).cluster_centers_
            squares = (points[rows] ** 2).sum(axis=1)[:, None] - 2 * points[rows] @ centres.T
            rows = rows[np.unique(squares.argmin(axis=0))]
        kept.append(rows)
    return np.sort(np.concatenate(kept))


def check_unfitted(estimator: Any) -> None:
    """Refuse an estimator that could bring along what it learned elsewhere, which no epsilon covers.

    What may pass: unfitted estimators that scikit-learn's `clone` makes anew, whose settings are plain values, lists of
    them, functions of numerical libraries, and such estimators again.
    """
    with quiet(f"the surrogate cannot be fitted ({{}}); {_GIVE}", ModelError, let=ModelError):
        if not hasattr(estimator, "get_params") or not hasattr(estimator, "fit"):
            raise ModelError(f"the surrogate cannot be fitted, it is a {type(estimator).__name__}; {_GIVE}")
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
    elif type(value).__module__.startswith("sklearn.") and hasattr(value, "__dict__"):  # a splitter, a selector, ...
        for name, each in vars(value).items():
            _check(each, f"{where}.{name}")
    else:
        raise ModelError(
            f"the surrogate's {where} is a {type(value).__name__}, which may hold what was learned from the table; "
            "settings are plain values, functions of numpy, scipy, scikit-learn or pandas, and estimators that were "
            "never fitted"
        )


def _check_estimator(value: Any, where: str) -> None:
    from sklearn.base import BaseEstimator

    if isinstance(value, PublicEncoder) and not value.domain.inferred:
        return
    kind = type(value)
    own = getattr(kind, "__sklearn_clone__", BaseEstimator.__sklearn_clone__)
    if own is not BaseEstimator.__sklearn_clone__:
        raise ModelError(f"the surrogate's {where} is a {kind.__name__}, of which a clone is no new one; {_GIVE}")
    if _is_fitted(value):
        raise ModelError(f"the surrogate's {where} is fitted already; {_GIVE}, as sklearn.base.clone makes one")
    for name, setting in value.get_params(deep=False).items():
        if (name == "prefit" and setting is not False) or (isinstance(setting, str) and setting == "prefit"):
            raise ModelError(f"the surrogate's {where}.{name} asks for an estimator that is fitted already; {_GIVE}")
        _check(setting, f"{where}.{name}")


def _is_fitted(estimator: Any) -> bool:
    """Say whether an estimator has learned anything: by scikit-learn's sign, a name that ends with an underscore."""
    if any(name.endswith("_") and not name.startswith("__") for name in getattr(estimator, "__dict__", {})):
        return True
    if hasattr(estimator, "steps") or not hasattr(estimator, "__sklearn_is_fitted__"):
        return False  # the steps of a pipeline are looked at one by one
    stateless = hasattr(estimator, "__sklearn_tags__") and not estimator.__sklearn_tags__().requires_fit
    return not stateless and bool(estimator.__sklearn_is_fitted__())


def _is_of_a_library(value: Any) -> bool:
    if not isinstance(value, _FUNCTIONS):
        return False
    homes = [np, scipy.special] if isinstance(value, np.ufunc) else [sys.modules.get(str(value.__module__))]
    named = any(getattr(home, value.__name__, None) is value for home in homes)
    return named and all(home is not None and home.__name__.partition(".")[0] in _LIBRARIES for home in homes)
