"""What differential privacy allows in the game of membership: bounds on every attack, whatever it knows beside."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfk_plugin.audit.attack_report import Curve
from cfk_plugin.audit.epsilon.bounds import check_delta, check_epsilon
from cfk_plugin.audit.epsilon.worlds import Relation


def replace_one(epsilon: float, delta: float = 0.0, relation: Relation = "add-remove") -> tuple[float, float]:
    """Return the guarantee for tables that differ in one person in the place of another, as in the game.

    Parameters
    ----------
    epsilon, delta : float
        What is guaranteed.
    relation : {"add-remove", "replace-one"}
        For which neighbours. One person more or less gives (2 epsilon, (1 + e^epsilon) delta).

    Returns
    -------
    epsilon, delta : float

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    check_epsilon(epsilon)
    check_delta(delta, 0.5)
    if relation == "replace-one":
        return epsilon, delta
    return 2 * epsilon, min((1 + math.exp(min(epsilon, 700.0))) * delta, 1.0)


def largest_balanced_accuracy(epsilon: float, delta: float = 0.0) -> float:
    """Return the largest balanced accuracy that (epsilon, delta) allows; randomised response reaches it.

    Parameters
    ----------
    epsilon, delta : float
        For neighbours that differ in one person in the place of another: see `replace_one`.

    Returns
    -------
    float
        (e^epsilon + delta) / (1 + e^epsilon).

    References
    ----------
    Kairouz, Oh, Viswanath (2015), The composition theorem for differential privacy, theorem 2.1.

    Examples
    --------
    >>> round(largest_balanced_accuracy(1.0), 3)
    0.731
    """
    shrink = math.exp(-epsilon)
    return (1 + delta * shrink) / (1 + shrink)


def published_balanced_accuracy(epsilon: float, delta: float = 0.0) -> float:
    """Return the bound of the recourse paper: it holds, and no attack comes near it.

    Parameters
    ----------
    epsilon, delta : float
        For neighbours that differ in one person in the place of another. The paper has delta = 0; its proof gives
        what is returned for others.

    Returns
    -------
    float
        1/2 + (1 - e^-epsilon (1 - delta)) / 2.

    References
    ----------
    Pawelczyk, Lakkaraju, Neel (2023), theorem 1.

    Examples
    --------
    >>> round(published_balanced_accuracy(1.0), 3)
    0.816
    """
    return 0.5 + (1 - math.exp(-epsilon) * (1 - delta)) / 2


def largest_tpr(fpr: ArrayLike, epsilon: float, delta: float = 0.0) -> NDArray[np.float64]:
    """Return the largest true positive rate at false positive rates: the upper border of what is allowed.

    Parameters
    ----------
    fpr : array of float in [0, 1]
    epsilon, delta : float
        For neighbours that differ in one person in the place of another.

    Returns
    -------
    float64 array
        min(e^epsilon FPR + delta, 1 - e^-epsilon (1 - delta - FPR), 1).
    """
    rates = np.asarray(fpr, dtype=np.float64)
    few = math.exp(min(epsilon, 700.0)) * rates + delta
    many = 1 - math.exp(-epsilon) * np.maximum(1 - delta - rates, 0.0)
    return np.asarray(np.minimum(np.minimum(few, many), 1.0), dtype=np.float64)


def bound_curves(epsilon: float, delta: float = 0.0) -> dict[str, Curve]:
    """Return the two bounds as curves to draw beside those of attacks: ``bound_tight`` and ``bound_paper``.

    Parameters
    ----------
    epsilon, delta : float
        For neighbours that differ in one person in the place of another.

    Returns
    -------
    dict
        At false positive rates that are dense on a logarithmic axis. The paper's: TPR at most FPR + 2 B - 1, with B
        its bound on the balanced accuracy.
    """
    fpr = np.concatenate([[0.0], np.logspace(-4, 0, 81)])
    lines = {
        "bound_tight": largest_tpr(fpr, epsilon, delta),
        "bound_paper": np.minimum(fpr + 2 * published_balanced_accuracy(epsilon, delta) - 1, 1.0),
    }
    return {name: Curve(tuple(fpr.tolist()), tuple(tpr.tolist())) for name, tpr in lines.items()}
