"""The game of membership as it is defined: one training, one coin and one person at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from cfk_plugin.audit.attacked import Answers, Owner, Sample, Service
from cfk_plugin.audit.result import Rate, check_seed, rate
from cfk_plugin.errors import InputError

Draw = Callable[[int, np.random.Generator], Sample]
"""Draws people from the population."""

Adversary = Callable[[pd.DataFrame, Answers], bool]
"""From a person (a table of one row) and the answer to them to whether the person is a member. It may have drawn people
and trained services before; it has seen neither the owner's table nor the service."""

_TRIES = 1000


def play(owner: Owner, draw: Draw, adversary: Adversary, *, n_train: int, rounds: int = 100, seed: int = 0) -> Rate:
    """Play the recourse-based game of membership and return how often the adversary is right.

    In every round the owner draws a table from the population, trains, and flips a coin. Heads: a person is drawn from
    the population among those whom the model gives the undesired outcome. Tails: from those of the table. The adversary
    gets person and counterfactual, and says whether the person is in the table.

    `membership` does not play: it asks about all such members, and as many other people, of one training, which gives
    the accuracy of these rounds, given the training, as (TPR + 1 - FPR) / 2. That costs one training in place of one
    for every coin. What it leaves out is how much trainings differ.

    Parameters
    ----------
    owner : Owner
    draw : callable
        From a number of people and a generator to people of the population, such as ``HypercubePopulation(d).draw``.
    adversary : callable
    n_train : int
        People in the owner's table.
    rounds : int
    seed : int

    Returns
    -------
    Rate
        Share of right guesses, with a Clopper-Pearson interval over rounds, which are independent.

    Raises
    ------
    InputError
        If a setting is out of its range, or nobody can be drawn who gets the undesired outcome.

    References
    ----------
    Pawelczyk, Lakkaraju, Neel (2023), definition 1.
    """
    check_seed(seed)
    for name, value in (("n_train", n_train), ("rounds", rounds)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1")
    right = []
    for number in range(rounds):
        random = np.random.default_rng([seed, number])
        table = draw(n_train, random)
        service = owner.train(table, int(random.integers(2**31)))
        member = bool(random.random() < 0.5)
        person = _refused(service, table, random) if member else _refused_outsider(service, draw, random)
        right.append(bool(adversary(person, service.explain(person))) == member)
    return rate(right, seed)


def _refused(service: Service, people: Sample, random: np.random.Generator) -> pd.DataFrame:
    undesired = np.flatnonzero(~service.desired(people.X))
    if not len(undesired):
        raise InputError("the model gives everybody in the table the desired outcome; the game has nobody to ask about")
    return people.take(random.choice(undesired, 1)).X


def _refused_outsider(service: Service, draw: Draw, random: np.random.Generator) -> pd.DataFrame:
    """Draw until somebody gets the undesired outcome: that is the conditional distribution."""
    for _ in range(_TRIES):
        person = draw(1, random).X
        if not service.desired(person)[0]:
            return person
    raise InputError(
        f"the model gives {_TRIES} people of the population the desired outcome; the game has nobody to ask about"
    )
