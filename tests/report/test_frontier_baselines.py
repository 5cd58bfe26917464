"""The policy beside Mondrian and no protection: against single runs, and against distances by hand."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from cfk_plugin import KAnonymizer, Population, PrivacyPolicy, Schema
from cfk_plugin.errors import InputError
from cfk_plugin.frontier import Baseline, frontier

TABLE = pd.DataFrame({"age": [20, 22, 24, 26, 40, 44, 48, 52, 60, 80], "pay": [1, 9, 2, 8, 3, 7, 4, 6, 5, 10]})
SCHEMA = Schema.from_frame(TABLE, quasi_identifiers=["age"])
POLICY = PrivacyPolicy(k=2, guarantee="nominal", objective="ncp")


def model(rows: pd.DataFrame) -> np.ndarray:
    return (rows["pay"] > 4.5).to_numpy()


RAW = TABLE[model(TABLE)]


@pytest.fixture(scope="module")
def found() -> dict[str, Baseline]:
    population = Population.from_frame(TABLE, SCHEMA)
    with pytest.warns(UserWarning, match="nominal"):
        costs = frontier(RAW, population=population, model=model, desired=True, policy=POLICY, ks=[2, 3], compare=True)
    json.dumps(costs.to_dict(), allow_nan=False)
    return {baseline.name: baseline for baseline in costs.baselines}


@pytest.mark.filterwarnings("ignore:.*nominal")
@pytest.mark.parametrize(("name", "method"), [("policy", "auto"), ("mondrian", "mondrian")])
def test_ways_are_those_of_single_runs(found: dict[str, Baseline], name: str, method: str) -> None:
    anonymizer = KAnonymizer(policy=POLICY, method=method).fit(Population.from_frame(TABLE, SCHEMA), model, True)
    summary = anonymizer.transform(RAW).summary()
    assert found[name].released == summary["released"]
    assert found[name].ncp_mean.value == pytest.approx(summary["ncp_mean"])
    assert found[name].pureness_mean.value == pytest.approx(summary["pureness_mean"])


def test_mondrian_loses_more_than_the_search(found: dict[str, Baseline]) -> None:
    assert found["mondrian"].ncp_mean.value > found["policy"].ncp_mean.value > 0


def test_no_protection_is_a_training_row(found: dict[str, Baseline]) -> None:
    raw = found["raw"]
    assert (raw.released, raw.ncp_mean.value, raw.pureness_mean.value, raw.nearest.value) == (len(RAW), 0, 1, 0)
    assert raw.nearest_5.value > 0
    assert found["policy"].nearest.value > 0  # values of others with one's own private value


def test_a_raw_counterfactual_that_does_not_flip_is_not_pure() -> None:
    population = Population.from_frame(TABLE, SCHEMA)
    mixed = pd.concat([RAW.head(3), TABLE[~model(TABLE)].head(1)])
    policy = PrivacyPolicy(k=2)
    costs = frontier(mixed, population=population, model=model, desired=True, policy=policy, ks=[2], compare=True)
    assert costs.baselines[-1].pureness_mean.value == 0.75


def test_without_rows_nothing_is_compared(tmp_path) -> None:
    anonymizer = KAnonymizer(policy=PrivacyPolicy(k=2)).fit(Population.from_frame(TABLE, SCHEMA), model, True)
    anonymizer.seal(tmp_path / "population.cfk")
    sealed = Population.open(tmp_path / "population.cfk")
    with pytest.raises(InputError, match="need the training rows"):
        frontier(RAW, population=sealed, model=model, desired=True, ks=[2], compare=True)
