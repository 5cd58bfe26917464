"""Parts of the catalogue on their own: calls of the model, search limits, what is released."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Interval, Population, Schema
from cfk_plugin.metrics.uniqueness import Coarse
from cfk_plugin.protection.catalogue import model_calls
from cfk_plugin.protection.catalogue.entries import SearchLimits
from cfk_plugin.protection.catalogue.private_values import encode_private
from cfk_plugin.protection.catalogue.released_values import ReleasedValues

BIN = Interval(0, 20), None
WITHHELD = None, None


@pytest.mark.parametrize(
    ("n_rows", "calls"),
    [
        ([], []),
        ([4, 4], [[0, 1]]),
        ([4, 7], [[0], [1]]),
        ([25], [[0]]),  # a job is not divided
        ([5, 5, 5, 5], [[0, 1], [2, 3]]),
    ],
)
def test_calls_of_divides_jobs_in_their_order(
    n_rows: Sequence[int], calls: Sequence[Sequence[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_calls, "ROWS_PER_CALL", 10)
    divided = model_calls.calls_of(np.array(n_rows, dtype=np.int64))
    assert [call.tolist() for call in divided] == calls


def test_search_limits_allow_more_rows_for_a_larger_table() -> None:
    limits = SearchLimits()
    assert limits.n_rows(0) == limits.least_rows
    assert limits.n_rows(10**6) == 10**7


@pytest.mark.parametrize(("n_rows", "n_combinations"), [(0, 45), (1_200, 50), (10**6, 64)])
def test_search_limits_divide_half_of_the_rows_among_groups(
    n_rows: int, n_combinations: int
) -> None:
    assert SearchLimits().n_combinations(n_rows, n_members=100, n_groups=10) == n_combinations


def released(private: pd.DataFrame, forms: Sequence[Coarse]) -> ReleasedValues:
    rows = pd.DataFrame({"age": [30, 40], "pay": [5.0, 15.0], "job": ["a", "b"]})
    schema = Schema.from_frame(rows, quasi_identifiers=["age"], bins={"pay": [0, 20, 40]})
    population = Population.from_frame(rows, schema)
    return ReleasedValues(population, encode_private(population, private), forms)


def test_codes_are_equal_where_the_same_is_released() -> None:
    private = pd.DataFrame({"pay": [5.0, 15.0, 15.0, 30.0], "job": ["a", "a", "b", "b"]})
    forms: list[Coarse] = [{"pay": BIN}, {"pay": BIN}, {"pay": BIN, "job": WITHHELD}, {}]
    job, pay = released(private, forms).codes.T
    assert pay[0] == pay[1] == pay[2] != pay[3]
    assert job[0] == job[1]
    assert len({*job[1:].tolist()}) == 3  # "a", nothing and "b"


def test_numbers_that_no_row_has_are_told_apart() -> None:
    private = pd.DataFrame({"pay": [7.0, 8.0, 7.0], "job": ["a", "a", "a"]})
    values = released(private, [])
    codes = values.codes.tolist()
    assert codes[0] == codes[2] != codes[1]
    assert len(values.patterns) == 1
