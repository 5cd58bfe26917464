"""The guarantees "reciprocal" and "catalogue" end to end, on scikit-learn's breast cancer table."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from cfk_adapters.nearest import NearestUnlikeNeighbour
from cfk_plugin import (
    Explanations,
    GeneralizedCounterfactual,
    Interval,
    KAnonymizer,
    Population,
    PrivacyPolicy,
    Region,
    Schema,
    hookimpl,
    protect,
)
from cfk_plugin.errors import NominalGuaranteeWarning, PolicyError
from cfk_plugin.hookspecs import Proposal, Task
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
RECIPROCAL = PrivacyPolicy(k=K)
ELIGIBLE = PrivacyPolicy(k=K, anonymity_set="eligible")
CATALOGUE = PrivacyPolicy(k=K, guarantee="catalogue")
POLICIES = {"reciprocal": RECIPROCAL, "eligible": ELIGIBLE, "catalogue": CATALOGUE}


@pytest.fixture(scope="module")
def model() -> Pipeline:
    labels = load_breast_cancer().target[: len(TRAIN)]
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(TRAIN, labels)


def risk(rows: pd.DataFrame) -> np.ndarray:
    """Return one of three labels."""
    return np.array(["low", "mid", "high"], dtype=object)[
        np.digitize(rows["worst area"].to_numpy() + 20 * rows["mean radius"].to_numpy(), [800, 1300])
    ]


def inside(region: Region, rows: pd.DataFrame = TRAIN) -> np.ndarray:
    """Say of every row whether it is inside a region; pandas alone."""
    mask = np.ones(len(rows), dtype=bool)
    for name, part in region.items():
        assert isinstance(part, Interval)
        mask &= rows[name].between(part.low, part.high).to_numpy()
    return mask


def recount(
    result: Explanations, anonymizer: KAnonymizer, could_be: Callable[[GeneralizedCounterfactual], np.ndarray]
) -> None:
    """Rerun the protection for everybody: at least k people who count come out with each released region."""
    everybody = anonymizer.regions_of(TRAIN)
    assert result.released
    for entry in result.released:
        mapped = np.array([region == entry.region for region in everybody]) & could_be(entry)
        assert mapped.sum() == entry.certificate.k_effective >= K
        assert (inside(entry.region) | ~mapped).all()
        assert entry.certificate.k == inside(entry.region).sum() >= mapped.sum()
        assert entry.certificate.pureness > 0
        if anonymizer.policy_.guarantee == "catalogue":
            swapped = anonymizer.model_(TRAIN.assign(**dict(entry.released))[FEATURES])
            good = anonymizer.goal_.met(swapped) if not anonymizer.goal_.is_opposite else None
            assert good is None or (mapped & good).sum() >= K


def everyone(entry: GeneralizedCounterfactual) -> np.ndarray:
    return np.ones(len(TRAIN), dtype=bool)


# --- defaults and refusals -------------------------------------------------------------------------------------


def test_the_default_guarantee_is_reciprocal_and_needs_no_method(model: Pipeline) -> None:
    assert PrivacyPolicy().guarantee == "reciprocal"
    assert PrivacyPolicy().anonymity_set == "population"
    anonymizer = KAnonymizer().fit(POPULATION, model=model, desired=1)
    result = anonymizer.transform(TRAIN[model.predict(TRAIN) == 1].head(10))
    assert len(result.released) == 10
    assert {entry.certificate.method for entry in result.released} == {"reciprocal"}
    assert {entry.certificate.guarantee for entry in result.released} == {"reciprocal"}
    assert all((entry.certificate.k_effective or 0) >= 10 for entry in result.released)
    assert not any(entry.certificate.optimal for entry in result.released)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("method", ["exact", "grasp", "mondrian", "nonsense", ExactProtector(), None])
def test_a_method_of_ones_own_conflicts_with_a_fixed_partition(
    method: Any, policy: PrivacyPolicy, model: Pipeline
) -> None:
    with pytest.raises(PolicyError, match=r'needs method="auto".*needs guarantee="nominal"'):
        KAnonymizer(policy=policy, method=method).fit(POPULATION, model=model, desired=1)
    with pytest.raises(PolicyError, match=f'guarantee="{policy.guarantee}"'):
        protect(lambda rows: rows, model=model, population=POPULATION, policy=policy, method=method)


def test_a_nominal_guarantee_warns_of_what_it_does_not_hold_against(model: Pipeline) -> None:
    nominal = PrivacyPolicy(k=K, guarantee="nominal")
    with pytest.warns(NominalGuaranteeWarning, match="reruns the algorithm, or asks the model.*fewer") as caught:
        KAnonymizer(policy=nominal).fit(POPULATION, model=model, desired=1)
    assert 'guarantee="reciprocal"' in str(caught[0].message)
    assert '"catalogue"' in str(caught[0].message)
    assert caught[0].filename == __file__
    with pytest.warns(NominalGuaranteeWarning):
        protect(lambda rows: rows, model=model, population=POPULATION, policy=nominal, method="mondrian")


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_other_guarantees_do_not_warn(policy: PrivacyPolicy, model: Pipeline) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KAnonymizer(policy=policy).fit(POPULATION, model=model, desired="opposite")


def test_a_nominal_k_cannot_count_eligible_people_alone() -> None:
    with pytest.raises(PolicyError, match="eligible"):
        PrivacyPolicy(guarantee="nominal", anonymity_set="eligible")
    assert PrivacyPolicy(guarantee="catalogue").counts_eligible
    assert not PrivacyPolicy().counts_eligible


# --- explainers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_nearest_neighbour(policy: PrivacyPolicy, model: Pipeline) -> None:
    labels = model.predict(TRAIN)
    private = protect(
        NearestUnlikeNeighbour(TRAIN, model), model=model, population=POPULATION, policy=policy, desired=1
    )
    queries = TRAIN[labels == 0].head(25)
    result = private.explain(queries)
    assert [entry.query for entry in result] == list(range(25))
    assert len(result.released) == 25
    assert set(result.findings) == {"native"}
    anonymizer = KAnonymizer(policy=policy).fit(POPULATION, model=model, desired=1)
    recount(result, anonymizer, everyone if policy is RECIPROCAL else lambda entry: labels == 1)
    native = NearestUnlikeNeighbour(TRAIN, model).explain(queries)
    for entry, (_, own) in zip(result.released, native.iterrows(), strict=True):
        if policy is not CATALOGUE:
            assert inside(entry.region, pd.DataFrame([own]))[0]
            assert dict(entry.released) == own[PRIVATE].to_dict()
    alone = [private.explain(queries.iloc[[i]])[0] for i in range(0, 25, 6)]
    assert [entry.to_dict() for entry in alone] == [{**result[i].to_dict(), "query": 0} for i in range(0, 25, 6)]


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_dice(policy: PrivacyPolicy, model: Pipeline) -> None:
    dice_ml = pytest.importorskip("dice_ml", reason="needs the extra [dice]")
    labels = model.predict(TRAIN)
    data = dice_ml.Data(dataframe=TRAIN.assign(outcome=labels), continuous_features=FEATURES, outcome_name="outcome")
    explainer = dice_ml.Dice(data, dice_ml.Model(model=model, backend="sklearn"), method="random")
    private = protect(explainer, model=model, population=POPULATION, policy=policy)
    queries = TRAIN[labels == 0].head(3)
    result = private.explain(queries, total_CFs=3, random_seed=4)
    assert [entry.query for entry in result] == np.repeat(range(3), 3).tolist()
    assert "synthetic" in result.findings
    anonymizer = KAnonymizer(policy=policy).fit(POPULATION, model=model, desired="opposite")
    recount(result, anonymizer, everyone if policy is RECIPROCAL else lambda entry: labels == 1)
    assert {entry.reason for entry in result.suppressed} <= {"pureness_below_floor", "none_found"}
    native = private.generate_counterfactuals(queries, total_CFs=3, desired_class="opposite", random_seed=4)
    assert type(native).__module__.startswith("dice_ml")
    rebuilt = [examples.final_cfs_df for examples in native.cf_examples_list if examples.final_cfs_df is not None]
    assert sum(map(len, rebuilt)) == len(result.released)


# --- anchors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("shift", [0.0, 0.01, 3.0, 500.0])
def test_whatever_the_counterfactual_is_it_gets_a_region_of_the_partition(shift: float, policy: PrivacyPolicy) -> None:
    labels = risk(TRAIN)
    rng = np.random.default_rng(2)
    raw = TRAIN[labels == "low"].head(40).reset_index(drop=True)
    raw["mean texture"] += shift * rng.random(len(raw))  # the outcome depends on neither
    raw["mean smoothness"] += 0.001 * shift * rng.random(len(raw))
    anonymizer = KAnonymizer(policy=policy).fit(POPULATION, model=risk, desired="low")
    result = anonymizer.transform(raw)
    assert set(result.findings) <= ({"native"} if shift == 0 else {"near-native", "synthetic"})
    partition = anonymizer.guarantee_.partition
    assert partition is not None
    assert {entry.region for entry in result.released} <= set(partition.regions)
    recount(result, anonymizer, everyone if policy is RECIPROCAL else lambda entry: labels == "low")
    assert {entry.reason for entry in result.suppressed} <= {"pureness_below_floor"}
    assert len(result.released) == len(raw) or policy is RECIPROCAL


def test_a_wide_draw_of_synthetic_counterfactuals_shows_no_other_regions(model: Pipeline) -> None:
    """Steering the counterfactual moves it between the groups; it makes no new region."""
    rng = np.random.default_rng(5)
    raw = pd.DataFrame({name: rng.choice(TRAIN[name], 400) for name in FEATURES})
    anonymizer = KAnonymizer(policy=RECIPROCAL).fit(POPULATION, model=model, desired="opposite")
    partition = anonymizer.guarantee_.partition
    assert partition is not None
    assert {entry.region for entry in anonymizer.transform(raw).released} <= set(partition.regions)


# --- outcomes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [ELIGIBLE, CATALOGUE], ids=["eligible", "catalogue"])
def test_opposite_of_three_outcomes_counts_people_with_the_outcome_of_the_answer(policy: PrivacyPolicy) -> None:
    labels = risk(TRAIN)
    private = protect(NearestUnlikeNeighbour(TRAIN, risk), model=risk, population=POPULATION, policy=policy)
    queries = pd.concat([TRAIN[labels == label].head(8) for label in ("low", "mid", "high")])
    result, own = private.explain(queries), risk(queries)
    assert len(result.released) > 18
    anonymizer = KAnonymizer(policy=policy).fit(POPULATION, model=risk, desired="opposite")
    everybody = anonymizer.regions_of(TRAIN)
    partition = anonymizer.guarantee_.partition
    assert partition is not None
    for entry in result.released:
        mapped = np.array([region == entry.region for region in everybody])
        outcomes = [label for label in set(labels) - {own[entry.query]} if (mapped & (labels == label)).sum() >= K]
        assert outcomes
        assert (mapped & (labels != own[entry.query])).sum() >= K
        assert (entry.certificate.k_effective or 0) >= K
        assert entry.certificate.k_desired == (inside(entry.region) & (labels != own[entry.query])).sum()


@pytest.mark.parametrize("policy", [ELIGIBLE, CATALOGUE], ids=["eligible", "catalogue"])
def test_a_callable_goal_counts_people_who_meet_it(policy: PrivacyPolicy) -> None:
    def safe(labels: Any) -> Any:
        return np.isin(labels, ["low", "mid"])

    eligible = safe(risk(TRAIN))
    anonymizer = KAnonymizer(policy=policy).fit(POPULATION, model=risk, desired=safe)
    result = anonymizer.transform(TRAIN.head(60))
    assert [getattr(entry, "reason", None) for entry in result] == [
        None if is_eligible else "not_desired" for is_eligible in eligible[:60]
    ]
    recount(result, anonymizer, lambda entry: eligible)


@pytest.mark.parametrize("policy", [ELIGIBLE, CATALOGUE], ids=["eligible", "catalogue"])
def test_an_outcome_that_fewer_than_k_people_have_is_not_explained(policy: PrivacyPolicy) -> None:
    cut = np.sort(TRAIN["worst area"])[-K + 1]

    def rare(rows: pd.DataFrame) -> np.ndarray:
        return (rows["worst area"] >= cut).to_numpy()

    few = TRAIN[rare(TRAIN)]
    assert 0 < len(few) < K
    for desired in (True, "opposite"):
        result = KAnonymizer(policy=policy).fit(POPULATION, model=rare, desired=desired).transform(few)
        assert [entry.reason for entry in result.suppressed] == ["infeasible"] * len(few)
    whole = KAnonymizer(policy=RECIPROCAL).fit(POPULATION, model=rare, desired=True).transform(few)
    assert all((entry.certificate.k_effective or 0) >= K for entry in whole.released)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_catalogue_is_shown_and_no_more_however_often_it_is_asked(policy: PrivacyPolicy, model: Pipeline) -> None:
    anonymizer = KAnonymizer(policy=policy).fit(POPULATION, model=model, desired=1)
    if policy is not CATALOGUE:
        with pytest.raises(PolicyError, match="catalogue"):
            anonymizer.explain(TRAIN.head(1))
        return
    assert anonymizer.guarantee_.catalogue is not None
    entries = {
        (anonymizer.regions_of(TRAIN.iloc[[row]])[0], *TRAIN.iloc[row][PRIVATE])
        for row in anonymizer.guarantee_.catalogue.rows
    }
    rng = np.random.default_rng(6)
    asked = pd.DataFrame({name: rng.choice(TRAIN[name], 300) for name in FEATURES})
    shown = {(e.region, *e.released.values()) for e in anonymizer.explain(asked).released}
    assert 1 < len(shown) <= len(entries)
    assert shown <= entries


# --- verification ----------------------------------------------------------------------------------------------


class Lying:
    """A plugin that protects in the place of the partition."""

    def __init__(self, answer: Callable[[Task], Any]) -> None:
        self._answer = answer

    @hookimpl
    def cfk_protect(self, task: Task) -> Any:
        return self._answer(task)


def whole_range() -> Region:
    return Region({name: Interval(float(TRAIN[name].min()), float(TRAIN[name].max())) for name in QUASI})


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_regions_outside_of_the_partition_are_refused_however_many_people_they_hold(
    policy: PrivacyPolicy, model: Pipeline
) -> None:
    honest = KAnonymizer(policy=policy).fit(POPULATION, model=model, desired=1)
    partition = honest.guarantee_.partition
    assert partition is not None
    raw = TRAIN[model.predict(TRAIN) == 1].head(5)
    first = honest.transform(raw).released[0].region
    span = first["mean texture"]
    assert isinstance(span, Interval)
    wider = Region({**first.parts, "mean texture": Interval(span.low, span.high + 0.1)})
    shorter = Region({**first.parts, "mean texture": Interval(span.low, span.high - 0.1)})
    lies: list[Region] = [whole_range(), wider, shorter]
    for lie in lies:
        assert lie not in partition.regions
        liar = KAnonymizer(policy=policy, plugins=[Lying(lambda task, lie=lie: [Proposal(lie)] * len(task))])
        result = liar.fit(POPULATION, model=model, desired=1).transform(raw)
        assert [entry.reason for entry in result.suppressed] == ["verification_failed"] * len(raw)


def test_a_plugin_cannot_release_somebody_with_the_region_of_another_group(model: Pipeline) -> None:
    honest = KAnonymizer(policy=RECIPROCAL).fit(POPULATION, model=risk, desired="low")
    raw = TRAIN[risk(TRAIN) == "low"].head(5)
    own = honest.regions_of(raw)
    partition = honest.guarantee_.partition
    assert partition is not None
    other = next(region for region in partition.regions if region not in own)

    def swapped(task: Task) -> list[Proposal]:
        assert task.groups is not None
        task.groups[:] = partition.regions.index(other)  # its own copy
        return [Proposal(other)] * len(task)

    lying = KAnonymizer(policy=RECIPROCAL, plugins=[Lying(swapped)]).fit(POPULATION, model=risk, desired="low")
    assert [e.reason for e in lying.transform(raw).suppressed] == ["verification_failed"] * len(raw)


def test_an_honest_plugin_may_answer_with_the_partitions_own_regions(model: Pipeline) -> None:
    honest = KAnonymizer(policy=RECIPROCAL).fit(POPULATION, model=model, desired=1)
    raw = TRAIN[model.predict(TRAIN) == 1].head(5)
    plain = honest.transform(raw)
    plugin = Lying(lambda task: honest.pipeline_.protector.protect(task))  # noqa: PLW0108 - a hook's argument goes by its name
    result = KAnonymizer(policy=RECIPROCAL, plugins=[plugin]).fit(POPULATION, model=model, desired=1).transform(raw)
    assert [entry.region for entry in result.released] == [entry.region for entry in plain.released]
    assert {entry.certificate.method for entry in result.released} == {"plugin"}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_floors_and_ceilings_hold(policy: PrivacyPolicy, model: Pipeline) -> None:
    strict = replace(policy, min_pureness=0.9, max_ncp=0.15)
    result = KAnonymizer(policy=strict).fit(POPULATION, model=model, desired=1).transform(TRAIN.head(80))
    assert result.released
    for entry in result.released:
        assert entry.certificate.pureness_low >= 0.9
        assert entry.certificate.ncp <= 0.15
    assert {entry.reason for entry in result.suppressed} <= {
        "pureness_below_floor",
        "ncp_above_ceiling",
        "not_desired",
    }


def test_k_people_are_left_with_and_without_a_key(model: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = TRAIN[model.predict(TRAIN) == 1].head(30)
    for key in ("", "a secret"):
        monkeypatch.setenv("CFK_KEY", key)
        population = Population.from_frame(TRAIN, SCHEMA)
        anonymizer = KAnonymizer(policy=ELIGIBLE).fit(population, model=model, desired=1)
        result = anonymizer.transform(raw)
        assert len(result.released) == 30
        recount(result, anonymizer, lambda entry: model.predict(TRAIN) == 1)
