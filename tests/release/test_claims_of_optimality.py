"""Whatever the exact protector calls optimal equals the best of all regions, for every objective
and floor.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import (
    GeneralizedCounterfactual,
    Interval,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Region,
    Schema,
)

pytestmark = pytest.mark.full_search

POLICIES: list[dict[str, Any]] = [
    {"objective": "ncp"},
    {"objective": "pureness"},
    {"objective": "ncp", "min_pureness": 0.7},
    {"objective": "pureness", "max_ncp": 0.5},
]


def table(rng: np.random.Generator) -> pd.DataFrame:
    n = int(rng.integers(8, 25))
    return pd.DataFrame(
        {
            "age": rng.choice([20, 23, 30, 31, 44, 60], n),
            "city": rng.choice(["A", "B", "C", "D"][: rng.integers(2, 5)], n),
            "sex": rng.choice(["f", "m"], n),
            "score": rng.integers(0, 4, n),
        }
    )


class RandomModel:
    """Says yes or no to each combination of values, by a table of coin flips."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.share, self.salt = rng.uniform(0.4, 0.95), int(rng.integers(1 << 30))

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        drawn = pd.util.hash_pandas_object(
            rows.astype(str).sum(axis=1) + str(self.salt), index=False
        )
        return (drawn.to_numpy() % 1000) < 1000 * self.share


def regions(train: pd.DataFrame, own: pd.Series) -> Iterator[tuple[Region, float]]:
    """Every region that holds a row, with its NCP, written plainly."""
    ages = sorted(train["age"].unique())
    span = max(ages[-1] - ages[0], 1)
    ranges = [(a, b) for a in ages for b in ages if a <= own["age"] <= b]
    sets = {
        name: [
            {own[name], *extra}
            for r in range(4)
            for extra in itertools.combinations(set(train[name]) - {own[name]}, r)
        ]
        for name in ("city", "sex")
    }
    for (low, high), cities, sexes in itertools.product(ranges, sets["city"], sets["sex"]):
        cost = (high - low) / span
        cost += sum(
            len(s) / train[name].nunique()
            for name, s in (("city", cities), ("sex", sexes))
            if len(s) > 1
        )
        yield (
            Region(
                {"age": Interval(low, high), "city": frozenset(cities), "sex": frozenset(sexes)}
            ),
            cost / 3,
        )


def pureness(region: Region, train: pd.DataFrame, own: pd.Series, model: RandomModel) -> float:
    ages = [age for age in sorted(train["age"].unique()) if age in region["age"]]
    combinations = list(itertools.product(ages, region["city"], region["sex"]))
    rows = pd.DataFrame(combinations, columns=["age", "city", "sex"]).assign(score=own["score"])
    return float(model.predict(rows).mean())


def value(policy: PrivacyPolicy, ncp: float, pure: float) -> tuple[float, ...] | None:
    """What the policy minimises; None for a region that it does not allow."""
    if pure < (policy.min_pureness or 0) or ncp > (1 if policy.max_ncp is None else policy.max_ncp):
        return None
    if policy.objective == "pureness":
        return (-pure, ncp)
    return (ncp,)


@pytest.mark.parametrize("settings", POLICIES, ids=str)
@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 25))]
)
def test_what_is_called_optimal_is_optimal(seed: int, settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(seed)
    train, model = table(rng), RandomModel(rng)
    wanted = train[model.predict(train)]
    if wanted.empty:
        return
    own = wanted.iloc[0]
    policy = PrivacyPolicy(guarantee="lookup", k=int(rng.integers(2, 6)), **settings)
    population = Population.from_frame(
        train, Schema.from_frame(train, quasi_identifiers=["age", "city", "sex"])
    )
    entry = (
        KAnonymizer(policy=policy).fit(population, model, desired=True).transform(wanted.head(1))[0]
    )
    allowed = [
        found
        for region, ncp in regions(train, own)
        if sum(region.contains(row) for row in train.to_dict("records")) >= policy.k
        and (found := value(policy, ncp, pureness(region, train, own, model))) is not None
    ]
    if not isinstance(entry, GeneralizedCounterfactual):
        return  # the search for a trade-off may miss an allowed region: it claims nothing
    ours = value(policy, entry.recount.ncp, entry.recount.pureness)
    assert ours is not None
    assert min(allowed) <= tuple(x + 1e-9 for x in ours)
    if entry.certificate.optimal:
        assert ours == pytest.approx(min(allowed), abs=1e-9)
    if policy.objective == "pureness" and policy.max_ncp is None and min(allowed)[0] == -1:
        # a pure region exists, so the best one is found and proven
        assert entry.certificate.optimal
