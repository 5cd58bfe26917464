"""The rows behind the cells of a population: in this process, or none behind a sealed catalogue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.domain import Codes, Rows
from cfk_plugin.data.encoded_table import Encoder
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import HostOnly, PopulationError


class RowsHere(HostOnly):
    """Training rows in a table of this process."""

    def __init__(
        self, table: pd.DataFrame, cell_of_row: Rows, subjects: Rows | None = None
    ) -> None:
        self.table = table
        self.cell_of_row = cell_of_row  # shape (n_rows,)
        # shape (n_rows,); number of the person of each row; None where each row is a person
        self.subjects = subjects

    def __len__(self) -> int:
        return len(self.cell_of_row)


class NoRows(HostOnly):
    """The rows behind a sealed catalogue, which are elsewhere: only their fingerprint is known."""

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.cell_of_row: Rows = np.empty(0, dtype=np.int64)
        self.subjects: Rows | None = None

    def __len__(self) -> int:
        return 0

    @property
    def table(self) -> pd.DataFrame:
        """The rows; refused, as there are none."""
        raise PopulationError(
            "a sealed catalogue has no rows; use the population that it was sealed from"
        )


def collapse(encoder: Encoder, frame: pd.DataFrame) -> tuple[Codes, Rows]:
    """Return the distinct combinations of quasi-identifiers of a table, shape (n_cells,
    n_quasi_identifiers), and the position of each row's among them, shape (n_rows,).
    """
    domains = [encoder.domains[name] for name in encoder.schema.quasi_identifiers]
    columns = [domain.encode(frame[domain.attribute.name])[0] for domain in domains]
    key = np.zeros(len(frame), dtype=np.int64)  # mixed radix: equal for equal combinations
    span = 1
    for codes, domain in zip(columns, domains, strict=True):
        # renumber before the mixed-radix key overflows
        if span > np.iinfo(np.int64).max // (domain.size + 1):
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            span = int(key.max()) + 1
        key = key * domain.size + codes
        span *= domain.size
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    cells = np.column_stack([codes[first] for codes in columns]).astype(np.int32)
    return cells, inverse.astype(np.int64)


def one_row_each(cell_of_row: Rows, subjects: Rows | None) -> Rows:
    """Return the rows at which people are counted: each at one row of the first of their cells."""
    if subjects is None:
        return np.arange(len(cell_of_row))
    line = np.argsort(cell_of_row, kind="stable")
    return line[np.unique(subjects[line], return_index=True)[1]]


def in_order(codes: Codes, schema: Schema, *before: NDArray[Any]) -> Rows:
    """Sort coded records by their values, whatever the order of rows and columns."""
    if before:
        line = np.lexsort(before[::-1])
        tied = np.all([np.diff(key[line]) == 0 for key in before], axis=0)
        if not (codes[line[1:]] != codes[line[:-1]])[tied].any():  # nearly always, and much faster
            return line
    return np.lexsort((*codes.T[list(schema.canonical)], *before[::-1]))
