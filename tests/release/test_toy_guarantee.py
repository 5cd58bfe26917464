"""A guarantee that is defined here runs through the pipeline as it is.

Nothing in `cfk_plugin.release` or `cfk_plugin.protection` knows these kinds. The verifier recounts
them as it recounts the product's own, and refuses what does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import (
    GeneralizedCounterfactual,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Region,
    Schema,
)
from cfk_plugin.data.domain import Rows
from cfk_plugin.data.region import Interval
from cfk_plugin.hookspecs import Proposal, ProtectionRequest, Protector
from cfk_plugin.release.call import Candidates
from cfk_plugin.release.guarantee import Guarantee, RegisteredProtectors
from cfk_plugin.release.pipeline import Pipeline
from cfk_plugin.release.results import Explanation, Withheld

K = 5
TRAIN = pd.DataFrame(
    {
        "age": np.tile(np.arange(20, 60), 3),
        "town": np.repeat(["Aalst", "Brugge", "Mechelen"], 40),
        "pay": np.tile(np.arange(40), 3) * 100,
    }
)
SCHEMA = Schema.from_frame(TRAIN, quasi_identifiers=["age", "town"], nominal=["town"])
POPULATION = Population.from_frame(TRAIN, SCHEMA)
POLICY = PrivacyPolicy(k=K, guarantee="lookup", min_pureness=0)
GRANTED = TRAIN[TRAIN["pay"] > 2000]
COUNTERFACTUALS = GRANTED.iloc[[0, 25, 50]].reset_index(drop=True)
TOWNS = sorted(set(TRAIN["town"]))


def grants(rows: pd.DataFrame) -> Any:
    return rows["pay"].to_numpy() > 2000


def region_of(towns: Sequence[str]) -> Region:
    ages = Interval(int(TRAIN["age"].min()), int(TRAIN["age"].max()))
    return Region({"age": ages, "town": frozenset(towns)})


class ByGroup:
    """A protector that gives each group its region; without groups, everyone the first."""

    def __init__(self, name: str, regions: Sequence[Region]) -> None:
        self.name = name
        self.regions = regions

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        groups = np.zeros(len(request), dtype=np.int64)
        if request.groups is not None:
            groups = request.groups
        return [Proposal(self.regions[group]) for group in groups.tolist()]


class WholeTable(Guarantee):
    """Every explanation is released with the whole table, and with everybody in it."""

    def members(self, region: Region) -> Rows:
        if region == region_of(TOWNS):
            return np.arange(self.population.n_rows)
        return np.empty(0, dtype=np.int64)

    def choose_protector(
        self,
        method: str | Protector,
        registered: RegisteredProtectors,
    ) -> tuple[Protector, str]:
        return ByGroup("whole table", [region_of(TOWNS)]), "whole table"


class ByTown(Guarantee):
    """Every person is released with the people of the same town."""

    def members(self, region: Region) -> Rows:
        towns = region["town"]
        assert isinstance(towns, frozenset)
        return np.flatnonzero(TRAIN["town"].isin(list(towns)))

    def choose_protector(
        self,
        method: str | Protector,
        registered: RegisteredProtectors,
    ) -> tuple[Protector, str]:
        return ByGroup("by town", [region_of([town]) for town in TOWNS]), "by town"

    def groups_of(self, candidates: Candidates) -> Rows | None:
        return np.array([TOWNS.index(town) for town in candidates.points.frame["town"]])

    def is_admissible(self, region: Region, group: int) -> bool:
        return region == region_of([TOWNS[group]])


class OnePerQuery(WholeTable):
    """As the whole table, and each query gets one explanation only."""

    def combine(self, explanations: Sequence[Explanation], query: Rows) -> list[Explanation]:
        is_first = ~pd.Series(query).duplicated()
        return [
            explanation if first else Withheld(explanation.query, "no_other_answer")
            for explanation, first in zip(explanations, is_first, strict=True)
        ]


@pytest.fixture(scope="module")
def anonymizer() -> KAnonymizer:
    return KAnonymizer(policy=POLICY).fit(POPULATION, model=grants, desired=True)


def pipeline_with(anonymizer: KAnonymizer, kind: type[Guarantee]) -> Pipeline:
    """Return a fitted pipeline with a guarantee of another kind."""
    fitted = anonymizer.pipeline_
    guarantee = kind(fitted.policy, fitted.rows, fitted.guarantee.eligibility)
    protector, method = guarantee.choose_protector("auto", dict)
    return replace(
        fitted,
        guarantee=guarantee,
        protector=protector,
        method=method,
        verifier=guarantee.verifier(seed=0),
    )


def explanations_of(pipeline: Pipeline, frame: pd.DataFrame = COUNTERFACTUALS) -> list[Explanation]:
    explanations, _ = pipeline.release(frame, np.arange(len(frame)))
    return explanations


def regions_of(explanations: Sequence[Explanation]) -> list[Region]:
    regions = []
    for explanation in explanations:
        assert isinstance(explanation, GeneralizedCounterfactual)
        regions.append(explanation.region)
    return regions


def reasons_of(explanations: Sequence[Explanation]) -> set[str]:
    return {explanation.reason for explanation in explanations if isinstance(explanation, Withheld)}


def test_the_whole_table_is_released_and_recounted(anonymizer: KAnonymizer) -> None:
    explanations = explanations_of(pipeline_with(anonymizer, WholeTable))
    assert regions_of(explanations) == [region_of(TOWNS)] * 3
    for explanation in explanations:
        assert isinstance(explanation, GeneralizedCounterfactual)
        assert explanation.certificate.method == "whole table"
        assert explanation.certificate.k == len(TRAIN)
        assert explanation.recount.k_effective == len(TRAIN)
        assert explanation.recount.k_desired == len(GRANTED)


def test_a_counterfactual_without_the_outcome_is_withheld(anonymizer: KAnonymizer) -> None:
    frame = pd.concat([COUNTERFACTUALS.head(1), TRAIN.head(1)], ignore_index=True)
    released, withheld = explanations_of(pipeline_with(anonymizer, WholeTable), frame)
    assert released.status == "released"
    assert isinstance(withheld, Withheld)
    assert withheld.reason == "not_desired"


def test_each_town_is_released_with_its_own_people(anonymizer: KAnonymizer) -> None:
    explanations = explanations_of(pipeline_with(anonymizer, ByTown))
    assert regions_of(explanations) == [region_of([town]) for town in COUNTERFACTUALS["town"]]
    for explanation in explanations:
        assert isinstance(explanation, GeneralizedCounterfactual)
        assert explanation.recount.k_effective == 40


def test_equal_counterfactuals_share_a_verdict(anonymizer: KAnonymizer) -> None:
    twice = pd.concat([COUNTERFACTUALS, COUNTERFACTUALS], ignore_index=True)
    explanations = explanations_of(pipeline_with(anonymizer, ByTown), twice)
    assert regions_of(explanations[:3]) == regions_of(explanations[3:])


def test_a_guarantee_decides_which_explanations_stand_together(anonymizer: KAnonymizer) -> None:
    pipeline = pipeline_with(anonymizer, OnePerQuery)
    explanations, _ = pipeline.release(COUNTERFACTUALS, np.array([0, 0, 1]))
    assert [explanation.status for explanation in explanations] == [
        "released",
        "withheld",
        "released",
    ]


# --- guarantees that lie ---------------------------------------------------------------------------


class TooFew(WholeTable):
    """Says that fewer than k people share the region."""

    def members(self, region: Region) -> Rows:
        return np.arange(K - 1)


class PeopleOfOtherTowns(ByTown):
    """Counts everybody as a member of every town."""

    def members(self, region: Region) -> Rows:
        return np.arange(self.population.n_rows)


class OneRow(WholeTable):
    """Proposes the counterfactual itself, and counts everybody as its members."""

    def members(self, region: Region) -> Rows:
        return np.arange(self.population.n_rows)

    def choose_protector(
        self,
        method: str | Protector,
        registered: RegisteredProtectors,
    ) -> tuple[Protector, str]:
        row = COUNTERFACTUALS.iloc[0]
        age = int(row["age"])
        own = Region({"age": Interval(age, age), "town": frozenset([row["town"]])})
        return ByGroup("one row", [own]), "one row"


class UnknownRegion(WholeTable):
    """Proposes a region that nobody is released with."""

    def choose_protector(
        self,
        method: str | Protector,
        registered: RegisteredProtectors,
    ) -> tuple[Protector, str]:
        return ByGroup("unknown", [region_of(TOWNS[:1])]), "unknown"


class AnotherTown(ByTown):
    """Gives people the region of the next town."""

    def choose_protector(
        self,
        method: str | Protector,
        registered: RegisteredProtectors,
    ) -> tuple[Protector, str]:
        regions = [region_of([town]) for town in [*TOWNS[1:], TOWNS[0]]]
        return ByGroup("another town", regions), "another town"


@pytest.mark.parametrize("kind", [TooFew, PeopleOfOtherTowns, OneRow, UnknownRegion, AnotherTown])
def test_a_guarantee_that_lies_releases_nothing(
    anonymizer: KAnonymizer, kind: type[Guarantee]
) -> None:
    explanations = explanations_of(pipeline_with(anonymizer, kind))
    assert len(explanations) == 3
    assert {explanation.status for explanation in explanations} == {"withheld"}
    assert reasons_of(explanations) == {"verification_failed"}


class Failing(WholeTable):
    """Fails with the value of a row in its message."""

    def groups_of(self, candidates: Candidates) -> Rows | None:
        raise ValueError(str(candidates.points.frame.iloc[0].to_dict()))


def test_a_guarantee_that_fails_releases_nothing(
    anonymizer: KAnonymizer, caplog: pytest.LogCaptureFixture
) -> None:
    explanations = explanations_of(pipeline_with(anonymizer, Failing))
    assert reasons_of(explanations) == {"protector_failed"}
    assert "Aalst" not in caplog.text
