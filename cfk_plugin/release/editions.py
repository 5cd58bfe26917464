"""What a ledger lets into a catalogue after a change of data.

Whoever compares two catalogues sees what is new in the later one, and may know who joined in
between. So the ledger remembers who was in the table of any catalogue on record, and what is new
may only come from k people who were not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfk_plugin.data.model import Goal, OutcomeClasses, RowOracle
from cfk_plugin.data.policy import Outcome, PrivacyPolicy
from cfk_plugin.data.region import to_text
from cfk_plugin.data.values import to_number
from cfk_plugin.errors import HostOnly, InputError, PolicyError
from cfk_plugin.protection.catalogue import Catalogue
from cfk_plugin.protection.partition import Partition
from cfk_plugin.protection.value_book import (
    BookEntry,
    Plain,
    ValueBook,
    centers_of,
    ends_of_people,
    plain_values,
)
from cfk_plugin.release.person_handles import PersonHandles

if TYPE_CHECKING:
    from cfk_plugin.records.ledger import Ledger
    from cfk_plugin.records.rule import Handles


@dataclass(frozen=True, eq=False, repr=False)
class CatalogueEditions(HostOnly):
    """The catalogues that a ledger has on record for one k and one desired outcome.

    Another k or another outcome has values of its own, which do not depend on these.
    """

    ledger: Ledger
    people: PersonHandles
    policy: PrivacyPolicy
    goal: Goal

    @property
    def purpose(self) -> str:
        """What the catalogues have in common."""
        return purpose_of(self.policy, self.goal)

    def catalogue(
        self, partition: Partition, rows: RowOracle, outcomes: tuple[str, ...]
    ) -> Catalogue:
        """Build a catalogue of shared values that the ledger lets in, and put these on record.

        They are those on record, and the centers of crowds with at least k new people.
        """
        everybody = self.people.everybody()
        centers = centers_of(partition, self.policy.k, outcomes)
        while True:
            known = self.ledger.editions(self.purpose)
            is_new = _flags(everybody, known.people)
            on_record = _read(known.private)
            old = set(on_record.entries)
            new = [
                center.entry
                for center in centers
                if center.entry not in old and center.is_of_new_people(is_new, self.policy.k)
            ]
            ends = on_record.ends or ends_of_people(partition, self.policy.k)
            book = ValueBook((*on_record.entries, *new), ends, outcomes)
            catalogue = Catalogue.build(partition, self.policy, self.goal, rows, book)
            used = entries_of(catalogue, outcomes)
            content = {
                "values": [[entry.outcome, entry.values] for entry in new if entry in used],
                "ends": {} if on_record.ends else ends,
            }
            newcomers = everybody[is_new].tolist()
            # Another process may have put a catalogue on record meanwhile.
            if not newcomers or self.ledger.add_edition(
                self.purpose, known.number, content, newcomers
            ):
                return catalogue

    def newcomers(self) -> Handles | None:
        """Return who is in today's table and was in none on record; None if there is none."""
        known = self.ledger.editions(self.purpose)
        return self.people.of_everybody() - known.people if known.number else None

    def publish(self) -> Handles | None:
        """Put today's table on record; return the `newcomers` before."""
        everybody = self.people.of_everybody()
        while True:
            known = self.ledger.editions(self.purpose)
            newcomers = everybody - known.people
            if not newcomers or self.ledger.add_edition(self.purpose, known.number, {}, newcomers):
                return newcomers if known.number else None


def purpose_of(policy: PrivacyPolicy, goal: Goal) -> str:
    """Return what catalogues have in common that may have the same private values, as text."""
    return f"{policy.private_values} k={policy.k} desired={_text_of(goal)}"


def book_on_record(
    ledger: Ledger, policy: PrivacyPolicy, goal: Goal, outcomes: tuple[str, ...]
) -> ValueBook:
    """Return the shared values that a ledger has on record, and write nothing."""
    on_record = _read(ledger.editions(purpose_of(policy, goal)).private)
    return replace(on_record, outcomes=outcomes)


def book_of_published(
    content: Mapping[str, Any], partition: Partition, outcomes: tuple[str, ...]
) -> ValueBook:
    """Return the private values of an earlier published catalogue.

    Without a ledger nobody can tell who is new, so a catalogue may have no others.

    Parameters
    ----------
    content : mapping
        The catalogue as `Explanations.to_json` writes it.
    """
    population = partition.population
    policy = content.get("policy")
    if not isinstance(policy, Mapping) or "explanations" not in content:
        raise InputError("previous= is no catalogue; give what published() returned, or its file")
    if policy.get("private_values") != "shared":
        raise PolicyError(
            'previous= needs a catalogue with private_values="shared": exact values are of one'
            " person each, whose group has to be known; publish with a ledger"
        )
    names = sorted(population.schema.private)
    entries = dict[BookEntry, None]()
    for entry in content["explanations"]:
        if entry["status"] != "released":
            continue
        released = entry["released"]
        if sorted(released) != names:
            raise InputError(
                "previous= has other private attributes than today's table; give a catalogue of the"
                f" same columns: {', '.join(names)}"
            )
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


def entries_of(catalogue: Catalogue, outcomes: tuple[str, ...]) -> set[BookEntry]:
    """Return the private values of a catalogue's entries."""
    partition = catalogue.partition
    sides = partition.side_of_group[catalogue.group].tolist()
    values = plain_values(partition.population, catalogue.values)
    return {BookEntry(outcomes[side], plain) for side, plain in zip(sides, values, strict=True)}


def outcomes_of(sides: OutcomeClasses) -> tuple[str, ...]:
    """Return the text of each side's outcome; one empty text where all are on one side."""
    return tuple(map(to_text, sides.labels)) or ("",)


def _text_of(goal: Goal) -> str:
    """Return the desired outcome as text; all functions share one."""
    if callable(goal.desired):
        return json.dumps(Outcome.asked(goal.desired).to_dict())
    return str(goal.desired)


def _flags(people: NDArray[np.object_], known: Handles) -> NDArray[np.bool_]:
    """Say of each person whether the person is not known; both have the shape (n_rows,)."""
    return np.array([person not in known for person in people.tolist()], dtype=bool)


def _read(private: tuple[Mapping[str, Any], ...]) -> ValueBook:
    entries = [
        BookEntry(outcome, tuple(values))
        for content in private
        for outcome, values in content.get("values", ())
    ]
    ends = {
        name: (low, high)
        for content in private
        for name, (low, high) in content.get("ends", {}).items()
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
