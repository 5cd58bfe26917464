"""Parts of the catalogue on their own: calls of the model and search limits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from cfk_plugin.protection.catalogue import model_calls
from cfk_plugin.protection.catalogue.entries import SearchLimits


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
