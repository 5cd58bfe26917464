"""Sentences for numbers, sets, dates and missing values."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.data.region import Interval
from cfk_plugin.release.results import Phrase, sentence

END = ", the outcome would be the desired one."


@pytest.mark.parametrize(
    ("part", "value", "text"),
    [
        (Interval(24, 27), 21, "were 3–6 years older"),
        (Interval(24, 27), 30, "were 3–6 years younger"),
        (Interval(24.0, 27.0), np.int64(21), "were 3–6 years older"),
        (Interval(24, 24), 21, "were 3 years older"),
        (Interval(0.3, 0.3), 0.1, "were 0.2 years older"),
        (Interval(24, 27), np.nan, "were 24–27 years of age"),
        (Interval(24, 27, missing=True), 21, "were 24–27 or missing years of age"),
        (Interval(None, None, missing=True), 21, "were missing years of age"),
    ],
)
def test_age(part, value, text):
    assert sentence({"age": part}, {"age": value}) == f"If you {text}{END}"


def test_sets_levels_and_dates():
    parts = {
        "city": frozenset({"Ghent", "Antwerp"}),
        "home_type": frozenset({None}),
        "level": Interval("mid", "high", levels=("mid", "high")),
        "day": Interval(pd.Timestamp("2020-01-01"), pd.Timestamp("2021-01-01")),
    }
    told = sentence(parts, {"city": "Namur", "home_type": "flat", "level": "low", "day": pd.Timestamp("2019-01-01")})
    assert told == (
        "If you had city Antwerp or Ghent, had home type missing, had level mid–high and "
        f"had day 2020-01-01–2021-01-01{END}"
    )


def test_what_fits_is_left_out_in_any_dtype():
    parts = {"zip": frozenset({9000}), "age": Interval(20, 30), "note": frozenset({None})}
    fits = {"zip": "9000", "age": np.float32(25), "note": np.nan}
    assert sentence(parts, fits).startswith("Nothing")


def test_what_is_withheld_is_named_at_the_end():
    told = {"home_type": frozenset({"flat"}), "age": Interval(20, 30)}
    assert sentence(told, {"home_type": "house", "age": 21}, withheld=("net_pay",)) == (
        "If you had home type flat, the outcome would be the desired one (net pay is withheld)."
    )
    fits = sentence(told, {"home_type": "flat", "age": 21}, withheld=("net_pay", "job", "debt"))
    assert fits == (
        "Nothing in these attributes needs to change for the desired outcome (net pay, job and debt are withheld)."
    )


def test_own_phrases():
    phrases = {"pay": Phrase("earned {} more", "earned {} less", "earned {}")}
    assert sentence({"pay": Interval(60, 60)}, {"pay": 50}, phrases) == f"If you earned 10 more{END}"
