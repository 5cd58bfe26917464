"""A function from people to counterfactuals is an explainer, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from cfk_plugin import Population, protect, protected
from worlds import World


@pytest.fixture(scope="module")
def nearest(applicants: World, model: Any) -> Callable:
    """Return an explainer that answers with the accepted person who is nearest in income."""
    accepted = applicants.table[model.predict(applicants.table) == 1]

    def explain(people: pd.DataFrame) -> pd.DataFrame:
        rows = [(accepted["income"] - income).abs().idxmin() for income in people["income"]]
        return accepted.loc[rows]

    return explain


@pytest.fixture(scope="module")
def wrapped(nearest: Callable, model: Any, population: Population) -> Any:
    return protect(nearest, model=model, population=population, k=10, desired=1)


def test_wrapped_function_is_called_alike(
    wrapped: Any, nearest: Callable, refused: pd.DataFrame, applicants: World
) -> None:
    """The function returned rows of people; the same call now returns nobody's income."""
    assert nearest(refused)["income"].isin(applicants.table["income"]).all()
    answers = wrapped(refused).to_frame()
    assert len(answers) == len(refused)
    assert not answers["income_value"].isin(applicants.table["income"]).any()


def test_answers_are_true_for_the_person(
    wrapped: Any, refused: pd.DataFrame, model: Any, after_advice: Callable, people_inside: Callable
) -> None:
    """The model accepts each person after the advice, and ten people fit each region."""
    explanations = wrapped(refused)
    assert (model.predict(after_advice(refused, explanations)) == 1).all()
    assert min(len(people_inside(answer)) for answer in explanations.released) >= 10


def test_decorator_protects_a_function(
    model: Any, population: Population, refused: pd.DataFrame, wrapped: Any, nearest: Callable
) -> None:
    """`protected` does the same where the function is defined."""

    @protected(model=model, population=population, k=10, desired=1)
    def explain(people: pd.DataFrame) -> pd.DataFrame:
        return nearest(people)

    assert explain(refused) == wrapped(refused)
