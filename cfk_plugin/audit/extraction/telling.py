"""Telling members from others by prediction vectors: by a threshold, or by networks that learnt on shadow models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cfk_plugin.audit.attacked.sample import Mask
from cfk_plugin.audit.extraction.architecture import Network
from cfk_plugin.audit.extraction.failing import called
from cfk_plugin.audit.extraction.numbers import Floats
from cfk_plugin.audit.extraction.shadows import WAYS
from cfk_plugin.audit.running.pieces import Found

LAYERS = (64, 32)
"""Hidden layers of the learned attack."""

PAPER_LAYERS = (1024, 512, 256, 64)
"""Those of the paper; about a hundred times as slow."""

Scores = Mapping[str, Floats]
"""By group and way, as ``members_explained``: rows of features, or one number per person, at least 0 for a member."""


def predictions(confidence: Floats, truth: Mask | None = None) -> Floats:
    """Return prediction vectors, the likelier outcome first.

    Parameters
    ----------
    confidence : float array, shape (n,)
        Probability of the desired outcome.
    truth : bool array, optional
        Whether the true outcome is the desired one: then its probability is a third column.

    Returns
    -------
    float array, shape (n, 2) or (n, 3)
    """
    columns = [np.maximum(confidence, 1 - confidence), np.minimum(confidence, 1 - confidence)]
    if truth is not None:
        columns.append(np.where(truth, confidence, 1 - confidence))
    return np.column_stack(columns)


def by_threshold(target: Scores, shadows: Sequence[Scores]) -> Scores:
    """Return how far people are above the threshold that is best on all shadows together.

    Of a prediction vector the last column counts that speaks for a member: the true outcome's, else the likelier one's.
    """
    found: dict[str, Floats] = {}
    for way in WAYS:
        inside, outside = (np.concatenate([_sure(s[f"{group}_{way}"]) for s in shadows]) for group in _HALVES)
        limit = best_threshold(inside, outside)
        found |= {name: _sure(rows) - limit for name, rows in target.items() if name.endswith(way)}
    return found


def best_threshold(members: Floats, others: Floats) -> float:
    """Return the score from which on people are named as members so that TPR - FPR is largest; the highest of several.

    It lies halfway to the next score below, as scores of further people fall between those of shadows.
    """
    scores = np.unique(np.concatenate([members, others]))
    hits, alarms = (len(group) - np.searchsorted(np.sort(group), scores) for group in (members, others))
    gains = hits / len(members) - alarms / len(others)
    best = int(np.flatnonzero(gains >= gains.max() - 1e-12)[-1])
    return float((scores[best] + scores[best - 1]) / 2) if best else float(scores[0])


def learn(shadow: Scores, target: Scores, layers: tuple[int, ...], seed: int) -> Found:
    """Train a network on a shadow's members and others, per way; return the probabilities of the target's people."""
    found: dict[str, Floats] = {}
    for way in WAYS:
        inside, outside = (shadow[f"{group}_{way}"] for group in _HALVES)
        rows, member = np.concatenate([inside, outside]), np.repeat([True, False], [len(inside), len(outside)])
        network = Network(layers).classifier(seed)
        called("training the attack", lambda: network.fit(rows, member))  # noqa: B023 - called at once
        for name in (name for name in target if name.endswith(way)):
            found[name] = np.asarray(network.predict_proba(target[name])[:, 1], dtype=np.float64)
    return found


def by_vote(votes: Sequence[Found]) -> Scores:
    """Return how far the mean of the networks' probabilities is above one half."""
    return {name: np.mean([vote[name] for vote in votes], axis=0) - 0.5 for name in votes[0]}


_HALVES = ("members", "others")


def _sure(rows: Floats) -> Floats:
    return np.asarray(rows[:, 2] if rows.shape[1] == 3 else rows[:, 0])
