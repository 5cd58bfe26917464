"""The explanations of the product's defaults, and the calls of the model, are as recorded."""

from __future__ import annotations

import pytest

from default_settings import RECORDS, SETTINGS
from frozen_records import differences, file_of

pytestmark = pytest.mark.filterwarnings("ignore::cfk_plugin.errors.PrivacyLeakWarning")

HOW_TO_RECORD = "if this is intended, run: python tests/frozen/regenerate_defaults.py"


@pytest.mark.parametrize("setting", SETTINGS)
def test_explanations_match_their_records(setting: str) -> None:
    """A difference is shown, with the command that records it."""
    messages = differences(file_of(setting, RECORDS), SETTINGS[setting]())
    assert not messages, "\n".join([setting, *messages[:3], HOW_TO_RECORD])
