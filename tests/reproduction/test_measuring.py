"""One method on one table: figures are recounted here from the regions that leave."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import reproduced
from cfk_plugin.errors import InputError, PolicyError
from cfk_plugin.metrics import ncp
from cfk_plugin.reproduction.measure import METHODS, WEIGHT, Measurement
from cfk_plugin.reproduction.prepare import Prepared


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return reproduced.prepared()


@pytest.mark.parametrize("method", list(METHODS))
def test_figures_are_those_of_the_released_regions(prepared: Prepared, method: str) -> None:
    found = reproduced.measure(prepared, method, 5, asked=4, effective=2)
    entries = reproduced.protect(prepared, method, 5, prepared.counterfactuals.head(4))
    population, train = prepared.population, prepared.train
    predicted = prepared.model.predict(train) == "absent"
    for i, entry in enumerate(entries):
        inside = np.array([entry.region.contains(row) for _, row in train.iterrows()])
        assert found.figures["ncp"][i] == pytest.approx(ncp(entry.region, population))
        assert found.figures["k"][i] == inside.sum() >= 5
        assert found.figures["k_desired"][i] == (inside & predicted).sum()
        assert found.figures["agrees"][i] == float(2 * (inside & predicted).sum() >= inside.sum())
    assert (found.method, found.k, found.asked, len(found.groups)) == (method, 5, 4, 4)
    measured = [value for value in found.figures["k_effective"] if value is not None]
    assert len(measured) == {"grasp": 0, "reciprocal": 4}.get(method, 2)
    assert found.seconds >= found.model_seconds > 0
    assert Measurement.from_json(found.to_json()) == found


def test_methods_are_what_they_are_called(prepared: Prepared) -> None:
    found = {name: reproduced.measure(prepared, name, 8) for name in METHODS}
    mean = {name: np.mean([v for v in o.figures["ncp"] if v is not None]) for name, o in found.items()}
    pure = {name: np.mean([v for v in o.figures["pureness"] if v is not None]) for name, o in found.items()}
    assert all(mean["exact-ncp"] <= value + 1e-12 for value in mean.values())
    assert all(pure["exact-pureness"] >= pure[name] for name in ("exact-ncp", "exact-weighted", "grasp"))
    assert mean["mondrian"] < mean["mondrian-raw"]
    cost = {name: mean[name] + WEIGHT * (1 - pure[name]) for name in ("exact-ncp", "exact-weighted", "exact-pureness")}
    assert min(cost.values()) == pytest.approx(cost["exact-weighted"])
    assert set(found["exact-ncp"].figures["proven"]) == {1.0}
    assert min(reproduced.measure(prepared, "reciprocal", 8).figures["k_effective"]) >= 8  # type: ignore[type-var]


def test_settings_reach_the_method(prepared: Prepared) -> None:
    light = reproduced.measure(prepared, "exact-weighted", 8, options={"weight": 0.0})
    least = reproduced.measure(prepared, "exact-ncp", 8)
    assert light.figures["ncp"] == pytest.approx(least.figures["ncp"])
    assert light.options == {"weight": 0.0}
    once = reproduced.measure(prepared, "grasp", 8, asked=2, options={"iterations": 1})
    thrice = reproduced.measure(prepared, "grasp", 8, asked=2)
    assert once.model_calls < thrice.model_calls


def test_wrong_questions(prepared: Prepared) -> None:
    with pytest.raises(InputError, match="unknown method 'magic'; known: grasp, exact-ncp"):
        reproduced.measure(prepared, "magic", 5)
    with pytest.raises(InputError, match="exact-ncp has no setting alpha"):
        reproduced.measure(prepared, "exact-ncp", 5, options={"alpha": 3})
    with pytest.raises(PolicyError, match="above the number of people"):
        reproduced.measure(prepared, "exact-ncp", 1000)


def test_keys_tell_settings_apart(prepared: Prepared) -> None:
    keys = {prepared.config.key, replace(prepared.config, seed=1).key, replace(prepared.config, limit=5).key}
    assert len(keys) == 3
