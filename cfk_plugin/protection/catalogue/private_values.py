"""Private values of candidates and entries, encoded by the domains of a population."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.domain import UNKNOWN
from cfk_plugin.data.encoded_table import table_of
from cfk_plugin.data.population import Population
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.axes import Codes, Floats, Ints


@dataclass(frozen=True, eq=False, repr=False)
class EncodedValues(HostOnly):
    """Private values of n rows, one column per private attribute in the order of the schema.

    A value that a row of the population has is a code of its domain. A number that no row has is
    `UNKNOWN` among the codes, and stands among the numbers.
    """

    codes: Codes  # shape (n, n_private)
    numbers: Floats  # shape (n, n_private); NaN where there is a code

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def of_codes(cls, codes: Codes) -> EncodedValues:
        """Return values that all have codes; ``codes`` has the shape (n, n_private)."""
        return cls(codes=codes, numbers=np.full(codes.shape, np.nan))

    def take(self, rows: Ints) -> EncodedValues:
        """Return the rows at some positions, in their order."""
        return EncodedValues(codes=self.codes[rows], numbers=self.numbers[rows])

    def joined(self, other_values: EncodedValues) -> EncodedValues:
        """Return these rows, then the others."""
        return EncodedValues(
            codes=np.concatenate([self.codes, other_values.codes]),
            numbers=np.concatenate([self.numbers, other_values.numbers]),
        )

    @property
    def sort_keys(self) -> list[NDArray[np.generic]]:
        """Keys for `numpy.lexsort`, the last one first: sorts by codes, then by numbers."""
        numbers = np.nan_to_num(self.numbers)
        return [*numbers.T[::-1], *self.codes.T[::-1]]

    def first_of_equal(self) -> Ints:
        """Return, in ascending order, the first position of each distinct row."""
        numbers = (np.nan_to_num(self.numbers) + 0.0).view(np.int64)
        keys = np.column_stack([self.codes, numbers])
        return np.sort(np.unique(keys, axis=0, return_index=True)[1])

    def frame(self, population: Population) -> pd.DataFrame:
        """Return the values as a table of n rows, in the population's dtypes where these fit."""
        columns = {}
        for j, name in enumerate(population.schema.private):
            domain = population.domains[name]
            columns[name] = domain.column(self.codes[:, j], self.numbers[:, j])
        return table_of(columns).reindex(range(len(self)))


def private_at(population: Population) -> list[int]:
    """Return the positions of the private attributes among the features."""
    features = population.schema.features
    return [features.index(name) for name in population.schema.private]


def private_codes(population: Population, rows: Ints) -> Codes:
    """Return the codes of the private values of some rows; shape (n_rows, n_private)."""
    return population.codes[rows][:, private_at(population)]


def encode_private(population: Population, private: pd.DataFrame) -> EncodedValues:
    """Encode a table that has a column for each private attribute."""
    shape = len(private), len(population.schema.private)
    codes = np.empty(shape, dtype=np.int32)
    numbers = np.empty(shape)
    for j, name in enumerate(population.schema.private):
        codes[:, j], numbers[:, j] = population.domains[name].encode(private[name])
    return EncodedValues(codes=codes, numbers=np.where(codes == UNKNOWN, numbers, np.nan))
