"""Attacks on released regions: by hand on the paper's example, against plain loops, and what
guarantees promise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

import toy
from cfk_plugin import Interval, KAnonymizer, Population, PrivacyPolicy, Region, Schema
from cfk_plugin.audit import (
    AuditResult,
    Setting,
    downcoding,
    homogeneity,
    intersection,
    inversion,
    linkage,
    model_filter,
    nearest_row,
    run_linkage_audit,
    steering,
    uniqueness,
)
from cfk_plugin.errors import PolicyError
from cfk_plugin.hookspecs import Proposal, ProtectionRequest, Protector


class PaperRegion:
    """Proposes the region of the paper's Figure 2 for Fiona and Gina, and Antwerp or Brussels for
    everybody else.
    """

    name = "figure-2"

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        return [Proposal(self.region(request, i)) for i in range(len(request))]

    def region(self, request: ProtectionRequest, i: int) -> Region:
        age, _, city = request.numbers[i][0], *request.codes[i][1:]
        if age in {24, 27}:
            return toy.REGION
        town = "Antwerp" if city == 0 else "Brussels"
        return Region(
            {"Age": Interval(20, 70), "Gender": frozenset({"F", "M"}), "City": frozenset({town})}
        )


def of_paper(reference: Population | None = None, **options: Any) -> Setting:
    anonymizer = KAnonymizer(
        policy=PrivacyPolicy(k=2, guarantee="lookup"), method=PaperRegion(), reference=reference
    )
    return Setting(anonymizer.fit(toy.population(), toy.model, toy.DESIRED), toy.FIONA, **options)


BY_HAND: dict[str, tuple[Callable[[Setting], AuditResult], float, dict[str, float]]] = {
    "linkage: the raw explanation is Fiona, the protected one is one of three; Ingrid has 60 and is single as well": (
        linkage,
        1 / 3,
        {
            "baseline": 1 / 10,
            "raw_success": 1,
            "raw_singled_out": 1,
            "singled_out": 0,
            "k_min": 3,
            "values_right": 2 / 3,
        },
    ),
    "model_filter: the model leaves Fiona alone": (
        model_filter,
        1.0,
        {
            "baseline": 1 / 3,
            "k_consistent_min": 1,
            "k_consistent_one": 1,
            "struck_out": 2 / 3,
            "k_both_min": 1,
            "both_success": 1,
        },
    ),
    "inversion_own: the algorithm leaves Fiona and Gina": (
        inversion,
        1 / 2,
        {"k_effective_min": 2},
    ),
    "inversion_released: the same with released values": (
        lambda one: inversion(one, "released"),
        1 / 2,
        {"k_effective_min": 2},
    ),
    "everybody is mapped: Fiona and Gina, three others in Antwerp, five in Brussels; Derek, and Edward and Jade": (
        lambda one: inversion(one, everybody=True),
        1 / 2,
        {
            "everyone_k_effective_min": 2,
            "everyone_k_effective_median": 4,
            "everyone_success": 3 / 10,
            "everyone_mapped": 1,
            "desired_k_effective_min": 1,
            "desired_k_effective_one": 1 / 5,
        },
    ),
    "uniqueness: private values are shared by two": (
        uniqueness,
        1 / 2,
        {"private_matches_min": 2, "k_private_min": 2},
    ),
    "homogeneity: 60, 60 and 80, of which five per cent of the range are 3.5": (
        lambda one: homogeneity(one, share=0.6, lift=1.5),
        2 / 3,
        {
            "share/Salary": 2 / 3,
            "lift/Salary": (2 / 3) / (3 / 10),
            "lift/Relationship status": (2 / 3) / (4 / 10),
            "flagged": 1,
        },
    ),
    "downcoding: Fiona, 24, and Gina, 27, are the ends; Ingrid is in between": (
        downcoding,
        1 / 2,
        {
            "forced_min": 2,
            "right_forced": 1,
            "border_lift": 3 / 2,
            "k_effective_success": 1 / 2,
            "beats_k_effective": 0,
        },
    ),
}


@pytest.mark.parametrize("attack", BY_HAND)
def test_on_the_papers_example_an_attack_reaches_what_a_hand_counts(attack: str) -> None:
    run, main, figures = BY_HAND[attack]
    found = run(of_paper())
    assert (found.main.value, found.control) == (pytest.approx(main), None)
    said = {"baseline": found.baseline.value, **found.figures}
    assert {name: said[name] for name in figures} == pytest.approx(figures)


def test_the_journalist_looks_in_a_larger_register() -> None:
    register = pd.concat(
        [toy.TABLE, toy.TABLE[toy.TABLE["Name"].isin(["Fiona", "Gina"])]], ignore_index=True
    )
    schema = Schema.from_frame(register, quasi_identifiers=toy.QUASI_IDENTIFIERS)
    found = linkage(of_paper(Population.from_frame(register, schema))).figures
    assert (found["raw_journalist_success"], found["raw_journalist_singled_out"]) == (0.5, 0)
    assert found["journalist_success"] == pytest.approx(1 / 5)


def test_steering_asks_as_each_candidate_and_strikes_out_whose_answer_differs() -> None:
    one, asked = of_paper(), []
    gina = toy.TABLE.loc[toy.TABLE["Name"] == "Gina", toy.FEATURES]

    def alike(queries: pd.DataFrame) -> Any:
        asked.append(queries)
        return one.anonymizer.transform(pd.concat([toy.FIONA] * len(queries), ignore_index=True))

    def presentation(queries: pd.DataFrame) -> Any:
        rows = [toy.FIONA if age == 24 else gina for age in queries["Age"]]
        return one.anonymizer.transform(pd.concat(rows, ignore_index=True))

    found = steering(one, alike).figures
    assert len(asked[0]) == 3
    assert set(asked[0]["Age"]) == {24, 26, 27}
    assert (toy.model(asked[0]) == "Reject").all()
    # Only Fiona's query needed spoiling: the others are undesired with 60 and Single as it is.
    assert (asked[0].loc[asked[0]["Age"] != 24, "Salary"] == 60).all()
    assert (found["k_steered_min"], found["candidates_success"]) == (3, pytest.approx(1 / 3))
    found = steering(one, presentation).figures
    assert (found["candidates_success"], found["k_steered_one"], found["right_survives"]) == (
        1,
        1,
        1,
    )
    assert found["candidates_lookup"] == pytest.approx(1 / 3)
    assert (found["candidates_attempts"], found["candidates_answered"]) == (1, 1)


def test_of_a_release_that_struck_out_everybody_no_number_of_people_is_said() -> None:
    one = of_paper()
    gina = toy.TABLE.loc[toy.TABLE["Name"] == "Gina", toy.FEATURES]

    def other(queries: pd.DataFrame) -> Any:
        return one.anonymizer.transform(pd.concat([gina] * len(queries), ignore_index=True))

    found = steering(one, other).figures
    assert (found["right_survives"], found["nobody_left"]) == (0, 1)
    assert math.isnan(found["k_steered_min"])  # 0 would look worse than 1, which names a person
    assert steering(one).figures["nobody_left"] == 0


def test_people_outside_of_the_table_are_the_control() -> None:
    outside = pd.DataFrame(
        [
            (25, "F", "Antwerp", 60, "Single"),
            (26, "F", "Antwerp", 90, "Single"),
            (80, "M", "Ghent", 60, "Single"),
        ],
        columns=toy.FEATURES,
    )
    one = of_paper(holdout=outside)
    expected = {
        linkage: 1 / 2,
        model_filter: 1,  # only the first is consistent
        uniqueness: 1,  # two of them have 60 and are single
        homogeneity: (1 / 2 + 1) / 2,
        downcoding: 1 / 2,
    }
    assert {attack: attack(one).control.value for attack in expected} == pytest.approx(expected)  # type: ignore[operator]
    assert inversion(one, "released").control.value == 0.0  # type: ignore[union-attr] # 25 and 26 go elsewhere


# --- against plain loops --------------------------------------------------------------------------

QUASI = ["age", "town", "level"]


def table(n: int = 60) -> pd.DataFrame:
    random = np.random.default_rng(3)
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
GOOD = model(TRAIN) == "good"
NATIVE = TRAIN[GOOD].head(8).reset_index(drop=True)


def setting(
    method: str | Protector = "auto", *, guarantee: str = "lookup", **policy: Any
) -> Setting:
    settings = {"k": 5, "guarantee": guarantee, "objective": "ncp", "private_values": "exact"}
    asked = PrivacyPolicy(**{**settings, **policy})
    schema = Schema.from_frame(
        TRAIN, quasi_identifiers=QUASI, ordinal={"level": ["low", "mid", "high"]}
    )
    anonymizer = KAnonymizer(policy=asked, method=method, seed=1)
    return Setting(anonymizer.fit(Population.from_frame(TRAIN, schema), model, "good"), NATIVE)


@pytest.fixture(scope="module")
def exact() -> Setting:
    return setting("exact")


def crowd(counts: Sequence[int], name: str, k: int = 5) -> dict[str, Any]:
    """Return the five figures that a count of people comes as."""
    all_ = np.asarray(counts)
    figures = {
        "min": all_.min(),
        "median": np.median(all_),
        "p05": np.quantile(all_, 0.05),
        "below_k": (all_ < k).mean(),
        "one": (all_ == 1).mean(),
    }
    return {f"{name}_{figure}": pytest.approx(value) for figure, value in figures.items()}


def test_rerunning_with_own_values_agrees_with_a_loop(exact: Setting) -> None:
    regions = [exact.anonymizer.regions_of(TRAIN.iloc[[i]])[0] for i in range(len(TRAIN))]
    released = [entry.region for entry in exact.explanations.released]
    alike = np.array([regions.count(region) for region in regions])
    left = np.array([regions.count(region) for region in released])
    desired = [region for region, good in zip(regions, GOOD, strict=True) if good]
    found = inversion(exact, everybody=True)
    expected = (
        crowd(alike, "everyone_k_effective")
        | crowd(left, "k_effective")
        | crowd([desired.count(region) for region in released], "k_releasable")
        | crowd([desired.count(region) for region in desired], "desired_k_effective")
        | {
            "everyone_success": pytest.approx((1 / alike).mean()),
            "success": pytest.approx((1 / left).mean()),
        }
    )
    assert {name: found.figures[name] for name in expected} == expected
    inside = inversion(setting("exact"), everybody=False)  # enough for the attack
    assert found.main == inside.main
    assert {name: found.figures[name] for name in inside.figures} == dict(inside.figures)
    # A region made for each counterfactual alone breaks, although every one has k people.
    assert found.worked
    assert found.figures["k_effective_below_k"] > 0
    assert linkage(exact).figures["k_min"] >= 5


def test_rerunning_with_released_values_asking_the_model_and_borders_agree_with_loops(
    exact: Setting,
) -> None:
    effective, consistent, both, forced, borders = [], [], [], [], []
    for i, entry in enumerate(exact.explanations.released):
        inside = TRAIN[[entry.region.contains(row) for row in TRAIN.to_dict("records")]]
        known = inside.assign(pay=int(NATIVE.loc[i, "pay"]), owns=NATIVE.loc[i, "owns"])
        same = np.array([region == entry.region for region in exact.anonymizer.regions_of(known)])
        good = model(known) == "good"
        effective.append(same.sum())
        consistent.append(good.sum())
        both.append((same & good).sum())
        must = pd.Series(data=False, index=inside.index)
        for name in QUASI:
            codes = (
                inside[name].map({"low": 0, "mid": 1, "high": 2})
                if name == "level"
                else inside[name]
            )
            ends = codes.unique() if name == "town" else [codes.min(), codes.max()]
            for end in ends if codes.nunique() > 1 else []:
                if (codes == end).sum() == 1:
                    must |= codes == end
        forced.append(must.sum())
        right = must[(inside == NATIVE.loc[i]).all(axis=1)].any()
        borders.append(1 / must.sum() if right else 0 if must.any() else 1 / len(inside))
    assert inversion(exact, "released").main.value == pytest.approx(
        np.mean(1 / np.array(effective))
    )
    filtered, forcing = model_filter(exact).figures, downcoding(exact)
    expected = crowd(consistent, "k_consistent") | crowd(both, "k_both")
    assert {name: filtered[name] for name in expected} == expected
    assert filtered["both_success"] == pytest.approx(np.mean(1 / np.array(both)))
    assert [entry.recount.k_consistent for entry in exact.explanations.released] == consistent
    assert {name: forcing.figures[name] for name in crowd(forced, "forced")} == crowd(
        forced, "forced"
    )
    assert forcing.main.value == pytest.approx(np.mean(borders))


@pytest.mark.parametrize(
    ("method", "policy"),
    [
        ("mondrian", {"guarantee": "lookup"}),
        ("auto", {"guarantee": "reciprocal"}),
        ("auto", {"guarantee": "catalogue"}),
    ],
)
def test_a_fixed_partition_leaves_k_for_everybody(method: str, policy: dict[str, Any]) -> None:
    one = setting(method, **policy)
    found = inversion(one, everybody=True).figures
    assert min(found["everyone_k_effective_min"], found["k_effective_min"]) >= 5
    # other code counted the same when the certificates were made
    if policy["guarantee"] != "lookup":
        counted = crowd(
            [entry.recount.k_effective for entry in one.explanations.released], "k_effective"
        )
        assert {name: found[name] for name in counted} == counted
    if policy["guarantee"] == "catalogue":
        assert (
            min(found["desired_k_effective_min"], model_filter(one).figures["k_consistent_min"])
            >= 5
        )
        assert found["k_effective_min"] == found["k_releasable_min"]
        assert found["everyone_k_effective_min"] == found["desired_k_effective_min"]
        assert found["everyone_mapped"] == pytest.approx(GOOD.mean())


# --- repeated and random releases -----------------------------------------------------------------


class Coin:
    """Joins somebody on a line with the one below or the one above, by a coin of seed and place."""

    name = "coin"

    def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
        found = []
        for place in request.codes[:, 0].tolist():
            coin = int(np.random.default_rng([request.seed, place]).integers(2))
            low = place - coin if 0 < place < 19 else min(place, 18)
            found.append(Proposal(Region({"place": Interval(low, low + 1)})))
        return found


def test_what_was_moved_towards_the_asker_is_looked_for_in_nobody() -> None:
    asking = TRAIN[~GOOD].head(8).reset_index(drop=True)
    found = Setting(setting(guarantee="catalogue").anonymizer, NATIVE, asking)
    releases, private = found.releases, ["pay", "owns"]
    moved = [release.entry.recount.moved for release in releases]
    assert {len(names) for names in moved} == {0, 1, 2}
    for release, names in zip(releases, moved, strict=True):
        held = [name for name in private if name not in names]
        inside = found.population.frame.iloc[release.rows]
        carry = np.logical_and.reduce(
            [inside[name] == release.entry.released[name] for name in held], axis=0
        )
        assert (
            set(release.targets) <= set(release.rows[carry]) if held else not len(release.targets)
        )
        assert len(release.targets) or not (held and carry.any())


@pytest.fixture(scope="module")
def line() -> Setting:
    frame = pd.DataFrame({"place": np.arange(20), "secret": np.arange(20) * 7})
    schema = Schema.from_frame(frame, quasi_identifiers=["place"])
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2, guarantee="lookup"), method=Coin(), seed=5)
    anonymizer.fit(Population.from_frame(frame, schema), lambda rows: rows["secret"] >= 0, True)
    return Setting(anonymizer, frame.iloc[2:18])


@pytest.mark.parametrize("rerun", ["own", "released"])
def test_a_randomised_algorithm_is_simulated_by_seed(line: Setting, rerun: Any) -> None:
    found = inversion(line, rerun, simulations=40)
    assert found == inversion(line, rerun, simulations=40)
    assert found.figures["random"] == 1.0
    # Both people of a region are mapped to it with probability 1/2, so the posterior is even.
    assert found.main.value == pytest.approx(0.5, abs=0.08)
    assert found.figures["k_effective_median"] == pytest.approx(2, abs=0.35)
    assert found.figures["k_effective_low_median"] < found.figures["k_effective_median"]


def test_randomised_regions_of_one_record_intersect_below_k(line: Setting) -> None:
    found = intersection(line, times=(1, 2, 10))
    assert (found.figures["k_after_1_below_k"], found.figures["k_after_10_median"]) == (0, 1)
    assert found.figures["k_after_10_one"] > 0.9
    assert found.main.value > found.baseline.value == pytest.approx(0.5)
    assert found.worked
    grasp = intersection(setting("grasp"), times=(1, 4)).figures
    assert grasp["k_after_1_min"] >= 5
    assert grasp["k_after_4_below_k"] > 0


def test_what_is_released_anew_comes_of_changed_policies_that_are_never_weaker() -> None:
    policies: list[PrivacyPolicy] = []

    class Everybody:
        name = "everybody"

        def protect(self, request: ProtectionRequest) -> Sequence[Proposal]:
            policies.append(request.policy)
            ages, towns = Interval(20, 70), frozenset("ABC")
            levels = Interval("low", "high", levels=("low", "mid", "high"))
            return [Proposal(Region({"age": ages, "town": towns, "level": levels}))] * len(request)

    found = intersection(setting(Everybody(), k=50), times=(1, 10))
    # what is the same for everybody tells nothing anew
    assert found.figures["k_after_10_min"] == 60
    assert {(policy.k, policy.objective) for policy in policies} == {
        (k, objective)
        for k in (50, 60)  # of 60 people
        for objective in ("pureness", "ncp")
    }


def test_intersection_through_a_release_of_ones_own(exact: Setting) -> None:
    asked: list[int] = []

    def release(counterfactuals: pd.DataFrame, turn: int) -> Any:
        asked.append(turn)
        return exact.explanations  # what a ledger does: the region of the first time again

    found = intersection(exact, release, times=(1, 4))
    assert asked == [0, 1, 2, 3]
    assert (found.figures["released"], found.worked) == (4.0, False)
    assert found.figures["k_after_4_min"] >= 5


# --- who and what is attacked ---------------------------------------------------------------------


def test_several_rows_of_one_person_count_once() -> None:
    frame = pd.DataFrame(
        {"who": ["a", "a", "b", "c", "d"], "age": [30, 31, 31, 32, 40], "pay": [1, 1, 2, 3, 4]}
    )
    schema = Schema.from_frame(frame, quasi_identifiers=["age"], subject="who")
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2, guarantee="lookup", objective="ncp"))
    anonymizer.fit(Population.from_frame(frame, schema), lambda rows: rows["pay"] > 0, True)
    report = run_linkage_audit(Setting(anonymizer, frame.iloc[[0]], holdout=frame))
    assert (report["linkage"].figures["k_min"], report["linkage"].main.value) == (
        2,
        pytest.approx(1 / 2),
    )
    assert report["uniqueness"].main.value == 1.0  # two rows carry the values, of one person
    assert (report.checks[0].holds, report["downcoding"].n) == (True, 1)


@pytest.mark.parametrize("guarantee", ["reciprocal", "catalogue", "lookup"])
def test_where_nothing_was_released_there_is_nothing_to_name(guarantee: Any) -> None:
    one = setting(guarantee=guarantee, max_ncp=0.0)
    assert not len(one.releases)
    report = run_linkage_audit(one)
    assert [result.n for result in report.results] == [0] * len(report.results)
    assert all(np.isnan(result.main.value) for result in report.results)


def test_bins_withheld_and_missing_values_are_attacked_as_well() -> None:
    random = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "age": np.where(random.random(80) < 0.2, np.nan, random.integers(20, 60, 80)),
            "town": random.choice(["A", "B", None], 80),  # type: ignore[arg-type]
            "pay": np.where(random.random(80) < 0.2, np.nan, random.integers(0, 100, 80)),
            "note": random.choice(["x", "y", "z", None], 80, p=[0.6, 0.3, 0.05, 0.05]),  # type: ignore[arg-type]
        }
    )
    schema = Schema.from_frame(frame, quasi_identifiers=["age", "town"], bins={"pay": [0, 50, 100]})
    anonymizer = KAnonymizer(
        policy=PrivacyPolicy(
            guarantee="reciprocal", k=6, private_values="bins", rare_values="withhold"
        )
    )
    anonymizer.fit(Population.from_frame(frame, schema), lambda rows: rows["pay"].isna() < 2, True)
    found = run_linkage_audit(Setting(anonymizer, frame.head(20), holdout=frame.tail(20)))
    assert (found.released, found.verdict, found["linkage"].n, found["linkage"].main.n) == (
        20,
        "pass",
        20,
        20,
    )
    # Half a table shares a bin: private values alone name nobody.
    assert found["uniqueness"].figures["private_matches_min"] > 1


def test_opposite_goals_are_judged_by_the_queries() -> None:
    schema = Schema.from_frame(TRAIN, quasi_identifiers=QUASI)
    policy = PrivacyPolicy(k=4, guarantee="lookup", objective="ncp")
    anonymizer = KAnonymizer(policy=policy).fit(
        Population.from_frame(TRAIN, schema), model, "opposite"
    )
    good, bad = NATIVE.head(4), TRAIN[~GOOD].head(4)
    found, alone = (model_filter(Setting(anonymizer, good, *queries)) for queries in ([bad], []))
    assert found.n == 4
    assert found.figures["k_consistent_min"] == alone.figures["k_consistent_min"]
    with pytest.raises(PolicyError, match="catalogue"):
        anonymizer.explain(bad)


def test_the_explainer_attacked_by_default_returns_the_nearest_row(exact: Setting) -> None:
    ask = nearest_row(exact.anonymizer)
    first = NATIVE.head(3)
    enough = 70 - first["age"] / 2 - 5 * (first["town"] == "A")
    answers = ask(first.assign(pay=np.floor(enough).astype(int)))  # just not accepted
    assert [entry.released["pay"] for entry in answers.released] == NATIVE["pay"].head(3).tolist()
    assert steering(exact, ask).main == steering(setting("exact")).main
