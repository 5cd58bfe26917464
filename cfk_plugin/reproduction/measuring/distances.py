"""How near explanations are to the training rows: section 6.4 of the paper, its Table 8.

Protected counterfactuals beside those of NICE, which moves from the person who asks towards a training row and stops
early, for few changes, for nearness or for plausibility.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.errors import InputError
from cfk_plugin.metrics.plausibility import Plausibility, plausibility, region_plausibility
from cfk_plugin.nice import Nice
from cfk_plugin.release.results import GeneralizedCounterfactual
from cfk_plugin.reproduction.explainers import choose
from cfk_plugin.reproduction.measuring.autoencoder import AutoEncoder
from cfk_plugin.reproduction.measuring.certificates import Spent, figures_of, outcome_of, timed
from cfk_plugin.reproduction.methods import METHODS
from cfk_plugin.reproduction.outcome import Figure, Measurement
from cfk_plugin.reproduction.preparing import Prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sklearn.pipeline import Pipeline

    from cfk_plugin.release.results import Entry

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
    nice = _nice(prepared, NICE[method], model)
    bound = time.perf_counter()
    seconds, calls = model.seconds, model.calls
    found = nice.explain(queries)
    ended = time.perf_counter()
    spent = Spent(bound - started, ended - bound, model.seconds - seconds, model.calls - calls)
    answered = np.flatnonzero(~np.isnan(found).all(axis=1))
    rows = nice.decode(found[answered])
    near: list[Plausibility | None] = [None] * len(queries)
    for i, place in enumerate(answered):
        near[place] = plausibility(rows.iloc[[i]], prepared.population)
    nothing: dict[str, Figure] = dict.fromkeys(figures_of([]), (None,) * len(queries))
    return outcome_of(prepared, method, 0, {}, spent, {**nothing, **_figures(prepared, near)}, native=False)


def _nice(prepared: Prepared, optimization: str, model: Any) -> Nice:
    """Return a NICE; for plausibility with an auto-encoder of the rows as NICE has them."""
    train, labels = prepared.train, prepared.labels
    plain = Nice(train, labels, model, prepared.desired)
    if optimization == "none":
        return plain
    judge = None
    if optimization == "plausibility":
        categorical = [i for i, name in enumerate(train) if not pd.api.types.is_numeric_dtype(train[name])]
        judge = AutoEncoder(plain.encode(train), categorical, prepared.setting.seed)
    return Nice(train, labels, model, prepared.desired, optimization, judge)


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
