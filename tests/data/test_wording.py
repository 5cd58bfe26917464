"""How values, units, outcomes and whole answers are written, in English and German."""

from __future__ import annotations

import copy
import datetime as dt
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
        ("term", Interval(1, 1), 48, "a loan term of 1 month instead of 48"),
        ("term", Interval(24.0, 36.0), np.int64(48), "a loan term of 24 to 36 months instead of 48"),
        ("amount", Interval(1500, 1500), 900, "a loan amount of €1,500 instead of €900"),
        ("amount", Interval(25.5, 25.5), 0, "a loan amount of €25.50 instead of €0"),
        ("amount", Interval(1, 2000), -3, "a loan amount of €1 to €2,000 instead of -€3"),
        ("rate", Interval(0.07, 0.07), 0.12, "a rate of 7% instead of 12%"),
        ("fee", Interval(5, 7), 12.5, "fee 5% to 7% instead of 12.5%"),
        ("fee", frozenset({None}), 12.5, "fee not stated instead of 12.5%"),
        ("bp", Interval(84, 84), 90, "bp 84 mmHg instead of 90"),
        # Numbers stand as they were released, and long ones are grouped.
        ("gain", Interval(25500, 25500), 0, "gain 25,500 instead of 0"),
        ("built", Interval(2019, 2019), 1998, "built 2019 instead of 1998"),
        ("score", Interval(0.001, 0.30000000000000004), 1, "score 0.001 to 0.30000000000000004 instead of 1"),
        ("score", Interval(1e-07, 1e-07), 1e22, "score 0.0000001 instead of 10,000,000,000,000,000,000,000"),
        # Counts in words, singular and plural.
        ("loans", Interval(2, 2), 3, "two open loans instead of three"),
        ("loans", Interval(1, 1), 2, "one open loan instead of two"),
        ("loans", Interval(0, 0), 1, "no open loans instead of one"),
        ("loans", Interval(2, 2), 0, "two open loans instead of none"),
        ("loans", Interval(13, 13), 40, "13 open loans instead of 40"),
        ("loans", Interval(2, 4), 7, "2 to 4 open loans instead of seven"),
        # Categories: words of their own stand alone.
        ("account", frozenset({"A14"}), "A11", "no current account instead of an overdrawn current account"),
        ("account", frozenset({"A14"}), "A99", "no current account instead of “A99”"),
        ("home", frozenset({"Ghent"}), "Namur", "a home in “Ghent” instead of “Namur”"),
        ("job", frozenset({"skilled"}), "none", "work “skilled” instead of “none”"),
        ("telephone", frozenset({True}), False, "telephone “yes” instead of “no”"),
        ("zip_code", frozenset({9000}), 10000, "zip code 9000 instead of 10000"),
        ("city", frozenset({"C", "A", "B"}), "D", "city “A”, “B” or “C” instead of “D”"),
        ("city", frozenset("ABCDE"), "Z", "city “A”, “B”, “C” or one of two more instead of “Z”"),
        ("city", frozenset("ABCD"), "Z", "city “A”, “B”, “C” or “D” instead of “Z”"),
        ("class", Interval(1, 2), 3, "a good class to a fair class instead of a poor class"),
        ("class", Interval(2, 2), 1, "a fair class instead of a good class"),
        # A value without words is said as if no words were declared.
        ("account", frozenset({"A99"}), "A11", "account “A99” instead of an overdrawn current account"),
        ("account", frozenset({"A14", "A99"}), "A11", "account “A14” or “A99” instead of an overdrawn current account"),
        ("arrears", Interval(410, 410), 2300, "rent arrears of €410 instead of €2,300"),
        ("arrears", Interval(0, 0), 2300, "no arrears instead of €2,300"),
        ("arrears", Interval(410, 500), 0, "rent arrears of €410 to €500 instead of no arrears"),
        ("weeks", Interval(0, 0), 3, "no waiting instead of 3 weeks"),
        # Levels.
        ("level", Interval("b", "c", levels=("b", "c")), "a", "level “b” or “c” instead of “a”"),
        ("level", Interval("b", "e", levels=("b", "c", "d", "e")), "a", "level “b” to “e” instead of “a”"),
        # Dates as people write them, also days as text.
        ("since", Interval(DAY, DAY), "2020-02-01", "since 31 December 2024 instead of 1 February 2020"),
        ("since", frozenset({"2024-12-31"}), pd.Timestamp("2020-02-01 14:05"),
         "since 31 December 2024 instead of 1 February 2020, 14:05"),
        ("since", frozenset({"2024-12-31"}), "0000-00-00", "since 31 December 2024 instead of “0000-00-00”"),
        ("since", Interval(DAY, DAY), pd.Timestamp("2020-02-01 10:00:00+00:00"),
         "since 31 December 2024 instead of 1 February 2020, 10:00"),
        ("since", Interval(MIDNIGHT, MIDNIGHT), pd.Timestamp("2020-02-01 10:00:30+01:00"),
         "since 31 December 2024 instead of 1 February 2020, 10:00:30+01:00"),
        ("since", Interval(MIDNIGHT, MIDNIGHT), pd.Timestamp("2020-01-31 23:00:00+00:00"),
         "since 31 December 2024 instead of 1 February 2020"),
        ("since", Interval(DAY, DAY), np.datetime64("2020-02-01T00:00:00.000000000"),
         "since 31 December 2024 instead of 1 February 2020"),
        ("since", frozenset({dt.date(2024, 12, 31)}), "2020-02-01 00:00:00",
         "since 31 December 2024 instead of 1 February 2020"),
        ("since", Interval("2024-12-31", "2024-12-31", levels=("2024-12-31",)), "2020-02-01",
         "since 31 December 2024 instead of 1 February 2020"),
        ("loans", frozenset({1}), 2, "one open loan instead of two"),
        ("amount", Interval(-0.0, -0.0), 3, "a loan amount of €0 instead of €3"),
        ("level", Interval("1", "2", levels=("1", "2")), 3, "level “1” or “2” instead of “3”"),
        # What is missing.
        ("term", Interval(24, 24), np.nan, "a loan term of 24 months (you did not state this)"),
        ("term", Interval(24, 36, missing=True), 48, "a loan term of 24 to 36 months or not stated instead of 48"),
        ("savings", frozenset({None}), "low", "savings not stated instead of “low”"),
        ("term", Interval(None, None, missing=True), 3, "term not stated instead of 3"),
        # A column called age needs no declaration.
        ("age", Interval(24, 27), 21, "an age of 24 to 27 years instead of 21"),
    ],
)  # fmt: skip
def test_a_change_in_words(column: str, part: Part, own: Any, text: str) -> None:
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
def test_a_change_in_german(column: str, part: Part, own: Any, text: str) -> None:
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


def test_levels_without_words_are_stated_by_their_names() -> None:
    words = {"low": "a basic school", "high": "a high school"}
    schools = Interval("low", "high", False, ("low", "mid", "high"))
    wording = Wording(phrases={"school": words})
    assert wording.described("school", schools) == "school “low”, “mid” or “high”"
    wording = Wording(phrases={"school": {**words, "mid": "a middle school"}})
    in_words = "a basic school, a middle school or a high school"
    assert wording.described("school", schools) == in_words


def test_the_number_of_changes_decides_the_sentence() -> None:
    def of(*columns: str) -> str:
        return said({name: PARTS[name] for name in columns}, PERSON)

    assert of("term") == (
        "Your loan would be approved if one thing were different: a loan term of 24 months instead"
        " of 48."
    )
    assert of("loans", "term") == (
        "Your loan would be approved if two things were different: a loan term of 24 months instead"
        " of 48; and two open loans instead of three."
    )
    assert of("loans", "term", "account", "amount") == (
        "Your loan would be approved if all four of these were different: no current account instead"
        " of an overdrawn current account; a loan term of 24 months instead of 48; two open loans"
        " instead of three; and a loan amount of €900 instead of €1,000."
    )


def test_words_that_name_their_opposite_are_said_once() -> None:
    wording = Wording(phrases={"angina": {"yes": "angina", "no": "no angina"}, "n": "{} {n|n}"})
    assert change("angina", frozenset({"no"}), "yes", wording) == "no angina"
    assert change("angina", frozenset({"yes"}), "no", wording) == "angina"
    # Numbers are always said.
    assert change("m", Interval(24, 24), 4, wording) == "m 24 instead of 4"
    assert change("n", Interval(24, 24), 14, wording) == "24 n instead of 14"


def test_what_nobody_can_choose_is_no_change() -> None:
    both = said({name: PARTS[name] for name in ("term", "age")}, PERSON)
    assert both == (
        "Your loan would be approved if one thing were different: a loan term of 24 months instead"
        " of 48. This also needs something that nobody can choose: an age of 38 to 63 years instead"
        " of 24."
    )
    assert said({"age": PARTS["age"]}, PERSON) == (
        "We cannot name a change open to you. Your loan would be approved only if something were"
        " different that nobody can choose: an age of 38 to 63 years instead of 24."
    )


def test_what_the_person_has_already_is_left_out_in_any_dtype() -> None:
    parts: dict[str, Part] = {
        "zip": frozenset({9000}),
        "term": Interval(20, 30),
        "note": frozenset({None}),
    }
    person = {"zip": "9000", "term": np.float32(25), "note": np.nan}
    assert said(parts, person) == "Your loan would be approved without any change."


def test_without_the_person_everything_is_named_but_what_is_known_to_stay() -> None:
    parts = {name: PARTS[name] for name in ("term", "loans", "amount")}
    assert said(parts, None) == (
        "Your loan would be approved with these values: a loan term of 24 months; two open loans;"
        " and a loan amount of €900."
    )
    assert said(parts, None, unchanged=("loans", "amount")) == (
        "Your loan would be approved with these values: a loan term of 24 months. Everything else"
        " stays as it is."
    )
    assert (
        said(parts, None, unchanged=tuple(parts))
        == "Your loan would be approved without any change."
    )


def test_a_note_says_for_how_much_of_the_region_it_is_true() -> None:
    text = said({"term": PARTS["term"]}, PERSON, pureness=0.99999)
    assert text.endswith(
        " instead of 48. This is true of 99.9% of the combinations of these values."
    )


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


def test_a_sentence_names_the_advised_value() -> None:
    """A column that keeps its value is left out, and there is no note on combinations."""
    assert said(person=BORROWER, **ADVISED) == (
        "Your loan would be approved if one thing were different: a loan amount of €900 instead of"
        " €1,000. This also needs something that nobody can choose: an age of 38 years instead of"
        " 27."
    )


def test_another_advised_value_is_a_change_inside_the_region() -> None:
    person = BORROWER | {"age": 38, "city": "Ghent", "amount": 900}
    assert said(person=person, **ADVISED) == (
        "Your loan would be approved if one thing were different: city “Namur” instead of “Ghent”."
    )


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", ": an age of 36 to 50 years; city “Flanders”, or your own; and amount 900. "),
        ("de", ": ein Alter von 36 bis 50 Jahren; city „Flanders“ oder Ihr eigener Wert; und "),
    ],
)
def test_a_region_without_the_point_adds_your_own(language: str, text: str) -> None:
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


def test_note_lists_what_is_enough_together() -> None:
    """The reason for the other numbers is given once."""
    parts = {name: PARTS[name] for name in ("term", "amount")}
    person = {"term": 48, "amount": 1900}
    text = said(parts, person, least={"term": 36, "amount": 950}, advised={"term": 24})
    assert text.endswith(
        " and a loan term of 24 months instead of 48. A loan amount of €950 and a loan term of 36"
        " months would together be enough today; the values above would leave some room if the model is"
        " trained again."
    )


def test_note_names_other_changes() -> None:
    """What is enough today is enough only if the other changes are made as advised."""
    parts = {name: PARTS[name] for name in ("term", "amount")}
    text = said(parts, {"term": 48, "amount": 1900}, least={"term": 36}, advised={"term": 24})
    assert "36 months would be enough today, with the other changes above; 24 months" in text


def test_a_hierarchy_node_stands_for_its_values() -> None:
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
def test_outcomes(outcome: Outcome, clause: str) -> None:
    assert LOAN.outcome(outcome) == clause
    for_all = Wording(outcomes={"*": "you would pay less"})
    assert for_all.outcome(outcome) == "you would pay less"


def test_labels_are_known_in_any_spelling() -> None:
    wording = Wording(outcomes={1: "approved", "0": "refused"})
    assert wording.outcome(Outcome(1)) == wording.outcome(Outcome(1.0)) == "approved"
    assert wording.outcome(Outcome(0)) == "refused"


def test_the_largest_changes_come_first() -> None:
    answer = Answer(
        parts={
            "a": Interval(99, 99),
            "b": Interval(50, 60),
            "c": frozenset({"x"}),
            "d": Interval(0, 0),
        },
        outcome=Outcome(1),
        nodes={},
    )
    person = {"a": 100, "b": 100, "c": "y", "d": 0.5}
    found = changes_of(answer, person, Wording())
    assert [(each.column, each.size) for each in found] == [
        ("c", 1),
        ("d", 1),
        ("b", 0.4),
        ("a", 0.01),
    ]


def test_a_text_among_numbers_is_a_large_change() -> None:
    answer = Answer(parts={"a": Interval(0, 0)}, outcome=Outcome(1), nodes={})
    (change,) = changes_of(answer, {"a": "abc"}, Wording())
    assert (change.text, change.size) == ("a 0 instead of “abc”", 1.0)


def test_equal_languages_have_equal_hashes() -> None:
    copied = {**ENGLISH, "language": "xx"}
    again = json.loads(json.dumps(copied))
    assert Language.of(copied) != Language.of("en")
    assert Language.of(copied) == Language.of(again)
    assert hash(Language.of(copied)) == hash(Language.of(again))


def test_wordings_are_compared_copied_and_written() -> None:
    again = Wording.from_plain(json.loads(json.dumps(LOAN.to_plain())))
    assert again == LOAN == pickle.loads(pickle.dumps(LOAN))
    assert hash(again) == hash(LOAN)
    assert Wording() != LOAN


def test_a_language_is_a_file(tmp_path: Path) -> None:
    assert shipped_languages() == ("de", "en")
    content = Language.of("en").to_plain()
    assert content == "en"
    own = json.loads(json.dumps(ENGLISH))
    own["language"] = "plain"
    own["answers"]["one"] = "{Outcome} if you change {changes}."
    file = tmp_path / "plain.json"
    file.write_text(json.dumps(own), "utf-8")
    wording = Wording(language=file)
    assert said({"term": Interval(1, 1)}, {"term": 2}, wording) == (
        "The model would predict “good” if you change term 1 instead of 2."
    )
    # A bundle takes it along, as the file may not be there where it is opened.
    file.unlink()
    assert Wording.from_plain(wording.to_plain()) == wording == pickle.loads(pickle.dumps(wording))


def test_languages_have_the_same_texts_and_places() -> None:
    english = Language.of("en").sections
    for code in shipped_languages():
        other = Language.of(code).sections
        assert set(other) == set(english)
        for section in ("values", "changes", "outcomes", "answers", "withheld", "units"):
            assert set(other[section]) == set(english[section]), (code, section)


def test_what_is_no_language_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"no such language .* de, en, or the path"):
        Wording(language="fr")
    with pytest.raises(SchemaError, match="language must be one of de, en"):
        Wording(language=3)
    content = json.loads(
        (Path(__file__).parents[2] / "cfk_plugin/languages/de.json").read_text("utf-8")
    )
    content["answers"]["one"] = "{Outcome}: {canges}"
    with pytest.raises(SchemaError, match=r"answers.one has unknown placeholders; .*\{changes\}"):
        Language.of(content)
    for text in ("{Outcome} {changes", "{Outcome} {changes} {}", "{ {changes}"):
        content["answers"]["one"] = text
        with pytest.raises(SchemaError, match=r"answers\.one has unknown placeholders"):
            Language.of(content)
    # A copy of the English file is checked as any other.
    english = json.loads(json.dumps(ENGLISH))
    english["dates"]["day"] = "{dya}"
    with pytest.raises(SchemaError, match=r"dates\.day has unknown placeholders"):
        Language.of(english)
    del content["answers"]["one"]
    with pytest.raises(SchemaError, match="answers lacks one; begin with a copy of"):
        Language.of(content)
    (tmp_path / "broken.json").write_text("{", "utf-8")
    with pytest.raises(SchemaError, match="cannot be read as JSON"):
        Language.of(tmp_path / "broken.json")


@pytest.mark.parametrize(
    "wrong", ["in {0}", "in {", "blood pressure", {}, 3, {"a": 1}, {"a": ""}, "{x|y}", "{} {x}"]
)
def test_a_phrase_that_cannot_be_filled_is_refused(wrong: Any) -> None:
    with pytest.raises(SchemaError, match="column 'city': a phrase is a text such as"):
        Wording(phrases={"city": wrong})


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


def test_language_file_has_its_plural_forms(tmp_path: Path) -> None:
    """A language with more than two forms brings its own rule."""
    file = tmp_path / "pl.json"
    file.write_text(json.dumps(polish()), "utf-8")
    words = {"loans": "{} {kredyt|kredyty|kredytów}"}
    wording = Wording(language=file, phrases=words, units={"term": "month"})
    forms = {1: "miesiąc", 2: "miesiące", 12: "miesięcy", 22: "miesiące", 1112: "miesięcy"}
    for number, form in forms.items():
        assert wording.described("term", Interval(number, number)).endswith(f"{number} {form}")
    assert wording.described("term", Interval(1.5, 1.5)).endswith(" 1,5 miesiąca")
    assert wording.described("term", Interval(2, 5)).endswith(" 2 do 5 miesięcy")
    assert wording.described("loans", Interval(3, 3)) == "trzy kredyty"
    assert wording.described("loans", Interval(7, 7)) == "7 kredytów"
    assert wording.described("town", frozenset("abcdef")).endswith(" i trzy inne")
    assert wording.described("town", frozenset("abcdefgh")).endswith(" i 5 innych")
    assert Wording.from_plain(wording.to_plain()) == wording


@pytest.mark.parametrize("rule", ["n > 1", "n != 1 ? 3 : 0", "1 / n", "import os", "n ** 9", ""])
def test_plural_rule_is_checked(rule: str) -> None:
    """A rule is an expression that gives a category for every number."""
    content = polish()
    content["plurals"] = {"categories": ["other"], "rule": rule}
    with pytest.raises(SchemaError, match=r"plurals\.rule"):
        Language.of(content)


def test_unit_refuses_unknown_plural_category() -> None:
    """A text that is never used is probably a mistake."""
    content = copy.deepcopy(ENGLISH)
    content["units"]["month"]["few"] = "{} months"
    with pytest.raises(SchemaError, match=r"units\.month has the form 'few'"):
        Language.of(content)


def test_phrase_refuses_superfluous_forms() -> None:
    """English has two forms."""
    with pytest.raises(SchemaError, match="more plural forms"):
        Wording(phrases={"loans": "{} {a|b|c}"})


@pytest.mark.parametrize("name", ["titles", "units", "outcomes"])
@pytest.mark.parametrize("wrong", ["a", {"term": 3}, {"term": ""}])
def test_words_are_texts(name: str, wrong: Any) -> None:
    with pytest.raises(SchemaError, match=f"{name} must be a mapping"):
        Wording(**{name: wrong})
