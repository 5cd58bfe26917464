"""Means over the explanations that were released, with intervals that do not pretend."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.metrics.intervals import bootstrap, difference_of_means, mean_of
from cfk_plugin.reproduction.prepare import Measurement

FEWEST = 5
"""Cases that an interval needs: resamples of fewer are too much alike, and of one all the same."""


def released(outcome: Measurement, figure: str) -> NDArray[np.float64]:
    """Return a figure of the explanations that have it."""
    return np.array([value for value in outcome.figures[figure] if value is not None], dtype=np.float64)


def mean(outcome: Measurement, figure: str) -> dict[str, float | None]:
    """Return the mean of a figure, and its interval, in three columns."""
    value, low, high = spread(released(outcome, figure), outcome.setting.seed)
    return {figure: value, f"{figure}_low": low, f"{figure}_high": high}


def spread(values: NDArray[np.float64], seed: int) -> tuple[float | None, float | None, float | None]:
    """Return a mean and its interval; None for what the cases are too few for."""
    found = mean_of(values, np.random.default_rng(seed)).to_dict()
    return (found["value"], found["low"], found["high"]) if len(values) >= FEWEST else (found["value"], None, None)


def difference(
    a: NDArray[np.float64], b: NDArray[np.float64], seed: int
) -> tuple[float | None, float | None, float | None]:
    """Return by how much one mean is above another, and the interval; None for what the cases are too few for."""
    if not len(a) or not len(b):
        return None, None, None
    between = difference_of_means(a, b)
    if min(len(a), len(b)) < FEWEST:
        return between, None, None
    return between, *bootstrap(a, b, statistic=difference_of_means, random_state=seed)
