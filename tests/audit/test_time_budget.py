"""Budgets as people write them."""

from __future__ import annotations

import pytest

from cfk_plugin.audit.planning import format_duration, seconds_of
from cfk_plugin.errors import InputError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("1.5h", 5400), (" 2 m ", 120), ("fast", 180), ("FULL", 1800), ("0.5m", 30)],
)
def test_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "0s", "-5m", "5 days", "fastest", "1e3s", "5m30s"])
def test_refused(text: str) -> None:
    with pytest.raises(InputError, match="a budget is a time such as"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.1, "less than a second"),
        (1.2, "1 second"),
        (2, "2 seconds"),
        (89, "89 seconds"),
        (170, "3 minutes"),
        (5400, "1.5 hours"),
    ],
)
def test_a_duration_is_written_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
