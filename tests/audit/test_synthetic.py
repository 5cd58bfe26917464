"""Made-up populations are what they are said to be, and at the paper's size show the paper's pattern."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cfk_plugin.audit.membership import HypercubePopulation, membership
from cfk_plugin.audit.result import AttackReport
from cfk_plugin.errors import InputError
from small_owner import LinearOwner


@pytest.mark.parametrize("d", [2, 50, 150])
def test_two_clouds_of_unit_variance_stand_at_vertices_of_a_cube(d: int) -> None:
    population = HypercubePopulation(d=d, separation=4.0, seed=3)
    centres = population.centres
    assert np.linalg.norm(centres[0] - centres[1]) == pytest.approx(4.0)
    assert len(np.unique(np.abs(centres).round(12))) == 1  # every coordinate is half a side from the middle
    people = population.draw(20_000, seed=1)
    X = people.X.to_numpy()
    for kind in (False, True):
        own = X[people.y == kind]
        assert np.abs(own.mean(axis=0) - centres[int(kind)]).max() < 5 / np.sqrt(len(own))
        assert np.abs(own.std(axis=0) - 1).max() < 5 / np.sqrt(2 * len(own))
    towards = centres[1] - centres[0]
    right = ((X @ towards > 0) == people.y).mean()
    assert right == pytest.approx(stats.norm.cdf(2.0), abs=0.005)
    assert people.y.mean() == pytest.approx(0.5, abs=0.02)


def test_populations_and_draws_are_seeded() -> None:
    one = HypercubePopulation(d=20)
    assert one.draw(5, 1).X.equals(HypercubePopulation(d=20).draw(5, 1).X)
    assert not one.draw(5, 1).X.equals(one.draw(5, 2).X)
    assert not np.array_equal(one.centres, HypercubePopulation(d=20, seed=1).centres)
    pairs = [HypercubePopulation(d=2, seed=seed).centres for seed in range(9)]  # of four vertices
    assert all(first.tolist() != second.tolist() for first, second in pairs)


@pytest.mark.parametrize("wrong", [{"d": 1}, {"d": 5, "separation": 0.0}, {"d": 5, "separation": float("inf")}])
def test_impossible_populations_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        HypercubePopulation(**wrong)  # type: ignore[arg-type]


def attack(d: int) -> AttackReport:
    sample = HypercubePopulation(d=d).draw(20_000, seed=1)
    return membership(LinearOwner(), sample, n_train=5_000, attacked=5_000, distance="l1")


@pytest.mark.slow
def test_at_the_size_of_the_paper_leaks_grow_with_features_and_the_ratio_test_leads_at_few_alarms() -> None:
    few, many = attack(100), attack(5000)
    cfd, ratio = "membership_cfd", "membership_cfd_lrt"
    assert few[cfd].main.low < 0.5 < few[cfd].main.high
    assert many[cfd].main.low > few[cfd].main.high
    assert many[ratio].main.low > few[ratio].main.high
    assert many[ratio].main.low > many[cfd].main.high
    assert many[ratio].figures["tpr_at_0_01_low"] > many[cfd].figures["tpr_at_0_01_high"]
    assert many[ratio].figures["tpr_at_0_01_low"] > 0.01
    assert few[ratio].main.high < 0.53
