"""Words for values and outcomes, from the file of a language and from a schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cache, cached_property
from gettext import c2py
from importlib.resources import files
from numbers import Number
from pathlib import Path
from types import MappingProxyType
from typing import Any

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
    time_of_day,
    to_text,
)
from cfk_plugin.errors import SchemaError, did_you_mean, listed, quiet

LANGUAGE_VERSION = 1
"""The version of the format of a language's file."""

MOST_NAMED = 3
"""The number of values of a set that a sentence names before it counts the others."""

ALL_OTHER_OUTCOMES = "*"
"""The key of `Wording.outcomes` for outcomes without their own words."""

_FOLDER = files("cfk_plugin") / "languages"
_GROUPED_FROM = 5  # digits before the decimal point; 2019 and 4000 have no separator
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?")
_FRAMES = ("values", "changes", "outcomes", "answers", "withheld")
_PLACEHOLDER = re.compile(r"\{([^{}|]*)\}")
_PLURAL = re.compile(r"\{([^{}|]*(?:\|[^{}|]*)+)\}")  # {loan|loans}
_RULE_PERIOD = 1000  # see `Language.plural_rule`

Words = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit in which sentences write the numbers of a column.

    Attributes
    ----------
    name : str
        A unit of the language's file, such as ``"month"``, ``"USD"``, ``"percent"`` or ``"share"``
        (for numbers from 0 to 1, which are written in percent). Any other text is written as it is,
        such as ``"mmHg"``.
    scale : float
        The factor from the numbers of the column to the numbers in sentences: 0.01 if the column
        has cents and the unit is the euro. It must be a power of ten, so that the product is exact:
        sentences never round.

    Raises
    ------
    SchemaError
        If the name is not a text or is empty, or the scale is not a power of ten.

    Examples
    --------
    >>> wording = Wording(
    ...     titles={"income_cents": "an income"}, units={"income_cents": Unit("EUR", scale=0.01)}
    ... )
    >>> wording.described("income_cents", Interval(199050, 199050))
    'an income of €1,990.50'
    """

    name: str
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError(
                'the name of a unit must be a non-empty text, as in Unit("EUR", scale=0.01)'
            )
        if not is_number(self.scale) or not _is_power_of_ten(self.scale):
            raise SchemaError(
                f"unit {self.name!r}: scale must be a power of ten, such as 0.01 or 1000, so that"
                " no number is rounded; for another scale, convert the column"
            )

    @classmethod
    def of(cls, declared: str | Mapping[str, Any] | Unit) -> Unit:
        """Return a unit from its name, from the result of `to_plain`, or from a `Unit`."""
        if isinstance(declared, Mapping):
            return cls(**declared)
        return declared if isinstance(declared, Unit) else cls(declared)

    def to_plain(self) -> str | dict[str, Any]:
        """Return the unit as a JSON-ready value: only its name if the scale is 1."""
        if self.scale == 1:
            return self.name
        return {"name": self.name, "scale": self.scale}


def _is_power_of_ten(scale: float) -> bool:
    exact = Decimal(str(scale))
    return exact.is_finite() and exact > 0 and exact.normalize().as_tuple().digits == (1,)


@dataclass(frozen=True, slots=True)
class UnitTexts:
    """The texts with which a language writes a number and its unit.

    Attributes
    ----------
    other : str
        The text for a number; ``{}`` stands for the number.
    zero, one, two, few, many : str, optional
        The texts for numbers of these plural categories, if they differ.
    decimals : int, optional
        For money: the least number of decimals if a number is not whole.
    is_repeated : bool
        Whether a range repeats the unit at both ends, as for a currency or ``%``.
    times : int or Decimal
        The factor of the number: 100 for a share that is written in percent.
    """

    other: str
    zero: str | None = None
    one: str | None = None
    two: str | None = None
    few: str | None = None
    many: str | None = None
    decimals: int | None = None
    is_repeated: bool = False
    times: int | Decimal = 1

    @property
    def stands_with_every_number(self) -> bool:
        """Whether a range repeats the unit at both ends."""
        return self.is_repeated or self.decimals is not None

    def text(self, category: str) -> str:
        """Return the text for numbers of a plural category."""
        text: str | None = getattr(self, category)
        return self.other if text is None else text

    def exact(self, value: Any) -> Decimal:
        """Return the number that a sentence writes for a value."""
        return Decimal(str(natural(value))) * self.times


_WITHOUT_UNIT = UnitTexts("{}")


@dataclass(frozen=True, eq=False, repr=False)
class Language:
    """One language: templates of sentences, and the format of numbers, dates and units.

    Each language is a file, which `docs/how-to/say-it-in-words.md` explains.

    Attributes
    ----------
    code : str
        Such as ``"en"``.
    sections : mapping of section to mapping of name to text
        The content of the file.
    """

    code: str
    sections: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, language: object) -> Language:
        """Return a language from its code, the path of a file, or the content of a file.

        Raises
        ------
        SchemaError
            If there is no such language, or the file does not have the right format.
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
        """Return the code of a language that the package has, or the content of another file."""
        if self.code in shipped_languages() and self == _shipped(self.code):
            return self.code
        content: dict[str, Any] = {"schema_version": LANGUAGE_VERSION, "language": self.code}
        content.update(self.sections)
        return content

    @property
    def plural_categories(self) -> Sequence[str]:
        """The plural categories of the language, in the order in which phrases write the forms."""
        categories: Sequence[str] = self.sections["plurals"]["categories"]
        return categories

    @cached_property
    def plural_rule(self) -> tuple[int, ...]:
        """The position of the plural category of each whole number, from 0 to 1999.

        Plural rules depend on small numbers and on the last digits. So a larger number has the
        category of 1000 plus its last three digits.
        """
        rule = c2py(self.sections["plurals"]["rule"])
        return tuple(rule(number) for number in range(2 * _RULE_PERIOD))

    def plural_category(self, number: Decimal | int | None) -> str:
        """Return the plural category of a number; "other" for a fraction and for None."""
        if number is None or number != int(number):
            return "other"
        whole = abs(int(number))
        if whole >= _RULE_PERIOD:
            whole = _RULE_PERIOD + whole % _RULE_PERIOD
        return self.plural_categories[self.plural_rule[whole]]

    def with_plurals(self, text: str, number: Decimal | int | None) -> str:
        """Replace each ``{loan|loans}`` in a text with the form for a number.

        If there are fewer forms than plural categories, the last form is used for the others.
        """
        position = self.plural_categories.index(self.plural_category(number))

        def form(match: re.Match[str]) -> str:
            forms = match[1].split("|")
            return forms[min(position, len(forms) - 1)]

        return _PLURAL.sub(form, text)

    def frame(self, section: str, name: str, /, *text: str, **parts: str | None) -> str:
        """Fill in the placeholders of a text of the file."""
        frame: str = self.sections[section][name]
        return frame.format(*text, **parts)

    def counted_frame(self, section: str, name: str, number: int, /, **parts: str) -> str:
        """Fill in the placeholders of a text, with a number as ``{count}`` and its plural forms."""
        frame = self.with_plurals(self.sections[section][name], number)
        return frame.format(count=self.count(number), **parts)

    def unit(self, name: str) -> UnitTexts:
        """Return a unit of the file. A name that is not in the file is written as it is."""
        settings = self.sections["units"].get(name)
        if settings is not None:
            return UnitTexts(**settings)
        return UnitTexts(f"{{}} {name}")

    def measured(self, value: Any, unit: UnitTexts) -> str:
        """Return the text of a number with its unit."""
        return self.filled(unit, self.number(value, unit), value)

    def filled(self, unit: UnitTexts, text: str, value: Any) -> str:
        """Add a unit to the text of a number, or of a range.

        `value` is the number, or the end of the range; it decides about the plural form.
        """
        frame = unit.text(self.plural_category(unit.exact(value)))
        if text.startswith("-") and not frame.startswith("{}"):
            return "-" + frame.replace("{}", text.removeprefix("-"))  # -€3
        return frame.replace("{}", text)

    def number(self, value: Any, unit: UnitTexts = _WITHOUT_UNIT) -> str:
        """Return the text of a number without its unit; it is never rounded."""
        exact = unit.exact(value) or Decimal(0)  # not -0
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
        """Return the text of a count; small numbers are words."""
        numbers = self.sections["numbers"]
        words: Sequence[str] = numbers["counts" if before_noun else "words"]
        return words[number] if number < len(words) else self.number(number)

    def date(self, value: Any) -> str:
        """Return the text of a date, with its time unless it is midnight."""
        moment = pd.Timestamp(value)
        dates = self.sections["dates"]
        day = dates["day"].format(
            day=moment.day, month=dates["months"][moment.month - 1], year=moment.year
        )
        time = time_of_day(moment)
        if not time:
            return str(day)
        words = {"day": moment.day, "month": dates["months"][moment.month - 1]}
        return str(dates["moment"].format(**words, year=moment.year, time=time))

    def join(self, changes: Sequence[str]) -> str:
        """Join changes to a list with semicolons, as changes may contain commas and "and"."""
        if len(changes) == 1:
            return changes[0]
        return self.frame("changes", "last", first="; ".join(changes[:-1]), last=changes[-1])

    def enumeration(self, items: Sequence[str]) -> str:
        """Join items to a list with "and"."""
        if len(items) == 1:
            return items[0]
        return self.frame("values", "both", first=", ".join(items[:-1]), last=items[-1])

    def alternatives(self, items: Sequence[str]) -> str:
        """Join items to a list with "or"; a long list ends with the number of further items."""
        if len(items) == 1:
            return items[0]
        n_more = len(items) - MOST_NAMED
        if n_more > 1:
            first_items = ", ".join(items[:MOST_NAMED])
            return self.counted_frame("values", "more", n_more, named=first_items)
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
    """Read a language from its JSON file."""
    if path.suffix.lower() != ".json" or not path.is_file():
        raise SchemaError(
            f"language {str(path)!r}: there is no such language and no such file; give one of"
            f" {', '.join(shipped_languages())}, or the path of a file that ends in .json"
        )
    with quiet(f"{path}: cannot be read as JSON", SchemaError):
        content = json.loads(path.read_text("utf-8"))
    return _language_from(content, str(path))


def _language_from(content: Any, source: str) -> Language:
    """Return the language with this content; raise a SchemaError if the content is invalid."""
    problems = faults(content, f"language-{LANGUAGE_VERSION}")
    if problems:
        raise SchemaError(
            f"{source}: {problems[0]}; begin with a copy of cfk_plugin/languages/en.json"
        )
    sections = {name: part for name, part in content.items() if isinstance(part, Mapping)}
    language = Language(content["language"], MappingProxyType(sections))
    _check_plurals(language, source)
    _check_placeholders(language, source)
    return language


def _check_plurals(language: Language, source: str) -> None:
    """Raise a SchemaError if the plural rule cannot be read, or gives an unknown category."""
    categories = language.plural_categories
    rule = f"{source}: plurals.rule"
    expected = 'an expression of C as in Plural-Forms of gettext, such as "n != 1"'
    with quiet(f"{rule} is not {expected}", SchemaError):
        positions = {*language.plural_rule}
    if not positions <= {*range(len(categories))}:
        raise SchemaError(
            f"{rule} must give the position of a category, from 0 to {len(categories) - 1}"
        )
    for name, settings in language.sections["units"].items():
        unknown = {"zero", "one", "two", "few", "many"}.intersection(settings) - {*categories}
        if unknown:
            raise SchemaError(
                f"{source}: units.{name} has the form {listed(sorted(unknown))}, which"
                " plurals.categories does not have"
            )


def _check_placeholders(language: Language, source: str) -> None:
    """Raise a SchemaError if a text has an unknown placeholder: the first answer would fail."""
    english = _english_frames()
    frames = {name: language.sections[name] for name in _FRAMES}
    frames["dates"] = {name: language.sections["dates"][name] for name in ("day", "moment")}
    for section, texts in frames.items():
        for name, text in texts.items():
            english_text = english[section][name]
            placeholders = set(_PLACEHOLDER.findall(english_text))
            for placeholder in ("outcome", "least"):
                either = {placeholder, placeholder.title()}
                if either & placeholders:
                    placeholders |= either
            is_one_too_many = text.count("{}") > english_text.count("{}")
            rest = _PLACEHOLDER.sub("", text)
            if "count" in placeholders:
                rest = _PLURAL.sub("", rest)
            has_stray_brace = bool(set("{}") & set(rest))
            has_unknown_placeholder = not placeholders.issuperset(_PLACEHOLDER.findall(text))
            if is_one_too_many or has_stray_brace or has_unknown_placeholder:
                in_braces = [f"{{{placeholder}}}" for placeholder in sorted(placeholders)]
                places = " ".join(in_braces) or "none"
                raise SchemaError(
                    f"{source}: {section}.{name} has unknown placeholders; those of the English"
                    f" text are: {places}"
                )


@cache
def _english_frames() -> Mapping[str, Mapping[str, Any]]:
    content: dict[str, Any] = json.loads((_FOLDER / "en.json").read_text("utf-8"))
    return content


def _text_keys(declared: Mapping[Any, str]) -> dict[str, str]:
    return {to_text(value): words for value, words in declared.items()}


def _texts(name: str, keys: str, declared: Mapping[Any, str]) -> dict[str, str]:
    """Return declared texts by the text of their key; raise a SchemaError if one is not a text."""
    is_mapping = isinstance(declared, Mapping)
    if not is_mapping or not all(isinstance(text, str) and text for text in declared.values()):
        raise SchemaError(f"{name} must be a mapping of {keys} to a non-empty text")
    return _text_keys(declared)


def _units(declared: Mapping[str, str | Mapping[str, Any] | Unit]) -> dict[str, Unit]:
    """Return declared units by column; raise a SchemaError if one is not a unit."""
    form = 'of column to a text or a Unit, such as {"income_cents": Unit("EUR", scale=0.01)}'
    try:
        return {name: Unit.of(unit) for name, unit in declared.items()}
    except SchemaError as error:
        raise SchemaError(f"units must be a mapping {form}: {error}") from None
    except (AttributeError, TypeError):  # not a mapping, or one with other keys
        raise SchemaError(f"units must be a mapping {form}") from None


@dataclass(frozen=True, slots=True, init=False)
class Wording:
    """The words for the answers about one table, in one language.

    Attributes
    ----------
    language : Language
        Pass its code, such as ``"de"``, or the path of a file.
    titles : mapping of column to str
        The words for a column in a sentence: ``"a loan term"``.
    units : mapping of column to Unit
        A text means the `Unit` of this name.
    outcomes : mapping of label to str
        The meaning of a model's label for a person: ``"your loan would be approved"``. The key
        ``"*"`` is for all other outcomes, such as a range.
    phrases : mapping of column to str or mapping
        The words for a value, which need no title. Either a text with ``{}`` for the value, such as
        ``"{} open {loan|loans}"``, with plural forms in the order of the language's categories. Or
        a mapping of value to words, such as ``{"A11": "an overdrawn current account"}``.

    Raises
    ------
    SchemaError
        If there is no such language, or a text, unit or phrase has the wrong form.

    Examples
    --------
    >>> wording = Wording(titles={"term": "a loan term"}, units={"term": "month"})
    >>> wording.described("term", Interval(24, 36))
    'a loan term of 24 to 36 months'
    """

    language: Language
    titles: Words
    units: Mapping[str, Unit]
    outcomes: Words
    phrases: Mapping[str, str | Words]

    def __init__(
        self,
        *,
        language: str | Path | Mapping[str, Any] | Language = "en",
        titles: Mapping[str, str] = MappingProxyType({}),
        units: Mapping[str, str | Unit] = MappingProxyType({}),
        outcomes: Mapping[Any, str] = MappingProxyType({}),
        phrases: Mapping[str, str | Mapping[Any, str]] = MappingProxyType({}),
    ) -> None:
        if not isinstance(phrases, Mapping):
            raise SchemaError("phrases must be a mapping of column to a text or a mapping")
        language = Language.of(language)
        n_forms = len(language.plural_categories)
        settings = {
            "language": language,
            "titles": _texts("titles", "column", titles),
            "units": _units(units),
            "outcomes": _texts("outcomes", "label", outcomes),
            "phrases": {name: _phrase(name, phrase, n_forms) for name, phrase in phrases.items()},
        }
        for name, setting in settings.items():
            object.__setattr__(self, name, setting)

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_plain(), sort_keys=True))

    def to_plain(self) -> dict[str, Any]:
        """Return all settings as JSON-ready values."""
        return {
            "language": self.language.to_plain(),
            "titles": dict(self.titles),
            "units": {name: unit.to_plain() for name, unit in self.units.items()},
            "outcomes": dict(self.outcomes),
            "phrases": {
                name: phrase if isinstance(phrase, str) else dict(phrase)
                for name, phrase in self.phrases.items()
            },
        }

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> Wording:
        """Return the wording from the result of `to_plain`."""
        return cls(**content)

    def columns(self) -> set[str]:
        """Return the columns with a title, a unit or a phrase."""
        return {*self.titles, *self.units, *self.phrases}

    def check_outcomes(self, classes: Sequence[Any] | None) -> None:
        """Check that the model has every label in `outcomes`.

        Parameters
        ----------
        classes : sequence, optional
            The labels of the model. If they are None, nothing is checked.

        Raises
        ------
        SchemaError
            If the model does not have one of the labels.
        """
        if classes is None:
            return
        labels = [to_text(label) for label in classes]
        unknown = [name for name in self.outcomes if name not in (*labels, ALL_OTHER_OUTCOMES)]
        if unknown:
            raise SchemaError(
                f"outcomes: the model has no label {listed(unknown)}; its labels are"
                f" {listed(labels)}{did_you_mean(unknown, labels)}"
            )

    def name(self, column: str) -> str:
        """Return a column's name with spaces instead of underscores."""
        return column.replace("_", " ")

    def title(self, column: str) -> str | None:
        """Return the words for a column, such as "a loan term"; None if nothing is declared."""
        usual = self.language.sections["columns"].get(column.lower(), {})
        title: str | None = self.titles.get(column, usual.get("title"))
        return title

    def unit(self, column: str) -> UnitTexts:
        """Return the texts for a column's numbers with their unit."""
        usual = self.language.sections["columns"].get(column.lower(), {})
        if column not in self.units:
            name = usual.get("unit")
            return _WITHOUT_UNIT if name is None else self.language.unit(name)
        declared = self.units[column]
        texts = self.language.unit(declared.name)
        return replace(texts, times=texts.times * Decimal(str(declared.scale)))

    def described(self, column: str, part: Part, node: str | None = None) -> str:
        """Return one part of an answer in words, such as "a loan term of 24 to 36 months".

        Parameters
        ----------
        column : str
        part : Interval or frozenset
            A range, or a set of values.
        node : str, optional
            The name of a hierarchy's node, which replaces the set.
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

    def value(self, column: str, part: Part) -> str:
        """Return a part in words like `described`, but without the column's title or name."""
        if column in self.phrases:
            return self.described(column, part)
        return self._value(column, part)

    def words(self, column: str) -> Words:
        """Return the declared words for single values of a column, by value."""
        phrase = self.phrases.get(column)
        return phrase if isinstance(phrase, Mapping) else {}

    def has_declared_words(self, column: str, part: Part) -> bool:
        """Return True if `phrases` has words for each of the `stated_values` of a part.

        A sentence then uses only these words, without the column's title and unit.
        """
        words = self.words(column)
        return len(words) > 0 and all(_words_of(value, words) for value in stated_values(part))

    def counts(self, column: str) -> bool:
        """Return True if the phrase of a column has plural forms, such as "{loan|loans}"."""
        phrase = self.phrases.get(column)
        return isinstance(phrase, str) and _PLURAL.search(phrase) is not None

    def current_value(self, column: str, value: Any, part: Part) -> str:
        """Return the person's own value in words, for the place after "instead of".

        `part` contains the new values, which the sentence names before. A unit in words is written
        only once, with the new values.
        """
        words = _words_of(value, self.words(column))
        if words is not None:
            return words
        is_counted = self.counts(column)
        # The new value of a number may be "missing"; only a unit shows that the column has numbers.
        is_unstated_number = column in self.units and part == frozenset({None})
        if not isinstance(part, Interval) and not is_unstated_number and not is_counted:
            return self._category(value)
        if isinstance(part, Interval) and part.levels is not None:
            return self._quoted(value)
        if not is_number(value):
            return self._value_alone(value)
        unit = self.unit(column)
        if is_counted:
            return self._counted_alone(value, unit)
        # The unit is not yet written if the new value is "not stated" or has declared words.
        if unit.stands_with_every_number or self.has_declared_words(column, part):
            return self.language.measured(value, unit)
        return self.language.number(value, unit)

    def outcome(self, outcome: Outcome) -> str:
        """Return the outcome as a clause: "your loan would be approved"."""
        language = self.language
        declared = self.outcomes.get(to_text(outcome.label))
        if outcome.label is not None and not outcome.is_other and declared is not None:
            return declared
        if ALL_OTHER_OUTCOMES in self.outcomes:
            return self.outcomes[ALL_OTHER_OUTCOMES]
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
        """Return the values of a part, without the column; numbers have their unit."""
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

    def _measured(self, low: Any, high: Any, unit: UnitTexts) -> str:
        """Return a number or a range of numbers with its unit."""
        language = self.language
        if low == high:
            return language.measured(low, unit)
        if unit.stands_with_every_number:
            ends = {"low": language.measured(low, unit), "high": language.measured(high, unit)}
            return language.frame("values", "range", **ends)
        ends = {"low": language.number(low, unit), "high": language.number(high, unit)}
        return language.filled(unit, language.frame("values", "range", **ends), high)

    def _in_phrase(self, phrase: str, column: str, part: Part, node: str | None) -> str:
        """Fill a phrase such as "{} open {loan|loans}"."""
        values = stated_values(part)
        number = None
        if is_number(values[-1]) and node is None:
            number = self.unit(column).exact(values[-1])
        if node is not None:
            value = node
        elif self.counts(column) and len(values) == 1 and _is_count(number):
            value = self.language.count(int(number or 0), before_noun=True)
        else:
            value = self._value(column, part)
        return self.language.with_plurals(phrase, number).replace("{}", value)

    def _counted_alone(self, value: Any, unit: UnitTexts) -> str:
        """Return a count without its noun, which the sentence has named before: "three", "none"."""
        number = unit.exact(value)
        if not _is_count(number):
            return self.language.number(value, unit)
        if number == 0:
            return str(self.language.sections["numbers"]["none"])
        return self.language.count(int(number), before_noun=True)

    def _in_declared_words(self, words: Words, part: Part) -> str:
        """Return a part in the declared words of its values: "a basic school or a high school".

        A range names its ends: "no savings to large savings".
        """
        texts = [str(_words_of(value, words)) for value in stated_values(part)]
        if is_stated_by_ends(part):
            return self.language.frame("values", "range", low=texts[0], high=texts[1])
        return self.language.alternatives(texts)

    def _category(self, value: Any) -> str:
        """Return a category; a number is a code, such as a postal code, without a separator."""
        return to_text(value) if is_number(value) else self._value_alone(value)

    def _value_alone(self, value: Any) -> str:
        """Return a value without column and unit; text has quotation marks."""
        return self.language.number(value) if is_number(value) else self._quoted(value)

    def _quoted(self, value: Any) -> str:
        """Return a date or a truth value in words, and other values in quotation marks."""
        if isinstance(value, date) or _is_date_as_text(value):
            return self.language.date(value)
        if isinstance(value, (bool, np.bool_)):
            name = "true" if value else "false"
            value = self.language.frame("values", name)
        return self.language.frame("values", "quoted", to_text(value))


def _words_of(value: Any, words: Words) -> str | None:
    """Return the words for a value in any spelling; None if it has no words."""
    return next((words[text] for text in spellings(value) if text in words), None)


def has_values(part: Part) -> bool:
    """Return True unless a part contains only a missing value."""
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
    """Return the values of a part that a sentence names: the ends of a range, or all values."""
    if isinstance(part, Interval) and is_stated_by_ends(part):
        return [part.low, part.high]
    return values_of(part)


def values_of(part: Part) -> list[Any]:
    """Return the values of a part except a missing one, in order; for a range, its low end."""
    if isinstance(part, Interval):
        return [part.low] if part.levels is None else list(part.levels)
    return [value for value in sorted_values(part) if value is not None]


def is_number(value: object) -> bool:
    """Return True if a value is a number, and neither missing nor a bool."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (Number, Decimal)):
        return False
    return not is_missing(value)


def _is_date_as_text(value: object) -> bool:
    """Return True if a value is the text of a valid date, such as 2024-12-31."""
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return False
    return not is_missing(pd.to_datetime(value, errors="coerce"))


def _is_count(value: Any) -> bool:
    return is_number(value) and value >= 0 and value == int(value)


def _phrase(column: str, declared: Any, n_forms: int) -> str | dict[str, str]:
    """Return a declared phrase; raise a SchemaError if it has the wrong form.

    `n_forms` is the number of plural forms of the language.
    """
    if isinstance(declared, str):
        if any(forms.count("|") >= n_forms for forms in _PLURAL.findall(declared)):
            raise SchemaError(
                f"column {column!r}: a phrase has more plural forms than the {n_forms} of the"
                " language; remove the last ones"
            )
        rest = _PLURAL.sub("", declared)
        if "{}" in rest and not set("{}") & set(rest.replace("{}", "")):
            return declared
    elif isinstance(declared, Mapping) and declared:
        if all(isinstance(words, str) and words for words in declared.values()):
            return _text_keys(declared)
    raise SchemaError(
        f'column {column!r}: a phrase is a text such as "{{}} open {{loan|loans}}", with {{}} for'
        " the value and no other braces, or a mapping of value to words"
    )
