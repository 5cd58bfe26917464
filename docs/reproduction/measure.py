"""The results of one method on one table: certificates, and distances to training
rows.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.errors import InputError, LookupGuaranteeWarning
from cfk_plugin.hookspecs import Protector
from cfk_plugin.metrics.combinations import Plausibility, plausibility, region_plausibility
from cfk_plugin.protection.baselines import GraspProtector, MondrianProtector
from cfk_plugin.protection.exact import ExactProtector
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.results import Entry, GeneralizedCounterfactual
from reproduction.prepare import (
    AutoEncoder,
    Config,
    DataSummary,
    Prepared,
    choose_explainer,
    digest,
    nice,
)

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline


_DRAWN = 100  # value combinations of a region, the paper's footnote 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    label: str  # its name in tables and plots
    # takes the options; None if the guarantee prescribes one
    protector: Callable[..., Protector] | None
    objective: Literal["pureness", "ncp"] = "pureness"
    guarantee: Literal["lookup", "reciprocal"] = "lookup"
    options: frozenset[str] = frozenset()  # settings that may be changed
    randomised: bool = False  # rerunning it for others is not conclusive


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "grasp": Method(
            label="CF-K (GRASP)",
            protector=GraspProtector,
            options=frozenset({"alpha", "iterations"}),
            randomised=True,
        ),
        "exact-ncp": Method(label="exact, least NCP", protector=ExactProtector, objective="ncp"),
        "exact-pureness": Method(label="exact, purest", protector=ExactProtector),
        "mondrian-raw": Method(
            label="Mondrian, raw widths",
            protector=lambda: MondrianProtector(normalise=False),
            objective="ncp",
        ),
        "mondrian": Method(
            label="Mondrian, normalised widths", protector=MondrianProtector, objective="ncp"
        ),
        "reciprocal": Method(label="reciprocal (default)", protector=None, guarantee="reciprocal"),
    }
)
"""Methods by name. "grasp" is the paper's method with its settings."""

SLOW = "grasp"
"""The method that asks the model again and again: seconds per explanation instead of
milliseconds.
"""

NICE: Mapping[str, str] = MappingProxyType(
    {f"nice-{how}": how for how in ("none", "sparsity", "proximity", "plausibility")}
)
"""Variants of NICE by what they optimise; "nice-none" returns training rows.

Nothing is protected.
"""


T = TypeVar("T")
Figure = tuple[float | None, ...]
"""One number per explanation; None if it was not measured, or nothing was released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One call of one method. Its `Measurement` is kept if the experiment is killed."""

    table: str
    method: str  # of `METHODS`; for distances also of `NICE`
    k: int  # 0 for methods without k
    # that are not the usual ones
    options: Mapping[str, Any] = field(default_factory=dict)
    asked: int | None = None  # number of explanations; default: all of the config's
    kind: Literal["certificates", "distances"] = "certificates"

    def key(self, config: Config) -> str:
        return digest([config.key, asdict(self)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The result of a job: figures of explanations, no value of a row.

    One number per explanation: ``ncp``, ``pureness`` (exact, or of 10,000 drawn combinations),
    ``k``, ``k_desired``, ``k_consistent``, ``k_effective``, ``proven`` (0 or 1), ``agrees`` (1 if
    most of the class are predicted the desired outcome, so that CM counts no penalty); if asked
    for, ``nearest`` and ``nearest_5``.
    """

    config: Config
    summary: DataSummary
    method: str
    k: int
    options: Mapping[str, Any]
    asked: int  # that many of the config's, the first ones
    fit_seconds: float  # to bind model and population, done once; includes a partition of everybody
    seconds: float  # of the call that protects all at once, including verification
    model_seconds: float  # of that, in the model's predict
    model_calls: int
    figures: Mapping[str, Figure]
    groups: tuple[str, ...]  # of the counterfactual instance; empty if that may not be the config's
    groups_asking: tuple[str, ...]  # the same of the person who asks

    def known(self, figure: str) -> list[float]:
        return [float(value) for value in self.figures.get(figure, ()) if value is not None]

    def to_json(self) -> str:
        found = asdict(self)
        found["setting"], found["scene"] = found.pop("config"), found.pop("summary")
        return json.dumps(found, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Measurement:
        found = json.loads(text)
        found["config"], found["summary"] = (
            Config(**found.pop("setting")),
            DataSummary(**found.pop("scene")),
        )
        found["figures"] = {name: tuple(values) for name, values in found["figures"].items()}
        return cls(
            **{
                **found,
                "groups": tuple(found["groups"]),
                "groups_asking": tuple(found["groups_asking"]),
            }
        )


class _Spent(NamedTuple):
    fit_seconds: float
    seconds: float
    model_seconds: float
    model_calls: int


_FIGURES: Mapping[str, Callable[[GeneralizedCounterfactual], float | None]] = {
    "ncp": lambda entry: entry.certificate.ncp,
    "pureness": lambda entry: entry.certificate.pureness,
    "k": lambda entry: entry.certificate.k,
    "k_desired": lambda entry: entry.recount.k_desired,
    "k_consistent": lambda entry: entry.recount.k_consistent,
    "k_effective": lambda entry: entry.recount.k_effective,
    "proven": lambda entry: float(entry.certificate.optimal),
    "agrees": lambda entry: (
        None if entry.recount.majority is None else float(entry.recount.majority)
    ),
}


def measure(prepared: Prepared, job: Job, *, effective: int = 0) -> Measurement:
    """Do a job on the first counterfactuals of a config.

    The effective k is measured for the first `effective` explanations, outside of the measured
    time, as it reruns the method for everybody in a region: always if the guarantee is about it,
    never if the method draws random numbers. Distances are HEOM, summed over the features as in the
    paper; for a region, the mean over 100 of its combinations. The five nearest training rows
    include an equal one, at distance 0. NICE has no certificates, so its other figures are None.
    """
    if job.kind == "distances" and job.method in NICE:
        return _measure_nice(prepared, job)
    frame = prepared.counterfactuals.iloc[: job.asked]
    entries, spent = _timed(
        prepared, job, job.options, lambda fitted: list(fitted.transform(frame))
    )
    figures, method = _figures_of(entries), METHODS[job.method]
    if job.kind == "distances":
        near = [
            _distance_of(prepared, entry, frame.iloc[[i]], i) for i, entry in enumerate(entries)
        ]
        figures |= _distances(prepared, near)
    elif effective and not method.randomised and method.guarantee == "lookup":
        again = protect(prepared, job, frame.head(effective), measure_k_effective=True)
        figures["k_effective"] = _figures_of(again)["k_effective"] + (None,) * (
            len(frame) - len(again)
        )
    return _measurement(prepared, job, spent, figures)


def protect(
    prepared: Prepared, job: Job, frame: pd.DataFrame, *, measure_k_effective: bool = False
) -> list[Entry]:
    """Return what a job's method releases for some counterfactuals."""
    return list(
        _fitted(prepared, job.method, job.k, job.options, measure_k_effective).transform(frame)
    )


def _fitted(
    prepared: Prepared,
    name: str,
    k: int,
    options: Mapping[str, Any],
    measure_k_effective: bool = False,
) -> KAnonymizer:
    """Bind a method to a config: people count as in the paper, and nothing is withheld."""
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}; known: {', '.join((*METHODS, *NICE))}")
    method = METHODS[name]
    if strange := sorted(set(options) - method.options):
        raise InputError(f"{name} has no setting {', '.join(strange)}")
    policy = PrivacyPolicy(
        k=k,
        guarantee=method.guarantee,
        objective=method.objective,
        min_pureness=None if method.guarantee == "lookup" else 0,
    )
    anonymizer = KAnonymizer(
        policy=policy,
        method="auto" if method.protector is None else method.protector(**options),
        measure_k_effective=measure_k_effective,
        seed=prepared.config.seed,
    )
    with warnings.catch_warnings():
        # the experiments are about that guarantee
        warnings.simplefilter("ignore", LookupGuaranteeWarning)
        return anonymizer.fit(prepared.population, prepared.model, prepared.desired)


def _timed(
    prepared: Prepared, job: Job, options: Mapping[str, Any], work: Callable[[KAnonymizer], T]
) -> tuple[T, _Spent]:
    """Bind a method to a config, run it, and time both."""
    # Compiles, and builds the shared index.
    _fitted(prepared, "exact-ncp", job.k, {}).transform(prepared.counterfactuals.head(1))
    started = time.perf_counter()
    anonymizer = _fitted(prepared, job.method, job.k, options)
    bound = time.perf_counter()
    model = anonymizer.model_
    seconds, calls = model.seconds, model.calls
    found = work(anonymizer)
    ended = time.perf_counter()
    return found, _Spent(
        bound - started, ended - bound, model.seconds - seconds, model.calls - calls
    )


def _figures_of(entries: Sequence[Entry]) -> dict[str, Figure]:
    """Return the figures of each explanation, None if it was withheld."""
    return {
        name: tuple(
            read(entry) if isinstance(entry, GeneralizedCounterfactual) else None
            for entry in entries
        )
        for name, read in _FIGURES.items()
    }


def _measurement(
    prepared: Prepared,
    job: Job,
    spent: _Spent,
    figures: Mapping[str, Figure],
    *,
    native: bool = True,
) -> Measurement:
    """Combine figures with their settings; `native` says that they are of the config's
    counterfactuals.
    """
    asked = len(figures["ncp"])
    return Measurement(
        config=prepared.config,
        summary=prepared.summary,
        method=job.method,
        k=job.k,
        options=dict(job.options),
        asked=asked,
        **spent._asdict(),
        figures=figures,
        groups=prepared.groups[:asked] if native else (),
        groups_asking=prepared.groups_asking[:asked],
    )


def _distance_of(
    prepared: Prepared, entry: Entry, counterfactual: pd.DataFrame, place: int
) -> Plausibility | None:
    if not isinstance(entry, GeneralizedCounterfactual):
        return None
    draws = np.random.default_rng([prepared.config.seed, place])
    return region_plausibility(
        entry.region, counterfactual, prepared.population, n=_DRAWN, random_state=draws
    )


def _distances(prepared: Prepared, near: Sequence[Plausibility | None]) -> dict[str, Figure]:
    features = len(prepared.population.schema.features)
    return {
        "nearest": tuple(None if found is None else features * found.nearest for found in near),
        "nearest_5": tuple(None if found is None else features * found.nearest_5 for found in near),
    }


def _measure_nice(prepared: Prepared, job: Job) -> Measurement:
    """Measure the counterfactuals of NICE, most of which are nobody's rows, so they have no
    groups.
    """
    if job.k or job.options:
        raise InputError(f"{job.method} has neither k nor settings; give k = 0 and no options")
    choose_explainer("nice")
    queries, model = prepared.queries.iloc[: job.asked], _Counting(prepared.model)
    started = time.perf_counter()
    search = _nice(prepared, NICE[job.method], model)
    bound = time.perf_counter()
    seconds, calls = model.seconds, model.calls
    found = search.explain(queries)
    ended = time.perf_counter()
    spent = _Spent(bound - started, ended - bound, model.seconds - seconds, model.calls - calls)
    answered = np.flatnonzero(~np.isnan(found).all(axis=1))
    rows = search.decode(found[answered])
    near: list[Plausibility | None] = [None] * len(queries)
    for i, place in enumerate(answered):
        near[place] = plausibility(rows.iloc[[i]], prepared.population)
    nothing: dict[str, Figure] = dict.fromkeys(_FIGURES, (None,) * len(queries))
    return _measurement(
        prepared, job, spent, {**nothing, **_distances(prepared, near)}, native=False
    )


def _nice(prepared: Prepared, optimization: str, model: Any) -> Any:
    """Return a NICE; for plausibility, with an auto-encoder of the rows as NICE encodes them."""
    train, labels, judge = prepared.train, prepared.labels, None
    if optimization == "plausibility":
        categorical = [
            i for i, name in enumerate(train) if not pd.api.types.is_numeric_dtype(train[name])
        ]
        rows = nice(train, labels, model, prepared.desired).encode(train)
        judge = AutoEncoder(rows, categorical, prepared.config.seed)
    return nice(
        train, labels, model, prepared.desired, optimization=optimization, auto_encoder=judge
    )


class _Counting:
    """A model that counts NICE's calls."""

    def __init__(self, model: Pipeline) -> None:
        self._model, self.classes_ = model, model.classes_
        self.seconds, self.calls = 0.0, 0

    def predict_proba(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        started = time.perf_counter()
        answers = np.asarray(self._model.predict_proba(rows))
        self.seconds += time.perf_counter() - started
        self.calls += 1
        return answers
