"""The pieces of the attack: train the owner's service or a shadow, and ask it about the people under attack."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfk_plugin.audit.attacked import Owner, Sample, Service
from cfk_plugin.audit.attacked.sample import Mask, Rows
from cfk_plugin.audit.membership.distance import Distance
from cfk_plugin.audit.membership.parts import Parts
from cfk_plugin.audit.running.pieces import Found
from cfk_plugin.errors import InputError

Floats = NDArray[np.float64]


def ask_target(owner: Owner, parts: Parts, attacked: int, distance: Distance | None, seed: int) -> Found:
    """Train the service under attack and ask it about members and others whom it gives the undesired outcome.

    Parameters
    ----------
    owner : Owner
    parts : Parts
    attacked : int
        Most members, and most others; more are sampled.
    distance : callable, optional
        None asks for no explanation.
    seed : int

    Returns
    -------
    mapping
        ``members`` and ``others``: positions in the table and among the others. ``distance``, ``found``,
        ``confidence``: members first. ``train_accuracy``, ``test_accuracy``.
    """
    service = owner.train(parts.table, seed)
    sides, accuracies = [], []
    for number, people in enumerate((parts.table, parts.others)):
        desired = service.desired(people.X)
        accuracies.append(float((desired == people.y).mean()))
        undesired = np.flatnonzero(~desired)
        if len(undesired) > attacked:
            undesired = np.sort(np.random.default_rng([seed, 2, number]).choice(undesired, attacked, replace=False))
        sides.append(undesired)
    queries = together(parts, *sides).X
    return {
        "members": sides[0],
        "others": sides[1],
        "train_accuracy": np.array(accuracies[0]),
        "test_accuracy": np.array(accuracies[1]),
        **_ask(service, queries, np.ones(len(queries), dtype=bool), distance),
    }


def ask_shadow(
    owner: Owner, pool: Sample, rows: Rows, queries: pd.DataFrame, distance: Distance | None, seed: int
) -> Found:
    """Train a shadow on people of the pool and ask it about the same people as the target.

    Returns
    -------
    mapping
        ``distance``, ``found``, ``confidence``, one per query. Whom the shadow gives the desired outcome has nothing to
        ask it: nothing is found.
    """
    service = owner.train(pool.take(rows), seed)
    asks = ~service.desired(queries) if distance is not None else np.zeros(len(queries), dtype=bool)
    return _ask(service, queries, asks, distance)


def together(parts: Parts, members: Rows, others: Rows) -> Sample:
    """Return the people under attack, members first."""
    inside, outside = parts.table.take(members), parts.others.take(others)
    return Sample(pd.concat([inside.X, outside.X], ignore_index=True), np.concatenate([inside.y, outside.y]))


def shadow_call(
    owner: Owner, parts: Parts, queries: pd.DataFrame, distance: Distance | None, shadow: int, seed: int
) -> partial[Found]:
    """Return `ask_shadow` of a shadow by its number, which decides on whom and with which seed it is trained."""
    trained = int(np.random.default_rng([seed, 3, shadow]).integers(2**31))
    return partial(ask_shadow, owner, parts.pool, parts.shadow_rows(shadow, seed), queries, distance, trained)


def _ask(service: Service, queries: pd.DataFrame, asks: Mask, distance: Distance | None) -> Found:
    n = len(queries)
    measured, found = np.zeros(n), np.zeros(n, dtype=bool)
    if distance is not None and asks.any():
        asked = queries[asks].reset_index(drop=True)
        answers = service.explain(asked)
        given = np.asarray(answers.found, dtype=bool)
        if len(given) != len(asked) or len(answers.rows) != len(asked):
            raise InputError(f"{len(asked)} queries got {len(answers.rows)} answers; a service gives one to each")
        apart = np.full(len(asked), np.nan)
        if given.any():
            apart[given] = distance(asked[given], answers.rows.loc[:, asked.columns][given])
        known = np.isfinite(apart)
        measured[asks], found[asks] = np.where(known, apart, 0.0), known
    confidence = np.asarray(service.confidence(queries), dtype=np.float64) if n else np.empty(0)
    return {"distance": measured, "found": found, "confidence": confidence}
