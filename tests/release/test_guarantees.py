"""What each guarantee promises end to end, on scikit-learn's breast cancer table; and diverse
regions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    Explanations,
    Interval,
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
from cfk_plugin.hookspecs import Proposal, ProtectionRequest
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
POLICIES = {
    "catalogue": PrivacyPolicy(k=K, guarantee="catalogue"),
}


def risk(rows: pd.DataFrame) -> np.ndarray:
    """Return one of three labels."""
    score = rows["worst area"].to_numpy() + 20 * rows["mean radius"].to_numpy()
    return np.array(["low", "mid", "high"], dtype=object)[np.digitize(score, [800, 1300])]


LABELS = risk(TRAIN)
LOW = TRAIN[LABELS == "low"]


def fitted(
    policy: PrivacyPolicy, model: Any = risk, desired: Any = "low", **options: Any
) -> KAnonymizer:
    return KAnonymizer(policy=policy, **options).fit(POPULATION, model=model, desired=desired)


@cache
def shared(name: str) -> KAnonymizer:
    return fitted(POLICIES[name])


def inside(region: Region) -> np.ndarray:
    """Say of every row whether it is inside a region; pandas alone."""
    return np.all(
        [TRAIN[name].between(part.low, part.high) for name, part in region.items()], axis=0
    )  # type: ignore[union-attr]


def recount(result: Explanations, anonymizer: KAnonymizer, could_be: np.ndarray | bool) -> None:
    """Rerun the protection for everybody: at least k people who count come out with each released
    region.
    """
    everybody = anonymizer.regions_of(TRAIN)
    assert result.released
    for entry in result.generalized:
        mapped = np.array([region == entry.region for region in everybody]) & could_be
        assert mapped.sum() == entry.recount.k_effective >= K
        assert (inside(entry.region) | ~mapped).all()
        assert entry.certificate.k == inside(entry.region).sum()
        assert entry.certificate.pureness > 0


# --- defaults, refusals, warnings -----------------------------------------------------------------


def test_the_default_guarantee_is_the_catalogue_and_needs_no_method() -> None:
    assert PrivacyPolicy().guarantee == "catalogue"
    assert not PrivacyPolicy(guarantee="lookup").counts_eligible
    assert PrivacyPolicy().counts_eligible
    result = fitted(PrivacyPolicy()).transform(LOW.head(10))
    certificates = [entry.certificate for entry in result.generalized]
    assert {(c.method, c.guarantee, c.optimal) for c in certificates} == {
        ("catalogue", "catalogue", False)
    }
    assert len(certificates) == 10
    assert min(entry.recount.k_effective or 0 for entry in result.generalized) >= 10
    assert min(entry.recount.k_worst for entry in result.generalized) >= 10


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_method_of_ones_own_conflicts_with_a_fixed_partition(policy: PrivacyPolicy) -> None:
    for method in ("exact", "nonsense", ExactProtector(), None):
        with pytest.raises(PolicyError, match=r'needs method="auto".*needs guarantee="lookup"'):
            fitted(policy, method=method)
        with pytest.raises(PolicyError, match=f'guarantee="{policy.guarantee}"'):
            protect(
                lambda rows: rows, model=risk, population=POPULATION, policy=policy, method=method
            )  # type: ignore[arg-type]


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
        for policy in POLICIES.values():
            fitted(policy)


# --- who is left ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_k_people_who_count_are_left_wherever_the_counterfactual_is(name: str) -> None:
    """Natives, near natives and strangers get a region of the partition; steering them makes no new
    one.
    """
    anonymizer, rng, raw = (
        shared(name),
        np.random.default_rng(2),
        LOW.head(40).reset_index(drop=True),
    )
    for shift in (0.0, 0.01, 3.0, 500.0):  # the outcome depends on neither
        moved = raw.assign(
            **{"mean texture": raw["mean texture"] + shift * rng.random(len(raw))},
            **{"mean smoothness": raw["mean smoothness"] + 0.001 * shift * rng.random(len(raw))},
        )
        result = anonymizer.transform(moved)
        assert set(result.findings) <= ({"native"} if shift == 0 else {"near-native", "synthetic"})
        assert {entry.region for entry in result.generalized} <= set(
            anonymizer.guarantee_.partition.regions
        )  # type: ignore[union-attr]
        recount(result, anonymizer, LABELS == "low")
        assert len(result.released) == len(raw)


def test_people_who_count_for_a_catalogue_have_the_outcome_of_the_answer() -> None:
    private = protect(
        NearestUnlikeNeighbour(TRAIN, risk),
        model=risk,
        population=POPULATION,
        policy=POLICIES["catalogue"],
    )
    queries = pd.concat([TRAIN[label == LABELS].head(8) for label in ("low", "mid", "high")])
    result, own, everybody = (
        private.explain(queries),
        risk(queries),
        fitted(POLICIES["catalogue"], desired="opposite").regions_of(TRAIN),
    )
    assert len(result.released) > 18
    for entry in result.generalized:
        mapped, others = (
            np.array([region == entry.region for region in everybody]),
            own[entry.query] != LABELS,
        )
        assert max((mapped & others & (label == LABELS)).sum() for label in set(LABELS)) >= K
        assert (entry.recount.k_effective or 0) >= K
        assert entry.recount.k_desired == (inside(entry.region) & others).sum()


def test_a_catalogue_does_not_explain_an_outcome_that_fewer_than_k_people_have() -> None:
    cut = np.sort(TRAIN["worst area"])[-K + 1]

    def rare(rows: pd.DataFrame) -> np.ndarray:
        return (rows["worst area"] >= cut).to_numpy()

    few = TRAIN[rare(TRAIN)]
    with pytest.raises(PolicyError, match="desired outcome form no group with k = 8, so"):
        fitted(POLICIES["catalogue"], rare, True)
    result = fitted(POLICIES["catalogue"], rare, "opposite").transform(few)
    assert [entry.reason for entry in result.withheld] == ["infeasible"] * len(few)


def test_k_people_are_left_with_and_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("", "a secret"):
        monkeypatch.setenv("CFK_KEY", key)
        anonymizer = KAnonymizer(policy=POLICIES["catalogue"])
        anonymizer.fit(Population.from_frame(TRAIN, SCHEMA), model=risk, desired="low")
        recount(anonymizer.transform(LOW.head(30)), anonymizer, LABELS == "low")


# --- a protector in the place of the partition's --------------------------------------------------


class Answering:
    """A protector that answers with what a function returns."""

    name = "answering"

    def __init__(self, answer: Callable[[ProtectionRequest], Any]) -> None:
        self.protect = answer


def fitted_with(policy: PrivacyPolicy, protector: Any) -> KAnonymizer:
    """Return a fitted anonymizer whose pipeline asks this protector."""
    anonymizer = fitted(policy)
    anonymizer.pipeline_ = replace(anonymizer.pipeline_, protector=protector)
    return anonymizer


@pytest.mark.parametrize("name", POLICIES)
def test_only_the_partitions_own_region_of_a_group_is_released(
    name: str,
) -> None:
    regions, raw = shared(name).guarantee_.partition.regions, LOW.head(5)  # type: ignore[union-attr]
    plain = shared(name).transform(raw)
    first = plain.generalized[0].region
    span = first["mean texture"]
    assert isinstance(span, Interval)
    whole = Region(
        {each: Interval(float(TRAIN[each].min()), float(TRAIN[each].max())) for each in QUASI}
    )
    foreign = [
        Region({**first.parts, "mean texture": Interval(span.low, span.high + by)})
        for by in (0.1, -0.1)
    ]
    assert not {whole, *foreign} & set(regions)
    own = shared(name).regions_of(raw)
    for lie in (whole, *foreign, next(region for region in regions if region not in own)):

        def lies(request: ProtectionRequest, lie: Region = lie) -> list[Proposal]:
            assert request.groups is not None
            request.groups[:] = regions.index(lie) if lie in regions else 0  # its own copy
            return [Proposal(lie)] * len(request)

        result = fitted_with(POLICIES[name], Answering(lies)).transform(raw)
        assert [entry.reason for entry in result.withheld] == ["verification_failed"] * len(raw)
    honest = Answering(shared(name).pipeline_.protector.protect)
    result = fitted_with(POLICIES[name], honest).transform(raw)
    assert [entry.region for entry in result.generalized] == [
        entry.region for entry in plain.generalized
    ]


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
