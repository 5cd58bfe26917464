"""The rows that answers are taken from: drawn once, labelled, and searched for the nearest one of another outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.dp.public import PublicDomain
from cfk_plugin.goal import Goal
from cfk_plugin.heom import Heom, HeomCodes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ServedRows:
    """Rows to answer with. They come from noised counts alone, so they may be looked at.

    Attributes
    ----------
    frame : DataFrame
        Every feature, in the dtypes that the model takes.
    labels : array
        The model's outcome at each row.
    cost : float64 array
        What is added to the distance to each row: less for rows that the noised model finds likely.
    heom : Heom
        Distance over the declared ranges.
    codes : HeomCodes
        `frame`, prepared for it.
    """

    frame: pd.DataFrame
    labels: NDArray[Any]
    cost: NDArray[np.float64]
    heom: Heom
    codes: HeomCodes

    @classmethod
    def of(
        cls, domain: PublicDomain, frame: pd.DataFrame, labels: NDArray[Any], cost: NDArray[np.float64]
    ) -> ServedRows:
        """Prepare rows for the search."""
        features = [column for column in domain.columns if column.name in frame.columns]
        heom = Heom(
            [c.name for c in features if c.is_numeric],
            [c.name for c in features if not c.is_numeric],
            {c.name: c.width for c in features if c.is_numeric},
        )
        return cls(frame, labels, cost, heom, heom.encode(frame))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.frame)

    def __repr__(self) -> str:
        """Show the number of rows."""
        return f"ServedRows({len(self)} rows)"

    def take(self, at: NDArray[np.int64]) -> ServedRows:
        """Return some of the rows."""
        frame = self.frame.take(at).reset_index(drop=True)
        return ServedRows(frame, self.labels[at], self.cost[at], self.heom, self.codes.take(at))

    def nearest(self, queries: pd.DataFrame, goal: Goal, factual_labels: NDArray[Any] | None) -> NDArray[np.int64]:
        """Return, for each query, the position of the nearest row with a desired outcome; -1 where there is none.

        Parameters
        ----------
        queries : DataFrame
        goal : Goal
        factual_labels : array, optional
            The outcomes of the queries; needed for the goal "opposite".
        """
        asked = self.heom.encode(queries)
        out = np.full(len(queries), -1, dtype=np.int64)
        if factual_labels is None or not goal.is_opposite:
            return self._search(asked, goal.met(self.labels), np.arange(len(queries)), out)
        for label in pd.unique(factual_labels):
            met = goal.met(self.labels, np.full(len(self), label, dtype=object))
            self._search(asked, met, np.flatnonzero(factual_labels == label), out)
        return out

    def _search(
        self, asked: HeomCodes, met: NDArray[np.bool_], at: NDArray[np.int64], out: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        rows = np.flatnonzero(met)
        if len(rows):
            found, _ = self.heom.nearest(asked.take(at), self.codes.take(rows), cost=self.cost[rows])
            out[at] = rows[found[:, 0]]
        return out
