from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

from cfk_plugin.audit.extraction import (
    ExtractionTask,
    Network,
    RowsAsNumbers,
    architectures,
    draw_sets,
    everybody,
    extraction,
    matched,
)
from cfk_plugin.audit.targets import Answers, Sample
from cfk_plugin.errors import InputError, ModelError
from copied_owners import IslandOwner, IslandService, island_people

CANARY = "CANARY-7731"
TREE = IslandOwner().architecture


def attack(owner: Any = None, people: int = 1600, **settings: Any) -> Any:
    settings = {"queries": (60,), "unknown": TREE, **settings}
    return extraction(owner or IslandOwner(), island_people(people), **settings)


def test_counterfactuals_on_the_boundary_copy_the_model() -> None:
    report = attack(repeats=8)
    for kind in ("known", "unknown"):
        found = report[f"extraction_{kind}_60"]
        assert found.worked
        assert found.control is not None
        assert found.main.low > max(found.baseline.value, found.control.value)
        assert found.figures["gain_low"] > 0.02
        assert found.figures["gain_over_further"] > 0.02
        assert found.figures["balanced_fidelity"] > found.figures["balanced_fidelity_alone"] + 0.05
        assert found.figures["accuracy"] == pytest.approx(found.main.value, abs=0.01)  # the model is the truth here
        assert found.figures["accuracy_model"] == 1


def test_answers_that_say_nothing_do_not() -> None:
    found = attack(IslandOwner(informative=False), people=800)["extraction_known_60"]
    assert not found.worked
    assert found.figures["gain_low"] <= 0
    assert found.figures["gain"] < 0


def test_figures_are_what_a_draw_comes_to_by_hand() -> None:
    sample, owner = island_people(400), IslandOwner()
    report = extraction(owner, sample, queries=(30,), repeats=1, unknown=TREE)
    task = ExtractionTask(owner, sample, draw_sets(sample, 0), (30,), architectures(owner, None, TREE), 2000, 0)
    draw = task.draw(0)
    found, target = report["extraction_known_30"], draw["target"]
    for rate, way in ((found.main, "explained"), (found.baseline, "alone"), (found.control, "further")):
        right = sum(int(a == b) for a, b in zip(draw[f"known_30_{way}"], target, strict=True))
        assert rate.value == pytest.approx(right / len(target))
        assert rate.n == len(target)
    guessed = draw["known_30_explained"]
    by_outcome = [np.mean(guessed[target == outcome] == outcome) for outcome in (True, False)]
    assert found.figures["balanced_fidelity"] == pytest.approx(np.mean(by_outcome))
    assert found.figures["accuracy"] == pytest.approx(np.mean(guessed == sample.y[draw["people"]]))
    assert found.figures["gain"] == pytest.approx(found.main.value - found.baseline.value)
    assert found.figures["answers"] == (~sample.y[draw_asked(sample, 30)]).sum()
    assert np.isnan(found.figures["draws_sd"])


def draw_asked(sample: Sample, queries: int) -> Any:
    return np.random.default_rng([0, 1, 0]).permutation(everybody(draw_sets(sample, 0)[1:]))[:queries]


@dataclass(frozen=True)
class SpiedOwner(IslandOwner):
    seen: Any = None

    def train(self, people: Sample, seed: int) -> IslandService:
        self.seen["trained"] = set(people.X["noise"])
        spied = SpiedService(self.informative)
        spied.seen = self.seen
        return spied


class SpiedService(IslandService):
    seen: Any

    def desired(self, X: pd.DataFrame) -> np.ndarray[Any, Any]:
        self.seen.setdefault("desired", []).append(set(X["noise"]))
        return super().desired(X)

    def explain(self, X: pd.DataFrame) -> Answers:
        self.seen["explained"] = set(X["noise"])
        return super().explain(X)


def test_held_out_people_are_neither_trained_on_nor_asked_about() -> None:
    sample, seen = island_people(400), {}
    extraction(SpiedOwner(seen=seen), sample, queries=(20, 50), repeats=1, unknown=TREE)
    asked, held_out = seen["desired"]
    assert len(asked) == 100  # 50, and as many further ones as there could be answers
    assert seen["explained"] <= asked
    assert not held_out & seen["trained"]
    assert not asked & seen["trained"]
    spent = 50 + len(seen["explained"])
    assert len(held_out) == 400 - len(seen["trained"]) - spent
    assert len(held_out & asked) == 100 - spent  # asked, but used by no surrogate


def test_sizes_beyond_the_people_are_named_and_one_without_further_people_has_no_control() -> None:
    report = attack(people=160, queries=(40, 110, 500), repeats=1)
    assert report.settings["queries"] == "40, 110"
    assert report.settings["queries_left_out"] == "500"
    assert report["extraction_known_40"].control is not None
    assert report["extraction_known_110"].control is None
    assert "gain_over_further" not in report["extraction_known_110"].figures


def test_matched_outcomes_are_as_frequent_as_among_the_queries() -> None:
    own, sure = np.array([0.1, 0.2, 0.6, 0.7, 0.9]), np.array([0.65, 0.7, 0.5, 1.0])
    assert matched(sure, own, 0.4).tolist() == [False, True, False, True]  # two of five own people have 0.7 or more
    assert not matched(sure, own, 0.0).any()
    assert matched(np.array([0.0, 0.1]), own, 1.0).tolist() == [False, True]


def test_draws_can_run_in_other_processes() -> None:
    sample, owner = island_people(400), IslandOwner()
    task = ExtractionTask(owner, sample, draw_sets(sample, 0), (30,), architectures(owner, None, TREE), 99, 0)
    here, there = task.draw(0), cloudpickle.loads(cloudpickle.dumps(task)).draw(0)
    assert here.keys() == there.keys()
    assert all(np.array_equal(here[name], there[name]) for name in here)


class Failing(IslandOwner):
    def train(self, people: Sample, seed: int) -> Any:
        raise ValueError(f"could not convert {CANARY}")


class Refusing:
    def fit(self, X: Any, y: Any) -> None:
        raise ValueError(f"could not convert {CANARY}")

    def get_params(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("owner", "unknown", "what"),
    [(Failing(), TREE, "the owner's training"), (IslandOwner(), lambda seed: Refusing(), "training the surrogate")],
)
def test_failures_are_named_by_class_alone(owner: Any, unknown: Any, what: str) -> None:
    with pytest.raises(ModelError, match=rf"{what} failed \(ValueError\)") as raised:
        attack(owner, unknown=unknown)
    assert CANARY not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


def test_unusable_settings_are_refused() -> None:
    for settings, said in (
        ({"people": 60}, "give at least 80 people"),
        ({"queries": (0,)}, "whole numbers above 0"),
        ({"queries": (5000,)}, "ask fewer"),
        ({"repeats": 0}, "repeats"),
        ({"seed": -1}, "seed"),
    ):
        with pytest.raises(InputError, match=said):
            attack(**settings)


def test_unknown_architecture_is_another_one() -> None:
    assert set(architectures(IslandOwner())) == {"known", "unknown"}
    assert architectures(IslandOwner())["unknown"] == Network()

    def network(seed: int) -> Any:
        return make_pipeline(RowsAsNumbers(), MLPClassifier((20, 10), max_iter=7))

    assert architectures(IslandOwner(), network)["unknown"] == Network((20, 10, 10), 7)  # one dense layer more


def test_an_owner_who_says_nothing_is_copied_without_knowing() -> None:
    class Silent:
        name, train = "silent", IslandOwner().train

    report = extraction(Silent(), island_people(400), queries=(30,), repeats=1, unknown=TREE)
    assert [result.attack for result in report] == ["extraction_unknown_30"]
