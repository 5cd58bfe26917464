"""What a person reads of an answer or of a reason, in the words and the language of the schema."""

from __future__ import annotations

import copy
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cfk_plugin import Interval, KAnonymizer, Population, PrivacyPolicy, Schema, Unit
from cfk_plugin._files import read_schema
from cfk_plugin.data.wording import Language, Wording, shipped_languages
from cfk_plugin.errors import InputError, SchemaError
from cfk_plugin.release.results import Withheld
from cfk_plugin.release.withheld import REASONS

TABLE = pd.DataFrame({"age": range(20, 60), "city": ["Ghent", "Namur"] * 20, "pay": range(40)})


def is_rich(rows: pd.DataFrame) -> Any:
    return rows["pay"] > 20


def fit(model: Any = is_rich, desired: Any = True, **words: Any) -> KAnonymizer:
    schema = Schema.from_frame(TABLE, quasi_identifiers=["age", "city"], **words)
    population = Population.from_frame(TABLE, schema)
    return KAnonymizer(policy=PrivacyPolicy(k=5)).fit(population, model, desired)


def test_reader_learns_what_to_check() -> None:
    """A customer reads the column without the reason's code, an operator reads both."""
    entry = Withheld(0, "unknown_category", ("city",))
    assert "city" in entry.text()
    assert "city" in entry.text(wording=Wording(language="de"))
    assert entry.text() != entry.text(wording=Wording(language="de"))
    assert "unknown_category" not in entry.text()
    assert entry.text_for_operator().startswith("unknown_category: ")


@pytest.mark.parametrize("code", REASONS)
def test_reason_has_texts_in_every_language(code: str) -> None:
    """They differ from what an operator reads."""
    for language in shipped_languages():
        assert REASONS[code].person_text_key in Language.of(language).sections["withheld"]
        text = Withheld(0, code).text(wording=Wording(language=language))
        assert "{" not in text
        assert REASONS[code].meaning not in text


def test_withheld_speaks_the_schemas_language() -> None:
    """Without a query, too, and beside answers in this language."""
    anonymizer = fit(language="de")
    explanations = anonymizer.explain(TABLE.head(2).assign(city=["Paris", "Namur"]))
    texts = explanations.text()
    assert texts[0] == Withheld(0, "unknown_category", ("city",)).text(
        wording=Wording(language="de")
    )
    assert texts[1].startswith("Das Modell")


@pytest.mark.parametrize("titles", [{}, {"city": "ein Wohnort"}])
def test_withheld_names_titles_of_columns(titles: dict[str, str]) -> None:
    """Alone, in a copy and in a list, a withheld explanation has the words of the schema."""
    explanations = fit(language="de", titles=titles).explain(TABLE.head(2).assign(city="Paris"))
    title = titles.get("city", "city")
    for text in (*explanations.text(), str(explanations[0]), str(copy.copy(explanations[1]))):
        assert text.startswith("Wir können die Entscheidung nicht erklären")
        assert f"Angaben: {title}. " in text
    assert "(city)" in explanations[0].text_for_operator()
    assert explanations.without_record()[0].text().startswith("Wir können")


def test_words_are_saved_with_the_catalogue(tmp_path: Path) -> None:
    """A loaded catalogue says the same."""
    anonymizer = fit(titles={"pay": "a salary"}, units={"pay": "EUR"})
    anonymizer.catalogue_.save(tmp_path / "catalogue")
    loaded = KAnonymizer.load(tmp_path / "catalogue", is_rich)
    texts = loaded.explain(TABLE.head(1)).text(TABLE)
    assert texts == anonymizer.explain(TABLE.head(1)).text(TABLE)
    assert "a salary of €" in texts[0]


def test_scale_is_kept_by_files(tmp_path: Path) -> None:
    """The schema's and the catalogue's files have it; tables keep the numbers."""
    file = tmp_path / "schema.json"
    units = {"pay": {"name": "EUR", "scale": 0.01}}
    file.write_text(json.dumps({"quasi_identifiers": ["age", "city"], "units": units}), "utf-8")
    schema = read_schema(file, TABLE)
    assert schema.wording.units["pay"] == Unit("EUR", scale=0.01)
    population = Population.from_frame(TABLE, schema)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(population, is_rich, True)
    anonymizer.catalogue_.save(tmp_path / "catalogue")
    explanations = KAnonymizer.load(tmp_path / "catalogue", is_rich).explain(TABLE.head(1))
    assert "pay €0.2" in explanations.text(TABLE)[0]
    assert explanations.to_frame()["pay_value"][0] > 20
    assert float(explanations.to_frame(text=True)["pay"][0]) > 20


def test_type_checked_script_runs() -> None:
    """What the type checker reads works."""
    script = runpy.run_path(str(Path(__file__).with_name("typed_use.py")))
    table = pd.DataFrame({"age": range(20, 80), "pay": range(30, 90)})
    texts = script["letters"](table, table.head(2))
    assert len(texts) == 2
    assert all("pay of €" in text for text in texts)


def test_words_need_their_column() -> None:
    """The error names it."""
    with pytest.raises(SchemaError, match="town"):
        fit(units={"town": "EUR"})


def test_outcomes_are_labels_of_the_model() -> None:
    """A misspelt one is refused at the fit."""

    class Model:
        classes_ = ("no", "yes")

        def predict(self, rows: pd.DataFrame) -> Any:
            return is_rich(rows).map({False: "no", True: "yes"}).to_numpy()

    with pytest.raises(SchemaError, match="did you mean 'yes'"):
        fit(Model(), "yes", outcomes={"Yes": "granted"})


def test_language_is_no_wording() -> None:
    """A language is part of a wording."""
    explanations = fit().explain(TABLE.head(1))
    with pytest.raises(InputError, match="Wording"):
        explanations.text(TABLE, "de")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Wording"):
        explanations[0].text(TABLE.loc[0], "de")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("queries", "problem"),
    [(TABLE.head(2), "2 queries"), (TABLE[["age"]], "missing columns")],
)
def test_sentences_need_the_queries(queries: pd.DataFrame, problem: str) -> None:
    """As many as were answered, with all columns."""
    with pytest.raises(InputError, match=problem):
        fit().explain(TABLE.head(3)).text(queries)


def test_days_as_text_become_ranges() -> None:
    """The model still gets them as they were written."""
    days = pd.date_range("2020-01-01", periods=60).strftime("%Y-%m-%d").astype("string")
    table = pd.DataFrame({"since": days, "until": days[::-1], "pay": range(60)})
    days_of_model: set[str] = set()

    def model(rows: pd.DataFrame) -> Any:
        days_of_model.update(rows["since"], rows["until"])
        return is_rich(rows)

    population = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["since"]))
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(population, model, desired=True)
    answer = anonymizer.explain(table.head(1)).released[0]
    assert isinstance(answer.region["since"], Interval)
    assert " 2020 to " in answer.text()
    assert all(re.fullmatch(r"\d{4}-\d{2}-\d{2}", day) for day in days_of_model)
