"""Sizes that fit a budget, with an owner of whom the speed is known."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.audit.planning import STEPS, AuditTask, Plan, Scope, Sizes, can_detect, half_width, plan, unseen_rate
from cfk_plugin.audit.targets import Answers, Sample
from cfk_plugin.errors import InputError

SAMPLE = Sample(pd.DataFrame({"age": np.arange(4_000.0), "debt": np.zeros(4_000)}), np.arange(4_000) % 2 == 0)
SCOPE = Scope(("age",), lambda *_: None)
SMALL = Sizes(100, 2, 20, (50,), 1, 10)
LARGE = Sizes(200, 8, 40, (50,), 1, 10)


@dataclass(frozen=True)
class Sleeper:
    """Takes a known time for every person that it trains on."""

    seconds: float
    name: str = "sleeper"

    def train(self, people: Sample, seed: int) -> Sleeper:
        time.sleep(self.seconds * len(people))
        return self

    def desired(self, X: pd.DataFrame) -> np.ndarray:
        return np.zeros(len(X), dtype=bool)

    def confidence(self, X: pd.DataFrame) -> np.ndarray:
        return np.zeros(len(X))

    def explain(self, X: pd.DataFrame) -> Answers:
        return Answers(X, np.ones(len(X), dtype=bool))


def planned(budget: float, seconds: float = 1e-4, steps: Sequence[Sizes] = (SMALL, LARGE), **options: Any) -> Plan:
    return plan([Sleeper(seconds)], SAMPLE, SCOPE, budget, audits=["membership"], steps=steps, **options)


def test_the_largest_sizes_that_fit_are_taken() -> None:
    # 3 trainings of 10 ms at the small sizes, 9 of 20 ms at the large ones, and what scores and intervals take.
    assert planned(60.0).sizes == LARGE
    assert planned(60.0, steps=[SMALL]).sizes == SMALL


def test_sizes_are_smaller_where_the_large_ones_take_too_long() -> None:
    slow = planned(20.0, seconds=1e-2, steps=(SMALL, LARGE._replace(people=600)))  # 3 times 1 s, or 9 times 6 s
    assert slow.sizes == SMALL
    assert 2 <= slow.total <= 10
    assert slow.people == SMALL.people


def test_where_the_smallest_sizes_do_not_fit_what_does_is_run() -> None:
    owners = [Sleeper(1e-4, "quick"), Sleeper(2e-2, "slow")]  # 3 times 10 ms, or 3 times 2 s
    found = plan(owners, SAMPLE, SCOPE, 6.0, audits=["membership"], steps=(SMALL, LARGE))
    assert found.sizes == SMALL
    assert list(found.seconds) == [("quick", "membership")]
    assert found.left_out["slow", "membership"] > 4


def test_a_budget_in_which_nothing_fits_is_an_error_that_says_how_much_is_needed() -> None:
    with pytest.raises(InputError, match=r"the smallest audit takes about \d+ seconds?, the budget is"):
        planned(0.2, seconds=1e-2)


def test_a_size_for_which_people_are_too_few_ends_the_choice_and_not_the_command() -> None:
    heart = SAMPLE.take(np.arange(303))
    found = plan([Sleeper(0.0)], heart, SCOPE, 3600.0, audits=["membership", "extraction"])
    assert max(found.sizes.queries) <= 500  # 250 fit the attacker's 222 people as little as any larger step does
    assert found.sizes == STEPS[0]
    assert set(found.seconds) == {("sleeper", "membership"), ("sleeper", "extraction")}
    few = plan([Sleeper(0.0)], SAMPLE.take(np.arange(60)), SCOPE, 60.0, audits=["membership", "extraction"])
    assert math.isnan(few.left_out["sleeper", "extraction"])
    with pytest.raises(InputError, match="give at least 80 people"):
        plan([Sleeper(0.0)], SAMPLE.take(np.arange(60)), SCOPE, 60.0, audits=["extraction"])


def test_what_is_slow_is_timed_for_few_seconds() -> None:
    started = time.perf_counter()
    planned(3600.0, seconds=2e-2, steps=STEPS)  # 10 s for 500 people, 80 s for 4,000
    assert time.perf_counter() - started < 10


def test_people_are_never_more_than_the_sample_has_enough_for() -> None:
    few = SAMPLE.take(np.arange(200))
    found = plan([Sleeper(0.0)], few, SCOPE, 60.0, audits=["membership"], steps=[LARGE])
    assert found.people == 60


def test_owners_whom_an_audit_cannot_attack_are_left_out() -> None:
    with pytest.raises(InputError, match="none of the owners"):
        plan([Sleeper(0.0)], SAMPLE, SCOPE, 60.0, audits=["linkage"])
    found = plan([Sleeper(0.0)], SAMPLE, SCOPE, 60.0, audits=["linkage", "membership"], steps=[SMALL])
    assert list(found.seconds) == [("sleeper", "membership")]


def test_an_unknown_audit_is_refused_before_anything_is_timed() -> None:
    with pytest.raises(InputError, match="unknown audit guessing; known: linkage"):
        plan([Sleeper(100.0)], SAMPLE, SCOPE, 60.0, audits=["guessing"])


def test_steps_grow_in_everything() -> None:
    for smaller, larger in pairwise(STEPS):
        assert smaller.people < larger.people
        assert smaller.shadows <= larger.shadows
        assert smaller.attacked < larger.attacked
        assert smaller.queries[-1] <= larger.queries[-1]
        assert smaller.explained < larger.explained


def test_what_a_size_shows_is_said_with_its_numbers() -> None:
    # 0.5 + 2.8 sqrt(41 / (12 * 20 * 20)), 0.98 / sqrt(100) and 0.98 / sqrt(10), by hand.
    task = AuditTask(Sleeper(0.0), SAMPLE, SMALL, SCOPE)
    assert can_detect("membership", task).startswith("sees an AUC of 0.76 or more (20 members, 20 others)")
    assert can_detect("membership", task).endswith("false positive rate of 0.01 or 0.001")
    assert can_detect("extraction", task) == "sees a gain of 9.8 points or more (100 people held out)"
    assert can_detect("attribute_inference", task) == "sees an advantage of 31 points or more (10 explanations)"
    assert unseen_rate(59) < 0.05 < unseen_rate(58)  # 1 - 0.05^(1/n)
    assert half_width(0) == unseen_rate(0) == 1
