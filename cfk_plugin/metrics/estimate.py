"""A measured figure with its 95 % interval and the number of cases behind it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cfk_plugin.metrics.intervals import bootstrap, clopper_pearson

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
