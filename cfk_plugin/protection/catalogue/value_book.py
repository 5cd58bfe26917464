"""The private values that a catalogue may have, where earlier releases decide on that.

The centers of crowds move when people join or leave, which discloses something about these people.
With a book the values of the first release stay. Whatever changes in a catalogue then follows from
quasi-identifiers, and from the outcomes that the model gives. Values are added for crowds of at
least k new people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cfk_plugin.data.decision import Mask
from cfk_plugin.data.domain import UNKNOWN, Domain
from cfk_plugin.data.population import Population
from cfk_plugin.data.region import to_text
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.axes import Ints
from cfk_plugin.protection.catalogue.crowds import Crowds, GroupCandidates, in_turn
from cfk_plugin.protection.catalogue.private_values import EncodedValues
from cfk_plugin.protection.catalogue.scales import Scale, in_dtype, scales_of
from cfk_plugin.protection.partition.partition import Partition

Plain = float | str | None
"""A number (a date in seconds), the text of a category, or None for a missing value."""


@dataclass(frozen=True, slots=True)
class BookEntry:
    """Private values that at least k people had, or no one, when they were added to the book."""

    outcome: str  # of the crowd, as text; "" where there is one eligibility class
    values: tuple[Plain, ...]  # of the private attributes, in the order of their names


@dataclass(frozen=True, slots=True)
class ValueBook:
    """All private values that a catalogue may have.

    Apart from them, only quasi-identifiers and the model may decide what a catalogue has. `ends`
    has the estimated range of each attribute that is a number, for distances.
    `outcomes` has the text of the outcome of each eligibility class of today's partition.
    """

    entries: tuple[BookEntry, ...] = ()
    ends: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    outcomes: tuple[str, ...] = ("",)


@dataclass(frozen=True, eq=False, repr=False)
class Center(HostOnly):
    """Private values that are the center of one or several crowds."""

    entry: BookEntry
    crowds: list[Ints]  # rows of the people of each crowd, one of each person

    def is_of_new_people(self, is_new: Mask, k: int) -> bool:
        """Return True if at least k people of a crowd are new; `is_new` has a flag for every
        training row.
        """
        return any(is_new[crowd].sum() >= k for crowd in self.crowds)


def ranges_of_people(partition: Partition, k: int) -> dict[str, tuple[float, float]]:
    """Return the estimated range of each attribute that is a number, of people in a group."""
    return {name: _ends(scale) for name, scale in scales_of(partition, k).items()}


def centers_of(partition: Partition, k: int, outcomes: Sequence[str]) -> list[Center]:
    """Return the centers of crowds of people who are in a group, each once.

    `outcomes` has the text of the outcome of each eligibility class.
    """
    population = partition.population
    crowds = Crowds(partition, k)
    centers: dict[BookEntry, Center] = {}
    for crowd, positions in crowds.centers():
        eligibility = partition.eligibility_of_group[partition.group_of_row[crowd[0]]]
        (values,) = plain_values(population, crowds.values_at(positions[None, :]))
        entry = BookEntry(outcome=outcomes[eligibility], values=values)
        center = centers.setdefault(entry, Center(entry=entry, crowds=[]))
        center.crowds.append(crowd)
    return list(centers.values())


def book_candidates(partition: Partition, book: ValueBook) -> GroupCandidates:
    """Return the values of a book that may go with each group: all that have its outcome.

    Each group starts with other ones. In which groups the people of a crowd are is ignored: using
    it would reveal that.
    """
    entries = [entry for entry in book.entries if entry.outcome in book.outcomes]
    values, encoded = _encoded(partition.population, entries)
    eligibility_of_entry = [book.outcomes.index(entry.outcome) for entry in entries]
    eligibility_of_value = np.array(eligibility_of_entry, dtype=np.int64)[encoded]
    # shape (n_groups, n_values)
    has_outcome = partition.eligibility_of_group[:, None] == eligibility_of_value
    group, value = np.nonzero(has_outcome)
    order = in_turn(value, group)
    return GroupCandidates(group=group[order], values=values.take(value[order]))


def _ends(scale: Scale) -> tuple[float, float]:
    return scale.low, scale.high


def plain_values(population: Population, values: EncodedValues) -> list[tuple[Plain, ...]]:
    """Return private values in plain form, row by row."""
    columns = []
    for name in sorted(population.schema.private):
        domain = population.domains[name]
        j = population.schema.private.index(name)
        columns.append(_plain_column(domain, values, j))
    if not columns:
        return [()] * len(values)
    return [*zip(*columns, strict=True)]


def _plain_column(domain: Domain, values: EncodedValues, j: int) -> list[Plain]:
    codes = values.codes[:, j]
    if domain.is_numeric:
        numbers = domain.numbers_of(codes, values.numbers[:, j])
        return [None if np.isnan(number) else float(number) for number in numbers]
    categories = [domain.value(code) for code in codes.tolist()]
    return [None if value is None else to_text(value) for value in categories]


def _encoded(population: Population, entries: Iterable[BookEntry]) -> tuple[EncodedValues, Ints]:
    """Encode entries by a population's domains; return the values, and the position of each entry.

    Left out are entries with a category, or a missing value, that the population does not have,
    and those with a number that its column cannot hold.
    """
    entries = [*entries]
    names = sorted(population.schema.private)
    shape = len(entries), len(names)
    values = EncodedValues(codes=np.empty(shape, dtype=np.int32), numbers=np.full(shape, np.nan))
    for place, name in enumerate(names):
        domain = population.domains[name]
        j = population.schema.private.index(name)
        column = [entry.values[place] for entry in entries]
        if domain.is_numeric:
            _encode_numbers(domain, column, values, j)
        else:
            values.codes[:, j] = _encode_categories(domain, column)
    has_value = (values.codes >= 0) | ~np.isnan(values.numbers)  # (n_entries, n_private)
    encoded = np.flatnonzero(has_value.all(axis=1))
    return values.take(encoded), encoded


def _encode_numbers(domain: Domain, column: Sequence[Plain], values: EncodedValues, j: int) -> None:
    """Write one attribute's numbers into column `j` of `values`, encoded by a domain.

    A number that a training row has gets its code, and NaN among the numbers. A number that no row
    has, but that the column can hold, gets the code `UNKNOWN` and stands among the numbers. A
    number that the column cannot hold gets `UNKNOWN` and NaN: `_encoded` leaves its entry out. A
    missing value gets the code for that.

    Parameters
    ----------
    column : n numbers; None for a missing value
    values : EncodedValues of n rows, written in place
    """
    numbers = np.array(column, dtype=float)  # None becomes NaN
    is_missing = np.isnan(numbers)
    # A column of whole numbers cuts off decimals, so that some numbers come back as others.
    codes, numbers_in_dtype = domain.encode(in_dtype(domain, np.where(is_missing, 0.0, numbers)))
    can_be_held = domain.numbers_of(codes, numbers_in_dtype) == numbers
    is_new = can_be_held & (codes == UNKNOWN)
    codes = np.where(can_be_held, codes, UNKNOWN)
    values.codes[:, j] = np.where(is_missing, domain.missing_code, codes)
    values.numbers[:, j] = np.where(is_new, numbers_in_dtype, np.nan)


def _encode_categories(domain: Domain, column: Sequence[Plain]) -> list[int]:
    code_of = {to_text(domain.value(code)): code for code in range(len(domain.values))}
    return [
        domain.missing_code if value is None else code_of.get(str(value), UNKNOWN)
        for value in column
    ]
