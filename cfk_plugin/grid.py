"""Grids: the value combinations that a region stands for, and the rows that ask a model about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.coding import Coding
from cfk_plugin.columns import conform, table_of
from cfk_plugin.domain import UNKNOWN, Domain
from cfk_plugin.population import Population
from cfk_plugin.region import Region


@dataclass(frozen=True, slots=True)
class Grid:
    """All combinations of values of a region that occur in the population attribute by attribute.

    A number of the counterfactual that no row has (its *own* value) belongs to the grid too and has the code
    ``domain.size``.

    Attributes
    ----------
    codes : tuple of int32 arrays
        Codes inside the region, per quasi-identifier; then, where private attributes are generalised as well, the
        codes that each private attribute stands for.
    """

    codes: tuple[NDArray[np.int32], ...]

    @classmethod
    def of(
        cls,
        region: Region,
        population: Population,
        own: Sequence[int],
        private: Sequence[NDArray[np.int32]] = (),
    ) -> Grid:
        """Enumerate the codes inside a region; `own` are the counterfactual's, `private` further axes."""
        axes: list[NDArray[np.int32]] = []
        for code, name in zip(own, population.schema.quasi_identifiers, strict=True):
            domain = population.domains[name]
            inside = np.flatnonzero(domain.inside(region[name])).astype(np.int32)
            axes.append(np.append(inside, np.int32(domain.size)) if code == UNKNOWN else inside)
        return cls((*axes, *private))

    @property
    def size(self) -> int:
        """Number of combinations (a Python integer: it may be huge)."""
        return prod(len(axis) for axis in self.codes)

    def all(self) -> NDArray[np.int32]:
        """Return every combination, shape (size, number of axes)."""
        mesh = np.meshgrid(*self.codes, indexing="ij")
        return np.stack([axis.reshape(-1) for axis in mesh], axis=1)

    def sample(self, n: int, random: np.random.Generator) -> NDArray[np.int32]:
        """Return n different combinations drawn uniformly without replacement (all of them if n >= size)."""
        if n >= self.size:
            return self.all()
        drawn: dict[tuple[int, ...], None] = {}
        while len(drawn) < n:  # rejection keeps memory small however large the grid is
            picks = [random.integers(0, len(axis), n) for axis in self.codes]
            for combination in zip(*(axis[p].tolist() for axis, p in zip(self.codes, picks, strict=True)), strict=True):
                if len(drawn) < n:
                    drawn[combination] = None
        return np.array(list(drawn), dtype=np.int32)


def rows_for_cells(
    population: Population | Coding, counterfactuals: pd.DataFrame, which: NDArray[np.int64], cells: NDArray[np.int32]
) -> pd.DataFrame:
    """Build model input: quasi-identifiers of cell ``cells[i]``, the rest from counterfactual ``which[i]``.

    Parameters
    ----------
    population : Population or Coding
    counterfactuals : DataFrame
        Conformed counterfactuals (`Population.conform`).
    which : int array, shape (n,)
        Row of `counterfactuals` that each cell belongs to.
    cells : int32 array, shape (n, n_quasi_identifiers) or (n, n_quasi_identifiers + n_private)
        Codes, those of private attributes last; ``domain.size`` stands for the counterfactual's own value.

    Returns
    -------
    DataFrame, shape (n, n_features)
        In the training table's column order and dtypes.
    """
    named = (*population.schema.quasi_identifiers, *population.schema.private)[: cells.shape[1]]
    place = {name: j for j, name in enumerate(named)}
    columns = {}
    for name in population.schema.features:
        own = counterfactuals[name].array
        columns[name] = (
            _column(population.domains[name], cells[:, place[name]], own, which) if name in place else own.take(which)
        )
    return table_of(columns)


def _column(domain: Domain, codes: NDArray[np.int32], own: Any, which: NDArray[np.int64]) -> Any:
    """Return the values of codes, and the counterfactuals' own ones where a code asks for them."""
    is_own = codes == domain.size
    if not is_own.any():
        return domain.restored(codes)
    column = domain.restore(codes.clip(max=domain.size - 1)).astype(object)
    column[is_own] = own.take(which[is_own]).astype(object)
    return conform(column, domain.dtype).array
