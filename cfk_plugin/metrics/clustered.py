"""Intervals of a share whose cases come in clusters, and of the difference of two shares."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from cfk_plugin.errors import InputError
from cfk_plugin.metrics.intervals import Bounds, clopper_pearson

_FEWEST = 10  # of fewer clusters a bootstrap is too narrow


def clustered_share(
    successes: ArrayLike, sizes: ArrayLike, *, confidence: float = 0.95, repeats: int = 2000, random_state: int = 0
) -> Bounds:
    """Return an interval of sum(successes) / sum(sizes), over clusters: cases of one are not independent.

    Parameters
    ----------
    successes, sizes : array of int
        Of each cluster. Empty clusters are left out.
    confidence : float
        Confidence level, in (0, 1).
    repeats : int
        Number of resamples.
    random_state : int
        Seed.

    Returns
    -------
    Bounds
        (0, 1) without any case.

    Raises
    ------
    InputError
        If a cluster has more successes than cases, or a setting is out of range.

    Notes
    -----
    Percentile bootstrap of clusters. Where it would be too narrow, Clopper-Pearson's interval for m trials, with the
    successes rounded outwards: where all clusters have one share, and where m = (sum of sizes)² / sum of squared sizes,
    the number of equally large clusters that they are as good as, is below 10.

    References
    ----------
    Field, Welsh (2007), Bootstrapping clustered data. Kish (1965), Survey sampling, for m.
    """
    right, total = np.asarray(successes, dtype=np.int64), np.asarray(sizes, dtype=np.int64)
    if (right > total).any() or (right < 0).any() or not 0 < confidence < 1 or repeats < 1:
        raise InputError(
            "clusters need from 0 to all of their cases as successes, a confidence between 0 and 1, repeats"
        )
    right, total = right[total > 0], total[total > 0]
    if not len(total):
        return Bounds(0.0, 1.0)
    share, alike = right.sum() / total.sum(), np.ptp(right / total) < 1e-12
    as_many = int(total.sum() ** 2 / (total**2).sum() + 1e-9)
    if alike or as_many < _FEWEST:
        low = clopper_pearson(math.floor(share * as_many + 1e-9), as_many, confidence).low
        return Bounds(low, clopper_pearson(math.ceil(share * as_many - 1e-9), as_many, confidence).high)
    random = np.random.default_rng(random_state)
    times = random.multinomial(len(total), np.full(len(total), 1 / len(total)), size=repeats)
    tail = (1 - confidence) / 2
    low, high = np.quantile((times @ right) / (times @ total), [tail, 1 - tail])
    return Bounds(float(low), float(high))


def difference(first: tuple[float, float, float], second: tuple[float, float, float]) -> Bounds:
    """Return an interval of a difference from the intervals of both parts.

    Parameters
    ----------
    first, second : tuple of float
        Value, low and high of each.

    Returns
    -------
    Bounds
        (NaN, NaN) when a value is NaN.

    Notes
    -----
    d - sqrt((a - a_low)² + (b_high - b)²) and d + sqrt((a_high - a)² + (b - b_low)²), for parts that are independent
    of each other; too wide where they rise and fall together. Never of width 0 unless both parts are.

    References
    ----------
    Newcombe (1998), Interval estimation for the difference between independent proportions, method 10.
    Zou, Donner (2008), Construction of confidence limits about effect measures.
    """
    (a, a_low, a_high), (b, b_low, b_high) = first, second
    return Bounds(a - b - math.hypot(a - a_low, b_high - b), a - b + math.hypot(a_high - a, b - b_low))
