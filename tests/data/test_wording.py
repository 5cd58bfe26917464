"""How values, units, outcomes and whole answers are written, in English and German."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.data.outcome import Outcome
from cfk_plugin.data.region import Interval, Part
from cfk_plugin.data.sentences import Answer, changes_of, message
from cfk_plugin.data.wording import Language, Unit, Wording, shipped_languages
from cfk_plugin.errors import SchemaError
from polish import polish

LOAN = Wording(
    titles={
        "arrears": "rent arrears",
        "term": "a loan term",
        "amount": "a loan amount",
        "job": "work",
        "rate": "a rate",
    },
    units={
        "arrears": "EUR",
        "weeks": "week",
        "term": "month",
        "amount": "EUR",
        "rate": "share",
        "bp": "mmHg",
        "fee": "percent",
    },
    outcomes={"good": "your loan would be approved"},
    phrases={
        "arrears": {0: "no arrears"},
        "weeks": {0: "no waiting"},
        "class": {1: "a good class", 2: "a fair class", 3: "a poor class"},
        "loans": "{} open {loan|loans}",
        "home": "a home in {}",
        "account": {"A11": "an overdrawn current account", "A14": "no current account"},
    },
)
LANGUAGES = Path(__file__).parents[2] / "cfk_plugin" / "languages"
ENGLISH = json.loads((LANGUAGES / "en.json").read_text("utf-8"))
DAY = pd.Timestamp("2024-12-31")
MIDNIGHT = pd.Timestamp("2024-12-31", tz="Europe/Brussels")


def said(
    parts: Mapping[str, Part],
    person: Mapping[str, Any] | None,
    wording: Wording = LOAN,
    outcome: Outcome = Outcome("good"),  # noqa: B008 - frozen
    **more: Any,
) -> str:
    """Return an answer in words."""
    nodes = more.pop("nodes", {})
    answer = Answer(
        parts=parts, outcome=outcome, nodes=nodes, nobody_chooses=frozenset({"age"}), **more
    )
    return str(message(answer, person, wording))


def change(column: str, part: Part, own: Any, wording: Wording = LOAN) -> str:
    """Return the one change of an answer in words."""
    answer = Answer(parts={column: part}, outcome=Outcome("good"), nodes={})
    (only,) = changes_of(answer, {column: own}, wording)
    return only.text


@pytest.mark.parametrize(
    ("column", "part", "own", "text"),
    [
        # A unit in words is said once, a currency or % beside each number.
        ("term", Interval(24, 24), 48, "a loan term of 24 months instead of 48"),
        ("amount", Interval(1500, 1500), 900, "a loan amount of €1,500 instead of €900"),
        ("amount", Interval(1, 2000), -3, "a loan amount of €1 to €2,000 instead of -€3"),
        ("fee", Interval(5, 7), 12.5, "fee 5% to 7% instead of 12.5%"),
        # Numbers stand as they were released, and long ones are grouped.
        ("gain", Interval(25500, 25500), 0, "gain 25,500 instead of 0"),
        ("score", Interval(0.001, 0.30000000000000004), 1, "score 0.001 to 0.30000000000000004 instead of 1"),
        ("score", Interval(1e-07, 1e-07), 1e22, "score 0.0000001 instead of 10,000,000,000,000,000,000,000"),
        # Counts in words, singular and plural.
        ("loans", Interval(1, 1), 2, "one open loan instead of two"),
        ("loans", Interval(0, 0), 1, "no open loans instead of one"),
        ("loans", Interval(2, 4), 7, "2 to 4 open loans instead of seven"),
        # Categories: words of their own stand alone.
        ("account", frozenset({"A14"}), "A11", "no current account instead of an overdrawn current account"),
        ("home", frozenset({"Ghent"}), "Namur", "a home in “Ghent” instead of “Namur”"),
        ("job", frozenset({"skilled"}), "none", "work “skilled” instead of “none”"),
        ("telephone", frozenset({True}), False, "telephone “yes” instead of “no”"),
        ("zip_code", frozenset({9000}), 10000, "zip code 9000 instead of 10000"),
        ("city", frozenset("ABCDE"), "Z", "city “A”, “B”, “C” or one of two more instead of “Z”"),
        ("class", Interval(1, 2), 3, "a good class to a fair class instead of a poor class"),
        # A value without words is said as if no words were declared.
        ("account", frozenset({"A14", "A99"}), "A11", "account “A14” or “A99” instead of an overdrawn current account"),
        ("arrears", Interval(0, 0), 2300, "no arrears instead of €2,300"),
        ("arrears", Interval(410, 500), 0, "rent arrears of €410 to €500 instead of no arrears"),
        # Levels.
        # Dates as people write them, also days as text.
        ("since", Interval(DAY, DAY), "2020-02-01", "since 31 December 2024 instead of 1 February 2020"),
        ("since", frozenset({"2024-12-31"}), pd.Timestamp("2020-02-01 14:05"),
         "since 31 December 2024 instead of 1 February 2020, 14:05"),
        ("since", Interval(DAY, DAY), pd.Timestamp("2020-02-01 10:00:00+00:00"),
         "since 31 December 2024 instead of 1 February 2020, 10:00"),
        ("since", Interval(MIDNIGHT, MIDNIGHT), pd.Timestamp("2020-02-01 10:00:30+01:00"),
         "since 31 December 2024 instead of 1 February 2020, 10:00:30+01:00"),
        ("since", Interval(DAY, DAY), np.datetime64("2020-02-01T00:00:00.000000000"),
         "since 31 December 2024 instead of 1 February 2020"),
        ("since", Interval("2024-12-31", "2024-12-31", levels=("2024-12-31",)), "2020-02-01",
         "since 31 December 2024 instead of 1 February 2020"),
        # What is missing.
        ("term", Interval(24, 24), np.nan, "a loan term of 24 months (you did not state this)"),
        ("term", Interval(24, 36, missing=True), 48, "a loan term of 24 to 36 months or not stated instead of 48"),
        ("term", Interval(None, None, missing=True), 3, "term not stated instead of 3"),
        # A column called age needs no declaration.
        ("age", Interval(24, 27), 21, "an age of 24 to 27 years instead of 21"),
    ],
)  # fmt: skip
def test_change_is_in_words(column: str, part: Part, own: Any, text: str) -> None:
    """What a person has now stands beside what is advised."""
    assert change(column, part, own) == text


@pytest.mark.parametrize(
    ("column", "part", "own", "text"),
    [
        ("laufzeit", Interval(24, 24), 48, "eine Laufzeit von 24 Monaten (bisher 48)"),
        ("betrag", Interval(3850.5, 3850.5), 12416, "ein Betrag von 3.850,50 Euro (bisher 12.416 Euro)"),
        ("since", Interval(DAY, DAY), "2020-02-01", "since von 31. Dezember 2024 (bisher 1. Februar 2020)"),
        ("konto", frozenset({"keins"}), "x", "konto „keins“ (bisher „x“)"),
    ],
)  # fmt: skip
def test_change_is_in_german(column: str, part: Part, own: Any, text: str) -> None:
    """Numbers, dates and quotes are those of the language."""
    german = Wording(
        language="de",
        titles={"laufzeit": "eine Laufzeit", "betrag": "ein Betrag"},
        units={"laufzeit": "month", "betrag": "EUR"},
    )
    assert change(column, part, own, german) == text


PARTS: dict[str, Part] = {
    "term": Interval(24, 24),
    "loans": Interval(2, 2),
    "account": frozenset({"A14"}),
    "amount": Interval(900, 900),
    "age": Interval(38, 63),
}
PERSON = {"term": 48, "loans": 3, "account": "A11", "amount": 1000, "age": 24}


def test_levels_have_all_or_no_words() -> None:
    """If one level has no words, all are stated by their names."""
    words = {"low": "a basic school", "high": "a high school"}
    schools = Interval("low", "high", False, ("low", "mid", "high"))
    wording = Wording(phrases={"school": words})
    assert wording.described("school", schools) == "school “low”, “mid” or “high”"
    wording = Wording(phrases={"school": {**words, "mid": "a middle school"}})
    assert "a middle school or a high school" in wording.described("school", schools)


@pytest.mark.parametrize(
    ("columns", "start"),
    [
        (["term"], "Your loan would be approved if one thing were different: a loan term of 24"),
        (["loans", "term"], "Your loan would be approved if two things were different: a loan"),
        (["loans", "term", "account", "amount"], "Your loan would be approved if all four of"),
        (["age"], "We cannot name a change open to you."),
    ],
)
def test_number_of_changes_decides_sentence(columns: list[str], start: str) -> None:
    """The largest change comes first, and what no one can choose is not a change."""
    assert said({name: PARTS[name] for name in columns}, PERSON).startswith(start)


def test_opposite_words_are_said_once() -> None:
    """A person with angina knows of what "no angina" is the opposite."""
    wording = Wording(phrases={"angina": {"yes": "angina", "no": "no angina"}, "n": "{} {n|n}"})
    assert change("angina", frozenset({"no"}), "yes", wording) == "no angina"
    # Numbers are always said.
    assert change("n", Interval(24, 24), 14, wording) == "24 n instead of 14"


def test_equal_values_are_no_change() -> None:
    """The person may have them in any dtype."""
    parts: dict[str, Part] = {
        "zip": frozenset({9000}),
        "term": Interval(20, 30),
        "note": frozenset({None}),
    }
    person = {"zip": "9000", "term": np.float32(25), "note": np.nan}
    assert "without any change" in said(parts, person)


def test_sentence_without_person_names_all() -> None:
    """It leaves out what is known to stay."""
    parts = {name: PARTS[name] for name in ("term", "loans", "amount")}
    assert said(parts, None).endswith("24 months; two open loans; and a loan amount of €900.")
    some = said(parts, None, unchanged=("loans", "amount"))
    assert some.endswith("a loan term of 24 months. Everything else stays as it is.")
    assert "without any change" in said(parts, None, unchanged=tuple(parts))


def test_note_has_share_of_combinations() -> None:
    """It is rounded down."""
    text = said({"term": PARTS["term"]}, PERSON, pureness=0.99999)
    assert "true of 99.9% of the combinations" in text


ADVISED: dict[str, Any] = {
    "parts": {
        "age": Interval(36, 50),
        "city": frozenset({"Ghent", "Antwerp"}),
        "amount": Interval(900, 900),
    },
    "advised": {"age": 38, "city": "Namur"},
    "nodes": {"city": "Flanders"},
    "pureness": 0.8,
}
BORROWER = {"age": 27, "city": "Namur", "amount": 1000}


@pytest.mark.parametrize(
    ("person", "texts"),
    [
        (
            BORROWER,
            ["a loan amount of €900 instead of €1,000.", "an age of 38 years instead of 27."],
        ),
        (
            BORROWER | {"age": 38, "city": "Ghent", "amount": 900},
            [": city “Namur” instead of “Ghent”."],
        ),
    ],
)
def test_sentence_names_advised_value(person: dict[str, Any], texts: list[str]) -> None:
    """Even inside the region; what is kept is left out, and there is no note on combinations."""
    sentence = said(person=person, **ADVISED)
    assert all(text in sentence for text in texts)
    assert sentence.count(" instead of ") == len(texts)
    assert "combinations" not in sentence


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", ": an age of 36 to 50 years; city “Flanders”, or your own; and amount 900. "),
        ("de", ": ein Alter von 36 bis 50 Jahren; city „Flanders“ oder Ihr eigener Wert; und "),
    ],
)
def test_region_may_add_your_own(language: str, text: str) -> None:
    """The advised value may be the person's own, and lie outside of the region."""
    assert text in said(person=None, wording=Wording(language=language), **ADVISED)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "An age of 36 years would be enough today; 38 years would leave some room if "),
        ("de", "Heute würde schon genügen: ein Alter von 36 Jahren. Der Wert oben ließe "),
    ],
)
def test_note_names_what_is_enough_today(language: str, text: str) -> None:
    """A column that does not change has no second number."""
    answer = Answer(outcome=Outcome("good"), least={"age": 36, "amount": 950}, **ADVISED)
    person = BORROWER | {"amount": 900}
    (note,) = message(answer, person, Wording(language=language)).notes
    assert note.startswith(text)


@pytest.mark.parametrize(
    ("least", "text"),
    [
        ({"term": 36, "amount": 950}, "€950 and a loan term of 36 months would together be enough"),
        ({"term": 36}, "36 months would be enough today, with the other changes above; 24 months"),
    ],
)
def test_note_combines_changes(least: dict[str, Any], text: str) -> None:
    """What is enough today is enough only together with the other changes."""
    parts = {name: PARTS[name] for name in ("term", "amount")}
    assert text in said(parts, {"term": 48, "amount": 1900}, least=least, advised={"term": 24})


def test_hierarchy_node_names_its_values() -> None:
    """Two cities are the whole of Flanders."""
    parts: dict[str, Part] = {"city": frozenset({"Ghent", "Antwerp"})}
    text = said(parts, {"city": "Namur"}, nodes={"city": "Flanders"})
    assert text.endswith("city “Flanders” instead of “Namur”.")


@pytest.mark.parametrize(
    ("outcome", "clause"),
    [
        (Outcome("good"), "your loan would be approved"),
        (Outcome("bad"), "the model would predict “bad”"),
        (Outcome("good", is_other=True), "the model would predict something other than “good”"),
        (Outcome(labels=("a", "b")), "the model would predict “a” or “b”"),
        (Outcome(bounds=(10, 20)), "the model would predict 10 to 20"),
        (Outcome(bounds=(10, np.inf)), "the model would predict 10 or more"),
        (Outcome(bounds=(-np.inf, 20000)), "the model would predict 20,000 or less"),
        (Outcome(DAY), "the model would predict 31 December 2024"),
        (Outcome(), "the outcome would be the desired one"),
    ],
)
def test_outcome_is_a_clause(outcome: Outcome, clause: str) -> None:
    """Declared words come first, and those for all outcomes."""
    assert LOAN.outcome(outcome) == clause
    for_all = Wording(outcomes={"*": "you would pay less"})
    assert for_all.outcome(outcome) == "you would pay less"


def test_labels_have_any_spelling() -> None:
    """The number 1 is the text "1"."""
    wording = Wording(outcomes={1: "approved", "0": "refused"})
    assert wording.outcome(Outcome(1)) == wording.outcome(Outcome(1.0)) == "approved"
    assert wording.outcome(Outcome(0)) == "refused"


def test_largest_changes_come_first() -> None:
    """Sizes are shares of the person's own number; a category or a text is a whole change."""
    parts: dict[str, Part] = {
        "a": Interval(99, 99),
        "b": Interval(50, 60),
        "c": frozenset({"x"}),
        "d": Interval(0, 0),
    }
    answer = Answer(parts=parts, outcome=Outcome(1), nodes={})
    changes = changes_of(answer, {"a": 100, "b": 100, "c": "y", "d": "abc"}, Wording())
    assert [(found.column, found.size) for found in changes] == [
        ("c", 1),
        ("d", 1),
        ("b", 0.4),
        ("a", 0.01),
    ]


def test_wordings_compare_by_content() -> None:
    """Copies and what JSON makes of them are equal."""
    again = Wording.from_plain(json.loads(json.dumps(LOAN.to_plain())))
    assert again == LOAN == pickle.loads(pickle.dumps(LOAN))
    assert hash(again) == hash(LOAN)
    assert Wording() != LOAN


def test_language_may_be_a_file(tmp_path: Path) -> None:
    """A logged wording contains it, as the file may not be there where it is read."""
    content = copy.deepcopy(ENGLISH)
    content["language"] = "plain"
    content["answers"]["one"] = "{Outcome} if you change {changes}."
    file = tmp_path / "plain.json"
    file.write_text(json.dumps(content), "utf-8")
    wording = Wording(language=file)
    file.unlink()
    assert "if you change term" in said({"term": Interval(1, 1)}, {"term": 2}, wording)
    again = Wording.from_plain(wording.to_plain())
    assert again == wording == pickle.loads(pickle.dumps(wording))
    assert hash(again) == hash(wording)


def test_languages_have_the_same_texts() -> None:
    """Every text of English is there in the others."""
    english = Language.of("en").sections
    for code in shipped_languages():
        other = Language.of(code).sections
        assert set(other) == set(english)
        for section in ("values", "changes", "outcomes", "answers", "withheld", "units"):
            assert set(other[section]) == set(english[section]), (code, section)


@pytest.mark.parametrize("language", ["fr", 3])
def test_unknown_language_is_refused(language: Any) -> None:
    """The error lists the languages that there are."""
    with pytest.raises(SchemaError, match="de, en"):
        Wording(language=language)


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("answers.one", "{Outcome}: {canges}"),
        ("answers.one", "{Outcome} {changes"),
        ("answers.one", "{Outcome} {changes} {}"),
        ("answers.one", "{ {changes}"),
        ("answers.one", None),
        ("dates.day", "{dya}"),
        ("units.month.few", "{} months"),
    ],
)
def test_faulty_language_is_refused(section: str, text: str | None) -> None:
    """The error names the text that is missing, or whose places nothing fills."""
    content = copy.deepcopy(ENGLISH)
    *path, name = section.split(".")
    texts = content
    for part in path:
        texts = texts[part]
    texts[name] = text
    if text is None:
        del texts[name]
    with pytest.raises(SchemaError, match=path[0]):
        Language.of(content)


def test_broken_language_file_is_refused(tmp_path: Path) -> None:
    """A file that is not JSON."""
    (tmp_path / "broken.json").write_text("{", "utf-8")
    with pytest.raises(SchemaError, match="cannot be read as JSON"):
        Language.of(tmp_path / "broken.json")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(
            ({"phrases": {"city": wrong}}, "column 'city'")
            for wrong in ["in {0}", "in {", "blood pressure", {}, 3, {"a": 1}, {"a": ""}, "{x|y}"]
        ),
        ({"phrases": {"loans": "{} {a|b|c}"}}, "more plural forms"),
        *(
            ({name: wrong}, f"{name} must be a mapping")
            for name in ("titles", "units", "outcomes")
            for wrong in ("a", {"term": 3}, {"term": ""})
        ),
    ],
)
def test_unusable_words_are_refused(settings: dict[str, Any], message: str) -> None:
    """Phrases have one place for the number, and other words are texts."""
    with pytest.raises(SchemaError, match=message):
        Wording(**settings)


@pytest.mark.parametrize("scale", [0, -0.01, 1 / 60, 0.03, np.nan, np.inf, True, "0.01"])
def test_unit_refuses_other_scales(scale: Any) -> None:
    """A power of ten keeps round numbers round."""
    with pytest.raises(SchemaError, match="scale must be a power of ten"):
        Unit("EUR", scale=scale)


@pytest.mark.parametrize(
    ("part", "own", "text"),
    [
        (Interval(199000, 199000), 184550, "an income of €1,990 instead of €1,845.50"),
        (Interval(70, 90.0), -3, "an income of €0.70 to €0.90 instead of -€0.03"),
        (frozenset({None}), np.int32(101), "cents not stated instead of €1.01"),
    ],
)
def test_scaled_number_is_written_exactly(part: Part, own: Any, text: str) -> None:
    """Cents are said in euros, with all their digits."""
    units = {"cents": Unit("EUR", scale=0.01)}
    assert change("cents", part, own, Wording(titles={"cents": "an income"}, units=units)) == text


def test_scale_decides_plural_form() -> None:
    """A phrase, a count and a unit in words are those of the scaled number."""
    phrases = {"loans": "{} open {loan|loans}", "pay": "an income of {}"}
    units = {"loans": Unit("loan", 0.1), "tenths": Unit("month", 0.1), "pay": Unit("EUR", 0.01)}
    wording = Wording(phrases=phrases, units=units)
    assert change("loans", Interval(10, 10), 30, wording) == "one open loan instead of three"
    assert change("tenths", Interval(10, 10), 5, wording) == "tenths 1 month instead of 0.5"
    in_euros = "an income of €5 instead of €3"
    assert change("pay", Interval(500, 500), 300, wording) == in_euros


def test_language_has_its_plural_forms(tmp_path: Path) -> None:
    """A language with more than two forms brings its own rule."""
    file = tmp_path / "pl.json"
    file.write_text(json.dumps(polish()), "utf-8")
    words = {"loans": "{} {kredyt|kredyty|kredytów}"}
    wording = Wording(language=file, phrases=words, units={"term": "month"})
    forms = {1: "miesiąc", 2: "miesiące", 12: "miesięcy", 22: "miesiące", 1.5: "miesiąca"}
    for number, form in forms.items():
        assert wording.described("term", Interval(number, number)).endswith(f" {form}")
    assert wording.described("loans", Interval(3, 3)) == "trzy kredyty"
    assert wording.described("loans", Interval(7, 7)) == "7 kredytów"
    assert wording.described("town", frozenset("abcdef")).endswith(" i trzy inne")


@pytest.mark.parametrize("rule", ["n > 1", "n != 1 ? 3 : 0", "1 / n", "import os", "n ** 9", ""])
def test_plural_rule_is_checked(rule: str) -> None:
    """A rule is an expression that gives a category for every number."""
    content = polish()
    content["plurals"] = {"categories": ["other"], "rule": rule}
    with pytest.raises(SchemaError, match=r"plurals\.rule"):
        Language.of(content)
