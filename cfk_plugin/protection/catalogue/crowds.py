"""Crowds: at least k people with similar private values, and the shared values at their center.

Crowds are found by halving the people with an outcome again and again. A crowd's center is tried as
the private values of entries, in the groups of the crowd's people. The exact center is often one
person's own value. So a center is put together, attribute by attribute, from the values that
`cfk_plugin.protection.catalogue.shared_values` permits. A center is left out if all of its values
together are those of 1 to k - 1 people.

So an adversary who knows a person's private values does not recognize the person in an entry: at
least k - 1 others have the same values, or the person does not have them. Shared values do not hide
where in the population private values are frequent: centers move when people join or leave; see
`cfk_plugin.protection.catalogue.value_book`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.axes import Codes, Floats, Ints
from cfk_plugin.protection.catalogue.private_values import EncodedValues, private_at
from cfk_plugin.protection.catalogue.scales import scales_of
from cfk_plugin.protection.catalogue.shared_values import releasable_values
from cfk_plugin.protection.partition.microaggregation import counts_once
from cfk_plugin.protection.partition.partition import Partition

_CLASSES = 32  # ranges that the people are divided into by one number, to find crowds
_CROWDS = 512  # of each outcome: no further halves are taken after so many crowds
# attributes in which another value is tried if 1 to k - 1 people have a center's values
_VARIED = 3
_QUANTILES = (0.25, 0.75)  # numbers that are tried there in place of the median
_GOLDEN = 2654435769  # odd; its multiples are far apart modulo 2**32
_SPREAD = 1640531527  # odd, so that each group begins at another multiple


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
    # from a center, as positions among releasable values, to its number
    number_of_center = dict[bytes, int]()
    n_groups = len(partition.regions)
    pairs = [np.empty(0, dtype=np.int64)]  # a center's number and a group, as one number
    for crowd, center in crowds.centers():
        new_number = len(number_of_center)
        number = number_of_center.setdefault(center.tobytes(), new_number)
        has_people = np.zeros(n_groups, dtype=bool)
        has_people[partition.group_of_row[crowd]] = True
        pairs.append(number * n_groups + np.flatnonzero(has_people))
    pair = np.unique(np.concatenate(pairs))
    center_number = pair // n_groups
    group = pair % n_groups
    order = in_turn(center_number, group)
    n_private = len(partition.population.schema.private)
    positions = [np.frombuffer(key, dtype=np.int64) for key in number_of_center]
    centers = np.array(positions, dtype=np.int64).reshape(len(number_of_center), n_private)
    return GroupCandidates(
        group=group[order], values=crowds.values_at(centers[center_number[order]])
    )


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
        Only people who are in a group are used.
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
            column = releasable.values.take(positions[:, j])
            values.codes[:, j] = column.codes[:, 0]
            values.numbers[:, j] = column.numbers[:, 0]
        return values

    def centers(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield crowds, as rows, with the positions of their centers' values: shape (n_private,).

        The first crowds of each outcome are all people with it, and people who are similar in one
        attribute. They are halved until there are enough, or until halves have fewer than k people.
        """
        grouped = np.flatnonzero(self._partition.group_of_row >= 0)
        groups = self._partition.group_of_row[grouped]
        eligibility_of_row = self._partition.eligibility_of_group[groups]
        for eligibility in np.unique(eligibility_of_row):
            rows = grouped[eligibility_of_row == eligibility]
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
            sorted_rows = rows[np.argsort(self._codes[rows, j], kind="stable")]
            codes = self._codes[sorted_rows, j]
            n_least = 1
            if self._domains[j].is_interval:
                n_least = max(self._k, len(sorted_rows) // _CLASSES)
            start = 0
            while start < len(sorted_rows):
                last = codes[min(start + n_least, len(sorted_rows)) - 1]
                end = int(np.searchsorted(codes, last, side="right"))
                if end - start >= self._k:
                    crowds.append(sorted_rows[start:end])
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
            for other in self._positions_to_try(j, codes[:, j], summary):
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

        If that is missing and must not be released, the quantile of the known values is taken. If
        none of these may be released, the missing value is the only one that may.
        """
        position = int(self._releasable[j].stands_for[code])
        if position >= 0:
            return position
        known_codes = codes[self._releasable[j].stands_for[codes] >= 0]
        if len(known_codes) == 0:
            return 0
        return int(self._releasable[j].stands_for[_quantile(known_codes, share)])

    def _positions_to_try(self, j: int, codes: Codes, summary: _Summary) -> list[int]:
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
    position = int((len(codes) - 1) * share)
    return np.asarray(np.partition(codes, position, axis=0)[position])
