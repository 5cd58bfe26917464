"""The one-run audit: many canaries, each in or out by a coin, one run, and guesses about the coins."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.epsilon.agreement import ManyAgreements
from cfk_plugin.audit.epsilon.bounds import check_delta, check_epsilon
from cfk_plugin.audit.epsilon.one_run_bounds import (
    canaries_needed,
    default_guesses,
    one_run_bound,
    one_run_ceiling,
    p_value,
)
from cfk_plugin.audit.epsilon.result import EpsilonAudit
from cfk_plugin.audit.epsilon.running import Fit, run, takes_seed
from cfk_plugin.audit.epsilon.statistic import Score
from cfk_plugin.audit.epsilon.worlds import fitting, joined
from cfk_plugin.audit.result import Rate, check_seed
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import InputError, quiet
from cfk_plugin.metrics.intervals import clopper_pearson

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
    """Guess "in" for the highest scores and "out" for the lowest, and return how many guesses are right.

    Parameters
    ----------
    scores : array, shape (m,)
    coins : array of bool, shape (m,)
        Who was in.
    guesses : int
        Even; half of them are "in".

    Returns
    -------
    int
        Of equal scores, the earlier canary counts as the lower one: order must not depend on the coins.
    """
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
