"""From counts and scores to lower bounds on epsilon, and what counts could show at most."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from cfk_plugin.audit.result import Rate
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.intervals import clopper_pearson, clopper_pearson_table

Floats = NDArray[np.float64]
_FOLDS = 5
_RIDGE = 1e-6  # of the variance: what has no noise at all gets a large weight and not an infinite one


def learn(inside: Floats, outside: Floats) -> Callable[[Floats], Floats]:
    """Learn the linear discriminant of two worlds, with the covariance shrunk as Ledoit and Wolf do.

    Higher scores speak for the canary; 0 lies halfway between the worlds, 1 is the noise within each.
    """
    from sklearn.covariance import ledoit_wolf

    together = np.vstack([inside, outside])
    spread = together.std(axis=0)
    varies = spread > 1e-12 * np.maximum(np.abs(together).max(axis=0), 1e-300)
    scale = np.where(varies, spread, 1.0)
    scaled = [np.where(varies, side / scale, 0.0) for side in (inside, outside)]
    means = [side.mean(axis=0) for side in scaled]
    within = np.vstack([side - mean for side, mean in zip(scaled, means, strict=True)])
    covariance, _ = ledoit_wolf(within, assume_centered=True)
    covariance = np.atleast_2d(covariance) + _RIDGE * np.eye(within.shape[1])
    weights = np.linalg.solve(covariance, means[0] - means[1])
    noise = float(np.sqrt(weights @ covariance @ weights)) or 1.0
    weights = weights / noise
    offset = float(weights @ (means[0] + means[1]) / 2)
    return lambda vectors: np.asarray(vectors @ (weights / scale) - offset, dtype=np.float64)


def unseen_scores(inside: Floats, outside: Floats) -> tuple[Floats, Floats]:
    """Score every run by a discriminant that did not see it: those of seen runs lie too far apart."""
    scores = (np.empty(len(inside)), np.empty(len(outside)))
    fold = np.arange(len(inside)) % _FOLDS
    for held in np.unique(fold):
        score = learn(inside[fold != held], outside[fold != held])
        for side, found in zip((inside, outside), scores, strict=True):
            found[fold == held] = score(side[fold == held])
    return scores


_OUT_OF_REACH = 30.0


class EpsilonBound(NamedTuple):
    """A lower bound on epsilon, and the two rates that it follows from."""

    epsilon: float
    tpr: Rate  # of the runs with the canary in which it was found
    fpr: Rate  # of the runs without it in which it was found all the same


def epsilon_bound(
    found: int, runs_with: int, alarms: int, runs_without: int, delta: float = 0.0, confidence: float = 0.95
) -> EpsilonBound:
    """Return a lower bound on epsilon from how often a canary was found with it and without it.

    Parameters
    ----------
    found, runs_with : int
        Runs with the canary in which it was found, and all of them.
    alarms, runs_without : int
        Runs without it in which it was found all the same, and all of them.
    delta : float
        In [0, 1).
    confidence : float
        Of the bound, in (0, 1).

    Returns
    -------
    EpsilonBound

    Raises
    ------
    InputError
        If a number is out of its range.

    Notes
    -----
    max(ln((tpr_low - delta) / fpr_high), ln((1 - fpr_high - delta) / (1 - tpr_low)), 0), from the definition of
    differential privacy for "found" and for "not found". Both ends need tpr_low and fpr_high alone; each of the two is
    a one-sided Clopper-Pearson end that is wrong with probability at most (1 - confidence) / 2, so that both hold with
    the stated confidence, and with them both logarithms. It holds for a rule that was fixed before these runs, and for
    runs that are independent.

    References
    ----------
    Jagielski, Ullman, Oprea (2020), Auditing differentially private machine learning.

    Examples
    --------
    >>> round(epsilon_bound(200, 200, 0, 200).epsilon, 2)
    3.98
    """
    check_delta(delta, confidence)
    rates = [_rate(found, runs_with, confidence), _rate(alarms, runs_without, confidence)]
    epsilon = float(log_ratios(np.array(rates[0].low), np.array(rates[1].high), delta))
    return EpsilonBound(max(epsilon, 0.0), *rates)


def log_ratios(tpr_low: Floats, fpr_high: Floats, delta: float) -> Floats:
    """Return the larger of the two logarithms of `epsilon_bound`; -inf where delta alone explains what was seen."""
    with np.errstate(divide="ignore", invalid="ignore"):
        pairs = ((tpr_low - delta) / fpr_high, (1 - fpr_high - delta) / (1 - tpr_low))
        logs = [np.log(np.maximum(ratio, 0.0)) for ratio in pairs]
    return np.asarray(np.maximum(*logs), dtype=np.float64)


def ceiling(runs: int, delta: float = 0.0, confidence: float = 0.95) -> float:
    """Return the largest bound that a canary audit could print: the canary is found always, and never without it."""
    tested = counted(runs)
    return epsilon_bound(tested, tested, 0, tested, delta, confidence).epsilon


def runs_needed(epsilon: float, delta: float = 0.0, confidence: float = 0.95) -> int | None:
    """Return the fewest runs in each world with which a canary audit could show a violation of epsilon.

    Parameters
    ----------
    epsilon : float
        What is claimed.
    delta, confidence : float

    Returns
    -------
    int or None
        The ceiling of so many runs lies above epsilon. A mechanism that leaks less than everything needs more. None
        from epsilon = 30 on: nobody can run anything so often.

    Raises
    ------
    InputError
        If a number is out of its range.

    Notes
    -----
    Perfect separation in n counted runs gives tpr_low = 1 - fpr_high = a^(1/n), a = (1 - confidence) / 2, and that must
    exceed (e^epsilon + delta) / (1 + e^epsilon).

    Examples
    --------
    >>> runs_needed(1.0), runs_needed(3.0), runs_needed(5.0)
    (24, 152, 1100)
    """
    check_delta(delta, confidence)
    check_epsilon(epsilon)
    if epsilon >= _OUT_OF_REACH:
        return None
    shrink = math.exp(-epsilon)
    needed = math.log((1 - confidence) / 2) / -math.log1p((1 - delta) * shrink / (1 + delta * shrink))
    runs = 2 * max(int(needed), 1)
    while ceiling(runs, delta, confidence) <= epsilon:
        runs += 2
    return runs


def counted(runs: int) -> int:
    """Return how many of the runs of a world are counted: the second half."""
    return runs - runs // 2


def check_delta(delta: float, confidence: float) -> None:
    """Refuse a delta or a confidence that is none."""
    if not 0 <= delta < 1:
        raise InputError("delta must be at least 0 and below 1")
    if not 0 < confidence < 1:
        raise InputError("confidence must be between 0 and 1")


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that is no finite number of at least 0."""
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise InputError("epsilon must be a finite number of at least 0")


def _rate(successes: int, n: int, confidence: float) -> Rate:
    low, high = clopper_pearson(successes, n, confidence)
    return Rate(successes / n if n else math.nan, low, high, n)


_SAME = 9  # decimals in which two rules are equally good


@dataclass(frozen=True, slots=True, repr=False)
class Rule:
    """Guess "in" where the score is at least the threshold, or below it. Thresholds follow from rows: none is shown."""

    threshold: float
    upward: bool

    def __repr__(self) -> str:
        return f"Rule(upward={self.upward})"

    def finds(self, scores: Floats) -> int:
        """Return in how many runs the canary is said to be in."""
        return int(((scores >= self.threshold) == self.upward).sum())


def choose_rule(inside: Floats, outside: Floats, delta: float, confidence: float) -> Rule:
    """Return the rule with the largest bound on these runs."""
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


_OUT_OF_REACH_IN_ONE = 8.0
_STEPS = 60  # halvings: far below what is printed


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float = 0.0) -> float:
    """Bound the probability of so many right guesses under (epsilon, delta)-differential privacy.

    Parameters
    ----------
    canaries : int
        Records that were each in the table or not by a fair coin of their own.
    guesses : int
        Canaries about which something was guessed; the others were passed over.
    right : int
        Guesses that were right.
    epsilon, delta : float
        What is tested.

    Returns
    -------
    float
        In [0, 1]; a small one speaks against the claim.

    Raises
    ------
    InputError
        If the counts contradict each other, or epsilon or delta is out of its range.

    Notes
    -----
    p = P[B >= v] + 2 m delta max_i P[v - i <= B < v] / i with B ~ Binomial(r, e^epsilon / (1 + e^epsilon)), for m
    canaries, r guesses, v right ones and i = 1, ..., v. Given the output, a coin is guessed with a chance of at most
    e^epsilon / (1 + e^epsilon), whatever is known of the others.

    References
    ----------
    Steinke, Nasr, Jagielski (2023), Privacy auditing with one (1) training run, theorem 5.2.

    Examples
    --------
    >>> round(p_value(10, 10, 10, 0.0), 6) == round(0.5 ** 10, 6)
    True
    """
    check_delta(delta, 0.5)
    if not 0 <= right <= guesses <= canaries:
        raise InputError("right guesses must be at most guesses, and guesses at most canaries")
    check_epsilon(epsilon)
    chance = 1 / (1 + math.exp(-epsilon))
    p = float(stats.binom.sf(right - 1, guesses, chance))
    if delta and right:
        i = np.arange(1, right + 1)
        below = np.cumsum(stats.binom.pmf(right - i, guesses, chance))
        p += 2 * canaries * delta * float((below / i).max())
    return min(p, 1.0)


def one_run_bound(canaries: int, guesses: int, right: int, delta: float = 0.0, confidence: float = 0.95) -> float:
    """Return a lower bound on epsilon from the right guesses of one run."""
    check_delta(delta, confidence)
    wrong = 1 - confidence

    def rejected(epsilon: float) -> bool:
        return p_value(canaries, guesses, right, epsilon, delta) <= wrong

    return _last(rejected)


def one_run_ceiling(canaries: int, guesses: int, delta: float = 0.0, confidence: float = 0.95) -> float:
    """Return the largest bound that a one-run audit could print: every guess is right."""
    return one_run_bound(canaries, guesses, guesses, delta, confidence)


def canaries_needed(epsilon: float, delta: float = 0.0, confidence: float = 0.95) -> int | None:
    """Return the fewest canaries with which a one-run audit could show a violation of epsilon, half of them guessed.

    Parameters
    ----------
    epsilon : float
        What is claimed.
    delta, confidence : float

    Returns
    -------
    int or None
        A multiple of 4, as half of the guesses are "in" and half "out"; with a delta up to 2 % more than the fewest.
        None where delta is so large that no number is enough, as its part of the p-value grows with the canaries, and
        from epsilon = 8 on.

    Raises
    ------
    InputError
        If a number is out of its range.

    Examples
    --------
    >>> canaries_needed(1.0), canaries_needed(3.0)
    (20, 124)
    """
    check_epsilon(epsilon)
    check_delta(delta, confidence)
    if epsilon >= _OUT_OF_REACH_IN_ONE:
        return None
    guesses = math.log(1 - confidence) / -math.log1p(math.exp(-epsilon))  # enough where delta is 0
    quarter = first = math.floor(guesses / 2) + 1
    while quarter <= 4 * first:  # from there on, more guesses add more of delta than they take from the binomial
        if p_value(4 * quarter, 2 * quarter, 2 * quarter, epsilon, delta) < 1 - confidence:
            return 4 * quarter
        quarter += max(quarter // 50, 1)
    return None


def default_guesses(canaries: int) -> int:
    """Return how many guesses are made about so many canaries: half, as many "in" as "out"."""
    return 2 * (canaries // 4)


def _last(rejected: Callable[[float], bool]) -> float:
    """Return where the rejection of epsilon ends; the end that is rejected."""
    if not rejected(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while rejected(high):
        low, high = high, 2 * high
        if high > 64:
            return low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low
