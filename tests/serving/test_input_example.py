"""The input example that is made up: complete, in the declared domain, and nobody's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfk_plugin import Attribute, Population, Schema
from cfk_plugin.serving.log import example_of, refuse_training_rows

BINS = [0.0, 1_000.0, 2_000.0, 4_000.0]
LEVELS = ["low", "mid", "high"]


@st.composite
def populations(draw: st.DrawFn) -> Population:
    n = draw(st.integers(4, 60))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = pd.DataFrame(
        {
            "age": random.integers(20, 20 + draw(st.integers(1, 30)), n),
            "town": random.choice(list("ABC")[: draw(st.integers(1, 3))], n),
            "member": random.choice([True, False], n),
            # drawn from a continuum: a value of it is somebody's
            "pay": random.uniform(0, 4_000, n),
            "education": random.choice(LEVELS, n),
        }
    )
    bounds = (0, 100) if draw(st.booleans()) else None
    schema = Schema.from_frame(
        rows,
        quasi_identifiers=["age", "town"],
        ordinal={"education": LEVELS},
        columns={"pay": Attribute(bins=BINS), "age": Attribute(bounds=bounds)},
    )
    return Population.from_frame(rows, schema)


@settings(max_examples=30)
@given(population=populations(), k=st.integers(2, 6))
def test_an_example_is_complete_nobodys_and_the_same_each_time(
    population: Population, k: int
) -> None:
    example, again = example_of(population, k), example_of(population, k)
    if example is None:
        assert again is None
        return
    pd.testing.assert_frame_equal(example, again)
    assert list(example) == list(population.schema.features)
    assert len(example) == 1
    assert not example.isna().any(axis=None)
    refuse_training_rows(example, population)  # raises for the quasi-identifiers of a person
    assert example["pay"].iat[0] in (500.0, 1_500.0, 3_000.0)
    assert example["education"].iat[0] in LEVELS
    rows = population.frame
    is_equal = (rows["town"] == example["town"].iat[0]) & (rows["age"] == example["age"].iat[0])
    assert not is_equal.any()
    assert (rows["town"] == example["town"].iat[0]).sum() >= k
    if population.schema["age"].bounds is None:
        assert (rows["age"] == example["age"].iat[0]).sum() >= k


@pytest.mark.parametrize("private", ["pay", "illness"])
def test_private_values_that_nothing_declares_give_none(private: str) -> None:
    rows = pd.DataFrame(
        {"age": [30, 30, 31, 31] * 3, "town": list("AABB") * 3, "pay": range(12), "illness": "x"}
    )
    rows = rows[["age", "town", private]]
    population = Population.from_frame(
        rows, Schema.from_frame(rows, quasi_identifiers=["age", "town"])
    )
    assert example_of(population, 2) is None


def test_where_every_combination_is_somebodys_there_is_none() -> None:
    rows = pd.DataFrame({"age": [30, 31] * 6, "town": list("AABB") * 3})
    population = Population.from_frame(
        rows, Schema.from_frame(rows, quasi_identifiers=["age", "town"])
    )
    assert example_of(population, 2) is None


def test_rare_values_of_quasi_identifiers_are_not_shown() -> None:
    rows = pd.DataFrame({"age": [30, 31] * 6, "town": [*"AABBAABBAAB", "rare"]})
    population = Population.from_frame(
        rows, Schema.from_frame(rows, quasi_identifiers=["age", "town"])
    )
    for k in (2, 3):
        example = example_of(population, k)
        assert example is None or example["town"].iat[0] != "rare"
