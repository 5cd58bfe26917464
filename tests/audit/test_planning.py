"""Sizes that fit a budget, with an owner of whom the speed is known; and results that a stopped
audit goes on from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.audit.membership import membership
from cfk_plugin.audit.planning import (
    STEPS,
    AuditTask,
    Scope,
    can_detect,
    format_duration,
    plan,
    seconds_of,
)
from cfk_plugin.audit.targets import Answers, Kept, Sample
from cfk_plugin.errors import InputError

SAMPLE = Sample(
    pd.DataFrame({"age": np.arange(4_000.0), "debt": np.zeros(4_000)}), np.arange(4_000) % 2 == 0
)
SCOPE = Scope(("age",), lambda *_: None)
SMALL, LARGE = (
    STEPS[0]._replace(people=p, shadows=s, attacked=20, explained=10)
    for p, s in ((100, 2), (200, 8))
)


class Clock:
    """Time that passes where somebody takes it alone, however busy the machine is."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


CLOCK = Clock()


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfk_plugin.audit.planning.time", CLOCK)


@dataclass(frozen=True)
class Sleeper:
    """Takes a known time for every person that it trains on."""

    seconds: float
    name: str = "sleeper"

    def train(self, people: Sample, seed: int) -> Sleeper:
        CLOCK.now += self.seconds * len(people)
        return self

    def desired(self, X: pd.DataFrame) -> np.ndarray:
        return np.zeros(len(X), dtype=bool)

    def confidence(self, X: pd.DataFrame) -> np.ndarray:
        return np.zeros(len(X))

    def explain(self, X: pd.DataFrame) -> Answers:
        return Answers(X, np.ones(len(X), dtype=bool))


def planned(
    budget: float, seconds: float = 1e-4, steps: Sequence[Any] = (SMALL, LARGE), **options: Any
) -> Any:
    sample = options.pop("sample", SAMPLE)
    return plan(
        [Sleeper(seconds)],
        sample,
        SCOPE,
        budget,
        **{"audits": ["membership"], "steps": steps, **options},
    )


def test_the_largest_sizes_that_fit_are_taken() -> None:
    # 3 trainings of 10 ms at the small sizes, 9 of 20 ms at the large ones, and what scores and
    # intervals take.
    assert planned(60.0).sizes == LARGE
    assert planned(60.0, steps=[SMALL]).sizes == SMALL
    # 3 times 0.5 s, or 9 times 3 s
    slow = planned(12.0, seconds=5e-3, steps=(SMALL, LARGE._replace(people=600)))
    assert (slow.sizes, slow.people) == (SMALL, SMALL.people)
    assert 1 <= slow.total <= 6
    # 3 of 10 at most
    assert planned(60.0, 0.0, [LARGE], sample=SAMPLE.take(np.arange(200))).people == 60


def test_where_the_smallest_sizes_do_not_fit_what_does_is_run() -> None:
    owners = [Sleeper(1e-4, "quick"), Sleeper(2e-2, "slow")]  # 3 times 10 ms, or 3 times 2 s
    found = plan(owners, SAMPLE, SCOPE, 6.0, audits=["membership"], steps=(SMALL, LARGE))
    assert found.sizes == SMALL
    assert list(found.seconds) == [("quick", "membership")]
    assert found.left_out["slow", "membership"] > 4
    with pytest.raises(
        InputError, match=r"the smallest audit takes about \d+ seconds?, the budget is"
    ):
        planned(0.2, seconds=1e-2)


def test_a_size_for_which_people_are_too_few_ends_the_choice_and_not_the_command() -> None:
    found = planned(
        3600.0, 0.0, STEPS, sample=SAMPLE.take(np.arange(303)), audits=["membership", "extraction"]
    )
    # its 250 queries fit the attacker's 222 people as little as any larger step's do
    assert found.sizes == STEPS[0]
    assert set(found.seconds) == {("sleeper", "membership"), ("sleeper", "extraction")}
    few = SAMPLE.take(np.arange(60))
    found = planned(60.0, 0.0, STEPS, sample=few, audits=["membership", "extraction"])
    assert math.isnan(found.left_out["sleeper", "extraction"])
    with pytest.raises(InputError, match="give at least 80 people"):
        planned(60.0, 0.0, STEPS, sample=few, audits=["extraction"])


def test_what_is_slow_is_timed_for_few_seconds() -> None:
    started = CLOCK.now
    planned(3600.0, seconds=2e-2, steps=STEPS)  # 10 s for 500 people, 80 s for 4,000
    assert CLOCK.now - started < 10


def test_owners_whom_an_audit_cannot_attack_are_left_out_and_unknown_audits_are_refused() -> None:
    with pytest.raises(InputError, match="none of the owners"):
        planned(60.0, 0.0, audits=["linkage"])
    found = planned(60.0, 0.0, [SMALL], audits=["linkage", "membership"])
    assert list(found.seconds) == [("sleeper", "membership")]
    with pytest.raises(InputError, match="unknown audit guessing; known: linkage"):
        planned(60.0, seconds=100.0, audits=["guessing"])


def test_steps_grow_in_everything() -> None:
    for smaller, larger in pairwise(STEPS):
        assert smaller.people < larger.people
        assert smaller.shadows <= larger.shadows
        assert smaller.attacked < larger.attacked
        assert smaller.queries[-1] <= larger.queries[-1]
        assert smaller.explained < larger.explained


def test_a_stopped_audit_keeps_what_it_did_and_takes_no_broken_file_for_a_result(
    tmp_path: Path,
) -> None:
    def run(owner: Sleeper) -> Any:
        told: list[tuple[int, int]] = []
        found = membership(
            owner,
            SAMPLE,
            n_train=50,
            n_shadows=3,
            attacked=20,
            kept=kept,
            progress=lambda *done: told.append(done),
        )
        return found.results, told

    kept = Kept(tmp_path)
    seeds = iter(range(100))

    @dataclass(frozen=True)
    class Stopped(Sleeper):
        def train(self, people: Sample, seed: int) -> Sleeper:
            if next(seeds) == 2:
                raise ArithmeticError
            return self

    with pytest.raises(ArithmeticError):
        run(Stopped(0.0))
    _, second = sorted(tmp_path.iterdir())
    second.rename(second.with_suffix(".1234.part"))
    results, told = run(Stopped(0.0))
    assert next(seeds) == 6  # three of four were trained anew
    assert told[-1] == (4, 4)
    assert run(Stopped(0.0))[0] == results
    assert next(seeds) == 7
    for n_jobs in (0, 1.5, True, "2"):
        with pytest.raises(InputError, match="n_jobs"):
            membership(Stopped(0.0), SAMPLE, n_train=50, n_jobs=n_jobs)  # type: ignore[arg-type]
    assert next(seeds) == 8


def test_budgets_are_times_as_people_write_them() -> None:
    read = {"90s": 90, "5m": 300, "1.5h": 5400, " 2 m ": 120, "fast": 180, "FULL": 1800, "0.5m": 30}
    assert {text: seconds_of(text) for text in read} == read
    for wrong in ("", "5", "m", "0s", "-5m", "5 days", "fastest", "1e3s", "5m30s"):
        with pytest.raises(InputError, match="a budget is a time such as"):
            seconds_of(wrong)
    said = {
        0.1: "less than a second",
        1.2: "1 second",
        2: "2 seconds",
        89: "89 seconds",
        170: "3 minutes",
    }
    assert {seconds: format_duration(seconds) for seconds in said} == said
    assert format_duration(5400) == "1.5 hours"


def test_what_a_size_shows_at_best_is_said_with_its_numbers() -> None:
    # 0.5 + 2.8 sqrt(41 / (12 * 20 * 20)), 0.98 / sqrt(100), 0.98 / sqrt(10), 1 - 0.05^(1/10), by
    # hand.
    task = AuditTask(Sleeper(0.0), SAMPLE, SMALL, SCOPE)
    said = {
        name: can_detect(name, task)
        for name in ("membership", "extraction", "attribute_inference", "linkage")
    }
    assert said["membership"].startswith("sees an AUC of 0.76 or more (20 members, 20 others)")
    assert said["membership"].endswith("false positive rate of 0.01 or 0.001")
    assert said["extraction"] == "sees a gain of 9.8 points or more (100 people held out)"
    assert said["attribute_inference"] == "sees an advantage of 31 points or more (10 explanations)"
    assert said["linkage"] == "no success in 10 explanations leaves up to 25.9 % open"
