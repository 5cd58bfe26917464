"""Which training row explains each query: NICE without optimisation, or the same search without NICE.

Both return the nearest training row, by HEOM, of those that are predicted the desired outcome and have it ("justified",
NICE's default). They are the same search twice, so that the experiments run where NICE does not install.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.errors import InputError
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.nice import Nice

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

EXPLAINERS = ("nice", "nearest")


def choose(name: str) -> str:
    """Return the explainer that a name stands for: for "auto" NICE where it is installed.

    Raises
    ------
    InputError
        If NICE is asked for and not installed.
    """
    installed = find_spec("nice") is not None
    if name == "auto":
        return "nice" if installed else "nearest"
    if name not in EXPLAINERS:
        raise InputError(f"explainer must be auto, {' or '.join(EXPLAINERS)}")
    if name == "nice" and not installed:
        raise InputError("NICE is not installed; pip install --no-deps NICEx==0.2.3, or use the explainer nearest")
    return name


def neighbours(
    name: str, train: pd.DataFrame, labels: NDArray[Any], queries: pd.DataFrame, model: Pipeline, desired: Any
) -> NDArray[np.int64]:
    """Return the position of the training row that explains each query; -1 where there is none."""
    if name == "nearest":
        return _nearest(train, labels, queries, model, desired)
    return Nice(train, labels, model, desired).positions(queries)


def justified(train: pd.DataFrame, labels: NDArray[Any], model: Pipeline, desired: Any) -> NDArray[np.int64]:
    """Return the positions of the training rows that may explain: the desired outcome is predicted, and true."""
    return np.flatnonzero((model.predict(train) == desired) & (labels == desired))


def _nearest(
    train: pd.DataFrame, labels: NDArray[Any], queries: pd.DataFrame, model: Pipeline, desired: Any
) -> NDArray[np.int64]:
    heom = Heom.fit(train)
    candidates = justified(train, labels, model, desired)
    found = heom.nearest(heom.encode(queries), heom.encode(train.iloc[candidates]))[0][:, 0]
    return np.where(found >= 0, candidates[found] if len(candidates) else -1, -1)
