"""What is released, and what is asked of the model, is as it was recorded."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from cfk_plugin import DPPrototypes, KAnonymizer, PrivacyPolicy, protect
from frozen_records import RECORDS, differences, file_of, read
from frozen_settings import ANONYMIZER, POLICY, PROTECT, PROTOTYPES, SETTINGS

pytestmark = [
    pytest.mark.full_search,  # the search for groups is not shortened, as it is in other tests
    pytest.mark.filterwarnings("ignore::cfk_plugin.errors.PrivacyLeakWarning"),
]

HOW_TO_RECORD = "if this is intended, run: python tests/frozen/regenerate.py"
GIVEN_TO_PROTECT = {"explainer", "model", "population", "desired", "method"}


@pytest.mark.parametrize("setting", SETTINGS)
def test_releases_are_as_recorded(setting: str) -> None:
    messages = differences(read(file_of(setting)), SETTINGS[setting]())
    assert not messages, "\n".join([f"{setting}: {messages[0]}", *messages[1:6], HOW_TO_RECORD])


def test_every_stored_file_belongs_to_a_setting() -> None:
    settings = [*SETTINGS, "spark"]
    assert {path.name for path in RECORDS.iterdir()} == {file_of(name).name for name in settings}


def test_settings_spell_out_every_option() -> None:
    assert {field.name for field in dataclasses.fields(PrivacyPolicy)} == {*POLICY}
    assert {*inspect.signature(KAnonymizer).parameters} == {*ANONYMIZER, "policy"}
    assert {*inspect.signature(protect).parameters} == {*PROTECT, *GIVEN_TO_PROTECT}
    parameters = inspect.signature(DPPrototypes).parameters
    assert {*parameters} == {*PROTOTYPES}
