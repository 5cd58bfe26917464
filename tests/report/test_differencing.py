"""Two external reports that differ by one explanation do not tell which region it has."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.metrics.information import ncp_by_attribute
from cfk_plugin.report.data import Amount
from cfk_plugin.report.disclosure import as_supported, in_steps
from cfk_plugin.report.privacy_report import PrivacyReport

FIRST, LAST = 60, 90  # explanations in the first and in the last report


def people(n: int, seed: int) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": draw.integers(20, 60, n),
            "height": draw.integers(150, 200, n),
            "pay": draw.integers(1_000, 9_000, n),
        }
    )


def model(rows: pd.DataFrame) -> np.ndarray:
    return rows["pay"].to_numpy(dtype=float) + 30 * rows["age"].to_numpy(dtype=float) > 6_500


@dataclass(frozen=True)
class Series:
    """Reports of the first 60, 61, ... explanations, and the losses of each region."""

    reports: dict[str, list[dict[str, Any]]]  # by edition
    losses: list[dict[str, float]]  # of each explanation: of its region, and by attribute

    @property
    def regions(self) -> list[dict[str, float]]:
        return [dict(each) for each in {tuple(loss.items()) for loss in self.losses}]


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Series:
    store = f"sqlite:///{tmp_path_factory.mktemp('store')}/runs.db"
    train, asking = people(400, seed=1), people(400, seed=2)
    schema = Schema.from_frame(train, quasi_identifiers=["age", "height"])
    population = Population.from_frame(train, schema, key=b"a key")
    fitted = KAnonymizer(policy=PrivacyPolicy(k=10)).fit(population, model, desired=True)
    explanations = fitted.explain(asking[~model(asking)].head(LAST))
    assert len(explanations.generalized) == LAST
    reports: dict[str, list[dict[str, Any]]] = {"internal": [], "external": []}
    for number in range(FIRST, LAST + 1):
        run = explanations[:number].log(tracking_uri=store, experiment="credit")
        for edition, made in reports.items():
            report = PrivacyReport.of_runs([run], edition=edition, tracking_uri=store)  # type: ignore[arg-type]
            made.append(json.loads(report.to_json()))
    losses = [
        {"ncp": entry.certificate.ncp, **ncp_by_attribute(entry.region, population)}
        for entry in explanations.generalized
    ]
    return Series(reports, losses)


def means_of(report: dict[str, Any]) -> dict[str, float]:
    """Return the number of explanations and the means that a reader can multiply it with."""
    figures = {figure["id"]: figure["amount"]["value"] for figure in report["metrics"]}
    chart = next(each for each in report["distributions"] if each["id"] == "ncp_by_attribute")
    values = [amount["value"] for amount in chart["series"]["mean NCP"]]
    return {
        "n": report["releases"]["asked"]["value"],
        "ncp": figures["ncp_mean"],
        **dict(zip(chart["labels"], values, strict=True)),
    }


def guessed(before: dict[str, Any], after: dict[str, Any], series: Series) -> dict[str, float]:
    """Return the region whose losses are nearest to the difference of the sums."""
    one, other = means_of(before), means_of(after)
    names = [name for name in one if name != "n"]
    added = {name: other["n"] * other[name] - one["n"] * one[name] for name in names}
    return min(
        series.regions, key=lambda region: sum(abs(region[name] - added[name]) for name in names)
    )


def share_named(series: Series, edition: str) -> float:
    made = series.reports[edition]
    named = [
        guessed(made[at], made[at + 1], series) == series.losses[FIRST + at]
        for at in range(len(made) - 1)
    ]
    return sum(named) / len(named)


def test_the_difference_of_two_reports_names_the_region_only_inside(series: Series) -> None:
    most_frequent = max(
        sum(loss == region for loss in series.losses) for region in series.regions
    ) / len(series.losses)
    assert len(series.regions) > 10
    assert share_named(series, "internal") > 0.9
    assert share_named(series, "external") <= most_frequent + 0.05


def test_few_explanations_change_a_mean_or_a_number(series: Series) -> None:
    for edition, most in (("external", 1 / 3), ("internal", 1.0)):
        told = [means_of(report) for report in series.reports[edition]]
        changed = sum(before != after for before, after in pairwise(told))
        assert changed / (len(told) - 1) <= most
        assert changed


def test_an_external_report_has_days_and_no_times(series: Series) -> None:
    report = series.reports["external"][0]
    times = [report["report"]["as_of"], *report["report"]["period"].values()]
    times += [policy[end] for policy in report["policy"]["policies"] for end in ("first", "last")]
    assert all(time is None or len(time) == len("2026-01-31") for time in times)
    assert sum(time is not None for time in times) == 5
    inside = series.reports["internal"][0]["report"]["period"]["first"]
    assert len(inside) == len("2026-01-31T12:00:00Z")


@pytest.mark.parametrize(
    ("count", "shown"),
    [(11, 11), (21, 11), (22, 22), (999, 990), (1_000, 1_000), (1_099, 1_000), (12_999, 12_000)],
)
def test_numbers_are_in_steps(count: int, shown: int) -> None:
    assert in_steps(count) == shown


@pytest.mark.parametrize(
    ("exact", "shown"),
    [
        # half the interval is 0.011
        (
            Amount(value=0.1147, low=0.1029, high=0.1249, n=400),
            Amount(value=0.12, low=0.1, high=0.14),
        ),
        # one of 40 can change more than half the interval
        (Amount(value=0.118, low=0.116, high=0.12, n=40), Amount(value=0.1, low=0.1, high=0.15)),
        (
            Amount(value=0.1147, low=0.1145, high=0.1149, n=10_000),
            Amount(value=0.1148, low=0.1144, high=0.115),
        ),
        (Amount(value=1.0, low=1.0, high=1.0, n=49), Amount(value=1.0, low=1.0, high=1.0)),
        (Amount(value=0.0, low=0.0, high=0.0727, n=49), Amount(value=0.0, low=0.0, high=0.1)),
        (Amount(value=0.513, n=1_000), Amount(value=0.513)),
    ],
)
def test_means_are_rounded_to_what_their_number_supports(exact: Amount, shown: Amount) -> None:
    assert as_supported(exact) == shown
