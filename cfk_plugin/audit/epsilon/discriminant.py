"""From a vector per run to one number: the direction in which two worlds differ most, against the noise within each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_FOLDS = 5
_RIDGE = 1e-6  # of the variance: what has no noise at all gets a large weight and not an infinite one


@dataclass(frozen=True, slots=True, repr=False)
class Discriminant:
    """A linear score, 0 halfway between two worlds and in units of the noise within each.

    Attributes
    ----------
    weights : array, shape (d,)
    offset : float
    """

    weights: Floats
    offset: float

    def __call__(self, vectors: Floats) -> Floats:
        """Return one score per vector; higher speaks for the canary."""
        return np.asarray(vectors @ self.weights - self.offset, dtype=np.float64)


def learn(inside: Floats, outside: Floats) -> Discriminant:
    """Learn the linear discriminant of two worlds, with the covariance shrunk as Ledoit and Wolf do.

    Parameters
    ----------
    inside, outside : array, shape (n, d)
        Finite.

    Returns
    -------
    Discriminant
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
    return Discriminant(weights / scale, float(weights @ (means[0] + means[1]) / 2))


def unseen_scores(inside: Floats, outside: Floats) -> tuple[Floats, Floats]:
    """Score every run by a discriminant that did not see it: those of seen runs lie too far apart.

    Parameters
    ----------
    inside, outside : array, shape (n, d)

    Returns
    -------
    tuple of two arrays, shape (n,)
    """
    scores = (np.empty(len(inside)), np.empty(len(outside)))
    fold = np.arange(len(inside)) % _FOLDS
    for held in np.unique(fold):
        score = learn(inside[fold != held], outside[fold != held])
        for side, found in zip((inside, outside), scores, strict=True):
            found[fold == held] = score(side[fold == held])
    return scores
