"""What a call says may change reaches the explainers that know of it; the others are held to it."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from applicants import FEATURES, ROWS, dice_of, label, nice_of
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import Explanations, Population, PrivacyPolicy, Schema, protect
from oracle import Rules

POPULATION = Population.from_frame(
    ROWS, Schema.from_frame(ROWS, quasi_identifiers=["age", "job"], target="approved")
)
QUERIES = ROWS.loc[label(ROWS) == 0, FEATURES].head(6).reset_index(drop=True)
CALL: dict[str, Any] = {
    "features_to_vary": ["age", "income", "job"],
    "permitted_range": {"income": [20, 95], "job": ["clerk", "nurse"]},
}
RULES = Rules(immutable=["education", "smoker"], permitted_range=CALL["permitted_range"])


def ask(explainer: Any, **call: Any) -> Explanations:
    """Ask under the rules; check that every private value that is released obeys them."""
    policy = PrivacyPolicy(k=3, guarantee="lookup", min_pureness=0)
    settings: Any = {"population": POPULATION, "policy": policy, "desired": 1}
    answers: Explanations = protect(explainer, model=label, **settings).explain(QUERIES, **call)
    assert {entry.reason for entry in answers.withheld} <= {"no_actionable_answer", "none_found"}
    for entry in answers.released:
        for name, value in entry.released.items():
            assert RULES.permits(name, value, QUERIES[name][entry.query])
    return answers


@pytest.mark.parametrize(
    ("method", "options"), [("random", {"random_seed": 1, "sample_size": 200}), ("kdtree", {})]
)
def test_dice_obeys_the_call(method: str, options: dict[str, Any]) -> None:
    """It is told: few of its counterfactuals have to be withheld."""
    answers = ask(dice_of(method), total_CFs=2, desired_class=1, **options, **CALL)
    assert len(answers.released) > len(answers) / 2


def test_nice_is_held_to_the_call() -> None:
    """It is not told: what it changes against the rules is withheld."""
    answers = ask(nice_of("none"), permitted_range={"income": [20, 60]})
    assert "no_actionable_answer" in {entry.reason for entry in answers.withheld}


def test_functions_are_told_if_asked() -> None:
    """A function that takes an argument gets it, and others are called without."""
    neighbours = NearestUnlikeNeighbour(ROWS, label, desired=1, features=FEATURES)
    arguments: list[Any] = []

    def plain(queries: pd.DataFrame) -> pd.DataFrame:
        return neighbours.explain(queries)

    def knowing(
        queries: pd.DataFrame, features_to_vary: Any = "all", **others: Any
    ) -> pd.DataFrame:
        arguments.append({"features_to_vary": features_to_vary, **others})
        return neighbours.explain(queries)

    for explainer in (plain, knowing, neighbours):
        ask(explainer, **CALL)
    assert arguments == [CALL]
