"""A bank explains refusals without an explainer: the catalogue answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from cfk_plugin import Explanations, Population, ProtectedExplainer, Schema, protect
from worlds import World


@pytest.fixture
def explanations(private: ProtectedExplainer, refused: pd.DataFrame) -> Explanations:
    return private.explain(refused)


def test_every_refused_person_is_answered(explanations: Explanations) -> None:
    """Each of the eight people gets one answer, in the order of the queries."""
    assert [answer.query for answer in explanations] == list(range(8))
    assert explanations.withheld == ()


def test_table_without_private_columns_is_answered(applicants: World) -> None:
    """An attacker may know every column, so that a region is all there is to an answer."""
    schema = Schema.from_frame(
        applicants.table, **{**applicants.roles, "quasi_identifiers": list(applicants.strangers)}
    )
    population = Population.from_frame(applicants.table, schema)
    private = protect(
        model=applicants.model, population=population, k=10, desired=applicants.desired
    )
    answers = private.explain(applicants.strangers.head(40)).released
    assert answers
    assert all(answer.recount.k_consistent >= 10 for answer in answers)


def test_model_accepts_every_answer(
    explanations: Explanations, refused: pd.DataFrame, model: Any, after_advice: Callable
) -> None:
    """A person who changes what the answer names, and no more, gets the loan."""
    assert (model.predict(after_advice(refused, explanations)) == 1).all()


def test_k_people_match_every_answer(
    explanations: Explanations, model: Any, people_inside: Callable
) -> None:
    """At least ten people of the table fit the region and have the outcome themselves."""
    for answer in explanations.released:
        people = people_inside(answer)
        assert (model.predict(people) == 1).sum() >= 10
        assert 10 <= answer.certificate.k <= len(people)


def test_json_has_no_persons_income(explanations: Explanations, applicants: World) -> None:
    """What leaves the bank quotes nobody's income, which is different for each person."""
    text = explanations.to_json()
    assert len(json.loads(text)["explanations"]) == 8
    assert not [income for income in applicants.table["income"] if str(income) in text]


def test_same_question_same_answer(
    explanations: Explanations, private: ProtectedExplainer, refused: pd.DataFrame
) -> None:
    """To ask again, or alone, changes nothing."""
    assert private.explain(refused) == explanations
    alone = private.explain(refused.tail(1))[0]
    assert alone.cells() == explanations[7].cells()
