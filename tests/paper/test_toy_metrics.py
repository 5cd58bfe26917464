"""The seven numbers and the sentence of the paper's toy example, from the metrics alone."""

from __future__ import annotations

import numpy as np
import pytest

import toy
from cfk_plugin import metrics
from cfk_plugin.data.region import Interval
from cfk_plugin.release.results import Phrase, sentence

pytestmark = pytest.mark.full_search


@pytest.fixture(scope="module")
def population():
    return toy.population()


def test_model_agrees_with_every_row():
    assert toy.model(toy.TABLE).tolist() == toy.TABLE["Credit decision"].tolist()


def test_k_and_k_desired(population):
    members = toy.REGION.members(population)
    assert toy.TABLE["Name"].iloc[members].tolist() == ["Fiona", "Gina", "Ingrid"]
    assert population.count(toy.REGION) == 3
    assert (toy.model(population.frame.iloc[members]) == toy.DESIRED).sum() == 2


def test_k_consistent_leaves_only_fiona(population):
    members = population.frame.iloc[toy.REGION.members(population)].copy()
    for name in ("Salary", "Relationship status"):
        members[name] = toy.FIONA[name].iloc[0]
    assert (toy.model(members) == toy.DESIRED).sum() == 1


def test_ncp(population):
    assert metrics.ncp(toy.REGION, population) == pytest.approx(3 / 47 / 3)
    assert round(metrics.ncp(toy.REGION, population), 3) == 0.021
    assert metrics.ncp_by_attribute(toy.REGION, population) == pytest.approx({"Age": 3 / 47, "Gender": 0, "City": 0})


def test_pureness_exact_and_sampled(population):
    exact = metrics.pureness(toy.REGION, toy.FIONA, population, toy.model, toy.DESIRED)
    assert exact == metrics.Pureness(0.5, 0.5, 0.5, True, 4)
    sampled = metrics.pureness(
        toy.REGION, toy.FIONA, population, toy.model, toy.DESIRED, method="sample", n=3, random_state=0
    )
    assert not sampled.exact
    assert sampled.low <= 0.5 <= sampled.high


def test_discernibility_and_classification_metric(population):
    assert metrics.discernibility([population.count(toy.REGION)]) == 3
    labels = toy.model(population.frame.iloc[toy.REGION.members(population)])
    assert metrics.classification_metric([toy.DESIRED], [labels]) == 0
    assert metrics.classification_metric(["Reject"], [labels]) == 1


def test_k_private_and_risk(population):
    members = population.frame.iloc[toy.REGION.members(population)]
    assert metrics.k_private(members, {"Salary": 60.0, "Relationship status": "Single"}) == 2
    assert metrics.prosecutor_risk([3]) == metrics.Risk(1 / 3, 1 / 3, 1.0)


def test_the_sentence():
    phrases = {
        "City": Phrase("", "", "lived in {}"),
        "Salary": Phrase("earned {}K more", "earned {}K less", "earned {}"),
    }
    parts = {**toy.REGION.parts, "Salary": Interval(60, 60), "Relationship status": frozenset({"Single"})}
    text = sentence(parts, toy.LISA, phrases)
    assert "3–6 years older" in text
    assert text.startswith("If you were 3–6 years older, lived in Antwerp and earned 10K more")


def test_table_holds_the_range_of_the_footnote():
    assert np.ptp(toy.TABLE["Age"]) == 47
