"""Regions: arrays against `Region` objects, and coordinates in which NCP is a sum."""

from __future__ import annotations

import math
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Attribute, Hierarchy, Interval, Population, Region, Schema
from cfk_plugin.data.codes import MISSING, Codes, Floats, Ints
from cfk_plugin.metrics.information import ncp
from cfk_plugin.protection.regions import Regions, Space, box_ncp

TREE = Hierarchy.of(
    {
        "1000": ["Brussels", "Centre"],
        "1500": ["Halle", "Centre"],
        "1600": ["Halle", "Centre"],
        "8000": ["Bruges", "West"],
        "8400": ["Ostend", "West"],
        "8500": ["Kortrijk", "West"],
        "8501": ["Kortrijk", "West"],
    }
)
GRADES = ("low", "mid", "high", "top")


def declared(weights: dict[str, float] | None) -> dict[str, Attribute]:
    """Return the settings of columns: weights, and the hierarchy of one column."""
    columns = {name: Attribute(weight=weight) for name, weight in (weights or {}).items()}
    return columns | {"zip": Attribute(hierarchy=TREE, weight=(weights or {}).get("zip"))}


class World:
    """A population with every kind of quasi-identifier, and random groups of its rows."""

    def __init__(self, *, has_gaps: bool, weights: dict[str, float] | None = None) -> None:
        self.random = np.random.default_rng(len(weights or {}) + has_gaps)
        n = 90
        frame = pd.DataFrame(
            {
                "age": self.random.integers(18, 28, n),
                "born": pd.Timestamp("1990-05-01")
                + pd.to_timedelta(self.random.integers(0, 7, n), unit="D"),
                "constant": np.full(n, 7.5),
                "grade": self.random.choice(GRADES[:3], n),
                "town": self.random.choice(list("ABCDE"), n),
                "zip": self.random.choice(TREE.leaves[:-1], n),
                "illness": self.random.choice(["none", "flu"], n),
            }
        )
        if has_gaps:
            for name in ("age", "born", "constant", "grade", "town", "zip"):
                is_gap = self.random.random(n) < 0.1
                frame[name] = frame[name].mask(is_gap)
        self.frame = frame
        schema = Schema.from_frame(
            frame,
            quasi_identifiers=list(frame.columns[:-1]),
            sensitive=["illness"],
            ordinal={"grade": GRADES},
            columns=declared(weights),
        )
        self.population = Population.from_frame(frame, schema)
        self.codes = Codes.read(frame, schema)
        self.rows = self.codes.encode(frame)

    def values(self, name: str) -> list[Any]:
        """Return the distinct values of a column, also those that only the schema has."""
        present = self.frame[name].unique().tolist()
        declared = {"grade": GRADES, "zip": TREE.leaves}.get(name, ())
        return present + [value for value in declared if value not in present]

    def groups(self, n_groups: int = 40, n_people: int = 3) -> tuple[Floats, Ints]:
        """Return rows of groups, and the group of each row; the last groups have one person."""
        group = np.repeat(np.arange(n_groups), n_people)
        person = self.random.integers(0, len(self.rows), len(group))
        is_last = group >= n_groups - 5
        person[is_last] = group[is_last]
        return self.rows[person], group


WEIGHTS = {"age": 3, "born": 1, "constant": 1, "grade": 2, "town": 0.5, "zip": 4}
ONE_WEIGHT = {name: int(name == "born") for name in WEIGHTS}


@pytest.fixture(params=[None, WEIGHTS, ONE_WEIGHT], ids=["equal", "weights", "one"], scope="module")
def world(request: pytest.FixtureRequest) -> World:
    return World(has_gaps=request.param is not None, weights=request.param)


@pytest.fixture(scope="module")
def regions(world: World) -> Regions:
    rows, group = world.groups()
    return Regions.of_groups(world.codes, rows, group)


def test_ncp_equals_the_metric(world: World, regions: Regions) -> None:
    """NCP is that of the released region, with hierarchies, weights and missing values."""
    expected = [ncp(regions.region(i), world.population) for i in range(len(regions))]
    np.testing.assert_allclose(regions.ncp, expected, atol=1e-12)
    assert len(set(regions.ncp.tolist())) > 5


def test_contains_equals_the_region(world: World, regions: Regions) -> None:
    """The same people are inside the arrays and the released regions."""
    inside = regions.contains_by_region(world.rows)
    people = world.frame.to_dict(orient="records")
    for i in range(0, len(regions), 3):
        region = regions.region(i)
        expected = [region.contains(person) for person in people]
        assert regions.contains(world.rows, i).tolist() == expected
        assert inside[:, i].tolist() == expected


def test_groups_are_inside_their_regions(world: World) -> None:
    """Each region contains the rows that it was made of."""
    rows, group = world.groups()
    regions = Regions.of_groups(world.codes, rows, group)
    assert regions.contains_by_region(rows)[np.arange(len(rows)), group].all()


def test_regions_are_smallest(world: World, regions: Regions) -> None:
    """The hull of the options of a region is the region."""
    tables = []
    for i in range(len(regions)):
        options = [part.options(i) for part in regions.parts]
        n = max(map(len, options))
        tables.append(np.column_stack([np.resize(values, n) for values in options]))
    group = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    rows = world.codes.rows_of(np.concatenate(tables), np.zeros(len(world.codes.private)))
    again = Regions.of_groups(world.codes, rows, group)
    assert [again.region(i) for i in range(len(again))] == [
        regions.region(i) for i in range(len(regions))
    ]


def test_combinations_are_those_inside(world: World, regions: Regions) -> None:
    """The combinations are all training values inside, and `size` counts them."""
    for i in range(0, len(regions), 12):
        quasi = regions.combinations(i)
        assert len(quasi) == regions.size(i) == len(np.unique(quasi, axis=0))
        rows = world.codes.rows_of(quasi, np.zeros(len(world.codes.private)))
        assert regions.contains(rows, i).all()
        n_inside = [
            sum(Region({name: part}).contains({name: value}) for value in world.values(name))
            for name, part in regions.region(i).items()
        ]
        assert len(quasi) == math.prod(n_inside)


def test_samples_are_reproducible_combinations(world: World, regions: Regions) -> None:
    """A sample follows from the generator; a small region is listed completely."""
    large = int(np.argmax([regions.size(i) for i in range(len(regions))]))
    small = len(regions) - 1
    samples = [regions.sample(large, 50, np.random.default_rng(1)) for _ in range(2)]
    np.testing.assert_array_equal(*samples)
    rows = world.codes.rows_of(samples[0], np.zeros(len(world.codes.private)))
    assert regions.contains(rows, large).all()
    everything = regions.combinations(small)
    n = len(everything)
    np.testing.assert_array_equal(regions.sample(small, n, np.random.default_rng(1)), everything)


def test_free_columns_cover_everything() -> None:
    """A quasi-identifier of weight 0 says nothing, not even whether its value is missing."""
    world = World(has_gaps=True, weights=ONE_WEIGHT)
    rows, group = world.groups()
    region = Regions.of_groups(world.codes, rows, group).region(0)
    assert region["town"] == frozenset({*"ABCDE", None})
    assert region["zip"] == frozenset({*TREE.leaves, None})
    assert region["grade"] == Interval("low", "top", True, GRADES)
    age = world.frame["age"]
    assert region["age"] == Interval(age.min(), age.max(), True)


def test_bounds_beyond_the_table_cost_one() -> None:
    """A region with a number that no one has may be wider than the table, but costs no more."""
    world = World(has_gaps=False)
    rows = world.rows[[0, 1]].copy()
    rows[0, world.codes.names.index("age")] = -500.5
    regions = Regions.of_groups(world.codes, rows, np.array([0, 0]))
    assert regions.region(0)["age"].low == -500.5
    assert regions.ncp[0] == pytest.approx(ncp(regions.region(0), world.population))


def test_missing_alone_costs_nothing() -> None:
    """A group whose values are all missing has a range without numbers."""
    world = World(has_gaps=True)
    rows = world.rows[[0, 1]].copy()
    rows[:, world.codes.quasi] = rows[0, world.codes.quasi]
    for name in ("age", "born", "grade"):
        rows[:, world.codes.names.index(name)] = MISSING
    regions = Regions.of_groups(world.codes, rows, np.array([0, 0]))
    assert regions.ncp.tolist() == [0.0]
    assert regions.region(0)["grade"] == Interval(None, None, True, ())
    assert regions.size(0) == 1


def test_sides_sum_to_ncp(world: World) -> None:
    """The sides of a group's box are its NCP, except for the hierarchy, which comes last."""
    rows, group = world.groups()
    regions = Regions.of_groups(world.codes, rows, group)
    space = Space(world.codes)
    tree = regions.parts[-1]
    n_dimensions = len(space.caps) - (7 + 5 + 2 + 3 * tree.column.has_missing)
    points = space.points(rows).reshape(len(regions), -1, len(space.caps))[:, :, :n_dimensions]
    sides = box_ncp(points.min(axis=1), points.max(axis=1), space.caps[:n_dimensions])
    expected = regions.ncp - tree.column.attribute.weight * tree.ncp
    np.testing.assert_allclose(sides, expected, atol=1e-12)


def test_two_leaves_cost_their_node() -> None:
    """In a regular tree, the box over two leaves has the NCP of their lowest common node."""
    tree = {"".join(leaf): ["".join(leaf[:2]), leaf[0]] for leaf in product("012", "01", "01")}
    frame = pd.DataFrame({"leaf": [*tree, None], "age": range(13)})
    schema = Schema.from_frame(
        frame, quasi_identifiers=["leaf"], columns={"leaf": Attribute(hierarchy=tree)}
    )
    codes = Codes.read(frame, schema)
    rows = codes.encode(frame)
    pairs = np.array(list(combinations(range(len(rows)), 2)))
    regions = Regions.of_groups(codes, rows[pairs.reshape(-1)], np.repeat(np.arange(len(pairs)), 2))
    space = Space(codes)
    points = space.points(rows)[pairs]  # (n_pairs, 2, n_dimensions)
    sides = box_ncp(points.min(axis=1), points.max(axis=1), space.caps)
    has_missing = pairs[:, 1] == len(rows) - 1
    np.testing.assert_allclose(sides[~has_missing], regions.ncp[~has_missing])
    np.testing.assert_allclose(sides[has_missing], 12 / 13)  # nearly the NCP, which is 1


def test_many_categories_share_coordinates() -> None:
    """So that a large table with many zip codes fits in memory; two of them still cost 2 / n."""
    n = 900
    table = pd.DataFrame({"zip": [f"Z{i}" for i in range(n)]})
    space = Space(Codes.read(table, Schema.from_frame(table, quasi_identifiers=["zip"])))
    points = space.points(np.arange(float(n))[:, None])
    assert points.shape == (n, 64)
    pair = points[:2]
    assert box_ncp(pair.min(axis=0), pair.max(axis=0), space.caps) == pytest.approx(2 / n)
