"""The report as data: deterministic, valid, defined, and silent about what an edition must not show."""

from __future__ import annotations

import dataclasses
import json
import re
from importlib.resources import files
from typing import Any

import jsonschema
import numpy as np
import pytest

import reported
from cfk_plugin import PrivacyPolicy
from cfk_plugin.errors import InputError
from cfk_plugin.report.build import build
from cfk_plugin.report.compose import compose
from cfk_plugin.report.data import ReportData
from cfk_plugin.report.render import render_html, render_markdown
from cfk_plugin.report.runs import Evidence

SCHEMA = json.loads((files("cfk_plugin") / "schemas" / "report-1.schema.json").read_text(encoding="utf-8"))
EDITIONS = ("internal", "external")


def report(*runs: Any, **options: Any) -> ReportData:
    return build(reported.evidence(*runs), **({"inputs": reported.inputs()} | options))


def troubled() -> ReportData:
    """Return a report of a run in which much went wrong."""
    table = reported.rows(200)
    table.loc[:8, ["k", "ncp", "pureness", "pureness_low", "pureness_high"]] = np.nan
    table.loc[:8, ["status", "reason"]] = ["suppressed", "pureness_below_floor"]
    table.loc[3, ["reason", "refused_k"]] = ["verification_failed", 3]
    table.loc[20, "k"] = 3
    return report(reported.run(table, audits=()), inputs=None)


@pytest.mark.parametrize("edition", EDITIONS)
def test_the_json_is_valid(edition: Any) -> None:
    for data in (report(edition=edition), troubled(), report(reported.run(population=None, environment=None))):
        jsonschema.validate(json.loads(data.to_json()), SCHEMA, cls=jsonschema.Draft202012Validator)


def test_the_same_evidence_gives_the_same_bytes() -> None:
    first, second = report(), report()
    assert first.to_json() == second.to_json()
    assert render_html(compose(first)) == render_html(compose(second))
    read = ReportData.from_json(first.to_json())
    assert read.to_json() == first.to_json()
    assert render_html(compose(read)) == render_html(compose(first))


def test_the_name_follows_from_the_content() -> None:
    assert report().report["id"] != report(preset="k20").report["id"]
    assert re.fullmatch("[0-9a-f]{16}", report().report["id"])


@pytest.mark.parametrize("make", [report, troubled])
def test_everything_that_is_reported_is_defined(make: Any) -> None:
    data = make()
    shown = {c.id for c in data.checks} | {m.id for m in data.metrics} | {a.id for a in data.attacks}
    assert shown == set(data.definitions)
    assert all(definition.does_not_say.strip() for definition in data.definitions.values())


def test_the_external_edition_names_no_run_and_no_class_size() -> None:
    table = reported.rows(200, k=47, k_desired=41, k_effective=43, k_intersection=41, group=None)
    data = report(reported.run(table), edition="external", command="cfk report --run 0123456789abcdef0123456789abcdef")
    texts = [data.to_json(), render_html(compose(data)), render_markdown(compose(data))]
    for text in texts:
        assert "0123456789abcdef" not in text
        assert not re.search(r"(?<![\d.])4[137](?![\d.,–])", re.sub(r"data:[^\"]*", "", text)), text
    assert data.metric("k_min").band == "24–59"
    assert data.metric("prosecutor_risk_max").band == "at most 0.042"
    assert (data.runs, data.certificates) == ((), ())
    assert all(not check.evidence for check in data.checks)


def test_a_class_of_seven_is_nowhere() -> None:
    facts = reported.population(unique=7, below_k=7, classes=[{"from": 1, "to": None, "people": 1_000}])
    data = report(reported.run(population=facts))
    assert data.population["unique"].band == "1–10 people"
    assert "population.unique" in data.suppressed_cells
    assert "0.007" not in data.to_json()
    assert "0.7 %" not in render_html(compose(data))


def test_a_count_that_the_artifact_bands_stays_a_band() -> None:
    facts = reported.population(unique="1–10")
    assert report(reported.run(population=facts)).population["unique"].band == "1–10 people"


def test_few_suppressed_explanations_are_hidden_outside_with_their_complement() -> None:
    data = troubled()
    assert (data.releases["suppressed"].value, data.releases["released"].value) == (9, 191)
    outside = dataclasses.replace(data)
    table = reported.rows(100)
    table.loc[:3, ["k", "ncp", "pureness", "pureness_low", "pureness_high"]] = np.nan
    table.loc[:3, ["status", "reason"]] = ["suppressed", "infeasible"]
    outside = report(reported.run(table), edition="external")
    assert outside.releases["suppressed"].band == "1–10"
    assert outside.releases["released"].band == "hidden"
    assert outside.metric("suppressed").band == "1–10"
    assert outside.metric("suppressed_rate").band is not None
    assert outside.releases["reasons"]["infeasible"].band == "1–10"
    assert {metric.amount.n for metric in outside.metrics} == {None}  # 96 were released
    assert not re.search(r"(?<![\d.])96(?![\d.])", outside.to_json())
    flips = outside.metric("flips")
    assert (flips.low, flips.high) == (None, None)  # a Wilson interval would tell of how many


def test_quantiles_need_fifty_releases() -> None:
    few = report(reported.run(reported.rows(49)))
    assert not few.metric("k_median").measured
    assert report(reported.run(reported.rows(50))).metric("k_median").measured


def test_several_policies_are_listed_with_their_periods() -> None:
    other = PrivacyPolicy(k=20, anonymity_set="eligible", min_pureness=0.5, max_ncp=0.5)
    later = reported.rows(policy=other, k=25, k_desired=25, k_effective=25, k_intersection=25)
    second = dataclasses.replace(reported.run(later, other), run_id="f" * 32)
    data = report(reported.run(), second)
    assert len(data.policy["policies"]) == 2
    assert data.policy["deviations"] == ("2 different policies were in force.",)
    assert {check.id: check.status for check in data.checks}["k_min"] == "pass"


def test_a_report_of_many_explanations_is_small() -> None:
    data = report(reported.run(reported.rows(10_000)))
    assert data.releases["asked"].value == 10_000
    assert len(render_html(compose(data)).encode()) < 1_000_000


def test_certificates_list_the_worst_first() -> None:
    found = [certificate["k"].value for certificate in report().certificates]
    assert found == sorted(found)
    assert len(found) == 50


def test_a_report_needs_runs_a_known_edition_and_a_known_preset() -> None:
    with pytest.raises(InputError, match="at least one run"):
        build(Evidence(runs=()))
    with pytest.raises(InputError, match="internal or external"):
        report(edition="public")
    with pytest.raises(InputError, match="unknown preset"):
        report(preset="gdpr")


def test_changes_since_an_earlier_report_are_said() -> None:
    before = report()
    table = reported.rows()
    table.loc[5, "k"] = 3
    after = report(reported.run(table), previous=before)
    assert after.changes is not None
    assert {"verdict"} <= {str(change["what"]).lower() for change in after.changes}
    assert report(previous=before).changes == ()
