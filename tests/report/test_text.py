"""Amounts are written in one way everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfk_plugin.report.amounts import NOT_MEASURED, Amount, shown, unit_of


@pytest.mark.parametrize(
    ("amount", "kind", "text"),
    [
        (Amount(value=0.93, low=0.88, high=0.97), "number", "0.93 (0.88–0.97)"),
        (Amount(value=0.93, low=0.88, high=0.97), "share", "93 % (88–97 %)"),
        (Amount(value=0.9304), "number", "0.93"),
        (Amount(value=0.12345), "share", "12.3 %"),
        (Amount(value=1_234_567), "count", "1,234,567"),
        (Amount(value=1_234_567), "number", "1,230,000"),
        (Amount(value=12.5), "count", "12.5"),
        (Amount(value=np.float64(12.0)), "count", "12"),
        (Amount(value=0), "count", "0"),
        (Amount(value=0.0), "share", "0 %"),
        (Amount(value=1.0), "share", "100 %"),
        (Amount(value=0.012345), "seconds", "0.0123 s"),
        (Amount(value=0.0000123), "number", "1.23e-5"),
        (Amount(value=1e-9), "number", "1e-9"),
        (Amount(value=-0.05, low=-0.1, high=0.02), "number", "−0.05 (−0.1 to 0.02)"),
        (Amount(value=12, low=10.0), "count", "12 (at least 10)"),
        (Amount(value=0.4, high=0.5), "number", "0.4 (at most 0.5)"),
        (Amount(value=1.0, low=1.0, high=1.0), "number", "1"),
        (Amount(value=0.999999, low=0.999, high=1.0), "number", "0.999 (0.999–1)"),
        (Amount(band="1–10"), "count", "1–10"),
        (NOT_MEASURED, "share", "not measured"),
        (Amount(value=float("nan")), "number", "not measured"),
        (Amount(value=1.0, low=0.5, high=float("inf")), "number", "1 (0.5–unbounded)"),
    ],
)
def test_an_amount_is_written_as_readers_expect(amount, kind, text):
    assert shown(amount, kind) == text


def test_a_band_wins_over_a_value():
    assert shown(Amount(value=7, band="1–10"), "count") == "1–10"


@pytest.mark.parametrize(("kind", "text"), [("number", "0.999"), ("share", "99.9 %")])
def test_what_is_short_of_all_is_never_written_as_all(kind, text):
    assert shown(Amount(value=0.99999), kind) == text


def test_an_interval_is_rounded_outwards():
    assert shown(Amount(value=0.5, low=0.12345, high=0.98761)) == "0.5 (0.123–0.988)"


@given(st.floats(min_value=0.0, max_value=1.0, exclude_min=True, exclude_max=True))
def test_no_more_than_three_significant_digits(value):
    digits = shown(Amount(value=value)).partition("e")[0].replace(".", "").lstrip("0")
    assert 1 <= len(digits) <= 3


@pytest.mark.parametrize(
    ("name", "kind"),
    [("k_min", "count"), ("native_rate", "share"), ("latency_p95", "seconds"), ("pureness_mean", "number")],
)
def test_the_id_of_a_figure_says_how_it_is_written(name, kind):
    assert unit_of(name) == kind
