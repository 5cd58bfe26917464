"""Combinations of values inside a region, and the rows with which the model is asked about them.

A combination has one code per quasi-identifier and, if private attributes are generalised, one for
each of these. It is called a cell where it is a row of codes. The code ``domain.size`` stands for
the value of the counterfactual itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from cfk_plugin.data.domain import UNKNOWN, Codes, Domain, Rows
from cfk_plugin.data.encoded_table import EncodedTable, Encoder, table_of
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region
from cfk_plugin.data.values import conform

MOST_CELLS = 10_000
"""Up to so many combinations of a region, the model is asked about all."""
SAMPLED = 2_000
"""Number of combinations drawn if there are more."""


@dataclass(frozen=True, slots=True)
class Grid:
    """All combinations of the population's values inside a region.

    Attributes
    ----------
    codes : tuple of arrays
        The codes inside, for each quasi-identifier and then for each private attribute that is
        generalised.
    size : int
        Number of combinations; it may be huge.
    """

    codes: tuple[Codes, ...]
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", prod(map(len, self.codes)))

    @classmethod
    def of(
        cls,
        region: Region,
        population: Population,
        own_codes: Sequence[int],
        private: Sequence[Codes] = (),
    ) -> Grid:
        """Enumerate the codes inside a region.

        Parameters
        ----------
        region : Region
        population : Population
        own_codes : sequence of int
            The counterfactual's codes of the quasi-identifiers. A value that the population lacks
            is one more inside the region.
        private : sequence of arrays
            The codes of private attributes that are generalised.
        """
        axes: list[Codes] = []
        for own_code, name in zip(own_codes, population.schema.quasi_identifiers, strict=True):
            domain = population.domains[name]
            inside = np.flatnonzero(domain.inside(region.parts[name])).astype(np.int32)
            if own_code == UNKNOWN:
                inside = np.append(inside, np.int32(domain.size))
            axes.append(inside)
        return cls((*axes, *private))

    def all(self) -> Codes:
        """Return every combination, shape (size, n_attributes)."""
        axes = np.meshgrid(*self.codes, indexing="ij")
        return np.stack(axes, axis=-1).reshape(-1, len(self.codes))

    def some(self, positions: Rows) -> Codes:
        """Return the combinations at some positions in `all`, shape (n, n_attributes)."""
        shape = [len(axis) for axis in self.codes]
        positions_on_axes = np.unravel_index(positions, shape)
        columns = [
            axis[on_axis] for axis, on_axis in zip(self.codes, positions_on_axes, strict=True)
        ]
        return np.column_stack(columns).astype(np.int32)

    def drawn(self, most: int = MOST_CELLS, n: int = SAMPLED, seed: int = 0) -> Codes:
        """Return all combinations or, if they are more than `most`, a sample of n.

        The sample depends on the seed and on nothing else that is asked.
        """
        if self.size <= most:
            return self.all()
        return self.sample(n, np.random.default_rng(seed))

    def sample(self, n: int, random: np.random.Generator) -> Codes:
        """Return n different combinations, drawn uniformly, or all if there are not more."""
        if n >= self.size:
            return self.all()
        combinations: dict[tuple[int, ...], None] = {}
        while len(combinations) < n:  # rejection keeps memory small however large the grid is
            picks = [axis[random.integers(0, len(axis), n)].tolist() for axis in self.codes]
            combinations |= dict.fromkeys(zip(*picks, strict=True))
        return np.array(list(combinations)[:n], dtype=np.int32)


def rows_for_cells(
    encoder: Encoder, counterfactuals: pd.DataFrame | EncodedTable, which: Rows, cells: Codes
) -> pd.DataFrame:
    """Return the rows with which the model is asked about combinations.

    Parameters
    ----------
    encoder : Encoder
    counterfactuals : DataFrame or EncodedTable
        The counterfactuals.
    which : array of int, shape (n,)
        The counterfactual of each combination. A row has its private values, and its value where
        the code is ``domain.size``.
    cells : array of codes, shape (n, n_quasi_identifiers)

    Returns
    -------
    DataFrame, shape (n, n_features)
        In the dtypes of the training table.
    """
    schema = encoder.schema
    columns = {}
    for j, (name, domain) in enumerate(zip(schema.features, encoder.columns, strict=True)):
        if name in schema.quasi_identifiers:
            codes = cells[:, schema.quasi_identifiers.index(name)]
            columns[name] = _values_of_codes(domain, codes, counterfactuals, name, which)
        elif isinstance(counterfactuals, EncodedTable):
            columns[name] = counterfactuals.column(j, which)
        else:
            columns[name] = counterfactuals[name].array.take(which)
    return table_of(columns)


def _values_of_codes(
    domain: Domain,
    codes: Codes,
    counterfactuals: pd.DataFrame | EncodedTable,
    name: str,
    which: Rows,
) -> Any:
    """Return the values of one attribute, shape (n,), in its dtype; see `rows_for_cells`."""
    is_own = codes == domain.size
    if not is_own.any():
        return domain.restore_array(codes)
    column = domain.restore(codes.clip(max=domain.size - 1)).astype(object)
    frame = counterfactuals.frame if isinstance(counterfactuals, EncodedTable) else counterfactuals
    column[is_own] = frame[name].array.take(which[is_own]).astype(object)
    return conform(column, domain.dtype).array
