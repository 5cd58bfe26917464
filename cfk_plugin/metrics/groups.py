"""Group differences: whether one group of people gets worse explanations than the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cfk_plugin.data.region import to_text
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.intervals import bootstrap, difference_of_means

POOLED = "other groups"


@dataclass(frozen=True, slots=True)
class GroupGap:
    """Difference of a metric's mean between one group and everybody else."""

    group: str  # `POOLED` for all groups that are too small to be shown alone
    n: int  # queries in the group
    mean: float
    rest: float  # mean outside of the group
    gap: float  # mean - rest; NaN, like its interval, when it cannot be computed
    low: float  # ends of the bootstrap interval
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

    mean(metric in g) - mean(metric outside g), bootstrap over queries. An interval around 0 does not show equality.

    Parameters
    ----------
    values : array of float
        The metric of each query (k, NCP, pureness, 1 where suppressed); NaN is left out.
    groups : array
        Group of each query; missing is a group of its own.
    min_size : int
        Groups with fewer queries are pooled, and left out if even together they are fewer.
    confidence : float
        Of each interval; not corrected for looking at several groups.
    repeats, random_state : int
        Of the bootstrap; a Generator will do as well.

    Returns
    -------
    tuple of GroupGap, sorted by name, the pooled one last
    """
    metric, column = np.asarray(values, dtype=float), pd.Series(groups).astype(object)
    names = np.array(["missing" if pd.isna(v) else to_text(v) for v in column])
    if len(names) != len(metric):
        raise InputError("group_gap needs one group per value")
    known = ~np.isnan(metric)
    metric, names = metric[known], names[known]
    shown, counts = np.unique(names, return_counts=True)
    large = shown[counts >= min_size]
    found = [(str(name), names == name) for name in large]
    if (pooled := ~np.isin(names, large)).sum() >= min_size:
        found.append((POOLED, pooled))
    random, gaps = np.random.default_rng(random_state), []
    for name, inside in found:
        here, rest = metric[inside], metric[~inside]
        mean, other = float(here.mean()), float(rest.mean()) if len(rest) else float("nan")
        low, high = bootstrap(
            here, rest, statistic=difference_of_means, confidence=confidence, repeats=repeats, random_state=random
        )
        gaps.append(GroupGap(name, len(here), mean, other, mean - other, low, high))
    return tuple(gaps)
