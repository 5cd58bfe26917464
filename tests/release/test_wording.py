"""Sentences for numbers, sets, dates and missing values."""

from __future__ import annotations

import copy
import pickle
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Interval, KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.data.region import Phrase, sentence
from cfk_plugin.errors import InputError, SchemaError

END = ", the outcome would be the desired one."


@pytest.mark.parametrize(
    ("part", "value", "text"),
    [
        (Interval(24, 27), 21, "were 3–6 years older"),
        (Interval(24, 27), 30, "were 3–6 years younger"),
        (Interval(24.0, 27.0), np.int64(21), "were 3–6 years older"),
        (Interval(24, 24), 21, "were 3 years older"),
        (Interval(22, 22), 21, "were 1 year older"),
        (Interval(22.0, 22.0), 23.0, "were 1 year younger"),
        (Interval(22, 23), 21, "were 1–2 years older"),
        (Interval(1, 1), np.nan, "were 1 year of age"),
        (Interval(0.3, 0.3), 0.1, "were 0.2 years older"),
        (Interval(24, 27), np.nan, "were 24–27 years of age"),
        (Interval(24, 27, missing=True), 21, "were 24–27 or missing years of age"),
    ],
)
def test_age(part, value, text):
    assert sentence({"age": part}, {"age": value}) == f"If you {text}{END}"


def test_sets_levels_and_dates():
    parts = {
        "city": frozenset({"Ghent", "Antwerp"}),
        "home_type": frozenset({None}),
        "level": Interval("mid", "high", levels=("mid", "high")),
        "day": Interval(pd.Timestamp("2020-01-01"), pd.Timestamp("2021-01-01")),
    }
    told = sentence(
        parts,
        {"city": "Namur", "home_type": "flat", "level": "low", "day": pd.Timestamp("2019-01-01")},
    )
    assert told == (
        "If your city were Antwerp or Ghent, your home type were missing, your level were mid–high and "
        f"your day were between 2020-01-01 and 2021-01-01{END}"
    )


def test_what_fits_is_left_out_in_any_dtype():
    parts = {"zip": frozenset({9000}), "age": Interval(20, 30), "note": frozenset({None})}
    fits = {"zip": "9000", "age": np.float32(25), "note": np.nan}
    assert sentence(parts, fits).startswith("Nothing")


def test_what_is_withheld_is_named_at_the_end():
    told = {"home_type": frozenset({"flat"}), "age": Interval(20, 30)}
    assert sentence(told, {"home_type": "house", "age": 21}, withheld=("net_pay",)) == (
        "If your home type were flat, the outcome would be the desired one (withheld: net pay)."
    )
    fits = sentence(told, {"home_type": "flat", "age": 21}, withheld=("net_pay", "job", "debt"))
    assert fits == (
        "Nothing in these attributes needs to change for the desired outcome (withheld: net pay, job and debt)."
    )


def test_own_phrases_follow_you_and_stand_first():
    phrases = {"pay": Phrase("earned {} more", "earned {} less", "earned {}")}
    parts = {"race": frozenset({"Other"}), "pay": Interval(60, 60), "age": Interval(30, 40)}
    told = sentence(parts, {"race": "A", "pay": 50, "age": 20}, phrases)
    assert told == f"If you earned 10 more, were 10–20 years older and your race were Other{END}"


def test_only_a_missing_value_is_said_to_be_missing():
    for part in (Interval(None, None, missing=True), frozenset({None})):
        told = sentence({"net_pay": part}, {"net_pay": 1}, {"net_pay": Phrase("", "", "earned {}")})
        assert told == f"If your net pay were missing{END}"


def test_without_the_person_all_of_it_is_said():
    parts = {"age": Interval(20, 30), "city": frozenset({"Ghent"})}
    assert sentence(parts, None) == f"If you were 20–30 years of age and your city were Ghent{END}"


@pytest.mark.parametrize(
    "given", [Phrase("", "", "lived in {}"), "lived in {}", {"equal": "lived in {}"}]
)
def test_the_schema_says_how_a_change_is_said(given):
    table = pd.DataFrame({"city": ["Ghent", "Namur"] * 4, "visits": [0, 1] * 4})
    visits = {"more": "came {} {time|times} more"}
    schema = Schema.from_frame(
        table, quasi_identifiers=["city"], phrases={"city": given, "visits": visits}
    )
    population = Population.from_frame(table, schema)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2)).fit(
        population, lambda rows: rows["visits"] > 0, desired=True
    )
    explanations = anonymizer.transform(table.iloc[[1, 1]], factuals=table.iloc[[0, 1]])
    told = f"If you lived in Namur and came 1 time more{END}"
    assert explanations.text(table) == [
        told,
        "The model already gives the desired outcome: nothing needs to change.",
    ]
    nothing = "Nothing in these attributes needs to change for the desired outcome."
    assert explanations[0].text(table.loc[1]) == nothing
    assert explanations[0].text(table.loc[0]) == told
    assert explanations.text()[0] == f"If you lived in Namur and your visits were 1{END}"
    assert (
        explanations[0]
        .text(table.loc[0], {"city": Phrase("", "", "moved to {}")})
        .startswith("If you moved to Namur")
    )


def test_what_the_schema_says_is_sealed_and_pickled_and_groups_are_not(tmp_path):
    table = pd.DataFrame({"age": range(20, 60), "pay": range(40)})
    schema = Schema.from_frame(
        table, quasi_identifiers=["age"], phrases={"pay": {"more": "earned {} more"}}
    )
    population = Population.from_frame(table, schema)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5, guarantee="reciprocal"))
    anonymizer.fit(population, lambda rows: rows["pay"] > 4, desired=True)
    entry = anonymizer.transform(table.tail(1))[0]
    assert entry.telling.bars(entry.region)
    assert not copy.deepcopy(entry.telling).bars(entry.region)
    assert pickle.loads(pickle.dumps(schema)).telling.phrases == schema.telling.phrases
    anonymizer.seal(tmp_path / "sealed.cfk")
    opened = Population.open(tmp_path / "sealed.cfk")
    assert opened.schema == schema
    again = (
        KAnonymizer()
        .fit(opened, lambda rows: rows["pay"] > 4, desired=True)
        .transform(table.tail(1))[0]
    )
    assert again.text({"age": 59, "pay": 0}) == entry.text({"age": 59, "pay": 0})
    assert "earned 39 more" in again.text({"age": 59, "pay": 0})


def test_the_script_that_is_type_checked_also_runs():
    script = runpy.run_path(str(Path(__file__).with_name("typed_use.py")))
    table = pd.DataFrame({"age": range(20, 80), "pay": range(30, 90)})
    said = script["letters"](table, table.head(2))
    assert len(said) == 2
    assert all("earned 2" in text or "earned 3" in text for text in said), said


@pytest.mark.parametrize(
    "wrong",
    ["in {0}", "in {", "blood pressure", {"equal": "lower"}, {"same": "x"}, {}, 3, {"more": 1}],
)
def test_a_phrase_that_cannot_be_filled_is_refused(wrong):
    table = pd.DataFrame({"city": ["a", "b"]})
    with pytest.raises(SchemaError, match="'city': a phrase is a text such as"):
        Schema.from_frame(table, quasi_identifiers=["city"], phrases={"city": wrong})


def test_sentences_need_the_queries_that_were_asked():
    table = pd.DataFrame({"age": range(20, 30), "pay": range(10)})
    schema = Schema.from_frame(table, quasi_identifiers=["age"])
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2, guarantee="reciprocal"))
    anonymizer.fit(Population.from_frame(table, schema), lambda rows: rows["pay"] > 4, desired=True)
    explanations = anonymizer.transform(table.tail(3), factuals=table.head(3))
    with pytest.raises(InputError, match="2 queries, and query 2 was answered"):
        explanations.text(table.head(2))
    with pytest.raises(InputError, match="missing columns"):
        explanations.text(table[["age"]])


def test_days_as_text_become_a_range_and_reach_the_model_as_they_were_written():
    days = pd.date_range("2020-01-01", periods=60).strftime("%Y-%m-%d").astype("string")
    table = pd.DataFrame({"since": days, "until": days[::-1], "pay": range(60)})
    asked: set[str] = set()

    def model(rows):
        asked.update(rows["since"], rows["until"])
        return rows["pay"] > 20

    population = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["since"]))
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5, private_values="exact")).fit(
        population, model, desired=True
    )
    entry = anonymizer.transform(table.tail(1))[0]
    assert isinstance(entry.region["since"], Interval)
    assert "your since were between 2020-0" in entry.text()
    assert asked | {entry.released["until"]} <= {*days}
