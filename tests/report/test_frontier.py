"""What every k costs: against single runs, against brute force, and what it must never hold or
do.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema, hookimpl
from cfk_plugin.errors import InputError, LookupGuaranteeWarning, ModelError, PolicyError
from cfk_plugin.frontier import KS, Baseline, Frontier, Point, frontier
from cfk_plugin.hookspecs import ReleaseRecord

N = 60
SEARCHED = {"guarantee": "lookup", "objective": "ncp"}


def table() -> pd.DataFrame:
    random = np.random.default_rng(8)
    return pd.DataFrame(
        {
            "age": 730_000_019 + 7_919 * random.integers(0, 25, N),
            "town": random.choice(["CANARY-A", "CANARY-B", "CANARY-C"], N),
            "pay": 860_000_011 + 104_729 * random.permutation(N),
        }
    )


def model(rows: pd.DataFrame) -> np.ndarray:
    """Accept who earns enough, but for some ages."""
    return ((rows["pay"] > CUT) & ((rows["age"] - 730_000_019) // 7_919 % 5 != 3)).to_numpy()


TABLE = table()
CUT = float(TABLE["pay"].quantile(0.4))
ACCEPTED = TABLE[model(TABLE)].reset_index(drop=True)
RAW = pd.concat([ACCEPTED.head(10), TABLE[~model(TABLE)].head(2)], ignore_index=True)


@pytest.fixture(scope="module")
def population() -> Population:
    return Population.from_frame(TABLE, Schema.from_frame(TABLE, quasi_identifiers=["age", "town"]))


def measured(
    population: Population, ks: Any = (2, 7, 20), raw: pd.DataFrame = RAW, **settings: Any
) -> Frontier:
    return frontier(
        raw,
        population=population,
        model=model,
        desired=True,
        policy=PrivacyPolicy(**{"guarantee": "lookup", **settings}),
        ks=ks,
    )


POLICIES: dict[str, dict[str, Any]] = {
    "catalogue": {"guarantee": "catalogue", "min_pureness": 0.5},
    "lookup": {"guarantee": "lookup"},
    "ceiling": {"guarantee": "lookup", "objective": "ncp", "max_ncp": 0.4},
}


@pytest.mark.parametrize("settings", POLICIES.values(), ids=POLICIES.keys())
def test_every_point_is_what_a_single_run_releases(
    settings: dict[str, Any], population: Population
) -> None:
    found = measured(population, **settings)
    assert [point.k for point in found] == [2, 7, 20]
    assert all(point.k_min is None or point.k_min >= point.k for point in found)
    results = []
    for point in found:
        asked = PrivacyPolicy(**{"guarantee": "lookup", **settings, "k": point.k})
        anonymizer = KAnonymizer(policy=asked).fit(population, model, True)
        results.append(anonymizer.transform(RAW))
        summary = results[-1].summary()
        assert (point.asked, point.released, point.k_min) == (
            12,
            summary["released"],
            summary["k_min"],
        )
        assert point.reasons == summary["reasons"]
        assert point.withheld_rate.value == summary["withheld_rate"]
        assert point.released + sum(point.reasons.values()) == point.asked
        for name in ("ncp_mean", "pureness_mean"):
            value = getattr(point, name)
            assert (value.n, value.value) == (point.released, pytest.approx(summary[name]))
            assert value.low <= value.value <= value.high
    if settings.get("max_ncp"):
        assert found.common < max(point.released for point in found)
        assert found.points[0].common_ncp_mean.value != found.points[0].ncp_mean.value
    both = [at for at in range(12) if all(result[at].status == "released" for result in results)]
    assert found.common == len(both)
    for point, result in zip(found, results, strict=True):
        assert point.common_ncp_mean.n == len(both)
        assert point.common_ncp_mean.value == pytest.approx(
            np.mean([result[at].certificate.ncp for at in both])
        )
        assert point.common_pureness_mean.value == pytest.approx(
            np.mean([result[at].certificate.pureness for at in both])
        )


def cheapest(anchor: pd.Series, k: int) -> float:
    """Return the least NCP of any region around a row with k people, by trying all of them."""
    people = pd.crosstab(TABLE["age"], TABLE["town"])
    ages, towns, counts = people.index, list(people.columns), people.to_numpy()
    here, own = ages.get_loc(anchor["age"]), towns.index(anchor["town"])
    others = [town for town in range(len(towns)) if town != own]
    best = math.inf
    for low, high in itertools.product(range(here + 1), range(here, len(ages))):
        for more in itertools.chain.from_iterable(
            itertools.combinations(others, n) for n in range(len(towns))
        ):
            if counts[low : high + 1, [own, *more]].sum() >= k:
                wide = (ages[high] - ages[low]) / (ages[-1] - ages[0])
                best = min(best, (wide + ((len(more) + 1) / len(towns) if more else 0.0)) / 2)
    return best


def test_lookup_optima_cost_what_brute_force_finds_and_more_for_more_people(
    population: Population,
) -> None:
    found = measured(population, ks=(2, 3, 9, 30), raw=RAW.head(2), **SEARCHED)
    for point in found:
        costs = [cheapest(row, point.k) for _, row in RAW.head(2).iterrows()]
        assert point.common_ncp_mean.value == pytest.approx(np.mean(costs))


def test_the_least_loss_never_falls_with_k(population: Population) -> None:
    loss = [
        point.common_ncp_mean.value
        for point in measured(population, ks=(2, 3, 4, 6, 9, 13), **SEARCHED)
    ]
    assert loss == sorted(loss)
    assert loss[0] < loss[-1]


def test_ks_are_sorted_once_each_and_may_be_of_numpy(population: Population) -> None:
    told: list[tuple[int, int]] = []
    settings: dict[str, Any] = {"population": population, "model": model, "desired": True}
    found = frontier(RAW, **settings, ks=[5, 2], progress=lambda *done: told.append(done))
    assert (told, [point.k for point in found]) == ([(1, 2), (2, 2)], [2, 5])
    # the same seed, the same figures
    assert found.to_json() == frontier(RAW, **settings, ks=[2, 5]).to_json()
    assert [point.k for point in measured(population, ks=np.array([9, 2, 9]), **SEARCHED)] == [2, 9]
    assert [point.k for point in measured(population, ks=None, **SEARCHED)] == list(KS)
    small = Population.from_frame(
        TABLE.head(12), Schema.from_frame(TABLE, quasi_identifiers=["age", "town"])
    )
    assert [point.k for point in measured(small, ks=None, **SEARCHED)] == [2, 3, 5, 10]


def test_a_sealed_population_is_tried_from_its_own_k(
    population: Population, tmp_path: Path
) -> None:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=12, objective="ncp")).fit(
        population, model, True
    )
    anonymizer.seal(tmp_path / "bundle")
    sealed = Population.open(tmp_path / "bundle")
    found = frontier(RAW, population=sealed, model=model, desired=True)
    assert [point.k for point in found] == [15, 20, 25, 30]
    assert found.policy["k"] == 12
    with pytest.raises(PolicyError, match="k = 5 is below the floor of the bundle, 12"):
        frontier(RAW, population=sealed, model=model, desired=True, ks=[5])


def test_the_policy_is_kept_but_for_k(
    population: Population,
) -> None:
    found = measured(population, ks=[2, 40], k=7, max_ncp=0.05)
    assert (found.policy["k"], found.policy["max_ncp"]) == (7, 0.05)
    last = found.points[-1]
    assert (last.released, last.k_min, last.reasons) == (
        0,
        None,
        {"ncp_above_ceiling": 10, "not_desired": 2},
    )
    assert last.withheld_rate.low > 0.7
    assert last.withheld_rate.value == last.withheld_rate.high == 1
    assert math.isnan(last.ncp_mean.value)
    assert found.common == 0


def test_json_and_table_are_whole_and_have_no_value_of_a_row(population: Population) -> None:
    found = measured(population, ks=[2, 40], max_ncp=0.05)
    content = json.loads(found.to_json())
    assert (content["schema_version"], content["kind"], content["asked"], content["common"]) == (
        1,
        "frontier",
        12,
        0,
    )
    assert content["points"][1]["ncp_mean"] == {"value": None, "low": None, "high": None, "n": 0}
    assert content["points"][0]["withheld_rate"]["n"] == 12
    assert content["population"] == population.fingerprint
    frame = found.to_frame()
    assert frame["k"].tolist() == [2, 40]
    assert frame["k_min"].isna().tolist() == [False, True]
    ends = {f"{name}{end}" for name in found.points[0].estimates for end in ("", "_low", "_high")}
    assert ends | {"k", "asked", "released", "k_min", "common"} == set(frame.columns)
    assert set(Point.__slots__) <= set(frame.columns) | {"reasons"}
    said = found.to_json() + repr(found) + frame.to_csv()
    assert "CANARY" not in said
    assert not [
        value for name in ("age", "pay") for value in TABLE[name].astype(str) if value in said
    ]


def test_opposite_asks_the_factuals(population: Population) -> None:
    factuals = TABLE[~model(TABLE)].head(12).reset_index(drop=True)
    policy = PrivacyPolicy(guarantee="lookup", k=5)
    found = frontier(
        RAW,
        population=population,
        model=model,
        desired="opposite",
        policy=policy,
        ks=[5],
        factuals=factuals,
    )
    anonymizer = KAnonymizer(policy=policy).fit(population, model, "opposite")
    assert found.points[0].reasons == anonymizer.transform(RAW, factuals).summary()["reasons"]
    assert found.points[0].released > 0


@pytest.mark.filterwarnings("default::cfk_plugin.errors.LookupGuaranteeWarning")
def test_a_lookup_guarantee_warns_once_where_it_was_asked_for(population: Population) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frontier(
            RAW.head(1),
            population=population,
            model=model,
            desired=True,
            policy=PrivacyPolicy(**SEARCHED),
            ks=[2, 3],
        )
    assert [(found.category, found.filename) for found in caught] == [
        (LookupGuaranteeWarning, __file__)
    ]


def test_plugins_are_not_told_of_releases(
    population: Population, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cfk_plugin.release import anonymizer

    class Listening:
        told = 0

        @hookimpl
        def cfk_released(self, record: ReleaseRecord) -> None:
            Listening.told += 1

    load = anonymizer.load_plugins
    monkeypatch.setattr(anonymizer, "load_plugins", lambda plugins: load([*plugins, Listening()]))
    KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=3)).fit(
        population, model, True
    ).transform(RAW.head(2))
    assert Listening.told == 2
    measured(population, ks=[3])
    assert Listening.told == 2


def test_a_model_that_fails_is_a_reason_and_not_a_price(population: Population) -> None:
    def failing(rows: pd.DataFrame) -> np.ndarray:
        if len(rows) <= len(RAW):
            raise RuntimeError("CANARY")
        return model(rows)

    found = frontier(RAW, population=population, model=failing, desired=True, ks=[2])
    assert set(found.points[0].reasons) == {"model_failed"}
    assert "CANARY" not in found.to_json()


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no k": ({"ks": []}, InputError, "ks must be whole numbers, at least one"),
    "half a person": ({"ks": [2.5]}, InputError, "ks must be whole numbers"),
    "text": ({"ks": "2,5"}, InputError, "ks must be whole numbers"),
    "one person": ({"ks": [1, 5]}, PolicyError, "k must be a whole number >= 2, got 1"),
    "more than there are": (
        {"ks": [2, N + 1]},
        PolicyError,
        f"k = {N + 1} is above the number of people, {N}",
    ),
    "a column short": ({"counterfactuals": RAW[["age"]]}, InputError, "missing columns"),
    "factuals of another length": (
        {"factuals": TABLE.head(2)},
        InputError,
        "2 factuals for 12 counterfactuals",
    ),
    "no model": ({"model": 3}, ModelError, "a model needs a predict method"),
    "no population": (
        {"population": TABLE},
        InputError,
        "population must be a Population, got DataFrame",
    ),
}


@pytest.mark.parametrize(("changes", "error", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_input_is_refused_before_anything_runs(
    changes: dict[str, Any], error: type[Exception], message: str, population: Population
) -> None:
    good = {"counterfactuals": RAW, "population": population, "model": model, "desired": True}
    with pytest.raises(error, match=message) as caught:
        frontier(**{**good, **changes})
    assert "CANARY" not in str(caught.value)


# --- beside Mondrian and no protection ---

TEN = pd.DataFrame(
    {"age": [20, 22, 24, 26, 40, 44, 48, 52, 60, 80], "pay": [1, 9, 2, 8, 3, 7, 4, 6, 5, 10]}
)
OF_AGE = Schema.from_frame(TEN, quasi_identifiers=["age"])
LOOKUP = PrivacyPolicy(k=2, guarantee="lookup", objective="ncp")


def rich(rows: pd.DataFrame) -> np.ndarray:
    return (rows["pay"] > 4.5).to_numpy()


RICH = TEN[rich(TEN)]


@pytest.fixture(scope="module")
def found() -> dict[str, Baseline]:
    population = Population.from_frame(TEN, OF_AGE)
    with pytest.warns(UserWarning, match="lookup"):
        costs = frontier(
            RICH,
            population=population,
            model=rich,
            desired=True,
            policy=LOOKUP,
            ks=[2, 3],
            compare=True,
        )
    json.dumps(costs.to_dict(), allow_nan=False)
    return {baseline.name: baseline for baseline in costs.baselines}


@pytest.mark.filterwarnings("ignore:.*lookup")
@pytest.mark.parametrize(("name", "method"), [("policy", "auto"), ("mondrian", "mondrian")])
def test_ways_are_those_of_single_runs(found: dict[str, Baseline], name: str, method: str) -> None:
    anonymizer = KAnonymizer(policy=LOOKUP, method=method).fit(
        Population.from_frame(TEN, OF_AGE), rich, True
    )
    summary = anonymizer.transform(RICH).summary()
    assert found[name].released == summary["released"]
    assert found[name].ncp_mean.value == pytest.approx(summary["ncp_mean"])
    assert found[name].pureness_mean.value == pytest.approx(summary["pureness_mean"])


def test_mondrian_loses_more_than_the_search(found: dict[str, Baseline]) -> None:
    assert found["mondrian"].ncp_mean.value > found["policy"].ncp_mean.value > 0


def test_no_protection_is_a_training_row(found: dict[str, Baseline]) -> None:
    raw = found["raw"]
    assert (raw.released, raw.ncp_mean.value, raw.pureness_mean.value, raw.nearest.value) == (
        len(RICH),
        0,
        1,
        0,
    )
    assert raw.nearest_5.value > 0
    assert found["policy"].nearest.value > 0  # values of others with one's own private value


@pytest.mark.filterwarnings("ignore:.*lookup")
def test_distance_and_truth_are_those_of_the_nearest_point_to_who_asks() -> None:
    """Counted again in plain pandas, of the same regions."""
    asking = TEN[~rich(TEN)].iloc[np.arange(len(RICH)) % 4].reset_index(drop=True)
    population = Population.from_frame(TEN, OF_AGE)
    told: dict[str, Any] = {"policy": LOOKUP, "ks": [2], "compare": True}
    costs = frontier(RICH, population=population, model=rich, desired=True, factuals=asking, **told)
    found = {baseline.name: baseline for baseline in costs.baselines}
    widths = TEN.max() - TEN.min()
    entries = (
        KAnonymizer(policy=LOOKUP).fit(population, rich, True).transform(RICH, asking).generalized
    )
    points = pd.DataFrame([{**entry.released, "age": entry.region["age"]} for entry in entries])
    own = asking.iloc[[entry.query for entry in entries]].reset_index(drop=True)
    points["age"] = [
        min(max(age, part.low), part.high)
        for age, part in zip(own["age"], points["age"], strict=True)
    ]
    away = (points[list(TEN)].astype(float) - own).abs().div(widths).mean(axis=1)
    policy, raw = found["policy"], found["raw"]
    assert policy.distance is not None
    assert raw.distance is not None
    assert policy.distance.value == pytest.approx(away.mean())
    assert policy.true is not None
    assert policy.true.value == rich(points[list(TEN)].astype(float)).mean()
    apart = (RICH.reset_index(drop=True) - asking).abs().div(widths).mean(axis=1)
    assert (raw.distance.value, raw.true and raw.true.value) == (pytest.approx(apart.mean()), 1)
    json.dumps(costs.to_dict(), allow_nan=False)


@pytest.mark.filterwarnings("ignore:.*lookup")
def test_no_way_answers_people_who_have_the_outcome_already() -> None:
    population = Population.from_frame(TEN, OF_AGE)
    told: dict[str, Any] = {"population": population, "model": rich, "desired": True, "ks": [2]}
    told |= {"policy": LOOKUP, "compare": True}
    asking = TEN[~rich(TEN)].iloc[np.arange(len(RICH)) % 4].reset_index(drop=True)
    needing = frontier(RICH, factuals=asking, **told)
    some = pd.concat([RICH, RICH.tail(1)], ignore_index=True)
    with_one = pd.concat([asking, RICH.head(1)], ignore_index=True)
    found = frontier(some, factuals=with_one, **told)
    assert found.points[0].reasons["already_desired"] == 1
    assert found.baselines == needing.baselines
    nobody = frontier(RICH.head(2), factuals=RICH.tail(2), **told).baselines
    assert [baseline.released for baseline in nobody] == [0, 0, 0]


def test_without_who_asks_neither_is_known(found: dict[str, Baseline]) -> None:
    assert {(baseline.distance, baseline.true) for baseline in found.values()} == {(None, None)}


def test_a_raw_counterfactual_that_does_not_flip_is_not_pure() -> None:
    population = Population.from_frame(TEN, OF_AGE)
    mixed = pd.concat([RICH.head(3), TEN[~rich(TEN)].head(1)])
    policy = PrivacyPolicy(guarantee="lookup", k=2)
    costs = frontier(
        mixed, population=population, model=rich, desired=True, policy=policy, ks=[2], compare=True
    )
    assert costs.baselines[-1].pureness_mean.value == 0.75


def test_without_rows_nothing_is_compared(tmp_path) -> None:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(guarantee="lookup", k=2)).fit(
        Population.from_frame(TEN, OF_AGE), rich, True
    )
    anonymizer.seal(tmp_path / "population.cfk")
    sealed = Population.open(tmp_path / "population.cfk")
    with pytest.raises(InputError, match="need the training rows"):
        frontier(RICH, population=sealed, model=rich, desired=True, ks=[2], compare=True)
