"""The test whether counterfactuals equal a training row, also if an explainer rounds numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.codes import MISSING, Codes, Column, Floats, Ints, Mask
from cfk_plugin.errors import HostOnly

_DECIMALS = 10  # a column with as many decimals counts as not rounded
_SINGLE = 2.0**-22  # numbers that went through float32 come back this close
_CAP = 0.01  # rounding tolerance, as a share of the range


class EqualRows(HostOnly):
    """Finds the rows that equal a training row, on all features or on the quasi-identifiers.

    Two missing values are equal. Numbers are equal if they are equal in single precision. If all
    numbers of a column in a batch have d decimals, and the population's have more, numbers are
    equal within half a unit of the last decimal, but at most 1 % of the range. A small batch can
    look rounded by chance; then too many rows are found, not too few. A value without a code equals
    no value.

    Parameters
    ----------
    codes : Codes
    rows : float array, shape (n_training_rows, n_features)
        The encoded training rows.
    """

    def __init__(self, codes: Codes, rows: Floats) -> None:
        self._columns = codes.columns
        self._decimals = [
            _n_decimals(column.values) if column.kind == "number" else 0 for column in codes.columns
        ]
        is_vague = np.array([_is_vague(column) for column in codes.columns], dtype=bool)
        is_repeated = pd.DataFrame(rows[:, codes.quasi], copy=False).duplicated().to_numpy()
        self._quasi = _Lookup(codes, rows[~is_repeated], codes.quasi, is_vague)
        self._all = _Lookup(codes, rows, np.arange(len(codes.columns)), is_vague)

    def find(self, rows: Floats) -> tuple[Mask, Mask]:
        """Find the rows of a batch that equal a training row.

        Parameters
        ----------
        rows : float array, shape (n_rows, n_features)

        Returns
        -------
        is_native : bool array, shape (n_rows,)
            Whether a row equals a training row in every feature.
        is_native_qi : bool array, shape (n_rows,)
            Whether a row equals a training row in every quasi-identifier.
        """
        slack = np.zeros(rows.shape)
        for j, column in enumerate(self._columns):
            if column.kind == "number" and len(column.values):
                slack[:, j] = _rounding_slack(rows[:, j], column, self._decimals[j])
        is_native_qi = self._quasi.has(rows, slack)
        is_native = np.zeros(len(rows), dtype=bool)
        is_native[is_native_qi] = self._all.has(rows[is_native_qi], slack[is_native_qi])
        return is_native, is_native_qi


def row_hashes(rows: Floats) -> NDArray[np.uint64]:
    """Return a hash of each row, shape (n_rows,). Different rows almost surely differ."""
    hashes = np.zeros(len(rows), dtype=np.uint64)
    for column in rows.T:
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + pd.util.hash_array(column)
    return hashes


class _Lookup(HostOnly):
    """Looks up rows in a table by some columns. Numbers of *vague* columns may differ a little.

    The table's rows form groups with equal codes in the other columns. They are sorted by group,
    and within a group by the vague column with the most numbers, because it excludes most rows.

    Parameters
    ----------
    codes : Codes
    rows : float array, shape (n_table_rows, n_features)
        The table.
    columns : int array
        Positions of the columns to compare.
    is_vague : bool array, shape (n_features,)
        Whether the numbers of a column may differ. Other columns have whole numbers.
    """

    def __init__(self, codes: Codes, rows: Floats, columns: Ints, is_vague: Mask) -> None:
        vague = columns[is_vague[columns]]
        n_numbers = [len(codes.columns[j].values) for j in vague]
        self._columns = columns
        self._certain = columns[~is_vague[columns]]
        self._leading = int(vague[np.argmax(n_numbers)]) if len(vague) else None
        keys = row_hashes(rows[:, self._certain])
        if self._leading is None:
            order = np.argsort(keys)
        else:
            order = np.lexsort([rows[:, self._leading], keys])
        self._rows = rows[order]
        self._keys = keys[order]

    def has(self, rows: Floats, slack: Floats) -> Mask:
        """Return whether each row is in the table, shape (n_rows,).

        Parameters
        ----------
        rows : float array, shape (n_rows, n_features)
            NaN if a value equals no value of the table.
        slack : float array, shape (n_rows, n_features)
            The largest difference from the table's number.
        """
        certain = rows[:, self._certain]
        whole = np.round(certain) + 0.0  # without a negative zero
        is_whole = np.abs(certain - whole) <= slack[:, self._certain]
        keys = row_hashes(np.where(is_whole, whole, certain))
        starts = np.searchsorted(self._keys, keys, side="left")
        stops = np.searchsorted(self._keys, keys, side="right")
        is_in_table = np.zeros(len(rows), dtype=bool)
        for i in np.flatnonzero(starts < stops):
            is_in_table[i] = self._has(rows[i], slack[i], slice(starts[i], stops[i]))
        return is_in_table

    def _has(self, row: Floats, slack: Floats, group: slice) -> bool:
        """Return whether a group of the table contains a row."""
        candidates = self._rows[group]
        if self._leading is not None:
            numbers = candidates[:, self._leading]
            x = row[self._leading]
            first = np.searchsorted(numbers, x - slack[self._leading], side="left")
            last = np.searchsorted(numbers, x + slack[self._leading], side="right")
            candidates = candidates[first:last]
        for j in self._columns:
            candidates = candidates[np.abs(candidates[:, j] - row[j]) <= slack[j]]
        return len(candidates) > 0


def _rounding_slack(numbers: Floats, column: Column, n_decimals: int) -> Floats:
    """Return the difference up to which each number may equal a number of the population.

    It is half a unit of the last decimal if the numbers are rounded, and at least single
    precision, but at most 1 % of the range.

    Parameters
    ----------
    numbers : float array, shape (n,)
        The numbers of a column in a batch of counterfactuals.
    column : Column
        The column in the population.
    n_decimals : int
        The number of decimals in the population.

    Returns
    -------
    float array, shape (n,)
    """
    is_present = ~np.isnan(numbers) & (numbers != MISSING)
    present = numbers[is_present]
    n_decimals_of_batch = _n_decimals(present)
    rounding = 0.0
    if n_decimals_of_batch < n_decimals:
        rounding = 0.5 * 10.0**-n_decimals_of_batch
    width = float(column.values[-1] - column.values[0])
    slack = np.zeros(len(numbers))
    slack[is_present] = np.maximum(rounding * (1 + 1e-9), np.abs(present) * _SINGLE)
    return np.minimum(slack, _CAP * width)


def _is_vague(column: Column) -> bool:
    """Return whether a rounded number may equal several numbers of a column.

    It may if these have decimals, or if single precision cannot distinguish numbers of this size.
    """
    if column.kind != "number" or not len(column.values):
        return False
    is_whole = np.array_equal(column.values, np.round(column.values))
    return not is_whole or float(np.abs(column.values).max()) * _SINGLE > _CAP


def _n_decimals(numbers: Floats) -> int:
    """Return the number of decimals that all these numbers need, at most `_DECIMALS`."""
    slack = 1e-12 * np.maximum(np.abs(numbers), 1.0)
    for n_decimals in range(_DECIMALS):
        rest = np.abs(numbers - np.round(numbers, n_decimals))
        if bool((rest <= np.maximum(slack, np.abs(numbers) * _SINGLE / 4)).all()):
            return n_decimals
    return _DECIMALS
