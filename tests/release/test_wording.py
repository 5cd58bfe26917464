"""What a person reads of a released entry, of a withheld one, and of a whole result."""

from __future__ import annotations

import pickle
import re
import runpy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cfk_plugin import Attribute, Interval, KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.data.wording import Language, Wording, shipped_languages
from cfk_plugin.errors import InputError, SchemaError
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.release.results import Withheld
from cfk_plugin.release.withheld import REASONS

TABLE = pd.DataFrame({"city": ["Ghent", "Namur"] * 4, "visits": [0, 1] * 4})
WORDS: dict[str, Any] = {
    "titles": {"city": "a home in"},
    "columns": {"visits": Attribute(phrases="{} {visit|visits}")},
    "outcomes": {True: "you would get a card"},
}


def answered(table: pd.DataFrame = TABLE, **words: Any) -> Explanations:
    """Return the answers of a small table whose model looks at visits alone."""
    schema = Schema.from_frame(table, quasi_identifiers=["city"], **words)
    population = Population.from_frame(table, schema)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2, guarantee="lookup"))
    anonymizer.fit(population, lambda rows: rows["visits"] > 0, desired=True)
    return anonymizer.transform(table.iloc[[1, 1]], factuals=table.iloc[[0, 1]])


def test_the_schema_says_how_an_answer_is_said() -> None:
    explanations = answered(**WORDS)
    told = (
        "You would get a card if two things were different: a home in “Namur” instead of “Ghent”;"
        " and one visit instead of none."
    )
    assert explanations.text(TABLE)[0] == told
    assert explanations[0].text(TABLE.loc[0]) == told  # type: ignore[union-attr]
    german = Wording(language="de")
    assert explanations.text(TABLE, german)[0] == (
        "Das Modell würde „ja“ vorhersagen, wenn zwei Angaben anders wären: city „Namur“ (bisher"
        " „Ghent“); und visits von 1 (bisher 0)."
    )


def test_nothing_declared_is_a_sentence_too() -> None:
    assert answered().text(TABLE)[0] == (
        "The model would predict “yes” if two things were different: city “Namur” instead of"
        " “Ghent”; and visits 1 instead of 0."
    )


def test_an_entry_is_printed_as_its_sentence_without_the_person() -> None:
    entry = answered(**WORDS)[0]
    assert str(entry) == "You would get a card with these values: a home in “Namur”; and one visit."
    assert str(entry) == entry.text()


def test_a_message_has_its_parts_apart() -> None:
    message = answered(**WORDS)[0].message(TABLE.loc[0])
    assert [change.column for change in message.changes] == ["city", "visits"]
    assert message.changes[1].text == "one visit instead of none"
    assert message.notes == ()
    assert str(message) == message.lead


def test_a_result_is_printed_as_a_table_with_k_first() -> None:
    lines = str(answered(**WORDS)[:1]).splitlines()
    assert lines[0] == "1 explanation: 1 released, 0 withheld"
    assert lines[1].split() == ["query", "status", "k", "ncp", "pureness", "city", "visits"]
    assert lines[2].split() == ["0", "released", "4", "0", "1", "Namur", "1"]


def test_a_long_or_wide_result_is_cut_and_wrapped() -> None:
    table = pd.DataFrame({f"column_{at}": range(40) for at in range(12)})
    schema = Schema.from_frame(table, quasi_identifiers=["column_0"])
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5))
    anonymizer.fit(Population.from_frame(table, schema), lambda rows: rows["column_1"] > 5, True)
    lines = str(anonymizer.explain(table.head(25))).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[-1] == "5 more are not shown"


def test_withheld_entries_have_a_text_for_customers_and_one_for_operators() -> None:
    entry = Withheld(0, "unknown_category", ("city",))
    assert str(entry) == entry.text() == (
        "We cannot explain the decision, because one of the values given to us cannot be used."
        " Please check them: city."
    )  # fmt: skip
    assert entry.text_for_operator() == (
        "unknown_category: a category that the population does not have (city); check the spelling,"
        " or build the population from the rows that the explainer uses"
    )
    german = Wording(language="de")
    assert entry.text(wording=german).endswith("Bitte prüfen Sie sie: city.")


def test_every_reason_has_both_texts_in_every_language() -> None:
    names = {reason.person_text_key for reason in REASONS.values()}
    for language in shipped_languages():
        assert names <= set(Language.of(language).sections["withheld"])
    for code, reason in REASONS.items():
        text = Withheld(0, code).text()
        assert "{" not in text
        assert reason.meaning not in text


def test_a_result_tells_withheld_entries_in_the_language_of_the_schema() -> None:
    schema = Schema.from_frame(TABLE, quasi_identifiers=["city"], language="de")
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2))
    anonymizer.fit(Population.from_frame(TABLE, schema), lambda rows: rows["visits"] > 0, True)
    elsewhere = TABLE.head(1).assign(city="Paris")
    (text,) = anonymizer.explain(elsewhere).text()
    assert text.startswith("Wir können die Entscheidung nicht erklären, weil eine der Angaben")


def test_what_the_schema_says_is_saved_and_pickled(tmp_path: Path) -> None:
    table = pd.DataFrame({"age": range(20, 60), "pay": range(40)})
    schema = Schema.from_frame(
        table, quasi_identifiers=["age"], titles={"pay": "pay"}, units={"pay": "EUR"}
    )
    population = Population.from_frame(table, schema)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5))
    anonymizer.fit(population, lambda rows: rows["pay"] > 4, desired=True)
    entry = anonymizer.explain(table.head(1)).generalized[0]
    assert pickle.loads(pickle.dumps(schema)) == schema
    anonymizer.catalogue_.save(tmp_path / "catalogue")
    loaded = KAnonymizer.load(tmp_path / "catalogue", lambda rows: rows["pay"] > 4)
    assert loaded.schema_ == schema
    assert loaded.schema_.wording == schema.wording
    again = loaded.explain(table.head(1))[0]
    assert again.text({"age": 20, "pay": 0}) == entry.text({"age": 20, "pay": 0})
    assert " instead of €0" in again.text({"age": 20, "pay": 0})


def test_the_script_that_is_type_checked_also_runs() -> None:
    script = runpy.run_path(str(Path(__file__).with_name("typed_use.py")))
    table = pd.DataFrame({"age": range(20, 80), "pay": range(30, 90)})
    said = script["letters"](table, table.head(2))
    assert len(said) == 2
    assert all("pay of €" in text for text in said), said


def test_words_for_a_column_that_is_not_there_are_refused() -> None:
    for words in ({"titles": {"town": "a"}}, {"units": {"town": "a"}}):
        with pytest.raises(SchemaError, match="titles and units: unknown column town"):
            answered(**words)


def test_outcomes_are_labels_of_the_model() -> None:
    schema = Schema.from_frame(TABLE, quasi_identifiers=["city"], outcomes={"Yes": "granted"})
    population = Population.from_frame(TABLE, schema)

    class Model:
        classes_ = ("no", "yes")

        def predict(self, rows: pd.DataFrame) -> Any:
            return rows["visits"].map({0: "no", 1: "yes"}).to_numpy()

    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2))
    with pytest.raises(SchemaError, match=r"no label 'Yes'; its labels are .*did you mean 'yes'"):
        anonymizer.fit(population, Model(), desired="yes")


def test_a_wording_is_no_code_of_a_language() -> None:
    explanations = answered()
    for text in (explanations.text, explanations[0].text, explanations[0].message):
        with pytest.raises(InputError, match="wording must be a Wording, got str; give Wording"):
            text(TABLE if text == explanations.text else TABLE.loc[0], "de")  # type: ignore[operator]


def test_sentences_need_the_queries_that_were_asked() -> None:
    table = pd.DataFrame({"age": range(20, 30), "pay": range(10)})
    schema = Schema.from_frame(table, quasi_identifiers=["age"])
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2, guarantee="lookup"))
    anonymizer.fit(Population.from_frame(table, schema), lambda rows: rows["pay"] > 4, desired=True)
    explanations = anonymizer.transform(table.tail(3), factuals=table.head(3))
    with pytest.raises(InputError, match="2 queries, and query 2 was answered"):
        explanations.text(table.head(2))
    with pytest.raises(InputError, match="missing columns"):
        explanations.text(table[["age"]])


def test_days_as_text_become_a_range_and_reach_the_model_as_they_were_written() -> None:
    days = pd.date_range("2020-01-01", periods=60).strftime("%Y-%m-%d").astype("string")
    table = pd.DataFrame({"since": days, "until": days[::-1], "pay": range(60)})
    asked: set[str] = set()

    def model(rows: pd.DataFrame) -> Any:
        asked.update(rows["since"], rows["until"])
        return rows["pay"] > 20

    population = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["since"]))
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(population, model, desired=True)
    entry = anonymizer.explain(table.head(1)).generalized[0]
    assert isinstance(entry.region["since"], Interval)
    assert " 2020 to " in entry.text()
    assert all(re.fullmatch(r"\d{4}-\d{2}-\d{2}", day) for day in asked)
