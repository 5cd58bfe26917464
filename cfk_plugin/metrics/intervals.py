"""Confidence intervals, estimates with their intervals, and differences between groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from cfk_plugin.data.region import to_text
from cfk_plugin.errors import InputError

_RESAMPLES = 2000
_BLOCK = 1 << 20  # values of resamples in memory at once
_FEWEST = 10  # clusters; with fewer, a bootstrap is too narrow
POOLED = "other groups"


class Bounds(NamedTuple):
    """The two ends of a confidence interval."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A figure with the two ends of its 95 % interval: Clopper-Pearson for a share, bootstrap for a
    mean.
    """

    value: float  # NaN without cases
    low: float  # without cases, a share is between 0 and 1, and a mean is NaN
    high: float
    n: int  # cases

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; what could not be measured is None."""
        return {name: _plain(value) for name, value in self._asdict().items()}


class Figures:
    """Base of dataclasses that are written as JSON."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-ready values; what could not be measured is None."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(_plain, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def mean_of(values: NDArray[Any], random: np.random.Generator) -> Estimate:
    """Return the mean over cases, with the bootstrap interval; NaN where a case has no value."""
    numbers = np.asarray(values, dtype=np.float64)
    if not len(numbers) or np.isnan(numbers).any():
        return Estimate(math.nan, math.nan, math.nan, len(numbers))
    return Estimate(float(numbers.mean()), *bootstrap(numbers, random_state=random), len(numbers))


def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> Bounds:
    """Return the exact two-sided interval of a proportion; conservative for draws without
    replacement.

    low = Beta(a/2; s, n-s+1), high = Beta(1-a/2; s+1, n-s). Source: Clopper, Pearson (1934), The
    use of confidence or fiducial limits.

    Parameters
    ----------
    successes, n : int
        Number of successes and of draws.
    confidence : float

    Returns
    -------
    Bounds, (0, 1) when n is 0: nothing was measured

    Examples
    --------
    >>> round(clopper_pearson(100, 100).low, 3)
    0.964
    """
    _check_counts(successes, n, confidence)
    tail = (1 - confidence) / 2
    low = float(special.betaincinv(successes, n - successes + 1, tail)) if successes else 0.0
    high = (
        float(special.betaincinv(successes + 1, n - successes, 1 - tail)) if successes < n else 1.0
    )
    return Bounds(low, high)


def clopper_pearson_table(
    n: int, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both ends of `clopper_pearson` for 0, 1, ..., n successes of n draws."""
    _check_counts(0, n, confidence)
    successes = np.arange(1, n + 1)
    low = np.concatenate(
        [[0.0], special.betaincinv(successes, n - successes + 1, (1 - confidence) / 2)]
    )
    return low, 1 - low[::-1]


def wilson(successes: int, n: int, confidence: float = 0.95) -> Bounds:
    """Return Wilson's score interval of a proportion; never of width 0, even at 0 or n successes.

    (p + z²/2n ± z·sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n). Coverage is approximate. Source: Wilson
    (1927), Probable inference, the law of succession, and statistical inference.

    Parameters
    ----------
    successes, n : int
        Number of successes and of independent draws.
    confidence : float

    Returns
    -------
    Bounds, (0, 1) when n is 0
    """
    _check_counts(successes, n, confidence)
    if n == 0:
        return Bounds(0.0, 1.0)
    from scipy.stats import binomtest  # takes half a second to import

    found = binomtest(successes, n).proportion_ci(confidence, "wilson")
    return Bounds(float(found.low), float(found.high))


def auc_interval(above: ArrayLike, below: ArrayLike, confidence: float = 0.95) -> Bounds:
    """Return an interval of the area under the ROC curve: the chance that a positive has the larger
    score.

    DeLong's, on the scale of ln(A / (1 - A)), which knows no spread where A is 0 or 1; and
    Newcombe's method 5: all T with |A - T| <= z·sqrt(T(1-T)(1 + N((1-T)/(2-T) + T/(1+T))) / mn), N
    = (m+n)/2 - 1. Source: DeLong, DeLong, Clarke-Pearson (1988), Comparing areas under correlated
    ROC curves. Newcombe (2006), Confidence intervals for an effect size measure based on the
    Mann-Whitney statistic, part 2.

    Parameters
    ----------
    above, below : array
        Scores of positives and negatives; ties count half, infinite scores are allowed, NaN is not.
    confidence : float

    Returns
    -------
    Bounds, the outer ends of two intervals; (0, 1) when a sample is empty

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
    over, under = _ranks(first, second) / (2 * n), 1 - _ranks(second, first) / (2 * m)
    area, z = float(over.mean()), float(special.ndtri(1 - (1 - confidence) / 2))
    low, high = _newcombe(area, m, n, z), 1 - _newcombe(1 - area, m, n, z)
    if m > 1 and n > 1 and 0 < area < 1:
        spread = float(np.sqrt(over.var(ddof=1) / m + under.var(ddof=1) / n)) / (area * (1 - area))
        ends = special.expit(special.logit(area) + z * spread * np.array([-1.0, 1.0]))
        low, high = min(low, float(ends[0])), max(high, float(ends[1]))
    return Bounds(low, high)


def balanced_interval(hits: int, m: int, rejects: int, n: int, confidence: float = 0.95) -> Bounds:
    """Return an interval of the mean of two independent proportions, such as a balanced accuracy.

    p - sqrt((p1 - l1)² + (p2 - l2)²) / 2 with the Clopper-Pearson ends l1, l2; likewise above.
    Source: Zou, Donner (2008), Construction of confidence limits about effect measures: a general
    approach.

    Parameters
    ----------
    hits, m, rejects, n : int
        Successes and draws of one proportion, and of the other.
    confidence : float

    Returns
    -------
    Bounds, (0, 1) when nothing was drawn for one of them
    """
    first, second = clopper_pearson(hits, m, confidence), clopper_pearson(rejects, n, confidence)
    if not m or not n:
        return Bounds(0.0, 1.0)
    low, high = difference((hits / m, *first), (-rejects / n, -second.high, -second.low))
    return Bounds(max(low / 2, 0.0), min(high / 2, 1.0))


def bootstrap(
    *samples: ArrayLike,
    statistic: Callable[..., Any] = np.mean,
    random_state: int | np.random.Generator | None = None,
) -> Bounds:
    """Return the 95 % percentile bootstrap interval of a statistic of independent samples.

    Computed by `scipy.stats.bootstrap` with 2,000 resamples. Source: Efron, Tibshirani (1993), An
    Introduction to the Bootstrap, chapter 13.

    Parameters
    ----------
    *samples : arrays, each resampled with replacement on its own
    statistic : callable
        From as many arrays as there are samples, and the `axis` of their values, to numbers.
    random_state : int or Generator, optional

    Returns
    -------
    Bounds
        (NaN, NaN) if a sample is empty, and the statistic twice if one has a single value. Too
        narrow for samples of a few values.
    """
    if not samples:
        raise InputError("a bootstrap needs a sample")
    arrays = [np.asarray(sample) for sample in samples]
    fewest = min(map(len, arrays))
    if fewest == 0:
        return Bounds(math.nan, math.nan)
    if fewest == 1:
        value = float(statistic(*arrays, axis=-1))
        return Bounds(value, value)
    return _resampled(arrays, statistic, random_state)


def _resampled(
    arrays: Sequence[NDArray[Any]],
    statistic: Callable[..., Any],
    random_state: int | np.random.Generator | None,
    *,
    paired: bool = False,
) -> Bounds:
    """Return the percentile interval of a statistic over resamples, from scipy."""
    from scipy import stats  # takes half a second to import

    interval = stats.bootstrap(
        arrays,
        statistic,
        n_resamples=_RESAMPLES,
        batch=max(_BLOCK // max(map(len, arrays)), 1),
        paired=paired,
        vectorized=True,
        method="percentile",
        random_state=random_state,
    ).confidence_interval
    return Bounds(float(interval.low), float(interval.high))


def difference_of_means(a: NDArray[Any], b: NDArray[Any], axis: int = -1) -> Any:
    """Return mean(a) - mean(b), a statistic for `bootstrap`."""
    return a.mean(axis=axis) - b.mean(axis=axis)


def _ranks(scores: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return, for each score, twice the number of others that are lower, equal ones counted
    half.
    """
    others = np.sort(others)
    return np.searchsorted(others, scores, side="left") + np.searchsorted(
        others, scores, side="right"
    )


def _newcombe(area: float, m: int, n: int, z: float) -> float:
    """Return the lower end of Newcombe's interval: where the area is z deviations above what is
    assumed.
    """

    def excess(true: float) -> float:
        spread = 1 + ((m + n) / 2 - 1) * ((1 - true) / (2 - true) + true / (1 + true))
        return area - true - z * math.sqrt(true * (1 - true) * spread / (m * n))

    low, high = 0.0, area
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return low


def _check_counts(successes: int, n: int, confidence: float) -> None:
    if not 0 <= successes <= n:
        raise InputError("successes must be between 0 and n")
    if not 0 < confidence < 1:
        raise InputError("confidence must be between 0 and 1")


def clustered_share(successes: ArrayLike, sizes: ArrayLike, *, random_state: int = 0) -> Bounds:
    """Return a 95 % interval of sum(successes) / sum(sizes) over clusters, whose cases are not
    independent.
    """
    right, total = np.asarray(successes, dtype=np.int64), np.asarray(sizes, dtype=np.int64)
    if (right > total).any() or (right < 0).any():
        raise InputError("clusters need from 0 to all of their cases as successes")
    right, total = right[total > 0], total[total > 0]
    if not len(total):
        return Bounds(0.0, 1.0)
    share, alike = right.sum() / total.sum(), np.ptp(right / total) < 1e-12
    as_many = int(total.sum() ** 2 / (total**2).sum() + 1e-9)
    if alike or as_many < _FEWEST:
        low = clopper_pearson(math.floor(share * as_many + 1e-9), as_many).low
        return Bounds(low, clopper_pearson(math.ceil(share * as_many - 1e-9), as_many).high)
    return _resampled([right, total], _ratio, random_state, paired=True)


def _ratio(parts: NDArray[Any], wholes: NDArray[Any], axis: int = -1) -> Any:
    return parts.sum(axis=axis) / wholes.sum(axis=axis)


def difference(first: tuple[float, float, float], second: tuple[float, float, float]) -> Bounds:
    """Return an interval of a difference from (value, low, high) of both parts."""
    (a, a_low, a_high), (b, b_low, b_high) = first, second
    return Bounds(
        a - b - math.hypot(a - a_low, b_high - b), a - b + math.hypot(a_high - a, b - b_low)
    )


def roc_height(fpr: ArrayLike, tpr: ArrayLike, at: ArrayLike) -> NDArray[np.float64]:
    across = np.asarray(fpr, dtype=np.float64)
    highest = np.append(across[1:] > across[:-1], True)
    places = np.asarray(at, dtype=np.float64)
    return np.asarray(
        np.interp(places, across[highest], np.asarray(tpr, dtype=np.float64)[highest])
    )


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
    random_state: int | np.random.Generator | None = 0,
) -> tuple[GroupGap, ...]:
    """Compare a metric between each group of people and the rest.

    mean(metric in g) - mean(metric outside g), bootstrap over queries. An interval around 0 does
    not show equality.

    Parameters
    ----------
    values : array of float
        The metric of each query (k, NCP, pureness, 1 where withheld); NaN is left out.
    groups : array
        Group of each query; missing is a group of its own.
    min_size : int
        Groups with fewer queries are pooled, and left out if even together they are fewer.
    random_state : int or Generator
        Of the bootstrap. Intervals are not corrected for looking at several groups.

    Returns
    -------
    tuple of GroupGap, sorted by name, the pooled one last
    """
    metric, column = np.asarray(values, dtype=float), pd.Series(groups).astype(object)
    names = np.array(
        ["missing" if pd.isna(v) else v if isinstance(v, str) else to_text(v) for v in column]
    )
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
        low, high = bootstrap(here, rest, statistic=difference_of_means, random_state=random)
        gaps.append(GroupGap(name, len(here), mean, other, mean - other, low, high))
    return tuple(gaps)
