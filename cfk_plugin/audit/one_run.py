"""The one-run audit: many canaries, each in or out by a coin, one run, and guesses about the coins."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from cfk_plugin.audit.epsilon import (
    EpsilonAudit,
    Fit,
    ManyAgreements,
    Score,
    check_delta,
    check_epsilon,
    fitting,
    joined,
    run,
    takes_seed,
)
from cfk_plugin.audit.result import Rate, check_seed
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import InputError, quiet
from cfk_plugin.metrics.intervals import clopper_pearson

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


FEWEST = 8
"""Canaries below which nothing can be shown."""


def one_run_audit(
    fit: Fit,
    table: pd.DataFrame,
    canaries: pd.DataFrame,
    *,
    claimed: float,
    delta: float = 0.0,
    guesses: int | None = None,
    score: Score | None = None,
    schema: Schema | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> EpsilonAudit:
    """Bound the epsilon of a function from below with a single run.

    The attacker knows the table and every canary; a fair coin of its own put each canary in or left it out. They see
    one output and guess the coins that they are surest of.

    Parameters
    ----------
    fit : callable
        From a table to an output; see `canary_audit`.
    table : DataFrame
        The training rows.
    canaries : DataFrame
        Made-up people who differ from each other, one row each. See `canaries_needed`.
    claimed, delta : float
        What the function promises when one row is added or removed.
    guesses : int, optional
        An even number: the upper half of the guesses is "in", the lower one "out". Default: half of the canaries.
    score : callable, optional
        From an output to one number per canary, in their order; higher speaks for "in". Default: an array of that
        length as it is; of a table, how much more often than in the training rows the canary's values, and pairs of
        them, occur.
    schema : Schema, optional
        Names the subject, of which each canary must be another one.
    confidence : float
        Of the bound.
    seed : int
        Of the coins and of ``random_state``. The function must not use the same seed for its own numbers.

    Returns
    -------
    EpsilonAudit

    Raises
    ------
    InputError
        If a setting is out of its range, a canary does not fit, or the function or the score fails.

    Notes
    -----
    See `p_value` for the theorem. The bound is weaker than that of `canary_audit` wherever canaries disturb each other:
    it shows gross violations at the price of one run.
    """
    check_epsilon(claimed)
    check_delta(delta, confidence)
    check_seed(seed)
    people = fitting(table, canaries, schema)
    _check_people(people, schema)
    tried = default_guesses(len(people)) if guesses is None else guesses
    if not isinstance(tried, int) or tried % 2 or not 2 <= tried <= len(people):
        raise InputError("guesses must be an even number, at least 2 and at most the number of canaries")
    coins_of, runs_of = np.random.SeedSequence(seed).spawn(2)
    coins = np.random.default_rng(coins_of).random(len(people)) < 0.5
    own_seed = int(runs_of.generate_state(1, np.uint32)[0]) if takes_seed(fit) else None
    output = run(fit, joined(table, people[coins]), own_seed)
    scores = _scores(output, score, table, people, schema)
    right = right_guesses(scores, coins, tried)
    return EpsilonAudit(
        attack="epsilon_one_run",
        scenario=(
            f"Knows the table, the function and {len(people)} made-up people of whom each was in by a coin, sees one "
            f"output, and guesses {tried} of the coins."
        ),
        relation="add-remove",
        claimed=float(claimed),
        delta=delta,
        confidence=confidence,
        epsilon_low=one_run_bound(len(people), tried, right, delta, confidence),
        ceiling=one_run_ceiling(len(people), tried, delta, confidence),
        needed=canaries_needed(claimed, delta, confidence),
        runs=1,
        main=Rate(right / tried, *clopper_pearson(right, tried, confidence), tried),
        figures={
            "canaries": len(people),
            "guesses": tried,
            "right": right,
            "p_value": p_value(len(people), tried, right, claimed, delta),
        },
        seed=seed,
    )


def right_guesses(scores: NDArray[np.float64], coins: NDArray[np.bool_], guesses: int) -> int:
    """Guess "in" for the highest scores and "out" for the lowest, and return how many guesses are right."""
    order, half = np.argsort(scores, kind="stable"), guesses // 2
    return int((~coins[order[:half]]).sum() + coins[order[len(order) - half :]].sum())


def _check_people(people: pd.DataFrame, schema: Schema | None) -> None:
    if len(people) < FEWEST:
        raise InputError(f"a one-run audit needs at least {FEWEST} canaries, got {len(people)}")
    subject = None if schema is None else schema.subject
    if subject is not None and not people[subject].is_unique:
        raise InputError(f"column {subject!r}: each canary of a one-run audit must be a person of its own")
    if bool(people.duplicated().any()):
        raise InputError("two canaries are equal; nobody could tell which of them was in")


def _scores(
    output: object, score: Score | None, table: pd.DataFrame, people: pd.DataFrame, schema: Schema | None
) -> NDArray[np.float64]:
    with quiet("no number per canary could be read from the output ({}); say with score= how", InputError):
        if score is not None:
            output = score(output)
        elif isinstance(output, pd.DataFrame):
            output = ManyAgreements(table, people, schema)(output)
        scores = np.asarray(output, dtype=np.float64).ravel()
    if len(scores) != len(people) or np.isnan(scores).any():
        raise InputError(f"{len(people)} canaries and {len(scores)} scores, or some NaN; return one number per canary")
    return scores
