"""People in cells: who has which combination of quasi-identifiers, and how many are in a region."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.cells import counted_once
from cfk_plugin.coding import Coding, Reading
from cfk_plugin.domain import Domain
from cfk_plugin.region import Region
from cfk_plugin.risk_profile import RiskProfile, risk_profile, smallest_classes
from cfk_plugin.rows import Rows


class People:
    """The counting of a population; where the rows are makes no difference to it. Read-only once it is made.

    Parameters
    ----------
    coding : Coding
    cells : int32 array, shape (n_cells, n_quasi_identifiers)
    cell_people : int64 array, shape (n_cells,)
    rows : Rows
    """

    def __init__(self, coding: Coding, cells: NDArray[np.int32], cell_people: NDArray[np.int64], rows: Rows) -> None:
        self.schema, self.coding, self.cells, self.cell_people = coding.schema, coding, cells, cell_people
        self.domains: Mapping[str, Domain] = MappingProxyType(dict(coding.domains))
        self._rows = rows
        arrays: list[NDArray[Any]] = [cells, cell_people, rows.cell_of_row]
        for domain in self.domains.values():
            arrays += [domain.values, domain.originals]
        for array in arrays:
            array.setflags(write=False)

    @property
    def n_rows(self) -> int:
        """Number of training rows; of people, where there are no rows."""
        return len(self._rows.cell_of_row)

    @property
    def has_rows(self) -> bool:
        """Whether training rows are in this process; a sealed population has counts alone."""
        return self._rows.in_memory

    @property
    def is_sealed(self) -> bool:
        """Whether nothing is known of people but their numbers, so that no partition can be made."""
        return not self._rows.are_told_apart

    @property
    def has_several_rows(self) -> bool:
        """Whether a person may have several rows: where the schema has a subject key, and the rows are here."""
        return self._rows.subjects is not None

    @property
    def n_people(self) -> int:
        """Number of distinct people (of rows, without a subject key)."""
        return int(self.cell_people.sum())

    @property
    def frame(self) -> pd.DataFrame:
        """Return a copy of the training rows. Host code only; nothing of it may be released or logged."""
        return self._rows.table.copy()

    def rows(self, at: NDArray[np.int64]) -> pd.DataFrame:
        """Return a copy of some of the training rows. Host code only, as `frame`."""
        return self._rows.table.take(at)

    def column(self, name: str) -> pd.Series:
        """Return a copy of one column. Host code only, as `frame`."""
        return self._rows.table[name].copy()

    def map_rows(self, work: Callable[[pd.DataFrame], pd.DataFrame], columns: str) -> pd.DataFrame:
        """Return what a function makes of rows that are on a cluster, there; see `RowsOnCluster.map`."""
        return self._rows.map(work, columns)

    def members(self, region: Region) -> NDArray[np.int64]:
        """Return the positions of the rows inside a region."""
        cells = np.flatnonzero(self.cells_inside(region))
        order, start = self._rows_by_cell
        if not len(cells):
            return np.empty(0, dtype=np.int64)
        return np.sort(np.concatenate([order[start[c] : start[c + 1]] for c in cells]))

    def count(self, region: Region) -> int:
        """Return the number of distinct people inside a region."""
        if self._rows.subjects is None:
            return int(self.cell_people[self.cells_inside(region)].sum())
        return self.people(self.members(region))

    def people(self, rows: NDArray[np.int64]) -> int:
        """Return the number of distinct people behind rows."""
        subjects = self._rows.subjects
        return len(rows) if subjects is None else len(np.unique(subjects[rows]))

    def first_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return, of some rows, the places where a person occurs for the first time."""
        subjects = self._rows.subjects
        return np.arange(len(rows)) if subjects is None else np.unique(subjects[rows], return_index=True)[1]

    def limited_rows(self, most: int) -> NDArray[np.int64]:
        """Return the rows in order, at most so many of each person: their first ones, whoever else is there.

        Rows of nobody, whose subject key is missing, are not among them.
        """
        subjects = self._rows.subjects
        if subjects is None:
            return np.arange(len(self._rows.table))
        rows = np.flatnonzero(subjects >= 0)
        return rows[pd.Series(subjects[rows]).groupby(subjects[rows]).cumcount().to_numpy() < most]

    @property
    def counted_rows(self) -> NDArray[np.int64]:
        """The rows at which people are counted in `cell_people`: one of each."""
        return counted_once(self._rows.cell_of_row, self._rows.subjects)

    def cells_inside(self, region: Region) -> NDArray[np.bool_]:
        """Say of every cell whether it is inside a region."""
        inside = np.ones(len(self.cells), dtype=bool)
        for j, name in enumerate(self.schema.quasi_identifiers):
            inside &= self.domains[name].inside(region[name])[self.cells[:, j]]
        return inside

    def cell_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the cell of each row."""
        return self._rows.cell_of_row[rows]

    def encode(self, frame: pd.DataFrame) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return codes and numbers of every feature of a table, each of shape (n, n_features); see `Domain.encode`."""
        return self.coding.encode(frame)

    def read(self, frame: pd.DataFrame) -> Reading:
        """Return codes and numbers of a table, and what `conform` needs; see `Coding.read`."""
        return self.coding.read(frame)

    def conform(self, frame: pd.DataFrame, reading: Reading | None = None) -> pd.DataFrame:
        """Return the features of a table as the training table has them; see `Coding.conform`."""
        return self.coding.conform(frame, reading)

    def risk_profile(self, k: int = 10) -> RiskProfile:
        """Return how many people are unique and how many are in a class of fewer than k.

        Parameters
        ----------
        k : int
            Size below which a class counts as small.

        Returns
        -------
        RiskProfile
            Shares in [0, 1]; a person with several rows counts by the smallest class they are in.

        References
        ----------
        Goethals, Sörensen, Martens (2023), section 5.1, Table 5.
        """
        return risk_profile(self._rows.cell_of_row, self._rows.subjects, k)

    def smallest_classes(self) -> NDArray[np.int64]:
        """Return for every person how many people are in the smallest class that they are in."""
        return smallest_classes(self._rows.cell_of_row, self._rows.subjects)

    @cached_property
    def _rows_by_cell(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order = np.argsort(self._rows.cell_of_row, kind="stable")
        start = np.searchsorted(self._rows.cell_of_row[order], np.arange(len(self.cells) + 1))
        return order, start
