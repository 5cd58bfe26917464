"""Distances from records to regions, against plain loops over values."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Interval, Population, Region, Schema
from cfk_plugin.data.intake import take_in
from cfk_plugin.errors import PopulationError
from cfk_plugin.protection.partition import NearestCells, RegionDistance

LEVELS = ["low", "mid", "high"]
CITIES = list("ABCDE")
TREE = {city: ["north" if city < "C" else "south"] for city in CITIES}
QUASI = ["age", "height", "born", "rank", "city", "town", "flag", "same"]


def table(rng: np.random.Generator, n: int, *, gaps: bool) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "height": rng.normal(1.7, 0.1, n).round(2),
            "born": pd.Timestamp("1980-01-01") + pd.to_timedelta(rng.integers(0, 9_000, n), unit="D"),
            "rank": rng.choice(LEVELS, n).astype(object),
            "city": rng.choice(CITIES, n).astype(object),
            "town": rng.choice(CITIES, n).astype(object),
            "flag": rng.random(n) < 0.5,
            "same": 7.0,
            "pay": rng.integers(0, 9, n),
        }
    )
    if gaps:
        for name in ("height", "born", "rank", "city", "town"):
            frame.loc[frame.index[1:][rng.random(n - 1) < 0.2], name] = None
    return frame


def described(frame: pd.DataFrame) -> Population:
    schema = Schema.from_frame(frame, quasi_identifiers=QUASI, ordinal={"rank": LEVELS}, hierarchies={"town": TREE})
    return Population.from_frame(frame, schema)


def some_part(rng: np.random.Generator, column: pd.Series, name: str) -> Any:
    missing = bool(column.isna().any() and rng.random() < 0.5)
    present = column.dropna()
    if missing and rng.random() < 0.3:
        return (
            Interval(None, None, missing=True, levels=() if name == "rank" else None)
            if _is_range(name)
            else frozenset({None})
        )
    if name == "rank":
        low, high = sorted(rng.integers(0, 3, 2).tolist())
        return Interval(LEVELS[low], LEVELS[high], missing, tuple(LEVELS[low : high + 1]))
    if _is_range(name):
        low, high = sorted(
            rng.choice(present.to_numpy(), 2).tolist() if name != "born" else present.sample(2, random_state=3)
        )
        return Interval(low, high, missing)
    values = {value for value in present.unique().tolist() if rng.random() < 0.5} or {present.iloc[0]}
    return frozenset([*values, None] if missing else values)


def _is_range(name: str) -> bool:
    return name in ("age", "height", "born", "rank", "same")


def plain_distance(row: dict[str, Any], region: Region, train: pd.DataFrame) -> float:
    """Sum over quasi-identifiers, value by value: what is outside of the range, or 0 and 1."""
    total = 0.0
    for name, part in region.items():
        value = row[name]
        if pd.isna(value):
            holds = part.missing if isinstance(part, Interval) else None in part
            total += 0 if holds else 1
        elif isinstance(part, Interval) and part.levels is None:
            width = train[name].max() - train[name].min()
            if part.low is None:
                total += 1
            elif part.low <= value <= part.high or not width:
                total += 0
            else:
                outside = part.low - value if value < part.low else value - part.high
                total += outside / width
        elif isinstance(part, Interval):
            total += 0 if value in (part.levels or ()) else 1
        else:
            total += 0 if value in part else 1
    return total


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_equals_a_plain_loop(seed: int, gaps: bool) -> None:
    rng = np.random.default_rng(seed)
    train = table(rng, 50, gaps=gaps)
    population = described(train)
    asked = pd.concat([train.head(20), table(rng, 20, gaps=False)], ignore_index=True)
    asked.loc[20:, "age"] += rng.integers(-90, 90, 20)  # some off the range of the population
    asked.loc[20:, "height"] += rng.normal(0, 1, 20)
    asked["same"] = [*asked["same"][:30], *rng.normal(7, 2, 10)]
    regions = [Region({name: some_part(rng, train[name], name) for name in QUASI}) for _ in range(7)]
    distance = RegionDistance(population, regions)
    found = distance.between(*take_in(asked, population.encoder).quasi_identifiers, np.arange(len(regions)))
    wanted = [[plain_distance(row, region, train) for region in regions] for row in asked.to_dict("records")]
    np.testing.assert_allclose(found, wanted, atol=1e-9)
    some = np.array([5, 2])
    part = distance.between(*take_in(asked, population.encoder).quasi_identifiers, some)
    np.testing.assert_array_equal(part, found[:, some])


def plain_apart(row: dict[str, Any], other: dict[str, Any], train: pd.DataFrame) -> float:
    """Sum over quasi-identifiers of the distance between two records."""
    total = 0.0
    for name in QUASI:
        a, b = row[name], other[name]
        if pd.isna(a) or pd.isna(b):
            total += float(pd.isna(a) != pd.isna(b))
        elif name in ("age", "height", "born", "same"):
            width = train[name].max() - train[name].min()
            total += abs(a - b) / width if width else 0
        else:
            total += float(a != b)
    return total


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_nearest_cell_equals_a_plain_loop(seed: int, gaps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    train = table(rng, 40, gaps=gaps)
    population = described(train)
    asked = pd.concat([train.head(10), table(rng, 20, gaps=gaps)], ignore_index=True)
    asked.loc[10:, "age"] += rng.integers(-90, 90, 20)
    codes, numbers = take_in(asked, population.encoder).quasi_identifiers
    found = NearestCells(population, population.cells).find(codes, numbers)
    first = [population.cell_of(np.arange(40)).tolist().index(cell) for cell in range(len(population.cells))]
    others = train.iloc[first].to_dict("records")
    for row, cell in zip(asked.to_dict("records"), found, strict=True):
        distances = [plain_apart(row, other, train) for other in others]
        assert distances[cell] == pytest.approx(min(distances))
        assert cell == next(i for i, d in enumerate(distances) if d <= min(distances) + 1e-9)
    monkeypatch.setattr("cfk_plugin.metrics.heom._BLOCK", 20)
    assert NearestCells(population, population.cells).find(codes, numbers).tolist() == found.tolist()


def test_inside_is_zero_and_in_range_is_at_most_one_per_attribute() -> None:
    rng = np.random.default_rng(1)
    train = table(rng, 60, gaps=True)
    population = described(train)
    regions = [Region({name: some_part(rng, train[name], name) for name in QUASI}) for _ in range(12)]
    found = RegionDistance(population, regions).between(
        *take_in(train, population.encoder).quasi_identifiers, np.arange(12)
    )
    for j, region in enumerate(regions):
        inside = [region.contains(row) for row in train.to_dict("records")]
        np.testing.assert_array_equal(found[:, j] == 0, inside)
    assert found.max() <= len(QUASI)


def test_refuses_pickle_and_shows_no_value() -> None:
    train = table(np.random.default_rng(0), 10, gaps=False)
    population = described(train)
    distance = RegionDistance(
        population, [Region({name: some_part(np.random.default_rng(0), train[name], name) for name in QUASI})]
    )
    assert repr(distance) == "RegionDistance(1 regions)"
    with pytest.raises(PopulationError, match="pickle"):
        pickle.dumps(distance)
