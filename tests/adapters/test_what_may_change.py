"""What a call says may change reaches explainers that know of it, and holds of what is released of
all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from applicants import DICE, FEATURES, MODEL, ROWS, as_text, dice_of, label, nice_of
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import Explanations, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.data.region import part_contains
from cfk_plugin.errors import InputError

SCHEMA = Schema.from_frame(
    ROWS,
    quasi_identifiers=["age", "job"],
    target="approved",
    immutable=["smoker"],
    monotone={"age": "increase"},
)
POPULATION = Population.from_frame(ROWS, SCHEMA)
ASKS = ROWS.loc[label(ROWS) == 0, FEATURES].head(12).reset_index(drop=True)
CALL = {
    "features_to_vary": ["age", "income", "job"],
    "permitted_range": {"income": [20, 95], "job": ["clerk", "nurse"]},
}


def wrapped(explainer: Any, guarantee: str = "catalogue", **settings: Any) -> Any:
    policy = PrivacyPolicy(k=3, **{"guarantee": guarantee, "min_pureness": 0, **settings})
    return protect(
        explainer,
        model=label,
        population=POPULATION,
        policy=policy,
        desired=1,
    )


def check(answers: Explanations, asks: pd.DataFrame) -> None:
    assert answers.released
    for entry in answers.released:
        query, parts = asks.iloc[entry.query], entry.parts()
        assert part_contains(parts["smoker"], query["smoker"])
        assert part_contains(parts["education"], query["education"])
        assert parts["age"].high >= query["age"]
        income = entry.released["income"]
        assert 20 <= income <= 95 or income == query["income"]
        assert set(parts["job"]) & {"clerk", "nurse", query["job"]}


@pytest.mark.parametrize("method", DICE)
def test_dice_is_told_and_held_to_it(method: str) -> None:
    private = wrapped(dice_of(method), "lookup")
    options = {
        "total_CFs": 2,
        "desired_class": 1,
        **({"random_seed": 1} if method == "random" else {}),
        **CALL,
    }
    check(private.explain(ASKS, **options), ASKS)
    result = private.generate_counterfactuals(ASKS.head(6), **options)
    for examples, (_, query) in zip(result.cf_examples_list, ASKS.head(6).iterrows(), strict=True):
        shown = examples.final_cfs_df
        for _, cells in () if shown is None else shown.iterrows():
            assert (cells["smoker"], cells["education"]) == (
                str(query["smoker"]),
                str(query["education"]),
            )
            income = float(cells["income"])
            assert 20 <= income <= 95 or income == query["income"]


def test_dice_gets_the_arguments_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    explainer, told = dice_of("random"), []
    own = type(explainer).generate_counterfactuals

    def listening(self: Any, *args: Any, **named: Any) -> Any:
        told.append({name: named.get(name) for name in CALL})
        return own(self, *args, **named)

    monkeypatch.setattr(type(explainer), "generate_counterfactuals", listening)
    wrapped(explainer, "lookup").explain(
        ASKS.head(1), total_CFs=1, desired_class=1, random_seed=1, **CALL
    )
    assert told == [CALL]


@pytest.mark.parametrize("guarantee", ["catalogue", "lookup"])
def test_nice_is_not_told_and_held_to_it(guarantee: str) -> None:
    private = wrapped(nice_of("sparsity"), guarantee)
    call = CALL if guarantee == "catalogue" else {"permitted_range": CALL["permitted_range"]}
    answers = private.explain(ASKS, **call)
    assert {entry.reason for entry in answers.withheld} <= {
        "no_actionable_answer",
        "pureness_below_floor",
    }
    if guarantee == "catalogue":
        check(answers, ASKS)
        array = private.explain(ASKS.to_numpy(dtype=object), **call)
        assert [row[4] for row in array if row[4] is not None] == [
            ASKS["smoker"][entry.query] for entry in answers.released
        ]


@pytest.mark.parametrize("explainer", ["dice", "nice"])
def test_no_explainer_makes_an_answer_change_to_a_value_that_is_never_advised(
    explainer: str,
) -> None:
    explainers: dict[str, Any] = {
        "dice": lambda: dice_of("random"),
        "nice": lambda: nice_of("proximity"),
    }
    options = {"dice": {"total_CFs": 2, "desired_class": 1, "random_seed": 1}}
    asks = ROWS.loc[(label(ROWS) == 0), FEATURES].head(30).reset_index(drop=True)
    never_advise = {"job": ["nurse"], "education": ["high"], "smoker": [True]}
    changed: dict[bool, set[str]] = {}
    for is_held in (False, True):
        schema = Schema.from_frame(
            ROWS,
            quasi_identifiers=["age", "job"],
            target="approved",
            never_advise=never_advise if is_held else None,
        )
        private = protect(
            explainers[explainer](),
            model=label,
            population=Population.from_frame(ROWS, schema),
            policy=PrivacyPolicy(k=3, guarantee="lookup"),
            desired=1,
        )
        answers = private.explain(asks, **options.get(explainer, {}))
        assert answers.released
        changed[is_held] = set()
        for entry in answers.generalized:
            parts, own = entry.parts(), asks.iloc[entry.query]
            for name, values in never_advise.items():
                if not part_contains(parts[name], own[name]) and parts[name] <= {*values}:
                    changed[is_held].add(name)
    assert "job" in changed[False]
    assert changed[True] == set()


def test_functions_are_told_if_they_take_it() -> None:
    neighbours, told = NearestUnlikeNeighbour(ROWS, label, desired=1, features=FEATURES), []

    def plain(queries: pd.DataFrame) -> pd.DataFrame:
        return neighbours.explain(queries)

    def knowing(
        queries: pd.DataFrame, features_to_vary: Any = "all", **others: Any
    ) -> pd.DataFrame:
        told.append((features_to_vary, others))
        return neighbours.explain(queries)

    for explainer in (plain, knowing, neighbours):
        check(wrapped(explainer, "lookup").explain(ASKS, **CALL), ASKS)
    assert told == [(CALL["features_to_vary"], {"permitted_range": CALL["permitted_range"]})]
    with pytest.raises(InputError, match="no feature"):
        wrapped(plain).explain(ASKS, features_to_vary=["height"])


def test_an_answer_of_an_explainer_that_changes_what_is_fixed_is_withheld() -> None:
    found = ROWS.loc[label(ROWS) == 1, FEATURES].head(12).reset_index(drop=True)
    answers = wrapped(lambda _: found, "lookup").explain(
        ASKS, features_to_vary=["age", "job", "education"]
    )
    fixed = (found[["income", "smoker"]] == ASKS[["income", "smoker"]]).all(axis=1)
    for entry, is_kept in zip(answers, fixed, strict=True):
        assert is_kept or entry.status == "withheld"
    assert "no_actionable_answer" in {entry.reason for entry in answers.withheld}
    assert np.array_equal(MODEL.predict(as_text(found)), np.ones(12))
