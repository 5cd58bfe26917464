"""Verification of single regions, against figures counted by hand; and which regions are no
regions.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from cfk_plugin import Attribute, Interval, Population, PrivacyPolicy, Region, Schema
from cfk_plugin.data.combinations import Grid
from cfk_plugin.data.constraints import Constraints, rules_of
from cfk_plugin.data.encoded_table import encode
from cfk_plugin.data.model import LabelModel
from cfk_plugin.data.outcome import DesiredOutcome
from cfk_plugin.data.sealing import SealedRegion
from cfk_plugin.data.training_labels import CombinationOutcomes, TrainingLabels
from cfk_plugin.hookspecs import Proposal
from cfk_plugin.release.rebuilt_proposals import rebuild
from cfk_plugin.release.results import (
    Certificate,
    RegionRecount,
    Withheld,
)
from cfk_plugin.release.verification import (
    CountedRegion,
    OutcomeFigures,
    PeopleInRows,
    RecountCache,
    RecountedRegion,
    RegionQuestions,
    SealedPeople,
    Verdict,
    Verifier,
    advises_something,
    ask_about,
    has_its_people_inside,
    has_k_people,
    is_l_diverse,
    is_pure_enough,
    is_t_close,
    is_within_max_ncp,
    reaches_promised_counts,
    refusal_by_model,
    refusal_by_population,
)

TABLE = pd.DataFrame(
    {
        "person": [0, 0, 1, 2, 3, 4, 5, 6],
        "age": [20, 21, 20, 22, 23, 24, 30, 40],
        "city": ["A", "A", "A", "B", "B", "B", "A", None],
        "pay": [1, 2, 1, 0, 3, 3, 2, 9],
        "job": ["x", "x", "y", "x", "y", "y", "x", "y"],
    }
)
SCHEMA = Schema.from_frame(
    TABLE,
    quasi_identifiers=["age", "city"],
    subject="person",
    sensitive=["job"],
    columns={"pay": Attribute(bins=[0, 2, 4, 10]), "age": Attribute(weight=3.0)},
)
POPULATION = Population.from_frame(TABLE, SCHEMA, key=b"a key of tests")
OWN = TABLE.iloc[[1]]  # 21, A, 2, x
YOUNG = Region({"age": Interval(20, 23), "city": frozenset("AB")})  # rows 0 to 4: four people


def model(rows: pd.DataFrame) -> np.ndarray:
    return (rows["age"] + rows["pay"] >= 23).to_numpy().astype(int)


def verdicts(
    proposals: Sequence[Region | Proposal | None],
    frame: pd.DataFrame,
    *,
    predict: Any = model,
    population: Population = POPULATION,
    method: str = "exact",
    limits: tuple[int, int] | None = None,
    given: dict[str, Any] | None = None,
    **policy: Any,
) -> list[Verdict]:
    """Verify one region per row of the frame; `limits` are the verifier's budget and number of
    samples.
    """
    settings: dict[str, Any] = {"k": 2, "guarantee": "lookup", **policy}
    verifier = Verifier(
        population, PrivacyPolicy(**{"guarantee": "lookup", **settings}), **(given or {})
    )
    if limits:
        verifier.cell_budget, verifier.samples = limits
    labels = LabelModel(predict, population.schema.features)
    frame = frame[list(population.schema.features)].reset_index(drop=True)
    judge = DesiredOutcome.of(1).test_for(np.ones(len(frame)))
    combination_outcomes = CombinationOutcomes(judge, TrainingLabels(labels, population), frame)
    asked = [p if isinstance(p, Proposal) else Proposal(p) for p in proposals]
    return verifier.verify(asked, *population.encode(frame), combination_outcomes, method)


def certificate(
    region: Region | Proposal, frame: pd.DataFrame = OWN, **settings: Any
) -> Certificate:
    (verdict,) = verdicts([region], frame, **settings)
    assert not isinstance(verdict, Withheld)
    return verdict.certificate


def recount(region: Region | Proposal, frame: pd.DataFrame = OWN, **settings: Any) -> RegionRecount:
    (verdict,) = verdicts([region], frame, **settings)
    assert not isinstance(verdict, Withheld)
    return verdict.recount


def refusal(
    region: Region | Proposal | None, frame: pd.DataFrame = OWN, **settings: Any
) -> tuple[str, int | None]:
    (verdict,) = verdicts([region], frame, **settings)
    assert isinstance(verdict, Withheld)
    assert verdict.query == -1  # filled in by who knows the query
    return verdict.reason, verdict.refused_k


# --- every figure ---------------------------------------------------------------------------------


def test_every_figure_of_a_certificate() -> None:
    found = certificate(Proposal(YOUNG, optimal=True, gap=0.0), method="a method")
    parts = (3 / 20, 2 / 3)  # two of the cities A, B and missing
    assert found.prosecutor_risk == 0.25
    assert found.to_dict() == {
        "k": 4,
        "ncp": pytest.approx((3 * parts[0] + parts[1]) / 4),
        "pureness": 0.75,  # ages 21, 22 and 23 of four
        "pureness_low": 0.75,
        "pureness_high": 0.75,
        "exact": True,
        "optimal": True,
        "gap": 0.0,
        "method": "a method",
        "guarantee": "lookup",
        "not_stopped": [
            "inversion",
            "model filter",
            "query steering",
            "intersection",
            "private value linkage",
        ],
        "policy_hash": PrivacyPolicy(k=2, guarantee="lookup").sha256,
        "population": POPULATION.fingerprint,
        "margin": None,
        "n_later": 0,
    }


def test_every_figure_of_a_recount() -> None:
    assert recount(YOUNG).to_dict() == {
        "k_worst": 2,
        "k": 4,
        "k_desired": 2,  # rows 1 and 4
        "k_consistent": 3,  # with pay 2: rows 1, 3 and 4
        "k_effective": None,
        "k_private": 1,
        "private_matches": 2,  # rows 1 and 6
        "l": 2,
        "t": pytest.approx(0.1),  # three of five have job x, and four of eight elsewhere
        "majority": False,  # two of five rows
        "disclosure": pytest.approx(0.1),
        "ncp_parts": pytest.approx((3 / 20, 2 / 3)),
        "permitted_pureness": None,
        "moved": (),
        "unchanged": (),
    }


@pytest.mark.parametrize(
    ("counts", "worst"),
    [
        ({}, 2),
        ({"k_desired": 3, "k_consistent": 4}, 3),
        ({"k_desired": None, "k_consistent": 4}, 4),
        ({"k_desired": 3, "k_consistent": 4, "k_effective": 1}, 1),
        ({"k_desired": 3, "k_consistent": 4, "k_effective": 2}, 2),
        ({"k_desired": 3, "k_consistent": 4, "k_private": 0, "private_matches": 0}, 3),
    ],
)
def test_the_worst_k_is_the_smallest_count_of_people_that_is_known(
    counts: dict[str, Any], worst: int
) -> None:
    assert recount(YOUNG).with_counts(**counts).k_worst == worst


def test_a_tie_is_a_majority() -> None:
    # of two
    assert recount(
        Region({"age": Interval(20, 23), "city": frozenset("B")}), TABLE.iloc[[4]]
    ).majority
    assert not recount(YOUNG).majority
    assert recount(Region({"age": Interval(21, 24), "city": frozenset("AB")})).majority


def test_a_claim_of_optimality_is_repeated_and_an_impossible_gap_is_not() -> None:
    assert not certificate(YOUNG).optimal
    assert certificate(YOUNG).gap is None
    assert certificate(Proposal(YOUNG, optimal=False, gap=0.25)).gap == 0.25
    for gap in (-0.1, float("inf"), float("nan")):
        assert certificate(Proposal(YOUNG, gap=gap)).gap is None


def test_verdicts_stand_in_the_order_of_the_counterfactuals() -> None:
    old = Region({"age": Interval(30, 40), "city": frozenset({"A", None})})
    found = verdicts([YOUNG, None, old, YOUNG, old], TABLE.iloc[[1, 1, 6, 4, 6]])
    assert found[1] == Withheld(-1, "infeasible")
    ks = [
        None if isinstance(v, Withheld) else (v.region, v.certificate.k, v.certificate.pureness)
        for v in found
    ]
    assert ks == [(YOUNG, 4, 0.75), None, (old, 2, 1.0), (YOUNG, 4, 1.0), (old, 2, 1.0)]


def test_more_regions_than_are_remembered_are_counted_like_any() -> None:
    regions = [Region({**YOUNG.parts, "age": Interval(20, 23 + i / 100)}) for i in range(300)]
    found = verdicts([*regions, *regions[:3]], OWN.iloc[np.zeros(303, dtype=int)])
    assert found[:3] == found[300:] == verdicts(regions[:3], OWN.iloc[[0, 0, 0]])
    # one more from an end of 24 on
    assert {v.certificate.k for v in found if not isinstance(v, Withheld)} == {4, 5}


# --- what the policy asks for ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ({"k": 5}, ("verification_failed", 4)),
        ({"max_ncp": 0.27}, ("ncp_above_ceiling", None)),
        ({"l": 3}, ("l_diversity", None)),
        ({"t": 0.09}, ("t_closeness", None)),
        ({"min_pureness": 0.76}, ("pureness_below_floor", None)),
    ],
    ids=str,
)
def test_what_misses_the_policy_is_refused(
    policy: dict[str, Any], reason: tuple[str, int | None]
) -> None:
    assert refusal(YOUNG, **policy) == reason


def test_what_just_meets_the_policy_leaves() -> None:
    ncp = certificate(YOUNG).ncp
    closeness = recount(YOUNG).t
    assert closeness is not None
    assert certificate(YOUNG, k=4, l=2, t=closeness, max_ncp=ncp, min_pureness=0.75).k == 4


def test_a_region_of_more_combinations_than_the_budget_is_sampled() -> None:
    asked: list[pd.DataFrame] = []

    def watched(rows: pd.DataFrame) -> np.ndarray:
        asked.append(rows)
        return model(rows)

    assert certificate(YOUNG, limits=(8, 5)).exact  # four ages, two cities
    first = certificate(YOUNG, limits=(7, 5), predict=watched)
    good = round(5 * first.pureness)
    interval = binomtest(good, 5).proportion_ci(method="exact")
    assert not first.exact
    assert first.pureness == good / 5
    assert (first.pureness_low, first.pureness_high) == pytest.approx((interval.low, interval.high))
    again = [
        certificate(YOUNG, limits=(7, 5), predict=watched, given={"seed": seed})
        for seed in (0, *range(8))
    ]
    assert again[0] == first
    drawn = {
        tuple(rows[["age", "city"]].itertuples(index=False, name=None))
        for rows in asked
        if len(rows) > 5
    }
    assert len(drawn) > 1  # other seeds ask for other combinations
    # The floor holds for the lower end of the interval.
    floor = first.pureness_low
    assert certificate(YOUNG, limits=(7, 5), min_pureness=floor) is not None
    assert refusal(YOUNG, limits=(7, 5), min_pureness=floor + 0.001) == (
        "pureness_below_floor",
        None,
    )


def test_what_is_sampled_for_one_does_not_depend_on_the_others() -> None:
    wide = Region({"age": Interval(20, 40), "city": frozenset({"A", "B", None})})
    alone = certificate(YOUNG, limits=(4, 3))
    (_, verdict) = verdicts([wide, YOUNG], TABLE.iloc[[6, 1]], limits=(4, 3))
    assert not isinstance(verdict, Withheld)
    assert verdict.certificate == alone


# --- the rules of the policy ----------------------------------------------------------------------

ROWS_OF_YOUNG = np.arange(5)


def counted(
    *mapped_rows: int, inside: np.ndarray = ROWS_OF_YOUNG, is_of_group: bool = True
) -> CountedRegion:
    people = PeopleInRows(POPULATION, inside, np.array(mapped_rows))
    return CountedRegion(YOUNG, people, POPULATION, is_of_group=is_of_group)


def outcome_figures(**changes: Any) -> OutcomeFigures:
    figures: dict[str, Any] = {
        "pureness": 0.9,
        "pureness_low": 0.85,
        "pureness_high": 0.95,
        "k_desired": 4,
        "majority": True,
        "k_consistent": 4,
        "fewest_promised": 3,
    }
    return OutcomeFigures(**{**figures, **changes})


def policy(**settings: Any) -> PrivacyPolicy:
    return PrivacyPolicy(**{"k": 3, "guarantee": "catalogue", **settings})


def test_people_are_counted_not_rows() -> None:
    assert has_k_people(counted(0, 2, 3, 4), policy())  # persons 0 to 3, but for 0's other row
    assert not has_k_people(counted(0, 1, 2), policy())  # two rows of person 0, one of person 1


def test_people_are_mapped_to_a_region_that_they_fit() -> None:
    assert has_its_people_inside(counted(0, 4))
    assert not has_its_people_inside(counted(0, 4, 6))


def test_ncp_may_be_at_the_ceiling_and_not_above() -> None:
    region = counted(0, 1, 2)
    assert is_within_max_ncp(region, policy())
    assert is_within_max_ncp(region, policy(max_ncp=region.ncp))
    assert not is_within_max_ncp(region, policy(max_ncp=region.ncp - 1e-9))


def test_sensitive_values_of_those_mapped_are_judged() -> None:
    same_job = counted(0, 1, 3)
    assert is_l_diverse(same_job, policy())
    assert is_l_diverse(same_job, policy(l=1))
    assert not is_l_diverse(same_job, policy(l=2))
    assert is_t_close(same_job, policy())
    assert is_t_close(same_job, policy(t=0.5))  # all have job x, and half of everyone
    assert not is_t_close(same_job, policy(t=0.499))


def test_l_and_t_hold_where_nothing_is_sensitive() -> None:
    schema = Schema.from_frame(TABLE, quasi_identifiers=["age", "city"])
    population = Population.from_frame(TABLE, schema)
    people = PeopleInRows(population, ROWS_OF_YOUNG, ROWS_OF_YOUNG)
    region = CountedRegion(YOUNG, people, population, is_of_group=True)
    assert is_l_diverse(region, policy(l=9))
    assert is_t_close(region, policy(t=0.0))


def test_the_low_end_of_pureness_counts() -> None:
    assert is_pure_enough(outcome_figures(pureness_low=0.8), policy(min_pureness=0.8))
    assert not is_pure_enough(outcome_figures(pureness_low=0.79), policy(min_pureness=0.8))


def test_only_the_region_of_a_group_must_advise_something() -> None:
    nothing = outcome_figures(pureness=0.0)
    assert not advises_something(counted(0), nothing)
    assert advises_something(counted(0, is_of_group=False), nothing)
    assert advises_something(counted(0), outcome_figures(pureness=0.001))


def test_promised_counts_reach_k() -> None:
    assert reaches_promised_counts(outcome_figures(fewest_promised=3), policy())
    assert not reaches_promised_counts(outcome_figures(fewest_promised=2), policy())
    assert reaches_promised_counts(outcome_figures(fewest_promised=None), policy())


def test_the_first_broken_rule_about_the_population_gives_the_reason() -> None:
    """Each step takes away the rule that gave the reason before."""
    strict: dict[str, Any] = {"k": 3, "max_ncp": 0.1, "l": 2, "t": 0.1}
    steps: list[tuple[CountedRegion, dict[str, Any], tuple[str, int | None] | None]] = [
        (counted(0, 1, 6), strict, ("verification_failed", 2)),
        (counted(0, 1, 6), strict | {"k": 2}, ("verification_failed", None)),
        (counted(0, 1, 3), strict | {"k": 2}, ("ncp_above_ceiling", None)),
        (counted(0, 1, 3), {"k": 2, "l": 2, "t": 0.1}, ("l_diversity", None)),
        (counted(0, 1, 3), {"k": 2, "t": 0.1}, ("t_closeness", None)),
        (counted(0, 1, 3), {"k": 2}, None),
    ]
    for region, settings, expected in steps:
        refusal = refusal_by_population(region, policy(**settings))
        assert (refusal and (refusal.reason, refusal.refused_k)) == expected


def test_the_first_broken_rule_about_outcomes_gives_the_reason() -> None:
    bad: dict[str, Any] = {"pureness": 0.0, "pureness_low": 0.0, "fewest_promised": 1}
    steps: list[tuple[dict[str, Any], dict[str, Any], tuple[str, int | None] | None]] = [
        (bad, {}, ("pureness_below_floor", None)),
        (bad, {"min_pureness": 0.0}, ("pureness_below_floor", None)),
        (bad | {"pureness": 0.1}, {"min_pureness": 0.0}, ("verification_failed", 1)),
        (bad | {"pureness": 0.1, "fewest_promised": 3}, {"min_pureness": 0.0}, None),
    ]
    for figures, settings, expected in steps:
        refusal = refusal_by_model(counted(0), outcome_figures(**figures), policy(**settings))
        assert (refusal and (refusal.reason, refusal.refused_k)) == expected


# --- people of whom there are no rows -------------------------------------------------------------


def test_of_a_sealed_region_floors_count_where_the_model_proves_them() -> None:
    with_entry = np.array([7, 1], dtype=np.int32)
    other = np.array([7, 2], dtype=np.int32)
    sealed = SealedRegion(
        people=9,
        floor=4,
        held=(np.array([[0, 0], [0, 1]]), np.array([[1, 0]])),
        entries=frozenset([with_entry.tobytes()]),
    )
    people = SealedPeople(sealed)
    assert (people.n_inside, people.n_mapped, len(people.inside)) == (9, 4, 0)
    assert people.combinations.tolist() == [[0, 0], [0, 1], [1, 0]]
    is_sure = np.array([[0, 1, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1]], dtype=bool)
    private = np.array([other, other, with_entry, other])
    is_proved = people.are_consistent(is_sure, private)
    assert is_proved.tolist() == [[False], [True], [True], [True]]
    assert people.count(is_proved) == people.count_mapped(is_proved) == [0, 4, 4, 4]
    assert SealedPeople(sealed._replace(people=3)).n_mapped == 3  # never more than there are


def test_people_who_count_are_sealed_mapped_or_all_inside() -> None:
    sealed = SealedRegion(people=9, floor=4, held=(np.array([[0, 0]]),), entries=frozenset())
    settings = policy()

    alone = Verifier(POPULATION, settings)
    assert rows_of(alone.people_of(YOUNG)) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])

    groups = Verifier(POPULATION, settings, **mapped(1, 3))
    assert rows_of(groups.people_of(YOUNG)) == ([0, 1, 2, 3, 4], [1, 3])

    without_rows = Verifier(POPULATION, settings, sealed={YOUNG: sealed}.get, **mapped(1, 3))
    people = without_rows.people_of(YOUNG)
    assert isinstance(people, SealedPeople)
    assert people.sealed is sealed
    assert without_rows.people_of(region_of(21, "A")) is None


def rows_of(people: Any) -> tuple[list[int], list[int]]:
    return people.inside.tolist(), people.mapped.tolist()


def test_a_region_that_was_not_sealed_is_refused() -> None:
    given = {"sealed": {}.get, **mapped(0, 1, 3)}
    assert refusal(YOUNG, **GROUPS, given=given) == ("verification_failed", None)


def test_without_questions_the_model_is_not_asked() -> None:
    no_model: Any = None
    assert [*ask_about(no_model, [])] == []


# --- what a person can change ---------------------------------------------------------------------


def test_where_nothing_is_certified_the_model_is_not_asked() -> None:
    encoded = encode(OWN[["age", "city", "pay", "job"]], POPULATION.encoder)
    constraints = Constraints(encoded, rules_of(POPULATION.encoder, ["age"]), max_changes=0)
    verdict = Withheld(-1, "l_diversity")
    not_asked: Any = None
    verifier = Verifier(POPULATION, policy())
    assert verifier.actionability.withhold_excluded_changes(
        constraints, encoded, [verdict], not_asked, not_asked
    ) == [verdict]
    assert verifier.actionability.withhold_too_many_changes(constraints, encoded, [verdict]) == [
        verdict
    ]


# --- what is remembered ---------------------------------------------------------------------------


def recounted(n_combinations: int) -> RecountedRegion:
    combinations = np.zeros((n_combinations, 2), dtype=np.int32)
    grid = Grid((np.arange(1), np.arange(1)))
    questions = RegionQuestions(grid=grid, combinations=combinations, are_all=True)
    return RecountedRegion(counted=counted(0, inside=np.arange(0)), questions=questions)


def region_of(age: float, *cities: object) -> Region:
    return Region({"age": Interval(20, age), "city": frozenset(cities)})


def test_a_large_recount_is_not_remembered() -> None:
    cache = RecountCache()
    cache.add(region_of(21, "A"), recounted(RecountCache.MOST_OF_ONE))
    cache.add(region_of(22, "A"), recounted(RecountCache.MOST_OF_ONE + 1))
    assert cache.get(region_of(21, "A")) is not None
    assert cache.get(region_of(22, "A")) is None


def test_recounts_are_forgotten_when_one_more_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecountCache, "MOST", 10)
    cache = RecountCache()
    first = recounted(6)
    cache.add(region_of(21, "A"), first)
    cache.add(region_of(22, "A"), recounted(4))
    assert repr(cache) == "RecountCache(2 regions, 10 rows and combinations)"
    assert cache.get(region_of(21, "A")) is first
    cache.add(region_of(23, "A"), Withheld(-1, "l_diversity"))  # one more row or combination
    assert cache.get(region_of(21, "A")) is None
    assert cache.get(region_of(22, "A")) is None
    assert cache.get(region_of(23, "A")) == Withheld(-1, "l_diversity")
    cache.add(region_of(24, "A"), recounted(9))
    assert cache.get(region_of(23, "A")) is not None


def test_equal_regions_of_other_types_are_remembered_apart() -> None:
    cache = RecountCache()
    number = region_of(21, 1)
    boolean = region_of(21, True)
    assert number == boolean
    cache.add(number, recounted(1))
    assert cache.get(boolean) is None


# --- the counterfactual's own values --------------------------------------------------------------


def test_an_age_that_nobody_has_is_a_combination_of_its_own() -> None:
    own = OWN.assign(age=20.5)
    assert certificate(YOUNG, own).pureness == 0.6  # three of five ages
    assert certificate(YOUNG, own, limits=(10, 1)).exact
    assert not certificate(YOUNG, own, limits=(9, 1)).exact
    for low, high in ((21, 23), (20, 20)):
        assert refusal(Region({**YOUNG.parts, "age": Interval(low, high)}), own) == (
            "verification_failed",
            None,
        )


@pytest.mark.parametrize("city", ["C", None])
def test_a_city_outside_of_the_region_is_refused(city: str | None) -> None:
    own = OWN.assign(city=np.array([city], dtype=object))
    assert refusal(YOUNG, own) == ("verification_failed", None)
    if city is None:
        with_missing = Region({"age": Interval(20, 40), "city": frozenset({"A", None})})
        assert certificate(with_missing, own).k == 4


@pytest.mark.parametrize("age", [np.nan, np.inf, 24])
def test_an_age_outside_of_the_region_or_none_is_refused(age: float) -> None:
    own = OWN.assign(age=float(age))
    assert refusal(YOUNG, own) == ("verification_failed", None)
    if not np.isin(age, TABLE["age"]):  # nor is it in the region of everybody
        everybody = Region({"age": Interval(20, 40), "city": frozenset({"A", "B", None})})
        assert refusal(everybody, own) == ("verification_failed", None)


ORDERED = TABLE.assign(
    grade=np.array(["low", "low", "mid", "mid", "high", "high", "low", None], dtype=object),
    since=pd.to_datetime(["2020-01-01", "2020-02-01"] * 4),
)
ORDERED_POPULATION = Population.from_frame(
    ORDERED,
    Schema.from_frame(
        ORDERED,
        quasi_identifiers=["age", "city", "grade", "since"],
        subject="person",
        ordinal={"grade": ["low", "mid", "high"]},
    ),
)
WHOLE: dict[str, Any] = {
    "age": Interval(20, 40),
    "city": frozenset({"A", "B", None}),
    "grade": Interval("low", "high", True, ("low", "mid", "high")),
    "since": Interval(pd.Timestamp("2020-01-01"), pd.Timestamp("2020-02-01")),
}


def whole(**changes: Any) -> Region:
    made = Region(WHOLE)
    object.__setattr__(made, "parts", {**WHOLE, **changes})
    return made


def test_a_region_has_the_quasi_identifiers_and_no_other() -> None:
    own: pd.DataFrame = ORDERED.iloc[[1]]
    settings: dict[str, Any] = {"population": ORDERED_POPULATION}
    for parts in ({n: p for n, p in WHOLE.items() if n != "age"}, {**WHOLE, "pay": Interval(0, 9)}):
        assert refusal(Region(parts), own, **settings) == ("verification_failed", None)
    assert refusal(WHOLE, own, **settings) == ("verification_failed", None)  # type: ignore[arg-type]


# --- regions of a partition -----------------------------------------------------------------------


def mapped(*rows: int) -> dict[str, Any]:
    return {"mapped_rows": lambda region: np.array(rows)}


GROUPS: dict[str, Any] = {"guarantee": "lookup"}


def test_of_a_partition_those_count_who_are_mapped_to_the_region() -> None:
    found = recount(YOUNG, **GROUPS, given=mapped(0, 1, 3))
    assert (found.k, found.k_effective, found.l) == (4, 2, 1)  # all three have job x
    assert refusal(YOUNG, **GROUPS, k=3, given=mapped(0, 1, 3)) == ("verification_failed", 2)
    # row 6 is outside
    assert refusal(YOUNG, **GROUPS, given=mapped(0, 1, 3, 6)) == ("verification_failed", None)
    assert refusal(YOUNG, **GROUPS, l=2, given=mapped(0, 1, 3)) == ("l_diversity", None)


def test_the_region_of_a_group_need_not_hold_the_counterfactual_but_some_advice() -> None:
    away = OWN.assign(age=33)
    assert recount(YOUNG, away, **GROUPS, given=mapped(0, 1, 3)).k_effective == 2
    assert refusal(YOUNG, away) == ("verification_failed", None)
    none = OWN.assign(pay=-9)
    assert refusal(YOUNG, none, **GROUPS, given=mapped(0, 1, 3)) == ("pureness_below_floor", None)
    # who asks for no floor gets it with a lookup guarantee
    assert certificate(YOUNG, none).pureness == 0.0


def test_k_of_those_who_are_mapped_must_have_the_outcome() -> None:
    catalogue: dict[str, Any] = {"guarantee": "catalogue", "min_pureness": 0.0}
    assert recount(YOUNG, **catalogue, given=mapped(0, 1, 4)).k_desired == 2  # rows 1 and 4
    assert refusal(YOUNG, **catalogue, given=mapped(1, 2, 3)) == ("verification_failed", 1)
    assert recount(YOUNG, **GROUPS, given=mapped(1, 2, 3)).k_effective == 3


def test_of_a_catalogue_k_must_be_consistent_with_the_entry() -> None:
    catalogue: dict[str, Any] = {"guarantee": "catalogue", "min_pureness": 0.0}
    assert recount(YOUNG, **catalogue, given=mapped(1, 4)).k_consistent == 3
    assert recount(YOUNG, **catalogue, given=mapped(0, 1, 4)).k_effective == 2
    # Rows 1 and 4 have the outcome; with a pay of 0 row 4 alone would.
    poor = OWN.assign(pay=0)
    assert refusal(YOUNG, poor, **catalogue, given=mapped(1, 4)) == ("verification_failed", 1)
    # row 3 has another outcome
    assert refusal(YOUNG, **catalogue, given=mapped(1, 3)) == ("verification_failed", 1)
    # whose entries are at least 0.8 pure, where nothing else is asked for
    floor = {"guarantee": "catalogue"}
    assert refusal(YOUNG, **floor, given=mapped(1, 4)) == ("pureness_below_floor", None)


# --- a proposal made anew of the population's own values ------------------------------------------


def rebuilt(**changes: Any) -> Any:
    return rebuild(Proposal(whole(**changes)), ORDERED_POPULATION)


def test_a_proposal_is_made_anew() -> None:
    found = rebuild(Proposal(whole(), optimal=True, gap=np.float64(0.5)), ORDERED_POPULATION)
    assert found == Proposal(Region(WHOLE), True, 0.5)
    assert found is not None
    assert found.region is not None
    assert type(found.gap) is float
    assert list(found.region) == ["age", "city", "grade", "since"]
    assert rebuild(Proposal(None), ORDERED_POPULATION) == Proposal(None)
    assert rebuild(Proposal(whole(), optimal=1), ORDERED_POPULATION) == Proposal(Region(WHOLE))  # type: ignore[arg-type]
    assert rebuild(Proposal(whole(), gap="much"), ORDERED_POPULATION) is None  # type: ignore[arg-type]
    assert rebuild("no proposal", ORDERED_POPULATION) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ({"age": Interval(np.int64(20), 23.0)}, Interval(20, 23)),
        ({"age": Interval(20.5, 1e6)}, Interval(20.5, 1000000)),
        ({"age": Interval(None, None)}, Interval(None, None)),
        ({"age": Interval(20, 23, missing=True)}, Interval(20, 23)),  # no age is missing
        ({"city": frozenset({"B"})}, frozenset({"B"})),
        ({"city": frozenset({None})}, frozenset({None})),
        (
            {"grade": Interval("x", "y", False, ("mid", "high"))},
            Interval("mid", "high", False, ("mid", "high")),
        ),
        ({"grade": Interval("low", "low", True, ("low",))}, Interval("low", "low", True, ("low",))),
        ({"grade": Interval(None, None, True, ())}, Interval(None, None, True, ())),
        (
            {"since": Interval(date(2020, 1, 1), pd.Timestamp("2020-01-05"))},
            Interval(pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-05")),
        ),
    ],
    ids=str,
)
def test_parts_are_spelled_as_the_population_spells_them(given: dict[str, Any], own: Any) -> None:
    ((name, _),) = given.items()
    part = rebuilt(**given).region[name]
    assert part == own
    assert type(part) is type(own)
    if isinstance(own, Interval):
        assert (type(part.low), type(part.high), part.levels) == (
            type(own.low),
            type(own.high),
            own.levels,
        )


class OtherInterval(Interval):
    pass


class OtherSet(frozenset[Any]):
    pass


class OtherTuple(tuple[Any, ...]):
    __slots__ = ()


NO_PARTS: dict[str, list[Any]] = {
    "age": [
        *(
            frozenset({20, 21}),
            Interval(20, None),
            Interval(None, 40),
            Interval("20", "40"),
            Interval(20, "40"),
        ),
        *(Interval(20, 40, levels=("low",)), None),
    ],
    "city": [Interval("A", "B"), frozenset({"A", "B", "C"})],
    "grade": [
        Interval("low", "high", True),
        Interval("low", "high", True, ("low", "mid", "high", "top")),
    ],
}
NOT_REBUILT: dict[str, list[Any]] = {  # nor these, of which the verifier never hears
    "age": [
        *(
            OtherInterval(20, 40),
            Interval(20, 40, levels=()),
            Interval(True, 40),
            Interval("20", 40),
        ),
        *(Interval(20, float("inf")), Interval(float("nan"), 40)),
    ],
    "city": [OtherSet({"A"}), frozenset({"A", "C"}), frozenset()],
    "grade": [
        *(Interval("low", "high"), Interval("low", "top", levels=("high", "top"))),
        *(
            Interval("low", "high", levels=OtherTuple(("low", "mid"))),
            Interval("low", "high", levels=["low", "mid"]),
        ),  # type: ignore[arg-type]
        *(
            Interval("low", "high", levels=levels)
            for levels in (("low", "high"), ("mid", "low"), ("low", "low"))
        ),
    ],
}


@pytest.mark.parametrize("name", NO_PARTS)
def test_what_is_no_part_is_neither_certified_nor_rebuilt(name: str) -> None:
    settings: dict[str, Any] = {"frame": ORDERED.iloc[[1]], "population": ORDERED_POPULATION}
    assert certificate(whole(), **settings).k == 7
    for part in NO_PARTS[name]:
        assert refusal(whole(**{name: part}), **settings) == ("verification_failed", None)
    for part in NO_PARTS[name] + NOT_REBUILT[name]:
        assert rebuilt(**{name: part}) is None


def test_only_a_region_over_the_quasi_identifiers_is_rebuilt() -> None:
    class OtherRegion(Region):
        pass

    missing, more = (
        Region({n: p for n, p in WHOLE.items() if n != "age"}),
        Region({**WHOLE, "pay": Interval(0, 9)}),
    )
    renamed = Region({**{n: p for n, p in WHOLE.items() if n != "age"}, "pay": Interval(0, 9)})
    other = Region(WHOLE)
    object.__setattr__(other, "parts", type("OtherDict", (dict,), {})(WHOLE))
    for made in (missing, more, renamed, other, OtherRegion(WHOLE), WHOLE):
        assert rebuild(Proposal(made), ORDERED_POPULATION) is None  # type: ignore[arg-type]


def test_a_count_that_there_is_not_is_refused() -> None:
    with pytest.raises(TypeError, match="a recount has no k_efective"):
        recount(YOUNG).with_counts(k_efective=1)
