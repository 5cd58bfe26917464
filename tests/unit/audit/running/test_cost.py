"""How long an attack will take."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.audit.targets import Answers, Sample, Speed, Work, measure_speed

PEOPLE = Sample(pd.DataFrame({"age": np.arange(300.0)}), np.arange(300) % 2 == 0)


@dataclass(frozen=True)
class Slow:
    """Takes at least a known time for a training and for every answer; remembers how many it was asked for."""

    training: float
    answer: float
    undesired: int = 300
    name: str = "slow"
    asked: list[int] = field(default_factory=list)

    def train(self, people: Sample, seed: int) -> Slow:
        time.sleep(self.training)
        return self

    def desired(self, X: pd.DataFrame) -> np.ndarray:
        return np.arange(len(X)) >= self.undesired

    def confidence(self, X: pd.DataFrame) -> np.ndarray:
        return np.zeros(len(X))

    def explain(self, X: pd.DataFrame) -> Answers:
        self.asked.append(len(X))
        time.sleep(self.answer * len(X))
        return Answers(X, np.ones(len(X), dtype=bool))


def test_work_adds_up_and_jobs_share_it() -> None:
    work = Work(3, 10).plus(Work(1, 20, 2.0))
    assert work == (4, 30, 2.0)
    assert Speed(training=1.0, explanation=0.1).seconds(work) == pytest.approx(9.0)
    assert Speed(training=1.0, explanation=0.1).seconds(work, n_jobs=2) == pytest.approx(4.5)


def test_a_quick_explainer_is_timed_on_many_answers_and_a_slow_one_on_few() -> None:
    quick, slow = Slow(0.0, 1e-4), Slow(0.02, 0.05)
    measure_speed(quick, PEOPLE)
    assert quick.asked == [10, 10, 100]
    found = measure_speed(slow, PEOPLE)
    assert slow.asked == [10, 10]
    assert found.training >= 0.02
    assert found.explanation >= 0.05


def test_where_nobody_is_undesired_no_explanation_takes_time() -> None:
    owner = Slow(0.0, 1.0, undesired=0)
    assert measure_speed(owner, PEOPLE).explanation == 0
    assert owner.asked == []
