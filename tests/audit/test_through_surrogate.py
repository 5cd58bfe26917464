from __future__ import annotations

from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest

from cfk_plugin.audit.extraction import draw_sets
from cfk_plugin.audit.result import AttackReport
from cfk_plugin.audit.surrogate import (
    KNOWING,
    LAYERS,
    MOST,
    Extracted,
    People,
    attribute_inference_through_surrogate,
    best_threshold,
    by_threshold,
    guess,
    membership_through_surrogate,
    predictions,
    values_of,
)
from cfk_plugin.audit.targets import Sample
from cfk_plugin.errors import InputError
from copied_owners import IslandOwner, RememberingOwner, island_people, noisy_people

CANARY = "CANARY-7731"
ATTACKS = ("threshold", "learned")


def membership(owner: Any, sample: Sample, **settings: Any) -> AttackReport:
    return membership_through_surrogate(owner, sample, layers=(16,), **settings)


def attributes(owner: Any, sample: Sample, **settings: Any) -> AttackReport:
    return attribute_inference_through_surrogate(owner, sample, **{"attribute": "kind", "layers": (16,), **settings})


def test_people_whom_a_model_remembers_are_found_through_its_copy() -> None:
    seen: list[tuple[int, int]] = []
    report = membership(RememberingOwner(), noisy_people(1600), progress=lambda *done: seen.append(done))
    for attack in ATTACKS:
        found = report[f"membership_surrogate_{attack}"]
        assert found.worked
        assert found.main.low > 0.6
        assert found.n == 400
        assert found.control is not None
        assert found.control.low < 0.5 < found.control.high  # people who were never trained on are not "found"
        assert found.figures["auc_low"] > 0.6
        assert report.curves[f"membership_surrogate_{attack}"].tpr[-1] == 1
    assert seen[-1] == (7, 7)
    assert seen == sorted(seen)
    assert report.settings["queries"] == 800  # two sets of four


def test_a_model_that_nobody_was_needed_for_tells_nobody() -> None:
    for result in membership(IslandOwner(), island_people(400)):
        assert not result.worked
        assert result.main.low < 0.5 < result.main.high


def test_a_remembered_attribute_is_found_through_the_copy() -> None:
    report = attributes(RememberingOwner(), noisy_people(1600), layers=LAYERS)
    found = report["attribute_inference_surrogate"]
    assert found.worked
    assert found.control is not None
    assert found.figures["gain_low"] > 0.05
    assert found.main.low > max(found.baseline.value, found.control.value)
    assert abs(found.control.value - found.figures["control_baseline"]) < 0.15
    people = [found.figures[f"value_{value}_people"] for value in (1, 2, 3)]
    assert sum(people) == found.n == 200
    accuracies = [found.figures[f"value_{value}_accuracy"] for value in (1, 2, 3)]
    assert np.dot(people, accuracies) / 200 == pytest.approx(found.main.value)


def test_an_attribute_that_a_model_ignores_is_not() -> None:
    found = attributes(IslandOwner(), island_people(400))["attribute_inference_surrogate"]
    assert not found.worked
    assert found.figures["gain_low"] <= 0 <= found.figures["gain_high"]


def test_a_number_is_guessed_in_ranges() -> None:
    report = attributes(IslandOwner(), island_people(80), attribute="place")
    assert report.settings["values"] == 3
    assert report["attribute_inference_surrogate"].n == 10


def test_pieces_can_run_in_other_processes() -> None:
    sample = noisy_people(160)
    extracted = Extracted(RememberingOwner(), sample, draw_sets(sample, 0), RememberingOwner().architecture, 60, 99, 0)
    piece = extracted.pieces("x", lambda surrogate, X: surrogate.confidence(X))[1]
    here, there = piece.call(), cloudpickle.loads(cloudpickle.dumps(piece)).call()
    assert all(np.array_equal(here[name], there[name]) for name in here)


def test_nobody_attacked_was_asked_about() -> None:
    sample = noisy_people(400)
    extracted = Extracted(RememberingOwner(), sample, draw_sets(sample, 0), RememberingOwner().architecture, 200, 50, 0)
    for at in range(4):
        asked = set(extracted._order(at)[:200].tolist())
        assert not asked & {*extracted.sets[at].members.tolist(), *extracted.sets[at].others.tolist()}
    fresh = set(extracted.fresh().tolist())
    assert len(fresh) == 50
    assert not fresh & set(extracted._order(0)[:200].tolist())
    assert not fresh & {*extracted.sets[0].members.tolist(), *extracted.sets[0].others.tolist()}


def test_prediction_vectors_are_sorted() -> None:
    confidence, truth = np.array([0.2, 0.9]), np.array([True, True])
    assert predictions(confidence).tolist() == [[0.8, pytest.approx(0.2)], [0.9, pytest.approx(0.1)]]
    assert predictions(confidence, truth)[:, 2].tolist() == [0.2, 0.9]


def test_threshold_is_the_best_of_all() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        members, others = random.integers(0, 6, 12) / 5, random.integers(-2, 5, 9) / 5

        def gained(limit: float, members: Any = members, others: Any = others) -> float:
            return float((members >= limit).mean() - (others >= limit).mean())

        best = max(gained(limit) for limit in [*members, *others])
        assert gained(best_threshold(members, others)) == pytest.approx(best)


def test_threshold_is_learnt_on_all_shadows_together() -> None:
    def scores(members: list[float], others: list[float]) -> dict[str, Any]:
        groups = {"members": predictions(np.array(members)), "others": predictions(np.array(others))}
        return {f"{name}_{way}": rows for name, rows in groups.items() for way in ("explained", "alone")}

    target = scores([0.95, 0.6], [0.7, 0.9])
    found = by_threshold(target, [scores([0.9], [0.7]), scores([1.0], [0.6])])
    assert found["members_explained"].tolist() == pytest.approx([0.15, -0.2])  # halfway between 0.7 and 0.9
    assert found["others_alone"].tolist() == pytest.approx([-0.1, 0.1])


def test_values_are_frequent_categories_or_ranges() -> None:
    many = pd.Series([f"v{at}" for at in range(20) for _ in range(at + 1)] + [None], name="c")
    values = values_of(many)
    assert values.examples == tuple(f"v{at}" for at in range(19, 19 - MOST, -1))
    assert values.codes(pd.Series(["v19", "v18", "v0", None, "unseen"])).tolist() == [0, 1, -1, -2, -1]
    ages = values_of(pd.Series(range(9), name="age"))
    assert ages.examples == (1, 4, 7)
    assert ages.codes(pd.Series([-5.0, 4.0, 100.0, np.nan])).tolist() == [0, 1, 2, -2]
    assert repr(values) == "Values(10)"


@pytest.mark.parametrize(
    ("column", "edges", "said"),
    [
        (pd.Series([1, 1, 1], name="n"), None, "1 of 1 ranges"),
        (pd.Series([1, 2, 3], name="n"), (9.0,), "1 of 2 ranges"),
        (pd.Series(["a", "a"], name="n"), None, "fewer than two values"),
        (pd.Series(["a", "b"], name="n"), (1.0,), "no edges"),
    ],
)
def test_what_cannot_be_guessed_is_refused(column: pd.Series, edges: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        values_of(column, edges)


def test_unknown_attribute_is_refused() -> None:
    with pytest.raises(InputError, match="'nothing'"):
        attributes(IslandOwner(), island_people(100), attribute="nothing")


def test_a_shadow_with_one_value_alone_guesses_that() -> None:
    def people(codes: list[int]) -> People:
        profiles = {way: np.zeros((len(codes), 2)) for way in KNOWING[:2]}
        return People(pd.DataFrame({"x": np.arange(len(codes))}), np.empty((len(codes), 0)), profiles, np.array(codes))

    found = guess(people([1, 1, -1]), {"members": people([0, 1])}, 2, (4,), 0)
    assert found["members_explained"].tolist() == [[0, 1], [0, 1]]
