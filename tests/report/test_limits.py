"""What stays unprotected, the three criteria, and techniques: true for what was released, and never too much."""

from __future__ import annotations

import itertools

import pytest

from cfk_plugin.data.policy import NOT_STOPPED
from cfk_plugin.release.results import _MODEL
from cfk_plugin.report.statements import DEFINITIONS, criteria, limits, load, not_covered, techniques

PLAIN = {
    "has_ledger": True,
    "raw_private": [],
    "prototypes": False,
    "dp_covers": None,
}
OF_TABLE = {"sensitive_declared": True, "subject_key": True}


def told(**changes):
    return " ".join(limits(**{**PLAIN, **OF_TABLE, "guarantees": {"reciprocal"}, **changes}))


@pytest.mark.parametrize("guarantee", NOT_STOPPED)
def test_every_attack_that_a_guarantee_does_not_stop_is_named(guarantee):
    words = {"inversion": "reruns", "model filter": "asks the model", "query steering": "many explanations"}
    text = told(guarantees={guarantee}, has_ledger=False)
    for attack, word in words.items():
        assert (word in text) == (attack in NOT_STOPPED[guarantee]), attack
    assert "can intersect them" in text


def test_outcomes_are_named_unless_only_eligible_people_count():
    assert "outcomes" in told()
    assert "outcomes" not in told(eligible=True)
    assert "outcomes" not in told(guarantees={"catalogue"})
    assert "outcomes" in told(guarantees={"catalogue", "nominal"})


@pytest.mark.parametrize(("kept", "begins"), [(True, "The ledger connects"), (False, "No ledger"), (None, "It is not")])
def test_ledger(kept, begins):
    sentences = limits(**PLAIN | OF_TABLE | {"has_ledger": kept}, guarantees={"reciprocal"})
    assert any(sentence.startswith(begins) and "ledger" in sentence for sentence in sentences)


def test_names_of_raw_private_values_and_not_too_many():
    assert "(salary, debt)" in told(raw_private=["salary", "debt"])
    assert "l and 3 more)" in told(raw_private=list("abcdefghijklmno"))
    assert "released as they are" not in told(raw_private=[])
    assert "not known which private values" in told(raw_private=None)


def test_prototypes_alone_have_no_k():
    text = told(guarantees={"pure"}, prototypes=True, dp_covers=_MODEL["private"])
    assert _MODEL["private"] in text
    assert "k people" not in text
    assert "quasi-identifier" not in text
    assert "guaranteed" not in text
    assert "Nothing is guaranteed" in told(guarantees={"none"}, prototypes=True, dp_covers=None)


@pytest.mark.parametrize(
    "guarantees", [{"nominal"}, {"reciprocal"}, {"catalogue"}, {"pure"}, {"reciprocal", "pure"}, set()]
)
def test_three_sentences_in_every_case(guarantees):
    for ledger, raw, prototypes, covers, eligible in itertools.product(
        (True, False, None), ([], ["salary"], None), (True, False), (_MODEL["dp"], None), (True, False)
    ):
        given = {"has_ledger": ledger, "raw_private": raw, "prototypes": prototypes, "dp_covers": covers}
        sentences = [
            *not_covered(guarantees=guarantees, eligible=eligible, **given),
            *limits(guarantees=guarantees, eligible=eligible, **given, **OF_TABLE),
        ]
        assert len(not_covered(guarantees=guarantees, eligible=eligible, **given)) == 3
        assert all(s.endswith(".") and s[:1] != " " and "{" not in s and "\n" not in s for s in sentences)
        assert len(sentences[3:]) == len(set(sentences[3:]))


def test_every_sentence_is_said_somewhere():
    given = itertools.product(
        [{"nominal"}, {"reciprocal"}, {"catalogue"}, {"none"}],
        (True, False, None),
        ([], ["salary"], None),
        ((True, "x"), (True, None), (False, None)),
        (True, False),
        (True, False, None),
        (True, False),
    )
    said = set()
    for guarantees, ledger, raw, (prototypes, covers), sensitive, key, eligible in given:
        shared = {"guarantees": guarantees, "has_ledger": ledger, "raw_private": raw, "eligible": eligible}
        shared |= {"prototypes": prototypes, "dp_covers": covers}
        said.update(not_covered(**shared), limits(**shared, sensitive_declared=sensitive, subject_key=key))
    filled = {text.replace("{names}", "salary").replace("{covers}", "x") for text in load("limits").values()}
    assert said == filled


ALL_PASS = dict.fromkeys(DEFINITIONS, "pass")
K_ALONE = dict.fromkeys(
    ["k_min", "k_desired_min", "k_effective_min", "k_intersection", "l_diversity", "native_leak"], "pass"
)


def status_of(statuses, **settings):
    return {row["criterion"]: row["status"] for row in criteria(statuses, **{"raw_private": [], **settings})}


def test_k_alone_passes_neither_linkability_nor_inference():
    found = status_of(K_ALONE)
    assert found["linkability"] != "pass"
    assert found["inference"] != "pass"


def test_everything_measured_and_passed():
    assert set(status_of(ALL_PASS).values()) == {"pass"}
    assert set(status_of(ALL_PASS, regions=False, prototypes=True).values()) == {"pass"}


@pytest.mark.parametrize("raw", [["salary"], None])
def test_raw_private_values_need_a_judgement(raw):
    assert status_of(ALL_PASS, raw_private=raw) == {
        "singling out": "review",
        "linkability": "pass",
        "inference": "review",
    }
    assert "judge" in criteria(ALL_PASS, raw_private=raw)[0]["text"]


@pytest.mark.parametrize("prototypes", [True, False])
def test_without_one_of_its_checks_no_criterion_passes(prototypes):
    settings = {"regions": not prototypes, "prototypes": prototypes}
    for row in criteria(ALL_PASS, raw_private=[], **settings):
        for check in row["evidence"].split(", "):
            assert check in DEFINITIONS
            assert status_of(ALL_PASS | {check: "not_measured"}, **settings)[row["criterion"]] == "review"
            assert status_of(ALL_PASS | {check: "fail"}, **settings)[row["criterion"]] == "fail"


def test_attacks_that_were_run_count_and_others_are_not_asked_for():
    needed = [name for name in ALL_PASS if name not in {"attack_steering", "l_diversity", "attack_intersection"}]
    assert set(status_of(dict.fromkeys(needed, "pass")).values()) == {"pass"}
    assert status_of(ALL_PASS | {"attack_steering": "fail"})["singling out"] == "fail"


def test_nothing_measured_is_no_pass():
    assert set(status_of({}).values()) == {"not_measured"}
    assert set(status_of({}, regions=False).values()) == {"not_measured"}
    assert status_of({}, raw_private=["salary"])["singling out"] == "not_measured"


def test_techniques_in_words_of_the_standard():
    assert [text.split(":")[0] for text in techniques({"exact"}, {"nominal"})] == [
        "record suppression",
        "local generalization",
        "k-anonymity (formal model), for the people who fit a region",
    ]
    prototypes = techniques({"dp"}, {"pure"})
    assert "differential privacy (formal model), server model" in prototypes
    assert not any("generalization" in text or "k-anonymity" in text for text in prototypes)
    assert not any("formal model" in text for text in techniques({"dpc"}, {"none"}))
    assert any(text.startswith("local suppression") for text in techniques({"x"}, {"reciprocal"}, withheld=True))
