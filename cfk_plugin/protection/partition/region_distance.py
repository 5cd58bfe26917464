"""The distance of records to regions, in which the nearest answers of a catalogue are found.

A distance is a sum over the quasi-identifiers. A number contributes what it is outside of its range
divided by the population's range. A category, a rank and a missing value contribute 0 inside, and 1
outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.decision import Mask
from cfk_plugin.data.domain import Domain
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Part, Region
from cfk_plugin.data.values import to_number
from cfk_plugin.errors import HostOnly, PopulationError
from cfk_plugin.protection.axes import Codes, Floats, Ints

# What a quasi-identifier outside of a region adds: it is one more change, which no move takes back.
OUTSIDE = 0.1


class RegionDistance(HostOnly):
    """Distances of records to the nearest point of each of some regions."""

    _refusal = PopulationError, "a {} holds values of training rows and refuses to be pickled"

    def __init__(self, population: Population, regions: Sequence[Region]) -> None:
        self._n_regions = len(regions)
        # of each quasi-identifier, its domain and its parts as arrays, which `_distances` takes
        self._columns: list[tuple[Domain, NDArray[Any]]] = []
        for name in population.schema.quasi_identifiers:
            domain = population.domains[name]
            parts = [region[name] for region in regions]
            if domain.is_numeric:
                self._columns.append((domain, _ranges(parts)))
            else:
                self._columns.append((domain, _is_outside(domain, parts)))

    def _counts(self) -> str:
        return f"{self._n_regions} regions"

    def between(self, codes: Codes, numbers: Floats, regions: Ints) -> Floats:
        """Return distances, with `OUTSIDE` for each quasi-identifier outside of a region.

        Parameters
        ----------
        codes, numbers : shape (n_records, n_quasi_identifiers)
            The records.
        regions : shape (n_chosen,)
            Numbers of regions.

        Returns
        -------
        shape (n_records, n_chosen)
        """
        total = np.zeros((len(codes), len(regions)))
        for distance in self._by_column(codes, numbers, regions):
            total += distance + OUTSIDE * (distance > 0)
        return total

    def n_outside(self, codes: Codes, numbers: Floats, regions: Ints) -> Ints:
        """Return how many quasi-identifiers of each record are outside of each region.

        Parameters and shapes are those of `between`.
        """
        total = np.zeros((len(codes), len(regions)), dtype=np.int64)
        for distance in self._by_column(codes, numbers, regions):
            total += distance > 0
        return total

    def _by_column(self, codes: Codes, numbers: Floats, regions: Ints) -> Iterator[Floats]:
        """Yield the distances that each quasi-identifier contributes, (n_records, n_chosen)."""
        for j, (domain, arrays) in enumerate(self._columns):
            yield _distances(domain, codes[:, j], numbers[:, j], arrays[:, regions])


def _ranges(parts: Sequence[Part]) -> Floats:
    """Return the ranges of regions on a numeric attribute, shape (3, n_regions).

    The rows are the first number, the last one, and 1 if missing values are inside. A part without
    numbers has the range from inf to -inf.
    """
    ranges = []
    for part in parts:
        if isinstance(part, Interval):
            ranges.append(part)
        else:
            ranges.append(Interval(None, None, missing=False))
    low = [np.inf if part.low is None else to_number(part.low) for part in ranges]
    high = [-np.inf if part.high is None else to_number(part.high) for part in ranges]
    has_missing = [float(part.missing) for part in ranges]
    return np.array([low, high, has_missing])


def _is_outside(domain: Domain, parts: Sequence[Part]) -> Mask:
    """Return whether each code is outside of each part, shape (n_codes, n_regions)."""
    is_inside: dict[Part, Mask] = {part: domain.inside(part) for part in set(parts)}
    # without regions, the array has no second dimension
    by_region = np.array([is_inside[part] for part in parts]).reshape(len(parts), domain.size)
    return (~by_region).T


def _distances(
    domain: Domain, codes: Codes, numbers: Floats, parts_as_arrays: NDArray[Any]
) -> Floats:
    """Return how far each record's value of one attribute is outside of each region's part.

    Inside, the distance is 0. Outside, a category or level is at the distance 1. A number is as far
    away as the nearest end of the part, in shares of the width of the attribute; if the attribute
    has one value only, its width is 0, and every number counts as inside.

    Parameters
    ----------
    domain
        The values that training rows have of the attribute.
    codes, numbers : shape (n_records,)
        The records' values. A category that no training row has is a code below 0. A number that no
        training row has is a code below 0 too, and stands in `numbers`.
    parts_as_arrays
        For numbers, the ends of the parts, as `_ranges` returns them. Otherwise which code is
        outside of which part, as `_is_outside` returns it.

    Returns
    -------
    shape (n_records, n_parts)
    """
    if not domain.is_numeric:
        is_unknown = codes[:, None] < 0
        return np.where(is_unknown, 1.0, parts_as_arrays[codes.clip(min=0)])
    low, high, has_missing = parts_as_arrays
    number = domain.numbers_of(codes, numbers)[:, None]
    with np.errstate(invalid="ignore"):
        gap = np.maximum(0, np.maximum(low - number, number - high))
        distance = gap / (domain.width or np.inf)
    distance = np.nan_to_num(distance, nan=1.0, posinf=1.0)
    holds_no_number = low > high
    distance = np.where(holds_no_number, 1.0, distance)
    is_missing = (codes == domain.missing_code) & domain.has_missing
    return np.where(is_missing[:, None], 1 - has_missing, distance)
