"""Sentences for the person who gets an answer: the changes, next to the person's own values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from cfk_plugin.data.outcome import Outcome
from cfk_plugin.data.region import (
    Interval,
    Part,
    is_missing,
    part_contains,
    part_of,
    read_like,
    to_number,
    to_text,
)
from cfk_plugin.data.wording import MOST_NAMED, Wording, has_values, is_number

if TYPE_CHECKING:
    from cfk_plugin.data.schema import Schema

_LONG_TIME = 10 * 365.25 * 24 * 3600  # seconds; a date that moves by this is a change of size 1


@dataclass(frozen=True, slots=True)
class WordedChange:
    """One column that an answer asks to change, in words.

    Attributes
    ----------
    column : str
    text : str
        For instance "a loan term of 24 months instead of 48".
    size : float
        From 0 to 1. For a number, the distance to the person's own value relative to the larger of
        the two; for a date, relative to ten years; 1 for another category. Sentences name large
        changes first.
    can_be_chosen : bool
        Whether a person can choose the change, unlike an age.
    """

    column: str
    text: str
    size: float
    can_be_chosen: bool = True


@dataclass(frozen=True, slots=True)
class Message:
    """An answer in words, in parts that a page can show separately.

    Attributes
    ----------
    lead : str
        One or two sentences: the outcome, and every change that it needs.
    changes : tuple of WordedChange
        The changes that the lead names, largest first.
    notes : tuple of str
        Sentences about the answer: the values that are enough without the margin, the omission of
        unchanged columns, and the share of the region for which the answer is true.
    """

    lead: str
    changes: tuple[WordedChange, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.lead, *self.notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The content of an explanation that sentences need.

    Attributes
    ----------
    parts : mapping of column to Interval or frozenset
        The values that every column would need.
    outcome : Outcome
    nodes : mapping of column to str
        Names of hierarchy nodes, which replace the sets of their columns in sentences.
    unchanged : sequence of str
        Columns that certainly have the person's own value.
    pureness : float
        The share of the combinations in `parts` for which the answer is true; 1 for a single point.
    advised : mapping of column to value
        A point in `parts`, or next to it, at which the answer is true: a value for each column with
        a range or a set. Empty if there is no such point.
    least : mapping of column to value
        Values for which the model gives the outcome, but without the margin.
    nobody_chooses : frozenset of str
        Columns that describe who a person is, such as age. The lead names them separately.
    never_advised : mapping of column to frozenset
        Values, as text, that no sentence asks for; None is a missing value.
    """

    parts: Mapping[str, Part]
    outcome: Outcome
    nodes: Mapping[str, str]
    unchanged: Sequence[str] = ()
    pureness: float = 1.0
    advised: Mapping[str, Any] = field(default_factory=dict)
    least: Mapping[str, Any] = field(default_factory=dict)
    nobody_chooses: frozenset[str] = frozenset()
    never_advised: Mapping[str, frozenset[str | None]] = field(default_factory=dict)

    def at_point(self) -> Answer:
        """Return an answer with the advised values as its parts; itself if it has none."""
        if not self.advised:
            return self
        advised = {column: part_of(value) for column, value in self.advised.items()}
        nodes = {column: node for column, node in self.nodes.items() if column not in advised}
        return replace(self, parts={**self.parts, **advised}, nodes=nodes, pureness=1.0)

    def described(self, column: str, wording: Wording) -> str:
        """Return in words the values that the answer asks for in a column.

        Values that are never advised are left out. If the advised value is among these, it is the
        person's own value, and the words add "or your own".
        """
        part = self.parts[column]
        advised = advised_part(part, self.never_advised.get(column, frozenset()))
        node = self.nodes.get(column) if advised == part else None
        words = wording.described(column, advised, node)
        if column in self.advised and not part_contains(advised, self.advised[column]):
            return wording.language.frame("values", "or_own", words)
        return words


@dataclass(frozen=True, kw_only=True)
class Presentation:
    """Settings of a schema for showing an explanation; they are never written or compared."""

    wording: Wording = field(default_factory=Wording)
    nobody_chooses: frozenset[str] = frozenset()
    never_advised: Mapping[str, frozenset[str | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: Schema) -> Presentation:
        """Return the settings of a schema."""
        return cls(
            wording=schema.wording,
            nobody_chooses=schema.nobody_chooses,
            never_advised=schema.never_advised,
        )


def advised_part(part: Part, never_advised: frozenset[str | None]) -> Part:
    """Return a part without the values that are never advised; the part itself if no value is left.

    In that case the part is the person's own value, which may stay.
    """
    if not never_advised:
        return part
    if not isinstance(part, Interval):
        advised_values = set()
        for value in part:
            text = None if value is None else to_text(value)
            if text not in never_advised:
                advised_values.add(value)
        return frozenset(advised_values) if advised_values else part
    missing = part.missing and None not in never_advised
    if part.levels is None:
        return part if part.low is None else replace(part, missing=missing)
    levels = tuple(level for level in part.levels if level not in never_advised)
    if not levels:
        return Interval(None, None, missing=True) if missing else part
    first = part.levels.index(levels[0])
    is_unbroken = levels == part.levels[first : first + len(levels)]
    if is_unbroken or len(levels) <= MOST_NAMED:
        return Interval(levels[0], levels[-1], missing, levels)
    # an Interval with more levels is written as a range, which would include the levels left out
    return frozenset({*levels, None}) if missing else frozenset(levels)


def changes_of(
    answer: Answer, person: Mapping[str, Any] | pd.Series[Any], wording: Wording
) -> list[WordedChange]:
    """Return the changes that an answer asks of a person, the largest first.

    Parameters
    ----------
    answer : Answer
    person : mapping of column to value
        The person's own values.
    wording : Wording
    """
    answer = answer.at_point()
    changes = []
    for column, part in answer.parts.items():
        own_value = read_like(part, person[column])
        if part_contains(part, own_value):
            continue
        new_words = answer.described(column, wording)
        if is_missing(own_value):
            text = wording.language.frame("changes", "own_not_stated", new=new_words)
        else:
            own_words = wording.current_value(column, own_value, part)
            text = _instead(column, new_words, own_words, wording)
        can_be_chosen = column not in answer.nobody_chooses
        changes.append(WordedChange(column, text, _size(part, own_value), can_be_chosen))
    return sorted(changes, key=lambda change: (-change.size, change.column))


def _instead(column: str, new_words: str, own_words: str, wording: Wording) -> str:
    """Return the words for "the new value instead of the person's own".

    If the words of one value end with those of the other, as "no angina" and "angina", the new
    words are clear without the others.
    """
    is_one_in_other = new_words.endswith(f" {own_words}") or own_words.endswith(f" {new_words}")
    if wording.words(column) and is_one_in_other:
        return new_words
    return wording.language.frame("changes", "instead", new=new_words, own=own_words)


def message(
    answer: Answer, person: Mapping[str, Any] | pd.Series[Any] | None, wording: Wording
) -> Message:
    """Return an answer in words.

    `person` contains the person's own value of every column. If it is None, the changes are
    unknown, and the message names every value that the answer asks for.
    """
    outcome = wording.outcome(answer.outcome)
    if person is None:
        return _whole_message(answer, outcome, wording)
    changes = changes_of(answer, person, wording)
    choices = [change for change in changes if change.can_be_chosen]
    situation = [change.text for change in changes if not change.can_be_chosen]
    language = wording.language
    sentences = []
    if choices or not situation:
        sentences.append(_lead(choices, outcome, wording))
    if situation:
        name = "situation" if choices else "only_situation"
        sentences.append(_sentence(wording, name, outcome, changes=language.join(situation)))
    notes = _notes(answer.at_point(), wording)
    columns = [change.column for change in changes]
    if any(column in answer.least for column in columns):
        notes = (_enough_today(answer, columns, wording), *notes)
    return Message(" ".join(sentences), tuple(changes), notes)


def _lead(changes: Sequence[WordedChange], outcome: str, wording: Wording) -> str:
    """Return the sentence about the changes that a person can choose."""
    if not changes:
        return _sentence(wording, "no_change", outcome)
    texts = [change.text for change in changes]
    changes_in_words = wording.language.join(texts)
    if len(texts) <= 2:
        name = "one" if len(texts) == 1 else "two"
        return _sentence(wording, name, outcome, changes=changes_in_words)
    return wording.language.counted_frame(
        "answers",
        "more",
        len(texts),
        outcome=outcome,
        Outcome=_capitalised(outcome),
        changes=changes_in_words,
    )


def _enough_today(answer: Answer, columns: Sequence[str], wording: Wording) -> str:
    """Return the sentence on the values that are enough without the margin, and its purpose.

    `columns` are the columns that the answer changes. If only some of them have a least value, it
    is enough only if the others change as advised.
    """
    language = wording.language
    smaller = [column for column in columns if column in answer.least]
    least = [wording.described(column, part_of(answer.least[column])) for column in smaller]
    texts = {"least": language.enumeration(least), "others": ""}
    if len(smaller) < len(columns):
        texts["others"] = language.frame("answers", "others")
    name = "enough_together"
    if len(smaller) == 1:
        name = "enough_today"
        texts["advised"] = wording.value(smaller[0], answer.at_point().parts[smaller[0]])
    return language.frame("answers", name, Least=_capitalised(texts["least"]), **texts)


def _whole_message(answer: Answer, outcome: str, wording: Wording) -> Message:
    """Return a message for an unknown person: it names all values except unchanged ones."""
    texts = [
        answer.described(column, wording)
        for column in answer.parts
        if column not in answer.unchanged
    ]
    language = wording.language
    notes = list(_notes(answer, wording))
    if answer.unchanged and texts:
        notes.insert(0, language.frame("answers", "unchanged"))
    if not texts:
        return Message(_sentence(wording, "no_change", outcome), (), tuple(notes))
    lead = _sentence(wording, "whole", outcome, changes=language.join(texts))
    return Message(lead, (), tuple(notes))


def _sentence(wording: Wording, name: str, outcome: str, **parts: str) -> str:
    """Return a sentence of the section "answers" with the outcome and other parts filled in."""
    parts |= {"outcome": outcome, "Outcome": _capitalised(outcome)}
    return wording.language.frame("answers", name, **parts)


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _notes(answer: Answer, wording: Wording) -> tuple[str, ...]:
    """Return the note about the share of combinations for which an answer is true, if any."""
    language = wording.language
    notes = []
    if answer.pureness < 1:
        # rounded down, so that a share below 1 is never written as 100 %
        share = int(answer.pureness * 1000) / 10
        text = language.unit("percent").other.replace("{}", language.number(share))
        notes.append(language.frame("answers", "part_of_combinations", share=text))
    return tuple(notes)


def _size(part: Part, own_value: Any) -> float:
    """Return the size of a change, from 0 to 1; see `WordedChange`."""
    if not isinstance(part, Interval) or part.levels is not None:
        return 1.0
    if not has_values(part) or is_missing(own_value):
        return 1.0
    low = to_number(part.low)
    high = to_number(part.high)
    own_number = to_number(own_value)
    if math.isnan(own_number):  # a text that is not a number
        return 1.0
    nearest_end = low if own_number < low else high
    distance = abs(nearest_end - own_number)
    if not is_number(part.low):
        return min(1.0, distance / _LONG_TIME)
    largest = max(abs(nearest_end), abs(own_number))
    if largest > 0:
        return min(1.0, distance / largest)
    return 0.0
