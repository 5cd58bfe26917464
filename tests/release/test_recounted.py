"""What only the data holder is told of an explanation: the recount, also of what verification refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Region, Schema, Suppressed, hookimpl
from cfk_plugin.data.region import Interval
from cfk_plugin.hookspecs import Proposal, Task
from cfk_plugin.metrics import attribute_disclosure, ncp_by_attribute, t_closeness
from cfk_plugin.protection import ExactProtector
from cfk_plugin.release.results import GeneralizedCounterfactual

K = 5
TRAIN = pd.DataFrame(
    {
        "salary": np.arange(60) * 10 + 1_000,
        "city": list("ABC") * 20,
        "age": np.arange(60) // 2 + 20,
        "illness": ["cold"] * 45 + ["flu"] * 15,
    }
)
SCHEMA = Schema.from_frame(
    TRAIN, quasi_identifiers=["age", "city"], sensitive=["illness", "salary"], weights={"age": 3.0}
)


@pytest.fixture
def population() -> Population:
    return Population.from_frame(TRAIN, SCHEMA)


def model(rows: pd.DataFrame) -> Any:
    return (rows["salary"] > 1_200).to_numpy()


def released(population: Population, **settings: Any) -> Any:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=K, guarantee="nominal"), **settings)
    return anonymizer.fit(population, model=model, desired=True).transform(TRAIN.tail(6))


def test_a_certificate_says_which_attribute_pays(population: Population) -> None:
    entry = released(population)[0]
    assert isinstance(entry, GeneralizedCounterfactual)
    parts = ncp_by_attribute(entry.region, population)
    assert list(parts) == list(SCHEMA.quasi_identifiers)
    assert entry.certificate.ncp_parts == tuple(parts.values())
    weighted = sum(SCHEMA[name].weight * part for name, part in parts.items())
    assert entry.certificate.ncp == pytest.approx(weighted)


def test_disclosure_is_the_largest_over_the_sensitive_attributes(population: Population) -> None:
    entry = released(population)[0]
    assert isinstance(entry, GeneralizedCounterfactual)
    inside = TRAIN.iloc[population.members(entry.region)]
    each = [attribute_disclosure(inside[name], TRAIN[name]) for name in ("illness", "salary")]
    assert entry.certificate.disclosure == max(each)
    assert entry.certificate.disclosure > 0.5  # all have the illness that a quarter of the people have
    closeness = [t_closeness(inside["illness"], TRAIN["illness"], False)]
    closeness += [t_closeness(inside["salary"], TRAIN["salary"], True)]
    assert entry.certificate.t == max(closeness)


def test_without_rows_or_sensitive_attributes_nothing_is_said(population: Population) -> None:
    plain = Schema.from_frame(TRAIN, quasi_identifiers=["age", "city"])
    (first, *_) = released(Population.from_frame(TRAIN, plain))
    assert (first.certificate.disclosure, len(first.certificate.ncp_parts)) == (None, 2)


def test_none_of_it_is_public(population: Population) -> None:
    certificate = released(population)[0].certificate
    assert not {"ncp_parts", "disclosure", "ledger", "k_intersection", "k_private"} & set(certificate.public())


class Liar(ExactProtector):
    """Proposes the counterfactual's own cell as if it were a crowd."""

    name = "liar"

    def protect(self, task: Task) -> list[Proposal]:
        cells = zip(TRAIN["age"].tail(len(task)), TRAIN["city"].tail(len(task)), strict=True)
        return [Proposal(Region({"age": Interval(age, age), "city": frozenset({city})})) for age, city in cells]


class LyingPlugin:
    """Does the same through the hook, in the place of any protector."""

    @hookimpl
    def cfk_protect(self, task: Task) -> list[Proposal]:
        return Liar().protect(task)


def test_a_protector_that_lies_is_recounted(population: Population) -> None:
    result = released(population, method=Liar())
    assert {(e.reason, e.refused_k) for e in result.suppressed} == {("verification_failed", 1)}
    assert len(result.suppressed) == len(result)


@pytest.mark.parametrize(("guarantee", "counted"), [("nominal", 1), ("reciprocal", 0)])
def test_a_plugin_that_lies_is_recounted(population: Population, guarantee: Any, counted: int) -> None:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=K, guarantee=guarantee), plugins=[LyingPlugin()])
    result = anonymizer.fit(population, model=model, desired=True).transform(TRAIN.tail(6))
    assert {(e.reason, e.refused_k) for e in result.suppressed} == {("verification_failed", counted)}


def test_a_recounted_number_stays_with_the_data_holder() -> None:
    entry = Suppressed(0, "verification_failed", refused_k=31337)
    assert "31337" not in repr(entry) + str(entry) + repr(entry.to_dict()) + entry.text()
    assert entry == Suppressed(0, "verification_failed")


def test_another_reason_has_no_number(population: Population) -> None:
    policy = PrivacyPolicy(k=K, guarantee="nominal", max_ncp=0.0)
    anonymizer = KAnonymizer(policy=policy).fit(population, model=model, desired=True)
    suppressed = anonymizer.transform(TRAIN).suppressed
    assert {entry.refused_k for entry in suppressed} == {None}
    assert {"not_desired", "ncp_above_ceiling"} == {entry.reason for entry in suppressed}
