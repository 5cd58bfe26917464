"""Answers ask for few changes and for round numbers: recounted in plain pandas on small tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Region, Schema, protect
from cfk_plugin.data.sentences import changes_of
from cfk_plugin.errors import InputError
from cfk_plugin.protection.answers.request import SearchOptions
from cfk_plugin.protection.answers.rounding import round_outwards
from cfk_plugin.release.results import GeneralizedCounterfactual

K = 5
QUASI, PRIVATE = ["age", "city"], ["pay", "debt", "savings", "job", "since"]
SEEDS = [0, 1, 2]
FORMER = SearchOptions(change_cost=0.0, rounding=False)


def table(seed: int, n: int = 150) -> pd.DataFrame:
    """Return people with whole, fractional, negative and missing numbers, categories and dates."""
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    debt = rng.normal(10, 4, n).round(2)
    debt[1 + rng.integers(0, n - 1, 8)] = np.nan
    return pd.DataFrame(
        {
            "age": rng.integers(18, 70, n),
            "city": rng.choice(list("ABC"), n),
            "pay": rng.integers(1000, 6000, n),
            "debt": debt,
            "savings": rng.normal(0, 300, n).round(1),
            "job": rng.choice(["clerk", "nurse", "smith"], n),
            "since": days,
        }
    )


def model(rows: pd.DataFrame) -> np.ndarray:
    city = rows["city"].map({"A": 0.0, "B": 400.0, "C": -400.0}).to_numpy(dtype=float)
    score = rows["pay"].to_numpy(dtype=float) - 60 * rows["debt"].fillna(14).to_numpy(dtype=float)
    score += rows["savings"].to_numpy(dtype=float) + 15 * rows["age"].to_numpy(dtype=float) + city
    return np.where(score > 3900, "yes", "no")


def fitted(seed: int, guarantee: str = "catalogue", **options: Any) -> Any:
    train = table(seed)
    population = Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=QUASI))
    policy: Any = PrivacyPolicy(k=K, guarantee=guarantee)  # type: ignore[arg-type]
    return KAnonymizer(policy=policy, **options).fit(population, model, "yes")


def refused(seed: int, n: int = 25) -> pd.DataFrame:
    people = table(seed + 100)
    return people[model(people) == "no"].head(n).reset_index(drop=True)


def with_search(anonymizer: KAnonymizer, search: SearchOptions) -> KAnonymizer:
    """Return the anonymizer, whose catalogue stays the same, with another search."""
    anonymizer.pipeline_ = replace(anonymizer.pipeline_, search=search)
    return anonymizer


def point(entry: GeneralizedCounterfactual, query: dict[str, Any]) -> dict[str, Any]:
    """Return the point of an answer's region nearest to the query, with its private values."""
    age = entry.region["age"]
    city = query["city"]
    if not Region({"city": entry.region["city"]}).contains(query):
        city = min(entry.region["city"])
    near = {"age": min(max(query["age"], age.low), age.high), "city": city}
    return near | {name: entry.released[name] for name in PRIVATE}


def is_same(a: Any, b: Any) -> bool:
    return bool(a == b) or (pd.isna(a) and pd.isna(b))


def n_changes(entry: GeneralizedCounterfactual, query: dict[str, Any]) -> int:
    outside = sum(not Region({n: entry.region[n]}).contains(query) for n in QUASI)
    return outside + sum(not is_same(entry.released[name], query[name]) for name in PRIVATE)


def answered(
    anonymizer: KAnonymizer, queries: pd.DataFrame, **call: Any
) -> Iterator[tuple[dict[str, Any], GeneralizedCounterfactual]]:
    asking = queries.to_dict("records")
    for entry in anonymizer.explain(queries, **call).generalized:
        yield asking[entry.query], entry


CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "three answers": {"answers": 3},
    "two changes": {"max_changes": 2},
    "limits": {
        "features_to_vary": ["age", "pay", "debt", "savings"],
        "permitted_range": {"pay": [1200, 5120], "debt": [1.5, 12.3]},
        "max_changes": 3,
    },
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_answers_are_true_hide_k_people_and_keep_to_what_is_permitted(
    seed: int, call: dict[str, Any]
) -> None:
    anonymizer = fitted(seed)
    train = table(seed)
    queries = refused(seed)
    ranges = call.get("permitted_range", {})
    vary = call.get("features_to_vary", [*QUASI, *PRIVATE])
    n_answers = 0
    for query, entry in answered(anonymizer, queries, **call):
        n_answers += 1
        assert model(pd.DataFrame([point(entry, query)]))[0] == "yes"
        assert min(entry.recount.k_effective or 0, entry.recount.k_consistent) >= K
        assert n_changes(entry, query) <= call.get("max_changes", 99)
        for name in PRIVATE:
            value = entry.released[name]
            if is_same(value, query[name]):
                continue
            assert name in vary
            if name in ranges:
                low, high = ranges[name]
                assert low <= value <= high
            if name in ("pay", "debt", "savings") and not pd.isna(value):
                known = [*train[name], *ranges.get(name, [])]
                assert np.nanmin(known) <= value <= np.nanmax(known)
                assert np.round(value, 2) == value
    assert n_answers > len(queries) / 3


@pytest.mark.parametrize("seed", SEEDS)
def test_a_limit_counts_what_the_sentence_lists(seed: int) -> None:
    queries = refused(seed)
    anonymizer = fitted(seed)
    wording = anonymizer.population_.schema.wording
    for limit in (1, 2, 3):
        explanations = anonymizer.explain(queries, max_changes=limit)
        assert {entry.reason for entry in explanations.withheld} <= {"no_actionable_answer"}
        for entry in explanations.generalized:
            query = queries.loc[entry.query].to_dict()
            listed = changes_of(entry.answer(), query, wording)
            assert len(listed) == n_changes(entry, query) == len(entry.changes(query)) <= limit


@pytest.mark.parametrize("seed", SEEDS)
def test_a_limit_is_met_by_another_answer_where_there_is_one(seed: int) -> None:
    queries = refused(seed, n=40)
    anonymizer = fitted(seed)
    free = anonymizer.explain(queries)
    limited = anonymizer.explain(queries, max_changes=1)
    many = [i for i, entry in enumerate(free) if len(entry.changes(queries.loc[i].to_dict())) > 1]
    assert any(limited[i].status == "released" for i in many)
    wide = anonymizer.explain(queries, max_changes=len([*QUASI, *PRIVATE]))
    assert [entry.to_dict() for entry in wide] == [entry.to_dict() for entry in free]


@pytest.mark.parametrize("guarantee", ["lookup", "catalogue"])
def test_every_guarantee_keeps_to_the_limit(guarantee: str) -> None:
    train, queries = table(0), refused(0)
    accepted = train[model(train) == "yes"].reset_index(drop=True)
    counterfactuals = accepted.head(len(queries))
    anonymizer = fitted(0, guarantee=guarantee)
    free = anonymizer.transform(counterfactuals, queries)
    limit = int(np.median([len(e.changes(queries.loc[e.query])) for e in free.generalized]))
    limited = anonymizer.transform(counterfactuals, queries, max_changes=limit)
    assert limited.released
    for entry in limited:
        if entry.status == "released":
            assert len(entry.changes(queries.loc[entry.query])) <= limit
        elif free[entry.query].status == "released":
            assert entry.reason == "no_actionable_answer"
    with pytest.raises(InputError, match="give the factuals"):
        anonymizer.transform(counterfactuals, max_changes=2)


@pytest.mark.parametrize("depends_on_rows", ["yes", "no"])
def test_a_protected_explainer_keeps_to_the_limit_and_its_explainer_is_not_told(
    depends_on_rows: str,
) -> None:
    train, queries = table(0), refused(0)
    accepted = train[model(train) == "yes"].reset_index(drop=True)
    seen: list[dict[str, Any]] = []

    def explain(asked: pd.DataFrame, **options: Any) -> pd.DataFrame:
        seen.append(options)
        return accepted.head(len(asked))

    explain.depends_on_rows = depends_on_rows  # type: ignore[attr-defined]
    population = fitted(0).population_
    private = protect(explain, model=model, population=population, k=K, desired="yes")
    explanations = private.explain(queries, max_changes=2)
    by_call = private(queries, max_changes=2)
    assert [e.to_dict() for e in by_call] == [e.to_dict() for e in explanations]
    assert explanations.released
    assert all(len(e.changes(queries.loc[e.query])) <= 2 for e in explanations.generalized)
    assert all("max_changes" not in options for options in seen)


@pytest.mark.parametrize("limit", [0, -1, 2.5, True, "3"])
def test_a_limit_is_a_whole_number_from_one_on(limit: Any) -> None:
    anonymizer = fitted(0)
    queries = refused(0, n=2)
    private = protect(
        model=model, population=anonymizer.population_, k=K, desired="yes", plugins=()
    )
    calls: list[Callable[..., Any]] = [anonymizer.explain, private.explain]
    for call in calls:
        with pytest.raises(InputError, match="max_changes must be a whole number >= 1"):
            call(queries, max_changes=limit)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"change_cost": -0.1}, "change_cost must be a number from 0 to 10"),
        ({"change_cost": True}, "change_cost must be a number"),
        ({"change_cost": "0.1"}, "change_cost must be a number"),
        ({"change_cost": float("nan")}, "change_cost must be a number"),
        ({"rounding": 2}, "rounding must be True or False"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        fitted(0, **options)


# --- the search -----------------------------------------------------------------------------------


def cost_of(anonymizer: Any, entry: GeneralizedCounterfactual, query: dict[str, Any]) -> float:
    """Return by what the search chooses: the distances, and 0.1 for each change."""
    train = anonymizer.population_.frame
    widths = {n: d.width for n, d in anonymizer.guarantee_.catalogue.domains.items()}
    total = len(QUASI) * entry.certificate.ncp / 2 + 0.1 * n_changes(entry, query)
    near = point(entry, query)
    total += abs(near["age"] - query["age"]) / (train["age"].max() - train["age"].min())
    total += near["city"] != query["city"]
    for name in PRIVATE:
        own, value = query[name], entry.released[name]
        if name == "job" or pd.isna(own) or pd.isna(value):
            total += not is_same(own, value)
        else:
            gap = abs(value - own)
            seconds = gap.total_seconds() if isinstance(gap, pd.Timedelta) else gap
            total += seconds / widths[name]
    return float(total)


def mean_cost(anonymizer: Any, queries: pd.DataFrame) -> float:
    costs = [cost_of(anonymizer, entry, query) for query, entry in answered(anonymizer, queries)]
    assert len(costs) == len(queries)
    return float(np.mean(costs))


@pytest.mark.parametrize("seed", SEEDS)
def test_each_change_counts_in_the_choice_of_an_answer(seed: int) -> None:
    anonymizer, queries = fitted(seed), refused(seed, n=60)
    by_distance = mean_cost(with_search(anonymizer, FORMER), queries)
    costly = replace(FORMER, change_cost=0.1)
    assert mean_cost(with_search(anonymizer, costly), queries) <= by_distance + 1e-9
    few = [
        np.mean([n_changes(e, q) for q, e in answered(with_search(anonymizer, search), queries)])
        for search in (replace(FORMER, change_cost=1.0), FORMER)
    ]
    assert few[0] < few[1]


# --- rounding -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "own", "decimals", "rounded"),
    [
        (1234, 980, 0, 1250),
        (1234, 1980, 0, 1200),
        (1234, 1230, 0, 1234),  # it would move by more than the change
        (206, 150, 0, 210),
        (205, 150, 0, 205),
        (24, 20, 0, 24),  # no third digit
        (0.273, 0.1, 3, 0.275),
        (0.27, 0.1, 2, 0.27),
        (3.271, 5.0, 3, 3.25),
        (-1234, 0, 0, -1250),
        (-1234, -2000, 0, -1200),
        (998, 5, 0, 1000),
        (1000, 5, 0, 1000),
        (0, 5, 0, 0),
        (1234, 1234, 0, 1234),
        (1234, np.nan, 0, 1234),
    ],
)
def test_numbers_are_rounded_away_from_the_persons_own(
    number: float, own: float, decimals: int, rounded: float
) -> None:
    found = round_outwards(np.array([float(number)]), np.array([float(own)]), decimals)
    assert found.tolist() == [rounded]


def test_a_missing_number_stays_missing() -> None:
    assert np.isnan(round_outwards(np.array([np.nan]), np.array([3.0]), 0)).all()


numbers = st.integers(-(10**9), 10**9)


@given(numbers, numbers, st.integers(0, 6))
def test_rounding_never_goes_back_nor_further_than_the_change(
    number: int, own: int, decimals: int
) -> None:
    value, mine = number / 10**decimals, own / 10**decimals
    rounded = round_outwards(np.array([value]), np.array([mine]), decimals)[0]
    noise = 1e-9 * max(abs(value), 1)
    assert (rounded - value) * (value - mine) >= -noise * abs(value - mine)
    assert abs(rounded - value) <= abs(value - mine) + noise
    assert round_outwards(np.array([rounded]), np.array([mine]), decimals)[0] == rounded


@pytest.mark.parametrize("seed", SEEDS)
def test_more_numbers_are_round_and_whatever_is_rounded_was_an_answer(seed: int) -> None:
    anonymizer, queries = fitted(seed), refused(seed, n=60)
    n_round = {}
    for rounding in (False, True):
        search = SearchOptions(change_cost=0.1, rounding=rounding)
        n_round[rounding] = 0
        for query, entry in answered(with_search(anonymizer, search), queries):
            for name, decimals in (("pay", 0), ("debt", 2), ("savings", 1)):
                value, own = np.array([entry.released[name]]), np.array([query[name]])
                is_changed = not is_same(value[0], own[0])
                outwards = round_outwards(value.astype(float), own.astype(float), decimals)
                n_round[rounding] += bool(is_changed and outwards[0] == value[0])
    assert n_round[True] > n_round[False]


def test_rounded_answers_to_one_query_have_different_private_values() -> None:
    anonymizer, queries = fitted(0), refused(0)
    several = anonymizer.explain(queries, answers=4)
    unrounded = with_search(anonymizer, replace(anonymizer.pipeline_.search, rounding=False))
    assert len(several.released) >= len(unrounded.explain(queries, answers=4).released)
    for i in range(len(queries)):
        found = [e for e in several.for_query(i) if e.status == "released"]
        assert len({tuple(e.released.items()) for e in found}) == len(found)
