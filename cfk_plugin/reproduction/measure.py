"""What one method gives on one table: certificates, distances to training rows, and choosing candidates."""

from __future__ import annotations

import hashlib
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
from cfk_plugin.errors import InputError, NominalGuaranteeWarning
from cfk_plugin.hookspecs import Progress, Protector
from cfk_plugin.metrics.combinations import Plausibility, plausibility, region_plausibility
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.protection.baselines import GraspProtector, MondrianProtector
from cfk_plugin.protection.exact import ExactProtector
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.explainer import check_number, choose_candidates
from cfk_plugin.release.results import Certificate, Entry, GeneralizedCounterfactual
from cfk_plugin.reproduction.prepare import AutoEncoder, Figure, Measurement, Prepared, Setting, choose, justified, nice

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline


Kind = Literal["certificates", "distances", "candidates"]
"""What the certificates say; distances to training rows as well; choosing between several counterfactuals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One call of one method; becomes one `Measurement`.

    Attributes
    ----------
    table : str
    method : str
    k : int
        0 for what has none.
    options : mapping
        Settings of the method that are not its usual ones.
    asked : int, optional
        How many explanations; all of the setting's without it.
    kind : {"certificates", "distances", "candidates"}
    """

    table: str
    method: str
    k: int
    options: Mapping[str, Any] = field(default_factory=dict)
    asked: int | None = None
    kind: Kind = "certificates"

    def key(self, setting: Setting) -> str:
        """Return a digest of the piece and of what it is measured on."""
        text = json.dumps([setting.key, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


Objective = Literal["pureness", "ncp", "weighted"]

WEIGHT = 0.07
"""Of impurity in the objective "weighted": a point of NCP for fourteen of pureness. Of the weights that the study of
weights tries it is the one with which each of the paper's figures on cmc, where the purest regions cost more NCP than
the paper's, is reached; chosen by looking at that study."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way of protecting.

    Attributes
    ----------
    label : str
        As tables and plots call it.
    protector : callable or None
        From the options to a protector; None where the guarantee prescribes one.
    objective : str
    guarantee : {"nominal", "reciprocal"}
    options : frozenset of str
        Names of the settings that may be changed.
    randomised : bool
        Whether it draws random numbers, so that nobody can rerun it for somebody else and be certain.
    """

    label: str
    protector: Callable[..., Protector] | None
    objective: Objective = "pureness"
    guarantee: Literal["nominal", "reciprocal"] = "nominal"
    options: frozenset[str] = frozenset()
    randomised: bool = False

    def policy(self, k: int, options: Mapping[str, Any]) -> PrivacyPolicy:
        """Return the policy for a k: people are counted as in the paper, and nothing is withheld."""
        return PrivacyPolicy(
            k=k,
            guarantee=self.guarantee,
            objective=self.objective,
            anonymity_set="population",
            pureness_weight=float(options.get("weight", WEIGHT)) if self.objective == "weighted" else 1.0,
        )

    def made(self, options: Mapping[str, Any]) -> Protector | str:
        """Return the protector with some options, or the name that lets the guarantee choose."""
        if self.protector is None:
            return "auto"
        return self.protector(**{name: value for name, value in options.items() if name != "weight"})


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
        "exact-weighted": Method(
            label="exact, weighted",
            protector=ExactProtector,
            objective="weighted",
            options=frozenset({"weight"}),
        ),
        "mondrian-raw": Method(
            label="Mondrian, raw widths", protector=lambda: MondrianProtector(normalise=False), objective="ncp"
        ),
        "mondrian": Method(label="Mondrian, normalised widths", protector=MondrianProtector, objective="ncp"),
        "reciprocal": Method(label="reciprocal (default)", protector=None, guarantee="reciprocal"),
    }
)
"""By name. "grasp" is the paper's method with its settings, "reciprocal" what this product does by default."""

SLOW = "grasp"
"""The one that asks the model again and again: seconds per explanation, where others take milliseconds."""


T = TypeVar("T")


class Spent(NamedTuple):
    """What a method took: seconds to bind model and population, seconds of the work, of the model in it, its calls."""

    fit_seconds: float
    seconds: float
    model_seconds: float
    model_calls: int


_FIGURES: Mapping[str, Callable[[Certificate], float | None]] = {
    "ncp": lambda found: found.ncp,
    "pureness": lambda found: found.pureness,
    "k": lambda found: found.k,
    "k_desired": lambda found: found.k_desired,
    "k_consistent": lambda found: found.k_consistent,
    "k_effective": lambda found: found.k_effective,
    "proven": lambda found: float(found.optimal),
    "agrees": lambda found: None if found.majority is None else float(found.majority),
}


def measure(
    prepared: Prepared,
    method: str,
    k: int,
    *,
    options: Mapping[str, Any] | None = None,
    asked: int | None = None,
    effective: int = 0,
    progress: Progress | None = None,
) -> Measurement:
    """Protect the first counterfactuals of a setting by one method.

    Parameters
    ----------
    prepared : Prepared
    method : str
        One of `METHODS`.
    k : int
    options : mapping, optional
        Settings of the method that are not its usual ones.
    asked : int, optional
        How many explanations; all without it.
    effective : int
        Of how many the effective k is measured, apart from the measured time: it reruns the method for everybody in
        a region. Always measured where the guarantee is about it, never where the method draws random numbers.
    progress : callable, optional
        Called with (done, total) explanations.

    Returns
    -------
    Measurement

    Raises
    ------
    InputError
        If the method or an option is unknown.
    PolicyError
        If k is above the number of people.
    """
    options = dict(options or {})
    frame = prepared.counterfactuals.iloc[:asked]
    entries, spent = timed(
        prepared, method, k, options, lambda fitted: list(fitted.transform(frame, progress=progress))
    )
    figures, chosen = figures_of(entries), METHODS[method]
    if effective and not chosen.randomised and chosen.guarantee == "nominal":
        again = protect(prepared, method, k, frame.head(effective), options, measure_k_effective=True)
        figures["k_effective"] = figures_of(again)["k_effective"] + (None,) * (len(frame) - len(again))
    return outcome_of(prepared, method, k, options, spent, figures)


def timed(
    prepared: Prepared, method: str, k: int, options: Mapping[str, Any], work: Callable[[KAnonymizer], T]
) -> tuple[T, Spent]:
    """Bind a method to a setting, let it work, and say what both took.

    Raises
    ------
    InputError
        If the method or an option is unknown.
    PolicyError
        If k is above the number of people.
    """
    chosen = _method(method, options)
    protect(prepared, "exact-ncp", k, prepared.counterfactuals.head(1))  # compiles, and builds the index all share
    started = time.perf_counter()
    anonymizer = _fitted(prepared, chosen, k, options)
    bound = time.perf_counter()
    seconds, calls = anonymizer.model_.seconds, anonymizer.model_.calls
    found = work(anonymizer)
    return found, Spent(
        fit_seconds=bound - started,
        seconds=time.perf_counter() - bound,
        model_seconds=anonymizer.model_.seconds - seconds,
        model_calls=anonymizer.model_.calls - calls,
    )


def outcome_of(
    prepared: Prepared,
    method: str,
    k: int,
    options: Mapping[str, Any],
    spent: Spent,
    figures: Mapping[str, Figure],
    *,
    native: bool = True,
) -> Measurement:
    """Return figures with all that they were obtained with.

    Parameters
    ----------
    prepared : Prepared
    method : str
    k : int
    options : mapping
    spent : Spent
    figures : mapping
    native : bool
        Whether they are of the setting's own counterfactuals, whose groups are known.

    Returns
    -------
    Measurement
    """
    asked = len(next(iter(figures.values())))
    return Measurement(
        setting=prepared.setting,
        scene=prepared.scene,
        method=method,
        k=k,
        options=dict(options),
        asked=asked,
        **spent._asdict(),
        figures=figures,
        groups=prepared.groups[:asked] if native else (),
        groups_asking=prepared.groups_asking[:asked],
    )


def protect(
    prepared: Prepared,
    method: str,
    k: int,
    frame: pd.DataFrame,
    options: Mapping[str, Any] | None = None,
    *,
    measure_k_effective: bool = False,
) -> list[Entry]:
    """Return what a method releases for some counterfactuals."""
    options = dict(options or {})
    fitted = _fitted(prepared, _method(method, options), k, options, measure_k_effective)
    return list(fitted.transform(frame))


def figures_of(entries: Sequence[Entry]) -> dict[str, Figure]:
    """Return the figures of each explanation, None where it was withheld."""
    found = [entry.certificate if isinstance(entry, GeneralizedCounterfactual) else None for entry in entries]
    return {name: tuple(None if c is None else read(c) for c in found) for name, read in _FIGURES.items()}


def _method(name: str, options: Mapping[str, Any]) -> Method:
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}; known: {', '.join(METHODS)}")
    if strange := sorted(set(options) - METHODS[name].options):
        raise InputError(f"{name} has no setting {', '.join(strange)}")
    return METHODS[name]


def _fitted(
    prepared: Prepared, method: Method, k: int, options: Mapping[str, Any], measure_k_effective: bool = False
) -> KAnonymizer:
    anonymizer = KAnonymizer(
        policy=method.policy(k, options),
        method=method.made(options),
        measure_k_effective=measure_k_effective,
        seed=prepared.setting.seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NominalGuaranteeWarning)  # the experiments are about that guarantee
        return anonymizer.fit(prepared.population, prepared.model, prepared.desired)


def measure_candidates(
    prepared: Prepared, k: int, m: int, *, method: str = "exact-pureness", asked: int | None = None
) -> Measurement:
    """Protect m candidates of each query and keep the best: with m = 1 what `measuring.measure` gives.

    Parameters
    ----------
    prepared : Prepared
    k : int
    m : int
        The setting's own counterfactual, and the m - 1 nearest other training rows that are predicted the desired
        outcome and have it. Rows that are equal in every feature count once.
    method : str
        One of `METHODS`.
    asked : int, optional
        How many explanations; all without it.

    Returns
    -------
    Measurement
        Of the chosen ones, with the figure ``distance``. It has no groups where m is above 1: another row may be
        chosen than the one whose group is known. No effective k is measured.

    Raises
    ------
    InputError
        If the method is unknown, or m is below 1.
    PolicyError
        If k is above the number of people.
    """
    m, queries = check_number(m), prepared.queries.iloc[:asked]
    frame, query = _candidates(prepared, queries, m)
    choice, spent = timed(prepared, method, k, {}, lambda fitted: choose_candidates(fitted, frame, query, queries))
    figures = figures_of([choice.entries[place] for place in choice.chosen])
    away = zip(choice.distances[choice.chosen].tolist(), figures["ncp"], strict=True)
    figures["distance"] = tuple(None if ncp is None else distance for distance, ncp in away)
    return outcome_of(prepared, method, k, {"candidates": m}, spent, figures, native=m == 1)


def _candidates(prepared: Prepared, queries: pd.DataFrame, m: int) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Return the candidates of each query, its own counterfactual first, and which query each is of."""
    train, heom = prepared.train, Heom.fit(prepared.train)
    distinct = train.iloc[justified(train, prepared.labels, prepared.model, prepared.desired)].drop_duplicates()
    rows = heom.encode(distinct)
    own = heom.nearest(prepared.counterfactuals.head(len(queries)), rows)[0][:, 0]  # at distance 0: it is one of them
    near = heom.nearest(queries, rows, k=m)[0]
    chosen = [
        [first, *[row for row in others if row not in (first, -1)][: m - 1]]
        for first, others in zip(own.tolist(), near.tolist(), strict=True)
    ]
    query = np.repeat(np.arange(len(queries)), [len(some) for some in chosen])
    return distinct.iloc[[row for some in chosen for row in some]].reset_index(drop=True), query


NICE: Mapping[str, str] = MappingProxyType(
    {f"nice-{how}": how for how in ("none", "sparsity", "proximity", "plausibility")}
)
"""Name of a NICE to what it optimises; "nice-none" returns training rows. Nothing is protected."""

_DRAWN = 100  # value combinations of a region, the paper's footnote 16


def measure_distances(
    prepared: Prepared,
    method: str,
    k: int,
    *,
    options: Mapping[str, Any] | None = None,
    asked: int | None = None,
) -> Measurement:
    """Measure how far the first explanations of a setting are from the training rows.

    Parameters
    ----------
    prepared : Prepared
    method : str
        One of `METHODS`, or of `NICE`.
    k : int
        0 for those of `NICE`.
    options : mapping, optional
        Settings of the method that are not its usual ones.
    asked : int, optional
        How many explanations; all without it.

    Returns
    -------
    Measurement
        With the figures ``nearest`` and ``nearest_5``. Those of NICE have no certificate, so that all others are None;
        and no groups, as most of its counterfactuals are nobody.

    Raises
    ------
    InputError
        If the method or an option is unknown, or NICE is asked for and not installed.
    PolicyError
        If k is above the number of people.

    Notes
    -----
    HEOM, summed over the features as the paper's numbers are: each feature adds at most 1 inside the training rows'
    range. For a region the mean over 100 of its value combinations, or all when it has no more. The five nearest
    training rows count an equal one, at distance 0, as one of them.
    """
    options = dict(options or {})
    if method in NICE:
        if k or options:
            raise InputError(f"{method} has neither k nor settings; give k = 0 and no options")
        return _of_nice(prepared, method, prepared.queries.iloc[:asked])
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}; known: {', '.join((*METHODS, *NICE))}")
    frame = prepared.counterfactuals.iloc[:asked]
    entries, spent = timed(prepared, method, k, options, lambda fitted: list(fitted.transform(frame)))
    near = [_of_entry(prepared, entry, frame.iloc[[i]], i) for i, entry in enumerate(entries)]
    return outcome_of(prepared, method, k, options, spent, {**figures_of(entries), **_figures(prepared, near)})


def _of_entry(prepared: Prepared, entry: Entry, counterfactual: pd.DataFrame, place: int) -> Plausibility | None:
    if not isinstance(entry, GeneralizedCounterfactual):
        return None
    draws = np.random.default_rng([prepared.setting.seed, place])
    return region_plausibility(entry.region, counterfactual, prepared.population, n=_DRAWN, random_state=draws)


def _of_nice(prepared: Prepared, method: str, queries: pd.DataFrame) -> Measurement:
    choose("nice")
    model = _Counting(prepared.model)
    started = time.perf_counter()
    search = _nice(prepared, NICE[method], model)
    bound = time.perf_counter()
    seconds, calls = model.seconds, model.calls
    found = search.explain(queries)
    ended = time.perf_counter()
    spent = Spent(bound - started, ended - bound, model.seconds - seconds, model.calls - calls)
    answered = np.flatnonzero(~np.isnan(found).all(axis=1))
    rows = search.decode(found[answered])
    near: list[Plausibility | None] = [None] * len(queries)
    for i, place in enumerate(answered):
        near[place] = plausibility(rows.iloc[[i]], prepared.population)
    nothing: dict[str, Figure] = dict.fromkeys(figures_of([]), (None,) * len(queries))
    return outcome_of(prepared, method, 0, {}, spent, {**nothing, **_figures(prepared, near)}, native=False)


def _nice(prepared: Prepared, optimization: str, model: Any) -> Any:
    """Return a NICE; for plausibility with an auto-encoder of the rows as NICE has them."""
    train, labels = prepared.train, prepared.labels
    plain = nice(train, labels, model, prepared.desired)
    if optimization == "none":
        return plain
    judge = None
    if optimization == "plausibility":
        categorical = [i for i, name in enumerate(train) if not pd.api.types.is_numeric_dtype(train[name])]
        judge = AutoEncoder(plain.encode(train), categorical, prepared.setting.seed)
    return nice(train, labels, model, prepared.desired, optimization=optimization, auto_encoder=judge)


def _figures(prepared: Prepared, near: Sequence[Plausibility | None]) -> dict[str, Figure]:
    features = len(prepared.population.schema.features)
    return {
        "nearest": tuple(None if found is None else features * found.nearest for found in near),
        "nearest_5": tuple(None if found is None else features * found.nearest_5 for found in near),
    }


class _Counting:
    """A model with a count of what NICE asks it."""

    def __init__(self, model: Pipeline) -> None:
        self._model, self.classes_ = model, model.classes_
        self.seconds, self.calls = 0.0, 0

    def predict_proba(self, rows: pd.DataFrame) -> NDArray[np.float64]:
        started = time.perf_counter()
        answers = np.asarray(self._model.predict_proba(rows))
        self.seconds += time.perf_counter() - started
        self.calls += 1
        return answers
