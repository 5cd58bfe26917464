"""The canary audit: run a function often with one person and without, and see how well its outputs tell them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.epsilon.agreement import Agreement
from cfk_plugin.audit.epsilon.bounds import EpsilonBound, ceiling, check_delta, check_epsilon, runs_needed
from cfk_plugin.audit.epsilon.discriminant import learn, unseen_scores
from cfk_plugin.audit.epsilon.result import EpsilonAudit
from cfk_plugin.audit.epsilon.rule import bound_of, choose_rule, epsilon_from_scores
from cfk_plugin.audit.epsilon.running import Backend, Fit, Jobs, measure
from cfk_plugin.audit.epsilon.statistic import Score, Statistic, matrix
from cfk_plugin.audit.epsilon.worlds import Relation, fitting, neighbours
from cfk_plugin.audit.result import Rate, check_seed
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import Progress
from cfk_plugin.metrics.intervals import clopper_pearson

Floats = NDArray[np.float64]
FEWEST = 20
"""Runs in each world below which there is nothing to learn a rule from."""

_WITH: Mapping[Relation, str] = {"add-remove": "with", "replace-one": "with, in the place of somebody else,"}


def canary_audit(
    fit: Fit,
    table: pd.DataFrame,
    canary: pd.DataFrame,
    *,
    claimed: float,
    delta: float = 0.0,
    runs: int = 400,
    score: Score | None = None,
    schema: Schema | None = None,
    relation: Relation = "add-remove",
    confidence: float = 0.95,
    n_jobs: int = 1,
    backend: Backend = "auto",
    seed: int = 0,
    progress: Progress | None = None,
) -> EpsilonAudit:
    """Bound the epsilon of any function of a table from below.

    The attacker knows the whole table but for one thing: whether the canary was in it. They know the function, and see
    one output.

    Parameters
    ----------
    fit : callable
        From a table to an output. It must draw fresh random numbers in every run; where it has a parameter
        ``random_state``, every run gives it another whole number.
    table : DataFrame
        The training rows.
    canary : DataFrame
        One made-up person, of values that are rare together; also of values that the table's dtype cannot hold, or that
        the schema does not declare: whoever is in a table must be protected.
    claimed : float
        The epsilon that the function promises, for the same relation.
    delta : float
        The delta that it promises.
    runs : int
        In each world, at least 20. See `runs_needed`.
    score : callable, optional
        From an output to a number that tells the worlds apart, or to an array of numbers, of which a linear
        discriminant is learnt. Default: a number or an array as it is; of a table, the counts of rows that agree with
        the canary in every column and pair of columns.
    schema : Schema, optional
        Names the subject, if a person has several rows.
    relation : {"add-remove", "replace-one"}
        Which tables are neighbours. An (epsilon, delta) for add-remove gives (2 epsilon, (1 + e^epsilon) delta) for
        replace-one.
    confidence : float
        Of the bound.
    n_jobs : int
        Runs at the same time; -1 on all cores.
    backend : {"auto", "processes", "threads"}
        "auto" takes processes for a function with a parameter ``random_state``, else threads. "processes" is right for
        one that draws from the operating system, too; a generator that it carries would be copied, and equal numbers
        in several runs look like a leak. What cannot be pickled runs in threads.
    seed : int
        Of ``random_state`` and of the person who gives way.
    progress : callable, optional
        Called with (done, total) runs.

    Returns
    -------
    EpsilonAudit

    Raises
    ------
    InputError
        If a setting is out of its range, the canary does not fit, or the function or the score fails.

    Notes
    -----
    Discriminant, threshold and direction are learnt on the first half of the runs of each world; what they find is
    counted on the second half. See `epsilon_bound` for the formula and how the 5 % are split. A weak attack gives a
    small bound: it says nothing about how private the function is.
    """
    check_epsilon(claimed)
    check_delta(delta, confidence)
    check_seed(seed)
    jobs = Jobs(n_jobs, backend, seed)
    if not isinstance(runs, int) or isinstance(runs, bool) or runs < FEWEST:
        raise InputError(f"runs must be a whole number of at least {FEWEST}")
    worlds = neighbours(table, canary, schema, relation, seed)
    statistic = Statistic(score, None if score else Agreement(table, fitting(table, canary, schema), schema))
    inside, outside = measure(fit, statistic, worlds, runs, jobs, progress)
    bound = epsilon_from_vectors(inside, outside, delta, confidence)
    person = "a made-up person" if len(canary) == 1 else f"a made-up person of {len(canary)} rows"
    return EpsilonAudit(
        attack="epsilon",
        scenario=(
            f"Knows the table and the function, has run it {runs} times {_WITH[relation]} and {runs} times without "
            f"{person}, sees one more output, and says which of the two it is."
        ),
        relation=relation,
        claimed=float(claimed),
        delta=delta,
        confidence=confidence,
        epsilon_low=bound.epsilon,
        ceiling=ceiling(runs, delta, confidence),
        needed=runs_needed(claimed, delta, confidence),
        runs=runs,
        main=_right(bound, confidence),
        tpr=bound.tpr,
        fpr=bound.fpr,
        seed=seed,
        constant=_constant(inside) and _constant(outside) and not np.array_equal(inside[0], outside[0]),
    )


def epsilon_from_vectors(
    inside: Sequence[Floats], outside: Sequence[Floats], delta: float, confidence: float
) -> EpsilonBound:
    """Do as `epsilon_from_scores` for one vector per run, of which the first half learns a discriminant."""
    lengths = {len(vector) for vector in (*inside, *outside)}
    if not lengths - {0, 1} and len(lengths) == 1:
        return epsilon_from_scores(np.concatenate(inside), np.concatenate(outside), delta, confidence)
    half = len(inside) // 2
    width = max(len(vector) for vector in (*inside[:half], *outside[:half]))
    with_canary, without = matrix(inside, width), matrix(outside, width)
    rule = choose_rule(*unseen_scores(with_canary[:half], without[:half]), delta, confidence)
    of = learn(with_canary[:half], without[:half])
    return bound_of(rule, of(with_canary[half:]), of(without[half:]), delta, confidence)


def _right(bound: EpsilonBound, confidence: float) -> Rate:
    """Return the share of counted runs that were guessed right, over both worlds."""
    right = round(bound.tpr.value * bound.tpr.n) + bound.fpr.n - round(bound.fpr.value * bound.fpr.n)
    n = bound.tpr.n + bound.fpr.n
    return Rate(right / n, *clopper_pearson(right, n, confidence), n)


def _constant(vectors: Sequence[Floats]) -> bool:
    return all(np.array_equal(vector, vectors[0], equal_nan=True) for vector in vectors)
