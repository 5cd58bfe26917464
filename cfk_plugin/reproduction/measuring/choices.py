"""Choosing between several counterfactuals of a query: what a farther one is worth."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.metrics.heom import Heom
from cfk_plugin.release.explainer import check_number, choose_candidates
from cfk_plugin.reproduction.explainers import justified
from cfk_plugin.reproduction.measuring.certificates import figures_of, outcome_of, timed
from cfk_plugin.reproduction.outcome import Measurement
from cfk_plugin.reproduction.preparing import Prepared


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
