"""Shared private values: those of at least k people, or of no one, and the crowds they stand for.

A crowd is at least k people with similar private values, found by halving the people with an
outcome again and again. Its center is tried as the private values of entries, in the groups of the
crowd's people. The exact center is often one person's own value. So a center is put together,
attribute by attribute, from values that at least k people of the population have. Where numbers are
too different for that, round numbers of a grid that no one has take their place. A center is left
out if all of its values together are those of 1 to k - 1 people.

So an adversary who knows a person's private values does not recognize the person in an entry: at
least k - 1 others have the same values, or the person does not have them. Shared values do not hide
where in the population private values are frequent: centers move when people join or leave; see
`cfk_plugin.protection.catalogue.value_book`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, log, log10

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.domain import UNKNOWN, Domain
from cfk_plugin.data.population import Population
from cfk_plugin.errors import HostOnly, PolicyError
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.catalogue.private_values import EncodedValues, private_at
from cfk_plugin.protection.partition.microaggregation import counts_once
from cfk_plugin.protection.partition.partition import Partition

_GRID_POINTS = 20  # most steps of the coarsest grid across the range of an attribute
_RANGE_POINTS = 100  # the same for the grid that the ends of the range are rounded to
_REFINED = 6  # most times that a grid is made finer where its points are single people's numbers
_NEAR = 2  # points of a grid that are looked at to both sides of a number
_CLASSES = 32  # ranges that the people are divided into by one number, to find crowds
_CROWDS = 512  # about the most crowds whose center is taken
# attributes in which another value is tried if 1 to k - 1 people have a center's values
_VARIED = 3
_QUANTILES = (0.25, 0.75)  # numbers that are tried there in place of the median
_GOLDEN = 2654435769  # odd; its multiples are far apart modulo 2**32
_SPREAD = 1640531527  # odd, so that each group begins at another multiple
_DAY = 86_400.0
_TIE = 1e-9  # relative
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
            if step.size >= size * (1 - _TIE):
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

    `low` and `high` are round numbers that at least k people have, or no one. They are where the
    numbers of the people with the desired outcome are expected to end, by the k-th and the 2k-th of
    them from either side.

    The grid has the multiples of a step that follows from the length of this range alone, rounded
    up to 1, 2 or 5 times a power of ten. Another person moves the k-th number to its neighbour at
    most, which changes the step only if the range is about to pass such a number. Without a step
    there is no grid: all numbers but fewer than k are the same.
    """

    low: float
    high: float
    step: Step | None
    finest: float  # steps below this size would give numbers that the attribute cannot have


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


def people_by_code(population: Population, column: int) -> Ints:
    """Count the people with each code of a feature; shape (domain.size,).

    A person with several rows counts once for each code that they have.
    """
    name = population.schema.features[column]
    return population.people_by_class(population.codes[:, column], population.domains[name].size)


def scales_of(partition: Partition, k: int) -> dict[str, Scale]:
    """Return the scale of each private number that at least k people who are in a group have."""
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
        if _people_with(domain, np.array([low]), n_people)[0] >= k:
            return Scale(low=low, high=low, step=None, finest=finest)
        length = abs(low)  # fewer than k people have the only number that is known
    rounding = Step.at_least(max(length / _RANGE_POINTS, finest), unit)
    return Scale(
        low=_outwards(domain, low, rounding, -1, n_people, k),
        high=_outwards(domain, high, rounding, 1, n_people, k),
        step=Step.at_least(max(length / _GRID_POINTS, finest), unit),
        finest=finest,
    )


def extrapolated_ends(numbers: Floats, k: int) -> tuple[float, float]:
    """Return where sorted numbers of n people, at least k, are expected to end; shape (n,).

    Beyond the k-th number of an exponential tail, the first is expected to be H(k - 1), about
    log k + 0.577, scales away; the 2k-th is H(2k - 1) - H(k - 1), about log 2. So their ratio times
    the distance of these two is added to the k-th. A range does not pass zero where all but fewer
    than k of the numbers are on one side of it. With fewer than 2k people the ends are those of
    the middle half, made twice as long. Round the ends before you release them.
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
    """Round an end of a range to the first point of a grid that at least k people have, or no one.

    The sign is 1 to go up, and -1 to go down.
    """
    count = int(np.ceil(sign * end / step.size - _TIE))
    further = 1
    while True:
        point = step.multiples(np.array([sign * count]))
        if not 0 < _people_with(domain, point, n_people)[0] < k:
            return float(point[0]) + 0.0
        count += further
        further *= 2  # beyond numbers without a gap in few trials


def _people_with(domain: Domain, numbers: Floats, n_people: Ints) -> Ints:
    """Count the people with each of some numbers as the column holds them; shape (n,)."""
    codes, _ = domain.encode(in_dtype(domain, numbers))
    return np.asarray(np.where(codes >= 0, n_people[codes], 0), dtype=np.int64)


def in_dtype(domain: Domain, numbers: Floats) -> pd.Series:
    """Return numbers, of shape (n,), in the population's dtype; whole ones at least as integers."""
    column = pd.Series(domain.column(np.full(len(numbers), UNKNOWN, dtype=np.int32), numbers))
    if domain.is_whole and not pd.api.types.is_integer_dtype(column.dtype):
        return pd.Series(numbers.astype(np.int64))
    return column


def releasable_values(
    population: Population, scales: dict[str, Scale], k: int
) -> list[ReleasableValues]:
    """Return the values of each private attribute that shared private values may be made of.

    These are values of at least k people and values of no one: neither says anything about a single
    person.

    Parameters
    ----------
    population : Population
        Whose people are counted, also those who are in no group.
    scales : mapping of attribute to Scale
        The rounded numbers to choose from, as `scales_of` returns them for the same k. A private
        number without a scale has fewer than k people who are in a group.
    k : int, people

    Returns
    -------
    list of ReleasableValues
        One per private attribute, in the order of the schema.

    Raises
    ------
    PolicyError
        If there is no such value of an attribute. The error names all of these attributes.
    """
    releasable = []
    nothing = []
    for name, column in zip(population.schema.private, private_at(population), strict=True):
        domain = population.domains[name]
        n_people = people_by_code(population, column)
        if domain.is_numeric:
            values = _releasable_numbers(domain, n_people, scales.get(name), k)
        else:
            values = _releasable_categories(domain, n_people, k)
        releasable.append(values)
        if not len(values):
            nothing.append(name)
    if nothing:
        raise PolicyError(
            f"no value of {', '.join(map(repr, nothing))} is shared by k = {k} people, so none can"
            ' be released with private_values="shared"; give them fewer categories (of dates and'
            " numbers bins=), declare what identifies people in identifiers=, which the model must"
            ' then do without, or choose private_values="exact"'
        )
    return releasable


def _releasable_categories(domain: Domain, n_people: Ints, k: int) -> ReleasableValues:
    """Return the categories or levels of at least k people; if there are none, those of no one.

    Levels of no one are always among them, as they stand for levels nearby.
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
    """Return the numbers of at least k people that are near, and otherwise points of the grid."""
    numbers = domain.values  # shape (n,), ascending
    shared = numbers[n_people[: len(numbers)] >= k]
    chosen = _numbers_for(domain, n_people, scale, shared)
    offered = np.unique(chosen[~np.isnan(chosen)])
    column = in_dtype(domain, offered)
    codes, as_released = domain.encode(column)
    as_released = np.where(codes == UNKNOWN, as_released, np.nan)
    stands_for = np.full(domain.size, -1, dtype=np.int64)
    has_number = np.flatnonzero(~np.isnan(chosen))
    stands_for[has_number] = np.searchsorted(offered, chosen[has_number])
    if domain.has_missing and n_people[domain.missing_code] >= k:
        stands_for[domain.missing_code] = len(codes)
        codes = np.append(codes, np.int32(domain.missing_code))
        as_released = np.append(as_released, np.nan)
    return ReleasableValues(_encoded(codes, as_released), stands_for)


def _numbers_for(domain: Domain, n_people: Ints, scale: Scale | None, shared: Floats) -> Floats:
    """Return for each number of a domain the releasable one that stands for it; shape (n,).

    Numbers of at least k people, `shared`, are taken within half a step of the grid. Otherwise
    these or points of the grid are taken within one step. Where these points are numbers of fewer
    than k people, the grid becomes finer. A number that is still left takes the nearest of all.
    NaN if there are none.
    """
    numbers = domain.values
    chosen = np.full(len(numbers), np.nan)

    def choose(offered: Floats, reach: float) -> None:
        left = np.flatnonzero(np.isnan(chosen))
        if len(left) and len(offered):
            nearest = offered[_nearest(offered, numbers[left])]
            is_near = np.abs(nearest - numbers[left]) <= reach * (1 + _TIE)
            chosen[left[is_near]] = nearest[is_near]

    if scale is not None and scale.step is not None:
        step = scale.step
        reach = step.size
        choose(shared, reach / 2)
        for _ in range(_REFINED):
            left = numbers[np.isnan(chosen)]
            if not len(left) or step.size < scale.finest * (1 - _TIE):
                break
            choose(np.union1d(shared, _free_points(domain, n_people, scale, step, left)), reach)
            step = step.finer()
    ends = np.empty(0) if scale is None else _permitted(domain, np.array([scale.low, scale.high]))
    choose(np.unique(np.concatenate([shared, chosen[~np.isnan(chosen)], ends])), np.inf)
    return chosen


def _free_points(
    domain: Domain, n_people: Ints, scale: Scale, step: Step, numbers: Floats
) -> Floats:
    """Return the points of a grid near some numbers that no one has; ascending."""
    counts = np.rint(numbers / step.size).astype(np.int64)
    around = np.arange(-_NEAR, _NEAR + 1)
    points = step.multiples(np.unique(counts[:, None] + around)) + 0.0
    points = _permitted(domain, points[(points >= scale.low) & (points <= scale.high)])
    is_free = _people_with(domain, points, n_people) == 0
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


def _nearest(offered: Floats, numbers: Floats) -> Ints:
    """Return the position of the nearest of ascending numbers for each; the lower one of ties.

    The offered numbers have the shape (n_offered,), the others and the result (n,).
    """
    right = np.searchsorted(offered, numbers).clip(max=len(offered) - 1)
    left = (right - 1).clip(min=0)
    is_right_nearer = np.abs(offered[right] - numbers) < np.abs(numbers - offered[left])
    return np.asarray(np.where(is_right_nearer, right, left), dtype=np.int64)


def _encoded(codes: NDArray[np.integer], numbers: Floats) -> EncodedValues:
    """Return the values of one attribute, of shape (n,), as a table with one column."""
    return EncodedValues(codes=codes.astype(np.int32)[:, None], numbers=numbers[:, None])


@dataclass(frozen=True, eq=False, repr=False)
class GroupCandidates(HostOnly):
    """Shared private values to try in groups."""

    group: Ints  # shape (n,), ascending
    values: EncodedValues  # of n rows


def shared_candidates(partition: Partition, k: int) -> GroupCandidates:
    """Return centers of crowds of at least k people, for every group with people of the crowd.

    Each group starts with other ones, so that the first few differ between groups. The result does
    not depend on the order of rows.
    """
    crowds = Crowds(partition, k)
    book = dict[bytes, int]()  # from a center, as positions among releasable values, to its number
    n_groups = len(partition.regions)
    pairs = [np.empty(0, dtype=np.int64)]  # a center's number and a group, as one number
    for crowd, center in crowds.centers():
        new_number = len(book)
        number = book.setdefault(center.tobytes(), new_number)
        has_people = np.zeros(n_groups, dtype=bool)
        has_people[partition.group_of_row[crowd]] = True
        pairs.append(number * n_groups + np.flatnonzero(has_people))
    pair = np.unique(np.concatenate(pairs))
    center_of = pair // n_groups
    group = pair % n_groups
    line = in_turn(center_of, group)
    n_private = len(partition.population.schema.private)
    positions = [np.frombuffer(key, dtype=np.int64) for key in book]
    centers = np.array(positions, dtype=np.int64).reshape(len(book), n_private)
    return GroupCandidates(group=group[line], values=crowds.values_at(centers[center_of[line]]))


def in_turn(center: Ints, group: Ints) -> Ints:
    """Return the order of pairs of a center and a group: by group, each starting elsewhere."""
    turn = (center * _GOLDEN + group * _SPREAD) % (1 << 32)
    return np.lexsort((turn, group))


@dataclass(frozen=True, eq=False, repr=False)
class _Summary(HostOnly):
    """What the people of a crowd have in the middle; all shapes are (n_private,)."""

    middle: Codes  # medians of numbers and levels, and the most frequent categories
    center: Ints  # positions of the releasable values that stand for them
    difference: Floats  # mean difference of a row from the middle
    counts: Ints  # shape (n_codes,): rows with each category, attribute by attribute


class Crowds(HostOnly):
    """Crowds of at least k people with similar private values, and their centers.

    Private attributes are visited by name, so nothing depends on the order of columns. Arrays of
    all attributes have them in the order of the schema, and their numbers `j` are positions there.

    Parameters
    ----------
    partition : Partition
        Crowds are of people who are in a group.
    k : int
    """

    def __init__(self, partition: Partition, k: int) -> None:
        """Prepare what every crowd needs: codes, places and counts of all rows."""
        population = partition.population
        names = population.schema.private
        self._partition = partition
        self._population = population
        self._k = k
        self._codes = np.ascontiguousarray(population.codes[:, private_at(population)])
        self._domains = [population.domains[name] for name in names]
        self._releasable = releasable_values(population, scales_of(partition, k), k)
        self._by_name = sorted(range(len(names)), key=lambda j: names[j])
        self._ordered = [j for j in self._by_name if self._domains[j].is_interval]
        self._places = [np.append(self._domains[j].positions, 2.0) for j in self._ordered]
        # Places of rows in [0, 1], of shape (n_rows, n_ordered); a missing value is at 2.
        self._place_of_row = np.empty((len(self._codes), len(self._ordered)))
        for i, j in enumerate(self._ordered):
            self._place_of_row[:, i] = self._places[i][self._codes[:, j]]
        # The categories of all attributes are numbered one after the other, so that those of a
        # crowd are counted at once.
        self._nominal = [j for j in self._by_name if not self._domains[j].is_interval]
        sizes = [self._domains[j].size for j in self._nominal]
        self._first_category = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        stands_for = [self._releasable[j].stands_for for j in self._nominal]
        self._may_stand = np.concatenate([np.empty(0, dtype=np.int64), *stands_for]) >= 0
        self._people_with = self._count_combinations()

    def _counts(self) -> str:
        return f"{len(self._codes)} rows, {len(self._domains)} attributes"

    def _count_combinations(self) -> dict[bytes, int]:
        """Count the people with each combination of releasable values that occurs."""
        positions = np.empty(self._codes.shape, dtype=np.int64)
        for j, releasable in enumerate(self._releasable):
            positions[:, j] = releasable.position_of[self._codes[:, j]]
        rows = np.flatnonzero((positions >= 0).all(axis=1))
        combinations, classes = np.unique(positions[rows], axis=0, return_inverse=True)
        n_people = self._population.people_by_class(
            classes.reshape(-1), len(combinations), rows=rows
        )
        keys = [combination.tobytes() for combination in combinations]
        return dict(zip(keys, n_people.tolist(), strict=True))

    def values_at(self, positions: Ints) -> EncodedValues:
        """Return the values at positions among the releasable ones; shape (n, n_private)."""
        shape = positions.shape
        values = EncodedValues(codes=np.empty(shape, dtype=np.int32), numbers=np.empty(shape))
        for j, releasable in enumerate(self._releasable):
            chosen = releasable.values.take(positions[:, j])
            values.codes[:, j] = chosen.codes[:, 0]
            values.numbers[:, j] = chosen.numbers[:, 0]
        return values

    def centers(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield crowds, as rows, with the positions of their centers' values: shape (n_private,).

        The first crowds of each outcome are all people with it, and people who are similar in one
        attribute. They are halved until there are enough, or until halves have fewer than k people.
        """
        grouped = np.flatnonzero(self._partition.group_of_row >= 0)
        side = self._partition.side_of_group[self._partition.group_of_row[grouped]]
        for one_side in np.unique(side):
            rows = grouped[side == one_side]
            rows = rows[counts_once(self._population, rows) == 1]
            crowds = self._similar(rows)
            n_crowds = 0
            while crowds and n_crowds < _CROWDS:
                halves = list[Ints]()
                for crowd in crowds:
                    codes = self._codes[crowd]
                    summary = self._summarize(crowd, codes)
                    widest = self._widest_first(summary)
                    center = self._center(codes, summary, widest)
                    if center is not None:
                        yield crowd, center
                    halves += self._halves(crowd, codes, summary.middle, widest)
                n_crowds += len(crowds)
                crowds = halves

    def _similar(self, rows: Ints) -> list[Ints]:
        """Return all rows, and crowds of them that have one category or near numbers."""
        crowds = [rows]
        for j in self._by_name:
            line = rows[np.argsort(self._codes[rows, j], kind="stable")]
            codes = self._codes[line, j]
            n_least = max(self._k, len(line) // _CLASSES) if self._domains[j].is_interval else 1
            start = 0
            while start < len(line):
                last = codes[min(start + n_least, len(line)) - 1]
                end = int(np.searchsorted(codes, last, side="right"))
                if end - start >= self._k:
                    crowds.append(line[start:end])
                start = end
        return crowds

    def _summarize(self, crowd: Ints, codes: Codes) -> _Summary:
        """Return the middle of a crowd; its rows have codes of the shape (n_rows, n_private)."""
        n_private = codes.shape[1]
        middle = np.empty(n_private, dtype=np.int32)
        center = np.empty(n_private, dtype=np.int64)
        difference = np.empty(n_private)
        if self._ordered:
            middle[self._ordered] = _quantile(codes[:, self._ordered], 0.5)
            places = [
                self._places[i][middle[j]] for i, j in enumerate(self._ordered)
            ]  # shape (n_ordered,)
            difference[self._ordered] = np.abs(self._place_of_row[crowd] - places).mean(axis=0)
        for j in self._ordered:
            center[j] = self._stands_for(j, codes[:, j], int(middle[j]), 0.5)
        categories = codes[:, self._nominal] + self._first_category[:-1]
        counts = np.bincount(categories.ravel(), minlength=len(self._may_stand))
        releasable_counts = counts * self._may_stand
        for i, j in enumerate(self._nominal):
            of_attribute = slice(self._first_category[i], self._first_category[i + 1])
            middle[j] = counts[of_attribute].argmax()
            difference[j] = 1 - counts[of_attribute][middle[j]] / len(crowd)
            center[j] = self._position_of_most_frequent(j, releasable_counts[of_attribute])
        return _Summary(middle=middle, center=center, difference=difference, counts=counts)

    def _widest_first(self, summary: _Summary) -> list[int]:
        """Return the attributes in which a crowd differs from its middle, the widest first.

        Differences are rounded, as their sums depend on the order of rows in the last digits.
        """
        difference = np.round(summary.difference, 9).tolist()
        widest = sorted(self._by_name, key=lambda j: -difference[j])
        return [j for j in widest if difference[j] > 0]

    def _center(self, codes: Codes, summary: _Summary, widest: list[int]) -> Ints | None:
        """Return positions of the values of a releasable center, of shape (n_private,).

        None if 1 to k - 1 people have all values of each center that is tried. The codes of the
        crowd have the shape (n_rows, n_private).
        """
        if self._may_be_released(summary.center):
            return summary.center
        for j in widest[:_VARIED]:
            for other in self._others(j, codes[:, j], summary):
                trial = summary.center.copy()
                trial[j] = other
                if self._may_be_released(trial):
                    return trial
        return None

    def _may_be_released(self, center: Ints) -> bool:
        """Return True if at least k people have all values of a center, or no one."""
        return not 0 < self._people_with.get(center.tobytes(), 0) < self._k

    def _stands_for(self, j: int, codes: Codes, code: int, share: float) -> int:
        """Return the position of the value that stands for a quantile of a crowd.

        If that is missing and must not be released, the quantile of the known values is taken.
        """
        position = int(self._releasable[j].stands_for[code])
        if position >= 0:
            return position
        known = codes[self._releasable[j].stands_for[codes] >= 0]
        return int(self._releasable[j].stands_for[_quantile(known, share)])

    def _others(self, j: int, codes: Codes, summary: _Summary) -> list[int]:
        """Return positions to try for one attribute: other quantiles, or the next category.

        The codes of the attribute have the shape (n_rows,).
        """
        if self._domains[j].is_interval:
            quantiles = [(share, int(_quantile(codes, share))) for share in _QUANTILES]
            return [self._stands_for(j, codes, code, share) for share, code in quantiles]
        i = self._nominal.index(j)
        of_attribute = slice(self._first_category[i], self._first_category[i + 1])
        stands_for = self._releasable[j].stands_for
        is_other = (stands_for >= 0) & (stands_for != summary.center[j])
        return [self._position_of_most_frequent(j, summary.counts[of_attribute] * is_other)]

    def _position_of_most_frequent(self, j: int, counts: Ints) -> int:
        """Return the position of the category with the highest count; the first one of ties.

        If all counts are zero, that is the first releasable category. The shape is (domain.size,).
        """
        return max(int(self._releasable[j].stands_for[counts.argmax()]), 0)

    def _halves(self, crowd: Ints, codes: Codes, middle: Codes, widest: list[int]) -> list[Ints]:
        """Divide a crowd at the middle of its widest attribute where both halves have k people."""
        for j in widest:
            is_low = codes[:, j] == middle[j]
            if self._domains[j].is_interval:
                is_low = codes[:, j] <= middle[j]
            if is_low.all():
                is_low = codes[:, j] < middle[j]
            n_low = int(is_low.sum())
            if min(n_low, len(crowd) - n_low) >= self._k:
                return [crowd[is_low], crowd[~is_low]]
        return []


def _quantile(codes: Codes, share: float) -> Codes:
    """Return a quantile of codes of each attribute; shape (n_rows, ...) to (...)."""
    at = int((len(codes) - 1) * share)
    return np.asarray(np.partition(codes, at, axis=0)[at])
