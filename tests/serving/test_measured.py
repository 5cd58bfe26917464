"""What an evaluation measures of prototypes: counts and their budget, no classes."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from cfk_plugin import Population, Schema, Withheld
from cfk_plugin.errors import InputError
from cfk_plugin.release.records import record_of
from cfk_plugin.serving.evaluator import Measured
from prototyped import COLUMNS, prototype, prototypes, unproven
from tracked import explanations


@pytest.fixture
def population() -> Population:
    rows = pd.DataFrame(
        {"age": range(20, 60), "city": ["Ghent", "Antwerp"] * 20, "salary": [30.5, 40] * 20}
    )
    return Population.from_frame(rows, Schema.from_frame(rows, quasi_identifiers=["age", "city"]))


def records_of(result: Any) -> list[dict[str, Any]]:
    return [record_of(entry, None, COLUMNS) for entry in result]


def test_prototypes_are_counted_with_their_budget(population: Population) -> None:
    measured = Measured.of_explanations(prototypes())
    counts = {
        "asked": 3,
        "released": 2,
        "withheld": 1,
        "prototypes": 2,
        "epsilon": 1.0,
        "delta": 0.0,
    }
    assert {name: measured.numbers[name] for name in counts} == counts
    assert "cfk.k_min" not in measured.metrics
    assert set(measured.tables) == {"released"}
    assert measured.risk is None
    assert "epsilon" not in Measured.of_explanations(unproven()).numbers


def test_records_of_prototypes_are_counted() -> None:
    measured = Measured.of_records(records_of(prototypes()), {})
    counts = {"asked": 3, "released": 2, "withheld": 1, "withheld_rate": pytest.approx(1 / 3)}
    assert measured.numbers == counts
    plotted = ("asked", "released", "withheld_rate")
    assert measured.metrics == {f"cfk.{name}": counts[name] for name in plotted}
    assert measured.tables["released"]["age"].tolist()[::2] == ["31", "44"]
    assert len(json.loads(measured.text)) == 3


def test_records_of_people_who_need_no_answer_are_not_in_the_share() -> None:
    result = prototypes(prototype(0), Withheld(1, "none_found"), Withheld(2, "already_desired"))
    measured = Measured.of_records(records_of(result), {})
    assert (measured.numbers["asked"], measured.numbers["withheld"]) == (3, 2)
    assert measured.numbers["withheld_rate"] == 1 / 2


@pytest.mark.parametrize("as_table", [False, True])
def test_a_model_with_a_k_must_say_it_of_every_record(as_table: bool) -> None:
    records: Any = records_of(explanations()) + records_of(prototypes())
    answer = pd.DataFrame(records) if as_table else records
    with pytest.raises(InputError, match="released a record without"):
        Measured.of_records(answer, {"cfk.k": "5"})
