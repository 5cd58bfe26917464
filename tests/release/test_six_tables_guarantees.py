"""The paper's six tables under the guarantees that hold against somebody who reruns the protection."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Interval, KAnonymizer, PrivacyPolicy, Region
from tables import TABLES, Case, case

pytestmark = pytest.mark.slow

QUERIES = 60


@pytest.fixture(scope="module", params=TABLES)
def table(request: pytest.FixtureRequest) -> Case:
    data = Path(__file__).parents[3] / "shared" / "data"
    if not data.is_dir():
        pytest.skip("the paper's tables are not here (../shared/data)")
    return case(request.param, data, QUERIES)


def rerun_for_everybody(anonymizer: KAnonymizer, table: Case) -> tuple[pd.DataFrame, list[Region | None]]:
    """Give every person's own record to the protection: what somebody does who knows everything but who it is."""
    everybody = table.population.frame.sample(frac=1.0, random_state=1)
    return everybody, anonymizer.regions_of(everybody)


@pytest.mark.parametrize("k", [5, 10, 20])
def test_rerunning_for_everybody_leaves_k_people(table: Case, k: int) -> None:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=k)).fit(table.population, table.model, table.desired)
    _, regions = rerun_for_everybody(anonymizer, table)
    people = Counter(regions)
    assert None not in people
    assert min(people.values()) >= k
    released = anonymizer.transform(table.counterfactuals).released
    assert released
    assert all(entry.certificate.k_effective == people[entry.region] for entry in released)


@pytest.mark.parametrize("k", [5, 10, 20])
def test_the_catalogue_leaves_k_people_who_could_have_been_it(table: Case, k: int) -> None:
    policy = PrivacyPolicy(k=k, guarantee="catalogue")
    anonymizer = KAnonymizer(policy=policy).fit(table.population, table.model, table.desired)
    everybody, regions = rerun_for_everybody(anonymizer, table)
    eligible = table.model.predict(everybody) == table.desired
    people = Counter(region for region, could in zip(regions, eligible, strict=True) if could)
    people.pop(None, None)
    for explanations in (anonymizer.explain(table.queries), anonymizer.transform(table.counterfactuals)):
        assert explanations.released
        for entry in explanations.released:
            assert people[entry.region] >= k
            assert consistent(entry.region, entry.released, everybody[eligible], table) >= k
            assert entry.certificate.k_effective >= k
            assert entry.certificate.k_consistent >= k


def consistent(region: Region, released: dict[str, object], people: pd.DataFrame, table: Case) -> int:
    """Count the people inside for whom the model keeps its promise with the released private values, in pandas."""
    inside = pd.Series(data=True, index=people.index)
    for name, part in region.items():
        column = people[name]
        if isinstance(part, Interval):
            inside &= column.between(part.low, part.high) if part.low is not None else column.isna()
            continue
        inside &= column.isin([v for v in part if v is not None]) | (column.isna() & (None in part))
    members = people[inside].copy()
    for name, value in released.items():
        members[name] = pd.Series([value] * len(members), index=members.index, dtype=members[name].dtype)
    return int(np.sum(table.model.predict(members) == table.desired))
