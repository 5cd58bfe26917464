"""Combinations of values inside a region, and the rows with which the model is asked about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.domain import UNKNOWN, Codes
from cfk_plugin.data.encoded_table import EncodedTable, Encoder, table_of
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Region
from cfk_plugin.data.values import conform

MOST_CELLS = 10_000  # value combinations of a region; up to these, the model is asked about all
SAMPLED = 2_000  # number drawn if there are more


@dataclass(frozen=True, slots=True)
class Grid:
    """All combinations of the population's values inside a region; code ``domain.size`` is the
    counterfactual's own.
    """

    # inside, per quasi-identifier; then, where generalised, per private attribute
    codes: tuple[Codes, ...]
    size: int = field(init=False)  # number of combinations; may be huge

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", prod(map(len, self.codes)))

    @classmethod
    def of(
        cls,
        region: Region,
        population: Population,
        own: Sequence[int],
        private: Sequence[Codes] = (),
    ) -> Grid:
        """Enumerate the codes inside a region; `own` are the counterfactual's, `private` further
        axes.
        """
        axes: list[Codes] = []
        for code, name in zip(own, population.schema.quasi_identifiers, strict=True):
            domain = population.domains[name]
            inside = np.flatnonzero(domain.inside(region.parts[name])).astype(np.int32)
            axes.append(np.append(inside, np.int32(domain.size)) if code == UNKNOWN else inside)
        return cls((*axes, *private))

    def all(self) -> Codes:
        """Return every combination, shape (size, number of axes)."""
        return np.stack(np.meshgrid(*self.codes, indexing="ij"), axis=-1).reshape(
            -1, len(self.codes)
        )

    def some(self, at: NDArray[np.int64]) -> Codes:
        places = np.unravel_index(at, [*map(len, self.codes)])
        return np.column_stack(
            [axis[place] for axis, place in zip(self.codes, places, strict=True)]
        ).astype(np.int32)

    def drawn(self, most: int = MOST_CELLS, n: int = SAMPLED, seed: int = 0) -> Codes:
        """Return all combinations, or a sample if they are too many; it does not depend on what
        else is asked.
        """
        return self.all() if self.size <= most else self.sample(n, np.random.default_rng(seed))

    def sample(self, n: int, random: np.random.Generator) -> Codes:
        """Return n different combinations, drawn uniformly (all if n >= size)."""
        if n >= self.size:
            return self.all()
        drawn: dict[tuple[int, ...], None] = {}
        while len(drawn) < n:  # rejection keeps memory small however large the grid is
            picks = [axis[random.integers(0, len(axis), n)].tolist() for axis in self.codes]
            drawn |= dict.fromkeys(zip(*picks, strict=True))
        return np.array(list(drawn)[:n], dtype=np.int32)


def rows_for_cells(
    encoder: Encoder, given: pd.DataFrame | EncodedTable, which: NDArray[np.int64], cells: Codes
) -> pd.DataFrame:
    """Build model input: quasi-identifiers of cell ``cells[i]``, the rest from row ``which[i]`` of
    those given.
    """
    named = (*encoder.schema.quasi_identifiers, *encoder.schema.private)[: cells.shape[1]]
    columns = {}

    for j, (name, domain) in enumerate(zip(encoder.schema.features, encoder.columns, strict=True)):
        if name not in named:
            columns[name] = (
                given.column(j, which)
                if isinstance(given, EncodedTable)
                else given[name].array.take(which)
            )
            continue
        codes = cells[:, named.index(name)]
        is_own = codes == domain.size
        if not is_own.any():
            columns[name] = domain.restore_array(codes)
            continue
        column = domain.restore(codes.clip(max=domain.size - 1)).astype(object)
        frame = given.frame if isinstance(given, EncodedTable) else given
        column[is_own] = frame[name].array.take(which[is_own]).astype(object)
        columns[name] = conform(column, domain.dtype).array
    return table_of(columns)
