"""A team that calls NICE keeps its call and its arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from cfk_plugin import Population, ProtectedExplainer, protect
from worlds import World, granted

nice = pytest.importorskip("nice", reason="needs `pip install --no-deps NICEx==0.2.3`")


@pytest.fixture(scope="module")
def explainer(applicants: World, model: Any) -> Any:
    """Return NICE, which answers with the nearest training row and knows columns by position."""
    columns = applicants.table.columns
    return nice.NICE(
        predict_fn=lambda array: model.predict_proba(pd.DataFrame(array, columns=columns)),
        X_train=applicants.table.to_numpy(dtype=object),
        y_train=granted(applicants.table).to_numpy(),
        cat_feat=[1, 2, 3],
        optimization="none",
    )


@pytest.fixture(scope="module")
def wrapped(explainer: Any, model: Any, population: Population) -> ProtectedExplainer:
    return protect(explainer, model=model, population=population, k=10, desired=1)


def test_nice_alone_reveals_rows(explainer: Any, refused: pd.DataFrame, applicants: World) -> None:
    """Without protection, the answer is the row of a person in the table."""
    row = explainer.explain(refused.head(1).to_numpy(dtype=object))[0]
    assert (applicants.table == row).all(axis=1).any()


def test_same_call_returns_an_array(
    wrapped: ProtectedExplainer, refused: pd.DataFrame, applicants: World
) -> None:
    """An array goes in and an array comes out, with nobody's income."""
    array = wrapped.explain(refused.to_numpy(dtype=object))
    assert array.shape == refused.shape
    answers = pd.DataFrame(array, columns=refused.columns)
    assert not answers["income"].isin(applicants.table["income"]).any()


def test_table_returns_regions_of_k(
    wrapped: ProtectedExplainer, refused: pd.DataFrame, people_inside: Callable
) -> None:
    """A table of people gets `Explanations`, with at least ten people in each region."""
    answers = wrapped.explain(refused).released
    assert len(answers) == len(refused)
    assert min(len(people_inside(answer)) for answer in answers) >= 10
