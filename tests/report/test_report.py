"""Reports from runs that were really logged: the toy example, a protector that lies, evidence that is gone."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest

import toy
from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, PrivacyReport, RunLogger, Schema
from cfk_plugin.data.region import Interval, Region
from cfk_plugin.hookspecs import Proposal, Protector, Task
from cfk_plugin.report.data import Check, Edition

FORMATS = ("to_json", "to_html", "to_markdown", "to_csv", "to_junit", "model_card")


class PaperRegion:
    """Proposes the region of the paper's Figure 2: Fiona joined with Gina."""

    name = "figure-2"

    def protect(self, task: Task) -> Sequence[Proposal]:
        return [Proposal(toy.REGION)] * len(task)


class Liar:
    """Proposes a region of one person, whatever k is asked for."""

    name = "liar"

    def protect(self, task: Task) -> Sequence[Proposal]:
        alone = Region({"Age": Interval(24, 24), "Gender": frozenset({"F"}), "City": frozenset({"Antwerp"})})
        return [Proposal(alone, optimal=True, gap=0.0)] * len(task)


@pytest.fixture
def store(tmp_path: Path) -> str:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = mlflow.MlflowClient(tracking_uri=uri)
    client.create_experiment("credit", artifact_location=(tmp_path / "artifacts").as_uri())
    return uri


def logged(store: str, method: str | Protector, policy: PrivacyPolicy) -> str:
    """Log the explanation of the toy example; return the run."""
    anonymizer = KAnonymizer(policy=policy, method=method).fit(toy.population(), toy.model, toy.DESIRED)
    explanations = anonymizer.transform(pd.DataFrame(toy.FIONA))
    return explanations.log(RunLogger(experiment="credit", tracking_uri=store))


def check(report: PrivacyReport, name: str) -> Check:
    return next(found for found in report.data.checks if found.id == name)


def test_the_golden_toy_report(store: str) -> None:
    run_id = logged(store, PaperRegion(), PrivacyPolicy(k=2, guarantee="nominal"))
    report = PrivacyReport.of_runs(run_id, tracking_uri=store)
    found = {name: report.data.metric(name).value for name in ("k_min", "k_desired_min", "pureness_mean", "cdm", "cm")}
    assert found == {"k_min": 3, "k_desired_min": 2, "pureness_mean": 0.5, "cdm": 3, "cm": 0}
    assert round(report.data.metric("ncp_mean").value or 0, 3) == 0.021
    assert report.data.metric("k_consistent_min").value == 1
    assert [check(report, name).status for name in ("k_min", "k_desired_min", "k_effective_min")] == [
        "pass",
        "pass",
        "not_measured",  # nominal: nobody counted who is left after a rerun
    ]
    assert "0.0213" in report.to_html()


def test_a_protector_that_lies_fails_and_the_recount_is_the_evidence(store: str) -> None:
    run_id = logged(store, Liar(), PrivacyPolicy(k=3, guarantee="nominal"))
    report = PrivacyReport.of_runs(run_id, tracking_uri=store)
    found = check(report, "verification")
    assert (report.verdict, found.status) == ("fail", "fail")
    assert (found.measured.value, found.threshold.value) == (1, 3)
    assert found.evidence == (f"{run_id}/0",)
    assert report.data.releases["reasons"]["verification_failed"].value == 1


def test_evidence_that_is_gone_is_not_measured(store: str) -> None:
    run_id = logged(store, PaperRegion(), PrivacyPolicy(k=2, guarantee="nominal"))
    before = PrivacyReport.of_runs(run_id, tracking_uri=store)
    assert check(before, "k_desired_min").status == "pass"
    folder = Path(mlflow.MlflowClient(tracking_uri=store).get_run(run_id).info.artifact_uri.removeprefix("file://"))
    for path in (folder / "cfk" / "recount").iterdir():
        path.unlink()
    (folder / "cfk" / "population.json").unlink()
    after = PrivacyReport.of_runs(run_id, tracking_uri=store)
    assert check(after, "k_desired_min").status == "not_measured"
    assert check(after, "schema_declared").status == "not_measured"
    assert after.data.metric("cm").value is None
    assert check(after, "k_min").status == "pass"  # the released records are still there
    assert after.verdict == "review"


@pytest.mark.filterwarnings("ignore:the noise is seeded")
@pytest.mark.parametrize(
    ("settings", "status"), [({"model_access": "public"}, "pass"), ({}, "review"), ({"seed": 1}, "fail")]
)
def test_prototypes_are_judged_by_their_guarantee(store: str, settings: dict[str, Any], status: str) -> None:
    pytest.importorskip("opendp")
    from cfk_plugin.dp import DPPrototypes

    table = pd.DataFrame({"age": list(range(20, 60)) * 5})
    declared = {"bounds": {"age": (18, 80)}, "bins": {"age": [18, 30, 40, 50, 80]}, "nullable": []}
    schema = Schema.from_frame(table, quasi_identifiers=["age"], **declared)
    prototypes = DPPrototypes(epsilon=1.0, **settings)
    prototypes.fit(Population.from_frame(table, schema), lambda rows: rows["age"] > 40, True)
    run_id = prototypes.explain(table.head(20)).log(RunLogger(experiment="credit", tracking_uri=store))
    report = PrivacyReport.of_runs(run_id, tracking_uri=store)
    assert check(report, "dp_guarantee").status == status
    assert report.data.dp is not None
    assert (report.data.dp["total"] is None) == (status != "pass")
    names = {found.id for found in report.data.checks}
    assert names.isdisjoint({"k_min", "verification", "attack_linkage"})  # there are no people to count
    assert report.data.population["fingerprint"] is None  # no epsilon covers it
    assert ("No guarantee; see the audit." in report.to_html()) == (status == "fail")


def amounts(value: object) -> Iterator[float]:
    """Yield every number in a report's JSON that is an amount."""
    if isinstance(value, dict):
        found = value.get("value")
        yield from [found] if isinstance(found, int | float) and "band" in value else []
        for inner in value.values():
            yield from amounts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from amounts(inner)


@pytest.mark.parametrize("edition", ["internal", "external"])
def test_a_class_of_seven_people_cannot_be_told(store: str, edition: Edition) -> None:
    """Seven people are in a class of fewer than k, before protection: neither they nor the other 193 are counted."""
    table = pd.DataFrame({"age": [30] * 7 + [40] * 93 + [50] * 100, "salary": range(200)})
    schema = Schema.from_frame(table, quasi_identifiers=["age"])
    population = Population.from_frame(table, schema)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=20)).fit(population, lambda rows: rows["salary"] > 5, True)
    run_id = anonymizer.transform(table.tail(60)).log(RunLogger(experiment="credit", tracking_uri=store))
    report = PrivacyReport.of_runs(run_id, tracking_uri=store, edition=edition)
    assert report.data.population["below_k"].band == "1–10 people"
    shown = set(amounts(json.loads(report.to_json())))
    assert shown.isdisjoint({7, 193, 7 / 200, 193 / 200, 0.035, 0.965})
    assert "3.5 %" not in report.to_html() + report.to_markdown()
    assert "0.035" not in report.to_csv() + report.to_junit() + report.model_card()


def test_every_format_says_the_same_and_is_the_same_twice(store: str) -> None:
    run_id = logged(store, PaperRegion(), PrivacyPolicy(k=2, guarantee="nominal"))
    first, second = (PrivacyReport.of_runs(run_id, tracking_uri=store) for _ in range(2))
    for name in FORMATS:
        assert getattr(first, name)() == getattr(second, name)(), name
    lines = list(csv.DictReader(io.StringIO(first.to_csv())))
    cases = ET.fromstring(first.to_junit()).iter("testcase")
    checks = json.loads(first.to_json())["checks"]
    assert [line["id"] for line in lines] == [c["id"] for c in checks] == [case.get("name") for case in cases]


def test_no_format_holds_a_value_of_the_table(store: str) -> None:
    run_id = logged(store, PaperRegion(), PrivacyPolicy(k=2, guarantee="nominal"))
    report = PrivacyReport.of_runs(run_id, tracking_uri=store)
    values = {str(value) for name in ("Name", "City", "Relationship status") for value in toy.TABLE[name]}
    for name in FORMATS:
        text = getattr(report, name)()
        assert not [value for value in values if value in text], name
