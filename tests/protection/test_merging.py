"""Merging groups: the loss of a hull is the NCP of its region, and the cheapest partner is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Population, Schema
from cfk_plugin.metrics import ncp
from cfk_plugin.protection.axes import index_of, region_of
from cfk_plugin.protection.groups import GroupHulls

LEVELS = ["low", "mid", "high", "top"]
CITIES = list("ABCDEF")
DEEP = {
    "A": ["left", "low"],
    "B": ["left", "low"],
    "C": ["right", "low"],
    "D": ["up", "high"],
    "E": ["up", "high"],
    "F": ["down", "high"],
}


def population_of(rng: np.random.Generator, n: int, *, gaps: bool) -> Population:
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 60, n),
            "height": rng.normal(1.7, 0.1, n).round(2),
            "rank": rng.choice(LEVELS[: int(rng.integers(2, 5))], n).astype(object),
            "city": rng.choice(CITIES, n).astype(object),
            "town": rng.choice(CITIES, n).astype(object),
            "free": rng.integers(0, 5, n),
            "same": 1,
            "pay": 0,
        }
    )
    if gaps:
        for name in ("height", "rank", "city", "town"):
            frame.loc[frame.index[1:][rng.random(n - 1) < 0.3], name] = None
    quasi = ["age", "height", "rank", "city", "town", "free", "same"]
    weights = {"age": 2.0, "height": 1.0, "rank": 0.5, "city": 1.5, "town": 1.0, "free": 0.0, "same": 1.0}
    schema = Schema.from_frame(
        frame, quasi_identifiers=quasi, ordinal={"rank": LEVELS}, hierarchies={"town": DEEP}, weights=weights
    )
    return Population.from_frame(frame, schema)


def loss_of(population: Population, cells: list[int]) -> float:
    codes = population.cells[np.array(cells)]
    return ncp(region_of(population, codes), population)


class Recorded(GroupHulls):
    """Keeps who was merged with whom."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.merged: list[tuple[int, int]] = []

    def _merge(self, group: int, partner: int) -> None:
        self.merged.append((group, partner))
        super()._merge(group, partner)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_losses_are_the_ncp_of_the_hulls_region(seed: int, gaps: bool) -> None:
    rng = np.random.default_rng(seed)
    population = population_of(rng, 40, gaps=gaps)
    line = rng.permutation(len(population.cells))
    groups = np.array_split(line, 9)
    hulls = GroupHulls(index_of(population).axes, population.cells, groups, np.ones(9, dtype=np.int64))
    own = hulls._losses(np.arange(9), None)
    np.testing.assert_allclose(own, [loss_of(population, list(g)) for g in groups], atol=1e-9)
    for joined in range(9):
        both = hulls._losses(np.arange(9), joined)
        wanted = [loss_of(population, [*groups[g], *groups[joined]]) for g in range(9)]
        np.testing.assert_allclose(both, wanted, atol=1e-9)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_each_merge_takes_the_partner_that_adds_least_loss_to_people(seed: int, gaps: bool) -> None:
    rng = np.random.default_rng(seed)
    population = population_of(rng, 30, gaps=gaps)
    groups = np.array_split(rng.permutation(len(population.cells)), 8)
    people = rng.integers(1, 6, 8)
    sides = rng.integers(0, 2, 8)
    hulls = Recorded(index_of(population).axes, population.cells, groups, people)
    hulls.merge_while(lambda parts: people[parts].sum() < 7, sides)

    cells, size = {g: list(groups[g]) for g in range(8)}, dict(enumerate(people.tolist()))
    for group, partner in hulls.merged:
        assert sides[group] == sides[partner]
        assert size[group] < 7

        def added(other: int, group: int = group) -> float:
            joint = loss_of(population, cells[group] + cells[other]) * (size[group] + size[other])
            apart = loss_of(population, cells[group]) * size[group] + loss_of(population, cells[other]) * size[other]
            return float(joint - apart)

        others = [other for other in cells if other != group and sides[other] == sides[group]]
        assert added(partner) <= min(added(other) for other in others) + 1e-9
        cells[group] += cells.pop(partner)
        size[group] += size.pop(partner)
    assert sorted(cells) == sorted(set(hulls.into.tolist()))
    for group in cells:
        assert size[group] == people[hulls.into == group].sum()
        alone_on_its_side = sum(sides[other] == sides[group] for other in cells) == 1
        assert size[group] >= 7 or alone_on_its_side


def test_nothing_is_merged_where_everything_is_fit() -> None:
    population = population_of(np.random.default_rng(0), 20, gaps=False)
    groups = np.array_split(np.arange(len(population.cells)), 4)
    hulls = GroupHulls(index_of(population).axes, population.cells, groups, np.full(4, 5))
    hulls.merge_while(lambda parts: False, np.zeros(4, dtype=np.int64))
    assert hulls.into.tolist() == [0, 1, 2, 3]


def test_neighbours_on_a_line_are_merged() -> None:
    frame = pd.DataFrame({"age": [0, 1, 10, 11, 12, 30], "pay": 0})
    population = Population.from_frame(frame, Schema.from_frame(frame, quasi_identifiers=["age"]))
    groups = [np.array([i]) for i in range(6)]
    hulls = GroupHulls(index_of(population).axes, population.cells, groups, np.ones(6, dtype=np.int64))
    hulls.merge_while(lambda parts: len(parts) < 2, np.zeros(6, dtype=np.int64))
    into = hulls.into.tolist()
    assert into[0] == into[1]
    assert into[2] == into[3]
    assert into[4] in (into[2], into[5])
    assert len(set(into)) <= 3
