"""Reading a receiver operating characteristic."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def roc_height(fpr: ArrayLike, tpr: ArrayLike, at: ArrayLike) -> NDArray[np.float64]:
    """Return the true positive rates of a curve at some false positive rates.

    Parameters
    ----------
    fpr, tpr : array of float in [0, 1]
        Points of the curve, both ascending, from 0 to 1.
    at : array of float in [0, 1]

    Returns
    -------
    array of float
        Of points above each other the highest counts; between points, what an attacker reaches who chooses one of two
        thresholds by a coin.

    Examples
    --------
    >>> roc_height([0.0, 0.0, 0.5, 1.0], [0.0, 0.25, 0.75, 1.0], [0.0, 0.1]).tolist()
    [0.25, 0.35]
    """
    across = np.asarray(fpr, dtype=np.float64)
    highest = np.append(across[1:] > across[:-1], True)
    places = np.asarray(at, dtype=np.float64)
    return np.asarray(np.interp(places, across[highest], np.asarray(tpr, dtype=np.float64)[highest]))
