"""What the methods release for the counterfactuals of a table, in figures."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.data.policy import PrivacyPolicy
from cfk_plugin.errors import LookupGuaranteeWarning
from cfk_plugin.hookspecs import Protector
from cfk_plugin.metrics.combinations import Plausibility, plausibility, region_plausibility
from cfk_plugin.protection import ExactProtector, GraspProtector, MondrianProtector
from cfk_plugin.release.anonymizer import KAnonymizer
from cfk_plugin.release.results import Explanation, GeneralizedCounterfactual
from reproduction.prepare import SEED, AutoEncoder, Prepared, nice

N_COMBINATIONS = 100
"""Value combinations of a region whose distances are measured; footnote 16 of the paper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A way to protect counterfactuals."""

    label: str  # its name in tables and figures
    make_protector: Callable[..., Protector]
    objective: Literal["pureness", "ncp"] = "pureness"


def mondrian_with_raw_widths() -> MondrianProtector:
    """Return Mondrian as the paper's baseline most likely has it."""
    return MondrianProtector(normalise=False)


METHODS: Mapping[str, Method] = {
    "grasp": Method(label="CF-K (GRASP)", make_protector=GraspProtector),
    "exact-ncp": Method(label="exact, least NCP", make_protector=ExactProtector, objective="ncp"),
    "exact-pureness": Method(label="exact, purest", make_protector=ExactProtector),
    "mondrian-raw": Method(
        label="Mondrian, raw widths", make_protector=mondrian_with_raw_widths, objective="ncp"
    ),
    "mondrian": Method(
        label="Mondrian, normalised widths", make_protector=MondrianProtector, objective="ncp"
    ),
}
"""Methods by name. "grasp" is the method of the paper with its settings."""

NICE: Mapping[str, str] = {
    "nice-none": "none",
    "nice-sparsity": "sparsity",
    "nice-proximity": "proximity",
    "nice-plausibility": "plausibility",
}
"""What each variant of NICE optimises. They protect nothing; "nice-none" returns training rows."""

LABELS: Mapping[str, str] = {
    **{name: method.label for name, method in METHODS.items()},
    **{name: f"NICE ({optimised})" for name, optimised in NICE.items()},
    "paper": "CF-K as printed",
}
"""Names in tables and figures."""

FIGURES = (
    "ncp",
    "pureness",  # exact, or of 10,000 drawn combinations
    "k",  # people in the region
    "k_desired",  # of them, those who are predicted the desired outcome
    "k_consistent",
    "proven",  # 1 if the region is proven optimal
    "agrees",  # 1 if most people in the region are predicted the desired outcome
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The figures of one method at one k: numbers about explanations, and no value of a row."""

    table: str
    method: str
    k: int
    settings: Mapping[str, int]  # of the protector, where they are not the usual ones
    figures: pd.DataFrame  # columns `FIGURES`; a row per explanation, NaN if it is withheld
    groups: tuple[str, ...]  # of the person behind each counterfactual
    groups_asking: tuple[str, ...]  # of the person behind each query
    seconds: float  # of the call that protects all counterfactuals
    model_seconds: float  # of that, in the model's predict
    model_calls: int

    @property
    def n(self) -> int:
        """The number of explanations that were asked for."""
        return len(self.figures)

    @property
    def n_released(self) -> int:
        return len(self.known("ncp"))

    def known(self, figure: str) -> NDArray[np.float64]:
        """Return a figure of the explanations for which it was measured."""
        return self.figures[figure].dropna().to_numpy()


def measure(
    prepared: Prepared,
    method: str,
    k: int,
    *,
    n: int | None = None,
    settings: Mapping[str, int] | None = None,
) -> Measurement:
    """Protect counterfactuals of a table with one method, and measure what is released.

    Parameters
    ----------
    prepared : Prepared
    method : str
        One of `METHODS`.
    k : int
    n : int, optional
        Protect the first n counterfactuals. By default, all.
    settings : mapping, optional
        Arguments of the protector.

    Returns
    -------
    Measurement
    """
    settings = settings or {}
    counterfactuals = prepared.counterfactuals.iloc[:n]
    # The first call compiles, and builds an index that all methods share.
    fit_method(prepared, "exact-ncp", k).transform(counterfactuals.head(1))
    anonymizer = fit_method(prepared, method, k, settings)
    model = anonymizer.model_
    model_seconds_before = model.seconds
    model_calls_before = model.calls
    started = time.perf_counter()
    entries = list(anonymizer.transform(counterfactuals))
    seconds = time.perf_counter() - started
    model_seconds = model.seconds - model_seconds_before
    model_calls = model.calls - model_calls_before

    figures = figures_of(entries)
    return Measurement(
        table=prepared.name,
        method=method,
        k=k,
        settings=settings,
        figures=figures,
        groups=prepared.groups[: len(entries)],
        groups_asking=prepared.groups_asking[: len(entries)],
        seconds=seconds,
        model_seconds=model_seconds,
        model_calls=model_calls,
    )


def fit_method(
    prepared: Prepared,
    name: str,
    k: int,
    settings: Mapping[str, int] | None = None,
) -> KAnonymizer:
    """Bind a method to a table. People count as in the paper, and no explanation is withheld for
    its pureness.
    """
    method = METHODS[name]
    policy = PrivacyPolicy(k=k, guarantee="lookup", objective=method.objective)
    protector = method.make_protector(**(settings or {}))
    anonymizer = KAnonymizer(policy=policy, method=protector, random_state=SEED)
    with warnings.catch_warnings():
        # The experiments of the paper are about that guarantee.
        warnings.simplefilter("ignore", LookupGuaranteeWarning)
        return anonymizer.fit(prepared.population, prepared.model, prepared.desired)


def figures_of(entries: list[Explanation]) -> pd.DataFrame:
    """Return the figures of explanations: a row each, NaN if it is withheld."""
    return pd.DataFrame(
        [_figures_of_entry(entry) for entry in entries], columns=list(FIGURES), dtype=float
    )


def _figures_of_entry(entry: Explanation) -> dict[str, float | None]:
    if not isinstance(entry, GeneralizedCounterfactual):
        return {}
    certificate = entry.certificate
    recount = entry.recount
    return {
        "ncp": entry.recount.ncp,
        "pureness": entry.recount.pureness,
        "k": entry.recount.k,
        "k_desired": recount.k_desired,
        "k_consistent": recount.k_consistent,
        "proven": certificate.optimal,
        "agrees": recount.majority,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Distances:
    """How far explanations are from the training rows: HEOM, summed over the features as in the
    paper.
    """

    table: str
    method: str
    k: int | None  # None for NICE
    nearest: NDArray[np.float64]  # to the nearest training row; without explanations withheld
    nearest_5: NDArray[np.float64]  # mean over the five nearest, an equal row included


def measure_distances(
    prepared: Prepared, method: str, k: int, *, n: int | None = None
) -> Distances:
    """Measure how far regions are from the training rows: the mean over 100 value combinations."""
    counterfactuals = prepared.counterfactuals.iloc[:n]
    entries = list(fit_method(prepared, method, k).transform(counterfactuals))
    distances = []
    for i, entry in enumerate(entries):
        if isinstance(entry, GeneralizedCounterfactual):
            distance = region_plausibility(
                entry.region,
                counterfactuals.iloc[[i]],
                prepared.population,
                n=N_COMBINATIONS,
                random_state=np.random.default_rng([SEED, i]),
            )
            distances.append(distance)
    return _summed_over_features(prepared, method, k, distances)


def measure_nice_distances(prepared: Prepared, method: str) -> Distances:
    """Measure how far the counterfactuals of a variant of NICE are from the training rows."""
    search = _nice_that_optimises(prepared, NICE[method])
    counterfactuals = search.explain(prepared.queries)
    is_answered = ~np.isnan(counterfactuals).all(axis=1)
    rows = search.decode(counterfactuals[is_answered])
    distances = [plausibility(rows.iloc[[i]], prepared.population) for i in range(len(rows))]
    return _summed_over_features(prepared, method, None, distances)


def _nice_that_optimises(prepared: Prepared, optimization: str) -> Any:
    make_nice = partial(nice, prepared.train, prepared.labels, prepared.model, prepared.desired)
    if optimization != "plausibility":
        return make_nice(optimization=optimization)
    categorical = [
        position
        for position, dtype in enumerate(prepared.train.dtypes)
        if not pd.api.types.is_numeric_dtype(dtype)
    ]
    # NICE gives its auto-encoder rows as it encodes them.
    encoded_rows = make_nice().encode(prepared.train)
    auto_encoder = AutoEncoder(encoded_rows, categorical)
    return make_nice(optimization=optimization, auto_encoder=auto_encoder)


def _summed_over_features(
    prepared: Prepared, method: str, k: int | None, distances: list[Plausibility]
) -> Distances:
    n_features = len(prepared.population.schema.features)
    return Distances(
        table=prepared.name,
        method=method,
        k=k,
        nearest=np.array([n_features * distance.nearest for distance in distances]),
        nearest_5=np.array([n_features * distance.nearest_5 for distance in distances]),
    )
