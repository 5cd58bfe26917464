"""Checks: each passes when nothing is wrong, and says what is when something is."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import reported
from cfk_plugin import PrivacyPolicy
from cfk_plugin.report.build import build
from cfk_plugin.report.checks import draws_needed, verdict
from cfk_plugin.report.data import Check, ReportData
from cfk_plugin.report.runs import Evidence

ALL = {
    "k_min",
    "k_desired_min",
    "k_effective_min",
    "k_intersection",
    "native_leak",
    "attribute_disclosure",
    "pureness",
    "ncp",
    "verification",
    "records",
    "untracked",
    "schema_declared",
    "group_gap",
    "human_inputs",
    *(f"attack_{name}" for name in reported.ATTACKS),
}


def report(*runs: Any, **options: Any) -> ReportData:
    return build(reported.evidence(*runs), **({"inputs": reported.inputs()} | options))


def check(data: ReportData, name: str) -> Check:
    return next(found for found in data.checks if found.id == name)


def test_everything_passes_when_nothing_is_wrong() -> None:
    data = report()
    assert {found.id for found in data.checks} == ALL
    assert {found.id: found.status for found in data.checks} == dict.fromkeys(ALL, "pass")
    assert data.verdict == "pass"


@pytest.mark.parametrize(
    ("name", "columns", "status"),
    [
        ("k_min", {"k": 11}, "fail"),
        ("k_desired_min", {"k_desired": 11}, "fail"),
        ("k_effective_min", {"k_effective": 3}, "fail"),
        ("k_intersection", {"k_intersection": 11}, "fail"),
        ("native_leak", {"k": 11, "ncp": 0.0}, "fail"),
        ("attribute_disclosure", {"disclosure": 0.51}, "fail"),
        ("pureness", {"pureness": 0.49, "pureness_low": 0.49}, "fail"),
        ("pureness", {"pureness": 0.6, "pureness_low": 0.4}, "review"),
        ("ncp", {"ncp": 0.51}, "fail"),
        ("verification", {"status": "suppressed", "reason": "verification_failed", "refused_k": 3}, "fail"),
    ],
)
def test_one_wrong_explanation_is_found(name: str, columns: dict[str, Any], status: str) -> None:
    table = reported.rows()
    for column, value in columns.items():
        table[column] = table.get(column)
        if name == "ncp":
            table[column] = value
        else:
            table.loc[5, column] = value
    if name == "verification":
        table.loc[5, ["k", "ncp", "pureness"]] = np.nan
    data = report(reported.run(table))
    found = check(data, name)
    assert found.status == status
    assert data.verdict == status
    if name != "ncp":
        assert found.evidence == ("0123456789abcdef0123456789abcdef/5",)


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("k_desired_min", "k_desired"),
        ("k_effective_min", "k_effective"),
        ("attribute_disclosure", "disclosure"),
        ("group_gap", "group"),
    ],
)
def test_a_column_that_is_missing_is_not_measured(name: str, lost: str) -> None:
    data = report(reported.run(reported.rows().drop(columns=lost)))
    assert (check(data, name).status, data.verdict) == ("not_measured", "review")


def test_a_figure_that_some_releases_lack_is_not_measured() -> None:
    table = reported.rows().astype({"k_effective": float})
    table.loc[7, "k_effective"] = np.nan
    assert check(report(reported.run(table)), "k_effective_min").status == "not_measured"
    table.loc[8, "k_effective"] = 2
    assert check(report(reported.run(table)), "k_effective_min").status == "fail"


@pytest.mark.parametrize("lost", ["population", "policy", "audits"])
def test_an_artifact_that_is_missing_is_never_a_pass(lost: str) -> None:
    data = report(reported.run(**{lost: None if lost != "audits" else ()}))
    assert data.verdict != "pass"


def test_without_rows_nothing_is_measured() -> None:
    data = report(dataclasses.replace(reported.run(), rows=None))
    assert check(data, "k_min").status == "not_measured"
    assert data.verdict == "review"


def test_an_accepted_risk_is_a_review_and_a_broken_promise_is_not() -> None:
    table = reported.rows()
    table.loc[5, "k_desired"] = 4
    accepts = reported.inputs(accepted_risks={"k_desired_min": "outcomes are not public"})
    assert (
        check(report(reported.run(table), inputs=accepts), "k_desired_min").status == "fail"
    )  # promised by "eligible"
    weaker = PrivacyPolicy(k=12, min_pureness=0.5, max_ncp=0.5)
    table["policy_hash"] = weaker.sha256
    assert check(report(reported.run(table, weaker), inputs=accepts), "k_desired_min").status == "review"
    assert check(report(reported.run(table, weaker)), "k_desired_min").status == "fail"


def test_a_preset_asks_for_its_k_of_every_release() -> None:
    ten = PrivacyPolicy(k=10, anonymity_set="eligible", min_pureness=0.5, max_ncp=0.5)
    table = reported.rows(policy=ten, k=10, k_desired=10, k_effective=10, k_intersection=10)
    data = report(reported.run(table, ten))
    assert (check(data, "k_min").status, check(data, "k_min").threshold.value) == ("pass", 10)
    ema = check(report(reported.run(table, ten), preset="ema-0070"), "k_min")
    assert (ema.status, ema.threshold.value) == ("fail", 12)
    assert "European Medicines Agency" in ema.source


def test_no_ledger_and_unknown_recipients_are_reviews() -> None:
    without = reported.run(reported.rows().drop(columns=["ledger", "k_intersection"]))
    assert check(report(without), "k_intersection").status == "review"
    unsaid = reported.inputs(answers={**reported.inputs().answers, "recipients_pool": "unknown"})
    assert check(report(inputs=unsaid), "k_intersection").status == "review"


def test_a_floor_of_99_percent_needs_368_draws() -> None:
    assert [draws_needed(floor) for floor in (0.9, 0.99, 0.999)] == [36, 368, 3688]
    table = reported.rows(pureness=1.0, pureness_low=0.9638, pureness_high=1.0, exact=False)
    floor = reported.inputs({"pureness": 0.99, "attribute_disclosure": 0.5, "group_gap": 0.3})
    found = check(report(reported.run(table), inputs=floor), "pureness")
    assert (found.status, found.threshold.value, found.source) == ("review", 0.99, "inputs.yaml")
    assert "368 draws" in found.text


def test_one_group_above_the_ceiling_is_a_review() -> None:
    table = reported.rows()
    table["ncp"] = np.where(table["group"] == "women", 0.6, 0.1)
    data = report(reported.run(table))
    assert check(data, "ncp").status == "review"
    assert check(data, "group_gap").status == "fail"


def test_a_wide_interval_between_groups_is_a_review() -> None:
    random = np.random.default_rng(0)
    table = reported.rows(pureness=random.choice([0.5, 1.0], 100))
    narrow = reported.inputs({"attribute_disclosure": 0.5, "group_gap": 0.05})
    assert check(report(reported.run(table), inputs=narrow), "group_gap").status == "review"


@pytest.mark.parametrize(("main", "status"), [(0.02, "pass"), (0.065, "review"), (0.2, "fail")])
def test_attacks_are_judged_over_their_control(main: float, status: str) -> None:
    audits = [reported.audit(name) for name in ("linkage", "extraction", "attribute_inference")]
    data = report(reported.run(audits=[*audits, reported.audit("membership", main=main)]))
    assert check(data, "attack_membership").status == status


@pytest.mark.parametrize("about", [{"policy": PrivacyPolicy(k=2).to_dict()}, {"population": "0" * 64}])
def test_an_audit_of_something_else_is_no_pass(about: dict[str, Any]) -> None:
    names = ("extraction", "attribute_inference", "membership")
    right = {"policy": reported.POLICY.to_dict(), "population": "f" * 64}
    others = [reported.audit(name) | right for name in names]
    data = report(reported.run(audits=[*others, reported.audit("linkage") | right | about]))
    assert check(data, "attack_linkage").status == "review"
    assert {check(data, f"attack_{name}").status for name in names} == {"pass"}


@pytest.mark.parametrize(
    ("about", "main"), [({"policy": None, "population": None, "subject": "nice"}, 0.9), ({"policy": None}, 0.02)]
)
def test_an_audit_of_an_explainer_without_protection_says_nothing_of_the_release(
    about: dict[str, Any], main: float
) -> None:
    for kind in ("membership", "extraction", "attribute_inference"):
        others = [reported.audit(name) for name in reported.ATTACKS if name != kind]
        data = report(reported.run(audits=[*others, reported.audit(kind, main=main, **about)]))
        found = check(data, f"attack_{kind}")
        assert (found.status, data.verdict) == ("review", "review")
        assert "not released" in found.text
        raw = next(attack for attack in data.attacks if attack.id == kind)
        assert (raw.concerns, raw.covers, raw.judged) == (False, False, True)


@pytest.mark.parametrize("order", [1, -1])
def test_an_explainer_without_protection_stands_beside_what_is_released(order: int) -> None:
    raw = reported.audit("membership_cfd", main=0.9, policy=None, population=None, subject="nice")
    mine = reported.audit("membership_cfd", subject="protected")
    others = [reported.audit(name) for name in reported.ATTACKS if name != "membership"]
    data = report(reported.run(audits=[*others, *[raw, mine][::order]]))
    assert (check(data, "attack_membership_cfd").status, data.verdict) == ("pass", "pass")
    shown = {(a.subject, a.judged, a.main.value) for a in data.attacks if a.id == "membership_cfd"}
    assert shown == {("nice", False, 0.9), ("protected", True, 0.02)}


def test_of_two_subjects_of_the_policy_the_one_that_leaks_is_judged() -> None:
    audits = [reported.audit("membership_cfd", main=main, subject=str(main)) for main in (0.02, 0.3, 0.03)]
    data = report(reported.run(audits=audits))
    assert check(data, "attack_membership_cfd").status == "fail"
    assert [attack.subject for attack in data.attacks if attack.judged] == ["0.3"]


def test_a_later_audit_of_the_same_subject_counts() -> None:
    audits = [reported.audit("membership_cfd", main=main) for main in (0.3, 0.02)]
    assert check(report(reported.run(audits=audits)), "attack_membership_cfd").status == "pass"


def coin(name: str, main: float, control: dict[str, Any] | None = None, **figures: float) -> dict[str, Any]:
    """Return an audit of an attack whose chance level is 0.5."""
    made = reported.audit(name, main=main)
    made["results"][0] |= {"control": control, "figures": figures}
    made["results"][0]["baseline"] = {"value": 0.5, "low": 0.5, "high": 0.5, "n": 200}
    return made


@pytest.mark.parametrize(
    ("main", "status"), [(0.5, "pass"), (0.495, "pass"), (0.545, "review"), (0.6, "fail"), (0.45, "review")]
)
def test_membership_is_compared_with_a_coin(main: float, status: str) -> None:
    # A little below 0.5 is chance; an interval below it is an attack that looks the wrong way.
    noise = {"value": 0.46, "low": 0.4, "high": 0.52, "n": 90}
    for control in (None, noise):
        found = check(report(reported.run(audits=[coin("membership_cfd", main, control)])), "attack_membership_cfd")
        assert found.status == status
        assert found.measured.value == pytest.approx(main - 0.5)


def test_groups_that_differ_by_more_than_training_are_the_reference() -> None:
    drift = {"value": 0.6, "low": 0.56, "high": 0.64, "n": 900}
    found = check(report(reported.run(audits=[coin("membership_cfd", 0.61, drift)])), "attack_membership_cfd")
    assert (found.status, found.measured.value) == ("pass", pytest.approx(0.01))


def test_what_extraction_gains_counts_and_not_its_fidelity() -> None:
    told = reported.audit("extraction_known_250", main=0.93, control=0.92)
    figures = told["results"][0]["figures"]
    assert check(report(reported.run(audits=[told])), "attack_extraction_known_250").status == "pass"
    # The interval of the gain itself is of pairs, and so the narrower one.
    figures |= {"gain": 0.01, "gain_low": -0.08, "gain_high": 0.1}
    found = check(report(reported.run(audits=[told])), "attack_extraction_known_250")
    assert (found.status, found.measured.high) == ("review", 0.1)
    told = reported.audit("extraction_known_250", main=0.93, control=0.8)
    told["results"][0]["control"] = {"value": 0.93, "low": 0.9, "high": 0.95, "n": 9}  # of what else one could ask
    assert check(report(reported.run(audits=[told])), "attack_extraction_known_250").status == "fail"


def test_the_model_alone_is_a_review_and_measures_no_explanations() -> None:
    audits = [coin("membership_loss", 0.9), coin("membership_random", 0.9)]
    data = report(reported.run(audits=audits))
    found = check(data, "attack_membership_loss")
    assert (found.status, "needs no explanation" in found.text) == ("review", True)
    assert check(data, "attack_membership").status == "not_measured"
    assert "attack_membership_random" not in {line.id for line in data.checks}


def test_few_people_who_are_found_for_sure_are_a_review() -> None:
    sure = {"tpr_at_0_001_low": 0.01, "tpr_at_0_001_fpr_high": 0.004}
    unsure = {"tpr_at_0_001_low": 0.001, "tpr_at_0_001_fpr_high": 0.004}
    for figures, status in ((sure, "review"), (unsure, "pass")):
        data = report(reported.run(audits=[coin("membership_cfd", 0.5, **figures)]))
        assert check(data, "attack_membership_cfd").status == status


def test_an_attack_above_what_epsilon_admits_refutes_it() -> None:
    for low, status in ((0.54, "fail"), (0.52, "pass")):
        made = coin("membership_cfd", 0.5, balanced_accuracy_low=low, bound_tight=0.53)
        assert check(report(reported.run(audits=[made])), "attack_membership_cfd").status == status


def test_a_single_attribute_that_leaks_fails_the_attack() -> None:
    whole = reported.audit("attribute_inference_linkage")
    for main, status in ((0.3, "fail"), (0.075, "pass")):  # 0.075: chance, among many attributes
        part = reported.audit("attribute_inference_linkage/zip code", main=main)
        data = report(reported.run(audits=[{**whole, "results": [*whole["results"], *part["results"]]}]))
        found = check(data, "attack_attribute_inference_linkage")
        assert (found.status, "zip code" in found.text) == (status, status == "fail")
        assert [line.id for line in data.checks if "zip" in line.id] == []


def test_an_attack_of_a_family_can_be_an_accepted_risk() -> None:
    accepts = reported.inputs(accepted_risks={"attack_extraction": "the model is public"})
    made = reported.audit("extraction_known_250", main=0.9)
    for inputs, status in ((accepts, "review"), (reported.inputs(), "fail")):
        assert check(report(reported.run(audits=[made]), inputs=inputs), "attack_extraction_known_250").status == status


def test_criteria_look_at_every_attack_of_a_family() -> None:
    names = ("linkage", "membership_cfd", "membership_cfd_lrt", "attribute_inference_linkage", "extraction_known_250")
    audits = {name: reported.audit(name) for name in names}
    data = report(reported.run(audits=[*audits.values()]))
    status = {row["criterion"]: row["status"] for row in data.criteria}
    assert status["linkability"] == "pass"
    assert data.verdict == "pass"
    audits["membership_cfd_lrt"] = reported.audit("membership_cfd_lrt", main=0.4)
    data = report(reported.run(audits=[*audits.values()]))
    assert {row["criterion"]: row["status"] for row in data.criteria}["linkability"] == "fail"


def test_some_explanations_without_a_group_are_a_review() -> None:
    table = reported.rows()
    table.loc[:20, "group"] = None
    assert check(report(reported.run(table)), "group_gap").status == "review"


def test_a_run_that_lies_in_the_period_is_compared_with_its_summary() -> None:
    run = reported.run()
    evidence = Evidence(runs=(dataclasses.replace(run, metrics={**run.metrics, "cfk.k.min": 40.0}),), since=0)
    assert check(build(evidence, inputs=reported.inputs()), "records").status == "review"


def test_linkage_may_do_what_chance_among_k_admits() -> None:
    others = [reported.audit(name) for name in ("membership", "extraction", "attribute_inference")]
    data = report(reported.run(audits=[*others, reported.audit("linkage", main=1 / 12 - 0.011, control=0.0)]))
    found = check(data, "attack_linkage")
    assert (found.status, found.threshold.value) == ("pass", pytest.approx(1 / 12))


def test_learned_bounds_are_a_review_that_names_the_columns() -> None:
    facts = reported.population()
    facts["attributes"][0]["bounds"] = "learned"
    found = check(report(reported.run(population=facts)), "schema_declared")
    assert found.status == "review"
    assert "age" in found.text


def test_an_edited_policy_is_found() -> None:
    lowered = {**reported.POLICY.to_dict(), "k": 2}
    data = report(reported.run(policy=lowered))
    assert check(data, "records").status == "fail"


def test_a_summary_that_says_something_else_is_a_review() -> None:
    run = reported.run()
    data = report(dataclasses.replace(run, metrics={**run.metrics, "cfk.k.min": 40.0}))
    assert check(data, "records").status == "review"
    assert check(data, "k_min").measured.value == 12  # what counts is what was recorded


def test_explanations_on_their_way_are_a_review() -> None:
    run = reported.run()
    evidence = Evidence(runs=(run,), uncounted={run.run_id: 4})
    found = check(build(evidence, inputs=reported.inputs()), "records")
    assert (found.status, found.measured.value, found.evidence) == ("review", 4, (run.run_id,))


def test_summaries_are_not_compared_for_a_part_of_a_run() -> None:
    run = reported.run()
    evidence = Evidence(runs=(dataclasses.replace(run, metrics={**run.metrics, "cfk.asked": 700.0}),), since=0)
    assert check(build(evidence, inputs=reported.inputs()), "records").status == "pass"


def test_explanations_without_a_record_are_a_review() -> None:
    run = reported.run()
    data = report(dataclasses.replace(run, metrics={**run.metrics, "cfk.untracked": 3.0}))
    assert check(data, "untracked").status == "review"


def test_open_questions_are_a_review() -> None:
    data = report(inputs=None)
    assert check(data, "human_inputs").status == "review"
    assert {p.id for p in data.placeholders} >= {"system", "sign_off.dpo"}


def test_the_verdict_is_that_of_the_worst_check() -> None:
    assert verdict(["pass", "pass"]) == "pass"
    assert verdict(["pass", "not_measured"]) == "review"
    assert verdict(["pass", "review", "fail"]) == "fail"
    assert verdict([]) == "review"
