"""Where the rows of a population are: here, sealed as cells, or sealed as regions of a catalogue."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Interval, Population, PrivacyPolicy, Region, Schema
from cfk_plugin.errors import InputError, PolicyError, PopulationError
from make_sealed import HERE

TABLE = pd.DataFrame({"age": [20, 20, 30, 40], "town": list("aabb"), "pay": [1, 2, 3, 4]})
SCHEMA = Schema.from_frame(TABLE, quasi_identifiers=["age", "town"], sensitive=["pay"])
NO = InputError("no")


@pytest.fixture
def here() -> Population:
    return Population.from_frame(TABLE, SCHEMA)


@pytest.fixture
def sealed_cells(here: Population, tmp_path: Path) -> Population:
    here.seal(tmp_path / "population.cfk")
    return Population.open(tmp_path / "population.cfk")


@pytest.fixture
def sealed_catalogue() -> Population:
    return Population.open(HERE / "catalogue_plain.cfk")


def test_rows_here_answer_everything(here: Population) -> None:
    here.require_rows(NO)
    here.require_cells(NO)
    with pytest.raises(InputError, match="no"):
        here.require_sealed_catalogue(NO)
    policy = PrivacyPolicy(k=2, guarantee="lookup", l=2, t=0.5)
    here.check_policy(policy, counts_rows_per_call=True, needs_private_values=True)
    assert here.n_rows_here == 4
    assert here.counted_attributes == ("age", "town")
    assert here.columns_here(["pay", "age"]) == ("pay", "age")


def test_rows_to_try_are_the_first_ones_and_a_copy(here: Population) -> None:
    tried = here.rows_to_try(3)
    assert tried is not None
    pd.testing.assert_frame_equal(tried, TABLE.head(3))
    tried["pay"] = 0
    assert here.frame["pay"].tolist() == [1, 2, 3, 4]
    assert len(here.rows_to_try(10)) == 4


def test_sealed_cells_have_counts_and_no_rows(here: Population, sealed_cells: Population) -> None:
    with pytest.raises(InputError, match="no"):
        sealed_cells.require_rows(NO)
    sealed_cells.require_cells(NO)
    with pytest.raises(InputError, match="no"):
        sealed_cells.require_sealed_catalogue(NO)
    assert sealed_cells.n_rows_here is None
    assert sealed_cells.rows_to_try(3) is None
    assert sealed_cells.columns_here(["pay"]) == ()
    assert sealed_cells.counted_attributes == ("age", "town")
    assert sealed_cells.fingerprint == here.fingerprint
    codes, numbers = here.encode(TABLE)
    order = here.keyed_order(codes, numbers)
    assert np.array_equal(here.keyed_numbers(np.arange(4)), order)
    assert np.array_equal(sealed_cells.keyed_order(codes, numbers), order)
    for read in (
        lambda: sealed_cells.frame,
        lambda: sealed_cells.rows(np.arange(1)),
        lambda: sealed_cells.keyed_numbers(np.arange(1)),
    ):
        with pytest.raises(PopulationError, match="a sealed population has no rows"):
            read()


@pytest.mark.parametrize("settings", [{"l": 2}, {"t": 0.5}])
def test_sealed_cells_judge_no_sensitive_values_of_a_region_of_its_own(
    sealed_cells: Population, settings: dict[str, float]
) -> None:
    policy = PrivacyPolicy(k=2, guarantee="reciprocal", **settings)
    sealed_cells.check_policy(policy, counts_rows_per_call=False, needs_private_values=False)
    policy = PrivacyPolicy(k=2, guarantee="lookup", **settings)
    with pytest.raises(PolicyError, match="l and t of a region of its own"):
        sealed_cells.check_policy(policy, counts_rows_per_call=True, needs_private_values=False)


def test_a_sealed_catalogue_does_not_know_where_people_are(sealed_catalogue: Population) -> None:
    sealed_catalogue.require_sealed_catalogue(NO)
    with pytest.raises(InputError, match="no"):
        sealed_catalogue.require_cells(NO)
    assert sealed_catalogue.counted_attributes == ()
    assert sealed_catalogue.n_people > 0
    assert len(sealed_catalogue.smallest_classes()) == 0
    for ask in (
        lambda: sealed_catalogue.risk_profile(5),
        lambda: sealed_catalogue.count(Region({"age": Interval(0, 99)})),
    ):
        with pytest.raises(PopulationError, match="does not say who is where"):
            ask()


@pytest.mark.parametrize("name", ["has_rows", "n_people", "anything"])
def test_a_population_cannot_be_changed(here: Population, name: str) -> None:
    with pytest.raises(AttributeError, match="cannot be changed"):
        setattr(here, name, 1)
