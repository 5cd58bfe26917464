"""The rows behind the cells of a population: in memory, or not there at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.coding import KeyedOrder
from cfk_plugin.errors import PopulationError


class Rows(Protocol):
    """What a population asks of its rows. Where they are not in memory, each person stands for one row, cell by cell.

    Attributes
    ----------
    cell_of_row : int64 array, shape (n_rows,)
        Cell of each row.
    subjects : int64 array, shape (n_rows,), or None
        Number of the person of each row; None where each row is a person.
    in_memory : bool
        Whether `table` is there.
    are_told_apart : bool
        Whether `numbers` are there: whether the people of a cell can be divided.
    """

    cell_of_row: NDArray[np.int64]
    subjects: NDArray[np.int64] | None
    in_memory: bool
    are_told_apart: bool

    @property
    def table(self) -> pd.DataFrame:
        """The rows themselves, without a copy."""
        ...

    def numbers(self, order: KeyedOrder, at: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the keyed numbers of some rows."""
        ...

    def map(self, work: Callable[[pd.DataFrame], pd.DataFrame], columns: str) -> pd.DataFrame:
        """Return what a function makes of the rows, where they are; `columns` are its names and Spark types."""
        ...


class RowsInMemory:
    """The rows of a table.

    Parameters
    ----------
    table : DataFrame
        Not copied.
    cell_of_row : int64 array, shape (n_rows,)
    subjects : int64 array, shape (n_rows,), optional
    """

    in_memory = are_told_apart = True

    def __init__(self, table: pd.DataFrame, cell_of_row: NDArray[np.int64], subjects: NDArray[np.int64] | None) -> None:
        self.table, self.cell_of_row, self.subjects = table, cell_of_row, subjects

    def numbers(self, order: KeyedOrder, at: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the keyed numbers of some rows."""
        return order.of(self.table.take(at))

    def map(self, work: Callable[[pd.DataFrame], pd.DataFrame], columns: str) -> pd.DataFrame:  # noqa: ARG002
        """Return what a function makes of the rows."""
        return work(self.table)


class NoRows:
    """The people of a sealed population: counted, and no more is known of them.

    Parameters
    ----------
    cell_people : int64 array, shape (n_cells,)
        How many there are in each cell.
    """

    in_memory = are_told_apart = False
    subjects: NDArray[np.int64] | None = None
    _advice = "a sealed population has no rows; use the population that it was sealed from"

    def __init__(self, cell_people: NDArray[np.int64]) -> None:
        self.cell_of_row = np.repeat(np.arange(len(cell_people)), cell_people)

    @property
    def table(self) -> pd.DataFrame:
        """Refuse."""
        raise PopulationError(self._advice)

    def numbers(self, order: KeyedOrder, at: NDArray[np.int64]) -> NDArray[np.uint64]:  # noqa: ARG002
        """Refuse."""
        raise PopulationError(self._advice)

    def map(self, work: Callable[[pd.DataFrame], pd.DataFrame], columns: str) -> pd.DataFrame:  # noqa: ARG002
        """Refuse."""
        raise PopulationError(self._advice)
