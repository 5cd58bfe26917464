"""Which equivalence class a record is in, or nearest to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np

from cfk_plugin.cells import find_rows, index_rows
from cfk_plugin.errors import PopulationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.domain import Domain
    from cfk_plugin.population import Population

_BLOCK = 1 << 22  # distances held at once
_TIE = 1e-9  # cells this close to each other in distance count as equally near


class NearestCells:
    """Finds for every record the nearest of some cells; of equally near ones the first. Host side only.

    Parameters
    ----------
    population : Population
    cells : int32 array, shape (m, n_quasi_identifiers)
        Codes; at least one row.

    Notes
    -----
    HEOM: a number differs by its distance divided by the population's range, anything else by 0 or 1, a missing value
    by 1 from every other. A record with the codes of a cell is in it, without any distance being computed.
    """

    def __init__(self, population: Population, cells: NDArray[np.int32]) -> None:
        self._domains = [population.domains[name] for name in population.schema.quasi_identifiers]
        self._cells = cells
        self._index = index_rows(cells)

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"NearestCells({len(self._cells)} cells)"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold values of training rows."""
        raise PopulationError("an index of equivalence classes refuses to be pickled; rebuild it instead")

    def find(self, codes: NDArray[np.int32], numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the cell of each record; codes and numbers have shape (n, n_quasi_identifiers)."""
        found = find_rows(self._cells, codes, self._index)
        open_ = np.flatnonzero(found < 0)
        step = max(_BLOCK // len(self._cells), 1)
        for start in range(0, len(open_), step):
            at = open_[start : start + step]
            distance = np.zeros((len(at), len(self._cells)))
            for j, domain in enumerate(self._domains):
                distance += _apart(domain, codes[at, j], numbers[at, j], self._cells[:, j])
            found[at] = np.argmax(distance <= distance.min(axis=1, keepdims=True) + _TIE, axis=1)
        return found


def _apart(
    domain: Domain, codes: NDArray[np.int32], numbers: NDArray[np.float64], cells: NDArray[np.int32]
) -> NDArray[np.float64]:
    differ = np.asarray(codes[:, None] != cells, dtype=np.float64)
    if domain.attribute.kind != "numeric" or not len(domain.values):
        return differ
    width = float(domain.values[-1] - domain.values[0])
    number = np.where(
        (codes >= 0) & (codes < len(domain.values)), domain.values[codes.clip(0, len(domain.values) - 1)], numbers
    )
    place = domain.values[cells.clip(max=len(domain.values) - 1)]
    with np.errstate(invalid="ignore"):
        gap = np.abs(number[:, None] - place) / width if width > 0 else np.zeros(differ.shape)
    no_number = ~np.isfinite(gap)
    if domain.has_missing:
        no_number |= (codes == domain.missing_code)[:, None] | (cells == domain.missing_code)
    return np.asarray(np.where(no_number, differ, gap), dtype=np.float64)
