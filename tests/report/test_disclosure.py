"""The report is a release, too: what an edition hides cannot be computed from what it shows."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

import reported
from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, PrivacyReport, Schema
from cfk_plugin.report.data import ReportData

pytestmark = pytest.mark.usefixtures("store")
FEW, HIDDEN = "1–10", "hidden"
TEN = PrivacyPolicy(guarantee="reciprocal", k=10)
SHIFTS = {"membership_cfd": 0.0, "membership_loss": 1.0}
FORMS = ("to_json", "to_html", "to_markdown")


def external(table: pd.DataFrame | None = None, **changes: Any) -> PrivacyReport:
    return PrivacyReport.of_runs(reported.run(table, **changes), edition="external")


def said(report: PrivacyReport) -> Iterator[str]:
    """Yield the report in every form, without the data that the page carries for download."""
    for form in FORMS:
        yield re.sub(r"data:[^\"]*", "", getattr(report, form)())


@pytest.mark.parametrize(
    ("k", "band", "risk"),
    [
        (9, "under 10", "above 0.1"),
        (10, "10–19", "at most 0.1"),
        (19, "10–19", "at most 0.1"),
        (20, "20–49", "at most 0.05"),
        (49, "20–49", "at most 0.05"),
        (50, "50 or more", "at most 0.02"),
    ],
)
def test_class_sizes_and_risks_are_banded_outside_and_exact_inside(
    k: int, band: str, risk: str
) -> None:
    run_id = reported.run(reported.rows(policy=TEN, k=k), TEN)
    inside, outside = (
        PrivacyReport.of_runs(run_id, edition=e).data for e in ("internal", "external")
    )  # type: ignore[arg-type]
    assert (inside.metric("k_min").value, inside.metric("prosecutor_risk_max").value) == (k, 1 / k)
    assert (outside.metric("k_min").band, outside.metric("prosecutor_risk_max").band) == (
        band,
        risk,
    )
    assert (outside.metric("k_min").value, outside.metric("cdm").band) == (None, HIDDEN)
    assert "metrics.k_min" in outside.hidden_cells


@pytest.mark.parametrize("edition", ["internal", "external"])
def test_people_are_banded_in_every_edition(edition: Any) -> None:
    bands = {
        0: None,
        7: FEW,
        11: "11–19",
        99: "90–99",
        1_234: "1,000–1,999",
        20_000: "20,000–29,999",
    }
    column = reported.population()["attributes"][0]
    facts = reported.population(
        attributes=[column | {"name": f"a{n}", "distinct": n} for n in bands]
    )
    data = PrivacyReport.of_runs(reported.run(population=facts), edition=edition).data
    assert [attribute["distinct"].band for attribute in data.attributes] == list(bands.values())


@pytest.mark.parametrize(
    ("people", "band"),
    [
        (0, None),
        (7, "1–10 people"),
        (11, None),
        (995, "all but 1–10 people"),
        (1_000, None),
        ("1–10", "1–10 people"),
    ],
)
def test_a_share_of_people_needs_eleven_on_both_sides(people: Any, band: str | None) -> None:
    report = PrivacyReport.of_runs(
        reported.run(population=reported.population(unique=people, below_k=people))
    )
    for amount in (report.data.population["unique"], report.data.metric("below_k")):
        assert (amount.band, amount.n) == (band, None)
    if isinstance(people, int) and band:
        assert not any(
            told in text
            for text in said(report)
            for told in (f"{people / 1_000}", f"{people / 10:g} %")
        )
        assert {"population.unique", "metrics.below_k"} <= set(report.data.hidden_cells)


def possible(shown: dict[str, Any], total: int) -> dict[str, set[int]]:
    """Return every value that each banded cell may have, for who knows the total and the rules."""
    names = [name for name, amount in shown.items() if amount.band]
    left = total - sum(int(amount.value) for amount in shown.values() if amount.band is None)
    few = FEW in [amount.band for amount in shown.values()]  # else a hidden one may be any
    choices = [
        range(1, 11) if shown[name].band == FEW else range(11 if few else 1, left + 1)
        for name in names
    ]
    fitting = [
        combination for combination in itertools.product(*choices) if sum(combination) == left
    ]
    return {
        name: {combination[place] for combination in fitting} for place, name in enumerate(names)
    }


CELLS = [
    (0, 0, 0),
    (0, 0, 1),
    (7, 0, 0),
    (9, 10, 0),
    (1, 1, 0),
    (1, 1, 1),
    (1, 25, 0),
    (7, 25, 25),
    (10, 11, 0),
]
CELLS += [
    (10, 11, 11),
    (1, 7, 25),
    (11, 11, 25),
    (7, 10, 11),
    (9, 10, 10),
    (10, 10, 0),
    (11, 1, 11),
]


@pytest.mark.parametrize("counts", CELLS)
def test_no_small_count_follows_from_the_total(counts: tuple[int, int, int]) -> None:
    names = ("infeasible", "not_desired", "ncp_above_ceiling")
    reasons = [name for name, count in zip(names, counts, strict=True) for _ in range(count)]
    table = reported.rows(60 + len(reasons))
    if reasons:
        table = reported.withheld(table, len(reasons) - 1)
        table.loc[: len(reasons) - 1, "reason"] = reasons
    releases = external(table).data.releases
    shown = {
        name: releases["reasons"][name] for name, count in zip(names, counts, strict=True) if count
    }
    exact = dict(zip(names, counts, strict=True))
    known = releases["withheld"].value
    small = any(0 < count < 11 for count in counts)
    if known is not None:  # beside their sum, a band can tell a count: none is given
        assert all((amount.band == HIDDEN) == small for amount in shown.values())
    else:
        assert all(amount.band == FEW for name, amount in shown.items() if 0 < exact[name] < 11)
    if known is None:  # of the reasons nobody knows the sum; of what was asked for everybody may
        of_all = {
            name: releases[name] for name in ("exact", "generalised", "prototypes", "withheld")
        }  # type: ignore[literal-required]
        assert (releases["withheld"].band, releases["released"].band) == (FEW, HIDDEN)
        shown, known = of_all, None if releases["asked"].band else len(table)
    if known is not None:
        assert all(len(found) > 1 for found in possible(shown, int(known)).values()) or not small


def test_what_few_were_refused_is_hidden_outside_with_its_complement() -> None:
    table = reported.withheld(reported.rows(), 3)
    inside = PrivacyReport.of_runs(reported.run(table)).data
    assert (inside.releases["withheld"].value, inside.releases["released"].value) == (4, 96)
    report = external(table)
    outside = report.data
    assert {outside.releases["withheld"].band, outside.metric("withheld").band} == {FEW}
    assert outside.metric("withheld_rate").band is not None
    assert {metric.amount.n for metric in outside.metrics} == {None}  # 96 were released
    assert not re.search(r"(?<![\d.])96(?![\d.])", report.to_json())
    flips = outside.metric("flips")
    assert (flips.low, flips.high) == (None, None)  # a Wilson interval would tell of how many


def test_of_few_explanations_not_even_their_number_is_told_outside() -> None:
    releases = external(reported.withheld(reported.rows(7), 6)).data.releases
    assert [releases[name].value for name in ("asked", "released", "withheld")] == [None] * 3  # type: ignore[literal-required]
    report = external(reported.rows(7))  # nothing is withheld, which may be told
    releases = report.data.releases
    assert [releases[name].band for name in ("asked", "released", "generalised")] == [
        FEW,
        HIDDEN,
        FEW,
    ]  # type: ignore[literal-required]
    assert releases["withheld"].value == 0
    assert {metric.amount.n for metric in report.data.metrics} == {None}
    assert "1–10 explanations requested" in report.to_html()


def test_of_how_many_explanations_an_attack_was_is_not_told_by_its_rates_outside() -> None:
    """Eight of eight, as 63 to 100 %, name their number; and so does an eighth."""
    found = reported.audit("linkage")
    result = found["results"][0] | {"figures": {"raw_singled_out": 0.125, "released": 8.0}}
    found["results"] = [result]
    for name, value in (("main", 0.875), ("baseline", 0.375)):
        result[name] |= {"value": value, "low": 0.529, "high": 0.978, "n": 8}
    report = external(reported.rows(8), audits=[found])
    (attack,) = report.data.attacks
    assert {rate.band for rate in attack.rates if rate.measured} == {"above 0.083", "at most 0.042"}
    assert {rate.low for rate in attack.rates} == {rate.n for rate in attack.rates} == {None}
    assert {amount.band for amount in attack.figures.values()} == {HIDDEN}
    assert next(check for check in report.data.checks if check.id == "attack_linkage").measured.band
    for text in said(report):
        assert not re.search(r"0\.875|87\.5|37\.5|0\.375|52\.9|97\.8|0\.125|12\.5", text)
    assert "No attack was run" not in report.to_html()
    inside = PrivacyReport.of_runs(reported.run(reported.rows(8), audits=[found])).data.attacks[0]
    assert (inside.main.value, inside.main.low, inside.main.n) == (0.875, 0.529, 8)


def test_outside_no_run_and_no_class_size_is_named(answers: Any) -> None:
    sizes = {"k": 47, "k_desired": 41, "k_effective": 43, "k_intersection": 41}
    run_id = reported.run(reported.rows(200, **sizes))
    report = PrivacyReport.of_runs(run_id, inputs=answers, edition="external")
    assert report.verdict == "pass"
    for text in said(report):
        assert run_id not in text
        # digests, which may begin like any number
        others = re.sub(r"\b[0-9a-f]{64}\b", "", text.replace(report.data.report["id"], ""))
        assert not re.search(r"(?<![\d.])4[137](?![\d.,–])", others)
    data = report.data
    assert (data.runs, data.certificates, {check.evidence for check in data.checks}) == (
        (),
        (),
        {()},
    )
    assert {group.mean.band for group in data.groups if group.metric == "k"} == {"24–59"}
    assert "cfk report" not in report.to_json()


def test_figures_of_attacks_on_few_people_are_nowhere_outside() -> None:
    audit = json.loads(
        reported.membership(SHIFTS, 1_367, **reported.OF_POLICY, subject="protected").to_json()
    )
    run_id = reported.run(audits=[audit])
    inside, outside = (
        PrivacyReport.of_runs(run_id, edition=edition) for edition in ("internal", "external")
    )  # type: ignore[arg-type]
    told = ("tpr_at_0_1", "tpr_at_0_01", "tpr_at_0_001_high")
    exact = {repr(attack.figures[name].value) for attack in inside.data.attacks for name in told}
    exact |= {repr(attack.main.value) for attack in inside.data.attacks}
    assert all(value in inside.to_json() for value in exact)
    for text in said(outside):
        assert not any(value in text for value in exact)
        assert not re.search(r"(?<![\d.])(1,?367|2,?734)(?![\d.])", text)
    figures = {attack.id: attack.figures for attack in outside.data.attacks}["membership_loss"]
    assert (figures["tpr_at_0_01"].band, figures["members"].band) == (HIDDEN, "1,000–1,999")
    assert "attacks.membership_loss.tpr_at_0_01" in outside.data.hidden_cells


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
def test_a_class_of_seven_people_cannot_be_told(edition: Any) -> None:
    """Seven people are in a class of fewer than k, before protection: neither they nor the other
    193 are counted.
    """
    table = pd.DataFrame({"age": [30] * 7 + [40] * 93 + [50] * 100, "salary": range(200)})
    population = Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age"]))
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="reciprocal", k=20)).fit(
        population, lambda rows: rows["salary"] > 5, True
    )
    run_id = anonymizer.transform(table.tail(60)).log(experiment="tests")
    report = PrivacyReport.of_runs(run_id, edition=edition)
    assert report.data.population["below_k"].band == "1–10 people"
    assert set(amounts(json.loads(report.to_json()))).isdisjoint(
        {7, 193, 7 / 200, 193 / 200, 0.035, 0.965}
    )
    assert not any(re.search(r"3\.5 %|0\.035", text) for text in said(report))


# --- what stays unprotected is said, and no more is promised than holds ---

FOR = {
    "lookup": (
        {"inversion", "model filter", "query steering"},
        PrivacyPolicy(k=12, guarantee="lookup"),
    ),
    "reciprocal": ({"model filter", "query steering"}, PrivacyPolicy(guarantee="reciprocal", k=12)),
    "catalogue": (set(), PrivacyPolicy(k=12, guarantee="catalogue")),
}
WORDS = {
    "inversion": "reruns the protection for",
    "model filter": "asks the model",
    "query steering": "many explanations",
}


@pytest.mark.parametrize(("open_to", "policy"), FOR.values(), ids=FOR)
@pytest.mark.parametrize("ledger", ["sqlite", "none", None])
def test_every_attack_that_a_guarantee_does_not_stop_is_named(
    open_to: set[str], policy: PrivacyPolicy, ledger: str | None
) -> None:
    environment = None if ledger is None else {"ledger": ledger}
    data = PrivacyReport.of_runs(reported.run(policy=policy, environment=environment)).data
    text = " ".join(data.limits)
    assert {attack for attack, words in WORDS.items() if words in text} == open_to
    assert ("knows people's outcomes" in text) == (policy.guarantee != "catalogue")
    begins = {
        "sqlite": "The ledger connects",
        "none": "No ledger was kept",
        None: "It is not known whether a ledger",
    }
    assert any(sentence.startswith(begins[ledger]) for sentence in data.limits)
    assert_plain(data)


@pytest.mark.parametrize("private", [None, ["salary"], list("abcdefghijklmno"), []])
def test_private_values_that_are_released_as_they_are_are_named(private: list[str] | None) -> None:
    columns = [("age", "quasi-identifier"), *((name, "other") for name in private or ())]
    column = reported.population()["attributes"][0]
    facts = reported.population(
        attributes=[column | {"name": name, "role": role} for name, role in columns]
    )
    data = PrivacyReport.of_runs(reported.run(population=None if private is None else facts)).data
    text = " ".join((*data.limits, *data.report["not_covered"]))
    assert ("released unchanged" in text) == (private != [])
    assert ("not known which private values" in text) == (private is None)
    assert "(salary)" in text or private != ["salary"]
    assert "l and 3 more)" in text or len(private or ()) < 15
    assert ("rows are counted as people" in text.lower()) == (private is None)
    assert_plain(data)


def assert_plain(data: ReportData) -> None:
    """Assert that what is not covered are three sentences, and limits whole ones, each said
    once.
    """
    assert len(data.report["not_covered"]) == 3
    for sentence in (*data.limits, *data.report["not_covered"]):
        assert re.fullmatch(r"\S[^{\n]*\.", sentence), sentence
    assert len(data.limits) == len(set(data.limits))


def test_techniques_are_said_in_words_of_the_standard() -> None:
    lookup = PrivacyPolicy(k=12, guarantee="lookup")
    (local, groups) = (
        PrivacyReport.of_runs(reported.run(policy=policy)).data.policy["techniques"]
        for policy in (lookup, TEN)
    )
    assert [text.split(":")[0] for text in local] == [
        "record suppression",
        "local generalization",
        "k-anonymity (formal model), for the people who match a region",
    ]
    assert groups[1].startswith("generalization")


@pytest.mark.parametrize(
    ("settings", "attributes"),
    [
        ({}, False),
        ({"rare_values": "withhold"}, True),
        ({"private_values": "bins"}, True),
        ({"alpha": 0.5}, True),
    ],
)
def test_that_single_attributes_are_withheld_is_the_policys_and_not_of_withheld_explanations(
    settings: dict[str, Any], attributes: bool
) -> None:
    policy = PrivacyPolicy(guarantee="reciprocal", k=10, **settings)
    run_id = reported.run(reported.withheld(reported.rows(policy=policy), 20), policy)
    listed = PrivacyReport.of_runs(run_id).data.policy["techniques"]
    assert any(text.startswith("local suppression") for text in listed) == attributes
