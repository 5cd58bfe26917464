"""Prototypes: a few rows of each outcome that are typical of the others."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.dp.served import ServedRows

_MOST = 10_000  # rows of an outcome that prototypes are sought among


def medoids(served: ServedRows, most: int) -> NDArray[np.int64]:
    """Return positions of prototypes: for each outcome the rows nearest to the centres of a k-means clustering.

    Rows become points whose squared Euclidean distance is that of Average Distance: numbers divided by their range,
    categories one-hot over the square root of 2. Post-processing: it costs no budget.

    Parameters
    ----------
    served : ServedRows
    most : int
        Prototypes per outcome; all rows, where there are fewer.
    """
    from sklearn.cluster import MiniBatchKMeans

    points = _points(served)
    kept: list[NDArray[np.int64]] = []
    for label in pd.unique(served.labels):
        rows = np.flatnonzero(served.labels == label)[:_MOST]
        if len(rows) > most:
            centres = MiniBatchKMeans(most, random_state=0, n_init=1).fit(points[rows]).cluster_centers_
            squares = (points[rows] ** 2).sum(axis=1)[:, None] - 2 * points[rows] @ centres.T
            rows = rows[np.unique(squares.argmin(axis=0))]
        kept.append(rows)
    return np.sort(np.concatenate(kept))


def _points(served: ServedRows) -> NDArray[np.float64]:
    heom, frame = served.heom, served.frame
    numbers = served.codes.numbers / np.array([heom.ranges[name] for name in heom.numeric])
    flags = pd.get_dummies(frame[list(heom.categorical)].astype(str)).to_numpy(dtype=np.float64) / np.sqrt(2)
    return np.hstack([np.nan_to_num(numbers), flags])
