"""Every figure, check and attack is defined, once, and says what it does not say."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib.resources import files
from typing import get_args

import pytest

from cfk_plugin.audit.epsilon import Attack
from cfk_plugin.audit.linkage import ATTACKS
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.release.explanations import Explanations
from cfk_plugin.report.data import Definition
from cfk_plugin.report.statements import DEFINITIONS, GROUPS

WORD = re.compile(r"\w+")
FIGURES = WORD.findall("""
asked released exact generalised prototypes suppressed suppressed_rate untracked latency native_rate near_native_rate
native_qi_rate near_native_tolerance unique below_k k_min k_median k_p05 k_mean k_desired_min k_desired_median
k_consistent_min k_effective_min k_private_min private_matches_min prosecutor_risk_max prosecutor_risk_mean
journalist_risk_max marketer_risk at_risk_009 at_risk_020 l_min t_max attribute_disclosure_max k_intersection_min
ledger_again ledger_refused pureness_mean pureness_min pureness_low flips ncp_mean ncp_p95 ncp_by_attribute cdm
cdm_per_release cm optimal_rate plausibility group_gap epsilon delta epsilon_spent membership_bound flipping_ratio
refused_k
""")
CHECKS = WORD.findall("""
verification records k_min k_desired_min k_effective_min k_intersection pureness ncp native_leak untracked l_diversity
t_closeness attribute_disclosure attack_linkage attack_membership attack_extraction attack_attribute_inference
attack_epsilon group_gap schema_declared human_inputs dp_guarantee dp_budget
""")
ATTACK_CHECKS = [f"attack_{name}" for name in ATTACKS]
CHARTS = ["class_sizes", "risk", "ncp_by_attribute", "pureness", "frontier", "intersection"]
DIRECTIONS = (
    "no direction",
    "higher is better",
    "lower is better",
    "larger",
    "lower",
    "must",
    "best at 0",
    "pass is best",
)


@pytest.mark.parametrize("name", [*FIGURES, *CHECKS, *CHARTS, *ATTACKS, *ATTACK_CHECKS, *get_args(Attack)])
def test_what_a_report_shows_is_defined(name):
    assert name in DEFINITIONS


def test_every_number_of_a_summary_is_defined():
    summary = Explanations([], policy=PrivacyPolicy(guarantee="nominal"), columns=[]).summary()
    told_elsewhere = {"method", "policy", "reasons", "released_native", "unproven", "k", "guarantee", "examined"}
    assert {name for name in summary if name not in told_elsewhere} <= set(DEFINITIONS)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_field_says_something_in_one_line(name):
    for field in fields(Definition):
        text = getattr(DEFINITIONS[name], field.name)
        assert isinstance(text, str), field.name
        assert len(text) >= 3, field.name
        assert "\n" not in text
        assert text == text.strip()


@pytest.mark.parametrize("name", DEFINITIONS)
def test_it_says_what_it_does_not_say(name):
    found = DEFINITIONS[name]
    assert len(found.does_not_say.split()) >= 3
    assert found.does_not_say.endswith(".")
    assert found.does_not_say.rstrip(".") not in found.formula
    assert found.direction.startswith(DIRECTIONS)


@pytest.mark.parametrize("name", list(GROUPS["Checks"]))
def test_check_says_when_it_passes_and_when_not(name):
    formula = DEFINITIONS[name].formula
    assert formula.startswith("pass: ")
    assert re.search(r"(fail|review): ", formula)
    for status in ("fail", "review"):
        assert (f"{status}: " in formula) <= (status in DEFINITIONS[name].range)


def test_nothing_is_defined_twice():
    text = (files("cfk_plugin.report") / "texts" / "definitions.yaml").read_text("utf-8")
    names = re.findall(r"^  (\w+):", text, re.M)
    assert sorted(names) == sorted(set(names))
    assert set(names) == set(DEFINITIONS)
