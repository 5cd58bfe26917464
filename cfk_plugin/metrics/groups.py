"""Group differences: whether one group of people gets worse explanations than the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.data.columns import to_text
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.intervals import bootstrap, difference_of_means

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

POOLED = "other groups"


@dataclass(frozen=True, slots=True)
class GroupGap:
    """Difference of a metric's mean between one group and everybody else.

    Attributes
    ----------
    group : str
        The group; `POOLED` for all groups that are too small to be shown alone.
    n : int
        Queries in the group.
    mean, rest : float
        Mean of the metric in the group and outside.
    gap, low, high : float
        mean - rest with its bootstrap interval; NaN when it cannot be computed.
    """

    group: str
    n: int
    mean: float
    rest: float
    gap: float
    low: float
    high: float


def group_gap(
    values: ArrayLike,
    groups: ArrayLike | pd.Series,
    *,
    min_size: int = 11,
    confidence: float = 0.95,
    repeats: int = 2000,
    random_state: int | np.random.Generator | None = 0,
) -> tuple[GroupGap, ...]:
    """Compare a metric between each group of people and the rest.

    Parameters
    ----------
    values : array of float
        The metric of each query (k, NCP, pureness, 1 where suppressed); NaN is left out.
    groups : array
        Group of each query; missing is a group of its own.
    min_size : int
        Groups with fewer queries are pooled into one, and left out if even together they are fewer.
    confidence : float
        Confidence of each interval; not corrected for looking at several groups.
    repeats : int
        Resamples of the bootstrap.
    random_state : int or Generator, optional
        Seed of the bootstrap.

    Returns
    -------
    tuple of GroupGap
        Sorted by name, the pooled one last.

    Notes
    -----
    gap(g) = mean(metric in g) - mean(metric outside g), percentile bootstrap over queries; unbounded, best at
    0. It does not say why groups differ, nor that an interval around 0 shows equality.
    """
    metric = np.asarray(values, dtype=float)
    names = _names(groups)
    if len(names) != len(metric):
        raise InputError("group_gap needs one group per value")
    known = ~np.isnan(metric)
    metric, names = metric[known], names[known]
    kept, counts = np.unique(names.astype(str), return_counts=True)
    large = kept[counts >= min_size]
    pooled = ~np.isin(names.astype(str), large)
    random = np.random.default_rng(random_state)
    found = [(str(name), names == name) for name in large]
    if pooled.sum() >= min_size:
        found.append((POOLED, pooled))
    return tuple(_gap(name, metric, inside, confidence, repeats, random) for name, inside in found)


def _gap(
    name: str,
    metric: NDArray[np.float64],
    inside: NDArray[np.bool_],
    confidence: float,
    repeats: int,
    random: np.random.Generator,
) -> GroupGap:
    here, rest = metric[inside], metric[~inside]
    if not len(rest):
        nan = float("nan")
        return GroupGap(name, len(here), float(here.mean()), nan, nan, nan, nan)
    low, high = bootstrap(
        here, rest, statistic=difference_of_means, confidence=confidence, repeats=repeats, random_state=random
    )
    return GroupGap(
        name, len(here), float(here.mean()), float(rest.mean()), float(here.mean() - rest.mean()), low, high
    )


def _names(groups: ArrayLike | pd.Series) -> NDArray[Any]:
    column = pd.Series(groups).astype(object)
    return np.array([to_text(v) if not pd.isna(v) else "missing" for v in column], dtype=object)
