"""Shared private values, and the centres of crowds.

An entry of the catalogue must not contain one person's private values. Each of its values is
shared: either at least k people have it, or no one. If few people have a number, a near number that
at least k people have replaces it, or a round number that no one has. Values are combined as in the
middle of a crowd, that is, of people with similar private values. Either at least k people have all
values of an entry together, or no one has.

So an attacker who knows a person's private values does not recognise the person in an entry: k - 1
others have the same values, or the person has others. Shared values do not hide which private
values are frequent: centres move when people join or leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, log, log10

import numpy as np
import pandas as pd
from pandas.api import types

from cfk_plugin.data.codes import MISSING, Column, Floats, Ints, Mask
from cfk_plugin.data.rounding import DAY
from cfk_plugin.errors import HostOnly, PolicyError

LEAST_CROWD = 2
"""A crowd has at least LEAST_CROWD * k people."""

_GRID_STEPS = 20  # roughly the most steps of the coarsest grid over the range of a column
_RANGE_STEPS = 100  # the same for the grid to which the ends of the range are rounded
_GRIDS = 6  # grids that are tried, each finer than the one before
_CROWDS = 512  # after this many crowds, no crowd is halved any more
_CLASSES = 32  # ranges of one number by which people are divided first
_VARIED = 3  # the widest columns, in which centres are varied
_OTHER_CATEGORIES = 2  # categories with which a centre is varied in one column
_MOST_DECIMALS = 6  # a column with this many decimals has no finest step
_PRECISION = 1e-12  # the least step, as a share of the ends of a range
_SMALLEST = 1e-300
_LARGEST_WHOLE = 2.0**52  # all whole numbers up to here are exact in float64
_LAST_DATE = 9.2e9  # seconds; timestamps in nanoseconds end in 2262
_TIE = 1e-9  # sizes are equal if they differ by at most this share


# Steps and ranges of numbers


@dataclass(frozen=True)
class Step:
    """The distance between points of a grid: 1, 2 or 5 times a power of ten, in a unit."""

    mantissa: int
    exponent: int
    unit: float = 1.0  # seconds, if a date is counted in days

    @classmethod
    def at_least(cls, size: float, unit: float = 1.0) -> Step:
        """Return the smallest step that is at least `size`, a positive number."""
        exponent = floor(log10(size / unit))
        for mantissa in (1, 2, 5):
            step = cls(mantissa, exponent, unit)
            if step.size >= size * (1 - _TIE):
                return step
        return cls(1, exponent + 1, unit)

    @property
    def size(self) -> float:
        """The distance between two neighbouring points."""
        return float(self.multiples(np.ones(1))[0])

    @property
    def finer(self) -> Step:
        """The next smaller step."""
        if self.mantissa == 1:
            return Step(5, self.exponent - 1, self.unit)
        return Step(self.mantissa // 2, self.exponent, self.unit)

    def multiples(self, counts: Floats) -> Floats:
        """Return `counts` times the step, shape (n,)."""
        whole = counts * self.mantissa
        if self.exponent < 0:  # division gives the float nearest to the decimal number
            points = whole / 10.0**-self.exponent * self.unit
        else:
            points = whole * 10.0**self.exponent * self.unit
        return np.asarray(points) + 0.0  # without a negative zero

    def between(self, low: float, high: float) -> Floats:
        """Return the points of the grid between two numbers, both included."""
        first = ceil(low / self.size - _TIE)
        last = floor(high / self.size + _TIE)
        return self.multiples(np.arange(first, last + 1, dtype=np.float64))


def shared_count(n_people: Ints, n_newcomers: Ints, k: int) -> Ints:
    """Return the number of people who count as having each value, shape (n_values,).

    It is for a catalogue that follows another one. Suppose that k - 1 people had a value. If it
    became shared with one newcomer, an attacker would recognise the newcomer. So k newcomers must
    have it; with fewer, the number stays below k.
    """
    return np.where(n_newcomers >= k, n_newcomers, np.minimum(n_people, k - 1))


@dataclass(frozen=True, eq=False, repr=False)
class ColumnPeople(HostOnly):
    """The number of people with each value of a column.

    Attributes
    ----------
    values : shape (n_values,), in order
        `MISSING` counts as a value.
    counts : shape (n_values,)
    """

    values: Floats
    counts: Ints

    def with_newcomers(self, newcomers: ColumnPeople, k: int) -> ColumnPeople:
        """Return counts after an earlier catalogue; see `shared_count`."""
        return ColumnPeople(
            self.values, shared_count(self.counts, newcomers.of_numbers(self.values), k)
        )

    @classmethod
    def of(cls, values: Floats, person: Ints) -> ColumnPeople:
        """Count the people with each value; both arguments have the shape (n_rows,).

        A person with several rows counts once for each value.
        """
        distinct, position = np.unique(values, return_inverse=True)
        n_people = int(person.max(initial=0)) + 1
        pairs = np.sort(position.reshape(-1) * n_people + person)  # one number per value and person
        is_first = np.append(True, pairs[1:] != pairs[:-1])
        counts = np.bincount(pairs[is_first] // n_people, minlength=len(distinct))
        return cls(distinct, counts)

    def of_numbers(self, numbers: Floats) -> Ints:
        """Return the number of people with each of these codes, shape (n,)."""
        place = np.searchsorted(self.values, numbers).clip(max=len(self.values) - 1)
        return np.where(self.values[place] == numbers, self.counts[place], 0)


@dataclass(frozen=True)
class _Scale:
    """The range of a column's numbers, and the steps of grids over it.

    The ends are declared bounds, or numbers that at least k people have, or no one. They estimate
    the extremes of the people with the outcome, and are not their actual extremes.
    """

    low: float
    high: float
    step: Step | None  # None if nearly all people, at least k, have the same number
    finest: float  # the least distance between two numbers of the column

    @classmethod
    def of(cls, column: Column, people: ColumnPeople, numbers: Floats, k: int) -> _Scale:
        """Return the scale for the numbers of n people, at least k; shape (n,), in order."""
        lowest, highest = _limits(column)
        low, high = np.clip(_expected_ends(numbers, k), lowest, highest).tolist()
        length = high - low
        if length <= 0:
            if people.of_numbers(np.array([low]))[0] >= k:
                return cls(low, high, None, _SMALLEST)
            length = abs(low) or 1.0
        unit, finest = _resolution(column, length)
        finest = max(finest, _PRECISION * max(abs(low), abs(high)), _SMALLEST)
        rounding = Step.at_least(max(length / _RANGE_STEPS, finest), unit)
        low = _round_end(column, people, low, rounding, -1, k)
        high = _round_end(column, people, high, rounding, 1, k)
        return cls(
            max(low, lowest),
            min(high, highest),
            Step.at_least(max(length / _GRID_STEPS, finest), unit),
            finest,
        )

    @property
    def span(self) -> float:
        """The length of the range; for a single number, its absolute value or 1."""
        return _span_of(np.array([self.low, self.high]))


def _span_of(numbers: Floats) -> float:
    """Return the difference that counts as 1 in distances, for numbers in order, shape (n,)."""
    if not len(numbers):
        return 1.0
    return float(numbers[-1] - numbers[0]) or abs(float(numbers[0])) or 1.0


def _limits(column: Column) -> tuple[float, float]:
    """Return the lowest and the highest number that the schema and the dtype permit."""
    low, high = _limits_of_type(column)
    if column.attribute.bounds is not None:
        lowest, highest = column.attribute.bounds
        return max(low, lowest), min(high, highest)
    return low, high


def _limits_of_type(column: Column) -> tuple[float, float]:
    """Return the lowest and the highest number of a column's dtype, far from any overflow."""
    if column.kind == "date":
        return -_LAST_DATE, _LAST_DATE
    dtype = getattr(column.dtype, "numpy_dtype", column.dtype)
    if types.is_integer_dtype(dtype):
        integers = np.iinfo(dtype)
        return max(float(integers.min), -_LARGEST_WHOLE), min(float(integers.max), _LARGEST_WHOLE)
    is_float = isinstance(dtype, np.dtype) and dtype.kind == "f"
    float_type = dtype if is_float else np.float64
    largest = float(np.finfo(float_type).max)
    return -largest / 4, largest / 4


def _resolution(column: Column, length: float) -> tuple[float, float]:
    """Return the unit of steps, and the least distance between numbers, which may be 0.

    Dates are whole days, unless their range is shorter than 20 days and they have times of day.
    """
    if column.kind == "date":
        unit = column.resolution if length < _GRID_STEPS * DAY else DAY
        return unit, unit
    if column.decimals >= _MOST_DECIMALS:
        return 1.0, 0.0
    return 1.0, 10.0**-column.decimals


def _expected_ends(numbers: Floats, k: int) -> tuple[float, float]:
    """Estimate the extremes of n people's numbers, at least k; shape (n,), in order.

    The estimate uses only the k-th and the 2k-th number from each end. In an exponential tail of
    mean length 1, the first number is expected H(k - 1), about log k + 0.577, beyond the k-th, with
    the harmonic number H(n) = 1 + 1/2 + ... + 1/n. The k-th is expected H(2k - 1) - H(k - 1), about
    log 2, beyond the 2k-th. So the distance of the k-th and the 2k-th, times the ratio of these
    terms, is added to the k-th. If fewer than k numbers are on the other side of zero, the range
    ends at zero. With fewer than 2k people, the range is twice as long as the middle half of the
    numbers.
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


def _round_end(
    column: Column, people: ColumnPeople, end: float, step: Step, sign: int, k: int
) -> float:
    """Return the next point of a grid that either at least k people have, or no one.

    `sign` is 1 to go up and -1 to go down. An end that one person has would disclose that number.
    """
    count = ceil(sign * end / step.size - _TIE)
    stride = 1
    while True:
        point = step.multiples(np.array([sign * count], dtype=np.float64))
        n_people = people.of_numbers(_in_column(column, point))[0]
        if n_people == 0 or n_people >= k:
            return float(point[0])
        count += stride
        stride *= 2  # so that a long run of numbers of few people takes few trials


def _in_column(column: Column, numbers: Floats) -> Floats:
    """Return the codes of numbers after a conversion to the column's dtype, shape (n,).

    If a training row has the number, it gets the code of that row, so that both can be compared.
    Dates are local times in the column's time zone, so that a day begins at midnight there.
    """
    lowest, highest = _limits(column)
    codes = column.from_the_clock(numbers).copy()
    is_inside = (codes >= lowest) & (codes <= highest)
    if is_inside.any():
        codes[is_inside] = column.encode(pd.Series(column.decode(codes[is_inside])))
    return codes


# Shared values


@dataclass(frozen=True, eq=False, repr=False)
class SharedValues(HostOnly):
    """The values of one private column that the catalogue may contain.

    Attributes
    ----------
    column : Column
    values : shape (n_values,), in order
        Codes that either at least k people have, or no one. `MISSING`, if shared, comes first.
    span : float
        The difference that counts as 1 in distances. For numbers it is the length of a range whose
        ends are shared or declared, and not the difference between two people.
    """

    column: Column
    values: Floats
    span: float

    def __len__(self) -> int:
        return len(self.values)

    def _counts(self) -> str:
        return f"{len(self.values)} values"

    @classmethod
    def of(
        cls, column: Column, people: ColumnPeople, codes_of_eligible: Floats, k: int
    ) -> SharedValues:
        """Return the shared values of a column.

        If there are none, `crowd_centres` will raise an error.

        Parameters
        ----------
        column : Column
        people : ColumnPeople
            The counts of all people, with and without the outcome.
        codes_of_eligible : shape (n_eligible,)
            The code of each person with the outcome. Grids cover their range.
        k : int
        """
        shared = people.values[people.counts >= k]
        if column.is_numeric:
            return cls._of_numbers(column, people, shared, codes_of_eligible, k)
        if column.is_line or not len(shared):
            of_no_one = np.setdiff1d(column.places, people.values)
            shared = np.union1d(shared, of_no_one)
        return cls(column, shared, column.span)

    @classmethod
    def _of_numbers(
        cls,
        column: Column,
        people: ColumnPeople,
        shared: Floats,
        codes_of_eligible: Floats,
        k: int,
    ) -> SharedValues:
        """Return the shared values of a numeric column; `shared` are those of at least k people."""
        lowest, highest = _limits(column)
        is_permitted = (shared >= lowest) & (shared <= highest) | (shared == MISSING)
        shared = shared[is_permitted]
        numbers = np.sort(codes_of_eligible[codes_of_eligible != MISSING])
        if len(numbers) < k:
            return cls(column, shared, _span_of(shared[shared != MISSING]))
        scale = _Scale.of(column, people, numbers, k)
        free = _free_points(column, people, shared, scale)
        return cls(column, np.union1d(shared, free), scale.span)

    def without(self, codes: Floats) -> SharedValues:
        """Return the shared values without these codes, shape (n,)."""
        return SharedValues(self.column, np.setdiff1d(self.values, codes), self.span)

    @cached_property
    def _without_missing(self) -> Floats:
        """The values without `MISSING`."""
        values: Floats = self.values[self.values != MISSING]
        return values

    def is_shared(self, codes: Floats) -> Mask:
        """Return which codes are among the shared values; any shape."""
        is_shared: Mask = np.isin(codes, self.values)
        return is_shared

    def nearest(self, codes: Floats) -> Floats:
        """Return the shared value that replaces each code, shape (n,).

        It is the nearest number or level, the lower one of two. A category or a missing value is
        not replaced. NaN means that there is no shared value for a code.
        """
        is_shared = self.is_shared(codes)
        values = self._without_missing
        if not self.column.is_line or not len(values):
            return np.where(is_shared, codes, np.nan)
        nearest = values[_nearest_place(values, codes)]
        is_missing = codes == MISSING
        return np.where(is_missing, np.where(is_shared, MISSING, np.nan), nearest)


def _free_points(column: Column, people: ColumnPeople, shared: Floats, scale: _Scale) -> Floats:
    """Return round numbers that no one has, to fill gaps between shared numbers.

    The points of the coarsest grid are tried first, unless a shared number is within half a step.
    If someone has such a point, points of finer grids replace it. The ends of the range are added.
    """
    numbers = shared[shared != MISSING]
    points = _of_no_one(column, people, np.array([scale.low, scale.high]))
    if scale.step is None:
        return np.setdiff1d(points, numbers)
    step = scale.step
    reach = step.size / 2 * (1 + _TIE)
    for _ in range(_GRIDS):
        if step.size < scale.finest * (1 - _TIE):
            break
        grid = step.between(scale.low, scale.high)
        earlier = np.union1d(numbers, points)
        if len(earlier):
            grid = grid[np.abs(earlier[_nearest_place(earlier, grid)] - grid) > reach]
        points = np.union1d(points, _of_no_one(column, people, grid))
        step = step.finer
    return points


def _of_no_one(column: Column, people: ColumnPeople, numbers: Floats) -> Floats:
    """Return the codes of permitted numbers that no one has."""
    lowest, highest = _limits(column)
    codes = _in_column(column, numbers)
    is_permitted = (codes >= lowest) & (codes <= highest)
    free: Floats = codes[is_permitted & (people.of_numbers(codes) == 0)]
    return free


def _nearest_place(values: Floats, numbers: Floats) -> Ints:
    """Return the position of the value nearest to each number; of two, the lower one.

    `values`, ascending, has the shape (n_values,), at least one; `numbers` and the result (n,).
    """
    right = np.searchsorted(values, numbers).clip(max=len(values) - 1)
    left = (right - 1).clip(min=0)
    is_right = np.abs(values[right] - numbers) < np.abs(numbers - values[left])
    return np.where(is_right, right, left)


# Crowds


def crowd_centres(
    private: Floats, shared: Sequence[SharedValues], people_of: Mapping[bytes, int], k: int
) -> Floats:
    """Return centres: the shared private values in the middle of crowds.

    The first crowds are all people, people with the same category, and people with near numbers. A
    crowd is halved at the middle of the column in which its people differ most, until there are
    enough crowds, or until a half has fewer than 2k people. The first centre of a crowd has medians
    and the most frequent categories. Further centres differ in one of the widest columns: they have
    a quartile, or a category that is frequent among all people. The result does not depend on the
    order of people.

    A crowd has at least 2k people and not k. In a crowd of k, k - 1 colluders could place their own
    numbers below and above those of the last person, and the medians would be this person's.

    Parameters
    ----------
    private : shape (n_people, n_private)
        The private values of each person with the outcome.
    shared : sequence of SharedValues
        One for each private column.
    people_of : mapping of bytes to int
        The number of people with each combination of private values, with or without the outcome.
        The keys are the bytes of float64 rows, shape (n_private,).
    k : int

    Returns
    -------
    array, shape (n_centres, n_private)
        Distinct rows in order. Every value is shared. Either at least k people have all values of a
        row, or no one. There is no row if 1 to k - 1 people have each combination that was tried.

    Raises
    ------
    PolicyError
        If a column has no shared value.
    """
    raise_if_not_shared(shared, k)
    search = _CrowdSearch(private, list(shared), people_of, k)
    centres = [np.empty((0, len(shared)))]
    people_of_crowds = search.first_crowds()
    n_crowds = 0
    while people_of_crowds and n_crowds < _CROWDS:
        crowds = [search.crowd(people) for people in people_of_crowds]
        centres.append(search.centres(crowds))
        people_of_crowds = [half for crowd in crowds for half in search.halves(crowd)]
        n_crowds += len(crowds)
    return np.unique(np.concatenate(centres), axis=0)


def raise_if_not_shared(shared: Sequence[SharedValues], k: int) -> None:
    """Raise a `PolicyError` if a column has no shared value."""
    names = [values.column.name for values in shared if not len(values)]
    if names:
        raise PolicyError(
            f"no value of {', '.join(map(repr, names))} is shared by k = {k} people, so none can be"
            " released; merge categories, or, if the column identifies people, list it in"
            " identifiers and fit the model without it"
        )


@dataclass(frozen=True, eq=False, repr=False)
class _Crowd(HostOnly):
    """People with similar private values.

    Attributes
    ----------
    people : shape (n_people,)
        The positions of their rows.
    middle : shape (n_private,)
        The medians and the most frequent categories.
    counts : shape (n_categories,)
        The number of people with each category, column by column.
    widest : list of int
        The positions of columns in which people differ, the widest first.
    """

    people: Ints
    middle: Floats
    counts: Ints
    widest: list[int]


class _CrowdSearch(HostOnly):
    """Finds crowds among people, and their centres; see `crowd_centres`."""

    def __init__(
        self,
        private: Floats,
        shared: list[SharedValues],
        people_of: Mapping[bytes, int],
        k: int,
    ) -> None:
        """Prepare the search; the parameters are those of `crowd_centres`."""
        self._private = np.ascontiguousarray(private)
        self._shared = shared
        self._people_of = people_of
        self._k = k
        self._least = LEAST_CROWD * k
        self._lines = [j for j, values in enumerate(shared) if values.column.is_line]
        self._nominal = [j for j, values in enumerate(shared) if not values.column.is_line]
        self._line_values = np.ascontiguousarray(private[:, self._lines])
        self._spans = np.array([shared[j].span for j in self._lines])
        # the categories of all columns have distinct numbers, so that one call counts all of them
        sizes = [len(shared[j].column.values) for j in self._nominal]
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._categories = private[:, self._nominal].astype(np.int64) + start[:-1]
        self._slice_of = {
            j: slice(int(start[i]), int(start[i + 1])) for i, j in enumerate(self._nominal)
        }
        self._is_offered = np.zeros(start[-1], dtype=bool)
        for i, j in enumerate(self._nominal):
            self._is_offered[shared[j].values.astype(np.int64) + start[i]] = True
        self._people_of_category = self._count(np.arange(len(private)))

    def _counts(self) -> str:
        return f"{len(self._private)} people"

    def _count(self, people: Ints) -> Ints:
        """Count the people with each category, column by column; shape (n_categories,)."""
        return np.bincount(self._categories[people].ravel(), minlength=len(self._is_offered))

    def first_crowds(self) -> list[Ints]:
        """Return the first crowds as positions of people; see `crowd_centres`.

        All people are a crowd if there are at least k. Any other crowd has at least 2k people.
        """
        n_people = len(self._private)
        if n_people < self._k:
            return []
        crowds = [np.arange(n_people)]
        for j in range(len(self._shared)):
            is_line = self._shared[j].column.is_line
            order = np.argsort(self._private[:, j], kind="stable")
            values = self._private[order, j]
            least = max(self._least, n_people // _CLASSES) if is_line else 1
            start = 0
            while start < n_people:
                last = values[min(start + least, n_people) - 1]
                stop = int(np.searchsorted(values, last, side="right"))
                if stop - start >= self._least:
                    crowds.append(order[start:stop])
                start = stop
        return crowds

    def crowd(self, people: Ints) -> _Crowd:
        """Return the crowd of people, with its middle and its widest columns.

        Mean differences from the middle are rounded, because their last digits depend on the order
        of people.
        """
        middle = np.empty(len(self._shared))
        difference = np.zeros(len(self._shared))
        if self._lines:
            numbers = self._line_values[people]
            medians = _lower_quantile(numbers, 0.5)
            middle[self._lines] = medians
            shares = np.minimum(np.abs(numbers - medians) / self._spans, 1.0)
            difference[self._lines] = shares.mean(axis=0)
        counts = self._count(people)
        for j in self._nominal:
            of_column = counts[self._slice_of[j]]
            frequent = int(of_column.argmax())
            middle[j] = frequent
            difference[j] = 1 - of_column[frequent] / len(people)
        difference = np.round(difference, 9)
        widest = np.argsort(-difference, kind="stable")
        return _Crowd(people, middle, counts, widest[difference[widest] > 0].tolist())

    def halves(self, crowd: _Crowd) -> list[Ints]:
        """Divide a crowd in the widest column in which both halves have at least 2k people."""
        for j in crowd.widest:
            values = self._private[crowd.people, j]
            is_low = values == crowd.middle[j]
            if self._shared[j].column.is_line:
                is_low = values <= crowd.middle[j]
            if is_low.all():
                is_low = values < crowd.middle[j]
            n_low = np.count_nonzero(is_low)
            if min(n_low, len(values) - n_low) >= self._least:
                return [crowd.people[is_low], crowd.people[~is_low]]
        return []

    def centres(self, crowds: list[_Crowd]) -> Floats:
        """Return the centres of crowds, shape (n_centres, n_private).

        Combinations that 1 to k - 1 people have are left out.
        """
        middles = np.array([crowd.middle for crowd in crowds])  # (n_crowds, n_private)
        stand_ins = np.column_stack(
            [values.nearest(middles[:, j]) for j, values in enumerate(self._shared)]
        )
        centres = []
        for crowd, centre in zip(crowds, stand_ins, strict=True):
            for j in np.flatnonzero(np.isnan(centre)).tolist():
                centre[j] = self._other_stand_in(crowd, j)
            for trial in self._trials(crowd, centre):
                n_people = self._people_of.get(trial.tobytes(), 0)
                if n_people == 0 or n_people >= self._k:
                    centres.append(trial)
        return np.array(centres).reshape(-1, len(self._shared))

    def _other_stand_in(self, crowd: _Crowd, j: int) -> float:
        """Return a value for column `j` of a centre if no shared value replaces the middle.

        For categories, it is the most frequent shared category of the crowd. For numbers, it
        replaces the median of the people with a number, or is the first shared value.
        """
        shared = self._shared[j]
        if not shared.column.is_line:
            return self._frequent_categories(crowd.counts, j)[0]
        values = self._private[crowd.people, j]
        values = values[values != MISSING]
        if len(values):
            stand_in = shared.nearest(_lower_quantile(values[:, None], 0.5))[0]
            if not np.isnan(stand_in):
                return float(stand_in)
        return float(shared.values[0])

    def _trials(self, crowd: _Crowd, centre: Floats) -> list[Floats]:
        """Return a centre and its variants with another value in one of the widest columns."""
        trials = [centre]
        for j in crowd.widest[:_VARIED]:
            for value in self._other_values(crowd, j):
                trial = centre.copy()
                trial[j] = value
                trials.append(trial)
        return trials

    def _other_values(self, crowd: _Crowd, j: int) -> list[float]:
        """Return shared values near the quartiles of a crowd, or the most frequent categories.

        The categories are those of all people, as the crowd's next category could be one person's.
        """
        shared = self._shared[j]
        if not shared.column.is_line:
            return self._frequent_categories(self._people_of_category, j)[:_OTHER_CATEGORIES]
        values = self._private[crowd.people, j][:, None]
        quartiles = [_lower_quantile(values, share)[0] for share in (0.25, 0.75)]
        stand_ins = shared.nearest(np.array(quartiles))
        return [value for value in stand_ins.tolist() if not np.isnan(value)]

    def _frequent_categories(self, counts: Ints, j: int) -> list[float]:
        """Return the shared categories of a column, the most frequent first; at least one.

        `counts` has the shape (n_categories,), column by column.
        """
        of_column = self._slice_of[j]
        shared = np.flatnonzero(self._is_offered[of_column])
        order = np.argsort(-counts[of_column][shared], kind="stable")
        categories: list[float] = shared[order].astype(np.float64).tolist()
        return categories


def _lower_quantile(values: Floats, share: float) -> Floats:
    """Return a quantile of each column that is one of its values, shape (m,).

    `values` has the shape (n, m).
    """
    position = int((len(values) - 1) * share)
    quantile: Floats = np.partition(values, position, axis=0)[position]
    return quantile
