"""What a policy means without further settings."""

from __future__ import annotations

import pytest

from cfk_plugin import PrivacyPolicy


@pytest.mark.parametrize(
    ("guarantee", "least", "margin"), [("lookup", 0.0, 0.0), ("catalogue", 0.5, "auto")]
)
def test_guarantee_decides_defaults(guarantee: str, least: float, margin: float | str) -> None:
    """Only answers of a catalogue are true of most of their region, and with a margin."""
    policy = PrivacyPolicy(guarantee=guarantee)
    assert policy.least_pureness == least
    assert policy.margin == margin
    assert policy.counts_eligible == (guarantee == "catalogue")
