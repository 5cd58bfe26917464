"""Answers ask for nothing that a person cannot change, or has ruled out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from cfk_plugin import Explanations, KAnonymizer, Population, ProtectedExplainer, Schema
from worlds import World

Ask = Callable[..., tuple[pd.DataFrame, pd.DataFrame]]


@pytest.fixture
def ask(private: ProtectedExplainer, refused: pd.DataFrame, after_advice: Callable) -> Ask:
    """Return a function that asks under rules: the people before the advice, and after it."""

    def before_and_after(**rules: object) -> tuple[pd.DataFrame, pd.DataFrame]:
        explanations: Explanations = private.explain(refused, **rules)
        before = refused.iloc[[answer.query for answer in explanations.released]]
        assert len(before) >= 2
        return before.reset_index(drop=True), after_advice(refused, explanations)

    return before_and_after


def test_immutable_column_stays(ask: Ask) -> None:
    """The schema says that nobody moves to another town."""
    before, after = ask()
    assert after["town"].equals(before["town"])


def test_monotone_column_goes_one_way(
    applicants: World, ask: Ask, refused: pd.DataFrame, after_advice: Callable
) -> None:
    """Nobody is asked for more income if it can only fall; without the rule, some are."""
    before, after = ask()
    assert (after["income"] > before["income"]).any()
    population = applicants.declare(monotone={"income": "decrease"})
    explanations = applicants.fit(population=population).explain(refused)
    before = refused.iloc[[answer.query for answer in explanations.released]]
    after = after_advice(refused, explanations)
    assert len(before) >= 2
    assert (after["income"].to_numpy() <= before["income"].to_numpy()).all()


def test_only_listed_features_vary(ask: Ask) -> None:
    """Somebody who can pay back a debt, or get another job, is asked for nothing else."""
    before, after = ask(features_to_vary=["debt", "job"])
    unchanged = ["age", "town", "education", "income"]
    pd.testing.assert_frame_equal(after[unchanged], before[unchanged], check_dtype=False)
    assert (after[["debt", "job"]] != before[["debt", "job"]]).any(axis=1).all()


def test_changed_number_stays_in_range(ask: Ask) -> None:
    """Nobody is asked for more than €45,000; without the rule, some are."""
    _, without_rule = ask()
    assert without_rule["income"].gt(45_000).any()
    _, after = ask(permitted_range={"income": [0, 45_000]})
    assert after["income"].le(45_000).all()


def test_answers_change_one_column(ask: Ask) -> None:
    """With `max_changes=1`, each answer asks for a single change."""
    before, after = ask(max_changes=1)
    assert ((after != before).sum(axis=1) == 1).all()


def test_costly_change_is_avoided(
    applicants: World, model: Any, refused: pd.DataFrame, after_advice: Callable
) -> None:
    """If more income is costly, only those are asked for it who have no other way."""

    def fit(**declared: Any) -> KAnonymizer:
        quasi_identifiers = ["age", "town", "education"]
        schema = Schema.from_frame(
            applicants.table, quasi_identifiers=quasi_identifiers, **declared
        )
        return KAnonymizer().fit(Population.from_frame(applicants.table, schema), model, 1)

    def people_who_need_income(anonymizer: KAnonymizer) -> pd.DataFrame:
        after = after_advice(refused, anonymizer.explain(refused))
        return refused[after["income"].to_numpy() != refused["income"].to_numpy()]

    costly = fit(cost={"income": 10})
    people = people_who_need_income(costly)
    assert len(people) < len(people_who_need_income(fit()))
    free = refused.columns.drop("income")
    assert not costly.explain(people, features_to_vary=free).released
