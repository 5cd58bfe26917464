"""What each guarantee promises end to end, on scikit-learn's breast cancer table; and diverse
regions.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

from cfk_plugin import (
    Explanations,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Region,
    Schema,
    protect,
)
from cfk_plugin.errors import (
    LookupGuaranteeWarning,
    PolicyError,
)
from cfk_plugin.protection import ExactProtector

QUASI = ["mean radius", "mean texture", "mean smoothness"]
PRIVATE = ["mean concavity", "worst area", "worst symmetry"]
FEATURES = [*QUASI, *PRIVATE]
K = 8


def table() -> pd.DataFrame:
    rows: pd.DataFrame = load_breast_cancer(as_frame=True).data[FEATURES].head(260)
    return rows.round({"mean radius": 1, "mean texture": 1, "mean smoothness": 3, "worst area": 0})


TRAIN = table()
SCHEMA = Schema.from_frame(TRAIN, quasi_identifiers=QUASI)
POPULATION = Population.from_frame(TRAIN, SCHEMA)
POLICY = PrivacyPolicy(k=K)


def risk(rows: pd.DataFrame) -> np.ndarray:
    """Return one of three labels."""
    score = rows["worst area"].to_numpy() + 20 * rows["mean radius"].to_numpy()
    return np.array(["low", "mid", "high"], dtype=object)[np.digitize(score, [800, 1300])]


LABELS = risk(TRAIN)
HIGH = TRAIN[LABELS == "high"]


def fitted(
    policy: PrivacyPolicy, model: Any = risk, desired: Any = "low", **options: Any
) -> KAnonymizer:
    return KAnonymizer(policy=policy, **options).fit(POPULATION, model=model, desired=desired)


def inside(region: Region) -> np.ndarray:
    """Return which rows are inside a region, by pandas only."""
    within = [TRAIN[name].between(part.low, part.high) for name, part in region.items()]  # type: ignore[union-attr]
    return np.all(within, axis=0)


# --- defaults, refusals, warnings -----------------------------------------------------------------


def test_the_default_guarantee_is_the_catalogue_and_needs_no_method() -> None:
    assert PrivacyPolicy().guarantee == "catalogue"
    result = fitted(PrivacyPolicy()).explain(HIGH.head(10))
    assert len(result.generalized) == 10
    for entry in result.generalized:
        certificate = entry.certificate
        assert (certificate.method, certificate.guarantee) == ("catalogue", "catalogue")
        assert not certificate.optimal
        assert entry.recount.k_worst >= 10


@pytest.mark.parametrize("method", ["exact", "nonsense", ExactProtector(), None])
def test_a_catalogue_takes_no_protector(method: Any) -> None:
    with pytest.raises(PolicyError, match=r'needs method="auto".*needs guarantee="lookup"'):
        fitted(POLICY, method=method)
    with pytest.raises(PolicyError, match='guarantee="catalogue"'):
        protect(None, model=risk, population=POPULATION, policy=POLICY, method=method)


def test_only_a_lookup_guarantee_warns_of_what_it_does_not_hold_against() -> None:
    lookup = PrivacyPolicy(k=K, guarantee="lookup")
    with pytest.warns(
        LookupGuaranteeWarning, match="reruns the algorithm, or asks the model.*fewer"
    ) as caught:
        KAnonymizer(policy=lookup).fit(POPULATION, model=risk, desired="low")
    assert 'guarantee="catalogue"' in str(caught[0].message)
    assert caught[0].filename == __file__
    with pytest.warns(LookupGuaranteeWarning):
        protect(
            lambda rows: rows, model=risk, population=POPULATION, policy=lookup, method="mondrian"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(POLICY)


# --- who is left ----------------------------------------------------------------------------------


def test_k_people_with_the_outcome_are_left_with_and_without_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for key in ("", "a secret"):
        monkeypatch.setenv("CFK_KEY", key)
        population = Population.from_frame(TRAIN, SCHEMA)
        anonymizer = KAnonymizer(policy=POLICY).fit(population, model=risk, desired="low")
        result = anonymizer.explain(HIGH.head(30))
        assert len(result.generalized) == 30
        for entry in result.generalized:
            is_inside = inside(entry.region)
            assert entry.certificate.k == is_inside.sum()
            assert entry.recount.k_desired == (is_inside & (LABELS == "low")).sum()
            assert min(entry.recount.k_desired, entry.recount.k_effective) >= K


def test_people_who_count_have_the_outcome_of_the_answer() -> None:
    private = protect(model=risk, population=POPULATION, policy=POLICY)
    queries = pd.concat([TRAIN[label == LABELS].head(8) for label in set(LABELS)])
    result = private.explain(queries)
    labels = risk(queries)
    assert len(result.generalized) == 24
    for entry in result.generalized:
        point = pd.DataFrame([{**entry.advised, **entry.released}])[FEATURES]
        label = risk(point)[0]
        assert label != labels[entry.query]
        assert entry.recount.k_desired == (inside(entry.region) & (label == LABELS)).sum() >= K


def test_a_catalogue_does_not_explain_an_outcome_that_fewer_than_k_people_have() -> None:
    cut = np.sort(TRAIN["worst area"])[-K + 1]

    def rare(rows: pd.DataFrame) -> np.ndarray:
        return (rows["worst area"] >= cut).to_numpy()

    common = TRAIN[~rare(TRAIN)].head(5)
    with pytest.raises(PolicyError, match="desired outcome form no group with k = 8, so"):
        fitted(POLICY, rare, True)
    result = fitted(POLICY, rare, "opposite").explain(common)
    assert [entry.reason for entry in result.withheld] == ["infeasible"] * len(common)


# --- diverse regions, at ages of which ten years share a diagnosis --------------------------------

PATIENTS = pd.DataFrame(
    {"age": range(40), "diagnosis": np.repeat(["a", "b", "c", "d"], 10), "score": range(40)}
)
CLINIC = Population.from_frame(
    PATIENTS, Schema.from_frame(PATIENTS, quasi_identifiers=["age"], sensitive=["diagnosis"])
)


def explained(method: str = "exact", **policy: Any) -> Explanations:
    asked = PrivacyPolicy(**{"guarantee": "lookup", "k": 4, **policy})
    anonymizer = KAnonymizer(policy=asked, method=method).fit(
        CLINIC, lambda rows: rows["score"] >= 0, desired=True
    )
    return anonymizer.transform(PATIENTS.iloc[[5, 19, 33]])


@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian"])
def test_regions_grow_until_they_are_diverse_and_are_then_not_called_optimal(method: str) -> None:
    by_k = explained(method)
    assert by_k.generalized[0].recount.l == 1
    for policy in ({"l": 2}, {"l": 3}, {"t": 0.3}):
        for entry, plain in zip(
            explained(method, **policy).generalized, by_k.generalized, strict=True
        ):
            region = entry.region["age"]
            certificate = entry.certificate
            recount = entry.recount
            diagnoses = PATIENTS.loc[PATIENTS["age"].between(region.low, region.high), "diagnosis"]  # type: ignore[union-attr]
            shares = diagnoses.value_counts(normalize=True).reindex(list("abcd"), fill_value=0)
            assert certificate.k == len(diagnoses) >= 4
            assert recount.l == diagnoses.nunique() >= policy.get("l", 1)
            assert recount.t == pytest.approx((shares - 0.25).abs().sum() / 2)
            assert recount.t <= policy.get("t", 1)
            assert entry.region == plain.region or (certificate.optimal, certificate.gap) == (
                False,
                None,
            )


def test_what_cannot_be_diverse_is_withheld() -> None:
    assert explained(l=5).summary()["reasons"] == {"l_diversity": 3}
