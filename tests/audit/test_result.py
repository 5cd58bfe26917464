from __future__ import annotations

import dataclasses
import json
import math

import pytest

from cfk_plugin.audit import AuditResult, Rate, rate, to_frame
from cfk_plugin.audit.result import crowd_figures
from cfk_plugin.metrics import clopper_pearson


def result(main: Rate, baseline: Rate, control: Rate | None = None, **figures: float) -> AuditResult:
    return AuditResult("guessing", "Guesses.", main, baseline, control, figures, seed=3, n=main.n)


def test_rate_of_right_and_wrong_guesses_has_the_exact_interval() -> None:
    found = rate([1, 1, 0, 1])
    assert (found.value, found.n) == (0.75, 4)
    assert (found.low, found.high) == clopper_pearson(3, 4)


def test_rate_of_equal_probabilities_has_no_width_of_zero() -> None:
    found = rate([0.1] * 20)
    assert found.value == pytest.approx(0.1)
    assert (found.low, found.high) == clopper_pearson(2, 20)
    assert rate([0.11] * 20).high == clopper_pearson(3, 20).high  # rounded outwards
    assert rate([0.11] * 20).low == clopper_pearson(2, 20).low


def test_rate_of_other_probabilities_is_seeded() -> None:
    values = [0.1, 0.2, 0.5, 1.0, 0.1, 0.3]
    found = rate(values, seed=1)
    assert found == rate(values, seed=1)
    assert found.low < found.value < found.high


def test_rate_of_nothing_says_so() -> None:
    found = rate([])
    assert math.isnan(found.value)
    assert (found.low, found.high, found.n) == (0.0, 1.0, 0)


def test_result_says_when_the_attack_did_not_work() -> None:
    weak = result(rate([0.1] * 50), rate([0.1] * 50))
    assert not weak.worked
    assert "no evidence of protection" in str(weak.warning)
    strong = result(rate([1.0] * 50), rate([0.1] * 50))
    assert strong.worked
    assert strong.warning is None
    assert not result(rate([]), rate([])).worked


def test_result_cannot_be_changed() -> None:
    found = result(rate([1.0]), rate([0.0]), k=3.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.n = 4  # type: ignore[misc]
    with pytest.raises(TypeError):
        found.figures["k"] = 4.0  # type: ignore[index]


def test_result_as_json_and_as_table() -> None:
    found = result(rate([1.0, 0.0]), rate([0.0, 0.0]), rate([0.5, 0.2]), k=3.0, unknown=math.nan)
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["figures"] == {"k": 3.0, "unknown": None}
    assert plain["main"]["value"] == 0.5
    frame = to_frame([found, result(rate([1.0]), rate([0.0]))])
    assert frame["figures.k"].tolist()[0] == 3.0
    assert frame["control"].isna().tolist() == [False, True]
    assert {"main", "main_low", "main_high", "baseline", "worked", "n"} <= set(frame)


def test_crowd_figures() -> None:
    assert crowd_figures([1, 2, 3, 10], 3, "left") == {
        "left_min": 1.0,
        "left_median": 2.5,
        "left_p05": pytest.approx(1.15),
        "left_below_k": 0.5,
        "left_one": 0.25,
    }
    assert all(math.isnan(value) for value in crowd_figures([], 3, "left").values())
