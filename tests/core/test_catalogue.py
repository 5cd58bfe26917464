"""The catalogue: who is in its groups, which entries it has, and what its file contains."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Schema
from cfk_plugin.core.answers import explain
from cfk_plugin.core.catalogue import Catalogue, Settings
from cfk_plugin.core.catalogue_file import CatalogueFile
from cfk_plugin.core.diversity import t_closeness
from cfk_plugin.core.model import Model
from cfk_plugin.data.codes import Codes, Floats
from cfk_plugin.errors import BundleError, ModelError, PolicyError
from cfk_plugin.metrics import t_closeness as t_closeness_of_values

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
    expected = quasi[is_sure]
    assert np.array_equal(members[np.lexsort(members.T)], expected[np.lexsort(expected.T)])
    assert min(map(len, catalogue.members)) >= K


def test_entries_hold_for_k_members(world: World, catalogue: Catalogue) -> None:
    """Counted again, as many members as stated have the outcome with an entry's values."""
    entries = catalogue.entries
    assert len(entries) > 0
    for region, values, consistent in zip(
        entries.region, entries.values, entries.consistent, strict=True
    ):
        members = catalogue.members[region]
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
    for region, members in enumerate(catalogue.members):
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
                assert world.sure(catalogue.members[region], values).sum() >= K


@pytest.fixture(scope="module")
def wide() -> Catalogue:
    """Return a catalogue whose regions have thousands of combinations."""
    random = np.random.default_rng(2)
    frame = applicants().assign(
        age=random.permutation(160), height=np.round(random.normal(170, 10, 160), 1)
    )
    return World(frame, ["age", "town", "height"]).build(most_combinations=500)


def test_large_regions_hide_their_people(wide: Catalogue) -> None:
    """Few combinations are required of a large region, and at most one in k is a member's."""
    n_moved = 0
    for region, combinations in wide.required(wide.entries.region).items():
        assert wide.regions.size(region) > 500
        is_member = (combinations[:, None] == wide.members[region]).all(axis=2).any(axis=1)
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
    illnesses = world.frame.set_index("age")["illness"]
    for members in catalogue.members:
        ages = members[:, 0]
        inside = illnesses.loc[ages]
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


def test_file_gives_equal_catalogue(world: World, catalogue: Catalogue, tmp_path: Path) -> None:
    """Another process has the same regions, entries, values and required combinations."""
    path = tmp_path / "loans.cfk"
    catalogue.save(path, world.schema, KEY, {"desired": "yes"})
    file = CatalogueFile.read(path, KEY)
    loaded = Catalogue.load(file, model_of(file.codes, file.margin))
    assert file.schema == world.schema
    assert file.notes == {"desired": "yes"}
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
    expected = catalogue.required(catalogue.entries.region)
    required = loaded.required(catalogue.entries.region)
    assert all(np.array_equal(required[i], expected[i]) for i in expected)


def test_large_regions_survive_the_file(wide: Catalogue, tmp_path: Path) -> None:
    """The combinations of large regions are in the file, because they follow from people."""
    schema = Schema(tuple(column.attribute for column in wide.codes.columns))
    wide.save(tmp_path / "loans.cfk", schema)
    file = CatalogueFile.read(tmp_path / "loans.cfk")
    loaded = Catalogue.load(file, model_of(file.codes, file.margin))
    required = loaded.required(wide.entries.region)
    for region, combinations in wide.required(wide.entries.region).items():
        assert np.array_equal(required[region], combinations)


def test_file_gives_equal_answers(wide: Catalogue, tmp_path: Path) -> None:
    """Another process answers queries alike, to the last digit."""
    queries = applicants().assign(height=170.3).head(30)
    wide.save(tmp_path / "loans.cfk", Schema(tuple(c.attribute for c in wide.codes.columns)))
    file = CatalogueFile.read(tmp_path / "loans.cfk")
    loaded = Catalogue.load(file, model_of(file.codes, file.margin))
    expected = explain(wide, wide.codes.encode(queries))
    answers = explain(loaded, file.codes.encode(queries))
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
    world.build().save(tmp_path / "loans.cfk", world.schema)
    codes = CatalogueFile.read(tmp_path / "loans.cfk").codes
    assert np.isnan(codes.encode(world.frame.assign(job="dancer"))).any(axis=1).all()
    rows = codes.encode(world.frame)
    assert np.array_equal(rows, world.rows)
    pd.testing.assert_frame_equal(codes.decode(rows), world.codes.decode(rows))
    assert [column.decimals for column in codes.columns if column.is_numeric] == [0, 1]


def test_file_contains_no_rare_value(world: World, catalogue: Catalogue, tmp_path: Path) -> None:
    """Neither a job nor an income of fewer than k people is in the file."""
    path = tmp_path / "loans.cfk"
    catalogue.save(path, world.schema)
    with zipfile.ZipFile(path) as archive:
        contents = b"".join(archive.read(name) for name in archive.namelist())
    assert b"clerk" in contents
    assert b"organist" not in contents
    rare = world.frame["income"].value_counts().loc[lambda counts: counts < K].index
    numbers = np.concatenate(list(CatalogueFile.read(path).arrays.values()), axis=None)
    assert not np.isin(rare[np.abs(rare % 1) > 0.05], numbers).any()


@pytest.mark.parametrize("key", [b"", KEY])
def test_changed_file_is_refused(
    world: World, catalogue: Catalogue, tmp_path: Path, key: bytes
) -> None:
    """A single changed byte anywhere breaks the seal."""
    path = tmp_path / "loans.cfk"
    catalogue.save(path, world.schema, key)
    content = bytearray(path.read_bytes())
    for position in (0, len(content) // 2, len(content) - 1):
        changed = content.copy()
        changed[position] ^= 1
        path.write_bytes(changed)
        with pytest.raises(BundleError, match="changed after it was saved"):
            CatalogueFile.read(path, key)


@pytest.mark.parametrize(
    ("written", "read", "message"),
    [(KEY, b"", "with a key"), (b"", KEY, "without a key"), (KEY, b"other", "another key")],
)
def test_file_needs_its_key(
    world: World, catalogue: Catalogue, tmp_path: Path, written: bytes, read: bytes, message: str
) -> None:
    """The message says whether the key or its absence is the problem."""
    catalogue.save(tmp_path / "loans.cfk", world.schema, written)
    with pytest.raises(BundleError, match=message):
        CatalogueFile.read(tmp_path / "loans.cfk", read)


def test_other_model_is_refused(world: World, catalogue: Catalogue, tmp_path: Path) -> None:
    """A model that disagrees about an entry is not the one of the catalogue."""
    catalogue.save(tmp_path / "loans.cfk", world.schema)
    file = CatalogueFile.read(tmp_path / "loans.cfk")
    with pytest.raises(ModelError, match="not the one"):
        Catalogue.load(file, model_of(file.codes, margin=0.99))


def test_no_region_may_be_small_enough(world: World) -> None:
    """A catalogue without entries is possible, and answers nothing."""
    catalogue = world.build(max_ncp=0.0)
    assert len(catalogue.entries) == 0
    assert len(catalogue.required(np.array([0]))[0]) == 0
