"""Answers as attackers read them: nearest instances, against the distances that the product itself computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Interval, KAnonymizer, Population, PrivacyPolicy, Region, Schema
from cfk_plugin.audit import targets
from cfk_plugin.data.intake import take_in
from cfk_plugin.errors import InputError
from cfk_plugin.hookspecs import CounterfactualBatch
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.protection.partition import RegionDistance
from random_tables import described, random_table


def some_part(population: Population, name: str, rng: np.random.Generator) -> Any:
    domain = population.domains[name]
    missing = domain.has_missing and bool(rng.random() < 0.5)
    if missing and rng.random() < 0.3:
        return Interval(None, None, missing=True) if domain.is_interval else frozenset({None})
    low, high = sorted(rng.integers(0, len(domain.values), 2).tolist())
    if domain.attribute.kind == "numeric":
        return Interval(domain.value(low), domain.value(high), missing)
    if domain.attribute.kind == "ordinal":
        return Interval(domain.value(low), domain.value(high), missing, tuple(domain.values[low : high + 1]))
    values = [domain.value(code) for code in range(low, high + 1)]
    return frozenset([*values, None] if missing else values)


@pytest.mark.parametrize("seed", range(12))
def test_the_instance_read_of_a_region_is_as_far_as_the_region(seed: int) -> None:
    rng = np.random.default_rng(seed)
    population = described(random_table(seed))
    names = list(population.schema.quasi_identifiers)
    asked = population.frame.take(rng.permutation(len(population.frame))[:40]).reset_index(drop=True)
    for name in names:  # people of no row: columns of different ones, numbers beyond the range
        asked[name] = asked[name].to_numpy()[rng.permutation(len(asked))]
        if pd.api.types.is_float_dtype(asked[name]):
            asked[name] += rng.normal(0, 30, len(asked))
    numeric = [name for name in names if population.schema[name].kind == "numeric"]
    heom = Heom.fit(population.frame[names], numeric=numeric)
    for _ in range(5):
        region = Region({name: some_part(population, name, rng) for name in names})
        read = pd.DataFrame({n: [targets.nearest_inside(region[n], value) for value in asked[n]] for n in names})
        assert all(region.contains(row) for row in read.to_dict("records"))
        found = heom.parts(asked[names], read).sum(axis=1)
        codes, numbers = take_in(asked, population.encoder).quasi_identifiers
        wanted = RegionDistance(population, [region]).between(codes, numbers, np.array([0]))[:, 0]
        np.testing.assert_allclose(found, wanted, atol=1e-9)


@pytest.mark.parametrize(
    ("part", "value", "wanted"),
    [
        (Interval(30, 40), 35, 35),
        (Interval(30, 40), 20, 30),
        (Interval(30, 40), 40.5, 40),
        (Interval(30, 40), None, 30),
        (Interval(30, 40, missing=True), np.nan, None),
        (Interval(None, None, missing=True), 35, None),
        (Interval("mid", "high", levels=("mid", "high")), "high", "high"),
        (Interval("mid", "high", levels=("mid", "high")), "low", "mid"),
        (frozenset({"C", "B"}), "C", "C"),
        (frozenset({"C", "B"}), "A", "B"),
        (frozenset({None, "B"}), None, None),
        (frozenset({None, "B"}), "A", "B"),
        (frozenset({1, 2}), 2.0, 2.0),
    ],
)
def test_which_value_is_read(part: Any, value: Any, wanted: Any) -> None:
    assert targets.nearest_inside(part, value) == wanted


def protected(policy: PrivacyPolicy, **described: Any) -> tuple[KAnonymizer, pd.DataFrame]:
    rng = np.random.default_rng(0)
    train = pd.DataFrame(
        {
            "age": rng.integers(20, 60, 60),
            "town": rng.choice(list("AB"), 60),
            "pay": rng.integers(0, 100, 60),
            "illness": ["rare", *rng.choice(["a", "b"], 59)],
        }
    )
    schema = Schema.from_frame(train, quasi_identifiers=["age", "town"], **described)
    population = Population.from_frame(train, schema)
    return KAnonymizer(policy=policy).fit(population, model=lambda rows: rows["pay"] > 40, desired=True), train


def test_private_values_are_read_as_released() -> None:
    anonymizer, train = protected(
        PrivacyPolicy(k=3, private_values="bins", rare_values="withhold"), bins={"pay": [0, 50, 80, 100]}
    )
    asked = train.head(1).assign(pay=45, illness="rare")
    explanations = anonymizer.transform(asked)
    assert explanations[0].withheld == ("illness",)
    queries = pd.DataFrame({"age": [19], "town": ["A"], "pay": [99], "illness": ["other"], "kept": [7.5]}, index=[3])
    answers = targets.read_released(explanations, queries)
    assert answers.found.tolist() == [True]
    assert answers.explanations is explanations
    assert answers.rows.index.tolist() == [3]
    row = answers.rows.iloc[0]
    assert row["pay"] == 50  # the nearer end of the bin that 45 is in
    assert row["illness"] == "other"  # nothing is said of it: the query's own
    assert row["kept"] == 7.5
    assert row["age"] == explanations[0].region["age"].low
    assert (answers.rows.dtypes == queries.dtypes).all()


def test_what_is_suppressed_is_missing_and_not_found() -> None:
    anonymizer, train = protected(PrivacyPolicy(k=3))
    asked = train.head(2).assign(pay=[10, 90])  # the first has not the desired outcome
    answers = targets.read_released(anonymizer.transform(asked), train.tail(2))
    assert answers.found.tolist() == [False, True]
    assert answers.rows.iloc[0].isna().all()
    assert answers.rows.iloc[1].notna().all()
    assert answers.rows.index.equals(train.tail(2).index)
    assert "rare" not in repr(answers)


def test_several_or_fewer_answers_are_refused() -> None:
    anonymizer, train = protected(PrivacyPolicy(k=3))
    explanations = anonymizer.transform(train.head(4))
    with pytest.raises(InputError, match="4 counterfactuals for 3 queries"):
        targets.read_released(explanations, train.head(3))
    twice = CounterfactualBatch(train.head(2), np.arange(2), np.array([0, 0]))
    for queries in (train.head(1), train.head(2)):
        with pytest.raises(InputError, match="one each"):
            targets.read_raw(twice, queries)


def test_raw_answers_keep_their_queries() -> None:
    train = pd.DataFrame({"age": [20, 30, 40], "town": ["A", "B", "C"]})
    batch = CounterfactualBatch(train.iloc[[2, 0]], np.array([2, 0]), np.arange(3))
    answers = targets.read_raw(batch, train.set_axis([7, 8, 9]))
    assert answers.found.tolist() == [True, False, True]
    assert answers.rows["town"].tolist()[::2] == ["A", "C"]
    assert answers.rows.loc[9, "age"] == 40
    assert answers.rows.loc[7, "age"] == 20
    assert answers.rows.loc[8].isna().all()
