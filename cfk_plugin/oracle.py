"""The model as judge: does a value combination get the desired outcome? Asked in batches, each cell once."""

from __future__ import annotations

from copy import copy
from math import prod
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.goal import Judge
from cfk_plugin.grid import rows_for_cells
from cfk_plugin.label_model import LabelModel
from cfk_plugin.population import Population

_TRIED = 256  # rows


class RowOracle:
    """Predictions for the population's own rows, each asked at most once."""

    def __init__(self, model: LabelModel, population: Population) -> None:
        self._model = model
        self.population = population
        self._label: NDArray[Any] = np.empty(population.n_rows, dtype=object)
        self._known = np.zeros(population.n_rows, dtype=bool)

    @property
    def model(self) -> LabelModel:
        """The model that is asked."""
        return self._model

    def labels(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the model's labels for rows of the population."""
        unknown = np.unique(rows[~self._known[rows]])
        if len(unknown):
            self._label[unknown] = self._model(self.population.rows(unknown)).astype(object)
            self._known[unknown] = True
        return self._label[rows]

    def tried(self) -> NDArray[Any] | None:
        """Return labels of the first rows, to see whether the model works; None where there are no rows."""
        if not self.population.has_rows:
            return None
        return self._model(self.population.rows(np.arange(min(_TRIED, self.population.n_rows))))

    def ask(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Return the model's labels for rows that the population does not have."""
        return self._model(frame).astype(object)


class Oracle:
    """Says for one set of counterfactuals whether the outcome of a cell, or of a training row, is the desired one.

    A cell of a counterfactual has the counterfactual's private values and the cell's quasi-identifiers.

    Parameters
    ----------
    model : LabelModel
    judge : callable
        What is desired for each counterfactual, see `Goal.judge`.
    rows : RowOracle
    counterfactuals : DataFrame
        Conformed counterfactuals, one row each.
    desired_at : int32 array, shape (n, n_quasi_identifiers), optional
        Coded quasi-identifiers of the counterfactuals, where all of them are known to have the desired outcome.
    """

    def __init__(
        self,
        model: LabelModel,
        judge: Judge,
        rows: RowOracle,
        counterfactuals: pd.DataFrame,
        desired_at: NDArray[np.int32] | None = None,
    ) -> None:
        population = rows.population
        self._model, self._judge, self._rows = model, judge, rows
        self._population, self._counterfactuals = population, counterfactuals
        self._answers: dict[Any, bool] = {}
        self._at = np.arange(len(counterfactuals))
        sizes = [population.domains[q].size + 1 for q in population.schema.quasi_identifiers]
        fits = prod(sizes) * max(len(counterfactuals), 1) < np.iinfo(np.int64).max
        self._radix = np.array([prod(sizes[j + 1 :]) for j in range(len(sizes))], np.int64) if fits else None
        self._span = prod(sizes)
        if desired_at is not None:
            own = np.where(desired_at < 0, np.array(sizes) - 1, desired_at).astype(np.int32)
            self._answers.update(dict.fromkeys(self._keys(self._at, own), True))

    def __repr__(self) -> str:
        """Show how much is known."""
        return f"Oracle({len(self._answers)} cells known)"

    def restrict(self, at: NDArray[np.int64]) -> Oracle:
        """Return this oracle for some of its counterfactuals, renumbered from 0; answers stay shared."""
        part = copy(self)
        part._at = self._at[at]
        return part

    def ask(self, which: NDArray[np.int64], cells: NDArray[np.int32], *, reuse: bool = True) -> NDArray[np.bool_]:
        """Say of every cell whether it gets the desired outcome, in one model call.

        Parameters
        ----------
        which : int array, shape (n,)
            Counterfactual that each cell belongs to.
        cells : int32 array, shape (n, n_quasi_identifiers)
            Codes, of private attributes too unless `reuse`; ``domain.size`` is the counterfactual's own value.
        reuse : bool
            Whether answers are remembered and repeated.

        Returns
        -------
        bool array, shape (n,)

        Raises
        ------
        ModelError
            If the model fails.
        """
        which = self._at[which]
        if not reuse:
            return self._evaluate(which, cells)
        keys = self._keys(which, cells)
        answers = self._answers
        new = [i for i, key in enumerate(keys) if key not in answers]
        if new:
            first = {keys[i]: i for i in new}
            at = np.fromiter(first.values(), dtype=np.int64, count=len(first))
            answers.update(zip(first, self._evaluate(which[at], cells[at]).tolist(), strict=True))
        return np.fromiter((answers[key] for key in keys), dtype=bool, count=len(keys))

    def desired_rows(self, which: int, rows: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Say of training rows whether their own prediction is what a counterfactual is after; None without rows."""
        if not self._population.has_rows:
            return None
        return self._judge(self._rows.labels(rows), np.full(len(rows), self._at[which]))

    def _evaluate(self, which: NDArray[np.int64], cells: NDArray[np.int32]) -> NDArray[np.bool_]:
        frame = rows_for_cells(self._population, self._counterfactuals, which, cells)
        return self._judge(self._model(frame), which)

    def _keys(self, which: NDArray[np.int64], cells: NDArray[np.int32]) -> list[Any]:
        if self._radix is not None:
            keys: list[Any] = (cells.astype(np.int64) @ self._radix + which * self._span).tolist()
            return keys
        return [(i, cell.tobytes()) for i, cell in zip(which.tolist(), np.ascontiguousarray(cells), strict=True)]
