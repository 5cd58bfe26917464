"""From the figures of single explanations to those of the tables: means with intervals, counts, shares and times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfk_plugin.errors import InputError
from cfk_plugin.metrics.information import discernibility
from cfk_plugin.metrics.intervals import mean_of
from cfk_plugin.reproduction.outcome import Figure, Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """What one method gave on one table at one k, as the paper's tables say it and some more.

    Figures are over the explanations that were released; None where nothing was released or measured.

    Attributes
    ----------
    table, method : str
    k : int
    options : mapping
        Settings of the method that are not its usual ones.
    n, released : int
        Explanations asked for, and of them released.
    ncp, ncp_low, ncp_high, pureness, pureness_low, pureness_high : float or None
        Means, shares in [0, 1], with 95 % bootstrap intervals.
    cdm, cdm_per_explanation : float or None
        Sum of the people in each region; the same per released explanation.
    cm : float or None
        Share of explanations whose class is mostly predicted another outcome.
    k_min, k_desired_min, k_consistent_min, k_effective_min : float or None
        Least over explanations.
    k_desired, k_consistent, k_effective : float or None
        Mean over explanations.
    k_effective_n : int
        Of how many explanations the effective k was measured.
    proven, pure : float or None
        Share proven optimal; share whose pureness is exactly 1.
    seconds, search_seconds, model_seconds : float or None
        Per explanation asked for: the whole call, what of it is not the model's predict, and the model's predict. None
        where the aggregate is over the first of them only: times are of a whole batch.
    fit_seconds : float
        Once per method: binding model and population.
    run_id : str or None
        The MLflow run that holds the figures of each explanation.
    """

    table: str
    method: str
    k: int
    options: Mapping[str, Any] = field(default_factory=dict)
    n: int
    released: int
    ncp: float | None
    ncp_low: float | None
    ncp_high: float | None
    pureness: float | None
    pureness_low: float | None
    pureness_high: float | None
    cdm: float | None
    cdm_per_explanation: float | None
    cm: float | None
    k_min: float | None
    k_desired: float | None
    k_desired_min: float | None
    k_consistent: float | None
    k_consistent_min: float | None
    k_effective: float | None
    k_effective_min: float | None
    k_effective_n: int
    proven: float | None
    pure: float | None
    seconds: float | None
    search_seconds: float | None
    model_seconds: float | None
    fit_seconds: float
    run_id: str | None = None


def aggregate(outcome: Measurement, first: int | None = None, *, run_id: str | None = None) -> Aggregate:
    """Return the figures of an outcome, or of its first explanations alone.

    Parameters
    ----------
    outcome : Measurement
    first : int, optional
        Only the first so many explanations count, so that a method that was asked for fewer compares.
    run_id : str, optional
        The MLflow run of the outcome.

    Returns
    -------
    Aggregate
        The same outcome gives the same intervals.

    Raises
    ------
    InputError
        If there are fewer explanations than `first`.
    """
    n = outcome.asked if first is None else first
    if not 0 <= n <= outcome.asked:
        raise InputError(f"{outcome.method} was asked for {outcome.asked} explanations, not for {n}")
    found = {name: _known(values[:n]) for name, values in outcome.figures.items()}
    whole = n == outcome.asked and n > 0
    sizes = found.get("k", [])
    cdm = discernibility([int(size) for size in sizes]) if sizes else None
    agrees = _mean(found.get("agrees", []))
    effective = found.get("k_effective", [])
    return Aggregate(
        table=outcome.setting.table,
        method=outcome.method,
        k=outcome.k,
        options=dict(outcome.options),
        n=n,
        released=len(found.get("ncp", [])),
        **_estimate("ncp", found.get("ncp", [])),
        **_estimate("pureness", found.get("pureness", [])),
        cdm=cdm,
        cdm_per_explanation=None if cdm is None else cdm / len(sizes),
        cm=None if agrees is None else 1 - agrees,
        k_min=min(sizes, default=None),
        **_mean_and_least("k_desired", found),
        **_mean_and_least("k_consistent", found),
        **_mean_and_least("k_effective", found),
        k_effective_n=len(effective),
        proven=_mean(found.get("proven", [])),
        pure=_mean([float(value == 1) for value in found.get("pureness", [])]),
        seconds=outcome.seconds / n if whole else None,
        search_seconds=(outcome.seconds - outcome.model_seconds) / n if whole else None,
        model_seconds=outcome.model_seconds / n if whole else None,
        fit_seconds=outcome.fit_seconds,
        run_id=run_id,
    )


def aggregates(
    outcomes: Iterable[Measurement], runs: Mapping[tuple[str, str, int], str] | None = None
) -> list[Aggregate]:
    """Return one aggregate per outcome that has the usual settings of its method.

    Parameters
    ----------
    outcomes : iterable of Measurement
    runs : mapping, optional
        (table, method, k) to the id of the MLflow run.

    Returns
    -------
    list of Aggregate
    """
    known = runs or {}
    return [
        aggregate(outcome, run_id=known.get((outcome.setting.table, outcome.method, outcome.k)))
        for outcome in outcomes
        if not outcome.options
    ]


def _known(values: Figure) -> list[float]:
    return [float(value) for value in values if value is not None]


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _mean_and_least(name: str, found: Mapping[str, list[float]]) -> dict[str, Any]:
    values = found.get(name, [])
    return {name: _mean(values), f"{name}_min": min(values, default=None)}


def _estimate(name: str, values: list[float]) -> dict[str, Any]:
    mean = mean_of(np.asarray(values), np.random.default_rng(0)).to_dict()
    return {name: mean["value"], f"{name}_low": mean["low"], f"{name}_high": mean["high"]}
