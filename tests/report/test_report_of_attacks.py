"""From a release and logged attacks to a verdict, through a real MLflow store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import reported
from attacked import membership, report, result
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import Explanations, KAnonymizer, Ledger, Population, PrivacyPolicy, PrivacyReport, Schema, protect
from cfk_plugin.audit import AuditReport, Setting, run_linkage_audit
from cfk_plugin.audit.result import AttackReport
from cfk_plugin.report.data import Check

POLICY = PrivacyPolicy(k=12, anonymity_set="eligible", min_pureness=0.5, max_ncp=0.9)
CANARY = 61_803.5
ASKED = {"attribute_disclosure": 0.9, "group_gap": 0.9}


def accepts(rows: pd.DataFrame) -> Any:
    return (rows["age"] < 40).to_numpy(dtype=int)


def people(n: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    pay = random.integers(20, 30, n) * 1_000.0
    pay[:3] = CANARY
    return pd.DataFrame({"age": random.integers(20, 60, n), "town": random.choice(list("ABC"), n), "pay": pay})


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[Explanations, AuditReport]:
    """Return what a policy releases, and what somebody reaches who looks people up."""
    train = people(400, 0)
    schema = Schema.from_frame(
        train,
        quasi_identifiers=["age", "town"],
        sensitive=["pay"],
        bounds={"age": (18, 80), "pay": (0, 100_000)},
        categories={"town": ["A", "B", "C"]},
    )
    population = Population.from_frame(train, schema)
    settings: dict[str, Any] = {"population": population, "model": accepts, "desired": 1, "policy": POLICY}
    explainer = NearestUnlikeNeighbour(train, accepts, desired=1)
    asking = people(200, 2)
    asking = asking[accepts(asking) == 0].head(60)
    with Ledger(tmp_path_factory.mktemp("ledger") / "ledger.db", create=True) as ledger:
        explanations = protect(explainer, **settings, ledger=ledger, groups="town").explain(asking)
    anonymizer = KAnonymizer(policy=POLICY).fit(population, model=accepts, desired=1)
    setting = Setting(anonymizer, explainer.explain(asking), holdout=people(200, 1))
    return explanations, run_linkage_audit(setting, ["linkage"])


@pytest.fixture
def judged(released: tuple[Explanations, AuditReport], mlflow_store: str) -> Callable[..., PrivacyReport]:
    """Return a function that logs the release with reports of attacks, and makes the privacy report."""

    def log(*attacks: AttackReport, edition: Any = "internal") -> PrivacyReport:
        explanations, linkage = released
        run_id = explanations.log(experiment="tests")
        linkage.log(run_id)
        runs = [run_id, *(attack.log(experiment="tests") for attack in attacks)]
        return PrivacyReport.of_runs(runs, inputs=reported.inputs(ASKED), edition=edition)

    return log


def attacks(**of: Any) -> list[AttackReport]:
    """Return reports of every kind of attacks that reached next to nothing."""
    of = {"policy": POLICY.to_dict(), "subject": "protected", **of}
    copies = [result("extraction_known_500", 0.912, 0.91, gain=0.002, gain_low=-0.01, gain_high=0.014)]
    guesses = [result("attribute_inference_linkage", 0.31, 0.305), result("attribute_inference_linkage/pay", 0.31, 0.3)]
    return [
        membership(
            {"membership_cfd": 0.02, "membership_cfd_lrt": 0.03, "membership_random": 0.0},
            2_000,
            settings={"attacked": 2_000},
            **of,
        ),
        report("extraction", copies, **of),
        report("attribute_inference", guesses, settings={"attacked": 200}, **of),
    ]


def check(report: PrivacyReport, name: str) -> Check:
    return next(found for found in report.data.checks if found.id == name)


def test_with_every_attack_measured_and_within_tolerance_the_verdict_is_pass(judged: Any) -> None:
    found = judged(*attacks())
    assert {each.id: each.status for each in found.data.checks if each.status != "pass"} == {}
    assert found.verdict == "pass"
    names = {each.id for each in found.data.checks if each.id.startswith("attack_")}
    assert names == {
        "attack_linkage",
        "attack_membership_cfd",
        "attack_membership_cfd_lrt",
        "attack_extraction_known_500",
        "attack_attribute_inference_linkage",
    }
    assert {row["criterion"]: row["status"] for row in found.data.criteria}["linkability"] == "pass"
    assert 'id="chart-roc"' in found.to_html()
    assert found.to_html().count("The same, of one attribute.") == 1
    assert check(found, "attack_membership_cfd").evidence == (found.run_ids[1],)


def test_an_explainer_without_protection_is_no_evidence_and_no_reproach(judged: Any) -> None:
    raw = [
        membership({"membership_cfd": 2.0}, 2_000, subject="nice"),
        *attacks(policy=None, subject="nice")[1:],
    ]
    alone = judged(*raw)
    of_models = [each for each in alone.data.checks if each.id.startswith("attack_") and each.id != "attack_linkage"]
    assert {each.status for each in of_models} == {"review"}
    assert alone.verdict == "review"
    beside = judged(*attacks(), *raw)
    assert beside.verdict == "pass"
    (shown,) = [attack for attack in beside.data.attacks if attack.id == "membership_cfd" and not attack.judged]
    assert (shown.subject, (shown.main.value or 0) > 0.9) == ("nice", True)
    assert "For comparison, and judged by no check" in beside.to_html()


@pytest.mark.parametrize(("of", "status"), [({"policy": PrivacyPolicy(k=2).to_dict()}, "review"), ({}, "fail")])
def test_a_leak_fails_where_it_is_of_what_was_released(judged: Any, of: dict[str, Any], status: str) -> None:
    leak = membership({"membership_cfd": 1.0}, 2_000, **{"policy": POLICY.to_dict(), **of})
    found = judged(leak, *attacks()[1:])
    assert (check(found, "attack_membership_cfd").status, found.verdict) == (status, status)


def test_attacks_through_a_copy_stand_beside_the_others_in_one_run(released: Any, mlflow_store: str) -> None:
    of = {"policy": POLICY.to_dict(), "subject": "protected"}
    run_id = released[0].log(experiment="tests")
    copied = [result("attribute_inference_surrogate", 0.3, 0.3)]
    for logged in (
        *attacks(),
        membership({"membership_surrogate_threshold": 0.0}, 300, settings={"attacked": 300}, **of),
        report("attribute_inference", copied, settings={"attacked": 2_000}, **of),
    ):
        logged.log(run_id)
    found = PrivacyReport.of_runs(run_id)
    names = {attack.id for attack in found.data.attacks}
    assert {"membership_cfd", "membership_surrogate_threshold", "attribute_inference_surrogate"} <= names
    assert "attribute_inference_linkage" in names


def test_nothing_of_a_person_or_a_run_leaves_with_the_curves(judged: Any) -> None:
    found = judged(*attacks(), edition="external")
    assert found.verdict == "pass"
    for text in (found.to_json(), found.to_html(), found.to_markdown(), found.to_csv(), found.to_junit()):
        assert "61803" not in text.replace(",", "")
        assert "61,803" not in text
        assert not any(run_id in text for run_id in found.run_ids)
        assert repr(attacks()[0]["membership_cfd"].main.value) not in text
