"""The catalogue: who is in its groups, and which entries it has; the oracle recounts the entries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfk_plugin import Population, Schema
from cfk_plugin.data.codes import Codes, Floats
from cfk_plugin.data.outcome_model import Model
from cfk_plugin.errors import PolicyError
from cfk_plugin.metrics import t_closeness as t_closeness_of_values
from cfk_plugin.protection.answers import explain
from cfk_plugin.protection.catalogue import Catalogue, Settings
from cfk_plugin.protection.catalogue_file import CatalogueFile
from cfk_plugin.protection.diversity import t_closeness
from worlds import World

K = 5
MARGIN = 0.1
KEY = b"a key"
WIDE = ["age", "town", "education", "debt"]


def population_of(world: World, names: list[str]) -> Population:
    """Return the people of a world with other quasi-identifiers."""
    return world.declare(quasi_identifiers=names, sensitive=["job"])


def model_of(world: World, codes: Codes) -> Model:
    return Model.of(codes, world.model, world.desired, MARGIN)


def build(world: World, population: Population, **settings: Any) -> Catalogue:
    """Return the catalogue of a population."""
    return Catalogue.build(
        population.row_codes,
        population.coded_rows,
        population.person_of_row,
        model_of(world, population.row_codes),
        Settings(**{"k": K, "n_rounds": 3} | settings),
        np.random.default_rng(0),
        KEY,
    )


@pytest.fixture(scope="module")
def population(applicants: World) -> Population:
    """Return applicants whose regions have few combinations."""
    return population_of(applicants, ["age", "town"])


@pytest.fixture(scope="module")
def catalogue(applicants: World, population: Population) -> Catalogue:
    return build(applicants, population, least_pureness=0.9)


@pytest.fixture(scope="module")
def wide(applicants: World) -> Catalogue:
    """Return a catalogue whose regions have hundreds of combinations and more."""
    return build(applicants, population_of(applicants, WIDE), most_combinations=500)


def sure(catalogue: Catalogue, quasi: Floats, private: Floats) -> Any:
    """Return for which combinations the model has the outcome with the margin."""
    return catalogue.model.sure(catalogue.codes.rows_of(quasi, private))


def quasi_of_members(catalogue: Catalogue, rows: Floats, region: int) -> Floats:
    """Return the quasi-identifiers of a region's members, shape (n_members, n_quasi)."""
    return rows[np.ix_(catalogue.members[region], catalogue.codes.quasi)]


def test_regions_cover_everyone(population: Population, catalogue: Catalogue) -> None:
    """Being outside of all regions would tell that someone was refused."""
    assert catalogue.regions.contains_by_region(population.coded_rows).any(axis=1).all()


def test_members_have_the_outcome(population: Population, catalogue: Catalogue) -> None:
    """Every person with the outcome is a member of one group, and all others of none."""
    members = np.concatenate(catalogue.members)
    is_sure = catalogue.model.sure(population.coded_rows)
    assert np.array_equal(np.sort(members), np.flatnonzero(is_sure))


@pytest.mark.parametrize("k", [3, 5])
def test_regions_have_people_not_rows(k: int, patients: World) -> None:
    """With fewer than 2 k people inside, a fifth as many as members are refused."""
    catalogue = patients.fit(k=k).catalogue_.parts[0].catalogue
    rows = patients.population.coded_rows
    person = patients.population.person_of_row
    refused = np.setdiff1d(person, person[catalogue.model.has_outcome(rows)])
    for region, members in enumerate(catalogue.members):
        assert len(np.unique(person[members])) == len(members) >= k
        people = np.unique(person[catalogue.regions.contains(rows, region)])
        n_refused = len(np.intersect1d(people, refused))
        assert len(people) >= 2 * k or n_refused >= len(members) / 5


def test_centres_meet_every_region(population: Population, catalogue: Catalogue) -> None:
    """Private values of one entry are entries of all regions in which they are admissible."""
    entries = catalogue.entries
    pairs = zip(entries.region.tolist(), map(bytes, entries.values), strict=True)
    pureness = dict(zip(pairs, entries.pureness, strict=True))
    n_impure = 0
    for region in range(len(catalogue.regions)):
        members = quasi_of_members(catalogue, population.coded_rows, region)
        combinations = catalogue.regions.combinations(region)
        for values in np.unique(entries.values, axis=0):
            has_people = sure(catalogue, members, values).sum() >= K
            share = sure(catalogue, combinations, values).mean()
            n_impure += has_people and share < 0.9
            is_admissible = has_people and share >= 0.9
            assert pureness.get((region, bytes(values))) == (share if is_admissible else None)
    assert n_impure > 0


def test_required_combinations_keep_members(population: Population, catalogue: Catalogue) -> None:
    """Values with the outcome at all required combinations have it for k members."""
    rows = population.coded_rows
    n_safe = 0
    for region, combinations in catalogue.required(catalogue.entries.region[:5]).items():
        members = quasi_of_members(catalogue, rows, region)
        for values in rows[:10, catalogue.codes.private]:
            if sure(catalogue, combinations, values).all():
                n_safe += 1
                assert sure(catalogue, members, values).sum() >= K
    assert n_safe > 0


def test_large_regions_hide_their_people(applicants: World, wide: Catalogue) -> None:
    """Few combinations are required of a large region, and at most one in k is a member's."""
    rows = wide.codes.encode(applicants.table)
    n_moved = 0
    for region, combinations in wide.required(wide.entries.region).items():
        if wide.regions.size(region) > 500:
            members = quasi_of_members(wide, rows, region)
            is_member = (combinations[:, None] == members).all(axis=2).any(axis=1)
            n_moved += len(combinations) > 0
            assert is_member.sum() * K <= 500
            assert len(combinations) <= 500
    assert n_moved > 0


def test_region_stays_if_people_show(applicants: World) -> None:
    """Nothing is required of a region if too few combinations would hide its people."""
    population = population_of(applicants, WIDE)
    catalogue = build(applicants, population, most_combinations=10)
    required = catalogue.required(np.arange(len(catalogue.regions)))
    assert {len(combinations) for combinations in required.values()} == {0}


@pytest.mark.parametrize(
    ("settings", "message"), [({"k": 200}, "k = 200"), ({"l": 4}, "k = 5 and l = 4")]
)
def test_impossible_group_is_refused(
    settings: dict[str, Any], message: str, applicants: World, population: Population
) -> None:
    """Fewer than k people have the outcome, or no one has a fourth job."""
    with pytest.raises(PolicyError, match=message):
        build(applicants, population, **settings)


def test_groups_are_diverse(applicants: World) -> None:
    """Members of each group have l jobs, distributed nearly as in the table."""
    catalogue = build(applicants, population_of(applicants, ["income"]), l=2, t=0.25)
    jobs = applicants.table["job"]
    for members in catalogue.members:
        inside = jobs.iloc[members]
        assert inside.nunique() >= 2
        assert t_closeness_of_values(inside, jobs, ordered=False) <= 0.25


@pytest.mark.parametrize("name", ["job", "salary"])
def test_t_closeness_equals_metric(residents: World, name: str) -> None:
    """The distance between codes is that between values, missing ones included."""
    frame = residents.table.assign(salary=residents.table["salary"].mask(lambda pay: pay % 9 == 0))
    codes = Codes.read(frame, Schema.from_frame(frame, **residents.roles))
    j = codes.names.index(name)
    is_line = codes.columns[j].is_line
    values = codes.encode(frame)[:, j]
    expected = t_closeness_of_values(frame[name].head(30), frame[name], ordered=is_line)
    assert t_closeness(values[:30], values, is_line=is_line) == pytest.approx(expected)


@pytest.mark.parametrize("max_ncp", [0.2, 0.0])
def test_max_ncp_bounds_entries(max_ncp: float, applicants: World, population: Population) -> None:
    """Larger regions have no entry; if all are larger, nothing is answered."""
    catalogue = build(applicants, population, max_ncp=max_ncp)
    assert (len(catalogue.entries) == 0) == (max_ncp == 0)
    assert (catalogue.regions.ncp[catalogue.entries.region] <= max_ncp).all()
    queries = catalogue.codes.encode(applicants.refused)
    assert any(explain(catalogue, queries)) == (max_ncp > 0)


def test_content_gives_equal_answers(applicants: World, wide: Catalogue, tmp_path: Path) -> None:
    """Another process answers queries alike, to the last digit.

    Combinations that large regions require are in the file, because they follow from people.
    """
    facts, arrays = wide.content()
    schema = population_of(applicants, WIDE).schema
    file = CatalogueFile.of_table(schema, wide.codes, wide.public, KEY)
    file.with_content(facts, arrays).write(tmp_path / "loans.cfk")
    read = CatalogueFile.read(tmp_path / "loans.cfk", KEY)
    loaded = Catalogue.of_content(read.facts, read.arrays, model_of(applicants, read.codes))
    assert loaded.members == []
    required = loaded.required(wide.entries.region)
    for region, combinations in wide.required(wide.entries.region).items():
        assert np.array_equal(required[region], combinations)
    queries = applicants.refused
    expected = explain(wide, wide.codes.encode(queries))
    answers = explain(loaded, read.codes.encode(queries))
    assert any(answers)
    for [answer], [expected_answer] in zip(answers, expected, strict=True):
        assert answer.region == expected_answer.region
        assert answer.distance == expected_answer.distance
        assert np.array_equal(answer.point, expected_answer.point)
