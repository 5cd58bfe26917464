"""What stays unprotected is said, and no more is promised than holds."""

from __future__ import annotations

import re

import pytest

import reported
from cfk_plugin import PrivacyPolicy, PrivacyReport
from cfk_plugin.report.data import ReportData

pytestmark = pytest.mark.usefixtures("store")
FOR = {
    "lookup": (
        {"inversion", "model filter", "query steering"},
        PrivacyPolicy(k=12, guarantee="lookup"),
    ),
    "catalogue": (set(), PrivacyPolicy(k=12, guarantee="catalogue")),
}
WORDS = {
    "inversion": "reruns the protection for",
    "model filter": "asks the model",
    "query steering": "many explanations",
}


@pytest.mark.parametrize(("open_to", "policy"), FOR.values(), ids=FOR)
def test_every_attack_that_a_guarantee_does_not_stop_is_named(
    open_to: set[str], policy: PrivacyPolicy
) -> None:
    data = PrivacyReport.of_runs(reported.run(policy=policy)).data
    text = " ".join(data.limits)
    assert {attack for attack, words in WORDS.items() if words in text} == open_to
    assert ("knows people's outcomes" in text) == (policy.guarantee != "catalogue")
    assert any(sentence.startswith("Every fit is a release") for sentence in data.limits)
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
        for policy in (lookup, PrivacyPolicy(k=10))
    )
    assert [text.split(":")[0] for text in local] == [
        "record suppression",
        "local generalization",
        "k-anonymity (formal model), for the people who match a region",
    ]
    assert groups[1].startswith("generalization")
