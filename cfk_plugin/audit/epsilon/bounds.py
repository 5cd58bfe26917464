"""From counts of two worlds to a lower bound on epsilon, and what those counts could show at most."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.audit.result import Rate
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.intervals import clopper_pearson

Floats = NDArray[np.float64]
_OUT_OF_REACH = 30.0


class EpsilonBound(NamedTuple):
    """A lower bound on epsilon, and the two rates that it follows from.

    Attributes
    ----------
    epsilon : float
        At least 0. With the stated confidence, nothing that is (epsilon', delta)-differentially private with
        epsilon' below it behaves as was seen.
    tpr : Rate
        Share of the runs with the canary in which it was found.
    fpr : Rate
        Share of the runs without it in which it was found all the same.
    """

    epsilon: float
    tpr: Rate
    fpr: Rate


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
    """Return the largest bound that a canary audit could print: the canary is found always, and never without it.

    Parameters
    ----------
    runs : int
        In each world; the rule is chosen on the first half and counted on the second.
    delta, confidence : float

    Returns
    -------
    float
    """
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
    """Refuse a delta or a confidence that is none.

    Raises
    ------
    InputError
    """
    if not 0 <= delta < 1:
        raise InputError("delta must be at least 0 and below 1")
    if not 0 < confidence < 1:
        raise InputError("confidence must be between 0 and 1")


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that is no finite number of at least 0.

    Raises
    ------
    InputError
    """
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise InputError("epsilon must be a finite number of at least 0")


def _rate(successes: int, n: int, confidence: float) -> Rate:
    low, high = clopper_pearson(successes, n, confidence)
    return Rate(successes / n if n else math.nan, low, high, n)
