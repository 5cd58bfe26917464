"""Private values that may stand in an entry: those of at least k people, or of no one.

Numbers are often too different for that. Then round numbers of a grid that no one has take their
place; see `cfk_plugin.protection.catalogue.scales`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.domain import UNKNOWN, Domain
from cfk_plugin.data.population import Population
from cfk_plugin.errors import HostOnly, PolicyError
from cfk_plugin.protection.axes import Floats, Ints
from cfk_plugin.protection.catalogue.private_values import EncodedValues, private_at
from cfk_plugin.protection.catalogue.scales import (
    TIE,
    Scale,
    Step,
    in_dtype,
    people_by_code,
    people_with,
)

_GRIDS = 6  # most grids that are tried, each finer, where points are single people's numbers
_NEAR = 2  # points of a grid that are looked at to both sides of a number


@dataclass(frozen=True, eq=False, repr=False)
class ReleasableValues(HostOnly):
    """The values of one private attribute that at least k people have, or that no one has."""

    values: EncodedValues  # shape (n_values, 1)
    # Shape (domain.size,): for each code the position of the value that stands for it. For a number
    # or level that is the nearest value, and for a category itself; -1 where there is none.
    stands_for: Ints

    def __len__(self) -> int:
        return len(self.values)

    @property
    def position_of(self) -> Ints:
        """Positions of the codes that are releasable themselves, otherwise -1; (domain.size,)."""
        positions = np.full(len(self.stands_for), -1, dtype=np.int64)
        codes = self.values.codes[:, 0]
        has_code = np.flatnonzero(codes != UNKNOWN)
        positions[codes[has_code]] = has_code
        return positions


def releasable_values(
    population: Population, scales: dict[str, Scale], k: int
) -> list[ReleasableValues]:
    """Return the values of each private attribute that entries may be put together from.

    These are values of at least k people and values of no one: neither says anything about a single
    person.

    Parameters
    ----------
    population : Population
        All of its people are counted, whether or not the partition has put them into a group.
    scales : mapping of attribute to Scale
        Range and grid of private numbers, as `scales_of` returns them for the same k. A number
        that fewer than k people in groups have has none; then only numbers of at least k people
        are taken.
    k : int
        People.

    Returns
    -------
    list of ReleasableValues
        One per private attribute, in the order of `Schema.private`.

    Raises
    ------
    PolicyError
        If there is no such value of an attribute. The error names all of these attributes.
    """
    releasable = []
    names_without_value = []
    for name, column in zip(population.schema.private, private_at(population), strict=True):
        domain = population.domains[name]
        n_people = people_by_code(population, column)
        if domain.is_numeric:
            values = _releasable_numbers(domain, n_people, scales.get(name), k)
        else:
            values = _releasable_categories(domain, n_people, k)
        releasable.append(values)
        if not len(values):
            names_without_value.append(name)
    if names_without_value:
        names = ", ".join(map(repr, names_without_value))
        raise PolicyError(
            f"no value of {names} is shared by k = {k} people, so none can be released; give them"
            " fewer categories, or declare what identifies people in identifiers=, which the model"
            " must then do without"
        )
    return releasable


def _releasable_categories(domain: Domain, n_people: Ints, k: int) -> ReleasableValues:
    """Return the categories of at least k people; if there are none, those of no one.

    Of an ordinal attribute, levels of no one are always among them: they stand for levels nearby.
    """
    may_be_released = n_people >= k
    if domain.is_interval or not may_be_released.any():
        may_be_released |= n_people == 0
    codes = np.flatnonzero(may_be_released)
    stands_for = np.full(domain.size, -1, dtype=np.int64)
    stands_for[codes] = np.arange(len(codes))
    levels = codes[codes < len(domain.values)]
    if domain.is_interval and len(levels):
        ranks = np.arange(len(domain.values), dtype=np.float64)
        stands_for[: len(ranks)] = _nearest(levels.astype(np.float64), ranks)
    return ReleasableValues(_encoded(codes, np.full(len(codes), np.nan)), stands_for)


def _releasable_numbers(
    domain: Domain, n_people: Ints, scale: Scale | None, k: int
) -> ReleasableValues:
    """Return numbers of at least k people, and points of the grid where none is near."""
    numbers = domain.values  # shape (n,), ascending
    shared = numbers[n_people[: len(numbers)] >= k]
    substitutes = _numbers_for(domain, n_people, scale, shared)
    offered_numbers = np.unique(substitutes[~np.isnan(substitutes)])
    column = in_dtype(domain, offered_numbers)
    codes, numbers_in_dtype = domain.encode(column)
    numbers_without_code = np.where(codes == UNKNOWN, numbers_in_dtype, np.nan)
    stands_for = np.full(domain.size, -1, dtype=np.int64)
    has_number = np.flatnonzero(~np.isnan(substitutes))
    stands_for[has_number] = np.searchsorted(offered_numbers, substitutes[has_number])
    if domain.has_missing and n_people[domain.missing_code] >= k:
        stands_for[domain.missing_code] = len(codes)
        codes = np.append(codes, np.int32(domain.missing_code))
        numbers_without_code = np.append(numbers_without_code, np.nan)
    return ReleasableValues(_encoded(codes, numbers_without_code), stands_for)


def _numbers_for(domain: Domain, n_people: Ints, scale: Scale | None, shared: Floats) -> Floats:
    """Return for each number of a domain the releasable one that stands for it; shape (n,).

    1. The nearest number of at least k people (`shared`), within half a step of the grid.
    2. Otherwise the nearest of these and of the grid's points that no one has, within a step.
    3. Otherwise the same with finer grids, still within the first step.
    4. Otherwise the nearest of all that were taken, and of the ends of the scale, which no one has,
       or at least k people.

    NaN if there are none.
    """
    numbers = domain.values
    substitutes = np.full(len(numbers), np.nan)

    def choose(offered_numbers: Floats, reach: float) -> None:
        left = np.flatnonzero(np.isnan(substitutes))
        if len(left) and len(offered_numbers):
            nearest = offered_numbers[_nearest(offered_numbers, numbers[left])]
            is_near = np.abs(nearest - numbers[left]) <= reach * (1 + TIE)
            substitutes[left[is_near]] = nearest[is_near]

    if scale is not None and scale.step is not None:
        step = scale.step
        reach = step.size
        choose(shared, reach / 2)
        for _ in range(_GRIDS):
            left = numbers[np.isnan(substitutes)]
            if not len(left) or step.size < scale.finest * (1 - TIE):
                break
            choose(np.union1d(shared, _free_points(domain, n_people, scale, step, left)), reach)
            step = step.finer()
    ends = np.empty(0)
    if scale is not None:
        ends = _permitted(domain, np.array([scale.low, scale.high]))
    choose(np.unique(np.concatenate([shared, substitutes[~np.isnan(substitutes)], ends])), np.inf)
    return substitutes


def _free_points(
    domain: Domain, n_people: Ints, scale: Scale, step: Step, numbers: Floats
) -> Floats:
    """Return the points of a grid near some numbers that no one has; ascending."""
    reach = (_NEAR + 1) * step.size
    is_near = (numbers >= scale.low - reach) & (numbers <= scale.high + reach)
    counts = np.rint(numbers[is_near] / step.size).astype(np.int64)
    offsets = np.arange(-_NEAR, _NEAR + 1)
    points = step.multiples(np.unique(counts[:, None] + offsets)) + 0.0
    points = _permitted(domain, points[(points >= scale.low) & (points <= scale.high)])
    is_free = people_with(domain, points, n_people) == 0
    return np.asarray(points[is_free], dtype=np.float64)


def _permitted(domain: Domain, numbers: Floats) -> Floats:
    """Return those of some numbers, of shape (n,), that declared bounds and the dtype permit."""
    permitted = np.ones(len(numbers), dtype=bool)
    if domain.attribute.bounds is not None:
        low, high = domain.attribute.bounds
        permitted &= (numbers >= low) & (numbers <= high)
    if domain.is_whole:
        limits = np.iinfo(getattr(domain.dtype, "numpy_dtype", domain.dtype))
        permitted &= (numbers >= limits.min) & (numbers <= limits.max)
    return numbers[permitted]


def _nearest(offered_numbers: Floats, numbers: Floats) -> Ints:
    """Return the position of the nearest of ascending numbers for each; the lower one of ties.

    The offered numbers have the shape (n_offered,), the others and the result (n,).
    """
    right = np.searchsorted(offered_numbers, numbers).clip(max=len(offered_numbers) - 1)
    left = (right - 1).clip(min=0)
    to_right = np.abs(offered_numbers[right] - numbers)
    to_left = np.abs(numbers - offered_numbers[left])
    return np.asarray(np.where(to_right < to_left, right, left), dtype=np.int64)


def _encoded(codes: NDArray[np.integer], numbers: Floats) -> EncodedValues:
    """Return the values of one attribute, of shape (n,), as a table with one column."""
    return EncodedValues(codes=codes.astype(np.int32)[:, None], numbers=numbers[:, None])
