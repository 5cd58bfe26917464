"""Spoiling: change rows as little as possible, until the model refuses them.

A query that has the desired outcome gets no answer. So attackers who start from a record that has
it spoil the record first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from cfk_plugin.audit.setting import Mask, Rows
from cfk_plugin.data.population import Population
from cfk_plugin.metrics.heom import Heom

_TRIES = 100  # attempts to spoil a row, per number of changed values
_CHANGES = (1, 2)
_BLOCK = 200  # rows spoiled at once

IsDesired = Callable[[pd.DataFrame, Rows], Mask]
"""From rows, and which of the rows to spoil each was made of, to whether they have the outcome."""


def spoil(
    population: Population, rows: pd.DataFrame, is_desired: IsDesired, rng: np.random.Generator
) -> tuple[pd.DataFrame, Mask]:
    """Change as few private values as possible until the outcome is not the desired one.

    Of the changes that are found, the nearest by HEOM is taken.

    Parameters
    ----------
    population : Population
    rows : pandas.DataFrame
        All features. Rows without the outcome stay as they are.
    is_desired : callable
    rng : numpy.random.Generator

    Returns
    -------
    pandas.DataFrame
        The rows, in the same order.
    numpy.ndarray of bool, shape (n_rows,)
        Which of them do not have the outcome. The others could not be spoiled, and are as given.
    """
    if not len(rows):
        return rows, np.zeros(0, dtype=bool)
    is_spoiled = ~is_desired(rows, np.arange(len(rows)))
    out = rows.reset_index(drop=True).astype(object)
    for n_changes in _CHANGES:
        waiting = np.flatnonzero(~is_spoiled)
        for start in range(0, len(waiting), _BLOCK):
            block = waiting[start : start + _BLOCK]
            found, spoiled = _spoiled(population, rows, block, is_desired, n_changes, rng)
            out.iloc[block[found]] = spoiled.astype(object).to_numpy()
            is_spoiled[block[found]] = True
    return population.conform(out), is_spoiled


def _spoiled(
    population: Population,
    rows: pd.DataFrame,
    block: Rows,
    is_desired: IsDesired,
    n_changes: int,
    rng: np.random.Generator,
) -> tuple[Rows, pd.DataFrame]:
    """Return which rows of a block could be spoiled by this many changes, and how: the nearest
    form of each.
    """
    which = np.repeat(block, _TRIES)
    tried = _changed(population, rows.take(which), n_changes, rng)
    is_bad = ~is_desired(tried, which)
    heom = Heom.of(population)
    spoiled = []
    best = []
    for i, row in enumerate(block.tolist()):
        ways = i * _TRIES + np.flatnonzero(is_bad[i * _TRIES : (i + 1) * _TRIES])
        if len(ways):
            distance = heom.distances(rows.take([row]), tried.take(ways))[0]
            spoiled.append(i)
            best.append(int(ways[int(np.argmin(distance))]))
    return np.array(spoiled, dtype=np.int64), tried.take(best)


def _changed(
    population: Population, rows: pd.DataFrame, n_changes: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Replace some private values of every row by values of their domains."""
    private = population.schema.private
    order = np.argsort(rng.random((len(rows), len(private))), axis=1)[
        :, : min(n_changes, len(private))
    ]
    codes = population.encode(rows)[0]
    columns = {name: rows[name].reset_index(drop=True) for name in population.schema.features}
    for j, name in enumerate(private):
        domain = population.domains[name]
        hit = (order == j).any(axis=1)
        drawn = domain.restore(rng.integers(0, domain.size, len(rows)))
        known = codes[:, population.schema.features.index(name)]
        if (known >= 0).all():
            columns[name] = domain.restore(np.where(hit, domain.encode(drawn)[0], known))
        else:
            columns[name] = columns[name].astype(object).mask(hit, drawn.astype(object))
    return population.conform(pd.DataFrame(columns))
