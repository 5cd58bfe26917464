"""Whatever the table, the anchor and the method: every figure of a released entry equals a plain recount."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfk_plugin import GeneralizedCounterfactual, KAnonymizer, Population, PrivacyPolicy, Region, Schema, Suppressed

pytestmark = pytest.mark.full_search

LEVELS = ["low", "mid", "high"]
CITIES = list("ABCDEFG")
TREE = {city: ["north" if city < "D" else "south"] for city in CITIES}

column = st.sampled_from(["whole", "real", "nominal", "ordinal", "hierarchical", "flag", "date", "categorical"])


@st.composite
def cases(draw: st.DrawFn) -> tuple[pd.DataFrame, Schema, pd.DataFrame, PrivacyPolicy, str]:
    """Return training rows, schema, counterfactuals (some off the population), policy and method."""
    kinds = draw(st.lists(column, min_size=1, max_size=4))
    n = draw(st.integers(6, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gaps = draw(st.booleans())
    names = [f"q{j}_{kind}" for j, kind in enumerate(kinds)]
    train = pd.DataFrame({name: values(kind, n, rng) for name, kind in zip(names, kinds, strict=True)})
    if gaps:
        for name, kind in zip(names, kinds, strict=True):
            if kind not in ("whole", "flag"):
                train.loc[rng.random(n) < 0.15, name] = None
                train.loc[0, name] = values(kind, 1, rng)[0]
    train["pay"] = rng.integers(0, 6, n)
    train["person"] = rng.integers(0, n, n)
    subject = draw(st.sampled_from([None, "person"]))
    people = train["person"].nunique() if subject else n
    weights = {name: draw(st.sampled_from([0.0, 1.0, 2.5])) for name in names[1:]}
    schema = Schema.from_frame(
        train if subject else train.drop(columns="person"),
        quasi_identifiers=names,
        subject=subject,
        ordinal={name: LEVELS for name in names if "ordinal" in name},
        hierarchies={name: TREE for name in names if "hierarchical" in name},
        weights=weights,
    )
    raw = train.iloc[rng.integers(0, n, 4)].reset_index(drop=True)
    for name, kind in zip(names, kinds, strict=True):  # the last two are strangers: values mixed or shifted
        mixed = train[name].iloc[rng.integers(0, n, 2)].tolist()
        raw[name] = pd.Series([*raw[name].tolist()[:2], *mixed], dtype=object).astype(train[name].dtype)
        if kind == "real":
            raw.loc[3, name] = raw.loc[3, name] + rng.normal(0, 30)
        if kind == "whole":
            raw.loc[3, name] = raw.loc[3, name] + int(rng.integers(-30, 30))
    guarantee = draw(st.sampled_from(["nominal", "nominal", "reciprocal", "catalogue"]))
    eligible = guarantee == "reciprocal" and draw(st.booleans())
    policy = PrivacyPolicy(
        guarantee=guarantee,
        anonymity_set="eligible" if eligible else "population",
        k=draw(st.integers(2, max(2, people // 2))),
        objective=draw(st.sampled_from(["pureness", "ncp", "weighted"])),
    )
    method = draw(st.sampled_from(["exact", "grasp", "mondrian"])) if guarantee == "nominal" else "auto"
    return train, schema, raw, policy, method


def values(kind: str, n: int, rng: np.random.Generator) -> Any:
    if kind == "whole":
        return rng.integers(0, 25, n)
    if kind == "real":
        return rng.normal(50, 10, n).round(1)
    if kind == "flag":
        return rng.random(n) < 0.5
    if kind == "date":
        return pd.Timestamp("2020-02-28") + pd.to_timedelta(rng.integers(0, 40, n), unit="D")
    if kind == "ordinal":
        return rng.choice(LEVELS, n).astype(object)
    if kind == "categorical":
        return pd.Categorical(rng.choice(CITIES[:4], n), categories=CITIES)
    return rng.choice(CITIES, n).astype(object)


def model(rows: pd.DataFrame) -> np.ndarray:
    """Depend on every feature, and notice a dtype or a value that it was not made for."""
    score = rows["pay"].to_numpy(dtype=float).copy()
    for name in rows.columns:
        if name.startswith("q"):
            text = rows[name].astype(object).map(lambda v: "" if pd.isna(v) else str(v))
            score += text.map(lambda t: sum(map(ord, t)) % 5).to_numpy(dtype=float)
    return (score % 7 < 4).astype(int)


@pytest.mark.filterwarnings("error", "ignore::cfk_plugin.errors.NominalGuaranteeWarning")
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(case=cases())
def test_certificate_is_a_plain_recount(
    case: tuple[pd.DataFrame, Schema, pd.DataFrame, PrivacyPolicy, str],
) -> None:
    train, schema, raw, policy, method = case
    population = Population.from_frame(train, schema)
    if policy.k > population.n_people:
        policy = replace(policy, k=2)
        if population.n_people < 2:
            return
    anonymizer = KAnonymizer(policy=policy, method=method).fit(population, model=model, desired=1)
    result = anonymizer.transform(raw)
    assert [entry.query for entry in result] == [0, 1, 2, 3]
    assert anonymizer.transform(raw) == result
    features = list(schema.features)
    wanted = model(population.conform(raw)) == 1
    for i, entry in enumerate(result):
        if isinstance(entry, Suppressed):
            assert entry.reason in ALLOWED[method] if wanted[i] else {"not_desired", "missing_value"}
            continue
        assert wanted[i]
        check(entry, train, schema, policy, features)
        if policy.guarantee == "nominal":
            check_own(entry, raw.iloc[i], schema)
        else:
            check_crowd(entry, train, schema, policy, anonymizer.regions_of(train))


ALLOWED = {
    "exact": {"missing_value"},
    "grasp": {"infeasible", "missing_value"},
    "mondrian": {"infeasible", "missing_value"},
    "auto": {"infeasible", "missing_value", "pureness_below_floor"},
}


def check_own(entry: GeneralizedCounterfactual, own: pd.Series, schema: Schema) -> None:
    """A nominal region is one around the counterfactual, whose private values are released."""
    assert entry.region.contains(own[list(schema.quasi_identifiers)].to_dict())
    assert dict(entry.released) == {name: own[name] for name in schema.private}


def check_crowd(
    entry: GeneralizedCounterfactual,
    train: pd.DataFrame,
    schema: Schema,
    policy: PrivacyPolicy,
    regions: list[Region | None],
) -> None:
    """As many people as the certificate says, at least k, are mapped to the region, and could be the one."""
    counts = model(train[list(schema.features)]) == 1 if policy.counts_eligible else np.ones(len(train), dtype=bool)
    mapped = train[counts & np.array([region == entry.region for region in regions])]
    assert all(entry.region.contains(row) for row in mapped[list(schema.quasi_identifiers)].to_dict("records"))
    assert people(mapped, schema) == entry.certificate.k_effective >= policy.k
    if policy.guarantee == "catalogue":
        assert entry.released["pay"] in mapped["pay"].tolist()
        consistent = model(mapped[list(schema.features)].assign(**dict(entry.released))) == 1
        assert people(mapped[consistent], schema) >= policy.k


def people(rows: pd.DataFrame, schema: Schema) -> int:
    return rows["person"].nunique() if schema.subject else len(rows)


def check(
    entry: GeneralizedCounterfactual,
    train: pd.DataFrame,
    schema: Schema,
    policy: PrivacyPolicy,
    features: list[str],
) -> None:
    quasi, certificate = list(schema.quasi_identifiers), entry.certificate
    inside = train[[entry.region.contains(row) for row in train[quasi].to_dict("records")]]
    assert certificate.k == people(inside, schema) >= policy.k
    predicted = model(inside[features]) == 1
    assert certificate.k_desired == people(inside[predicted], schema)
    assert certificate.majority == (2 * predicted.sum() >= len(inside))
    consistent = model(inside[features].assign(**dict(entry.released))) == 1
    assert certificate.k_consistent == people(inside[consistent], schema)
    same = inside["pay"] == entry.released["pay"]
    assert certificate.k_private == same.sum()
    assert 0 <= certificate.ncp <= 1 + 1e-12
    assert 0 <= certificate.pureness_low <= certificate.pureness <= certificate.pureness_high <= 1
    assert certificate.gap is None or certificate.gap >= 0
    assert not certificate.optimal or certificate.gap is None or certificate.gap <= 1e-9
