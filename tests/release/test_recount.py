"""The recount, against figures counted by hand, a search that lies, and a catalogue on file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from cfk_plugin import (
    Interval,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Region,
    Schema,
    Withheld,
)
from cfk_plugin.data.call_rules import CallRules
from cfk_plugin.data.codes import Floats
from cfk_plugin.data.outcome_model import Model
from cfk_plugin.hookspecs import Proposal
from cfk_plugin.metrics.risk import SensitiveFigures
from cfk_plugin.release.recount import (
    Advice,
    Certified,
    Claims,
    OutcomeFigures,
    PeopleCounts,
    PeopleElsewhere,
    PeopleHere,
    Recounter,
    RegionFigures,
    TrainingTable,
    Verdict,
    refusal,
)
from worlds import World

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
    TABLE, quasi_identifiers=["age", "city"], subject="person", sensitive=["job"]
)
POPULATION = Population.from_frame(TABLE, SCHEMA)
CODES = POPULATION.row_codes
YOUNG = Region({"age": Interval(20, 23), "city": frozenset("AB")})  # rows 0 to 4: four people
NARROW = Region({"age": Interval(22, 23), "city": frozenset("B")})  # rows 3 and 4
MEMBERS = [1, 4]  # rows of persons 0 and 3, who have the outcome


def predict(rows: pd.DataFrame) -> np.ndarray:
    return (rows["age"] + rows["pay"] >= 23).to_numpy().astype(int)


def recounter(
    *regions: Region, members: list[int] = MEMBERS, margin: float | None = None, **settings: Any
) -> Recounter:
    """Return a recounter of regions that have the same members."""
    model = Model.of(CODES, predict, 1)
    return Recounter(
        model=model,
        policy=PrivacyPolicy(**{"k": 2, "min_pureness": 0.5, **settings}),
        people=PeopleHere(
            TrainingTable(POPULATION, model), regions, [np.array(members)] * len(regions)
        ),
        fingerprint=POPULATION.fingerprint,
        margin=margin,
    )


def rows_of(**values: Any) -> Floats:
    """Return one row: by default 21, A, 2, x."""
    row = {"age": 21, "city": "A", "pay": 2, "job": "x", **values}
    return CODES.encode(pd.DataFrame([row]))


def verdict_on(recounter: Recounter, **values: Any) -> Verdict:
    """Judge the first region with the private values of a row."""
    private = rows_of(**values)[:, CODES.private]
    (verdict,) = recounter.judge(Claims(np.array([0]), private))
    return verdict


def reason_of(verdict: Verdict) -> str | None:
    return verdict.reason if isinstance(verdict, Withheld) else None


# --- the rules ------------------------------------------------------------------------------------


def region_figures(**changes: Any) -> RegionFigures:
    figures: dict[str, Any] = {
        "n_people": 5,
        "n_members": 3,
        "are_members_inside": True,
        "ncp_parts": {"age": 0.5},
        "ncp": 0.5,
        "sensitive": SensitiveFigures(diversity=2, closeness=0.25),
        "combinations": np.empty((1, 2)),
        "are_all": True,
    }
    return RegionFigures(**{**figures, **changes})


def outcome_figures(**changes: Any) -> OutcomeFigures:
    shares = {"pureness": 0.8, "pureness_low": 0.75, "pureness_high": 0.85}
    counts = {"k_consistent": 4, "n_consistent_members": 3, "k_desired": 4, "n_desired_members": 3}
    shares |= {name: changes[name] for name in shares if name in changes}
    counts |= {name: changes[name] for name in counts if name in changes}
    return OutcomeFigures(**shares, people=PeopleCounts(**counts))


STRICT: dict[str, Any] = {"k": 3, "max_ncp": 0.5, "l": 2, "t": 0.25, "min_pureness": 0.75}
BROKEN: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"n_members": 2}, {}, "verification_failed"),
    ({"are_members_inside": False}, {}, "verification_failed"),
    ({"has_counterfactual": False}, {}, "verification_failed"),
    ({"ncp": 0.501}, {}, "ncp_above_ceiling"),
    ({"sensitive": SensitiveFigures(diversity=1, closeness=0.0)}, {}, "l_diversity"),
    ({"sensitive": SensitiveFigures(diversity=2, closeness=0.26)}, {}, "t_closeness"),
    ({}, {"pureness_low": 0.74}, "pureness_below_floor"),
    ({}, {"n_consistent_members": 2}, "verification_failed"),
    ({}, {"n_desired_members": 2}, "verification_failed"),
]


@pytest.mark.parametrize(("of_region", "of_outcome", "reason"), BROKEN)
def test_broken_rule_gives_its_reason(
    of_region: dict[str, Any], of_outcome: dict[str, Any], reason: str
) -> None:
    """Figures that just meet the policy break one rule each."""
    policy = PrivacyPolicy(**STRICT)
    assert refusal(region_figures(), outcome_figures(), policy) is None  # all just met
    assert refusal(region_figures(**of_region), outcome_figures(**of_outcome), policy) == reason


def test_region_without_outcome_is_impure() -> None:
    """Even if the policy has no floor."""
    nothing = outcome_figures(pureness=0.0, pureness_low=0.0)
    policy = PrivacyPolicy(k=3, min_pureness=0)
    assert refusal(region_figures(), nothing, policy) == "pureness_below_floor"


def test_rules_of_people_come_first() -> None:
    """The reason of a region that breaks two kinds of rules."""
    poor = outcome_figures(pureness_low=0.0, n_consistent_members=0)
    policy = PrivacyPolicy(**STRICT)
    assert refusal(region_figures(ncp=1.0), poor, policy) == "ncp_above_ceiling"
    assert refusal(region_figures(), poor, policy) == "pureness_below_floor"


# --- the figures ----------------------------------------------------------------------------------


def test_figures_of_a_certificate_are_counted() -> None:
    """By hand, from eight rows of seven people."""
    verdict = verdict_on(recounter(YOUNG, margin=0.0))
    assert isinstance(verdict, Certified)
    assert verdict.region == YOUNG
    recount = verdict.recount
    assert recount.k == 4
    assert recount.ncp == pytest.approx((3 / 20 + 2 / 3) / 2)  # 2 of cities A, B and missing
    assert recount.pureness == 0.75  # ages 21, 22 and 23 of four
    assert recount.pureness_low == recount.pureness_high == 0.75
    assert recount.k_effective == 2
    assert recount.k_desired == 2  # rows 1 and 4
    assert recount.k_consistent == 3  # with pay 2: rows 1, 3 and 4
    assert (recount.k_private, recount.private_matches) == (1, 2)  # rows 1 and 6
    assert (recount.l, recount.t, recount.majority) == (2, 0.0, False)
    assert recount.ncp_parts == pytest.approx((3 / 20, 2 / 3))


def test_certificate_states_no_exact_figure() -> None:
    """It has the policy's k, and shares of two decimals."""
    verdict = verdict_on(recounter(YOUNG, margin=0.0))
    assert isinstance(verdict, Certified)
    certificate = verdict.certificate
    assert (certificate.k, certificate.ncp) == (2, 0.41)
    assert (certificate.pureness, certificate.exact) == (0.75, True)
    assert (certificate.margin, certificate.n_later, certificate.method) == (0.0, 0, "catalogue")


def test_people_are_counted_not_rows() -> None:
    """Rows 0 and 1 are one person's."""
    two_rows = recounter(YOUNG, members=[0, 1])
    assert reason_of(verdict_on(two_rows, pay=9)) == "verification_failed"


def test_low_end_of_sampled_pureness_counts() -> None:
    """Combinations of a large region are sampled."""
    n = 150
    train = pd.DataFrame({"age": range(n), "size": range(n), "pay": [1] * n})
    schema = Schema.from_frame(train, quasi_identifiers=["age", "size"])
    population = Population.from_frame(train, schema)
    model = Model.of(population.row_codes, lambda rows: (rows["age"] >= 45).astype(int), 1)
    members = np.arange(100, 110)

    def verdict_with(**settings: Any) -> Verdict:
        region = Region({"age": Interval(0, n - 1), "size": Interval(0, n - 1)})
        people = PeopleHere(TrainingTable(population, model), [region], [members])
        policy = PrivacyPolicy(k=5, **settings)
        recounter = Recounter(
            model=model,
            policy=policy,
            people=people,
            fingerprint="",
            margin=None,
        )
        return recounter.judge(Claims(np.array([0]), np.array([[1.0]])))[0]

    verdict = verdict_with()
    assert isinstance(verdict, Certified)
    recount = verdict.recount
    interval = binomtest(round(2000 * recount.pureness), 2000).proportion_ci(method="exact")
    assert not verdict.certificate.exact
    assert recount.pureness == pytest.approx(0.7, abs=0.05)
    assert recount.pureness_low == pytest.approx(interval.low)
    assert recount.pureness_high == pytest.approx(interval.high)
    above = (recount.pureness_low + recount.pureness) / 2
    assert reason_of(verdict_with(min_pureness=above)) == "pureness_below_floor"


# --- a search that lies ---------------------------------------------------------------------------


def test_region_without_its_members_is_withheld() -> None:
    """None, or one of the two, is inside."""
    assert reason_of(verdict_on(recounter(NARROW))) == "verification_failed"
    assert reason_of(verdict_on(recounter(NARROW, members=[4]))) == "verification_failed"


def test_values_that_refuse_members_are_withheld() -> None:
    """With a pay of 0, only row 4 would have the outcome; row 3 does not have its own."""
    assert reason_of(verdict_on(recounter(YOUNG, min_pureness=0.0), pay=0)) == "verification_failed"
    no_outcome = recounter(YOUNG, members=[1, 3])
    assert reason_of(verdict_on(no_outcome)) == "verification_failed"


@pytest.mark.parametrize(
    ("point", "rules", "reason"),
    [
        ({"age": 22}, {}, None),
        ({"age": 20}, {}, "verification_failed"),  # 20 + 2 is not enough
        ({"age": 22}, {"features_to_vary": ["age"]}, "no_actionable_answer"),  # its pay changes
        ({"age": 22}, {"permitted_range": {"age": [23, 30]}}, "no_actionable_answer"),
        ({"age": 22}, {"max_changes": 1}, "no_actionable_answer"),
    ],
)
def test_unfit_point_is_withheld(
    point: dict[str, Any], rules: dict[str, Any], reason: str | None
) -> None:
    """It is not true, or not permitted."""
    settings = {"features_to_vary": "all", "permitted_range": None, "max_changes": None, **rules}
    limits = CallRules.read(CODES, **settings).limits(CODES, rows_of(age=20, pay=0))
    points = rows_of(**point)
    claims = Claims(np.array([0]), points[:, CODES.private], Advice(points, limits))
    (verdict,) = recounter(YOUNG).judge(claims)
    assert reason_of(verdict) == reason


# --- a region that was made for a counterfactual ---------------------------------------------------


def lookup_verdict(region: Region, counterfactual: Floats, **settings: Any) -> Verdict:
    """Judge a region that a protector made, with the counterfactual's private values."""
    model = Model.of(CODES, predict, 1)
    recounter = Recounter(
        model=model,
        policy=PrivacyPolicy(**{"k": 2, "guarantee": "lookup", **settings}),
        people=PeopleHere(
            TrainingTable(POPULATION, model), [region], counterfactuals=counterfactual
        ),
        fingerprint="",
        method="a method",
        proofs=[Proposal(region, optimal=True, gap=0.0)],
    )
    (verdict,) = recounter.judge(Claims(np.array([0]), counterfactual[:, CODES.private]))
    return verdict


def test_everyone_inside_counts_under_a_lookup() -> None:
    """There are no members; the proofs of a protector are stated."""
    verdict = lookup_verdict(YOUNG, rows_of(), k=4)
    assert isinstance(verdict, Certified)
    certificate = verdict.certificate
    assert (verdict.recount.k, certificate.pureness, verdict.recount.k_effective) == (4, 0.75, None)
    assert (certificate.optimal, certificate.gap, certificate.method) == (True, 0.0, "a method")
    assert (verdict.recount.l, verdict.recount.t) == (2, pytest.approx(0.1))  # 3 of 5 have job x
    refusal = lookup_verdict(YOUNG, rows_of(), k=5)
    assert isinstance(refusal, Withheld)
    assert (refusal.reason, refusal.refused_k) == ("verification_failed", 4)


def test_counterfactuals_number_is_no_combination() -> None:
    """Combinations have values of the training table, so that others can count them again."""
    verdict = lookup_verdict(YOUNG, rows_of(age=20.5))
    assert isinstance(verdict, Certified)
    assert verdict.recount.pureness == 0.75


@pytest.mark.parametrize("values", [{"age": 24}, {"age": 19.5}, {"city": None}])
def test_region_without_its_counterfactual_is_withheld(values: dict[str, Any]) -> None:
    """A protector has to generalise it."""
    assert reason_of(lookup_verdict(YOUNG, rows_of(**values))) == "verification_failed"


# --- a catalogue that was loaded ------------------------------------------------------------------


def test_loaded_catalogue_withholds_unproven_values(residents: World, tmp_path: Path) -> None:
    """The model must give the outcome at every combination that the file lists."""
    residents.anonymizer.catalogue_.save(tmp_path / "catalogue")
    (part,) = KAnonymizer.load(tmp_path / "catalogue", residents.model).catalogue_.parts
    assert isinstance(part.recounter.people, PeopleElsewhere)
    codes = part.recounter.model.codes
    rows = codes.encode(residents.accepted.head(2).assign(salary=[119, 20]))
    for values, reason in ((rows[:1], None), (rows[1:], "pureness_below_floor")):
        claims = Claims(np.array([0]), values[:, codes.private])
        (verdict,) = part.recounter.judge(claims)
        assert reason_of(verdict) == reason
    is_refused = np.zeros(len(part.recounter.people.combinations(0)), dtype=bool)
    counts = part.recounter.people.counts(0, rows[0, codes.private], is_refused)
    assert counts.n_consistent_members == 0
