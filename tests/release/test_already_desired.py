"""Whoever already has the desired outcome is told so, and never told to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from applicants import FEATURES, ROWS, label
from cfk_plugin import (
    Attribute,
    DPPrototypes,
    Explanations,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Schema,
    protect,
)
from cfk_plugin.serving.handler import RequestHandler

ALREADY = "already_desired"
GUARANTEES = ["lookup", "catalogue"]
TABLE = ROWS[FEATURES]
IS_GRANTED = label(TABLE) == 1
GRANTED = TABLE[IS_GRANTED].head(20).reset_index(drop=True)
REFUSED = TABLE[~IS_GRANTED].head(20).reset_index(drop=True)
MIXED = TABLE.head(20)  # some have the outcome, some not
ARE_GRANTED = IS_GRANTED[:20].tolist()


def population_of(**declared: Any) -> Population:
    schema = Schema.from_frame(TABLE, quasi_identifiers=["age", "job"], **declared)
    return Population.from_frame(TABLE, schema)


POPULATION = population_of()


def fit(guarantee: Any, desired: Any = 1, model: Any = label) -> KAnonymizer:
    policy = PrivacyPolicy(k=5, guarantee=guarantee)
    return KAnonymizer(policy=policy).fit(POPULATION, model, desired)


@pytest.fixture(scope="module", params=GUARANTEES)
def anonymizer(request: pytest.FixtureRequest) -> KAnonymizer:
    return fit(request.param)


@pytest.fixture(scope="module")
def lookup() -> KAnonymizer:
    return fit("lookup")


def are_told(explanations: Explanations) -> list[bool]:
    return [getattr(entry, "reason", None) == ALREADY for entry in explanations]


@pytest.mark.parametrize("desired", [{1}, lambda labels: labels == 1], ids=["set", "function"])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_no_counterfactual_for_desired_outcome(guarantee: str, desired: Any) -> None:
    """In a batch and alone, whatever names the outcome."""
    anonymizer = fit(guarantee, desired)
    alone = anonymizer.transform(GRANTED.head(1), MIXED.head(1))
    assert are_told(alone) == ARE_GRANTED[:1]
    batch = anonymizer.transform(GRANTED, MIXED)
    assert are_told(batch) == ARE_GRANTED
    assert batch.released


def test_loaded_catalogue_answers_only_others(tmp_path: Path) -> None:
    fit("catalogue").catalogue_.save(tmp_path / "catalogue")
    loaded = KAnonymizer.load(tmp_path / "catalogue", label)
    explanations = loaded.explain(MIXED, answers=3)
    assert are_told(explanations) == np.repeat(ARE_GRANTED, 3).tolist()
    assert explanations.released


def test_range_of_numbers_is_judged() -> None:
    anonymizer = fit("catalogue", (50.0, None), model=lambda rows: rows["income"])
    assert are_told(anonymizer.explain(MIXED)) == (MIXED["income"] >= 50).tolist()


@pytest.mark.parametrize("outcome", [0, 1])
def test_outcome_of_a_call_decides(outcome: int) -> None:
    explanations = fit("catalogue", "opposite").explain(MIXED, desired=outcome)
    assert are_told(explanations) == (label(MIXED) == outcome).tolist()


def test_without_factuals_nobody_is_told(lookup: KAnonymizer) -> None:
    explanations = lookup.transform(GRANTED)
    assert explanations.released
    assert not any(are_told(explanations))


def test_others_are_answered_as_alone(anonymizer: KAnonymizer) -> None:
    """People who need no answer change nobody else's."""
    refused = np.flatnonzero(~np.array(ARE_GRANTED))
    together = anonymizer.transform(GRANTED, MIXED)
    alone = anonymizer.transform(GRANTED.iloc[refused], MIXED.iloc[refused])
    expected = [{**entry.to_dict(), "query": 0} for entry in alone]
    assert [{**together[i].to_dict(), "query": 0} for i in refused] == expected


def test_unreadable_counterfactual_hides_nothing(anonymizer: KAnonymizer) -> None:
    counterfactuals = GRANTED.head(3).assign(job=["nurse", "astronaut", "nurse"])
    queries = pd.concat([REFUSED.head(1), GRANTED.head(2)], ignore_index=True)
    assert are_told(anonymizer.transform(counterfactuals, queries)) == [False, True, True]


def test_unreadable_query_is_not_judged(anonymizer: KAnonymizer) -> None:
    queries = GRANTED.head(2).assign(income=[np.nan, GRANTED["income"][1]])
    assert are_told(anonymizer.transform(GRANTED.head(2), queries)) == [False, True]


@pytest.mark.parametrize("access", ["public", "private"])
def test_prototypes_answer_only_others(access: Any) -> None:
    population = population_of(
        columns={
            "age": Attribute(bounds=(18, 70), whole=True),
            "income": Attribute(bounds=(0, 100)),
            "job": Attribute(categories=["clerk", "nurse", "smith"]),
            "education": Attribute(categories=["low", "middle", "high"]),
            "smoker": Attribute(categories=[True, False]),
        },
        nullable=[],
    )
    prototypes = DPPrototypes(rows=300, model_access=access).fit(population, label, 1)
    assert are_told(prototypes.explain(MIXED)) == ARE_GRANTED


# --- explainers and servers -------------------------------------------------------------------------


def wrap(explainer: Any, guarantee: Any) -> Any:
    policy = PrivacyPolicy(k=5, guarantee=guarantee)
    settings: Any = {"model": label, "population": POPULATION, "policy": policy, "desired": 1}
    return protect(explainer, **settings)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_explainer_answers_only_others(guarantee: str) -> None:
    assert are_told(wrap(lambda rows: GRANTED, guarantee).explain(MIXED)) == ARE_GRANTED


def test_explainer_may_find_nothing() -> None:
    """For people who need no answer, it is right; for others, that is the reason."""
    explanations = wrap(lambda rows: None, "lookup").explain(MIXED)
    expected = np.where(ARE_GRANTED, ALREADY, "none_found").tolist()
    assert [entry.reason for entry in explanations.withheld] == expected


def test_server_says_nothing_needs_to_change() -> None:
    (record,) = RequestHandler(fit("catalogue"), most=50).answer(GRANTED.head(1))
    assert (record["status"], record["reason"]) == ("withheld", ALREADY)
    assert "Nothing needs to change" in record["sentence"]


# --- figures ----------------------------------------------------------------------------------------


def test_withheld_rate_is_of_refused_people(lookup: KAnonymizer) -> None:
    counterfactuals = GRANTED.head(4).assign(job=["nurse", "astronaut", "nurse", "nurse"])
    queries = pd.concat([REFUSED.head(2), GRANTED.head(2)], ignore_index=True)
    explanations = lookup.transform(counterfactuals, queries)
    summary = explanations.summary()
    assert (summary["asked"], summary["released"], summary["withheld"]) == (4, 1, 3)
    assert summary["reasons"] == {"unknown_category": 1, ALREADY: 2}
    assert summary["withheld_rate"] == 1 / 2
    assert summary["cdm"] == explanations.released[0].recount.k + len(TABLE)


def test_withheld_rate_needs_refused_people(lookup: KAnonymizer) -> None:
    summary = lookup.transform(GRANTED, GRANTED).summary()
    assert summary["withheld_rate"] is None
