"""The rules of a short catalogue: in its page, its run, and a report on that run; no row with them."""

from __future__ import annotations

import html
import json
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Explanations, KAnonymizer, Population, PrivacyPolicy, PrivacyReport, Schema
from cfk_plugin.errors import TrackingError
from cfk_plugin.release.publication import catalogue_page

CANARY = "canary-job"


def accepts(rows: pd.DataFrame) -> Any:
    return (rows["age"] + rows["pay"] > 80).to_numpy(dtype=int)


@pytest.fixture(scope="module")
def population() -> Population:
    random = np.random.default_rng(1)
    n = 300
    train = pd.DataFrame(
        {
            "age": random.integers(20, 60, n),
            "town": random.choice(list("ABC"), n),
            "pay": random.integers(10, 60, n),
            "job": random.choice(["clerk", "nurse"], n).astype(object),
        }
    )
    refused = np.flatnonzero(accepts(train) == 0)
    train.loc[refused[0], "job"] = CANARY
    return Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=["age", "town"]))


@pytest.fixture(scope="module")
def anonymizer(population: Population) -> KAnonymizer:
    policy = PrivacyPolicy(k=12, min_pureness=0.5)
    return KAnonymizer(policy=policy).fit(population, model=accepts, desired=1)


@pytest.fixture(scope="module")
def short(anonymizer: KAnonymizer) -> Explanations:
    return anonymizer.published(within=0.03)


@pytest.fixture(scope="module")
def run_id(short: Explanations, store: str) -> str:
    return short.log(experiment="tests")


def sentences(short: Explanations) -> list[str]:
    assert short.short_catalogue is not None
    return [short.generalized[rule.query].message().lead for rule in short.short_catalogue.rules]


def test_the_page_shows_the_rules_of_a_short_catalogue_alone(
    short: Explanations, anonymizer: KAnonymizer, population: Population
) -> None:
    page = html.unescape(catalogue_page(short, population))
    rules = page[page.index('<section id="rules"') : page.index("</section>")]
    about = short.short_catalogue
    assert about is not None
    for rule, sentence in zip(about.rules, sentences(short), strict=True):
        assert sentence in rules
        assert f"True for {rule.reached:.0%} of the people in the table" in rules
        assert f"distance to it is {rule.distance:.2f}" in rules
    assert CANARY not in page
    assert '<section id="rules"' not in catalogue_page(anonymizer.published(), population)


def test_a_run_holds_the_rules_and_no_row(short: Explanations, run_id: str) -> None:
    text = mlflow.artifacts.load_text(
        f"{mlflow.get_run(run_id).info.artifact_uri}/cfk/short_catalogue.json"
    )
    assert CANARY not in text
    logged = json.loads(text)
    assert short.short_catalogue is not None
    expected = short.short_catalogue.to_dict()
    for rule, sentence in zip(expected["rules"], sentences(short), strict=True):
        rule["text"] = sentence
    assert logged == expected


@pytest.mark.parametrize("edition", ["internal", "external"])
def test_a_report_has_the_rules_as_logged(
    short: Explanations, run_id: str, edition: Any, tmp_path: Any
) -> None:
    report = PrivacyReport.of_runs(run_id, edition=edition)
    published = report.data.published_rules
    about = short.short_catalogue
    assert published is not None
    assert about is not None
    assert (published["entries"], published["of"]) == (about.entries, about.of)
    assert [rule["text"] for rule in published["rules"]] == sentences(short)
    report.save(tmp_path / "report.html")
    shown = html.unescape((tmp_path / "report.html").read_text(encoding="utf-8"))
    for rule, sentence in zip(published["rules"], sentences(short), strict=True):
        assert sentence in shown
        assert f"{rule['distance']:.2f}" in shown
    assert f"With these rules there is an answer for {about.reached_by_rules:.0%}" in shown
    assert CANARY not in shown


def test_without_a_short_catalogue_a_report_has_no_rules(
    anonymizer: KAnonymizer, store: str
) -> None:
    report = PrivacyReport.of_runs(anonymizer.published().log(experiment="tests"))
    assert report.data.published_rules is None


def test_damaged_rules_are_named_and_not_quoted(short: Explanations, store: str) -> None:
    run_id = short.log(experiment="tests")
    mlflow.MlflowClient().log_dict(run_id, {"rules": CANARY}, "cfk/short_catalogue.json")
    with pytest.raises(TrackingError, match=r"short_catalogue\.json: it is damaged") as raised:
        PrivacyReport.of_runs(run_id)
    assert CANARY not in str(raised.getrepr(style="long"))
