"""Evidence of which one thing is wrong, and the check that must say so: no other one does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

import reported
from cfk_plugin import PrivacyPolicy, PrivacyReport
from cfk_plugin.report.data import ReportData
from reported import ATTACKS, audit, audits

pytestmark = pytest.mark.usefixtures("store")
REGIONS = (
    "k_min k_desired_min k_effective_min k_consistent_min "
    "native_leak attribute_disclosure pureness ncp verification"
)
OTHERS = "records untracked schema_declared group_gap human_inputs"
ALL = {*REGIONS.split(), *OTHERS.split(), *(f"attack_{name}" for name in ATTACKS)}
RAW = {"policy": None, "population": None, "subject": "nice"}  # an explainer without protection
CRITERIA = ("singling out", "linkability", "inference")


@pytest.fixture
def judge() -> Any:
    """Return a function that makes the report of a run, with every question answered."""

    def of(
        table: pd.DataFrame | None = None, *, said: Mapping[str, Any] | None = None, **changes: Any
    ) -> ReportData:
        since = changes.pop("since", None)
        inputs = reported.inputs(**(said or {}))
        return PrivacyReport.of_runs(
            reported.run(table, **changes), inputs=inputs, since=since
        ).data

    return of


def found(data: ReportData) -> dict[str, str]:
    """Return what every check says that did not pass."""
    return {check.id: check.status for check in data.checks if check.status != "pass"}


def verdict(statuses: Mapping[str, str]) -> str:
    return "fail" if "fail" in statuses.values() else "review" if statuses else "pass"


def test_everything_passes_when_nothing_is_wrong(judge: Any) -> None:
    data = judge()
    assert {found.id for found in data.checks} == ALL
    assert (found(data), data.verdict) == ({}, "pass")
    assert {row["criterion"]: row["status"] for row in data.criteria} == {
        # whoever knows a salary finds the row by it: a person has to judge
        "singling out": "review",
        "linkability": "pass",
        "inference": "review",
    }


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"k": 11}, {"k_min": "fail"}),
        ({"k_desired": 11}, {"k_desired_min": "review"}),
        ({"k_effective": 3}, {"k_effective_min": "review"}),
        ({"k": 11, "ncp": 0.0}, {"k_min": "fail", "native_leak": "fail"}),
        ({"disclosure": 0.51}, {"attribute_disclosure": "fail"}),
        ({"pureness": 0.49, "pureness_low": 0.49}, {"pureness": "fail"}),
        ({"pureness": 0.6, "pureness_low": 0.4}, {"pureness": "review"}),
    ],
)
def test_one_wrong_explanation_is_found_and_named(
    columns: dict[str, Any], says: dict[str, str], judge: Any
) -> None:
    table = reported.rows()
    table.loc[5, list(columns)] = list(columns.values())
    data = judge(table)
    assert (found(data), data.verdict) == (says, verdict(says))
    steps = {
        each.id: [name.split("/")[1] for name in each.evidence]
        for each in data.checks
        if each.id in says
    }
    assert steps == {name: ["5"] for name in says}


def test_a_region_that_the_recount_refused_fails_its_protector(judge: Any) -> None:
    table = reported.withheld(reported.rows(), 0, "verification_failed").assign(
        refused_k=[3.0, *[np.nan] * 99]
    )
    data = judge(table)
    line = next(check for check in data.checks if check.id == "verification")
    assert found(data) == {"verification": "fail"}
    assert (line.measured.value, line.threshold.value, len(line.evidence)) == (3, 12, 1)


STRICT = dataclasses.replace(reported.POLICY, l=3, t=0.2)
TEN = PrivacyPolicy(guarantee="lookup", k=10, min_pureness=0.5, max_ncp=0.5)
TENS = dict.fromkeys(("k", "k_desired", "k_effective"), 10)
LOOKUP = PrivacyPolicy(k=12, guarantee="lookup", min_pureness=0.5, max_ncp=0.5)
CATALOGUE = PrivacyPolicy(k=12, guarantee="catalogue", min_pureness=0.5, max_ncp=0.5)
NO_FLOOR = PrivacyPolicy(guarantee="lookup", k=12, min_pureness=0)
WOMEN = np.arange(100) % 2 == 1
TABLES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "l and t hold": ({"l": 3, "t": 0.2}, {"policy": STRICT}, {}),
    "l and t do not": (
        {"l": 2, "t": 0.21},
        {"policy": STRICT},
        {"l_diversity": "fail", "t_closeness": "fail"},
    ),
    "nobody counted l and t": (
        {"l": np.nan, "t": np.nan},
        {"policy": STRICT},
        {"l_diversity": "not_measured", "t_closeness": "not_measured"},
    ),
    "nobody counted the eligible": ({"k_desired": np.nan}, {}, {"k_desired_min": "not_measured"}),
    "nobody counted who is left": (
        {"k_effective": np.nan},
        {},
        {"k_effective_min": "not_measured"},
    ),
    "some were not counted": (
        {"k_effective": np.where(np.arange(100) == 7, np.nan, 12)},
        {},
        {"k_effective_min": "not_measured"},
    ),
    "some were not counted, and one is low": (
        {
            "k_effective": np.where(
                np.arange(100) == 7, np.nan, np.where(np.arange(100) == 8, 2, 12)
            )
        },
        {"policy": CATALOGUE},
        {"k_effective_min": "fail"},
    ),
    "nobody counted private values": (
        {"disclosure": np.nan},
        {},
        {"attribute_disclosure": "not_measured"},
    ),
    "no groups": ({"group": np.nan}, {}, {"group_gap": "not_measured"}),
    "some without a group": (
        {"group": np.where(np.arange(100) < 21, None, reported.rows()["group"])},
        {},
        {"group_gap": "review"},
    ),
    "a mean loss above the ceiling": ({"ncp": 0.51}, {}, {"ncp": "fail"}),
    "a group above the ceiling": (
        {"ncp": np.where(WOMEN, 0.6, 0.1)},
        {},
        {"ncp": "review", "group_gap": "fail"},
    ),
    "groups that may differ": (
        {"pureness": np.random.default_rng(0).choice([0.5, 1.0], 100)},
        {"said": {"thresholds": {"attribute_disclosure": 0.5, "group_gap": 0.05}}},
        {"group_gap": "review"},
    ),
    "a k of its own": (TENS, {"policy": TEN}, {}),
    "a k below that of people": (
        TENS,
        {
            "policy": TEN,
            "said": {"thresholds": {"k": 12, "attribute_disclosure": 0.5, "group_gap": 0.3}},
        },
        {
            "k_min": "fail",
            "k_effective_min": "review",
            "k_desired_min": "review",
        },
    ),
    "a low k that is accepted": (
        {"k_desired": 4},
        {"policy": LOOKUP, "said": {"accepted_risks": {"k_desired_min": "not public"}}},
        {"k_desired_min": "review"},
    ),
    "low ks that the policy does not promise": (
        {"k_desired": 4, "k_effective": 1, "k_consistent": 1},
        {"policy": LOOKUP},
        dict.fromkeys(("k_desired_min", "k_effective_min", "k_consistent_min"), "review"),
    ),
    "a low k where the policy is not known": (
        {"k_consistent": 1},
        {"policy.json": {**reported.POLICY.to_dict(), "guarantee": "catalogue"}},
        {"k_consistent_min": "fail", "records": "fail"},
    ),
    "a low k that the policy promised": (
        {"k_desired": 4},
        {"policy": CATALOGUE, "said": {"accepted_risks": {"k_desired_min": "not public"}}},
        {"k_desired_min": "fail"},
    ),
    "a floor that drawing cannot show": (
        {"pureness": 1.0, "pureness_low": 0.9638, "pureness_high": 1.0, "exact": False},
        {"said": {"thresholds": {"pureness": 0.99, "attribute_disclosure": 0.5, "group_gap": 0.3}}},
        {"pureness": "review"},
    ),
    "no limits": (
        {},
        {"policy": NO_FLOOR, "said": {"thresholds": {"group_gap": 0.3}}},
        dict.fromkeys(("attribute_disclosure", "pureness", "ncp"), "review"),
    ),
}


@pytest.mark.parametrize(("columns", "changes", "says"), TABLES.values(), ids=TABLES)
def test_what_is_wrong_in_a_table_is_said_by_its_check(
    columns: dict[str, Any], changes: dict[str, Any], says: dict[str, str], judge: Any
) -> None:
    data = judge(reported.rows(policy=changes.get("policy", reported.POLICY), **columns), **changes)
    assert (found(data), data.verdict) == (says, verdict(says))


LEARNED = reported.population()
LEARNED["attributes"][0]["bounds"] = "learned"
PUBLIC = reported.population()
PUBLIC["attributes"] = PUBLIC["attributes"][:2]
RUNS: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    "population": ({"population": None}, {"schema_declared": "not_measured"}, "schema"),
    "bounds": ({"population": LEARNED}, {"schema_declared": "review"}, "age"),
    "sensitive": (
        {"population": PUBLIC, "table": reported.rows(disclosure=np.nan)},
        {"attribute_disclosure": "review"},
        "No sensitive attribute",
    ),
    "edited": (
        {"policy.json": {**reported.POLICY.to_dict(), "min_pureness": 0.6}},
        {"records": "fail"},
        "policy",
    ),
    "summary": ({"figures": {"k_min": 40}}, {"records": "review"}, "summary"),
    "partly in the period": (
        {"figures": {"k_min": 40}, "since": "2026-01-01"},
        {"records": "review"},
        "summary",
    ),
    "untracked": ({"figures": {"untracked": 3}}, {"untracked": "review"}, "without a record"),
    "questions": (
        {"said": {"answers": {"purpose": ""}}},
        {"human_inputs": "review"},
        "Answers and remaining risks",
    ),
}


@pytest.mark.parametrize(("changes", "says", "words"), RUNS.values(), ids=RUNS)
def test_what_is_wrong_with_a_run_is_said_by_its_check(
    changes: dict[str, Any], says: dict[str, str], words: str, judge: Any
) -> None:
    data = judge(**changes)
    assert (found(data), data.verdict) == (says, verdict(says))
    assert words in next(check.text for check in data.checks if check.id in says)
    assert data.metric("k_min").value == 12  # what counts is what was recorded


def test_pureness_is_judged_by_the_floor_that_held(judge: Any) -> None:
    """The guarantee's own where the policy names none; what was released before there was one is
    not judged by it.
    """
    named_none = dataclasses.replace(reported.POLICY, min_pureness=None)
    impure = reported.rows(
        policy=named_none, **dict.fromkeys(("pureness", "pureness_low", "pureness_high"), 0.4)
    )
    now, before = (
        judge(impure, policy=named_none, params={"least_pureness": floor}) for floor in (0.5, None)
    )
    assert (found(now), found(before)) == ({"pureness": "fail"}, {"pureness": "review"})
    lines = [next(line for line in data.checks if line.id == "pureness") for data in (now, before)]
    assert [line.threshold.value for line in lines] == [0.5, None]
    assert "No floor is set" in lines[1].text
    told = [data.policy["policies"][0]["settings"] for data in (now, before)]
    assert [settings.get("least_pureness") for settings in told] == [0.5, None]


def test_a_part_of_a_run_is_not_compared_with_its_summary(judge: Any) -> None:
    assert "records" not in found(judge(figures={"k_min": 40}, since="2026-10-01T08:10"))


def test_without_explanations_nothing_is_measured(judge: Any) -> None:
    data = judge(reported.rows(0))
    regions = {check.id: check.status for check in data.checks if check.id in REGIONS}
    assert (set(regions.values()), data.verdict) == ({"not_measured"}, "review")
    assert {row["criterion"]: row["status"] for row in data.criteria}["singling out"] != "pass"


def test_a_threshold_says_who_asks_for_it(judge: Any) -> None:
    table = reported.rows(policy=TEN, **TENS)
    own = judge(table, policy=TEN).checks[0]
    assert (own.threshold.value, own.source) == (10, "the policy of the runs")
    draws = reported.rows(pureness=1.0, pureness_low=0.9638, pureness_high=1.0, exact=False)
    for floor, needed in ((0.99, "368 draws"), (0.999, "3688 draws")):
        limits = {"pureness": floor, "attribute_disclosure": 0.5, "group_gap": 0.3, "k": 15}
        asked = {line.id: line for line in judge(draws, said={"thresholds": limits}).checks}
        assert (asked["pureness"].threshold.value, asked["pureness"].source) == (
            floor,
            "inputs",
        )
        assert needed in asked["pureness"].text
        assert (asked["k_min"].threshold.value, asked["attack_extraction"].source[:12]) == (
            15,
            "house choice",
        )


# --- attacks ---


def coin(
    main: float, control: Any = None, name: str = "membership_cfd", **figures: float
) -> dict[str, Any]:
    """Return an audit of an attack whose chance level is 0.5."""
    made = audit(name, main=main)
    made["results"][0] |= {
        "control": control,
        "figures": figures,
        "baseline": {**reported.rate(0.5), "high": 0.5},
    }
    return made


def extraction(main: float, baseline: float, **more: Any) -> dict[str, Any]:
    made = audit("extraction_known_250", main=main, control=baseline)
    made["results"][0]["figures"] |= more.pop("figures", {})
    made["results"][0] |= more
    return made


def zip_code(main: float) -> dict[str, Any]:
    """Return an audit of all attributes together, and of one of them."""
    whole, part = (
        audit("attribute_inference_linkage"),
        audit("attribute_inference_linkage/zip code", main=main),
    )
    return {**whole, "results": [*whole["results"], *part["results"]]}


DRIFT = {"value": 0.6, "low": 0.56, "high": 0.64, "n": 900}
NOISE = {"value": 0.46, "low": 0.4, "high": 0.52, "n": 90}
SURE = {"tpr_at_0_001_low": 0.01, "tpr_at_0_001_fpr_high": 0.004}
GAIN = {"gain": 0.01, "gain_low": -0.08, "gain_high": 0.1}
ASKED_ELSEWHERE = {"value": 0.93, "low": 0.9, "high": 0.95, "n": 9}
ACCEPTED = {"said": {"accepted_risks": {"attack_extraction": "the model is public"}}}
FINDINGS: dict[str, tuple[list[dict[str, Any]], dict[str, str]]] = {
    "what its control reaches": ([audit("membership", main=0.02)], {}),
    "perhaps more": ([audit("membership", main=0.065)], {"attack_membership": "review"}),
    "more": ([audit("membership", main=0.2)], {"attack_membership": "fail"}),
    "a coin": ([coin(0.495)], {}),
    "a coin beside noise": ([coin(0.495, NOISE)], {}),
    "perhaps better than a coin": ([coin(0.545)], {"attack_membership": "review"}),
    "better than a coin": ([coin(0.6, NOISE)], {"attack_membership": "fail"}),
    "looks the wrong way": ([coin(0.45, NOISE)], {"attack_membership": "review"}),
    "groups that differ anyway": ([coin(0.61, DRIFT)], {}),
    "few are found for sure": ([coin(0.5, **SURE)], {"attack_membership": "review"}),
    "few are found by luck": ([coin(0.5, **SURE | {"tpr_at_0_001_low": 0.001})], {}),
    "more than epsilon admits": (
        [coin(0.5, balanced_accuracy_low=0.54, bound_tight=0.53)],
        {"attack_membership": "fail"},
    ),
    "what epsilon admits": ([coin(0.5, balanced_accuracy_low=0.52, bound_tight=0.53)], {}),
    "the model alone": (
        [coin(0.9, name="membership_loss"), coin(0.9, name="membership_random")],
        {"attack_membership_loss": "review", "attack_membership": "not_measured"},
    ),
    "the worst of two subjects": (
        [audit("membership_cfd", main=main, subject=str(main)) for main in (0.02, 0.3, 0.03)],
        {"attack_membership": "fail"},
    ),
    "a later audit of the same": ([audit("membership_cfd", main=main) for main in (0.3, 0.02)], {}),
    "the worst of several attacks": (
        [coin(0.5), coin(0.7, name="membership_entries"), coin(0.62, name="membership_answers")],
        {"attack_membership": "fail"},
    ),
    "one that is unsure beside one that is not": (
        [coin(0.51), coin(0.545, name="membership_entries")],
        {"attack_membership": "review"},
    ),
    "one that looks the wrong way beside one that does not": (
        [coin(0.42, NOISE), coin(0.495, name="membership_entries")],
        {},
    ),
    "a faithful copy": ([extraction(0.93, 0.92)], {}),
    "a gain that is not sure": (
        [extraction(0.93, 0.92, figures=GAIN)],
        {"attack_extraction": "review"},
    ),
    "a gain over queries": (
        [extraction(0.93, 0.8, control=ASKED_ELSEWHERE)],
        {"attack_extraction": "fail"},
    ),
    "one attribute that leaks": ([zip_code(0.3)], {"attack_attribute_inference": "fail"}),
    "one attribute by chance": ([zip_code(0.075)], {}),
    "linkage by chance": ([audit("linkage", main=1 / 12 - 0.011, control=0.0)], {}),
    "linkage of more than one in k": (
        [audit("linkage", main=1 / 12 + 0.02, control=0.0)],
        {"attack_linkage": "fail"},
    ),
    "another policy": (
        [audit("linkage", policy=PrivacyPolicy(guarantee="lookup", k=2).to_dict())],
        {"attack_linkage": "review"},
    ),
    "another population": ([audit("linkage", population="0" * 64)], {"attack_linkage": "review"}),
    "no explainer in use": (
        [audit("extraction", main=0.9, **RAW)],
        {"attack_extraction": "review"},
    ),
    "no policy": (
        [audit("attribute_inference", policy=None)],
        {"attack_attribute_inference": "review"},
    ),
    "an explainer in use beside another": (
        [audit("membership_cfd", main=0.9, **RAW), audit("membership_cfd", subject="protected")],
        {},
    ),
    "the same, the other way round": (
        [audit("membership_cfd", subject="protected"), audit("membership_cfd", main=0.9, **RAW)],
        {},
    ),
}


@pytest.mark.parametrize(("ran", "says"), FINDINGS.values(), ids=FINDINGS)
def test_an_attack_is_judged_by_what_it_adds_on_what_is_released(
    ran: list[dict[str, Any]], says: dict[str, str], judge: Any
) -> None:
    data = judge(audits=audits(*ran))
    assert (found(data), data.verdict) == (says, verdict(says))
    judged = [attack for attack in data.attacks if attack.judged]
    assert len({attack.id for attack in judged}) == len(judged)
    assert len(data.attacks) == len({(attack.id, attack.subject) for attack in data.attacks})


def test_an_attack_says_what_it_is_measured_by(judge: Any) -> None:
    def lines(*ran: dict[str, Any], **changes: Any) -> dict[str, Any]:
        data = judge(audits=audits(*ran), **changes)
        return {check.id.removeprefix("attack_"): check for check in data.checks}

    one_each = lines(
        coin(0.6, NOISE),
        coin(0.9, name="membership_loss"),
        extraction(0.93, 0.92, figures=GAIN),
        audit("linkage"),
        zip_code(0.3),
    )
    assert one_each["membership"].measured.value == pytest.approx(0.1)
    assert "of this kind" not in one_each["membership"].text
    assert "needs no explanation" in one_each["membership_loss"].text
    assert one_each["extraction"].measured.high == 0.1
    assert one_each["linkage"].threshold.value == pytest.approx(1 / 12)
    assert "zip code" in one_each["attribute_inference"].text
    others = lines(coin(0.61, DRIFT), audit("extraction", **RAW))
    assert others["membership"].measured.value == pytest.approx(0.01)
    assert "not released" in others["extraction"].text
    several = (coin(0.5), coin(0.7, name="membership_entries"), coin(0.62, name="membership_x"))
    accepted = lines(*several, extraction(0.9, 0.1), **ACCEPTED)
    assert accepted["extraction"].status == "review"
    worst = accepted["membership"]
    assert worst.measured.value == pytest.approx(0.2)
    assert "the worst of 3 attacks of this kind: membership_entries" in worst.text


def test_what_a_guarantee_promises_of_an_attack_is_judged_as_the_audit_does(judge: Any) -> None:
    """By the people left and the k of the policy, whatever the interval; what it does not promise
    never fails.
    """

    def line(name: str, least: float, needed: int = 12, **changes: Any) -> Any:
        kept = [
            {"name": f"{name}/k_min", "value": least, "needed": needed, "holds": least >= needed}
        ]
        data = judge(audits=audits(audit(name, main=1 / 12, control=0.0, checks=kept)), **changes)
        return next(check for check in data.checks if check.id == f"attack_{name}")

    held, broken = (line("linkage", least) for least in (12, 11))
    assert [(one.status, one.measured.value, one.threshold.value) for one in (held, broken)] == [
        ("pass", 12, 12),
        ("fail", 11, 12),
    ]
    assert line("linkage", 10, needed=10).status == "fail"  # the report's own k is larger
    loose = {
        "audits": audits(
            *(audit(name, main=0.9, control=0.0) for name in ("model_filter", "uniqueness"))
        )
    }
    said = {check.id: check for check in judge(**loose).checks}
    for name in ("attack_model_filter", "attack_uniqueness"):
        assert said[name].status == "review"
        assert "promises nothing against" in said[name].text


def test_attacks_that_nobody_ran_were_not_measured(judge: Any) -> None:
    data = judge(audits=())
    assert found(data) == {f"attack_{name}": "not_measured" for name in ATTACKS}
    assert data.verdict == "review"


def test_an_audit_of_an_explainer_without_protection_stands_beside_the_other(judge: Any) -> None:
    data = judge(
        audits=audits(
            audit("membership_cfd", main=0.9, **RAW), audit("membership_cfd", subject="protected")
        )
    )
    shown = {
        (a.subject, a.judged, a.concerns, a.covers)
        for a in data.attacks
        if a.id == "membership_cfd"
    }
    assert shown == {("nice", False, False, False), ("protected", True, True, True)}
    assert "For comparison only (no check judges these)" in PrivacyReport(data).to_html()


# --- the three criteria ---


def test_no_criterion_passes_without_one_of_its_checks(judge: Any) -> None:
    facts = reported.population()
    # so that no private value is released as it is
    facts["attributes"][2]["role"] = "quasi-identifier"
    names = ("linkage", "membership_cfd", "attribute_inference_linkage", "extraction_known_250")
    ran = {name: audit(name) for name in names}
    whole = judge(population=facts, audits=[*ran.values()])
    assert {row["criterion"]: row["status"] for row in whole.criteria} == dict.fromkeys(
        CRITERIA, "pass"
    )
    asked = {row["criterion"]: row["evidence"].split(", ") for row in whole.criteria}
    assert "attack_membership" in asked["linkability"]
    assert "attack_attribute_inference" in asked["inference"]
    family_of = {
        "membership_cfd": "membership",
        "attribute_inference_linkage": "attribute_inference",
        "extraction_known_250": "extraction",
    }
    for name in ("linkage", "membership_cfd"):
        lost = judge(population=facts, audits=[one for other, one in ran.items() if other != name])
        worse = judge(
            population=facts,
            audits=[audit(name, main=0.9), *(o for n, o in ran.items() if n != name)],
        )
        for criterion, checks in asked.items():
            concerned = f"attack_{family_of.get(name, name)}" in checks
            statuses = [
                {row["criterion"]: row["status"] for row in data.criteria} for data in (lost, worse)
            ]
            assert [status[criterion] for status in statuses] == (
                ["review", "fail"] if concerned else ["pass"] * 2
            )
    by_k = {row["criterion"]: row["status"] for row in judge(population=facts, audits=()).criteria}
    assert by_k["linkability"] == "not_measured"  # k alone speaks of neither
    assert by_k["inference"] == "review"
