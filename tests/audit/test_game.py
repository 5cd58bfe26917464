"""Coins that are played agree with what the audit computes from everybody."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from cfk_plugin.audit.membership import HypercubePopulation, l1, membership, play
from cfk_plugin.audit.targets import Answers, Sample
from cfk_plugin.errors import InputError
from small_owner import LinearOwner

POPULATION, OWNER, N = HypercubePopulation(d=120), LinearOwner(), 60


def farther_than(threshold: float) -> object:
    def adversary(person: pd.DataFrame, answer: Answers) -> bool:
        assert (len(person), len(answer.found)) == (1, 1)
        return bool(answer.found[0]) and float(l1(person, answer.rows)[0]) >= threshold

    return adversary


def accuracy_of_everybody(threshold: float, trainings: int) -> np.ndarray:
    """Return (TPR + 1 - FPR) / 2 of the same rule among all members, and as many others, of each training."""
    found = []
    for seed in range(trainings):
        table, others = POPULATION.draw(N, [seed, 5]), POPULATION.draw(400, [seed, 6])
        service = OWNER.train(table, seed)
        rates = []
        for people in (table, others):
            refused = people.X[~service.desired(people.X)]
            rates.append(float((l1(refused, service.explain(refused).rows) >= threshold).mean()))
        found.append((rates[0] + 1 - rates[1]) / 2)
    return np.array(found)


def test_played_coins_agree_with_the_balanced_accuracy_over_everybody() -> None:
    threshold = 12.0
    played = play(OWNER, POPULATION.draw, farther_than(threshold), n_train=N, rounds=150, seed=2)  # type: ignore[arg-type]
    everybody = accuracy_of_everybody(threshold, 40)
    assert played.n == 150
    assert played.low <= everybody.mean() <= played.high
    assert everybody.mean() > 0.55
    best = [
        membership(OWNER, POPULATION.draw(4 * N, seed), n_train=N, distance="l1", attacks=["membership_cfd"])
        for seed in range(10)
    ]
    assert np.mean([report["membership_cfd"].figures["balanced_accuracy"] for report in best]) > 0.55


def test_who_always_says_member_wins_half_of_the_rounds() -> None:
    played = play(OWNER, POPULATION.draw, lambda person, answer: True, n_train=20, rounds=60)
    assert played.low < 0.5 < played.high
    assert played == play(OWNER, POPULATION.draw, lambda person, answer: True, n_train=20, rounds=60)


def test_a_member_is_in_the_table_and_everybody_was_refused() -> None:
    tables: list[Sample] = []
    heads = []

    def draw(n: int, random: np.random.Generator) -> Sample:
        people = POPULATION.draw(n, random)
        if n > 1:
            tables.append(people)
        return people

    def adversary(person: pd.DataFrame, answer: Answers) -> bool:
        heads.append(bool((tables[-1].X.to_numpy() == person.to_numpy()).all(axis=1).any()))
        assert float(l1(person, answer.rows)[0]) > 0
        return heads[-1]

    assert play(OWNER, draw, adversary, n_train=20, rounds=60).value == 1
    assert 15 < sum(heads) < 45


def test_a_game_about_nobody_is_refused() -> None:
    generous = LinearOwner(lenient=1e6)
    with pytest.raises(InputError, match="nobody to ask about"):
        play(generous, POPULATION.draw, lambda person, answer: True, n_train=20, rounds=5)
    with pytest.raises(InputError, match="rounds"):
        play(OWNER, POPULATION.draw, lambda person, answer: True, n_train=20, rounds=0)
