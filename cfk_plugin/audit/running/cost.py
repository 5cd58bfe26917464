"""How long an attack will take, from what one training and a few answers took."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from cfk_plugin.audit.attacked import Owner, Sample, Service

_FEW, _MANY = 10, 100  # queries of a probe
_PATIENCE = 2.0  # seconds


class Work(NamedTuple):
    """What an attack has to do; the sum of two is the work of both.

    Attributes
    ----------
    trainings : int
        Trainings by the owner, each on as many people as the probe's.
    explanations : int
        Queries that are explained.
    seconds : float
        Everything else, as measured or estimated by the attack itself.
    """

    trainings: int = 0
    explanations: int = 0
    seconds: float = 0.0

    def plus(self, other: Work) -> Work:
        """Return the work of both."""
        return Work(
            self.trainings + other.trainings, self.explanations + other.explanations, self.seconds + other.seconds
        )


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast an owner is: seconds of one training, and of one explanation."""

    training: float
    explanation: float

    def seconds(self, work: Work, n_jobs: int = 1) -> float:
        """Return how long the work takes when so many pieces run at the same time."""
        one_by_one = work.trainings * self.training + work.explanations * self.explanation + work.seconds
        return one_by_one / max(n_jobs, 1)


def measure_speed(owner: Owner, people: Sample, seed: int = 0) -> Speed:
    """Train once and explain a few undesired people; more of them where that is quick.

    Parameters
    ----------
    owner : Owner
    people : Sample
        As many as an attack trains on.
    seed : int

    Returns
    -------
    Speed
        In seconds of this machine now; another load makes it wrong.
    """
    started = time.perf_counter()
    service = owner.train(people, seed)
    training = time.perf_counter() - started
    undesired = np.flatnonzero(~service.desired(people.X))
    if not len(undesired):
        return Speed(training, 0.0)
    few, many = (people.X.take(undesired[:asked]) for asked in (_FEW, _MANY))
    service.explain(few)  # the first time warms up what is compiled or loaded
    explanation = _each(service, few)
    # Of a quick explainer most of the time of few answers is that of the call; attacks ask many at once.
    return Speed(training, _each(service, many) if explanation * len(many) < _PATIENCE else explanation)


def _each(service: Service, queries: pd.DataFrame) -> float:
    started = time.perf_counter()
    service.explain(queries)
    return (time.perf_counter() - started) / len(queries)
