"""Several answers of a catalogue to one query: different, diverse, and none that can be intersected
with another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.data.encoded_table import Counterfactual
from cfk_plugin.errors import InputError, PolicyError

K, M = 5, 4
QUASI, PRIVATE = ["age", "city"], ["pay", "debt", "job"]
CATALOGUE = PrivacyPolicy(k=K, guarantee="catalogue")


def table(seed: int, n: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 70, n),
            "city": rng.choice(list("ABCD"), n),
            "pay": rng.integers(10, 60, n),
            "debt": rng.integers(0, 30, n),
            "job": rng.choice(["clerk", "nurse", "smith"], n),
        }
    )


def model(rows: pd.DataFrame) -> np.ndarray:
    bonus = rows["city"].map({"A": 0, "B": 6, "C": -6, "D": 3}).to_numpy(dtype=float)
    score = (
        rows["pay"].to_numpy(dtype=float)
        - rows["debt"].to_numpy()
        + rows["age"].to_numpy() / 4
        + bonus
    )
    return np.where(score > 38, "yes", "no")


TRAIN = table(0)
POPULATION = Population.from_frame(TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=QUASI))
QUERIES = table(1)[model(table(1)) == "no"].head(12).reset_index(drop=True)


@pytest.fixture(scope="module")
def anonymizer() -> KAnonymizer:
    return KAnonymizer(policy=CATALOGUE).fit(POPULATION, model, "yes")


@pytest.fixture(scope="module")
def answers(anonymizer: KAnonymizer) -> Any:
    return anonymizer.explain(QUERIES, answers=M)


def point(entry: Any, query: dict[str, Any]) -> dict[str, Any]:
    """Return what an answer asks for: the point of its region nearest to the query, with its
    private values.
    """
    low, high = entry.region["age"].low, entry.region["age"].high
    near = {"age": min(max(query["age"], low), high)}
    near["city"] = (
        query["city"] if query["city"] in entry.region["city"] else min(entry.region["city"])
    )
    return near | dict(entry.released)


def apart(one: dict[str, Any], other: dict[str, Any], private: pd.DataFrame = TRAIN) -> np.ndarray:
    """Return how far two points are from each other, attribute by attribute; numbers in shares of
    their range.
    """
    found = []
    for name in TRAIN:
        if isinstance(one[name], str):
            found.append(float(one[name] != other[name]))
        else:
            known = TRAIN[name] if name in QUASI else private[name]
            found.append(abs(one[name] - other[name]) / (known.max() - known.min()))
    return np.array(found)


def diversity(points: Sequence[dict[str, Any]]) -> tuple[float, float, float]:
    """Return DiCE's three: mean distance of pairs, mean number of attributes that differ, and det 1
    / (1 + d).
    """
    pairs = [apart(one, other) for one, other in combinations(points, 2)]
    alike = [[1 / (1 + apart(one, other).sum()) for one in points] for other in points]
    return (
        np.mean([p.sum() for p in pairs]),
        np.mean([(p > 0).sum() for p in pairs]),
        np.linalg.det(alike),
    )


def ranges_of(anonymizer: KAnonymizer) -> pd.DataFrame:
    """Return the lowest and the highest number by which the catalogue measures distances."""
    catalogue = anonymizer.guarantee_.catalogue
    assert catalogue is not None
    return pd.DataFrame({n: catalogue.domains[n].values[[0, -1]] for n in ("pay", "debt")})


def by_query(result: Any) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    for i, query in enumerate(QUERIES.to_dict("records")):
        yield query, [entry for entry in result.for_query(i) if entry.status == "released"]


def consistent(entries: Sequence[Any]) -> int:
    """Count people who are in all regions and get the outcome with the private values, in plain
    pandas.
    """
    left = TRAIN
    for entry in entries:
        region = entry.region
        inside = left["age"].between(region["age"].low, region["age"].high) & left["city"].isin(
            region["city"]
        )
        left = left[inside]
        left = left[model(left.assign(**entry.released)) == "yes"] if len(left) else left
    return len(left)


def test_each_query_has_so_many_answers_from_near_to_far(
    answers: Any, anonymizer: KAnonymizer
) -> None:
    ranges = ranges_of(anonymizer)
    assert [entry.query for entry in answers] == np.repeat(np.arange(len(QUERIES)), M).tolist()
    for query, some in by_query(answers):
        outside = [
            sum(point(entry, query)[name] != query[name] for name in QUASI) for entry in some
        ]
        width = [
            len(QUASI) * e.certificate.ncp / 2 + 0.1 * n for e, n in zip(some, outside, strict=True)
        ]
        changes = [
            sum(point(entry, query)[name] != query[name] for name in PRIVATE) for entry in some
        ]
        away = [
            apart(point(e, query), query, ranges).sum() + w + 0.1 * n
            for e, w, n in zip(some, width, changes, strict=True)
        ]
        assert len(some) == M
        assert away == pytest.approx(sorted(away))


def test_each_answer_is_true_and_leaves_k_people(answers: Any) -> None:
    for query, some in by_query(answers):
        for entry in some:
            assert model(pd.DataFrame([point(entry, query)]))[0] == "yes"
            assert consistent([entry]) == entry.recount.k_consistent >= K
            assert entry.recount.k_effective >= K


def test_no_two_answers_to_a_query_have_the_same_private_values(answers: Any) -> None:
    for _, some in by_query(answers):
        assert len({tuple(entry.released.items()) for entry in some}) == M


def test_the_nearest_is_at_most_as_far_as_the_one_answer(
    anonymizer: KAnonymizer, answers: Any
) -> None:
    one = anonymizer.explain(QUERIES)
    ranges = ranges_of(anonymizer)
    for i, (query, some) in enumerate(by_query(answers)):
        near, alone = (apart(point(e, query), query, ranges) for e in (some[0], one[i]))
        width, widest = (
            e.certificate.ncp + 0.1 * (d > 0).sum()
            for e, d in zip((some[0], one[i]), (near, alone), strict=True)
        )
        assert near.sum() + width <= alone.sum() + widest + 1e-9


def test_answers_are_the_same_in_any_batch_and_order_and_process(
    anonymizer: KAnonymizer, answers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = np.random.default_rng(0).permutation(len(QUERIES))
    expected = [
        {**entry.to_dict(), "query": place}
        for place, i in enumerate(order)
        for entry in answers.for_query(i)
    ]
    assert [
        entry.to_dict() for entry in anonymizer.explain(QUERIES.iloc[order], answers=M)
    ] == expected
    assert [
        entry.to_dict() for entry in anonymizer.explain(QUERIES.iloc[order[:1]], answers=M)
    ] == expected[:M]
    found = []
    for train in (TRAIN, TRAIN.sample(frac=1, random_state=3, ignore_index=True)):
        population = Population.from_frame(train, POPULATION.schema)
        again = KAnonymizer(policy=CATALOGUE).fit(population, model, "yes")
        found.append([*again.explain(QUERIES, answers=M)])
        monkeypatch.setattr("cfk_plugin.protection.answers.search._BLOCK", 100)
    assert found[0] == found[1]


def test_answers_are_more_diverse_than_those_that_are_near_alone() -> None:
    """Beside the M nearest entries with private values of their own, as an explainer that is asked
    M times gives.
    """
    policy = PrivacyPolicy(k=K, guarantee="catalogue")
    anonymizer = KAnonymizer(policy=policy).fit(POPULATION, model, "yes")
    wanted = TRAIN[model(TRAIN) == "yes"]
    chosen, alone = [], []
    for query, some in by_query(anonymizer.explain(QUERIES, answers=M)):
        near = wanted.iloc[
            np.argsort([apart(row, query).sum() for row in wanted.to_dict("records")])[:M]
        ]
        each = anonymizer.transform(near, factuals=pd.DataFrame([query] * M))
        chosen.append(diversity([point(entry, query) for entry in some]))
        alone.append(diversity([point(entry, query) for entry in each]))
    assert (np.mean(chosen, axis=0) >= np.mean(alone, axis=0)).all()


def test_what_there_is_no_other_answer_for_is_withheld() -> None:
    train = TRAIN[["age", "city"]].assign(rich=TRAIN["pay"] > 30)
    population = Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=QUASI))
    few = KAnonymizer(policy=CATALOGUE).fit(
        population, lambda rows: rows["rich"] | (rows["age"] > 50), True
    )
    queries = train[~train["rich"] & (train["age"] <= 50)].head(6)
    result = few.explain(queries, answers=3)
    for i in range(6):
        first, second, third = result.for_query(i)
        assert third.reason == "no_other_answer"
        assert first.status == "released"
        assert second.status == "withheld" or first.released != second.released


def test_without_private_attributes_answers_have_different_regions() -> None:
    train = TRAIN[QUASI]
    population = Population.from_frame(train, Schema.from_frame(train, quasi_identifiers=QUASI))
    anonymizer = KAnonymizer(policy=CATALOGUE).fit(population, lambda rows: rows["age"] > 40, True)
    for i in range(3):
        queries = train[train["age"] <= 40].head(3)
        some = anonymizer.explain(queries, answers=M).for_query(i)
        assert len({str(entry.region) for entry in some}) == M


def test_answers_begin_at_the_query_behind_an_explainer_that_is_not_asked(answers: Any) -> None:
    settings: dict[str, Any] = {
        "model": model,
        "desired": "yes",
        "population": POPULATION,
        "policy": CATALOGUE,
    }
    private = protect(lambda rows: rows, **settings)
    assert [*private.explain(QUERIES, answers=M)] == [*answers]


@pytest.mark.parametrize("number", [0, 1.5, "2", True])
def test_answers_are_a_whole_number_of_a_catalogue(anonymizer: KAnonymizer, number: Any) -> None:
    with pytest.raises(InputError, match="answers must be a whole number >= 1, got"):
        anonymizer.explain(QUERIES, answers=number)
    other = KAnonymizer(policy=PrivacyPolicy(k=K, guarantee="lookup")).fit(POPULATION, model, "yes")
    with pytest.raises(PolicyError, match="catalogue"):
        other.explain(QUERIES, answers=2)


# --- behind an explainer --------------------------------------------------------------------------


def released(
    anonymizer: KAnonymizer, found: Sequence[pd.DataFrame], asks: pd.DataFrame
) -> list[list[Any]]:
    """Release the counterfactuals of each query together, as a protected explainer does."""
    number = np.repeat(np.arange(len(found)), [len(each) for each in found])
    entries, _ = anonymizer.pipeline_.release(
        pd.concat(found, ignore_index=True),
        number,
        factuals=asks.take(number).reset_index(drop=True),
    )
    return [[entry for entry in entries if entry.query == i] for i in range(len(found))]


def test_the_first_counterfactual_keeps_its_answer_and_an_equal_one_takes_another(
    anonymizer: KAnonymizer,
) -> None:
    wanted = TRAIN[model(TRAIN) == "yes"]
    found = [wanted.iloc[[i, i, i + 1]] for i in range(len(QUERIES))]
    alone = [released(anonymizer, [each.iloc[[j]] for each in found], QUERIES) for j in range(2)]
    for i, together in enumerate(released(anonymizer, found, QUERIES)):
        assert together[0] == alone[0][i][0] == alone[1][i][0]
        assert len({tuple(entry.released.items()) for entry in together}) == 3
        for entry in together:
            assert consistent([entry]) == entry.recount.k_consistent >= K
            assert model(pd.DataFrame([point(entry, dict(QUERIES.iloc[i]))]))[0] == "yes"


def test_another_answer_is_given_to_everybody_of_its_group_alike(anonymizer: KAnonymizer) -> None:
    regions, wanted = anonymizer.regions_of(TRAIN), model(TRAIN) == "yes"
    twice = [TRAIN[wanted].iloc[[i, i]] for i in range(6)]
    for i, (_, second) in enumerate(released(anonymizer, twice, QUERIES)):
        members = TRAIN[wanted & [region == second.region for region in regions]].assign(
            **second.released
        )
        instead = [pd.concat([twice[i].head(1), members.iloc[[j]]]) for j in range(len(members))]
        again = released(anonymizer, instead, QUERIES.take([i] * len(members)))
        # A class that two groups divide is divided anew by these private values.
        assert [entry.region for _, entry in again] == anonymizer.regions_of(members)
        assert sum(entry.region == second.region for _, entry in again) >= len(members) - 1
        assert len(again) >= K


def test_two_regions_with_the_same_private_values_do_not_leave_together(
    anonymizer: KAnonymizer,
) -> None:
    """Where nobody knows who asks, each is the nearest entry by itself; the second would be
    intersected.
    """
    entries = [*anonymizer.published()]
    keys = pd.Series([tuple(entry.released.items()) for entry in entries])
    assert not keys.duplicated().any() or len(set(keys)) < len(entries)
    twice = [
        Counterfactual(0, row) for row in TRAIN[model(TRAIN) == "yes"].head(40).to_dict("records")
    ]
    given: dict[tuple[Any, ...], Any] = {}
    for entry in anonymizer.transform(twice).released:
        assert given.setdefault(tuple(entry.released.items()), entry.region) == entry.region
