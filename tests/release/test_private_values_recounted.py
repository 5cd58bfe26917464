"""Whatever table and policy: no exact number leaves where bins were asked, and every figure is a plain recount."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfk_plugin import GeneralizedCounterfactual, Interval, KAnonymizer, Population, PrivacyPolicy, Schema

pytestmark = pytest.mark.full_search

Case = tuple[pd.DataFrame, Schema, pd.DataFrame, PrivacyPolicy]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Return training rows, schema, counterfactuals (some off the population) and policy."""
    n = draw(st.integers(8, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    train = pd.DataFrame(
        {
            "age": rng.integers(20, 30, n),
            "pay": rng.integers(0, draw(st.sampled_from([4, 12, 40])), n),
            "debt": rng.normal(50, 20, n).round(1),
            "job": rng.choice(list("abc"), n),
            "person": rng.integers(0, n, n),
        }
    )
    if draw(st.booleans()):
        train.loc[rng.random(n) < 0.2, "debt"] = None
    edges = sorted(draw(st.sets(st.integers(-5, 45), min_size=2, max_size=5)))
    bins: dict[str, Any] = {"pay": edges, "debt": [20.0, 40.0, 60.0, 80.0]}
    subject = "person" if draw(st.booleans()) else None
    table = train if subject else train.drop(columns="person")
    schema = Schema.from_frame(table, quasi_identifiers=["age"], subject=subject, bins=bins)
    raw = train.iloc[rng.integers(0, n, 4)].reset_index(drop=True)
    raw.loc[2, "pay"] = int(rng.integers(-10, 60))
    raw["debt"] = raw["debt"].mask(np.arange(4) == 3, raw["debt"] + rng.normal(0, 20))
    people = train["person"].nunique() if subject else n
    policy = PrivacyPolicy(
        k=draw(st.integers(2, max(2, people // 2))),
        guarantee="nominal",
        objective="ncp",
        private_values=draw(st.sampled_from(["exact", "bins", "bins"])),
        rare_values=draw(st.sampled_from(["release", "withhold"])),
        alpha=draw(st.sampled_from([None, 0.3, 0.7])),
        on_homogeneous=draw(st.sampled_from(["coarsen", "coarsen", "suppress"])),
    )
    return train, schema, raw, policy


def model(rows: pd.DataFrame) -> np.ndarray:
    score = rows["age"] + rows["pay"].astype(float) + rows["debt"].astype(float).fillna(3) + (rows["job"] == "a") * 7
    return (score.round().astype(int) % 5 < 3).to_numpy()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(case=cases())
def test_what_leaves_is_what_the_policy_allows(case: Case) -> None:
    train, schema, raw, policy = case
    population = Population.from_frame(train, schema)
    if policy.k > population.n_people:
        return
    anonymizer = KAnonymizer(policy=policy).fit(population, model=model, desired=True)
    result = anonymizer.transform(raw)
    features = list(schema.features)
    wanted = model(population.conform(raw[features]))
    for i, entry in enumerate(result):
        if isinstance(entry, GeneralizedCounterfactual):
            assert wanted[i]
            check(entry, raw.loc[i, features], train, schema, policy)
        elif entry.reason == "homogeneous":
            assert policy.alpha is not None
            assert policy.on_homogeneous == "suppress"
        else:
            assert entry.reason in ("infeasible", "missing_value", "not_desired")


def check(
    entry: GeneralizedCounterfactual, own: pd.Series, train: pd.DataFrame, schema: Schema, policy: PrivacyPolicy
) -> None:
    inside = train[[entry.region.contains(row) for row in train[["age"]].to_dict("records")]]
    assert {*entry.released, *entry.withheld} == set(schema.private)
    assert not {*entry.released} & {*entry.withheld}
    fits = pd.Series(True, index=train.index)
    options: dict[str, list[Any]] = {}
    options["age"] = sorted({*(a for a in train["age"].unique() if entry.region.contains({"age": a})), own["age"]})
    for name in schema.private:
        held, values = holders(entry, name, own, train, schema, policy)
        fits &= held
        options[name] = values
        if name in entry.released and policy.alpha is not None:
            assert not homogeneous(entry.released[name], name, held, train, inside, schema, policy)
        if name in entry.released and policy.rare_values == "withhold":
            assert people(train[held], schema) >= policy.k
    assert entry.certificate.private_matches == fits.sum()
    assert entry.certificate.k_private == fits[inside.index].sum()
    grid = pd.DataFrame(list(itertools.product(*options.values())), columns=list(options))
    answers = model(grid.astype({"debt": float})[list(schema.features)])
    if entry.certificate.exact:
        assert abs(entry.certificate.pureness - answers.mean()) < 1e-12
    else:
        assert len(grid) > 10_000
    assert entry.to_dict()["released"].keys() == entry.released.keys()


def holders(
    entry: GeneralizedCounterfactual,
    name: str,
    own: pd.Series,
    train: pd.DataFrame,
    schema: Schema,
    policy: PrivacyPolicy,
) -> tuple[pd.Series, list[Any]]:
    """Return who fits what is released of one attribute, and the values that it stands for."""
    column, edges = train[name], schema[name].bins
    if name in entry.withheld:
        return pd.Series(True, index=train.index), distinct([*column, own[name]])
    value = entry.released[name]
    if isinstance(value, Interval):
        assert edges is not None
        assert (value.low, value.high) in list(itertools.pairwise(edges))
        last = value.high == edges[-1]
        held = (column >= value.low) & ((column <= value.high) if last else (column < value.high))
        assert value.low <= own[name] <= value.high
        return held, distinct([*column[held], own[name]])
    assert policy.private_values == "exact" or edges is None or value is None
    return (column.isna() if pd.isna(own[name]) else column == own[name]), [own[name]]


def distinct(values: list[Any]) -> list[Any]:
    return pd.Series(values, dtype=object).map(lambda v: None if pd.isna(v) else v).drop_duplicates().tolist()


def homogeneous(
    value: Any,
    name: str,
    held: pd.Series,
    train: pd.DataFrame,
    inside: pd.DataFrame,
    schema: Schema,
    policy: PrivacyPolicy,
) -> bool:
    if not isinstance(value, Interval) and schema[name].kind == "numeric" and value is not None:
        reach = 0.05 * (train[name].max() - train[name].min())
        held = (train[name] - value).abs() <= reach * (1 + 1e-9) + 1e-12
    here = people(inside[held[inside.index]], schema) / people(inside, schema)
    everywhere = people(train[held], schema) / people(train, schema)
    return bool(here > float(policy.alpha or 0) and here > policy.min_lift * everywhere)


def people(rows: pd.DataFrame, schema: Schema) -> int:
    return rows["person"].nunique() if schema.subject else len(rows)
