"""Attacks on one person: each succeeds on the control, and fails on shared private values.

The control releases exact private values and starts its search at the row that the explainer
returns. The other configuration releases shared private values and starts at the query. A test that
only fails to break that would show nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from borrowers import (
    EXACT_AMOUNTS,
    FAR_APART,
    MOST_KNOWN,
    MOST_PRIVATE,
    Columns,
    Lender,
    borrowers,
)
from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import Population, Schema
from cfk_plugin.audit.scenario import Scenario, Service
from cfk_plugin.audit.steering import pose_as_victims
from cfk_plugin.audit.trilateration import trilaterate
from one_person import Configuration, control, publish, serve, shared
from person_attacks import (
    Catalogue,
    known_numbers_membership,
    moves_from,
    moves_membership,
    name_owners,
    public_moves,
    published_membership,
)

K = 10
MANY = 800  # as many people as there are
SEEDS = (0, 1, 2)
MOST_AREA = 0.6
NOISE = 0.05  # two standard errors of a chance of 1/k over 150 attempts


@dataclass(frozen=True, eq=False, repr=False)
class Attacked:
    """A table under attack in both configurations."""

    seed: int
    columns: Columns
    scenario: Scenario
    explainer: NearestUnlikeNeighbour
    control: Service
    shared: Service


def population_of(seed: int, columns: Columns, key: int) -> Population:
    rows = borrowers(columns, np.random.default_rng([seed, 0]))
    schema = Schema.from_frame(rows, quasi_identifiers=columns.quasi_identifiers)
    return Population.from_frame(rows, schema, key=bytes([seed, key]) * 16)


@cache
def attacked(seed: int, columns: Columns) -> Attacked:
    model = Lender()
    population = population_of(seed, columns, 0)
    scenario = Scenario(
        population=population,
        model=model,
        desired=1,
        outsiders=borrowers(columns, np.random.default_rng([seed, 1])),
    )
    explainer = NearestUnlikeNeighbour(population.frame, model, desired=1)
    return Attacked(
        seed=seed,
        columns=columns,
        scenario=scenario,
        explainer=explainer,
        control=serve(scenario, explainer, control(K)),
        shared=serve(scenario, explainer, shared(K)),
    )


def seeded() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("seed", SEEDS)
def test_posing_as_a_victim_gets_the_victims_row_only_from_the_control(seed: int) -> None:
    table = attacked(seed, MOST_KNOWN)
    leaking = pose_as_victims(table.scenario, table.control, MANY, seeded())
    assert leaking.n_attempts > 100
    assert leaking.chance > 2 * leaking.lookup
    protected = pose_as_victims(table.scenario, table.shared, MANY, seeded())
    assert protected.n_attempts > 100
    assert protected.chance < 1 / K + NOISE
    assert protected.n_answered == protected.n_queries


@pytest.mark.parametrize("seed", SEEDS)
def test_regions_name_the_owner_of_published_values_only_for_the_control(seed: int) -> None:
    table = attacked(seed, FAR_APART)
    leaking = trilaterate(table.scenario, table.control, 8, 12, seeded())
    assert leaking.n_attempts == 8
    assert leaking.chance > 3 * leaking.lookup
    protected = trilaterate(table.scenario, table.shared, 8, 12, seeded())
    assert protected.n_attempts == 8
    assert protected.chance < 1 / K + NOISE
    assert protected.n_answered == protected.n_queries


@pytest.mark.parametrize("seed", SEEDS)
def test_published_entries_tell_members_only_in_the_control(seed: int) -> None:
    table = attacked(seed, MOST_PRIVATE)
    leaking = published_membership(table.scenario, table.control, MANY, seeded())
    assert leaking.auc > 0.9
    protected = published_membership(table.scenario, table.shared, MANY, seeded())
    assert protected.auc < MOST_AREA


@pytest.mark.parametrize("seed", SEEDS)
def test_moves_tell_members_only_by_their_earlier_definition(seed: int) -> None:
    table = attacked(seed, MOST_PRIVATE)
    by_row = moves_from(table.explainer.explain)
    leaking = moves_membership(table.scenario, table.control, by_row, 80, seeded())
    assert leaking.auc > 0.9
    protected = moves_membership(table.scenario, table.shared, public_moves, 80, seeded())
    assert protected.auc < MOST_AREA
    assert protected.n_answered == protected.n_queries


@pytest.mark.parametrize("seed", SEEDS)
def test_known_numbers_tell_members_of_the_control(seed: int) -> None:
    table = attacked(seed, EXACT_AMOUNTS)
    leaking = known_numbers_membership(table.scenario, table.control, MANY, seeded())
    assert leaking.auc > 0.8


@pytest.mark.parametrize("seed", SEEDS)
def test_known_numbers_tell_no_members_if_values_are_shared(seed: int) -> None:
    table = attacked(seed, EXACT_AMOUNTS)
    protected = known_numbers_membership(table.scenario, table.shared, MANY, seeded())
    assert protected.auc < MOST_AREA


def catalogues(table: Attacked, configure: Callable[[int], Configuration]) -> list[Catalogue]:
    """Publish the table again and again, with another k, model and key each time."""
    return [
        publish(
            population_of(table.seed, table.columns, 1 + number),
            Lender(24_000 + 250 * number),
            1,
            configure(K + number),
        )
        for number in range(5)
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_several_catalogues_name_the_owner_of_a_number_only_if_values_are_exact(seed: int) -> None:
    table = attacked(seed, EXACT_AMOUNTS)
    leaking = name_owners(table.scenario, catalogues(table, control))
    assert leaking.n_attempts > 100
    assert leaking.chance > 2 * leaking.lookup
    protected = name_owners(table.scenario, catalogues(table, shared))
    assert not protected.chance > 1 / K  # without any such number, there is nothing to name


@pytest.mark.parametrize("seed", SEEDS)
def test_one_catalogue_names_the_owner_of_a_number_only_if_values_are_exact(seed: int) -> None:
    table = attacked(seed, EXACT_AMOUNTS)
    leaking = Catalogue(table.control.published, table.scenario.has_outcome)
    protected = Catalogue(table.shared.published, table.scenario.has_outcome)
    by_exact = name_owners(table.scenario, [leaking]).chance
    assert by_exact > 0.5 / K
    assert not name_owners(table.scenario, [protected]).chance > by_exact / 3
