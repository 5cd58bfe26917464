"""The figures of answers that benchmarks print, by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from answer_figures import figures_of
from cfk_plugin import Population, Schema
from cfk_plugin.metrics import clopper_pearson

TRAIN = pd.DataFrame(
    {"age": [20, 30, 40, 60, 60], "city": list("AABBB"), "pay": [10, 20, 50, 90, 90]}
)
QUERIES = pd.DataFrame({"age": [20, 30, 40], "city": list("AAB"), "pay": [10, 20, 30]})
ANSWERS = pd.DataFrame({"age": [20, 60, 40], "city": list("BBB"), "pay": [50, 90, 34]})
HOLDOUT = pd.DataFrame(
    {"age": [40, 20, 60, 20, 60], "city": list("BBBAB"), "pay": [50, 50, 90, 10, 30]}
)
POPULATION = Population.from_frame(
    TRAIN, Schema.from_frame(TRAIN, quasi_identifiers=["age", "city"])
)


def rich(rows: pd.DataFrame) -> np.ndarray:
    return np.where(rows["pay"] >= 50, "yes", "no")


def test_every_figure_is_that_of_pencil_and_paper() -> None:
    found = figures_of(QUERIES, ANSWERS, POPULATION, model=rich, desired="yes", holdout=HOLDOUT)
    # Ranges: age 40, pay 80. Answer 1: city, pay by 40. Answer 2: age by 30, city, pay by 70.
    # Answer 3: pay by 4.
    assert found.flipping_ratio == (2 / 3, *clopper_pearson(2, 3), 3)
    assert found.l1.value == pytest.approx(np.mean([1.5, 0.75 + 1 + 0.875, 0.05]))
    assert found.features_changed.value == pytest.approx(np.mean([2, 3, 1]))
    # Desired rows: (40 B 50), (60 B 90) twice. Answer 1 is 0.5 away, 2 is a row, 3 is 0.2 away.
    assert found.nn1.value == pytest.approx(np.mean([0.5, 0, 0.2]))
    # Bins of 2.5 years and 5 of pay. 20 with B is new; 60 B 90 is a row; 34 is in a bin of pay that
    # nobody is in.
    assert found.unseen_pair.value == pytest.approx(2 / 3)
    chance = found.chance
    assert chance is not None
    # 40 B 50 and 60 B 90 are rows; 20 B 50 is 0.5 away
    assert (chance.nn1.n, chance.nn1.value) == (3, pytest.approx(0.5 / 3))
    assert chance.unseen_pair.value == pytest.approx(1 / 3)
    # Of training rows 20 B fits none, 60 B two, 40 B one; of holdout rows one, two and one.
    assert chance.singled_out_train.value == pytest.approx(1 / 3)
    assert chance.singled_out_holdout.value == pytest.approx(2 / 3)


def test_a_query_without_an_answer_counts_in_the_flipping_ratio_alone() -> None:
    answered = np.array([1])
    found = figures_of(
        QUERIES, ANSWERS.iloc[[1]], POPULATION, model=rich, desired="yes", answered=answered
    )
    assert found.flipping_ratio.value == pytest.approx(1 / 3)
    assert (found.l1.n, found.l1.value, found.nn1.value) == (1, pytest.approx(2.625), 0)
    assert found.chance is None
