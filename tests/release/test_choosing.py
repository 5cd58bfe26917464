"""Choosing among candidates: the best by its definition, whatever the guarantee, and nothing is released on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import KAnonymizer, Ledger, Population, PrivacyPolicy, Suppressed, hookimpl
from cfk_plugin.errors import InputError, PolicyError
from cfk_plugin.release.explainer import Choice, best_of, choose_candidates
from cfk_plugin.release.results import Entry, GeneralizedCounterfactual
from random_tables import described, random_table

M = 6
POLICIES = [
    {"guarantee": "nominal", "objective": "pureness"},
    {"guarantee": "nominal", "objective": "ncp", "max_ncp": 0.1},
    {"guarantee": "nominal", "objective": "weighted", "min_pureness": 0.5},
    {"guarantee": "reciprocal", "objective": "pureness", "max_ncp": 0.1},
    {"guarantee": "reciprocal", "objective": "ncp", "min_pureness": 0.6},
    {"guarantee": "reciprocal", "objective": "weighted", "pureness_weight": 0.3},
    {"guarantee": "reciprocal", "anonymity_set": "eligible", "objective": "pureness"},
]


def people(train: pd.DataFrame) -> Population:
    return described(train.assign(person=0))


def parity(value: Any) -> int:
    if pd.isna(value):
        return 0
    return (
        value.day % 2
        if isinstance(value, pd.Timestamp)
        else (ord(value[0]) if isinstance(value, str) else int(value)) % 2
    )


def model(rows: pd.DataFrame) -> np.ndarray:
    """Accept by a private value and, for some, by a quasi-identifier, so that regions are not all pure."""
    odd = np.array([parity(value) for value in rows.iloc[:, 0]])
    return (rows["pay"].to_numpy(dtype=float) + odd > 2.5).astype(int)


def apart(one: Any, other: Any, width: float) -> float:
    """Return how much two values differ, a number by its share of the range and a category by all or nothing."""
    if pd.isna(one) or pd.isna(other):
        return float(pd.isna(one) != pd.isna(other))
    if isinstance(one, (str, bool, np.bool_)):
        return float(one != other)
    difference = abs(one - other) / pd.Timedelta(seconds=1) if isinstance(one, pd.Timestamp) else abs(one - other)
    return difference / width if width else 0.0


def distance(query: pd.Series, candidate: pd.Series, train: pd.DataFrame) -> float:
    widths = {}
    for name in train:
        known = train[name].dropna()
        numbers = not len(known) or not isinstance(known.iloc[0], (str, bool, np.bool_))
        spread = known.max() - known.min() if numbers and len(known) else 0.0
        widths[name] = spread / pd.Timedelta(seconds=1) if isinstance(spread, pd.Timedelta) else spread
    return sum(apart(query[name], candidate[name], widths[name]) for name in train) / train.shape[1]


def key(policy: PrivacyPolicy, entry: Entry, away: float) -> tuple[float, ...]:
    if isinstance(entry, Suppressed):
        return (1,)
    assert isinstance(entry, GeneralizedCounterfactual)
    cost, impure = away + entry.certificate.ncp, 1 - entry.certificate.pureness
    order = {
        "pureness": (impure, cost),
        "ncp": (cost, impure),
        "weighted": (cost + policy.pureness_weight * impure, impure),
    }
    return (0, *np.round(order[policy.objective], 9))


def scene(seed: int, **settings: Any) -> tuple[KAnonymizer, pd.DataFrame, np.ndarray, pd.DataFrame]:
    """Return a fitted anonymizer, candidates, the query of each, and the queries."""
    train = random_table(seed).drop(columns="person")
    population = people(train)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=3, **settings)).fit(population, model=model, desired="opposite")
    explainer = NearestUnlikeNeighbour(train, model)
    queries = train.sample(5, random_state=seed).reset_index(drop=True)
    positions = explainer.candidates(queries, M)
    query = np.repeat(np.arange(len(queries)), M)[positions.reshape(-1) >= 0]
    return anonymizer, explainer.rows(positions[positions >= 0]), query, queries


@pytest.mark.parametrize("settings", POLICIES, ids=lambda s: "-".join(str(v) for v in s.values()))
def test_chosen_is_the_best_by_definition(settings: dict[str, Any]) -> None:
    not_first = withheld = 0
    for seed in range(1, 6):
        anonymizer, candidates, query, queries = scene(seed, **settings)
        choice = choose_candidates(anonymizer, candidates, query, queries)
        alone = anonymizer.transform(candidates, factuals=queries.take(query))
        assert [e.status for e in choice.entries] == [e.status for e in alone]
        train = anonymizer.population_.frame[list(anonymizer.population_.schema.features)]
        for asked in range(len(queries)):
            own = np.flatnonzero(query == asked)
            if not len(own):
                assert choice.chosen[asked] == -1
                continue
            away = [distance(queries.iloc[asked], candidates.iloc[i], train) for i in own]
            assert choice.distances[own] == pytest.approx(away)
            keys = [key(anonymizer.policy_, alone[int(i)], d) for i, d in zip(own, away, strict=True)]
            best = own[min(range(len(own)), key=lambda i: (keys[i], i))]
            assert choice.chosen[asked] == best
            not_first += best != own[0]
            withheld += any(k == (1,) for k in keys) and keys[int(np.flatnonzero(own == best)[0])] != (1,)
    assert not_first  # there was something to choose
    assert withheld or "max_ncp" not in settings


def test_one_candidate_is_chosen_whatever_becomes_of_it() -> None:
    anonymizer, candidates, query, queries = scene(3, guarantee="nominal", max_ncp=0.0)
    first = pd.Series(query).drop_duplicates().index.to_numpy()
    choice = choose_candidates(anonymizer, candidates.iloc[first], query[first], queries)
    plain = anonymizer.transform(candidates.iloc[first], factuals=queries.take(query[first]))
    assert choice.entries == [*plain]
    assert plain.suppressed
    assert choice.chosen.tolist() == [int(np.flatnonzero(query[first] == q)[0]) for q in range(len(queries))]


def test_bounds_are_compared_with_ncp_and_pureness_alone() -> None:
    """A ceiling that NCP meets and distance + NCP does not keeps nothing back, and does not change who is best."""
    anonymizer, candidates, query, queries = scene(5, guarantee="nominal", objective="ncp")
    choice = choose_candidates(anonymizer, candidates, query, queries)
    best = [choice.entries[i] for i in choice.chosen if i >= 0]
    ceiling = max(entry.certificate.ncp for entry in best)
    assert (choice.distances[choice.chosen] > 0).any()
    limited = scene(5, guarantee="nominal", objective="ncp", max_ncp=ceiling)
    again = choose_candidates(limited[0], candidates, query, queries)
    assert again.chosen.tolist() == choice.chosen.tolist()
    assert all(again.entries[i].status == "released" for i in again.chosen)
    crossed = PrivacyPolicy(objective="ncp", max_ncp=ceiling / 2, min_pureness=1.0)
    assert best_of(crossed, choice.entries, choice.distances, query, len(queries)).tolist() == choice.chosen.tolist()


def test_first_of_equally_good_ones_is_chosen() -> None:
    anonymizer, candidates, query, queries = scene(2, guarantee="reciprocal")
    doubled, twice = pd.concat([candidates, candidates]), np.concatenate([query, query])
    found = choose_candidates(anonymizer, doubled, twice, queries).chosen
    assert found.tolist() == choose_candidates(anonymizer, candidates, query, queries).chosen.tolist()


def test_nothing_is_released_and_the_stage_repeats_what_was_found(tmp_path: Any) -> None:
    asked: list[int] = []
    heard: list[Any] = []

    class Listener:
        @hookimpl
        def cfk_released(self, record: Any) -> None:
            heard.append(record)

    def counting(rows: pd.DataFrame) -> np.ndarray:
        asked.append(len(rows))
        return model(rows)

    train = random_table(4).drop(columns="person")
    explainer = NearestUnlikeNeighbour(train, model)
    queries = train[model(train) == 0].head(4)
    positions = explainer.candidates(queries, M)
    candidates, query = explainer.rows(positions.reshape(-1)), np.repeat(np.arange(4), M)
    with Ledger(tmp_path / "ledger.db", key=b"a key of sixteen bytes or more", create=True) as ledger:
        anonymizer = KAnonymizer(policy=PrivacyPolicy(k=3, guarantee="nominal"), ledger=ledger, plugins=[Listener()])
        anonymizer.fit(people(train), model=counting, desired=1)
        choice = choose_candidates(anonymizer, candidates, query, queries)
        assert ledger.status().records == 0
        assert not heard
        asked.clear()
        best = candidates.iloc[choice.chosen]
        entries, _ = choice.pipeline.release(best, np.arange(4))
        assert asked == [4]  # the chosen rows' own outcomes; protection and verification are not repeated
        assert [e.region for e in entries] == [choice.entries[i].region for i in choice.chosen]
        assert ledger.status().records == len(best.drop_duplicates())


def test_random_regions_are_released_as_they_were_compared() -> None:
    train = random_table(7).drop(columns="person")
    explainer = NearestUnlikeNeighbour(train, model, desired=1)
    queries = train[model(train) == 0].head(4)
    positions = explainer.candidates(queries, M).reshape(-1)
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=3, guarantee="nominal"), method="grasp")
    anonymizer.fit(people(train), model=model, desired=1)
    candidates = explainer.rows(positions)
    choice = choose_candidates(anonymizer, candidates, np.repeat(np.arange(4), M), queries)
    released, _ = choice.pipeline.release(candidates.iloc[choice.chosen], np.arange(4))
    compared = [choice.entries[i] for i in choice.chosen]
    assert [e.certificate for e in released] == [e.certificate for e in compared]


def refused(anonymizer: KAnonymizer, train: pd.DataFrame) -> Choice:
    return choose_candidates(anonymizer, train.head(2), np.array([0, 1]), train.tail(2))


def test_guarantees_and_populations_without_a_use_for_candidates_are_refused(tmp_path: Any) -> None:
    train = random_table(4).drop(columns="person")
    catalogue = KAnonymizer(policy=PrivacyPolicy(k=3, guarantee="catalogue")).fit(people(train), model, 1)
    with pytest.raises(PolicyError, match="catalogue"):
        refused(catalogue, train)
    KAnonymizer(policy=PrivacyPolicy(k=3)).fit(people(train), model, 1).seal(tmp_path / "sealed")
    sealed = KAnonymizer().fit(Population.open(tmp_path / "sealed"), model, 1)
    with pytest.raises(InputError, match="ranges of all features"):
        refused(sealed, train)
