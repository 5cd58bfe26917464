"""Thresholds: one k per preset, a source for each, and people before all."""

from __future__ import annotations

import pytest

from cfk_plugin.data.policy import PRESETS as POLICIES
from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.errors import InputError
from cfk_plugin.report.inputs import HOUSE, PRESETS, THRESHOLDS, HumanInputs, thresholds
from cfk_plugin.report.statements import load


def test_presets_are_those_of_the_policy_and_each_has_a_source():
    assert set(PRESETS) == set(POLICIES) == set(load("presets"))
    for name, preset in PRESETS.items():
        assert preset.k == PrivacyPolicy.preset(name).k
        assert 1 / preset.k <= preset.risk
        assert len(preset.source) > 10
        assert preset.status


def test_ema_asks_for_the_least_k_that_its_risk_allows():
    preset = PRESETS["ema-0070"]
    assert 1 / preset.k <= preset.risk < 1 / (preset.k - 1)


def test_a_preset_asks_for_k_and_risk_and_sets_no_floor():
    asked = thresholds("ema-0070", HumanInputs())
    assert (asked["k"].value, asked["risk"].value) == (12, 0.09)
    assert asked["risk"].source.startswith("ema-0070: European Medicines Agency")
    assert asked["pureness"].value is None
    assert (asked["group_gap"].value, asked["attack_over_control"].value) == (0.1, 0.05)
    assert asked["group_gap"].source == asked["attack_over_control"].source == HOUSE
    assert thresholds("cms-11", HumanInputs())["risk"].source == "cms-11: 1 / k"


def test_people_come_before_preset_and_house():
    chosen = {"k": 15, "pureness": 0.9, "group_gap": 0.2}
    asked = thresholds("cms-11", HumanInputs(thresholds=chosen))
    assert {name: asked[name].value for name in chosen} == chosen
    assert {asked[name].source for name in chosen} == {"inputs.yaml"}
    assert asked["risk"].value == 1 / 15
    assert asked["attack_over_control"].source == HOUSE


def test_without_a_preset_k_is_asked_by_policies_alone():
    assert thresholds(None, HumanInputs())["k"].value is None
    assert thresholds(None, HumanInputs(thresholds={"k": 5}))["risk"].value == 0.2


def test_every_threshold_has_an_entry():
    assert set(thresholds(None, HumanInputs())) == {*THRESHOLDS, "risk"}


def test_a_preset_is_not_weakened():
    with pytest.raises(InputError, match=r"thresholds\.k is below that of the preset ema-0070"):
        thresholds("ema-0070", HumanInputs(thresholds={"k": 11}))


def test_unknown_preset():
    with pytest.raises(InputError, match="known: paper, cms-11, ema-0070, k20"):
        thresholds("gdpr", HumanInputs())
