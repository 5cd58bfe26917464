"""From the right guesses of one run to a lower bound on epsilon, and what they could show at most."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import stats

from cfk_plugin.audit.epsilon.bounds import check_delta, check_epsilon
from cfk_plugin.errors import InputError

_OUT_OF_REACH = 8.0
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
    """Return a lower bound on epsilon from the right guesses of one run.

    Parameters
    ----------
    canaries, guesses, right : int
        As in `p_value`.
    delta, confidence : float

    Returns
    -------
    float
        The largest epsilon that is rejected with the stated confidence, found by bisection; 0 where none is.
    """
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
    if epsilon >= _OUT_OF_REACH:
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
