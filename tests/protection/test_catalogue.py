"""The catalogue: who is in its groups, which entries it has, and what its file contains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Schema
from cfk_plugin.data.codes import Codes, Floats
from cfk_plugin.data.outcome_model import Model
from cfk_plugin.errors import PolicyError
from cfk_plugin.metrics import t_closeness as t_closeness_of_values
from cfk_plugin.protection.answers import explain
from cfk_plugin.protection.catalogue import Catalogue, Settings
from cfk_plugin.protection.catalogue_file import CatalogueFile
from cfk_plugin.protection.diversity import t_closeness

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

K = 5
KEY = b"a key"


def chances(rows: pd.DataFrame) -> Any:
    """Return the probability of a loan."""
    score = rows["income"] / 20 + (rows["job"].astype(str) == "nurse") - rows["age"] / 40
    return 1 / (1 + np.exp(-score.to_numpy(dtype=float)))


def applicants() -> pd.DataFrame:
    """Return 160 applicants, with missing values and one job that a single person has."""
    random = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "age": random.integers(20, 70, 160),
            "town": random.choice(["Aa", "Bree", "Ceel"], 160),
            "income": np.round(random.normal(10, 15, 160), 1),
            "job": random.choice(["clerk", "nurse", "smith"], 160),
            "illness": random.choice(["none", "flu", "gout"], 160, p=[0.6, 0.3, 0.1]),
        }
    )
    frame.loc[3, "job"] = "organist"
    frame.loc[[5, 6, 7, 8, 9, 10], "town"] = None
    return frame


class World:
    """The applicants, encoded, and a model of them."""

    def __init__(self, frame: pd.DataFrame, quasi: Sequence[str] = ("age", "town")) -> None:
        self.frame = frame
        self.schema = Schema.from_frame(frame, quasi_identifiers=quasi, sensitive=["illness"])
        self.codes = Codes.read(self.frame, self.schema)
        self.rows = self.codes.encode(self.frame)
        self.person = np.arange(len(self.rows))
        self.model = model_of(self.codes)

    def build(self, key: bytes = KEY, seed: int = 0, **settings: Any) -> Catalogue:
        return Catalogue.build(
            self.codes,
            self.rows,
            self.person,
            self.model,
            Settings(**{"k": K, "n_rounds": 3} | settings),
            np.random.default_rng(seed),
            key,
        )

    def members(self, catalogue: Catalogue, region: int) -> Floats:
        """Return the quasi-identifiers of a region's members, shape (n_members, n_quasi)."""
        return self.rows[np.ix_(catalogue.members[region], self.codes.quasi)]

    def sure(self, quasi: Floats, private: Floats) -> Any:
        """Ask the model itself, without `Model`."""
        frame = self.codes.decode(self.codes.rows_of(quasi, private))
        return 2 * chances(frame) - 1 >= self.model.margin - 1e-9


class Classifier:
    """A model with the probabilities of `chances`."""

    classes_ = np.array([0, 1])

    def predict(self, rows: pd.DataFrame) -> Any:
        return (chances(rows) >= 0.5).astype(int)

    def predict_proba(self, rows: pd.DataFrame) -> Any:
        chance = chances(rows)
        return np.column_stack([1 - chance, chance])


def model_of(codes: Codes, margin: float = 0.1) -> Model:
    return Model.of(codes, Classifier(), 1, margin)


@pytest.fixture(scope="module")
def world() -> World:
    return World(applicants())


@pytest.fixture(scope="module")
def catalogue(world: World) -> Catalogue:
    return world.build()


def test_regions_cover_everyone(world: World, catalogue: Catalogue) -> None:
    """Being outside of all regions would tell that somebody was refused."""
    is_inside = np.any(
        [catalogue.regions.contains(world.rows, i) for i in range(len(catalogue.regions))], axis=0
    )
    assert is_inside.all()


def test_members_are_people_with_outcome(world: World, catalogue: Catalogue) -> None:
    """Every person with the outcome is a member of one group, and all others of none."""
    members = np.concatenate(catalogue.members)
    quasi = world.rows[:, world.codes.quasi]
    is_sure = world.sure(quasi, world.rows[:, world.codes.private])
    assert np.array_equal(np.sort(members), np.flatnonzero(is_sure))
    assert min(map(len, catalogue.members)) >= K


def test_regions_have_k_people_with_several_rows() -> None:
    """A region with fewer than 2k people has refused ones, a fifth as many as members.

    People have three rows with the same quasi-identifiers; in some tables a quarter have moved.
    They are refused if they have the outcome in no row.
    """
    n_small = 0
    for seed in range(4):
        random = np.random.default_rng(seed)
        frame = pd.concat([applicants()] * 3, ignore_index=True)
        frame["income"] = np.round(random.normal(25, 15, len(frame)), 1)
        has_moved = random.random(len(frame)) < seed % 2 / 4
        frame.loc[has_moved, "town"] = "Aa"
        world = World(frame)
        world.person = np.tile(np.arange(160), 3)
        is_sure = world.sure(world.rows[:, world.codes.quasi], world.rows[:, world.codes.private])
        refused = np.setdiff1d(world.person, world.person[world.model.has_outcome(world.rows)])
        catalogue = world.build()
        for region, members in enumerate(catalogue.members):
            is_inside = catalogue.regions.contains(world.rows, region)
            assert len(members) >= K
            assert len(np.unique(world.person[is_inside & is_sure])) >= len(members)
            people = np.unique(world.person[is_inside])
            if len(people) < 2 * K:
                n_small += 1
                assert len(np.intersect1d(people, refused)) >= len(members) / 5
    assert n_small > 0


def test_entries_hold_for_k_members(world: World, catalogue: Catalogue) -> None:
    """Counted again, as many members as stated have the outcome with an entry's values."""
    entries = catalogue.entries
    assert len(entries) > 0
    for region, values, consistent in zip(
        entries.region, entries.values, entries.consistent, strict=True
    ):
        members = world.members(catalogue, region)
        assert world.sure(members, values).sum() == consistent >= K


def test_pureness_is_exact_in_small_regions(world: World) -> None:
    """The share of combinations with the outcome is counted by brute force."""
    catalogue = world.build(least_pureness=0.7)
    entries = catalogue.entries
    sizes = np.array([catalogue.regions.size(region) for region in entries.region.tolist()])
    small = np.flatnonzero(sizes <= 64)
    assert len(small) > 0
    for entry in small.tolist():
        combinations = catalogue.regions.combinations(int(entries.region[entry]))
        share = world.sure(combinations, entries.values[entry]).mean()
        assert share == pytest.approx(entries.pureness[entry])
        assert share >= 0.7


def test_private_values_belong_to_k_people(world: World, catalogue: Catalogue) -> None:
    """At least k people have the values of an entry, each and all together, or no one has them."""
    private = world.rows[:, world.codes.private]
    for values in catalogue.centres:
        is_value = private == values
        counts = [*is_value.sum(axis=0), is_value.all(axis=1).sum()]
        assert all(count == 0 or count >= K for count in counts)


def test_centres_meet_every_region(world: World, catalogue: Catalogue) -> None:
    """Private values of one entry are entries of all regions in which they are admissible."""
    entries = catalogue.entries
    pairs = set(zip(entries.region.tolist(), map(bytes, entries.values), strict=True))
    for region in range(len(catalogue.regions)):
        members = world.members(catalogue, region)
        combinations = catalogue.regions.combinations(region)
        if len(combinations) > 64:
            continue
        for values in np.unique(entries.values, axis=0):
            is_admissible = (
                world.sure(members, values).sum() >= K
                and world.sure(combinations, values).mean() >= 0.5
            )
            assert is_admissible == ((region, bytes(values)) in pairs)


def test_required_combinations_keep_members(world: World, catalogue: Catalogue) -> None:
    """Values with the outcome at all required combinations have it for k members."""
    private = world.rows[:, world.codes.private]
    regions = np.unique(catalogue.entries.region)
    for region, combinations in catalogue.required(regions).items():
        for values in private[:15]:
            if world.sure(combinations, values).all():
                assert world.sure(world.members(catalogue, region), values).sum() >= K


@pytest.fixture(scope="module")
def tall_world() -> World:
    """Return applicants whose regions have thousands of combinations."""
    random = np.random.default_rng(2)
    frame = applicants().assign(
        age=random.permutation(160), height=np.round(random.normal(170, 10, 160), 1)
    )
    return World(frame, ["age", "town", "height"])


@pytest.fixture(scope="module")
def wide(tall_world: World) -> Catalogue:
    return tall_world.build(most_combinations=500)


def test_large_regions_hide_their_people(tall_world: World, wide: Catalogue) -> None:
    """Few combinations are required of a large region, and at most one in k is a member's."""
    n_moved = 0
    for region, combinations in wide.required(wide.entries.region).items():
        assert wide.regions.size(region) > 500
        members = tall_world.members(wide, region)
        is_member = (combinations[:, None] == members).all(axis=2).any(axis=1)
        n_moved += len(combinations) > 0
        assert is_member.sum() * K <= 500
        assert len(combinations) <= 500
    assert n_moved > 0


def test_region_is_not_moved_if_people_show(world: World) -> None:
    """Nothing is required of a region if too few combinations would hide its people."""
    catalogue = world.build(most_combinations=10)
    regions = [i for i in range(len(catalogue.regions)) if catalogue.regions.size(i) > 10]
    required = catalogue.required(np.array(regions))
    assert {len(combinations) for combinations in required.values()} == {0}


def test_too_few_people_are_refused(world: World) -> None:
    """There is no catalogue if fewer than k people have the outcome."""
    with pytest.raises(PolicyError, match="form no group with k = 150"):
        world.build(k=150)


def test_groups_are_diverse() -> None:
    """Members of each group have l illnesses, distributed nearly as in the table."""
    world = World(applicants().assign(age=np.arange(160)))  # nobody has another's age
    catalogue = world.build(l=2, t=0.25)
    illnesses = world.frame["illness"]
    for members in catalogue.members:
        inside = illnesses.iloc[members]
        assert inside.nunique() >= 2
        assert t_closeness_of_values(inside, illnesses, ordered=False) <= 0.25


def test_impossible_diversity_is_refused(world: World) -> None:
    """No merger of groups gives an illness that nobody has."""
    with pytest.raises(PolicyError, match="k = 5 and l = 4"):
        world.build(l=4)


@pytest.mark.parametrize("name", ["town", "income"])
def test_t_closeness_equals_metric(world: World, name: str) -> None:
    """The distance between codes is that between values, missing ones included."""
    frame = world.frame.copy()
    frame.loc[::9, "income"] = None
    codes = Codes.read(frame, world.schema)
    j = codes.names.index(name)
    column = codes.columns[j]
    rows = codes.encode(frame)[:, j]
    expected = t_closeness_of_values(frame[name].head(30), frame[name], ordered=column.is_line)
    assert t_closeness(rows[:30], rows, is_line=column.is_line) == pytest.approx(expected)


def test_max_ncp_bounds_entries(world: World) -> None:
    """Regions with a larger NCP have no entry."""
    catalogue = world.build(max_ncp=0.2)
    assert len(catalogue.entries) > 0
    assert catalogue.regions.ncp[catalogue.entries.region].max() <= 0.2


def reloaded(world: World, catalogue: Catalogue, path: Path) -> tuple[Catalogue, Codes]:
    """Return what another process makes of the catalogue's content, and its codes."""
    facts, arrays = catalogue.content()
    file = CatalogueFile.of_table(world.schema, world.codes, catalogue.public, KEY)
    file.with_content(facts, arrays).write(path)
    read = CatalogueFile.read(path, KEY)
    return Catalogue.of_content(read.facts, read.arrays, model_of(read.codes)), read.codes


def test_content_gives_equal_catalogue(world: World, catalogue: Catalogue, tmp_path: Path) -> None:
    """Another process has the same regions, entries, values and required combinations."""
    loaded, _ = reloaded(world, catalogue, tmp_path / "loans.cfk")
    assert loaded.members == []
    assert loaded.settings == catalogue.settings
    n_regions = len(catalogue.regions)
    assert [loaded.regions.region(i) for i in range(n_regions)] == [
        catalogue.regions.region(i) for i in range(n_regions)
    ]
    for name in ("region", "values", "pureness"):
        assert np.array_equal(getattr(loaded.entries, name), getattr(catalogue.entries, name))
    for name in ("spans", "centres"):
        assert np.array_equal(getattr(loaded, name), getattr(catalogue, name))


def test_content_gives_equal_answers(tall_world: World, wide: Catalogue, tmp_path: Path) -> None:
    """Another process answers queries alike, to the last digit.

    Combinations that large regions require are in the file, because they follow from people.
    """
    queries = applicants().assign(height=170.3).head(30)
    loaded, codes = reloaded(tall_world, wide, tmp_path / "loans.cfk")
    required = loaded.required(wide.entries.region)
    for region, combinations in wide.required(wide.entries.region).items():
        assert np.array_equal(required[region], combinations)
    expected = explain(wide, wide.codes.encode(queries))
    answers = explain(loaded, codes.encode(queries))
    assert any(answers)
    for of_query, expected_of_query in zip(answers, expected, strict=True):
        for answer, expected_answer in zip(of_query, expected_of_query, strict=True):
            assert answer.region == expected_answer.region
            assert answer.distance == expected_answer.distance
            assert np.array_equal(answer.point, expected_answer.point)


@pytest.mark.parametrize("dtype", ["object", "category"])
def test_loaded_codes_encode_queries_alike(dtype: str, tmp_path: Path) -> None:
    """A query has the code that it had before, even with a job that a single person has."""
    frame = applicants()
    world = World(frame.assign(job=frame["job"].astype(dtype)))
    _, codes = reloaded(world, world.build(), tmp_path / "loans.cfk")
    assert np.isnan(codes.encode(world.frame.assign(job="dancer"))).any(axis=1).all()
    rows = codes.encode(world.frame)
    assert np.array_equal(rows, world.rows)
    pd.testing.assert_frame_equal(codes.decode(rows), world.codes.decode(rows))
    assert [column.decimals for column in codes.columns if column.is_numeric] == [0, 1]


def test_no_region_may_be_small_enough(world: World) -> None:
    """A catalogue without entries is possible, and answers nothing."""
    catalogue = world.build(max_ncp=0.0)
    assert len(catalogue.entries) == 0
    assert len(catalogue.required(np.array([0]))[0]) == 0
