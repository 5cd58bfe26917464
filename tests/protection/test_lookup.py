"""The lookup: exact regions against brute force, GRASP and Mondrian."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Attribute, Schema
from cfk_plugin.data.codes import Codes, mixed
from cfk_plugin.protection.boxes import Cells, Goal, regions_of
from cfk_plugin.protection.exact import ExactLimits, exact_regions
from cfk_plugin.protection.grasp import GraspSettings, grasp_regions
from cfk_plugin.protection.mondrian import mondrian_regions
from cfk_plugin.protection.regions import Regions

if TYPE_CHECKING:
    from cfk_plugin.data.codes import Floats, Ints, Mask
    from cfk_plugin.protection.boxes import Proposal

TOWNS = {"Aa": ["north"], "Bree": ["north"], "Ceel": ["south"], "Deurne": ["south"]}
LEVELS = ["none", "school", "college"]


def declared(weights: dict[str, float] | None) -> dict[str, Attribute]:
    """Return the settings of columns: weights, and the hierarchy of one column."""
    columns = {name: Attribute(weight=weight) for name, weight in (weights or {}).items()}
    return columns | {"town": Attribute(hierarchy=TOWNS, weight=(weights or {}).get("town"))}


class World:
    """A table of a few people, and counterfactuals whose numbers it lacks."""

    def __init__(self, seed: int, n_rows: int = 9, weights: dict[str, float] | None = None) -> None:
        self.random = np.random.default_rng(seed)
        frame = self._draw(n_rows)
        self.schema = Schema.from_frame(
            frame,
            quasi_identifiers=["age", "job", "level", "town"],
            ordinal={"level": LEVELS},
            columns=declared(weights),
        )
        self.codes = Codes.read(frame, self.schema)
        self.rows = self.codes.encode(frame)
        self.person = np.arange(n_rows)
        counterfactuals = self._draw(3)
        counterfactuals["age"] += 0.5
        encoded = self.codes.encode(counterfactuals)
        self.counterfactuals = encoded[~np.isnan(encoded).any(axis=1)]

    def _draw(self, n: int) -> pd.DataFrame:
        frame = pd.DataFrame(
            {
                "age": self.random.integers(20, 30, n).astype(float),
                "job": self.random.choice(["clerk", "nurse", "smith"], n),
                "level": self.random.choice(LEVELS, n),
                "town": self.random.choice([*TOWNS], n),
                "income": self.random.integers(0, 5, n).astype(float),
            }
        )
        for name in ("age", "job", "level", "town"):
            frame.loc[self.random.random(n) < 0.15, name] = None
        return frame

    @property
    def cells(self) -> Cells:
        return Cells.of(self.codes, self.rows, self.person)

    def has_outcome(self, owners: Ints | None, rows: Floats) -> Mask:
        """Return an outcome that single combinations do not have."""
        numbers = rows[:, self.codes.quasi].clip(-1) * [2, 6, 10, 14]
        return numbers.sum(axis=1) % 61 > 1

    def neighbors_of(self, i: int) -> Mask:
        return self.has_outcome(None, self.rows)

    def people(self, regions: Regions, i: int) -> int:
        return len(np.unique(self.person[regions.contains(self.rows, i)]))

    def is_pure(self, regions: Regions, i: int, counterfactual: Floats) -> bool:
        options = []
        for j, part in zip(self.codes.quasi, regions.parts, strict=True):
            options.append(np.unique(np.append(part.options(i), counterfactual[j])))
        quasi = mixed(options)
        rows = self.codes.rows_of(quasi, counterfactual[self.codes.private])
        return bool(self.has_outcome(None, rows).all())

    def hulls(self, counterfactual: Floats) -> Regions:
        """Return the region of the counterfactual and any set of rows."""
        n_rows = len(self.rows)
        chosen: list[Any] = [()]
        for size in range(1, n_rows + 1):
            chosen += combinations(range(n_rows), size)
        rows = [np.vstack([counterfactual, self.rows[list(some)]]) for some in chosen]
        group = np.repeat(np.arange(len(rows)), [len(some) for some in rows])
        return Regions.of_groups(self.codes, np.vstack(rows), group)

    def least_ncp(self, counterfactual: Floats, k: int, *, pure: bool) -> float:
        """Return the least NCP of a region with k people, by trying all; infinite if none."""
        regions = self.hulls(counterfactual)
        for i in np.argsort(regions.ncp).tolist():
            if self.people(regions, i) >= k and (
                not pure or self.is_pure(regions, i, counterfactual)
            ):
                return float(regions.ncp[i])
        return np.inf


def least(world: World, k: int, objective: Any, **settings: Any) -> list[Proposal | None]:
    """Return exact regions of a world's counterfactuals."""
    return exact_regions(
        world.cells,
        world.counterfactuals,
        Goal(k=k, objective=objective),
        world.has_outcome,
        **settings,
    )


def grasp(world: World, goal: Goal) -> list[Proposal | None]:
    """Return regions of a world's counterfactuals from GRASP, with a seed."""
    return grasp_regions(
        world.cells,
        world.counterfactuals,
        goal,
        world.has_outcome,
        world.neighbors_of,
        settings=GraspSettings(),
        random_state=1,
    )


@pytest.mark.parametrize(
    "weights", [None, {"age": 3, "job": 1, "level": 1, "town": 0.5}, {"age": 0}, {"town": 0}]
)
def test_least_ncp_equals_brute_force(weights):
    """Gaps, unseen numbers, levels and hierarchies are in the tables."""
    for seed in range(4):
        world = World(seed, n_rows=8, weights=weights)
        for k in (2, 4):
            for row, proposal in zip(world.counterfactuals, least(world, k, "ncp"), strict=True):
                regions = regions_of(world.codes, [proposal])
                assert proposal.ncp == pytest.approx(world.least_ncp(row, k, pure=False), abs=1e-9)
                assert proposal.ncp == pytest.approx(regions.ncp[0], abs=1e-9)
                assert proposal.is_optimal
                assert world.people(regions, 0) >= k
                assert regions.contains(row[None], 0).all()


@pytest.mark.parametrize("weights", [None, {"level": 0}])
def test_pure_region_equals_brute_force(weights):
    """The region of least NCP among the pure ones, or none without a proof."""
    n_pure = 0
    for seed in range(8):
        world = World(seed, n_rows=6, weights=weights)
        for row, proposal in zip(world.counterfactuals, least(world, 2, "pureness"), strict=True):
            optimum = world.least_ncp(row, 2, pure=True)
            assert proposal.is_optimal == (optimum < np.inf)
            if proposal.is_optimal:
                n_pure += 1
                regions = regions_of(world.codes, [proposal])
                assert proposal.pureness == 1
                assert proposal.ncp == pytest.approx(optimum, abs=1e-9)
                assert world.is_pure(regions, 0, row)
    assert n_pure > 1


def test_stopped_search_bounds_optimum():
    """The proven gap of a search that is stopped reaches to the optimum."""
    gaps = []
    for seed in range(4):
        world = World(seed, n_rows=200)
        optima = least(world, 20, "ncp")
        stopped = least(world, 20, "ncp", limits=ExactLimits(nodes=1))
        for optimum, proposal in zip(optima, stopped, strict=True):
            assert proposal.ncp - proposal.gap <= optimum.ncp + 1e-12
            assert optimum.ncp <= proposal.ncp + 1e-12
            gaps.append(proposal.gap)
    assert max(gaps) > 0


def test_crowded_categories_are_proven() -> None:
    """The best region has the most crowded towns of one of all ranges of ages."""
    random = np.random.default_rng(1500)
    frame = pd.DataFrame({"age": random.integers(0, 60, 1500)})
    frame["town"] = pd.Series(random.integers(0, 100, 1500)).map("t{}".format)
    codes = Codes.read(frame, Schema.from_frame(frame, quasi_identifiers=["age", "town"]))
    rows = codes.encode(frame)
    cells = Cells.of(codes, rows, np.arange(1500))
    goal = Goal(k=20, objective="ncp")
    proposals = exact_regions(cells, rows[:3], goal, lambda owners, rows: np.ones(len(rows), bool))
    for proposal, person in zip(proposals, frame.head(3).itertuples(), strict=True):
        assert proposal.is_optimal
        assert proposal.ncp == pytest.approx(least_ncp_with_towns(frame, person, 20))


def least_ncp_with_towns(frame: pd.DataFrame, person: Any, k: int) -> float:
    """Return the least NCP of a region with k people, by trying all ranges of ages."""
    counts = pd.crosstab(frame["age"], frame["town"])
    n_towns = counts.shape[1]
    town = counts.columns.get_loc(person.town)
    least = np.inf
    for low, high in product(range(person.age + 1), range(person.age, 60)):
        n_of_town = counts.loc[low:high].sum().to_numpy()
        others = np.sort(np.delete(n_of_town, town))[::-1]
        n_people = n_of_town[town] + np.cumsum([0, *others])
        if n_people[-1] >= k:
            n_inside = int(np.searchsorted(n_people, k)) + 1
            share = n_inside / n_towns if n_inside > 1 else 0.0
            least = min(least, ((high - low) / 59 + share) / 2)
    return least


def test_person_with_rows_counts_once():
    """Two people with four rows each are not eight people."""
    world = World(3, n_rows=8)
    world.person = np.repeat([0, 1], 4)
    assert world.cells.n_people == 2
    assert least(world, 3, "ncp") == [None] * len(world.counterfactuals)
    for proposal in least(world, 2, "ncp"):
        assert world.people(regions_of(world.codes, [proposal]), 0) == 2


def test_too_few_people_give_nothing():
    """No method has a region with more people than there are."""
    world = World(1)
    n = len(world.counterfactuals)
    assert least(world, 10, "pureness") == [None] * n
    assert mondrian_regions(world.cells, world.counterfactuals, 10) == [None] * n
    assert grasp(world, Goal(k=10)) == [None] * n


def test_fallback_beats_least_ncp():
    """Where no region is pure, the best one is purer than the cheapest one."""
    world = World(2, n_rows=60)
    is_rare = np.random.default_rng(0).random(1000) < 0.6

    def has_outcome(owners: Ints | None, rows: Floats) -> Mask:
        numbers = (rows[:, world.codes.quasi].clip(-1) @ [2, 34, 110, 14]).astype(int)
        return is_rare[numbers % 1000]

    def pureness(proposal: Proposal) -> float:
        rows = world.codes.rows_of(
            mixed(proposal.values), world.counterfactuals[0, world.codes.private]
        )
        return float(has_outcome(None, rows).mean())

    goal = Goal(k=8)
    regions = exact_regions(world.cells, world.counterfactuals, goal, has_outcome)
    cheapest = least(world, 8, "ncp")
    for purest, smallest in zip(regions, cheapest, strict=True):
        assert purest.gap is None
        assert purest.pureness == pytest.approx(pureness(purest))
        assert purest.pureness > pureness(smallest)


def test_grasp_is_no_better_than_optimum() -> None:
    """Equal seeds give equal regions."""
    world = World(4, n_rows=60)
    results = [grasp(world, Goal(k=5)) for _ in range(2)]
    optima = least(world, 5, "ncp")
    for optimum, proposal, again in zip(optima, *results, strict=True):
        assert proposal.ncp >= optimum.ncp - 1e-12
        assert proposal.ncp == again.ncp
