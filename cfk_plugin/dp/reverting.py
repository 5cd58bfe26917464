"""Moving a row back towards the query while the outcome stays desired: sparser answers, which tell of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.goal import Goal
from cfk_plugin.heom import Heom
from cfk_plugin.label_model import LabelModel


def reverted(
    rows: pd.DataFrame,
    queries: pd.DataFrame,
    model: LabelModel,
    goal: Goal,
    factual_labels: NDArray[Any] | None,
    heom: Heom,
) -> pd.DataFrame:
    """Return rows with as many features as possible taken from their queries, the largest differences first.

    At each turn every row tries each feature in which it still differs, and takes over the one that brings it nearest
    among those that keep the outcome desired; the model is asked once a turn, for all rows together.

    Parameters
    ----------
    rows, queries : DataFrame, shape (n, n_features)
        Rows that have the desired outcome, and the queries that they answer.
    model : LabelModel
    goal : Goal
    factual_labels : array, optional
        Outcomes of the queries.
    heom : Heom

    Raises
    ------
    ModelError
        If the model fails.
    """
    names = [*heom.numeric, *heom.categorical]
    moved, asked = rows.reset_index(drop=True), queries.reset_index(drop=True)
    waiting = np.arange(len(moved))
    while len(waiting):
        gains = heom.parts(moved.take(waiting), asked.take(waiting))
        at, feature = np.nonzero(gains > 0)
        if not len(at):
            break
        tried = moved.take(waiting[at]).reset_index(drop=True)
        for j in np.unique(feature):
            these = np.flatnonzero(feature == j)
            tried.loc[these, names[j]] = asked[names[j]].take(waiting[at[these]]).to_numpy()
        own = None if factual_labels is None else factual_labels[waiting[at]]
        met = goal.met(model(tried).astype(object), own)
        gain = np.where(met, gains[at, feature], 0.0)
        best = _best_of_each(at, gain)
        moved.loc[waiting[at[best]]] = tried.take(best).set_axis(waiting[at[best]])
        waiting = waiting[at[best]]
    return moved.set_axis(rows.index)


def _best_of_each(owner: NDArray[np.int64], gain: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return, for each owner with a positive gain, the place of its largest one; `owner` ascends."""
    order = np.lexsort((-gain, owner))
    first = order[np.unique(owner[order], return_index=True)[1]]
    return np.asarray(first[gain[first] > 0])
