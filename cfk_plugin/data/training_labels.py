"""What the model says of training rows and of combinations, each asked at most once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.combinations import rows_for_cells
from cfk_plugin.data.decision import Labels, Mask
from cfk_plugin.data.domain import Codes, Rows
from cfk_plugin.data.encoded_table import FEW, EncodedTable, divided
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import OutcomeTest
from cfk_plugin.data.population import Population
from cfk_plugin.data.predictions import AnyOutcome, Predictions, Requirement
from cfk_plugin.errors import HostOnly

_TRIED = 256  # rows on which a model is tried


class KnownOutcomes(NamedTuple):
    """What the model said of combinations before verification asks; m of them."""

    which: Rows = np.empty(0, dtype=np.int64)  # shape (m,); the counterfactual of each
    cells: Codes = np.empty((0, 0), dtype=np.int32)  # shape (m, n_quasi_identifiers)
    predictions: Predictions = Predictions.joined([])


class TrainingLabels(HostOnly):
    """The model's labels of the population's own rows, each asked at most once.

    Attributes
    ----------
    requirement : Requirement
        What answers require of the outcomes that they rest on.
    """

    def __init__(self, model: LabelModel, population: Population) -> None:
        self.model = model
        self.population = population
        self.requirement: Requirement = AnyOutcome()
        self._label_of_row: Labels = np.empty(population.n_rows, dtype=object)
        self._is_known = np.zeros(population.n_rows, dtype=bool)

    def predictions(self, frame: pd.DataFrame) -> Predictions:
        """Return the model's labels of a table, and whether an answer may rest on each."""
        return self.requirement.predictions(self.model, frame)

    def predictions_of_rows(self) -> Predictions:
        """Return the predictions for all rows of the population."""
        rows = np.arange(self.population.n_rows)
        labels = self.labels(rows)
        if isinstance(self.requirement, AnyOutcome):
            return Predictions(labels, np.ones(len(rows), dtype=bool))
        return self.predictions(self.population.rows(rows))

    def labels(self, rows: Rows) -> Labels:
        """Return the labels of some rows, shape (n,); the model is asked about the unknown ones."""
        unknown = np.unique(rows[~self._is_known[rows]])
        if len(unknown):
            self._label_of_row[unknown] = self.ask(self.population.rows(unknown))
            self._is_known[unknown] = True
        return self._label_of_row[rows]

    def tried(self) -> Labels | None:
        """Return labels of the first rows, to see if the model works; None if there are no rows."""
        rows = self.population.rows_to_try(_TRIED)
        if rows is None:
            return None
        return self.model(rows)

    def ask(self, frame: pd.DataFrame) -> Labels:
        """Return the model's labels of a table, shape (n,)."""
        return self.model(frame).astype(object)

    def outcomes(
        self,
        counterfactuals: EncodedTable,
        queries: EncodedTable | Labels | None,
    ) -> tuple[Labels, Labels | None]:
        """Ask for the labels of counterfactuals and, unless they are known, of queries.

        This is one call of the model, if the tables have the same dtypes.

        Parameters
        ----------
        counterfactuals : EncodedTable, n of them
        queries : EncodedTable, or array of labels, optional
            The queries, or their labels if these are known.

        Returns
        -------
        labels : array, shape (n,)
        factual_labels : array, shape (n_queries,), or None
            The labels of the queries; None if no queries are given.
        """
        tables = [counterfactuals]
        if isinstance(queries, EncodedTable):
            tables.append(queries)
        if 0 < len(counterfactuals) <= FEW:
            labels_of_table = self._ask_few(tables)
        else:
            labels_of_table = self._ask_all(tables)
        if isinstance(queries, EncodedTable):
            return labels_of_table[0], labels_of_table[1]
        return labels_of_table[0], queries

    def _ask_few(self, tables: Sequence[EncodedTable]) -> list[Labels]:
        """Return the labels of each table, from one model call."""
        rows = tables[0]
        for table in tables[1:]:
            rows = rows.joined(table)
        codes, _ = rows.quasi_identifiers
        # The code ``domain.size`` stands for the row's own value.
        own_cells = np.where(codes < 0, self.population.sizes.astype(np.int32), codes)
        frame = rows_for_cells(self.population.encoder, rows, np.arange(len(rows)), own_cells)
        return divided(self.predictions(frame).labels, [len(table) for table in tables])

    def _ask_all(self, tables: Sequence[EncodedTable]) -> list[Labels]:
        """Return the labels of each table, in one call if all have the same dtypes."""
        frames = [table.frame for table in tables if len(table)]
        if len(frames) > 1 and all(frames[0].dtypes.equals(frame.dtypes) for frame in frames):
            labels = self.ask(pd.concat(frames, ignore_index=True))
            return divided(labels, [len(table) for table in tables])
        labels_of_table = []
        for table in tables:
            labels = np.empty(0, dtype=object)
            if len(table):
                labels = self.ask(table.frame)
            labels_of_table.append(labels)
        return labels_of_table

    def queried(self, factuals: pd.DataFrame, query: Rows) -> EncodedTable | Labels:
        """Return the labels of the queries, each asked once; a few are returned unasked, encoded.

        `outcomes` asks about these together with their counterfactuals.

        Parameters
        ----------
        factuals : DataFrame, shape (n, n_features or more)
        query : array of int, shape (n,)
            The number of the query that each row belongs to.
        """
        encoder = self.population.encoder
        if len(query) <= FEW:
            return encoder.read(factuals)
        _, first_row, number = np.unique(query, return_index=True, return_inverse=True)
        return self.ask(encoder.conform(factuals.take(first_row)))[number]


REFUSED = 0
"""The model gives a combination another outcome than the desired one."""
DESIRED = 1
"""It gives the desired outcome, on which no answer may rest: see `Requirement`."""
SURE = 2
"""It gives the desired outcome, and an answer may rest on it."""


class CombinationOutcomes(HostOnly):
    """Whether combinations, or training rows, have the outcome that counterfactuals must reach.

    The model is asked about a combination with its values of the quasi-identifiers and the
    counterfactual's private values. Its answers are remembered.

    Parameters
    ----------
    judge : OutcomeTest
        Of the outcome that each counterfactual must reach.
    rows : TrainingLabels
    counterfactuals : DataFrame or EncodedTable, n of them
    desired_at : array of codes, shape (n, n_quasi_identifiers), optional
        The counterfactuals' own quasi-identifiers, if all are known to have the outcome.
    known_outcomes : KnownOutcomes, optional
        What else is known.
    """

    def __init__(
        self,
        judge: OutcomeTest,
        rows: TrainingLabels,
        counterfactuals: pd.DataFrame | EncodedTable,
        desired_at: Codes | None = None,
        known_outcomes: KnownOutcomes | None = None,
    ) -> None:
        self._judge = judge
        self._rows = rows
        self._counterfactuals = counterfactuals
        self._positions = np.arange(len(counterfactuals))  # those that this object is about
        self._grade_of_key: dict[Any, int] = {}
        sizes = rows.population.sizes + 1  # of the domains, and one for the own value
        self._n_combinations = prod(sizes.tolist())
        self._place_values: NDArray[np.int64] | None = None  # shape (n_quasi_identifiers,)
        if self._n_combinations * max(len(counterfactuals), 1) < np.iinfo(np.int64).max:
            self._place_values = np.append(np.cumprod(sizes[:0:-1])[::-1], 1)
        if desired_at is not None:
            own_cells = np.where(desired_at < 0, sizes - 1, desired_at).astype(np.int32)
            keys = self._keys(self._positions, own_cells)
            self._grade_of_key.update(dict.fromkeys(keys, SURE))
        if known_outcomes is not None and len(known_outcomes.which):
            keys = self._keys(known_outcomes.which, known_outcomes.cells)
            grades = self._graded(known_outcomes.predictions, known_outcomes.which)
            self._grade_of_key.update(zip(keys, grades.tolist(), strict=True))

    def _counts(self) -> str:
        return f"{len(self._grade_of_key)} cells known"

    def restrict(self, positions: Rows) -> CombinationOutcomes:
        """Return the outcomes for some of the counterfactuals, renumbered from 0.

        What either object learns from the model, the other knows too.
        """
        part = object.__new__(CombinationOutcomes)
        vars(part).update(vars(self))
        part._positions = self._positions[positions]
        return part

    def ask(self, which: Rows, cells: Codes, *, reuse: bool = True) -> Mask:
        """Return a mask of the combinations with the desired outcome, shape (n,); see `grades`."""
        return np.asarray(self.grades(which, cells, reuse=reuse) >= DESIRED)

    def grades(self, which: Rows, cells: Codes, *, reuse: bool = True) -> NDArray[np.int8]:
        """Return the grade of each combination, from at most one call of the model.

        Parameters
        ----------
        which : array of int, shape (n,)
            The counterfactual of each combination.
        cells : array of codes, shape (n, n_quasi_identifiers)
            The code ``domain.size`` is the counterfactual's own value.
        reuse : bool
            Whether answers are remembered.

        Returns
        -------
        array of int8, shape (n,)
            `REFUSED`, `DESIRED` or `SURE`.
        """
        positions = self._positions[which]
        if not reuse:
            return self._evaluate(positions, cells)
        keys = self._keys(positions, cells)
        grades = [*map(self._grade_of_key.get, keys)]
        if None in grades:
            self._learn(keys, positions, cells)
            grades = [*map(self._grade_of_key.get, keys)]
        return np.array(grades, dtype=np.int8)

    def _learn(self, keys: Sequence[Any], positions: Rows, cells: Codes) -> None:
        """Ask the model about each combination whose grade is not known, once."""
        combination_of_key = {key: i for i, key in enumerate(keys) if key not in self._grade_of_key}
        combinations = np.fromiter(
            combination_of_key.values(), dtype=np.int64, count=len(combination_of_key)
        )
        grades = self._evaluate(positions[combinations], cells[combinations])
        self._grade_of_key.update(zip(combination_of_key, grades.tolist(), strict=True))

    def desired_rows(self, which: int | Rows, rows: Rows) -> Mask | None:
        """Return whether training rows have the outcome that counterfactuals must reach.

        Parameters
        ----------
        which : int or array of int, shape (n,)
            A counterfactual, or several.
        rows : array of int, shape (n_rows,)

        Returns
        -------
        array of bool or None
            Shape (n_rows,) for one counterfactual, (n, n_rows) for several; None if the population
            has no rows.
        """
        if not self._rows.population.has_rows:
            return None
        labels = np.tile(self._rows.labels(rows), np.size(which))
        positions = np.repeat(self._positions[which], len(rows))
        return self._judge(labels, positions).reshape(*np.shape(which), len(rows))

    def _evaluate(self, positions: Rows, cells: Codes) -> NDArray[np.int8]:
        """Ask the model about combinations, and return the grade of each."""
        frame = rows_for_cells(
            self._rows.population.encoder, self._counterfactuals, positions, cells
        )
        return self._graded(self._rows.predictions(frame), positions)

    def _graded(self, predictions: Predictions, positions: Rows) -> NDArray[np.int8]:
        """Return the grade of each prediction; all arrays have the shape (n,)."""
        is_desired = self._judge(predictions.labels, positions)
        grade_if_desired = np.where(predictions.is_sure, SURE, DESIRED)
        return np.where(is_desired, grade_if_desired, REFUSED).astype(np.int8)

    def _keys(self, positions: Rows, cells: Codes) -> list[Any]:
        """Return what each combination of a counterfactual is remembered by.

        This is one number, if 64 bits hold all of them: lists of numbers are made fastest.
        """
        if self._place_values is not None:
            number_of_cell = cells.astype(np.int64) @ self._place_values
            keys: list[Any] = (number_of_cell + positions * self._n_combinations).tolist()
            return keys
        return [
            (position, cell.tobytes())
            for position, cell in zip(positions.tolist(), np.ascontiguousarray(cells), strict=True)
        ]
