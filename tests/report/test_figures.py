"""Every figure of a report, recounted in plain pandas from the records that were logged."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import reported
from cfk_plugin import PrivacyReport
from cfk_plugin.metrics import group_gap
from cfk_plugin.report.data import ReportData

pytestmark = pytest.mark.usefixtures("store")
SHIFTS = {
    "membership_cfd": 0.0,
    "membership_cfd_lrt": 0.4,
    "membership_loss": 1.0,
    "membership_loss_lrt": 1.5,
}
OF = {**reported.OF_POLICY, "subject": "protected"}


def table(n: int = 120) -> pd.DataFrame:
    """Return records of all kinds: some withheld, some exact, some drawn, of three groups of which
    one is small.
    """
    random = np.random.default_rng(7)
    pureness = random.choice([0.5, 0.8, 0.95, 1.0], n)
    columns = {
        "k": random.integers(12, 90, n),
        "k_desired": random.integers(12, 40, n),
        "ncp": np.where(random.random(n) < 0.1, 0.0, random.random(n)),
        "pureness": pureness,
        "pureness_low": pureness - 0.05,
        "pureness_high": np.minimum(pureness + 0.05, 1.0),
        "exact": random.random(n) < 0.5,
        "optimal": random.random(n) < 0.3,
        "majority": random.random(n) < 0.9,
        "finding": random.choice(["native", "near-native", "native-qi", "synthetic"], n),
        "seconds": random.random(n),
        "group": random.choice(["women", "men", "few"], n, p=[0.5, 0.45, 0.05]),
        "ncp.age": random.random(n),
    }
    made = reported.withheld(reported.rows(n, **columns), 14)
    return made


@pytest.fixture(scope="module")
def report(store: str) -> ReportData:
    return PrivacyReport.of_runs(reported.run(table())).data


def test_every_metric_is_that_of_the_records(report: ReportData) -> None:
    rows = table()
    released = rows[rows["status"] == "released"]
    k, risk = released["k"], 1 / released["k"]
    worst = released.sort_values(["pureness", "pureness_low"]).iloc[0]
    expected = {
        "asked": 120,
        "released": 105,
        "withheld": 15,
        "withheld_rate": 15 / 120,
        "exact": (released["ncp"] == 0).sum(),
        "generalised": (released["ncp"] > 0).sum(),
        "prototypes": 0,
        "untracked": 0,
        "native_rate": (rows["finding"] == "native").mean(),
        "near_native_rate": (rows["finding"] == "near-native").mean(),
        "native_qi_rate": (rows["finding"] == "native-qi").mean(),
        "near_native_tolerance": 0.05,
        **{
            f"{name}_min": released[name].min()
            for name in ("k_consistent", "k_effective", "k_private", "l")
        },
        **{f"{name}_min": released[name].min() for name in ("k", "k_desired", "private_matches")},
        "k_mean": k.mean(),
        "k_p05": np.percentile(k, 5),
        "k_median": k.median(),
        "k_desired_median": released["k_desired"].median(),
        "prosecutor_risk_max": risk.max(),
        "prosecutor_risk_mean": risk.mean(),
        "marketer_risk": risk.mean(),
        "at_risk_009": (risk > 0.09).mean(),
        "at_risk_020": 0,
        "t_max": 0.1,
        "attribute_disclosure_max": 0.2,
        "ncp_mean": released["ncp"].mean(),
        "ncp_p95": np.percentile(released["ncp"], 95),
        "pureness_mean": released["pureness"].mean(),
        "pureness_min": worst["pureness"],
        "pureness_low": released["pureness_low"].mean(),
        "flips": (released["pureness"] > 0.5).mean(),
        "cdm": k.sum() + 15 * 1_000,
        "cdm_per_release": (k.sum() + 15 * 1_000) / 120,
        "cm": (~released["majority"].astype(bool)).mean(),
        "optimal_rate": released["optimal"].mean(),
    }
    found = {metric.id: metric.amount for metric in report.metrics}
    assert {name: found[name].value for name in expected} == pytest.approx(expected)
    assert {name for name in found if found[name].value is not None} - set(expected) == {
        "below_k",
        "unique",
    }
    for name, n in (("flips", 105), ("withheld_rate", 120)):
        low, high = stats.binomtest(round(expected[name] * n), n).proportion_ci(method="wilson")
        assert (found[name].low, found[name].high) == pytest.approx((low, high))
    assert found["ncp_mean"].low < expected["ncp_mean"] < found["ncp_mean"].high  # type: ignore[operator]
    assert report.releases["latency"]["p50"].value == pytest.approx(rows["seconds"].median())
    assert {name: amount.value for name, amount in report.releases["reasons"].items()} == {
        "infeasible": 15,
    }


def test_who_has_the_outcome_already_is_left_out_of_the_share_withheld(store: str) -> None:
    rows = table()
    rows.loc[3:6, "reason"] = "already_desired"
    data = PrivacyReport.of_runs(reported.run(rows)).data
    found = {metric.id: metric.amount for metric in data.metrics}
    assert (found["asked"].value, found["withheld"].value) == (120, 15)
    assert (found["withheld_rate"].value, found["withheld_rate"].n) == (11 / 116, 116)
    k = rows.loc[rows["status"] == "released", "k"]
    assert found["cdm"].value == k.sum() + 11 * 1_000
    needed = rows.drop(index=range(3, 7))
    in_group = (needed["group"] == "women").to_numpy()
    withheld = (needed["status"] == "withheld").to_numpy(dtype=float)
    (women,) = [g for g in data.groups if (g.metric, g.group) == ("withheld", "women")]
    assert women.mean.value == pytest.approx(withheld[in_group].mean())


def test_groups_are_compared_with_the_rest_and_small_ones_pooled(report: ReportData) -> None:
    rows = table()
    for metric in ("k", "ncp", "pureness", "withheld"):
        values = (
            (rows["status"] == "withheld").astype(float) if metric == "withheld" else rows[metric]
        )
        gaps = group_gap(values.to_numpy(dtype=float), rows["group"].to_numpy())
        found = [group for group in report.groups if group.metric == metric]
        assert [(group.group, group.n.value) for group in found] == [
            (gap.group, gap.n) for gap in gaps
        ]
        for group, gap in zip(found, gaps, strict=True):
            assert (group.mean.value, group.gap.value) == pytest.approx((gap.mean, gap.gap))
            assert (group.gap.low, group.gap.high) == pytest.approx((gap.low, gap.high))
    assert {group.attribute for group in report.groups} == {"sex"}
    assert min(group.n.value or 0 for group in report.groups) >= 11


def test_every_chart_is_that_of_the_records(report: ReportData) -> None:
    released = table().query("status == 'released'")
    charts = {chart.id: chart for chart in report.distributions}
    sizes = pd.cut(released["k"], [0, 11, 23, 59, 119, np.inf]).value_counts(
        normalize=True, sort=False
    )
    assert values(charts["class_sizes"], "released explanations") == pytest.approx(sizes.tolist())
    assert values(charts["class_sizes"], "people before protection")[:2] == [0.9, 0.06]
    above = [(1 / released["k"] > float(at) * 1.001).mean() for at in charts["risk"].labels]
    assert values(charts["risk"], "share of releases") == pytest.approx(above)
    assert {"0.09", "0.0833"} < set(charts["risk"].labels)
    assert charts["risk"].marks["1 / k"] == pytest.approx(1 / 12)
    assert charts["ncp_by_attribute"].labels == ("age", "city")
    assert values(charts["ncp_by_attribute"], "mean NCP") == pytest.approx(
        [released["ncp.age"].mean(), 0.3]
    )
    expected = released["pureness"].quantile(np.arange(0, 101, 5) / 100, interpolation="nearest")
    assert np.mean(np.array(values(charts["pureness"], "pureness")) == expected.to_numpy()) > 0.9
    assert charts["pureness"].marks == {"floor": 0.5}


def values(chart: Any, series: str) -> list[float | None]:
    return [amount.value for amount in chart.series[series]]


def test_certificates_are_the_worst_of_the_releases(report: ReportData) -> None:
    worst = (
        table()
        .query("status == 'released'")
        .sort_values(["k", "pureness_low", "pureness"], kind="stable")
        .head(50)
    )
    (run,) = report.runs
    assert [line["id"] for line in report.certificates] == [
        f"{run['run']}/{step}" for step in worst["step"]
    ]
    assert [line["k"].value for line in report.certificates] == worst["k"].tolist()
    drawn = [line["pureness"].low is not None for line in report.certificates]
    assert drawn == (~worst["exact"].astype(bool)).tolist()
    assert {line["optimality"] for line in report.certificates} == {"proved", "heuristic"}
    assert (run["asked"], run["name"], run["experiment"], run["audits"]) == (
        120,
        "release",
        "tests",
        reported.ATTACKS,
    )


def test_quantiles_need_fifty_releases_and_few_people_no_chart_of_quantiles(store: str) -> None:
    few = PrivacyReport.of_runs(reported.run(reported.rows(49))).data
    assert not few.metric("k_median").measured
    assert "pureness" not in {chart.id for chart in few.distributions}


def test_several_policies_are_listed_and_each_explanation_is_judged_by_its_own(
    store: str,
) -> None:
    other = dataclasses.replace(reported.POLICY, k=20)
    later = reported.rows(policy=other, k=25, k_desired=25, k_effective=25)
    ids = [reported.run(), reported.run(later, other, params={"method": "mondrian"})]
    report = PrivacyReport.of_runs(ids, inputs=reported.inputs()).data
    listed = [(one["settings"]["k"], one["asked"].value) for one in report.policy["policies"]]
    assert sorted(listed) == [(12, 100), (20, 100)]  # both runs are of the same moment
    assert report.policy["deviations"] == (
        "2 different policies were in force.",
        "2 different methods: exact, mondrian.",
    )
    assert {check.id: check.status for check in report.checks}["k_min"] == "pass"


# --- members found by attacks ---


def members_found(n: int) -> Any:
    audit = json.loads(reported.membership(SHIFTS, n, **OF).to_json())
    return PrivacyReport.of_runs(reported.run(audits=[audit])).data.distribution("roc")


def test_members_found_are_those_that_were_measured(store: str) -> None:
    logged = reported.membership(SHIFTS, **OF)
    chart = members_found(1_000)
    assert chart.labels == ("0.1", "0.01", "0.001")
    assert list(chart.series) == list(SHIFTS)
    for name, amounts in chart.series.items():
        for amount, rate in zip(amounts, reported.RATES, strict=True):
            ends = [logged[name].figures[f"{rate}{end}"] for end in ("", "_low", "_high")]
            assert [amount.value, amount.low, amount.high] == ends


def test_rates_of_less_than_one_person_are_not_measured(store: str) -> None:
    amounts = members_found(60).series["membership_cfd"]
    assert [amount.measured for amount in amounts] == [True, False, False]
