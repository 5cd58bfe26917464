"""The nearest of many rows are those that a comparison with all rows finds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.data.codes import Codes
from cfk_plugin.data.schema import Schema
from cfk_plugin.metrics.heom import TIE, Heom
from cfk_plugin.metrics.nearest import NearestRows, heom_parts


def rows_with_gaps(n: int, seed: int = 0) -> pd.DataFrame:
    """Return rows with many ties and gaps, in more blocks than are compared at once."""
    random = np.random.default_rng(seed)
    days = pd.to_timedelta(random.integers(0, 4, n), unit="D")
    return pd.DataFrame(
        {
            "age": random.integers(20, 26, n),
            "city": random.choice(["a", "b", "c", None], n),
            "pay": np.where(random.random(n) < 0.2, np.nan, random.integers(0, 5, n) / 4),
            "rate": random.normal(0, 1, n).round(2),
            "since": pd.Timestamp("2020-01-01") + days,
            "one": 1.5,
        }
    )


def queries_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows, mixed rows, rows beyond the table, and rows with gaps."""
    random = np.random.default_rng(1)
    mixed = pd.DataFrame(
        {name: rows[name].sample(60, random_state=j).array for j, name in enumerate(rows)}
    )
    beyond = mixed.head(20).assign(
        age=random.choice([5, 90, 10**9], 20), city="z", one=random.choice([1.5, np.nan, 7], 20)
    )
    gaps = mixed.head(9).astype(object).where(random.random((9, 6)) < 0.4, None)
    return pd.concat([rows.head(20), mixed, beyond, gaps], ignore_index=True)


@pytest.fixture(scope="module", params=[1, 300, 40_000])
def rows(request: pytest.FixtureRequest) -> pd.DataFrame:
    return rows_with_gaps(request.param).drop_duplicates(ignore_index=True)


@pytest.fixture(scope="module")
def codes(rows: pd.DataFrame) -> Codes:
    return Codes.read(rows, Schema.from_frame(rows, quasi_identifiers=["age"]))


def distances_to_all(rows: pd.DataFrame, queries: pd.DataFrame) -> np.ndarray:
    heom = Heom.fit(rows, numeric=["age", "pay", "rate", "since", "one"])
    return heom.distances(queries, rows)


@pytest.mark.parametrize("not_same", [False, True])
def test_the_nearest_row_is_found(rows: pd.DataFrame, codes: Codes, not_same: bool) -> None:
    queries = queries_of(rows_with_gaps(300))
    expected = distances_to_all(rows, queries)
    if not_same:
        expected[expected <= TIE] = np.inf
    index = NearestRows(*heom_parts(codes, codes.encode(rows)))
    nearest, distances = index.find(*heom_parts(codes, codes.encode(queries)), not_same=not_same)
    np.testing.assert_allclose(distances, expected.min(axis=1), rtol=1e-9)
    is_equally_near = expected <= expected.min(axis=1)[:, None] + TIE
    first = np.where(np.isinf(distances), -1, is_equally_near.argmax(axis=1))
    assert nearest.tolist() == first.tolist()


def test_costs_are_added_to_distances(rows: pd.DataFrame, codes: Codes) -> None:
    queries = queries_of(rows_with_gaps(300))
    costs = np.random.default_rng(2).random(len(rows)) / 10
    expected = distances_to_all(rows, queries) + costs
    index = NearestRows(*heom_parts(codes, codes.encode(rows)), costs)
    nearest, distances = index.find(*heom_parts(codes, codes.encode(queries)))
    np.testing.assert_allclose(distances, expected.min(axis=1), rtol=1e-9)
    assert (nearest == expected.argmin(axis=1)).mean() > 0.9  # far queries have ties


def test_a_row_can_be_left_out(rows: pd.DataFrame, codes: Codes) -> None:
    numbers, categories = heom_parts(codes, codes.encode(rows))
    without = np.arange(min(len(rows), 50))
    nearest, distances = NearestRows(numbers, categories).find(
        numbers[without], categories[without], without=without
    )
    expected = distances_to_all(rows, rows.iloc[without])
    expected[without, without] = np.inf
    assert not (nearest == without).any()
    np.testing.assert_allclose(distances, expected.min(axis=1), rtol=1e-9)
