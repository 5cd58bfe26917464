"""The distance of records to regions, in which the nearest answers of a catalogue are found.

A distance is a sum over the quasi-identifiers. A number contributes what it is outside of its range
divided by the population's range. A category, a rank and a missing value contribute 0 inside, and 1
outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cfk_plugin.data.decision import Mask
from cfk_plugin.data.domain import Domain
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import Interval, Part, Region
from cfk_plugin.data.values import to_number
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.axes import Codes, Floats, Ints

# What a quasi-identifier outside of a region adds: it is one more change, which no move takes back.
OUTSIDE = 0.1


class RegionDistance(HostOnly):
    """Distances of records to the nearest point of each of some regions."""

    def __init__(self, population: Population, regions: Sequence[Region]) -> None:
        self._n_regions = len(regions)
        self._columns: list[_PartsOfNumber | _PartsOfCategory] = []
        for name in population.schema.quasi_identifiers:
            domain = population.domains[name]
            parts = [region[name] for region in regions]
            if domain.is_numeric:
                self._columns.append(_PartsOfNumber.of(domain, parts))
            else:
                self._columns.append(_PartsOfCategory.of(domain, parts))

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
        for j, column in enumerate(self._columns):
            yield column.distances(codes[:, j], numbers[:, j], regions)


@dataclass(frozen=True, eq=False, repr=False)
class _PartsOfNumber(HostOnly):
    """What some regions say of a numeric attribute: a range each, with or without missing values.

    A part that holds no number has the range from inf to -inf.
    """

    domain: Domain
    low: Floats  # shape (n_regions,)
    high: Floats  # shape (n_regions,)
    has_missing: Mask  # shape (n_regions,)

    @classmethod
    def of(cls, domain: Domain, parts: Sequence[Part]) -> _PartsOfNumber:
        ranges = []
        for part in parts:
            if isinstance(part, Interval):
                ranges.append(part)
            else:
                ranges.append(Interval(None, None, missing=False))
        low = [np.inf if part.low is None else to_number(part.low) for part in ranges]
        high = [-np.inf if part.high is None else to_number(part.high) for part in ranges]
        return cls(
            domain=domain,
            low=np.array(low, dtype=np.float64),
            high=np.array(high, dtype=np.float64),
            has_missing=np.array([part.missing for part in ranges], dtype=bool),
        )

    def distances(self, codes: Codes, numbers: Floats, regions: Ints) -> Floats:
        """Return how far each record's number is outside of the part of each region.

        The distance is 0 inside. Outside it is that to the nearest end of the part, in shares of
        the width of the attribute, and may be above 1. If all training rows have one number, the
        width is 0, and every finite number counts as inside: no scale says how far away it is. A
        missing number is at the distance 1 from a part without missing values. Every number is at
        the distance 1 from a part without numbers.

        Parameters
        ----------
        codes, numbers : shape (n_records,)
            The records' values. A number that no training row has is a code below 0, and stands in
            `numbers`.
        regions : shape (n_chosen,)

        Returns
        -------
        shape (n_records, n_chosen)
        """
        low = self.low[regions]
        high = self.high[regions]
        number = self.domain.numbers_of(codes, numbers)[:, None]
        with np.errstate(invalid="ignore"):
            gap = np.maximum(0, np.maximum(low - number, number - high))
            distance = gap / (self.domain.width or np.inf)
        # A number that cannot be compared, as it is missing or infinite, is outside.
        distance = np.nan_to_num(distance, nan=1.0, posinf=1.0)
        holds_no_number = low > high
        distance = np.where(holds_no_number, 1.0, distance)
        is_missing = (codes == self.domain.missing_code) & self.domain.has_missing
        distance_if_missing = np.where(self.has_missing[regions], 0.0, 1.0)
        return np.where(is_missing[:, None], distance_if_missing, distance)


@dataclass(frozen=True, eq=False, repr=False)
class _PartsOfCategory(HostOnly):
    """What some regions say of an attribute that is no number: which codes are outside of each."""

    is_outside: Mask  # shape (n_codes, n_regions)

    @classmethod
    def of(cls, domain: Domain, parts: Sequence[Part]) -> _PartsOfCategory:
        is_inside: dict[Part, Mask] = {part: domain.inside(part) for part in set(parts)}
        # without regions, the array has no second dimension
        by_region = np.array([is_inside[part] for part in parts]).reshape(len(parts), domain.size)
        return cls(is_outside=(~by_region).T)

    def distances(self, codes: Codes, numbers: Floats, regions: Ints) -> Floats:  # noqa: ARG002
        """Return 0 where a record's code is inside the part of a region, and 1 outside.

        A category that no training row has is a code below 0, and is outside of every part. The
        shapes are those of `_PartsOfNumber.distances`.
        """
        is_unknown = codes[:, None] < 0
        return np.where(is_unknown, 1.0, self.is_outside[codes.clip(min=0)][:, regions])
