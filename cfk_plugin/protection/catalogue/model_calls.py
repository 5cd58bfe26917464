"""Calls of the model about the rows of a catalogue: few and large, but bounded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from cfk_plugin.data.predictions import Predictions
from cfk_plugin.data.training_labels import TrainingLabels
from cfk_plugin.protection.axes import Ints

ROWS_PER_CALL = 1 << 18
"""Most rows in one call of the model, or about so many where a job must not be divided."""


def fits_one_call(n_rows: int) -> bool:
    """Return True if the model can be asked about so many rows at once."""
    return n_rows <= ROWS_PER_CALL


def calls_of(n_rows: Ints) -> list[Ints]:
    """Divide jobs into runs, so that each call of the model has about equally many rows.

    Parameters
    ----------
    n_rows : shape (n_jobs,)
        How many rows each job asks about.

    Returns
    -------
    list of arrays
        Positions of the jobs of each call, in their order; all rows of a job are in one call.
    """
    if not len(n_rows):
        return []
    call = (np.cumsum(n_rows) - 1) // ROWS_PER_CALL
    first_jobs = np.flatnonzero(np.diff(call)) + 1
    return np.split(np.arange(len(n_rows)), first_jobs)


def predictions_of(
    model: TrainingLabels, rows_at: Callable[[Ints], pd.DataFrame], n_rows: int
) -> Predictions:
    """Return the model's predictions for n rows; `rows_at` makes those at some positions."""
    if n_rows > 0 and fits_one_call(n_rows):
        return model.predictions(rows_at(np.arange(n_rows)))
    calls = [
        np.arange(start, min(start + ROWS_PER_CALL, n_rows))
        for start in range(0, n_rows, ROWS_PER_CALL)
    ]
    return Predictions.joined(model.predictions(rows_at(rows)) for rows in calls)
