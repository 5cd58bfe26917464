"""Somebody who already has the desired outcome is told so, and never told to change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from applicants import FEATURES, ROWS, dice_of, label
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
from cfk_plugin.release.explanations import group_gaps
from cfk_plugin.serving.handler import RequestHandler

ALREADY = "already_desired"
GUARANTEES = ("lookup", "catalogue")
DESIRED: Mapping[str, Any] = {
    "label": "yes",
    "set": {"yes"},
    "callable": lambda labels: labels == "yes",
}


def loans() -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": random.integers(20, 60, 400),
            "zip": random.choice(["a", "b", "c"], 400),
            "pay": random.integers(0, 100, 400).astype(float),
        }
    )


KEY = b"the key of these tests"
LOANS = loans()
SCHEMA = Schema.from_frame(LOANS, quasi_identifiers=["age", "zip"])
POPULATION = Population.from_frame(LOANS, SCHEMA, key=KEY)


class Model:
    """Grants a loan where pay and age are high; counts how often it is asked."""

    def __init__(self) -> None:
        self.n_calls = 0

    def predict(self, rows: pd.DataFrame) -> Any:
        self.n_calls += 1
        return np.where(rows["pay"] + rows["age"] > 90, "yes", "no")


def grants(rows: pd.DataFrame) -> list[bool]:
    return (Model().predict(rows) == "yes").tolist()


GRANTED = LOANS[grants(LOANS)].head(40).reset_index(drop=True)
REFUSED = LOANS[~np.array(grants(LOANS))].head(40).reset_index(drop=True)
MIXED = LOANS.head(40)  # some have the outcome, some not


def fitted(guarantee: str, desired: Any = "yes", model: Any = None, **options: Any) -> KAnonymizer:
    policy = PrivacyPolicy(k=5, guarantee=guarantee, **options.pop("policy", {}))  # type: ignore[arg-type]
    anonymizer = KAnonymizer(policy=policy, **options)
    return anonymizer.fit(POPULATION, model or Model(), desired)


def are_told(explanations: Explanations) -> list[bool]:
    return [getattr(entry, "reason", None) == ALREADY for entry in explanations]


@pytest.mark.parametrize("desired", DESIRED)
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_counterfactuals_of_such_people_are_not_released(guarantee: str, desired: str) -> None:
    anonymizer = fitted(guarantee, DESIRED[desired])
    for n in (1, 40):
        explanations = anonymizer.transform(GRANTED.head(n), MIXED.head(n))
        assert are_told(explanations) == grants(MIXED.head(n))
    assert explanations.released


def test_a_catalogue_does_not_answer_such_people() -> None:
    explanations = fitted("catalogue").explain(MIXED, answers=3)
    assert are_told(explanations) == np.repeat(grants(MIXED), 3).tolist()
    assert explanations.released


def test_a_range_of_numbers_is_judged_by_the_model() -> None:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(
        POPULATION, lambda rows: rows["pay"] / 3, (20.0, None)
    )
    explanations = anonymizer.explain(MIXED)
    assert are_told(explanations) == (MIXED["pay"] / 3 >= 20).tolist()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_any_other_outcome_is_never_there_already(guarantee: str) -> None:
    anonymizer = fitted(guarantee, "opposite")
    queries = pd.concat([GRANTED.head(5), REFUSED.head(5)], ignore_index=True)
    others = pd.concat([REFUSED.head(5), GRANTED.head(5)], ignore_index=True)
    assert not any(are_told(anonymizer.transform(others, queries)))


def test_a_call_that_names_an_outcome_is_judged_by_its_own() -> None:
    anonymizer = fitted("catalogue", "opposite")
    for outcome in ("yes", "no"):
        explanations = anonymizer.explain(MIXED, desired=outcome)
        assert are_told(explanations) == (Model().predict(MIXED) == outcome).tolist()


def test_nothing_is_known_of_people_who_are_not_given() -> None:
    explanations = fitted("lookup").transform(GRANTED)
    assert explanations.released
    assert not any(are_told(explanations))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_others_are_answered_as_without_such_people(guarantee: str) -> None:
    anonymizer = fitted(guarantee)
    needs_answer = [i for i, is_granted in enumerate(grants(MIXED)) if not is_granted][:12]
    rows = MIXED.index[: max(needs_answer) + 1]
    together = anonymizer.transform(GRANTED.loc[rows], MIXED.loc[rows])
    alone = anonymizer.transform(GRANTED.iloc[needs_answer], MIXED.iloc[needs_answer])
    expected = [{**entry.to_dict(), "query": 0} for entry in alone]
    assert [{**together[i].to_dict(), "query": 0} for i in needs_answer] == expected


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_an_unreadable_counterfactual_does_not_hide_it(guarantee: str) -> None:
    found = GRANTED.head(3).assign(zip=["a", "nowhere", "b"])
    queries = pd.concat([REFUSED.head(1), GRANTED.head(2)], ignore_index=True)
    explanations = fitted(guarantee).transform(found, queries)
    assert are_told(explanations) == [False, True, True]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_query_that_cannot_be_read_is_not_judged(guarantee: str) -> None:
    queries = GRANTED.head(2).assign(pay=[np.nan, 90.0])
    explanations = fitted(guarantee).transform(GRANTED.head(2), queries)
    assert are_told(explanations) == [False, True]


def test_a_loaded_catalogue_does_not_answer_such_people(tmp_path: Path) -> None:
    fitted("catalogue").catalogue_.save(tmp_path / "loans")
    loaded = KAnonymizer.load(tmp_path / "loans", Model())
    assert are_told(loaded.explain(MIXED)) == grants(MIXED)


def test_prototypes_do_not_answer_such_people() -> None:
    schema = Schema.from_frame(
        LOANS,
        quasi_identifiers=["age", "zip"],
        columns={
            "age": Attribute(bounds=(18, 70), whole=True),
            "pay": Attribute(bounds=(0, 100)),
            "zip": Attribute(categories=["a", "b", "c"]),
        },
        nullable=[],
    )
    population = Population.from_frame(LOANS, schema)
    for access in ("public", "private"):
        prototypes = DPPrototypes(rows=300, model_access=access)  # type: ignore[arg-type]
        prototypes.fit(population, Model(), "yes")
        assert are_told(prototypes.explain(MIXED)) == grants(MIXED)


# --- explainers -----------------------------------------------------------------------------------


def protected(explain: Callable[..., Any], guarantee: str = "lookup", **options: Any) -> Any:
    return protect(
        explain,
        model=Model(),
        population=POPULATION,
        policy=PrivacyPolicy(k=5, guarantee=guarantee),  # type: ignore[arg-type]
        desired="yes",
        **options,
    )


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_protected_explainer_does_not_answer_such_people(guarantee: str) -> None:
    private = protected(lambda rows: GRANTED.iloc[: len(rows)], guarantee)
    assert are_told(private.explain(MIXED.head(12))) == grants(MIXED.head(12))


def test_an_explainer_that_finds_nothing_for_such_people_is_right() -> None:
    nothing = GRANTED.head(2).assign(age=np.nan, zip=None, pay=np.nan)
    private = protected(lambda rows: nothing.iloc[: len(rows)])
    queries = pd.concat([REFUSED.head(1), GRANTED.head(1)], ignore_index=True)
    explanations = private.explain(queries)
    assert [entry.reason for entry in explanations.withheld] == ["none_found", ALREADY]


def test_dices_own_result_has_no_counterfactual_for_such_people() -> None:
    schema = Schema.from_frame(ROWS, quasi_identifiers=["age", "job"], target="approved")
    private = protect(
        dice_of("random"),
        model=label,
        population=Population.from_frame(ROWS, schema),
        policy=PrivacyPolicy(k=5),
        desired=1,
        sample_explainer=0,
    )
    is_approved = label(ROWS[FEATURES]) == 1
    queries = pd.concat([ROWS[is_approved].head(1), ROWS[~is_approved].head(1)])[FEATURES]
    native = private.generate_counterfactuals(queries, total_CFs=1, desired_class=1)
    has_answer = [examples.final_cfs_df is not None for examples in native.cf_examples_list]
    assert has_answer == [False, True]


def test_a_server_says_that_nothing_needs_to_change() -> None:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(POPULATION, Model(), "yes")
    handler = RequestHandler(anonymizer, most=50)
    (record,) = handler.answer(GRANTED.head(1))
    assert (record["status"], record["reason"]) == ("withheld", ALREADY)
    assert record["sentence"].endswith("Nothing needs to change.")


# --- figures and refusals -------------------------------------------------------------------------


def test_the_share_withheld_is_of_those_who_needed_an_answer() -> None:
    found = GRANTED.head(4).assign(zip=["a", "nowhere", "b", "c"])
    queries = pd.concat([REFUSED.head(2), GRANTED.head(2)], ignore_index=True)
    explanations = fitted("lookup").transform(found, queries)
    summary = explanations.summary()
    assert (summary["asked"], summary["released"], summary["withheld"]) == (4, 1, 3)
    assert summary["reasons"] == {"unknown_category": 1, ALREADY: 2}
    assert summary["withheld_rate"] == 1 / 2
    assert summary["cdm"] == explanations.released[0].certificate.k + len(LOANS)  # type: ignore[union-attr]


def test_the_share_withheld_is_not_known_if_nobody_needed_an_answer() -> None:
    explanations = fitted("lookup").transform(GRANTED.head(2), GRANTED.head(2))
    assert explanations.summary()["withheld_rate"] is None


def test_groups_are_compared_by_those_who_needed_an_answer() -> None:
    queries = pd.concat([REFUSED.head(15), GRANTED.head(15)], ignore_index=True)
    explanations = fitted("lookup").transform(GRANTED.head(30), queries)
    gaps = group_gaps(explanations, ["refused"] * 15 + ["granted"] * 15, ["withheld"])
    assert "granted" not in {gap.group for gap in gaps["withheld"]}
