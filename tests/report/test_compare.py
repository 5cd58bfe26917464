"""What changed between two reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cfk_plugin.errors import InputError
from cfk_plugin.report.amounts import Amount
from cfk_plugin.report.data import Metric, ReportData
from cfk_plugin.report.summaries import compare, render_comparison
from small_report import HOSTILE, check, report, with_head


def changes(after: ReportData, before: ReportData | None = None) -> dict[str, tuple[str, str]]:
    found = compare(before or report(), after)
    assert all(set(change) == {"what", "before", "after"} for change in found)
    return {change["what"]: (change["before"], change["after"]) for change in found}


def policies(**settings: Any) -> dict[str, Any]:
    return {**report().policy, "policies": ({"sha256": str(settings), "settings": settings},)}


def test_the_same_report_has_not_changed() -> None:
    assert changes(report()) == {}
    assert changes(ReportData.from_json(report().to_json())) == {}
    assert "Nothing that a report compares changed." in render_comparison(report(), report())


def test_verdict_and_checks() -> None:
    checks = (check("k_min", "fail", measured=7), *report().checks[1:2], check("ncp", measured=0.1, needed=0.3))
    after = with_head(report(checks=checks), verdict="fail")
    assert changes(after) == {
        "verdict": ("review", "fail"),
        "check k_min": ("pass (13)", "fail (7)"),
        "check attack_linkage": ("not measured", "not in the report"),
        "check ncp": ("not in the report", "pass (0.1)"),
    }


def test_a_threshold_that_moved_is_a_change() -> None:
    checks = (check("k_min", measured=13, needed=10), *report().checks[1:])
    assert changes(report(checks=checks)) == {"threshold of k_min": ("12", "10")}


@pytest.mark.parametrize(
    ("low", "high", "what"),
    [
        (0.9, 0.94, "metric pureness_mean (intervals overlap)"),
        (0.8, 0.92, "metric pureness_mean (intervals do not overlap)"),
        (None, None, "metric pureness_mean"),
    ],
)
def test_metrics_say_whether_intervals_overlap(low: float | None, high: float | None, what: str) -> None:
    metric = Metric(id="pureness_mean", amount=Amount(value=0.91, low=low, high=high), section=7)
    after = report(metrics=(report().metrics[0], metric, report().metrics[2]))
    ((found, (old, _)),) = changes(after).items()
    assert (found, old) == (what, "0.96 (0.93–0.98)")


def test_what_three_digits_do_not_show_is_no_change() -> None:
    metrics = [
        replace(each, amount=replace(each.amount, value=each.amount.value * 1.00001)) for each in report().metrics[1:]
    ]
    assert changes(report(metrics=(report().metrics[0], *metrics))) == {}


def test_a_band_hides_its_value_here_too() -> None:
    metric = Metric(id="k_min", amount=Amount(value=7, band="1–10"), section=5)
    assert changes(report(metrics=(metric, *report().metrics[1:]))) == {"metric k_min": ("13", "1–10")}


def test_policy_population_schema_model_and_software() -> None:
    before = report(policy=policies(k=12, l=None))
    after = replace(
        before,
        policy={**policies(k=10, l=2), "preset": "paper"},
        population={**before.population, "fingerprint": "beef", "people": Amount(band="1–10")},
        attributes=({**before.attributes[0], "bounds_source": "declared"}, {"name": "zip", "role": "quasi-identifier"}),
        system={**before.system, "model": "risk 4"},
        environment={
            "packages": {"cfk-plugin": "0.2.0"},
            "plugins": ["dice 0.2.0"],
            "python": "3.12.1",
            "model": "m-2",
        },
    )
    assert changes(after, before) == {
        "policy: preset": ("ema-0070", "paper"),
        "policy: k": ("12", "10"),
        "policy: l": ("none", "2"),
        "population: fingerprint": ("f00d", "beef"),
        "population: people": ("1,200", "1–10"),
        "attribute age: bounds_source": ("learned", "declared"),
        "attribute zip": ("not in the report", "quasi-identifier"),
        "answer: model": ("not in the report", "risk 4"),
        "plugin: dice": ("0.1.0", "0.2.0"),
        "plugin: nice": ("1.0.0", "not in the report"),
        "package: cfk-plugin": ("0.1.0", "0.2.0"),
        "python": ("3.11.9", "3.12.1"),
        "model": ("m-1", "m-2"),
    }


def test_several_policies_are_told_apart_by_their_hash() -> None:
    two = {**report().policy, "policies": ({"sha256": "abc"}, {"sha256": "def"})}
    assert changes(report(policy=two)) == {"policies": ("abc", "abc, def")}


def test_an_attack_that_does_better_is_a_change() -> None:
    attack = replace(report().attacks[0], main=Amount(value=0.5, low=0.4, high=0.6))
    assert changes(report(attacks=(attack,))) == {
        "attack linkage (intervals do not overlap)": ("0.02 (0.01–0.05)", "0.5 (0.4–0.6)")
    }


def test_editions_are_not_compared() -> None:
    with pytest.raises(InputError, match="the internal and the external edition cannot be compared"):
        compare(report(), with_head(report(), edition="external"))


def test_the_page_is_a_table_in_which_nothing_is_markup() -> None:
    after = with_head(report(system={**report().system, "purpose": HOSTILE}), title=HOSTILE)
    text = render_comparison(report(), after)
    assert "<script>" not in text
    (line,) = [line for line in text.splitlines() if "answer" in line]
    assert line.startswith("| answer: purpose | none | a\\|b ")
    assert "verdict **review**" in text
