"""Plausibility: how close explanations are to the training data, and how much of it supports them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfk_plugin.data.domain import UNKNOWN
from cfk_plugin.data.model import Grid, rows_for_cells
from cfk_plugin.errors import InputError
from cfk_plugin.metrics.heom import Heom
from cfk_plugin.metrics.intervals import Estimate, mean_of, share_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from cfk_plugin.data.population import Population
    from cfk_plugin.data.region import Region
    from cfk_plugin.metrics.heom import FeatureSpace, HeomCodes


# Plausibility: how close explanations are to the training data.


@dataclass(frozen=True, slots=True)
class Plausibility:
    """Mean HEOM distance to training rows, in [0, 1] inside the population's ranges; lower is closer.

    Attributes
    ----------
    nearest : float
        To the nearest training row; 0 means native.
    nearest_5 : float
        To the 5 nearest training rows (all, when there are fewer).
    n : int
        Number of rows averaged over.
    """

    nearest: float
    nearest_5: float
    n: int


def plausibility(rows: pd.DataFrame, population: Population) -> Plausibility:
    """Return how far rows are from the training rows.

    Parameters
    ----------
    rows : DataFrame
        Counterfactuals with every feature of the schema, in any order and dtype.
    population : Population

    Returns
    -------
    Plausibility
        NaN for an empty table.

    Notes
    -----
    mean over rows of HEOM to the 1 nearest and of the mean HEOM to the 5 nearest; duplicates in the training
    data count as often as they occur. Close is good for the advice and bad for privacy: it does not say
    which.

    References
    ----------
    Wilson, Martinez (1997), Improved heterogeneous distance functions.
    """
    features = population.schema.features
    if lost := [name for name in features if name not in rows.columns]:
        raise InputError(f"the rows lack {', '.join(lost)}")
    if not len(rows):
        return Plausibility(float("nan"), float("nan"), 0)
    heom = heom_of(population)
    table = heom.encode(population.frame[list(features)])
    _, distances = heom.nearest(heom.encode(population.conform(rows)), table, k=min(5, population.n_rows))
    return Plausibility(float(distances[:, 0].mean()), float(distances.mean()), len(rows))


def region_plausibility(
    region: Region,
    counterfactual: pd.DataFrame,
    population: Population,
    *,
    n: int = 100,
    random_state: int | np.random.Generator | None = None,
) -> Plausibility:
    """Return how far the value combinations that a region stands for are from the training rows.

    Parameters
    ----------
    region : Region
    counterfactual : DataFrame of one row
        Its private values go with every combination.
    population : Population
    n : int
        Combinations drawn without replacement; all, when the region has no more.
    random_state : int or Generator, optional
        Seed of the draws.

    Returns
    -------
    Plausibility
    """
    if len(counterfactual) != 1 or n < 1:
        raise InputError("give one counterfactual, and n >= 1")
    if lost := [name for name in population.schema.features if name not in counterfactual.columns]:
        raise InputError(f"the counterfactual lacks {', '.join(lost)}")
    row = population.conform(counterfactual)
    own = [int(population.domains[q].encode(row[q])[0][0]) for q in population.schema.quasi_identifiers]
    grid = Grid.of(region, population, [code if code >= 0 else UNKNOWN for code in own])
    if grid.size == 0:
        raise InputError("the region holds no value combination of the population")
    cells = grid.sample(n, np.random.default_rng(random_state))
    return plausibility(rows_for_cells(population, row, np.zeros(len(cells), dtype=np.int64), cells), population)


def heom_of(population: Population) -> Heom:
    """Return the distance over the features of a population: its ranges, its kinds."""
    features = list(population.schema.features)
    numeric = [name for name in features if population.schema[name].kind == "numeric"]
    return Heom.fit(population.frame[features], numeric=numeric)


# Copies: which rows equal a row of a table, and which fit one person alone.


def is_copy(rows: HeomCodes, table: HeomCodes, space: FeatureSpace) -> NDArray[np.bool_]:
    """Say of each row whether it equals a row of a table on every feature."""
    own, others = space.keys(rows, table, [*space.heom.numeric, *space.heom.categorical])
    return np.isin(own, others)


def fits_one(
    rows: HeomCodes,
    table: HeomCodes,
    names: Sequence[str],
    space: FeatureSpace,
    people: Callable[[NDArray[np.int64]], int] = len,
) -> NDArray[np.bool_]:
    """Say of each row whether exactly one person of a table has its values of some features."""
    own, others = space.keys(rows, table, names)
    wanted, at = np.unique(own, return_inverse=True)
    order = np.argsort(others, kind="stable")
    first, last = (np.searchsorted(others[order], wanted, side=side) for side in ("left", "right"))
    alone = [people(order[i:j]) == 1 for i, j in zip(first.tolist(), last.tolist(), strict=True)]
    return np.array(alone, dtype=np.bool_)[at.reshape(-1)]


# Support by the training rows: how near they are, which value pairs they lack, and whom a row fits alone.

Reference = Iterable[tuple["NDArray[np.bool_]", "NDArray[np.bool_]"]]
"""Which rows (a mask) are held against which rows of a table (a mask); no row twice."""


@dataclass(frozen=True, slots=True)
class Support:
    """How a set of rows, served or fresh, stands to the training rows.

    Attributes
    ----------
    nn1, nn5 : Estimate
        L1 distance to the nearest training row with the desired outcome, and its mean to the 5 nearest.
    unseen_pair : Estimate
        Share with two values that no training row has together.
    singled_out : Estimate
        Share whose quasi-identifiers exactly one person of the training rows has.
    """

    nn1: Estimate
    nn5: Estimate
    unseen_pair: Estimate
    singled_out: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {field.name: getattr(self, field.name).to_dict() for field in fields(self)}


def support_of(
    rows: HeomCodes,
    table: HeomCodes,
    reference: Reference,
    population: Population,
    space: FeatureSpace,
    random: np.random.Generator,
) -> Support:
    """Measure rows against all training rows; the nearest ones among those that `reference` names."""
    one, five = nearest_wanted(rows, table, reference, space)
    return Support(
        mean_of(one, random),
        mean_of(five, random),
        share_of(has_unseen_pair(rows, table, space)),
        share_of(fits_one(rows, table, population.schema.quasi_identifiers, space, population.people)),
    )


def nearest_wanted(
    rows: HeomCodes, table: HeomCodes, reference: Reference, space: FeatureSpace
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the L1 distance of each row to the nearest, and its mean to the 5 nearest, of the rows it is held against.

    NaN where there are none; all of them where there are fewer than 5.
    """
    one, five = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    features = len(space.heom.numeric) + len(space.heom.categorical)
    for asked, wanted in reference:
        if not asked.any() or not wanted.any():
            continue
        found = space.heom.nearest(rows.take(asked), table.take(wanted), k=min(5, int(wanted.sum())))[1] * features
        one[asked], five[asked] = found[:, 0], found.mean(axis=1)
    return one, five


def has_unseen_pair(rows: HeomCodes, table: HeomCodes, space: FeatureSpace) -> NDArray[np.bool_]:
    """Say of each row whether two of its values, numbers as bins, occur together in no row of a table."""
    cut = len(rows)
    columns = [
        pd.factorize(np.concatenate(pair))[0].astype(np.int64)
        for pair in zip(space.bins(rows), space.bins(table), strict=True)
    ]
    unseen = np.zeros(cut, dtype=bool)
    for a, b in combinations(columns, 2):
        both = a * (int(b.max(initial=0)) + 1) + b
        unseen |= ~np.isin(both[:cut], both[cut:])
    return unseen
