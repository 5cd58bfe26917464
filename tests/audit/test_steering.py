"""Steering, as a recipient may: it names people of a service that shows rows, and not by default."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from borrowers import FAR_APART, MOST_KNOWN, Columns, Lender, borrowers
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import Explanations, KAnonymizer, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.audit import AuditResult, Setting, nearest_row, run_linkage_audit, steering
from cfk_plugin.audit.scenario import Scenario, Service
from cfk_plugin.audit.spoiling import spoil
from cfk_plugin.audit.steering import SCENARIOS, not_of_query, pose_as_victims
from cfk_plugin.audit.trilateration import trilaterate
from cfk_plugin.errors import InputError

K = 10
LENDS = Lender()
ATTACKS = ("candidates", "pose", "trilaterate")
EXACT = PrivacyPolicy(k=K, private_values="exact")


def table(columns: Columns, seed: int = 0) -> pd.DataFrame:
    return borrowers(columns, np.random.default_rng([0, seed]))


def nearest(columns: Columns) -> NearestUnlikeNeighbour:
    return NearestUnlikeNeighbour(table(columns), LENDS, desired=1)


def refused(columns: Columns) -> pd.DataFrame:
    rows = table(columns)
    return rows[LENDS.predict(rows) == 0].head(10).reset_index(drop=True)


def setting(
    policy: PrivacyPolicy, columns: Columns = FAR_APART, desired: Any = 1, **options: Any
) -> Setting:
    rows = table(columns)
    schema = Schema.from_frame(rows, quasi_identifiers=columns.quasi_identifiers)
    population = Population.from_frame(rows, schema, key=bytes(32))
    with warnings.catch_warnings(action="ignore"):  # the control warns, rightly
        anonymizer = KAnonymizer(policy=policy).fit(population, model=LENDS, desired=desired)
    asking = refused(columns)
    others = {"holdout": table(columns, 1), **options}
    return Setting(anonymizer, nearest(columns).explain(asking), asking, **others)


@cache
def control(columns: Columns = FAR_APART) -> AuditResult:
    """Attack exact private values, and answers that begin at the row of the explainer."""
    attacked = setting(EXACT, columns)
    with warnings.catch_warnings(action="ignore"):
        protected = protect(
            nearest(columns),
            model=LENDS,
            population=attacked.population,
            policy=EXACT,
            desired=1,
            start="explainer",
        )
    return steering(attacked, protected.explain, trilaterated=8)


@cache
def default(columns: Columns = FAR_APART) -> AuditResult:
    return steering(setting(PrivacyPolicy(k=K), columns), trilaterated=8)


# to pose takes many declared columns, and to trilaterate private numbers that differ
@pytest.mark.parametrize(("columns", "name"), [(MOST_KNOWN, "pose"), (FAR_APART, "trilaterate")])
def test_the_control_names_people_far_better_than_a_look_up(columns: Columns, name: str) -> None:
    found = control(columns)
    assert found.worked
    assert found.main.value > 2 * found.baseline.value
    assert found.figures[f"{name}_success"] > 2 * found.figures[f"{name}_lookup"]


@pytest.mark.parametrize("columns", [MOST_KNOWN, FAR_APART], ids=["most known", "far apart"])
def test_by_default_nobody_is_named_better_than_by_a_look_up(columns: Columns) -> None:
    found = default(columns)
    assert found.main.low < 1 / K
    assert found.main.value < 1 / K + 0.05
    for name in ATTACKS:
        success = found.figures[f"{name}_success"]
        assert not success > found.figures[f"{name}_lookup"] + 0.05, name


@pytest.mark.parametrize("attacked", [control, default])
def test_the_result_is_that_of_the_worst_attack(attacked: Any) -> None:
    found = attacked()
    (name,) = [name for name, scenario in SCENARIOS.items() if scenario == found.scenario]
    figures = found.figures
    assert found.main.value == figures[f"{name}_success"]
    assert found.baseline.value == figures[f"{name}_lookup"]
    assert found.main.n == figures[f"{name}_attempts"]
    above = [
        figures[f"{other}_success"]
        for other in ATTACKS
        if figures[f"{other}_success"] > figures[f"{other}_lookup"] + 1e-9
    ]
    if above:
        assert found.main.value == max(above)
    else:
        assert found.main.n == max(figures[f"{other}_attempts"] for other in ATTACKS)


def test_figures_say_how_many_attempts_there_were_and_what_was_answered() -> None:
    found = default().figures
    assert set(found) >= {f"{name}_answered" for name in ATTACKS}
    assert found["trilaterate_attempts"] == 8
    assert 0 < found["pose_attempts"] <= 300
    assert all(0 <= found[f"{name}_answered"] <= 1 for name in ATTACKS)
    assert found["queries"] > 200


def test_what_is_asked_by_default_is_what_protect_answers_with_the_policy() -> None:
    attacked = setting(PrivacyPolicy(k=K))
    population = attacked.population
    protected = protect(
        nearest(FAR_APART), model=LENDS, population=population, policy=PrivacyPolicy(k=K), desired=1
    )
    by_default = nearest_row(attacked.anonymizer)(refused(FAR_APART))
    assert [entry.to_dict() for entry in by_default] == [
        entry.to_dict() for entry in protected.explain(refused(FAR_APART))
    ]


def test_no_attack_asks_with_a_query_that_has_the_outcome() -> None:
    attacked = setting(EXACT)
    answers_to = nearest_row(attacked.anonymizer)
    asked: list[pd.DataFrame] = []

    def explain(queries: pd.DataFrame) -> Explanations:
        asked.append(queries)
        return answers_to(queries)

    found = steering(attacked, explain, posed=20, trilaterated=2)
    assert not LENDS.predict(pd.concat(asked)).any()
    assert len(asked) > len(ATTACKS)  # trilateration asks several times
    assert [found.figures[f"{name}_answered"] for name in ATTACKS] == [1, 1, 1]


def refuses_few(rows: pd.DataFrame) -> np.ndarray:
    """Refuse only people of whom three things are true."""
    is_refused = (
        (rows["phone"] == "none") & (rows["contract"] == "self") & (rows["income"] < 45_000)
    )
    return (~is_refused).to_numpy().astype(int)


@pytest.mark.parametrize("model", [refuses_few, lambda rows: np.ones(len(rows), dtype=int)])
def test_several_private_values_are_held_where_one_does_not_make_the_model_refuse(
    model: Any,
) -> None:
    rows = table(FAR_APART)
    schema = Schema.from_frame(rows, quasi_identifiers=FAR_APART.quasi_identifiers)
    population = Population.from_frame(rows, schema, key=bytes(32))
    with warnings.catch_warnings(action="ignore"):
        anonymizer = KAnonymizer(policy=EXACT).fit(population, model=model, desired=1)
    scenario = Scenario(population, model, 1, table(FAR_APART, 1))
    service = Service(nearest_row(anonymizer), anonymizer.published().generalized)
    found = trilaterate(scenario, service, 2, 4, np.random.default_rng(0))
    assert found.n_attempts == 2
    assert found.n_answered == found.n_queries
    assert (found.n_queries > 0) == (model is refuses_few)


def test_rows_are_spoiled_with_as_few_changes_as_it_takes() -> None:
    rows = table(FAR_APART).head(40)
    population = setting(PrivacyPolicy(k=K)).population

    def is_desired(changed: pd.DataFrame, which: np.ndarray) -> np.ndarray:
        """Refuse the first ten rows as they are, the last ten never, others by their phone."""
        is_other = changed["phone"].to_numpy() != rows["phone"].to_numpy()[which]
        return ~((which < 10) | (is_other & (which < 30)))

    spoiled, is_spoiled = spoil(population, rows, is_desired, np.random.default_rng(0))
    assert is_spoiled.tolist() == [True] * 30 + [False] * 10
    n_changed = (spoiled.astype(object) != rows.astype(object)).sum(axis=1)
    assert n_changed.tolist() == [0] * 10 + [1] * 20 + [0] * 10


def test_a_guarantee_that_protects_the_explainers_row_is_asked_through_it() -> None:
    found = steering(setting(PrivacyPolicy(k=K, guarantee="reciprocal"), MOST_KNOWN))
    assert found.scenario == SCENARIOS["pose"]
    assert found.worked
    assert found.figures["trilaterate_attempts"] == 0
    assert np.isnan(found.figures["trilaterate_success"])


def test_nothing_is_trilaterated_where_none_is_asked_for_or_outcomes_differ() -> None:
    nothing = steering(setting(EXACT), posed=0, trilaterated=0).figures
    assert nothing["pose_attempts"] == nothing["trilaterate_attempts"] == 0
    opposite = steering(setting(EXACT, desired="opposite"), posed=20)
    assert opposite.figures["trilaterate_attempts"] == 0
    assert opposite.figures["pose_attempts"] > 0
    with pytest.raises(InputError, match="trilaterated"):
        steering(setting(EXACT), trilaterated=-1)


def test_people_of_the_table_lend_private_values_where_there_is_no_holdout() -> None:
    found = steering(setting(PrivacyPolicy(k=K), holdout=None), trilaterated=0)
    assert found.figures["pose_attempts"] > 0


def test_a_service_that_answers_nothing_is_not_attacked() -> None:
    attacked = setting(EXACT)
    nothing = attacked.anonymizer.transform(refused(FAR_APART))  # nobody's counterfactuals
    assert not nothing.generalized
    found = steering(attacked, lambda _: nothing)
    assert not found.worked
    assert found.figures["pose_answered"] == 0
    assert found.figures["pose_attempts"] == 0
    assert found.figures["trilaterate_success"] == found.figures["trilaterate_lookup"]


def test_a_run_of_all_attacks_takes_the_numbers_of_attempts() -> None:
    report = run_linkage_audit(setting(PrivacyPolicy(k=K)), ["steering"], posed=9, trilaterated=2)
    assert report["steering"].figures["pose_attempts"] <= 9
    assert report["steering"].figures["trilaterate_attempts"] == 2


# --- a pose by hand: three people in one region


LINE = pd.DataFrame({"place": [1, 2, 3], "pay": [10, 20, 90], "kind": ["a", "a", "b"]})


def three() -> KAnonymizer:
    population = Population.from_frame(
        LINE, Schema.from_frame(LINE, quasi_identifiers=["place"]), key=bytes(32)
    )
    policy = PrivacyPolicy(k=3, guarantee="reciprocal")
    return KAnonymizer(policy=policy).fit(population, lambda rows: rows["pay"] > 5, True)


def posed(row: int) -> Any:
    """Pose as all three, of a service that always answers with one row."""
    anonymizer = three()

    def explain(queries: pd.DataFrame) -> Explanations:
        return anonymizer.transform(LINE.take([row] * len(queries)).reset_index(drop=True))

    refused = pd.DataFrame({"place": [9], "pay": [0], "kind": ["a"]})
    scenario = Scenario(anonymizer.population_, lambda rows: rows["pay"] > 5, True, refused)
    service = Service(explain=explain, published=())
    return pose_as_victims(scenario, service, 3, np.random.default_rng(0))


@pytest.mark.parametrize("row", [0, 1, 2])
def test_who_is_nearest_to_the_values_of_an_answer_is_the_one_who_is_named(row: int) -> None:
    found = posed(row)
    assert sorted(found.chances) == [0, 0, 1]  # right for the one victim whose row it is
    assert found.lookups == pytest.approx([1 / 3] * 3)
    assert (found.n_attempts, found.n_queries, found.n_answered) == (3, 3, 3)
    assert "90" not in repr(found)


def test_values_of_the_query_name_nobody() -> None:
    anonymizer = three()
    (answer,) = anonymizer.transform(LINE.head(1)).generalized
    assert not_of_query(answer, LINE.head(1)) == {}
    assert not_of_query(answer, LINE.head(1).assign(pay=11)) == {"pay": 10}
    population = anonymizer.population_
    scenario = Scenario(population, lambda rows: rows["pay"] > 5, True, LINE)
    everybody = np.arange(3)
    assert scenario.nearest_people(everybody, {}).tolist() == [0, 1, 2]
    assert scenario.nearest_people(everybody, {"kind": "a"}).tolist() == [0, 1]
    assert scenario.chance(everybody, everybody[:1]) == pytest.approx(1 / 3)
