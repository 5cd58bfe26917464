"""The catalogue against brute force in plain pandas: which entries there are, and which one answers a query."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from cfk_plugin import Explanations, Interval, KAnonymizer, Population, PrivacyPolicy, Region, Schema, Suppressed
from cfk_plugin.errors import ModelError, NotFittedError, PolicyError, PopulationError
from cfk_plugin.metrics import ncp
from cfk_plugin.protection.catalogue import Catalogue
from cfk_plugin.protection.partition import Partition

CITIES = list("ABCD")
QUASI = ["age", "city"]
PRIVATE = ["pay", "debt", "job"]
FEATURES = [*QUASI, *PRIVATE]
K = 4


def table(seed: int, n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    train = pd.DataFrame(
        {
            "age": rng.integers(18, 70, n),
            "city": rng.choice(CITIES, n),
            "pay": rng.integers(10, 60, n),
            "debt": rng.normal(10, 4, n).round(1),
            "job": rng.choice(["clerk", "nurse", "smith"], n),
        }
    )
    train.loc[rng.random(n) < 0.1, "debt"] = np.nan
    return pd.concat([train, train.head(n // 6)], ignore_index=True)


def score(rows: pd.DataFrame) -> np.ndarray:
    bonus = rows["city"].map({"A": 0, "B": 6, "C": -6, "D": 3}).to_numpy(dtype=float)
    return np.asarray(
        rows["pay"].to_numpy(dtype=float) - rows["debt"].fillna(12).to_numpy() + rows["age"].to_numpy() / 4 + bonus
    )


def two(rows: pd.DataFrame) -> np.ndarray:
    return np.where(score(rows) > 38, "yes", "no")


def three(rows: pd.DataFrame) -> np.ndarray:
    return np.array(["low", "mid", "high"], dtype=object)[np.digitize(score(rows), [28, 45])]


def wants_more(labels: Any) -> Any:
    return np.isin(labels, ["mid", "high"])


GOALS: list[tuple[Any, Any]] = [(two, "yes"), (two, "opposite"), (three, "opposite"), (three, wants_more)]


def fitted(train: pd.DataFrame, model: Any = two, desired: Any = "yes", **policy: Any) -> KAnonymizer:
    schema = Schema.from_frame(train, quasi_identifiers=QUASI, subject="person" if "person" in train else None)
    settings = PrivacyPolicy(guarantee="catalogue", **{"k": K, **policy})
    return KAnonymizer(policy=settings).fit(Population.from_frame(train, schema), model=model, desired=desired)


def built(anonymizer: KAnonymizer) -> tuple[Partition, Catalogue]:
    partition, catalogue = anonymizer.guarantee_.partition, anonymizer.guarantee_.catalogue
    assert partition is not None
    assert catalogue is not None
    return partition, catalogue


def private_part(row: Any) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in PRIVATE)


def brute_force_entries(train: pd.DataFrame, partition: Partition, model: Any, desired: Any) -> dict[Any, int]:
    """Return (group, private part) of every admissible entry, and how many members it is consistent with."""
    entries = {}
    labels = model(train)
    for group in range(len(partition.regions)):
        members = train[partition.group_of_row == group]
        for i, row in members.iterrows():
            swapped = model(members.assign(**{name: row[name] for name in PRIVATE}))
            good = swapped == labels[i] if isinstance(desired, str) and desired == "opposite" else swapped == desired
            good = desired(swapped) if callable(desired) else good
            if good.sum() >= K:
                entries[group, private_part(row)] = int(good.sum())
    return entries


@pytest.mark.parametrize("goal", range(len(GOALS)))
@pytest.mark.parametrize("seed", range(4))
def test_entries_are_those_that_k_members_could_have_had(seed: int, goal: int) -> None:
    model, desired = GOALS[goal]
    train = table(seed)
    partition, catalogue = built(fitted(train, model, desired))
    found = {
        (int(partition.group_of_row[row]), private_part(train.iloc[row])): int(count)
        for row, count in zip(catalogue.rows, catalogue.consistent, strict=True)
    }
    assert len(found) == len(catalogue.rows) == len(catalogue) > 0
    assert found == brute_force_entries(train, partition, model, desired)


def plain_distance(query: Any, region: Region, row: Any, train: pd.DataFrame, loss: float) -> float:
    """Return region and private values against a query, value by value."""
    span = region["age"]
    assert isinstance(span, Interval)
    outside = max(span.low - query["age"], query["age"] - span.high, 0)
    total = outside / (train["age"].max() - train["age"].min()) + (query["city"] not in region["city"])
    for name in ("pay", "debt"):
        a, b = query[name], row[name]
        if pd.isna(a) or pd.isna(b):
            total += pd.isna(a) != pd.isna(b)
        else:
            total += abs(a - b) / (train[name].max() - train[name].min())
    return float(total + (query["job"] != row["job"]) + loss * len(QUASI))


@pytest.mark.parametrize("goal", range(len(GOALS)))
@pytest.mark.parametrize("seed", range(4))
def test_the_answer_is_the_nearest_entry(seed: int, goal: int) -> None:
    model, desired = GOALS[goal]
    train = table(seed)
    anonymizer = fitted(train, model, desired)
    partition, catalogue = built(anonymizer)
    queries = pd.concat([table(seed + 50).head(25), train.head(15)], ignore_index=True)
    queries.loc[:4, "age"] = [0, 200, 17, 90, 44]
    answers, own = anonymizer.explain(queries), model(queries)
    labels = model(train)
    for i, query in enumerate(queries.to_dict("records")):
        offers = []
        for row in catalogue.rows:
            region = partition.regions[partition.group_of_row[row]]
            loss = ncp(region, partition.population)
            if desired != "opposite" or labels[row] != own[i]:
                offers.append((plain_distance(query, region, train.iloc[row], train, loss), loss, row, region))
        entry = answers[i]
        if not offers:
            assert isinstance(entry, Suppressed)
            assert entry.reason == "infeasible"
            continue
        assert not isinstance(entry, Suppressed)
        least = min(offer[0] for offer in offers)
        nearest = [offer for offer in offers if offer[0] <= least + 1e-9]
        best = [offer for offer in nearest if offer[1] <= min(loss for _, loss, _, _ in nearest) + 1e-9]
        assert (entry.region, private_part({name: entry.released.get(name) for name in PRIVATE})) in [
            (region, private_part(train.iloc[row].astype(object).where(train.iloc[row].notna(), None)))
            for _, _, row, region in best
        ]
        assert entry.certificate.k_effective is not None
        assert entry.certificate.k_effective >= K
        assert entry.certificate.k_consistent >= K
        assert entry.certificate.guarantee == "catalogue"


@pytest.mark.parametrize("goal", [1, 2])
def test_the_answer_has_another_outcome_than_the_query(goal: int) -> None:
    model, desired = GOALS[goal]
    train = table(9, 90)
    answers, own = fitted(train, model, desired).explain(train), model(train)
    assert len(answers.released) == len(train)
    for entry in answers.released:
        inside = train[[entry.region.contains(row) for row in train.to_dict("records")]]
        swapped = model(inside.assign(**{name: entry.released[name] for name in PRIVATE}))
        assert (swapped != own[entry.query]).sum() == entry.certificate.k_consistent >= K


def test_counterfactuals_are_replaced_by_the_entry_nearest_to_them() -> None:
    train = table(3)
    anonymizer = fitted(train)
    wanted = table(60)
    wanted = wanted[two(wanted) == "yes"].head(12)
    replaced, answered = anonymizer.transform(wanted), anonymizer.explain(wanted)
    assert len(replaced.released) == len(wanted)
    assert [(e.region, e.released) for e in replaced.released] == [(e.region, e.released) for e in answered.released]


@pytest.mark.parametrize("desired", ["yes", "opposite"])
def test_answers_do_not_depend_on_batch_or_order(desired: str) -> None:
    train = table(5)
    anonymizer = fitted(train, two, desired)
    queries = pd.concat([train.head(12), table(70).head(12)], ignore_index=True)
    whole = [entry.to_dict() for entry in anonymizer.explain(queries)]
    order = np.random.default_rng(0).permutation(len(queries))
    turned = [entry.to_dict() for entry in anonymizer.explain(queries.iloc[order])]
    for place, i in enumerate(order):
        assert turned[place] == {**whole[i], "query": place}
        assert anonymizer.explain(queries.iloc[[i]])[0].to_dict() == {**whole[i], "query": 0}
    assert [entry.to_dict() for entry in anonymizer.explain(queries)] == whole


@pytest.mark.parametrize("subject", [False, True])
def test_the_order_of_the_table_does_not_matter(subject: bool) -> None:
    train = table(6)
    if subject:
        train = train.assign(person=np.random.default_rng(1).integers(0, 45, len(train)))
    order = np.random.default_rng(2).permutation(len(train))
    queries = table(80).head(20)
    here = fitted(train, three, "opposite").explain(queries)
    there = fitted(train.iloc[order].reset_index(drop=True), three, "opposite").explain(queries)
    assert len(here.released) > 10
    assert [e.to_dict() for e in here] == [e.to_dict() for e in there]


def test_people_are_counted_once_however_many_rows_they_have() -> None:
    train = table(7, 90).assign(person=lambda rows: np.arange(len(rows)) // 3)
    anonymizer = fitted(train)
    partition, catalogue = built(anonymizer)
    assert len(catalogue) > 0
    for row, count in zip(catalogue.rows, catalogue.consistent, strict=True):
        members = train[partition.group_of_row == partition.group_of_row[row]]
        swapped = two(members.assign(**{name: train.iloc[row][name] for name in PRIVATE}))
        assert K <= count <= members.loc[swapped == "yes", "person"].nunique()


def test_bad_queries_cost_themselves_alone() -> None:
    train = table(8).fillna({"debt": 5.0})
    numeric = ["age", "pay", "debt"]
    tree = DecisionTreeClassifier(max_depth=4, random_state=0).fit(train[numeric], two(train))

    def careful(rows: pd.DataFrame) -> Any:
        return tree.predict(rows[numeric].astype(float))

    anonymizer = fitted(train, careful, "opposite")
    queries = train.head(6).astype(object).reset_index(drop=True)
    good = anonymizer.explain(queries)
    assert len(good.released) == 6
    queries.loc[0, "age"] = "eighty"
    queries.loc[2, "city"] = "Atlantis"
    queries.loc[3, "pay"] = np.inf
    queries.loc[4, "debt"] = None
    result = anonymizer.explain(queries)
    assert [getattr(entry, "reason", None) for entry in result] == [
        "invalid_value", None, "unknown_category", "invalid_value", "missing_value", None,
    ]  # fmt: skip
    assert result[1] == good[1]
    assert result[5] == good[5]
    every = anonymizer.explain(queries.assign(city="Atlantis"))
    assert {entry.reason for entry in every.suppressed} == {"invalid_value", "unknown_category", "missing_value"}
    assert len(every.suppressed) == 6


def test_no_entry_no_answer() -> None:
    train = table(2)
    hardly = train[score(train) > np.sort(score(train))[-K]]  # fewer than k people have the outcome
    cut = float(score(hardly).min())

    def rich(rows: pd.DataFrame) -> np.ndarray:
        return score(rows) >= cut

    result: Explanations = fitted(train, rich, True).explain(train.head(5))
    assert [entry.reason for entry in result.suppressed] == ["infeasible"] * 5
    replaced = fitted(train, rich, True).transform(hardly)
    assert {entry.reason for entry in replaced.suppressed} == {"infeasible"}
    assert len(replaced.suppressed) == len(replaced)


def test_a_private_value_that_decides_alone_for_few_is_no_entry() -> None:
    """Only one member of the group gets the outcome with the entry's private value, so it would point at them."""
    train = pd.DataFrame({"age": [20, 21, 22, 23, 24, 25], "city": "A", "pay": range(10, 16), "debt": 1.0, "job": "x"})

    def own_code(rows: pd.DataFrame) -> np.ndarray:
        return (rows["pay"] - rows["age"] == -10).to_numpy()

    partition, catalogue = built(fitted(train, own_code, True, k=3))
    assert len(partition.regions) == 2
    assert len(catalogue) == 0


def test_a_failing_model_withholds_everything() -> None:
    train = table(4)
    broken = [False]

    def model(rows: pd.DataFrame) -> Any:
        if broken[0]:
            raise ValueError(str(rows))
        return two(rows)

    anonymizer = fitted(train, model, "opposite")
    broken[0] = True
    result = anonymizer.explain(train.head(3))
    assert [entry.reason for entry in result.suppressed] == ["model_failed"] * 3
    with pytest.raises(ModelError):
        fitted(train, model, "opposite")


def test_explaining_without_a_catalogue_is_refused() -> None:
    train = table(1)
    population = Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=QUASI))
    with pytest.raises(NotFittedError):
        KAnonymizer().explain(train)
    for policy in (PrivacyPolicy(k=K), PrivacyPolicy(k=K, anonymity_set="eligible")):
        anonymizer = KAnonymizer(policy=policy).fit(population, model=two, desired="yes")
        with pytest.raises(PolicyError, match="catalogue"):
            anonymizer.explain(train.head(2))


def test_blocks_give_the_same_as_one_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    train = table(5)
    whole = fitted(train).explain(train.head(20))
    monkeypatch.setattr("cfk_plugin.protection.catalogue._BLOCK", 50)
    monkeypatch.setattr("cfk_plugin.protection.catalogue._ASKED", 40)
    assert fitted(train).explain(train.head(20)) == whole


def test_a_group_offers_a_limited_number_of_private_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfk_plugin.protection.catalogue._ENTRIES", 2)
    partition, catalogue = built(fitted(table(5)))
    groups = partition.group_of_row[catalogue.rows]
    assert np.bincount(groups).max() <= 2
    assert len(catalogue) > 2


def test_schema_without_private_attributes() -> None:
    train = table(5)[QUASI].assign(pay=1)[[*QUASI]]
    schema = Schema.from_frame(train, quasi_identifiers=QUASI)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=K, guarantee="catalogue"))
    anonymizer.fit(Population.from_frame(train, schema), model=lambda rows: rows["age"] > 40, desired=True)
    result = anonymizer.explain(train.head(5))
    assert len(result.released) == 5
    assert all(dict(entry.released) == {} for entry in result.released)


def test_shows_counts_alone_and_refuses_pickle() -> None:
    partition, catalogue = built(fitted(table(5)))
    assert repr(catalogue) == f"Catalogue({len(catalogue)} entries, {len(partition.regions)} groups)"
    with pytest.raises(PopulationError, match="pickle"):
        pickle.dumps(catalogue)
