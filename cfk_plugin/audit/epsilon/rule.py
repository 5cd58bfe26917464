"""The rule that says from one number whether the canary was in: a threshold and a direction."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfk_plugin.audit.epsilon.bounds import EpsilonBound, epsilon_bound, log_ratios
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.intervals import clopper_pearson_table

Floats = NDArray[np.float64]
_SAME = 9  # decimals in which two rules are equally good


@dataclass(frozen=True, slots=True, repr=False)
class Rule:
    """Guess "in" where the score is at least the threshold, or below it. A threshold follows from rows: none is shown.

    Attributes
    ----------
    threshold : float
    upward : bool
        Whether high scores speak for the canary.
    """

    threshold: float
    upward: bool

    def __repr__(self) -> str:
        """Show the direction alone."""
        return f"Rule(upward={self.upward})"

    def finds(self, scores: Floats) -> int:
        """Return in how many runs the canary is said to be in."""
        return int(((scores >= self.threshold) == self.upward).sum())


def choose_rule(inside: Floats, outside: Floats, delta: float, confidence: float) -> Rule:
    """Return the rule with the largest bound on these runs.

    Parameters
    ----------
    inside, outside : array
        Scores with the canary and without it.
    delta, confidence : float

    Returns
    -------
    Rule
        One that never says "in" where both directions are equally good: then nothing speaks for either. Of thresholds
        that are equally good the one in the middle, so that nearby scores of other runs fall on the right side.
    """
    values = np.unique(np.concatenate([inside, outside]))
    with np.errstate(invalid="ignore"):  # scores may be infinite
        middle = values[:-1] / 2 + values[1:] / 2
    thresholds = np.where(middle > values[:-1], middle, values[1:])
    if not len(thresholds):
        return Rule(math.inf, upward=True)
    (low, _), (_, high) = (clopper_pearson_table(len(scores), confidence) for scores in (inside, outside))
    over_in, over_out = (len(s) - np.searchsorted(np.sort(s), thresholds, "left") for s in (inside, outside))
    upward = log_ratios(low[over_in], high[over_out], delta).round(_SAME)
    downward = log_ratios(low[len(inside) - over_in], high[len(outside) - over_out], delta).round(_SAME)
    if upward.max() == downward.max():
        return Rule(math.inf, upward=True)
    gains = upward if upward.max() > downward.max() else downward
    best = np.flatnonzero(gains == gains.max())
    return Rule(float(thresholds[best[len(best) // 2]]), upward=bool(upward.max() > downward.max()))


def epsilon_from_scores(
    inside: ArrayLike, outside: ArrayLike, delta: float = 0.0, confidence: float = 0.95
) -> EpsilonBound:
    """Return a lower bound on epsilon from one score per run of two neighbouring worlds.

    Parameters
    ----------
    inside, outside : array of float
        Scores of independent runs with the canary, and without it; equally many. They may be infinite, not NaN.
    delta, confidence : float

    Returns
    -------
    EpsilonBound
        Threshold and direction come from the first half of each, the counts from the second.

    Raises
    ------
    InputError
        If there are fewer than 4 scores in a world, not equally many, or one is NaN.

    Examples
    --------
    >>> round(epsilon_from_scores([1.0] * 400, [0.0] * 400).epsilon, 2)
    3.98
    """
    scores = [np.asarray(side, dtype=np.float64) for side in (inside, outside)]
    if any(side.ndim != 1 for side in scores) or len(scores[0]) != len(scores[1]) or len(scores[0]) < 4:
        raise InputError("scores are two lists of equally many numbers, at least 4 each")
    if any(np.isnan(side).any() for side in scores):
        raise InputError("a score is NaN; return a number for every output")
    half = len(scores[0]) // 2
    rule = choose_rule(scores[0][:half], scores[1][:half], delta, confidence)
    return bound_of(rule, scores[0][half:], scores[1][half:], delta, confidence)


def bound_of(rule: Rule, inside: Floats, outside: Floats, delta: float, confidence: float) -> EpsilonBound:
    """Count what a rule finds in runs that it was not chosen on."""
    return epsilon_bound(rule.finds(inside), len(inside), rule.finds(outside), len(outside), delta, confidence)
