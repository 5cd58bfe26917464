"""Fast code against plain pandas on small tables, and the guarantees that attacks should confirm or break."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import Interval, KAnonymizer, Population, PrivacyPolicy, Region, Schema
from cfk_plugin.audit import Setting, downcoding, intersection, inversion, linkage, model_filter, run_linkage_audit
from cfk_plugin.audit.inversion import survivors
from cfk_plugin.audit.linkage import forced_people
from cfk_plugin.audit.result import checks
from cfk_plugin.hookspecs import Proposal, Protector, Task
from cfk_plugin.protection.baselines import GraspProtector

QUASI = ["age", "town", "level"]


def table(n: int = 60, seed: int = 3) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.integers(20, 70, n),
            "town": random.choice(["A", "B", "C"], n),
            "level": random.choice(["low", "mid", "high"], n),
            "pay": random.integers(20, 90, n),
            "owns": random.choice(["yes", "no"], n),
        }
    )


def model(rows: pd.DataFrame) -> np.ndarray:
    return np.where(rows["pay"] + rows["age"] / 2 + 5 * (rows["town"] == "A") > 70, "good", "bad")


TRAIN = table()
NATIVE = TRAIN[model(TRAIN) == "good"].head(8).reset_index(drop=True)


def setting(method: str | Protector = "auto", k: int = 5, **options: object) -> Setting:
    policy = PrivacyPolicy(k=k, guarantee=options.pop("guarantee", "nominal"), objective="ncp")  # type: ignore[arg-type]
    schema = Schema.from_frame(TRAIN, quasi_identifiers=QUASI, ordinal={"level": ["low", "mid", "high"]})
    anonymizer = KAnonymizer(policy=policy, method=method, seed=1)
    anonymizer.fit(Population.from_frame(TRAIN, schema), model, "good")
    return Setting(anonymizer, NATIVE, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def exact() -> Setting:
    return setting("exact")


def test_rerunning_with_own_values_agrees_with_a_loop(exact: Setting) -> None:
    found = inversion(exact, everybody=True).figures
    regions = [exact.anonymizer.regions_of(TRAIN.iloc[[i]])[0] for i in range(len(TRAIN))]
    alike = np.array([sum(other == region for other in regions) for region in regions])
    assert found["everyone_k_effective_min"] == alike.min()
    assert found["everyone_k_effective_median"] == np.median(alike)
    assert found["everyone_success"] == pytest.approx((1 / alike).mean())
    released = [entry.region for entry in exact.explanations.released]
    left = np.array([sum(other == region for other in regions) for region in released])
    assert found["k_effective_min"] == left.min()
    assert found["success"] == pytest.approx((1 / left).mean())
    pairs = list(zip(regions, model(TRAIN) == "good", strict=True))
    assert found["k_releasable_min"] == min(sum(g and other == r for other, g in pairs) for r in released)
    good = model(TRAIN) == "good"
    desired = [region for region, g in zip(regions, good, strict=True) if g]
    wanted = [sum(other == region for other in desired) for region in desired]
    assert found["desired_k_effective_min"] == min(wanted)


def test_mapping_those_inside_is_enough_for_the_attack(exact: Setting) -> None:
    everybody, inside = inversion(setting("exact"), everybody=True), inversion(setting("exact"), everybody=False)
    assert everybody.main == inside.main
    assert {name: everybody.figures[name] for name in inside.figures} == dict(inside.figures)


def test_rerunning_with_released_values_and_asking_the_model_agree_with_a_loop(exact: Setting) -> None:
    effective, consistent, both = [], [], []
    for i, entry in enumerate(exact.explanations.released):
        inside = TRAIN[[entry.region.contains(row) for row in TRAIN.to_dict("records")]].copy()
        inside[["pay", "owns"]] = NATIVE.loc[i, ["pay", "owns"]].tolist()
        inside["pay"] = inside["pay"].astype(int)
        same = np.array([region == entry.region for region in exact.anonymizer.regions_of(inside)])
        good = model(inside) == "good"
        effective.append(same.sum())
        consistent.append(good.sum())
        both.append((same & good).sum())
    assert inversion(exact, "released").main.value == pytest.approx(np.mean(1 / np.array(effective)))
    figures = model_filter(exact).figures
    assert figures["k_consistent_min"] == min(consistent)
    assert figures["k_consistent_below_k"] == np.mean(np.array(consistent) < 5)
    assert figures["both_success"] == pytest.approx(np.mean(1 / np.array(both)))
    certified = [entry.certificate.k_consistent for entry in exact.explanations.released]
    assert certified == consistent


def test_forced_people_agree_with_a_loop(exact: Setting) -> None:
    for release in exact.releases:
        inside = TRAIN.iloc[release.rows]
        expected = np.zeros(len(inside), dtype=bool)
        for name in QUASI:
            codes = inside[name].map({"low": 0, "mid": 1, "high": 2}) if name == "level" else inside[name]
            part = release.region[name]
            ends = [codes.min(), codes.max()] if isinstance(part, Interval) else list(part)
            for end in ends if codes.nunique() > 1 else []:
                if (codes == end).sum() == 1:
                    expected |= (codes == end).to_numpy()
        assert forced_people(exact.crowd, release, release.rows).tolist() == expected.tolist()


def test_a_region_per_counterfactual_breaks_under_rerunning(exact: Setting) -> None:
    found = inversion(exact)
    assert found.figures["k_effective_below_k"] > 0
    assert found.worked
    assert linkage(exact).figures["k_min"] >= 5


@pytest.mark.parametrize(
    ("method", "guarantee"), [("mondrian", "nominal"), ("auto", "reciprocal"), ("auto", "catalogue")]
)
def test_a_fixed_partition_leaves_k_for_everybody(method: str, guarantee: str) -> None:
    one = setting(method, guarantee=guarantee)
    found = inversion(one, everybody=True)
    assert found.figures["everyone_k_effective_min"] >= 5
    assert found.figures["k_effective_min"] >= 5
    if guarantee != "nominal":  # other code counted the same when the certificates were made
        certified = [entry.certificate.k_effective for entry in one.explanations.released]
        assert one.releases.people(survivors(one, "own")).tolist() == certified
    if guarantee == "catalogue":
        assert found.figures["desired_k_effective_min"] >= 5
        assert model_filter(one).figures["k_consistent_min"] >= 5


def test_eligible_people_are_k_as_well() -> None:
    policy = PrivacyPolicy(k=5, guarantee="reciprocal", anonymity_set="eligible")
    population = Population.from_frame(TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=QUASI))
    anonymizer = KAnonymizer(policy=policy).fit(population, model, "good")
    found = inversion(Setting(anonymizer, NATIVE)).figures
    assert found["k_effective_min"] == found["k_releasable_min"] >= 5
    assert found["everyone_k_effective_min"] == found["desired_k_effective_min"] >= 5
    assert found["everyone_mapped"] == pytest.approx((model(TRAIN) == "good").mean())


class Coin:
    """Joins somebody on a line with the one below or the one above, by a coin of seed and place."""

    name = "coin"

    def protect(self, task: Task) -> Sequence[Proposal]:
        found = []
        for codes in task.codes:
            place = int(codes[0])
            low = (
                place - int(np.random.default_rng([task.seed, place]).integers(2)) if 0 < place < 19 else min(place, 18)
            )
            found.append(Proposal(Region({"place": Interval(low, low + 1)})))
        return found


def line(times: int = 1) -> Setting:
    frame = pd.DataFrame({"place": np.arange(20), "secret": np.arange(20) * 7})
    schema = Schema.from_frame(frame, quasi_identifiers=["place"])
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2, guarantee="nominal"), method=Coin(), seed=5)
    anonymizer.fit(Population.from_frame(frame, schema), lambda rows: rows["secret"] >= 0, True)
    return Setting(anonymizer, frame.iloc[2:18])


def test_a_randomised_algorithm_is_simulated() -> None:
    for rerun in ("own", "released"):
        found = inversion(line(), rerun, simulations=60)  # type: ignore[arg-type]
        assert found.figures["random"] == 1.0
        # Both people of a region are mapped to it with probability 1/2, so the posterior is even.
        assert found.main.value == pytest.approx(0.5, abs=0.06)
        assert found.figures["k_effective_median"] == pytest.approx(2, abs=0.3)
        assert found.figures["k_effective_low_median"] < found.figures["k_effective_median"]


def test_simulation_is_seeded() -> None:
    assert inversion(line(), simulations=20).to_dict() == inversion(line(), simulations=20).to_dict()


def test_randomised_regions_of_one_record_intersect_below_k() -> None:
    found = intersection(line(), times=(1, 2, 10))
    assert found.figures["k_after_1_below_k"] == 0.0
    assert found.figures["k_after_10_one"] > 0.9
    assert found.figures["k_after_10_median"] == 1
    assert found.main.value > found.baseline.value == pytest.approx(0.5)
    assert found.worked


def test_grasp_intersects_below_k() -> None:
    found = intersection(setting(GraspProtector(samples=5), limit=5), times=(1, 4))
    assert found.figures["k_after_1_min"] >= 5
    assert found.figures["k_after_4_below_k"] > 0


def test_intersection_through_a_release_of_ones_own() -> None:
    one, asked = setting("exact"), []

    def release(counterfactuals: pd.DataFrame, turn: int) -> object:
        asked.append(turn)
        return one.explanations  # what a ledger does: the region of the first time again

    found = intersection(one, release, times=(1, 4))  # type: ignore[arg-type]
    assert asked == [0, 1, 2, 3]
    assert found.figures["k_after_4_min"] >= 5
    assert found.figures["released"] == 4.0
    assert not found.worked


def test_several_rows_of_one_person_count_once() -> None:
    frame = pd.DataFrame({"who": ["a", "a", "b", "c", "d"], "age": [30, 31, 31, 32, 40], "pay": [1, 1, 2, 3, 4]})
    schema = Schema.from_frame(frame, quasi_identifiers=["age"], subject="who")
    policy = PrivacyPolicy(k=2, guarantee="nominal", objective="ncp")
    anonymizer = KAnonymizer(policy=policy).fit(
        Population.from_frame(frame, schema), lambda rows: rows["pay"] > 0, True
    )
    one = Setting(anonymizer, frame.iloc[[0]], holdout=frame)
    report = run_linkage_audit(one)
    assert report["linkage"].figures["k_min"] == 2
    assert report["linkage"].main.value == pytest.approx(1 / 2)
    assert report["uniqueness"].main.value == 1.0  # two rows carry the values, of one person
    assert checks(anonymizer.policy_, {r.attack: r for r in report})[0].holds
    assert downcoding(one).n == 1
