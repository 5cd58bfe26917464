"""A person gets a choice of several answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from cfk_plugin import Explanations, ProtectedExplainer


@pytest.fixture
def explanations(private: ProtectedExplainer, refused: pd.DataFrame) -> Explanations:
    return private.explain(refused, answers=3)


def test_person_gets_three_answers(explanations: Explanations, refused: pd.DataFrame) -> None:
    """All answers to a query belong together, in the order of the queries."""
    for query in range(len(refused)):
        assert len(explanations.for_query(query)) == 3
    assert [answer.query for answer in explanations] == sorted(list(range(len(refused))) * 3)


def test_answers_to_a_person_differ(
    explanations: Explanations, refused: pd.DataFrame, after_advice: Callable
) -> None:
    """No two answers to one person ask for the same."""
    after = after_advice(refused, explanations)
    assert len(after) == 3 * len(refused)
    query = [answer.query for answer in explanations.released]
    assert not after.assign(query=query).duplicated().any()


def test_model_accepts_every_choice(
    explanations: Explanations, refused: pd.DataFrame, model: Any, after_advice: Callable
) -> None:
    """Whatever answer a person follows, they get the loan."""
    assert (model.predict(after_advice(refused, explanations)) == 1).all()


def test_k_people_match_every_choice(explanations: Explanations, people_inside: Callable) -> None:
    """Each of the answers alone has a region of at least ten people."""
    assert min(len(people_inside(answer)) for answer in explanations.released) >= 10
