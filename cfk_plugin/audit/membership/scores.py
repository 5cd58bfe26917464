"""From what an attacker sees of people to scores; a larger one speaks for a member."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

Direction = Literal["larger", "smaller"]
"""Which distance speaks for a member. "larger": training pushes the boundary away from who is trained on. "smaller":
generators that draw answers near to who they were trained on, such as autoencoders."""

_SURE = 1e-8  # confidences nearer to 0 or 1 than this are as near: their logit is finite
_SAME = 1e-9  # differences of logarithms below this are rounding


def distance_scores(distance: Floats, found: Mask, direction: Direction = "larger") -> Floats:
    """Score by the distance between a person and their counterfactual (CFD).

    Parameters
    ----------
    distance : float array, shape (n,)
        At least 0; not read where nothing was found.
    found : bool array, shape (n,)
        Who was answered. Nothing is learnt from an answer that was not given: such people get the middle one of the
        other scores, so they are never among the first who are named.
    direction : {"larger", "smaller"}

    Returns
    -------
    float array, shape (n,)

    References
    ----------
    Pawelczyk, Lakkaraju, Neel (2023), equation 3: at least the threshold is a member.
    """
    return _neutral(_turned(distance, direction), found)


def distance_ratio_scores(
    distance: Floats, found: Mask, shadow_distance: Floats, shadow_found: Mask, direction: Direction = "larger"
) -> Floats:
    """Score by how far a distance lies outside of what services show that never saw the person (CFD-LRT).

    Parameters
    ----------
    distance : float array, shape (n,)
        Under the service that is attacked.
    found : bool array, shape (n,)
    shadow_distance : float array, shape (n_shadows, n)
        Under services trained on other people.
    shadow_found : bool array, shape (n_shadows, n)
        False also where a shadow gives the person the desired outcome and so has nothing to explain: it is left out.
    direction : {"larger", "smaller"}

    Returns
    -------
    float array, shape (n,)
        (log t - mu) / sigma, with mu and sigma of the person's log distances under the shadows. Who has no answer, or
        none of any shadow, gets the middle one of the other scores.

    Notes
    -----
    Algorithm 1 names a member where t exceeds the 1 - alpha quantile of the log-normal fit: the same as this score
    above the normal quantile. (It prints the two outputs in the opposite order, against equation 3 and its own text.)
    sigma is the maximum likelihood estimate, with 1 / N. Where it is 0, or rests on one shadow, the root of the mean
    variance of everybody takes its place; where that is 0 as well, any difference is infinitely large. A distance of 0
    counts as half of the smallest positive one.
    """
    known = np.concatenate([distance[found], shadow_distance[shadow_found]])
    positive = known[known > 0]
    least = positive.min() / 2 if len(positive) else 1.0
    logs, shadow_logs = (np.log(np.maximum(np.nan_to_num(d, nan=0.0), least)) for d in (distance, shadow_distance))
    score = standardized(logs, shadow_logs, shadow_found)
    return _neutral(_turned(score, direction), found & shadow_found.any(axis=0))


def confidence_scores(confidence: Floats, outcome: Mask) -> Floats:
    """Score by the model's confidence in the true outcome (Loss): low loss speaks for a member.

    Parameters
    ----------
    confidence : float array, shape (n,) or (n_shadows, n)
        Probability of the desired outcome.
    outcome : bool array, shape (n,)
        Whether the true one is the desired one.

    Returns
    -------
    float array
        ln(p / (1 - p)) of the true outcome's p, which lies at least 1e-8 from 0 and 1. For the order of people that is
        the negative cross-entropy.

    References
    ----------
    Yeom, Giacomelli, Fredrikson, Jha (2018); scaled as by Carlini and others (2022).
    """
    right = np.clip(np.where(outcome, confidence, 1 - confidence), _SURE, 1 - _SURE)
    return np.asarray(np.log(right / (1 - right)), dtype=np.float64)


def confidence_ratio_scores(confidence: Floats, shadow_confidence: Floats, outcome: Mask) -> Floats:
    """Score by how far the confidence lies above that of models that never saw the person (Loss-LRT, offline).

    Parameters
    ----------
    confidence : float array, shape (n,)
    shadow_confidence : float array, shape (n_shadows, n)
    outcome : bool array, shape (n,)

    Returns
    -------
    float array, shape (n,)
        (l - mu) / sigma of `confidence_scores`; sigma as in `distance_ratio_scores`.

    References
    ----------
    Carlini and others (2022), Membership inference attacks from first principles: the offline attack.
    """
    shadows = confidence_scores(shadow_confidence, outcome)
    return standardized(confidence_scores(confidence, outcome), shadows, np.ones(shadows.shape, dtype=bool))


def random_scores(n: int, seed: int) -> Floats:
    """Score by a coin: what guessing reaches."""
    return np.random.default_rng(seed).random(n)


def standardized(value: Floats, shadow: Floats, used: Mask) -> Floats:
    """Return (value - mean) / deviation of each column of `shadow`, over the entries that are used.

    Parameters
    ----------
    value : float array, shape (n,)
    shadow : float array, shape (n_shadows, n)
    used : bool array, shape (n_shadows, n)

    Returns
    -------
    float array, shape (n,)
        See `distance_ratio_scores` for deviations of 0; 0 where nothing is used.
    """
    count = used.sum(axis=0)
    several = np.maximum(count, 1)
    mean = np.where(used, shadow, 0.0).sum(axis=0) / several
    variance = (np.where(used, shadow - mean, 0.0) ** 2).sum(axis=0) / several
    rounding = _SAME * np.maximum(np.abs(mean), 1.0)
    variance[variance <= rounding**2] = 0.0
    shared = float(variance[count > 1].mean()) if (count > 1).any() else 0.0
    deviation = np.sqrt(np.where((count > 1) & (variance > 0), variance, shared))
    difference = np.where((count > 0) & (np.abs(value - mean) > rounding), value - mean, 0.0)
    certain = np.where(difference == 0, 0.0, np.copysign(np.inf, difference))
    return np.where(deviation > 0, difference / np.where(deviation > 0, deviation, 1.0), certain)


def _turned(score: Floats, direction: Direction) -> Floats:
    return score if direction == "larger" else -score


def _neutral(score: Floats, known: Mask) -> Floats:
    """Give the middle one of the known scores to everybody else."""
    ranked = np.sort(score[known])
    return np.where(known, score, ranked[len(ranked) // 2] if len(ranked) else 0.0)
