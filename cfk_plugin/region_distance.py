"""Distances from records to regions, on the quasi-identifiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from cfk_plugin.columns import to_number
from cfk_plugin.errors import PopulationError
from cfk_plugin.region import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cfk_plugin.domain import Domain
    from cfk_plugin.population import Population
    from cfk_plugin.region import Part, Region


class RegionDistance:
    """HEOM distance, summed over the quasi-identifiers, of a record to the nearest point of each region.

    A number differs by what it is outside the range, divided by the population's range; a category by 0 inside the
    set, else 1; a rank like a category; missing by 0 where the region holds it, else 1. In [0, number of
    quasi-identifiers] for records inside the population's ranges; 0 inside the region.

    Parameters
    ----------
    population : Population
    regions : sequence of Region
    """

    def __init__(self, population: Population, regions: Sequence[Region]) -> None:
        self._domains = [population.domains[name] for name in population.schema.quasi_identifiers]
        self._count = len(regions)
        names = population.schema.quasi_identifiers
        self._parts = [
            _Numbers(d, [r[name] for r in regions])
            if d.attribute.kind == "numeric"
            else _Categories(d, [r[name] for r in regions])
            for name, d in zip(names, self._domains, strict=True)
        ]

    def __repr__(self) -> str:
        """Show counts, never a value."""
        return f"RegionDistance({self._count} regions)"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the copy would hold values of training rows."""
        raise PopulationError("a RegionDistance holds values of training rows and refuses to be pickled")

    def between(
        self, codes: NDArray[np.int32], numbers: NDArray[np.float64], regions: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return distances of shape (n, len(regions)); codes and numbers have shape (n, n_quasi_identifiers)."""
        total = np.zeros((len(codes), len(regions)))
        for j, part in enumerate(self._parts):
            total += part.between(codes[:, j], numbers[:, j], regions)
        return total


class _Numbers:
    """The ranges of one numeric attribute."""

    def __init__(self, domain: Domain, parts: Sequence[Part]) -> None:
        low, high, missing = [], [], []
        for part in parts:
            holds = isinstance(part, Interval) and part.low is not None
            low.append(to_number(part.low) if isinstance(part, Interval) and holds else np.inf)
            high.append(to_number(part.high) if isinstance(part, Interval) and holds else -np.inf)
            missing.append(isinstance(part, Interval) and part.missing)
        self._domain = domain
        self._low, self._high, self._missing = np.array(low), np.array(high), np.array(missing, dtype=bool)
        width = float(domain.values[-1] - domain.values[0]) if len(domain.values) else 0.0
        self._width = width if width > 0 else np.inf

    def between(
        self, codes: NDArray[np.int32], numbers: NDArray[np.float64], regions: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        known = codes.clip(min=0)
        values = self._domain.values
        exact = values[known.clip(max=len(values) - 1)] if len(values) else numbers
        number = np.where((codes >= 0) & (codes < len(values)), exact, numbers)[:, None]
        low, high = self._low[regions], self._high[regions]
        empty = low > high
        with np.errstate(invalid="ignore"):
            outside = np.maximum(0, np.maximum(low - number, number - high)) / self._width
        outside = np.where(empty, 1.0, np.nan_to_num(outside, nan=1.0, posinf=1.0))
        is_missing = (codes == self._domain.missing_code) & self._domain.has_missing
        return np.where(is_missing[:, None], (~self._missing[regions]).astype(float), outside)


class _Categories:
    """The value sets of one attribute that is no number."""

    def __init__(self, domain: Domain, parts: Sequence[Part]) -> None:
        tables: dict[Part, NDArray[np.bool_]] = {part: domain.inside(part) for part in set(parts)}
        self._outside = ~np.array([tables[part] for part in parts]).reshape(len(parts), domain.size)

    def between(
        self, codes: NDArray[np.int32], _: NDArray[np.float64], regions: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        return self._outside[regions][:, codes.clip(min=0)].T.astype(float)
