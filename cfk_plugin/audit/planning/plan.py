"""Choosing sizes that fit a budget, before anything is attacked."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cfk_plugin.audit.attacked import Owner, Sample
from cfk_plugin.audit.extraction import Paces
from cfk_plugin.audit.planning.audits import AUDITS, AuditTask, Scope
from cfk_plugin.audit.planning.budget import said
from cfk_plugin.audit.planning.sizes import STEPS, Sizes
from cfk_plugin.audit.running import Speed, measure_speed
from cfk_plugin.errors import InputError


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be run, and how long it is expected to take.

    Attributes
    ----------
    sizes : Sizes
    people : int
        How many are trained on.
    seconds : mapping of (owner, audit) to float
        Expected, on this machine as busy as it was when trainings were timed.
    probed : float
        Seconds that the timing took.
    """

    sizes: Sizes
    people: int
    seconds: Mapping[tuple[str, str], float]
    probed: float

    @property
    def total(self) -> float:
        """Expected seconds of everything, without the timing."""
        return sum(self.seconds.values())


def plan(
    owners: Sequence[Owner],
    sample: Sample,
    scope: Scope,
    budget: float,
    *,
    audits: Sequence[str] = tuple(AUDITS),
    n_jobs: int = 1,
    seed: int = 0,
    steps: Sequence[Sizes] = STEPS,
) -> Plan:
    """Time every owner and take the largest sizes with which all audits fit the budget.

    Owners are timed at the smallest sizes; trainings and answers are taken to grow in proportion to the people trained
    on. Then they are timed again at the sizes chosen, and smaller ones are taken as long as those are too slow.

    Parameters
    ----------
    owners : sequence of Owner
        Of different names.
    sample : Sample
    scope : Scope
    budget : float
        Seconds, timing included.
    audits : sequence of str
        Names of `AUDITS`; an owner whose answers one cannot attack is left out of it.
    n_jobs : int
        Trainings at the same time.
    seed : int
    steps : sequence of Sizes
        From the smallest to the largest.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        If an audit is unknown, nothing is left to attack, or even the smallest sizes take longer than the budget.
    """
    if unknown := [name for name in audits if name not in AUDITS]:
        raise InputError(f"unknown audit {', '.join(unknown)}; known: {', '.join(AUDITS)}")
    started = time.perf_counter()
    forecast = _Forecast(owners, sample, scope, audits, n_jobs, seed)
    if not forecast.pairs:
        raise InputError(f"{', '.join(audits)}: none of the owners gives answers that this attacks")
    at = 0
    for i, sizes in enumerate(steps):
        if sum(forecast.seconds(sizes, timed_at=steps[0]).values()) + _since(started) > budget:
            break
        at = i
    while True:
        seconds = forecast.seconds(steps[at], timed_at=steps[at])
        if sum(seconds.values()) + _since(started) <= budget:
            return Plan(steps[at], forecast.people(steps[at]), seconds, _since(started))
        if at == 0:
            least = said(sum(seconds.values()) + _since(started))
            raise InputError(
                f"the smallest sizes take about {least}, the budget is {said(budget)}; give more time, or fewer audits "
                "or owners"
            )
        at -= 1


@dataclass(frozen=True, slots=True, repr=False)
class _Forecast:
    """How long everything takes at some sizes; remembers what was timed."""

    owners: Sequence[Owner]
    sample: Sample
    scope: Scope
    audits: Sequence[str]
    n_jobs: int
    seed: int
    speeds: dict[int, dict[str, Speed]] = field(default_factory=dict)
    paces: Paces = field(default_factory=dict)

    @property
    def pairs(self) -> list[tuple[Owner, str]]:
        return [(owner, name) for owner in self.owners for name in self.audits if AUDITS[name].attacks(owner)]

    def people(self, sizes: Sizes) -> int:
        """Return how many are trained on."""
        return AuditTask(self.owners[0], self.sample, sizes, self.scope).n_train

    def seconds(self, sizes: Sizes, *, timed_at: Sizes) -> dict[tuple[str, str], float]:
        people = self.people(timed_at)
        grown = self.people(sizes) / people
        found = {}
        for owner, name in self.pairs:
            speed = self._speed(people, owner)
            work = AUDITS[name].work(AuditTask(owner, self.sample, sizes, self.scope, self.paces))
            larger = Speed(speed.training * grown, speed.explanation * grown)
            found[owner.name, name] = larger.seconds(work, self.n_jobs)
        return found

    def _speed(self, people: int, owner: Owner) -> Speed:
        known = self.speeds.setdefault(people, {})
        if owner.name not in known:
            rows = np.random.default_rng(self.seed).permutation(len(self.sample))[:people]
            known[owner.name] = measure_speed(owner, self.sample.take(rows), self.seed)
        return known[owner.name]


def _since(started: float) -> float:
    return time.perf_counter() - started
