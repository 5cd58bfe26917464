"""Reports of what was really released and logged: the toy example, a lie, lost evidence,
prototypes, attacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest

import reported
import toy
from cfk_plugin import (
    Attribute,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    PrivacyReport,
    Schema,
    protect,
)
from cfk_plugin.audit import Setting, run_linkage_audit
from cfk_plugin.audit.result import AttackReport
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.hookspecs import Proposal, ProtectionRequest, Protector
from parts import content_of
from reported import check

pytestmark = pytest.mark.usefixtures("store")
FORMATS = ("to_json", "to_html")
ALONE = Region(
    {"Age": Interval(24, 24), "Gender": frozenset({"F"}), "City": frozenset({"Antwerp"})}
)


class Proposing:
    """Proposes one region for everybody, whatever k is asked for."""

    name = "proposing"

    def __init__(self, region: Region) -> None:
        self.region = region

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        return [Proposal(self.region, optimal=True, gap=0.0)] * len(request)


def logged(method: Protector, k: int) -> str:
    """Log the explanation of the toy example; return the run."""
    policy = PrivacyPolicy(k=k, guarantee="lookup")
    anonymizer = KAnonymizer(policy=policy, method=method).fit(
        toy.population(), toy.model, toy.DESIRED
    )
    return anonymizer.transform(pd.DataFrame(toy.FIONA)).log(experiment="tests")


@pytest.fixture(scope="module")
def fiona(store: str) -> str:
    """Return a run with the region of the paper's Figure 2: Fiona joined with Gina."""
    return logged(Proposing(toy.REGION), 2)


def test_the_golden_toy_report(fiona: str) -> None:
    report = PrivacyReport.of_runs(fiona)
    expected = {
        "k_min": 3,
        "k_worst_min": 1,
        "k_desired_min": 2,
        "k_consistent_min": 1,
        "pureness_mean": 0.5,
        "cdm": 3,
        "cm": 0,
    }
    found = {name: report.data.metric(name).value for name in expected}
    assert found == expected
    assert round(report.data.metric("ncp_mean").value or 0, 3) == 0.021
    assert [
        check(report, name).status for name in ("k_min", "k_desired_min", "k_effective_min")
    ] == [
        *("pass", "pass", "not_measured"),  # lookup: nobody counted who is left after a rerun
    ]
    assert "0.0213" in report.to_html()


def test_a_protector_that_lies_fails_and_the_recount_is_the_evidence(store: str) -> None:
    run_id = logged(Proposing(ALONE), 3)
    report = PrivacyReport.of_runs(run_id)
    found = check(report, "verification")
    assert (report.verdict, found.status, found.evidence) == ("fail", "fail", (f"{run_id}/0",))
    assert (found.measured.value, found.threshold.value) == (1, 3)
    assert report.data.releases["reasons"]["verification_failed"].value == 1


def test_every_format_says_the_same_twice_and_nothing_of_the_table(fiona: str) -> None:
    first, second = (PrivacyReport.of_runs(fiona) for _ in range(2))
    values = {
        str(value) for name in ("Name", "City", "Relationship status") for value in toy.TABLE[name]
    }
    for name in FORMATS:
        text = getattr(first, name)()
        assert text == getattr(second, name)(), name
        assert not [value for value in values if value in text], name


def test_a_report_of_many_explanations_is_small(store: str) -> None:
    report = PrivacyReport.of_runs(reported.run(reported.rows(25_000)))
    assert report.data.releases["asked"].value == 25_000
    mean = report.data.metric("ncp_mean")
    half = 1.96 * reported.rows(25_000)["ncp"].std() / 25_000**0.5  # normal, of so many
    assert [mean.low, mean.high] == pytest.approx(
        [(mean.value or 0) - half, (mean.value or 0) + half], rel=1e-4
    )
    assert len(report.to_html().encode()) < 1_000_000


# --- prototypes ---


@pytest.mark.filterwarnings("ignore:the noise is seeded")
@pytest.mark.parametrize(
    ("settings", "status"),
    [({"model_access": "public"}, "pass"), ({}, "review"), ({"random_state": 1}, "fail")],
)
def test_prototypes_are_judged_by_their_guarantee(
    settings: dict[str, Any], status: str, store: str
) -> None:
    pytest.importorskip("opendp")
    from cfk_plugin.dp import DPPrototypes

    table = pd.DataFrame({"age": list(range(20, 60)) * 5})
    declared = {
        "columns": {"age": Attribute(bounds=(18, 80), bins=[18, 30, 40, 50, 80])},
        "nullable": [],
    }
    schema = Schema.from_frame(table, quasi_identifiers=["age"], **declared)
    prototypes = DPPrototypes(epsilon=1.0, **settings)
    prototypes.fit(Population.from_frame(table, schema), lambda rows: rows["age"] > 40, True)
    run_id = prototypes.explain(table.head(20)).log(experiment="tests")
    report = PrivacyReport.of_runs(run_id)
    assert check(report, "dp_guarantee").status == status
    assert report.data.dp is not None
    assert (report.data.dp["total"] is None) == (status != "pass")
    assert {line.id for line in report.data.checks}.isdisjoint(
        {"k_min", "verification", "attack_linkage"}
    )
    assert report.data.population["fingerprint"] is None  # no epsilon covers it
    assert ("There is no guarantee: " in report.to_html()) == (status == "fail")
    limits = " ".join(report.data.limits)
    assert report.data.dp["covers"] in limits
    assert not any(words in limits for words in ("k people", "quasi-identifier"))
    assert ("Nothing is guaranteed" in limits) == (status == "fail")
    formal = "differential privacy (formal model), server model"
    assert (formal in report.data.policy["techniques"]) == (status != "fail")


@pytest.mark.parametrize(
    ("low", "ceiling", "epsilon", "budget", "says"),
    [
        (0.2, 3.0, 1.0, 2.0, ("pass", "pass")),
        (1.2, 3.0, 1.0, 0.5, ("fail", "fail")),
        (0.2, 0.9, 1.0, None, ("review", "review")),
        (0.2, 3.0, 2.0, 2.0, ("review", "pass")),
    ],
)
def test_an_epsilon_is_judged_by_its_audit_and_its_budget(
    low: float,
    ceiling: float,
    epsilon: float,
    budget: float | None,
    says: Any,
    store: str,
) -> None:
    from prototyped import prototypes

    run_id = prototypes().log(experiment="tests")
    client = mlflow.MlflowClient()
    assert check(PrivacyReport.of_runs(run_id), "dp_budget").status in ("review", "not_measured")
    said = content_of(run_id)["summary.json"]
    said["figures"]["epsilon_spent"] = 1.0
    client.log_dict(run_id, said, "cfk/summary.json")
    figures = {"epsilon_low": low, "ceiling": ceiling, "claimed": epsilon}
    audit = {
        "schema_version": 1,
        "kind": "epsilon",
        "scenario": "s",
        "relation": "r",
        "claimed": epsilon,
        "delta": 0.0,
    }
    result = {
        "attack": "epsilon",
        "scenario": "s",
        "main": reported.rate(0.5),
        "figures": figures,
        "worked": False,
    }
    result |= {"baseline": reported.rate(0.5), "control": None, "random_state": 0, "n": 100}
    client.log_dict(run_id, audit | {"results": [result]}, "cfk/audit-epsilon.json")
    thresholds = {"epsilon": budget} if budget else {"group_gap": 0.3}
    report = PrivacyReport.of_runs(run_id, inputs=reported.inputs(thresholds))
    assert (check(report, "attack_epsilon").status, check(report, "dp_budget").status) == says


# --- from a release and logged attacks to a verdict ---

POLICY = PrivacyPolicy(guarantee="catalogue", k=12, min_pureness=0.5, max_ncp=0.9)
CANARY = 61_803.5


def accepts(rows: pd.DataFrame) -> Any:
    return (rows["age"] < 40).to_numpy(dtype=int)


def people(n: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    pay = random.integers(20, 30, n) * 1_000.0
    pay[:3] = CANARY
    return pd.DataFrame(
        {"age": random.integers(20, 60, n), "town": random.choice(list("ABC"), n), "pay": pay}
    )


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory, store: str) -> str:
    """Return a run with what a policy releases, and with every attack on it that reaches next to
    nothing.
    """
    from cfk_adapters.nearest import NearestUnlikeNeighbour

    train = people(400, 0)
    columns = {
        "age": Attribute(bounds=(18, 80)),
        "pay": Attribute(bounds=(0, 100_000)),
        "town": Attribute(categories=["A", "B", "C"]),
    }
    roles = {"quasi_identifiers": ["age", "town"], "sensitive": ["pay"]}
    population = Population.from_frame(train, Schema.from_frame(train, **roles, columns=columns))
    settings: dict[str, Any] = {
        "population": population,
        "model": accepts,
        "desired": 1,
        "policy": POLICY,
    }
    explainer = NearestUnlikeNeighbour(train, accepts, desired=1)
    asking = people(200, 2)
    asking = asking[accepts(asking) == 0].head(60)
    private = protect(explainer, **settings, groups="town")
    run_id = private.explain(asking).log(experiment="tests")
    anonymizer = KAnonymizer(policy=POLICY).fit(population, model=accepts, desired=1)
    setting = Setting(anonymizer, explainer.explain(asking), asking, holdout=people(200, 1))
    run_linkage_audit(setting, ["linkage"]).log(run_id)
    return str(run_id)


def attacks(shift: float = 0.02, **of: Any) -> list[AttackReport]:
    """Return reports of attacks on the model, as they are logged."""
    of = {"policy": POLICY.to_dict(), "subject": "protected"} | of
    found = [
        reported.membership({"membership_cfd": shift, "membership_cfd_lrt": 0.03}, 2_000, **of)
    ]
    for kind, name in (
        ("extraction", "extraction_known_500"),
        ("attribute_inference", "attribute_inference_linkage"),
    ):
        rates = reported.rate(0.31, 2_000), reported.rate(0.305, 2_000)
        found.append(reported.attack_report(kind, name, *rates, **of))
    return found


def test_with_every_attack_within_tolerance_the_verdict_is_pass(
    released: str,
) -> None:
    inputs = reported.inputs({"attribute_disclosure": 0.9, "group_gap": 0.9})
    runs = [released, *(attack.log(experiment="tests") for attack in attacks())]
    report = PrivacyReport.of_runs(runs, inputs=inputs)
    assert {line.id: line.status for line in report.data.checks if line.status != "pass"} == {}
    assert report.verdict == "pass"
    assert {line.id for line in report.data.checks if line.id.startswith("attack_")} == {
        "attack_linkage",
        "attack_membership",
        "attack_extraction",
        "attack_attribute_inference",
    }
    assert check(report, "attack_membership").evidence == (report.run_ids[1],)
    assert 'id="table-chart-roc"' in report.to_html()
    leak = attacks(1.0)[0].log(experiment="tests")
    assert PrivacyReport.of_runs([*runs, leak], inputs=inputs).verdict == "fail"
    raw = [attack.log(experiment="tests") for attack in attacks(2.0, policy=None, subject="nice")]
    assert PrivacyReport.of_runs([*runs, *raw], inputs=inputs).verdict == "pass"
    assert PrivacyReport.of_runs([released, *raw], inputs=inputs).verdict == "review"
    for text in (getattr(report, form)() for form in FORMATS):
        assert "61803" not in text.replace(",", "")


def test_attacks_of_one_kind_stand_beside_each_other_in_one_run(store: str) -> None:
    run_id = reported.run(audits=())
    for attack in attacks():
        attack.log(run_id)
    names = {attack.id for attack in PrivacyReport.of_runs(run_id).data.attacks}
    assert names == {
        "membership_cfd",
        "membership_cfd_lrt",
        "extraction_known_500",
        "attribute_inference_linkage",
    }


def test_what_a_catalogue_verified_for_each_person_is_the_share_that_is_true(store: str) -> None:
    table = people(200, 3).drop(index=range(3))

    def model(rows: pd.DataFrame) -> Any:
        return ((rows["age"] < 40) | (rows["pay"] > 27_000)).to_numpy()

    population = Population.from_frame(
        table, Schema.from_frame(table, quasi_identifiers=["age", "town"])
    )
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=5)).fit(population, model, desired=True)
    queries = table[~model(table)].head(20).reset_index(drop=True)
    found = anonymizer.explain(queries)
    advised = pd.DataFrame([{**entry.advised, **entry.released} for entry in found.released])
    told = PrivacyReport.of_runs(found.log(experiment="tests")).data.metric("true_rate")
    assert (told.value, told.n) == (model(advised).mean(), len(advised)) == (1.0, 20)
    policy = PrivacyPolicy(k=5, guarantee="lookup")
    lookup = KAnonymizer(policy=policy).fit(population, model, desired=True)
    generalized = lookup.transform(table[model(table)].head(3), queries.head(3))
    assert generalized.released
    report = PrivacyReport.of_runs(generalized.log(experiment="tests"))
    assert report.data.metric("true_rate").value is None
