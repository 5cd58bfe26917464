"""A person gets a choice of several answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

import numpy as np
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
    """No two answers to one person ask for changes of the same features to about the same."""
    after = after_advice(refused, explanations).reset_index(drop=True)
    query = np.array([answer.query for answer in explanations.released])
    for i, (_, factual) in enumerate(refused.iterrows()):
        of_person = after[query == i].to_dict("records")
        for first, second in combinations(of_person, 2):
            assert spares(first, second, factual)
            assert spares(second, first, factual)


def spares(after: Mapping[str, Any], other: Mapping[str, Any], factual: pd.Series) -> bool:
    """Return whether an answer asks for at most half of some change of another one."""
    for name, before in factual.items():
        if other[name] == before:
            continue
        if isinstance(before, str):
            is_spared = after[name] != other[name]
        else:
            is_spared = (after[name] - before) / (other[name] - before) <= 0.5
        if is_spared:
            return True
    return False


def test_other_answers_are_withheld(explanations: Explanations) -> None:
    """If there are fewer useful answers, the others are withheld with a reason of their own."""
    assert len(explanations.released) >= 20
    assert {answer.reason for answer in explanations.withheld} <= {"no_other_answer"}


def test_model_accepts_every_choice(
    explanations: Explanations, refused: pd.DataFrame, model: Any, after_advice: Callable
) -> None:
    """Whatever answer a person follows, they get the loan."""
    assert (model.predict(after_advice(refused, explanations)) == 1).all()


def test_k_people_match_every_choice(explanations: Explanations, people_inside: Callable) -> None:
    """Each of the answers alone has a region of at least ten people."""
    assert min(len(people_inside(answer)) for answer in explanations.released) >= 10
