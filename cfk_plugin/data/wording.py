"""Words for values and outcomes: a language, read from a file, and what a schema declares."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from importlib.resources import files
from numbers import Number
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd

from cfk_plugin.data.formats import faults
from cfk_plugin.data.outcome import Outcome
from cfk_plugin.data.region import (
    Interval,
    Part,
    is_missing,
    natural,
    sorted_values,
    spellings,
    to_text,
)
from cfk_plugin.errors import SchemaError, did_you_mean, listed, quiet

LANGUAGE_VERSION = 1
"""Version of the format of a language's file."""

MOST_NAMED = 3
"""Values of a set that a sentence names before it counts the others, if these are two or more."""

WHATEVER_WAS_ASKED = "*"
"""The key of `Wording.outcomes` for outcomes that have no words of their own."""

_FOLDER = files("cfk_plugin") / "languages"
_GROUPED_FROM = 5  # digits before the decimal point: 2019 and 4000 are written without a separator
_SECONDS = re.compile(r"^(\d{2}:\d{2}):00(?=$|[+-])")  # seconds that are 0
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_FRAMES = ("values", "changes", "outcomes", "answers", "withheld")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PLURAL = re.compile(r"\{([^{}|]*)\|([^{}|]*)\}")  # {loan|loans}

Words = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Unit:
    """How a number is written with its unit.

    Attributes
    ----------
    one, other : str
        The text for a single 1, and for other numbers; ``{}`` stands for the number.
    decimals : int, optional
        Of money: how many decimals a number that is not whole has at least.
    is_repeated : bool
        Whether the unit stands beside each of two numbers, as a currency or ``%`` does.
    times : int
        What the number is multiplied by: 100 for a share that is written in percent.
    """

    one: str
    other: str
    decimals: int | None = None
    is_repeated: bool = False
    times: int = 1

    @property
    def stands_with_every_number(self) -> bool:
        """Whether two numbers each have the unit."""
        return self.is_repeated or self.decimals is not None


_WITHOUT_UNIT = Unit("{}", "{}")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Language:
    """The frames of sentences, and how numbers, dates and units are written in one language.

    `docs/how-to/say-it-in-words.md` explains the file. A language of your own is another file.

    Attributes
    ----------
    code : str
        Such as ``"en"``.
    sections : mapping
        The content of the file: section to name to text.
    """

    code: str
    sections: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, language: object) -> Language:
        """Return a language from its code, the path of a file, or the content of a file.

        Raises
        ------
        SchemaError
            If there is no such language, or the file does not have the form of one.
        """
        if isinstance(language, Language):
            return language
        if isinstance(language, Mapping):
            return _language_from(language, "the language")
        if not isinstance(language, (str, Path)):
            raise SchemaError(
                f"language must be one of {', '.join(shipped_languages())}, or the path of a file;"
                f" got {type(language).__name__}"
            )
        if language in shipped_languages():
            return _shipped(language)
        return _language_of_file(Path(language))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Language):
            return NotImplemented
        return self.code == other.code and self.sections == other.sections

    def __hash__(self) -> int:
        return hash(json.dumps(dict(self.sections), sort_keys=True))

    def __repr__(self) -> str:
        return f"Language({self.code!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Language.of, (self.to_plain(),)

    def to_plain(self) -> str | dict[str, Any]:
        """Return the code of a language that comes with the package; of another one, the content
        of its file.
        """
        if self.code in shipped_languages() and self == _shipped(self.code):
            return self.code
        content: dict[str, Any] = {"schema_version": LANGUAGE_VERSION, "language": self.code}
        content.update(self.sections)
        return content

    def frame(self, section: str, name: str, /, *text: str, **parts: str | None) -> str:
        """Fill in a text of the file."""
        frame: str = self.sections[section][name]
        return frame.format(*text, **parts)

    def unit(self, name: str) -> Unit:
        """Return a unit of the file; a name that the file does not have is the unit's own text."""
        settings = self.sections["units"].get(name)
        if settings is not None:
            return Unit(**settings)
        return Unit(f"{{}} {name}", f"{{}} {name}")

    def number(self, value: Any, unit: Unit = _WITHOUT_UNIT) -> str:
        """Write a number in full, without its unit: as it was released, never rounded."""
        exact = Decimal(str(natural(value))) * unit.times or Decimal(0)  # not -0
        digits = format(exact, "f")
        whole, _, decimals = digits.partition(".")
        decimals = decimals.rstrip("0")
        is_money = unit.decimals is not None
        if decimals and unit.decimals is not None:
            decimals = decimals.ljust(unit.decimals, "0")
        sign = "-" if whole.startswith("-") else ""
        whole = whole.removeprefix("-")
        numbers = self.sections["numbers"]
        if is_money or len(whole) >= _GROUPED_FROM:
            whole = f"{int(whole):,}".replace(",", numbers["group"])
        return sign + whole + (numbers["decimal"] + decimals if decimals else "")

    def count(self, number: int, *, before_noun: bool = False) -> str:
        """Write how many there are, small numbers in words."""
        numbers = self.sections["numbers"]
        words: Sequence[str] = numbers["counts" if before_noun else "words"]
        return words[number] if number < len(words) else self.number(number)

    def date(self, value: Any) -> str:
        """Write a day, and the time if there is one."""
        moment = pd.Timestamp(value)
        dates = self.sections["dates"]
        day = dates["day"].format(
            day=moment.day, month=dates["months"][moment.month - 1], year=moment.year
        )
        if moment.tz is None and moment == moment.normalize():
            return str(day)
        time = _SECONDS.sub(r"\1", moment.isoformat(sep=" ").partition(" ")[2])
        words = {"day": moment.day, "month": dates["months"][moment.month - 1]}
        return str(dates["moment"].format(**words, year=moment.year, time=time))

    def join(self, changes: Sequence[str]) -> str:
        """List changes, which may hold commas and "and" themselves."""
        if len(changes) == 1:
            return changes[0]
        return self.frame("changes", "last", first="; ".join(changes[:-1]), last=changes[-1])

    def alternatives(self, items: Sequence[str]) -> str:
        """List with "or"; of a long list, the first ones and how many more there are."""
        if len(items) == 1:
            return items[0]
        hidden = len(items) - MOST_NAMED
        if hidden > 1:
            named = ", ".join(items[:MOST_NAMED])
            return self.frame("values", "more", named=named, count=self.count(hidden))
        return self.frame("values", "either", first=", ".join(items[:-1]), last=items[-1])


@cache
def shipped_languages() -> tuple[str, ...]:
    """Return the codes of the languages that come with the package."""
    names = [file.name for file in _FOLDER.iterdir()]
    return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))


@cache
def _shipped(code: str) -> Language:
    text = (_FOLDER / f"{code}.json").read_text("utf-8")
    return _language_from(json.loads(text), f"language {code}")


def _language_of_file(path: Path) -> Language:
    if path.suffix.lower() != ".json" or not path.is_file():
        raise SchemaError(
            f"language {str(path)!r}: there is no such language and no such file; give one of"
            f" {', '.join(shipped_languages())}, or the path of a file that ends in .json"
        )
    with quiet(f"{path}: cannot be read as JSON", SchemaError):
        content = json.loads(path.read_text("utf-8"))
    return _language_from(content, str(path))


def _language_from(content: Any, source: str) -> Language:
    problems = faults(content, f"language-{LANGUAGE_VERSION}")
    if problems:
        raise SchemaError(
            f"{source}: {problems[0]}; begin with a copy of cfk_plugin/languages/en.json"
        )
    sections = {name: part for name, part in content.items() if isinstance(part, Mapping)}
    language = Language(content["language"], MappingProxyType(sections))
    _check_placeholders(language, source)
    return language


def _check_placeholders(language: Language, source: str) -> None:
    """Refuse a text that cannot be filled, which would fail at the first answer."""
    english = _english_frames()
    frames = {name: language.sections[name] for name in _FRAMES}
    frames["dates"] = {name: language.sections["dates"][name] for name in ("day", "moment")}
    for section, texts in frames.items():
        for name, text in texts.items():
            english_text = english[section][name]
            placeholders = set(_PLACEHOLDER.findall(english_text))
            if {"outcome", "Outcome"} & placeholders:
                placeholders |= {"outcome", "Outcome"}
            is_one_too_many = text.count("{}") > english_text.count("{}")
            has_stray_brace = bool(set("{}") & set(_PLACEHOLDER.sub("", text)))
            has_unknown_placeholder = not placeholders.issuperset(_PLACEHOLDER.findall(text))
            if is_one_too_many or has_stray_brace or has_unknown_placeholder:
                in_braces = [f"{{{placeholder}}}" for placeholder in sorted(placeholders)]
                places = " ".join(in_braces) or "none"
                raise SchemaError(
                    f"{source}: {section}.{name} has places that nothing fills; the places of the"
                    f" English text are: {places}"
                )


@cache
def _english_frames() -> Mapping[str, Mapping[str, Any]]:
    content: dict[str, Any] = json.loads((_FOLDER / "en.json").read_text("utf-8"))
    return content


def _text_keys(declared: Mapping[Any, str]) -> dict[str, str]:
    return {to_text(value): words for value, words in declared.items()}


def _texts(name: str, keys: str, declared: Mapping[Any, str]) -> dict[str, str]:
    """Return declared texts by what they are for, or raise what is wrong with them."""
    if not isinstance(declared, Mapping):
        raise SchemaError(f"{name} must be a mapping, {keys} to a text that is not empty")
    if not all(isinstance(text, str) and text for text in declared.values()):
        raise SchemaError(f"{name} must be a mapping, {keys} to a text that is not empty")
    return _text_keys(declared)


@dataclass(frozen=True, slots=True, init=False)
class Wording:
    """How the answers about one table are put into words, in one language.

    Attributes
    ----------
    language : Language
        Given as its code, such as ``"de"``, or the path of a file.
    titles : mapping of column to str
        The column as it stands in a list of things: ``"a loan term"``.
    units : mapping of column to str
        A unit of the language's file, such as ``"month"``, ``"USD"``, ``"percent"`` or ``"share"``
        (a number of which 1 is 100 %); any other text is the unit itself, such as ``"mmHg"``.
    outcomes : mapping of label to str
        What the model's label means to the person: ``"your loan would be approved"``. The key
        ``"*"`` is for every outcome that has no words, such as a range.
    phrases : mapping of column to str or mapping
        The words for a value, which stand alone. A text with ``{}`` for the value, in which
        ``{loan|loans}`` stands for the first word after a single 1 and otherwise for the second:
        ``"{} open {loan|loans}"``. Or a mapping of value to words: ``{"A11": "an overdrawn current
        account"}``.

    Examples
    --------
    >>> wording = Wording(titles={"term": "a loan term"}, units={"term": "month"})
    >>> wording.described("term", Interval(24, 36))
    'a loan term of 24 to 36 months'
    """

    language: Language
    titles: Words
    units: Words
    outcomes: Words
    phrases: Mapping[str, str | Words]

    def __init__(
        self,
        *,
        language: str | Path | Mapping[str, Any] | Language = "en",
        titles: Mapping[str, str] = MappingProxyType({}),
        units: Mapping[str, str] = MappingProxyType({}),
        outcomes: Mapping[Any, str] = MappingProxyType({}),
        phrases: Mapping[str, str | Mapping[Any, str]] = MappingProxyType({}),
    ) -> None:
        if not isinstance(phrases, Mapping):
            raise SchemaError("phrases must be a mapping, column to a text or a mapping")
        settings = {
            "language": Language.of(language),
            "titles": _texts("titles", "column", titles),
            "units": _texts("units", "column", units),
            "outcomes": _texts("outcomes", "label", outcomes),
            "phrases": {name: _phrase(name, phrase) for name, phrase in phrases.items()},
        }
        for name, setting in settings.items():
            object.__setattr__(self, name, setting)

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_plain(), sort_keys=True))

    def to_plain(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        return {
            "language": self.language.to_plain(),
            "titles": dict(self.titles),
            "units": dict(self.units),
            "outcomes": dict(self.outcomes),
            "phrases": {
                name: phrase if isinstance(phrase, str) else dict(phrase)
                for name, phrase in self.phrases.items()
            },
        }

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> Wording:
        """Read back what `to_plain` returned."""
        return cls(**content)

    def columns(self) -> set[str]:
        """Return every column that something is declared for."""
        return {*self.titles, *self.units, *self.phrases}

    def check_outcomes(self, classes: Sequence[Any] | None) -> None:
        """Raise if words are declared for an outcome that the model does not have.

        Raises
        ------
        SchemaError
            If `classes`, the model's labels, are known and lack one of `outcomes`.
        """
        if classes is None:
            return
        labels = [to_text(label) for label in classes]
        unknown = [name for name in self.outcomes if name not in (*labels, WHATEVER_WAS_ASKED)]
        if unknown:
            raise SchemaError(
                f"outcomes: the model has no label {listed(unknown)}; its labels are"
                f" {listed(labels)}{did_you_mean(unknown, labels)}"
            )

    def name(self, column: str) -> str:
        """Return a column's name as words."""
        return column.replace("_", " ")

    def title(self, column: str) -> str | None:
        """Return the words for a column, such as "a loan term"; None if nothing is declared."""
        usual = self.language.sections["columns"].get(column.lower(), {})
        title: str | None = self.titles.get(column, usual.get("title"))
        return title

    def unit(self, column: str) -> Unit:
        """Return the unit of a column's numbers."""
        usual = self.language.sections["columns"].get(column.lower(), {})
        name = self.units.get(column, usual.get("unit"))
        return _WITHOUT_UNIT if name is None else self.language.unit(name)

    def described(self, column: str, part: Part, node: str | None = None) -> str:
        """Return what a part of an answer says of a column: "a loan term of 24 to 36 months".

        Parameters
        ----------
        column : str
        part : Interval or frozenset
            A range, or a set of values.
        node : str, optional
            The name of a hierarchy's node, which stands for the set.
        """
        language = self.language
        if not has_values(part):
            return language.frame("changes", "not_stated", name=self.name(column))
        phrase = self.phrases.get(column)
        if isinstance(phrase, str):
            value = self._in_phrase(phrase, column, part, node)
        elif node is None and self.has_declared_words(column, part):
            value = self._in_declared_words(self.words(column), part)
        else:
            value = self._labelled(column, part, node)
        may_be_missing = part.missing if isinstance(part, Interval) else None in part
        return language.frame("values", "or_not_stated", value) if may_be_missing else value

    def words(self, column: str) -> Words:
        """Return the words of single values of a column, which stand alone."""
        phrase = self.phrases.get(column)
        return phrase if isinstance(phrase, Mapping) else {}

    def has_declared_words(self, column: str, part: Part) -> bool:
        """Return True if `phrases` has words for each of the `stated_values` of a part.

        A sentence then uses these words alone, without the column's title and unit.
        """
        words = self.words(column)
        return len(words) > 0 and all(_words_of(value, words) for value in stated_values(part))

    def form_of_current_value(self, column: str) -> Literal["count", "plain", "measured"]:
        """Return how the number that the person has is written: as a count in words, without a
        unit ("plain"), or with one ("measured").
        """
        phrase = self.phrases.get(column)
        if not isinstance(phrase, str):
            return "measured"
        return "count" if _PLURAL.search(phrase) else "plain"

    def current_value(self, column: str, value: Any, part: Part) -> str:
        """Return the value that the person has, as it stands after "instead of".

        `part` is what the sentence says the value would be. A unit in words is written once, there.
        """
        words = _words_of(value, self.words(column))
        if words is not None:
            return words
        form = self.form_of_current_value(column)
        if form == "count":
            return self._counted_alone(value)
        # A number may become missing, too; only its unit tells it from a code.
        is_unstated_number = column in self.units and part == frozenset({None})
        if not isinstance(part, Interval) and not is_unstated_number:
            return self._category(value)
        if isinstance(part, Interval) and part.levels is not None:
            return self._quoted(value)
        if form == "measured" and is_number(value):
            unit = self.unit(column)
            number = self.language.number(value, unit)
            # "Not stated" and words of the new value do not say the unit.
            if unit.stands_with_every_number or self.has_declared_words(column, part):
                return _filled(unit, number, value)
            return number
        return self._value_alone(value)

    def outcome(self, outcome: Outcome) -> str:
        """Return the outcome as a clause: "your loan would be approved"."""
        language = self.language
        declared = self.outcomes.get(to_text(outcome.label))
        if outcome.label is not None and not outcome.is_other and declared is not None:
            return declared
        if WHATEVER_WAS_ASKED in self.outcomes:
            return self.outcomes[WHATEVER_WAS_ASKED]
        if outcome.bounds is not None:
            low, high = outcome.bounds
            name = "range"
            if np.isinf(high):
                name = "at_least"
            elif np.isinf(low):
                name = "at_most"
            ends = {"low": self._end(low), "high": self._end(high)}
            return language.frame("outcomes", name, **ends)
        if outcome.labels:
            labels = language.alternatives([self._value_alone(label) for label in outcome.labels])
            return language.frame("outcomes", "any", labels=labels)
        if outcome.label is None:
            return language.frame("outcomes", "desired")
        kind = "other" if outcome.is_other else "label"
        return language.frame("outcomes", kind, label=self._quoted(outcome.label))

    def _end(self, end: float) -> str:
        return "" if np.isinf(end) else self.language.number(end)

    def _labelled(self, column: str, part: Part, node: str | None) -> str:
        """Return a value after the column's title or name."""
        language = self.language
        value = self._value(column, part) if node is None else self._quoted(node)
        title = self.title(column)
        kind = "named" if title is None else "titled"
        if not isinstance(part, Interval) or part.levels is not None:
            kind += "_category"
        return language.frame("changes", kind, title=title, name=self.name(column), value=value)

    def _value(self, column: str, part: Part) -> str:
        """Return the value or values of a part, numbers with their unit."""
        language = self.language
        if not isinstance(part, Interval):
            return language.alternatives([self._category(value) for value in values_of(part)])
        if part.levels is not None:
            levels = list(part.levels)
            if len(levels) <= MOST_NAMED:
                return language.alternatives([self._value_alone(level) for level in levels])
            ends = {"low": self._value_alone(levels[0]), "high": self._value_alone(levels[-1])}
            return language.frame("values", "range", **ends)
        if not is_number(part.low):
            if part.low == part.high:
                return language.date(part.low)
            ends = {"low": language.date(part.low), "high": language.date(part.high)}
            return language.frame("values", "range", **ends)
        return self._measured(part.low, part.high, self.unit(column))

    def _measured(self, low: Any, high: Any, unit: Unit) -> str:
        language = self.language
        low_text = language.number(low, unit)
        if low == high:
            return _filled(unit, low_text, low)
        high_text = language.number(high, unit)
        if unit.stands_with_every_number:
            ends = {"low": _filled(unit, low_text, low), "high": _filled(unit, high_text, high)}
            return language.frame("values", "range", **ends)
        return _filled(unit, language.frame("values", "range", low=low_text, high=high_text), None)

    def _in_phrase(self, phrase: str, column: str, part: Part, node: str | None) -> str:
        """Fill a phrase such as "{} open {loan|loans}"."""
        is_count = _PLURAL.search(phrase) is not None
        single = part.low if isinstance(part, Interval) and part.low == part.high else None
        if isinstance(part, frozenset) and len(part) == 1:
            single = next(iter(part))
        if node is not None:
            value = node
        elif is_count and single is not None and _is_count(single):
            value = self.language.count(int(single), before_noun=True)
        else:
            value = self._value(column, part)
        is_one = single is not None and is_number(single) and single == 1
        form = r"\1" if is_one else r"\2"  # {loan|loans}
        words = _PLURAL.sub(form, phrase)
        return words.replace("{}", value)

    def _counted_alone(self, value: Any) -> str:
        """Return a count whose noun the sentence has said before: "three", "none"."""
        if not _is_count(value):
            return self._value_alone(value)
        if value == 0:
            return str(self.language.sections["numbers"]["none"])
        return self.language.count(int(value), before_noun=True)

    def _in_declared_words(self, words: Words, part: Part) -> str:
        """Return a part in the words of its values: "a basic school or a high school".

        A range is written with its ends: "no savings to large savings". `Language.alternatives`
        shortens a long list of values.
        """
        texts = [str(_words_of(value, words)) for value in stated_values(part)]
        if is_stated_by_ends(part):
            return self.language.frame("values", "range", low=texts[0], high=texts[1])
        return self.language.alternatives(texts)

    def _category(self, value: Any) -> str:
        """Return a category; a number is a code, such as a postal code, and not a quantity."""
        return to_text(value) if is_number(value) else self._value_alone(value)

    def _value_alone(self, value: Any) -> str:
        """Return a value without column and unit; text in quotation marks."""
        if is_number(value):
            return self.language.number(value)
        if isinstance(value, date) or _is_day(value):
            return self.language.date(value)
        return self._quoted(value)

    def _quoted(self, value: Any) -> str:
        if isinstance(value, (bool, np.bool_)):
            name = "true" if value else "false"
            value = self.language.frame("values", name)
        return self.language.frame("values", "quoted", to_text(value))


def _words_of(value: Any, words: Words) -> str | None:
    """Return the words for a value in any spelling; None if there are none."""
    return next((words[text] for text in spellings(value) if text in words), None)


def has_values(part: Part) -> bool:
    """Return True if a part has any value; a part without one stands only for "missing"."""
    if isinstance(part, Interval):
        return part.low is not None
    return part != frozenset({None})


def is_stated_by_ends(part: Part) -> bool:
    """Return True for a range of numbers or dates, or of more than a few levels."""
    if not isinstance(part, Interval) or part.low == part.high:
        return False
    n_levels = 0 if part.levels is None else len(part.levels)
    return n_levels == 0 or n_levels > MOST_NAMED


def stated_values(part: Part) -> list[Any]:
    """Return the values that a sentence states of a part: the ends of a range, or all values."""
    if isinstance(part, Interval) and is_stated_by_ends(part):
        return [part.low, part.high]
    return values_of(part)


def values_of(part: Part) -> list[Any]:
    """Return the values of a set, or the levels of an ordinal range, in a fixed order."""
    if isinstance(part, Interval):
        return [part.low] if part.levels is None else list(part.levels)
    return [value for value in sorted_values(part) if value is not None]


def is_number(value: object) -> bool:
    """Return True if a value is a number that can be written; booleans are not."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (Number, Decimal)):
        return False
    return not is_missing(value)


def _is_day(value: object) -> bool:
    """Return True if a value is the text of a day of the calendar, as 2024-12-31 is."""
    if not isinstance(value, str) or not _DAY.fullmatch(value):
        return False
    return not is_missing(pd.to_datetime(value, errors="coerce"))


def _is_count(value: Any) -> bool:
    return is_number(value) and value >= 0 and value == int(value)


def _filled(unit: Unit, text: str, value: Any) -> str:
    is_one = value is not None and value * unit.times == 1
    frame = unit.one if is_one else unit.other
    if text.startswith("-") and not frame.startswith("{}"):
        return "-" + frame.replace("{}", text.removeprefix("-"))  # -€3
    return frame.replace("{}", text)


def _phrase(column: str, declared: Any) -> str | dict[str, str]:
    """Return a phrase in the form in which it is kept, or raise what is wrong with it."""
    if isinstance(declared, str):
        rest = _PLURAL.sub("", declared)
        if "{}" in rest and not set("{}") & set(rest.replace("{}", "")):
            return declared
    elif isinstance(declared, Mapping) and declared:
        if all(isinstance(words, str) and words for words in declared.values()):
            return _text_keys(declared)
    raise SchemaError(
        f'column {column!r}: a phrase is a text such as "{{}} open {{loan|loans}}", with {{}} where'
        " the value goes and no other braces, or a mapping of value to words"
    )
