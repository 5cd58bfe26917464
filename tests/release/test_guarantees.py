"""What each guarantee promises end to end, counted in plain pandas; and diverse regions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from applicants import FEATURES, ROWS
from cfk_plugin import Explanations, KAnonymizer, Population, PrivacyPolicy, Schema, protect
from cfk_plugin.errors import LookupGuaranteeWarning, PolicyError
from cfk_plugin.protection import ExactProtector

K = 5
TRAIN = ROWS[FEATURES]
POPULATION = Population.from_frame(
    TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=["age", "job"])
)
CATALOGUE = PrivacyPolicy(k=K)
LOOKUP = PrivacyPolicy(k=K, guarantee="lookup")


def risk(rows: pd.DataFrame) -> Any:
    """Return one of three labels."""
    return np.array(["high", "mid", "low"], dtype=object)[np.digitize(rows["income"], [43, 58])]


LABELS = risk(TRAIN)


def fitted(
    policy: PrivacyPolicy, model: Any = risk, desired: Any = "low", method: Any = "auto"
) -> KAnonymizer:
    return KAnonymizer(policy=policy, method=method).fit(POPULATION, model, desired)


@pytest.mark.parametrize("method", ["exact", "nonsense", ExactProtector(), None])
def test_catalogue_takes_no_protector(method: Any) -> None:
    with pytest.raises(PolicyError, match="lookup"):
        fitted(CATALOGUE, method=method)


def test_only_lookup_warns() -> None:
    """It does not stop an attacker who runs the algorithm again, or asks the model."""
    with pytest.warns(LookupGuaranteeWarning, match="catalogue") as caught:
        fitted(LOOKUP)
    assert caught[0].filename == __file__
    with pytest.warns(LookupGuaranteeWarning):
        protect(lambda rows: rows, model=risk, population=POPULATION, policy=LOOKUP)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LookupGuaranteeWarning)
        fitted(CATALOGUE)


@pytest.mark.parametrize("key", ["", "a secret"])
@pytest.mark.parametrize("desired", ["low", "opposite"])
def test_k_people_have_the_outcome(desired: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The people who count have the label of the answer, of three, with or without a key."""
    monkeypatch.setenv("CFK_KEY", key)
    population = Population.from_frame(TRAIN, POPULATION.schema)
    anonymizer = KAnonymizer(policy=CATALOGUE).fit(population, risk, desired)
    queries = TRAIN[LABELS != "low"].head(24)
    explanations = anonymizer.explain(queries)
    assert len(explanations.generalized) == len(queries)
    for entry in explanations.generalized:
        (label,) = risk(pd.DataFrame([{**entry.advised, **entry.released}]))
        age, jobs = entry.region["age"], entry.region["job"]
        is_inside = TRAIN["age"].between(age.low, age.high) & TRAIN["job"].isin(jobs)
        assert label != risk(queries)[entry.query]
        assert entry.certificate.guarantee == "catalogue"
        assert entry.recount.k == is_inside.sum()
        assert entry.recount.k_desired == (is_inside & (label == LABELS)).sum()
        assert min(entry.recount.k_desired, entry.recount.k_effective) >= K


def test_rare_outcome_is_not_explained() -> None:
    """Fewer than k people have it."""
    cut = np.sort(TRAIN["income"])[-K + 1]

    def is_rich(rows: pd.DataFrame) -> Any:
        return (rows["income"] >= cut).to_numpy()

    with pytest.raises(PolicyError, match="no group"):
        fitted(CATALOGUE, is_rich, True)
    explanations = fitted(CATALOGUE, is_rich, "opposite").explain(TRAIN[~is_rich(TRAIN)].head(5))
    assert explanations.summary()["reasons"] == {"infeasible": 5}


# --- diverse regions, at ages of which ten years share a diagnosis --------------------------------

PATIENTS = pd.DataFrame({"age": range(40), "diagnosis": np.repeat(["a", "b", "c", "d"], 10)})
CLINIC = Population.from_frame(
    PATIENTS, Schema.from_frame(PATIENTS, quasi_identifiers=["age"], sensitive=["diagnosis"])
)


def diverse(method: str = "exact", **rules: Any) -> Explanations:
    policy = PrivacyPolicy(guarantee="lookup", k=4, **rules)
    anonymizer = KAnonymizer(policy=policy, method=method)
    anonymizer.fit(CLINIC, lambda rows: rows["age"] >= 0, True)
    return anonymizer.transform(PATIENTS.iloc[[5, 19, 33]])


@pytest.mark.parametrize("rules", [{"l": 2}, {"l": 3}, {"t": 0.3}])
@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian"])
def test_regions_grow_until_diverse(method: str, rules: dict[str, Any]) -> None:
    """A region that had to grow is not called optimal."""
    entries = diverse(method, **rules).generalized
    plain = diverse(method).generalized
    assert plain[0].recount.l == 1
    for entry, by_k in zip(entries, plain, strict=True):
        age = entry.region["age"]
        diagnoses = PATIENTS.loc[PATIENTS["age"].between(age.low, age.high), "diagnosis"]
        shares = diagnoses.value_counts(normalize=True).reindex([*"abcd"], fill_value=0)
        assert entry.recount.k == len(diagnoses) >= 4
        assert entry.recount.l == diagnoses.nunique() >= rules.get("l", 1)
        assert entry.recount.t == pytest.approx((shares - 0.25).abs().sum() / 2)
        assert entry.recount.t <= rules.get("t", 1)
        assert entry.region == by_k.region or not entry.certificate.optimal


def test_impossible_diversity_is_withheld() -> None:
    assert diverse(l=5).summary()["reasons"] == {"l_diversity": 3}
