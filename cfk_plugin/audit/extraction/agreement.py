"""How often guesses about people are right over several draws, with intervals that cover people and draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from cfk_plugin.audit.attacked.sample import Mask, Rows
from cfk_plugin.audit.extraction.numbers import Floats
from cfk_plugin.audit.result import Rate, rate
from cfk_plugin.metrics.intervals import bootstrap


class Difference(NamedTuple):
    """A difference of two shares of the same people, with its 95 % interval; in [-1, 1]."""

    value: float
    low: float
    high: float

    def figures(self, name: str) -> dict[str, float]:
        """Return three figures."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def share(right: Sequence[Mask], people: Sequence[Rows], seed: int) -> Rate:
    """Return the share of right guesses over draws.

    Parameters
    ----------
    right : sequence of bool arrays
        One per draw.
    people : sequence of int arrays
        Positions of the people behind them; somebody may be in several draws.
    seed : int
        Of the bootstrap.

    Returns
    -------
    Rate
        Of people. With one draw the interval covers people alone (Clopper-Pearson). With several it covers both:
        half-widths over people and over draws are added as the sides of a right angle; over draws with Student's t on
        the shares of the draws.
    """
    found = rate(_per_person([values.astype(np.float64) for values in right], people), seed)
    spread = _half_width([float(values.mean()) for values in right])
    low = max(found.value - math.hypot(found.value - found.low, spread), 0.0)
    high = min(found.value + math.hypot(found.high - found.value, spread), 1.0)
    return Rate(found.value, low, high, found.n)


def gain(first: Sequence[Mask], second: Sequence[Mask], people: Sequence[Rows], seed: int) -> Difference:
    """Return how much more often the first guesses are right than the second ones, of the same people.

    The interval covers what that of `share` does; over people it is a bootstrap of everybody's difference.
    """
    differences = [a.astype(np.float64) - b for a, b in zip(first, second, strict=True)]
    each = _per_person(differences, people)
    value, (low, high) = float(each.mean()), bootstrap(each, random_state=seed)
    spread = _half_width([float(values.mean()) for values in differences])
    return Difference(
        value, max(value - math.hypot(value - low, spread), -1.0), min(value + math.hypot(high - value, spread), 1.0)
    )


def deviation(shares: Sequence[float]) -> float:
    """Return the standard deviation over draws; NaN of one draw."""
    return float(np.std(shares, ddof=1)) if len(shares) > 1 else math.nan


def balanced(right: Sequence[Mask], desired: Sequence[Mask]) -> float:
    """Return the mean of the shares among the people with either outcome; NaN where an outcome does not occur."""
    hits, of = np.concatenate(right), np.concatenate(desired)
    if of.all() or not of.any():
        return math.nan
    return float((hits[of].mean() + hits[~of].mean()) / 2)


def _per_person(values: Sequence[Floats], people: Sequence[Rows]) -> Floats:
    who: NDArray[np.intp] = np.unique(np.concatenate(people), return_inverse=True)[1]
    return np.asarray(np.bincount(who, np.concatenate(values)) / np.bincount(who), dtype=np.float64)


def _half_width(shares: Sequence[float]) -> float:
    if len(shares) < 2:
        return 0.0
    quantile = float(special.stdtrit(len(shares) - 1, 0.975))
    return quantile * deviation(shares) / math.sqrt(len(shares))
