"""What a ledger lets into a catalogue after a change of data.

Whoever compares two catalogues sees what is new in the later one, and may know who joined in
between. So the ledger remembers who was in the table of any catalogue on record, and what is new
may only come from k people who were not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.eligibility import EligibilityClasses
from cfk_plugin.data.outcome import DesiredOutcome, Outcome
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.data.region import to_text
from cfk_plugin.data.training_labels import TrainingLabels
from cfk_plugin.data.values import to_number
from cfk_plugin.errors import HostOnly, InputError, PolicyError
from cfk_plugin.protection.catalogue.catalogue import Catalogue
from cfk_plugin.protection.catalogue.value_book import (
    BookEntry,
    Plain,
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


class CatalogueEditions(HostOnly):
    """The catalogues that a ledger has on record for one k and one desired outcome.

    Another k or another outcome has values of its own, which do not depend on these.
    """

    def __init__(
        self, ledger: Ledger, people: PersonHandles, policy: PrivacyPolicy, goal: DesiredOutcome
    ) -> None:
        self._ledger = ledger
        self._people = people
        self._policy = policy
        self._goal = goal
        self._series = series_of(policy, goal)
        self._newcomers: tuple[int, Handles | None] | None = None  # and for how many editions

    def build_catalogue(
        self, partition: Partition, rows: TrainingLabels, outcomes: tuple[str, ...]
    ) -> Catalogue:
        """Build a catalogue of shared values that the ledger lets in, and put these on record.

        They are those on record, and the centers of crowds with at least k new people.
        """
        everybody = self._people.everybody()
        while True:
            known = self._ledger.editions(self._series)
            is_new = _is_unknown(everybody, _people_of(known))
            on_record = _book_of(known)
            old = set(on_record.entries)
            # Without new people nothing can be added, and crowds need not be looked for.
            centers = centers_of(partition, self._policy.k, outcomes) if is_new.any() else []
            new = [
                center.entry
                for center in centers
                if center.entry not in old and center.is_of_new_people(is_new, self._policy.k)
            ]
            ends = on_record.ends or ranges_of_people(partition, self._policy.k)
            catalogue = self._built(partition, rows, on_record, new, ends, outcomes)
            while unused := set(new) - entries_of(catalogue, outcomes):
                # Only what is released goes on record. Without the rest, each group tries other
                # values, as the next fit will: so this is done until all of them are released.
                new = [entry for entry in new if entry not in unused]
                catalogue = self._built(partition, rows, on_record, new, ends, outcomes)
            added = {
                "values": [[entry.outcome, entry.values] for entry in new],
                "ends": {} if on_record.ends else ends,
            }
            newcomers = set(everybody[is_new].tolist())
            # Another process may have put a catalogue on record meanwhile.
            if not newcomers or self._ledger.add_edition(
                self._series, len(known), added, newcomers
            ):
                return catalogue

    def _built(
        self,
        partition: Partition,
        rows: TrainingLabels,
        on_record: ValueBook,
        new: Sequence[BookEntry],
        ends: Mapping[str, tuple[float, float]],
        outcomes: tuple[str, ...],
    ) -> Catalogue:
        book = ValueBook((*on_record.entries, *new), ends, outcomes)
        return Catalogue.build(partition, self._policy, self._goal, rows, book)

    def newcomers(self) -> Handles | None:
        """Return who was in no table whose catalogue of exact values was published before.

        None if there was none. If the last catalogue was of today's table, who was new in that.
        """
        number = self._ledger.number_of_editions(self._series)
        if self._newcomers is None or self._newcomers[0] != number:
            known = self._ledger.editions(self._series)
            self._newcomers = len(known), self._newcomers_after(known)
        return self._newcomers[1]

    def record_table(self) -> None:
        """Put the people of today's table on record, before a catalogue of them is published."""
        table = self._digest_of_table()
        while True:
            known = self._ledger.editions(self._series)
            if known and known[-1].added["table"] == table:
                return
            newcomers = self._people.of_everybody() - _people_of(known)
            if self._ledger.add_edition(self._series, len(known), {"table": table}, newcomers):
                return

    def _newcomers_after(self, known: Sequence[Edition]) -> Handles | None:
        before = [*known]
        if before and before[-1].added["table"] == self._digest_of_table():
            before.pop()  # published again, or after a failure
        return self._people.of_everybody() - _people_of(before) if before else None

    def _digest_of_table(self) -> str:
        people = sorted(self._people.of_everybody())
        return sha256("".join(people).encode()).hexdigest()


def series_of(policy: PrivacyPolicy, goal: DesiredOutcome) -> str:
    """Return the name of the catalogues that are compared with each other."""
    return f"{policy.private_values} k={policy.k} desired={_text_of(goal)}"


def book_on_record(
    ledger: Ledger, policy: PrivacyPolicy, goal: DesiredOutcome, outcomes: tuple[str, ...]
) -> ValueBook:
    """Return the shared values that a ledger has on record, and write nothing."""
    return replace(_book_of(ledger.editions(series_of(policy, goal))), outcomes=outcomes)


def book_of_published(
    content: Mapping[str, Any], partition: Partition, k: int, outcomes: tuple[str, ...]
) -> ValueBook:
    """Return the private values of an earlier published catalogue.

    Without a ledger nobody can tell who is new, so a catalogue may have no others.

    Parameters
    ----------
    content : mapping
        The catalogue as `Explanations.to_json` writes it.
    k : int
        Of today's policy: the catalogue must have been published with as many people at least.
    """
    _check_published(content, k)
    population = partition.population
    names = sorted(population.schema.private)
    entries = dict[BookEntry, None]()
    for entry in content["explanations"]:
        if entry["status"] != "released":
            continue
        released = _exact_values(entry, names)
        values = tuple(
            _plain(released[name], is_numeric=population.domains[name].is_numeric) for name in names
        )
        for outcome in _outcomes_of(entry, outcomes):
            entries[BookEntry(outcome, values)] = None
    ends = {}
    for place, name in enumerate(names):
        column = [entry.values[place] for entry in entries]
        numbers = [value for value in column if isinstance(value, float)]
        if numbers:
            ends[name] = (min(numbers), max(numbers))
    return ValueBook(tuple(entries), ends, outcomes)


def _check_published(content: Mapping[str, Any], k: int) -> None:
    """Refuse what is no catalogue, or one whose values may be those of fewer than k people."""
    policy = content.get("policy")
    if (
        not isinstance(policy, Mapping)
        or "explanations" not in content
        or content.get("kind") != "catalogue"
    ):
        raise InputError("previous= is no catalogue; give what published() returned, or its file")
    if policy.get("private_values") != "shared":
        raise PolicyError(
            'previous= needs a catalogue with private_values="shared": exact values are of one'
            " person each, whose group has to be known; publish with a ledger"
        )
    if policy.get("k", 0) < k:
        raise PolicyError(
            f"previous= was published with k = {policy.get('k')}, fewer than today's k = {k}; its"
            " values may be those of fewer people: give one with at least this k"
        )


def _exact_values(entry: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """Return the private values of an entry, which must have all of these attributes."""
    released: Mapping[str, Any] = entry["released"]
    if entry["withheld"] or any(isinstance(value, Mapping) for value in released.values()):
        raise PolicyError(
            "previous= has private values that were binned or withheld, so it does not say which"
            " there were; publish with a ledger"
        )
    if sorted(released) != names:
        raise InputError(
            "previous= has other private attributes than today's table; give a catalogue of the"
            f" same columns: {', '.join(names)}"
        )
    return released


def entries_of(catalogue: Catalogue, outcomes: tuple[str, ...]) -> set[BookEntry]:
    """Return the private values of a catalogue's entries."""
    partition = catalogue.partition
    eligibility = partition.side_of_group[catalogue.group].tolist()
    values = plain_values(partition.population, catalogue.values)
    return {
        BookEntry(outcomes[side], plain) for side, plain in zip(eligibility, values, strict=True)
    }


def outcomes_of(eligibility: EligibilityClasses) -> tuple[str, ...]:
    """Return the text of each side's outcome; one empty text where all are on one side."""
    return tuple(map(to_text, eligibility.labels)) or ("",)


def _text_of(goal: DesiredOutcome) -> str:
    """Return the desired outcome as text, the same for 1, 1.0 and True; all functions share one."""
    if callable(goal.desired):
        return json.dumps(Outcome.asked(goal.desired).to_dict())
    label = goal.desired
    return to_text(int(label) if isinstance(label, (bool, np.bool_)) else label)


def _is_unknown(people: NDArray[np.object_], known: Handles) -> NDArray[np.bool_]:
    """Say of each person whether nobody knows the person; both arrays have the shape (n_rows,)."""
    return np.array([person not in known for person in people.tolist()], dtype=bool)


def _people_of(editions: Sequence[Edition]) -> Handles:
    return frozenset[str]().union(*(edition.people for edition in editions))


def _book_of(editions: Sequence[Edition]) -> ValueBook:
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


def _plain(value: Any, *, is_numeric: bool) -> Plain:
    if value is None:
        return None
    return to_number(value) if is_numeric else to_text(value)


def _outcomes_of(entry: Mapping[str, Any], outcomes: tuple[str, ...]) -> Sequence[str]:
    """Return the outcomes that an entry's values were released for; all if it does not say."""
    told = Outcome.of(entry["outcome"])
    if told.label is None or told.is_other or to_text(told.label) not in outcomes:
        return outcomes
    return (to_text(told.label),)
