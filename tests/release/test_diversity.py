"""l-diversity, t-closeness and the journalist's point of view, through the whole pipeline."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Explanations, KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.errors import InfeasibleError
from cfk_plugin.metrics import t_closeness

# Ages 0 to 39, ten people each ten years with one diagnosis: neighbours in age share it.
TRAIN = pd.DataFrame({"age": np.arange(40), "diagnosis": np.repeat(["a", "b", "c", "d"], 10), "score": np.arange(40)})
SCHEMA = Schema.from_frame(TRAIN, quasi_identifiers=["age"], sensitive=["diagnosis"])
POPULATION = Population.from_frame(TRAIN, SCHEMA)


def explain(method: str = "exact", reference: Population | None = None, **policy: object) -> Explanations:
    anonymizer = KAnonymizer(
        policy=PrivacyPolicy(guarantee="nominal", **{"k": 4, **policy}), method=method, reference=reference
    )
    return anonymizer.fit(POPULATION, lambda rows: rows["score"] >= 0, desired=True).transform(TRAIN.iloc[[5, 19, 33]])


def inside(explanations: Explanations, i: int) -> pd.Series:
    low, high = explanations.released[i].region["age"].low, explanations.released[i].region["age"].high
    return TRAIN.loc[TRAIN["age"].between(low, high), "diagnosis"]


def test_without_l_a_region_may_hold_one_diagnosis_and_says_so() -> None:
    explanations = explain()
    assert inside(explanations, 0).nunique() == explanations.released[0].certificate.l == 1


@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian"])
@pytest.mark.parametrize("l", [2, 3])
def test_regions_grow_until_they_are_diverse(method: str, l: int) -> None:  # noqa: E741 - the field's name
    explanations = explain(method, l=l)
    assert len(explanations.released) == 3
    for i, entry in enumerate(explanations.released):
        assert inside(explanations, i).nunique() == entry.certificate.l >= l
        assert entry.certificate.k >= 4


def test_a_region_that_grew_for_diversity_is_not_called_optimal() -> None:
    by_l, by_k = explain(l=3), explain()
    grown = [entry for entry, plain in zip(by_l.released, by_k.released, strict=True) if entry.region != plain.region]
    assert grown
    assert not any(entry.certificate.optimal for entry in grown)
    assert all(entry.certificate.gap is None for entry in grown)


def test_closeness_is_recounted_and_enforced() -> None:
    explanations = explain(t=0.3)
    for i, entry in enumerate(explanations.released):
        distance = t_closeness(inside(explanations, i), TRAIN["diagnosis"], ordered=False)
        assert entry.certificate.t == pytest.approx(distance)
        assert distance <= 0.3


def test_what_cannot_be_diverse_is_withheld() -> None:
    assert explain(l=5).summary()["reasons"] == {"l_diversity": 3}
    with pytest.raises(InfeasibleError, match="3 of 3 explanations are withheld: l_diversity"):
        explain(l=5, on_infeasible="raise")


def test_journalist_risk_is_counted_in_the_reference_population() -> None:
    larger = Population.from_frame(pd.concat([TRAIN] * 3, ignore_index=True), SCHEMA)
    for entry in explain(reference=larger).released:
        assert entry.certificate.journalist_risk == pytest.approx(entry.certificate.prosecutor_risk / 3)
    assert all(entry.certificate.journalist_risk is None for entry in explain().released)
