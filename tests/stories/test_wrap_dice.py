"""A team that calls DiCE keeps its calls and hands out nobody's row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from cfk_plugin import Population, ProtectedExplainer, protect
from worlds import World, granted

dice_ml = pytest.importorskip("dice_ml", reason="needs the extra [dice]")


@pytest.fixture(scope="module")
def explainer(applicants: World, model: Any) -> Any:
    """Return DiCE with its k-d tree, which searches the training rows."""
    data = dice_ml.Data(
        dataframe=applicants.table.assign(granted=granted(applicants.table)),
        continuous_features=["age", "income", "debt"],
        outcome_name="granted",
        continuous_features_precision={"income": -2, "debt": -2},  # it tries steps of €100
    )
    return dice_ml.Dice(data, dice_ml.Model(model=model, backend="sklearn"), method="kdtree")


@pytest.fixture(scope="module")
def wrapped(explainer: Any, model: Any, population: Population) -> ProtectedExplainer:
    return protect(explainer, model=model, population=population, k=10, desired=1)


def test_dice_alone_returns_a_row(explainer: Any, refused: pd.DataFrame, applicants: World) -> None:
    """Without protection, an answer is one person of the table, with the income in hundreds."""
    result = explainer.generate_counterfactuals(refused.head(1), total_CFs=1, desired_class=1)
    row = result.cf_examples_list[0].final_cfs_df[applicants.table.columns].iloc[0]
    assert (applicants.table.round({"income": -2}) == row).all(axis=1).sum() == 1


def test_same_call_returns_dice_type(
    wrapped: ProtectedExplainer, refused: pd.DataFrame, applicants: World
) -> None:
    """DiCE's own call gives DiCE's own result, one row per person, and nobody's income."""
    result = wrapped.generate_counterfactuals(refused, total_CFs=1, desired_class=1)
    assert type(result).__module__.startswith("dice_ml")
    rows = pd.concat([example.final_cfs_df for example in result.cf_examples_list])
    assert len(rows) == len(refused)
    assert (rows["granted"] == 1).all()
    assert not rows["income"].isin(applicants.table["income"]).any()


def test_k_people_match_every_answer(
    wrapped: ProtectedExplainer, refused: pd.DataFrame, people_inside: Callable
) -> None:
    """The same answers as `Explanations` have regions of at least ten people."""
    explanations = wrapped.explain(refused)
    assert len(explanations.released) == len(refused)
    assert min(len(people_inside(answer)) for answer in explanations.released) >= 10
