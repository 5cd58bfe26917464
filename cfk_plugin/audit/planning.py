"""All audits together: what each needs, sizes that fit a budget, and what they show at best."""

from __future__ import annotations

import math
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from cfk_plugin.audit.attribute_inference import attribute_inference, attribute_inference_work
from cfk_plugin.audit.extraction import (
    QUERIES,
    SETS,
    Architecture,
    Network,
    architectures,
    called,
    describe,
    draw_sets,
    extraction,
    fit,
    sizes_that_fit,
)
from cfk_plugin.audit.linkage import AuditReport, run_linkage_audit
from cfk_plugin.audit.membership import membership, membership_work
from cfk_plugin.audit.result import ALARMS, AttackReport, detectable_auc
from cfk_plugin.audit.setting import Setting
from cfk_plugin.audit.surrogate import (
    KNOWING,
    LAYERS,
    WAYS,
    attribute_inference_through_surrogate,
    membership_through_surrogate,
    most_queries,
    values_of,
)
from cfk_plugin.audit.targets import (
    DESIRED,
    ExplainerFactory,
    Kept,
    Owner,
    ProtectedOwner,
    Sample,
    Speed,
    Work,
    fitted,
    measure_speed,
)
from cfk_plugin.data.population import Population
from cfk_plugin.data.schema import Schema
from cfk_plugin.errors import InputError, NominalGuaranteeWarning
from cfk_plugin.hookspecs import AdaptContext, Progress
from cfk_plugin.plugins import load_plugins
from cfk_plugin.release.anonymizer import KAnonymizer


class Sizes(NamedTuple):
    """Sizes of one step."""

    people: int
    shadows: int
    attacked: int
    queries: tuple[int, ...]
    repeats: int
    explained: int


STEPS: tuple[Sizes, ...] = (
    Sizes(500, 2, 50, (100,), 1, 30),
    Sizes(1_000, 4, 100, (250,), 1, 50),
    Sizes(2_000, 8, 200, (250, 500), 1, 100),
    Sizes(3_000, 8, 300, (250, 500), 3, 150),
    Sizes(5_000, 8, 500, (250, 1_000), 3, 200),
    Sizes(10_000, 16, 1_000, (250, 500, 1_000, 2_000), 3, 400),
    Sizes(20_000, 32, 2_000, (250, 500, 1_000, 2_000), 5, 1_000),
)
"""From the smallest to the largest; `Plan` takes the largest that fits the budget."""


NAMED: Mapping[str, float] = {"fast": 180.0, "full": 1800.0}
"""Budgets with a name, in seconds."""

_SECONDS: Mapping[str, float] = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(text: str) -> float:
    """Read a budget: ``fast``, ``full``, or a number with its unit, ``90s``, ``5m``, ``1.5h``."""
    if (known := NAMED.get(text.strip().lower())) is not None:
        return known
    read = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip().lower())
    seconds = float(read[1]) * _SECONDS[read[2]] if read else 0.0
    if seconds <= 0:
        raise InputError(f"a budget is a time such as 90s, 5m or 1h, or {' or '.join(NAMED)}; got {text!r}")
    return seconds


def said(seconds: float) -> str:
    """Write a time for people: ``40 seconds``, ``3 minutes``, ``1.5 hours``."""
    if seconds < 90:
        return f"{max(seconds, 2):.0f} seconds"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"


_PROBE = (100, 400)  # rows; trainings on them together take about a second
_SHADOWS = SETS - 1


class Line(NamedTuple):
    """Seconds as a function of rows: fixed + per_row * rows."""

    fixed: float
    per_row: float

    def seconds(self, rows: float) -> float:
        """Return the seconds that so many rows take."""
        return self.fixed + self.per_row * rows


class Pace(NamedTuple):
    """How fast one kind of model is."""

    fitting: Line
    asking: Line


Paces = dict[str, Pace]
"""What was measured before, by kind of model; filled in here, so that who tries several sizes measures once."""


def extraction_work(
    owner: Owner,
    sample: Sample,
    *,
    queries: Sequence[int] = QUERIES,
    known: Architecture | None = None,
    unknown: Architecture | None = None,
    repeats: int = 3,
    held_out: int = 2000,
    seed: int = 0,
    paces: Paces | None = None,
) -> Work:
    """Say what `extraction` has to do with the same settings; trains each kind of surrogate three times to measure it.

    Where the share of undesired outcomes is needed, it is that of the true ones. The owner trains on an eighth of the
    sample.
    """
    sets = draw_sets(sample, seed)
    sizes, _ = sizes_that_fit(queries, len(sets.own))
    undesired, people = _undesired(sample), min(held_out, len(sample))
    rows = [count for size in sizes for count in (size, size * (1 + undesired), size * (1 + undesired))]
    each = 0.0
    for architecture in architectures(owner, known, unknown).values():
        pace = _pace(architecture, sample, seed, paces)
        each += sum(pace.fitting.seconds(count) + 2 * pace.asking.seconds(people) for count in rows)
    return Work(repeats, round(repeats * undesired * sizes[-1]), repeats * each)


def membership_through_surrogate_work(
    owner: Owner,
    sample: Sample,
    *,
    queries: int = 2000,
    architecture: Architecture | None = None,
    layers: Sequence[int] = LAYERS,
    attacked: int = 2000,
    seed: int = 0,
    paces: Paces | None = None,
) -> Work:
    """Say what `membership_through_surrogate` has to do with the same settings; as `extraction_work`."""
    random = np.random.default_rng(seed)

    def train(rows: int) -> Any:
        return Network(tuple(layers)).classifier(seed).fit(random.random((rows, 3)), np.arange(rows) % 2)

    half, paces, key = _attacked(sample, attacked), {} if paces is None else paces, f"attack {tuple(layers)}"
    if key not in paces:
        paces[key] = Pace(_line(train), Line(0.0, 0.0))
    networks = _SHADOWS * len(WAYS) * paces[key].fitting.seconds(2 * half)
    return _shadow_work(owner, sample, queries, architecture, half, seed, paces).plus(Work(seconds=networks))


def attribute_inference_through_surrogate_work(
    owner: Owner,
    sample: Sample,
    *,
    attribute: str,
    edges: Sequence[float] | None = None,
    queries: int = 2000,
    architecture: Architecture | None = None,
    layers: Sequence[int] = LAYERS,
    attacked: int = 2000,
    seed: int = 0,
    paces: Paces | None = None,
) -> Work:
    """Say what `attribute_inference_through_surrogate` has to do with the same settings; as `extraction_work`."""
    half, pace = _attacked(sample, attacked), _pace(Network(tuple(layers)), sample, seed, paces)
    networks = _SHADOWS * len(KNOWING) * pace.fitting.seconds(half)
    values = len(values_of(sample.X[attribute], edges).examples)
    return _shadow_work(owner, sample, queries, architecture, half, seed, paces, values).plus(Work(seconds=networks))


def _shadow_work(
    owner: Owner,
    sample: Sample,
    queries: int,
    architecture: Architecture | None,
    half: int,
    seed: int,
    paces: Paces | None,
    times: int = 1,
) -> Work:
    """Return the work of four surrogates, asked about members and others so many times each."""
    asked = most_queries(draw_sets(sample, seed), queries)
    pace = _pace(architecture or next(iter(architectures(owner).values())), sample, seed, paces)
    undesired = _undesired(sample)
    fitting = pace.fitting.seconds(asked) + pace.fitting.seconds(asked * (1 + undesired))
    asking = 2 * len(WAYS) * times * pace.asking.seconds(half)
    return Work(SETS, round(SETS * undesired * asked), SETS * (fitting + asking))


def _undesired(sample: Sample) -> float:
    return float((~sample.y).mean())


def _attacked(sample: Sample, attacked: int) -> int:
    return min(attacked, len(sample) // (2 * SETS))


def _pace(architecture: Architecture, sample: Sample, seed: int, paces: Paces | None) -> Pace:
    """Measure trainings on people with their true outcomes, and asking about them."""
    paces, key = {} if paces is None else paces, describe(architecture)
    if key in paces:
        return paces[key]
    rows = {n: sample.take(np.arange(min(n, len(sample)))) for n in _PROBE}
    trained = fit(architecture, (rows[_PROBE[-1]].X, rows[_PROBE[-1]].y), seed)
    paces[key] = Pace(
        _line(lambda n: fit(architecture, (rows[n].X, rows[n].y), seed)),
        _line(lambda n: trained.desired(rows[n].X)),
    )
    return paces[key]


def _line(call: Callable[[int], object]) -> Line:
    """Time a call with few and with more rows; once before, as the first time loads and compiles."""
    called("a probe", lambda: call(_PROBE[0]))
    taken = []
    for rows in _PROBE:
        started = time.perf_counter()
        called("a probe", lambda: call(rows))  # noqa: B023 - called at once
        taken.append(time.perf_counter() - started)
    per_row = max(taken[1] - taken[0], 0.0) / (_PROBE[1] - _PROBE[0])
    return Line(max(taken[0] - per_row * _PROBE[0], 0.0), per_row)


ATTACKS = ("linkage", "model_filter", "homogeneity", "uniqueness")
"""Those that take seconds. Inversion, steering and the others run the algorithm for everybody: `cfk audit linkage`."""

_PER_EXPLANATION = 2e-5  # seconds for each person trained on, for all of them


def linkage_of(
    owner: ProtectedOwner,
    sample: Sample,
    explainer: ExplainerFactory,
    *,
    n_train: int,
    explained: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> AuditReport:
    """Train once and run quick linkage attacks on what would be released."""
    order = np.random.default_rng([seed, 4]).permutation(len(sample))
    half = n_train + (len(sample) - n_train) // 2
    table, asking, outside = (sample.take(rows) for rows in (order[:n_train], order[n_train:half], order[half:]))
    model = fitted(owner.model, table, seed)
    queries = asking.X[~(model.predict(asking.X) == DESIRED)].head(explained).reset_index(drop=True)
    schema = owner.schema or Schema.from_frame(table.X, quasi_identifiers=owner.quasi_identifiers)
    features = tuple(schema.features)
    source = load_plugins().adapt(explainer(table.X, table.y, model, DESIRED, seed), AdaptContext(features, None))
    batch = source.generate(queries)
    anonymizer = KAnonymizer(policy=owner.rules, method=owner.method, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NominalGuaranteeWarning)  # for who releases; here it is measured
        anonymizer.fit(Population.from_frame(table.X, schema), model=model, desired=DESIRED)
    answered = queries.take(batch.query[batch.slot]).reset_index(drop=True)
    setting = Setting(anonymizer, batch.frame, answered, outside.X, seed=seed, limit=explained)
    return run_linkage_audit(setting, ATTACKS, progress=progress)


def linkage_work(*, n_train: int, explained: int) -> Work:
    """Say what `linkage_of` has to do; the attacks' own time is what they took on german and adult, about."""
    return Work(1, explained, _PER_EXPLANATION * n_train * explained)


Report = AttackReport | AuditReport


@dataclass(frozen=True, slots=True, repr=False)
class Scope:
    """What audits need besides an owner, people and sizes.

    Attributes
    ----------
    quasi_identifiers : tuple of str
        What an attacker knows of everybody.
    explainer : ExplainerFactory
        Finds raw counterfactuals where an owner has no explainer.
    attribute : str, optional
        Private attribute that is guessed through a copy of the model.
    """

    quasi_identifiers: tuple[str, ...]
    explainer: ExplainerFactory
    attribute: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class AuditTask:
    """One owner under some audit at some sizes. Host side only."""

    owner: Owner
    sample: Sample
    sizes: Sizes
    scope: Scope
    paces: Paces = field(default_factory=dict)

    @property
    def n_train(self) -> int:
        """How many people a model is trained on: what the sizes say, at most 3 of 10 people of the sample."""
        return min(self.sizes.people, 3 * len(self.sample) // 10)

    @property
    def explained(self) -> int:
        """How many explanations are asked for, at most: half of whoever is not trained on may ask, if undesired."""
        asking = (len(self.sample) - self.n_train) / 2
        return min(self.sizes.explained, round(asking * float((~self.sample.y).mean())))

    @property
    def attacked(self) -> int:
        """How many members, and how many others, membership attacks: who is undesired, of about so many people."""
        return min(self.sizes.attacked, round(self.n_train * float((~self.sample.y).mean())))

    @property
    def crowd(self) -> Sample:
        """The people of an audit that splits all it is given into eighths, of which one is trained on."""
        return self.sample.take(np.arange(min(len(self.sample), 8 * self.sizes.people)))

    @property
    def surrogate(self) -> dict[str, Any]:
        """Settings of attacks through a copy."""
        return {"queries": self.sizes.queries[-1], "attacked": self.sizes.attacked}

    @property
    def guessed(self) -> dict[str, Any]:
        """Settings of the attack on an attribute through a copy."""
        if self.scope.attribute is None:
            raise InputError("which attribute is guessed through a copy of the model? Name it in the scope")
        return {"attribute": self.scope.attribute, **self.surrogate}


@dataclass(frozen=True, slots=True)
class Audit:
    """One audit."""

    run: Callable[..., Report]
    work: Callable[[AuditTask], Work]
    attacks: Callable[[Owner], bool] = lambda owner: True  # noqa: ARG005 - most attack everybody


def _linkage(task: AuditTask, *, seed: int, progress: Progress | None, **_: Any) -> Report:
    if not isinstance(task.owner, ProtectedOwner):
        raise InputError(f"owner {task.owner.name!r} gives out no regions of k people; linkage attacks those")
    settings: dict[str, Any] = {"n_train": task.n_train, "explained": task.explained}
    return linkage_of(task.owner, task.sample, task.scope.explainer, **settings, seed=seed, progress=progress)


def _attributes(task: AuditTask, **options: Any) -> Report:
    settings: dict[str, Any] = {"n_train": task.n_train, "queries": task.explained}
    quasi_identifiers = task.scope.quasi_identifiers
    return attribute_inference(task.owner, task.sample, quasi_identifiers=quasi_identifiers, **settings, **options)


def _attributes_work(task: AuditTask) -> Work:
    settings: dict[str, Any] = {"n_train": task.n_train, "queries": task.explained}
    return attribute_inference_work(task.sample, quasi_identifiers=task.scope.quasi_identifiers, **settings)


def _membership(task: AuditTask, **options: Any) -> Report:
    settings: dict[str, Any] = {"n_shadows": task.sizes.shadows, "attacked": task.sizes.attacked}
    return membership(task.owner, task.sample, n_train=task.n_train, **settings, **options)


def _membership_work(task: AuditTask) -> Work:
    return membership_work(n_shadows=task.sizes.shadows, attacked=task.attacked)


def _extraction(task: AuditTask, **options: Any) -> Report:
    settings: dict[str, Any] = {"queries": task.sizes.queries, "repeats": task.sizes.repeats}
    return extraction(task.owner, task.crowd, **settings, **options)


def _extraction_work(task: AuditTask) -> Work:
    settings: dict[str, Any] = {"queries": task.sizes.queries, "repeats": task.sizes.repeats}
    return extraction_work(task.owner, task.crowd, **settings, paces=task.paces)


AUDITS: Mapping[str, Audit] = {
    "linkage": Audit(
        _linkage,
        lambda task: linkage_work(n_train=task.n_train, explained=task.explained),
        lambda owner: isinstance(owner, ProtectedOwner),
    ),
    "attribute_inference": Audit(_attributes, _attributes_work),
    "membership": Audit(_membership, _membership_work),
    "extraction": Audit(_extraction, _extraction_work),
    "membership_surrogate": Audit(
        lambda task, **options: membership_through_surrogate(task.owner, task.crowd, **task.surrogate, **options),
        lambda task: membership_through_surrogate_work(task.owner, task.crowd, **task.surrogate, paces=task.paces),
    ),
    "attribute_surrogate": Audit(
        lambda task, **options: attribute_inference_through_surrogate(
            task.owner, task.crowd, **task.guessed, **options
        ),
        lambda task: attribute_inference_through_surrogate_work(
            task.owner, task.crowd, **task.guessed, paces=task.paces
        ),
    ),
}
"""The audits by name, in the order in which they are run."""


def half_width(n: int) -> float:
    """Return half the width of a 95 % interval of a rate near one half, over n cases: 0.98 / sqrt(n), at most 1."""
    return min(1.96 * 0.5 / math.sqrt(n), 1.0) if n else 1.0


def unseen_rate(n: int) -> float:
    """Return the largest rate of success that n cases without any would leave open at 95 %: 1 - 0.05^(1/n)."""
    return 1 - 0.05 ** (1 / n) if n else 1.0


def can_detect(name: str, task: AuditTask) -> str:
    """Say of one audit what its size shows at best.

    Parameters
    ----------
    name : str
        Of `AUDITS`.
    task : AuditTask

    Returns
    -------
    str
        One sentence.
    """
    match name:
        case "membership":
            people = task.attacked
            missing = [f"{alarm:g}" for alarm in ALARMS if people < 1 / alarm]
            blind = f"; nothing at a false positive rate of {' or '.join(missing)}" if missing else ""
            area = detectable_auc(people, people)
            return f"sees an AUC of {area:.2f} or more ({people} members, {people} others){blind}"
        case "extraction":
            held_out = len(task.crowd) // 8
            return f"sees a gain of {100 * half_width(held_out):.1f} points or more ({held_out} people held out)"
        case "attribute_inference":
            n = task.explained
            return f"sees an advantage of {100 * half_width(n):.0f} points or more ({n} explanations)"
        case "linkage":
            n = task.explained
            return f"no success in {n} explanations leaves up to {100 * unseen_rate(n):.1f} % open"
        case _:
            people = 2 * min(task.sizes.attacked, len(task.crowd) // 8)
            return f"sees {100 * half_width(people):.0f} points above guessing or more ({people} people)"


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be run, and how long it is expected to take."""

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


def run_planned(
    owners: Sequence[Owner],
    sample: Sample,
    scope: Scope,
    planned: Plan,
    *,
    seed: int = 0,
    n_jobs: int = 1,
    kept: Kept | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[str, str, Report]]:
    """Run what was planned and yield each report as soon as it is there.

    Parameters
    ----------
    owners : sequence of Owner
        Of different names.
    sample : Sample
    scope : Scope
    planned : Plan
        Of `plan`, for the same owners and people.
    seed : int
    n_jobs : int
        Trainings at the same time.
    kept : Kept, optional
        From which a stopped run goes on. Owners are told apart by their names: use a folder for each set of them.
    progress : callable, optional
        Called with (done, total) pieces of the audit that runs.

    Yields
    ------
    owner, audit : str
    report : AttackReport or AuditReport
    """
    known = {owner.name: owner for owner in owners}
    for owner, audit in planned.seconds:
        options = {"seed": seed, "n_jobs": n_jobs, "kept": kept, "progress": progress}
        yield owner, audit, AUDITS[audit].run(AuditTask(known[owner], sample, planned.sizes, scope), **options)
