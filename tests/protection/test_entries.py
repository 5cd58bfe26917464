"""The entries of a catalogue: what was admitted at fit is released."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.protection.catalogue.entries import SearchLimits

LEVELS = ["low", "mid", "high"]
QUASI, PRIVATE = ["age", "city", "grade"], ["pay", "debt", "job"]
K = 4
LIMITS = "cfk_plugin.protection.catalogue.catalogue.SEARCH_LIMITS"


def table(seed: int, n: int = 120) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    train = pd.DataFrame(
        {
            "age": random.integers(10, 30, n) * 2,
            "city": random.choice(list("ABCD"), n),
            "grade": random.choice(LEVELS, n).astype(object),
            "pay": random.integers(1, 12, n) * 5,
            "debt": np.where(random.random(n) < 0.1, np.nan, random.normal(8, 3, n).round(1)),
            "job": random.choice(
                ["clerk", "nurse", "smith", "judge"], n, p=[0.6, 0.25, 0.14, 0.01]
            ),
        }
    )
    return pd.concat([train, train.head(n // 6)], ignore_index=True)


def score(rows: pd.DataFrame) -> np.ndarray:
    bonus = rows["city"].map({"A": 0, "B": 4, "C": -4, "D": 2}).to_numpy(dtype=float)
    job = rows["job"].map({"clerk": 0, "nurse": 3, "smith": -3, "judge": 12}).to_numpy(dtype=float)
    return np.asarray(
        rows["pay"].to_numpy() / 2
        + rows["age"].to_numpy() / 2
        + bonus
        + job
        - rows["debt"].fillna(9) / 4
    )


def two(rows: pd.DataFrame) -> np.ndarray:
    return np.where(score(rows) > 26, "yes", "no")


def three(rows: pd.DataFrame) -> np.ndarray:
    return np.array(["low", "mid", "high"], dtype=object)[np.digitize(score(rows), [24, 44])]


GOALS = [
    (two, "yes"),
    (two, "opposite"),
    (three, "opposite"),
    (three, lambda labels: np.isin(labels, ["mid", "high"])),
]


def fitted(
    train: pd.DataFrame, model: Any = two, desired: Any = "yes", **policy: Any
) -> KAnonymizer:
    schema = Schema.from_frame(train, quasi_identifiers=QUASI, ordinal={"grade": LEVELS})
    rules = PrivacyPolicy(**{"k": K, "guarantee": "catalogue", **policy})
    return KAnonymizer(policy=rules).fit(
        Population.from_frame(train, schema), model=model, desired=desired
    )


def released(anonymizer: KAnonymizer) -> list[Any]:
    """Return every entry of the catalogue as it is released, or why it is withheld."""
    catalogue = anonymizer.guarantee_.catalogue
    assert catalogue is not None
    return [*anonymizer.pipeline_.catalogue_entries(catalogue, np.arange(len(catalogue)))]


@pytest.mark.parametrize(("model", "desired"), GOALS)
def test_whatever_is_in_the_catalogue_is_released(model: Any, desired: Any) -> None:
    for seed in range(2):
        entries = released(fitted(table(seed), model, desired))
        assert {entry.status for entry in entries} <= {"released"}


# --- private values --------------------------------------------------


def people_with(train: pd.DataFrame, private: Any) -> int:
    """Return how many people have exactly some private values."""
    same = [train[n].isna() if pd.isna(v) else train[n] == v for n, v in dict(private).items()]
    return int(train["person"][np.logical_and.reduce(same)].nunique())


def with_people(seed: int) -> pd.DataFrame:
    return table(seed, 240).assign(person=np.random.default_rng(seed).integers(0, 200, 280))


def shared(
    train: pd.DataFrame, model: Any = two, desired: Any = "yes", **policy: Any
) -> KAnonymizer:
    quasi = {"quasi_identifiers": QUASI, "ordinal": {"grade": LEVELS}, "subject": "person"}
    rules = PrivacyPolicy(k=K, guarantee="catalogue", **policy)
    population = Population.from_frame(train, Schema.from_frame(train, **quasi))
    return KAnonymizer(policy=rules).fit(population, model=model, desired=desired)


@pytest.mark.parametrize(("model", "desired"), GOALS)
def test_shared_private_values_are_those_of_k_people_or_of_nobody(model: Any, desired: Any) -> None:
    train = with_people(3)
    entries = released(shared(train, model, desired))
    assert {entry.status for entry in entries} == {"released"}
    held = [people_with(train, entry.released) for entry in entries]
    assert not {*held} & {*range(1, K)}
    assert len({tuple(entry.released.values()) for entry in entries}) > 10
    for entry, count in zip(entries, held, strict=True):
        assert (entry.recount.private_matches > 0) == (count > 0)


@pytest.mark.parametrize("desired", ["yes", "opposite"])
def test_the_model_is_asked_for_twenty_rows_per_row_or_10000_more_to_find_shared_private_values(
    desired: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = with_people(3)
    limits = SearchLimits(centers_per_k=6)  # to reach both
    monkeypatch.setattr(LIMITS, limits)
    assert 20 * len(train) < shared(train, two, desired).model_.rows <= 10 * len(train) + 10_000
    monkeypatch.setattr(LIMITS, replace(limits, least_rows=0))
    assert shared(train, two, desired).model_.rows <= 20 * len(train)


@pytest.mark.parametrize(("model", "desired"), GOALS[:2])
def test_everybody_with_the_outcome_is_in_a_group_with_an_entry_in_a_small_table(
    model: Any, desired: Any
) -> None:
    for seed in range(3):
        catalogue = fitted(table(seed, 240), model, desired, k=5).guarantee_.catalogue
        assert catalogue is not None
        assert set(catalogue.group) == {*range(len(catalogue.partition.regions))}


def test_a_numbers_range_follows_from_the_kth_and_2kth_lowest_and_highest() -> None:
    """Recounted in plain pandas: rounded outwards, to numbers that at least k people have or no one."""
    train = with_people(3).drop_duplicates("person")
    catalogue = shared(train).guarantee_.catalogue
    assert catalogue is not None
    mine = train[two(train) == "yes"]
    for name in ("pay", "debt"):
        numbers = mine[name].dropna().sort_values()
        low, next_low, next_high, high = numbers.iloc[[K - 1, 2 * K - 1, -2 * K, -K]]
        reach = (np.log(K) + np.euler_gamma) / np.log(2)
        lowest = max(low - reach * (next_low - low), 0)
        highest = high + reach * (high - next_high)
        rounded_low, rounded_high = catalogue.ends[name]
        step = (highest - lowest) / 40
        assert lowest - step <= rounded_low <= lowest
        assert highest <= rounded_high <= highest + step
        assert catalogue.domains[name].width == rounded_high - rounded_low
        for end in (rounded_low, rounded_high):
            assert train["person"][train[name] == end].nunique() not in range(1, K)


@pytest.mark.parametrize("anchored", [False, True])
def test_no_answer_has_private_values_of_others_but_those_of_entries(anchored: bool) -> None:
    """Each private value is the query's own, an entry's, or a number on the way from one to the
    other.
    """
    train = with_people(4)
    anonymizer = shared(train)
    asks = train[two(train) == "no"].head(25).drop(columns="person").reset_index(drop=True)
    # each somebody's row
    found = train[two(train) == "yes"].head(25).drop(columns="person").reset_index(drop=True)
    answers = anonymizer.transform(found, asks) if anchored else anonymizer.explain(asks)
    parts = pd.DataFrame([dict(entry.released) for entry in released(anonymizer)])
    assert len(answers.released) > 20
    for entry in answers.released:
        own = asks.iloc[entry.query]
        assert entry.released["job"] in {own["job"], *parts["job"]}
        for name in ("pay", "debt"):
            value, offered = entry.released[name], parts[name].dropna()
            low, high = min(offered.min(), own[name]), max(offered.max(), own[name])
            assert pd.isna(value) or low <= value <= high
        kept = pd.Series(
            {n: value for n, value in entry.released.items() if n not in entry.recount.moved}
        )
        begun = (parts[kept.index] == kept) | (parts[kept.index].isna() & kept.isna())
        assert begun.all(axis=1).any()  # all that is not named is one entry's


def test_whose_row_the_private_values_of_an_answer_are_is_counted_after_moves() -> None:
    train = table(9)
    anonymizer = fitted(train)
    explanations = anonymizer.explain(train[two(train) == "no"])
    assert sum(bool(entry.recount.moved) for entry in explanations.released) > len(explanations) / 2
    for entry in explanations.released:
        assert "moved" not in entry.text()  # of no use to who reads it; the certificate says it
        same = [train[n].isna() if v is None else train[n] == v for n, v in entry.released.items()]
        assert entry.recount.private_matches == np.logical_and.reduce(same).sum()


@pytest.mark.parametrize("depends_on_no_row", [False, True])
def test_a_counterfactuals_own_private_values_stay_where_they_are_nobodys(
    depends_on_no_row: bool,
) -> None:
    train = with_people(5)
    anonymizer = shared(train)
    anonymizer.pipeline_ = replace(anonymizer.pipeline_, depends_on_no_row=depends_on_no_row)
    features = train.drop(columns="person")
    queries = features[two(train) == "no"].head(30)
    counterfactuals = features[two(train) == "yes"].tail(30).reset_index(drop=True)
    private = list(anonymizer.population_.schema.private)
    explanations = anonymizer.transform(counterfactuals, queries)
    assert len(explanations.released) > 20
    assert anonymizer.guarantee_.catalogue is not None
    offered = anonymizer.guarantee_.catalogue.private.to_dict("records")
    n_kept = 0
    for explanation in explanations.generalized:
        own = counterfactuals[private].iloc[explanation.query].to_dict()
        is_offered = False
        for entry in offered:
            is_offered |= all(
                explanation.released[name] == value
                for name, value in entry.items()
                if name not in explanation.recount.moved
            )
        n_kept += not is_offered
        if not depends_on_no_row:
            assert is_offered
        elif not is_offered:
            assert all(
                explanation.released[name] == own[name]
                for name in private
                if name not in explanation.recount.moved
            )
    assert (n_kept > 0) == depends_on_no_row


def test_a_sealed_catalogue_of_shared_private_values_answers_the_same(tmp_path: Path) -> None:
    train = with_people(6)
    anonymizer, asks = shared(train), train.drop(columns="person").head(20)
    anonymizer.seal(tmp_path / "sealed.cfk")
    alone = KAnonymizer().fit(Population.open(tmp_path / "sealed.cfk"), model=two, desired="yes")
    said = [
        (getattr(e, "region", None), getattr(e, "released", None)) for e in anonymizer.explain(asks)
    ]
    assert said == [
        (getattr(e, "region", None), getattr(e, "released", None)) for e in alone.explain(asks)
    ]


def test_shared_private_values_do_not_depend_on_the_order_of_rows() -> None:
    train = with_people(7)
    turned = train.sample(frac=1, random_state=0, ignore_index=True)
    one, other = ([entry.to_dict() for entry in released(shared(each))] for each in (train, turned))
    assert one == other
