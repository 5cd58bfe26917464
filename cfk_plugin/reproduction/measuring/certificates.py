"""One method on one setting: protect all counterfactuals in one call and keep what the certificates say."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import pandas as pd

from cfk_plugin.errors import InputError, NominalGuaranteeWarning
from cfk_plugin.hookspecs import Progress
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.results import Certificate, Entry, GeneralizedCounterfactual
from cfk_plugin.reproduction.methods import METHODS, Method
from cfk_plugin.reproduction.outcome import Figure, Measurement
from cfk_plugin.reproduction.preparing import Prepared

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
