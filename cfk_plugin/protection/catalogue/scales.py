"""The range of a private number, and a grid of round numbers over it.

Neither says anything about a single person. The ends of the range are round numbers that at least k
people have, or no one; the grid follows from the length of the range alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log, log10

import numpy as np
import pandas as pd

from cfk_plugin.data.domain import UNKNOWN, Domain
from cfk_plugin.data.population import Population
from cfk_plugin.protection.axes import Floats, Ints
from cfk_plugin.protection.catalogue.private_values import private_at
from cfk_plugin.protection.partition.microaggregation import counts_once
from cfk_plugin.protection.partition.partition import Partition

_GRID_POINTS = 20  # about the most steps of the coarsest grid across the range of an attribute
_RANGE_POINTS = 100  # the same for the grid that the ends of the range are rounded to
_DAY = 86_400.0  # seconds; dates are counted in seconds
TIE = 1e-9  # relative; two sizes that differ by less are equal
_PRECISION = 1e-12  # least step beside the ends of a range
# numbers between which ranges are computed without overflow
_SMALLEST = 1e-300
_LARGEST = 8e307
_LARGEST_WHOLE = 2.0**52  # whole numbers well within those that float64 holds


@dataclass(frozen=True)
class Step:
    """The distance of the points of a grid: 1, 2 or 5 times a power of ten, in a unit."""

    mantissa: int  # 1, 2 or 5
    exponent: int  # of ten
    unit: float = 1.0  # what is counted in, such as the seconds of a day

    @classmethod
    def at_least(cls, size: float, unit: float = 1.0) -> Step:
        """Return the smallest step that is not below a positive size."""
        exponent = floor(log10(size / unit))
        for mantissa in (1, 2, 5):
            step = cls(mantissa, exponent, unit)
            if step.size >= size * (1 - TIE):
                return step
        return cls(1, exponent + 1, unit)

    @property
    def size(self) -> float:
        """The distance between two neighbouring points."""
        return float(self.multiples(np.array([1]))[0])

    def multiples(self, counts: Ints) -> Floats:
        """Return the points at some positive or negative counts of steps from zero; shape (n,)."""
        whole = counts.astype(np.float64) * self.mantissa
        if self.exponent < 0:  # a division gives the float64 that is nearest to the decimal number
            return np.asarray(whole / 10.0**-self.exponent * self.unit)
        return np.asarray(whole * 10.0**self.exponent * self.unit)

    def finer(self) -> Step:
        """Return the next smaller step."""
        if self.mantissa == 1:
            return Step(5, self.exponent - 1, self.unit)
        return Step(self.mantissa // 2, self.exponent, self.unit)


@dataclass(frozen=True)
class Scale:
    """A range of one attribute's numbers, whose ends are no single person's, and a grid over it.

    `low` and `high` are numbers that at least k people have, or round numbers that no one has. They
    are where the numbers of the people with the desired outcome are expected to end, by the k-th
    and the 2k-th of them from either side.

    The grid has the multiples of a step that follows from the length of this range alone, rounded
    up to 1, 2 or 5 times a power of ten. Another person moves the k-th number to its neighbour at
    most, which changes the step only if the range is about to pass such a number. Without a step
    there is no grid: all but fewer than k of the numbers are equal.
    """

    low: float
    high: float
    step: Step | None
    finest: float  # steps below this size would give numbers that the attribute cannot have


def people_by_code(population: Population, column: int) -> Ints:
    """Count the people with each code of a feature; shape (domain.size,).

    A person with several rows counts once for each code that they have.
    """
    name = population.schema.features[column]
    return population.people_by_class(population.codes[:, column], population.domains[name].size)


def scales_of(partition: Partition, k: int) -> dict[str, Scale]:
    """Return the scale of each private number that is known of at least k people in groups."""
    population = partition.population
    grouped = np.flatnonzero(partition.group_of_row >= 0)
    rows = grouped[counts_once(population, grouped) == 1]
    scales = {}
    for name, column in zip(population.schema.private, private_at(population), strict=True):
        domain = population.domains[name]
        if not domain.is_numeric:
            continue
        codes = population.codes[rows, column]
        numbers = domain.values[np.sort(codes[codes < len(domain.values)])]
        if len(numbers) >= k:
            n_people = people_by_code(population, column)
            scales[name] = _scale_of(domain, numbers, n_people, k)
    return scales


def _scale_of(domain: Domain, numbers: Floats, n_people: Ints, k: int) -> Scale:
    """Return the scale for sorted numbers, one of each person: shape (n,), n at least k."""
    limit = _LARGEST_WHOLE if domain.is_whole else _LARGEST
    low, high = (max(-limit, min(end, limit)) for end in extrapolated_ends(numbers, k))
    finest = max(_finest_step(domain), _PRECISION * max(abs(low), abs(high)), _SMALLEST)
    unit = _DAY if finest == _DAY else 1.0
    length = high - low
    if length <= 0:
        if people_with(domain, np.array([low]), n_people)[0] >= k:
            return Scale(low=low, high=low, step=None, finest=finest)
        # Fewer than k people have the only number that is known. If it is 0, any length will do.
        length = abs(low) or unit
    rounding = Step.at_least(max(length / _RANGE_POINTS, finest), unit)
    return Scale(
        low=_outwards(domain, low, rounding, -1, n_people, k),
        high=_outwards(domain, high, rounding, 1, n_people, k),
        step=Step.at_least(max(length / _GRID_POINTS, finest), unit),
        finest=finest,
    )


def extrapolated_ends(numbers: Floats, k: int) -> tuple[float, float]:
    """Return where sorted numbers of n people, at least k, are expected to end; shape (n,).

    In an exponential tail of mean length 1, with the harmonic number H(n) = 1 + 1/2 + ... + 1/n,
    the first number is expected H(k - 1) beyond the k-th, about log k + 0.577, and the k-th
    H(2k - 1) - H(k - 1) beyond the 2k-th, about log 2. So the distance of these two, times the
    ratio of both, is added to the k-th. A range does not pass zero where all but fewer than k of
    the numbers are on one side of it. With fewer than 2k people the ends are those of the middle
    half, made twice as long. Round the ends before you release them.
    """
    n = len(numbers)
    if n < 2 * k:
        first, third = numbers[[n // 4, n - 1 - n // 4]].tolist()
        return first - (third - first) / 2, third + (third - first) / 2
    reach = (log(k) + float(np.euler_gamma)) / log(2)
    low, next_low, next_high, high = numbers[[k - 1, 2 * k - 1, -2 * k, -k]].tolist()
    lowest = low - reach * (next_low - low)
    highest = high + reach * (high - next_high)
    if low >= 0:
        lowest = max(lowest, 0.0)
    if high <= 0:
        highest = min(highest, 0.0)
    return lowest, highest


def _finest_step(domain: Domain) -> float:
    """Return the distance that two numbers of an attribute have at least; 0 if not known."""
    if domain.is_date:
        are_days = not (domain.values % _DAY).any()
        return _DAY if are_days else 1.0
    if np.isnan(domain.decimals):  # numbers in a column of objects
        return 0.0 if (domain.values % 1).any() else 1.0
    is_at_limit = domain.decimals >= 6
    return 0.0 if is_at_limit else 10.0**-domain.decimals


def _outwards(domain: Domain, end: float, step: Step, sign: int, n_people: Ints, k: int) -> float:
    """Round an end of a range to a point of a grid that at least k people have, or no one.

    The sign is 1 to go up, and -1 to go down.
    """
    count = int(np.ceil(sign * end / step.size - TIE))
    stride = 1
    while True:
        point = step.multiples(np.array([sign * count]))
        if not 0 < people_with(domain, point, n_people)[0] < k:
            return float(point[0]) + 0.0  # no negative zero
        count += stride
        stride *= 2  # beyond numbers without a gap in few trials


def people_with(domain: Domain, numbers: Floats, n_people: Ints) -> Ints:
    """Count the people with each of some numbers as the column holds them; shape (n,)."""
    codes, _ = domain.encode(in_dtype(domain, numbers))
    return np.asarray(np.where(codes >= 0, n_people[codes], 0), dtype=np.int64)


def in_dtype(domain: Domain, numbers: Floats) -> pd.Series:
    """Return numbers, of shape (n,), in the population's dtype; whole ones at least as int64."""
    column = pd.Series(domain.column(np.full(len(numbers), UNKNOWN, dtype=np.int32), numbers))
    if domain.is_whole and not pd.api.types.is_integer_dtype(column.dtype):
        return pd.Series(numbers.astype(np.int64))
    return column
