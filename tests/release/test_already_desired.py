"""Whoever already has the desired outcome is told so, and never told to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Attribute, DPPrototypes, Explanations, KAnonymizer, PrivacyPolicy
from cfk_plugin.serving.model import explainer_of
from cfk_plugin.serving.requests import answer_request
from worlds import World

ALREADY = "already_desired"
GUARANTEES = ["lookup", "catalogue"]


def mixed(world: World) -> pd.DataFrame:
    """Return people of whom some have the outcome and some have not."""
    rows = pd.concat([world.refused[:4], world.accepted[:4], world.refused[4:]], ignore_index=True)
    return rows.dropna(ignore_index=True)


def granted(world: World) -> pd.DataFrame:
    """Return as many counterfactuals."""
    return pd.concat([world.accepted, world.native], ignore_index=True).head(len(mixed(world)))


def have_outcome(world: World) -> list[bool]:
    is_granted = world.model.predict(mixed(world)) == world.desired
    assert 0 < is_granted.sum() < len(is_granted)
    return [bool(value) for value in is_granted]


def are_told(explanations: Explanations) -> list[bool]:
    return [getattr(entry, "reason", None) == ALREADY for entry in explanations]


@pytest.mark.parametrize("desired", [{"yes"}, lambda labels: labels == "yes", "yes"])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_no_counterfactual_for_desired_outcome(
    guarantee: str, desired: Any, residents: World
) -> None:
    """In a batch and alone, whatever names the outcome; the others are answered as alone."""
    anonymizer = residents.fit(guarantee=guarantee, desired=desired)
    counterfactuals, queries = granted(residents), mixed(residents)
    batch = anonymizer.transform(counterfactuals, queries)
    assert are_told(batch) == have_outcome(residents)
    assert batch.released
    for i, entry in enumerate(batch):
        alone = anonymizer.transform(counterfactuals.iloc[[i]], queries.iloc[[i]])[0]
        assert {**alone.to_dict(), "query": i} == entry.to_dict()


def test_loaded_catalogue_answers_only_others(residents: World, tmp_path: Path) -> None:
    """Each of several answers says so."""
    residents.anonymizer.catalogue_.save(tmp_path / "catalogue")
    loaded = KAnonymizer.load(tmp_path / "catalogue", residents.model)
    explanations = loaded.explain(mixed(residents), answers=3)
    assert are_told(explanations) == np.repeat(have_outcome(residents), 3).tolist()


def test_range_of_numbers_is_judged(residents: World) -> None:
    """Its ends belong to it."""
    anonymizer = residents.fit(model=lambda rows: rows["salary"], desired=(70, None))
    queries = mixed(residents)
    assert are_told(anonymizer.explain(queries)) == (queries["salary"] >= 70).tolist()


@pytest.mark.parametrize("outcome", ["yes", "no"])
def test_outcome_of_a_call_decides(outcome: str, residents: World) -> None:
    """One catalogue has an entry for each."""
    queries = mixed(residents)
    explanations = residents.fit(desired="opposite").explain(queries, desired=outcome)
    assert are_told(explanations) == (residents.model.predict(queries) == outcome).tolist()


def test_without_factuals_nobody_is_told(residents: World) -> None:
    """Only the factuals have or do not have the outcome."""
    explanations = residents.lookup.transform(residents.accepted)
    assert explanations.released
    assert not any(are_told(explanations))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_unreadable_row_changes_no_other(guarantee: str, residents: World) -> None:
    """A counterfactual that is unreadable hides nothing; a query that is, is not judged."""
    anonymizer = residents.lookup if guarantee == "lookup" else residents.anonymizer
    counterfactuals = residents.accepted.head(3).assign(zip=["A1", "Z9", "A1"])
    queries = pd.concat([residents.refused.head(1), residents.accepted.head(2)], ignore_index=True)
    assert are_told(anonymizer.transform(counterfactuals, queries)) == [False, True, True]
    queries = queries.assign(salary=[queries["salary"][0], np.nan, queries["salary"][2]])
    explanations = anonymizer.transform(residents.accepted.head(3), queries)
    assert are_told(explanations) == [False, False, True]


@pytest.mark.parametrize("access", ["public", "private"])
def test_prototypes_answer_only_others(access: Any, residents: World) -> None:
    """Whoever may see the model."""
    columns = {
        **residents.roles["columns"],
        "age": Attribute(bounds=(18, 70), whole=True),
        "salary": Attribute(bounds=(0, 150)),
        "job": Attribute(categories=["a", "b", "c"]),
        "since": Attribute(bounds=("2019-01-01", "2021-01-01")),
    }
    population = residents.declare(columns=columns, nullable=["job"])
    prototypes = DPPrototypes(rows=300, model_access=access)
    prototypes.fit(population, residents.model, "yes")
    assert are_told(prototypes.explain(mixed(residents))) == have_outcome(residents)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_explainer_may_find_nothing(guarantee: str, residents: World) -> None:
    """For people who need no answer, it is right; for others of a lookup, that is the reason."""
    policy = PrivacyPolicy(k=residents.k, guarantee=guarantee)
    explanations = residents.protect(lambda rows: None, policy=policy).explain(mixed(residents))
    assert are_told(explanations) == have_outcome(residents)
    reasons = {entry.reason for entry in explanations.withheld} - {ALREADY}
    assert reasons == ({"none_found"} if guarantee == "lookup" else set())


def test_server_says_nothing_needs_to_change(residents: World) -> None:
    """The answer has a sentence for the person."""
    explainer = explainer_of(residents.anonymizer)
    people = residents.accepted.head(1)
    (entry,) = answer_request(explainer, people, {}, 50)["explanations"]
    assert (entry["status"], entry["reason"]) == ("withheld", ALREADY)
    assert "Nothing needs to change" in entry["sentence"]


def test_withheld_rate_is_of_refused_people(residents: World) -> None:
    """There is none if nobody was refused."""
    counterfactuals = residents.native.head(4).assign(zip=["A1", "Z9", "A1", "A1"])
    queries = pd.concat([residents.refused.head(2), residents.accepted.head(2)], ignore_index=True)
    summary = residents.lookup.transform(counterfactuals, queries).summary()
    assert (summary["asked"], summary["released"], summary["withheld"]) == (4, 1, 3)
    assert summary["reasons"] == {"unknown_category": 1, ALREADY: 2}
    assert summary["withheld_rate"] == 1 / 2
    nobody = residents.lookup.transform(residents.accepted, residents.accepted)
    assert nobody.summary()["withheld_rate"] is None
