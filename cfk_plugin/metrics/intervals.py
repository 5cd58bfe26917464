"""Confidence intervals, the only place where they are made, and the estimates that carry them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from cfk_plugin.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable


# Confidence intervals: the only place where they are made.

_BLOCK = 1 << 16  # values of resamples held at once


class Bounds(NamedTuple):
    """The two ends of a confidence interval."""

    low: float
    high: float


class Ends(NamedTuple):
    """The two ends of many confidence intervals."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]


def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> Bounds:
    """Return the exact two-sided interval of a proportion; conservative for draws without replacement.

    Parameters
    ----------
    successes : int
        Number of successes, between 0 and n.
    n : int
        Number of draws.
    confidence : float
        Confidence level, in (0, 1).

    Returns
    -------
    Bounds
        (0, 1) when n is 0: nothing was measured.

    Notes
    -----
    low = Beta(a/2; s, n-s+1), high = Beta(1-a/2; s+1, n-s); no failures: low = (a/2)^(1/n).
    It says nothing about draws that were not random.

    References
    ----------
    Clopper, Pearson (1934), The use of confidence or fiducial limits.

    Examples
    --------
    >>> round(clopper_pearson(100, 100).low, 3)
    0.964
    """
    _check_counts(successes, n, confidence)
    tail = (1 - confidence) / 2
    low = float(special.betaincinv(successes, n - successes + 1, tail)) if successes else 0.0
    high = float(special.betaincinv(successes + 1, n - successes, 1 - tail)) if successes < n else 1.0
    return Bounds(low, high)


def clopper_pearson_table(n: int, confidence: float = 0.95) -> Ends:
    """Return `clopper_pearson` for 0, 1, ..., n successes of n draws."""
    _check_counts(0, n, confidence)
    successes = np.arange(1, n + 1)
    low = np.concatenate([[0.0], special.betaincinv(successes, n - successes + 1, (1 - confidence) / 2)])
    return Ends(low, 1 - low[::-1])


def wilson(successes: int, n: int, confidence: float = 0.95) -> Bounds:
    """Return Wilson's score interval of a proportion; never of width 0, also at 0 or n successes.

    Parameters
    ----------
    successes, n : int
        Number of successes and of independent draws.
    confidence : float
        Confidence level, in (0, 1).

    Returns
    -------
    Bounds

    Notes
    -----
    (p + z²/2n ± z·sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n). Coverage is approximate, unlike `clopper_pearson`.

    References
    ----------
    Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    _check_counts(successes, n, confidence)
    if n == 0:
        return Bounds(0.0, 1.0)
    z = float(special.ndtri(1 - (1 - confidence) / 2))
    share = successes / n
    middle = share + z * z / (2 * n)
    half = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = ((middle + sign * half) / (1 + z * z / n) for sign in (-1, 1))
    return Bounds(float(low) if successes else 0.0, float(high) if successes < n else 1.0)


def auc_interval(above: ArrayLike, below: ArrayLike, confidence: float = 0.95) -> Bounds:
    """Return an interval of the area under the ROC curve: the chance that the first of two scores is the larger one.

    Parameters
    ----------
    above, below : array
        Scores of positives and of negatives; ties count half. Infinite ones are scores, NaN is none.
    confidence : float
        Confidence level, in (0, 1).

    Returns
    -------
    Bounds
        The outer ends of two intervals; (0, 1) when a sample is empty.

    Notes
    -----
    DeLong's variance S10/m + S01/n, on the scale of ln(A / (1 - A)), assumes no distribution, but knows no spread where
    samples are small or the area is 0 or 1. Newcombe's method 5 does: all T with |A - T| <= z·sqrt(T(1-T)(1 +
    N((1-T)/(2-T) + T/(1+T))) / mn), N = (m+n)/2 - 1. The wider end of both is never of width 0.

    References
    ----------
    DeLong, DeLong, Clarke-Pearson (1988), Comparing the areas under two or more correlated ROC curves. Newcombe (2006),
    Confidence intervals for an effect size measure based on the Mann-Whitney statistic, part 2.

    Examples
    --------
    >>> [round(end, 2) for end in auc_interval([3, 4, 5], [0, 1, 2])]
    [0.5, 1.0]
    """
    _check_counts(0, 0, confidence)
    first, second = (np.asarray(scores, dtype=np.float64) for scores in (above, below))
    m, n = len(first), len(second)
    if not m or not n:
        return Bounds(0.0, 1.0)
    over = (_places(second, first, "left") + _places(second, first, "right")) / (2 * n)
    under = 1 - (_places(first, second, "left") + _places(first, second, "right")) / (2 * m)
    area, z = float(over.mean()), float(special.ndtri(1 - (1 - confidence) / 2))
    low, high = _newcombe(area, m, n, z), 1 - _newcombe(1 - area, m, n, z)
    if m > 1 and n > 1 and 0 < area < 1:
        spread = float(np.sqrt(over.var(ddof=1) / m + under.var(ddof=1) / n)) / (area * (1 - area))
        ends = special.expit(special.logit(area) + z * spread * np.array([-1.0, 1.0]))
        low, high = min(low, float(ends[0])), max(high, float(ends[1]))
    return Bounds(low, high)


def balanced_interval(hits: int, m: int, rejects: int, n: int, confidence: float = 0.95) -> Bounds:
    """Return an interval of the mean of two independent proportions, such as a balanced accuracy.

    Parameters
    ----------
    hits, m, rejects, n : int
        Successes and draws of one proportion, and of the other.
    confidence : float
        Confidence level, in (0, 1).

    Returns
    -------
    Bounds
        (0, 1) when nothing was drawn for one of them.

    Notes
    -----
    p - sqrt((p1 - l1)² + (p2 - l2)²) / 2 with l1, l2 the Clopper-Pearson ends; likewise above.

    References
    ----------
    Zou, Donner (2008), Construction of confidence limits about effect measures: a general approach.
    """
    ends = [clopper_pearson(hits, m, confidence), clopper_pearson(rejects, n, confidence)]
    if not m or not n:
        return Bounds(0.0, 1.0)
    shares = (hits / m, rejects / n)
    low, high = (np.hypot(shares[0] - ends[0][side], shares[1] - ends[1][side]) / 2 for side in (0, 1))
    middle = sum(shares) / 2
    return Bounds(max(float(middle - low), 0.0), min(float(middle + high), 1.0))


def bootstrap(
    *samples: ArrayLike,
    statistic: Callable[..., Any] = np.mean,
    confidence: float = 0.95,
    repeats: int = 2000,
    random_state: int | np.random.Generator | None = None,
) -> Bounds:
    """Return the percentile bootstrap interval of a statistic of one or more independent samples.

    Parameters
    ----------
    *samples : array
        Each is resampled with replacement on its own.
    statistic : callable
        From as many arrays as there are samples to a number.
    confidence : float
        Confidence level, in (0, 1).
    repeats : int
        Number of resamples.
    random_state : int or Generator, optional
        Seed; the global random state is never touched.

    Returns
    -------
    Bounds
        (NaN, NaN) when a sample is empty.

    Notes
    -----
    The (a/2, 1-a/2) quantiles of the statistic over resamples. Too narrow for samples of a few values, of
    width 0 when all values are equal.

    References
    ----------
    Efron, Tibshirani (1993), An Introduction to the Bootstrap, chapter 13.
    """
    if not 0 < confidence < 1 or repeats < 1 or not samples:
        raise InputError("a bootstrap needs a sample, a confidence between 0 and 1, and at least one repeat")
    arrays: list[NDArray[Any]] = [np.asarray(sample) for sample in samples]
    if any(len(a) == 0 for a in arrays):
        return Bounds(float("nan"), float("nan"))
    random = np.random.default_rng(random_state)
    if statistic is np.mean and len(arrays) == 1 and arrays[0].ndim == 1:
        values = _means(arrays[0], repeats, random)
    elif statistic is difference_of_means and len(arrays) == 2:
        first, second = (np.asarray(_means(a, repeats, random)) for a in arrays)
        values = (first - second).tolist()
    else:
        values = [statistic(*(a[random.integers(0, len(a), len(a))] for a in arrays)) for _ in range(repeats)]
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.asarray(values, dtype=float), [tail, 1 - tail])
    return Bounds(float(low), float(high))


def difference_of_means(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Return mean(a) - mean(b), a statistic whose `bootstrap` is fast."""
    return float(a.mean() - b.mean())


def _places(scores: NDArray[np.float64], of: NDArray[np.float64], side: Literal["left", "right"]) -> NDArray[np.int64]:
    return np.searchsorted(np.sort(scores), of, side=side)


def _newcombe(area: float, m: int, n: int, z: float) -> float:
    """Return the lower end of Newcombe's interval: where the area lies z deviations above what is assumed."""

    def excess(true: float) -> float:
        spread = 1 + ((m + n) / 2 - 1) * ((1 - true) / (2 - true) + true / (1 + true))
        return area - true - z * math.sqrt(true * (1 - true) * spread / (m * n))

    low, high = 0.0, area
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return low


def _means(sample: NDArray[Any], repeats: int, random: np.random.Generator) -> list[float]:
    """Return the means of resamples, many at a time: the same numbers as one by one."""
    values: list[float] = []
    while len(values) < repeats:
        block = min(max(_BLOCK // len(sample), 1), repeats - len(values))
        values += sample[random.integers(0, len(sample), (block, len(sample)))].mean(axis=1).tolist()
    return values


def _check_counts(successes: int, n: int, confidence: float) -> None:
    if not 0 <= successes <= n:
        raise InputError("successes must be between 0 and n")
    if not 0 < confidence < 1:
        raise InputError("confidence must be between 0 and 1")


# Intervals of a share whose cases come in clusters, and of the difference of two shares.

_FEWEST = 10  # of fewer clusters a bootstrap is too narrow


def clustered_share(
    successes: ArrayLike, sizes: ArrayLike, *, confidence: float = 0.95, repeats: int = 2000, random_state: int = 0
) -> Bounds:
    """Return an interval of sum(successes) / sum(sizes), over clusters: cases of one are not independent."""
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
    """Return an interval of a difference from the intervals of both parts."""
    (a, a_low, a_high), (b, b_low, b_high) = first, second
    return Bounds(a - b - math.hypot(a - a_low, b_high - b), a - b + math.hypot(a_high - a, b - b_low))


# A measured figure with its 95 % interval and the number of cases behind it.


class Estimate(NamedTuple):
    """A figure, the two ends of its 95 % interval, and how many cases it is of.

    Attributes
    ----------
    value : float
        NaN without cases.
    low, high : float
        Clopper-Pearson for a share, (0, 1) without cases; percentile bootstrap for a mean, NaN without cases.
    n : int
        Number of cases.
    """

    value: float
    low: float
    high: float
    n: int

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; what could not be measured is None."""
        return {name: value if math.isfinite(value) else None for name, value in self._asdict().items()}


def share_of(hits: NDArray[np.bool_]) -> Estimate:
    """Return the share of cases that are hits, with the exact interval."""
    found, n = int(hits.sum()), len(hits)
    return Estimate(found / n if n else math.nan, *clopper_pearson(found, n), n)


def mean_of(values: NDArray[Any], random: np.random.Generator) -> Estimate:
    """Return the mean over cases, with the bootstrap interval; NaN where a case has no value."""
    numbers = np.asarray(values, dtype=np.float64)
    if not len(numbers) or np.isnan(numbers).any():
        return Estimate(math.nan, math.nan, math.nan, len(numbers))
    return Estimate(float(numbers.mean()), *bootstrap(numbers, random_state=random), len(numbers))


# Reading a receiver operating characteristic.


def roc_height(fpr: ArrayLike, tpr: ArrayLike, at: ArrayLike) -> NDArray[np.float64]:
    """Return the true positive rates of a curve at some false positive rates."""
    across = np.asarray(fpr, dtype=np.float64)
    highest = np.append(across[1:] > across[:-1], True)
    places = np.asarray(at, dtype=np.float64)
    return np.asarray(np.interp(places, across[highest], np.asarray(tpr, dtype=np.float64)[highest]))
