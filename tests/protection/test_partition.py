"""The fixed partition: regions of enough people for everybody, whatever is asked, in whatever
order, and by whom.
"""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Region, Schema
from cfk_plugin.errors import InputError
from cfk_plugin.metrics import ncp, t_closeness
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.protection.partition import microaggregation as groups
from cfk_plugin.protection.partition import neighbors
from cfk_plugin.protection.partition.region_distance import RegionDistance
from every_part import parts_with, people, plain
from random_tables import described, random_table


def model(rows: pd.DataFrame) -> np.ndarray:
    return (rows["pay"] >= 3).to_numpy().astype(int)


def everybody_has_it(rows: pd.DataFrame) -> np.ndarray:
    return np.ones(len(rows), dtype=int)


def three(rows: pd.DataFrame) -> np.ndarray:
    return np.asarray(["none", "some", "much"], dtype=object)[
        (rows["pay"].to_numpy(dtype=int) // 2).clip(0, 2)
    ]


def fitted(
    population: Population, answer: Any = everybody_has_it, desired: Any = 1, **policy: Any
) -> KAnonymizer:
    rules = PrivacyPolicy(**{"min_pureness": 0, **policy})
    return KAnonymizer(policy=rules).fit(population, model=answer, desired=desired)


def k_for(train: pd.DataFrame, seed: int, *, subject: bool) -> int:
    people = train["person"].nunique() if subject else len(train)
    return int(np.random.default_rng(seed + 100).integers(2, max(3, people // 3)))


SETTINGS: list[tuple[dict[str, Any], Any, Any]] = [
    ({}, everybody_has_it, 1),
    ({"objective": "ncp"}, model, "opposite"),
    ({}, model, 1),
    ({}, three, "much"),
    ({}, three, "opposite"),
    ({}, three, lambda labels: labels != "none"),
    ({"l": 2}, three, "opposite"),
]


@pytest.mark.parametrize("setting", range(len(SETTINGS)))
@pytest.mark.parametrize(("seed", "subject"), [(0, False), (3, True), (8, True), (10, False)])
def test_giving_every_row_leaves_k_people_per_region(
    seed: int, subject: bool, setting: int
) -> None:
    """What an adversary does who reruns the protection for everybody: alone, in batches, in any
    order.
    """
    policy, answer, desired = SETTINGS[setting]
    train, labels = random_table(seed), answer(random_table(seed))
    population, k = described(train, subject=subject), k_for(train, seed, subject=subject)
    anonymizer = fitted(population, answer, desired, k=k, **policy)
    regions = anonymizer.regions_of(train)
    everybody, own_side = np.ones(len(train), dtype=bool), np.zeros(len(train), dtype=int)
    if anonymizer.policy.counts_eligible and desired == "opposite":
        own_side = pd.factorize(labels)[0]
    elif anonymizer.policy.counts_eligible:
        everybody = desired(labels) if callable(desired) else labels == desired
    crowds: dict[Any, list[int]] = defaultdict(list)
    for i, region in enumerate(regions):
        if region is None:
            assert policy, "there is a group for everybody where nothing but k is asked for"
        elif everybody[i]:
            crowds[region, own_side[i]].append(i)
    quasi = list(population.schema.quasi_identifiers)
    for (region, _), rows in crowds.items():
        crowd = train.iloc[rows]
        assert (crowd["person"].nunique() if subject else len(crowd)) >= k
        assert all(region.contains(row) for row in crowd[quasi].to_dict("records"))
        assert crowd["illness"].nunique() >= policy.get("l", 1)
        assert t_closeness(crowd["illness"], train["illness"], ordered=False) <= policy.get("t", 1)
    of_record = defaultdict(set)
    for row, region in zip(
        train[list(population.schema.features)].itertuples(index=False), regions, strict=True
    ):
        of_record[tuple(map(str, row))].add(region)
    assert max(map(len, of_record.values())) == 1, "equal records stay together"
    order = np.random.default_rng(seed).permutation(len(train))
    again = anonymizer.regions_of(train.iloc[order])
    assert [again[i] for i in np.argsort(order)] == regions
    assert [anonymizer.regions_of(train.iloc[[i]])[0] for i in range(0, len(train), 9)] == regions[
        ::9
    ]
    assert anonymizer.regions_of(train.head(7)) + anonymizer.regions_of(train.iloc[7:]) == regions


def test_whom_no_group_can_hide_has_no_region() -> None:
    train = random_table(1)
    much = three(train) == "much"
    few = fitted(described(train), three, "opposite", k=int(much.sum()) + 1)
    assert set(few.regions_of(train[much])) == {None}
    assert set(few.regions_of(train[~much])) != {None}


def test_the_certificate_counts_whom_rerunning_leaves() -> None:
    train = random_table(8)
    anonymizer = fitted(described(train, subject=True), k=6)
    everybody = pd.Series(anonymizer.regions_of(train))
    for entry in anonymizer.transform(train.head(9).assign(pay=5)).released:
        assert (
            entry.recount.k_effective
            == train.loc[everybody == entry.region, "person"].nunique()
            >= 6
        )


# --- who is nobody in the table -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "compared"), [(3, 0), (6, 0), (9, 0), (4, 0), (4, 999), (15, 999)]
)
def test_a_stranger_is_treated_as_one_of_the_nearest_people(
    seed: int, compared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of more combinations a tree tells which are near
    monkeypatch.setattr(neighbors, "_COMPARED", compared)
    train, rng = random_table(seed), np.random.default_rng(seed)
    anonymizer = fitted(described(train), k=4)
    quasi = list(anonymizer.population_.schema.quasi_identifiers)
    mixed = pd.DataFrame(
        {name: train[name].sample(40, replace=True, random_state=rng).array for name in quasi}
    )
    strangers = train.sample(40, replace=True, random_state=1, ignore_index=True).assign(
        pay=1000, **mixed
    )
    for name in {"q_whole", "q_real"} & set(quasi):
        strangers[name] += rng.choice([0, 0.5, 900], 40)
    everybody, regions = anonymizer.regions_of(train), anonymizer.regions_of(strangers)
    apart = Heom.fit(train[quasi]).distances(strangers[quasi], train[quasi])
    for near, region in zip(apart, regions, strict=True):
        assert region in {everybody[i] for i in np.flatnonzero(near <= near.min() + 1e-9)}
    assert [anonymizer.regions_of(strangers.iloc[[i]])[0] for i in range(0, 40, 5)] == regions[::5]


def test_strangers_of_a_divided_cell_are_in_each_group_about_as_often_as_its_people() -> None:
    n, draws = 18, 12
    train = pd.DataFrame(
        {"q_whole": np.repeat([0, 1], [n, 3]), "pay": np.arange(n + 3), "illness": "a"}
    )
    train = train.assign(person=np.arange(n + 3))
    shares, found = [], []
    for draw in range(draws):  # over keys, as whoever does not know it sees them
        table = train.assign(pay=train["pay"] + 100 * draw)
        anonymizer = fitted(described(table), lambda rows: np.ones(len(rows), dtype=int), k=5)
        small = anonymizer.regions_of(table.tail(1))[0]
        shares += [region == small for region in anonymizer.regions_of(table.head(n))]
        strangers = table.head(n).assign(pay=table["pay"].to_numpy()[:n][::-1], illness="b")
        found += [region == small for region in anonymizer.regions_of(strangers)]
    assert 0 < np.mean(shares) < 0.5, "a few of the crowded cell make the three others up to k"
    assert np.mean(found) == pytest.approx(np.mean(shares), abs=0.12)


def test_a_row_of_another_outcome_gets_a_region_of_the_people_with_its_own() -> None:
    train = pd.DataFrame(
        {"q_whole": np.arange(20), "pay": np.repeat([0, 1], 10), "illness": "a", "person": 0}
    )
    anonymizer = fitted(
        described(train),
        lambda rows: rows["pay"].to_numpy(),
        "opposite",
        k=5,
    )
    regions = anonymizer.regions_of(train.assign(pay=1))
    assert min(region["q_whole"].low for region in regions) == 10  # type: ignore[union-attr, index]


# --- order and key --------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "a secret"])
@pytest.mark.parametrize(("seed", "subject"), [(9, False), (12, True), (21, False), (22, True)])
def test_the_order_of_the_table_does_not_matter(
    seed: int, subject: bool, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFK_KEY", key or "")
    train = random_table(seed)
    shuffled = train.sample(frac=1, random_state=seed, ignore_index=True)
    k = k_for(train, seed, subject=subject)
    first, second = (fitted(described(table, subject=subject), k=k) for table in (train, shuffled))
    assert first.regions_of(train) == second.regions_of(train)


def test_the_key_decides_who_of_a_crowded_cell_goes_where(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    train = pd.DataFrame(
        {"q_whole": np.repeat([0, 1, 9], [14, 3, 33]), "pay": np.arange(50), "illness": "a"}
    )
    train = train.assign(person=rng.permutation(50))

    def regions(key: str) -> list[Region | None]:
        monkeypatch.setenv("CFK_KEY", key)
        return fitted(described(train), k=5).regions_of(train)

    assert regions("") == regions("")
    assert regions("one") == regions("one")
    found = [regions(key) for key in ("", "one", "two", "three", "four")]
    assert any(other != found[0] for other in found)
    assert all(Counter(other) == Counter(found[0]) for other in found)


# --- which groups ---------------------------------------------------------------------------------


@pytest.mark.full_search
@pytest.mark.parametrize(
    ("people", "k", "regions"),
    [
        ({0: 1, 1: 1, 9: 1, 10: 1}, 2, {"0–1": 2, "9–10": 2}),  # neighbours share a group
        # a large cell lends people and keeps k
        ({0: 2, 1: 9, 10: 8}, 5, {"0–1": 5, "1": 6, "10": 8}),
        ({0: 2, 1: 2, 2: 2}, 3, {"0–1": 3, "1–2": 3}),  # a cell is split where that helps
        # a large cell is taken whole where nobody else is left
        ({0: 2, 3: 5, 9: 5}, 5, {"0–3": 7, "9": 5}),
        # each from the large cell near by
        ({0: 2, 1: 9, 99: 9, 100: 2}, 5, {"0–1": 5, "1": 6, "99": 6, "99–100": 5}),
        ({0: 1, 2: 2, 4: 1}, 4, {"0–4": 4}),  # as few as k people are one group
        # missing values keep apart from numbers
        ({0: 1, 4: 1, np.nan: 2}, 2, {"0–4": 2, "missing": 2}),
    ],
)
def test_groups_by_hand(people: dict[float, int], k: int, regions: dict[str, int]) -> None:
    train = pd.DataFrame(
        {"age": np.repeat([*people], [*people.values()]), "pay": range(sum(people.values()))}
    )
    anonymizer = fitted(
        Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=["age"])), k=k
    )
    assert Counter(str(r["age"]) for r in anonymizer.regions_of(train) if r is not None) == regions


def least_loss(population: Population, k: int) -> float:
    """Return the mean loss of the best of all divisions into groups of k people, each priced by its
    least region.
    """
    table, schema, n = population.frame, population.schema, population.n_rows
    best = [0.0] + [np.inf] * (2**n - 1)
    for mask in range(1, 2**n):
        members = [i for i in range(n) if mask >> i & 1]
        if len(members) < k:
            continue
        price = 0.0
        for name in schema.quasi_identifiers:
            values = {plain(value) for value in table[name].iloc[members]}
            parts = parts_with(next(iter(values)), table[name])
            price += schema[name].weight * min(
                loss for inside, loss in parts.items() if values <= inside
            )
        for rest in range(2**n):  # groups join in the order of their masks
            if not rest & mask and best[rest] + price * len(members) < best[rest | mask]:
                best[rest | mask] = best[rest] + price * len(members)
    return best[-1] / n


@pytest.mark.slow
@pytest.mark.full_search
def test_the_loss_is_near_the_least_of_all_partitions_of_a_few_people() -> None:
    ratios = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        population = people(rng, int(rng.integers(4, 8)))
        regions = fitted(population, k=2, objective="ncp").regions_of(population.frame)
        ours, best = (
            np.mean([ncp(region, population) for region in regions if region]),
            least_loss(population, 2),
        )
        assert ours >= best - 1e-9
        ratios.append(ours / best if best else 1.0 + ours)
    assert np.mean(np.array(ratios) < 1 + 1e-9) > 0.8, (
        "a heuristic: mostly the optimum of so few people"
    )
    assert np.mean(ratios) < 1.1


def test_many_combinations_are_divided_block_by_block_whatever_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(4)
    table = pd.DataFrame(
        random.integers(0, (40, 12, 9, 6), (1500, 4)), columns=["age", "hours", "zip", "pay"]
    )
    schema = Schema.from_frame(table, quasi_identifiers=["age", "hours", "zip"], nominal=["zip"])

    def regions(rows: pd.DataFrame) -> list[Region]:
        return fitted(Population.from_frame(rows, schema), k=5, objective="ncp").regions_of(table)  # type: ignore[return-value]

    def loss(found: list[Region]) -> float:
        population = Population.from_frame(table, schema)
        of_region = {region: ncp(region, population) for region in set(found)}
        return float(np.mean([of_region[region] for region in found]))

    whole = regions(table)
    monkeypatch.setattr(groups, "BLOCK", 300)
    blocks = regions(table)
    assert min(Counter(blocks).values()) >= 5
    assert all(
        region.contains(row) for region, row in zip(blocks, table.to_dict("records"), strict=True)
    )
    assert regions(table.sample(frac=1, random_state=1)[["pay", "zip", "age", "hours"]]) == blocks
    assert loss(whole) < loss(blocks) < 1.15 * loss(whole)


def test_groups_that_are_not_diverse_join_their_neighbours() -> None:
    train = pd.DataFrame(
        {"q_whole": [0, 1, 2, 3, 20, 21, 22, 23], "illness": list("aaabbbba"), "pay": 1}
    )
    anonymizer = fitted(described(train.assign(person=0)), k=2, l=2)
    crowds = pd.Series(map(str, anonymizer.regions_of(train))).to_numpy()
    assert all(set(train.loc[crowds == region, "illness"]) == {"a", "b"} for region in set(crowds))
    assert not set(crowds[:4]) & set(crowds[4:]), "no group spans the gap"


def test_is_built_once_shows_counts_alone_and_refuses_pickle() -> None:
    train = random_table(3)
    population = described(train)
    partition = fitted(population, k=4).guarantee_.partition
    assert partition is fitted(population, k=4, max_ncp=0.5).guarantee_.partition
    assert partition is not fitted(population, k=5).guarantee_.partition
    assert partition is not fitted(described(train), k=4).guarantee_.partition
    assert repr(partition) == f"Partition({len(partition.regions)} groups, {len(train)} rows)"
    for holder in (partition, partition.distance):
        with pytest.raises(InputError, match="pickle"):
            pickle.dumps(holder)


def test_a_category_that_nobody_has_is_outside_of_every_region() -> None:
    train = pd.DataFrame({"city": list("ABCD") * 5, "pay": range(20)})
    population = Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=["city"]))
    regions = [Region({"city": frozenset(cities)}) for cities in ("A", "BC", "ABCD")]
    codes, numbers = population.domains["city"].encode(pd.Series(["A", "C", "Z"]))
    found = RegionDistance(population, regions).between(
        codes[:, None], numbers[:, None], np.arange(3)
    )
    assert found.tolist() == [[0, 1.1, 0], [1.1, 0, 0], [1.1, 1.1, 1.1]]
