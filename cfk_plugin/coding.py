"""Coding: records as codes and numbers in a population's terms. It knows domains and no row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin import keyed
from cfk_plugin.cells import collapse
from cfk_plugin.columns import conform, conform_values, ordered, select, table_of, values_of
from cfk_plugin.domain import Domain
from cfk_plugin.errors import PopulationError
from cfk_plugin.schema import Schema
from cfk_plugin.tokens import tokens_of


class Reading(NamedTuple):
    """A table in a population's terms.

    ``codes`` and ``numbers`` are arrays of shape (n, n_features); see `Domain.encode`. ``settled`` says of each feature
    whether its values are spelled as the population spells them.
    """

    codes: NDArray[np.int32]
    numbers: NDArray[np.float64]
    settled: NDArray[np.bool_]


FEW = 32
"""Rows up to which a loop over values is faster than pandas' machinery."""


@dataclass(frozen=True, eq=False)
class Coding:
    """Reads tables by the domains of a population.

    Attributes
    ----------
    schema : Schema
    domains : mapping
        Feature to `Domain`.
    """

    schema: Schema
    domains: Mapping[str, Domain]

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"Coding({len(self.domains)} features)"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold every value."""
        raise PopulationError("a Coding holds values of rows and refuses to be pickled")

    def encode(self, frame: pd.DataFrame) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return codes and numbers of every feature of a table, each of shape (n, n_features); see `Domain.encode`."""
        return self.read(frame)[:2]

    def read(self, frame: pd.DataFrame) -> Reading:
        """Return codes and numbers of every feature of a table, and which columns `conform` need not touch."""
        if len(frame) <= FEW:
            return self._read_values(values_of(ordered(frame, self.schema.features)))
        coded = [self.domains[name].encode(frame[name]) for name in self.schema.features]
        codes, numbers = (np.column_stack(parts) for parts in zip(*coded, strict=True))
        return Reading(codes, numbers, np.zeros(len(coded), dtype=bool))

    def read_records(self, records: Sequence[Mapping[str, Any]]) -> tuple[pd.DataFrame, Reading, list[list[Any]]]:
        """Return a few records of plain values, such as JSON holds, as a conformed table, its reading, and its values.

        Parameters
        ----------
        records : sequence of mapping
            At least one, and `FEW` at most. Each has every feature.
        """
        values = {name: [record[name] for record in records] for name in self.schema.features}
        codes, numbers, settled = self._read_values(list(values.values()))
        table = {
            name: self.domains[name].restored(codes[:, j])
            if (codes[:, j] >= 0).all()
            else conform_values(column, self.domains[name].dtype)
            for j, (name, column) in enumerate(values.items())
        }
        kinds = [{int} if self.domains[name].attribute.kind == "numeric" else {str, int} for name in values]
        plain = [  # numbers and dates as text are what they were read as
            column if is_so and {type(value) for value in column} <= known else list(array)
            for column, array, is_so, known in zip(
                values.values(), table.values(), settled.tolist(), kinds, strict=True
            )
        ]
        return table_of(table), Reading(codes, numbers, np.ones(len(values), dtype=bool)), plain

    def _read_values(self, values: list[list[Any]]) -> Reading:
        domains = [self.domains[name] for name in self.schema.features]
        coded = [domain.encode_values(column) for domain, column in zip(domains, values, strict=True)]
        settled = [d.restores(column, codes) for d, column, (codes, _) in zip(domains, values, coded, strict=True)]
        codes, numbers = (np.column_stack(parts) for parts in zip(*coded, strict=True))
        return Reading(codes, numbers, np.array(settled))

    def quasi(self, frame: pd.DataFrame) -> list[NDArray[np.int32]]:
        """Return the codes of each quasi-identifier of a table."""
        return [self.domains[name].encode(frame[name])[0] for name in self.schema.quasi_identifiers]

    def collapse(self, frame: pd.DataFrame) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the cells of a table that the domains were learned from, and the cell of each row."""
        return collapse(self.quasi(frame), [self.domains[name].size for name in self.schema.quasi_identifiers])

    def conform(self, frame: pd.DataFrame, reading: Reading | None = None) -> pd.DataFrame:
        """Return the features of a table in the training table's order, dtypes and spelling, where values survive it.

        Parameters
        ----------
        frame : DataFrame
        reading : Reading, optional
            What `read` returned for it, where that is known already.
        """
        codes, _, settled = self.read(frame) if reading is None else reading
        names = self.schema.features
        table = select(frame, names)
        dtypes = [self.domains[name].dtype for name in names]
        is_right = settled & np.array([own == dtype for own, dtype in zip(table.dtypes, dtypes, strict=True)])
        if is_right.all():
            return table
        columns: dict[str, Any] = {}
        for j, name in enumerate(names):
            if not is_right[j] and (codes[:, j] >= 0).all():
                columns[name] = self.domains[name].restored(codes[:, j])
            else:
                columns[name] = table[name].array if is_right[j] else conform(table[name], dtypes[j]).array
        return table_of(columns)


@dataclass(frozen=True, eq=False, repr=False)
class KeyedOrder:
    """Lines records up by numbers that need the key to compute.

    Attributes
    ----------
    coding : Coding
    key : bytes
    """

    coding: Coding
    key: bytes

    def __repr__(self) -> str:
        """Show counts, never the key."""
        return f"KeyedOrder({len(self.coding.domains)} features)"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold the key."""
        raise PopulationError("a KeyedOrder holds the key and refuses to be pickled")

    def __call__(self, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
        """Return the keyed number of each record, coded (`Coding.encode`)."""
        schema, domains = self.coding.schema, self.coding.domains
        tokens = [tokens_of(domains[schema.features[j]], codes[:, j], numbers[:, j]) for j in schema.canonical]
        return keyed.order(self.key, np.column_stack(tokens))

    def of(self, frame: pd.DataFrame) -> NDArray[np.uint64]:
        """Return the keyed number of each record of a table."""
        return self(*self.coding.encode(frame))
