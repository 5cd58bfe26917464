"""The fixed partition: groups of enough people, regions that hold them, and nothing that a query could change."""

from __future__ import annotations

import pickle
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Interval, KAnonymizer, Population, PrivacyPolicy, Region
from cfk_plugin.errors import PopulationError
from cfk_plugin.metrics import t_closeness
from cfk_plugin.protection.groups import partition_of
from cfk_plugin.protection.partition import Partition
from random_tables import described, random_table

TABLES = [(seed, subject) for seed in range(14) for subject in (False, True)]


def model(rows: pd.DataFrame) -> np.ndarray:
    return (rows["pay"] >= 3).to_numpy().astype(int)


def three(rows: pd.DataFrame) -> np.ndarray:
    return np.asarray(["none", "some", "much"], dtype=object)[rows["pay"].to_numpy(dtype=int) // 2]


def people(train: pd.DataFrame, *, subject: bool) -> int:
    return int(train["person"].nunique()) if subject else len(train)


def policy_for(train: pd.DataFrame, seed: int, *, subject: bool, **settings: Any) -> PrivacyPolicy:
    k = int(np.random.default_rng(seed + 100).integers(2, max(3, people(train, subject=subject) // 3)))
    return PrivacyPolicy(k=k, **settings)


def check_groups(partition: Partition, train: pd.DataFrame, k: int, *, subject: bool) -> None:
    """Check, in plain pandas, the people of every group, that its region holds them, and that equals stay together."""
    assert partition.group_of_row.shape == (len(train),)
    assert set(partition.group_of_row.tolist()) - {-1} == set(range(len(partition.regions)))
    assert len(partition.side_of_group) == len(partition.regions)
    quasi = list(partition.population.schema.quasi_identifiers)
    for group, region in enumerate(partition.regions):
        members = train[partition.group_of_row == group]
        assert people(members, subject=subject) >= k
        assert all(region.contains(row) for row in members[quasi].to_dict("records"))
    grouped = np.flatnonzero(partition.group_of_row >= 0)
    own = partition.group_of_row[grouped]
    coded = partition.population.encode(train.iloc[grouped])
    assert partition.group_of(*coded, partition.side_of_group[own]).tolist() == own.tolist()


def spelled(train: pd.DataFrame, names: list[str]) -> list[tuple[str, ...]]:
    return [tuple(map(str, row)) for row in train[names].itertuples(index=False, name=None)]


@pytest.mark.parametrize(("seed", "subject"), TABLES)
def test_every_group_has_k_people_whom_its_region_holds(seed: int, subject: bool) -> None:
    train = random_table(seed)
    population, policy = described(train, subject=subject), policy_for(train, seed, subject=subject)
    partition = partition_of(population, policy)
    check_groups(partition, train, policy.k, subject=subject)
    assert (partition.group_of_row >= 0).all()
    group_of: dict[tuple[str, ...], int] = {}
    for record, group in zip(spelled(train, list(population.schema.features)), partition.group_of_row, strict=True):
        assert group_of.setdefault(record, int(group)) == group
    for region in set(partition.regions):
        groups = [g for g, other in enumerate(partition.regions) if other == region]
        mapped = np.flatnonzero(np.isin(partition.group_of_row, groups))
        assert partition.rows_mapped_to(region).tolist() == mapped.tolist()
    names = population.schema.quasi_identifiers
    elsewhere = Region({name: next(iter(partition.regions))[name] for name in names[1:]})
    assert len(partition.rows_mapped_to(elsewhere)) == 0


@pytest.mark.parametrize(("seed", "subject"), TABLES[::3])
def test_diversity_and_closeness_hold_in_every_group(seed: int, subject: bool) -> None:
    train = random_table(seed)
    population = described(train, subject=subject)
    policy = policy_for(train, seed, subject=subject, l=3, t=0.45)
    partition = partition_of(population, policy)
    check_groups(partition, train, policy.k, subject=subject)
    assert partition.regions
    for group in range(len(partition.regions)):
        illness = train.loc[partition.group_of_row == group, "illness"]
        assert illness.nunique() >= 3
        assert t_closeness(illness, train["illness"], ordered=False) <= 0.45


def test_what_cannot_be_diverse_has_no_group() -> None:
    train = random_table(1)
    partition = partition_of(described(train), PrivacyPolicy(k=2, l=5))
    assert len(partition.regions) == 0
    assert set(partition.group_of_row.tolist()) == {-1}
    assert repr(partition) == "Partition(0 groups, 0 rows)"


@pytest.mark.parametrize(("seed", "subject"), TABLES)
def test_sides_are_not_mixed_and_too_small_ones_have_no_group(seed: int, subject: bool) -> None:
    train = random_table(seed)
    population, policy = described(train, subject=subject), policy_for(train, seed, subject=subject)
    rng = np.random.default_rng(seed)
    sides = rng.choice([-1, 0, 1, 2], len(train), p=[0.2, 0.45, 0.3, 0.05])
    side_of: dict[tuple[str, ...], int] = {}  # equal records have equal predictions
    records = spelled(train, list(population.schema.features))
    sides = np.array([side_of.setdefault(r, int(side)) for r, side in zip(records, sides, strict=True)])
    partition = partition_of(population, policy, sides)
    check_groups(partition, train, policy.k, subject=subject)
    for side in (0, 1, 2):
        rows = np.flatnonzero(sides == side)
        groups = set(partition.group_of_row[rows].tolist())
        if people(train.iloc[rows], subject=subject) < policy.k:
            assert groups <= {-1}
        else:
            assert -1 not in groups
            assert {int(partition.side_of_group[group]) for group in groups} == {side}
    assert set(partition.group_of_row[sides == -1].tolist()) <= {-1}


def test_no_side_is_large_enough() -> None:
    train = random_table(2)
    population = described(train)
    partition = partition_of(population, PrivacyPolicy(k=3), np.full(len(train), -1))
    assert len(partition.regions) == 0
    codes, numbers = population.encode(train.head(3))
    assert partition.group_of(codes, numbers, np.zeros(3, dtype=np.int64)).tolist() == [-1, -1, -1]


def fitted(population: Population, policy: PrivacyPolicy, answer: Any = model, desired: Any = 1) -> KAnonymizer:
    return KAnonymizer(policy=policy).fit(population, model=answer, desired=desired)


SETTINGS: list[tuple[dict[str, Any], Any, Any]] = [
    ({}, model, 1),
    ({"objective": "ncp"}, model, "opposite"),
    ({"anonymity_set": "eligible"}, model, 1),
    ({"anonymity_set": "eligible"}, three, "opposite"),
    ({"anonymity_set": "eligible"}, three, lambda labels: labels != "none"),
    ({"guarantee": "catalogue"}, three, "much"),
    ({"guarantee": "catalogue", "l": 2}, three, "opposite"),
]


@pytest.mark.parametrize("setting", range(len(SETTINGS)))
@pytest.mark.parametrize(("seed", "subject"), TABLES[::5])
def test_giving_every_row_leaves_k_people_per_region(seed: int, subject: bool, setting: int) -> None:
    """What an adversary does who reruns the protection for everybody: alone, in batches, in any order."""
    settings, answer, desired = SETTINGS[setting]
    train = random_table(seed)
    population, policy = described(train, subject=subject), policy_for(train, seed, subject=subject, **settings)
    anonymizer = fitted(population, policy, answer, desired)
    regions = anonymizer.regions_of(train)
    labels = answer(train)
    counted = np.ones(len(train), dtype=bool)
    if policy.counts_eligible and desired != "opposite":
        counted = desired(labels) if callable(desired) else labels == desired
    mapped: dict[Region, list[int]] = defaultdict(list)
    quasi = list(population.schema.quasi_identifiers)
    for i, region in enumerate(regions):
        if region is not None and counted[i]:
            mapped[region].append(i)
    for region, rows in mapped.items():
        crowd = train.iloc[rows]
        own_sides = (
            [labels[rows] == side for side in set(labels)]
            if policy.counts_eligible and desired == "opposite"
            else [np.ones(len(rows), dtype=bool)]
        )
        for side in own_sides:
            assert not side.any() or people(crowd[side], subject=subject) >= policy.k
        assert all(region.contains(row) for row in crowd[quasi].to_dict("records"))
    order = np.random.default_rng(seed).permutation(len(train))
    again = anonymizer.regions_of(train.iloc[order])
    assert [again[i] for i in np.argsort(order)] == regions
    alone = [anonymizer.regions_of(train.iloc[[i]])[0] for i in range(0, len(train), 3)]
    assert alone == regions[::3]
    halves = anonymizer.regions_of(train.head(7)) + anonymizer.regions_of(train.iloc[7:])
    assert halves == regions


def test_what_is_no_training_row_is_treated_as_one_of_the_nearest_people() -> None:
    train = random_table(0)
    anonymizer = fitted(described(train), PrivacyPolicy(k=4))
    strangers = train.head(20).copy()
    strangers["pay"] = 1000
    regions = anonymizer.regions_of(strangers)
    partition = anonymizer.guarantee_.partition
    assert partition is not None
    assert set(regions) <= set(partition.regions)
    assert [anonymizer.regions_of(strangers.iloc[[i]])[0] for i in range(20)] == regions
    quasi = list(anonymizer.population_.schema.quasi_identifiers)
    everybody = anonymizer.regions_of(train)
    for (_, row), region in zip(strangers.iterrows(), regions, strict=True):
        assert region is not None
        assert region.contains(row[quasi].to_dict())
        alike = (spelled(train, quasi) == np.array([spelled(row.to_frame().T, quasi)[0]])).all(axis=1)
        assert region in {everybody[i] for i in np.flatnonzero(alike)}


def test_strangers_of_a_divided_cell_are_in_each_group_about_as_often_as_its_people() -> None:
    n, draws = 18, 12
    train = pd.DataFrame({"q_whole": np.repeat([0, 1], [n, 3]), "pay": np.arange(n + 3), "illness": "a"})
    train = train.assign(person=np.arange(n + 3))
    shares, found = [], []
    for draw in range(draws):  # over keys, as whoever does not know it sees them
        table = train.assign(pay=train["pay"] + 100 * draw)
        anonymizer = fitted(described(table), PrivacyPolicy(k=5), answer=lambda x: np.ones(len(x), dtype=int))
        small = anonymizer.regions_of(table.tail(1))[0]
        shares += [region == small for region in anonymizer.regions_of(table.head(n))]
        strangers = table.head(n).assign(pay=table["pay"].to_numpy()[:n][::-1], illness="b")
        found += [region == small for region in anonymizer.regions_of(strangers)]
    assert 0 < np.mean(shares) < 0.5, "a few of the crowded cell make the three others up to k"
    assert np.mean(found) == pytest.approx(np.mean(shares), abs=0.12)


@pytest.mark.parametrize("key", [None, "a secret"])
@pytest.mark.parametrize(("seed", "subject"), [*TABLES[::3], (21, False), (22, True)])
def test_the_order_of_the_table_does_not_matter(
    seed: int, subject: bool, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CFK_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("CFK_KEY", key)
    train = random_table(seed)
    policy = policy_for(train, seed, subject=subject)
    order = np.random.default_rng(seed).permutation(len(train))
    shuffled = train.iloc[order].reset_index(drop=True)
    first = partition_of(described(train, subject=subject), policy)
    second = partition_of(described(shuffled, subject=subject), policy)
    assert [first.regions[g] for g in first.group_of_row[order]] == [second.regions[g] for g in second.group_of_row]


def test_the_key_decides_who_of_a_crowded_cell_goes_where(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    train = pd.DataFrame({"q_whole": np.repeat([0, 1, 9], [14, 3, 33]), "pay": np.arange(50), "illness": "a"})
    train = train.assign(person=rng.permutation(50))
    policy = PrivacyPolicy(k=5)

    def groups(key: str | None) -> list[int]:
        monkeypatch.delenv("CFK_KEY", raising=False)
        if key is not None:
            monkeypatch.setenv("CFK_KEY", key)
        found: list[int] = partition_of(described(train), policy).group_of_row.tolist()
        return found

    assert groups(None) == groups(None)
    assert groups("one") == groups("one")
    assert len({tuple(groups(key)) for key in (None, "one", "two", "three", "four")}) > 1


def test_is_built_once_and_shared() -> None:
    train = random_table(3)
    population = described(train)
    policy = PrivacyPolicy(k=4)
    assert partition_of(population, policy) is partition_of(population, PrivacyPolicy(k=4, max_ncp=0.5))
    assert partition_of(population, policy) is not partition_of(population, PrivacyPolicy(k=5))
    assert partition_of(population, policy) is not partition_of(described(train), policy)


def test_shows_counts_alone_and_refuses_pickle() -> None:
    train = random_table(4)
    partition = partition_of(described(train), PrivacyPolicy(k=4))
    assert repr(partition) == str(partition) == f"Partition({len(partition.regions)} groups, {len(train)} rows)"
    with pytest.raises(PopulationError, match="pickle"):
        pickle.dumps(partition)


def test_a_row_of_another_side_gets_a_region_of_the_side_that_is_asked_for() -> None:
    train = pd.DataFrame({"q_whole": np.arange(20), "pay": 1, "illness": "a", "person": np.arange(20)})
    population = described(train)
    partition = partition_of(population, PrivacyPolicy(k=5), np.repeat([0, 1], 10))
    groups = partition.group_of(*population.encode(train), np.ones(20, dtype=np.int64))
    assert set(partition.side_of_group[groups].tolist()) == {1}
    low = min(partition.regions[g]["q_whole"].low for g in groups)  # type: ignore[union-attr]
    assert low == 10
    assert isinstance(partition.regions[groups[0]]["q_whole"], Interval)
