"""Uniqueness of private values, by hand and on the published tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tables
from cfk_plugin import Population, Schema
from cfk_plugin.errors import InputError
from cfk_plugin.metrics import AttributeProfile, private_profile

TABLE = pd.DataFrame(
    {
        "person": [0, 1, 2, 3, 4, 4],
        "age": range(6),
        "pay": [1, 1, 2, 3, 9, np.nan],
        "job": ["a", "a", "a", "b", "b", "b"],
    }
)
BINS = {
    "adult": {
        "capital_gain": [0, 1, *range(1000, 9000, 1000), 10_000, 15_000, 20_000, 30_000, 100_000],
        "capital_loss": [0, 1, 1000, 1400, 1600, 1800, 2000, 2200, 2500, 4357],
        "hours_per_week": [1, 10, 20, 30, 35, 40, 41, 45, 50, 55, 60, 70, 80, 100],
    },
    "german": {
        "duration_months": [*range(4, 26, 3), 31, 37, 49, 73],
        "credit_amount": [250, *range(1000, 3500, 500), 4000, 5000, 7000, 10_000, 18_425],
    },
}


def population(table: pd.DataFrame = TABLE, **settings: object) -> Population:
    return Population.from_frame(table, Schema.from_frame(table, quasi_identifiers=["age"], **settings))  # type: ignore[arg-type]


def test_rows_by_hand() -> None:
    profile = private_profile(population(TABLE.drop(columns="person"), bins={"pay": [0, 2, 4]}), k=3)
    assert profile.attributes["pay"] == AttributeProfile(distinct=5, below_k=1.0, unique=4 / 6)
    assert profile.attributes["job"] == AttributeProfile(distinct=2, below_k=0.0, unique=0.0)
    assert profile.unique == 4 / 6
    assert profile.unique_binned == 4 / 6  # [0, 2) a twice; [2, 4] a; [2, 4] b; outside b; missing b
    assert (profile.k, profile.people) == (3, 6)


def test_bins_hide_people() -> None:
    wide = population(TABLE.drop(columns="person"), bins={"pay": [0, 4]})
    assert private_profile(wide).unique_binned == 3 / 6  # one b inside, one outside, one missing
    none = population(TABLE.drop(columns="person"))
    assert private_profile(none).unique_binned == private_profile(none).unique


def test_people_count_once_by_their_rarest_value() -> None:
    profile = private_profile(population(subject="person"), k=2)
    assert profile.attributes["pay"] == AttributeProfile(distinct=5, below_k=3 / 5, unique=3 / 5)
    assert profile.attributes["job"].unique == 0.0
    assert profile.people == 5


def test_without_private_attributes_nobody_is_unique() -> None:
    assert private_profile(population(TABLE[["age"]])).unique == 0.0


def test_k_must_be_positive() -> None:
    with pytest.raises(InputError, match="k must be"):
        private_profile(population(), k=0)


@pytest.mark.parametrize(
    ("name", "unique", "binned"),
    [
        ("german", 1.00, 0.97),
        ("hospital", 0.92, 0.92),
        ("adult", 0.21, 0.15),
        ("cmc", 0.12, 0.12),
        ("informs", 0.01, 0.01),
    ],
)
def test_published_tables(name: str, unique: float, binned: float, shared_data: Path) -> None:
    frame, about = tables.read(name, shared_data)
    frame = frame[about["features"]]
    schema = Schema.from_frame(frame, quasi_identifiers=about["quasi_identifiers"], bins=BINS.get(name))
    profile = private_profile(Population.from_frame(frame, schema))
    assert profile.unique == pytest.approx(unique, abs=0.0051)
    assert profile.unique_binned == pytest.approx(binned, abs=0.0051)
    if name == "german":
        assert profile.attributes["credit_amount"].unique == pytest.approx(0.85, abs=0.005)
