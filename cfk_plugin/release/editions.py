"""Which private values a ledger permits in a catalogue after the data have changed.

An adversary who compares two catalogues sees which values are new in the later one, and may know
who joined the table in between. So the ledger remembers who was in the table of any catalogue on
record. New values must come from at least k people who were in none of these tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.eligibility import EligibilityClasses
from cfk_plugin.data.outcome import DesiredOutcome, Outcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import to_text
from cfk_plugin.data.training_labels import TrainingLabels
from cfk_plugin.errors import HostOnly
from cfk_plugin.protection.catalogue.catalogue import Catalogue
from cfk_plugin.protection.catalogue.value_book import (
    BookEntry,
    ValueBook,
    centers_of,
    plain_values,
    ranges_of_people,
)
from cfk_plugin.protection.partition.partition import Partition
from cfk_plugin.release.person_handles import PersonHandles

if TYPE_CHECKING:
    from cfk_plugin.records.ledger import Edition, Ledger
    from cfk_plugin.records.rule import Handles


class _Newcomers(NamedTuple):
    """The people who are new in today's table, as the editions on record show it."""

    n_editions: int  # on record when this was computed
    people: Handles | None  # None if there is no earlier edition


class CatalogueEditions(HostOnly):
    """The catalogues that a ledger has on record for one k and one desired outcome.

    Catalogues for another k or another outcome have values of their own, which do not depend on
    these.
    """

    def __init__(
        self, ledger: Ledger, people: PersonHandles, policy: PrivacyPolicy, goal: DesiredOutcome
    ) -> None:
        self._ledger = ledger
        self._people = people
        self._policy = policy
        self._goal = goal
        self._series = series_of(policy, goal)
        self._newcomers: _Newcomers | None = None  # until it is needed

    def build_catalogue(
        self, partition: Partition, rows: TrainingLabels, outcomes: tuple[str, ...]
    ) -> Catalogue:
        """Build a catalogue of the shared values that the ledger permits, and put them on record.

        Permitted are the values on record, and the centers of crowds with at least k new people.
        """
        handles = self._people.everybody()
        while True:
            editions = self._ledger.editions(self._series)
            is_new = _is_new(handles, _people_of(editions))
            on_record = _book_of(editions)
            new_entries: list[BookEntry] = []
            if is_new.any():  # without new people nothing can be added, and no crowd is looked for
                new_entries = self._new_entries(partition, outcomes, on_record, is_new)
            ends = on_record.ends
            has_ends = len(ends) > 0
            if not has_ends:
                ends = ranges_of_people(partition, self._policy.k)
            catalogue = self._build(partition, rows, on_record, new_entries, ends, outcomes)
            while unused := set(new_entries) - entries_of(catalogue, outcomes):
                # Only what is released goes on record. Without the unused values, each group tries
                # other ones, as the next fit will: so this is repeated until all are released.
                new_entries = [entry for entry in new_entries if entry not in unused]
                catalogue = self._build(partition, rows, on_record, new_entries, ends, outcomes)
            added = {
                "values": [[entry.outcome, entry.values] for entry in new_entries],
                "ends": {} if has_ends else ends,
            }
            newcomers = set(handles[is_new].tolist())
            if not newcomers:
                return catalogue
            if self._ledger.add_edition(self._series, len(editions), added, newcomers):
                return catalogue
            # Another process has put a catalogue on record meanwhile: start again.

    def _new_entries(
        self,
        partition: Partition,
        outcomes: tuple[str, ...],
        on_record: ValueBook,
        is_new: NDArray[np.bool_],
    ) -> list[BookEntry]:
        """Return the centers of crowds with at least k new people that are not on record yet.

        `is_new` has the shape (n_rows,).
        """
        entries_on_record = set(on_record.entries)
        return [
            center.entry
            for center in centers_of(partition, self._policy.k, outcomes)
            if center.entry not in entries_on_record
            and center.is_of_new_people(is_new, self._policy.k)
        ]

    def _build(
        self,
        partition: Partition,
        rows: TrainingLabels,
        on_record: ValueBook,
        new_entries: Sequence[BookEntry],
        ends: Mapping[str, tuple[float, float]],
        outcomes: tuple[str, ...],
    ) -> Catalogue:
        """Build a catalogue of the values on record and some new ones."""
        book = ValueBook((*on_record.entries, *new_entries), ends, outcomes)
        return Catalogue.build(partition, self._policy, self._goal, rows, book)

    def newcomers(self) -> Handles | None:
        """Return the people who are in today's table and in none with an earlier edition.

        An edition is a catalogue of exact values that was published. If the last one was made from
        today's table, return the people who were new in that one. None if there is no earlier one.
        """
        n_editions = self._ledger.number_of_editions(self._series)
        if self._newcomers is None or self._newcomers.n_editions != n_editions:
            editions = self._ledger.editions(self._series)
            self._newcomers = _Newcomers(len(editions), self._newcomers_after(editions))
        return self._newcomers.people

    def record_table(self) -> None:
        """Put the people of today's table on record, before a catalogue of them is published."""
        table = self._digest_of_table()
        while True:
            editions = self._ledger.editions(self._series)
            if len(editions) and editions[-1].added["table"] == table:
                return
            newcomers = self._people.of_everybody() - _people_of(editions)
            if self._ledger.add_edition(self._series, len(editions), {"table": table}, newcomers):
                return

    def _newcomers_after(self, editions: Sequence[Edition]) -> Handles | None:
        """Return the people who are new after some editions; see `newcomers`."""
        earlier = list(editions)
        if earlier and earlier[-1].added["table"] == self._digest_of_table():
            earlier.pop()  # published again, or after a failure
        if not earlier:
            return None
        return self._people.of_everybody() - _people_of(earlier)

    def _digest_of_table(self) -> str:
        """Return a hash that is the same for tables of the same people."""
        people = sorted(self._people.of_everybody())
        return sha256("".join(people).encode()).hexdigest()


def series_of(policy: PrivacyPolicy, goal: DesiredOutcome) -> str:
    """Return the name of the catalogues that can be compared with each other."""
    return f"k={policy.k} desired={_text_of(goal)}"


def entries_of(catalogue: Catalogue, outcomes: tuple[str, ...]) -> set[BookEntry]:
    """Return the private values of a catalogue's entries."""
    partition = catalogue.partition
    eligibility_of_entry = partition.eligibility_of_group[catalogue.group].tolist()
    values_of_entry = plain_values(partition.population, catalogue.values)
    return {
        BookEntry(outcomes[eligibility], values)
        for eligibility, values in zip(eligibility_of_entry, values_of_entry, strict=True)
    }


def outcomes_of(eligibility: EligibilityClasses) -> tuple[str, ...]:
    """Return each eligibility class's outcome as text; one empty text if there are no classes."""
    if not len(eligibility.labels):
        return ("",)
    return tuple(to_text(label) for label in eligibility.labels)


def _text_of(goal: DesiredOutcome) -> str:
    """Return the desired outcome as text: the same for 1, 1.0 and True, and for all functions."""
    label = goal.desired
    if callable(label):
        return json.dumps(Outcome.asked(label).to_dict())
    if isinstance(label, (bool, np.bool_)):
        label = int(label)
    return to_text(label)


def _is_new(handles: NDArray[np.object_], known_people: Handles) -> NDArray[np.bool_]:
    """Return a mask of the people who are not among those known.

    Both arrays have the shape (n_rows,).
    """
    return np.array([handle not in known_people for handle in handles.tolist()], dtype=bool)


def _people_of(editions: Sequence[Edition]) -> Handles:
    """Return everyone who was in the table of any of these editions."""
    return frozenset[str]().union(*(edition.people for edition in editions))


def _book_of(editions: Sequence[Edition]) -> ValueBook:
    """Return the shared values that some editions added together."""
    entries = [
        BookEntry(outcome, tuple(values))
        for edition in editions
        for outcome, values in edition.added["values"]
    ]
    ends = {
        name: (low, high)
        for edition in editions
        for name, (low, high) in edition.added["ends"].items()
    }
    return ValueBook(tuple(entries), ends)
