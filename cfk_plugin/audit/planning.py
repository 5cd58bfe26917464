"""All audits together: how long each takes, sizes that fit a budget, and what they can show."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from cfk_plugin.audit.attribute_inference import attribute_inference
from cfk_plugin.audit.extraction import draw_sets, everybody, extraction, sizes_that_fit
from cfk_plugin.audit.linkage import run_linkage_audit
from cfk_plugin.audit.membership import Parts, membership
from cfk_plugin.audit.result import ALARMS, AttackReport, AuditReport, detectable_auc
from cfk_plugin.audit.setting import Setting
from cfk_plugin.audit.surrogate import (
    attribute_inference_through_surrogate,
    membership_through_surrogate,
)
from cfk_plugin.audit.targets import (
    DESIRED,
    ExplainerFactory,
    Kept,
    ProtectedOwner,
    Sample,
    Target,
    adapted,
    fitted,
)
from cfk_plugin.data.population import Population
from cfk_plugin.errors import CFKError, InputError, refitting
from cfk_plugin.hookspecs import Progress
from cfk_plugin.release.anonymizer import KAnonymizer

Report = AttackReport | AuditReport

LINKAGE = ("linkage", "model_filter", "homogeneity", "uniqueness")
"""Linkage attacks that take seconds.

The others rerun the algorithm for everybody; see `cfk audit linkage`.
"""

NAMED: Mapping[str, float] = {"fast": 180.0, "full": 1800.0}
"""Budgets with a name, in seconds."""

_SECONDS: Mapping[str, float] = {"s": 1.0, "m": 60.0, "h": 3600.0}
_PATIENCE = 6.0  # seconds of timing before progress is shown
_FEW = 20  # explanations that are timed
_TELLING = 0.1  # seconds; smaller increases are noise


class Sizes(NamedTuple):
    people: int  # most people that a model is trained on
    shadows: int
    attacked: int  # most members with the undesired outcome, and most others
    queries: tuple[int, ...]  # what extraction asks, one result each
    repeats: int  # draws of queries
    explained: int  # explanations for attribute inference and for linkage


PROBE = Sizes(40, 2, 10, (40,), 1, 5)
"""The smallest sizes, at which every audit is timed."""

STEPS: tuple[Sizes, ...] = (
    Sizes(500, 2, 50, (100,), 1, 30),
    Sizes(1_000, 4, 100, (250,), 1, 50),
    Sizes(2_000, 8, 200, (250, 500), 1, 100),
    Sizes(3_000, 8, 300, (250, 500), 3, 150),
    Sizes(5_000, 8, 500, (250, 1_000), 3, 200),
    Sizes(10_000, 16, 1_000, (250, 500, 1_000, 2_000), 3, 400),
    Sizes(20_000, 32, 2_000, (250, 500, 1_000, 2_000), 5, 1_000),
)
"""Sizes from smallest to largest; `plan` takes the largest that fits the budget."""


@dataclass(frozen=True, slots=True, repr=False)
class Scope:
    """What audits need besides owner, people and sizes."""

    quasi_identifiers: tuple[str, ...]  # what an attacker knows of everybody
    explainer: ExplainerFactory  # finds raw counterfactuals where an owner has no explainer
    attribute: str | None = None  # the private one that is guessed through a copy of the model


@dataclass(frozen=True, slots=True, repr=False)
class AuditTask:
    """One owner under some audit at some sizes. Host side only."""

    owner: Target
    sample: Sample
    sizes: Sizes
    scope: Scope

    @property
    def n_train(self) -> int:
        """Number of people a model is trained on: as the sizes say, at most 30 % of the sample."""
        return min(self.sizes.people, 3 * len(self.sample) // 10)

    @property
    def undesired(self) -> float:
        return float((~self.sample.y).mean())

    @property
    def explained(self) -> int:
        """Largest number of explanations: half of those not trained on ask, if their outcome is
        undesired.
        """
        return min(
            self.sizes.explained, round((len(self.sample) - self.n_train) / 2 * self.undesired)
        )

    @property
    def attacked(self) -> int:
        """Number of members, and of others, under attack: about as many as have the undesired
        outcome.
        """
        return min(self.sizes.attacked, round(self.n_train * self.undesired))

    @property
    def crowd(self) -> Sample:
        """The people for an audit that splits them into eighths and trains on one."""
        return self.sample.take(np.arange(min(len(self.sample), 8 * self.sizes.people)))

    def through_surrogate(self, attack: Callable[..., AttackReport], **options: Any) -> Report:
        sizes = {"queries": self.sizes.queries[-1], "attacked": self.sizes.attacked}
        return attack(self.owner, self.crowd, **sizes, **options)


@dataclass(frozen=True, slots=True)
class Audit:
    """One audit: how it is run at given sizes, and what its time grows with."""

    run: Callable[..., Report]  # takes a task and options (seed, n_jobs, kept, progress)
    # raises InputError if there are too few people for the sizes
    check: Callable[[AuditTask], object]
    trainings: Callable[[Sizes], int]
    explained: Callable[[AuditTask], float]
    # what the rest grows with: fitting copies, scores, intervals
    growth: Callable[[AuditTask], float]
    attacks: Callable[[Target], bool] = lambda owner: True  # noqa: ARG005 - most attack everybody


def _linkage(task: AuditTask, *, seed: int, progress: Progress | None, **_: Any) -> Report:
    """Train once on a part of the people, let half of the others ask, and keep the rest as the
    control.
    """
    owner, sample, n_train = task.owner, task.sample, task.n_train
    if not isinstance(owner, ProtectedOwner):
        raise InputError(
            f"owner {owner.name!r} gives out no regions of k people; linkage attacks those"
        )
    order = np.random.default_rng([seed, 4]).permutation(len(sample))
    half = n_train + (len(sample) - n_train) // 2
    table, asking, outside = (sample.take(rows) for rows in np.split(order, [n_train, half]))
    model = fitted(owner.model, table, seed)
    queries = (
        asking.X[~(model.predict(asking.X) == DESIRED)].head(task.explained).reset_index(drop=True)
    )
    schema = owner.schema_of(table)
    batch = adapted(task.scope.explainer, table, model, seed, tuple(schema.features)).generate(
        queries
    )
    anonymizer = KAnonymizer(policy=owner.rules, method=owner.method, seed=seed)
    with refitting():
        anonymizer.fit(Population.from_frame(table.X, schema), model=model, desired=DESIRED)
    answered = queries.take(batch.query[batch.slot]).reset_index(drop=True)
    setting = Setting(anonymizer, batch.frame, answered, outside.X, seed=seed, limit=task.explained)
    return run_linkage_audit(setting, LINKAGE, progress=progress)


def _attribute_through_surrogate(task: AuditTask, **options: Any) -> Report:
    if task.scope.attribute is None:
        raise InputError(
            "which attribute is guessed through a copy of the model? Name it in the scope"
        )
    return task.through_surrogate(
        attribute_inference_through_surrogate, attribute=task.scope.attribute, **options
    )


_COPIED: dict[str, Any] = {
    "check": lambda task: draw_sets(task.crowd, 0),
    "trainings": lambda sizes: 4,  # noqa: ARG005 - the owner's and three shadows, at any size
    "explained": lambda task: (
        4 * task.undesired * min(task.sizes.queries[-1], len(task.crowd) // 2)
    ),
    "growth": lambda task: task.sizes.queries[-1] + task.sizes.attacked,
}
"""The growth of both attacks through a copy of the model."""

AUDITS: Mapping[str, Audit] = {
    "linkage": Audit(
        _linkage,
        lambda task: Parts.cut(task.sample, task.n_train),
        lambda sizes: 1,  # noqa: ARG005
        lambda task: task.explained,
        lambda task: task.explained * task.n_train,
        lambda owner: isinstance(owner, ProtectedOwner),
    ),
    "attribute_inference": Audit(
        lambda task, **options: attribute_inference(
            task.owner,
            task.sample,
            quasi_identifiers=task.scope.quasi_identifiers,
            n_train=task.n_train,
            queries=task.explained,
            **options,
        ),
        lambda task: Parts.cut(task.sample, task.n_train),
        lambda sizes: 1,  # noqa: ARG005
        lambda task: task.explained,
        lambda task: task.n_train,
    ),
    "membership": Audit(
        lambda task, **options: membership(
            task.owner,
            task.sample,
            n_train=task.n_train,
            n_shadows=task.sizes.shadows,
            attacked=task.sizes.attacked,
            **options,
        ),
        lambda task: Parts.cut(task.sample, task.n_train),
        lambda sizes: 1 + sizes.shadows,
        lambda task: 2 * task.attacked * (1 + task.sizes.shadows),
        lambda task: task.attacked,
    ),
    "extraction": Audit(
        lambda task, **options: extraction(
            task.owner,
            task.crowd,
            queries=task.sizes.queries,
            repeats=task.sizes.repeats,
            **options,
        ),
        lambda task: sizes_that_fit(
            task.sizes.queries, len(everybody(draw_sets(task.crowd, 0)[1:]))
        ),
        lambda sizes: sizes.repeats,
        lambda task: task.sizes.repeats * task.undesired * task.sizes.queries[-1],
        lambda task: task.sizes.repeats * sum(task.sizes.queries),
    ),
    "membership_surrogate": Audit(
        lambda task, **options: task.through_surrogate(membership_through_surrogate, **options),
        **_COPIED,
    ),
    "attribute_surrogate": Audit(_attribute_through_surrogate, **_COPIED),
}
"""The audits by name, in running order."""


def seconds_of(text: str) -> float:
    """Read a budget: ``fast``, ``full``, or a number with its unit, ``90s``, ``5m``, ``1.5h``."""
    if (known := NAMED.get(text.strip().lower())) is not None:
        return known
    read = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip().lower())
    seconds = float(read[1]) * _SECONDS[read[2]] if read else 0.0
    if seconds <= 0:
        raise InputError(
            f"a budget is a time such as 90s, 5m or 1h, or {' or '.join(NAMED)}; got {text!r}"
        )
    return seconds


def format_duration(seconds: float) -> str:
    """Write a time for people: ``40 seconds``, ``3 minutes``, ``1.5 hours``."""
    if seconds < 1:
        return "less than a second"
    if seconds < 90:
        whole = round(seconds)
        return f"{whole} second{'s' if whole > 1 else ''}"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def half_width(n: int) -> float:
    """Return half the width of a 95 % interval of a rate near 1/2 over n cases: 0.98 / sqrt(n), at
    most 1.
    """
    return min(1.96 * 0.5 / math.sqrt(n), 1.0) if n else 1.0


def can_detect(name: str, task: AuditTask) -> str:
    """Say in a sentence what an audit of `AUDITS` can show at its size."""
    match name:
        case "membership":
            people = task.attacked
            missing = [f"{alarm:g}" for alarm in ALARMS if people < 1 / alarm]
            blind = (
                f"; nothing at a false positive rate of {' or '.join(missing)}" if missing else ""
            )
            area = detectable_auc(people, people)
            return f"sees an AUC of {area:.2f} or more ({people} members, {people} others){blind}"
        case "extraction":
            held_out = len(task.crowd) // 8
            return (
                f"sees a gain of {100 * half_width(held_out):.1f} points or more ({held_out} people"
                " held out)"
            )
        case "attribute_inference":
            n = task.explained
            return (
                f"sees an advantage of {100 * half_width(n):.0f} points or more ({n} explanations)"
            )
        case "linkage":
            n = task.explained
            # largest rate not excluded (95 %) by n cases without success
            unseen = 1 - 0.05 ** (1 / n) if n else 1.0
            return f"no success in {n} explanations leaves up to {100 * unseen:.1f} % open"
        case _:
            people = 2 * min(task.sizes.attacked, len(task.crowd) // 8)
            return (
                f"sees {100 * half_width(people):.0f} points above guessing or more ({people}"
                " people)"
            )


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be run, and how long it should take on this machine, as busy as it was when
    timed.
    """

    sizes: Sizes
    people: int  # number that models are trained on
    seconds: Mapping[tuple[str, str], float]  # by owner and audit
    # What is not run, and what its smallest sizes would take; NaN if there are too few people for
    # it.
    left_out: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Expected seconds in all, without the timing."""
        return sum(self.seconds.values())


def plan(
    owners: Sequence[Target],
    sample: Sample,
    scope: Scope,
    budget: float,
    *,
    audits: Sequence[str] = tuple(AUDITS),
    n_jobs: int = 1,
    seed: int = 0,
    steps: Sequence[Sizes] = STEPS,
) -> Plan:
    """Time everything at the smallest sizes, and take the largest sizes with which all audits fit
    the budget.

    The budget, in seconds, includes the timing. If even the smallest sizes do not fit, the quickest
    audits that do are run. A size that needs more people than there are is not taken, nor any above
    it. `audits` are names of `AUDITS`; an audit that cannot attack an owner's answers skips that
    owner. `steps` go from the smallest to the largest.
    """
    if unknown := [name for name in audits if name not in AUDITS]:
        raise InputError(f"unknown audit {', '.join(unknown)}; known: {', '.join(AUDITS)}")
    started = time.perf_counter()
    pairs = [(owner, name) for owner in owners for name in audits if AUDITS[name].attacks(owner)]
    if not pairs:
        raise InputError(f"{', '.join(audits)}: none of the owners gives answers that this attacks")
    few, misfit = _too_few(pairs, sample, scope, steps[0])
    fitting = [pair for pair in pairs if pair not in few]
    if misfit is not None and not fitting:
        raise misfit
    forecast = _Forecast(fitting, sample, scope, n_jobs, seed, started, min(_PATIENCE, budget / 4))
    chosen, seconds = steps[0], forecast.seconds(steps[0])
    spent = time.perf_counter() - started
    for sizes in steps:
        if _too_few(fitting, sample, scope, sizes)[0]:
            break
        larger = forecast.seconds(sizes)
        if sum(larger.values()) + spent > budget:
            break
        chosen, seconds = sizes, larger
    left_out = {(owner.name, name): math.nan for owner, name in few}
    taken = spent
    for pair, needed in sorted(seconds.items(), key=lambda item: item[1]):
        taken += needed
        if taken > budget:
            left_out[pair] = needed
    run = {pair: needed for pair, needed in seconds.items() if pair not in left_out}
    if not run:
        least = format_duration(min(seconds.values()) + spent)
        raise InputError(
            f"the smallest audit takes about {least}, the budget is {format_duration(budget)}; give"
            " more time, or fewer audits or owners"
        )
    return Plan(chosen, AuditTask(owners[0], sample, chosen, scope).n_train, run, left_out)


Pair = tuple[Target, str]


def _too_few(
    pairs: Sequence[Pair], sample: Sample, scope: Scope, sizes: Sizes
) -> tuple[list[Pair], InputError | None]:
    """Return the audits that have too few people for these sizes, and the error of one of them."""
    found, said = [], None
    for owner, name in pairs:
        try:
            AUDITS[name].check(AuditTask(owner, sample, sizes, scope))
        except InputError as error:
            found.append((owner, name))
            said = error
    return found, said


@dataclass(repr=False)
class _Forecast:
    """How long audits take at given sizes, by the time of their smallest steps."""

    pairs: Sequence[Pair]
    sample: Sample
    scope: Scope
    n_jobs: int
    seed: int
    started: float
    patience: float

    def __post_init__(self) -> None:
        owners = {owner.name: owner for owner, _ in self.pairs}
        rows = np.random.default_rng(self.seed).permutation(len(self.sample))
        self._people = self.sample.take(rows)
        most = 3 * len(self.sample) // 10
        self._timed = {
            name: self._owner(owner, most, len(owners)) for name, owner in owners.items()
        }
        self._own: dict[str, float] = {}
        for name in dict.fromkeys(name for _, name in self.pairs):
            able = [owner for owner, of in self.pairs if of == name]
            self._own[name] = self._audit(
                name, min(able, key=lambda owner: sum(self._timed[owner.name][-1][1:]))
            )

    def seconds(self, sizes: Sizes) -> dict[tuple[str, str], float]:
        found = {}
        for owner, name in self.pairs:
            small, large = (
                AuditTask(owner, self.sample, each, self.scope) for each in (PROBE, sizes)
            )
            rest = self._own[name] * max(
                AUDITS[name].growth(large) / max(AUDITS[name].growth(small), 1), 1
            )
            found[owner.name, name] = (self._owners_part(owner, name, sizes) + rest) / max(
                self.n_jobs, 1
            )
        return found

    def _owners_part(self, owner: Target, name: str, sizes: Sizes) -> float:
        task, audit = AuditTask(owner, self.sample, sizes, self.scope), AUDITS[name]
        training, explanation = (
            _at(self._timed[owner.name], which, task.n_train) for which in (1, 2)
        )
        return audit.trainings(sizes) * training + audit.explained(task) * explanation

    def _owner(self, owner: Target, most: int, among: int) -> list[tuple[int, float, float]]:
        """Return, for trainings of growing size, the people, the seconds, and the seconds per
        explanation.
        """
        found: list[tuple[int, float, float]] = []
        people, began = min(PROBE.people, most), time.perf_counter()
        while True:
            try:
                found.append(self._training(owner, people))
            except InputError:  # so few people may lack an outcome, or be fewer than k
                if people == most:
                    raise
            spent = time.perf_counter() - began
            if people == most or (found and 3 * spent > self.patience / 2 / among):
                return found
            people = min(2 * people, most)

    def _training(self, owner: Target, people: int) -> tuple[int, float, float]:
        started = time.perf_counter()
        service = owner.train(self._people.take(np.arange(people)), self.seed)
        trained = time.perf_counter() - started
        asking = self._people.X.iloc[people:]
        undesired = np.flatnonzero(~service.desired(asking))[:_FEW]
        if not len(undesired):
            return people, trained, 0.0
        queries, taken = asking.take(undesired), []
        # the first one warms up what is compiled or loaded
        for asked in (queries.head(1), queries.head(1), queries):
            started = time.perf_counter()
            service.explain(asked)
            taken.append(time.perf_counter() - started)
        # A short time is mostly the call's overhead; attacks ask many at once.
        return people, trained, max(taken[2] - taken[1], 0.0) / max(len(queries) - 1, 1)

    def _audit(self, name: str, owner: Target) -> float:
        """Return the seconds of an audit's smallest step without the owner's part; the largest
        known, if time is up.
        """
        started, task = time.perf_counter(), AuditTask(owner, self.sample, PROBE, self.scope)
        if started - self.started <= self.patience:
            with suppress(CFKError):  # too few people at this size
                AUDITS[name].run(task, seed=self.seed, n_jobs=1, kept=None, progress=None)
                return max(
                    time.perf_counter() - started - self._owners_part(owner, name, PROBE), 0.0
                )
        return max(self._own.values(), default=0.0)


def _at(timed: Sequence[tuple[int, float, float]], which: int, people: int) -> float:
    """Extrapolate from the seconds of the last two sizes: linearly, or by a power if they grow
    faster.
    """
    (n, seconds), (fewer, before) = (
        (timed[at][0], timed[at][which]) for at in (-1, max(-2, -len(timed)))
    )
    if people <= n or n == fewer:
        return seconds * (people / n if n == fewer else 1.0)
    if seconds > _TELLING and seconds / before > n / fewer:
        return float(
            seconds * (people / n) ** min(math.log(seconds / before) / math.log(n / fewer), 2.0)
        )
    return seconds + max(seconds - before, 0.0) / (n - fewer) * (people - n)


def run_planned(
    owners: Sequence[Target],
    sample: Sample,
    scope: Scope,
    planned: Plan,
    *,
    seed: int = 0,
    n_jobs: int = 1,
    kept: Kept | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[str, str, Report]]:
    """Run what was planned, and yield owner, audit and report as each is finished.

    Options are those of `membership`; use a folder for each set of owners.
    """
    known = {owner.name: owner for owner in owners}
    for owner, audit in planned.seconds:
        options = {"seed": seed, "n_jobs": n_jobs, "kept": kept, "progress": progress}
        yield (
            owner,
            audit,
            AUDITS[audit].run(AuditTask(known[owner], sample, planned.sizes, scope), **options),
        )
