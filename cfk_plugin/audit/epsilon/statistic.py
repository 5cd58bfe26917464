"""What is looked at in an output: a score of the user's, or everything that can be read as numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.epsilon.agreement import Agreement
from cfk_plugin.errors import InputError, quiet

Floats = NDArray[np.float64]
Score = Callable[[Any], Any]


class Statistic:
    """From an output to a vector.

    Parameters
    ----------
    score : callable, optional
        From an output to a number or to an array of numbers. Default: a number or an array as it is, and of a table
        what `agreement` says.
    agreement : Agreement, optional
        For outputs that are tables.
    """

    def __init__(self, score: Score | None, agreement: Agreement | None) -> None:
        self._score = score
        self._agreement = agreement

    def __call__(self, output: Any) -> Floats:
        """Return the vector of one output.

        Raises
        ------
        InputError
            If the score fails or nothing can be read as numbers. The message holds the class of its exception alone.
        """
        said = "the output is no table, number or array of numbers ({}); say with score= what to look at in it"
        if self._score is not None:
            said = "the score failed, or is no number or array of numbers ({})"
        with quiet(said, InputError):
            if self._score is not None:
                output = self._score(output)
            elif isinstance(output, pd.DataFrame) and self._agreement is not None:
                output = self._agreement(output)
            return np.asarray(output, dtype=np.float64).ravel()


def matrix(vectors: Sequence[Floats], width: int) -> Floats:
    """Put vectors below each other as finite numbers, with what that hides in two more columns.

    Parameters
    ----------
    vectors : sequence of arrays
        Of any lengths: a length that depends on the data tells worlds apart.
    width : int
        Columns; shorter vectors are filled up with 0, longer ones cut.

    Returns
    -------
    array, shape (n, width + 2)
        The last two columns are the length, and how many numbers are not finite (these are 0).
    """
    found = np.zeros((len(vectors), width + 2))
    for row, vector in zip(found, vectors, strict=True):
        finite = np.isfinite(vector)
        kept = np.where(finite, vector, 0.0)[:width]
        row[: len(kept)] = kept
        row[width:] = len(vector), len(vector) - finite.sum()
    return found
