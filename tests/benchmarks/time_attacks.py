"""Attacks by somebody who compares two releases: who shared both, and who joined in between.

Here is only what an attacker computes, and what a data holder counts to judge it: from tables, from
partitions and from what was released. Certificates are not read. Host side only: rows are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median_low
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin import GeneralizedCounterfactual, Region
from cfk_plugin.data.region import part_contains
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.protection.partition.partition import Partition

Values = tuple[Any, ...]
Floats = NDArray[np.float64]
Regions = dict[Values, set[Region]]
"""With which regions each record was released, by what it is recognized by."""

_TIE = 1e-9  # scores that differ by less are equal


def plain(value: Any) -> Any:
    """Return a value in the one form in which values are compared: a float, text, or None."""
    if pd.isna(value):
        return None
    if isinstance(value, str):
        return value
    return float(value)


def plain_rows(table: pd.DataFrame) -> list[Values]:
    """Return the values of each row of a table in this form."""
    columns = [[plain(value) for value in table[name].tolist()] for name in table]
    return list(zip(*columns, strict=True))


def rows_inside(region: Region, table: pd.DataFrame) -> NDArray[np.bool_]:
    """Say which rows of a table are inside of a region, shape (n_rows,)."""
    is_inside = np.ones(len(table), dtype=bool)
    for name, part in region.items():
        codes, distinct = pd.factorize(table[name].astype(object), use_na_sentinel=False)
        is_value_inside = np.array([part_contains(part, value) for value in distinct.tolist()])
        is_inside &= is_value_inside[codes]
    return is_inside


# --- turnover: who shared the region of one record at both times


@dataclass(frozen=True, eq=False, repr=False)
class Moment:
    """The table at one time, and to which people its partition gives each region.

    Two people with equal rows cannot be told apart. So people are counted by their rows.
    """

    table: pd.DataFrame  # with all features
    groups: Mapping[Region, Counter[Values]]

    @classmethod
    def of(cls, table: pd.DataFrame, partition: Partition) -> Moment:
        rows = plain_rows(table)
        groups = {}
        for region in set(partition.regions):
            members = partition.rows_mapped_to(region).tolist()
            groups[region] = Counter([rows[member] for member in members])
        return cls(table=table, groups=groups)

    @cached_property
    def everybody(self) -> Counter[Values]:
        return Counter(plain_rows(self.table))

    def members(self, region: Region) -> Counter[Values]:
        """Return the people to whom the partition gives a region; nobody for any other region."""
        return self.groups.get(region, Counter())

    def count_inside(self, region: Region) -> int:
        return int(rows_inside(region, self.table).sum())


@dataclass(frozen=True)
class Links:
    """Records that were released at both times, and how many people each of them may be about."""

    suspects: Sequence[int]  # for each record that was released at both times
    n_still_there: int  # records of the first release whose person is in the second table, too

    def below(self, k: int) -> float:
        """Return the share of linked records with fewer than k suspects, in %; NaN without any."""
        if not self.suspects:
            return float("nan")
        return 100 * float(np.mean(np.array(self.suspects) < k))

    @property
    def withheld(self) -> float:
        """Share of the records that could have been released again and were not, in %."""
        if not self.n_still_there:
            return float("nan")
        return 100 * (1 - len(self.suspects) / self.n_still_there)


@dataclass(frozen=True, eq=False, repr=False)
class Turnover:
    """Two times, and what a record is recognized by at both."""

    before: Moment
    after: Moment
    recognized_by: Callable[[Values], Values]  # of a row

    def linked(self, first: Regions, second: Regions, *, keeps_regions: bool) -> Links:
        """Link the releases of each record, and count who shared its region both times.

        Who was in the group of the first region is left, if still in the table and, where the
        record was released with another region, in the group of that. Where records do not keep
        their regions, the second partition says who shares the same region, too.

        A catalogue may have got another group's private values with a region. So, of exact values,
        only those releases count whose group has a member with these values.
        """
        suspects = []
        n_still_there = 0
        for known, regions in first.items():
            for region in regions:
                members = self.before.members(region)
                own = {row for row in members if self.recognized_by(row) == known}
                own &= self.after.everybody.keys()
                if not own:
                    continue
                n_still_there += 1
                later = second.get(known, set())
                is_kept = keeps_regions and region in later
                if keeps_regions:
                    later = later - regions  # others are kept by records with the same values
                groups = []
                for other in later:
                    group = self.after.members(other)
                    if known in own or own & group.keys():  # recognized by all of the row, or in it
                        groups.append(group)
                if not is_kept and not groups:
                    continue
                left = members & self.after.everybody
                if groups:
                    left &= sum(groups, Counter())
                suspects.append(left.total())
        return Links(suspects=suspects, n_still_there=n_still_there)

    def by_old_rule(self, first: Regions, asked: Collection[Values], k: int) -> Regions:
        """Release records again by the rule of the ledger before it knew who shared a region.

        A record gets its first region again if that was shared by k people when it was released,
        and k people of today are inside.
        """
        may_leave = {}
        for region in {region for regions in first.values() for region in regions}:
            had_enough = self.before.members(region).total() >= k
            may_leave[region] = had_enough and self.after.count_inside(region) >= k
        released = {}
        for known in first.keys() & set(asked):
            released[known] = {region for region in first[known] if may_leave[region]}
        return released

    def count_members(self, region: Region) -> int:
        """Return how many people of today share a region.

        Of a region that only the first partition has, these are the members of its group who are
        still in the table.
        """
        if region in self.after.groups:
            return self.after.members(region).total()
        return (self.before.members(region) & self.after.everybody).total()


# --- joining: what the difference of two catalogues says of the person who joined


@dataclass(frozen=True)
class Published:
    """An entry of a published catalogue, as far as the attacks look at it."""

    region: Region
    values: Values  # the private ones

    @classmethod
    def of(cls, entry: GeneralizedCounterfactual, private: Sequence[str]) -> Published:
        values = tuple([plain(entry.released.get(name)) for name in private])
        return cls(region=entry.region, values=values)

    def holds(self, person: Mapping[str, Any]) -> bool:
        """Say whether a person is inside of the region."""
        for name, part in self.region.items():
            if not part_contains(part, person[name]):
                return False
        return True


@dataclass(frozen=True, eq=False, repr=False)
class Difference:
    """The catalogues of a table without and with one more person."""

    private: Sequence[str]
    before: Sequence[Published]
    after: Sequence[Published]

    @cached_property
    def appeared(self) -> list[Published]:
        known = set(self.before)
        return [entry for entry in self.after if entry not in known]

    @cached_property
    def disappeared(self) -> list[Published]:
        left = set(self.after)
        return [entry for entry in self.before if entry not in left]

    @cached_property
    def with_new_values(self) -> list[Published]:
        """The entries with private values that no entry had before, in whatever region."""
        known = {entry.values for entry in self.before}
        return [entry for entry in self.after if entry.values not in known]


@dataclass(frozen=True)
class Naming:
    """How well an attacker names all private values of the person who joined."""

    has_new_entry: bool  # whether there is one that can be about the person
    chance: float


def name_values(difference: Difference, person: Mapping[str, Any], own: Values) -> Naming:
    """Name the person's private values: those of a new entry whose region holds the person.

    The attacker picks one of these at random. Without any, the guess is the most frequent private
    values of the old catalogue.
    """
    new = [entry for entry in difference.with_new_values if entry.holds(person)]
    if new:
        return Naming(
            has_new_entry=True, chance=float(np.mean([entry.values == own for entry in new]))
        )
    (most_frequent, _), *_ = Counter([entry.values for entry in difference.before]).most_common(1)
    return Naming(has_new_entry=False, chance=float(most_frequent == own))


@dataclass(frozen=True, eq=False, repr=False)
class Attributes:
    """The private attributes of a table, and when a guess of one of their values is right."""

    people: pd.DataFrame  # of the first table, the private attributes alone

    @cached_property
    def widths(self) -> list[float]:
        """The range of each number; NaN for a category."""
        found = []
        for name in self.people:
            column = self.people[name]
            if pd.api.types.is_numeric_dtype(column):
                found.append(float(column.max() - column.min()))
            else:
                found.append(float("nan"))
        return found

    @cached_property
    def typical(self) -> Values:
        """The most frequent value of each category, and the median of each number."""
        return self.typical_of(plain_rows(self.people))

    def typical_of(self, rows: Iterable[Values]) -> Values:
        """Return the same for some private values."""
        found = []
        for values, width in zip(zip(*rows, strict=True), self.widths, strict=True):
            known = [value for value in values if value is not None]
            if not known:
                found.append(None)
            elif np.isnan(width):
                found.append(Counter(known).most_common(1)[0][0])
            else:
                found.append(median_low(known))
        return tuple(found)

    def share_right(self, guess: Values, own: Values, tolerance: float) -> float:
        """Return the share of attributes that a guess has right.

        Of a number it may be wrong by this share of the range.
        """
        right = []
        for guessed, value, width in zip(guess, own, self.widths, strict=True):
            if guessed is None or value is None or np.isnan(width):
                right.append(guessed == value)
            else:
                right.append(abs(guessed - value) <= tolerance * width)
        return float(np.mean(right))


@dataclass(frozen=True)
class Guesses:
    """Shares of the private attributes of the person who joined that guesses have right."""

    has_new_entry: bool
    by_new_entries: float
    by_old_entries: float
    by_typical_values: float


def guess_attributes(
    difference: Difference,
    attributes: Attributes,
    person: Mapping[str, Any],
    own: Values,
    tolerance: float = 0.05,
) -> Guesses:
    """Guess each private attribute from the entries whose region holds the person.

    A guess is the most frequent of their values or, for a number, the median. New entries have
    values that no entry had before. Without any such entry the guess is that of the old entries,
    and without any of these what is typical of the table.
    """
    new = [entry.values for entry in difference.with_new_values if entry.holds(person)]
    old = [entry.values for entry in difference.before if entry.holds(person)]
    by_typical = attributes.typical
    by_old = attributes.typical_of(old) if old else by_typical
    by_new = attributes.typical_of(new) if new else by_old
    return Guesses(
        has_new_entry=bool(new),
        by_new_entries=attributes.share_right(by_new, own, tolerance),
        by_old_entries=attributes.share_right(by_old, own, tolerance),
        by_typical_values=attributes.share_right(by_typical, own, tolerance),
    )


def scores_by_values(difference: Difference, heom: Heom, people: pd.DataFrame) -> Floats:
    """Score people by how much their private values look like those of the one who joined.

    The score is how near a person's private values are to the nearest entry that appeared, minus
    how near they are to the nearest that disappeared. Shape (n_people,).
    """
    private = [*heom.numeric, *heom.categorical]

    def distance_to(entries: Sequence[Published]) -> Floats:
        if not entries:
            return np.ones(len(people))
        values = pd.DataFrame([entry.values for entry in entries], columns=difference.private)
        return heom.distances(people[private], values).min(axis=1)

    return distance_to(difference.disappeared) - distance_to(difference.appeared)


def scores_by_regions(difference: Difference, people: pd.DataFrame) -> Floats:
    """Score people by how many entries appeared with a region that holds them; (n_people,)."""
    scores = np.zeros(len(people))
    for region, count in Counter([entry.region for entry in difference.appeared]).items():
        scores += count * rows_inside(region, people)
    return scores


def standardized(scores: Floats) -> Floats:
    """Return scores with mean 0 and standard deviation 1, or all 0 where they do not differ."""
    centred = scores - scores.mean()
    deviation = centred.std()
    if deviation < _TIE:
        return np.zeros(len(scores))
    return centred / deviation


def area_of(joiner: int, scores: Floats) -> float:
    """Return the share of the other people who score below the one who joined; ties count half."""
    ahead = scores[joiner] - np.delete(scores, joiner)
    return float(np.mean(ahead > _TIE) + np.mean(np.abs(ahead) <= _TIE) / 2)
